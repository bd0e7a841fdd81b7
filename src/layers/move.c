/* Definitions of views of one input: output dimension i has index variable i, and each input dimension gets an index
 * over those index variables. */
#include <stdlib.h>
#include <string.h>

#include "layers/build.h"

static sol_status too_many(struct sol_ctx *ctx, const struct layer_def *def, int n)
{
    return ctx_fail(ctx, SOL_ERR_UNSUPPORTED, "%s: expected at most %d dimensions, got %d", def->name, SOL_MAX_DIMS, n);
}

BUILDER(build_permute)
{
    (void)nin;
    int n = in->ndim, from[SOL_MAX_DIMS] = {0};
    bool seen[SOL_MAX_DIMS] = {false};
    int64_t shape[SOL_MAX_DIMS];
    if (attr_length(attrs, "perm") != n)
        return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: perm: expected %d axes, got %d", def->name, n,
                        attr_length(attrs, "perm"));
    TRY(axes_attr(arena_ctx(a), def, attrs, "perm", n, seen));
    for (int d = 0; d < n; d++) {
        int axis = (int)attrs_int(attrs, "perm", d, 0);
        if (axis < 0) axis += n;
        from[axis] = d;
        shape[d] = in->shape[axis];
    }
    put_copy(out, in, n, shape);
    for (int d = 0; d < n; d++) text_put(out, " %s", ivar(from[d]));
    text_put(out, "]");
    return SOL_OK;
}

/* -- reshape */

static sol_status reshape_sizes(struct sol_ctx *ctx, const struct layer_def *def, const struct opdef_input *in,
                                const struct attrs *attrs, int *out_n, int64_t *shape)
{
    int n = attr_length(attrs, "shape"), open = -1;
    int64_t all = product(in->shape, in->ndim), known = 1;
    if (n > SOL_MAX_DIMS) return too_many(ctx, def, n);
    for (int d = 0; d < n; d++) {
        shape[d] = attrs_int(attrs, "shape", d, 0);
        if (shape[d] == -1 && open < 0) {
            open = d;
            continue;
        }
        if (shape[d] < 0 || (shape[d] && known > ((int64_t)1 << 47) / shape[d]))
            return ctx_fail(ctx, SOL_ERR_INVALID, "%s: shape: size %lld at %d makes no sense", def->name,
                            (long long)shape[d], d);
        known *= shape[d];
    }
    if (open >= 0) shape[open] = known && all % known == 0 ? all / known : known ? -1 : 0;
    if ((open >= 0 && shape[open] < 0) || known * (open < 0 ? 1 : shape[open]) != all)
        return ctx_fail(ctx, SOL_ERR_INVALID, "%s: shape: %lld elements do not fit the sizes, which hold %lld",
                        def->name, (long long)all, (long long)known);
    *out_n = n;
    return SOL_OK;
}

/* Input dimensions i0..i1-1 and output dimensions o0..o1-1, which have equally many elements. */
struct segment {
    int i0, i1, o0, o1;
};

/* The indices of the segment's input dimensions over its output dimensions. */
static void put_segment(struct text *out, const struct opdef_input *in, const int64_t *shape, const struct segment *s)
{
    struct text position = text_new(out->arena);
    int64_t stride = 1, terms = 0;
    for (int o = s->o1 - 1; o >= s->o0; stride *= shape[o], o--) {
        if (shape[o] == 1) continue;
        text_put(&position, terms++ ? "+" : "");
        text_put(&position, stride == 1 ? "%s" : "%s*%lld", ivar(o), (long long)stride);
    }
    stride = product(in->shape + s->i0, s->i1 - s->i0);
    bool first = true;
    for (int i = s->i0; i < s->i1; i++) {
        int64_t size = in->shape[i];
        stride /= size;
        if (size == 1 || !terms) {
            text_put(out, " 0");
            continue;
        }
        text_put(out, terms > 1 && (stride > 1 || !first) ? " (%s)" : " %s", position.at);
        if (stride > 1) text_put(out, "//%lld", (long long)stride);
        if (!first) text_put(out, "%%%lld", (long long)size);
        first = false;
    }
}

