/* Groups: the statements of a kernel are divided into steps. The statements of a step share outer loops over index
 * variables that each of them writes along and that no read mixes: a value written at one point of these index
 * variables is read at that point only. So a temporary inside a step needs no memory along them, and their points can
 * be tasks in any order. Statements that share all their index variables are brought together first. Others join a step
 * if enough tasks remain and the data of a task stay in the cache. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "print/flavour.h"
#include "print/print.h"

#define PAGE 4096 /* bytes; addresses a multiple of this apart map to the same set of L1 */

int groups_scan(const struct loops *loops, int s)
{
    int n = 1;
    const struct loops_stmt *at = &loops->stmts.at[s];
    if (!at->scan_step) return 1;
    while (s + n < loops->stmts.n && at[n].scan_step == at->scan_step && at[n].scan_ivar == at->scan_ivar) n++;
    return n;
}

double expr_ops(const struct loops *loops, int32_t node)
{
    if (!node) return 0;
    const struct ex *e = &loops->ex.at[node];
    double n = 0;
    switch (e->kind) {
    case EX_READ:
        for (int32_t i = e->a; i; i = loops->ex.at[i].next) {
            struct affine a;
            if (!ex_affine(loops, i, &a)) n += 4 + expr_ops(loops, i);
        }
        return n + (e->b ? 2 : 1);
    case EX_CALL:
        for (int32_t i = e->a; i; i = loops->ex.at[i].next) n += expr_ops(loops, i);
        return n + (math_at(e->op)->expr ? 40 : math_at(e->op)->c_vector ? 6 : 30);
    case EX_RED: return ivars_points(loops, e->u.bound) * (expr_ops(loops, e->b) + expr_ops(loops, e->a) + 1);
    case EX_AND:
    case EX_OR:
        for (int32_t i = e->a; i; i = loops->ex.at[i].next) n += expr_ops(loops, i);
        return n;
    case EX_INT:
    case EX_REAL:
    case EX_IVAR: return 0;
    default: return 1 + expr_ops(loops, e->a) + expr_ops(loops, e->b);
    }
}

/* -- which index variables can be shared */

struct sharing {
    const struct loops *loops;
    int first, last; /* the group's statements, including the current one */
    uint64_t shared;
};

/* Index variables of the group's writes of `tensor` that a read with this index list mixes. */
static void mix(struct sharing *s, int tensor, int32_t index)
{
    for (int i = s->first; i <= s->last; i++) {
        const struct loops_stmt *w = &s->loops->stmts.at[i];
        for (int o = 0; o < w->nout; o++) {
            if (w->out[o] != tensor) continue;
            int32_t a = w->index, b = index;
            for (; a; a = s->loops->ex.at[a].next, b = s->loops->ex.at[b].next) {
                const uint64_t ivars = ex_ivars(s->loops, a) & s->shared;
                if (ivars && !ex_equal(s->loops, a, b)) s->shared &= ~ivars;
            }
        }
    }
}

static void see_read(void *user, int32_t node)
{
    struct sharing *s = user;
    const struct ex *e = &s->loops->ex.at[node];
    if (e->kind == EX_READ) mix(s, e->tensor, e->a);
    if (e->kind == EX_RED) s->shared &= ~e->u.bound;
}

uint64_t groups_shared(const struct loops *loops, int first, int last)
{
    struct sharing s = {loops, first, last, ~UINT64_C(0)};
    for (int i = first; i <= last; i++) {
        s.shared &= stmt_ivars(loops, &loops->stmts.at[i]);
        if (loops->stmts.at[i].scan_step) s.shared &= ~bit(loops->stmts.at[i].scan_ivar);
    }
    for (int i = first; i <= last; i++) ex_walk(loops, loops->stmts.at[i].value, see_read, &s);
    return s.shared;
}

static double elements(const struct loops_tensor *t)
{
    double n = 1;
    for (int d = 0; d < t->ndim; d++) n *= (double)size_hint(t->shape[d]);
    return n;
}

