/* Kernels in OpenCL C compared with the interpreter, on every implementation that is installed. */
#include "context.h"
#include "dfp/dfp.h"
#include "dnn/solvers.h"
#include "kernel_cases_sizes.h"
#include "kernel_cases_wide.h"
#include "opencl_run.h"
#include "print/print.h"
#include "slow_build.h"

/* Contractions: borders, strides, groups, layouts, epilogues, long sums in parts, vectors. Every variant is tried. */
static const struct check_case contraction_cases[] = {
    {CONV, "2,6,9,8 8,3,3,3 8", "s=1 p=1 d=1 g=2", NULL, 0, NULL},
    {CONV, "1,14,19,10 21,14,3,2 -", "s=2 p=2 d=2 g=1", "x:0231+g3 y:0231+g5", 0, NULL},
    {CONV, "2,12,7,8 40,12,1,1 40", "s=1 p=0 d=1 g=1", "x:0231+h1 y:0231", 0, NULL},
    {"a[B M K] b[B K N] -> y[B M N] | | | y[B M N] = sum[K] a[B M K] * b[B K N]", "3,71,20 3,20,67", NULL, NULL, 0,
     NULL},
    {"a[M K] w[N K] b[N] z[M N] -> y[M N] q[M N] | | | t[M N] = (sum[K] a[M K] * w[N K]) + b[N];"
     "y[M N] = gelu(t[M N]) + z[M N]; q[M N] = t[M N]",
     "33,150 70,150 70 33,70", NULL, "a:10 q:10", 0, NULL},
    {"g[N O P..] x[N I P..] -> w[O I] | | | w[O I] = sum[N P] g[N O P] * x[N I P]", "3,9,21,25 3,7,21,25", NULL,
     "g:0231 x:0231", 1e-5, NULL},
    {"a[M K] b[K] -> y[M] | | | y[M] = sum[K] a[M K] * b[K]", "40,3000 3000", NULL, NULL, 1e-5, NULL},
    {"a[M K] b[N K] -> y[M N] | | | y[M N] = sum[K] a[M K] * b[N K]", "f64:17,90 f64:30,90", NULL, NULL, 0, NULL},
};

static const struct check_case varying_contractions[] = {
    {CONV, "#0,6,#1,#2 20,6,3,3 20", "s=2 p=1 d=1 g=1", "x:0231 y:0231", 0, NULL},
    {"a[M K] w[N K] b[N] -> y[M N] | | | y[M N] = relu((sum[K] a[M K] * w[N K]) + b[N])", "#1,150 70,150 70", NULL,
     NULL, 0, NULL},
    {"a[B M K] b[B K N] -> y[B M N] | | | y[B M N] = sum[K] a[B M K] * b[B K N]", "#0,#1,#2 #0,#2,19", NULL, NULL, 0,
     NULL},
};

static struct target target;

/* Long reductions, whose sums in float32 would be wrong if they were not compensated. */
static const struct check_case single_cases[] = {
    {"x[M N] -> y[M] | | | y[M] = sum[N] x[M N]", "3,200000", NULL, NULL, 1e-6, "big"},
    {"x[M N] -> y[M] | | | y[M] = sum[N] (x[M N] + 1000)", "3,200000", NULL, NULL, 3e-7, NULL},
    {"x[M N] -> y[M] z[M] | | | (y,z)[M] = moments[N] (x[M N] + 10)", "3,100000", NULL, NULL, 1e-6, NULL},
    {"x[M N] -> y[M] z[M] | | | (y,z)[M] = softsum[N] x[M N]", "3,100000", NULL, NULL, 1e-6, NULL},
};
/* Equal factors, whose errors are equal, too. */
static const struct check_case product_case = {
    "x[M N] -> y[M] | | | y[M] = prod[N] (1.0009765625 + 0 * x[M N])", "3,2000", NULL, NULL, 1e-6, NULL};

static int check_all(const struct solver *solver, const struct check_case *c, int n)
{
    const struct check_tool tool = {.target = &target, .launch = opencl_launch};
    int bad = 0;
    for (int i = 0; i < n; i += step_of_cases(1)) bad += !check_case(ctx, solver, &c[i], &tool);
    return bad;
}

