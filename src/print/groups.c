/* Groups: a kernel's statements are cut into steps. Inside a step statements share outer loops, the letters that all of
 * them write and that no read mixes: a value made at one point of these letters is read at that point alone. So a
 * temporary that lives inside a step needs no room along them, and their points can be tasks in any order. */
#include <math.h>
#include <string.h>

#include "print/print.h"

static uint64_t bit(int letter)
{
    return UINT64_C(1) << letter;
}

int groups_scan(const struct loops *l, int s)
{
    int n = 1;
    const struct loops_stmt *at = &l->stmts.at[s];
    if (!at->scan_step) return 1;
    while (s + n < l->stmts.n && at[n].scan_step == at->scan_step && at[n].scan_letter == at->scan_letter) n++;
    return n;
}

double expr_ops(const struct loops *l, int32_t node)
{
    if (!node) return 0;
    const struct ex *e = &l->ex.at[node];
    double n = 0;
    switch (e->kind) {
    case EX_READ:
        for (int32_t i = e->a; i; i = l->ex.at[i].next) {
            struct affine a;
            if (!ex_affine(l, i, &a)) n += 4 + expr_ops(l, i);
        }
        return n + (e->b ? 2 : 1);
    case EX_CALL:
        for (int32_t i = e->a; i; i = l->ex.at[i].next) n += expr_ops(l, i);
        return n + (math_at(e->op)->expr ? 40 : math_at(e->op)->c_vector ? 6 : 30);
    case EX_RED: return letters_points(l, e->u.bound) * (expr_ops(l, e->b) + expr_ops(l, e->a) + 1);
    case EX_AND:
    case EX_OR:
        for (int32_t i = e->a; i; i = l->ex.at[i].next) n += expr_ops(l, i);
        return n;
    case EX_INT:
    case EX_REAL:
    case EX_LETTER: return 0;
    default: return 1 + expr_ops(l, e->a) + expr_ops(l, e->b);
    }
}

/* -- which letters can be shared */

struct sharing {
    const struct loops *l;
    int first, last; /* statements of the group, with the one that is looked at */
    uint64_t shared;
};

/* Letters of the group's writes of `tensor` that a read with this index list mixes. */
static void mix(struct sharing *s, int tensor, int32_t index)
{
    for (int i = s->first; i <= s->last; i++) {
        const struct loops_stmt *w = &s->l->stmts.at[i];
        for (int o = 0; o < w->nout; o++) {
            if (w->out[o] != tensor) continue;
            int32_t a = w->index, b = index;
            for (; a; a = s->l->ex.at[a].next, b = s->l->ex.at[b].next) {
                const uint64_t letters = ex_letters(s->l, a) & s->shared;
                if (letters && !ex_equal(s->l, a, b)) s->shared &= ~letters;
            }
        }
    }
}

static void see_read(void *user, int32_t node)
{
    struct sharing *s = user;
    const struct ex *e = &s->l->ex.at[node];
    if (e->kind == EX_READ) mix(s, e->tensor, e->a);
    if (e->kind == EX_RED) s->shared &= ~e->u.bound;
}

uint64_t groups_shared(const struct loops *l, int first, int last)
{
    struct sharing s = {l, first, last, ~UINT64_C(0)};
    for (int i = first; i <= last; i++) {
        s.shared &= stmt_letters(l, &l->stmts.at[i]);
        if (l->stmts.at[i].scan_step) s.shared &= ~bit(l->stmts.at[i].scan_letter);
    }
    for (int i = first; i <= last; i++) ex_walk(l, l->stmts.at[i].value, see_read, &s);
    return s.shared;
}

uint64_t groups_unit_letters(const struct loops *l, const struct memory *m)
{
    uint64_t letters = 0;
    for (int s = 0; s < l->stmts.n; s++) {
        const struct loops_stmt *st = &l->stmts.at[s];
        struct affine a;
        for (int o = 0; o < st->nout; o++) {
            if (l->tensors.at[st->out[o]].role != LOOPS_OUTPUT) continue;
            if (!expr_affine_offset(l, m, st->out[o], st->index, &a)) continue;
            for (int i = 0; i < a.n; i++)
                if (a.coef[i] == 1) letters |= bit(a.letter[i]);
        }
    }
    return letters;
}

/* Tasks that the shared letters allow: the one along which results lie side by side makes vectors. */
static int64_t parallel(const struct print_plan *pl, uint64_t shared)
{
    const struct loops *l = pl->cluster.loops;
    const uint64_t unit = groups_unit_letters(l, pl->cluster.memory) & shared;
    const int64_t n = letters_points(l, shared);
    return unit ? n / MIN(pl->lanes, MAX(1, letters_points(l, unit))) : n;
}

