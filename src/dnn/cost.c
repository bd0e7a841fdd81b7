/* What a contraction costs, in ns. The model counts the cycles of the tiles (limited by FMAs, loads or latency), the
 * overhead of each tile (call, epilogue), the copies of gathered blocks, and the bytes of weights that come from L3
 * or memory. Of limits that overlap, the largest counts fully and the others in part. */
#include "dnn/solvers.h"

/* Constants, measured with bench/kernels.c on Zen 5, Zen 3 and Granite Rapids. */
static const struct {
    double turbo, memory; /* turbo: clock above nominal; memory: the same factor for reads from L3 and beyond */
    double l2, l3;        /* bytes per cycle that a core reads from L2, and from L3 in small pieces */
    double latency;       /* cycles of an FMA, times two units: the accumulators needed */
    double start;         /* cycles of a block besides its tiles: index computation, addresses, first misses */
    double call;          /* cycles of a tile besides K: call, addresses, start */
    double store;         /* cycles to store a register */
    double node;          /* cycles of each instruction of the epilogue, per register */
    double row;           /* cycles of a row of weights in place that comes from memory, beyond what prefetches hide */
    double page;          /* cycles of a row of weights in place whose page is not in the first TLB */
    double copy;          /* elements per cycle that are gathered along contiguous rows */
    double transpose;     /* elements per cycle that are gathered across rows */
    double waits;         /* share of the smaller limit that adds up where weights come from L3 in small pieces */
    double overlap;       /* share of the smaller limits that is not hidden behind the largest */
    double line;          /* cycles of a cache line that no core's cache holds, apart from its neighbours */
    double line4, line6;  /* cycles of a Winograd transform of a line of 4 or 6 points */
    double spread;  /* cycles to store a vector of transformed weights, or to load and store one of partial sums */
    double plane;   /* cycles to move a cache line of a Winograd tile to its plane and back; planes are far apart */
    double foreign; /* share of peak performance that other libraries are assumed to reach: enough to be tried */
} constants = {1.55, 1.5, 24, 10, 4, 60, 10, 0.5, 0.25, 60, 5, 8, 1.0, 0.55, 0.3, 12, 4, 12, 1.6, 10, 0.95};

enum { LINE = 64 }; /* bytes of a cache line */

int cost_tile_shapes(const struct target *t, struct tile_shape *out, int room)
{
    const int spare = t->fma ? 1 : 2; /* for a broadcast; without FMA also for the product */
    int n = 0;
    for (int v = 1; v <= 8 && n < room; v++) {
        int pixels = (t->registers - spare - v) / v;
        if (pixels > 28) pixels = 28;
        if (pixels < 1) break;
        out[n++] = (struct tile_shape){pixels, v};
    }
    return n;
}

/* The ns of a cycle. */
static double cycle(const struct target *t)
{
    return 1 / (t->clock * constants.turbo);
}

/* Does a core multiply one vector in a cycle, not two (AVX-512 on Zen 4)? Then its units and data paths have half the
 * length of a vector. */
static bool has_half_units(const struct target *t)
{
    return t->fma && t->fma_pipes < 1.5;
}

/* The vectors of this many bytes that a core multiplies and adds in a cycle. */
static double fmas_per_cycle(const struct target *t, int64_t bytes)
{
    return has_half_units(t) && bytes <= t->vector_bytes / 2 ? 2 * t->fma_pipes : t->fma_pipes;
}

static int64_t tile_count(const struct blocking *b)
{
    int64_t n = 1;
    for (int i = 0; i < b->m.n; i++) {
        const int step = i == b->m.n - 1 ? b->cols : i == b->m.n - 2 ? b->rows : 1;
        const int64_t box = b->box[i];
        n *= b->nbox[i] * ((box + step - 1) / step);
    }
    return n;
}

/* Of so many sets of a cache, those that lines `stride` bytes apart map to; all if they are not whole lines apart. */
static int64_t sets_at(int64_t sets, int64_t stride)
{
    if (stride < LINE || stride % LINE) return sets;
    for (stride /= LINE; sets > 1 && stride % 2 == 0; stride /= 2) sets /= 2;
    return sets;
}

enum { L1_SETS = 64, L1_WAYS = 8 }; /* at least */

