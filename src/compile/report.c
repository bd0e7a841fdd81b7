/* Reports the plan: one line for each unit. With compiler::debug_memory_consumption it also reports one line for each
 * step of forward and backward with what is in memory, and what makes up the peak; picture.c draws the same. Bytes are
 * those for the hints of dimensions that vary. */
#include "compile/compile.h"
#include "rt/rt.h"

#include <stdlib.h>
#include <string.h>

static const char *shape_text(struct arena *a, const struct sol_tensor *t)
{
    struct text s = text_new(a);
    for (int d = 0; d < t->ndim; d++) {
        text_put(&s, d ? "x" : "");
        size_print(&s, t->dim[d].size);
    }
    return s.at;
}

const struct unit *compile_unit_of(const struct schedule_program *p, int i)
{
    while (i < p->steps.n && !p->steps.at[i].unit) i++;
    return i < p->steps.n ? p->steps.at[i].unit : NULL;
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
        LOG(p->ctx, LOG_DEBUG, "plan", "%-8s %s %s: %s, %.1f us, %s", program_name(u->program), unit_solver(u),
            u->kernel.variant ? u->kernel.variant : "", shape, u->kernel.cost / 1e3, u->label);
    }
    LOG(p->ctx, LOG_DEBUG, "plan", "workspace %lld forward, %lld backward, prepared %lld, saved %lld bytes",
        (long long)s->program[PROGRAM_FORWARD].workspace_bytes, (long long)s->program[PROGRAM_BACKWARD].workspace_bytes,
        (long long)s->prepared_bytes, (long long)size_hint(s->saved_bytes));
}

void compile_report_host(const struct schedule *s, const char *device)
{
    struct text names = text_new(s->arena);
    int n = 0, all = 0;
    for (int i = 0; i < PROGRAMS; i++)
        for (int k = 0; k < s->program[i].steps.n; k++, all++) {
            const struct schedule_step *step = &s->program[i].steps.at[k];
            if (step->kernel < 0) text_put(&names, "%s'%s' (%s)", n++ ? ", " : "", step->label, program_name(i));
        }
    if (n)
        LOG(s->plan->ctx, LOG_INFO, "core", "%s: %d of %d steps run on the host, between copies from %s and to it: %s",
            s->plan->g->name, n, all, device, names.at);
}

/* -- live tensors of each step */

struct lump { /* a tensor in the network's own memory */
    const struct sol_tensor *t;
    const char *maker; /* label of the first step that uses it */
    int64_t bytes;
    int first, last; /* steps */
    bool saved;
};

static bool counts(const struct schedule *s, int buffer)
{
    const enum sol_buffer_kind kind = (enum sol_buffer_kind)s->buffers.at[buffer].kind;
    return kind == SOL_BUFFER_WORKSPACE || kind == SOL_BUFFER_SAVED || kind == SOL_BUFFER_EITHER;
}

/* Adds the tensors of a program. Saved tensors are live from the start of backward, and to the end of forward. */
static int find_lumps(const struct schedule *s, int program, struct lump *lumps)
{
    const struct schedule_program *pr = &s->program[program];
    int n = 0, *at = NEW_ARRAY(s->arena, int, s->plan->nallocations + 1);
    for (int i = 0; i < pr->steps.n; i++) {
        const struct schedule_step *st = &pr->steps.at[i];
        for (int k = 0; k < st->noperand; k++) {
            const struct allocation *allocation =
                plan_allocation(s->plan, plan_allocation(s->plan, st->operand[k])->root);
            if (!counts(s, s->buffer[allocation->t->id])) continue;
            if (!at[allocation->t->id]) {
                const int64_t bytes = size_hint(allocation->elements) * dtype_def(allocation->t->dtype)->bytes;
                bool saved = false;
                for (int v = 0; v < s->saved.n; v++) saved |= s->saved.at[v] == allocation->t->id;
                lumps[n] = (struct lump){
                    allocation->t, st->label, bytes, saved && program == PROGRAM_BACKWARD ? 0 : i, i, saved};
                at[allocation->t->id] = ++n;
            }
            struct lump *l = &lumps[at[allocation->t->id] - 1];
            l->last = l->saved && program == PROGRAM_FORWARD ? pr->steps.n : i;
        }
    }
    return n;
}

static int by_bytes(const void *a, const void *b)
{
    const struct lump *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x->first != y->first ? (x->first < y->first ? -1 : 1) : 0;
}

