/* Fuses element-wise units. A unit that computes one element from one element of t (and others) becomes an epilogue of
 * the unit that computes t, if t is the last of its operands to be computed and has no other reader. Otherwise, if its
 * only reader is a reduction that reads each element once, the reduction computes it inside. */
#include "plan/plan.h"

#include <string.h>

#define FUSE_MAX_STMTS 24

static bool is_map(const struct unit *u)
{
    const struct loops *loops = u->loops;
    return !u->opaque && loops->stmts.n == 1 && loops->stmts.at[0].nout == 1 && !loops->stmts.at[0].scan_step &&
           !rewrite_has_reduction(loops, loops->stmts.at[0].value);
}

struct reading {
    const struct loops *loops;
    int tensor;
    int32_t index; /* of the first read met */
    bool same;
};

static void reading_visit(void *user, int32_t node)
{
    struct reading *r = user;
    const struct ex *e = &r->loops->ex.at[node];
    if (e->kind != EX_READ || e->tensor != r->tensor) return;
    if (e->b) r->same = false;
    if (!r->index) {
        r->index = e->a;
        return;
    }
    int32_t a = r->index, b = e->a;
    for (; a && b; a = r->loops->ex.at[a].next, b = r->loops->ex.at[b].next)
        if (!ex_equal(r->loops, a, b)) r->same = false;
}

bool plan_reads_plainly(const struct loops *loops, int32_t value, int t, uint64_t ivars, int32_t *out_index)
{
    struct reading r = {.loops = loops, .tensor = t, .same = true};
    ex_walk(loops, value, reading_visit, &r);
    uint64_t seen = 0;
    for (int32_t i = r.index; i && r.same; i = loops->ex.at[i].next) {
        const struct ex *e = &loops->ex.at[i];
        if (e->kind == EX_INT) continue;
        if (e->kind != EX_IVAR || seen >> e->tensor & 1) return false;
        seen |= UINT64_C(1) << e->tensor;
    }
    *out_index = r.index;
    return r.same && seen == ivars;
}

bool plan_covers(const struct loops *loops, int t, int32_t index)
{
    int d = 0;
    for (int32_t i = index; i; i = loops->ex.at[i].next, d++) {
        const struct ex *e = &loops->ex.at[i];
        int64_t size = e->kind == EX_IVAR ? loops->ivars.at[e->tensor].size : 1;
        if (size != loops->tensors.at[t].shape[d]) return false;
    }
    return true;
}

static int find_tensor(const struct loops *loops, const void *user)
{
    for (int i = 0; i < loops->tensors.n; i++)
        if (loops->tensors.at[i].user == user) return i;
    return -1;
}

static const struct loops_stmt *writer_of(const struct loops *loops, int tensor)
{
    const struct loops_stmt *found = NULL;
    for (int i = 0; i < loops->stmts.n; i++)
        for (int o = 0; o < loops->stmts.at[i].nout; o++)
            if (loops->stmts.at[i].out[o] == tensor) {
                if (found) return NULL;
                found = &loops->stmts.at[i];
            }
    return found;
}

/* Does the statement write the whole tensor? A part of a Concat does not. */
static bool writes_all(const struct loops *loops, const struct loops_stmt *s, int tensor)
{
    return ivars_size(loops, stmt_ivars(loops, s)) == loops_elements(&loops->tensors.at[tensor]);
}

/* Appends u to `into`, through tensor t of u. The index variables of u become the indices at which `into` writes t. */
static const struct loops *append(struct plan *p, const struct unit *into, const struct unit *u, int t, int32_t index,
                                  bool keep)
{
    const struct loops *a = into->loops, *b = u->loops;
    int ta = find_tensor(a, b->tensors.at[t].user);
    const struct loops_stmt *w = ta < 0 ? NULL : writer_of(a, ta);
    if (!w || w->scan_step || a->stmts.n >= FUSE_MAX_STMTS || !writes_all(a, w, ta)) return NULL;
    struct loops *to = loops_copy(p->scratch, a);
    int32_t ivar[LOOPS_MAX_IVARS] = {0};
    int32_t from = w->index;
    for (int32_t i = index; i; i = b->ex.at[i].next, from = a->ex.at[from].next)
        if (b->ex.at[i].kind == EX_IVAR) ivar[b->ex.at[i].tensor] = from;
    int *tensor = NEW_ARRAY(p->scratch, int, b->tensors.n + 1);
    for (int i = 0; i < b->tensors.n; i++) tensor[i] = i == t ? ta : rewrite_tensor(to, b, i);
    loops_set_role(to, ta, keep ? LOOPS_OUTPUT : LOOPS_TEMP);
    rewrite_stmts(&(struct rewrite){.to = to, .from = b, .ivar = ivar, .tensor = tensor});
    return to;
}

