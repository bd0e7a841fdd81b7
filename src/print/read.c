/* Prints reads: offsets as affine text, tests of what may be outside, loads of vectors. */
#include <inttypes.h>
#include <string.h>

#include "print/print.h"

#define SAY(p, ...) arena_printf((p)->out->arena, __VA_ARGS__)

/* -- offsets */

void expr_strides(const struct loops *loops, const struct memory *m, int tensor, int64_t *out_stride)
{
    const struct loops_tensor *t = &loops->tensors.at[tensor];
    if (t->role != LOOPS_TABLE) {
        memcpy(out_stride, m[tensor].stride, sizeof m[tensor].stride);
        return;
    }
    int64_t n = 1;
    for (int d = t->ndim - 1; d >= 0; n = size_mul(n, t->shape[d--])) out_stride[d] = n;
}

static void affine_add(struct affine *sum, bool *fits, int ivar, int64_t coef)
{
    int i = 0;
    while (i < sum->n && sum->ivar[i] < ivar) i++;
    if (i < sum->n && sum->ivar[i] == ivar) {
        sum->coef[i] = size_add(sum->coef[i], coef);
        if (sum->coef[i]) return;
        sum->n--;
        memmove(sum->coef + i, sum->coef + i + 1, (size_t)(sum->n - i) * sizeof *sum->coef);
        memmove(sum->ivar + i, sum->ivar + i + 1, (size_t)(sum->n - i) * sizeof *sum->ivar);
        return;
    }
    if (sum->n == COUNT_OF(sum->ivar)) {
        *fits = false;
        return;
    }
    memmove(sum->coef + i + 1, sum->coef + i, (size_t)(sum->n - i) * sizeof *sum->coef);
    memmove(sum->ivar + i + 1, sum->ivar + i, (size_t)(sum->n - i) * sizeof *sum->ivar);
    sum->coef[i] = coef;
    sum->ivar[i] = (uint8_t)ivar;
    sum->n++;
}

bool expr_affine_offset(const struct loops *loops, const struct memory *m, int tensor, int32_t first,
                        struct affine *out)
{
    int64_t stride[SOL_MAX_DIMS];
    expr_strides(loops, m, tensor, stride);
    *out = (struct affine){0};
    bool fits = true;
    for (int d = 0; first; first = loops->ex.at[first].next, d++) {
        struct affine a;
        if (!ex_affine(loops, first, &a)) return false;
        out->c = size_add(out->c, size_mul(a.c, stride[d]));
        for (int i = 0; i < a.n && stride[d]; i++) affine_add(out, &fits, a.ivar[i], size_mul(a.coef[i], stride[d]));
    }
    for (int i = 0; i < out->n; i++) fits &= out->coef[i] != SIZE_BAD;
    return fits && out->c != SIZE_BAD;
}

int64_t expr_step(const struct loops *loops, const struct memory *m, int tensor, int32_t first, int ivar)
{
    int64_t stride[SOL_MAX_DIMS], step = 0;
    int d = 0;
    expr_strides(loops, m, tensor, stride);
    for (int32_t i = first; i; i = loops->ex.at[i].next, d++) {
        struct affine a;
        if (!(ex_ivars(loops, i) >> ivar & 1)) continue;
        if (!ex_affine(loops, i, &a)) return INT64_MAX;
        for (int k = 0; k < a.n; k++)
            if (a.ivar[k] == ivar) step = size_add(step, size_mul(a.coef[k], stride[d]));
    }
    return step;
}

void expr_fold(const struct print_expr *p, struct affine *a)
{
    if (!p->ivars) return;
    int n = 0;
    for (int i = 0; i < a->n; i++) {
        const struct print_ivar *known = &p->ivars[a->ivar[i]];
        if (known->known) a->c = size_add(a->c, size_mul(a->coef[i], known->plus));
        if (known->known && !known->base) continue;
        a->ivar[n] = a->ivar[i];
        a->coef[n++] = a->coef[i];
    }
    a->n = n;
}

void expr_ivar_bounds(const struct print_expr *p, int ivar, int64_t *out_low, int64_t *out_high)
{
    const struct print_ivar *known = p->ivars ? &p->ivars[ivar] : NULL;
    const int64_t size = p->loops->ivars.at[ivar].size;
    const bool set = known && known->known;
    *out_low = set ? known->low : 0;
    *out_high = set ? known->high : size_varies(size) ? size_sub(size, 1) : MAX(size - 1, 0);
}

