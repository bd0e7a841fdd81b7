/* Sorts lists in work groups, for the kernels of layers without loops: stably, by integer keys. A group sorts a tile of
 * a list in the memory that it shares (bitonic, by key and place); then each pass merges runs of tiles: an element's
 * place in the merged run is the number of elements in front of it, which it finds by a binary search in each other
 * run. No atomics and no order of groups are involved, so results are the same in each run. */
#include "print/order.h"

#include <string.h>

enum { LEAST_TILE = 128, MOST_TILE = 1024, WAYS = 8 };

static int bytes_of(const char *type)
{
    return strcmp(type, "int32_t") ? 8 : 4;
}

static int64_t most_of(int64_t size)
{
    const int64_t most = size_most(size);
    return MIN(most, SIZE_POISON - 1);
}

const char *order_type(int type)
{
    static const char *const types[] = {
        [REFERENCE_BOOL] = "uint8_t", [REFERENCE_U8] = "uint8_t",   [REFERENCE_I8] = "int8_t",
        [REFERENCE_U16] = "uint16_t", [REFERENCE_I16] = "int16_t",  [REFERENCE_U32] = "uint32_t",
        [REFERENCE_I32] = "int32_t",  [REFERENCE_U64] = "uint64_t", [REFERENCE_I64] = "int64_t",
        [REFERENCE_F32] = "float",    [REFERENCE_F64] = "double"};
    return types[type];
}

double order_cost(const struct target *t, const struct kernel *k, double bytes)
{
    return k->nstep * target_step_ns(t) + bytes / t->dram_rate;
}

/* The pass after which a run has all elements; the last one merges any number of runs. */
static void plan_passes(struct order *o)
{
    const int64_t most = most_of(o->n);
    int64_t width = o->tile;
    for (o->passes = 0; width < most && o->passes < ORDER_PASSES; o->passes++) {
        o->width[o->passes] = width;
        if (o->passes + 1 < ORDER_PASSES)
            width *= WAYS;
        else
            width = most;
    }
    o->width[o->passes] = width;
}

static void add_step(const struct order *o, struct kernel *k, const char *suffix, int64_t tasks)
{
    k->step[k->nstep].suffix = suffix;
    k->step[k->nstep++].tasks = size_mul(tasks, o->when);
}

/* Do the groups that sort write the results? */
static bool writes_itself(const struct order *o)
{
    return !o->passes && o->print_element;
}

/* 1 where there is more than one run of this width, otherwise 0. */
static int64_t has_runs(const struct order *o, int64_t width)
{
    return size_min(1, size_floor_div(o->n, width + 1));
}

static int64_t blocks_of(const struct order *o)
{
    return size_mul(o->lists, size_ceil_div(o->n, o->items));
}

void order_plan(struct order *o, const struct target *t, struct kernel *k)
{
    const int64_t hint = size_hint(o->n);
    o->target = t;
    o->at = most_of(o->n) <= INT32_MAX ? "int32_t" : "int64_t";
    const int bytes = bytes_of(o->key) + bytes_of(o->at);
    o->tile = LEAST_TILE;
    while (o->tile < hint && o->tile < MOST_TILE && 2 * o->tile * bytes <= t->group_bytes) o->tile *= 2;
    o->items = o->tile / 2;
    while (o->items > t->group_items && o->items > 1) o->items /= 2;
    plan_passes(o);
    o->first = k->nstep;
    add_step(o, k, "sort", size_mul(o->lists, size_ceil_div(o->n, o->tile)));
    for (int i = 0; i < o->passes; i++) add_step(o, k, "merge", size_mul(blocks_of(o), has_runs(o, o->width[i])));
    const int64_t elements = size_mul(o->lists, o->n);
    const int buffers = o->passes ? 2 : writes_itself(o) ? 0 : 1;
    for (int i = 0; i < buffers; i++) {
        k->work_bytes[k->nwork++] = kernel_lines(size_mul(elements, bytes_of(o->key)));
        k->work_bytes[k->nwork++] = kernel_lines(size_mul(elements, bytes_of(o->at)));
    }
    k->items = o->items;
    k->shared_bytes = o->tile * bytes;
}