/* Is one step over statements with these shared letters as parallel as two? */
static bool worth(const struct print_plan *pl, uint64_t before, uint64_t alone, uint64_t together, double ops)
{
    const int64_t now = parallel(pl, together);
    if (ops < 2e5) return true; /* small: a step more costs more than it brings */
    return now >= 32 || (now >= parallel(pl, before) && now >= parallel(pl, alone));
}

static double stmt_ops(const struct loops *l, int s)
{
    return (double)letters_points(l, stmt_letters(l, &l->stmts.at[s])) * (expr_ops(l, l->stmts.at[s].value) + 1);
}

static void cut(struct print_plan *pl)
{
    const struct loops *l = pl->cluster.loops;
    struct print_group *g = NULL;
    double ops = 0;
    for (int s = 0, n; s < l->stmts.n; s += n) {
        n = groups_scan(l, s);
        double more = 0;
        for (int i = 0; i < n; i++) more += stmt_ops(l, s + i);
        const uint64_t alone = groups_shared(l, s, s + n - 1);
        const uint64_t together = g ? groups_shared(l, g->first, s + n - 1) : 0;
        if (g && (pl->ngroup == KERNEL_MAX_STEPS || worth(pl, g->shared, alone, together, ops + more))) {
            g->n += n;
            g->shared = together;
        } else {
            g = &pl->group[pl->ngroup++];
            *g = (struct print_group){s, n, alone, 0};
            ops = 0;
        }
        ops += more;
        g->ops = ops / (double)MAX(1, letters_points(l, g->shared));
        pl->ops += more;
    }
}

/* -- temporaries */

struct user {
    const struct loops *l;
    int tensor;
    bool found;
};
static void see_use(void *user, int32_t node)
{
    struct user *u = user;
    const struct ex *e = &u->l->ex.at[node];
    if (e->kind == EX_READ && e->tensor == u->tensor) u->found = true;
}

static bool group_uses(const struct loops *l, const struct print_group *g, int tensor)
{
    struct user u = {l, tensor, false};
    for (int i = g->first; i < g->first + g->n; i++) {
        ex_walk(l, l->stmts.at[i].value, see_use, &u);
        for (int o = 0; o < l->stmts.at[i].nout; o++) u.found = u.found || l->stmts.at[i].out[o] == tensor;
    }
    return u.found;
}

/* Does every write of the tensor in the group index dimension d by shared letters alone? Then it needs no room there:
 * what reads it has the same index (see `mix`). */
static bool dimension_shared(const struct loops *l, const struct print_group *g, int tensor, int d)
{
    for (int i = g->first; i < g->first + g->n; i++)
        for (int o = 0; o < l->stmts.at[i].nout; o++) {
            if (l->stmts.at[i].out[o] != tensor) continue;
            int32_t index = l->stmts.at[i].index;
            for (int k = 0; k < d; k++) index = l->ex.at[index].next;
            const uint64_t letters = ex_letters(l, index);
            if (!letters || letters & ~g->shared) return false;
        }
    return true;
}

static void place(struct print_plan *pl, int tensor)
{
    struct loops *l = pl->cluster.loops;
    const struct loops_tensor *t = &l->tensors.at[tensor];
    struct print_temp *at = &pl->temp[tensor];
    struct memory *m = &pl->cluster.memory[tensor];
    const struct print_group *only = NULL;
    int users = 0;
    for (int i = 0; i < pl->ngroup; i++)
        if (group_uses(l, &pl->group[i], tensor)) {
            users++;
            only = &pl->group[i];
        }
    const int bytes = dtype_def(t->dtype)->bytes;
    *m = (struct memory){.align = 64};
    at->elements = 1;
    for (int d = t->ndim - 1; d >= 0; d--) {
        if (users == 1 && dimension_shared(l, only, tensor, d)) continue; /* stride 0 */
        m->stride[d] = at->elements;
        at->elements *= t->shape[d];
    }
    at->elements = MAX(at->elements, 1);
    const int64_t room = (at->elements * bytes + 127) / 64 * 64;
    at->place = TEMP_WORK;
    if (users == 1 && at->elements * bytes <= 1024)
        at->place = TEMP_LOCAL;
    else if (users == 1 && letters_points(l, only->shared) > 1)
        at->place = TEMP_SCRATCH;
    int64_t *total = at->place == TEMP_WORK ? &pl->work_bytes : &pl->scratch_bytes;
    if (at->place == TEMP_LOCAL) return;
    at->offset = *total;
    *total += room;
}

