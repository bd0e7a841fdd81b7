/* The functions of libcuda that SOL uses. A stream is a thread that executes commands in order. As in the driver, a
 * function needs a context that is current in its thread, and a command that breaks the context makes all fail. */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "nvidia.h"

#define API __attribute__((visibility("default")))
#define NEEDS_CONTEXT                      \
    if (!contexts) return INVALID_CONTEXT; \
    if (atomic_load(&broken)) return BROKEN

enum { INVALID = 1, NO_MEMORY = 2, INVALID_IMAGE = 200, INVALID_CONTEXT = 201, NOT_FOUND = 500, NOT_READY = 600 };
enum { BROKEN = 700, FAILED = 719 };

struct event {
    int64_t recorded, done; /* how often */
    struct timespec at;
};
enum kind { WRITE, READ, COPY, FILL, LAUNCH, RECORD, CALL, AFTER };
struct command {
    struct command *next;
    enum kind kind;
    int64_t number;
    uint64_t to, from;
    const void *data;
    void *host;
    size_t bytes;
    unsigned char value;
    struct event *event;
    int64_t records; /* AFTER: how often it was recorded then */
    const struct kernel *kernel;
    void (*call)(const void *facts); /* with `values` */
    struct group group;
    unsigned shared;
    void *parameter[MOST_PARAMETERS];
    char values[8 * MOST_PARAMETERS];
};
struct stream {
    bool captures;
    struct command *captured, **captured_last;
    pthread_t thread;
    struct command *first, **last;
    bool busy, ends;
};
struct module {
    void *library;
    struct kernel *kernels;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for streams and events */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct stream *legacy; /* the default stream, whose handle is 0 or 1 */
static struct locked {        /* memory that is page-locked */
    struct locked *next;
    size_t bytes;
    char at[];
} * locked;
static atomic_int broken;
static atomic_int_least64_t commands;
static atomic_long launches, graphs; /* by cuLaunchKernel, outside of a capture, and by cuGraphLaunch */
static __thread int contexts;
static __thread bool in_graph;

long setting(const char *name, long otherwise)
{
    const char *at = getenv("SOL_CUDA_DOUBLE");
    const size_t n = strlen(name);
    for (; at && *at; at += strcspn(at, ","), at += *at == ',')
        if (!strncmp(at, name, n) && at[n] == '=') return atol(at + n + 1);
    return otherwise;
}

/* -- streams */

static void sleep_us(long us)
{
    nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

static void execute(struct command *c)
{
    const long span = memory_span(), delay = setting("delay", 0);
    const uint64_t draw = ((uint64_t)c->number * 7919 + (uint64_t)setting("seed", 1)) * 2654435761u >> 8;
    if (c->number && c->number == setting("hang_at", 0)) sleep_us(1000 * setting("hang_ms", 3600000));
    if (c->number && delay) sleep_us((long)(draw % (uint64_t)(delay + 1)));
    if (c->number && c->number == setting("break_at", 0)) atomic_store(&broken, 1);
    if (atomic_load(&broken)) return;
    char *to = (char *)(uintptr_t)c->to + span, *from = (char *)(uintptr_t)c->from + span;
    if (c->kind == WRITE) memcpy(to, c->data, c->bytes);
    if (c->kind == READ) memcpy(c->host, from, c->bytes);
    if (c->kind == COPY) memcpy(to, from, c->bytes);
    if (c->kind == FILL) memset(to, c->value, c->bytes);
    if (c->kind == CALL) c->call(c->values);
    if (c->kind == LAUNCH) items_run(c->kernel, c->group, c->shared, c->parameter, (unsigned)draw);
}

API int cuStreamCreate(struct stream **out, unsigned flags);

static void *work(void *user)
{
    struct stream *s = user;
    pthread_mutex_lock(&lock);
    while (!s->ends || s->first) {
        struct command *c = s->first;
        if (!c) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        s->first = c->next;
        if (!s->first) s->last = &s->first;
        s->busy = true;
        while (c->kind == AFTER && c->event->done < c->records) pthread_cond_wait(&changed, &lock);
        pthread_mutex_unlock(&lock);
        execute(c);
        pthread_mutex_lock(&lock);
        if (c->kind == RECORD) {
            c->event->done++;
            clock_gettime(CLOCK_MONOTONIC, &c->event->at);
        }
        free(c);
        s->busy = false;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* The parameters are copied. */
static struct command *copy_of(const struct command *what)
{
    struct command *c = malloc(sizeof *c);
    if (!c) return NULL;
    *c = *what;
    c->next = NULL;
    if (c->kind == LAUNCH) { /* parameters are copied */
        char *at = c->values;
        for (int i = 0; i < c->kernel->n; i++, at += 8) {
            memcpy(at, what->parameter[i], (size_t)c->kernel->size[i]);
            c->parameter[i] = at;
        }
    }
    return c;
}

static struct stream *stream_of(struct stream *s)
{
    if ((uintptr_t)s > 1) return s;
    pthread_mutex_lock(&lock);
    struct stream *found = legacy;
    pthread_mutex_unlock(&lock);
    if (found || cuStreamCreate(&found, 0)) return found;
    pthread_mutex_lock(&lock);
    if (!legacy) legacy = found;
    found = legacy;
    pthread_mutex_unlock(&lock);
    return found;
}

static int append(struct stream *given, const struct command *what)
{
    struct command *c = copy_of(what);
    struct stream *s = stream_of(given);
    if (!s || !c) return INVALID;
    if (s->captures) {
        *s->captured_last = c;
        s->captured_last = &c->next;
        return c->kind == COPY || c->kind == FILL || c->kind == LAUNCH || c->kind == CALL ? 0 : INVALID;
    }
    atomic_fetch_add(&launches, c->kind == LAUNCH && !in_graph);
    if (c->kind < RECORD) c->number = atomic_fetch_add(&commands, 1) + 1;
    if (c->number && c->number == setting("fail_at", 0)) {
        free(c);
        return FAILED;
    }
    pthread_mutex_lock(&lock);
    if (c->kind == RECORD) c->event->recorded++;
    if (c->kind == AFTER) c->records = c->event->recorded;
    *s->last = c;
    s->last = &c->next;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return 0;
}

int stream_call(struct stream *s, void (*call)(const void *facts), const void *facts, size_t bytes)
{
    NEEDS_CONTEXT;
    struct command c = {.kind = CALL, .call = call};
    if (bytes > sizeof c.values) return INVALID;
    memcpy(c.values, facts, bytes);
    return append(s, &c);
}

API int cuStreamCreate(struct stream **out, unsigned flags)
{
    NEEDS_CONTEXT;
    (void)flags;
    struct stream *s = calloc(1, sizeof *s);
    if (!s) return NO_MEMORY;
    s->last = &s->first;
    if (pthread_create(&s->thread, NULL, work, s)) return NO_MEMORY;
    *out = s;
    return 0;
}

API int cuStreamDestroy_v2(struct stream *s)
{
    pthread_mutex_lock(&lock);
    s->ends = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(s->thread, NULL);
    free(s);
    return 0;
}

API int cuStreamSynchronize(struct stream *s)
{
    NEEDS_CONTEXT;
    s = stream_of(s);
    pthread_mutex_lock(&lock);
    while (s->first || s->busy) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return atomic_load(&broken) ? BROKEN : 0;
}

static bool is_locked(const void *p)
{
    pthread_mutex_lock(&lock);
    const struct locked *l = locked;
    while (l && ((const char *)p < l->at || (const char *)p >= l->at + l->bytes)) l = l->next;
    pthread_mutex_unlock(&lock);
    return l;
}

API int cuMemAllocHost_v2(void **out, size_t bytes)
{
    NEEDS_CONTEXT;
    struct locked *l = malloc(sizeof *l + bytes);
    if (!l) return NO_MEMORY;
    pthread_mutex_lock(&lock);
    l->bytes = bytes;
    l->next = locked;
    locked = l;
    pthread_mutex_unlock(&lock);
    *out = l->at;
    return 0;
}

API int cuMemFreeHost(void *p)
{
    pthread_mutex_lock(&lock);
    struct locked **at = &locked;
    while (*at && (*at)->at != p) at = &(*at)->next;
    struct locked *l = *at;
    if (l) *at = l->next;
    pthread_mutex_unlock(&lock);
    free(l);
    return l ? 0 : INVALID;
}

API int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, struct stream *s)
{
    NEEDS_CONTEXT;
    if (!memory_has(to, bytes)) return INVALID;
    return append(s, &(struct command){.kind = WRITE, .to = to, .data = from, .bytes = bytes});
}

API int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, struct stream *s)
{
    NEEDS_CONTEXT;
    if (!memory_has(from, bytes)) return INVALID;
    const int error = append(s, &(struct command){.kind = READ, .from = from, .host = to, .bytes = bytes});
    return error || !setting("pageable", 0) || is_locked(to) ? error : cuStreamSynchronize(s);
}

API int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, struct stream *s)
{
    NEEDS_CONTEXT;
    if (!memory_has(to, bytes) || !memory_has(from, bytes)) return INVALID;
    return append(s, &(struct command){.kind = COPY, .to = to, .from = from, .bytes = bytes});
}

API int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, struct stream *s)
{
    NEEDS_CONTEXT;
    if (!memory_has(to, bytes)) return INVALID;
    return append(s, &(struct command){.kind = FILL, .to = to, .value = value, .bytes = bytes});
}

