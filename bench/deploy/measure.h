/* What the programs that run a deployed network have in common: they start, run it once, then for some time, and print
 * one line of JSON: milliseconds until it can be called, of the first call, of a later one (median), and of the
 * processor in a later one, which other programs disturb little; peak memory; the first result, to be compared; what
 * files are mapped. */
#ifndef MEASURE_H
#define MEASURE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_CALLS = 100000 };

static double clock_ms(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static double now_ms(void)
{
    return clock_ms(CLOCK_MONOTONIC);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* An input of n elements of a type, "f32" or "i64": real numbers in 0..1, whole ones 1. */
static void *input_data(const char *type, size_t n)
{
    float *x = malloc(n * sizeof *x);
    int64_t *k = malloc(n * sizeof *k);
    for (size_t i = 0; i < n; i++) x[i] = (float)(i % 97) / 97;
    for (size_t i = 0; i < n; i++) k[i] = 1;
    const int whole = type[0] == 'i';
    free(whole ? (void *)x : k);
    return whole ? (void *)k : x;
}

/* Not that of getrusage, which begins with what the process had before it became this program. */
static double peak_mib(void)
{
    char line[256];
    double kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f)) sscanf(line, "VmHWM: %lf", &kib);
    if (f) fclose(f);
    return kib / 1024;
}

static void print_files(void)
{
    char line[4096], last[4096] = "";
    FILE *f = fopen("/proc/self/maps", "r");
    const char *comma = "";
    while (f && fgets(line, sizeof line, f)) {
        char *path = strchr(line, '/');
        if (!path || strstr(path, " (deleted)")) continue;
        path[strcspn(path, "\n")] = 0;
        if (!strcmp(path, last)) continue;
        strcpy(last, path);
        printf("%s\"%s\"", comma, path);
        comma = ", ";
    }
    if (f) fclose(f);
}

/* call: runs once, returns where the result is; NULL: it failed. begin: when the program started. */
static int measure(double begin, double seconds, const float *(*call)(void *), void *user)
{
    static double ms[MOST_CALLS], cpu[MOST_CALLS];
    const double ready = now_ms();
    const float *y = call(user);
    const double first = now_ms() - ready;
    float result[4];
    int n = 0;
    if (!y) return fprintf(stderr, "it failed\n"), 1;
    memcpy(result, y, sizeof result);
    for (const double end = now_ms() + seconds * 1e3; n < MOST_CALLS && (now_ms() < end || n < 3); n++) {
        const double start = now_ms(), spent = clock_ms(CLOCK_PROCESS_CPUTIME_ID);
        if (!call(user)) return 1;
        ms[n] = now_ms() - start;
        cpu[n] = clock_ms(CLOCK_PROCESS_CPUTIME_ID) - spent;
    }
    qsort(ms, (size_t)n, sizeof *ms, by_size);
    qsort(cpu, (size_t)n, sizeof *cpu, by_size);
    printf("{\"ready\": %.3f, \"first\": %.3f, \"call\": %.4f, \"cpu\": %.4f, \"peak\": %.1f, \"result\": [%.6g, %.6g, "
           "%.6g, %.6g], "
           "\"files\": [",
           ready - begin, first, ms[n / 2], cpu[n / 2], peak_mib(), result[0], result[1], result[2], result[3]);
    print_files();
    printf("]}\n");
    return 0;
}

#endif
