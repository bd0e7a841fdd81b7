/* Splits reductions so that they start while their operand is still in the cache. A reduction over images and pixels,
 * such as the statistics of a batch-norm or the gradient of a bias, becomes
 *
 *   part[N R C] = sum[p Q] f(x[N C R*rows+p Q])   right after the unit that writes x; band.c may join the two
 *   s[C] = sum[N R] part[N R C]                   where s was computed
 *
 * All reductions of one tensor share one pass. */
#include "plan/plan.h"

#include <string.h>

#include "print/print.h"

#define PIXELS 96 /* reduced to one part, at least, if there are that many */
#define FEW 32    /* too few to split */

struct reader {
    struct unit *u;
    struct reader *next;
};
struct split_reduction { /* of tensor t */
    struct plan *p;
    struct sol_tensor *t;
    struct unit *writer;
    int first; /* the first dimension of pixels; `rows` of its rows form a part */
    int64_t rows;
    struct loops *to;
    int32_t at[SOL_MAX_DIMS];      /* the indices of t in `to` */
    int nkept, kept[SOL_MAX_DIMS]; /* the dimensions of parts, channels last */
    int ivar[SOL_MAX_DIMS];        /* of `to`, by dimension: the index of a part */
    uint64_t inner;                /* index variables of `to` that are reduced */
    const char *label;
};

/* -- the shape of parts */

static bool is_pixel(const struct sol_tensor *t, int d)
{
    return t->dim[d].purpose == 'P' && t->dim[d].size > 1;
}

/* The dimension of rows: the first of pixels. -1: there is none. *out_rest: pixels of a row; of sizes that vary, for
 * their hints. */
static int row_dim(const struct sol_tensor *t, int64_t *out_rest)
{
    int first = -1;
    *out_rest = 1;
    for (int d = 0; d < t->ndim; d++) {
        if (!is_pixel(t, d)) continue;
        if (first >= 0) *out_rest *= size_hint(t->dim[d].size);
        if (first < 0) first = d;
    }
    return first;
}

int64_t plan_block_rows(const struct sol_tensor *t)
{
    int64_t rest, rows = 1;
    const int first = row_dim(t, &rest);
    const int64_t size = first < 0 ? 0 : t->dim[first].size, known = size_factor(size);
    while (rows < known && (known % rows || rows * rest < PIXELS)) rows++;
    if (size_varies(size) && rows * rest < FEW) return size; /* all rows: its parts have the same size, too */
    return first < 0 ? 0 : rows;
}

/* False: t is small, or has few pixels. */
static bool choose_rows(struct split_reduction *c)
{
    int64_t rest, bytes = dtype_def(c->t->dtype)->bytes;
    c->first = row_dim(c->t, &rest);
    c->rows = plan_block_rows(c->t);
    for (int d = 0; d < c->t->ndim; d++) bytes *= size_hint(c->t->dim[d].size);
    if (!strcmp(ctx_config(c->p->ctx, "bands"), "always")) return c->first >= 0 && bytes > 0;
    return size_hint(c->rows) * rest >= FEW && bytes >= c->p->target->l2;
}

/* The number of parts along the rows. */
static int64_t parts_of(const struct split_reduction *c)
{
    return size_exact_div(c->t->dim[c->first].size, c->rows);
}

/* The index variables of the loops that compute parts. */
static void begin(struct split_reduction *c)
{
    const struct sol_tensor *t = c->t;
    struct loops *to = c->to = loops_create(c->p->scratch, "parts");
    c->nkept = 0;
    c->inner = 0;
    for (int d = 0; d < t->ndim; d++) {
        const bool pixel = is_pixel(t, d);
        const int64_t size = t->dim[d].size, parts = d == c->first ? parts_of(c) : pixel ? 1 : size;
        const int64_t within = size_exact_div(size, parts);
        const char *name = pixel ? "P" : t->dim[d].purpose == 'C' ? "C" : "N";
        c->at[d] = ex_int(to, 0);
        if (parts > 1) {
            c->ivar[d] = loops_ivar(to, d == c->first ? "R" : name, parts);
            c->at[d] = ex_binary(to, EX_MUL, ex_int(to, within), ex_ivar(to, c->ivar[d]));
        }
        if (within > 1) {
            const int ivar = loops_ivar(to, name, within);
            c->at[d] = ex_binary(to, EX_ADD, c->at[d], ex_ivar(to, ivar));
            c->inner |= UINT64_C(1) << ivar;
        }
    }
    for (int channel = 0; channel < 2; channel++)
        for (int d = 0; d < t->ndim; d++)
            if (ex_ivars(to, c->at[d]) & ~c->inner && (t->dim[d].purpose == 'C') == channel) c->kept[c->nkept++] = d;
}

