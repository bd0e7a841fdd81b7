/* Recognises attention in a cluster. Each statement is expanded until it reads only what lies in memory and the results
 * of the softmax, so it makes no difference how the scores are cut into statements. */
#include "dnn/attention.h"

#include <math.h>
#include <string.h>

#include "print/print.h"

#define FAIL(...) return *why = __VA_ARGS__, false

static const struct ex *at(const struct loops *loops, int32_t node)
{
    return &loops->ex.at[node];
}

static bool has(uint64_t set, int ivar)
{
    return set >> ivar & 1;
}

/* The only index variable of a set; -1: there are none or several. */
int attention_only(uint64_t set)
{
    return set && !(set & (set - 1)) ? __builtin_ctzll(set) : -1;
}

/* -- expanding statements */

static bool same_list(const struct loops *loops, int32_t a, int32_t b)
{
    for (; a && b; a = at(loops, a)->next, b = at(loops, b)->next)
        if (!ex_equal(loops, a, b)) return false;
    return !a && !b;
}

int32_t attention_expand(void *user, struct loops *loops, int32_t node)
{
    struct attention_expanding *x = user;
    const struct ex *e = at(loops, node);
    const struct loops_stmt *w = e->kind == EX_READ ? x->writer[e->tensor] : NULL;
    if (!w) return node;
    x->bad |= e->b || !same_list(loops, e->a, w->index);
    return w->value;
}

/* -- the parts of an expression */

struct hunt {
    const struct loops *loops;
    uint64_t bound;
    int32_t found;
};

/* The outermost sum over `bound`. */
static void see_sum(void *user, int32_t node)
{
    struct hunt *h = user;
    const struct ex *e = at(h->loops, node);
    if (!h->found && e->kind == EX_RED && e->op == RED_SUM && e->u.bound == h->bound) h->found = node;
}

/* The only reduction of an expression, if it is sum[one index variable] x * y; 0: it is something else. */
int32_t attention_sum_of(const struct loops *loops, int32_t value)
{
    int32_t found;
    if (rewrite_reductions(loops, value, &found) != 1) return 0;
    const struct ex *e = at(loops, found);
    const bool sum = e->op == RED_SUM && !e->a && attention_only(e->u.bound) >= 0;
    return sum && at(loops, e->b)->kind == EX_MUL ? found : 0;
}

/* The strides of a factor along two index variables, each of which has indices of its own. The other indices follow
 * from the batch. */
bool attention_factor_of(struct attention *a, int32_t node, int row, int column, struct attention_factor *out)
{
    const struct ex *e = at(a->loops, node);
    *out = (struct attention_factor){.node = node, .tensor = e->tensor};
    if (e->b) return false;
    int d = 0;
    for (int32_t i = e->a; i; i = at(a->loops, i)->next, d++) {
        const uint64_t ivars = ex_ivars(a->loops, i);
        struct affine f;
        if (ex_reads_data(a->loops, i)) return false;
        if (!has(ivars, row) && !has(ivars, column)) continue;
        if (!ex_affine(a->loops, i, &f)) return false;
        for (int n = 0; n < f.n; n++) {
            int64_t *to = f.ivar[n] == row ? &out->row : f.ivar[n] == column ? &out->column : NULL;
            if (to) *to = size_add(*to, size_mul(f.coef[n], a->memory[e->tensor].stride[d]));
        }
    }
    return out->row != SIZE_BAD && out->column != SIZE_BAD;
}

static bool is_read_of(const struct loops *loops, int32_t node, int tensor)
{
    return at(loops, node)->kind == EX_READ && at(loops, node)->tensor == tensor;
}

/* The arguments of a call of function `name`, at most three; false: it is no such call. */
bool attention_calls(const struct loops *loops, int32_t node, const char *name, int32_t *arg)
{
    const struct ex *e = at(loops, node);
    if (e->kind != EX_CALL || e->op != math_row(name)) return false;
    for (int32_t i = e->a; i; i = at(loops, i)->next) *arg++ = i;
    return true;
}

