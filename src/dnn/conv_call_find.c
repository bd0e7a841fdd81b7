/* Finds convolutions in loops, for libraries that compute them. */
#include "dnn/conv_call.h"

#define FAIL(...) return *why = __VA_ARGS__, false

static struct axis axis_of(const struct conv_call *g, int ivar)
{
    return (struct axis){.size = g->p.loops->ivars.at[ivar].size, .n = 1, .ivar = {(uint8_t)ivar}};
}

/* -- dimensions of a */

/* What a's index variables are, by the dimensions that they are in. */
struct sorted {
    uint64_t pixels, windows;                   /* those of pixels, and of windows, in all of a */
    uint64_t plain_pixels, plain_windows, seen; /* plain: in a dimension that has no window, stride or border */
};

static bool add_pixel(struct conv_call *g, const struct conv_pixel *x, const char **why)
{
    if (g->npixel == SOL_CONV_PIXELS) FAIL("more than three dimensions of pixels");
    g->pixel[g->npixel++] = *x;
    return true;
}

/* Is it a dimension of pixels that is more than a stride in memory? */
static bool is_window(const struct sorted *s, const struct operand *a, int d)
{
    uint64_t ivars = 0;
    for (int i = 0; i < a->index[d].n; i++) ivars |= bit(a->index[d].ivar[i]);
    const bool strides = a->index[d].n == 1 && a->index[d].coef[0] != 1 && ivars & s->pixels;
    return a->border[d] || strides || (ivars & s->pixels && ivars & s->windows);
}

/* Where b is read backwards, the window is counted from its end. */
static void turn_window(struct conv_call *g, struct conv_pixel *x)
{
    struct operand *const b = &g->p.b;
    struct view *const a = &g->p.a.view;
    const int ivar = x->k.ivar[0];
    const int64_t last = x->k.size - 1;
    if (b->view.s[ivar] >= 0) return;
    x->c += x->dilation * last;
    x->dilation = -x->dilation;
    a->c += a->s[ivar] * last;
    a->s[ivar] = -a->s[ivar];
    b->view.c += b->view.s[ivar] * last;
    b->view.s[ivar] = -b->view.s[ivar];
    for (int d = 0; d < b->ndim; d++)
        for (int i = 0; i < b->index[d].n; i++)
            if (b->index[d].ivar[i] == ivar) {
                b->index[d].c += b->index[d].coef[i] * last;
                b->index[d].coef[i] = -b->index[d].coef[i];
            }
}

static bool add_window(struct conv_call *g, struct sorted *s, int d, const char **why)
{
    const struct problem *p = &g->p;
    const struct affine *f = &p->a.index[d];
    struct conv_pixel x = {.stride = 1,
                           .dilation = 1,
                           .c = f->c,
                           .border = p->a.border[d],
                           .end = p->loops->tensors.at[p->a.tensor].shape[d] + p->c->memory[p->a.tensor].halo_high[d],
                           .size = p->loops->tensors.at[p->a.tensor].shape[d],
                           .step = p->c->memory[p->a.tensor].stride[d]};
    for (int i = 0; i < f->n; i++) {
        const bool window = s->windows & bit(f->ivar[i]);
        struct axis *const to = window ? &x.k : &x.y;
        if (to->n || !((s->windows | s->pixels) & bit(f->ivar[i]))) FAIL("an index is more than a pixel and a window");
        *to = axis_of(g, f->ivar[i]);
        *(window ? &x.dilation : &x.stride) = f->coef[i];
    }
    if (x.k.n && g->result != SOL_CONV_W) turn_window(g, &x);
    if (x.stride < 1) FAIL("pixels are read backwards");
    if (x.dilation < 0 && g->result == SOL_CONV_W) FAIL("a window is read backwards");
    if (x.dilation < 0) g->result = SOL_CONV_X;
    return add_pixel(g, &x, why);
}

