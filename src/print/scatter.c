/* Kernels that write by index, on devices whose lanes are work items; reference_scatter.c says what they compute. Of
 * the walk's dimensions, some are rows: no index depends on them, so their elements go to the same target together.
 * Along others the target moves on, so sources there never meet. The rest are lists of sources that may have the same
 * target. A list is sorted by target, stably (order.c); the items at the first source with a target then join all of
 * its sources, in the order of the walk. So the bits are those of the host, in each run, without atomics. */
#include "print/order.h"

#include <string.h>

enum { FILL = 8, MOST_INDICES = SOL_MAX_DIMS };

/* -- the walk */

/* A dimension, or neighbours that are like one. */
struct dim {
    int64_t size, from, to, index[MOST_INDICES];
};
struct dims { /* of one class, numbered through */
    int n;
    struct dim at[SOL_MAX_DIMS];
    int64_t size;
};
struct scatter {
    const struct reference *r;
    const struct target *target;
    const char *type; /* of elements */
    struct dims row, apart, list;
    int row_items; /* of a group, that compute a row or a piece of it */
    struct order order;
};

static bool continues(const struct dim *outer, const struct dim *d, int nindex)
{
    bool same = outer->from == size_mul(d->from, d->size) && outer->to == size_mul(d->to, d->size);
    for (int i = 0; same && i < nindex; i++) same = outer->index[i] == size_mul(d->index[i], d->size);
    return same;
}

static void add_dim(struct dims *all, const struct dim *d, int nindex)
{
    struct dim *last = all->n ? &all->at[all->n - 1] : NULL;
    const int64_t size = last ? size_mul(last->size, d->size) : 0;
    all->size = size_mul(all->size, d->size);
    if (d->size == 1) return;
    if (last && continues(last, d, nindex)) {
        *last = *d;
        last->size = size;
    } else {
        all->at[all->n++] = *d;
    }
}

static void find_dims(struct scatter *s)
{
    const struct reference *r = s->r;
    s->row.size = s->apart.size = s->list.size = 1;
    for (int d = 0; d < r->ndim; d++) {
        struct dim dim = {.size = r->shape[d], .from = r->from[d], .to = r->to[d]};
        bool indexed = false;
        for (int i = 0; i < r->nindex; i++) {
            dim.index[i] = r->index[i].stride[d];
            indexed |= dim.index[i] != 0;
        }
        add_dim(!dim.to ? &s->list : indexed ? &s->apart : &s->row, &dim, r->nindex);
    }
}

/* -- offsets as text */

enum stride { STRIDE_FROM, STRIDE_TO, STRIDE_INDEX };

static int64_t stride_of(const struct dim *d, enum stride which, int index)
{
    return which == STRIDE_FROM ? d->from : which == STRIDE_TO ? d->to : d->index[index];
}

/* Adds the offset that number `at` of these dimensions has. */
static void put_offset(struct text *out, const struct dims *all, const char *at, enum stride which, int index)
{
    int64_t inner = 1;
    for (int d = all->n - 1; d >= 0; inner = size_mul(inner, all->at[d--].size)) {
        const int64_t stride = stride_of(&all->at[d], which, index);
        if (!stride) continue;
        text_put(out, out->n ? " + " : "");
        if (inner == 1 && !d)
            text_put(out, "%s", at);
        else if (inner == 1)
            text_put(out, "%s %% %lld", at, (long long)all->at[d].size);
        else if (!d)
            text_put(out, "%s / %lld", at, (long long)inner);
        else
            text_put(out, "%s / %lld %% %lld", at, (long long)inner, (long long)all->at[d].size);
        if (stride != 1) text_put(out, " * %lld", (long long)stride);
    }
}

static const char *offset_text(const struct scatter *s, struct arena *a, enum stride which, int index)
{
    struct text t = text_new(a);
    if (which == STRIDE_INDEX && s->r->index[index].offset) text_put(&t, "%lld", (long long)s->r->index[index].offset);
    put_offset(&t, &s->apart, "apart", which, index);
    if (which == STRIDE_INDEX) put_offset(&t, &s->list, "at", which, index);
    if (which != STRIDE_INDEX) put_offset(&t, &s->row, "column", which, index);
    return t.n ? t.at : "0";
}

static const char *source_text(const struct scatter *s, struct arena *a)
{
    struct text t = text_new(a);
    put_offset(&t, &s->list, "source", STRIDE_FROM, 0);
    return t.n ? t.at : "0";
}

/* -- what is there before */

