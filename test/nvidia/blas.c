/* The functions of cuBLAS that SOL uses: products of matrices that lie by columns, as commands of a stream. */
#include <stdlib.h>

#include "nvidia.h"

#define API __attribute__((visibility("default")))

struct blas {
    struct stream *stream;
    bool has_workspace; /* or was told that there is none */
    int math;
};
struct product {
    bool f64;
    int transpose_a, transpose_b, m, n, k, lda, ldb, ldc, batch;
    uint64_t a, b, c;
    long long step_a, step_b, step_c;
};
enum { NOT_INITIALIZED = 1, INVALID = 7 };

API int cublasGetProperty(int what, int *out)
{
    *out = what == 0 ? 0 : 1;
    return 0;
}

API int cublasCreate_v2(struct blas **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? 0 : NOT_INITIALIZED;
}

API int cublasDestroy_v2(struct blas *b)
{
    free(b);
    return 0;
}

API int cublasSetStream_v2(struct blas *b, struct stream *s)
{
    b->stream = s;
    b->has_workspace = false; /* as cuBLAS does */
    return 0;
}

API int cublasSetWorkspace_v2(struct blas *b, uint64_t at, size_t bytes)
{
    if (bytes && !memory_has(at, bytes)) return INVALID;
    b->has_workspace = true;
    return 0;
}

API int cublasSetMathMode(struct blas *b, int mode)
{
    b->math = mode;
    return 0;
}

static double element(const struct product *p, uint64_t at, long long i)
{
    const char *x = (const char *)(uintptr_t)at + memory_span();
    return p->f64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

static void multiply(const void *facts)
{
    const struct product *p = facts;
    for (int batch = 0; batch < p->batch; batch++)
        for (int j = 0; j < p->n; j++)
            for (int i = 0; i < p->m; i++) {
                const long long c = batch * p->step_c + (long long)j * p->ldc + i;
                char *to = (char *)(uintptr_t)p->c + memory_span();
                double sum = 0;
                for (int k = 0; k < p->k; k++) {
                    const long long a = p->transpose_a ? (long long)i * p->lda + k : (long long)k * p->lda + i;
                    const long long b = p->transpose_b ? (long long)k * p->ldb + j : (long long)j * p->ldb + k;
                    sum += element(p, p->a, batch * p->step_a + a) * element(p, p->b, batch * p->step_b + b);
                }
                if (p->f64)
                    ((double *)to)[c] = sum;
                else
                    ((float *)to)[c] = (float)sum;
            }
}

/* As much memory as a batch of matrices has. */
static bool there(const struct product *p, uint64_t at, int rows, int columns, int stride, long long step)
{
    const long long last = (p->batch - 1) * step + (long long)(columns - 1) * stride + rows;
    return stride >= rows && memory_has(at, (size_t)last * (p->f64 ? 8 : 4));
}

static int enqueue(const struct blas *b, const struct product *p)
{
    const bool ta = p->transpose_a, tb = p->transpose_b;
    if (!b->has_workspace || p->m < 0 || p->n < 0 || p->k < 0 || p->batch < 0) return INVALID;
    if (!there(p, p->a, ta ? p->k : p->m, ta ? p->m : p->k, p->lda, p->step_a)) return INVALID;
    if (!there(p, p->b, tb ? p->n : p->k, tb ? p->k : p->n, p->ldb, p->step_b)) return INVALID;
    if (!there(p, p->c, p->m, p->n, p->ldc, p->step_c)) return INVALID;
    return stream_call(b->stream, multiply, p, sizeof *p);
}

#define PRODUCT(name, real, is_f64)                                                                              \
    API int name(const struct blas *h, int transpose_a, int transpose_b, int m, int n, int k, const real *alpha, \
                 uint64_t a, int lda, long long step_a, uint64_t b, int ldb, long long step_b, const real *beta, \
                 uint64_t c, int ldc, long long step_c, int batch)                                               \
    {                                                                                                            \
        const struct product p = {is_f64, transpose_a, transpose_b, m, n, k,      lda,    ldb,                   \
                                  ldc,    batch,       a,           b, c, step_a, step_b, step_c};               \
        return *alpha != 1 || *beta != 0 ? INVALID : enqueue(h, &p);                                             \
    }
PRODUCT(cublasSgemmStridedBatched, float, false)
PRODUCT(cublasDgemmStridedBatched, double, true)
