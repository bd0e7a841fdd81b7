/* Convolutions by another library: one call computes a block of rows of one image for a block of channels. The library
 * reads activations where they lie. An inner dimension is passed with its size in memory, halos included; results
 * beyond the wanted ones are computed and ignored. `prepare` packs weights as the plug-in asks for.
 *
 *   task: (outer, block of rows, block of channels) */
#include "dnn/foreign_conv.h"

#include <stdlib.h>
#include <string.h>

#define SAY(...) arena_printf(c->p.arena, __VA_ARGS__)

int64_t conv_size(const struct conv *c, int ivar)
{
    return ivar == NONE ? 1 : c->p.loops->ivars.at[ivar].size;
}

static int64_t stride_of(const struct view *v, int ivar)
{
    return ivar == NONE ? 0 : v->s[ivar];
}

/* -- recognition */

/* The only index variable of a set; NONE: the set is empty, -2: it has several. */
static int only(uint64_t set)
{
    if (!set) return NONE;
    return set & (set - 1) ? -2 : __builtin_ctzll(set);
}

/* Describes dimension d of a as a dimension of pixels. False: its index has another form. */
static bool make_pixel(const struct conv *c, int d, struct pixel *out)
{
    const struct problem *p = &c->p;
    const struct affine *f = &p->a.index[d];
    const struct memory *m = &p->c->memory[p->a.tensor];
    *out = (struct pixel){.y = NONE,
                          .k = NONE,
                          .stride = 1,
                          .dilation = 1,
                          .c = f->c,
                          .step = m->stride[d],
                          .low = -m->halo_low[d],
                          .high = p->loops->tensors.at[p->a.tensor].shape[d] + m->halo_high[d],
                          .border = p->a.border[d]};
    for (int i = 0; i < f->n; i++) {
        const bool summed = set_has(p->k, f->ivar[i]);
        int *const ivar = summed ? &out->k : &out->y;
        if (*ivar != NONE || f->coef[i] < 1 || !set_has(p->k | p->m, f->ivar[i])) return false;
        *ivar = f->ivar[i];
        *(summed ? &out->dilation : &out->stride) = f->coef[i];
    }
    return out->step > 0;
}

static bool windowed(const struct pixel *x)
{
    return x->k != NONE || x->stride > 1 || x->border;
}

/* The dimension of a that holds the channels: the one with a group, or else the innermost one whose index is summed
 * only. */
static int channel_dimension(const struct conv *c)
{
    const struct problem *p = &c->p;
    const int64_t *stride = p->c->memory[p->a.tensor].stride;
    int found = NONE;
    for (int d = 0; d < p->a.ndim; d++) {
        uint64_t ivars = 0;
        for (int i = 0; i < p->a.index[d].n; i++) ivars |= UINT64_C(1) << p->a.index[d].ivar[i];
        if (ivars & p->batch) return d;
        if (ivars && !(ivars & ~p->k) && !p->a.border[d] && (found == NONE || stride[d] < stride[found])) found = d;
    }
    return found;
}

static bool take_channels(struct conv *c, int d, uint64_t *seen, const char **why)
{
    const struct problem *p = &c->p;
    *why = "its channels do not form groups";
    c->group = only(p->batch);
    c->out = only(p->n);
    c->in = NONE;
    if (c->group == -2 || c->out == -2) return false;
    for (int i = 0; d != NONE && i < p->a.index[d].n; i++) {
        const int ivar = p->a.index[d].ivar[i];
        *seen |= UINT64_C(1) << ivar;
        if (ivar == c->group) continue;
        if (c->in != NONE || !set_has(p->k, ivar)) return false;
        c->in = ivar;
    }
    const struct view *a = &p->a.view;
    c->whole.groups = conv_size(c, c->group);
    c->whole.in = conv_size(c, c->in);
    c->channels = conv_size(c, c->out);
    c->whole.x_channel = c->in != NONE ? a->s[c->in] : c->group != NONE ? a->s[c->group] : 1;
    if (c->group != NONE && a->s[c->group] != c->whole.in * c->whole.x_channel) return false;
    *why = "a single channel";
    return c->whole.x_channel > 0 && (c->out != NONE || c->group != NONE);
}

static int by_step(const void *a, const void *b)
{
    const struct pixel *x = a, *y = b;
    return (x->step < y->step) - (x->step > y->step);
}

/* Images are the dimensions outside of all windows. At least two dimensions stay pixels if there are that many. */
static bool take_pixels(struct conv *c, struct pixel *all, int n, const char **why)
{
    int first = 0;
    *why = "no pixels, or too many dimensions of them";
    if (!n) return false;
    qsort(all, (size_t)n, sizeof *all, by_step);
    while (first < n - 2 && !windowed(&all[first])) first++;
    if (n - first > SOL_PLUGIN_DIMS) return false;
    c->nouter = 0;
    c->images = 1;
    c->base = c->p.a.view.c;
    for (int i = 0; i < first; i++) {
        c->outer[c->nouter++] = all[i].y;
        c->images *= conv_size(c, all[i].y);
    }
    c->ndim = n - first;
    memcpy(c->pixel, all + first, (size_t)c->ndim * sizeof *all);
    return true;
}

