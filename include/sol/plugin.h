/* What a plug-in is: another library's matrix product, as a shared object sol-NAME.so that SOL finds in the folder of
 * the key `plugins`. It competes with SOL's own kernels where a network is tuned, and is never a part of what is
 * deployed. C standard headers only.
 *
 * The shared object has two symbols: `sol_plugin`, a constant, and `sol_plugin_gemm`. */
#ifndef SOL_PLUGIN_H
#define SOL_PLUGIN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SOL_PLUGIN_VERSION 1

struct sol_plugin {
    uint32_t size, version; /* sizeof(struct sol_plugin), SOL_PLUGIN_VERSION */
    const char *name;       /* the NAME of its file: "openblas" */
    const char *library;    /* what it stands for: "OpenBLAS 0.3.21" */
};
extern const struct sol_plugin sol_plugin;

/* c[i * ldc + j] = sum over l of A[i][l] * B[l][j], for i < m, j < n, l < k; what was in c does not count. A[i][l] is
 * a[i * lda + l], or a[l * lda + i] if a_across is not 0; B[l][j] is b[l * ldb + j], or b[j * ldb + l]. On the calling
 * thread alone, and on many threads at the same time; the same numbers give the same bits. */
void sol_plugin_gemm(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, int a_across, const float *b,
                     int64_t ldb, int b_across, float *c, int64_t ldc);

#ifdef __cplusplus
}
#endif
#endif
