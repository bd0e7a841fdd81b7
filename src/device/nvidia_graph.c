/* Launches that come again with the same arguments, as one graph of the driver: a call of a network is one launch then.
 * A stream keeps the texts of its last sequences. When one comes for the second time it is captured, in a stream of its
 * own so that nothing else gets into it, and from then on launched as a whole. */
#include <stdlib.h>
#include <string.h>

#include "device/cuda.h"
#include "device/inside.h"

enum { KEPT = 32, LEAST = 2 /* launches, for which a graph pays off */ };

struct kept {
    char *text; /* of the sequence; NULL: none */
    size_t bytes;
    cu_exec exec; /* NULL: it came once */
    bool never;   /* the driver does not make a graph of it */
    int64_t used; /* when */
};
struct cuda_graphs {
    const struct cuda *cuda;
    struct cuda_blas *blas;
    cu_stream capture; /* NULL: none yet */
    struct kept kept[KEPT];
    int64_t clock, unloads;
    int alone;  /* commands of this submit that are launched one by one */
    char *text; /* of the sequence that is submitted */
    size_t bytes, room;
};

struct cuda_graphs *graphs_make(const struct cuda *cuda, struct cuda_blas *blas)
{
    struct cuda_graphs *g = calloc(1, sizeof *g);
    if (g) *g = (struct cuda_graphs){.cuda = cuda, .blas = blas};
    return g;
}

static void forget(struct cuda_graphs *g, struct kept *k)
{
    if (k->exec) g->cuda->ExecDestroy(k->exec);
    free(k->text);
    *k = (struct kept){0};
}

void graphs_free(struct cuda_graphs *g)
{
    if (!g) return;
    for (int i = 0; i < KEPT; i++) forget(g, &g->kept[i]);
    if (g->capture) g->cuda->StreamDestroy(g->capture);
    free(g->text);
    free(g);
}

/* -- the text of a sequence: all that the driver gets */

static bool put(struct cuda_graphs *g, const void *data, size_t bytes)
{
    if (g->bytes + bytes > g->room) {
        const size_t room = 2 * (g->bytes + bytes) + 4096;
        char *more = realloc(g->text, room);
        if (!more) return false;
        g->text = more;
        g->room = room;
    }
    if (bytes) memcpy(g->text + g->bytes, data, bytes);
    g->bytes += bytes;
    return true;
}

static bool put_launch(struct cuda_graphs *g, const struct sol_launch *l)
{
    bool good = put(g, &l->kernel, sizeof l->kernel) && put(g, l->groups, sizeof l->groups) &&
                put(g, l->items, sizeof l->items) && put(g, &l->narg, sizeof l->narg);
    for (int i = 0; i < l->narg && good; i++) {
        const struct sol_arg *a = &l->arg[i];
        good = put(g, &a->kind, sizeof a->kind) && put(g, &a->bytes, sizeof a->bytes);
        if (good && a->kind == SOL_ARG_POINTER) good = put(g, &a->pointer, sizeof a->pointer);
        if (good && a->kind == SOL_ARG_VALUE) good = put(g, a->value, (size_t)a->bytes);
    }
    return good;
}

static bool put_command(struct cuda_graphs *g, const struct sol_command *c)
{
    const bool good = put(g, &c->kind, sizeof c->kind) && put(g, &c->to, sizeof c->to) &&
                      put(g, &c->from, sizeof c->from) && put(g, &c->bytes, sizeof c->bytes) &&
                      put(g, &c->value, sizeof c->value);
    return good && (c->kind != SOL_COMMAND_LAUNCH || put_launch(g, c->launch));
}

/* How many commands from the first on can be in a graph: those of the device alone whose time nobody asks for. */
static int length(int n, const struct sol_command *c)
{
    int i = 0, launches = 0;
    for (; i < n; i++) {
        const bool copy = (c[i].kind == SOL_COMMAND_FILL || c[i].kind == SOL_COMMAND_COPY) && c[i].bytes;
        if (c[i].ns || !(copy || c[i].kind == SOL_COMMAND_LAUNCH)) break;
        launches += c[i].kind == SOL_COMMAND_LAUNCH;
    }
    return launches >= LEAST ? i : 0;
}

/* -- graphs */

static struct kept *find(struct cuda_graphs *g)
{
    struct kept *oldest = &g->kept[0];
    for (int i = 0; i < KEPT; i++) {
        struct kept *k = &g->kept[i];
        if (k->text && k->bytes == g->bytes && !memcmp(k->text, g->text, g->bytes)) return k;
        if (!k->text || k->used < oldest->used) oldest = k;
    }
    forget(g, oldest);
    oldest->text = malloc(g->bytes);
    if (!oldest->text) return NULL;
    memcpy(oldest->text, g->text, g->bytes);
    oldest->bytes = g->bytes;
    oldest->used = ++g->clock;
    return oldest;
}

/* If the driver cannot do it, the commands are launched one by one, and fail, if they do, by their names. */
static void capture(struct cuda_graphs *g, struct kept *k, int n, const struct sol_command *c)
{
    const struct cuda *cuda = g->cuda;
    cu_graph graph = NULL;
    int error = g->capture ? 0 : cuda->StreamCreate(&g->capture, CUDA_STREAM_NON_BLOCKING);
    if (!error) error = cuda->CaptureBegin(g->capture, CUDA_CAPTURE_RELAXED);
    k->never = error;
    if (error) return;
    for (int i = 0; i < n && !error; i++) error = nvidia_enqueue(cuda, g->blas, g->capture, &c[i]);
    const int ended = cuda->CaptureEnd(g->capture, &graph);
    if (!error && !ended) error = cuda->GraphInstantiate(&k->exec, graph, 0);
    if (graph) cuda->GraphDestroy(graph);
    k->never = error || ended;
    if (k->never) k->exec = NULL;
}

void graphs_begin(struct cuda_graphs *g)
{
    if (g) g->alone = 0;
}

int graphs_submit(struct cuda_graphs *g, cu_stream stream, int64_t unloads, int n, const struct sol_command *c,
                  int *out_taken)
{
    bool good = true;
    *out_taken = 0;
    if (g && g->alone) return g->alone--, CUDA_SUCCESS;
    n = g ? length(n, c) : 0;
    if (!n) return CUDA_SUCCESS;
    g->alone = n - 1;
    if (g->unloads != unloads) /* another kernel may have the place of one that was unloaded */
        for (int i = 0; i < KEPT; i++) forget(g, &g->kept[i]);
    g->unloads = unloads;
    g->bytes = 0;
    for (int i = 0; i < n && good; i++) good = put_command(g, &c[i]);
    const int64_t before = g->clock;
    struct kept *k = good ? find(g) : NULL;
    if (!k || k->never || g->clock != before) return CUDA_SUCCESS; /* it is new */
    k->used = ++g->clock;
    if (!k->exec) capture(g, k, n, c);
    if (!k->exec) return CUDA_SUCCESS;
    *out_taken = n;
    g->alone = 0;
    return g->cuda->GraphLaunch(k->exec, stream);
}
