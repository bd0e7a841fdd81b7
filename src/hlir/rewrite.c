/* Copies loops with changes: a map of index variables, a map of tensors, and a function that replaces reads. Every node
 * goes through the constructors again, which fold (algebra.c). */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "hlir/loops.h"

/* -- nodes */

#define FEW 8 /* parts of a list that need no allocation */

static bool is_list(const struct ex *e)
{
    return e->kind == EX_READ || e->kind == EX_CALL || e->kind == EX_AND || e->kind == EX_OR;
}

static int32_t *room_for(struct loops *loops, int n, int32_t *few)
{
    return n <= FEW ? few : NEW_ARRAY(loops->arena, int32_t, n);
}

/* A node like `e` with other children: a list of n, or a; and b. */
static int32_t rebuild(struct loops *loops, const struct ex *e, int n, const int32_t *list, int32_t a, int32_t b)
{
    switch (e->kind) {
    case EX_INT: return ex_int(loops, e->u.i);
    case EX_REAL: return ex_real(loops, e->u.r);
    case EX_NEG: return ex_neg(loops, a);
    case EX_TEST: return ex_test(loops, a);
    case EX_CMP: return ex_cmp(loops, (enum ex_cmp)e->op, a, b);
    case EX_READ: return ex_read(loops, e->tensor, ex_list(loops, n, list), b);
    case EX_CALL: return ex_call(loops, e->op, n, list);
    case EX_AND:
    case EX_OR: return ex_logic(loops, (enum ex_kind)e->kind, n, list);
    case EX_RED: return ex_red(loops, e->op, e->u.bound, a, b);
    default: assert(e->kind >= EX_ADD && e->kind <= EX_MOD); return ex_binary(loops, (enum ex_kind)e->kind, a, b);
    }
}

static int rewrite_nodes(const struct rewrite *r, int32_t first, int32_t *out)
{
    int n = 0;
    for (int32_t i = first; i; i = r->from->ex.at[i].next) out[n++] = rewrite_ex(r, i);
    return n;
}

int32_t rewrite_list(const struct rewrite *r, int32_t first)
{
    int32_t few[FEW], *list = room_for(r->to, ex_list_length(r->from, first), few);
    const int n = rewrite_nodes(r, first, list);
    return ex_list(r->to, n, list);
}

static uint64_t rewrite_bound(const struct rewrite *r, uint64_t bound)
{
    uint64_t out = 0;
    for (int i = 0; i < r->from->ivars.n; i++)
        if (bound >> i & 1) out |= ex_ivars(r->to, r->ivar[i]);
    return out;
}

/* maxat and minat count positions by index variable number. Does the map keep their order? Digits may replace an index
 * variable. */
static bool keeps_order(const struct rewrite *r, uint64_t bound)
{
    int last = -1;
    for (int i = 0; i < r->from->ivars.n; i++) {
        struct affine f;
        if (!(bound >> i & 1)) continue;
        if (!ex_affine(r->to, r->ivar[i], &f) || (f.n && (f.c || f.coef[f.n - 1] != 1))) return false;
        for (int k = 0; k < f.n; last = f.ivar[k++])
            if (f.ivar[k] < last || (k && f.coef[k] >= f.coef[k - 1])) return false;
    }
    return true;
}

static int32_t rewrite_red(const struct rewrite *r, const struct ex *e)
{
    int32_t map[LOOPS_MAX_IVARS];
    struct rewrite fresh = *r;
    if ((e->op == RED_MAXAT || e->op == RED_MINAT) && !keeps_order(r, e->u.bound)) {
        for (int i = 0, n = r->from->ivars.n; i < n; i++) {
            const struct loops_ivar ivar = r->from->ivars.at[i];
            const bool bound = e->u.bound >> i & 1;
            map[i] = bound ? ex_ivar(r->to, loops_ivar(r->to, ivar.name, ivar.size)) : r->ivar[i];
        }
        fresh.ivar = map;
        if (r->done) fresh.done = NEW_ARRAY(r->to->arena, int32_t, r->from->ex.n);
    }
    struct ex to = *e;
    to.u.bound = rewrite_bound(&fresh, e->u.bound);
    const int32_t guard = rewrite_ex(&fresh, e->a);
    return rebuild(r->to, &to, 0, NULL, guard, rewrite_ex(&fresh, e->b));
}

