/* Bounds of integer expressions: the least and the largest value that they take, whatever the index variables and the
 * sizes that vary are. */
#include <string.h>

#include "hlir/loops.h"

static bool bounds_call(const struct loops *loops, const struct ex *e, int64_t *lo, int64_t *hi)
{
    const char *name = math_at(e->op)->name;
    bool is_min = !strcmp(name, "min"), is_max = !strcmp(name, "max");
    int64_t p, q;
    if (!strcmp(math_at(e->op)->type, "bool")) {
        *lo = 0;
        *hi = 1;
        return true;
    }
    if (!strcmp(name, "abs")) {
        if (!ex_bounds(loops, e->a, &p, &q)) return false;
        *lo = size_lt(0, p) ? p : size_lt(q, 0) ? size_sub(0, q) : 0;
        *hi = size_max(q, size_sub(0, p));
        return *lo != SIZE_BAD && *hi != SIZE_BAD;
    }
    if (!is_min && !is_max) return false;
    if (!ex_bounds(loops, e->a, lo, hi) || !ex_bounds(loops, loops->ex.at[e->a].next, &p, &q)) return false;
    *lo = is_min ? size_min(*lo, p) : size_max(*lo, p);
    *hi = is_min ? size_min(*hi, q) : size_max(*hi, q);
    return *lo != SIZE_BAD && *hi != SIZE_BAD;
}

static bool bounds_table(const struct loops *loops, const struct ex *e, int64_t *lo, int64_t *hi)
{
    const struct loops_tensor *t = &loops->tensors.at[e->tensor];
    const int64_t *v = t->table;
    int64_t n = 1;
    if (t->role != LOOPS_TABLE || t->dtype != SOL_I64 || !v || e->b) return false;
    for (int i = 0; i < t->ndim; ++i) n *= t->shape[i];
    if (!n) return false;
    *lo = *hi = v[0];
    for (int64_t i = 1; i < n; ++i) {
        *lo = MIN(*lo, v[i]);
        *hi = MAX(*hi, v[i]);
    }
    return true;
}

/* Products take their least and largest value at an end of each range. Without numbers only those of ranges that are
 * not negative, or where one side is a number, are known. */
static void bounds_product(const int64_t x[2], const int64_t y[2], int64_t *lo, int64_t *hi)
{
    *lo = *hi = size_mul(x[0], y[0]);
    for (int i = 1; i < 4; ++i) {
        const int64_t v = size_mul(x[i & 1], y[i >> 1]);
        *lo = v == SIZE_BAD ? v : size_min(*lo, v);
        *hi = v == SIZE_BAD ? v : size_max(*hi, v);
    }
}

static bool bounds_binary(enum ex_kind kind, const int64_t x[2], const int64_t y[2], int64_t *lo, int64_t *hi)
{
    if (kind == EX_ADD || kind == EX_SUB) {
        *lo = kind == EX_ADD ? size_add(x[0], y[0]) : size_sub(x[0], y[1]);
        *hi = kind == EX_ADD ? size_add(x[1], y[1]) : size_sub(x[1], y[0]);
    } else if (kind == EX_MUL) {
        bounds_product(x, y, lo, hi);
    } else if ((kind == EX_FLOOR || kind == EX_MOD) && size_le(1, y[0])) {
        const bool never_negative = size_le(0, x[0]);
        const int64_t last = size_sub(y[1], 1);
        *lo = kind == EX_MOD ? 0 : size_min(size_floor_div(x[0], y[0]), size_floor_div(x[0], y[1]));
        *hi = kind == EX_FLOOR ? size_max(size_floor_div(x[1], y[0]), size_floor_div(x[1], y[1]))
              : never_negative ? size_min(x[1], last)
                               : last;
    } else {
        return false;
    }
    return *lo != SIZE_BAD && *hi != SIZE_BAD;
}

bool ex_range(const struct loops *loops, int32_t node, int64_t *out_min, int64_t *out_max)
{
    int64_t lo, hi;
    if (!ex_bounds(loops, node, &lo, &hi)) return false;
    *out_min = size_least(lo);
    *out_max = size_most(hi);
    return *out_min != INT64_MIN && *out_max != INT64_MAX;
}

bool ex_bounds(const struct loops *loops, int32_t node, int64_t *out_min, int64_t *out_max)
{
    const struct ex *e = &loops->ex.at[node];
    int64_t x[2], y[2];
    switch (e->kind) {
    case EX_INT: *out_min = *out_max = e->u.i; return true;
    case EX_IVAR: /* a loop of size 0 never runs, so any range will do */
        *out_min = 0;
        *out_max = size_varies(loops->ivars.at[e->tensor].size) ? size_sub(loops->ivars.at[e->tensor].size, 1)
                                                                : MAX(loops->ivars.at[e->tensor].size - 1, 0);
        return *out_max != SIZE_BAD;
    case EX_TEST:
        *out_min = 0;
        *out_max = 1;
        return true;
    case EX_NEG:
        if (!ex_bounds(loops, e->a, &x[0], &x[1])) return false;
        *out_min = size_sub(0, x[1]);
        *out_max = size_sub(0, x[0]);
        return *out_min != SIZE_BAD && *out_max != SIZE_BAD;
    case EX_READ: return bounds_table(loops, e, out_min, out_max);
    case EX_CALL: return bounds_call(loops, e, out_min, out_max);
    default:
        if (e->kind < EX_ADD || e->kind > EX_MOD) return false;
        return ex_bounds(loops, e->a, &x[0], &x[1]) && ex_bounds(loops, e->b, &y[0], &y[1]) &&
               bounds_binary((enum ex_kind)e->kind, x, y, out_min, out_max);
    }
}
