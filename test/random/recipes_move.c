/* Views, reading and writing by index, resampling, sources, types, sorting. */
#include "random/recipes.h"

#include <string.h>

#define ONE(kind, needs, attrs, ...)                                                                 \
    gen_one(r, kind, needs, (int)(sizeof((struct value *[]){__VA_ARGS__}) / sizeof(struct value *)), \
            (struct value *[]){__VA_ARGS__}, attrs)

static void shuffle(struct gen *r, int64_t *at, int n)
{
    for (int i = n - 1; i > 0; i--) {
        int k = gen_below(r, i + 1);
        int64_t x = at[i];
        at[i] = at[k];
        at[k] = x;
    }
}

static bool make_permute(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_ANY, 1, 5);
    int64_t perm[SOL_MAX_DIMS];
    for (int d = 0; d < x->t->ndim; d++) perm[d] = d;
    shuffle(r, perm, x->t->ndim);
    return ONE("Permute", p->needs, format(r, "perm=%s", list(r, x->t->ndim, perm)), x) != NULL;
}

static bool make_exactly(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_ANY, 0, 5);
    int64_t shape[SOL_MAX_DIMS];
    for (int d = 0; d < x->t->ndim; d++) shape[d] = size_of(x, d);
    return ONE("Exactly", p->needs, format(r, "shape=%s", list(r, x->t->ndim, shape)), x) != NULL;
}

/* Merges neighbouring sizes, splits sizes, inserts 1. */
static bool make_reshape(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_ANY, 0, 5);
    int64_t shape[SOL_MAX_DIMS];
    int n = 0;
    for (int d = 0; d < x->t->ndim; d++) {
        int64_t size = size_of(x, d);
        if (n && gen_chance(r, 35)) {
            shape[n - 1] *= size;
            continue;
        }
        int64_t by = gen_between(r, 2, 4);
        if (size > by && size % by == 0 && n < 6 && gen_chance(r, 40)) {
            shape[n++] = gen_chance(r, 50) ? by : size / by;
            size /= shape[n - 1];
        }
        shape[n++] = size;
        if (n < 6 && gen_chance(r, 10)) shape[n++] = 1;
    }
    if (gen_chance(r, 10)) n = 0, shape[n++] = x->elements;
    if (n && x->elements && gen_chance(r, 30)) shape[gen_below(r, n)] = -1;
    return ONE("Reshape", p->needs, format(r, "shape=%s", list(r, n, shape)), x) != NULL;
}

static bool make_expand(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_ANY, 0, 4);
    int64_t shape[SOL_MAX_DIMS];
    int extra = gen_chance(r, 30) ? gen_between(r, 1, 2) : 0;
    for (int d = 0; d < extra; d++) shape[d] = gen_between(r, 1, 4);
    for (int d = 0; d < x->t->ndim; d++)
        shape[extra + d] = size_of(x, d) == 1 ? some_size(r) : gen_chance(r, 20) ? -1 : size_of(x, d);
    return ONE("Expand", p->needs, format(r, "shape=%s", list(r, extra + x->t->ndim, shape)), x) != NULL;
}

/* Ranges for some axes of x. */
static const char *some_slice(struct gen *r, const struct value *x, bool any_sign)
{
    int64_t axes[8], start[8], end[8], step[8];
    int n = 0;
    for (int d = 0; d < x->t->ndim; d++) {
        if (n && gen_chance(r, 55)) continue;
        int64_t size = size_of(x, d), a = gen_between(r, 0, (int)size), b = gen_between(r, (int)a, (int)size + 2);
        if (b == a && !r->empty) b = a + 1, a = MAX(a - 1, 0);
        axes[n] = gen_chance(r, 20) ? d - x->t->ndim : d;
        step[n] = gen_chance(r, 70) ? 1 : gen_between(r, 1, 3);
        start[n] = gen_chance(r, 20) && a < size ? a - size : a;
        end[n] = b;
        if (any_sign && gen_chance(r, 20)) {
            step[n] = -step[n];
            start[n] = gen_chance(r, 50) ? size + 3 : MIN(b, size - 1);
            end[n] = gen_chance(r, 50) ? -size - 1 : a - 1 - size;
        }
        n++;
    }
    return format(r, "axes=%s start=%s end=%s step=%s", list(r, n, axes), list(r, n, start), list(r, n, end),
                  list(r, n, step));
}

