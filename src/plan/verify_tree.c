/* Do the call trees of bands and scans do what their loops say? The verifier runs a tree on a model of memory, which
 * knows the rows that each ring holds and the tensors that lie in scratch memory. The bytes that a call reaches in an
 * operand are compared with those that the unit's own loops reach in the same round. */
#include "plan/verify.h"

#include <string.h>

#include "print/tree.h"

#define N(v) ((long long)(v))

/* -- what calls must do */

struct use { /* an operand of a call */
    const char *name;
    const struct sol_tensor *tensor; /* of the graph; NULL: a work buffer */
    bool written;
    int align;
    int64_t packed;          /* bytes of what is packed for one round; 0: it is not packed */
    bool moves;              /* each round reads other packed bytes */
    struct span all, inside; /* from the operand's address on: what its indices say, and what is in memory */
    struct view in_unit;     /* the same accesses in the unit's loops */
    int of;                  /* scans: the tensor of the unit's loops, and how many steps later than the current one */
    int64_t shift;
};
struct job {
    const char *label;
    const struct kernel *kernel;
    int64_t step, low, high; /* bands: the rows that round r reads: step * r + low .. step * r + high */
    int nuse;
    struct use *use;
};
struct piece { /* of scratch memory: what it holds; of -1: nothing that a step wrote */
    struct span at;
    int of;
    int64_t step;
    int call; /* the last one that used it */
};
struct model {
    struct plan *p;
    const struct unit *u;
    const struct tree *t;
    const struct scan *s; /* NULL: a band */
    struct arena *scratch;
    struct job **job;     /* by loop, then by ring: those of its calls */
    int64_t others;       /* images of a band, tasks of a scan */
    int64_t *from, *next; /* by ring: it holds rows from .. next - 1 */
    VECTOR(struct piece) pieces;
    bool *written; /* scans, by tensor and step */
    int ncall;     /* that ran */
};

static struct job new_job(struct model *m, const char *label, const struct kernel *k, const struct loops *sub)
{
    return (struct job){.label = label,
                        .kernel = k,
                        .use = NEW_ARRAY(m->scratch, struct use, sub->tensors.n + COUNT_OF(k->work_bytes))};
}

/* Adds the operand that is tensor t of the stage's loops. The caller adds the rest. */
static struct use *add_use(struct job *j, const struct loops *sub, const struct memory *memory, int t)
{
    struct use *use = &j->use[j->nuse++];
    struct view part = {.loops = sub, .last = sub->stmts.n, .tensor = t, .memory = memory, .ivar = {-1, -1}, .dim = -1};
    *use = (struct use){.name = sub->tensors.at[t].name,
                        .written = sub->tensors.at[t].role == LOOPS_OUTPUT,
                        .align = memory->align,
                        .all = verify_bytes(&part),
                        .of = -1};
    part.inside = true;
    use->inside = verify_bytes(&part);
    for (int i = 0; i < j->kernel->npack; i++) {
        const struct loops_tensor *to = &j->kernel->pack[i].loops->tensors.at[1];
        if (j->kernel->pack[i].tensor == t) use->packed = dtype_def(to->dtype)->bytes * loops_elements(to);
    }
    return use;
}

static bool is_operand(const struct loops *loops, int t)
{
    return loops->tensors.at[t].role == LOOPS_INPUT || loops->tensors.at[t].role == LOOPS_OUTPUT;
}

static struct job band_job(struct model *m, const struct stage *st)
{
    struct job j = new_job(m, st->u->label, &st->choice->kernel, st->slice);
    j.step = st->step, j.low = st->low, j.high = st->high;
    for (int t = 0; t < st->slice->tensors.n; t++) {
        if (!is_operand(st->slice, t)) continue;
        struct use *use = add_use(&j, st->slice, &st->memory[t], t);
        use->tensor = st->loops->tensors.at[t].user;
        use->moves = st->op[t].coef != 0;
        use->in_unit = (struct view){.loops = st->loops,
                                     .last = st->loops->stmts.n,
                                     .tensor = t,
                                     .memory = &plan_allocation(m->p, use->tensor)->memory,
                                     .ivar = {st->ivar, st->image},
                                     .block = {1, 1},
                                     .dim = -1};
    }
    return j;
}

