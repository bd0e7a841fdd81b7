/* Places that integer functions other than affine ones give (the taps of a resize, the windows of an adaptive pool),
 * where each element is read by a short range of the results.
 *
 * f(P, K..) == Q holds for P in first(Q) .. first(Q)+m-1 only: P = first(Q) + U, where first is (a*Q+b)//c kept inside,
 * a table; what depends on P and the index variables K alone are weights w[Q U], 0 where nothing is read. Several
 * dimensions are done one after the other where that costs less. Where f is g(P) + K and data says which K counts (a
 * maximum's place), K stays: it is Q - g(P). */
#include <string.h>

#include "grad/grad.h"

enum { MOST = 1 << 22, MOST_PINS = 3 };

struct window {
    int d, P;       /* the dimension; the index variable that becomes first + U */
    int K;          /* the index variable that becomes Q - g(P); -1: none, index variables but P go into the weights */
    uint64_t ivars; /* of f */
    int64_t n, size, m; /* of P, of the dimension, of U */
    int64_t a, b, c;    /* first(Q) = (a*Q + b) // c, which c > 1 keeps within 0 .. n-m */
    int64_t *begin, *end;
    double *sum; /* [size][n]: the weight of P for Q */
    bool plain;  /* all weights are 1, and all of U is read */
};

/* -- which pins: f is made of tables, min, max, or quotients and remainders of more than an index variable */

static bool is_odd_node(const struct loops *loops, int32_t node)
{
    const struct ex *e = &loops->ex.at[node];
    struct affine f;
    if (e->kind == EX_READ || e->kind == EX_CALL) return true;
    if ((e->kind != EX_FLOOR && e->kind != EX_MOD) || !ex_affine(loops, e->a, &f)) return false;
    bool odd = f.c != 0;
    for (int i = 0; i < f.n; i++) odd |= f.coef[i] != 1;
    return odd;
}

bool term_is_odd(const struct adjoint *a, const struct term *t, int d)
{
    const struct pin *p = &t->pin[d];
    const uint64_t own = p->f ? ex_ivars(a->w, p->f) : 0;
    if (!own || p->q || t->index[d] || own & ~t->ctx || ex_reads_data(a->w, p->f)) return false;
    for (int i = 0; i < t->npin; i++) /* no index variable is in two of them */
        if (i != d && t->pin[i].f && ex_ivars(a->w, t->pin[i].f) & own) return false;
    return ex_any(a->w, p->f, is_odd_node);
}

/* -- windows: what is known when the graph is compiled */

static bool is_fixed(const struct adjoint *a, int32_t node, uint64_t ivars)
{
    const uint64_t own = ex_ivars(a->w, node);
    return own && !(own & ~ivars) && !ex_reads_data(a->w, node);
}

/* What is added to index variable K in f, which has it nowhere else; 0: f is not such a sum. */
static int32_t beside(struct loops *w, int32_t f, int K)
{
    const struct ex *e = &w->ex.at[f];
    if (e->kind == EX_IVAR && e->tensor == K) return ex_int(w, 0);
    if (e->kind != EX_ADD) return 0;
    const int32_t a = e->a, b = e->b;
    const bool left = ex_ivars(w, a) >> K & 1;
    const int32_t other = left ? b : a, rest = ex_ivars(w, other) >> K & 1 ? 0 : beside(w, left ? a : b, K);
    return rest ? ex_binary(w, EX_ADD, rest, other) : 0;
}

/* The index variable that the rest of the term has, the others being of what is fixed; or two, of which one is K. */
static bool find_rest(const struct adjoint *a, const struct term *t, const struct product *p, struct window *v)
{
    struct loops *w = a->w;
    uint64_t rest = 0;
    v->K = -1;
    for (int i = 0; i < p->n; i++)
        if (!is_fixed(a, p->factor[i], v->ivars)) rest |= ex_ivars(w, p->factor[i]);
    for (int i = 0; i < t->nguard; i++)
        if (!is_fixed(a, t->guard[i], v->ivars)) rest |= ex_ivars(w, t->guard[i]);
    for (int i = 0; i < t->nbound; i++) rest |= ex_ivars(w, t->bound[i].e);
    rest &= v->ivars;
    for (int i = 0; i < w->ivars.n && rest == v->ivars && __builtin_popcountll(rest) == 2; i++)
        if (rest >> i & 1 && beside(w, t->pin[v->d].f, i)) v->K = i, rest &= ~bit(i);
    if (!rest || rest & (rest - 1)) return false;
    v->P = __builtin_ctzll(rest);
    v->n = w->ivars.at[v->P].size;
    return true;
}

