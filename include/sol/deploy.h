/* Deploying a network as a small C library that needs only libc and libm, or as the source of one. docs/deploy.md
 * describes the files, their interface, and all keys. */
#ifndef SOL_DEPLOY_H
#define SOL_DEPLOY_H

#include "sol/sol.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sol_deploy_key {
    const char *key, *value; /* as in docs/deploy-keys.md: "lib_name", "gcc::march"; commas separate list items */
};
/* Another graph of the same model in the library: for another batch size, or for training. */
struct sol_deploy_graph {
    struct sol_graph *graph;
    const void *const *params; /* data of its parameters; parameters with the same address share their data */
    int seed_input;
    int64_t batch; /* its batch size */
    /* For training: which parameters learn; NULL: all of real types. The first `nwritten` outputs of the graph do not
     * belong to the model: output i is the new value of parameter written[i] (statistics of batch-norm). */
    const unsigned char *trained;
    int nwritten;
    const int *written;
};
struct sol_deploy_options {
    size_t size;        /* sizeof(struct sol_deploy_options) */
    const char *target; /* "shared_lib", "static_lib" or "source", or another spelling of these */
    int nkeys;
    const struct sol_deploy_key *keys; /* missing keys have their defaults */
    const void *const *params;         /* row-major data of the graph's parameters; read during the call only */
    int seed_input;                    /* number of the last input if it is an i64 scalar seed, which the library fills
                                          from its random stream (func_seed); -1: none */
    /* Names in the header; NULL: those of the graph. */
    const char *const *input_names, *const *output_names;
    const unsigned char *trained; /* key training: which parameters learn; NULL: all of real types */
    int64_t batch;                /* the batch size of the graph; required if there are more */
    int nmore;
    const struct sol_deploy_graph *more;     /* for other batch sizes, with the same inputs and outputs */
    const struct sol_deploy_graph *training; /* key training: the graph to train; NULL: a copy of the graph */
};
/* Optimizes the graphs in place, and writes the library and its files into the folder of the key `path`. Errors:
 * INVALID (a key or its value), UNSUPPORTED (a layer, a device), COMPILER (missing or failed), IO. */
sol_status sol_deploy(struct sol_ctx *ctx, struct sol_graph *g, const struct sol_deploy_options *options);
/* Checks target and keys only, so an application can report mistakes before it reads a network. */
sol_status sol_deploy_check(struct sol_ctx *ctx, const struct sol_deploy_options *options);
/* Returns the i-th key, its default and its description; NULL if i is past the last. */
const char *sol_deploy_key_at(int i, const char **out_default, const char **out_doc);

#ifdef __cplusplus
}
#endif
#endif
