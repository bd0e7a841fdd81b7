/* Helpers for translating operators: attributes, inputs, known values and layers. The node keeps the first failure, and
 * all later helpers do nothing, so translations need no tests after each step. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "onnx/reader.h"

#define CHEAP_ELEMENTS (1 << 16) /* of values computed while reading */
#define CHEAP_WORK (1 << 24)     /* elements read times elements written: no layer does more than that */

static sol_status fail(struct node *n, sol_status status, const char *format, va_list args)
{
    char text[512];
    vsnprintf(text, sizeof text, format, args);
    if (!n->status) n->status = ctx_fail(n->r->ctx, status, "%s", text);
    return n->status;
}

sol_status nd_reject(struct node *n, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const sol_status status = fail(n, SOL_ERR_UNSUPPORTED, format, args);
    va_end(args);
    return status;
}

sol_status nd_invalid(struct node *n, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const sol_status status = fail(n, SOL_ERR_INVALID, format, args);
    va_end(args);
    return status;
}

/* -- attributes */

static int find_attr(const Onnx__Node *m, const char *name)
{
    for (size_t i = 0; i < m->n_attribute; i++)
        if (m->attribute[i]->name && !strcmp(m->attribute[i]->name, name)) return (int)i;
    return -1;
}

/* In a function's body, an attribute may refer to one of the calling node. */
static const Onnx__Attribute *resolve(const struct scope *s, const Onnx__Attribute *a)
{
    while (a && a->ref_attr_name && *a->ref_attr_name) {
        if (!s || !s->call) return NULL;
        const char *name = a->ref_attr_name;
        int i = find_attr(s->call, name);
        a = i >= 0 ? s->call->attribute[i] : NULL;
        for (size_t k = 0; !a && k < s->function->n_attribute_proto; k++) {
            const Onnx__Attribute *d = s->function->attribute_proto[k];
            if (d->name && !strcmp(d->name, name)) return d->ref_attr_name && *d->ref_attr_name ? NULL : d;
        }
        s = s->call_scope;
    }
    return a;
}

bool attr_given(const struct node *n, const char *name)
{
    int i = find_attr(n->message, name);
    return i >= 0 && resolve(n->scope, n->message->attribute[i]);
}

static bool attr_has(const Onnx__Attribute *a, int type)
{
    if (a->type) return a->type == type;
    switch (type) { /* old files do not say */
    case ATTR_F: return a->has_f;
    case ATTR_I: return a->has_i;
    case ATTR_S: return a->has_s;
    case ATTR_T: return a->t;
    case ATTR_G: return a->g;
    case ATTR_FLOATS: return a->n_floats;
    case ATTR_INTS: return a->n_ints;
    default: return a->n_strings;
    }
}

const Onnx__Attribute *nd_attr(struct node *n, const char *name, int type)
{
    int i = find_attr(n->message, name);
    if (n->status || i < 0) return NULL;
    n->seen[i] = true;
    const Onnx__Attribute *a = resolve(n->scope, n->message->attribute[i]);
    if (!a) return NULL;
    if (!attr_has(a, type) || (type == ATTR_T && !a->t) || (type == ATTR_G && !a->g)) {
        nd_invalid(n, "attribute '%s' has another type than expected", name);
        return NULL;
    }
    return a;
}

int64_t attr_int(struct node *n, const char *name, int64_t otherwise)
{
    const Onnx__Attribute *a = nd_attr(n, name, ATTR_I);
    return a ? a->i : otherwise;
}

bool attr_flag(struct node *n, const char *name, bool otherwise)
{
    int64_t v = attr_int(n, name, otherwise);
    if (v != 0 && v != 1) nd_invalid(n, "attribute '%s': expected 0 or 1, got %lld", name, (long long)v);
    return v;
}

double attr_real(struct node *n, const char *name, double otherwise)
{
    const Onnx__Attribute *a = nd_attr(n, name, ATTR_F);
    return a ? a->f : otherwise;
}

static const char *text_of(struct node *n, const ProtobufCBinaryData *s)
{
    char *text = arena_alloc(n->r->arena, s->len + 1);
    if (s->len) memcpy(text, s->data, s->len);
    for (size_t i = 0; i < s->len; i++)
        if ((unsigned char)text[i] < ' ') text[i] = '?';
    return text;
}

const char *attr_text(struct node *n, const char *name, const char *otherwise)
{
    const Onnx__Attribute *a = nd_attr(n, name, ATTR_S);
    return a ? text_of(n, &a->s) : otherwise;
}

