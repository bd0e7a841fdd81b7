/* Winograd convolution (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015): input tiles and
 * weights are transformed so that the convolution becomes `points` squared independent matrix products with 2.25
 * (F(2,3)), 4 (F(4,3)) or 2.8 (F(2,5)) times fewer multiplications. Six points are 0, +-sqrt(1/2), +-sqrt(2), infinity:
 * the error is a quarter of that with 0, +-1, +-2. The input's transform depends on the points alone.
 *
 * A window of dilation d sees every d-th pixel: tiles take pixels d apart, and there is one lattice of tiles for each
 * residue.
 *
 * The products are a contraction of their own and run on the blocked micro-kernels; the epilogue runs in the output
 * transform. */
#include "dnn/winograd.h"
#include "dnn/solvers.h"

#include <math.h>
#include <string.h>

#define FAIL(...) return *why = __VA_ARGS__, false
#define MOST_TAPS 5

/* -- is it a square window? */

static int64_t size_of(const struct winograd *w, int ivar)
{
    return w->p.loops->ivars.at[ivar].size;
}

/* Is f P + d*K - p, of an index variable of the pixels and one of the window? Their index variables. */
static bool is_window(const struct winograd *w, const struct affine *f, int *out_m, int *out_k, int64_t *out_dilation)
{
    const struct problem *p = &w->p;
    if (f->n != 2) return false;
    const int first = set_has(p->m, f->ivar[0]) ? 0 : 1;
    *out_m = f->ivar[first];
    *out_k = f->ivar[1 - first];
    *out_dilation = f->coef[1 - first];
    return set_has(p->m, *out_m) && set_has(p->k, *out_k) && f->coef[first] == 1 && *out_dilation >= 1 &&
           !size_varies(*out_dilation);
}

/* Finds the two dimensions of the window; all others of a must be plain. */
static bool find_window(struct winograd *w, const char **why)
{
    const struct problem *p = &w->p;
    int found = 0, m[3], k[3], dim[3];
    int64_t dilation[3];
    for (int d = 0; d < p->a.ndim; d++) {
        const struct affine *f = &p->a.index[d];
        if (is_window(w, f, &m[found], &k[found], &dilation[found])) {
            if (found == 2) FAIL("not a window in two dimensions");
            dim[found++] = d;
        } else if (p->a.border[d] || f->n > 1 || (f->n == 1 && f->coef[0] != 1))
            FAIL("a has an index that is not a window of stride 1");
    }
    if (found != 2 || m[0] == m[1] || k[0] == k[1]) FAIL("not a window in two dimensions");
    w->taps = (int)MIN(size_of(w, k[0]), MOST_TAPS + 1);
    if (size_of(w, k[0]) != size_of(w, k[1]) || w->taps < 2 || w->taps > MOST_TAPS)
        FAIL("the window is not square, of 2 to 5 taps");
    const int row = stride_about(p->a.view.s[m[0]]) > stride_about(p->a.view.s[m[1]]) ? 0 : 1;
    w->rows = m[row], w->cols = m[1 - row];
    w->tap_rows = k[row], w->tap_cols = k[1 - row];
    w->row_dim = dim[row], w->col_dim = dim[1 - row];
    w->dilation[0] = dilation[row], w->dilation[1] = dilation[1 - row];
    return true;
}

