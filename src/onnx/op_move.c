/* Operators that move elements, and operators on shapes. Values that determine shapes must be known. */
#include <math.h>
#include <string.h>

#include "onnx/ops.h"

#define MOST SOL_MAX_DIMS

/* -- shapes as values */

static void give_ints(struct node *n, int ndim, int64_t count, const int64_t *values)
{
    nd_give(n, 0, nd_sizes(n, ndim, count, values));
}

sol_status op_shape(struct node *n)
{
    int64_t shape[MOST], start = attr_int(n, "start", 0), end = attr_int(n, "end", MOST);
    int r = 0;
    if (n->in[0]->data && !n->in[0]->t) /* no need to make a parameter of it */
        memcpy(shape, n->in[0]->data->shape, (size_t)(r = n->in[0]->data->ndim) * sizeof *shape);
    else
        r = nd_shape_of(nd_in(n, 0), shape);
    start = MAX(0, MIN(r, start < 0 ? start + r : start));
    end = MAX(start, MIN(r, end < 0 ? end + r : end));
    give_ints(n, 1, end - start, shape + start);
    return n->status;
}

sol_status op_size(struct node *n)
{
    int64_t count = nd_elements(nd_in(n, 0));
    give_ints(n, 0, 1, &count);
    return n->status;
}

sol_status op_constant(struct node *n)
{
    struct reader *r = n->r;
    struct data d = {0};
    const Onnx__Attribute *a;
    if ((a = nd_attr(n, "value", ATTR_T))) {
        TRY(data_read(r->ctx, r->arena, a->t, r->folder, &d));
    } else if ((a = nd_attr(n, "value_float", ATTR_F))) {
        d = (struct data){.dtype = SOL_F32, .elements = 1, .at = &a->f};
    } else if ((a = nd_attr(n, "value_int", ATTR_I))) {
        d = (struct data){.dtype = SOL_I64, .elements = 1, .at = &a->i};
    } else if ((a = nd_attr(n, "value_floats", ATTR_FLOATS))) {
        d = (struct data){.dtype = SOL_F32, .ndim = 1, .shape = {(int64_t)a->n_floats}, .at = a->floats};
    } else if ((a = nd_attr(n, "value_ints", ATTR_INTS))) {
        d = (struct data){.dtype = SOL_I64, .ndim = 1, .shape = {(int64_t)a->n_ints}, .at = a->ints};
    } else {
        return n->status ? n->status : nd_reject(n, "only tensors and numbers are supported as values");
    }
    TRY(shape_elements(r->ctx, d.ndim, d.shape, &d.elements));
    if (!d.at) d.at = "";
    n->out[0].data = arena_memdup(r->arena, &d, sizeof d);
    return n->status;
}

sol_status op_constant_of_shape(struct node *n)
{
    int64_t shape[MOST], one = 1;
    int r = known_sizes(n, 0, "the shape", 0, MOST, shape);
    struct data d = {.dtype = SOL_F32, .elements = 1, .at = &(float){0}};
    const Onnx__Attribute *a = nd_attr(n, "value", ATTR_T);
    if (a) TRY(data_read(n->r->ctx, n->r->arena, a->t, n->r->folder, &d));
    if (n->status) return n->status;
    if (d.elements != 1) return nd_invalid(n, "value: expected one element, got %lld", (long long)d.elements);
    bool exact = dtype_def(d.dtype)->is_float || (data_int(&d, 0) < (1LL << 53) && data_int(&d, 0) > -(1LL << 53));
    int64_t count;
    TRY(shape_elements(n->r->ctx, r, shape, &count));
    if (exact)
        nd_give(n, 0, nd_fill(n, d.dtype, r, shape, data_real(&d, 0)));
    else
        nd_give(n, 0, nd_expand(n, nd_constant(n, d.dtype, 1, &one, d.at), r, shape));
    return n->status;
}

/* From start to limit, of which one varies, by whole steps. */
static sol_status range_of_sizes(struct node *n)
{
    const int64_t start = known_size(n, 0, "start", 0), limit = known_size(n, 1, "limit", 0);
    const int64_t delta = known_int(n, 2, "delta", 1);
    if (!nd_fixed(n, delta, "delta")) return n->status;
    if (!delta) return nd_invalid(n, "delta is 0");
    const int64_t span = delta > 0 ? size_sub(limit, start) : size_sub(start, limit);
    nd_give(n, 0,
            nd_make(n, "Range", 0, NULL,
                    WITH(INT("n", size_max(size_ceil_div(span, delta > 0 ? delta : -delta), 0)), INT("start", start),
                         REAL("step", (double)delta), TEXT("to", dtype_def(nd_type_of(nd_in(n, 0)))->name))));
    return n->status;
}