int32_t attention_untested(const struct loops *loops, int32_t cond)
{
    return at(loops, cond)->kind == EX_TEST ? at(loops, cond)->a : cond;
}

/* Is it the tensor, or where(tensor == value, other, tensor)? */
static bool is_row(const struct loops *loops, int32_t node, int tensor, double value, bool *out_guarded)
{
    int32_t arg[4] = {0};
    *out_guarded = false;
    if (is_read_of(loops, node, tensor)) return true;
    if (!attention_calls(loops, node, "where", arg) || !is_read_of(loops, arg[2], tensor)) return false;
    const struct ex *cmp = at(loops, attention_untested(loops, arg[0]));
    const int32_t number = cmp->b;
    double found = at(loops, number)->kind == EX_REAL ? at(loops, number)->u.r : (double)at(loops, number)->u.i;
    const int32_t inner = at(loops, number)->kind == EX_NEG ? at(loops, number)->a : 0;
    if (inner && at(loops, inner)->kind == EX_REAL) found = -at(loops, inner)->u.r;
    *out_guarded = true;
    return cmp->kind == EX_CMP && cmp->op == CMP_EQ && is_read_of(loops, cmp->a, tensor) && found == value;
}

/* Is this exp(score - m), 0 outside of the guard? `out_whole`: m is taken as it is, so that rows without a key are
 * NaN. */
static bool is_weight(const struct attention *a, int32_t node, int32_t score, bool *out_whole)
{
    const struct loops *loops = a->loops;
    int32_t arg[4] = {0};
    bool guarded;
    if (a->guard) {
        if (!attention_calls(loops, node, "where", arg) || !ex_is_zero(loops, arg[2])) return false;
        if (!ex_equal(loops, attention_untested(loops, arg[0]), attention_untested(loops, a->guard))) return false;
        node = arg[1];
    }
    if (!attention_calls(loops, node, "exp", arg) || at(loops, arg[0])->kind != EX_SUB) return false;
    const struct ex *e = at(loops, arg[0]);
    if (!ex_equal(loops, e->a, score) || !is_row(loops, e->b, a->m, -INFINITY, &guarded)) return false;
    *out_whole = !guarded;
    return true;
}

/* -- recognition */

static bool find_softmax(struct attention *a, int *out_stmt, const char **why)
{
    int n = 0;
    for (int i = 0; i < a->loops->stmts.n; i++) {
        const struct loops_stmt *s = &a->loops->stmts.at[i];
        if (s->scan_step) FAIL("a recurrence");
        const struct ex *e = at(a->loops, s->value);
        if (e->kind != EX_RED || e->op != RED_SOFTSUM) continue;
        n++;
        *out_stmt = i;
        a->m = s->out[0];
        a->z = s->out[1];
        a->row_index = s->index;
        a->batch = stmt_ivars(a->loops, s);
        a->s = attention_only(e->u.bound);
        a->guard = e->a;
    }
    if (n != 1 || a->s < 0) FAIL("not one softmax along one index variable");
    return true;
}

/* The scores, with the sum of products in them cut out. */
static bool find_scores(struct attention *a, int32_t score, const char **why)
{
    struct loops *loops = a->loops;
    const int32_t sum = attention_sum_of(loops, score);
    if (!sum) FAIL("the scores are not computed from one sum of products");
    const struct ex e = *at(loops, sum);
    const int32_t one = at(loops, e.b)->a, two = at(loops, e.b)->b;
    const bool swap = has(ex_ivars(loops, one), a->s);
    const int32_t q = swap ? two : one, k = swap ? one : two;
    if (at(loops, q)->kind != EX_READ || at(loops, k)->kind != EX_READ) FAIL("the scores are no sum of two reads");
    a->d = attention_only(e.u.bound);
    a->q.node = q;
    a->k.node = k;
    const uint64_t in_q = ex_ivars(loops, q), in_k = ex_ivars(loops, k);
    if (has(in_q, a->s) || !has(in_k, a->s) || !has(in_q, a->d) || !has(in_k, a->d))
        FAIL("the factors of the scores are not queries and keys");
    a->score = score;
    a->score_sum = sum;
    return true;
}

