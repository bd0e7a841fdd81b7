/* The graph: a list of layers, always in topological order, and tensors. Adding a layer binds its definition to the
 * input shapes, which gives the shapes, types and purposes of its outputs. */
#include "hlir/graph.h"

#include <stdlib.h>
#include <string.h>

/* -- tensors */

struct sol_tensor *graph_tensor(struct sol_graph *g, enum tensor_role role, const char *name, enum sol_dtype t,
                                int ndim, const int64_t *shape)
{
    struct sol_tensor *x = NEW(g->arena, struct sol_tensor);
    x->graph = g;
    x->id = g->ntensors++;
    x->name = arena_strdup(g->arena, name ? name : "");
    x->role = (uint8_t)role;
    x->dtype = (uint8_t)t;
    x->ndim = (uint8_t)ndim;
    for (int d = 0; d < ndim; d++) x->dim[d].size = shape[d];
    PUSH(g->arena, g->tensors, x);
    if (role == TENSOR_INPUT) {
        x->index = g->inputs.n;
        PUSH(g->arena, g->inputs, x);
    } else if (role == TENSOR_PARAM) {
        x->index = g->params.n;
        PUSH(g->arena, g->params, x);
    }
    return x;
}

int64_t tensor_elements(const struct sol_tensor *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->ndim; d++) n = size_mul(n, t->dim[d].size);
    return n;
}

int64_t tensor_bytes(const struct sol_tensor *t)
{
    return size_mul(tensor_elements(t), dtype_def((enum sol_dtype)t->dtype)->bytes);
}

static struct opdef_input input_of(struct arena *a, const struct sol_tensor *t)
{
    if (!t) return (struct opdef_input){.missing = true};
    int64_t *shape = NEW_ARRAY(a, int64_t, t->ndim);
    for (int d = 0; d < t->ndim; d++) shape[d] = t->dim[d].size;
    return (struct opdef_input){(enum sol_dtype)t->dtype, t->ndim, shape, false};
}

/* -- purposes: whether a dimension holds channels or pixels */

#define THROUGH 4 /* how many temporaries a search for a purpose goes through */

struct search { /* for a read whose dimension runs along `ivar`, in statement `stmt` */
    const struct sol_layer *layer;
    const struct loops *loops;
    int ivar, stmt, depth;
    char found;
};

static char purpose_read(const struct sol_layer *l, int out_tensor, int dim, int before, int depth);

/* The i-th present input. Loops have no tensor for a missing input. */
static const struct sol_tensor *given_input(const struct sol_layer *l, int i)
{
    for (int k = 0; k < l->nin; k++)
        if (l->in[k] && !i--) return l->in[k];
    return NULL;
}

static void look_at(void *user, int32_t node)
{
    struct search *s = user;
    const struct ex *e = &s->loops->ex.at[node];
    if (s->found || e->kind != EX_READ) return;
    const bool input = s->loops->tensors.at[e->tensor].role == LOOPS_INPUT;
    const struct sol_tensor *t = input ? given_input(s->layer, e->tensor) : NULL;
    int found = -1; /* an index variable whose digits run along several dimensions has the purpose of none */
    int32_t index = e->a;
    for (int d = 0; index; d++, index = s->loops->ex.at[index].next) {
        if (!(ex_ivars(s->loops, index) >> s->ivar & 1)) continue;
        if (found >= 0) return;
        found = d;
    }
    if (found < 0) return;
    if (t && found < t->ndim) s->found = t->dim[found].purpose;
    if (!input && s->depth < THROUGH) s->found = purpose_read(s->layer, e->tensor, found, s->stmt, s->depth + 1);
}

/* Finds a purpose by structure: that of the first input dimension that is read along this dimension of a tensor. Only
 * statements ahead of `before` count. */
