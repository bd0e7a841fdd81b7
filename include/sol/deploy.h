/* Deploying a network: it becomes a small C library that needs nothing but libc and libm, or the source of one.
 *
 * What is written, how an application calls it, and every key: docs/deploy.md. */
#ifndef SOL_DEPLOY_H
#define SOL_DEPLOY_H

#include "sol/sol.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sol_deploy_key {
    const char *key, *value; /* as in docs/deploy.md: "lib_name", "gcc::march"; lists are separated by commas */
};
/* Another graph of the same model in the library: for another batch size, or one that trains. */
struct sol_deploy_graph {
    struct sol_graph *graph;
    const void *const *params; /* by number of its parameter; those with the same address are the same */
    int seed_input;
    int64_t batch; /* the batch size that it is for */
    /* What trains: by parameter, does it learn? NULL: all of real types do. Its first `nwritten` outputs are not the
     * model's: they are new values of parameters (the statistics of batch-norm), by number. */
    const unsigned char *trained;
    int nwritten;
    const int *written;
};
struct sol_deploy_options {
    size_t size;        /* sizeof(struct sol_deploy_options) */
    const char *target; /* "shared_lib", "static_lib" or "source", or another spelling of these */
    int nkeys;
    const struct sol_deploy_key *keys; /* those that are not given have their defaults */
    const void *const *params; /* by number of the graph's parameter: row-major data; read during the call only */
    int seed_input;            /* number of an i64 scalar input, the last, that each call fills from the stream
                                  of func_seed; -1: there is none */
    /* For people: by number; NULL: those of the graph. */
    const char *const *input_names, *const *output_names;
    const unsigned char *trained; /* key training: by parameter, does it learn? NULL: all of real types do */
    int64_t batch;                /* the batch size that the graph is for; needed if there are more */
    int nmore;
    const struct sol_deploy_graph *more;     /* for other batch sizes: inputs and outputs as the graph's */
    const struct sol_deploy_graph *training; /* key training: what is trained; NULL: a copy of the graph */
};
/* Optimizes the graphs, in place, and writes the library and what belongs to it into the folder of the key `path`.
 * Errors: INVALID (a key or its value), UNSUPPORTED (a layer, a device), COMPILER (none there, or it refused), IO. */
sol_status sol_deploy(struct sol_ctx *ctx, struct sol_graph *g, const struct sol_deploy_options *options);
/* Target and keys alone, so that a mistake in them is known before a network is read. */
sol_status sol_deploy_check(struct sol_ctx *ctx, const struct sol_deploy_options *options);
/* The i-th key, its default and what it does; NULL when i is past the last. */
const char *sol_deploy_key_at(int i, const char **out_default, const char **out_doc);

#ifdef __cplusplus
}
#endif
#endif
