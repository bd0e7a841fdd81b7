/* Do the drivers of bands and scans hold what plan.h promises? Which rows a stage reads, what the rings have room for
 * and where steps find what others wrote is found anew, from the loops. */
#include "plan/scan.h"
#include "plan/verify.h"

/* -- bands */

struct rows { /* of a ring that a stage reads for its row r: step * r + low .. step * r + high */
    struct plan *p;
    const struct unit *u;
    const struct stage *from, *to;
    int64_t by; /* elements along the ring's dimension in one row */
    sol_status status;
};

/* The range of an affine index without what `ivar` adds to it, and the coefficient of that. */
static bool range_beside(const struct loops *loops, int32_t index, int ivar, int64_t *coef, int64_t *low, int64_t *high)
{
    struct affine f;
    if (!ex_affine(loops, index, &f)) return false;
    *coef = 0;
    *low = *high = f.c;
    for (int i = 0; i < f.n; i++) {
        const int64_t end = f.coef[i] * (loops->ivars.at[f.ivar[i]].size - 1);
        if (f.ivar[i] == ivar) *coef = f.coef[i];
        if (f.ivar[i] != ivar) *(end < 0 ? low : high) += end;
    }
    return true;
}

static bool is_number(const struct loops *loops, int32_t node, double v)
{
    const struct ex *e = &loops->ex.at[node];
    return (e->kind == EX_INT && (double)e->u.i == v) || (e->kind == EX_REAL && e->u.r == v);
}

static void check_ring_read(void *user, int32_t node)
{
    struct rows *r = user;
    const struct stage *to = r->to;
    const struct ex *e = &to->loops->ex.at[node];
    int64_t coef, low, high;
    if (r->status || e->kind != EX_READ || e->tensor != to->in) return;
    if (!range_beside(to->loops, ex_nth(to->loops, e->a, to->op[to->in].dim), to->ivar, &coef, &low, &high)) {
        r->status = plan_wrong(r->p, r->u, "band: stage '%s': expected an affine index of the ring", to->u->label);
        return;
    }
    for (int end = 0; end < 2; end++) {
        const int64_t row = end ? to->rows - 1 : 0, at = to->step * row;
        const int64_t first = floor_div(coef * row + low, r->by), last = floor_div(coef * row + high, r->by);
        if (first < at + to->low || last > at + to->high) {
            r->status = plan_wrong(r->p, r->u,
                                   "band: stage '%s' reads rows %lld..%lld for its row %lld: expected the ring to hold "
                                   "them, it holds %lld..%lld",
                                   to->u->label, (long long)first, (long long)last, (long long)row,
                                   (long long)(at + to->low), (long long)(at + to->high));
            return;
        }
        if ((first < 0 || last >= r->from->rows) && !is_number(to->loops, e->b, to->fill))
            r->status = plan_wrong(r->p, r->u,
                                   "band: stage '%s': rows outside are filled with %g, which is not what "
                                   "it reads there",
                                   to->u->label, to->fill);
    }
}

static sol_status check_ring_reads(struct plan *p, const struct unit *u, const struct stage *from,
                                   const struct stage *to)
{
    struct rows r = {.p = p, .u = u, .from = from, .to = to};
    for (int i = 0; i < from->loops->stmts.n; i++) {
        const struct loops_stmt *s = &from->loops->stmts.at[i];
        int64_t low, high;
        for (int o = 0; o < s->nout; o++)
            if (s->out[o] == from->out &&
                (!range_beside(from->loops, ex_nth(from->loops, s->index, from->op[from->out].dim), from->ivar, &r.by,
                               &low, &high) ||
                 r.by <= 0 || low || high >= r.by))
                return plan_wrong(p, u, "band: stage '%s': expected rows of %lld elements, got indices %lld..%lld",
                                  from->u->label, (long long)r.by, (long long)low, (long long)high);
    }
    if (!r.by)
        return plan_wrong(p, u, "band: stage '%s': expected it to write what the next one reads", from->u->label);
    for (int i = 0; i < to->loops->stmts.n; i++) ex_walk(to->loops, to->loops->stmts.at[i].value, check_ring_read, &r);
    return r.status;
}

