/* Runtime, with a hand-written module: preparing parameters, also after changes; calls from many threads while
 * parameters change; host steps; errors with their location; forks; lack of memory. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "fail_alloc.h"
#include "runtime/inside.h"
#include "runtime/runtime.h"

enum { N = 8 };
static atomic_int ran[4]; /* by step of `prepare`: how often it ran */

/* The network: y = x * (2 w + 1) + b + host(x), where the host adds 100. `prepare` computes
 *     0: t = 2 w (workspace)   1: v = t + 1   2: q = t * s   3: r = s
 * and forward y1 = x * v (workspace), y2 = host(y1), y = y2 + b. */
static void twice(char *const *p, const struct sol_frame *f, int64_t t0, int64_t t1, int worker)
{
    (void)f, (void)worker;
    if (!t0) ran[0]++;
    for (int64_t i = t0; i < t1; i++) ((float *)p[1])[i] = 2 * ((const float *)p[0])[i];
}

static void plus_one(char *const *p, const struct sol_frame *f, int64_t t0, int64_t t1, int worker)
{
    (void)f, (void)worker;
    if (!t0) ran[1]++;
    for (int64_t i = t0; i < t1; i++) ((float *)p[2])[i] = ((const float *)p[0])[i] + ((const float *)p[1])[0];
}

static void times(char *const *p, const struct sol_frame *f, int64_t t0, int64_t t1, int worker)
{
    (void)worker;
    if (!t0 && f->step == 2) ran[2]++;
    for (int64_t i = t0; i < t1; i++) ((float *)p[2])[i] = ((const float *)p[0])[i] * ((const float *)p[1])[i];
}

static void copy(char *const *p, const struct sol_frame *f, int64_t t0, int64_t t1, int worker)
{
    (void)f, (void)worker;
    if (!t0) ran[3]++;
    for (int64_t i = t0; i < t1; i++) ((float *)p[1])[i] = ((const float *)p[0])[i];
}

/* Copies through the worker's scratch. A value of 99 is an error: index out of range. */
static void plus(char *const *p, const struct sol_frame *f, int64_t t0, int64_t t1, int worker)
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
                                         {4, 10, prepare_steps, prepare_places, 160, 0},
                                         {3, 8, steps, places, 96, 4},
                                         {0},
                                         0};

static sol_status add_hundred(struct sol_ctx *ctx, const void *data, const void *const *in, void *const *out)
{
    for (int i = 0; i < N; i++) {
        ((float *)out[0])[i] = ((const float *)in[0])[i] + *(const float *)data;
        if (((const float *)in[0])[i] == -1000) return ctx_fail(ctx, SOL_ERR_RUN, "top-k: k is too large");
    }
    return SOL_OK;
}

static int closed;
static void close_module(void *handle)
{
    closed += *(int *)handle;
}

static const float hundred = 100;
static int seven = 7;
static const int64_t shape[] = {2, 4};
static const struct sol_io input = {"x", SOL_F32, 2, shape}, output = {"y", SOL_F32, 2, shape};
static const struct sol_io params[] = {{"w", SOL_F32, 2, shape}, {"b", SOL_F32, 2, shape}, {"s", SOL_F32, 2, shape}};
static const struct net_host host[] = {{NULL, NULL, 0}, {add_hundred, &hundred, 1}};
static const struct net_note notes[] = {
    {"scale + opaque", "direct", "model.py:7", false}, {"scale + opaque", "direct", "model.py:7", true}, {0}};
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

static int setup(void **state)
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

static int teardown(void **state)
{
    struct test *t = *state;
    sol_params_destroy(t->params);
    sol_net_destroy(t->net);
    sol_ctx_destroy(t->ctx);
    free(t);
    return 0;
}

static void hand_over(struct test *t)
{
    assert_int_equal(sol_params_set(t->params, 0, t->w), SOL_OK);
    assert_int_equal(sol_params_set(t->params, 1, t->b), SOL_OK);
    assert_int_equal(sol_params_set(t->params, 2, t->s), SOL_OK);
}

static sol_status run(struct test *t, int threads)
{
    const void *in[] = {t->x};
    void *out[] = {t->y};
    return sol_net_run(t->net, t->params, in, out, threads);
}

