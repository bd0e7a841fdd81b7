/* The solver of attention (attention.h) on graphics cards: both contractions and the softmax between them in one
 * kernel. */
#include <math.h>

#include "dnn/attention_simt.h"
#include "dnn/solvers.h"
#include "print/flavour.h"

enum { P_QUERIES, P_KEYS, P_ACROSS, P_DOWN };
enum { PACK = 16, MOST = 128 }; /* bytes of a load of full width; registers of an item's sums */

static int padded(const struct attention_simt *s)
{
    const int piece = s->across * s->group.wide;
    return ((int)attention_size(&s->a, s->a.e) + piece - 1) / piece * piece;
}

/* False: shared memory or registers are too few. */
static bool shape(struct attention_simt *s, const int *p)
{
    struct attention *a = &s->a;
    const int bytes = dtype_def(a->dtype)->bytes, depth = (int)attention_size(a, a->d);
    a->queries = p[P_QUERIES];
    a->keys = p[P_KEYS];
    s->across = p[P_ACROSS];
    s->down = p[P_DOWN];
    s->group.items = s->across * s->down;
    s->group.wide = PACK / bytes;
    s->rows = a->queries / s->down;
    s->cols = a->keys / s->across;
    s->values = padded(s) / s->across;
    s->pitch_q = a->queries + s->group.wide;
    s->pitch_k = a->keys + s->group.wide;
    s->pitch_v = padded(s);
    const int q = depth * s->pitch_q, k = depth * s->pitch_k, v = a->keys * s->pitch_v, weights = a->keys * s->pitch_q;
    s->one_buffer = (q + k + v + weights) * bytes > a->target->group_bytes;
    s->shared = (q + (s->one_buffer ? MAX(k, v) : k + v) + weights) * bytes;
    return s->shared <= a->target->group_bytes && s->rows * s->values * bytes / 4 <= MOST &&
           s->group.items <= a->target->group_items;
}

/* -- cost */

/* Estimates, as in simt_cost.c. */
static const struct {
    double chain, start, read, load, overlap;
    double wait;  /* cycles of a block of keys besides its products; three times that if loads are not hidden */
    double score; /* products in the time of what a score needs besides its own */
} constants = {12, 3000, 1.5, 6, 0.3, 1000, 24};

static double resident(const struct attention_simt *s)
{
    const double each = (s->rows * (s->values + s->cols) + 24) * dtype_def(s->a.dtype)->bytes / 4.0 + 40;
    return card_resident(s->a.target, s->group.items, s->shared, each);
}

static double simt_ns(const struct attention_simt *s)
{
    const struct attention *a = &s->a;
    const struct target *t = a->target;
    const struct loops_ivar *ivar = a->loops->ivars.at;
    const double queries = (double)size_about(ivar[a->t].size), keys = (double)size_about(ivar[a->s].size),
                 batch = (double)size_about(ivars_size(a->loops, a->batch)), depth = (double)ivar[a->d].size,
                 both = depth + (double)ivar[a->e].size, bytes = dtype_def(a->dtype)->bytes;
    const double groups = batch * ceil(queries / a->queries);
    const double seen = a->guard ? fmin(keys, (keys + a->queries) / 2) : keys, blocks = ceil(seen / a->keys);
    /* an item's work for a block of keys, in products */
    const double products = s->rows * (s->cols * depth + s->values * (double)a->keys) * (bytes / 4);
    const double reads = constants.read * ((s->rows + s->cols) * depth + (s->rows + s->values) * (double)a->keys);
    const double loads = constants.load * a->keys *
                         (depth / group_width(&s->group, &a->k, (int64_t)depth) +
                          (both - depth) / group_width(&s->group, &a->v, (int64_t)(both - depth))) /
                         s->group.items;
    const double work = products + reads + loads + constants.score * s->rows * s->cols;
    const double each = ceil(groups / t->cores), now = fmin(each, resident(s));
    const double rate = card_rate(t, now * s->group.items);
    const double step = fmax(now * s->group.items * work / rate, (attention_simt_early(s) ? 1 : 3) * constants.wait +
                                                                     constants.chain * (depth + (double)a->keys));
    const double compute = each / now * (blocks * step + constants.start) / t->clock;
    const double far = batch * (queries + keys) * both * bytes / t->dram_rate;
    const double near = groups * seen * both * bytes / t->l2_rate, memory = fmax(far, near);
    return fmax(compute, memory) + constants.overlap * fmin(compute, memory) + target_step_ns(t);
}

static double cost(const struct attention_simt *s)
{
    const bool was = size_costs(true);
    const double ns = simt_ns(s);
    size_costs(was);
    return ns;
}

/* -- the solver */

static bool find(const struct solver_context *sc, const struct cluster *c, struct attention_simt *out, const char **why)
{
    *out = (struct attention_simt){.pairs = *flavour_of(sc->target)->neighbour};
    if (target_is_card(sc->target)) return attention_find(sc, c, &out->a, why);
    *why = "it is no graphics card";
    return false;
}

static int variants(const struct solver_context *sc, const struct cluster *c, struct variant *out)
{
    static const int shapes[][4] = {{64, 32, 8, 8}, {64, 32, 8, 16}, {64, 64, 16, 8}, {64, 64, 16, 16},
                                    {32, 32, 8, 8}, {32, 64, 16, 8}, {16, 32, 8, 4},  {16, 64, 16, 4},
                                    {8, 32, 8, 8},  {16, 16, 4, 8}};
    struct attention_simt s;
    struct variant_list list = {.at = out};
    const char *why;
    if (!find(sc, c, &s, &why)) return 0;
    for (int i = 0; i < COUNT_OF(shapes); i++) {
        const int *x = shapes[i];
        struct variant v = {.p = {x[0], x[1], x[2], x[3]}};
        if (!variant_wanted(sc, &v) || !shape(&s, x)) continue;
        v.cost = cost(&s);
        v.text = arena_printf(sc->arena, "q%d k%d/%dx%d", x[0], x[1], s.rows, s.cols);
        variants_add(&list, &v);
    }
    return list.n;
}

static bool applicable(const struct solver_context *sc, const struct cluster *c, const char **out_why)
{
    static const int least[] = {16, 16, 4, 8};
    struct attention_simt s;
    if (!find(sc, c, &s, out_why)) return false;
    *out_why = "too many elements of a key or a value for the memory of a group";
    return shape(&s, least);
}

static sol_status emit(const struct solver_context *sc, const struct cluster *c, const struct variant *v,
                       struct kernel *out)
{
    struct attention_simt s;
    const char *why = "";
    if (!find(sc, c, &s, &why)) return ctx_fail(arena_ctx(sc->arena), SOL_ERR_UNSUPPORTED, "attention_simt: %s", why);
    shape(&s, v->p);
    attention_simt_print(&s, out);
    return SOL_OK;
}

const struct solver dnn_attention_simt = {.name = "attention_simt",
                                          .blocks = true,
                                          .dynamic = true,
                                          .lanes = FOR_ITEMS,
                                          .applicable = applicable,
                                          .variants = variants,
                                          .emit = emit};
