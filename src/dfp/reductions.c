/* Reductions along lanes: one accumulator per point, long sums in chunks. Windows are unrolled where their borders are
 * known at print time; otherwise they are loops with clipped bounds. */
#include <string.h>

#include "dfp/dfp.h"

#define UNROLL_MOST 96 /* terms times points of unrolled code */

#define SAY(d, ...) arena_printf((d)->p.out->arena, __VA_ARGS__)

const char *dfp_start(struct dfp *d, int op, enum compute k)
{
    const char *s = op == RED_PROD  ? "1"
                    : op == RED_MAX ? (k == C_I64 ? "INT64_MIN" : "-@INFINITY")
                    : op == RED_MIN ? (k == C_I64 ? "INT64_MAX" : "@INFINITY")
                                    : "0";
    return d->p.lanes > 1 ? expr_splat(&d->p, s, k) : s;
}

void dfp_join(struct dfp *d, int op, enum compute k, const char *acc, const char *value)
{
    if (op == RED_SUM || op == RED_PROD)
        text_line(d->p.out, "%s %c= %s;", acc, op == RED_SUM ? '+' : '*', text_bare(d->p.out->arena, value));
    else
        text_line(d->p.out, "%s = @sol_%s_%s(%s, %s);", acc, op == RED_MAX ? "max" : "min", expr_type_name(&d->p, k),
                  value, acc);
}

/* The value in the lanes that count, where the parts of the guard hold that differ between lanes; elsewhere the neutral
 * element. */
static const char *masked(struct dfp_reduction *r, const char *value)
{
    struct dfp *d = r->d;
    const char *all = r->counted;
    for (int i = 0; i < r->masks.n; i++) {
        const int32_t node = r->masks.at[i];
        const char *part = d->p.lanes > 1 ? expr_mask(&d->p, node, r->k) : print_condition(&d->p, node);
        all = !all ? part : SAY(d, d->p.lanes > 1 ? "(%s & %s)" : "%s && %s", all, part);
    }
    const char *none = dfp_start(d, r->e->op, r->k);
    if (d->p.lanes == 1) return SAY(d, "(%s ? %s : %s)", all, value, none);
    return SAY(d, "@sol_select_%s(%s, %s, %s)", expr_type_name(&d->p, r->k), all, value, none);
}

void dfp_accumulate(struct dfp_reduction *r)
{
    struct dfp *d = r->d;
    for (struct dfp_reduction *one = r; one; one = one->beside)
        for (int q = 0; q < d->points; q++) {
            dfp_use(d, q);
            const char *value = expr_value(&d->p, one->e->b, one->k);
            if (one->masks.n || one->counted) value = masked(one, value);
            dfp_join(d, one->e->op, one->k, one->acc[q], value);
        }
}

static void unroll(struct dfp_reduction *r, int i)
{
    struct dfp *d = r->d;
    if (i < r->nunrolled) {
        const int ivar = r->unrolled[i];
        const struct print_ivar old = d->ivars[ivar];
        for (int64_t v = 0; v < d->loops->ivars.at[ivar].size; v++) {
            d->ivars[ivar] = (struct print_ivar){true, NULL, v, v, v};
            unroll(r, i + 1);
        }
        d->ivars[ivar] = old;
        return;
    }
    const char *cond = NULL;
    for (int t = 0; t < r->tests.n; t++) {
        const int holds = nest_decide(&d->p, r->tests.at[t]);
        if (holds == 1) continue;
        if (holds == 0) return;
        const char *part = print_condition(&d->p, r->tests.at[t]);
        cond = cond ? SAY(d, "%s && %s", cond, part) : part;
    }
    struct dfp_load *loads = d->loads;
    if (cond) text_open(d->p.out, "if (%s) {", text_bare(d->p.out->arena, cond));
    dfp_accumulate(r);
    if (cond) {
        text_close(d->p.out, "}");
        d->loads = loads;
    }
}

/* Does this part of the guard compare sizes at a border, where the tile has one point? Then it is cheap to test. */
static bool compares_sizes(const struct dfp_reduction *r, int32_t part, int ivar)
{
    const struct dfp *d = r->d;
    uint64_t constant = bit(ivar);
    if (d->tile < 0 || d->points > 1 || !loops_vary(d->loops)) return false;
    for (int i = 0; i < r->nunrolled; i++) constant |= bit(r->unrolled[i]);
    return !(ex_ivars(d->loops, part) & ~constant & ~bit(d->tile)) && !expr_varies(&d->p, part);
}