static void put_zeros(struct text *out, int n)
{
    for (int i = 0; i < n; i++) text_put(out, " 0");
}

BUILDER(build_reshape)
{
    (void)nin;
    int n = 0, i = 0, o = 0;
    int64_t shape[SOL_MAX_DIMS];
    TRY(reshape_sizes(arena_ctx(a), def, in, attrs, &n, shape));
    put_copy(out, in, n, shape);
    if (!product(in->shape, in->ndim)) { /* nothing is read */
        put_zeros(out, in->ndim);
        i = in->ndim;
    }
    while (i < in->ndim) { /* the shortest ranges of both that have equally many elements */
        int i1 = i + 1, o1 = o;
        int64_t inner = in->shape[i], outer = 1;
        while (inner != outer || (o1 == o && inner != 1)) {
            if (outer < inner)
                outer *= shape[o1++];
            else
                inner *= in->shape[i1++];
        }
        put_segment(out, in, shape, &(struct segment){i, i1, o, o1});
        i = i1;
        o = o1;
    }
    text_put(out, "]");
    return SOL_OK;
}

/* -- repeat */

BUILDER(build_expand)
{
    (void)nin;
    int n = attr_length(attrs, "shape"), lead = n - in->ndim;
    int64_t shape[SOL_MAX_DIMS];
    if (n > SOL_MAX_DIMS) return too_many(arena_ctx(a), def, n);
    if (lead < 0)
        return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: shape: expected at least %d sizes, got %d", def->name,
                        in->ndim, n);
    for (int d = 0; d < n; d++) {
        int64_t own = d < lead ? 1 : in->shape[d - lead];
        shape[d] = attrs_int(attrs, "shape", d, 0);
        if (shape[d] == -1 && d >= lead) shape[d] = own;
        if (shape[d] < 0 || (own != 1 && own != shape[d]))
            return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: dimension %d of size %lld cannot become %lld",
                            def->name, d - lead, (long long)own, (long long)shape[d]);
    }
    put_copy(out, in, n, shape);
    for (int d = 0; d < in->ndim; d++) text_put(out, " %s", in->shape[d] == 1 ? "0" : ivar(d + lead));
    text_put(out, "]");
    return SOL_OK;
}

BUILDER(build_tile)
{
    (void)nin;
    int count = attr_length(attrs, "n"), n = MAX(count, in->ndim), lead = n - in->ndim;
    int64_t shape[SOL_MAX_DIMS];
    if (n > SOL_MAX_DIMS) return too_many(arena_ctx(a), def, n);
    for (int d = 0; d < n; d++) {
        int64_t times = d < n - count ? 1 : attrs_int(attrs, "n", d - (n - count), 1),
                own = d < lead ? 1 : in->shape[d - lead];
        if (times < 0 || (own && times > ((int64_t)1 << 47) / own))
            return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: n: %lld makes no sense", def->name, (long long)times);
        shape[d] = own * times;
    }
    put_copy(out, in, n, shape);
    for (int d = 0; d < in->ndim; d++) {
        int64_t size = in->shape[d];
        if (size <= 1)
            text_put(out, " 0");
        else
            text_put(out, shape[d + lead] == size ? " %s" : " %s%%%lld", ivar(d + lead), (long long)size);
    }
    text_put(out, "]");
    return SOL_OK;
}

