/* Copies of loops with changes: expressions are immutable, so every change of the planner is a copy through a map of
 * letters, a map of tensors, and a function that says what a read becomes. */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

int32_t rewrite_list(const struct rewrite *r, int32_t first)
{
    int32_t nodes[64];
    int n = 0;
    for (int32_t i = first; i; i = r->from->ex.at[i].next) {
        int32_t node = rewrite_ex(r, i);
        if (n < COUNT_OF(nodes)) nodes[n++] = node;
    }
    return n ? ex_list(r->to, n, nodes) : 0;
}

static int32_t rewrite_read_node(const struct rewrite *r, struct ex e)
{
    int32_t index[SOL_MAX_DIMS] = {0};
    int n = 0;
    for (int32_t i = e.a; i; i = r->from->ex.at[i].next) index[n++] = rewrite_ex(r, i);
    int32_t outside = e.b ? rewrite_ex(r, e.b) : 0;
    if (r->read) {
        int32_t node = r->read(r->user, r->to, &e, index, n, outside);
        if (node) return node;
    }
    return ex_read(r->to, r->tensor[e.tensor], n ? ex_list(r->to, n, index) : 0, outside);
}

static uint64_t rewrite_bound(const struct rewrite *r, uint64_t bound)
{
    uint64_t out = 0;
    for (int i = 0; i < r->from->letters.n; i++)
        if (bound >> i & 1) out |= ex_letters(r->to, r->letter[i]);
    return out;
}

int32_t rewrite_ex(const struct rewrite *r, int32_t node)
{
    if (!node) return 0;
    struct ex e = r->from->ex.at[node];
    switch (e.kind) {
    case EX_INT: return ex_int(r->to, e.u.i);
    case EX_REAL: return ex_real(r->to, e.u.r);
    case EX_LETTER: return r->letter[e.tensor];
    case EX_NEG: return ex_neg(r->to, rewrite_ex(r, e.a));
    case EX_ADD:
    case EX_SUB:
    case EX_MUL:
    case EX_DIV:
    case EX_FLOOR:
    case EX_MOD: {
        int32_t a = rewrite_ex(r, e.a);
        return ex_binary(r->to, e.kind, a, rewrite_ex(r, e.b));
    }
    case EX_READ: return rewrite_read_node(r, e);
    case EX_CALL: {
        int32_t args[8];
        int n = 0;
        for (int32_t i = e.a; i; i = r->from->ex.at[i].next) args[n++] = rewrite_ex(r, i);
        return ex_call(r->to, e.op, n, args);
    }
    case EX_TEST: return ex_test(r->to, rewrite_ex(r, e.a));
    case EX_CMP: {
        int32_t a = rewrite_ex(r, e.a);
        return ex_cmp(r->to, e.op, a, rewrite_ex(r, e.b));
    }
    case EX_AND:
    case EX_OR: {
        int32_t conds[64];
        int n = 0;
        for (int32_t i = e.a; i && n < COUNT_OF(conds); i = r->from->ex.at[i].next) conds[n++] = rewrite_ex(r, i);
        return ex_logic(r->to, e.kind, n, conds);
    }
    case EX_RED: {
        int32_t guard = rewrite_ex(r, e.a);
        return ex_red(r->to, e.op, rewrite_bound(r, e.u.bound), guard, rewrite_ex(r, e.b));
    }
    default: return 0;
    }
}

void rewrite_letters(struct loops *to, const struct loops *from, int32_t *letter)
{
    for (int i = 0; i < from->letters.n; i++)
        letter[i] = ex_letter(to, loops_letter(to, from->letters.at[i].name, from->letters.at[i].size));
}

static void rewrite_some(const struct rewrite *r, int first, int n)
{
    for (int i = first; i < first + n; i++) {
        struct loops_stmt s = r->from->stmts.at[i];
        for (int o = 0; o < s.nout; o++) s.out[o] = (uint16_t)r->tensor[s.out[o]];
        s.index = rewrite_list(r, s.index);
        s.value = rewrite_ex(r, s.value);
        if (s.scan_step) s.scan_letter = (uint8_t)r->to->ex.at[r->letter[s.scan_letter]].tensor;
        PUSH(r->to->arena, r->to->stmts, s);
    }
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
    int k = loops_tensor(to, t->name, t->role, t->dtype, t->ndim, t->shape);
    to->tensors.at[k].table = t->table;
    to->tensors.at[k].user = t->user;
    return k;
}

/* -- digits */

