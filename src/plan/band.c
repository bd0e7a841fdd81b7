/* Row-tiled fusion: units that share a loop (rows of an image, or blocks of channels) become one kernel. It goes
 * through that loop once and passes rows from stage to stage in scratch memory that stays in the cache.
 *
 *   expand 1x1 ─ ring of rows ─▶ depthwise 3x3 ─ one row ─▶ project 1x1
 *
 * A tensor that other units read, too, is also stored, and the next stage still finds it in the cache: partial sums
 * over it (split_reduction.c).
 *
 * A stage is its unit's loops, sliced along the shared index variable (slice.c): a cluster of its own, for which any
 * solver emits a kernel. So solvers do not know bands, and bands do not know solvers. Costs decide: the memory traffic
 * that intermediate tensors would cause, against the overhead of smaller kernels.
 *
 * The number of images, of rows, and the pixels of a row may vary. How many rows a ring holds, which of them a row
 * reads and how many rows are a task are numbers; costs are those of the hints. */
#include "plan/band.h"
#include "plan/verify.h"

#include <math.h>
#include <string.h>

#define CHANNEL_BLOCK 64   /* channels of one step, at most */
#define ROW_PENALTY 0.04   /* kernels of single long rows are slower than those of whole images by this share */
#define LONG_ROWS 28.0     /* shorter rows cost more: 0.08 at 14 */
#define BLOCK_PENALTY 0.05 /* likewise for blocks of channels; measured by the tuner on Zen 5 */
#define ROWS_PENALTY 0.02  /* likewise for blocks of rows */
#define DEEP_ROWS 0.06     /* contractions by this one: 0.05 to 0.16 on Zen 5 */
#define FEW_PIXELS 6       /* in a row of fewer, contractions wait for their weights, which each row reads: */
#define FEW_PENALTY 0.5    /* conv1d, whose rows are one pixel, took 3.4 times as long on an Intel Xeon */
#define SHORT_RUN 256      /* bytes; what lies in shorter runs, far apart, is not prefetched: */
#define RUN_NS 8.0         /* the first line of each, measured on Zen 4 */
#define GAIN 0.02          /* of the time of the kernels that must be saved */
#define CACHE_SHARE 0.6    /* of a core's L2 that rings may take */

static const struct loops_stmt *writer(const struct loops *loops, int tensor)
{
    for (int i = 0; i < loops->stmts.n; i++)
        for (int o = 0; o < loops->stmts.at[i].nout; o++)
            if (loops->stmts.at[i].out[o] == tensor) return &loops->stmts.at[i];
    return NULL;
}

static int tensor_of(const struct loops *loops, const struct sol_tensor *t)
{
    for (int i = 0; i < loops->tensors.n; i++)
        if (loops->tensors.at[i].user == t) return i;
    return -1;
}

/* The index variable that writes dimension d of the tensor; -1: the index is not a plain variable. */
static int written_ivar(const struct loops *loops, int tensor, int d)
{
    const struct loops_stmt *s = writer(loops, tensor);
    int32_t node = s ? ex_nth(loops, s->index, d) : 0;
    return node && loops->ex.at[node].kind == EX_IVAR ? loops->ex.at[node].tensor : -1;
}

struct reader {
    const struct loops *loops;
    int tensor;
    int32_t first; /* index list of the first read of the tensor */
};

static void reader_visit(void *user, int32_t node)
{
    struct reader *r = user;
    const struct ex *e = &r->loops->ex.at[node];
    if (e->kind == EX_READ && e->tensor == r->tensor && !r->first) r->first = e->a;
}

/* The index variable of the reading statement that moves along dimension d of the tensor; -1: none. */
static int read_ivar(const struct loops *loops, int tensor, int d)
{
    for (int i = 0; i < loops->stmts.n; i++) {
        struct reader r = {.loops = loops, .tensor = tensor};
        ex_walk(loops, loops->stmts.at[i].value, reader_visit, &r);
        struct affine f;
        if (!r.first || !ex_affine(loops, ex_nth(loops, r.first, d), &f)) continue;
        for (int k = 0; k < f.n; k++)
            if (stmt_ivars(loops, &loops->stmts.at[i]) >> f.ivar[k] & 1) return f.ivar[k];
    }
    return -1;
}

