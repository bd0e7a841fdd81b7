/* Assigns offsets to blocks by their lifetimes. Inference takes blocks in the order in which they become live; each
 * gets the lowest gap that fits, which is also the memory used last and likely still in the cache. Training uses the
 * order by size, largest first, where that needs less memory. */
#include "schedule/schedule.h"

#include <limits.h>
#include <stdlib.h>

static int by_first(const void *a, const void *b)
{
    const struct block *x = *(struct block *const *)a, *y = *(struct block *const *)b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* Inserts b into the live blocks, which are sorted by offset. */
static int64_t insert(struct block **alive, int *n, struct block *b)
{
    int64_t at = 0;
    int i = 0;
    for (; i < *n; i++) {
        if (alive[i]->offset - at >= b->bytes) break;
        at = MAX(at, alive[i]->offset + alive[i]->bytes);
    }
    b->offset = at;
    for (int k = *n; k > i; k--) alive[k] = alive[k - 1];
    alive[i] = b;
    ++*n;
    return at + b->bytes;
}

/* Places blocks in order of their first step. Returns the total size. */
static int64_t assign_by_time(struct arena *a, struct block *blocks, int n, struct block *given, int ngiven,
                              int64_t room)
{
    struct block **order = NEW_ARRAY(a, struct block *, n + 1);
    struct block **alive = NEW_ARRAY(a, struct block *, n + ngiven + 2);
    struct block end_of_room = {.offset = room, .first = -1, .last = INT_MAX};
    for (int i = 0; i < n; i++) order[i] = &blocks[i];
    qsort(order, (size_t)n, sizeof *order, by_first);
    int64_t whole = room;
    int nalive = 0;
    for (int i = 0; i < ngiven; i++) alive[nalive++] = &given[i];
    if (room) alive[nalive++] = &end_of_room; /* no given block crosses it */
    for (int i = 0; i < n; i++) {
        int kept = 0;
        for (int k = 0; k < nalive; k++)
            if (alive[k]->last >= order[i]->first) alive[kept++] = alive[k];
        nalive = kept;
        int64_t end = insert(alive, &nalive, order[i]);
        whole = MAX(whole, end);
    }
    return whole;
}

static int by_size(const void *a, const void *b)
{
    const struct block *x = *(struct block *const *)a, *y = *(struct block *const *)b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return by_first(a, b);
}

/* Places blocks by size, largest first, each at the lowest offset that is free during its whole lifetime. */
static int64_t assign_by_size(struct arena *a, struct block *blocks, int n, struct block *given, int ngiven,
                              int64_t room)
{
    struct block **order = NEW_ARRAY(a, struct block *, n + 1);
    struct block **placed = NEW_ARRAY(a, struct block *, n + ngiven + 2); /* sorted by offset */
    struct block **near = NEW_ARRAY(a, struct block *, n + ngiven + 3);
    struct block end_of_room = {.offset = room, .first = -1, .last = INT_MAX};
    int64_t whole = room;
    int nplaced = 0;
    for (int i = 0; i < n; i++) order[i] = &blocks[i];
    qsort(order, (size_t)n, sizeof *order, by_size);
    for (int i = 0; i < ngiven; i++) placed[nplaced++] = &given[i];
    if (room) placed[nplaced++] = &end_of_room;
    for (int i = 0; i < n; i++) {
        struct block *b = order[i];
        int nnear = 0;
        for (int k = 0; k < nplaced; k++)
            if (placed[k]->first <= b->last && placed[k]->last >= b->first) near[nnear++] = placed[k];
        int64_t end = insert(near, &nnear, b);
        whole = MAX(whole, end);
        int at = nplaced++;
        for (; at && placed[at - 1]->offset > b->offset; at--) placed[at] = placed[at - 1];
        placed[at] = b;
    }
    return whole;
}

int64_t offsets_assign(struct arena *a, struct block *blocks, int n, struct block *given, int ngiven, int64_t room)
{
    for (int i = 0; i < n; i++) blocks[i].bytes = (blocks[i].bytes + 63) / 64 * 64;
    const int64_t by_time = assign_by_time(a, blocks, n, given, ngiven, room);
    if (!room) return by_time; /* the memory that inference used last is still in the cache */
    if (assign_by_size(a, blocks, n, given, ngiven, room) < by_time)
        return assign_by_size(a, blocks, n, given, ngiven, room);
    return assign_by_time(a, blocks, n, given, ngiven, room);
}