static int32_t rewrite_node(const struct rewrite *r, struct ex e)
{
    int32_t few[FEW];
    if (e.kind == EX_IVAR) {
        assert(r->ivar[e.tensor]);
        return r->ivar[e.tensor];
    }
    if (e.kind == EX_RED) return rewrite_red(r, &e);
    if (!is_list(&e)) {
        const int32_t a = rewrite_ex(r, e.a);
        return rebuild(r->to, &e, 0, NULL, a, rewrite_ex(r, e.b));
    }
    int32_t *list = room_for(r->to, ex_list_length(r->from, e.a), few);
    const int n = rewrite_nodes(r, e.a, list);
    const int32_t outside = rewrite_ex(r, e.b);
    const int32_t read = e.kind == EX_READ && r->read ? r->read(r->user, r->to, &e, list, n, outside) : 0;
    if (read) return read;
    if (e.kind == EX_READ && r->tensor) {
        assert(r->tensor[e.tensor] >= 0);
        e.tensor = (uint16_t)r->tensor[e.tensor];
    }
    return rebuild(r->to, &e, n, list, 0, outside);
}

int32_t rewrite_ex(const struct rewrite *r, int32_t node)
{
    if (!node || (r->done && r->done[node])) return node ? r->done[node] : 0;
    const int32_t made = rewrite_node(r, r->from->ex.at[node]); /* a copy: `to` may be `from`, whose array may move */
    if (r->done) r->done[node] = made;
    return made;
}

int32_t ex_copy(struct loops *to, const struct loops *from, int32_t node, const int32_t *ivar_map,
                const int *tensor_map)
{
    struct rewrite r = {.to = to, .from = from, .ivar = ivar_map, .tensor = tensor_map};
    r.done = NEW_ARRAY(to->arena, int32_t, from->ex.n);
    return rewrite_ex(&r, node);
}

int32_t ex_map(struct loops *loops, int32_t node, ex_change change, void *user)
{
    if (!node) return 0;
    const struct ex e = loops->ex.at[node];
    const bool list = is_list(&e);
    int32_t few[FEW], *part = room_for(loops, list ? ex_list_length(loops, e.a) : 0, few);
    int n = 0;
    bool changed = false;
    for (int32_t i = list ? e.a : 0; i; i = loops->ex.at[i].next, n++) {
        part[n] = ex_map(loops, i, change, user);
        changed |= part[n] != i;
    }
    const int32_t a = list ? 0 : ex_map(loops, e.a, change, user), b = ex_map(loops, e.b, change, user);
    changed |= b != e.b || (!list && a != e.a);
    return change(user, loops, changed ? rebuild(loops, &e, n, part, a, b) : node);
}

struct replacement {
    int32_t old, with;
};

static int32_t replace(void *user, struct loops *loops, int32_t node)
{
    const struct replacement *r = user;
    return ex_equal(loops, node, r->old) ? r->with : node;
}

int32_t ex_replace(struct loops *loops, int32_t node, int32_t old, int32_t with)
{
    return ex_map(loops, node, replace, &(struct replacement){old, with});
}

/* -- statements and tensors */

void rewrite_ivars(struct loops *to, const struct loops *from, int32_t *ivar)
{
    for (int i = 0; i < from->ivars.n; i++)
        ivar[i] = ex_ivar(to, loops_ivar(to, from->ivars.at[i].name, from->ivars.at[i].size));
}

