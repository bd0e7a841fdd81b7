/* Memory of the double: closed addresses with memory elsewhere. New memory is full of NaN. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "nvidia.h"

#define PAGE ((size_t)4096)

struct range {
    struct range *next; /* by address */
    size_t begin, bytes;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct range *ranges;
static char *closed;
static size_t span, used, turn;

static size_t limit(void)
{
    return (size_t)setting("memory", 4000000000);
}

static bool begin(void)
{
    if (closed) return true;
    span = (limit() / PAGE + 4096) * PAGE * 4;
    closed = mmap(NULL, 2 * span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (closed != MAP_FAILED) return true;
    closed = NULL;
    return false;
}

long memory_span(void)
{
    return (long)span;
}

size_t memory_there(void)
{
    return limit() - used;
}

/* The gap behind which a range of so many bytes fits, with a closed page on both sides; from `turn` on, so that
 * addresses are not soon in use again. */
static struct range **find(size_t from, size_t bytes, size_t *out_begin)
{
    struct range **at = &ranges;
    size_t end = from + PAGE;
    for (; *at; at = &(*at)->next) {
        if ((*at)->begin >= end + bytes + PAGE) break;
        if ((*at)->begin + (*at)->bytes + PAGE > end) end = (*at)->begin + (*at)->bytes + PAGE;
    }
    *out_begin = end;
    return end + bytes + PAGE <= span ? at : NULL;
}

static int take(uint64_t *out, size_t bytes)
{
    const size_t size = (bytes + PAGE - 1) / PAGE * PAGE;
    size_t at = 0;
    if (!begin() || bytes > limit() - used) return 2;
    struct range *r = malloc(sizeof *r), **place = find(turn, size, &at);
    if (!place) place = find(0, size, &at);
    if (!r || !place || mprotect(closed + span + at, size, PROT_READ | PROT_WRITE)) {
        free(r);
        return 2;
    }
    *r = (struct range){*place, at, bytes};
    *place = r;
    turn = at + size;
    used += bytes;
    memset(closed + span + at, 0xff, bytes);
    *out = (uint64_t)(uintptr_t)(closed + at);
    return 0;
}

int memory_alloc(uint64_t *out, size_t bytes)
{
    pthread_mutex_lock(&lock);
    const int error = bytes ? take(out, bytes) : 1;
    pthread_mutex_unlock(&lock);
    return error;
}

int memory_free(uint64_t p)
{
    pthread_mutex_lock(&lock);
    struct range **at = &ranges, *r;
    const size_t begins = p - (uint64_t)(uintptr_t)closed;
    while (*at && (*at)->begin != begins) at = &(*at)->next;
    r = *at;
    if (r) {
        const size_t size = (r->bytes + PAGE - 1) / PAGE * PAGE;
        *at = r->next;
        used -= r->bytes;
        madvise(closed + span + begins, size, MADV_DONTNEED);
        mprotect(closed + span + begins, size, PROT_NONE);
        free(r);
    }
    pthread_mutex_unlock(&lock);
    return r ? 0 : 1;
}

bool memory_has(uint64_t p, size_t bytes)
{
    bool has = false;
    const size_t from = p - (uint64_t)(uintptr_t)closed;
    pthread_mutex_lock(&lock);
    for (const struct range *r = ranges; r && !has; r = r->next)
        has = from >= r->begin && bytes <= r->bytes && from - r->begin <= r->bytes - bytes;
    pthread_mutex_unlock(&lock);
    return has;
}
