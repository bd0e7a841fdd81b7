/* Reading and writing by index. ONNX's negative indices count from the end (wrap=1). */
#include "onnx/ops.h"

#define MOST SOL_MAX_DIMS

/* A constant scalar index is a slice, so no index is read at run time. */
static bool gather_one(struct node *n, tensor x, int axis)
{
    int64_t i;
    if (!nd_is_known(n, 1) || nd_rank(nd_in(n, 1)) || nd_elements(nd_in(n, 1)) != 1) return false;
    known_sizes(n, 1, "indices", 0, 1, &i);
    const int64_t size = nd_size(x, axis);
    if (!size_varies(size) && !size_varies(i)) {
        if (n->status || i < -size || i >= size) return false;
        if (i < 0) i += size;
    }
    nd_give(n, 0, nd_make(n, "Select", IN(x), WITH(INT("axis", axis), INT("index", i))));
    return true;
}

sol_status op_gather(struct node *n)
{
    tensor x = nd_in(n, 0);
    int axis = nd_axis_of(n, attr_int(n, "axis", 0), nd_rank(x));
    if (n->status || gather_one(n, x, axis)) return n->status;
    nd_give(n, 0, nd_make(n, "Gather", IN(x, nd_in(n, 1)), WITH(INT("axis", axis), INT("wrap", 1))));
    return n->status;
}

sol_status op_gather_elements(struct node *n)
{
    tensor x = nd_in(n, 0);
    int axis = nd_axis_of(n, attr_int(n, "axis", 0), nd_rank(x));
    nd_give(n, 0, nd_make(n, "GatherElements", IN(x, nd_in(n, 1)), WITH(INT("axis", axis), INT("wrap", 1))));
    return n->status;
}

sol_status op_gather_nd(struct node *n)
{
    int64_t batch = attr_int(n, "batch_dims", 0);
    nd_give(n, 0, nd_make(n, "GatherND", IN(nd_in(n, 0), nd_in(n, 1)), WITH(INT("batch", batch), INT("wrap", 1))));
    return n->status;
}

static const char *mode_of(struct node *n)
{
    static const char *const modes[] = {"none", "add", "mul", "max", "min"};
    const char *mode = attr_text(n, "reduction", "none");
    for (int i = 0; i < COUNT_OF(modes); i++)
        if (!strcmp(mode, modes[i])) return modes[i];
    nd_invalid(n, "reduction '%s' does not exist", mode);
    return "none";
}

sol_status op_scatter_elements(struct node *n)
{
    tensor x = nd_in(n, 0);
    int axis = nd_axis_of(n, attr_int(n, "axis", 0), nd_rank(x));
    const char *mode = mode_of(n);
    nd_give(
        n, 0,
        nd_make(n, "ScatterElements", IN(x, nd_in(n, 1), nd_in(n, 2)), WITH(INT("axis", axis), TEXT("mode", mode))));
    return n->status;
}

sol_status op_scatter_nd(struct node *n)
{
    const char *mode = mode_of(n);
    nd_give(n, 0, nd_make(n, "ScatterND", IN(nd_in(n, 0), nd_in(n, 1), nd_in(n, 2)), WITH(TEXT("mode", mode))));
    return n->status;
}

/* Appends to a cache: row b at write_indices[b], wrapping around if the cache is circular. */
sol_status op_tensor_scatter(struct node *n)
{
    int64_t shape[MOST];
    tensor cache = nd_in(n, 0), update = nd_in(n, 1);
    int r = nd_shape_of(update, shape), axis = nd_axis_of(n, attr_int(n, "axis", -2), nd_rank(cache));
    bool circular = attr_is(n, "mode", "linear", "circular");
    if (n->status) return n->status;
    if (r != nd_rank(cache) || !axis) return nd_invalid(n, "axis and dimensions do not fit");
    tensor at = nd_make(n, "Range", 0, NULL, WITH(INT("n", shape[axis])));
    int64_t along[MOST] = {0}, batch[MOST] = {0};
    for (int i = 0; i < r; i++) along[i] = batch[i] = 1;
    along[axis] = shape[axis], batch[0] = shape[0];
    at = nd_reshape(n, at, r, along);
    if (nd_has(n, 2)) at = nd_fn2(n, "add", at, nd_reshape(n, nd_cast(n, nd_in(n, 2), SOL_I64), r, batch));
    if (circular) at = nd_fn2(n, "remainder", at, nd_a_size(n, SOL_I64, nd_size(cache, axis)));
    nd_give(n, 0,
            nd_make(n, "ScatterElements", IN(cache, nd_expand(n, at, r, shape), update), WITH(INT("axis", axis))));
    return n->status;
}