/* Stage st of a scan, whose statements begin with number `first` of the unit's. */
static struct job scan_job(struct model *m, const struct scan_stage *st, int first)
{
    const struct scan *s = m->s;
    const bool follows = first >= s->nstep;
    struct job j = new_job(m, s->u->label, &st->choice->kernel, st->slice);
    for (int t = 0; t < st->slice->tensors.n; t++) {
        const struct scan_tensor *at = st->slice->tensors.at[t].user;
        if (!is_operand(st->slice, t)) continue;
        struct use *use = add_use(&j, st->slice, &st->memory[t], t);
        use->tensor = s->loops->tensors.at[at->tensor].user;
        use->of = at->tensor;
        use->shift = at->shift;
        use->in_unit = (struct view){.loops = s->loops,
                                     .first = first,
                                     .last = first + st->slice->stmts.n,
                                     .tensor = at->tensor,
                                     .ivar = {follows ? -1 : s->ivar, s->blocks > 1 ? s->batch : -1},
                                     .block = {1, s->block},
                                     .dim = follows ? -1 : s->state[at->tensor].dim,
                                     .shift = at->shift};
        if (use->tensor) use->in_unit.memory = &plan_allocation(m->p, use->tensor)->memory;
    }
    for (int w = 0; w < j.kernel->nwork; w++)
        j.use[j.nuse++] = (struct use){
            .name = "a work buffer", .written = true, .of = -1, .align = 64, .inside = {0, j.kernel->work_bytes[w]}};
    return j;
}

/* -- operands in memory */

/* The tensor of the unit's loops that operand `index` of its kernel is; -1: there is none. */
static int operand_tensor(const struct unit *u, int index)
{
    for (int t = 0; t < u->loops->tensors.n; t++)
        if (is_operand(u->loops, t) && index-- == 0) return t;
    return -1;
}

static const struct kernel_pack *pack_of(const struct unit *u, int tensor)
{
    for (int i = 0; i < u->kernel.npack; i++)
        if (u->kernel.pack[i].tensor == tensor) return &u->kernel.pack[i];
    return NULL;
}

/* The bytes that an operand has, from its address on. */
static struct span buffer_of(const struct model *m, int tensor)
{
    const struct loops_tensor *t = &m->u->loops->tensors.at[tensor];
    const int bytes = dtype_def(t->dtype)->bytes;
    const struct kernel_pack *pack = pack_of(m->u, tensor);
    if (pack) {
        const struct loops_tensor *to = &pack->loops->tensors.at[1];
        return (struct span){0, dtype_def(to->dtype)->bytes * loops_elements(to)};
    }
    const struct allocation *s = plan_allocation(m->p, t->user), *root = plan_allocation(m->p, s->root);
    return (struct span){-s->origin * bytes, (root->elements - s->origin) * bytes};
}

/* Where an operand is in a round of an image or task. */
static sol_status check_place(const struct model *m, const struct job *j, const struct use *use,
                              const struct tree_address *a, int64_t round, int64_t other)
{
    const int64_t at = a->plus + a->by[TREE_ROUND] * round + a->by[m->s ? TREE_TASK : TREE_IMAGE] * other;
    const struct span has = buffer_of(m, operand_tensor(m->u, a->index));
    struct span is = {at + use->all.low, at + use->all.high}, in = {at + use->inside.low, at + use->inside.high};
    struct span want;
    if (use->packed) {
        const int64_t begin = use->moves ? round * use->packed : 0;
        want = (struct span){begin, begin + use->packed};
        is = in = (struct span){at, at + use->packed};
    } else {
        struct view whole = use->in_unit;
        whole.value[0] = round;
        whole.value[1] = other;
        want = verify_bytes(&whole);
    }
    if (is.low == is.high) return SOL_OK; /* it is empty */
    if (is.low < want.low || is.high > want.high)
        return plan_wrong(m->p, m->u, "tree: '%s', %s in round %lld: expected bytes %lld..%lld, got %lld..%lld",
                          j->label, use->name, N(round), N(want.low), N(want.high - 1), N(is.low), N(is.high - 1));
    if (in.low < has.low || in.high > has.high)
        return plan_wrong(m->p, m->u,
                          "tree: '%s', %s in round %lld: bytes %lld..%lld are outside of its memory, %lld..%lld",
                          j->label, use->name, N(round), N(in.low), N(in.high - 1), N(has.low), N(has.high - 1));
    return SOL_OK;
}

