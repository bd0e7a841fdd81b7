/* Recurrences: the steps of a unit that scans along an index variable become consecutive calls of kernels.
 *
 *   a[T N G H] = g[T N G H] + sum[K] y[T-1 N K]:h0[N K] * u[G*#H+H K]      a stage: a contraction of one step
 *   s[T N H] = ..; y[T N H] = ..                                          a stage: element by element
 *
 * A stage is statements sliced along the index variable (slice.c): a cluster of its own, for which any solver emits a
 * kernel. What another step wrote is an ordinary operand. Steps at the borders, where a read leaves its tensor, are
 * split off from those in between, so that all indices are affine. A tensor that only the steps see lies in scratch
 * memory, with room for one step. An index variable whose values are independent in all steps, such as the batch, is
 * split into blocks, which are the tasks; or a team computes each stage together (tree.h). Where the number of steps
 * varies and may be 1, or less than that of the borders, other versions of the unit serve those few steps (versions.c).
 */
#include "plan/scan.h"

#include <string.h>

#include "print/print.h"

#define CALL 30.0  /* ns of a call */
#define MEET 400.0 /* ns until all workers of a team have met */
#define FEWER 0.95 /* blocks are worth it if they take so much less time */

/* -- what the steps are */

/* The dimension in which a statement writes the step's index; -1: none. */
static int step_dim(const struct loops *loops, const struct loops_stmt *s)
{
    int d = 0;
    for (int32_t i = s->index; i; i = loops->ex.at[i].next, d++)
        if (loops->ex.at[i].kind == EX_IVAR && loops->ex.at[i].tensor == s->scan_ivar) return d;
    return -1;
}

struct reads { /* of what the steps write */
    struct scan *s;
    int stmt;
    bool ok;
};

/* Steps may read earlier ones, at a fixed distance. */
static void see_read(void *user, int32_t node)
{
    struct reads *r = user;
    struct scan *s = r->s;
    const struct ex *e = &s->loops->ex.at[node];
    if (e->kind != EX_READ || s->state[e->tensor].dim < 0) return;
    struct scan_state *state = &s->state[e->tensor];
    const int32_t at = ex_nth(s->loops, e->a, state->dim);
    struct affine f;
    r->ok &= ex_affine(s->loops, at, &f);
    if (!r->ok) return;
    if (r->stmt >= s->nstep) { /* behind the last step: of that one only */
        state->carried = true;
        r->ok &= f.n == 0 && f.c == (s->by > 0 ? size_sub(s->steps, 1) : 0);
        return;
    }
    r->ok &= f.n == 1 && f.ivar[0] == s->ivar && f.coef[0] == 1 && !size_varies(f.c) && f.c * s->by <= 0;
    if (!f.c) return;
    state->carried = true;
    state->rows = MAX(state->rows, 1 + (f.c < 0 ? -f.c : f.c));
}

static bool find_steps(struct scan *s)
{
    const struct loops *loops = s->loops;
    const struct loops_stmt *first = &loops->stmts.at[0];
    bool product = false;
    if (!first->scan_step || first->scan_step < -1 || first->scan_step > 1) return false;
    s->nstep = groups_scan(loops, 0);
    s->ivar = first->scan_ivar;
    s->by = first->scan_step;
    s->steps = loops->ivars.at[s->ivar].size;
    s->cluster = NEW_ARRAY(s->p->arena, int, loops->stmts.n + 1);
    s->state = NEW_ARRAY(s->p->arena, struct scan_state, loops->tensors.n + 1);
    for (int t = 0; t < loops->tensors.n; t++) s->state[t] = (struct scan_state){.dim = -1, .rows = 1};
    for (int i = 0; i < loops->stmts.n; i++) {
        const struct loops_stmt *st = &loops->stmts.at[i];
        const bool deep = i < s->nstep && plan_is_product(loops, st->value);
        product |= deep;
        if (i) s->cluster[i] = s->cluster[i - 1] + (deep || i == s->nstep || plan_is_product(loops, st[-1].value));
        if (st->nout != 1 || (i >= s->nstep && st->scan_step)) return false;
        if (i >= s->nstep) continue;
        struct scan_state *state = &s->state[st->out[0]];
        if (state->dim >= 0) return false; /* written in parts */
        state->dim = step_dim(loops, st);
        if (state->dim < 0) return false;
    }
    struct reads r = {.s = s, .ok = product};
    for (r.stmt = 0; r.stmt < loops->stmts.n; r.stmt++) ex_walk(loops, loops->stmts.at[r.stmt].value, see_read, &r);
    return r.ok;
}

