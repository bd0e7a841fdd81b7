/* Rules for layers that no loops describe, or whose loops would give a worse gradient than PyTorch's rule: gathering,
 * whose gradient adds up the gathered elements, and scattering. Also gradients that the user's model defines itself. */
#include <math.h>
#include <string.h>

#include "grad/grad.h"

static sol_status add(struct rule_call *c, const char *kind, int nin, struct sol_tensor *const *in,
                      const struct attrs *attrs, struct sol_tensor **out_t)
{
    struct sol_layer *l;
    TRY(graph_add(c->g, NULL, &(struct new_layer){kind, nin, in, attrs, c->l->name, c->l->where}, &l));
    *out_t = l->out[0];
    return SOL_OK;
}

sol_status grad_reshape(struct sol_graph *g, const struct sol_layer *of, struct sol_tensor *x, int ndim,
                        const int64_t *shape, struct sol_tensor **out_t)
{
    struct sol_layer *l;
    struct opdef_attr at = {.name = "shape",
                            .kind = ATTR_INT,
                            .n = ndim,
                            .ints = arena_memdup(g->arena, shape, (size_t)(ndim + 1) * sizeof *shape)};
    TRY(graph_add(g, NULL, &(struct new_layer){"Reshape", 1, &x, &(struct attrs){1, &at}, of->name, of->where}, &l));
    *out_t = l->out[0];
    return SOL_OK;
}

/* x in the shape of `like` */
static sol_status reshape_as(struct rule_call *c, struct sol_tensor *x, const struct sol_tensor *like,
                             struct sol_tensor **out_t)
{
    int64_t shape[SOL_MAX_DIMS + 1] = {0};
    for (int d = 0; d < like->ndim; d++) shape[d] = like->dim[d].size;
    return grad_reshape(c->g, c->l, x, like->ndim, shape, out_t);
}

static sol_status zeros_like(struct rule_call *c, const struct sol_tensor *t, struct sol_tensor **out_t)
{
    int64_t *shape = NEW_ARRAY(c->g->arena, int64_t, t->ndim + 1);
    for (int d = 0; d < t->ndim; d++) shape[d] = t->dim[d].size;
    struct opdef_attr at[] = {{.name = "shape", .kind = ATTR_INT, .n = t->ndim, .ints = shape},
                              {.name = "to", .kind = ATTR_TEXT, .n = -1, .text = dtype_def(t->dtype)->name}};
    return add(c, "Fill", 0, NULL, &(struct attrs){2, at}, out_t);
}

static struct opdef_attr int_attr(struct arena *a, const char *name, int64_t v)
{
    int64_t *ints = NEW_ARRAY(a, int64_t, 1);
    *ints = v;
    return (struct opdef_attr){.name = name, .kind = ATTR_INT, .n = -1, .ints = ints};
}

static struct opdef_attr text_attr(const char *name, const char *text)
{
    return (struct opdef_attr){.name = name, .kind = ATTR_TEXT, .n = -1, .text = text};
}

static sol_status binary(struct rule_call *c, const char *kind, struct sol_tensor *x, struct sol_tensor *y,
                         struct sol_tensor **out_t)
{
    struct sol_tensor *in[] = {x, y};
    return add(c, kind, 2, in, NULL, out_t);
}

/* zeros with `dy` added at the positions `i` along an axis */
static sol_status add_elements(struct rule_call *c, struct sol_tensor *like, struct sol_tensor *i,
                               struct sol_tensor *dy, int64_t axis, struct sol_tensor **out_d)
{
    struct sol_tensor *in[3] = {NULL, i, dy};
    struct opdef_attr at[] = {int_attr(c->g->arena, "axis", axis), text_attr("mode", "add")};
    TRY(zeros_like(c, like, &in[0]));
    return add(c, "ScatterElements", 3, in, &(struct attrs){2, at}, out_d);
}

/* Positions in a tensor: n of its dimensions, and for each of them a tensor of indices. */
struct positions {
    int n;
    const int64_t *dims;
    struct sol_tensor *const *index;
};

