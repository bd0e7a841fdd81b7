/* Devices and targets: this machine by cpuid, or one by name. All vendors are treated alike: which vector instructions,
 * how large the caches. Clocks and rates are assumptions, good enough to rank candidates; src/tune/measure.c measures
 * those of this machine. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#if defined __x86_64__ || defined __i386__
#include <cpuid.h>
#endif

#include "print/kernel.h"
#include "rt/rt.h"

enum { CACHES = 8, L3_PER_CORE = 16 << 20 };

/* -- devices: the only place that contains their names (tools/check_tables.py) */

static const struct device x86 = {
    .name = "x86",
    .features = true,
    .hosted = {.compiler = "x86_64-linux-gnu-gcc",
               .package = "gcc-x86-64-linux-gnu",
               .headers = "libc6-dev-amd64-cross",
               .march = "x86-64-v2",
               .runner = ""},
};
static const struct device arm64 = {
    .name = "arm64",
    .hosted = {.compiler = "aarch64-linux-gnu-gcc",
               .package = "gcc-aarch64-linux-gnu",
               .headers = "libc6-dev-arm64-cross",
               .march = "armv8-a",
               .runner = "qemu-aarch64 -L /usr/aarch64-linux-gnu "},
};
static const struct device arm = {
    .name = "arm",
    .hosted = {.compiler = "arm-linux-gnueabihf-gcc",
               .package = "gcc-arm-linux-gnueabihf",
               .headers = "libc6-dev-armhf-cross",
               .march = "armv7-a+fp",
               .runner = "qemu-arm -L /usr/arm-linux-gnueabihf "},
    .bare = {.compiler = "arm-none-eabi-gcc",
             .package = "gcc-arm-none-eabi",
             .headers = "libnewlib-arm-none-eabi",
             .march = "armv7e-m+fp",
             .runner = ""},
};
static const struct device riscv64 = {
    .name = "riscv64",
    .hosted = {.compiler = "riscv64-linux-gnu-gcc",
               .package = "gcc-riscv64-linux-gnu",
               .headers = "libc6-dev-riscv64-cross",
               .march = "rv64gc",
               .runner = "qemu-riscv64 -L /usr/riscv64-linux-gnu "},
};
/* Devices of launches: no C compiler of the list below makes their code. */
static const struct device opencl = {.name = "opencl", .flavour = FLAVOUR_opencl};
static const struct device nvidia = {.name = "nvidia", .flavour = FLAVOUR_cuda};
/* Its programs are whole ones, but no processor of this list runs them. */
static const struct device ve = {.name = "ve", .flavour = FLAVOUR_loop};
static const struct device *const devices[] = {&x86, &arm64, &arm, &riscv64};

const struct device *device_at(int i)
{
    return i >= 0 && i < COUNT_OF(devices) ? devices[i] : NULL;
}

const struct device *device_named(const char *name)
{
    for (int i = 0; i < COUNT_OF(devices); i++)
        if (!strcmp(devices[i]->name, name)) return devices[i];
    return NULL;
}

const char *device_names(struct arena *a)
{
    struct text t = text_new(a);
    for (int i = 0; i < COUNT_OF(devices); i++) text_put(&t, "%s%s", i ? ", " : "", devices[i]->name);
    return t.at;
}

/* -- targets: instruction sets of devices */