static void check(struct test *t)
{
    for (int i = 0; i < N; i++) assert_true(t->y[i] == t->x[i] * (2 * t->w[i] + 1) + hundred + t->b[i]);
}

static void expect_ran(int a, int b, int c, int d)
{
    const int want[] = {a, b, c, d};
    for (int i = 0; i < 4; i++) assert_int_equal(atomic_exchange(&ran[i], 0), want[i]);
}

static void expect_error(struct test *t, sol_status got, sol_status want, const char *text)
{
    assert_int_equal(got, want);
    if (!strstr(sol_error(t->ctx), text)) fail_msg("'%s' is not in: %s", text, sol_error(t->ctx));
}

/* -- */

static void runs_and_prepares_what_changed(void **state)
{
    struct test *t = *state;
    expect_ran(0, 0, 0, 0);
    hand_over(t);
    for (int threads = 0; threads < 5; threads++) {
        assert_int_equal(run(t, threads), SOL_OK);
        check(t);
    }
    expect_ran(1, 1, 1, 1);
    t->w[3] = 17;
    sol_params_set(t->params, 0, t->w);
    assert_int_equal(run(t, 1), SOL_OK);
    check(t);
    expect_ran(1, 1, 1, 0);
    t->b[3] = 18; /* it is read in place, so nothing needs preparing, and no call of set_param */
    assert_int_equal(run(t, 1), SOL_OK);
    check(t);
    sol_params_set(t->params, 1, t->b);
    assert_int_equal(run(t, 1), SOL_OK);
    expect_ran(0, 0, 0, 0);
    sol_params_set(t->params, 2,
                   t->s); /* step 2 reads what step 0 left in the workspace, so both run, and step 1 in between */
    assert_int_equal(run(t, 2), SOL_OK);
    check(t);
    expect_ran(1, 1, 1, 1);
    assert_int_equal(run(t, 2), SOL_OK);
    expect_ran(0, 0, 0, 0);
}

static void mistakes_are_named(void **state)
{
    struct test *t = *state;
    sol_params_set(t->params, 0, t->w);
    sol_params_set(t->params, 1, t->b);
    expect_error(t, run(t, 1), SOL_ERR_INVALID, "parameter 2, 's', has no data");
    expect_ran(0, 0, 0, 0);
    sol_params_set(t->params, 2, t->s);
    expect_error(t, sol_params_set(t->params, 3, t->s), SOL_ERR_INVALID, "no parameter 3");
    expect_error(t, sol_net_run(t->net, NULL, NULL, NULL, 1), SOL_ERR_INVALID, "parameters of its own");
    expect_error(t, sol_params_set(t->params, 1, NULL), SOL_ERR_INVALID, "'b', is NULL, expected 32 bytes");
    const void *in[] = {NULL};
    void *out[] = {t->y};
    expect_error(t, sol_net_run(t->net, t->params, in, out, 1), SOL_ERR_INVALID, "input 0, 'x', is NULL");
    expect_error(t, sol_net_run(t->net, t->params, NULL, out, 1), SOL_ERR_INVALID, "input 0, 'x', is NULL");
    in[0] = t->x;
    expect_error(t, sol_net_run(t->net, t->params, in, NULL, 1), SOL_ERR_INVALID, "output 0, 'y', is NULL");
    assert_int_equal(run(t, 1), SOL_OK);
    check(t);
    expect_ran(1, 1, 1, 1);
}

static void errors_of_a_call_name_the_step(void **state)
{
    struct test *t = *state;
    hand_over(t);
    for (int threads = 1; threads < 4; threads++) {
        t->x[0] = -1; /* -1 * (2 * 0 + 1) + 100 */
        expect_error(t, run(t, threads), SOL_ERR_RUN, "network 'hand', 'shift + relu': an index is out of range");
        t->x[0] = -1000;
        expect_error(t, run(t, threads), SOL_ERR_RUN, "network 'hand', 'opaque': top-k: k is too large");
        t->x[0] = 3;
        assert_int_equal(run(t, threads), SOL_OK);
        check(t);
    }
    expect_ran(1, 1, 1, 1);
}