struct print_plan *groups_make(struct arena *a, const struct cluster *c, int lanes)
{
    struct print_plan *pl = NEW(a, struct print_plan);
    pl->cluster = *c;
    pl->lanes = lanes;
    pl->cluster.loops = loops_copy(a, c->loops);
    struct loops *l = pl->cluster.loops;
    guards_from_reads(l, c->memory);
    pl->cluster.memory = NEW_ARRAY(a, struct memory, l->tensors.n);
    pl->temp = NEW_ARRAY(a, struct print_temp, l->tensors.n);
    for (int i = 0; i < l->tensors.n; i++) pl->cluster.memory[i] = c->memory[i];
    cut(pl);
    for (int i = 0; i < l->tensors.n; i++) {
        const struct loops_tensor *t = &l->tensors.at[i];
        if (t->role == LOOPS_TEMP) {
            place(pl, i);
            continue;
        }
        double n = dtype_def(t->dtype)->bytes;
        for (int d = 0; d < t->ndim; d++) n *= (double)t->shape[d];
        if (t->role != LOOPS_TABLE) pl->bytes += n;
    }
    return pl;
}

/* -- declarations */

static void table(struct text *out, const struct loops *l, int tensor)
{
    const struct loops_tensor *t = &l->tensors.at[tensor];
    int64_t n = 1;
    for (int d = 0; d < t->ndim; d++) n *= t->shape[d];
    const bool ints = t->dtype == SOL_I64;
    text_put(out, "static const %s %s[%lld] = {", ints ? "int64_t" : "double", expr_tensor(l, out->arena, tensor),
             (long long)MAX(n, 1));
    for (int64_t i = 0; i < n; i++) {
        if (i) text_put(out, i % 16 ? ", " : ",\n    ");
        const double r = ints ? 0 : ((const double *)t->table)[i];
        if (ints)
            text_put(out, "%lld", (long long)((const int64_t *)t->table)[i]);
        else if (isnan(r) || isinf(r))
            text_put(out, isnan(r) ? "NAN" : r < 0 ? "-INFINITY" : "INFINITY");
        else
            text_put(out, "%.17g", r);
    }
    text_put(out, n ? "};\n" : "0};\n");
}

void print_tables(struct text *out, const struct loops *l)
{
    for (int i = 0; i < l->tensors.n; i++)
        if (l->tensors.at[i].role == LOOPS_TABLE) table(out, l, i);
}

void print_pointers(struct text *out, const struct print_plan *pl, const struct print_group *g)
{
    const struct loops *l = pl->cluster.loops;
    int n = 0;
    for (int i = 0; i < l->tensors.n; i++) {
        const struct loops_tensor *t = &l->tensors.at[i];
        const char *name = expr_tensor(l, out->arena, i), *type = dtype_def(t->dtype)->c_name;
        if (t->role == LOOPS_TEMP || t->role == LOOPS_TABLE) continue;
        const char *qualifier = t->role == LOOPS_INPUT ? "const " : "";
        if (group_uses(l, g, i))
            text_line(out, "%s%s *restrict %s = (%s%s *)p[%d];", qualifier, type, name, qualifier, type, n);
        n++;
    }
    for (int i = 0; i < l->tensors.n; i++) {
        const enum temp_place where = pl->temp[i].place;
        if ((where != TEMP_SCRATCH && where != TEMP_WORK) || !group_uses(l, g, i)) continue;
        const char *name = expr_tensor(l, out->arena, i), *type = dtype_def(l->tensors.at[i].dtype)->c_name;
        if (where == TEMP_WORK)
            text_line(out, "%s *restrict %s = (%s *)(p[%d] + %lld);", type, name, type, n,
                      (long long)pl->temp[i].offset);
        else
            text_line(out, "%s *restrict %s = (%s *)((char *)f->scratch + worker * f->scratch_bytes + %lld);", type,
                      name, type, (long long)pl->temp[i].offset);
    }
}

void print_locals(struct text *out, const struct print_plan *pl, const struct print_group *g)
{
    const struct loops *l = pl->cluster.loops;
    for (int i = 0; i < l->tensors.n; i++)
        if (pl->temp[i].place == TEMP_LOCAL && group_uses(l, g, i))
            text_line(out, "%s %s[%lld];", dtype_def(l->tensors.at[i].dtype)->c_name, expr_tensor(l, out->arena, i),
                      (long long)pl->temp[i].elements);
}
