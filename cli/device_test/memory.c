/* Memory: alloc, free, and the commands that move bytes. */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum { ALIGN = 256, PIECES = 64, AROUND = 600 };

static enum verdict allocations_are_disjoint(struct bench *b)
{
    static const int64_t sizes[] = {1, 255, 256, 257, 4096, 70001, 3};
    struct sol_failure why = failure_new();
    struct {
        sol_ptr raw;
        int64_t bytes;
    } piece[PIECES];
    for (int i = 0; i < PIECES; i++) {
        piece[i].bytes = sizes[i % COUNT_OF(sizes)];
        const sol_status status = b->type->alloc(b->device, piece[i].bytes, &piece[i].raw, &why);
        WANT(!status, "64 small pieces of memory", "piece %d of %lld bytes: %s", i, (long long)piece[i].bytes,
             why.text);
        WANT(piece[i].raw && piece[i].raw % ALIGN == 0, "an address that is not 0 and a multiple of 256", "%#llx",
             (unsigned long long)piece[i].raw);
        for (int k = 0; k < i; k++)
            WANT(piece[k].raw + (sol_ptr)piece[k].bytes <= piece[i].raw ||
                     piece[i].raw + (sol_ptr)piece[i].bytes <= piece[k].raw,
                 "ranges that are disjoint", "%lld bytes at %#llx and %lld bytes at %#llx", (long long)piece[k].bytes,
                 (unsigned long long)piece[k].raw, (long long)piece[i].bytes, (unsigned long long)piece[i].raw);
    }
    for (int i = 0; i < PIECES; i++) b->type->free(b->device, piece[(i * 7) % PIECES].raw);
    return GOOD;
}

static enum verdict too_much_is_refused(struct bench *b)
{
    struct sol_failure why = failure_new();
    sol_ptr raw = 1;
    sol_status status = b->type->alloc(b->device, INT64_C(1) << 50, &raw, &why);
    WANT(status == SOL_ERR_NOMEM, "SOL_ERR_NOMEM for 2^50 bytes", "status %d, '%s'", status, why.text);
    WANT(says_why(&why) && strpbrk(why.text, "0123456789"), "a text with the bytes that are there", "'%s'", why.text);
    why = failure_new();
    status = b->type->alloc(b->device, 1000, &raw, &why);
    WANT(!status, "1000 bytes after that", "%s", why.text);
    b->type->free(b->device, raw);
    return GOOD;
}

/* More than the device has in all, if pieces were not given back: eighths of it, or less if somebody else has the rest.
 */
static enum verdict freed_memory_is_free(struct bench *b)
{
    const int64_t memory = b->info.memory > 0 ? b->info.memory : INT64_C(32) << 20;
    int64_t bytes = memory / 8;
    struct sol_failure why = failure_new();
    sol_ptr raw;
    while (b->type->alloc(b->device, bytes, &raw, &why) && bytes > memory / 512) bytes /= 2;
    for (int64_t all = bytes; raw && all < memory + memory / 4; all += bytes) {
        b->type->free(b->device, raw);
        why = failure_new();
        const sol_status status = b->type->alloc(b->device, bytes, &raw, &why);
        WANT(!status, "memory that was freed before", "%lld bytes after %lld in all: %s", (long long)bytes,
             (long long)all, why.text);
    }
    WANT(raw, "some memory", "none of %lld bytes: %s", (long long)bytes, why.text);
    b->type->free(b->device, raw);
    return GOOD;
}

struct churn {
    struct bench *b;
    sol_ptr from_main;
    enum verdict verdict;
};

static enum verdict allocate_often(struct bench *b, sol_ptr from_main)
{
    struct sol_failure why = failure_new();
    sol_ptr raw;
    if (from_main) b->type->free(b->device, from_main);
    for (int i = 0; i < 200; i++) {
        const sol_status status = b->type->alloc(b->device, 100 + i * 13, &raw, &why);
        WANT(!status, "memory for four threads", "%s", why.text);
        b->type->free(b->device, raw);
    }
    return GOOD;
}

static void *churn(void *user)
{
    struct churn *c = user;
    c->verdict = allocate_often(c->b, c->from_main);
    return NULL;
}

static enum verdict threads_allocate(struct bench *b)
{
    struct churn c[4];
    pthread_t thread[4];
    struct sol_failure why = failure_new();
    enum verdict verdict = GOOD;
    for (int i = 0; i < 4; i++) {
        c[i] = (struct churn){.b = b};
        const sol_status status = b->type->alloc(b->device, 999, &c[i].from_main, &why);
        WANT(!status, "999 bytes", "%s", why.text);
    }
    for (int i = 0; i < 4; i++) WANT(!pthread_create(&thread[i], NULL, churn, &c[i]), "a thread", "none");
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        if (c[i].verdict) verdict = c[i].verdict;
    }
    return verdict;
}

/* -- moving bytes */

static const int64_t lengths[] = {1, 2, 3, 7, 63, 64, 65, 255, 257, 4097, 100003};
static const int64_t offsets[] = {0, 1, 3, 64, 255};

struct moved { /* memory of the device, and what should be in it */
    struct lane lane;
    sol_ptr raw[2];
    unsigned char *want[2], *got;
    int64_t bytes;
};

