/* Which nodes of a graph SOL takes. All nodes are divided into clusters, each of which becomes one program; the reader
 * translates each cluster, as it will when the cluster is compiled, and tells the nodes that it rejects. These are left
 * to ONNX Runtime, and the rest is divided again, until nothing is rejected. */
#include <string.h>

#include "ort/ort.h"

static bool is_taken(const struct ort_node *n)
{
    return !n->why;
}

/* A node's level is the number of changes between taken nodes and others on the way to it, so a path from a cluster
 * through other nodes never leads back to it. Returns the number of levels. */
static int divide(struct ort_graph *g)
{
    int most = -1;
    for (int i = 0; i < g->nnode; i++) {
        struct ort_node *n = &g->node[i];
        n->cluster = 0;
        for (int j = 0; j < n->nin; j++) {
            if (!n->in[j] || n->in[j]->producer < 0) continue;
            const struct ort_node *from = &g->node[n->in[j]->producer];
            n->cluster = MAX(n->cluster, from->cluster + (is_taken(from) != is_taken(n)));
        }
        most = MAX(most, n->cluster);
    }
    return most + 1;
}

static int nodes_of(const struct ort_graph *g, int cluster, int *out)
{
    int n = 0;
    for (int i = 0; i < g->nnode; i++)
        if (is_taken(&g->node[i]) && g->node[i].cluster == cluster) out[n++] = i;
    return n;
}

/* -- what is known before the reader looks */

static sol_status check_value(const struct provider *p, const struct ort_value *v)
{
    enum sol_dtype dtype;
    if (!v) return SOL_OK;
    if (!v->tensor) return ctx_fail(p->ctx, SOL_ERR_UNSUPPORTED, "'%.80s' is no tensor", v->name);
    return dtype_read(p->ctx, v->type, v->name, &dtype);
}

static sol_status check_node(const struct provider *p, struct ort_graph *g, struct ort_node *n)
{
    const char *name;
    TRY(provider_check(p, p->api->Node_GetEpName(n->handle, &name)));
    sol_status status = SOL_OK;
    for (int i = 0; i < n->nin && !status; i++) status = check_value(p, n->in[i]);
    for (int i = 0; i < n->nout && !status; i++) status = check_value(p, n->out[i]);
    if (status && !n->why) n->why = arena_strdup(g->arena, sol_error(p->ctx));
    if (name && *name) n->why = ""; /* another provider has it, or SOL since an earlier call */
    return SOL_OK;
}

/* The reader needs to know how many dimensions an input of a cluster has. */
static bool check_inputs(struct ort_graph *g, int n, const int *index)
{
    bool good = true;
    for (int k = 0; k < n; k++) {
        struct ort_node *at = &g->node[index[k]];
        for (int j = 0; j < at->nin && is_taken(at); j++) {
            const struct ort_value *v = at->in[j];
            if (!v || v->known_rank) continue;
            const struct ort_node *from = v->producer >= 0 ? &g->node[v->producer] : NULL;
            if (from && is_taken(from) && from->cluster == at->cluster) continue;
            at->why = arena_printf(g->arena, "the number of dimensions of '%.80s' is not known", v->name);
            good = false;
        }
    }
    return good;
}

/* -- the reader's answer */

struct answer {
    struct ort_graph *graph;
    const int *index;
    bool any;
};

static void on_rejected(void *user, int node, const char *why)
{
    struct answer *a = user;
    a->graph->node[a->index[node]].why = arena_strdup(a->graph->arena, why);
    a->any = true;
}

/* Does the reader translate the cluster? If not, some of its nodes are no longer taken. */
static sol_status try_cluster(const struct provider *p, struct ort_graph *g, int n, const int *index, bool *out_good)
{
    struct answer answer = {.graph = g, .index = index};
    struct sol_onnx_options options = {.size = sizeof options, .vary = 1, .on_rejected = on_rejected, .user = &answer};
    struct ort_model m;
    struct sol_onnx *model = NULL;
    *out_good = check_inputs(g, n, index);
    if (!*out_good) return SOL_OK;
    TRY(graph_model(p, g, n, index, &m));
    TRY(model_weights(p, g->arena, &m, &options.weights));
    options.nweights = m.nweight;
    const sol_status status = sol_onnx_load_memory(p->ctx, m.bytes, m.n, &options, &model);
    sol_onnx_destroy(model);
    *out_good = !status;
    if (!status || answer.any) return SOL_OK;
    if (status != SOL_ERR_UNSUPPORTED && status != SOL_ERR_INVALID) return status;
    const char *why = arena_strdup(g->arena, sol_error(p->ctx)); /* it is of no node */
    for (int k = 0; k < n; k++) g->node[index[k]].why = why;
    return SOL_OK;
}

