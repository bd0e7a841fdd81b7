/* The dfp solver against the interpreter: rows, types, layouts, vector widths, compilers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "dfp/dfp.h"
#include "kernel_cases.h"

static struct sol_ctx *ctx;

static int setup(void **state)
{
    (void)state;
    return sol_ctx_create(NULL, &ctx);
}

static int teardown(void **state)
{
    (void)state;
    sol_ctx_destroy(ctx);
    return 0;
}

static void test_common(void **state)
{
    (void)state;
    struct target host;
    target_host(&host);
    const struct check_tool tool = {"gcc", {"-O1"}, &host};
    int bad = 0;
    for (int i = 0; i < COUNT_OF(common_cases); i++) bad += !check_case(ctx, &dfp_solver, &common_cases[i], &tool);
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_common)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