API int cuLaunchKernel(const struct kernel *k, unsigned gx, unsigned gy, unsigned gz, unsigned x, unsigned y,
                       unsigned z, unsigned shared, struct stream *s, void **parameters, void **extra)
{
    NEEDS_CONTEXT;
    if (!gx || !gy || !gz || gy * gz > 65535 || x * y * z > MOST_ITEMS || y * z != 1 || gy * gz != 1) return INVALID;
    if (!x || shared > setting("shared", GROUP_BYTES) || extra) return INVALID;
    struct command c = {.kind = LAUNCH, .kernel = k, .shared = shared};
    c.group = (struct group){.items = {x, y, z}, .groups = {gx, gy, gz}};
    memcpy(c.parameter, parameters, (size_t)k->n * sizeof *parameters);
    return k->run ? append(s, &c) : 0;
}

/* -- graphs: the commands that a stream captured */

API int cuStreamBeginCapture_v2(struct stream *s, int mode)
{
    NEEDS_CONTEXT;
    if (!s || s->captures || mode != 2) return INVALID;
    s->captures = true;
    s->captured = NULL;
    s->captured_last = &s->captured;
    return 0;
}

API int cuStreamIsCapturing(struct stream *s, int *out)
{
    NEEDS_CONTEXT;
    s = stream_of(s);
    *out = s && s->captures;
    return s ? 0 : INVALID;
}

