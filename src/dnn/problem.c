/* Recognises a contraction in a cluster and flattens its accesses.
 *
 * Layer names play no role. The contraction is the anchor's only sum of a product of two reads. Which of the two reads
 * and the result an index variable occurs in gives its role. What is computed from the sum, element by element, in the
 * anchor or in later statements, is the epilogue. */
#include "dnn/problem.h"

#include <stdlib.h>
#include <string.h>

#define FAIL(...) return *why = __VA_ARGS__, false

static const struct ex *at(const struct loops *loops, int32_t node)
{
    return &loops->ex.at[node];
}

int64_t problem_size(const struct problem *p, uint64_t ivars)
{
    int64_t n = 1;
    for (int i = 0; i < p->loops->ivars.n; i++)
        if (set_has(ivars, i)) n = size_mul(n, p->loops->ivars.at[i].size);
    return n;
}

int64_t problem_about(const struct problem *p, uint64_t ivars)
{
    return size_about(problem_size(p, ivars));
}

int problem_lanes(const struct problem *p, const struct target *t, int64_t channels)
{
    int lanes = target_lanes(t, p->bytes);
    while (lanes > 2 && lanes > 16 / p->bytes && lanes / 2 >= channels) lanes /= 2; /* forms are large */
    return lanes;
}

int64_t stride_about(int64_t s)
{
    return llabs(size_hint(s));
}

const char *problem_frame(const struct problem *p)
{
    return p->varies ? "const struct sol_frame *f, " : "";
}

const char *problem_frame_argument(const struct problem *p)
{
    return p->varies ? "f, " : "";
}

void problem_open_sizes(const struct problem *p, struct text *out)
{
    if (!p->varies) return;
    kernel_open_sizes(out);
    text_line(out, "(void)f;");
}

int problem_operand(const struct problem *p, int tensor)
{
    int n = 0;
    for (int i = 0; i < tensor; i++) {
        const int role = p->was->tensors.at[i].role;
        if (role != LOOPS_TEMP && role != LOOPS_TABLE) n++;
    }
    return n;
}

int problem_work(const struct problem *p)
{
    return problem_operand(p, p->was->tensors.n);
}

bool problem_packs_b(const struct problem *p)
{
    if (p->a.tensor == p->b.tensor) return false;
    for (int i = 0; i < p->nview; i++)
        if (p->view[i].tensor == p->b.tensor) return false;
    return true;
}

/* -- the sum */

static bool find_sum(const struct loops *loops, int32_t value, int32_t *out_node, const char **why)
{
    if (rewrite_reductions(loops, value, out_node) != 1) FAIL("not exactly one reduction in the anchor");
    const struct ex *e = at(loops, *out_node);
    if (e->op != RED_SUM) FAIL("the reduction is not a sum");
    if (e->a) FAIL("the sum has a guard");
    if (!ex_is_contraction(loops, *out_node)) FAIL("the sum is not over a product of two reads from memory");
    return true;
}

/* In the copy, a read of a tensor `sum` replaces the sum. Its indices are those of the anchor's result. */
static void cut_sum(struct problem *p, const struct loops_stmt *anchor, int32_t node)
{
    int64_t shape[SOL_MAX_DIMS];
    const struct loops_tensor *t = &p->was->tensors.at[anchor->out[0]];
    memcpy(shape, t->shape, sizeof shape);
    p->sum = loops_tensor(p->loops, "sum", LOOPS_TEMP, t->dtype, t->ndim, shape);
    struct loops_stmt s = *anchor;
    s.value = ex_replace(p->loops, s.value, node, ex_read(p->loops, p->sum, anchor->index, 0));
    loops_set_stmt(p->loops, (int)(anchor - p->was->stmts.at), s);
}

/* -- views */

static bool affine_add(struct affine *sum, int ivar, int64_t coef)
{
    int i = 0;
    while (i < sum->n && sum->ivar[i] != ivar) i++;
    if (i < sum->n) {
        sum->coef[i] = size_add(sum->coef[i], coef);
        return true;
    }
    if (sum->n == COUNT_OF(sum->ivar)) return false;
    sum->ivar[sum->n] = (uint8_t)ivar;
    sum->coef[sum->n++] = coef;
    return true;
}

/* Rewrites an affine form over a statement's index variables as one over the anchor's. */
static bool to_root(const struct problem *p, int stmt, const struct affine *f, struct affine *out)
{
    *out = (struct affine){.c = f->c};
    const struct affine *map = p->map[stmt];
    for (int i = 0; i < f->n; i++) {
        const struct affine *m = &map[f->ivar[i]];
        out->c = size_add(out->c, size_mul(f->coef[i], m->c));
        for (int k = 0; k < m->n; k++)
            if (!affine_add(out, m->ivar[k], size_mul(f->coef[i], m->coef[k]))) return false;
    }
    return true;
}