/* Do so many lines that are `stride` bytes apart evict one another from L1? */
static bool evict_each_other(double lines, int64_t stride)
{
    const int64_t sets = sets_at(L1_SETS, stride);
    return sets < L1_SETS && lines > (double)sets * L1_WAYS;
}

/* Do the pixels of a tile, so that each step of K misses? */
static bool conflicts(const struct blocking *b, double pixels)
{
    return evict_each_other(pixels, size_hint(axis_stride(&b->m.at[b->m.n - 1], b->a_stride)) * b->p->bytes);
}

/* The cycles of storing a lane of results that are not contiguous. */
static double store_lane(const struct blocking *b)
{
    const struct view *v = &b->p->view[b->p->nview - 1];
    return evict_each_other(b->lanes, stride_about(v->s[b->p->vector]) * b->p->bytes) ? constants.line
                                                                                      : constants.store;
}

/* The part of the lines of a cache that rows of b in place need, of those that they can lie in: rows a power of two
 * apart map to few sets. */
static double part_of(const struct blocking *b, int64_t bytes, int ways)
{
    const int64_t all = bytes / (ways * LINE), lines = (b->width * b->p->bytes + LINE - 1) / LINE;
    const int64_t s = size_hint(axis_stride(&b->k.at[b->k.n - 1], b->p->b.view.s)) * b->p->bytes;
    if (b->options.source != B_IN_PLACE || s < LINE || s % LINE) return 0;
    return (double)(b->nrun * b->len * lines) / (double)(ways * MIN(all, sets_at(all, s) * lines));
}

/* Can L2 not hold the rows of b beside other data? */
static bool crowded(const struct blocking *b)
{
    enum { WAYS = 16 };
    return part_of(b, b->target->l2, WAYS) > 0.35;
}

/* Does each tile load the weights of a panel from L2 again? */
static bool leaves_l1(const struct blocking *b)
{
    return part_of(b, b->target->l1, L1_WAYS) > 1 || b->panel_elements * b->p->bytes > b->target->l1 / 2;
}

/* Do the rows of b that a tile reads in place lie in more pages than the first TLB holds? Then each tile loads them
 * again. */
static bool pages(const struct blocking *b)
{
    enum { PAGE = 4096, ENTRIES = 64 };
    if (b->options.source != B_IN_PLACE) return false;
    const int64_t pitch = size_hint(axis_stride(&b->k.at[b->k.n - 1], b->p->b.view.s)) * b->p->bytes;
    return (double)(b->nrun * b->len) * (double)MIN(pitch, PAGE) > 1.5 * PAGE * ENTRIES;
}

/* The factor by which a step of K is slower when it moves to other cache lines of an operand read in place: distant
 * ones share sets. */
static double scattered(const struct blocking *b)
{
    enum { FAR = 16 * LINE };
    const struct axis *k = &b->k.at[b->k.n - 1];
    const int64_t a = axis_stride(k, b->a_stride) * b->p->bytes,
                  w = size_hint(axis_stride(k, b->p->b.view.s)) * b->p->bytes;
    const bool place = b->options.source == B_IN_PLACE && w >= LINE;
    return (a >= FAR ? 1.15 : 1) * (place && a >= LINE ? 1.2 : 1);
}

/* The bytes of all weights, read once. */
static double weight_bytes(const struct blocking *b)
{
    return (double)b->nouter * (double)b->nchunk * (double)(b->panels * b->panel_elements) * b->p->bytes;
}

/* Does L3 not hold as much, beside other data? */
static bool from_memory(const struct target *t, double bytes)
{
    return bytes > (double)t->l3 * 0.75;
}

/* The bytes that a core reads from L2 in a cycle. */
static double l2_bytes(const struct target *t)
{
    return constants.l2 * (has_half_units(t) ? 0.5 : 1);
}

