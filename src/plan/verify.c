/* Checks what plan.h promises after each phase. It finds our own bugs, and runs after every phase in tests and debug
 * builds (key compiler::verify). It shares no code with what it checks: counts, regions and reads are computed anew. */
#include "plan/verify.h"

#include <math.h>
#include <stdio.h>

/* A unit's write or read of a tensor in a root. */
struct access {
    const struct unit *u;
    int at;                                        /* position among the units */
    int tensor;                                    /* of the unit's loops */
    int64_t points;                                /* elements that it writes; 0: another version counts */
    int64_t low[SOL_MAX_DIMS], high[SOL_MAX_DIMS]; /* of the root, the region: low <= index < high */
    struct access *next;
};
struct check {
    struct plan *p;
    struct arena *scratch;
    struct access **writes; /* by root */
};

sol_status plan_wrong(struct plan *p, const struct unit *u, const char *format, ...)
{
    char words[512];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    return ctx_fail(p->ctx, SOL_ERR_INTERNAL, "%s: plan after phase %s: %s%s%s%s", p->g->name,
                    p->phase < 0 ? "none" : plan_phase_name(p->phase, NULL), u ? "unit '" : "",
                    u ? (u->label ? u->label : "without a label") : "", u ? "': " : "", words);
}

static struct sol_tensor *user_of(const struct unit *u, int t)
{
    return u->loops->tensors.at[t].user;
}

static const struct allocation *allocation_of(const struct check *c, const struct sol_tensor *t)
{
    return &c->p->allocations[t->id];
}

/* A size of the graph, as the unit's loops have it. */
static int64_t size_in(const struct unit *u, int64_t size)
{
    return u->fixed ? size_at(size, u->fixed) : size;
}

/* -- units by themselves */

static sol_status check_tensor(struct check *c, const struct unit *u, int k)
{
    const struct loops_tensor *t = &u->loops->tensors.at[k];
    const struct sol_tensor *g = t->user;
    if (t->role != LOOPS_INPUT && t->role != LOOPS_OUTPUT) return SOL_OK;
    if (!g) return plan_wrong(c->p, u, "tensor %s: expected a tensor of the graph, got none", t->name);
    if (g->id < 0 || g->id >= c->p->nallocations || allocation_of(c, g)->t != g)
        return plan_wrong(c->p, u, "tensor %s: expected a tensor with an allocation, got %%%d", t->name, g->id);
    if (g->dtype != t->dtype)
        return plan_wrong(c->p, u, "tensor %s: expected type %s, as %%%d has, got %s", t->name,
                          dtype_def((enum sol_dtype)g->dtype)->name, g->id, dtype_def((enum sol_dtype)t->dtype)->name);
    bool same = g->ndim == t->ndim;
    for (int d = 0; same && d < t->ndim; d++) same = size_in(u, g->dim[d].size) == t->shape[d];
    if (!same) return plan_wrong(c->p, u, "tensor %s: expected the shape of %%%d, got another one", t->name, g->id);
    if (t->role == LOOPS_INPUT) return SOL_OK;
    if (g->role != TENSOR_VALUE)
        return plan_wrong(c->p, u, "expected to write a value, got %%%d, which the user owns", g->id);
    if (allocation_of(c, g)->program != u->program)
        return plan_wrong(c->p, u, "%%%d: expected program %s, as that of the unit that writes it, got %s", g->id,
                          program_name(u->program), program_name(allocation_of(c, g)->program));
    return SOL_OK;
}

static sol_status check_unit(struct check *c, const struct unit *u)
{
    struct text why = text_new(c->scratch);
    if (!u->label || !u->loops) return plan_wrong(c->p, u, "expected a label and loops");
    if (u->program < 0 || u->program >= PROGRAMS)
        return plan_wrong(c->p, u, "expected a program, got %d", (int)u->program);
    for (int k = 0; k < u->loops->tensors.n; k++) TRY(check_tensor(c, u, k));
    if (u->opaque) return SOL_OK;
    if (!loops_verify(u->loops, &why)) return plan_wrong(c->p, u, "%s", why.at);
    if (!u->loops->stmts.n) return SOL_OK; /* all its results are empty: loops_verify */
    if (u->anchor < 0 || u->anchor >= u->loops->stmts.n)
        return plan_wrong(c->p, u, "anchor: expected a statement below %d, got %d", u->loops->stmts.n, u->anchor);
    return SOL_OK;
}

