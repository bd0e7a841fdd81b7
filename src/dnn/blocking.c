/* Cuts a contraction into tiles, panels, chunks and blocks; blocking.h shows the loops. Where all sizes are constants,
 * every cut is known here. Pieces have nearly equal sizes: 17 columns in tiles of at most 14 are 9 + 8. */
#include "dnn/blocking.h"

#include <string.h>

#define FAIL(...) return *why = __VA_ARGS__, false

int blocking_sum(const struct solver_context *sc)
{
    return sc->precision == PRECISION_HIGH ? BLOCKING_SUM_PRECISE : BLOCKING_SUM;
}

int blocking_last(const struct blocking *b)
{
    return b->ragged ? b->width : (int)(b->n.size - (b->panels - 1) * b->width);
}

int64_t blocking_tasks(const struct blocking *b)
{
    return size_mul(size_mul(b->nouter, b->nblock), b->panels);
}

/* -- index variables to axes */

static uint64_t ivars_of(const struct axis *x)
{
    uint64_t set = 0;
    for (int i = 0; i < x->n; i++) set |= UINT64_C(1) << x->ivar[i];
    return set;
}

/* Can the groups g share vectors? They have as many input as output channels, side by side, and fewer than lanes. */
static bool shares(const struct problem *p, int g, int64_t size, int lanes)
{
    bool channels = false;
    for (int k = 0; k < p->loops->ivars.n; k++)
        channels |= set_has(p->k, k) && p->a.view.s[k] == 1 && p->loops->ivars.at[k].size == size;
    return channels && size >= 2 && size < lanes && lanes % size == 0 && p->a.view.s[g] == size &&
           p->loops->ivars.at[g].size * size % lanes == 0;
}

/* Finds the index variable of the groups of a grouped convolution that are neighbours in everything that is stored: as
 * an axis of output channels, together with those of a group. Returns -1 if there is none. */
static int find_groups(const struct problem *p)
{
    const int64_t size = p->loops->ivars.at[p->vector].size;
    if (p->n != UINT64_C(1) << p->vector || size_varies(size)) return -1;
    for (int g = 0; g < p->loops->ivars.n; g++) {
        bool fits = set_has(p->batch, g) && !size_varies(p->loops->ivars.at[g].size);
        for (int v = 0; v < p->nview; v++) {
            const int64_t *s = p->view[v].s;
            fits = fits && s[g] == size_mul(s[p->vector], size) && (p->view[v].node || s[p->vector] == 1);
        }
        if (fits) return g;
    }
    return -1;
}

/* Can these groups be computed so? */
static bool groups_fit(const struct problem *p, int g, enum b_groups groups, int lanes)
{
    const int64_t size = p->loops->ivars.at[p->vector].size;
    return g >= 0 && !p->valued && (groups == B_PANELS ? size % lanes == 0 : shares(p, g, size, lanes));
}

static bool make_outer_axes(struct blocking *b, const char **why)
{
    const struct problem *p = b->p;
    struct axes_rule rule = axes_rule_epilogue(p, p->valued);
    if (b->options.source != B_PACKED) rule.strides[rule.n++] = p->b.view.s;
    struct axes n;
    const uint64_t group = b->group < 0 ? 0 : UINT64_C(1) << b->group;
    if (!axes_make(p, p->n | group, &rule, &n)) FAIL("too many axes");
    b->n = n.at[n.n - 1];
    if (group && n.n != 1) FAIL("groups that do not lie side by side");
    const int64_t vectors = ceil_div(size_about(b->n.size), b->lanes);
    b->ragged = size_varies(b->n.size);
    b->vectors = (int)ceil_div(vectors, ceil_div(vectors, b->options.vectors));
    b->width = b->vectors * b->lanes;
    if (group && !b->shared && p->loops->ivars.at[p->vector].size % b->width) FAIL("a panel with parts of groups");
    rule.strides[rule.n++] = p->a.view.s;
    if (!axes_make(p, (p->batch & ~group) | (p->n & ~ivars_of(&b->n)), &rule, &b->outer)) FAIL("too many axes");
    b->nouter = axes_size(&b->outer);
    b->panels = size_ceil_div(b->n.size, b->width);
    return true;
}

static bool make_m_axes(struct blocking *b, const char **why)
{
    const struct problem *p = b->p;
    struct axes_rule rule = axes_rule_epilogue(p, b->gather ? p->m : p->valued);
    rule.strides[rule.n++] = p->a.view.s;
    if (!axes_make(p, p->m, &rule, &b->m)) FAIL("too many axes");
    if (!b->m.n) b->m.at[b->m.n++] = (struct axis){.size = 1};
    return true;
}

