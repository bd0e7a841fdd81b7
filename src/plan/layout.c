/* Where tensors lie: channels-last where there are channels and pixels, otherwise row-major; physical zero halos where
 * a window reads over the edge; reorders where a tensor of the user, row-major, is not what the kernels want. */
#include "plan/plan.h"

#define HALO_PIXELS 3

/* The order the purposes ask for: everything but channels, then channels. Identity if there are no pixels. */
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

/* Do two orders give the same memory? Dimensions of size 1 do not count. */
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

/* `to[L] = from[L]` */
static void copy_unit(struct plan *p, int at, enum program program, struct sol_tensor *to, struct sol_tensor *from,
                      struct sol_layer *layer)
{
    struct loops *l = loops_create(p->arena, "Reorder");
    int64_t shape[SOL_MAX_DIMS];
    int32_t index[2][SOL_MAX_DIMS];
    for (int d = 0; d < to->ndim; d++) {
        shape[d] = to->dim[d].size;
        int32_t letter = shape[d] == 1 ? 0 : ex_letter(l, loops_letter(l, arena_printf(p->arena, "A%d", d), shape[d]));
        index[0][d] = index[1][d] = letter ? letter : ex_int(l, 0);
    }
    int x = loops_tensor(l, "x", LOOPS_INPUT, from->dtype, from->ndim, shape);
    int y = loops_tensor(l, "y", LOOPS_OUTPUT, to->dtype, to->ndim, shape);
    l->tensors.at[x].user = from;
    l->tensors.at[y].user = to;
    struct loops_stmt s = {.nout = 1, .out = {(uint16_t)y}, .label = "reorder"};
    s.index = to->ndim ? ex_list(l, to->ndim, index[0]) : 0;
    s.value = ex_read(l, x, to->ndim ? ex_list(l, to->ndim, index[1]) : 0, 0);
    PUSH(p->arena, l->stmts, s);
    plan_unit(p, at, program, l, layer, s.label);
}

/* Every unit of a program that has `old` as an operand in `role` takes `with` instead. Returns the place of the first,
 * -1: there is none. */
static int retarget(struct plan *p, enum program program, const struct sol_tensor *old, struct sol_tensor *with,
                    int role)
{
    int first = -1;
    for (int i = p->units.n - 1; i >= 0; i--) {
        struct unit *u = p->units.at[i];
        for (int k = 0; u->program == program && !u->dead && k < u->loops->tensors.n; k++) {
            if (u->loops->tensors.at[k].user != old || u->loops->tensors.at[k].role != role) continue;
            u->loops->tensors.at[k].user = with;
            first = i;
        }
    }
    return first;
}

