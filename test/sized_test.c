/* Networks with dimensions that vary: compiled once, run at many sizes. The reference is the same graph for these sizes
 * (graph_at), interpreted. */
#include "sized.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>

#include "fail_alloc.h"
#include "runtime/inside.h"

static const char MLP[] = "graph \"mlp\"\n"
                          "dim #0 \"batch\" hint=24 min=0 max=4096\n"
                          "input %0:f32[N=#0 20] \"x\"\n"
                          "param %1:f32[33 20] \"w1\"\n"
                          "param %2:f32[33] \"b1\"\n"
                          "param %3:f32[7 33] \"w2\"\n"
                          "%4 = Linear(%0, %1, %2) \"fc1\"\n"
                          "%5 = relu(%4)\n"
                          "%6 = Linear(%5, %3) \"fc2\"\n"
                          "%7 = Softmax(%6) axis=1\n"
                          "%8 = Sum(%6) axes=[0]\n"
                          "output %7 \"y\"\n"
                          "output %8 \"sum\"\n";
static const char CNN[] = "graph \"cnn\"\n"
                          "dim #0 \"batch\" hint=2 min=0 max=64\n"
                          "dim #1 \"height\" hint=20 min=3\n"
                          "dim #2 \"width\" hint=20 min=3\n"
                          "input %0:f32[N=#0 3 #1 #2] \"x\"\n"
                          "param %1:f32[8 3 3 3] \"w1\"\n"
                          "param %2:f32[5 8 3 3] \"w2\"\n"
                          "%3 = Conv(%0, %1) s=2 p=1 q=1 \"conv1\"\n"
                          "%4 = relu(%3)\n"
                          "%5 = Conv(%4, %2) p=1 q=1 \"conv2\"\n"
                          "%6 = MaxPool(%5) k=[2,2] s=2\n"
                          "%7 = Mean(%5) axes=[2,3]\n"
                          "output %6 \"pooled\"\n"
                          "output %7 \"mean\"\n";
static const char ATTENTION[] = "graph \"attention\"\n"
                                "dim #0 \"batch\" hint=2 min=1\n"
                                "dim #1 \"tokens\" hint=16 min=1 max=512\n"
                                "input %0:f32[#0 #1 24] \"x\"\n"
                                "input %1:f32[#0 #1 #1] \"mask\"\n"
                                "param %2:f32[24 24] \"wq\"\n"
                                "param %3:f32[24 24] \"wk\"\n"
                                "param %4:f32[24 24] \"wv\"\n"
                                "%5 = Linear(%0, %2) \"q\"\n"
                                "%6 = Linear(%0, %3) \"k\"\n"
                                "%7 = Linear(%0, %4) \"v\"\n"
                                "%8 = Permute(%6) perm=[0,2,1]\n"
                                "%9 = MatMul(%5, %8) \"scores\"\n"
                                "%10 = add(%9, %1)\n"
                                "%11 = Softmax(%10) axis=2\n"
                                "%12 = MatMul(%11, %7) \"mix\"\n"
                                "%13 = add(%12, %0)\n"
                                "output %13 \"y\"\n";

static const char BLOCK[] = "graph \"block\"\n"
                            "dim #0 \"batch\" hint=2 min=1\n"
                            "dim #1 \"tokens\" hint=40 min=1 max=2048\n"
                            "input %0:f32[#0 #1 48] \"x\"\n"
                            "param %1:f32[48] \"g\"\n"
                            "param %2:f32[48] \"b\"\n"
                            "%3 = LayerNorm(%0, %1, %2)\n"
                            "%4 = gelu(%3)\n"
                            "%5 = Reshape(%4) shape=[#0,#1,4,12]\n"
                            "%6 = Permute(%5) perm=[0,2,1,3]\n"
                            "%7 = Permute(%5) perm=[0,2,3,1]\n"
                            "%8 = MatMul(%6, %7)\n"
                            "%9 = Softmax(%8) axis=3\n"
                            "%10 = MatMul(%9, %6)\n"
                            "%11 = Permute(%10) perm=[0,2,1,3]\n"
                            "%12 = Reshape(%11) shape=[#0,#1,48]\n"
                            "%13 = add(%12, %0)\n"
                            "%14 = Mean(%13) axes=[1]\n"
                            "%15 = Sum(%13) axes=[0,1]\n"
                            "%16 = Softmax(%13) axis=1\n"
                            "output %13 \"y\"\n"
                            "output %14 \"mean\"\n"
                            "output %15 \"sum\"\n"
                            "output %16 \"softmax\"\n";
