/* Operators that find a number of elements that depends on data. Where the data is known while reading, the number is,
 * too; otherwise it is a dimension that the network sets while it runs (found.c). */
#include "onnx/ops.h"

#define MOST SOL_MAX_DIMS
#define MOST_KNOWN (1 << 16)

/* -- elements that are not zero */

/* The integers of input i, if they are numbers that are known while reading. */
static bool known_numbers(struct node *n, int i, int *out_count, int64_t **out)
{
    struct data d;
    if (!nd_has(n, i) || !known_data(n, n->in[i], &d) || dtype_def(d.dtype)->is_float || d.elements > MOST_KNOWN)
        return false;
    *out = NEW_ARRAY(n->r->arena, int64_t, d.elements + 1);
    *out_count = (int)d.elements;
    for (int k = 0; k < *out_count; k++)
        if (size_varies((*out)[k] = data_int(&d, k))) return false;
    return true;
}

static sol_status known_positions(struct node *n, int r, const int64_t *shape, int all, const int64_t *values)
{
    int64_t *at = NEW_ARRAY(n->r->arena, int64_t, (size_t)MAX(1, all) * (size_t)MAX(1, r)), count = 0;
    for (int i = 0; i < all; i++) count += values[i] != 0;
    for (int i = 0, k = 0; i < all; i++) {
        if (!values[i]) continue;
        int64_t rest = i;
        for (int d = r - 1; d >= 0; d--) {
            at[d * count + k] = rest % shape[d];
            rest /= shape[d];
        }
        k++;
    }
    nd_give(n, 0, nd_constant(n, SOL_I64, 2, (int64_t[]){r, count}, at));
    return n->status;
}

/* Positions [number, dimensions of x] of the elements that are not zero. */
static tensor positions(struct node *n, tensor x)
{
    const int64_t size = found_size(n, x, nd_elements(x));
    return nd_make(n, "NonZero", IN(x), WITH(INT("size", size)));
}

sol_status op_non_zero(struct node *n)
{
    int64_t *values, shape[MOST];
    tensor x = nd_in(n, 0);
    const int r = nd_shape_of(x, shape);
    int all;
    if (n->status) return n->status;
    if (known_numbers(n, 0, &all, &values)) return known_positions(n, r, shape, all, values);
    nd_give(n, 0, nd_swap(n, positions(n, x), 0, 1));
    return n->status;
}

sol_status op_compress(struct node *n)
{
    int64_t *keep, given, count = 0;
    int known;
    tensor x = nd_in(n, 0), at;
    bool flat = !attr_given(n, "axis");
    int axis = flat ? 0 : nd_axis_of(n, attr_int(n, "axis", 0), nd_rank(x));
    if (flat) x = nd_reshape(n, x, 1, (int64_t[]){nd_elements(x)});
    if (n->status) return n->status;
    if (known_numbers(n, 1, &known, &keep)) {
        given = known;
        for (int i = 0; i < known; i++)
            if (keep[i]) keep[count++] = i;
        at = nd_constant(n, SOL_I64, 1, &count, keep);
    } else {
        tensor keeps = nd_in(n, 1), found = positions(n, keeps);
        given = nd_size(keeps, 0); /* of one that varies, Gather checks the positions */
        if (!n->status && nd_rank(keeps) != 1) return nd_invalid(n, "the condition must have one dimension");
        at = nd_reshape(n, found, 1, (int64_t[]){nd_size(found, 0)});
    }
    if (n->status) return n->status;
    if (nd_above(given, nd_size(x, axis))) return nd_invalid(n, "the condition is longer than the axis");
    nd_give(n, 0, nd_make(n, "Gather", IN(x, at), WITH(INT("axis", axis))));
    return n->status;
}

/* -- elements, or slices along an axis, that differ from each other */

sol_status op_unique(struct node *n)
{
    tensor x = nd_in(n, 0), out[3];
    const bool flat = !attr_given(n, "axis");
    const int axis = flat ? 0 : nd_axis_of(n, attr_int(n, "axis", 0), nd_rank(x));
    const int sorted = attr_flag(n, "sorted", 1);
    if (flat) x = nd_reshape(n, x, 1, (int64_t[]){nd_elements(x)});
    tensor rows = nd_move_axis(n, x, axis, 0);
    if (nd_type_of(x) == SOL_F16 || nd_type_of(x) == SOL_BF16) rows = nd_cast(n, rows, SOL_F32);
    const int64_t size = found_size(n, NULL, nd_size(rows, 0));
    /* as NumPy does: NaN equals NaN among elements, but not inside slices */
    nd_make_all(
        n, &(struct nd_layer){"Unique", IN(rows), WITH(INT("size", size), INT("sorted", sorted), INT("nan", flat))},
        COUNT_OF(out), out);
    nd_give(n, 0, nd_make(n, "Gather", IN(x, out[0]), WITH(INT("axis", axis))));
    for (int i = 0; i < COUNT_OF(out); i++) nd_give(n, i + 1, out[i]);
    return n->status;
}

/* -- boxes */

/* A number of any shape with one element. */
static tensor scalar(struct node *n, int i, enum sol_dtype t)
{
    tensor x = nd_in(n, i);
    if (!n->status && nd_elements(x) != 1) nd_invalid(n, "input %d: expected one number", i);
    return nd_cast(n, nd_reshape(n, x, 0, NULL), t);
}

sol_status op_nms(struct node *n)
{
    tensor boxes = nd_in(n, 0), scores = nd_in(n, 1);
    const char *mode = attr_flag(n, "center_point_box", 0) ? "center" : "corners";
    int64_t *most, of_class = nd_size(boxes, 1);
    int count;
    if (nd_rank(boxes) != 3 || nd_rank(scores) != 3)
        return n->status ? n->status : nd_invalid(n, "expected boxes and scores of 3 dimensions");
    tensor limit = nd_has(n, 2) ? scalar(n, 2, SOL_I64) : nd_number(n, SOL_I64, 0);
    tensor overlap = nd_has(n, 3) ? scalar(n, 3, SOL_F64) : nd_number(n, SOL_F64, 0);
    if (!nd_has(n, 2)) of_class = 0;
    if (known_numbers(n, 2, &count, &most) && count == 1) of_class = size_min(of_class, MAX(most[0], 0));
    const int64_t all = size_mul(size_mul(nd_size(boxes, 0), nd_size(scores, 1)), of_class);
    const int64_t size = found_size(n, NULL, all);
    tensor in[] = {boxes, scores, limit, overlap, nd_has(n, 4) ? scalar(n, 4, SOL_F64) : NULL};
    nd_give(n, 0, nd_make(n, "NonMaxSuppression", in[4] ? 5 : 4, in, WITH(INT("size", size), TEXT("mode", mode))));
    return n->status;
}
