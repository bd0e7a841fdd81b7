/* Decides the memory layout of tensors: channels-last where there are channels and pixels, and a kernel that gains from
 * it, otherwise row-major;
 * zero-filled halos where a window reads over the edge, and pixels that do not lie in few sets of a cache; reorders
 * where a row-major tensor of the user does not suit the kernels. */
#include "plan/plan.h"

#define HALO_PIXELS 3

/* The order that the purposes suggest: channels last. It is the identity if there are no pixels. */
static bool natural_order(const char *purpose, int ndim, int8_t *order)
{
    bool channel = false, pixel = false;
    for (int d = 0; d < ndim; d++) {
        channel |= purpose[d] == 'C';
        pixel |= purpose[d] == 'P';
    }
    int n = 0;
    for (int d = 0; d < ndim; d++)
        if (!(channel && pixel) || purpose[d] != 'C') order[n++] = (int8_t)d;
    for (int d = 0; d < ndim && n < ndim; d++)
        if (purpose[d] == 'C') order[n++] = (int8_t)d;
    return channel && pixel;
}

/* Do two orders give the same memory? Dimensions of size 1 do not matter. */
static bool same_order(const struct sol_tensor *t, const int8_t *a, const int8_t *b)
{
    int i = 0, k = 0;
    for (;;) {
        while (i < t->ndim && t->dim[a[i]].size == 1) i++;
        while (k < t->ndim && t->dim[b[k]].size == 1) k++;
        if (i == t->ndim || k == t->ndim) return i == t->ndim && k == t->ndim;
        if (a[i++] != b[k++]) return false;
    }
}

static void row_major(int8_t *order, int ndim)
{
    for (int d = 0; d < ndim; d++) order[d] = (int8_t)d;
}

/* The purposes that the readers of a user's tensor give its dimensions. */
static bool purposes_from_readers(const struct sol_tensor *t, char *purpose)
{
    for (int k = 0; k < t->readers.n; k++) {
        const struct sol_layer *l = t->readers.at[k];
        const bool removed = l->nout && l->out[0]->from != l;
        const struct opdef *opdef = removed ? NULL : l->def->row;
        for (int i = 0; opdef && i < l->nin; i++) {
            if (l->in[i] != t) continue;
            bool pixel = false;
            for (int d = 0; d < t->ndim; d++) {
                purpose[d] = opdef_purpose(opdef, false, i, d, t->ndim);
                pixel |= purpose[d] == 'P';
            }
            if (pixel) return true;
        }
    }
    return false;
}

static void own_purposes(const struct sol_tensor *t, char *purpose)
{
    for (int d = 0; d < t->ndim; d++) purpose[d] = t->dim[d].purpose ? t->dim[d].purpose : 'N';
}

/* -- what gains from channels-last: windows over pixels, and products that may form bands with others or with sums.
 * Otherwise it only costs reorders: one 1x1 convolution in row-major memory is a product whose vectors are pixels. */

struct gain {
    const struct loops *loops;
    char (*input)[SOL_MAX_DIMS]; /* purposes of the user's tensors, by number */
    bool window, windows;        /* over pixels of one dimension, of several */
    bool product, sum, pixels;
};

/* Is the index one index variable, perhaps shifted or flipped? */
static bool is_plain(const struct loops *loops, int32_t index)
{
    struct affine f;
    return ex_affine(loops, index, &f) && (f.n == 0 || (f.n == 1 && (f.coef[0] == 1 || f.coef[0] == -1)));
}

/* A product in which each factor is used again for another result: a matrix product, not a weighted sum. */
static bool uses_again(const struct loops *loops, int32_t node)
{
    if (!ex_is_contraction(loops, node)) return false;
    const struct ex *red = &loops->ex.at[node], *body = &loops->ex.at[red->b];
    const uint64_t a = ex_ivars(loops, body->a) & ~red->u.bound, b = ex_ivars(loops, body->b) & ~red->u.bound;
    return (a & ~b) && (b & ~a);
}

