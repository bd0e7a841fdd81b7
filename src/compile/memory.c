/* Chooses what forward saves for backward (the key training::memory). A word is a level of grad/checkpoint.c. For a
 * number of bytes, levels are planned on copies of the graph until one needs no more, because the solvers' work memory
 * is known only then. */
#include "compile/compile.h"
#include "grad/grad.h"
#include "passes/passes.h"
#include "rt/rt.h"

#include <string.h>

int64_t compile_bytes(int n, struct sol_tensor *const *t)
{
    int64_t bytes = 0;
    for (int i = 0; i < n; i++) bytes += size_hint(tensor_bytes(t[i]));
    return bytes;
}

/* The same sum as sol_net_memory's, for the hints of dimensions that vary. */
static int64_t peak_of(const struct schedule *s)
{
    const struct sol_graph *g = s->plan->g;
    const struct schedule_program *p = s->program;
    int64_t bytes = s->prepared_bytes + size_hint(s->saved_bytes) + compile_bytes(g->inputs.n, g->inputs.at) +
                    compile_bytes(g->params.n, g->params.at) + compile_bytes(s->constants.n, s->constants.at);
    for (int i = 0; i < g->outputs.n; i++) bytes += size_hint(tensor_bytes(g->outputs.at[i].t));
    return bytes + MAX(p[PROGRAM_FORWARD].workspace_bytes, p[PROGRAM_BACKWARD].workspace_bytes) +
           size_hint(size_max(p[PROGRAM_FORWARD].scratch_bytes, p[PROGRAM_BACKWARD].scratch_bytes)) *
               (target_launches(s->plan->target) ? 1 : rt_processors());
}

static sol_status plan_level(struct sol_graph *copy, struct checkpointing *k, int level, struct arena *a,
                             const struct target *target, int64_t *out_bytes)
{
    struct plan *p;
    struct schedule *s;
    checkpoint_level(k, level);
    TRY(grad_recompute(copy, k));
    TRY(passes_run(copy));
    TRY(plan_make(copy, a, target, &p));
    TRY(schedule_make(p, &s));
    *out_bytes = peak_of(s);
    return SOL_OK;
}

/* The memory that a network needs at a level, without compiling it. */
static sol_status try_level(const struct sol_graph *g, struct checkpointing *k, int level, const struct target *target,
                            int64_t *out_bytes)
{
    struct sol_graph *copy;
    struct arena *a = arena_create(g->ctx);
    if (!a) return ctx_check(g->ctx);
    sol_status status = graph_copy(g, &copy);
    if (!status) {
        status = plan_level(copy, k, level, a, target, out_bytes);
        sol_graph_destroy(copy);
    }
    arena_destroy(a);
    return status;
}

/* Finds the first level within the budget. Estimates give the first guess, and each try corrects their error. */
static sol_status meet(const struct sol_graph *g, struct checkpointing *k, const struct target *target, int64_t budget,
                       int *out_level)
{
    const int last = k->levels.n - 1;
    int64_t needs = 0, least = INT64_MAX, error = 0;
    for (int level = 0; level <= last; level++) {
        const bool hopeless = k->levels.at[level].bytes + error > budget;
        if (hopeless && level > CHECKPOINT_SOURCES && level < last) continue;
        TRY(try_level(g, k, level, target, &needs));
        LOG(g->ctx, LOG_DEBUG, "grad", "training::memory: level %d of %d needs %.1fMB", level, last,
            (double)needs / 1e6);
        *out_level = level;
        if (needs <= budget) return SOL_OK;
        least = MIN(least, needs);
        error = needs - k->levels.at[level].bytes;
    }
    return ctx_fail(g->ctx, SOL_ERR_INVALID,
                    "the key training::memory is %.1fMB, but a step needs at least %.1fMB, parameters, gradients and "
                    "arguments included: set it to that or more, or make the batch smaller",
                    (double)budget / 1e6, (double)(least + 99999) / 1e6);
}

int64_t compile_peak(const struct schedule *s, const struct compile_memory *m, int level)
{
    if (!m->keep) return 0;
    return peak_of(s) + m->keep->levels.at[level].bytes - m->keep->levels.at[m->level].bytes;
}

sol_status compile_keep(struct sol_graph *g, const struct target *target, struct compile_memory *out_m)
{
    const char *want = ctx_config(g->ctx, "training::memory");
    struct checkpointing *k;
    *out_m = (struct compile_memory){NULL, CHECKPOINT_ALL};
    if (!graph_is_joint(g)) return SOL_OK;
    TRY(checkpoint_make(g, &k));
    checkpoint_levels(k);
    TRY(ctx_check(g->ctx));
    if (!strcmp(want, "fast"))
        out_m->level = CHECKPOINT_ALL;
    else if (!strcmp(want, "small"))
        out_m->level = k->small;
    else if (!strcmp(want, "balanced"))
        out_m->level = k->balanced;
    else
        TRY(meet(g, k, target, ctx_config_bytes(g->ctx, "training::memory"), &out_m->level));
    out_m->keep = k;
    checkpoint_level(k, out_m->level);
    return grad_recompute(g, k);
}