/* Describes the dimensions inside a row with their size in memory. */
static bool describe_inner(struct conv *c, const char **why)
{
    *why = "the pixels do not lie as rows";
    for (int i = 1; i < c->ndim; i++) {
        const struct pixel *x = &c->pixel[i];
        const int64_t all = c->pixel[i - 1].step / x->step, from = MAX(x->c, x->low);
        const int64_t window = conv_size(c, x->k), reach = (window - 1) * x->dilation + 1;
        const int64_t end = x->c + (conv_size(c, x->y) - 1) * x->stride + reach, behind = MAX(end - x->high, 0);
        if (c->pixel[i - 1].step % x->step || all < x->high - x->low) return false;
        /* the next row follows there instead of zeros */
        if (behind && (from != x->low || all != x->high - x->low)) return false;
        const int64_t y = (all + from - x->c + behind - reach) / x->stride + 1;
        if (y < conv_size(c, x->y)) return false;
        c->whole.d[i].x = all;
        c->whole.d[i].y = y;
        c->whole.d[i].low = from - x->c;
        c->whole.d[i].high = behind;
        c->base += (from - x->c) * x->step;
    }
    return true;
}

/* Does the last row end inside the tensor's memory although rows are longer in memory? */
static bool ends_inside(const struct conv *c)
{
    const struct problem *p = &c->p;
    const struct memory *m = &p->c->memory[p->a.tensor];
    const struct loops_tensor *t = &p->loops->tensors.at[p->a.tensor];
    const struct pixel *first = &c->pixel[0];
    const int64_t reach = (conv_size(c, first->k) - 1) * first->dilation;
    const int64_t last = first->c + (c->nrows - 1) * first->stride + reach;
    int64_t end = c->base + (c->whole.groups * c->whole.in - 1) * c->whole.x_channel, all = 0;
    end += (MIN(last, first->high - 1) - first->low) * first->step;
    for (int i = 0; i < c->nouter; i++) end += (conv_size(c, c->outer[i]) - 1) * stride_of(&p->a.view, c->outer[i]);
    for (int i = 1; i < c->ndim; i++) end += (c->whole.d[i].x - 1) * c->pixel[i].step;
    for (int d = 0; d < t->ndim; d++) all += (t->shape[d] + m->halo_high[d] - 1) * m->stride[d];
    return end <= all;
}

static bool recognise(struct conv *c, const char **why)
{
    const struct problem *p = &c->p;
    struct pixel all[SOL_MAX_DIMS];
    uint64_t seen = 0;
    int n = 0;
    *why = "not float32, or no constant weights";
    if (!foreign_is_f32(p) || !p->c->memory[p->b.tensor].constant || !problem_packs_b(p)) return false;
    *why = "an index is not affine, or weights are read outside";
    if (!p->a.affine || !p->b.affine || p->b.any_border) return false;
    const int channels = channel_dimension(c);
    c->whole.size = sizeof c->whole;
    if (!take_channels(c, channels, &seen, why)) return false;
    *why = "its pixels have no windows";
    for (int d = 0; d < p->a.ndim; d++) {
        if (d == channels || !p->a.index[d].n) continue;
        if (!make_pixel(c, d, &all[n])) return false;
        seen |= (all[n].y == NONE ? 0 : UINT64_C(1) << all[n].y) | (all[n].k == NONE ? 0 : UINT64_C(1) << all[n].k);
        n++;
    }
    if ((p->m | p->k) & ~seen || !take_pixels(c, all, n, why) || !describe_inner(c, why)) return false;
    for (int i = 0; i < c->ndim; i++) {
        const struct pixel *x = &c->pixel[i];
        c->whole.d[i].window = conv_size(c, x->k);
        c->whole.d[i].stride = x->stride;
        c->whole.d[i].dilation = x->dilation;
        c->whole.d[i].x_stride = x->step;
    }
    c->whole.ndim = c->ndim;
    c->nrows = conv_size(c, c->pixel[0].y);
    c->base += (c->pixel[0].low - c->pixel[0].c) * c->pixel[0].step;
    *why = "rows end outside of the memory";
    return ends_inside(c);
}

bool conv_find(const struct solver_context *sc, const struct cluster *cluster, const struct plugin *by, struct conv *c,
               const char **why)
{
    memset(c, 0, sizeof *c); /* plug-ins compare descriptions byte by byte */
    c->by = by;
    c->lanes = target_lanes(sc->target, 4);
    *why = "it has no convolutions";
    if (!by->conv_plan) return false;
    for (int swap = 0; swap < 2; swap++)
        if (problem_make(sc->arena, cluster, swap, &c->p, why) && recognise(c, why)) {
            c->p.vector = c->out != NONE ? c->out : c->group;
            return true;
        }
    return false;
}