/* Is every part of the guard with this index variable decided once that index variable and the unrolled ones are
 * constants, or a cheap test? */
static bool decided(struct dfp_reduction *r, int ivar)
{
    struct dfp *d = r->d;
    bool all = true;
    const struct print_ivar old = d->ivars[ivar];
    for (int64_t v = 0; v < d->loops->ivars.at[ivar].size && all; v++) {
        d->ivars[ivar] = (struct print_ivar){true, NULL, v, v, v};
        for (int i = 0; i < r->loops.guard.n; i++) {
            const int32_t part = r->loops.guard.at[i];
            if ((ex_ivars(d->loops, part) >> ivar & 1) && nest_decide(&d->p, part) < 0 &&
                !compares_sizes(r, part, ivar))
                all = false;
        }
    }
    d->ivars[ivar] = old;
    return all;
}

/* Chooses the index variables to unroll, innermost first, and moves the parts of the guard that contain them. */
static void choose_unrolled(struct dfp_reduction *r)
{
    struct dfp *d = r->d;
    int64_t terms = d->points;
    uint64_t set = 0;
    while (r->loops.n) {
        const int ivar = r->loops.ivar[r->loops.n - 1];
        const int64_t size = d->loops->ivars.at[ivar].size;
        if (size > 11 || terms * size > UNROLL_MOST || !decided(r, ivar)) break;
        terms *= size;
        set |= UINT64_C(1) << ivar;
        memmove(r->unrolled + 1, r->unrolled, (size_t)r->nunrolled++);
        r->unrolled[0] = (uint8_t)ivar;
        r->loops.n--;
    }
    int kept = 0;
    for (int i = 0; i < r->loops.guard.n; i++) {
        const int32_t part = r->loops.guard.at[i];
        if (ex_ivars(d->loops, part) & set)
            PUSH(d->loops->arena, r->tests, part);
        else
            r->loops.guard.at[kept++] = part;
    }
    r->loops.guard.n = kept;
}

void dfp_declare(struct dfp_reduction *r, const char **names)
{
    struct dfp *d = r->d;
    for (int q = 0; q < d->points; q++) {
        names[q] = expr_name(&d->p);
        text_line(d->p.out, "%s %s = %s;", expr_type(&d->p, r->k), names[q], dfp_start(d, r->e->op, r->k));
    }
}

static void begin_chunk(void *user)
{
    for (struct dfp_reduction *r = user; r; r = r->beside) dfp_declare(r, r->acc);
}

/* Errors grow with the length of a chunk and with the number of chunks; the sum of both is smallest near the square
 * root of the number of terms. */
int64_t dfp_chunk(int64_t terms)
{
    int64_t n = 32;
    while (n < 256 && n * n < terms) n *= 2;
    return n;
}

/* Cuts long sums into chunks. A loop of a length that varies is cut, because it may be long. */
static void cut_chunks(struct dfp_reduction *r)
{
    const struct loops *loops = r->d->loops;
    uint64_t all = 0;
    int64_t inner = 1;
    for (int i = 0; i < r->loops.n; i++) all |= bit(r->loops.ivar[i]);
    const int64_t terms = ivars_size(loops, all), chunk = dfp_chunk(size_hint(terms));
    if (size_le(terms, 2 * chunk) || (r->e->op != RED_SUM && r->e->op != RED_PROD)) return;
    int first = r->loops.n;
    for (; first > 0; first--) {
        const int64_t size = loops->ivars.at[r->loops.ivar[first - 1]].size;
        if (size_varies(size) || inner * size > chunk) break;
        inner *= size;
    }
    if (first == r->loops.n || (first > 0 && size_varies(loops->ivars.at[r->loops.ivar[first - 1]].size))) {
        first--;
        r->loops.strip = chunk / inner;
    }
    if (first == 0 && !r->loops.strip) return;
    r->loops.between = begin_chunk;
    r->loops.user = r;
    r->loops.inner = first;
}

struct reads {
    const struct dfp_reduction *r;
    bool unsafe;
};

static bool add_affine(const struct loops *loops, int32_t node, int64_t times, int64_t *coef, int64_t *c)
{
    struct affine a;
    if (!ex_affine(loops, node, &a)) return false;
    for (int i = 0; i < a.n; i++) coef[a.ivar[i]] = size_add(coef[a.ivar[i]], size_mul(times, a.coef[i]));
    *c = size_add(*c, size_mul(times, a.c));
    return true;
}

