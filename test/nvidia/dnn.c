/* The functions of cuDNN that SOL uses: convolutions and their gradients as loops, as commands of a stream. It rejects
 * what cuDNN rejects, and algorithms whose results differ from run to run. Factors of float32 are rounded to TF32 where
 * the math type allows it, and a call overwrites its workspace. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "nvidia.h"

#define API __attribute__((visibility("default")))
#define PIXELS 3

enum { NOT_INITIALIZED = 1001, BAD = 2000, BAD_SIZE = 2006, BAD_SHAPE = 2008, NOT_SUPPORTED = 3000, NO_MEMORY = 4003 };
enum { FLOAT, DOUBLE };
enum { Y, X, W }; /* the result */

struct dnn {
    bool has_stream;
    struct stream *stream;
};
struct tensor { /* of a tensor or of weights */
    bool set;
    int dtype, format, n, size[2 + PIXELS];
    long long stride[2 + PIXELS];
};
struct how {
    bool set;
    int dtype, n, groups, math, pad[PIXELS], stride[PIXELS], dilation[PIXELS];
};
struct speed {
    int algorithm, status;
    float ms;
    size_t bytes;
    int determinism, math, reserved[3];
};
struct convolution { /* pixels in three dimensions */
    int result;
    struct tensor x, w, y;
    struct how how;
    uint64_t at_x, at_w, at_y, workspace;
    size_t bytes;
};
static atomic_long calls[3];

/* For tests: how often convolutions, gradients of inputs and of weights were called, captured calls included. */
API void cuda_double_convolutions(long out[3])
{
    for (int i = 0; i < 3; i++) out[i] = atomic_load(&calls[i]);
}

API int cudnnGetProperty(int what, int *out)
{
    *out = what == 0 ? 9 : 1;
    return 0;
}

API int cudnnCreate(struct dnn **out)
{
    *out = setting("dnn_opens", 1) ? calloc(1, sizeof **out) : NULL;
    return *out ? 0 : NOT_INITIALIZED;
}

API int cudnnDestroy(struct dnn *d)
{
    free(d);
    return 0;
}

API int cudnnSetStream(struct dnn *d, struct stream *s)
{
    d->stream = s;
    d->has_stream = true;
    return 0;
}

/* -- descriptors */

API int cudnnCreateTensorDescriptor(struct tensor **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? 0 : NO_MEMORY;
}

API int cudnnDestroyTensorDescriptor(struct tensor *t)
{
    free(t);
    return 0;
}

API int cudnnCreateFilterDescriptor(struct tensor **out)
{
    return cudnnCreateTensorDescriptor(out);
}

API int cudnnDestroyFilterDescriptor(struct tensor *t)
{
    return cudnnDestroyTensorDescriptor(t);
}

API int cudnnCreateConvolutionDescriptor(struct how **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? 0 : NO_MEMORY;
}

API int cudnnDestroyConvolutionDescriptor(struct how *h)
{
    free(h);
    return 0;
}

API int cudnnSetTensorNdDescriptor(struct tensor *t, int dtype, int n, const int *size, const int *stride)
{
    if (!t || n < 4 || n > 2 + PIXELS || (dtype != FLOAT && dtype != DOUBLE)) return BAD;
    *t = (struct tensor){.set = true, .dtype = dtype, .n = n};
    for (int i = 0; i < n; i++) {
        if (size[i] < 1 || stride[i] < 1) return t->set = false, BAD;
        t->size[i] = size[i];
        t->stride[i] = stride[i];
    }
    return 0;
}

API int cudnnSetFilterNdDescriptor(struct tensor *t, int dtype, int format, int n, const int *size)
{
    if (!t || n < 4 || n > 2 + PIXELS || (dtype != FLOAT && dtype != DOUBLE) || format < 0 || format > 1) return BAD;
    *t = (struct tensor){.set = true, .dtype = dtype, .format = format, .n = n};
    for (int i = 0; i < n; i++) {
        if (size[i] < 1) return t->set = false, BAD;
        t->size[i] = size[i];
    }
    long long next = 1;
    if (format) t->stride[1] = 1, next = size[1];
    for (int i = n - 1; i >= 0; i--) {
        if (format && i == 1) continue;
        t->stride[i] = next;
        next *= size[i];
    }
    return 0;
}

