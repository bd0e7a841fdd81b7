/* oneDNN as a plug-in: its matrix product. Where it runs on OpenMP, the calling thread is told to work alone, and after
 * it what it was told before. */
#include <oneapi/dnnl/dnnl.h>

#include "sol/plugin.h"

#if DNNL_CPU_RUNTIME == DNNL_RUNTIME_OMP
int omp_get_max_threads(void); /* of the OpenMP that oneDNN itself is linked to, whichever compiler makes this */
void omp_set_num_threads(int n);
#else
static int omp_get_max_threads(void)
{
    return 1;
}
static void omp_set_num_threads(int n)
{
    (void)n;
}
#endif

__attribute__((visibility("default"))) const struct sol_plugin sol_plugin = {
    .size = sizeof sol_plugin, .version = SOL_PLUGIN_VERSION, .name = "onednn", .library = LIBRARY};

__attribute__((visibility("default"))) void sol_plugin_gemm(int64_t m, int64_t n, int64_t k, const float *a,
                                                            int64_t lda, int a_across, const float *b, int64_t ldb,
                                                            int b_across, float *c, int64_t ldc)
{
    const int threads = omp_get_max_threads();
    if (threads != 1) omp_set_num_threads(1);
    dnnl_sgemm(a_across ? 'T' : 'N', b_across ? 'T' : 'N', m, n, k, 1, a, lda, b, ldb, 0, c, ldc);
    if (threads != 1) omp_set_num_threads(threads);
}