static bool find(const struct solver_context *sc, const struct cluster *c, struct winograd *w, const char **why)
{
    struct axes x;
    memset(w, 0, sizeof *w);
    w->target = sc->target;
    w->weights = sc->training;
    if (sc->precision == PRECISION_HIGH) FAIL("not precise enough");
    for (int swap = 0; swap < 2; swap++) {
        struct problem *p = &w->p;
        if (!problem_make(sc->arena, c, swap, p, why)) continue;
        *why = "the weights are not constant or not read once";
        if (!c->memory[p->b.tensor].constant || p->vector < 0) continue;
        if (!problem_packs_b(p)) continue;
        *why = "channels whose number varies";
        if (size_varies(problem_size(p, p->n | p->k))) continue;
        *why = "groups, or values of index variables";
        if (p->batch || p->valued || !p->a.affine) continue;
        if (!find_window(w, why)) continue;
        *why = "channels are not one axis";
        const uint64_t window = UINT64_C(1) << w->tap_rows | UINT64_C(1) << w->tap_cols;
        const struct axes_rule runs = {.by = p->a.view.s, .n = 1, .strides = {p->a.view.s}};
        if (!axes_make(p, p->k & ~window, &runs, &x) || x.n != 1) continue;
        w->channels = x.at[0];
        if (axis_stride(&x.at[0], p->a.view.s) != 1) continue;
        *why = "too few channels for the transforms to pay";
        if (x.at[0].size < 8) continue;
        const uint64_t pixels = UINT64_C(1) << w->rows | UINT64_C(1) << w->cols;
        const struct axes_rule single = {.by = p->order, .single = p->m};
        if (!axes_make(p, p->m & ~pixels, &single, &w->images)) continue;
        return true;
    }
    return false;
}

/* -- the products as a cluster */

/* Adds v[X T I], u[X I O] and m[X T O]. */
static void add_tensors(struct winograd *w, struct loops *loops)
{
    const int64_t x = (int64_t)w->points * w->points, t = w->group, i = w->channels.size, n = w->outputs.size;
    const struct {
        const char *name;
        enum loops_role role;
        int64_t shape[3], plane, pitch; /* elements between matrices, and between their rows */
        bool constant;
    } rows[] = {
        {"v", LOOPS_INPUT, {x, t, i}, w->v_plane, w->v_pitch, false},
        {"u", LOOPS_INPUT, {x, i, n}, i * n, n, true},
        {"m", LOOPS_OUTPUT, {x, t, n}, w->m_plane, w->m_pitch, false},
    };
    w->cluster = (struct cluster){.loops = loops, .memory = NEW_ARRAY(w->p.arena, struct memory, COUNT_OF(rows))};
    for (int k = 0; k < COUNT_OF(rows); k++) {
        const int tensor = loops_tensor(loops, rows[k].name, rows[k].role, w->p.dtype, 3, rows[k].shape);
        w->cluster.memory[tensor] =
            (struct memory){.stride = {rows[k].plane, rows[k].pitch, 1}, .align = 64, .constant = rows[k].constant};
    }
}

static bool make_product(struct winograd *w, const struct blocking_options *o, const char **why)
{
    struct arena *arena = w->p.arena;
    struct loops *loops = loops_create(arena, "product");
    const int lx = loops_ivar(loops, "X", (int64_t)w->points * w->points),
              lt = w->group != 1 ? loops_ivar(loops, "T", w->group) : -1, li = loops_ivar(loops, "I", w->channels.size),
              ln = loops_ivar(loops, "O", w->outputs.size);
    add_tensors(w, loops);
#define T_INDEX (lt < 0 ? ex_int(loops, 0) : ex_ivar(loops, lt))
    const int32_t v =
        ex_read(loops, 0, ex_list(loops, 3, (int32_t[]){ex_ivar(loops, lx), T_INDEX, ex_ivar(loops, li)}), 0);
    const int32_t u = ex_read(
        loops, 1, ex_list(loops, 3, (int32_t[]){ex_ivar(loops, lx), ex_ivar(loops, li), ex_ivar(loops, ln)}), 0);
    const int32_t sum = ex_red(loops, RED_SUM, UINT64_C(1) << li, 0, ex_binary(loops, EX_MUL, v, u));
    const int32_t index = ex_list(loops, 3, (int32_t[]){ex_ivar(loops, lx), T_INDEX, ex_ivar(loops, ln)});
#undef T_INDEX
    const struct loops_stmt s = {.nout = 1, .out = {2}, .index = index, .value = sum};
    loops_stmt(loops, s);
    return problem_make(arena, &w->cluster, false, &w->product, why) &&
           blocking_make(&w->product, w->target, o, &w->b, why);
}