/* Bytes from the first element of a row, its halos included, to the end of the last. */
static int64_t row_extent(const struct chain *c, const struct stage *st)
{
    const struct loops_tensor *t = &st->slice->tensors.at[st->out];
    const struct memory *m = &st->memory[st->out];
    int64_t last = 0;
    for (int d = 0; d < t->ndim; d++) {
        if (d == st->op[st->out].dim && c->kind == BAND_ROWS) continue;
        if (st->image >= 0 && d == st->image_op[st->out].dim) continue;
        last += (m->halo_low[d] + t->shape[d] - 1 + m->halo_high[d]) * m->stride[d];
    }
    return (last + 1) * dtype_def((enum sol_dtype)t->dtype)->bytes;
}

static sol_status check_ring(struct plan *p, const struct unit *u, const struct chain *c, int i)
{
    const struct stage *st = &c->stage[i], *next = st + 1;
    const int64_t window = next->high - next->low + 1;
    const struct memory *a = &st->memory[st->out], *b = &next->memory[next->in];
    if (st->stored)
        return window == next->step ? SOL_OK
                                    : plan_wrong(p, u,
                                                 "band: stage '%s' is stored: expected its reader to read each "
                                                 "row once, got %lld rows in steps of %lld",
                                                 st->u->label, (long long)window, (long long)next->step);
    if (st->ring_rows < window)
        return plan_wrong(p, u, "band: ring of '%s': expected room for %lld rows, got %lld", st->u->label,
                          (long long)window, (long long)st->ring_rows);
    if (st->row_bytes < row_extent(c, st))
        return plan_wrong(p, u, "band: ring of '%s': expected rows of %lld bytes, got %lld", st->u->label,
                          (long long)row_extent(c, st), (long long)st->row_bytes);
    for (int d = 0; d < st->slice->tensors.at[st->out].ndim; d++)
        if (a->stride[d] != b->stride[d] || a->halo_low[d] != b->halo_low[d])
            return plan_wrong(p, u,
                              "band: ring of '%s': dimension %d: expected its reader to know its stride %lld, got "
                              "%lld",
                              st->u->label, d, (long long)a->stride[d], (long long)b->stride[d]);
    return SOL_OK;
}

static sol_status check_stages(struct plan *p, const struct unit *u, const struct chain *c)
{
    for (int i = 0; i < c->n; i++) {
        const struct stage *st = &c->stage[i], *next = st + 1;
        const int64_t rows = st->loops->ivars.at[st->ivar].size;
        if (st->rows != rows)
            return plan_wrong(p, u, "band: stage '%s': expected %lld rows, got %lld", st->u->label, (long long)rows,
                              (long long)st->rows);
        if (st->kernel.nstep != 1 || st->kernel.nwork)
            return plan_wrong(p, u,
                              "band: stage '%s': expected a kernel of one step without work buffers, got %d and %d",
                              st->u->label, st->kernel.nstep, st->kernel.nwork);
        if (i == c->n - 1) break;
        if (!st->u->dead || p->into[st->u->number] != u->number)
            return plan_wrong(p, u, "band: expected its stage '%s' to be dead, and to name it", st->u->label);
        if (st->loops->tensors.at[st->out].user != next->loops->tensors.at[next->in].user)
            return plan_wrong(p, u, "band: stage '%s': expected to read what '%s' writes", next->u->label,
                              st->u->label);
    }
    return SOL_OK;
}

static sol_status check_band(struct plan *p, const struct chain *c, struct arena *scratch)
{
    if (c->n < 2 || c->n > BAND_MAX_STAGES)
        return plan_wrong(p, NULL, "band: expected 2..%d stages, got %d", BAND_MAX_STAGES, c->n);
    const struct unit *u = c->stage[c->n - 1].u;
    int64_t kernels = 0, rings = 0;
    if (u->dead) return plan_wrong(p, u, "band: expected its last unit to be alive");
    if (!(c->kernels <= c->cost && c->kernels <= c->apart))
        return plan_wrong(p, u, "band: expected to cost at least %g, as its units do, got %g", c->kernels, c->cost);
    TRY(check_stages(p, u, c));
    for (int i = 0; i < c->n; i++) {
        const struct stage *st = &c->stage[i];
        kernels = MAX(kernels, kernel_lines(st->kernel.scratch_bytes));
        if (i == c->n - 1) break;
        TRY(check_ring_reads(p, u, st, st + 1));
        TRY(check_ring(p, u, c, i));
        rings += st->stored ? 0 : kernel_lines(st->row_bytes * st->ring_rows);
    }
    if (u->kernel.scratch_bytes < kernels + rings)
        return plan_wrong(p, u, "band: expected %lld bytes of scratch memory for kernels and rings, got %lld",
                          (long long)(kernels + rings), (long long)u->kernel.scratch_bytes);
    return verify_band_tree(p, u, c, scratch);
}

