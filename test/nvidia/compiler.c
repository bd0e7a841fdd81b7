/* The functions of NVRTC, by g++: "code" is a shared object for this processor. */
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nvidia.h"

#define API __attribute__((visibility("default")))

struct program {
    char *text, *log, *code;
    size_t bytes;
};

API int nvrtcVersion(int *major, int *minor)
{
    *major = 0;
    *minor = 1;
    return 0;
}

API int nvrtcCreateProgram(struct program **out, const char *text, const char *name, int n, const char *const *headers,
                           const char *const *names)
{
    (void)name, (void)n, (void)headers, (void)names;
    *out = calloc(1, sizeof **out);
    if (*out) (*out)->text = strdup(text);
    return *out ? 0 : 1;
}

API int nvrtcDestroyProgram(struct program **p)
{
    free((*p)->text);
    free((*p)->log);
    free((*p)->code);
    free(*p);
    *p = NULL;
    return 0;
}

/* A whole file, with `before` bytes in front of it. */
static char *contents(const char *path, size_t before, size_t *out_bytes)
{
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    const size_t n = (size_t)ftell(f);
    char *data = calloc(before + n + 1, 1);
    rewind(f);
    if (data) *out_bytes = before + fread(data + before, 1, n, f);
    fclose(f);
    return data;
}

/* A line for each kernel, by which the driver finds it. */
static void write_kernels(FILE *f, const char *text)
{
    for (const char *at = text; (at = strstr(at, "__global__"));) {
        at += strlen("__global__");
        const char *name = at, *end = at;
        do { /* the first name with parameters that is no attribute */
            while (*end && !isalnum((unsigned char)*end) && *end != '_') end++;
            for (name = end; isalnum((unsigned char)*end) || *end == '_'; end++) continue;
        } while (*end && (*end != '(' || !strncmp(name, "__", 2)));
        fprintf(f, "CUDA_KERNEL(%.*s)\n", (int)(end - name), name);
    }
    fprintf(f, "__thread __align__(16) char shared_[%ld];\nextern \"C\" char *cuda_shared() { return shared_; }\n",
            setting("shared", GROUP_BYTES));
}

/* Is a pointer __restrict__ that leads to more than constants? nvcc reads by it in front of a barrier what another
 * thread wrote, which g++ does not. */
static bool restricts_what_is_written(const char *text)
{
    for (const char *at = text; (at = strstr(at, "*__restrict__")); at++) {
        const char *line = at;
        while (line > text && line[-1] != '\n') line--;
        while (*line == ' ') line++;
        if (strncmp(line, "const ", 6) != 0) return true;
    }
    return false;
}

/* In front of the code, its size. */
static void put_head(struct program *p)
{
    const uint64_t bytes = p->bytes - 16;
    memcpy(p->code, CODE_MAGIC, 8);
    memcpy(p->code + 8, &bytes, 8);
}

static int compile(struct program *p, const char *folder)
{
    char from[100], to[100], said[100], command[1000];
    snprintf(from, sizeof from, "%s/k.cu", folder);
    snprintf(to, sizeof to, "%s/k.so", folder);
    snprintf(said, sizeof said, "%s/k.log", folder);
    FILE *f = fopen(from, "w");
    if (!f) return 1;
    fprintf(f, "#include \"%s\"\n#line 1 \"kernels.cu\"\n%s\n", HOST_HEADER, p->text);
    write_kernels(f, p->text);
    fclose(f);
    snprintf(
        command, sizeof command,
        "g++ -x c++ -std=gnu++14 -O1 -march=native -ffp-contract=fast -fno-strict-aliasing -fwrapv -w -shared -fPIC "
        "-fvisibility=default %s -o %s -lm >%s 2>&1",
        from, to, said);
    const int status = system(command);
    size_t n;
    p->log = contents(said, 0, &n);
    p->code = status ? NULL : contents(to, 16, &p->bytes);
    if (p->code) put_head(p);
    remove(from), remove(to), remove(said);
    return p->code ? 0 : 6;
}

API int nvrtcCompileProgram(struct program *p, int n, const char *const *options)
{
    char folder[] = "/tmp/sol-cuda-double-XXXXXX";
    (void)n, (void)options;
    if (!setting("compile", 1)) {
        p->code = calloc(p->bytes = 16, 1);
        put_head(p);
        return 0;
    }
    if (restricts_what_is_written(p->text)) {
        p->log = strdup("a pointer to what a kernel writes is __restrict__");
        return 6;
    }
    if (!mkdtemp(folder)) return 1;
    const int error = compile(p, folder);
    rmdir(folder);
    return error;
}

API int nvrtcGetProgramLogSize(const struct program *p, size_t *out)
{
    *out = p->log ? strlen(p->log) + 1 : 1;
    return 0;
}

API int nvrtcGetProgramLog(const struct program *p, char *out)
{
    strcpy(out, p->log ? p->log : "");
    return 0;
}

API int nvrtcGetCUBINSize(const struct program *p, size_t *out)
{
    *out = p->bytes;
    return 0;
}

API int nvrtcGetCUBIN(const struct program *p, char *out)
{
    if (p->code) memcpy(out, p->code, p->bytes);
    return 0;
}
