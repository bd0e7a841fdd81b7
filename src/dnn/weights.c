/* The solvers `weights` and `weights-winograd`; see weights.h. This file recognises such sums and tiles them. */
#include "dnn/weights.h"

#include "dnn/solvers.h"

#include <string.h>

#define SHORTEST 16 /* sums shorter than this do not pay for memory of their own */
#define FEW 16      /* elements of a box at least, where the number of elements varies */
#define LINE 64     /* bytes of a cache line */
#define SETS 1024   /* bytes between cache lines that may share a set of L1 */
#define FAIL(...) return *why = __VA_ARGS__, false

/* -- index variables */

/* Finds the dimensions of an operand whose index adds a summed index variable and one of the result (a window). The
 * last two become levels, rows before columns. The taps of those in front, such as the depth of a volume, are further
 * results: w->taps_apart. */
static bool find_windows(struct weights *w, struct weights_side *side, uint64_t free, const char **why)
{
    const struct problem *p = &w->p;
    for (int d = 0; d < side->o->ndim; d++) {
        const struct affine *f = &side->o->index[d];
        uint64_t ivars = 0;
        for (int i = 0; i < f->n; i++) ivars |= bit(f->ivar[i]);
        if (!(ivars & p->k) || !(ivars & free)) {
            if (side->o->border[d]) FAIL("a border without a window");
            continue;
        }
        const int k = set_has(p->k, f->ivar[0]) ? 0 : 1;
        if (f->n != 2 || !set_has(free, f->ivar[1 - k]) || f->coef[0] < 1 || f->coef[1] < 1)
            FAIL("a window of another form");
        if (size_varies(f->coef[0]) || size_varies(f->coef[1])) FAIL("a window whose steps vary");
        const struct weights_level l = {
            .axis = {.size = p->loops->ivars.at[f->ivar[k]].size, .n = 1, .ivar = {f->ivar[k]}},
            .tap = f->ivar[1 - k],
            .taps = p->loops->ivars.at[f->ivar[1 - k]].size,
            .step = f->coef[k],
            .dist = f->coef[1 - k],
            .dim = d};
        const int64_t stride = p->c->memory[side->o->tensor].stride[d];
        if (side->o->view.s[f->ivar[k]] != size_mul(l.step, stride) ||
            side->o->view.s[l.tap] != size_mul(l.dist, stride))
            FAIL("a window that moves in two dimensions");
        const struct weights_level *out = &w->level[WEIGHTS_ROWS];
        if (out->tap >= 0 && side->o->border[out->dim]) FAIL("a border of a third window");
        if (out->tap >= 0) w->taps_apart |= bit(out->tap);
        w->level[WEIGHTS_ROWS] = w->level[WEIGHTS_COLS];
        w->level[WEIGHTS_COLS] = l;
        side->window = true;
    }
    return true;
}

/* Finds the axis of channels: the one of unit stride if there is one, else the largest. Adds all other index variables
 * to *rest. */
static bool find_channels(const struct weights *w, struct weights_side *side, uint64_t ivars, uint64_t *rest,
                          const char **why)
{
    const struct problem *p = &w->p;
    struct axes_rule rule = axes_rule_epilogue(p, 0);
    struct axes x;
    int best = -1;
    rule.by = rule.strides[rule.n++] = side->o->view.s;
    if (!axes_make(p, ivars, &rule, &x)) FAIL("too many axes");
    for (int i = 0; i < x.n; i++) {
        const bool unit = axis_stride(&x.at[i], side->o->view.s) == 1;
        if (best < 0 || unit || x.at[i].size > x.at[best].size) best = i;
        if (unit) break;
    }
    *rest |= ivars;
    side->channels = (struct axis){.size = 1};
    if (best < 0) return true;
    side->channels = x.at[best];
    side->stride = axis_stride(&x.at[best], side->o->view.s);
    for (int i = 0; i < side->channels.n; i++) *rest &= ~bit(side->channels.ivar[i]);
    return true;
}

/* Makes levels of the rest of K where there is no window; the longest run of memory is the last level. */
static bool find_levels(struct weights *w, const char **why)
{
    const struct problem *p = &w->p;
    const int64_t *x = w->a.window ? p->a.view.s : p->b.view.s;
    const struct axes_rule rule = {.by = x, .n = 2, .strides = {p->a.view.s, p->b.view.s}};
    uint64_t window = 0;
    for (int i = 0; i < WEIGHTS_LEVELS; i++)
        if (w->level[i].tap >= 0) window |= bit(w->level[i].axis.ivar[0]);
    if (!axes_make(p, p->k & ~window, &rule, &w->images)) FAIL("too many axes");
    if (w->level[0].tap >= 0 &&
        /* the level with the larger stride is outside */
        stride_about(axis_stride(&w->level[0].axis, x)) < stride_about(axis_stride(&w->level[1].axis, x))) {
        const struct weights_level swap = w->level[0];
        w->level[0] = w->level[1];
        w->level[1] = swap;
    }
    for (int i = WEIGHTS_COLS; i >= WEIGHTS_ROWS; i--) {
        if (w->level[i].tap >= 0) continue;
        w->level[i] = (struct weights_level){.axis = {.size = 1}, .tap = -1, .taps = 1, .step = 1};
        if (w->images.n && !(i == WEIGHTS_ROWS && window)) w->level[i].axis = w->images.at[--w->images.n];
    }
    w->nimage = axes_size(&w->images);
    return true;
}

