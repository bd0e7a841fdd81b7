/* The solver of attention's gradient (attention.h) on graphics cards: the weights of a block of queries and keys are
 * computed again, and all three gradients from them. */
#include <math.h>

#include "dnn/attention_simt.h"
#include "dnn/solvers.h"
#include "print/flavour.h"

enum { P_QUERIES, P_KEYS, P_ITEMS, P_ACROSS, P_PARTS };
enum { PACK = 16, MOST = 200 }; /* bytes of a load of full width; registers of an item's sums */

/* -- shape */

/* Columns of an item's tile with `across` items in a row, in whole loads. */
static int columns(const struct attention_grad_simt *s, int across, int depth)
{
    const int piece = across * s->group.wide;
    return (depth + piece - 1) / piece * s->group.wide;
}

/* The tile of an item of a sum [rows][depth], whose products need the fewest instructions; false: there is none. */
static bool place(const struct attention_grad_simt *s, int rows, int depth, struct attention_place *out)
{
    const double read = 1.5; /* products in the time of reading an element */
    double best = INFINITY;
    for (int across = 4; across <= s->group.items; across *= 2) {
        if (s->group.items % across || rows * across % s->group.items) continue;
        const struct attention_place x = {rows * across / s->group.items, columns(s, across, depth), across};
        const double cost = x.rows * x.cols + read * (x.rows + x.cols);
        if (cost >= best) continue;
        best = cost;
        *out = x;
    }
    return isfinite(best);
}

/* Elements of a row in shared memory that has `columns` of them. Loads of neighbouring rows find different banks. */
static int pitch(const struct attention_grad_simt *s, int columns)
{
    const int wide = s->group.wide, loads = (columns + wide - 1) / wide;
    return (loads | 1) * wide;
}

static int width(const struct attention_place *x)
{
    return x->across * x->cols;
}

static void put_memory(struct attention_grad_simt *s)
{
    const struct attention *a = &s->g.a;
    const struct target *t = a->target;
    const int bytes = dtype_def(a->dtype)->bytes, both = a->queries + a->keys;
    s->wide_d = MAX(width(&s->sum[ATTENTION_DK]), width(&s->sum[ATTENTION_DQ]));
    s->wide_e = width(&s->sum[ATTENTION_DV]);
    s->pitch_d = pitch(s, s->wide_d);
    s->pitch_e = pitch(s, s->wide_e);
    s->pitch_p = a->keys + s->group.wide;
    s->pitch_sum = columns(s, 1, (int)attention_size(a, a->d));
    const int weights = a->queries * s->pitch_p * bytes;
    const int one = (both * (s->pitch_d + s->pitch_e) + s->g.nrow * a->queries) * bytes + weights;
    s->two_buffers = one + weights <= t->group_bytes && t->l1 / (one + weights + 1024) >= t->l1 / (one + 1024);
    s->shared = one + (s->two_buffers ? weights : 0);
}

/* Registers of an item for sums and weights, of 4 bytes. */
static int registers(const struct attention_grad_simt *s)
{
    const struct attention_place *dv = &s->sum[ATTENTION_DV], *dk = &s->sum[ATTENTION_DK], *dq = &s->sum[ATTENTION_DQ];
    const int tiles = MAX(2 * s->score.rows * s->score.cols, dq->rows * dq->cols);
    return (dv->rows * dv->cols + dk->rows * dk->cols + tiles) * dtype_def(s->g.a.dtype)->bytes / 4;
}

/* False: shared memory or registers are too few. */
static bool shape(struct attention_grad_simt *s, const int *p)
{
    struct attention *a = &s->g.a;
    const int d = (int)attention_size(a, a->d), e = (int)attention_size(a, a->e);
    a->queries = p[P_QUERIES];
    a->keys = p[P_KEYS];
    s->parts = p[P_PARTS];
    s->group.items = p[P_ITEMS];
    s->group.wide = PACK / dtype_def(a->dtype)->bytes;
    s->score = (struct attention_place){a->queries * p[P_ACROSS] / p[P_ITEMS], a->keys / p[P_ACROSS], p[P_ACROSS]};
    if (!place(s, a->keys, e, &s->sum[ATTENTION_DV]) || !place(s, a->keys, d, &s->sum[ATTENTION_DK]) ||
        !place(s, a->queries, d, &s->sum[ATTENTION_DQ]))
        return false;
    put_memory(s);
    return s->shared <= a->target->group_bytes && s->group.items <= a->target->group_items && registers(s) <= MOST;
}

/* -- cost */

/* Estimates, as in simt_cost.c. */
static const struct {
    double start, read, load, overlap;
    double chain; /* cycles of an element of a sum, one after the other */
    double wait;  /* cycles of a block of queries besides its products */
    double score; /* products in the time of what a score needs besides its own */
} constants = {3000, 1.5, 6, 0.3, 12, 3000, 40};

static double resident(const struct attention_grad_simt *s)
{
    return card_resident(s->g.a.target, s->group.items, s->shared, registers(s) + 64);
}

/* An item's work for a tile, in products, with `depth` elements of the sum. */
static double tile_work(const struct attention_grad_simt *s, const struct attention_place *x, double depth)
{
    const double each = s->g.a.dtype == SOL_F64 ? 2 : 1;
    return (x->rows * x->cols * each + constants.read * (x->rows + x->cols)) * depth;
}

struct sizes {
    double queries, keys, batch, d, e, bytes;
};

