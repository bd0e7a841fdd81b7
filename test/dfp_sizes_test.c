/* Kernels of the solver dfp for sizes that vary, compared with the interpreter at many sizes: around a vector's length,
 * primes, shorter and longer than the hints. */

#include "context.h"
#include "dfp/dfp.h"
#include "kernel_cases_sizes.h"
#include "slow_build.h"

struct choice { /* of cases: every step-th, because compiling takes most of the time */
    int first, step;
    int64_t least; /* size of all dimensions */
};

static void check_cases(const struct check_case *cases, int n, const struct check_tool *tool, struct choice choice)
{
    static const int64_t hints[][CHECK_DIMS] = {{4, 24, 24}, {8, 64, 48}, {1, 12, 100}};
    int bad = 0;
    for (int i = choice.first; i < n; i += step_of_cases(choice.step)) {
        struct check_sizes all = {.least = choice.least, .n = COUNT_OF(sizes), .at = sizes};
        memcpy(all.hint, hints[i % COUNT_OF(hints)], sizeof all.hint);
        bad += !check_any_size(ctx, &dfp_solver, &cases[i], tool, &all);
    }
    assert_int_equal(bad, 0);
}

static void check_target(const char *name, const char *march, const char *cc, struct choice choice)
{
    struct target t;
    assert_int_equal(target_named(ctx, name, &t), SOL_OK);
    const struct check_tool tool = {.cc = cc, .flags = {"-O1", march}, .target = &t};
    check_cases(any_cases, COUNT_OF(any_cases), &tool, choice);
    choice.least = 4;
    check_cases(some_cases, COUNT_OF(some_cases), &tool, choice);
}

static void test_avx512(void **state)
{
    (void)state;
    check_target("avx512", __builtin_cpu_supports("avx512vl") ? "-march=x86-64-v4" : "-march=x86-64", "gcc",
                 (struct choice){0, 1, 0});
}

/* Positions that floats do not hold. */
static void test_far_positions(void **state)
{
    (void)state;
    static const struct check_case far = {
        "x[A R] -> y[A] i:i64[A] | | | (y,i)[A] = maxat[R] x[A R]", "#0,#1", NULL, NULL, 0, NULL};
    static const int64_t at[][CHECK_DIMS] = {{1, (1 << 24) + 77, 0}, {2, 1 << 20, 0}, {3, 100, 0}};
    const struct check_sizes all = {.hint = {1, 64, 1}, .n = COUNT_OF(at), .at = at};
    struct target host;
    target_host(&host);
    const struct check_tool tool = {.cc = "gcc", .flags = {"-O1"}, .target = &host};
    assert_true(check_any_size(ctx, &dfp_solver, &far, &tool, &all));
}

static void test_avx2(void **state)
{
    (void)state;
    if (!__builtin_cpu_supports("avx2")) skip();
    check_target("avx2", "-march=x86-64-v3", "clang", (struct choice){0, 2, 1});
}

static void test_sse2(void **state)
{
    (void)state;
    check_target("sse2", "-march=x86-64", "gcc", (struct choice){1, 2, 0});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_avx512), cmocka_unit_test(test_avx2),
                                       cmocka_unit_test(test_sse2), cmocka_unit_test(test_far_positions)};
    return cmocka_run_group_tests(tests, make_ctx, drop_ctx);
}
