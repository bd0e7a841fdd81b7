/* Groups that are one scalar recurrence in each row: running sums and products along the last dimension. */
#include "dfp/dfp.h"

#include <math.h>
#include <stdlib.h>

bool dfp_is_recurrence(const struct dfp *d, const struct print_group *g, const struct print_tasks *t)
{
    const struct loops_stmt *s = &d->loops->stmts.at[g->first];
    if (d->items || g->n != 1 || !s->scan_step || s->nout != 1 || !t->n || !t->low[t->n - 1]) return false;
    if (d->loops->tensors.at[s->out[0]].role == LOOPS_TEMP || rewrite_has_reduction(d->loops, s->value)) return false;
    return !(stmt_ivars(d->loops, s) & ~(g->shared | bit(s->scan_ivar)));
}

/* The reads of the element before, if the value has no others of the tensor that it writes. A C variable can stand for
 * them: the element's type is one that is computed in. */
struct before {
    const struct dfp *d;
    const struct loops_stmt *s;
    int n;
    int32_t node[4];
    bool others;
};

/* Does a variable of the tensor's type keep the number that stands for elements outside? */
static bool fits(const struct before *b, int32_t node)
{
    const struct ex *e = &b->d->loops->ex.at[node];
    const enum sol_dtype t = (enum sol_dtype)b->d->loops->tensors.at[b->s->out[0]].dtype;
    if (!node) return false;
    if (e->kind == EX_INT) return t == SOL_I64 || llabs(e->u.i) < 1 << 24;
    return e->kind == EX_REAL && t != SOL_I64 && (t == SOL_F64 || (double)(float)e->u.r == e->u.r || isnan(e->u.r));
}

static void see_before(void *user, int32_t node)
{
    struct before *b = user;
    const struct loops *loops = b->d->loops;
    const struct ex *e = &loops->ex.at[node];
    struct affine at, own;
    if (e->kind != EX_READ || e->tensor != b->s->out[0]) return;
    b->others |= !fits(b, e->b) || b->n == COUNT_OF(b->node) || (b->n && !ex_equal(loops, b->node[0], node));
    for (int32_t i = e->a, k = b->s->index; i && k && !b->others; i = loops->ex.at[i].next, k = loops->ex.at[k].next) {
        b->others |= !ex_affine(loops, i, &at) || !ex_affine(loops, k, &own) || own.n != 1 || own.coef[0] != 1 || own.c;
        const bool scan = !b->others && own.ivar[0] == b->s->scan_ivar;
        b->others |= at.n != 1 || at.coef[0] != 1 || at.ivar[0] != own.ivar[0] || at.c != (scan ? -b->s->scan_step : 0);
    }
    if (!b->others) b->node[b->n++] = node;
}

static struct before before(const struct dfp *d, const struct loops_stmt *s)
{
    struct before b = {.d = d, .s = s};
    const enum sol_dtype t = (enum sol_dtype)d->loops->tensors.at[s->out[0]].dtype;
    ex_walk(d->loops, s->value, see_before, &b);
    if (b.others || (t != SOL_F32 && t != SOL_F64 && t != SOL_I64)) b.n = 0;
    return b;
}

/* An element waits for the one before, so a few rows advance side by side. More would meet in the cache: rows are often
 * a power of two apart. */
void dfp_recurrence(struct dfp *d, const struct print_group *g, const struct print_tasks *t)
{
    enum { ROWS = 4 };
    const struct loops_stmt *s = &d->loops->stmts.at[g->first];
    const int row = t->ivar[t->n - 1];
    const char *name = d->loops->ivars.at[row].name;
    const int64_t size = d->loops->ivars.at[row].size;
    const struct before b = before(d, s);
    const enum compute k = compute_of((enum sol_dtype)d->loops->tensors.at[s->out[0]].dtype);
    text_line(d->p.out, "int64_t %s = %s;", name, t->low[t->n - 1]);
    for (int rows = size_lt(size, ROWS) ? 1 : ROWS; rows >= 1; rows = rows > 1) {
        text_open(d->p.out, "for (; %s + %d <= %s; %s += %d) {", name, rows, t->high[t->n - 1], name, rows);
        const char *last[ROWS];
        for (int q = 0; q < rows && b.n; q++) {
            last[q] = expr_name(&d->p);
            d->p.lanes = 1;
            text_line(d->p.out, "%s %s = %s;", compute_def(k)->type, last[q],
                      expr_scalar(&d->p, d->loops->ex.at[b.node[0]].b, k));
        }
        nest_scan(&d->p, s);
        for (int q = 0; q < rows; q++) {
            d->ivars[row] = (struct print_ivar){true, name, q, 0, size_sub(size, rows)};
            d->p.known = d->hoisted = NULL;
            d->p.lanes = 1;
            for (int i = 0; i < b.n; i++) dfp_name(d, b.node[i], k, last[q]);
            d->hoisted = d->p.known;
            dfp_row_statement(d, s, g->shared | bit(s->scan_ivar));
            d->hoisted = NULL;
            if (b.n)
                text_line(d->p.out, "%s = %s[%s];", last[q], d->loops->tensors.at[s->out[0]].name,
                          print_offset(&d->p, s->out[0], s->index));
        }
        text_close(d->p.out, "}");
        text_close(d->p.out, "}");
    }
    d->ivars[row].known = false;
}