/* -- the loops of a phase, and of a stage */

struct phase_reads {
    struct scan *s;
    struct loops *to;
    bool follows;
};

static int add_tensor(struct scan *s, struct loops *to, int tensor, int64_t shift)
{
    const struct loops_tensor *t = &s->loops->tensors.at[tensor];
    for (int i = 0; i < to->tensors.n; i++) {
        const struct scan_tensor *at = to->tensors.at[i].user;
        if (at->tensor == tensor && at->shift == shift) return i;
    }
    struct scan_tensor *place = NEW(s->p->arena, struct scan_tensor);
    *place = (struct scan_tensor){tensor, shift};
    struct loops_tensor moved = *t;
    moved.user = place;
    if (!shift) return loops_tensor_like(to, &moved);
    moved.name = arena_printf(s->p->arena, "%s_before", t->name);
    moved.role = LOOPS_INPUT;
    return loops_tensor_like(to, &moved);
}

/* What another step wrote is a tensor of its own. */
static int32_t phase_read(void *user, struct loops *to, const struct ex *read, const int32_t *index, int nindex,
                          int32_t outside)
{
    const struct phase_reads *r = user;
    const struct scan_state *state = &r->s->state[read->tensor];
    struct affine f;
    if (state->dim < 0 || r->follows || !ex_affine(r->s->loops, ex_nth(r->s->loops, read->a, state->dim), &f) || !f.c)
        return 0;
    return ex_read(to, add_tensor(r->s, to, read->tensor, f.c), ex_list(to, nindex, index), outside);
}

/* Slices statements first .. last - 1 for n steps from `from` on. The index variable then counts from there, or is
 * gone. */
static struct loops *phase_loops(struct scan *s, int64_t from, int64_t n, int first, int last)
{
    struct loops *to = loops_create(s->p->arena, s->loops->name);
    int32_t ivar[LOOPS_MAX_IVARS];
    int *tensor = NEW_ARRAY(s->p->arena, int, s->loops->tensors.n + 1);
    for (int i = 0; i < s->loops->ivars.n; i++) {
        const struct loops_ivar *x = &s->loops->ivars.at[i];
        ivar[i] = ex_ivar(to, loops_ivar(to, x->name, i == s->ivar && n > 1 ? n : x->size));
        if (i == s->ivar && first < s->nstep)
            ivar[i] = n > 1 ? ex_binary(to, EX_ADD, ivar[i], ex_int(to, from)) : ex_int(to, from);
    }
    for (int t = 0; t < s->loops->tensors.n; t++) tensor[t] = add_tensor(s, to, t, 0);
    struct phase_reads reads = {s, to, first >= s->nstep};
    const struct rewrite r = {
        .to = to, .from = s->loops, .ivar = ivar, .tensor = tensor, .read = phase_read, .user = &reads};
    for (int i = first; i < last; i++) {
        struct loops_stmt st = s->loops->stmts.at[i];
        st.out[0] = (uint16_t)tensor[st.out[0]];
        st.index = rewrite_list(&r, st.index);
        st.value = rewrite_ex(&r, st.value);
        st.scan_step = 0;
        loops_stmt(to, st);
    }
    return to;
}

