/* Recognises the gradient of attention in loops (attention.h). As in attention_find.c, statements are expanded, so it
 * makes no difference how they are cut. */
#include "dnn/attention.h"

#include <string.h>

#define FAIL(...) return *why = __VA_ARGS__, false

static const struct ex *at(const struct loops *loops, int32_t node)
{
    return &loops->ex.at[node];
}

/* A result: a function of sum[one index variable] weight * read, element by element. */
struct result {
    int stmt, of;
    int32_t value, sum, weight, read;
    int bound, nested; /* reductions in `weight` */
};

static bool find_result(const struct loops *loops, int stmt, int32_t value, struct result *out)
{
    int32_t first, inner;
    const int n = rewrite_reductions(loops, value, &first);
    if (!n) return false;
    const struct ex *e = at(loops, first);
    if (e->op != RED_SUM || e->a || attention_only(e->u.bound) < 0 || at(loops, e->b)->kind != EX_MUL) return false;
    const int32_t one = at(loops, e->b)->a, two = at(loops, e->b)->b;
    const int in_one = rewrite_reductions(loops, one, &inner), in_two = rewrite_reductions(loops, two, &inner);
    if (!in_one == !in_two || n != 1 + in_one + in_two) return false;
    *out = (struct result){.stmt = stmt,
                           .value = value,
                           .sum = first,
                           .weight = in_one ? one : two,
                           .read = in_one ? two : one,
                           .bound = attention_only(e->u.bound),
                           .nested = in_one + in_two};
    return at(loops, out->read)->kind == EX_READ && !at(loops, out->read)->b;
}

struct results {
    int n;
    struct result at[ATTENTION_STORES];
    const struct result *of[ATTENTION_SUMS]; /* the first of each kind */
};

/* Expands all statements. */
static bool find_results(struct attention *a, struct results *out, const char **why)
{
    struct loops *loops = a->loops;
    struct attention_expanding x = {.writer = NEW_ARRAY(a->arena, const struct loops_stmt *, loops->tensors.n + 1)};
    struct loops_stmt *made = NEW_ARRAY(a->arena, struct loops_stmt, loops->stmts.n + 1);
    for (int i = 0; i < loops->stmts.n; i++) {
        made[i] = loops->stmts.at[i];
        if (made[i].nout != 1 || made[i].scan_step) FAIL("a statement with several results, or a recurrence");
        made[i].value = ex_map(loops, made[i].value, attention_expand, &x);
        if (x.bad) FAIL("a statement reads another one at other indices");
        x.writer[made[i].out[0]] = &made[i];
        if (loops->tensors.at[made[i].out[0]].role != LOOPS_OUTPUT) continue;
        if (out->n == COUNT_OF(out->at) || !find_result(loops, i, made[i].value, &out->at[out->n]))
            FAIL("it writes something else than sums of weights times a factor");
        out->n++;
    }
    return true;
}

/* Sums with one sum inside are those of values. The other two differ in what they run over. */
static bool sort_results(const struct loops *loops, struct results *r, const char **why)
{
    int queries = -1;
    for (int i = 0; i < r->n; i++)
        if (r->at[i].nested == 1) queries = r->at[i].bound;
    for (int i = 0; i < r->n; i++) {
        struct result *x = &r->at[i];
        if (x->nested > 2) FAIL("more than two sums in a sum");
        x->of = x->nested == 1 ? ATTENTION_DV : x->bound == queries ? ATTENTION_DK : ATTENTION_DQ;
        if (!r->of[x->of]) r->of[x->of] = x;
        if (!ex_equal(loops, r->of[x->of]->sum, x->sum)) FAIL("two different sums of one kind");
    }
    if (!r->of[ATTENTION_DV] || !r->of[ATTENTION_DK] || !r->of[ATTENTION_DQ]) FAIL("not the three sums of a gradient");
    if (!ex_equal(loops, r->of[ATTENTION_DK]->weight, r->of[ATTENTION_DQ]->weight))
        FAIL("the weights of keys and queries differ");
    return true;
}

static uint64_t over(const struct loops *loops, const struct result *r)
{
    return stmt_ivars(loops, &loops->stmts.at[r->stmt]);
}

