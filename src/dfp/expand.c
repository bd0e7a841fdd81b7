/* Rewrites before planning. moments, softsum, maxat and minat become statements with one simple reduction each, so that
 * lanes and partial results need no rules of their own: two passes over data that is near are faster than one with long
 * chains, and more exact. What both passes and a later statement need (exp(x - m)) is computed once, into a row. */
#include <string.h>

#include "dfp/dfp.h"

struct expand {
    struct loops *l;
    struct memory *memory;
    const struct target *target;
    VECTOR(struct loops_stmt) stmts;
};

static uint64_t bit(int letter)
{
    return UINT64_C(1) << letter;
}

static int32_t letter_list(struct loops *l, uint64_t letters)
{
    int32_t node[LOOPS_MAX_LETTERS];
    int n = 0;
    for (int i = 0; i < l->letters.n; i++)
        if (letters >> i & 1) node[n++] = ex_letter(l, i);
    return n ? ex_list(l, n, node) : 0;
}

/* A temporary with one dimension for each letter. */
static int temp(struct expand *x, const char *name, uint64_t letters, enum sol_dtype dtype)
{
    int64_t shape[SOL_MAX_DIMS];
    int n = 0;
    for (int i = 0; i < x->l->letters.n; i++)
        if (letters >> i & 1) shape[n++] = x->l->letters.at[i].size;
    for (int i = 0; i < x->l->tensors.n; i++) /* unique */
        if (!strcmp(x->l->tensors.at[i].name, name)) name = arena_printf(x->l->arena, "%s%d", name, x->l->tensors.n);
    return loops_tensor(x->l, name, LOOPS_TEMP, dtype, n, shape);
}

static void put(struct expand *x, const struct loops_stmt *like, int out, int32_t index, int32_t value)
{
    struct loops_stmt s = *like;
    s.nout = 1;
    s.out[0] = (uint16_t)out;
    s.index = index;
    s.value = value;
    PUSH(x->l->arena, x->stmts, s);
}

/* -- replacing an expression */

static int32_t replace(struct loops *l, int32_t node, int32_t old, int32_t with);

static int32_t replace_list(struct loops *l, int32_t first, int32_t old, int32_t with, bool *changed)
{
    int32_t node[SOL_MAX_DIMS];
    int n = 0;
    for (int32_t i = first; i && n < SOL_MAX_DIMS; i = l->ex.at[i].next, n++) {
        node[n] = replace(l, i, old, with);
        *changed = *changed || node[n] != i;
    }
    return *changed ? ex_list(l, n, node) : first;
}

/* The expression with every part that equals `old` replaced. */
static int32_t replace(struct loops *l, int32_t node, int32_t old, int32_t with)
{
    if (!node) return 0;
    if (ex_equal(l, node, old)) return with;
    const struct ex e = l->ex.at[node];
    bool changed = false;
    switch (e.kind) {
    case EX_NEG: {
        const int32_t a = replace(l, e.a, old, with);
        return a == e.a ? node : ex_neg(l, a);
    }
    case EX_ADD:
    case EX_SUB:
    case EX_MUL:
    case EX_DIV: {
        const int32_t a = replace(l, e.a, old, with), b = replace(l, e.b, old, with);
        return a == e.a && b == e.b ? node : ex_binary(l, (enum ex_kind)e.kind, a, b);
    }
    case EX_CALL: {
        const int32_t first = replace_list(l, e.a, old, with, &changed);
        int32_t arg[4];
        int n = 0;
        for (int32_t i = first; changed && i && n < 4; i = l->ex.at[i].next) arg[n++] = i;
        return changed ? ex_call(l, e.op, n, arg) : node;
    }
    case EX_RED: {
        const int32_t body = replace(l, e.b, old, with);
        return body == e.b ? node : ex_red(l, e.op, e.u.bound, e.a, body);
    }
    default: return node;
    }
}

/* -- is it worth a temporary, and may it be computed everywhere? */

struct safe {
    const struct loops *l;
    bool ok;
};
static void see_safe(void *user, int32_t node)
{
    struct safe *s = user;
    const struct ex *e = &s->l->ex.at[node];
    if (e->kind == EX_RED) s->ok = false;
    if (e->kind != EX_READ || e->b) return;
    int d = 0;
    for (int32_t i = e->a; i; i = s->l->ex.at[i].next, d++) {
        int64_t low, high;
        if (!ex_range(s->l, i, &low, &high) || low < 0 || high >= s->l->tensors.at[e->tensor].shape[d]) s->ok = false;
    }
}

