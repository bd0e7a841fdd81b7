/* Arrays of the commands (types, memory, random values), and error messages. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"

int cli_error(int code, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "%s: ", cli_name);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\n");
    return code;
}

static const struct {
    const char *name;
    size_t bytes;
    bool is_float;
} types[] = {
#define X(enumerator, name, c_type, bytes, is_float, is_signed, is_bool) {name, bytes, is_float},
#include "sol/dtypes.def"
#undef X
};

size_t dtype_bytes(enum sol_dtype t)
{
    return types[t].bytes;
}

const char *dtype_text(enum sol_dtype t)
{
    return types[t].name;
}

bool dtype_is_float(enum sol_dtype t)
{
    return types[t].is_float;
}

bool array_make(struct array *a, const char *name, enum sol_dtype dtype, int ndim, const int64_t *shape)
{
    *a = (struct array){.name = name, .dtype = dtype, .ndim = ndim, .elements = 1};
    for (int i = 0; i < ndim; i++) a->elements *= a->shape[i] = shape[i];
    a->bytes = (size_t)a->elements * dtype_bytes(dtype);
    a->data = calloc(a->bytes ? a->bytes : 1, 1);
    if (!a->data) cli_error(EXIT_FAILED, "not enough memory for '%s' (%zu bytes)", name, a->bytes);
    return a->data;
}

void array_free(struct array *a)
{
    free(a->data);
    *a = (struct array){0};
}

bool array_fits(const struct array *a, enum sol_dtype dtype, int ndim, const int64_t *shape)
{
    bool same = a->dtype == dtype && a->ndim == ndim;
    for (int i = 0; same && i < ndim; i++) same = a->shape[i] == shape[i];
    return same;
}

void shape_print(FILE *to, enum sol_dtype dtype, int ndim, const int64_t *shape)
{
    fprintf(to, "%s[", dtype_text(dtype));
    for (int i = 0; i < ndim; i++) fprintf(to, "%s%lld", i ? ", " : "", (long long)shape[i]);
    fprintf(to, "]");
}

/* The next number of the generator splitmix64. */
static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* Real numbers are uniform in -1..1. Integers are 0 or 1, which are valid as indices, truth values and counts alike. */
void array_random(struct array *a, uint64_t *seed)
{
    for (int64_t i = 0; i < a->elements; i++) {
        uint64_t bits = next(seed);
        double real = (double)(bits >> 11) * 0x1p-52 - 1;
        if (a->dtype == SOL_F32)
            ((float *)a->data)[i] = (float)real;
        else if (a->dtype == SOL_F64)
            ((double *)a->data)[i] = real;
        else
            ((char *)a->data)[(size_t)i * dtype_bytes(a->dtype)] = (char)(bits >> 63); /* little-endian */
    }
}

double array_at(const struct array *a, int64_t i)
{
    switch (a->dtype) {
    case SOL_BOOL:
    case SOL_U8: return ((const uint8_t *)a->data)[i];
    case SOL_I8: return ((const int8_t *)a->data)[i];
    case SOL_U16: return ((const uint16_t *)a->data)[i];
    case SOL_I16: return ((const int16_t *)a->data)[i];
    case SOL_U32: return ((const uint32_t *)a->data)[i];
    case SOL_I32: return ((const int32_t *)a->data)[i];
    case SOL_U64: return (double)((const uint64_t *)a->data)[i];
    case SOL_I64: return (double)((const int64_t *)a->data)[i];
    case SOL_F32: return ((const float *)a->data)[i];
    case SOL_F64: return ((const double *)a->data)[i];
    default: return 0;
    }
}
