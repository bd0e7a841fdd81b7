/* Rewrites before planning. moments, softsum, maxat and minat become statements with one simple reduction each, so
 * lanes and partial results need no special rules; two passes over data in the cache are also faster than one with long
 * dependency chains, and more accurate. A long mean is computed relative to the mean of a few values, so that it stays
 * accurate far from 0. What both passes and a later statement need (exp(x - m)) is computed once, into a temporary row.
 * Long reductions are split into parts: tasks, or, for moments, what stays in the cache between the passes. Parts have
 * the size that suits the hints of sizes that vary, and their number varies. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dfp/expand.h"

/* The order of index variables for a temporary's dimensions. Those along which outputs are contiguous come last. */
static int order(const struct expand *x, uint64_t ivars, int *out)
{
    int n = 0;
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < x->loops->ivars.n; i++)
            if (ivars >> i & 1 && (int)(x->unit >> i & 1) == side) out[n++] = i;
    return n;
}

int32_t expand_ivar_list(const struct expand *x, uint64_t ivars)
{
    int32_t node[LOOPS_MAX_IVARS];
    int ivar[LOOPS_MAX_IVARS];
    const int n = order(x, ivars, ivar);
    for (int i = 0; i < n; i++) node[i] = ex_ivar(x->loops, ivar[i]);
    return n ? ex_list(x->loops, n, node) : 0;
}

int expand_temp(struct expand *x, const char *name, uint64_t ivars, enum sol_dtype dtype)
{
    int64_t shape[LOOPS_MAX_IVARS];
    int ivar[LOOPS_MAX_IVARS];
    const int n = order(x, ivars, ivar);
    for (int i = 0; i < n; i++) shape[i] = x->loops->ivars.at[ivar[i]].size;
    for (int i = 0; i < x->loops->tensors.n; i++) /* makes the name unique */
        if (!strcmp(x->loops->tensors.at[i].name, name))
            name = arena_printf(x->loops->arena, "%s%d", name, x->loops->tensors.n);
    return loops_tensor(x->loops, name, LOOPS_TEMP, dtype, n, shape);
}

void expand_put(struct expand *x, const struct loops_stmt *like, int out, int32_t index, int32_t value)
{
    struct loops_stmt s = *like;
    s.nout = 1;
    s.out[0] = (uint16_t)out;
    s.index = index;
    s.value = value;
    PUSH(x->loops->arena, x->stmts, s);
}

static void set_value(struct loops *loops, int i, int32_t value)
{
    struct loops_stmt s = loops->stmts.at[i];
    s.value = value;
    loops_set_stmt(loops, i, s);
}

/* -- does a temporary pay, and is computing it always safe? */

/* Computes `node`, which varies along the index variables `row`, ahead of statement i if that is cheaper than computing
 * it again, there and in later statements. */
static int32_t share(struct expand *x, int i, const char *name, int32_t node, uint64_t row, double worth)
{
    struct loops *loops = x->loops;
    const enum sol_dtype dtype = expr_natural(loops, node) == C_F64 ? SOL_F64 : SOL_F32;
    const int64_t bytes = ivars_points(loops, row) * dtype_def(dtype)->bytes;
    if (!expr_is_safe(loops, node) || expr_ops(loops, node) < worth || bytes > x->target->l2 / 4) return node;
    const uint64_t ivars = ex_ivars(loops, node);
    if (__builtin_popcountll(ivars) > SOL_MAX_DIMS) return node;
    const int t = expand_temp(x, name, ivars, dtype);
    expand_put(x, &loops->stmts.at[i], t, expand_ivar_list(x, ivars), node);
    const int32_t read = ex_read(loops, t, expand_ivar_list(x, ivars), 0);
    for (int k = i + 1; k < loops->stmts.n; k++)
        set_value(loops, k, ex_replace(loops, loops->stmts.at[k].value, node, read));
    return read;
}

/* -- reductions in parts */

struct split { /* the index variable becomes outer*block + inner */
    struct expand *x;
    const struct loops_stmt *s;
    int ivar, outer, inner;
    int64_t block;
    uint64_t whole; /* index variables of which each value is a part, too */
};

static void split_ivar(struct split *w, int ivar, int64_t block)
{
    struct loops *loops = w->x->loops;
    const struct loops_ivar old = loops->ivars.at[ivar];
    w->ivar = ivar;
    w->block = block;
    w->outer = loops_ivar(loops, arena_printf(loops->arena, "%sb", old.name), size_ceil_div(old.size, block));
    w->inner = loops_ivar(loops, old.name, block);
}

static int32_t split_index(const struct split *w)
{
    struct loops *loops = w->x->loops;
    const int32_t base = ex_binary(loops, EX_MUL, ex_ivar(loops, w->outer), ex_int(loops, w->block));
    return ex_binary(loops, EX_ADD, base, ex_ivar(loops, w->inner));
}