static char purpose_read(const struct sol_layer *l, int out_tensor, int dim, int before, int depth)
{
    const struct loops *p = l->loops;
    for (int i = 0; i < before; i++) {
        const struct loops_stmt *s = &p->stmts.at[i];
        bool writes = false;
        for (int o = 0; o < s->nout; o++) writes |= s->out[o] == out_tensor;
        if (!writes) continue;
        int32_t index = s->index;
        for (int d = 0; d < dim && index; d++) index = p->ex.at[index].next;
        struct affine f;
        if (!index || !ex_affine(p, index, &f)) continue;
        for (int k = 0; k < f.n; k++) {
            struct search search = {l, p, f.ivar[k], i, depth, 0};
            ex_walk(p, s->value, look_at, &search);
            if (search.found) return search.found;
        }
    }
    return 0;
}

/* Sets the purposes of the outputs: those of the definition or of `like` (one of them may be NULL), otherwise what the
 * loops show. */
static void set_purposes(struct sol_layer *l, const struct opdef *opdef, const struct sol_tensor *const *like,
                         int first_out)
{
    for (int o = 0; o < l->nout; o++)
        for (int d = 0; d < l->out[o]->ndim; d++) {
            bool own = opdef && !(l->def->flags & (LAYER_VIEW | LAYER_ELEMENTWISE));
            char says = own ? opdef_purpose(opdef, true, o, d, l->out[o]->ndim) : 0;
            if (like && like[o]) says = like[o]->dim[d].purpose;
            char read = says == 'C' || says == 'P' ? says : purpose_read(l, first_out + o, d, l->loops->stmts.n, 0);
            l->out[o]->dim[d].purpose = read ? read : l->def->text ? says : 0;
        }
}

/* -- layers */

static void link_layer(struct sol_graph *g, struct sol_layer *before, struct sol_layer *l)
{
    l->next = before;
    l->prev = before ? before->prev : g->last;
    *(l->prev ? &l->prev->next : &g->first) = l;
    *(before ? &before->prev : &g->last) = l;
}

/* The common shape of the inputs by NumPy's broadcasting rules. */
static sol_status broadcast_shape(struct sol_graph *g, const char *kind, int nin, struct sol_tensor *const *in,
                                  int *out_ndim, int64_t *shape)
{
    int ndim = 0;
    for (int i = 0; i < nin; i++)
        if (in[i]) ndim = MAX(ndim, in[i]->ndim);
    for (int d = 0; d < ndim; d++) {
        shape[d] = 1;
        for (int i = 0; i < nin; i++) {
            int own = in[i] ? d - (ndim - in[i]->ndim) : -1;
            int64_t n = own >= 0 ? in[i]->dim[own].size : 1;
            if (n == 1) continue;
            if (shape[d] != 1 && shape[d] != n)
                return ctx_unequal(
                    g->ctx, shape[d], n,
                    ctx_fail(g->ctx, SOL_ERR_INVALID,
                             "%s: input %d: dimension %d from the end has size %lld, that of other inputs is %lld",
                             kind, i, ndim - d, (long long)n, (long long)shape[d]));
            shape[d] = n;
        }
    }
    *out_ndim = ndim;
    return SOL_OK;
}

static bool has_shape(const struct sol_tensor *t, int ndim, const int64_t *shape)
{
    if (t->ndim != ndim) return false;
    for (int d = 0; d < ndim; d++)
        if (t->dim[d].size != shape[d]) return false;
    return true;
}

/* Puts Expand layers ahead of an element-wise layer's inputs. */
static sol_status broadcast(struct sol_graph *g, struct sol_layer *before, const struct new_layer *n,
                            struct sol_tensor **in)
{
    int ndim = 0;
    int64_t shape[SOL_MAX_DIMS];
    TRY(broadcast_shape(g, n->kind, n->nin, in, &ndim, shape));
    struct opdef_attr attr = {.name = "shape", .kind = ATTR_INT, .n = ndim, .ints = shape};
    for (int i = 0; i < n->nin; i++) {
        if (!in[i] || has_shape(in[i], ndim, shape)) continue;
        struct sol_layer *expand;
        const struct new_layer wider = {"Expand", 1, &in[i], &(struct attrs){1, &attr}, n->name, n->where};
        TRY(graph_add(g, before, &wider, &expand));
        struct sol_tensor *wide = expand->out[0];
        for (int k = i + 1; k < n->nin; k++)
            if (in[k] == in[i]) in[k] = wide;
        in[i] = wide;
    }
    return SOL_OK;
}

