/* The rows of math.def and reduce.def, and how the interpreter computes, rounds and converts. */
#include "rows_help.h"

/* -- functions */

static double eval(const char *name, double x, double y, double z)
{
    double args[] = {x, y, z};
    assert_true(math_row(name) >= 0);
    return math_eval(math_row(name), args);
}

static int64_t eval_int(const char *name, int64_t x, int64_t y)
{
    int64_t args[] = {x, y, 0};
    return math_eval_int(math_row(name), args);
}

/* The value of an expression without index variables. */
static double computed(struct loops *loops, int32_t e)
{
    double out = NAN;
    int64_t scalar = 0;
    void *data[8] = {0};
    struct loops_stmt s = {.nout = 1, .value = e};
    s.out[0] = (uint16_t)loops_tensor(loops, "y", LOOPS_OUTPUT, SOL_F64, 0, &scalar);
    data[s.out[0]] = &out;
    loops_stmt(loops, s);
    assert_int_equal(loops_interpret(ctx, loops, data), SOL_OK);
    return out;
}

/* A composite expanded to primitives and interpreted equals what C computes from the same text. */
static void test_composites(void **state)
{
    static const double xs[] = {-20, -3.5, -1, -0.25, 0, 0.125, 0.5, 1, 2.75, 6, 30, INFINITY, -INFINITY, NAN};
    (void)state;
    for (int row = 0; row < math_rows(); ++row) {
        const struct math_def *m = math_at(row);
        if (!m->expr) continue;
        for (int i = 0; i < COUNT_OF(xs); ++i) {
            struct loops *loops = loops_create(arena, m->name);
            double args[] = {xs[i], 0.75, 20};
            int32_t list[3];
            for (int k = 0; k < m->arity; ++k) { /* inside a product, so the call does not fold */
                int64_t scalar = 0;
                int t = loops_table(loops, "t", SOL_F64, 0, &scalar, arena_memdup(arena, &args[k], sizeof args[k]));
                list[k] = ex_put(loops, (struct ex){.kind = EX_READ, .tensor = (uint16_t)t});
            }
            int32_t call = ex_call(loops, row, m->arity, list), made = ex_expand(loops, call);
            assert_int_not_equal(made, call);
            double got = computed(loops, made), want = math_eval(row, args);
            if (!(fabs(got - want) <= 1e-12 * (1 + fabs(want))) && !(isnan(got) && isnan(want)) && got != want)
                fail_msg("%s(%g) is %g expanded, %g in C", m->name, xs[i], got, want);
        }
    }
}

static bool is_placeholder(const char *at, int arity)
{
    return (at[1] >= '1' && at[1] <= '0' + arity) || strchr("fSVI", at[1]);
}

/* Columns are well-formed: derivatives parse, one for each argument; templates name only arguments that exist. */
static void test_math_rows(void **state)
{
    (void)state;
    for (int row = 0; row < math_rows(); ++row) {
        const struct math_def *m = math_at(row);
        assert_int_equal(math_row(m->name), row);
        const char *templates[] = {m->c_scalar, m->c_vector, m->c_int};
        assert_true(m->expr ? !m->c_scalar && !m->c_int : m->c_scalar || m->c_int);
        for (int i = 0; i < 3; ++i)
            for (const char *at = templates[i]; at && (at = strchr(at, '%')); ++at)
                if (!is_placeholder(at, m->arity)) fail_msg("%s: template %s", m->name, templates[i]);
        if (!m->derivative) continue;
        char *copy = arena_strdup(arena, m->derivative), *rest = NULL;
        int n = 0;
        for (char *d = strtok_r(copy, ";", &rest); d; d = strtok_r(NULL, ";", &rest), ++n) {
            struct opdef *parsed;
            const char *text = arena_printf(arena, "a[A] -> b[A] | b[A] = a[A] * (%s)", d);
            if (opdef_parse(arena, m->name, text, &parsed)) fail_msg("%s: derivative: %s", m->name, sol_error(ctx));
        }
        assert_int_equal(n, m->arity);
    }
}

