/* Measures the limits of the machine: multiply-adds in registers and bytes read from memory, with a number of
 * threads.
 *
 *   cc -O3 -march=native -ffp-contract=fast -pthread peak.c -o peak && ./peak THREADS
 *
 * Prints GFLOP/s and GB/s, the best of several rounds. Sixteen sums hide the latency of two units with five cycles
 * each. A round lasts from the first thread's begin to the last one's end, by their own clocks, because the main thread
 * may not get a processor. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef __AVX512F__
enum { BYTES = 64 };
#elif defined __AVX__
enum { BYTES = 32 };
#else
enum { BYTES = 16 };
#endif
typedef float vector __attribute__((vector_size(BYTES), aligned(4)));
enum { SUMS = 16, TURNS = 4000000, LANES = BYTES / 4, ROUNDS = 7, MIB = 192 };

struct worker {
    pthread_t thread;
    pthread_barrier_t *start;
    float *block;
    float seen; /* keeps the compiler from removing the computation */
    double begin, end;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float multiply_add(void)
{
    vector sum[SUMS], a = {0}, total = {0};
    for (int i = 0; i < SUMS; i++) sum[i] = a + (float)i;
    a += 0.999f;
    for (int t = 0; t < TURNS; t++) {
        for (int i = 0; i < SUMS; i++) sum[i] = sum[i] * a + a;
        __asm__ volatile("" : "+x"(a)); /* hides the value from the compiler in each round */
    }
    for (int i = 0; i < SUMS; i++) total += sum[i];
    return total[0];
}

static float read_all(const float *block)
{
    vector sum[8] = {0}, v;
    for (size_t at = 0; at < (size_t)MIB * 1048576 / 4; at += (size_t)8 * LANES)
        for (int i = 0; i < 8; i++) {
            memcpy(&v, block + at + i * LANES, sizeof v);
            sum[i] += v;
        }
    for (int i = 1; i < 8; i++) sum[0] += sum[i];
    return sum[0][0];
}

static void *work(void *argument)
{
    struct worker *w = argument;
    memset(w->block, 0, (size_t)MIB * 1048576);
    for (int r = 0; r < 2 * ROUNDS; r++) {
        pthread_barrier_wait(w->start);
        w->begin = now();
        w->seen += r < ROUNDS ? multiply_add() : read_all(w->block);
        w->end = now();
        pthread_barrier_wait(w->start);
        pthread_barrier_wait(w->start); /* the main thread has read the times */
    }
    return NULL;
}

int main(int argc, char **argv)
{
    const int n = argc > 1 ? atoi(argv[1]) : 1;
    struct worker *w = n > 0 ? calloc((size_t)n, sizeof *w) : NULL;
    pthread_barrier_t start;
    double flops = 0, bytes = 0;
    if (!w) return 2;
    pthread_barrier_init(&start, NULL, (unsigned)n + 1);
    for (int i = 0; i < n; i++) {
        w[i].start = &start;
        w[i].block = aligned_alloc(4096, (size_t)MIB * 1048576);
        if (!w[i].block || pthread_create(&w[i].thread, NULL, work, &w[i])) return 1;
    }
    for (int r = 0; r < 2 * ROUNDS; r++) {
        pthread_barrier_wait(&start);
        pthread_barrier_wait(&start);
        double begin = w[0].begin, end = w[0].end;
        for (int i = 1; i < n; i++) {
            if (w[i].begin < begin) begin = w[i].begin;
            if (w[i].end > end) end = w[i].end;
        }
        const double s = end - begin;
        pthread_barrier_wait(&start);
        if (r < ROUNDS && flops < 2.0 * LANES * SUMS * TURNS * n / s) flops = 2.0 * LANES * SUMS * TURNS * n / s;
        if (r >= ROUNDS && bytes < 1048576.0 * MIB * n / s) bytes = 1048576.0 * MIB * n / s;
    }
    for (int i = 0; i < n; i++) pthread_join(w[i].thread, NULL);
    printf("%.1f %.1f\n", flops * 1e-9, bytes * 1e-9);
    return w[0].seen == 12345.0f; /* never true */
}