static bool make_slice(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_ANY, 1, 5);
    return ONE("Slice", p->needs, some_slice(r, x, true), x) != NULL;
}

static bool make_slice_scatter(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_REAL, 1, 4);
    const char *attrs = some_slice(r, x, false);
    int values = r->values.n, made = r->made;
    struct value *part = ONE("Slice", KEEPS_EXACT, attrs, x); /* for its shape */
    if (!part) return false;
    int64_t shape[SOL_MAX_DIMS];
    shape_of(part, shape);
    struct value *u = gen_chance(r, 50) ? new_real(r, part->t->ndim, shape) : ONE("neg", KEEPS_EXACT, "", part);
    (void)values, (void)made;
    return u && ONE("SliceScatter", p->needs, attrs, x, u);
}

static bool make_select(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_ANY, 1, 5);
    int axis = some_axis(r, x->t->ndim), size = (int)size_of(x, axis);
    if (!size) return false;
    return ONE("Select", p->needs,
               format(r, "axis=%d index=%d", axis, gen_between(r, gen_chance(r, 20) ? -size : 0, size - 1)), x) != NULL;
}

/* Tensors that differ from x only in their size along the axis. */
static bool make_concat(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_ANY, 1, 5), *in[5] = {x};
    int axis = some_axis(r, x->t->ndim), n = 1, at = axis < 0 ? axis + x->t->ndim : axis, want = gen_between(r, 1, 4);
    for (int i = r->first; i < r->values.n && n < want; i++) {
        struct value *v = r->values.at[i];
        bool fits = v->t->dtype == x->t->dtype && v->t->ndim == x->t->ndim && gen_chance(r, 60);
        for (int d = 0; fits && d < x->t->ndim; d++) fits = d == at || size_of(v, d) == size_of(x, d);
        if (fits) in[n++] = v;
    }
    while (n < want && x->t->dtype == r->real) {
        int64_t shape[SOL_MAX_DIMS];
        shape_of(x, shape);
        shape[at] = some_size(r);
        in[n++] = new_real(r, x->t->ndim, shape);
    }
    for (int i = 0; i < n; i++) { /* in any order */
        int k = gen_below(r, n);
        struct value *v = in[i];
        in[i] = in[k];
        in[k] = v;
    }
    return gen_one(r, "Concat", p->needs, n, in, format(r, "axis=%d", axis)) != NULL;
}

static bool make_stack(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_REAL, 0, 4), *in[3] = {x, x, x};
    int64_t shape[SOL_MAX_DIMS];
    shape_of(x, shape);
    int n = gen_between(r, 1, 3);
    for (int i = 1; i < n; i++)
        if (gen_chance(r, 80)) in[i] = new_real(r, x->t->ndim, shape);
    return gen_one(r, "Stack", p->needs, n, in, format(r, "axis=%d", gen_between(r, 0, x->t->ndim))) != NULL;
}

static bool make_split(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_ANY, 1, 5), *out[GEN_OUTPUTS];
    int axis = some_axis(r, x->t->ndim), n = 0;
    int64_t left = size_of(x, axis), sizes[6];
    if (!strcmp(p->kind, "Unbind"))
        return left && left <= 8 && gen_layer(r, "Unbind", p->needs, 1, &x, format(r, "axis=%d", axis), out);
    for (; n < 4 && left > 1; n++) left -= sizes[n] = gen_between(r, r->empty ? 0 : 1, (int)left - 1);
    sizes[n++] = left;
    return gen_layer(r, "Split", p->needs, 1, &x, format(r, "axis=%d sizes=%s", axis, list(r, n, sizes)), out);
}