const char *plan_join_labels(struct plan *p, const char *a, const char *b)
{
    if (strlen(a) > 160) return a;
    const char *name = strchr(b, ' ');
    const size_t na = strlen(a), nb = name ? strlen(name) : 0;
    const bool same = nb && na > nb && !strcmp(a + na - nb, name);
    return arena_printf(p->arena, "%.*s + %s", (int)(same ? na - nb : na), a, b);
}

/* The position in the order of execution at which a tensor is complete: that of its writer, or of the last writer of
 * its parts. */
static int place_of(struct plan *p, const struct sol_tensor *t, const int *place)
{
    return MAX(place[t->id], place[plan_allocation(p, t)->root->id]);
}

/* Which input of u is computed last? Returns the position of its unit, -1 if no unit computes it. */
static int last_operand(struct plan *p, const struct unit *u, const int *place, int *out_tensor)
{
    int last = -1;
    for (int k = 0; k < u->loops->tensors.n; k++) {
        const struct loops_tensor *t = &u->loops->tensors.at[k];
        if (t->role != LOOPS_INPUT || !t->user) continue;
        const struct sol_tensor *g = t->user;
        if (g->role != TENSOR_VALUE || place_of(p, g, place) <= last) continue;
        last = place_of(p, g, place);
        *out_tensor = k;
    }
    return last;
}

static bool absorb_up(struct plan *p, struct unit *u, const int *place)
{
    int t = -1, at = last_operand(p, u, place, &t);
    if (at < 0) return false;
    struct allocation *s = plan_allocation(p, u->loops->tensors.at[t].user);
    struct unit *into = p->units.at[at];
    if (into == u || into->dead || into->opaque || into->program != u->program || s->writers != 1) return false;
    if (loops_dims(u->loops) & ~loops_dims(into->loops) & graph_data_dims(p->g)) return false; /* set behind `into` */
    int32_t index;
    const struct loops_stmt *st = &u->loops->stmts.at[0];
    if (!plan_reads_plainly(u->loops, st->value, t, stmt_ivars(u->loops, st), &index) ||
        !plan_covers(u->loops, t, index))
        return false;
    const struct loops *loops = append(p, into, u, t, index, s->readers != 1 || s->output);
    if (!loops) return false;
    into->loops = loops;
    into->view = false;
    into->label = plan_join_labels(p, into->label, u->label);
    u->dead = true;
    return true;
}

/* -- down */

static int count_reading_stmts(const struct loops *loops, int tensor)
{
    int n = 0;
    for (int i = 0; i < loops->stmts.n; i++) n += rewrite_reads(loops, loops->stmts.at[i].value, tensor);
    return n;
}

struct typed {
    const struct loops *loops;
    int dtype;
    bool other; /* some value has another type; those of indices do not count */
};

static void see_value(void *user, int32_t node, double times)
{
    struct typed *w = user;
    const struct ex *e = &w->loops->ex.at[node];
    (void)times;
    if (e->kind == EX_READ && w->loops->tensors.at[e->tensor].dtype != w->dtype) w->other = true;
}

/* Computes the element-wise unit that makes tensor t inside of u, which reads each element of t once. All is in one
 * data type, because rounding in between would be lost. */
static const struct loops *inline_map(struct plan *p, const struct unit *u, int t, const struct unit *map)
{
    const struct loops *from = u->loops, *m = map->loops;
    const struct loops_stmt *writer = &m->stmts.at[0];
    if (count_reading_stmts(from, t) != 1) return NULL;
    int reader = 0;
    while (!rewrite_reads(from, from->stmts.at[reader].value, t)) reader++;
    struct reading r = {.loops = from, .tensor = t, .same = true};
    ex_walk(from, from->stmts.at[reader].value, reading_visit, &r);
    uint64_t read, loops_over = stmt_ivars(from, &from->stmts.at[reader]);
    if (!r.same || !plan_digits(from, t, r.index, &read)) return NULL;
    for (int32_t k = 1; k < from->ex.n; k++)
        if (from->ex.at[k].kind == EX_RED && rewrite_reads(from, k, t)) loops_over |= from->ex.at[k].u.bound;
    struct typed types = {.loops = m, .dtype = from->tensors.at[t].dtype};
    ex_walk_times(m, writer->value, 1, see_value, &types);
    if (read != loops_over || types.other || m->tensors.at[writer->out[0]].dtype != types.dtype) return NULL;
    if (from->tensors.at[from->stmts.at[reader].out[0]].dtype != types.dtype) return NULL;
    return plan_inlined(p, from, t, m, true);
}