/* zeros with `dy` added at the positions */
static sol_status add_indexed(struct rule_call *c, struct sol_tensor *like, const struct positions *p,
                              struct sol_tensor *dy, struct sol_tensor **out_d)
{
    const int n = p->n;
    struct sol_tensor *in[SOL_MAX_DIMS + 2] = {NULL, dy};
    struct opdef_attr at[] = {{.name = "dims",
                               .kind = ATTR_INT,
                               .n = n,
                               .ints = arena_memdup(c->g->arena, p->dims, (size_t)n * sizeof *p->dims)},
                              text_attr("mode", "add")};
    for (int k = 0; k < n; k++) in[k + 2] = p->index[k];
    TRY(zeros_like(c, like, &in[0]));
    return add(c, "IndexPut", n + 2, in, &(struct attrs){2, at}, out_d);
}

/* t[A..] as t[A.. 1..], as many dimensions as `like` has. */
static sol_status beside(struct rule_call *c, struct sol_tensor *t, const struct sol_tensor *like,
                         struct sol_tensor **out_t)
{
    int64_t shape[SOL_MAX_DIMS + 1] = {0};
    for (int d = 0; d < like->ndim; d++) shape[d] = d < t->ndim ? t->dim[d].size : 1;
    return grad_reshape(c->g, c->l, t, like->ndim, shape, out_t);
}

static sol_status rule_embedding(struct rule_call *c)
{
    static const int64_t first[] = {0};
    struct sol_tensor *w = c->l->in[0], *i = c->l->in[1], *d = c->d[0], *t, *zero, *one;
    const struct positions p = {1, first, &c->l->in[1]};
    const int64_t pad = attrs_int(&c->l->attrs, "pad", 0, -1);
    if (attrs_int(&c->l->attrs, "sparse", 0, 0))
        return ctx_fail(c->g->ctx, SOL_ERR_UNSUPPORTED,
                        "gradient of layer '%s' (%s)%s%s: it is to be sparse; make the embedding with sparse=False",
                        c->l->name, c->l->def->name, *c->l->where ? " at " : "", c->l->where);
    if (attrs_int(&c->l->attrs, "freq", 0, 0)) {
        struct opdef_attr rows = {.name = "shape", .kind = ATTR_INT, .n = 1, .ints = &w->dim[0].size};
        struct opdef_attr to[] = {rows, text_attr("to", dtype_def(w->dtype)->name)};
        TRY(add(c, "Fill", 0, NULL, &(struct attrs){2, to}, &zero));
        TRY(graph_number(c->g, 1, w->dtype, &one));
        TRY(add_indexed(c, zero, &p, one, &t));
        TRY(add(c, "Embedding", 2, (struct sol_tensor *[]){t, i}, NULL, &t));
        TRY(beside(c, t, d, &t));
        TRY(binary(c, "div", d, t, &d));
    }
    if (pad >= 0) {
        TRY(graph_number(c->g, (double)pad, SOL_I64, &t));
        TRY(graph_number(c->g, 0, w->dtype, &zero));
        TRY(binary(c, "eq", i, t, &t));
        TRY(beside(c, t, d, &t));
        TRY(add(c, "where", 3, (struct sol_tensor *[]){t, zero, d}, NULL, &d));
    }
    return add_indexed(c, w, &p, d, &c->out_d[0]);
}

static sol_status rule_gather(struct rule_call *c)
{
    int64_t *dims = NEW_ARRAY(c->g->arena, int64_t, 1);
    *dims = attrs_int(&c->l->attrs, "axis", 0, 0);
    if (*dims < 0) *dims += c->l->in[0]->ndim;
    return add_indexed(c, c->l->in[0], &(struct positions){1, dims, &c->l->in[1]}, c->d[0], &c->out_d[0]);
}

static sol_status rule_gather_elements(struct rule_call *c)
{
    return add_elements(c, c->l->in[0], c->l->in[1], c->d[0], attrs_int(&c->l->attrs, "axis", 0, 0), &c->out_d[0]);
}

static sol_status rule_index(struct rule_call *c)
{
    const struct opdef_attr *dims = attrs_find(&c->l->attrs, "dims");
    int n = dims->n < 0 ? 1 : dims->n;
    return add_indexed(c, c->l->in[0], &(struct positions){n, dims->ints, &c->l->in[1]}, c->d[0], &c->out_d[0]);
}

/* Sort, TopK: the second output has the positions that the values came from. */
static sol_status rule_sorted(struct rule_call *c)
{
    int64_t axis = attrs_int(&c->l->attrs, "axis", 0, -1);
    return add_elements(c, c->l->in[0], c->l->out[1], c->d[0], axis, &c->out_d[0]);
}