static struct loops_stmt rewritten(const struct rewrite *r, const struct loops_stmt *from)
{
    struct loops_stmt s = *from;
    for (int o = 0; o < s.nout; o++) s.out[o] = (uint16_t)r->tensor[s.out[o]];
    s.index = rewrite_list(r, s.index);
    s.value = rewrite_ex(r, s.value);
    if (s.scan_step) s.scan_ivar = (uint8_t)r->to->ex.at[r->ivar[s.scan_ivar]].tensor;
    return s;
}

static void rewrite_some(const struct rewrite *r, int first, int n)
{
    for (int i = first; i < first + n; i++) loops_stmt(r->to, rewritten(r, &r->from->stmts.at[i]));
}

void rewrite_stmts(const struct rewrite *r)
{
    rewrite_some(r, 0, r->from->stmts.n);
}

int rewrite_tensor(struct loops *to, const struct loops *from, int i)
{
    const struct loops_tensor *t = &from->tensors.at[i];
    if (t->user) {
        for (int k = 0; k < to->tensors.n; k++)
            if (to->tensors.at[k].user == t->user) return k;
    }
    return loops_tensor_like(to, t);
}

/* -- mixed-radix digits */

const struct loops *rewrite_split_ivars(const struct loops *loops)
{
    struct mixed_radix *d = NEW(loops->arena, struct mixed_radix);
    d->loops = loops;
    for (int i = 0; i < loops->stmts.n; i++) {
        if (loops->stmts.at[i].scan_step) d->bad |= UINT64_C(1) << loops->stmts.at[i].scan_ivar;
        radix_find(d, loops->stmts.at[i].value);
    }
    int found = 0, room = LOOPS_MAX_IVARS - loops->ivars.n, cuts[LOOPS_MAX_IVARS] = {0};
    for (int i = 0; i < loops->ivars.n; i++) {
        int n = radix_cuts(d, i);
        cuts[i] = n <= room ? n : 0;
        room -= cuts[i];
        found += cuts[i];
    }
    if (!found) return loops;
    struct loops *to = loops_create(loops->arena, loops->name);
    int32_t ivar[LOOPS_MAX_IVARS];
    int *tensor = NEW_ARRAY(loops->arena, int, loops->tensors.n + 1);
    for (int i = 0; i < loops->ivars.n; i++) {
        ivar[i] = cuts[i] ? radix_ivars(d, i, to)
                          : ex_ivar(to, loops_ivar(to, loops->ivars.at[i].name, loops->ivars.at[i].size));
    }
    for (int i = 0; i < loops->tensors.n; i++) tensor[i] = rewrite_tensor(to, loops, i);
    rewrite_stmts(&(struct rewrite){.to = to, .from = loops, .ivar = ivar, .tensor = tensor});
    return to;
}

/* -- temporaries that do not vary along a dimension */

struct narrow {
    const struct loops *from;
    uint32_t *gone; /* by tensor: dimensions to drop */
    int *tensor;
};

/* A temporary that its only statement writes, and that is read inside of its dimensions alone. */
static void find_unique(const struct loops *loops, bool *unique)
{
    for (int i = 0; i < loops->tensors.n; i++) unique[i] = loops->tensors.at[i].role == LOOPS_TEMP;
    for (int i = 1; i < loops->ex.n; i++)
        if (loops->ex.at[i].kind == EX_READ && loops->ex.at[i].b) unique[loops->ex.at[i].tensor] = false;
    int *writes = NEW_ARRAY(loops->arena, int, loops->tensors.n + 1);
    for (int i = 0; i < loops->stmts.n; i++)
        for (int o = 0; o < loops->stmts.at[i].nout; o++)
            if (writes[loops->stmts.at[i].out[o]]++ || loops->stmts.at[i].scan_step)
                unique[loops->stmts.at[i].out[o]] = false;
}

/* The dimensions of what the statement writes that its value and the other dimensions do not vary with. An empty one
 * stays, because its value is never computed. */
