/* Kernels in OpenCL C on every implementation that is installed, with the host's memory copied in and out. */
#ifndef OPENCL_RUN_H
#define OPENCL_RUN_H

#include "device/cl.h"
#include "kernel_check.h"

static struct {
    struct cl cl;
    cl_device_id device[8];
    char name[8][160]; /* of implementation and device */
    int n;
    cl_context context; /* of the device in use */
    cl_command_queue queue;
    bool single; /* as on a device without float64 */
    cl_device_id now;
    char built[40]; /* the source of `program`, as a hash */
    cl_program program;
} opencl;

/* Finds all devices. NULL: there are some; otherwise why there are none. */
static const char *opencl_find(void)
{
    cl_platform_id platform[8];
    uint32_t n = 0;
    const char *why = cl_open(&opencl.cl);
    if (why) return why;
    const int32_t error = opencl.cl.GetPlatformIDs(8, platform, &n);
    if (error) return cl_error(error);
    for (uint32_t i = 0; i < n && opencl.n < 8; i++) {
        uint32_t found = 0;
        if (opencl.cl.GetDeviceIDs(platform[i], (uint64_t)CL_DEVICE_TYPE_ALL, 1, &opencl.device[opencl.n], &found) ||
            !found)
            continue;
        opencl.cl.GetPlatformInfo(platform[i], CL_PLATFORM_NAME, 160, opencl.name[opencl.n++], NULL);
    }
    return opencl.n ? NULL : "no device";
}

static bool opencl_use(int i)
{
    int32_t error;
    opencl.now = opencl.device[i];
    opencl.context = opencl.cl.CreateContext(NULL, 1, &opencl.now, NULL, NULL, &error);
    opencl.queue = error ? NULL : opencl.cl.CreateCommandQueue(opencl.context, opencl.now, 0, &error);
    return !error;
}

static void opencl_close(void)
{
    if (opencl.program) opencl.cl.ReleaseProgram(opencl.program);
    opencl.program = NULL;
    opencl.built[0] = 0;
    opencl.cl.ReleaseCommandQueue(opencl.queue);
    opencl.cl.ReleaseContext(opencl.context);
}

/* Builds the program, unless it is the one that was built last. */
static bool opencl_build(struct arena *a, const char *source, const char **out_output)
{
    struct hash h;
    char hex[33];
    int32_t error = 0;
    hash_init(&h);
    hash_text(&h, source);
    hash_text(&h, opencl.single ? "single" : "");
    hash_hex(&h, hex);
    if (!strcmp(hex, opencl.built)) return true;
    if (opencl.program) opencl.cl.ReleaseProgram(opencl.program);
    const char *all[] = {source_header("sol/opencl.h"), source};
    const char *options =
        opencl.single ? "-cl-std=CL1.2 -w -DSOL_SINGLE -cl-single-precision-constant" : "-cl-std=CL1.2 -w";
    opencl.program = opencl.cl.CreateProgramWithSource(opencl.context, 2, all, NULL, &error);
    snprintf(opencl.built, sizeof opencl.built, "%s", hex);
    if (!error) error = opencl.cl.BuildProgram(opencl.program, 1, &opencl.now, options, NULL, NULL);
    if (!error) return true;
    char *log = arena_alloc(a, 8192);
    opencl.cl.GetProgramBuildInfo(opencl.program, opencl.now, CL_PROGRAM_BUILD_LOG, 8192, log, NULL);
    *out_output = arena_printf(a, "%s\n%s\n%s", cl_error(error), log, getenv("SOL_CHECK_SHOW") ? source : "");
    opencl.built[0] = 0;
    return false;
}

struct opencl_args {
    cl_kernel kernel;
    uint32_t n;
    int32_t error;
};
static void opencl_set(struct opencl_args *s, const void *value, size_t bytes)
{
    if (!s->error) s->error = opencl.cl.SetKernelArg(s->kernel, s->n++, bytes, value);
}

