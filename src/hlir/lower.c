/* Lowering: turns an expression of an operator definition into nodes of bound loops, for one component of its groups
 * (-1: it has none). The constructors of loops.h fold these nodes. */
#include <string.h>

#include "hlir/bind.h"

/* -- components */

const struct opdef_ivar *bind_ivar(const struct bind *b, int ivar)
{
    return &b->row->ivars.at[ivar];
}

int bind_base(const struct bind *b, int ivar)
{
    return bind_ivar(b, ivar)->base;
}

int bind_rank(const struct bind *b, int ivar)
{
    return b->rank[bind_base(b, ivar)];
}

int64_t bind_size(struct bind *b, int ivar, int c)
{
    int base = bind_base(b, ivar);
    if (!b->sized[base]) {
        bind_fail(b, "the size of %s follows from nothing that is given", bind_ivar(b, base)->name);
        return 1;
    }
    return b->size[base][c];
}

static int64_t whole_size(struct bind *b, int ivar)
{
    int64_t n = 1;
    for (int c = 0; c < bind_rank(b, ivar); ++c) n = size_mul(n, bind_size(b, ivar, c));
    if (n == SIZE_BAD) bind_fail(b, "sizes overflow");
    return n;
}

/* The component of this index variable that belongs to component `c` of the expression (-1: none). */
int bind_one(struct bind *b, int ivar, int c)
{
    int rank = bind_rank(b, ivar);
    if (!b->group[bind_base(b, ivar)]) return 0;
    if (c < 0 && rank == 1) return 0;
    if (c >= 0 && c < rank) return c;
    bind_fail(b, "%s has %d dimensions: it has no one value here (use lin or an index)", bind_ivar(b, ivar)->name,
              rank);
    return -1;
}

/* The value of a component: an index variable of the loops, or 0 if its size is 1. */
int32_t bind_component(struct bind *b, int ivar, int c)
{
    if (b->status || (c = bind_one(b, ivar, c)) < 0) return ex_int(b->loops, 0);
    int64_t n = bind_size(b, ivar, c);
    if (n == 1) return ex_int(b->loops, 0);
    if (!b->ivar[ivar][c]) {
        char name[12];
        snprintf(name, sizeof name, "%.6s", bind_ivar(b, ivar)->name);
        for (char *q = name; *q; ++q)
            if (*q == '\'') *q = 'q';
        if (bind_rank(b, ivar) > 1) snprintf(name + strlen(name), sizeof name - strlen(name), "%hhu", (unsigned char)c);
        if (b->loops->ivars.n == LOOPS_MAX_IVARS) {
            bind_fail(b, "more than %d loops", LOOPS_MAX_IVARS);
            return ex_int(b->loops, 0);
        }
        b->ivar[ivar][c] = (uint8_t)(loops_ivar(b->loops, name, n) + 1);
    }
    return ex_ivar(b->loops, b->ivar[ivar][c] - 1);
}

/* -- what an index runs over */

/* The index variables whose groups an index runs over. Those inside lin() or inside accesses do not count, except in
 * accesses to tables. */
uint64_t bind_exposed(const struct opdef *r, int32_t node)
{
    const struct ex *e = &r->ex.at[node];
    uint64_t set = 0;
    if (!node) return 0;
    switch (e->kind) {
    case EX_IVAR:
    case EX_DIG: return 1ull << r->ivars.at[e->tensor].base;
    case EX_LIN:
    case EX_RED:
    case EX_INT:
    case EX_REAL:
    case EX_SIZE:
    case EX_ATTR: return 0;
    case EX_READ:
        if (r->tensors.at[e->tensor].role != OPDEF_TABLE) return 0;
        for (int32_t i = e->a; i; i = r->ex.at[i].next) set |= bind_exposed(r, i);
        return set;
    case EX_CALL:
    case EX_AND:
    case EX_OR:
        for (int32_t i = e->a; i; i = r->ex.at[i].next) set |= bind_exposed(r, i);
        return set;
    default: return bind_exposed(r, e->a) | bind_exposed(r, e->b);
    }
}