/* -- tiles and blocks of pixels */

static void make_tile(struct blocking *b)
{
    const int most = b->options.pixels;
    const int64_t w = b->m.at[b->m.n - 1].size, h = b->m.n > 1 ? b->m.at[b->m.n - 2].size : 1;
    const int64_t cols = size_varies(w) ? MIN(most, size_most(w)) : ceil_div(w, ceil_div(w, most));
    b->cols = (int)cols;
    b->rows = size_varies(w) || w > most ? 1 : (int)MIN(size_most(h), MAX(1, most / w));
    if (b->rows > 1 && !size_varies(h)) b->rows = (int)ceil_div(h, ceil_div(h, b->rows));
}

/* Tiles of a block of an axis that varies, even if the hint says that there are fewer; and where each block packs b. */
#define FEW_TILES 16
#define FEW_TILES_PACKED 64

/* Tiles of a block in an axis of `strips` of them, about; all of them if there are not many more than that. */
static int64_t strips_of(const struct blocking *b, int axis, int64_t strips, int64_t left, bool whole)
{
    const int few = b->options.source == B_SCRATCH ? FEW_TILES_PACKED : FEW_TILES;
    if (!whole) return MIN(strips, MAX(1, left));
    return size_varies(b->m.at[axis].size) && axis == b->m.n - 1 ? MAX(strips, MIN(left, few)) : strips;
}

/* Chooses boxes of about options.tiles tiles; they grow along columns first, then rows, then images. */
static void make_boxes(struct blocking *b)
{
    const int last = b->m.n - 1;
    int64_t left = MAX(1, b->options.tiles);
    b->block_tiles = b->about_tiles = b->nblock = 1;
    for (int i = last; i >= 0; i--) {
        const int64_t size = size_about(b->m.at[i].size), step = i == last ? b->cols : i == last - 1 ? b->rows : 1;
        const int64_t strips = ceil_div(size, step);
        const bool whole = strips <= left + left / 2;
        const int64_t per_box = strips_of(b, i, strips, left, whole);
        if (size_varies(b->m.at[i].size)) {
            b->box[i] = per_box * step;
            b->nbox[i] = size_ceil_div(b->m.at[i].size, b->box[i]);
        } else {
            b->nbox[i] = whole ? 1 : ceil_div(strips, per_box);
            b->box[i] = ceil_div(size, b->nbox[i]);
        }
        b->block_tiles *= ceil_div(b->box[i], step);
        b->about_tiles *= ceil_div(MIN(b->box[i], size), step);
        left = whole ? left / strips : 1;
        b->nblock = size_mul(b->nblock, b->nbox[i]);
    }
}

/* Marks the sizes that occur when `size` is cut evenly into pieces of at most `step`. There are at most two. */
static void mark_pieces(int64_t size, int64_t step, bool *sizes)
{
    const int64_t n = ceil_div(size, step);
    if (!n) return;
    sizes[size / n] = true;
    sizes[ceil_div(size, n)] = true;
}

static void mark_axis(const struct blocking *b, int axis, int step, bool *sizes)
{
    const int64_t size = b->m.at[axis].size, n = b->nbox[axis];
    if (size_varies(size) || (b->options.counted && axis == b->m.n - 1)) {
        for (int i = 1; i <= step; i++) sizes[i] = true;
        return;
    }
    mark_pieces(size / n, step, sizes);
    mark_pieces(ceil_div(size, n), step, sizes);
}

static void mark_tiles(struct blocking *b)
{
    bool rows[BLOCKING_MAX_PIXELS + 1] = {0}, cols[BLOCKING_MAX_PIXELS + 1] = {0};
    mark_axis(b, b->m.n - 1, b->cols, cols);
    if (b->m.n > 1)
        mark_axis(b, b->m.n - 2, b->rows, rows);
    else
        rows[1] = true;
    const bool odd = blocking_odd(b);
    memset(b->used, 0, sizeof b->used);
    for (int r = 1; r <= b->rows; r++)
        for (int c = 1; c <= b->cols; c++) {
            if (!rows[r] || !cols[c]) continue;
            b->used[0][r][c] = b->panels != 1 || !odd;
            b->used[1][r][c] = odd;
        }
}

/* -- K */

