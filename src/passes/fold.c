/* Folds constants: the interpreter computes layers whose inputs are all constants. Results much larger than their
 * inputs stay, because a broadcast costs nothing as an index and a lot as data. */
#include "passes/passes.h"

#include <string.h>

#define FOLD_SMALL 4096       /* results up to this many elements are always folded */
#define FOLD_WORK 100000000.0 /* element operations that the interpreter may execute */

static bool foldable(const struct sol_layer *l)
{
    if (l->def->flags & LAYER_OPAQUE || !l->nin || loops_vary(l->loops)) return false;
    int64_t in = 0, out = 0;
    for (int i = 0; i < l->nin; i++) {
        if (!l->in[i]) continue;
        if (l->in[i]->role != TENSOR_CONST) return false;
        in += tensor_elements(l->in[i]);
    }
    for (int i = 0; i < l->nout; i++) out += tensor_elements(l->out[i]);
    double work = 1;
    for (int i = 0; i < l->loops->ivars.n; i++) work *= (double)l->loops->ivars.at[i].size;
    return in && (out <= FOLD_SMALL || out <= 2 * in) && work < FOLD_WORK;
}

static sol_status fold(struct sol_graph *g, struct sol_layer *l)
{
    void **data = NEW_ARRAY(g->arena, void *, l->loops->tensors.n + 1);
    int in = 0, out = 0;
    for (int i = 0; i < l->loops->tensors.n; i++) {
        int role = l->loops->tensors.at[i].role;
        if (role == LOOPS_INPUT) {
            while (!l->in[in]) in++;
            data[i] = (void *)(uintptr_t)l->in[in++]->data;
        } else if (role == LOOPS_OUTPUT) {
            struct sol_tensor *t = l->out[out++];
            data[i] = arena_alloc(g->arena, (size_t)tensor_elements(t) * dtype_def(t->dtype)->bytes + 1);
            t->data = data[i];
        }
    }
    return loops_interpret(g->ctx, l->loops, data);
}

sol_status pass_fold(struct sol_graph *g)
{
    for (struct sol_layer *l = g->first, *next; l; l = next) {
        next = l->next;
        if (!foldable(l)) continue;
        TRY(fold(g, l));
        for (int i = 0; i < l->nout; i++) {
            struct sol_tensor *t = l->out[i];
            int64_t shape[SOL_MAX_DIMS];
            for (int d = 0; d < t->ndim; d++) shape[d] = t->dim[d].size;
            struct sol_tensor *c = graph_tensor(g, TENSOR_CONST, t->name, t->dtype, t->ndim, shape);
            c->data = t->data;
            memcpy(c->dim, t->dim, sizeof c->dim);
            graph_replace(g, t, c);
        }
        graph_remove(g, l);
    }
    return SOL_OK;
}

sol_status pass_fold_again(struct sol_graph *g)
{
    return pass_fold(g);
}
