/* The process's OpenMP runtime as a team of threads. It is found by name and never linked: libgomp, LLVM's and Intel's
 * runtime all export the entry point that gcc's code calls. Deployed libraries do not use it, because they depend on no
 * other library. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "rt/rt.h"

struct openmp {
    void (*parallel)(void (*fn)(void *), void *data, unsigned n, unsigned flags);
    int (*threads)(void), (*thread)(void);
};
struct openmp_region {
    const struct openmp *omp;
    void (*fn)(void *arg, int worker, int nworkers);
    void *arg;
};

static void openmp_enter(void *data)
{
    const struct openmp_region *r = data;
    r->fn(r->arg, r->omp->thread(), r->omp->threads());
}

static void openmp_parallel(void *user, int n, void (*fn)(void *arg, int worker, int nworkers), void *arg)
{
    if (rt_forks()) {
        rt_team_pool()->parallel(NULL, n, fn, arg);
        return;
    }
    struct openmp_region r = {user, fn, arg};
    r.omp->parallel(openmp_enter, &r, (unsigned)n, 0);
}

static void *symbol(void *handle, const char *name, void *function)
{
    void *p = dlsym(handle, name);
    memcpy(function, &p, sizeof p); /* ISO C cannot convert an object pointer to a function pointer */
    return p;
}

static bool openmp_find(void *handle, struct openmp *out)
{
    return symbol(handle, "GOMP_parallel", &out->parallel) && symbol(handle, "omp_get_num_threads", &out->threads) &&
           symbol(handle, "omp_get_thread_num", &out->thread);
}

/* A framework may have loaded its OpenMP runtime without making the symbols global. */
static int openmp_library(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    static const char *const names[] = {"libgomp", "libiomp5", "libomp"};
    const char *file = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    for (size_t i = 0; file && i < sizeof names / sizeof *names; i++) {
        const size_t n = strlen(names[i]);
        if (strncmp(file + 1, names[i], n) || (file[1 + n] != '.' && file[1 + n] != '-')) continue;
        snprintf(data, 4096, "%s", info->dlpi_name);
        return 1;
    }
    return 0;
}

const struct rt_team *rt_team_openmp(void)
{
    static struct openmp omp;
    static const struct rt_team team = {.parallel = openmp_parallel, .user = &omp};
    static atomic_bool found;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if (rt_forks()) return NULL;
    if (atomic_load_explicit(&found, memory_order_acquire)) return &team;
    pthread_mutex_lock(&lock);
    struct openmp o;
    bool ok = openmp_find(RTLD_DEFAULT, &o);
    char path[4096];
    if (!ok && dl_iterate_phdr(openmp_library, path)) {
        void *handle = dlopen(path, RTLD_NOW | RTLD_NOLOAD); /* stays open, because its threads will run our code */
        ok = handle && openmp_find(handle, &o);
    }
    if (ok && !atomic_load(&found)) omp = o;
    if (ok) atomic_store_explicit(&found, true, memory_order_release);
    pthread_mutex_unlock(&lock);
    return ok ? &team : NULL;
}
