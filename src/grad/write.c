/* Solved terms as layers of kind Row, whose loops are made here. */
#include <assert.h>
#include <string.h>

#include "grad/grad.h"

/* -- bounds that reads can take over: `sum[K | 0<=e<n] dy[e]*w[K]` is `sum[K] dy[e]:0*w[K]` */

struct guarding {
    struct adjoint *a;
    const struct bound *b;
    bool zero;   /* a factor is 0 outside */
    bool leaves; /* a read without a value outside may leave its tensor */
};

static bool inside(const struct loops *w, const struct ex *read)
{
    int d = 0;
    for (int32_t i = read->a; i; i = w->ex.at[i].next, d++) {
        int64_t low, high;
        if (!ex_bounds(w, i, &low, &high)) return false;
        if (!size_le(0, low) || !size_lt(high, w->tensors.at[read->tensor].shape[d])) return false;
    }
    return true;
}

static void find_leaving(void *user, int32_t node)
{
    struct guarding *g = user;
    const struct ex *e = &g->a->w->ex.at[node];
    if (e->kind == EX_READ && !e->b && !inside(g->a->w, e)) g->leaves = true;
}

/* Is the read's index the bounded expression, along a dimension of that size? */
static bool reads_at(const struct loops *w, const struct ex *e, const struct bound *b)
{
    int d = 0;
    for (int32_t i = e->a; i; i = w->ex.at[i].next, d++)
        if (w->tensors.at[e->tensor].shape[d] == b->size && ex_equal(w, i, b->e)) return true;
    return false;
}

/* A product whose factors read at the bounded place: these get the value 0 outside. 0: not of this form. */
static int32_t factors(struct guarding *g, int32_t node)
{
    struct loops *w = g->a->w;
    struct ex e = w->ex.at[node];
    if (e.kind == EX_MUL) {
        int32_t x = factors(g, e.a);
        return ex_binary(w, EX_MUL, x, factors(g, e.b));
    }
    if (e.kind == EX_NEG) return ex_neg(w, factors(g, e.a));
    if (e.kind != EX_READ || !reads_at(w, &e, g->b)) return node;
    if (e.b && !(w->ex.at[e.b].kind == EX_INT && w->ex.at[e.b].u.i == 0)) return node;
    g->zero = true;
    if (e.b) return node;
    int32_t index[SOL_MAX_DIMS];
    int n = 0;
    for (int32_t i = e.a; i; i = w->ex.at[i].next) index[n++] = i;
    return ex_read(w, e.tensor, ex_list(w, n, index), ex_int(w, 0));
}

static void take_bounds(struct adjoint *a, struct term *t)
{
    int32_t value = t->value;
    bool zero = true;
    for (int i = 0; i < t->nbound; i++) {
        struct guarding g = {.a = a, .b = &t->bound[i]};
        value = factors(&g, value);
        zero &= g.zero;
    }
    struct guarding g = {.a = a};
    ex_walk(a->w, value, find_leaving, &g);
    for (int i = 0; i < t->nguard; i++) ex_walk(a->w, t->guard[i], find_leaving, &g);
    if (!zero || g.leaves) return;
    t->value = value;
    t->nbound = 0;
}

/* Reverses an index variable that only runs backwards through reads with a value outside: the gradient of a convolution
 * then is a convolution. */
struct direction {
    const struct loops *w;
    int ivar;
    bool backwards, forwards;
};

static void find_direction(void *user, int32_t node)
{
    struct direction *r = user;
    const struct ex *e = &r->w->ex.at[node];
    if (e->kind != EX_READ || !e->b) return;
    for (int32_t i = e->a; i; i = r->w->ex.at[i].next) {
        struct affine f;
        if (!ex_affine(r->w, i, &f)) continue;
        for (int k = 0; k < f.n; k++)
            if (f.ivar[k] == r->ivar) *(size_lt(f.coef[k], 0) ? &r->backwards : &r->forwards) = true;
    }
}

static void turn_ivars(struct adjoint *a, struct term *t)
{
    struct loops *w = a->w;
    for (int i = 0, n = w->ivars.n; i < n; i++) {
        struct direction r = {.w = w, .ivar = i};
        if (!(t->ctx >> i & 1) || t->nguard || t->nbound) continue;
        ex_walk(w, t->value, find_direction, &r);
        if (!r.backwards || r.forwards) continue;
        uint64_t ctx = t->ctx;
        term_replace(a, t, i, ex_binary(w, EX_SUB, ex_int(w, size_sub(w->ivars.at[i].size, 1)), ex_ivar(w, i)));
        t->ctx = ctx;
    }
}