static int given_inputs(const struct sol_layer *l)
{
    int n = 0;
    for (int i = 0; i < l->nin; i++) n += l->in[i] != NULL;
    return n;
}

static sol_status make_outputs(struct sol_graph *g, struct sol_layer *l)
{
    const struct loops_tensor *t = l->loops->tensors.at;
    const int first = given_inputs(l);
    for (int i = first; i < l->loops->tensors.n && t[i].role == LOOPS_OUTPUT; i++) l->nout++;
    l->out = NEW_ARRAY(g->arena, struct sol_tensor *, l->nout);
    for (int o = 0; o < l->nout; o++) {
        const struct loops_tensor *made = &t[first + o];
        int64_t elements;
        TRY(shape_elements(g->ctx, made->ndim, made->shape, &elements));
        l->out[o] = graph_tensor(g, TENSOR_VALUE, NULL, (enum sol_dtype)made->dtype, made->ndim, made->shape);
        l->out[o]->from = l;
        l->out[o]->from_out = o;
    }
    return SOL_OK;
}

static struct sol_layer *make_layer(struct arena *a, const struct layer_def *def, const struct new_layer *n)
{
    struct sol_layer *l = NEW(a, struct sol_layer);
    l->def = def;
    l->name = arena_strdup(a, n->name ? n->name : "");
    l->where = arena_strdup(a, n->where ? n->where : "");
    l->nin = n->nin;
    l->in = NEW_ARRAY(a, struct sol_tensor *, n->nin);
    if (n->nin) memcpy(l->in, n->in, (size_t)n->nin * sizeof *n->in);
    return l;
}

/* Adds a layer that is bound and has outputs to the graph. */
static void join(struct sol_graph *g, struct sol_layer *before, struct sol_layer *l)
{
    l->id = g->nlayers++;
    link_layer(g, before, l);
    for (int i = 0; i < l->nin; i++)
        if (l->in[i]) PUSH(g->arena, l->in[i]->readers, l);
}

/* Loops that were made in scratch memory become a layer's. */
static const struct loops *keep_loops(struct sol_graph *g, const struct loops *made)
{
    struct loops *loops = loops_compact(g->arena, made);
    for (int i = 0; i < loops->tensors.n; i++) {
        struct loops_tensor t = loops->tensors.at[i];
        if (!t.table) continue;
        t.table = arena_memdup(g->arena, t.table, (size_t)loops_elements(&t) * (size_t)dtype_def(t.dtype)->bytes);
        loops_set_tensor(loops, i, t);
    }
    return loops;
}

static sol_status bind(struct sol_graph *g, struct sol_layer *l)
{
    struct arena *a = g->scratch;
    struct opdef_input *shapes = NEW_ARRAY(a, struct opdef_input, l->nin);
    for (int i = 0; i < l->nin; i++) shapes[i] = input_of(a, l->in[i]);
    struct layer_bound bound;
    TRY(g->kinds->bind(a, l->def, l->nin, shapes, &l->attrs, &bound));
    l->loops = keep_loops(g, bound.loops);
    TRY(make_outputs(g, l));
    TRY(graph_need(g, l, bound.loops));
    if (bound.row) set_purposes(l, bound.row, NULL, given_inputs(l));
    return SOL_OK;
}

static sol_status add_layer(struct sol_graph *g, struct sol_layer *before, const struct layer_def *def,
                            const struct new_layer *n, struct sol_layer **out_layer)
{
    struct sol_layer *l = make_layer(g->arena, def, n);
    if (def->flags & LAYER_ELEMENTWISE) TRY(broadcast(g, before, n, l->in));
    TRY(g->kinds->attrs(g->arena, def, n->attrs, &l->attrs));
    const struct arena_mark mark = arena_mark(g->scratch);
    const sol_status status = bind(g, l);
    arena_rewind(g->scratch, mark);
    TRY(status);
    join(g, before, l);
    *out_layer = l;
    return SOL_OK;
}

