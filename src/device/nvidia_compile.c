/* Code for NVIDIA's devices, made without one: by NVRTC, which is a library, otherwise by nvcc. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "build/build.h"
#include "device/cuda.h"
#include "device/inside.h"
#include "device/library.h"
#include "device/tool.h"

typedef struct rtc_program *rtc_program;
struct rtc {
    int (*Version)(int *major, int *minor);
    int (*Create)(rtc_program *, const char *text, const char *name, int, const char *const *, const char *const *);
    int (*Destroy)(rtc_program *);
    int (*Compile)(rtc_program, int n, const char *const *options);
    int (*LogSize)(rtc_program, size_t *);
    int (*Log)(rtc_program, char *);
    int (*CodeSize)(rtc_program, size_t *);
    int (*Code)(rtc_program, char *);
};

/* NULL: NVRTC is open; otherwise why not. */
static const char *rtc_open(const struct sol_host *host, struct rtc *out)
{
    static const char *const files[] = {"nvidia/cu13/lib/libnvrtc.so.13", "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"};
    const struct library_symbol symbols[] = {{"nvrtcVersion", &out->Version},
                                             {"nvrtcCreateProgram", &out->Create},
                                             {"nvrtcDestroyProgram", &out->Destroy},
                                             {"nvrtcCompileProgram", &out->Compile},
                                             {"nvrtcGetProgramLogSize", &out->LogSize},
                                             {"nvrtcGetProgramLog", &out->Log},
                                             {"nvrtcGetCUBINSize", &out->CodeSize},
                                             {"nvrtcGetCUBIN", &out->Code},
                                             {NULL, NULL}};
    return library_open(host, "nvidia.nvrtc", files, COUNT_OF(files), symbols);
}

/* The version of nvcc; false: there is none. */
static bool nvcc_version(struct sol_ctx *ctx, char *out, size_t room)
{
    struct arena *a = arena_create(ctx);
    const char *const argv[] = {"nvcc", "--version", NULL};
    const char *said = "", *at = NULL;
    int exit = 0;
    if (!a) return false;
    if (!process_run(a, argv, &exit, &said) && !exit) at = strstr(said, ", V");
    if (at) snprintf(out, room, "nvcc %.*s", (int)strcspn(at + 3, "\n"), at + 3);
    arena_destroy(a);
    return at;
}

void nvidia_compiler(const struct sol_host *host, char *out, size_t room, char *out_why, size_t why_room)
{
    struct rtc rtc;
    int major = 0, minor = 0;
    *out = *out_why = 0;
    const char *why = rtc_open(host, &rtc);
    if (!why && !rtc.Version(&major, &minor))
        snprintf(out, room, "NVRTC %d.%d", major, minor);
    else if (!nvcc_version(host_ctx(host), out, room))
        snprintf(out_why, why_room, "libnvrtc.so.13: %s; nvcc: not found (pip install nvidia-cuda-nvrtc)", why);
}

/* -- NVRTC */

static sol_status rtc_failed(const struct rtc *rtc, rtc_program program, int error, struct sol_blob *out_log,
                             struct sol_failure *why)
{
    size_t n = 0;
    char compiler[40];
    snprintf(compiler, sizeof compiler, "NVRTC (error %d)", error);
    rtc->LogSize(program, &n);
    char *log = calloc(n + 1, 1);
    if (log) rtc->Log(program, log);
    return failure_rejected(why, compiler, log, out_log);
}

static sol_status rtc_compile(const struct rtc *rtc, const struct sol_code_text *text, struct sol_blob *out,
                              struct sol_failure *why)
{
    char arch[100];
    const char *const options[] = {arch, "--std=c++17", "-w", "-lineinfo"}; /* the last: for debugging */
    rtc_program program = NULL;
    size_t n = 0;
    snprintf(arch, sizeof arch, "--gpu-architecture=%s", text->arch);
    int error = rtc->Create(&program, text->text, "kernels.cu", 0, NULL, NULL);
    if (error) return failure_set(why, SOL_ERR_COMPILER, "NVRTC: error %d", error);
    error = rtc->Compile(program, COUNT_OF(options) - !text->debug, options);
    if (!error) error = rtc->CodeSize(program, &n);
    char *data = error ? NULL : malloc(n + 1);
    if (data) error = rtc->Code(program, data);
    out->data = data;
    out->bytes = n;
    if (error) tool_blob_free(NULL, NULL, out);
    const sol_status status = error   ? rtc_failed(rtc, program, error, out, why)
                              : !data ? failure_set(why, SOL_ERR_NOMEM, "out of memory")
                                      : SOL_OK;
    rtc->Destroy(&program);
    return status;
}

/* -- nvcc */

static sol_status nvcc_prepare(struct arena *a, const char *folder, const struct sol_code_text *text, void *user,
                               const char *const **out_argv, const char **out_file)
{
    const char *from = arena_printf(a, "%s/kernels.cu", folder), *to = arena_printf(a, "%s/kernels.cubin", folder);
    const char *const argv[] = {
        "nvcc", "-cubin", arena_printf(a, "-arch=%s", text->arch), "-std=c++17", "-w", "-O3", "-o", to, from, NULL};
    (void)user;
    *out_argv = memcpy(NEW_ARRAY(a, const char *, COUNT_OF(argv)), argv, sizeof argv);
    *out_file = to;
    return file_write(arena_ctx(a), from, text->text, strlen(text->text));
}

sol_status nvidia_compile(const struct sol_device_type *type, const struct sol_host *host,
                          const struct sol_code_text *text, struct sol_blob *out_blob, struct sol_failure *out_why)
{
    struct rtc rtc;
    char name[64], why[400];
    (void)type;
    if (!rtc_open(host, &rtc)) return rtc_compile(&rtc, text, out_blob, out_why);
    nvidia_compiler(host, name, sizeof name, why, sizeof why);
    return *name ? tool_compile(host, &(struct tool){"nvcc", nvcc_prepare, NULL}, text, out_blob, out_why)
                 : failure_set(out_why, SOL_ERR_COMPILER, "there is no compiler for %s: %s", text->arch, why);
}