static void what_it_takes_and_needs(void **state)
{
    struct test *t = *state;
    struct sol_memory m;
    assert_int_equal(sol_net_inputs(t->net), 1);
    assert_int_equal(sol_net_outputs(t->net), 1);
    assert_int_equal(sol_net_params(t->net), 3);
    assert_string_equal(sol_net_param_io(t->net, 2).name, "s");
    assert_string_equal(sol_net_input(t->net, 0).name, "x");
    assert_int_equal(sol_net_output(t->net, 0).shape[1], 4);
    assert_null(sol_net_param_io(t->net, 3).name);
    sol_net_memory(t->net, &m);
    assert_int_equal(m.params, 96);
    assert_int_equal(m.prepared, 192);
    assert_int_equal(m.inputs, 32);
    assert_int_equal(m.outputs, 32);
    assert_int_equal(m.workspace, 96 + 64 * rt_processors());
    assert_int_equal(m.peak, 96 + 192 + 4 + MAX(m.workspace + 64, 160));
}

static void profile_has_a_row_a_kernel(void **state)
{
    struct test *t = *state;
    struct sol_profile_row r;
    char *text;
    hand_over(t);
    assert_int_equal(run(t, 2), SOL_OK);
    assert_true(sol_net_profile(t->net, 0, &r) && r.runs == 0);
    assert_int_equal(sol_net_profile_print(t->net, &text), SOL_OK);
    assert_non_null(strstr(text, "no run was measured"));
    sol_free(t->ctx, text);
    sol_config_set(t->ctx, "profile", "1");
    for (int i = 0; i < 70; i++) assert_int_equal(run(t, 2), SOL_OK);
    assert_true(sol_net_profile(t->net, 0, &r)); /* two steps, one kernel */
    assert_string_equal(r.label, "scale + opaque");
    assert_string_equal(r.solver, "direct");
    assert_string_equal(r.where, "model.py:7");
    assert_true(r.runs == 64 && r.least_ns > 0 && r.median_ns >= r.least_ns && !r.backward);
    assert_true(sol_net_profile(t->net, 1, &r)); /* only its label is known */
    assert_string_equal(r.label, "shift + relu");
    assert_true(r.flops == 1.5e6 && r.bytes == 0.25e6 && !*r.solver && !*r.where);
    assert_true(r.of_peak == r.flops / r.median_ns / 100 && r.of_rate == r.bytes / r.median_ns / 40);
    assert_string_equal(r.level, "L2");
    assert_false(sol_net_profile(t->net, 2, &r));
    assert_int_equal(sol_net_profile_print(t->net, &text), SOL_OK);
    assert_non_null(strstr(text, "median of 64 runs"));
    assert_non_null(strstr(text, "\nmachine (given): 2 threads, 100 GFLOP/s; reads L2 40, L3 0, memory 20 GB/s\n"));
    assert_non_null(strstr(text, " scale + opaque (model.py:7)\n"));
    sol_free(t->ctx, text);
    sol_net_profile_clear(t->net);
    assert_true(sol_net_profile(t->net, 0, &r) && r.runs == 0);
}

static struct {
    int begun, ended;
    char last[32];
} told;

static void on_step(void *user, const char *label)
{
    (void)user;
    told.begun += label != NULL;
    told.ended += label == NULL;
    if (label) snprintf(told.last, sizeof told.last, "%s", label);
}

static void tells_of_steps(void **state)
{
    struct test *t = *state;
    hand_over(t);
    assert_int_equal(run(t, 2), SOL_OK);
    memset(&told, 0, sizeof told);
    sol_on_step(t->ctx, on_step);
    assert_int_equal(run(t, 2), SOL_OK);
    assert_true(told.begun == 3 && told.ended == 1);
    assert_string_equal(told.last, "shift + relu");
    sol_on_step(t->ctx, NULL);
    assert_int_equal(run(t, 2), SOL_OK);
    assert_int_equal(told.begun, 3);
}

static void closes_its_module(void **state)
{
    struct test *t = *state;
    closed = 0;
    sol_params_destroy(t->params);
    t->params = NULL;
    sol_net_destroy(t->net);
    t->net = NULL;
    assert_int_equal(closed, 7);
}

