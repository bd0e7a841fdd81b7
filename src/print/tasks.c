/* Tasks: the points of the letters that a group's statements share, outermost letters first. A task is a range of one
 * letter at one point of those outside it. The cut depends on the plan alone, never on the number of threads. */
#include <stdlib.h>

#include "print/print.h"

#define TASKS_MAX 512 /* several for each of 64 cores */

struct weigh {
    const struct print_plan *pl;
    double step[LOOPS_MAX_LETTERS]; /* bytes moved through memory by one step of the letter */
};

static void weigh_access(struct weigh *w, int tensor, int32_t index)
{
    const struct loops *l = w->pl->cluster.loops;
    struct affine a;
    if (l->tensors.at[tensor].role == LOOPS_TABLE) return;
    if (!expr_affine_offset(l, w->pl->cluster.memory, tensor, index, &a)) return;
    for (int i = 0; i < a.n; i++)
        w->step[a.letter[i]] += (double)llabs(a.coef[i]) * dtype_def(l->tensors.at[tensor].dtype)->bytes;
}

static void see_access(void *user, int32_t node)
{
    struct weigh *w = user;
    const struct ex *e = &w->pl->cluster.loops->ex.at[node];
    if (e->kind == EX_READ) weigh_access(w, e->tensor, e->a);
}

static void order(const struct print_plan *pl, const struct print_group *g, uint64_t letters, int last,
                  struct print_tasks *out)
{
    const struct loops *l = pl->cluster.loops;
    struct weigh w = {.pl = pl};
    for (int s = g->first; s < g->first + g->n; s++) {
        const struct loops_stmt *st = &l->stmts.at[s];
        ex_walk(l, st->value, see_access, &w);
        for (int o = 0; o < st->nout; o++) weigh_access(&w, st->out[o], st->index);
    }
    for (int i = 0; i < l->letters.n; i++) {
        if (!(letters >> i & 1) || i == last) continue;
        int j = out->n++;
        for (; j > 0 && w.step[out->letter[j - 1]] < w.step[i]; j--) out->letter[j] = out->letter[j - 1];
        out->letter[j] = (uint8_t)i;
    }
    if (last >= 0) out->letter[out->n++] = (uint8_t)last;
}

void tasks_make(const struct print_plan *pl, const struct print_group *g, uint64_t letters, double ops, double least,
                int last, const int64_t *unit, struct print_tasks *out)
{
    const struct loops *l = pl->cluster.loops;
    *out = (struct print_tasks){.tasks = 1};
    order(pl, g, letters, last, out);
    const double want = MIN(ops * (double)letters_points(l, letters) / least, TASKS_MAX);
    for (int i = 0; i < out->n; i++) {
        const int letter = out->letter[i];
        const int64_t size = l->letters.at[letter].size, given = unit ? unit[letter] : 1,
                      by = given ? given : MAX(size, 1);
        const int64_t units = (size + by - 1) / by;
        double parts = want / (double)MAX(out->tasks, 1);
        if (parts < 1.5) parts = 1;
        if ((double)units < parts * 1.5) parts = (double)units;
        const int64_t block = parts >= 1 ? (int64_t)((double)(units - 1) / parts) + 1 : units;
        out->block[i] = block * by;
        out->parts[i] = block ? (units + block - 1) / block : 0; /* a dimension may be empty */
        if (out->parts[i] <= 1) out->block[i] = size;
        out->tasks *= size ? MAX(out->parts[i], 1) : 0;
    }
}

void tasks_open(struct print_expr *p, struct print_tasks *t)
{
    const struct loops *l = p->loops;
    text_open(p->out, "for (int64_t task_ = task0; task_ < task1; task_++) {");
    int cut = 0;
    for (int i = 0; i < t->n; i++) cut += t->parts[i] > 1;
    const char *rest = "task_";
    for (int i = t->n - 1; i >= 0; i--) {
        const char *name = l->letters.at[t->letter[i]].name;
        const long long size = l->letters.at[t->letter[i]].size, parts = t->parts[i], block = t->block[i];
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
            text_line(p->out, "const int64_t %s = (%s) * %lld, %s = sol_min_i64(%s + %lld, %lld);", t->low[i], at,
                      block, t->high[i], t->low[i], block, size);
        }
        if (!cut) continue;
        const char *next = arena_printf(p->out->arena, "rest%d_", i);
        text_line(p->out, "const int64_t %s = %s / %lld;", next, rest, parts);
        rest = next;
    }
}

bool tasks_loop(struct print_expr *p, const struct print_tasks *t, int i)
{
    const char *name = p->loops->letters.at[t->letter[i]].name;
    if (!t->low[i] || (p->letters && p->letters[t->letter[i]].known)) return false;
    if (p->loops->letters.at[t->letter[i]].size == 1) {
        text_line(p->out, "const int64_t %s = 0;", name);
        return false;
    }
    text_open(p->out, "for (int64_t %s = %s; %s < %s; %s++) {", name, t->low[i], name, t->high[i], name);
    return true;
}