/* Compares derivatives with difference quotients, away from kinks. */
static void test_derivatives(void **state)
{
    static const double at[][3] = {{0.6, 0.35, 0.7}, {-0.55, 0.2, 0.4}, {0.3, 0.9, 0.45}};
    static const double wide[][3] = {{2.6, 0.4, 20}, {1.7, 3.25, 20}};
    (void)state;
    for (int row = 0; row < math_rows(); ++row) {
        const struct math_def *m = math_at(row);
        if (!m->derivative || !m->type || !strcmp(m->type, "bool") || !strcmp(m->name, "heaviside") ||
            !strcmp(m->name, "stop"))
            continue;
        for (int p = 0; p < COUNT_OF(at) + COUNT_OF(wide); ++p) {
            const double *x = p < COUNT_OF(at) ? at[p] : wide[p - COUNT_OF(at)];
            char *copy = arena_strdup(arena, m->derivative), *rest = NULL, *d = strtok_r(copy, ";", &rest);
            double r = math_eval(row, x), h = 1e-6;
            for (int k = 0; k < m->arity; ++k, d = strtok_r(NULL, ";", &rest)) {
                double up[3], down[3], got;
                memcpy(up, x, sizeof up);
                memcpy(down, x, sizeof down);
                up[k] += h;
                down[k] -= h;
                double want = (math_eval(row, up) - math_eval(row, down)) / (2 * h);
                if (isnan(r) || isnan(want) || (k && !strcmp(d + strspn(d, " "), "0"))) continue; /* a constant */
                struct opdef_attr given[] = {{"x", ATTR_REAL, -1, NULL, (double[]){x[0]}, NULL},
                                             {"y", ATTR_REAL, -1, NULL, (double[]){x[1]}, NULL},
                                             {"z", ATTR_REAL, -1, NULL, (double[]){x[2]}, NULL},
                                             {"r", ATTR_REAL, -1, NULL, &r, NULL}};
                struct attrs attrs = {4, given};
                const struct loops *loops;
                struct opdef *parsed = parse(arena_printf(arena, "-> b:f64[] | b[] = %s", d));
                void *data[1] = {&got};
                if (opdef_bind(arena, parsed, 0, NULL, &attrs, &loops)) fail_msg("%s", sol_error(ctx));
                assert_int_equal(loops_interpret(ctx, loops, data), SOL_OK);
                if (!(fabs(got - want) < 1e-5 * (1 + fabs(want))))
                    fail_msg("%s: derivative %d at %g %g %g is %g, differences give %g", m->name, k, x[0], x[1], x[2],
                             got, want);
            }
        }
    }
}

static void test_functions(void **state)
{
    (void)state;
    assert_true(isnan(eval("max", NAN, 1, 0)) && isnan(eval("max", 1, NAN, 0)) && isnan(eval("min", NAN, 1, 0)));
    assert_true(eval("fmax", NAN, 1, 0) == 1 && eval("fmin", 1, NAN, 0) == 1);
    assert_true(isnan(eval("relu", NAN, 0, 0)) && isnan(eval("clamp", NAN, 0, 1)) && eval("sign", NAN, 0, 0) == 0);
    assert_true(eval("clamp", 5, 3, 1) == 1); /* as min(max(x, 3), 1) */
    assert_true(eval("round", 2.5, 0, 0) == 2 && eval("round", 3.5, 0, 0) == 4);
    assert_true(eval("floordiv", -7, 2, 0) == -4 && eval("remainder", -7, 2, 0) == 1 && eval("fmod", -7, 2, 0) == -1);
    assert_true(isinf(eval("floordiv", 1, 0, 0)) && eval("truncdiv", -7, 2, 0) == -3);
    for (double x = -0.999; x < 1; x += 0.037) assert_true(fabs(erf(eval("erfinv", x, 0, 0)) - x) < 1e-15);
    assert_true(fabs(erfc(eval("erfinv", 1 - 0x1p-50, 0, 0)) * 0x1p50 - 1) < 1e-12 && isinf(eval("erfinv", 1, 0, 0)));
    assert_true(fabs(eval("digamma", 1, 0, 0) + 0.5772156649015329) < 1e-15 && isnan(eval("digamma", -2, 0, 0)));
    assert_true(fabs(eval("zeta", 1, 2, 0) - 1.6449340668482264) < 1e-14 && isinf(eval("zeta", -3, 2, 0)));
    assert_true(fabs(eval("i0", 1, 0, 0) - 1.2660658777520084) < 1e-14);
    assert_true(fabs(eval("i1", -20, 0, 0) / -42454973.385127775 - 1) < 1e-13);
    assert_int_equal(eval_int("floordiv", -7, 2), -4);
    assert_int_equal(eval_int("floordiv", 7, 0), 0);
    assert_int_equal(eval_int("truncdiv", INT64_MIN, -1), INT64_MIN);
    assert_int_equal(eval_int("remainder", -7, 3), 2);
    assert_int_equal(eval_int("fmod", -7, 3), -1);
    assert_int_equal(eval_int("pow", 3, 5), 243);
    assert_int_equal(eval_int("pow", 2, -1), 0);
    assert_int_equal(eval_int("gcd", -12, 18), 6);
    assert_int_equal(eval_int("lcm", 4, -6), 12);
    assert_int_equal(eval_int("shift_left", 1, 64), 0);
    assert_int_equal(eval_int("shift_right", -8, 70), -1);
    assert_int_equal(eval_int("abs", INT64_MIN, 0), INT64_MIN);
    assert_int_equal(eval_int("max", INT64_MAX, INT64_MAX - 1), INT64_MAX);
}