bool expr_affine_bounds(const struct print_expr *p, const struct affine *a, int64_t *out_min, int64_t *out_max)
{
    *out_min = *out_max = a->c;
    for (int i = 0; i < a->n; i++) {
        const int64_t k = a->coef[i];
        const bool falls = size_le(k, 0);
        int64_t low, high;
        expr_ivar_bounds(p, a->ivar[i], &low, &high);
        if (!falls && !size_le(0, k)) return false;
        *out_min = size_add(*out_min, size_mul(k, falls ? high : low));
        *out_max = size_add(*out_max, size_mul(k, falls ? low : high));
    }
    return *out_min != SIZE_BAD && *out_max != SIZE_BAD;
}

/* Adds k times b to a. */
static bool affine_plus(struct affine *a, int64_t k, const struct affine *b)
{
    bool fits = true;
    a->c = size_add(a->c, size_mul(k, b->c));
    for (int i = 0; i < b->n; i++) affine_add(a, &fits, b->ivar[i], size_mul(k, b->coef[i]));
    for (int i = 0; i < a->n; i++) fits &= a->coef[i] != SIZE_BAD;
    return fits && a->c != SIZE_BAD;
}

static bool bounds_of(const struct print_expr *p, const struct affine *a, int64_t *out_low, int64_t *out_high)
{
    struct affine folded = *a;
    expr_fold(p, &folded);
    return expr_affine_bounds(p, &folded, out_low, out_high);
}

/* The affine form that abs, min, max, // or % has in the ranges that the solver knows, and a number that says which:
 * out_case. */
static bool affine_case(const struct print_expr *p, int32_t node, struct affine *out, int64_t *out_case)
{
    const struct ex *e = print_ex(p, node);
    const char *name = e->kind == EX_CALL ? math_at(e->op)->name : "";
    const bool abs = !strcmp(name, "abs"), max = !strcmp(name, "max"), min = !strcmp(name, "min");
    const bool mod = e->kind == EX_MOD, quotient = e->kind == EX_FLOOR || mod;
    int64_t low, high;
    struct affine a, b = {0};
    *out = (struct affine){0};
    if ((!abs && !max && !min && !quotient) || !expr_affine(p, e->a, &a)) return false;
    if (quotient) {
        const struct ex *by = print_ex(p, e->b);
        if (by->kind != EX_INT || size_varies(by->u.i) || by->u.i < 1 || !bounds_of(p, &a, &low, &high)) return false;
        if (size_varies(low) || size_varies(high)) return false;
        *out_case = size_floor_div(low, by->u.i);
        if (size_floor_div(high, by->u.i) != *out_case) return false;
        out->c = mod ? -*out_case * by->u.i : *out_case;
        return !mod || affine_plus(out, 1, &a);
    }
    if (!abs && !expr_affine(p, print_ex(p, e->a)->next, &b)) return false;
    struct affine more = a; /* a - b */
    if (!affine_plus(&more, -1, &b) || !bounds_of(p, &more, &low, &high)) return false;
    const bool first = size_le(0, low);
    *out_case = first;
    if (!first && !size_le(high, 0)) return false;
    if (abs) return affine_plus(out, first ? 1 : -1, &a);
    *out = first == max ? a : b;
    return true;
}

static bool resolved(const struct print_expr *p, int32_t node, int64_t k, struct affine *sum)
{
    const struct ex *e = print_ex(p, node);
    struct affine a;
    int64_t which;
    if (ex_affine(p->loops, node, &a) || affine_case(p, node, &a, &which)) return affine_plus(sum, k, &a);
    if (e->kind == EX_NEG) return resolved(p, e->a, size_sub(0, k), sum);
    if (e->kind == EX_ADD || e->kind == EX_SUB)
        return resolved(p, e->a, k, sum) && resolved(p, e->b, e->kind == EX_ADD ? k : size_sub(0, k), sum);
    if (e->kind != EX_MUL) return false;
    const bool left = print_ex(p, e->a)->kind == EX_INT;
    const struct ex *factor = print_ex(p, left ? e->a : e->b);
    return factor->kind == EX_INT && resolved(p, left ? e->b : e->a, size_mul(factor->u.i, k), sum);
}