static uint64_t window_ivars(const struct problem *p)
{
    uint64_t set = 0;
    for (int d = 0; d < p->a.ndim; d++) {
        uint64_t dim = 0;
        for (int i = 0; i < p->a.index[d].n; i++) dim |= UINT64_C(1) << p->a.index[d].ivar[i];
        if (dim & p->m) set |= dim & p->k;
    }
    return set;
}

/* The largest axis, those that vary before others. */
static int largest(const struct axes *x)
{
    int best = -1;
    for (int i = 0; i < x->n; i++) {
        const bool varies = size_varies(x->at[i].size), other = best >= 0 && size_varies(x->at[best].size);
        if (best < 0 || (varies == other ? size_about(x->at[i].size) > size_about(x->at[best].size) : varies)) best = i;
    }
    return best;
}

static struct axes_rule k_rule(const struct blocking *b, uint64_t single)
{
    struct axes_rule rule = {.by = b->a_stride, .single = single, .n = 1, .strides = {b->a_stride}};
    if (b->options.source != B_PACKED) rule.strides[rule.n++] = b->p->b.view.s;
    return rule;
}

/* Chooses the axis that chunks of K cut, and their length. Window axes are cut only if K has no others, because a
 * chunk of channels needs less of a. */
static bool choose_chunk(struct blocking *b, struct axis *out_axis, const char **why)
{
    const struct problem *p = b->p;
    const uint64_t window = window_ivars(p);
    const struct axes_rule rule = k_rule(b, b->gather ? p->k : 0);
    struct axes x;
    if (!axes_make(p, p->k & ~window ? p->k & ~window : p->k, &rule, &x)) FAIL("too many axes");
    *out_axis = (struct axis){0};
    b->nchunk = 1;
    const int64_t total = problem_size(p, p->k);
    if (size_most(total) <= b->options.chunk + b->options.chunk / 4 || !x.n) return true;
    const struct axis *a = &x.at[largest(&x)];
    int64_t chunk = MAX(4, b->options.chunk * size_about(a->size) / size_about(total));
    if (!size_varies(a->size)) chunk = ceil_div(a->size, ceil_div(a->size, chunk));
    chunk = ceil_div(chunk, 4) * 4;
    b->nchunk = size_max(1, size_ceil_div(a->size, chunk)); /* a sum of nothing is 0, which somebody has to store */
    b->chunk = chunk;
    if (b->nchunk != 1) *out_axis = *a;
    return true;
}

static int64_t stride_of(const struct blocking *b, const struct axis *x)
{
    return stride_about(axis_stride(x, b->a_stride));
}

/* Is an offset of a run of K not a constant? */
static bool runs_vary(const struct blocking *b)
{
    bool vary = false;
    for (int i = 0; i < b->k.n - 1; i++)
        vary |= size_varies(axis_stride(&b->k.at[i], b->a_stride)) ||
                (b->options.source != B_PACKED && size_varies(axis_stride(&b->k.at[i], b->p->b.view.s)));
    return vary;
}

static bool make_k_axes(struct blocking *b, const struct axis *cut, const char **why)
{
    const struct problem *p = b->p;
    uint64_t single = 0;
    for (int i = 0; i < p->loops->ivars.n && b->shared; i++)
        if (set_has(p->k, i) && b->a_stride[i] == 1) single |= UINT64_C(1) << i;
    const struct axes_rule rule = k_rule(b, single);
    if (!axes_make(p, p->k & ~ivars_of(cut), &rule, &b->k)) FAIL("too many axes");
    b->chunk_axis = -1;
    if (cut->n) { /* the innermost axis stays the last, any other becomes the first */
        if (b->k.n == AXES_MAX) FAIL("too many axes");
        const bool inner = !b->k.n || stride_of(b, cut) <= stride_of(b, &b->k.at[b->k.n - 1]);
        if (!inner) memmove(b->k.at + 1, b->k.at, (size_t)b->k.n * sizeof *b->k.at);
        b->chunk_axis = inner ? b->k.n : 0;
        b->k.at[b->chunk_axis] = *cut;
        b->k.n++;
    }
    if (!b->k.n) b->k.at[b->k.n++] = (struct axis){.size = 1};
    b->nrun = 1;
    for (int i = 0; i < b->k.n; i++) {
        const int64_t n = i == b->chunk_axis ? b->chunk : b->k.at[i].size;
        if (i == b->k.n - 1)
            b->len = n;
        else
            b->nrun = size_mul(b->nrun, n);
    }
    if (size_varies(b->nrun)) FAIL("the number of runs of K varies");
    if (b->nrun > 4096) FAIL("too many runs of K");
    b->runs_vary = runs_vary(b);
    if (b->runs_vary && b->nrun > 512) FAIL("too many runs of K, whose offsets vary");
    return true;
}

