/* Windows and Fourier transforms. A transform is a product with a matrix of cosines and sines: exact and, for the
 * lengths that occur in networks, fast enough. */
#include <math.h>

#include "onnx/ops.h"

#define MOST SOL_MAX_DIMS
#define MOST_WINDOW (1 << 20)
#define MOST_MATRIX (1 << 22)

static tensor reals(struct node *n, enum sol_dtype t, int ndim, const int64_t *shape, const double *v)
{
    int64_t count = nd_product(shape, 0, ndim);
    if (!dtype_def(t)->is_float) {
        nd_reject(n, "type %s is not supported", dtype_name(t));
        return NULL;
    }
    if (t == SOL_F64) return nd_constant(n, t, ndim, shape, v);
    float *f = NEW_ARRAY(n->r->arena, float, MAX(1, count));
    for (int64_t i = 0; i < count; i++) f[i] = (float)v[i];
    return nd_constant(n, SOL_F32, ndim, shape, f);
}

/* a - b cos(2 pi i / N) + c cos(4 pi i / N) */
sol_status op_window(struct node *n)
{
    static const struct {
        const char *name;
        double a, b, c;
    } windows[] = {
        {"HannWindow", 0.5, 0.5, 0}, {"HammingWindow", 25.0 / 46, 21.0 / 46, 0}, {"BlackmanWindow", 0.42, 0.5, 0.08}};
    enum sol_dtype t;
    int64_t count = known_int(n, 0, "size", 0);
    bool periodic = attr_flag(n, "periodic", 1);
    TRY(dtype_read(n->r->ctx, attr_int(n, "output_datatype", 1), "output_datatype", &t));
    if (n->status) return n->status;
    if (count < 0 || count > MOST_WINDOW) return nd_invalid(n, "size %lld is out of range", (long long)count);
    double *v = NEW_ARRAY(n->r->arena, double, count + 1), whole = (double)(periodic ? count : count - 1);
    for (int k = 0; k < COUNT_OF(windows); k++)
        for (int64_t i = 0; i < count && !strcmp(windows[k].name, n->op->name); i++)
            v[i] = windows[k].a - windows[k].b * cos(2 * M_PI * (double)i / whole) +
                   windows[k].c * cos(4 * M_PI * (double)i / whole);
    nd_give(n, 0, reals(n, t, 1, &count, v));
    return n->status;
}

/* Triangles between frequencies that are evenly spaced in mel. */
sol_status op_mel_weights(struct node *n)
{
    enum sol_dtype t;
    int64_t bins = known_int(n, 0, "num_mel_bins", 0), length = known_int(n, 1, "dft_length", 0);
    int64_t rate = known_int(n, 2, "sample_rate", 0), rows = length / 2 + 1;
    double low = known_real(n, 3, "lower_edge_hertz", 0), high = known_real(n, 4, "upper_edge_hertz", 0);
    TRY(dtype_read(n->r->ctx, attr_int(n, "output_datatype", 1), "output_datatype", &t));
    if (n->status) return n->status;
    if (bins < 1 || bins > 1 << 12 || length < 1 || length > 1 << 16 || rate < 1)
        return nd_invalid(n, "a size is out of range");
    if (rows * bins > MOST_MATRIX)
        return nd_reject(n, "a matrix of %lld by %lld is not supported", (long long)rows, (long long)bins);
    double *v = NEW_ARRAY(n->r->arena, double, rows *bins);
    int64_t *edge = NEW_ARRAY(n->r->arena, int64_t, bins + 2);
    double from = 2595 * log10(1 + low / 700), step = (2595 * log10(1 + high / 700) - from) / (double)(bins + 2);
    for (int64_t i = 0; i < bins + 2; i++) {
        double hertz = 700 * (pow(10, (from + step * (double)i) / 2595) - 1);
        double at = floor((double)(length + 1) * hertz / (double)rate);
        if (!(at >= 0 && at < (double)rows)) return nd_invalid(n, "the frequencies are out of range");
        edge[i] = (int64_t)at;
    }
    for (int64_t i = 0; i < bins; i++) {
        int64_t a = edge[i], b = edge[i + 1], c = edge[i + 2];
        if (a == b) v[b * bins + i] = 1;
        for (int64_t j = a; j <= b && a < b; j++) v[j * bins + i] = (double)(j - a) / (double)(b - a);
        for (int64_t j = b; j < c; j++) v[j * bins + i] = (double)(c - j) / (double)(c - b);
    }
    nd_give(n, 0, reals(n, t, 2, (int64_t[]){rows, bins}, v));
    return n->status;
}

/* -- Fourier transform of the last dimension of re and im (NULL: 0): y is [.., outputs, 2], or [.., outputs, 1] if
 * `real` */

struct fourier {
    int64_t length, inputs, outputs;
    bool inverse, half, real; /* half: the input is half of a symmetric spectrum */
};

static tensor matrix(struct node *n, const struct fourier *f, bool sines, double sign)
{
    double *v = NEW_ARRAY(n->r->arena, double, MAX(1, f->inputs * f->outputs));
    for (int64_t i = 0; i < f->inputs; i++) {
        bool twice = f->half && i > 0 && 2 * i < f->length;
        double factor = sign * (twice ? 2 : 1) / (f->inverse ? (double)f->length : 1);
        for (int64_t k = 0; k < f->outputs; k++) {
            double angle = 2 * M_PI * (double)(i * k % f->length) / (double)f->length;
            v[i * f->outputs + k] = factor * (sines ? sin(angle) : cos(angle));
        }
    }
    return reals(n, SOL_F64, 2, (int64_t[]){f->inputs, f->outputs}, v);
}