bool attr_is(struct node *n, const char *name, const char *otherwise, const char *text)
{
    return !strcmp(attr_text(n, name, otherwise), text);
}

int attr_ints(struct node *n, const char *name, int most, int64_t *out)
{
    const Onnx__Attribute *a = nd_attr(n, name, ATTR_INTS);
    if (!a) return -1;
    if (a->n_ints > (size_t)most) {
        nd_invalid(n, "attribute '%s': expected at most %d values, got %zu", name, most, a->n_ints);
        return 0;
    }
    for (size_t i = 0; i < a->n_ints; i++) out[i] = a->ints[i];
    return (int)a->n_ints;
}

int attr_texts(struct node *n, const char *name, int most, const char **out)
{
    const Onnx__Attribute *a = nd_attr(n, name, ATTR_STRINGS);
    if (!a) return -1;
    if (a->n_strings > (size_t)most) {
        nd_invalid(n, "attribute '%s': expected at most %d values, got %zu", name, most, a->n_strings);
        return 0;
    }
    for (size_t i = 0; i < a->n_strings; i++) out[i] = text_of(n, &a->strings[i]);
    return (int)a->n_strings;
}

void attr_skip(struct node *n, const char *name)
{
    int i = find_attr(n->message, name);
    if (i >= 0) n->seen[i] = true;
}

/* -- inputs and outputs */

bool nd_has(const struct node *n, int i)
{
    return i < n->nin && n->in[i];
}

tensor nd_in(struct node *n, int i)
{
    tensor t = NULL;
    if (n->status || !nd_has(n, i)) return NULL;
    n->status = value_tensor(n->r, n->in[i], &t);
    return t;
}

void nd_give(struct node *n, int i, tensor t)
{
    if (!n->status && i < n->nout) n->out[i].t = t;
}

void nd_give_value(struct node *n, int i, const struct value *v)
{
    if (!n->status && i < n->nout) n->out[i] = *v;
}

bool nd_wants(const struct node *n, int i)
{
    return i < n->nout && *n->message->output[i];
}

/* -- values known while reading */

bool known_data(struct node *n, struct value *v, struct data *out)
{
    if (n->status || !v || v->list) return false;
    if (v->data) {
        *out = *v->data;
        return true;
    }
    tensor t = v->t;
    if (!t || !map_get_int(n->r->cheap, (uintptr_t)t)) return false;
    *out = (struct data){.dtype = sol_tensor_dtype(t), .ndim = nd_rank(t), .at = sol_tensor_known(t)};
    out->elements = nd_product(out->shape, 0, nd_shape_of(t, out->shape));
    return out->at;
}

bool nd_is_known(struct node *n, int i)
{
    struct data d;
    return nd_has(n, i) && known_data(n, n->in[i], &d);
}

static bool require(struct node *n, int i, const char *what, int least, int most, struct data *d)
{
    if (n->status) return false;
    if (!nd_has(n, i)) {
        nd_invalid(n, "input %d (%s) is missing", i, what);
        return false;
    }
    ctx_clear_error(n->r->ctx);
    if (!known_data(n, n->in[i], d)) {
        int64_t a, b;
        const bool size = sol_error_sizes(n->r->ctx, &a, &b); /* does a size that varies hide it? */
        if (size)
            nd_reject(n, "%s depends on the size %lld", what, (long long)a);
        else
            nd_reject(n, "%s depends on %s", what, value_origin(n->r, n->in[i], least));
        if (size) ctx_unequal(n->r->ctx, a, b, n->status);
        return false;
    }
    if (d->elements > most)
        nd_invalid(n, "%s: expected at most %d values, got %lld", what, most, (long long)d->elements);
    return !n->status;
}

int known_sizes(struct node *n, int i, const char *what, int least, int most, int64_t *out)
{
    struct data d;
    if (!require(n, i, what, least, most, &d)) return 0;
    if (dtype_def(d.dtype)->is_float) {
        nd_invalid(n, "%s: expected integers, got type %s", what, dtype_name(d.dtype));
        return 0;
    }
    for (int k = 0; k < (int)d.elements; k++) out[k] = data_int(&d, k);
    return (int)d.elements;
}

int known_ints(struct node *n, int i, const char *what, int most, int64_t *out)
{
    const int count = known_sizes(n, i, what, 1, most, out);
    for (int k = 0; k < count; k++)
        if (!nd_fixed(n, out[k], what)) return 0;
    return count;
}