static bool make_pad(struct gen *r, const struct recipe *p)
{
    static const char *const modes[] = {"constant", "constant", "reflect", "replicate", "circular"};
    struct value *x = pick(r, IS_ANY, 1, 5);
    const char *mode = modes[gen_below(r, COUNT_OF(modes))];
    int64_t low[SOL_MAX_DIMS], high[SOL_MAX_DIMS];
    for (int d = 0; d < x->t->ndim; d++) {
        int most = (int)MIN(size_of(x, d) - 1, 3);
        low[d] = gen_chance(r, 50) ? 0 : gen_between(r, mode[0] == 'c' && mode[1] == 'o' ? -1 : 0, MAX(most, 0));
        high[d] = gen_chance(r, 50) ? 0 : gen_between(r, mode[0] == 'c' && mode[1] == 'o' ? -1 : 0, MAX(most, 0));
    }
    const char *v = gen_chance(r, 60) ? "0.0" : "1.5";
    if (!dtype_def(x->t->dtype)->is_float) v = gen_chance(r, 60) ? "0.0" : "1.0";
    return ONE("Pad", p->needs,
               format(r, "p=%s q=%s v=%s mode=%s", list(r, x->t->ndim, low), list(r, x->t->ndim, high), v, mode),
               x) != NULL;
}

static bool make_flip(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_ANY, 1, 5);
    return ONE("Flip", p->needs, format(r, "axes=[%d]", some_axis(r, x->t->ndim)), x) != NULL;
}

static bool make_roll(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_ANY, 1, 5);
    if (gen_chance(r, 25)) return ONE("Roll", p->needs, format(r, "shifts=[%d]", gen_between(r, -9, 9)), x) != NULL;
    return ONE("Roll", p->needs, format(r, "shifts=[%d] axes=[%d]", gen_between(r, -9, 9), some_axis(r, x->t->ndim)),
               x) != NULL;
}

static bool make_tile(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_ANY, 1, 4);
    int64_t n[SOL_MAX_DIMS];
    int extra = gen_chance(r, 20);
    for (int d = 0; d < x->t->ndim + extra; d++) n[d] = gen_chance(r, 60) ? 1 : gen_between(r, 1, 3);
    return ONE("Tile", p->needs, format(r, "n=%s", list(r, x->t->ndim + extra, n)), x) != NULL;
}

static bool make_repeat(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_ANY, 1, 4);
    return ONE("RepeatInterleave", p->needs, format(r, "axis=%d n=%d", some_axis(r, x->t->ndim), gen_between(r, 1, 3)),
               x) != NULL;
}

static bool make_triangle(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_REAL, 2, 4);
    return ONE(p->kind, p->needs, format(r, "k=%d", gen_between(r, -2, 2)), x) != NULL;
}

static bool make_diagonal(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_ANY, 2, 4);
    int a = gen_below(r, x->t->ndim), b = (a + gen_between(r, 1, x->t->ndim - 1)) % x->t->ndim;
    return ONE("Diagonal", p->needs, format(r, "k=%d axis1=%d axis2=%d", gen_between(r, -2, 2), a, b), x) != NULL;
}

static bool make_diag_embed(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_REAL, 1, 3);
    return ONE("DiagEmbed", p->needs, format(r, "k=%d", gen_between(r, -2, 2)), x) != NULL;
}

static bool make_trace(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_REAL, 2, 2);
    return ONE("Trace", p->needs, "", x) != NULL;
}

static bool make_pixels(struct gen *r, const struct recipe *p)
{
    bool down = strstr(p->kind, "Unshuffle") || !strcmp(p->kind, "SpaceToDepth");
    int by = gen_between(r, 1, 3);
    int64_t shape[] = {gen_between(r, 1, 2), gen_between(r, 1, 3) * (down ? 1 : by * by),
                       gen_between(r, 1, 4) * (down ? by : 1), gen_between(r, 1, 4) * (down ? by : 1)};
    struct value *x = new_real(r, 4, shape);
    const char *attrs = format(r, "r=%d", by);
    if (!strcmp(p->kind, "DepthToSpace")) attrs = format(r, "r=%d mode=%s", by, gen_chance(r, 50) ? "DCR" : "CRD");
    if (gen_chance(r, 50)) x = ONE("relu", KEEPS_EXACT, "", x);
    return x && ONE(p->kind, p->needs, attrs, x);
}

static bool make_unfold(struct gen *r, const struct recipe *p)
{
    struct value *x = pick_image(r, gen_between(r, 1, 2));
    int n = x->t->ndim - 2;
    return ONE("Unfold", p->needs,
               format(r, "k=%s s=%s p=%s d=%s", ints(r, n, 1, 3), ints(r, n, 1, 2), ints(r, n, 0, 1),
                      gen_chance(r, 80) ? "1" : "2"),
               x) != NULL;
}