/* A copy of the expression with the index variable replaced. */
static int32_t split_copy(const struct split *w, int32_t node)
{
    struct loops *loops = w->x->loops;
    int32_t ivar_map[LOOPS_MAX_IVARS];
    int *tensor_map = NEW_ARRAY(loops->arena, int, loops->tensors.n + 1);
    for (int i = 0; i < loops->ivars.n; i++) ivar_map[i] = ex_ivar(loops, i);
    for (int i = 0; i < loops->tensors.n; i++) tensor_map[i] = i;
    ivar_map[w->ivar] = split_index(w);
    return node ? ex_copy(loops, loops, node, ivar_map, tensor_map) : 0;
}

/* -- reductions with two results */

static int32_t count(struct loops *loops, const struct ex *e)
{
    if (!e->a) return ex_int(loops, ivars_size(loops, e->u.bound));
    return ex_red(loops, RED_SUM, e->u.bound, e->a, ex_int(loops, 1));
}

/* A quotient of type float even if both operands are integers. */
static int32_t mean(struct loops *loops, int32_t sum, int32_t n)
{
    return ex_binary(loops, EX_DIV, sum, n);
}

/* The sum of the differences from `from`: the mean of values far from 0 keeps its low digits. */
static int32_t sum_from(struct expand *x, uint64_t bound, int32_t guard, int32_t body, int32_t from)
{
    return ex_red(x->loops, RED_SUM, bound, guard, from ? ex_binary(x->loops, EX_SUB, body, from) : body);
}

/* May each lane add up so many floats that the sum would need double precision? *out_when is the condition that it is.
 */
static bool is_long(const struct expand *x, uint64_t ivars, uint64_t bound, int32_t body, int32_t *out_when)
{
    struct loops *loops = x->loops;
    const int64_t terms = ivars_size(loops, bound), most = x->unit & ivars ? 64 : 64 * x->lanes;
    if (expr_natural(loops, body) != C_F32 || size_le(terms, most)) return false;
    *out_when = ex_cmp(loops, CMP_GT, ex_int(loops, terms), ex_int(loops, most));
    return true;
}

/* The mean of a few values along the longest index variable, side by side if vectors run along it, or else spread. The
 * sum of differences from it loses the digits that it grows by, so a single value, which is about a standard deviation
 * from the mean, makes three times the error. Along the others it is the first, if there is one. Where the guard does
 * not hold, it is 0. */
static int32_t mean_of_few(struct expand *x, uint64_t bound, int32_t guard, int32_t body)
{
    enum { FEW = 8 };
    struct loops *loops = x->loops;
    int32_t ivar_map[LOOPS_MAX_IVARS];
    int *tensor_map = NEW_ARRAY(loops->arena, int, loops->tensors.n + 1);
    int64_t n = 1, longest = 1;
    uint64_t few = 0;
    int along = -1;
    const int all = loops->ivars.n;
    for (int i = 0; i < loops->tensors.n; i++) tensor_map[i] = i;
    for (int i = 0; i < all; i++) {
        const int64_t usual = size_hint(loops->ivars.at[i].size);
        ivar_map[i] = bound >> i & 1 ? ex_int(loops, 0) : ex_ivar(loops, i);
        if (bound >> i & 1 && usual > longest) longest = usual, along = i;
    }
    for (int i = 0; i < all; i++) {
        const int64_t size = loops->ivars.at[i].size, some = size_min(size, i == along ? FEW : 1);
        if (!(bound >> i & 1) || some == 1) continue;
        if (loops->ivars.n == LOOPS_MAX_IVARS) return ex_real(loops, 0);
        const int taken = loops_ivar(loops, arena_printf(loops->arena, "%sf", loops->ivars.at[i].name), some);
        const bool spread = i == along && !(x->unit >> i & 1);
        const int64_t step = spread ? size_max(size_floor_div(size, FEW), 1) : 1;
        ivar_map[i] = ex_binary(loops, EX_MUL, ex_ivar(loops, taken), ex_int(loops, step));
        few |= bit(taken);
        n = size_mul(n, some);
    }
    const int32_t value = ex_copy(loops, loops, body, ivar_map, tensor_map);
    return few ? mean(loops, ex_red(loops, RED_SUM, few, guard, value), ex_int(loops, n)) : value;
}

/* A value to subtract, computed ahead of the statement: about the mean, or 0 if that is huge, infinite or NaN, or where
 * the guard does not hold. */