/* -- the interpreter's types */

static void convert(const char *type, double x, void *out)
{
    struct opdef *opdef = parse("x[] -> y:=to[] | y[] = x[]");
    struct opdef_input in = {.dtype = SOL_F64};
    struct opdef_attr to = {.name = "to", .kind = ATTR_TEXT, .text = type};
    struct attrs attrs = {1, &to};
    const struct loops *loops;
    void *data[] = {&x, out};
    assert_int_equal(opdef_bind(arena, opdef, 1, &in, &attrs, &loops), SOL_OK);
    assert_int_equal(loops_interpret(ctx, loops, data), SOL_OK);
}

static void test_conversions(void **state)
{
    int8_t i8;
    uint8_t u8;
    int16_t i16;
    int32_t i32;
    int64_t i64;
    uint64_t u64;
    uint16_t half;
    static const struct {
        double x;
        uint16_t f16, bf16;
    } halves[] = {
        {1, 0x3c00, 0x3f80},        {-2, 0xc000, 0xc000},          {65504, 0x7bff, 0x4780}, {65520, 0x7c00, 0x4780},
        {0x1p-24, 0x0001, 0x3380},  {0x1p-25, 0x0000, 0x3300},     {0.1, 0x2e66, 0x3dcd},   {-0.0, 0x8000, 0x8000},
        {INFINITY, 0x7c00, 0x7f80}, {0x1.ffcp-15, 0x0400, 0x3880}, {1e39, 0x7c00, 0x7f80},  {0x1.01p0, 0x3c04, 0x3f80},
        {0x1.03p0, 0x3c0c, 0x3f82},
    };
    (void)state;
    convert("i32", NAN, &i32), assert_int_equal(i32, INT32_MIN);
    convert("i32", 3e9, &i32), assert_int_equal(i32, INT32_MIN);
    convert("i32", -2.9, &i32), assert_int_equal(i32, -2);
    convert("i64", 1e30, &i64), assert_true(i64 == INT64_MIN);
    convert("i8", 300, &i8), assert_int_equal(i8, 44);
    convert("i16", 70000, &i16), assert_int_equal(i16, 4464);
    convert("u8", NAN, &u8), assert_int_equal(u8, 0);
    convert("u8", -1, &u8), assert_int_equal(u8, 255);
    convert("u64", 0x1.8p63, &u64), assert_true(u64 == 3ull << 62);
    convert("bool", 0.5, &u8), assert_int_equal(u8, 1);
    convert("bool", NAN, &u8), assert_int_equal(u8, 1);
    for (int i = 0; i < COUNT_OF(halves); ++i) {
        convert("f16", halves[i].x, &half);
        if (half != halves[i].f16) fail_msg("%g as f16 is %04x, expected %04x", halves[i].x, half, halves[i].f16);
        convert("bf16", halves[i].x, &half);
        if (half != halves[i].bf16) fail_msg("%g as bf16 is %04x, expected %04x", halves[i].x, half, halves[i].bf16);
    }
}