static uint32_t unused_dims(const struct loops *loops, const struct loops_stmt *s)
{
    uint32_t gone = 0;
    int d = 0;
    for (int32_t i = s->index; i; i = loops->ex.at[i].next, d++) {
        const uint64_t own = ex_ivars(loops, i);
        uint64_t others = ex_ivars(loops, s->value);
        for (int32_t k = s->index; k; k = loops->ex.at[k].next)
            if (k != i) others |= ex_ivars(loops, k);
        if (own && !(own & others) && size_le(1, ivars_size(loops, own))) gone |= UINT32_C(1) << d;
    }
    return gone;
}

static int32_t narrow_list(struct loops *to, uint32_t gone, int n, const int32_t *index)
{
    int32_t few[FEW], *kept = room_for(to, n, few);
    int left = 0;
    for (int d = 0; d < n; d++)
        if (!(gone >> d & 1)) kept[left++] = index[d];
    return ex_list(to, left, kept);
}

static int32_t narrow_read(void *user, struct loops *to, const struct ex *read, const int32_t *index, int nindex,
                           int32_t outside)
{
    const struct narrow *w = user;
    const uint32_t gone = w->gone[read->tensor];
    (void)outside;
    return gone ? ex_read(to, w->tensor[read->tensor], narrow_list(to, gone, nindex, index), 0) : 0;
}

static void narrow_tensors(struct loops *to, const struct narrow *w)
{
    for (int i = 0; i < w->from->tensors.n; i++) {
        w->tensor[i] = rewrite_tensor(to, w->from, i);
        struct loops_tensor t = to->tensors.at[w->tensor[i]];
        int n = 0;
        for (int d = 0; d < t.ndim; d++)
            if (!(w->gone[i] >> d & 1)) t.shape[n++] = t.shape[d];
        t.ndim = (uint8_t)n;
        loops_set_tensor(to, w->tensor[i], t);
    }
}

static const struct loops *narrow_once(const struct loops *loops)
{
    struct narrow w = {.from = loops,
                       .gone = NEW_ARRAY(loops->arena, uint32_t, loops->tensors.n + 1),
                       .tensor = NEW_ARRAY(loops->arena, int, loops->tensors.n + 1)};
    bool *unique = NEW_ARRAY(loops->arena, bool, loops->tensors.n + 1), any = false;
    find_unique(loops, unique);
    for (int i = 0; i < loops->stmts.n; i++) {
        const struct loops_stmt *s = &loops->stmts.at[i];
        bool all = true;
        for (int o = 0; o < s->nout; o++) all &= unique[s->out[o]];
        const uint32_t gone = all ? unused_dims(loops, s) : 0;
        for (int o = 0; o < s->nout; o++) w.gone[s->out[o]] = gone;
        any |= gone != 0;
    }
    if (!any) return loops;
    struct loops *to = loops_create(loops->arena, loops->name);
    int32_t ivar[LOOPS_MAX_IVARS];
    rewrite_ivars(to, loops, ivar);
    narrow_tensors(to, &w);
    const struct rewrite r = {
        .to = to, .from = loops, .ivar = ivar, .tensor = w.tensor, .read = narrow_read, .user = &w};
    for (int i = 0; i < loops->stmts.n; i++) {
        int32_t index[SOL_MAX_DIMS];
        struct loops_stmt s = rewritten(&r, &loops->stmts.at[i]);
        const uint32_t gone = w.gone[loops->stmts.at[i].out[0]];
        int n = 0;
        for (int32_t k = s.index; k && gone; k = to->ex.at[k].next) index[n++] = k;
        if (gone) s.index = narrow_list(to, gone, n, index);
        loops_stmt(to, s);
    }
    return to;
}

const struct loops *rewrite_narrow(const struct loops *loops)
{
    for (const struct loops *last = NULL; last != loops;) { /* one may read another */
        last = loops;
        loops = narrow_once(loops);
    }
    return loops;
}

/* -- parts */