static int32_t origin(struct expand *x, const struct loops_stmt *s, uint64_t ivars, uint64_t bound, int32_t guard,
                      int32_t body)
{
    struct loops *loops = x->loops;
    const int near = expand_temp(x, "near", ivars, SOL_F32), t = expand_temp(x, "origin", ivars, SOL_F32);
    expand_put(x, s, near, expand_ivar_list(x, ivars), mean_of_few(x, bound, guard, body));
    const int32_t value = ex_read(loops, near, expand_ivar_list(x, ivars), 0),
                  size = ex_call(loops, math_row("abs"), 1, &value);
    const int32_t fit = ex_test(loops, ex_cmp(loops, CMP_LT, size, ex_real(loops, 1e30)));
    expand_put(x, s, t, expand_ivar_list(x, ivars),
               ex_call(loops, math_row("where"), 3, (int32_t[]){fit, value, ex_real(loops, 0)}));
    return ex_read(loops, t, expand_ivar_list(x, ivars), 0);
}

static int32_t mean_from(struct expand *x, int32_t from, int32_t sum, int32_t n)
{
    return from ? ex_binary(x->loops, EX_ADD, from, mean(x->loops, sum, n)) : mean(x->loops, sum, n);
}

/* Does a work group of a graphics card keep the row in its own memory? Then even values that are only read pay. */
static bool keeps_row(const struct expand *x, uint64_t bound)
{
    const int64_t points = ivars_points(x->loops, bound);
    return target_is_card(x->target) && points * (int64_t)sizeof(float) <= dfp_items_room(x->target);
}

/* How many elements of tensors are read side by side along index variables of the results, and of the terms? */
struct runs {
    const struct expand *x;
    uint64_t own, bound;
    double columns, rows;
};
static void see_run(void *user, int32_t node)
{
    struct runs *r = user;
    const struct loops *loops = r->x->loops;
    const struct ex *e = &loops->ex.at[node];
    struct affine a;
    uint64_t runs = 0;
    if (e->kind != EX_READ || loops->tensors.at[e->tensor].role == LOOPS_TABLE) return;
    if (loops->tensors.at[e->tensor].role == LOOPS_TEMP) {
        runs = ex_ivars(loops, node) & r->x->unit;
    } else if (expr_affine_offset(loops, r->x->memory, e->tensor, e->a, &a)) {
        for (int i = 0; i < a.n; i++)
            if (a.coef[i] == 1) runs |= bit(a.ivar[i]);
    }
    const double n = (double)size_hint(loops_elements(&loops->tensors.at[e->tensor]));
    if (runs & r->bound)
        r->rows += n;
    else if (runs & r->own)
        r->columns += n;
}

/* Are the terms of different results side by side, not those of one result? */
static bool reads_columns(const struct expand *x, uint64_t own, const struct ex *e)
{
    struct runs r = {.x = x, .own = own, .bound = e->u.bound};
    ex_walk(x->loops, e->b, see_run, &r);
    return r.columns > r.rows;
}

/* Is a reduction with these results on a graphics card as fast in rows, with a work group for each result, as in parts,
 * which are another step? Where results are side by side, the items of a row read whole sectors for single elements. */
static bool suits_rows(const struct expand *x, uint64_t own, const struct ex *e)
{
    const struct target *t = x->target;
    if (!target_is_card(t)) return false;
    const int64_t length = ivars_points(x->loops, e->u.bound);
    const double n = (double)MAX(ivars_points(x->loops, own), 1), bytes = n * (double)length * sizeof(float);
    const double once = bytes / (bytes <= (double)t->l3 / 2 ? t->l2_rate : t->dram_rate);
    const double rounds = ceil((double)length / card_row_items(t, length, n));
    const double sectors = reads_columns(x, own, e) ? bytes * CARD_SECTOR / sizeof(float) / t->l2_rate : 0;
    return MAX(MAX(rounds * CARD_WAIT / t->clock, sectors), once) <= once + target_step_ns(t);
}

/* Are values read on a graphics card by work items side by side, each alone? Then a second pass would read memory
 * again.
 */
static bool in_columns(const struct expand *x, const struct loops_stmt *s, const struct ex *e)
{
    const uint64_t own = stmt_ivars(x->loops, s);
    return target_is_card(x->target) && reads_columns(x, own, e) && !e->a && expr_natural(x->loops, e->b) == C_F32 &&
           !(keeps_row(x, e->u.bound) && suits_rows(x, own, e));
}

/* The mean and the squared distances from it, added up or averaged, in one pass. With d = sum(x-o)/n, which is small if
 * o is the mean of some of the values, u = o + d and v = sum((x-o)^2)/n - d^2. If o is the mean of f*n of them, d^2 is
 * at most v*(1/f - 1), so the difference loses few digits. */
