/* Prints a plan as text (sol-opt --plan): the result of each phase, for people and for tests that compare it. Costs are
 * left out, because they are not decisions. */
#include "plan/plan.h"

#include <string.h>

static void show_shape(struct text *out, const struct sol_tensor *t)
{
    text_put(out, "%%%d:%s[", t->id, dtype_def((enum sol_dtype)t->dtype)->name);
    for (int d = 0; d < t->ndim; d++) text_put(out, "%s%lld", d ? " " : "", (long long)t->dim[d].size);
    text_put(out, "]");
}

/* -- units */

/* Leaves out the first line, a layer's kind, and the tensors of the graph, which are listed above. */
static void show_loops(struct text *out, const struct loops *loops)
{
    struct text t = text_new(out->arena);
    loops_print(loops, &t);
    const char *line = t.at ? strchr(t.at, '\n') : NULL;
    for (const char *end; line && *++line; line = end) {
        end = strchr(line, '\n');
        const bool above = !strncmp(line, "    input ", 10) || !strncmp(line, "    output ", 11);
        if (!above) text_put(out, "%.*s\n", (int)(end ? end - line : (ptrdiff_t)strlen(line)), line);
    }
}

static void show_operands(const struct unit *u, struct text *out)
{
    text_put(out, "    operands");
    for (int i = 0; i < u->noperand; i++) {
        text_put(out, " %s", u->written[i] ? ">" : "");
        show_shape(out, u->operand[i]);
    }
    text_put(out, "\n");
}

static void show_kernel(const struct unit *u, struct text *out)
{
    const struct kernel *k = &u->kernel;
    text_put(out, "    kernel %s%s%s, tasks", k->solver, k->variant ? " " : "", k->variant ? k->variant : "");
    for (int i = 0; i < k->nstep; i++) text_put(out, " %lld", (long long)k->step[i].tasks);
    for (int i = 0; i < k->npack; i++) text_put(out, ", packs %s", u->loops->tensors.at[k->pack[i].tensor].name);
    for (int i = 0; i < k->nwork; i++) text_put(out, ", work of %lld bytes", (long long)k->work_bytes[i]);
    if (k->scratch_bytes) text_put(out, ", scratch of %lld bytes", (long long)k->scratch_bytes);
    text_put(out, "\n");
}

static void show_unit(const struct unit *u, struct text *out)
{
    text_put(out, "unit \"%s\" %s%s%s%s\n", u->label, program_name(u->program), u->opaque ? " opaque" : "",
             u->move ? " move" : "", u->contraction ? " contraction" : "");
    for (int i = 0; i < u->loops->tensors.n; i++) {
        const struct loops_tensor *t = &u->loops->tensors.at[i];
        if (t->role != LOOPS_INPUT && t->role != LOOPS_OUTPUT) continue;
        text_put(out, "    %s %s = ", t->role == LOOPS_INPUT ? "reads" : "writes", t->name);
        show_shape(out, t->user);
        text_put(out, "\n");
    }
    if (!u->opaque) show_loops(out, u->loops);
    if (u->kernel.source) show_kernel(u, out);
    if (u->noperand) show_operands(u, out);
}

/* -- tensors */

static void show_numbers(struct text *out, const char *what, int n, const int64_t *at)
{
    text_put(out, ", %s [", what);
    for (int d = 0; d < n; d++) text_put(out, "%s%lld", d ? " " : "", (long long)at[d]);
    text_put(out, "]");
}

static void show_memory(const struct allocation *s, struct text *out)
{
    int64_t order[SOL_MAX_DIMS];
    bool halo = false;
    for (int d = 0; d < s->t->ndim; d++) {
        order[d] = s->order[d];
        halo |= s->memory.halo_low[d] || s->memory.halo_high[d];
    }
    if (s->root == s->t) show_numbers(out, "order", s->t->ndim, order);
    show_numbers(out, "strides", s->t->ndim, s->memory.stride);
    if (halo) {
        text_put(out, ", halo [");
        for (int d = 0; d < s->t->ndim; d++)
            text_put(out, "%s%d+%d", d ? " " : "", s->memory.halo_low[d], s->memory.halo_high[d]);
        text_put(out, "]");
    }
    text_put(out, ", aligned to %d%s%s", s->memory.align, s->fixed ? ", fixed" : "",
             s->memory.constant ? ", constant" : "");
}

static void show_store(const struct plan *p, const struct allocation *s, struct text *out)
{
    static const char *const roles[] = {
        [TENSOR_INPUT] = "input", [TENSOR_PARAM] = "parameter", [TENSOR_CONST] = "constant", [TENSOR_VALUE] = "value"};
    text_put(out, "tensor ");
    show_shape(out, s->t);
    text_put(out, " %s%s, %d writers, %d readers", roles[s->t->role], s->output ? ", output" : "", s->writers,
             s->readers);
    if (s->root != s->t) {
        text_put(out, ", part of %%%d", s->root->id);
        show_numbers(out, "at", s->t->ndim, s->alias_at);
    }
    if (p->phase >= PHASE_LAYOUT) show_memory(s, out);
    text_put(out, "\n");
}

/* -- chains: the candidates, and the one that was taken */

static void show_chain(const struct plan_chain *c, struct text *out)
{
    text_put(out, "chain of %d units:", c->n);
    for (int i = 0; i < c->choice->n; i++)
        text_put(out, " %s%s%s", i == c->choice->chosen ? "[" : "", c->choice->candidate[i].variant.text,
                 i == c->choice->chosen ? "]" : "");
    text_put(out, "\n");
}

void plan_show(const struct plan *p, struct text *out)
{
    text_put(out, "plan \"%s\" for %s after %s\n", p->g->name, p->target->name,
             p->phase == PHASE_NONE ? "nothing" : plan_phase_name(p->phase, NULL));
    for (int program = 0; program < PROGRAMS; program++)
        for (int i = 0; i < p->units.n; i++)
            if (!p->units.at[i]->dead && (int)p->units.at[i]->program == program) show_unit(p->units.at[i], out);
    for (int i = 0; i < p->nallocations; i++)
        if (p->allocations[i].t && (p->allocations[i].writers || p->allocations[i].readers))
            show_store(p, &p->allocations[i], out);
    for (int i = 0; i < p->chains.n; i++) show_chain(&p->chains.at[i], out);
}