static const char WINDOWS[] = "graph \"windows\"\n"
                              "dim #0 \"batch\" hint=2 min=1\n"
                              "dim #1 \"height\" hint=40 min=8\n"
                              "dim #2 \"width\" hint=32 min=8\n"
                              "input %0:f32[N=#0 20 #1 #2] \"x\"\n"
                              "param %1:f32[20 1 3 3] \"w1\"\n"
                              "param %2:f32[20 1 5 5] \"w2\"\n"
                              "param %3:f32[20] \"g\"\n"
                              "param %4:f32[20] \"b\"\n"
                              "%5 = Conv(%0, %1) p=1 q=1 g=20 \"depthwise\"\n"
                              "%6 = silu(%5)\n"
                              "%7 = Conv(%6, %2) s=2 p=2 q=2 g=20 \"strided\"\n"
                              "%8 = GroupNorm(%7, %3, %4) g=4\n"
                              "%9 = relu(%8)\n"
                              "%10 = MaxPool(%9) k=[3,3] s=2 p=1 q=1\n"
                              "%11 = AvgPool(%9) k=[3,3] s=1 p=1 q=1\n"
                              "%12 = add(%11, %9)\n"
                              "%13 = Mean(%12) axes=[2,3]\n"
                              "%14 = Concat(%12, %9) axis=1\n"
                              "output %10 \"pooled\"\n"
                              "output %13 \"mean\"\n"
                              "output %14 \"both\"\n";

/* -- networks */

static void an_mlp(void **state)
{
    (void)state;
    static const int64_t dims[SIZES][3] = {{24}, {1}, {2}, {7}, {0}, {8}, {16}, {31}, {37}, {64}, {100}, {257}};
    run_all(MLP, dims);
}

static void a_convolutional_network(void **state)
{
    (void)state;
    static const int64_t dims[SIZES][3] = {{2, 20, 20}, {1, 3, 3},   {0, 9, 9},   {1, 20, 21}, {3, 7, 5},   {1, 17, 23},
                                           {5, 8, 8},   {2, 33, 10}, {1, 14, 64}, {1, 56, 56}, {4, 31, 29}, {2, 4, 3}};
    run_all(CNN, dims);
}

static void attention(void **state)
{
    (void)state;
    static const int64_t dims[SIZES][3] = {{2, 16}, {1, 1}, {1, 2},  {3, 7},  {2, 17}, {1, 31},
                                           {4, 16}, {1, 5}, {7, 13}, {1, 64}, {2, 37}, {1, 100}};
    run_all(ATTENTION, dims);
}

static void recurrences_of_one_step(void **state)
{
    (void)state;
    static const int64_t dims[SIZES][3] = {{4, 12}, {4, 1}, {1, 1}, {1, 2}, {3, 1}, {2, 2},
                                           {1, 3},  {7, 1}, {2, 5}, {1, 7}, {5, 3}, {33, 1}};
    run_all(recurrences(), dims);
}

static void scans_of_no_steps(void **state)
{
    (void)state;
    static const int64_t dims[SIZES][3] = {{4, 6}, {4, 0}, {1, 0}, {0, 0}, {0, 6}, {4, 1},
                                           {1, 1}, {3, 2}, {5, 0}, {2, 9}, {4, 0}, {33, 3}};
    run_all(scans(), dims);
}

static void a_block(void **state)
{
    (void)state;
    static const int64_t dims[SIZES][3] = {{2, 40}, {1, 1},  {1, 2},   {3, 7},  {2, 15},  {2, 16},
                                           {1, 17}, {2, 33}, {1, 100}, {5, 64}, {1, 257}, {9, 3}};
    run_all(BLOCK, dims);
}