API int cuStreamEndCapture(struct stream *s, struct command **out)
{
    NEEDS_CONTEXT;
    if (!s->captures) return INVALID;
    s->captures = false;
    *out = s->captured;
    return *out ? 0 : INVALID;
}

static void free_list(struct command *c)
{
    for (struct command *next; c; c = next) {
        next = c->next;
        free(c);
    }
}

API int cuGraphInstantiateWithFlags(struct command **out, const struct command *graph, unsigned long long flags)
{
    NEEDS_CONTEXT;
    struct command **last = out;
    *out = NULL;
    for (const struct command *c = graph; c && !flags; c = c->next, last = &(*last)->next) *last = copy_of(c);
    return flags ? INVALID : 0;
}

API int cuGraphDestroy(struct command *graph)
{
    free_list(graph);
    return 0;
}

API int cuGraphExecDestroy(struct command *exec)
{
    free_list(exec);
    return 0;
}

API int cuGraphLaunch(const struct command *exec, struct stream *s)
{
    NEEDS_CONTEXT;
    int error = 0;
    in_graph = true;
    for (const struct command *c = exec; c && !error; c = c->next) error = append(s, c);
    in_graph = false;
    atomic_fetch_add(&graphs, 1);
    return error;
}

/* For tests: how often kernels and graphs were launched. */
API void cuda_double_launches(long *out_kernels, long *out_graphs)
{
    *out_kernels = atomic_load(&launches);
    *out_graphs = atomic_load(&graphs);
}

