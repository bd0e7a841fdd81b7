/* OpenCL 1.2 as far as SOL uses it: types, numbers and functions of its specification (Khronos), opened at run time, so
 * that building SOL needs no headers and running it no library. */
#ifndef SOL_CL_H
#define SOL_CL_H

#include <stddef.h>
#include <stdint.h>

typedef struct cl_platform *cl_platform_id;
typedef struct cl_device *cl_device_id;
typedef struct cl_context_ *cl_context;
typedef struct cl_queue *cl_command_queue;
typedef struct cl_memory *cl_mem;
typedef struct cl_program_ *cl_program;
typedef struct cl_kernel_ *cl_kernel;
typedef struct cl_event_ *cl_event;

enum {
    CL_SUCCESS = 0,
    CL_DEVICE_NOT_FOUND = -1,
    CL_MEM_OBJECT_ALLOCATION_FAILURE = -4,
    CL_OUT_OF_RESOURCES = -5,
    CL_OUT_OF_HOST_MEMORY = -6,
    CL_BUILD_PROGRAM_FAILURE = -11,
    CL_INVALID_BUILD_OPTIONS = -43,
    CL_INVALID_BUFFER_SIZE = -61
};
enum {
    CL_PLATFORM_VERSION = 0x0901,
    CL_PLATFORM_NAME = 0x0902,
    CL_DEVICE_TYPE_ALL = -1,
    CL_DEVICE_TYPE_CPU = 2,
    CL_DEVICE_TYPE = 0x1000,
    CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002,
    CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
    CL_DEVICE_MAX_CLOCK_FREQUENCY = 0x100C,
    CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
    CL_DEVICE_GLOBAL_MEM_CACHE_SIZE = 0x101E,
    CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F,
    CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
    CL_DEVICE_NAME = 0x102B,
    CL_DRIVER_VERSION = 0x102D,
    CL_DEVICE_DOUBLE_FP_CONFIG = 0x1032,
    CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT = 0x103A,
    CL_MEM_READ_WRITE = 1,
    CL_QUEUE_PROFILING_ENABLE = 2,
    CL_PROGRAM_BINARY_SIZES = 0x1165,
    CL_PROGRAM_BINARIES = 0x1166,
    CL_PROGRAM_BUILD_LOG = 0x1183,
    CL_KERNEL_COMPILE_WORK_GROUP_SIZE = 0x11B1,
    CL_EVENT_COMMAND_EXECUTION_STATUS = 0x11D3,
    CL_COMPLETE = 0,
    CL_PROFILING_COMMAND_START = 0x1282,
    CL_PROFILING_COMMAND_END = 0x1283
};

