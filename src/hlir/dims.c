/* Dimensions of a graph that vary: declaring them, checking the sizes of a call, and the same graph for given sizes. */
#include <stdlib.h>
#include <string.h>

#include "hlir/graph.h"

/* -- sol.h */

sol_status sol_graph_dim(struct sol_graph *g, const char *name, const struct sol_dim_limits *limits, int64_t *out_size)
{
    struct graph_dim d = {.name = arena_strdup(g->arena, name ? name : ""), .most = -1};
    d.dim = (struct size_dim){g->dims.n, limits->hint, limits->min, limits->max ? limits->max : SIZE_UNLIMITED,
                              limits->multiple};
    if (g->dims.n == SIZE_MOST_DIMS)
        return ctx_fail(g->ctx, SOL_ERR_UNSUPPORTED, "dimension '%s': at most %d dimensions may vary", d.name,
                        SIZE_MOST_DIMS);
    d.size = size_of_dim(&d.dim);
    if (d.size == SIZE_BAD)
        return ctx_fail(g->ctx, SOL_ERR_INVALID,
                        "dimension '%s': expected a multiple of %lld between %lld and %lld as its hint, got %lld",
                        d.name, (long long)limits->multiple, (long long)limits->min, (long long)d.dim.max,
                        (long long)limits->hint);
    PUSH(g->arena, g->dims, d);
    *out_size = d.size;
    return ctx_check(g->ctx);
}

sol_status sol_graph_data_dim(struct sol_graph *g, const char *name, int64_t most, int64_t *out_size)
{
    int64_t mosts[SIZE_MOST_DIMS];
    graph_data_most(g, mosts);
    const int64_t bound = size_upper(most, mosts), high = size_most(bound);
    const int64_t hint = MIN(size_hint(bound), SIZE_UNLIMITED);
    if (bound == SIZE_BAD || !size_le(0, bound) || hint < 0)
        return ctx_fail(g->ctx, SOL_ERR_INVALID, "dimension '%s': its most: expected a size from 0 on, got %lld", name,
                        (long long)most);
    TRY(sol_graph_dim(g, name, &(struct sol_dim_limits){(hint + 1) / 2, 0, MIN(MAX(high, 1), SIZE_UNLIMITED), 1},
                      out_size));
    g->dims.at[g->dims.n - 1].most = bound;
    return SOL_OK;
}

uint32_t graph_data_dims(const struct sol_graph *g)
{
    uint32_t set = 0;
    for (int i = 0; i < g->dims.n; i++)
        if (g->dims.at[i].most >= 0) set |= UINT32_C(1) << i;
    return set;
}

sol_status graph_check_set(const struct sol_graph *g)
{
    uint32_t open = graph_data_dims(g), used = 0;
    for (const struct sol_layer *l = g->first; l && open; l = l->next) {
        const int set = layer_sets(l);
        if (set >= 0) open &= ~(UINT32_C(1) << set);
        for (int i = 0; i < l->nout; i++)
            for (int d = 0; d < l->out[i]->ndim; d++) used |= size_dims(l->out[i]->dim[d].size);
    }
    for (int i = 0; i < g->dims.n; i++)
        if (open & used & UINT32_C(1) << i)
            return ctx_fail(
                g->ctx, SOL_ERR_INVALID,
                "dimension '%s': no layer sets it: expected one that finds elements (NonZero) and has it as "
                "its attribute `size`",
                g->dims.at[i].name);
    return SOL_OK;
}

void graph_data_most(const struct sol_graph *g, int64_t *out_most)
{
    for (int i = 0; i < SIZE_MOST_DIMS; i++) out_most[i] = i < g->dims.n ? g->dims.at[i].most : -1;
}

static int found_dim(const struct sol_layer *l) /* the dimension of its attribute `size`; -1: none that is set */
{
    struct size_dim d;
    if (!(l->def->flags & LAYER_SETS) || !size_is_dim(attrs_int(&l->attrs, "size", 0, 0), &d)) return -1;
    return l->out[0]->graph->dims.at[d.index].most >= 0 ? d.index : -1;
}

int layer_sets(const struct sol_layer *l)
{
    const int dim = found_dim(l);
    for (const struct sol_layer *before = l->prev; before && dim >= 0; before = before->prev)
        if (found_dim(before) == dim) return -1;
    return dim;
}