/* -- making a chain */

/* The dimension of t that counts images: it lies in front of dimension `dim` in memory and its size is not 1. -2: there
 * are several. */
static int image_dim(const struct allocation *s, int dim)
{
    int found = -1;
    for (int i = 0; i < s->t->ndim; i++) {
        int d = s->order[i];
        if (s->t->dim[d].purpose == 'C' || s->t->dim[d].purpose == 'P' || d == dim || s->t->dim[d].size == 1) continue;
        if (found >= 0) return -2;
        found = d;
    }
    return found;
}

static void ring_memory(const struct allocation *s, struct stage *st, int tensor, int dim, int image, bool blocks)
{
    struct memory *m = &st->memory[tensor];
    int64_t stride = 1, origin = 0;
    for (int i = s->t->ndim - 1; i >= 0; i--) {
        int d = s->order[i];
        if (d == image || (d == dim && !blocks)) continue;
        int64_t size = d == dim ? st->slice->tensors.at[tensor].shape[d] : s->t->dim[d].size;
        m->stride[d] = stride;
        m->halo_low[d] = s->memory.halo_low[d];
        m->halo_high[d] = s->memory.halo_high[d];
        origin = size_add(origin, size_mul(m->halo_low[d], stride));
        stride = plan_pitch(s, i, size_mul(stride, size_add(size, m->halo_low[d] + m->halo_high[d])));
    }
    if (!blocks) m->stride[dim] = stride;
    if (image >= 0) m->stride[image] = 0;
    m->constant = false;
    int bytes = dtype_def(s->t->dtype)->bytes;
    st->row_bytes = size_mul(stride, bytes);
    st->row_origin = size_mul(origin, bytes);
    m->align = MIN(slice_align(st->row_bytes), slice_align(st->row_origin));
}

/* Slices a stage along its index variables: images first, then rows. */
static bool slice_stage(struct plan *p, struct stage *st)
{
    struct slice row = {.of = st->loops, .of_memory = st->u->memory, .ivar = st->ivar, .ring = st->in};
    if (st->image >= 0) {
        struct slice image = row;
        image.ivar = st->image;
        if (!loops_slice(p->scratch, &image)) return false;
        for (int i = 0; i < image.loops->tensors.n; i++) /* what is packed once would be packed for image 0 */
            if (image.op[i].coef) image.memory[i].constant = false;
        st->image_op = image.op;
        row.of = image.loops;
        row.of_memory = image.memory;
        row.ivar -= st->ivar > st->image;
    }
    if (!loops_slice(p->scratch, &row)) return false;
    st->slice = row.loops;
    st->memory = row.memory;
    st->op = row.op;
    st->fill = row.fill;
    return true;
}

/* The number of values of an index variable of this size that make a step, a divisor of the size. 0: there is none, or
 * it varies. */
static int64_t step_of(struct plan *p, enum band_kind kind, const struct sol_tensor *t, int dim)
{
    const int lanes = target_lanes(p->target, 4); /* blocks that are no whole vectors took up to twice as long */
    const int64_t size = t->dim[dim].size, block = kind == BAND_BLOCKS ? plan_block_rows(t) : 1;
    int64_t by = MIN(size, CHANNEL_BLOCK);
    if (kind != BAND_CHANNELS) return size_varies(block) ? 0 : block;
    if (size_varies(size)) return 0;
    while (by > 1 && (size % by || by % lanes)) by--;
    return by < lanes || by == size ? 0 : by;
}