API int cudnnSetConvolutionNdDescriptor(struct how *h, int n, const int *pad, const int *stride, const int *dilation,
                                        int mode, int dtype)
{
    if (!h || n < 2 || n > PIXELS || mode != 1 || (dtype != FLOAT && dtype != DOUBLE)) return BAD;
    *h = (struct how){.set = true, .dtype = dtype, .n = n, .groups = 1};
    for (int i = 0; i < n; i++) {
        if (pad[i] < 0 || stride[i] < 1 || dilation[i] < 1) return h->set = false, BAD;
        h->pad[i] = pad[i];
        h->stride[i] = stride[i];
        h->dilation[i] = dilation[i];
    }
    return 0;
}

API int cudnnSetConvolutionGroupCount(struct how *h, int groups)
{
    if (!h->set || groups < 1) return BAD;
    h->groups = groups;
    return 0;
}

API int cudnnSetConvolutionMathType(struct how *h, int math)
{
    if (!h->set || math < 0 || math > 3) return BAD;
    h->math = math;
    return 0;
}

/* -- what fits together */

static int check(const struct dnn *d, const struct tensor *x, const struct tensor *w, const struct how *h,
                 const struct tensor *y)
{
    if (!d || !d->has_stream) return NOT_INITIALIZED;
    if (setting("dnn_fails", 0)) return (int)setting("dnn_fails", 0);
    if (!x->set || !w->set || !h->set || !y->set) return BAD;
    if (x->n != w->n || x->n != y->n || x->n != h->n + 2) return BAD;
    if (x->dtype != w->dtype || x->dtype != y->dtype || x->dtype != h->dtype) return BAD;
    if (x->size[0] != y->size[0] || x->size[1] != w->size[1] * h->groups) return BAD_SHAPE;
    if (y->size[1] != w->size[0] || w->size[0] % h->groups) return BAD_SHAPE;
    for (int i = 0; i < h->n; i++) {
        const int all = x->size[2 + i] + 2 * h->pad[i] - h->dilation[i] * (w->size[2 + i] - 1) - 1;
        if (all < 0 || y->size[2 + i] != all / h->stride[i] + 1) return BAD_SHAPE;
    }
    if (w->format && (x->stride[1] != 1 || y->stride[1] != 1 || x->dtype == DOUBLE)) return NOT_SUPPORTED;
    return 0;
}

static size_t elements(const struct tensor *t)
{
    size_t n = 1;
    for (int i = 0; i < t->n; i++) n *= (size_t)t->size[i];
    return n;
}

/* Algorithm 0 of the convolution needs no workspace, 1 some, and others more than SOL takes. */
static int bytes_of(int result, int algorithm, const struct tensor *x, size_t *out)
{
    if (result == Y ? algorithm < 0 || algorithm > 7 : algorithm != 1) return NOT_SUPPORTED;
    const size_t some = (size_t)setting("dnn_bytes", (long)(100 + 4 * elements(x)));
    *out = result == Y && algorithm > 1 ? (size_t)1 << 40 : algorithm ? some : 0;
    return 0;
}

API int cudnnGetConvolutionForwardAlgorithm_v7(const struct dnn *d, const struct tensor *x, const struct tensor *w,
                                               const struct how *h, const struct tensor *y, int room, int *out_n,
                                               struct speed *out)
{
    static const int order[] = {6, 7, 1, 0};
    int error = d ? 0 : NOT_INITIALIZED;
    const struct dnn any = {.has_stream = true}; /* estimates need none */
    if (!error) error = check(&any, x, w, h, y);
    for (*out_n = 0; !error && *out_n < room && *out_n < 4; ++*out_n) {
        const int algorithm = order[*out_n];
        out[*out_n] = (struct speed){algorithm, algorithm == 6 ? NOT_SUPPORTED : 0, 1, 0, 1, h->math, {0}};
        bytes_of(Y, algorithm, x, &out[*out_n].bytes);
    }
    return error;
}

