/* Versions of a unit for classes of sizes: where they appear, that exactly one of them runs at every size, and that it
 * is right there. All choices are made for a fictitious processor, so they are the same on every machine. */
#include "sized.h"

#include "compile/compile.h"

enum { MOST_SIZE = 30 };

static const char CONV[] = "graph \"conv\"\n"
                           "dim #0 \"batch\" hint=%d min=0 max=512\n"
                           "input %%0:f32[N=#0 16 12 12] \"x\"\n"
                           "param %%1:f32[32 16 3 3] \"w1\"\n"
                           "param %%2:f32[32 32 3 3] \"w2\"\n"
                           "%%3 = Conv(%%0, %%1) p=1 q=1 \"conv1\"\n"
                           "%%4 = relu(%%3)\n"
                           "%%5 = Conv(%%4, %%2) p=1 q=1 \"conv2\"\n"
                           "%%6 = add(%%5, %%4)\n"
                           "output %%6 \"y\"\n";
static const char WEIGHTS[] = "graph \"weights\"\n"
                              "dim #0 \"rows\" hint=%d min=0 max=4096\n"
                              "input %%0:f32[#0 96] \"dy\"\n"
                              "input %%1:f32[#0 160] \"x\"\n"
                              "%%2 = Einsum(%%0, %%1) eq=\"ro,ri->oi\" \"dw\"\n"
                              "output %%2 \"dw\"\n";
static const char PICTURES[] = "graph \"pictures\"\n"
                               "dim #0 \"batch\" hint=2 min=1 max=64\n"
                               "dim #1 \"height\" hint=%d min=3\n"
                               "input %%0:f32[N=#0 32 #1 12] \"x\"\n"
                               "param %%1:f32[32 32 3 3] \"w\"\n"
                               "%%2 = Conv(%%0, %%1) p=1 q=1 \"conv\"\n"
                               "output %%2 \"y\"\n";

static struct target made_up(void)
{
    struct target t;
    if (target_named(ctx, "x86-64-v3", &t)) fail_msg("%s", sol_error(ctx));
    target_usual(&t);
    return t;
}

/* A network with the plan that it comes from. */
struct planned {
    struct sized s;
    struct sol_graph *g; /* of the plan */
    struct tune_net n;
};

static void plan(const char *format, int hint, struct planned *x)
{
    char text[2000];
    const struct target t = made_up();
    snprintf(text, sizeof text, format, hint);
    x->s.g = parse(text);
    x->g = parse(text);
    if (compile_for(x->g, &t, &x->n)) fail_msg("%s", sol_error(ctx));
    x->s.net = x->n.net;
    fill_params(&x->s);
    for (int i = 0; i < sol_net_params(x->s.net); i++) { /* sums of about 1: Winograd's rounding depends on the terms */
        const struct sol_io io = sol_net_param_io(x->s.net, i);
        const int64_t n = elements(&io, NULL);
        for (int64_t k = 0; k < n; k++) x->s.param[i][k] /= 10;
    }
}

static void drop(struct planned *x)
{
    x->n.net = NULL; /* close_sized destroys it */
    close_sized(&x->s);
    tune_net_free(&x->n);
    sol_graph_destroy(x->g);
}

static bool is_version(const struct unit *u)
{
    return u && !u->dead && u->when && u->number;
}

/* The units that run at these sizes, as bits. Steps and memory of the others have no tasks and bytes. */
static uint64_t running(const struct planned *x, const int64_t *dims)
{
    struct plan *p = x->n.schedule->plan;
    uint64_t set = 0;
    int groups = 0, active = 0;
    for (int i = 0; i < p->units.n; i++) {
        const struct unit *u = p->units.at[i];
        if (!is_version(u)) continue;
        const int64_t when = size_at(u->when, dims);
        assert_true(when == 0 || when == 1);
        groups += !u->version;
        active += (int)when;
        set |= (uint64_t)when << i % 64;
        for (int k = 0; k < u->noperand && !when; k++) {
            const int64_t needed = plan_allocation(p, u->operand[k])->when;
            assert_int_equal(needed ? size_at(needed, dims) : 0, 0);
        }
    }
    assert_int_equal(active, groups);
    const struct schedule_program *pr = &x->n.schedule->program[PROGRAM_FORWARD];
    for (int i = 0; i < pr->steps.n; i++)
        if (is_version(pr->steps.at[i].unit) && !size_at(pr->steps.at[i].unit->when, dims))
            assert_int_equal(size_at(pr->steps.at[i].tasks, dims), 0);
    return set;
}

