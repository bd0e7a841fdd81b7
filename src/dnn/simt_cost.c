/* What contractions for work items cost, in ns. */
#include <math.h>

#include "dnn/simt.h"

#define FAVOUR 8

/* An estimate for a processor: products in whole blocks, at a rate that grows with the tile, and the parts' way through
 * memory. DFP takes 9 to 45 times as long for a convolution (PoCL 3.1), though it prices itself alike: hence FAVOUR. */
static double processor_ns(const struct simt *s)
{
    const double tile = s->tile_rows * s->tile_cols, groups = (double)size_about(simt_blocks(s)) * (double)s->parts;
    const double each = (double)s->rows * s->cols * (double)size_about(s->part);
    const double rounds = (double)((int64_t)((groups - 1) / s->target->cores) + 1);
    const double rate = 2 * s->target->simd * FAVOUR * s->target->clock * tile / (tile + 8),
                 bytes = s->parts > 1 ? 8.0 * groups * s->rows * s->cols : 0;
    return rounds * each / rate + bytes / s->target->dram_rate + KERNEL_STEP_NS * (s->parts > 1 ? 2 : 1);
}

/* -- cards */

/* Estimates of what limits a core. */
static const struct {
    double wait;    /* cycles from a load of global memory until its value is in shared memory, and */
    double chain;   /* for each product of a step of the sum, one after the other */
    double start;   /* cycles of a block besides its sum: index computation, first loads, results */
    double read;    /* products in the time of reading an element of shared memory */
    double load;    /* products in the time of a load of global memory and its store, and */
    double digit;   /* with the digits of K, or borders, for each element */
    double share;   /* of the rate of units for small matrices that is reached */
    double part;    /* products in the time of an element's parts in TF32, for each product of parts */
    double overlap; /* share of the smaller limit, of products and memory, that is not hidden behind the other */
} constants = {700, 15, 3000, 1.5, 6, 24, 0.6, 4, 0.3};

/* Blocks that a core keeps at a time. */
static double resident(const struct simt *s)
{
    const double parts = s->products ? 4.0 * (4 + s->tile_cols) : 0;
    const double registers = (s->tile_rows * s->tile_cols + parts + s->a.loads * s->a.width + s->b.loads * s->b.width +
                              s->tile_rows + s->tile_cols) *
                                 s->p.bytes / 4.0 +
                             24;
    return card_resident(s->target, s->items, simt_card_shared(s), registers);
}

/* The work of an item's loads of a factor for a step of the sum, in products. */
static double loading(const struct simt *s, const struct simt_factor *f)
{
    const bool digits = s->k.n > 1 && f->width == 1;
    double each = constants.load + (f->deep && f->width > 1 ? f->width : 0);
    if (!f->plain || f->x->any_border || digits) each += constants.digit * (f->plain ? 1 : 2);
    if (f->width == 1 && !f->deep && !(f->own->n && f->plain && f->x->view.s[f->own->ivar[f->own->n - 1]] == 1))
        each *= 4; /* each item reads from a line of its own */
    return f->loads * each;
}

/* The work of an item's tile for a step of the sum, in products of float32. Of both factors, items of a warp that
 * computes by units for small matrices read a fourth of their rows, and half of the columns of their tiles. */
static double multiplying(const struct simt *s)
{
    const struct target *t = s->target;
    const double tile = (double)s->tile_rows * s->tile_cols, products = tile * s->depth * (s->p.bytes / 4);
    if (!s->products) return products + constants.read * (s->tile_rows + s->tile_cols) * s->depth;
    const double units = products * s->products * t->fma_pipes * target_lanes(t, sizeof(float)) / t->core_mma;
    const double elements = (s->tile_rows + s->tile_cols / 2) * s->depth / 4;
    return units / constants.share + elements * (constants.read + constants.part * s->products) + tile * s->depth / 16;
}

/* Bytes of a factor, and those that all blocks read of it. */
static double factor_bytes(const struct simt *s, const struct operand *x)
{
    return (double)size_about(loops_elements(&s->p.loops->tensors.at[x->tensor])) * s->p.bytes;
}

static double card_ns(const struct simt *s)
{
    const struct target *t = s->target;
    const double groups = (double)size_about(simt_blocks(s)) * (double)s->parts;
    const double steps = (double)size_about(s->part) / s->depth;
    const double work = multiplying(s) + loading(s, &s->a) + loading(s, &s->b); /* of an item, in a step of the sum */
    const double each = ceil(groups / t->cores), keeps = resident(s), now = fmin(each, keeps);
    /* cycles for all that it keeps */
    const double step =
        fmax(now * s->items * work / card_rate(t, now * s->items), constants.wait + constants.chain * s->depth);
    const double compute = each / now * (steps * step + constants.start) / t->clock;
    const double elements = (double)problem_about(&s->p, s->p.batch | s->p.m | s->p.n) * s->p.bytes;
    const double parts = s->parts > 1 ? 2 * elements * (double)s->parts : 0;
    const double far = factor_bytes(s, &s->p.a) + factor_bytes(s, &s->p.b) + elements;
    const double near = groups * steps * s->depth * (s->rows + s->cols) * s->p.bytes + parts;
    const double dram = far / t->dram_rate + (parts > (double)t->l3 ? parts / t->dram_rate : 0);
    const double memory = fmax(dram, near / t->l2_rate);
    return fmax(compute, memory) + constants.overlap * fmin(compute, memory) + parts / t->l2_rate +
           target_step_ns(t) * (s->parts > 1 ? 2 : 1);
}

double simt_cost(const struct simt *s)
{
    return s->card ? card_ns(s) : processor_ns(s);
}