static bool sort_dimensions(struct conv_call *g, struct sorted *s, const char **why)
{
    const struct operand *a = &g->p.a;
    for (int d = 0; d < a->ndim; d++) {
        const bool window = is_window(s, a, d);
        for (int i = 0; i < a->index[d].n; i++) {
            const uint64_t ivar = bit(a->index[d].ivar[i]);
            if (s->seen & ivar) FAIL("an index variable is in two dimensions");
            s->seen |= ivar;
            if (!window && s->pixels & ivar) s->plain_pixels |= ivar;
            if (!window && s->windows & ivar) s->plain_windows |= ivar;
        }
        if (window && !add_window(g, s, d, why)) return false;
    }
    return true;
}

/* -- axes */

/* The only axis of a set, or none. */
static bool single_axis(const struct conv_call *g, uint64_t ivars, struct axis *out)
{
    const struct axes_rule rule = axes_rule_all(&g->p, g->p.valued);
    struct axes x;
    if (!axes_make(&g->p, ivars, &rule, &x) || x.n > 1) return false;
    if (x.n) *out = x.at[0];
    return true;
}

/* Axes of a set of one factor's index variables, those of the largest steps in a first. */
static bool plain_axes(const struct conv_call *g, uint64_t ivars, struct axes *out)
{
    const struct problem *p = &g->p;
    struct axes_rule rule = axes_rule_all(p, p->valued);
    if (ivars & p->k) rule = (struct axes_rule){.n = 2, .strides = {p->a.view.s, p->b.view.s}};
    rule.by = p->a.view.s;
    return axes_make(p, ivars, &rule, out);
}

/* The axis of channels among others, which are windows as large as their dimension: groups must fit. */
static int channels_among(const struct conv_call *g, const struct axes *x)
{
    int best = -1;
    for (int i = 0; i < x->n; i++)
        if (conv_call_groups_fit(g, &x->at[i], g->p.a.view.s) && (best < 0 || x->at[i].size > x->at[best].size))
            best = i;
    return best;
}

/* An axis of pixels with a window of 1, or of a window with one pixel. */
static bool add_plain(struct conv_call *g, const struct axis *axis, bool window, const char **why)
{
    struct conv_pixel x = {
        .stride = 1, .dilation = 1, .size = axis->size, .end = axis->size, .step = axis_stride(axis, g->p.a.view.s)};
    *(window ? &x.k : &x.y) = *axis;
    return add_pixel(g, &x, why);
}

static bool make_axes(struct conv_call *g, const struct sorted *s, const char **why)
{
    struct axes x;
    if (!single_axis(g, g->p.batch, &g->group)) FAIL("groups are not a single axis");
    if (!single_axis(g, g->p.n, &g->out)) FAIL("channels of one side are not a single axis");
    if (!plain_axes(g, s->plain_windows, &x)) FAIL("too many axes");
    const int channels = channels_among(g, &x);
    if (x.n && channels < 0) FAIL("channels do not form groups");
    for (int i = 0; i < x.n; i++)
        if (i == channels)
            g->in = x.at[i];
        else if (!add_plain(g, &x.at[i], true, why))
            return false;
    if (!plain_axes(g, s->plain_pixels, &x)) FAIL("too many axes");
    if (x.n) g->image = x.at[0];
    for (int i = 1; i < x.n; i++)
        if (!add_plain(g, &x.at[i], false, why)) return false;
    return true;
}

/* -- sizes */

/* The library adds as many zeros behind as before, and computes all results that there are then. Zeros that are in
 * memory are read as elements. It sees as much of a as there may be, so that rows are in one piece. */
static bool fit_pixel(struct conv_pixel *x, const char **why)
{
    const int64_t reach = x->dilation * (conv_axis_size(&x->k) - 1) + 1,
                  most = x->stride * conv_axis_size(&x->y) - 1 + reach;
    const int64_t end = x->c + most - (x->stride - 1);
    x->from = x->border ? MAX(x->c, 0) : x->c;
    x->pad = x->border ? MAX(-x->c, 0) : 0;
    x->in_x = MIN(most - 2 * x->pad, x->border ? x->size - x->from : x->end - x->from);
    x->in_y = conv_axis_size(&x->y);
    if (x->in_x < 1 || x->in_x + 2 * x->pad < most - (x->stride - 1)) FAIL("padding is not symmetric");
    if (x->border && (end - x->size > x->pad || x->in_x < MIN(end, x->size) - x->from))
        FAIL("padding is not symmetric");
    return true;
}

