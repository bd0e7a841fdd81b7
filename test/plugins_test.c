/* Plug-ins that are installed compute what SOL computes, where wisdom names them, and only in networks compiled to run
 * here. A file that is not a plug-in is ignored. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "build/build.h"
#include "dnn/dnn.h"
#include "passes/passes.h"
#include "tune/tune.h"

struct place {
    char folder[64];
    struct sol_ctx *ctx;
    struct arena *a;
    const char *solver; /* log lines that name it as the solver of a unit are counted */
    int units, warnings;
};

static void on_log(void *user, int level, const char *line)
{
    struct place *p = user;
    char word[64];
    snprintf(word, sizeof word, "forward  %s ", p->solver ? p->solver : "-");
    (void)level;
    p->units += strstr(line, word) != NULL;
    p->warnings += strstr(line, "is not used") != NULL;
}

static int setup(void **state)
{
    struct place *p = calloc(1, sizeof *p);
    strcpy(p->folder, "/tmp/sol-plugins-test-XXXXXX");
    assert_non_null(mkdtemp(p->folder));
    const struct sol_ctx_options o = {.size = sizeof o, .log = on_log, .user = p};
    assert_int_equal(sol_ctx_create(&o, &p->ctx), SOL_OK);
    char cache[sizeof p->folder + 8]; /* empty, so that wisdom can be saved there before anything is built */
    snprintf(cache, sizeof cache, "%s/cache", p->folder);
    assert_int_equal(mkdir(cache, 0700), 0);
    assert_int_equal(sol_config_set(p->ctx, "cache::folder", cache), SOL_OK);
    assert_int_equal(sol_config_set(p->ctx, "log::level", "DEBUG"), SOL_OK);
    assert_int_equal(sol_config_set(p->ctx, "bands", "off"), SOL_OK); /* each unit is visible */
    p->a = arena_create(p->ctx);
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    struct place *p = *state;
    arena_destroy(p->a);
    sol_ctx_destroy(p->ctx);
    folder_remove(p->folder);
    free(p);
    return 0;
}

/* Products of many kinds: rows and columns that do not fill vectors, transposed operands, batches, epilogues. */
static const char *const graphs[] = {
    "input %0:f32[37 50]\nparam %1:f32[67 50]\nparam %2:f32[67]\n%3 = Linear(%0, %1, %2)\n%4 = relu(%3)\noutput %4",
    "input %0:f32[3 40 33]\nparam %1:f32[3 33 21]\n%2 = MatMul(%0, %1)\noutput %2",
    "input %0:f32[3 33 40]\nparam %1:f32[3 21 33]\n%2 = Permute(%0) perm=[0,2,1]\n%3 = Permute(%1) perm=[0,2,1]\n"
    "%4 = MatMul(%2, %3)\noutput %4",
    "input %0:f32[2 24 9 7]\nparam %1:f32[300 24 1 1]\nparam %2:f32[300]\nparam %3:f32[40 300 1 1]\n"
    "%4 = Conv(%0, %1, %2)\n%5 = relu(%4)\n%6 = Conv(%5, %3)\n%7 = tanh(%6)\noutput %7",
};

/* Convolutions: borders outside of memory and inside of it, strides, dilations, groups, one to three dimensions,
 * several images, channels that do not fill vectors. */