static bool make_fold(struct gen *r, const struct recipe *p)
{
    int64_t o[2] = {gen_between(r, 3, 7), gen_between(r, 3, 7)}, k[2] = {gen_between(r, 1, 3), gen_between(r, 1, 3)};
    int s = gen_between(r, 1, 2), pad = gen_below(r, 2);
    int64_t l = 1;
    for (int d = 0; d < 2; d++) l *= (o[d] + 2 * pad - k[d]) / s + 1;
    int64_t shape[] = {gen_between(r, 1, 2), gen_between(r, 1, 3) * k[0] * k[1], l};
    return ONE("Fold", p->needs, format(r, "o=%s k=%s s=%d p=%d", list(r, 2, o), list(r, 2, k), s, pad),
               new_real(r, 3, shape)) != NULL;
}

static bool make_windows(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_ANY, 1, 4);
    int axis = some_axis(r, x->t->ndim);
    return ONE("Windows", p->needs,
               format(r, "axis=%d n=%d s=%d", axis, gen_between(r, 1, (int)MAX(MIN(size_of(x, axis), 4), 1)),
                      gen_between(r, 1, 3)),
               x) != NULL;
}

/* -- reading by index */

static bool make_embedding(struct gen *r, const struct recipe *p)
{
    int64_t ws[] = {gen_between(r, 1, 9), some_size(r)}, is[] = {gen_between(r, 1, 3), gen_between(r, 1, 6)};
    int n = gen_between(r, 0, 2);
    return ONE("Embedding", p->needs, "", new_param(r, 2, ws), new_index(r, n, is, ws[0], false)) != NULL;
}

static bool make_gather(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_ANY, 1, 4);
    int axis = some_axis(r, x->t->ndim), wrap = gen_chance(r, 40);
    if (!x->elements) return false;
    int64_t shape[SOL_MAX_DIMS] = {gen_between(r, 1, 4), gen_between(r, 1, 4)};
    int n = gen_below(r, 3);
    if (!strcmp(p->kind, "GatherElements")) {
        n = x->t->ndim;
        for (int d = 0; d < n; d++) shape[d] = d == (axis < 0 ? axis + n : axis) ? gen_between(r, 1, 5) : size_of(x, d);
    }
    return ONE(p->kind, p->needs, format(r, "axis=%d wrap=%d", axis, wrap), x,
               new_index(r, n, shape, size_of(x, axis), wrap)) != NULL;
}

static bool make_gather_nd(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_ANY, 2, 4);
    if (!x->elements) return false;
    int batch = gen_below(r, 2), depth = gen_between(r, 1, x->t->ndim - batch), wrap = gen_chance(r, 40);
    int64_t least = 1000, shape[4];
    for (int d = batch; d < batch + depth; d++) least = MIN(least, size_of(x, d));
    int n = 0;
    if (batch) shape[n++] = size_of(x, 0);
    shape[n++] = gen_between(r, 1, 4);
    shape[n++] = depth;
    return ONE("GatherND", p->needs, format(r, "batch=%d wrap=%d", batch, wrap), x,
               new_index(r, n, shape, least, wrap)) != NULL;
}

static bool make_index(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_REAL, 1, 4), *in[4] = {x};
    if (!x->elements) return false;
    int64_t dims[4], shape[] = {gen_between(r, 1, 3), gen_between(r, 1, 3)};
    int n = 0, k = gen_between(r, 1, 2);
    for (int d = 0; d < x->t->ndim && n < 3; d++)
        if (gen_chance(r, 50)) {
            dims[n] = d;
            int drop = n && gen_chance(r, 30) ? 1 : 0;
            in[++n] = new_index(r, k - (drop && k == 2), shape + (drop && k == 2), size_of(x, d), true);
        }
    if (!n) return false;
    if (!strcmp(p->kind, "Index"))
        return gen_one(r, "Index", p->needs, n + 1, in, format(r, "dims=%s", list(r, n, dims))) != NULL;
    struct value *got = gen_one(r, "Index", KEEPS_EXACT, n + 1, in, format(r, "dims=%s", list(r, n, dims))), *put[6];
    if (!got) return false;
    put[0] = x;
    put[1] = ONE("neg", KEEPS_EXACT, "", got);
    for (int i = 1; i <= n; i++) put[i + 1] = in[i];
    static const char *const modes[] = {"none", "add"};
    return put[1] && gen_one(r, "IndexPut", p->needs, n + 2, put,
                             format(r, "dims=%s mode=%s", list(r, n, dims), modes[gen_below(r, 2)]));
}