/* The number of components of an index or comparison; -1: it has no group. */
int bind_components(struct bind *b, uint64_t ivars)
{
    int rank = -1, first = 0;
    for (int i = 0; i < b->row->ivars.n; ++i) {
        if (!(ivars >> i & 1) || !b->group[i]) continue;
        if (rank >= 0 && rank != b->rank[i])
            bind_fail(b, "%s has %d dimensions and %s has %d, in one index", bind_ivar(b, first)->name, rank,
                      bind_ivar(b, i)->name, b->rank[i]);
        rank = b->rank[i];
        first = i;
    }
    return rank;
}

/* -- lowering */

static int32_t lower_attr(struct bind *b, int attr, int c)
{
    const char *name = b->row->attrs.at[attr];
    const struct opdef_attr *v = attrs_find(b->attrs, name);
    if (!v || v->kind == ATTR_TEXT) {
        bind_fail(b, v ? "attribute %s must be a number" : "attribute %s is missing", name);
        return ex_int(b->loops, 0);
    }
    int i = v->n <= 1 ? 0 : c;
    if (v->n == 0 || i >= MAX(v->n, 1) || i < 0) {
        bind_fail(b, c < 0 ? "attribute %s must be one value, not %d" : "attribute %s has %d values, too few", name,
                  v->n);
        return ex_int(b->loops, 0);
    }
    if (v->n > 1 && b->width && v->n != b->width)
        bind_fail(b, "attribute %s has %d values, expected %d", name, v->n, b->width);
    return v->kind == ATTR_INT ? ex_int(b->loops, v->ints[i]) : ex_real(b->loops, v->reals[i]);
}

static int32_t lower_lin(struct bind *b, const struct ex *e)
{
    int32_t out = ex_int(b->loops, 0);
    for (int c = 0; c < bind_rank(b, e->tensor); ++c) {
        out = ex_binary(b->loops, EX_MUL, out, ex_int(b->loops, bind_size(b, e->tensor, c)));
        out = ex_binary(b->loops, EX_ADD, out, bind_lower(b, e->a, b->group[bind_base(b, e->tensor)] ? c : -1));
    }
    return out;
}

static int32_t lower_dig(struct bind *b, const struct ex *e, int c)
{
    int64_t behind = 1;
    int i = bind_one(b, e->tensor, c);
    if (i < 0) return ex_int(b->loops, 0);
    for (int d = i + 1; d < bind_rank(b, e->tensor); ++d) behind = size_mul(behind, bind_size(b, e->tensor, d));
    int64_t n = bind_size(b, e->tensor, i);
    if (!n || !behind) return ex_int(b->loops, 0);
    int32_t x = ex_binary(b->loops, EX_FLOOR, bind_lower(b, e->a, -1), ex_int(b->loops, behind));
    return i == 0 ? x : ex_binary(b->loops, EX_MOD, x, ex_int(b->loops, n));
}

int bind_indices(struct bind *b, const struct opdef_tensor *t, int32_t first, int32_t *out)
{
    int n = 0, given = ex_count(b->row, first), k = 0, width = b->width;
    for (int32_t i = first; i; i = b->row->ex.at[i].next, ++k) {
        int rank = bind_components(b, bind_exposed(b->row, i));
        if (given == t->ndim) { /* index k belongs to index variable k of the head */
            int dim = bind_base(b, t->dim[k]), want = b->group[dim] ? b->rank[dim] : -1;
            if (rank >= 0 && rank != (want < 0 ? 1 : want))
                bind_fail(b, "index %d of %s has %d components, %s has %d", k + 1, t->name, rank,
                          bind_ivar(b, dim)->name, want < 0 ? 1 : want);
            if (rank < 0) rank = want;
        }
        for (int c = rank < 0 ? -1 : 0; c < MAX(rank, 0); ++c) {
            if (n == SOL_MAX_DIMS) bind_fail(b, "%s has more than %d indices", t->name, SOL_MAX_DIMS);
            if (b->status) return -1;
            b->width = MAX(rank, 0);
            out[n++] = bind_lower(b, i, c);
        }
    }
    b->width = width;
    return b->status ? -1 : n;
}

