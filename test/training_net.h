/* Networks with a gradient for tests: compiled, run forward and backward, and compared with the interpreter. */
#ifndef SOL_TRAINING_NET_H
#define SOL_TRAINING_NET_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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

static inline float *numbers(size_t n, unsigned seed)
{
    float *p = malloc(n * sizeof *p + 1);
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        p[i] = (float)(seed >> 8) / (1 << 23) - 1;
    }
    return p;
}

static inline void good(sol_status s)
{
    if (s) fail_msg("%s", sol_error(ctx));
}

/* Computes the expected results for the current inputs and parameters with the interpreter. */
static inline void expect(struct net *n)
{
    good(graph_interpret(n->g, (const void *const *)n->in, (const void *const *)n->param, (void *const *)n->want));
}

static inline struct net make(const char *text)
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

static inline void drop(struct net *n)
{
    for (int i = 0; i < n->nin; i++) free(n->in[i]);
    for (int i = 0; i < n->nparam; i++) free(n->param[i]);
    for (int i = 0; i < n->nout; i++) free(n->out[i]), free(n->want[i]);
    sol_params_destroy(n->params);
    sol_net_destroy(n->net);
    sol_graph_destroy(n->g);
}

/* Pointers to the tensors of one half, and to those of the other half that backward reads. */
static inline void pointers(const struct net *n, bool backward, const void **in, void **out)
{
    for (int i = 0; i < n->nin; i++)
        in[i] = n->back_in[i] == backward || (backward && sol_net_backward_reads(n->net, 0, i)) ? n->in[i] : NULL;
    for (int i = 0; i < n->nout; i++)
        out[i] = n->back_out[i] == backward || (backward && sol_net_backward_reads(n->net, 1, i)) ? n->out[i] : NULL;
}

static inline struct sol_saved *forward(struct net *n, int threads)
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

static inline sol_status try_backward(struct net *n, struct sol_saved *saved, int keep, int threads)
{
    const void *in[MOST];
    void *out[MOST];
    pointers(n, true, in, out);
    return sol_net_backward(n->net, n->params, saved, &(struct sol_backward){in, out, threads, .keep = keep});
}

static inline void backward(struct net *n, struct sol_saved *saved, int keep, int threads)
{
    for (int i = 0; i < n->nout; i++)
        if (n->back_out[i]) memset(n->out[i], 0x5a, n->out_n[i] * sizeof(float));
    good(try_backward(n, saved, keep, threads));
}

static inline void check(const struct net *n, bool backward_too)
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

#endif
