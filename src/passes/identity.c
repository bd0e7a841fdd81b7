/* Removes layers that change nothing. The loops tell which those are, `y[A B] = x[A B]`, not the names: dropout in
 * inference, a cast to the same type, or a reshape, slice, pad, transpose or repeat that moves no element. */
#include "passes/passes.h"

#include <math.h>

/* The tensor that l returns unchanged; NULL: none. */
static struct sol_tensor *copied(const struct sol_layer *l)
{
    const struct loops *o = l->loops;
    if (l->nout != 1 || !o || o->stmts.n != 1) return NULL;
    const struct loops_stmt *s = &o->stmts.at[0];
    const struct ex *v = &o->ex.at[s->value];
    if (s->nout != 1 || s->scan_step || v->kind != EX_READ || v->b) return NULL;
    const struct loops_tensor *x = &o->tensors.at[v->tensor], *y = &o->tensors.at[s->out[0]];
    if (x->role != LOOPS_INPUT || x->dtype != y->dtype || x->ndim != y->ndim) return NULL;
    int d = 0;
    for (int32_t a = s->index, b = v->a; a && b; a = o->ex.at[a].next, b = o->ex.at[b].next, d++)
        if (!ex_equal(o, a, b) || x->shape[d] != y->shape[d]) return NULL;
    int given = v->tensor; /* missing inputs have no tensor in the loops */
    for (int i = 0; i < l->nin; i++)
        if (l->in[i] && !given--) return l->in[i];
    return NULL;
}

/* stop(x), x+0, x-0, x*1, x/1, x**1, max(x, -inf), min(x, inf), x and true, x or false, with the constant on the right,
 * or on either side of what commutes; where(x, true, false), where(c, x, x). -0.0 + 0 then stays -0.0. */
static struct sol_tensor *neutral(const struct sol_layer *l)
{
    static const struct {
        const char *name;
        double right;
        bool commutes;
    } rows[] = {{"add", 0, true},        {"sub", 0, false},        {"mul", 1, true},
                {"div", 1, false},       {"pow", 1, false},        {"max", -INFINITY, true},
                {"min", INFINITY, true}, {"logical_and", 1, true}, {"logical_or", 0, true}};
    double yes, no;
    if (is_kind(l, "stop")) return l->in[0]; /* gradients exist by now */
    if (is_kind(l, "where") && l->in[1] == l->in[2]) return l->in[1];
    if (is_kind(l, "where") && l->out[0]->dtype == SOL_BOOL && known_scalar(l->in[1], &yes) &&
        known_scalar(l->in[2], &no) && yes == 1 && no == 0)
        return l->in[0];
    for (int i = 0; i < COUNT_OF(rows); i++) {
        if (!is_kind(l, rows[i].name) || l->nin != 2) continue;
        double v;
        if (known_scalar(l->in[1], &v) && v == rows[i].right) return l->in[0];
        if (rows[i].commutes && known_scalar(l->in[0], &v) && v == rows[i].right) return l->in[1];
    }
    return NULL;
}

sol_status pass_identity(struct sol_graph *g)
{
    for (struct sol_layer *l = g->first, *next; l; l = next) {
        next = l->next;
        struct sol_tensor *same = copied(l);
        if (!same) same = neutral(l);
        if (!same || same->dtype != l->out[0]->dtype) continue;
        graph_replace(g, l->out[0], same);
        graph_remove(g, l);
    }
    return SOL_OK;
}

sol_status pass_identity_again(struct sol_graph *g)
{
    return pass_identity(g);
}
