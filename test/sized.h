/* Networks with dimensions that vary, with data: what the tests sized*_test.c share. */
#ifndef SOL_TEST_SIZED_H
#define SOL_TEST_SIZED_H

#include "context.h"
#include "slow_build.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hlir/graph.h"

enum { MOST = 16, GUARD = 64, SIZES = 12 };

struct sized {
    struct sol_graph *g; /* as parsed: for the reference */
    struct sol_net *net;
    struct sol_params *params;
    float *param[MOST];
};
struct io { /* of a call */
    float *in[MOST], *out[MOST], *want[MOST];
    int64_t n[MOST]; /* elements of outputs */
};

/* Recurrences in both directions, from zero states and from given ones, and a product of what they give. */
static inline const char *recurrences(void)
{
    return "graph \"recurrences\"\n"
           "dim #0 \"batch\" hint=4 min=1\n"
           "dim #1 \"steps\" hint=12 min=1\n"
           "input %0:f32[#1 #0 20] \"x\"\n"
           "input %1:f32[#0 24] \"h\"\n"
           "param %2:f32[96 20] \"w\"\n"
           "param %3:f32[96 24] \"u\"\n"
           "param %4:f32[96 24] \"w2\"\n"
           "param %5:f32[72 24] \"w3\"\n"
           "param %6:f32[72 24] \"u3\"\n"
           "param %7:f32[32 24] \"head\"\n"
           "%8, %9, %10 = LSTM(%0, %2, %3)\n"
           "%11, %12, %13 = LSTM(%8, %4, %3, -, -, %1, %1) reverse=1\n"
           "%14, %15 = GRU(%11, %5, %6)\n"
           "%16 = Linear(%14, %7)\n"
           "output %16 \"y\"\n"
           "output %9 \"h\"\n"
           "output %13 \"c\"\n"
           "output %15 \"g\"\n";
}

/* Scans that may have no steps. Recurrences with a last state have at least one. */
static inline const char *scans(void)
{
    return "graph \"scans\"\n"
           "dim #0 \"batch\" hint=4 min=0\n"
           "dim #1 \"steps\" hint=6 min=0\n"
           "input %0:f32[#1 #0 5] \"x\"\n"
           "param %1:f32[5 5] \"w\"\n"
           "%2 = Linear(%0, %1)\n"
           "%3 = Row(%2, %1) text=\"x[T N I] w[I J] -> y[T N I] | | | "
           "y[T N I] = tanh(x[T N I] + sum[J] y[T-1 N J]:0 * w[I J])\"\n"
           "%4 = CumSum(%3) axis=0 reverse=1\n"
           "%5 = LogCumSumExp(%0) axis=0\n"
           "output %3 \"y\"\n"
           "output %4 \"s\"\n"
           "output %5 \"l\"\n";
}

static inline float *numbers(int64_t n, unsigned seed)
{
    float *v = malloc((size_t)n * sizeof *v + 1);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        v[i] = (float)(seed >> 8) / (1 << 23) - 1;
    }
    return v;
}

static inline int64_t elements(const struct sol_io *io, const int64_t *dims)
{
    int64_t n = 1;
    for (int d = 0; d < io->ndim; d++) n *= sol_size_at(io->shape[d], dims);
    return n;
}

static inline struct sol_graph *parse(const char *text)
{
    struct sol_graph *g = NULL;
    if (sol_graph_parse(ctx, text, &g)) fail_msg("%s", sol_error(ctx));
    return g;
}

static inline void fill_params(struct sized *s)
{
    if (sol_params_create(s->net, &s->params)) fail_msg("%s", sol_error(ctx));
    for (int i = 0; i < sol_net_params(s->net); i++) {
        const struct sol_io io = sol_net_param_io(s->net, i);
        s->param[i] = numbers(elements(&io, NULL), 7 + (unsigned)i);
        sol_params_set(s->params, i, s->param[i]);
    }
}

static inline void open_in(struct sol_ctx *in, const char *text, struct sized *s)
{
    struct sol_graph *g;
    s->g = parse(text);
    if (sol_graph_parse(in, text, &g)) fail_msg("%s", sol_error(in));
    if (sol_compile(in, g, &s->net)) fail_msg("%s", sol_error(in));
    sol_graph_destroy(g);
    fill_params(s);
}

static inline void open(const char *text, struct sized *s)
{
    open_in(ctx, text, s);
}

static inline void close_sized(struct sized *s)
{
    sol_params_destroy(s->params);
    for (int i = 0; i < sol_net_params(s->net); i++) free(s->param[i]);
    sol_net_destroy(s->net);
    sol_graph_destroy(s->g);
}

/* An output between two guards. */
static inline float *guarded(int64_t n)
{
    unsigned char *p = malloc((size_t)n * sizeof(float) + 2 * GUARD);
    memset(p, 0xa5, (size_t)n * sizeof(float) + 2 * GUARD);
    return (float *)(void *)(p + GUARD);
}