/* Statements first .. last - 1 of a phase. What they write is a temporary if nothing else reads it. */
static struct loops *stage_loops(struct scan *s, const struct loops *phase, int first, int last)
{
    struct loops *to = loops_copy_with(s->p->arena, phase, last - first, &phase->stmts.at[first]);
    for (int t = 0; t < to->tensors.n; t++)
        if (to->tensors.at[t].role != LOOPS_TABLE) loops_set_role(to, t, LOOPS_INPUT);
    for (int i = first; i < last; i++) {
        const int t = phase->stmts.at[i].out[0], of = ((struct scan_tensor *)phase->tensors.at[t].user)->tensor;
        bool read = s->loops->tensors.at[of].role == LOOPS_OUTPUT || s->state[of].carried;
        for (int k = 0; k < phase->stmts.n && !read; k++)
            read = (k < first || k >= last) && rewrite_reads(phase, phase->stmts.at[k].value, t);
        loops_set_role(to, t, read ? LOOPS_OUTPUT : LOOPS_TEMP);
        s->state[of].scratch |= read && s->loops->tensors.at[of].role == LOOPS_TEMP;
    }
    return rewrite_sweep(to);
}

/* The memory of a tensor in scratch. The steps' dimension has no extent, because the pointer already names the step. */
static void lay_out_scratch(struct scan *s, int tensor)
{
    const struct loops_tensor *t = &s->loops->tensors.at[tensor];
    struct scan_state *state = &s->state[tensor];
    const struct loops_stmt *w = s->loops->stmts.at;
    while (w->out[0] != tensor) w++;
    int64_t stride = 1;
    state->memory = (struct memory){.align = 64};
    for (int d = t->ndim - 1; d >= 0; d--) {
        const struct ex *e = &s->loops->ex.at[ex_nth(s->loops, w->index, d)];
        if (d == state->dim) continue;
        state->memory.stride[d] = stride;
        stride = size_mul(stride, e->kind == EX_IVAR && e->tensor == s->batch ? s->block : t->shape[d]);
    }
    state->row_bytes = kernel_lines(size_mul(stride, dtype_def(t->dtype)->bytes));
}

static struct memory *stage_memory(struct scan *s, const struct loops *loops)
{
    struct memory *m = NEW_ARRAY(s->p->arena, struct memory, loops->tensors.n + 1);
    for (int t = 0; t < loops->tensors.n; t++) {
        const int of = ((struct scan_tensor *)loops->tensors.at[t].user)->tensor;
        struct scan_state *state = &s->state[of];
        if (s->loops->tensors.at[of].role == LOOPS_TEMP && loops->tensors.at[t].role != LOOPS_TEMP)
            lay_out_scratch(s, of);
        m[t] = state->scratch ? state->memory : s->u->memory[of];
        if (state->dim >= 0) m[t].constant = false;
    }
    return m;
}

static int ivar_named(const struct loops *loops, const char *name)
{
    for (int i = 0; i < loops->ivars.n; i++)
        if (!strcmp(loops->ivars.at[i].name, name)) return i;
    return -1;
}

/* Slices a stage: one block of the batch, then one step. False: it cannot be sliced. */
static bool slice_stage(struct scan *s, struct scan_stage *st, const struct loops *loops, bool steps)
{
    struct arena *a = s->p->arena;
    st->full_memory = st->memory = stage_memory(s, loops);
    for (int k = 1; k >= 0; k--) { /* 1: blocks, 0: steps */
        if (k ? s->blocks < 2 : !steps) continue;
        int ivar = ivar_named(loops, s->loops->ivars.at[k ? s->batch : s->ivar].name);
        if (ivar < 0) return false;
        if (k && s->block > 1) loops = loops_split(a, loops, ivar, s->block, &ivar);
        struct slice one = {.of = loops, .of_memory = st->memory, .ivar = ivar, .ring = -1};
        if (!loops_slice(a, &one)) return false;
        loops = one.loops;
        for (int t = 0; t < loops->tensors.n; t++) /* what is packed once would be packed for the first */
            if (one.op[t].coef) one.memory[t].constant = false;
        st->op[k] = one.op;
        st->memory = one.memory;
    }
    st->slice = loops;
    return true;
}