struct seen {
    const struct rewrite_part *all;
    uint64_t ivars;
    int n; /* tensors */
};

static void see_tensor(struct seen *s, int tensor)
{
    if (s->all->map[tensor] >= 0) return;
    s->all->map[tensor] = 0;
    s->all->seen[s->n++] = tensor;
}

static void seen_visit(void *user, int32_t node)
{
    struct seen *s = user;
    const struct ex *e = &s->all->loops->ex.at[node];
    if (e->kind == EX_READ) see_tensor(s, e->tensor);
    if (e->kind == EX_IVAR) s->ivars |= UINT64_C(1) << e->tensor;
    if (e->kind == EX_RED) s->ivars |= e->u.bound;
}

static int ascending(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

struct rewrite_part rewrite_parts(const struct loops *loops)
{
    const int n = loops->tensors.n;
    struct rewrite_part all = {
        .loops = loops, .map = NEW_ARRAY(loops->arena, int, n + 1), .seen = NEW_ARRAY(loops->arena, int, n + 1)};
    for (int i = 0; i < n; i++) all.map[i] = -1;
    return all;
}

struct loops *rewrite_part(const struct rewrite_part *all, int first, int n)
{
    const struct loops *loops = all->loops;
    struct seen s = {.all = all};
    for (int i = first; i < first + n; i++) {
        const struct loops_stmt *st = &loops->stmts.at[i];
        for (int o = 0; o < st->nout; o++) see_tensor(&s, st->out[o]);
        for (int32_t k = st->index; k; k = loops->ex.at[k].next) ex_walk(loops, k, seen_visit, &s);
        ex_walk(loops, st->value, seen_visit, &s);
    }
    qsort(all->seen, (size_t)s.n, sizeof *all->seen, ascending);
    struct loops *to = loops_create(loops->arena, loops->name);
    int32_t ivar[LOOPS_MAX_IVARS] = {0};
    for (int i = 0; i < loops->ivars.n; i++)
        if (s.ivars >> i & 1) ivar[i] = ex_ivar(to, loops_ivar(to, loops->ivars.at[i].name, loops->ivars.at[i].size));
    for (int i = 0; i < s.n; i++) all->map[all->seen[i]] = rewrite_tensor(to, loops, all->seen[i]);
    rewrite_some(&(struct rewrite){.to = to, .from = loops, .ivar = ivar, .tensor = all->map}, first, n);
    for (int i = 0; i < s.n; i++) all->map[all->seen[i]] = -1;
    return to;
}

struct loops *rewrite_sweep(const struct loops *loops)
{
    const struct rewrite_part all = rewrite_parts(loops);
    return rewrite_part(&all, 0, loops->stmts.n);
}

/* -- questions */

struct find {
    const struct loops *loops;
    int tensor;
    bool found;
};

static void find_read(void *user, int32_t node)
{
    struct find *f = user;
    if (f->loops->ex.at[node].kind == EX_READ && f->loops->ex.at[node].tensor == f->tensor) f->found = true;
}

static bool is_reduction(const struct loops *loops, int32_t node)
{
    return loops->ex.at[node].kind == EX_RED;
}

bool rewrite_has_reduction(const struct loops *loops, int32_t node)
{
    return ex_any(loops, node, is_reduction);
}

struct reductions {
    const struct loops *loops;
    int32_t first;
    int n;
};

static void see_reduction(void *user, int32_t node)
{
    struct reductions *r = user;
    if (is_reduction(r->loops, node) && !r->n++) r->first = node;
}

int rewrite_reductions(const struct loops *loops, int32_t node, int32_t *out_first)
{
    struct reductions r = {.loops = loops};
    ex_walk(loops, node, see_reduction, &r);
    *out_first = r.first;
    return r.n;
}

bool rewrite_reads(const struct loops *loops, int32_t node, int tensor)
{
    struct find f = {.loops = loops, .tensor = tensor};
    ex_walk(loops, node, find_read, &f);
    return f.found;
}
