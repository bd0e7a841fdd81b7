/* Networks with a gradient: hand-written graphs of forward and backward layers, compiled to one module with three
 * programs, compared with the interpreter on the whole graph. Several pending forwards, several backwards of one
 * forward, threads, forks, a network that is destroyed before its saved tensors. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "fail_alloc.h"
#include "hlir/graph.h"
#include "passes/passes.h"
#include "plan/plan.h"
#include "schedule/schedule.h"

#define MOST 16 /* inputs, parameters, outputs */

static struct sol_ctx *ctx;

/* A small network: a padded convolution, ReLU, a strided convolution, mean of the pixels, linear. */
static const char cnn[] =
    "graph \"cnn\"\n"
    "input %0:f32[2 3 9 9] \"x\"\n"
    "param %1:f32[8 3 3 3] \"w1\"\nparam %2:f32[8] \"b1\"\nparam %3:f32[6 8 3 3] \"w2\"\n"
    "param %4:f32[5 6] \"w3\"\nparam %5:f32[5] \"b3\"\n"
    "input %6:f32[2 5] \"d_y\" backward\n"
    "%7 = Conv(%0, %1, %2) p=1 q=1\n%8 = relu(%7)\n%9 = Conv(%8, %3) s=2 p=1 q=1\n%10 = Mean(%9) axes=[2,3]\n"
    "%11 = Linear(%10, %4, %5)\n"
    "%12 = Row(%6, %10) text=\"d[N O] f[N I] -> y[O I] | | | y[O I] = sum[N] d[N O] * f[N I]\"\n"
    "%13 = Sum(%6) axes=[0]\n"
    "%14 = MatMul(%6, %4)\n"
    "%15 = Row(%14) text=\"d[N C] -> y[N C P Q] | #P=5; #Q=5 | | y[N C P Q] = d[N C] / 25\"\n"
    "%16 = Row(%15, %8) text=\"d[N O P Q] x[N I A B] -> y[O I K L] | #K=3; #L=3 | | "
    "y[O I K L] = sum[N P Q] d[N O P Q] * x[N I 2*P+K-1 2*Q+L-1]:0\"\n"
    "%17 = Row(%15, %3) text=\"d[N O P Q] w[O I K L] -> y[N I A B] | #A=9; #B=9 | | "
    "y[N I A B] = sum[O K L | (A+1-K)%2==0 and (B+1-L)%2==0] d[N O (A+1-K)//2 (B+1-L)//2]:0 * w[O I K L]\"\n"
    "%18 = Row(%17, %8) text=\"d[A..] r[A..] -> y[A..] | | | y[A] = [r[A]>0] * d[A]\"\n"
    "%19 = Row(%18, %0) text=\"d[N O P Q] x[N I A B] -> y[O I K L] | #K=3; #L=3 | | "
    "y[O I K L] = sum[N P Q] d[N O P Q] * x[N I P+K-1 Q+L-1]:0\"\n"
    "%20 = Sum(%18) axes=[0,2,3]\n"
    "%21 = Row(%18, %1) text=\"d[N O P Q] w[O I K L] -> y[N I A B] | #A=9; #B=9 | | "
    "y[N I A B] = sum[O K L] d[N O A+1-K B+1-L]:0 * w[O I K L]\"\n"
    "output %11 \"y\"\n"
    "output %21 \"d_x\" backward\noutput %19 \"d_w1\" backward\noutput %20 \"d_b1\" backward\n"
    "output %16 \"d_w2\" backward\noutput %12 \"d_w3\" backward\noutput %13 \"d_b3\" backward\n";

/* sigmoid, whose gradient reads the network's output. */
static const char sigmoid[] =
    "graph \"sigmoid\"\n"
    "input %0:f32[3 7] \"x\"\nparam %1:f32[4 7] \"w\"\ninput %2:f32[3 4] \"d_y\" backward\n"
    "%3 = Linear(%0, %1)\n%4 = sigmoid(%3)\n"
    "%5 = Row(%4, %2) text=\"y[A B] d[A B] -> x[A B] | | | x[A B] = d[A B]*y[A B]*(1-y[A B])\"\n"
    "%6 = Row(%5, %0) text=\"d[N O] x[N I] -> y[O I] | | | y[O I] = sum[N] d[N O]*x[N I]\"\n"
    "output %4 \"y\"\noutput %6 \"d_w\" backward\n";

