/* The solver dfp compared with the interpreter: operator definitions, types, layouts, vector widths, compilers. */

#include "context.h"
#include "dfp/dfp.h"
#include "kernel_cases_wide.h"

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
    const struct check_tool tool = {.cc = cc, .flags = {"-O1", march}, .target = &t};
    assert_int_equal(check_all(wide_cases, first, step, COUNT_OF(wide_cases), &tool), 0);
}

static void test_common(void **state)
{
    (void)state;
    struct target host;
    target_host(&host);
    const struct check_tool tool = {.cc = "gcc", .flags = {"-O1"}, .target = &host};
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
    const struct check_tool tool = {
        .cc = "aarch64-linux-gnu-gcc", .flags = {"-O1"}, .target = &t, .emulator = "qemu-aarch64"};
    for (int i = 0; i < COUNT_OF(chosen); i++) assert_true(check_case(ctx, &dfp_solver, &wide_cases[chosen[i]], &tool));
}

/* The kernel for a case, and the bytes of its first tensor. */
static struct kernel emitted(struct arena *a, const struct check_case *c, const struct target *t, int64_t *out_bytes)
{
    int64_t limits[8] = {0};
    const struct loops *loops = check_bind(a, c, NULL, limits);
    if (!loops) fail_msg("%s", sol_error(ctx));
    struct memory *m = NEW_ARRAY(a, struct memory, loops->tensors.n);
    *out_bytes = 0;
    for (int i = 0; i < loops->tensors.n; i++) {
        struct check_tensor at;
        check_place(&loops->tensors.at[i], check_word(c->layout, loops->tensors.at[i].name), &m[i], &at);
        if (!*out_bytes) *out_bytes = at.stored_elements * 4;
    }
    const struct cluster cluster = {loops, m, 0};
    const struct solver_context sc = {.arena = a, .target = t};
    struct variant v[SOLVER_MAX_VARIANTS];
    struct kernel k = {0};
    assert_int_equal(dfp_solver.variants(&sc, &cluster, v), 1);
    assert_int_equal(solver_emit(&dfp_solver, &sc, &cluster, v, &k), SOL_OK);
    return k;
}

/* All work items have work, however short the index variable is along which elements are contiguous. Where reads and
 * writes are contiguous along different ones, neighbouring items write neighbours. */
static void test_items_have_work(void **state)
{
    (void)state;
    static const struct {
        const char *shape, *layout;
        int most;            /* elements of an item */
        const char *numbers; /* that the code has, NULL: any */
    } cases[] = {{"16,3,112,112", "x:0231", 3, NULL},
                 {"16,3,112,112", "y:0231", 3, NULL},
                 {"64,512,7,7", "y:0231", 8, NULL},
                 {"32,64,56,56", "y:0231+h1", 8, "C = at_ % 64"},
                 {"32,64,56,56", "x:0231+h1", 9, "P1 = at_ % 56"},
                 {"4,96,112,112", "y:0231", 8, "C = at_ % 96"}};
    struct target card;
    assert_int_equal(target_named(ctx, "cuda", &card), SOL_OK);
    for (int i = 0; i < COUNT_OF(cases); i++) {
        const struct check_case c = {
            "x[N C P..] -> y[N C P..] | | | y[N C P] = relu(x[N C P])", cases[i].shape, NULL, cases[i].layout, 0, NULL};
        struct arena *a = arena_create(ctx);
        int64_t bytes;
        const struct kernel k = emitted(a, &c, &card, &bytes);
        const int64_t items = k.step[0].tasks * k.items;
        if (cases[i].numbers && !strstr(k.source, cases[i].numbers))
            fail_msg("%s %s: no '%s' in\n%s", cases[i].shape, cases[i].layout, cases[i].numbers, k.source);
        if (items * cases[i].most < bytes / 4 || items > bytes / 4 + k.items)
            fail_msg("%s %s: %lld items", cases[i].shape, cases[i].layout, (long long)items);
        arena_destroy(a);
    }
}