struct named {
    const char *name;
    const struct device *device;
    const char *march;
    int vector_bytes, registers;
    bool fma;
    double clock; /* GHz under full vector load */
    /* The macros that a compiler defines for this instruction set or a larger one; the first matching row of a device
     * counts. NULL: an alias, or a name that only users select. */
    const char *macros;
};
static const struct named names[] = {
    {"x86-64-v4", &x86, "x86-64-v4", 64, 32, true, 2.6, "__AVX512F__ __AVX512BW__ __AVX512VL__ __AVX512DQ__"},
    {"x86-64-v3", &x86, "x86-64-v3", 32, 16, true, 3.0, "__AVX2__ __FMA__"},
    {"x86-64-v2", &x86, "x86-64-v2", 16, 16, false, 3.0, "__SSE4_2__"},
    {"sse2", &x86, "x86-64", 16, 16, false, 3.0, ""},
    {"sse4", &x86, "x86-64-v2", 16, 16, false, 3.0, NULL},
    {"avx", &x86, "sandybridge", 32, 16, false, 3.0, NULL},
    {"avx2", &x86, "x86-64-v3", 32, 16, true, 3.0, NULL},
    {"avx512", &x86, "x86-64-v4", 64, 32, true, 2.6, NULL},
    {"neon", &arm64, "armv8-a", 16, 32, true, 2.5, ""},
    /* the compiler splits vectors into scalars */
    {"arm", &arm, "armv7-a+fp", 16, 16, false, 1.0, ""},
    {"riscv64", &riscv64, "rv64gc", 16, 16, true, 1.0, ""},
    {"opencl", &opencl, NULL, 256, 32, true, 1.0, NULL}, /* a vector is a work group of 64 items */
    {"cuda", &nvidia, NULL, 256, 32, true, 1.4, NULL},   /* the same */
    {"ve", &ve, NULL, 4, 64, true, 1.4, NULL},           /* one lane: the compiler makes vectors of loops */
};

bool target_defines(const char *macros, const char *name)
{
    const size_t n = strcspn(name, " ");
    for (const char *at = macros; (at = strstr(at, " ")); at++)
        if (!strncmp(at + 1, name, n) && at[1 + n] == ' ') return true;
    return false;
}

static bool defines_all(const char *macros, const char *wanted)
{
    for (; *wanted; wanted += strcspn(wanted, " "), wanted += strspn(wanted, " "))
        if (!target_defines(macros, wanted)) return false;
    return true;
}

const char *target_flag(const struct target *t)
{
    return t->vector_bytes == 64 ? "-mprefer-vector-width=512" : NULL;
}

/* -- caches */

/* The first line of a Linux file about cache `index` of the first processor. */
static bool cache_file(int index, const char *name, char out[64])
{
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, name);
    FILE *f = fopen(path, "re");
    const bool ok = f && fgets(out, 64, f);
    if (f) fclose(f);
    return ok;
}

/* The number of processors in a list such as "0-3,8-11". */
static int list_count(const char *list)
{
    int n = 0, first, last, used;
    for (; sscanf(list, "%d%n", &first, &used) == 1; list += *list == ',') {
        list += used;
        last = first;
        if (*list == '-' && sscanf(list, "-%d%n", &last, &used) == 1) list += used;
        n += last >= first ? last - first + 1 : 0;
    }
    return n;
}

/* The data caches as the kernel describes them: one instance, shared by the processors in its list. A virtual machine
 * may report the L3 of a whole socket, of which its few processors have a share. No processor has more than L3_PER_CORE
 * per core. */
static void find_caches(struct target *out)
{
    int64_t *const size[] = {&out->l1, &out->l2, &out->l3};
    for (int i = 0; i < CACHES; i++) {
        char text[64];
        int level, share = 0;
        long kb;
        if (!cache_file(i, "type", text) || !strncmp(text, "Instruction", 11)) continue;
        if (!cache_file(i, "level", text) || sscanf(text, "%d", &level) != 1 || level < 1 || level > 3) continue;
        if (!cache_file(i, "size", text) || sscanf(text, "%ldK", &kb) != 1 || kb <= 0) continue;
        if (cache_file(i, "shared_cpu_list", text)) share = list_count(text);
        if (level == 3 && share) out->l3_cores = share;
        *size[level - 1] = level < 3 ? kb << 10 : MIN(kb << 10, (int64_t)MAX(share, 1) * L3_PER_CORE);
    }
}

/* What is assumed if the system does not tell. */
static void assume_caches(struct target *t)
{
    t->l1 = 32 << 10;
    t->l2 = 1 << 20;
    t->l3 = 32 << 20;
    t->l3_cores = t->cores;
}

void target_usual(struct target *t)
{
    t->cores = 4;
    assume_caches(t);
    t->l2_rate = 64 * t->clock;
    t->l3_rate = 80;
    t->dram_rate = 24;
}

void target_card_cache(struct target *t, int64_t bytes)
{
    enum { BYTES = 20 }; /* that a core reads from it in a cycle */
    t->l2 = bytes / MAX(1, t->cores);
    t->l3 = bytes;
    t->l3_cores = t->cores;
    t->l2_rate = t->l3_rate = t->cores * t->clock * BYTES;
}