static void make_sums(struct blocking *b)
{
    const int64_t most = b->options.sum;
    const int64_t len = size_most(b->len);
    if (!most || size_most(size_mul(b->nrun, b->len)) <= most + most / 4 || b->shared) return;
    if (len > most + most / 4) { /* a whole number of unrolled steps, whatever the unrolling */
        const int64_t even = size_varies(b->len) ? most : ceil_div(b->len, ceil_div(b->len, most));
        b->sum_len = ceil_div(even, 12) * 12;
    } else {
        b->sum_runs = ceil_div(b->nrun, ceil_div(b->nrun, MAX(1, most / MAX(1, len))));
    }
}

/* -- the gathered block of a */

static int64_t ivar_extent(const struct blocking *b, const struct axis *cut, int ivar)
{
    const struct problem *p = b->p;
    if (ivar == b->group) return p->loops->ivars.at[ivar].size;
    if (set_has(p->batch | p->n, ivar)) return 1;
    if (cut->n && cut->ivar[0] == ivar) return b->chunk;
    for (int i = 0; i < b->m.n; i++)
        if (b->m.at[i].n && b->m.at[i].ivar[0] == ivar) return b->box[i];
    return p->loops->ivars.at[ivar].size;
}

/* The number of values if channels alone index dimension d, otherwise 0. */
static int64_t channels(const struct problem *p, int d, uint64_t window)
{
    int64_t n = 0;
    for (int i = 0; i < p->a.index[d].n; i++) {
        const int ivar = p->a.index[d].ivar[i];
        if (set_has(p->m | window, ivar)) return 0;
        if (set_has(p->k, ivar)) n += size_about(p->loops->ivars.at[ivar].size);
    }
    return n;
}

static bool plan_gather(struct blocking *b, const struct axis *cut, const char **why)
{
    const struct problem *p = b->p;
    const struct memory *m = &p->c->memory[p->a.tensor];
    const uint64_t window = window_ivars(p);
    int inner = -1;
    for (int d = 0; d < p->a.ndim; d++) {
        b->extent[d] = 1;
        for (int i = 0; i < p->a.index[d].n; i++) {
            const int ivar = p->a.index[d].ivar[i];
            const int64_t coef = p->a.index[d].coef[i];
            if (coef < 0 && set_has(p->m, ivar)) FAIL("a runs backwards");
            if (size_varies(coef)) FAIL("a step of a varies");
            b->extent[d] =
                size_add(b->extent[d], size_mul(coef < 0 ? -coef : coef, size_sub(ivar_extent(b, cut, ivar), 1)));
        }
        if (channels(p, d, window) && (inner < 0 || channels(p, d, window) > channels(p, inner, window))) inner = d;
    }
    b->ngather = 0;
    for (int d = 0; d < p->a.ndim; d++) { /* by stride, with `inner` last */
        if (b->extent[d] == 1 && !b->p->a.border[d]) continue;
        int k = b->ngather++;
        for (; k > 0 && (b->gather_dim[k - 1] == inner ||
                         (d != inner && stride_about(m->stride[b->gather_dim[k - 1]]) < stride_about(m->stride[d])));
             k--)
            b->gather_dim[k] = b->gather_dim[k - 1];
        b->gather_dim[k] = d;
    }
    b->gathered = 1;
    for (int i = b->ngather - 1; i >= 0; i--) {
        b->gather_stride[b->gather_dim[i]] = b->gathered;
        b->gathered = size_mul(b->gathered, b->extent[b->gather_dim[i]]);
    }
    memset(b->a_stride, 0, sizeof b->a_stride);
    for (int i = 0; i < b->ngather; i++) {
        const int d = b->gather_dim[i];
        for (int k = 0; k < p->a.index[d].n; k++)
            b->a_stride[p->a.index[d].ivar[k]] =
                size_add(b->a_stride[p->a.index[d].ivar[k]], size_mul(p->a.index[d].coef[k], b->gather_stride[d]));
    }
    return true;
}

/* -- all of it */

/* A stored tensor that can hold the partial sums between chunks: it has their type and contiguous vectors. */
static int partial_view(const struct problem *p)
{
    for (int i = 0; i < p->nview; i++)
        if (!p->view[i].node && p->loops->tensors.at[p->view[i].tensor].dtype == p->dtype &&
            p->view[i].s[p->vector] == 1)
            return i;
    return -1;
}

