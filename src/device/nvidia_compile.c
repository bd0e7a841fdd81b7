/* Code for NVIDIA's devices, made without one: by NVRTC, which is a library, otherwise by the program nvcc, otherwise
 * by clang, and ptxas if it is there: without it, code is PTX, which the driver compiles. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "build/build.h"
#include "device/cuda.h"
#include "device/inside.h"
#include "device/library.h"
#include "device/tool.h"

typedef struct rtc_program *rtc_program;
#define RTC_FUNCTIONS(X)                                                                                  \
    X(Version, "nvrtcVersion", (int *major, int *minor))                                                  \
    X(Create, "nvrtcCreateProgram",                                                                       \
      (rtc_program *, const char *text, const char *name, int, const char *const *, const char *const *)) \
    X(Destroy, "nvrtcDestroyProgram", (rtc_program *))                                                    \
    X(Compile, "nvrtcCompileProgram", (rtc_program, int n, const char *const *options))                   \
    X(LogSize, "nvrtcGetProgramLogSize", (rtc_program, size_t *))                                         \
    X(Log, "nvrtcGetProgramLog", (rtc_program, char *))                                                   \
    X(CodeSize, "nvrtcGetCUBINSize", (rtc_program, size_t *))                                             \
    X(Code, "nvrtcGetCUBIN", (rtc_program, char *))
struct rtc {
    RTC_FUNCTIONS(LIBRARY_MEMBER)
};

/* The compiler that is used. */
struct found {
    struct rtc rtc;
    const char *clang, *libdevice, *ptxas; /* paths; ptxas NULL: there is none */
    sol_status (*compile)(const struct sol_host *host, struct arena *a, const struct found *f,
                          const struct sol_code_text *text, struct sol_blob *out, struct sol_failure *why);
    const char *about; /* its name and version; if `compile` is NULL, why there is none */
};

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