/* -- scattering: replaced elements have no gradient; a written element has that of its position. If several are written
 * to one position, all get it, as in PyTorch. */

static bool mode_is(const struct rule_call *c, const char *mode)
{
    return !strcmp(attrs_text(&c->l->attrs, "mode", "none"), mode);
}

/* The number of the input u that is written. */
static int put_in(const struct rule_call *c)
{
    return strcmp(c->l->def->name, "IndexPut") ? 2 : 1;
}

/* The same layer with other values: u has one for each written position. */
static sol_status put_again(struct rule_call *c, struct sol_tensor *x, struct sol_tensor *u, const char *mode,
                            struct sol_tensor **out_t)
{
    struct sol_tensor *in[SOL_MAX_DIMS + 2];
    struct opdef_attr *at = arena_memdup(c->g->arena, c->l->attrs.at, (size_t)c->l->attrs.n * sizeof *at);
    memcpy(in, c->l->in, (size_t)c->l->nin * sizeof *in);
    in[0] = x;
    in[put_in(c)] = u;
    for (int i = 0; i < c->l->attrs.n; i++)
        if (!strcmp(at[i].name, "mode")) at[i] = text_attr("mode", mode);
    return add(c, c->l->def->name, c->l->nin, in, &(struct attrs){c->l->attrs.n, at}, out_t);
}

/* The values of t at the positions that the layer writes. */
static sol_status picked(struct rule_call *c, struct sol_tensor *t, struct sol_tensor **out_t)
{
    struct opdef_attr wrap = int_attr(c->g->arena, "wrap", 1);
    struct sol_tensor *in[SOL_MAX_DIMS + 1] = {t, c->l->in[1]};
    if (!strcmp(c->l->def->name, "ScatterND")) return add(c, "GatherND", 2, in, &(struct attrs){1, &wrap}, out_t);
    if (!strcmp(c->l->def->name, "ScatterElements")) {
        struct opdef_attr at[] = {int_attr(c->g->arena, "axis", attrs_int(&c->l->attrs, "axis", 0, 0)), wrap};
        return add(c, "GatherElements", 2, in, &(struct attrs){2, at}, out_t);
    }
    struct opdef_attr at[] = {*attrs_find(&c->l->attrs, "dims"), wrap};
    for (int i = 2; i < c->l->nin; i++) in[i - 1] = c->l->in[i];
    return add(c, "Index", c->l->nin - 1, in, &(struct attrs){2, at}, out_t);
}

/* u in the shape of the positions: cut where it is larger than its indices, or broadcast. */
static sol_status put_values(struct rule_call *c, const struct sol_tensor *places, struct sol_tensor **out_t)
{
    struct sol_tensor *u = c->l->in[put_in(c)];
    int64_t *sizes = NEW_ARRAY(c->g->arena, int64_t, 3 * places->ndim + 1), *axes = sizes + places->ndim;
    bool same = u->ndim == places->ndim;
    for (int d = 0; d < places->ndim; d++) {
        sizes[d] = places->dim[d].size;
        axes[d] = d;
        same &= u->ndim == places->ndim && u->dim[d].size == sizes[d];
    }
    *out_t = u;
    if (same) return SOL_OK;
    if (put_in(c) == 1) {
        struct opdef_attr shape = {.name = "shape", .kind = ATTR_INT, .n = places->ndim, .ints = sizes};
        return add(c, "Expand", 1, &u, &(struct attrs){1, &shape}, out_t);
    }
    struct opdef_attr at[] = {{.name = "axes", .kind = ATTR_INT, .n = places->ndim, .ints = axes},
                              {.name = "start", .kind = ATTR_INT, .n = places->ndim, .ints = axes + places->ndim},
                              {.name = "end", .kind = ATTR_INT, .n = places->ndim, .ints = sizes}};
    return add(c, "Slice", 1, &u, &(struct attrs){3, at}, out_t);
}

