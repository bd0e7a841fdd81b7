/* The binary interface between generated code, the runtime and deployed libraries. Includes C standard headers only.
 *
 * A module is constant data. It has programs, a program has steps, and a step has a function and the addresses of its
 * operands. A kernel computes the tasks [task0, task1) of its step, and every split of the tasks gives the same bits.
 *
 * A *quantity* is a number below SOL_SIZE, or a size known only at run time: quantity SOL_SIZE + i is size i of the
 * call. A module without such sizes has numbers only. Otherwise the sizes of a call are, in this order: those of its
 * dimensions, which the caller knows; those that the module computes from them; places of blocks of memory. */
#ifndef SOL_MODULE_H
#define SOL_MODULE_H

#include <stdint.h>

#define SOL_MODULE_VERSION 8

#define SOL_SIZE (INT64_C(1) << 48)

struct sol_frame;
/* p[i] is the address of operand i. */
typedef void sol_kernel(char *const *p, const struct sol_frame *f, int64_t task0, int64_t task1, int worker);
typedef sol_kernel *sol_kernel_fn;

/* All workers of a call, for steps of kind SOL_STEP_TEAM. */
struct sol_team {
    /* Computes the tasks of a stage together, and returns when all are done. Every worker calls it as often as the
     * others, each time with the same stage, operands and number of tasks. */
    void (*run)(void *user, sol_kernel *stage, char *const *p, const struct sol_frame *f, int64_t tasks, int worker);
    void *user;
};
/* One running call. */
struct sol_frame {
    char *const *base; /* start of every buffer of the module, by its number */
    void *scratch;     /* `scratch_bytes` for each worker, 64-byte aligned; worker w begins at w * scratch_bytes */
    int64_t scratch_bytes;
    const uint64_t *seeds;   /* random streams */
    volatile int32_t *error; /* 0, or the first SOL_KERNEL_* error of this worker */
    volatile int32_t *error_step;
    int32_t step;                /* the step that runs, for messages */
    const int64_t *sizes;        /* of the call; NULL: none */
    const struct sol_team *team; /* for steps of kind SOL_STEP_TEAM only */
};
enum {
    SOL_KERNEL_OK = 0,
    SOL_KERNEL_INDEX = 1, /* an index was out of range */
    SOL_KERNEL_DIVISION = 2,
    SOL_KERNEL_PLUGIN = 3, /* a plug-in failed, or is missing */
    SOL_KERNEL_MATRIX = 4  /* a matrix cannot be factorized */
};

enum sol_buffer_kind {
    SOL_BUFFER_INPUT, /* index: which input */
    SOL_BUFFER_OUTPUT,
    SOL_BUFFER_PARAM,     /* the framework's memory */
    SOL_BUFFER_PREPARED,  /* written by `prepare`, owned by the parameter set; offset and bytes in one block */
    SOL_BUFFER_WORKSPACE, /* one block per call */
    SOL_BUFFER_CONST,     /* in the module */
    SOL_BUFFER_SAVED,     /* written by `forward`, read by `backward`: one block per call of forward */
    SOL_BUFFER_EITHER     /* up to offset saved_bytes the memory of saved tensors, the workspace behind it */
};
/* Bits: the programs that receive an input or output. Gradients have the bit of backward only. An input or output of
 * forward that backward reads has both bits. */