/* Slices the unit of a stage whose own index variables, rings and `by` are known. */
static bool begin_stage(struct plan *p, struct stage *st)
{
    const struct loops *own = st->u->loops;
    const int ivar = st->ivar = st->own_ivar;
    st->image = st->own_image;
    st->loops = own;
    if (ivar < 0 || !st->by) return false;
    if (st->by > 1) {
        if (size_factor(own->ivars.at[ivar].size) % st->by) return false;
        st->loops = loops_split(p->scratch, own, ivar, st->by, &st->ivar);
        if (st->image > ivar) st->image++;
    }
    st->rows = st->loops->ivars.at[st->ivar].size;
    return slice_stage(p, st);
}

static int64_t pixels_of_row(const struct sol_tensor *t, int dim)
{
    int64_t n = 1;
    for (int d = 0; d < t->ndim; d++)
        if (d != dim && t->dim[d].purpose == 'P') n *= size_hint(t->dim[d].size);
    return n;
}

/* Is how an operand moves known in numbers? */
static bool is_known(const struct slice_operand *op)
{
    return !size_varies(op->coef) && !size_varies(op->min) && !size_varies(op->max);
}

struct edge { /* from the unit that writes a tensor to one that reads it */
    struct unit *from, *to;
    struct allocation *s; /* the tensor's */
    bool stored;          /* it is stored in memory, too */
};

/* Adds an edge to a chain: slices both units along dimension `dim` of the tensor. */
static bool add_edge(struct plan *p, struct chain *c, const struct edge *edge, int dim)
{
    struct unit *const a = edge->from, *const b = edge->to;
    const struct allocation *s = edge->s;
    const bool stored = edge->stored;
    int image = image_dim(s, dim), ta = tensor_of(a->loops, s->t), tb = tensor_of(b->loops, s->t);
    if (image == -2 || ta < 0 || tb < 0 || c->n >= BAND_MAX_STAGES) return false;
    int ia = image < 0 ? -1 : written_ivar(a->loops, ta, image), ib = image < 0 ? -1 : read_ivar(b->loops, tb, image);
    if (image >= 0 && (ia < 0 || ib < 0 || a->loops->ivars.at[ia].size != b->loops->ivars.at[ib].size)) return false;
    struct stage *first = &c->stage[MAX(c->n - 1, 0)], *second = first + 1;
    const int64_t by = step_of(p, c->kind, s->t, dim);
    const int ivar = written_ivar(a->loops, ta, dim);
    if (c->n == 0) {
        *first = (struct stage){.u = a, .own_ivar = ivar, .own_image = ia, .by = by, .in = -1, .out = ta};
        if (!begin_stage(p, first)) return false;
        c->n = 1;
    } else {
        if (first->by != by || ivar != first->own_ivar || ia != first->own_image) return false;
        first->out = ta;
    }
    const bool blocks = c->kind == BAND_BLOCKS && stored; /* that is what the sums' index variable counts */
    *second = (struct stage){
        .u = b, .own_ivar = read_ivar(b->loops, tb, dim), .own_image = ib, .by = blocks ? 1 : by, .in = tb, .out = -1};
    if (!begin_stage(p, second)) return false;
    const struct slice_operand *w = &first->op[ta], *r = &second->op[tb];
    if (!is_known(w) || !is_known(r) || w->dim != dim || r->dim != dim || w->coef <= 0 || r->coef <= 0 ||
        r->coef % w->coef || w->min)
        return false;
    if (image >= 0 && (first->image_op[ta].dim != image || second->image_op[tb].dim != image ||
                       second->image_op[tb].coef != 1 || second->image_op[tb].min || second->image_op[tb].max))
        return false;
    first->pixels = second->pixels = pixels_of_row(s->t, dim);
    second->step = r->coef / w->coef;
    second->low = (int64_t)floor((double)r->min / (double)w->coef);
    second->high = (int64_t)floor((double)r->max / (double)w->coef);
    int64_t window = second->high - second->low + 1;
    if (c->kind != BAND_ROWS && (second->low || window != 1 || second->step != 1)) return false;
    if (stored && window != second->step) return false;
    first->stored = stored;
    if (!stored) { /* it is the last stage of the shorter chain, whose output lies elsewhere */
        first->memory =
            arena_memdup(p->scratch, first->memory, (size_t)first->slice->tensors.n * sizeof *first->memory);
        ring_memory(s, first, ta, dim, image, c->kind != BAND_ROWS);
        second->memory[tb] = first->memory[ta];
        first->ring_rows = window == 1 ? 1 : window + MAX(8, 2 * second->step);
    }
    c->images = image < 0 ? 1 : a->loops->ivars.at[ia].size;
    c->n++;
    return true;
}