/* An output of forward that is an image, reordered for the user, and read by backward; a gradient that is a value of
 * forward; a gradient that depends on parameters alone; two outputs that are the same gradient. */
static const char borders[] =
    "graph \"borders\"\n"
    "input %0:f32[2 4 6 5] \"x\"\nparam %1:f32[8 4 3 3] \"w\"\ninput %2:f32[N=2 C=8 P=6 P=5] \"d_y\" backward\n"
    "%3 = Conv(%0, %1) p=1 q=1\n%4 = tanh(%3)\n"
    "%5 = Row(%4, %2) text=\"y[A..] d[A..] -> x[A..] | | | x[A] = d[A]*(1-y[A]*y[A])\"\n"
    "%6 = Row(%5, %1) text=\"d[N O P Q] w[O I K L] -> y[N I A B] | #A=6; #B=5 | | "
    "y[N I A B] = sum[O K L] d[N O A+1-K B+1-L]:0 * w[O I K L]\"\n"
    "%7 = Row(%5, %0) text=\"d[N O P Q] x[N I A B] -> y[O I K L] | #K=3; #L=3 | | "
    "y[O I K L] = sum[N P Q] d[N O P Q] * x[N I P+K-1 Q+L-1]:0\"\n"
    "%8 = mul(%1, %1)\n"
    "output %4 \"y\"\noutput %6 \"d_x\" backward\noutput %7 \"d_w\" backward\noutput %3 \"d_same\" backward\n"
    "output %8 \"d_decay\" backward\noutput %6 \"again\" backward\noutput %2 \"given\" backward\n";

/* Sums of what either program has just written, which may start as partial sums of rows: statistics, gradients of scale
 * and shift. */
static const char sums[] =
    "graph \"sums\"\n"
    "input %0:f32[3 4 16 14] \"x\"\nparam %1:f32[24 4 1 1] \"w\"\nparam %2:f32[24] \"s\"\nparam %3:f32[4 24 1 1] "
    "\"r\"\n"
    "input %4:f32[N=3 C=4 P=16 P=14] \"d_y\" backward\n"
    "%5 = Conv(%0, %1)\n%6, %7, %8 = BatchNormTrain(%5, %2)\n%9 = relu(%6)\n%10 = Conv(%9, %3)\n%11 = Sum(%5) "
    "axes=[3,2]\n"
    "%12 = Row(%4, %3) text=\"d[N O P..] w[O I K..] -> y[N I P..] | | | y[N I P] = sum[O K] d[N O P] * w[O I K]\"\n"
    "%13 = Row(%12, %9) text=\"d[A..] y[A..] -> x[A..] | | | x[A] = where(y[A] > 0, d[A], 0)\"\n"
    "%14 = Row(%13, %5, %7) text=\"d[N C P..] x[N C P..] u[C] -> g[C] | | | g[C] = sum[N P] d[N C P]*(x[N C "
    "P]-u[C])\"\n"
    "%15 = Sum(%13) axes=[0,2,3]\n"
    "%16 = Row(%13) text=\"d[N C P..] -> g[C] | #K=3 | | g[C] = sum[K N P] d[N C P]\"\noutput %16 \"d_3\" backward\n"
    "output %10 \"y\"\noutput %7 \"u\"\noutput %8 \"v\"\noutput %11 \"t\"\noutput %14 \"d_s\" backward\n"
    "output %15 \"d_b\" backward\noutput %13 \"d_x\" backward\n";

