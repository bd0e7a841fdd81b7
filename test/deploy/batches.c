/* Uses a library for several batch sizes in every way. Tests compile it with -DHEADER and -DFUNC like driver.c, and
 * with -DSIZES=1,3. It reads x1, x3, .. (one input) and writes y1, y3, .. (one output). Every way must give the same
 * bits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include HEADER

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define NET(name) JOIN(FUNC, name)

static const int64_t sizes[] = {SIZES};
enum { N = sizeof sizes / sizeof *sizes };
static void *in[N], *expected[N];

static long calls, fail_at = -1, alive;

void *sol_ext_malloc(size_t bytes)
{
    if (calls++ == fail_at) return NULL;
    alive++;
    return malloc(bytes);
}

void sol_ext_free(void *p)
{
    alive -= p != NULL;
    free(p);
}

static void check(int good, const char *what)
{
    char text[256] = "";
    if (good) return;
    NET(_error)(text, sizeof text);
    fprintf(stderr, "%s: %s\n", what, text);
    exit(1);
}

static void *file(const char *kind, int i, const char *mode, void *data, size_t bytes)
{
    char name[32];
    snprintf(name, sizeof name, "%s%lld", kind, (long long)sizes[i]);
    FILE *f = fopen(name, mode);
    check(f && (*mode == 'r' ? fread(data, 1, bytes, f) : fwrite(data, 1, bytes, f)) == bytes, name);
    fclose(f);
    return data;
}

static void run(struct NET(_context) * c, int i, const char *what)
{
    const size_t bytes = NET(_batch_output)(sizes[i], 0)->bytes;
    void *out = malloc(bytes);
    check(!NET(_run)(c, (const void *[]){in[i]}, &out), what);
    check(!memcmp(out, expected[i], bytes), what);
    free(out);
}

/* Switches to each size and back, repeatedly. */
static void switching(struct NET(_context) * c, const char *what)
{
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 2 * N; i++) {
            const int at = i < N ? i : 2 * N - 1 - i;
            check(!NET(_batch)(c, sizes[at]), what);
            run(c, at, what);
            check(NET(_batch)(c, 999) != 0, "a size that is not there");
            run(c, at, "after an error");
        }
}

/* Each allocation of a switch fails in turn, and the context must not change. */
__attribute__((unused)) static void memory(void)
{
    const long before = alive;
    struct NET(_context) *c = NET(_context_create)(NULL, 0, 2);
    check(c != NULL, "a context");
    int from = 0;
    for (int i = 0; i < N; i++) check(!NET(_batch)(NULL, sizes[0]), "back");
    for (int to = 1; to < N; to++)
        for (int at = 0, failed = 1; failed; at++) {
            fail_at = calls + at;
            failed = NET(_batch)(c, sizes[to]);
            fail_at = -1;
            check(failed || at > 0, "nothing failed");
            if (!failed) from = to;
            run(c, from, "a context after a failure");
        }
    NET(_context_free)(c);
    check(alive == before, "memory is lost");
}

/* A context in a block keeps its instruction set, whatever is chosen later. */
static void keeping_its_version(void)
{
    const size_t bytes = NET(_context_bytes)(2);
    char *block = malloc(bytes + 1);
    struct NET(_context) *c = NET(_context_create)(block, bytes, 2);
    check(c != NULL, "a context in a block");
    block[bytes] = 0x5a;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N; i++) {
            const size_t result = NET(_batch_output)(sizes[i], 0)->bytes;
            void *out = malloc(result);
            check(!NET(_batch)(c, sizes[i]), "a size");
            check(!NET(_run)(c, (const void *[]){in[i]}, &out), "a run");
            if (!round) memcpy(expected[i], out, result);
            check(!memcmp(expected[i], out, result), "it runs other code");
            free(out);
        }
        NET(_choose_version)("x86-64-v2");
    }
    check(block[bytes] == 0x5a, "a context in a block writes behind it");
    NET(_context_free)(c); /* its memory, where a part of it lies on a device */
    check(!NET(_choose_version)(NULL), "the best");
    free(block);
}

int main(void)
{
    char text[256];
    for (int i = 0; i < N; i++) {
        const size_t bytes = NET(_batch_input)(sizes[i], 0)->bytes, result = NET(_batch_output)(sizes[i], 0)->bytes;
        in[i] = file("x", i, "rb", malloc(bytes), bytes);
        expected[i] = malloc(result);
    }
    keeping_its_version();
    for (int i = 0; i < N; i++) {
        const size_t result = NET(_batch_output)(sizes[i], 0)->bytes;
        check(!NET(_batch)(NULL, sizes[i]), "a size");
        check(!NET(_run)(NULL, (const void *[]){in[i]}, &expected[i]), "the first call");
        file("y", i, "wb", expected[i], result);
        void *given = NULL;
        FUNC(0, in[i], (void *)&given);
        check(given && !memcmp(given, expected[i], result), "allocated outputs");
        sol_ext_free(given);
    }
    check(NET(_input)(0) == NET(_batch_input)(sizes[0], 0), "the first size");
    check(!NET(_batch_input)(999, 0) && !NET(_batch_input)(sizes[0], 1), "what is not there");
    check(NET(_batch)(NULL, 999) && NET(_error)(text, sizeof text) &&
              strstr(text, "batch size 999: this library is for"),
          "a message");
    switching(NULL, "without a context");
    struct NET(_context) *own = NET(_context_create)(NULL, 0, 2);
    check(own != NULL, "a context");
    switching(own, "a context of its own");
    const size_t bytes = NET(_context_bytes)(2);
    char *block = malloc(bytes + 1);
    block[bytes] = 0x5a;
    struct NET(_context) *mine = NET(_context_create)(block, bytes, 2);
    check(mine != NULL, "a context in a block");
    const long before = calls;
    switching(mine, "a context in a block");
    check(calls == before && block[bytes] == 0x5a, "a context in a block allocates, or writes behind it");
    NET(_context_free)(own);
    free(block);
#if !defined THERE /* the memory of a switch is that of a device, not of sol_ext_malloc */
    memory();
#endif
    for (int i = 0; i < N; i++) free(in[i]), free(expected[i]);
    return 0;
}
