/* Sorts statements by dependence. A cycle of statements is a *scan* if it closes only through reads of earlier (or
 * later) steps along one index variable. The file finds strongly connected components (Tarjan's algorithm), then sorts
 * by dependence within a step. */
#include "hlir/opdef.h"

struct order {
    struct sol_ctx *ctx;
    struct loops *loops;
    struct loops_stmt *from; /* the original order */
    int n, count, top;
    int *index, *low, *stack;
    bool *on_stack, *in_group;
    uint64_t *needs; /* bit matrix: n rows of `words` */
    int words;
    sol_status status;
};

static void set_bit(uint64_t *bits, int i)
{
    bits[i / 64] |= 1ull << (i % 64);
}

static bool get_bit(const uint64_t *bits, int i)
{
    return bits[i / 64] >> (i % 64) & 1;
}

static bool writes(const struct loops_stmt *s, int tensor)
{
    for (int i = 0; i < s->nout; ++i)
        if (s->out[i] == tensor) return true;
    return false;
}

struct visitor {
    struct order *o;
    int reader;
    uint64_t *row;  /* the statements that it depends on; NULL: look for shifts */
    int ivar, step; /* of the scan; index variable -1: none so far */
};

static void need(void *user, int32_t node)
{
    struct visitor *v = user;
    const struct ex *e = &v->o->loops->ex.at[node];
    if (e->kind != EX_READ) return;
    for (int w = 0; w < v->o->n; ++w)
        if (writes(&v->o->from[w], e->tensor)) set_bit(v->row, w);
}

static void walk(struct order *o, int stmt, void (*visit)(void *, int32_t), struct visitor *v)
{
    const struct loops_stmt *s = &o->from[stmt];
    v->o = o;
    v->reader = stmt;
    for (int32_t i = s->index; i; i = o->loops->ex.at[i].next) ex_walk(o->loops, i, visit, v);
    ex_walk(o->loops, s->value, visit, v);
}

/* By how much, and along which index variable, a read of what `w` writes is shifted. False: it is not shifted. */
static bool shift(const struct loops *loops, const struct loops_stmt *w, int32_t first, int *out_ivar, int64_t *out_by)
{
    struct affine at, to;
    for (int32_t i = first, k = w->index; i && k; i = loops->ex.at[i].next, k = loops->ex.at[k].next) {
        if (loops->ex.at[k].kind != EX_IVAR || !ex_affine(loops, i, &at) || !ex_affine(loops, k, &to)) continue;
        if (at.n != 1 || at.ivar[0] != to.ivar[0] || at.coef[0] != 1 || !at.c) continue;
        *out_ivar = at.ivar[0];
        *out_by = at.c;
        return true;
    }
    return false;
}

/* Within a cycle, shifted reads give the scan's index variable and direction; the others are dependences within a
 * step. */
static void inside(void *user, int32_t node)
{
    struct visitor *v = user;
    struct order *o = v->o;
    const struct ex *e = &o->loops->ex.at[node];
    if (e->kind != EX_READ) return;
    for (int w = 0; w < o->n; ++w) {
        int ivar = -1;
        int64_t by = 0;
        if (!o->in_group[w] || !writes(&o->from[w], e->tensor)) continue;
        if (!shift(o->loops, &o->from[w], e->a, &ivar, &by)) {
            set_bit(v->row, w);
            continue;
        }
        int step = by < 0 ? 1 : -1;
        if (v->ivar >= 0 && (v->ivar != ivar || v->step != step) && !o->status)
            o->status =
                ctx_fail(o->ctx, SOL_ERR_UNSUPPORTED, "%s: a cycle over more than one index variable or direction (%s)",
                         o->loops->name, o->loops->tensors.at[e->tensor].name);
        v->ivar = ivar;
        v->step = step;
    }
}

static sol_status no_scan(struct order *o, int stmt)
{
    if (!o->status)
        o->status = ctx_fail(o->ctx, SOL_ERR_INVALID, "%s: %s depends on itself within a step", o->loops->name,
                             o->loops->tensors.at[o->from[stmt].out[0]].name);
    return o->status;
}

/* Adjacent scans over the same index variable must not look like one, so the second gets a new index variable. */
static void rename_ivar(struct loops *loops, int from, int to, struct loops_stmt *s)
{
    int32_t map[LOOPS_MAX_IVARS] = {0}, index[SOL_MAX_DIMS];
    int n = 0;
    for (int i = 0; i < loops->ivars.n; ++i) map[i] = ex_ivar(loops, i == from ? to : i);
    for (int32_t i = s->index; i; i = loops->ex.at[i].next) index[n++] = ex_copy(loops, loops, i, map, NULL);
    s->index = ex_list(loops, n, index);
    s->value = ex_copy(loops, loops, s->value, map, NULL);
}