static void absorb_down(struct plan *p, struct unit *u)
{
    for (int t = 0; t < u->loops->tensors.n; t++) {
        const struct loops_tensor *lt = &u->loops->tensors.at[t];
        if (lt->role != LOOPS_INPUT || !lt->user) continue;
        struct allocation *s = plan_allocation(p, lt->user);
        struct unit *map = s->writer;
        if (s->writers != 1 || s->readers != 1 || s->output || map->dead || map == u || map->program != u->program)
            continue;
        const struct loops *loops = is_map(map) ? inline_map(p, u, t, map) : NULL;
        if (!loops) continue;
        u->loops = loops;
        u->label = plan_join_labels(p, map->label, u->label);
        map->dead = true;
        t = -1;
    }
}

static bool is_read(const struct loops *loops, int tensor)
{
    for (int i = 0; i < loops->stmts.n; i++)
        if (rewrite_reads(loops, loops->stmts.at[i].value, tensor)) return true;
    return false;
}

static bool is_needed(const struct loops *loops, const struct loops_stmt *s)
{
    for (int o = 0; o < s->nout; o++)
        if (loops->tensors.at[s->out[o]].role != LOOPS_TEMP || is_read(loops, s->out[o])) return true;
    return false;
}

/* If only the extreme is needed and not its position (a pooling whose indices have no reader), the search for the
 * position is removed. */
static bool drop_position(struct loops *loops, struct loops_stmt *s)
{
    const struct ex e = loops->ex.at[s->value];
    if (s->nout != 2 || s->scan_step || e.kind != EX_RED || (e.op != RED_MAXAT && e.op != RED_MINAT)) return false;
    if (loops->tensors.at[s->out[1]].role != LOOPS_TEMP || is_read(loops, s->out[1])) return false;
    s->value = ex_red(loops, e.op == RED_MAXAT ? RED_MAX : RED_MIN, e.u.bound, e.a, e.b);
    s->nout = 1;
    return true;
}

/* Removes statements whose results have no reader, such as the last state of a recurrence if only its outputs are
 * used. */
static void drop_statements(struct unit *u, struct loops *loops)
{
    bool any = false;
    for (int i = loops->stmts.n - 1; i >= 0; i--) {
        struct loops_stmt s = loops->stmts.at[i];
        if (is_needed(loops, &s)) {
            if (!drop_position(loops, &s)) continue;
            loops_set_stmt(loops, i, s);
        } else {
            loops_drop_stmt(loops, i);
        }
        any = true;
    }
    u->dead = !loops->stmts.n;
    if (!u->dead) unit_loops(u, any ? rewrite_sweep(loops) : loops);
}

/* A tensor that only the unit's own epilogue reads stays in registers. */
static void drop_allocations(struct plan *p)
{
    plan_count(p);
    for (int i = 0; i < p->units.n; i++) {
        struct unit *u = p->units.at[i];
        if (u->dead || u->opaque) continue;
        struct loops *loops = loops_copy(p->scratch, u->loops);
        for (int k = 0; k < loops->tensors.n; k++) {
            const struct loops_tensor *t = &loops->tensors.at[k];
            if (t->role == LOOPS_OUTPUT && !plan_allocation(p, t->user)->readers) loops_set_role(loops, k, LOOPS_TEMP);
        }
        drop_statements(u, loops);
    }
}

sol_status plan_fuse_epilogues(struct plan *p)
{
    int *place = NEW_ARRAY(p->scratch, int, p->nallocations + 1);
    for (int i = 0; i < p->nallocations; i++) place[i] = -1;
    for (int i = 0; i < p->units.n; i++) {
        struct unit *u = p->units.at[i];
        if (u->dead) continue;
        int at = i, t;
        if (is_map(u)) {
            int last = last_operand(p, u, place, &t);
            if (absorb_up(p, u, place)) at = last;
        }
        const struct loops *loops = u->loops;
        for (int k = 0; k < loops->tensors.n; k++)
            if (loops->tensors.at[k].role == LOOPS_OUTPUT) {
                const struct allocation *s = plan_allocation(p, loops->tensors.at[k].user);
                place[s->t->id] = MAX(place[s->t->id], at); /* several units may write it */
                place[s->root->id] = MAX(place[s->root->id], at);
            }
    }
    drop_allocations(p);
    plan_count(p);
    for (int i = 0; i < p->units.n; i++) {
        struct unit *u = p->units.at[i];
        if (!u->dead && !u->opaque && !u->contraction) absorb_down(p, u);
    }
    return ctx_check(p->ctx);
}
