/* Lifetimes to offsets: blocks in the order in which they come to life take the lowest gap that fits, which is also
 * where memory was used last and is likely to be in the cache. */
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

/* Inserts b among the blocks alive, which are sorted by offset. */
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

int64_t offsets_assign(struct arena *a, struct block *blocks, int n, struct block *given, int ngiven, int64_t room)
{
    struct block **order = NEW_ARRAY(a, struct block *, n + 1);
    struct block **alive = NEW_ARRAY(a, struct block *, n + ngiven + 2);
    struct block end_of_room = {.offset = room, .first = -1, .last = INT_MAX};
    for (int i = 0; i < n; i++) {
        blocks[i].bytes = (blocks[i].bytes + 63) / 64 * 64;
        order[i] = &blocks[i];
    }
    qsort(order, (size_t)n, sizeof *order, by_first);
    int64_t whole = room;
    int nalive = 0;
    for (int i = 0; i < ngiven; i++) alive[nalive++] = &given[i];
    if (room) alive[nalive++] = &end_of_room; /* nothing lies across it */
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
