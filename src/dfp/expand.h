/* What rewrites the statements of a cluster for dfp (expand.c, turn.c). */
#ifndef SOL_DFP_EXPAND_H
#define SOL_DFP_EXPAND_H

#include "dfp/dfp.h"

struct expand {
    struct loops *loops;
    const struct target *target;
    const struct memory *memory; /* of the tensors that are no temporaries */
    uint64_t softsums;           /* by tensor: it is a sum of exponentials */
    uint64_t unit;               /* index variables along which outputs are contiguous */
    int lanes;                   /* of a vector */
    VECTOR(struct loops_stmt) stmts;
};

int32_t expand_ivar_list(const struct expand *x, uint64_t ivars);
/* Adds a temporary with a dimension for each of these index variables. */
int expand_temp(struct expand *x, const char *name, uint64_t ivars, enum sol_dtype dtype);
/* Adds a statement that writes `out`; otherwise it is like `like`. */
void expand_put(struct expand *x, const struct loops_stmt *like, int out, int32_t index, int32_t value);

/* turn.c: adds a copy of an operand for a statement if that saves more sums across lanes than it costs. */
void expand_turn(struct expand *x, struct loops_stmt *s);

#endif
