/* Recurrences whose steps are calls of kernels. See scan.c. */
#ifndef SOL_SCAN_H
#define SOL_SCAN_H

#include "plan/band.h"

/* What a tensor of a stage is: a tensor of the unit, `shift` steps away from the current step. */
struct scan_tensor {
    int tensor;
    int64_t shift;
};
struct scan_stage {
    const struct loops *slice;        /* of one step and one block; tensors[].user: its struct scan_tensor */
    struct slice_operand *op[2];      /* by tensor, along the steps and along the blocks; NULL: not sliced there */
    const struct memory *full_memory; /* by tensor, before it was sliced */
    struct memory *memory;
    const struct choice *choice;
    int number; /* of the function; equal kernels share one */
};
/* Steps from .. from + n - 1, which all have the same stages. */
struct scan_phase {
    int64_t from, n;
    int nstage;
    struct scan_stage *stage;
};
/* By tensor of the unit: what the steps write. */
struct scan_state {
    int dim;      /* the dimension that counts the steps; -1: the steps do not write it */
    bool carried; /* another step reads it, or what follows the last one */
    bool scratch; /* it lies in scratch memory, `rows` steps of it */
    int64_t rows, row_bytes, offset;
    struct memory memory;
};
#define SCAN_MAX_BORDER 4
struct scan {
    struct plan *p;
    struct unit *u;
    const struct loops *loops; /* the unit's loops: the statements of the steps, then those behind the last step */
    int nstep;                 /* statements of the steps */
    int ivar, by;              /* the scan variable, and its direction: up (1) or down (-1) */
    int64_t steps, fewest;     /* their number, and how many there must be; 0: there always are */
    int *cluster;              /* by statement: which stage it belongs to */
    struct scan_state *state;
    int batch; /* index variable whose blocks are tasks, -1: none */
    int64_t blocks, block;
    bool team;  /* all workers compute each step together (tree.h); there is one block */
    int nphase; /* in the order in which they run; the last one: the statements behind the steps */
    struct scan_phase phase[2 * SCAN_MAX_BORDER + 2];
    double cost;
};

/* scan_kernel.c: replaces the unit by calls of the stages. *out_done false: a stage cannot be part of it. */
sol_status scan_kernel(struct scan *s, bool *out_done);

#endif