static sol_status emit_scan(struct order *o, struct visitor *v, const int *sequence, int n)
{
    struct loops *loops = o->loops;
    int ivar = v->ivar;
    bool used = false;
    for (int i = 0; i < loops->stmts.n; ++i)
        used |= loops->stmts.at[i].scan_step && loops->stmts.at[i].scan_ivar == ivar;
    if (used && loops->ivars.n == LOOPS_MAX_IVARS)
        return ctx_fail(o->ctx, SOL_ERR_UNSUPPORTED, "%s: more than %d loops", loops->name, LOOPS_MAX_IVARS);
    if (used) {
        struct loops_ivar from = loops->ivars.at[ivar];
        ivar = loops_ivar(loops, from.name, from.size);
    }
    for (int i = 0; i < n; ++i) {
        struct loops_stmt s = o->from[sequence[i]];
        if (!(stmt_ivars(loops, &s) >> v->ivar & 1)) return no_scan(o, sequence[i]);
        if (used) rename_ivar(loops, v->ivar, ivar, &s);
        s.scan_ivar = (uint8_t)ivar;
        s.scan_step = (int8_t)v->step;
        loops_stmt(loops, s);
    }
    return SOL_OK;
}

/* Emits one strongly connected component; `group` is in the order of the definition. */
static sol_status emit(struct order *o, const int *group, int n)
{
    struct visitor v = {.ivar = -1};
    int *sequence = NEW_ARRAY(o->loops->arena, int, n), done = 0;
    uint64_t *now = NEW_ARRAY(o->loops->arena, uint64_t, (size_t)o->n * (size_t)o->words);
    if (n == 1 && !get_bit(o->needs + group[0] * o->words, group[0])) {
        loops_stmt(o->loops, o->from[group[0]]);
        return SOL_OK;
    }
    for (int i = 0; i < n; ++i) o->in_group[group[i]] = true;
    for (int i = 0; i < n; ++i) {
        v.row = now + group[i] * o->words;
        walk(o, group[i], inside, &v);
    }
    TRY(o->status);
    if (v.ivar < 0) return no_scan(o, group[0]);
    while (done < n) { /* within a step: by dependence */
        int found = -1;
        for (int i = 0; i < n && found < 0; ++i) {
            bool free = o->in_group[group[i]];
            for (int w = 0; free && w < o->n; ++w) free = !(o->in_group[w] && get_bit(now + group[i] * o->words, w));
            if (free) found = group[i];
        }
        if (found < 0) return no_scan(o, group[0]);
        o->in_group[found] = false;
        sequence[done++] = found;
    }
    return emit_scan(o, &v, sequence, n);
}

static void ascending(int *at, int n)
{
    for (int i = 1; i < n; ++i)
        for (int j = i; j > 0 && at[j] < at[j - 1]; --j) {
            int t = at[j];
            at[j] = at[j - 1];
            at[j - 1] = t;
        }
}

static void connect(struct order *o, int v)
{
    o->index[v] = o->low[v] = ++o->count;
    o->stack[o->top++] = v;
    o->on_stack[v] = true;
    for (int w = 0; w < o->n && !o->status; ++w) {
        if (!get_bit(o->needs + v * o->words, w)) continue;
        if (!o->index[w]) {
            connect(o, w);
            o->low[v] = MIN(o->low[v], o->low[w]);
        } else if (o->on_stack[w]) {
            o->low[v] = MIN(o->low[v], o->index[w]);
        }
    }
    if (o->low[v] != o->index[v] || o->status) return;
    int first = o->top;
    do o->on_stack[o->stack[--first]] = false;
    while (o->stack[first] != v);
    int n = o->top - first;
    int *group = arena_memdup(o->loops->arena, o->stack + first, (size_t)n * sizeof *group);
    o->top = first;
    ascending(group, n);
    o->status = emit(o, group, n);
}

sol_status loops_order(struct sol_ctx *ctx, struct loops *loops)
{
    struct order o = {.ctx = ctx,
                      .loops = loops,
                      .from =
                          arena_memdup(loops->arena, loops->stmts.at, (size_t)loops->stmts.n * sizeof *loops->stmts.at),
                      .n = loops->stmts.n,
                      .words = (loops->stmts.n + 63) / 64};
    struct arena *a = loops->arena;
    o.index = NEW_ARRAY(a, int, o.n + 1);
    o.low = NEW_ARRAY(a, int, o.n + 1);
    o.stack = NEW_ARRAY(a, int, o.n + 1);
    o.on_stack = NEW_ARRAY(a, bool, o.n + 1);
    o.in_group = NEW_ARRAY(a, bool, o.n + 1);
    o.needs = NEW_ARRAY(a, uint64_t, (size_t)o.n * (size_t)o.words + 1);
    loops_set_stmts(loops, 0, NULL);
    for (int i = 0; i < o.n; ++i) {
        struct visitor v = {.row = o.needs + i * o.words};
        walk(&o, i, need, &v);
    }
    for (int i = 0; i < o.n && !o.status; ++i)
        if (!o.index[i]) connect(&o, i);
    return o.status;
}