static int32_t table_read(struct bind *b, const struct bind_table *t, int32_t first, int c)
{
    int32_t index[SOL_MAX_DIMS], map[SOL_MAX_DIMS] = {0};
    int n = 0;
    const struct bind_table_part *part = &t->part[t->ncomp > 1 ? c : 0];
    for (int32_t i = first; i; i = b->row->ex.at[i].next) index[n++] = bind_lower(b, i, c);
    if (part->tensor) return ex_read(b->loops, part->tensor - 1, ex_list(b->loops, n, index), 0);
    for (int i = 0; i < n; ++i)
        if (part->ivar[i]) map[part->ivar[i] - 1] = index[i];
    return ex_copy(b->loops, part->loops, part->value, map, NULL);
}

/* A table's value. Without a component, it is the product over all components. */
static int32_t lower_table(struct bind *b, const struct ex *e, int c)
{
    const struct bind_table *t = &b->table[e->tensor];
    if (b->status) return ex_int(b->loops, 0);
    if (ex_count(b->row, e->a) != b->row->tensors.at[e->tensor].ndim) {
        bind_fail(b, "table %s takes %d indices", b->row->tensors.at[e->tensor].name,
                  b->row->tensors.at[e->tensor].ndim);
        return ex_int(b->loops, 0);
    }
    if (!t->group) return table_read(b, t, e->a, -1);
    if (c >= 0 && t->ncomp > 0) return table_read(b, t, e->a, MIN(c, t->ncomp - 1));
    int32_t out = 0;
    for (int i = 0; i < t->ncomp; ++i) {
        int32_t v = table_read(b, t, e->a, i);
        out = out ? ex_binary(b->loops, EX_MUL, out, v) : v;
    }
    return out ? out : ex_int(b->loops, 1);
}

static int32_t lower_read(struct bind *b, const struct ex *e, int c)
{
    const struct opdef_tensor *t = &b->row->tensors.at[e->tensor];
    int32_t index[SOL_MAX_DIMS];
    if (t->role == OPDEF_TABLE) return lower_table(b, e, c);
    int tensor = b->tensor[e->tensor];
    if (tensor < 0) {
        if (!e->b) bind_fail(b, "input %s is missing, but needed", t->name);
        return e->b ? bind_lower(b, e->b, -1) : ex_int(b->loops, 0);
    }
    int32_t outside = e->b ? bind_lower(b, e->b, -1) : 0;
    int n = bind_indices(b, t, e->a, index);
    if (n < 0) return ex_int(b->loops, 0);
    if (n != b->loops->tensors.at[tensor].ndim) {
        bind_fail(b, "%s has %d dimensions and is read with %d indices", t->name, b->loops->tensors.at[tensor].ndim, n);
        return ex_int(b->loops, 0);
    }
    return ex_read(b->loops, tensor, ex_list(b->loops, n, index), outside);
}

static int32_t lower_cmp(struct bind *b, const struct ex *e, int c)
{
    int rank = c >= 0 ? -1 : bind_components(b, bind_exposed(b->row, e->a) | bind_exposed(b->row, e->b)),
        width = b->width;
    int32_t part[SOL_MAX_DIMS];
    if (rank < 0) return ex_cmp(b->loops, (enum ex_cmp)e->op, bind_lower(b, e->a, c), bind_lower(b, e->b, c));
    b->width = rank;
    for (int i = 0; i < rank; ++i)
        part[i] = ex_cmp(b->loops, (enum ex_cmp)e->op, bind_lower(b, e->a, i), bind_lower(b, e->b, i));
    b->width = width;
    return ex_logic(b->loops, EX_AND, rank, part);
}

static int lower_list(struct bind *b, int32_t first, int c, int32_t *out, int room)
{
    int n = 0;
    for (; first && n < room; first = b->row->ex.at[first].next) out[n++] = bind_lower(b, first, c);
    return n;
}

static int32_t lower_red(struct bind *b, const struct ex *e)
{
    uint64_t bound = 0;
    bool nothing = false;
    for (int i = 0; i < b->row->ivars.n; ++i) {
        if (!(e->u.bound >> i & 1)) continue;
        for (int c = 0; c < bind_rank(b, i); ++c) {
            nothing |= bind_size(b, i, c) == 0;
            int32_t v = bind_component(b, i, c);
            if (b->loops->ex.at[v].kind == EX_IVAR) bound |= 1ull << b->loops->ex.at[v].tensor;
        }
    }
    if (nothing && !e->a && !reduce_at(e->op)->empty && !b->no_output)
        bind_fail(b, "%s over nothing: a dimension has the size 0", reduce_at(e->op)->name);
    int32_t guard = e->a ? bind_lower(b, e->a, -1) : 0;
    return ex_red(b->loops, e->op, bound, guard, bind_lower(b, e->b, -1));
}