static sol_status check_align(const struct model *m, const struct job *j, const struct use *use,
                              const struct tree_address *a)
{
    int64_t rest = a->plus % use->align | a->row_bytes % use->align;
    for (int i = 0; i < TREE_COUNTERS; i++) rest |= a->by[i] % use->align;
    if (a->base == TREE_RING) rest |= m->t->ring[a->index].scratch % use->align;
    return rest ? plan_wrong(m->p, m->u, "tree: '%s', %s: expected an address aligned to %d", j->label, use->name,
                             use->align)
                : SOL_OK;
}

/* An operand in the first and in the last of n rounds, which stand for all: addresses are affine. */
static sol_status check_operand(const struct model *m, const struct job *j, const struct use *use,
                                const struct tree_address *a, const struct span *rounds)
{
    const int tensor = operand_tensor(m->u, a->index);
    if (tensor < 0 || !use->tensor || m->u->loops->tensors.at[tensor].user != use->tensor ||
        !pack_of(m->u, tensor) != !use->packed)
        return plan_wrong(m->p, m->u, "tree: '%s', %s: expected its operand%s, got operand %d", j->label, use->name,
                          use->packed ? ", packed" : "", a->index);
    if (a->row_bytes || a->by[m->s ? TREE_IMAGE : TREE_TASK])
        return plan_wrong(m->p, m->u, "tree: '%s', %s: expected an address by %s, got one by rows or others", j->label,
                          use->name, m->s ? "step and task" : "row and image");
    for (int i = 0; i < 4 && m->others && rounds->high > rounds->low; i++)
        TRY(check_place(m, j, use, a, i & 1 ? rounds->high - 1 : rounds->low, i & 2 ? m->others - 1 : 0));
    return SOL_OK;
}

/* Operands in rings and in scratch memory are seen when the tree runs. */
static sol_status check_call(const struct model *m, const struct job *j, const struct tree_call *c, int ring,
                             const struct span *rounds)
{
    if (c->member < 0 || c->member >= m->t->nmember || strcmp(m->t->member[c->member]->source, j->kernel->source) != 0)
        return plan_wrong(m->p, m->u, "tree: '%s': expected a call of its kernel, got member %d", j->label, c->member);
    if (c->noperand != j->nuse)
        return plan_wrong(m->p, m->u, "tree: '%s': expected %d operands, got %d", j->label, j->nuse, c->noperand);
    for (int i = 0; i < c->noperand; i++) {
        const struct tree_address *a = &c->operand[i];
        const struct use *use = &j->use[i];
        if (a->base == TREE_RING && a->index != (use->written ? ring : ring - 1))
            return plan_wrong(m->p, m->u, "tree: '%s', %s: expected ring %d, got %d", j->label, use->name,
                              use->written ? ring : ring - 1, a->index);
        if (a->base == TREE_OPERAND) TRY(check_operand(m, j, use, a, rounds));
        if (!use->packed) TRY(check_align(m, j, use, a));
    }
    return SOL_OK;
}

/* -- running bands */

static sol_status run_body(struct model *m, const struct tree_body *b, const struct job *j, int64_t round);

/* A ring is asked for rows first .. last: it makes those that it does not have. */
static sol_status ask(struct model *m, int i, int64_t first, int64_t last)
{
    const struct tree_ring *r = &m->t->ring[i];
    if (m->next[i] < first) m->from[i] = m->next[i] = first;
    for (; m->next[i] <= last; m->next[i]++) {
        const int64_t row = m->next[i];
        const bool outside = row < 0 || row >= r->rows;
        if (r->stored && outside)
            return plan_wrong(m->p, m->u, "tree: ring %d: expected rows 0..%lld, which are stored, got row %lld", i,
                              N(r->rows - 1), N(row));
        if (!r->stored && row - m->from[i] == r->room) {
            if (first <= m->from[i])
                return plan_wrong(m->p, m->u, "tree: ring %d: expected room for rows %lld..%lld, it has %lld", i,
                                  N(first), N(last), N(r->room));
            m->from[i] = first;
        }
        if (!outside) TRY(run_body(m, &r->body, m->job[m->t->nloop + i], row));
    }
    return SOL_OK;
}