/* The statement y[..] = g(sum[S] weight * v): cuts the sum out of its value. */
static bool find_values(struct attention *a, const struct loops_stmt *s, int32_t value, int32_t score, int32_t *out,
                        const char **why)
{
    struct loops *loops = a->loops;
    struct hunt h = {.loops = loops, .bound = bit(a->s)};
    ex_walk(loops, value, see_sum, &h);
    const int32_t sum = h.found;
    if (!sum) FAIL("no sum over keys behind the softmax");
    const struct ex e = *at(loops, sum);
    if (e.a || at(loops, e.b)->kind != EX_MUL) FAIL("the sum over keys is not one of products");
    int32_t weight = at(loops, e.b)->a, v = at(loops, e.b)->b;
    if (rewrite_reads(loops, v, a->m)) weight = at(loops, e.b)->b, v = at(loops, e.b)->a;
    if (at(loops, v)->kind != EX_READ) FAIL("the values are not read from memory");
    bool whole, guarded = false;
    int32_t by = 0;
    if (at(loops, weight)->kind == EX_DIV) by = at(loops, weight)->b, weight = at(loops, weight)->a;
    if (by && !is_row(loops, by, a->z, 0, &guarded)) FAIL("weights are divided by something else than their sum");
    if (!is_weight(a, weight, score, &whole)) FAIL("the weights are not exp(score - largest score)");
    if (whole && guarded) FAIL("rows without a key are not defined alike");
    a->v.node = v;
    a->mixed = loops_tensor(loops, "mixed", LOOPS_TEMP, a->dtype, 1, (int64_t[]){1});
    a->e = attention_only(stmt_ivars(loops, s) & ~a->batch);
    if (a->e < 0 || !has(ex_ivars(loops, v), a->s)) FAIL("the values have no dimension of their own");
    loops_set_tensor(
        loops, a->mixed,
        (struct loops_tensor){
            .name = "mixed", .role = LOOPS_TEMP, .dtype = a->dtype, .ndim = 1, .shape = {loops->ivars.at[a->e].size}});
    int32_t mixed = ex_read(loops, a->mixed, ex_ivar(loops, a->e), 0);
    if (by) mixed = ex_binary(loops, EX_DIV, mixed, by);
    *out = ex_replace(loops, value, sum, mixed);
    return true;
}

/* Queries are rows that neither the keys nor the values have; of several, the ones that the guard compares, or most. */
static bool sort_ivars(struct attention *a, const char **why)
{
    const struct loops *loops = a->loops;
    const uint64_t rows = a->batch;
    uint64_t own = rows & ex_ivars(loops, a->q.node) & ~ex_ivars(loops, a->k.node) & ~ex_ivars(loops, a->v.node);
    if (a->guard && own & ex_ivars(loops, a->guard)) own &= ex_ivars(loops, a->guard);
    a->t = -1;
    for (int i = 0; i < loops->ivars.n; i++)
        if (has(own, i) && (a->t < 0 || size_hint(loops->ivars.at[i].size) > size_hint(loops->ivars.at[a->t].size)))
            a->t = i;
    if (a->t < 0) FAIL("there are no queries that share keys");
    a->batch = rows & ~bit(a->t);
    const uint64_t in_k = ex_ivars(loops, a->k.node) & ~bit(a->s) & ~bit(a->d),
                   in_v = ex_ivars(loops, a->v.node) & ~bit(a->s) & ~bit(a->e),
                   in_q = ex_ivars(loops, a->q.node) & ~bit(a->t) & ~bit(a->d);
    if ((in_k | in_v | in_q) & ~a->batch) FAIL("a factor has a dimension that the result lacks");
    if (!attention_factor_of(a, a->q.node, a->t, a->d, &a->q) ||
        !attention_factor_of(a, a->k.node, a->s, a->d, &a->k) || !attention_factor_of(a, a->v.node, a->s, a->e, &a->v))
        FAIL("an index is not affine or comes from data");
    for (int i = 0; i < 2; i++) {
        const int64_t size = loops->ivars.at[i ? a->e : a->d].size;
        if (size_varies(size) || size > ATTENTION_MOST_DEPTH) FAIL("too many elements of a key or a value");
    }
    return true;
}