static double tile_cycles(const struct blocking *b, double pixels)
{
    const struct target *t = b->target;
    const double fmas = pixels * b->vectors, loads = pixels + b->vectors;
    const int64_t vector = (int64_t)b->lanes * b->p->bytes;
    double step = fmas / fmas_per_cycle(t, vector);
    if (conflicts(b, pixels)) step = MAX(step, pixels * LINE / constants.l2);  /* a line for each pixel */
    if (b->shared) step = MAX(step, fmas * (has_half_units(t) ? 1.35 : 0.75)); /* shuffles */
    if (loads / 2 > step) step = loads / 2;
    if (constants.latency > step) step = constants.latency;
    step *= scattered(b);
    const bool far = crowded(b);
    const double weights = (double)(b->vectors * vector) / (far ? constants.l3 : l2_bytes(t)) +
                           (far && from_memory(t, weight_bytes(b)) ? constants.row : 0);
    if (far) /* each access is a page or more away: latency is not hidden */
        step = MAX(step, weights) + constants.waits * MIN(step, weights);
    else if (weights > step && leaves_l1(b))
        step = weights;
    else if (pages(b))
        step += constants.page;
    const double k = (double)(b->nrun * b->len) * (double)b->nchunk;
    const double store = b->p->unit ? constants.store : b->lanes * store_lane(b);
    const double finish = fmas * (store + b->p->weight * constants.node);
    return k * step + (double)b->nchunk * (constants.call + fmas * constants.store) + finish;
}

static double gather_cycles(const struct blocking *b)
{
    if (!b->gather || !b->ngather) return 0;
    const int inner = b->gather_dim[b->ngather - 1];
    const bool rows = b->p->c->memory[b->p->a.tensor].stride[inner] == 1;
    const double elements = (double)b->gathered * (double)b->nchunk * (double)b->nblock * (double)b->nouter;
    double times = 1; /* workers that share a block gather it once each */
    if (b->nblock * b->nouter < b->target->cores) times = (double)b->target->cores / (double)(b->nblock * b->nouter);
    return times * elements / (rows ? constants.copy : constants.transpose);
}

/* The ns of reading blocks of a again for every panel, from the cache level that holds them. */
static double reading_a(const struct blocking *b)
{
    const struct target *t = b->target;
    int64_t box = 1, taps = 1;
    for (int i = 0; i < b->m.n; i++) box *= b->box[i];
    for (int d = 0; d < b->p->a.ndim; d++) /* overlapping windows read the same elements */
        for (int i = 0; i < b->p->a.index[d].n && b->p->a.index[d].n > 1; i++)
            if (set_has(b->p->k, b->p->a.index[d].ivar[i]))
                taps *= size_about(b->p->loops->ivars.at[b->p->a.index[d].ivar[i]].size);
    const double bytes =
        (b->gather ? (double)b->gathered : (double)(box * b->nrun * b->len) / (double)taps) * b->p->bytes;
    if (bytes < (double)t->l1 * 0.6) return 0;
    const double parts = b->gather && b->group >= 0 ? (double)b->neighbours : 1; /* a panel reads that of its group */
    const double all = bytes / parts * (double)(b->nouter * b->nblock * b->nchunk * b->panels);
    return all / (bytes < (double)t->l2 * 0.6 ? t->l2_rate : t->l3_rate);
}

/* The cycles of reading a and writing results line by line, where groups are neighbours: each passes over the lines of
 * the block's pixels, which are far apart, unless L2 holds the lines of all groups. */
static double passing_groups(const struct blocking *b)
{
    const struct problem *p = b->p;
    if (b->neighbours < 2) return 0;
    const double all = (double)problem_about(p, p->m);
    double pixels = b->group < 0 ? all : 1;
    for (int i = 0; i < b->m.n && b->group >= 0; i++) pixels *= (double)b->box[i];
    const double channels = (double)(b->neighbours * p->loops->ivars.at[p->vector].size) +
                            (double)size_about(loops_elements(&p->loops->tensors.at[p->a.tensor])) / all;
    if (pixels * channels * p->bytes < 0.6 * (double)b->target->l2) return 0;
    const int64_t lines = ceil_div((int64_t)b->width * p->bytes, LINE);
    return 2 * constants.line * all * (double)(b->nouter * b->panels * lines);
}

/* The bytes that stay in L2 while other data streams through. */
static double room(const struct target *t)
{
    return 0.8 * (double)t->l2;
}

/* The ns of reading weights once, from L3 or from memory: they are not in L2 when a layer begins. */
static double cold(const struct target *t, double bytes)
{
    return bytes / (from_memory(t, bytes) ? t->dram_rate : t->l3_rate) / constants.memory;
}