/* -- phases */

/* The ns of a call of a stage. Its cost is that of one core; in a team, the worker with most of its tasks counts. */
static double call_cost(const struct scan *s, const struct kernel *k)
{
    const int cores = s->p->target->cores;
    const double cost = MAX(k->cost - KERNEL_STEP_NS, 0) + CALL;
    int64_t tasks = 1;
    if (!s->team) return cost;
    for (int i = 0; i < k->nstep; i++) tasks = MAX(tasks, size_hint(k->step[i].tasks));
    return cost * (double)((tasks + cores - 1) / cores) / (double)tasks + MEET * k->nstep;
}

/* n steps from `from` on, or the statements behind them. *out_ok false: they cannot be sliced. */
static sol_status add_phase(struct scan *s, int64_t from, int64_t n, bool follows, bool *out_ok)
{
    const int first = follows ? s->nstep : 0, all = (follows ? s->loops->stmts.n : s->nstep) - first;
    struct loops *phase = phase_loops(s, from, n, first, first + all);
    struct scan_phase *ph = &s->phase[s->nphase++];
    *ph = (struct scan_phase){from, n, 0, NEW_ARRAY(s->p->arena, struct scan_stage, all + 1)};
    for (int i = 0, k; i < all && *out_ok; i = k) {
        for (k = i + 1; k < all && s->cluster[first + k] == s->cluster[first + i]; k++) {
        }
        struct scan_stage *st = &ph->stage[ph->nstage++];
        *out_ok = slice_stage(s, st, stage_loops(s, phase, i, k), n > 1);
        if (!*out_ok) return SOL_OK;
        struct unit u = *s->u;
        u.repeats = MAX(size_hint(n), 1) * s->blocks;
        TRY(choose_kernel(s->p, st->slice, st->memory, 0, &u, &st->choice));
        s->cost += (double)size_hint(n) * call_cost(s, &st->choice->kernel);
    }
    return SOL_OK;
}

/* All phases, with the given numbers of steps at the lower and at the upper end separated. */
static sol_status add_phases(struct scan *s, int64_t low, int64_t high, bool *out_ok)
{
    s->nphase = 0;
    s->cost = 0;
    *out_ok = true;
    const int64_t between = size_sub(s->steps, low + high), last = size_sub(s->steps, 1);
    const int64_t first = s->by > 0 ? low : high; /* how many run ahead of those between the borders */
    for (int64_t i = 0; i <= low + high && *out_ok; i++) {
        const bool border = i != first;
        if (!border && !between) continue;
        /* the lower end, then those between, then the upper end, or in the opposite direction */
        const int64_t from = s->by > 0  ? (i <= low ? i : size_add(between, i - 1))
                             : i < high ? size_sub(last, i)
                             : border   ? low + high - i
                                        : low;
        TRY(add_phase(s, from, border ? 1 : between, false, out_ok));
    }
    if (*out_ok && s->loops->stmts.n > s->nstep) TRY(add_phase(s, s->by > 0 ? last : 0, 1, true, out_ok));
    return SOL_OK;
}

static sol_status slice_steps(struct scan *s, bool *out_ok)
{
    static const int8_t borders[][2] = {{0, 0}, {1, 0}, {0, 1}, {1, 1}, {2, 0}, {0, 2}, {2, 2}};
    *out_ok = false;
    s->block = s->batch < 0 ? 1 : size_floor_div(s->loops->ivars.at[s->batch].size, s->blocks);
    for (int i = 0; i < COUNT_OF(borders) && !*out_ok; i++) {
        const int apart = borders[i][0] + borders[i][1];
        for (int t = 0; t < s->loops->tensors.n; t++) s->state[t].scratch = false;
        s->fewest = size_le(apart, s->steps) ? 0 : apart;
        if (size_le(s->steps, s->fewest - 1)) continue;
        TRY(add_phases(s, borders[i][0], borders[i][1], out_ok));
    }
    const int cores = s->p->target->cores;
    s->cost = KERNEL_STEP_NS + s->cost * (double)((s->blocks + cores - 1) / cores);
    return SOL_OK;
}

