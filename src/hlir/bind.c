/* Binding a row to shapes and attributes: letters become components with known sizes, attributes and sizes numbers.
 *
 * 1. Ranks (ranks.c): how many dimensions each group has, from the inputs' dimensions by unification.
 * 2. Sizes: from the inputs' shapes, then from the size rules, which check where the size is known already.
 * 3. Tables are evaluated by the interpreter, or put in place of their reads where they are affine.
 * 4. Statements: an index with a group is one index per component, a comparison the conjunction over components.
 * The constructors of loops.h fold while this goes on. */
#include "hlir/bind.h"

#include <string.h>

sol_status bind_fail(struct bind *b, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!b->status) {
        struct text shapes = text_new(b->arena);
        bind_shapes(b, &shapes);
        b->status = ctx_fail(arena_ctx(b->arena), SOL_ERR_INVALID, "%s: %s (inputs: %s)", b->row->name, text,
                             shapes.n ? shapes.at : "none");
    }
    return b->status;
}

void bind_shapes(const struct bind *b, struct text *out)
{
    int at = 0;
    for (int i = 0; i < b->row->tensors.n; ++i) {
        const struct row_tensor *t = &b->row->tensors.at[i];
        if (t->role != ROW_IN) continue;
        const struct row_input *in = &b->in[at++];
        text_put(out, "%s%s", out->n ? " " : "", t->name);
        if (in->missing) text_put(out, " missing");
        for (int d = 0; !in->missing && d < in->ndim; ++d)
            text_put(out, d ? "x%lld" : " %lld", (long long)in->shape[d]);
        if (!in->missing && !in->ndim) text_put(out, " scalar");
    }
}

/* -- components */

static const struct row_letter *letter_of(const struct bind *b, int letter)
{
    return &b->row->letters.at[letter];
}

static int base_of(const struct bind *b, int letter)
{
    return letter_of(b, letter)->base;
}

int bind_rank(const struct bind *b, int letter)
{
    return b->rank[base_of(b, letter)];
}

static int64_t size_of(struct bind *b, int letter, int c)
{
    int base = base_of(b, letter);
    if (!b->sized[base]) {
        bind_fail(b, "the size of %s follows from nothing that is given", letter_of(b, base)->name);
        return 1;
    }
    return b->size[base][c];
}

static int64_t whole_size(struct bind *b, int letter)
{
    int64_t n = 1;
    for (int c = 0; c < bind_rank(b, letter); ++c)
        if (__builtin_mul_overflow(n, size_of(b, letter, c), &n)) bind_fail(b, "sizes overflow");
    return n;
}

/* The component that `c` (-1: none) means for this letter. */
static int one(struct bind *b, int letter, int c)
{
    int rank = bind_rank(b, letter);
    if (!b->group[base_of(b, letter)]) return 0;
    if (c < 0 && rank == 1) return 0;
    if (c >= 0 && c < rank) return c;
    bind_fail(b, "%s has %d dimensions: it has no one value here (use lin or an index)", letter_of(b, letter)->name,
              rank);
    return -1;
}

/* The value of a component: a letter of the loops, or 0 if its size is 1. */
static int32_t component(struct bind *b, int letter, int c)
{
    if (b->status || (c = one(b, letter, c)) < 0) return ex_int(b->l, 0);
    int64_t n = size_of(b, letter, c);
    if (n == 1) return ex_int(b->l, 0);
    if (!b->letter[letter][c]) {
        char name[12];
        snprintf(name, sizeof name, "%.6s", letter_of(b, letter)->name);
        for (char *q = name; *q; ++q)
            if (*q == '\'') *q = 'q';
        if (bind_rank(b, letter) > 1)
            snprintf(name + strlen(name), sizeof name - strlen(name), "%hhu", (unsigned char)c);
        if (b->l->letters.n == LOOPS_MAX_LETTERS) {
            bind_fail(b, "more than %d loops", LOOPS_MAX_LETTERS);
            return ex_int(b->l, 0);
        }
        b->letter[letter][c] = (uint8_t)(loops_letter(b->l, name, n) + 1);
    }
    return ex_letter(b->l, b->letter[letter][c] - 1);
}

/* -- what an index runs over */

