/* The functions of libveo that libveda uses. A context is a thread that executes requests in order; a .vso is a shared
 * object of this machine. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "double.h"

enum { MOST_ARGS = 16, LIBVEDA = 1 };
enum { COMMAND_OK = 0, COMMAND_EXCEPTION = 1, COMMAND_ERROR = 2 }; /* veo_command_state */
#define NO_REQUEST (~UINT64_C(0))

struct args {
    uint64_t value[MOST_ARGS];
    void *stack[MOST_ARGS]; /* a copy of memory of the host; NULL: a value */
};
enum kind { CALL, CALL_HOST, READ, WRITE };
struct request {
    struct request *next;
    uint64_t id, function, device;
    enum kind kind;
    struct args args;
    void *host;
    size_t bytes;
    uint64_t result;
    int state;
};
struct context {
    pthread_t thread;
    pthread_mutex_t lock, block; /* lock: for all below */
    pthread_cond_t changed;
    struct request *first, **last, *finished;
    uint64_t ids, running; /* 0: none */
    bool busy;
};
static struct process {
    int unused;
} process;
static atomic_long requests;

static void sleep_us(long us)
{
    nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

/* -- executing */

typedef uint64_t kernel(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

static void execute(struct request *r)
{
    const long number = atomic_fetch_add(&requests, 1) + 1, delay = setting("delay", 0);
    if (number == setting("hang_at", 0)) sleep_us(1000 * setting("hang_ms", 3600000));
    if (delay) sleep_us((number * 7919 + setting("seed", 1)) * 2654435761 % 1000003 % (delay + 1));
    const uint64_t *v = r->args.value;
    char *at = r->kind == READ || r->kind == WRITE ? memory_open(r->device, r->bytes) : NULL;
    r->state = COMMAND_OK;
    if (number == setting("fail_at", 0) || ((r->kind == READ || r->kind == WRITE) && !at))
        r->state = COMMAND_EXCEPTION;
    else if (r->kind == READ)
        memcpy(r->host, at, r->bytes);
    else if (r->kind == WRITE)
        memcpy(at, r->host, r->bytes);
    else if (r->kind == CALL)
        r->result = ((kernel *)(uintptr_t)r->function)(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]);
    else
        r->result = ((uint64_t(*)(void *))(uintptr_t)r->function)(r->host);
}

static void *work(void *user)
{
    struct context *c = user;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        struct request *r = c->first;
        if (!r) {
            pthread_cond_wait(&c->changed, &c->lock);
            continue;
        }
        c->busy = true;
        c->running = r->id;
        c->first = r->next;
        if (!c->first) c->last = &c->first;
        pthread_mutex_unlock(&c->lock);
        execute(r);
        pthread_mutex_lock(&c->lock);
        r->next = c->finished;
        c->finished = r;
        c->busy = false;
        c->running = 0;
        pthread_cond_broadcast(&c->changed);
    }
    return NULL;
}

static uint64_t append(struct context *c, struct request what)
{
    struct request *r = malloc(sizeof *r);
    if (!r) return NO_REQUEST;
    *r = what;
    r->next = NULL;
    pthread_mutex_lock(&c->lock);
    r->id = ++c->ids;
    *c->last = r;
    c->last = &r->next;
    pthread_cond_broadcast(&c->changed);
    const uint64_t id = r->id;
    pthread_mutex_unlock(&c->lock);
    return id;
}

/* Has it been asked for, and not waited for? The caller holds the lock. */
static bool is_under_way(const struct context *c, uint64_t id)
{
    const struct request *r = c->first;
    while (r && r->id != id) r = r->next;
    return r || c->running == id;
}

API int veo_call_wait_result(struct context *c, uint64_t id, uint64_t *out)
{
    pthread_mutex_lock(&c->lock);
    for (;;) {
        struct request **at = &c->finished, *r;
        while (*at && (*at)->id != id) at = &(*at)->next;
        if ((r = *at)) {
            *at = r->next;
            const int state = r->state;
            *out = r->result;
            pthread_mutex_unlock(&c->lock);
            for (int i = 0; i < MOST_ARGS; i++) free(r->args.stack[i]);
            free(r);
            return state;
        }
        if (!is_under_way(c, id)) {
            pthread_mutex_unlock(&c->lock);
            return COMMAND_ERROR;
        }
        pthread_cond_wait(&c->changed, &c->lock);
    }
}