static bool is_varying(struct node *n, int i)
{
    struct data d;
    return nd_has(n, i) && known_data(n, n->in[i], &d) && d.dtype == SOL_I64 && d.elements == 1 &&
           size_varies(data_int(&d, 0));
}

sol_status op_range(struct node *n)
{
    enum sol_dtype t = nd_type_of(nd_in(n, 0));
    attr_skip(n, "stash_type");
    if (t == SOL_I64) /* asks for all, which may vary then */
        for (int i = 0; i < 3; i++) known_size(n, i, i == 2 ? "delta" : i ? "limit" : "start", 0);
    if (n->status) return n->status;
    if (is_varying(n, 0) || is_varying(n, 1) || is_varying(n, 2)) return range_of_sizes(n);
    double start = known_real(n, 0, "start", 0), limit = known_real(n, 1, "limit", 0),
           delta = known_real(n, 2, "delta", 1);
    if (n->status) return n->status;
    if (delta == 0) return nd_invalid(n, "delta is 0");
    double count = ceil((limit - start) / delta);
    if (!(count < (double)(1LL << 40))) return nd_invalid(n, "it has %g elements", count);
    if (!nd_is_float(nd_in(n, 0)) && (fabs(start) > 9e15 || fabs(limit) > 9e15))
        return nd_reject(n, "integers above 2^53 are not supported");
    nd_give(n, 0,
            nd_make(n, "Range", 0, NULL,
                    WITH(INT("n", count > 0 ? (int64_t)count : 0), REAL("start", start), REAL("step", delta),
                         TEXT("to", dtype_def(t)->name))));
    return n->status;
}

sol_status op_eye_like(struct node *n)
{
    tensor x = nd_in(n, 0);
    enum sol_dtype t = nd_type_of(x);
    int64_t most = (int64_t)1 << 40, k = MAX(-most, MIN(most, attr_int(n, "k", 0)));
    if (attr_given(n, "dtype")) TRY(dtype_read(n->r->ctx, attr_int(n, "dtype", 0), "dtype", &t));
    if (nd_rank(x) != 2) return nd_invalid(n, "expected a matrix, got %d dimensions", nd_rank(x));
    nd_give(
        n, 0,
        nd_make(n, "Eye", 0, NULL,
                WITH(INT("n", nd_size(x, 0)), INT("m", nd_size(x, 1)), INT("k", k), TEXT("to", dtype_def(t)->name))));
    return n->status;
}

/* -- the same elements in another shape */

sol_status op_reshape(struct node *n)
{
    int64_t shape[MOST], now[MOST];
    tensor x = nd_in(n, 0);
    int r = known_sizes(n, 1, "the shape", 1, MOST, shape), from = nd_shape_of(x, now), open = -1;
    bool zero = attr_flag(n, "allowzero", 0);
    if (n->status) return n->status;
    int64_t count = 1;
    for (int i = 0; i < r; i++) {
        if (!shape[i] && !zero && i >= from)
            return nd_invalid(n, "dimension %d: 0 copies a size, but the input has %d dimensions", i, from);
        if (!shape[i] && !zero) shape[i] = now[i];
        if (shape[i] < -1 || (shape[i] == -1 && open >= 0))
            return nd_invalid(n, "dimension %d: size %lld", i, (long long)shape[i]);
        if (shape[i] == -1)
            open = i;
        else if ((count = size_mul(count, shape[i])) == SIZE_BAD)
            return nd_invalid(n, "the shape is too large");
    }
    int64_t all = nd_elements(x);
    const int64_t whole = open < 0 ? count : count ? size_mul(size_floor_div(all, count), count) : SIZE_BAD;
    if (all != whole && whole != SIZE_BAD) { /* if values of the call decide, it is compared then */
        tensor flat = nd_exactly(n, nd_reshape(n, x, 1, &all), 0, whole);
        if (flat && nd_size(flat, 0) == whole) x = flat, all = whole;
    }
    if (open >= 0) {
        shape[open] = count ? size_exact_div(all, count) : SIZE_BAD;
        if (shape[open] == SIZE_BAD) {
            nd_invalid(n, "%lld elements do not fit the shape", (long long)all);
            return ctx_unequal(n->r->ctx, all, count ? whole : -1, n->status);
        }
    }
    nd_give(n, 0, nd_reshape(n, x, r, shape));
    return n->status;
}