/* -- where tensors lie in others */

static sol_status check_root(struct check *c, const struct allocation *s)
{
    const int id = s->t->id;
    if (s != allocation_of(c, s->t)) return plan_wrong(c->p, NULL, "%%%d: its allocation is another tensor's", id);
    if (!s->root || allocation_of(c, s->root)->t != s->root)
        return plan_wrong(c->p, NULL, "%%%d: expected a root that is stored", id);
    if (s->root == s->t) return SOL_OK;
    if (c->p->phase < PHASE_ALIAS)
        return plan_wrong(c->p, NULL, "%%%d: expected to be its own root, got %%%d", id, s->root->id);
    if (allocation_of(c, s->root)->root != s->root)
        return plan_wrong(c->p, NULL, "%%%d: its root %%%d: expected to be its own root, got %%%d", id, s->root->id,
                          allocation_of(c, s->root)->root->id);
    if (s->root->ndim != s->t->ndim || s->root->dtype != s->t->dtype)
        return plan_wrong(c->p, NULL, "%%%d: expected rank and type of its root %%%d", id, s->root->id);
    for (int d = 0; d < s->t->ndim; d++) {
        const int64_t last = size_add(s->alias_at[d], s->t->dim[d].size);
        if (!size_le(0, s->alias_at[d]) || !size_le(last, s->root->dim[d].size))
            return plan_wrong(c->p, NULL,
                              "%%%d: dimension %d: expected to lie in its root %%%d, 0..%lld, got %lld..%lld", id, d,
                              s->root->id, (long long)size_sub(s->root->dim[d].size, 1), (long long)s->alias_at[d],
                              (long long)size_sub(last, 1));
    }
    return SOL_OK;
}

static int64_t at_of(const struct allocation *s, int d)
{
    return s->root == s->t ? 0 : size_hint(s->alias_at[d]);
}

/* Elements are counted, and regions compared, for the hints of sizes that vary. The region of a tensor in its root. */
static int64_t common(const struct access *w, const struct allocation *s)
{
    int64_t n = 1;
    for (int d = 0; d < s->t->ndim; d++) {
        const int64_t low = MAX(w->low[d], at_of(s, d)),
                      high = MIN(w->high[d], at_of(s, d) + size_hint(s->t->dim[d].size));
        n *= MAX(high - low, 0);
    }
    return n;
}

static bool overlap(const struct access *a, const struct access *b, int ndim)
{
    for (int d = 0; d < ndim; d++)
        if (MAX(a->low[d], b->low[d]) >= MIN(a->high[d], b->high[d])) return false;
    return a->points && b->points;
}

/* -- who writes before who reads */

/* The number of elements that a statement writes, and their region. */
static void set_points(struct access *w, const struct loops_stmt *s)
{
    const struct loops *loops = w->u->loops;
    int d = 0;
    w->points = ivars_points(loops, stmt_ivars(loops, s));
    for (int32_t i = s->index; i && w->points; i = loops->ex.at[i].next, d++) {
        int64_t low = 0, high = 0;
        ex_bounds(loops, i, &low, &high);
        w->low[d] = size_hint(low);
        w->high[d] = size_hint(high) + 1;
    }
}

/* What a statement writes to a tensor; NULL: an opaque unit writes all of it. */
static void add_write(struct check *c, const struct unit *u, int at, int tensor, const struct loops_stmt *stmt)
{
    struct access *w = NEW(c->scratch, struct access);
    const struct allocation *s = allocation_of(c, user_of(u, tensor));
    *w = (struct access){.u = u, .at = at, .tensor = tensor};
    if (stmt)
        set_points(w, stmt);
    else
        w->points = size_hint(tensor_elements(s->t));
    if (u->version) w->points = 0;
    for (int d = 0; d < s->t->ndim; d++) {
        if (!stmt) w->high[d] = size_hint(s->t->dim[d].size);
        w->low[d] += at_of(s, d);
        w->high[d] += at_of(s, d);
    }
    w->next = c->writes[s->root->id];
    c->writes[s->root->id] = w;
}