bool foreign_conv_applicable(const struct solver_context *sc, const struct cluster *cluster, const struct plugin *by,
                             const char **out_why)
{
    struct variant v[SOLVER_MAX_VARIANTS];
    struct variant_list list = {.at = v};
    struct conv c;
    if (!conv_find(sc, cluster, by, &c, out_why)) return false;
    *out_why = "the library has nothing for it";
    foreign_conv_variants(sc, cluster, by, &list);
    return list.n > 0;
}

/* -- variants */

/* The rows of a block as a convolution, and the row of a's memory where it begins. False: it reads nothing. */
bool conv_block(const struct conv *c, int64_t block, struct sol_plugin_conv *out, int64_t *out_row)
{
    const struct pixel *x = &c->pixel[0];
    const int64_t rows = MIN(c->rows, c->nrows - block * c->rows), begin = block * c->rows * x->stride + x->c;
    const int64_t end = begin + (rows - 1) * x->stride + (conv_size(c, x->k) - 1) * x->dilation + 1;
    const int64_t from = MAX(begin, x->low), to = MIN(end, x->high);
    *out = c->whole;
    out->out = c->cols;
    out->d[0].x = to - from;
    out->d[0].y = rows;
    out->d[0].low = from - begin;
    out->d[0].high = end - to;
    *out_row = from - x->low;
    return to > from;
}

static bool same_block(const struct sol_plugin_conv *a, const struct sol_plugin_conv *b)
{
    return a->d[0].x == b->d[0].x && a->d[0].y == b->d[0].y && a->d[0].low == b->d[0].low;
}

int conv_kind(const struct conv *c, const struct sol_plugin_conv *block)
{
    int i = 0;
    while (i < c->nkind && !same_block(&c->kind[i], block)) i++;
    return i;
}

/* Adds the kind of a block. All kinds take the weights in the layout of the first kind. */
static bool plan_block(struct conv *c, int64_t block)
{
    struct sol_plugin_conv now;
    int64_t row;
    if (!conv_block(c, block, &now, &row)) return false;
    const int kind = conv_kind(c, &now);
    if (kind < c->nkind) return true;
    if (kind == MOST_KINDS) return false;
    if (kind) {
        const struct sol_plugin_conv *first = &c->kind[0];
        now.weights = first->weights;
        now.w_blocks = first->w_blocks;
        memcpy(now.w_padded, first->w_padded, sizeof now.w_padded);
        memcpy(now.w_stride, first->w_stride, sizeof now.w_stride);
        memcpy(now.w_block, first->w_block, sizeof now.w_block);
        memcpy(now.w_block_dim, first->w_block_dim, sizeof now.w_block_dim);
    }
    c->kind[c->nkind++] = now;
    return !c->by->conv_plan(&c->kind[kind]);
}

bool conv_divide(struct conv *c, int rows, int cols)
{
    c->rows = rows;
    c->cols = cols;
    c->blocks = (c->nrows + rows - 1) / rows;
    c->nblock = c->channels / cols;
    c->nkind = 0;
    if (!plan_block(c, c->blocks / 2)) return false; /* the layout of weights that most blocks want */
    for (int64_t i = 0; i < c->blocks; i++)
        if (!plan_block(c, i)) return false;
    return true;
}

static int64_t sums_of(const struct conv *c, int64_t rows)
{
    int64_t n = rows * c->whole.groups * c->cols;
    for (int i = 1; i < c->ndim; i++) n *= c->whole.d[i].y;
    return n;
}

int64_t conv_sums_bytes(const struct conv *c)
{
    return (sums_of(c, c->rows) + c->lanes + 15) / 16 * 64;
}

int64_t conv_scratch_bytes(const struct conv *c)
{
    int64_t most = 0;
    for (int i = 0; i < c->nkind; i++) most = MAX(most, c->kind[i].scratch);
    return conv_sums_bytes(c) + (most + 63) / 64 * 64;
}

static void add_variant(const struct solver_context *sc, struct conv *c, int rows, int cols, struct variant_list *list)
{
    struct variant v = {.p = {rows, cols, FOREIGN_CONV}};
    c->cols = cols;
    if (sums_of(c, rows) * 4 > sc->target->l2 * 3 / 4 || !conv_divide(c, rows, cols)) return;
    v.cost = cost_foreign(&c->p, sc->target, c->images * c->blocks * c->nblock);
    v.text = SAY("conv %dx%d", rows, cols);
    variants_add(list, &v);
}

void foreign_conv_variants(const struct solver_context *sc, const struct cluster *cluster, const struct plugin *by,
                           struct variant_list *list)
{
    enum { LEAST_CHANNELS = 16, MOST_PARTS = 16 };
    struct conv c;
    const char *why;
    if (!conv_find(sc, cluster, by, &c, &why)) return;
    for (int n = 1; n <= 4; n *= 2) {
        if (n > 1 && (c.whole.groups > 1 || c.channels % (n * LEAST_CHANNELS))) break;
        for (int64_t m = 1, last = 0; m <= MOST_PARTS && m <= c.nrows; m *= 2) {
            const int64_t rows = (c.nrows + m - 1) / m;
            if (rows != last) add_variant(sc, &c, (int)rows, (int)(c.channels / n), list);
            last = rows;
        }
    }
}
