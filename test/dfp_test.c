/* The solver dfp compared with the interpreter: operator definitions, types, layouts, vector widths, compilers. */

#include "context.h"
#include "dfp/dfp.h"
#include "kernel_cases.h"

/* A batch-norm in a training step, with its consumers: a running mean is between its element-wise step and the ReLU. */
#define NORM                                                                                        \
    "x[N C P..] w[C] r[C] -> y[N C P..] q[C] -> t[N C P..] | | | (u,v)[C] = moments[N P] x[N C P];" \
    "t[N C P] = (x[N C P]-u[C]) / sqrt(v[C]+e) * w[C]; q[C] = r[C]*0.9 + u[C]*0.1; y[N C P] = relu(t[N C P])"

/* Cases that matter for vectors: numbers of channels with a remainder, borders, tiles, halos, long rows. */
static const struct check_case wide_cases[] = {
    {CONV, "1,40,13,15 40,1,3,3 40", "s=1 p=1 d=1 g=40", "x:0231 y:0231", 0, NULL},
    {CONV, "2,35,13,15 35,1,3,3 35", "s=1 p=1 d=1 g=35", "x:0231+h1 y:0231+g3", 0, NULL},
    {CONV, "1,32,17,19 32,1,5,5 -", "s=2 p=2 d=1 g=32", "x:0231 y:0231", 0, NULL},
    {CONV, "1,24,30,9 24,1,7,3 24", "s=1 p=3 d=2 g=24", "x:0231 y:0231", 0, NULL},
    {CONV, "1,18,40 18,1,3 18", "s=1 p=1 d=1 g=18", NULL, 0, NULL},
    {CONV, "1,16,4,5,6 16,1,3,3,3 16", "s=1 p=1 d=1 g=16", "x:02341 y:02341", 0, NULL},
    {CONV, "1,20,7,7 20,1,3,3 20", "s=1 p=1 d=1 g=20", NULL, 0, NULL},
    {POOL "y[N C P] = max[K] x[N C s*P+d*K-p]:-inf", "1,64,15,14", "k=3,3 s=2 p=1 d=1", "x:0231 y:0231", 0, "nan"},
    {POOL "y[N C P] = max[K] x[N C s*P+d*K-p]:-inf", "1,21,15,40", "k=3,3 s=1 p=1 d=1", NULL, 0, "nan"},
    {POOL "y[N C P] = (sum[K] x[N C s*P+d*K-p]:0) / (sum[K | 0<=s*P+d*K-p<#Q] 1)", "1,33,15,14", "k=3,3 s=2 p=1 d=1",
     "x:0231 y:0231", 0, NULL},
    {POOL "y[N C P] = (sum[K] x[N C s*P+d*K-p]:0) / 9", "1,33,15,14", "k=3,3 s=1 p=1 d=1", "x:0231+h2 y:0231", 0, NULL},
    {"x[N C Q..] -> y[N C] | | | y[N C] = (sum[Q] x[N C Q]) / #Q", "2,70,7,7", NULL, "x:0231", 0, NULL},
    {"x[N C Q..] -> y[N C] | | | y[N C] = (sum[Q] x[N C Q]) / 6400", "1,33,80,80", NULL, "x:0231", 0, NULL},
    {"x[N C Q..] -> y[N C] | | | y[N C] = max[Q] x[N C Q]", "2,5,17,23", NULL, NULL, 0, "nan"},
    {"x[A R] -> y[A R] | | | (m,z)[A] = softsum[R] x[A R]; y[A R] = exp(x[A R]-m[A]) / z[A]", "5,1000", NULL, NULL, 0,
     "big"},
    {"x[A R] -> y[A R] | | | (m,z)[A] = softsum[R] x[A R]; y[A R] = exp(x[A R]-m[A]) / z[A]", "3,67", NULL, NULL, 0,
     "nan"},
    {"x[A R] -> y[A R] | | | (m,z)[A] = softsum[R] x[A R]; y[A R] = x[A R]-m[A] - log(z[A])", "3,67", NULL, NULL, 0,
     "big"},
    {"x[A R B] -> y[A R B] | | | (m,z)[A B] = softsum[R] x[A R B]; y[A R B] = exp(x[A R B]-m[A B]) / z[A B]", "2,21,50",
     NULL, NULL, 0, "big"},
    {"x[A T S] -> y[A T S] | | | (m,z)[A T] = softsum[S | S<=T] x[A T S];"
     "y[A T S] = [S<=T] * exp(min(x[A T S]-m[A T], 0)) / z[A T]",
     "2,40,40", NULL, NULL, 0, NULL},
    {"x[A.. R..] w?[R..] b?[R..] -> y[A.. R..] | R=1 | | (u,v)[A] = moments[R] x[A R];"
     "y[A R] = (x[A R]-u[A]) / sqrt(v[A]+e) * w[R]:1 + b[R]:0",
     "7,768 768 768", "e=1e-5", NULL, 0, NULL},
    {"x[N O P..] w?[O] b?[O] -> y[N O P..] | #G=g; #C=#O//g; #O=#C*#G | | (u,v)[N G] = moments[C P] x[N G*#C+C P];"
     "y[N G*#C+C P] = (x[N G*#C+C P]-u[N G]) / sqrt(v[N G]+e) * w[G*#C+C]:1 + b[G*#C+C]:0",
     "2,32,9,10 32 32", "e=1e-5 g=2", "x:0231 y:0231", 0, NULL},
    {"x[N C P..] -> y[N C P..] | | | (u,v)[N C] = moments[P] x[N C P]; y[N C P] = (x[N C P]-u[N C]) / sqrt(v[N C]+e)",
     "2,37,9,10", "e=1e-5", "x:0231 y:0231", 0, NULL},
    {"x[N C P..] -> y[N C P..] | | | (u,v)[C] = moments[N P] x[N C P]; y[N C P] = (x[N C P]-u[C]) / sqrt(v[C]+e)",
     "2,37,9,10", "e=1e-5", NULL, 0, NULL},
    {NORM, "3,64,15,15 64 64", "e=1e-5", "x:0231 y:0231", 0, NULL},
    {NORM, "3,40,15,15 40 40", "e=1e-5", NULL, 0, NULL},
    {"x[A R] -> y[A] i:i64[A] | | | (y,i)[A] = maxat[R] x[A R]", "6,100", NULL, NULL, 0, "nan"},
    {"x[A R B] -> y[A B] i:i64[A B] | | | (y,i)[A B] = minat[R] x[A R B]", "3,10,40", NULL, NULL, 0, "nan"},
    {"x[N C P..] z[N C P..] s[N C] -> y[N C P..] | | | t[N C P] = x[N C P] * s[N C] + z[N C P]; y[N C P] = relu(t[N C "
     "P])",
     "2,40,6,7 2,40,6,7 2,40", NULL, "x:0231 z:0231 y:0231", 0, "nan"},
    {"x[N C P..] z[N C P..] -> y[N C P..] | | | y[N C P] = max(x[N C P] + z[N C P], 0)", "1,256,9,9 1,256,9,9", NULL,
     "x:0231 z:0231 y:0231+h1", 0, "nan"},
    {"x[N C P..] -> y[N C P..] | | | y[N C P] = x[N C P]", "2,37,9,10", NULL, "y:0231", 0, NULL},
    {"x[N C P..] -> y[N C P..] | | | y[N C P] = relu(x[N C P])", "1,64,20,20", NULL, "x:0231", 0, NULL},
    /* guards that fail in the middle and hold near the borders */
    {"x[N A B] -> y[N A C] | #C=#B-4 | | y[N A C] = x[N A C+2] + (sum[| 1<=C and C<=2] x[N A 2-C])"
     " + (sum[| #C-3<=C and C<=#C-2] x[N A 2*#C-C]) + (sum[| C==0 and A==#A-1] x[N A 1])",
     "2,3,61", NULL, NULL, 0, NULL},
    {"x[N A B] -> y[N C B] | #C=#A-4 | | y[N C B] = x[N C+2 B] + (sum[| 1<=C and C<=2] x[N 2-C B])"
     " + (sum[| #C-3<=C and C<=#C-2] x[N 2*#C-C B])",
     "2,23,40", NULL, NULL, 0, NULL},
    {"w[V E..] i:int[A..] -> y[A.. E..] | | | y[A E] = w[i[A] E]", "7,100 i64:3,4<7", NULL, NULL, 0, NULL},
    {"x[N M H P] z[N C P] -> y[N C P] -> t[N C P] | #C=#M*#H | | t[N M*#H+H P] = x[N M H P] + z[N M*#H+H P];"
     "y[N M*#H+H P] = silu(t[N M*#H+H P])",
     "2,3,16,32 2,48,32", NULL, "z:021 y:021", 0, NULL},
    {"x[N C P] z[N C P] -> y[N C P] -> t[N L C P] | #L=2 | | t[N 1 C P] = x[N C P] + z[N C P]; y[N C P] = silu(t[N 1 C "
     "P])",
     "2,48,32 2,48,32", NULL, "z:021 y:021", 0, NULL},
    {"w[V E] i:int[A B] -> y[Q E] -> t:i64[Q] | #Q=#A*#B | |"
     "t[A*#B+B] = i[A B] + #V*[i[A B]<0]; y[A*#B+B E] = w[t[A*#B+B] E]",
     "49,2 i64:5,16<49", NULL, NULL, 0, NULL},
    {"x[A B] -> y[A B] | | | y[A B] = gelu(x[A B]) + silu(x[A B]) + tanh(x[A B]) + elu(x[A B],1)", "9,41", NULL, NULL,
     8e-6, "big"},
    {"x[A B] z[A B] -> y[A B] | | | y[A B] = pow(abs(x[A B]), z[A B]) + atan2(x[A B], z[A B])", "3,41 3,41", NULL, NULL,
     0, NULL},
    {"x[A B] m[A B] -> y[A B] q:bool[A B] | | | y[A B] = where(m[A B], x[A B], -inf); q[A B] = [x[A B]>0 and m[A "
     "B]!=0]",
     "3,41 bool:3,41", NULL, NULL, 0, NULL},
    {"x:int[A B] z:int[A B] -> y:x[A B] | | | y[A B] = x[A B] * z[A B] + A*100 - B", "i64:5,50 i64:5,50", NULL, NULL, 0,
     NULL},
    {"x[A B] -> y:i32[A B] | | | y[A B] = identity(x[A B] * 10)", "5,50", NULL, NULL, 0, NULL},
    {"x[A B] z[B] -> y[A B] | | | y[A B] = x[A B] * z[B] + exp(x[A B])", "f64:5,50 f64:50", NULL, NULL, 0, "big"},
    {"x[A T B] -> y[A T B] | | | y[A T B] = y[A T-1 B]:0 + x[A T B]", "2,9,40", NULL, NULL, 0, NULL},
    {"x[N C P..] -> y[N C P..] | #K=n | | s[N C P] = sum[K] x[N C+K-(n-1)//2 P]:0 * x[N C+K-(n-1)//2 P]:0;"
     "y[N C P] = x[N C P] / pow(2.0 + 0.1*s[N C P], 0.75)",
     "1,40,5,6", "n=5", "x:0231 y:0231", 0, NULL},
    {"x[N C Q..] -> y[N C P..] | #P=2*#Q | | y[N C P] = x[N C P//2]", "1,40,5,6", NULL, "x:0231 y:0231", 0, NULL},
    {"x[A X B] z[A Z B] -> y[A Q B] | #Q=#X+#Z | | y[A Q B] = x[A Q B]:0 + z[A Q-#X B]:0", "2,30,4 2,50,4", NULL,
     "x:021 z:021 y:021", 0, NULL},
    {"x[A] -> y[] z[] | | | y[] = sum[A] x[A]; z[] = max[A] x[A]", "100000", NULL, NULL, 1e-4, NULL},
};