static bool make_view(const struct problem *p, int stmt, int tensor, int32_t first_index, struct view *out)
{
    memset(out, 0, sizeof *out);
    out->stmt = stmt;
    out->tensor = tensor;
    int d = 0;
    for (int32_t i = first_index; i; i = at(p->loops, i)->next, d++) {
        struct affine f, r;
        if (!ex_affine(p->loops, i, &f) || !to_root(p, stmt, &f, &r)) return false;
        const int64_t stride = p->c->memory[tensor].stride[d];
        out->c = size_add(out->c, size_mul(r.c, stride));
        for (int k = 0; k < r.n; k++) out->s[r.ivar[k]] = size_add(out->s[r.ivar[k]], size_mul(r.coef[k], stride));
    }
    for (int i = 0; i < p->loops->ivars.n; i++)
        if (out->s[i] == SIZE_BAD) return false;
    return out->c != SIZE_BAD;
}

/* Are indices of that range inside of a dimension with so many elements around it, whatever varies? */
static bool is_inside(int64_t low, int64_t high, int64_t size, int64_t before, int64_t behind)
{
    return size_le(-before, low) && size_lt(high, size_add(size, behind));
}

static bool may_leave(const struct problem *p, const struct ex *read, const struct memory *m)
{
    const struct loops_tensor *t = &p->loops->tensors.at[read->tensor];
    int d = 0;
    for (int32_t i = read->a; i; i = at(p->loops, i)->next, d++) {
        int64_t low, high;
        if (!ex_bounds(p->loops, i, &low, &high)) return true;
        const int64_t before = m ? m->halo_low[d] : 0, behind = m ? m->halo_high[d] : 0;
        if (!is_inside(low, high, t->shape[d], before, behind)) return true;
    }
    return false;
}

/* -- index variables */

static bool sort_ivars(struct problem *p, uint64_t in_a, uint64_t in_b, uint64_t in_y, uint64_t bound, const char **why)
{
    if ((in_a | in_b | in_y) & ~(in_y | bound))
        FAIL("a factor has an index variable that is neither summed nor written");
    if (bound & ~(in_a & in_b)) FAIL("a summed index variable is missing in one factor");
    if (in_y & ~(in_a | in_b)) FAIL("the result has an index variable that neither factor has");
    p->k = bound;
    p->batch = in_a & in_b & in_y;
    p->m = in_a & in_y & ~in_b;
    p->n = in_b & in_y & ~in_a;
    return true;
}

static bool is_read(const struct loops *loops, int32_t node)
{
    return at(loops, node)->kind == EX_READ;
}

/* Does an index come from a table or a tensor? Packing allows only reads of the operand itself. */
static bool looks_up(const struct problem *p, int32_t first)
{
    bool any = false;
    for (int32_t i = first; i; i = at(p->loops, i)->next) any |= ex_any(p->loops, i, is_read);
    return any;
}

static bool in_memory(const struct problem *p, int32_t node)
{
    const int role = p->loops->tensors.at[at(p->loops, node)->tensor].role;
    return role != LOOPS_TABLE && role != LOOPS_TEMP;
}

static bool make_operand(struct problem *p, int32_t node, struct operand *o)
{
    const struct ex *e = at(p->loops, node);
    const struct memory *m = &p->c->memory[e->tensor];
    const struct loops_tensor *t = &p->loops->tensors.at[e->tensor];
    o->tensor = e->tensor;
    o->ndim = t->ndim;
    o->affine = make_view(p, p->c->anchor, e->tensor, e->a, &o->view);
    o->view.node = node;
    if (!o->affine && looks_up(p, e->a)) return false;
    if (!o->affine) return may_leave(p, e, NULL) ? e->b && ex_is_zero(p->loops, e->b) : true;
    int d = 0;
    for (int32_t i = e->a; i; i = at(p->loops, i)->next, d++) {
        int64_t low, high;
        ex_affine(p->loops, i, &o->index[d]);
        if (!ex_bounds(p->loops, i, &low, &high)) return false;
        o->border[d] = !is_inside(low, high, t->shape[d], m->halo_low[d], m->halo_high[d]);
        o->any_border |= o->border[d];
        if (!is_inside(low, high, t->shape[d], 0, 0) && (!e->b || !ex_is_zero(p->loops, e->b))) return false;
    }
    return true;
}

