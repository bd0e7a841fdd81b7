/* Slices a loop: one step of it as loops of their own. The index variable becomes a constant, and its value goes into
 * the operands' pointers. A row of a convolution, or a block of its channels, is then a cluster for any solver. */
#include "plan/band.h"

struct scan {
    const struct loops *loops;
    struct slice *slice;
    int conditions; /* around the current node */
    bool failed;
};

/* The index without the variable, and the variable's coefficient. */
static bool take_ivar(const struct loops *loops, int32_t node, int ivar, struct affine *out_rest, int64_t *out_coef)
{
    *out_coef = 0;
    if (!(ex_ivars(loops, node) >> ivar & 1)) return true;
    struct affine f;
    if (!ex_affine(loops, node, &f)) return false;
    *out_rest = (struct affine){.c = f.c};
    for (int i = 0; i < f.n; i++) {
        if (f.ivar[i] == ivar) {
            *out_coef = f.coef[i];
            continue;
        }
        out_rest->ivar[out_rest->n] = f.ivar[i];
        out_rest->coef[out_rest->n++] = f.coef[i];
    }
    return true;
}

static void affine_range(const struct loops *loops, const struct affine *f, int64_t *out_min, int64_t *out_max)
{
    *out_min = *out_max = f->c;
    for (int i = 0; i < f->n; i++) {
        const int64_t most = size_mul(f->coef[i], size_sub(loops->ivars.at[f->ivar[i]].size, 1));
        *out_min = size_add(*out_min, size_min(most, 0));
        *out_max = size_add(*out_max, size_max(most, 0));
    }
}

/* Does everything that a read can reach in this dimension exist in memory? Its value outside, or a condition around it,
 * may keep it from elements that do not; in the slice, which has the reach as its shape, nothing says so any more. The
 * index variable has a value at least, or nothing is read: a size that varies is not 0 here. */
static bool covered(const struct scan *s, int tensor, const struct slice_operand *op, const struct ex *outside)
{
    const struct memory *memory = &s->slice->of_memory[tensor];
    const int64_t last = size_sub(s->loops->ivars.at[s->slice->ivar].size, 1),
                  shape = s->loops->tensors.at[tensor].shape[op->dim], far = size_mul(op->coef, last);
    const bool up = size_le(0, op->coef);
    if (!up && !size_le(op->coef, 0)) return false;
    const int64_t min = size_add(op->min, up ? 0 : far), max = size_add(op->max, up ? far : 0);
    if (size_le(0, min) && size_lt(max, shape)) return true;
    const bool zero = outside->kind == EX_NONE || (outside->kind == EX_INT && outside->u.i == 0) ||
                      (outside->kind == EX_REAL && outside->u.r == 0);
    return zero && size_le(-memory->halo_low[op->dim], min) &&
           size_lt(max, size_add(shape, memory->halo_high[op->dim]));
}

static bool see_access(struct scan *s, int tensor, int32_t first, int32_t outside)
{
    struct slice_operand *op = &s->slice->op[tensor];
    const int ring = s->slice->ring;
    bool seen = op->seen, moved = op->coef != 0;
    int d = 0, found = -1;
    for (int32_t i = first; i; i = s->loops->ex.at[i].next, d++) {
        struct affine rest;
        struct slice_operand now = {.dim = d};
        if (!take_ivar(s->loops, i, s->slice->ivar, &rest, &now.coef)) return false;
        if (!now.coef) continue;
        if (found >= 0 || (moved && (op->dim != d || op->coef != now.coef))) return false;
        found = d;
        affine_range(s->loops, &rest, &now.min, &now.max);
        if ((outside || s->conditions) && tensor != ring && !covered(s, tensor, &now, &s->loops->ex.at[outside]))
            return false;
        op->min = moved ? size_min(op->min, now.min) : now.min;
        op->max = moved ? size_max(op->max, now.max) : now.max;
        op->dim = d;
        op->coef = now.coef;
    }
    if (seen && moved != (found >= 0)) return false; /* all reads of a tensor must have the index variable, or none */
    op->seen = true;
    if (found >= 0 && s->loops->tensors.at[tensor].role == LOOPS_TABLE) return false;
    if (tensor != ring || !outside) return true;
    const struct ex *o = &s->loops->ex.at[outside];
    s->slice->fill = o->kind == EX_INT ? (double)o->u.i : o->u.r;
    return o->kind == EX_INT || o->kind == EX_REAL;
}

static void see(struct scan *s, int32_t node);

/* Arguments; the first of a choice is a condition for the others. */
static void see_list(struct scan *s, int32_t first, bool choice)
{
    for (int32_t i = first; i; i = s->loops->ex.at[i].next) {
        see(s, i);
        if (i == first) s->conditions += choice;
    }
    s->conditions -= first && choice;
}

/* The index variable may be used only in indices of accesses; otherwise its value would be needed. */
static void see(struct scan *s, int32_t node)
{
    const struct ex *e = &s->loops->ex.at[node];
    if (!node || s->failed) return;
    switch (e->kind) {
    case EX_IVAR: s->failed |= e->tensor == s->slice->ivar; return;
    case EX_READ:
        s->failed |= !see_access(s, e->tensor, e->a, e->b);
        see(s, e->b);
        return;
    case EX_CALL:
    case EX_AND:
    case EX_OR: see_list(s, e->a, e->kind != EX_CALL || e->op == math_row("where")); return;
    case EX_INT:
    case EX_REAL: return;
    case EX_RED:
        s->failed |= e->u.bound >> s->slice->ivar & 1;
        see(s, e->a);
        s->conditions += e->a != 0;
        see(s, e->b);
        s->conditions -= e->a != 0;
        return;
    default: see(s, e->a); see(s, e->b);
    }
}

