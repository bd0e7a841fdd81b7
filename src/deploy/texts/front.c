/* Front: see front.h. A context is memory for one call at a time. Contexts share the weights and what was prepared from
 * them.
 *
 * Contexts in a block of the application share nothing and allocate nothing: the prepared weights are in the block,
 * too. All other memory comes from sol_ext_malloc. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "deploy/front.h"

#include "rt/rt.h"

#include "deploy/front_begin.c"
#if !defined FRONT_DEVICE /* the network runs where contexts are */
#define take_there take
#define drop_there drop
#define end_there(c)
#endif
#include "deploy/front_block.c"

/* -- contexts with memory of sol_ext_malloc */

/* The tables of pointers must be large enough for every graph, because the context is in the same part as they are. */
static struct sizes sizes_of_own(const struct front_net *net, const struct front_graph *graph)
{
    struct sizes s = sizes_of(code_of(net, graph), false, false);
    for (int i = 0; i < net->ngraph; i++)
        s.head = larger(s.head, sizes_of(code_of(net, &net->graph[i]), false, false).head);
    return s;
}

static void drop_parts(struct front_block part[BLOCKS])
{
    struct front_block own[BLOCKS]; /* the context itself is in the first part */
    memcpy(own, part, sizeof own);
    for (int i = BLOCKS - 1; i > 0; i--) drop_there(&own[i]);
    drop(&own[0]);
}

static void drop_context(struct front_context *c)
{
    end_there(c);
    drop_parts(c->block);
}

/* Allocates the parts from `first` on with sol_ext_malloc. */
static int take_parts(const struct sizes *s, int first, int threads, struct front_block part[BLOCKS])
{
    const size_t bytes[BLOCKS] = {s->head, s->workspace + behind_workspace(s), s->scratch * (size_t)threads};
    static const char *const what[BLOCKS] = {"a context", "the workspace", "the threads' memory"};
    memset(part, 0, BLOCKS * sizeof *part);
    for (int i = first; i < BLOCKS; i++) {
        const int error = i ? take_there(bytes[i], what[i], &part[i]) : take(bytes[i], what[i], &part[i]);
        if (!error) continue;
        drop_parts(part);
        return error;
    }
    return FRONT_GOOD;
}

static int lay_own(const struct front_net *net, const struct front_graph *graph, const struct sizes *s, int threads,
                   struct front_context **out_c)
{
    struct front_block part[BLOCKS];
    const int error = take_parts(s, 0, threads, part);
    if (!error) *out_c = lay(net, graph, s, part, threads);
    return error;
}

/* With the lock, so it happens once: allocates the prepared weights that all contexts with their own memory share. */
static int share_prepared(const struct front_net *net, const struct front_graph *graph, int threads)
{
    struct front_shared *shared = graph->shared;
    struct front_context *c;
    const struct front_code *code = code_of(net, graph);
    if (shared->users || !prepares(code)) return FRONT_GOOD;
    const struct sizes sizes = sizes_of(code, true, false);
    int error = take_there(sizes.prepared, "the prepared weights", &shared->prepared);
    if (!error) error = lay_own(net, graph, &sizes, threads, &c);
    if (!error) {
        c->prepared = shared->prepared.at;
        error = run_program(c, &code->module->prepare, NULL, NULL, NULL);
        drop_context(c);
    }
    if (error) drop_there(&shared->prepared);
    return error;
}

/* With the lock. */
static void drop_unused(struct front_shared *shared)
{
    if (!shared->users) drop_there(&shared->prepared);
}

/* With the lock. block: of the caller, for the tables; NULL: from sol_ext_malloc, too. */
static int create_own(const struct front_net *net, const struct front_graph *graph, int threads, char *block,
                      struct front_context **out_c)
{
    int error = begin(net);
    threads = count_threads(threads); /* a device is open now */
    if (!error) error = share_prepared(net, graph, threads);
    if (error) return error;
    const struct sizes sizes = sizes_of_own(net, graph);
    struct front_block part[BLOCKS];
    error = take_parts(&sizes, block ? 1 : 0, threads, part);
    if (block) part[0].at = block;
    if (error) {
        drop_unused(graph->shared);
        return error;
    }
    *out_c = lay(net, graph, &sizes, part, threads);
    net->state->users++;
    graph->shared->users++;
    (*out_c)->own = true;
    (*out_c)->prepared = graph->shared->prepared.at;
    return FRONT_GOOD;
}

#if defined FRONT_DEVICE
/* The block has the tables of the context, and the device the rest. */
static int create_in(const struct front_net *net, void *block, size_t bytes, int threads, struct front_context **out_c)
{
    char *at = (char *)(((uintptr_t)block + LINE - 1) / LINE * LINE);
    lock(net);
    int error = begin(net);
    if (!error && bytes < block_bytes(net, threads))
        error = fail(FRONT_INVALID, "%s: a context needs a block of %zu bytes, got %zu", net->name,
                     block_bytes(net, threads), bytes);
    if (!error) error = create_own(net, &net->graph[net->state->graph], count_threads(threads), at, out_c);
    unlock(net);
    return error;
}
#endif

FRONT_API int front_create(const struct front_net *net, void *block, size_t bytes, int threads,
                           struct front_context **out_c)
{
    *out_c = NULL;
    threads = count_threads(threads);
    if (block) return create_in(net, block, bytes, threads, out_c);
    lock(net);
    const int error = create_own(net, &net->graph[net->state->graph], threads, NULL, out_c);
    unlock(net);
    return error;
}

