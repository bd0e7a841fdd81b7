/* Launches that come again with the same arguments, as one graph of the driver: a call of a network is one launch then.
 * It is captured in a stream of its own, so that nothing else gets into it. */
#include <stdlib.h>

#include "device/cuda.h"
#include "device/inside.h"

struct cuda_graphs {
    const struct cuda *cuda;
    struct cuda_calls *calls;
    cu_stream capture; /* NULL: none yet */
    struct sequences *sequences;
};

/* If the driver cannot do it, the commands are launched one by one, and fail, if they do, by their names. */
static void *capture(void *user, int n, const struct sol_command *c)
{
    struct cuda_graphs *g = user;
    const struct cuda *cuda = g->cuda;
    cu_graph graph = NULL;
    cu_exec exec = NULL;
    int error = g->capture ? 0 : cuda->StreamCreate(&g->capture, CUDA_STREAM_NON_BLOCKING);
    if (error || cuda->CaptureBegin(g->capture, CUDA_CAPTURE_RELAXED)) return NULL;
    for (int i = 0; i < n && !error; i++) error = nvidia_enqueue(cuda, g->calls, g->capture, &c[i]);
    const int ended = cuda->CaptureEnd(g->capture, &graph);
    if (!error && !ended) error = cuda->GraphInstantiate(&exec, graph, 0);
    if (graph) cuda->GraphDestroy(graph);
    return error || ended ? NULL : exec;
}

static void drop(void *user, void *made)
{
    const struct cuda_graphs *g = user;
    g->cuda->ExecDestroy(made);
}

struct cuda_graphs *graphs_make(const struct cuda *cuda, struct cuda_calls *calls)
{
    struct cuda_graphs *g = calloc(1, sizeof *g);
    if (g) *g = (struct cuda_graphs){cuda, calls, NULL, sequences_make(&(struct sequence_maker){g, capture, drop})};
    return g;
}

void graphs_free(struct cuda_graphs *g)
{
    if (!g) return;
    sequences_free(g->sequences);
    if (g->capture) g->cuda->StreamDestroy(g->capture);
    free(g);
}

void graphs_begin(struct cuda_graphs *g)
{
    if (g) sequences_begin(g->sequences);
}

int graphs_submit(struct cuda_graphs *g, cu_stream stream, int64_t unloads, int n, const struct sol_command *c,
                  int *out_taken)
{
    *out_taken = 0;
    cu_exec exec = g ? sequences_find(g->sequences, unloads, n, c, out_taken) : NULL;
    return exec ? g->cuda->GraphLaunch(exec, stream) : CUDA_SUCCESS;
}