/* -- scans */

static const struct scan_tensor *tensor_of(const struct scan_stage *st, int t)
{
    return st->slice->tensors.at[t].user;
}

/* A step reads what earlier steps wrote, or stages in front of this one. `ready`: by tensor, is it written? */
static sol_status check_stage(const struct scan *s, const struct scan_stage *st, bool follows, bool *ready)
{
    for (int t = 0; t < st->slice->tensors.n; t++) {
        const int role = st->slice->tensors.at[t].role;
        const struct scan_tensor *at = role == LOOPS_TABLE ? NULL : tensor_of(st, t);
        const struct scan_state *state = at ? &s->state[at->tensor] : NULL;
        if (!state || state->dim < 0 || follows) continue;
        const char *name = s->loops->tensors.at[at->tensor].name;
        const int64_t back = -at->shift * s->by;
        if (back < 0)
            return plan_wrong(s->p, s->u, "scan: %s: expected reads of earlier steps, got %lld steps ahead", name,
                              (long long)-back);
        if (back && !state->carried)
            return plan_wrong(s->p, s->u, "scan: %s: expected to outlive its step, since another one reads it", name);
        if (state->scratch && back >= state->rows)
            return plan_wrong(s->p, s->u, "scan: %s: expected scratch memory for %lld steps, got %lld", name,
                              (long long)back + 1, (long long)state->rows);
        if (!back && role == LOOPS_INPUT && !ready[at->tensor])
            return plan_wrong(s->p, s->u, "scan: %s: a stage reads it before one of the same step writes it", name);
    }
    for (int t = 0; t < st->slice->tensors.n; t++)
        if (st->slice->tensors.at[t].role == LOOPS_OUTPUT) ready[tensor_of(st, t)->tensor] = true;
    return SOL_OK;
}

/* Are there as many steps, wherever the unit runs? A version may run from some number of steps on. */
static bool has_steps(const struct scan *s, int64_t n)
{
    return size_le(n, s->steps) || size_le(unit_when(s->u, n), s->steps);
}

/* Every step once, in the scan's direction, with all of its statements; then those behind the last step. */
static sol_status check_phases(const struct scan *s, struct arena *scratch)
{
    int64_t done = 0;
    for (int i = 0; i < s->nphase; i++) {
        const struct scan_phase *ph = &s->phase[i];
        const bool follows = done == s->steps;
        const int64_t first = s->by > 0 ? done : size_sub(size_sub(s->steps, done), ph->n);
        bool *ready = NEW_ARRAY(scratch, bool, s->loops->tensors.n + 1);
        int stmts = 0;
        if (!follows && (ph->from != first || !has_steps(s, size_add(done, ph->n))))
            return plan_wrong(s->p, s->u, "scan: expected steps from %lld on, got %lld..%lld of %lld", (long long)first,
                              (long long)ph->from, (long long)size_sub(size_add(ph->from, ph->n), 1),
                              (long long)s->steps);
        for (int k = 0; k < ph->nstage; k++) {
            stmts += ph->stage[k].slice->stmts.n;
            TRY(check_stage(s, &ph->stage[k], follows, ready));
        }
        const int expected = follows ? s->loops->stmts.n - s->nstep : s->nstep;
        if (stmts != expected)
            return plan_wrong(s->p, s->u, "scan: phase %d: expected %d statements, got %d", i, expected, stmts);
        done = size_add(done, follows ? 0 : ph->n);
    }
    if (done != s->steps)
        return plan_wrong(s->p, s->u, "scan: expected %lld steps, got %lld", (long long)s->steps, (long long)done);
    return SOL_OK;
}