sol_status op_flatten(struct node *n)
{
    int64_t now[MOST];
    tensor x = nd_in(n, 0);
    int r = nd_shape_of(x, now);
    int64_t axis = attr_int(n, "axis", 1);
    if (axis < -r || axis > r) return nd_invalid(n, "axis %lld: expected %d to %d", (long long)axis, -r, r);
    if (axis < 0) axis += r;
    nd_give(n, 0, nd_reshape(n, x, 2, (int64_t[]){nd_product(now, 0, (int)axis), nd_product(now, (int)axis, r)}));
    return n->status;
}

/* Axes from the attribute (old opsets) or input 1; returns their number, -1: not given. */
static int axes_of(struct node *n, int64_t *axes)
{
    int count = attr_ints(n, "axes", MOST, axes);
    return count < 0 && nd_has(n, 1) ? known_ints(n, 1, "axes", MOST, axes) : count;
}

/* Is an axis of this size dropped where no axes are given? If it varies, it must not be 1: calls where it is have
 * another number of dimensions, and a program of their own. */
static bool drops(struct node *n, int64_t size)
{
    if (!n->status && size_varies(size)) {
        const int64_t apart = size_max(size_sub(size, 1), size_sub(1, size));
        const char *what = arena_printf(
            n->r->arena, "Squeeze '%s' without axes, where a size of 1 changes the number of dimensions", n->label);
        n->status = sol_graph_require(n->r->graph, size_sub(apart, 1), what);
    }
    return size == 1;
}

sol_status op_squeeze(struct node *n)
{
    int64_t axes[MOST], now[MOST], shape[MOST];
    bool drop[MOST] = {0};
    tensor x = nd_in(n, 0);
    int r = nd_shape_of(x, now), count = axes_of(n, axes), to = 0;
    for (int i = 0; i < r && count < 0; i++) drop[i] = drops(n, now[i]);
    for (int i = 0; i < count; i++) {
        int a = nd_axis_of(n, axes[i], r);
        if (n->status) return n->status;
        if (!nd_equal(n, now[a], 1, "the size of an axis")) return n->status;
        drop[a] = true;
    }
    for (int i = 0; i < r; i++)
        if (!drop[i]) shape[to++] = now[i];
    nd_give(n, 0, nd_reshape(n, x, to, shape));
    return n->status;
}

sol_status op_unsqueeze(struct node *n)
{
    int64_t axes[MOST], now[MOST], shape[2 * MOST];
    bool fresh[2 * MOST] = {0};
    tensor x = nd_in(n, 0);
    int r = nd_shape_of(x, now), count = axes_of(n, axes), from = 0;
    if (n->status || count < 0) return n->status ? n->status : nd_invalid(n, "axes are missing");
    if (r + count > MOST) return nd_reject(n, "expected at most %d dimensions, got %d", MOST, r + count);
    for (int i = 0; i < count; i++) {
        int a = nd_axis_of(n, axes[i], r + count);
        if (fresh[a]) return n->status ? n->status : nd_invalid(n, "axis %d is given twice", a);
        fresh[a] = true;
    }
    for (int i = 0; i < r + count && !n->status; i++) shape[i] = fresh[i] ? 1 : now[from++];
    nd_give(n, 0, nd_reshape(n, x, r + count, shape));
    return n->status;
}

sol_status op_transpose(struct node *n)
{
    int64_t perm[MOST];
    bool used[MOST] = {0};
    tensor x = nd_in(n, 0);
    int r = nd_rank(x), count = attr_ints(n, "perm", MOST, perm);
    for (int i = 0; i < r && count < 0; i++) perm[i] = r - 1 - i;
    if (count >= 0 && count != r) return nd_invalid(n, "perm: expected %d values, got %d", r, count);
    for (int i = 0; i < r; i++) {
        perm[i] = nd_axis_of(n, perm[i], r);
        if (n->status || used[perm[i]])
            return n->status ? n->status : nd_invalid(n, "perm: %lld occurs twice", (long long)perm[i]);
        used[perm[i]] = true;
    }
    nd_give(n, 0, nd_permute(n, x, perm));
    return n->status;
}