/* Fills v->sum, begin and end from the values of f, the guards and the weights at all points of the index variables. */
static bool gather(struct adjoint *a, const struct term *t, const struct product *p, struct window *v)
{
    struct loops *w = a->w;
    int n = 0, ivar[SOL_MAX_DIMS];
    int64_t all = 1;
    int32_t holds[COUNT_OF(t->guard)], by = ex_real(w, 1);
    int nholds = 0;
    ivar[n++] = v->P; /* outermost */
    for (int i = 0; i < w->ivars.n; i++) {
        if (!(v->ivars >> i & 1)) continue;
        if (i != v->P && n == SOL_MAX_DIMS) return false;
        if (i != v->P) ivar[n++] = i;
        all *= MIN(w->ivars.at[i].size, (int64_t)MOST);
        if (all > MOST || v->n * v->size > MOST) return false;
    }
    for (int i = 0; i < t->nguard; i++)
        if (is_fixed(a, t->guard[i], v->ivars)) holds[nholds++] = t->guard[i];
    for (int i = 0; i < p->n; i++)
        if (is_fixed(a, p->factor[i], v->ivars)) by = ex_binary(w, p->under[i] ? EX_DIV : EX_MUL, by, p->factor[i]);
    int64_t *f = NEW_ARRAY(w->arena, int64_t, all + 1), *guard = NEW_ARRAY(w->arena, int64_t, all + 1);
    double *weight = NEW_ARRAY(w->arena, double, all + 1);
    if (grad_tabulate(a, t->pin[v->d].f, n, ivar, f)) return false;
    int32_t test = nholds ? ex_test(w, ex_logic(w, EX_AND, nholds, holds)) : ex_int(w, 1);
    if (grad_tabulate(a, test, n, ivar, guard)) return false;
    if (grad_tabulate(a, ex_binary(w, EX_MUL, ex_real(w, 1), by), n, ivar, weight)) return false;
    v->sum = NEW_ARRAY(w->arena, double, v->n * v->size + 1);
    v->begin = NEW_ARRAY(w->arena, int64_t, v->size + 1);
    v->end = NEW_ARRAY(w->arena, int64_t, v->size + 1);
    bool *read = NEW_ARRAY(w->arena, bool, v->n * v->size + 1);
    int64_t pairs = 0;
    const int64_t inner = all / MAX(v->n, 1);
    for (int64_t i = 0; i < all; i++) {
        if (!guard[i] || f[i] < 0 || f[i] >= v->size) continue;
        const int64_t P = i / MAX(inner, 1), at = f[i] * v->n + P;
        if (!v->end[f[i]]) v->begin[f[i]] = P;
        v->begin[f[i]] = MIN(v->begin[f[i]], P);
        v->end[f[i]] = MAX(v->end[f[i]], P + 1);
        pairs += !read[at];
        read[at] = true;
        v->sum[at] += weight[i];
    }
    v->plain = true;
    for (int64_t i = 0; i < v->n * v->size; i++) v->plain &= !read[i] || v->sum[i] == 1;
    return pairs > 0;
}

static int64_t first_of(const struct window *v, int64_t q)
{
    const int64_t first = floor_div(v->a * q + v->b, v->c);
    return v->c == 1 ? first : MAX(MIN(first, v->n - v->m), 0);
}