/* The gradient of put_values: zeros for what was cut off, or sums over what was broadcast. */
static sol_status put_back(struct rule_call *c, struct sol_tensor *d, struct sol_tensor **out_d)
{
    const struct sol_tensor *u = c->l->in[put_in(c)];
    int64_t *p = NEW_ARRAY(c->g->arena, int64_t, 3 * d->ndim + 1), *q = p + d->ndim, *axes = q + d->ndim;
    bool smaller = false;
    int n = 0;
    for (int k = 0; k < d->ndim; k++) {
        const int own = k - (d->ndim - u->ndim);
        if (own < 0 || (u->dim[own].size == 1 && d->dim[k].size != 1)) axes[n++] = k;
        if (own >= 0) smaller |= (q[k] = size_sub(u->dim[own].size, d->dim[k].size)) != 0;
    }
    *out_d = d;
    if (put_in(c) == 1) {
        struct opdef_attr sum = {.name = "axes", .kind = ATTR_INT, .n = n, .ints = axes};
        if (n) TRY(add(c, "Sum", 1, &d, &(struct attrs){1, &sum}, &d));
        return reshape_as(c, d, u, out_d);
    }
    struct opdef_attr at[] = {{.name = "p", .kind = ATTR_INT, .n = d->ndim, .ints = p},
                              {.name = "q", .kind = ATTR_INT, .n = d->ndim, .ints = q}};
    return smaller ? add(c, "Pad", 1, &d, &(struct attrs){2, at}, out_d) : SOL_OK;
}

/* 1 where x == y, of x's type */
static sol_status equal(struct rule_call *c, struct sol_tensor *x, struct sol_tensor *y, struct sol_tensor **out_t)
{
    struct opdef_attr to = text_attr("to", dtype_def(x->dtype)->name);
    TRY(binary(c, "eq", x, y, out_t));
    return add(c, "Cast", 1, out_t, &(struct attrs){1, &to}, out_t);
}

/* Largest or smallest: all elements equal to the result share its gradient. */
static sol_status put_extreme(struct rule_call *c)
{
    struct sol_tensor *x = c->l->in[0], *u, *value, *from_x, *from_u, *count, *share;
    TRY(picked(c, c->l->out[0], &value));
    TRY(put_values(c, value, &u));
    TRY(equal(c, x, c->l->out[0], &from_x));
    TRY(equal(c, u, value, &from_u));
    TRY(put_again(c, from_x, from_u, "add", &count));
    TRY(binary(c, "div", c->d[0], count, &share));
    TRY(binary(c, "mul", from_x, share, &c->out_d[0]));
    TRY(picked(c, share, &share));
    TRY(binary(c, "mul", from_u, share, &share));
    return put_back(c, share, &c->out_d[put_in(c)]);
}

/* A factor's gradient: the product of all nonzero factors divided by the factor, if no other one is 0. `zeros`: the
 * number of factors that are 0; `own`: whether this one is. */
static sol_status of_factor(struct rule_call *c, struct sol_tensor *product, struct sol_tensor *factor,
                            struct sol_tensor *zeros, struct sol_tensor *own, struct sol_tensor **out_d)
{
    struct sol_tensor *zero, *rest;
    TRY(graph_number(c->g, 0, factor->dtype, &zero));
    TRY(binary(c, "div", product, factor, &rest));
    TRY(binary(c, "eq", zeros, own, &zeros));
    return add(c, "where", 3, (struct sol_tensor *[]){zeros, rest, zero}, NULL, out_d);
}

static sol_status put_product(struct rule_call *c)
{
    struct sol_tensor *factor[2] = {c->l->in[0]}, *own[2], *zero, *one, *product, *zeros, *places;
    TRY(picked(c, c->l->out[0], &places));
    TRY(put_values(c, places, &factor[1]));
    TRY(graph_number(c->g, 0, factor[0]->dtype, &zero));
    TRY(graph_number(c->g, 1, factor[0]->dtype, &one));
    for (int i = 0; i < 2; i++) {
        TRY(equal(c, factor[i], zero, &own[i]));
        TRY(add(c, "where", 3, (struct sol_tensor *[]){own[i], one, factor[i]}, NULL, &factor[i]));
    }
    TRY(put_again(c, factor[0], factor[1], "mul", &product));
    TRY(put_again(c, own[0], own[1], "add", &zeros));
    TRY(binary(c, "mul", product, c->d[0], &product));
    TRY(of_factor(c, product, factor[0], zeros, own[0], &c->out_d[0]));
    TRY(picked(c, product, &product));
    TRY(picked(c, zeros, &zeros));
    TRY(of_factor(c, product, factor[1], zeros, own[1], &product));
    return put_back(c, product, &c->out_d[put_in(c)]);
}

