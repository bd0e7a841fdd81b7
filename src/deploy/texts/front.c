/* Front: see front.h. A context is memory for one call at a time; weights and what was prepared of them are shared.
 *
 * Contexts of the application's own block share nothing and allocate nothing: the prepared weights lie in the block,
 * too. All other memory comes from sol_ext_malloc. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "deploy/front.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "rt/rt.h"

enum { LINE = 64, HUGE_PAGE = 2 << 20, HUGE_FROM = 4 << 20, MOST_THREADS = 1024, BLOCKS = 3 };

struct front_context {
    const struct front_net *net;
    const struct front_version *version;
    struct front_context *next; /* while idle */
    int threads, room;          /* room: threads that there is scratch memory for */
    bool own;                   /* memory of sol_ext_malloc, prepared weights shared */
    char **base, **operands;
    char *workspace, *scratch, *prepared, *saved;
    char *const *param; /* by number; NULL: the library's */
    struct front_block block[BLOCKS];
};

/* -- errors: of each thread its last */

static _Thread_local char message[256];

__attribute__((format(printf, 2, 3))) static int fail(int error, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return error;
}

FRONT_API int front_message(char *buffer, size_t size)
{
    if (size) snprintf(buffer, size, "%s", message);
    return (int)strlen(message);
}

/* -- memory */