/* With the lock. */
static void free_own(struct front_context *c)
{
    struct front_state *s = c->net->state;
    struct front_shared *shared = c->graph->shared;
    drop_context(c);
    s->users--;
    shared->users--;
    drop_unused(shared);
}

FRONT_API void front_free(struct front_context *c)
{
    if (!c || !c->own) return;
    const struct front_net *net = c->net;
    lock(net);
    free_own(c);
    unlock(net);
}

FRONT_API int front_threads(const struct front_net *net, struct front_context *c, int threads)
{
    if (!c) {
        lock(net);
        net->state->threads = threads > 0 ? count_threads(threads) : 0;
        unlock(net);
        return FRONT_GOOD;
    }
    threads = count_threads(threads);
    if (threads > c->room && !c->own)
        return fail(FRONT_INVALID, "%s: this context's block is for %d threads", c->net->name, c->room);
    if (threads > c->room) {
        struct front_block scratch;
#if defined FRONT_SIZES
        const size_t bytes = c->sized.valid ? sizes_now(c).scratch * (size_t)threads : 0;
#else
        const size_t bytes = sizes_of(c->code, false, false).scratch * (size_t)threads;
#endif
        const int error = take_there(bytes, "the threads' memory", &scratch);
        if (error) return error;
        drop_there(&c->block[2]);
        c->block[2] = scratch;
        c->scratch = scratch.at;
        c->room = threads;
#if defined FRONT_SIZES
        c->sized.scratch = bytes;
#endif
    }
    c->threads = threads;
    return FRONT_GOOD;
}

/* -- batch sizes */

/* With the lock. The context does not change if something fails. */
static int move_own(struct front_context *c, const struct front_graph *graph)
{
    struct front_block part[BLOCKS];
    const struct sizes sizes = sizes_of_own(c->net, graph);
    int error = share_prepared(c->net, graph, c->threads);
    if (!error) error = take_parts(&sizes, 1, c->threads, part);
    if (error) {
        drop_unused(graph->shared);
        return error;
    }
    c->graph->shared->users--;
    drop_unused(c->graph->shared);
    graph->shared->users++;
    end_there(c);
    for (int i = 1; i < BLOCKS; i++) {
        drop_there(&c->block[i]);
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
#if !defined FRONT_DEVICE
    if (c && !c->own) return move_in_block(c, graph);
#endif
    lock(net);
    if (c)
        error = move_own(c, graph);
    else
        net->state->graph = (int)(graph - net->graph);
    unlock(net);
    return error;
}

/* -- calls without a context use an idle one, or create one */

static int take_idle(const struct front_net *net, struct front_context **out_c)
{
    struct front_state *s = net->state;
    int error = FRONT_GOOD;
    lock(net);
    const int threads = s->threads;
    const struct front_graph *graph = &net->graph[s->graph];
    struct front_context **at = &s->idle;
    while (*at && (*at)->graph != graph) at = &(*at)->next;
    *out_c = *at;
    if (*at)
        *at = (*at)->next;
    else
        error = create_own(net, graph, count_threads(threads), NULL, out_c);
    unlock(net);
    if (!error && (*out_c)->threads != count_threads(threads)) error = front_threads(net, *out_c, threads);
    return error;
}

static void give_idle(struct front_context *c)
{
    struct front_state *s = c->net->state;
    lock(c->net);
    c->next = s->idle;
    s->idle = c;
    unlock(c->net);
}

#if defined FRONT_DEVICE
FRONT_API int front_device(const struct front_net *net, int index)
{
    int error = FRONT_GOOD;
    lock(net);
    if (!net->state->device)
        net->state->index = index;
    else if (net->state->index != index)
        error = fail(FRONT_INVALID, "%s: device %d is in use: %d must be chosen before it", net->name,
                     net->state->index, index);
    unlock(net);
    return error;
}
#endif

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
    lock(net);
    for (struct front_context *c = s->idle, *next; c; c = next) {
        next = c->next;
        free_own(c);
    }
    s->idle = NULL;
#if defined FRONT_DEVICE
    if (!s->users) close_there(net);
#endif
    if (!s->users) unmap_weights(net);
    unlock(net);
}

#if defined FRONT_SIZES
/* -- sizes of a call */

FRONT_API void front_leave(struct front_context *taken, const struct front_context *c)
{
    if (taken && taken != c) give_idle(taken);
}

FRONT_API int front_enter(const struct front_net *net, struct front_context *c, const int64_t *dims,
                          struct front_context **out_c)
{
    *out_c = c;
    int error = c ? FRONT_GOOD : take_idle(net, out_c);
    if (!error) error = resize(*out_c, dims);
    if (!error) return FRONT_GOOD;
    front_leave(*out_c, c);
    *out_c = NULL;
    return error;
}

FRONT_API size_t front_bytes_at(const struct front_net *net, int threads, const int64_t *dims)
{
    lock(net);
    int error = net->state->version ? FRONT_GOOD : choose(net, NULL);
    unlock(net);
    if (error) return 0;
    const struct front_code *code = code_of(net, net->graph);
    int64_t size[code->module->nsize], own[code->sizes->n];
    struct front_block placing;
    error = take(places_bytes(code), "the places of blocks", &placing);
    if (!error) error = find_sizes(net, code, dims, size, own, placing.at);
    drop(&placing);
    if (error) return 0;
    const struct sizes s = sizes_at(code, size, own, prepares(code), false);
#if defined FRONT_DEVICE
    return LINE + s.head;
#endif
    return LINE + s.head + s.prepared + s.workspace + behind_workspace(&s) + s.scratch * (size_t)count_threads(threads);
}
#endif

/* -- calls */

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
        const struct sol_ext_tensor *t = &outputs_of(c)[i];
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