/* Declares pointers to the lists' keys and places, in the first work buffers or the second ones. */
static void put_pointers(const struct order *o, struct text *out, const char *prefix, bool second, bool read)
{
    const char *qualifier = read ? "const " : "";
    const int operand = o->operand + (second ? 2 : 0);
    print_operand(out, o->target, arena_printf(out->arena, "%skeys", prefix),
                  arena_printf(out->arena, "%s%s", qualifier, o->key), operand);
    print_operand(out, o->target, arena_printf(out->arena, "%splaces", prefix),
                  arena_printf(out->arena, "%s%s", qualifier, o->at), operand + 1);
}

static void put_exchange(const struct order *o, struct text *out)
{
    text_open(out, "for (int span = 2; span <= %d; span *= 2) {", o->tile);
    text_open(out, "for (int by = span / 2; by > 0; by /= 2) {");
    text_line(out, "@BARRIER;");
    text_open(out, "for (int k = 0; k < %d; k++) {", o->tile / 2 / o->items);
    text_line(out, "const int i = k * %d + item;", o->items);
    text_line(out, "const int low = 2 * i - (i & (by - 1)), high = low + by;");
    text_line(out, "const %s key = keys_[low], other = keys_[high];", o->key);
    text_line(out, "const %s place = places_[low], behind = places_[high];", o->at);
    text_open(out, "if ((other < key || (other == key && behind < place)) != ((low & span) != 0)) {");
    text_line(out, "keys_[low] = other, keys_[high] = key;");
    text_line(out, "places_[low] = behind, places_[high] = place;");
    text_close(out, "}");
    for (int i = 0; i < 3; i++) text_close(out, "}");
    text_line(out, "@BARRIER;");
}

/* What is wanted of a sorted tile. */
static void put_sorted(const struct order *o, struct text *out)
{
    text_open(out, "for (int k = 0; k < %d; k++) {", o->tile / o->items);
    text_line(out, "const int64_t at = k * %d + item;", o->items);
    text_line(out, "if (first + at >= %lld || at >= %lld) continue;", (long long)o->n, (long long)o->keep);
    if (writes_itself(o)) {
        text_line(out, "const int64_t place = places_[at];");
        o->print_element(o->user, out);
    } else {
        text_line(out, "keys[list * %lld + first + at] = keys_[at];", (long long)o->n);
        text_line(out, "places[list * %lld + first + at] = places_[at];", (long long)o->n);
    }
    text_close(out, "}");
}

static void put_sort(const struct order *o, struct text *out)
{
    const int64_t tiles = size_ceil_div(o->n, o->tile);
    const char *last = strcmp(o->key, "int32_t") ? "INT64_MAX" : "2147483647";
    kernel_open(out, o->first);
    text_line(out, "(void)f;");
    o->inputs(o->user, out);
    if (writes_itself(o))
        o->outputs(o->user, out);
    else
        put_pointers(o, out, "", false, false);
    text_line(out, "@SHARED %s *const keys_ = (@SHARED %s *)shared_;", o->key, o->key);
    text_line(out, "@SHARED %s *const places_ = (@SHARED %s *)(shared_ + %d);", o->at, o->at,
              o->tile * bytes_of(o->key));
    text_line(out, "const int item = (int)@ITEM;");
    text_open(out, "for (int64_t task = task0; task < task1; ++task) {");
    text_line(out, "const int64_t list = task / %lld, first = task %% %lld * %d;", (long long)tiles, (long long)tiles,
              o->tile);
    text_open(out, "for (int k = 0; k < %d; k++) {", o->tile / o->items);
    text_line(out, "const int i = k * %d + item;", o->items);
    text_line(out, "const int64_t at = first + i;");
    text_line(out, "%s key = %s;", o->key, last);
    text_open(out, "if (at < %lld) {", (long long)o->n);
    o->print_key(o->user, out);
    text_close(out, "}");
    text_line(out, "keys_[i] = key;");
    text_line(out, "places_[i] = (%s)at;", o->at);
    text_close(out, "}");
    put_exchange(o, out);
    put_sorted(o, out);
    text_close(out, "}");
    kernel_close(out);
}

