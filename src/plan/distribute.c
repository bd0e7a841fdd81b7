/* Loop distribution: a layer whose statements are independent becomes several units. Statements that write disjoint
 * parts of one tensor (Concat) are separated, so that the producer of a part can write it. Products are separated from
 * other statements: in a recurrence, the product with the inputs of all steps is then an ordinary contraction, and
 * scan.c gets the steps. */
#include "plan/plan.h"

#include <string.h>

#include "print/print.h"

#define DEEP 8 /* a sum of this many products justifies a kernel */

bool plan_reads_written(const struct loops *loops, int32_t node, int first, int last)
{
    for (int i = first; i < last; i++)
        for (int o = 0; o < loops->stmts.at[i].nout; o++)
            if (rewrite_reads(loops, node, loops->stmts.at[i].out[o])) return true;
    return false;
}

struct written {
    const struct loops *loops;
    const bool *tensor; /* by tensor: a statement writes it */
    bool read;
};

static void see_written(void *user, int32_t node)
{
    struct written *w = user;
    const struct ex *e = &w->loops->ex.at[node];
    w->read |= e->kind == EX_READ && w->tensor[e->tensor];
}

/* Are the statements independent of each other? */
static bool disjoint(const struct loops *loops)
{
    bool *tensor = NEW_ARRAY(loops->arena, bool, loops->tensors.n + 1);
    struct written w = {.loops = loops, .tensor = tensor};
    for (int i = 0; i < loops->stmts.n; i++)
        for (int o = 0; o < loops->stmts.at[i].nout; o++) tensor[loops->stmts.at[i].out[o]] = true;
    for (int i = 0; i < loops->stmts.n; i++) {
        const struct loops_stmt *s = &loops->stmts.at[i];
        ex_walk(loops, s->value, see_written, &w);
        if (s->nout != 1 || s->scan_step || w.read) return false;
    }
    return loops->stmts.n > 1;
}

struct products {
    const struct loops *loops;
    int n;
    int32_t node; /* the last product found */
};

/* Is an element of one factor multiplied with several of the other? Else the product is a reduction like any other. */
static bool is_reused(const struct loops *loops, int32_t sum)
{
    const struct ex *body = &loops->ex.at[loops->ex.at[sum].b];
    return ex_ivars(loops, body->a) != ex_ivars(loops, body->b);
}

static void find_product(void *user, int32_t node)
{
    struct products *p = user;
    const struct loops *loops = p->loops;
    if (!ex_is_contraction(loops, node) || loops->ex.at[node].a || !is_reused(loops, node) ||
        ivars_points(loops, loops->ex.at[node].u.bound) < DEEP)
        return;
    p->n++;
    p->node = node;
}

static struct products products_of(const struct loops *loops, int32_t value)
{
    struct products p = {.loops = loops};
    ex_walk(loops, value, find_product, &p);
    return p;
}

bool plan_is_product(const struct loops *loops, int32_t value)
{
    return products_of(loops, value).n > 0;
}

/* Of several products in one statement, all but one become statements of their own, because solvers compute one
 * product. */
static struct loops *part_products(const struct loops *from)
{
    struct loops *loops = loops_copy_with(from->arena, from, 0, NULL);
    for (int i = 0; i < from->stmts.n; i++) {
        struct loops_stmt rest = from->stmts.at[i];
        const struct loops_tensor t = loops->tensors.at[rest.out[0]];
        for (struct products p = products_of(loops, rest.value); p.n > 1; p = products_of(loops, rest.value)) {
            struct loops_stmt s = rest;
            s.value = ex_red(loops, RED_SUM, loops->ex.at[p.node].u.bound, 0, loops->ex.at[p.node].b);
            s.out[0] = (uint16_t)loops_tensor(loops, "product", LOOPS_TEMP, t.dtype, t.ndim, t.shape);
            loops_stmt(loops, s);
            rest.value = ex_replace(loops, rest.value, p.node, ex_read(loops, s.out[0], s.index, 0));
        }
        loops_stmt(loops, rest);
    }
    return loops;
}

/* Does this index reach the last value of the loop over `ivar`? */
static bool is_last(const struct loops *loops, int32_t index, const struct loops_stmt *scan)
{
    const struct ex *e = &loops->ex.at[index];
    return e->kind == EX_INT && e->u.i == (scan->scan_step > 0 ? loops->ivars.at[scan->scan_ivar].size - 1 : 0);
}

struct ends {
    const struct loops *loops;
    int first, last;
    bool all; /* every read of what the statements write is a read of their last step */
};

static void see_end(void *user, int32_t node)
{
    struct ends *e = user;
    const struct loops *loops = e->loops;
    const struct ex *read = &loops->ex.at[node];
    if (read->kind != EX_READ) return;
    for (int i = e->first; i < e->last; i++) {
        const struct loops_stmt *s = &loops->stmts.at[i];
        if (s->out[0] != read->tensor) continue;
        int32_t at = read->a, w = s->index;
        for (; w && !(loops->ex.at[w].kind == EX_IVAR && loops->ex.at[w].tensor == s->scan_ivar);
             w = loops->ex.at[w].next)
            at = loops->ex.at[at].next;
        e->all &= w && is_last(loops, at, s);
    }
}