/* Each statement for itself: two of them may write a tensor in front of a part and behind it. */
static void find_unit_writes(struct check *c, const struct unit *u, int at)
{
    for (int k = 0; k < u->loops->tensors.n; k++)
        if (u->opaque && u->loops->tensors.at[k].role == LOOPS_OUTPUT) add_write(c, u, at, k, NULL);
    for (int i = 0; i < u->loops->stmts.n && !u->opaque; i++) {
        const struct loops_stmt *stmt = &u->loops->stmts.at[i];
        for (int o = 0; o < stmt->nout; o++)
            if (u->loops->tensors.at[stmt->out[o]].role == LOOPS_OUTPUT) add_write(c, u, at, stmt->out[o], stmt);
    }
}

static void find_writes(struct check *c)
{
    struct plan *p = c->p;
    c->writes = NEW_ARRAY(c->scratch, struct access *, p->nallocations + 1);
    for (int i = p->units.n - 1; i >= 0; i--)
        if (!p->units.at[i]->dead) find_unit_writes(c, p->units.at[i], i);
}

/* Two units may write parts of one tensor, or two parts of one root. */
static sol_status check_writes(struct check *c, const struct access *first)
{
    for (const struct access *a = first; a; a = a->next) {
        const struct allocation *s = allocation_of(c, user_of(a->u, a->tensor));
        int64_t written = 0;
        for (const struct access *b = first; b; b = b->next) {
            const struct allocation *other = allocation_of(c, user_of(b->u, b->tensor));
            if (other == s) written += b->points;
            if (other != s && overlap(a, b, s->t->ndim))
                return plan_wrong(c->p, a->u, "writes %%%d, of which unit '%s' writes a part as %%%d", s->t->id,
                                  b->u->label, other->t->id);
        }
        if (written > size_hint(tensor_elements(s->t)))
            return plan_wrong(c->p, a->u, "%%%d: expected its writers to write at most %lld elements, got %lld",
                              s->t->id, (long long)tensor_elements(s->t), (long long)written);
    }
    return SOL_OK;
}

static bool runs_before(const struct access *w, const struct unit *u, int at)
{
    return w->u->program != u->program ? w->u->program < u->program : w->at < at;
}

/* All elements of a tensor must be written when the unit at position `at` reads it; u NULL: at the end. */
static sol_status check_read(struct check *c, const struct unit *u, int at, const struct sol_tensor *t)
{
    const struct allocation *s = allocation_of(c, t);
    int64_t there = 0;
    if (t->role != TENSOR_VALUE) return SOL_OK;
    for (const struct access *w = c->writes[s->root->id]; w; w = w->next) {
        const int64_t n = w->points ? common(w, s) : 0;
        if (n && u && !runs_before(w, u, at))
            return plan_wrong(c->p, u, "reads %%%d, which unit '%s' writes behind it", t->id, w->u->label);
        there += MIN(n, w->points);
    }
    if (there >= size_hint(tensor_elements(t))) return SOL_OK;
    for (int i = 0; i < c->p->units.n; i++) {
        const struct unit *dead = c->p->units.at[i];
        for (int k = 0; k < dead->loops->tensors.n && dead->dead; k++)
            if (user_of(dead, k) == t && dead->loops->tensors.at[k].role == LOOPS_OUTPUT)
                return plan_wrong(c->p, u, "reads %%%d, whose writer '%s' is dead", t->id, dead->label);
    }
    return plan_wrong(c->p, u, "%s %%%d: expected its %lld elements to be written before, got %lld",
                      u ? "reads" : "output", t->id, (long long)tensor_elements(t), (long long)there);
}

/* A unit that has a kernel reads the packed tensor instead. */
static bool is_packed(const struct unit *u, int tensor)
{
    for (int i = 0; i < u->kernel.npack; i++)
        if (u->kernel.pack[i].tensor == tensor) return true;
    return false;
}