/* The ns of writing results; each line is read first. It counts where sizes vary, where a kernel is compared with those
 * of other solvers at sizes that leave nothing else to do: results that no cache holds, and those of short sums. */
static double writing(const struct target *t, const struct problem *p)
{
    const double bytes = (double)problem_about(p, p->batch | p->m | p->n) * p->bytes;
    if (!p->varies) return 0;
    if (from_memory(t, bytes)) return 2 * bytes / t->dram_rate;
    if (size_varies(problem_size(p, p->batch | p->m | p->n))) return 0;
    return 2 * bytes / (bytes > (double)t->l2 * t->cores ? t->l3_rate : t->l2_rate);
}

/* The ns of reading an input that the layer before cannot have left in L2: parameters, which are there as little as
 * weights are, and what no cache holds as a whole. The rows of the latter are far apart, which is slower than the
 * stream of packed weights. */
static double far_input(const struct target *t, const struct problem *p)
{
    const double bytes = (double)size_about(loops_elements(&p->loops->tensors.at[p->a.tensor])) * p->bytes;
    if (from_memory(t, bytes)) return bytes / t->dram_rate;
    return p->c->memory[p->a.tensor].constant ? cold(t, bytes) : 0;
}

/* The ns of taking the sums of all panels of a block to memory and back between chunks. */
static double between_chunks(const struct blocking *b)
{
    const struct target *t = b->target;
    double sums = (double)(b->panels * b->width) * b->p->bytes;
    if (b->nchunk < 2) return 0;
    for (int i = 0; i < b->m.n; i++) sums *= (double)b->box[i];
    const double all = 2 * sums * (double)(b->nblock * b->nouter * (b->nchunk - 1));
    return all / (sums > room(t) ? t->l3_rate : t->l2_rate);
}

/* With numbers in place of sizes. */
static struct winograd winograd_about(const struct winograd *w)
{
    struct winograd r = *w;
    r.b = blocking_about(&w->b);
    if (w->b.options.counted) { /* a group that is not full */
        const int last = r.b.m.n - 1;
        r.group = MIN(w->group, size_about(w->tiles));
        r.b.m.at[last].size = r.b.box[last] = r.group;
    }
    int64_t *const sizes[] = {&r.tiles, &r.group, &r.ngroup, &r.v_plane, &r.m_plane};
    for (int i = 0; i < COUNT_OF(sizes); i++) *sizes[i] = size_about(*sizes[i]);
    return r;
}

static double winograd_ns(const struct winograd *sized)
{
    const struct winograd about = winograd_about(sized), *w = &about;
    const struct target *t = w->target;
    const struct blocking *b = &w->b;
    const bool steps = w->schedule == WINOGRAD_STEPS, panel = w->schedule == WINOGRAD_PANEL;
    const double points = (double)w->points * w->points, tiles = (double)(w->group * w->ngroup);
    const double in = tiles * (double)((w->channels.size + b->lanes - 1) / b->lanes),
                 out = tiles * (double)b->panels * b->vectors;
    const double line = w->points == 4 ? constants.line4 : constants.line6;
    const double pixels = (double)w->group / (double)tile_count(b);
    const double products = (double)(tile_count(b) * b->panels) * points * (double)w->ngroup * tile_cycles(b, pixels);
    const double per_pixel = w->m * w->m * (constants.store + w->p.weight * constants.node);
    const double lines = points * (in + out) * t->vector_bytes / LINE;
    double cycles =
        products + lines * constants.plane + in * 2 * w->points * line + out * ((w->points + w->m) * line + per_pixel);
    const double taps = (double)w->taps * w->taps,
                 weight_vectors = (double)(b->nchunk * b->len * b->panels * b->vectors);
    if (panel) { /* transformed weights go to their planes, partial sums are loaded from theirs; few tiles cannot hide
                    the loads */
        const double wait = MAX(0, t->vector_bytes / constants.l2 - tiles / 2);
        cycles +=
            points * (weight_vectors * (constants.spread + wait) + out * (double)(b->nchunk - 1) * constants.spread);
    }
    const int64_t tasks = steps ? blocking_tasks(b) : panel ? b->panels : w->ngroup;
    const double busy = (double)((tasks + t->cores - 1) / t->cores) * t->cores / (double)tasks;
    const double compute = cycles * cycle(t) / t->cores * busy;
    const double weights = (panel ? taps : points) * weight_vectors * t->vector_bytes;
    double memory = cold(t, weights) + far_input(t, &w->p);
    if (w->weights) /* reads, transforms and writes the weights; a write counts twice */
        memory += (2 * weights + weights * taps / points) / (weights > (double)t->l3 / 2 ? t->dram_rate : t->l3_rate);
    if (steps) /* transformed tiles are written, and read by other cores */
        memory += points * (double)(w->v_plane + w->m_plane) * w->p.bytes * 2 / t->l3_rate;
    else if (panel) { /* each panel reads all tiles; if they do not fit into L2, from L3, as do some of the weights */
        const double plane = points * w->p.bytes, all = plane * (double)w->v_plane;
        const bool near = all + plane * (double)(w->u_plane + w->m_plane) < room(t);
        memory += 2 * all / t->l3_rate;
        if (!near) memory += (all * (double)b->panels + plane * weight_vectors * b->lanes / 2) / t->l3_rate;
    } else
        memory += (double)(w->ngroup - 1) * (weights > (double)t->l2 ? cold(t, weights) : weights / t->l2_rate);
    return (compute > memory ? compute + constants.overlap * memory : memory + constants.overlap * compute) +
           KERNEL_STEP_NS * (1 + panel + 2 * steps);
}

