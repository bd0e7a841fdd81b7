/* Constructors of expressions and loops: what they fold, affine forms, division, copies with changes, names, and that
 * no failing allocation crashes. */
#include "fail_alloc.h"
#include "rows_help.h"

static int32_t times(struct loops *loops, int64_t k, int32_t e)
{
    return ex_binary(loops, EX_MUL, ex_int(loops, k), e);
}

static const char *shown(struct loops *loops, int32_t e)
{
    struct text t = text_new(arena);
    ex_print(loops, e, &t);
    return t.at;
}

static void test_affine(void **state)
{
    struct loops *loops = loops_create(arena, "l");
    int a = loops_ivar(loops, "A", 8), b = loops_ivar(loops, "B", 4);
    int32_t x = ex_ivar(loops, a), y = ex_ivar(loops, b);
    int32_t e =
        ex_binary(loops, EX_SUB, ex_binary(loops, EX_ADD, times(loops, 3, y), times(loops, 2, x)), ex_int(loops, 5));
    struct affine f;
    int64_t lo, hi;
    (void)state;
    assert_true(ex_affine(loops, e, &f));
    assert_int_equal(f.n, 2);
    assert_int_equal(f.ivar[0], a);
    assert_int_equal(f.coef[0], 2);
    assert_int_equal(f.coef[1], 3);
    assert_int_equal(f.c, -5);
    assert_string_equal(shown(loops, e), "2*A + 3*B - 5");
    assert_true(ex_equal(loops, e, ex_from_affine(loops, &f)));
    assert_true(ex_range(loops, e, &lo, &hi));
    assert_true(lo == -5 && hi == 18);
    assert_false(ex_affine(loops, ex_binary(loops, EX_MUL, x, y), &f));
    assert_true(ex_ivars(loops, e) == (1ull << a | 1ull << b));
    assert_string_equal(shown(loops, ex_binary(loops, EX_SUB, e, e)), "0");
    assert_string_equal(shown(loops, ex_neg(loops, x)), "(-A)");
    assert_string_equal(shown(loops, ex_binary(loops, EX_SUB, ex_int(loops, 3), x)), "3 - A");
}

static int64_t value_at(const struct loops *loops, int32_t e, int64_t a, int64_t b)
{
    const struct ex *x = &loops->ex.at[e];
    int64_t p = x->a ? value_at(loops, x->a, a, b) : 0, q = x->b ? value_at(loops, x->b, a, b) : 0, args[2] = {p, q};
    switch (x->kind) {
    case EX_INT: return x->u.i;
    case EX_IVAR: return x->tensor ? b : a;
    case EX_NEG: return -p;
    case EX_ADD: return p + q;
    case EX_SUB: return p - q;
    case EX_MUL: return p * q;
    default: return math_eval_int(math_row(x->kind == EX_FLOOR ? "floordiv" : "remainder"), args);
    }
}

/* Random sums, quotients and remainders have the same value folded and not folded, and it is inside the range. */
static void test_algebra(void **state)
{
    uint32_t seed = 1;
    (void)state;
    for (int round = 0; round < 3000; ++round) {
        struct loops *loops = loops_create(arena, "l");
        int32_t pool[24], plain[24];
        int64_t na = 1 + round % 13, nb = 1 + round % 7;
        int n = 2;
        loops_ivar(loops, "A", na);
        loops_ivar(loops, "B", nb);
        pool[0] = plain[0] = ex_ivar(loops, 0);
        pool[1] = plain[1] = ex_ivar(loops, 1);
        for (; n < 9; ++n) {
            seed = seed * 1664525u + 1013904223u;
            int kind = EX_ADD + (int)(seed >> 20) % 5, i = (int)(seed >> 8) % n, j = (int)(seed >> 13) % n;
            int32_t p = pool[i], q = pool[j], u = plain[i], v = plain[j];
            if (kind == EX_DIV) kind = EX_MOD;
            if (kind != EX_ADD && kind != EX_SUB) q = v = ex_int(loops, 1 + (int64_t)(seed >> 24) % 12);
            pool[n] = ex_binary(loops, (enum ex_kind)kind, p, q);
            plain[n] = ex_put(loops, (struct ex){.kind = (uint8_t)kind, .a = u, .b = v});
        }
        for (int64_t a = 0; a < na; ++a)
            for (int64_t b = 0; b < nb; ++b)
                for (int k = 2; k < n; ++k) {
                    int64_t lo, hi, v = value_at(loops, plain[k], a, b);
                    if (value_at(loops, pool[k], a, b) != v)
                        fail_msg("%s is not %s", shown(loops, pool[k]), shown(loops, plain[k]));
                    if (ex_range(loops, pool[k], &lo, &hi)) assert_true(lo <= v && v <= hi);
                }
    }
}