static enum verdict moved_open(struct bench *b, struct moved *m, int64_t bytes)
{
    struct sol_failure why = failure_new();
    sol_status status = lane_open(&m->lane, b, &why);
    WANT(!status, "a stream", "%s", why.text);
    m->bytes = bytes;
    m->got = malloc((size_t)bytes);
    for (int i = 0; i < 2; i++) {
        m->want[i] = malloc((size_t)bytes);
        status = b->type->alloc(b->device, bytes, &m->raw[i], &why);
        WANT(!status, "memory", "%lld bytes: %s", (long long)bytes, why.text);
        pattern(m->want[i], bytes, (unsigned)i + 5);
        const struct sol_command c = write_of(m->raw[i], m->want[i], bytes);
        status = lane_do(&m->lane, 1, &c, &why);
        WANT(!status, "WRITE of all bytes", "%s", why.text);
    }
    return GOOD;
}

static void moved_close(struct bench *b, struct moved *m)
{
    lane_close(&m->lane);
    for (int i = 0; i < 2; i++) {
        b->type->free(b->device, m->raw[i]);
        free(m->want[i]);
    }
    free(m->got);
}

/* All bytes of both pieces, also those around what was to change. */
static enum verdict moved_compare(struct bench *b, struct moved *m, const char *what)
{
    struct sol_failure why = failure_new();
    for (int i = 0; i < 2; i++) {
        memset(m->got, 0x5a, (size_t)m->bytes);
        const struct sol_command c = read_of(m->raw[i], m->got, m->bytes);
        const sol_status status = lane_do(&m->lane, 1, &c, &why);
        WANT(!status, "READ of all bytes", "%s", why.text);
        for (int64_t k = 0; k < m->bytes; k++)
            WANT(m->got[k] == m->want[i][k], "the bytes that were written, and no others changed",
                 "%s: byte %lld of memory %d is %d instead of %d", what, (long long)k, i, m->got[k], m->want[i][k]);
    }
    return GOOD;
}

static enum verdict writes_and_reads(struct bench *b)
{
    struct moved m;
    struct sol_failure why = failure_new();
    TRY(moved_open(b, &m, lengths[COUNT_OF(lengths) - 1] + AROUND));
    for (int i = 0; i < COUNT_OF(lengths); i++)
        for (int k = 0; k < COUNT_OF(offsets); k++) {
            const int64_t at = offsets[k], n = lengths[i];
            char what[80];
            snprintf(what, sizeof what, "WRITE of %lld bytes at offset %lld", (long long)n, (long long)at);
            pattern(m.want[0] + at, n, (unsigned)(i * 10 + k));
            const struct sol_command c[] = {write_of(m.raw[0] + (sol_ptr)at, m.want[0] + at, n),
                                            read_of(m.raw[0] + (sol_ptr)at, m.got, n)};
            const sol_status status = lane_do(&m.lane, 2, c, &why);
            WANT(!status, "success", "%s: %s", what, why.text);
            WANT(!memcmp(m.got, m.want[0] + at, (size_t)n), "READ of the bytes that WRITE wrote", "%s: others", what);
            if (k == i % COUNT_OF(offsets)) TRY(moved_compare(b, &m, what));
        }
    moved_close(b, &m);
    return GOOD;
}

static enum verdict copies(struct bench *b)
{
    struct moved m;
    struct sol_failure why = failure_new();
    TRY(moved_open(b, &m, 2 * (lengths[COUNT_OF(lengths) - 1] + AROUND)));
    for (int i = 0; i < COUNT_OF(lengths); i++)
        for (int within = 0; within < 2; within++) {
            const int64_t n = lengths[i], from = offsets[i % COUNT_OF(offsets)], to = m.bytes / 2 + from * 2 + 1;
            char what[100];
            snprintf(what, sizeof what, "COPY of %lld bytes from %lld to %lld%s", (long long)n, (long long)from,
                     (long long)to, within ? " of the same memory" : "");
            memcpy(m.want[!within] + to, m.want[0] + from, (size_t)n);
            const struct sol_command c = copy_of(m.raw[!within] + (sol_ptr)to, m.raw[0] + (sol_ptr)from, n);
            const sol_status status = lane_do(&m.lane, 1, &c, &why);
            WANT(!status, "success", "%s: %s", what, why.text);
            TRY(moved_compare(b, &m, what));
        }
    moved_close(b, &m);
    return GOOD;
}

static enum verdict fills(struct bench *b)
{
    struct moved m;
    struct sol_failure why = failure_new();
    TRY(moved_open(b, &m, 9000));
    for (int i = 0; i + 1 < COUNT_OF(lengths); i++) {
        const int64_t n = lengths[i], at = offsets[i % COUNT_OF(offsets)];
        char what[80];
        snprintf(what, sizeof what, "FILL of %lld bytes at %lld", (long long)n, (long long)at);
        memset(m.want[0] + at, i * 37 + 1, (size_t)n);
        const struct sol_command c = fill_of(m.raw[0] + (sol_ptr)at, (uint8_t)(i * 37 + 1), n);
        const sol_status status = lane_do(&m.lane, 1, &c, &why);
        WANT(!status, "success", "%s: %s", what, why.text);
        TRY(moved_compare(b, &m, what));
    }
    moved_close(b, &m);
    return GOOD;
}

const struct check memory_checks[] = {
    {"alloc", "memory is aligned to 256, its address is not 0, and ranges are disjoint", allocations_are_disjoint},
    {"alloc", "too much is SOL_ERR_NOMEM with the bytes that are there, and smaller allocations go on",
     too_much_is_refused},
    {"free", "freed memory can be had again", freed_memory_is_free},
    {"free", "threads allocate and free at the same time, also what another thread allocated", threads_allocate},
    {"submit", "WRITE and READ move any number of bytes at any offset", writes_and_reads},
    {"submit", "COPY moves any number of bytes between and within memory", copies},
    {"submit", "FILL sets any number of bytes at any offset", fills},
    {0},
};
