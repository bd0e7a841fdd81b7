/* Alone: what layers without loops compute, as C that needs nothing but libm: in libsol and in deployed libraries,
 * where descriptions are tables. Each kind is a variable, with its functions and the name of its file: a deployed
 * library carries the files of the kinds that its network has. All data are row-major. */
#ifndef SOL_ALONE_H
#define SOL_ALONE_H

#include <stddef.h>
#include <stdint.h>

enum { ALONE_DIMS = 12 };
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
    const struct alone_kind *kind;
    int32_t type, bytes; /* of input 0's elements */
    int32_t nin;         /* inputs; outputs follow them */
    /* SORT: lines of n elements with `inner` others in between; of each the first `keep` are written: values, and their
     * positions as int64_t. Stable; NaN is the largest. */
    int32_t down;
    int64_t outer, n, inner, keep;
    /* SCATTER: output = input 0 of `elements` elements; then for each element of the walk over `shape`, in order, one
     * of input `values` is joined with one of the output. */
    int32_t mode, values, ndim, nindex;
    int64_t elements, shape[ALONE_DIMS], from[ALONE_DIMS], to[ALONE_DIMS]; /* strides in elements */
    const struct alone_index *index;
    /* matrices: `outer` of rows x cols, float or double; `rhs` columns of another; what `option` says, stands with the
     * kind; check: a matrix that cannot be taken apart is an error, not only a number among the results. */
    int32_t option, check;
    int64_t rows, cols, rhs;
};
enum alone_error {
    ALONE_GOOD,
    ALONE_INDEX,      /* an index is out of range */
    ALONE_SINGULAR,   /* a matrix has no inverse */
    ALONE_INDEFINITE, /* a matrix is not positive definite */
    ALONE_DIVERGED    /* an iteration does not end: there are NaN or infinities */
};
struct alone_bad { /* the index and what it should be below; the matrix, counted through, and the pivot, from 1 */
    int64_t index, limit;
};
struct alone_kind {
    const char *name, *file;                  /* of the variable, and where it is */
    size_t (*scratch)(const struct alone *a); /* bytes that it needs while it runs, 8-byte aligned; NULL: none */
    enum alone_error (*run)(const struct alone *a, char *const *p, void *scratch, struct alone_bad *out_bad);
};

#if defined SOL_DEPLOYED /* one file holds all that is needed */
#define ALONE_KIND static const struct alone_kind __attribute__((unused))
#else
#define ALONE_KIND const struct alone_kind
extern const struct alone_kind alone_sort, alone_scatter;
extern const struct alone_kind alone_lu, alone_lu_solve, alone_solve, alone_inverse, alone_det;
extern const struct alone_kind alone_cholesky, alone_triangular;
extern const struct alone_kind alone_qr, alone_reflectors, alone_reflected;
extern const struct alone_kind alone_ctc;
extern const struct alone_kind alone_eigh, alone_svd, alone_pinv, alone_matrix_exp;
#endif

/* Element i of integers, of any type but uint64_t's upper half. */
static inline int64_t alone_integer(int type, const void *data, int64_t i)
{
    switch (type) {
    case ALONE_BOOL:
    case ALONE_U8: return ((const uint8_t *)data)[i];
    case ALONE_I8: return ((const int8_t *)data)[i];
    case ALONE_U16: return ((const uint16_t *)data)[i];
    case ALONE_I16: return ((const int16_t *)data)[i];
    case ALONE_U32: return ((const uint32_t *)data)[i];
    case ALONE_I32: return ((const int32_t *)data)[i];
    default: return ((const int64_t *)data)[i];
    }
}

static inline size_t alone_scratch(const struct alone *a)
{
    return a->kind->scratch ? a->kind->scratch(a) : 0;
}

#endif
