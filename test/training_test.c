/* Networks with a gradient: hand-written graphs of forward and backward layers, compiled to one module with three
 * programs, compared with the interpreter on the whole graph. Several pending forwards, several backwards of one
 * forward, threads, forks, a network that is destroyed before its saved tensors. */
#include "training_net.h"

/* -- tests */

static void compare(const char *text)
{
    struct net n = make(text);
    float *first[MOST] = {0};
    for (int threads = 1; threads <= 3; threads++) {
        struct sol_saved *saved = forward(&n, threads);
        check(&n, false);
        backward(&n, saved, 1, threads);
        check(&n, true);
        backward(&n, saved, 0, threads); /* once more */
        check(&n, true);
        assert_int_equal(try_backward(&n, saved, 0, threads), SOL_ERR_INVALID);
        assert_int_equal(try_backward(&n, saved, 1, threads), SOL_ERR_INVALID);
        assert_non_null(strstr(sol_error(ctx), "overwrote the saved tensors"));
        sol_saved_destroy(saved);
        for (int i = 0; i < n.nout; i++) {
            if (threads > 1)
                assert_memory_equal(first[i], n.out[i], n.out_n[i] * sizeof(float));
            else
                first[i] = memcpy(malloc(n.out_n[i] * sizeof(float) + 1), n.out[i], n.out_n[i] * sizeof(float));
        }
    }
    for (int i = 0; i < n.nout; i++) free(first[i]);
    drop(&n);
}

static void with(const char *key, const char *value)
{
    good(sol_config_set(ctx, key, value));
    compare(cnn);
    compare(sigmoid);
    compare(borders);
    compare(moves);
    compare(sums);
}

static void forward_then_backward(void **state)
{
    (void)state;
    with("compiler::debug", "1"); /* memory that is not written is NaN */
    with("solver", "nest");
    with("solver", "auto");
    with("bands", "always");
    with("bands", "auto");
    with("compiler::debug", "0");
}

/* Several forwards with different inputs, then their gradients in another order. */
static void several_in_flight(void **state)
{
    (void)state;
    enum { FLIGHTS = 5 };
    struct net n = make(cnn), other[FLIGHTS];
    struct sol_saved *saved[FLIGHTS];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < FLIGHTS; i++) {
            other[i] = n;
            other[i].in[0] = numbers(n.in_n[0], 100u + (unsigned)i);
            for (int o = 0; o < n.nout; o++) other[i].want[o] = calloc(n.out_n[o], sizeof(float));
            for (int o = 0; o < n.nout; o++) other[i].out[o] = calloc(n.out_n[o], sizeof(float));
            expect(&other[i]);
            saved[i] = forward(&other[i], 2);
        }
        for (int k = 0; k < FLIGHTS; k++) {
            int i = (3 * k + round) % FLIGHTS;
            backward(&other[i], saved[i], 0, 2);
            check(&other[i], true);
            sol_saved_destroy(saved[i]);
        }
        for (int i = 0; i < FLIGHTS; i++) {
            free(other[i].in[0]);
            for (int o = 0; o < n.nout; o++) free(other[i].want[o]), free(other[i].out[o]);
        }
    }
    drop(&n);
}

static void what_backward_reads(void **state)
{
    (void)state;
    struct net a = make(cnn), b = make(sigmoid);
    assert_int_equal(sol_net_backward_reads(a.net, 0, 0), 1); /* x, for d_w1 */
    assert_int_equal(sol_net_backward_reads(a.net, 0, 1), 0); /* d_y belongs to backward */
    assert_int_equal(sol_net_backward_reads(a.net, 1, 0), 0);
    assert_int_equal(sol_net_backward_reads(b.net, 1, 0), 1); /* the result of the sigmoid */
    assert_int_equal(sol_net_backward_reads(b.net, 1, 1), 0);
    assert_int_equal(sol_net_backward_reads(b.net, 1, 7), 0);
    struct sol_memory m;
    sol_net_memory(b.net, &m);
    assert_int_equal(m.saved, 0); /* backward needs only the caller's tensors */
    sol_net_memory(a.net, &m);
    /* the relu's result with its halo, and the means; not the convolution's result */
    assert_in_range(m.saved, (2 * 8 * 9 * 9 + 2 * 6) * 4, (2 * 8 * 11 * 11 + 2 * 6) * 4 + 128);
    assert_true(m.peak >= m.saved + m.params + m.inputs + m.outputs + m.workspace);
    drop(&a);
    drop(&b);
}