bool expr_affine(const struct print_expr *p, int32_t node, struct affine *out)
{
    if (ex_affine(p->loops, node, out)) return true;
    *out = (struct affine){0};
    return p->ivars && ex_is_int(p->loops, node) && resolved(p, node, 1, out);
}

int64_t expr_case(const struct print_expr *p, int32_t node)
{
    struct affine a;
    int64_t which;
    return p->ivars && affine_case(p, node, &a, &which) ? which : INT64_MIN;
}

bool expr_bounds(const struct print_expr *p, int32_t node, int64_t *out_min, int64_t *out_max)
{
    struct affine a;
    if (!p->ivars || !expr_affine(p, node, &a)) return ex_bounds(p->loops, node, out_min, out_max);
    expr_fold(p, &a);
    return expr_affine_bounds(p, &a, out_min, out_max);
}

bool expr_range(const struct print_expr *p, int32_t node, int64_t *out_min, int64_t *out_max)
{
    int64_t low, high;
    if (!expr_bounds(p, node, &low, &high)) return false;
    *out_min = size_least(low);
    *out_max = size_most(high);
    return *out_min != INT64_MIN && *out_max != INT64_MAX;
}

static const char *affine_text(struct print_expr *p, const struct affine *unfolded)
{
    struct affine folded = *unfolded;
    const struct affine *a = &folded;
    expr_fold(p, &folded);
    struct text t = text_new(p->out->arena);
    for (int i = 0; i < a->n; i++) {
        const char *ivar = expr_ivar_base(p, a->ivar[i]);
        const int64_t c = a->coef[i];
        if (c < 0)
            text_put(&t, i ? " - " : "-");
        else if (i)
            text_put(&t, " + ");
        if (c == 1 || c == -1)
            text_put(&t, "%s", ivar);
        else
            text_put(&t, "%s * %" PRId64, ivar, c < 0 ? -c : c);
    }
    /* the number comes last: what differs between the points of a tile is then a displacement */
    const int64_t number = size_constant(a->c), varying = size_sub(a->c, number);
    if (varying) text_put(&t, a->n ? " + %" PRId64 : "%" PRId64, varying);
    if (!a->n && !varying)
        text_put(&t, "%" PRId64, number);
    else if (number)
        text_put(&t, number < 0 ? " - %" PRId64 : " + %" PRId64, number < 0 ? -number : number);
    return t.at;
}

const char *print_index(struct print_expr *p, int32_t node)
{
    struct affine a;
    if (expr_affine(p, node, &a)) return affine_text(p, &a);
    return expr_scalar(p, node, C_I64);
}

/* The index of dimension d, checked if it comes from data. */
static const char *safe_index(struct print_expr *p, int tensor, int d, int32_t index, bool guarded)
{
    const char *text = print_index(p, index);
    const int64_t n = p->loops->tensors.at[tensor].shape[d];
    int64_t low, high;
    if (guarded || !ex_reads_data(p->loops, index)) return text;
    if (expr_bounds(p, index, &low, &high) && size_le(0, low) && size_lt(high, n)) return text;
    return SAY(p, "@sol_index(%s, %" PRId64 ", f)", text, n);
}

static const char *offset(struct print_expr *p, int tensor, int32_t first, bool guarded)
{
    struct affine a;
    if (expr_affine_offset(p->loops, p->memory, tensor, first, &a)) return affine_text(p, &a);
    int64_t stride[SOL_MAX_DIMS];
    expr_strides(p->loops, p->memory, tensor, stride);
    struct text t = text_new(p->out->arena);
    for (int d = 0; first; first = print_ex(p, first)->next, d++) {
        const char *index = text_enclosed(p->out->arena, safe_index(p, tensor, d, first, guarded));
        if (!strcmp(index, "0")) continue;
        text_put(&t, stride[d] == 1 ? "%s%s" : "%s%s * %" PRId64, t.n ? " + " : "", index, stride[d]);
    }
    return t.n ? t.at : "0";
}

const char *print_offset(struct print_expr *p, int tensor, int32_t first_index)
{
    return offset(p, tensor, first_index, false);
}

/* -- reads */

