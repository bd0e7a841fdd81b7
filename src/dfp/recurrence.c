/* Groups that are one scalar recurrence in each row: running sums and products along the last dimension. */
#include "dfp/dfp.h"

bool dfp_is_recurrence(const struct dfp *d, const struct print_group *g, const struct print_tasks *t)
{
    const struct loops_stmt *s = &d->loops->stmts.at[g->first];
    if (d->items || g->n != 1 || !s->scan_step || s->nout != 1 || !t->n || !t->low[t->n - 1]) return false;
    if (d->loops->tensors.at[s->out[0]].role == LOOPS_TEMP || rewrite_has_reduction(d->loops, s->value)) return false;
    return !(stmt_ivars(d->loops, s) & ~(g->shared | bit(s->scan_ivar)));
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
    const uint64_t open = g->shared | bit(s->scan_ivar);
    text_line(d->p.out, "int64_t %s = %s;", name, t->low[t->n - 1]);
    for (int rows = size_lt(size, ROWS) ? 1 : ROWS; rows >= 1; rows = rows > 1) {
        text_open(d->p.out, "for (; %s + %d <= %s; %s += %d) {", name, rows, t->high[t->n - 1], name, rows);
        struct print_state *state[ROWS];
        for (int q = 0; q < rows; q++) {
            d->ivars[row] = (struct print_ivar){true, name, q, 0, size_sub(size, rows)};
            d->p.lanes = 1;
            d->p.states = NULL;
            running_begin(&d->p, s, open, 0);
            state[q] = d->p.states;
        }
        nest_scan(&d->p, s);
        for (int q = 0; q < rows; q++) {
            d->ivars[row] = (struct print_ivar){true, name, q, 0, size_sub(size, rows)};
            d->p.known = d->hoisted = NULL;
            d->p.lanes = 1;
            d->p.states = state[q];
            dfp_row_statement(d, s, open);
        }
        running_end(&d->p);
        text_close(d->p.out, "}");
        text_close(d->p.out, "}");
    }
    d->ivars[row].known = false;
}
