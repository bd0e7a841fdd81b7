/* Turns layers into units: one for each layer, or one for each of its parts (distribute.c). */
#include "plan/plan.h"

#include <string.h>

struct allocation *plan_allocation(struct plan *p, const struct sol_tensor *t)
{
    return &p->allocations[t->id];
}

struct sol_tensor *plan_tensor(struct plan *p, const char *name, enum sol_dtype type, int ndim, const int64_t *shape)
{
    struct sol_tensor *t = graph_tensor(p->g, TENSOR_VALUE, name, type, ndim, shape);
    if (t->id >= p->nallocations) {
        int room = t->id * 2 + 64;
        struct allocation *allocations = NEW_ARRAY(p->arena, struct allocation, room);
        memcpy(allocations, p->allocations, (size_t)p->nallocations * sizeof *allocations);
        p->allocations = allocations;
        p->nallocations = room;
    }
    p->allocations[t->id].t = p->allocations[t->id].root = t;
    return t;
}

/* The anchor: the first statement with a reduction, otherwise statement 0. Also tells whether it is a contraction. */
static int unit_anchor(const struct loops *loops, bool *out_contraction)
{
    int anchor = -1;
    *out_contraction = false;
    for (int i = 0; i < loops->stmts.n; i++) {
        *out_contraction |= ex_any(loops, loops->stmts.at[i].value, ex_is_contraction);
        if (anchor < 0 && rewrite_has_reduction(loops, loops->stmts.at[i].value)) anchor = i;
    }
    return anchor < 0 ? 0 : anchor;
}

bool plan_prepared(const struct allocation *s)
{
    return s->t->role == TENSOR_VALUE && s->program == PROGRAM_PREPARE;
}

struct unit *plan_unit(struct plan *p, int at, enum program program, const struct loops *loops, struct sol_layer *layer,
                       const char *label)
{
    struct unit *u = NEW(p->arena, struct unit);
    *u = (struct unit){.loops = loops, .layer = layer, .label = label, .program = program};
    unit_loops(u, loops);
    for (int i = 0; i < loops->tensors.n; i++)
        if (loops->tensors.at[i].role == LOOPS_OUTPUT) plan_allocation(p, loops->tensors.at[i].user)->program = program;
    struct unit *last = u;
    PUSH(p->arena, p->units, last);
    for (int i = p->units.n - 1; i > at && at >= 0; i--) {
        p->units.at[i] = p->units.at[i - 1];
        p->units.at[i - 1] = u;
    }
    return u;
}

void unit_loops(struct unit *u, const struct loops *loops)
{
    u->loops = loops;
    u->anchor = unit_anchor(loops, &u->contraction);
}

void plan_count(struct plan *p)
{
    for (int i = 0; i < p->nallocations; i++) {
        p->allocations[i].writers = p->allocations[i].readers = 0;
        p->allocations[i].writer = NULL;
        p->allocations[i].opaque = false;
    }
    for (int i = 0; i < p->g->outputs.n; i++) plan_allocation(p, p->g->outputs.at[i].t)->readers++;
    for (int i = 0; i < p->units.n; i++) {
        struct unit *u = p->units.at[i];
        if (u->dead) continue;
        for (int k = 0; k < u->loops->tensors.n; k++) {
            const struct loops_tensor *t = &u->loops->tensors.at[k];
            if (!t->user || t->role == LOOPS_TEMP) continue;
            struct allocation *s = plan_allocation(p, t->user);
            s->opaque |= u->opaque;
            if (t->role == LOOPS_OUTPUT) {
                s->writers++;
                s->writer = u;
            } else {
                s->readers++;
            }
        }
    }
    for (int i = 0; i < p->nallocations; i++) { /* a reader of a tensor reads its parts, too */
        struct allocation *s = &p->allocations[i];
        if (s->t && s->root != s->t) s->readers += plan_allocation(p, s->root)->readers;
    }
}

/* The layer's loops. Their tensors refer to the graph's tensors. */
static struct loops *layer_loops(struct plan *p, const struct sol_layer *l, const char *label)
{
    struct loops *to = loops_copy(p->scratch, l->loops);
    int in = 0, out = 0;
    for (int i = 0; i < to->tensors.n; i++) {
        if (to->tensors.at[i].role == LOOPS_INPUT) {
            while (in < l->nin && !l->in[in]) in++;
            loops_set_user(to, i, l->in[in++]);
        } else if (to->tensors.at[i].role == LOOPS_OUTPUT) {
            loops_set_user(to, i, l->out[out++]);
        }
    }
    for (int i = 0; i < to->stmts.n; i++) {
        struct loops_stmt s = to->stmts.at[i];
        s.label = label;
        loops_set_stmt(to, i, s);
    }
    return to;
}