sol_status sol_graph_require(struct sol_graph *g, int64_t size, const char *what)
{
    const struct graph_check c = {size, arena_strdup(g->arena, what)};
    if (size == SIZE_BAD || (!size_varies(size) && size < 0))
        return ctx_fail(g->ctx, SOL_ERR_INVALID, "%s: it needs a size that cannot be", what);
    if (!size_le(0, size)) PUSH(g->arena, g->checks, c);
    return ctx_check(g->ctx);
}

int64_t sol_size(enum sol_size_op op, int64_t a, int64_t b)
{
    switch (op) {
    case SOL_SIZE_ADD: return size_add(a, b);
    case SOL_SIZE_SUB: return size_sub(a, b);
    case SOL_SIZE_MUL: return size_mul(a, b);
    case SOL_SIZE_FLOOR_DIV: return size_floor_div(a, b);
    case SOL_SIZE_MOD: return size_mod(a, b);
    case SOL_SIZE_MIN: return size_min(a, b);
    case SOL_SIZE_MAX: return size_max(a, b);
    }
    return SIZE_BAD;
}

int sol_size_varies(int64_t size)
{
    return size_varies(size);
}

int sol_size_le(int64_t a, int64_t b)
{
    return size_le(a, b);
}

int64_t sol_size_hint(int64_t size)
{
    return size_hint(size);
}

int sol_size_limits(int64_t size, struct sol_dim_limits *out_limits)
{
    struct size_dim d;
    if (!size_is_dim(size, &d)) return 0;
    *out_limits = (struct sol_dim_limits){d.hint, d.min, d.max == SIZE_UNLIMITED ? 0 : d.max, d.multiple};
    return 1;
}

int64_t sol_size_at(int64_t size, const int64_t *dims)
{
    return size_at(size, dims);
}

size_t sol_size_text(struct sol_ctx *ctx, int64_t size, char *out, size_t room)
{
    struct arena *a = arena_create(ctx);
    if (!a) return 0;
    struct text t = text_new(a);
    size_print(&t, size);
    const size_t n = t.n;
    if (room) {
        const size_t most = MIN(n, room - 1);
        memcpy(out, t.at, most);
        out[most] = 0;
    }
    arena_destroy(a);
    return n;
}

/* -- what must hold */

sol_status graph_need(struct sol_graph *g, const struct sol_layer *l, const struct loops *loops)
{
    for (int i = 0; i < loops->needs.n; i++) {
        const struct graph_check c = {loops->needs.at[i],
                                      arena_printf(g->arena, "layer '%s' (%s)", l->name, l->def->name)};
        bool known = false;
        for (int k = 0; k < g->checks.n; k++) known |= g->checks.at[k].size == c.size;
        if (size_hint(c.size) < 0)
            return ctx_fail(g->ctx, SOL_ERR_INVALID, "%s: it needs a size %lld, which is %lld for the example", c.what,
                            (long long)c.size, (long long)size_hint(c.size));
        if (!known) PUSH(g->arena, g->checks, c);
    }
    return SOL_OK;
}

const char *graph_size_text(struct arena *a, const struct sol_graph *g, int64_t size)
{
    struct text t = text_new(a);
    for (const char *at = size_text(a, size); *at;) {
        const size_t n = strcspn(at, "#");
        text_add(&t, at, n);
        if (!*(at += n)) break;
        char *end;
        const long i = strtol(at + 1, &end, 10);
        text_put(&t, "%s", g->dims.at[i].name);
        at = end;
    }
    return t.at;
}

sol_status graph_check_dims(const struct sol_graph *g, const int64_t *dim)
{
    for (int i = 0; i < g->dims.n; i++) {
        const struct graph_dim *d = &g->dims.at[i];
        if (size_varies(dim[i])) continue;
        if (dim[i] < d->dim.min || dim[i] > d->dim.max)
            return ctx_fail(g->ctx, SOL_ERR_INVALID, "dimension '%s': expected %lld to %lld, got %lld", d->name,
                            (long long)d->dim.min, (long long)d->dim.max, (long long)dim[i]);
        if (dim[i] % d->dim.multiple)
            return ctx_fail(g->ctx, SOL_ERR_INVALID, "dimension '%s': expected a multiple of %lld, got %lld", d->name,
                            (long long)d->dim.multiple, (long long)dim[i]);
    }
    for (int i = 0; i < g->checks.n; i++) {
        const int64_t n = size_at(g->checks.at[i].size, dim);
        if (size_varies(n) ? size_hint(n) < 0 : n < 0)
            return ctx_fail(g->ctx, SOL_ERR_INVALID, "%s: it needs a size %lld, which would be %lld",
                            g->checks.at[i].what, (long long)g->checks.at[i].size, (long long)n);
    }
    return SOL_OK;
}

