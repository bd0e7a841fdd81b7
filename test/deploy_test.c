/* Deployment from C: keys, rejected models, written files, lack of memory. test/python/test_deploy.py tests the results
 * of deployed code. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "deploy/hash.h"
#include "fail_alloc.h"
#include "sol/deploy.h"

static const char text[] = "graph \"small\"\n"
                           "input %0:f32[1 4 6 6] \"x\"\n"
                           "param %1:f32[8 4 3 3] \"w\"\n"
                           "const %2:f32[1] = 0.5\n"
                           "%3:f32[1 8 4 4] = Conv(%0, %1, -)\n"
                           "%4:f32[1 8 4 4] = mul(%3, %2)\n"
                           "output %4 \"y\"\n";
static float weights[8 * 4 * 9];
static char folder[64];

static sol_status deploy(struct sol_ctx *ctx, const char *graph, const char *target, int nkeys,
                         const struct sol_deploy_key *more)
{
    const void *params[] = {weights};
    struct sol_deploy_key keys[8] = {{"path", folder}, {"lib_name", "libnet"}, {"func_name", "net"}};
    struct sol_graph *g;
    for (int i = 0; i < nkeys; i++) keys[3 + i] = more[i];
    const struct sol_deploy_options o = {
        .size = sizeof o, .target = target, .nkeys = 3 + nkeys, .keys = keys, .params = params, .seed_input = -1};
    sol_status status = sol_graph_parse(ctx, graph, &g);
    if (status) return status;
    status = sol_deploy(ctx, g, &o);
    sol_graph_destroy(g);
    return status;
}

static int make_folder(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) weights[i] = (float)(i % 7) - 3;
    strcpy(folder, "/tmp/sol-deploy-test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static int there(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return !access(path, R_OK);
}

static void files(void **state)
{
    struct sol_ctx *ctx;
    (void)state;
    assert_int_equal(sol_ctx_create(NULL, &ctx), SOL_OK);
    assert_int_equal(
        deploy(ctx, text, "sol.deployment.source", 1, &(struct sol_deploy_key){"gcc::march", "x86-64-v3,x86-64-v2"}),
        SOL_OK);
    static const char *const names[] = {"libnet.h",    "libnet.c",       "libnet_network.c",   "libnet_weights.c",
                                        "Makefile",    "example.c",      "x86_64_v3/module.c", "x86_64_v2/vectors.h",
                                        "rt/sol_rt.c", "deploy/front.c", "sol/module.h",       "libnet.weights"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) assert_true(there(names[i]));
    sol_ctx_destroy(ctx);
}

static void rejected(void **state)
{
    static const struct {
        const char *key, *value, *why;
    } rows[] = {
        {"lib_nam", "x", "no key 'lib_nam'; the keys are lib_name"},
        {"weights", "here", "expected inside|file, got 'here'"},
        {"gcc::march", "x86-64;ls", "not a valid value for gcc or ld"},
        {"gcc::march", "-o", "not a valid value for gcc or ld"},
        {"gcc::march", "no-such-cpu", "gcc::march 'no-such-cpu'"},
        {"device_type", "gpu", "expected auto, x86, arm64, arm, riscv64, opencl, nvidia, ve, got 'gpu'"},
        {"nvidia::cc", "70", "nvidia::cc: device_type is auto"},
    };
    struct sol_ctx *ctx;
    (void)state;
    assert_int_equal(sol_ctx_create(NULL, &ctx), SOL_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_not_equal(deploy(ctx, text, "source", 1, &(struct sol_deploy_key){rows[i].key, rows[i].value}),
                             SOL_OK);
        if (!strstr(sol_error(ctx), rows[i].why)) fail_msg("%s: %s", rows[i].value, sol_error(ctx));
    }
    assert_int_equal(deploy(ctx, text, "program", 0, NULL), SOL_ERR_INVALID);
    const char *otherwise, *doc;
    assert_string_equal(sol_deploy_key_at(0, &otherwise, &doc), "lib_name");
    assert_string_equal(otherwise, "libsolpredict");
    assert_null(sol_deploy_key_at(100, NULL, NULL));
    sol_ctx_destroy(ctx);
}

/* Graphs for different batch sizes must have the same inputs and outputs. */
static void several(void **state)
{
    static const char
        other[] = "graph \"o\"\ninput %0:i64[4] \"x\"\n%1:i64[4], %2:i64[4] = Sort(%0) axis=0\noutput %1 \"y\"\n",
        same[] = "graph \"o\"\ninput %0:f32[4] \"x\"\n%1:f32[4], %2:i64[4] = Sort(%0) axis=0\noutput %1 \"y\"\n",
        sized[] = "graph \"o\"\ndim #0 \"rows\" hint=2 min=1\ninput %0:f32[#0] \"x\"\n%1, %2 = Sort(%0) axis=0\noutput "
                  "%1 \"y\"\n";
    static const struct {
        const char *text;
        int64_t batch, more;
        sol_status status;
        const char *why;
    } rows[] = {
        {other, 1, 2, SOL_ERR_UNSUPPORTED, "for batch size 2 it has other inputs or outputs than for 1"},
        {same, 2, 2, SOL_ERR_INVALID, "batch size 2: given twice"},
        {same, 0, 2, SOL_ERR_INVALID, "expected a number from 1 on, got 0"},
        {same, 1, 2, SOL_OK, ""},
        {sized, 1, 2, SOL_ERR_UNSUPPORTED, "'rows' varies: let the batch vary, too, or fix the other sizes"},
    };
    struct sol_ctx *ctx;
    (void)state;
    assert_int_equal(sol_ctx_create(NULL, &ctx), SOL_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sol_graph *g, *more;
        assert_int_equal(sol_graph_parse(ctx, same, &g), SOL_OK);
        assert_int_equal(sol_graph_parse(ctx, rows[i].text, &more), SOL_OK);
        const struct sol_deploy_graph graph = {.graph = more, .seed_input = -1, .batch = rows[i].more};
        const struct sol_deploy_options o = {.size = sizeof o,
                                             .target = "source",
                                             .nkeys = 1,
                                             .keys = &(struct sol_deploy_key){"path", folder},
                                             .seed_input = -1,
                                             .batch = rows[i].batch,
                                             .nmore = 1,
                                             .more = &graph};
        assert_int_equal(sol_deploy(ctx, g, &o), rows[i].status);
        if (rows[i].status && !strstr(sol_error(ctx), rows[i].why)) fail_msg("%s", sol_error(ctx));
        sol_graph_destroy(g);
        sol_graph_destroy(more);
    }
    sol_ctx_destroy(ctx);
}