enum { SOL_GIVEN_FORWARD = 1, SOL_GIVEN_BACKWARD = 2 };
enum sol_space { /* the memory of a buffer */
                 SOL_SPACE_HOST,
                 SOL_SPACE_DEVICE /* accessible only to launched steps and copies */
};
struct sol_buffer {
    int32_t kind, index;
    int64_t offset, bytes; /* quantities */
    const void *data;      /* CONST */
    int32_t given;         /* INPUT, OUTPUT */
    int32_t space;
};
struct sol_operand { /* the address of an operand: a buffer and the offset of the operand's element 0 in it */
    int32_t buffer;
    int64_t offset; /* bytes, a quantity; negative is possible (a flipped view) */
};
enum sol_step_kind {
    SOL_STEP_KERNEL, /* workers call `run` for shares of the tasks, at any time and in any order */
    /* All workers call `run`, even with an empty share of the tasks, and go through its stages together (f->team), also
     * after an error. More workers than the step has tasks are of no use. */
    SOL_STEP_TEAM,
    SOL_STEP_HOST,   /* one worker calls function `call` of the host once: an opaque layer */
    SOL_STEP_LAUNCH, /* a device runs the tasks: `run` queues them and does not wait */
    SOL_STEP_COPY,   /* copies the first operand to the second, between memory spaces */
    SOL_STEP_SET     /* as HOST, and sets a size of the call: tasks and operands of later steps may differ */
};
struct sol_step {
    sol_kernel_fn run;      /* NULL: a host step or a copy */
    int64_t tasks;          /* a quantity; 0: nothing to do */
    int32_t place0, places; /* a range of the program's table of operands */
    const char *label;      /* its layers, for messages: "layer1.0.conv1 + relu" */
    /* `prepare` only: a range of the module's `depends`: the parameters that determine the step's result, directly or
     * through earlier steps. */
    int32_t depends0, depends;
    int32_t kind; /* enum sol_step_kind */
    int32_t
        call; /* HOST, SET: the function's number; operands are inputs, then outputs (struct net_host in runtime.h) */
    /* For profiles: operations of the layers as defined (Winograd needs fewer), and the bytes that they read and write.
     * If several consecutive steps compute one kernel, the first has the numbers of all. */
    float flops, bytes;
};
/* Memory whose place is chosen when the sizes of a call are known. Blocks that are in use at the same time do not
 * overlap. */
struct sol_block {
    int64_t bytes, offset; /* quantities; offset: the size of the call that becomes its offset */
    /* The steps during which it is in use. Forward counts them from its last step on where it saves tensors, so that
     * these are in use at the beginning, as they are in backward. */
    int32_t first, last;
};
struct sol_program {
    int32_t nstep, nplace;
    const struct sol_step *step;
    const struct sol_operand *place;
    int64_t workspace_bytes, scratch_bytes; /* quantities; scratch: per worker */
    /* Where sizes vary. The end of the blocks becomes workspace_bytes, which is a size of the call then. Behind them in
     * the table are the module's saved tensors, in the order of their offsets, which are known: blocks lie in their
     * memory, too, where it is not in use. */
    int32_t nblock;
    const struct sol_block *block;
};
/* A dimension that varies: its size is known only when the network runs. */
struct sol_module_dim {
    const char *name;
    int64_t hint, min, max, multiple; /* as in struct sol_dim_limits */
    /* A step sets it, and the call begins with this quantity, the most that it may become; -1: the caller tells it.
     * Steps in front of that step do not depend on it. */
    int64_t most;
};
/* What sizes must fulfil beyond their limits: the quantity is not negative. */
struct sol_module_check {
    int64_t size;
    int32_t set;      /* the last dimension in it that a step sets: checked then; -1: when the call begins */
    const char *what; /* who needs it, and its formula: "layer 'conv1' (Conv): it needs a size #0-7" */
};
struct sol_module {
    uint32_t size, version;
    int32_t ninput, noutput, nparam, nbuffer;
    const struct sol_buffer *buffer;
    const int32_t *depends;
    int64_t prepared_bytes, saved_bytes;           /* saved: a quantity */
    struct sol_program prepare, forward, backward; /* backward: no steps unless the network has a gradient */
    /* Sizes known only while running; 0: none. `prepare` needs none of them. */
    int32_t nsize, ndim, ncheck, nsaved;
    const struct sol_module_dim *dim;
    const struct sol_module_check *check;
    /* Reads sizes 0..ndim-1 and writes those that the module computes. Returns 0: one of them is too large. */
    int32_t (*sizes)(int64_t *size);
};

#endif