/* A graphics card of which nothing is known: the facts of NVIDIA's A100. */
static void assume_card(struct target *t)
{
    t->cores = 108;
    t->fma_pipes = 1;
    t->core_items = 2048;
    t->group_items = 1024;
    t->group_bytes = 48 << 10;
    t->l1 = 164 << 10;
    t->dram_rate = 1500;
    target_card_cache(t, 40 << 20);
}

void target_assume(struct target *t)
{
    t->cores = rt_processors();
    t->core_items = t->group_items = 0;
    t->group_bytes = 0;
    assume_caches(t);
    if (target_is_card(t)) {
        assume_card(t);
        return;
    }
    find_caches(t);
    const double cores = t->cores;
    t->fma_pipes = t->fma ? 2 : 1;
    t->l2_rate = cores * t->clock * (t->vector_bytes < 32 ? 16 : 32);
    t->l3_rate = cores * 40;
    t->dram_rate = cores < 4 ? cores * 12 : 40 + cores * 2;
}

static void fill(const struct named *n, struct target *out)
{
    memset(out, 0, sizeof *out);
    out->name = n->name;
    out->device = n->device;
    out->march = n->march;
    out->vector_bytes = n->vector_bytes;
    out->simd = n->vector_bytes / (int)sizeof(float);
    out->registers = n->registers;
    out->fma = n->fma;
    out->clock = n->clock;
    target_assume(out);
}

static const struct named *find(const char *name)
{
    for (int i = 0; i < COUNT_OF(names); i++)
        if (!strcmp(names[i].name, name)) return &names[i];
    return NULL;
}

#if defined __x86_64__ || defined __i386__
/* Uses cpuid instead of __builtin_cpu_supports: that calls the compiler's own library, and some (Zig's clang) always
 * answer no. An instruction set counts only if the system also saves its registers. */
static const char *x86_name(void)
{
    enum { FMA = 1 << 12, OSXSAVE = 1 << 27, AVX = 1 << 28 };                        /* leaf 1, ecx */
    enum { AVX2 = 1 << 5 };                                                          /* leaf 7, ebx */
    const unsigned avx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;               /* F, DQ, BW, VL */
    const unsigned first = OSXSAVE | AVX | FMA, ymm = 1 << 1 | 1 << 2, zmm = 7 << 5; /* of XCR0 */
    unsigned a, b, c, d, saved, unused;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & first) != first) return "sse2";
    __asm__("xgetbv" : "=a"(saved), "=d"(unused) : "c"(0));
    if ((saved & ymm) != ymm || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & AVX2)) return "sse2";
    return (b & avx512) == avx512 && (saved & zmm) == zmm ? "avx512" : "avx2";
}
#endif

void target_host(struct target *out)
{
    const char *name = "sse2";
#if defined __aarch64__
    name = "neon";
#elif defined __arm__
    name = "arm";
#elif defined __riscv
    name = "riscv64";
#elif defined __x86_64__ || defined __i386__
    name = x86_name();
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
    char list[256];
    int used = 0;
    for (int i = 0; i < COUNT_OF(names) && used < (int)sizeof list; i++)
        used += snprintf(list + used, sizeof list - (size_t)used, ", %s", names[i].name);
    return ctx_fail(ctx, SOL_ERR_INVALID, "target: unknown name '%s'; use native%s", name, list);
}

void target_of_macros(const struct device *device, const char *macros, struct target *out)
{
    const struct named *n = names; /* every device has a row without macros */
    while (n->device != device || !n->macros || !defines_all(macros, n->macros)) n++;
    fill(n, out);
}

bool target_runs_on(const struct target *t, const struct target *host)
{
    return t->device == host->device && t->vector_bytes <= host->vector_bytes && (!t->fma || host->fma);
}

sol_status target_check(struct sol_ctx *ctx, const struct target *t)
{
    struct target host;
    target_host(&host);
    if (target_runs_on(t, &host)) return SOL_OK;
    return ctx_fail(ctx, SOL_ERR_UNSUPPORTED,
                    "target: this machine (%s, vectors of %d bytes) cannot run code for '%s' (%s, %d bytes); set the "
                    "key target to native",
                    host.device->name, host.vector_bytes, t->name, t->device->name, t->vector_bytes);
}