struct literals {
    const struct loops *loops;
};

/* A constant with equal elements becomes a number. */
static int32_t literal_read(void *user, struct loops *to, const struct ex *read, const int32_t *index, int nindex,
                            int32_t outside)
{
    const struct literals *from = user;
    const struct sol_tensor *t = from->loops->tensors.at[read->tensor].user;
    double v;
    (void)index, (void)nindex;
    if (outside || !t || t->role != TENSOR_CONST || !tensor_uniform(t, &v)) return 0;
    if (dtype_def(t->dtype)->is_float) return ex_real(to, v);
    return v == (double)(int64_t)v && v < 1e15 && v > -1e15 ? ex_int(to, (int64_t)v) : 0;
}

/* If the same graph tensor is two inputs of a layer (x*x), it also becomes one tensor of the loops. */
static const struct loops *put_literals(const struct loops *loops)
{
    struct loops *to = loops_create(loops->arena, loops->name);
    int32_t ivar[LOOPS_MAX_IVARS];
    int *tensor = NEW_ARRAY(loops->arena, int, loops->tensors.n + 1);
    rewrite_ivars(to, loops, ivar);
    for (int i = 0; i < loops->tensors.n; i++) tensor[i] = rewrite_tensor(to, loops, i);
    struct literals from = {loops};
    rewrite_stmts(&(struct rewrite){
        .to = to, .from = loops, .ivar = ivar, .tensor = tensor, .read = literal_read, .user = &from});
    return rewrite_sweep(to);
}

/* Labels are in comments of generated code, so text from the user's model must not end a comment. */
static const char *layer_label(struct plan *p, const struct sol_layer *l)
{
    if (!l->name[0]) return l->def->name;
    char *label = arena_printf(p->arena, "%s %s", l->def->name, l->name);
    for (char *c = label; *c; c++)
        if (*c < ' ' || *c > '~' || *c == '"' || *c == '\\' || (*c == '*' && c[1] == '/')) *c = '_';
    return label;
}

static void find_index_read(void *user, int32_t node)
{
    const struct loops **l = user;
    if (*l && (*l)->ex.at[node].kind == EX_READ) *l = NULL;
}

/* Is it a copy of one element at an index that does not depend on data, or a number that the type can hold? */
static bool copies(const struct loops *loops, int32_t value, enum sol_dtype type)
{
    const struct ex *e = &loops->ex.at[value];
    if (e->kind == EX_INT) return type == SOL_I64 || (e->u.i >= 0 && e->u.i <= 1);
    if (e->kind == EX_REAL) return type == SOL_F64 || (type == SOL_F32 && e->u.r == (double)(float)e->u.r);
    if (e->kind != EX_READ || loops->tensors.at[e->tensor].dtype != type) return false;
    const struct loops *plain = loops;
    for (int32_t i = e->a; i; i = loops->ex.at[i].next) ex_walk(loops, i, find_index_read, &plain);
    return plain && (!e->b || copies(loops, e->b, type));
}

/* Are the loops a view: do they only copy elements? */
static bool is_view(const struct loops *loops)
{
    for (int i = 0; i < loops->stmts.n; i++) {
        const struct loops_stmt *s = &loops->stmts.at[i];
        if (s->nout != 1 || s->scan_step || !copies(loops, s->value, loops->tensors.at[s->out[0]].dtype)) return false;
    }
    return true;
}

static void add_units(struct plan *p, struct sol_layer *l, enum program program)
{
    const char *label = layer_label(p, l);
    const struct loops *loops = layer_loops(p, l, label);
    bool opaque = l->def->flags & LAYER_OPAQUE;
    if (!opaque) loops = plan_tighten(put_literals(loops));
    const struct loops **parts = NEW_ARRAY(p->scratch, const struct loops *, loops->stmts.n + 1);
    const int n = plan_distribute(p, loops, parts);
    for (int i = 0; i < n; i++) {
        const struct loops *part = parts[i];
        if (!opaque) part = plan_hoist(p, part, &(struct unit){.program = program, .layer = l, .label = label}, NULL);
        struct unit *u = plan_unit(p, -1, program, part, l, label);
        u->opaque = opaque;
        u->view = !opaque && is_view(u->loops);
    }
}

sol_status plan_units(struct plan *p)
{
    uint8_t *program = NEW_ARRAY(p->scratch, uint8_t, p->g->nlayers + 1);
    TRY(graph_programs(p->g, program));
    for (int i = 0; i < PROGRAMS; i++)
        for (struct sol_layer *l = p->g->first; l; l = l->next)
            if (program[l->id] == i) add_units(p, l, i);
    return ctx_check(p->ctx);
}
