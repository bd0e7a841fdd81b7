/* The schedule turns a plan into the tables of a module: steps, operands, buffers, and offsets in the workspace.
 * Everything is fixed ahead of time, so the peak of memory is known before the first run. Where dimensions vary, tasks,
 * offsets and bytes are sizes (base/size.h); a call computes them and places the blocks of the workspace. */
#ifndef SOL_SCHEDULE_H
#define SOL_SCHEDULE_H

#include "plan/plan.h"
#include "rt/rt.h"

/* Step i of kernel k has this number for its launch: k * SCHEDULE_LAUNCH_STEPS + i. */
#define SCHEDULE_LAUNCH_STEPS 8
struct schedule_step {
    struct unit *unit; /* NULL: a halo */
    int kernel, sub;   /* function KERNEL<kernel>_<sub>; kernel -1: opaque layer `call` */
    int call;
    int set; /* the dimension that an opaque layer sets; -1: none */
    int64_t tasks;
    int64_t flops, bytes; /* as in struct sol_step, as sizes; SIZE_BAD: unknown */
    bool team;            /* SOL_STEP_TEAM */
    const char *label;
    int noperand;
    struct sol_tensor **operand;
    struct sol_operand *place;
    uint64_t *depends; /* prepare: bits of parameters */
};
struct schedule_program {
    VECTOR(struct schedule_step) steps;
    int64_t workspace_bytes;         /* for the dimensions' hints */
    int64_t scratch_bytes;           /* of a worker; where a device launches steps, of all groups of a step */
    VECTOR(struct sol_block) blocks; /* where dimensions vary: as in struct sol_program */
    int nblock;                      /* of them in the workspace; saved tensors follow */
};
struct schedule {
    struct plan *plan;
    struct arena *arena;
    struct schedule_program program[PROGRAMS];
    VECTOR(struct sol_buffer) buffers;     /* of a block: its offset is a quantity */
    VECTOR(struct source_text) kernels;    /* each once */
    VECTOR(int) shared, items;             /* by kernel: shared_bytes, and work items of a group */
    VECTOR(struct sol_tensor *) constants; /* datum i of the module */
    VECTOR(struct sol_layer *) opaque;     /* host function i computes this layer */
    VECTOR(int) saved;                     /* tensors that forward saves for backward, in the order of their offsets */
    int64_t prepared_bytes, saved_bytes;
    int nplaced;     /* how many sizes of a call are places of blocks, or the end of them */
    int64_t *offset; /* by tensor id: bytes from the start of the buffer to element 0 */
    int *buffer;     /* by tensor id: number of its buffer, -1: not stored */
};

sol_status schedule_make(struct plan *p, struct schedule **out_s);
/* Gives each kernel its note: what it computes, and for which layers. */
void schedule_notes(struct schedule *s);
/* The C text of the module's tables, for build_module. With a symbol of its own (deploy) it has no constant data. */
const char *schedule_module_text(const struct schedule *s, const char *name, const char *symbol);
int schedule_sizes(const struct schedule *s); /* how many sizes a call of the module has */

#endif
