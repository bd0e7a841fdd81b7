/* Resizing and sampling. */
#include <math.h>

#include "onnx/ops.h"

#define MOST SOL_MAX_DIMS

struct resize {
    int r;
    int64_t size[MOST];
    double scale[MOST], start[MOST], end[MOST];
    const char *mode, *coord, *round;
};

static const char *one_of(struct node *n, const char *name, const char *otherwise, int count,
                          const char *const *allowed)
{
    const char *text = attr_text(n, name, otherwise);
    for (int i = 0; i < count; i++)
        if (!strcmp(text, allowed[i])) return allowed[i];
    nd_reject(n, "%s '%.60s' is not supported", name, text);
    return allowed[0];
}

static tensor resize(struct node *n, tensor x, const struct resize *z)
{
    double a = attr_real(n, "cubic_coeff_a", -0.75), v = attr_real(n, "extrapolation_value", 0);
    bool exclude = attr_flag(n, "exclude_outside", 0), antialias = attr_flag(n, "antialias", 0);
    if (antialias && !exclude && strcmp(z->mode, "nearest"))
        nd_reject(n, "antialias=1 is only supported with exclude_outside=1");
    if (!nd_is_float(x) && strcmp(z->mode, "nearest")) nd_reject(n, "mode %s for integers is not supported", z->mode);
    for (int i = 0; i < z->r && !n->status; i++)
        if (nd_above(z->size[i], INT32_MAX)) nd_invalid(n, "size %lld is too large", (long long)z->size[i]);
    return nd_make(n, "Resize", IN(x),
                   WITH(INTS("size", z->r, z->size), REALS("scale", z->r, z->scale), TEXT("mode", z->mode),
                        TEXT("coord", z->coord), TEXT("round", z->round), REAL("a", a), INT("exclude", exclude),
                        INT("antialias", antialias), REALS("start", z->r, z->start), REALS("end", z->r, z->end),
                        REAL("v", v)));
}

/* The fraction with the smallest denominator, at most 1000, that a scale is; down 0: there is none. */
static void fraction_of(double scale, int64_t *up, int64_t *down)
{
    for (*down = 1; *down <= 1000; (*down)++) {
        *up = (int64_t)llround(scale * (double)*down);
        if (fabs((double)*up / (double)*down - scale) <= 6e-8 * scale) return;
    }
    *down = 0;
}

/* Does a scale give a whole number of a size that varies? */
static bool is_exact(int64_t size, double scale)
{
    int64_t up, down;
    fraction_of(scale, &up, &down);
    return down && size_exact_div(size_mul(size, up), down) != SIZE_BAD;
}

static int64_t scaled(struct node *n, int64_t size, double part, double scale)
{
    int64_t up, down;
    if (size_varies(size) && scale > 0 && scale <= 1e6 && part == 1) {
        fraction_of(scale, &up, &down);
        if (down) return size_floor_div(size_mul(size, up), down);
    }
    if (!nd_fixed(n, size, "a size that is scaled by a fraction")) return 0;
    if (!(scale > 0) || !(part >= 0)) nd_invalid(n, "a scale is not above 0");
    float to = floorf((float)size * (float)part * (float)scale); /* in float, as others count: 10 * 0.7 is 7 */
    if (!(to < 0x1p31f)) nd_invalid(n, "a scale is too large");
    return n->status ? 0 : (int64_t)to;
}

/* Opsets up to 10: an output pixel i comes from i / scale, rounded down. */
sol_status op_upsample(struct node *n)
{
    static const char *const modes[] = {"nearest", "linear", "bilinear"};
    struct resize z = {.coord = "asymmetric", .round = "floor"};
    tensor x = nd_in(n, 0);
    z.r = nd_rank(x);
    z.mode = one_of(n, "mode", "nearest", COUNT_OF(modes), modes);
    if (!strcmp(z.mode, "bilinear")) z.mode = "linear";
    const Onnx__Attribute *a = n->nin < 2 ? nd_attr(n, "scales", ATTR_FLOATS) : NULL;
    int count = a ? (int)MIN(a->n_floats, (size_t)MOST) : known_reals(n, 1, "scales", MOST, z.scale);
    for (int i = 0; i < count && a; i++) z.scale[i] = a->floats[i];
    if (count != z.r) return n->status ? n->status : nd_invalid(n, "scales: expected %d values, got %d", z.r, count);
    for (int i = 0; i < z.r; i++) {
        z.size[i] = scaled(n, nd_size(x, i), 1, z.scale[i]);
        z.end[i] = 1;
    }
    nd_give(n, 0, resize(n, x, &z));
    return n->status;
}

static int given_axes(struct node *n, int r, int64_t *axes)
{
    int count = attr_ints(n, "axes", MOST, axes);
    for (int i = 0; i < r && count < 0; i++) axes[i] = i;
    if (count < 0) count = r;
    for (int i = 0; i < count; i++) axes[i] = nd_axis_of(n, axes[i], r);
    return count;
}