/* Letters whose group an index runs over: not those inside accesses (except of tables) or lin(). */
uint64_t bind_exposed(const struct row *r, int32_t node)
{
    const struct ex *e = &r->ex.at[node];
    uint64_t set = 0;
    if (!node) return 0;
    switch (e->kind) {
    case EX_LETTER:
    case EX_DIG: return 1ull << r->letters.at[e->tensor].base;
    case EX_LIN:
    case EX_RED:
    case EX_INT:
    case EX_REAL:
    case EX_SIZE:
    case EX_ATTR: return 0;
    case EX_READ:
        if (r->tensors.at[e->tensor].role != ROW_TABLE) return 0;
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

/* Components of an index or comparison; -1: it names no group and is one. */
static int components(struct bind *b, uint64_t letters)
{
    int rank = -1, first = 0;
    for (int i = 0; i < b->row->letters.n; ++i) {
        if (!(letters >> i & 1) || !b->group[i]) continue;
        if (rank >= 0 && rank != b->rank[i])
            bind_fail(b, "%s has %d dimensions and %s has %d, in one index", letter_of(b, first)->name, rank,
                      letter_of(b, i)->name, b->rank[i]);
        rank = b->rank[i];
        first = i;
    }
    return rank;
}

/* -- lowering */

int32_t bind_lower(struct bind *b, int32_t node, int c);

static int32_t lower_attr(struct bind *b, int attr, int c)
{
    const char *name = b->row->attrs.at[attr];
    const struct row_attr *v = attrs_find(b->attrs, name);
    if (!v || v->kind == ATTR_TEXT) {
        bind_fail(b, v ? "attribute %s must be a number" : "attribute %s is missing", name);
        return ex_int(b->l, 0);
    }
    int i = v->n <= 1 ? 0 : c;
    if (v->n == 0 || i >= MAX(v->n, 1) || i < 0) {
        bind_fail(b, c < 0 ? "attribute %s must be one value, not %d" : "attribute %s has %d values, too few", name,
                  v->n);
        return ex_int(b->l, 0);
    }
    if (v->n > 1 && b->width && v->n != b->width)
        bind_fail(b, "attribute %s has %d values, expected %d", name, v->n, b->width);
    return v->kind == ATTR_INT ? ex_int(b->l, v->ints[i]) : ex_real(b->l, v->reals[i]);
}

static int32_t lower_lin(struct bind *b, const struct ex *e)
{
    int32_t out = ex_int(b->l, 0);
    for (int c = 0; c < bind_rank(b, e->tensor); ++c) {
        out = ex_binary(b->l, EX_MUL, out, ex_int(b->l, size_of(b, e->tensor, c)));
        out = ex_binary(b->l, EX_ADD, out, bind_lower(b, e->a, b->group[base_of(b, e->tensor)] ? c : -1));
    }
    return out;
}

static int32_t lower_dig(struct bind *b, const struct ex *e, int c)
{
    int64_t behind = 1;
    int i = one(b, e->tensor, c);
    if (i < 0) return ex_int(b->l, 0);
    for (int d = i + 1; d < bind_rank(b, e->tensor); ++d) behind *= size_of(b, e->tensor, d);
    int64_t n = size_of(b, e->tensor, i);
    if (!n || !behind) return ex_int(b->l, 0);
    int32_t x = ex_binary(b->l, EX_FLOOR, bind_lower(b, e->a, -1), ex_int(b->l, behind));
    return i == 0 ? x : ex_binary(b->l, EX_MOD, x, ex_int(b->l, n));
}

/* The indices of an access to a tensor that has the letters t->dim; returns how many there are, -1: error. */
static int lower_indices(struct bind *b, const struct row_tensor *t, int32_t first, int32_t *out)
{
    int n = 0, given = ex_count(b->row, first), k = 0, width = b->width;
    for (int32_t i = first; i; i = b->row->ex.at[i].next, ++k) {
        int rank = components(b, bind_exposed(b->row, i));
        if (given == t->ndim) { /* index k belongs to letter k of the head */
            int dim = base_of(b, t->dim[k]), want = b->group[dim] ? b->rank[dim] : -1;
            if (rank >= 0 && rank != (want < 0 ? 1 : want))
                bind_fail(b, "index %d of %s has %d components, %s has %d", k + 1, t->name, rank,
                          letter_of(b, dim)->name, want < 0 ? 1 : want);
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
    if (part->tensor) return ex_read(b->l, part->tensor - 1, ex_list(b->l, n, index), 0);
    for (int i = 0; i < n; ++i)
        if (part->letter[i]) map[part->letter[i] - 1] = index[i];
    return ex_copy(b->l, part->loops, part->value, map, NULL);
}

/* A table's value; without a component: the product over all. */
static int32_t lower_table(struct bind *b, const struct ex *e, int c)
{
    const struct bind_table *t = &b->table[e->tensor];
    if (b->status) return ex_int(b->l, 0);
    if (ex_count(b->row, e->a) != b->row->tensors.at[e->tensor].ndim) {
        bind_fail(b, "table %s takes %d indices", b->row->tensors.at[e->tensor].name,
                  b->row->tensors.at[e->tensor].ndim);
        return ex_int(b->l, 0);
    }
    if (!t->group) return table_read(b, t, e->a, -1);
    if (c >= 0 && t->ncomp > 0) return table_read(b, t, e->a, MIN(c, t->ncomp - 1));
    int32_t out = 0;
    for (int i = 0; i < t->ncomp; ++i) {
        int32_t v = table_read(b, t, e->a, i);
        out = out ? ex_binary(b->l, EX_MUL, out, v) : v;
    }
    return out ? out : ex_int(b->l, 1);
}

static int32_t lower_read(struct bind *b, const struct ex *e, int c)
{
    const struct row_tensor *t = &b->row->tensors.at[e->tensor];
    int32_t index[SOL_MAX_DIMS];
    if (t->role == ROW_TABLE) return lower_table(b, e, c);
    int tensor = b->tensor[e->tensor];
    if (tensor < 0) {
        if (!e->b) bind_fail(b, "input %s is missing, but needed", t->name);
        return e->b ? bind_lower(b, e->b, -1) : ex_int(b->l, 0);
    }
    int32_t outside = e->b ? bind_lower(b, e->b, -1) : 0;
    int n = lower_indices(b, t, e->a, index);
    if (n < 0) return ex_int(b->l, 0);
    if (n != b->l->tensors.at[tensor].ndim) {
        bind_fail(b, "%s has %d dimensions and is read with %d indices", t->name, b->l->tensors.at[tensor].ndim, n);
        return ex_int(b->l, 0);
    }
    return ex_read(b->l, tensor, ex_list(b->l, n, index), outside);
}

static int32_t lower_cmp(struct bind *b, const struct ex *e, int c)
{
    int rank = c >= 0 ? -1 : components(b, bind_exposed(b->row, e->a) | bind_exposed(b->row, e->b)), width = b->width;
    int32_t part[SOL_MAX_DIMS];
    if (rank < 0) return ex_cmp(b->l, (enum ex_cmp)e->op, bind_lower(b, e->a, c), bind_lower(b, e->b, c));
    b->width = rank;
    for (int i = 0; i < rank; ++i)
        part[i] = ex_cmp(b->l, (enum ex_cmp)e->op, bind_lower(b, e->a, i), bind_lower(b, e->b, i));
    b->width = width;
    return ex_logic(b->l, EX_AND, rank, part);
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
    for (int i = 0; i < b->row->letters.n; ++i) {
        if (!(e->u.bound >> i & 1)) continue;
        for (int c = 0; c < bind_rank(b, i); ++c) {
            nothing |= size_of(b, i, c) == 0;
            int32_t v = component(b, i, c);
            if (b->l->ex.at[v].kind == EX_LETTER) bound |= 1ull << b->l->ex.at[v].tensor;
        }
    }
    if (nothing && !e->a && !reduce_at(e->op)->empty && !b->no_output)
        bind_fail(b, "%s over nothing: a dimension has the size 0", reduce_at(e->op)->name);
    int32_t guard = e->a ? bind_lower(b, e->a, -1) : 0;
    return ex_red(b->l, e->op, bound, guard, bind_lower(b, e->b, -1));
}

int32_t bind_lower(struct bind *b, int32_t node, int c)
{
    const struct ex *e = &b->row->ex.at[node];
    int32_t part[16];
    int n;
    if (b->status) return ex_int(b->l, 0);
    switch ((int)e->kind) {
    case EX_INT: return ex_int(b->l, e->u.i);
    case EX_REAL: return ex_real(b->l, e->u.r);
    case EX_LETTER: return component(b, e->tensor, c);
    case EX_SIZE:
        if (c < 0 || !b->group[base_of(b, e->tensor)]) return ex_int(b->l, whole_size(b, e->tensor));
        n = one(b, e->tensor, c);
        return ex_int(b->l, n < 0 ? 0 : size_of(b, e->tensor, n));
    case ROW_PROD: return ex_int(b->l, whole_size(b, e->tensor));
    case ROW_LEN: return ex_int(b->l, bind_length(b, e->tensor));
    case ROW_RANK: return ex_int(b->l, bind_input_rank(b, e->tensor));
    case EX_ATTR: return b->args ? b->args[e->tensor] : lower_attr(b, e->tensor, c);
    case EX_LIN: return lower_lin(b, e);
    case EX_DIG: return lower_dig(b, e, c);
    case EX_NEG: return ex_neg(b->l, bind_lower(b, e->a, c));
    case EX_READ: return lower_read(b, e, c);
    case EX_CMP: return lower_cmp(b, e, c);
    case EX_TEST: return ex_test(b->l, bind_lower(b, e->a, c));
    case EX_RED: return lower_red(b, e);
    case EX_AND:
    case EX_OR: n = lower_list(b, e->a, c, part, COUNT_OF(part)); return ex_logic(b->l, (enum ex_kind)e->kind, n, part);
    case EX_CALL:
        n = lower_list(b, e->a, c, part, COUNT_OF(part));
        if (b->args) { /* composites of composites */
            int32_t made = ex_call(b->l, e->op, n, part);
            return ex_expand(b->l, made);
        }
        return ex_call(b->l, e->op, n, part);
    default: {
        int32_t left = bind_lower(b, e->a, c);
        return ex_binary(b->l, (enum ex_kind)e->kind, left, bind_lower(b, e->b, c));
    }
    }
}

int32_t ex_expand(struct loops *l, int32_t node)
{
    struct ex e = l->ex.at[node];
    const struct math_def *m = e.kind == EX_CALL ? math_at(e.op) : NULL;
    static const char names[] = "xyz";
    int32_t value, args[3] = {0}, given[3] = {0};
    struct row *row;
    if (!m || !m->expr) return node;
    if (row_parse_expression(l->arena, m->name, m->expr, &row, &value)) return node;
    for (int32_t i = e.a, k = 0; i && k < 3; i = l->ex.at[i].next) given[k++] = i;
    for (int i = 0; i < row->attrs.n; ++i) args[i] = given[strchr(names, *row->attrs.at[i]) - names];
    struct bind b = {.arena = l->arena, .row = row, .l = l, .args = args};
    return bind_lower(&b, value, -1);
}

/* -- sizes */

int bind_length(struct bind *b, int attr)
{
    const struct row_attr *v = attrs_find(b->attrs, b->row->attrs.at[attr]);
    if (!v) bind_fail(b, "attribute %s is missing", b->row->attrs.at[attr]);
    return v ? (v->n < 0 ? 1 : v->n) : 0;
}

const struct row_input *bind_input(const struct bind *b, int tensor)
{
    int at = 0;
    for (int i = 0; i < tensor; ++i) at += b->row->tensors.at[i].role == ROW_IN;
    return &b->in[at];
}

int bind_input_rank(struct bind *b, int tensor)
{
    if (b->row->tensors.at[tensor].role != ROW_IN) {
        bind_fail(b, "rank(%s): not an input", b->row->tensors.at[tensor].name);
        return 0;
    }
    const struct row_input *in = bind_input(b, tensor);
    return in->missing ? 0 : in->ndim;
}

static void input_sizes(struct bind *b, int tensor)
{
    const struct row_tensor *t = &b->row->tensors.at[tensor];
    const struct row_input *in = bind_input(b, tensor);
    int at = 0;
    for (int k = 0; k < t->ndim; ++k) {
        int letter = base_of(b, t->dim[k]);
        for (int c = 0; c < b->rank[letter]; ++c, ++at) {
            int64_t n = in->shape[at];
            if (!b->sized[letter]) b->size[letter][c] = n;
            if (b->size[letter][c] != n)
                bind_fail(b, "dimension %d of %s is %lld, but %s is %lld elsewhere", at, t->name, (long long)n,
                          letter_of(b, letter)->name, (long long)b->size[letter][c]);
            if (n < 0) bind_fail(b, "dimension %d of %s is negative", at, t->name);
        }
        b->sized[letter] = true;
    }
}

/* Are all sizes known that a rule asks for? */
static bool ready(const struct bind *b, int32_t node)
{
    const struct ex *e = &b->row->ex.at[node];
    if (!node) return true;
    if (e->kind == EX_SIZE || e->kind == ROW_PROD) return b->sized[base_of(b, e->tensor)];
    if (e->kind == EX_CALL || e->kind == EX_AND || e->kind == EX_OR) {
        for (int32_t i = e->a; i; i = b->row->ex.at[i].next)
            if (!ready(b, i)) return false;
        return true;
    }
    return ready(b, e->a) && ready(b, e->b);
}

static bool number(struct bind *b, const struct row_rule *rule, int c, int64_t *out)
{
    int32_t v = bind_lower(b, rule->expr, c);
    if (b->status) return false;
    if (b->l->ex.at[v].kind != EX_INT) bind_fail(b, "%s: not an integer, too large, or divided by zero", rule->text);
    *out = b->l->ex.at[v].u.i;
    return !b->status;
}

static void size_rule(struct bind *b, const struct row_rule *rule)
{
    int letter = base_of(b, rule->letter);
    b->width = b->group[letter] ? b->rank[letter] : 0;
    for (int c = 0; c < b->rank[letter]; ++c) {
        int64_t n;
        if (!number(b, rule, b->group[letter] ? c : -1, &n)) return;
        if (!b->sized[letter]) b->size[letter][c] = n;
        if (b->size[letter][c] != n)
            bind_fail(b, "%s does not hold: %s is %lld, not %lld", rule->text, letter_of(b, letter)->name,
                      (long long)b->size[letter][c], (long long)n);
        if (n < 0) bind_fail(b, "%s is negative: %s is %lld", letter_of(b, letter)->name, rule->text, (long long)n);
    }
    b->sized[letter] = true;
    b->width = 0;
}

static void sizes(struct bind *b)
{
    bool done[64] = {false}, more = true;
    int n = MIN(b->row->rules.n, COUNT_OF(done));
    for (int i = 0; i < b->row->tensors.n; ++i)
        if (b->row->tensors.at[i].role == ROW_IN && !bind_input(b, i)->missing) input_sizes(b, i);
    while (more && !b->status) {
        more = false;
        for (int i = 0; i < n && !b->status; ++i) {
            const struct row_rule *rule = &b->row->rules.at[i];
            if (done[i] || rule->kind == RULE_RANK || !ready(b, rule->expr)) continue;
            done[i] = more = true;
            if (rule->kind == RULE_SIZE) {
                size_rule(b, rule);
            } else {
                int32_t v = bind_lower(b, rule->expr, -1);
                const struct ex *e = &b->l->ex.at[v];
                if (e->kind != EX_INT || !e->u.i) bind_fail(b, "%s does not hold", rule->text);
            }
        }
    }
}

/* -- tensors */

static int shape_of(struct bind *b, const struct row_tensor *t, int64_t *shape)
{
    int n = 0;
    int64_t elements;
    for (int k = 0; k < t->ndim; ++k)
        for (int c = 0; c < bind_rank(b, t->dim[k]); ++c) {
            if (n == SOL_MAX_DIMS) bind_fail(b, "%s has more than %d dimensions", t->name, SOL_MAX_DIMS);
            if (b->status) return 0;
            shape[n++] = size_of(b, t->dim[k], c);
        }
    if (b->status) return 0;
    b->status = shape_elements(arena_ctx(b->arena), n, shape, &elements);
    if (b->status) ctx_where(arena_ctx(b->arena), b->status, "%s: %s: ", b->row->name, t->name);
    return n;
}

static int type_named(const char *name)
{
    for (int i = 0; i < SOL_DTYPES; ++i)
        if (!strcmp(dtype_def((enum sol_dtype)i)->name, name)) return i;
    return -1;
}

static const struct row_input *first_input(const struct bind *b)
{
    for (int i = 0; i < b->nin; ++i)
        if (!b->in[i].missing) return &b->in[i];
    return NULL;
}

static void input_type(struct bind *b, const struct row_tensor *t, enum sol_dtype given)
{
    const struct dtype_def *d = dtype_def(given);
    if (!t->type || !strcmp(t->type, "any")) return;
    bool good = !strcmp(t->type, "int")     ? !d->is_float && !d->is_bool
                : !strcmp(t->type, "float") ? d->is_float
                                            : !strcmp(t->type, d->name);
    if (!good) bind_fail(b, "%s has type %s, but must be %s", t->name, d->name, t->type);
}

static enum sol_dtype result_type(struct bind *b, const struct row_tensor *t)
{
    const struct row_input *first = first_input(b);
    enum sol_dtype usual = first ? first->dtype : SOL_F32;
    if (!t->type) return t->position && t->role == ROW_TEMP ? SOL_I64 : usual;
    const char *name = t->type;
    if (t->type_attr) {
        name = attrs_text(b->attrs, t->type, NULL);
        if (!name || type_named(name) < 0) {
            bind_fail(b, "attribute %s must name a type", t->type);
            return usual;
        }
    }
    if (type_named(name) >= 0) return (enum sol_dtype)type_named(name);
    if (!strcmp(name, "float")) return dtype_def(usual)->is_float ? usual : SOL_F32;
    for (int i = 0; i < b->row->tensors.n; ++i) {
        const struct row_tensor *x = &b->row->tensors.at[i];
        if (x->role != ROW_IN || strcmp(x->name, name)) continue;
        if (bind_input(b, i)->missing) bind_fail(b, "the type of %s is that of %s, which is missing", t->name, name);
        return bind_input(b, i)->dtype;
    }
    bind_fail(b, "%s has the unknown type %s", t->name, name);
    return usual;
}

static void tensors(struct bind *b, enum row_role role)
{
    static const enum loops_role roles[] = {[ROW_IN] = LOOPS_INPUT, [ROW_OUT] = LOOPS_OUTPUT, [ROW_TEMP] = LOOPS_TEMP};
    for (int i = 0; i < b->row->tensors.n && !b->status; ++i) {
        const struct row_tensor *t = &b->row->tensors.at[i];
        int64_t shape[SOL_MAX_DIMS] = {0};
        if (t->role != role) continue;
        b->tensor[i] = -1;
        if (role == ROW_IN && bind_input(b, i)->missing) continue;
        int n = shape_of(b, t, shape);
        if (role == ROW_IN) input_type(b, t, bind_input(b, i)->dtype);
        if (b->status) return;
        enum sol_dtype type = role == ROW_IN ? bind_input(b, i)->dtype : result_type(b, t);
        b->tensor[i] = loops_tensor(b->l, t->name, roles[role], type, n, shape);
    }
}

/* -- tables */

static void table_part(struct bind *b, const struct loops_stmt *s, int c, struct bind_table_part *out)
{
    const struct row_tensor *t = &b->row->tensors.at[s->out[0]];
    struct loops *outer = b->l, *l = loops_create(b->arena, t->name);
    uint8_t(*letters)[SOL_MAX_DIMS] = b->letter;
    int64_t shape[SOL_MAX_DIMS], n;
    int32_t index[SOL_MAX_DIMS];
    struct affine affine;
    b->l = l;
    b->letter = arena_alloc(b->arena, sizeof *b->letter * ROW_MAX_LETTERS);
    for (int k = 0; k < t->ndim; ++k) {
        index[k] = component(b, t->dim[k], c);
        int at = b->status ? -1 : one(b, t->dim[k], c);
        shape[k] = at < 0 ? 1 : size_of(b, t->dim[k], at);
        if (l->ex.at[index[k]].kind == EX_LETTER) out->letter[k] = (uint8_t)(l->ex.at[index[k]].tensor + 1);
    }
    out->value = bind_lower(b, s->value, c);
    out->loops = l;
    b->l = outer;
    b->letter = letters;
    if (b->status || ex_affine(l, out->value, &affine)) return;
    if ((b->status = shape_elements(arena_ctx(b->arena), t->ndim, shape, &n))) return;
    enum sol_dtype type = ex_is_int(l, out->value) ? SOL_I64 : SOL_F64;
    struct loops_stmt made = {.nout = 1, .index = ex_list(l, t->ndim, index), .value = out->value};
    made.out[0] = (uint16_t)loops_tensor(l, t->name, LOOPS_OUTPUT, type, t->ndim, shape);
    PUSH(b->arena, l->stmts, made);
    void *data[1] = {arena_alloc(b->arena, (size_t)n * 8)};
    b->status = loops_interpret(arena_ctx(b->arena), l, data);
    const char *name = b->table[s->out[0]].ncomp > 1 ? arena_printf(b->arena, "%s%d", t->name, c) : t->name;
    int tensor = loops_tensor(outer, name, LOOPS_TABLE, type, t->ndim, shape);
    outer->tensors.at[tensor].table = data[0];
    out->tensor = tensor + 1;
}

static void tables(struct bind *b)
{
    for (int i = 0; i < b->row->tables.n && !b->status; ++i) {
        const struct loops_stmt *s = &b->row->tables.at[i];
        struct bind_table *t = &b->table[s->out[0]];
        uint64_t set = 0;
        for (int32_t e = s->index; e; e = b->row->ex.at[e].next) set |= bind_exposed(b->row, e);
        int rank = components(b, set);
        t->group = rank >= 0;
        t->ncomp = rank < 0 ? 1 : rank;
        for (int c = 0; c < t->ncomp && !b->status; ++c) table_part(b, s, rank < 0 ? -1 : c, &t->part[c]);
    }
}

/* -- statements */

static void statement(struct bind *b, const struct loops_stmt *s)
{
    struct loops_stmt made = {.nout = s->nout};
    int32_t index[SOL_MAX_DIMS];
    const struct row_tensor *t = &b->row->tensors.at[s->out[0]];
    const struct loops_tensor *to = &b->l->tensors.at[b->tensor[s->out[0]]];
    int ndim = to->ndim;
    b->no_output = false;
    for (int d = 0; d < ndim; ++d) b->no_output |= to->shape[d] == 0;
    int n = lower_indices(b, t, s->index, index);
    if (n >= 0 && n != ndim) bind_fail(b, "%s has %d dimensions and is written with %d indices", t->name, ndim, n);
    if (b->status) return;
    made.index = ex_list(b->l, n, index);
    made.value = bind_lower(b, s->value, -1);
    for (int i = 0; i < s->nout; ++i) {
        made.out[i] = (uint16_t)b->tensor[s->out[i]];
        struct loops_tensor *out = &b->l->tensors.at[made.out[i]];
        if (out->ndim != ndim || memcmp(out->shape, b->l->tensors.at[made.out[0]].shape, (size_t)ndim * 8))
            bind_fail(b, "%s and %s are written together but differ in shape", t->name, out->name);
        if (!i && out->role == LOOPS_TEMP && !b->row->tensors.at[s->out[0]].type && !dtype_def(out->dtype)->is_float &&
            !ex_is_int(b->l, made.value))
            out->dtype = (uint8_t)bind_float_type(b);
        if (i && out->role == LOOPS_TEMP && !b->row->tensors.at[s->out[i]].type &&
            !b->row->tensors.at[s->out[i]].position)
            out->dtype = b->l->tensors.at[made.out[0]].dtype;
    }
    PUSH(b->arena, b->l->stmts, made);
}

/* Temps that hold reals although the first input is an integer: the first float type among the inputs. */
enum sol_dtype bind_float_type(const struct bind *b)
{
    for (int i = 0; i < b->nin; ++i)
        if (!b->in[i].missing && dtype_def(b->in[i].dtype)->is_float) return b->in[i].dtype;
    return SOL_F32;
}

sol_status row_bind(struct arena *a, const struct row *r, int nin, const struct row_input *in,
                    const struct attrs *attrs, struct loops **out_loops)
{
    struct bind b = {.arena = a, .row = r, .nin = nin, .in = in, .attrs = attrs};
    if (nin != r->nin)
        return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: %d inputs given, it has %d", r->name, nin, r->nin);
    b.l = loops_create(a, r->name);
    b.letter = arena_alloc(a, sizeof *b.letter * ROW_MAX_LETTERS);
    b.tensor = NEW_ARRAY(a, int, r->tensors.n + 1);
    b.table = NEW_ARRAY(a, struct bind_table, r->tensors.n + 1);
    TRY(bind_ranks(&b));
    sizes(&b);
    tensors(&b, ROW_IN);
    tensors(&b, ROW_OUT);
    tensors(&b, ROW_TEMP);
    tables(&b);
    for (int i = 0; i < r->stmts.n && !b.status; ++i) statement(&b, &r->stmts.at[i]);
    TRY(b.status);
    TRY(loops_order(arena_ctx(a), b.l));
    *out_loops = b.l;
    return ctx_check(arena_ctx(a));
}
