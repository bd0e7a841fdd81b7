/* Recognises a contraction in a cluster and flattens its accesses.
 *
 * Nothing here knows a layer by name: the root's one sum of a product of two reads is the contraction, the sets of
 * letters of the two reads and of the result give every letter its role, and what stands around the sum or behind the
 * root, element by element, is the epilogue. */
#include "dnn/problem.h"

#include <stdlib.h>
#include <string.h>

#define FAIL(...) return *why = __VA_ARGS__, false

static const struct ex *at(const struct loops *l, int32_t node)
{
    return &l->ex.at[node];
}

int64_t problem_size(const struct problem *p, uint64_t letters)
{
    int64_t n = 1;
    for (int i = 0; i < p->loops->letters.n; i++)
        if (set_has(letters, i)) n *= p->loops->letters.at[i].size;
    return n;
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

bool problem_packs_b(const struct problem *p)
{
    if (p->a.tensor == p->b.tensor) return false;
    for (int i = 0; i < p->nview; i++)
        if (p->view[i].tensor == p->b.tensor) return false;
    return true;
}

/* -- the sum */

struct hunt {
    const struct loops *l;
    int32_t found;
    int n;
};
static void see_reduction(void *user, int32_t node)
{
    struct hunt *h = user;
    if (at(h->l, node)->kind != EX_RED) return;
    h->found = node;
    h->n++;
}

static bool find_sum(const struct loops *l, int32_t value, int32_t *out_node, const char **why)
{
    struct hunt h = {.l = l};
    ex_walk(l, value, see_reduction, &h);
    if (h.n != 1) FAIL("not exactly one reduction in the root");
    const struct ex *e = at(l, h.found);
    if (e->op != RED_SUM) FAIL("the reduction is not a sum");
    if (e->a) FAIL("the sum has a guard");
    if (!ex_is_contraction(l, h.found)) FAIL("the sum is not over a product of two reads from memory");
    *out_node = h.found;
    return true;
}

/* In the copy the sum becomes a read of a tensor `sum`, indexed as the root's result. */
static void cut_sum(struct problem *p, const struct loops_stmt *root, int32_t node)
{
    int64_t shape[SOL_MAX_DIMS];
    const struct loops_tensor *t = &p->was->tensors.at[root->out[0]];
    memcpy(shape, t->shape, sizeof shape);
    p->sum = loops_tensor(p->loops, "sum", LOOPS_TEMP, t->dtype, t->ndim, shape);
    struct loops_stmt s = *root;
    s.value = ex_replace(p->loops, s.value, node, ex_read(p->loops, p->sum, root->index, 0));
    loops_set_stmt(p->loops, (int)(root - p->was->stmts.at), s);
}

/* -- views */

static bool affine_add(struct affine *sum, int letter, int64_t coef)
{
    int i = 0;
    while (i < sum->n && sum->letter[i] != letter) i++;
    if (i < sum->n) {
        sum->coef[i] += coef;
        return true;
    }
    if (sum->n == COUNT_OF(sum->letter)) return false;
    sum->letter[sum->n] = (uint8_t)letter;
    sum->coef[sum->n++] = coef;
    return true;
}

/* An affine form of a statement's letters as one of the root's. */
static bool to_root(const struct problem *p, int stmt, const struct affine *f, struct affine *out)
{
    *out = (struct affine){.c = f->c};
    const struct affine *map = p->map[stmt];
    for (int i = 0; i < f->n; i++) {
        const struct affine *m = &map[f->letter[i]];
        out->c += f->coef[i] * m->c;
        for (int k = 0; k < m->n; k++)
            if (!affine_add(out, m->letter[k], f->coef[i] * m->coef[k])) return false;
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
        out->c += r.c * stride;
        for (int k = 0; k < r.n; k++) out->s[r.letter[k]] += r.coef[k] * stride;
    }
    return true;
}

static bool may_leave(const struct problem *p, const struct ex *read, const struct memory *m)
{
    const struct loops_tensor *t = &p->loops->tensors.at[read->tensor];
    int d = 0;
    for (int32_t i = read->a; i; i = at(p->loops, i)->next, d++) {
        int64_t low, high;
        if (!ex_range(p->loops, i, &low, &high)) return true;
        const int64_t before = m ? m->halo_low[d] : 0, behind = m ? m->halo_high[d] : 0;
        if (low < -before || high >= t->shape[d] + behind) return true;
    }
    return false;
}

/* -- letters */

static bool sort_letters(struct problem *p, uint64_t in_a, uint64_t in_b, uint64_t in_y, uint64_t bound,
                         const char **why)
{
    if ((in_a | in_b | in_y) & ~(in_y | bound)) FAIL("a factor has a letter that is neither summed nor written");
    if (bound & ~(in_a & in_b)) FAIL("a summed letter is missing in one factor");
    if (in_y & ~(in_a | in_b)) FAIL("the result has a letter that neither factor has");
    p->k = bound;
    p->batch = in_a & in_b & in_y;
    p->m = in_a & in_y & ~in_b;
    p->n = in_b & in_y & ~in_a;
    return true;
}

struct index_reads {
    const struct loops *l;
    bool any;
};
static void see_index_read(void *user, int32_t node)
{
    struct index_reads *r = user;
    r->any |= r->l->ex.at[node].kind == EX_READ;
}

/* Is an index looked up, in a table or a tensor? A packed operand has only itself to read. */
static bool looks_up(const struct problem *p, int32_t first)
{
    struct index_reads r = {p->loops, false};
    for (int32_t i = first; i; i = at(p->loops, i)->next) ex_walk(p->loops, i, see_index_read, &r);
    return r.any;
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
    o->affine = make_view(p, p->c->root, e->tensor, e->a, &o->view);
    o->view.node = node;
    if (!o->affine && looks_up(p, e->a)) return false;
    if (!o->affine) return may_leave(p, e, NULL) ? e->b && ex_is_zero(p->loops, e->b) : true;
    int d = 0;
    for (int32_t i = e->a; i; i = at(p->loops, i)->next, d++) {
        int64_t low, high;
        ex_affine(p->loops, i, &o->index[d]);
        if (!ex_range(p->loops, i, &low, &high)) return false;
        o->border[d] = low < -m->halo_low[d] || high >= t->shape[d] + m->halo_high[d];
        o->any_border |= o->border[d];
        if ((low < 0 || high >= t->shape[d]) && (!e->b || !ex_is_zero(p->loops, e->b))) return false;
    }
    return true;
}

/* -- epilogue */

/* What the statements so far made: where, in letters of the root. */
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
        while (k < b->n && (b->letter[k] != a->letter[i] || b->coef[k] != a->coef[i])) k++;
        if (k == b->n) return false;
    }
    return true;
}