static sol_status rule_put(struct rule_call *c)
{
    const int u = put_in(c);
    struct sol_tensor *d, *nothing;
    if (mode_is(c, "max") || mode_is(c, "min")) return put_extreme(c);
    if (mode_is(c, "mul")) return put_product(c);
    c->out_d[0] = c->d[0];
    if (c->want[0] && !mode_is(c, "add")) {
        TRY(zeros_like(c, c->l->in[u], &nothing));
        TRY(put_again(c, c->d[0], nothing, "none", &c->out_d[0]));
    }
    if (!c->want[u]) return SOL_OK;
    if (attrs_int(&c->l->attrs, "skip", 0, 0))
        return ctx_fail(c->g->ctx, SOL_ERR_UNSUPPORTED,
                        "gradient of layer '%s' (%s): there is none for u where indices are skipped (skip=1)",
                        c->l->name, c->l->def->name);
    TRY(picked(c, c->d[0], &d));
    return put_back(c, d, &c->out_d[u]);
}

/* -- others */

static sol_status rule_ctc(struct rule_call *c)
{
    struct sol_tensor *in[] = {c->l->in[0], c->l->in[1], c->l->in[2], c->l->in[3], c->d[0]};
    return add(c, "CTCLossGrad", 5, in, &c->l->attrs, &c->out_d[0]);
}

/* The layer's running sum of x, in the opposite direction. */
static sol_status back_along(struct rule_call *c, struct sol_tensor *x, struct sol_tensor **out_t)
{
    struct attrs attrs = {c->l->attrs.n,
                          arena_memdup(c->g->arena, c->l->attrs.at, (size_t)c->l->attrs.n * sizeof *c->l->attrs.at)};
    for (int i = 0; i < attrs.n; i++)
        if (!strcmp(attrs.at[i].name, "reverse"))
            attrs.at[i] = int_attr(c->g->arena, "reverse", !attrs_int(&c->l->attrs, "reverse", 0, 0));
    return add(c, c->l->def->name, 1, &x, &attrs, out_t);
}

static sol_status rule_cumsum(struct rule_call *c)
{
    return back_along(c, c->d[0], &c->out_d[0]);
}

/* dx[i] = sum of dy[j] exp(x[i] - y[j]) over the j that read x[i], positive and negative dy apart, in logarithms: a
 * product of the ratios of neighbours would collect their rounding errors. */
static sol_status rule_logcumsumexp(struct rule_call *c)
{
    struct sol_tensor *x = c->l->in[0], *y = c->l->out[0], *d = c->d[0], *part[2];
    for (int i = 0; i < 2; i++) {
        struct sol_tensor *t = d;
        if (i) TRY(add(c, "neg", 1, &t, NULL, &t));
        TRY(add(c, "relu", 1, &t, NULL, &t));
        TRY(add(c, "log", 1, &t, NULL, &t));
        TRY(binary(c, "sub", t, y, &t));
        TRY(back_along(c, t, &t));
        TRY(binary(c, "add", t, x, &t));
        TRY(add(c, "exp", 1, &t, NULL, &part[i]));
    }
    return binary(c, "sub", part[0], part[1], &c->out_d[0]);
}

static sol_status rule_reshape(struct rule_call *c)
{
    const struct sol_tensor *x = c->l->in[0];
    TRY(reshape_as(c, c->d[0], x, &c->out_d[0]));
    for (int d = 0; d < x->ndim; d++) c->out_d[0]->dim[d].purpose = x->dim[d].purpose;
    return SOL_OK;
}