/* Computes `node`, of which `row` letters vary, before the statement, if that is better than computing it again. */
static int32_t share(struct expand *x, const struct loops_stmt *s, int from, const char *name, int32_t node,
                     uint64_t row, double worth)
{
    struct loops *l = x->l;
    struct safe safe = {l, true};
    ex_walk(l, node, see_safe, &safe);
    const enum sol_dtype dtype = expr_natural(l, node) == C_F64 ? SOL_F64 : SOL_F32;
    const int64_t bytes = letters_points(l, row) * dtype_def(dtype)->bytes;
    if (!safe.ok || expr_ops(l, node) < worth || bytes > x->target->l2 / 4) return node;
    const uint64_t letters = ex_letters(l, node);
    if (__builtin_popcountll(letters) > SOL_MAX_DIMS) return node;
    const int t = temp(x, name, letters, dtype);
    put(x, s, t, letter_list(l, letters), node);
    const int32_t read = ex_read(l, t, letter_list(l, letters), 0);
    for (int i = from; i < l->stmts.n; i++) l->stmts.at[i].value = replace(l, l->stmts.at[i].value, node, read);
    return read;
}

/* -- reductions with two results */

static int32_t count(struct loops *l, const struct ex *e)
{
    if (!e->a) return ex_int(l, letters_points(l, e->u.bound));
    return ex_red(l, RED_SUM, e->u.bound, e->a, ex_int(l, 1));
}

/* A division whose result is a float even where both are integers. */
static int32_t mean(struct loops *l, int32_t sum, int32_t n)
{
    return ex_binary(l, EX_DIV, sum, n);
}

static void moments(struct expand *x, const struct loops_stmt *s, int i, const struct ex *e)
{
    struct loops *l = x->l;
    const int32_t body = share(x, s, i, "r", e->b, e->u.bound, 4);
    put(x, s, s->out[0], s->index, mean(l, ex_red(l, RED_SUM, e->u.bound, e->a, body), count(l, e)));
    const int32_t u = ex_read(l, s->out[0], s->index, 0), off = ex_binary(l, EX_SUB, body, u);
    const int32_t square = ex_call(l, math_row("square"), 1, &off);
    put(x, s, s->out[1], s->index, mean(l, ex_red(l, RED_SUM, e->u.bound, e->a, square), count(l, e)));
}

static void softsum(struct expand *x, const struct loops_stmt *s, int i, const struct ex *e)
{
    struct loops *l = x->l;
    const int32_t body = share(x, s, i, "r", e->b, e->u.bound, 4);
    put(x, s, s->out[0], s->index, ex_red(l, RED_MAX, e->u.bound, e->a, body));
    const int32_t m = ex_read(l, s->out[0], s->index, 0);
    int32_t away = ex_binary(l, EX_SUB, body, m);
    int32_t power = ex_call(l, math_row("exp"), 1, &away);
    if (!e->a) power = share(x, s, i + 1, "e", power, e->u.bound, 4);
    /* of nothing but -inf the sum is 0, not NaN */
    const int32_t none = ex_real(l, -1.0 / 0.0), pick[3] = {ex_test(l, ex_cmp(l, CMP_EQ, m, none)), ex_int(l, 0),
                                                            ex_red(l, RED_SUM, e->u.bound, e->a, power)};
    put(x, s, s->out[1], s->index, ex_call(l, math_row("where"), 3, pick));
}

/* The position is found by comparing with the extreme, so both passes must see the same bits: values from memory. */
static void extreme_at(struct expand *x, const struct loops_stmt *s, int i, const struct ex *e)
{
    struct loops *l = x->l;
    const int32_t body = share(x, s, i, "r", e->b, e->u.bound, 1.5);
    if (l->ex.at[body].kind != EX_READ) {
        PUSH(l->arena, x->stmts, *s);
        return;
    }
    put(x, s, s->out[0], s->index, ex_red(l, e->op == RED_MAXAT ? RED_MAX : RED_MIN, e->u.bound, e->a, body));
    const int32_t best = ex_read(l, s->out[0], s->index, 0);
    const int32_t either[2] = {ex_cmp(l, CMP_EQ, body, best), ex_cmp(l, CMP_NE, body, body)};
    const int32_t found = ex_logic(l, EX_OR, 2, either), both[2] = {e->a, found};
    const int32_t guard = e->a ? ex_logic(l, EX_AND, 2, both) : found;
    int32_t position = ex_int(l, 0);
    for (int k = 0; k < l->letters.n; k++) {
        if (!(e->u.bound >> k & 1)) continue;
        position =
            ex_binary(l, EX_ADD, ex_binary(l, EX_MUL, position, ex_int(l, l->letters.at[k].size)), ex_letter(l, k));
    }
    int32_t first = ex_red(l, RED_MIN, e->u.bound, guard, position);
    if (e->a) { /* nothing seen: position 0 */
        const int32_t pick[3] = {ex_test(l, ex_cmp(l, CMP_EQ, first, ex_int(l, INT64_MAX))), ex_int(l, 0), first};
        first = ex_call(l, math_row("where"), 3, pick);
    }
    put(x, s, s->out[1], s->index, first);
}

/* The value written must be read back as the type it is reduced in. */
static bool exact(const struct loops *l, const struct loops_stmt *s, int32_t body)
{
    const int t = l->tensors.at[s->out[0]].dtype;
    if (ex_is_int(l, body)) return t == SOL_I64;
    return t == SOL_F64 || (t == SOL_F32 && expr_natural(l, body) == C_F32);
}

