/* Steps that call a library of the device's maker in place of a kernel (SOL_CALL_ in sol/device.h): what the solvers of
 * such libraries share. */
#ifndef SOL_DNN_CALL_H
#define SOL_DNN_CALL_H

#include "dnn/epilogue.h"
#include "print/kernel.h"

struct call {
    const struct problem *p;
    const struct target *target;
    bool direct;      /* the library stores the results; otherwise they go to a work buffer, */
    struct axes axes; /* in this order, and a second step has an item apply the epilogue to each */
    /* Prints the statements of an item that computes the result at i0_, i1_, .. of the axes where the library does not
     * take the call, and returns its value. NULL: the library takes it. */
    const char *(*compute)(const void *user, struct text *out);
    const void *user;
};
const char *call_index(const struct call *c, int axis); /* C text */
/* Is the epilogue nothing but a store of the sums? */
bool call_only_stores(const struct problem *p);
/* The end of an estimate: ns of the second step. */
double call_second_ns(const struct call *c);
/* Behind the text of the call: the function of that step, the second one, and what the kernel consists of. */
void call_emit(struct call *c, struct text *text, struct kernel *out);

#endif