/* sol_net_run runs forward only. */
static void run_is_forward(void **state)
{
    (void)state;
    struct net n = make(cnn);
    const void *in[MOST];
    void *out[MOST];
    pointers(&n, false, in, out);
    for (int i = 0; i < 3; i++) {
        memset(n.out[0], 0x5a, n.out_n[0] * sizeof(float));
        good(sol_net_run(n.net, n.params, in, out, 2));
        check(&n, false);
    }
    drop(&n);
}

/* Backward uses the current parameters. */
static void changed_parameters(void **state)
{
    (void)state;
    struct net n = make(sigmoid);
    for (int i = 0; i < 3; i++) {
        struct sol_saved *saved = forward(&n, 1);
        check(&n, false);
        backward(&n, saved, 0, 1);
        check(&n, true);
        sol_saved_destroy(saved);
        for (int k = 0; k < 4 * 7; k++) n.param[0][k] *= 0.5f;
        good(sol_params_set(n.params, 0, n.param[0]));
        expect(&n);
    }
    drop(&n);
}

/* What forward saves lies in the caller's memory, and a copy of it elsewhere serves as well. */
static void memory_of_the_caller(void **state)
{
    (void)state;
    struct net n = make(cnn);
    struct sol_memory m;
    struct sol_saved *saved;
    sol_net_memory(n.net, &m);
    assert_true(m.saved > 0);
    const size_t room = ((size_t)m.saved + 63) / 64 * 64;
    char *memory = aligned_alloc(64, room), *copy = aligned_alloc(64, room);
    if (getenv("SOL_DEVICE")) { /* of this test: a device with memory of its own */
        assert_int_equal(sol_saved_in(n.net, NULL, memory, &saved), SOL_ERR_UNSUPPORTED);
        assert_non_null(strstr(sol_error(ctx), "lies on the device, not in memory of the caller"));
        drop(&n);
        free(memory);
        free(copy);
        return;
    }
    expect(&n);
    for (int round = 0; round < 2; round++) {
        good(sol_saved_in(n.net, NULL, memory, &saved));
        const struct sol_call call = {
            .inputs = (const void *const *)n.in, .outputs = (void *const *)n.out, .threads = 2};
        good(sol_net_forward_in(n.net, n.params, &call, saved));
        sol_saved_destroy(saved);
        memcpy(copy, memory, (size_t)m.saved);
        memset(memory, 0xff, (size_t)m.saved);
        good(sol_saved_in(n.net, NULL, copy, &saved));
        backward(&n, saved, 0, 2);
        check(&n, true);
        sol_saved_destroy(saved);
    }
    assert_int_equal(sol_saved_in(n.net, NULL, memory + 4, &saved), SOL_ERR_INVALID);
    assert_non_null(strstr(sol_error(ctx), "expected 64-byte alignment"));
    struct net other = make(cnn);
    good(sol_saved_in(other.net, NULL, memory, &saved));
    assert_int_equal(sol_net_forward_in(n.net, n.params, &(struct sol_call){.threads = 1}, saved), SOL_ERR_INVALID);
    drop(&other);
    sol_saved_destroy(saved); /* it outlives its network */
    drop(&n);
    free(memory);
    free(copy);
}