static void test_division(void **state)
{
    struct loops *loops = loops_create(arena, "l");
    int32_t a = ex_ivar(loops, loops_ivar(loops, "A", 8)), b = ex_ivar(loops, loops_ivar(loops, "B", 4));
    int32_t e = ex_binary(loops, EX_ADD, times(loops, 4, a), b);
    (void)state;
    assert_string_equal(shown(loops, ex_binary(loops, EX_FLOOR, e, ex_int(loops, 4))), "A");
    assert_string_equal(shown(loops, ex_binary(loops, EX_MOD, e, ex_int(loops, 4))), "B");
    assert_string_equal(shown(loops, ex_binary(loops, EX_FLOOR, e, ex_int(loops, 8))), "A//2");
    assert_string_equal(shown(loops, ex_binary(loops, EX_MOD, e, ex_int(loops, 8))), "B + 4*(A%2)");
    assert_string_equal(shown(loops, ex_binary(loops, EX_MOD, e, ex_int(loops, 0))), "(4*A + B)%0");
    assert_string_equal(
        shown(loops, ex_binary(loops, EX_FLOOR, ex_binary(loops, EX_SUB, e, ex_int(loops, 3)), ex_int(loops, 4))),
        "A + (B + 1)//4 - 1");
}

static void test_copy(void **state)
{
    const struct loops *from =
        bind("x[A K] w[K] -> y[A] | y[A] = sum[K | K<=A] x[A K] * w[K] + exp(x[A 0])", "", "f:4x3 f:3");
    struct loops *to = loops_create(arena, "to");
    int64_t shape[] = {8, 3};
    int b = loops_ivar(to, "B", 2), k = loops_ivar(to, "K", 3);
    int tensors[] = {loops_tensor(to, "u", LOOPS_INPUT, SOL_F64, 2, shape),
                     loops_tensor(to, "v", LOOPS_INPUT, SOL_F64, 1, shape + 1)};
    int32_t map[2] = {ex_binary(to, EX_ADD, times(to, 2, ex_ivar(to, b)), ex_int(to, 1)), ex_ivar(to, k)};
    (void)state;
    int32_t e = ex_copy(to, from, from->stmts.at[0].value, map, tensors);
    assert_string_equal(shown(to, e), "(sum[K | K<=2*B+1] u[2*B+1 K]*v[K]) + exp(u[2*B+1 0])");
    struct loops *again = loops_copy(arena, to);
    assert_true(ex_equal(again, e, ex_copy(again, again, e, (int32_t[]){ex_ivar(again, b), ex_ivar(again, k)}, NULL)));
    map[0] = ex_int(to, 2); /* folds: the guard always holds */
    assert_string_equal(shown(to, ex_copy(to, from, from->stmts.at[0].value, map, tensors)),
                        "(sum[K] u[2 K]*v[K]) + exp(u[2 0])");
}

/* maxat and minat keep their positions if index variables change their order. */
static void test_copy_position(void **state)
{
    const struct loops *from =
        bind("x[A B] -> y[] i:i64[] | t[B A] = x[A B]; (y,i)[] = maxat[A B] t[B A]", "", "f:2x3");
    struct loops *to = loops_create(arena, "to");
    int map_tensor[8], at[2];
    int32_t map[8], *ivars = map;
    double x[6] = {0, 0, 0, 0, 7, 0}, y;
    int64_t i = -1;
    void *data[8] = {x};
    (void)state;
    for (int k = 0; k < from->tensors.n; ++k) {
        const struct loops_tensor *t = &from->tensors.at[k];
        map_tensor[k] = loops_tensor(to, t->name, t->role, t->dtype, t->ndim, t->shape);
        if (!strcmp(t->name, "y")) data[k] = &y;
        if (!strcmp(t->name, "i")) data[k] = &i;
    }
    assert_int_equal(from->ivars.n, 2);
    at[1] = loops_ivar(to, from->ivars.at[1].name, from->ivars.at[1].size);
    at[0] = loops_ivar(to, from->ivars.at[0].name, from->ivars.at[0].size);
    for (int k = 0; k < 2; ++k) ivars[k] = ex_ivar(to, at[k]);
    for (int k = 0; k < from->stmts.n; ++k) {
        struct loops_stmt s = from->stmts.at[k];
        int32_t index[2];
        int n = 0;
        for (int32_t e = s.index; e; e = from->ex.at[e].next) index[n++] = ex_copy(to, from, e, map, map_tensor);
        s.index = ex_list(to, n, index);
        s.value = ex_copy(to, from, s.value, map, map_tensor);
        loops_stmt(to, s);
    }
    assert_int_equal(loops_interpret(ctx, from, data), SOL_OK);
    assert_true(y == 7 && i == 4);
    i = -1;
    assert_int_equal(loops_interpret(ctx, to, data), SOL_OK);
    assert_true(y == 7 && i == 4);
}