API int cudnnGetConvolutionForwardWorkspaceSize(const struct dnn *d, const struct tensor *x, const struct tensor *w,
                                                const struct how *h, const struct tensor *y, int algorithm, size_t *out)
{
    const struct dnn any = {.has_stream = true};
    const int error = check(d ? &any : NULL, x, w, h, y);
    return error ? error : bytes_of(Y, algorithm, x, out);
}

API int cudnnGetConvolutionBackwardDataWorkspaceSize(const struct dnn *d, const struct tensor *w,
                                                     const struct tensor *y, const struct how *h,
                                                     const struct tensor *x, int algorithm, size_t *out)
{
    const struct dnn any = {.has_stream = true};
    const int error = check(d ? &any : NULL, x, w, h, y);
    return error ? error : bytes_of(X, algorithm, x, out);
}

API int cudnnGetConvolutionBackwardFilterWorkspaceSize(const struct dnn *d, const struct tensor *x,
                                                       const struct tensor *y, const struct how *h,
                                                       const struct tensor *w, int algorithm, size_t *out)
{
    const struct dnn any = {.has_stream = true};
    const int error = check(d ? &any : NULL, x, w, h, y);
    return error ? error : bytes_of(W, algorithm, x, out);
}

/* -- execution */

static float tf32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if ((bits >> 23 & 0xff) != 0xff) bits = (bits + 0x1000) & ~0x1fffu;
    memcpy(&x, &bits, 4);
    return x;
}

static double load(const struct convolution *c, uint64_t at, long long i)
{
    const char *p = (const char *)(uintptr_t)at + memory_span();
    if (c->how.dtype == DOUBLE) return ((const double *)p)[i];
    return c->how.math == 3 ? ((const float *)p)[i] : tf32(((const float *)p)[i]);
}

static void store(const struct convolution *c, uint64_t at, long long i, double value)
{
    char *p = (char *)(uintptr_t)at + memory_span();
    if (c->how.dtype == DOUBLE)
        ((double *)p)[i] = value;
    else
        ((float *)p)[i] = (float)value;
}

static long long offset(const struct tensor *t, int n, int c, const int pixel[PIXELS])
{
    long long at = n * t->stride[0] + c * t->stride[1];
    for (int i = 0; i < PIXELS; i++) at += pixel[i] * t->stride[2 + i];
    return at;
}

/* The next number of digits below `size`. False: it was the last one. */
static bool next(const int *size, int *digit)
{
    for (int i = PIXELS - 1; i >= 0; i--) {
        if (++digit[i] < size[i]) return true;
        digit[i] = 0;
    }
    return false;
}

/* Of an element of x that a window at y reads at k. False: it is outside. */
static bool read_by(const struct convolution *c, const int y[PIXELS], const int k[PIXELS], int x[PIXELS])
{
    bool inside = true;
    for (int i = 0; i < PIXELS; i++) {
        x[i] = y[i] * c->how.stride[i] + k[i] * c->how.dilation[i] - c->how.pad[i];
        inside &= x[i] >= 0 && x[i] < c->x.size[2 + i];
    }
    return inside;
}

/* Windows without a result, as double; then everything that is a sum, which is cleared before. */
static void execute(const void *facts)
{
    const struct convolution *c = facts;
    const struct tensor *result = c->result == Y ? &c->y : c->result == X ? &c->x : &c->w;
    const uint64_t to = c->result == Y ? c->at_y : c->result == X ? c->at_x : c->at_w;
    const int in = c->w.size[1], out = c->w.size[0] / c->how.groups;
    const size_t n = elements(result);
    double *sum = calloc(n, sizeof *sum);
    struct tensor dense = *result;
    long long below = 1;
    if (c->bytes) memset((char *)(uintptr_t)c->workspace + memory_span(), 0xff, c->bytes);
    for (int i = 1 + PIXELS; i >= 0; below *= result->size[i--]) dense.stride[i] = below;
    for (int image = 0; image < c->x.size[0]; image++)
        for (int o = 0; o < c->w.size[0]; o++)
            for (int i = 0; i < in; i++) {
                const int channel = o / out * in + i;
                int y[PIXELS] = {0};
                do {
                    int k[PIXELS] = {0}, x[PIXELS];
                    do {
                        if (!read_by(c, y, k, x)) continue;
                        const long long at_y = offset(&c->y, image, o, y), at_x = offset(&c->x, image, channel, x),
                                        at_w = offset(&c->w, o, i, k);
                        if (c->result == Y)
                            sum[offset(&dense, image, o, y)] += load(c, c->at_x, at_x) * load(c, c->at_w, at_w);
                        if (c->result == X)
                            sum[offset(&dense, image, channel, x)] += load(c, c->at_y, at_y) * load(c, c->at_w, at_w);
                        if (c->result == W)
                            sum[offset(&dense, o, i, k)] += load(c, c->at_x, at_x) * load(c, c->at_y, at_y);
                    } while (next(c->w.size + 2, k));
                } while (next(c->y.size + 2, y));
            }
    for (int a = 0; a < result->size[0]; a++)
        for (int b = 0; b < result->size[1]; b++) {
            int pixel[PIXELS] = {0};
            do store(c, to, offset(result, a, b, pixel), sum[offset(&dense, a, b, pixel)]);
            while (next(result->size + 2, pixel));
        }
    free(sum);
}