/* The shape is broadcast with the input's: a 1 keeps the input's size. */
sol_status op_expand(struct node *n)
{
    int64_t shape[MOST], now[MOST];
    tensor x = nd_in(n, 0);
    int r = known_sizes(n, 1, "the shape", 1, MOST, shape), from = nd_shape_of(x, now);
    if (n->status) return n->status;
    if (from > r) {
        memmove(shape + (from - r), shape, (size_t)r * sizeof *shape);
        for (int i = 0; i < from - r; i++) shape[i] = 1;
        r = from;
    }
    for (int i = 0; i < from; i++) {
        int64_t *to = &shape[r - from + i];
        if (now[i] != 1 && *to != 1 && *to != now[i]) {
            nd_invalid(n, "dimension %d: size %lld cannot become %lld", i, (long long)now[i], (long long)*to);
            return ctx_unequal(n->r->ctx, now[i], *to, n->status);
        }
        if (now[i] != 1) *to = now[i];
    }
    nd_give(n, 0, nd_expand(n, x, r, shape));
    return n->status;
}

sol_status op_tile(struct node *n)
{
    int64_t repeats[MOST];
    tensor x = nd_in(n, 0);
    int count = known_sizes(n, 1, "repeats", 1, MOST, repeats);
    if (n->status) return n->status;
    if (count != nd_rank(x)) return nd_invalid(n, "repeats: expected %d values, got %d", nd_rank(x), count);
    nd_give(n, 0, nd_make(n, "Tile", IN(x), WITH(INTS("n", count, repeats))));
    return n->status;
}

/* -- parts */

sol_status op_concat(struct node *n)
{
    tensor *inputs = NEW_ARRAY(n->r->arena, tensor, n->nin);
    for (int i = 0; i < n->nin; i++)
        if (!(inputs[i] = nd_in(n, i))) return n->status ? n->status : nd_invalid(n, "input %d is missing", i);
    if (!attr_given(n, "axis")) return nd_invalid(n, "axis is missing");
    int axis = nd_axis_of(n, attr_int(n, "axis", 0), nd_rank(inputs[0]));
    nd_give(n, 0, nd_concat(n, axis, n->nin, inputs));
    return n->status;
}

sol_status op_split(struct node *n)
{
    tensor x = nd_in(n, 0);
    int axis = nd_axis_of(n, attr_int(n, "axis", 0), nd_rank(x)), parts = n->nout;
    int64_t *sizes = NEW_ARRAY(n->r->arena, int64_t, parts + 1);
    int count = attr_ints(n, "split", parts, sizes);
    if (count < 0 && nd_has(n, 1)) count = known_sizes(n, 1, "split", 0, parts, sizes);
    int64_t asked = attr_int(n, "num_outputs", parts), whole = nd_size(x, axis);
    if (n->status) return n->status;
    if ((count >= 0 && count != parts) || asked != parts || !parts)
        return nd_invalid(n, "it has %d outputs, but sizes for %lld", parts, (long long)(count >= 0 ? count : asked));
    if (count < 0 && n->version < 18 && size_exact_div(whole, parts) == SIZE_BAD) {
        nd_invalid(n, "size %lld cannot be split into %d", (long long)whole, parts);
        return ctx_unequal(n->r->ctx, whole, size_mul(size_floor_div(whole, parts), parts), n->status);
    }
    int64_t part = size_ceil_div(whole, parts), sum = 0;
    for (int i = 0; i < parts; i++) {
        const int64_t rest = size_sub(whole, sum);
        if (count < 0) sizes[i] = size_max(0, size_min(part, rest));
        if (sizes[i] < 0 || (nd_above(sizes[i], rest) && !size_varies(rest)))
            return nd_invalid(n, "sizes do not add up to %lld", (long long)whole);
        sum = size_add(sum, sizes[i]);
    }
    x = nd_exactly(n, x, axis, sum);
    if (!nd_equal(n, nd_size(x, axis), sum, "the sum of the sizes")) return n->status;
    tensor *out = NEW_ARRAY(n->r->arena, tensor, parts);
    nd_make_all(n, &(struct nd_layer){"Split", IN(x), WITH(INT("axis", axis), INTS("sizes", parts, sizes))}, parts,
                out);
    for (int i = 0; i < parts; i++) nd_give(n, i, out[i]);
    return n->status;
}

