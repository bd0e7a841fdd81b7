/* What was planned, for people: one line a unit. */
#include "compile/compile.h"

static const char *shape_text(struct arena *a, const struct sol_tensor *t)
{
    struct text s = text_new(a);
    for (int d = 0; d < t->ndim; d++) text_put(&s, "%s%lld", d ? "x" : "", (long long)t->dim[d].size);
    return s.at;
}

void compile_report(const struct schedule *s)
{
    struct plan *p = s->plan;
    for (int i = 0; i < p->units.n; i++) {
        const struct unit *u = p->units.at[i];
        if (u->dead) continue;
        const char *shape = "";
        for (int k = 0; k < u->loops->tensors.n; k++)
            if (u->loops->tensors.at[k].role == LOOPS_OUTPUT)
                shape = shape_text(p->arena, u->loops->tensors.at[k].user);
        LOG(p->ctx, LOG_DEBUG, "plan", "%-8s %s %s: %s, %.1f us, %s", program_name(u->program),
            u->opaque ? "opaque" : u->kernel.solver, u->kernel.variant ? u->kernel.variant : "", shape,
            u->kernel.cost / 1e3, u->label);
    }
    LOG(p->ctx, LOG_DEBUG, "plan", "workspace %lld forward, %lld backward, prepared %lld, saved %lld bytes",
        (long long)s->program[PROGRAM_FORWARD].workspace_bytes, (long long)s->program[PROGRAM_BACKWARD].workspace_bytes,
        (long long)s->prepared_bytes, (long long)s->saved_bytes);
}

void compile_report_memory(struct sol_ctx *ctx, const struct sol_net *net, bool training)
{
    struct sol_memory m;
    sol_net_memory(net, &m);
    LOG(ctx, LOG_DEBUG, "plan",
        "Estimated Peak Memory Consumption: %s ~%.1fMB (%.1f saved, %.1f workspace, %.1f prepared)",
        training ? "Training" : "Inference", (double)m.peak / 1e6, (double)m.saved / 1e6, (double)m.workspace / 1e6,
        (double)m.prepared / 1e6);
    if (training)
        LOG(ctx, LOG_DEBUG, "plan", "with training::memory fast ~%.1fMB, balanced ~%.1fMB, small ~%.1fMB",
            (double)m.if_fast / 1e6, (double)m.if_balanced / 1e6, (double)m.if_small / 1e6);
}
