/* How many dimensions each group of an operator definition has. Index variables that occur together in an index, a
 * comparison or a size rule have the same rank (union-find). Each input gives an equation. Rank rules, and then lists
 * among the attributes, decide the rest. An index variable of the body is a group if it occurs together with one. */
#include <string.h>

#include "hlir/bind.h"

struct ranks {
    struct bind *b;
    int parent[OPDEF_MAX_IVARS];
    int rank[OPDEF_MAX_IVARS]; /* of a class, at its root; -1: unknown so far */
    bool group[OPDEF_MAX_IVARS];
};

static int root(struct ranks *k, int i)
{
    while (k->parent[i] != i) i = k->parent[i] = k->parent[k->parent[i]];
    return i;
}

/* May the index variable be a group? */
static bool open_ivar(const struct ranks *k, int i)
{
    const struct opdef_ivar *ivar = &k->b->row->ivars.at[i];
    return ivar->base == i && (ivar->group || !ivar->head);
}

static void unite(struct ranks *k, uint64_t ivars)
{
    int first = -1;
    for (int i = 0; i < k->b->row->ivars.n; ++i) {
        if (!(ivars >> i & 1) || !open_ivar(k, i)) continue;
        if (first < 0) {
            first = root(k, i);
            continue;
        }
        int other = root(k, i);
        k->parent[other] = first;
        k->group[first] |= k->group[other];
    }
}

/* The index variables whose sizes a rule takes component by component. */
static uint64_t sizes_in(const struct opdef *r, int32_t node)
{
    const struct ex *e = &r->ex.at[node];
    uint64_t set = 0;
    if (!node || e->kind == OPDEF_PROD) return 0;
    if (e->kind == EX_SIZE) return 1ull << r->ivars.at[e->tensor].base;
    if (e->kind == EX_CALL || e->kind == EX_AND || e->kind == EX_OR) {
        for (int32_t i = e->a; i; i = r->ex.at[i].next) set |= sizes_in(r, i);
        return set;
    }
    return sizes_in(r, e->a) | sizes_in(r, e->b);
}

/* The length of the longest list among the attributes of an expression; -1: there is none. */
static int list_in(const struct ranks *k, int32_t node)
{
    const struct opdef *r = k->b->row;
    const struct ex *e = &r->ex.at[node];
    int n = -1;
    if (!node || e->kind == OPDEF_LEN || e->kind == EX_LIN) return -1;
    if (e->kind == EX_ATTR) {
        const struct opdef_attr *v = attrs_find(k->b->attrs, r->attrs.at[e->tensor]);
        return v && v->kind != ATTR_TEXT ? v->n : -1;
    }
    if (e->kind == EX_READ && r->tensors.at[e->tensor].role != OPDEF_TABLE) return -1;
    if (e->kind == EX_CALL || e->kind == EX_READ) {
        for (int32_t i = e->a; i; i = r->ex.at[i].next) n = MAX(n, list_in(k, i));
        return n;
    }
    return MAX(list_in(k, e->a), list_in(k, e->b));
}

/* Calls `link` for every index (with the tensor's index variable at that place), comparison and size rule. */
static void each_link(struct ranks *k, void (*link)(struct ranks *k, uint64_t ivars, int32_t a, int32_t b))
{
    const struct opdef *r = k->b->row;
    for (int i = 1; i < r->ex.n; ++i) {
        const struct ex *e = &r->ex.at[i];
        if (e->kind == EX_CMP) link(k, bind_exposed(r, e->a) | bind_exposed(r, e->b), e->a, e->b);
        if (e->kind != EX_READ) continue;
        const struct opdef_tensor *t = &r->tensors.at[e->tensor];
        int n = ex_count(r, e->a), at = 0;
        for (int32_t x = e->a; x; x = r->ex.at[x].next, ++at) {
            uint64_t dim = n == t->ndim ? 1ull << r->ivars.at[t->dim[at]].base : 0;
            link(k, bind_exposed(r, x) | dim, x, 0);
        }
    }
    for (int which = 0; which < 2; ++which)
        for (int i = 0; i < (which ? r->tables.n : r->stmts.n); ++i) {
            const struct loops_stmt *s = which ? &r->tables.at[i] : &r->stmts.at[i];
            const struct opdef_tensor *t = &r->tensors.at[s->out[0]];
            uint64_t all = 0;
            int n = ex_count(r, s->index), at = 0;
            for (int32_t x = s->index; x; x = r->ex.at[x].next, ++at) {
                uint64_t dim = n == t->ndim ? 1ull << r->ivars.at[t->dim[at]].base : 0;
                link(k, bind_exposed(r, x) | dim, x, 0);
                all |= bind_exposed(r, x);
            }
            if (which) link(k, all, s->value, 0); /* a table has one component for each component of its groups */
        }
    for (int i = 0; i < r->rules.n; ++i) {
        const struct opdef_rule *rule = &r->rules.at[i];
        int ivar = r->ivars.at[rule->ivar].base;
        if (rule->kind != RULE_SIZE || !open_ivar(k, ivar)) continue;
        link(k, sizes_in(r, rule->expr) | 1ull << ivar, rule->expr, 0);
    }
}

static void link_ivars(struct ranks *k, uint64_t ivars, int32_t a, int32_t b)
{
    (void)a;
    (void)b;
    unite(k, ivars);
}