uint64_t groups_unit_ivars(const struct loops *loops, const struct memory *m)
{
    enum { MINOR = 4 }; /* an output with fewer elements than the largest by this factor does not count */
    uint64_t ivars = 0;
    double most = 0;
    for (int i = 0; i < loops->tensors.n; i++)
        if (loops->tensors.at[i].role == LOOPS_OUTPUT) most = fmax(most, elements(&loops->tensors.at[i]));
    for (int s = 0; s < loops->stmts.n; s++) {
        const struct loops_stmt *st = &loops->stmts.at[s];
        struct affine a;
        for (int o = 0; o < st->nout; o++) {
            const struct loops_tensor *t = &loops->tensors.at[st->out[o]];
            if (t->role != LOOPS_OUTPUT || elements(t) * MINOR < most) continue;
            if (!expr_affine_offset(loops, m, st->out[o], st->index, &a)) continue;
            for (int i = 0; i < a.n; i++)
                if (a.coef[i] == 1) ivars |= bit(a.ivar[i]);
        }
    }
    return ivars;
}

/* -- who uses a tensor */

static bool group_uses(const struct loops *loops, const struct print_group *g, int tensor)
{
    for (int i = g->first; i < g->first + g->n; i++) {
        if (rewrite_reads(loops, loops->stmts.at[i].value, tensor)) return true;
        for (int o = 0; o < loops->stmts.at[i].nout; o++)
            if (loops->stmts.at[i].out[o] == tensor) return true;
    }
    return false;
}

/* -- order */

/* Must statement b stay after statement a? */
static bool behind(const struct loops *loops, int a, int b)
{
    const struct print_group one = {a, 1, 0, 0}, other = {b, 1, 0, 0};
    for (int o = 0; o < loops->stmts.at[a].nout; o++)
        if (group_uses(loops, &other, loops->stmts.at[a].out[o])) return true;
    for (int o = 0; o < loops->stmts.at[b].nout; o++)
        if (group_uses(loops, &one, loops->stmts.at[b].out[o])) return true;
    return false;
}

static void move(struct loops *loops, int from, int to)
{
    const struct loops_stmt s = loops->stmts.at[from];
    const int step = from < to ? 1 : -1;
    for (int i = from; i != to; i += step) loops_set_stmt(loops, i, loops->stmts.at[i + step]);
    loops_set_stmt(loops, to, s);
}

/* Moves a statement right after first .. at - 1: the first that may move there and shares all index variables with
 * them. False: there is none. */
static bool bring(struct loops *loops, int first, int at)
{
    const uint64_t shared = groups_shared(loops, first, at - 1);
    for (int s = at; s < loops->stmts.n; s++) {
        bool may = true;
        for (int i = at; i < s && may; i++) may = !behind(loops, i, s);
        if (!may || groups_shared(loops, s, s) != shared) continue;
        move(loops, s, at);
        if (groups_shared(loops, first, at) == shared) return true;
        move(loops, at, s);
    }
    return false;
}

static bool has_scans(const struct loops *loops)
{
    for (int s = 0; s < loops->stmts.n; s++)
        if (loops->stmts.at[s].scan_step) return true;
    return false;
}

/* Makes statements neighbours that share all their index variables. Statements of scans do not move. */
static void order(struct loops *loops)
{
    if (has_scans(loops)) return;
    for (int at = 1, first = 0; at < loops->stmts.n; at++)
        if (!bring(loops, first, at)) first = at;
}

/* -- dividing into steps */

/* The number of tasks that the shared index variables allow. Vectors use up the one along which results are
 * contiguous. */
static int64_t parallel(const struct print_plan *pl, uint64_t shared)
{
    const struct loops *loops = pl->cluster.loops;
    const uint64_t unit = pl->unit & shared;
    const int64_t n = ivars_points(loops, shared);
    return unit ? n / MIN(pl->lanes, MAX(1, ivars_points(loops, unit))) : n;
}

/* How much more of the cache a task over one vector needs because the cache lines that it touches are a power of two
 * apart and so map to few sets. The task reads a part of one such line per row of the tensor. */
static double spread(const struct print_plan *pl, int tensor)
{
    const struct loops_tensor *t = &pl->cluster.loops->tensors.at[tensor];
    const int64_t bytes = dtype_def(t->dtype)->bytes;
    int64_t stride = 0;
    for (int d = 0; d < t->ndim; d++) {
        const int64_t by = llabs(size_hint(pl->cluster.memory[tensor].stride[d])) * bytes;
        if (t->shape[d] > 1 && by > bytes && (!stride || by < stride)) stride = by;
    }
    return (double)MAX(1, MIN(stride & -stride, PAGE) / (pl->lanes * bytes));
}