/* -- factors in front of a sum that its index variables are not in */

static void flatten(struct loops *w, int32_t node, bool under, struct product *p)
{
    const struct ex *e = &w->ex.at[node];
    if ((e->kind == EX_MUL || e->kind == EX_DIV) && p->n < COUNT_OF(p->factor) - 2) {
        flatten(w, e->a, under, p);
        flatten(w, e->b, e->kind == EX_DIV ? !under : under, p);
    } else if (e->kind == EX_NEG && p->n < COUNT_OF(p->factor) - 2) {
        flatten(w, e->a, under, p);
        p->factor[p->n] = ex_int(w, -1);
        p->under[p->n++] = false;
    } else {
        p->factor[p->n] = node;
        p->under[p->n++] = under;
    }
}

void grad_factors(struct loops *w, int32_t node, struct product *p)
{
    flatten(w, node, false, p);
}

int32_t grad_times(struct loops *w, int32_t x, int32_t factor, bool under)
{
    if (!x) return under ? ex_binary(w, EX_DIV, ex_real(w, 1), factor) : factor;
    return ex_binary(w, under ? EX_DIV : EX_MUL, x, factor);
}

/* Splits the term's value. Factors that depend on the sum's index variables stay, as do those that may be read only
 * under its guards; the rest is *out_front (0: nothing). */
static void split_front(struct adjoint *a, struct term *t, int32_t *out_front)
{
    struct loops *w = a->w;
    struct product p = {0};
    int32_t inner = 0;
    *out_front = 0;
    if (!t->ctx) return;
    grad_factors(w, t->value, &p);
    for (int i = 0; i < p.n; i++) {
        struct guarding g = {.a = a};
        ex_walk(w, p.factor[i], find_leaving, &g);
        bool in = g.leaves || (ex_ivars(w, p.factor[i]) & t->ctx);
        int32_t *to = in ? &inner : out_front;
        *to = grad_times(w, *to, p.factor[i], p.under[i]);
    }
    if (!inner || !*out_front) {
        *out_front = 0;
        return;
    }
    t->value = inner;
}

/* -- layers of loops */

struct written { /* an output or a temp */
    const char *name;
    struct loops_tensor like;
    const struct sol_tensor *purposes; /* NULL: none */
    bool temp;
    int own; /* of w: the tensor that other lines read it by; -1: none does */
};
struct line {
    int nout, out[3];
    int32_t index[SOL_MAX_DIMS], value;
};
struct writer { /* what a layer is to be */
    struct adjoint *a;
    VECTOR(struct written) out; /* outputs, then temps */
    VECTOR(struct line) lines;
    struct loops *to;
    int *tensor;                   /* by tensor of w: of `to`, -1: not read */
    int32_t ivar[LOOPS_MAX_IVARS]; /* by index variable of w: node of `to`, 0: not met yet */
    uint64_t positions;            /* index variables of w whose positions count */
};

static struct writer *writer(struct adjoint *a)
{
    struct writer *wr = NEW(a->w->arena, struct writer);
    wr->a = a;
    return wr;
}

static int put_written(struct writer *wr, struct written o)
{
    PUSH(wr->a->w->arena, wr->out, o);
    return wr->out.n - 1;
}

static void put_line(struct writer *wr, struct line line)
{
    PUSH(wr->a->w->arena, wr->lines, line);
}

static void each_node(struct writer *wr, void (*visit)(void *user, int32_t node))
{
    for (int i = 0; i < wr->lines.n; i++) {
        const struct line *l = &wr->lines.at[i];
        for (int d = 0; d < wr->out.at[l->out[0]].like.ndim; d++) ex_walk(wr->a->w, l->index[d], visit, wr);
        ex_walk(wr->a->w, l->value, visit, wr);
    }
}

