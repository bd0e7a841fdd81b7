/* OpenBLAS as a plug-in. The library is linked statically (libopenblas.a), so setting its number of threads, which is
 * global, affects nobody else in the process. */
#include <cblas.h>
#include <pthread.h>

#include "sol/plugin.h"

__attribute__((visibility("default"))) const struct sol_plugin sol_plugin = {
    .size = sizeof sol_plugin, .version = SOL_PLUGIN_VERSION, .name = "openblas", .library = LIBRARY};

static void begin(void)
{
    openblas_set_num_threads(1);
}

__attribute__((visibility("default"))) void sol_plugin_gemm(int64_t m, int64_t n, int64_t k, const float *a,
                                                            int64_t lda, int a_across, const float *b, int64_t ldb,
                                                            int b_across, float *c, int64_t ldc)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT; /* no constructor, because it might run before OpenBLAS's own */
    pthread_once(&once, begin);
    cblas_sgemm(CblasRowMajor, a_across ? CblasTrans : CblasNoTrans, b_across ? CblasTrans : CblasNoTrans, (blasint)m,
                (blasint)n, (blasint)k, 1, a, (blasint)lda, b, (blasint)ldb, 0, c, (blasint)ldc);
}