/* The text of a layer of kind Row, for people and for the text form. */
static const char *row_text(struct sol_graph *g, const struct sol_layer *l, const struct sol_tensor *const *like)
{
    const struct arena_mark mark = arena_mark(g->scratch);
    struct arena *a = g->scratch;
    struct text text = text_new(a);
    char(*purpose)[SOL_MAX_DIMS] = arena_alloc(a, ((size_t)l->loops->tensors.n + 1) * sizeof *purpose);
    memset(purpose, 0, ((size_t)l->loops->tensors.n + 1) * sizeof *purpose);
    for (int i = 0; i < l->nin + l->nout; i++) {
        const struct sol_tensor *t = i < l->nin ? l->in[i] : like[i - l->nin];
        for (int d = 0; t && d < t->ndim; d++) purpose[i][d] = t->dim[d].purpose;
    }
    loops_print_row(l->loops, purpose, &text);
    const char *kept = arena_strdup(g->arena, text.at);
    arena_rewind(g->scratch, mark);
    return kept;
}

sol_status graph_add_loops(struct sol_graph *g, struct sol_layer *before, const struct new_layer *n,
                           const struct loops *loops, const struct sol_tensor *const *like,
                           struct sol_layer **out_layer)
{
    struct sol_layer *l = make_layer(g->arena, g->kinds->find(g->ctx, "Row"), n);
    l->loops = keep_loops(g, loops);
    TRY(make_outputs(g, l));
    const struct opdef_attr text = {.name = "text", .kind = ATTR_TEXT, .n = -1, .text = row_text(g, l, like)};
    l->attrs = (struct attrs){1, arena_memdup(g->arena, &text, sizeof text)};
    set_purposes(l, NULL, like, n->nin);
    join(g, before, l);
    *out_layer = l;
    return ctx_check(g->ctx);
}

sol_status graph_add_again(struct sol_graph *g, struct sol_layer *before, const struct sol_layer *from,
                           const char *name, struct sol_tensor *const *in, struct sol_layer **out_layer)
{
    const struct new_layer n = {from->def->name, from->nin, in, &from->attrs, name, from->where};
    struct sol_layer *l = make_layer(g->arena, from->def, &n);
    l->loops = from->loops;
    l->attrs = from->attrs;
    TRY(make_outputs(g, l));
    for (int o = 0; o < l->nout; o++) memcpy(l->out[o]->dim, from->out[o]->dim, sizeof l->out[o]->dim);
    join(g, before, l);
    *out_layer = l;
    return ctx_check(g->ctx);
}

sol_status graph_add(struct sol_graph *g, struct sol_layer *before, const struct new_layer *n,
                     struct sol_layer **out_layer)
{
    const struct layer_def *def = g->kinds->find(g->ctx, n->kind);
    const char *name = n->name ? n->name : "", *where = n->where ? n->where : "";
    if (!def)
        return ctx_fail(g->ctx, SOL_ERR_UNSUPPORTED,
                        "layer '%s': %s%sno layer is called '%s'; `sol info --layers` lists them", name, where,
                        *where ? ": " : "", n->kind);
    for (int i = 0; i < n->nin; i++)
        if (n->in[i] && n->in[i]->graph != g)
            return ctx_fail(g->ctx, SOL_ERR_INVALID, "layer '%s' (%s): input %d belongs to another graph", name,
                            n->kind, i);
    sol_status status = add_layer(g, before, def, n, out_layer);
    if (!status) return SOL_OK;
    return *where ? ctx_where(g->ctx, status, "layer '%s' (%s): ", name, where)
                  : ctx_where(g->ctx, status, "layer '%s': ", name);
}

/* Tensors of removed layers leave the list once they are half of it. So removing a layer costs little. */
static void forget_tensors(struct sol_graph *g)
{
    int kept = 0;
    for (int i = 0; i < g->tensors.n; i++) {
        struct sol_tensor *t = g->tensors.at[i];
        if (t->role != TENSOR_VALUE || t->from) g->tensors.at[kept++] = t;
    }
    g->tensors.n = kept;
    g->removed = 0;
}