BUILDER(build_repeat)
{
    (void)nin;
    int axis;
    int64_t shape[SOL_MAX_DIMS], times = attrs_int(attrs, "n", 0, 1);
    TRY(axis_attr(arena_ctx(a), def, attrs, "axis", in->ndim, &axis));
    for (int d = 0; d < in->ndim; d++) shape[d] = in->shape[d];
    if (times < 0 || times > ((int64_t)1 << 47) / MAX(shape[axis], 1))
        return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: n: %lld makes no sense", def->name, (long long)times);
    shape[axis] *= times;
    put_copy(out, in, in->ndim, shape);
    for (int d = 0; d < in->ndim; d++)
        text_put(out, d == axis ? " %s//%lld" : " %s", ivar(d), (long long)MAX(times, 1));
    text_put(out, "]");
    return SOL_OK;
}

/* -- slices */

struct slice {
    int64_t start, step, size;
};

/* start:end:step of n elements, with Python's meaning. */
static struct slice python_slice(int64_t n, int64_t start, int64_t end, int64_t step)
{
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
    start = start < 0 ? MAX(start + n, low) : MIN(start, high);
    end = end < 0 ? MAX(end + n, low) : MIN(end, high);
    int64_t span = step > 0 ? end - start : start - end, by = step > 0 ? step : -step;
    return (struct slice){start, step, span > 0 ? (span - 1) / by + 1 : 0};
}

static sol_status slices(struct sol_ctx *ctx, const struct layer_def *def, const struct opdef_input *in,
                         const struct attrs *attrs, struct slice *s)
{
    bool marked[SOL_MAX_DIMS] = {false};
    int n = attr_length(attrs, "axes");
    TRY(axes_attr(ctx, def, attrs, "axes", in->ndim, marked));
    TRY(length_attr(ctx, def, attrs, "start", n));
    TRY(length_attr(ctx, def, attrs, "end", n));
    TRY(length_attr(ctx, def, attrs, "step", n));
    for (int d = 0; d < in->ndim; d++) s[d] = (struct slice){0, 1, in->shape[d]};
    for (int i = 0; i < n; i++) {
        int64_t axis = attrs_int(attrs, "axes", i, 0), step = attrs_int(attrs, "step", i, 1);
        if (axis < 0) axis += in->ndim;
        if (step == 0 || step == INT64_MIN)
            return ctx_fail(ctx, SOL_ERR_INVALID, "%s: step: expected not 0", def->name);
        s[axis] = python_slice(in->shape[axis], attrs_int(attrs, "start", i, 0), attrs_int(attrs, "end", i, 0), step);
    }
    return SOL_OK;
}

/* " A*step+start" */
static void put_strided(struct text *out, int d, int64_t step, int64_t start)
{
    text_put(out, step == 1 ? " %s" : " %s*%lld", ivar(d), (long long)step);
    if (start) text_put(out, "%+lld", (long long)start);
}

BUILDER(build_slice)
{
    (void)nin;
    struct slice s[SOL_MAX_DIMS];
    int64_t shape[SOL_MAX_DIMS];
    TRY(slices(arena_ctx(a), def, in, attrs, s));
    for (int d = 0; d < in->ndim; d++) shape[d] = s[d].size;
    put_copy(out, in, in->ndim, shape);
    for (int d = 0; d < in->ndim; d++) put_strided(out, d, s[d].size > 1 ? s[d].step : 1, s[d].size ? s[d].start : 0);
    text_put(out, "]");
    return SOL_OK;
}

BUILDER(build_select)
{
    (void)nin;
    int axis, at;
    int64_t shape[SOL_MAX_DIMS];
    TRY(axis_attr(arena_ctx(a), def, attrs, "axis", in->ndim, &axis));
    if (in->shape[axis] > INT32_MAX)
        return ctx_fail(arena_ctx(a), SOL_ERR_UNSUPPORTED, "%s: the axis is too long", def->name);
    TRY(axis_attr(arena_ctx(a), def, attrs, "index", (int)in->shape[axis], &at));
    for (int d = 0, o = 0; d < in->ndim; d++)
        if (d != axis) shape[o++] = in->shape[d];
    put_copy(out, in, in->ndim - 1, shape);
    for (int d = 0; d < in->ndim; d++) {
        if (d == axis)
            text_put(out, " %d", at);
        else
            text_put(out, " %s", ivar(d - (d > axis)));
    }
    text_put(out, "]");
    return SOL_OK;
}