/* Cycles of a core for all its groups. */
static double compute_cycles(const struct attention_grad_simt *s, const struct sizes *n)
{
    const struct attention *a = &s->g.a;
    const struct target *t = a->target;
    const double seen = a->guard ? fmin(n->queries, (n->queries + a->keys) / 2) : n->queries;
    const double rounds = ceil(ceil(n->keys / a->keys) / s->parts), last = fmin(1, n->keys / a->keys);
    const double loads =
        constants.load * a->queries *
        (n->d / group_width(&s->group, &a->q, (int64_t)n->d) + n->e / group_width(&s->group, &s->g.d, (int64_t)n->e)) /
        s->group.items;
    const double work =
        tile_work(s, &s->score, n->d + n->e) + tile_work(s, &s->sum[ATTENTION_DV], fmin(a->queries, n->queries)) +
        tile_work(s, &s->sum[ATTENTION_DK], fmin(a->queries, n->queries)) +
        tile_work(s, &s->sum[ATTENTION_DQ], a->keys * last) + constants.score * s->score.rows * s->score.cols + loads;
    const double each = ceil(n->batch * s->parts / t->cores), now = fmin(each, resident(s));
    const double rate = card_rate(t, now * s->group.items);
    const double chain = constants.chain * (n->d + n->e + 2 * a->queries + a->keys) / s->group.wide;
    const double step = fmax(now * s->group.items * work / rate, constants.wait + chain);
    return each / now * (rounds * ceil(seen / a->queries) * step + rounds * constants.start);
}

static double simt_ns(const struct attention_grad_simt *s)
{
    const struct attention *a = &s->g.a;
    const struct target *t = a->target;
    const struct loops_ivar *ivar = a->loops->ivars.at;
    const struct sizes n = {.queries = (double)size_about(ivar[a->t].size),
                            .keys = (double)size_about(ivar[a->s].size),
                            .batch = (double)size_about(ivars_size(a->loops, a->batch)),
                            .d = (double)ivar[a->d].size,
                            .e = (double)ivar[a->e].size,
                            .bytes = dtype_def(a->dtype)->bytes};
    const double blocks = ceil(n.keys / a->keys), sums = n.batch * n.queries * n.d * n.bytes;
    const double near = (n.batch * blocks * n.queries * (n.d + n.e) + n.batch * n.keys * 2 * (n.d + n.e)) * n.bytes +
                        sums * (2 * blocks - s->parts);
    const double far = 2 * n.batch * (n.queries + n.keys) * (n.d + n.e) * n.bytes;
    const double kept = sums * s->parts, rate = kept > (double)t->l3 ? t->dram_rate : t->l2_rate;
    const double compute = compute_cycles(s, &n) / t->clock, memory = fmax(far / t->dram_rate, near / t->l2_rate);
    return fmax(compute, memory) + constants.overlap * fmin(compute, memory) + 2 * kept / rate + sums / t->dram_rate +
           2 * target_step_ns(t);
}

static double cost(const struct attention_grad_simt *s)
{
    const bool was = size_costs(true);
    const double ns = simt_ns(s);
    size_costs(was);
    return ns;
}

/* -- the solver */

static bool find(const struct solver_context *sc, const struct cluster *c, struct attention_grad_simt *out,
                 const char **why)
{
    *out = (struct attention_grad_simt){0};
    if (target_is_card(sc->target)) return attention_grad_find(sc, c, &out->g, why);
    *why = "it is no graphics card";
    return false;
}

static int variants(const struct solver_context *sc, const struct cluster *c, struct variant *out)
{
    static const int shapes[][4] = {{64, 64, 128, 8},  {64, 64, 128, 16},  {64, 64, 256, 16}, {32, 64, 128, 16},
                                    {64, 32, 128, 8},  {64, 128, 256, 16}, {32, 32, 64, 8},   {32, 128, 256, 32},
                                    {16, 64, 128, 16}, {16, 32, 64, 8},    {16, 16, 32, 8},   {16, 16, 64, 8},
                                    {16, 16, 256, 16}};
    struct attention_grad_simt s;
    struct variant_list list = {.at = out};
    const char *why;
    if (!find(sc, c, &s, &why)) return 0;
    const int64_t keys = size_hint(s.g.a.loops->ivars.at[s.g.a.s].size);
    for (int i = 0; i < COUNT_OF(shapes); i++)
        for (int parts = 1; parts == 1 || (parts - 1) * shapes[i][P_KEYS] < keys; parts *= 2) {
            const int *x = shapes[i];
            struct variant v = {.p = {x[P_QUERIES], x[P_KEYS], x[P_ITEMS], x[P_ACROSS], parts}};
            if (!variant_wanted(sc, &v) || !shape(&s, v.p)) continue;
            v.cost = cost(&s);
            v.text = arena_printf(sc->arena, "q%d k%d/%dx%d p%d", s.g.a.queries, s.g.a.keys, s.score.rows, s.score.cols,
                                  parts);
            variants_add(&list, &v);
        }
    return list.n;
}

static bool applicable(const struct solver_context *sc, const struct cluster *c, const char **out_why)
{
    static const int least[] = {16, 16, 256, 16, 1};
    struct attention_grad_simt s;
    if (!find(sc, c, &s, out_why)) return false;
    *out_why = "too many elements of a key or a value for the memory of a group";
    return shape(&s, least);
}

static sol_status emit(const struct solver_context *sc, const struct cluster *c, const struct variant *v,
                       struct kernel *out)
{
    struct attention_grad_simt s;
    const char *why = "";
    if (!find(sc, c, &s, &why))
        return ctx_fail(arena_ctx(sc->arena), SOL_ERR_UNSUPPORTED, "attention_grad_simt: %s", why);
    shape(&s, v->p);
    attention_grad_simt_print(&s, out);
    return SOL_OK;
}

const struct solver dnn_attention_grad_simt = {.name = "attention_grad_simt",
                                               .blocks = true,
                                               .dynamic = true,
                                               .whole = true,
                                               .lanes = FOR_ITEMS,
                                               .applicable = applicable,
                                               .variants = variants,
                                               .emit = emit};