/* -- concurrent calls */

struct crowd {
    struct sol_net *net;
    struct sol_params *params;
    float w[2][N], b[N], s[N];
    atomic_int stop, wrong, calls;
};

/* Each result must be that of one w or of the other. */
static void *caller(void *arg)
{
    struct crowd *c = arg;
    float x[N], y[N];
    for (int k = 0; !c->stop; k++) {
        for (int i = 0; i < N; i++) x[i] = (float)(i + k % 7);
        if (sol_net_run(c->net, c->params, (const void *[]){x}, (void *[]){y}, 1 + k % 3)) c->wrong++;
        for (int which = 0, bad = 0; which < 2; which++) {
            bool same = true;
            for (int i = 0; i < N; i++) same &= y[i] == x[i] * (2 * c->w[which][i] + 1) + hundred + c->b[i];
            bad += !same;
            if (bad == 2) c->wrong++;
        }
        c->calls++;
    }
    return NULL;
}

static void crowd_start(struct test *t, struct crowd *c, float least, pthread_t *thread, int n)
{
    memset(c, 0, sizeof *c);
    c->net = t->net;
    c->params = t->params;
    for (int i = 0; i < N; i++) {
        c->w[0][i] = least + (float)i;
        c->w[1][i] = least + (float)(50 - i);
        c->b[i] = c->s[i] = 1;
    }
    sol_params_set(t->params, 0, c->w[0]);
    sol_params_set(t->params, 1, c->b);
    sol_params_set(t->params, 2, c->s);
    for (int i = 0; i < n; i++) assert_int_equal(pthread_create(&thread[i], NULL, caller, c), 0);
    while (c->calls < 10) usleep(100);
}

static void crowd_stop(struct crowd *c, pthread_t *thread, int n)
{
    c->stop = 1;
    for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
    assert_int_equal(c->wrong, 0);
}

static void calls_while_parameters_change(void **state)
{
    struct test *t = *state;
    pthread_t thread[4];
    struct crowd c;
    crowd_start(t, &c, 0, thread, 4);
    for (int k = 0; k < 200; k++) {
        sol_params_set(t->params, 0, c.w[k % 2]);
        const int calls = c.calls;
        while (k % 10 == 0 && c.calls < calls + 3) usleep(100);
    }
    crowd_stop(&c, thread, 4);
    for (int i = 0; i < 4; i++) ran[i] = 0;
}

/* Two owners of a network. One changes its parameters all the time, which the other must not see. */
static void owners_do_not_meet(void **state)
{
    struct test *t = *state;
    struct sol_params *other;
    pthread_t thread[2];
    struct crowd c, d;
    assert_int_equal(sol_params_create(t->net, &other), SOL_OK);
    crowd_start(t, &c, 0, &thread[0], 1);
    struct test u = {.net = t->net, .params = other};
    crowd_start(&u, &d, 1000, &thread[1], 1);
    for (int k = 0; k < 100; k++) {
        sol_params_set(t->params, 0, c.w[k % 2]);
        const int calls = c.calls + d.calls;
        while (k % 10 == 0 && c.calls + d.calls < calls + 6) usleep(100);
    }
    crowd_stop(&c, &thread[0], 1);
    crowd_stop(&d, &thread[1], 1);
    sol_params_destroy(other);
    for (int i = 0; i < 4; i++) ran[i] = 0;
}

static void children_of_a_busy_process(void **state)
{
    struct test *t = *state;
#if defined __SANITIZE_THREAD__
    skip(); /* the sanitizer does not support threads after a fork */
#endif
    pthread_t thread[3];
    struct crowd c;
    int bad = 0;
    crowd_start(t, &c, 0, thread, 3);
    for (int k = 0; k < 10; k++) {
        sol_params_set(t->params, 0, c.w[k % 2]);
        const pid_t child = fork();
        if (!child) {
            alarm(20);
            pthread_t inner[2];
            struct crowd d = {.net = t->net, .params = t->params};
            memcpy(d.w, c.w, sizeof d.w);
            memcpy(d.b, c.b, sizeof d.b);
            for (int i = 0; i < 2; i++) pthread_create(&inner[i], NULL, caller, &d);
            while (d.calls < 20) usleep(100);
            d.stop = 1;
            for (int i = 0; i < 2; i++) pthread_join(inner[i], NULL);
            _exit(d.wrong);
        }
        int status = 0;
        waitpid(child, &status, 0);
        bad += status != 0;
    }
    crowd_stop(&c, thread, 3);
    assert_int_equal(bad, 0);
    for (int i = 0; i < 4; i++) ran[i] = 0;
}