/* Repeats the layers between m and t with d in place of m. Layers before m do not depend on it. */
static sol_status replant(struct rule_call *c, struct sol_tensor *d, struct sol_tensor **made, struct sol_tensor *t,
                          struct sol_tensor **out_t)
{
    const struct sol_tensor *m = c->l->in[1];
    *out_t = t == m ? d : t;
    if (t->id <= m->id || !t->from) return SOL_OK;
    if (!made[t->id]) {
        const struct sol_layer *l = t->from;
        struct sol_tensor **in = NEW_ARRAY(c->g->arena, struct sol_tensor *, l->nin + 1);
        struct sol_layer *copy;
        bool same = true;
        for (int i = 0; i < l->nin; i++) {
            if (l->in[i]) TRY(replant(c, d, made, l->in[i], &in[i]));
            same &= in[i] == l->in[i];
        }
        if (!same)
            TRY(graph_add(c->g, NULL, &(struct new_layer){l->def->name, l->nin, in, &l->attrs, l->name, l->where},
                          &copy));
        for (int o = 0; o < l->nout; o++) made[l->out[o]->id] = same ? l->out[o] : copy->out[o];
    }
    *out_t = made[t->id];
    return SOL_OK;
}

static sol_status rule_graft(struct rule_call *c)
{
    c->out_d[0] = c->want[0] ? c->d[0] : NULL;
    if (!c->want[2]) return SOL_OK;
    struct sol_tensor **made = NEW_ARRAY(c->g->arena, struct sol_tensor *, c->g->ntensors + 1);
    return replant(c, c->d[0], made, c->l->in[3], &c->out_d[2]);
}

/* x with all leading dimensions of attention's result as the gradient of t, which may have fewer, or fewer heads: sums
 * over what shares an element of t. */
static sol_status sum_shared(struct rule_call *c, struct sol_tensor *x, const struct sol_tensor *t,
                             struct sol_tensor **out_d)
{
    int64_t *shape = NEW_ARRAY(c->g->arena, int64_t, 3 * x->ndim + 1), *axes = shape + 2 * x->ndim;
    int n = 0, naxes = 0;
    *out_d = x;
    for (int d = 0; d < x->ndim; d++) {
        const int own = d - (x->ndim - t->ndim);
        const int64_t size = own < 0 ? 1 : t->dim[own].size;
        if (own >= 0) shape[n++] = size;
        if (size == x->dim[d].size) {
            if (own < 0) axes[naxes++] = n, shape[n++] = size;
            continue;
        }
        axes[naxes++] = n;
        shape[n++] = size_exact_div(x->dim[d].size, size);
    }
    if (!naxes) return SOL_OK;
    struct opdef_attr sum = {.name = "axes", .kind = ATTR_INT, .n = naxes, .ints = axes};
    TRY(grad_reshape(c->g, c->l, x, n, shape, &x));
    TRY(add(c, "Sum", 1, &x, &(struct attrs){1, &sum}, &x));
    return reshape_as(c, x, t, out_d);
}

/* From the result, which whoever reads it often needs anyway: scores need not be kept, nor exponentials be computed
 * again. */
static sol_status rule_softmax(struct rule_call *c)
{
    const struct sol_layer *l = c->l;
    struct sol_tensor *in[] = {l->out[0], c->d[0]};
    struct opdef_attr at[] = {int_attr(c->g->arena, "axis", attrs_int(&l->attrs, "axis", 0, 0)),
                              int_attr(c->g->arena, "log", !strcmp(l->def->name, "LogSoftmax"))};
    return add(c, "SoftmaxGrad", 2, in, &(struct attrs){2, at}, &c->out_d[0]);
}

/* Weights are computed again from the largest score and the sum, each for itself: the logarithm of the sum would be
 * lost beside a large score. A mask that has a gradient needs all of them in memory. */
static sol_status rule_attention(struct rule_call *c)
{
    const struct sol_layer *l = c->l;
    struct sol_tensor *m = l->out[1], *z = l->out[2], *dy = c->d[0], *one, *n, *g, *scaled;
    struct sol_layer *made;
    int64_t *last = NEW_ARRAY(c->g->arena, int64_t, 1);
    if (c->d[1] || c->d[2] || (l->nin > 3 && c->want[3])) return adjoint_layer(c->g, c->l, c->d, c->want, c->out_d);
    *last = dy->ndim - 1;
    struct opdef_attr along = {.name = "axes", .kind = ATTR_INT, .n = 1, .ints = last};
    TRY(graph_number(c->g, 1, z->dtype, &one));
    TRY(binary(c, "div", one, z, &n));
    const char *empty = attrs_text(&l->attrs, "empty", "zero");
    if (strcmp(empty, "nan")) {
        struct sol_tensor *zero, *some;
        TRY(graph_number(c->g, 0, z->dtype, &zero));
        TRY(binary(c, strcmp(empty, "safe") ? "ne" : "gt", z, zero, &some));
        TRY(add(c, "where", 3, (struct sol_tensor *[]){some, m, zero}, NULL, &m));
        TRY(add(c, "where", 3, (struct sol_tensor *[]){some, n, zero}, NULL, &n));
    }
    TRY(binary(c, "mul", dy, l->out[0], &scaled));
    TRY(add(c, "Sum", 1, &scaled, &(struct attrs){1, &along}, &g));
    struct sol_tensor *in[] = {l->in[0], l->in[1], l->in[2], l->nin > 3 ? l->in[3] : NULL, dy, m, n, g};
    TRY(graph_add(c->g, NULL, &(struct new_layer){"AttentionGrad", COUNT_OF(in), in, &l->attrs, l->name, l->where},
                  &made));
    for (int i = 0; i < 3; i++)
        if (c->want[i]) TRY(sum_shared(c, made->out[i], l->in[i], &c->out_d[i]));
    return SOL_OK;
}