static void put_fill(const struct scatter *s, struct text *out)
{
    const struct reference *r = s->r;
    const char *type = arena_printf(out->arena, "uint%d_t", 8 * r->bytes);
    kernel_open(out, 0);
    text_line(out, "(void)f;");
    print_operand(out, s->target, "x", arena_printf(out->arena, "const %s", type), 0);
    print_operand(out, s->target, "y", type, r->nin);
    text_open(out, "for (int64_t task = task0; task < task1; ++task) {");
    text_open(out, "for (int i = 0; i < %d; i++) {", FILL);
    text_line(out, "const int64_t at = (task * %d + i) * %d + @ITEM;", FILL, s->order.items);
    text_line(out, r->uniform ? "if (at < %lld) y[at] = x[0];" : "if (at < %lld) y[at] = x[at];",
              (long long)r->elements);
    text_close(out, "}");
    text_close(out, "}");
    kernel_close(out);
}

/* -- keys: where the row of a source begins; -1: nowhere */

static void put_inputs(void *user, struct text *out)
{
    const struct scatter *s = user;
    for (int i = 0; i < s->r->nindex; i++) {
        const struct reference_index *x = &s->r->index[i];
        print_operand(out, s->target, arena_printf(out->arena, "i%d", i),
                      arena_printf(out->arena, "const %s", order_type(x->type)), x->input);
    }
}

static void put_key(void *user, struct text *out)
{
    const struct scatter *s = user;
    const struct reference *r = s->r;
    if (s->apart.n) text_line(out, "const int64_t apart = list;");
    text_line(out, "int64_t to = 0;");
    text_line(out, "int good = 1;");
    for (int i = 0; i < r->nindex; i++) {
        const struct reference_index *x = &r->index[i];
        text_open(out, "{");
        text_line(out, "int64_t index = (int64_t)i%d[%s];", i, offset_text(s, out->arena, STRIDE_INDEX, i));
        if (!r->skip) text_line(out, "index += index < 0 ? %lld : 0;", (long long)x->limit);
        text_line(out, "good &= (uint64_t)index < (uint64_t)%lld;", (long long)x->limit);
        text_line(out, "to += index * %lld;", (long long)x->step);
        text_close(out, "}");
    }
    if (!r->skip) text_line(out, "if (!good) @sol_error(f, SOL_KERNEL_INDEX);");
    text_line(out, "key = good ? (%s)to : -1;", s->order.key);
}

/* -- joining */

static const char *join_text(const struct scatter *s)
{
    const bool is_float = s->r->type == REFERENCE_F32 || s->r->type == REFERENCE_F64;
    const bool is_bool = s->r->type == REFERENCE_BOOL;
    switch (s->r->mode) {
    case REFERENCE_ADD: return is_bool ? "now | value" : is_float ? "now + value" : "(uint64_t)now + (uint64_t)value";
    case REFERENCE_MUL: return is_bool ? "now & value" : is_float ? "now * value" : "(uint64_t)now * (uint64_t)value";
    case REFERENCE_MAX: return "(now >= value) | (now != now) ? now : value"; /* a NaN that is there stays */
    case REFERENCE_MIN: return "(now <= value) | (now != now) ? now : value";
    default: return "value";
    }
}

/* Joins the sources from `next` on while `batch` of them have the target, all of which are read first. */
static void put_batches(const struct scatter *s, struct text *out, int batch)
{
    const char *from = source_text(s, out->arena);
    text_open(out, "for (; next + %d <= %lld && keys[list + next + %d] == key; next += %d) {", batch,
              (long long)s->list.size, batch - 1, batch);
    text_line(out, "%s values[%d];", s->type, batch);
    text_open(out, "for (int i = 0; i < %d; i++) {", batch);
    text_line(out, "const int64_t source = places[list + next + i];");
    text_line(out, "values[i] = from[%s];", from);
    text_close(out, "}");
    text_open(out, "for (int i = 0; i < %d; i++) {", batch);
    text_line(out, "const %s value = values[i];", s->type);
    text_line(out, "now = (%s)(%s);", s->type, join_text(s));
    text_close(out, "}");
    text_close(out, "}");
}

static void put_joins(const struct scatter *s, struct text *out)
{
    static const int batches[] = {32, 8, 1};
    text_line(out, "%s now = %s;", s->type, s->r->uniform ? "x[0]" : "*to");
    text_line(out, "int64_t next = at;");
    for (int i = 0; i < COUNT_OF(batches); i++) put_batches(s, out, batches[i]);
    text_line(out, "*to = now;");
}

static void put_last(const struct scatter *s, struct text *out)
{
    text_line(out, "const int64_t source = places[list + at];");
    text_line(out, "*to = from[%s];", source_text(s, out->arena));
}