/* Which sides of the index of dimension d must be tested? Also returns which of them the index may pass. */
static bool is_tested(const struct print_expr *p, const struct ex *read, int d, int32_t index, bool *out_below,
                      bool *out_above)
{
    int64_t low, high;
    const struct loops_tensor *t = &p->loops->tensors.at[read->tensor];
    const struct ex *outside = print_ex(p, read->b);
    const bool zero = (outside->kind == EX_INT && outside->u.i == 0) || (outside->kind == EX_REAL && outside->u.r == 0);
    const struct memory *m = p->memory && zero && t->role != LOOPS_TABLE ? &p->memory[read->tensor] : NULL;
    const bool known = expr_bounds(p, index, &low, &high);
    *out_below = !known || !size_le(0, low);
    *out_above = !known || !size_lt(high, t->shape[d]);
    return !known || !size_le(m ? -m->halo_low[d] : 0, low) ||
           !size_lt(high, size_add(t->shape[d], m ? m->halo_high[d] : 0));
}

/* Does the test differ between lanes? */
static bool test_varies(const struct print_expr *p, const struct ex *read)
{
    bool below, above;
    int d = 0;
    for (int32_t i = read->b ? read->a : 0; i; i = print_ex(p, i)->next, d++)
        if (is_tested(p, read, d, i, &below, &above) && expr_varies(p, i)) return true;
    return false;
}

/* Is the index list outside its tensor for all values of the index variables? */
static bool is_outside(const struct print_expr *p, const struct ex *read)
{
    int64_t low, high;
    int d = 0;
    for (int32_t i = read->a; i; i = print_ex(p, i)->next, d++)
        if (expr_bounds(p, i, &low, &high) &&
            (size_lt(high, 0) || size_le(p->loops->tensors.at[read->tensor].shape[d], low)))
            return true;
    return false;
}

/* The test that an index list is inside its tensor; NULL: always. */
static const char *inside(struct print_expr *p, const struct ex *read)
{
    struct text c = text_new(p->out->arena);
    int d = 0;
    for (int32_t i = read->b ? read->a : 0; i; i = print_ex(p, i)->next, d++) {
        const int64_t n = p->loops->tensors.at[read->tensor].shape[d];
        bool below, above;
        if (!is_tested(p, read, d, i, &below, &above)) continue;
        const char *text = print_index(p, i), *and = c.n ? " && " : "";
        if (!below)
            text_put(&c, "%s(%s) < %" PRId64, and, text, n);
        else if (!above)
            text_put(&c, "%s(%s) >= 0", and, text);
        else
            text_put(&c, "%s(uint64_t)(%s) < %" PRId64, and, text, n);
    }
    return c.n ? c.at : NULL;
}

/* A load in the tensor's type; *out_from is the compute type of the loaded value. */
static const char *load(struct print_expr *p, const struct ex *e, const char *off, enum compute k)
{
    const struct loops_tensor *t = &p->loops->tensors.at[e->tensor];
    const struct dtype_def *d = dtype_def(t->dtype);
    const enum compute own = compute_of(t->dtype);
    const char *name = p->loops->tensors.at[e->tensor].name;
    if (p->lanes == 1) {
        const char *text = SAY(p, "%s[%s]", name, off);
        if (own == k) return t->dtype == SOL_I64 || own != C_I64 ? text : SAY(p, "(int64_t)%s", text);
        return expr_convert(p, text, own, k);
    }
    const char *type = expr_vector(p, t->dtype == SOL_BOOL ? "u8" : d->name);
    const char *text = SAY(p, "*(const %s *)(%s)", type, text_address(p->out->arena, name, off));
    if (own == C_U64) return expr_convert(p, text, own, k);
    if (own == k && d->bytes == (k == C_F32 ? 4 : 8)) return text;
    if (own == C_I64 && k != C_I64) return expr_elements(p, text, compute_def(k)->name);
    if (own == C_I64) return expr_elements(p, text, "i64");
    return expr_convert(p, text, own, k);
}

/* Is the form a multiple of the number of lanes in lane 0, and 1 more in each following lane? */
static bool fills_lanes(const struct print_expr *p, const struct affine *unfolded)
{
    struct affine a = *unfolded;
    expr_fold(p, &a);
    bool fills = false;
    for (int i = 0; i < a.n; i++) {
        const bool own = a.ivar[i] == p->vector_ivar;
        if (own ? a.coef[i] != 1 : size_varies(a.coef[i]) || a.coef[i] % p->lanes != 0) return false;
        fills |= own;
    }
    return fills && !size_varies(a.c) && a.c % p->lanes == 0;
}

