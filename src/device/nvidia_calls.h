/* Calls of NVIDIA's libraries in place of kernels (SOL_CALL_ in sol/device.h); part of device/cuda.h. */
#ifndef SOL_NVIDIA_CALLS_H
#define SOL_NVIDIA_CALLS_H

enum { CALL_NONE = -1 }; /* an error: it is no call, or the library does not take it, and its kernel is launched */
#if defined SOL_DEPLOYED /* a deployed library needs no other */
#define calls_versions(host, info) ((void)(host))
#define calls_find(cuda, kernel, module, name) ((void)(kernel), CUDA_SUCCESS)
#define calls_make(cuda, host) ((void)(host), (struct cuda_calls *)NULL)
#define calls_free(calls) ((void)(calls))
#define calls_enqueue(calls, stream, launch) ((void)(calls), CALL_NONE)
#define calls_error(error) NULL
#else
/* nvidia_calls.c */
void calls_versions(const struct sol_host *host, struct sol_device_info *out); /* "cuBLAS 13.1"; "": there is none */
/* Is a function a call? Then sets kernel->call. */
int calls_find(const struct cuda *cuda, struct cuda_kernel *kernel, cu_module module, const char *name);
/* Of a stream. A library is opened at its first call. NULL: out of memory, and calls fail. */
struct cuda_calls *calls_make(const struct cuda *cuda, const struct sol_host *host);
void calls_free(struct cuda_calls *calls); /* NULL: nothing happens */
int calls_enqueue(struct cuda_calls *calls, cu_stream stream, const struct sol_launch *l);
const char *calls_error(int error); /* what an error of a library is; NULL: it is one of the driver */

/* A library that a stream has opened: a handle of its own, so that streams do not disturb each other. Its functions are
 * called in the context of the device, and return an error of the driver, or one of the library, below zero. Statuses
 * begin at 1000. */
struct cuda_caller {
    int64_t kind;                                                                  /* SOL_CALL_ */
    void (*version)(const struct sol_host *host, char *out, size_t room);          /* stays as it is: there is none */
    int (*open)(const struct cuda *cuda, const struct sol_host *host, void **out); /* not during a capture */
    void (*close)(void *opened);
    int (*enqueue)(void *opened, cu_stream stream, const struct sol_launch *l, const int64_t *call);
};
extern const struct cuda_caller blas_caller; /* nvidia_blas.c */
extern const struct cuda_caller dnn_caller;  /* nvidia_dnn.c */
#endif

#endif