void graph_remove(struct sol_graph *g, struct sol_layer *l)
{
    *(l->prev ? &l->prev->next : &g->first) = l->next;
    *(l->next ? &l->next->prev : &g->last) = l->prev;
    l->prev = l->next = NULL;
    for (int o = 0; o < l->nout; o++) l->out[o]->from = NULL;
    g->removed += l->nout;
    if (g->removed * 2 > g->tensors.n) forget_tensors(g);
}

void graph_output(struct sol_graph *g, const char *name, struct sol_tensor *t)
{
    struct graph_output o = {.name = arena_strdup(g->arena, name ? name : ""), .t = t};
    t->output = true;
    PUSH(g->arena, g->outputs, o);
}

void graph_replace(struct sol_graph *g, struct sol_tensor *old, struct sol_tensor *with)
{
    if (old == with) return;
    for (int k = 0; k < old->readers.n; k++) {
        struct sol_layer *l = old->readers.at[k];
        for (int i = 0; i < l->nin; i++)
            if (l->in[i] == old) l->in[i] = with;
        PUSH(g->arena, with->readers, l);
    }
    old->readers.n = 0;
    for (int i = 0; old->output && i < g->outputs.n; i++)
        if (g->outputs.at[i].t == old) g->outputs.at[i].t = with;
    with->output |= old->output;
}

void graph_count_uses(struct sol_graph *g)
{
    for (int i = 0; i < g->tensors.n; i++) g->tensors.at[i]->user = NULL;
    for (struct sol_layer *l = g->first; l; l = l->next)
        for (int i = 0; i < l->nin; i++)
            if (l->in[i]) l->in[i]->user = (void *)(tensor_uses(l->in[i]) + 1);
    for (int i = 0; i < g->outputs.n; i++) {
        struct sol_tensor *t = g->outputs.at[i].t;
        t->user = (void *)(tensor_uses(t) + 1);
    }
}

/* -- verify */

static sol_status wrong(const struct sol_graph *g, const struct sol_layer *l, const char *what)
{
    return ctx_fail(g->ctx, SOL_ERR_INTERNAL, "graph '%s': layer %d '%s' (%s): %s", g->name, l->id, l->name,
                    l->def->name, what);
}

static sol_status verify_tensor(const struct sol_graph *g, const struct sol_layer *l, const struct sol_tensor *t,
                                const struct loops_tensor *p)
{
    if (t->graph != g) return wrong(g, l, "a tensor of another graph");
    if (t->dtype != p->dtype) return wrong(g, l, "the type of a tensor is not that of its loops");
    if (!has_shape(t, p->ndim, p->shape)) return wrong(g, l, "the shape of a tensor is not that of its loops");
    return SOL_OK;
}

static sol_status verify_layer(const struct sol_graph *g, const struct sol_layer *l, const bool *made, int ids)
{
    int k = 0;
    for (int i = 0; i < l->nin; i++) {
        if (!l->in[i]) continue;
        if (k >= l->loops->tensors.n || l->loops->tensors.at[k].role != LOOPS_INPUT)
            return wrong(g, l, "more inputs than its loops have");
        if (l->in[i]->id < 0 || l->in[i]->id >= ids || !made[l->in[i]->id])
            return wrong(g, l, "an input is made behind it or was removed");
        TRY(verify_tensor(g, l, l->in[i], &l->loops->tensors.at[k++]));
    }
    for (int o = 0; o < l->nout; o++, k++) {
        if (k >= l->loops->tensors.n || l->loops->tensors.at[k].role != LOOPS_OUTPUT)
            return wrong(g, l, "more outputs than its loops have");
        const struct sol_tensor *t = l->out[o];
        if (t->from != l || t->from_out != o || t->role != TENSOR_VALUE)
            return wrong(g, l, "an output does not point back");
        if (t->id < 0 || t->id >= ids || made[t->id]) return wrong(g, l, "an output's number is taken");
        TRY(verify_tensor(g, l, t, &l->loops->tensors.at[k]));
    }
    return SOL_OK;
}