static const char *const convolutions[] = {
    "input %0:f32[2 35 13 11]\nparam %1:f32[67 35 3 3]\nparam %2:f32[67]\nparam %3:f32[40 67 3 3]\n"
    "%4 = Conv(%0, %1, %2) p=1 q=1\n%5 = relu(%4)\n%6 = Conv(%5, %3) s=2 p=1 q=1\n%7 = tanh(%6)\noutput %7",
    "input %0:f32[1 32 14 14]\nparam %1:f32[32 32 3 3]\nparam %2:f32[48 32 1 1]\nparam %3:f32[32 48 5 5]\n"
    "%4 = Conv(%0, %1) d=2 p=2 q=2\n%5 = relu(%4)\n%6 = Conv(%5, %2) s=2\n%7 = Conv(%6, %3) p=2 q=2\noutput %7",
    "input %0:f32[1 48 15 9]\nparam %1:f32[48 1 3 3]\nparam %2:f32[64 12 3 3]\n"
    "%3 = Conv(%0, %1) g=48 p=1 q=1\n%4 = relu(%3)\n%5 = Conv(%4, %2) g=4 p=1 q=1\noutput %5",
    "input %0:f32[2 16 50]\nparam %1:f32[32 16 5]\n%2 = Conv(%0, %1) p=2 q=2\n%3 = relu(%2)\noutput %3",
    "input %0:f32[1 16 6 7 8]\nparam %1:f32[32 16 3 3 3]\n%2 = Conv(%0, %1) p=1 q=1\n%3 = relu(%2)\noutput %3",
};

static const char band[] =
    "input %0:f32[1 16 28 28]\nparam %1:f32[96 16 1 1]\nparam %2:f32[96 1 3 3]\nparam %3:f32[24 96 1 1]\n"
    "%4 = Conv(%0, %1)\n%5 = relu(%4)\n%6 = Conv(%5, %2) g=96 p=1 q=1\n%7 = relu(%6)\n%8 = Conv(%7, %3)\noutput %8";

/* The result, compiled with the current configuration and wisdom. */
static float *run(struct place *p, const char *graph, int64_t *out_n)
{
    struct sol_graph *g;
    struct sol_net *net = NULL;
    struct sol_params *params;
    struct trial_data d = {.dims = NULL};
    if (sol_graph_parse(p->ctx, graph, &g) || sol_compile(p->ctx, g, &net)) fail_msg("%s", sol_error(p->ctx));
    assert_true(trial_data_make(p->a, net, &d));
    assert_int_equal(trial_params(net, &d, &params), SOL_OK);
    if (sol_net_run(net, params, d.inputs, d.outputs, 2)) fail_msg("%s", sol_error(p->ctx));
    const struct sol_io io = sol_net_output(net, 0);
    *out_n = 1;
    for (int i = 0; i < io.ndim; i++) *out_n *= io.shape[i];
    sol_params_destroy(params);
    sol_net_destroy(net);
    sol_graph_destroy(g);
    return d.outputs[0];
}

/* Makes wisdom name a solver for every unit that it applies to. Returns the number of units with candidate `number`. */
static int advise(struct place *p, const char *graph, const char *solver, int number)
{
    struct target t;
    struct sol_graph *g;
    struct plan *plan = NULL;
    int n = 0;
    target_host(&t);
    struct wisdom_policy *wp = wisdom_policy_make(p->ctx, p->a, &t, NULL);
    wp->policy.plugins = plugins_load(p->ctx, p->a);
    if (sol_graph_parse(p->ctx, graph, &g) || passes_run(g) || plan_with_policy(g, p->a, &t, &wp->policy, &plan))
        fail_msg("%s", sol_error(p->ctx));
    for (int i = 0; i < plan->units.n; i++) {
        const struct unit *u = plan->units.at[i];
        if (u->dead || u->program != PROGRAM_FORWARD || !u->choice) continue;
        for (int k = 0, found = 0; k < u->choice->n; k++) {
            const struct candidate *c = &u->choice->candidate[k];
            if (strcmp(c->solver->name, solver) || found++ != number) continue;
            wisdom_put(wp->wisdom, &(struct wisdom_entry){.key = u->choice->key,
                                                          .solver = solver,
                                                          .variant = c->variant.text,
                                                          .ns = 1,
                                                          .machine = wp->machine,
                                                          .what = "test",
                                                          .ours = true});
            n++;
        }
    }
    wisdom_save(p->ctx, wp->wisdom);
    sol_graph_destroy(g);
    return n;
}

