/* The result of a deployed network's self-test. */
#ifndef SOL_EXT_SELFTEST_H
#define SOL_EXT_SELFTEST_H

#include <stddef.h>

struct sol_ext_selftest {
    int output;     /* the one with the largest difference; -1: nothing was compared */
    size_t element; /* of this output */
    double got, expected, tolerance;
    double distance; /* |got - expected| in units of the tolerance: 0 if equal, above 1 if wrong */
    size_t compared; /* elements of all outputs */
};

#endif
