/* Branches and loops. The reader selects the branch and unrolls loops, so conditions and trip counts must be known. */
#include "onnx/ops.h"

#define MOST SOL_MAX_DIMS
#define MOST_STEPS 2048

static struct value *value_new(struct node *n, tensor t)
{
    struct value *v = NEW(n->r->arena, struct value);
    *v = (struct value){.t = t, .name = n->label};
    return v;
}

static struct value *value_number(struct node *n, enum sol_dtype t, int64_t number)
{
    struct data *d = NEW(n->r->arena, struct data);
    *d = (struct data){.dtype = t, .elements = 1, .at = arena_memdup(n->r->arena, &number, sizeof number)};
    return value_of_data(n->r, n->label, d);
}

/* After a node of a body was rejected, the results of the body are unknown. */
static bool any_rejected(struct node *n, int count, struct value *const *values)
{
    bool rejected = false;
    for (int i = 0; i < count; i++) rejected |= values[i]->rejected;
    for (int i = 0; i < n->nout && rejected; i++) n->out[i].rejected = true;
    return rejected;
}

static bool known_truth(struct node *n, struct value *v, bool *out)
{
    struct data d;
    if (!known_data(n, v, &d) || d.elements != 1 || dtype_def(d.dtype)->is_float) {
        if (!n->status) nd_reject(n, "the condition depends on %s", value_origin(n->r, v, 1));
        return false;
    }
    *out = data_int(&d, 0);
    return true;
}

sol_status op_if(struct node *n)
{
    const Onnx__Attribute *yes = nd_attr(n, "then_branch", ATTR_G), *no = nd_attr(n, "else_branch", ATTR_G);
    if (n->status || !yes || !no) return n->status ? n->status : nd_invalid(n, "a branch is missing");
    bool taken;
    if (!known_truth(n, n->in[0], &taken)) return n->status;
    const Onnx__Graph *g = taken ? yes->g : no->g;
    if (g->n_output != (size_t)n->nout || g->n_input)
        return nd_invalid(n, "the branch has %zu inputs and %zu outputs, expected 0 and %d", g->n_input, g->n_output,
                          n->nout);
    struct value **values = NEW_ARRAY(n->r->arena, struct value *, n->nout);
    TRY(translate_body(n->r, n->scope, g, NULL, values));
    for (int i = 0; i < n->nout; i++) nd_give_value(n, i, values[i]);
    return n->status;
}

/* What the steps made, side by side along an axis. */
static tensor stack(struct node *n, int count, tensor *steps, int64_t axis)
{
    if (!count || n->status) {
        nd_reject(n, "a loop without a step is not supported where it stacks what its steps make");
        return NULL;
    }
    int at = nd_axis_of(n, axis, nd_rank(steps[0]) + 1);
    return nd_make(n, "Stack", count, steps, WITH(INT("axis", at)));
}

/* Loop(trip count, condition, carried..): the body takes (number, condition, carried..) and makes (condition,
 * carried.., stacked..). */
sol_status op_loop(struct node *n)
{
    const Onnx__Attribute *a = nd_attr(n, "body", ATTR_G);
    if (n->status || !a) return n->status ? n->status : nd_invalid(n, "the body is missing");
    const Onnx__Graph *g = a->g;
    int carried = MAX(n->nin, 2) - 2, stacked = n->nout - carried;
    int64_t most = known_int(n, 0, "the number of steps", INT64_MAX);
    bool runs = true;
    if (n->status || (nd_has(n, 1) && !known_truth(n, n->in[1], &runs))) return n->status;
    if (stacked < 0 || g->n_input != (size_t)carried + 2 || g->n_output != (size_t)n->nout + 1)
        return nd_invalid(n, "the body's inputs and outputs do not fit");
    if (stacked > 64) return nd_reject(n, "more than 64 stacked outputs are not supported");
    struct value **in = NEW_ARRAY(n->r->arena, struct value *, carried + 2);
    struct value **out = NEW_ARRAY(n->r->arena, struct value *, n->nout + 1);
    tensor *steps = NEW_ARRAY(n->r->arena, tensor, (size_t)stacked * MOST_STEPS + 1);
    for (int i = 0; i < carried; i++)
        if (!(in[i + 2] = n->in[i + 2])) return nd_invalid(n, "input %d is missing", i + 2);
    int step = 0;
    for (; runs && step < most; step++) {
        if (step == MOST_STEPS) return nd_reject(n, "more than %d steps are not supported", MOST_STEPS);
        in[0] = value_number(n, SOL_I64, step);
        in[1] = value_number(n, SOL_BOOL, 1);
        TRY(translate_body(n->r, n->scope, g, in, out));
        if (any_rejected(n, n->nout + 1, out)) return SOL_OK;
        for (int i = 0; i < carried; i++) in[i + 2] = out[i + 1];
        for (int i = 0; i < stacked; i++) TRY(value_tensor(n->r, out[1 + carried + i], &steps[i * MOST_STEPS + step]));
        if (!known_truth(n, out[0], &runs)) return n->status;
    }
    for (int i = 0; i < carried; i++) nd_give_value(n, i, in[i + 2]);
    for (int i = 0; i < stacked && !n->status; i++)
        if (nd_wants(n, carried + i)) nd_give(n, carried + i, stack(n, step, steps + (size_t)i * MOST_STEPS, 0));
    return n->status;
}

