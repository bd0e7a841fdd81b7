/* Front: see front.h. A context is memory for one call at a time; weights and what was prepared of them are shared.
 *
 * Contexts of the application's own block share nothing and allocate nothing: the prepared weights lie in the block,
 * too. All other memory comes from sol_ext_malloc. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "deploy/front.h"

#include "rt/rt.h"

#include "deploy/front_begin.c"

enum { MOST_THREADS = 1024, BLOCKS = 3 };

struct front_context {
    const struct front_net *net;
    const struct front_graph *graph;
    const struct front_code *code;
    struct front_context *next; /* while idle */
    int threads, room;          /* room: threads that there is scratch memory for */
    bool own;                   /* memory of sol_ext_malloc, prepared weights shared */
    char **base, **operands;
    char *workspace, *saved, *opaque, *scratch, *prepared;
    char *const *param; /* by number: what was learned; NULL: the library's */
    struct front_block block[BLOCKS];
};

_Static_assert(sizeof(struct front_context) <= FRONT_CONTEXT_BYTES, "macros of the header count with less");

/* -- how much */

static size_t lines(size_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

/* Bytes of the parts of a context. What is saved and what layers without loops need lies behind the workspace; scratch
 * is for each thread. */
struct sizes {
    size_t head, workspace, saved, opaque, scratch, prepared;
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
static struct sizes sizes_of(const struct front_code *code, bool prepare, bool backward)
{
    const struct sol_module *m = code->module;
    const size_t pointers = (size_t)m->nbuffer + most(m, places, prepare, backward);
    return (struct sizes){.head = FRONT_CONTEXT_BYTES + lines(pointers * sizeof(char *)),
                          .workspace = lines(most(m, workspace, prepare, backward)),
                          .saved = lines((size_t)m->saved_bytes),
                          .opaque = lines(code->opaque_bytes),
                          .scratch = most(m, scratch, prepare, backward),
                          .prepared = lines((size_t)m->prepared_bytes)};
}

static const struct front_code *code_of(const struct front_net *net, const struct front_graph *graph)
{
    return &graph->code[net->state->version - net->version];
}

static bool prepares(const struct front_code *code)
{
    return code->module->prepare.nstep > 0;
}

static size_t behind_workspace(const struct sizes *s)
{
    return s->saved + s->opaque;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Of a context that prepares by itself. */
static struct sizes sizes_in_block(const struct front_code *code)
{
    return sizes_of(code, prepares(code), false);
}

/* Of one that can have any of the graphs. */
static struct sizes sizes_of_all(const struct front_net *net)
{
    struct sizes all = {0};
    for (int i = 0; i < net->ngraph; i++) {
        const struct front_code *code = code_of(net, &net->graph[i]);
        const struct sizes s = sizes_in_block(code);
        all.head = larger(all.head, s.head);
        all.workspace = larger(all.workspace, s.workspace + behind_workspace(&s));
        all.scratch = larger(all.scratch, s.scratch);
        all.prepared = larger(all.prepared, s.prepared);
    }
    return all;
}

/* Only the tables of pointers have to be large enough for every graph: the context lies where they are. */
static struct sizes sizes_of_own(const struct front_net *net, const struct front_graph *graph)
{
    struct sizes s = sizes_of(code_of(net, graph), false, false);
    for (int i = 0; i < net->ngraph; i++)
        s.head = larger(s.head, sizes_of(code_of(net, &net->graph[i]), false, false).head);
    return s;
}

/* -- running a program */

static const void *begin_of(const struct front_context *c, const struct sol_buffer *b, const void *const *in,
                            void *const *out, const int64_t *seed)
{
    const unsigned char *weights = c->net->state->weights;
    const char *learned = c->param && b->kind == SOL_BUFFER_PARAM ? c->param[b->index] : NULL;
    switch ((enum sol_buffer_kind)b->kind) {
    case SOL_BUFFER_INPUT: return b->index == c->graph->seed_input ? (const void *)seed : in ? in[b->index] : NULL;
    case SOL_BUFFER_OUTPUT: return out ? out[b->index] : NULL;
    case SOL_BUFFER_PARAM: return learned ? (const void *)learned : weights + c->code->param_at[b->index];
    case SOL_BUFFER_CONST: return weights + c->code->const_at[b->index];
    case SOL_BUFFER_PREPARED: return c->prepared;
    case SOL_BUFFER_WORKSPACE: return c->workspace;
    case SOL_BUFFER_SAVED: return c->saved;
    }
    return NULL;
}

#if defined FRONT_OPAQUE
/* A layer without loops. */
static int32_t run_opaque(void *user, int32_t call, char *const *p)
{
    const struct front_context *c = user;
    struct alone_bad bad;
    const struct alone *a = c->code->opaque[call];
    const enum alone_error error = a->kind->run(a, p, c->opaque, &bad);
    return !error ? SOL_KERNEL_OK : error == ALONE_INDEX ? SOL_KERNEL_INDEX : SOL_KERNEL_MATRIX;
}
#endif

static int run_program(struct front_context *c, const struct sol_program *p, const void *const *in, void *const *out,
                       const int64_t *seed)
{
    static const uint64_t seeds[8];
    const struct sol_module *m = c->code->module;
    for (int i = 0; i < m->nbuffer; i++) {
        const struct sol_buffer *b = &m->buffer[i];
        c->base[i] = (char *)((uintptr_t)begin_of(c, b, in, out, seed) + (uintptr_t)b->offset);
    }
    const struct rt_call call = {
        .program = p,
        .base = c->base,
        .operands = c->operands,
        .scratch = c->scratch,
        .seeds = seeds,
#if defined FRONT_OPAQUE
        .host = run_opaque,
        .host_user = c,
#endif
        .threads = c->threads
    };
    int32_t step = 0;
    const int32_t error = rt_run(&call, &step);
    if (!error) return FRONT_GOOD;
    return fail(FRONT_DATA, "%s: '%s': %s", c->net->name, p->step[step].label,
                error == SOL_KERNEL_INDEX      ? "an index is out of range"
                : error == SOL_KERNEL_DIVISION ? "an integer is divided by zero"
                : error == SOL_KERNEL_MATRIX   ? "a matrix is singular, not positive definite, or not finite"
                                               : "an unknown error");
}

/* -- contexts */

static int count_threads(int threads)
{
    if (threads <= 0) threads = rt_processors();
    return threads < MOST_THREADS ? threads : MOST_THREADS;
}

static void drop_parts(struct front_block part[BLOCKS])
{
    struct front_block own[BLOCKS]; /* a context lies in its own first part */
    memcpy(own, part, sizeof own);
    for (int i = BLOCKS - 1; i >= 0; i--) drop(&own[i]);
}

/* The parts from `first` on, of `block`, which is large enough, or from sol_ext_malloc. */
static int take_parts(const struct sizes *s, int first, char *block, int threads, struct front_block part[BLOCKS])
{
    const size_t bytes[BLOCKS] = {s->head, s->workspace + behind_workspace(s), s->scratch * (size_t)threads};
    static const char *const what[BLOCKS] = {"a context", "the workspace", "the threads' memory"};
    memset(part, 0, BLOCKS * sizeof *part);
    for (int i = first; i < BLOCKS; i++) {
        int error = FRONT_GOOD;
        part[i].at = block;
        if (block)
            block += bytes[i];
        else
            error = take(bytes[i], what[i], &part[i]);
        if (!error) continue;
        drop_parts(part);
        return error;
    }
    return FRONT_GOOD;
}

/* What depends on the graph. */
static void set_graph(struct front_context *c, const struct front_graph *graph, const struct front_code *code,
                      const struct sizes *s)
{
    c->graph = graph;
    c->code = code;
    c->operands = c->base + c->code->module->nbuffer;
    c->workspace = c->block[1].at;
    c->saved = c->workspace ? c->workspace + s->workspace : NULL;
    c->opaque = c->workspace ? c->saved + s->saved : NULL;
    c->scratch = c->block[2].at;
}

static int lay(const struct front_net *net, const struct front_graph *graph, const struct sizes *s, char *block,
               int threads, struct front_context **out)
{
    struct front_block part[BLOCKS];
    const int error = take_parts(s, 0, block, threads, part);
    if (error) return error;
    struct front_context *c = (struct front_context *)part[0].at;
    *c = (struct front_context){.net = net, .threads = threads, .room = threads};
    c->base = (char **)(part[0].at + FRONT_CONTEXT_BYTES);
    memcpy(c->block, part, sizeof part);
    set_graph(c, graph, code_of(net, graph), s);
    *out = c;
    return FRONT_GOOD;
}

/* Under the lock, so that it happens once: the prepared weights of all contexts with own memory. */
static int share_prepared(const struct front_net *net, const struct front_graph *graph, int threads)
{
    struct front_shared *shared = graph->shared;
    struct front_context *c;
    const struct front_code *code = code_of(net, graph);
    if (shared->users || !prepares(code)) return FRONT_GOOD;
    const struct sizes sizes = sizes_of(code, true, false);
    int error = take(sizes.prepared, "the prepared weights", &shared->prepared);
    if (!error) error = lay(net, graph, &sizes, NULL, threads, &c);
    if (!error) {
        c->prepared = shared->prepared.at;
        error = run_program(c, &code->module->prepare, NULL, NULL, NULL);
        drop_parts(c->block);
    }
    if (error) drop(&shared->prepared);
    return error;
}

/* Under the lock. */
static void drop_unused(struct front_shared *shared)
{
    if (!shared->users) drop(&shared->prepared);
}

/* Under the lock. */
static int create_own(const struct front_net *net, const struct front_graph *graph, int threads,
                      struct front_context **out_c)
{
    int error = begin(net);
    if (!error) error = share_prepared(net, graph, threads);
    if (error) return error;
    const struct sizes sizes = sizes_of_own(net, graph);
    error = lay(net, graph, &sizes, NULL, threads, out_c);
    if (error) {
        drop_unused(graph->shared);
        return error;
    }
    net->state->users++;
    graph->shared->users++;
    (*out_c)->own = true;
    (*out_c)->prepared = graph->shared->prepared.at;
    return FRONT_GOOD;
}

static size_t block_bytes(const struct front_net *net, int threads)
{
    const struct sizes s = sizes_of_all(net);
    return LINE + s.head + s.workspace + s.scratch * (size_t)threads + s.prepared;
}

static int prepare_block(struct front_context *c)
{
    return prepares(c->code) ? run_program(c, &c->code->module->prepare, NULL, NULL, NULL) : FRONT_GOOD;
}

static int create_in(const struct front_net *net, void *block, size_t bytes, int threads, struct front_context **out_c)
{
    pthread_mutex_lock(&net->state->lock);
    int error = begin(net);
    const struct front_graph *graph = &net->graph[net->state->graph];
    pthread_mutex_unlock(&net->state->lock);
    if (error) return error;
    if (bytes < block_bytes(net, threads))
        return fail(FRONT_INVALID, "%s: a context for %d threads needs a block of %zu bytes, got %zu", net->name,
                    threads, block_bytes(net, threads), bytes);
    const struct front_code *code = code_of(net, graph);
    const struct sizes all = sizes_of_all(net), s = sizes_in_block(code);
    char *at = (char *)(((uintptr_t)block + LINE - 1) / LINE * LINE);
    error = lay(net, graph, &all, at, threads, out_c);
    if (error) return error;
    struct front_context *c = *out_c;
    for (int i = 0; i < BLOCKS; i++) c->block[i].raw = NULL; /* the caller's */
    set_graph(c, graph, code, &s);
    c->prepared = at + all.head + all.workspace + all.scratch * (size_t)threads;
    return prepare_block(c);
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
    const int error = create_own(net, &net->graph[net->state->graph], threads, out_c);
    pthread_mutex_unlock(&net->state->lock);
    return error;
}

FRONT_API size_t front_bytes(const struct front_net *net, int threads)
{
    pthread_mutex_lock(&net->state->lock);
    const int error = net->state->version ? FRONT_GOOD : choose(net, NULL);
    pthread_mutex_unlock(&net->state->lock);
    return error ? 0 : block_bytes(net, count_threads(threads));
}

/* Under the lock. */
static void free_own(struct front_context *c)
{
    struct front_state *s = c->net->state;
    struct front_shared *shared = c->graph->shared;
    drop_parts(c->block);
    s->users--;
    shared->users--;
    drop_unused(shared);
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
            take(sizes_of(c->code, false, false).scratch * (size_t)threads, "the threads' memory", &scratch);
        if (error) return error;
        drop(&c->block[2]);
        c->block[2] = scratch;
        c->scratch = scratch.at;
        c->room = threads;
    }
    c->threads = threads;
    return FRONT_GOOD;
}

/* -- batch sizes */

static const struct front_graph *graph_for(const struct front_net *net, int64_t batch)
{
    for (int i = 0; i < net->ngraph; i++)
        if (net->graph[i].batch == batch) return &net->graph[i];
    return NULL;
}

static int no_graph(const struct front_net *net, int64_t batch)
{
    char sizes[128] = "";
    size_t n = 0;
    for (int i = 0; i < net->ngraph && n < sizeof sizes; i++)
        n += (size_t)snprintf(sizes + n, sizeof sizes - n, "%s%lld", i ? ", " : "", (long long)net->graph[i].batch);
    return fail(FRONT_INVALID, "%s: batch size %lld: this library is for %s", net->name, (long long)batch, sizes);
}

FRONT_API const struct sol_ext_tensor *front_tensor(const struct front_net *net, int64_t batch, bool output, int i)
{
    const struct front_graph *graph = graph_for(net, batch);
    if (!graph || i < 0 || i >= (output ? net->noutput : net->ninput)) return NULL;
    return output ? &graph->output[i] : &graph->input[i];
}

/* Under the lock. The context stays as it is if something fails. */
static int move_own(struct front_context *c, const struct front_graph *graph)
{
    struct front_block part[BLOCKS];
    const struct sizes sizes = sizes_of_own(c->net, graph);
    int error = share_prepared(c->net, graph, c->threads);
    if (!error) error = take_parts(&sizes, 1, NULL, c->threads, part);
    if (error) {
        drop_unused(graph->shared);
        return error;
    }
    c->graph->shared->users--;
    drop_unused(c->graph->shared);
    graph->shared->users++;
    for (int i = 1; i < BLOCKS; i++) {
        drop(&c->block[i]);
        c->block[i] = part[i];
    }
    set_graph(c, graph, code_of(c->net, graph), &sizes);
    c->room = c->threads;
    c->prepared = graph->shared->prepared.at;
    return FRONT_GOOD;
}

FRONT_API int front_batch(const struct front_net *net, struct front_context *c, int64_t batch)
{
    const struct front_graph *graph = graph_for(net, batch);
    int error = FRONT_GOOD;
    if (!graph) return no_graph(net, batch);
    if (c && c->graph == graph) return FRONT_GOOD;
    if (c && !c->own) {
        const struct front_code *code = &graph->code[c->code - c->graph->code]; /* of the version it was made for */
        const struct sizes s = sizes_in_block(code);
        set_graph(c, graph, code, &s);
        return prepare_block(c);
    }
    pthread_mutex_lock(&net->state->lock);
    if (c)
        error = move_own(c, graph);
    else
        net->state->graph = (int)(graph - net->graph);
    pthread_mutex_unlock(&net->state->lock);
    return error;
}

/* -- calls without a context take one that is idle, or make one */

static int take_idle(const struct front_net *net, struct front_context **out_c)
{
    struct front_state *s = net->state;
    int error = FRONT_GOOD;
    pthread_mutex_lock(&s->lock);
    const int threads = s->threads;
    const struct front_graph *graph = &net->graph[s->graph];
    struct front_context **at = &s->idle;
    while (*at && (*at)->graph != graph) at = &(*at)->next;
    *out_c = *at;
    if (*at)
        *at = (*at)->next;
    else
        error = create_own(net, graph, count_threads(threads), out_c);
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
        if (t[i].bytes && (!p || !p[i]))
            return fail(FRONT_INVALID, "%s: %s %d, '%s', is NULL, expected %zu bytes", net->name, what, i, t[i].name,
                        t[i].bytes);
    return FRONT_GOOD;
}

static int run(struct front_context *c, const void *const *in, void *const *out)
{
    const struct front_net *net = c->net;
    int error = check(net, "input", net->ninput, c->graph->input, in);
    if (!error) error = check(net, "output", net->noutput, c->graph->output, (const void *const *)out);
    if (error) return error;
    const int64_t seed = c->graph->seed_input < 0 ? 0 : next_seed(net->state);
    return run_program(c, &c->code->module->forward, in, out, &seed);
}

FRONT_API int front_run(const struct front_net *net, struct front_context *c, const void *const *in, void *const *out)
{
    struct front_context *taken = NULL;
    int error = c ? FRONT_GOOD : take_idle(net, &taken);
    if (!error) error = run(c ? c : taken, in, out);
    if (taken) give_idle(taken);
    return error;
}

static int run_allocating(struct front_context *c, const void *const *in, void **out)
{
    int error = FRONT_GOOD;
    for (int i = 0; i < c->net->noutput && !error; i++) {
        const struct sol_ext_tensor *t = &c->graph->output[i];
        out[i] = sol_ext_malloc(t->bytes ? t->bytes : 1);
        if (!out[i]) error = fail(FRONT_MEMORY, "out of memory: output '%s' needs %zu bytes", t->name, t->bytes);
    }
    return error ? error : run(c, in, out);
}

FRONT_API int front_predict(const struct front_net *net, struct front_context *c, const void *const *in, void **out)
{
    struct front_context *taken = NULL;
    for (int i = 0; i < net->noutput; i++) out[i] = NULL;
    int error = c ? FRONT_GOOD : take_idle(net, &taken);
    if (!error) error = run_allocating(c ? c : taken, in, out);
    for (int i = 0; i < net->noutput && error; i++) {
        sol_ext_free(out[i]);
        out[i] = NULL;
    }
    if (taken) give_idle(taken);
    return error;
}