static void mistakes(void **state)
{
    (void)state;
    struct net n = make(cnn), other = make(cnn);
    const void *in[MOST] = {n.in[0]};
    void *out[MOST] = {n.out[0]};
    struct sol_saved *saved = forward(&other, 1), *none = saved;
    assert_int_equal(sol_net_forward(n.net, n.params, in + 1, out, 1, &none), SOL_ERR_INVALID);
    assert_null(none);
    assert_non_null(strstr(sol_error(ctx), "input 0, 'x', is NULL"));
    assert_int_equal(try_backward(&n, saved, 0, 1), SOL_ERR_INVALID);
    assert_non_null(strstr(sol_error(ctx), "its own sol_net_forward"));
    assert_int_equal(try_backward(&n, NULL, 0, 1), SOL_ERR_INVALID);
    assert_int_equal(sol_net_backward(other.net, other.params, saved,
                                      &(struct sol_backward){.inputs = in, .outputs = out, .threads = 1}),
                     SOL_ERR_INVALID);
    assert_non_null(strstr(sol_error(ctx), "input 1, 'd_y', is NULL"));
    sol_saved_destroy(saved);
    sol_saved_destroy(NULL);
    drop(&n);
    drop(&other);

    struct sol_graph *g;
    struct sol_net *net;
    struct sol_params *params;
    good(sol_graph_parse(ctx, "input %0:f32[4] \"x\"\n%1 = relu(%0)\noutput %1 \"y\"\n", &g));
    good(sol_compile(ctx, g, &net));
    float x[4] = {-1, 2, -3, 4}, y[4];
    good(sol_params_create(net, &params));
    good(sol_net_forward(net, params, (const void *[]){x}, (void *[]){y}, 1, &saved));
    assert_true(y[1] == 2 && y[2] == 0);
    assert_int_equal(
        sol_net_backward(net, params, saved,
                         &(struct sol_backward){.inputs = (const void *[]){x}, .outputs = (void *[]){y}, .threads = 1}),
        SOL_ERR_INVALID);
    assert_non_null(strstr(sol_error(ctx), "has no gradient"));
    sol_params_destroy(params);
    sol_net_destroy(net);
    sol_saved_destroy(saved);
    sol_graph_destroy(g);

    good(sol_graph_parse(ctx,
                         "input %0:f32[4] \"x\"\ninput %1:f32[4] \"d\" backward\n%2 = mul(%0, %1)\noutput %2 \"y\"\n"
                         "output %2 \"z\" backward\n",
                         &g));
    assert_int_equal(sol_compile(ctx, g, &net), SOL_ERR_INVALID);
    assert_non_null(strstr(sol_error(ctx), "input 'd', which only the backward program is given"));
    sol_graph_destroy(g);
}

/* -- the plan */

static void a_copy_stays_a_copy(void **state)
{
    (void)state;
    /* %5 recomputes %3 for backward on purpose, so it is not merged, and nothing is saved */
    const char *text = "input %0:f32[4 8] \"x\"\ninput %1:f32[4 8] \"d\" backward\nparam %2:f32[8 8] \"w\"\n"
                       "%3 = Linear(%0, %2)\n%4 = exp(%3)\n%5 = Linear(%0, %2)\n%6 = exp(%5)\n%7 = mul(%6, %1)\n"
                       "output %4 \"y\"\noutput %7 \"d_x\" backward\n";
    struct net n = make(text);
    struct sol_memory m;
    sol_net_memory(n.net, &m);
    assert_int_equal(m.saved, 0);
    assert_int_equal(sol_net_backward_reads(n.net, 1, 0), 0);
    drop(&n);
    compare(text);
}

static void text_form(void **state)
{
    (void)state;
    struct sol_graph *g, *again;
    char *text, *twice;
    good(sol_graph_parse(ctx, cnn, &g));
    good(sol_graph_print(g, &text));
    good(sol_graph_parse(ctx, text, &again));
    good(sol_graph_print(again, &twice));
    assert_string_equal(text, twice);
    assert_non_null(strstr(text, "\"d_y\" backward\n"));
    assert_non_null(strstr(text, "output %11 \"y\"\n"));
    assert_non_null(strstr(text, "\"d_w1\" backward\n"));
    sol_free(ctx, text);
    sol_free(ctx, twice);
    sol_graph_destroy(g);
    sol_graph_destroy(again);
}

int main(void)
{
    if (sol_ctx_create(NULL, &ctx)) return 2;
    sol_config_set(ctx, "log::level", "ERROR");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_then_backward),
        cmocka_unit_test(several_in_flight),
        cmocka_unit_test(what_backward_reads),
        cmocka_unit_test(run_is_forward),
        cmocka_unit_test(changed_parameters),
        cmocka_unit_test(memory_of_the_caller),
        cmocka_unit_test(mistakes),
        cmocka_unit_test(a_copy_stays_a_copy),
        cmocka_unit_test(text_form),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    sol_ctx_destroy(ctx);
    return failed;
}
