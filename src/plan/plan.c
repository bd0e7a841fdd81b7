/* The plan of a graph: the phases of plan.h, in order. */
#include "plan/plan.h"

#include <string.h>

/* Every output gets a tensor of its own that a layer writes: not an input, not the same one twice. */
static sol_status own_outputs(struct sol_graph *g)
{
    bool *seen = NEW_ARRAY(g->arena, bool, g->ntensors + 1);
    for (int i = 0; i < g->outputs.n; i++) {
        struct sol_tensor *t = g->outputs.at[i].t;
        bool twice = t->role != TENSOR_VALUE || seen[t->id];
        seen[t->id] = true;
        if (!twice) continue;
        struct sol_layer *l;
        TRY(graph_add(g, NULL, "identity", "", "", 1, &t, &(struct attrs){0}, &l));
        g->outputs.at[i].t = l->out[0];
    }
    return SOL_OK;
}

/* An output that depends on parameters alone is still written by every call. */
static void outputs_every_call(struct plan *p)
{
    for (int i = 0; i < p->g->outputs.n; i++) {
        struct store *s = plan_store(p, p->g->outputs.at[i].t);
        s->output = true;
        s->prepared = false;
    }
    for (int i = 0; i < p->units.n; i++) {
        struct unit *u = p->units.at[i];
        for (int k = 0; k < u->loops->tensors.n; k++) {
            const struct loops_tensor *t = &u->loops->tensors.at[k];
            if (t->role != LOOPS_OUTPUT || !plan_store(p, t->user)->output) continue;
            u->prepare = false;
        }
        for (int k = 0; k < u->loops->tensors.n && !u->prepare; k++)
            if (u->loops->tensors.at[k].role == LOOPS_OUTPUT)
                plan_store(p, u->loops->tensors.at[k].user)->prepared = false;
    }
}

static void reset_prepare(struct plan *p)
{
    outputs_every_call(p);
    /* what reads something made in every call is made in every call */
    for (int i = 0; i < p->units.n; i++) {
        struct unit *u = p->units.at[i];
        if (!u->prepare) continue;
        for (int k = 0; k < u->loops->tensors.n; k++) {
            const struct loops_tensor *t = &u->loops->tensors.at[k];
            if (t->role != LOOPS_INPUT || !t->user) continue;
            const struct store *s = plan_store(p, t->user);
            if (s->t->role == TENSOR_VALUE && !s->prepared) u->prepare = false;
        }
        for (int k = 0; k < u->loops->tensors.n && !u->prepare; k++)
            if (u->loops->tensors.at[k].role == LOOPS_OUTPUT)
                plan_store(p, u->loops->tensors.at[k].user)->prepared = false;
    }
}

sol_status plan_make(struct sol_graph *g, struct arena *a, const struct target *target, struct plan **out_plan)
{
    TRY(own_outputs(g));
    struct plan *p = NEW(a, struct plan);
    *p = (struct plan){.g = g,
                       .arena = a,
                       .ctx = g->ctx,
                       .target = target,
                       .winograd = strcmp(ctx_config(g->ctx, "precision"), "high") != 0};
    p->nstores = g->ntensors * 2 + 64;
    p->stores = NEW_ARRAY(a, struct store, p->nstores);
    for (int i = 0; i < g->tensors.n; i++) {
        struct store *s = &p->stores[g->tensors.at[i]->id];
        s->t = s->root = g->tensors.at[i];
    }
    TRY(plan_units(p));
    reset_prepare(p);
    TRY(plan_compose(p));
    TRY(plan_alias(p));
    TRY(plan_absorb(p));
    TRY(plan_layout(p));
    p->known = map_create(a);
    TRY(plan_band(p));
    TRY(plan_choose(p));
    *out_plan = p;
    return ctx_check(p->ctx);
}
