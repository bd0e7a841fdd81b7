/* Backward recomputes tensors that forward does not save: copies of forward's layers, or of single statements, are
 * inserted ahead of the first backward layer that reads their results. checkpoint.c decides what is saved. */
#include "grad/grad.h"

#include <string.h>

/* The only statement that writes output `t` of its layer, if it is element-wise; -1: there is none. */
int remat_statement(const struct sol_tensor *t)
{
    const struct loops *loops = t->from->loops;
    int tensor = -1, found = -1, out = 0;
    if (t->from->def->flags & LAYER_OPAQUE) return -1;
    for (int i = 0; i < loops->tensors.n; i++)
        if (loops->tensors.at[i].role == LOOPS_OUTPUT && out++ == t->from_out) tensor = i;
    for (int i = 0; i < loops->stmts.n; i++) {
        const struct loops_stmt *s = &loops->stmts.at[i];
        for (int o = 0; o < s->nout; o++) {
            if (s->out[o] != tensor) continue;
            if (found >= 0 || s->nout != 1 || s->scan_step) return -1;
            found = i;
        }
    }
    return found;
}

struct sol_tensor *remat_tensor(const struct sol_layer *l, int i)
{
    int in = 0, out = 0;
    for (int k = 0; k < l->loops->tensors.n; k++) {
        const struct loops_tensor *t = &l->loops->tensors.at[k];
        struct sol_tensor *user = NULL;
        if (t->role == LOOPS_INPUT) {
            while (!l->in[in]) in++;
            user = l->in[in++];
        } else if (t->role == LOOPS_OUTPUT) {
            user = l->out[out++];
        }
        if (k == i) return user;
    }
    return NULL;
}

struct reads {
    const struct loops *loops;
    bool tensor[256], reduces;
};

static void see_read(void *user, int32_t node)
{
    struct reads *r = user;
    const struct ex *e = &r->loops->ex.at[node];
    if (e->kind == EX_RED && e->u.bound) r->reduces = true;
    if (e->kind == EX_READ && e->tensor < COUNT_OF(r->tensor)) r->tensor[e->tensor] = true;
}

bool remat_reads(struct arena *a, const struct sol_tensor *t, int stmt, struct sol_tensor ***out_t, int *out_n)
{
    const struct sol_layer *l = t->from;
    struct reads reads = {.loops = l->loops};
    *out_t = NEW_ARRAY(a, struct sol_tensor *, l->loops->tensors.n + 1);
    *out_n = 0;
    ex_walk(l->loops, l->loops->stmts.at[stmt].value, see_read, &reads);
    if (reads.reduces || l->loops->tensors.n > COUNT_OF(reads.tensor)) return false;
    for (int i = 0; i < l->loops->tensors.n; i++) {
        if (!reads.tensor[i] || l->loops->tensors.at[i].role == LOOPS_TABLE) continue;
        struct sol_tensor *x = remat_tensor(l, i);
        if (!x) return false;
        (*out_t)[(*out_n)++] = x;
    }
    return true;
}

struct remat {
    struct sol_graph *g;
    const struct checkpointing *k;
    struct sol_tensor **made; /* by tensor of forward: its copy in backward */
};

static sol_status recompute(struct remat *c, struct sol_layer *before, struct sol_tensor *t);

/* The tensor that replaces t for a reader in backward which recomputes `maker` (NULL: a reader of the gradient
 * itself). */
static sol_status read_recomputed(struct remat *c, struct sol_layer *before, const struct sol_tensor *maker,
                                  struct sol_tensor *t, struct sol_tensor **out_t)
{
    *out_t = t;
    const int64_t bytes = size_hint(tensor_bytes(t));
    if (checkpoint_keeps(c->k, t) || (maker && bytes * CHECKPOINT_SMALL <= size_hint(tensor_bytes(maker))))
        return SOL_OK;
    TRY(recompute(c, before, t));
    *out_t = c->made[t->id];
    return SOL_OK;
}

static sol_status remat_by_statement(struct remat *c, struct sol_layer *before, struct sol_tensor *t, int stmt)
{
    const struct sol_layer *l = t->from;
    struct sol_tensor **user = NEW_ARRAY(c->g->arena, struct sol_tensor *, l->loops->tensors.n + 1), **reads;
    int n;
    remat_reads(c->g->arena, t, stmt, &reads, &n);
    for (int i = 0; i < l->loops->tensors.n; i++) {
        struct sol_tensor *x = user[i] = remat_tensor(l, i);
        for (int k = 0; k < n; k++)
            if (x && reads[k] == x) TRY(read_recomputed(c, before, t, x, &user[i]));
    }
    return write_remat(c->g, before, t, stmt, user, &c->made[t->id]);
}

static sol_status remat_by_layer(struct remat *c, struct sol_layer *before, const struct sol_layer *l)
{
    struct sol_tensor **in = NEW_ARRAY(c->g->arena, struct sol_tensor *, l->nin + 1);
    struct sol_layer *copy;
    for (int i = 0; i < l->nin; i++)
        if (l->in[i]) TRY(read_recomputed(c, before, l->out[0], l->in[i], &in[i]));
    TRY(graph_add_again(c->g, before, l, arena_printf(c->g->arena, "%s again", l->name), in, &copy));
    for (int o = 0; o < l->nout; o++) c->made[l->out[o]->id] = copy->out[o];
    return SOL_OK;
}

static sol_status recompute(struct remat *c, struct sol_layer *before, struct sol_tensor *t)
{
    if (c->made[t->id]) return SOL_OK;
    const int stmt = remat_statement(t);
    struct sol_tensor **reads;
    int n;
    return stmt >= 0 && remat_reads(c->g->arena, t, stmt, &reads, &n) ? remat_by_statement(c, before, t, stmt)
                                                                      : remat_by_layer(c, before, t->from);
}

sol_status grad_recompute(struct sol_graph *g, const struct checkpointing *k)
{
    struct remat c = {g, k, NEW_ARRAY(g->arena, struct sol_tensor *, g->ntensors + 1)};
    const int n = g->ntensors, layers = g->nlayers;
    TRY(ctx_check(g->ctx));
    for (struct sol_layer *l = g->first; l; l = l->next) {
        if (l->id >= layers || checkpoint_program(k, l) != PROGRAM_BACKWARD) continue;
        for (int i = 0; i < l->nin; i++) {
            struct sol_tensor *x = l->in[i], *with;
            if (!x || x->id >= n) continue;
            TRY(read_recomputed(&c, l, NULL, x, &with));
            if (with == x) continue;
            struct sol_layer *reader = l;
            l->in[i] = with;
            PUSH(g->arena, with->readers, reader);
        }
    }
    return ctx_check(g->ctx);
}
