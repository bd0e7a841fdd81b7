/* Sequences: lists of tensors. Lengths and positions must be known, so the graph contains only the tensors. */
#include "onnx/ops.h"

#define MOST_PIECES (1 << 12)

static void give_list(struct node *n, int count, struct value **items)
{
    nd_give_value(n, 0, &(struct value){.list = true, .items = items, .nitems = count});
}

static const struct value *list_of(struct node *n, int i)
{
    const struct value *v = nd_has(n, i) ? n->in[i] : NULL;
    if (!n->status && (!v || !v->list)) nd_invalid(n, "input %d: expected a sequence", i);
    return n->status ? NULL : v;
}

static struct value **copy_items(struct node *n, const struct value *list, int room)
{
    struct value **items = NEW_ARRAY(n->r->arena, struct value *, room + 1);
    for (int i = 0; i < list->nitems; i++) items[i] = list->items[i];
    return items;
}

/* A position from the front or, negative, from the back. `end`: the place behind the last counts, too. */
static int position(struct node *n, int i, int count, bool end, int64_t otherwise)
{
    int64_t at = known_int(n, i, "the position", otherwise);
    if (at < 0) at += count;
    if (!n->status && (at < 0 || at > count - !end)) nd_invalid(n, "position %lld of %d", (long long)at, count);
    return n->status ? 0 : (int)at;
}

sol_status op_list_construct(struct node *n)
{
    struct value **items = NEW_ARRAY(n->r->arena, struct value *, n->nin + 1);
    for (int i = 0; i < n->nin; i++)
        if (!(items[i] = n->in[i])) return nd_invalid(n, "input %d is missing", i);
    attr_skip(n, "dtype");
    give_list(n, n->nin, items);
    return n->status;
}

sol_status op_list_at(struct node *n)
{
    const struct value *list = list_of(n, 0);
    if (!list) return n->status;
    int at = position(n, 1, list->nitems, false, 0);
    if (!n->status) nd_give_value(n, 0, list->items[at]);
    return n->status;
}

sol_status op_list_length(struct node *n)
{
    const struct value *list = list_of(n, 0);
    if (list) nd_give(n, 0, nd_number(n, SOL_I64, list->nitems));
    return n->status;
}

sol_status op_list_insert(struct node *n)
{
    const struct value *list = list_of(n, 0);
    if (!list) return n->status;
    int at = position(n, 2, list->nitems, true, list->nitems);
    if (list->nitems >= 1 << 14) return nd_reject(n, "sequences of more than %d tensors are not supported", 1 << 14);
    struct value **items = copy_items(n, list, list->nitems + 1);
    memmove(items + at + 1, items + at, (size_t)(list->nitems - at) * sizeof *items);
    items[at] = n->in[1];
    give_list(n, list->nitems + 1, items);
    return n->status;
}

sol_status op_list_erase(struct node *n)
{
    const struct value *list = list_of(n, 0);
    if (!list) return n->status;
    int at = position(n, 1, list->nitems, false, list->nitems - 1);
    if (n->status) return n->status;
    struct value **items = copy_items(n, list, list->nitems);
    memmove(items + at, items + at + 1, (size_t)(list->nitems - at - 1) * sizeof *items);
    give_list(n, list->nitems - 1, items);
    return n->status;
}

sol_status op_list_concat(struct node *n)
{
    const struct value *list = list_of(n, 0);
    bool fresh = attr_flag(n, "new_axis", 0);
    if (!list) return n->status;
    tensor *parts = NEW_ARRAY(n->r->arena, tensor, list->nitems + 1);
    for (int i = 0; i < list->nitems; i++) TRY(value_tensor(n->r, list->items[i], &parts[i]));
    if (!list->nitems || !attr_given(n, "axis")) return nd_invalid(n, "the sequence is empty, or the axis is missing");
    int axis = nd_axis_of(n, attr_int(n, "axis", 0), nd_rank(parts[0]) + fresh);
    nd_give(n, 0,
            fresh ? nd_make(n, "Stack", list->nitems, parts, WITH(INT("axis", axis)))
                  : nd_concat(n, axis, list->nitems, parts));
    return n->status;
}

/* Splits into given sizes, or into equal sizes with a smaller last one; by default into size 1, whose axis may be
 * removed. */
sol_status op_list_split(struct node *n)
{
    tensor x = nd_in(n, 0);
    int axis = nd_axis_of(n, attr_int(n, "axis", 0), nd_rank(x));
    bool keep = attr_flag(n, "keepdims", 1) || nd_has(n, 1);
    int64_t whole = nd_size(x, axis), sum = 0, *sizes = NEW_ARRAY(n->r->arena, int64_t, MOST_PIECES), part = 1;
    int count = -1;
    if (!nd_fixed(n, whole, "the size of the axis")) return n->status;
    if (nd_has(n, 1) && nd_rank(nd_in(n, 1)))
        count = known_ints(n, 1, "split", MOST_PIECES, sizes);
    else
        part = known_int(n, 1, "split", 1);
    if (n->status) return n->status;
    if (part < 1) return nd_invalid(n, "pieces of size %lld", (long long)part);
    if (count < 0) {
        part = MAX(1, MIN(part, whole));
        int64_t pieces = (whole + part - 1) / part;
        if (pieces > MOST_PIECES) return nd_reject(n, "more than %d pieces are not supported", MOST_PIECES);
        count = (int)pieces;
        for (int i = 0; i < count; i++) sizes[i] = MIN(part, whole - i * part);
    }
    struct value *values = NEW_ARRAY(n->r->arena, struct value, count + 1),
                 **items = NEW_ARRAY(n->r->arena, struct value *, count + 1);
    for (int i = 0; i < count; i++) {
        if (sizes[i] < 0 || sizes[i] > whole - sum)
            return nd_invalid(n, "the sizes do not add up to %lld", (long long)whole);
        tensor t = nd_slice(n, x, axis, sum, sum + sizes[i]);
        sum += sizes[i];
        values[i] = (struct value){.t = keep ? t : nd_squeeze(n, t, axis), .name = n->label};
        items[i] = &values[i];
    }
    if (sum != whole) return nd_invalid(n, "the sizes add up to %lld, expected %lld", (long long)sum, (long long)whole);
    give_list(n, count, items);
    return n->status;
}