/* Do index variables that are one axis elsewhere lie in b as one run, too? */
static bool one_run(const struct problem *p, const struct axis *x)
{
    for (int i = 0; i + 1 < x->n; i++)
        if (p->b.view.s[x->ivar[i]] != p->b.view.s[x->ivar[i + 1]] * p->loops->ivars.at[x->ivar[i + 1]].size)
            return false;
    return true;
}

/* Tiles of m pixels, d apart, in `size`: d of them for every m * d pixels, fewer where the last ones do not exist. */
static int64_t lattice(int64_t size, int64_t m, int64_t d)
{
    const int64_t whole = size_sub(size_ceil_div(size, m * d), 1);
    return size_add(size_mul(whole, d), size_min(d, size_sub(size, size_mul(whole, m * d))));
}

/* The tiles of a group, a number: at most `most`, and about as many in each group, for the hints. Fewer tiles than that
 * are one group; if their number varies, there may be more of them. */
static int64_t group_of(int64_t tiles, int64_t most)
{
    const int64_t about = size_about(tiles);
    if (about > most) return ceil_div(about, ceil_div(about, most));
    return size_varies(tiles) ? most : tiles;
}

/* The cut of one variant: p[0] points, p[1] schedule, p[2] tiles in a group or, PANEL, channels in a chunk, p[3] pixels
 * and p[4] vectors of a micro-kernel. */
static bool make(struct winograd *w, const struct variant *v, const char **why)
{
    struct problem *p = &w->p;
    const struct axes_rule rule = axes_rule_epilogue(p, 0);
    struct axes n;
    if (!axes_make(p, p->n, &rule, &n) || n.n != 1) FAIL("output channels are not one axis");
    w->points = v->p[0];
    w->schedule = (enum winograd_schedule)v->p[1];
    w->m = w->points + 1 - w->taps;
    if (w->m < 2) FAIL("too few points for this window");
    w->tile_rows = lattice(size_of(w, w->rows), w->m, w->dilation[0]);
    w->tile_cols = lattice(size_of(w, w->cols), w->m, w->dilation[1]);
    w->nimage = axes_size(&w->images);
    w->tiles = size_mul(w->nimage, size_mul(w->tile_rows, w->tile_cols));
    const bool varies = size_varies(w->tiles), task = w->schedule == WINOGRAD_TASK;
    w->group = task ? group_of(w->tiles, v->p[2]) : w->tiles;
    w->ngroup = task ? size_ceil_div(w->tiles, w->group) : 1;
    const int lanes = target_lanes(w->target, p->bytes), pad = 64 / p->bytes;
    const int64_t channels = ceil_div(w->channels.size, lanes) * lanes;
    w->v_pitch = channels + pad; /* so that tiles do not meet in the same cache sets */
    w->v_plane = size_mul(w->group, w->v_pitch);
    const bool panel = w->schedule == WINOGRAD_PANEL;
    const struct blocking_options o = {.pixels = v->p[3],
                                       .vectors = v->p[4],
                                       .chunk = panel ? v->p[2] : 640,
                                       .sum = BLOCKING_SUM_WINOGRAD,
                                       .tiles = w->schedule == WINOGRAD_STEPS ? 16 : 1 << 20,
                                       .source = panel ? B_CALLER : B_PACKED,
                                       .counted = task && varies};
    if (panel && p->varies) FAIL("scratch memory whose size varies");
    if (panel && w->weights) FAIL("weights that change are transformed at once");
    w->outputs = n.at[0];
    w->weights &= p->b.affine && !p->b.any_border && one_run(p, &w->channels) && one_run(p, &w->outputs);
    const int64_t vectors = ceil_div(n.at[0].size, lanes), most = ceil_div(vectors, ceil_div(vectors, o.vectors));
    w->m_pitch = w->schedule == WINOGRAD_STEPS ? ceil_div(vectors, most) * most * lanes : most * lanes;
    w->m_plane = size_add(size_mul(w->group, w->m_pitch), pad);
    if (!make_product(w, &o, why)) return false;
    if (w->b.lanes != lanes || w->b.gather || w->b.nouter != (int64_t)w->points * w->points)
        FAIL("too few output channels");
    if (w->schedule != WINOGRAD_STEPS && w->b.nblock != 1) FAIL("more than one block of tiles");
    w->u_plane = w->b.panel_elements + pad;
    if (panel && (w->u_plane + w->m_plane) * w->points * w->points * p->bytes > w->target->l2 / 4 * 3)
        FAIL("a chunk and its products do not fit the cache");
    w->b.options.fetch = w->b.panel_elements * p->bytes * w->taps * w->taps / (w->points * w->points);
    return true;
}