static void compare(struct place *p, const char *solver, const char *graph)
{
    int64_t n;
    p->solver = solver;
    assert_int_equal(sol_config_set(p->ctx, "autotune", "off"), SOL_OK);
    const float *expected = run(p, graph, &n);
    /* wisdom without trials, since such networks are too fast for trials */
    const char *const modes[] = {"0", "fast"};
    for (int number = 0; number < 4; number++) {
        assert_int_equal(sol_config_set(p->ctx, "autotune", modes[number % 2]), SOL_OK);
        const int wanted = advise(p, graph, solver, number);
        if (!number) assert_true(wanted > 0);
        if (!wanted) break;
        p->units = 0;
        const float *got = run(p, graph, &n);
        assert_int_equal(p->units, wanted);
        for (int64_t i = 0; i < n; i++)
            assert_true(fabs((double)got[i] - (double)expected[i]) <= 1e-5 * (1 + fabs((double)expected[i])));
        assert_int_equal(sol_wisdom_clear(p->ctx), SOL_OK);
    }
    advise(p, graph, solver, 0); /* the wisdom stays, the plug-in is gone: it is ignored */
    assert_int_equal(sol_config_set(p->ctx, "plugins", "off"), SOL_OK);
    p->units = 0;
    run(p, graph, &n);
    assert_int_equal(p->units, 0);
    assert_int_equal(sol_config_set(p->ctx, "plugins", "auto"), SOL_OK);
    assert_int_equal(sol_wisdom_clear(p->ctx), SOL_OK);
}

static void test_products(void **state)
{
    struct place *p = *state;
    const struct plugins *there = plugins_load(p->ctx, p->a);
    if (!there) {
        print_message("no plug-in: neither OpenBLAS nor oneDNN was found (apt-get install libopenblas-dev "
                      "libdnnl-dev)\n");
        skip();
    }
    for (int i = 0; i < there->n; i++) {
        print_message("%s: %s\n", there->at[i].name, there->at[i].library);
        for (int k = 0; k < COUNT_OF(graphs); k++) compare(p, there->at[i].name, graphs[k]);
    }
}

static void test_convolutions(void **state)
{
    struct place *p = *state;
    const struct plugins *there = plugins_load(p->ctx, p->a);
    int n = 0;
    for (int i = 0; there && i < there->n; i++)
        for (int k = 0; k < COUNT_OF(convolutions) && there->at[i].conv_plan; k++, n++)
            compare(p, there->at[i].name, convolutions[k]);
    if (n) return;
    print_message("no plug-in with convolutions: oneDNN 2 was not found (apt-get install libdnnl-dev)\n");
    skip();
}

/* No library computes rows of a band: a trial would not measure what runs. */
static void test_bands(void **state)
{
    struct place *p = *state;
    struct target t;
    struct sol_graph *g;
    struct plan *plan = NULL;
    int bands = 0;
    assert_int_equal(sol_config_set(p->ctx, "bands", "always"), SOL_OK);
    assert_int_equal(sol_config_set(p->ctx, "autotune", "full"), SOL_OK);
    target_host(&t);
    struct wisdom_policy *wp = wisdom_policy_make(p->ctx, p->a, &t, NULL);
    wp->policy.plugins = plugins_load(p->ctx, p->a);
    if (sol_graph_parse(p->ctx, band, &g) || passes_run(g) || plan_with_policy(g, p->a, &t, &wp->policy, &plan))
        fail_msg("%s", sol_error(p->ctx));
    for (int i = 0; i < plan->units.n; i++) {
        const struct unit *u = plan->units.at[i];
        if (u->dead || !u->choice || !strstr(u->label, " > ")) continue;
        bands++;
        for (int k = 0; k < u->choice->n; k++) assert_false(u->choice->candidate[k].solver->foreign);
    }
    assert_true(bands > 0);
    sol_graph_destroy(g);
}

/* A plug-in that uses weights in the given order and then fails. Its path and name contain special characters, which
 * must not become code. */
