/* Describes the machine as a text. Measurements are valid for one machine only. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tune/tune.h"

#if defined __x86_64__ || defined __i386__
#include <cpuid.h>

const char *machine_processor(struct arena *a)
{
    unsigned r[12] = {0}, b, c, d, signature = 0;
    if ((unsigned)__get_cpuid_max(0x80000000, NULL) >= 0x80000004)
        for (unsigned i = 0; i < 3; i++)
            __get_cpuid(0x80000002 + i, &r[i * 4], &r[i * 4 + 1], &r[i * 4 + 2], &r[i * 4 + 3]);
    __get_cpuid(1, &signature, &b, &c, &d);
    char *name = arena_printf(a, "%.48s", (const char *)r);
    for (char *end = name + strlen(name); end > name && end[-1] == ' ';) *--end = 0;
    return arena_printf(a, "%s %x", name, signature);
}
#else
const char *machine_processor(struct arena *a)
{
    char text[1024] = "";
    FILE *f = fopen("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1", "r");
    if (!f) return "unknown";
    if (!fgets(text, sizeof text, f)) *text = 0;
    fclose(f);
    text[strcspn(text, "\n")] = 0;
    return arena_strdup(a, text);
}
#endif

/* Another device: its type, name and code. What was found on processors does not hold there. */
static const char *device_text(struct arena *a, const struct sol_device_info *device)
{
    return arena_printf(a, "%s, %s %s", device->type, device->name, device->arch);
}

const char *machine_text(struct sol_ctx *ctx, struct arena *a, const struct target *t,
                         const struct sol_device_info *device)
{
    const int most = atoi(ctx_config(ctx, "threads"));
    const char *where = device ? device_text(a, device)
                               : arena_printf(a, "%s %dB%s, %s, L2 %lldK", t->device->name, t->vector_bytes,
                                              t->fma ? "" : " no fma", machine_processor(a), (long long)t->l2 >> 10);
    return arena_printf(a, "%s, %d threads%s", where, most > 0 ? most : t->cores, plan_limits(ctx, t));
}

const char *machine_kind(struct arena *a, const char *machine)
{
    const char *threads = strstr(machine, " threads");
    return arena_printf(a, "%.*s%s", (int)strcspn(machine, ","), machine, threads ? threads + strlen(" threads") : "");
}

double machine_free_bytes(void)
{
    char line[128];
    long long kib = -1;
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && kib < 0 && fgets(line, sizeof line, f)) sscanf(line, "MemAvailable: %lld kB", &kib);
    if (f) fclose(f);
    return kib < 0 ? HUGE_VAL : (double)kib * 1024;
}
