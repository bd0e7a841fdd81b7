/* The device: a process that owns memory and runs programs, for whoever connects to its socket. It may be compiled for
 * another processor than the plug-in, and run in an emulator.
 *
 * usage: sol-remote-server SOCKET MEMORY: listens at the path, has so many bytes, and ends when its input ends. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <time.h>

#include "remote.h"
#include "sol/module.h"
#include "sol/sol.h"

/* -- memory */

struct piece {
    struct piece *next;
    void *at;
    int64_t bytes;
};
static struct {
    pthread_mutex_t lock; /* for all below */
    int64_t limit, used;
    struct piece *pieces;
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *take(int64_t bytes)
{
    struct piece *p = malloc(sizeof *p);
    if (!p) return NULL;
    *p = (struct piece){.bytes = bytes};
    pthread_mutex_lock(&memory.lock);
    if (bytes <= memory.limit - memory.used && !posix_memalign(&p->at, 256, (size_t)bytes)) {
        memory.used += bytes;
        p->next = memory.pieces;
        memory.pieces = p;
    }
    pthread_mutex_unlock(&memory.lock);
    void *at = p->at;
    if (!at) free(p);
    return at;
}

static void give(const void *at)
{
    pthread_mutex_lock(&memory.lock);
    for (struct piece **p = &memory.pieces; *p; p = &(*p)->next)
        if ((*p)->at == at) {
            struct piece *found = *p;
            *p = found->next;
            memory.used -= found->bytes;
            free(found->at);
            free(found);
            break;
        }
    pthread_mutex_unlock(&memory.lock);
}

/* -- code */

enum { MOST_CODES = 1 << 16 };
struct code {
    void *handle;
    const struct sol_module *module;
};
static struct {
    pthread_mutex_t lock; /* for all below */
    struct code *code[MOST_CODES];
} codes = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A shared object is opened by a path. The text says why not. */
static struct code *open_code(const void *data, size_t bytes, char *text, size_t room)
{
    char path[] = "/tmp/sol-remote-XXXXXX";
    const int fd = mkstemp(path);
    if (fd < 0) return NULL;
    const bool written = write(fd, data, bytes) == (ssize_t)bytes;
    close(fd);
    void *handle = written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!handle) snprintf(text, room, "%s", written ? dlerror() : "there is no space in /tmp");
    unlink(path);
    const struct sol_module *module = handle ? dlsym(handle, "sol_module") : NULL;
    const bool good = module && module->version == SOL_MODULE_VERSION;
    struct code *c = good ? malloc(sizeof *c) : NULL;
    if (c) *c = (struct code){handle, module};
    if (handle && !good) snprintf(text, room, "it has no sol_module of version %d", SOL_MODULE_VERSION);
    if (handle && !c) dlclose(handle);
    return c;
}

static void drop_code(struct code *c)
{
    if (c) dlclose(c->handle);
    free(c);
}

/* 0: there is no room, and it is dropped. */
static int64_t keep_code(struct code *c)
{
    int64_t i = 1;
    pthread_mutex_lock(&codes.lock);
    while (i < MOST_CODES && codes.code[i]) i++;
    if (i < MOST_CODES) codes.code[i] = c;
    pthread_mutex_unlock(&codes.lock);
    if (i < MOST_CODES) return i;
    drop_code(c);
    return 0;
}

static struct code *code_of(int64_t number, bool takes)
{
    pthread_mutex_lock(&codes.lock);
    struct code *c = number > 0 && number < MOST_CODES ? codes.code[number] : NULL;
    if (c && takes) codes.code[number] = NULL;
    pthread_mutex_unlock(&codes.lock);
    return c;
}

/* -- programs: one worker runs all steps */

static int64_t quantity(int64_t q, const int64_t *sizes)
{
    return q < SOL_SIZE ? q : sizes[q - SOL_SIZE];
}

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* A stage of a team with one worker. */
static void run_alone(void *user, sol_kernel *stage, char *const *p, const struct sol_frame *f, int64_t tasks,
                      int worker)
{
    (void)user;
    stage(p, f, 0, tasks, worker);
}