static void moments_at_once(struct expand *x, const struct loops_stmt *s, uint64_t bound, int32_t body, bool added)
{
    struct loops *loops = x->loops;
    const uint64_t ivars = stmt_ivars(loops, s);
    const int d = expand_temp(x, "away", ivars, SOL_F32);
    const int32_t n = ex_int(loops, ivars_size(loops, bound)), from = origin(x, s, ivars, bound, 0, body);
    const int32_t off = ex_binary(loops, EX_SUB, body, from), away = ex_read(loops, d, expand_ivar_list(x, ivars), 0);
    const int32_t square = ex_call(loops, math_row("square"), 1, &off);
    expand_put(x, s, d, expand_ivar_list(x, ivars), mean(loops, sum_from(x, bound, 0, body, from), n));
    expand_put(x, s, s->out[0], s->index, ex_binary(loops, EX_ADD, from, away));
    const int32_t all = mean(loops, ex_red(loops, RED_SUM, bound, 0, square), n);
    const int32_t least[2] = {ex_binary(loops, EX_SUB, all, ex_call(loops, math_row("square"), 1, &away)),
                              ex_real(loops, 0)};
    const int32_t v = ex_call(loops, math_row("max"), 2, least);
    expand_put(x, s, s->out[1], s->index, added ? ex_binary(loops, EX_MUL, v, n) : v);
}

/* So many values that items for all columns fill a card; sums of fewer are not worth a part. */
static int64_t column_length(const struct expand *x, uint64_t own, uint64_t bound)
{
    enum { LEAST = 32 };
    const double all = (double)ivars_points(x->loops, own) * (double)ivars_points(x->loops, bound);
    return (int64_t)MAX(LEAST, 2 * all / ((double)x->target->cores * x->target->core_items));
}

/* Computes means and squared distances of parts that stay in the cache between the two passes, then those of all
 * values: with the mean m, the count n and the sum of squares q of each part, v = sum(q + n*(m-u)^2). False: everything
 * stays in the cache anyway. */
static bool moments_of_parts(struct expand *x, const struct loops_stmt *s, int at, const struct ex *e, int32_t body)
{
    enum { STRIP = 256 }; /* bytes read together at each point if rows of results are contiguous */
    struct loops *loops = x->loops;
    const uint64_t own = stmt_ivars(loops, s);
    const bool columns = in_columns(x, s, e);
    int64_t most = x->target->l2 / 4 / (x->unit & own ? STRIP : 4);
    struct split w = {.x = x, .s = s};
    uint64_t inner = e->u.bound, parts = 0;
    if (e->a || ivars_points(loops, inner) <= most) return false;
    if (columns)
        most = MIN(most, column_length(x, own, inner));
    else if (target_is_card(x->target)) /* then a work group keeps the part */
        most = MIN(most, dfp_items_room(x->target) / (int64_t)sizeof(float));
    for (int i = 0; i < loops->ivars.n && ivars_points(loops, inner) > most; i++) {
        const uint64_t bit = UINT64_C(1) << i;
        const int64_t size = loops->ivars.at[i].size;
        if (!(inner & bit)) continue;
        int64_t block = size_varies(size) ? 1 : MAX(most / MAX(ivars_points(loops, inner & ~bit), 1), 1);
        while (block > 1 && size % block) block--;
        inner &= ~bit;
        if (block > 1 && loops->ivars.n + 2 <= LOOPS_MAX_IVARS) {
            split_ivar(&w, i, block);
            body = split_copy(&w, body);
            inner |= UINT64_C(1) << w.inner;
            parts |= UINT64_C(1) << w.outer;
            break;
        }
        parts |= bit;
    }
    const uint64_t ivars = own | parts;
    if (!inner || __builtin_popcountll(ivars) > SOL_MAX_DIMS) return false;
    if (!columns && keeps_row(x, inner)) body = share(x, at, "r", body, inner, 1);
    const enum sol_dtype dtype = expr_natural(loops, body) == C_F64 ? SOL_F64 : SOL_F32;
    const int part[2] = {expand_temp(x, "part", ivars, dtype), expand_temp(x, "square", ivars, dtype)};
    const int32_t n = ex_int(loops, ivars_size(loops, inner));
    const int32_t m = ex_read(loops, part[0], expand_ivar_list(x, ivars), 0), off = ex_binary(loops, EX_SUB, body, m);
    int32_t when = 0;
    const int32_t from = !columns && is_long(x, ivars, inner, body, &when) ? origin(x, s, ivars, inner, when, body) : 0;
    if (columns) {
        struct loops_stmt both = *s;
        both.out[0] = (uint16_t)part[0], both.out[1] = (uint16_t)part[1];
        both.index = expand_ivar_list(x, ivars);
        moments_at_once(x, &both, inner, body, true);
    } else {
        expand_put(x, s, part[0], expand_ivar_list(x, ivars), mean_from(x, from, sum_from(x, inner, 0, body, from), n));
        expand_put(x, s, part[1], expand_ivar_list(x, ivars),
                   ex_red(loops, RED_SUM, inner, 0, ex_call(loops, math_row("square"), 1, &off)));
    }
    const int32_t first = from || columns ? origin(x, s, own, parts, 0, m) : 0;
    expand_put(x, s, s->out[0], s->index,
               mean_from(x, first, sum_from(x, parts, 0, m, first), ex_int(loops, ivars_size(loops, parts))));
    const int32_t u = ex_read(loops, s->out[0], s->index, 0), away = ex_binary(loops, EX_SUB, m, u);
    const int32_t apart = ex_binary(loops, EX_MUL, n, ex_call(loops, math_row("square"), 1, &away));
    const int32_t all = ex_binary(loops, EX_ADD, ex_read(loops, part[1], expand_ivar_list(x, ivars), 0), apart);
    expand_put(x, s, s->out[1], s->index, mean(loops, ex_red(loops, RED_SUM, parts, 0, all), count(loops, e)));
    return true;
}