/* y = u inside of the slice, else x: one read of u whose value outside is x. With a step, positions between two
 * elements of the slice are mapped far outside of u. */
BUILDER(build_slice_scatter)
{
    (void)nin;
    struct slice s[SOL_MAX_DIMS];
    TRY(slices(arena_ctx(a), def, in, attrs, s));
    TRY(rank_of(arena_ctx(a), def, in, 1, in->ndim, true));
    for (int d = 0; d < in->ndim; d++)
        if (in[1].shape[d] != s[d].size)
            return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: input 1: dimension %d: expected size %lld, got %lld",
                            def->name, d, (long long)s[d].size, (long long)in[1].shape[d]);
    text_put(out, "x[");
    put_ivars(out, 0, in->ndim);
    text_put(out, "] u[");
    put_ivars(out, INNER, in->ndim);
    text_put(out, "] -> y[");
    put_ivars(out, 0, in->ndim);
    text_put(out, "] | | | y[");
    put_ivars(out, 0, in->ndim);
    text_put(out, "] = u[");
    for (int d = 0; d < in->ndim; d++) {
        int64_t by = llabs(s[d].step), first = s[d].step > 0 ? s[d].start : s[d].start + s[d].step * (s[d].size - 1);
        struct text e = text_new(a);
        text_put(&e, first ? "(%s-%lld)" : "%s", ivar(d), (long long)first);
        const char *forward = arena_printf(a, by == 1 ? "%s" : "(%s//%lld+%s%%%lld*%lld)", e.at, (long long)by, e.at,
                                           (long long)by, (long long)(in->shape[d] + s[d].size + 1));
        if (s[d].step > 0)
            text_put(out, " %s", forward);
        else
            text_put(out, " %lld-%s", (long long)(s[d].size - 1), forward);
    }
    text_put(out, "]:x[");
    put_ivars(out, 0, in->ndim);
    text_put(out, "]");
    return SOL_OK;
}

/* -- flip, roll, pad */

BUILDER(build_flip)
{
    (void)nin;
    bool flipped[SOL_MAX_DIMS] = {false};
    TRY(axes_attr(arena_ctx(a), def, attrs, "axes", in->ndim, flipped));
    put_copy(out, in, in->ndim, in->shape);
    for (int d = 0; d < in->ndim; d++) text_put(out, flipped[d] ? " #%s-1-%s" : " %s", ivar(d), ivar(d));
    text_put(out, "]");
    return SOL_OK;
}

/* All dimensions as one: the linear position is shifted, then split again. */
static void put_flat_roll(struct text *out, const struct opdef_input *in, int64_t shift)
{
    struct text p = text_new(out->arena);
    int64_t n = product(in->shape, in->ndim), stride = n;
    for (int d = 0; d < in->ndim; d++) {
        stride /= MAX(in->shape[d], 1);
        text_put(&p, d ? "+%s*%lld" : "%s*%lld", ivar(d), (long long)stride);
    }
    stride = n;
    for (int d = 0; d < in->ndim; d++) {
        stride /= MAX(in->shape[d], 1);
        text_put(out, " ((%s+%lld)%%%lld)//%lld%%%lld", p.at, (long long)(MAX(n, 1) - floor_mod(shift, MAX(n, 1))),
                 (long long)MAX(n, 1), (long long)MAX(stride, 1), (long long)MAX(in->shape[d], 1));
    }
}

