/* Training of networks with dimensions that vary: forward and backward at many sizes. The reference is the gradient of
 * the same graph for these sizes, interpreted. */
#include "rt/rt.h"
#include "sized.h"

#include <math.h>
#include <stdio.h>

static const char MLP[] = "graph \"mlp\"\n"
                          "dim #0 \"batch\" hint=24 min=0 max=4096\n"
                          "input %0:f32[N=#0 20] \"x\"\n"
                          "param %1:f32[33 20] \"w1\"\n"
                          "param %2:f32[33] \"b1\"\n"
                          "param %3:f32[7 33] \"w2\"\n"
                          "%4 = Linear(%0, %1, %2) \"fc1\"\n"
                          "%5 = gelu(%4)\n"
                          "%6 = Linear(%5, %3) \"fc2\"\n"
                          "%7 = Softmax(%6) axis=1\n"
                          "output %7 \"y\"\n";
static const char ATTENTION[] = "graph \"attention\"\n"
                                "dim #0 \"batch\" hint=2 min=1\n"
                                "dim #1 \"tokens\" hint=16 min=1 max=512\n"
                                "input %0:f32[#0 #1 12] \"x\"\n"
                                "param %1:f32[12 12] \"wq\"\n"
                                "param %2:f32[12 12] \"wk\"\n"
                                "%3 = Linear(%0, %1) \"q\"\n"
                                "%4 = Linear(%0, %2) \"k\"\n"
                                "%5 = Permute(%4) perm=[0,2,1]\n"
                                "%6 = MatMul(%3, %5) \"scores\"\n"
                                "%7 = Softmax(%6) axis=2\n"
                                "%8 = MatMul(%7, %0) \"mix\"\n"
                                "%9 = add(%8, %0)\n"
                                "output %9 \"y\"\n";
static const char CNN[] = "graph \"cnn\"\n"
                          "dim #0 \"batch\" hint=2 min=0 max=64\n"
                          "dim #1 \"height\" hint=12 min=3\n"
                          "dim #2 \"width\" hint=12 min=3\n"
                          "input %0:f32[N=#0 3 #1 #2] \"x\"\n"
                          "param %1:f32[4 3 3 3] \"w1\"\n"
                          "param %2:f32[5 4 3 3] \"w2\"\n"
                          "%3 = Conv(%0, %1) p=1 q=1 \"conv1\"\n"
                          "%4 = tanh(%3)\n"
                          "%5 = Conv(%4, %2) p=1 q=1 \"conv2\"\n"
                          "%6 = Mean(%5) axes=[2,3]\n"
                          "output %6 \"y\"\n";

/* Appends the gradient of output 0 for input 0 and all parameters. */
static void differentiate(struct sol_graph *g)
{
    static const int of[1] = {0};
    struct sol_tensor *with[MOST] = {g->inputs.at[0]};
    int reached[MOST];
    for (int i = 0; i < g->params.n; i++) with[1 + i] = g->params.at[i];
    if (sol_graph_differentiate(g, 1, of, 1 + g->params.n, with, reached)) fail_msg("%s", sol_error(ctx));
}

static void open_joint(const char *text, struct sized *s)
{
    struct sol_graph *g = parse(text);
    s->g = parse(text);
    differentiate(g);
    if (sol_compile(ctx, g, &s->net)) fail_msg("%s", sol_error(ctx));
    sol_graph_destroy(g);
    fill_params(s);
}

static void interpret_joint(const struct sized *s, const int64_t *dims, struct io *io)
{
    struct sol_graph *at;
    if (graph_at(s->g, dims, &at)) fail_msg("%s", sol_error(ctx));
    differentiate(at);
    if (graph_interpret(at, (const void *const *)io->in, (const void *const *)s->param, (void *const *)io->want))
        fail_msg("%s", sol_error(ctx));
    sol_graph_destroy(at);
}

static void train(const struct sized *s, const int64_t *dims, const struct io *io, int threads, int keep)
{
    struct sol_saved *saved;
    const struct sol_call c = {
        .dims = dims, .inputs = (const void *const *)io->in, .outputs = (void *const *)io->out, .threads = threads};
    if (sol_net_forward_at(s->net, s->params, &c, &saved)) fail_msg("%s", sol_error(ctx));
    for (; keep >= 0; keep--) {
        const struct sol_backward b = {c.inputs, c.outputs, threads, keep};
        if (sol_net_backward(s->net, s->params, saved, &b)) fail_msg("%s", sol_error(ctx));
    }
    sol_saved_destroy(saved);
}

