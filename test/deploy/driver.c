/* Uses a deployed network like an application. Tests compile it with -DHEADER='"libnet.h"' -DFUNC=net. It reads in0,
 * in1, .. from the working directory, checks in one of several ways that all ways to call the network give the same
 * bits, and writes out0, out1, .. . */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include HEADER

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define NET(name) JOIN(FUNC, name)

enum { MOST = 16 };
static const void *in[MOST];
static void *expected[MOST];
static int nin, nout;

/* -- own memory functions; call number fail_at fails */

static long calls, fail_at = -1, alive;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int fails(void)
{
    pthread_mutex_lock(&lock);
    const int no = calls++ == fail_at;
    alive += !no;
    pthread_mutex_unlock(&lock);
    return no;
}

void *sol_ext_malloc(size_t bytes)
{
    return fails() ? NULL : malloc(bytes);
}

void sol_ext_free(void *p)
{
    pthread_mutex_lock(&lock);
    alive -= p != NULL;
    pthread_mutex_unlock(&lock);
    free(p);
}

/* -- */

static void stop(const char *what)
{
    char text[256] = "";
    NET(_error)(text, sizeof text);
    fprintf(stderr, "%s: %s\n", what, text);
    _exit(1);
}

static void check(int good, const char *what)
{
    if (!good) stop(what);
}

static void same(void *const *out, const char *what)
{
    for (int i = 0; i < nout; i++) check(!memcmp(out[i], expected[i], NET(_output)(i)->bytes), what);
}

static void make(void **out)
{
    for (int i = 0; i < nout; i++) {
        out[i] = malloc(NET(_output)(i)->bytes + 1);
        memset(out[i], 0x5a, NET(_output)(i)->bytes + 1);
    }
}

static void drop(void **out)
{
    for (int i = 0; i < nout; i++) {
        check(((char *)out[i])[NET(_output)(i)->bytes] == 0x5a, "a byte behind an output was written");
        free(out[i]);
    }
}

static void run(struct NET(_context) * c, const char *what)
{
    void *out[MOST];
    make(out);
    check(!NET(_run)(c, in, out), what);
    same(out, what);
    drop(out);
}

/* Tests each kind of context with several numbers of threads. */
static void contexts(void)
{
    static const int threads[] = {1, 2, 3, 7, 0};
    for (int i = 0; i < 5; i++) {
        check(!NET(_context_threads)(NULL, threads[i]), "threads");
        run(NULL, "without a context");
        struct NET(_context) *own = NET(_context_create)(NULL, 0, threads[i]);
        check(own != NULL, "a context of its own");
        run(own, "a context of its own");
        check(!NET(_context_threads)(own, 5), "more threads");
        run(own, "a context with more threads");
        const size_t bytes = NET(_context_bytes)(threads[i]);
        char *block = malloc(bytes + 1);
        const long before = calls;
        block[bytes] = 0x5a;
        struct NET(_context) *mine = NET(_context_create)(block, bytes, threads[i]);
        check(mine != NULL, "a context in a block");
        run(mine, "a context in a block");
        run(mine, "a context in a block, again");
        check(calls == before, "a context in a block allocates");
        check(block[bytes] == 0x5a, "a byte behind the block was written");
        check(!NET(_context_create)(block, bytes / 2, threads[i]), "a block that is too small is taken");
        NET(_context_free)(mine);
        NET(_context_free)(own);
        free(block);
    }
    const void *none[MOST] = {0};
    if (nin) check(NET(_run)(NULL, none, expected) != 0, "no input, and no error");
    if (nin) check(NET(_run)(NULL, NULL, expected) != 0, "no inputs, and no error");
    check(NET(_run)(NULL, in, NULL) != 0, "no outputs, and no error");
    check(NET(_error)(NULL, 9) > 0, "no message");
}

static void *many(void *own)
{
    struct NET(_context) *c = own ? NET(_context_create)(NULL, 0, 2) : NULL;
    for (int i = 0; i < 8; i++) run(c, "one of several threads");
    NET(_context_free)(c);
    return NULL;
}

static void threads(void)
{
    pthread_t t[4];
    for (long i = 0; i < 4; i++) check(!pthread_create(&t[i], NULL, many, (void *)(i % 2)), "pthread_create");
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
}

static void forks(void)
{
    check(!NET(_context_threads)(NULL, 3), "threads");
    run(NULL, "before the fork");
    for (int i = 0; i < 3; i++) {
        const pid_t child = fork();
        if (!child) {
            alarm(60);
            run(NULL, "in a child");
            many(in);
            _exit(0);
        }
        int status = 1;
        run(NULL, "while a child runs");
        waitpid(child, &status, 0);
        check(!status, "a child failed");
    }
}

/* Each allocation fails in turn: there is an error, and the next call works. */
static void memory(void)
{
    void *out[MOST];
    int failed = 1;
    make(out);
    for (long at = 0; failed; at++) {
        const long before = alive;
        fail_at = calls + at;
        struct NET(_context) *c = NET(_context_create)(NULL, 0, 2);
        failed = !c || NET(_context_threads)(c, 4) || NET(_run)(c, in, out);
        char text[256];
        if (failed) check(NET(_error)(text, sizeof text) > 0 && strstr(text, "memory"), "no message");
        NET(_context_free)(c);
        check(alive == before, "memory is lost");
        fail_at = -1;
        if (!failed) check(at > 0, "nothing failed");
    }
    drop(out);
}

int main(int argc, char **argv)
{
    nin = NET(_inputs)();
    nout = NET(_outputs)();
    if (argc > 2) check(!NET(_choose_version)(argv[2]), "version");
    for (int i = 0; i < nin; i++) {
        char name[32];
        snprintf(name, sizeof name, "in%d", i);
        FILE *f = fopen(name, "rb");
        void *data = malloc(NET(_input)(i)->bytes + 1);
        check(f && fread(data, 1, NET(_input)(i)->bytes, f) == NET(_input)(i)->bytes, name);
        fclose(f);
        in[i] = data;
    }
    make(expected);
    if (argc > 1 && !strcmp(argv[1], "memory")) memory(); /* from the first allocation on */
    check(!NET(_run)(NULL, in, expected), "the first call");
    if (argc > 1 && !strcmp(argv[1], "memory")) run(NULL, "after failures");
    if (argc < 2 || !strcmp(argv[1], "contexts")) contexts();
    if (argc > 1 && !strcmp(argv[1], "threads")) threads();
    if (argc > 1 && !strcmp(argv[1], "fork")) forks();
    for (int i = 0; i < nout; i++) {
        char name[32];
        snprintf(name, sizeof name, "out%d", i);
        FILE *f = fopen(name, "wb");
        check(f && fwrite(expected[i], 1, NET(_output)(i)->bytes, f) == NET(_output)(i)->bytes && !fclose(f), name);
    }
    drop(expected);
    for (int i = 0; i < nin; i++) free((void *)(size_t)in[i]);
    printf("%s\n", NET(_version)());
    return 0;
}