int32_t bind_lower(struct bind *b, int32_t node, int c)
{
    const struct ex *e = &b->row->ex.at[node];
    int32_t part[16];
    int n;
    if (b->status) return ex_int(b->loops, 0);
    switch ((int)e->kind) {
    case EX_INT: return ex_int(b->loops, e->u.i);
    case EX_REAL: return ex_real(b->loops, e->u.r);
    case EX_IVAR: return bind_component(b, e->tensor, c);
    case EX_SIZE:
        if (c < 0 || !b->group[bind_base(b, e->tensor)]) return ex_int(b->loops, whole_size(b, e->tensor));
        n = bind_one(b, e->tensor, c);
        return ex_int(b->loops, n < 0 ? 0 : bind_size(b, e->tensor, n));
    case OPDEF_PROD: return ex_int(b->loops, whole_size(b, e->tensor));
    case OPDEF_LEN: return ex_int(b->loops, bind_length(b, e->tensor));
    case OPDEF_RANK: return ex_int(b->loops, bind_input_rank(b, e->tensor));
    case EX_ATTR: return b->args ? b->args[e->tensor] : lower_attr(b, e->tensor, c);
    case EX_LIN: return lower_lin(b, e);
    case EX_DIG: return lower_dig(b, e, c);
    case EX_NEG: return ex_neg(b->loops, bind_lower(b, e->a, c));
    case EX_READ: return lower_read(b, e, c);
    case EX_CMP: return lower_cmp(b, e, c);
    case EX_TEST: return ex_test(b->loops, bind_lower(b, e->a, c));
    case EX_RED: return lower_red(b, e);
    case EX_AND:
    case EX_OR:
        n = lower_list(b, e->a, c, part, COUNT_OF(part));
        return ex_logic(b->loops, (enum ex_kind)e->kind, n, part);
    case EX_CALL:
        n = lower_list(b, e->a, c, part, COUNT_OF(part));
        if (b->args) { /* a composite inside a composite */
            int32_t made = ex_call(b->loops, e->op, n, part);
            return ex_expand(b->loops, made);
        }
        return ex_call(b->loops, e->op, n, part);
    default: {
        int32_t left = bind_lower(b, e->a, c);
        return ex_binary(b->loops, (enum ex_kind)e->kind, left, bind_lower(b, e->b, c));
    }
    }
}

/* Parses `text`, in which x, y, z are the arguments of the call `node` and r is its result. 0: it is invalid. */
static int32_t with_arguments(struct loops *loops, int32_t node, int32_t result, const char *name, const char *text)
{
    static const char names[] = "xyzr";
    int32_t value, args[4] = {0}, given[4] = {0, 0, 0, result};
    struct opdef *opdef;
    if (opdef_parse_expression(loops->arena, name, text, &opdef, &value)) return 0;
    for (int32_t i = loops->ex.at[node].a, k = 0; i && k < 3; i = loops->ex.at[i].next) given[k++] = i;
    for (int i = 0; i < opdef->attrs.n; ++i) args[i] = given[strchr(names, *opdef->attrs.at[i]) - names];
    struct bind b = {.arena = loops->arena, .row = opdef, .loops = loops, .args = args};
    return bind_lower(&b, value, -1);
}

int32_t ex_expand(struct loops *loops, int32_t node)
{
    const struct ex *e = &loops->ex.at[node];
    const struct math_def *m = e->kind == EX_CALL ? math_at(e->op) : NULL;
    if (!m || !m->expr) return node;
    int32_t made = with_arguments(loops, node, node, m->name, m->expr);
    return made ? made : node;
}

int32_t ex_derivative(struct loops *loops, int32_t node, int32_t result, int arg)
{
    const struct math_def *m = math_at(loops->ex.at[node].op);
    const char *text = m->derivative;
    for (; text && arg; arg--) text = (text = strchr(text, ';')) ? text + 1 : NULL;
    if (!text) return 0;
    const char *end = strchr(text, ';');
    if (end) text = arena_printf(loops->arena, "%.*s", (int)(end - text), text);
    return with_arguments(loops, node, result, m->name, text);
}