/* -- epilogue */

/* What the statements so far wrote, and at which indices, in index variables of the anchor. */
struct made {
    int n;
    struct {
        int tensor, ndim;
        struct affine index[SOL_MAX_DIMS];
    } at[40];
};

static int find_made(const struct made *m, int tensor)
{
    for (int i = 0; i < m->n; i++)
        if (m->at[i].tensor == tensor) return i;
    return -1;
}

static bool add_made(struct problem *p, struct made *m, int stmt)
{
    const struct loops_stmt *s = &p->loops->stmts.at[stmt];
    if (s->nout != 1 || m->n == COUNT_OF(m->at)) return false;
    m->at[m->n].tensor = s->out[0];
    int d = 0;
    for (int32_t i = s->index; i; i = at(p->loops, i)->next, d++) {
        struct affine f;
        if (!ex_affine(p->loops, i, &f) || !to_root(p, stmt, &f, &m->at[m->n].index[d])) return false;
    }
    m->at[m->n++].ndim = d;
    return true;
}

static bool same_affine(const struct affine *a, const struct affine *b)
{
    if (a->n != b->n || a->c != b->c) return false;
    for (int i = 0; i < a->n; i++) {
        int k = 0;
        while (k < b->n && (b->ivar[k] != a->ivar[i] || b->coef[k] != a->coef[i])) k++;
        if (k == b->n) return false;
    }
    return true;
}

static int64_t affine_count(const struct problem *p, const struct affine *f)
{
    int64_t n = 1;
    for (int i = 0; i < f->n; i++) {
        const bool falls = size_le(f->coef[i], 0);
        if (!falls && !size_le(0, f->coef[i])) return SIZE_BAD;
        const int64_t coef = falls ? size_sub(0, f->coef[i]) : f->coef[i];
        n = size_add(n, size_mul(coef, size_sub(p->loops->ivars.at[f->ivar[i]].size, 1)));
    }
    return n;
}

struct scan {
    struct problem *p;
    struct made *made;
    int stmt;
    uint64_t known; /* index variables of the statement that are mapped */
    bool ok;
};

/* Index f of a read, in the statement's index variables, equals index w of a write, in the anchor's. Solves for the
 * statement's index variables. */
static void solve_index(struct scan *s, const struct affine *f, const struct affine *w)
{
    struct affine *map = s->p->map[s->stmt];
    const struct loops *loops = s->p->loops;
    if (f->n == 1 && f->coef[0] == 1 && f->c == w->c) {
        if (set_has(s->known, f->ivar[0])) return;
        struct affine image = *w;
        image.c = 0;
        if (affine_count(s->p, &image) != loops->ivars.at[f->ivar[0]].size) return;
        map[f->ivar[0]] = image;
        s->known |= UINT64_C(1) << f->ivar[0];
        return;
    }
    for (int i = 0; i < f->n; i++) /* several index variables map if coefficients and sizes agree */
        for (int k = 0; k < w->n && !set_has(s->known, f->ivar[i]); k++)
            if (w->coef[k] == f->coef[i] && loops->ivars.at[w->ivar[k]].size == loops->ivars.at[f->ivar[i]].size) {
                map[f->ivar[i]] = (struct affine){.n = 1, .ivar = {w->ivar[k]}, .coef = {1}};
                s->known |= UINT64_C(1) << f->ivar[i];
            }
}

static void see_made(void *user, int32_t node)
{
    struct scan *s = user;
    const struct ex *e = at(s->p->loops, node);
    const int m = e->kind == EX_READ ? find_made(s->made, e->tensor) : -1;
    if (m < 0) return;
    int d = 0;
    for (int32_t i = e->a; i; i = at(s->p->loops, i)->next, d++) {
        struct affine f;
        if (!ex_affine(s->p->loops, i, &f))
            s->ok = false;
        else
            solve_index(s, &f, &s->made->at[m].index[d]);
    }
}

/* Every read of a tensor written in the cluster must be at the element that the same values of the anchor's index
 * variables wrote. */
static void check_made(void *user, int32_t node)
{
    struct scan *s = user;
    const struct ex *e = at(s->p->loops, node);
    if (e->kind == EX_RED) s->ok = false;
    const int m = e->kind == EX_READ ? find_made(s->made, e->tensor) : -1;
    if (m < 0) return;
    int d = 0;
    for (int32_t i = e->a; i; i = at(s->p->loops, i)->next, d++) {
        struct affine f, r;
        if (!ex_affine(s->p->loops, i, &f) || !to_root(s->p, s->stmt, &f, &r) ||
            !same_affine(&r, &s->made->at[m].index[d]))
            s->ok = false;
    }
    if (d != s->made->at[m].ndim) s->ok = false;
}