static sol_status slice_by(struct node *n, int count, int64_t *axes, int64_t *starts, int64_t *ends, int64_t *steps)
{
    tensor x = nd_in(n, 0);
    for (int i = 0; i < count && !n->status; i++) {
        axes[i] = nd_axis_of(n, axes[i], nd_rank(x));
        int64_t whole = nd_size(x, (int)axes[i]), last = steps[i] > 0 ? whole : whole - 1;
        if (!steps[i]) return nd_invalid(n, "a step is 0");
        if (!nd_fixed(n, steps[i], "a step")) return n->status;
        for (int k = 0; k < i; k++)
            if (axes[k] == axes[i]) return nd_invalid(n, "axis %lld is given twice", (long long)axes[i]);
        if (size_varies(whole) || size_varies(starts[i]) || size_varies(ends[i])) continue; /* the layer clamps */
        /* as in Python; what lies in front of everything is written so that it cannot be taken for "from the end" */
        if (starts[i] < 0) starts[i] = MAX(starts[i], -whole) == starts[i] ? starts[i] + whole : steps[i] > 0 ? 0 : -1;
        if (ends[i] < 0) ends[i] = MAX(ends[i], -whole) == ends[i] ? ends[i] + whole : steps[i] > 0 ? 0 : -1;
        starts[i] = MIN(starts[i], last);
        ends[i] = MIN(ends[i], last);
        bool empty = steps[i] > 0 ? ends[i] <= starts[i] : ends[i] >= starts[i];
        if (empty) starts[i] = ends[i] = 0, steps[i] = 1;
        if (!empty && ends[i] < 0) ends[i] = -whole - 1;
        if (steps[i] > whole) steps[i] = MAX(whole, 1); /* the first element alone */
        if (steps[i] < -whole) steps[i] = MIN(-whole, -1);
    }
    if (n->status) return n->status;
    tensor y = count ? nd_make(n, "Slice", IN(x),
                               WITH(INTS("axes", count, axes), INTS("start", count, starts), INTS("end", count, ends),
                                    INTS("step", count, steps)))
                     : x;
    nd_give(n, 0, y);
    return n->status;
}

sol_status op_slice_attributes(struct node *n)
{
    int64_t axes[MOST], starts[MOST], ends[MOST], steps[MOST];
    int count = attr_ints(n, "starts", MOST, starts), to = attr_ints(n, "ends", MOST, ends);
    int given = attr_ints(n, "axes", MOST, axes);
    if (count < 0 || to != count || (given >= 0 && given != count))
        return nd_invalid(n, "starts, ends and axes must be as many");
    for (int i = 0; i < count; i++) steps[i] = 1;
    for (int i = 0; i < count && given < 0; i++) axes[i] = i;
    return slice_by(n, count, axes, starts, ends, steps);
}

sol_status op_slice(struct node *n)
{
    int64_t axes[MOST], starts[MOST], ends[MOST], steps[MOST];
    int count = known_sizes(n, 1, "starts", 0, MOST, starts), to = known_sizes(n, 2, "ends", 0, MOST, ends);
    int given = nd_has(n, 3) ? known_ints(n, 3, "axes", MOST, axes) : -1;
    int stepped = nd_has(n, 4) ? known_ints(n, 4, "steps", MOST, steps) : -1;
    if (n->status) return n->status;
    if (to != count || (given >= 0 && given != count) || (stepped >= 0 && stepped != count))
        return nd_invalid(n, "starts, ends, axes and steps must be as many");
    for (int i = 0; i < count; i++) {
        if (given < 0) axes[i] = i;
        if (stepped < 0) steps[i] = 1;
    }
    return slice_by(n, count, axes, starts, ends, steps);
}

/* -- padding */

static sol_status pad_by(struct node *n, tensor x, const int64_t *p, const int64_t *q, const char *mode, double value)
{
    static const char *const modes[][2] = {
        {"constant", "constant"}, {"reflect", "reflect"}, {"edge", "replicate"}, {"wrap", "circular"}};
    for (int i = 0; i < COUNT_OF(modes); i++) {
        if (strcmp(modes[i][0], mode)) continue;
        nd_give(n, 0,
                nd_make(n, "Pad", IN(x),
                        WITH(INTS("p", nd_rank(x), p), INTS("q", nd_rank(x), q), REAL("v", value),
                             TEXT("mode", modes[i][1]))));
        return n->status;
    }
    return nd_invalid(n, "mode '%s' does not exist", mode);
}

sol_status op_pad_attributes(struct node *n)
{
    int64_t pads[2 * MOST];
    tensor x = nd_in(n, 0);
    int r = nd_rank(x), count = attr_ints(n, "pads", 2 * MOST, pads);
    if (count != 2 * r) return n->status ? n->status : nd_invalid(n, "pads: expected %d values, got %d", 2 * r, count);
    return pad_by(n, x, pads, pads + r, attr_text(n, "mode", "constant"), attr_real(n, "value", 0));
}