int known_reals(struct node *n, int i, const char *what, int most, double *out)
{
    struct data d;
    if (!require(n, i, what, 1, most, &d)) return 0;
    for (int k = 0; k < (int)d.elements; k++) {
        out[k] = data_real(&d, k);
        if (d.dtype == SOL_I64 && !nd_fixed(n, data_int(&d, k), what)) return 0;
    }
    return (int)d.elements;
}

int64_t known_size(struct node *n, int i, const char *what, int64_t otherwise)
{
    int64_t v = otherwise;
    if (nd_has(n, i) && known_sizes(n, i, what, 0, 1, &v) != 1) nd_invalid(n, "%s: expected one value", what);
    return v;
}

int64_t known_int(struct node *n, int i, const char *what, int64_t otherwise)
{
    int64_t v = otherwise;
    if (nd_has(n, i) && known_ints(n, i, what, 1, &v) != 1) nd_invalid(n, "%s: expected one value", what);
    return v;
}

double known_real(struct node *n, int i, const char *what, double otherwise)
{
    double v = otherwise;
    if (nd_has(n, i) && known_reals(n, i, what, 1, &v) != 1) nd_invalid(n, "%s: expected one value", what);
    return v;
}

/* -- shapes */

int nd_rank(tensor t)
{
    return t ? sol_tensor_ndim(t) : 0;
}

int64_t nd_size(tensor t, int dim)
{
    return t && dim < sol_tensor_ndim(t) && dim >= -sol_tensor_ndim(t) ? sol_tensor_size(t, dim) : 1;
}

int nd_shape_of(tensor t, int64_t *out)
{
    for (int i = 0; i < nd_rank(t); i++) out[i] = sol_tensor_size(t, i);
    return nd_rank(t);
}

int64_t nd_product(const int64_t *shape, int begin, int end)
{
    int64_t n = 1;
    for (int i = begin; i < end; i++)
        if (!shape[i]) return 0; /* however large the others are */
    for (int i = begin; i < end; i++)
        if ((n = size_mul(n, shape[i])) == SIZE_BAD) return INT64_MAX;
    return n;
}

bool nd_fixed(struct node *n, int64_t size, const char *what)
{
    if (n->status || !size_varies(size)) return !n->status;
    nd_reject(n, "%s is %lld, but it must be a number", what, (long long)size);
    ctx_unequal(n->r->ctx, size, -1, n->status);
    return false;
}

bool nd_equal(struct node *n, int64_t a, int64_t b, const char *what)
{
    if (n->status || a == b) return !n->status;
    nd_invalid(n, "%s: expected %lld, got %lld", what, (long long)a, (long long)b);
    ctx_unequal(n->r->ctx, a, b, n->status);
    return false;
}

int64_t nd_elements(tensor t)
{
    int64_t shape[SOL_MAX_DIMS];
    return nd_product(shape, 0, nd_shape_of(t, shape));
}

enum sol_dtype nd_type_of(tensor t)
{
    return t ? sol_tensor_dtype(t) : SOL_F32;
}

bool nd_is_float(tensor t)
{
    return dtype_def(nd_type_of(t))->is_float;
}

int nd_axis_of(struct node *n, int64_t axis, int of_rank)
{
    if (!nd_fixed(n, axis, "an axis")) return 0;
    if (axis >= -of_rank && axis < of_rank) return (int)(axis < 0 ? axis + of_rank : axis);
    nd_invalid(n, "axis %lld: expected %d to %d", (long long)axis, -of_rank, of_rank - 1);
    return 0;
}

/* -- layers */

/* The value of a layer with cheap inputs may be requested as long as computing it is cheap. */
static void note_cheap(struct node *n, int nin, tensor const *inputs, int nout, tensor const *out)
{
    int64_t reads = 1, writes = 1;
    for (int i = 0; i < nin; i++) {
        if (inputs[i] && !map_get_int(n->r->cheap, (uintptr_t)inputs[i])) return;
        if (inputs[i]) reads = MAX(reads, nd_elements(inputs[i]));
    }
    for (int i = 0; i < nout; i++) writes = MAX(writes, nd_elements(out[i]));
    if (writes > CHEAP_ELEMENTS || reads > CHEAP_WORK / writes) return;
    for (int i = 0; i < nout; i++) map_set_int(n->r->cheap, (uintptr_t)out[i], n->r);
}

/* What depends on values of a call that may become known. */
static void note_origins(struct node *n, int nin, tensor const *inputs, int nout, tensor const *out)
{
    uintptr_t origins = 0;
    for (int i = 0; i < nin; i++)
        if (inputs[i]) origins |= (uintptr_t)map_get_int(n->r->origins, (uintptr_t)inputs[i]);
    for (int i = 0; i < nout && origins; i++) map_set_int(n->r->origins, (uintptr_t)out[i], (void *)origins);
}