/* ex_replace replaces every occurrence and folds. Loops that share nodes do not change. */
static void test_replace(void **state)
{
    const struct loops *from =
        bind("x[A K] -> y[A] | y[A] = (sum[K] x[A K]) + exp(x[A 0])*2 - (sum[K] x[A K])", "", "f:4x3");
    struct loops *to = loops_copy(arena, from);
    const int32_t value = from->stmts.at[0].value, sum = from->ex.at[from->ex.at[value].a].a, nodes = from->ex.n;
    struct loops_stmt s = from->stmts.at[0];
    (void)state;
    assert_int_equal(ex_replace(to, value, ex_int(to, 99), sum), value); /* it does not occur */
    s.value = ex_replace(to, value, sum, ex_int(to, 7));
    loops_set_stmt(to, 0, s);
    loops_set_role(to, 0, LOOPS_TEMP);
    assert_string_equal(body(to), "y[A] = 7 + exp(x[A 0])*2 - 7");
    assert_string_equal(body(from), "y[A] = (sum[K] x[A K]) + exp(x[A 0])*2 - (sum[K] x[A K])");
    assert_int_equal(from->ex.n, nodes);
    assert_int_equal(from->tensors.at[0].role, LOOPS_INPUT);
}

/* A compact copy says the same, outlives the original, and has no nodes that nothing needs. */
static void test_compact(void **state)
{
    static const char *const rows[][2] = {
        {"x[A K] w[K] -> y[A] | y[A] = sum[K | K<=A] x[A K] * w[K] + exp(x[A 0])", "f:4x3 f:3"},
        {"x[Q] -> y[P] | #P=4 | t[P] = P*5//4 | y[P] = x[t[P]]", "f:5"},
        {"x[A B] -> y[A B] | | t[A] = A*A | (m,z)[A] = softsum[B] x[A B]; y[A B] = exp(x[A B]-m[A])/z[A]*t[A]",
         "f:3x4"}};
    (void)state;
    for (int i = 0; i < COUNT_OF(rows); ++i) {
        struct arena *a = arena_create(ctx);
        const struct loops *made = bind(rows[i][0], "", rows[i][1]);
        struct loops *from = loops_copy(a, made);
        const int nodes = from->ex.n;
        for (int k = 0; k < 1000; ++k) ex_real(from, k);
        const struct loops *compact = loops_compact(arena, from);
        arena_destroy(a);
        struct text before = text_new(arena), after = text_new(arena), why = text_new(arena);
        loops_print(made, &before);
        loops_print(compact, &after);
        assert_string_equal(before.at, after.at);
        assert_true(compact->ex.n <= nodes);
        if (!loops_verify(compact, &why)) fail_msg("%s", why.at);
    }
}

/* Each allocation fails in turn: the result is NOMEM or right; it never crashes. */
static void test_no_memory(void **state)
{
    struct fail_alloc f = {.fail_at = -1};
    struct sol_ctx_options o = {.size = sizeof o, .reallocate = fail_alloc, .user = &f};
    int64_t shape[] = {4, 6};
    struct opdef_input in = {.dtype = SOL_F64, .ndim = 2, .shape = shape};
    struct attrs none = {0};
    double x[24] = {0}, y[24];
    void *data[] = {x, y};
    (void)state;
    for (long n = 1, i = -1; i < n; ++i) {
        struct sol_ctx *mine;
        f = (struct fail_alloc){.fail_at = i};
        if (sol_ctx_create(&o, &mine)) continue;
        struct arena *a = arena_create(mine);
        struct opdef *opdef;
        const struct loops *loops;
        sol_status status = a ? SOL_OK : SOL_ERR_NOMEM;
        if (!status)
            status = opdef_parse(
                a, "Row",
                "x[A B] -> y[A B] | | t[A] = A*A | (m,z)[A] = softsum[B] x[A B]; y[A B] = exp(x[A B]-m[A])/z[A]*t[A]",
                &opdef);
        if (!status) status = opdef_bind(a, opdef, 1, &in, &none, &loops);
        if (!status) status = loops_interpret(mine, loops, data);
        assert_true(status == SOL_OK || (i >= 0 && status == SOL_ERR_NOMEM));
        arena_destroy(a);
        sol_ctx_destroy(mine);
        if (i < 0) n = f.n;
        assert_int_equal(f.alive, 0);
    }
}

static void test_names(void **state)
{
    struct loops *loops = loops_create(arena, "l");
    (void)state;
    int a = loops_ivar(loops, "P", 2), b = loops_ivar(loops, "P", 3);
    assert_string_not_equal(loops->ivars.at[a].name, loops->ivars.at[b].name);
    a = loops_tensor(loops, "layer1.0/x", LOOPS_INPUT, SOL_F32, 0, NULL);
    b = loops_tensor(loops, "layer1.0/x", LOOPS_INPUT, SOL_F32, 0, NULL);
    assert_string_not_equal(loops->tensors.at[a].name, loops->tensors.at[b].name);
    assert_null(strpbrk(loops->tensors.at[b].name, "./"));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
    const struct CMUnitTest tests[] = {TEST(test_affine),  TEST(test_algebra),       TEST(test_division),
                                       TEST(test_copy),    TEST(test_copy_position), TEST(test_replace),
                                       TEST(test_compact), TEST(test_no_memory),     TEST(test_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