static void windows(void **state)
{
    (void)state;
    static const int64_t dims[SIZES][3] = {{2, 40, 32},  {1, 8, 8},   {1, 9, 8},   {3, 17, 13},
                                           {1, 33, 40},  {1, 64, 64}, {5, 8, 31},  {2, 14, 14},
                                           {1, 100, 20}, {2, 11, 77}, {1, 28, 29}, {1, 57, 8}};
    run_all(WINDOWS, dims);
}

/* Layers that the host computes get the sizes of each call. */
static void layers_without_loops(void **state)
{
    (void)state;
    static const char SORTED[] = "graph \"sorted\"\n"
                                 "dim #0 \"batch\" hint=4 min=0\n"
                                 "dim #1 \"boxes\" hint=9 min=0\n"
                                 "input %0:f32[#0 #1] \"x\"\n"
                                 "%1 = exp(%0)\n"
                                 "%2, %3 = Sort(%1) axis=1\n"
                                 "%4 = neg(%2)\n"
                                 "output %4 \"y\"\n";
    static const int64_t dims[SIZES][3] = {{4, 9}, {1, 1}, {0, 3}, {3, 0}, {2, 31}, {7, 2},
                                           {5, 5}, {1, 9}, {9, 1}, {6, 8}, {3, 64}, {17, 13}};
    run_all(SORTED, dims);
}

/* -- sizes of a call */

/* Two dimensions in three inputs, also in expressions. */
static const char JOINT[] = "graph \"joint\"\n"
                            "dim #0 \"rows\" hint=4 min=0 max=600\n"
                            "dim #1 \"tokens\" hint=8 min=2 max=512 multiple=2\n"
                            "dim #2 \"past\" hint=3 min=0\n"
                            "input %0:f32[#0 #1] \"ids\"\n"
                            "input %1:f32[#0 #1] \"mask\"\n"
                            "input %2:f32[2*#2+1] \"table\"\n"
                            "%3 = mul(%0, %1)\n"
                            "%4 = exp(%2)\n"
                            "output %3 \"y\"\n"
                            "output %4 \"z\"\n";

static void sizes_are_those_of_the_inputs(void **state)
{
    (void)state;
    static const struct {
        int64_t shape[3][2];
        const char *message; /* NULL: it is right */
    } cases[] = {
        {{{4, 16}, {4, 16}, {7}}, NULL},
        {{{0, 2}, {0, 2}, {1}}, NULL},
        {{{4, 16}, {4, 18}, {7}}, "'tokens' is 18 in input 'mask' (dimension 1) but 16 in 'ids' (dimension 1)"},
        {{{700, 16}, {700, 16}, {7}}, "'rows' is 700, expected 0..600"},
        {{{-3, 16}, {-3, 16}, {7}}, "'rows' is -3, expected 0..600"},
        {{{4, 15}, {4, 15}, {7}}, "'tokens' is 15, expected a multiple of 2"},
        {{{4, 16}, {4, 16}, {8}}, "input 'table': dimension 0 is 8, expected 2*#2+1, which is 9 for these inputs"},
        {{{4, 16}, {4, 16}, {INT64_MAX}}, "input 'table': dimension 0 is 9223372036854775807, expected 2*#2+1"},
        {{{INT64_MAX, 16}, {4, 16}, {7}}, "'rows' is 9223372036854775807, expected 0..600"},
    };
    struct sized s;
    int64_t dims[MOST];
    open(JOINT, &s);
    for (int i = 0; i < COUNT_OF(cases); i++) {
        const int64_t *shapes[] = {cases[i].shape[0], cases[i].shape[1], cases[i].shape[2]};
        const sol_status status = sol_net_bind(s.net, shapes, dims);
        if (!cases[i].message) {
            assert_int_equal(status, SOL_OK);
            assert_int_equal(dims[1], cases[i].shape[1][1]);
            assert_int_equal(2 * dims[2] + 1, cases[i].shape[2][0]);
            continue;
        }
        assert_int_equal(status, SOL_ERR_INVALID);
        if (!strstr(sol_error(ctx), cases[i].message)) fail_msg("got: %s", sol_error(ctx));
    }
    const int64_t *shapes[] = {cases[0].shape[0], cases[0].shape[1], NULL};
    assert_int_equal(sol_net_bind(s.net, shapes, dims), SOL_ERR_INVALID);
    assert_non_null(strstr(sol_error(ctx), "the shapes of the inputs do not tell the size of 'past'"));
    close_sized(&s);
}