/* -- memory */

static void reads_the_workspace_first(char *const *p, const struct sol_frame *f, int64_t t0, int64_t t1, int worker)
{
    (void)f, (void)worker, (void)t0, (void)t1;
    memcpy(p[1], p[0], 32);
}

static void debug_fills_the_workspace_with_nan(void **state)
{
    struct test *t = *state;
    static const struct sol_buffer b[] = {{SOL_BUFFER_WORKSPACE, 0, 0, 32, NULL, 0, SOL_SPACE_HOST},
                                          {SOL_BUFFER_OUTPUT, 0, 0, 32, NULL, SOL_GIVEN_FORWARD, SOL_SPACE_HOST}};
    static const struct sol_operand p[] = {{0, 0}, {1, 0}};
    static const struct sol_step s[] = {{reads_the_workspace_first, 1, 0, 2, "bug", 0, 0, SOL_STEP_KERNEL, 0, 0, 0}};
    static const struct sol_module m = {.size = sizeof m,
                                        .version = SOL_MODULE_VERSION,
                                        .noutput = 1,
                                        .nbuffer = 2,
                                        .buffer = b,
                                        .forward = {1, 2, s, p, 32, 0}};
    const struct net_parts bug = {.name = "bug", .module = &m, .outputs = &output};
    struct sol_net *net;
    sol_config_set(t->ctx, "compiler::debug", "1");
    assert_int_equal(net_create(t->ctx, arena_create(t->ctx), &bug, &net), SOL_OK);
    struct sol_params *none;
    assert_int_equal(sol_params_create(net, &none), SOL_OK);
    assert_int_equal(sol_net_run(net, none, NULL, (void *[]){t->y}, 1), SOL_OK);
    sol_params_destroy(none);
    for (int i = 0; i < N; i++) assert_true(t->y[i] != t->y[i]);
    sol_net_destroy(net);
}