/* -- the same graph for other sizes */

struct instance {
    const struct sol_graph *from;
    struct sol_graph *to;
    const int64_t *dim;
    struct sol_tensor **tensor; /* by id in `from` */
};

/* An operator definition contains names of forms. */
static const char *text_at(struct arena *a, const char *text, const int64_t *dim)
{
    struct text t = text_new(a);
    if (!text) return NULL;
    size_fill_at(&t, text, dim);
    return t.at;
}

struct attrs attrs_at(struct arena *a, const struct attrs *from, const int64_t *dim)
{
    struct attrs to = {from->n, NEW_ARRAY(a, struct opdef_attr, from->n + 1)};
    for (int i = 0; i < from->n; i++) {
        struct opdef_attr v = from->at[i];
        const int n = v.n < 0 ? 1 : v.n;
        if (v.kind == ATTR_TEXT) v.text = text_at(a, v.text, dim);
        if (v.kind == ATTR_INT && n) {
            v.ints = arena_memdup(a, v.ints, (size_t)n * sizeof *v.ints);
            for (int k = 0; k < n; k++) v.ints[k] = size_at(v.ints[k], dim);
        }
        to.at[i] = v;
    }
    return to;
}

static void given_at(const struct instance *in, const struct sol_tensor *t)
{
    int64_t shape[SOL_MAX_DIMS];
    for (int d = 0; d < t->ndim; d++) shape[d] = size_at(t->dim[d].size, in->dim);
    struct sol_tensor *made =
        graph_tensor(in->to, (enum tensor_role)t->role, t->name, (enum sol_dtype)t->dtype, t->ndim, shape);
    for (int d = 0; d < t->ndim; d++) made->dim[d].purpose = t->dim[d].purpose;
    made->data = t->data;
    made->backward = t->backward;
    in->tensor[t->id] = made;
}

static sol_status layer_at(const struct instance *in, const struct sol_layer *l)
{
    const struct attrs attrs = attrs_at(in->to->arena, &l->attrs, in->dim);
    struct sol_tensor **inputs = NEW_ARRAY(in->to->arena, struct sol_tensor *, l->nin + 1);
    struct sol_layer *made;
    for (int i = 0; i < l->nin; i++) inputs[i] = l->in[i] ? in->tensor[l->in[i]->id] : NULL;
    const struct new_layer n = {l->def->name, l->nin, inputs, &attrs, l->name, l->where};
    sol_status status = graph_add(in->to, NULL, &n, &made);
    if (status) return ctx_where(in->to->ctx, status, "layer '%s' (%s): ", l->name, l->def->name);
    for (int o = 0; o < l->nout; o++) in->tensor[l->out[o]->id] = made->out[o];
    return SOL_OK;
}

static sol_status fill(const struct instance *in)
{
    for (int i = 0; i < in->from->tensors.n; i++)
        if (in->from->tensors.at[i]->role != TENSOR_VALUE) given_at(in, in->from->tensors.at[i]);
    for (const struct sol_layer *l = in->from->first; l; l = l->next) TRY(layer_at(in, l));
    for (int i = 0; i < in->from->outputs.n; i++) {
        const struct graph_output *o = &in->from->outputs.at[i];
        graph_output(in->to, o->name, in->tensor[o->t->id]);
        in->to->outputs.at[i].backward = o->backward;
    }
    return ctx_check(in->to->ctx);
}

sol_status graph_at(const struct sol_graph *g, const int64_t *dim, struct sol_graph **out_g)
{
    struct instance in = {.from = g, .dim = dim};
    TRY(graph_check_dims(g, dim));
    TRY(graph_create(g->ctx, g->kinds, g->name, &in.to));
    in.tensor = NEW_ARRAY(in.to->arena, struct sol_tensor *, g->ntensors + 1);
    sol_status status = fill(&in);
    if (status) sol_graph_destroy(in.to);
    *out_g = status ? NULL : in.to;
    return status;
}