/* -- transposed convolution: it is the adjoint of a convolution, so that convolution is its gradient. From its own
 * loops, which are one product for each residue of the stride, the gradient would be as many products. */

static sol_status rule_conv_t(struct rule_call *c)
{
    const struct sol_layer *l = c->l;
    struct sol_tensor *const in[] = {c->d[0], l->in[1]}, *x = l->in[0], *of_conv[3] = {0};
    struct attrs attrs = {0, NEW_ARRAY(c->g->arena, struct opdef_attr, l->attrs.n + 1)};
    const bool bias[3] = {false, false, l->nin > 2 && c->want[2]}, weights[3] = {false, true, false};
    struct sol_layer *conv;
    bool same = true;
    for (int i = 0; i < l->attrs.n; i++)
        if (strcmp(l->attrs.at[i].name, "o")) attrs.at[attrs.n++] = l->attrs.at[i];
    for (int d = 0; d < x->ndim - 2; d++) /* elements that the stride leaves over would be more results */
        same &= attrs_int(&l->attrs, "o", d, 0) < attrs_int(&l->attrs, "s", d, 1);
    if (!same) return adjoint_layer(c->g, c->l, c->d, c->want, c->out_d);
    TRY(graph_add(c->g, NULL, &(struct new_layer){"Conv", 2, in, &attrs, l->name, l->where}, &conv));
    for (int d = 0; d < x->ndim; d++) same &= conv->out[0]->dim[d].size == x->dim[d].size;
    if (!same) return adjoint_layer(c->g, c->l, c->d, c->want, c->out_d); /* not provable where sizes vary */
    if (c->want[1]) TRY(adjoint_layer(c->g, conv, (struct sol_tensor *[]){x}, weights, of_conv));
    if (bias[2]) TRY(adjoint_layer(c->g, c->l, c->d, bias, c->out_d));
    if (c->want[0]) c->out_d[0] = conv->out[0];
    if (c->want[1]) c->out_d[1] = of_conv[1];
    return SOL_OK;
}

static const struct rule rules[] = {
    {"Embedding", 1, 1, rule_embedding},
    {"Gather", 1, 1, rule_gather},
    {"GatherElements", 1, 1, rule_gather_elements},
    {"Index", 1, 1, rule_index},
    {"Sort", 1, 1, rule_sorted},
    {"TopK", 1, 1, rule_sorted},
    {"ScatterElements", 5, 1, rule_put},
    {"ScatterND", 5, 1, rule_put},
    {"IndexPut", 3, 1, rule_put},
    {"CTCLoss", 1, 1, rule_ctc},
    {"CumSum", 1, 1, rule_cumsum},
    {"LogCumSumExp", 1, 1, rule_logcumsumexp},
    {"Reshape", 1, 1, rule_reshape},
    {"ConvT", 7, 1, rule_conv_t},
    {"Softmax", 1, 1, rule_softmax},
    {"LogSoftmax", 1, 1, rule_softmax},
    {"Graft", 15, 1, rule_graft},
    {"AttentionSums", 15, 7, rule_attention},
    {0},
};

static const struct rule *rule_of(const struct sol_layer *l)
{
    static const struct rule *const tables[] = {rules, grad_linear_rules};
    for (int i = 0; i < COUNT_OF(tables); i++)
        for (const struct rule *r = tables[i]; r->kind; r++)
            if (!strcmp(r->kind, l->def->name)) return r;
    return NULL;
}