static void see_operand(void *user, int32_t node)
{
    struct scan *s = user;
    struct problem *p = s->p;
    const struct ex *e = at(p->loops, node);
    /* they may fail, and then need the frame for the message */
    if (e->kind == EX_FLOOR || e->kind == EX_MOD) s->ok = false;
    if (e->kind != EX_READ || e->tensor == p->sum || find_made(s->made, e->tensor) >= 0) return;
    if (p->loops->tensors.at[e->tensor].role == LOOPS_TABLE || p->loops->tensors.at[e->tensor].role == LOOPS_TEMP) {
        s->ok = false;
        return;
    }
    const struct dtype_def *type = dtype_def(p->loops->tensors.at[e->tensor].dtype);
    if (type->is_float && type->bytes < 4) s->ok = false;
    if (p->nview == PROBLEM_MAX_VIEWS || (e->b && may_leave(p, e, NULL)) ||
        !make_view(p, s->stmt, e->tensor, e->a, &p->view[p->nview])) {
        s->ok = false;
        return;
    }
    p->view[p->nview++].node = node;
}

/* An estimate of the number of instructions of an expression, per vector. */
static int weigh(struct loops *loops, int32_t node)
{
    if (!node) return 0;
    const struct ex e = *at(loops, node);
    int n = 0;
    switch (e.kind) {
    case EX_INT:
    case EX_REAL:
    case EX_IVAR: return 0;
    case EX_READ: return 1;
    case EX_CALL: {
        const struct math_def *def = math_at(e.op);
        if (def->expr) return weigh(loops, ex_expand(loops, node));
        n = !def->c_vector ? 64 : strstr(def->c_vector, "sol_") && !strstr(def->c_vector, "select") ? 16 : 2;
        for (int32_t i = e.a; i; i = at(loops, i)->next) n += weigh(loops, i);
        return n;
    }
    case EX_AND:
    case EX_OR:
        for (int32_t i = e.a; i; i = at(loops, i)->next) n += weigh(loops, i);
        return n;
    default: return 1 + weigh(loops, e.a) + weigh(loops, e.b);
    }
}

/* Index variables that occur as values, not only in indices. */
static uint64_t value_ivars(const struct loops *loops, int32_t node)
{
    if (!node) return 0;
    const struct ex *e = at(loops, node);
    switch (e->kind) {
    case EX_INT:
    case EX_REAL:
    case EX_READ: return 0;
    case EX_IVAR: return UINT64_C(1) << e->tensor;
    case EX_CALL:
    case EX_AND:
    case EX_OR: {
        uint64_t set = 0;
        for (int32_t i = e->a; i; i = at(loops, i)->next) set |= value_ivars(loops, i);
        return set;
    }
    default: return value_ivars(loops, e->a) | value_ivars(loops, e->b);
    }
}

static bool add_stmt(struct problem *p, struct made *made, int stmt, const char **why)
{
    const struct loops_stmt *s = &p->loops->stmts.at[stmt];
    struct scan scan = {.p = p, .made = made, .stmt = stmt, .ok = true};
    if (s->scan_step || s->nout != 1) FAIL("a statement of the epilogue is a scan or has several results");
    if (stmt >= COUNT_OF(p->map)) FAIL("too many statements");
    const struct dtype_def *type = dtype_def(p->loops->tensors.at[s->out[0]].dtype);
    if (type->is_float && type->bytes < 4) FAIL("the epilogue has a type that is not computed in");
    if (stmt != p->c->anchor) {
        p->map[stmt] = NEW_ARRAY(p->arena, struct affine, p->loops->ivars.n);
        ex_walk(p->loops, s->value, see_made, &scan);
        const uint64_t need = stmt_ivars(p->loops, s) | ex_ivars(p->loops, s->value);
        if (!scan.ok || need & ~scan.known) FAIL("an epilogue's index variables are not those of the anchor");
        ex_walk(p->loops, s->value, check_made, &scan);
        if (!scan.ok) FAIL("the epilogue reads other elements of the result than its own");
    }
    ex_walk(p->loops, s->value, see_operand, &scan);
    if (!scan.ok) FAIL("an operand of the epilogue is not a plain read");
    p->weight += weigh(p->loops, s->value);
    for (uint64_t used = value_ivars(p->loops, s->value), i = 0; used >> i; i++)
        if (used >> i & 1) {
            const struct affine *m = &p->map[stmt][i];
            if (m->n != 1 || m->coef[0] != 1 || m->c) FAIL("the epilogue uses the value of a merged index variable");
            p->valued |= UINT64_C(1) << m->ivar[0];
        }
    if (!add_made(p, made, stmt)) FAIL("an index that is written is not affine");
    const struct affine *index = made->at[made->n - 1].index;
    uint64_t written = 0;
    for (int d = 0; d < made->at[made->n - 1].ndim; d++)
        for (int i = 0; i < index[d].n; i++) written |= UINT64_C(1) << index[d].ivar[i];
    if (written != (p->batch | p->m | p->n)) FAIL("a statement of the epilogue writes fewer elements than the anchor");
    if (p->loops->tensors.at[s->out[0]].role != LOOPS_OUTPUT) return true;
    if (p->nview == PROBLEM_MAX_VIEWS || !make_view(p, stmt, s->out[0], s->index, &p->view[p->nview]))
        FAIL("too many operands");
    p->nview++;
    return true;
}