static void dimensions_are_described(void **state)
{
    (void)state;
    struct sized s;
    open(JOINT, &s);
    assert_int_equal(sol_net_dims(s.net), 3);
    const struct sol_net_dim d = sol_net_dim(s.net, 1);
    assert_string_equal(d.name, "tokens");
    assert_true(d.limits.hint == 8 && d.limits.min == 2 && d.limits.max == 512 && d.limits.multiple == 2);
    assert_null(sol_net_dim(s.net, 3).name);
    assert_int_equal(sol_size_at(sol_net_output(s.net, 0).shape[1], (int64_t[]){5, 6, 7}), 6);
    close_sized(&s);
}

static void calls_that_are_rejected(void **state)
{
    (void)state;
    static const char WINDOW[] = "graph \"window\"\ndim #0 \"h\" hint=20\ndim #1 \"w\" hint=20 min=0\n"
                                 "input %0:f32[100 2 #0] \"x\"\ninput %1:f32[#1] \"v\"\nparam %2:f32[4 2 7] \"w\"\n"
                                 "%3 = Conv(%0, %2) \"conv\"\n%4 = exp(%1)\noutput %3 \"y\"\noutput %4 \"z\"\n";
    struct sized s;
    struct io io;
    assert_int_equal(sol_config_set(ctx, "bands", "off"), SOL_OK); /* a band needs no memory for whole tensors */
    open(WINDOW, &s);
    assert_int_equal(sol_config_set(ctx, "bands", "auto"), SOL_OK);
    static const struct {
        int64_t dims[2];
        const char *message;
    } cases[] = {
        {{6, 1}, "'h' 6, 'w' 1: layer 'conv' (Conv): it needs a size h-7, which would be -1"},
        {{0, 1}, "'h' is 0, expected at least 1"},
        {{INT64_C(1) << 40, 1}, "'h' 1099511627776, 'w' 1: a tensor would be larger than 2^47 bytes"},
    };
    io_make(&s, (int64_t[]){7, 2}, &io);
    for (int i = 0; i < COUNT_OF(cases); i++) {
        assert_int_equal(call(&s, cases[i].dims, &io, 1), SOL_ERR_INVALID);
        if (!strstr(sol_error(ctx), cases[i].message)) fail_msg("got: %s", sol_error(ctx));
    }
    assert_int_equal(call(&s, (int64_t[]){INT64_C(1) << 36, 1}, &io, 1), SOL_ERR_NOMEM);
    assert_int_equal(sol_net_run(s.net, s.params, (const void *const *)io.in, (void *const *)io.out, 1),
                     SOL_ERR_INVALID);
    assert_non_null(strstr(sol_error(ctx), "2 dimensions that vary ('h'..)"));
    run_at(&s, (int64_t[]){7, 2, 0});
    io_free(&s, &io);
    close_sized(&s);
}

/* -- memory */

static int64_t peak(const struct sized *s, const int64_t *dims)
{
    struct sol_memory m;
    if (sol_net_memory_at(s->net, dims, &m)) fail_msg("%s", sol_error(ctx));
    return m.peak;
}

