/* Rt: sizes of a call are computed and checked, and blocks of the workspace get their places. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "rt/rt.h"

/* Sizes: 0, 1 dimensions; 2 to 4 places of blocks, 5 their end; 6 = 4 * s0, 7 = s0 - s1. */
static int32_t computes(int64_t *size)
{
    if (size[0] == 13) return 0;
    size[6] = 4 * size[0];
    size[7] = size[0] - size[1];
    return 1;
}

static void sizes_are_checked_and_blocks_placed(void **state)
{
    (void)state;
    static const struct sol_block block[] = {
        {SOL_SIZE + 6, 0, 1, 2}, {SOL_SIZE + 0, 1, 2, 3}, {100, 2, 3, 4}}; /* the last may lie where the first was */
    static const struct sol_module_dim dim[] = {{"a", 8, 0, 1000, 1}, {"b", 4, 0, 100, 4}};
    static const struct sol_module_check check[] = {{SOL_SIZE + 7, "it needs a - b"}};
    const struct sol_module m = {.nsize = 8,
                                 .ndim = 2,
                                 .ncheck = 1,
                                 .dim = dim,
                                 .check = check,
                                 .sizes = computes,
                                 .forward = {.workspace_bytes = SOL_SIZE + 5, .nblock = 3, .block = block}};
    static const struct {
        int64_t a, b;
        enum rt_fit fit;
        int which;
        int64_t at[4];
    } cases[] = {{0, 0, RT_FITS, 0, {0, 0, 0, 128}},
                 {16, 4, RT_FITS, 0, {0, 64, 128, 256}},
                 {100, 100, RT_FITS, 0, {0, 448, 0, 576}},
                 {1001, 4, RT_LIMITS, 0, {0}},
                 {5, -4, RT_LIMITS, 1, {0}},
                 {5, 6, RT_MULTIPLE, 1, {0}},
                 {7, 8, RT_NEEDS, 0, {0}},
                 {13, 8, RT_TOO_LARGE, 0, {0}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t size[8] = {cases[i].a, cases[i].b};
        int32_t which = 0;
        void *memory = malloc(rt_sizes_bytes(&m));
        assert_int_equal(rt_sizes(&m, size, memory, &which), cases[i].fit);
        if (cases[i].fit == RT_FITS)
            assert_memory_equal(size + 2, cases[i].at, sizeof cases[i].at);
        else if (cases[i].fit != RT_TOO_LARGE)
            assert_int_equal(which, cases[i].which);
        free(memory);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sizes_are_checked_and_blocks_placed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
