/* Opens the system's OpenCL library, which finds the implementations that are installed. */
#include "device/cl.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Implementations contain LLVM. Where another library of the process (TensorFlow) exports an LLVM of its own, theirs
 * would be bound to it and crash, so each is opened ahead of the loader such that it sees its own symbols first. Not
 * done otherwise: that is how everybody else uses them. */
static void keep_apart(void)
{
    if (!dlsym(RTLD_DEFAULT, "_ZN4llvm2cl6Option11addArgumentEv")) return;
    const char *folder = getenv("OCL_ICD_VENDORS");
    char pattern[4096], name[4096];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/*.icd", folder && *folder ? folder : "/etc/OpenCL/vendors");
    if (glob(pattern, 0, NULL, &found)) return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        FILE *f = fopen(found.gl_pathv[i], "r");
        if (!f) continue;
        if (fgets(name, sizeof name, f)) {
            name[strcspn(name, "\r\n")] = 0;
            dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND); /* if it fails, the loader leaves it out, too */
        }
        fclose(f);
    }
    globfree(&found);
}

const char *cl_open(struct cl *out)
{
    memset(out, 0, sizeof *out);
    keep_apart();
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
                  {CL_INVALID_BUILD_OPTIONS, "its compiler rejects an option"},
                  {CL_INVALID_BUFFER_SIZE, "a buffer is too large"},
                  {-1001, "no implementation is installed"}}; /* CL_PLATFORM_NOT_FOUND_KHR */
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].number == error) return errors[i].what;
    return "unexpected error";
}