/* A copy preserves every f16. */
static void test_half(void **state)
{
    static uint16_t x[65536], y[65536];
    int64_t shape[] = {65536};
    struct opdef_input in = {.dtype = SOL_F16, .ndim = 1, .shape = shape};
    struct attrs none = {0};
    const struct loops *loops;
    void *data[] = {x, y};
    (void)state;
    for (int type = SOL_F16; type <= SOL_BF16; ++type) {
        in.dtype = (enum sol_dtype)type;
        for (int i = 0; i < 65536; ++i) x[i] = (uint16_t)i;
        assert_int_equal(opdef_bind(arena, parse("x[A] -> y[A] | y[A] = x[A]*1.0"), 1, &in, &none, &loops), SOL_OK);
        assert_int_equal(loops_interpret(ctx, loops, data), SOL_OK);
        int top = type == SOL_F16 ? 0x7c00 : 0x7f80;
        for (int i = 0; i < 65536; ++i)
            if ((i & 0x7fff) <= top)
                assert_int_equal(y[i], i);
            else
                assert_true((y[i] & 0x7fff) > top);
    }
}

/* u64 is unsigned: tests every function whose result would differ. */
static void test_unsigned(void **state)
{
    static const struct {
        const char *row;
        uint64_t x, z, want;
    } cases[] = {{"floordiv(x[A],z[A])", UINT64_MAX, 3, UINT64_MAX / 3},
                 {"truncdiv(x[A],z[A])", UINT64_MAX, 10, UINT64_MAX / 10},
                 {"floordiv(x[A],z[A])", 5, UINT64_MAX, 0},
                 {"floordiv(x[A],z[A])", 5, 0, 0},
                 {"remainder(x[A],z[A])", UINT64_MAX, 10, 5},
                 {"fmod(x[A],z[A])", UINT64_MAX - 1, UINT64_MAX, UINT64_MAX - 1},
                 {"max(x[A],z[A])", UINT64_MAX, 1, UINT64_MAX},
                 {"min(x[A],z[A])", UINT64_MAX, 1, 1},
                 {"fmax(x[A],z[A])", 1, UINT64_MAX, UINT64_MAX},
                 {"fmin(x[A],z[A])", 1, UINT64_MAX, 1},
                 {"clamp(x[A],z[A],9)", UINT64_MAX, 4, 9},
                 {"shift_right(x[A],z[A])", UINT64_MAX, 63, 1},
                 {"shift_right(x[A],z[A])", UINT64_MAX, 64, 0},
                 {"shift_left(x[A],z[A])", 1, UINT64_MAX, 0},
                 {"pow(x[A],z[A])", 3, UINT64_MAX, UINT64_C(12297829382473034411)},
                 {"gcd(x[A],z[A])", UINT64_MAX, 15, 15},
                 {"lcm(x[A],z[A])", UINT64_MAX, 15, UINT64_MAX},
                 {"abs(x[A])", UINT64_MAX, 0, UINT64_MAX},
                 {"sign(x[A])", UINT64_MAX, 0, 1},
                 {"relu(x[A])", UINT64_MAX, 0, UINT64_MAX},
                 {"threshold(x[A],z[A],7)", UINT64_MAX - 1, 5, UINT64_MAX - 1},
                 {"relu6(x[A])", UINT64_MAX, 0, 6},
                 {"where(x[A],z[A],1)", UINT64_MAX, UINT64_MAX - 2, UINT64_MAX - 2},
                 {"lt(x[A],z[A])", UINT64_MAX, 1, 0},
                 {"le(x[A],z[A])", UINT64_MAX, 1, 0},
                 {"gt(x[A],z[A])", UINT64_MAX, 1, 1},
                 {"ge(x[A],z[A])", UINT64_MAX, 1, 1},
                 {"signbit(x[A])", UINT64_MAX, 0, 0},
                 {"[x[A]>z[A]]", UINT64_MAX, 1, 1},
                 {"max[B] (x[A]+B)", UINT64_MAX - 1, 1, UINT64_MAX},
                 {"min[B] (x[A]+B)", UINT64_MAX - 1, 1, UINT64_MAX - 1}};
    struct attrs attrs = {0};
    int64_t shape[] = {1};
    struct opdef_input in[] = {{.dtype = SOL_U64, .ndim = 1, .shape = shape},
                               {.dtype = SOL_U64, .ndim = 1, .shape = shape}};
    (void)state;
    for (int i = 0; i < COUNT_OF(cases); ++i) {
        uint64_t x = cases[i].x, z = cases[i].z, y = 77;
        void *data[] = {&x, &z, &y};
        const struct loops *loops;
        struct opdef *row = parse(arena_printf(arena, "x[A] z[A] -> y[A] | #B=2 | | y[A] = %s", cases[i].row));
        if (opdef_bind(arena, row, 2, in, &attrs, &loops)) fail_msg("%s: %s", cases[i].row, sol_error(ctx));
        assert_int_equal(loops_interpret(ctx, loops, data), SOL_OK);
        if (y != cases[i].want)
            fail_msg("%s of %llu, %llu is %llu, expected %llu", cases[i].row, (unsigned long long)x,
                     (unsigned long long)z, (unsigned long long)y, (unsigned long long)cases[i].want);
    }
}