bool blocking_make(const struct problem *p, const struct target *t, const struct blocking_options *o,
                   struct blocking *b, const char **why)
{
    memset(b, 0, sizeof *b);
    b->p = p;
    b->target = t;
    b->options = *o;
    if (p->vector < 0) FAIL("no index variable for the vectors");
    if (!p->a.affine) FAIL("the index of a is not affine");
    const uint64_t packed = p->n | p->k | p->batch;
    if ((o->source == B_PACKED || o->source == B_CALLER) && size_varies(problem_size(p, packed)))
        FAIL("the packed factor has a size that varies");
    if (o->source != B_PACKED && (!p->b.affine || p->b.any_border)) FAIL("b has borders");
    b->lanes = o->groups == B_SHARE ? target_lanes(t, p->bytes) : problem_lanes(p, t, problem_size(p, p->n));
    const int groups = find_groups(p);
    b->neighbours = groups < 0 ? 1 : p->loops->ivars.at[groups].size;
    b->group = o->groups ? groups : -1;
    if (o->groups && (!groups_fit(p, groups, o->groups, b->lanes) || o->source != B_PACKED))
        FAIL("no groups side by side");
    if (o->groups == B_SHARE) b->shared = (int)p->loops->ivars.at[p->vector].size;
    if (b->shared && o->vectors != 1) FAIL("groups share one vector");
    b->gather = o->gather || p->a.any_border;
    if (!make_outer_axes(b, why) || !make_m_axes(b, why)) return false;
    if (o->source == B_IN_PLACE && (axis_stride(&b->n, p->b.view.s) != 1 || size_factor(b->n.size) % b->lanes))
        FAIL("b is not in rows of vectors");
    make_tile(b);
    make_boxes(b);
    mark_tiles(b);
    memcpy(b->a_stride, p->a.view.s, sizeof b->a_stride);
    struct axis cut;
    if (!choose_chunk(b, &cut, why)) return false;
    if (b->gather && !plan_gather(b, &cut, why)) return false;
    if (!make_k_axes(b, &cut, why)) return false;
    if (b->shared && (b->nchunk > 1 || b->len != b->shared)) FAIL("groups of another form");
    make_sums(b);
    b->panel_elements = size_mul(b->nrun * b->width, b->len);
    b->partial = partial_view(p);
    if (b->nchunk != 1 && b->partial < 0)
        b->partials = size_mul(b->block_tiles * b->rows * b->cols * b->width, b->panels);
    return true;
}

static void axes_about(struct axes *x)
{
    for (int i = 0; i < x->n; i++) x->at[i].size = size_about(x->at[i].size);
}

struct blocking blocking_about(const struct blocking *b)
{
    struct blocking r = *b;
    if (!b->p->varies) return r;
    axes_about(&r.outer);
    axes_about(&r.m);
    axes_about(&r.k);
    int64_t *const sizes[] = {&r.n.size, &r.nouter,   &r.panels,   &r.nchunk,        &r.len,
                              &r.nblock, &r.gathered, &r.partials, &r.panel_elements};
    for (int i = 0; i < COUNT_OF(sizes); i++) *sizes[i] = size_about(*sizes[i]);
    for (int i = 0; i < LOOPS_MAX_IVARS; i++) r.a_stride[i] = size_hint(r.a_stride[i]);
    for (int i = 0; i < b->m.n; i++) {
        r.nbox[i] = size_about(b->nbox[i]);
        r.box[i] = MIN(b->box[i], ceil_div(r.m.at[i].size, r.nbox[i]));
    }
    r.block_tiles = b->about_tiles;
    return r;
}

bool blocking_try(const struct problem *p, const struct target *t, const struct blocking_options *o, int64_t fewer,
                  struct blocking *b)
{
    const char *why;
    return blocking_make(p, t, o, b, &why) && b->vectors == o->vectors && b->block_tiles > fewer &&
           size_about(blocking_scratch(b)) <= t->l2 * 3 / 4;
}

int64_t blocking_gathered(const struct blocking *b)
{
    return size_mul(size_add(size_ceil_div(b->gathered, b->lanes), 1), b->lanes);
}

int64_t blocking_scratch(const struct blocking *b)
{
    int64_t n = 0;
    if (b->gather) n = blocking_gathered(b);
    n = size_add(n, b->partials);
    if (b->options.source == B_SCRATCH) n = size_add(n, b->panel_elements);
    return size_mul(size_ceil_div(size_mul(n, b->p->bytes), 64), 64);
}