struct running {
    const struct remote_run *r;
    const struct sol_program *program;
    const int64_t *base, *sizes;
    const char *only;
    int64_t *ns;
    char **p;     /* addresses of operands */
    char **begin; /* of buffers */
};

/* Runs the steps. Returns what a kernel reports; *out_step is then the step. */
static int32_t run_steps(const struct running *x, const uint64_t *seeds, int32_t *out_step)
{
    static const struct sol_team team = {.run = run_alone};
    volatile int32_t error = 0, error_step = 0;
    struct sol_frame f = {.base = x->begin,
                          .scratch = (void *)(intptr_t)x->r->scratch,
                          .scratch_bytes = (quantity(x->program->scratch_bytes, x->sizes) + 63) / 64 * 64,
                          .seeds = seeds,
                          .error = &error,
                          .error_step = &error_step,
                          .sizes = x->sizes};
    for (int32_t i = 0; i < x->r->count && !error; i++) {
        const int32_t number = x->r->first + i;
        const struct sol_step *s = &x->program->step[number];
        const int64_t tasks = quantity(s->tasks, x->sizes), start = now();
        if (!x->only[i] || !tasks) continue;
        for (int32_t k = 0; k < s->places; k++) {
            const struct sol_operand *o = &x->program->place[s->place0 + k];
            x->p[k] = x->begin[o->buffer] + quantity(o->offset, x->sizes);
        }
        f.step = number;
        f.team = s->kind == SOL_STEP_TEAM ? &team : NULL;
        s->run(x->p, &f, 0, tasks, 0);
        x->ns[i] = now() - start;
        *out_step = number;
    }
    return error;
}

/* The arrays behind the struct, if the message is long enough for them. */
static bool read_run(const char *data, size_t bytes, struct running *x, const uint64_t **out_seeds)
{
    const struct remote_run *r = x->r = (const void *)data;
    if (bytes < sizeof *r || r->nbase < 0 || r->nsize < 0 || r->nseed < 0 || r->first < 0 || r->count < 0) return false;
    const size_t numbers = (size_t)r->nbase + (size_t)r->nsize + (size_t)r->nseed;
    if (bytes != sizeof *r + numbers * sizeof(int64_t) + (size_t)r->count) return false;
    x->base = (const void *)(r + 1);
    x->sizes = x->base + r->nbase;
    *out_seeds = (const void *)(x->sizes + r->nsize);
    x->only = (const char *)(*out_seeds + r->nseed);
    return true;
}

/* Answers REMOTE_RUN. The times are a new array. */
static const char *run(const char *data, size_t bytes, struct message *answer, void **out_times)
{
    struct running x = {0};
    const uint64_t *seeds;
    int32_t step = -1;
    answer->status = SOL_ERR_INVALID;
    answer->a = -1; /* no step, so far */
    const struct code *code = read_run(data, bytes, &x, &seeds) ? code_of(x.r->code, false) : NULL;
    if (!code || x.r->nbase != code->module->nbuffer) return "RUN without code, or with other buffers";
    const struct sol_module *m = code->module;
    x.program = x.r->program == 0 ? &m->prepare : x.r->program == 1 ? &m->forward : &m->backward;
    if (x.r->first + x.r->count > x.program->nstep) return "RUN of steps that the program does not have";
    const size_t places = (size_t)m->nbuffer + (size_t)x.program->nplace + 1;
    x.ns = calloc((size_t)x.r->count + 1, sizeof *x.ns);
    x.begin = calloc(places, sizeof *x.begin);
    answer->status = SOL_ERR_NOMEM;
    *out_times = x.ns;
    if (!x.ns || !x.begin) {
        free(x.begin);
        return "no memory for addresses";
    }
    x.p = x.begin + m->nbuffer;
    for (int i = 0; i < m->nbuffer; i++) x.begin[i] = (char *)(intptr_t)x.base[i];
    answer->b = run_steps(&x, seeds, &step);
    answer->a = answer->b ? step : -1;
    answer->status = answer->b ? SOL_ERR_RUN : SOL_OK;
    answer->bytes = x.r->timed ? x.r->count * (int64_t)sizeof *x.ns : 0;
    free(x.begin);
    return answer->b ? "a kernel reports an error" : NULL;
}