/* X(result, name, parameters) */
#define CL_FUNCTIONS(X)                                                                                               \
    X(int32_t, GetPlatformIDs, (uint32_t room, cl_platform_id * out, uint32_t * out_n))                               \
    X(int32_t, GetPlatformInfo, (cl_platform_id, uint32_t what, size_t room, void *out, size_t *out_n))               \
    X(int32_t, GetDeviceIDs, (cl_platform_id, uint64_t type, uint32_t room, cl_device_id * out, uint32_t * out_n))    \
    X(int32_t, GetDeviceInfo, (cl_device_id, uint32_t what, size_t room, void *out, size_t *out_n))                   \
    X(cl_context, CreateContext,                                                                                      \
      (const intptr_t *, uint32_t n, const cl_device_id *, void (*)(const char *, const void *, size_t, void *),      \
       void *user, int32_t *out_error))                                                                               \
    X(int32_t, ReleaseContext, (cl_context))                                                                          \
    X(cl_command_queue, CreateCommandQueue, (cl_context, cl_device_id, uint64_t properties, int32_t * out_error))     \
    X(int32_t, ReleaseCommandQueue, (cl_command_queue))                                                               \
    X(cl_mem, CreateBuffer, (cl_context, uint64_t flags, size_t bytes, void *host, int32_t *out_error))               \
    X(int32_t, ReleaseMemObject, (cl_mem))                                                                            \
    X(cl_program, CreateProgramWithSource,                                                                            \
      (cl_context, uint32_t n, const char **text, const size_t *length, int32_t *out_error))                          \
    X(cl_program, CreateProgramWithBinary,                                                                            \
      (cl_context, uint32_t n, const cl_device_id *, const size_t *length, const unsigned char **binary,              \
       int32_t *out_status, int32_t *out_error))                                                                      \
    X(int32_t, BuildProgram,                                                                                          \
      (cl_program, uint32_t n, const cl_device_id *, const char *options, void (*)(cl_program, void *), void *user))  \
    X(int32_t, GetProgramBuildInfo, (cl_program, cl_device_id, uint32_t what, size_t room, void *out, size_t *out_n)) \
    X(int32_t, GetProgramInfo, (cl_program, uint32_t what, size_t room, void *out, size_t *out_n))                    \
    X(int32_t, ReleaseProgram, (cl_program))                                                                          \
    X(cl_kernel, CreateKernel, (cl_program, const char *name, int32_t *out_error))                                    \
    X(int32_t, GetKernelWorkGroupInfo,                                                                                \
      (cl_kernel, cl_device_id, uint32_t what, size_t room, void *out, size_t *out_n))                                \
    X(int32_t, SetKernelArg, (cl_kernel, uint32_t i, size_t bytes, const void *value))                                \
    X(int32_t, ReleaseKernel, (cl_kernel))                                                                            \
    X(int32_t, EnqueueNDRangeKernel,                                                                                  \
      (cl_command_queue, cl_kernel, uint32_t dims, const size_t *from, const size_t *n, const size_t *group,          \
       uint32_t nwait, const cl_event *wait, cl_event *out))                                                          \
    X(int32_t, EnqueueReadBuffer,                                                                                     \
      (cl_command_queue, cl_mem, uint32_t blocking, size_t at, size_t bytes, void *to, uint32_t nwait,                \
       const cl_event *wait, cl_event *out))                                                                          \
    X(int32_t, EnqueueWriteBuffer,                                                                                    \
      (cl_command_queue, cl_mem, uint32_t blocking, size_t at, size_t bytes, const void *from, uint32_t nwait,        \
       const cl_event *wait, cl_event *out))                                                                          \
    X(int32_t, EnqueueCopyBuffer,                                                                                     \
      (cl_command_queue, cl_mem from, cl_mem to, size_t from_at, size_t to_at, size_t bytes, uint32_t nwait,          \
       const cl_event *wait, cl_event *out))                                                                          \
    X(int32_t, EnqueueFillBuffer,                                                                                     \
      (cl_command_queue, cl_mem, const void *pattern, size_t pattern_bytes, size_t at, size_t bytes, uint32_t nwait,  \
       const cl_event *wait, cl_event *out))                                                                          \
    X(int32_t, EnqueueMarkerWithWaitList, (cl_command_queue, uint32_t nwait, const cl_event *wait, cl_event *out))    \
    X(int32_t, WaitForEvents, (uint32_t n, const cl_event *))                                                         \
    X(int32_t, GetEventInfo, (cl_event, uint32_t what, size_t room, void *out, size_t *out_n))                        \
    X(int32_t, GetEventProfilingInfo, (cl_event, uint32_t what, size_t room, void *out, size_t *out_n))               \
    X(int32_t, ReleaseEvent, (cl_event))                                                                              \
    X(int32_t, Flush, (cl_command_queue))                                                                             \
    X(int32_t, Finish, (cl_command_queue))

struct cl {
    void *library;
#define X(result, name, parameters) result(*name) parameters;
    CL_FUNCTIONS(X)
#undef X
};
/* Opens the system's OpenCL library. NULL: done; otherwise why not, a text that lives until the next call of dlerror.
 */
const char *cl_open(struct cl *out);
const char *cl_error(int32_t error); /* what an error number means */

#endif