static void see_gain(void *user, int32_t node)
{
    struct gain *g = user;
    const struct ex *e = &g->loops->ex.at[node];
    g->product |= uses_again(g->loops, node);
    g->sum |= e->kind == EX_RED;
    const struct sol_tensor *t = e->kind == EX_READ ? g->loops->tensors.at[e->tensor].user : NULL;
    int d = 0, pixels = 0;
    bool window = false;
    for (int32_t i = t ? e->a : 0; i; i = g->loops->ex.at[i].next, d++) {
        const char purpose = t->role == TENSOR_INPUT ? g->input[t->index][d] : t->dim[d].purpose;
        pixels += purpose == 'P' && t->dim[d].size != 1;
        window |= purpose == 'P' && !is_plain(g->loops, i);
    }
    g->pixels |= pixels > 0;
    g->window |= window;
    g->windows |= window && pixels > 1;
}

static bool gains_from_channels_last(const struct plan *p)
{
    char(*input)[SOL_MAX_DIMS] = arena_alloc(p->scratch, sizeof *input * (size_t)(p->g->inputs.n + 1));
    for (int i = 0; i < p->g->inputs.n; i++)
        if (!purposes_from_readers(p->g->inputs.at[i], input[i])) own_purposes(p->g->inputs.at[i], input[i]);
    int products = 0, sums = 0;
    for (int i = 0; i < p->units.n; i++) {
        const struct unit *u = p->units.at[i];
        struct gain g = {.loops = u->loops, .input = input};
        for (int s = 0; !u->dead && !u->opaque && s < u->loops->stmts.n; s++)
            ex_walk(u->loops, u->loops->stmts.at[s].value, see_gain, &g);
        /* in one dimension, pixels are the longest runs, and only products gain */
        if (g.windows || (g.window && g.product)) return true;
        if (!g.pixels || u->program != PROGRAM_FORWARD) continue;
        products += g.product;
        sums += g.sum;
    }
    return products && sums > 1;
}

/* -- reorders. They are found while the units stay as they are, and inserted at the end, all at once. */

struct reorder {
    struct unit *unit;
    int at;      /* the position: ahead of this unit */
    bool behind; /* as close as possible to the unit before */
};
struct reorders {
    struct plan *p;
    int nunits; /* before any reorder */
    int *first; /* by tensor: the start of its units in `user` */
    int *user;  /* positions of the units that have the tensor as an operand */
    VECTOR(struct reorder) found;
};

/* Counts the operands of a unit that are tensors of the graph, or records the unit's position for each of them. */
static void each_operand(struct reorders *r, int place, bool note)
{
    const struct unit *u = r->p->units.at[place];
    for (int k = 0; !u->dead && k < u->loops->tensors.n; k++) {
        const struct sol_tensor *t = u->loops->tensors.at[k].user;
        if (!t) continue;
        if (note) r->user[r->first[t->id]] = place;
        r->first[t->id + (note ? 0 : 1)]++;
    }
}

static void find_users(struct reorders *r)
{
    const int n = r->p->nallocations;
    r->nunits = r->p->units.n;
    r->first = NEW_ARRAY(r->p->scratch, int, n + 2);
    for (int i = 0; i < r->nunits; i++) each_operand(r, i, false);
    for (int i = 0; i < n; i++) r->first[i + 1] += r->first[i];
    r->user = NEW_ARRAY(r->p->scratch, int, r->first[n] + 1);
    for (int i = 0; i < r->nunits; i++) each_operand(r, i, true);
    for (int i = n; i > 0; i--) r->first[i] = r->first[i - 1];
    r->first[0] = 0;
}

/* `to[L] = from[L]`, in the program and the layer of unit `of`. */
static void copy_unit(struct reorders *r, const struct unit *of, struct sol_tensor *to, struct sol_tensor *from, int at,
                      bool behind)
{
    struct plan *p = r->p;
    struct loops *loops = loops_create(p->scratch, "Reorder");
    int64_t shape[SOL_MAX_DIMS];
    int32_t index[2][SOL_MAX_DIMS];
    for (int d = 0; d < to->ndim; d++) {
        shape[d] = to->dim[d].size;
        int32_t ivar =
            shape[d] == 1 ? 0 : ex_ivar(loops, loops_ivar(loops, arena_printf(p->scratch, "A%d", d), shape[d]));
        index[0][d] = index[1][d] = ivar ? ivar : ex_int(loops, 0);
    }
    int x = loops_tensor(loops, "x", LOOPS_INPUT, from->dtype, from->ndim, shape);
    int y = loops_tensor(loops, "y", LOOPS_OUTPUT, to->dtype, to->ndim, shape);
    loops_set_user(loops, x, from);
    loops_set_user(loops, y, to);
    struct loops_stmt s = {.nout = 1, .out = {(uint16_t)y}, .label = "reorder"};
    s.index = to->ndim ? ex_list(loops, to->ndim, index[0]) : 0;
    s.value = ex_read(loops, x, to->ndim ? ex_list(loops, to->ndim, index[1]) : 0, 0);
    loops_stmt(loops, s);
    const struct reorder found = {plan_unit(p, -1, of->program, loops, of->layer, s.label), at, behind};
    PUSH(p->scratch, r->found, found);
}