static int64_t affine_count(const struct problem *p, const struct affine *f)
{
    int64_t n = 1;
    for (int i = 0; i < f->n; i++)
        n += (f->coef[i] < 0 ? -f->coef[i] : f->coef[i]) * (p->loops->letters.at[f->letter[i]].size - 1);
    return n;
}

struct scan {
    struct problem *p;
    struct made *made;
    int stmt;
    uint64_t known; /* letters of the statement that are mapped */
    bool ok;
};

/* Index f of a read, in the statement's letters, is index w of a write, in the root's: what does that say of the
 * letters? */
static void solve_index(struct scan *s, const struct affine *f, const struct affine *w)
{
    struct affine *map = s->p->map[s->stmt];
    const struct loops *l = s->p->loops;
    if (f->n == 1 && f->coef[0] == 1 && f->c == w->c) {
        if (set_has(s->known, f->letter[0])) return;
        struct affine image = *w;
        image.c = 0;
        if (affine_count(s->p, &image) != l->letters.at[f->letter[0]].size) return;
        map[f->letter[0]] = image;
        s->known |= UINT64_C(1) << f->letter[0];
        return;
    }
    for (int i = 0; i < f->n; i++) /* several letters: the same coefficients and sizes */
        for (int k = 0; k < w->n && !set_has(s->known, f->letter[i]); k++)
            if (w->coef[k] == f->coef[i] && l->letters.at[w->letter[k]].size == l->letters.at[f->letter[i]].size) {
                map[f->letter[i]] = (struct affine){.n = 1, .letter = {w->letter[k]}, .coef = {1}};
                s->known |= UINT64_C(1) << f->letter[i];
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

/* Is each read of something made in the cluster exactly the element that the root's letters make? */
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
    if (e->kind == EX_FLOOR || e->kind == EX_MOD) s->ok = false; /* they may fail, and want the frame */
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

/* About how many instructions an expression is, for each vector. */
static int weigh(struct loops *l, int32_t node)
{
    if (!node) return 0;
    const struct ex e = *at(l, node);
    int n = 0;
    switch (e.kind) {
    case EX_INT:
    case EX_REAL:
    case EX_LETTER: return 0;
    case EX_READ: return 1;
    case EX_CALL: {
        const struct math_def *def = math_at(e.op);
        if (def->expr) return weigh(l, ex_expand(l, node));
        n = !def->c_vector ? 64 : strstr(def->c_vector, "sol_") && !strstr(def->c_vector, "select") ? 16 : 2;
        for (int32_t i = e.a; i; i = at(l, i)->next) n += weigh(l, i);
        return n;
    }
    case EX_AND:
    case EX_OR:
        for (int32_t i = e.a; i; i = at(l, i)->next) n += weigh(l, i);
        return n;
    default: return 1 + weigh(l, e.a) + weigh(l, e.b);
    }
}

/* Letters whose value, not only whose place in an index, matters. */
static uint64_t value_letters(const struct loops *l, int32_t node)
{
    if (!node) return 0;
    const struct ex *e = at(l, node);
    switch (e->kind) {
    case EX_INT:
    case EX_REAL:
    case EX_READ: return 0;
    case EX_LETTER: return UINT64_C(1) << e->tensor;
    case EX_CALL:
    case EX_AND:
    case EX_OR: {
        uint64_t set = 0;
        for (int32_t i = e->a; i; i = at(l, i)->next) set |= value_letters(l, i);
        return set;
    }
    default: return value_letters(l, e->a) | value_letters(l, e->b);
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
    if (stmt != p->c->root) {
        p->map[stmt] = NEW_ARRAY(p->arena, struct affine, p->loops->letters.n);
        ex_walk(p->loops, s->value, see_made, &scan);
        const uint64_t need = stmt_letters(p->loops, s) | ex_letters(p->loops, s->value);
        if (!scan.ok || need & ~scan.known) FAIL("an epilogue's letters are not those of the root");
        ex_walk(p->loops, s->value, check_made, &scan);
        if (!scan.ok) FAIL("the epilogue reads other elements of the result than its own");
    }
    ex_walk(p->loops, s->value, see_operand, &scan);
    if (!scan.ok) FAIL("an operand of the epilogue is not a plain read");
    p->weight += weigh(p->loops, s->value);
    for (uint64_t used = value_letters(p->loops, s->value), i = 0; used >> i; i++)
        if (used >> i & 1) {
            const struct affine *m = &p->map[stmt][i];
            if (m->n != 1 || m->coef[0] != 1 || m->c) FAIL("the epilogue uses the value of a merged letter");
            p->valued |= UINT64_C(1) << m->letter[0];
        }
    if (!add_made(p, made, stmt)) FAIL("an index that is written is not affine");
    const struct affine *index = made->at[made->n - 1].index;
    uint64_t written = 0;
    for (int d = 0; d < made->at[made->n - 1].ndim; d++)
        for (int i = 0; i < index[d].n; i++) written |= UINT64_C(1) << index[d].letter[i];
    if (written != (p->batch | p->m | p->n)) FAIL("a statement of the epilogue writes fewer elements than the root");
    if (p->loops->tensors.at[s->out[0]].role != LOOPS_OUTPUT) return true;
    if (p->nview == PROBLEM_MAX_VIEWS || !make_view(p, stmt, s->out[0], s->index, &p->view[p->nview]))
        FAIL("too many operands");
    p->nview++;
    return true;
}

/* The letter the vectors run along, and the order of all others. */
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
    for (int i = 0; i < p->loops->letters.n; i++) {
        if (!set_has(p->n, i)) continue;
        int unit = 0;
        for (int v = 0; v < p->nview; v++) unit += !p->view[v].node && p->view[v].s[i] == 1;
        const int64_t s = first->s[i], old = p->vector < 0 ? 0 : first->s[p->vector];
        if (unit < best || (unit == best && llabs(s) >= llabs(old))) continue;
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
    if (c->root) FAIL("there are statements before the root");
    const struct loops_stmt *root = &c->loops->stmts.at[c->root];
    int32_t node;
    if (root->nout != 1 || root->scan_step) FAIL("the root is a scan or has several results");
    for (int i = 0; i < c->loops->letters.n; i++)
        if (!c->loops->letters.at[i].size) FAIL("there is nothing to compute");
    if (!find_sum(c->loops, root->value, &node, why)) return false;
    p->loops = loops_copy(arena, c->loops);
    const struct ex body = *at(c->loops, at(c->loops, node)->b);
    const uint64_t bound = at(c->loops, node)->u.bound;
    const int32_t a = swap ? body.b : body.a, b = swap ? body.a : body.b;
    p->dtype = c->loops->tensors.at[root->out[0]].dtype;
    p->bytes = dtype_def(p->dtype)->bytes;
    if (p->dtype != SOL_F32 && p->dtype != SOL_F64) FAIL("the type is neither f32 nor f64");
    for (int i = 0; i < 2; i++)
        if (c->loops->tensors.at[at(c->loops, i ? b : a)->tensor].dtype != p->dtype)
            FAIL("the factors have another type");
    if (!sort_letters(p, ex_letters(c->loops, a), ex_letters(c->loops, b), stmt_letters(c->loops, root), bound, why))
        return false;
    p->map[c->root] = NEW_ARRAY(arena, struct affine, c->loops->letters.n);
    for (int i = 0; i < c->loops->letters.n; i++)
        p->map[c->root][i] = (struct affine){.n = 1, .letter = {(uint8_t)i}, .coef = {1}};
    if (!in_memory(p, a) || !in_memory(p, b)) FAIL("a factor is a table or a temporary, no operand of the kernel");
    if (!make_operand(p, a, &p->a) || !make_operand(p, b, &p->b)) FAIL("a factor reads something else than 0 outside");
    cut_sum(p, root, node);
    struct made made = {0};
    for (int s = c->root; s < c->loops->stmts.n; s++)
        if (!add_stmt(p, &made, s, why)) return false;
    if (!choose_vector(p)) FAIL("nothing is stored");
    return true;
}
