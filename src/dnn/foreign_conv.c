/* Convolutions by another library: one call computes a block of rows of one image for a block of channels. The library
 * reads activations where they lie. An inner dimension is passed with its size in memory, halos included; results
 * beyond the wanted ones are computed and ignored. `prepare` packs weights as the plug-in asks for.
 *
 *   task: (outer, block of rows, block of channels) */
#include "dnn/foreign.h"

#include <stdlib.h>
#include <string.h>

#include "sol/plugin.h"

#define SAY(...) arena_printf(c->p.arena, __VA_ARGS__)
enum { MOST_DIMS = 8, MOST_KINDS = 8, NONE = -1, FIELDS = sizeof(struct sol_plugin_conv) / 8 };

struct pixel { /* a dimension of a with the index stride * y + dilation * k + c */
    int y, k;  /* index variables; NONE: of size 1 */
    int64_t stride, dilation, c;
    /* step: elements between neighbours; low, high: first and last + 1 index that has memory */
    int64_t step, low, high;
    bool border;
};
struct conv {
    struct problem p;
    const struct plugin *by;
    int lanes;
    int group, in, out, nouter, outer[MOST_DIMS], ndim; /* index variables, or NONE */
    struct pixel pixel[SOL_PLUGIN_DIMS];                /* outermost first */
    struct sol_plugin_conv whole;                       /* without x, y, low and high of d[0] */
    int64_t base;                                       /* offset in a of the first row that has memory */
    int64_t nrows, channels;
    /* the variant */
    int64_t rows, cols, blocks, nblock; /* rows, channels of a task; how many of both blocks */
    int nkind;
    struct sol_plugin_conv kind[MOST_KINDS]; /* one for each kind of block of rows */
    int64_t images;
};

static int64_t size_of(const struct conv *c, int ivar)
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
    c->whole.groups = size_of(c, c->group);
    c->whole.in = size_of(c, c->in);
    c->channels = size_of(c, c->out);
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
        c->images *= size_of(c, all[i].y);
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
        const int64_t window = size_of(c, x->k), reach = (window - 1) * x->dilation + 1;
        const int64_t end = x->c + (size_of(c, x->y) - 1) * x->stride + reach, behind = MAX(end - x->high, 0);
        if (c->pixel[i - 1].step % x->step || all < x->high - x->low) return false;
        /* the next row follows there instead of zeros */
        if (behind && (from != x->low || all != x->high - x->low)) return false;
        const int64_t y = (all + from - x->c + behind - reach) / x->stride + 1;
        if (y < size_of(c, x->y)) return false;
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
    const int64_t reach = (size_of(c, first->k) - 1) * first->dilation;
    const int64_t last = first->c + (c->nrows - 1) * first->stride + reach;
    int64_t end = c->base + (c->whole.groups * c->whole.in - 1) * c->whole.x_channel, all = 0;
    end += (MIN(last, first->high - 1) - first->low) * first->step;
    for (int i = 0; i < c->nouter; i++) end += (size_of(c, c->outer[i]) - 1) * stride_of(&p->a.view, c->outer[i]);
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
        c->whole.d[i].window = size_of(c, x->k);
        c->whole.d[i].stride = x->stride;
        c->whole.d[i].dilation = x->dilation;
        c->whole.d[i].x_stride = x->step;
    }
    c->whole.ndim = c->ndim;
    c->nrows = size_of(c, c->pixel[0].y);
    c->base += (c->pixel[0].low - c->pixel[0].c) * c->pixel[0].step;
    *why = "rows end outside of the memory";
    return ends_inside(c);
}

static bool find(const struct solver_context *sc, const struct cluster *cluster, const struct plugin *by,
                 struct conv *c, const char **why)
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
    if (!find(sc, cluster, by, &c, out_why)) return false;
    *out_why = "the library has nothing for it";
    foreign_conv_variants(sc, cluster, by, &list);
    return list.n > 0;
}

/* -- variants */