static bool find(const struct solver_context *sc, const struct cluster *c, bool swap, bool winograd, struct weights *w,
                 const char **why)
{
    struct problem *p = &w->p;
    memset(w, 0, sizeof *w);
    w->target = sc->target;
    w->winograd = winograd;
    if (winograd && sc->precision == PRECISION_HIGH) FAIL("not precise enough");
    if (!problem_make(sc->arena, c, swap, p, why)) return false;
    if (!p->a.affine || !p->b.affine || p->valued) FAIL("an index that is not affine, or values of index variables");
    if (size_varies(problem_size(p, p->batch | p->m | p->n))) FAIL("the number of results varies");
    if (problem_about(p, p->k) < SHORTEST) FAIL("the sum is short");
    if (problem_size(p, p->m) == 1) FAIL("a matrix times a vector: what is packed would be read once");
    w->a.o = &p->a, w->b.o = &p->b;
    for (int i = 0; i < WEIGHTS_LEVELS; i++) w->level[i].tap = -1;
    if (!find_windows(w, &w->a, p->m, why) || !find_windows(w, &w->b, p->n, why)) return false;
    if (w->a.window && w->b.window) FAIL("two windows");
    uint64_t taps = w->taps_apart, rest = p->batch | w->taps_apart;
    for (int i = 0; i < WEIGHTS_LEVELS; i++) taps |= w->level[i].tap >= 0 ? bit(w->level[i].tap) : 0;
    if (taps && problem_size(p, taps) > problem_about(p, p->k)) FAIL("more positions of the window than summands");
    if (!find_channels(w, &w->a, p->m & ~taps, &rest, why) || !find_channels(w, &w->b, p->n & ~taps, &rest, why))
        return false;
    if (!w->b.channels.n) FAIL("no channels for the vectors");
    p->vector = w->b.channels.ivar[w->b.channels.n - 1];
    struct axes_rule rule = axes_rule_epilogue(p, 0);
    rule.strides[rule.n++] = p->a.view.s;
    rule.strides[rule.n++] = p->b.view.s;
    if (!axes_make(p, rest, &rule, &w->outer)) FAIL("too many axes");
    w->nouter = axes_size(&w->outer);
    w->lanes = problem_lanes(p, w->target, w->b.channels.size);
    if (!find_levels(w, why)) return false;
    for (int i = 0; i < WEIGHTS_LEVELS && winograd; i++) {
        const struct weights_level *l = &w->level[i];
        if (l->tap < 0 || l->taps != 3 || l->step != 1 || l->dist != 1) FAIL("not a 3x3 window of stride 1");
    }
    if (winograd && (w->a.stride != 1 || w->b.stride != 1)) FAIL("channels do not lie side by side");
    return true;
}

/* -- tiling */

enum { V_SWAP, V_PIXELS, V_VECTORS, V_CHUNK, V_M, V_N, V_GROUPS };

static void cut_side(const struct weights *w, struct weights_side *s, int64_t panel, int channels)
{
    const int cores = w->target->cores;
    s->panel = panel;
    s->panels = ceil_div(s->channels.size, panel);
    s->nblock = channels ? ceil_div(s->panels, MAX(1, channels / panel)) : 1;
    if (s->nblock > cores) s->nblock = ceil_div(s->nblock, cores) * cores; /* an equal number for each core */
    s->block = ceil_div(s->panels, s->nblock);
    s->nblock = ceil_div(s->panels, s->block);
    s->size = w->image_box;
    for (int i = 0; i < WEIGHTS_LEVELS; i++) {
        const struct weights_level *l = &w->level[i];
        const bool window = s->window && l->tap >= 0;
        s->step[i] = window ? l->step : 1;
        s->extent[i] = window ? l->step * (l->box - 1) + l->dist * (l->taps - 1) + 1 : l->box;
        s->size *= s->extent[i];
    }
    s->pitch = panel;
    /* what is packed behind it begins at a cache line, too: vectors that cross lines cost twice */
    s->size = ceil_div(s->size * panel * w->p.bytes, LINE) * LINE / w->p.bytes;
    if (!w->winograd) return;
    s->pitch = ceil_div(s->block * panel, w->lanes) * w->lanes;
    if (s->pitch * w->p.bytes % SETS == 0) s->pitch += w->lanes; /* pixels of a panel must not share few cache sets */
    s->plane = s->pitch * w->chunk + LINE / w->p.bytes;
    s->size = s->plane * w->taps;
}

