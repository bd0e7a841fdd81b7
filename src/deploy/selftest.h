/* What a deployed network's self-test found. */
#ifndef SOL_EXT_SELFTEST_H
#define SOL_EXT_SELFTEST_H

#include <stddef.h>

struct sol_ext_selftest {
    int output;     /* the one that differs most; -1: nothing was compared */
    size_t element; /* of it */
    double got, expected, tolerance;
    double distance; /* |got - expected| in tolerances: 0 the same, above 1 wrong */
    size_t compared; /* elements of all outputs */
};

#endif