/* -- weights: u[A B ..] = sum[K L] g[A K] * g[B L] * w[K L ..] */

const struct winograd_pair *winograd_pairs(int points)
{
    static const struct winograd_pair four[] = {{1, 1, 1. / 2}}, six[] = {{1. / 2, 1, -2. / 3}, {2, 1. / 2, 1. / 3}};
    return points == 4 ? four : six;
}

double winograd_power(const struct winograd_pair *pair, int k)
{
    return pow(pair->square, k / 2) * (k % 2 ? sqrt(pair->square) : 1);
}

double *winograd_weights_table(struct arena *arena, int points, int taps)
{
    const int n = points * taps;
    double *g = NEW_ARRAY(arena, double, n);
    g[0] = g[n - 1] = 1; /* the last point is infinity */
    for (int i = 1; i < points - 1; i++) {
        const struct winograd_pair *pair = &winograd_pairs(points)[(i - 1) / 2];
        for (int k = 0; k < taps; k++)
            g[i * taps + k] = pair->weight * winograd_power(pair, k) * (i % 2 == 0 && k % 2 ? -1 : 1);
    }
    return g;
}

/* A pack is loops over index variables: Q chunks, P panels, I channels of a chunk, J lanes of a panel, K and L the
 * window's rows and columns. */
enum { CHUNK, PANEL, CHANNEL, LANE, PACK_IVARS };
struct pack {
    struct loops *loops;
    enum sol_dtype dtype; /* of temporaries */
    int from, to, row, col;
    int32_t index[PACK_IVARS];
};

/* The weight of input channel i, output channel n and the pack's tap, in the operand as it is in the graph. */
static int32_t weight_at(const struct winograd *w, const struct pack *pack, int32_t i, int32_t n)
{
    const struct problem *p = &w->p;
    struct loops *loops = pack->loops;
    int32_t ivar[LOOPS_MAX_IVARS] = {0};
    for (int k = 0; k < w->channels.n; k++) ivar[w->channels.ivar[k]] = axis_digit_ex(p, &w->channels, k, loops, i);
    for (int k = 0; k < w->outputs.n; k++) ivar[w->outputs.ivar[k]] = axis_digit_ex(p, &w->outputs, k, loops, n);
    ivar[w->tap_rows] = ex_ivar(loops, pack->row);
    ivar[w->tap_cols] = ex_ivar(loops, pack->col);
    int *tensor = NEW_ARRAY(p->arena, int, p->loops->tensors.n);
    tensor[p->b.tensor] = pack->from;
    return ex_copy(loops, p->loops, p->b.view.node, ivar, tensor);
}