/* Views: forward's reshape and slice are forwarded into backward's readers; a concatenation is saved once. */
static const char moves[] =
    "graph \"moves\"\n"
    "input %0:f32[2 4 6 6] \"x\"\nparam %1:f32[4 4 1 1] \"w\"\ninput %2:f32[2 8 36] \"d_y\" backward\n"
    "%3 = Conv(%0, %1)\n%4 = exp(%3)\n%5 = Concat(%3, %4) axis=1\n%6 = Reshape(%5) shape=[2,8,36]\n"
    "%7 = mul(%6, %6)\n"
    "%8 = mul(%2, %6)\n%9 = add(%8, %8)\n"
    "%10 = Slice(%9) axes=[1] start=[0] end=[4]\n%11 = Slice(%9) axes=[1] start=[4] end=[8]\n"
    "%12 = Reshape(%11) shape=[2,4,6,6]\n%13 = mul(%12, %4)\n%14 = Reshape(%10) shape=[2,4,6,6]\n%15 = add(%13, %14)\n"
    "%16 = Row(%15, %1) text=\"d[N O P Q] w[O I K L] -> y[N I P Q] | | | y[N I P Q] = sum[O K L] d[N O P Q]*w[O I K "
    "L]\"\n"
    "output %7 \"y\"\noutput %16 \"d_x\" backward\n";

struct net {
    struct sol_graph *g;
    struct sol_net *net;
    struct sol_params *params;
    int nin, nout, nparam;
    bool back_in[MOST], back_out[MOST];
    float *in[MOST], *param[MOST], *want[MOST], *out[MOST];
    size_t out_n[MOST], in_n[MOST];
};

static float *numbers(size_t n, unsigned seed)
{
    float *p = malloc(n * sizeof *p + 1);
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        p[i] = (float)(seed >> 8) / (1 << 23) - 1;
    }
    return p;
}

static void good(sol_status s)
{
    if (s) fail_msg("%s", sol_error(ctx));
}

/* Computes the expected results for the current inputs and parameters with the interpreter. */
static void expect(struct net *n)
{
    good(graph_interpret(n->g, (const void *const *)n->in, (const void *const *)n->param, (void *const *)n->want));
}

static struct net make(const char *text)
{
    struct net n = {0};
    struct sol_graph *g;
    good(sol_graph_parse(ctx, text, &n.g));
    good(sol_graph_parse(ctx, text, &g));
    n.nin = g->inputs.n, n.nout = g->outputs.n, n.nparam = g->params.n;
    for (int i = 0; i < n.nin; i++) {
        n.back_in[i] = g->inputs.at[i]->backward;
        n.in_n[i] = (size_t)tensor_elements(g->inputs.at[i]);
        n.in[i] = numbers(n.in_n[i], 11u * (unsigned)i + 1);
    }
    for (int i = 0; i < n.nparam; i++) n.param[i] = numbers((size_t)tensor_elements(g->params.at[i]), 7u * (unsigned)i);
    for (int i = 0; i < n.nout; i++) {
        n.back_out[i] = g->outputs.at[i].backward;
        n.out_n[i] = (size_t)tensor_elements(g->outputs.at[i].t);
        n.out[i] = calloc(n.out_n[i] + 1, sizeof(float));
        n.want[i] = calloc(n.out_n[i] + 1, sizeof(float));
    }
    good(sol_compile(ctx, g, &n.net));
    sol_graph_destroy(g);
    good(sol_params_create(n.net, &n.params));
    for (int i = 0; i < n.nparam; i++) good(sol_params_set(n.params, i, n.param[i]));
    expect(&n);
    return n;
}

static void drop(struct net *n)
{
    for (int i = 0; i < n->nin; i++) free(n->in[i]);
    for (int i = 0; i < n->nparam; i++) free(n->param[i]);
    for (int i = 0; i < n->nout; i++) free(n->out[i]), free(n->want[i]);
    sol_params_destroy(n->params);
    sol_net_destroy(n->net);
    sol_graph_destroy(n->g);
}

/* Pointers to the tensors of one half, and to those of the other half that backward reads. */
static void pointers(const struct net *n, bool backward, const void **in, void **out)
{
    for (int i = 0; i < n->nin; i++)
        in[i] = n->back_in[i] == backward || (backward && sol_net_backward_reads(n->net, 0, i)) ? n->in[i] : NULL;
    for (int i = 0; i < n->nout; i++)
        out[i] = n->back_out[i] == backward || (backward && sol_net_backward_reads(n->net, 1, i)) ? n->out[i] : NULL;
}

static struct sol_saved *forward(struct net *n, int threads)
{
    const void *in[MOST];
    void *out[MOST];
    struct sol_saved *saved;
    pointers(n, false, in, out);
    for (int i = 0; i < n->nout; i++) memset(n->out[i], 0x5a, n->out_n[i] * sizeof(float));
    good(sol_net_forward(n->net, n->params, in, out, threads, &saved));
    assert_non_null(saved);
    return saved;
}