/* Makes the bars of a program: one for each kernel, with the largest need of its steps. Returns their number. */
static int find_bars(const struct schedule *s, int program, const int64_t *saved, const int64_t *work,
                     struct memory_bar *bars)
{
    const struct schedule_program *pr = &s->program[program];
    const struct sol_graph *g = s->plan->g;
    const struct unit *last = NULL;
    int n = 0;
    int64_t outputs = 0;
    for (int i = 0; i < g->outputs.n; i++) outputs += size_hint(tensor_bytes(g->outputs.at[i].t));
    const int workers = target_launches(s->plan->target) ? 1 : rt_processors(); /* that have scratch memory each */
    for (int i = 0; i < pr->steps.n; i++) {
        const struct unit *u = compile_unit_of(pr, i);
        if (!n || u != last)
            bars[n++] = (struct memory_bar){.label = u ? u->label : pr->steps.at[i].label,
                                            .backward = program == PROGRAM_BACKWARD,
                                            .bytes = {[MEMORY_PARAMS] = compile_bytes(g->params.n, g->params.at),
                                                      [MEMORY_PREPARED] = s->prepared_bytes,
                                                      [MEMORY_INPUTS] = compile_bytes(g->inputs.n, g->inputs.at),
                                                      [MEMORY_OUTPUTS] = outputs}};
        int64_t *bytes = bars[n - 1].bytes;
        bytes[MEMORY_SAVED] = MAX(bytes[MEMORY_SAVED], saved[i]);
        bytes[MEMORY_WORK] = MAX(bytes[MEMORY_WORK], work[i] + size_hint(pr->scratch_bytes) * workers);
        last = u;
    }
    return n;
}

/* Logs the steps and makes the bars; returns their number. */
static int report_steps(const struct schedule *s, int program, struct memory_bar *bars)
{
    const struct schedule_program *pr = &s->program[program];
    struct sol_ctx *ctx = s->plan->ctx;
    struct lump *lumps = NEW_ARRAY(s->arena, struct lump, s->plan->nallocations + 1);
    const int n = find_lumps(s, program, lumps);
    int64_t *alive[2], most = -1; /* by step: workspace, saved */
    int peak = 0;
    for (int k = 0; k < 2; k++) alive[k] = NEW_ARRAY(s->arena, int64_t, pr->steps.n + 2);
    for (int i = 0; i < n; i++) {
        alive[lumps[i].saved][lumps[i].first] += lumps[i].bytes;
        alive[lumps[i].saved][lumps[i].last + 1] -= lumps[i].bytes;
    }
    for (int i = 0; i < pr->steps.n; i++) {
        for (int k = 0; k < 2 && i; k++) alive[k][i] += alive[k][i - 1];
        const int64_t bytes = alive[0][i] + alive[1][i];
        if (bytes > most) most = bytes, peak = i;
        LOG(ctx, LOG_INFO, "plan", "%-8s step %d: %.1fMB alive, %s", program_name(program), i, (double)bytes / 1e6,
            pr->steps.at[i].label);
    }
    if (n) qsort(lumps, (size_t)n, sizeof *lumps, by_bytes);
    for (int i = 0; i < n; i++)
        if (lumps[i].first <= peak && peak <= lumps[i].last)
            LOG(ctx, LOG_INFO, "plan", "%-8s peak, at step %d: %.2fMB %s, steps %d to %d: %s %s", program_name(program),
                peak, (double)lumps[i].bytes / 1e6, lumps[i].saved ? "saved" : "working memory", lumps[i].first,
                lumps[i].last, shape_text(s->arena, lumps[i].t), lumps[i].maker);
    return find_bars(s, program, alive[1], alive[0], bars);
}

void compile_report_steps(const struct schedule *s)
{
    if (strcmp(ctx_config(s->plan->ctx, "compiler::debug_memory_consumption"), "1") != 0) return;
    const int most = s->program[PROGRAM_FORWARD].steps.n + s->program[PROGRAM_BACKWARD].steps.n;
    struct memory_bar *bars = NEW_ARRAY(s->arena, struct memory_bar, most + 1);
    int n = report_steps(s, PROGRAM_FORWARD, bars);
    n += report_steps(s, PROGRAM_BACKWARD, bars + n);
    compile_keep_file(s, "-memory.svg", picture_memory(s->arena, s->plan->g->name, bars, n), "");
}

void compile_report_memory(struct sol_ctx *ctx, struct sol_net *net, bool training)
{
    struct sol_memory m;
    char *formula = NULL;
    sol_net_memory(net, &m);
    LOG(ctx, LOG_DEBUG, "plan",
        "Estimated Peak Memory Consumption: %s ~%.1fMB (%.1f saved, %.1f workspace, %.1f prepared)",
        training ? "Training" : "Inference", (double)m.peak / 1e6, (double)m.saved / 1e6, (double)m.workspace / 1e6,
        (double)m.prepared / 1e6);
    if (sol_net_dims(net) && !sol_net_memory_print(net, &formula))
        LOG(ctx, LOG_DEBUG, "plan", "at other sizes ~%s", formula);
    sol_free(ctx, formula);
    if (training)
        LOG(ctx, LOG_DEBUG, "plan", "with training::memory fast ~%.1fMB, balanced ~%.1fMB, small ~%.1fMB",
            (double)m.if_fast / 1e6, (double)m.if_balanced / 1e6, (double)m.if_small / 1e6);
}