/* -- which reductions */

struct check {
    const struct split_reduction *c;
    const struct loops *loops;
    bool ok;
};

/* Everything else that is read must be complete when t is. */
static void check_node(void *user, int32_t node)
{
    struct check *k = user;
    const struct ex *e = &k->loops->ex.at[node];
    if (e->kind == EX_RED) k->ok = false;
    if (e->kind != EX_READ) return;
    const struct loops_tensor *t = &k->loops->tensors.at[e->tensor];
    if (t->role != LOOPS_INPUT || !t->user) {
        k->ok &= t->role == LOOPS_TABLE;
        return;
    }
    const struct allocation *s = plan_allocation(k->c->p, t->user);
    const struct unit *writer = k->c->writer;
    if (s->t == k->c->t || !s->writer || s->writer->program != writer->program) return;
    k->ok &= s->root == s->t && s->writers == 1 && s->writer->number < writer->number;
}

/* Is this node of unit u's loops a reduction of t = tensor x over all its pixels, and of nothing else? */
static bool is_sum(const struct split_reduction *c, const struct loops *loops, int x, int32_t node, int32_t *out_index)
{
    const struct ex *e = &loops->ex.at[node];
    const uint64_t bound = e->u.bound;
    if (e->kind != EX_RED || e->a || (e->op != RED_SUM && e->op != RED_MOMENTS)) return false;
    if (bound & ~ex_ivars(loops, e->b)) return false; /* a sum of equal terms */
    if (!plan_reads_plainly(loops, e->b, x, ex_ivars(loops, e->b), out_index) || !plan_covers(loops, x, *out_index))
        return false;
    int d = 0;
    for (int32_t i = *out_index; i; i = loops->ex.at[i].next, d++) {
        const uint64_t ivar = ex_ivars(loops, i);
        if (is_pixel(c->t, d) && !(ivar & bound)) return false;
        if (c->t->dim[d].purpose == 'C' && ivar & bound) return false;
    }
    const enum compute k = expr_natural(loops, e->b);
    struct check check = {c, loops, k == C_F32 || k == C_F64};
    ex_walk(loops, e->b, check_node, &check);
    return check.ok;
}

struct search {
    const struct split_reduction *c;
    const struct loops *loops;
    int x;
    int32_t found, index;
};

static void search_node(void *user, int32_t node)
{
    struct search *s = user;
    if (!s->found && is_sum(s->c, s->loops, s->x, node, &s->index)) s->found = node;
}

/* -- splitting */

static int32_t lazy_read(void *user, struct loops *to, const struct ex *read, const int32_t *index, int nindex,
                         int32_t outside)
{
    const struct search *found = user;
    return ex_read(to, rewrite_tensor(to, found->loops, read->tensor), nindex ? ex_list(to, nindex, index) : 0,
                   outside);
}

