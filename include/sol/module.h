/* What generated code, the runtime and a deployed library agree on. C standard headers only.
 *
 * A module is constant data: programs made of steps, steps made of a function and the places of its operands. A kernel
 * computes the tasks [task0, task1) of its step; any split of the tasks gives the same bits.
 *
 * A *quantity* is a number, or, from SOL_SIZE on, a size known only while running: quantity SOL_SIZE + i is size i of
 * the call. A module without such sizes has numbers alone. */
#ifndef SOL_MODULE_H
#define SOL_MODULE_H

#include <stdint.h>

#define SOL_MODULE_VERSION 4

#define SOL_SIZE (INT64_C(1) << 48)

/* All workers of a call, for steps of kind SOL_STEP_TEAM. */
struct sol_team {
    int32_t workers;
    void (*meet)(void *user); /* a barrier: returns when all workers have called it as often as this one */
    void *user;
};
/* One call in flight. */
struct sol_frame {
    char *const *base; /* start of every buffer of the module, by its number */
    void *scratch;     /* `scratch_bytes` for each worker, 64-byte aligned; worker w begins at w * scratch_bytes */
    int64_t scratch_bytes;
    const uint64_t *seeds;   /* random streams */
    volatile int32_t *error; /* 0, or the first SOL_KERNEL_* that this worker met */
    volatile int32_t *error_step;
    int32_t step;                /* the step that runs, for messages */
    const int64_t *sizes;        /* known only while running; NULL: there are none */
    const struct sol_team *team; /* only steps of kind SOL_STEP_TEAM may use it */
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
enum sol_space { /* whose memory it is */
                 SOL_SPACE_HOST,
                 SOL_SPACE_DEVICE /* that only steps which are launched, and copies, may touch */
};
struct sol_buffer {
    int32_t kind, index;
    int64_t offset, bytes;
    const void *data; /* CONST */
    int32_t given;    /* INPUT, OUTPUT */
    int32_t space;
};
struct sol_place { /* an operand: a buffer and where the operand's element 0 begins in it */
    int32_t buffer;
    int64_t offset; /* bytes, a quantity; negative is possible (a flipped view) */
};
enum sol_step_kind {
    SOL_STEP_KERNEL, /* workers call `run` for shares of the tasks, at any time and in any order */
    /* All workers call `run` at the same time, also those whose share of the tasks is empty; it may meet the others at
     * barriers (f->team), all of them equally often: a worker that met an error goes on meeting. */
    SOL_STEP_TEAM,
    SOL_STEP_HOST,   /* function `call` of the host, once, on one worker: an opaque layer */
    SOL_STEP_LAUNCH, /* a device runs the tasks: `run` queues them, and nobody waits */
    SOL_STEP_COPY    /* the first operand is copied to the second, between spaces */
};
struct sol_step {
    sol_kernel_fn run;      /* NULL: a step of the host, or a copy */
    int64_t tasks;          /* a quantity; 0: nothing is to be done */
    int32_t place0, places; /* in the program's table of places */
    const char *label;      /* the layers computed, for people: "layer1.0.conv1 + relu" */
    /* `prepare` only: a range of the module's `depends`: the parameters that the step's result depends on, also through
     * earlier steps. */
    int32_t depends0, depends;
    int32_t kind; /* enum sol_step_kind */
    int32_t
        call; /* HOST: the function's number; its places are inputs, then outputs. See struct net_host in runtime.h */
    /* What the layers computed are worth, for people: operations as their loops say them (Winograd does fewer), bytes
     * of all that they read and write. Several steps in a row that compute one thing say so in the first of them. */
    float flops, bytes;
};
struct sol_program {
    int32_t nstep, nplace;
    const struct sol_step *step;
    const struct sol_place *place;
    int64_t workspace_bytes, scratch_bytes; /* scratch: per worker; a quantity */
};
struct sol_module {
    uint32_t size, version;
    int32_t ninput, noutput, nparam, nbuffer;
    const struct sol_buffer *buffer;
    const int32_t *depends;
    int64_t prepared_bytes, saved_bytes;
    struct sol_program prepare, forward, backward; /* backward: no steps unless the network has a gradient */
    int32_t nsize;                                 /* sizes known only while running; 0: none */
};

#endif