/* By how much an index differs from lane to lane; false: unknown. */
static bool lane_step(const struct print_expr *p, int32_t index, int64_t *out_step)
{
    const struct ex *e = print_ex(p, index);
    struct affine a;
    *out_step = 0;
    if (!expr_varies(p, index)) return true;
    if (expr_affine(p, index, &a)) {
        for (int n = 0; n < a.n; n++)
            if (a.ivar[n] == p->vector_ivar) *out_step = a.coef[n];
        return true;
    }
    if (!p->aligned || (e->kind != EX_MOD && e->kind != EX_FLOOR) || !expr_affine(p, e->a, &a)) return false;
    const struct ex *by = print_ex(p, e->b);
    if (by->kind != EX_INT || size_varies(by->u.i) || by->u.i < 1 || by->u.i % p->lanes != 0) return false;
    *out_step = e->kind == EX_MOD; /* no multiple of the divisor lies between the lanes */
    return fills_lanes(p, &a);
}

/* The stride between lanes of a read; INT64_MAX: unknown. */
static int64_t lane_stride(const struct print_expr *p, int tensor, int32_t first)
{
    int64_t stride[SOL_MAX_DIMS], step = 0;
    expr_strides(p->loops, p->memory, tensor, stride);
    int d = 0;
    for (int32_t i = first; i; i = print_ex(p, i)->next, d++) {
        int64_t by;
        if (!lane_step(p, i, &by)) return INT64_MAX;
        step = size_add(step, size_mul(by, stride[d]));
    }
    return step;
}

int expr_lane_step(const struct print_expr *p, int tensor, int32_t first)
{
    const int64_t step = lane_stride(p, tensor, first);
    return step == 0 || step == 1 ? (int)step : -1;
}

bool expr_seconds(enum sol_dtype dtype, int64_t step)
{
    const enum compute k = compute_of(dtype);
    return step == 2 && k != C_U64 && dtype_def(dtype)->bytes == (k == C_F32 ? 4 : 8);
}

/* A read of every second element, from two vectors; NULL: lane by lane. A guard holds for all lanes, or for none. */
static const char *every_second(struct print_expr *p, const struct ex *e, enum compute k)
{
    const struct loops_tensor *t = &p->loops->tensors.at[e->tensor];
    const int lanes = p->lanes;
    if (!expr_seconds(t->dtype, lane_stride(p, e->tensor, e->a)) || compute_of(t->dtype) != k) return NULL;
    p->lanes = 1;
    const char *at = text_address(p->out->arena, t->name, offset(p, e->tensor, e->a, e->b != 0));
    p->lanes = lanes;
    return SAY(p, "@sol_second_%s(%s)", expr_type_name(p, k), at);
}

/* A read whose test is equal in all lanes. */
static const char *tested(struct print_expr *p, const char *test, const char *value, const char *outside,
                          enum compute k)
{
    if (!test) return value;
    if (p->lanes == 1) return SAY(p, "(%s ? %s : %s)", test, value, outside);
    const char *name = expr_name(p);
    text_line(p->out, "%s %s = %s;", expr_type(p, k), name, outside);
    text_line(p->out, "if (%s) %s = %s;", text_bare(p->out->arena, test), name, value);
    return name;
}

/* What an unguarded read loads: through the solver's hook, or from memory. */
static const char *loaded(struct print_expr *p, int32_t node, enum compute k)
{
    const struct ex e = *print_ex(p, node);
    const int lanes = p->lanes;
    const char *text = p->read ? p->read(p->user, p, node) : NULL;
    if (text) return expr_convert(p, text, compute_of(p->loops->tensors.at[e.tensor].dtype), k);
    const int step = lanes > 1 ? expr_lane_step(p, e.tensor, e.a) : 1;
    if (step < 0) {
        text = every_second(p, &e, k);
        return text ? text : expr_lanes(p, node, k);
    }
    p->lanes = 1;
    const char *off = offset(p, e.tensor, e.a, e.b != 0);
    if (step) p->lanes = lanes;
    text = load(p, &e, off, k);
    p->lanes = lanes;
    return step ? text : expr_splat(p, text, k);
}