/* Which tensors are read (0), and which index variables have positions. */
static void find_used(void *user, int32_t node)
{
    struct writer *wr = user;
    const struct ex *e = &wr->a->w->ex.at[node];
    if (e->kind == EX_READ) wr->tensor[e->tensor] = 0;
    if (e->kind == EX_RED && (e->op == RED_MAXAT || e->op == RED_MINAT)) wr->positions |= e->u.bound;
}

/* Index variables are numbered in the order in which they are met. Those of size 1 are dropped. */
static void meet_ivars(struct writer *wr, uint64_t ivars)
{
    const struct loops *w = wr->a->w;
    for (int i = 0; i < w->ivars.n; i++) {
        const struct loops_ivar *x = &w->ivars.at[i];
        if (!(ivars >> i & 1) || wr->ivar[i]) continue;
        const char *name = arena_printf(w->arena, "%.6s", x->name);
        wr->ivar[i] = x->size == 1 ? ex_int(wr->to, 0) : ex_ivar(wr->to, loops_ivar(wr->to, name, x->size));
    }
}

static void meet(void *user, int32_t node)
{
    struct writer *wr = user;
    const struct ex *e = &wr->a->w->ex.at[node];
    if (e->kind == EX_IVAR) meet_ivars(wr, UINT64_C(1) << e->tensor);
    if (e->kind == EX_RED) meet_ivars(wr, e->u.bound);
}

static const struct formula *formula_of(const struct adjoint *a, int tensor)
{
    for (int i = 0; i < a->formulas.n; i++)
        if (a->formulas.at[i].tensor == tensor) return &a->formulas.at[i];
    return NULL;
}

/* The tensors that are read; tables of the layer become constants of the graph. */
static sol_status put_inputs(struct writer *wr, struct sol_tensor **in, int *out_nin)
{
    struct loops *w = wr->a->w;
    *out_nin = 0;
    for (int i = 0; i < w->tensors.n; i++) {
        struct loops_tensor t = w->tensors.at[i];
        bool own = false;
        for (int o = 0; o < wr->out.n; o++) own |= wr->out.at[o].own == i;
        if (wr->tensor[i] < 0 || own || formula_of(wr->a, i)) continue;
        if (t.role == LOOPS_TABLE && !t.user) {
            struct sol_tensor *made;
            TRY(sol_graph_const(wr->a->g, t.dtype, t.ndim, t.shape, t.table, &made));
            loops_set_user(w, i, made);
            t.user = made;
        }
        if (!t.user)
            return ctx_fail(wr->a->g->ctx, SOL_ERR_INTERNAL, "gradient of layer '%s' (%s): '%s' cannot be read",
                            wr->a->layer->name, wr->a->layer->def->name, t.name);
        in[(*out_nin)++] = t.user;
        t.role = LOOPS_INPUT;
        t.user = NULL;
        wr->tensor[i] = loops_tensor_like(wr->to, &t);
    }
    return SOL_OK;
}

/* Returns the number of the first. */
static int put_outputs(struct writer *wr)
{
    const int first = wr->to->tensors.n;
    for (int o = 0; o < wr->out.n; o++) {
        const struct written *out = &wr->out.at[o];
        const struct loops_tensor *t = &out->like;
        const int made =
            loops_tensor(wr->to, out->name, out->temp ? LOOPS_TEMP : LOOPS_OUTPUT, t->dtype, t->ndim, t->shape);
        if (out->own >= 0) wr->tensor[out->own] = made;
    }
    return first;
}

static void put_tables(struct writer *wr)
{
    const struct loops *w = wr->a->w;
    for (int i = 0; i < wr->a->formulas.n; i++) {
        const struct formula *f = &wr->a->formulas.at[i];
        struct loops_tensor t = w->tensors.at[f->tensor];
        struct text formula = text_new(w->arena);
        struct affine affine;
        if (wr->tensor[f->tensor] < 0 || ex_affine(w, f->value, &affine)) continue;
        ex_print(w, f->value, &formula);
        t.ivar = w->ivars.at[f->ivar].name;
        t.formula = formula.at;
        wr->tensor[f->tensor] = loops_tensor_like(wr->to, &t);
    }
}

