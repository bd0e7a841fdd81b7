/* Convolutions by cuDNN, where it is installed. A handle has its own workspace; only algorithms are chosen whose
 * results are the same in every run. Convolutions of float32 are computed as such; with the option nvidia.tf32=1, cuDNN
 * may round factors to TF32. Descriptors, algorithms and workspaces are made when a call comes for the first time,
 * which is before it is captured into a graph. A graph knows the address of its workspace, so one that was in use stays
 * until the end. */
#include <stdlib.h>
#include <string.h>

#include "device/cuda.h"
#include "device/inside.h"
#include "device/library.h"
#include "device/nvidia_dnn.h"

enum { FLOAT = 0, DOUBLE = 1, NCHW = 0, NHWC = 1, CORRELATION = 1, DEFAULT_MATH = 0, FMA_MATH = 3 };
enum { IMPLICIT_GEMM = 0, DETERMINISTIC = 1, MOST_ALGORITHMS = 8, MOST_PLANS = 4096, OLD_WORKSPACES = 64 };
enum { NOT_INITIALIZED = 1001, REJECTED = 2, NOT_SUPPORTED = 3 }; /* the last two are thousands */
#define MOST_BYTES ((size_t)256 << 20)                            /* of a workspace */

struct functions {
#define X(name, symbol, parameters) unsigned(*name) parameters;
    DNN_FUNCTIONS(X)
#undef X
};
struct plan { /* of a call */
    struct plan *next;
    struct sol_conv conv;
    dnn_tensor x, y;
    dnn_filter w;
    dnn_convolution how;
    bool refused; /* cuDNN does not take it, with this status */
    unsigned status;
    unsigned algorithm;
    size_t bytes; /* of its workspace */
};
struct dnn {
    const struct cuda *cuda;
    const struct sol_host *host;
    struct functions f;
    dnn_handle handle;
    struct plan *plans;
    int nplan, nold;
    cu_memory workspace, old[OLD_WORKSPACES]; /* 0: none */
    size_t workspace_bytes;
};

/* Statuses of cuDNN are errors below zero. What it rejects or does not support, the step's function computes. */
static int failed(unsigned status)
{
    const unsigned kind = status / 1000;
    return !status ? CUDA_SUCCESS : kind == REJECTED || kind == NOT_SUPPORTED ? CALL_NONE : -(int)status;
}

const char *calls_error(int error)
{
    return error >= 0 ? NULL : -error / 1000 == NOT_INITIALIZED / 1000 ? "cuDNN cannot be used" : "cuDNN failed";
}

/* False: it is not there. */
static bool open_library(const struct sol_host *host, struct functions *out)
{
    static const char *const files[] = {"nvidia/cudnn/lib/libcudnn.so.9"};
    const struct library_symbol symbols[] = {DNN_FUNCTIONS(LIBRARY_SYMBOL){NULL, NULL}};
    return !library_open(host, "nvidia.cudnn", files, COUNT_OF(files), symbols);
}

static void dnn_version(const struct sol_host *host, char *out, size_t room)
{
    struct functions f;
    int major = 0, minor = 0;
    if (open_library(host, &f) && !f.Property(0, &major) && !f.Property(1, &minor))
        snprintf(out, room, "cuDNN %d.%d", major, minor);
}

/* -- what a call needs, made once */

static void free_plan(const struct dnn *d, struct plan *p)
{
    if (p->x) d->f.TensorDestroy(p->x);
    if (p->y) d->f.TensorDestroy(p->y);
    if (p->w) d->f.FilterDestroy(p->w);
    if (p->how) d->f.ConvolutionDestroy(p->how);
    free(p);
}

static void free_plans(struct dnn *d)
{
    for (struct plan *p = d->plans, *next; p; p = next) {
        next = p->next;
        free_plan(d, p);
    }
    d->plans = NULL;
    d->nplan = 0;
}

static void to_int(int n, const int64_t *from, int *to)
{
    for (int i = 0; i < n; i++) to[i] = (int)from[i];
}

static unsigned make_tensor(const struct dnn *d, const struct sol_conv *c, const struct sol_conv_tensor *t,
                            dnn_tensor *out)
{
    int size[COUNT_OF(t->size)], stride[COUNT_OF(t->size)];
    const unsigned status = d->f.TensorCreate(out);
    const int n = (int)c->npixel + 2;
    to_int(n, t->size, size);
    to_int(n, t->stride, stride);
    if (status) return *out = NULL, status;
    return d->f.TensorSet(*out, c->dtype == SOL_F64 ? DOUBLE : FLOAT, n, size, stride);
}

