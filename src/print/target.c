/* Targets: this machine by cpuid, or one by name. Every vendor is asked the same questions: which vector instructions,
 * how large the caches are. Rates are nominal (lanes times two FMA units times a clock), good enough to rank
 * candidates. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "print/kernel.h"

struct named {
    const char *name, *march;
    int vector_bytes, registers;
    bool fma;
    double clock; /* GHz under full vector load */
};
static const struct named names[] = {
    {"x86-64-v2", "x86-64-v2", 16, 16, false, 3.0}, {"x86-64-v3", "x86-64-v3", 32, 16, true, 3.0},
    {"x86-64-v4", "x86-64-v4", 64, 32, true, 2.6},  {"sse2", "x86-64", 16, 16, false, 3.0},
    {"avx2", "x86-64-v3", 32, 16, true, 3.0},       {"avx512", "x86-64-v4", 64, 32, true, 2.6},
    {"neon", "armv8-a", 16, 32, true, 2.5},
};

static int processors(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > 4096 ? 4096 : (int)n;
}

/* The size of a cache, or what is usual if the system does not say. */
static int64_t cache_bytes(int which, int64_t usual)
{
    long n = which < 0 ? 0 : sysconf(which);
    return n > 0 ? n : usual;
}

static void fill(const struct named *n, struct target *out)
{
    memset(out, 0, sizeof *out);
    out->name = n->name;
    out->march = n->march;
    out->vector_bytes = n->vector_bytes;
    out->registers = n->registers;
    out->fma = n->fma;
    out->cores = processors();
#if defined _SC_LEVEL1_DCACHE_SIZE
    out->l1 = cache_bytes(_SC_LEVEL1_DCACHE_SIZE, 32 << 10);
    out->l2 = cache_bytes(_SC_LEVEL2_CACHE_SIZE, 1 << 20);
    out->l3 = cache_bytes(_SC_LEVEL3_CACHE_SIZE, 32 << 20);
#else
    out->l1 = cache_bytes(-1, 32 << 10);
    out->l2 = cache_bytes(-1, 1 << 20);
    out->l3 = cache_bytes(-1, 32 << 20);
#endif
    const double lanes = n->vector_bytes / 4, cores = out->cores;
    out->flops = cores * n->clock * lanes * (n->fma ? 4 : 2); /* two units, each a multiply and an add */
    out->l2_rate = cores * n->clock * (n->vector_bytes < 32 ? 16 : 32);
    out->l3_rate = cores * 40;
    out->dram_rate = cores < 4 ? cores * 12 : 40 + cores * 2;
}

static const struct named *find(const char *name)
{
    for (int i = 0; i < COUNT_OF(names); i++)
        if (!strcmp(names[i].name, name)) return &names[i];
    return NULL;
}

void target_host(struct target *out)
{
    const char *name = "sse2";
#if defined __aarch64__
    name = "neon";
#elif defined __x86_64__ || defined __i386__
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq"))
        name = "avx512";
    else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        name = "avx2";
#endif
    fill(find(name), out);
    out->name = "native";
    out->march = "native";
}

sol_status target_named(struct sol_ctx *ctx, const char *name, struct target *out)
{
    if (!strcmp(name, "native")) {
        target_host(out);
        return SOL_OK;
    }
    const struct named *n = find(name);
    if (n) {
        fill(n, out);
        return SOL_OK;
    }
    return ctx_fail(
        ctx, SOL_ERR_INVALID,
        "target: unknown name '%s'; use native, x86-64-v2, x86-64-v3, x86-64-v4, sse2, avx2, avx512 or neon", name);
}
