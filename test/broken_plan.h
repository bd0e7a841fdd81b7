/* Shared by the tests of the verifier of plans: a row breaks a plan in one way and says what the error must name. The
 * unbroken plan is valid, so a check that is lost makes a test fail. */
#ifndef SOL_BROKEN_PLAN_H
#define SOL_BROKEN_PLAN_H

#include <string.h>

#include "context.h"
#include "plan/plan.h"

/* A band: ring 0 is a row of the reordered input, ring 1 a window of three rows, ring 2 the row that the last reorder
 * reads. */
static const char band_network[] =
    "graph \"net\"\n"
    "input %0:f32[2 8 24 20] \"x\"\nparam %1:f32[16 8 1 1] \"w\"\nparam %2:f32[16 1 3 3] \"v\"\n"
    "%3 = Conv(%0, %1) \"a\"\n%4 = relu(%3)\n%5 = Conv(%4, %2) p=1 q=1 g=16 \"b\"\n%6 = relu(%5)\n"
    "output %6 \"y\"\n";
/* A scan of seven steps, without its outputs. */
#define SCAN_NETWORK                                                                                          \
    "graph \"net\"\n"                                                                                         \
    "input %0:f32[7 3 9] \"x\"\nparam %1:f32[36 9] \"w\"\nparam %2:f32[36 9] \"u\"\nparam %3:f32[36] \"b\"\n" \
    "%4, %5, %6 = LSTM(%0, %1, %2, %3)\n"
#define OUTPUT_Y "output %4 \"y\"\n"
#define OUTPUT_C "output %6 \"c\"\n"

struct broken_plan {
    const char *what;
    enum plan_phase phase; /* the last one that runs before the plan is broken */
    void (*break_it)(struct plan *p);
    const char *expected; /* in the message */
};

/* Runs the planner on a network in the text form, up to a phase, for a processor that is the same on every machine. */
static inline struct plan *plan_network(struct arena *a, const char *network, enum plan_phase phase,
                                        struct sol_graph **out_g)
{
    struct target target;
    struct plan *p = NULL;
    if (target_named(ctx, "x86-64-v3", &target)) fail_msg("%s", sol_error(ctx));
    target.cores = 4;
    if (sol_graph_parse(ctx, network, out_g) || plan_start(*out_g, a, &target, NULL, &p) || plan_run(p, phase))
        fail_msg("%s", sol_error(ctx));
    return p;
}

static inline void try_broken_plan(const char *network, const struct broken_plan *r)
{
    struct arena *a = arena_create(ctx);
    struct sol_graph *g = NULL;
    struct plan *p = plan_network(a, network, r->phase, &g);
    if (plan_verify(p)) fail_msg("before '%s': %s", r->what, sol_error(ctx));
    r->break_it(p);
    const sol_status status = plan_verify(p);
    const char *phase = arena_printf(a, "net: plan after phase %s: ", plan_phase_name(r->phase, NULL));
    if (status != SOL_ERR_INTERNAL) fail_msg("%s: expected an internal error, got %d", r->what, (int)status);
    if (!strstr(sol_error(ctx), phase) || !strstr(sol_error(ctx), r->expected))
        fail_msg("%s: expected '%s' and '%s', got: %s", r->what, phase, r->expected, sol_error(ctx));
    sol_graph_destroy(g);
    arena_destroy(a);
}

/* The same for rows whose networks have bands or scans. */
static inline void try_broken_tiles(const char *network, int n, const struct broken_plan *rows)
{
    assert_int_equal(sol_config_set(ctx, "bands", "always"), SOL_OK);
    assert_int_equal(sol_config_set(ctx, "compiler::verify", "1"), SOL_OK);
    for (int i = 0; i < n; i++) try_broken_plan(network, &rows[i]);
    assert_int_equal(sol_config_set(ctx, "bands", "auto"), SOL_OK);
    assert_int_equal(sol_config_set(ctx, "compiler::verify", "0"), SOL_OK);
}

#endif