static sol_status verify_lists(const struct sol_graph *g, bool *made, int ids)
{
    for (int i = 0; i < g->tensors.n; i++) {
        const struct sol_tensor *t = g->tensors.at[i];
        if (t->id < 0 || t->id >= ids)
            return ctx_fail(g->ctx, SOL_ERR_INTERNAL, "graph '%s': tensor %d: no such number", g->name, t->id);
        if (t->role == TENSOR_VALUE) continue;
        bool listed = t->role == TENSOR_CONST || (t->role == TENSOR_INPUT && g->inputs.at[t->index] == t) ||
                      (t->role == TENSOR_PARAM && g->params.at[t->index] == t);
        if (!listed || (t->role == TENSOR_CONST && !t->data && tensor_elements(t)))
            return ctx_fail(g->ctx, SOL_ERR_INTERNAL, "graph '%s': tensor %d '%s' is not in its list", g->name, t->id,
                            t->name);
        made[t->id] = true;
    }
    return SOL_OK;
}

sol_status graph_verify(struct sol_graph *g)
{
    int ids = g->ntensors;
    bool *made = NEW_ARRAY(g->arena, bool, ids);
    TRY(verify_lists(g, made, ids));
    const struct sol_layer *prev = NULL;
    for (const struct sol_layer *l = g->first; l; prev = l, l = l->next) {
        if (l->prev != prev) return wrong(g, l, "the list is broken");
        TRY(verify_layer(g, l, made, ids));
        for (int o = 0; o < l->nout; o++) made[l->out[o]->id] = true;
    }
    if (g->last != prev) return ctx_fail(g->ctx, SOL_ERR_INTERNAL, "graph '%s': the list's end is wrong", g->name);
    for (int i = 0; i < g->outputs.n; i++)
        if (!made[g->outputs.at[i].t->id])
            return ctx_fail(g->ctx, SOL_ERR_INTERNAL, "graph '%s': output '%s': nothing makes it", g->name,
                            g->outputs.at[i].name);
    return ctx_check(g->ctx);
}

/* -- work */

/* Counts operations on values below a node that is computed `times` times. Indices and guards do not count. */
static int64_t count_flops(const struct loops *loops, int32_t node, int64_t times)
{
    if (!node) return 0;
    const struct ex *e = &loops->ex.at[node];
    int64_t n = 0;
    switch (e->kind) {
    case EX_NEG: return size_add(times, count_flops(loops, e->a, times));
    case EX_ADD:
    case EX_SUB:
    case EX_MUL:
    case EX_DIV:
    case EX_FLOOR:
    case EX_MOD:
        n = size_add(count_flops(loops, e->a, times), count_flops(loops, e->b, times));
        return size_add(times, n);
    case EX_CALL:
        for (int32_t arg = e->a; arg; arg = loops->ex.at[arg].next) n = size_add(n, count_flops(loops, arg, times));
        return size_add(times, n);
    case EX_READ: return count_flops(loops, e->b, times);
    case EX_TEST: return times;
    case EX_RED:
        times = size_mul(times, ivars_size(loops, e->u.bound));
        return size_add(times, count_flops(loops, e->b, times));
    default: return 0;
    }
}

int64_t loops_flops(const struct loops *loops)
{
    int64_t n = 0;
    for (int i = 0; i < loops->stmts.n; i++) {
        const struct loops_stmt *s = &loops->stmts.at[i];
        n = size_add(n, count_flops(loops, s->value, ivars_size(loops, stmt_ivars(loops, s))));
    }
    return n;
}

void layer_work(const struct sol_layer *l, double *out_flops, double *out_bytes)
{
    *out_flops = work_hint(loops_flops(l->loops));
    *out_bytes = 0;
    for (int i = 0; i < l->nin; i++)
        if (l->in[i]) *out_bytes += (double)size_hint(tensor_bytes(l->in[i]));
    for (int o = 0; o < l->nout; o++) *out_bytes += (double)size_hint(tensor_bytes(l->out[o]));
}

void graph_work(const struct sol_graph *g, double *out_flops, double *out_bytes)
{
    *out_flops = *out_bytes = 0;
    for (const struct sol_layer *l = g->first; l; l = l->next) {
        double flops, bytes;
        layer_work(l, &flops, &bytes);
        *out_flops += flops;
        *out_bytes += bytes;
    }
}