/* Of lines through the beginnings, the one with the shortest ranges; whole steps need no table. */
static void fit(struct window *v)
{
    int64_t low = 0, high = v->size - 1;
    while (low < high && !v->end[low]) low++;
    while (high > low && !v->end[high]) high--;
    const int64_t line[][2] = {{v->n, v->size},
                               {v->n - 1, v->size - 1},
                               {v->begin[high] - v->begin[low], high - low},
                               {v->end[high] - v->end[low], high - low},
                               {0, 1}};
    struct window best = {0};
    for (int i = 0; i < COUNT_OF(line); i++) {
        struct window try = *v;
        int64_t x = line[i][0], y = line[i][1], m = 0;
        if (y < 1) continue;
        while (y) { /* gcd in x */
            const int64_t r = x % y;
            x = y, y = r;
        }
        x = x < 0 ? -x : MAX(x, 1);
        try.a = line[i][0] / x, try.c = line[i][1] / x;
        try.b = INT64_MAX;
        for (int64_t q = 0; q < v->size; q++)
            if (v->end[q]) try.b = MIN(try.b, try.c * v->begin[q] + try.c - 1 - try.a * q);
        for (int64_t q = 0; q < v->size; q++)
            if (v->end[q]) m = MAX(m, v->end[q] - floor_div(try.a * q + try.b, try.c));
        try.m = m;
        if (!best.m || m < best.m || (m == best.m && best.c > 1 && try.c == 1)) best = try;
    }
    *v = best;
    v->m = MIN(v->m, v->n);
}

static bool find_window(struct adjoint *a, const struct term *t, int d, struct window *v)
{
    struct product p = {0};
    int64_t pairs = 0;
    *v = (struct window){.d = d, .size = t->pin[d].size, .ivars = ex_ivars(a->w, t->pin[d].f)};
    grad_factors(a->w, t->value, &p);
    if (!find_rest(a, t, &p, v) || !gather(a, t, &p, v)) return false;
    fit(v);
    if (v->c > 1 && v->m == v->n) v->a = v->b = 0, v->c = 1; /* all of it */
    for (int64_t q = 0; q < v->size; q++) pairs += v->end[q] - v->begin[q];
    for (int64_t q = 0; q < v->size; q++) v->plain &= v->end[q] - v->begin[q] == v->m;
    return v->m * v->size <= 3 * pairs + GRAD_BORDER;
}

/* -- windows: P and the index variables K go, U comes */

/* first(Q) as a table of the row, from its formula. */
static int32_t first_read(struct adjoint *a, const struct window *v, int32_t q)
{
    struct loops *w = a->w;
    const bool table = v->c > 1;
    const int L = table ? loops_ivar(w, "A", v->size) : 0;
    int32_t at = table ? ex_ivar(w, L) : q;
    int32_t e = ex_binary(w, EX_ADD, ex_binary(w, EX_MUL, ex_int(w, v->a), at), ex_int(w, v->b));
    if (!table) return e;
    int32_t low[] = {ex_binary(w, EX_FLOOR, e, ex_int(w, v->c)), ex_int(w, v->n - v->m)};
    int32_t high[] = {ex_call(w, math_row("min"), 2, low), ex_int(w, 0)};
    int64_t *values = NEW_ARRAY(w->arena, int64_t, v->size + 1);
    for (int64_t i = 0; i < v->size; i++) values[i] = first_of(v, i);
    int tensor = loops_table(w, "first", SOL_I64, 1, &v->size, values);
    struct formula f = {.tensor = tensor, .ivar = L, .value = ex_call(w, math_row("max"), 2, high)};
    PUSH(w->arena, a->formulas, f);
    return ex_read(w, tensor, ex_list(w, 1, &q), 0);
}

/* w[Q U] as a constant of the graph. */
static sol_status weights(struct adjoint *a, const struct term *t, const struct window *v, int32_t q, int32_t u,
                          int32_t *out)
{
    struct loops *w = a->w;
    const enum sol_dtype type = (enum sol_dtype)w->tensors.at[t->tensor].dtype;
    const int64_t shape[] = {v->size, v->m};
    double *values = NEW_ARRAY(w->arena, double, v->size * v->m + 1);
    struct sol_tensor *made;
    for (int64_t i = 0; i < v->size * v->m; i++) {
        const int64_t row = i / v->m, P = first_of(v, row) + i % v->m;
        const double x = P >= 0 && P < v->n ? v->sum[row * v->n + P] : 0;
        values[i] = x;
    }
    if (type == SOL_F32)
        for (int64_t i = 0; i < v->size * v->m; i++) ((float *)values)[i] = (float)values[i];
    TRY(sol_graph_const(a->g, type, 2, shape, values, &made));
    int tensor = loops_tensor(w, "w", LOOPS_INPUT, type, 2, shape);
    loops_set_user(w, tensor, made);
    const int32_t index[] = {q, u};
    *out = ex_read(w, tensor, ex_list(w, 2, index), 0);
    return SOL_OK;
}