static sol_status check_reads(struct check *c)
{
    struct plan *p = c->p;
    for (int i = 0; i < p->nallocations; i++) TRY(check_writes(c, c->writes[i]));
    for (int i = 0; i < p->units.n; i++) {
        const struct unit *u = p->units.at[i];
        for (int k = 0; k < u->loops->tensors.n && !u->dead; k++)
            if (u->loops->tensors.at[k].role == LOOPS_INPUT && (p->phase < PHASE_CHOOSE || !is_packed(u, k)))
                TRY(check_read(c, u, i, user_of(u, k)));
    }
    for (int i = 0; i < p->g->outputs.n; i++) TRY(check_read(c, NULL, 0, p->g->outputs.at[i].t));
    return SOL_OK;
}

/* -- counts */

struct counts {
    int writers, readers;
};

static sol_status check_counts(struct check *c)
{
    struct plan *p = c->p;
    struct counts *of = NEW_ARRAY(c->scratch, struct counts, p->nallocations + 1);
    for (int i = 0; i < p->g->outputs.n; i++) of[p->g->outputs.at[i].t->id].readers++;
    for (int i = 0; i < p->units.n; i++) {
        const struct unit *u = p->units.at[i];
        for (int k = 0; k < u->loops->tensors.n && !u->dead; k++) {
            const int role = u->loops->tensors.at[k].role;
            if (role == LOOPS_OUTPUT) of[user_of(u, k)->id].writers++;
            if (role == LOOPS_INPUT) of[user_of(u, k)->id].readers++;
        }
    }
    for (int i = 0; i < p->nallocations; i++) {
        const struct allocation *s = &p->allocations[i];
        if (!s->t) continue;
        const int readers = of[i].readers + (s->root == s->t ? 0 : of[s->root->id].readers);
        if (s->writers != of[i].writers || s->readers != readers)
            return plan_wrong(c->p, NULL,
                              "%%%d: expected %d writers and %d readers, as the units have it, got %d and %d", i,
                              of[i].writers, readers, s->writers, s->readers);
    }
    return SOL_OK;
}

/* -- memory */

static sol_status check_order(struct check *c, const struct allocation *s)
{
    unsigned seen = 0;
    for (int i = 0; i < s->t->ndim; i++)
        if (s->order[i] >= 0) seen |= 1u << s->order[i];
    if (seen + 1 != 1u << s->t->ndim)
        return plan_wrong(c->p, NULL, "%%%d: order: expected each of its %d dimensions once", s->t->id, s->t->ndim);
    for (int d = 0; d < s->t->ndim && s->fixed; d++)
        if (s->order[d] != d || s->memory.halo_low[d] || s->memory.halo_high[d])
            return plan_wrong(c->p, NULL, "%%%d is fixed: expected to be row-major and without halos", s->t->id);
    return SOL_OK;
}

static sol_status check_align(struct check *c, const struct allocation *s)
{
    const int bytes = dtype_def((enum sol_dtype)s->t->dtype)->bytes, align = s->memory.align;
    const struct sol_tensor *root = s->root;
    if (align <= 0 || align & (align - 1))
        return plan_wrong(c->p, NULL, "%%%d: alignment: expected a power of 2, got %d", s->t->id, align);
    const bool ours = root->role == TENSOR_VALUE && !allocation_of(c, root)->output;
    if (ours ? align > 64 || size_factor(size_mul(s->origin, bytes)) % align : align > bytes)
        return plan_wrong(c->p, NULL, "%%%d: alignment: expected what element %lld has, got %d", s->t->id,
                          (long long)s->origin, align);
    return SOL_OK;
}