/* -- events */

API int cuEventCreate(struct event **out, unsigned flags)
{
    NEEDS_CONTEXT;
    (void)flags;
    *out = calloc(1, sizeof **out);
    return *out ? 0 : NO_MEMORY;
}

API int cuEventDestroy_v2(struct event *e)
{
    free(e);
    return 0;
}

API int cuEventRecord(struct event *e, struct stream *s)
{
    NEEDS_CONTEXT;
    return append(s, &(struct command){.kind = RECORD, .event = e});
}

API int cuEventQuery(struct event *e)
{
    NEEDS_CONTEXT;
    pthread_mutex_lock(&lock);
    const bool done = e->done == e->recorded;
    pthread_mutex_unlock(&lock);
    return done ? 0 : NOT_READY;
}

API int cuEventSynchronize(struct event *e)
{
    NEEDS_CONTEXT;
    pthread_mutex_lock(&lock);
    while (e->done != e->recorded) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return atomic_load(&broken) ? BROKEN : 0;
}

API int cuStreamWaitEvent(struct stream *s, struct event *e, unsigned flags)
{
    NEEDS_CONTEXT;
    return flags ? INVALID : append(s, &(struct command){.kind = AFTER, .event = e});
}

API int cuEventElapsedTime(float *out_ms, const struct event *from, const struct event *to)
{
    *out_ms =
        (float)((double)(to->at.tv_sec - from->at.tv_sec) * 1e3 + (double)(to->at.tv_nsec - from->at.tv_nsec) * 1e-6);
    return 0;
}

/* -- code */

static struct kernel *kernel_of(void *library, const char *name)
{
    char run[200], sizes[200];
    snprintf(run, sizeof run, "cuda_run_%s", name);
    snprintf(sizes, sizeof sizes, "cuda_sizes_%s", name);
    int (*sizes_of)(int *) = (int (*)(int *))dlsym(library, sizes);
    if (!sizes_of) return NULL;
    struct kernel *k = calloc(1, sizeof *k);
    k->run = (void (*)(struct group *, void **))dlsym(library, run);
    k->shared = (char *(*)(void))dlsym(library, "cuda_shared");
    k->n = sizes_of(k->size);
    return k;
}

API int cuModuleLoadData(struct module **out, const void *image)
{
    NEEDS_CONTEXT;
    char path[] = "/tmp/sol-cuda-code-XXXXXX";
    uint64_t bytes;
    if (memcmp(image, CODE_MAGIC, 8)) return INVALID_IMAGE;
    memcpy(&bytes, (const char *)image + 8, 8);
    if (!bytes) return *out = calloc(1, sizeof **out), 0;
    const int fd = mkstemp(path);
    const bool written = fd >= 0 && write(fd, (const char *)image + 16, bytes) == (ssize_t)bytes;
    if (fd >= 0) close(fd);
    void *library = written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) fprintf(stderr, "%s\n", dlerror());
    remove(path);
    if (!library) return INVALID_IMAGE;
    *out = calloc(1, sizeof **out);
    (*out)->library = library;
    return 0;
}

API int cuModuleUnload(struct module *m)
{
    for (struct kernel *k = m->kernels, *next; k; k = next) {
        next = k->next;
        free(k);
    }
    if (m->library) dlclose(m->library);
    free(m);
    return 0;
}

API int cuModuleGetFunction(struct kernel **out, struct module *m, const char *name)
{
    NEEDS_CONTEXT;
    struct kernel *k = m->library ? kernel_of(m->library, name) : calloc(1, sizeof *k);
    if (!k) return NOT_FOUND;
    pthread_mutex_lock(&lock);
    k->next = m->kernels;
    m->kernels = k;
    pthread_mutex_unlock(&lock);
    *out = k;
    return 0;
}