static int versions(const struct planned *x)
{
    const struct plan *p = x->n.schedule->plan;
    int n = 0;
    for (int i = 0; i < p->units.n; i++) n += is_version(p->units.at[i]);
    return n;
}

/* Runs at 0, at both sides of every threshold and beyond. Returns the number of versions. */
static int check(const char *format, int hint, int dim, int least)
{
    struct planned x;
    int64_t dims[3] = {2, 9, 0};
    plan(format, hint, &x);
    uint64_t before = 0;
    for (int n = least; n <= MOST_SIZE; n++) {
        dims[dim] = n;
        const uint64_t now = running(&x, dims);
        if (n == least || n == least + 1 || n == hint || n == MOST_SIZE) run_at(&x.s, dims);
        if (n > least && now != before)
            for (int k = n - 1; k <= n + 1; k++) {
                dims[dim] = k;
                run_at(&x.s, dims);
            }
        before = now;
    }
    const int n = versions(&x);
    drop(&x);
    return n;
}

/* Direct for few pictures, Winograd for many, whatever the hint is. */
static void convolutions(void **state)
{
    (void)state;
    assert_true(check(CONV, 16, 0, 0) >= 2);
    assert_true(check(CONV, 1, 0, 0) >= 2);
}

/* A sum of as many products as the size: vectors for a few, blocks for many. */
static void a_sum_that_varies(void **state)
{
    (void)state;
    assert_true(check(WEIGHTS, 64, 0, 0) >= 2);
    assert_true(check(WEIGHTS, 1, 0, 0) >= 2);
}

static void two_dimensions(void **state)
{
    (void)state;
    assert_true(check(PICTURES, 24, 1, 3) >= 2);
}

static void one_is_enough(void **state)
{
    (void)state;
    struct planned x;
    plan("graph \"linear\"\n"
         "dim #0 \"rows\" hint=%d min=0 max=512\n"
         "input %%0:f32[#0 64] \"x\"\n"
         "param %%1:f32[64 64] \"w\"\n"
         "%%2 = Linear(%%0, %%1) \"fc\"\n"
         "output %%2 \"y\"\n",
         128, &x);
    assert_int_equal(versions(&x), 0);
    drop(&x);
}

/* A product with a matrix that is no parameter, so that nothing is packed: one row has loops with the number 1. */
static void one_row(void **state)
{
    (void)state;
    static const char PRODUCT[] = "graph \"product\"\n"
                                  "dim #0 \"rows\" hint=%d min=0 max=4096\n"
                                  "input %%0:f32[#0 256] \"x\"\n"
                                  "input %%1:f32[256 256] \"w\"\n"
                                  "%%2 = Linear(%%0, %%1) \"mm\"\n"
                                  "output %%2 \"y\"\n";
    for (int hint = 1; hint <= 16; hint += 15) {
        struct planned x;
        int found = 0;
        plan(PRODUCT, hint, &x);
        const struct plan *p = x.n.schedule->plan;
        for (int i = 0; i < p->units.n; i++) {
            const struct unit *u = p->units.at[i];
            if (!is_version(u) || !strstr(u->label, "(#0 = 1)")) continue;
            found++;
            for (int64_t n = 0; n < 4; n++) assert_int_equal(size_at(u->when, &n), n == 1);
        }
        assert_int_equal(found, 1);
        drop(&x);
        assert_true(check(PRODUCT, hint, 0, 0) >= 2);
    }
}

static int packs(const struct planned *x)
{
    const struct plan *p = x->n.schedule->plan;
    int n = 0;
    for (int i = 0; i < p->units.n; i++) n += !p->units.at[i]->dead && p->units.at[i]->program == PROGRAM_PREPARE;
    return n;
}

/* With little memory, weights are not packed twice. */
static void little_memory(void **state)
{
    (void)state;
    struct planned x;
    assert_int_equal(sol_config_set(ctx, "memory", "small"), SOL_OK);
    plan(CONV, 16, &x);
    assert_true(packs(&x) <= 2);
    drop(&x);
    assert_int_equal(sol_config_set(ctx, "memory", "auto"), SOL_OK);
}

