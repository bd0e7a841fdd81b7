/* Matrix products by cuBLAS, where it is installed. A handle has its own workspace, so that results are the same in
 * every run. Products of float32 are computed as such; with the option nvidia.tf32=1, cuBLAS may round factors to TF32
 * (10 bits behind the binary point).
 */
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda.h"
#include "device/inside.h"
#include "device/library.h"

typedef struct blas_handle *blas_handle;
enum { DEFAULT_MATH = 0, TF32_MATH = 3, PLAIN = 0, TRANSPOSED = 1 };

#define PRODUCT(real)                                                                                             \
    (blas_handle, int transpose_a, int transpose_b, int m, int n, int k, const real *alpha, cu_memory a, int lda, \
     long long step_a, cu_memory b, int ldb, long long step_b, const real *beta, cu_memory c, int ldc,            \
     long long step_c, int batch)
#define BLAS_FUNCTIONS(X)                                                      \
    X(Property, "cublasGetProperty", (int what, int *))                        \
    X(Create, "cublasCreate_v2", (blas_handle *))                              \
    X(Destroy, "cublasDestroy_v2", (blas_handle))                              \
    X(SetStream, "cublasSetStream_v2", (blas_handle, cu_stream))               \
    X(SetWorkspace, "cublasSetWorkspace_v2", (blas_handle, cu_memory, size_t)) \
    X(SetMath, "cublasSetMathMode", (blas_handle, int))                        \
    X(F32, "cublasSgemmStridedBatched", PRODUCT(float))                        \
    X(F64, "cublasDgemmStridedBatched", PRODUCT(double))

struct functions {
    BLAS_FUNCTIONS(LIBRARY_MEMBER)
};
struct blas {
    const struct cuda *cuda;
    struct functions f;
    blas_handle handle;
    cu_memory workspace; /* 0: none */
    size_t workspace_bytes;
};

/* False: it is not there. */
static bool open_library(const struct sol_host *host, struct functions *out)
{
    static const char *const files[] = {"nvidia/cu13/lib/libcublas.so.13", "nvidia/cublas/lib/libcublas.so.12"};
    const struct library_symbol symbols[] = {BLAS_FUNCTIONS(LIBRARY_SYMBOL){NULL, NULL}};
    return !library_open(host, "nvidia.cublas", files, COUNT_OF(files), symbols);
}

static void blas_version(const struct sol_host *host, char *out, size_t room)
{
    struct functions f;
    int major = 0, minor = 0;
    if (open_library(host, &f) && !f.Property(0, &major) && !f.Property(1, &minor))
        snprintf(out, room, "cuBLAS %d.%d", major, minor);
}

/* As much as NVIDIA recommends, or what there is: cuBLAS needs none. */
static void make_workspace(struct blas *b)
{
    static const size_t sizes[] = {32 << 20, 4 << 20};
    for (int i = 0; i < COUNT_OF(sizes) && !b->workspace; i++) {
        b->workspace_bytes = sizes[i];
        if (b->cuda->Alloc(&b->workspace, sizes[i])) b->workspace = b->workspace_bytes = 0;
    }
}

static void blas_close(void *opened)
{
    struct blas *b = opened;
    if (b->handle) b->f.Destroy(b->handle);
    if (b->workspace) b->cuda->Free(b->workspace);
    free(b);
}

static int make_handle(struct blas *b, const struct sol_host *host)
{
    if (!open_library(host, &b->f)) return CUDA_NOT_FOUND;
    make_workspace(b);
    if (b->f.Create(&b->handle)) return b->handle = NULL, CUDA_OUT_OF_MEMORY;
    const int math = option_is(host, "nvidia.tf32", "1") ? TF32_MATH : DEFAULT_MATH;
    return b->f.SetMath(b->handle, math) ? CUDA_INVALID_VALUE : CUDA_SUCCESS;
}

static int blas_open(const struct cuda *cuda, const struct sol_host *host, void **out)
{
    struct blas *b = calloc(1, sizeof *b);
    if (!b) return CUDA_OUT_OF_MEMORY;
    b->cuda = cuda;
    const int error = make_handle(b, host);
    if (error) blas_close(b);
    *out = error ? NULL : b;
    return error;
}

/* cuBLAS counts by columns: what is a matrix to us is a transposed one to it, so it multiplies b by a. */
static int multiply(const struct blas *b, const struct sol_gemm *g, const int64_t offset[3], const cu_memory at[3])
{
    const int bytes = g->dtype == SOL_F64 ? 8 : 4, m = (int)g->m, n = (int)g->n, k = (int)g->k;
    const int of_a = g->a.across ? TRANSPOSED : PLAIN, of_b = g->b.across ? TRANSPOSED : PLAIN;
    const int lda = (int)g->a.stride, ldb = (int)g->b.stride, ldc = (int)g->c.stride, batch = (int)g->batch;
    const cu_memory x = at[0] + (cu_memory)(offset[0] * bytes), y = at[1] + (cu_memory)(offset[1] * bytes),
                    z = at[2] + (cu_memory)(offset[2] * bytes);
    static const double one = 1, none = 0;
    static const float one_f32 = 1, none_f32 = 0;
    const int error = g->dtype == SOL_F64 ? b->f.F64(b->handle, of_b, of_a, n, m, k, &one, y, ldb, g->b.step, x, lda,
                                                     g->a.step, &none, z, ldc, g->c.step, batch)
                                          : b->f.F32(b->handle, of_b, of_a, n, m, k, &one_f32, y, ldb, g->b.step, x,
                                                     lda, g->a.step, &none_f32, z, ldc, g->c.step, batch);
    return error ? CUDA_INVALID_VALUE : CUDA_SUCCESS;
}

static int blas_enqueue(void *opened, cu_stream stream, const struct sol_launch *l, const int64_t *call)
{
    const struct blas *b = opened;
    const struct sol_gemm *g = (const void *)call;
    const cu_memory at[] = {l->arg[g->a.operand].pointer, l->arg[g->b.operand].pointer, l->arg[g->c.operand].pointer};
    int error = CUDA_SUCCESS;
    /* a stream that is set makes the handle forget its workspace */
    if (b->f.SetStream(b->handle, stream) || b->f.SetWorkspace(b->handle, b->workspace, b->workspace_bytes))
        return CUDA_INVALID_VALUE;
    for (int64_t i = 0; i < g->ncall && !error; i++) error = multiply(b, g, g->offset[i], at);
    return error;
}

const struct cuda_caller blas_caller = {SOL_CALL_GEMM, blas_version, blas_open, blas_close, blas_enqueue};