/* Sizes that keep the aspect ratio: one scale for all axes, the smallest or the largest. */
static void keep_ratio(struct node *n, tensor x, struct resize *z, int count, const int64_t *axes, bool smaller)
{
    double scale = 0;
    for (int i = 0; i < count; i++) {
        if (!nd_fixed(n, z->size[axes[i]], "a size that keeps the aspect ratio") ||
            !nd_fixed(n, nd_size(x, (int)axes[i]), "a size that keeps the aspect ratio"))
            return;
        double s = (double)z->size[axes[i]] / (double)nd_size(x, (int)axes[i]);
        scale = !i || (smaller ? s < scale : s > scale) ? s : scale;
    }
    for (int i = 0; i < count; i++) {
        double to = floor(scale * (double)nd_size(x, (int)axes[i]) + 0.5);
        if (!(to >= 0 && to <= INT32_MAX)) nd_invalid(n, "a size is out of range");
        z->size[axes[i]] = n->status ? 0 : (int64_t)to;
        z->scale[axes[i]] = scale;
    }
}

static void read_region(struct node *n, struct resize *z, int count, const int64_t *axes)
{
    double region[2 * MOST];
    if (strcmp(z->coord, "tf_crop_and_resize")) return;
    if (known_reals(n, 1, "roi", 2 * MOST, region) != 2 * count) nd_invalid(n, "roi: expected %d values", 2 * count);
    for (int i = 0; i < count && !n->status; i++) {
        z->start[axes[i]] = region[i];
        z->end[axes[i]] = region[count + i];
    }
}

static bool is_empty(struct node *n, int i)
{
    return !nd_has(n, i) || nd_elements(nd_in(n, i)) == 0;
}

static void read_sizes(struct node *n, tensor x, struct resize *z, int count, const int64_t *axes)
{
    static const char *const policies[] = {"stretch", "not_larger", "not_smaller"};
    const char *policy = one_of(n, "keep_aspect_ratio_policy", "stretch", COUNT_OF(policies), policies);
    double scales[MOST];
    int64_t sizes[MOST];
    bool by_size = !is_empty(n, 3);
    if (!by_size && is_empty(n, 2)) nd_invalid(n, "either scales or sizes must be given");
    int given = by_size ? known_sizes(n, 3, "sizes", 1, MOST, sizes) : known_reals(n, 2, "scales", MOST, scales);
    if (given != count) nd_invalid(n, "expected %d sizes or scales, got %d", count, given);
    for (int i = 0; i < count && !n->status; i++) {
        int a = (int)axes[i];
        if (by_size && sizes[i] < 0) nd_invalid(n, "a size is below 0");
        z->size[a] = by_size ? sizes[i] : scaled(n, nd_size(x, a), z->end[a] - z->start[a], scales[i]);
        z->scale[a] = by_size ? 0 : scales[i];
        const int64_t now = nd_size(x, a);
        const bool rounded =
            !by_size && (size_varies(now) ? !is_exact(now, scales[i])
                                          : (double)(float)((float)now * (float)scales[i]) != (double)z->size[a]);
        if (rounded &&
            !strcmp(z->coord, "align_corners")) /* implementations disagree: use the given size, or the rounded one? */
            nd_reject(n, "align_corners with a scale that gives no whole size is not supported");
    }
    if (by_size && strcmp(policy, "stretch") && !n->status)
        keep_ratio(n, x, z, count, axes, !strcmp(policy, "not_larger"));
}

sol_status op_resize(struct node *n)
{
    static const char *const modes[] = {"nearest", "linear", "cubic"};
    static const char *const coords[] = {"half_pixel",    "half_pixel_symmetric", "pytorch_half_pixel",
                                         "align_corners", "asymmetric",           "tf_crop_and_resize"};
    static const char *const rounds[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"};
    struct resize z = {0};
    int64_t axes[MOST];
    tensor x = nd_in(n, 0);
    z.r = nd_rank(x);
    z.mode = one_of(n, "mode", "nearest", COUNT_OF(modes), modes);
    z.coord = one_of(n, "coordinate_transformation_mode", "half_pixel", COUNT_OF(coords), coords);
    z.round = one_of(n, "nearest_mode", "round_prefer_floor", COUNT_OF(rounds), rounds);
    for (int i = 0; i < z.r; i++) z.size[i] = nd_size(x, i), z.end[i] = 1, z.scale[i] = 1;
    int count = given_axes(n, z.r, axes);
    if (!n->status) read_region(n, &z, count, axes);
    if (!n->status) read_sizes(n, x, &z, count, axes);
    nd_give(n, 0, resize(n, x, &z));
    return n->status;
}

sol_status op_grid_sample(struct node *n)
{
    static const char *const modes[] = {"linear", "nearest", "cubic", "bilinear", "bicubic"};
    static const char *const pads[] = {"zeros", "border", "reflection"};
    const char *mode = one_of(n, "mode", "linear", COUNT_OF(modes), modes);
    const char *pad = one_of(n, "padding_mode", "zeros", COUNT_OF(pads), pads);
    bool align = attr_flag(n, "align_corners", 0);
    if (!strncmp(mode, "bi", 2)) mode += 2;
    nd_give(n, 0,
            nd_make(n, "GridSample", IN(nd_in(n, 0), nd_in(n, 1)),
                    WITH(TEXT("mode", mode), TEXT("pad", pad), INT("align", align))));
    return n->status;
}

sol_status op_affine_grid(struct node *n)
{
    int64_t shape[MOST];
    int count = known_sizes(n, 1, "size", 1, MOST, shape);
    bool align = attr_flag(n, "align_corners", 0);
    if (!n->status && count != 4 && count != 5) return nd_invalid(n, "size: expected 4 or 5 values, got %d", count);
    nd_give(n, 0,
            nd_make(n, "AffineGrid", IN(nd_in(n, 0)), WITH(INTS("size", count - 2, shape + 2), INT("align", align))));
    return n->status;
}