/* Does a part of the guard that is tested ahead of the body imply index >= 0, or index <= most? */
static bool guarded(const struct dfp_reduction *r, int32_t index, bool low, int64_t most)
{
    const struct loops *loops = r->d->loops;
    for (int i = 0; i < r->loops.guard.n; i++) {
        const struct ex *e = &loops->ex.at[r->loops.guard.at[i]];
        if (e->kind != EX_CMP || e->op == CMP_EQ || e->op == CMP_NE) continue;
        const bool less = e->op == CMP_LT || e->op == CMP_LE, strict = e->op == CMP_LT || e->op == CMP_GT;
        /* the comparison as +-index + rest >= 0: coef and rest are what large - small has beyond the index */
        int64_t coef[LOOPS_MAX_IVARS] = {0}, rest = strict ? -1 : 0;
        bool same = add_affine(loops, less ? e->b : e->a, 1, coef, &rest) &&
                    add_affine(loops, less ? e->a : e->b, -1, coef, &rest) &&
                    add_affine(loops, index, low ? -1 : 1, coef, &rest);
        for (int k = 0; same && k < loops->ivars.n; k++) same = !coef[k];
        if (same && size_le(rest, low ? 0 : most)) return true;
    }
    return false;
}

static void see_outside(void *user, int32_t node)
{
    struct reads *s = user;
    const struct dfp *own = s->r->d;
    const struct ex *e = dfp_ex(own, node);
    if (e->kind == EX_RED) s->unsafe = true;
    if (e->kind != EX_READ || e->b) return;
    int d = 0;
    for (int32_t i = e->a; i; i = dfp_ex(own, i)->next, d++) {
        int64_t low, high;
        const int64_t most = size_sub(own->loops->tensors.at[e->tensor].shape[d], 1);
        const bool known = expr_bounds(&own->p, i, &low, &high);
        const bool below = !known || !size_le(0, low), above = !known || !size_le(high, most);
        if ((below && !guarded(s->r, i, true, 0)) || (above && !guarded(s->r, i, false, most))) s->unsafe = true;
    }
}

/* Moves the parts of the guard that differ between lanes. False: the body may not be computed where they fail. */
bool dfp_split_masks(struct dfp_reduction *r)
{
    struct dfp *d = r->d;
    int kept = 0;
    for (int i = 0; i < r->loops.guard.n; i++) {
        const int32_t part = r->loops.guard.at[i];
        if (d->p.lanes > 1 && expr_varies(&d->p, part))
            PUSH(d->loops->arena, r->masks, part);
        else
            r->loops.guard.at[kept++] = part;
    }
    r->loops.guard.n = kept;
    if (!r->masks.n) return true;
    struct reads s = {r, false};
    ex_walk(d->loops, r->e->b, see_outside, &s);
    for (int i = 0; i < r->masks.n; i++) ex_walk(d->loops, r->masks.at[i], see_outside, &s);
    return !s.unsafe;
}

static enum compute reduction_kind(struct dfp *d, int32_t node, enum compute k)
{
    const enum compute own = expr_natural(d->loops, node);
    if (compute_is_int(own)) return own;
    return compute_is_int(k) || own == C_F64 ? (k == C_F32 ? C_F32 : own) : k;
}

void dfp_reduction_begin(struct dfp *d, const struct ex *e, int32_t node, enum compute k, struct dfp_reduction *out)
{
    *out = (struct dfp_reduction){.d = d, .e = e, .k = reduction_kind(d, node, k)};
}

static void reduce_loops(struct dfp_reduction *r)
{
    struct dfp *d = r->d;
    choose_unrolled(r);
    cut_chunks(r);
    for (struct dfp_reduction *one = r; one; one = one->beside) {
        dfp_declare(one, one->total);
        memcpy(one->acc, one->total, sizeof one->acc);
    }
    struct dfp_load *loads = d->loads;
    nest_open(&d->p, &r->loops);
    if (r->loops.opened) d->loads = NULL;
    unroll(r, 0);
    if (r->loops.between) {
        for (int i = 0; i < r->loops.inner_opened; i++) text_close(d->p.out, "}");
        for (struct dfp_reduction *one = r; one; one = one->beside)
            for (int q = 0; q < d->points; q++) dfp_join(d, one->e->op, one->k, one->total[q], one->acc[q]);
        r->loops.opened -= r->loops.inner_opened;
    }
    nest_close(&d->p, &r->loops);
    d->loads = loads;
}

