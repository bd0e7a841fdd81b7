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
    static const struct sol_block block[] = {{SOL_SIZE + 6, SOL_SIZE + 2, 0, 1},
                                             {SOL_SIZE + 0, SOL_SIZE + 3, 1, 2},
                                             {100, SOL_SIZE + 4, 2, 3}}; /* the last may lie where the first was */
    static const struct sol_module_dim dim[] = {{"a", 8, 0, 1000, 1, -1}, {"b", 4, 0, 100, 4, -1}};
    static const struct sol_module_check check[] = {{SOL_SIZE + 7, -1, "it needs a - b"}};
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

/* Sizes: 0 a dimension; 1 to 3 places of blocks, 4 their end; 5 = 64 * s0, 6 = 128 * s0. */
static int32_t saves(int64_t *size)
{
    size[5] = 64 * size[0];
    size[6] = 128 * size[0];
    return 1;
}

/* Two saved tensors of 64 * s0 bytes. The first dies in step 1, so what begins later lies there, if it fits. */
static void blocks_lie_where_saved_tensors_are_dead(void **state)
{
    (void)state;
    static const struct sol_block block[] = {{SOL_SIZE + 5, SOL_SIZE + 1, 0, 1}, /* both saved tensors are in use */
                                             {SOL_SIZE + 5, SOL_SIZE + 2, 2, 3},
                                             {256, SOL_SIZE + 3, 2, 3},
                                             {SOL_SIZE + 5, 0, -1, 1},
                                             {SOL_SIZE + 5, SOL_SIZE + 5, -1, 3}};
    static const struct sol_module_dim dim[] = {{"a", 8, 0, 1000, 1, -1}};
    static const struct sol_buffer buffer = {.kind = SOL_BUFFER_EITHER, .offset = SOL_SIZE + 2};
    const struct sol_module m = {.nsize = 7,
                                 .ndim = 1,
                                 .nsaved = 2,
                                 .dim = dim,
                                 .sizes = saves,
                                 .saved_bytes = SOL_SIZE + 6,
                                 .backward = {.workspace_bytes = SOL_SIZE + 4, .nblock = 3, .block = block}};
    static const struct {
        int64_t a, at[4];
        struct rt_place place;                                   /* of the second block */
    } cases[] = {{2, {256, 0, 256, 256}, {SOL_BUFFER_SAVED, 0}}, /* the third does not fit: it is in the workspace */
                 {8, {1024, 0, 1024, 512}, {SOL_BUFFER_SAVED, 0}},
                 {0, {0, 0, 0, 256}, {SOL_BUFFER_WORKSPACE, 0}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t size[7] = {cases[i].a};
        int32_t which = 0;
        void *memory = malloc(rt_sizes_bytes(&m));
        assert_int_equal(rt_sizes(&m, size, memory, &which), RT_FITS);
        assert_memory_equal(size + 1, cases[i].at, sizeof cases[i].at);
        const struct rt_place at = rt_place(&m, &buffer, size);
        assert_true(at.kind == cases[i].place.kind && at.offset == cases[i].place.offset);
        free(memory);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sizes_are_checked_and_blocks_placed),
                                       cmocka_unit_test(blocks_lie_where_saved_tensors_are_dead)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