static sol_status try_backward(struct net *n, struct sol_saved *saved, int keep, int threads)
{
    const void *in[MOST];
    void *out[MOST];
    pointers(n, true, in, out);
    return sol_net_backward(n->net, n->params, saved, &(struct sol_backward){in, out, threads, .keep = keep});
}

static void backward(struct net *n, struct sol_saved *saved, int keep, int threads)
{
    for (int i = 0; i < n->nout; i++)
        if (n->back_out[i]) memset(n->out[i], 0x5a, n->out_n[i] * sizeof(float));
    good(try_backward(n, saved, keep, threads));
}

static void check(const struct net *n, bool backward_too)
{
    for (int i = 0; i < n->nout; i++) {
        if (n->back_out[i] && !backward_too) continue;
        for (size_t k = 0; k < n->out_n[i]; k++) {
            float got = n->out[i][k], want = n->want[i][k], off = got > want ? got - want : want - got;
            if (!(off <= 2e-5f * (1 + (want < 0 ? -want : want))))
                fail_msg("output %d, '%s', element %zu: expected %.7g, got %.7g", i, n->g->outputs.at[i].name, k,
                         (double)want, (double)got);
        }
    }
}

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

/* -- memory */

static unsigned below(unsigned *seed, unsigned n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % n;
}

static void apart(const struct block *x, const struct block *y)
{
    if (x->last < y->first || y->last < x->first) return;
    assert_true(x->offset + x->bytes <= y->offset || y->offset + y->bytes <= x->offset);
}

/* Blocks that live at the same time do not overlap, including given ones, and none crosses the end of the room. */
static void blocks_lie_apart(void **state)
{
    (void)state;
    enum { N = 40, GIVEN = 12, STEPS = 30 };
    unsigned seed = 3;
    for (int round = 0; round < 300; round++) {
        struct arena *a = arena_create(ctx);
        struct block b[N], given[GIVEN];
        int64_t room = 0, whole;
        for (int i = 0; i < GIVEN; i++) {
            given[i] = (struct block){64 * below(&seed, 40), room, -1, (int)below(&seed, STEPS)};
            room += given[i].bytes;
        }
        if (round % 3 == 0) room = 0;
        for (int i = 0; i < N; i++) {
            const int first = (int)below(&seed, STEPS);
            b[i] = (struct block){below(&seed, 3000), -1, first, first + (int)below(&seed, 6)};
        }
        const int ngiven = room ? GIVEN : 0;
        whole = offsets_assign(a, b, N, given, ngiven, room);
        for (int i = 0; i < N; i++) {
            assert_true(b[i].offset >= 0 && b[i].offset % 64 == 0 && b[i].offset + b[i].bytes <= whole);
            assert_true(b[i].offset >= room || b[i].offset + b[i].bytes <= room);
            for (int k = 0; k < i; k++) apart(&b[i], &b[k]);
            for (int k = 0; k < ngiven; k++) apart(&b[i], &given[k]);
        }
        arena_destroy(a);
    }
}

/* -- many threads, forked children, without the network, without memory */

static void *train(void *user)
{
    struct net n = *(struct net *)user;
    for (int i = 0; i < 30; i++) {
        struct sol_saved *a = forward(&n, 1 + i % 3), *b = forward(&n, 1);
        backward(&n, a, 0, 1 + i % 2);
        sol_saved_destroy(a);
        check(&n, true);
        backward(&n, b, 0, 1);
        sol_saved_destroy(b);
        check(&n, true);
    }
    return NULL;
}

