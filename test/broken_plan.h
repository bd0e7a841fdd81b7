/* Shared by the tests of the verifier of plans: a row breaks a plan in one way and says what the error must name. The
 * unbroken plan is valid, so a check that is lost makes a test fail. */
#ifndef SOL_BROKEN_PLAN_H
#define SOL_BROKEN_PLAN_H

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "plan/plan.h"

struct broken_plan {
    const char *what;
    enum plan_phase phase; /* the last one that runs before the plan is broken */
    void (*break_it)(struct plan *p);
    const char *expected; /* in the message */
};

/* Runs the planner on a network in the text form, up to a phase, for a processor that is the same on every machine. */
static inline struct plan *plan_network(struct sol_ctx *ctx, struct arena *a, const char *network,
                                        enum plan_phase phase, struct sol_graph **out_g)
{
    struct target target;
    struct plan *p = NULL;
    if (target_named(ctx, "x86-64-v3", &target)) fail_msg("%s", sol_error(ctx));
    target.cores = 4;
    if (sol_graph_parse(ctx, network, out_g) || plan_start(*out_g, a, &target, NULL, &p) || plan_run(p, phase))
        fail_msg("%s", sol_error(ctx));
    return p;
}

static inline void try_broken_plan(struct sol_ctx *ctx, const char *network, const struct broken_plan *r)
{
    struct arena *a = arena_create(ctx);
    struct sol_graph *g = NULL;
    struct plan *p = plan_network(ctx, a, network, r->phase, &g);
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

#endif