/* Where nothing is rounded, the formula is what the network needs at any size. */
static void memory_as_a_formula(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"dim #0 \"n\" hint=40 min=0\ninput %0:f32[#0 1000] \"x\"\n%1 = exp(%0)\noutput %1 \"y\"\n", "#0 * 8.0KB"},
        {"dim #0 \"n\" hint=40 max=50\ninput %0:f32[#0 1000] \"x\"\n%1 = exp(%0)\noutput %1 \"y\"\n", "#0 * 8.0KB"},
        {"dim #0 \"n\" hint=8 min=8 max=8\ninput %0:f32[#0 1000] \"x\"\n%1 = exp(%0)\noutput %1 \"y\"\n", "64.0KB"},
        {"dim #0 \"b\" hint=4\ndim #1 \"t\" hint=64 multiple=16\ninput %0:f32[#0 #1 #1] \"x\"\n"
         "%1 = exp(%0)\noutput %1 \"y\"\n",
         "#0 * #1 * #1 * 8B"},
        /* small blocks are rounded up to cache lines, which is no power */
        {"dim #0 \"n\" hint=2\ninput %0:f32[#0 3] \"x\"\n%1 = exp(%0)\n%2 = Sort(%1) axis=1\n"
         "%3 = exp(%2)\noutput %3 \"y\"\n",
         "96B + #0 * 72B"},
        {"input %0:f32[10 1000] \"x\"\n%1 = exp(%0)\noutput %1 \"y\"\n", "80.0KB"},
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        struct sized s;
        char *text;
        open(cases[i][0], &s);
        if (sol_net_memory_print(s.net, &text)) fail_msg("%s", sol_error(ctx));
        assert_string_equal(text, cases[i][1]);
        sol_free(ctx, text);
        close_sized(&s);
    }
}

/* After the largest of many sizes, no call needs memory of the system. */
static void memory_is_that_of_the_largest(void **state)
{
    (void)state;
    struct fail_alloc f = {.fail_at = -1};
    const struct sol_ctx_options o = {.size = sizeof o, .reallocate = fail_alloc, .user = &f};
    struct sol_ctx *counted;
    struct sized s;
    struct io io;
    struct sol_memory m;
    assert_int_equal(sol_ctx_create(&o, &counted), SOL_OK);
    open_in(counted, CNN, &s);
    io_make(&s, (int64_t[]){3, 40, 40}, &io);
    assert_int_equal(call(&s, (int64_t[]){3, 40, 40}, &io, 2), SOL_OK);
    const int64_t alive = f.alive;
    for (int64_t i = 0; i < 1000; i++) {
        const int64_t dims[] = {i % 4, 3 + i * 7 % 38, 3 + i * 5 % 38};
        assert_int_equal(call(&s, dims, &io, 1), SOL_OK);
    }
    assert_int_equal(f.alive, alive);
    assert_true(peak(&s, (int64_t[]){4, 60, 60}) > peak(&s, (int64_t[]){4, 30, 60}));
    sol_net_memory(s.net, &m);
    assert_int_equal(m.peak, peak(&s, (int64_t[]){2, 20, 20}));
    io_free(&s, &io);
    close_sized(&s);
    sol_ctx_destroy(counted);
    assert_int_equal(f.alive, 0);
}

static int32_t (*computes_sizes)(int64_t *);
static int computed;

static int32_t count_computed(int64_t *sizes)
{
    computed++;
    return computes_sizes(sizes);
}

/* A call with sizes of one of the last calls finds them; another one computes them, once for checks and once for its
 * memory, which it keeps if no call was larger. */
static void a_call_with_known_sizes_computes_none(void **state)
{
    (void)state;
    struct fail_alloc f = {.fail_at = -1};
    const struct sol_ctx_options o = {.size = sizeof o, .reallocate = fail_alloc, .user = &f};
    struct sol_ctx *counted;
    struct sized s;
    struct io io;
    assert_int_equal(sol_ctx_create(&o, &counted), SOL_OK);
    open_in(counted, MLP, &s);
    const struct sol_module *whole = s.net->module;
    struct sol_module module = *whole;
    computes_sizes = module.sizes;
    module.sizes = count_computed;
    s.net->module = &module;
    io_make(&s, (int64_t[]){300}, &io);
    assert_int_equal(call(&s, (int64_t[]){300}, &io, 1), SOL_OK);
    const int64_t alive = f.alive;
    for (int64_t n = 1; n < 300; n++) {
        computed = 0;
        assert_int_equal(call(&s, (int64_t[]){n}, &io, 1), SOL_OK);
        const int now = computed;
        assert_in_range(now, 1, 2);
        for (int64_t k = MAX(1, n - SLOT_SIZES + 1); k <= n; k++)
            assert_int_equal(call(&s, (int64_t[]){k}, &io, 1), SOL_OK);
        assert_int_equal(computed, now);
    }
    assert_int_equal(f.alive, alive);
    s.net->module = whole;
    io_free(&s, &io);
    close_sized(&s);
    sol_ctx_destroy(counted);
}

