/* Temporaries of integers of which each element is read once are computed where they are read. Most are indices of
 * which negative ones count from the end: `t[A B] = i[A B] + n*[i[A B]<0]; y[A B] = x[A t[A B]]`. As part of a position
 * they are scalars, as is the position. As vectors they would be taken apart again. */
#include "dfp/dfp.h"

struct uses {
    const struct loops *loops;
    int tensor, n;
    int32_t node; /* the last */
};

static void see_use(void *user, int32_t node)
{
    struct uses *u = user;
    const struct ex *e = &u->loops->ex.at[node];
    if (e->kind == EX_READ && e->tensor == u->tensor) u->n++, u->node = node;
}

static bool same_index(const struct loops *loops, int32_t a, int32_t b)
{
    for (; a && b && ex_equal(loops, a, b); b = loops->ex.at[b].next) a = loops->ex.at[a].next;
    return !a && !b;
}

static bool is_integers(const struct loops *loops, const struct loops_stmt *s)
{
    const struct loops_tensor *t = &loops->tensors.at[s->out[0]];
    return s->nout == 1 && !s->scan_step && t->role == LOOPS_TEMP && t->dtype == SOL_I64 &&
           ex_is_int(loops, s->value) && !ex_is_unsigned(loops, s->value) && !rewrite_has_reduction(loops, s->value);
}

/* The statement behind i that alone reads what statement i writes, once for each element; -1: there is none.
 * *out_read: the node that reads. */
static int only_reader(const struct loops *loops, int i, int32_t *out_read)
{
    const struct loops_stmt *s = &loops->stmts.at[i], *r;
    int found = -1;
    for (int k = 0; k < loops->stmts.n; k++) {
        struct uses u = {loops, s->out[0], 0, 0};
        r = &loops->stmts.at[k];
        for (int o = 0; o < r->nout; o++)
            if (k != i && r->out[o] == s->out[0]) return -1;
        ex_walk(loops, r->value, see_use, &u);
        if (!u.n) continue;
        if (u.n > 1 || found >= 0 || k < i) return -1;
        found = k;
        *out_read = u.node;
    }
    if (found < 0) return -1;
    r = &loops->stmts.at[found];
    const struct ex *e = &loops->ex.at[*out_read];
    const bool once = !r->scan_step && !rewrite_has_reduction(loops, r->value) &&
                      stmt_ivars(loops, r) == stmt_ivars(loops, s) && !e->b && same_index(loops, e->a, s->index);
    return once ? found : -1;
}

void dfp_read_once(struct loops *loops)
{
    for (int i = 0; i < loops->stmts.n; i++) {
        int32_t read = 0;
        const int reader = is_integers(loops, &loops->stmts.at[i]) ? only_reader(loops, i, &read) : -1;
        if (reader < 0) continue;
        struct loops_stmt s = loops->stmts.at[reader];
        s.value = ex_replace(loops, s.value, read, loops->stmts.at[i].value);
        loops_set_stmt(loops, reader, s);
        for (int k = i; k < loops->stmts.n - 1; k++) loops_set_stmt(loops, k, loops->stmts.at[k + 1]);
        loops_set_stmts(loops, loops->stmts.n - 1, loops->stmts.at);
        i--;
    }
}
