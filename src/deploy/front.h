/* Front is the layer between a deployed network's functions and its module. It selects the version of the code for this
 * processor, and manages weights, contexts, memory and errors. The file is the same for every network; `sol deploy`
 * writes the description of the network that it uses. It depends on libc, pthreads and rt, or with FRONT_BARE
 * (front_bare.c instead of front.c) on rt only. */
#ifndef SOL_FRONT_H
#define SOL_FRONT_H

#include <stdbool.h>
#if !defined FRONT_BARE
#include <pthread.h>

#include "deploy/ext.h"
#endif
#include "deploy/tensor.h"
#include "layers/reference.h"
#include "sol/module.h"

#ifndef FRONT_API /* in a deployed library: hidden */
#define FRONT_API
#endif

enum { FRONT_CONTEXT_BYTES = 256 }; /* of a block, for struct front_context: what the header's macros count with */

enum front_error {
    FRONT_GOOD = 0,
    FRONT_INVALID = 1, /* the caller's mistake */
    FRONT_MEMORY = 2,
    FRONT_DATA = 3,   /* found in the data, such as an index out of range */
    FRONT_FILE = 4,   /* of the weights */
    FRONT_MACHINE = 5 /* has not the instructions that the code needs */
};

/* An instruction set. */
struct front_version {
    const char *name; /* "x86-64-v3" */
    uint32_t needs;   /* bits by row of features.def */
};
/* The code of a graph for one instruction set. */
struct front_code {
    const struct sol_module *module;
    const int64_t *param_at, *const_at;    /* by number: where it begins in the weights; -1: not needed */
    const struct reference *const *opaque; /* by number: layers without loops */
    size_t opaque_bytes;                   /* of memory that one of them needs while it runs */
};
struct front_block { /* memory of sol_ext_malloc, aligned */
    void *raw;
    char *at;
};
/* For the self-test: an element of an output, as it was when the network was deployed. */
struct front_sample {
    size_t element;
    uint64_t bits;    /* the element's own, the lowest first */
    double tolerance; /* below 0: rounding alone can make anything of it */
};
struct front_golden {
    int64_t n;
    const struct front_sample *sample;
};
/* One of the library's graphs: the network for one batch size, or for training. */
struct front_graph {
    int64_t batch; /* 0: there is one size */
    const struct sol_ext_tensor *input, *output;
    int seed_input;                /* of the module: behind all others; -1: none */
    const struct front_code *code; /* by version */
    const int32_t *learned;        /* by parameter: its number in the graph that trains; -1: it does not learn */
    struct front_shared {          /* by contexts that have no block of their own */
        struct front_block prepared;
        int users;
    } * shared;
    const struct front_golden *golden; /* by output; NULL: there is no self-test */
    int made_up;                       /* its inputs: MADE_UP_SIGNED, .. */
};
struct front_net {
    const char *name;  /* of the functions */
    const char *model; /* "sol-model:" and the hash of what it was made of */
    int nversion;      /* best first */
    const struct front_version *version;
    int ngraph; /* by batch size; the first unless another is chosen */
    const struct front_graph *graph;
    int ninput, noutput;          /* without the seed */
    const unsigned char *weights; /* NULL: in a file */
    const char *weights_file;     /* its name, beside the library */
    size_t weights_bytes;
    uint64_t weights_hash;
    struct front_state *state;
    /* Training: parameters that have a gradient, by their numbers in the module. The module's outputs are new values of
     * parameters that forward writes, the model's outputs, the gradients. Of which outputs the caller gives gradients:
     * the inputs behind the seed. */
    const struct front_graph *training; /* NULL: there is none */
    int ntrained, ngiven, nwritten;
    const struct sol_ext_tensor *trained;
    const int32_t *trained_param, *given, *written;
};
/* What a process knows of a network. */
struct front_state {
#if !defined FRONT_BARE
    pthread_mutex_t lock; /* for all below */
#endif
    const struct front_version *version;
    const unsigned char *weights;
    const char *weights_path;   /* given by the application */
    int users;                  /* of the weights: contexts with own memory, and trainings */
    struct front_context *idle; /* of calls without a context */
    int threads;                /* of those calls; 0: one for each processor */
    int graph;                  /* of those calls */
    uint64_t seed, drawn;
};
#if defined FRONT_BARE
#define FRONT_STATE_START \
    {                     \
        0                 \
    }
#else
#define FRONT_STATE_START                 \
    {                                     \
        .lock = PTHREAD_MUTEX_INITIALIZER \
    }
#endif
struct front_context;

/* All functions return an enum front_error and store a text for front_message. */
FRONT_API int front_init(const struct front_net *net);
FRONT_API int front_choose(const struct front_net *net, const char *version);
#if defined FRONT_WEIGHTS_FILE
FRONT_API int front_weights(const struct front_net *net, const char *path);
#endif
FRONT_API void front_seed(const struct front_net *net, int seed);
/* block NULL: memory of sol_ext_malloc. threads 0: one for each processor. */
FRONT_API int front_create(const struct front_net *net, void *block, size_t bytes, int threads,
                           struct front_context **out_c);
FRONT_API size_t front_bytes(const struct front_net *net, int threads); /* 0: failed */
FRONT_API void front_free(struct front_context *c);
/* c NULL: calls without a context. */
FRONT_API int front_threads(const struct front_net *net, struct front_context *c, int threads);
/* Chooses the graph for a batch size. */
FRONT_API int front_batch(const struct front_net *net, struct front_context *c, int64_t batch);
/* Input or output i of the graph for a batch size; NULL: there is none. */
FRONT_API const struct sol_ext_tensor *front_tensor(const struct front_net *net, int64_t batch, bool output, int i);
FRONT_API int front_run(const struct front_net *net, struct front_context *c, const void *const *in, void *const *out);
/* Allocates the outputs; all NULL if it fails. */
FRONT_API int front_predict(const struct front_net *net, struct front_context *c, const void *const *in, void **out);
FRONT_API const char *front_version_name(const struct front_net *net); /* that runs here; NULL: none does */
FRONT_API int front_message(char *buffer, size_t size);                /* of this thread's last error; its length */
FRONT_API void front_load(const struct front_net *net);
FRONT_API void front_unload(const struct front_net *net);

/* front_train.c: a trainable copy of the parameters, for one thread at a time. */
struct front_training;
FRONT_API int front_train(const struct front_net *net, int threads, struct front_training **out_t);
FRONT_API void front_train_free(struct front_training *t);
FRONT_API int front_forward(struct front_training *t, const void *const *in, void *const *out);
/* gradients: by output; those of outputs that are no real numbers are not read. */
FRONT_API int front_backward(struct front_training *t, const void *const *in, void *const *out,
                             const void *const *gradients);
/* Predicts with what was learned. */
FRONT_API int front_train_run(struct front_training *t, const void *const *in, void *const *out);
FRONT_API int front_sgd(struct front_training *t, double rate, double momentum, double decay);
FRONT_API int front_adam(struct front_training *t, double rate, double beta1, double beta2, double epsilon,
                         double decay);
FRONT_API void *front_parameter(struct front_training *t, int i, bool gradient);
FRONT_API void front_changed(struct front_training *t); /* the application wrote into a parameter */

#if defined FRONT_SELFTEST /* front_selftest.c */
#include "deploy/selftest.h"

FRONT_API int front_selftest(const struct front_net *net, struct front_context *c, void *const *in, void *const *out,
                             struct sol_ext_selftest *found);
#endif

extern FRONT_API const struct front_net front_here; /* the network of a deployed library */

#endif