sol_status op_pad(struct node *n)
{
    int64_t pads[2 * MOST], axes[MOST], p[MOST] = {0}, q[MOST] = {0};
    tensor x = nd_in(n, 0);
    const char *mode = attr_text(n, "mode", "constant");
    int r = nd_rank(x), count = known_sizes(n, 1, "pads", 0, 2 * MOST, pads), given = r;
    double value = nd_has(n, 2) && !strcmp(mode, "constant") ? known_real(n, 2, "constant_value", 0) : 0;
    for (int i = 0; i < r; i++) axes[i] = i;
    if (nd_has(n, 3)) given = known_ints(n, 3, "axes", MOST, axes);
    if (n->status) return n->status;
    if (count != 2 * given) return nd_invalid(n, "pads: expected %d values, got %d", 2 * given, count);
    if (fabs(value) > 9e15 && !nd_is_float(x)) return nd_reject(n, "integers above 2^53 are not supported");
    for (int i = 0; i < given; i++) {
        int a = nd_axis_of(n, axes[i], r);
        p[a] = pads[i];
        q[a] = pads[given + i];
    }
    return n->status ? n->status : pad_by(n, x, p, q, mode, value);
}

/* Crops or pads to a size around the centre; an odd element is removed or added at the end. */
sol_status op_center_crop_pad(struct node *n)
{
    int64_t to[MOST], axes[MOST], p[MOST] = {0}, q[MOST] = {0};
    tensor x = nd_in(n, 0);
    int count = known_ints(n, 1, "the shape", MOST, to), given = attr_ints(n, "axes", MOST, axes);
    for (int i = 0; i < nd_rank(x) && given < 0; i++) axes[i] = i;
    if (given < 0) given = nd_rank(x);
    if (n->status || given != count)
        return n->status ? n->status : nd_invalid(n, "expected %d sizes, got %d", given, count);
    for (int i = 0; i < count; i++) {
        int a = nd_axis_of(n, axes[i], nd_rank(x));
        if (!nd_fixed(n, to[i], "a size") || !nd_fixed(n, nd_size(x, a), "the size of an axis")) return n->status;
        if (to[i] < 0 || to[i] > (int64_t)1 << 47) return nd_invalid(n, "size %lld", (long long)to[i]);
        int64_t more = to[i] - nd_size(x, a), less = -more;
        p[a] = more >= 0 ? more / 2 : -(less / 2);
        q[a] = more - p[a];
    }
    return n->status ? n->status : pad_by(n, x, p, q, "constant", 0);
}

/* -- blocks and triangles */

sol_status op_blocks(struct node *n)
{
    int64_t r = attr_int(n, "blocksize", 0);
    const char *mode = attr_text(n, "mode", "DCR");
    if (r < 1 || r > 1 << 20) return nd_invalid(n, "blocksize: expected 1 or more, got %lld", (long long)r);
    if (strcmp(mode, "DCR") && strcmp(mode, "CRD")) return nd_invalid(n, "mode: expected DCR or CRD");
    tensor x = nd_in(n, 0);
    if (!strcmp(n->op->kind, "SpaceToDepth")) {
        tensor y = nd_make(n, n->op->kind, IN(x), WITH(INT("r", r))); /* blocks in front of channels */
        bool crd = !strcmp(mode, "CRD") && !n->status;
        if (crd) {
            int64_t c = nd_size(x, 1), b = r * r, h = nd_size(y, 2), w = nd_size(y, 3);
            tensor split = nd_reshape(n, y, 5, (int64_t[]){nd_size(x, 0), b, c, h, w});
            y = nd_reshape(n, nd_swap(n, split, 1, 2), 4, (int64_t[]){nd_size(x, 0), nd_size(y, 1), h, w});
        }
        nd_give(n, 0, y);
    } else {
        nd_give(n, 0, nd_make(n, n->op->kind, IN(nd_in(n, 0)), WITH(INT("r", r), TEXT("mode", mode))));
    }
    return n->status;
}

sol_status op_trilu(struct node *n)
{
    int64_t k = known_int(n, 1, "k", 0), most = (int64_t)1 << 40;
    nd_give(n, 0,
            nd_make(n, attr_flag(n, "upper", 1) ? "Triu" : "Tril", IN(nd_in(n, 0)),
                    WITH(INT("k", MAX(-most, MIN(most, k))))));
    return n->status;
}