static void test_nest(void **state)
{
    (void)state;
    assert_int_equal(target_named(ctx, "opencl", &target), SOL_OK);
    for (int i = 0; i < opencl.n; i++) {
        assert_true(opencl_use(i));
        const int bad = check_all(&nest_solver, common_cases, COUNT_OF(common_cases));
        if (bad) fail_msg("%s: %d cases", opencl.name[i], bad);
        opencl_close();
    }
}

static void test_dfp(void **state)
{
    (void)state;
    assert_int_equal(target_named(ctx, "opencl", &target), SOL_OK);
    for (int i = 0; i < opencl.n; i++) {
        assert_true(opencl_use(i));
        int bad = check_all(&dfp_solver, common_cases, COUNT_OF(common_cases));
        bad += check_all(&dfp_solver, wide_cases, COUNT_OF(wide_cases));
        if (bad) fail_msg("%s: %d cases", opencl.name[i], bad);
        opencl_close();
    }
}

static void test_contractions(void **state)
{
    (void)state;
    assert_int_equal(target_named(ctx, "opencl", &target), SOL_OK);
    for (int i = 0; i < opencl.n; i++) {
        assert_true(opencl_use(i));
        const int bad = check_all(&dnn_simt, contraction_cases, COUNT_OF(contraction_cases));
        if (bad) fail_msg("%s: %d cases", opencl.name[i], bad);
        opencl_close();
    }
}

/* Those without float64. */
static int check_single(const struct solver *solver, const struct check_case *c, int n)
{
    int bad = 0;
    for (int i = 0; i < n; i++)
        if (!c[i].in || !strstr(c[i].in, "f64")) bad += check_all(solver, &c[i], 1);
    return bad;
}

/* One kernel for all sizes. */
static int check_varying(const struct solver *solver, const struct check_case *c, int n, int64_t least)
{
    const struct check_tool tool = {.target = &target, .launch = opencl_launch};
    int bad = 0;
    for (int i = 0; i < n; i += step_of_cases(1))
        bad += !check_any_size(ctx, solver, &c[i], &tool,
                               &(struct check_sizes){{4, 24, 24}, least, COUNT_OF(sizes), sizes});
    return bad;
}

/* Double is float, and long sums are compensated. */
static void test_single(void **state)
{
    (void)state;
    assert_int_equal(target_named(ctx, "opencl", &target), SOL_OK);
    target.single = opencl.single = true;
    for (int i = 0; i < opencl.n; i++) {
        assert_true(opencl_use(i));
        int bad = check_single(&nest_solver, common_cases, COUNT_OF(common_cases));
        bad += check_single(&nest_solver, single_cases, COUNT_OF(single_cases));
        bad += check_single(&nest_solver, &product_case, 1);
        bad += check_single(&dfp_solver, single_cases, COUNT_OF(single_cases));
        opencl_close();
        target.single = opencl.single = i + 1 < opencl.n;
        if (bad) fail_msg("%s: %d cases", opencl.name[i], bad);
    }
}

static void test_sizes(void **state)
{
    (void)state;
    assert_int_equal(target_named(ctx, "opencl", &target), SOL_OK);
    for (int i = 0; i < opencl.n; i++) {
        assert_true(opencl_use(i));
        int bad = check_varying(&dfp_solver, any_cases, COUNT_OF(any_cases), 0);
        bad += check_varying(&dfp_solver, some_cases, COUNT_OF(some_cases), 4);
        bad += check_varying(&dnn_simt, varying_contractions, COUNT_OF(varying_contractions), 4);
        if (bad) fail_msg("%s: %d cases", opencl.name[i], bad);
        opencl_close();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nest), cmocka_unit_test(test_dfp),
                                       cmocka_unit_test(test_contractions), cmocka_unit_test(test_single),
                                       cmocka_unit_test(test_sizes)};
    const char *why = opencl_find();
    if (why) {
        printf("skipped: OpenCL: %s (Debian: apt install pocl-opencl-icd)\n", why);
        return 77;
    }
    return cmocka_run_group_tests(tests, make_ctx, drop_ctx);
}