/* What is fixed goes from the term: the weights have it. */
static void leave_fixed(struct adjoint *a, struct term *t, const struct window *v)
{
    struct loops *w = a->w;
    struct product p = {0};
    int32_t rest = 0;
    int kept = 0;
    grad_factors(w, t->value, &p);
    for (int i = 0; i < p.n; i++)
        if (!is_fixed(a, p.factor[i], v->ivars)) rest = grad_times(w, rest, p.factor[i], p.under[i]);
    t->value = rest ? rest : ex_real(w, 1);
    for (int i = 0; i < t->nguard; i++)
        if (!is_fixed(a, t->guard[i], v->ivars)) t->guard[kept++] = t->guard[i];
    t->nguard = kept;
}

static sol_status use_window(struct adjoint *a, struct term *t, const struct window *v)
{
    struct loops *w = a->w;
    int32_t q = term_pinned(a, t, v->d), u = ex_int(w, 0);
    uint64_t sum = 0;
    if (v->K < 0) {
        leave_fixed(a, t, v);
    } else {
        const int32_t k = ex_binary(w, EX_SUB, q, beside(w, t->pin[v->d].f, v->K));
        term_replace(a, t, v->K, k);
        term_bound(a, t, k, w->ivars.at[v->K].size);
    }
    t->pin[v->d].f = 0;
    if (v->m > 1) {
        if (w->ivars.n + 2 >= LOOPS_MAX_IVARS) return grad_reject(a, "it has more loops than a row can name");
        int U = loops_ivar(w, "U", v->m);
        u = ex_ivar(w, U);
        sum = bit(U);
    }
    int32_t at = ex_binary(w, EX_ADD, first_read(a, v, q), u);
    term_replace(a, t, v->P, at);
    t->ctx = (t->ctx & ~v->ivars) | sum;
    if (v->c == 1) term_bound(a, t, at, v->n);
    if (v->plain || v->K >= 0) return SOL_OK;
    int32_t by;
    TRY(weights(a, t, v, q, u, &by));
    t->value = ex_binary(w, EX_MUL, t->value, by);
    return SOL_OK;
}

/* -- one dimension after the other */

/* The order in which k windows are best done, each a sum by itself, against all at once. Sums along the last dimension
 * go lane by lane. False: at once. */
static bool find_order(const struct adjoint *a, const struct term *t, const struct window *v, int k, int *order)
{
    enum { ACROSS = 4, MEMORY = 3 };
    static const int orders[6][3] = {{0, 1, 2}, {1, 0, 2}, {0, 2, 1}, {2, 0, 1}, {1, 2, 0}, {2, 1, 0}};
    const struct loops_tensor *to = &a->w->tensors.at[t->tensor];
    double best = 0, points = 1;
    for (int d = 0; d < to->ndim; d++) points *= (double)size_hint(to->shape[d]);
    double once = points;
    for (int i = 0; i < k; i++) once *= (double)v[i].m * (v[i].d == to->ndim - 1 ? ACROSS : 1);
    bool staged = false;
    for (int o = 0; o < (k == 3 ? 6 : 2); o++) {
        double cost = 0, now = points;
        for (int i = 0; i < k; i++) now *= (double)v[i].n / (double)v[i].size;
        for (int i = 0; i < k; i++) {
            const struct window *x = &v[orders[o][i]];
            now *= (double)x->size / (double)x->n;
            cost += now * (double)x->m * (x->d == to->ndim - 1 ? ACROSS : 1) + (i + 1 < k ? MEMORY * now : 0);
        }
        if (cost >= (staged ? best : once)) continue;
        best = cost;
        staged = true;
        for (int i = 0; i < k; i++) order[i] = orders[o][i];
    }
    return staged;
}

/* The sum over window v as a tensor of its own, in which the other windows' dimensions run along their P; the term then
 * reads it. */