static const char failing[] =
    "#include \"sol/plugin.h\"\n"
    "const struct sol_plugin sol_plugin = {sizeof sol_plugin, SOL_PLUGIN_VERSION, \"onednn\", \"*/ int 1 /*\"};\n"
    "int setenv(const char *, const char *, int);\n"
    "int sol_plugin_conv_plan(struct sol_plugin_conv *c)\n{\n"
    "    const int64_t dims[] = {c->groups, c->out, c->in, c->d[0].window, c->d[1].window, c->d[2].window};\n"
    "    c->weights = 1;\n"
    "    for (int i = 2 + (int)c->ndim; i >= 0; c->weights *= dims[i--]) {\n"
    "        c->w_padded[i] = dims[i];\n"
    "        c->w_stride[i] = c->weights;\n"
    "    }\n"
    "    return 0;\n"
    "}\n"
    "const void *sol_plugin_conv_find(const struct sol_plugin_conv *c) { return c; }\n"
    "int sol_plugin_conv_run(const void *c, const float *x, const float *w, float *y, void *s)\n{\n"
    "    return setenv(\"SOL_TEST_PLUGIN\", \"ran\", 1), 1;\n}\n";
static const char hostile[] = "a\"b\\c\n \xc3\xa4?"
                              "?/KERNEL_0,";

static void test_failing(void **state)
{
    struct place *p = *state;
    struct sol_graph *g;
    struct sol_net *net = NULL;
    struct sol_params *params;
    struct trial_data d = {.dims = NULL};
    const char *folder = arena_printf(p->a, "%s/%s", p->folder, hostile);
    char *command = arena_printf(
        p->a, "cc -shared -fPIC -w -I'" SOURCE_ROOT "/include' -o '%s/sol-onednn.so' %s/failing.c", folder, p->folder);
    assert_int_equal(file_make_folder(p->ctx, folder), SOL_OK);
    assert_int_equal(file_write(p->ctx, arena_printf(p->a, "%s/failing.c", p->folder), failing, strlen(failing)),
                     SOL_OK);
    assert_int_equal(system(command), 0);
    assert_int_equal(sol_config_set(p->ctx, "plugins", folder), SOL_OK);
    assert_int_equal(sol_config_set(p->ctx, "autotune", "fast"), SOL_OK);
    assert_int_equal(advise(p, convolutions[3], "onednn", 0), 1);
    if (sol_graph_parse(p->ctx, convolutions[3], &g) || sol_compile(p->ctx, g, &net)) fail_msg("%s", sol_error(p->ctx));
    assert_true(trial_data_make(p->a, net, &d));
    assert_int_equal(trial_params(net, &d, &params), SOL_OK);
    assert_int_equal(sol_net_run(net, params, d.inputs, d.outputs, 2), SOL_ERR_RUN);
    assert_non_null(strstr(sol_error(p->ctx), "the plug-in that computes it has failed, or is gone"));
    sol_params_destroy(params);
    assert_non_null(getenv("SOL_TEST_PLUGIN"));
    sol_net_destroy(net);
    sol_graph_destroy(g);
}

static void test_none(void **state)
{
    struct place *p = *state;
    char path[96];
    assert_int_equal(sol_config_set(p->ctx, "plugins", "off"), SOL_OK);
    assert_null(plugins_load(p->ctx, p->a));
    assert_int_equal(sol_config_set(p->ctx, "plugins", p->folder), SOL_OK);
    assert_null(plugins_load(p->ctx, p->a));
    assert_int_equal(p->warnings, 0);
    snprintf(path, sizeof path, "%s/sol-openblas.so", p->folder);
    assert_int_equal(file_write(p->ctx, path, "no library", 10), SOL_OK);
    assert_null(plugins_load(p->ctx, p->a));
    assert_int_equal(p->warnings, 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
    const struct CMUnitTest tests[] = {TEST(products), TEST(convolutions), TEST(bands), TEST(failing), TEST(none)};
    return cmocka_run_group_tests_name("plugins", tests, NULL, NULL);
}
