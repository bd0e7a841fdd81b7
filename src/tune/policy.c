/* The tuning policy: selects the candidate of the current trial, otherwise that of this machine's wisdom, otherwise
 * that of the built-in wisdom. */
#include <string.h>

#include "dnn/dnn.h"
#include "tune/tune.h"

/* Wisdom of another machine, with other caches and another number of threads, is used only if the cost model of this
 * machine does not contradict it: its best may have blocks too large for these caches, or too few tasks for these
 * threads. */
#define DOUBTFUL 1.3 /* times the cost of the cheapest candidate */

const struct wisdom_entry *wisdom_policy_entry(const struct wisdom_policy *wp, const char *key)
{
    return wisdom_find(wp->wisdom, key, wp->machine);
}

static int candidate_of(const struct choice *c, const struct wisdom_entry *e)
{
    for (int i = 0; e && i < c->n; i++)
        if (!strcmp(c->candidate[i].solver->name, e->solver) && c->candidate[i].variant.text &&
            !strcmp(c->candidate[i].variant.text, e->variant))
            return i;
    return -1;
}

static int pick(void *user, const struct choice *c)
{
    const struct wisdom_policy *wp = user;
    const intptr_t tried = wp->trial ? (intptr_t)map_get(wp->trial, c->key) : 0;
    if (tried) return (int)tried - 1;
    const struct wisdom_entry *own = wisdom_policy_entry(wp, c->key);
    const int i = candidate_of(c, own ? own : wisdom_find(wp->shipped, c->key, wp->kind));
    const bool doubtful = i >= 0 && c->candidate[i].variant.cost > DOUBTFUL * c->candidate[0].variant.cost;
    return !own && doubtful ? -1 : i;
}

struct wisdom_policy *wisdom_policy_make(struct sol_ctx *ctx, struct arena *a, const struct target *t,
                                         const struct sol_device_info *device)
{
    if (!strcmp(ctx_config(ctx, "autotune"), "off")) return NULL;
    struct wisdom_policy *wp = NEW(a, struct wisdom_policy);
    *wp = (struct wisdom_policy){.policy = {.pick = pick, .user = wp},
                                 .arena = a,
                                 .wisdom = wisdom_load(ctx, a),
                                 .shipped = wisdom_shipped(ctx, a),
                                 .machine = machine_text(ctx, a, t, device)};
    wp->kind = machine_kind(a, wp->machine);
    return wp;
}

void wisdom_policy_load_plugins(struct sol_ctx *ctx, struct wisdom_policy *wp)
{
    bool wanted = strcmp(ctx_config(ctx, "autotune"), "fast") != 0;
    for (int i = 0; i < wp->wisdom->entries.n; i++) {
        const struct solver *s = solver_named(wp->wisdom->entries.at[i]->solver);
        wanted |= s && s->foreign;
    }
    if (wanted) wp->policy.plugins = plugins_load(ctx, wp->arena);
}
