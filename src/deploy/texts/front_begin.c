/* Front, first part: memory, choice of the code for this processor, weights. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "deploy/front_error.c"

enum { MOST_THREADS = 1024, HUGE_PAGE = 2 << 20, HUGE_FROM = 2 << 20, ALIGN = 64 };

static void lock(const struct front_net *net)
{
    pthread_mutex_lock(&net->state->lock);
}

static void unlock(const struct front_net *net)
{
    pthread_mutex_unlock(&net->state->lock);
}

/* -- memory */

#if defined FRONT_NATIVE /* sol_ext_malloc is that of the device */
#define HOST_MALLOC malloc
#define HOST_FREE free
#else
#define HOST_MALLOC sol_ext_malloc
#define HOST_FREE sol_ext_free
#endif

static int take(size_t bytes, const char *what, struct front_block *out_b)
{
    const size_t align = bytes >= HUGE_FROM ? HUGE_PAGE : ALIGN;
    *out_b = (struct front_block){0};
    if (!bytes) return FRONT_GOOD;
    out_b->raw = HOST_MALLOC(bytes + align);
    if (!out_b->raw) return fail(FRONT_MEMORY, "out of memory: %s needs %zu bytes", what, bytes);
    out_b->at = (char *)(((uintptr_t)out_b->raw + align - 1) / align * align);
#if defined MADV_HUGEPAGE
    if (align == HUGE_PAGE) madvise(out_b->at, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
#endif
    return FRONT_GOOD;
}

static void drop(struct front_block *b)
{
    HOST_FREE(b->raw);
    *b = (struct front_block){0};
}

/* -- choice of the code */

static uint32_t machine(void)
{
    uint32_t has = 0;
#if defined __x86_64__ || defined __i386__
    uint32_t bit = 1;
    __builtin_cpu_init();
#define X(feature, macro)                              \
    has |= __builtin_cpu_supports(feature) ? bit : 0u; \
    bit <<= 1;
#include "deploy/features.def"
#undef X
#endif
    return has;
}

static const char *missing(uint32_t needs)
{
    static const char *const names[] = {
#define X(feature, macro) feature,
#include "deploy/features.def"
#undef X
    };
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (needs >> i & 1) return names[i];
    return "";
}

/* With the lock. */
static int choose(const struct front_net *net, const char *name)
{
    const uint32_t has = machine();
    uint32_t lacks = 0;
    for (int i = 0; i < net->nversion; i++) {
        const struct front_version *v = &net->version[i];
        if (name && strcmp(name, v->name)) continue;
        lacks = v->needs & ~has;
        if (lacks) continue;
        net->state->version = v;
        return FRONT_GOOD;
    }
    if (lacks)
        return fail(FRONT_MACHINE, "%s: this processor cannot run the code for %s: it has no %s", net->name,
                    name ? name : net->version[net->nversion - 1].name, missing(lacks));
    return fail(FRONT_INVALID, "%s: there is no version '%s'", net->name, name ? name : "");
}

/* -- weights */

#if defined FRONT_WEIGHTS_FILE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "deploy/hash.h"

/* The folder of the library, or program, that contains this code, with a slash at the end; "": unknown. */
static char home[4096];

/* Called when the library is loaded, because dladdr may give a path relative to the working directory at that time. For
 * a program that was found in PATH, it gives only the name. */
FRONT_API void front_load(const struct front_net *net)
{
    Dl_info info;
    char here[sizeof home] = "";
    const char *file = dladdr(net->state, &info) && info.dli_fname ? info.dli_fname : "";
    if (!strchr(file, '/')) {
        const ssize_t n = readlink("/proc/self/exe", home, sizeof home - 1);
        home[n > 0 ? n : 0] = 0;
    } else if (*file == '/' || getcwd(here, sizeof here)) {
        const int n = snprintf(home, sizeof home, "%s%s%s", here, *here ? "/" : "", file);
        if (n >= (int)sizeof home) *home = 0;
    }
    char *slash = strrchr(home, '/');
    if (slash) slash[1] = 0;
}

/* The path of the weights file: as the application set it, or beside the library that contains this code. */
static void weights_path(const struct front_net *net, char path[8192])
{
    const char *said = net->state->weights_path;
    snprintf(path, 8192, "%s%s", said ? "" : home, said ? said : net->weights_file);
}

static int map_weights(const struct front_net *net)
{
    char path[8192];
    struct stat s;
    weights_path(net, path);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail(FRONT_FILE, "%s: cannot open the weights '%.120s': %s", net->name, path, strerror(errno));
    const bool fits = !fstat(fd, &s) && S_ISREG(s.st_mode) && (uint64_t)s.st_size == net->weights_bytes;
    void *at = fits ? mmap(NULL, net->weights_bytes, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    if (!fits)
        return fail(FRONT_FILE, "%s: the weights '%.120s' are not of this network: expected %zu bytes", net->name, path,
                    net->weights_bytes);
    if (at == MAP_FAILED) return fail(FRONT_FILE, "%s: cannot map '%.120s': %s", net->name, path, strerror(errno));
    if (front_hash(at, net->weights_bytes) != net->weights_hash) {
        munmap(at, net->weights_bytes);
        return fail(FRONT_FILE, "%s: the weights '%.120s' are not of this network, or damaged", net->name, path);
    }
    net->state->weights = at;
    return FRONT_GOOD;
}

static void unmap_weights(const struct front_net *net)
{
    if (!net->weights && net->state->weights) munmap((void *)(uintptr_t)net->state->weights, net->weights_bytes);
    net->state->weights = NULL;
}

FRONT_API int front_weights(const struct front_net *net, const char *path)
{
    int error = FRONT_GOOD;
    lock(net);
    if (net->state->weights)
        error = fail(FRONT_INVALID, "%s: the weights are already loaded: set their path first", net->name);
    else
        net->state->weights_path = path;
    unlock(net);
    return error;
}
#else
FRONT_API void front_load(const struct front_net *net)
{
    (void)net;
}

static int map_weights(const struct front_net *net)
{
    net->state->weights = net->weights;
    return FRONT_GOOD;
}

static void unmap_weights(const struct front_net *net)
{
    net->state->weights = NULL;
}
#endif

#if defined FRONT_DEVICE
static int open_there(const struct front_net *net);
#endif

/* With the lock. */
static int begin(const struct front_net *net)
{
    int error = net->state->version ? FRONT_GOOD : choose(net, NULL);
    if (!error && !net->state->weights) error = map_weights(net);
#if defined FRONT_DEVICE
    if (!error) error = open_there(net);
#endif
    return error;
}

FRONT_API int front_choose(const struct front_net *net, const char *version)
{
    lock(net);
    const int error = net->state->users || net->state->idle
                          ? fail(FRONT_INVALID, "%s: already in use: choose the version first", net->name)
                          : choose(net, version);
    unlock(net);
    return error;
}

FRONT_API const char *front_version_name(const struct front_net *net)
{
    lock(net);
    const int error = net->state->version ? FRONT_GOOD : choose(net, NULL);
    unlock(net);
    return error ? NULL : net->state->version->name;
}

#if defined FRONT_DEVICE
#include "deploy/front_device.c"
#endif

static int count_threads(int threads)
{
#if defined FRONT_DEVICE
    return count_threads_there(threads);
#endif
    if (threads <= 0) threads = rt_processors();
    return threads < MOST_THREADS ? threads : MOST_THREADS;
}
