/* Tasks: the points of the index variables that a group's statements share, outermost index variables first. A task is
 * a range of one index variable at one point of those outside of it. The division depends on the plan alone, never on
 * the number of threads. */
#include <stdlib.h>
#include <string.h>

#include "print/print.h"

#define TASKS_MAX 512 /* several for each of 64 cores */

struct weigh {
    const struct print_plan *pl;
    double step[LOOPS_MAX_IVARS]; /* bytes that one step of the index variable moves in memory */
};

static void weigh_access(struct weigh *w, int tensor, int32_t index)
{
    const struct loops *loops = w->pl->cluster.loops;
    struct affine a;
    if (loops->tensors.at[tensor].role == LOOPS_TABLE) return;
    if (!expr_affine_offset(loops, w->pl->cluster.memory, tensor, index, &a)) return;
    for (int i = 0; i < a.n; i++)
        w->step[a.ivar[i]] += (double)llabs(size_hint(a.coef[i])) * dtype_def(loops->tensors.at[tensor].dtype)->bytes;
}

static void see_access(void *user, int32_t node)
{
    struct weigh *w = user;
    const struct ex *e = &w->pl->cluster.loops->ex.at[node];
    if (e->kind == EX_READ) weigh_access(w, e->tensor, e->a);
}

static void order(const struct print_plan *pl, const struct print_group *g, const struct print_division *by,
                  struct print_tasks *out)
{
    const struct loops *loops = pl->cluster.loops;
    struct weigh w = {.pl = pl};
    if (by->step) memcpy(w.step, by->step, sizeof w.step);
    for (int s = g->first; s < g->first + g->n && !by->step; s++) {
        const struct loops_stmt *st = &loops->stmts.at[s];
        ex_walk(loops, st->value, see_access, &w);
        for (int o = 0; o < st->nout; o++) weigh_access(&w, st->out[o], st->index);
    }
    for (int i = 0; i < loops->ivars.n; i++) {
        if (!(g->shared >> i & 1) || i == by->last) continue;
        int j = out->n++;
        for (; j > 0 && w.step[out->ivar[j - 1]] < w.step[i]; j--) out->ivar[j] = out->ivar[j - 1];
        out->ivar[j] = (uint8_t)i;
    }
    if (by->last >= 0) out->ivar[out->n++] = (uint8_t)by->last;
}

void tasks_make(const struct print_plan *pl, const struct print_group *g, const struct print_division *by,
                struct print_tasks *out)
{
    const struct loops *loops = pl->cluster.loops;
    *out = (struct print_tasks){.tasks = 1};
    order(pl, g, by, out);
    const double want = MIN(by->ops * (double)ivars_points(loops, g->shared) / by->least, TASKS_MAX);
    for (int i = 0; i < out->n; i++) {
        const int ivar = out->ivar[i];
        const int64_t size = loops->ivars.at[ivar].size, given = by->unit ? by->unit[ivar] : 1,
                      unit = given ? given : MAX(size, 1);
        const int64_t units = given || !size ? size_ceil_div(size, unit) : 1,
                      usual = size_varies(units) ? MAX(size_hint(units), 1) : units;
        double parts = want / (double)MAX(size_hint(out->tasks), 1);
        if (parts < 1.5) parts = 1;
        if (by->single || (double)usual < parts * 1.5) parts = (double)usual;
        const int64_t block = parts >= 1 ? (int64_t)((double)(usual - 1) / parts) + 1 : usual;
        out->block[i] = size_mul(block, unit);
        /* A dimension may be empty. Blocks are as large as for the hint, so their number varies with the size. */
        out->parts[i] = block ? size_ceil_div(units, block) : 0;
        if (!size_varies(size) && out->parts[i] <= 1) out->block[i] = size;
        out->tasks = size ? size_mul(out->tasks, size_varies(size) ? out->parts[i] : MAX(out->parts[i], 1)) : 0;
    }
}

void tasks_open(struct print_expr *p, struct print_tasks *t)
{
    const struct loops *loops = p->loops;
    text_open(p->out, "for (int64_t task_ = task0; task_ < task1; task_++) {");
    int cut = 0;
    for (int i = 0; i < t->n; i++) cut += t->parts[i] > 1;
    const char *rest = "task_";
    for (int i = t->n - 1; i >= 0; i--) {
        const char *name = loops->ivars.at[t->ivar[i]].name;
        const long long size = loops->ivars.at[t->ivar[i]].size, parts = t->parts[i], block = t->block[i];
        t->low[i] = "0";
        t->high[i] = arena_printf(p->out->arena, "%lld", size);
        if (parts <= 1) continue;
        const char *at = --cut ? arena_printf(p->out->arena, "%s %% %lld", rest, parts) : rest;
        if (block == 1) {
            text_line(p->out, "const int64_t %s = %s;", name, at);
            t->low[i] = NULL;
        } else {
            t->low[i] = arena_printf(p->out->arena, "%s_0_", name);
            t->high[i] = arena_printf(p->out->arena, "%s_1_", name);
            text_line(p->out, "const int64_t %s = %s * %lld, %s = @sol_min_i64(%s + %lld, %lld);", t->low[i], at, block,
                      t->high[i], t->low[i], block, size);
        }
        if (!cut) continue;
        const char *next = arena_printf(p->out->arena, "rest%d_", i);
        text_line(p->out, "const int64_t %s = %s / %lld;", next, rest, parts);
        rest = next;
    }
}

bool tasks_loop(struct print_expr *p, const struct print_tasks *t, int i)
{
    const char *name = p->loops->ivars.at[t->ivar[i]].name;
    if (!t->low[i] || (p->ivars && p->ivars[t->ivar[i]].known)) return false;
    if (p->loops->ivars.at[t->ivar[i]].size == 1) {
        text_line(p->out, "const int64_t %s = 0;", name);
        return false;
    }
    text_open(p->out, "for (int64_t %s = %s; %s < %s; %s++) {", name, t->low[i], name, t->high[i], name);
    return true;
}