/* Checks that strides follow from order, sizes, halos and pitch. */
static sol_status check_memory(struct check *c, const struct allocation *s)
{
    const struct memory *m = &s->memory;
    int64_t stride = 1, origin = 0;
    TRY(check_order(c, s));
    for (int i = s->t->ndim - 1; i >= 0; i--) {
        const int d = s->order[i];
        if (m->halo_low[d] < 0 || m->halo_high[d] < 0)
            return plan_wrong(c->p, NULL, "%%%d: dimension %d: expected halos, got %d and %d", s->t->id, d,
                              m->halo_low[d], m->halo_high[d]);
        if (m->stride[d] != stride)
            return plan_wrong(c->p, NULL, "%%%d: dimension %d: expected stride %lld, got %lld", s->t->id, d,
                              (long long)stride, (long long)m->stride[d]);
        origin = size_add(origin, size_mul(m->halo_low[d], stride));
        stride = plan_pitch(s, i, size_mul(stride, size_add(s->t->dim[d].size, m->halo_low[d] + m->halo_high[d])));
    }
    if (s->elements != stride || s->origin != origin)
        return plan_wrong(c->p, NULL, "%%%d: expected %lld elements, the first at %lld, got %lld and %lld", s->t->id,
                          (long long)stride, (long long)origin, (long long)s->elements, (long long)s->origin);
    return check_align(c, s);
}

static sol_status check_part(struct check *c, const struct allocation *s)
{
    const struct allocation *root = allocation_of(c, s->root);
    int64_t origin = root->origin;
    for (int d = 0; d < s->t->ndim; d++) {
        const bool whole = s->t->dim[d].size == root->t->dim[d].size;
        origin = size_add(origin, size_mul(s->alias_at[d], root->memory.stride[d]));
        if (s->memory.stride[d] != root->memory.stride[d])
            return plan_wrong(c->p, NULL, "%%%d: dimension %d: expected stride %lld, that of its root %%%d, got %lld",
                              s->t->id, d, (long long)root->memory.stride[d], root->t->id,
                              (long long)s->memory.stride[d]);
        if (s->memory.halo_low[d] != (whole ? root->memory.halo_low[d] : 0) ||
            s->memory.halo_high[d] != (whole ? root->memory.halo_high[d] : 0))
            return plan_wrong(c->p, NULL,
                              "%%%d: dimension %d: expected the halo of its root, which it has where it is whole",
                              s->t->id, d);
    }
    if (s->origin != origin)
        return plan_wrong(c->p, NULL, "%%%d: expected to begin at %lld of its root, got %lld", s->t->id,
                          (long long)origin, (long long)s->origin);
    return check_align(c, s);
}

static bool same_memory(const struct unit *u, const struct memory *a, const struct memory *b, int ndim)
{
    for (int d = 0; d < ndim; d++)
        if (a->stride[d] != size_in(u, b->stride[d]) || a->halo_low[d] != b->halo_low[d] ||
            a->halo_high[d] != b->halo_high[d])
            return false;
    return a->align == b->align && a->constant == b->constant;
}

static sol_status check_layout(struct check *c)
{
    struct plan *p = c->p;
    for (int i = 0; i < p->nallocations; i++) {
        const struct allocation *s = &p->allocations[i];
        if (s->t) TRY(s->root == s->t ? check_memory(c, s) : check_part(c, s));
    }
    for (int i = 0; i < p->units.n; i++) {
        const struct unit *u = p->units.at[i];
        for (int k = 0; k < u->loops->tensors.n && !u->dead && u->memory; k++) {
            const struct loops_tensor *t = &u->loops->tensors.at[k];
            if ((t->role == LOOPS_INPUT || t->role == LOOPS_OUTPUT) &&
                !same_memory(u, &u->memory[k], &allocation_of(c, t->user)->memory, t->ndim))
                return plan_wrong(c->p, u, "tensor %s: expected the memory of %%%d, got another one", t->name,
                                  user_of(u, k)->id);
        }
    }
    return SOL_OK;
}

/* -- kernels */

static sol_status check_packs(struct check *c, const struct unit *u)
{
    const struct kernel *k = &u->kernel;
    if (k->npack < 0 || k->npack > KERNEL_MAX_PACKS)
        return plan_wrong(c->p, u, "expected 0..%d packs, got %d", KERNEL_MAX_PACKS, k->npack);
    for (int i = 0; i < k->npack; i++) {
        struct text why = text_new(c->scratch);
        const struct loops *loops = k->pack[i].loops;
        const int t = k->pack[i].tensor;
        if (t < 0 || t >= u->loops->tensors.n || u->loops->tensors.at[t].role != LOOPS_INPUT)
            return plan_wrong(c->p, u, "pack %d: expected an input of the kernel, got tensor %d", i, t);
        if (!loops || loops->tensors.n < 2 || loops->tensors.at[0].role != LOOPS_INPUT ||
            loops->tensors.at[1].role != LOOPS_OUTPUT)
            return plan_wrong(c->p, u, "pack %d: expected loops from tensor 0, an input, to tensor 1, an output", i);
        if (!loops_verify(loops, &why)) return plan_wrong(c->p, u, "pack %d: %s", i, why.at);
    }
    return SOL_OK;
}

