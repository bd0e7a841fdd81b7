/* Advice for the planner: what is being tried, else what wisdom says. */
#include <string.h>

#include "tune/tune.h"

const char *adviser_key(const struct adviser *ad, const char *key)
{
    struct hash h;
    char hex[33];
    hash_init(&h);
    hash_text(&h, key);
    hash_text(&h, ad->machine);
    hash_hex(&h, hex);
    return arena_strdup(ad->arena, hex);
}

static int pick(void *user, const struct choice *c)
{
    const struct adviser *ad = user;
    const intptr_t tried = ad->trial ? (intptr_t)map_get(ad->trial, c->key) : 0;
    if (tried) return (int)tried - 1;
    const struct wisdom_entry *e = wisdom_find(ad->wisdom, adviser_key(ad, c->key));
    for (int i = 0; e && i < c->n; i++)
        if (!strcmp(c->candidate[i].solver->name, e->solver) && c->candidate[i].variant.text &&
            !strcmp(c->candidate[i].variant.text, e->variant))
            return i;
    return -1;
}

struct adviser *adviser_make(struct sol_ctx *ctx, struct arena *a, const struct target *t)
{
    if (!strcmp(ctx_config(ctx, "autotune"), "off")) return NULL;
    struct adviser *ad = NEW(a, struct adviser);
    *ad = (struct adviser){
        .advice = {pick, ad}, .arena = a, .wisdom = wisdom_load(ctx, a), .machine = machine_text(ctx, a, t)};
    return ad;
}