static sol_status run_in_ring(const struct model *m, const struct job *j, const struct use *use,
                              const struct tree_address *a, int64_t round)
{
    const struct tree_ring *r = &m->t->ring[a->index];
    const int64_t row = a->row.by * round + a->row.plus;
    const int64_t first = row + floor_div(a->plus + use->inside.low, r->row_bytes);
    const int64_t last = row + floor_div(a->plus + use->inside.high - 1, r->row_bytes);
    const int64_t low = use->written ? round : j->step * round + j->low;
    const int64_t high = use->written ? round : j->step * round + j->high;
    if (first < low || last > high || a->row_bytes != r->row_bytes)
        return plan_wrong(m->p, m->u,
                          "tree: '%s', %s in round %lld: expected rows %lld..%lld of ring %d, got %lld..%lld", j->label,
                          use->name, N(round), N(low), N(high), a->index, N(first), N(last));
    if (!use->written && (first < m->from[a->index] || last >= m->next[a->index]))
        return plan_wrong(m->p, m->u,
                          "tree: '%s' reads rows %lld..%lld of ring %d in round %lld, which holds %lld..%lld", j->label,
                          N(first), N(last), a->index, N(round), N(m->from[a->index]), N(m->next[a->index] - 1));
    return SOL_OK;
}

/* -- running scans */

static bool overlap(const struct span *a, const struct span *b)
{
    return a->low < b->high && b->low < a->high;
}

static sol_status put_piece(struct model *m, const struct job *j, const char *name, const struct piece *new)
{
    int n = 0;
    if (new->at.low < 0 || new->at.high > m->u->kernel.scratch_bytes)
        return plan_wrong(m->p, m->u,
                          "tree: '%s', %s: bytes %lld..%lld are outside of the scratch memory of %lld bytes", j->label,
                          name, N(new->at.low), N(new->at.high - 1), N(m->u->kernel.scratch_bytes));
    for (int i = 0; i < m->pieces.n; i++) {
        const struct piece *old = &m->pieces.at[i];
        if (!overlap(&old->at, &new->at))
            m->pieces.at[n++] = *old;
        else if (old->call == new->call)
            return plan_wrong(m->p, m->u, "tree: '%s', %s: overlaps what the same call has in scratch memory", j->label,
                              name);
    }
    m->pieces.n = n;
    if (new->at.low < new->at.high) PUSH(m->scratch, m->pieces, *new);
    return SOL_OK;
}

/* Does scratch memory hold what step `step` wrote of a tensor there? The same call must not write it. */
static bool holds(struct model *m, const struct span *at, int of, int64_t step)
{
    for (int i = 0; i < m->pieces.n; i++) {
        struct piece *x = &m->pieces.at[i];
        if (x->of != of || x->step != step || x->at.low > at->low || x->at.high < at->high) continue;
        x->call = m->ncall;
        return true;
    }
    return false;
}

static sol_status run_in_scratch(struct model *m, const struct job *j, const struct use *use,
                                 const struct tree_address *a, int64_t round)
{
    const int64_t slot = a->row_bytes ? (round + a->row.plus) % MAX(a->row.wrap, 1) : 0;
    const int64_t at = a->plus + slot * a->row_bytes, step = round + use->shift;
    const struct piece piece = {{at + use->inside.low, at + use->inside.high}, use->of, step, m->ncall};
    if (slot < 0 || (a->row_bytes && a->row.by != 1))
        return plan_wrong(m->p, m->u, "tree: '%s', %s in round %lld: expected one row of scratch memory for each step",
                          j->label, use->name, N(round));
    if (use->written) return put_piece(m, j, use->name, &piece);
    return holds(m, &piece.at, use->of, step)
               ? SOL_OK
               : plan_wrong(
                     m->p, m->u,
                     "tree: '%s' reads %s of step %lld in round %lld: expected it in bytes %lld..%lld of scratch "
                     "memory, which hold something else",
                     j->label, use->name, N(step), N(round), N(piece.at.low), N(piece.at.high - 1));
}

/* What steps write in operands: is it there when another step reads it? Steps outside of the tensor are its halo. */
static sol_status run_in_operand(struct model *m, const struct job *j, const struct use *use, int64_t round)
{
    if (!m->s || use->of < 0 || m->s->state[use->of].dim < 0) return SOL_OK;
    const int64_t step = round + use->shift;
    const int dim = m->s->state[use->of].dim;
    const struct memory *memory = use->in_unit.memory;
    const bool is_step = step >= 0 && step < m->s->steps;
    const bool halo = !is_step && step >= -memory->halo_low[dim] && step < m->s->steps + memory->halo_high[dim];
    bool *written = is_step ? &m->written[use->of * m->s->steps + step] : NULL;
    if (use->written ? !is_step : !halo && (!is_step || !*written))
        return plan_wrong(m->p, m->u, "tree: '%s', %s of step %lld in round %lld: expected it to be written before",
                          j->label, use->name, N(step), N(round));
    if (use->written) *written = true;
    return SOL_OK;
}

