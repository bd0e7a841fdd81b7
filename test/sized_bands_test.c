/* Bands whose sizes vary: a program that joins units wherever it can, run at many sizes. The reference is the same
 * graph for these sizes (graph_at), interpreted. */
#include "plan/plan.h"
#include "sized.h"

#define BATCH "dim #0 \"batch\" hint=4 min=0 max=64\n"
#define PIXELS "dim #1 \"height\" hint=24 min=1\ndim #2 \"width\" hint=20 min=1\n"

/* How many units become bands, where the verifier looks at them. */
static int bands_of(const char *text)
{
    struct sol_graph *g = parse(text);
    struct arena *a = arena_create(ctx);
    struct target target;
    struct plan *p;
    target_host(&target);
    if (plan_make(g, a, &target, &p)) fail_msg("%s", sol_error(ctx));
    const int n = p->bands.n;
    arena_destroy(a);
    sol_graph_destroy(g);
    return n;
}

static void run_bands(const char *text, int bands, const int64_t (*dims)[3])
{
    assert_int_equal(sol_config_set(ctx, "bands", "always"), SOL_OK);
    assert_int_equal(sol_config_set(ctx, "compiler::verify", "1"), SOL_OK);
    const int found = bands_of(text);
    if (found < bands) fail_msg("expected at least %d bands, got %d", bands, found);
    run_all(text, dims);
    assert_int_equal(sol_config_set(ctx, "compiler::verify", "0"), SOL_OK);
    assert_int_equal(sol_config_set(ctx, "bands", "auto"), SOL_OK);
}

/* Expand, depthwise, project; a strided window; a pool. */
#define INVERTED(PIXEL)                                           \
    "input %0:f32[N=#0 8 " PIXEL "] \"x\"\n"                      \
    "param %1:f32[24 8 1 1] \"expand\"\n"                         \
    "param %2:f32[24 1 3 3] \"window\"\n"                         \
    "param %3:f32[8 24 1 1] \"project\"\n"                        \
    "param %4:f32[24 1 3 3] \"strided\"\n"                        \
    "%5 = Conv(%0, %1)\n%6 = relu(%5)\n"                          \
    "%7 = Conv(%6, %2) p=1 q=1 g=24\n%8 = relu(%7)\n"             \
    "%9 = Conv(%8, %3)\n%10 = add(%9, %0)\n"                      \
    "%11 = Conv(%10, %1)\n%12 = relu(%11)\n"                      \
    "%13 = Conv(%12, %4) s=2 p=1 q=1 g=24\n%14 = Conv(%13, %3)\n" \
    "%15 = MaxPool(%14) k=[3,3] s=2 p=1 q=1\n"                    \
    "output %10 \"y\"\noutput %15 \"pooled\"\n"

static void any_number_of_images(void **state)
{
    (void)state;
    static const int64_t dims[SIZES][3] = {{4}, {1}, {2}, {0}, {3}, {5}, {6}, {7}, {11}, {16}, {31}, {8}};
    run_bands("graph \"images\"\n" BATCH INVERTED("24 20"), 2, dims);
}

static void any_picture(void **state)
{
    (void)state;
    static const int64_t dims[SIZES][3] = {{4, 24, 20}, {1, 1, 1},   {1, 2, 3},  {2, 7, 5},  {0, 9, 9},   {3, 17, 16},
                                           {1, 33, 8},  {2, 14, 14}, {1, 5, 64}, {5, 8, 31}, {1, 100, 3}, {2, 1, 40}};
    run_bands("graph \"pictures\"\n" BATCH PIXELS INVERTED("#1 #2"), 2, dims);
}

/* Rows of a known number of pixels, and the other way round. */
static void any_height_or_width(void **state)
{
    (void)state;
    static const int64_t dims[SIZES][3] = {{4, 24, 20}, {1, 1, 1},   {1, 2, 3},  {2, 7, 5},  {0, 9, 9},   {3, 17, 16},
                                           {1, 33, 8},  {2, 14, 14}, {1, 5, 64}, {5, 8, 31}, {1, 100, 3}, {2, 1, 40}};
    run_bands("graph \"heights\"\n" BATCH "dim #1 \"height\" hint=24 min=1\n" INVERTED("#1 20"), 2, dims);
    run_bands("graph \"widths\"\n" BATCH "dim #1 \"width\" hint=24 min=1\n" INVERTED("24 #1"), 2, dims);
}

/* A ring of rows that are filled with -infinity, dilated windows, channels in two groups. */
static void windows(void **state)
{
    (void)state;
    static const char text[] = "graph \"windows\"\n" BATCH PIXELS "input %0:f32[N=#0 6 #1 #2] \"x\"\n"
                               "param %1:f32[32 6 1 1] \"w\"\n"
                               "param %2:f32[32 1 3 3] \"v\"\n"
                               "param %3:f32[16 16 3 3] \"u\"\n"
                               "%4 = Conv(%0, %1)\n%5 = MaxPool(%4) k=[3,3] s=1 p=1 q=1\n"
                               "%6 = Conv(%5, %2) p=2 q=2 d=2 g=32\n%7 = silu(%6)\n"
                               "%8 = Conv(%7, %3) p=1 q=1 g=2\n%9 = Softmax(%8) axis=1\n"
                               "output %9 \"y\"\n";
    static const int64_t dims[SIZES][3] = {{4, 24, 20}, {1, 1, 1},   {1, 2, 3},  {2, 7, 5},  {0, 9, 9},   {3, 17, 16},
                                           {1, 33, 8},  {2, 14, 14}, {1, 5, 64}, {5, 8, 31}, {1, 100, 3}, {2, 1, 40}};
    run_bands(text, 2, dims);
}

/* Rows that other units read, too, are stored on their way. */
static void sums_of_parts(void **state)
{
    (void)state;
    static const char text[] = "graph \"sums\"\n" BATCH PIXELS "input %0:f32[N=#0 6 #1 #2] \"x\"\n"
                               "param %1:f32[32 6 1 1] \"w\"\n"
                               "param %2:f32[32] \"g\"\nparam %3:f32[32] \"b\"\n"
                               "%4 = Conv(%0, %1)\n%5 = Sum(%4) axes=[2,3]\n%6 = relu(%4)\n"
                               "%7 = GroupNorm(%6, %2, %3) g=32\n"
                               "output %5 \"sum\"\noutput %7 \"y\"\n";
    static const int64_t dims[SIZES][3] = {{4, 24, 20}, {1, 1, 2},   {1, 2, 3},  {2, 7, 5},  {0, 9, 9},   {3, 17, 16},
                                           {1, 33, 8},  {2, 14, 14}, {1, 5, 64}, {5, 8, 31}, {1, 100, 3}, {2, 1, 40}};
    run_bands(text, 1, dims);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_images), cmocka_unit_test(any_picture),
        cmocka_unit_test(any_height_or_width),  cmocka_unit_test(windows),
        cmocka_unit_test(sums_of_parts),
    };
    return cmocka_run_group_tests(tests, make_ctx, drop_ctx);
}