/* A gradient of the input reads a at y + c - dilation * k, which is the result of a convolution with c zeros around. */
static bool fit_gradient(struct conv_pixel *x, const char **why)
{
    const int64_t d = x->k.n ? -x->dilation : 1, reach = d * (conv_axis_size(&x->k) - 1);
    if (d < 0 || x->stride > 1) FAIL("one window is read backwards and another one is not");
    x->dilation = d;
    x->pad = x->border ? x->c : reach;
    x->from = x->c - x->pad;
    x->in_x = conv_axis_size(&x->y);
    x->in_y = x->in_x + 2 * x->pad - reach;
    if (x->border && (x->pad < 0 || x->in_y < 1 || x->in_y > x->size || x->in_y < MIN(x->size, x->in_x + x->pad)))
        FAIL("padding is not symmetric");
    return true;
}

static void order_pixels(struct conv_call *g)
{
    for (int i = 1; i < g->npixel; i++)
        for (int k = i; k > 0 && g->pixel[k - 1].step < g->pixel[k].step; k--) {
            const struct conv_pixel x = g->pixel[k];
            g->pixel[k] = g->pixel[k - 1];
            g->pixel[k - 1] = x;
        }
}

/* -- the whole */

/* No window moves, so this is a product of matrices with any number of summed axes. */
static bool is_product(const struct conv_call *g)
{
    for (int i = 0; i < g->npixel; i++) {
        const struct conv_pixel *x = &g->pixel[i];
        if ((x->y.n && x->k.n) || x->stride > 1 || x->pad) return false;
    }
    return true;
}

static bool find_as(struct conv_call *g, bool swap, bool of_w, const struct solver_context *sc, const struct cluster *c,
                    const char **why)
{
    *g = (struct conv_call){.target = sc->target, .result = of_w ? SOL_CONV_W : SOL_CONV_Y};
    struct problem *p = &g->p;
    if (!problem_make(sc->arena, c, swap, p, why)) return false;
    if (!p->k) FAIL("there is no sum");
    g->passed++;
    if (!p->a.affine || !p->b.affine || p->b.any_border) FAIL("an index is not affine, or weights are read outside");
    g->passed++;
    struct sorted s = {.pixels = of_w ? p->k : p->m, .windows = of_w ? p->m : p->k};
    if (!sort_dimensions(g, &s, why)) return false;
    g->passed++;
    if (!make_axes(g, &s, why)) return false;
    order_pixels(g);
    g->passed++;
    for (int i = 0; i < g->npixel; i++)
        if (!(g->result == SOL_CONV_X ? fit_gradient : fit_pixel)(&g->pixel[i], why)) return false;
    g->passed++;
    if (is_product(g)) FAIL("it is a product of matrices");
    g->passed++;
    return conv_call_place(g, why);
}

static int64_t window_of(const struct conv_call *g)
{
    int64_t n = 1;
    for (int i = 0; i < g->npixel; i++) n *= conv_axis_size(&g->pixel[i].k);
    return n;
}

/* A sum over pixels could be one over a window, too: the smaller one is the window. Either factor may be b. */
bool conv_call_find(const struct solver_context *sc, const struct cluster *c, struct conv_call *out, const char **why)
{
    struct conv_call g;
    const char *other;
    int passed = -1;
    bool found = false;
    *why = "the device has no library for neural networks";
    if (!sc->target->dnn) return false;
    for (int i = 0; i < 4; i++) {
        const bool good = find_as(&g, i & 1, i & 2, sc, c, &other);
        if (good && (!found || window_of(&g) < window_of(out) ||
                     (window_of(&g) == window_of(out) && g.call.direct > out->call.direct))) {
            *out = g;
            out->call.p = &out->p;
            found = true;
        }
        if (!good && g.passed > passed) passed = g.passed, *why = other;
    }
    return found;
}