static int take(size_t bytes, const char *what, struct front_block *out_b)
{
    const size_t align = bytes >= HUGE_FROM ? HUGE_PAGE : LINE;
    *out_b = (struct front_block){0};
    if (!bytes) return FRONT_GOOD;
    out_b->raw = sol_ext_malloc(bytes + align);
    if (!out_b->raw) return fail(FRONT_MEMORY, "out of memory: %s needs %zu bytes", what, bytes);
    out_b->at = (char *)(((uintptr_t)out_b->raw + align - 1) / align * align);
#if defined MADV_HUGEPAGE
    if (align == HUGE_PAGE) madvise(out_b->at, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
#endif
    return FRONT_GOOD;
}

static void drop(struct front_block *b)
{
    sol_ext_free(b->raw);
    *b = (struct front_block){0};
}

static size_t lines(size_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

/* Bytes of the parts of a context. */
struct sizes {
    size_t head, workspace, saved, scratch; /* scratch: for each thread; saved: behind the workspace */
};

static size_t places(const struct sol_program *p)
{
    return (size_t)p->nplace;
}

static size_t workspace(const struct sol_program *p)
{
    return (size_t)p->workspace_bytes;
}

static size_t scratch(const struct sol_program *p)
{
    return (size_t)rt_scratch_bytes(p);
}

/* The most that one of the programs needs that a context runs: forward, and what `all` adds. */
static size_t most(const struct sol_module *m, size_t (*of)(const struct sol_program *p), bool prepare, bool backward)
{
    size_t n = of(&m->forward);
    if (prepare && of(&m->prepare) > n) n = of(&m->prepare);
    if (backward && of(&m->backward) > n) n = of(&m->backward);
    return n;
}

/* With `prepare` and `backward` it can run these programs, too. */
static struct sizes sizes_of(const struct front_version *v, bool prepare, bool backward)
{
    const struct sol_module *m = v->module;
    const size_t pointers = (size_t)m->nbuffer + most(m, places, prepare, backward);
    return (struct sizes){.head = lines(sizeof(struct front_context)) + lines(pointers * sizeof(char *)),
                          .workspace = lines(most(m, workspace, prepare, backward)),
                          .saved = lines((size_t)m->saved_bytes),
                          .scratch = most(m, scratch, prepare, backward)};
}

static bool prepares(const struct front_version *v)
{
    return v->prepared_at < 0 && v->module->prepare.nstep > 0;
}

/* -- which code */

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

/* Under the lock. */
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

/* The file's path: what the application said, or beside the library that this code is in. */
static void weights_path(const struct front_net *net, char path[4096])
{
    Dl_info info;
    const char *slash = NULL;
    if (!net->state->weights_path && dladdr(net->state, &info) && info.dli_fname) slash = strrchr(info.dli_fname, '/');
    if (slash)
        snprintf(path, 4096, "%.*s/%s", (int)(slash - info.dli_fname), info.dli_fname, net->weights_file);
    else
        snprintf(path, 4096, "%s", net->state->weights_path ? net->state->weights_path : net->weights_file);
}

static int map_weights(const struct front_net *net)
{
    char path[4096];
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
#else
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

#if defined FRONT_WEIGHTS_FILE
FRONT_API int front_weights(const struct front_net *net, const char *path)
{
    int error = FRONT_GOOD;
    pthread_mutex_lock(&net->state->lock);
    if (net->state->weights)
        error = fail(FRONT_INVALID, "%s: the weights are read already: say where they are first", net->name);
    else
        net->state->weights_path = path;
    pthread_mutex_unlock(&net->state->lock);
    return error;
}
#endif

/* Under the lock. */
static int begin(const struct front_net *net)
{
    int error = net->state->version ? FRONT_GOOD : choose(net, NULL);
    if (!error && !net->state->weights) error = map_weights(net);
    return error;
}

FRONT_API int front_choose(const struct front_net *net, const char *version)
{
    pthread_mutex_lock(&net->state->lock);
    const int error = net->state->users || net->state->idle
                          ? fail(FRONT_INVALID, "%s: is in use: choose the version first", net->name)
                          : choose(net, version);
    pthread_mutex_unlock(&net->state->lock);
    return error;
}

FRONT_API const char *front_version_name(const struct front_net *net)
{
    pthread_mutex_lock(&net->state->lock);
    const int error = net->state->version ? FRONT_GOOD : choose(net, NULL);
    pthread_mutex_unlock(&net->state->lock);
    return error ? NULL : net->state->version->name;
}

/* -- running a program */

static const void *begin_of(const struct front_context *c, const struct sol_buffer *b, const void *const *in,
                            void *const *out, const int64_t *seed)
{
    const unsigned char *weights = c->net->state->weights;
    switch ((enum sol_buffer_kind)b->kind) {
    case SOL_BUFFER_INPUT: return b->index == c->net->seed_input ? (const void *)seed : in ? in[b->index] : NULL;
    case SOL_BUFFER_OUTPUT: return out ? out[b->index] : NULL;
    case SOL_BUFFER_PARAM:
        return c->param ? (const void *)c->param[b->index] : weights + c->version->param_at[b->index];
    case SOL_BUFFER_CONST: return weights + c->version->const_at[b->index];
    case SOL_BUFFER_PREPARED: return c->prepared;
    case SOL_BUFFER_WORKSPACE: return c->workspace;
    case SOL_BUFFER_SAVED: return c->saved;
    }
    return NULL;
}

static int run_program(struct front_context *c, const struct sol_program *p, const void *const *in, void *const *out,
                       const int64_t *seed)
{
    static const uint64_t seeds[8];
    const struct sol_module *m = c->version->module;
    for (int i = 0; i < m->nbuffer; i++) {
        const struct sol_buffer *b = &m->buffer[i];
        c->base[i] = (char *)((uintptr_t)begin_of(c, b, in, out, seed) + (uintptr_t)b->offset);
    }
    const struct rt_call call = {.program = p,
                                 .base = c->base,
                                 .operands = c->operands,
                                 .scratch = c->scratch,
                                 .seeds = seeds,
                                 .threads = c->threads};
    int32_t step = 0;
    const int32_t error = rt_run(&call, &step);
    if (!error) return FRONT_GOOD;
    return fail(FRONT_DATA, "%s: '%s': %s", c->net->name, p->step[step].label,
                error == SOL_KERNEL_INDEX      ? "an index is out of range"
                : error == SOL_KERNEL_DIVISION ? "an integer is divided by zero"
                                               : "an unknown error");
}

/* -- contexts */

static int count_threads(int threads)
{
    if (threads <= 0) threads = rt_processors();
    return threads < MOST_THREADS ? threads : MOST_THREADS;
}

/* The parts of a context from `block`, which is large enough, or from sol_ext_malloc. */
static int lay(const struct front_net *net, const struct sizes *s, char *block, int threads, struct front_context **out)
{
    struct front_block part[BLOCKS] = {{0}};
    const size_t bytes[BLOCKS] = {s->head, s->workspace + s->saved, s->scratch * (size_t)threads};
    static const char *const what[BLOCKS] = {"a context", "the workspace", "the threads' memory"};
    for (int i = 0; i < BLOCKS; i++) {
        int error = FRONT_GOOD;
        part[i].at = block;
        if (block)
            block += bytes[i];
        else
            error = take(bytes[i], what[i], &part[i]);
        if (!error) continue;
        while (i--) drop(&part[i]);
        return error;
    }
    const struct front_version *v = net->state->version;
    struct front_context *c = (struct front_context *)part[0].at;
    *c = (struct front_context){.net = net, .version = v, .threads = threads, .room = threads};
    c->base = (char **)(part[0].at + lines(sizeof *c));
    c->operands = c->base + v->module->nbuffer;
    c->workspace = part[1].at;
    c->saved = part[1].at ? part[1].at + s->workspace : NULL;
    c->scratch = part[2].at;
    memcpy(c->block, part, sizeof part);
    *out = c;
    return FRONT_GOOD;
}

static void drop_parts(struct front_context *c)
{
    struct front_block part[BLOCKS];
    memcpy(part, c->block, sizeof part);
    for (int i = BLOCKS - 1; i >= 0; i--) drop(&part[i]);
}

/* Under the lock, so that it happens once: the prepared weights of all contexts with own memory. */
static int share_prepared(const struct front_net *net, int threads)
{
    struct front_state *s = net->state;
    struct front_context *c;
    if (s->users || !prepares(s->version)) return FRONT_GOOD;
    const struct sizes sizes = sizes_of(s->version, true, false);
    int error = take((size_t)s->version->module->prepared_bytes, "the prepared weights", &s->prepared);
    if (!error) error = lay(net, &sizes, NULL, threads, &c);
    if (!error) {
        c->prepared = s->prepared.at;
        error = run_program(c, &s->version->module->prepare, NULL, NULL, NULL);
        drop_parts(c);
    }
    if (error) drop(&s->prepared);
    return error;
}

/* Under the lock. */
static char *prepared_of(const struct front_net *net)
{
    const int64_t at = net->state->version->prepared_at;
    return at < 0 ? net->state->prepared.at : (char *)(uintptr_t)(net->state->weights + at);
}

/* Under the lock. */
static int create_own(const struct front_net *net, int threads, struct front_context **out_c)
{
    int error = begin(net);
    if (!error) error = share_prepared(net, threads);
    if (error) return error;
    const struct sizes sizes = sizes_of(net->state->version, false, false);
    error = lay(net, &sizes, NULL, threads, out_c);
    if (error) {
        if (!net->state->users) drop(&net->state->prepared);
        return error;
    }
    net->state->users++;
    (*out_c)->own = true;
    (*out_c)->prepared = prepared_of(net);
    return FRONT_GOOD;
}

static size_t block_bytes(const struct front_version *v, int threads)
{
    const struct sizes s = sizes_of(v, prepares(v), false);
    return LINE + s.head + s.workspace + s.saved + s.scratch * (size_t)threads +
           (prepares(v) ? lines((size_t)v->module->prepared_bytes) : 0);
}

static int create_in(const struct front_net *net, void *block, size_t bytes, int threads, struct front_context **out_c)
{
    pthread_mutex_lock(&net->state->lock);
    int error = begin(net);
    pthread_mutex_unlock(&net->state->lock);
    if (error) return error;
    const struct front_version *v = net->state->version;
    if (bytes < block_bytes(v, threads))
        return fail(FRONT_INVALID, "%s: a context for %d threads needs a block of %zu bytes, got %zu", net->name,
                    threads, block_bytes(v, threads), bytes);
    const struct sizes s = sizes_of(v, prepares(v), false);
    char *at = (char *)(((uintptr_t)block + LINE - 1) / LINE * LINE);
    error = lay(net, &s, at, threads, out_c);
    if (error) return error;
    struct front_context *c = *out_c;
    memset(c->block, 0, sizeof c->block); /* the caller's */
    if (!prepares(v)) {
        c->prepared = prepared_of(net);
        return FRONT_GOOD;
    }
    c->prepared = at + s.head + s.workspace + s.saved + s.scratch * (size_t)threads;
    return run_program(c, &v->module->prepare, NULL, NULL, NULL);
}

FRONT_API int front_create(const struct front_net *net, void *block, size_t bytes, int threads,
                           struct front_context **out_c)
{
    *out_c = NULL;
    threads = count_threads(threads);
    if (block) {
        const int error = create_in(net, block, bytes, threads, out_c);
        if (error) *out_c = NULL;
        return error;
    }
    pthread_mutex_lock(&net->state->lock);
    const int error = create_own(net, threads, out_c);
    pthread_mutex_unlock(&net->state->lock);
    return error;
}

FRONT_API size_t front_bytes(const struct front_net *net, int threads)
{
    pthread_mutex_lock(&net->state->lock);
    const int error = net->state->version ? FRONT_GOOD : choose(net, NULL);
    pthread_mutex_unlock(&net->state->lock);
    return error ? 0 : block_bytes(net->state->version, count_threads(threads));
}

/* Under the lock. */
static void free_own(struct front_context *c)
{
    struct front_state *s = c->net->state;
    drop_parts(c);
    if (!--s->users) drop(&s->prepared);
}

FRONT_API void front_free(struct front_context *c)
{
    if (!c || !c->own) return;
    struct front_state *s = c->net->state;
    pthread_mutex_lock(&s->lock);
    free_own(c);
    pthread_mutex_unlock(&s->lock);
}

FRONT_API int front_threads(const struct front_net *net, struct front_context *c, int threads)
{
    if (!c) {
        pthread_mutex_lock(&net->state->lock);
        net->state->threads = threads > 0 ? count_threads(threads) : 0;
        pthread_mutex_unlock(&net->state->lock);
        return FRONT_GOOD;
    }
    threads = count_threads(threads);
    if (threads > c->room && !c->own)
        return fail(FRONT_INVALID, "%s: this context's block is for %d threads", c->net->name, c->room);
    if (threads > c->room) {
        struct front_block scratch;
        const int error =
            take(sizes_of(c->version, false, false).scratch * (size_t)threads, "the threads' memory", &scratch);
        if (error) return error;
        drop(&c->block[2]);
        c->block[2] = scratch;
        c->scratch = scratch.at;
        c->room = threads;
    }
    c->threads = threads;
    return FRONT_GOOD;
}

/* -- calls without a context take one that is idle, or make one */

static int take_idle(const struct front_net *net, struct front_context **out_c)
{
    struct front_state *s = net->state;
    int error = FRONT_GOOD;
    pthread_mutex_lock(&s->lock);
    const int threads = s->threads;
    *out_c = s->idle;
    if (s->idle)
        s->idle = s->idle->next;
    else
        error = create_own(net, count_threads(threads), out_c);
    pthread_mutex_unlock(&s->lock);
    if (!error && (*out_c)->threads != count_threads(threads)) error = front_threads(net, *out_c, threads);
    return error;
}

static void give_idle(struct front_context *c)
{
    struct front_state *s = c->net->state;
    pthread_mutex_lock(&s->lock);
    c->next = s->idle;
    s->idle = c;
    pthread_mutex_unlock(&s->lock);
}

FRONT_API int front_init(const struct front_net *net)
{
    struct front_context *c = NULL;
    const int error = take_idle(net, &c);
    if (c) give_idle(c);
    return error;
}

FRONT_API void front_unload(const struct front_net *net)
{
    struct front_state *s = net->state;
    pthread_mutex_lock(&s->lock);
    for (struct front_context *c = s->idle, *next; c; c = next) {
        next = c->next;
        free_own(c);
    }
    s->idle = NULL;
    if (!s->users) unmap_weights(net);
    pthread_mutex_unlock(&s->lock);
}

/* -- calls */

FRONT_API void front_seed(const struct front_net *net, int seed)
{
    pthread_mutex_lock(&net->state->lock);
    net->state->seed = (uint64_t)(int64_t)seed;
    net->state->drawn = 0;
    pthread_mutex_unlock(&net->state->lock);
}

/* The next number of the stream, as sol.set_seed's in Python: splitmix64. */
static int64_t next_seed(struct front_state *s)
{
    pthread_mutex_lock(&s->lock);
    uint64_t z = s->seed * 0xD1342543DE82EF95u + ++s->drawn * 0x9E3779B97F4A7C15u;
    pthread_mutex_unlock(&s->lock);
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (int64_t)((z ^ z >> 31) >> 1);
}

static int check(const struct front_net *net, const char *what, int n, const struct sol_ext_tensor *t,
                 const void *const *p)
{
    for (int i = 0; i < n; i++)
        if (t[i].bytes && !p[i])
            return fail(FRONT_INVALID, "%s: %s %d, '%s', is NULL, expected %zu bytes", net->name, what, i, t[i].name,
                        t[i].bytes);
    return FRONT_GOOD;
}

FRONT_API int front_run(const struct front_net *net, struct front_context *c, const void *const *in, void *const *out)
{
    struct front_context *taken = NULL;
    int error = check(net, "input", net->ninput, net->input, in);
    if (!error) error = check(net, "output", net->noutput, net->output, (const void *const *)out);
    if (!error && !c) {
        error = take_idle(net, &taken);
        c = taken;
    }
    if (!error) {
        const int64_t seed = net->seed_input < 0 ? 0 : next_seed(net->state);
        error = run_program(c, &c->version->module->forward, in, out, &seed);
    }
    if (taken) give_idle(taken);
    return error;
}

FRONT_API int front_predict(const struct front_net *net, struct front_context *c, const void *const *in, void **out)
{
    int error = FRONT_GOOD;
    for (int i = 0; i < net->noutput; i++) {
        const size_t bytes = net->output[i].bytes;
        out[i] = error ? NULL : sol_ext_malloc(bytes ? bytes : 1);
        if (!error && !out[i])
            error = fail(FRONT_MEMORY, "out of memory: output '%s' needs %zu bytes", net->output[i].name, bytes);
    }
    if (!error) error = front_run(net, c, in, out);
    for (int i = 0; i < net->noutput && error; i++) {
        sol_ext_free(out[i]);
        out[i] = NULL;
    }
    return error;
}
