/* Bands are row-tiled fusion groups: units that share a loop, such as the rows of an image, and pass a few rows at a
 * time to each other in scratch memory, instead of whole tensors. See band.c. */
#ifndef SOL_BAND_H
#define SOL_BAND_H

#include "plan/plan.h"

/* How an operand moves with the index variable: index[dim] = coef * variable + rest, min <= rest <= max. coef 0: it
 * does not move. All three may be sizes that vary; a band moves its rings by numbers. */
struct slice_operand {
    int dim;
    int64_t coef, min, max;
    bool seen;
};
struct slicing {
    const struct slice_operand *op;
    const int *tensor;
};

/* slice.c */
struct slice { /* one value of an index variable of loops, as loops of their own */
    const struct loops *of;
    const struct memory *of_memory; /* of its tensors */
    int ivar;
    int ring; /* a tensor that may be read outside along the variable, where the caller puts `fill`; -1: none */

    /* what loops_slice makes of them, in its arena */
    struct loops *loops;
    struct memory *memory;
    struct slice_operand *op; /* by tensor */
    double fill;
};
/* False: the loops cannot be sliced there. The variable is used as a value, a tensor is read in two ways, or a border
 * needs a test. */
bool loops_slice(struct arena *a, struct slice *s);
/* The largest power of two, up to 64, that divides a size whatever the dimensions are. */
int slice_align(int64_t size);
/* The index variable as outer * by + inner; its size is a multiple of `by`. */
struct loops *loops_split(struct arena *a, const struct loops *loops, int ivar, int64_t by, int *out_outer);

/* band_kernel.c */
struct chain;
/* Replaces u, the chain's last unit, by the whole chain. *out_done false: the chain cannot become one kernel. */
sol_status band_kernel(struct plan *p, const struct chain *c, struct unit *u, bool *out_done);

#define BAND_MAX_STAGES PLAN_CHAIN
enum band_kind { BAND_ROWS, BAND_CHANNELS, BAND_BLOCKS, BAND_KINDS }; /* a step: a row, some channels, some rows */
/* One unit of a chain, sliced along its index variable. */
struct stage {
    struct unit *u;
    const struct loops *loops; /* the unit's loops, with the index variable split if its values are blocks */
    int ivar;
    int64_t rows;            /* values of the index variable: a size that may vary */
    int64_t pixels;          /* of a row, about */
    int image;               /* index variable over images, -1: none */
    int own_ivar, own_image; /* the same in the unit's loops, where `by` values are one of `ivar` */
    int64_t by;
    struct slice_operand *op, *image_op; /* by tensor */
    const struct loops *slice;           /* of one value of the variable, and of one image */
    struct memory *memory;
    const struct choice *apart, *choice; /* of the unit by itself, of its slice */
    struct kernel kernel;
    int in, out;                   /* tensors: the ring it reads, the ring it writes; -1 */
    bool stored;                   /* `out` is no ring but lies in memory, because other units read it, too */
    int64_t step, low, high;       /* row r reads rows step*r+low .. step*r+high of ring `in` */
    double fill;                   /* what rows outside of ring `in` are */
    int64_t row_bytes, row_origin; /* of ring `out`, sizes; origin: to element 0, behind a halo */
    int64_t ring_rows;             /* that ring `out` holds */
};
struct chain {
    int n;
    struct stage stage[BAND_MAX_STAGES];
    int64_t images; /* a size that may vary */
    enum band_kind kind;
    double cost;    /* ns; solvers leave out the time to store a result, and so does this one */
    double kernels; /* of its units' own kernels, */
    double apart;   /* and with the time to store the tensors between them, which the band saves */
    bool fits;      /* what the rings hold stays in the cache */
    bool all_rows;  /* a unit's solver needs more than rows */
};

#endif