void nd_made(struct node *n, int nin, tensor const *inputs, int nout, tensor const *out)
{
    note_cheap(n, nin, inputs, nout, out);
    note_origins(n, nin, inputs, nout, out);
}

void nd_make_all(struct node *n, const struct nd_layer *l, int nout, tensor *out)
{
    for (int i = 0; i < nout; i++) out[i] = NULL;
    if (n->status) return;
    n->status = sol_graph_layer(
        n->r->graph, &(struct sol_new_layer){l->kind, l->nin, l->inputs, l->nattr, l->attrs, n->label, n->where}, nout,
        out);
    if (!n->status) nd_made(n, l->nin, l->inputs, nout, out);
}

tensor nd_make(struct node *n, const char *kind, int nin, tensor const *inputs, int nattr, const struct sol_attr *attrs)
{
    tensor out;
    nd_make_all(n, &(struct nd_layer){kind, nin, inputs, nattr, attrs}, 1, &out);
    return out;
}

tensor nd_fn1(struct node *n, const char *function, tensor x)
{
    return nd_make(n, function, IN(x), PLAIN);
}

tensor nd_fn2(struct node *n, const char *function, tensor x, tensor y)
{
    return nd_make(n, function, IN(x, y), PLAIN);
}

tensor nd_fn3(struct node *n, const char *function, tensor x, tensor y, tensor z)
{
    return nd_make(n, function, IN(x, y, z), PLAIN);
}

tensor nd_constant(struct node *n, enum sol_dtype t, int ndim, const int64_t *shape, const void *data)
{
    tensor out = NULL;
    if (n->status) return NULL;
    n->status = sol_graph_const(n->r->graph, t, ndim, shape, data, &out);
    if (n->status) return NULL;
    map_set_int(n->r->leaves, (uintptr_t)out, n->r);
    if (nd_elements(out) <= CHEAP_ELEMENTS) map_set_int(n->r->cheap, (uintptr_t)out, n->r);
    return out;
}

static bool fits(enum sol_dtype t, double v)
{
    const struct dtype_def *d = dtype_def(t);
    double most = ldexp(1, 8 * d->bytes - d->is_signed);
    return v == floor(v) && v < most && v >= (d->is_signed ? -most : 0);
}

tensor nd_number(struct node *n, enum sol_dtype t, double v)
{
    const struct dtype_def *d = dtype_def(t);
    uint8_t b = v != 0;
    float f = (float)v;
    if (t == SOL_F64) return nd_constant(n, t, 0, NULL, &v);
    if (t == SOL_F32) return nd_constant(n, t, 0, NULL, &f);
    if (d->is_bool) return nd_constant(n, t, 0, NULL, &b);
    if (!fits(t, v)) {
        nd_reject(n, "%g does not fit into type %s", v, dtype_name(t));
        return NULL;
    }
    int64_t i = v < 0x1p63 ? (int64_t)v : (int64_t)(uint64_t)v; /* little-endian: its low bytes are the smaller types */
    return nd_constant(n, t, 0, NULL, &i);
}

tensor nd_sizes(struct node *n, int ndim, int64_t count, const int64_t *sizes)
{
    bool varies = false;
    for (int64_t i = 0; i < count; i++) varies |= size_varies(sizes[i]);
    if (!varies) return nd_constant(n, SOL_I64, ndim, &count, sizes);
    tensor t = nd_make(n, "Sizes", 0, NULL, WITH(INTS("sizes", (int)count, sizes)));
    return ndim ? t : nd_reshape(n, t, 0, NULL);
}

tensor nd_a_size(struct node *n, enum sol_dtype t, int64_t size)
{
    return size_varies(size) ? nd_cast(n, nd_sizes(n, 0, 1, &size), t) : nd_number(n, t, (double)size);
}

tensor nd_fill(struct node *n, enum sol_dtype t, int ndim, const int64_t *shape, double v)
{
    return nd_make(n, "Fill", 0, NULL, WITH(INTS("shape", ndim, shape), REAL("v", v), TEXT("to", dtype_def(t)->name)));
}

tensor nd_cast(struct node *n, tensor x, enum sol_dtype t)
{
    if (n->status || nd_type_of(x) == t) return x;
    return nd_make(n, "Cast", IN(x), WITH(TEXT("to", dtype_def(t)->name)));
}

