/* Runtime, with a hand-written module: preparing parameters, also after changes; calls from many threads while
 * parameters change; host steps; errors with their location; forks; lack of memory. */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fail_alloc.h"
#include "runtime_module.h"

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
                                        .forward = {1, 2, s, p, 32, 0, 0, NULL}};
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
                           .forward = {1, 2, &s, p, 32, 0, 0, NULL}};
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
        {SOL_STEP_TEAM, 0, 3,
         "module of 'net': 3 sizes are known only while running, and it has no function that computes them"}};
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
        TEST(debug_fills_the_workspace_with_nan),
        TEST(modules_that_cannot_run),
        TEST(out_of_memory),
        TEST(large_outputs_get_huge_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
