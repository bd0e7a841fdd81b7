/* Opens the system's OpenCL library, which finds the implementations that are installed. */
#include "device/cl.h"

#include <dlfcn.h>
#include <string.h>

const char *cl_open(struct cl *out)
{
    memset(out, 0, sizeof *out);
    out->library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!out->library) return dlerror();
    struct {
        const char *name;
        void *at;
    } functions[] = {
#define X(result, name, parameters) {"cl" #name, &out->name},
        CL_FUNCTIONS(X)
#undef X
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *f = dlsym(out->library, functions[i].name);
        if (!f) return dlerror();
        memcpy(functions[i].at, &f, sizeof f);
    }
    return NULL;
}

const char *cl_error(int32_t error)
{
    static const struct {
        int32_t number;
        const char *what;
    } errors[] = {{CL_DEVICE_NOT_FOUND, "no device found"},
                  {CL_MEM_OBJECT_ALLOCATION_FAILURE, "out of device memory"},
                  {CL_OUT_OF_RESOURCES, "out of resources"},
                  {CL_OUT_OF_HOST_MEMORY, "out of memory of the host"},
                  {CL_BUILD_PROGRAM_FAILURE, "the program does not compile"},
                  {CL_INVALID_BUFFER_SIZE, "a buffer is too large"},
                  {-1001, "no implementation is installed"}}; /* CL_PLATFORM_NOT_FOUND_KHR */
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].number == error) return errors[i].what;
    return "unexpected error";
}