/* Creating a network rejects a module that no processor can run; the message says what and where. */
static void modules_that_cannot_run(void **state)
{
    struct test *t = *state;
    static const struct sol_operand p[] = {{0, 0}, {1, 0}};
    struct sol_buffer b[] = {{.kind = SOL_BUFFER_WORKSPACE, .bytes = 32}, {.kind = SOL_BUFFER_OUTPUT, .bytes = 32}};
    struct sol_step s = {reads_the_workspace_first, 1, 0, 2, "conv1", 0, 0, SOL_STEP_KERNEL, 0, 0, 0};
    struct sol_module m = {.size = sizeof m,
                           .version = SOL_MODULE_VERSION,
                           .noutput = 1,
                           .nbuffer = 2,
                           .buffer = b,
                           .forward = {1, 2, &s, p, 32, 0}};
    const struct net_parts parts_of_m = {.name = "net", .module = &m, .outputs = &output};
    const struct {
        int32_t kind, space, sizes;
        const char *says;
    } cases[] = {
        {SOL_STEP_LAUNCH, 0, 0, "module of 'net': step 0 (conv1) cannot run: a device is to run it, and there is none"},
        {SOL_STEP_COPY, 0, 0,
         "module of 'net': step 0 (conv1) cannot run: it copies to or from a device, and there is "
         "none"},
        {17, 0, 0, "module of 'net': step 0 (conv1) cannot run: it is of a kind that is not known"},
        {SOL_STEP_TEAM, SOL_SPACE_DEVICE, 0, "module of 'net': buffer 1 is a device's memory, and there is no device"},
        {SOL_STEP_TEAM, 0, 3, "module of 'net': 3 sizes are known only while running: expected fixed sizes"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena *a = arena_create(t->ctx);
        struct sol_net *net;
        s.kind = cases[i].kind;
        b[1].space = cases[i].space;
        m.nsize = cases[i].sizes;
        assert_int_equal(net_create(t->ctx, a, &parts_of_m, &net), SOL_ERR_UNSUPPORTED);
        assert_string_equal(sol_error(t->ctx), cases[i].says);
        arena_destroy(a);
    }
}

static void out_of_memory(void **state)
{
    struct test *t = *state;
    struct sol_ctx *ctx = t->ctx;
    struct sol_net *net = t->net;
    struct sol_params *params = t->params;
    bool failed = true;
    for (long at = 0; failed; at++) {
        struct fail_alloc f = {.fail_at = -1};
        const struct sol_ctx_options o = {.size = sizeof o, .reallocate = fail_alloc, .user = &f};
        assert_int_equal(sol_ctx_create(&o, &t->ctx), SOL_OK);
        sol_config_set(t->ctx, "log::level", "ERROR");
        f.fail_at = f.n + at;
        struct arena *a = arena_create(t->ctx);
        sol_status status = a ? net_create(t->ctx, a, &parts, &t->net) : SOL_ERR_NOMEM;
        if (a && status) arena_destroy(a);
        if (!status && (status = sol_params_create(t->net, &t->params))) sol_net_destroy(t->net);
        if (!status) {
            hand_over(t);
            status = run(t, 2);
            failed = f.n > f.fail_at;
            if (failed) assert_int_equal(status, SOL_ERR_NOMEM);
            assert_int_equal(run(t, 2), SOL_OK); /* memory is available again */
            check(t);
            sol_params_destroy(t->params);
            sol_net_destroy(t->net);
        }
        sol_ctx_destroy(t->ctx);
        assert_int_equal(f.alive, 0);
    }
    t->ctx = ctx;
    t->net = net;
    t->params = params;
    for (int i = 0; i < 4; i++) ran[i] = 0;
}

/* Is the mapping around `at` marked for huge pages? -1: the system does not tell. */
static int wants_huge(const char *at)
{
    FILE *f = fopen("/proc/self/smaps", "r");
    char line[512];
    bool inside = false;
    int answer = -1;
    while (f && fgets(line, sizeof line, f)) {
        unsigned long begin, end;
        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2) inside = begin <= (uintptr_t)at && (uintptr_t)at < end;
        if (inside && !strncmp(line, "VmFlags:", 8)) answer = strstr(line, " hg") != NULL;
    }
    if (f) fclose(f);
    return answer;
}

/* The pages of a large output are marked as huge: only whole pages inside it, no byte of its neighbours. */
static void large_outputs_get_huge_pages(void **state)
{
    (void)state;
    enum { HUGE = 2 << 20, LARGE = 33 << 20 };
    const size_t room = LARGE + 3 * (size_t)HUGE;
    char *map = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    if (access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) || wants_huge(map) < 0) {
        munmap(map, room);
        skip(); /* no huge pages, or the system does not tell */
    }
    char *whole = map + (HUGE - (uintptr_t)map % HUGE) % HUGE + HUGE;
    block_fresh(whole - 64, LARGE / 2);
    assert_int_equal(wants_huge(map), 0); /* small outputs are not marked */
    block_fresh(whole - 64, LARGE);
    assert_int_equal(wants_huge(whole), 1);
    assert_int_equal(wants_huge(map), 0);
    char *end = whole + (LARGE - 64) / HUGE * HUGE;
    assert_int_equal(wants_huge(end), 0);
    munmap(map, room);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(runs_and_prepares_what_changed),
        TEST(mistakes_are_named),
        TEST(errors_of_a_call_name_the_step),
        TEST(what_it_takes_and_needs),
        TEST(profile_has_a_row_a_kernel),
        TEST(tells_of_steps),
        TEST(closes_its_module),
        TEST(calls_while_parameters_change),
        TEST(owners_do_not_meet),
        TEST(children_of_a_busy_process),
        TEST(debug_fills_the_workspace_with_nan),
        TEST(modules_that_cannot_run),
        TEST(out_of_memory),
        TEST(large_outputs_get_huge_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