/* What lies in scratch memory: behind that of the kernels, inside, and apart from each other. Of sizes that vary, the
 * hints are looked at. */
static sol_status check_scratch(const struct scan *s)
{
    const int64_t all = size_hint(s->u->kernel.scratch_bytes);
    int64_t kernels = 0;
    for (int i = 0; i < s->nphase; i++)
        for (int k = 0; k < s->phase[i].nstage; k++) {
            const struct kernel *kernel = &s->phase[i].stage[k].choice->kernel;
            int64_t bytes = kernel_lines(size_hint(kernel->scratch_bytes));
            for (int w = 0; w < kernel->nwork; w++) bytes += kernel_lines(size_hint(kernel->work_bytes[w]));
            kernels = MAX(kernels, bytes);
        }
    for (int t = 0; t < s->loops->tensors.n; t++) {
        const struct scan_state *a = &s->state[t];
        const int64_t at = size_hint(a->offset), end = at + a->rows * size_hint(a->row_bytes);
        if (!a->scratch) continue;
        if (at < kernels || end > all)
            return plan_wrong(s->p, s->u,
                              "scan: %s: expected to lie in bytes %lld..%lld of the scratch memory, got %lld..%lld",
                              s->loops->tensors.at[t].name, (long long)kernels, (long long)all - 1, (long long)at,
                              (long long)end - 1);
        for (int k = 0; k < t; k++) {
            const struct scan_state *b = &s->state[k];
            const int64_t other = size_hint(b->offset);
            if (b->scratch && other < end && at < other + b->rows * size_hint(b->row_bytes))
                return plan_wrong(s->p, s->u, "scan: %s and %s overlap in scratch memory", s->loops->tensors.at[k].name,
                                  s->loops->tensors.at[t].name);
        }
    }
    return SOL_OK;
}

/* Bands whose sizes vary are checked at some sizes of the dimensions. */
static sol_status check_bands(struct plan *p, struct arena *scratch)
{
    int64_t dim[SIZE_MOST_DIMS];
    struct chain c;
    for (int i = 0; i < p->bands.n && !p->g->dims.n; i++) TRY(check_band(p, p->bands.at[i], scratch));
    for (int k = 0; k < VERIFY_SIZES && p->g->dims.n && p->bands.n; k++) {
        verify_dims(p->g, k, dim);
        struct plan at = verify_plan_at(p, dim, scratch);
        for (int i = 0; i < p->bands.n; i++)
            if (verify_chain_at(scratch, p->bands.at[i], dim, &c)) TRY(check_band(&at, &c, scratch));
    }
    return SOL_OK;
}

sol_status verify_tiles(struct plan *p, struct arena *scratch)
{
    TRY(check_bands(p, scratch));
    for (int i = 0; i < p->scans.n; i++) {
        TRY(check_phases(p->scans.at[i], scratch));
        TRY(check_scratch(p->scans.at[i]));
        if (!loops_vary(p->scans.at[i]->loops)) TRY(verify_scan_tree(p->scans.at[i], scratch)); /* it counts bytes */
    }
    return SOL_OK;
}

/* -- what is kept for this */

void verify_keep_band(struct plan *p, const struct chain *c)
{
    struct chain *kept = arena_memdup(p->arena, c, sizeof *c);
    for (int i = 0; i < kept->n; i++) {
        struct stage *st = &kept->stage[i];
        const size_t n = (size_t)st->loops->tensors.n + 1;
        st->loops = loops_compact(p->arena, st->loops);
        st->slice = loops_compact(p->arena, st->slice);
        st->op = arena_memdup(p->arena, st->op, n * sizeof *st->op);
        if (st->image_op) st->image_op = arena_memdup(p->arena, st->image_op, n * sizeof *st->image_op);
        st->memory = arena_memdup(p->arena, st->memory, (size_t)st->slice->tensors.n * sizeof *st->memory);
    }
    PUSH(p->arena, p->bands, kept);
}

void verify_keep_scan(const struct scan *s)
{
    struct scan *kept = arena_memdup(s->p->arena, s, sizeof *s);
    kept->loops = loops_compact(s->p->arena, s->loops);
    PUSH(s->p->arena, s->p->scans, kept);
}