/* A profile has the versions that ran. */
static void profiles(void **state)
{
    (void)state;
    struct planned x;
    char *text;
    const int64_t dims[3] = {1};
    assert_int_equal(sol_config_set(ctx, "profile", "1"), SOL_OK);
    plan(CONV, 16, &x);
    struct io io;
    io_make(&x.s, dims, &io);
    assert_int_equal(call(&x.s, dims, &io, 1), SOL_OK);
    assert_int_equal(sol_net_profile_print(x.s.net, &text), SOL_OK);
    const struct plan *p = x.n.schedule->plan;
    for (int i = 0; i < p->units.n; i++)
        if (is_version(p->units.at[i]))
            assert_int_equal(strstr(text, p->units.at[i]->label) != NULL, size_at(p->units.at[i]->when, dims));
    sol_free(ctx, text);
    io_free(&x.s, &io);
    drop(&x);
    assert_int_equal(sol_config_set(ctx, "profile", "0"), SOL_OK);
}

/* Weights are packed once for all versions where that is nearly as fast. */
static void shared_weights(void **state)
{
    (void)state;
    struct planned x;
    plan("graph \"linear\"\n"
         "dim #0 \"rows\" hint=%d min=0 max=512\n"
         "input %%0:f32[#0 512] \"x\"\n"
         "param %%1:f32[768 512] \"w\"\n"
         "%%2 = Linear(%%0, %%1) \"fc\"\n"
         "output %%2 \"y\"\n",
         128, &x);
    assert_int_equal(packs(&x), 1);
    drop(&x);
}

/* Training packs weights in every step, which one row does not pay for: it is a product with a vector. */
static void one_row_in_training(void **state)
{
    (void)state;
    struct planned x;
    const char *solver = "";
    plan("graph \"linear\"\n"
         "dim #0 \"rows\" hint=%d min=0 max=512\n"
         "input %%0:f32[#0 2048] \"x\"\n"
         "param %%1:f32[2048 2048] \"w\"\n"
         "input %%2:f32[#0 2048] \"dy\" backward\n"
         "%%3 = Linear(%%0, %%1) \"fc\"\n"
         "%%4 = Einsum(%%2, %%0) eq=\"ro,ri->oi\" \"dw\"\n"
         "output %%3 \"y\"\n"
         "output %%4 \"dw\" backward\n",
         64, &x);
    const struct plan *p = x.n.schedule->plan;
    for (int i = 0; i < p->units.n; i++) {
        const struct unit *u = p->units.at[i];
        if (is_version(u) && u->program == PROGRAM_FORWARD && size_at(u->when, (int64_t[3]){1}))
            solver = u->kernel.solver;
    }
    assert_string_equal(solver, "gemv");
    drop(&x);
}

/* The verifier finds versions of which two, or none, would run, and those that do not follow each other. */
static void broken_versions(void **state)
{
    (void)state;
    struct planned x;
    plan(CONV, 16, &x);
    struct plan *p = x.n.schedule->plan;
    struct unit *second = NULL;
    for (int i = 0; i < p->units.n && !second; i++)
        if (is_version(p->units.at[i]) && p->units.at[i]->version) second = p->units.at[i];
    assert_int_equal(plan_verify(p), SOL_OK);
    second->when = size_add(second->when, 1);
    assert_int_equal(plan_verify(p), SOL_ERR_INTERNAL);
    assert_non_null(strstr(sol_error(ctx), "expected one to run at every size"));
    second->when = size_sub(second->when, 1);
    second->version++;
    assert_int_equal(plan_verify(p), SOL_ERR_INTERNAL);
    assert_non_null(strstr(sol_error(ctx), "version 2: expected version 1"));
    drop(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions),  cmocka_unit_test(a_sum_that_varies), cmocka_unit_test(two_dimensions),
        cmocka_unit_test(one_is_enough), cmocka_unit_test(little_memory),     cmocka_unit_test(broken_versions),
        cmocka_unit_test(profiles),      cmocka_unit_test(shared_weights),    cmocka_unit_test(one_row_in_training),
        cmocka_unit_test(one_row),
    };
    return cmocka_run_group_tests(tests, make_ctx, drop_ctx);
}