/* -- does it pay? */

/* The time that storing a tensor in memory costs: writing it (which counts twice) and reading it, as far as it leaves
 * the L2. A `stored` tensor is still written. */
static double traffic(struct plan *p, const struct allocation *s, bool stored)
{
    double bytes = (double)size_hint(s->elements) * dtype_def(s->t->dtype)->bytes;
    double l2 = (double)p->target->l2 * p->target->cores;
    double far = MIN(MAX(bytes / l2 - 0.25, 0), 1);
    return far * bytes * (stored ? 1 : 3) / p->target->l3_rate +
           (1 - far) * bytes * (stored ? 1 : 2) / p->target->l2_rate + KERNEL_STEP_NS;
}

static double penalty(enum band_kind kind, const struct stage *st)
{
    switch (kind) {
    case BAND_CHANNELS: return BLOCK_PENALTY;
    case BAND_BLOCKS: return st->u->contraction ? DEEP_ROWS : ROWS_PENALTY;
    default: break;
    }
    const double rows = ROW_PENALTY * MAX(1, LONG_ROWS / (double)MAX(size_hint(st->rows), 1));
    if (!st->apart->candidate[st->apart->chosen].solver->blocks || st->pixels >= FEW_PIXELS) return rows;
    return rows + FEW_PENALTY * ((double)FEW_PIXELS / (double)MAX(st->pixels, 1) - 1);
}

/* The bytes of a slice's tensor that lie side by side, and how many such runs it has. */
static int64_t run_bytes(const struct loops_tensor *t, const struct memory *m, double *out_runs)
{
    int64_t run = 1;
    bool longer = true;
    *out_runs = 1;
    while (longer) {
        longer = false;
        for (int d = 0; d < t->ndim && !longer; d++) {
            longer = size_hint(m->stride[d]) == run && size_hint(t->shape[d]) > 1;
            if (longer) run *= size_hint(t->shape[d]);
        }
    }
    for (int d = 0; d < t->ndim; d++) *out_runs *= (double)MAX(size_hint(t->shape[d]), 1);
    *out_runs /= (double)run;
    return run * dtype_def((enum sol_dtype)t->dtype)->bytes;
}

/* The time that a stage waits for what it reads or writes in memory row by row, in short runs. The unit by itself walks
 * along memory. */
static double waits(struct plan *p, const struct chain *c, const struct stage *st)
{
    double n = 0, runs;
    for (int i = 0; i < st->slice->tensors.n; i++) {
        const struct loops_tensor *t = &st->slice->tensors.at[i];
        if (!t->user || i == st->in || i == st->out || !st->op[i].coef) continue;
        const struct allocation *s = plan_allocation(p, t->user);
        const double bytes = (double)size_hint(s->elements) * dtype_def(s->t->dtype)->bytes;
        const int64_t run = run_bytes(t, &st->memory[i], &runs);
        if (run < SHORT_RUN && runs > 1 && bytes > (double)p->target->l2 * p->target->cores) n += runs;
    }
    return n * RUN_NS * (double)MAX(size_hint(st->rows) * size_hint(c->images), 1) / p->target->cores;
}