/* Replaces operand `old` in `role` by `with` in all units of a program. Returns the number of changed units, and the
 * positions of the first and the last. */
static int retarget(struct reorders *r, enum program program, const struct sol_tensor *old, struct sol_tensor *with,
                    int role, int out_place[2])
{
    int n = 0;
    for (int i = r->first[old->id]; i < r->first[old->id + 1]; i++) {
        struct unit *u = r->p->units.at[r->user[i]];
        for (int k = 0; u->program == program && k < u->loops->tensors.n; k++) {
            if (u->loops->tensors.at[k].user != old || u->loops->tensors.at[k].role != role) continue;
            struct loops *moved = loops_copy(r->p->scratch, u->loops);
            loops_set_user(moved, k, with);
            u->loops = moved;
            if (!n++) out_place[0] = r->user[i];
            out_place[1] = r->user[i];
        }
    }
    return n;
}

static struct sol_tensor *twin(struct plan *p, const struct sol_tensor *t, const char *purpose, const char *suffix)
{
    int64_t shape[SOL_MAX_DIMS];
    for (int d = 0; d < t->ndim; d++) shape[d] = t->dim[d].size;
    struct sol_tensor *n =
        plan_tensor(p, arena_printf(p->arena, "%s_%s", t->name ? t->name : "t", suffix), t->dtype, t->ndim, shape);
    for (int d = 0; d < t->ndim; d++) n->dim[d].purpose = purpose[d];
    return n;
}

/* Lets the units of a program that read t, which lies in the user's memory, read a reordered copy. */
static void reorder_for(struct reorders *r, enum program program, struct sol_tensor *t, const char *purpose)
{
    struct sol_tensor *n = twin(r->p, t, purpose, "inner");
    int place[2];
    if (!retarget(r, program, t, n, LOOPS_INPUT, place)) return;
    copy_unit(r, r->p->units.at[place[0]], n, t, place[0], false);
}

/* Reorders a network's input once if windows or contractions read it. Backward reorders it again, which takes less
 * memory than saving the copy, and little time. */
static void reorder_inputs(struct reorders *r)
{
    struct plan *p = r->p;
    for (int i = 0; i < p->g->inputs.n; i++) {
        struct sol_tensor *t = p->g->inputs.at[i];
        char purpose[SOL_MAX_DIMS];
        int8_t order[SOL_MAX_DIMS];
        if (!plan_allocation(p, t)->readers) continue;
        if (!purposes_from_readers(t, purpose)) own_purposes(t, purpose); /* of a gradient: those of the result */
        if (!natural_order(purpose, t->ndim, order)) continue;
        for (int program = PROGRAM_FORWARD; program < PROGRAMS; program++) reorder_for(r, program, t, purpose);
    }
}

/* Does the unit compute partial sums over a result of this writer? */
static bool sums_result_of(struct plan *p, const struct unit *writer, const struct unit *u)
{
    for (int k = 0; k < writer->loops->tensors.n; k++) {
        const struct loops_tensor *t = &writer->loops->tensors.at[k];
        if (t->role == LOOPS_OUTPUT && plan_allocation(p, t->user)->sums == u) return true;
    }
    return false;
}

