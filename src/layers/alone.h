/* Alone: what layers without loops compute, as C that needs nothing: in libsol and in deployed libraries, where
 * descriptions are tables. There are two kinds: sorting lines, and writing elements to places that tensors of indices
 * say, one after the other. All data are row-major. */
#ifndef SOL_ALONE_H
#define SOL_ALONE_H

#include <stddef.h>
#include <stdint.h>

enum { ALONE_DIMS = 12 };
enum alone_kind { ALONE_SORT, ALONE_SCATTER };
enum alone_type {
    ALONE_BOOL,
    ALONE_U8,
    ALONE_I8,
    ALONE_U16,
    ALONE_I16,
    ALONE_U32,
    ALONE_I32,
    ALONE_U64,
    ALONE_I64,
    ALONE_F32,
    ALONE_F64,
    ALONE_OTHER /* is copied only */
};
enum alone_mode { ALONE_NONE, ALONE_ADD, ALONE_MUL, ALONE_MAX, ALONE_MIN }; /* what is written with what is there */

/* Indices along one axis of what is written to. */
struct alone_index {
    int32_t input, type;        /* which input, an enum alone_type of integers */
    int64_t offset;             /* elements into the input */
    int64_t limit, step;        /* indices are in -limit..limit-1; elements of the output between two */
    int64_t stride[ALONE_DIMS]; /* elements of the input, by dimension of the walk */
};
struct alone {
    int32_t kind, type, bytes; /* of input 0's elements */
    int32_t nin;               /* inputs; outputs follow them */
    /* SORT: lines of n elements with `inner` others in between; of each the first `keep` are written: values, and their
     * positions as int64_t. Stable; NaN is the largest. */
    int32_t down;
    int64_t outer, n, inner, keep;
    /* SCATTER: output = input 0 of `elements` elements; then for each element of the walk over `shape`, in order, one
     * of input `values` is joined with one of the output. */
    int32_t mode, values, ndim, nindex;
    int64_t elements, shape[ALONE_DIMS], from[ALONE_DIMS], to[ALONE_DIMS]; /* strides in elements */
    const struct alone_index *index;
};
struct alone_bad { /* an index that is out of range */
    int64_t index, limit;
};

/* Bytes of memory that it needs while it runs, 8-byte aligned. */
size_t alone_scratch(const struct alone *a);
/* p: inputs, then outputs. Returns 0, or 1 for an index that is out of range. */
int alone_run(const struct alone *a, char *const *p, void *scratch, struct alone_bad *out_bad);

#endif