static sol_status estimate(struct plan *p, struct chain *c)
{
    double stored = 0;
    int64_t ring_bytes = 0;
    c->cost = c->kernels = 0;
    c->all_rows = false;
    for (int i = 0; i < c->n; i++) {
        struct stage *st = &c->stage[i];
        TRY(choose_kernel(p, st->u->loops, st->u->memory, st->u->anchor, st->u, &st->apart));
        const double cost = st->apart->kernel.cost;
        c->kernels += cost;
        c->cost += cost * (1 + penalty(c->kind, st)) + waits(p, c, st);
        c->all_rows |= st->apart->candidate[st->apart->chosen].solver->all_rows;
        if (st->out < 0) continue;
        stored += traffic(p, plan_allocation(p, st->u->loops->tensors.at[st->out].user), st->stored);
        ring_bytes += size_hint(st->row_bytes) * st->ring_rows;
        const struct stage *next = &c->stage[i + 1];
        double overlap = (double)(next->high - next->low + 1 - next->step);
        c->cost += cost * MAX(overlap, 0) * (p->target->cores - 1) /
                   (double)MAX(size_hint(st->rows) * size_hint(c->images), 1);
    }
    c->apart = c->kernels + stored;
    c->fits = (double)ring_bytes <= CACHE_SHARE * (double)p->target->l2;
    return SOL_OK;
}

/* Chooses kernels for all stages. *out_can false: one of them cannot be part of a band. */
static sol_status choose_stages(struct plan *p, struct chain *c, bool always, bool *out_can)
{
    *out_can = false;
    for (int i = 0; i < c->n; i++) {
        struct stage *st = &c->stage[i];
        struct unit u = *st->u;
        if (p->training) u.repeats = size_hint(st->rows) * size_hint(c->images); /* what a step packs, it packs once */
        TRY(choose_kernel(p, st->slice, st->memory, u.anchor, &u, &st->choice));
        st->kernel = st->choice->kernel;
        if (st->kernel.nstep != 1 || st->kernel.nwork) return SOL_OK;
        /* a solver that needs more than one row at a time, such as Winograd, is not given up for a band of rows */
        const bool changed = st->u->contraction && strcmp(st->kernel.solver, st->apart->kernel.solver);
        if (changed && c->kind != BAND_BLOCKS && !always) return SOL_OK;
    }
    *out_can = true;
    return SOL_OK;
}

/* -- finding chains */

/* The only reader of a tensor that only u writes and that need not be stored; NULL: there is none. */
static struct unit *only_reader(struct plan *p, const struct unit *u, struct unit **reader_of,
                                struct allocation **out_s)
{
    struct allocation *found = NULL;
    for (int k = 0; k < u->loops->tensors.n; k++) {
        const struct loops_tensor *t = &u->loops->tensors.at[k];
        if (t->role != LOOPS_OUTPUT) continue;
        if (found) return NULL;
        found = plan_allocation(p, t->user);
    }
    if (!found || found->writers != 1 || found->readers != 1 || found->fixed || found->output ||
        found->root != found->t)
        return NULL;
    *out_s = found;
    struct unit *b = reader_of[found->t->id];
    return b && !b->dead && !b->opaque && !b->when && !b->kernel.source && b->program == u->program ? b : NULL;
}

/* The unit that begins the reductions over u's result, and that result; NULL: there is none. */
static struct unit *sums_over(struct plan *p, const struct unit *u, struct allocation **out_s)
{
    for (int k = 0; k < u->loops->tensors.n; k++) {
        const struct loops_tensor *t = &u->loops->tensors.at[k];
        *out_s = t->role == LOOPS_OUTPUT ? plan_allocation(p, t->user) : NULL;
        if (*out_s && (*out_s)->sums && !(*out_s)->sums->dead) return (*out_s)->sums;
    }
    return NULL;
}

static bool reads_result_of(const struct unit *u, const struct unit *writer)
{
    for (int k = 0; k < writer->loops->tensors.n; k++) {
        const struct loops_tensor *t = &writer->loops->tensors.at[k];
        for (int i = 0; t->role == LOOPS_OUTPUT && t->user && i < u->loops->tensors.n; i++)
            if (u->loops->tensors.at[i].role == LOOPS_INPUT && u->loops->tensors.at[i].user == t->user) return true;
    }
    return false;
}

/* A band runs in place of its last unit. Does a unit ahead of it, outside of the band, read results of the stored unit?
 */