static bool make_one_hot(struct gen *r, const struct recipe *p)
{
    int64_t shape[] = {gen_between(r, 1, 4), gen_between(r, 1, 4)};
    static const char *const types[] = {"i64", "f32", "bool", "i32"};
    struct value *i = gen_source(r, TENSOR_INPUT, SOL_I64, gen_below(r, 3), shape, FILL_RANGE, -1, 6);
    return ONE("OneHot", p->needs,
               format(r, "n=%d to=%s", gen_between(r, 1, 7), r->real == SOL_F64 ? "f64" : types[gen_below(r, 4)]),
               i) != NULL;
}

static bool make_bucketize(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_REAL, 0, 3);
    int64_t n = gen_between(r, 1, 9);
    struct value *s = gen_source(r, TENSOR_PARAM, r->real, 1, &n, FILL_SORTED, -2, 2);
    return ONE("Bucketize", x->exact ? p->needs : NEED_EXACT, format(r, "right=%d", gen_chance(r, 50)), x, s) != NULL;
}

/* -- writing by index */

static bool make_scatter(struct gen *r, const struct recipe *p)
{
    static const char *const modes[] = {"none", "add", "mul", "max", "min"};
    struct value *x = pick(r, IS_REAL, 1, 4);
    if (!x->elements) return false;
    int64_t shape[SOL_MAX_DIMS];
    const char *mode = modes[gen_below(r, 5)];
    if (!strcmp(p->kind, "ScatterND")) {
        int64_t is[] = {gen_between(r, 1, 3), 1};
        shape_of(x, shape);
        shape[0] = is[0];
        return ONE("ScatterND", p->needs, format(r, "mode=%s", mode), x, new_index(r, 2, is, size_of(x, 0), true),
                   new_real(r, x->t->ndim, shape)) != NULL;
    }
    int axis = some_axis(r, x->t->ndim);
    for (int d = 0; d < x->t->ndim; d++) shape[d] = gen_between(r, 1, (int)size_of(x, d));
    return ONE("ScatterElements", p->needs, format(r, "axis=%d mode=%s", axis, mode), x,
               new_index(r, x->t->ndim, shape, size_of(x, axis), true), new_real(r, x->t->ndim, shape)) != NULL;
}

/* -- resampling */

static bool make_resize(struct gen *r, const struct recipe *p)
{
    static const char *const modes[] = {"nearest", "linear", "linear", "cubic"};
    static const char *const coords[] = {"half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric",
                                         "half_pixel_symmetric"};
    static const char *const rounds[] = {"floor", "ceil", "round_prefer_floor", "round_prefer_ceil"};
    struct value *x = pick_image(r, gen_between(r, 1, 2));
    int64_t size[SOL_MAX_DIMS];
    shape_of(x, size);
    for (int d = 2; d < x->t->ndim; d++) size[d] = gen_between(r, 1, (int)MIN(2 * size_of(x, d) + 1, 14));
    const char *mode = modes[gen_below(r, 4)];
    bool nearest = mode[0] == 'n';
    const char *attrs = format(r, "size=%s mode=%s coord=%s round=%s", list(r, x->t->ndim, size), mode,
                               coords[gen_below(r, 5)], rounds[gen_below(r, 4)]);
    if (!nearest && gen_chance(r, 25)) attrs = format(r, "%s antialias=1", attrs);
    if (mode[0] == 'c' && gen_chance(r, 25)) attrs = format(r, "%s exclude=1 a=-0.5", attrs);
    return ONE("Resize", p->needs | (nearest ? KEEPS_EXACT : NEED_FINITE), attrs, x) != NULL;
}