/* An affine table is put in place of its reads. */
static int32_t read_table(void *user, struct loops *to, const struct ex *read, const int32_t *index, int nindex,
                          int32_t outside)
{
    const struct writer *wr = user;
    const struct formula *f = formula_of(wr->a, read->tensor);
    int32_t map[LOOPS_MAX_IVARS] = {0};
    struct affine affine;
    if (!f || !ex_affine(wr->a->w, f->value, &affine)) return 0;
    assert(nindex == 1 && !outside);
    (void)nindex, (void)outside;
    map[f->ivar] = *index;
    return ex_copy(to, wr->a->w, f->value, map, NULL);
}

static void put_statement(struct writer *wr, const struct line *l, int first_out)
{
    const struct loops_tensor *t = &wr->out.at[l->out[0]].like;
    const struct rewrite r = {
        .to = wr->to, .from = wr->a->w, .ivar = wr->ivar, .tensor = wr->tensor, .read = read_table, .user = wr};
    struct loops_stmt s = {.nout = (uint8_t)l->nout};
    int32_t index[SOL_MAX_DIMS];
    for (int d = 0; d < t->ndim; d++) index[d] = t->shape[d] == 1 ? ex_int(wr->to, 0) : rewrite_ex(&r, l->index[d]);
    s.index = ex_list(wr->to, t->ndim, index);
    s.value = rewrite_ex(&r, l->value);
    for (int o = 0; o < l->nout; o++) s.out[o] = (uint16_t)(first_out + l->out[o]);
    loops_stmt(wr->to, s);
}

/* Adds the layer that all of this describes in front of `before`. */
static sol_status write_row(struct writer *wr, struct sol_layer *before, const char *name, struct sol_layer **out_l)
{
    struct adjoint *a = wr->a;
    struct loops *w = a->w;
    int nin;
    wr->to = loops_create(w->arena, "Row");
    wr->tensor = NEW_ARRAY(w->arena, int, w->tensors.n + 1);
    for (int i = 0; i < w->tensors.n; i++) wr->tensor[i] = -1;
    each_node(wr, find_used);
    struct sol_tensor **in = NEW_ARRAY(w->arena, struct sol_tensor *, w->tensors.n + 1);
    const struct sol_tensor **like = NEW_ARRAY(w->arena, const struct sol_tensor *, wr->out.n + 1);
    TRY(put_inputs(wr, in, &nin));
    const int first = put_outputs(wr);
    put_tables(wr);
    meet_ivars(wr, wr->positions);
    each_node(wr, meet);
    for (int i = 0; i < wr->lines.n; i++) put_statement(wr, &wr->lines.at[i], first);
    for (int o = 0; o < wr->out.n; o++) like[o] = wr->out.at[o].purposes;
    TRY(ctx_check(a->g->ctx));
    TRY(loops_order(a->g->ctx, wr->to));
    const struct new_layer n = {.nin = nin, .in = in, .name = name, .where = a->layer->where};
    return graph_add_loops(a->g, before, &n, wr->to, like, out_l);
}

/* A name that no tensor of w has. */
static const char *free_name(const struct loops *w, const char *wanted)
{
    for (int i = 0; i < w->tensors.n; i++)
        if (!strcmp(w->tensors.at[i].name, wanted)) return free_name(w, arena_printf(w->arena, "%s_", wanted));
    return wanted;
}

/* All results have the same name, and a sum of its own has no purposes, so equal definitions have equal texts, and a
 * pass merges them into one layer. */
static int written(struct writer *wr, int tensor, bool part)
{
    const struct loops_tensor *t = &wr->a->w->tensors.at[tensor];
    const char *name = free_name(wr->a->w, "d");
    return put_written(wr, (struct written){.name = name, .like = *t, .purposes = part ? NULL : t->user, .own = -1});
}

int32_t term_written(struct adjoint *a, struct term *t)
{
    take_bounds(a, t);
    turn_ivars(a, t);
    return term_sum(a, t);
}

