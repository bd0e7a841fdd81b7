/* Uses a deployed network whose sizes vary, like an application. Tests compile it with -DHEADER='"libnet.h"' -DFUNC=net
 * and a file at.h that defines NDIM, 2, and AT(s), s[0], s[1]. The arguments are rows of sizes, "2,20": row r has the
 * inputs in0_r, .. and gets the outputs out0_r, .. . All ways to call the network give the same bits. `wrong` in front
 * of a row: an error, whose message is printed. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include HEADER
#include "at.h"

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define NET(name) JOIN(FUNC, name)

enum { MOST = 16, GUARD = 64 };
struct row {
    int64_t s[NDIM];
    const void *in[MOST];
    void *expected[MOST];
};
static int nin, nout;

/* -- own memory functions: what is in use, and the most that there may be */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t used, room = SIZE_MAX;
static long calls;

void *sol_ext_malloc(size_t bytes)
{
    pthread_mutex_lock(&lock);
    size_t *p = used + bytes > room ? NULL : malloc(bytes + GUARD);
    calls++;
    if (p) used += *p = bytes;
    pthread_mutex_unlock(&lock);
    return p ? (char *)p + GUARD : NULL;
}

void sol_ext_free(void *at)
{
    size_t *p = at ? (size_t *)((char *)at - GUARD) : NULL;
    pthread_mutex_lock(&lock);
    if (p) used -= *p;
    pthread_mutex_unlock(&lock);
    free(p);
}

/* -- */

static const char *message(void)
{
    static _Thread_local char text[256];
    NET(_error)(text, sizeof text);
    return text;
}

static void check(int good, const char *what)
{
    if (good) return;
    fprintf(stderr, "%s: %s\n", what, message());
    _Exit(1);
}

static int64_t in_bytes(const struct row *r, int i)
{
    return NET(_input_bytes)(i, AT(r->s));
}

static int64_t out_bytes(const struct row *r, int i)
{
    return NET(_output_bytes)(i, AT(r->s));
}

static void make(const struct row *r, void **out)
{
    for (int i = 0; i < nout; i++) {
        const size_t bytes = (size_t)out_bytes(r, i);
        out[i] = malloc(bytes + GUARD);
        memset(out[i], 0x5a, bytes + GUARD);
    }
}

static void drop(const struct row *r, void **out)
{
    for (int i = 0; i < nout; i++) {
        for (int k = 0; k < GUARD; k++)
            check(((char *)out[i])[out_bytes(r, i) + k] == 0x5a, "a byte behind an output was written");
        free(out[i]);
    }
}

static void run(struct NET(_context) * c, const struct row *r, const char *what)
{
    void *out[MOST];
    make(r, out);
    check(!NET(_run)(c, AT(r->s), r->in, out), what);
    for (int i = 0; i < nout; i++) check(!memcmp(out[i], r->expected[i], (size_t)out_bytes(r, i)), what);
    drop(r, out);
}

/* A block of exactly the bytes that these sizes need, for each number of threads. Fewer bytes are an error. */
static void blocks(const struct row *r)
{
    for (int threads = 1; threads < 4; threads++) {
        const size_t bytes = NET(_context_bytes)(threads, AT(r->s));
        check(bytes > 0, "the size of a block");
        char *block = malloc(bytes + GUARD);
        memset(block, 0x5a, bytes + GUARD);
        const long before = calls;
        struct NET(_context) *c = NET(_context_create)(block, bytes, threads);
        check(c != NULL, "a context in a block");
        run(c, r, "a context in a block");
        run(c, r, "a context in a block, again");
        check(calls == before, "a context in a block allocates");
        for (int k = 0; k < GUARD; k++) check(block[bytes + k] == 0x5a, "a byte behind the block was written");
        c = NET(_context_create)(block, bytes - 128, threads);
        check(!c || NET(_run)(c, AT(r->s), r->in, r->expected), "a block that is too small is taken");
        const char *said = strstr(message(), "need"), *least = said ? strstr(said, "block of ") : NULL;
        check(least != NULL, "no message");
        const size_t said_bytes = strtoull(least + strlen("block of "), NULL, 10);
        check(said_bytes <= bytes && (!c || said_bytes >= bytes - GUARD),
              "the message says other bytes"); /* an aligned block needs less */
        free(block);
    }
}

static void *many(void *rows)
{
    struct NET(_context) *c = NET(_context_create)(NULL, 0, 2);
    for (int i = 0; i < 20; i++)
        for (struct row **r = rows; *r; r++) run(i % 2 ? c : NULL, *r, "one of several threads");
    NET(_context_free)(c);
    return NULL;
}