static void many_threads(void **state)
{
    (void)state;
    struct net n = make(cnn), own[4];
    pthread_t thread[4];
    for (int i = 0; i < 4; i++) {
        own[i] = n;
        for (int o = 0; o < n.nout; o++) own[i].out[o] = calloc(n.out_n[o], sizeof(float));
        assert_int_equal(pthread_create(&thread[i], NULL, train, &own[i]), 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < 4; i++)
        for (int o = 0; o < n.nout; o++) free(own[i].out[o]);
    drop(&n);
}

static void a_child_goes_on(void **state)
{
    (void)state;
    struct net n = make(cnn);
    struct sol_saved *saved = forward(&n, 2);
    pid_t child = fork();
    if (!child) {
        alarm(60);
        backward(&n, saved, 0, 2);
        check(&n, true);
        sol_saved_destroy(saved);
        saved = forward(&n, 2);
        backward(&n, saved, 0, 2);
        check(&n, true);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    backward(&n, saved, 0, 2);
    check(&n, true);
    sol_saved_destroy(saved);
    drop(&n);
}

static void saved_outlives_its_network(void **state)
{
    (void)state;
    struct net n = make(cnn);
    struct sol_saved *a = forward(&n, 1), *b = forward(&n, 1), *c = forward(&n, 1);
    sol_saved_destroy(b);
    drop(&n);
    sol_saved_destroy(a);
    sol_saved_destroy(c);
}

/* After many pending calls, one at a time: idle memory is returned to the system. */
static void idle_memory_goes(void **state)
{
    (void)state;
    struct sol_ctx *before = ctx;
    struct fail_alloc f = {.fail_at = -1};
    const struct sol_ctx_options o = {.size = sizeof o, .reallocate = fail_alloc, .user = &f};
    good(sol_ctx_create(&o, &ctx));
    struct net n = make(cnn);
    struct sol_saved *many[20];
    sol_saved_destroy(forward(&n, 1));
    const long quiet = f.alive;
    for (int i = 0; i < 20; i++) many[i] = forward(&n, 1);
    const long most = f.alive;
    for (int i = 0; i < 20; i++) sol_saved_destroy(many[i]);
    assert_int_equal(f.alive, most); /* a loop with 20 pending calls finds the memory again */
    for (int i = 0; i < 100; i++) sol_saved_destroy(forward(&n, 1));
    assert_int_equal(f.alive, quiet);
    const long calls = f.n;
    for (int i = 0; i < 100; i++) sol_saved_destroy(forward(&n, 1));
    assert_int_equal(f.n, calls); /* a step allocates nothing */
    drop(&n);
    sol_ctx_destroy(ctx);
    ctx = before;
}

/* Each allocation of a forward and a backward fails in turn: nothing leaks, and the next try works. */
static void out_of_memory(void **state)
{
    (void)state;
    struct sol_ctx *before = ctx;
    bool failed = true;
    for (long at = 0; failed; at++) {
        struct fail_alloc f = {.fail_at = -1};
        const struct sol_ctx_options o = {.size = sizeof o, .reallocate = fail_alloc, .user = &f};
        good(sol_ctx_create(&o, &ctx));
        good(sol_config_set(ctx, "log::level", "ERROR"));
        struct net n = make(cnn);
        const void *in[MOST];
        void *out[MOST];
        struct sol_saved *saved;
        pointers(&n, false, in, out);
        f.fail_at = f.n + at;
        sol_status status = sol_net_forward(n.net, n.params, in, out, 2, &saved);
        assert_true(!status == !!saved);
        if (!status) status = try_backward(&n, saved, 0, 2);
        failed = status != SOL_OK;
        if (failed) assert_int_equal(status, SOL_ERR_NOMEM);
        sol_saved_destroy(saved);
        f.fail_at = -1;
        saved = forward(&n, 2);
        backward(&n, saved, 0, 2);
        check(&n, true);
        sol_saved_destroy(saved);
        drop(&n);
        sol_ctx_destroy(ctx);
        assert_int_equal(f.alive, 0);
    }
    ctx = before;
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
        cmocka_unit_test(forward_then_backward), cmocka_unit_test(several_in_flight),
        cmocka_unit_test(what_backward_reads),   cmocka_unit_test(run_is_forward),
        cmocka_unit_test(changed_parameters),    cmocka_unit_test(mistakes),
        cmocka_unit_test(blocks_lie_apart),      cmocka_unit_test(many_threads),
        cmocka_unit_test(a_child_goes_on),       cmocka_unit_test(saved_outlives_its_network),
        cmocka_unit_test(idle_memory_goes),      cmocka_unit_test(out_of_memory),
        cmocka_unit_test(a_copy_stays_a_copy),   cmocka_unit_test(text_form),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    sol_ctx_destroy(ctx);
    return failed;
}