static int32_t sliced_read(void *user, struct loops *to, const struct ex *read, const int32_t *index, int nindex,
                           int32_t outside)
{
    const struct slicing *c = user;
    const struct slice_operand *op = &c->op[read->tensor];
    if (!op->coef) return 0;
    int32_t moved[SOL_MAX_DIMS];
    for (int d = 0; d < nindex; d++)
        moved[d] = d == op->dim ? ex_binary(to, EX_SUB, index[d], ex_int(to, op->min)) : index[d];
    bool inside = true; /* in all other dimensions */
    for (int d = 0; d < nindex; d++) {
        int64_t low, high;
        if (d == op->dim) continue;
        inside &= ex_bounds(to, moved[d], &low, &high) && size_le(0, low) &&
                  size_lt(high, to->tensors.at[c->tensor[read->tensor]].shape[d]);
    }
    return ex_read(to, c->tensor[read->tensor], ex_list(to, nindex, moved), inside ? 0 : outside);
}

static void sliced_stmts(const struct rewrite *r, const struct slicing *c)
{
    for (int i = 0; i < r->from->stmts.n; i++) {
        struct loops_stmt s = r->from->stmts.at[i];
        const struct slice_operand *op = &c->op[s.out[0]];
        int32_t index[SOL_MAX_DIMS];
        int d = 0;
        for (int32_t k = s.index; k; k = r->from->ex.at[k].next, d++) {
            index[d] = rewrite_ex(r, k);
            if (op->coef && d == op->dim) index[d] = ex_binary(r->to, EX_SUB, index[d], ex_int(r->to, op->min));
        }
        for (int o = 0; o < s.nout; o++) s.out[o] = (uint16_t)r->tensor[s.out[o]];
        s.index = d ? ex_list(r->to, d, index) : 0;
        s.value = rewrite_ex(r, s.value);
        loops_stmt(r->to, s);
    }
}

int slice_align(int64_t size)
{
    const int64_t factor = size_factor(size);
    int a = 1;
    while (a < 64 && factor % (a * 2) == 0) a *= 2;
    return a;
}

/* Finds how the operands move. */
static bool find_operands(struct slice *slice)
{
    const struct loops *loops = slice->of;
    struct scan s = {.loops = loops, .slice = slice};
    for (int i = 0; i < loops->stmts.n; i++) {
        const struct loops_stmt *st = &loops->stmts.at[i];
        if (st->scan_step || !(stmt_ivars(loops, st) >> slice->ivar & 1)) return false;
        for (int o = 0; o < st->nout; o++)
            if (!see_access(&s, st->out[o], st->index, 0)) return false;
        see(&s, st->value);
        if (s.failed) return false;
    }
    return true;
}

bool loops_slice(struct arena *a, struct slice *s)
{
    const struct loops *loops = s->of;
    const struct memory *memory = s->of_memory;
    struct slice_operand *op = s->op = NEW_ARRAY(a, struct slice_operand, loops->tensors.n + 1);
    s->memory = NEW_ARRAY(a, struct memory, loops->tensors.n + 1);
    if (!find_operands(s)) return false;
    struct loops *to = s->loops = loops_create(a, loops->name);
    int32_t map[LOOPS_MAX_IVARS];
    int *tensor = NEW_ARRAY(a, int, loops->tensors.n + 1);
    for (int i = 0; i < loops->ivars.n; i++)
        map[i] = i == s->ivar ? ex_int(to, 0)
                              : ex_ivar(to, loops_ivar(to, loops->ivars.at[i].name, loops->ivars.at[i].size));
    for (int i = 0; i < loops->tensors.n; i++) {
        const struct loops_tensor *t = &loops->tensors.at[i];
        struct loops_tensor part = *t;
        if (op[i].coef) part.shape[op[i].dim] = size_add(size_sub(op[i].max, op[i].min), 1);
        tensor[i] = loops_tensor_like(to, &part);
        s->memory[i] = memory[i];
        if (!op[i].coef) continue;
        s->memory[i].halo_low[op[i].dim] = s->memory[i].halo_high[op[i].dim] = 0;
        const int64_t step = size_mul(memory[i].stride[op[i].dim], dtype_def(t->dtype)->bytes);
        s->memory[i].align =
            MIN(MIN(memory[i].align, slice_align(size_mul(step, op[i].coef))), slice_align(size_mul(step, op[i].min)));
    }
    struct slicing c = {.op = op, .tensor = tensor};
    struct rewrite r = {.to = to, .from = loops, .ivar = map, .tensor = tensor, .read = sliced_read, .user = &c};
    sliced_stmts(&r, &c);
    return true;
}

struct loops *loops_split(struct arena *a, const struct loops *loops, int ivar, int64_t by, int *out_outer)
{
    struct loops *to = loops_create(a, loops->name);
    int32_t map[LOOPS_MAX_IVARS];
    int *tensor = NEW_ARRAY(a, int, loops->tensors.n + 1);
    for (int i = 0; i < loops->ivars.n; i++) {
        const struct loops_ivar *x = &loops->ivars.at[i];
        if (i != ivar) {
            map[i] = ex_ivar(to, loops_ivar(to, x->name, x->size));
            continue;
        }
        *out_outer = loops_ivar(to, x->name, size_exact_div(x->size, by));
        int inner = loops_ivar(to, x->name, by);
        map[i] =
            ex_binary(to, EX_ADD, ex_binary(to, EX_MUL, ex_int(to, by), ex_ivar(to, *out_outer)), ex_ivar(to, inner));
    }
    for (int i = 0; i < loops->tensors.n; i++) tensor[i] = rewrite_tensor(to, loops, i);
    rewrite_stmts(&(struct rewrite){.to = to, .from = loops, .ivar = map, .tensor = tensor});
    return to;
}