/* pow by some constants is folded into products and roots: all special values are those of C's pow. */
static void test_powers(void **state)
{
    static const struct {
        const char *text;
        double number;
        bool folds;
    } by[] = {{"1.0", 1, true},     {"2.0", 2, true},   {"3.0", 3, true},  {"4.0", 4, true},  {"0.5", 0.5, true},
              {"-0.5", -0.5, true}, {"-1.0", -1, true}, {"5.0", 5, false}, {"0.0", 0, false}, {"0.25", 0.25, false}};
    static const double xs[] = {0.0, -0.0, 1, -1, 2.5, -2.5, 0x1p-700, -0x1p700, INFINITY, -INFINITY, NAN};
    enum { N = COUNT_OF(xs) };
    (void)state;
    for (int k = 0; k < COUNT_OF(by); ++k) {
        double y[N];
        int64_t shape[] = {N};
        struct opdef_input in = {.dtype = SOL_F64, .ndim = 1, .shape = shape};
        struct attrs none = {0};
        const struct loops *loops;
        void *data[] = {(void *)(uintptr_t)xs, y};
        const char *row = arena_printf(arena, "x[A] -> y[A] | y[A] = pow(x[A],%s)", by[k].text);
        assert_int_equal(opdef_bind(arena, parse(row), 1, &in, &none, &loops), SOL_OK);
        const struct ex *e = &loops->ex.at[loops->stmts.at[0].value];
        assert_int_equal(by[k].folds, !(e->kind == EX_CALL && e->op == math_row("pow")));
        assert_int_equal(loops_interpret(ctx, loops, data), SOL_OK);
        for (int i = 0; i < N; ++i) {
            const double want = pow(xs[i], by[k].number);
            if (isnan(want) ? isnan(y[i]) : fabs(y[i] - want) <= 4e-16 * fabs(want) || y[i] == want)
                if (isnan(want) || signbit(y[i]) == signbit(want)) continue;
            fail_msg("pow(%g, %s) is %g, expected %g", xs[i], by[k].text, y[i], want);
        }
    }
}

/* Integers are multiplied, and wrap; one with a negative exponent is no reciprocal. */
static void test_integer_powers(void **state)
{
    (void)state;
    for (int64_t by = -2; by < 6; ++by) {
        int64_t x[] = {-3, 0, 1, 7, INT64_MIN + 1}, y[COUNT_OF(x)], shape[] = {COUNT_OF(x)};
        struct opdef_input in = {.dtype = SOL_I64, .ndim = 1, .shape = shape};
        struct attrs none = {0};
        const struct loops *loops;
        void *data[] = {x, y};
        const char *row = arena_printf(arena, "x[A] -> y[A] | y[A] = pow(x[A],%d)", (int)by);
        assert_int_equal(opdef_bind(arena, parse(row), 1, &in, &none, &loops), SOL_OK);
        assert_int_equal(loops_interpret(ctx, loops, data), SOL_OK);
        for (int i = 0; i < COUNT_OF(x); ++i) assert_int_equal(y[i], eval_int("pow", x[i], by));
    }
}

