/* NEC's VEDA as far as SOL uses it: types, numbers and functions of its documentation, opened at run time, so that
 * building SOL needs no headers and running it no library. */
#ifndef SOL_VEDA_H
#define SOL_VEDA_H

#include <stddef.h>
#include <stdint.h>

#include "device/library.h"
#include "sol/device.h"

typedef struct veda_context *veda_context;
typedef struct veda_module *veda_module;
typedef struct veda_args *veda_args;
typedef uint64_t veda_ptr; /* virtual: it exists before the memory does, and may have an offset */
typedef struct {
    uint64_t address;
    const char *name;
} veda_function;

enum { VEDA_SUCCESS = 0, VEDA_ALREADY_INITIALIZED = 1, VEDA_OUT_OF_MEMORY = 24 };
enum { VEDA_CORES = 2 /* attribute of a device */ };

/* X(name, symbol, parameters): functions of libveda, which return an error or VEDA_SUCCESS. A stream is a number: 0 is
 * the queue of a program that runs on all cores. */
#define VEDA_FUNCTIONS(X)                                                                                       \
    X(Init, "vedaInit", (uint32_t flags))                                                                       \
    X(ErrorName, "vedaGetErrorName", (int, const char **))                                                      \
    X(Version, "vedaGetVersion", (const char **))                                                               \
    X(DeviceCount, "vedaDeviceGetCount", (int *))                                                               \
    X(DeviceName, "vedaDeviceGetName", (char *, int room, int device))                                          \
    X(DeviceMemory, "vedaDeviceTotalMem", (size_t *, int device))                                               \
    X(DeviceAttribute, "vedaDeviceGetAttribute", (int *, int what, int device))                                 \
    X(Retain, "vedaDevicePrimaryCtxRetain", (veda_context *, int device))                                       \
    X(Release, "vedaDevicePrimaryCtxRelease", (int device))                                                     \
    X(Push, "vedaCtxPushCurrent", (veda_context))                                                               \
    X(Pop, "vedaCtxPopCurrent", (veda_context *))                                                               \
    X(Load, "vedaModuleLoad", (veda_module *, const char *path))                                                \
    X(Unload, "vedaModuleUnload", (veda_module))                                                                \
    X(Find, "vedaModuleGetFunction", (veda_function *, veda_module, const char *))                              \
    X(Alloc, "vedaMemAllocAsync", (veda_ptr *, size_t, int stream))                                             \
    X(Place, "vedaMemPtrSize", (void **, size_t *, veda_ptr))                                                   \
    X(Free, "vedaMemFreeAsync", (veda_ptr, int stream))                                                         \
    X(Write, "vedaMemcpyHtoDAsync", (veda_ptr, const void *, size_t, int stream))                               \
    X(Read, "vedaMemcpyDtoHAsync", (void *, veda_ptr, size_t, int stream))                                      \
    X(Copy, "vedaMemcpyDtoDAsync", (veda_ptr, veda_ptr, size_t, int stream))                                    \
    X(Fill, "vedaMemsetD8Async", (veda_ptr, uint8_t, size_t, int stream))                                       \
    X(ArgsCreate, "vedaArgsCreate", (veda_args *))                                                              \
    X(ArgsPointer, "vedaArgsSetVPtr", (veda_args, int number, veda_ptr))                                        \
    X(Launch, "vedaLaunchKernelEx", (veda_function, int stream, veda_args, int destroys, uint64_t *out_result)) \
    X(Wait, "vedaStreamSynchronize", (int stream))

struct veda {
    VEDA_FUNCTIONS(LIBRARY_MEMBER)
};

#if defined SOL_DEPLOYED /* a deployed library has its code */
#define ve_compiler library_compiler
#define ve_compile NULL
#define tool_blob_free NULL
#else
#include "device/tool.h"
/* ve_compile.c. The compiler at hand, as text: "ncc 5.1"; false: why there is none. */
bool ve_compiler(const struct sol_host *host, char *out, size_t room);
sol_status ve_compile(const struct sol_device_type *type, const struct sol_host *host, const struct sol_code_text *text,
                      struct sol_blob *out_blob, struct sol_failure *out_why);
#endif

#endif
