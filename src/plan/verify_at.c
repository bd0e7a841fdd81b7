/* Bands whose sizes vary are verified with numbers in place of the dimensions, so that the checks need no proofs: a
 * copy of the plan's memory and of a band with all that it has. */
#include "plan/verify.h"
#include "print/tree.h"

void verify_dims(const struct sol_graph *g, int which, int64_t *out_dim)
{
    for (int i = 0; i < g->dims.n; i++) {
        const struct size_dim *d = &g->dims.at[i].dim;
        const int64_t more = d->hint + (i + 1) * d->multiple, less = d->hint - (i + 1) * d->multiple;
        out_dim[i] = d->hint;
        if (which == 1) out_dim[i] = more <= d->max ? more : MAX(less, d->min);
        if (which == 2) out_dim[i] = MAX(d->min, d->multiple);
    }
}

static struct memory memory_at(const struct memory *m, const int64_t *dim)
{
    struct memory at = *m;
    for (int d = 0; d < SOL_MAX_DIMS; d++) at.stride[d] = size_at(m->stride[d], dim);
    return at;
}

struct plan verify_plan_at(const struct plan *p, const int64_t *dim, struct arena *a)
{
    struct plan at = *p;
    at.allocations = arena_memdup(a, p->allocations, (size_t)p->nallocations * sizeof *p->allocations);
    for (int i = 0; i < at.nallocations; i++) {
        struct allocation *s = &at.allocations[i];
        s->memory = memory_at(&s->memory, dim);
        s->elements = size_at(s->elements, dim);
        s->origin = size_at(s->origin, dim);
    }
    return at;
}

static struct tree_body body_at(struct arena *a, const struct tree_body *b, const int64_t *dim)
{
    struct tree_body at = *b;
    struct tree_call *call = arena_memdup(a, b->call, (size_t)b->ncall * sizeof *call);
    for (int i = 0; i < b->ncall; i++) {
        struct tree_address *operand =
            arena_memdup(a, call[i].operand, (size_t)call[i].noperand * sizeof *call[i].operand);
        for (int k = 0; k < call[i].noperand; k++) {
            for (int c = 0; c < TREE_COUNTERS; c++) operand[k].by[c] = size_at(operand[k].by[c], dim);
            operand[k].plus = size_at(operand[k].plus, dim);
            operand[k].row_bytes = size_at(operand[k].row_bytes, dim);
        }
        call[i].operand = operand;
    }
    at.call = call;
    return at;
}

static struct kernel kernel_at(struct arena *a, const struct kernel *k, const int64_t *dim);

static struct tree *tree_at(struct arena *a, const struct tree *t, const int64_t *dim)
{
    struct tree *at = arena_memdup(a, t, sizeof *t);
    struct tree_ring *ring = arena_memdup(a, t->ring, (size_t)t->nring * sizeof *ring);
    struct tree_loop *loop = arena_memdup(a, t->loop, (size_t)t->nloop * sizeof *loop);
    for (int i = 0; i < t->nmember; i++) {
        struct kernel *member = NEW(a, struct kernel);
        *member = kernel_at(a, t->member[i], dim);
        at->member[i] = member;
    }
    for (int i = 0; i < t->nring; i++) {
        ring[i].body = body_at(a, &ring[i].body, dim);
        ring[i].rows = size_at(ring[i].rows, dim);
        ring[i].row_bytes = size_at(ring[i].row_bytes, dim);
        ring[i].scratch = size_at(ring[i].scratch, dim);
    }
    for (int i = 0; i < t->nloop; i++) {
        loop[i].body = body_at(a, &loop[i].body, dim);
        loop[i].from = size_at(loop[i].from, dim);
        loop[i].n = size_at(loop[i].n, dim);
    }
    at->ring = ring;
    at->loop = loop;
    return at;
}

static struct kernel kernel_at(struct arena *a, const struct kernel *k, const int64_t *dim)
{
    struct kernel at = *k;
    for (int i = 0; i < k->nstep; i++) at.step[i].tasks = size_at(k->step[i].tasks, dim);
    for (int i = 0; i < k->nwork; i++) at.work_bytes[i] = size_at(k->work_bytes[i], dim);
    for (int i = 0; i < k->npack; i++) at.pack[i].loops = loops_at(a, k->pack[i].loops, dim);
    at.scratch_bytes = size_at(k->scratch_bytes, dim);
    if (k->tree) at.tree = tree_at(a, k->tree, dim);
    return at;
}

static struct slice_operand *operands_at(struct arena *a, const struct slice_operand *op, int n, const int64_t *dim)
{
    struct slice_operand *at = op ? arena_memdup(a, op, (size_t)n * sizeof *op) : NULL;
    for (int i = 0; at && i < n; i++) {
        at[i].coef = size_at(at[i].coef, dim);
        at[i].min = size_at(at[i].min, dim);
        at[i].max = size_at(at[i].max, dim);
    }
    return at;
}

static struct stage stage_at(struct arena *a, const struct stage *st, const int64_t *dim)
{
    const int n = st->loops->tensors.n;
    struct stage at = *st;
    struct unit *u = at.u = arena_memdup(a, st->u, sizeof *st->u);
    struct choice *choice = NEW(a, struct choice);
    *choice = *st->choice;
    choice->kernel = kernel_at(a, &st->choice->kernel, dim);
    at.choice = choice;
    at.kernel = kernel_at(a, &st->kernel, dim);
    u->kernel = kernel_at(a, &st->u->kernel, dim);
    u->loops = loops_at(a, st->u->loops, dim);
    at.loops = loops_at(a, st->loops, dim);
    at.slice = loops_at(a, st->slice, dim);
    at.op = operands_at(a, st->op, n, dim);
    at.image_op = operands_at(a, st->image_op, n, dim);
    at.memory = NEW_ARRAY(a, struct memory, n + 1);
    for (int i = 0; i < n; i++) at.memory[i] = memory_at(&st->memory[i], dim);
    at.rows = size_at(st->rows, dim);
    at.row_bytes = size_at(st->row_bytes, dim);
    at.row_origin = size_at(st->row_origin, dim);
    return at;
}

bool verify_chain_at(struct arena *a, const struct chain *c, const int64_t *dim, struct chain *out)
{
    *out = *c;
    for (int i = 0; i < c->n; i++) {
        out->stage[i] = stage_at(a, &c->stage[i], dim);
        const struct loops *loops = out->stage[i].loops;
        for (int k = 0; k < loops->ivars.n; k++)
            if (loops->ivars.at[k].size < 1) return false;
    }
    out->images = size_at(c->images, dim);
    return true;
}