static bool there(const struct tensor *t, uint64_t at)
{
    long long last = 1;
    for (int i = 0; i < t->n; i++) last += (t->size[i] - 1) * t->stride[i];
    return memory_has(at, (size_t)last * (t->dtype == DOUBLE ? 8 : 4));
}

static void complete(struct tensor *t)
{
    for (; t->n < 2 + PIXELS; t->n++) t->size[t->n] = 1;
}

static int enqueue(const struct dnn *d, const struct convolution *from, int algorithm, const void *one,
                   const void *none)
{
    struct convolution c = *from;
    size_t bytes = 0;
    int error = check(d, &c.x, &c.w, &c.how, &c.y);
    if (!error) error = bytes_of(c.result, algorithm, &c.x, &bytes);
    if (error) return error;
    if (c.bytes < bytes || (bytes && !memory_has(c.workspace, c.bytes))) return BAD_SIZE;
    if (!there(&c.x, c.at_x) || !there(&c.w, c.at_w) || !there(&c.y, c.at_y)) return BAD;
    if (c.how.dtype == DOUBLE ? *(const double *)one != 1 || *(const double *)none != 0
                              : *(const float *)one != 1 || *(const float *)none != 0)
        return BAD;
    complete(&c.x);
    complete(&c.w);
    complete(&c.y);
    for (int i = c.how.n; i < PIXELS; i++) c.how.stride[i] = c.how.dilation[i] = 1;
    atomic_fetch_add(&calls[c.result], 1);
    return stream_call(d->stream, execute, &c, sizeof c) ? 5000 : 0;
}

API int cudnnConvolutionForward(const struct dnn *d, const void *one, const struct tensor *x, uint64_t at_x,
                                const struct tensor *w, uint64_t at_w, const struct how *h, int algorithm,
                                uint64_t workspace, size_t bytes, const void *none, const struct tensor *y,
                                uint64_t at_y)
{
    const struct convolution c = {Y, *x, *w, *y, *h, at_x, at_w, at_y, workspace, bytes};
    return enqueue(d, &c, algorithm, one, none);
}

API int cudnnConvolutionBackwardData(const struct dnn *d, const void *one, const struct tensor *w, uint64_t at_w,
                                     const struct tensor *y, uint64_t at_y, const struct how *h, int algorithm,
                                     uint64_t workspace, size_t bytes, const void *none, const struct tensor *x,
                                     uint64_t at_x)
{
    const struct convolution c = {X, *x, *w, *y, *h, at_x, at_w, at_y, workspace, bytes};
    return enqueue(d, &c, algorithm, one, none);
}

API int cudnnConvolutionBackwardFilter(const struct dnn *d, const void *one, const struct tensor *x, uint64_t at_x,
                                       const struct tensor *y, uint64_t at_y, const struct how *h, int algorithm,
                                       uint64_t workspace, size_t bytes, const void *none, const struct tensor *w,
                                       uint64_t at_w)
{
    const struct convolution c = {W, *x, *w, *y, *h, at_x, at_w, at_y, workspace, bytes};
    return enqueue(d, &c, algorithm, one, none);
}