static tensor times(struct node *n, tensor x, tensor m)
{
    return x ? nd_make(n, "MatMul", IN(x, m), PLAIN) : NULL;
}

static tensor plus(struct node *n, tensor a, tensor b)
{
    return a && b ? nd_fn2(n, "add", a, b) : a ? a : b;
}

static tensor transform(struct node *n, tensor re, tensor im, const struct fourier *f)
{
    enum sol_dtype t = nd_type_of(re);
    bool large = f->length > MOST_WINDOW || f->inputs * f->outputs > MOST_MATRIX;
    if (f->length < 1 || large) {
        nd_reject(n, "a transform of length %lld is not supported", (long long)f->length);
        return NULL;
    }
    re = re ? nd_cast(n, re, SOL_F64) : NULL;
    im = im ? nd_cast(n, im, SOL_F64) : NULL;
    double s = f->inverse ? -1 : 1;
    tensor cosines = matrix(n, f, false, 1);
    tensor y = plus(n, times(n, re, cosines), times(n, im, matrix(n, f, true, s)));
    if (f->real) return nd_cast(n, nd_unsqueeze(n, y, -1), t);
    tensor z = plus(n, times(n, im, cosines), times(n, re, matrix(n, f, true, -s)));
    return nd_cast(n, nd_make(n, "Stack", IN(y, z), WITH(INT("axis", nd_rank(y)))), t);
}

/* Crops or zero-pads the last dimension to n elements. */
static tensor fit_last(struct node *n, tensor x, int64_t count)
{
    int64_t p[MOST] = {0}, q[MOST] = {0};
    if (!x || n->status || nd_size(x, -1) == count) return x;
    q[nd_rank(x) - 1] = count - nd_size(x, -1);
    return nd_make(n, "Pad", IN(x), WITH(INTS("p", nd_rank(x), p), INTS("q", nd_rank(x), q)));
}

static tensor part(struct node *n, tensor x, int i)
{
    return i < nd_size(x, -1) ? nd_make(n, "Select", IN(x), WITH(INT("axis", -1), INT("index", i))) : NULL;
}

sol_status op_dft(struct node *n)
{
    tensor x = nd_in(n, 0);
    int r = nd_rank(x);
    int64_t given = n->version < 20 ? attr_int(n, "axis", 1) : known_int(n, 2, "axis", -2);
    int axis = nd_axis_of(n, given, r);
    bool inverse = attr_flag(n, "inverse", 0), onesided = attr_flag(n, "onesided", 0);
    if (n->status) return n->status;
    if (r < 2 || axis == r - 1 || nd_size(x, -1) < 1 || nd_size(x, -1) > 2)
        return nd_invalid(n, "expected [.., length, .., 1 or 2]");
    if (n->version < 20 && n->nin > 2) return nd_invalid(n, "expected at most 2 inputs");
    if (!nd_fixed(n, nd_size(x, axis), "the length of the signal")) return n->status;
    struct fourier f = {.inverse = inverse, .half = inverse && onesided, .real = inverse && onesided};
    f.length = known_int(n, 1, "dft_length", f.half ? 2 * (nd_size(x, axis) - 1) : nd_size(x, axis));
    if (n->status || f.length < 1 || f.length > MOST_WINDOW)
        return n->status ? n->status : nd_invalid(n, "dft_length is out of range");
    f.inputs = f.half ? f.length / 2 + 1 : f.length;
    f.outputs = onesided && !inverse ? f.length / 2 + 1 : f.length;
    tensor at_end = nd_move_axis(n, x, axis, r - 2);
    tensor re = fit_last(n, part(n, at_end, 0), f.inputs), im = fit_last(n, part(n, at_end, 1), f.inputs);
    nd_give(n, 0, nd_move_axis(n, transform(n, re, im, &f), r - 2, axis));
    return n->status;
}

sol_status op_stft(struct node *n)
{
    tensor x = nd_in(n, 0), window = nd_in(n, 2);
    if (!nd_fixed(n, nd_size(x, 1), "the length of the signal")) return n->status;
    int64_t step = known_int(n, 1, "frame_step", 0);
    int64_t length = known_int(n, 3, "frame_length", window ? nd_size(window, 0) : nd_size(x, 1));
    bool onesided = attr_flag(n, "onesided", 1);
    if (n->status) return n->status;
    if (nd_rank(x) != 3 || nd_size(x, 2) < 1 || nd_size(x, 2) > 2 || step < 1 || length < 1 || length > nd_size(x, 1))
        return nd_invalid(n, "expected [N, length, 1 or 2], steps and frames that fit");
    if (window && (nd_rank(window) != 1 || nd_size(window, 0) != length))
        return nd_reject(n, "a window of another length than the frame is not supported");
    struct fourier f = {.length = length, .inputs = length, .outputs = onesided ? length / 2 + 1 : length};
    tensor parts[2] = {part(n, x, 0), part(n, x, 1)};
    for (int i = 0; i < 2; i++) {
        if (!parts[i]) continue;
        parts[i] = nd_make(n, "Windows", IN(parts[i]), WITH(INT("axis", 1), INT("n", length), INT("s", step)));
        if (window) parts[i] = nd_fn2(n, "mul", parts[i], window);
    }
    nd_give(n, 0, transform(n, parts[0], parts[1], &f));
    return n->status;
}