/* A pointer is two arguments. */
static void opencl_pointer(struct opencl_args *s, cl_mem memory, int64_t at)
{
    opencl_set(s, &memory, sizeof memory);
    opencl_set(s, &at, sizeof at);
}

/* A buffer of these bytes, and room that nobody may touch. */
static cl_mem opencl_buffer(const void *from, int64_t bytes)
{
    int32_t error;
    const size_t room = (size_t)bytes + 64;
    cl_mem m = opencl.cl.CreateBuffer(opencl.context, CL_MEM_READ_WRITE, room, NULL, &error);
    if (!error && bytes && from)
        opencl.cl.EnqueueWriteBuffer(opencl.queue, m, 1, 0, (size_t)bytes, from, 0, NULL, NULL);
    return error ? NULL : m;
}

static bool opencl_steps(const struct kernel *k, const struct check_launch *l, const cl_mem *memory, cl_mem *status)
{
    int64_t zero = 0;
    const int32_t step = 7;
    for (int s = 0; s < k->nstep; s++) {
        char name[32];
        int32_t error;
        const int64_t tasks = k->step[s].tasks;
        int64_t scratch = (k->scratch_bytes + 63) / 64 * 64;
        if (!tasks) continue;
        snprintf(name, sizeof name, "KERNEL_%d", s);
        struct opencl_args args = {.kernel = opencl.cl.CreateKernel(opencl.program, name, &error)};
        args.error = error;
        for (int i = 0; i < l->n; i++) opencl_pointer(&args, memory[i], l->block[i].origin);
        cl_mem own = opencl_buffer(NULL, scratch * tasks),
               sizes = opencl_buffer(l->sizes, l->sizes ? CHECK_DIMS * 8 : 0);
        opencl_pointer(&args, own, zero);
        opencl_set(&args, &scratch, sizeof scratch);
        opencl_pointer(&args, sizes, zero);
        opencl_pointer(&args, *status, zero);
        opencl_set(&args, &step, sizeof step);
        opencl_set(&args, NULL, (size_t)MAX(k->shared_bytes, 8));
        const size_t items = (size_t)MAX(k->items, 1), all = (size_t)tasks * items;
        if (!args.error)
            args.error =
                opencl.cl.EnqueueNDRangeKernel(opencl.queue, args.kernel, 1, NULL, &all, &items, 0, NULL, NULL);
        if (!args.error) args.error = opencl.cl.Finish(opencl.queue);
        opencl.cl.ReleaseMemObject(own);
        opencl.cl.ReleaseMemObject(sizes);
        if (!error) opencl.cl.ReleaseKernel(args.kernel);
        if (args.error) {
            *l->out_output = cl_error(args.error);
            fprintf(stderr, "OpenCL error %d, argument %u\n", (int)args.error, args.n);
            return false;
        }
    }
    return true;
}

static bool opencl_launch(struct arena *a, const struct kernel *k, const char *source, const struct check_launch *l)
{
    int32_t state[2] = {0};
    if (!opencl_build(a, source, l->out_output)) return false;
    cl_mem *memory = NEW_ARRAY(a, cl_mem, l->n + 1), status = opencl_buffer(state, sizeof state);
    for (int i = 0; i < l->n; i++) memory[i] = opencl_buffer(l->block[i].at, l->block[i].bytes);
    const bool ok = opencl_steps(k, l, memory, &status);
    for (int i = 0; i < l->n; i++) {
        const struct check_block *b = &l->block[i];
        if (b->bytes)
            opencl.cl.EnqueueReadBuffer(opencl.queue, memory[i], 1, 0, (size_t)b->bytes, b->at, 0, NULL, NULL);
        opencl.cl.ReleaseMemObject(memory[i]);
    }
    opencl.cl.EnqueueReadBuffer(opencl.queue, status, 1, 0, sizeof state, state, 0, NULL, NULL);
    opencl.cl.ReleaseMemObject(status);
    *l->error = state[0];
    return ok;
}

#endif
