/* What the headers of all deployed networks share. The two functions are weak: an application that defines its own gets
 * all memory from there. */
#ifndef SOL_EXT_H
#define SOL_EXT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sol_ext_tensor {
    const char *name;
    const char *type; /* of an element: "f32", "f64", "i8" .. "i64", "u8" .. "u64", "bool" (one byte, 0 or 1) */
    int ndim;
    const int64_t *shape; /* row-major; the last is the innermost */
    size_t bytes;         /* of all elements */
};
void *sol_ext_malloc(size_t bytes); /* NULL: there is none */
void sol_ext_free(void *p);         /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