struct by_query {
    const struct attention *a;
    bool any;
};

static void see_query(void *user, int32_t node)
{
    struct by_query *b = user;
    const struct ex *e = at(b->a->loops, node);
    b->any |= e->kind == EX_READ && e->tensor != b->a->scored && has(ex_ivars(b->a->loops, node), b->a->t);
}

/* -- parts of the score that are turned */

struct part { /* what an expression has */
    struct attention *a;
    int32_t node; /* does it have this one? */
    bool has_node, has_sum, reads_rows, reads_wide;
};

static void see_part(void *user, int32_t node)
{
    struct part *p = user;
    const struct attention *a = p->a;
    const struct ex *e = at(a->loops, node);
    struct attention_factor x;
    p->has_node |= node == p->node;
    p->has_sum |= e->kind == EX_RED;
    if (e->kind != EX_READ) return;
    const uint64_t ivars = ex_ivars(a->loops, node);
    if (e->tensor == a->scored || e->tensor == a->m || e->tensor == a->z) { /* `scored` has no memory yet */
        p->has_sum = true;
        return;
    }
    p->reads_wide |= compute_of(a->loops->tensors.at[e->tensor].dtype) == C_F64 && a->dtype != SOL_F64;
    p->reads_rows |=
        has(ivars, a->t) && has(ivars, a->s) && (!attention_factor_of(p->a, node, a->t, a->s, &x) || x.row != 1);
}

static struct part look(struct attention *a, int32_t at, int32_t node)
{
    struct part p = {.a = a, .node = node};
    ex_walk(a->loops, at, see_part, &p);
    return p;
}

/* Parents come first, so a part is as large as possible, and what lies in one is none. */
static void see_beside(void *user, int32_t node)
{
    struct attention *a = user;
    const enum compute k = expr_natural(a->loops, node);
    if (a->nbeside == ATTENTION_BESIDE || (k != C_F32 && k != C_F64)) return;
    for (int i = 0; i < a->nbeside; i++)
        if (look(a, a->beside[i], node).has_node) return;
    const struct part p = look(a, node, 0);
    if (!p.has_sum && !p.reads_wide && p.reads_rows) a->beside[a->nbeside++] = node;
}

static void cut_parts(struct attention *a)
{
    struct loops *loops = a->loops;
    const int64_t shape[] = {loops->ivars.at[a->t].size, loops->ivars.at[a->s].size};
    const int32_t index[] = {ex_ivar(loops, a->t), ex_ivar(loops, a->s)};
    ex_walk(loops, a->score, see_beside, a);
    a->turned = a->score;
    for (int i = 0; i < a->nbeside; i++) {
        a->aside[i] = loops_tensor(loops, i ? "aside2" : "aside", LOOPS_TEMP, a->dtype, 2, shape);
        a->turned =
            ex_replace(loops, a->turned, a->beside[i], ex_read(loops, a->aside[i], ex_list(loops, 2, index), 0));
    }
}

static bool right_types(const struct attention *a)
{
    const int tensors[] = {at(a->loops, a->q.node)->tensor, at(a->loops, a->k.node)->tensor,
                           at(a->loops, a->v.node)->tensor, a->m, a->z};
    for (int i = 0; i < COUNT_OF(tensors); i++)
        if (a->loops->tensors.at[tensors[i]].dtype != a->dtype) return false;
    return a->dtype == SOL_F32 || a->dtype == SOL_F64;
}

/* Adds what statement i writes; `value` is expanded. */
static bool add_store(struct attention *a, int i, int32_t value, uint64_t over, const char **why)
{
    const struct loops_stmt *s = &a->loops->stmts.at[i];
    if (a->loops->tensors.at[s->out[0]].role != LOOPS_OUTPUT) return true;
    if (stmt_ivars(a->loops, s) != over || a->nstore == ATTENTION_STORES || rewrite_has_reduction(a->loops, value))
        FAIL("it writes something else than the result");
    a->store[a->nstore++] = (struct attention_store){s->out[0], s->index, value};
    return true;
}

