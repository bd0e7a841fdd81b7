/* The device's memory, and what libveda.vso does there: a table of virtual pointers. */
#include "double.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SPAN (INT64_C(1) << 36) /* bytes of addresses */
#define REFERENCES (1 << 22)
#define REFERENCE(v) ((v) >> 37 & (REFERENCES - 1))
#define OFFSET(v) ((v) & ((UINT64_C(1) << 37) - 1))
enum { APART = 4096 + 16, UNKNOWN = 34, OUT_OF_BOUNDS = 23, MISSING = 44 }; /* VEDA's errors */

struct block {
    struct block *next;
    uint64_t at;
    size_t bytes;
};
static struct {
    pthread_mutex_t lock; /* for all below */
    char *closed;
    struct block *blocks; /* by address */
    size_t used;
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER};
static struct {
    uint64_t at;
    size_t bytes;
} * table; /* by reference; only the device's thread uses it */

bool memory_begin(void)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (memory.closed) return true;
    memory.closed = mmap(NULL, 2 * SPAN, PROT_NONE, flags, -1, 0);
    table = mmap(NULL, REFERENCES * sizeof *table, PROT_READ | PROT_WRITE, flags, -1, 0);
    return memory.closed != MAP_FAILED && (void *)table != MAP_FAILED;
}

/* In the first gap that is large enough. Addresses are multiples of 16 only, as those of malloc are. */
uint64_t memory_take(size_t bytes)
{
    struct block *b = malloc(sizeof *b), **at = &memory.blocks;
    pthread_mutex_lock(&memory.lock);
    uint64_t begin = (uint64_t)(uintptr_t)memory.closed + APART;
    const size_t room = (bytes + 2 * APART) / 4096 * 4096;
    const bool fits = b && memory.used + bytes <= (size_t)setting("memory", 4000000000);
    for (; fits && *at && begin + room > (*at)->at; at = &(*at)->next)
        begin = (*at)->at + ((*at)->bytes + 2 * APART) / 4096 * 4096;
    if (fits) {
        *b = (struct block){*at, begin, bytes};
        *at = b;
        memory.used += bytes;
        mprotect((char *)(uintptr_t)(begin / 4096 * 4096) + SPAN, room, PROT_READ | PROT_WRITE);
        memset((char *)(uintptr_t)begin + SPAN, 0xff, bytes);
    }
    pthread_mutex_unlock(&memory.lock);
    if (!fits) free(b);
    return fits ? begin : 0;
}

void memory_give(uint64_t begin)
{
    pthread_mutex_lock(&memory.lock);
    struct block **at = &memory.blocks, *b;
    while (*at && (*at)->at != begin) at = &(*at)->next;
    if ((b = *at)) {
        *at = b->next;
        memory.used -= b->bytes;
        mmap((char *)(uintptr_t)(begin / 4096 * 4096) + SPAN, (b->bytes + 2 * APART) / 4096 * 4096, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    }
    pthread_mutex_unlock(&memory.lock);
    free(b);
}

char *memory_open(uint64_t begin, size_t bytes)
{
    pthread_mutex_lock(&memory.lock);
    const struct block *b = memory.blocks;
    while (b && !(begin >= b->at && begin + bytes <= b->at + b->bytes)) b = b->next;
    pthread_mutex_unlock(&memory.lock);
    return b ? (char *)(uintptr_t)begin + SPAN : NULL;
}

/* -- libveda.vso */

static char *open_virtual(uint64_t v, size_t bytes)
{
    const uint64_t at = table[REFERENCE(v)].at;
    return at ? memory_open(at + OFFSET(v), bytes) : NULL;
}

/* Called by code of the device, which may use the memory. */
API int vedaMemPtr(void **out, void *v)
{
    *out = open_virtual((uint64_t)(uintptr_t)v, 0);
    return *out ? 0 : UNKNOWN;
}

static uint64_t mem_alloc(uint64_t v, size_t bytes)
{
    if (!table[REFERENCE(v)].at) {
        table[REFERENCE(v)].at = memory_take(bytes);
        table[REFERENCE(v)].bytes = bytes;
    }
    return table[REFERENCE(v)].at;
}

static int mem_free(uint64_t v)
{
    memory_give(table[REFERENCE(v)].at);
    table[REFERENCE(v)].at = 0;
    return 0;
}

static int copy_on_device(uint64_t to, uint64_t from, size_t bytes)
{
    char *a = open_virtual(to, bytes), *b = open_virtual(from, bytes);
    if (!a || !b) return OUT_OF_BOUNDS;
    memcpy(a, b, bytes);
    return 0;
}

static int fill_bytes(uint64_t to, uint8_t value, size_t bytes)
{
    char *a = open_virtual(to, bytes);
    if (!a) return OUT_OF_BOUNDS;
    memset(a, value, bytes);
    return 0;
}

/* Where the memory of virtual pointers is, for copies of the host. `out` is on the host. */
static int mem_info(size_t n, const uint64_t *v, uint64_t (*out)[2])
{
    for (size_t i = 0; i < n; i++) {
        out[i][0] = table[REFERENCE(v[i])].at;
        out[i][1] = table[REFERENCE(v[i])].bytes;
    }
    return 0;
}

static int missing(void)
{
    return MISSING;
}

void *memory_function(const char *name)
{
    static const struct {
        const char *name;
        void *function;
    } functions[] = {{"veda_mem_alloc", (void *)mem_alloc},
                     {"veda_mem_free", (void *)mem_free},
                     {"veda_memcpy_d2d", (void *)copy_on_device},
                     {"veda_memset_u8", (void *)fill_bytes},
                     {"veda_mem_info", (void *)mem_info}};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (!strcmp(functions[i].name, name)) return functions[i].function;
    return (void *)missing;
}