static void moments(struct expand *x, const struct loops_stmt *s, int i, const struct ex *e)
{
    struct loops *loops = x->loops;
    const uint64_t own = stmt_ivars(loops, s), bound = e->u.bound;
    const bool columns = in_columns(x, s, e), rows = keeps_row(x, e->u.bound) && suits_rows(x, own, e);
    const int32_t body = columns ? e->b : share(x, i, "r", e->b, e->u.bound, keeps_row(x, e->u.bound) ? 1 : 4);
    if (!rows && moments_of_parts(x, s, i, e, body)) return;
    if (columns) {
        moments_at_once(x, s, bound, body, false);
        return;
    }
    int32_t when = 0;
    const int32_t from = !e->a && is_long(x, own, bound, body, &when) ? origin(x, s, own, bound, when, body) : 0;
    expand_put(x, s, s->out[0], s->index, mean_from(x, from, sum_from(x, bound, e->a, body, from), count(loops, e)));
    const int32_t u = ex_read(loops, s->out[0], s->index, 0), off = ex_binary(loops, EX_SUB, body, u);
    const int32_t square = ex_call(loops, math_row("square"), 1, &off);
    expand_put(x, s, s->out[1], s->index,
               mean(loops, ex_red(loops, RED_SUM, e->u.bound, e->a, square), count(loops, e)));
}

struct use {
    const struct loops *loops;
    int32_t node;
    bool found;
};

static void see_use(void *user, int32_t node)
{
    struct use *u = user;
    u->found |= ex_equal(u->loops, node, u->node);
}

/* Does a statement behind i contain the expression? */
static bool is_used_behind(const struct expand *x, int i, int32_t node)
{
    struct use u = {x->loops, node, false};
    for (int k = i + 1; k < x->loops->stmts.n && !u.found; k++)
        ex_walk(x->loops, x->loops->stmts.at[k].value, see_use, &u);
    return u.found;
}

/* exp(body - m) */
static int32_t power_from(struct expand *x, int32_t body, int32_t m)
{
    const int32_t away = ex_binary(x->loops, EX_SUB, body, m);
    return ex_call(x->loops, math_row("exp"), 1, &away);
}

/* Either the values or their powers are kept for what follows. */
static void softsum(struct expand *x, const struct loops_stmt *s, int i, const struct ex *e)
{
    struct loops *loops = x->loops;
    const int32_t m = ex_read(loops, s->out[0], s->index, 0);
    const bool again = !e->a && is_used_behind(x, i, power_from(x, e->b, m));
    const int32_t body = share(x, i, "r", e->b, e->u.bound, keeps_row(x, e->u.bound) && !again ? 1 : 4);
    expand_put(x, s, s->out[0], s->index, ex_red(loops, RED_MAX, e->u.bound, e->a, body));
    int32_t power = power_from(x, body, m);
    if (again) power = share(x, i, "e", power, e->u.bound, 4);
    /* if all values are -inf, the sum is 0 instead of NaN */
    const int32_t none = ex_real(loops, -1.0 / 0.0),
                  pick[3] = {ex_test(loops, ex_cmp(loops, CMP_EQ, m, none)), ex_int(loops, 0),
                             ex_red(loops, RED_SUM, e->u.bound, e->a, power)};
    expand_put(x, s, s->out[1], s->index, ex_call(loops, math_row("where"), 3, pick));
    if (s->out[1] < 64) x->softsums |= UINT64_C(1) << s->out[1];
}

/* A reduction to the first position at which the body is `best`, or not a number. Floats hold positions exactly up to
 * 2^24, and more of them fit a vector (narrow). */