/* The cycles of packing one side, or of its transforms, once. */
static double packing_cycles(const struct weights *w, const struct weights_side *s)
{
    const double per_pixel =
        s->stride == 1 ? 2 + 1.5 * (double)((s->panel + w->lanes - 1) / w->lanes) : 1.5 * (double)s->panel;
    if (!w->winograd) return (double)w->nchunk * (double)s->panels * (double)(s->size / s->pitch) * per_pixel;
    const double vectors = (double)((s->channels.size + w->lanes - 1) / w->lanes);
    const double lines = WEIGHTS_POINTS + (s->window ? WEIGHTS_POINTS : WEIGHTS_M);
    return (double)w->nchunk * (double)w->chunk * vectors * lines * constants.line6;
}

/* With numbers in place of sizes. */
static struct weights weights_about(const struct weights *w)
{
    struct weights r = *w;
    r.nchunk = size_about(w->nchunk);
    for (int i = 0; i < WEIGHTS_LEVELS; i++) r.level[i].box = MIN(w->level[i].box, size_about(w->level[i].axis.size));
    return r;
}

static double weights_ns(const struct weights *sized)
{
    const struct weights about = weights_about(sized), *w = &about;
    const struct target *t = w->target;
    const double fmas = (double)w->rows * w->vectors, outer = (double)w->nouter;
    const double panels = (double)(w->a.panels * w->b.panels) * (double)w->taps * outer;
    double step = fmas / fmas_per_cycle(t, (int64_t)w->lanes * w->p.bytes);
    if ((w->rows + w->vectors) / 2.0 > step) step = (w->rows + w->vectors) / 2.0;
    if (constants.latency > step) step = constants.latency;
    const double start = (double)(weights_tasks(w) / w->ngroup * w->nchunk) * constants.start;
    const double k = w->winograd ? (double)(w->chunk * w->nchunk) : (double)problem_about(&w->p, w->p.k);
    const double runs = w->winograd ? (double)w->nchunk : k / (double)w->level[WEIGHTS_COLS].box;
    double cycles = start + panels * (k * step + runs * 3 + (double)w->nchunk * (2 * constants.call + fmas * 2));
    cycles += outer * (packing_cycles(w, &w->a) * (double)w->b.nblock + packing_cycles(w, &w->b) * (double)w->a.nblock);
    const double results = (double)problem_size(&w->p, w->p.batch | w->p.m | w->p.n);
    const bool unit = w->p.view[w->p.nview - 1].s[w->p.vector] == 1;
    cycles += results * (unit ? 0.3 : 1.5) + panels * fmas * (double)w->ngroup;
    const int64_t tasks = weights_tasks(w);
    const double busy = (double)((tasks + t->cores - 1) / t->cores) * t->cores / (double)tasks;
    const double compute = cycles * cycle(t) / t->cores * busy;
    /* Each operand is read once for every block of the other one. Partial sums that do not fit into L2 are loaded
     * and stored with every chunk, and once more for the results. They are in L3 only if those of all cores fit
     * there together. */
    const double pixels = (double)problem_about(&w->p, w->p.k) * outer * w->p.bytes;
    double memory = cold(t, pixels * (double)w->a.channels.size) * (double)w->b.nblock +
                    cold(t, pixels * (double)w->b.channels.size) * (double)w->a.nblock;
    const double held = (double)((w->sums + (w->winograd ? w->a.size + w->b.size : 0)) * w->p.bytes);
    const double moved = 2 * (double)w->sums * w->p.bytes * (double)w->nchunk * (double)(tasks / w->ngroup);
    const bool far = held * t->cores > (double)t->l3;
    memory += writing(t, &w->p);
    memory += moved / (far ? t->dram_rate : held > room(t) ? t->l3_rate : t->l2_rate);
    /* A packed block of b is read for every panel of a. Reads from L2 are hidden. */
    const double packed = w->winograd ? 0 : (double)(w->b.size * w->b.block * w->p.bytes);
    if (packed > room(t))
        memory += pixels * (double)(w->b.channels.size * w->a.panels) /
                  (packed * t->cores > (double)t->l3 ? t->dram_rate : t->l3_rate);
    return (compute > memory ? compute + constants.overlap * memory : memory + constants.overlap * compute) +
           KERNEL_STEP_NS * (w->ngroup > 1 ? 2 : 1);
}