static inline void io_make(const struct sized *s, const int64_t *dims, struct io *io)
{
    *io = (struct io){.n = {0}};
    for (int i = 0; i < sol_net_inputs(s->net); i++) {
        const struct sol_io x = sol_net_input(s->net, i);
        io->in[i] = numbers(elements(&x, dims), 99 + (unsigned)i);
    }
    for (int i = 0; i < sol_net_outputs(s->net); i++) {
        const struct sol_io y = sol_net_output(s->net, i);
        io->n[i] = elements(&y, dims);
        io->out[i] = guarded(io->n[i]);
        io->want[i] = malloc((size_t)io->n[i] * sizeof(float) + 1);
    }
}

static inline void io_free(const struct sized *s, struct io *io)
{
    for (int i = 0; i < sol_net_inputs(s->net); i++) free(io->in[i]);
    for (int i = 0; i < sol_net_outputs(s->net); i++) {
        free((char *)io->out[i] - GUARD);
        free(io->want[i]);
    }
}

static inline void interpret(const struct sized *s, const int64_t *dims, struct io *io)
{
    struct sol_graph *at;
    if (graph_at(s->g, dims, &at)) fail_msg("%s", sol_error(ctx));
    if (graph_interpret(at, (const void *const *)io->in, (const void *const *)s->param, (void *const *)io->want))
        fail_msg("%s", sol_error(ctx));
    sol_graph_destroy(at);
}

/* Calls with the dimensions that the shapes of the inputs tell. */
static inline sol_status bind(const struct sized *s, const int64_t *dims, int64_t *out_dims)
{
    int64_t shape[MOST][SOL_MAX_DIMS];
    const int64_t *shapes[MOST];
    for (int i = 0; i < sol_net_inputs(s->net); i++) {
        const struct sol_io x = sol_net_input(s->net, i);
        for (int d = 0; d < x.ndim; d++) shape[i][d] = sol_size_at(x.shape[d], dims);
        shapes[i] = shape[i];
    }
    return sol_net_bind(s->net, shapes, out_dims);
}

static inline sol_status call(const struct sized *s, const int64_t *dims, const struct io *io, int threads)
{
    return sol_net_run_at(s->net, s->params,
                          &(struct sol_call){.dims = dims,
                                             .inputs = (const void *const *)io->in,
                                             .outputs = (void *const *)io->out,
                                             .threads = threads});
}

static inline void compare(const struct sized *s, const struct io *io, const char *sizes)
{
    for (int i = 0; i < sol_net_outputs(s->net); i++) {
        for (int64_t k = 0; k < io->n[i]; k++)
            if (!(fabsf(io->out[i][k] - io->want[i][k]) <= 2e-5F * (4 + fabsf(io->want[i][k]))))
                fail_msg("sizes %s: output %d: element %lld of %lld is %g, expected %g", sizes, i, (long long)k,
                         (long long)io->n[i], (double)io->out[i][k], (double)io->want[i][k]);
        const unsigned char *p = (const unsigned char *)io->out[i];
        for (int64_t k = 0; k < GUARD; k++)
            if (p[-1 - k] != 0xa5 || p[(size_t)io->n[i] * sizeof(float) + (size_t)k] != 0xa5)
                fail_msg("sizes %s: output %d: bytes beside it were written", sizes, i);
    }
}

/* Outputs that later ones are compared with. */
static inline void keep_outputs(const struct sized *s, struct io *io)
{
    for (int i = 0; i < sol_net_outputs(s->net); i++) memcpy(io->want[i], io->out[i], (size_t)io->n[i] * sizeof(float));
}

static inline void same_outputs(const struct sized *s, const struct io *io, const char *sizes, int threads)
{
    for (int i = 0; i < sol_net_outputs(s->net); i++)
        if (memcmp(io->want[i], io->out[i], (size_t)io->n[i] * sizeof(float)))
            fail_msg("sizes %s: output %d: %d threads give other bits", sizes, i, threads);
}

/* Other numbers of threads give the same bits. */
static inline void check_threads(const struct sized *s, const int64_t *dims, struct io *io, const char *sizes)
{
    for (int threads = 2; threads <= 3; threads++) {
        keep_outputs(s, io);
        assert_int_equal(call(s, dims, io, threads), SOL_OK);
        same_outputs(s, io, sizes, threads);
    }
}

/* The results at these sizes are those of the interpreter, and the same bits for any number of threads. */
static inline void run_at(const struct sized *s, const int64_t *dims)
{
    struct io io;
    int64_t bound[MOST];
    char sizes[100];
    snprintf(sizes, sizeof sizes, "%lld %lld %lld", (long long)dims[0], (long long)dims[1], (long long)dims[2]);
    if (bind(s, dims, bound)) fail_msg("%s", sol_error(ctx));
    assert_memory_equal(bound, dims, (size_t)sol_net_dims(s->net) * sizeof *dims);
    io_make(s, dims, &io);
    interpret(s, dims, &io);
    if (call(s, bound, &io, 1)) fail_msg("%s", sol_error(ctx));
    compare(s, &io, sizes);
    check_threads(s, dims, &io, sizes);
    io_free(s, &io);
}

static inline void run_all(const char *text, const int64_t (*dims)[3])
{
    struct sized s;
    open(text, &s);
    for (int i = 0; i < SIZES; i += MIN(step_of_cases(1), 3)) run_at(&s, dims[i]);
    close_sized(&s);
}

#endif