/* The purposes that the readers of a tensor of the user give its dimensions. */
static bool purposes_from_readers(struct plan *p, const struct sol_tensor *t, char *purpose)
{
    for (struct sol_layer *l = p->g->first; l; l = l->next) {
        const struct row *row = layer_row(l->def);
        for (int i = 0; row && i < l->nin; i++) {
            if (l->in[i] != t) continue;
            bool pixel = false;
            for (int d = 0; d < t->ndim; d++) {
                purpose[d] = row_purpose(row, false, i, d, t->ndim);
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

static struct sol_tensor *twin(struct plan *p, const struct sol_tensor *t, const char *purpose, const char *suffix)
{
    int64_t shape[SOL_MAX_DIMS];
    for (int d = 0; d < t->ndim; d++) shape[d] = t->dim[d].size;
    struct sol_tensor *n =
        plan_tensor(p, arena_printf(p->arena, "%s_%s", t->name ? t->name : "t", suffix), t->dtype, t->ndim, shape);
    for (int d = 0; d < t->ndim; d++) n->dim[d].purpose = purpose[d];
    return n;
}

/* The units of a program that read t, which lies in the user's memory, read a reordered copy of it. */
static void reorder_for(struct plan *p, enum program program, struct sol_tensor *t, const char *purpose)
{
    struct sol_tensor *n = twin(p, t, purpose, "inner");
    int first = retarget(p, program, t, n, LOOPS_INPUT);
    if (first >= 0) copy_unit(p, first, program, n, t, p->units.at[first]->layer);
}

/* A network's input that windows or contractions read goes through one reorder. Backward reorders it again: that takes
 * less memory than saving the copy, and little time. */
static void reorder_inputs(struct plan *p)
{
    for (int i = 0; i < p->g->inputs.n; i++) {
        struct sol_tensor *t = p->g->inputs.at[i];
        char purpose[SOL_MAX_DIMS];
        if (!plan_store(p, t)->readers || !purposes_from_readers(p, t, purpose)) continue;
        for (int program = PROGRAM_FORWARD; program < PROGRAMS; program++) reorder_for(p, program, t, purpose);
    }
}

/* The place behind the last unit that writes t: from there on its memory is free, once it was copied. */
static int behind_writers(const struct plan *p, const struct sol_tensor *t)
{
    for (int i = p->units.n - 1; i >= 0; i--) {
        const struct loops *l = p->units.at[i]->loops;
        for (int k = 0; k < l->tensors.n; k++)
            if (!p->units.at[i]->dead && l->tensors.at[k].user == t && l->tensors.at[k].role == LOOPS_OUTPUT)
                return i + 1;
    }
    return -1;
}

static void reorder_outputs(struct plan *p)
{
    for (int i = 0; i < p->g->outputs.n; i++) {
        struct sol_tensor *t = p->g->outputs.at[i].t;
        struct store *s = plan_store(p, t);
        char purpose[SOL_MAX_DIMS];
        int8_t want[SOL_MAX_DIMS], have[SOL_MAX_DIMS];
        own_purposes(t, purpose);
        natural_order(purpose, t->ndim, want);
        row_major(have, t->ndim);
        if (!s->writer || s->writer->opaque || same_order(t, want, have)) continue;
        const struct unit *writer = s->writer;
        if (s->program == PROGRAM_FORWARD) reorder_for(p, PROGRAM_BACKWARD, t, purpose);
        if (writer->move && s->readers == 1) continue;
        enum program program = writer->program;
        struct sol_tensor *n = twin(p, t, purpose, "inner");
        retarget(p, program, t, n, LOOPS_INPUT);
        retarget(p, program, t, n, LOOPS_OUTPUT);
        plan_store(p, n)->program = program;
        copy_unit(p, behind_writers(p, n), program, t, n, writer->layer);
    }
}

/* -- halos */

struct halo_visit {
    struct plan *p;
    const struct loops *l;
};

static void halo_of_read(void *user, int32_t node)
{
    struct halo_visit *h = user;
    const struct ex *e = &h->l->ex.at[node];
    if (e->kind != EX_READ || !e->b) return;
    const struct ex *outside = &h->l->ex.at[e->b];
    if (!(outside->kind == EX_INT && outside->u.i == 0) && !(outside->kind == EX_REAL && outside->u.r == 0)) return;
    const struct loops_tensor *t = &h->l->tensors.at[e->tensor];
    if (!t->user || t->role != LOOPS_INPUT) return;
    struct store *root = plan_store(h->p, plan_store(h->p, t->user)->root);
    if (root->fixed) return;
    int d = 0;
    int64_t low[SOL_MAX_DIMS], high[SOL_MAX_DIMS];
    for (int32_t i = e->a; i; i = h->l->ex.at[i].next, d++) {
        if (!ex_range(h->l, i, &low[d], &high[d])) return;
        low[d] = MAX(-low[d], 0);
        high[d] = MAX(high[d] - (t->shape[d] - 1), 0);
        if ((low[d] || high[d]) && plan_store(h->p, t->user)->alias_at[d]) return;
        if (low[d] > HALO_PIXELS || high[d] > HALO_PIXELS) return;
        if (t->shape[d] == 1) low[d] = high[d] = 0; /* the index of one element is written as 0, without a test */
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

static void lay_out(struct store *s)
{
    struct memory *m = &s->memory;
    int64_t stride = 1;
    for (int i = s->t->ndim - 1; i >= 0; i--) {
        int d = s->order[i];
        m->stride[d] = stride;
        stride *= m->halo_low[d] + s->t->dim[d].size + m->halo_high[d];
        s->origin += m->halo_low[d] * m->stride[d];
    }
    s->elements = stride;
}

static int alignment(int64_t bytes)
{
    int align = 64;
    while (align > 1 && bytes % align) align /= 2;
    return align;
}

static void place_part(struct plan *p, struct store *s)
{
    struct store *root = plan_store(p, s->root);
    s->memory = root->memory;
    s->origin = root->origin;
    for (int d = 0; d < s->t->ndim; d++) {
        s->origin += s->alias_at[d] * root->memory.stride[d];
        if (s->t->dim[d].size == root->t->dim[d].size) continue;
        s->memory.halo_low[d] = s->memory.halo_high[d] = 0;
    }
    s->memory.align = MIN(root->memory.align, alignment(s->origin * dtype_def(s->t->dtype)->bytes));
}

static void mark_fixed(struct plan *p)
{
    for (int i = 0; i < p->nstores; i++) {
        struct store *s = &p->stores[i];
        if (s->t) s->fixed = s->t->role != TENSOR_VALUE || s->output || plan_prepared(s) || s->opaque;
    }
}

void plan_place(struct store *s)
{
    char purpose[SOL_MAX_DIMS];
    own_purposes(s->t, purpose);
    if (s->fixed)
        row_major(s->order, s->t->ndim);
    else
        natural_order(purpose, s->t->ndim, s->order);
    s->memory.constant = plan_prepared(s) || s->t->role == TENSOR_PARAM || s->t->role == TENSOR_CONST;
    lay_out(s);
    /* memory of the user may begin anywhere that its type allows */
    bool ours = s->t->role == TENSOR_VALUE && !s->output;
    int bytes = dtype_def(s->t->dtype)->bytes;
    s->memory.align = ours ? alignment(s->origin * bytes) : bytes;
}

sol_status plan_layout(struct plan *p)
{
    plan_count(p);
    reorder_outputs(p);
    reorder_inputs(p);
    plan_count(p);
    mark_fixed(p);
    find_halos(p);
    for (int i = 0; i < p->nstores; i++)
        if (p->stores[i].t && p->stores[i].root == p->stores[i].t) plan_place(&p->stores[i]);
    for (int i = 0; i < p->nstores; i++)
        if (p->stores[i].t && p->stores[i].root != p->stores[i].t) place_part(p, &p->stores[i]);
    return ctx_check(p->ctx);
}