/* Adds a statement to c->to that computes parts: the n results of one reduction. */
static void put_parts(struct split_reduction *c, const struct loops *loops, struct search *found,
                      const struct loops_stmt *like, int n, struct sol_tensor **out_part)
{
    const struct ex e = loops->ex.at[found->found];
    struct loops *to = c->to;
    int32_t ivar[LOOPS_MAX_IVARS] = {0}, index[SOL_MAX_DIMS];
    int64_t shape[SOL_MAX_DIMS];
    int d = 0;
    for (int32_t i = found->index; i; i = loops->ex.at[i].next, d++)
        if (loops->ex.at[i].kind == EX_IVAR) ivar[loops->ex.at[i].tensor] = c->at[d];
    for (int k = 0; k < c->nkept; k++) {
        index[k] = ex_ivar(to, c->ivar[c->kept[k]]);
        shape[k] = to->ivars.at[c->ivar[c->kept[k]]].size;
    }
    const enum sol_dtype dtype = expr_natural(loops, e.b) == C_F64 ? SOL_F64 : SOL_F32;
    struct rewrite r = {.to = to, .from = loops, .ivar = ivar, .read = lazy_read, .user = found};
    struct loops_stmt s = {.nout = (uint8_t)n, .label = like->label};
    s.value = ex_red(to, e.op, c->inner, 0, rewrite_ex(&r, e.b));
    s.index = c->nkept ? ex_list(to, c->nkept, index) : 0;
    for (int i = 0; i < n; i++) {
        const char *name = i ? "spread" : "part";
        out_part[i] = plan_tensor(c->p, name, dtype, c->nkept, shape);
        s.out[i] = (uint16_t)loops_tensor(to, name, LOOPS_OUTPUT, dtype, c->nkept, shape);
        loops_set_user(to, s.out[i], out_part[i]);
    }
    loops_stmt(to, s);
}

/* What remains in l: a read of the part, reduced over the remaining index variables of `bound`. */
static int32_t read_part(const struct split_reduction *c, struct loops *loops, const struct search *found,
                         int rows_ivar, struct sol_tensor *part, uint64_t *bound)
{
    int32_t index[SOL_MAX_DIMS], own[SOL_MAX_DIMS];
    int64_t shape[SOL_MAX_DIMS];
    uint64_t ivars = 0;
    int d = 0;
    for (int32_t i = found->index; i; i = loops->ex.at[i].next) own[d++] = i;
    for (int k = 0; k < c->nkept; k++) {
        d = c->kept[k];
        index[k] = d == c->first ? ex_ivar(loops, rows_ivar) : own[d];
        shape[k] = part->dim[k].size;
        ivars |= ex_ivars(loops, index[k]);
    }
    *bound = (*bound | UINT64_C(1) << rows_ivar) & ivars;
    const int in = loops_tensor(loops, part->name, LOOPS_INPUT, part->dtype, c->nkept, shape);
    loops_set_user(loops, in, part);
    return ex_read(loops, in, c->nkept ? ex_list(loops, c->nkept, index) : 0, 0);
}

static int32_t total(struct loops *loops, uint64_t bound, int32_t value)
{
    return bound ? ex_red(loops, RED_SUM, bound, 0, value) : value;
}

/* The mean u and variance v of parts of equal size with mean m and variance q: u is the mean of m; v is the variance of
 * m plus the mean of q. */
static void put_moments(struct loops *loops, int at, uint64_t bound, int32_t m, int32_t q)
{
    struct loops_stmt means = loops->stmts.at[at], spread = means;
    const struct loops_tensor v = loops->tensors.at[means.out[1]];
    spread.nout = 1;
    spread.out[0] = means.out[1];
    spread.value = ex_binary(loops, EX_DIV, total(loops, bound, q), ex_int(loops, ivars_size(loops, bound)));
    means.value = m;
    if (!bound) means.nout = 1;
    if (bound) {
        means.out[1] = (uint16_t)loops_tensor(loops, "apart", LOOPS_TEMP, v.dtype, v.ndim, v.shape);
        means.value = ex_red(loops, RED_MOMENTS, bound, 0, m);
        spread.value = ex_binary(loops, EX_ADD, ex_read(loops, means.out[1], means.index, 0), spread.value);
    }
    loops_stmt(loops, spread);
    for (int i = loops->stmts.n - 1; i > at + 1; i--) loops_set_stmt(loops, i, loops->stmts.at[i - 1]);
    loops_set_stmt(loops, at, means);
    loops_set_stmt(loops, at + 1, spread);
}