/* A statement t[Q P I J x y] = value; the reading of t behind it. */
static int32_t step(const struct pack *k, const char *name, int x, int y, int32_t value)
{
    struct loops *loops = k->loops;
    int64_t shape[PACK_IVARS + 2];
    int32_t index[PACK_IVARS + 2];
    for (int d = 0; d < PACK_IVARS; d++) {
        const uint64_t ivars = ex_ivars(loops, k->index[d]);
        index[d] = k->index[d];
        shape[d] = ivars ? loops->ivars.at[__builtin_ctzll(ivars)].size : 1;
    }
    index[PACK_IVARS] = ex_ivar(loops, x), shape[PACK_IVARS] = loops->ivars.at[x].size;
    index[PACK_IVARS + 1] = ex_ivar(loops, y), shape[PACK_IVARS + 1] = loops->ivars.at[y].size;
    const int t = loops_tensor(loops, name, LOOPS_TEMP, k->dtype, PACK_IVARS + 2, shape);
    const struct loops_stmt s = {.nout = 1,
                                 .out = {(uint16_t)t},
                                 .index = ex_list(loops, PACK_IVARS + 2, index),
                                 .value = value,
                                 .label = "winograd weights"};
    loops_stmt(loops, s);
    return ex_read(loops, t, s.index, 0);
}

/* sum[k] g[to k] * value */
static int32_t transform(struct loops *loops, int g, int to, int k, int32_t value)
{
    const int32_t factor = ex_read(loops, g, ex_list(loops, 2, (int32_t[]){ex_ivar(loops, to), ex_ivar(loops, k)}), 0);
    return ex_red(loops, RED_SUM, UINT64_C(1) << k, 0, ex_binary(loops, EX_MUL, factor, value));
}

static int32_t pack_ivar(struct loops *loops, const char *name, int64_t size)
{
    return size == 1 ? ex_int(loops, 0) : ex_ivar(loops, loops_ivar(loops, name, size));
}

/* Begins a pack of that shape; returns the weight at its index variables, 0 where there is none. */
static int32_t pack_begin(const struct winograd *w, struct pack *k, const int64_t shape[6])
{
    const struct blocking *b = &w->b;
    const struct loops_tensor *t = &w->p.loops->tensors.at[w->p.b.tensor];
    const int64_t size[PACK_IVARS] = {b->nchunk, b->panels, b->len, b->width};
    static const char *const names[] = {"Q", "P", "I", "J"};
    struct loops *loops = k->loops = loops_create(w->p.arena, "winograd");
    int32_t guard[2];
    int nguard = 0;
    k->dtype = w->p.dtype;
    k->from = loops_tensor(loops, "w", LOOPS_INPUT, t->dtype, t->ndim, t->shape);
    k->to = loops_tensor(loops, "packed", LOOPS_OUTPUT, t->dtype, 6, shape);
    for (int i = 0; i < PACK_IVARS; i++) k->index[i] = pack_ivar(loops, names[i], size[i]);
    k->row = loops_ivar(loops, "K", w->taps), k->col = loops_ivar(loops, "L", w->taps);
    const int32_t i =
        ex_binary(loops, EX_ADD, ex_binary(loops, EX_MUL, ex_int(loops, b->len), k->index[CHUNK]), k->index[CHANNEL]);
    const int32_t n =
        ex_binary(loops, EX_ADD, ex_binary(loops, EX_MUL, ex_int(loops, b->width), k->index[PANEL]), k->index[LANE]);
    if (b->nchunk * b->len > w->channels.size)
        guard[nguard++] = ex_cmp(loops, CMP_LT, i, ex_int(loops, w->channels.size));
    if (b->panels * b->width > w->outputs.size)
        guard[nguard++] = ex_cmp(loops, CMP_LT, n, ex_int(loops, w->outputs.size));
    const int32_t value = weight_at(w, k, i, n);
    return nguard ? ex_red(loops, RED_SUM, 0, ex_logic(loops, EX_AND, nguard, guard), value) : value;
}

static struct loops *pack_end(struct pack *k, const int32_t index[6], int32_t value)
{
    const struct loops_stmt s = {.nout = 1,
                                 .out = {(uint16_t)k->to},
                                 .index = ex_list(k->loops, 6, index),
                                 .value = value,
                                 .label = "winograd weights"};
    loops_stmt(k->loops, s);
    return k->loops;
}