static bool comes_too_late(const struct plan *p, const struct unit *stored, struct unit *const *band, int n)
{
    const struct unit *last = band[n - 1];
    for (int i = stored->number; i < last->number - 1; i++) { /* numbers count from 1 */
        const struct unit *u = p->units.at[i];
        bool member = u->dead;
        for (int k = 0; k < n; k++) member |= u == band[k];
        if (!member && reads_result_of(u, stored)) return true;
    }
    return false;
}

static int dimension(const struct allocation *s, char purpose)
{
    for (int i = 0; i < s->t->ndim; i++)
        if (s->t->dim[s->order[i]].purpose == purpose && s->t->dim[s->order[i]].size > 1) return s->order[i];
    return -1;
}

#define MOST_CHAINS (BAND_KINDS * (BAND_MAX_STAGES - 1))
struct chains {                         /* all that begin with one unit */
    int n, longest;                     /* longest: in units */
    double apart[BAND_MAX_STAGES + 1];  /* of the first so many units, one by one */
    struct unit *unit[BAND_MAX_STAGES]; /* of the longest */
    struct chain chain[MOST_CHAINS];
};
static const struct solver band_solver = {.name = "band"};

static sol_status find_chains(struct plan *p, struct unit *u, struct unit **reader_of, struct chains *out)
{
    static const char purposes[BAND_KINDS] = {[BAND_ROWS] = 'P', [BAND_CHANNELS] = 'C', [BAND_BLOCKS] = 'P'};
    out->n = out->longest = 0;
    for (int k = 0; k < BAND_KINDS; k++) {
        struct chain c = {.kind = k};
        struct edge e = {.from = u};
        const struct unit *stored = NULL; /* the first whose results are stored */
        for (;;) {
            e.to = only_reader(p, e.from, reader_of, &e.s);
            e.stored = !e.to;
            if (e.stored) e.to = sums_over(p, e.from, &e.s);
            if (e.stored && !stored) stored = e.from;
            if (!e.to || e.s->parts) break;
            int dim = dimension(e.s, purposes[k]);
            if (dim < 0 || !add_edge(p, &c, &e, dim)) break;
            out->unit[c.n - 2] = e.from;
            out->unit[c.n - 1] = e.to;
            if (stored && comes_too_late(p, stored, out->unit, c.n)) break;
            TRY(estimate(p, &c));
            out->longest = MAX(out->longest, c.n);
            out->apart[c.n] = c.apart;
            if (k != BAND_BLOCKS || e.stored) out->chain[out->n++] = c;
            e.from = e.to;
        }
    }
    return SOL_OK;
}

/* The choice among the chains, or none: each candidate says what it makes of the units of the longest chain. */
static struct choice *choice_of(struct plan *p, const struct chains *all)
{
    static const char *const kinds[BAND_KINDS] = {"rows", "channels", "blocks"};
    char key[33];
    struct hash h;
    const double apart = all->apart[all->longest];
    const bool always = !strcmp(ctx_config(p->ctx, "bands"), "always");
    hash_init(&h);
    hash_text(&h, "band");
    for (int i = 0; i < all->n; i++)
        if (all->chain[i].n == all->longest)
            for (int k = 0; k < all->longest; k++) hash_text(&h, all->chain[i].stage[k].apart->key);
    hash_hex(&h, key);
    struct choice *choice = map_get(p->known, key);
    if (choice) return choice;
    choice = NEW(p->arena, struct choice);
    *choice = (struct choice){.key = arena_strdup(p->arena, key),
                              .candidate = NEW_ARRAY(p->arena, struct candidate, MOST_CHAINS + 1)};
    choice_add(choice, &(struct candidate){&band_solver, {.p = {-1, 1}, .cost = apart, .text = "apart"}});
    for (int i = 0; i < all->n; i++) {
        const struct chain *c = &all->chain[i];
        const struct variant v = {.p = {c->kind, c->n},
                                  .cost = c->cost + apart - c->apart,
                                  .text = arena_printf(p->arena, "%s %d", kinds[c->kind], c->n)};
        if (c->fits && (always || !c->all_rows)) choice_add(choice, &(struct candidate){&band_solver, v});
    }
    choice->chosen = -1;
    map_set(p->known, key, choice);
    return choice;
}