/* -- connections */

/* Answers a request. Returns a text if it failed. *out_data, to be freed, are the bytes of the answer; NULL: those
 * of `from`. */
static const char *answer(const struct message *m, char *data, struct message *a, void **out_data,
                          const void **out_from)
{
    static __thread char text[600];
    switch ((enum request)m->request) {
    case REMOTE_ALLOC:
        if ((a->a = (int64_t)(intptr_t)take(m->n))) return NULL;
        a->status = SOL_ERR_NOMEM;
        snprintf(text, sizeof text, "out of device memory: %lld bytes are wanted, %lld of %lld are free",
                 (long long)m->n, (long long)(memory.limit - memory.used), (long long)memory.limit);
        return text;
    case REMOTE_FREE: give((void *)(intptr_t)m->a); return NULL;
    case REMOTE_LOAD: {
        snprintf(text, sizeof text, "no memory, or no file in /tmp");
        struct code *c = open_code(data, (size_t)m->bytes, text, sizeof text);
        a->a = c ? keep_code(c) : 0;
        a->status = a->a ? SOL_OK : SOL_ERR_IO;
        return a->a ? NULL : text;
    }
    case REMOTE_UNLOAD: drop_code(code_of(m->a, true)); return NULL;
    case REMOTE_WRITE: return NULL; /* received where it belongs */
    case REMOTE_READ:
        *out_from = (const void *)(intptr_t)m->b;
        a->bytes = m->n;
        return NULL;
    case REMOTE_COPY: memcpy((void *)(intptr_t)m->a, (const void *)(intptr_t)m->b, (size_t)m->n); return NULL;
    case REMOTE_FILL: memset((void *)(intptr_t)m->a, (int)m->b, (size_t)m->n); return NULL;
    case REMOTE_RUN: return run(data, (size_t)m->bytes, a, out_data);
    }
    a->status = SOL_ERR_INVALID;
    return "a request that this server does not know";
}

static bool serve_one(int fd)
{
    struct message m, a = {0};
    void *data = NULL, *own = NULL;
    const void *from = NULL;
    if (!receive_all(fd, &m, sizeof m) || m.bytes < 0) return false;
    const bool direct = m.request == REMOTE_WRITE;
    if (!direct && m.bytes && !(own = malloc((size_t)m.bytes))) return false;
    bool good = receive_all(fd, direct ? (void *)(intptr_t)m.a : own, (size_t)m.bytes);
    const int64_t start = now();
    if (good) {
        const char *text = answer(&m, own, &a, &data, &from);
        if (text) {
            from = text;
            a.bytes = (int64_t)strlen(text) + 1;
        }
        a.n = now() - start;
        good = send_all(fd, &a, sizeof a) && send_all(fd, from ? from : data, (size_t)a.bytes);
    }
    free(own);
    free(data);
    return good;
}

static void *serve(void *user)
{
    const int fd = (int)(intptr_t)user;
    while (serve_one(fd)) continue;
    close(fd);
    return NULL;
}

static void *wait_for_end(void *user)
{
    char c;
    while (read(0, &c, 1) > 0) continue;
    unlink(user);
    _exit(0);
}

int main(int argc, char **argv)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    pthread_t thread;
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (argc != 3 || fd < 0 || strlen(argv[1]) >= sizeof at.sun_path) return 2;
    strcpy(at.sun_path, argv[1]);
    memory.limit = atoll(argv[2]);
    if (bind(fd, (const void *)&at, sizeof at) || listen(fd, 64)) return 1;
    if (pthread_create(&thread, NULL, wait_for_end, argv[1])) return 1;
    puts("ready");
    fflush(stdout);
    for (;;) {
        const int client = accept(fd, NULL, NULL);
        if (client < 0) continue;
        if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)client))
            close(client);
        else
            pthread_detach(thread);
    }
}
