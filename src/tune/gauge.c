/* Loops that measure a processor, one set for each vector length. They are compiled with the library, so that measuring
 * needs no compiler. measure.c selects the set for the vector length of kernels on this machine. */
#include "tune/tune.h"

#if defined __OPTIMIZE__ /* in a build without optimization, the measurement would be of the build */

/* A sanitizer's check of each read would dominate the measurement. */
#define UNCHECKED __attribute__((no_sanitize("address", "undefined")))

#define EACH_12(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define EACH_28(X) \
    EACH_12(X) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23) X(24) X(25) X(26) X(27)
#define ONE(i) +1
#define BEGIN(i) vector s##i = a + i;
#define MULTIPLY(i) s##i = s##i * a + b;
#define ADD(i) all += s##i;

/* multiply: enough independent sums in registers to hide the latency. read: eight vectors at once. */
#define LOOPS(name, bytes, EACH, extension)                                                     \
    typedef float name##_vector __attribute__((vector_size(bytes), aligned(bytes), may_alias)); \
    extension static void name##_multiply(const void *in, int64_t n, void *out)                 \
    {                                                                                           \
        typedef name##_vector vector;                                                           \
        const vector *v = in, a = v[0], b = v[1];                                               \
        vector all = a - a;                                                                     \
        EACH(BEGIN)                                                                             \
        for (int64_t i = 0; i < n; i++) {                                                       \
            EACH(MULTIPLY)                                                                      \
        }                                                                                       \
        EACH(ADD)                                                                               \
        *(vector *)out = all;                                                                   \
    }                                                                                           \
    extension UNCHECKED static void name##_read(const void *in, int64_t n, void *out)           \
    {                                                                                           \
        typedef name##_vector vector;                                                           \
        const vector *v = in, *end = v + n / bytes;                                             \
        vector s0 = v[0] - v[0], s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0; \
        for (; v < end; v += 8) {                                                               \
            s0 += v[0], s1 += v[1], s2 += v[2], s3 += v[3];                                     \
            s4 += v[4], s5 += v[5], s6 += v[6], s7 += v[7];                                     \
        }                                                                                       \
        *(vector *)out = s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7;                                 \
    }                                                                                           \
    static const struct gauge name = {bytes, 0 EACH(ONE), chain, name##_multiply, name##_read};

/* A chain of 2 * GAUGE_CHAIN dependent instructions, one cycle each. */
static void chain(const void *in, int64_t n, void *out)
{
#define LINK x = (x ^ a) + b;
    const uint32_t *v = in, a = v[0], b = v[1];
    uint32_t x = v[2];
    for (int64_t i = 0; i < n; i++) {
        LINK LINK LINK LINK LINK LINK LINK LINK
    }
    *(uint32_t *)out = x;
}

#if defined __x86_64__ || defined __i386__
LOOPS(avx512, 64, EACH_28, __attribute__((target("avx512f,fma"))))
LOOPS(avx2, 32, EACH_12, __attribute__((target("avx2,fma"))))
LOOPS(sse, 16, EACH_12, )
static const struct gauge *const all[] = {&avx512, &avx2, &sse};
#elif defined __aarch64__
LOOPS(neon, 16, EACH_28, )
static const struct gauge *const all[] = {&neon};
#else
LOOPS(plain, 16, EACH_12, )
static const struct gauge *const all[] = {&plain};
#endif

const struct gauge *gauge_find(int vector_bytes)
{
    for (int i = 0; i < COUNT_OF(all); i++)
        if (all[i]->vector_bytes == vector_bytes) return all[i];
    return NULL;
}
#else
const struct gauge *gauge_find(int vector_bytes)
{
    (void)vector_bytes;
    return NULL;
}
#endif

/* -- flushing memory from the caches */

enum { CACHE_LINE = 64 }; /* at most; if lines are longer, some are flushed twice */

bool gauge_flush(const char *at, int64_t bytes)
{
#if defined __SSE2__
    for (int64_t i = 0; i < bytes; i += CACHE_LINE) __builtin_ia32_clflush(at + i);
    __builtin_ia32_mfence();
    return true;
#elif defined __aarch64__
    for (int64_t i = 0; i < bytes; i += CACHE_LINE) __asm__ volatile("dc civac, %0" ::"r"(at + i) : "memory");
    __asm__ volatile("dsb ish" ::: "memory");
    return true;
#else
    (void)at, (void)bytes;
    return false;
#endif
}
