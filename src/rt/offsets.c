/* Assigns offsets to blocks by their lifetimes. Inference takes blocks in the order in which they become live; each
 * gets the lowest gap that fits, which is also the memory used last and likely still in the cache. Training uses the
 * order by size, largest first, where that needs less memory. */
#include "rt/rt.h"

#include <limits.h>
#include <stdlib.h>

#define HURRY 20000 /* comparisons that the order by size may need: some 25 us */

static int64_t maximum(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

static int by_first(const void *a, const void *b)
{
    const struct rt_block *x = *(struct rt_block *const *)a, *y = *(struct rt_block *const *)b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* Inserts b into the live blocks, which are sorted by offset. */
static int64_t insert_block(struct rt_block **alive, int *n, struct rt_block *b)
{
    int64_t at = 0;
    int i = 0;
    for (; i < *n; i++) {
        if (alive[i]->offset - at >= b->bytes) break;
        at = maximum(at, alive[i]->offset + alive[i]->bytes);
    }
    b->offset = at;
    for (int k = *n; k > i; k--) alive[k] = alive[k - 1];
    alive[i] = b;
    ++*n;
    return at + b->bytes;
}

/* Places blocks in order of their first step. Returns the total size. */
static int64_t assign_by_time(const struct rt_layout *l)
{
    struct rt_block **order = l->memory, **alive = order + l->n;
    struct rt_block end_of_room = {.offset = l->room, .first = -1, .last = INT_MAX};
    for (int i = 0; i < l->n; i++) order[i] = &l->block[i];
    qsort(order, (size_t)l->n, sizeof *order, by_first);
    int64_t whole = l->room;
    int nalive = 0, next = -1; /* the step behind which a live block dies next, or an earlier one */
    for (int i = 0; i < l->ngiven; i++) alive[nalive++] = &l->given[i];
    if (l->room) alive[nalive++] = &end_of_room; /* no given block crosses it */
    for (int i = 0; i < l->n; i++) {
        if (next < order[i]->first) {
            int kept = 0;
            next = INT_MAX;
            for (int k = 0; k < nalive; k++) {
                if (alive[k]->last < order[i]->first) continue;
                next = smaller(next, alive[k]->last);
                alive[kept++] = alive[k];
            }
            nalive = kept;
        }
        next = smaller(next, order[i]->last);
        int64_t end = insert_block(alive, &nalive, order[i]);
        whole = maximum(whole, end);
    }
    return whole;
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
    struct rt_block **order = l->memory, **placed = order + l->n; /* sorted by offset */
    struct rt_block **near = placed + l->n + l->ngiven + 1;
    struct rt_block end_of_room = {.offset = l->room, .first = -1, .last = INT_MAX};
    int64_t whole = l->room;
    int nplaced = 0;
    for (int i = 0; i < l->n; i++) order[i] = &l->block[i];
    qsort(order, (size_t)l->n, sizeof *order, by_size);
    for (int i = 0; i < l->ngiven; i++) placed[nplaced++] = &l->given[i];
    if (l->room) placed[nplaced++] = &end_of_room;
    for (int i = 0; i < l->n; i++) {
        struct rt_block *b = order[i];
        int nnear = 0;
        for (int k = 0; k < nplaced; k++)
            if (placed[k]->first <= b->last && placed[k]->last >= b->first) near[nnear++] = placed[k];
        int64_t end = insert_block(near, &nnear, b);
        whole = maximum(whole, end);
        int at = nplaced++;
        for (; at && placed[at - 1]->offset > b->offset; at--) placed[at] = placed[at - 1];
        placed[at] = b;
    }
    return whole;
}

size_t rt_offsets_bytes(int n, int ngiven)
{
    return (size_t)(3 * n + 2 * ngiven + 2) * sizeof(struct rt_block *);
}

int64_t rt_offsets(const struct rt_layout *l)
{
    for (int i = 0; i < l->n; i++) l->block[i].bytes = (l->block[i].bytes + 63) / 64 * 64;
    const int64_t by_time = assign_by_time(l);
    if (!l->room) return by_time; /* the memory that inference used last is still in the cache */
    if (l->hurry && (int64_t)l->n * (l->n + l->ngiven) > HURRY) return by_time;
    if (assign_by_size(l) < by_time) return assign_by_size(l);
    return assign_by_time(l);
}