static bool find_statements(struct attention *a, const char **why)
{
    struct loops *loops = a->loops;
    const int n = loops->stmts.n;
    struct loops_stmt *made = NEW_ARRAY(a->arena, struct loops_stmt, n + 1);
    struct attention_expanding x = {.writer = NEW_ARRAY(a->arena, const struct loops_stmt *, loops->tensors.n + 8)};
    int softmax = 0;
    int32_t score = 0;
    uint64_t over = 0;
    if (!find_softmax(a, &softmax, why)) return false;
    for (int i = 0; i < n; i++) {
        made[i] = loops->stmts.at[i];
        made[i].value = ex_map(loops, made[i].value, attention_expand, &x);
        if (x.bad) FAIL("a statement reads another one at other indices");
        if (i == softmax) {
            score = at(loops, made[i].value)->b;
            if (!find_scores(a, score, why)) return false;
            continue;
        }
        if (made[i].nout != 1) FAIL("a statement with several results");
        if (i > softmax && !over && rewrite_has_reduction(loops, made[i].value) &&
            ex_any(loops, loops->stmts.at[i].value, ex_is_contraction)) {
            if (!find_values(a, &made[i], made[i].value, score, &made[i].value, why)) return false;
            over = stmt_ivars(loops, &made[i]);
        }
        if (loops->tensors.at[made[i].out[0]].role == LOOPS_OUTPUT &&
            (!over || !add_store(a, i, made[i].value, over, why)))
            FAIL("it writes something else than the result");
        x.writer[made[i].out[0]] = &made[i];
    }
    if (!over || !a->nstore) FAIL("no sum over keys behind the softmax");
    return true;
}

/* Puts a read of `scored`, with an element for each query and key, in place of the sum. */
static void cut_scores(struct attention *a)
{
    struct loops *loops = a->loops;
    const int64_t shape[] = {loops->ivars.at[a->t].size, loops->ivars.at[a->s].size};
    const int32_t index[] = {ex_ivar(loops, a->t), ex_ivar(loops, a->s)};
    a->scored = loops_tensor(loops, "scored", LOOPS_TEMP, a->dtype, 2, shape);
    a->score = ex_replace(loops, a->score, a->score_sum, ex_read(loops, a->scored, ex_list(loops, 2, index), 0));
}

bool attention_find(const struct solver_context *sc, const struct cluster *c, struct attention *a, const char **why)
{
    if (!target_has_vectors(sc->target) && !target_is_card(sc->target)) FAIL("it has no vectors");
    if (c->loops->stmts.n < 3) FAIL("not one softmax along one index variable");
    *a = (struct attention){.arena = sc->arena, .sc = sc, .target = sc->target, .was = c->loops, .memory = c->memory};
    a->loops = loops_copy(sc->arena, c->loops);
    a->varies = cluster_varies(c);
    for (int i = 0; i < c->loops->ivars.n; i++)
        if (c->loops->ivars.at[i].size == 0) FAIL("loops over nothing");
    for (int i = 0; i < c->loops->stmts.n; i++)
        if (c->loops->stmts.at[i].nout == 2) a->dtype = c->loops->tensors.at[c->loops->stmts.at[i].out[0]].dtype;
    a->scored = a->mixed = -1;
    if (!find_statements(a, why) || !sort_ivars(a, why)) return false;
    cut_scores(a);
    if (!right_types(a)) FAIL("the types are not one floating-point type");
    struct by_query b = {.a = a};
    ex_walk(a->loops, a->score, see_query, &b);
    if (a->guard) ex_walk(a->loops, a->guard, see_query, &b);
    a->score_by_query = b.any;
    cut_parts(a);
    /* the loops have some tensors more, whose reads the printer answers */
    struct memory *memory = NEW_ARRAY(a->arena, struct memory, a->loops->tensors.n);
    memcpy(memory, c->memory, (size_t)c->loops->tensors.n * sizeof *memory);
    a->memory = memory;
    a->lanes = target_lanes(sc->target, dtype_def(a->dtype)->bytes);
    return true;
}
