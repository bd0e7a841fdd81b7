/* The provider for ONNX Runtime.
 *
 * factory.c is what ONNX Runtime finds in the library, and the provider of a session with its context. graph.c reads an
 * OrtGraph and writes nodes of it as an ONNX model in memory, which the reader of src/onnx translates, so there is one
 * table of operators. capability.c finds the nodes that the reader accepts and groups them into clusters. fused.c
 * compiles a cluster and runs it. */
#ifndef SOL_ORT_ORT_H
#define SOL_ORT_ORT_H

#include "base/base.h"
#include "onnx/reader.h"
#include "ort/api.h"
#include "sol/onnx.h"

struct provider {
    struct OrtEp ep; /* first */
    const union ort_api *api;
    const struct OrtLogger *logger;
    struct sol_ctx *ctx;
    int threads; /* of a run; 0: all processors */
};

/* factory.c */
struct OrtStatus *provider_fail(const struct provider *p, sol_status status); /* a status with the context's error */
/* Turns a status of ONNX Runtime into SOL's, and releases it. */
sol_status provider_check(const struct provider *p, struct OrtStatus *status);
void provider_log(const struct provider *p, int severity, const char *text);

/* graph.c */
struct ort_value { /* of an OrtGraph */
    const char *name;
    bool tensor, known_rank;
    int type, ndim; /* type: ONNX's number */
    const int64_t *shape;
    const char *const *symbols; /* for each size below 0: its name, or "" */
    const void *data;           /* of a constant initializer, while the OrtGraph exists; NULL: it is computed */
    int producer;               /* the node that computes it; -1: none */
    bool outside;               /* something else than nodes of the graph reads it */
};
struct ort_node {
    const struct OrtNode *handle;
    Onnx__Node *message;
    int nin, nout;
    struct ort_value **in, **out; /* NULL: missing */
    const char *why;              /* why SOL does not take it; NULL: it does */
    int cluster;                  /* among those that it takes */
};
struct ort_graph {
    struct arena *arena;
    int nnode, nopset;
    struct ort_node *node; /* in topological order */
    Onnx__OperatorSet **opset;
    struct map *values;
};
sol_status graph_read(const struct provider *p, struct arena *a, const struct OrtGraph *from, struct ort_graph *out);
struct ort_model { /* an ONNX model of some nodes */
    void *bytes;
    size_t n;
    int nweight, ninput, noutput;
    struct ort_value **weight, **input, **output; /* weights: initializers that the model lacks */
};
/* The model of the nodes `index`, in this order. It lives in the graph's arena. */
sol_status graph_model(const struct provider *p, const struct ort_graph *g, int n, const int *index,
                       struct ort_model *out);
/* The weights as options of the reader; they live in the arena. */
sol_status model_weights(const struct provider *p, struct arena *a, const struct ort_model *m,
                         const struct sol_onnx_value **out);

/* capability.c */
struct OrtStatus *provider_capability(struct OrtEp *ep, const struct OrtGraph *graph,
                                      struct OrtEpGraphSupportInfo *info);

/* fused.c */
struct OrtStatus *provider_compile(struct OrtEp *ep, const struct OrtGraph **graphs, const struct OrtNode **fused,
                                   size_t n, struct OrtNodeComputeInfo **out_infos, struct OrtNode **out_contexts);
void provider_release(struct OrtEp *ep, struct OrtNodeComputeInfo **infos, size_t n);

#endif
