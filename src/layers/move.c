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
        if (shape[d] < 0 || size_mul(known, shape[d]) == SIZE_BAD ||
            (!size_varies(known) && !size_varies(shape[d]) && size_mul(known, shape[d]) > SIZE_POISON))
            return ctx_fail(ctx, SOL_ERR_INVALID, "%s: shape: size %lld at %d makes no sense", def->name,
                            (long long)shape[d], d);
        known = size_mul(known, shape[d]);
    }
    if (open >= 0) shape[open] = known ? size_exact_div(all, known) : 0;
    const int64_t holds = open < 0 ? known : size_mul(known, shape[open]);
    if (holds != all)
        return ctx_unequal(ctx, all, open < 0 ? known : -1,
                           ctx_fail(ctx, SOL_ERR_INVALID,
                                    "%s: shape: %lld elements do not fit the sizes, which hold "
                                    "%lld%s",
                                    def->name, (long long)all, (long long)known,
                                    open < 0 ? "" : " or a multiple of that"));
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
    for (int o = s->o1 - 1; o >= s->o0; stride = size_mul(stride, shape[o]), o--) {
        if (shape[o] == 1) continue;
        text_put(&position, terms++ ? "+" : "");
        text_put(&position, stride == 1 ? "%s" : "%s*%lld", ivar(o), (long long)stride);
    }
    bool first = true;
    for (int i = s->i0; i < s->i1; i++) {
        int64_t size = in->shape[i];
        stride = product(in->shape + i + 1, s->i1 - i - 1);
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

/* The shortest ranges from i0 and o0 on that have equally many elements. There is one where all have: products of the
 * sizes up to the end are equal, and none is 0. */
static struct segment next_segment(const struct opdef_input *in, int n, const int64_t *shape, int i0, int o0)
{
    for (int i1 = i0 + 1; i1 < in->ndim; i1++) {
        const int64_t inner = product(in->shape + i0, i1 - i0);
        for (int o1 = o0; o1 <= n; o1++)
            if ((o1 > o0 || inner == 1) && product(shape + o0, o1 - o0) == inner)
                return (struct segment){i0, i1, o0, o1};
    }
    return (struct segment){i0, in->ndim, o0, n};
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
    while (i < in->ndim) {
        const struct segment s = next_segment(in, n, shape, i, o);
        put_segment(out, in, shape, &s);
        i = s.i1;
        o = s.o1;
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
            return ctx_unequal(arena_ctx(a), own, shape[d],
                               ctx_fail(arena_ctx(a), SOL_ERR_INVALID,
                                        "%s: dimension %d of size %lld cannot become %lld", def->name, d - lead,
                                        (long long)own, (long long)shape[d]));
    }
    put_copy(out, in, n, shape);
    for (int d = 0; d < in->ndim; d++) text_put(out, " %s", in->shape[d] == 1 ? "0" : ivar(d + lead));
    text_put(out, "]");
    return SOL_OK;
}

/* Sizes of the input that cannot be compared before the call. No element is outside, but that is not proven. */
BUILDER(build_exactly)
{
    (void)nin;
    const int n = attr_length(attrs, "shape");
    int64_t shape[SOL_MAX_DIMS];
    struct text needs = text_new(a);
    bool same = true;
    if (n != in->ndim)
        return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: shape: expected %d sizes, got %d", def->name, in->ndim, n);
    for (int d = 0; d < n; d++) {
        shape[d] = attrs_int(attrs, "shape", d, 0);
        const int64_t more = size_sub(shape[d], in->shape[d]);
        same &= shape[d] == in->shape[d];
        if (shape[d] < 0 || more == SIZE_BAD || (more && !size_varies(more)))
            return ctx_unequal(arena_ctx(a), in->shape[d], shape[d],
                               ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: dimension %d: expected size %lld, got %lld",
                                        def->name, d, (long long)shape[d], (long long)in->shape[d]));
        put_need(&needs, more);
        put_need(&needs, size_sub(0, more));
    }
    put_copy_if(out, in, n, shape, needs.at);
    put_ivars(out, 0, n);
    text_put(out, same ? "]" : "]:0");
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
        shape[d] = size_mul(own, times);
        if (times < 0 || (!size_varies(shape[d]) && shape[d] > SIZE_POISON))
            return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: n: %lld makes no sense", def->name, (long long)times);
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
    shape[axis] = size_mul(shape[axis], times);
    if (times < 0 || (!size_varies(shape[axis]) && shape[axis] > SIZE_POISON))
        return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: n: %lld makes no sense", def->name, (long long)times);
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

/* One end of a slice, clamped to low..high. Negative ones count from the end. One that varies is negative if that is
 * proven, else it must not be. */
static int64_t slice_end(int64_t n, int64_t end, int64_t low, int64_t high, struct text *needs)
{
    const bool negative = size_lt(end, 0);
    if (end <= -SIZE_POISON) return low; /* no tensor is that large */
    if (end >= SIZE_POISON && !size_varies(end)) return high;
    if (!negative) put_need(needs, end);
    return negative ? size_max(size_add(end, n), low) : size_min(end, high);
}

/* start:end:step of n elements, with Python's meaning. */
static struct slice python_slice(int64_t n, int64_t start, int64_t end, int64_t step, struct text *needs)
{
    const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : size_sub(n, 1), by = step > 0 ? step : -step;
    const int64_t from = slice_end(n, start, low, high, needs), to = slice_end(n, end, low, high, needs);
    const int64_t span = step > 0 ? size_sub(to, from) : size_sub(from, to);
    return (struct slice){from, step, size_max(size_ceil_div(span, by), 0)};
}

static sol_status slices(const struct layer_def *def, const struct opdef_input *in, const struct attrs *attrs,
                         struct slice *s, struct text *needs)
{
    struct sol_ctx *ctx = arena_ctx(needs->arena);
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
        TRY(number_of(ctx, def, "step", step));
        if (step == 0 || step == INT64_MIN)
            return ctx_fail(ctx, SOL_ERR_INVALID, "%s: step: expected not 0", def->name);
        s[axis] =
            python_slice(in->shape[axis], attrs_int(attrs, "start", i, 0), attrs_int(attrs, "end", i, 0), step, needs);
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
    struct text needs = text_new(a);
    int64_t shape[SOL_MAX_DIMS];
    TRY(slices(def, in, attrs, s, &needs));
    for (int d = 0; d < in->ndim; d++) shape[d] = s[d].size;
    put_copy_if(out, in, in->ndim, shape, needs.at);
    for (int d = 0; d < in->ndim; d++) put_strided(out, d, s[d].size > 1 ? s[d].step : 1, s[d].size ? s[d].start : 0);
    text_put(out, "]");
    return SOL_OK;
}

BUILDER(build_select)
{
    (void)nin;
    int axis;
    int64_t shape[SOL_MAX_DIMS], at = attrs_int(attrs, "index", 0, 0);
    struct text needs = text_new(a);
    TRY(axis_attr(arena_ctx(a), def, attrs, "axis", in->ndim, &axis));
    const int64_t n = in->shape[axis];
    if (!size_varies(n) && !size_varies(at) && (at < -n || at >= n))
        return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: index: expected %lld..%lld, got %lld", def->name,
                        (long long)-n, (long long)n - 1, (long long)at);
    if (size_lt(at, 0)) at = size_add(at, n);
    put_need(&needs, at);
    put_need(&needs, size_sub(size_sub(n, 1), at));
    for (int d = 0, o = 0; d < in->ndim; d++)
        if (d != axis) shape[o++] = in->shape[d];
    put_copy_if(out, in, in->ndim - 1, shape, needs.at);
    for (int d = 0; d < in->ndim; d++) {
        if (d == axis)
            text_put(out, " %lld", (long long)at);
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
    struct text needs = text_new(a);
    TRY(slices(def, in, attrs, s, &needs));
    TRY(rank_of(arena_ctx(a), def, in, 1, in->ndim, true));
    for (int d = 0; d < in->ndim; d++)
        if (in[1].shape[d] != s[d].size)
            return ctx_unequal(arena_ctx(a), s[d].size, in[1].shape[d],
                               ctx_fail(arena_ctx(a), SOL_ERR_INVALID,
                                        "%s: input 1: dimension %d: expected size %lld, got %lld", def->name, d,
                                        (long long)s[d].size, (long long)in[1].shape[d]));
    text_put(out, "x[");
    put_ivars(out, 0, in->ndim);
    text_put(out, "] u[");
    put_ivars(out, INNER, in->ndim);
    text_put(out, "] -> y[");
    put_ivars(out, 0, in->ndim);
    text_put(out, "] |%s | | y[", needs.at);
    put_ivars(out, 0, in->ndim);
    text_put(out, "] = u[");
    for (int d = 0; d < in->ndim; d++) {
        int64_t by = llabs(s[d].step), first = s[d].start, last = size_sub(s[d].size, 1);
        if (s[d].step < 0) first = size_add(first, size_mul(s[d].step, last));
        struct text e = text_new(a);
        text_put(&e, first ? "(%s-%lld)" : "%s", ivar(d), (long long)first);
        const char *forward = arena_printf(a, by == 1 ? "%s" : "(%s//%lld+%s%%%lld*%lld)", e.at, (long long)by, e.at,
                                           (long long)by, (long long)size_add(size_add(in->shape[d], s[d].size), 1));
        if (s[d].step > 0)
            text_put(out, " %s", forward);
        else
            text_put(out, " %lld-%s", (long long)last, forward);
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

/* What is added to a position, before the remainder by n is taken. */
static int64_t roll_by(int64_t n, int64_t shift)
{
    return size_varies(n) || size_varies(shift) ? size_sub(0, shift) : n - floor_mod(shift, n);
}

/* All dimensions as one: the linear position is shifted, then split again. */
static void put_flat_roll(struct text *out, const struct opdef_input *in, int64_t shift)
{
    struct text p = text_new(out->arena);
    const int64_t n = MAX(product(in->shape, in->ndim), 1);
    for (int d = 0; d < in->ndim; d++) {
        const int64_t stride = product(in->shape + d + 1, in->ndim - d - 1);
        text_put(&p, d ? "+%s*%lld" : "%s*%lld", ivar(d), (long long)stride);
    }
    for (int d = 0; d < in->ndim; d++) {
        const int64_t stride = product(in->shape + d + 1, in->ndim - d - 1);
        text_put(out, " ((%s%+lld)%%%lld)//%lld%%%lld", p.at, (long long)roll_by(n, shift), (long long)n,
                 (long long)MAX(stride, 1), (long long)MAX(in->shape[d], 1));
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
        const int64_t size = MAX(in->shape[axis], 1), shift = attrs_int(attrs, "shifts", i, 0);
        const bool varies = size_varies(size) || size_varies(shift) || size_varies(by[axis]);
        by[axis] = varies ? size_add(by[axis], shift) : (by[axis] + floor_mod(shift, size)) % size;
    }
    for (int d = 0; naxes && d < in->ndim; d++) {
        if (by[d])
            text_put(out, " (%s%+lld)%%%lld", ivar(d), (long long)roll_by(in->shape[d], by[d]),
                     (long long)in->shape[d]);
        else
            text_put(out, " %s", ivar(d));
    }
    text_put(out, "]");
    return SOL_OK;
}

enum { PAD_CONSTANT, PAD_REFLECT, PAD_REPLICATE, PAD_CIRCULAR };

/* The number of elements that padding adds, within what no tensor exceeds. */
static int64_t pad_attr(const struct attrs *attrs, const char *name, int d)
{
    const int64_t n = attrs_int(attrs, name, d, 0), most = SIZE_POISON / 2;
    return size_varies(n) ? n : MAX(MIN(n, most), -most);
}

/* Are both borders smaller than the n elements that they reflect? Where a size varies, they must be. */
static bool reflects_once(int64_t n, int64_t p, int64_t q)
{
    return size_varies(n) || size_varies(p) || size_varies(q) || (p < n && q < n);
}

/* The index of a dimension with n elements and padding of p in front and q behind. */
static void put_padded(struct text *out, int d, int64_t n, int64_t p, int64_t q, int mode)
{
    struct text e = text_new(out->arena);
    text_put(&e, "%s%+lld", ivar(d), (long long)size_sub(0, p));
    const long long last = size_sub(n, 1);
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
    else if (reflects_once(n, p, q))
        text_put(out, " %lld-abs(%lld-abs(%s))", last, last, e.at);
    else
        text_put(out, " %lld-abs(%lld-(%s)%%%lld)", last, last, e.at, 2 * last);
}

BUILDER(build_pad)
{
    (void)nin;
    int mode, n = in->ndim;
    int64_t shape[SOL_MAX_DIMS], p[SOL_MAX_DIMS], q[SOL_MAX_DIMS];
    struct text needs = text_new(a);
    bool grows = false;
    TRY(word_attr(arena_ctx(a), def, attrs, "mode", "constant|reflect|replicate|circular", &mode));
    TRY(length_attr(arena_ctx(a), def, attrs, "p", n));
    TRY(length_attr(arena_ctx(a), def, attrs, "q", n));
    for (int d = 0; d < n; d++) {
        p[d] = pad_attr(attrs, "p", d);
        q[d] = pad_attr(attrs, "q", d);
        shape[d] = size_add(size_add(p[d], q[d]), in->shape[d]);
        if (mode == PAD_REFLECT && (p[d] || q[d])) {
            put_need(&needs, size_sub(size_sub(in->shape[d], 1), p[d]));
            put_need(&needs, size_sub(size_sub(in->shape[d], 1), q[d]));
        } else if (mode != PAD_CONSTANT && (p[d] > 0 || q[d] > 0)) {
            put_need(&needs, size_sub(in->shape[d], 1));
        }
        if (shape[d] < 0 || (mode != PAD_CONSTANT && in->shape[d] == 0 && shape[d] > 0))
            return ctx_fail(arena_ctx(a), SOL_ERR_INVALID,
                            "%s: dimension %d: size %lld with %lld and %lld around it makes no sense", def->name, d,
                            (long long)in->shape[d], (long long)p[d], (long long)q[d]);
        grows |= p[d] > 0 || q[d] > 0;
    }
    put_copy_if(out, in, n, shape, needs.at);
    for (int d = 0; d < n; d++) put_padded(out, d, in->shape[d], p[d], q[d], mode);
    text_put(out, "]");
    if (mode == PAD_CONSTANT && grows) {
        text_put(out, ":");
        put_value(out, attrs_real(attrs, "v", 0), in->dtype);
    }
    return SOL_OK;
}
