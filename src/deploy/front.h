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

enum { FRONT_LAUNCH_STEPS = 8 };    /* step i of kernel k has the number k * FRONT_LAUNCH_STEPS + i */
enum { FRONT_CONTEXT_BYTES = 256 }; /* of a block, for struct front_context; macros of the header use it */

enum front_error {
    FRONT_GOOD = 0,
    FRONT_INVALID = 1, /* a mistake of the caller */
    FRONT_MEMORY = 2,
    FRONT_DATA = 3,    /* the data cause it, such as an index out of range */
    FRONT_FILE = 4,    /* of the weights */
    FRONT_MACHINE = 5, /* the machine lacks instructions that the code needs, or the device */
    FRONT_DEVICE_FAILED = 6
};

/* An instruction set. */
struct front_version {
    const char *name; /* "x86-64-v3" */
    uint32_t needs;   /* bits by row of features.def */
};
#if defined FRONT_SIZES
/* Sizes of a call that follow from its dimensions, besides those of the module: shapes and bytes of tensors, and sizes
 * of layers without loops. Numbers of these tables are quantities (sol/module.h) of them. */
struct front_sizes {
    int32_t n;                         /* of sizes; the dimensions come first */
    int32_t (*compute)(int64_t *size); /* as in struct sol_module */
    int32_t ntensor, nshape;
    const int64_t *shape; /* of all inputs, then of all outputs */
    const int64_t *bytes; /* by tensor */
};
/* Memory that is enough for all sizes. */
struct front_most {
    const int64_t *offset; /* by block of forward: its place */
    size_t workspace, scratch, opaque;
};
#endif
#if defined FRONT_DEVICE /* the code for a device with memory of its own (front_device.c) */
struct sol_device_type;
struct sol_code;
struct front_kernel {
    int32_t shared, items; /* bytes that a work group shares, and its work items */
};
struct front_loaded {
    struct sol_code *code;
    void **kernel[3]; /* by program and step */
};
struct front_device_code {
    const unsigned char *data, *end;
    const struct front_kernel *kernel;
    struct front_loaded *loaded;
};
extern FRONT_API const struct sol_device_type *const deployed_device; /* its driver */
#endif
/* The code of a graph for one instruction set. */
struct front_code {
    const struct sol_module *module;
    const int64_t *param_at, *const_at;    /* by number: its offset in the weights; -1: not needed */
    const struct reference *const *opaque; /* by number: layers without loops */
    size_t opaque_bytes;                   /* of memory that the largest of them needs while it runs */
#if defined FRONT_SIZES
    const struct front_sizes *sizes;
    const struct front_most *most; /* NULL: not all dimensions have limits */
    int32_t nopaque;
#endif
#if defined FRONT_DEVICE
    struct front_device_code there;
#endif
};
struct front_block { /* aligned memory from sol_ext_malloc */
    void *raw;
    char *at;
};
/* For the self-test: an element of an output, and its value at deployment. */
struct front_sample {
    size_t element;
    uint64_t bits;    /* the element's bits, lowest first */
    double tolerance; /* negative: rounding errors alone can change it arbitrarily */
};
struct front_golden {
    int64_t n;
    const struct front_sample *sample;
};
#if defined FRONT_SIZES
struct front_test { /* the self-test at given sizes */
    const int64_t *dims;
    const struct front_golden *golden; /* by output */
    int made_up;                       /* kind of its inputs */
};
#endif
/* One of the library's graphs: the network for one batch size, or for training. */
struct front_graph {
    int64_t batch; /* 0: there is only one size */
    const struct sol_ext_tensor *input, *output;
    int seed_input;                /* number of the module's last input if it is a seed; -1: none */
    const struct front_code *code; /* by version */
    const int32_t *learned;        /* by parameter: its number in the training graph; -1: it is not trained */
    struct front_shared {          /* by contexts without a block of their own */
        struct front_block prepared;
        int users;
    } * shared;
    const struct front_golden *golden; /* by output; NULL: no self-test */
    int made_up;                       /* kind of its inputs: MADE_UP_SIGNED, .. */
#if defined FRONT_SIZES
    int ntest; /* instead of these two: at several sizes */
    const struct front_test *test;
#endif
};
struct front_net {
    const char *name;  /* the prefix of the functions */
    const char *model; /* "sol-model:" and the hash of the model */
    int nversion;      /* best first */
    const struct front_version *version;
    int ngraph; /* one for each batch size; the first is the default */
    const struct front_graph *graph;
    int ninput, noutput;          /* without the seed */
    const unsigned char *weights; /* NULL: in a file */
    const char *weights_file;     /* its name; it is beside the library */
    size_t weights_bytes;
    uint64_t weights_hash;
    struct front_state *state;
    /* For training: the numbers of parameters that have a gradient. The module's outputs are the new values of
     * parameters that forward writes, the model's outputs, and the gradients. `given` lists the outputs whose gradients
     * the caller passes: they are the inputs after the seed. */
    const struct front_graph *training; /* NULL: there is none */
    int ntrained, ngiven, nwritten;
    const struct sol_ext_tensor *trained;
    const int32_t *trained_param, *given, *written;
};
/* The state of a network in this process. */
struct front_state {
#if !defined FRONT_BARE
    pthread_mutex_t lock; /* for all fields below */
#endif
    const struct front_version *version;
    const unsigned char *weights;
    const char *weights_path;   /* set by the application */
    int users;                  /* of the weights: contexts with their own memory, and training objects */
    struct front_context *idle; /* for calls without a context */
    int threads;                /* of those calls; 0: one per processor */
    int graph;                  /* of those calls */
    uint64_t seed, drawn;
#if defined FRONT_DEVICE
    struct front_device *device; /* NULL: not open */
    int index;                   /* of the device */
#endif
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

#if defined FRONT_DEVICE
/* Which device, before anything else is done. */
FRONT_API int front_device(const struct front_net *net, int index);
/* Copies to memory of the device (there), or from it. */
FRONT_API int front_copy(const struct front_net *net, void *to, const void *from, size_t bytes, bool there);
FRONT_API void *front_memory(const struct front_net *net, size_t bytes); /* of the device; NULL: there is none */
FRONT_API void front_memory_free(const struct front_net *net, void *p);
#endif
/* All functions return an enum front_error and store a text for front_message. */
FRONT_API int front_init(const struct front_net *net);
FRONT_API int front_choose(const struct front_net *net, const char *version);
#if defined FRONT_WEIGHTS_FILE
FRONT_API int front_weights(const struct front_net *net, const char *path);
#endif
FRONT_API void front_seed(const struct front_net *net, int seed);
/* block NULL: memory from sol_ext_malloc. threads 0: one per processor. */
FRONT_API int front_create(const struct front_net *net, void *block, size_t bytes, int threads,
                           struct front_context **out_c);
FRONT_API size_t front_bytes(const struct front_net *net, int threads); /* 0: an error */
FRONT_API void front_free(struct front_context *c);
/* c NULL: for calls without a context. */
FRONT_API int front_threads(const struct front_net *net, struct front_context *c, int threads);
/* Selects the graph for a batch size. */
FRONT_API int front_batch(const struct front_net *net, struct front_context *c, int64_t batch);
/* Input or output i of the graph for a batch size. NULL: there is none. */
FRONT_API const struct sol_ext_tensor *front_tensor(const struct front_net *net, int64_t batch, bool output, int i);
FRONT_API int front_run(const struct front_net *net, struct front_context *c, const void *const *in, void *const *out);
#if defined FRONT_SIZES
/* Takes a context for a call with these dimensions: c, or, c NULL, one of the library's. The functions that take a
 * context then run at these sizes. After the call give it back. */
FRONT_API int front_enter(const struct front_net *net, struct front_context *c, const int64_t *dims,
                          struct front_context **out_c);
FRONT_API void front_leave(struct front_context *taken, const struct front_context *c);
/* Of a block for a context that runs at these sizes; 0: an error. */
FRONT_API size_t front_bytes_at(const struct front_net *net, int threads, const int64_t *dims);
/* Describes an input or output; shape: room for its sizes, NULL: not wanted. */
FRONT_API int front_shape(const struct front_net *net, bool output, int i, const int64_t *dims,
                          struct sol_ext_tensor *out_t, int64_t *out_shape);
#endif
/* Allocates the outputs. On an error all are NULL. */
FRONT_API int front_predict(const struct front_net *net, struct front_context *c, const void *const *in, void **out);
FRONT_API const char *front_version_name(const struct front_net *net); /* the one in use; NULL: none works */
FRONT_API int front_message(char *buffer, size_t size); /* text of this thread's last error; returns its length */
FRONT_API void front_load(const struct front_net *net);
FRONT_API void front_unload(const struct front_net *net);

/* front_train.c: trainable copies of the parameters, each for one thread at a time */
struct front_training;
FRONT_API int front_train(const struct front_net *net, int threads, struct front_training **out_t);
FRONT_API void front_train_free(struct front_training *t);
FRONT_API int front_forward(struct front_training *t, const void *const *in, void *const *out);
/* gradients: by output; those of outputs that are not real numbers are ignored. */
FRONT_API int front_backward(struct front_training *t, const void *const *in, void *const *out,
                             const void *const *gradients);
/* Predicts with the trained values. */
FRONT_API int front_train_run(struct front_training *t, const void *const *in, void *const *out);
FRONT_API int front_sgd(struct front_training *t, double rate, double momentum, double decay);
FRONT_API int front_adam(struct front_training *t, double rate, double beta1, double beta2, double epsilon,
                         double decay);
FRONT_API void *front_parameter(struct front_training *t, int i, bool gradient);
FRONT_API void front_changed(struct front_training *t); /* call it after writing to a parameter */
#if defined FRONT_SIZES
/* The dimensions of the calls of forward and run that follow; kept by the caller until then. */
FRONT_API void front_train_at(struct front_training *t, const int64_t *dims);
#endif

#if defined FRONT_SELFTEST /* front_selftest.c */
#include "deploy/selftest.h"

FRONT_API int front_selftest(const struct front_net *net, struct front_context *c, void *const *in, void *const *out,
                             struct sol_ext_selftest *found);
#endif

extern FRONT_API const struct front_net front_here; /* the network of the deployed library */

#endif