/* Transformed: u[A B Q P I J]. Each weight is read once, its lanes from far apart; then the window's rows are
 * transformed, then its columns. */
static struct loops *pack_transformed(const struct winograd *w)
{
    const struct blocking *b = &w->b;
    struct pack k;
    int32_t value = pack_begin(w, &k, (int64_t[]){w->points, w->points, b->nchunk, b->panels, b->len, b->width});
    const int g = loops_table(k.loops, "g", SOL_F64, 2, (int64_t[]){w->points, w->taps},
                              winograd_weights_table(w->p.arena, w->points, w->taps));
    const int up = loops_ivar(k.loops, "A", w->points), across = loops_ivar(k.loops, "B", w->points);
    value = step(&k, "taps", k.row, k.col, value);
    value = step(&k, "rows", up, k.col, transform(k.loops, g, up, k.row, value));
    return pack_end(&k,
                    (int32_t[]){ex_ivar(k.loops, up), ex_ivar(k.loops, across), k.index[CHUNK], k.index[PANEL],
                                k.index[CHANNEL], k.index[LANE]},
                    transform(k.loops, g, across, k.col, value));
}

/* As they are: w[P Q I K L J]. */
static struct loops *pack_plain(const struct winograd *w)
{
    const struct blocking *b = &w->b;
    struct pack k;
    const int32_t value = pack_begin(w, &k, (int64_t[]){b->panels, b->nchunk, b->len, w->taps, w->taps, b->width});
    return pack_end(&k,
                    (int32_t[]){k.index[PANEL], k.index[CHUNK], k.index[CHANNEL], ex_ivar(k.loops, k.row),
                                ex_ivar(k.loops, k.col), k.index[LANE]},
                    value);
}

/* -- the solver */

static bool applicable(const struct solver_context *sc, const struct cluster *c, const char **out_why)
{
    struct winograd w;
    const struct variant v = {.p = {6, WINOGRAD_STEPS, 0, 6, 1}};
    return find(sc, c, &w, out_why) && make(&w, &v, out_why);
}

static int64_t scratch_bytes(const struct winograd *w)
{
    const int64_t x = (int64_t)w->points * w->points, edge = x * w->v_pitch;
    int64_t n = edge;
    if (w->schedule == WINOGRAD_TASK) n += x * (w->v_plane + w->m_plane);
    if (w->schedule == WINOGRAD_PANEL) n = MAX(n, x * (w->u_plane + w->m_plane));
    return ceil_div(n * w->p.bytes, 64) * 64;
}

/* Bytes that transformed weights take more than they are. */
static double grows(const struct winograd *w)
{
    const double more = w->points * w->points - w->taps * w->taps;
    return w->schedule == WINOGRAD_PANEL ? 0 : more * (double)(w->channels.size * w->outputs.size * w->p.bytes);
}

/* Is a group of so many tiles, or a chunk of so many channels, all there is? */
static bool all_in_one(const struct winograd *w, int size)
{
    return w->schedule == WINOGRAD_TASK ? size_le(w->tiles, size)
                                        : w->b.nchunk == 1 && w->channels.size <= size + size / 4;
}

/* Rounding of the products comes out 1.7 times as large with 4 points and 5 times with 6. */
static int most_points(const struct solver_context *sc)
{
    return sc->saves && sc->precision == PRECISION_DEFAULT ? 4 : 6;
}