static int check_all(const struct check_case *c, int first, int step, int n, const struct check_tool *tool)
{
    int bad = 0;
    for (int i = first; i < n; i += step) bad += !check_case(ctx, &dfp_solver, &c[i], tool);
    return bad;
}

/* Runs every step-th case, because compiling takes most of the time. */
static void check_target(const char *name, const char *march, const char *cc, int first, int step)
{
    struct target t;
    assert_int_equal(target_named(ctx, name, &t), SOL_OK);
    const struct check_tool tool = {cc, {"-O1", march}, &t, NULL};
    assert_int_equal(check_all(wide_cases, first, step, COUNT_OF(wide_cases), &tool), 0);
}

static void test_common(void **state)
{
    (void)state;
    struct target host;
    target_host(&host);
    const struct check_tool tool = {"gcc", {"-O1"}, &host, NULL};
    assert_int_equal(check_all(common_cases, 0, 1, COUNT_OF(common_cases), &tool), 0);
}

static void test_sse2(void **state)
{
    (void)state;
    check_target("sse2", "-march=x86-64", "gcc", 0, 3);
}

static void test_avx2(void **state)
{
    (void)state;
    if (!__builtin_cpu_supports("avx2")) skip();
    check_target("avx2", "-march=x86-64-v3", "clang", 1, 3);
}