tensor nd_exactly(struct node *n, tensor x, int axis, int64_t size)
{
    int64_t shape[SOL_MAX_DIMS];
    const int r = nd_shape_of(x, shape);
    if (n->status || shape[axis] == size) return x;
    const bool values = vary_has_value(n->r, size) || vary_has_value(n->r, shape[axis]);
    if (!values || !size_varies(size_sub(size, shape[axis]))) return x;
    shape[axis] = size;
    return nd_make(n, "Exactly", IN(x), WITH(INTS("shape", r, shape)));
}

static bool has_shape(tensor x, int ndim, const int64_t *shape)
{
    bool same = nd_rank(x) == ndim;
    for (int i = 0; same && i < ndim; i++) same = shape[i] == nd_size(x, i);
    return same;
}

tensor nd_reshape(struct node *n, tensor x, int ndim, const int64_t *shape)
{
    if (n->status || has_shape(x, ndim, shape)) return x;
    return nd_make(n, "Reshape", IN(x), WITH(INTS("shape", ndim, shape)));
}

tensor nd_permute(struct node *n, tensor x, const int64_t *perm)
{
    bool same = true;
    for (int i = 0; i < nd_rank(x); i++) same &= perm[i] == i;
    return same ? x : nd_make(n, "Permute", IN(x), WITH(INTS("perm", nd_rank(x), perm)));
}

tensor nd_swap(struct node *n, tensor x, int a, int b)
{
    int64_t perm[SOL_MAX_DIMS];
    if (n->status) return NULL;
    a += a < 0 ? nd_rank(x) : 0;
    b += b < 0 ? nd_rank(x) : 0;
    for (int i = 0; i < nd_rank(x); i++) perm[i] = i == a ? b : i == b ? a : i;
    return nd_permute(n, x, perm);
}

tensor nd_move_axis(struct node *n, tensor x, int from, int to)
{
    int64_t perm[SOL_MAX_DIMS];
    if (n->status) return NULL;
    from += from < 0 ? nd_rank(x) : 0;
    to += to < 0 ? nd_rank(x) : 0;
    for (int i = 0, k = 0; i < nd_rank(x); i++) {
        if (k == from) k++;
        perm[i] = i == to ? from : k++;
    }
    return nd_permute(n, x, perm);
}

tensor nd_expand(struct node *n, tensor x, int ndim, const int64_t *shape)
{
    if (n->status || has_shape(x, ndim, shape)) return x;
    return nd_make(n, "Expand", IN(x), WITH(INTS("shape", ndim, shape)));
}

tensor nd_slice(struct node *n, tensor x, int axis, int64_t start, int64_t end)
{
    if (n->status) return NULL;
    axis += axis < 0 ? nd_rank(x) : 0;
    if (!start && end == nd_size(x, axis)) return x;
    return nd_make(n, "Slice", IN(x),
                   WITH(INTS("axes", 1, (const int64_t[]){axis}), INTS("start", 1, &start), INTS("end", 1, &end)));
}

tensor nd_concat(struct node *n, int axis, int nin, tensor const *inputs)
{
    return nin == 1 ? inputs[0] : nd_make(n, "Concat", nin, inputs, WITH(INT("axis", axis)));
}

tensor nd_reduce(struct node *n, const char *kind, tensor x, int naxes, const int64_t *axes, bool keep)
{
    return nd_make(n, kind, IN(x), WITH(INTS("axes", naxes, axes), INT("keep", keep)));
}

tensor nd_unsqueeze(struct node *n, tensor x, int axis)
{
    int64_t shape[SOL_MAX_DIMS + 1];
    int ndim = nd_shape_of(x, shape);
    if (n->status) return NULL;
    axis += axis < 0 ? ndim + 1 : 0;
    if (axis < 0 || axis > ndim || ndim == SOL_MAX_DIMS) {
        nd_invalid(n, "axis %d of a new dimension does not fit %d", axis, ndim);
        return NULL;
    }
    memmove(shape + axis + 1, shape + axis, (size_t)(ndim - axis) * sizeof *shape);
    shape[axis] = 1;
    return nd_reshape(n, x, ndim + 1, shape);
}

tensor nd_squeeze(struct node *n, tensor x, int axis)
{
    int64_t shape[SOL_MAX_DIMS];
    int ndim = nd_shape_of(x, shape);
    if (n->status) return NULL;
    axis += axis < 0 ? ndim : 0;
    if (axis < 0 || axis >= ndim) {
        nd_invalid(n, "there is no axis %d among %d", axis, ndim);
        return NULL;
    }
    memmove(shape + axis, shape + axis + 1, (size_t)(ndim - axis - 1) * sizeof *shape);
    return nd_reshape(n, x, ndim - 1, shape);
}