/* Each thread goes through the sizes in its own order. */
static void threads(struct row **rows, int n)
{
    enum { THREADS = 4 };
    pthread_t t[THREADS];
    struct row *order[THREADS][MOST + 1] = {{NULL}};
    for (int i = 0; i < THREADS; i++)
        for (int k = 0; k < n; k++) order[i][k] = rows[(i + k) % n];
    for (int i = 0; i < THREADS; i++) check(!pthread_create(&t[i], NULL, many, order[i]), "pthread_create");
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
}

/* After the largest sizes, a thousand changes of sizes need no more memory. */
static void in_turns(struct row **rows, int n)
{
    struct NET(_context) *c = NET(_context_create)(NULL, 0, 2);
    for (int k = 0; k < n; k++) run(c, rows[k], "in turns");
    const size_t before = used;
    const long allocated = calls;
    for (int i = 0; i < 1000; i++) {
        void *out[MOST];
        const struct row *r = rows[i * 7 % n];
        make(r, out);
        check(!NET(_run)(c, AT(r->s), r->in, out), "in turns");
        drop(r, out);
    }
    check(used == before && calls == allocated, "memory grows");
    NET(_context_free)(c);
}

/* Without memory for a size there is an error, and smaller ones go on. */
static void out_of_memory(struct row **rows, int n)
{
    struct row *large = rows[0], *small = rows[0];
    for (int k = 1; k < n; k++) {
        const size_t bytes = NET(_context_bytes)(1, AT(rows[k]->s));
        if (bytes > NET(_context_bytes)(1, AT(large->s))) large = rows[k];
        if (bytes < NET(_context_bytes)(1, AT(small->s))) small = rows[k];
    }
    struct NET(_context) *c = NET(_context_create)(NULL, 0, 1);
    run(c, small, "a small size");
    room = used + 64;
    void *out[MOST];
    make(large, out);
    const int failed = NET(_run)(c, AT(large->s), large->in, out);
    check(!failed || strstr(message(), "out of memory"), "no message");
    check(failed || NET(_context_bytes)(1, AT(large->s)) < NET(_context_bytes)(1, AT(small->s)) + 4096, "no error");
    drop(large, out);
    run(c, small, "a small size after a failure");
    room = SIZE_MAX;
    run(c, large, "the large size with memory");
    NET(_context_free)(c);
}

static void read_row(struct row *r, int number, const char *sizes)
{
    char name[32];
    for (int i = 0; i < NDIM; i++, sizes += strcspn(sizes, ","), sizes += *sizes == ',') r->s[i] = atoll(sizes);
    for (int i = 0; i < nin && number >= 0; i++) {
        const int64_t bytes = in_bytes(r, i);
        check(bytes >= 0, "the bytes of an input");
        snprintf(name, sizeof name, "in%d_%d", i, number);
        FILE *f = fopen(name, "rb");
        void *data = malloc((size_t)bytes + 1);
        check(f && fread(data, 1, (size_t)bytes + 1, f) == (size_t)bytes, name);
        fclose(f);
        r->in[i] = data;
    }
}

static void write_row(const struct row *r, int number)
{
    char name[32];
    for (int i = 0; i < nout; i++) {
        snprintf(name, sizeof name, "out%d_%d", i, number);
        FILE *f = fopen(name, "wb");
        const size_t bytes = (size_t)out_bytes(r, i);
        check(f && fwrite(r->expected[i], 1, bytes, f) == bytes && !fclose(f), name);
    }
}

static void wrong(const char *sizes)
{
    struct row r = {{0}};
    void *out[MOST] = {NULL};
    int64_t shape[MOST];
    read_row(&r, -1, sizes);
    check(NET(_run)(NULL, AT(r.s), r.in, out) != 0, "wrong sizes are taken");
    printf("%s\n", message());
    check(!NET(_context_bytes)(1, AT(r.s)) && NET(_output_bytes)(0, AT(r.s)) == -1, "wrong sizes have bytes");
    check(NET(_output_shape)(0, AT(r.s), shape) != 0, "wrong sizes have a shape");
}

int main(int argc, char **argv)
{
    struct row *rows[MOST + 1] = {NULL};
    int n = 0;
    nin = NET(_inputs)();
    nout = NET(_outputs)();
    check(NET(_dims)() == NDIM && NET(_dim)(0) && !NET(_dim)(NDIM), "dimensions");
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "wrong", 5)) {
            wrong(argv[i] + 5);
            continue;
        }
        struct row *r = rows[n] = calloc(1, sizeof *r);
        read_row(r, n, argv[i]);
        make(r, r->expected);
        check(!NET(_run)(NULL, AT(r->s), r->in, r->expected), "a call");
        write_row(r, n++);
    }
    for (int i = 0; i < n; i++) blocks(rows[i]);
    threads(rows, n);
    in_turns(rows, n);
    out_of_memory(rows, n);
    for (int i = 0; i < n; i++) {
        drop(rows[i], rows[i]->expected);
        for (int k = 0; k < nin; k++) free((void *)(size_t)rows[i]->in[k]);
        free(rows[i]);
    }
    return 0;
}
