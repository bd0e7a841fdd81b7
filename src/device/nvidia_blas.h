/* cuBLAS, as the device nvidia uses it; part of device/cuda.h. */
#ifndef SOL_NVIDIA_BLAS_H
#define SOL_NVIDIA_BLAS_H

#if defined SOL_DEPLOYED /* a deployed library needs no other */
#define blas_version(host, out, room) ((void)(host))
#define blas_find(cuda, kernel, module, name) ((void)(kernel), CUDA_SUCCESS)
#define blas_make(cuda, host) ((void)(host), (struct cuda_blas *)NULL)
#define blas_free(blas) ((void)(blas))
#define blas_enqueue(blas, stream, launch) ((void)(blas), CUDA_INVALID_VALUE)
#else
void blas_version(const struct sol_host *host, char *out, size_t room); /* "cuBLAS 13.1"; "": there is none */
/* Is a function a call of it? Then sets kernel->gemm. */
int blas_find(const struct cuda *cuda, struct cuda_kernel *kernel, cu_module module, const char *name);
struct cuda_blas *blas_make(const struct cuda *cuda, const struct sol_host *host); /* opens it at the first call */
void blas_free(struct cuda_blas *blas);                                            /* NULL: nothing happens */
int blas_enqueue(struct cuda_blas *blas, cu_stream stream, const struct sol_launch *l);
#endif

#endif