static bool make_grid_sample(struct gen *r, const struct recipe *p)
{
    static const char *const modes[] = {"linear", "linear", "cubic"}, *const pads[] = {"zeros", "border", "reflection"};
    struct value *x = pick_image(r, 2);
    if (x->special || x->t->ndim != 4) return false;
    int64_t shape[] = {size_of(x, 0), gen_between(r, 1, 5), gen_between(r, 1, 5), 2};
    struct value *grid = gen_source(r, TENSOR_INPUT, r->real, 4, shape, FILL_RANGE, -1.3, 1.3);
    return ONE("GridSample", p->needs,
               format(r, "mode=%s pad=%s align=%d", modes[gen_below(r, 3)], pads[gen_below(r, 3)], gen_chance(r, 50)),
               x, grid) != NULL;
}

static bool make_affine_grid(struct gen *r, const struct recipe *p)
{
    int64_t n = gen_between(r, 1, 2), d = gen_between(r, 2, 3), shape[] = {n, d, d + 1}, size[3];
    for (int i = 0; i < d; i++) size[i] = gen_between(r, 1, 5);
    return ONE("AffineGrid", p->needs, format(r, "size=%s align=%d", list(r, (int)d, size), gen_chance(r, 50)),
               new_real(r, 3, shape)) != NULL;
}

/* -- sources, types, order */

static bool make_source(struct gen *r, const struct recipe *p)
{
    const char *to = r->real == SOL_F64 ? "f64" : gen_chance(r, 70) ? "f32" : "i64", *attrs = "";
    int64_t shape[] = {gen_between(r, 1, 5), gen_between(r, 1, 5)};
    if (!strcmp(p->kind, "Fill"))
        attrs = format(r, "shape=%s v=%d.0 to=%s", list(r, 2, shape), gen_between(r, -3, 3), to);
    if (!strcmp(p->kind, "Range"))
        attrs = format(r, "n=%d start=%d.0 step=%d.0 to=%s", gen_between(r, 1, 9), gen_between(r, -3, 3),
                       gen_between(r, -2, 2), to);
    if (!strcmp(p->kind, "Sizes")) attrs = format(r, "sizes=%s to=%s", list(r, 2, shape), to);
    if (!strcmp(p->kind, "Eye"))
        attrs =
            format(r, "n=%d m=%d k=%d to=%s", gen_between(r, 1, 6), gen_between(r, 1, 6), gen_between(r, -2, 2), to);
    return gen_one(r, p->kind, p->needs, 0, NULL, attrs) != NULL;
}

static bool make_random(struct gen *r, const struct recipe *p)
{
    struct value *seed = gen_source(r, TENSOR_INPUT, SOL_I64, 0, NULL, FILL_RANGE, 0, 1000);
    const char *to = r->real == SOL_F64 ? "f64" : "f32";
    return ONE("Rand", p->needs, format(r, "n=%d k=%d to=%s", gen_between(r, 1, 40), gen_below(r, 99), to), seed) !=
           NULL;
}

static bool make_cast(struct gen *r, const struct recipe *p)
{
    static const char *const types[] = {"f32", "i64", "i32", "bool", "u8", "i8"};
    struct value *x = pick(r, IS_ANY, 0, 5);
    const char *to = types[gen_below(r, COUNT_OF(types))];
    if (r->real == SOL_F64 && to[0] == 'f') to = "f64";
    bool real = dtype_def(x->t->dtype)->is_float;
    if (real && to[0] != 'f' && !x->exact) return false;
    return ONE("Cast", p->needs, format(r, "to=%s", to), x) != NULL;
}

static bool make_same(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_ANY, 0, 5);
    return ONE(p->kind, p->needs, "", x) != NULL;
}

static bool make_sort(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_REAL, 1, 4), *out[GEN_OUTPUTS];
    int axis = some_axis(r, x->t->ndim);
    const char *attrs = format(r, "axis=%d down=%d", axis, gen_chance(r, 50));
    if (!strcmp(p->kind, "TopK"))
        attrs = format(r, "axis=%d largest=%d k=%d", axis, gen_chance(r, 50),
                       gen_between(r, 1, (int)MAX(size_of(x, axis), 1)));
    return gen_layer(r, p->kind, p->needs, 1, &x, attrs, out);
}