static int variants(const struct solver_context *sc, const struct cluster *c, struct variant *out)
{
    static const struct {
        const char *name;
        enum winograd_schedule schedule;
        int size; /* tiles, or channels */
        int shapes[2];
    } rows[] = {
        {"steps", WINOGRAD_STEPS, 0, {1, 2}},  {"group", WINOGRAD_TASK, 14, {1, 2}},
        {"group", WINOGRAD_TASK, 28, {1, 2}},  {"group", WINOGRAD_TASK, 56, {1, 2}},
        {"group", WINOGRAD_TASK, 98, {1, 2}},  {"panel", WINOGRAD_PANEL, 16, {0, 3}},
        {"panel", WINOGRAD_PANEL, 32, {0, 3}}, {"panel", WINOGRAD_PANEL, 64, {0, 3}},
    };
    struct variant_list list = {.at = out};
    struct tile_shape shape[8];
    struct winograd w;
    const char *why;
    if (!find(sc, c, &w, &why)) return 0;
    const int shapes = cost_tile_shapes(sc->target, shape, COUNT_OF(shape));
    for (int points = 4; points <= most_points(sc); points += 2)
        for (int i = 0; i < COUNT_OF(rows); i++)
            for (int s = rows[i].shapes[0]; s <= rows[i].shapes[1] && s < shapes; s++) {
                struct variant v = {.p = {points, rows[i].schedule, rows[i].size, shape[s].pixels, shape[s].vectors}};
                if (!variant_wanted(sc, &v) || !make(&w, &v, &why)) continue;
                if (i && rows[i - 1].schedule == rows[i].schedule && all_in_one(&w, rows[i - 1].size)) continue;
                if (grows(&w) > 0 && isinf(sc->once)) continue;
                v.once = grows(&w) > 0 && !sc->training ? sc->once * grows(&w) : 0;
                v.cost = cost_winograd(&w) + v.once;
                v.text = arena_printf(sc->arena, "F(%d,%d) %s %lld %dx%d", w.m, w.taps, rows[i].name,
                                      (long long)(w.schedule == WINOGRAD_PANEL ? w.b.len : size_about(w.group)), v.p[3],
                                      v.p[4]);
                variants_add(&list, &v);
            }
    return list.n;
}

static sol_status emit(const struct solver_context *sc, const struct cluster *c, const struct variant *v,
                       struct kernel *out)
{
    struct winograd w;
    const char *why = "";
    if (!find(sc, c, &w, &why) || !make(&w, v, &why))
        return ctx_fail(arena_ctx(sc->arena), SOL_ERR_UNSUPPORTED, "winograd: %s", why);
    struct text text = solver_text(sc);
    winograd_print(&w, &text);
    const int64_t x = (int64_t)w.points * w.points;
    out->source = text.at;
    out->scratch_bytes = scratch_bytes(&w);
    if (w.weights) {
        out->step[out->nstep].suffix = "weights transform";
        out->step[out->nstep++].tasks = w.b.nchunk * w.b.panels;
        out->work_bytes[out->nwork++] = x * w.b.nchunk * w.b.panels * w.b.panel_elements * w.p.bytes;
    } else {
        out->npack = 1;
        out->pack[0] = (struct kernel_pack){
            .tensor = w.p.b.tensor, .loops = w.schedule == WINOGRAD_PANEL ? pack_plain(&w) : pack_transformed(&w)};
    }
    if (w.schedule == WINOGRAD_TASK) {
        out->step[out->nstep++].tasks = w.ngroup;
        return SOL_OK;
    }
    out->step[out->nstep].tasks = w.tiles;
    out->step[out->nstep++].suffix = "input transform";
    out->work_bytes[out->nwork++] = size_mul(x * w.p.bytes, w.v_plane);
    if (w.schedule == WINOGRAD_PANEL) {
        out->step[out->nstep++].tasks = w.b.panels;
        return SOL_OK;
    }
    out->step[out->nstep].tasks = blocking_tasks(&w.b);
    out->step[out->nstep++].suffix = "products";
    out->step[out->nstep].tasks = size_mul(w.tiles, w.b.panels);
    out->step[out->nstep++].suffix = "output transform";
    out->work_bytes[out->nwork++] = size_mul(x * w.p.bytes, w.m_plane);
    return SOL_OK;
}

const struct solver dnn_winograd = {.name = "winograd",
                                    .blocks = true,
                                    .dynamic = true,
                                    .all_rows = true,
                                    .applicable = applicable,
                                    .variants = variants,
                                    .emit = emit};
