/* What `sol` and `sol-opt` share: arrays, their files, and messages. */
#ifndef SOL_CLI_ARRAY_H
#define SOL_CLI_ARRAY_H

#include <stdbool.h>
#include <stdio.h>

#include "sol/sol.h"

enum cli_exit {
    EXIT_GOOD = 0,
    EXIT_MISMATCH = 1, /* verify: outputs differ */
    EXIT_USAGE = 2,
    EXIT_REJECTED = 3, /* the model is invalid, or contains something that SOL does not support */
    EXIT_FAILED = 4    /* files, compiler, memory, running */
};

enum { ARRAY_DIMS = 12 };

/* An array; its memory comes from malloc. */
struct array {
    const char *name;
    enum sol_dtype dtype;
    int ndim;
    int64_t shape[ARRAY_DIMS], elements;
    size_t bytes;
    void *data;
};

extern const char cli_name[]; /* the program's name for messages; each main file defines it */

/* npy.c: NumPy's format of one array, versions 1 to 3, little-endian, C or Fortran order. Functions print their
 * errors. */
bool npy_read(const char *path, struct array *out_a);
bool npy_write(const char *path, const struct array *a);
/* array.c */
int cli_error(int code, const char *format, ...) __attribute__((format(printf, 2, 3))); /* prints, returns the code */
bool array_make(struct array *a, const char *name, enum sol_dtype dtype, int ndim, const int64_t *shape);
void array_free(struct array *a);
bool array_fits(const struct array *a, enum sol_dtype dtype, int ndim, const int64_t *shape);
void shape_print(FILE *to, enum sol_dtype dtype, int ndim, const int64_t *shape); /* f32[2, 4] */
void array_random(struct array *a, uint64_t *seed);
double array_at(const struct array *a, int64_t i);
size_t dtype_bytes(enum sol_dtype t);
const char *dtype_text(enum sol_dtype t);
bool dtype_is_float(enum sol_dtype t);

#endif
