/* A stable merge sort of the numbers of elements. */
#ifndef SOL_REFERENCE_ORDER_H
#define SOL_REFERENCE_ORDER_H

#include "layers/reference.h"

/* Does element i of the data stand before element k? */
typedef int (*reference_before)(const struct reference *a, const char *data, int64_t i, int64_t k);

/* Sorts the n numbers in `order`; returns where they are: `order`, or `spare`, which has the same size. */
static inline int64_t *reference_order(const struct reference *a, const char *data, reference_before before, int64_t n,
                                       int64_t *order, int64_t *spare)
{
    for (int64_t run = 1; run < n; run *= 2) {
        for (int64_t begin = 0; begin < n; begin += 2 * run) {
            const int64_t middle = begin + run < n ? begin + run : n, end = middle + run < n ? middle + run : n;
            int64_t left = begin, right = middle;
            for (int64_t k = begin; k < end; k++) {
                const int second = right < end && (left == middle || before(a, data, order[right], order[left]));
                spare[k] = order[second ? right++ : left++];
            }
        }
        int64_t *const done = spare;
        spare = order;
        order = done;
    }
    return order;
}

#endif