/* Bytes of cache that a task over one vector of the shared index variables needs to keep what it touched. */
static double touched(const struct print_plan *pl, const struct print_group *g)
{
    const struct loops *loops = pl->cluster.loops;
    const bool columns = pl->unit & g->shared;
    double bytes = 0;
    for (int t = 0; t < loops->tensors.n; t++) {
        if (loops->tensors.at[t].role == LOOPS_TABLE || !group_uses(loops, g, t)) continue;
        const double n = dtype_def(loops->tensors.at[t].dtype)->bytes * elements(&loops->tensors.at[t]);
        bytes += columns ? n * spread(pl, t) : n;
    }
    return bytes / (double)MAX(1, parallel(pl, g->shared));
}

/* Is adding the group `more` to `g`, after which both share `together`, better than two steps? Statements that lose
 * shared index variables run one after another in a task, which pays if their data stay in the cache. */
static bool worth(const struct print_plan *pl, const struct print_group *g, const struct print_group *more,
                  uint64_t together)
{
    const int64_t now = parallel(pl, together);
    const struct print_group both = {g->first, g->n + more->n, together, 0};
    if (g->ops + more->ops < 2e5) return true; /* little work: another step would cost more than it gains */
    if ((together != g->shared || together != more->shared) && touched(pl, &both) > pl->near) return false;
    return now >= 32 || (now >= parallel(pl, g->shared) && now >= parallel(pl, more->shared));
}

/* The same on a graphics card: is one step faster than two? */
static bool worth_on_card(const struct print_plan *pl, const struct print_group *g, const struct print_group *more,
                          uint64_t together)
{
    const struct print_group both = {g->first, g->n + more->n, together, 0};
    return card_group_ns(pl, &both) <= card_group_ns(pl, g) + card_group_ns(pl, more) + target_step_ns(pl->target);
}

static double stmt_ops(const struct loops *loops, int s)
{
    return (double)ivars_points(loops, stmt_ivars(loops, &loops->stmts.at[s])) *
           (expr_ops(loops, loops->stmts.at[s].value) + 1);
}

/* The statements from s on that share all their index variables, or that form one scan. */
static struct print_group run_from(const struct loops *loops, int s)
{
    struct print_group g = {s, groups_scan(loops, s), 0, 0};
    g.shared = groups_shared(loops, s, s + g.n - 1);
    for (int at = s + g.n, n; at < loops->stmts.n; at += n) {
        n = groups_scan(loops, at);
        if (groups_shared(loops, at, at + n - 1) != g.shared || groups_shared(loops, s, at + n - 1) != g.shared) break;
        g.n += n;
    }
    for (int i = s; i < s + g.n; i++) g.ops += stmt_ops(loops, i);
    return g;
}

static void join(const struct print_plan *pl, struct print_group *g, const struct print_group *more)
{
    g->n += more->n;
    g->shared = groups_shared(pl->loops, g->first, g->first + g->n - 1);
    g->ops += more->ops;
}

/* Joins the two neighbours that lose the least by it. */
static void make_room_on_card(struct print_plan *pl)
{
    double best = INFINITY;
    int at = 0;
    for (int i = 0; i + 1 < pl->ngroup; i++) {
        struct print_group both = pl->group[i];
        join(pl, &both, &pl->group[i + 1]);
        const double loss =
            card_group_ns(pl, &both) - card_group_ns(pl, &pl->group[i]) - card_group_ns(pl, &pl->group[i + 1]);
        if (loss < best) best = loss, at = i;
    }
    join(pl, &pl->group[at], &pl->group[at + 1]);
    pl->ngroup--;
    for (int i = at + 1; i < pl->ngroup; i++) pl->group[i] = pl->group[i + 1];
}

static void cut(struct print_plan *pl)
{
    const struct loops *loops = pl->cluster.loops;
    const bool card = target_is_card(pl->target) && pl->lanes > 1 && !has_scans(loops);
    for (int s = 0; s < loops->stmts.n;) {
        const struct print_group run = run_from(loops, s);
        struct print_group *g = pl->ngroup ? &pl->group[pl->ngroup - 1] : NULL;
        const uint64_t together = g ? groups_shared(loops, g->first, s + run.n - 1) : 0;
        const bool full = pl->ngroup == KERNEL_MAX_STEPS;
        s += run.n;
        pl->ops += run.ops;
        if (g && (card ? worth_on_card(pl, g, &run, together) : full || worth(pl, g, &run, together))) {
            join(pl, g, &run);
            continue;
        }
        if (full) make_room_on_card(pl);
        pl->group[pl->ngroup++] = run;
    }
    for (int i = 0; i < pl->ngroup; i++) pl->group[i].ops /= (double)MAX(1, ivars_points(loops, pl->group[i].shared));
}