/* -- running */

static sol_status run_call(struct model *m, const struct tree_call *c, const struct job *j, int64_t round)
{
    m->ncall++;
    if (m->s) {
        const struct piece kernels = {{0, j->kernel->scratch_bytes}, -1, 0, m->ncall};
        TRY(put_piece(m, j, "its own memory", &kernels));
    }
    for (int writes = 0; writes < 2; writes++)
        for (int i = 0; i < c->noperand; i++) {
            const struct use *use = &j->use[i];
            if (use->written != (bool)writes) continue;
            switch (c->operand[i].base) {
            case TREE_RING: TRY(run_in_ring(m, j, use, &c->operand[i], round)); break;
            case TREE_SCRATCH: TRY(run_in_scratch(m, j, use, &c->operand[i], round)); break;
            case TREE_OPERAND: TRY(run_in_operand(m, j, use, round)); break;
            }
        }
    return SOL_OK;
}

static sol_status run_body(struct model *m, const struct tree_body *b, const struct job *j, int64_t round)
{
    if (b->need >= 0) TRY(ask(m, b->need, b->step * round + b->low, b->step * round + b->high));
    for (int i = 0; i < b->ncall; i++) TRY(run_call(m, &b->call[i], &j[i], round));
    return SOL_OK;
}

/* Rounds first .. of the loop, by a worker that has nothing in its rings. */
static sol_status run_from(struct model *m, int64_t first)
{
    const struct tree_loop *l = &m->t->loop[0];
    for (int i = 0; i < m->t->nring; i++) m->from[i] = m->next[i] = INT64_MIN / 4;
    for (int64_t round = first; round < l->n; round++) TRY(run_body(m, &l->body, m->job[0], round));
    return SOL_OK;
}

/* Rings lie in scratch memory behind that of the kernels, inside of it and apart from each other. */
static sol_status check_rings(struct model *m)
{
    int64_t end = 0;
    for (int i = 0; i < m->t->nmember; i++) end = MAX(end, m->t->member[i]->scratch_bytes);
    for (int i = 0; i < m->t->nring; i++) {
        const struct tree_ring *r = &m->t->ring[i];
        if (r->body.need >= i || (!r->stored && r->row_bytes <= 0))
            return plan_wrong(m->p, m->u, "tree: ring %d: expected rows of some bytes, made of rings in front of it",
                              i);
        if (r->stored) continue;
        if (r->scratch < end)
            return plan_wrong(m->p, m->u,
                              "tree: ring %d: expected to begin at byte %lld of scratch memory or behind it, "
                              "got %lld",
                              i, N(end), N(r->scratch));
        end = r->scratch + r->room * r->row_bytes;
    }
    return end <= m->u->kernel.scratch_bytes
               ? SOL_OK
               : plan_wrong(m->p, m->u, "tree: expected %lld bytes of scratch memory for its rings, got %lld", N(end),
                            N(m->u->kernel.scratch_bytes));
}

static sol_status check_tasks(const struct model *m)
{
    const struct kernel *k = &m->u->kernel;
    const int64_t tasks = m->t->per_task > 0 || !m->t->nring ? tree_tasks(m->t, m->others) : -1;
    if (k->nstep == 1 && k->step[0].tasks == tasks) return SOL_OK;
    return plan_wrong(m->p, m->u, "tree: expected one step of %lld tasks, got %d steps, the first of %lld", N(tasks),
                      k->nstep, N(k->step[0].tasks));
}

/* -- all */

