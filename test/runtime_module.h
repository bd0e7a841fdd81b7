/* A module that is written by hand, with the network that runs it, for tests of the runtime. */
#ifndef SOL_RUNTIME_MODULE_H
#define SOL_RUNTIME_MODULE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/inside.h"
#include "runtime/runtime.h"

enum { N = 8 };
static atomic_int ran[4]; /* by step of `prepare`: how often it ran */

/* The network: y = x * (2 w + 1) + b + host(x), where the host adds 100. `prepare` computes
 *     0: t = 2 w (workspace)   1: v = t + 1   2: q = t * s   3: r = s
 * and forward y1 = x * v (workspace), y2 = host(y1), y = y2 + b. */
static inline void twice(char *const *p, const struct sol_frame *f, int64_t t0, int64_t t1, int worker)
{
    (void)f, (void)worker;
    if (!t0) ran[0]++;
    for (int64_t i = t0; i < t1; i++) ((float *)p[1])[i] = 2 * ((const float *)p[0])[i];
}

static inline void plus_one(char *const *p, const struct sol_frame *f, int64_t t0, int64_t t1, int worker)
{
    (void)f, (void)worker;
    if (!t0) ran[1]++;
    for (int64_t i = t0; i < t1; i++) ((float *)p[2])[i] = ((const float *)p[0])[i] + ((const float *)p[1])[0];
}

static inline void times(char *const *p, const struct sol_frame *f, int64_t t0, int64_t t1, int worker)
{
    (void)worker;
    if (!t0 && f->step == 2) ran[2]++;
    for (int64_t i = t0; i < t1; i++) ((float *)p[2])[i] = ((const float *)p[0])[i] * ((const float *)p[1])[i];
}

static inline void copy(char *const *p, const struct sol_frame *f, int64_t t0, int64_t t1, int worker)
{
    (void)f, (void)worker;
    if (!t0) ran[3]++;
    for (int64_t i = t0; i < t1; i++) ((float *)p[1])[i] = ((const float *)p[0])[i];
}

/* Copies through the worker's scratch. A value of 99 is an error: index out of range. */
static inline void plus(char *const *p, const struct sol_frame *f, int64_t t0, int64_t t1, int worker)
{
    float *mine = (float *)((char *)f->scratch + worker * f->scratch_bytes);
    if ((uintptr_t)mine % 64) abort();
    for (int64_t i = t0; i < t1; i++) {
        mine[0] = ((const float *)p[0])[i];
        if (mine[0] == 99) {
            *f->error_step = f->step;
            *f->error = SOL_KERNEL_INDEX;
        }
        ((float *)p[2])[i] = mine[0] + ((const float *)p[1])[i];
    }
}

enum { X, Y, W, B, S, T, V, Q, R, ONE, Y1, Y2, BUFFERS };
static const float one[1] = {1};
static const struct sol_buffer buffers[BUFFERS] = {
    [X] = {SOL_BUFFER_INPUT, 0, 0, 32, NULL, SOL_GIVEN_FORWARD, SOL_SPACE_HOST},
    [Y] = {SOL_BUFFER_OUTPUT, 0, 0, 32, NULL, SOL_GIVEN_FORWARD, SOL_SPACE_HOST},
    [W] = {SOL_BUFFER_PARAM, 0, 0, 32, NULL, 0, SOL_SPACE_HOST},
    [B] = {SOL_BUFFER_PARAM, 1, 0, 32, NULL, 0, SOL_SPACE_HOST},
    [S] = {SOL_BUFFER_PARAM, 2, 0, 32, NULL, 0, SOL_SPACE_HOST},
    [T] = {SOL_BUFFER_WORKSPACE, 0, 128, 32, NULL, 0, SOL_SPACE_HOST},
    [V] = {SOL_BUFFER_PREPARED, 0, 0, 32, NULL, 0, SOL_SPACE_HOST},
    [Q] = {SOL_BUFFER_PREPARED, 0, 64, 32, NULL, 0, SOL_SPACE_HOST},
    [R] = {SOL_BUFFER_PREPARED, 0, 128, 32, NULL, 0, SOL_SPACE_HOST},
    [ONE] = {SOL_BUFFER_CONST, 0, 0, 4, one, 0, SOL_SPACE_HOST},
    [Y1] = {SOL_BUFFER_WORKSPACE, 0, 0, 32, NULL, 0, SOL_SPACE_HOST},
    [Y2] = {SOL_BUFFER_WORKSPACE, 0, 64, 32, NULL, 0, SOL_SPACE_HOST},
};
static const struct sol_operand prepare_places[] = {{W, 0}, {T, 0},           /* twice */
                                                    {T, 0}, {ONE, 0}, {V, 0}, /* plus_one */
                                                    {T, 0}, {S, 0},   {Q, 0}, /* times */
                                                    {S, 0}, {R, 0}};          /* copy */
static const struct sol_step prepare_steps[] = {{twice, N, 0, 2, "twice", 0, 1, SOL_STEP_KERNEL, 0, 0, 0},
                                                {plus_one, N, 2, 3, "plus one", 0, 1, SOL_STEP_KERNEL, 0, 0, 0},
                                                {times, N, 5, 3, "times", 0, 2, SOL_STEP_KERNEL, 0, 0, 0},
                                                {copy, N, 8, 2, "copy", 1, 1, SOL_STEP_KERNEL, 0, 0, 0}};