static struct chain *chain_of(struct chains *all, const struct candidate *cand)
{
    for (int i = 0; i < all->n; i++)
        if ((int)all->chain[i].kind == cand->variant.p[0] && all->chain[i].n == cand->variant.p[1])
            return &all->chain[i];
    return NULL; /* the units stay apart */
}

/* Tries the ways in order, the policy's first, then by cost, until a chain can be printed or separate units are better.
 * The band runs in place of its last unit, when all operands are complete. */
static sol_status choose_chain(struct plan *p, struct chains *all, struct choice *choice)
{
    const bool always = !strcmp(ctx_config(p->ctx, "bands"), "always");
    const int picked = p->policy ? p->policy->pick(p->policy->user, choice) : -1;
    for (int i = picked < 0 ? 0 : -1; i < choice->n; i++) {
        const int k = i < 0 ? picked : i;
        struct chain *c = chain_of(all, &choice->candidate[k]);
        bool can = false;
        choice->chosen = k;
        if (!c && always) continue;
        if (!c) return SOL_OK;
        if (i >= 0 && !always && c->apart - c->cost < GAIN * c->kernels) continue;
        TRY(choose_stages(p, c, always, &can));
        struct unit *last = c->stage[c->n - 1].u;
        if (can) TRY(band_kernel(p, c, last, &can));
        if (!can) continue;
        last->choice = c->stage[0].choice;
        for (int n = 1; n < c->n; n++)
            if (c->stage[n].apart->kernel.cost > last->choice->kernel.cost) last->choice = c->stage[n].choice;
        for (int n = 0; n < c->n - 1; n++) {
            c->stage[n].u->dead = true;
            p->into[c->stage[n].u->number] = last->number;
        }
        if (p->verify) verify_keep_band(p, c);
        return SOL_OK;
    }
    return SOL_OK;
}

sol_status plan_band(struct plan *p)
{
    p->numbers = 1;
    for (int i = 0; i < p->units.n; i++)
        if (!p->units.at[i]->helps) p->units.at[i]->number = p->units.at[i]->version ? p->numbers - 1 : p->numbers++;
    p->into = NEW_ARRAY(p->arena, int, p->numbers);
    for (int i = 1; i < p->numbers; i++) p->into[i] = i;
    if (!strcmp(ctx_config(p->ctx, "bands"), "off") || !target_has_trees(p->target)) return SOL_OK;
    for (int i = 0; i < p->nallocations; i++) {
        const struct allocation *s = &p->allocations[i];
        if (s->t && s->root != s->t) plan_allocation(p, s->root)->parts = true;
    }
    struct unit **reader_of = NEW_ARRAY(p->scratch, struct unit *, p->nallocations + 1);
    for (int i = 0; i < p->units.n; i++) {
        struct unit *u = p->units.at[i];
        if (u->dead || u->opaque) continue;
        unit_memory(p, u);
        for (int k = 0; k < u->loops->tensors.n; k++)
            if (u->loops->tensors.at[k].role == LOOPS_INPUT && u->loops->tensors.at[k].user)
                reader_of[((struct sol_tensor *)u->loops->tensors.at[k].user)->id] = u;
    }
    for (int i = 0; i < p->units.n; i++) {
        struct unit *u = p->units.at[i];
        if (u->dead || u->opaque || u->when || u->kernel.source || u->program == PROGRAM_PREPARE) continue;
        struct chains all;
        TRY(find_chains(p, u, reader_of, &all));
        if (!all.n) continue;
        struct choice *choice = choice_of(p, &all);
        struct plan_chain chain = {.choice = choice, .n = all.longest};
        for (int k = 0; k < all.longest; k++) chain.unit[k] = all.unit[k];
        TRY(choose_chain(p, &all, choice));
        PUSH(p->arena, p->chains, chain);
    }
    return ctx_check(p->ctx);
}