static void train_at(const struct sized *s, const int64_t *dims)
{
    struct io io;
    char sizes[100];
    snprintf(sizes, sizeof sizes, "%lld %lld %lld", (long long)dims[0], (long long)dims[1], (long long)dims[2]);
    io_make(s, dims, &io);
    interpret_joint(s, dims, &io);
    train(s, dims, &io, 1, 0);
    compare(s, &io, sizes);
    for (int threads = 2; threads <= 3; threads++) {
        keep_outputs(s, &io);
        train(s, dims, &io, threads, 1);
        same_outputs(s, &io, sizes, threads);
    }
    io_free(s, &io);
}

static void train_all(const char *text, int n, const int64_t (*dims)[3])
{
    struct sized s;
    open_joint(text, &s);
    for (int i = 0; i < n; i++) train_at(&s, dims[i]);
    close_sized(&s);
}

static void an_mlp(void **state)
{
    (void)state;
    static const int64_t dims[][3] = {{24}, {1}, {2}, {7}, {0}, {8}, {31}, {37}, {100}, {257}};
    train_all(MLP, COUNT_OF(dims), dims);
}

static void attention(void **state)
{
    (void)state;
    static const int64_t dims[][3] = {{2, 16}, {1, 1}, {3, 7}, {2, 17}, {1, 31}, {4, 16}, {7, 13}, {2, 37}};
    train_all(ATTENTION, COUNT_OF(dims), dims);
}

static void recurrences_of_one_step(void **state)
{
    (void)state;
    static const int64_t dims[][3] = {{4, 12}, {4, 1}, {1, 1}, {1, 2}, {3, 3}, {7, 1}, {2, 5}};
    train_all(recurrences(), COUNT_OF(dims), dims);
}

static void scans_of_no_steps(void **state)
{
    (void)state;
    static const int64_t dims[][3] = {{4, 6}, {4, 0}, {1, 0}, {0, 0}, {0, 6}, {4, 1}, {3, 2}};
    train_all(scans(), COUNT_OF(dims), dims);
}

/* A recurrence may be compiled for any number of steps, but its last state needs one. */
static void a_recurrence_needs_a_step(void **state)
{
    (void)state;
    static const int64_t none[3] = {4, 0}, some[3] = {4, 6}, one[3] = {4, 1};
    struct sized s;
    int64_t dims[3];
    open_joint("graph \"lstm\"\n"
               "dim #0 \"batch\" hint=4\n"
               "dim #1 \"steps\" hint=6 min=0\n"
               "input %0:f32[#1 #0 5] \"x\"\n"
               "param %1:f32[28 5] \"w\"\n"
               "param %2:f32[28 7] \"u\"\n"
               "%3, %4, %5 = LSTM(%0, %1, %2) \"rnn\"\n"
               "output %3 \"y\"\n",
               &s);
    assert_int_equal(bind(&s, none, dims), SOL_ERR_INVALID);
    assert_non_null(
        strstr(sol_error(ctx), "'steps' 0: layer 'rnn' (LSTM): it needs a size steps-1, which would be -1"));
    train_at(&s, some);
    train_at(&s, one);
    close_sized(&s);
}

static void a_convolutional_network(void **state)
{
    (void)state;
    static const int64_t dims[][3] = {{2, 12, 12}, {1, 3, 3}, {0, 9, 9}, {3, 7, 5}, {1, 17, 23}, {2, 20, 3}};
    train_all(CNN, COUNT_OF(dims), dims);
}

/* Several forwards of different sizes are pending; each backward runs at the sizes of its forward. */
static void backward_has_the_sizes_of_its_forward(void **state)
{
    (void)state;
    enum { PENDING = 5 };
    struct sized s;
    struct io io[PENDING];
    struct sol_saved *saved[PENDING];
    open_joint(MLP, &s);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < PENDING; i++) {
            const int64_t dims[] = {(1 + i) * (round ? 3 : 7), 0, 0};
            io_make(&s, dims, &io[i]);
            interpret_joint(&s, dims, &io[i]);
            const struct sol_call c = {.dims = dims,
                                       .inputs = (const void *const *)io[i].in,
                                       .outputs = (void *const *)io[i].out,
                                       .threads = 1};
            assert_int_equal(sol_net_forward_at(s.net, s.params, &c, &saved[i]), SOL_OK);
        }
        for (int k = 0; k < PENDING; k++) {
            const int i = k * 3 % PENDING;
            const struct sol_backward b = {(const void *const *)io[i].in, (void *const *)io[i].out, 1, 0};
            assert_int_equal(sol_net_backward(s.net, s.params, saved[i], &b), SOL_OK);
            compare(&s, &io[i], "of several");
            sol_saved_destroy(saved[i]);
            io_free(&s, &io[i]);
        }
    }
    close_sized(&s);
}