struct cluster dfp_expand(const struct solver_context *sc, const struct cluster *c)
{
    struct loops *l = loops_copy(sc->arena, c->loops);
    struct expand x = {.l = l, .target = sc->target};
    for (int i = 0; i < l->stmts.n; i++) {
        const struct loops_stmt s = l->stmts.at[i];
        const struct ex e = l->ex.at[s.value];
        const bool plain = s.nout == 2 && e.kind == EX_RED && !s.scan_step && exact(l, &s, e.b);
        if (plain && e.op == RED_MOMENTS)
            moments(&x, &s, i + 1, &e);
        else if (plain && e.op == RED_SOFTSUM)
            softsum(&x, &s, i + 1, &e);
        else if (plain && (e.op == RED_MAXAT || e.op == RED_MINAT))
            extreme_at(&x, &s, i + 1, &e);
        else
            PUSH(l->arena, x.stmts, s);
    }
    l->stmts.at = x.stmts.at;
    l->stmts.n = x.stmts.n;
    l->stmts.room = x.stmts.room;
    struct cluster out = {l, NEW_ARRAY(sc->arena, struct memory, l->tensors.n), 0};
    memcpy(out.memory, c->memory, (size_t)c->loops->tensors.n * sizeof *out.memory);
    return out;
}

/* -- neighbouring letters as one */

struct pair {
    const struct print_plan *pl;
    int outer, inner;
    bool ok;
};

static void check_index(struct pair *w, int tensor, int32_t first, bool tested)
{
    const struct loops *l = w->pl->cluster.loops;
    const uint64_t both = bit(w->outer) | bit(w->inner);
    uint64_t used = 0;
    for (int32_t i = first; i; i = l->ex.at[i].next) used |= ex_letters(l, i);
    if (!(used & both)) return;
    struct affine a;
    int64_t outer = 0, inner = 0;
    if (tested || l->tensors.at[tensor].role == LOOPS_TABLE) w->ok = false;
    if (!expr_affine_offset(l, w->pl->cluster.memory, tensor, first, &a)) w->ok = false;
    for (int i = 0; i < a.n; i++) {
        if (a.letter[i] == w->outer) outer = a.coef[i];
        if (a.letter[i] == w->inner) inner = a.coef[i];
    }
    if (outer != inner * l->letters.at[w->inner].size) w->ok = false;
}

static void see_pair(void *user, int32_t node)
{
    struct pair *w = user;
    const struct ex *e = &w->pl->cluster.loops->ex.at[node];
    const uint64_t both = bit(w->outer) | bit(w->inner);
    if (e->kind == EX_READ) check_index(w, e->tensor, e->a, e->b != 0);
    if (e->kind != EX_RED) return;
    const uint64_t bound = e->u.bound & both;
    if (bound && bound != both) w->ok = false;
}

/* A letter that is used as a value, not as an index of a read. */
static bool used_as_value(const struct loops *l, int32_t node, uint64_t letters)
{
    if (!node) return false;
    const struct ex *e = &l->ex.at[node];
    switch (e->kind) {
    case EX_LETTER: return letters >> e->tensor & 1;
    case EX_READ: return used_as_value(l, e->b, letters);
    case EX_INT:
    case EX_REAL: return false;
    case EX_CALL:
    case EX_AND:
    case EX_OR:
        for (int32_t i = e->a; i; i = l->ex.at[i].next)
            if (used_as_value(l, i, letters)) return true;
        return false;
    default: return used_as_value(l, e->a, letters) || used_as_value(l, e->b, letters);
    }
}

static bool joinable(const struct print_plan *pl, int outer, int inner)
{
    const struct loops *l = pl->cluster.loops;
    struct pair w = {pl, outer, inner, true};
    const uint64_t both = bit(outer) | bit(inner);
    for (int i = 0; i < l->stmts.n && w.ok; i++) {
        const struct loops_stmt *s = &l->stmts.at[i];
        const uint64_t own = stmt_letters(l, s) & both;
        if ((own && own != both) || used_as_value(l, s->value, both)) return false;
        if (s->scan_step && both >> s->scan_letter & 1) return false;
        for (int o = 0; o < s->nout; o++) check_index(&w, s->out[o], s->index, false);
        ex_walk(l, s->value, see_pair, &w);
    }
    for (int i = 0; i < pl->ngroup; i++) { /* shared or not, both alike */
        const uint64_t shared = pl->group[i].shared & both;
        if (shared && shared != both) return false;
    }
    return w.ok;
}

/* The outer letter's loop becomes one of size 1; the inner runs over the points of both. Offsets stay affine. */
void dfp_collapse(struct print_plan *pl)
{
    struct loops *l = pl->cluster.loops;
    for (bool again = true; again;) {
        again = false;
        for (int o = 0; o < l->letters.n; o++)
            for (int i = 0; i < l->letters.n; i++) {
                if (o == i || l->letters.at[o].size <= 1 || l->letters.at[i].size <= 1) continue;
                if (!joinable(pl, o, i)) continue;
                l->letters.at[i].size *= l->letters.at[o].size;
                l->letters.at[o].size = 1;
                again = true;
            }
    }
}
