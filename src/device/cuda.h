/* NVIDIA's driver and its compiler as far as SOL uses them: types, numbers and functions of their documentation, opened
 * at run time, so that building SOL needs no headers and running it no library. */
#ifndef SOL_CUDA_H
#define SOL_CUDA_H

#include <stddef.h>
#include <stdint.h>

#include "device/library.h"
#include "sol/device.h"

typedef struct cu_context *cu_context;
typedef struct cu_module *cu_module;
typedef struct cu_function *cu_function;
typedef struct cu_stream *cu_stream;
typedef struct cu_event *cu_event;
typedef struct cu_graph *cu_graph;
typedef struct cu_exec *cu_exec;
typedef uint64_t cu_memory;

enum { CUDA_SUCCESS = 0, CUDA_INVALID_VALUE = 1, CUDA_OUT_OF_MEMORY = 2, CUDA_NOT_FOUND = 500, CUDA_NOT_READY = 600 };
enum { CUDA_CAPTURE_IMPLICIT = 906 }; /* of the default stream, while one that waits for it is captured */
enum {
    CUDA_GROUP_ITEMS = 1,
    CUDA_GROUP_BYTES = 8,
    CUDA_LANES = 10,
    CUDA_CLOCK = 13, /* kHz */
    CUDA_CORES = 16,
    CUDA_MEMORY_CLOCK = 36, /* kHz, of two transfers each */
    CUDA_MEMORY_BITS = 37,
    CUDA_CACHE = 38,
    CUDA_CORE_ITEMS = 39,
    CUDA_MAJOR = 75,
    CUDA_MINOR = 76,
    CUDA_CORE_BYTES = 81,
    CUDA_GROUP_BYTES_MOST = 97,         /* if a kernel asks for them: */
    CUDA_FUNCTION_GROUP_BYTES_MOST = 8, /* attribute of a function */
    CUDA_STREAM_NON_BLOCKING = 1,
    CUDA_CAPTURE_RELAXED = 2
};

/* X(name, symbol, parameters): functions of libcuda.so.1, which return an error or CUDA_SUCCESS. */
#define CUDA_FUNCTIONS(X)                                                                                            \
    X(Init, "cuInit", (unsigned))                                                                                    \
    X(ErrorString, "cuGetErrorString", (int, const char **))                                                         \
    X(DeviceCount, "cuDeviceGetCount", (int *))                                                                      \
    X(DeviceGet, "cuDeviceGet", (int *out_device, int index))                                                        \
    X(DeviceName, "cuDeviceGetName", (char *, int room, int device))                                                 \
    X(DeviceMemory, "cuDeviceTotalMem_v2", (size_t *, int device))                                                   \
    X(DeviceAttribute, "cuDeviceGetAttribute", (int *, int what, int device))                                        \
    X(Retain, "cuDevicePrimaryCtxRetain", (cu_context *, int device))                                                \
    X(Release, "cuDevicePrimaryCtxRelease_v2", (int device))                                                         \
    X(Push, "cuCtxPushCurrent_v2", (cu_context))                                                                     \
    X(Pop, "cuCtxPopCurrent_v2", (cu_context *))                                                                     \
    X(MemoryFree, "cuMemGetInfo_v2", (size_t * free, size_t * all))                                                  \
    X(Alloc, "cuMemAlloc_v2", (cu_memory *, size_t))                                                                 \
    X(Free, "cuMemFree_v2", (cu_memory))                                                                             \
    X(HostAlloc, "cuMemAllocHost_v2", (void **, size_t))                                                             \
    X(HostFree, "cuMemFreeHost", (void *))                                                                           \
    X(Load, "cuModuleLoadData", (cu_module *, const void *))                                                         \
    X(Unload, "cuModuleUnload", (cu_module))                                                                         \
    X(Find, "cuModuleGetFunction", (cu_function *, cu_module, const char *))                                         \
    X(Global, "cuModuleGetGlobal_v2", (cu_memory *, size_t * bytes, cu_module, const char *))                        \
    X(ReadNow, "cuMemcpyDtoH_v2", (void *, cu_memory, size_t))                                                       \
    X(SetFunction, "cuFuncSetAttribute", (cu_function, int what, int value))                                         \
    X(StreamCreate, "cuStreamCreate", (cu_stream *, unsigned flags))                                                 \
    X(StreamDestroy, "cuStreamDestroy_v2", (cu_stream))                                                              \
    X(StreamWait, "cuStreamSynchronize", (cu_stream))                                                                \
    X(StreamAfter, "cuStreamWaitEvent", (cu_stream, cu_event, unsigned flags))                                       \
    X(IsCapturing, "cuStreamIsCapturing", (cu_stream, int *out_status))                                              \
    X(EventCreate, "cuEventCreate", (cu_event *, unsigned flags))                                                    \
    X(EventDestroy, "cuEventDestroy_v2", (cu_event))                                                                 \
    X(EventRecord, "cuEventRecord", (cu_event, cu_stream))                                                           \
    X(EventQuery, "cuEventQuery", (cu_event))                                                                        \
    X(EventWait, "cuEventSynchronize", (cu_event))                                                                   \
    X(EventElapsed, "cuEventElapsedTime", (float *ms, cu_event from, cu_event to))                                   \
    X(Write, "cuMemcpyHtoDAsync_v2", (cu_memory, const void *, size_t, cu_stream))                                   \
    X(Read, "cuMemcpyDtoHAsync_v2", (void *, cu_memory, size_t, cu_stream))                                          \
    X(Copy, "cuMemcpyDtoDAsync_v2", (cu_memory, cu_memory, size_t, cu_stream))                                       \
    X(Fill, "cuMemsetD8Async", (cu_memory, unsigned char, size_t, cu_stream))                                        \
    X(CaptureBegin, "cuStreamBeginCapture_v2", (cu_stream, int mode))                                                \
    X(CaptureEnd, "cuStreamEndCapture", (cu_stream, cu_graph *))                                                     \
    X(GraphInstantiate, "cuGraphInstantiateWithFlags", (cu_exec *, cu_graph, unsigned long long flags))              \
    X(GraphDestroy, "cuGraphDestroy", (cu_graph))                                                                    \
    X(GraphLaunch, "cuGraphLaunch", (cu_exec, cu_stream))                                                            \
    X(ExecDestroy, "cuGraphExecDestroy", (cu_exec))                                                                  \
    X(Launch, "cuLaunchKernel",                                                                                      \
      (cu_function, unsigned gx, unsigned gy, unsigned gz, unsigned x, unsigned y, unsigned z, unsigned group_bytes, \
       cu_stream, void **parameters, void **))

struct cuda {
    CUDA_FUNCTIONS(LIBRARY_MEMBER)
};

/* What `find` returns. */
struct cuda_kernel {
    struct cuda_kernel *next; /* of the same code */
    cu_function function;
    int64_t *call; /* of a library in its place; NULL: none */
};
#include "device/nvidia_calls.h"

#if defined SOL_DEPLOYED /* a deployed library has its code */
#define nvidia_compiler library_compiler
#define nvidia_compile NULL
#define tool_blob_free NULL
#else
#include "device/tool.h"
/* nvidia_compile.c. The compiler at hand, as text: "NVRTC 13.5"; false: why there is none. */
bool nvidia_compiler(const struct sol_host *host, char *out, size_t room);
sol_status nvidia_compile(const struct sol_device_type *type, const struct sol_host *host,
                          const struct sol_code_text *text, struct sol_blob *out_blob, struct sol_failure *out_why);
#endif

#endif
