/* How many processors this process may use: those that its affinity mask has, and the quota of its cgroups. It depends
 * on libc only, and is part of libsol and of deployed libraries. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "rt/rt.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#if defined __linux__
enum { CGROUP_LINE = 4096 };

/* Reads up to two numbers from a file; the rest is unchanged. */
static void read_numbers(const char *folder, const char *name, long long *a, long long *b)
{
    char path[2 * CGROUP_LINE + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "re");
    if (!f) return;
    if (fscanf(f, "%lld %lld", a, b) < 1) *a = -1; /* "max": no limit */
    fclose(f);
}

/* The quota of one cgroup, rounded up: "200000 100000" in cgroup v2, two files in v1. 0: no limit. */
static int group_quota(const char *folder)
{
    long long quota = -1, period = 100000, none;
    read_numbers(folder, "cpu.max", &quota, &period);
    read_numbers(folder, "cpu.cfs_quota_us", &quota, &none);
    read_numbers(folder, "cpu.cfs_period_us", &period, &none);
    if (quota <= 0 || period <= 0) return 0;
    quota = (quota - 1) / period + 1;
    return quota < 1 << 20 ? (int)quota : 0;
}

/* Finds the cgroup of this process: in the v2 hierarchy, or in the v1 hierarchy of the cpu controller. */
static bool own_group(const char *root, bool v2, char out[CGROUP_LINE])
{
    char line[CGROUP_LINE + 300], list[256] = ",";
    bool found = false;
    snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
    FILE *f = fopen(line, "re");
    while (f && !found && fgets(line, sizeof line, f)) {
        const bool first = !strncmp(line, "0::", 3);
        if (v2 && first) found = sscanf(line, "0::%4095[^\n]", out) == 1;
        if (!v2 && !first && sscanf(line, "%*d:%250[^:]:%4095[^\n]", list + 1, out) == 2)
            found = strstr(strcat(list, ","), ",cpu,");
    }
    if (f) fclose(f);
    return found;
}

/* The smallest quota from the process's own cgroup up to the mount point, since all of them apply. `mount` is a line of
 * mountinfo. */
static int mounted_quota(const char *root, const char *mount)
{
    char below[CGROUP_LINE], at[CGROUP_LINE], group[CGROUP_LINE], folder[2 * CGROUP_LINE];
    int least = 0;
    const char *type = strstr(mount, " - cgroup");
    if (!type || sscanf(mount, "%*d %*d %*s %4095s %4095s", below, at) != 2) return 0;
    if (!own_group(root, !strncmp(type, " - cgroup2 ", 11), group)) return 0;
    const size_t n = strcmp(below, "/") ? strlen(below) : 0; /* perhaps only a subtree is mounted */
    const bool inside = !strncmp(group, below, n) && (group[n] == '/' || !group[n]);
    snprintf(folder, sizeof folder, "%s%s%s", root, at, inside ? group + n : "");
    for (const size_t top = strlen(root) + strlen(at);; *strrchr(folder, '/') = 0) {
        const int quota = group_quota(folder);
        if (quota && (!least || quota < least)) least = quota;
        if (strlen(folder) <= top) return least;
    }
}

int rt_quota(const char *root)
{
    char line[3 * CGROUP_LINE];
    int least = 0;
    snprintf(line, sizeof line, "%s/proc/self/mountinfo", root);
    FILE *f = fopen(line, "re");
    while (f && fgets(line, sizeof line, f)) {
        const int quota = mounted_quota(root, line);
        if (quota && (!least || quota < least)) least = quota;
    }
    if (f) fclose(f);
    return least;
}

/* The kernel rejects a CPU set smaller than its own, and libc's default type has only 1024 processors. */
static int affinity(void)
{
    for (int room = 1024; room <= 1 << 20; room *= 2) {
        cpu_set_t *set = CPU_ALLOC(room);
        if (!set) return 0;
        const size_t bytes = CPU_ALLOC_SIZE(room);
        const bool ok = !sched_getaffinity(0, bytes, set);
        const int n = ok ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (ok || errno != EINVAL) return n;
    }
    return 0;
}
#else
int rt_quota(const char *root)
{
    (void)root;
    return 0;
}
#endif

int rt_processors(void)
{
    static atomic_int known;
    int n = atomic_load_explicit(&known, memory_order_relaxed);
    if (n) return n;
#if defined __linux__
    n = affinity();
#endif
    if (n < 1) n = (int)sysconf(_SC_NPROCESSORS_ONLN); /* sysconf reads a file */
    const int quota = n > 1 ? rt_quota("") : 0;
    if (quota && quota < n) n = quota;
    if (n < 1) n = 1;
    atomic_store_explicit(&known, n, memory_order_relaxed);
    return n;
}