static void reorder_outputs(struct reorders *r)
{
    struct plan *p = r->p;
    for (int i = 0; i < p->g->outputs.n; i++) {
        struct sol_tensor *t = p->g->outputs.at[i].t;
        struct allocation *s = plan_allocation(p, t);
        char purpose[SOL_MAX_DIMS];
        int8_t want[SOL_MAX_DIMS], have[SOL_MAX_DIMS];
        int place[2];
        own_purposes(t, purpose);
        natural_order(purpose, t->ndim, want);
        row_major(have, t->ndim);
        if (!s->writer || s->writer->opaque || same_order(t, want, have)) continue;
        const struct unit *writer = s->writer;
        const bool only_view = writer->view && s->readers == 1;
        if (s->program == PROGRAM_FORWARD) reorder_for(r, PROGRAM_BACKWARD, t, purpose);
        if (only_view) continue;
        enum program program = writer->program;
        struct sol_tensor *n = twin(p, t, purpose, "inner");
        retarget(r, program, t, n, LOOPS_INPUT, place);
        if (!retarget(r, program, t, n, LOOPS_OUTPUT, place)) continue;
        plan_allocation(p, n)->program = program;
        /* right after its last writer, so that its memory is free after the copy; partial sums may form a band with it
         */
        int at = place[1] + 1;
        while (at < r->nunits && sums_result_of(p, p->units.at[place[1]], p->units.at[at])) at++;
        copy_unit(r, writer, t, n, at, true);
    }
}

/* Sorts reorders: between two units, those that belong after the first come before those ahead of the second. */
static void put_reorders(struct reorders *r)
{
    struct plan *p = r->p;
    const int all = p->units.n;
    struct unit **units = NEW_ARRAY(p->arena, struct unit *, all + 1);
    int *count = NEW_ARRAY(p->scratch, int, r->nunits + 2);
    for (int i = 0; i < r->found.n; i++) count[r->found.at[i].at + 1]++;
    for (int i = 0; i <= r->nunits; i++) count[i + 1] += count[i];
    int *front = arena_memdup(p->scratch, count, (size_t)(r->nunits + 2) * sizeof *count);
    for (int i = r->found.n - 1; i >= 0; i--) { /* the last one found after a unit is the closest to it */
        const struct reorder *o = &r->found.at[i];
        if (o->behind) units[o->at + front[o->at]++] = o->unit;
    }
    for (int i = 0; i < r->found.n; i++) {
        const struct reorder *o = &r->found.at[i];
        if (!o->behind) units[o->at + front[o->at]++] = o->unit;
    }
    for (int i = 0; i < r->nunits; i++) units[i + count[i + 1]] = p->units.at[i];
    p->units.at = units;
    p->units.room = all + 1;
}

/* -- halos */

struct halo_visit {
    struct plan *p;
    const struct loops *loops;
};

/* The least number that is never below a size; HALO_PIXELS + 1: it is not known, or too large. */
static int64_t least_bound(int64_t size)
{
    int64_t n = 0;
    while (n <= HALO_PIXELS && !size_le(size, n)) n++;
    return n;
}

static void halo_of_read(void *user, int32_t node)
{
    struct halo_visit *h = user;
    const struct ex *e = &h->loops->ex.at[node];
    if (e->kind != EX_READ || !e->b) return;
    const struct ex *outside = &h->loops->ex.at[e->b];
    if (!(outside->kind == EX_INT && outside->u.i == 0) && !(outside->kind == EX_REAL && outside->u.r == 0)) return;
    const struct loops_tensor *t = &h->loops->tensors.at[e->tensor];
    if (!t->user || t->role != LOOPS_INPUT) return;
    struct allocation *root = plan_allocation(h->p, plan_allocation(h->p, t->user)->root);
    if (root->fixed) return;
    int d = 0;
    int64_t low[SOL_MAX_DIMS], high[SOL_MAX_DIMS];
    for (int32_t i = e->a; i; i = h->loops->ex.at[i].next, d++) {
        if (!ex_bounds(h->loops, i, &low[d], &high[d])) return;
        low[d] = least_bound(size_sub(0, low[d]));
        high[d] = least_bound(size_sub(high[d], size_sub(t->shape[d], 1)));
        if ((low[d] || high[d]) && plan_allocation(h->p, t->user)->alias_at[d]) return;
        if (low[d] > HALO_PIXELS || high[d] > HALO_PIXELS) return;
        if (t->shape[d] == 1)
            low[d] = high[d] = 0; /* in a dimension of size 1 the index is printed as 0, without a test */
        if ((low[d] || high[d]) && t->shape[d] != root->t->dim[d].size) return;
    }
    for (d = 0; d < t->ndim; d++) {
        root->memory.halo_low[d] = MAX(root->memory.halo_low[d], (int32_t)low[d]);
        root->memory.halo_high[d] = MAX(root->memory.halo_high[d], (int32_t)high[d]);
    }
}

