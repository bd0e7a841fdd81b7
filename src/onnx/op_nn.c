/* Convolutions and pooling: ONNX's pads, its automatic pads and its names for what SOL's rows call s, p, q, d, g. */
#include "onnx/ops.h"

#define MOST SOL_MAX_DIMS
#define MOST_SIZE (1 << 30) /* of windows, strides, pads, pixels: products of two of them fit */

struct window { /* one value for each pixel dimension */
    int n;
    int64_t k[MOST], s[MOST], d[MOST], p[MOST], q[MOST];
    bool ceil;
};

static void read_list(struct node *n, const char *name, int count, int64_t otherwise, int64_t least, int64_t *out)
{
    int got = attr_ints(n, name, MOST, out);
    for (int i = 0; i < count && got < 0; i++) out[i] = otherwise;
    if (got >= 0 && got != count) nd_invalid(n, "%s: expected %d values, got %d", name, count, got);
    for (int i = 0; i < count && !n->status; i++)
        if (out[i] < least || out[i] > MOST_SIZE) nd_invalid(n, "%s: %lld is out of range", name, (long long)out[i]);
}

/* Strides, dilations and pads of a window over x, [N, C, pixels..]; the window's size is known. */
static void read_window(struct node *n, tensor x, struct window *w, bool with_auto)
{
    int64_t pads[2 * MOST];
    read_list(n, "strides", w->n, 1, 1, w->s);
    read_list(n, "dilations", w->n, 1, 1, w->d);
    int given = attr_ints(n, "pads", 2 * MOST, pads);
    if (given >= 0 && given != 2 * w->n) nd_invalid(n, "pads: expected %d values, got %d", 2 * w->n, given);
    if (n->status) return;
    for (int i = 0; i < w->n; i++) {
        w->p[i] = given >= 0 ? pads[i] : 0;
        w->q[i] = given >= 0 ? pads[w->n + i] : 0;
        if (w->p[i] < 0 || w->q[i] < 0 || w->p[i] > MOST_SIZE || w->q[i] > MOST_SIZE) {
            nd_reject(n, "negative or huge pads are not supported");
            return;
        }
    }
    w->ceil = attr_flag(n, "ceil_mode", 0);
    const char *mode = with_auto ? attr_text(n, "auto_pad", "NOTSET") : "NOTSET";
    bool upper = !strcmp(mode, "SAME_UPPER"), lower = !strcmp(mode, "SAME_LOWER");
    if (!strcmp(mode, "NOTSET") || !*mode) return;
    if (!upper && !lower && strcmp(mode, "VALID")) nd_invalid(n, "auto_pad '%s' does not exist", mode);
    for (int i = 0; i < w->n && !n->status; i++) {
        const int64_t whole = nd_size(x, i + 2), span = (w->k[i] - 1) * w->d[i] + 1;
        const int64_t last = size_mul(size_sub(size_ceil_div(whole, w->s[i]), 1), w->s[i]);
        const int64_t total = upper || lower ? size_max(0, size_sub(size_add(last, span), whole)) : 0;
        if (!nd_equal(n, size_varies(total) ? size_hint(total) : total, total, "the automatic padding")) return;
        w->p[i] = upper ? total / 2 : total - total / 2;
        w->q[i] = total - w->p[i];
        if (upper || lower) w->ceil = false;
    }
}

static bool read_kernel(struct node *n, tensor x, struct window *w)
{
    w->n = nd_rank(x) - 2;
    if (!n->status && w->n < 1) nd_invalid(n, "expected 3 dimensions or more, got %d", nd_rank(x));
    if (!n->status && !attr_given(n, "kernel_shape")) nd_invalid(n, "kernel_shape is missing");
    if (!n->status) read_list(n, "kernel_shape", w->n, 1, 1, w->k);
    for (int i = 0; i < w->n && !n->status; i++)
        if (nd_above(nd_size(x, i + 2), MOST_SIZE)) nd_reject(n, "more than 2^30 pixels in a row are not supported");
    return !n->status;
}

/* -- convolutions */

