/* Kernels that sort, or find the first elements of sorted lines, on devices whose lanes are work items;
 * reference_sort.c says what they compute. order.c sorts integer keys that have the order of the values. Lines that one
 * group sorts are written by it; for others, a last step reads the elements in their order. */
#include "print/order.h"

struct lines {
    const struct reference *r;
    const struct target *target;
    const char *type; /* of elements, floats as integers with their bits */
    struct order order;
};

static const char *type_of(int type)
{
    return type == REFERENCE_F32 ? "int32_t" : type == REFERENCE_F64 ? "int64_t" : order_type(type);
}

/* Where element `at` of line `list` is, of lines of n elements. */
static const char *element(const struct lines *l, struct arena *a, const char *at, int64_t n)
{
    const long long inner = l->r->inner;
    if (inner == 1) return arena_printf(a, "list * %lld + %s", (long long)n, at);
    return arena_printf(a, "(list / %lld * %lld + %s) * %lld + list %% %lld", inner, (long long)n, at, inner, inner);
}

static void put_input(void *user, struct text *out)
{
    const struct lines *l = user;
    print_operand(out, l->target, "x", arena_printf(out->arena, "const %s", l->type), 0);
}

static void put_outputs(void *user, struct text *out)
{
    const struct lines *l = user;
    print_operand(out, l->target, "values", l->type, l->r->nin);
    print_operand(out, l->target, "positions", "int64_t", l->r->nin + 1);
}

/* The integer with the order of the values. NaN is the largest, and -0 is 0. */
static void put_key(void *user, struct text *out)
{
    const struct lines *l = user;
    text_line(out, "const %s value = x[%s];", l->type, element(l, out->arena, "at", l->r->n));
    switch (l->r->type) {
    case REFERENCE_U32: text_line(out, "key = (int32_t)(value ^ 0x80000000u);"); break;
    case REFERENCE_U64: text_line(out, "key = (int64_t)(value ^ (uint64_t)INT64_MIN);"); break;
    case REFERENCE_F32:
        text_line(out, "key = value < 0 ? (int32_t)(0x80000000u - (uint32_t)value) : value;");
        text_line(out, "if ((value & 0x7fffffff) > 0x7f800000) key = 0x7fffffff;");
        break;
    case REFERENCE_F64:
        text_line(out, "key = value < 0 ? (int64_t)((uint64_t)INT64_MIN - (uint64_t)value) : value;");
        text_line(out, "if ((value & INT64_MAX) > INT64_C(0x7ff0000000000000)) key = INT64_MAX;");
        break;
    default: text_line(out, "key = value;");
    }
    if (l->r->down) text_line(out, "key = ~key;");
}

static void put_element(void *user, struct text *out)
{
    const struct lines *l = user;
    const char *at = l->r->first ? arena_printf(out->arena, "(at - %lld)", (long long)l->r->first) : "at";
    if (l->r->first) text_open(out, "if (at >= %lld) {", (long long)l->r->first);
    text_line(out, "const int64_t to = %s;", element(l, out->arena, at, l->r->keep));
    text_line(out, "values[to] = x[%s];", element(l, out->arena, "place", l->r->n));
    text_line(out, "positions[to] = place;");
    if (l->r->first) text_close(out, "}");
}

static void put_take(struct lines *l, struct text *out, int step)
{
    const int items = l->order.items;
    const long long keep = l->order.keep, blocks = size_ceil_div(l->order.keep, items);
    kernel_open(out, step);
    text_line(out, "(void)f;");
    put_input(l, out);
    put_outputs(l, out);
    order_result(&l->order, out);
    text_open(out, "for (int64_t task = task0; task < task1; ++task) {");
    text_line(out, "const int64_t list = task / %lld, at = task %% %lld * %d + @ITEM;", blocks, blocks, items);
    text_line(out, "if (at >= %lld) continue;", keep);
    text_line(out, "const int64_t place = places[list * %lld + at];", (long long)l->r->n);
    put_element(l, out);
    text_close(out, "}");
    kernel_close(out);
}

static double cost_of(const struct lines *l, const struct kernel *k)
{
    const double elements = (double)size_hint(size_mul(l->order.lists, l->r->n));
    return order_cost(l->target, k, elements * (2 * l->r->bytes + 8 + 16 * l->order.passes));
}

bool sort_kernel(struct arena *a, const struct target *t, const struct reference *r, struct kernel *out)
{
    struct lines l = {.r = r, .target = t};
    struct text text = text_new(a);
    if (r->type == REFERENCE_OTHER || (r->type == REFERENCE_F64 && t->single)) return false;
    l.type = type_of(r->type);
    *out = (struct kernel){.solver = "sort"};
    l.order = (struct order){.lists = size_mul(r->outer, r->inner),
                             .n = r->n,
                             .keep = size_add(r->first, r->keep),
                             .when = size_min(1, r->keep),
                             .key = r->bytes == 8 ? "int64_t" : "int32_t",
                             .operand = r->nin + 2,
                             .inputs = put_input,
                             .print_key = put_key,
                             .outputs = put_outputs,
                             .print_element = put_element,
                             .user = &l};
    order_plan(&l.order, t, out);
    if (l.order.passes) {
        out->step[out->nstep].suffix = "take";
        out->step[out->nstep++].tasks = size_mul(l.order.lists, size_ceil_div(l.order.keep, l.order.items));
    }
    order_print(&l.order, &text);
    if (l.order.passes) put_take(&l, &text, out->nstep - 1);
    out->source = text.at;
    out->cost = cost_of(&l, out);
    return true;
}
