/* Shared by the headers of all deployed networks. */
#ifndef SOL_EXT_TENSOR_H
#define SOL_EXT_TENSOR_H

#include <stddef.h>
#include <stdint.h>

struct sol_ext_tensor {
    const char *name;
    const char *type; /* of an element: "f32", "f64", "i8" .. "i64", "u8" .. "u64", "bool" (one byte, 0 or 1) */
    int ndim;
    const int64_t *shape; /* row-major; the last is the innermost */
    size_t bytes;         /* of all elements */
};

#endif