static bool read_conv(struct node *n, tensor x, tensor w, struct window *c)
{
    c->n = nd_rank(x) - 2;
    if (n->status) return false;
    if (c->n < 1 || nd_rank(w) != nd_rank(x)) {
        nd_invalid(n, "expected an input and weights of 3 dimensions or more, got %d and %d", nd_rank(x), nd_rank(w));
        return false;
    }
    for (int i = 0; i < c->n; i++) {
        c->k[i] = nd_size(w, i + 2);
        if (!nd_fixed(n, c->k[i], "the size of the window")) return false;
        if (c->k[i] > MOST_SIZE || nd_above(nd_size(x, i + 2), MOST_SIZE))
            nd_reject(n, "more than 2^30 pixels in a row are not supported");
    }
    int64_t kernel[MOST];
    int given = attr_ints(n, "kernel_shape", MOST, kernel);
    for (int i = 0; i < given && i < c->n; i++)
        if (kernel[i] != c->k[i]) nd_invalid(n, "kernel_shape does not fit the weights");
    return !n->status;
}

/* The channels of x must be a number: those that the weights want. */
static bool channels_fixed(struct node *n, tensor x, tensor w, int64_t groups, int dim)
{
    if (!nd_fixed(n, nd_size(w, 0), "the number of channels") || !nd_fixed(n, nd_size(w, 1), "the number of channels"))
        return false;
    if (!size_varies(nd_size(x, 1))) return true;
    return nd_equal(n, nd_size(x, 1), nd_size(w, dim) * (dim ? MIN(groups, MOST_SIZE) : 1), "the number of channels");
}

sol_status op_conv(struct node *n)
{
    struct window c;
    tensor x = nd_in(n, 0), w = nd_in(n, 1), b = nd_in(n, 2);
    if (!read_conv(n, x, w, &c)) return n->status;
    read_window(n, x, &c, true);
    int64_t groups = attr_int(n, "group", 1);
    if (!channels_fixed(n, x, w, groups, 1)) return n->status;
    bool fits = groups >= 1 && groups <= MOST_SIZE && nd_size(x, 1) % groups == 0 && nd_size(w, 0) % groups == 0;
    if (!n->status && (!fits || nd_size(w, 1) != nd_size(x, 1) / groups))
        return nd_invalid(n, "%lld groups, %lld channels and weights [%lld, %lld, ..] do not fit", (long long)groups,
                          (long long)nd_size(x, 1), (long long)nd_size(w, 0), (long long)nd_size(w, 1));
    nd_give(n, 0,
            nd_make(n, "Conv", b ? 3 : 2, (tensor[]){x, w, b},
                    WITH(INTS("s", c.n, c.s), INTS("p", c.n, c.p), INTS("q", c.n, c.q), INTS("d", c.n, c.d),
                         INT("g", groups))));
    return n->status;
}

/* A given output shape determines the pads; if it is larger than the result, zeros are appended. */
static void pads_for_shape(struct node *n, tensor x, struct window *c, const int64_t *behind, const int64_t *shape)
{
    bool upper = attr_is(n, "auto_pad", "NOTSET", "SAME_UPPER");
    for (int i = 0; i < c->n; i++) {
        const int64_t last = size_mul(c->s[i], size_sub(nd_size(x, i + 2), 1));
        const int64_t total = size_sub(size_add(last, behind[i] + (c->k[i] - 1) * c->d[i] + 1), shape[i]);
        if (!nd_fixed(n, total, "the padding for this output")) return;
        c->p[i] = total < 0 ? 0 : upper ? total / 2 : total - total / 2;
        c->q[i] = total - c->p[i];
    }
}