sol_status write_terms(struct adjoint *a, const struct term *terms, int n, struct sol_tensor **out_d)
{
    struct loops *w = a->w;
    const struct loops_tensor to = w->tensors.at[terms[0].tensor];
    const char *layer_name = arena_printf(w->arena, "%s'%s", a->layer->name, to.name);
    struct writer *wr = writer(a);
    struct sol_layer *l;
    int32_t front = 0;
    for (int i = 0; i < n; i++) {
        struct term t = terms[i];
        struct line line = {.nout = 1};
        if (n == 1) split_front(a, &t, &front);
        line.value = term_written(a, &t);
        memcpy(line.index, t.index, sizeof line.index);
        put_line(wr, line);
    }
    written(wr, terms[0].tensor, front);
    TRY(write_row(wr, NULL, layer_name, &l));
    *out_d = l->out[0];
    if (!front) return SOL_OK;
    int core = loops_tensor(w, "s", LOOPS_INPUT, to.dtype, to.ndim, to.shape);
    loops_set_user(w, core, *out_d);
    struct writer *outer = writer(a);
    struct line line = wr->lines.at[0];
    int32_t read = ex_read(w, core, to.ndim ? ex_list(w, to.ndim, line.index) : 0, 0);
    line.value = ex_binary(w, EX_MUL, read, front);
    put_line(outer, line);
    written(outer, terms[0].tensor, false);
    TRY(write_row(outer, NULL, layer_name, &l));
    *out_d = l->out[0];
    return SOL_OK;
}

sol_status write_lines(struct adjoint *a, const struct grad_line *from, int n)
{
    struct loops *w = a->w;
    struct writer *wr = writer(a);
    struct sol_layer *l;
    int *number = NEW_ARRAY(w->arena, int, n + 1), outputs = 0;
    for (int pass = 0; pass < 2; pass++) /* outputs, temps */
        for (int i = 0; i < n; i++) {
            const struct loops_tensor *t = &w->tensors.at[from[i].tensor];
            if (from[i].output != !pass) continue;
            if (!pass) outputs++;
            number[i] =
                put_written(wr, (struct written){.name = t->name, .like = *t, .temp = pass, .own = from[i].tensor});
        }
    for (int i = 0; i < n; i++) {
        struct line line = {.nout = 1, .out = {number[i]}, .value = from[i].value};
        memcpy(line.index, from[i].index, sizeof line.index);
        put_line(wr, line);
    }
    TRY(write_row(wr, NULL, arena_printf(w->arena, "%s'", a->layer->name), &l));
    for (int i = 0; i < n; i++) loops_set_user(w, from[i].tensor, number[i] < outputs ? l->out[number[i]] : NULL);
    return SOL_OK;
}

/* -- a statement of the forward layer by itself */

sol_status write_remat(struct sol_graph *g, struct sol_layer *before, struct sol_tensor *t, int stmt,
                       struct sol_tensor *const *user, struct sol_tensor **out_t)
{
    const struct arena_mark mark = arena_mark(g->scratch);
    struct adjoint a = {.g = g, .layer = t->from, .w = loops_copy(g->scratch, t->from->loops)};
    struct loops *w = a.w;
    const struct loops_stmt *s = &w->stmts.at[stmt];
    struct writer *wr = writer(&a);
    struct line line = {.nout = 1, .value = s->value};
    struct sol_layer *l;
    int d = 0;
    for (int i = 0; i < w->tensors.n; i++) loops_set_user(w, i, user[i]);
    const struct loops_tensor *y = &w->tensors.at[s->out[0]];
    put_written(wr, (struct written){.name = y->name, .like = *y, .purposes = t, .own = s->out[0]});
    for (int32_t i = s->index; i; i = w->ex.at[i].next) line.index[d++] = i;
    put_line(wr, line);
    const sol_status status = write_row(wr, before, arena_printf(g->scratch, "%s again", t->from->name), &l);
    arena_rewind(g->scratch, mark);
    TRY(status);
    for (int k = 0; k < t->ndim; k++) l->out[0]->dim[k].purpose = t->dim[k].purpose;
    *out_t = l->out[0];
    return SOL_OK;
}

/* -- the forward layer with temps as outputs */

struct needs {
    const struct loops *w;
    bool *needed; /* by tensor */
    bool more;
};

static void find_need(void *user, int32_t node)
{
    struct needs *s = user;
    const struct ex *e = &s->w->ex.at[node];
    if (e->kind != EX_READ || s->needed[e->tensor]) return;
    s->needed[e->tensor] = s->more = true;
}

/* Marks what has to be written: outputs with readers, exposed temporaries, and everything that these are computed from.
 */