static void test_avx512(void **state)
{
    (void)state;
    if (__builtin_cpu_supports("avx512vl"))
        check_target("avx512", "-march=x86-64-v4", "gcc", 0, 1);
    else
        check_target("avx512", "-march=x86-64", "gcc", 0, 1); /* vectors that the compiler splits */
}

/* NEON code, cross-compiled and emulated: a pool, a depthwise convolution, a softmax, a transposed copy. */
static void test_neon(void **state)
{
    (void)state;
    static const int chosen[] = {0, 7, 14, 28};
    if (system("command -v aarch64-linux-gnu-gcc qemu-aarch64 > /dev/null 2>&1")) skip();
    struct target t;
    assert_int_equal(target_named(ctx, "neon", &t), SOL_OK);
    const struct check_tool tool = {"aarch64-linux-gnu-gcc", {"-O1"}, &t, "qemu-aarch64"};
    for (int i = 0; i < COUNT_OF(chosen); i++) assert_true(check_case(ctx, &dfp_solver, &wide_cases[chosen[i]], &tool));
}

/* However many elements a channel has, no element-wise result of the whole tensor goes through memory. The ReLU is in a
 * step of its own and finds its operand in registers; only values per channel are stored. */
static void test_map_in_registers(void **state)
{
    (void)state;
    static const char *const shapes[] = {"16,512,28,28 512 512", "16,2048,7,7 2048 2048", "16,64,56,56 64 64",
                                         "4,1000,14,14 1000 1000"};
    struct target v4;
    assert_int_equal(target_named(ctx, "x86-64-v4", &v4), SOL_OK);
    v4.l2 = 1 << 20;
    for (int i = 0; i < COUNT_OF(shapes); i++) {
        const struct check_case c = {NORM, shapes[i], "e=1e-5", "x:0231 y:0231", 0, NULL};
        struct arena *a = arena_create(ctx);
        int64_t limits[8] = {0};
        const struct loops *loops = check_bind(a, &c, NULL, limits);
        if (!loops) fail_msg("%s", sol_error(ctx));
        struct memory *m = NEW_ARRAY(a, struct memory, loops->tensors.n);
        int64_t bytes = 0;
        for (int t = 0; t < loops->tensors.n; t++) {
            struct check_tensor at;
            check_place(&loops->tensors.at[t], check_word(c.layout, loops->tensors.at[t].name), &m[t], &at);
            if (!bytes) bytes = at.stored_elements * 4;
        }
        const struct cluster cluster = {loops, m, 0};
        const struct solver_context sc = {.arena = a, .target = &v4};
        struct variant v[SOLVER_MAX_VARIANTS];
        struct kernel k = {0};
        assert_int_equal(dfp_solver.variants(&sc, &cluster, v), 1);
        assert_int_equal(solver_emit(&dfp_solver, &sc, &cluster, v, &k), SOL_OK);
        const int64_t kept = k.scratch_bytes + (k.nwork ? k.work_bytes[0] : 0);
        if (kept > bytes / 8) fail_msg("%s: keeps %lld of %lld bytes", shapes[i], (long long)kept, (long long)bytes);
        arena_destroy(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_common), cmocka_unit_test(test_sse2),
                                       cmocka_unit_test(test_avx2),   cmocka_unit_test(test_avx512),
                                       cmocka_unit_test(test_neon),   cmocka_unit_test(test_map_in_registers)};
    return cmocka_run_group_tests(tests, make_ctx, drop_ctx);
}