/* NaN counts as the largest value; positions are those of the first; infinities give NaN only where PyTorch has it. */
static void test_reductions(void **state)
{
    double x[] = {1, 3, 3, NAN, 5, NAN}, y[1], m[1], z[1];
    int64_t i[1];
    void *data[] = {x, y, i};
    (void)state;
    const struct loops *loops = bind("x[A] -> y[] i:i64[] | (y,i)[] = maxat[A | A<n] x[A]", "n=3", "f:6");
    assert_int_equal(loops_interpret(ctx, loops, data), SOL_OK);
    assert_true(y[0] == 3 && i[0] == 1);
    loops = bind("x[A] -> y[] i:i64[] | (y,i)[] = minat[A] x[A]", "", "f:6");
    assert_int_equal(loops_interpret(ctx, loops, data), SOL_OK);
    assert_true(isnan(y[0]) && i[0] == 3);
    loops = bind("x[A] -> y[] i:i64[] | (y,i)[] = maxat[A | A<0*#A-A] x[A]", "", "f:6");
    assert_int_equal(loops_interpret(ctx, loops, data), SOL_OK);
    assert_true(i[0] == 0);
    loops = bind("x[A] -> m[] z[] | (m,z)[] = softsum[A] x[A]", "", "f:3");
    data[1] = m;
    data[2] = z;
    double low[] = {-INFINITY, -INFINITY, 2}, high[] = {1, INFINITY, 2};
    data[0] = low;
    assert_int_equal(loops_interpret(ctx, loops, data), SOL_OK);
    assert_true(m[0] == 2 && z[0] == 1);
    data[0] = high;
    assert_int_equal(loops_interpret(ctx, loops, data), SOL_OK);
    assert_true(isnan(z[0]));
    for (int r = 0; r <= RED_ALL; ++r) assert_int_equal(reduce_row(reduce_at(r)->name), r);
}

/* Integers sum in 64 bits. */
static void test_integer_sum(void **state)
{
    int32_t x[] = {INT32_MAX, INT32_MAX, 2};
    int64_t y[1], shape[] = {3};
    struct opdef_input in = {.dtype = SOL_I32, .ndim = 1, .shape = shape};
    struct attrs none = {0};
    const struct loops *loops;
    void *data[] = {x, y};
    (void)state;
    assert_int_equal(opdef_bind(arena, parse("x[A] -> y:i64[] | y[] = sum[A] x[A]"), 1, &in, &none, &loops), SOL_OK);
    assert_int_equal(loops_interpret(ctx, loops, data), SOL_OK);
    assert_true(y[0] == 1ll << 32);
}

static void test_index_outside(void **state)
{
    int64_t i[] = {0, 7};
    double w[] = {1, 2, 3, 4}, y[4];
    void *data[] = {i, w, y};
    (void)state;
    const struct loops *loops = bind("i:int[A] w[V E] -> y:w[A E] | y[A E] = w[i[A] E]", "", "i2:2 f:2x2");
    assert_int_equal(loops_interpret(ctx, loops, data), SOL_ERR_RUN);
    assert_non_null(strstr(sol_error(ctx), "index 7 is outside dimension 0 of w, which has 2 elements"));
}

static void test_rand(void **state)
{
    double y[3];
    void *data[] = {y};
    (void)state;
    const struct loops *loops = bind("-> y:f64[A] | #A=3 | y[A] = rand(k,A)", "k=42", "");
    assert_int_equal(loops_interpret(ctx, loops, data), SOL_OK);
    for (int i = 0; i < 3; ++i) assert_true(y[i] == math_eval_rand(42, i) && y[i] >= 0 && y[i] < 1);
    assert_true(y[0] != y[1]);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(test_composites),     TEST(test_math_rows),     TEST(test_derivatives), TEST(test_functions),
        TEST(test_conversions),    TEST(test_half),          TEST(test_unsigned),    TEST(test_reductions),
        TEST(test_integer_sum),    TEST(test_index_outside), TEST(test_rand),        TEST(test_powers),
        TEST(test_integer_powers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