/* However few channels there are, a card's sums have work groups for its cores, and the element-wise part is a step
 * whose items are its points. */
static void test_cards_have_work(void **state)
{
    (void)state;
    static const struct {
        const char *shapes, *layout;
        int64_t elements;
    } cases[] = {{"16,64,112,112 64 64", "x:0231 y:0231", 16 * 64 * 112 * 112},
                 {"16,64,112,112 64 64", "", 16 * 64 * 112 * 112},
                 {"16,256,56,56 256 256", "x:0231 y:0231", 16 * 256 * 56 * 56},
                 {"16,13,113,57 13 13", "x:0231 y:0231", 16 * 13 * 113 * 57},
                 {"3,5,301,299 5 5", "", 3 * 5 * 301 * 299}};
    enum { EACH = 32, GROUPS = 128 };
    struct target card;
    assert_int_equal(target_named(ctx, "cuda", &card), SOL_OK);
    for (int i = 0; i < COUNT_OF(cases); i++) {
        const struct check_case c = {NORM, cases[i].shapes, "e=1e-5", cases[i].layout, 0, NULL};
        struct arena *a = arena_create(ctx);
        int64_t bytes;
        const struct kernel k = emitted(a, &c, &card, &bytes);
        const int64_t items = k.step[k.nstep - 1].tasks * k.items;
        if (k.nstep < 3 || items * EACH < cases[i].elements)
            fail_msg("%s %s: %d steps, %lld items in the last one", cases[i].shapes, cases[i].layout, k.nstep,
                     (long long)items);
        if (k.step[0].tasks < GROUPS)
            fail_msg("%s %s: %lld groups", cases[i].shapes, cases[i].layout, (long long)k.step[0].tasks);
        arena_destroy(a);
    }
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
        int64_t bytes;
        const struct kernel k = emitted(a, &c, &v4, &bytes);
        const int64_t kept = k.scratch_bytes + (k.nwork ? k.work_bytes[0] : 0);
        if (kept > bytes / 8) fail_msg("%s: keeps %lld of %lld bytes", shapes[i], (long long)kept, (long long)bytes);
        arena_destroy(a);
    }
}

/* A tile has all positions of the window where the sums read more than the first cache holds: it is read once, not once
 * for each row of the window. */
static void test_sums_of_a_window(void **state)
{
    (void)state;
    static const struct {
        const char *shapes, *numbers;
        bool together;
    } cases[] = {{"4,192,28,28 4,192,28,28", "k=3,3 s=1 p=1 d=1", true},
                 {"1,192,4,4 1,192,4,4", "k=3,3 s=1 p=1 d=1", false},
                 {"4,192,28,28 4,192,28,28", "k=5,5 s=1 p=2 d=1", false}}; /* more sums than registers */
    struct target v4;
    assert_int_equal(target_named(ctx, "x86-64-v4", &v4), SOL_OK);
    for (int i = 0; i < COUNT_OF(cases); i++) {
        const struct check_case c = {DEPTHWISE, cases[i].shapes, cases[i].numbers, "x:0231+h2 g:0231 w:120", 0, NULL};
        struct arena *a = arena_create(ctx);
        int64_t bytes;
        const struct kernel k = emitted(a, &c, &v4, &bytes);
        const bool apart = strstr(k.source, "int64_t K0 =");
        if (apart == cases[i].together) fail_msg("%s %s:\n%s", cases[i].shapes, cases[i].numbers, k.source);
        arena_destroy(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_common),
                                       cmocka_unit_test(test_sse2),
                                       cmocka_unit_test(test_avx2),
                                       cmocka_unit_test(test_avx512),
                                       cmocka_unit_test(test_neon),
                                       cmocka_unit_test(test_map_in_registers),
                                       cmocka_unit_test(test_sums_of_a_window),
                                       cmocka_unit_test(test_items_have_work),
                                       cmocka_unit_test(test_cards_have_work)};
    return cmocka_run_group_tests(tests, make_ctx, drop_ctx);
}