/* A number of any type, or a size that varies; -1: out of range. */
static int64_t depth_of(struct node *n)
{
    struct data d;
    if (nd_has(n, 1) && known_data(n, n->in[1], &d) && d.dtype == SOL_I64 && d.elements == 1 &&
        size_varies(data_int(&d, 0)))
        return data_int(&d, 0);
    const double given = known_real(n, 1, "depth", 0);
    return given >= 0 && given < INT32_MAX ? (int64_t)given : -1;
}

/* Indices from -depth to depth-1; other indices give a row of off values. */
sol_status op_one_hot(struct node *n)
{
    tensor i = nd_cast(n, nd_in(n, 0), SOL_I64), values = nd_in(n, 2);
    const int64_t depth = depth_of(n);
    int axis = nd_axis_of(n, attr_int(n, "axis", -1), nd_rank(i) + 1);
    if (n->status) return n->status;
    if (depth < 0 || nd_elements(values) != 2) return nd_invalid(n, "expected a depth of 0 or more and two values");
    tensor below = nd_fn2(n, "lt", i, nd_number(n, SOL_I64, 0));
    i = nd_fn3(n, "where", below, nd_fn2(n, "add", i, nd_a_size(n, SOL_I64, depth)), i);
    tensor hot = nd_make(n, "OneHot", IN(i), WITH(INT("n", depth), TEXT("to", "bool")));
    values = nd_reshape(n, values, 1, (int64_t[]){2});
    tensor off = nd_reshape(n, nd_slice(n, values, 0, 0, 1), 0, NULL),
           on = nd_reshape(n, nd_slice(n, values, 0, 1, 2), 0, NULL);
    nd_give(n, 0, nd_move_axis(n, nd_fn3(n, "where", hot, on, off), -1, axis));
    return n->status;
}

/* Reverses the first `lengths[b]` steps of batch b, with an index for each step. */
sol_status op_reverse_sequence(struct node *n)
{
    int64_t shape[MOST], along[MOST], rows[MOST];
    tensor x = nd_in(n, 0), lengths = nd_cast(n, nd_in(n, 1), SOL_I64);
    int r = nd_shape_of(x, shape);
    int64_t time = attr_int(n, "time_axis", 0), batch = attr_int(n, "batch_axis", 1);
    if (n->status) return n->status;
    if (r < 2 || time < 0 || time > 1 || batch != 1 - time)
        return nd_invalid(n, "time_axis and batch_axis: expected 0 and 1");
    for (int i = 0; i < r; i++) along[i] = rows[i] = 1;
    along[time] = shape[time], rows[batch] = shape[batch];
    tensor t = nd_reshape(n, nd_make(n, "Range", 0, NULL, WITH(INT("n", shape[time]))), r, along);
    lengths = nd_reshape(n, lengths, r, rows);
    tensor back = nd_fn2(n, "sub", nd_fn2(n, "sub", lengths, t), nd_number(n, SOL_I64, 1));
    tensor at = nd_fn3(n, "where", nd_fn2(n, "lt", t, lengths), back, t);
    nd_give(n, 0, nd_make(n, "GatherElements", IN(x, nd_expand(n, at, r, shape)), WITH(INT("axis", time))));
    return n->status;
}
