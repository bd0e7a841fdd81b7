/* Threads that cannot be created. The program is linked with a static library and -Wl,--wrap for all functions that the
 * thread pool calls in the system. Each of these calls fails in turn, then all from one on. The network must run on
 * fewer threads with the same bits. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include HEADER

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define NET(name) JOIN(FUNC, name)

static long calls, first = -1, last = -1;

static int fails(void)
{
    const long i = calls++;
    return first >= 0 && i >= first && i <= last;
}

int __real_posix_memalign(void **p, size_t align, size_t bytes);
int __wrap_posix_memalign(void **p, size_t align, size_t bytes)
{
    return fails() ? ENOMEM : __real_posix_memalign(p, align, bytes);
}

void *__real_realloc(void *p, size_t bytes);
void *__wrap_realloc(void *p, size_t bytes)
{
    return fails() ? NULL : __real_realloc(p, bytes);
}

int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *arg)
{
    return fails() ? EAGAIN : __real_pthread_create(t, a, run, arg);
}

static void *in, *out, *expected;

static int run(int threads)
{
    const size_t bytes = NET(_output)(0)->bytes;
    memset(out, 0x5a, bytes);
    return NET(_context_threads)(NULL, threads) || NET(_run)(NULL, (const void *[]){in}, &out) ||
           memcmp(out, expected, bytes);
}

int main(void)
{
    in = calloc(1, NET(_input)(0)->bytes);
    out = calloc(1, NET(_output)(0)->bytes);
    expected = calloc(1, NET(_output)(0)->bytes);
    for (size_t i = 0; i < NET(_input)(0)->bytes / 4; i++) ((float *)in)[i] = (float)(i % 7) - 3;
    NET(_context_threads)(NULL, 1);
    if (NET(_run)(NULL, (const void *[]){in}, &expected) || calls) return 1;
    for (int all = 0; all < 2; all++)
        for (long at = 0; at < 20; at++) { /* more threads in each round, so that there are more calls */
            first = calls + (all ? 0 : at % 5);
            last = all ? calls + 1000 : first;
            if (run(2 + all * 20 + (int)at)) return fprintf(stderr, "call %ld failed, or other bits\n", at), 2;
        }
    if (calls < 20) return fprintf(stderr, "only %ld calls\n", calls), 3;
    first = -1;
    if (run(4)) return 4;
    free(in), free(out), free(expected);
    return 0;
}