API uint64_t veo_call_async(struct context *c, uint64_t function, struct args *a)
{
    struct request r = {.kind = CALL, .function = function, .args = *a};
    memset(a->stack, 0, sizeof a->stack); /* the request frees them */
    return append(c, r);
}
API uint64_t veo_call_async_vh(struct context *c, uint64_t (*f)(void *), void *user)
{
    return append(c, (struct request){.kind = CALL_HOST, .function = (uint64_t)(uintptr_t)f, .host = user});
}
API uint64_t veo_async_read_mem(struct context *c, void *to, uint64_t from, size_t bytes)
{
    return append(c, (struct request){.kind = READ, .host = to, .device = from, .bytes = bytes});
}
API uint64_t veo_async_write_mem(struct context *c, uint64_t to, const void *from, size_t bytes)
{
    return append(c, (struct request){.kind = WRITE, .host = (void *)(uintptr_t)from, .device = to, .bytes = bytes});
}
API uint64_t veo_alloc_mem_async(struct context *c, size_t bytes)
{
    return append(c,
                  (struct request){.kind = CALL, .function = (uint64_t)(uintptr_t)memory_take, .args = {{bytes}, {0}}});
}
API uint64_t veo_free_mem_async(struct context *c, uint64_t at)
{
    return append(c, (struct request){.kind = CALL, .function = (uint64_t)(uintptr_t)memory_give, .args = {{at}, {0}}});
}
API void veo_req_block_begin(struct context *c)
{
    pthread_mutex_lock(&c->block);
}
API void veo_req_block_end(struct context *c)
{
    pthread_mutex_unlock(&c->block);
}
API int veo_get_context_state(struct context *c)
{
    pthread_mutex_lock(&c->lock);
    const bool busy = c->first || c->busy;
    pthread_mutex_unlock(&c->lock);
    return busy ? 1 : 4;
}

/* -- processes, contexts, libraries */

API struct context *veo_context_open(struct process *p)
{
    struct context *c = calloc(1, sizeof *c);
    pthread_mutexattr_t a;
    (void)p;
    if (!c) return NULL;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->block, &a);
    pthread_cond_init(&c->changed, NULL);
    c->last = &c->first;
    return pthread_create(&c->thread, NULL, work, c) ? NULL : c;
}
API struct process *veo_proc_create(int number)
{
    (void)number;
    return memory_begin() ? &process : NULL;
}
API int veo_proc_destroy(struct process *p)
{
    (void)p;
    return 0;
}
API int veo_proc_identifier(struct process *p)
{
    (void)p;
    return 0;
}
API uint64_t veo_load_library(struct process *p, const char *path)
{
    (void)p;
    if (strstr(path, "libveda.vso")) return LIBVEDA;
    return (uint64_t)(uintptr_t)dlopen(path, RTLD_NOW | RTLD_LOCAL);
}
API int veo_unload_library(struct process *p, uint64_t library)
{
    (void)p;
    return library == LIBVEDA ? 0 : dlclose((void *)(uintptr_t)library);
}
API uint64_t veo_get_sym(struct process *p, uint64_t library, const char *name)
{
    (void)p;
    void *f = library == LIBVEDA ? memory_function(name) : dlsym((void *)(uintptr_t)library, name);
    return (uint64_t)(uintptr_t)f;
}

/* -- arguments */

API struct args *veo_args_alloc(void)
{
    return calloc(1, sizeof(struct args));
}
API void veo_args_free(struct args *a)
{
    for (int i = 0; i < MOST_ARGS; i++) free(a->stack[i]);
    free(a);
}
#define SETTER(name, type)                                         \
    API int veo_args_set_##name(struct args *a, int i, type value) \
    {                                                              \
        a->value[i] = (uint64_t)value;                             \
        return 0;                                                  \
    }
SETTER(i8, int8_t)
SETTER(i16, int16_t)
SETTER(i32, int32_t)
SETTER(i64, int64_t)
SETTER(u8, uint8_t)
SETTER(u16, uint16_t)
SETTER(u32, uint32_t)
SETTER(u64, uint64_t)
API int veo_args_set_float(struct args *a, int i, float value)
{
    memcpy(&a->value[i], &value, sizeof value);
    return 0;
}
API int veo_args_set_double(struct args *a, int i, double value)
{
    memcpy(&a->value[i], &value, sizeof value);
    return 0;
}
/* intent 0: in. Otherwise the device writes the host's memory, of which this double makes no copy. */
API int veo_args_set_stack(struct args *a, int intent, int i, char *from, size_t bytes)
{
    void *copy = intent ? NULL : malloc(bytes);
    if (copy) memcpy(copy, from, bytes);
    a->stack[i] = copy;
    a->value[i] = (uint64_t)(uintptr_t)(copy ? copy : from);
    return 0;
}
API int veo_args_set_hmem(struct args *a, int i, void *p)
{
    a->value[i] = (uint64_t)(uintptr_t)p;
    return 0;
}

/* -- memory that hosts of several devices share: there is none */

API int veo_alloc_hmem(void *p, void **out, size_t bytes)
{
    (void)p, (void)bytes;
    *out = NULL;
    return -1;
}
API int veo_free_hmem(void *p)
{
    (void)p;
    return -1;
}
API int veo_is_ve_addr(const void *p)
{
    (void)p;
    return 0;
}
API void *veo_get_hmem_addr(void *p)
{
    return p;
}
API int veo_hmemcpy(void *to, const void *from, size_t bytes)
{
    (void)to, (void)from, (void)bytes;
    return -1;
}
API const char *veo_version_string(void)
{
    return "3.0.2-double";
}