sol_status verify_band_tree(struct plan *p, const struct unit *u, const struct chain *c, struct arena *scratch)
{
    const struct tree *t = u->kernel.tree;
    if (!t || t->nloop != 1 || t->nring != c->n - 1)
        return plan_wrong(p, u, "tree: expected one loop and %d rings, got %d and %d", c->n - 1, t ? t->nloop : 0,
                          t ? t->nring : 0);
    struct model m = {.p = p, .u = u, .t = t, .scratch = scratch, .others = c->images};
    struct job *all = NEW_ARRAY(scratch, struct job, c->n);
    m.job = NEW_ARRAY(scratch, struct job *, c->n);
    m.from = NEW_ARRAY(scratch, int64_t, c->n);
    m.next = NEW_ARRAY(scratch, int64_t, c->n);
    const int64_t rows = c->stage[c->n - 1].rows;
    if (t->loop[0].from || t->loop[0].n != rows || t->loop[0].down)
        return plan_wrong(p, u, "tree: expected a loop over rows 0..%lld, got %lld..%lld%s", N(rows - 1),
                          N(t->loop[0].from), N(t->loop[0].from + t->loop[0].n - 1), t->loop[0].down ? " down" : "");
    TRY(check_tasks(&m));
    TRY(check_rings(&m));
    for (int i = 0; i < c->n; i++) {
        const bool last = i == c->n - 1;
        const struct tree_body *b = last ? &t->loop[0].body : &t->ring[i].body;
        const struct span rounds = {0, last ? t->loop[0].n : t->ring[i].rows};
        all[i] = band_job(&m, &c->stage[i]);
        m.job[last ? 0 : i + 1] = &all[i];
        if (b->ncall != 1) return plan_wrong(p, u, "tree: '%s': expected one call, got %d", all[i].label, b->ncall);
        if (!last && rounds.high != c->stage[i].rows)
            return plan_wrong(p, u, "tree: ring %d: expected %lld rows, got %lld", i, N(c->stage[i].rows),
                              N(rounds.high));
        TRY(check_call(&m, &all[i], &b->call[0], i, &rounds));
    }
    TRY(run_from(&m, 0));
    return run_from(&m, (t->loop[0].n - 1) / t->per_task * t->per_task);
}

static sol_status check_steps(struct model *m)
{
    const struct scan *s = m->s;
    for (int i = 0; i < m->t->nloop; i++) {
        const struct tree_loop *l = &m->t->loop[i];
        for (int64_t k = 0; k < l->n; k++)
            TRY(run_body(m, &l->body, m->job[i], l->down ? l->from + l->n - 1 - k : l->from + k));
    }
    for (int t = 0; t < s->loops->tensors.n; t++)
        for (int64_t k = 0; k < s->steps && s->state[t].dim >= 0 && s->loops->tensors.at[t].role == LOOPS_OUTPUT; k++)
            if (!m->written[t * s->steps + k])
                return plan_wrong(m->p, m->u, "tree: expected %s to be written in step %lld",
                                  s->loops->tensors.at[t].name, N(k));
    return SOL_OK;
}

sol_status verify_scan_tree(const struct scan *s, struct arena *scratch)
{
    const struct tree *t = s->u->kernel.tree;
    if (!t || t->nring || t->nloop != s->nphase)
        return plan_wrong(s->p, s->u, "tree: expected %d loops and no rings, got %d and %d", s->nphase,
                          t ? t->nloop : 0, t ? t->nring : 0);
    struct model m = {.p = s->p, .u = s->u, .t = t, .s = s, .scratch = scratch, .others = s->blocks};
    m.job = NEW_ARRAY(scratch, struct job *, s->nphase);
    m.written = NEW_ARRAY(scratch, bool, s->loops->tensors.n * s->steps);
    TRY(check_tasks(&m));
    int64_t done = 0;
    for (int i = 0; i < s->nphase; i++) {
        const struct scan_phase *ph = &s->phase[i];
        const struct tree_body *b = &t->loop[i].body;
        const struct span rounds = {t->loop[i].from, t->loop[i].from + t->loop[i].n};
        if (rounds.low < 0 || rounds.low >= rounds.high || rounds.high > s->steps)
            return plan_wrong(s->p, s->u, "tree: loop %d: expected rounds in 0..%lld, got %lld..%lld", i,
                              N(s->steps - 1), N(rounds.low), N(rounds.high - 1));
        if (b->ncall != ph->nstage || b->need >= 0)
            return plan_wrong(s->p, s->u, "tree: loop %d: expected %d calls and no ring, got %d", i, ph->nstage,
                              b->ncall);
        m.job[i] = NEW_ARRAY(scratch, struct job, ph->nstage);
        for (int k = 0, first = done < s->steps ? 0 : s->nstep; k < ph->nstage; k++) {
            m.job[i][k] = scan_job(&m, &ph->stage[k], first);
            first += ph->stage[k].slice->stmts.n;
            TRY(check_call(&m, &m.job[i][k], &b->call[k], -1, &rounds));
        }
        done += ph->n;
    }
    return check_steps(&m);
}