struct scan { /* an axis and a direction for each */
    int64_t axis[64], back[64];
};

/* One value for each, 0 where the list is not given. */
static void read_each(struct node *n, const char *name, int count, int64_t *out)
{
    int given = attr_ints(n, name, 64, out);
    if (given >= 0 && given != count) nd_invalid(n, "%s: expected %d values, got %d", name, count, given);
    for (int i = 0; i < count && given < 0; i++) out[i] = 0;
}

static void read_scan(struct node *n, const char *axes, const char *directions, int count, struct scan *s)
{
    read_each(n, axes, count, s->axis);
    read_each(n, directions, count, s->back);
}

/* Scan(state.., sequences..): the body takes and makes (state.., one element of each). */
sol_status op_scan_body(struct node *n)
{
    const Onnx__Attribute *a = nd_attr(n, "body", ATTR_G);
    int64_t count = attr_int(n, "num_scan_inputs", 0);
    if (n->status || !a) return n->status ? n->status : nd_invalid(n, "the body is missing");
    int states = n->nin - (int)MAX(0, MIN(count, n->nin)), made = n->nout - states;
    if (count < 1 || count > 64 || made < 0 || made > 64 || a->g->n_input != (size_t)n->nin ||
        a->g->n_output != (size_t)n->nout)
        return nd_invalid(n, "the body's inputs and outputs do not fit");
    struct scan from, to;
    read_scan(n, "scan_input_axes", "scan_input_directions", (int)count, &from);
    read_scan(n, "scan_output_axes", "scan_output_directions", made, &to);
    if (n->status) return n->status;
    struct value **in = NEW_ARRAY(n->r->arena, struct value *, n->nin),
                 **out = NEW_ARRAY(n->r->arena, struct value *, n->nout + 1);
    tensor *steps = NEW_ARRAY(n->r->arena, tensor, (size_t)made * MOST_STEPS + 1);
    for (int i = 0; i < n->nin; i++)
        if (!(in[i] = n->in[i])) return nd_invalid(n, "input %d is missing", i);
    int64_t length = -1;
    for (int i = 0; i < count; i++) {
        tensor x = nd_in(n, states + i);
        from.axis[i] = nd_axis_of(n, from.axis[i], nd_rank(x));
        if (n->status) return n->status;
        if (length >= 0 && nd_size(x, (int)from.axis[i]) != length)
            return nd_invalid(n, "the sequences differ in length");
        length = nd_size(x, (int)from.axis[i]);
        if (!nd_fixed(n, length, "the number of steps")) return n->status;
    }
    if (length > MOST_STEPS) return nd_reject(n, "more than %d steps are not supported", MOST_STEPS);
    for (int64_t t = 0; t < length; t++) {
        for (int i = 0; i < count; i++) {
            int64_t at = from.back[i] ? length - 1 - t : t;
            in[states + i] = value_new(
                n, nd_make(n, "Select", IN(nd_in(n, states + i)), WITH(INT("axis", from.axis[i]), INT("index", at))));
        }
        if (n->status) return n->status;
        TRY(translate_body(n->r, n->scope, a->g, in, out));
        if (any_rejected(n, n->nout, out)) return SOL_OK;
        for (int i = 0; i < states; i++) in[i] = out[i];
        for (int i = 0; i < made; i++) {
            int64_t at = to.back[i] ? length - 1 - t : t;
            TRY(value_tensor(n->r, out[states + i], &steps[i * MOST_STEPS + at]));
        }
    }
    for (int i = 0; i < states; i++) nd_give_value(n, i, in[i]);
    for (int i = 0; i < made && !n->status; i++)
        if (nd_wants(n, states + i))
            nd_give(n, states + i, stack(n, (int)length, steps + (size_t)i * MOST_STEPS, to.axis[i]));
    return n->status;
}