static int32_t position_of(struct loops *loops, const struct ex *e, int32_t body, int32_t best, bool narrow)
{
    const int32_t equal = ex_test(loops, ex_cmp(loops, CMP_EQ, body, best)),
                  nan = ex_test(loops, ex_cmp(loops, CMP_NE, body, body));
    int32_t position = ex_int(loops, 0);
    for (int k = 0; k < loops->ivars.n; k++) {
        if (!(e->u.bound >> k & 1)) continue;
        position = ex_binary(loops, EX_ADD, ex_binary(loops, EX_MUL, position, ex_int(loops, loops->ivars.at[k].size)),
                             ex_ivar(loops, k));
    }
    if (narrow)
        position =
            ex_call(loops, math_row("identity"), 1, (int32_t[]){ex_binary(loops, EX_MUL, position, ex_real(loops, 1))});
    const int32_t nothing = narrow ? ex_real(loops, 1.0 / 0.0) : ex_int(loops, INT64_MAX);
    const int where = math_row("where"); /* called twice, because each comparison then runs on vectors */
    const int32_t unless[3] = {nan, position, nothing}, choice[3] = {equal, position, ex_call(loops, where, 3, unless)};
    return ex_red(loops, RED_MIN, e->u.bound, e->a, ex_call(loops, where, 3, choice));
}

/* The position, computed ahead of the statement; 0 if the guard never held. */
static int32_t position_or_0(struct expand *x, const struct loops_stmt *s, int32_t position, bool narrow)
{
    struct loops *loops = x->loops;
    const uint64_t ivars = stmt_ivars(loops, s);
    const int t = expand_temp(x, "at", ivars, narrow ? SOL_F32 : SOL_I64);
    expand_put(x, s, t, expand_ivar_list(x, ivars), position);
    const int32_t first = ex_read(loops, t, expand_ivar_list(x, ivars), 0);
    const int32_t nothing = narrow ? ex_real(loops, 1.0 / 0.0) : ex_int(loops, INT64_MAX);
    const int32_t pick[3] = {ex_test(loops, ex_cmp(loops, CMP_EQ, first, nothing)), ex_int(loops, 0), first};
    return ex_call(loops, math_row("where"), 3, pick);
}

/* The position if only its size tells whether floats hold it: one of two reductions runs. */
static int32_t position_of_any(struct expand *x, const struct loops_stmt *s, const struct ex *e, int32_t body,
                               int32_t best)
{
    struct loops *loops = x->loops;
    const uint64_t ivars = stmt_ivars(loops, s);
    const int32_t size = ex_int(loops, ivars_size(loops, e->u.bound)), most = ex_int(loops, 1 << 24);
    int32_t position[2], when[2];
    for (int wide = 0; wide < 2; wide++) {
        struct ex some = *e;
        when[wide] = ex_cmp(loops, wide ? CMP_GT : CMP_LE, size, most);
        const int32_t both[2] = {when[wide], e->a};
        some.a = e->a ? ex_logic(loops, EX_AND, 2, both) : when[wide];
        position[wide] = position_or_0(x, s, position_of(loops, &some, body, best, !wide), !wide);
        const int t = expand_temp(x, "position", ivars, SOL_I64);
        expand_put(x, s, t, expand_ivar_list(x, ivars), position[wide]);
        position[wide] = ex_read(loops, t, expand_ivar_list(x, ivars), 0);
    }
    return ex_call(loops, math_row("where"), 3, (int32_t[]){ex_test(loops, when[0]), position[0], position[1]});
}

/* The second pass finds the position by comparing values with the extreme. Both passes must see the same bits, so the
 * values come from memory. */
static void extreme_at(struct expand *x, const struct loops_stmt *s, int i, const struct ex *e)
{
    struct loops *loops = x->loops;
    const int32_t body = share(x, i, "r", e->b, e->u.bound, 1.5);
    if (loops->ex.at[body].kind != EX_READ) {
        PUSH(loops->arena, x->stmts, *s);
        return;
    }
    expand_put(x, s, s->out[0], s->index,
               ex_red(loops, e->op == RED_MAXAT ? RED_MAX : RED_MIN, e->u.bound, e->a, body));
    const int32_t best = ex_read(loops, s->out[0], s->index, 0);
    const int64_t size = ivars_size(loops, e->u.bound), most = 1 << 24;
    const bool floats = expr_natural(loops, body) == C_F32, narrow = floats && size_le(size, most);
    int32_t first;
    if (floats && !narrow && !size_lt(most, size)) {
        first = position_of_any(x, s, e, body, best);
    } else {
        first = position_of(loops, e, body, best, narrow);
        if (e->a) first = position_or_0(x, s, first, narrow);
    }
    expand_put(x, s, s->out[1], s->index, first);
}

/* Is the written value read back in the type in which it is reduced? */
static bool exact(const struct loops *loops, const struct loops_stmt *s, int32_t body)
{
    const int t = loops->tensors.at[s->out[0]].dtype;
    if (ex_is_int(loops, body)) return t == SOL_I64;
    return t == SOL_F64 || (t == SOL_F32 && expr_natural(loops, body) == C_F32);
}