/* Splits statement number i of l. False: it has nothing to split. */
static bool split_stmt(struct split_reduction *c, struct loops *loops, int x, int i, int *rows_ivar)
{
    struct loops_stmt s = loops->stmts.at[i];
    struct search found = {.c = c, .loops = loops, .x = x};
    struct sol_tensor *part[2];
    if (s.scan_step) return false;
    ex_walk(loops, s.value, search_node, &found);
    if (!found.found) return false;
    const struct ex e = loops->ex.at[found.found];
    const bool moments = e.op == RED_MOMENTS;
    if (s.nout != 1 + moments || (moments && found.found != s.value) || loops->ivars.n + 1 >= LOOPS_MAX_IVARS)
        return false;
    if (!c->to) begin(c);
    if (*rows_ivar < 0) *rows_ivar = loops_ivar(loops, "R", parts_of(c));
    put_parts(c, loops, &found, &s, s.nout, part);
    uint64_t bound = e.u.bound;
    const int32_t m = read_part(c, loops, &found, *rows_ivar, part[0], &bound);
    if (moments) {
        const int32_t q = read_part(c, loops, &found, *rows_ivar, part[1], &bound);
        put_moments(loops, i, bound, m, q);
        return true;
    }
    s.value = ex_replace(loops, s.value, found.found, total(loops, bound, m));
    loops_set_stmt(loops, i, s);
    return true;
}

static void split_unit(struct split_reduction *c, struct unit *u)
{
    struct loops *loops = loops_copy(c->p->scratch, u->loops);
    int rows_ivar = -1, x = 0;
    while (x < loops->tensors.n && loops->tensors.at[x].user != c->t) x++;
    for (int i = 0; i < loops->stmts.n && x < loops->tensors.n; i++) {
        const char *label = loops->stmts.at[i].label;
        if (!split_stmt(c, loops, x, i, &rows_ivar)) continue;
        while (split_stmt(c, loops, x, i, &rows_ivar)) {
        }
        c->label = c->label ? plan_join_labels(c->p, c->label, label) : label;
    }
    if (rows_ivar < 0) return;
    unit_loops(u, rewrite_sweep(loops));
}

/* -- all tensors */

/* The units that read each tensor, in order. */
static struct reader **find_readers(struct plan *p)
{
    struct reader **of = NEW_ARRAY(p->scratch, struct reader *, p->nallocations + 1);
    for (int i = p->units.n - 1; i >= 0; i--) {
        struct unit *u = p->units.at[i];
        u->number = i;
        for (int k = 0; k < u->loops->tensors.n && !u->dead && !u->opaque; k++) {
            const struct loops_tensor *t = &u->loops->tensors.at[k];
            if (t->role != LOOPS_INPUT || !t->user) continue;
            struct reader *r = NEW(p->scratch, struct reader);
            *r = (struct reader){u, of[((struct sol_tensor *)t->user)->id]};
            of[((struct sol_tensor *)t->user)->id] = r;
        }
    }
    return of;
}

/* The unit that computes the parts of t's reductions. NULL: there are none. */
static struct unit *split_tensor(struct plan *p, struct unit *writer, struct sol_tensor *t,
                                 const struct reader *readers)
{
    struct split_reduction c = {.p = p, .t = t, .writer = writer};
    const struct allocation *s = plan_allocation(p, t);
    if (s->writers != 1 || s->root != t || !choose_rows(&c)) return NULL;
    for (const struct reader *r = readers; r; r = r->next)
        if (r->u->program == writer->program && r->u != writer) split_unit(&c, r->u);
    if (!c.to) return NULL;
    const char *label = arena_printf(p->arena, "%s (parts)", c.label);
    struct unit *u = plan_unit(p, -1, writer->program, rewrite_sweep(c.to), readers->u->layer, label);
    plan_allocation(p, t)->sums = u;
    return u;
}

sol_status plan_split_reductions(struct plan *p)
{
    struct reader **readers = find_readers(p);
    const int n = p->units.n, tensors = p->nallocations;
    VECTOR(struct unit *) order = {0};
    for (int i = 0; i < n; i++) {
        struct unit *u = p->units.at[i];
        PUSH(p->scratch, order, u);
        for (int k = 0; k < u->loops->tensors.n && !u->dead && !u->opaque; k++) {
            const struct loops_tensor *t = &u->loops->tensors.at[k];
            if (t->role != LOOPS_OUTPUT || u->program == PROGRAM_PREPARE ||
                ((struct sol_tensor *)t->user)->id >= tensors)
                continue;
            struct unit *parts = split_tensor(p, u, t->user, readers[((struct sol_tensor *)t->user)->id]);
            if (parts) PUSH(p->scratch, order, parts);
        }
    }
    for (int i = 0; i < order.n; i++) p->units.at[i] = order.at[i];
    return ctx_check(p->ctx);
}