static void find_halos(struct plan *p)
{
    for (int i = 0; i < p->units.n; i++) {
        struct unit *u = p->units.at[i];
        if (u->dead || u->opaque) continue;
        struct halo_visit h = {p, u->loops};
        for (int s = 0; s < u->loops->stmts.n; s++) ex_walk(u->loops, u->loops->stmts.at[s].value, halo_of_read, &h);
    }
}

/* -- strides */

int64_t plan_pitch(const struct allocation *s, int place, int64_t stride)
{
    enum {
        LINE = 64,
        APART = 8 * LINE
    }; /* bytes; a first-level cache has 64 sets of lines, 8 for pixels so far apart */
    bool window = false;
    for (int d = 0; d < s->t->ndim; d++) window |= s->memory.halo_low[d] || s->memory.halo_high[d];
    const int bytes = dtype_def(s->t->dtype)->bytes;
    const bool innermost = place == s->t->ndim - 1 && s->t->dim[s->order[place]].purpose == 'C';
    if (!window || !innermost || size_varies(stride) || stride * bytes % APART) return stride;
    return stride + LINE / bytes;
}

static void lay_out(struct allocation *s)
{
    struct memory *m = &s->memory;
    int64_t stride = 1;
    for (int i = s->t->ndim - 1; i >= 0; i--) {
        int d = s->order[i];
        m->stride[d] = stride;
        stride = plan_pitch(s, i, size_mul(stride, size_add(s->t->dim[d].size, m->halo_low[d] + m->halo_high[d])));
        s->origin = size_add(s->origin, size_mul(m->halo_low[d], m->stride[d]));
    }
    s->elements = stride;
}

static int alignment(int64_t bytes)
{
    const int64_t factor = size_factor(bytes);
    int align = 64;
    while (align > 1 && factor % align) align /= 2;
    return align;
}

static void place_part(struct plan *p, struct allocation *s)
{
    struct allocation *root = plan_allocation(p, s->root);
    s->memory = root->memory;
    s->origin = root->origin;
    for (int d = 0; d < s->t->ndim; d++) {
        s->origin = size_add(s->origin, size_mul(s->alias_at[d], root->memory.stride[d]));
        if (s->t->dim[d].size == root->t->dim[d].size) continue;
        s->memory.halo_low[d] = s->memory.halo_high[d] = 0;
    }
    s->memory.align = MIN(root->memory.align, alignment(size_mul(s->origin, dtype_def(s->t->dtype)->bytes)));
}

static void mark_fixed(struct plan *p)
{
    for (int i = 0; i < p->nallocations; i++) {
        struct allocation *s = &p->allocations[i];
        if (s->t) s->fixed = s->t->role != TENSOR_VALUE || s->output || plan_prepared(s) || s->opaque;
    }
}

static void place_root(struct allocation *s, bool channels_last)
{
    char purpose[SOL_MAX_DIMS];
    own_purposes(s->t, purpose);
    if (channels_last)
        natural_order(purpose, s->t->ndim, s->order);
    else
        row_major(s->order, s->t->ndim);
    s->memory.constant = plan_prepared(s) || s->t->role == TENSOR_PARAM || s->t->role == TENSOR_CONST;
    lay_out(s);
    /* the user's memory is aligned to the type only */
    bool ours = s->t->role == TENSOR_VALUE && !s->output;
    int bytes = dtype_def(s->t->dtype)->bytes;
    s->memory.align = ours ? alignment(size_mul(s->origin, bytes)) : bytes;
}

void plan_place(struct allocation *s)
{
    place_root(s, false);
}

sol_status plan_layout(struct plan *p)
{
    struct reorders r = {.p = p};
    const bool channels_last = gains_from_channels_last(p);
    if (channels_last) {
        find_users(&r);
        reorder_outputs(&r);
        reorder_inputs(&r);
        put_reorders(&r);
    }
    plan_count(p);
    mark_fixed(p);
    find_halos(p);
    for (int i = 0; i < p->nallocations; i++) {
        struct allocation *s = &p->allocations[i];
        if (s->t && s->root == s->t) place_root(s, channels_last && !s->fixed);
    }
    for (int i = 0; i < p->nallocations; i++)
        if (p->allocations[i].t && p->allocations[i].root != p->allocations[i].t) place_part(p, &p->allocations[i]);
    return ctx_check(p->ctx);
}