sol_status op_conv_transpose(struct node *n)
{
    struct window c;
    int64_t behind[MOST], shape[MOST];
    tensor x = nd_in(n, 0), w = nd_in(n, 1), b = nd_in(n, 2);
    if (!read_conv(n, x, w, &c)) return n->status;
    read_window(n, x, &c, false);
    read_list(n, "output_padding", c.n, 0, 0, behind);
    int64_t groups = attr_int(n, "group", 1);
    const char *mode = attr_text(n, "auto_pad", "NOTSET");
    int given = attr_ints(n, "output_shape", MOST, shape);
    if (n->status || !channels_fixed(n, x, w, groups, 0)) return n->status;
    if (groups < 1 || groups > MOST_SIZE || nd_size(x, 1) % groups || nd_size(w, 0) != nd_size(x, 1))
        return nd_invalid(n, "%lld groups, %lld channels and weights of %lld channels do not fit", (long long)groups,
                          (long long)nd_size(x, 1), (long long)nd_size(w, 0));
    if (given == c.n + 2) memmove(shape, shape + 2, (size_t)c.n * sizeof *shape);
    if (given >= 0 && given != c.n && given != c.n + 2)
        return nd_invalid(n, "output_shape: expected %d values, got %d", c.n, given);
    for (int i = 0; i < c.n && given >= 0; i++)
        if (shape[i] < 0 || shape[i] > MOST_SIZE)
            return nd_invalid(n, "output_shape: %lld is out of range", (long long)shape[i]);
    bool same = !strncmp(mode, "SAME", 4);
    for (int i = 0; i < c.n && same && given < 0; i++) shape[i] = size_mul(nd_size(x, i + 2), c.s[i]);
    if (given >= 0 || same) pads_for_shape(n, x, &c, behind, shape);
    if (!strcmp(mode, "VALID"))
        for (int i = 0; i < c.n; i++) c.p[i] = c.q[i] = 0;
    int64_t p[MOST] = {0}, q[MOST] = {0}; /* zeros to add, all dimensions */
    bool more = false;
    for (int i = 0; i < c.n; i++) {
        more |= c.p[i] < 0 || c.q[i] < 0;
        p[i + 2] = MAX(0, -c.p[i]), q[i + 2] = MAX(0, -c.q[i]);
        c.p[i] = MAX(0, c.p[i]), c.q[i] = MAX(0, c.q[i]);
    }
    tensor y = nd_make(n, "ConvT", b && !more ? 3 : 2, (tensor[]){x, w, b},
                       WITH(INTS("s", c.n, c.s), INTS("p", c.n, c.p), INTS("q", c.n, c.q), INTS("d", c.n, c.d),
                            INT("g", groups), INTS("o", c.n, behind)));
    if (more) {
        int64_t channels[MOST] = {1, nd_size(b, 0), 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
        y = nd_make(n, "Pad", IN(y), WITH(INTS("p", c.n + 2, p), INTS("q", c.n + 2, q)));
        if (b) y = nd_fn2(n, "add", y, nd_reshape(n, b, c.n + 2, channels));
    }
    nd_give(n, 0, y);
    return n->status;
}

/* Adds windows, given as columns, into the padded image, and removes the pads. */
sol_status op_col2im(struct node *n)
{
    int64_t image[MOST], whole[MOST];
    struct window w;
    tensor x = nd_in(n, 0);
    w.n = known_ints(n, 1, "image_shape", MOST - 2, image);
    int count = known_ints(n, 2, "block_shape", MOST - 2, w.k);
    if (!n->status && (count != w.n || nd_rank(x) != 3))
        return nd_invalid(n, "expected [N, C*block, L] and as many sizes as dimensions");
    read_window(n, x, &w, false);
    if (n->status) return n->status;
    for (int i = 0; i < w.n; i++) {
        if (!nd_fixed(n, image[i], "image_shape") || !nd_fixed(n, w.k[i], "block_shape")) return n->status;
        if (image[i] < 0 || image[i] > MOST_SIZE || w.k[i] < 1 || w.k[i] > MOST_SIZE)
            return nd_invalid(n, "a size is out of range");
        whole[i] = image[i] + w.p[i] + w.q[i];
    }
    tensor y = nd_make(n, "Fold", IN(x),
                       WITH(INTS("o", w.n, whole), INTS("k", w.n, w.k), INTS("s", w.n, w.s), INTS("d", w.n, w.d)));
    for (int i = 0; i < w.n; i++) y = nd_slice(n, y, i + 2, w.p[i], w.p[i] + image[i]);
    nd_give(n, 0, y);
    return n->status;
}

/* -- pooling */

#define WINDOW(w)                                                                                       \
    INTS("k", (w).n, (w).k), INTS("s", (w).n, (w).s), INTS("p", (w).n, (w).p), INTS("q", (w).n, (w).q), \
        INTS("d", (w).n, (w).d), INT("c", (w).ceil)

sol_status op_max_pool(struct node *n)
{
    struct window w;
    tensor x = nd_in(n, 0), out[2] = {0};
    if (!read_kernel(n, x, &w)) return n->status;
    read_window(n, x, &w, true);
    bool columns = attr_flag(n, "storage_order", 0);
    if (nd_wants(n, 1))
        nd_make_all(n, &(struct nd_layer){"MaxPoolAt", IN(x), WITH(WINDOW(w), INT("whole", 1))}, 2, out);
    else
        out[0] = nd_make(n, "MaxPool", IN(x), WITH(WINDOW(w)));
    if (nd_wants(n, 1) && columns) return nd_reject(n, "storage_order=1 is not supported");
    nd_give(n, 0, out[0]);
    nd_give(n, 1, out[1]);
    return n->status;
}

sol_status op_average_pool(struct node *n)
{
    struct window w;
    tensor x = nd_in(n, 0);
    if (!read_kernel(n, x, &w)) return n->status;
    read_window(n, x, &w, true);
    bool counted = attr_flag(n, "count_include_pad", 0);
    nd_give(n, 0, nd_make(n, "AvgPool", IN(x), WITH(WINDOW(w), INT("pads", counted))));
    return n->status;
}

sol_status op_lp_pool(struct node *n)
{
    struct window w;
    tensor x = nd_in(n, 0);
    int64_t p = attr_int(n, "p", 2);
    if (p < 1) return n->status ? n->status : nd_invalid(n, "p: expected 1 or more, got %lld", (long long)p);
    if (!read_kernel(n, x, &w)) return n->status;
    read_window(n, x, &w, true);
    nd_give(n, 0, nd_make(n, "LpPool", IN(x), WITH(WINDOW(w), REAL("n", (double)p))));
    return n->status;
}

sol_status op_global_pool(struct node *n)
{
    int64_t axes[MOST];
    tensor x = nd_in(n, 0);
    for (int i = 2; i < nd_rank(x); i++) axes[i - 2] = i;
    if (nd_rank(x) < 3)
        return n->status ? n->status : nd_invalid(n, "expected 3 dimensions or more, got %d", nd_rank(x));
    int count = nd_rank(x) - 2;
    if (strcmp(n->op->kind, "LpNorm")) {
        nd_give(n, 0, nd_reduce(n, n->op->kind, x, count, axes, true));
        return n->status;
    }
    int64_t p = attr_int(n, "p", 2);
    if (p < 1) return n->status ? n->status : nd_invalid(n, "p: expected 1 or more, got %lld", (long long)p);
    nd_give(n, 0, nd_make(n, "LpNorm", IN(x), WITH(REAL("n", (double)p), INTS("axes", count, axes), INT("keep", 1))));
    return n->status;
}

/* Positions refer to the whole output, whose size follows from the window and strides; a given shape appends zeros. */
sol_status op_max_unpool(struct node *n)
{
    struct window w;
    int64_t shape[MOST], given[MOST], none[MOST] = {0};
    tensor x = nd_in(n, 0), at = nd_in(n, 1);
    if (!read_kernel(n, x, &w)) return n->status;
    read_window(n, x, &w, false);
    int r = nd_shape_of(x, shape);
    for (int i = 0; i < r; i++)
        if (!nd_fixed(n, shape[i], "a size of its input")) return n->status;
    for (int i = 0; i < w.n; i++) shape[i + 2] = (shape[i + 2] - 1) * w.s[i] + w.k[i] - w.p[i] - w.q[i];
    if (n->status) return n->status;
    for (int i = 0; i < r; i++)
        if (shape[i] < 0 || (i > 1 && shape[i] > MOST_SIZE)) return nd_invalid(n, "the output's size is out of range");
    int64_t flat = nd_elements(x), all;
    TRY(shape_elements(n->r->ctx, r, shape, &all));
    tensor y = nd_fill(n, nd_type_of(x), 1, &all, 0);
    y = nd_make(n, "ScatterElements", IN(y, nd_reshape(n, at, 1, &flat), nd_reshape(n, x, 1, &flat)),
                WITH(INT("axis", 0)));
    y = nd_reshape(n, y, r, shape);
    if (nd_has(n, 2)) {
        if (known_ints(n, 2, "output_shape", MOST, given) != r)
            return nd_invalid(n, "output_shape: expected %d values", r);
        for (int i = 0; i < r; i++) {
            if (given[i] < shape[i]) return nd_reject(n, "an output_shape smaller than the windows is not supported");
            given[i] -= shape[i];
        }
        y = nd_make(n, "Pad", IN(y), WITH(INTS("p", r, none), INTS("q", r, given)));
    }
    nd_give(n, 0, y);
    return n->status;
}