/* The index variables of queries, keys and batches, and those of the results' columns. */
static bool sort_ivars(struct attention_grad *g, const struct results *r, const char **why)
{
    struct attention *a = &g->a;
    uint64_t of[ATTENTION_SUMS];
    a->t = r->of[ATTENTION_DV]->bound;
    a->s = r->of[ATTENTION_DQ]->bound;
    for (int i = 0; i < ATTENTION_SUMS; i++) {
        of[i] = over(a->loops, r->of[i]);
        g->column[i] = attention_only(of[i] & ~ex_ivars(a->loops, r->of[i]->weight));
        if (g->column[i] < 0) FAIL("a result is not rows of columns");
    }
    a->batch = of[ATTENTION_DV] & ~bit(a->s) & ~bit(g->column[ATTENTION_DV]);
    for (int i = 0; i < ATTENTION_SUMS; i++) {
        const int row = i == ATTENTION_DQ ? a->t : a->s;
        if (of[i] != (a->batch | bit(row) | bit(g->column[i]))) FAIL("the results have different batches");
    }
    return true;
}

/* Two factors of a product: one has queries, the other keys; both have what the sum runs over. */
static bool factors(struct attention *a, int32_t sum, struct attention_factor *query, struct attention_factor *key,
                    int *out_depth)
{
    const struct loops *loops = a->loops;
    const struct ex *e = at(loops, sum);
    int32_t q = at(loops, e->b)->a, k = at(loops, e->b)->b;
    *out_depth = attention_only(e->u.bound);
    if (ex_ivars(loops, q) & bit(a->s)) q = at(loops, e->b)->b, k = at(loops, e->b)->a;
    if (at(loops, q)->kind != EX_READ || at(loops, k)->kind != EX_READ) return false;
    const uint64_t in_q = bit(a->t) | bit(*out_depth), in_k = bit(a->s) | bit(*out_depth);
    if ((ex_ivars(loops, q) & in_q) != in_q || (ex_ivars(loops, k) & in_k) != in_k) return false;
    if ((ex_ivars(loops, q) & ~in_q & ~a->batch) || (ex_ivars(loops, k) & ~in_k & ~a->batch)) return false;
    return attention_factor_of(a, q, a->t, *out_depth, query) && attention_factor_of(a, k, a->s, *out_depth, key);
}

/* Is the read of a result's sum that of a factor, with the result's column in place of `depth`? */
static bool reads_again(const struct attention_grad *g, const struct result *r, const struct attention_factor *x,
                        int depth)
{
    struct loops *loops = g->a.loops;
    int32_t ivar[LOOPS_MAX_IVARS];
    for (int i = 0; i < loops->ivars.n; i++) ivar[i] = ex_ivar(loops, i == g->column[r->of] ? depth : i);
    return loops->ivars.at[depth].size == loops->ivars.at[g->column[r->of]].size &&
           ex_equal(loops, ex_copy(loops, loops, r->read, ivar, NULL), x->node);
}

static int stand_in(struct attention *a, const char *name, int n, const int *ivar, int32_t *out_read)
{
    int64_t shape[2];
    int32_t index[2];
    for (int i = 0; i < n; i++) {
        shape[i] = a->loops->ivars.at[ivar[i]].size;
        index[i] = ex_ivar(a->loops, ivar[i]);
    }
    const int tensor = loops_tensor(a->loops, name, LOOPS_TEMP, a->dtype, n, shape);
    *out_read = ex_read(a->loops, tensor, ex_list(a->loops, n, index), 0);
    return tensor;
}

static bool find_weights(struct attention_grad *g, const struct results *r, const char **why)
{
    struct attention *a = &g->a;
    struct loops *loops = a->loops;
    const int scores[] = {a->t, a->s};
    const int32_t p = r->of[ATTENTION_DV]->weight, p_sum = attention_sum_of(loops, p);
    int32_t read;
    if (!p_sum || !factors(a, p_sum, &a->q, &a->k, &a->d)) FAIL("the weights are not computed from queries and keys");
    g->weight = stand_in(a, "weight", 2, scores, &read);
    g->r = ex_replace(loops, r->of[ATTENTION_DQ]->weight, p, read);
    const int32_t r_sum = attention_sum_of(loops, g->r);
    if (!rewrite_reads(loops, g->r, g->weight) || !r_sum || !factors(a, r_sum, &g->d, &a->v, &a->e))
        FAIL("the gradients of scores are not computed from weights, and the result's gradient times values");
    g->gained = stand_in(a, "gained", 2, scores, &read);
    g->r = ex_replace(loops, g->r, r_sum, read);
    a->scored = stand_in(a, "scored", 2, scores, &read);
    a->score = ex_replace(loops, p, p_sum, read);
    if (!reads_again(g, r->of[ATTENTION_DV], &g->d, a->e) || !reads_again(g, r->of[ATTENTION_DK], &a->q, a->d) ||
        !reads_again(g, r->of[ATTENTION_DQ], &a->k, a->d))
        FAIL("a sum of weights has another factor than the scores");
    for (int i = 0; i < 2; i++) {
        const int64_t size = loops->ivars.at[i ? a->e : a->d].size;
        if (size_varies(size) || size > ATTENTION_MOST_DEPTH) FAIL("too many elements of a key or a value");
    }
    return true;
}