static sol_status compile_rtc(const struct sol_host *host, struct arena *a, const struct found *f,
                              const struct sol_code_text *text, struct sol_blob *out, struct sol_failure *why)
{
    const struct rtc *rtc = &f->rtc;
    const char *arch = arena_printf(a, "--gpu-architecture=%s", text->arch);
    const char *const options[] = {arch, "--std=c++17", "-w", "-lineinfo"}; /* the last: for debugging */
    rtc_program program = NULL;
    size_t n = 0;
    (void)host;
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

static sol_status compile_nvcc(const struct sol_host *host, struct arena *a, const struct found *f,
                               const struct sol_code_text *text, struct sol_blob *out, struct sol_failure *why)
{
    const char *words = arena_printf(a, "-cubin -arch=%s -std=c++17 -w -O3 -o $/code $/kernels.cu", text->arch);
    (void)f;
    return tool_compile(host, &(struct tool){"nvcc", "nvcc", words, NULL, "kernels.cu", NULL}, text->text, out, why);
}

/* The text needs no more than 8.0 has, which any clang knows; ptxas and the driver make code for the card of it. What C
 * allows to be one fused operation is, but nothing in libdevice, which says itself how it rounds. */
static sol_status compile_clang(const struct sol_host *host, struct arena *a, const struct found *f,
                                const struct sol_code_text *text, struct sol_blob *out, struct sol_failure *why)
{
    const int cc = MIN(atoi(text->arch + strlen("sm_")), 80);
    static const char form[] = "-x cuda --cuda-device-only --cuda-gpu-arch=sm_%d --cuda-path=/dev/null -nocudainc "
                               "-nocudalib -std=c++17 -w -O3 -fno-builtin -ffp-contract=on -S -o $/code $/kernels.cu "
                               "-Xclang -target-feature -Xclang +ptx70 -Xclang -mlink-builtin-bitcode -Xclang";
    const char *words = arena_printf(a, form, cc);
    const struct tool clang = {"clang", f->clang, words, f->libdevice, "kernels.cu", NULL};
    const char *all = arena_printf(a, "%s#line 1 \"kernels.cu\"\n%s", source_header("sol/cuda_clang.h"), text->text);
    TRY(tool_compile(host, &clang, all, out, why));
    out->bytes++; /* the driver takes PTX as a text that a 0 ends */
    if (!f->ptxas) return SOL_OK;
    struct sol_blob ptx = *out;
    out->data = NULL;
    words = arena_printf(a, "-arch=%s -O3 -o $/code $/kernels.ptx", text->arch);
    const struct tool ptxas = {"ptxas", f->ptxas, words, NULL, "kernels.ptx", NULL};
    const sol_status status = tool_compile(host, &ptxas, ptx.data, out, why);
    tool_blob_free(NULL, NULL, &ptx);
    return status;
}

/* -- which one there is */

static const char *rtc_open(const struct sol_host *host, struct rtc *out)
{
    static const char *const files[] = {"nvidia/cu13/lib/libnvrtc.so.13", "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"};
    const struct library_symbol symbols[] = {RTC_FUNCTIONS(LIBRARY_SYMBOL){NULL, NULL}};
    return library_open(host, "nvidia.nvrtc", files, COUNT_OF(files), symbols);
}

/* Returns the version of clang; NULL: it is not there, or does not know NVIDIA's cards. */
static const char *find_clang(const struct sol_host *host, struct arena *a, struct found *f)
{
    static const char *const libdevice[] = {
        "nvidia/cu13/nvvm/libdevice/libdevice.10.bc", "nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc",
        "triton/backends/nvidia/lib/libdevice.10.bc", "/usr/local/cuda/nvvm/libdevice/libdevice.10.bc"};
    static const char *const ptxas[] = {"nvidia/cu13/bin/ptxas", "nvidia/cuda_nvcc/bin/ptxas",
                                        "triton/backends/nvidia/bin/ptxas", "/usr/local/cuda/bin/ptxas"};
    char path[600];
    host->option(host->user, "nvidia.clang", path, sizeof path);
    f->clang = *path ? arena_strdup(a, path) : "clang";
    if (library_find(host, "nvidia.libdevice", libdevice, COUNT_OF(libdevice), path, sizeof path))
        f->libdevice = arena_strdup(a, path);
    library_find(host, "nvidia.ptxas", ptxas, COUNT_OF(ptxas), path, sizeof path);
    f->ptxas = *path ? arena_strdup(a, path) : "ptxas";
    return tool_says(a, f->clang, "--target=nvptx64 --print-supported-cpus", "clang version ");
}

static struct found find(const struct sol_host *host, struct arena *a)
{
    struct found f = {0};
    int major = 0, minor = 0;
    const char *why = rtc_open(host, &f.rtc), *version, *ptxas;
    if (!why && !f.rtc.Version(&major, &minor)) {
        f.compile = compile_rtc;
        f.about = arena_printf(a, "NVRTC %d.%d", major, minor);
    } else if ((version = tool_says(a, "nvcc", "--version", ", V"))) {
        f.compile = compile_nvcc;
        f.about = arena_printf(a, "nvcc %s", version);
    } else if ((version = find_clang(host, a, &f)) && f.libdevice) {
        ptxas = tool_says(a, f.ptxas, "--version", ", V");
        if (!ptxas) f.ptxas = NULL;
        f.compile = compile_clang;
        f.about = arena_printf(a, "clang %s%s%s", version, ptxas ? ", ptxas " : " (PTX)", ptxas ? ptxas : "");
    } else
        f.about =
            arena_printf(a, "libnvrtc.so.13: %s; nvcc: not found; clang: %snot found (pip install nvidia-cuda-nvrtc)",
                         why, version ? "libdevice.10.bc " : "");
    return f;
}

bool nvidia_compiler(const struct sol_host *host, char *out, size_t room)
{
    struct arena *a = arena_create(host_ctx(host));
    const struct found f = a ? find(host, a) : (struct found){.about = "out of memory"};
    snprintf(out, room, "%s", f.about);
    arena_destroy(a);
    return f.compile;
}

sol_status nvidia_compile(const struct sol_device_type *type, const struct sol_host *host,
                          const struct sol_code_text *text, struct sol_blob *out_blob, struct sol_failure *out_why)
{
    struct arena *a = arena_create(host_ctx(host));
    const struct found f = a ? find(host, a) : (struct found){.about = "out of memory"};
    (void)type;
    const sol_status status =
        f.compile ? f.compile(host, a, &f, text, out_blob, out_why)
                  : failure_set(out_why, SOL_ERR_COMPILER, "there is no compiler for %s: %s", text->arch, f.about);
    arena_destroy(a);
    return status;
}