/* A task is a piece of the rows of some sources of a list. Without joining, the last source with a target counts. */
static void put_rows(const struct scatter *s, struct text *out, int step)
{
    const bool joins = s->r->mode != REFERENCE_NONE;
    const long long n = s->list.size, pieces = size_ceil_div(s->row.size, s->row_items);
    const int rows = s->order.items / s->row_items;
    const long long blocks = size_ceil_div(s->list.size, rows);
    kernel_open(out, step);
    text_line(out, "(void)f;");
    if (joins && s->r->uniform) print_operand(out, s->target, "x", arena_printf(out->arena, "const %s", s->type), 0);
    print_operand(out, s->target, "u", arena_printf(out->arena, "const %s", s->type), s->r->values);
    print_operand(out, s->target, "y", s->type, s->r->nin);
    order_result(&s->order, out);
    text_line(out, "const int row = (int)@ITEM / %d, item = (int)@ITEM %% %d;", s->row_items, s->row_items);
    text_open(out, "for (int64_t task = task0; task < task1; ++task) {");
    text_line(out, "const int64_t column = task %% %lld * %d + item, block = task / %lld;", pieces, s->row_items,
              pieces);
    text_line(out, "const int64_t apart = block / %lld, list = apart * %lld, at = block %% %lld * %d + row;", blocks, n,
              blocks, rows);
    text_line(out, "if (at >= %lld || column >= %lld) continue;", n, (long long)s->row.size);
    text_line(out, "const %s key = keys[list + at];", s->order.key);
    if (joins)
        text_line(out, "if (key < 0 || (at && keys[list + at - 1] == key)) continue;");
    else
        text_line(out, "if (key < 0 || (at + 1 < %lld && keys[list + at + 1] == key)) continue;", n);
    text_line(out, "@GLOBAL const %s *const from = u + (%s);", s->type, offset_text(s, out->arena, STRIDE_FROM, 0));
    text_line(out, "@GLOBAL %s *const to = y + (key + %s);", s->type, offset_text(s, out->arena, STRIDE_TO, 0));
    if (joins)
        put_joins(s, out);
    else
        put_last(s, out);
    text_close(out, "}");
    kernel_close(out);
}

/* -- the kernel */

static bool describe(struct scatter *s)
{
    static const char *const copied[] = {[1] = "uint8_t", [2] = "uint16_t", [4] = "uint32_t", [8] = "uint64_t"};
    if (s->r->mode == REFERENCE_NONE)
        s->type = copied[s->r->bytes];
    else if (s->r->type == REFERENCE_OTHER || (s->r->type == REFERENCE_F64 && s->target->single))
        return false;
    else
        s->type = order_type(s->r->type);
    return true;
}

static double cost_of(const struct scatter *s, const struct kernel *k)
{
    const double rows = (double)size_hint(s->list.size) * (double)size_hint(size_mul(s->apart.size, s->row.size));
    const double bytes = (2 * (double)size_hint(s->r->elements) + 2 * rows) * s->r->bytes;
    return order_cost(s->target, k, bytes);
}

bool scatter_kernel(struct arena *a, const struct target *t, const struct reference *r, struct kernel *out)
{
    struct scatter s = {.r = r, .target = t};
    struct text text = text_new(a);
    if (!describe(&s)) return false;
    find_dims(&s);
    *out = (struct kernel){.solver = "scatter", .nstep = 1};
    const int64_t last = size_most(r->elements);
    s.order = (struct order){.lists = s.apart.size,
                             .n = s.list.size,
                             .keep = s.list.size,
                             .when = size_min(1, s.row.size),
                             .key = last <= INT32_MAX ? "int32_t" : "int64_t",
                             .operand = r->nin + 1,
                             .inputs = put_inputs,
                             .print_key = put_key,
                             .user = &s};
    order_plan(&s.order, t, out);
    s.row_items = 1;
    while (s.row_items < size_hint(s.row.size) && s.row_items < s.order.items) s.row_items *= 2;
    out->step[0].suffix = "start";
    out->step[0].tasks = size_ceil_div(r->elements, s.order.items * FILL);
    const int64_t blocks = size_ceil_div(s.list.size, s.order.items / s.row_items);
    out->step[out->nstep].suffix = "join";
    out->step[out->nstep++].tasks = size_mul(size_mul(s.apart.size, blocks), size_ceil_div(s.row.size, s.row_items));
    put_fill(&s, &text);
    order_print(&s.order, &text);
    put_rows(&s, &text, out->nstep - 1);
    out->source = text.at;
    out->cost = cost_of(&s, out);
    return true;
}