BUILDER(build_roll)
{
    (void)nin;
    int n = attr_length(attrs, "shifts"), naxes = attr_length(attrs, "axes");
    int64_t by[SOL_MAX_DIMS] = {0};
    if (naxes ? n != naxes : n != 1)
        return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: expected a shift for each axis, got %d for %d", def->name,
                        n, naxes);
    put_copy(out, in, in->ndim, in->shape);
    if (!naxes) put_flat_roll(out, in, attrs_int(attrs, "shifts", 0, 0));
    for (int i = 0; i < naxes; i++) {
        int64_t axis = attrs_int(attrs, "axes", i, 0);
        if (axis < -in->ndim || axis >= in->ndim)
            return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: axes: %lld is out of range", def->name,
                            (long long)axis);
        if (axis < 0) axis += in->ndim;
        int64_t size = MAX(in->shape[axis], 1);
        by[axis] = (by[axis] + floor_mod(attrs_int(attrs, "shifts", i, 0), size)) % size;
    }
    for (int d = 0; naxes && d < in->ndim; d++) {
        if (by[d])
            text_put(out, " (%s+%lld)%%%lld", ivar(d), (long long)(in->shape[d] - by[d]), (long long)in->shape[d]);
        else
            text_put(out, " %s", ivar(d));
    }
    text_put(out, "]");
    return SOL_OK;
}

enum { PAD_CONSTANT, PAD_REFLECT, PAD_REPLICATE, PAD_CIRCULAR };

/* The index of a dimension with n elements and padding of p in front and q behind. */
static void put_padded(struct text *out, int d, int64_t n, int64_t p, int64_t q, int mode)
{
    struct text e = text_new(out->arena);
    text_put(&e, "%s%+lld", ivar(d), (long long)-p);
    long long last = n - 1;
    if (p == 0 && q == 0)
        text_put(out, " %s", ivar(d));
    else if (mode == PAD_CONSTANT || (p <= 0 && q <= 0))
        text_put(out, " %s", e.at);
    else if (mode == PAD_REPLICATE)
        text_put(out, " min(max(%s,0),%lld)", e.at, last);
    else if (mode == PAD_CIRCULAR)
        text_put(out, " (%s)%%%lld", e.at, (long long)n);
    else if (n == 1)
        text_put(out, " 0");
    else if (p < n && q < n)
        text_put(out, " %lld-abs(%lld-abs(%s))", last, last, e.at);
    else
        text_put(out, " %lld-abs(%lld-(%s)%%%lld)", last, last, e.at, 2 * last);
}

BUILDER(build_pad)
{
    (void)nin;
    int mode, n = in->ndim;
    int64_t shape[SOL_MAX_DIMS], p[SOL_MAX_DIMS], q[SOL_MAX_DIMS];
    bool grows = false;
    TRY(word_attr(arena_ctx(a), def, attrs, "mode", "constant|reflect|replicate|circular", &mode));
    TRY(length_attr(arena_ctx(a), def, attrs, "p", n));
    TRY(length_attr(arena_ctx(a), def, attrs, "q", n));
    for (int d = 0; d < n; d++) {
        p[d] = attrs_int(attrs, "p", d, 0);
        q[d] = attrs_int(attrs, "q", d, 0);
        int64_t most = (int64_t)1 << 46;
        shape[d] = MAX(MIN(p[d], most), -most) + MAX(MIN(q[d], most), -most) + in->shape[d];
        if (shape[d] < 0 || (mode != PAD_CONSTANT && in->shape[d] == 0 && shape[d] > 0))
            return ctx_fail(arena_ctx(a), SOL_ERR_INVALID,
                            "%s: dimension %d: size %lld with %lld and %lld around it makes no sense", def->name, d,
                            (long long)in->shape[d], (long long)p[d], (long long)q[d]);
        grows |= p[d] > 0 || q[d] > 0;
    }
    put_copy(out, in, n, shape);
    for (int d = 0; d < n; d++) put_padded(out, d, in->shape[d], p[d], q[d], mode);
    text_put(out, "]");
    if (mode == PAD_CONSTANT && grows) {
        text_put(out, ":");
        put_value(out, attrs_real(attrs, "v", 0), in->dtype);
    }
    return SOL_OK;
}