/* Memory of the caller has room for the sizes it was made for: forward at others would write behind it. */
static void memory_of_the_caller_has_its_sizes(void **state)
{
    (void)state;
    static const int64_t small[3] = {3}, large[3] = {40};
    struct sized s;
    struct io io;
    struct sol_memory m;
    struct sol_saved *saved;
    open_joint(MLP, &s);
    assert_int_equal(sol_net_memory_at(s.net, small, &m), SOL_OK);
    void *memory = aligned_alloc(64, ((size_t)m.saved + 63) / 64 * 64);
    assert_non_null(memory);
    const sol_status status = sol_saved_in(s.net, small, memory, &saved);
    if (getenv("SOL_DEVICE")) { /* of this test: a device with memory of its own */
        assert_int_equal(status, SOL_ERR_UNSUPPORTED);
        close_sized(&s);
        free(memory);
        return;
    }
    assert_int_equal(status, SOL_OK);
    io_make(&s, large, &io);
    struct sol_call c = {
        .dims = large, .inputs = (const void *const *)io.in, .outputs = (void *const *)io.out, .threads = 1};
    assert_int_equal(sol_net_forward_in(s.net, s.params, &c, saved), SOL_ERR_INVALID);
    assert_non_null(strstr(sol_error(ctx), "'batch' is 40 in this forward, but 3 in sol_saved_in"));
    io_free(&s, &io);
    io_make(&s, small, &io);
    interpret_joint(&s, small, &io);
    c.dims = small;
    assert_int_equal(sol_net_forward_in(s.net, s.params, &c, saved), SOL_OK);
    const struct sol_backward b = {c.inputs, c.outputs, 1, 0};
    assert_int_equal(sol_net_backward(s.net, s.params, saved, &b), SOL_OK);
    compare(&s, &io, "in memory of the caller");
    sol_saved_destroy(saved);
    io_free(&s, &io);
    close_sized(&s);
    free(memory);
}

static int64_t peak_of(struct sol_net *net, const int64_t *dims)
{
    struct sol_memory m;
    assert_int_equal(sol_net_memory_at(net, dims, &m), SOL_OK);
    return m.peak;
}

/* Memory of saved tensors is used again where they are not in use, as it is where sizes are known. */
static void memory_is_that_of_known_sizes(void **state)
{
    (void)state;
    static const char DEEP[] = "graph \"deep\"\n"
                               "dim #0 \"batch\" hint=8\n"
                               "input %0:f32[N=#0 16 28 28] \"x\"\n"
                               "param %1:f32[16 16 3 3] \"w\"\n"
                               "%2 = Conv(%0, %1) p=1 q=1\n%3 = tanh(%2)\n"
                               "%4 = Conv(%3, %1) p=1 q=1\n%5 = tanh(%4)\n"
                               "%6 = Conv(%5, %1) p=1 q=1\n%7 = tanh(%6)\n"
                               "%8 = Conv(%7, %1) p=1 q=1\n%9 = tanh(%8)\n"
                               "%10 = Conv(%9, %1) p=1 q=1\n%11 = tanh(%10)\n"
                               "%12 = Mean(%11) axes=[2,3]\n"
                               "output %12 \"y\"\n";
    static const int64_t dims[] = {8, 16, 13};
    struct sized s;
    const double workers = 16384. * rt_processors(); /* which have memory of their own */
    open_joint(DEEP, &s);
    for (int i = 0; i < COUNT_OF(dims); i++) {
        struct sol_graph *at;
        struct sol_net *known;
        assert_int_equal(graph_at(s.g, &dims[i], &at), SOL_OK);
        differentiate(at);
        assert_int_equal(sol_compile(ctx, at, &known), SOL_OK);
        const int64_t needs = peak_of(s.net, &dims[i]), expected = peak_of(known, NULL);
        if ((double)needs > (double)expected * 1.02 + workers)
            fail_msg("batch %lld: expected about %lld bytes, got %lld", (long long)dims[i], (long long)expected,
                     (long long)needs);
        sol_net_destroy(known);
        sol_graph_destroy(at);
    }
    close_sized(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_mlp),
        cmocka_unit_test(attention),
        cmocka_unit_test(recurrences_of_one_step),
        cmocka_unit_test(scans_of_no_steps),
        cmocka_unit_test(a_recurrence_needs_a_step),
        cmocka_unit_test(a_convolutional_network),
        cmocka_unit_test(backward_has_the_sizes_of_its_forward),
        cmocka_unit_test(memory_of_the_caller_has_its_sizes),
        cmocka_unit_test(memory_is_that_of_known_sizes),
    };
    return cmocka_run_group_tests(tests, make_ctx, drop_ctx);
}