double cost_gemv(const struct problem *p, const struct target *t, int lanes, int64_t tasks, double step)
{
    enum { START = 20 }; /* cycles of a task: addresses, rows past the end */
    const double elements = (double)problem_about(p, p->batch | p->n | p->k);
    const double cycles = elements / lanes * step + START * (double)tasks;
    const double compute = cycles * cycle(t) / t->cores;
    const double memory = cold(t, elements * p->bytes);
    const double hidden = constants.overlap / 3; /* only loads and FMAs, and each result is stored once */
    return (compute > memory ? compute + hidden * memory : memory + hidden * compute) + KERNEL_STEP_NS;
}

static double attention_ns(const struct attention *a)
{
    enum { EXP = 26, START = 300 }; /* cycles of a vector of scores besides its products; of a task, its addresses */
    const struct target *t = a->target;
    const struct loops_ivar *ivar = a->loops->ivars.at;
    const double queries = (double)size_about(ivar[a->t].size), keys = (double)size_about(ivar[a->s].size),
                 depth = (double)(ivar[a->d].size + ivar[a->e].size);
    const double blocks = (double)(((int64_t)queries + a->queries - 1) / a->queries),
                 tasks = blocks * (double)size_about(ivars_size(a->loops, a->batch));
    const double rows = a->rows,
                 step = MAX(rows * a->vectors / t->fma_pipes, MAX((rows + a->vectors) / 2, constants.latency)) / rows;
    const double seen = a->guard ? (keys + a->queries) / 2 : keys; /* a causal mask; other guards are rare */
    double cycles = seen * (depth * step + a->vectors * EXP) + START + depth * a->queries * 1.5;
    if (a->score_by_query) cycles += seen * a->queries * 2;
    const double busy = (double)((int64_t)(tasks + t->cores - 1) / t->cores) * t->cores / tasks;
    const double bytes = keys * depth * dtype_def(a->dtype)->bytes * tasks / blocks;
    return tasks * cycles * cycle(t) / t->cores * busy + constants.overlap * cold(t, bytes) + KERNEL_STEP_NS;
}

