/* What backward computes again instead of reading it from memory: results of element-wise statements that need nothing
 * big but one tensor that is kept anyway. A batch-norm and an activation behind a convolution are the usual case: the
 * convolution's result is kept for the batch-norm's gradient, so the activation, which the next layer's gradient reads,
 * need not be kept as well. Everything else that backward reads of forward is kept. */
#include <string.h>

#include "grad/grad.h"

enum { SMALL = 8 }; /* a tensor this many times smaller costs nothing to keep */

struct recompute {
    struct sol_graph *g;
    const struct sol_layer *first; /* of backward */
    bool *forward;                 /* by tensor: a forward layer makes it */
    bool *read;                    /* by tensor: some backward layer reads it */
    bool *known;                   /* by tensor: `leaf` is found */
    const struct sol_tensor *
        *leaf;                 /* the one big tensor it is made of; NULL: of small ones alone; itself: it is kept */
    struct sol_tensor **again; /* made again in backward */
    int n;
};

/* The statement that alone writes output `t` of its layer, -1: there is none, or it is no map. */
static int map_statement(const struct sol_tensor *t)
{
    const struct loops *l = t->from->loops;
    int tensor = -1, found = -1, out = 0;
    if (t->from->def->flags & LAYER_OPAQUE) return -1;
    for (int i = 0; i < l->tensors.n; i++)
        if (l->tensors.at[i].role == LOOPS_OUTPUT && out++ == t->from_out) tensor = i;
    for (int i = 0; i < l->stmts.n; i++) {
        const struct loops_stmt *s = &l->stmts.at[i];
        for (int o = 0; o < s->nout; o++) {
            if (s->out[o] != tensor) continue;
            if (found >= 0 || s->nout != 1 || s->scan_step) return -1;
            found = i;
        }
    }
    return found;
}

struct reads {
    const struct loops *l;
    bool tensor[256], reduces;
};

static void see_read(void *user, int32_t node)
{
    struct reads *r = user;
    const struct ex *e = &r->l->ex.at[node];
    if (e->kind == EX_RED && e->u.bound) r->reduces = true;
    if (e->kind == EX_READ && e->tensor < COUNT_OF(r->tensor)) r->tensor[e->tensor] = true;
}

/* The graph tensor behind tensor i of a layer's loops; NULL: a temp or a table. */
static struct sol_tensor *behind(const struct sol_layer *l, int i)
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

static const struct sol_tensor *find_leaf(struct recompute *r, struct sol_tensor *t);

/* The one big tensor that the statement reads, directly or through what is made again; false: there are more, or it is
 * not kept anyway. */
static bool one_leaf(struct recompute *r, struct sol_tensor *t, int stmt, const struct sol_tensor **out)
{
    const struct sol_layer *l = t->from;
    struct reads reads = {.l = l->loops};
    *out = NULL;
    ex_walk(l->loops, l->loops->stmts.at[stmt].value, see_read, &reads);
    if (reads.reduces || l->loops->tensors.n > COUNT_OF(reads.tensor)) return false;
    for (int i = 0; i < l->loops->tensors.n; i++) {
        if (!reads.tensor[i] || l->loops->tensors.at[i].role == LOOPS_TABLE) continue;
        struct sol_tensor *x = behind(l, i);
        if (!x) return false;
        if (x->role != TENSOR_VALUE || tensor_elements(x) * SMALL <= tensor_elements(t)) continue;
        const struct sol_tensor *leaf = find_leaf(r, x);
        if (leaf == x && !r->read[x->id]) return false;
        if (leaf && *out && leaf != *out) return false;
        if (leaf) *out = leaf;
    }
    return true;
}

static const struct sol_tensor *find_leaf(struct recompute *r, struct sol_tensor *t)
{
    if (r->known[t->id]) return r->leaf[t->id];
    int stmt = map_statement(t);
    const struct sol_tensor *leaf = t;
    if (stmt >= 0 && !one_leaf(r, t, stmt, &leaf)) leaf = t;
    r->known[t->id] = true;
    return r->leaf[t->id] = leaf;
}

static bool is_again(struct recompute *r, struct sol_tensor *t)
{
    return t->role == TENSOR_VALUE && t->id < r->n && r->forward[t->id] && find_leaf(r, t) != t;
}

static sol_status make_again(struct recompute *r, struct sol_layer *before, struct sol_tensor *t)
{
    const struct sol_layer *l = t->from;
    int stmt = map_statement(t);
    struct reads reads = {.l = l->loops};
    if (r->again[t->id]) return SOL_OK;
    ex_walk(l->loops, l->loops->stmts.at[stmt].value, see_read, &reads);
    struct sol_tensor **user = NEW_ARRAY(r->g->arena, struct sol_tensor *, l->loops->tensors.n + 1);
    for (int i = 0; i < l->loops->tensors.n; i++) {
        struct sol_tensor *x = user[i] = behind(l, i);
        if (!reads.tensor[i] || !x || !is_again(r, x) || tensor_elements(x) * SMALL <= tensor_elements(t)) continue;
        TRY(make_again(r, before, x));
        user[i] = r->again[x->id];
    }
    return write_again(r->g, before, t, stmt, user, &r->again[t->id]);
}

sol_status grad_recompute(struct sol_graph *g, struct sol_layer *first)
{
    struct arena *a = g->arena;
    if (!strcmp(ctx_config(g->ctx, "training::memory"), "fast")) return SOL_OK;
    int n = g->ntensors;
    struct recompute r = {.g = g, .n = n};
    r.forward = NEW_ARRAY(a, bool, n);
    r.read = NEW_ARRAY(a, bool, n);
    r.known = NEW_ARRAY(a, bool, n);
    r.leaf = NEW_ARRAY(a, const struct sol_tensor *, n);
    r.again = NEW_ARRAY(a, struct sol_tensor *, n);
    TRY(ctx_check(g->ctx));
    for (const struct sol_layer *l = g->first; l && l != first; l = l->next)
        for (int o = 0; o < l->nout; o++) r.forward[l->out[o]->id] = true;
    for (const struct sol_layer *l = first; l; l = l->next)
        for (int i = 0; i < l->nin; i++)
            if (l->in[i]) r.read[l->in[i]->id] = true;
    for (struct sol_layer *l = first; l; l = l->next)
        for (int i = 0; i < l->nin; i++) {
            struct sol_tensor *x = l->in[i];
            if (!x || x->id >= n || !r.forward[x->id] || !is_again(&r, x)) continue;
            TRY(make_again(&r, l, x));
            l->in[i] = r.again[x->id];
            struct sol_layer *reader = l;
            PUSH(a, l->in[i]->readers, reader);
        }
    return ctx_check(g->ctx);
}
