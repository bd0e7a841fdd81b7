/* The arena allocates by moving an offset, and frees everything at once.
 *
 * Blocks grow geometrically. They come from the application's allocator, or from mmap without one. If allocation fails,
 * the arena marks the context and continues with other memory: first from mmap, then from the reserve, a range of
 * addresses that all arenas of the context share and reuse. The next ctx_check discards what was computed after the
 * failure, so this memory only has to be safe to write. */
#include "base/base.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/context.h"

#if defined __SANITIZE_ADDRESS__
#define POISON 1
#elif defined __has_feature
#if __has_feature(address_sanitizer)
#define POISON 1
#endif
#endif
#ifdef POISON
#include <sanitizer/asan_interface.h>
enum { RED_ZONE = 16 };    /* between allocations, to detect writes past the end */
#define BLOCKS_FROM_MMAP 0 /* the leak checker looks for pointers in memory from malloc only */
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
enum { RED_ZONE = 0 };
#define BLOCKS_FROM_MMAP 1
#endif

enum { ALIGN = 16, FIRST_BLOCK = 64 << 10, LARGEST_BLOCK = 16 << 20 };

enum origin { FROM_APPLICATION, FROM_SYSTEM };
struct block { /* precedes the memory that it describes */
    struct block *older;
    size_t bytes, used; /* both with this header */
    enum origin origin;
    int64_t number; /* in the order in which the arena got its blocks */
};
struct arena {
    struct sol_ctx *ctx;
    struct block *newest;
    size_t next_bytes; /* of the next block */
    int64_t blocks;    /* that the arena got so far */
};

static size_t round_up(size_t n)
{
    return (n + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

static void *system_map(size_t bytes, int protection)
{
    void *p = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

struct arena *arena_create(struct sol_ctx *ctx)
{
    struct arena *a = ctx_realloc(ctx, NULL, sizeof *a);
    if (!a) return NULL;
    *a = (struct arena){.ctx = ctx, .next_bytes = FIRST_BLOCK};
    return a;
}

static void free_block(struct arena *a, struct block *b)
{
    const size_t bytes = b->bytes;
    ASAN_UNPOISON_MEMORY_REGION(b, bytes);
    if (b->origin == FROM_APPLICATION)
        ctx_free(a->ctx, b);
    else
        munmap(b, bytes);
}

void arena_destroy(struct arena *a)
{
    if (!a) return;
    for (struct block *b = a->newest, *older; b; b = older) {
        older = b->older;
        free_block(a, b);
    }
    ctx_free(a->ctx, a);
}

struct sol_ctx *arena_ctx(const struct arena *a)
{
    return a->ctx;
}

/* Returns a block with room for n bytes, or NULL. With `insist` it asks the system if the application's allocator
 * fails. */
static struct block *add_block(struct arena *a, size_t n, bool insist)
{
    if (n > SIZE_MAX / 2) return NULL;
    size_t bytes = MAX(a->next_bytes, round_up(sizeof(struct block)) + n);
    struct block *b = NULL;
    enum origin origin = FROM_SYSTEM;
    bool ask = a->ctx->options.reallocate || !BLOCKS_FROM_MMAP;
    if (ask) {
        b = ctx_allocate(a->ctx, bytes);
        origin = FROM_APPLICATION;
        if (!b && insist) ctx_out_of_memory(a->ctx, bytes);
    }
    if (!b && (insist || !ask)) {
        b = system_map(bytes, PROT_READ | PROT_WRITE);
        origin = FROM_SYSTEM;
    }
    if (!b) return NULL;
    *b = (struct block){
        .older = a->newest, .bytes = bytes, .used = round_up(sizeof *b), .origin = origin, .number = ++a->blocks};
    ASAN_POISON_MEMORY_REGION((char *)b + b->used, bytes - b->used);
    struct block *newest = a->newest;
    if (newest && bytes - b->used - n < newest->bytes - newest->used) { /* a large request leaves the newest in use */
        b->older = newest->older;
        newest->older = b;
    } else {
        a->newest = b;
        a->next_bytes = MIN(a->next_bytes * 2, LARGEST_BLOCK);
    }
    return b;
}

static void *take(struct arena *a, size_t bytes, bool insist)
{
    if (bytes > SIZE_MAX / 4) return insist ? ctx_reserve(a->ctx, bytes) : NULL;
    size_t need = round_up(MAX(bytes, 1)) + RED_ZONE;
    struct block *b = a->newest;
    if (!b || b->bytes - b->used < need) b = add_block(a, need, insist);
    if (!b) return insist ? ctx_reserve(a->ctx, bytes) : NULL;
    char *p = (char *)b + b->used;
    b->used += need;
    ASAN_UNPOISON_MEMORY_REGION(p, bytes);
    if (b->origin == FROM_APPLICATION) memset(p, 0, bytes);
    return p;
}

void *arena_alloc(struct arena *a, size_t bytes)
{
    return take(a, bytes, true);
}

void *arena_try(struct arena *a, size_t bytes)
{
    return take(a, bytes, false);
}

size_t arena_bytes(const struct arena *a)
{
    size_t bytes = 0;
    for (const struct block *b = a->newest; b; b = b->older) bytes += b->used;
    return bytes;
}

struct arena_mark arena_mark(struct arena *a)
{
    if (!a->newest) add_block(a, 0, false); /* which stays, so that few marks ask the system for memory */
    return (struct arena_mark){a->newest, a->newest ? a->newest->used : 0, a->next_bytes, a->blocks};
}

void arena_rewind(struct arena *a, struct arena_mark mark)
{
    for (struct block **at = &a->newest; *at;) {
        struct block *b = *at;
        if (b->number > mark.blocks) {
            *at = b->older;
            free_block(a, b);
        } else {
            at = &b->older;
        }
    }
    a->next_bytes = mark.next_bytes;
    if (!mark.newest) return;
    char *from = (char *)mark.newest + mark.used;
    const size_t bytes = mark.newest->used - mark.used;
    ASAN_UNPOISON_MEMORY_REGION(from, bytes);
    memset(from, 0, bytes);
    ASAN_POISON_MEMORY_REGION(from, bytes);
    mark.newest->used = mark.used;
}

char *arena_printf(struct arena *a, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = arena_alloc(a, (size_t)MAX(n, 0) + 1);
    va_start(args, format);
    if (n > 0) vsnprintf(text, (size_t)n + 1, format, args);
    va_end(args);
    return text;
}

char *arena_strdup(struct arena *a, const char *text)
{
    return text ? arena_memdup(a, text, strlen(text) + 1) : NULL;
}

void *arena_memdup(struct arena *a, const void *data, size_t bytes)
{
    void *p = arena_alloc(a, bytes);
    if (bytes) memcpy(p, data, bytes);
    return p;
}

void *vector_grow(struct arena *a, void *at, int *room, size_t size)
{
    int n = *room;
    *room = n ? n * 2 : 8;
    void *p = arena_alloc(a, (size_t)*room * size);
    if (n) memcpy(p, at, (size_t)n * size);
    return p;
}
