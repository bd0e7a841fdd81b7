/* The interpreter's arithmetic where at least one number is a size that varies. SIZE_BAD, or -1 of a comparison: the
 * result depends on the sizes in a way that no size expresses. */
#ifndef SOL_SIZES_H
#define SOL_SIZES_H

#include "hlir/loops.h"

int64_t sizes_binary(enum ex_kind kind, int64_t a, int64_t b);
int64_t sizes_call(int math_row, const int64_t *args);
int sizes_compare(enum ex_cmp op, int64_t a, int64_t b);
int64_t sizes_reduce(enum reduce_kind op, int64_t a, int64_t b);

#endif
