/* What generated code, the runtime and a deployed library agree on. C standard headers only.
 *
 * A module is constant data: programs made of steps, steps made of a function and the places of its operands. A kernel
 * never sees a number of threads: it computes the tasks [task0, task1) of its step, and any split of the tasks gives
 * the same bits. */
#ifndef SOL_MODULE_H
#define SOL_MODULE_H

#include <stdint.h>

#define SOL_MODULE_VERSION 3

/* One call in flight. */
struct sol_frame {
    char *const *base; /* start of every buffer of the module, by its number */
    void *scratch;     /* `scratch_bytes` for each worker, 64-byte aligned; worker w begins at w * scratch_bytes */
    int64_t scratch_bytes;
    const uint64_t *seeds;   /* random streams */
    volatile int32_t *error; /* 0, or the first SOL_KERNEL_* that this worker met */
    volatile int32_t *error_step;
    int32_t step; /* the step that runs, for messages */
};
enum {
    SOL_KERNEL_OK = 0,
    SOL_KERNEL_INDEX = 1, /* an index was out of range */
    SOL_KERNEL_DIVISION = 2,
    SOL_KERNEL_PLUGIN = 3, /* another library failed, or is gone */
    SOL_KERNEL_MATRIX = 4  /* a matrix cannot be taken apart */
};

/* p[i]: where operand i begins. */
typedef void (*sol_kernel_fn)(char *const *p, const struct sol_frame *f, int64_t task0, int64_t task1, int worker);

enum sol_buffer_kind {
    SOL_BUFFER_INPUT, /* index: which input */
    SOL_BUFFER_OUTPUT,
    SOL_BUFFER_PARAM,     /* the framework's memory */
    SOL_BUFFER_PREPARED,  /* written by `prepare`, kept by the model; offset and bytes in one block */
    SOL_BUFFER_WORKSPACE, /* one block per call */
    SOL_BUFFER_CONST,     /* in the module */
    SOL_BUFFER_SAVED      /* written by `forward`, read by `backward`: one block per call of forward */
};
/* Programs that are given an input, or an output: bits. A gradient is backward's alone; an input or output of forward
 * that backward reads has both. */
enum { SOL_GIVEN_FORWARD = 1, SOL_GIVEN_BACKWARD = 2 };
struct sol_buffer {
    int32_t kind, index;
    int64_t offset, bytes;
    const void *data; /* CONST */
    int32_t given;    /* INPUT, OUTPUT */
};
struct sol_place { /* an operand: a buffer and where the operand's element 0 begins in it */
    int32_t buffer;
    int64_t offset; /* bytes; negative is possible (a flipped view) */
};
struct sol_step {
    sol_kernel_fn run;
    int64_t tasks;
    int32_t place0, places; /* in the program's table of places */
    const char *label;      /* the layers computed, for people: "layer1.0.conv1 + relu" */
    /* `prepare` only: a range of the module's `depends`: the parameters that the step's result depends on, also through
     * earlier steps. */
    int32_t depends0, depends;
    /* Where `run` is NULL the step is an opaque layer: the host's function of this number computes it, once, on one
     * worker, unless tasks is 0. Its places are its inputs, then its outputs. See struct net_host in runtime.h. */
    int32_t call;
    /* What the layers computed are worth, for people: operations as their loops say them (Winograd does fewer), bytes
     * of all that they read and write. Several steps in a row that compute one thing say so in the first of them. */
    float flops, bytes;
};
struct sol_program {
    int32_t nstep, nplace;
    const struct sol_step *step;
    const struct sol_place *place;
    int64_t workspace_bytes, scratch_bytes; /* scratch: per worker */
};
struct sol_module {
    uint32_t size, version;
    int32_t ninput, noutput, nparam, nbuffer;
    const struct sol_buffer *buffer;
    const int32_t *depends;
    int64_t prepared_bytes, saved_bytes;
    struct sol_program prepare, forward, backward; /* backward: no steps unless the network has a gradient */
};

#endif
