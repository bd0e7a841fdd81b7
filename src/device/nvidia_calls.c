/* Finds calls of NVIDIA's libraries in loaded code, and has the library of their kind execute them. */
#include <stdlib.h>
#include <string.h>

#include "device/cuda.h"
#include "device/inside.h"

static const struct cuda_caller *const callers[] = {&blas_caller, &dnn_caller};

struct cuda_calls {
    const struct cuda *cuda;
    const struct sol_host *host;
    void *opened[COUNT_OF(callers)]; /* NULL: not yet */
};

void calls_versions(const struct sol_host *host, struct sol_device_info *out)
{
    blas_caller.version(host, out->blas, sizeof out->blas);
    dnn_caller.version(host, out->dnn, sizeof out->dnn);
}

static int caller_of(int64_t kind)
{
    int i = 0;
    while (i < COUNT_OF(callers) && callers[i]->kind != kind) i++;
    return i;
}

int calls_find(const struct cuda *cuda, struct cuda_kernel *kernel, cu_module module, const char *name)
{
    const char *step = strrchr(name, '_');
    char call[100];
    cu_memory at = 0;
    size_t bytes = 0;
    snprintf(call, sizeof call, "%.*s_call%s", (int)(step ? step - name : 0), name, step ? step : "");
    if (cuda->Global(&at, &bytes, module, call)) return CUDA_SUCCESS;
    kernel->call = malloc(bytes);
    if (!kernel->call) return CUDA_OUT_OF_MEMORY;
    const int error = cuda->ReadNow(kernel->call, at, bytes);
    return error ? error : caller_of(*kernel->call) < COUNT_OF(callers) ? CUDA_SUCCESS : CUDA_INVALID_VALUE;
}

struct cuda_calls *calls_make(const struct cuda *cuda, const struct sol_host *host)
{
    struct cuda_calls *c = calloc(1, sizeof *c);
    if (c) *c = (struct cuda_calls){.cuda = cuda, .host = host};
    return c;
}

void calls_free(struct cuda_calls *c)
{
    for (int i = 0; c && i < COUNT_OF(callers); i++)
        if (c->opened[i]) callers[i]->close(c->opened[i]);
    free(c);
}

int calls_enqueue(struct cuda_calls *c, cu_stream stream, const struct sol_launch *l)
{
    const int64_t *call = ((const struct cuda_kernel *)l->kernel)->call;
    int error = c ? CUDA_SUCCESS : CUDA_OUT_OF_MEMORY;
    if (!call) return CALL_NONE;
    const int i = caller_of(*call);
    if (!error && !c->opened[i]) error = callers[i]->open(c->cuda, c->host, &c->opened[i]);
    return error ? error : callers[i]->enqueue(c->opened[i], stream, l, call);
}
