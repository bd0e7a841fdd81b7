/* Assigns offsets to blocks by their lifetimes. Inference takes blocks in the order in which they become live; each
 * gets the lowest gap that fits, which is also the memory used last and likely still in the cache. Training uses the
 * order by size, largest first, where that needs less memory. */
#include "rt/rt.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define HURRY 20000 /* comparisons that the order by size may need: some 10 us */

static int64_t maximum(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* A block that has its place, as the order by size sees it. */
struct place {
    int64_t begin, end;
    int first, last;
};

/* Ranges (by time) or places (by size), which are larger: given blocks and the end of the room are among them. */
static size_t blocks_bytes(int n, int ngiven)
{
    return ((size_t)(n + ngiven) + 2) * sizeof(struct place);
}

/* Offsets by time, which stay while those by size are tried. */
static int64_t *kept_of(const struct rt_layout *l)
{
    return (int64_t *)((char *)l->memory + blocks_bytes(l->n, l->ngiven));
}

static struct rt_block **pointers_of(const struct rt_layout *l)
{
    return (struct rt_block **)(kept_of(l) + l->n);
}

static int by_first(const void *a, const void *b)
{
    const struct rt_block *x = *(struct rt_block *const *)a, *y = *(struct rt_block *const *)b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* Sorts by the last step. */
static int by_last(const void *a, const void *b)
{
    const struct rt_block *x = *(struct rt_block *const *)a, *y = *(struct rt_block *const *)b;
    if (x->last != y->last) return x->last < y->last ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* -- in the order of time: what is free are ranges without contact, so they are few. */

struct space {
    struct rt_range *range; /* sorted; the last has no end */
    int n;
    int64_t room, end; /* no range crosses the room's end; the end of the memory so far */
};

static void insert_range(struct space *s, int at, struct rt_range r)
{
    for (int k = s->n++; k > at; k--) s->range[k] = s->range[k - 1];
    s->range[at] = r;
}

static void remove_range(struct space *s, int at)
{
    s->n--;
    for (int k = at; k < s->n; k++) s->range[k] = s->range[k + 1];
}

/* Takes memory for b from the lowest range that is large enough. */
static void take_range(struct space *s, struct rt_block *b)
{
    int i = 0;
    b->offset = 0;
    if (!b->bytes) return;
    while (s->range[i].end - s->range[i].begin < b->bytes) i++;
    b->offset = s->range[i].begin;
    s->range[i].begin += b->bytes;
    s->end = maximum(s->end, s->range[i].begin);
    if (s->range[i].begin == s->range[i].end) remove_range(s, i);
}

/* Gives back the memory of b, which joins the free ranges that it touches. */
static void give_range(struct space *s, const struct rt_block *b)
{
    const int64_t begin = b->offset, end = begin + b->bytes;
    int low = 0, high = s->n - 1; /* finds the first range behind b; the last is behind all blocks */
    if (!b->bytes) return;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (s->range[middle].begin < end)
            low = middle + 1;
        else
            high = middle;
    }
    const int before = low && s->range[low - 1].end == begin && begin != s->room;
    const int behind = s->range[low].begin == end && end != s->room;
    if (before) s->range[low - 1].end = behind ? s->range[low].end : end;
    if (before && behind)
        remove_range(s, low);
    else if (behind)
        s->range[low].begin = begin;
    else if (!before)
        insert_range(s, low, (struct rt_range){begin, end});
}

/* What the given blocks leave free. */
static void begin_space(const struct rt_layout *l, struct space *s)
{
    int64_t at = 0;
    for (int i = 0; i <= l->ngiven; i++) {
        const struct rt_block end = {.offset = l->room, .bytes = 1}, *b = i < l->ngiven ? &l->given[i] : &end;
        if (!b->bytes) continue;
        if (at < b->offset) s->range[s->n++] = (struct rt_range){at, b->offset};
        at = b->offset + b->bytes;
    }
    s->range[s->n++] = (struct rt_range){l->room, INT64_MAX};
}

/* Places blocks in order of their first step. Returns the total size. */
static int64_t assign_by_time(const struct rt_layout *l)
{
    struct rt_block **order = pointers_of(l), **dies = order + l->n;
    struct space space = {.range = l->memory, .room = l->room, .end = l->room};
    int ndies = 0, dead = 0;
    for (int i = 0; i < l->n; i++) order[i] = dies[ndies++] = &l->block[i];
    for (int i = 0; i < l->ngiven; i++) dies[ndies++] = &l->given[i];
    qsort(order, (size_t)l->n, sizeof *order, by_first);
    qsort(dies, (size_t)ndies, sizeof *dies, by_last);
    begin_space(l, &space);
    for (int i = 0; i < l->n; i++) {
        for (; dies[dead]->last < order[i]->first; dead++) give_range(&space, dies[dead]);
        take_range(&space, order[i]);
    }
    return space.end;
}

/* -- by size */

/* The lowest offset that is free during the lifetime of b, beside places that are sorted by their begin. */
static int64_t free_offset(const struct place *placed, int n, const struct rt_block *b)
{
    int64_t at = 0;
    for (int i = 0; i < n; i++) {
        if (placed[i].first > b->last || placed[i].last < b->first) continue;
        if (placed[i].begin - at >= b->bytes) break;
        at = maximum(at, placed[i].end);
    }
    return at;
}

/* Behind those that begin at the same offset. */
static void insert_place(struct place *placed, int n, const struct rt_block *b)
{
    int low = 0, high = n;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (placed[middle].begin > b->offset)
            high = middle;
        else
            low = middle + 1;
    }
    memmove(placed + low + 1, placed + low, (size_t)(n - low) * sizeof *placed);
    placed[low] = (struct place){b->offset, b->offset + b->bytes, b->first, b->last};
}

static int by_size(const void *a, const void *b)
{
    const struct rt_block *x = *(struct rt_block *const *)a, *y = *(struct rt_block *const *)b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return by_first(a, b);
}

/* Places blocks by size, largest first, each at the lowest offset that is free during its whole lifetime. */
static int64_t assign_by_size(const struct rt_layout *l)
{
    struct rt_block **order = pointers_of(l);
    struct place *placed = l->memory; /* sorted by begin */
    int64_t whole = l->room;
    int n = 0;
    for (int i = 0; i < l->n; i++) order[i] = &l->block[i];
    qsort(order, (size_t)l->n, sizeof *order, by_size);
    for (int i = 0; i < l->ngiven; i++) {
        const struct rt_block *b = &l->given[i];
        placed[n++] = (struct place){b->offset, b->offset + b->bytes, b->first, b->last};
    }
    if (l->room) placed[n++] = (struct place){l->room, l->room, -1, INT_MAX};
    for (int i = 0; i < l->n; i++) {
        order[i]->offset = free_offset(placed, n, order[i]);
        whole = maximum(whole, order[i]->offset + order[i]->bytes);
        insert_place(placed, n++, order[i]);
    }
    return whole;
}

int rt_offsets_pointers(int n, int ngiven)
{
    return 2 * n + ngiven;
}

size_t rt_offsets_bytes(int n, int ngiven)
{
    return blocks_bytes(n, ngiven) + (size_t)n * sizeof(int64_t) +
           (size_t)rt_offsets_pointers(n, ngiven) * sizeof(struct rt_block *);
}

int64_t rt_offsets(const struct rt_layout *l)
{
    int64_t *kept = kept_of(l);
    for (int i = 0; i < l->n; i++) l->block[i].bytes = (l->block[i].bytes + 63) / 64 * 64;
    const int64_t by_time = assign_by_time(l);
    if (!l->room) return by_time; /* the memory that inference used last is still in the cache */
    if (by_time == l->room) return by_time;
    if (l->hurry && (int64_t)l->n * (l->n + l->ngiven) > HURRY) return by_time;
    for (int i = 0; i < l->n; i++) kept[i] = l->block[i].offset;
    const int64_t by_bytes = assign_by_size(l);
    if (by_bytes < by_time) return by_bytes;
    for (int i = 0; i < l->n; i++) l->block[i].offset = kept[i];
    return by_time;
}