static const int32_t depends[] = {0, 2};
static const struct sol_operand places[] = {{X, 0}, {V, 0}, {Y1, 0}, {Y1, 0}, {Y2, 0}, {Y2, 0}, {B, 0}, {Y, 0}};
static const struct sol_step steps[] = {{times, N, 0, 3, "scale", 0, 0, SOL_STEP_KERNEL, 0, 0, 0},
                                        {NULL, 1, 3, 2, "opaque", 0, 0, SOL_STEP_HOST, 1, 0, 0},
                                        {plus, N, 5, 3, "shift + relu", 0, 0, SOL_STEP_KERNEL, 0, 1.5e6f, 0.25e6f}};
static const struct sol_module module = {sizeof module,
                                         SOL_MODULE_VERSION,
                                         1,
                                         1,
                                         3,
                                         BUFFERS,
                                         buffers,
                                         depends,
                                         192,
                                         0,
                                         {4, 10, prepare_steps, prepare_places, 160, 0, 0, NULL},
                                         {3, 8, steps, places, 96, 4, 0, NULL},
                                         {0},
                                         0,
                                         0,
                                         0,
                                         0,
                                         NULL,
                                         NULL,
                                         NULL};

static inline sol_status add_hundred(struct sol_ctx *ctx, const void *data, int64_t *sizes, const void *const *in,
                                     void *const *out)
{
    (void)sizes;
    for (int i = 0; i < N; i++) {
        ((float *)out[0])[i] = ((const float *)in[0])[i] + *(const float *)data;
        if (((const float *)in[0])[i] == -1000) return ctx_fail(ctx, SOL_ERR_RUN, "top-k: k is too large");
    }
    return SOL_OK;
}

static int closed;
static inline void close_module(void *handle)
{
    closed += *(int *)handle;
}

static const float hundred = 100;
static int seven = 7;
static const int64_t shape[] = {2, 4};
static const struct sol_io input = {"x", SOL_F32, 2, shape}, output = {"y", SOL_F32, 2, shape};
static const struct sol_io params[] = {{"w", SOL_F32, 2, shape}, {"b", SOL_F32, 2, shape}, {"s", SOL_F32, 2, shape}};
static const int64_t operand_bytes[] = {32, 32};
static const struct net_host host[] = {{.set = -1}, {add_hundred, &hundred, 1, 1, -1, operand_bytes}};
static const struct net_note notes[] = {
    {.label = "scale + opaque", .solver = "direct", .where = "model.py:7"},
    {.label = "scale + opaque", .solver = "direct", .where = "model.py:7", .continues = true},
    {0}};
static const struct net_parts parts = {
    .name = "hand",
    .module = &module,
    .inputs = &input,
    .outputs = &output,
    .params = params,
    .host = host,
    .nhost = 2,
    .notes = {notes, NULL},
    .close = close_module,
    .handle = &seven,
    .machine = {.source = "given", .threads = 2, .flops = 100, .l2_rate = 40, .l2_bytes = 1 << 20, .memory_rate = 20}};

struct test {
    struct sol_ctx *ctx;
    struct sol_net *net;
    struct sol_params *params;
    float w[N], b[N], s[N], x[N], y[N];
};

static inline int setup(void **state)
{
    struct test *t = calloc(1, sizeof *t);
    if (sol_ctx_create(NULL, &t->ctx)) return 1;
    sol_config_set(t->ctx, "log::level", "ERROR");
    if (net_create(t->ctx, arena_create(t->ctx), &parts, &t->net)) return 1;
    if (sol_params_create(t->net, &t->params)) return 1;
    for (int i = 0; i < N; i++) {
        t->w[i] = (float)i;
        t->b[i] = 10.0f * (float)i;
        t->s[i] = 1;
        t->x[i] = (float)(i - 3);
    }
    *state = t;
    return 0;
}

static inline int teardown(void **state)
{
    struct test *t = *state;
    sol_params_destroy(t->params);
    sol_net_destroy(t->net);
    sol_ctx_destroy(t->ctx);
    free(t);
    return 0;
}

static inline void hand_over(struct test *t)
{
    assert_int_equal(sol_params_set(t->params, 0, t->w), SOL_OK);
    assert_int_equal(sol_params_set(t->params, 1, t->b), SOL_OK);
    assert_int_equal(sol_params_set(t->params, 2, t->s), SOL_OK);
}

static inline sol_status run(struct test *t, int threads)
{
    const void *in[] = {t->x};
    void *out[] = {t->y};
    return sol_net_run(t->net, t->params, in, out, threads);
}

static inline void check(struct test *t)
{
    for (int i = 0; i < N; i++) assert_true(t->y[i] == t->x[i] * (2 * t->w[i] + 1) + hundred + t->b[i]);
}

static inline void expect_ran(int a, int b, int c, int d)
{
    const int want[] = {a, b, c, d};
    for (int i = 0; i < 4; i++) assert_int_equal(atomic_exchange(&ran[i], 0), want[i]);
}

static inline void expect_error(struct test *t, sol_status got, sol_status want, const char *text)
{
    assert_int_equal(got, want);
    if (!strstr(sol_error(t->ctx), text)) fail_msg("'%s' is not in: %s", text, sol_error(t->ctx));
}

#endif