struct loops *rewrite_split_letters(struct loops *l)
{
    struct digits *d = NEW(l->arena, struct digits);
    d->l = l;
    for (int i = 0; i < l->stmts.n; i++) {
        if (l->stmts.at[i].scan_step) d->bad |= UINT64_C(1) << l->stmts.at[i].scan_letter;
        digits_find(d, l->stmts.at[i].value);
    }
    int found = 0, room = LOOPS_MAX_LETTERS - l->letters.n, cuts[LOOPS_MAX_LETTERS] = {0};
    for (int i = 0; i < l->letters.n; i++) {
        int n = digits_cuts(d, i);
        cuts[i] = n <= room ? n : 0;
        room -= cuts[i];
        found += cuts[i];
    }
    if (!found) return l;
    struct loops *to = loops_create(l->arena, l->name);
    int32_t letter[LOOPS_MAX_LETTERS];
    int *tensor = NEW_ARRAY(l->arena, int, l->tensors.n + 1);
    for (int i = 0; i < l->letters.n; i++) {
        letter[i] = cuts[i] ? digits_letters(d, i, to)
                            : ex_letter(to, loops_letter(to, l->letters.at[i].name, l->letters.at[i].size));
    }
    for (int i = 0; i < l->tensors.n; i++) tensor[i] = rewrite_tensor(to, l, i);
    rewrite_stmts(&(struct rewrite){.to = to, .from = l, .letter = letter, .tensor = tensor});
    return to;
}

/* -- parts */

struct seen {
    const struct rewrite_part *all;
    uint64_t letters;
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
    const struct ex *e = &s->all->l->ex.at[node];
    if (e->kind == EX_READ) see_tensor(s, e->tensor);
    if (e->kind == EX_LETTER) s->letters |= UINT64_C(1) << e->tensor;
    if (e->kind == EX_RED) s->letters |= e->u.bound;
}

static int ascending(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

struct rewrite_part rewrite_parts(const struct loops *l)
{
    const int n = l->tensors.n;
    struct rewrite_part all = {.l = l, .map = NEW_ARRAY(l->arena, int, n + 1), .seen = NEW_ARRAY(l->arena, int, n + 1)};
    for (int i = 0; i < n; i++) all.map[i] = -1;
    return all;
}

struct loops *rewrite_part(const struct rewrite_part *all, int first, int n)
{
    const struct loops *l = all->l;
    struct seen s = {.all = all};
    for (int i = first; i < first + n; i++) {
        const struct loops_stmt *st = &l->stmts.at[i];
        for (int o = 0; o < st->nout; o++) see_tensor(&s, st->out[o]);
        for (int32_t k = st->index; k; k = l->ex.at[k].next) ex_walk(l, k, seen_visit, &s);
        ex_walk(l, st->value, seen_visit, &s);
    }
    qsort(all->seen, (size_t)s.n, sizeof *all->seen, ascending);
    struct loops *to = loops_create(l->arena, l->name);
    int32_t letter[LOOPS_MAX_LETTERS] = {0};
    for (int i = 0; i < l->letters.n; i++)
        if (s.letters >> i & 1)
            letter[i] = ex_letter(to, loops_letter(to, l->letters.at[i].name, l->letters.at[i].size));
    for (int i = 0; i < s.n; i++) all->map[all->seen[i]] = rewrite_tensor(to, l, all->seen[i]);
    rewrite_some(&(struct rewrite){.to = to, .from = l, .letter = letter, .tensor = all->map}, first, n);
    for (int i = 0; i < s.n; i++) all->map[all->seen[i]] = -1;
    return to;
}

struct loops *rewrite_sweep(struct loops *l)
{
    const struct rewrite_part all = rewrite_parts(l);
    return rewrite_part(&all, 0, l->stmts.n);
}

/* -- questions */

struct find {
    const struct loops *l;
    int tensor;
    bool found;
};

static void find_reduction(void *user, int32_t node)
{
    struct find *f = user;
    if (f->l->ex.at[node].kind == EX_RED) f->found = true;
}

static void find_read(void *user, int32_t node)
{
    struct find *f = user;
    if (f->l->ex.at[node].kind == EX_READ && f->l->ex.at[node].tensor == f->tensor) f->found = true;
}

bool rewrite_has_reduction(const struct loops *l, int32_t node)
{
    struct find f = {.l = l};
    ex_walk(l, node, find_reduction, &f);
    return f.found;
}

bool rewrite_reads(const struct loops *l, int32_t node, int tensor)
{
    struct find f = {.l = l, .tensor = tensor};
    ex_walk(l, node, find_read, &f);
    return f.found;
}