/* Chooses the index variable of the vectors and the order of all others. */
static bool choose_vector(struct problem *p)
{
    const struct view *first = NULL;
    int stores = 0, best = -1;
    for (int v = 0; v < p->nview; v++)
        if (!p->view[v].node) {
            if (!first) first = &p->view[v];
            stores++;
        }
    if (!first) return false;
    p->vector = -1;
    for (int i = 0; i < p->loops->ivars.n; i++) {
        if (!set_has(p->n, i)) continue;
        int unit = 0;
        for (int v = 0; v < p->nview; v++) unit += !p->view[v].node && p->view[v].s[i] == 1;
        const int64_t s = first->s[i], old = p->vector < 0 ? 0 : first->s[p->vector];
        if (unit < best || (unit == best && stride_about(s) >= stride_about(old))) continue;
        best = unit;
        p->vector = i;
        p->unit = unit == stores;
    }
    memcpy(p->order, first->s, sizeof p->order);
    if (p->vector >= 0) p->order[p->vector] = 0;
    return true;
}

bool problem_make(struct arena *arena, const struct cluster *c, bool swap, struct problem *p, const char **why)
{
    memset(p, 0, sizeof *p);
    p->arena = arena;
    p->c = c;
    p->was = c->loops;
    p->varies = cluster_varies(c);
    if (c->anchor) FAIL("there are statements before the anchor");
    const struct loops_stmt *anchor = &c->loops->stmts.at[c->anchor];
    int32_t node;
    if (anchor->nout != 1 || anchor->scan_step) FAIL("the anchor is a scan or has several results");
    for (int i = 0; i < c->loops->ivars.n; i++)
        if (!c->loops->ivars.at[i].size) FAIL("there is nothing to compute");
    if (!find_sum(c->loops, anchor->value, &node, why)) return false;
    p->loops = loops_copy(arena, c->loops);
    const struct ex body = *at(c->loops, at(c->loops, node)->b);
    const uint64_t bound = at(c->loops, node)->u.bound;
    const int32_t a = swap ? body.b : body.a, b = swap ? body.a : body.b;
    p->dtype = c->loops->tensors.at[anchor->out[0]].dtype;
    p->bytes = dtype_def(p->dtype)->bytes;
    if (p->dtype != SOL_F32 && p->dtype != SOL_F64) FAIL("the type is neither f32 nor f64");
    for (int i = 0; i < 2; i++)
        if (c->loops->tensors.at[at(c->loops, i ? b : a)->tensor].dtype != p->dtype)
            FAIL("the factors have another type");
    if (!sort_ivars(p, ex_ivars(c->loops, a), ex_ivars(c->loops, b), stmt_ivars(c->loops, anchor), bound, why))
        return false;
    p->map[c->anchor] = NEW_ARRAY(arena, struct affine, c->loops->ivars.n);
    for (int i = 0; i < c->loops->ivars.n; i++)
        p->map[c->anchor][i] = (struct affine){.n = 1, .ivar = {(uint8_t)i}, .coef = {1}};
    if (!in_memory(p, a) || !in_memory(p, b)) FAIL("a factor is a table or a temporary, no operand of the kernel");
    if (!make_operand(p, a, &p->a) || !make_operand(p, b, &p->b)) FAIL("a factor reads something else than 0 outside");
    cut_sum(p, anchor, node);
    struct made made = {0};
    for (int s = c->anchor; s < c->loops->stmts.n; s++)
        if (!add_stmt(p, &made, s, why)) return false;
    if (!choose_vector(p)) FAIL("nothing is stored");
    return true;
}