/* Does a part of the guard fail in the whole current range? */
static bool never(struct dfp *d, int32_t guard)
{
    if (!guard) return false;
    if (dfp_ex(d, guard)->kind != EX_AND) return nest_decide(&d->p, guard) == 0;
    for (int32_t i = dfp_ex(d, guard)->a; i; i = dfp_ex(d, i)->next)
        if (nest_decide(&d->p, i) == 0) return true;
    return false;
}

static bool is_simple(const struct ex *e)
{
    return e->op == RED_SUM || e->op == RED_PROD || e->op == RED_MAX || e->op == RED_MIN;
}

/* Computes n reductions in one loop for all points, and names the values. */
static void reduce(struct dfp *d, const int32_t *node, const enum compute *k, int n)
{
    struct dfp_reduction all[DFP_BESIDE], *r = all;
    struct ex e[DFP_BESIDE];
    for (int i = 0; i < n; i++) {
        e[i] = *dfp_ex(d, node[i]);
        dfp_reduction_begin(d, &e[i], node[i], k[i], &all[i]);
        if (i) all[i - 1].beside = &all[i];
    }
    for (int i = 0; i < d->loops->ivars.n; i++)
        if (e->u.bound >> i & 1 && d->loops->ivars.at[i].size > 1) r->loops.ivar[r->loops.n++] = (uint8_t)i;
    nest_order(&d->p, &r->loops, e->b);
    dfp_use(d, 0);
    if (never(d, e->a)) {
        for (int i = 0; i < n; i++) dfp_declare(&all[i], all[i].total);
    } else {
        nest_guard(&d->p, &r->loops, e->a);
        if (!dfp_split_masks(r)) return;
        reduce_loops(r);
    }
    for (int i = 0; i < n; i++)
        for (int q = 0; q < d->points; q++) {
            dfp_use(d, q);
            expr_know(&d->p, node[i], all[i].k, all[i].total[q]);
        }
}

void dfp_reduce(struct dfp *d, int32_t node, enum compute k)
{
    /* integers without helpers are printed together with their value, lane by lane */
    if (is_simple(dfp_ex(d, node)) && reduction_kind(d, node, k) != C_U64) reduce(d, &node, &k, 1);
}

/* Does the expression read what one of these n statements writes? */
static bool reads_results(const struct loops *loops, int32_t node, const struct loops_stmt *s, int n)
{
    for (int i = 0; i < n; i++)
        for (int o = 0; o < s[i].nout; o++)
            if (rewrite_reads(loops, node, s[i].out[o])) return true;
    return false;
}

/* May this reduction be computed in the loop of `like`? */
static bool fits_beside(struct dfp *d, int32_t node, int32_t like, enum compute k)
{
    const struct ex *e = dfp_ex(d, node), *other = dfp_ex(d, like);
    const bool guards = e->a && other->a ? ex_equal(d->loops, e->a, other->a) : e->a == other->a;
    return is_simple(e) && e->u.bound == other->u.bound && guards && reduction_kind(d, node, k) != C_U64;
}

void dfp_reduce_beside(struct dfp *d, const struct loops_stmt *s, int n, uint64_t open)
{
    int32_t node[DFP_BESIDE];
    enum compute kind[DFP_BESIDE];
    int found = 0;
    for (int i = 0; i < n && s[i].nout == 1 && !s[i].scan_step; i++) {
        int32_t red[DFP_BESIDE];
        const enum compute k = compute_of((enum sol_dtype)d->loops->tensors.at[s[i].out[0]].dtype);
        const int many = dfp_reductions(d->loops, s[i].value, red, DFP_BESIDE);
        if ((!i && !many) || stmt_ivars(d->loops, &s[i]) & ~open) break;
        for (int j = 0; j < many && found < DFP_BESIDE; j++) {
            bool is_new = fits_beside(d, red[j], found ? node[0] : red[j], k) && !reads_results(d->loops, red[j], s, i);
            for (int o = 0; o < found; o++) is_new = is_new && !ex_equal(d->loops, node[o], red[j]);
            if (!is_new || dfp_is_named(d, red[j])) continue;
            node[found] = red[j];
            kind[found++] = k;
        }
    }
    if (found > 1) reduce(d, node, kind, found);
}
