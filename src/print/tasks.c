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

void tasks_make(const struct print_plan *pl, const struct print_group *g, uint64_t letters, double ops, double least,
                struct print_tasks *out)
{
    const struct loops *l = pl->cluster.loops;
    struct weigh w = {.pl = pl};
    for (int s = g->first; s < g->first + g->n; s++) {
        const struct loops_stmt *st = &l->stmts.at[s];
        ex_walk(l, st->value, see_access, &w);
        for (int o = 0; o < st->nout; o++) weigh_access(&w, st->out[o], st->index);
    }
    *out = (struct print_tasks){.tasks = 1};
    for (int i = 0; i < l->letters.n; i++) {
        if (!(letters >> i & 1)) continue;
        int j = out->n++;
        for (; j > 0 && w.step[out->letter[j - 1]] < w.step[i]; j--) out->letter[j] = out->letter[j - 1];
        out->letter[j] = (uint8_t)i;
    }
    if (letters_points(l, letters) == 0) {
        out->tasks = 0;
        return;
    }
    const double total = ops * (double)letters_points(l, letters);
    const double want = MIN(total / least, TASKS_MAX);
    while (out->ntask < out->n && (double)out->tasks * 2 <= want) {
        const int64_t size = l->letters.at[out->letter[out->ntask]].size;
        const double parts = want / (double)out->tasks;
        if ((double)size <= parts * 1.5) {
            out->tasks *= MAX(size, 1);
            out->ntask++;
            continue;
        }
        out->block = (int64_t)((double)size / parts) + 1;
        out->tasks *= (size + out->block - 1) / out->block;
        break;
    }
}

void tasks_open(struct print_expr *p, const struct print_tasks *t)
{
    const struct loops *l = p->loops;
    text_open(p->out, "for (int64_t task_ = task0; task_ < task1; task_++) {");
    const bool cut = t->block != 0;
    int left = t->ntask + cut; /* divisors still to come, innermost first */
    const char *rest = "task_";
    if (cut) {
        const int64_t size = l->letters.at[t->letter[t->ntask]].size, n = (size + t->block - 1) / t->block;
        left--;
        if (left) {
            text_line(p->out, "const int64_t block_ = task_ %% %lld, rest%d_ = task_ / %lld;", (long long)n, left,
                      (long long)n);
            rest = arena_printf(p->out->arena, "rest%d_", left);
        } else {
            text_line(p->out, "const int64_t block_ = task_;");
        }
    }
    for (int i = t->ntask - 1; i >= 0; i--) {
        const char *name = expr_letter(p, t->letter[i]);
        const long long size = l->letters.at[t->letter[i]].size;
        if (!i) {
            text_line(p->out, "const int64_t %s = %s;", name, rest);
            break;
        }
        text_line(p->out, "const int64_t %s = %s %% %lld, rest%d_ = %s / %lld;", name, rest, size, i, rest, size);
        rest = arena_printf(p->out->arena, "rest%d_", i);
    }
    for (int i = t->ntask; i < t->n; i++) {
        const char *name = expr_letter(p, t->letter[i]);
        const long long size = l->letters.at[t->letter[i]].size;
        if (cut && i == t->ntask)
            text_open(p->out, "for (int64_t %s = block_ * %lld; %s < sol_min_i64(%lld, block_ * %lld + %lld); %s++) {",
                      name, (long long)t->block, name, size, (long long)t->block, (long long)t->block, name);
        else
            text_open(p->out, "for (int64_t %s = 0; %s < %lld; %s++) {", name, name, size, name);
    }
}

void tasks_close(struct print_expr *p, const struct print_tasks *t)
{
    for (int i = t->ntask; i < t->n + 1; i++) text_close(p->out, "}");
}