/* The farthest element of a tensor from its element 0, halos included, is a number of 31 bits. */
static bool is_near(const struct print_expr *p, int tensor)
{
    const struct loops_tensor *t = &p->loops->tensors.at[tensor];
    int64_t stride[SOL_MAX_DIMS], reach = 0;
    expr_strides(p->loops, p->memory, tensor, stride);
    for (int d = 0; d < t->ndim; d++) {
        if (size_varies(t->shape[d]) || size_varies(stride[d])) return false;
        const struct memory *m = p->memory && t->role != LOOPS_TABLE ? &p->memory[tensor] : NULL;
        reach += (t->shape[d] + (m ? m->halo_low[d] + m->halo_high[d] : 0)) * (stride[d] < 0 ? -stride[d] : stride[d]);
    }
    return reach < INT32_MAX;
}

/* A read inside a tensor whose place differs from lane to lane by data. Places and tests are vectors, so they can leave
 * loops that they do not depend on, and the loads are one instruction where the machine has it. Lanes that are outside
 * load the element at place 0 instead. NULL: the read has another form. */
static const char *gathered(struct print_expr *p, const struct ex *e, enum compute k)
{
    const struct loops_tensor *t = &p->loops->tensors.at[e->tensor];
    const int bytes = dtype_def((enum sol_dtype)t->dtype)->bytes;
    int64_t stride[SOL_MAX_DIMS];
    struct arena *arena = p->out->arena;
    struct text base = text_new(arena), place = text_new(arena), in = text_new(arena);
    bool data = false, below, above;
    int d = 0;
    if (t->role == LOOPS_TEMP || compute_is_int(k) || compute_of(t->dtype) != k || bytes != (k == C_F32 ? 4 : 8))
        return NULL;
    if (p->lanes > target_lanes(p->target, 8)) return NULL; /* compilers take longer vectors apart */
    for (int32_t i = e->a; i; i = print_ex(p, i)->next, d++) {
        if (!expr_varies(p, i) && is_tested(p, e, d, i, &below, &above)) return NULL;
        data |= expr_varies(p, i) && ex_reads_data(p->loops, i);
    }
    expr_strides(p->loops, p->memory, e->tensor, stride);
    for (int i = 0; i < d; i++) /* there must be an element at place 0 */
        if (stride[i] < 0 || size_varies(t->shape[i]) || !t->shape[i]) return NULL;
    if (!data || expr_varies(p, e->b) || (k == C_F32 && !is_near(p, e->tensor))) return NULL;
    const char *own = SAY(p, "i64x%d", p->lanes), *index = compute_def(k)->mask;
    d = 0;
    for (int32_t i = e->a; i; i = print_ex(p, i)->next, d++) {
        if (!expr_varies(p, i)) {
            text_put(&base, "%s%s * %" PRId64, base.n ? " + " : "", text_enclosed(arena, print_index(p, i)), stride[d]);
            continue;
        }
        const char *varying = expr_temp(p, expr_value(p, i, C_I64), C_I64);
        text_put(&place, "%s%s * %" PRId64, place.n ? " + " : "", varying, stride[d]);
        if (!is_tested(p, e, d, i, &below, &above)) continue;
        text_put(&in, "%s(@%s)((@u64x%d)%s < %" PRId64 ")", in.n ? " & " : "", own, p->lanes, varying, t->shape[d]);
    }
    const char *mask = in.n ? expr_temp(p, in.at, C_I64) : NULL;
    const char *at = SAY(p, mask ? "((%s) & %s)" : "(%s)", place.at, mask);
    const char *value = SAY(p, "@sol_gather_%s(%s, %s)", expr_type_name(p, k),
                            text_address(arena, t->name, base.n ? base.at : "0"), expr_elements(p, at, index));
    if (!mask) return value;
    return SAY(p, "@sol_select_%s(%s, %s, %s)", expr_type_name(p, k), expr_elements(p, mask, index), value,
               expr_value(p, e->b, k));
}

const char *expr_read(struct print_expr *p, int32_t node, enum compute k)
{
    const struct ex e = *print_ex(p, node);
    const int lanes = p->lanes;
    if (!e.b) return loaded(p, node, k);
    if (is_outside(p, &e)) return expr_value(p, e.b, k);
    if (lanes > 1 && (test_varies(p, &e) || (!p->read && expr_lane_step(p, e.tensor, e.a) < 0))) {
        const char *vector = gathered(p, &e, k);
        return vector ? vector : expr_lanes(p, node, k);
    }
    p->lanes = 1;
    const char *test = inside(p, &e);
    p->lanes = lanes;
    const char *text = loaded(p, node, k);
    return tested(p, test, text, test ? expr_value(p, e.b, k) : NULL, k);
}