/* The largest index variable whose values are independent of each other; -1: there is none. */
static int find_batch(const struct scan *s)
{
    const uint64_t shared = groups_shared(s->loops, 0, s->loops->stmts.n - 1);
    int best = -1;
    for (int i = 0; i < s->loops->ivars.n; i++)
        if (shared >> i & 1 &&
            (best < 0 || size_hint(s->loops->ivars.at[i].size) > size_hint(s->loops->ivars.at[best].size)))
            best = i;
    return best;
}

/* Has a stage more than one task, so that a team can share it? */
static bool is_shared(const struct scan *s)
{
    bool shared = false;
    for (int i = 0; i < s->nphase; i++)
        for (int k = 0; k < s->phase[i].nstage; k++) {
            const struct kernel *member = &s->phase[i].stage[k].choice->kernel;
            for (int m = 0; m < member->nstep; m++) shared |= member->step[m].tasks != 1;
        }
    return shared;
}

/* Splits the work for the cores, if that pays: the steps for a team, or the batch into tasks. */
static sol_status choose_ways(struct scan *s, bool always, bool *out_ok)
{
    struct scan best;
    *out_ok = false;
    s->batch = find_batch(s);
    const int64_t size = s->batch < 0 ? 1 : s->loops->ivars.at[s->batch].size;
    const int64_t most = size_varies(size) ? 1 : MIN(size, s->p->target->cores); /* blocks have a known size */
    for (int64_t way = 0; way <= most; way++) { /* one task, a team, then a task for each of 2, 3, .. blocks */
        s->team = way == 1;
        s->blocks = MAX(way, 1);
        if (s->team && s->p->target->cores == 1) continue;
        struct scan_state *state = NEW_ARRAY(s->p->arena, struct scan_state, s->loops->tensors.n + 1);
        bool ok = true;
        if (s->blocks > 1 && size % s->blocks) continue;
        memcpy(state, s->state, (size_t)s->loops->tensors.n * sizeof *state);
        s->state = state;
        TRY(slice_steps(s, &ok));
        if (!ok || (s->team && !is_shared(s)) || (*out_ok && !always && s->cost > FEWER * best.cost)) continue;
        best = *s;
        *out_ok = true;
    }
    if (*out_ok) *s = best;
    return SOL_OK;
}

static sol_status slice_unit(struct plan *p, int at)
{
    struct unit *u = p->units.at[at];
    struct scan s = {.p = p, .u = u, .loops = u->loops};
    bool ok = false;
    unit_memory(p, u);
    if (!find_steps(&s)) return SOL_OK;
    TRY(choose_ways(&s, !strcmp(ctx_config(p->ctx, "bands"), "always"), &ok));
    if (!ok) return SOL_OK;
    const struct unit whole = *u;
    TRY(scan_kernel(&s, &ok));
    if (ok && size_varies(s.steps)) plan_serve_below(p, at, &whole, s.steps, s.fewest);
    return SOL_OK;
}

sol_status plan_scan(struct plan *p)
{
    const bool trees = target_has_trees(p->target) && strcmp(ctx_config(p->ctx, "bands"), "off");
    for (int i = 0; i < p->units.n && trees; i++) {
        struct unit *u = p->units.at[i];
        if (!u->dead && !u->opaque && !u->when && u->contraction && u->loops->stmts.at[0].scan_step)
            TRY(slice_unit(p, i));
    }
    return ctx_check(p->ctx);
}