/* The rows of a block as a convolution, and the row of a's memory where it begins. False: it reads nothing. */
static bool describe_block(const struct conv *c, int64_t block, struct sol_plugin_conv *out, int64_t *out_row)
{
    const struct pixel *x = &c->pixel[0];
    const int64_t rows = MIN(c->rows, c->nrows - block * c->rows), begin = block * c->rows * x->stride + x->c;
    const int64_t end = begin + (rows - 1) * x->stride + (size_of(c, x->k) - 1) * x->dilation + 1;
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

static int kind_of(const struct conv *c, const struct sol_plugin_conv *block)
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
    if (!describe_block(c, block, &now, &row)) return false;
    const int kind = kind_of(c, &now);
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

static bool cut(struct conv *c, int rows, int cols)
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

static int64_t sums_bytes(const struct conv *c)
{
    return (sums_of(c, c->rows) + c->lanes + 15) / 16 * 64;
}

static int64_t scratch_bytes(const struct conv *c)
{
    int64_t most = 0;
    for (int i = 0; i < c->nkind; i++) most = MAX(most, c->kind[i].scratch);
    return sums_bytes(c) + (most + 63) / 64 * 64;
}

static void add_variant(const struct solver_context *sc, struct conv *c, int rows, int cols, struct variant_list *list)
{
    struct variant v = {.p = {rows, cols, FOREIGN_CONV}};
    c->cols = cols;
    if (sums_of(c, rows) * 4 > sc->target->l2 * 3 / 4 || !cut(c, rows, cols)) return;
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
    if (!find(sc, cluster, by, &c, &why)) return;
    for (int n = 1; n <= 4; n *= 2) {
        if (n > 1 && (c.whole.groups > 1 || c.channels % (n * LEAST_CHANNELS))) break;
        for (int64_t m = 1, last = 0; m <= MOST_PARTS && m <= c.nrows; m *= 2) {
            const int64_t rows = (c.nrows + m - 1) / m;
            if (rows != last) add_variant(sc, &c, (int)rows, (int)(c.channels / n), list);
            last = rows;
        }
    }
}

/* -- the weights */

struct packing {
    const struct conv *c;
    struct loops *to;
    int32_t index[SOL_MAX_DIMS], value[3 + SOL_PLUGIN_DIMS]; /* value: by dimension of w, its index */
    int64_t shape[SOL_MAX_DIMS];
    int ndim;
};

/* Adds a dimension to the packed weights. One step in it advances dimension `d` of w by `times`, unless d is NONE. */
static int32_t pack_dimension(struct packing *k, int64_t size, int d, int64_t times)
{
    if (size == 1 || k->ndim == SOL_MAX_DIMS) return ex_int(k->to, 0);
    const int32_t node = ex_ivar(k->to, loops_ivar(k->to, "B", size));
    k->index[k->ndim] = node;
    k->shape[k->ndim++] = size;
    if (d == NONE) return node;
    k->value[d] = ex_binary(k->to, EX_ADD, k->value[d], ex_binary(k->to, EX_MUL, ex_int(k->to, times), node));
    return node;
}

/* Adds the dimensions of packed weights: blocks of channels of a task, then the blocks of w by their strides, then the
 * insides of blocks. *out_part is the node of the first. False: the order cannot be expressed. */
static bool pack_dimensions(struct packing *k, int32_t *out_part)
{
    const struct sol_plugin_conv *w = &k->c->kind[0];
    const int n = 3 + (int)w->ndim;
    int64_t below[3 + SOL_PLUGIN_DIMS] = {1, 1, 1, 1, 1, 1}, inside = 1, left = w->weights;
    for (int i = 0; i < w->w_blocks; i++) {
        below[w->w_block_dim[i]] *= w->w_block[i];
        inside *= w->w_block[i];
    }
    *out_part = pack_dimension(k, k->c->nblock, NONE, 0);
    for (uint64_t todo = (1u << n) - 1; todo;) {
        int d = NONE;
        for (int i = 0; i < n; i++)
            if (todo >> i & 1 && (d == NONE || w->w_stride[i] > w->w_stride[d])) d = i;
        for (int i = 0; i < n; i++) /* dimensions with a single block have arbitrary strides */
            if (todo >> i & 1 && w->w_padded[i] == below[i]) d = i;
        const int64_t size = w->w_padded[d] / below[d];
        todo &= ~(UINT64_C(1) << d);
        left /= size;
        if (w->w_padded[d] % below[d] || (size > 1 && w->w_stride[d] != left)) return false;
        pack_dimension(k, size, d, below[d]);
    }
    for (int i = 0; i < w->w_blocks; i++) {
        const int d = (int)w->w_block_dim[i];
        below[d] /= w->w_block[i];
        pack_dimension(k, w->w_block[i], d, below[d]);
    }
    return left == inside && k->ndim < SOL_MAX_DIMS;
}

/* NULL: loops cannot describe the layout. */
static struct loops *make_pack(const struct conv *c, struct arena *arena)
{
    const struct problem *p = &c->p;
    const struct loops_tensor *t = &p->loops->tensors.at[p->b.tensor];
    const struct sol_plugin_conv *w = &c->kind[0];
    struct packing k = {.c = c, .to = loops_create(arena, "pack")};
    const int from = loops_tensor(k.to, "w", LOOPS_INPUT, t->dtype, t->ndim, t->shape);
    const int ivars[] = {c->group, c->out, c->in, c->pixel[0].k, c->pixel[1].k, c->pixel[2].k};
    int32_t part, guard[COUNT_OF(ivars)], ivar[LOOPS_MAX_IVARS] = {0};
    int nguard = 0;
    for (int i = 0; i < COUNT_OF(ivars); i++) k.value[i] = ex_int(k.to, 0);
    if (!pack_dimensions(&k, &part)) return NULL;
    for (int i = 0; i < 3 + c->ndim; i++) {
        const int64_t size = i == 1 ? c->cols : size_of(c, ivars[i]);
        if (w->w_padded[i] > size) guard[nguard++] = ex_cmp(k.to, CMP_LT, k.value[i], ex_int(k.to, size));
        if (i == 1)
            k.value[i] = ex_binary(k.to, EX_ADD, k.value[i], ex_binary(k.to, EX_MUL, ex_int(k.to, c->cols), part));
        if (ivars[i] != NONE) ivar[ivars[i]] = k.value[i];
    }
    const int out = loops_tensor(k.to, "packed", LOOPS_OUTPUT, t->dtype, k.ndim, k.shape);
    int *tensor = NEW_ARRAY(arena, int, p->loops->tensors.n);
    tensor[p->b.tensor] = from;
    int32_t value = ex_copy(k.to, p->loops, p->b.view.node, ivar, tensor);
    if (nguard) value = ex_red(k.to, RED_SUM, 0, ex_logic(k.to, EX_AND, nguard, guard), value);
    const struct loops_stmt s = {
        .nout = 1, .out = {(uint16_t)out}, .index = ex_list(k.to, k.ndim, k.index), .value = value, .label = "pack"};
    loops_stmt(k.to, s);
    return k.to;
}

/* -- the kernel */

static const char *value_of(const struct conv *c, int ivar)
{
    for (int i = 0; i < c->nouter; i++)
        if (c->outer[i] == ivar) return SAY("o%d", i);
    for (int i = 0; i < c->ndim; i++)
        if (c->pixel[i].y == ivar) return i ? SAY("q%d", i) : "(row0 + r)";
    return ivar != c->p.vector ? "g" : c->out != NONE ? "(col0 + n)" : "n";
}

static const char *ivar_value(void *user, int ivar)
{
    return value_of(user, ivar);
}

/* The offset of a view at the vector. */
static const char *offset(const void *user, const struct view *v)
{
    const struct conv *c = user;
    const char *text = SAY("INT64_C(%lld)", (long long)v->c);
    for (int i = 0; i < c->p.loops->ivars.n; i++)
        if (set_has(c->p.batch | c->p.m | c->p.n, i) && v->s[i])
            text = SAY("%s + %s * INT64_C(%lld)", text, value_of(c, i), (long long)v->s[i]);
    return text;
}

/* Prints tables of the kinds and of the blocks of rows, and the code that finds the library's functions. */
static void print_tables(const struct conv *c, struct text *out)
{
    text_put(out, "static const int64_t @kind[%d][%d] = {\n", c->nkind, FIELDS);
    for (int i = 0; i < c->nkind; i++) {
        int64_t field[FIELDS];
        memcpy(field, &c->kind[i], sizeof field);
        for (int k = 0; k < FIELDS; k++)
            text_put(out, "%s%lld%s", k ? ", " : "    {", (long long)field[k], k == FIELDS - 1 ? "},\n" : "");
    }
    text_put(out, "};\nstatic const int64_t @block[%lld][2] = { /* its kind and its first row */\n",
             (long long)c->blocks);
    for (int64_t i = 0; i < c->blocks; i++) {
        struct sol_plugin_conv now;
        int64_t row;
        describe_block(c, i, &now, &row);
        text_put(out, "%s{%d, %lld},%s", i % 8 ? " " : "    ", kind_of(c, &now), (long long)row,
                 i % 8 == 7 || i == c->blocks - 1 ? "\n" : "");
    }
    text_put(out,
             "};\n"
             "typedef const void *(*@find_fn)(const void *conv);\n"
             "typedef int (*@run_fn)(const void *conv, const @real *x, const @real *w, @real *y, void *scratch);\n"
             "static const void *@conv[%d]; /* by kind */\n"
             "static @run_fn @find_run(void)\n{\n"
             "    static @run_fn known;\n"
             "    @run_fn run = __atomic_load_n(&known, __ATOMIC_ACQUIRE);\n"
             "    if (run) return run;\n"
             "    const @find_fn find = (@find_fn)@plugin_function(\"sol_plugin_conv_find\");\n"
             "    for (int i = 0; i < %d; i++) {\n"
             "        const void *one = find ? find(@kind[i]) : 0;\n"
             "        if (!one) return 0;\n"
             "        __atomic_store_n(&@conv[i], one, __ATOMIC_RELAXED);\n"
             "    }\n"
             "    run = (@run_fn)@plugin_function(\"sol_plugin_conv_run\");\n"
             "    __atomic_store_n(&known, run, __ATOMIC_RELEASE);\n"
             "    return run;\n"
             "}\n\n",
             c->nkind, c->nkind);
}

static void print_epilogue(struct conv *c, const struct target *t, struct text *out)
{
    struct epilogue e = {
        .p = &c->p, .target = t, .lanes = c->lanes, .place = foreign_place, .ivar = ivar_value, .user = c};
    const bool grouped = c->group != NONE && c->out != NONE;
    const int64_t all = c->out != NONE ? c->cols : c->whole.groups;
    const char *pixel = "r";
    text_open(out, "for (int64_t r = 0; r < rows; r++)");
    for (int i = 1; i < c->ndim; i++) {
        text_open(out, "for (int64_t q%d = 0; q%d < %lld; q%d++)", i, i, (long long)size_of(c, c->pixel[i].y), i);
        pixel = SAY("(%s * %lld + q%d)", pixel, (long long)c->whole.d[i].y, i);
    }
    if (grouped) text_open(out, "for (int64_t g = 0; g < %lld; g++)", (long long)c->whole.groups);
    text_open(out, "for (int64_t n = 0; n < %lld; n += %d) {", (long long)all, c->lanes);
    foreign_epilogue(&e, out,
                     SAY("sums + %s * %lld + %sn", pixel, (long long)(c->whole.groups * c->cols),
                         grouped ? SAY("g * %lld + ", (long long)c->cols) : ""),
                     "n", all, offset);
    text_close(out, "}");
    out->indent -= c->ndim + grouped;
}

static void print_task(struct conv *c, const struct target *t, struct text *out)
{
    const struct problem *p = &c->p;
    int64_t below = c->images;
    const char *start =
        SAY("INT64_C(%lld) + @block[b][1] * INT64_C(%lld)", (long long)c->base, (long long)c->pixel[0].step);
    text_line(out, "const int64_t col0 = t %% %lld * %lld, b = t / %lld %% %lld, row0 = b * %lld;",
              (long long)c->nblock, (long long)c->cols, (long long)c->nblock, (long long)c->blocks, (long long)c->rows);
    text_line(out, "const int64_t rows = %lld - row0 < %lld ? %lld - row0 : %lld;", (long long)c->nrows,
              (long long)c->rows, (long long)c->nrows, (long long)c->rows);
    for (int i = 0; i < c->nouter; i++) {
        below /= size_of(c, c->outer[i]);
        text_line(out, "const int64_t o%d = t / %lld %% %lld;", i, (long long)(below * c->blocks * c->nblock),
                  (long long)size_of(c, c->outer[i]));
        start = SAY("%s + o%d * INT64_C(%lld)", start, i, (long long)p->a.view.s[c->outer[i]]);
    }
    text_line(out, "if (run(__atomic_load_n(&@conv[@block[b][0]], __ATOMIC_RELAXED), (const @real *)p[%d] + %s,",
              problem_operand(p, p->a.tensor), start);
    text_line(out, "        (const @real *)p[%d] + t %% %lld * %lld, sums, (char *)sums + %lld)) {",
              problem_operand(p, p->b.tensor), (long long)c->nblock, (long long)c->kind[0].weights,
              (long long)sums_bytes(c));
    text_line(out, "    @sol_error(f, SOL_KERNEL_PLUGIN);");
    text_line(out, "    return;");
    text_line(out, "}");
    print_epilogue(c, t, out);
}

sol_status foreign_conv_emit(const struct solver_context *sc, const struct cluster *cluster, const struct plugin *by,
                             const struct variant *v, struct kernel *out)
{
    struct conv c;
    const char *why = "the library has nothing for it";
    struct loops *pack = find(sc, cluster, by, &c, &why) && cut(&c, v->p[0], v->p[1]) ? make_pack(&c, sc->arena) : NULL;
    if (!pack) return ctx_fail(arena_ctx(sc->arena), SOL_ERR_UNSUPPORTED, "%s: %s", by->name, why);
    struct text text = solver_text(sc);
    foreign_begin(by, &text);
    print_tables(&c, &text);
    kernel_open(&text, 0);
    text_line(&text, "@real *const sums = (@real *)((char *)f->scratch + worker * f->scratch_bytes);");
    text_line(&text, "const @run_fn run = @find_run();");
    text_line(&text, "if (!run) @sol_error(f, SOL_KERNEL_PLUGIN);");
    text_open(&text, "for (int64_t t = task0; run && t < task1; t++) {");
    print_task(&c, sc->target, &text);
    text_close(&text, "}");
    kernel_close(&text);
    out->source = text.at;
    out->nstep = 1;
    out->step[0].tasks = c.images * c.blocks * c.nblock;
    out->scratch_bytes = scratch_bytes(&c);
    out->npack = 1;
    out->pack[0] = (struct kernel_pack){.tensor = c.p.b.tensor, .loops = pack};
    return SOL_OK;
}