static void find_needed(struct adjoint *a, bool *needed)
{
    struct loops *w = a->w;
    const struct loops *loops = a->layer->loops;
    for (int i = 0; i < loops->tensors.n; i++) {
        const struct sol_tensor *t = w->tensors.at[i].user;
        needed[i] = a->exposed[i] || (w->tensors.at[i].role == LOOPS_OUTPUT && (t->readers.n || t->output));
    }
    for (int i = loops->stmts.n - 1; i >= 0; i--) {
        const struct loops_stmt *s = &w->stmts.at[i];
        struct needs needs = {w, needed, false};
        bool any = false;
        for (int o = 0; o < s->nout; o++) any |= needed[s->out[o]];
        if (!any) continue;
        ex_walk(w, s->value, find_need, &needs);
        for (int o = 0; o < s->nout; o++) {
            needs.more |= !needed[s->out[o]];
            needed[s->out[o]] = true;
        }
        if (needs.more && s->scan_step)
            i = loops->stmts.n; /* a step needs the one before it, so any statement another */
    }
}

static void describe(struct writer *wr, const int *number, const bool *needed)
{
    const struct loops *w = wr->a->w;
    for (int i = 0; i < wr->a->layer->loops->stmts.n; i++) {
        const struct loops_stmt *s = &w->stmts.at[i];
        if (!needed[s->out[0]]) continue;
        struct line line = {.nout = s->nout, .value = s->value};
        int d = 0;
        for (int o = 0; o < s->nout; o++) line.out[o] = number[s->out[o]];
        for (int32_t k = s->index; k; k = w->ex.at[k].next) line.index[d++] = k;
        put_line(wr, line);
    }
}

/* The smallest type that can hold the positions of a maxat or minat; otherwise the tensor's own. */
static enum sol_dtype smallest_type(const struct adjoint *a, int tensor)
{
    const struct loops *w = a->w;
    for (int i = 0; i < a->layer->loops->stmts.n; i++) {
        const struct loops_stmt *s = &w->stmts.at[i];
        const struct ex *e = &w->ex.at[s->value];
        if (s->nout < 2 || s->out[1] != tensor || e->kind != EX_RED || (e->op != RED_MAXAT && e->op != RED_MINAT))
            continue;
        const int64_t n = size_most(ivars_size(w, e->u.bound));
        return n <= 256 ? SOL_U8 : n <= 65536 ? SOL_U16 : SOL_I64;
    }
    return (enum sol_dtype)w->tensors.at[tensor].dtype;
}

sol_status write_exposed(struct adjoint *a)
{
    struct loops *w = a->w;
    struct sol_layer *old = a->layer, *l;
    int n = old->loops->tensors.n, *number = NEW_ARRAY(w->arena, int, n + 1), any = 0;
    for (int i = 0; i < n; i++) number[i] = -1;
    bool *needed = NEW_ARRAY(w->arena, bool, n + 1);
    struct writer *wr = writer(a);
    for (int i = 0; i < n; i++) any |= a->exposed[i];
    if (!any) return ctx_check(a->g->ctx);
    find_needed(a, needed);
    for (int pass = 0; pass < 3; pass++) /* outputs, exposed temps, other temps */
        for (int i = 0; i < n; i++) {
            struct loops_tensor t = w->tensors.at[i];
            const struct sol_tensor *user = t.user;
            bool output = t.role == LOOPS_OUTPUT && (user->readers.n || user->output);
            if (t.role == LOOPS_INPUT || t.role == LOOPS_TABLE || !needed[i]) continue;
            if ((output ? 0 : a->exposed[i] ? 1 : 2) != pass) continue;
            if (pass) t.dtype = (uint8_t)smallest_type(a, i);
            loops_set_tensor(w, i, t);
            number[i] = put_written(
                wr, (struct written){.name = t.name, .like = t, .purposes = user, .temp = pass == 2, .own = i});
        }
    describe(wr, number, needed);
    TRY(write_row(wr, old, old->name, &l));
    for (int i = 0; i < n; i++) {
        if (number[i] < 0 || number[i] >= l->nout) continue;
        struct sol_tensor *was = w->tensors.at[i].user;
        loops_set_user(w, i, l->out[number[i]]);
        if (!was) continue;
        for (int d = 0; d < was->ndim; d++) l->out[number[i]]->dim[d].purpose = was->dim[d].purpose;
        graph_replace(a->g, was, l->out[number[i]]);
    }
    graph_remove(a->g, old);
    return ctx_check(a->g->ctx);
}