bool grad_has_rule(const struct sol_layer *l)
{
    return l->def->gradient || rule_of(l);
}

sol_status grad_rule(struct sol_graph *g, struct sol_layer *l, struct sol_tensor *const *d, const bool *want,
                     struct sol_tensor **out_d)
{
    struct rule_call c = {.g = g, .l = l, .d = d, .want = want, .out_d = out_d};
    const struct rule *r = l->def->gradient ? NULL : rule_of(l);
    bool any = false;
    for (int i = 0; i < l->nin; i++)
        if (want[i] && !(r ? r->inputs >> i & 1 : grad_registered_of(l, i)))
            return ctx_fail(g->ctx, SOL_ERR_UNSUPPORTED, "gradient of layer '%s' (%s): there is none for its input %d",
                            l->name, l->def->name, i);
    for (int o = 0; o < l->nout; o++) {
        if (d[o] && r && !(r->outputs >> o & 1))
            return ctx_fail(g->ctx, SOL_ERR_UNSUPPORTED, "gradient of layer '%s' (%s): there is none of its output %d",
                            l->name, l->def->name, o);
        any |= d[o] != NULL;
    }
    if (!any) return SOL_OK;
    return r ? r->follow(&c) : grad_registered(&c);
}

/* -- layers in another form */

struct replaced {
    const char *kind, *with;
    bool pool;
};
static const struct replaced replaced[] = {{"MaxPool", "MaxPoolAt", true},
                                           {"AdaptiveMaxPool", "AdaptiveMaxPoolAt", true},
                                           {"Attention", "AttentionSums", false}};

/* Monotonic activations whose gradient is 0 where they are constant can follow a maximum instead. The gradient reaches
 * the same element, or is 0, and backward needs only a tensor of the pool's size. */
static const char *const late[] = {"relu", "relu6"};

static bool comes_late(const struct sol_layer *l, const struct sol_tensor *read_by_pool)
{
    bool any = false;
    for (int i = 0; i < COUNT_OF(late); i++) any |= !strcmp(l->def->name, late[i]);
    return any && tensor_uses(read_by_pool) == 1;
}

/* A layer of another kind, or with other inputs, that is `l` otherwise. */
static sol_status add_like(struct sol_graph *g, struct sol_layer *before, const char *kind, const struct sol_layer *l,
                           struct sol_tensor **in, struct sol_layer **out_l)
{
    TRY(graph_add(g, before, &(struct new_layer){kind, l->nin, in, &l->attrs, l->name, l->where}, out_l));
    for (int d = 0; d < l->out[0]->ndim; d++) (*out_l)->out[0]->dim[d].purpose = l->out[0]->dim[d].purpose;
    return SOL_OK;
}

static sol_status replace(struct sol_graph *g, struct sol_layer *l, const struct replaced *by)
{
    struct sol_layer *with, *last, *map = l->in[0]->from;
    const bool swap = by->pool && map && comes_late(map, l->in[0]);
    TRY(add_like(g, l, by->with, l, swap ? map->in : l->in, &with));
    last = with;
    if (swap) TRY(add_like(g, l, map->def->name, map, &with->out[0], &last));
    graph_replace(g, l->out[0], last->out[0]);
    graph_remove(g, l);
    if (swap) graph_remove(g, map);
    return SOL_OK;
}

/* PyTorch's gradient of a pool goes to the first of equal maxima, so their positions are saved, and the weights of
 * attention are computed again from its sums. The layers are selected before any of them is replaced, because `active`
 * does not know new tensors. */
sol_status grad_replace_layers(struct sol_graph *g, const bool *active)
{
    struct found {
        struct sol_layer *layer;
        const struct replaced *by;
    };
    VECTOR(struct found) found = {0};
    graph_count_uses(g);
    for (struct sol_layer *l = g->first; l; l = l->next)
        for (int i = 0; i < COUNT_OF(replaced); i++)
            if (!strcmp(l->def->name, replaced[i].kind) && active[l->out[0]->id])
                PUSH(g->arena, found, ((struct found){l, &replaced[i]}));
    for (int i = 0; i < found.n; i++) TRY(replace(g, found.at[i].layer, found.at[i].by));
    return ctx_check(g->ctx);
}