static bool changed_by_list(struct ranks *k, int ivar, int n)
{
    int at = root(k, ivar);
    if (k->rank[at] >= 0 || n < 0) return false;
    k->rank[at] = n;
    k->group[at] = true;
    return true;
}

static void link_lists(struct ranks *k, uint64_t ivars, int32_t a, int32_t b)
{
    int n = MAX(list_in(k, a), list_in(k, b));
    for (int i = 0; i < k->b->row->ivars.n; ++i)
        if (ivars >> i & 1 && open_ivar(k, i)) changed_by_list(k, i, n);
}

/* The rank of an index variable; -1: unknown so far. */
static int rank_of(struct ranks *k, int ivar)
{
    int base = k->b->row->ivars.at[ivar].base;
    return open_ivar(k, base) ? k->rank[root(k, base)] : 1;
}

/* Solves the equation of an input if only one class in it is unknown. */
static bool equation(struct ranks *k, const struct opdef_tensor *t, int ndim)
{
    int left = ndim, at = -1, times = 0;
    for (int i = 0; i < t->ndim; ++i) {
        int n = rank_of(k, t->dim[i]);
        if (n >= 0) {
            left -= n;
            continue;
        }
        int here = root(k, k->b->row->ivars.at[t->dim[i]].base);
        if (at >= 0 && here != at) return false;
        at = here;
        ++times;
    }
    if (at < 0) return false;
    k->rank[at] = MAX(left, 0) / times; /* check() reports what does not fit */
    return true;
}

static void equations(struct ranks *k)
{
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < k->b->row->tensors.n; ++i) {
            const struct opdef_tensor *t = &k->b->row->tensors.at[i];
            if (t->role == OPDEF_IN && !bind_input(k->b, i)->missing) more |= equation(k, t, bind_input(k->b, i)->ndim);
        }
    }
}

static void rank_rules(struct ranks *k)
{
    const struct opdef *r = k->b->row;
    for (int i = 0; i < r->rules.n; ++i) {
        const struct opdef_rule *rule = &r->rules.at[i];
        if (rule->kind != RULE_RANK) continue;
        int at = root(k, r->ivars.at[rule->ivar].base);
        int32_t v = bind_lower(k->b, rule->expr, -1);
        if (k->b->status) return;
        const struct ex *e = &k->b->loops->ex.at[v];
        if (e->kind != EX_INT || e->u.i < 0 || e->u.i > SOL_MAX_DIMS) {
            bind_fail(k->b, "%s is not a number of dimensions (0..%d)", rule->text, SOL_MAX_DIMS);
            return;
        }
        k->rank[at] = (int)e->u.i;
        k->group[at] = true;
    }
}

static void head_text(const struct opdef *r, const struct opdef_tensor *t, struct text *out)
{
    text_put(out, "%s[", t->name);
    for (int i = 0; i < t->ndim; ++i)
        text_put(out, "%s%s%s", i ? " " : "", r->ivars.at[t->dim[i]].name, r->ivars.at[t->dim[i]].group ? ".." : "");
    text_put(out, "]");
}

static sol_status check(struct ranks *k)
{
    struct bind *b = k->b;
    for (int i = 0; i < b->row->tensors.n; ++i) {
        const struct opdef_tensor *t = &b->row->tensors.at[i];
        int n = 0;
        bool input = t->role == OPDEF_IN && !bind_input(b, i)->missing;
        for (int d = 0; d < t->ndim; ++d) {
            int rank = rank_of(k, t->dim[d]);
            if (rank < 0 && (input || t->role == OPDEF_OUT))
                return bind_fail(b, "the number of dimensions of %s is open", b->row->ivars.at[t->dim[d]].name);
            n += MAX(rank, 0);
        }
        if (!input || n == bind_input(b, i)->ndim) continue;
        struct text head = text_new(b->arena);
        head_text(b->row, t, &head);
        return bind_fail(b, "%s has %d dimensions, but %s needs %d", t->name, bind_input(b, i)->ndim, head.at, n);
    }
    return SOL_OK;
}

sol_status bind_ranks(struct bind *b)
{
    struct ranks k = {.b = b};
    const struct opdef *r = b->row;
    for (int i = 0; i < r->ivars.n; ++i) {
        k.parent[i] = i;
        k.rank[i] = -1;
        k.group[i] = r->ivars.at[i].group;
    }
    for (int i = 0; i < b->nin; ++i)
        if (!b->in[i].missing && (b->in[i].ndim < 0 || b->in[i].ndim > SOL_MAX_DIMS))
            return ctx_fail(arena_ctx(b->arena), SOL_ERR_INVALID, "%s: an input has %d dimensions", r->name,
                            b->in[i].ndim);
    each_link(&k, link_ivars);
    rank_rules(&k);
    equations(&k);
    each_link(&k, link_lists);
    equations(&k);
    for (int i = 0; i < r->ivars.n; ++i) { /* index variables of the body that are no groups */
        int at = root(&k, i);
        if (k.rank[at] < 0 && !k.group[at]) k.rank[at] = 1;
    }
    TRY(b->status);
    TRY(check(&k));
    for (int i = 0; i < r->ivars.n; ++i) {
        int base = r->ivars.at[i].base;
        bool open = open_ivar(&k, base);
        b->rank[base] = open ? MAX(k.rank[root(&k, base)], 0) : 1;
        b->group[base] = open && k.group[root(&k, base)];
    }
    return b->status;
}