/* The tuner compares costs by their ratios. */
static bool is_cost(double ns)
{
    return isfinite(ns) && ns >= 0;
}

static sol_status check_kernel(struct check *c, const struct unit *u)
{
    const struct kernel *k = &u->kernel;
    if (!k->source || !k->solver) return plan_wrong(c->p, u, "expected a kernel of some solver, got none");
    if (k->nstep < 1 || k->nstep > KERNEL_MAX_STEPS)
        return plan_wrong(c->p, u, "expected 1..%d steps, got %d", KERNEL_MAX_STEPS, k->nstep);
    for (int i = 0; i < k->nstep; i++)
        if (k->step[i].tasks < 0)
            return plan_wrong(c->p, u, "step %d: expected tasks, got %lld", i, (long long)k->step[i].tasks);
    if (k->nwork < 0 || k->nwork > COUNT_OF(k->work_bytes) || k->scratch_bytes < 0)
        return plan_wrong(c->p, u, "expected 0..%d work buffers and scratch memory, got %d and %lld",
                          COUNT_OF(k->work_bytes), k->nwork, (long long)k->scratch_bytes);
    if (!is_cost(k->cost)) return plan_wrong(c->p, u, "expected a cost of 0 ns or more, got %g", k->cost);
    return check_packs(c, u);
}

/* Operands are the tensors in memory in order (packed ones in place of their originals), then work buffers. */
static sol_status check_operands(struct check *c, const struct unit *u, int at)
{
    int n = 0;
    for (int k = 0; k < u->loops->tensors.n; k++) {
        const struct loops_tensor *t = &u->loops->tensors.at[k];
        if (t->role != LOOPS_INPUT && t->role != LOOPS_OUTPUT) continue;
        if (n >= u->noperand) { /* too few operands: reported below */
            n++;
            continue;
        }
        const bool packed = !u->opaque && is_packed(u, k);
        if (packed ? u->operand[n] == t->user : u->operand[n] != t->user)
            return plan_wrong(c->p, u, "operand %d: expected %s%%%d, tensor %s, got %%%d", n,
                              packed ? "what is packed of " : "", user_of(u, k)->id, t->name, u->operand[n]->id);
        if (u->written[n] != (t->role == LOOPS_OUTPUT))
            return plan_wrong(c->p, u, "operand %d: expected to be %s, as tensor %s", n,
                              u->written[n] ? "read" : "written", t->name);
        if (packed) TRY(check_read(c, u, at, u->operand[n]));
        n++;
    }
    n += u->kernel.nwork;
    return n == u->noperand ? SOL_OK : plan_wrong(c->p, u, "expected %d operands, got %d", n, u->noperand);
}

static sol_status check_kernels(struct check *c)
{
    for (int i = 0; i < c->p->units.n; i++) {
        const struct unit *u = c->p->units.at[i];
        if (u->dead || (c->p->phase < PHASE_CHOOSE && !u->kernel.source)) continue;
        if (!u->opaque || u->kernel.source) TRY(check_kernel(c, u));
        if (c->p->phase >= PHASE_CHOOSE) TRY(check_operands(c, u, i));
    }
    return SOL_OK;
}

/* -- versions */

/* Versions of a unit follow each other, but for packs of theirs. At every size exactly one of them runs. */
static sol_status check_versions(struct check *c)
{
    struct plan *p = c->p;
    const struct unit *first = NULL;
    int64_t running = 1; /* a size: how many of the group run */
    int next = 0;
    for (int i = 0; i <= p->units.n; i++) {
        const struct unit *u = i < p->units.n ? p->units.at[i] : NULL;
        if (u && (u->dead || !u->number)) continue;
        if (u && u->version) {
            if (!first || u->number != first->number || u->version != next || u->program != first->program)
                return plan_wrong(p, u, "version %d: expected version %d of the unit before", u->version, next);
        } else {
            if (running != 1)
                return plan_wrong(p, first, "its versions: expected one to run at every size, got %lld",
                                  (long long)running);
            first = u && u->when ? u : NULL;
            running = first ? 0 : 1;
            next = 0;
        }
        if (!first) continue;
        running = size_add(running, u->when);
        next++;
    }
    return SOL_OK;
}