/* Tasks are batches. */
static double attention_grad_ns(const struct attention_grad *g)
{
    enum { EXP = 34, START = 2000 };
    const struct attention *a = &g->a;
    const struct target *t = a->target;
    const struct loops_ivar *ivar = a->loops->ivars.at;
    const double queries = (double)size_about(ivar[a->t].size), keys = (double)size_about(ivar[a->s].size),
                 depth = (double)(ivar[a->d].size + ivar[a->e].size),
                 tasks = (double)size_about(attention_grad_tasks(g));
    const double blocks = (double)(((int64_t)queries + a->queries - 1) / a->queries), rows = a->rows;
    const double step = MAX(rows * a->vectors / t->fma_pipes, MAX((rows + a->vectors) / 2, constants.latency)) / rows;
    const double seen = a->guard ? (keys + a->queries) / 2 : keys, deep = (double)ivar[a->d].size;
    const double across = queries * keys * (seen / keys) * depth / a->lanes / t->fma_pipes / blocks; /* dk and dv */
    double cycles = blocks * (seen * ((depth + deep) * step + a->vectors * EXP) + across + depth * a->queries * 4);
    if (a->score_by_query && (int64_t)queries % a->queries) cycles += seen * a->queries * 8;
    const double busy = (double)((int64_t)(tasks + t->cores - 1) / t->cores) * t->cores / tasks;
    const double bytes = 2 * (keys + queries) * depth * dtype_def(a->dtype)->bytes * tasks;
    return tasks * (cycles + START) * cycle(t) / t->cores * busy + constants.overlap * cold(t, bytes) + KERNEL_STEP_NS;
}

double cost_foreign(const struct problem *p, const struct target *t, int64_t tasks)
{
    const double busy = (double)((tasks + t->cores - 1) / t->cores) * t->cores / (double)tasks;
    const double products = (double)problem_size(p, p->batch | p->m | p->n | p->k);
    const double sums = (double)problem_size(p, p->batch | p->m | p->n);
    const double lanes = target_lanes(t, 4);
    const double compute = products / (lanes * t->fma_pipes * constants.foreign) * cycle(t) / t->cores * busy;
    const double weights = cold(t, (double)problem_size(p, p->batch | p->n | p->k) * p->bytes);
    return MAX(compute, weights) + constants.overlap * MIN(compute, weights) + 2 * sums * p->bytes / t->l2_rate +
           KERNEL_STEP_NS;
}

static double blocking_ns(const struct blocking *sized)
{
    const struct blocking about = blocking_about(sized), *b = &about;
    const struct target *t = b->target;
    const int64_t tiles = tile_count(b), tasks = blocking_tasks(b);
    const double pixels = (double)problem_about(b->p, b->p->m) / (double)tiles;
    double cycles = (double)(tiles * b->panels * b->nouter) * tile_cycles(b, pixels) + gather_cycles(b);
    cycles += passing_groups(b);
    if (b->nouter > 1) cycles += (double)(b->nouter * b->nblock) * constants.start;
    if (b->options.source == B_SCRATCH)
        cycles +=
            (double)b->nblock * (double)b->nouter * (double)b->panels * (double)b->nchunk * (double)b->panel_elements;
    const double busy = (double)((tasks + t->cores - 1) / t->cores) * t->cores / (double)tasks;
    const double compute = cycles * cycle(t) / t->cores * busy;
    const double weights = weight_bytes(b);
    const double again = (double)(b->nblock - 1) * weights / (weights > (double)t->l2 ? t->l3_rate : t->l2_rate);
    const double memory =
        cold(t, weights) + far_input(t, b->p) + writing(t, b->p) + again + reading_a(b) + between_chunks(b);
    return (compute > memory ? compute + constants.overlap * memory : memory + constants.overlap * compute) +
           KERNEL_STEP_NS;
}

/* What a kernel costs may be asked for at another point of the dimensions than it is made for. */
double cost_winograd(const struct winograd *w)
{
    const bool was = size_costs(true);
    const double ns = winograd_ns(w);
    size_costs(was);
    return ns;
}

double cost_weights(const struct weights *w)
{
    const bool was = size_costs(true);
    const double ns = weights_ns(w);
    size_costs(was);
    return ns;
}

double cost_blocking(const struct blocking *b)
{
    const bool was = size_costs(true);
    const double ns = blocking_ns(b);
    size_costs(was);
    return ns;
}

double cost_attention_grad(const struct attention_grad *g)
{
    const bool was = size_costs(true);
    const double ns = attention_grad_ns(g);
    size_costs(was);
    return ns;
}

double cost_attention(const struct attention *a)
{
    const bool was = size_costs(true);
    const double ns = attention_ns(a);
    size_costs(was);
    return ns;
}
