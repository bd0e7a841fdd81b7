/* Tensors that backward must not recompute because their values are compared with each other. A gradient of a maximum
 * asks which elements equal it, and a network may compute a mask from `x == max(x)`. A recomputed x can differ from
 * forward's in the last bit, and then no element equals the maximum. So both sides of a comparison are saved, or are
 * views of saved tensors. Comparisons with constants are left alone: there, a last bit matters only at a kink. */
#include "grad/checkpoint.h"

#include <string.h>

struct finder {
    struct checkpointing *k;
    bool *seen; /* by tensor */
    VECTOR(struct sol_tensor *) open;
};

struct operand {
    struct finder *f;
    const struct sol_layer *l;
    bool mark, reads; /* reads: it depends on a floating-point tensor that is no constant */
};

static bool varies(const struct sol_tensor *t)
{
    const bool constant = t->role == TENSOR_CONST || (t->from && !t->from->nin);
    return dtype_def(t->dtype)->is_float && !constant;
}

static void see_operand(void *user, int32_t node)
{
    struct operand *o = user;
    const struct ex *e = &o->l->loops->ex.at[node];
    if (e->kind != EX_READ || !dtype_def(o->l->loops->tensors.at[e->tensor].dtype)->is_float) return;
    struct sol_tensor *t = remat_tensor(o->l, e->tensor);
    if (t && !varies(t)) return;
    o->reads |= t || o->l->loops->tensors.at[e->tensor].role == LOOPS_TEMP;
    if (!o->mark || !t || o->f->seen[t->id]) return;
    o->f->seen[t->id] = true;
    PUSH(o->f->k->g->arena, o->f->open, t);
}

static bool operand_reads(struct operand o, int32_t node)
{
    ex_walk(o.l->loops, node, see_operand, &o);
    return o.reads;
}

/* The two sides of a comparison. False: the node is another one. */
static bool compares(const struct loops *loops, int32_t node, int32_t *out_a, int32_t *out_b)
{
    const struct ex *e = &loops->ex.at[node];
    if (e->kind == EX_CALL && math_at(e->op)->arity == 2 && !strcmp(math_at(e->op)->type, "bool")) {
        *out_a = e->a;
        *out_b = loops->ex.at[e->a].next;
        return true;
    }
    *out_a = e->a;
    *out_b = e->b;
    return e->kind == EX_CMP;
}

static void find_comparisons(struct finder *f, const struct sol_layer *l)
{
    int32_t side[2];
    if (l->def->flags & LAYER_OPAQUE) return;
    for (int32_t node = 1; node < l->loops->ex.n; node++) {
        const struct operand look = {.f = f, .l = l}, mark = {.f = f, .l = l, .mark = true};
        if (!compares(l->loops, node, &side[0], &side[1])) continue;
        if (!operand_reads(look, side[0]) || !operand_reads(look, side[1])) continue;
        for (int i = 0; i < 2; i++) operand_reads(mark, side[i]);
    }
}

/* A tensor of forward is saved. What is not, because it is a view or because backward computes it, is as exact as the
 * tensors that it is computed from. */
static void make_exact(struct finder *f, struct sol_tensor *t)
{
    struct fact *fact = t->id < f->k->ntensors ? f->k->fact[t->id] : NULL;
    if (fact && !fact->view) fact->exact = true;
    if (!t->from || (fact ? !fact->view : !layer_is_map(t->from))) return;
    for (int i = 0; i < t->from->nin; i++) {
        struct sol_tensor *in = t->from->in[i];
        if (!in || !varies(in) || f->seen[in->id]) continue;
        f->seen[in->id] = true;
        PUSH(f->k->g->arena, f->open, in);
    }
}

void checkpoint_find_exact(struct checkpointing *k)
{
    struct finder f = {.k = k, .seen = NEW_ARRAY(k->g->arena, bool, k->g->ntensors + 1)};
    for (const struct sol_layer *l = k->g->first; l; l = l->next) find_comparisons(&f, l);
    while (f.open.n) make_exact(&f, f.open.at[--f.open.n]);
}