static unsigned make_filter(const struct dnn *d, const struct sol_conv *c, dnn_filter *out)
{
    int size[COUNT_OF(c->w.size)];
    const unsigned status = d->f.FilterCreate(out);
    const int n = (int)c->npixel + 2;
    to_int(n, c->w.size, size);
    if (status) return *out = NULL, status;
    return d->f.FilterSet(*out, c->dtype == SOL_F64 ? DOUBLE : FLOAT, c->channels_last ? NHWC : NCHW, n, size);
}

static unsigned make_convolution(const struct dnn *d, const struct sol_conv *c, dnn_convolution *out)
{
    int pad[SOL_CONV_PIXELS], stride[SOL_CONV_PIXELS], dilation[SOL_CONV_PIXELS];
    unsigned status = d->f.ConvolutionCreate(out);
    const int n = (int)c->npixel;
    to_int(n, c->pad, pad);
    to_int(n, c->stride, stride);
    to_int(n, c->dilation, dilation);
    if (status) return *out = NULL, status;
    const bool f64 = c->dtype == SOL_F64;
    status = d->f.ConvolutionSet(*out, n, pad, stride, dilation, CORRELATION, f64 ? DOUBLE : FLOAT);
    if (!status) status = d->f.ConvolutionGroups(*out, (int)c->groups);
    return status ? status : d->f.ConvolutionMath(*out, f64 || c->tf32 ? DEFAULT_MATH : FMA_MATH);
}

/* A workspace of that size, at least twice the last one. False: there is no memory for it. */
static bool grow_workspace(struct dnn *d, size_t bytes)
{
    cu_memory made = 0;
    if (bytes <= d->workspace_bytes) return true;
    if (d->nold == OLD_WORKSPACES) return false;
    size_t most = 2 * d->workspace_bytes > bytes ? 2 * d->workspace_bytes : bytes;
    if (d->cuda->Alloc(&made, most)) {
        most = bytes;
        if (d->cuda->Alloc(&made, most)) return false;
    }
    if (d->workspace) d->old[d->nold++] = d->workspace;
    d->workspace = made;
    d->workspace_bytes = most;
    return true;
}

static unsigned bytes_of(const struct dnn *d, const struct plan *p, unsigned algorithm, size_t *out)
{
    const struct functions *f = &d->f;
    if (p->conv.result == SOL_CONV_X) return f->BytesX(d->handle, p->w, p->y, p->how, p->x, algorithm, out);
    if (p->conv.result == SOL_CONV_W) return f->BytesW(d->handle, p->x, p->y, p->how, p->w, algorithm, out);
    return f->BytesY(d->handle, p->x, p->w, p->how, p->y, algorithm, out);
}

/* Takes an algorithm if there is memory for its workspace. */
static int take(struct dnn *d, struct plan *p, unsigned algorithm)
{
    size_t bytes = 0;
    const unsigned status = bytes_of(d, p, algorithm, &bytes);
    if (status) return p->status = status, failed(status);
    if (bytes > MOST_BYTES && algorithm != IMPLICIT_GEMM && p->conv.result == SOL_CONV_Y) return CUDA_OUT_OF_MEMORY;
    if (!grow_workspace(d, bytes)) return CUDA_OUT_OF_MEMORY;
    p->algorithm = algorithm;
    p->bytes = bytes;
    return CUDA_SUCCESS;
}

/* All algorithms of the convolution itself are deterministic, and the first one needs no workspace; of those of both
 * gradients without transforms, one is. */
static int choose(struct dnn *d, struct plan *p)
{
    struct dnn_speed speed[MOST_ALGORITHMS];
    int n = 0;
    if (p->conv.result != SOL_CONV_Y) return take(d, p, 1);
    if (d->f.Algorithms(d->handle, p->x, p->w, p->how, p->y, MOST_ALGORITHMS, &n, speed)) n = 0;
    for (int i = 0; i < n; i++)
        if (!speed[i].status && speed[i].determinism == DETERMINISTIC && !take(d, p, speed[i].algorithm))
            return CUDA_SUCCESS;
    return take(d, p, IMPLICIT_GEMM);
}

