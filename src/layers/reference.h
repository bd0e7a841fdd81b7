/* Reference operators: C implementations of layers without loops. They need libm only and serve libsol and deployed
 * libraries, where descriptions are tables. Each kind is a variable with its functions and the name of its file, so a
 * deployed library carries only the files of the kinds that its network has. All data are row-major. */
#ifndef SOL_REFERENCE_H
#define SOL_REFERENCE_H

#include <stddef.h>
#include <stdint.h>

enum {
    REFERENCE_DIMS = 12,
    REFERENCE_TENSORS = 24, /* of a function, as in registered.c */
    REFERENCE_NUMBERS = 64  /* that it gets, with the bytes of temporaries */
};
enum reference_type {
    REFERENCE_BOOL,
    REFERENCE_U8,
    REFERENCE_I8,
    REFERENCE_U16,
    REFERENCE_I16,
    REFERENCE_U32,
    REFERENCE_I32,
    REFERENCE_U64,
    REFERENCE_I64,
    REFERENCE_F32,
    REFERENCE_F64,
    REFERENCE_OTHER /* is copied only */
};
enum reference_mode {
    REFERENCE_NONE,
    REFERENCE_ADD,
    REFERENCE_MUL,
    REFERENCE_MAX,
    REFERENCE_MIN
}; /* what is written with what is there */

/* Indices along one axis of what is written to. */
struct reference_index {
    int32_t input, type;            /* which input, an enum reference_type of integers */
    int64_t offset;                 /* elements into the input */
    int64_t limit, step;            /* indices are in -limit..limit-1; elements of the output between two */
    int64_t stride[REFERENCE_DIMS]; /* elements of the input, by dimension of the walk */
};
struct reference {
    const struct reference_kind *kind;
    int32_t type, bytes; /* of input 0's elements */
    int32_t nin;         /* inputs; outputs follow them */
    /* SORT: lines of n elements with `inner` others in between; of each `keep` are written, from the one with number
     * `first` in their order on: values, and their positions as int64_t. Stable; NaN is the largest. */
    int32_t down;
    int64_t outer, n, inner, keep, first;
    /* NONZERO: the positions in an array of `shape` that are not zero; `keep` of them have room. */
    /* UNIQUE: n rows of `inner` elements; `keep` different ones have room. option: they are sorted; check: NaN equals
     * NaN. */
    /* NMS: `outer` images of n boxes, `rows` classes with a score for each box; `keep` chosen ones have room. option:
     * what the four numbers of a box are. */
    /* SCATTER: output = input 0 of `elements` elements (uniform: of one, which all are); then for each element of the
     * walk over `shape`, in order, one of input `values` is joined with one of the output. skip: indices out of range
     * are skipped, negative ones too. */
    int32_t mode, skip, uniform, values, ndim, nindex;
    int64_t elements, shape[REFERENCE_DIMS], from[REFERENCE_DIMS], to[REFERENCE_DIMS]; /* strides in elements */
    const struct reference_index *index;
    /* matrices: `outer` of rows x cols, float or double; `rhs` columns of another; what `option` says, stands with the
     * kind; check: a matrix that cannot be taken apart is an error, not only a number among the results. */
    int32_t option, check;
    int64_t rows, cols, rhs;
    /* FUNCTION: `nin` inputs and `values` outputs; it gets the first `nnumber` numbers. Behind them are the bytes of
     * `ntemp` temporaries. */
    int32_t (*function)(void *const *tensors, const int64_t *numbers, const double *reals);
    int32_t nnumber, ntemp, nreal;
    const int64_t *number;
    const double *real;
};
enum reference_error {
    REFERENCE_GOOD,
    REFERENCE_INDEX,      /* an index is out of range */
    REFERENCE_SINGULAR,   /* a matrix has no inverse */
    REFERENCE_INDEFINITE, /* a matrix is not positive definite */
    REFERENCE_DIVERGED,   /* an iteration does not end: there are NaN or infinities */
    REFERENCE_FAILED      /* a function from outside says so: `index` is what it returns */
};
struct reference_bad { /* no error: the number of elements that were found; else the index and what it should be below;
                          the matrix, counted through, and the pivot, from 1 */
    int64_t index, limit;
};
struct reference_kind {
    const char *name, *file;                      /* of the variable, and where it is */
    size_t (*scratch)(const struct reference *a); /* bytes that it needs while it runs, 8-byte aligned; NULL: none */
    enum reference_error (*run)(const struct reference *a, char *const *p, void *scratch,
                                struct reference_bad *out_bad);
};

#if defined SOL_DEPLOYED /* one file holds all that is needed, so names are unique across these files */
#define REFERENCE_KIND static const struct reference_kind __attribute__((unused))
#else
#define REFERENCE_KIND const struct reference_kind
extern const struct reference_kind reference_sort, reference_scatter;
extern const struct reference_kind reference_lu, reference_lu_solve, reference_solve, reference_inverse, reference_det;
extern const struct reference_kind reference_cholesky, reference_triangular;
extern const struct reference_kind reference_qr, reference_reflectors, reference_reflected;
extern const struct reference_kind reference_ctc, reference_function;
extern const struct reference_kind reference_nonzero, reference_unique, reference_nms;
extern const struct reference_kind reference_eigh, reference_svd, reference_pinv, reference_matrix_exp;
#endif

/* Element i of integers, of any type but uint64_t's upper half. */
static inline int64_t reference_integer(int type, const void *data, int64_t i)
{
    switch (type) {
    case REFERENCE_BOOL:
    case REFERENCE_U8: return ((const uint8_t *)data)[i];
    case REFERENCE_I8: return ((const int8_t *)data)[i];
    case REFERENCE_U16: return ((const uint16_t *)data)[i];
    case REFERENCE_I16: return ((const int16_t *)data)[i];
    case REFERENCE_U32: return ((const uint32_t *)data)[i];
    case REFERENCE_I32: return ((const int32_t *)data)[i];
    default: return ((const int64_t *)data)[i];
    }
}

static inline size_t reference_scratch(const struct reference *a)
{
    return a->kind->scratch ? a->kind->scratch(a) : 0;
}

#endif