const struct recipe move_recipes[] = {
    {"Permute", make_permute, KEEPS_EXACT, 14, NULL},
    {"Reshape", make_reshape, KEEPS_EXACT, 18, NULL},
    {"Exactly", make_exactly, KEEPS_EXACT, 1, NULL},
    {"Expand", make_expand, KEEPS_EXACT, 6, NULL},
    {"Slice", make_slice, KEEPS_EXACT, 10, NULL},
    {"SliceScatter", make_slice_scatter, KEEPS_EXACT, 3, NULL},
    {"Select", make_select, KEEPS_EXACT, 5, NULL},
    {"Concat", make_concat, KEEPS_EXACT, 12, NULL},
    {"Stack", make_stack, KEEPS_EXACT, 4, NULL},
    {"Split", make_split, KEEPS_EXACT, 6, NULL},
    {"Unbind", make_split, KEEPS_EXACT, 3, NULL},
    {"Pad", make_pad, KEEPS_EXACT, 6, NULL},
    {"Flip", make_flip, KEEPS_EXACT, 3, NULL},
    {"Roll", make_roll, KEEPS_EXACT, 3, NULL},
    {"Tile", make_tile, KEEPS_EXACT, 3, NULL},
    {"RepeatInterleave", make_repeat, KEEPS_EXACT, 3, NULL},
    {"Tril", make_triangle, KEEPS_EXACT, 2, NULL},
    {"Triu", make_triangle, KEEPS_EXACT, 2, NULL},
    {"Diagonal", make_diagonal, KEEPS_EXACT, 2, NULL},
    {"DiagEmbed", make_diag_embed, KEEPS_EXACT, 2, NULL},
    {"Trace", make_trace, KEEPS_EXACT, 1, NULL},
    {"PixelShuffle", make_pixels, KEEPS_EXACT, 2, NULL},
    {"PixelUnshuffle", make_pixels, KEEPS_EXACT, 2, NULL},
    {"DepthToSpace", make_pixels, KEEPS_EXACT, 2, NULL},
    {"SpaceToDepth", make_pixels, KEEPS_EXACT, 2, NULL},
    {"Unfold", make_unfold, KEEPS_EXACT, 3, NULL},
    {"Fold", make_fold, KEEPS_EXACT, 2, NULL},
    {"Windows", make_windows, KEEPS_EXACT, 2, NULL},
    {"Embedding", make_embedding, KEEPS_EXACT, 3, NULL},
    {"Gather", make_gather, KEEPS_EXACT, 4, NULL},
    {"GatherElements", make_gather, KEEPS_EXACT, 2, NULL},
    {"GatherND", make_gather_nd, KEEPS_EXACT, 2, NULL},
    {"Index", make_index, KEEPS_EXACT, 3, NULL},
    {"IndexPut", make_index, KEEPS_EXACT, 2, NULL},
    {"OneHot", make_one_hot, KEEPS_EXACT, 2, NULL},
    {"Bucketize", make_bucketize, 0, 2, NULL},
    {"ScatterElements", make_scatter, KEEPS_EXACT, 2, NULL},
    {"ScatterND", make_scatter, KEEPS_EXACT, 2, NULL},
    {"Resize", make_resize, 0, 5, NULL},
    {"GridSample", make_grid_sample, NEED_FINITE, 3, NULL},
    {"AffineGrid", make_affine_grid, NEED_FINITE, 1, NULL},
    {"Fill", make_source, KEEPS_EXACT, 2, NULL},
    {"Range", make_source, KEEPS_EXACT, 2, NULL},
    {"Sizes", make_source, KEEPS_EXACT, 1, NULL},
    {"Eye", make_source, KEEPS_EXACT, 1, NULL},
    {"Rand", make_random, 0, 2, NULL},
    {"Cast", make_cast, KEEPS_EXACT, 5, NULL},
    {"Identity", make_same, KEEPS_EXACT, 1, NULL},
    {"Dropout", make_same, KEEPS_EXACT, 1, NULL},
    {"Sort", make_sort, NEED_EXACT | KEEPS_EXACT, 2, NULL},
    {"TopK", make_sort, NEED_EXACT | KEEPS_EXACT, 2, NULL},
    {NULL, NULL, 0, 0, NULL},
};