/* The number of statements from `last` on that read only the last step of statements first .. last - 1, such as an
 * LSTM's last state. They run after these. */
static int followers(const struct loops *loops, int first, int last)
{
    int n = 0;
    for (; last + n < loops->stmts.n; n++) {
        const struct loops_stmt *s = &loops->stmts.at[last + n];
        struct ends e = {loops, first, last, true};
        ex_walk(loops, s->value, see_end, &e);
        if (s->nout != 1 || s->scan_step || !e.all || !plan_reads_written(loops, s->value, first, last) ||
            plan_reads_written(loops, s->value, 0, first) || plan_reads_written(loops, s->value, last, loops->stmts.n))
            break;
    }
    return n;
}

/* The number of statements from `first` on that form a part: a product, the steps of a recurrence, or other statements
 * up to the next of these. */
static int part_length(const struct loops *loops, int first)
{
    int n = groups_scan(loops, first);
    if (loops->stmts.at[first].scan_step) return n + followers(loops, first, first + n);
    if (plan_is_product(loops, loops->stmts.at[first].value)) return 1;
    while (first + n < loops->stmts.n && !loops->stmts.at[first + n].scan_step &&
           !plan_is_product(loops, loops->stmts.at[first + n].value))
        n++;
    return n;
}

/* Is one of several statements a product, and has none of them several results? */
static bool has_products(const struct loops *loops)
{
    bool product = false;
    for (int i = 0; i < loops->stmts.n; i++) {
        if (loops->stmts.at[i].nout != 1) return false;
        product |= plan_is_product(loops, loops->stmts.at[i].value);
    }
    return product && loops->stmts.n > 1;
}

/* Temporaries that one part passes to another are stored in memory. */
static void share_temps(struct plan *p, struct loops *loops)
{
    for (int first = 0, n; first < loops->stmts.n; first += n) {
        n = part_length(loops, first);
        for (int i = first; i < first + n; i++) {
            const int out = loops->stmts.at[i].out[0];
            const struct loops_tensor *t = &loops->tensors.at[out];
            if (t->role != LOOPS_TEMP) continue;
            for (int k = 0; k < loops->stmts.n && !t->user; k++)
                if ((k < first || k >= first + n) && rewrite_reads(loops, loops->stmts.at[k].value, out))
                    loops_set_user(loops, out, plan_tensor(p, t->name, t->dtype, t->ndim, t->shape));
        }
    }
}

/* Statements first .. first + n - 1 as loops of their own. Results of other parts are inputs. */
static struct loops *part_of(const struct rewrite_part *all, int first, int n)
{
    struct loops *part = rewrite_part(all, first, n);
    for (int i = 0; i < part->tensors.n; i++)
        if (part->tensors.at[i].user && part->tensors.at[i].role != LOOPS_TABLE) loops_set_role(part, i, LOOPS_INPUT);
    for (int i = 0; i < part->stmts.n; i++) {
        const int out = part->stmts.at[i].out[0];
        if (part->tensors.at[out].user) loops_set_role(part, out, LOOPS_OUTPUT);
    }
    return part;
}

/* Does a solver compute all statements together? Layouts are not known yet, so it is asked for row-major tensors. */
static bool stays_whole(const struct plan *p, const struct loops *loops)
{
    const struct arena_mark mark = arena_mark(p->scratch);
    const struct solver_context sc = {.arena = p->scratch, .target = p->target};
    struct cluster c = {.loops = loops, .memory = NEW_ARRAY(p->scratch, struct memory, loops->tensors.n + 1)};
    const char *why;
    bool whole = false;
    for (int i = 0; i < loops->tensors.n; i++) {
        int64_t stride = 1;
        for (int d = loops->tensors.at[i].ndim - 1; d >= 0; d--) {
            c.memory[i].stride[d] = stride;
            stride = size_mul(stride, loops->tensors.at[i].shape[d]);
        }
    }
    for (int i = 0; solvers[i] && !whole; i++)
        whole = solvers[i]->whole && (!p->forced || p->forced == solvers[i]) && solvers[i]->applicable(&sc, &c, &why);
    arena_rewind(p->scratch, mark);
    return whole;
}

int plan_distribute(struct plan *p, const struct loops *loops, const struct loops **out_part)
{
    const bool apart = disjoint(loops);
    int parts = 0;
    out_part[0] = loops;
    if (!apart && (!has_products(loops) || stays_whole(p, loops))) return 1;
    if (!apart) {
        struct loops *shared = part_products(loops);
        share_temps(p, shared);
        loops = shared;
    }
    const struct rewrite_part all = rewrite_parts(loops);
    for (int first = 0, n; first < loops->stmts.n; first += n) {
        n = apart ? 1 : part_length(loops, first);
        out_part[parts++] = part_of(&all, first, n);
    }
    return parts;
}
