/* The plan of a graph: the phases of plan.h, in order. */
#include "plan/plan.h"

#include <math.h>
#include <string.h>

/* Gives every output a tensor of its own that a layer of its program writes: no input, no tensor of another output, and
 * for a gradient no tensor that forward computes. */
static sol_status own_outputs(struct sol_graph *g)
{
    bool *seen = NEW_ARRAY(g->arena, bool, g->ntensors + 1);
    uint8_t *program = NEW_ARRAY(g->arena, uint8_t, g->nlayers + 1);
    TRY(graph_programs(g, program));
    for (int i = 0; i < g->outputs.n; i++) {
        struct graph_output *o = &g->outputs.at[i];
        bool twice = o->t->role != TENSOR_VALUE || seen[o->t->id];
        if (!twice && o->backward && program[o->t->from->id] == PROGRAM_FORWARD) twice = true;
        seen[o->t->id] = true;
        if (!twice) continue;
        struct sol_layer *l;
        TRY(graph_add(g, NULL, &(struct new_layer){.kind = "identity", .nin = 1, .in = &o->t}, &l));
        o->t = l->out[0];
    }
    return SOL_OK;
}

static const char *network_key(struct plan *p)
{
    struct hash h;
    char key[33];
    hash_init(&h);
    hash_text(&h, ctx_config(p->ctx, "bands"));
    if (p->g->dims.n) hash_text(&h, plan_dims_text(p, UINT32_MAX, NULL));
    for (int i = 0; i < p->units.n; i++) {
        struct text t = text_new(p->scratch);
        if (p->units.at[i]->dead || p->units.at[i]->program == PROGRAM_PREPARE) continue;
        loops_print(p->units.at[i]->loops, &t);
        hash_text(&h, t.at ? t.at : "");
    }
    hash_hex(&h, key);
    return arena_strdup(p->arena, key);
}

sol_status plan_make(struct sol_graph *g, struct arena *a, const struct target *target, struct plan **out_plan)
{
    return plan_with_policy(g, a, target, NULL, out_plan);
}

/* -- what the configuration allows */

static const struct limit {
    const char *memory, *text, *fast; /* fast: with precision=fast */
    double once; /* balanced: loading and writing a byte takes up to 2 ns, which should pay off within 100 runs */
} limits[] = {{"fast", "", ", precision=fast", 0},
              {"balanced", ", memory=balanced", ", memory=balanced, precision=fast", 0.02},
              {"small", ", memory=small", ", memory=small, precision=fast", INFINITY}};

static const struct limit *limit_of(struct sol_ctx *ctx, const struct target *t)
{
    const char *memory = ctx_config(ctx, "memory");
    for (int i = 0; i < COUNT_OF(limits); i++)
        if (!strcmp(limits[i].memory, memory)) return &limits[i];
    return &limits[t->starts]; /* auto: fast or balanced */
}

static enum precision precision_of(struct sol_ctx *ctx)
{
    static const char *const names[] = {
        [PRECISION_DEFAULT] = "default", [PRECISION_FAST] = "fast", [PRECISION_HIGH] = "high"};
    int i = 0;
    while (strcmp(names[i], ctx_config(ctx, "precision"))) i++; /* config.def names no other */
    return (enum precision)i;
}

const char *plan_limits(struct sol_ctx *ctx, const struct target *t)
{
    const enum precision precision = precision_of(ctx);
    if (precision == PRECISION_HIGH) return ", no Winograd";
    return precision == PRECISION_FAST ? limit_of(ctx, t)->fast : limit_of(ctx, t)->text;
}

/* -- plans */

/* All kernels share a table of helpers. */
static const struct target *with_helpers(struct arena *a, const struct target *t)
{
    struct target *own = arena_memdup(a, t, sizeof *t);
    own->helpers = helpers_make(a, t);
    return own;
}

sol_status plan_start(struct sol_graph *g, struct arena *a, const struct target *target,
                      const struct tuning_policy *policy, struct plan **out_plan)
{
    const struct solver *forced;
    TRY(solver_forced(g->ctx, &forced));
    TRY(own_outputs(g));
    struct plan *p = NEW(a, struct plan);
    *p = (struct plan){.phase = PHASE_NONE,
                       .verify = ctx_verifies(g->ctx),
                       .g = g,
                       .arena = a,
                       .ctx = g->ctx,
                       .target = with_helpers(a, target),
                       .policy = policy,
                       .forced = forced,
                       .training = graph_is_joint(g),
                       .precision = precision_of(g->ctx),
                       .once = limit_of(g->ctx, target)->once,
                       .known = map_create(a),
                       .versions = map_create(a)};
    p->nallocations = g->ntensors + g->ntensors / 2 + 64;
    p->allocations = NEW_ARRAY(a, struct allocation, p->nallocations);
    for (int i = 0; i < g->tensors.n; i++) {
        struct allocation *s = &p->allocations[g->tensors.at[i]->id];
        s->t = s->root = g->tensors.at[i];
    }
    for (int i = 0; i < g->outputs.n; i++) plan_allocation(p, g->outputs.at[i].t)->output = true;
    *out_plan = p;
    return ctx_check(p->ctx);
}

/* -- phases */

static const struct {
    const char *name, *doc;
    sol_status (*run)(struct plan *p);
} phases[PLAN_PHASES] = {
#define X(NAME, name, doc) {#name, doc, plan_##name},
#include "plan/phases.def"
#undef X
};

const char *plan_phase_name(int phase, const char **out_doc)
{
    if (phase < 0 || phase >= PLAN_PHASES) return NULL;
    if (out_doc) *out_doc = phases[phase].doc;
    return phases[phase].name;
}

static sol_status run_phase(struct plan *p, enum plan_phase phase)
{
    if (phase == PHASE_SCAN && p->policy) p->key = network_key(p); /* before anything is chosen */
    TRY(phases[phase].run(p));
    plan_count(p);
    p->phase = phase;
    if (p->verify) TRY(plan_verify(p));
    return ctx_check(p->ctx);
}

enum { SCRATCH = 1 << 20 }; /* bytes that are not worth the time to free them */

/* Copies units' loops, and frees all else that phases left: many times as much. `to` NULL: no memory, which the context
 * remembers. */
static void keep_loops(struct plan *p, struct arena *to)
{
    if (!to) return;
    for (int i = 0; i < p->units.n; i++) p->units.at[i]->loops = loops_compact(to, p->units.at[i]->loops);
    arena_destroy(p->scratch);
    p->scratch = to == p->arena ? NULL : to;
    p->kept = arena_bytes(to);
}

sol_status plan_run(struct plan *p, enum plan_phase last)
{
    sol_status status = SOL_OK;
    p->scratch = arena_create(p->ctx);
    while (p->scratch && !status && p->phase < last) {
        status = run_phase(p, p->phase + 1);
        if (!status && p->phase < last && arena_bytes(p->scratch) > 2 * p->kept + SCRATCH)
            keep_loops(p, arena_create(p->ctx));
    }
    if (!status) status = ctx_check(p->ctx);
    if (!status) {
        keep_loops(p, p->arena);
    } else { /* nobody looks at the plan any more */
        p->units.n = 0;
        arena_destroy(p->scratch);
        p->scratch = NULL;
    }
    return status;
}

sol_status plan_with_policy(struct sol_graph *g, struct arena *a, const struct target *target,
                            const struct tuning_policy *policy, struct plan **out_plan)
{
    TRY(plan_start(g, a, target, policy, out_plan));
    return plan_run(*out_plan, PLAN_PHASES - 1);
}