/* -- temporaries */

/* Does every write of the tensor in the group index dimension d by shared index variables alone? Then the tensor needs
 * no memory along it, because readers have the same index (see `mix`). */
static bool dimension_shared(const struct loops *loops, const struct print_group *g, int tensor, int d)
{
    for (int i = g->first; i < g->first + g->n; i++)
        for (int o = 0; o < loops->stmts.at[i].nout; o++) {
            if (loops->stmts.at[i].out[o] != tensor) continue;
            int32_t index = loops->stmts.at[i].index;
            for (int k = 0; k < d; k++) index = loops->ex.at[index].next;
            const uint64_t ivars = ex_ivars(loops, index);
            if (!ivars || ivars & ~g->shared) return false;
        }
    return true;
}

/* The dimension that is indexed by the index variable along which outputs are contiguous; -1: none. */
static int side_by_side(const struct print_plan *pl, int tensor)
{
    const struct loops *loops = pl->cluster.loops;
    for (int s = 0; s < loops->stmts.n; s++) {
        const struct loops_stmt *st = &loops->stmts.at[s];
        bool writes = false;
        for (int o = 0; o < st->nout; o++) writes = writes || st->out[o] == tensor;
        int d = 0;
        for (int32_t i = st->index; i && writes; i = loops->ex.at[i].next, d++)
            if (loops->ex.at[i].kind == EX_IVAR && (pl->unit >> loops->ex.at[i].tensor & 1)) return d;
    }
    return -1;
}

static void place(struct print_plan *pl, int tensor)
{
    const struct loops *loops = pl->cluster.loops;
    const struct loops_tensor *t = &loops->tensors.at[tensor];
    struct print_temp *at = &pl->temp[tensor];
    struct memory *m = &pl->cluster.memory[tensor];
    const struct print_group *only = NULL;
    int users = 0;
    for (int i = 0; i < pl->ngroup; i++)
        if (group_uses(loops, &pl->group[i], tensor)) {
            users++;
            only = &pl->group[i];
        }
    const int bytes = dtype_def(t->dtype)->bytes;
    *m = (struct memory){.align = 64};
    at->elements = 1;
    const int last = side_by_side(pl, tensor);
    for (int i = t->ndim - 1; i >= 0; i--) {
        const int d = last < 0 || i < last ? i : i == t->ndim - 1 ? last : i + 1;
        if (users == 1 && dimension_shared(loops, only, tensor, d)) continue; /* stride 0 */
        m->stride[d] = at->elements;
        at->elements = size_mul(at->elements, t->shape[d]);
    }
    if (!at->elements) at->elements = 1;
    const int64_t room = kernel_lines(size_add(size_mul(at->elements, bytes), 64));
    at->place = TEMP_WORK;
    if (users == 1 && !size_varies(at->elements) && at->elements * bytes <= 1024)
        at->place = TEMP_LOCAL;
    else if (users == 1 && !size_le(ivars_size(loops, only->shared), 1))
        at->place = TEMP_SCRATCH;
    int64_t *total = at->place == TEMP_WORK ? &pl->work_bytes : &pl->scratch_bytes;
    if (at->place == TEMP_LOCAL) return;
    at->offset = *total;
    *total = size_add(*total, room);
}

struct print_plan *groups_make(const struct solver_context *sc, const struct cluster *c, int lanes)
{
    struct arena *a = sc->arena;
    struct print_plan *pl = NEW(a, struct print_plan);
    pl->target = sc->target;
    pl->near = (double)sc->target->l2 / 2;
    pl->cluster = *c;
    pl->lanes = lanes;
    struct loops *loops = pl->loops = loops_copy(a, c->loops);
    pl->cluster.loops = loops;
    guards_from_reads(loops, c->memory);
    pl->cluster.memory = NEW_ARRAY(a, struct memory, loops->tensors.n);
    pl->temp = NEW_ARRAY(a, struct print_temp, loops->tensors.n);
    for (int i = 0; i < loops->tensors.n; i++) pl->cluster.memory[i] = c->memory[i];
    pl->unit = groups_unit_ivars(loops, pl->cluster.memory);
    order(loops);
    cut(pl);
    for (int i = 0; i < loops->tensors.n; i++) {
        const struct loops_tensor *t = &loops->tensors.at[i];
        if (t->role == LOOPS_TEMP) {
            place(pl, i);
            continue;
        }
        if (t->role != LOOPS_TABLE) pl->bytes += dtype_def(t->dtype)->bytes * elements(t);
    }
    return pl;
}

