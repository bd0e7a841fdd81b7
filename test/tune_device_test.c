/* Networks of other devices are tuned there, by the devices' own times: on far and on all OpenCL devices. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "context.h"
#include "device/device.h"
#include "tune/tune.h"

/* 170 MFLOP: a network that takes less than 50 us is not tuned */
static const char graph[] = "graph \"net\"\ninput %0:f32[2 32 48 48] \"x\"\nparam %1:f32[64 32 3 3] \"w\"\n"
                            "param %2:f32[10 64] \"v\"\n%3 = Conv(%0, %1) p=1 q=1\n%4 = relu(%3)\n"
                            "%5 = Mean(%4) axes=[2,3]\n%6 = Linear(%5, %2)\noutput %6 \"y\"\n";
enum { IN = 2 * 32 * 48 * 48, CONV = 64 * 32 * 9, LINEAR = 10 * 64, OUT = 2 * 10 };

struct place { /* a context with a cache of its own */
    char folder[64];
    struct sol_ctx *ctx;
    int tuned;  /* log lines about tuned networks */
    int trials; /* in the last of them */
};

static void on_log(void *user, int level, const char *line)
{
    struct place *p = user;
    (void)level;
    const char *trials = strstr(line, "changed, ");
    if (!strstr(line, "Tuning: net: ")) return;
    p->tuned++;
    trials = trials ? strstr(trials, "ms, ") : NULL;
    p->trials = trials ? atoi(trials + strlen("ms, ")) : 0;
}

static void open_place(struct place *p)
{
    *p = (struct place){.folder = "/tmp/sol-tune-test-XXXXXX"};
    const struct sol_ctx_options o = {.size = sizeof o, .log = on_log, .user = p};
    assert_non_null(mkdtemp(p->folder));
    assert_int_equal(sol_ctx_create(&o, &p->ctx), SOL_OK);
    assert_int_equal(sol_config_set(p->ctx, "cache::folder", p->folder), SOL_OK);
    assert_int_equal(sol_config_set(p->ctx, "log::level", "DEBUG"), SOL_OK);
}

static void close_place(struct place *p)
{
    char command[100];
    sol_ctx_destroy(p->ctx);
    snprintf(command, sizeof command, "rm -rf '%s'", p->folder);
    assert_int_equal(system(command), 0);
}

static float value(int i, int seed)
{
    return (float)((i * 37 + seed * 11) % 101) / 101 - 0.5f;
}

static void compute(struct place *p, const char *device, const char *autotune, float y[OUT])
{
    static float x[IN], conv[CONV], linear[LINEAR];
    struct sol_graph *g;
    struct sol_net *net = NULL;
    struct sol_params *params;
    for (int i = 0; i < IN; i++) x[i] = value(i, 1);
    for (int i = 0; i < CONV; i++) conv[i] = value(i, 2);
    for (int i = 0; i < LINEAR; i++) linear[i] = value(i, 3);
    assert_int_equal(sol_device_select(p->ctx, device), SOL_OK);
    assert_int_equal(sol_config_set(p->ctx, "autotune", autotune), SOL_OK);
    if (sol_graph_parse(p->ctx, graph, &g) || sol_compile(p->ctx, g, &net)) fail_msg("%s", sol_error(p->ctx));
    assert_int_equal(sol_params_create(net, &params), SOL_OK);
    sol_params_set(params, 0, conv);
    sol_params_set(params, 1, linear);
    if (sol_net_run(net, params, (const void *const[]){x}, (void *const[]){y}, 2)) fail_msg("%s", sol_error(p->ctx));
    sol_params_destroy(params);
    sol_net_destroy(net);
    sol_graph_destroy(g);
}

/* Lines of wisdom about devices of a type. */
static int lines(const struct place *p, const char *type)
{
    struct arena *a = arena_create(p->ctx);
    const struct wisdom *w = wisdom_load(p->ctx, a);
    int n = 0;
    for (int i = 0; i < w->entries.n; i++) {
        const struct wisdom_entry *e = w->entries.at[i];
        n += !strncmp(e->machine, type, strlen(type)) && e->machine[strlen(type)] == ',';
    }
    arena_destroy(a);
    return n;
}

/* Trials are about the device that they ran on, the result stays what it was, and the second time nothing is tried. */
static void check_device(const char *device, const char *type)
{
    struct place p;
    float want[OUT], got[OUT], again[OUT];
    open_place(&p);
    compute(&p, "x86", "off", want);
    for (int s = 4; !p.trials && s < 100; s *= 2) { /* on a busy machine there may be no time for trials */
        char seconds[8];
        snprintf(seconds, sizeof seconds, "%d", s);
        p.tuned = 0;
        compute(&p, device, seconds, got);
        assert_int_equal(p.tuned, 1);
    }
    assert_true(p.trials > 0 && lines(&p, type) > 0);
    assert_int_equal(lines(&p, "x86 64B") + lines(&p, "x86 32B"), 0);
    compute(&p, device, "3", again);
    assert_int_equal(p.tuned, 1);
    assert_memory_equal(got, again, sizeof got);
    for (int i = 0; i < OUT; i++) assert_true(fabs((double)got[i] - (double)want[i]) < 1e-4);
    close_place(&p);
}

static void far_is_tuned(void **state)
{
    (void)state;
    check_device("far", "far");
}

static void check_opencl(void *user, const struct sol_device_info *info)
{
    char name[40];
    (void)user;
    snprintf(name, sizeof name, "opencl:%d", info->index);
    if (!strcmp(info->type, "opencl") && !*info->why) check_device(name, "opencl");
}

static void opencl_is_tuned(void **state)
{
    (void)state;
    assert_int_equal(sol_devices(ctx, check_opencl, NULL), SOL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(far_is_tuned), cmocka_unit_test(opencl_is_tuned)};
    return cmocka_run_group_tests(tests, make_ctx, drop_ctx);
}