static sol_status stage(struct adjoint *a, struct term *t, const struct window *v, const struct window *other, int k)
{
    struct loops *w = a->w;
    const struct sol_tensor *user = w->tensors.at[t->tensor].user;
    struct term part = *t, piece;
    struct product p = {0};
    struct sol_tensor *made;
    int32_t index[SOL_MAX_DIMS], fixed = 0;
    uint64_t later = 0;
    int n, kept = 0, guards = 0, ndim = w->tensors.at[t->tensor].ndim;
    int64_t shape[SOL_MAX_DIMS];
    memcpy(shape, w->tensors.at[t->tensor].shape, sizeof shape);
    for (int i = 0; i < k; i++) {
        part.pin[other[i].d] = (struct pin){.f = ex_ivar(w, other[i].P), .size = other[i].n};
        part.rest[other[i].d] = shape[other[i].d] = other[i].n;
        later |= other[i].ivars;
    }
    part.tensor = loops_tensor(w, "part", LOOPS_INPUT, (enum sol_dtype)w->tensors.at[t->tensor].dtype, ndim, shape);
    grad_factors(w, t->value, &p);
    part.value = 0;
    for (int i = 0; i < p.n; i++) { /* what the later windows' weights hold */
        int32_t *to = &part.value;
        for (int j = 0; j < k; j++)
            if (is_fixed(a, p.factor[i], other[j].ivars)) to = &fixed;
        *to = grad_times(w, *to, p.factor[i], p.under[i]);
    }
    for (int i = 0; i < t->nguard; i++) {
        bool is_later = false;
        for (int j = 0; j < k; j++) is_later |= is_fixed(a, t->guard[i], other[j].ivars);
        if (is_later)
            t->guard[guards++] = t->guard[i];
        else
            part.guard[kept++] = t->guard[i];
    }
    part.nguard = kept;
    t->nguard = guards;
    t->nbound = 0;
    for (int i = 0; i < k; i++) part.ctx = (part.ctx & ~other[i].ivars) | bit(other[i].P);
    TRY(use_window(a, &part, v));
    int ivars = w->ivars.n;
    TRY(solve_term(a, &part, &piece, 1, &n));
    TRY(write_terms(a, &piece, n, &made));
    loops_drop_ivars(w, ivars);
    for (int d = 0; user && d < ndim; d++) made->dim[d].purpose = user->dim[d].purpose;
    loops_set_user(w, part.tensor, made);
    /* the term reads that: index variables of the other dimensions' own, or of its index */
    uint64_t used = 0;
    t->pin[v->d].f = 0;
    t->index[v->d] = part.index[v->d];
    for (int d = 0; d < ndim; d++) {
        index[d] = d == v->d ? part.index[d] : part.pin[d].f ? part.pin[d].f : part.index[d];
        used |= ex_ivars(w, index[d]);
    }
    t->value = ex_read(w, part.tensor, ex_list(w, ndim, index), 0);
    if (fixed) t->value = ex_binary(w, EX_MUL, t->value, fixed);
    t->ctx &= used | later;
    return SOL_OK;
}

/* Is every other dimension decided by an index variable of its own? Then what a stage writes has the shape of the
 * gradient. */
static bool others_plain(const struct adjoint *a, const struct term *t, const struct window *v, int k)
{
    uint64_t seen = 0;
    for (int d = 0; d < t->npin; d++) {
        const struct ex *e = &a->w->ex.at[t->pin[d].f];
        bool window = false;
        for (int i = 0; i < k; i++) window |= v[i].d == d;
        if (window || (e->kind == EX_INT && t->pin[d].size == 1)) continue;
        if (e->kind != EX_IVAR || seen >> e->tensor & 1 || !(t->ctx >> e->tensor & 1)) return false;
        if (a->w->ivars.at[e->tensor].size != t->pin[d].size) return false;
        seen |= bit(e->tensor);
    }
    return true;
}

sol_status window_term(struct adjoint *a, struct term *t)
{
    struct window v[MOST_PINS], later[MOST_PINS];
    int k = 0, order[MOST_PINS];
    bool sums = true;
    for (int d = 0; d < t->npin && k < MOST_PINS; d++)
        if (term_is_odd(a, t, d) && !term_varies(a, t, d) && find_window(a, t, d, &v[k])) sums &= v[k++].K < 0;
    if (k > 1 && sums && others_plain(a, t, v, k) && find_order(a, t, v, k, order))
        for (; k > 1; k--) {
            struct window now = v[order[0]];
            for (int i = 1; i < k; i++) later[i - 1] = v[order[i]];
            TRY(stage(a, t, &now, later, k - 1));
            for (int i = 0; i + 1 < k; i++) v[i] = later[i], order[i] = i;
        }
    for (int i = 0; i < k; i++) TRY(use_window(a, t, &v[i]));
    return ctx_check(a->g->ctx);
}