static sol_status choose(const struct provider *p, struct ort_graph *g, int *out_clusters)
{
    int *index = NEW_ARRAY(g->arena, int, g->nnode + 1);
    for (int i = 0; i < g->nnode; i++) TRY(check_node(p, g, &g->node[i]));
    for (bool again = true; again;) {
        again = false;
        *out_clusters = divide(g);
        for (int c = 0; c < *out_clusters; c++) {
            bool good = true;
            const int n = nodes_of(g, c, index);
            if (n) TRY(try_cluster(p, g, n, index, &good));
            again |= !good;
        }
        TRY(ctx_check(p->ctx));
    }
    return SOL_OK;
}

/* -- the answer to ONNX Runtime */

static void put_rejected(struct text *t, const struct ort_graph *g, int first)
{
    const struct ort_node *n = &g->node[first];
    int same = 0;
    for (int i = 0; i < g->nnode; i++) {
        const struct ort_node *o = &g->node[i];
        const bool equal = o->why && !strcmp(o->why, n->why) && !strcmp(o->message->op_type, n->message->op_type);
        if (equal && i < first) return;
        same += equal;
    }
    const char *label = *n->message->name || !n->nout || !n->out[0] ? n->message->name : n->out[0]->name;
    text_put(t, "\n  %s%s%.80s '%.80s'", n->message->domain, *n->message->domain ? "." : "", n->message->op_type,
             label);
    if (same > 1) text_put(t, " and %d more", same - 1);
    text_put(t, ": %.300s", n->why);
}

static void report(const struct provider *p, const struct ort_graph *g, int programs)
{
    int taken = 0, seen = 0;
    struct text t = text_new(g->arena);
    for (int i = 0; i < g->nnode; i++) {
        taken += is_taken(&g->node[i]);
        seen += is_taken(&g->node[i]) || *g->node[i].why;
    }
    if (!seen) return;
    text_put(&t, "SOL takes %d of %d node%s, as %d program%s.", taken, seen, seen == 1 ? "" : "s", programs,
             programs == 1 ? "" : "s");
    if (taken < seen) text_put(&t, " ONNX Runtime keeps:");
    for (int i = 0; i < g->nnode; i++)
        if (!is_taken(&g->node[i]) && *g->node[i].why) put_rejected(&t, g, i);
    if (!ctx_check(p->ctx)) provider_log(p, taken < seen ? ORT_WARNING : ORT_INFO, t.at);
}

static sol_status answer(const struct provider *p, const struct ort_graph *g, int clusters,
                         struct OrtEpGraphSupportInfo *info)
{
    const struct OrtNode **handles = NEW_ARRAY(g->arena, const struct OrtNode *, g->nnode + 1);
    int *index = NEW_ARRAY(g->arena, int, g->nnode + 1), programs = 0;
    for (int c = 0; c < clusters; c++) {
        const int n = nodes_of(g, c, index);
        for (int k = 0; k < n; k++) handles[k] = g->node[index[k]].handle;
        programs += n > 0;
        if (n)
            TRY(provider_check(p,
                               p->api->GetEpApi()->EpGraphSupportInfo_AddNodesToFuse(info, handles, (size_t)n, NULL)));
    }
    report(p, g, programs);
    return SOL_OK;
}

/* Does ONNX Runtime run the graph as it is? The body of a SequenceMap is a part of a function, which ONNX Runtime
 * inlines later; it then rejects programs in it. */
static sol_status is_run(const struct provider *p, const struct OrtGraph *graph, bool *out)
{
    const struct OrtNode *parent = NULL;
    const char *kind = "";
    TRY(provider_check(p, p->api->Graph_GetParentNode(graph, &parent)));
    if (parent) TRY(provider_check(p, p->api->Node_GetOperatorType(parent, &kind)));
    *out = !parent || !strcmp(kind, "If") || !strcmp(kind, "Loop") || !strcmp(kind, "Scan");
    return SOL_OK;
}

struct OrtStatus *provider_capability(struct OrtEp *ep, const struct OrtGraph *graph,
                                      struct OrtEpGraphSupportInfo *info)
{
    const struct provider *p = (const struct provider *)ep;
    struct arena *a = arena_create(p->ctx);
    struct ort_graph g;
    int clusters = 0;
    bool run = false;
    if (!a) return provider_fail(p, SOL_ERR_NOMEM);
    sol_status status = is_run(p, graph, &run);
    if (!status && run) status = graph_read(p, a, graph, &g);
    if (!status && run) status = choose(p, &g, &clusters);
    if (!status && run) status = answer(p, &g, clusters, info);
    struct OrtStatus *result = status ? provider_fail(p, status) : NULL;
    arena_destroy(a);
    return result;
}