static void take(struct expand *x)
{
    loops_set_stmts(x->loops, x->stmts.n, x->stmts.at);
    memset(&x->stmts, 0, sizeof x->stmts);
}

/* -- divisions */

/* May 1 / node replace a division by node? It may if node is never denormal: a root, or a sum of exponentials that
 * contains a 1. */
static bool invertible(const struct expand *x, int32_t node)
{
    const struct ex *e = &x->loops->ex.at[node];
    if (e->kind == EX_CALL) return e->op == math_row("sqrt");
    return e->kind == EX_READ && !e->b && e->tensor < 64 && (x->softsums >> e->tensor & 1);
}

/* Turns divisions of a row by such a value into products with its inverse, which is computed once per row. */
static int32_t invert(const struct expand *x, int32_t node)
{
    struct loops *loops = x->loops;
    const struct ex e = loops->ex.at[node];
    if (e.kind == EX_RED && (e.op == RED_SUM || e.op == RED_MAX || e.op == RED_MIN)) {
        const int32_t body = invert(x, e.b);
        return body == e.b ? node : ex_red(loops, e.op, e.u.bound, e.a, body);
    }
    if (e.kind != EX_ADD && e.kind != EX_SUB && e.kind != EX_MUL && e.kind != EX_DIV) return node;
    const int32_t a = invert(x, e.a);
    if (e.kind == EX_DIV && invertible(x, e.b) && (ex_ivars(loops, a) & ~ex_ivars(loops, e.b)))
        return ex_binary(loops, EX_MUL, a, ex_binary(loops, EX_DIV, ex_real(loops, 1), e.b));
    const int32_t b = e.kind == EX_DIV ? e.b : invert(x, e.b);
    return a == e.a && b == e.b ? node : ex_binary(loops, (enum ex_kind)e.kind, a, b);
}

/* -- long reductions with few results: their parts are tasks */

#define PARTS 64          /* tasks to aim for, */
#define PART_LEAST 32     /* and values of a part at least, */
#define PARTS_WORK 262144 /* operations that justify another step */

/* The number of tasks to aim for: several for each core, or work groups that half fill a graphics card. `have`: those
 * of the whole reduction. */
static int64_t parts_wanted(const struct expand *x, const struct ex *e, int64_t have, int lanes)
{
    const struct target *t = x->target;
    if (!target_is_card(t)) return PARTS;
    const int64_t most = size_mul(ivars_points(x->loops, e->u.bound) / PART_LEAST, have);
    return MAX(PARTS, MIN(most, (int64_t)t->cores * t->core_items / lanes / 2));
}

/* How many of the statement's results are computed independently, as tasks. A result whose terms are side by side is
 * one, as its lanes run along them; otherwise results share a vector. */
static int64_t results(const struct expand *x, const struct loops_stmt *s, const struct ex *e, int lanes)
{
    const uint64_t own = stmt_ivars(x->loops, s), unit = x->unit & own;
    const int64_t n = ivars_points(x->loops, own);
    if (e->kind == EX_RED && !reads_columns(x, own, e)) return n;
    return unit ? n / MAX(1, MIN(lanes, ivars_points(x->loops, unit))) : n;
}

/* The number of parts: a divisor of `size` near `want` if there is one. */
static int64_t parts_of(int64_t size, int64_t want)
{
    int64_t best = 0;
    if (size <= want * 3 / 2) return size;
    for (int64_t n = 2; n < size && n <= want * 2; n++)
        if (size % n == 0 && llabs(n - want) <= llabs(best - want)) best = n;
    return best >= (want + 1) / 2 ? best : want;
}

/* Makes the statement part[whole outer ..] = red[inner ..] body, and returns the reduction over the parts. */
static int32_t make_parts(struct split *w, const struct ex *e, enum sol_dtype dtype)
{
    struct loops *loops = w->x->loops;
    const int32_t body = split_copy(w, e->b);
    int32_t guard = split_copy(w, e->a);
    const uint64_t parts = w->whole | UINT64_C(1) << w->outer;
    const int32_t within = ex_cmp(loops, CMP_LT, split_index(w), ex_int(loops, loops->ivars.at[w->ivar].size));
    const int32_t both[2] = {within, guard};
    if (loops->ex.at[within].kind != EX_INT) guard = guard ? ex_logic(loops, EX_AND, 2, both) : within;
    const uint64_t bound = (e->u.bound & ~w->whole & ~(UINT64_C(1) << w->ivar)) | UINT64_C(1) << w->inner;
    const uint64_t ivars = stmt_ivars(loops, w->s) | parts;
    const int part = expand_temp(w->x, "part", ivars, dtype);
    const int32_t index = expand_ivar_list(w->x, ivars);
    expand_put(w->x, w->s, part, index, ex_red(loops, e->op, bound, guard, body));
    return ex_red(loops, e->op, parts, 0, ex_read(loops, part, expand_ivar_list(w->x, ivars), 0));
}