/* Each allocation of a larger call fails in turn; smaller ones go on. */
static void without_memory_smaller_sizes_go_on(void **state)
{
    (void)state;
    struct fail_alloc f = {.fail_at = -1};
    const struct sol_ctx_options o = {.size = sizeof o, .reallocate = fail_alloc, .user = &f};
    const int64_t small[] = {1, 9, 9}, large[] = {4, 50, 60};
    struct sol_ctx *failing;
    struct io io;
    bool failed = true;
    for (long at = 0; failed; at++) {
        struct sized s;
        f = (struct fail_alloc){.fail_at = -1};
        assert_int_equal(sol_ctx_create(&o, &failing), SOL_OK);
        sol_config_set(failing, "log::level", "ERROR");
        open_in(failing, CNN, &s);
        io_make(&s, large, &io);
        assert_int_equal(call(&s, small, &io, 1), SOL_OK);
        f.fail_at = f.n + at;
        const sol_status status = call(&s, large, &io, 1);
        failed = f.n > f.fail_at;
        assert_int_equal(status, failed ? SOL_ERR_NOMEM : SOL_OK);
        assert_int_equal(call(&s, small, &io, 1), SOL_OK);
        assert_int_equal(call(&s, large, &io, 1), SOL_OK);
        io_free(&s, &io);
        close_sized(&s);
        sol_ctx_destroy(failing);
        assert_int_equal(f.alive, 0);
    }
}

/* -- threads */

struct caller {
    const struct sized *s;
    int64_t first;
    int wrong;
};

static void *calls_sizes(void *arg)
{
    struct caller *c = arg;
    for (int64_t i = 0; i < 40; i++) {
        const int64_t dims[] = {c->first + i % 11, 0, 0};
        struct io io;
        io_make(c->s, dims, &io);
        interpret(c->s, dims, &io);
        c->wrong += call(c->s, dims, &io, 1) != SOL_OK;
        for (int64_t k = 0; k < io.n[0]; k++) c->wrong += !(fabsf(io.out[0][k] - io.want[0][k]) < 1e-4F);
        io_free(c->s, &io);
    }
    return NULL;
}

static void threads_with_different_sizes(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    struct sized s[THREADS]; /* the reference has a graph for each thread */
    pthread_t thread[THREADS];
    struct caller caller[THREADS];
    open(MLP, &s[0]);
    for (int i = 0; i < THREADS; i++) {
        if (i) s[i] = s[0], s[i].g = parse(MLP);
        caller[i] = (struct caller){&s[i], 5 * i, 0};
        assert_int_equal(pthread_create(&thread[i], NULL, calls_sizes, &caller[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(caller[i].wrong, 0);
        if (i) sol_graph_destroy(s[i].g);
    }
    close_sized(&s[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_mlp),
        cmocka_unit_test(a_convolutional_network),
        cmocka_unit_test(attention),
        cmocka_unit_test(recurrences_of_one_step),
        cmocka_unit_test(scans_of_no_steps),
        cmocka_unit_test(a_block),
        cmocka_unit_test(windows),
        cmocka_unit_test(layers_without_loops),
        cmocka_unit_test(sizes_are_those_of_the_inputs),
        cmocka_unit_test(dimensions_are_described),
        cmocka_unit_test(calls_that_are_rejected),
        cmocka_unit_test(memory_as_a_formula),
        cmocka_unit_test(memory_is_that_of_the_largest),
        cmocka_unit_test(a_call_with_known_sizes_computes_none),
        cmocka_unit_test(without_memory_smaller_sizes_go_on),
        cmocka_unit_test(threads_with_different_sizes),
    };
    return cmocka_run_group_tests(tests, make_ctx, drop_ctx);
}