/* Cuts K into chunks of about `n` elements, along columns first, then rows, then images. */
static void cut_chunks(struct weights *w, int64_t n)
{
    for (int i = WEIGHTS_COLS; i >= WEIGHTS_ROWS; i--) {
        struct weights_level *l = &w->level[i];
        const int64_t size = size_about(l->axis.size), most = MAX(1, n);
        const bool whole = size <= most + most / 2;
        if (size_varies(l->axis.size)) { /* a box is not tiny, even if the hint is */
            l->box = whole ? MAX(size, MIN(most, FEW)) : most;
            l->nbox = size_ceil_div(l->axis.size, l->box);
        } else {
            l->nbox = whole ? 1 : ceil_div(size, most);
            l->box = ceil_div(size, l->nbox);
        }
        n = whole ? n / l->box : 1;
    }
    const bool varies = size_varies(w->nimage);
    w->image_nbox = size_ceil_div(w->nimage, MAX(1, varies ? n : MIN(n, w->nimage)));
    w->image_box = varies ? MAX(1, n) : ceil_div(w->nimage, w->image_nbox);
    w->nchunk = size_mul(w->image_nbox, size_mul(w->level[0].nbox, w->level[1].nbox));
}

int64_t weights_tiles(const struct weights *w)
{
    return size_mul(w->nimage, size_mul(w->tile_rows, w->tile_cols));
}

static bool cut(struct weights *w, const struct variant *v, const char **why)
{
    const int64_t vectors = ceil_div(w->b.channels.size, w->lanes), rows = w->a.channels.size;
    w->vectors = (int)ceil_div(vectors, ceil_div(vectors, v->p[V_VECTORS]));
    w->width = w->vectors * w->lanes;
    w->rows = (int)ceil_div(rows, ceil_div(rows, v->p[V_PIXELS]));
    w->taps = w->level[0].taps * w->level[1].taps;
    if (w->winograd) {
        w->taps = WEIGHTS_POINTS * WEIGHTS_POINTS;
        w->tile_rows = size_ceil_div(w->level[0].axis.size, WEIGHTS_M);
        w->tile_cols = size_ceil_div(w->level[1].axis.size, WEIGHTS_M);
        const int64_t tiles = weights_tiles(w);
        w->chunk = size_varies(tiles) ? v->p[V_CHUNK] : ceil_div(tiles, ceil_div(tiles, v->p[V_CHUNK]));
        w->nchunk = size_ceil_div(tiles, w->chunk);
    } else {
        cut_chunks(w, v->p[V_CHUNK]);
    }
    cut_side(w, &w->a, w->rows, v->p[V_M]);
    cut_side(w, &w->b, w->width, v->p[V_N]);
    w->ngroup = v->p[V_GROUPS];
    if (w->ngroup > size_about(w->nchunk)) FAIL("fewer chunks than groups of them");
    w->sums = w->taps * w->a.block * w->b.block * w->rows * w->width;
    for (int i = 0; i < 2 && w->winograd; i++) { /* the last block has at least one vector of channels */
        const struct weights_side *s = i ? &w->b : &w->a;
        if (s->channels.size - (s->nblock - 1) * s->block * s->panel < w->lanes) FAIL("too few channels");
    }
    return true;
}

int64_t weights_tasks(const struct weights *w)
{
    return w->nouter * w->a.nblock * w->b.nblock * w->ngroup;
}

int64_t weights_scratch(const struct weights *w)
{
    int64_t n =
        w->winograd ? w->a.size + w->b.size : w->a.size * MIN(WEIGHTS_TOGETHER, w->a.block) + w->b.size * w->b.block;
    if (w->winograd) n += w->taps * MAX(w->a.pitch, w->b.pitch); /* room for a tile that crosses the border */
    return n + (w->ngroup == 1 ? w->sums : 0);
}

/* -- the solvers */

static bool any(const struct solver_context *sc, const struct cluster *c, bool winograd, const char **why)
{
    const struct variant v = {.p = {0, 1, 1, 32, 0, 0, 1}};
    for (int swap = 0; swap < 2; swap++) {
        struct weights w;
        if (find(sc, c, swap, winograd, &w, why) && cut(&w, &v, why)) return true;
    }
    return false;
}