/* Dimensions that vary are arguments, with names that C accepts. */
static void dimensions(void **state)
{
    static const char names[] = "graph \"named\"\n"
                                "dim #0 \"int\" hint=2 min=1 max=9\n"
                                "dim #1 \"in0\" hint=3 min=0 max=8\n"
                                "dim #2 \"x.1\" hint=4 min=2 max=8 multiple=2\n"
                                "dim #3 \"X_1\" hint=4 min=1 max=70\n"
                                "dim #4 \"#4\" hint=4 min=1 max=70\n"
                                "input %0:f32[#0 #1 #2] \"x\"\n"
                                "input %1:f32[#3 #4] \"z\"\n"
                                "%2 = relu(%0)\n"
                                "%3 = relu(%1)\n"
                                "output %2 \"y\"\n"
                                "output %3 \"w\"\n";
    static const char unlimited[] = "graph \"u\"\ndim #0 \"rows\" hint=2 min=1\ninput %0:f32[#0] \"x\"\n"
                                    "%1 = relu(%0)\noutput %1 \"y\"\n";
    static const struct sol_deploy_key bare[] = {{"threads", "0"}};
    struct sol_ctx *ctx;
    char path[256], header[1 << 14] = "";
    (void)state;
    assert_int_equal(sol_ctx_create(NULL, &ctx), SOL_OK);
    if (deploy(ctx, names, "source", 0, NULL)) fail_msg("%s", sol_error(ctx));
    snprintf(path, sizeof path, "%s/libnet.h", folder);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_true(fread(header, 1, sizeof header - 1, f) > 0);
    fclose(f);
    static const char *const there[] = {
        "f32[int_, in0_size, x_1]  \"x\"",
        " *   x_1: 2..8, a multiple of 2\n",
        "void net(void *ctx, int64_t int_, int64_t in0_size, int64_t x_1, int64_t X_1_size, int64_t dim4, const",
        "#define NET_X_1_SIZE_MAX 70\n",
        "#define NET_IN0_MOST_ELEMENTS 576\n",
    };
    for (size_t i = 0; i < sizeof there / sizeof *there; i++)
        if (!strstr(header, there[i])) fail_msg("no '%s' in: %.900s", there[i], header);
    assert_int_equal(deploy(ctx, unlimited, "source", 1, bare), SOL_ERR_INVALID);
    assert_non_null(strstr(sol_error(ctx), "'rows' has no largest size: give one"));
    sol_ctx_destroy(ctx);
}

static void out_of_memory(void **state)
{
    struct fail_alloc f = {.fail_at = -1};
    const struct sol_ctx_options o = {.size = sizeof o, .reallocate = fail_alloc, .user = &f};
    (void)state;
    long step = 1, failed = 0;
    for (long at = -2; at < 1000000; at += step) { /* what a process does once is not counted */
        struct sol_ctx *ctx;
        f.fail_at = -1;
        assert_int_equal(sol_ctx_create(&o, &ctx), SOL_OK);
        f.fail_at = at < 0 ? -1 : f.n + at;
        const long before = f.n;
        const sol_status status = deploy(ctx, text, "source", 0, NULL);
        if (at == -1) step = (f.n - before) / 20 + 1;
        if (status) assert_int_equal(status, SOL_ERR_NOMEM);
        failed += status != SOL_OK;
        f.fail_at = -1;
        sol_ctx_destroy(ctx);
        assert_int_equal(f.alive, 0);
        if (!status && at >= 0) break;
    }
    assert_true(failed > 5);
}

static void hashes(void **state)
{
    unsigned char data[200] = {0};
    (void)state;
    const uint64_t all = front_hash(data, sizeof data);
    assert_true(all != front_hash(data, sizeof data - 1));
    for (size_t i = 0; i < sizeof data; i++) { /* every byte counts */
        data[i] = 1;
        assert_true(front_hash(data, sizeof data) != all);
        data[i] = 0;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files),      cmocka_unit_test(rejected),      cmocka_unit_test(several),
        cmocka_unit_test(dimensions), cmocka_unit_test(out_of_memory), cmocka_unit_test(hashes),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
