/* Front for processors without an operating system: contexts in the caller's blocks, one thread, no lock. From the C
 * library it needs memcpy, memset and strlen only. The network has one version of its code, and its weights are in the
 * program. */
#include "deploy/front.h"

#include <string.h>

#include "rt/rt.h"

#include "deploy/front_error.c"

static void lock(const struct front_net *net)
{
    (void)net;
}

static void unlock(const struct front_net *net)
{
    (void)net;
}

static int count_threads(int threads)
{
    (void)threads;
    return 1;
}

static int choose(const struct front_net *net, const char *name)
{
    (void)name;
    net->state->version = net->version;
    return FRONT_GOOD;
}

static int begin(const struct front_net *net)
{
    net->state->weights = net->weights;
    return choose(net, NULL);
}

#include "deploy/front_block.c"

FRONT_API int front_create(const struct front_net *net, void *block, size_t bytes, int threads,
                           struct front_context **out_c)
{
    *out_c = NULL;
    if (!block) return fail(FRONT_INVALID, "%s: a context needs a block", net->name);
    return create_in(net, block, bytes, count_threads(threads), out_c);
}

FRONT_API const char *front_version_name(const struct front_net *net)
{
    return net->version->name;
}

static int check_context(const struct front_net *net, const struct front_context *c)
{
    return c ? FRONT_GOOD : fail(FRONT_INVALID, "%s: expected a context, got NULL", net->name);
}

FRONT_API int front_batch(const struct front_net *net, struct front_context *c, int64_t batch)
{
    const struct front_graph *graph = graph_for(net, batch);
    if (!graph) return no_graph(net, batch);
    const int error = check_context(net, c);
    return error || c->graph == graph ? error : move_in_block(c, graph);
}

#if defined FRONT_SIZES
FRONT_API void front_leave(struct front_context *taken, const struct front_context *c)
{
    (void)taken, (void)c;
}

FRONT_API int front_enter(const struct front_net *net, struct front_context *c, const int64_t *dims,
                          struct front_context **out_c)
{
    int error = check_context(net, c);
    if (!error) error = resize(c, dims);
    *out_c = error ? NULL : c;
    return error;
}
#endif

FRONT_API int front_run(const struct front_net *net, struct front_context *c, const void *const *in, void *const *out)
{
    const int error = check_context(net, c);
    return error ? error : run(c, in, out);
}