/* -- declarations */

static void table(struct text *out, const struct loops *loops, int tensor)
{
    const struct loops_tensor *t = &loops->tensors.at[tensor];
    const int64_t n = loops_elements(t);
    const bool ints = t->dtype == SOL_I64;
    text_put(out, "@TABLE %s %s[%lld] = {", ints ? "int64_t" : "double", loops->tensors.at[tensor].name,
             (long long)MAX(n, 1));
    for (int64_t i = 0; i < n; i++) {
        if (i) text_put(out, i % 16 ? ", " : ",\n    ");
        const double r = ints ? 0 : ((const double *)t->table)[i];
        if (ints)
            text_put(out, "%lld", (long long)((const int64_t *)t->table)[i]);
        else if (isnan(r) || isinf(r))
            text_put(out, isnan(r) ? "@NAN" : r < 0 ? "-@INFINITY" : "@INFINITY");
        else
            text_put(out, "%s", text_real(out->arena, r, 17));
    }
    text_put(out, n ? "};\n" : "0};\n");
}

void print_tables(struct text *out, const struct loops *loops)
{
    for (int i = 0; i < loops->tensors.n; i++)
        if (loops->tensors.at[i].role == LOOPS_TABLE) table(out, loops, i);
}

struct pointer {
    const char *name, *type; /* of its elements */
    int operand;             /* -1: the scratch memory */
    int64_t offset;          /* bytes */
};

static void declare(struct text *out, const char *form, const struct pointer *p)
{
    const struct token tokens[] = {{'T', p->type},
                                   {'N', p->name},
                                   {'R', strncmp(p->type, "const ", 6) ? "" : "@RESTRICT "},
                                   {'I', arena_printf(out->arena, "%d", p->operand)},
                                   {'O', text_plus(out->arena, "", p->offset)}};
    text_line(out, "%s", form_fill(out->arena, form, COUNT_OF(tokens), tokens));
}

void print_operand(struct text *out, const struct target *t, const char *name, const char *type, int operand)
{
    declare(out, flavour_of(t)->operand, &(struct pointer){name, type, operand, 0});
}

void print_bytes(struct text *out, const struct target *t, int operand, const char *offset)
{
    const struct token tokens[] = {{'N', "y"}, {'I', arena_printf(out->arena, "%d", operand)}, {'O', offset}};
    text_line(out, "%s", form_fill(out->arena, flavour_of(t)->bytes, COUNT_OF(tokens), tokens));
}

void print_pointers(struct text *out, const struct print_plan *pl, const struct print_group *g)
{
    const struct loops *loops = pl->cluster.loops;
    const struct flavour *flavour = flavour_of(pl->target);
    int n = 0;
    for (int i = 0; i < loops->tensors.n; i++) {
        const struct loops_tensor *t = &loops->tensors.at[i];
        const char *type = dtype_def(t->dtype)->c_name;
        if (t->role == LOOPS_TEMP || t->role == LOOPS_TABLE) continue;
        if (t->role == LOOPS_INPUT) type = arena_printf(out->arena, "const %s", type);
        if (group_uses(loops, g, i)) declare(out, flavour->operand, &(struct pointer){t->name, type, n, 0});
        n++;
    }
    for (int i = 0; i < loops->tensors.n; i++) {
        const struct loops_tensor *t = &loops->tensors.at[i];
        const bool work = pl->temp[i].place == TEMP_WORK;
        if ((!work && pl->temp[i].place != TEMP_SCRATCH) || !group_uses(loops, g, i)) continue;
        declare(out, work ? flavour->work : flavour->scratch,
                &(struct pointer){t->name, dtype_def(t->dtype)->c_name, work ? n : -1, pl->temp[i].offset});
    }
}

void print_locals(struct text *out, const struct print_plan *pl, const struct print_group *g)
{
    const struct loops *loops = pl->cluster.loops;
    for (int i = 0; i < loops->tensors.n; i++)
        if (pl->temp[i].place == TEMP_LOCAL && group_uses(loops, g, i))
            text_line(out, "%s %s[%lld];", dtype_def(loops->tensors.at[i].dtype)->c_name, loops->tensors.at[i].name,
                      (long long)pl->temp[i].elements);
}
