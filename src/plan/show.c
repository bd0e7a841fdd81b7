/* Prints a plan as text (sol-opt --plan): the result of each phase, for people and for tests that compare it. Costs are
 * left out, because they are not decisions. */
#include "plan/plan.h"

#include <string.h>

#include "print/tree.h"

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
    if (u->when) text_put(out, ", runs %lld times", (long long)u->when);
    text_put(out, "\n");
}

/* -- call trees */

/* The name of operand `index` of a unit's kernel. */
static const char *operand_name(struct text *out, const struct unit *u, int index)
{
    for (int t = 0; t < u->loops->tensors.n; t++) {
        const struct loops_tensor *x = &u->loops->tensors.at[t];
        if ((x->role != LOOPS_INPUT && x->role != LOOPS_OUTPUT) || index-- != 0) continue;
        for (int i = 0; i < u->kernel.npack; i++)
            if (u->kernel.pack[i].tensor == t) return arena_printf(out->arena, "packed %s", x->name);
        return x->name;
    }
    return "?";
}

/* "+ 64", "- 64" */
static void show_plus(struct text *out, int64_t plus)
{
    if (plus) text_put(out, " %s %lld", plus < 0 ? "-" : "+", (long long)(plus < 0 ? -plus : plus));
}

static void show_row(struct text *out, const char *round, int64_t by, int64_t plus)
{
    if (by != 1) text_put(out, "%lld*", (long long)by);
    text_put(out, "%s", round);
    show_plus(out, plus);
}

static void show_address(const struct unit *u, const struct tree_address *a, struct text *out)
{
    const char *const counter[TREE_COUNTERS] = {"task", "image", u->kernel.tree->round};
    switch (a->base) {
    case TREE_OPERAND: text_put(out, "%s", operand_name(out, u, a->index)); break;
    case TREE_SCRATCH: text_put(out, "scratch"); break;
    case TREE_RING: text_put(out, "ring %d", a->index); break;
    }
    if (a->row_bytes) {
        text_put(out, "[");
        show_row(out, u->kernel.tree->round, a->row.by, a->row.plus);
        if (a->row.wrap) text_put(out, " mod %lld", (long long)a->row.wrap);
        text_put(out, "]");
    }
    for (int i = 0; i < TREE_COUNTERS; i++)
        if (a->by[i]) text_put(out, " + %lld*%s", (long long)a->by[i], counter[i]);
    show_plus(out, a->plus);
}

/* One round: the rows of a ring that it needs, then its calls with the addresses of their operands. */
static void show_body(const struct unit *u, const struct tree_body *b, struct text *out)
{
    const struct tree *t = u->kernel.tree;
    if (b->need >= 0) {
        text_put(out, "            needs ring %d, rows ", b->need);
        show_row(out, t->round, b->step, b->low);
        text_put(out, " .. ");
        show_row(out, t->round, b->step, b->high);
        text_put(out, "\n");
    }
    for (int i = 0; i < b->ncall; i++) {
        const struct tree_call *c = &b->call[i];
        text_put(out, "            calls %d: %s %s (", c->member, t->member[c->member]->solver,
                 t->member[c->member]->variant);
        for (int k = 0; k < c->noperand; k++) {
            text_put(out, "%s", k ? ", " : "");
            show_address(u, &c->operand[k], out);
        }
        text_put(out, ")\n");
    }
}

static void show_tree(const struct unit *u, struct text *out)
{
    const struct tree *t = u->kernel.tree;
    for (int i = 0; i < t->nring; i++) {
        const struct tree_ring *r = &t->ring[i];
        text_put(out, "        ring %d: %lld rows", i, (long long)r->rows);
        if (r->stored)
            text_put(out, ", stored\n");
        else
            text_put(out, ", room for %lld of %lld bytes at scratch + %lld, %g outside\n", (long long)r->room,
                     (long long)r->row_bytes, (long long)r->scratch, r->fill);
        show_body(u, &r->body, out);
    }
    for (int i = 0; i < t->nloop; i++) {
        const struct tree_loop *l = &t->loop[i];
        const long long first = l->from, last = l->from + l->n - 1;
        text_put(out, "        loop %s = %lld .. %lld", t->round, l->down ? last : first, l->down ? first : last);
        if (t->nring) text_put(out, ", %lld a task", (long long)t->per_task);
        text_put(out, "\n");
        show_body(u, &l->body, out);
    }
}

static void show_unit(const struct unit *u, struct text *out)
{
    text_put(out, "unit \"%s\" %s%s%s%s\n", u->label, program_name(u->program), u->opaque ? " opaque" : "",
             u->view ? " view" : "", u->contraction ? " contraction" : "");
    for (int i = 0; i < u->loops->tensors.n; i++) {
        const struct loops_tensor *t = &u->loops->tensors.at[i];
        if (t->role != LOOPS_INPUT && t->role != LOOPS_OUTPUT) continue;
        text_put(out, "    %s %s = ", t->role == LOOPS_INPUT ? "reads" : "writes", t->name);
        show_shape(out, t->user);
        text_put(out, "\n");
    }
    if (!u->opaque) show_loops(out, u->loops);
    if (u->kernel.source) show_kernel(u, out);
    if (u->kernel.tree) show_tree(u, out);
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

static void show_allocation(const struct plan *p, const struct allocation *s, struct text *out)
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

static void show_all(const struct plan *p, struct text *out)
{
    text_put(out, "plan \"%s\" for %s after %s\n", p->g->name, p->target->name,
             p->phase == PHASE_NONE ? "nothing" : plan_phase_name(p->phase, NULL));
    for (int program = 0; program < PROGRAMS; program++)
        for (int i = 0; i < p->units.n; i++)
            if (!p->units.at[i]->dead && (int)p->units.at[i]->program == program) show_unit(p->units.at[i], out);
    for (int i = 0; i < p->nallocations; i++)
        if (p->allocations[i].t && (p->allocations[i].writers || p->allocations[i].readers))
            show_allocation(p, &p->allocations[i], out);
    for (int i = 0; i < p->chains.n; i++) show_chain(&p->chains.at[i], out);
}

void plan_show(const struct plan *p, struct text *out)
{
    struct text made = text_new(out->arena);
    uint32_t dims;
    int64_t bad;
    show_all(p, &made);
    size_fill(out, made.at, NULL, &dims, &bad);
}