/* The first step of a search in a run: a power of two, at least the number of elements that are wanted of it. */
static int64_t first_step(const struct order *o, int64_t width)
{
    int64_t step = 1;
    while (step < width && step < size_most(o->keep)) step *= 2;
    return step;
}

/* The number of elements in front of this one in each of some runs, which are searched in step so that their reads do
 * not wait for each other. Of equal elements, those of earlier runs are in front. */
static void put_searches(const struct order *o, struct text *out, int pass, int ways)
{
    const long long width = o->width[pass];
    text_line(out, "int count[%d];", ways);
    text_line(out, "for (int i = 0; i < %d; i++) count[i] = 0;", ways);
    text_open(out, "for (int step = %lld; step > 0; step /= 2) {", (long long)first_step(o, width));
    text_open(out, "for (int i = 0; i < %d; i++) {", ways);
    text_line(out, "const int64_t start = from + i * %lld, last = start + count[i] + step - 1;", width);
    text_open(out, "if (start != run && last < end && count[i] + step <= most) {");
    text_line(out, "const %s other = keys[last];", o->key);
    text_line(out, "count[i] += other < key || (other == key && start < at) ? step : 0;");
    for (int i = 0; i < 3; i++) text_close(out, "}");
    text_line(out, "for (int i = 0; i < %d; i++) rank += count[i];", ways);
}

static void put_merge(const struct order *o, struct text *out, int pass)
{
    const long long n = o->n, width = o->width[pass], all = o->width[pass + 1], keep = o->keep;
    const long long blocks = size_ceil_div(o->n, o->items);
    const int ways = (int)MIN(WAYS, size_ceil_div(all, width));
    kernel_open(out, o->first + 1 + pass);
    text_line(out, "(void)f;");
    put_pointers(o, out, "old_", pass % 2, true);
    put_pointers(o, out, "new_", pass % 2 == 0, false);
    text_open(out, "for (int64_t task = task0; task < task1; ++task) {");
    text_line(out, "const int64_t list = task / %lld * %lld, at = task %% %lld * %d + @ITEM;", blocks, n, blocks,
              o->items);
    text_line(out, "const int64_t run = at / %lld * %lld, first = at / %lld * %lld;", width, width, all, all);
    text_line(out, "const int64_t end = @sol_min_i64(first + %lld, %lld), most = @sol_min_i64(%lld, %lld);", all, n,
              width, keep);
    text_line(out, "if (at >= end || at - run >= most) continue;");
    text_line(out, "@GLOBAL const %s *const keys = old_keys + list;", o->key);
    text_line(out, "const %s key = keys[at];", o->key);
    text_line(out, "int64_t rank = at - run;");
    text_open(out, "for (int64_t from = first; from < end; from += %lld) {", ways * width);
    put_searches(o, out, pass, ways);
    text_close(out, "}");
    text_open(out, "if (rank < %lld) {", keep);
    text_line(out, "new_keys[list + first + rank] = key;");
    text_line(out, "new_places[list + first + rank] = old_places[list + at];");
    text_close(out, "}");
    text_close(out, "}");
    kernel_close(out);
}

void order_print(const struct order *o, struct text *out)
{
    put_sort(o, out);
    for (int i = 0; i < o->passes; i++) put_merge(o, out, i);
}

/* Which of the two buffers is written last depends on the number of passes that run. */
void order_result(const struct order *o, struct text *out)
{
    int least = 0;
    struct text passes = text_new(out->arena);
    for (int i = 0; i < o->passes; i++) {
        const bool always = size_lt(o->width[i], o->n);
        least += always;
        if (!always) text_put(&passes, " + (%lld > %lld)", (long long)o->n, (long long)o->width[i]);
    }
    if (!passes.n) {
        put_pointers(o, out, "", least % 2, true);
        return;
    }
    put_pointers(o, out, "first_", false, true);
    put_pointers(o, out, "second_", true, true);
    text_line(out, "const int second = (%d%s) %% 2;", least, passes.at);
    text_line(out, "@GLOBAL const %s *const keys = second ? second_keys : first_keys;", o->key);
    text_line(out, "@GLOBAL const %s *const places = second ? second_places : first_places;", o->at);
}