/* -- chains */

static sol_status check_choice(struct check *c, const struct unit *u, const struct choice *choice)
{
    if (choice->n < 1 || choice->chosen < -1 || choice->chosen >= choice->n)
        return plan_wrong(c->p, u, "choice: expected one of %d candidates, got %d", choice->n, choice->chosen);
    if (!is_cost(choice->candidate[0].variant.cost) || !is_cost(choice->candidate[choice->n - 1].variant.cost))
        return plan_wrong(c->p, u, "choice: expected costs of 0 ns or more, got %g..%g",
                          choice->candidate[0].variant.cost, choice->candidate[choice->n - 1].variant.cost);
    for (int i = 1; i < choice->n; i++)
        if (choice->candidate[i - 1].variant.cost > choice->candidate[i].variant.cost)
            return plan_wrong(c->p, u, "choice: expected the cheapest first, got candidate %d behind a dearer one", i);
    return SOL_OK;
}

static sol_status check_chains(struct check *c)
{
    struct plan *p = c->p;
    const struct unit **by_number = NEW_ARRAY(c->scratch, const struct unit *, p->numbers + 1);
    for (int i = 0; i < p->units.n; i++) {
        const struct unit *u = p->units.at[i];
        if (u->number < 0 || u->number >= p->numbers || (u->number && by_number[u->number] && !u->version))
            return plan_wrong(c->p, u, "expected a number of its own below %d, got %d", p->numbers, u->number);
        if (u->number && !u->version) by_number[u->number] = u;
    }
    for (int i = 1; i < p->numbers; i++) {
        const int into = p->into[i];
        if (into < 1 || into >= p->numbers || !by_number[i] || !by_number[into])
            return plan_wrong(c->p, by_number[i], "expected a unit that does its work, got number %d", into);
        if (into != i && (!by_number[i]->dead || by_number[into]->dead))
            return plan_wrong(c->p, by_number[i], "is a part of '%s': expected it to be dead, and that one alive",
                              by_number[into]->label);
    }
    for (int i = 0; i < p->chains.n; i++) {
        const struct plan_chain *x = &p->chains.at[i];
        if (x->n < 2 || x->n > PLAN_CHAIN)
            return plan_wrong(c->p, NULL, "chain %d: expected 2..%d units, got %d", i, PLAN_CHAIN, x->n);
        for (int k = 0; k < x->n; k++)
            if (!x->unit[k]) return plan_wrong(c->p, NULL, "chain %d: unit %d is missing", i, k);
        TRY(check_choice(c, x->unit[0], x->choice));
    }
    return SOL_OK;
}

/* -- all */

static sol_status check_plan(struct check *c)
{
    struct plan *p = c->p;
    for (int i = 0; i < p->nallocations; i++)
        if (p->allocations[i].t) TRY(check_root(c, &p->allocations[i]));
    for (int i = 0; i < p->units.n; i++)
        if (!p->units.at[i]->dead) TRY(check_unit(c, p->units.at[i]));
    find_writes(c);
    TRY(check_reads(c));
    TRY(check_counts(c));
    if (p->phase >= PHASE_LAYOUT) TRY(check_layout(c));
    TRY(check_kernels(c));
    if (p->phase >= PHASE_BAND) TRY(check_chains(c));
    TRY(check_versions(c));
    return verify_tiles(p, c->scratch);
}

sol_status plan_verify(struct plan *p)
{
    if (p->phase == PHASE_NONE) return SOL_OK;
    struct check c = {.p = p, .scratch = arena_create(p->ctx)};
    if (!c.scratch) return ctx_check(p->ctx);
    const sol_status status = check_plan(&c);
    arena_destroy(c.scratch);
    return status;
}