static void log_refused(const struct dnn *d, const struct sol_conv *c, unsigned status)
{
    const int64_t *x = c->x.size, *w = c->w.size;
    char text[200];
    snprintf(text, sizeof text,
             "cuDNN does not take a convolution (status %u; x %d %d %d %d %d, w %d %d %d %d %d): a slow kernel of SOL "
             "computes it",
             status, (int)x[0], (int)x[1], (int)x[2], (int)x[3], (int)x[4], (int)w[0], (int)w[1], (int)w[2], (int)w[3],
             (int)w[4]);
    d->host->log(d->host->user, 1, "device", text);
}

static int make_plan(struct dnn *d, struct plan *p)
{
    unsigned status = make_tensor(d, &p->conv, &p->conv.x, &p->x);
    if (!status) status = make_tensor(d, &p->conv, &p->conv.y, &p->y);
    if (!status) status = make_filter(d, &p->conv, &p->w);
    if (!status) status = make_convolution(d, &p->conv, &p->how);
    p->status = status;
    return status ? failed(status) : choose(d, p);
}

static int find_plan(struct dnn *d, const struct sol_conv *c, struct plan **out)
{
    struct plan *p = d->plans;
    while (p && memcmp(&p->conv, c, sizeof *c)) p = p->next;
    *out = p;
    if (p) return p->refused ? CALL_NONE : CUDA_SUCCESS;
    if (d->nplan == MOST_PLANS) free_plans(d);
    p = calloc(1, sizeof *p);
    if (!p) return CUDA_OUT_OF_MEMORY;
    p->conv = *c;
    const int error = make_plan(d, p);
    p->refused = error == CALL_NONE;
    if (p->refused) log_refused(d, c, p->status);
    if (error && !p->refused) return free_plan(d, p), error;
    p->next = d->plans;
    d->nplan++;
    *out = d->plans = p;
    return error;
}

/* -- the library of a stream */

static void dnn_close(void *opened)
{
    struct dnn *d = opened;
    free_plans(d);
    if (d->handle) d->f.Destroy(d->handle);
    if (d->workspace) d->cuda->Free(d->workspace);
    for (int i = 0; i < d->nold; i++) d->cuda->Free(d->old[i]);
    free(d);
}

static int dnn_open(const struct cuda *cuda, const struct sol_host *host, void **out)
{
    struct dnn *d = calloc(1, sizeof *d);
    *out = NULL;
    if (!d) return CUDA_OUT_OF_MEMORY;
    d->cuda = cuda;
    d->host = host;
    const unsigned status = open_library(host, &d->f) ? d->f.Create(&d->handle) : NOT_INITIALIZED;
    if (status) return free(d), failed(status);
    *out = d;
    return CUDA_SUCCESS;
}

static void *place(const struct sol_launch *l, const struct sol_conv *c, const struct sol_conv_tensor *t)
{
    const int64_t bytes = c->dtype == SOL_F64 ? 8 : 4;
    return (void *)(uintptr_t)(l->arg[t->operand].pointer + (cu_memory)(t->offset * bytes));
}

static int dnn_enqueue(void *opened, cu_stream stream, const struct sol_launch *l, const int64_t *call)
{
    static const double ones[] = {1, 0};
    static const float ones_f32[] = {1, 0};
    struct dnn *d = opened;
    const struct functions *f = &d->f;
    const struct sol_conv *c = (const void *)call;
    struct plan *p;
    int error = find_plan(d, c, &p);
    if (error) return error;
    const void *one = c->dtype == SOL_F64 ? (const void *)&ones[0] : &ones_f32[0];
    const void *none = c->dtype == SOL_F64 ? (const void *)&ones[1] : &ones_f32[1];
    void *x = place(l, c, &c->x), *w = place(l, c, &c->w), *y = place(l, c, &c->y);
    void *space = p->bytes ? (void *)(uintptr_t)d->workspace : NULL;
    unsigned status = f->SetStream(d->handle, stream);
    if (status) return failed(status);
    if (c->result == SOL_CONV_X)
        status = f->RunX(d->handle, one, p->w, w, p->y, y, p->how, p->algorithm, space, p->bytes, none, p->x, x);
    else if (c->result == SOL_CONV_W)
        status = f->RunW(d->handle, one, p->x, x, p->y, y, p->how, p->algorithm, space, p->bytes, none, p->w, w);
    else
        status = f->RunY(d->handle, one, p->x, x, p->w, w, p->how, p->algorithm, space, p->bytes, none, p->y, y);
    p->refused = failed(status) == CALL_NONE;
    if (p->refused) log_refused(d, c, status);
    return failed(status);
}

const struct cuda_caller dnn_caller = {SOL_CALL_CONV, dnn_version, dnn_open, dnn_close, dnn_enqueue};