/* Chooses the index variable to split for about `want` parts: the first long one, which is usually the outermost in
 * memory. On a graphics card all values of shorter ones in front of it are parts, too. -1: there is none. */
static int choose_split(struct split *w, const struct ex *e, int64_t *want)
{
    const struct loops *loops = w->x->loops;
    int found = -1;
    for (int i = 0; i < loops->ivars.n; i++) {
        const int64_t size = size_hint(loops->ivars.at[i].size);
        if (!(e->u.bound >> i & 1) || size < 8 || (found >= 0 && *want < 2 * size_hint(loops->ivars.at[found].size)))
            continue;
        if (found >= 0) {
            if (!target_is_card(w->x->target)) break;
            if (__builtin_popcountll(stmt_ivars(loops, w->s) | w->whole) + 2 > SOL_MAX_DIMS) break;
            w->whole |= UINT64_C(1) << found;
            *want /= size_hint(loops->ivars.at[found].size);
        }
        found = i;
    }
    return found;
}

static void split_long(struct expand *x, const struct loops_stmt *s, int lanes)
{
    struct loops *loops = x->loops;
    int32_t red[2];
    struct loops_stmt whole = *s;
    const int n = s->nout == 1 && !s->scan_step ? dfp_reductions(loops, s->value, red, 2) : 0;
    const struct ex e = n == 1 ? loops->ex.at[red[0]] : (struct ex){0};
    const bool simple = e.op == RED_SUM || e.op == RED_PROD || e.op == RED_MAX || e.op == RED_MIN;
    const int64_t have = results(x, s, &e, lanes), want = n == 1 ? parts_wanted(x, &e, have, lanes) : PARTS;
    const double work = (double)ivars_points(loops, stmt_ivars(loops, s)) * expr_ops(loops, s->value);
    if (n == 1 && simple && have < want / 4 && have > 0 && work >= PARTS_WORK &&
        __builtin_popcountll(stmt_ivars(loops, s)) < SOL_MAX_DIMS && loops->ivars.n + 2 <= LOOPS_MAX_IVARS &&
        !suits_rows(x, stmt_ivars(loops, s), &e)) {
        struct split w = {.x = x, .s = s, .ivar = -1};
        int64_t each = want / have;
        w.ivar = choose_split(&w, &e, &each);
        if (w.ivar >= 0) {
            const int64_t size = size_hint(loops->ivars.at[w.ivar].size), parts = parts_of(size, each);
            const enum compute k = expr_natural(loops, red[0]);
            split_ivar(&w, w.ivar, (size + parts - 1) / parts);
            whole.value = ex_replace(loops, s->value, red[0],
                                     make_parts(&w, &e,
                                                k == C_F64   ? SOL_F64
                                                : k == C_I64 ? SOL_I64
                                                : k == C_U64 ? SOL_U64
                                                             : SOL_F32));
        }
    }
    PUSH(loops->arena, x->stmts, whole);
}

struct cluster dfp_expand(const struct solver_context *sc, const struct cluster *c, int lanes)
{
    struct loops *loops = loops_copy(sc->arena, c->loops);
    struct expand x = {.loops = loops,
                       .target = sc->target,
                       .memory = c->memory,
                       .unit = groups_unit_ivars(loops, c->memory),
                       .lanes = lanes};
    dfp_read_once(loops);
    for (int i = 0; i < loops->stmts.n; i++) {
        const struct loops_stmt s = loops->stmts.at[i];
        const struct ex e = loops->ex.at[s.value];
        const bool plain = s.nout == 2 && e.kind == EX_RED && !s.scan_step && exact(loops, &s, e.b);
        if (plain && e.op == RED_MOMENTS)
            moments(&x, &s, i, &e);
        else if (plain && e.op == RED_SOFTSUM)
            softsum(&x, &s, i, &e);
        else if (plain && (e.op == RED_MAXAT || e.op == RED_MINAT))
            extreme_at(&x, &s, i, &e);
        else
            PUSH(loops->arena, x.stmts, s);
    }
    take(&x);
    for (int i = 0; i < loops->stmts.n; i++) set_value(loops, i, invert(&x, loops->stmts.at[i].value));
    for (int i = 0; i < loops->stmts.n; i++) {
        struct loops_stmt s = loops->stmts.at[i];
        expand_turn(&x, &s);
        split_long(&x, &s, lanes);
    }
    take(&x);
    struct cluster out = {loops, NEW_ARRAY(sc->arena, struct memory, loops->tensors.n), 0};
    memcpy(out.memory, c->memory, (size_t)c->loops->tensors.n * sizeof *out.memory);
    return out;
}