static void add_variants(const struct solver_context *sc, struct weights *w, int swap, struct variant_list *list)
{
    static const int channels[] = {0, 1024, 256, 64}, tiles[] = {16, 32, 64};
    enum { WAYS = COUNT_OF(channels), BLOCKS = WAYS * WAYS, GROUPS = 5, EACH = BLOCKS * GROUPS };
    struct tile_shape shape[8];
    const int shapes = cost_tile_shapes(sc->target, shape, COUNT_OF(shape));
    const char *why;
    for (int s = 0; s < shapes; s++) {
        /* one panel of each operand fits into L1 */
        const int64_t pixel = (shape[s].pixels + shape[s].vectors * w->lanes) * w->p.bytes;
        const int chunk = (int)MAX(16, sc->target->l1 * 7 / 8 / pixel);
        for (int i = 0; i < EACH * (w->winograd ? COUNT_OF(tiles) : 1); i++) {
            const int groups = 1 << i / BLOCKS % GROUPS;
            struct variant v = {.p = {swap, shape[s].pixels, shape[s].vectors, w->winograd ? tiles[i / EACH] : chunk,
                                      channels[i % WAYS], channels[i / WAYS % WAYS], groups}};
            if (!variant_wanted(sc, &v) || !cut(w, &v, &why) || w->vectors != shape[s].vectors) continue;
            /* the same as a single block */
            if ((v.p[V_M] && w->a.nblock == 1) || (v.p[V_N] && w->b.nblock == 1)) continue;
            v.cost = cost_weights(w);
            v.text = arena_printf(sc->arena, "%dx%d m%lld n%lld k%lld/%d%s", w->rows, w->vectors,
                                  (long long)(w->a.block * w->a.panel), (long long)(w->b.block * w->b.panel),
                                  (long long)size_about(w->nchunk), groups, swap ? " swapped" : "");
            variants_add(list, &v);
        }
    }
}

static int variants(const struct solver_context *sc, const struct cluster *c, bool winograd, struct variant *out)
{
    struct variant_list list = {.at = out};
    const char *why;
    for (int swap = 0; swap < 2; swap++) {
        struct weights w;
        if (find(sc, c, swap, winograd, &w, &why)) add_variants(sc, &w, swap, &list);
    }
    return list.n;
}

static sol_status emit(const struct solver_context *sc, const struct cluster *c, const struct variant *v, bool winograd,
                       struct kernel *out)
{
    struct weights w;
    const char *why = "";
    if (!find(sc, c, v->p[V_SWAP], winograd, &w, &why) || !cut(&w, v, &why))
        return ctx_fail(arena_ctx(sc->arena), SOL_ERR_UNSUPPORTED, "weights: %s", why);
    struct text text = solver_text(sc);
    weights_print(&w, &text);
    out->source = text.at;
    out->nstep = w.ngroup > 1 ? 2 : 1;
    out->step[0].tasks = weights_tasks(&w);
    out->scratch_bytes = ceil_div(weights_scratch(&w) * w.p.bytes, 64) * 64;
    if (w.ngroup > 1) {
        out->step[0].suffix = "sums";
        out->step[1].suffix = "total";
        out->step[1].tasks = weights_tasks(&w) / w.ngroup * w.a.block;
        out->nwork = 1;
        out->work_bytes[0] = weights_tasks(&w) * w.sums * w.p.bytes;
    }
    return SOL_OK;
}

static bool applicable_direct(const struct solver_context *sc, const struct cluster *c, const char **out_why)
{
    return any(sc, c, false, out_why);
}
static int variants_direct(const struct solver_context *sc, const struct cluster *c, struct variant *out)
{
    return variants(sc, c, false, out);
}
static sol_status emit_direct(const struct solver_context *sc, const struct cluster *c, const struct variant *v,
                              struct kernel *out)
{
    return emit(sc, c, v, false, out);
}
static bool applicable_winograd(const struct solver_context *sc, const struct cluster *c, const char **out_why)
{
    return any(sc, c, true, out_why);
}
static int variants_winograd(const struct solver_context *sc, const struct cluster *c, struct variant *out)
{
    return variants(sc, c, true, out);
}
static sol_status emit_winograd(const struct solver_context *sc, const struct cluster *c, const struct variant *v,
                                struct kernel *out)
{
    return emit(sc, c, v, true, out);
}

const struct solver dnn_weights = {.name = "weights",
                                   .blocks = true,
                                   .dynamic = true,
                                   .applicable = applicable_direct,
                                   .variants = variants_direct,
                                   .emit = emit_direct};
const struct solver dnn_weights_winograd = {.name = "weights-winograd",
                                            .blocks = true,
                                            .dynamic = true,
                                            .applicable = applicable_winograd,
                                            .variants = variants_winograd,
                                            .emit = emit_winograd};