/* Both are 0 outside of one guard, or there is none. */
static void find_guard(struct attention_grad *g)
{
    struct attention *a = &g->a;
    const struct loops *loops = a->loops;
    int32_t p[4] = {0}, r[4] = {0};
    g->p_inside = a->score;
    g->r_inside = g->r;
    if (!attention_calls(loops, a->score, "where", p) || !ex_is_zero(loops, p[2]) || ex_reads_data(loops, p[0])) return;
    if (!attention_calls(loops, g->r, "where", r) || !ex_is_zero(loops, r[2]) || !ex_equal(loops, p[0], r[0])) return;
    a->guard = attention_untested(loops, p[0]);
    g->p_inside = p[1];
    g->r_inside = r[1];
}

static void see_row(void *user, int32_t node)
{
    struct attention_grad *g = user;
    struct attention *a = &g->a;
    const struct ex *e = at(a->loops, node);
    if (e->kind != EX_READ || e->tensor == a->scored || e->tensor == g->gained || e->tensor == g->weight) return;
    const uint64_t ivars = ex_ivars(a->loops, node);
    if (!(ivars & bit(a->t))) return;
    const bool real = a->loops->tensors.at[e->tensor].dtype == a->dtype;
    if (!real || ivars & bit(a->s) || e->b || g->nrow == ATTENTION_ROWS) {
        a->score_by_query = true;
        return;
    }
    for (int i = 0; i < g->nrow; i++)
        if (ex_equal(a->loops, g->row[i], node)) return;
    g->row[g->nrow++] = node;
}

static bool find_stores(struct attention_grad *g, const struct results *r, const char **why)
{
    struct attention *a = &g->a;
    int32_t read[ATTENTION_SUMS];
    for (int i = 0; i < ATTENTION_SUMS; i++) g->sum[i] = stand_in(a, "sum", 1, &g->column[i], &read[i]);
    for (int i = 0; i < r->n; i++) {
        const struct result *x = &r->at[i];
        const struct loops_stmt *s = &a->loops->stmts.at[x->stmt];
        const int32_t value = ex_replace(a->loops, x->value, x->sum, read[x->of]);
        if (over(a->loops, x) != over(a->loops, r->of[x->of]) || rewrite_has_reduction(a->loops, value))
            FAIL("it writes something else than the results");
        g->store[g->nstore].of = x->of;
        g->store[g->nstore++].to = (struct attention_store){s->out[0], s->index, value};
    }
    return true;
}

static bool right_types(const struct attention_grad *g)
{
    const struct attention *a = &g->a;
    const int32_t nodes[] = {a->q.node, a->k.node, a->v.node, g->d.node};
    for (int i = 0; i < COUNT_OF(nodes); i++)
        if (a->loops->tensors.at[at(a->loops, nodes[i])->tensor].dtype != a->dtype) return false;
    return a->dtype == SOL_F32 || a->dtype == SOL_F64;
}

bool attention_grad_find(const struct solver_context *sc, const struct cluster *c, struct attention_grad *g,
                         const char **why)
{
    struct results r = {0};
    struct attention *a = &g->a;
    if (c->loops->stmts.n < 3) FAIL("not the three sums of a gradient");
    *g = (struct attention_grad){.a = {.arena = sc->arena, .sc = sc, .target = sc->target, .was = c->loops}};
    for (int i = 0; i < ATTENTION_SUMS; i++) g->column[i] = -1;
    a->memory = c->memory;
    a->loops = loops_copy(sc->arena, c->loops);
    a->varies = cluster_varies(c);
    a->scored = a->mixed = a->m = a->z = -1;
    for (int i = 0; i < c->loops->ivars.n; i++)
        if (c->loops->ivars.at[i].size == 0) FAIL("loops over nothing");
    if (!find_results(a, &r, why) || !sort_results(a->loops, &r, why) || !sort_ivars(g, &r, why)) return false;
    a->dtype = a->loops->tensors.at[at(a->loops, r.of[ATTENTION_DV]->read)->tensor].dtype;
    if (!find_weights(g, &r, why) || !find_stores(g, &r, why)) return false;
    find_guard(g);
    ex_walk(a->loops, a->score, see_row, g);
    ex_walk(a->loops, g->r, see_row, g);
    if (!right_types(g)) FAIL("the types are not one floating-point type");
    struct memory *memory = NEW_ARRAY(a->arena, struct memory, a->loops->tensors.n);
    memcpy(memory, c->memory, (size_t)c->loops->tensors.n * sizeof *memory);
    a->memory = memory;
    a->lanes = target_lanes(sc->target, dtype_def(a->dtype)->bytes);
    return true;
}