API int cuModuleGetGlobal_v2(uint64_t *out, size_t *out_bytes, const struct module *m, const char *name)
{
    NEEDS_CONTEXT;
    const void *at = m->library ? dlsym(m->library, name) : NULL;
    const ElfW(Sym) * symbol;
    Dl_info info;
    if (!at || !dladdr1(at, &info, (void **)&symbol, RTLD_DL_SYMENT)) return NOT_FOUND;
    *out = (uint64_t)((const char *)at - memory_span());
    *out_bytes = symbol->st_size;
    return 0;
}

API int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes)
{
    NEEDS_CONTEXT;
    memcpy(to, (const char *)(uintptr_t)from + memory_span(), bytes);
    return 0;
}

API int cuFuncSetAttribute(struct kernel *k, int what, int value)
{
    (void)k, (void)what, (void)value;
    return 0;
}

/* -- devices, contexts, memory */

API int cuInit(unsigned flags)
{
    return flags ? INVALID : 0;
}

API int cuGetErrorString(int error, const char **out)
{
    *out = error == NO_MEMORY         ? "out of memory"
           : error == INVALID         ? "invalid argument"
           : error == INVALID_IMAGE   ? "device kernel image is invalid"
           : error == INVALID_CONTEXT ? "invalid device context"
           : error == NOT_FOUND       ? "named symbol not found"
           : error == BROKEN          ? "an illegal memory access was encountered"
           : error == FAILED          ? "unspecified launch failure"
                                      : NULL;
    return *out ? 0 : INVALID;
}

API int cuDeviceGetCount(int *out)
{
    *out = (int)setting("devices", 1);
    return 0;
}

API int cuDeviceGet(int *out, int index)
{
    *out = index;
    return index < (int)setting("devices", 1) ? 0 : INVALID;
}

API int cuDeviceGetName(char *out, int room, int device)
{
    (void)device;
    snprintf(out, (size_t)room, "a double of libcuda, for tests");
    return 0;
}

API int cuDeviceTotalMem_v2(size_t *out, int device)
{
    (void)device;
    *out = (size_t)setting("memory", 4000000000);
    return 0;
}

API int cuDeviceGetAttribute(int *out, int what, int device)
{
    const int cc = (int)setting("cc", 90);
    const int cores = (int)setting("cores", 16), shared = (int)setting("shared", GROUP_BYTES);
    const int values[][2] = {{1, MOST_ITEMS}, {8, shared},     {10, 32},       {13, 1980000}, {16, cores},
                             {36, 2619000},   {37, 5120},      {38, 50 << 20}, {39, 2048},    {75, cc / 10},
                             {76, cc % 10},   {81, 228 << 10}, {97, shared}};
    (void)device;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (values[i][0] == what) {
            *out = values[i][1];
            return 0;
        }
    return INVALID;
}

API int cuDevicePrimaryCtxRetain(void **out, int device)
{
    static int context;
    (void)device;
    *out = &context;
    return 0;
}

API int cuDevicePrimaryCtxRelease_v2(int device)
{
    (void)device;
    return 0;
}

API int cuCtxPushCurrent_v2(void *context)
{
    contexts += context != NULL;
    return context ? 0 : INVALID_CONTEXT;
}

API int cuCtxPopCurrent_v2(void **out)
{
    *out = NULL;
    return contexts ? contexts--, 0 : INVALID_CONTEXT;
}

API int cuMemGetInfo_v2(size_t *there, size_t *all)
{
    NEEDS_CONTEXT;
    *there = memory_there();
    return cuDeviceTotalMem_v2(all, 0);
}

API int cuMemAlloc_v2(uint64_t *out, size_t bytes)
{
    NEEDS_CONTEXT;
    return memory_alloc(out, bytes);
}

API int cuMemFree_v2(uint64_t p)
{
    return memory_free(p);
}
