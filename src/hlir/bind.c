/* Binding an operator definition to shapes and attributes. Index variables become components with known sizes;
 * attributes and sizes become numbers.
 *
 * 1. Ranks (ranks.c): how many dimensions each group has, by unification with the inputs' dimensions.
 * 2. Sizes: from the inputs' shapes, then from the size rules, which check sizes that are already known.
 * 3. Tables: the interpreter evaluates them, or affine ones replace their reads.
 * 4. Statements: an index with a group becomes one index per component, a comparison the conjunction over
 * components.
 * The constructors of loops.h fold on the way. */
#include "hlir/bind.h"

#include <string.h>

#define MOST_TABLE (1 << 22) /* elements; tables are computed while a layer is created */

static sol_status fail(struct bind *b, const char *format, va_list args)
{
    char text[512];
    vsnprintf(text, sizeof text, format, args);
    if (!b->status) {
        struct text shapes = text_new(b->arena);
        bind_shapes(b, &shapes);
        b->status = ctx_fail(arena_ctx(b->arena), SOL_ERR_INVALID, "%s: %s (inputs: %s)", b->row->name, text,
                             shapes.n ? shapes.at : "none");
    }
    return b->status;
}

sol_status bind_fail(struct bind *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail(b, format, args);
    va_end(args);
    return b->status;
}

/* The same for two sizes that must be equal. */
static void bind_unequal(struct bind *b, int64_t x, int64_t y, const char *format, ...) PRINTF_LIKE(4, 5);
static void bind_unequal(struct bind *b, int64_t x, int64_t y, const char *format, ...)
{
    const bool first = !b->status;
    va_list args;
    va_start(args, format);
    fail(b, format, args);
    va_end(args);
    if (first) ctx_unequal(arena_ctx(b->arena), x, y, b->status);
}

void bind_shapes(const struct bind *b, struct text *out)
{
    int at = 0;
    for (int i = 0; i < b->row->tensors.n; ++i) {
        const struct opdef_tensor *t = &b->row->tensors.at[i];
        if (t->role != OPDEF_IN) continue;
        const struct opdef_input *in = &b->in[at++];
        text_put(out, "%s%s", out->n ? " " : "", t->name);
        if (in->missing) text_put(out, " missing");
        for (int d = 0; !in->missing && d < in->ndim; ++d) {
            text_put(out, d ? "x" : " ");
            size_print(out, in->shape[d]);
        }
        if (!in->missing && !in->ndim) text_put(out, " scalar");
    }
}

/* -- sizes */

int bind_length(struct bind *b, int attr)
{
    const struct opdef_attr *v = attrs_find(b->attrs, b->row->attrs.at[attr]);
    if (!v) bind_fail(b, "attribute %s is missing", b->row->attrs.at[attr]);
    return v ? (v->n < 0 ? 1 : v->n) : 0;
}

const struct opdef_input *bind_input(const struct bind *b, int tensor)
{
    int at = 0;
    for (int i = 0; i < tensor; ++i) at += b->row->tensors.at[i].role == OPDEF_IN;
    return &b->in[at];
}

int bind_input_rank(struct bind *b, int tensor)
{
    if (b->row->tensors.at[tensor].role != OPDEF_IN) {
        bind_fail(b, "rank(%s): not an input", b->row->tensors.at[tensor].name);
        return 0;
    }
    const struct opdef_input *in = bind_input(b, tensor);
    return in->missing ? 0 : in->ndim;
}

static void input_sizes(struct bind *b, int tensor)
{
    const struct opdef_tensor *t = &b->row->tensors.at[tensor];
    const struct opdef_input *in = bind_input(b, tensor);
    int at = 0;
    for (int k = 0; k < t->ndim; ++k) {
        int ivar = bind_base(b, t->dim[k]);
        for (int c = 0; c < b->rank[ivar]; ++c, ++at) {
            int64_t n = in->shape[at];
            if (!b->sized[ivar]) b->size[ivar][c] = n;
            if (b->size[ivar][c] != n)
                bind_unequal(b, b->size[ivar][c], n, "dimension %d of %s is %lld, but %s is %lld elsewhere", at,
                             t->name, (long long)n, bind_ivar(b, ivar)->name, (long long)b->size[ivar][c]);
            if (n < 0) bind_fail(b, "dimension %d of %s is negative", at, t->name);
        }
        b->sized[ivar] = true;
    }
}

/* Are all sizes known that a rule uses? */
static bool ready(const struct bind *b, int32_t node)
{
    const struct ex *e = &b->row->ex.at[node];
    if (!node) return true;
    if (e->kind == EX_SIZE || e->kind == OPDEF_PROD) return b->sized[bind_base(b, e->tensor)];
    if (e->kind == EX_CALL || e->kind == EX_AND || e->kind == EX_OR) {
        for (int32_t i = e->a; i; i = b->row->ex.at[i].next)
            if (!ready(b, i)) return false;
        return true;
    }
    return ready(b, e->a) && ready(b, e->b);
}

static bool number(struct bind *b, const struct opdef_rule *rule, int c, int64_t *out)
{
    int32_t v = bind_lower(b, rule->expr, c);
    if (b->status) return false;
    if (b->loops->ex.at[v].kind != EX_INT)
        bind_fail(b, "%s: not an integer, too large, or divided by zero", rule->text);
    *out = b->loops->ex.at[v].u.i;
    return !b->status;
}

static void size_rule(struct bind *b, const struct opdef_rule *rule)
{
    int ivar = bind_base(b, rule->ivar);
    b->width = b->group[ivar] ? b->rank[ivar] : 0;
    for (int c = 0; c < b->rank[ivar]; ++c) {
        int64_t n;
        if (!number(b, rule, b->group[ivar] ? c : -1, &n)) return;
        if (!b->sized[ivar]) b->size[ivar][c] = n;
        if (b->size[ivar][c] != n)
            bind_unequal(b, b->size[ivar][c], n, "%s does not hold: %s is %lld, not %lld", rule->text,
                         bind_ivar(b, ivar)->name, (long long)b->size[ivar][c], (long long)n);
        if (n < 0) bind_fail(b, "%s is negative: %s is %lld", bind_ivar(b, ivar)->name, rule->text, (long long)n);
        loops_need(b->loops, n);
    }
    b->sized[ivar] = true;
    b->width = 0;
}

/* A condition on sizes must hold. Comparisons of sizes that vary are left to the call. */
static void check_rule(struct bind *b, const struct opdef_rule *rule, int32_t cond)
{
    const struct ex *e = &b->loops->ex.at[cond], *x = &b->loops->ex.at[e->a], *y = &b->loops->ex.at[e->b];
    if (e->kind == EX_AND) {
        for (int32_t i = e->a; i; i = b->loops->ex.at[i].next) check_rule(b, rule, i);
        return;
    }
    const bool sizes = e->kind == EX_CMP && x->kind == EX_INT && y->kind == EX_INT;
    if (sizes && (e->op == CMP_LE || e->op == CMP_LT))
        loops_need(b->loops, size_sub(y->u.i, size_add(x->u.i, e->op == CMP_LT)));
    else if (sizes && (e->op == CMP_GE || e->op == CMP_GT))
        loops_need(b->loops, size_sub(x->u.i, size_add(y->u.i, e->op == CMP_GT)));
    else if (e->kind != EX_INT || !e->u.i)
        bind_fail(b, "%s does not hold", rule->text);
}

static void sizes(struct bind *b)
{
    int n = b->row->rules.n;
    bool *done = NEW_ARRAY(b->arena, bool, n + 1), more = true;
    for (int i = 0; i < b->row->tensors.n; ++i)
        if (b->row->tensors.at[i].role == OPDEF_IN && !bind_input(b, i)->missing) input_sizes(b, i);
    while (more && !b->status) {
        more = false;
        for (int i = 0; i < n && !b->status; ++i) {
            const struct opdef_rule *rule = &b->row->rules.at[i];
            if (done[i] || rule->kind == RULE_RANK || !ready(b, rule->expr)) continue;
            done[i] = more = true;
            if (rule->kind == RULE_SIZE) {
                size_rule(b, rule);
            } else {
                check_rule(b, rule, bind_lower(b, rule->expr, -1));
            }
        }
    }
}

/* -- tensors */

static int shape_of(struct bind *b, const struct opdef_tensor *t, int64_t *shape)
{
    int n = 0;
    int64_t elements;
    for (int k = 0; k < t->ndim; ++k)
        for (int c = 0; c < bind_rank(b, t->dim[k]); ++c) {
            if (n == SOL_MAX_DIMS) bind_fail(b, "%s has more than %d dimensions", t->name, SOL_MAX_DIMS);
            if (b->status) return 0;
            shape[n++] = bind_size(b, t->dim[k], c);
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

static const struct opdef_input *first_input(const struct bind *b)
{
    for (int i = 0; i < b->nin; ++i)
        if (!b->in[i].missing) return &b->in[i];
    return NULL;
}

static void input_type(struct bind *b, const struct opdef_tensor *t, enum sol_dtype given)
{
    const struct dtype_def *d = dtype_def(given);
    if (!t->type || !strcmp(t->type, "any")) return;
    bool good = !strcmp(t->type, "int")     ? !d->is_float && !d->is_bool
                : !strcmp(t->type, "float") ? d->is_float
                                            : !strcmp(t->type, d->name);
    if (!good) bind_fail(b, "%s has type %s, but must be %s", t->name, d->name, t->type);
}

static enum sol_dtype result_type(struct bind *b, const struct opdef_tensor *t)
{
    const struct opdef_input *first = first_input(b);
    enum sol_dtype usual = first ? first->dtype : SOL_F32;
    if (!t->type) return t->position && t->role == OPDEF_TEMP ? SOL_I64 : usual;
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
        const struct opdef_tensor *x = &b->row->tensors.at[i];
        if (x->role != OPDEF_IN || strcmp(x->name, name)) continue;
        if (bind_input(b, i)->missing) bind_fail(b, "the type of %s is that of %s, which is missing", t->name, name);
        return bind_input(b, i)->dtype;
    }
    bind_fail(b, "%s has the unknown type %s", t->name, name);
    return usual;
}

static void tensors(struct bind *b, enum opdef_role role)
{
    static const enum loops_role roles[] = {
        [OPDEF_IN] = LOOPS_INPUT, [OPDEF_OUT] = LOOPS_OUTPUT, [OPDEF_TEMP] = LOOPS_TEMP};
    for (int i = 0; i < b->row->tensors.n && !b->status; ++i) {
        const struct opdef_tensor *t = &b->row->tensors.at[i];
        int64_t shape[SOL_MAX_DIMS] = {0};
        if (t->role != role) continue;
        b->tensor[i] = -1;
        if (role == OPDEF_IN && bind_input(b, i)->missing) continue;
        int n = shape_of(b, t, shape);
        if (role == OPDEF_IN) input_type(b, t, bind_input(b, i)->dtype);
        if (b->status) return;
        enum sol_dtype type = role == OPDEF_IN ? bind_input(b, i)->dtype : result_type(b, t);
        b->tensor[i] = loops_tensor(b->loops, t->name, roles[role], type, n, shape);
    }
}

/* -- tables */

static void table_part(struct bind *b, const struct loops_stmt *s, int c, struct bind_table_part *out)
{
    const struct opdef_tensor *t = &b->row->tensors.at[s->out[0]];
    struct loops *outer = b->loops, *l = loops_create(b->arena, t->name);
    uint8_t(*ivars)[SOL_MAX_DIMS] = b->ivar;
    int64_t shape[SOL_MAX_DIMS], n;
    int32_t index[SOL_MAX_DIMS];
    struct affine affine;
    b->loops = l;
    b->ivar = arena_alloc(b->arena, sizeof *b->ivar * OPDEF_MAX_IVARS);
    for (int k = 0; k < t->ndim; ++k) {
        index[k] = bind_component(b, t->dim[k], c);
        int at = b->status ? -1 : bind_one(b, t->dim[k], c);
        shape[k] = at < 0 ? 1 : bind_size(b, t->dim[k], at);
        if (l->ex.at[index[k]].kind == EX_IVAR) out->ivar[k] = (uint8_t)(l->ex.at[index[k]].tensor + 1);
    }
    out->value = bind_lower(b, s->value, c);
    out->loops = l;
    b->loops = outer;
    b->ivar = ivars;
    if (b->status || ex_affine(l, out->value, &affine)) return;
    if (loops_vary(l) || ex_varies(l, out->value)) return; /* it is computed where it is read */
    if ((b->status = shape_elements(arena_ctx(b->arena), t->ndim, shape, &n))) return;
    if (n > MOST_TABLE) {
        b->status = ctx_fail(arena_ctx(b->arena), SOL_ERR_UNSUPPORTED,
                             "%s: table %s would have %lld elements; at most %d are supported", b->row->name, t->name,
                             (long long)n, MOST_TABLE);
        return;
    }
    enum sol_dtype type = ex_is_int(l, out->value) ? SOL_I64 : SOL_F64;
    struct loops_stmt made = {.nout = 1, .index = ex_list(l, t->ndim, index), .value = out->value};
    made.out[0] = (uint16_t)loops_tensor(l, t->name, LOOPS_OUTPUT, type, t->ndim, shape);
    loops_stmt(l, made);
    void *data[1] = {arena_try(b->arena, (size_t)n * 8)};
    if (!data[0]) {
        b->status = ctx_fail(arena_ctx(b->arena), SOL_ERR_NOMEM, "%s: no memory for table %s", b->row->name, t->name);
        return;
    }
    b->status = loops_interpret(arena_ctx(b->arena), l, data);
    const char *name = b->table[s->out[0]].ncomp > 1 ? arena_printf(b->arena, "%s%d", t->name, c) : t->name;
    int tensor = loops_table(outer, name, type, t->ndim, shape, data[0]);
    out->tensor = tensor + 1;
}

static void tables(struct bind *b)
{
    for (int i = 0; i < b->row->tables.n && !b->status; ++i) {
        const struct loops_stmt *s = &b->row->tables.at[i];
        struct bind_table *t = &b->table[s->out[0]];
        uint64_t set = 0;
        for (int32_t e = s->index; e; e = b->row->ex.at[e].next) set |= bind_exposed(b->row, e);
        int rank = bind_components(b, set);
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
    const struct opdef_tensor *t = &b->row->tensors.at[s->out[0]];
    const struct loops_tensor *to = &b->loops->tensors.at[b->tensor[s->out[0]]];
    int ndim = to->ndim;
    b->no_output = false;
    for (int d = 0; d < ndim; ++d) b->no_output |= to->shape[d] == 0;
    int n = bind_indices(b, t, s->index, index);
    if (n >= 0 && n != ndim) bind_fail(b, "%s has %d dimensions and is written with %d indices", t->name, ndim, n);
    if (b->status) return;
    made.index = ex_list(b->loops, n, index);
    made.value = bind_lower(b, s->value, -1);
    for (int i = 0; i < s->nout; ++i) {
        made.out[i] = (uint16_t)b->tensor[s->out[i]];
        struct loops_tensor out = b->loops->tensors.at[made.out[i]];
        if (out.ndim != ndim || memcmp(out.shape, b->loops->tensors.at[made.out[0]].shape, (size_t)ndim * 8))
            bind_fail(b, "%s and %s are written together but differ in shape", t->name, out.name);
        if (!i && out.role == LOOPS_TEMP && !b->row->tensors.at[s->out[0]].type && !dtype_def(out.dtype)->is_float &&
            !ex_is_int(b->loops, made.value))
            out.dtype = (uint8_t)bind_float_type(b);
        if (i && out.role == LOOPS_TEMP && !b->row->tensors.at[s->out[i]].type &&
            !b->row->tensors.at[s->out[i]].position)
            out.dtype = b->loops->tensors.at[made.out[0]].dtype;
        loops_set_tensor(b->loops, made.out[i], out);
    }
    loops_stmt(b->loops, made);
}

/* The type of temporaries that hold reals although the first input is an integer: the first float type among the
 * inputs. */
enum sol_dtype bind_float_type(const struct bind *b)
{
    for (int i = 0; i < b->nin; ++i)
        if (!b->in[i].missing && dtype_def(b->in[i].dtype)->is_float) return b->in[i].dtype;
    return SOL_F32;
}

/* Positions count by index variable number, so the index variables of maxat and minat are created first, in the order
 * of the definition. */
static void position_ivars(struct bind *b)
{
    uint64_t set = 0;
    for (int i = 1; i < b->row->ex.n; ++i) {
        const struct ex *e = &b->row->ex.at[i];
        if (e->kind == EX_RED && (e->op == RED_MAXAT || e->op == RED_MINAT)) set |= e->u.bound;
    }
    for (int i = 0; i < b->row->ivars.n; ++i)
        for (int c = 0; set >> i & 1 && c < bind_rank(b, i); ++c) bind_component(b, i, c);
}

sol_status opdef_bind(struct arena *a, const struct opdef *r, int nin, const struct opdef_input *in,
                      const struct attrs *attrs, const struct loops **out_loops)
{
    struct bind b = {.arena = a, .row = r, .nin = nin, .in = in, .attrs = attrs};
    if (nin != r->nin)
        return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: %d inputs given, it has %d", r->name, nin, r->nin);
    b.loops = loops_create(a, r->name);
    b.ivar = arena_alloc(a, sizeof *b.ivar * OPDEF_MAX_IVARS);
    b.tensor = NEW_ARRAY(a, int, r->tensors.n + 1);
    b.table = NEW_ARRAY(a, struct bind_table, r->tensors.n + 1);
    TRY(bind_ranks(&b));
    sizes(&b);
    tensors(&b, OPDEF_IN);
    tensors(&b, OPDEF_OUT);
    if (r->stmts.n) tensors(&b, OPDEF_TEMP);
    tables(&b);
    position_ivars(&b);
    for (int i = 0; i < r->stmts.n && !b.status; ++i) statement(&b, &r->stmts.at[i]);
    TRY(b.status);
    TRY(loops_order(arena_ctx(a), b.loops));
    *out_loops = b.loops;
    return ctx_check(arena_ctx(a));
}

sol_status opdef_measure(struct arena *a, const struct opdef *r, int nin, const struct opdef_input *in,
                         const struct attrs *attrs, struct opdef_measures *out_m)
{
    struct bind b = {.arena = a, .row = r, .nin = nin, .in = in, .attrs = attrs};
    b.loops = loops_create(a, r->name);
    b.ivar = arena_alloc(a, sizeof *b.ivar * OPDEF_MAX_IVARS);
    b.tensor = NEW_ARRAY(a, int, r->tensors.n + 1);
    TRY(bind_ranks(&b));
    sizes(&b);
    tensors(&b, OPDEF_TEMP);
    TRY(b.status);
    *out_m = (struct opdef_measures){.ivar = NEW_ARRAY(a, int64_t, r->ivars.n + 1),
                                     .temp = NEW_ARRAY(a, int64_t, r->tensors.n + 1)};
    for (int i = 0; i < r->ivars.n; ++i) {
        int64_t n = 1;
        for (int c = 0; c < bind_rank(&b, i); ++c) n = size_mul(n, bind_size(&b, i, c));
        out_m->ivar[out_m->nivar++] = n;
    }
    for (int i = 0; i < b.loops->tensors.n; ++i) {
        const struct loops_tensor *t = &b.loops->tensors.at[i];
        out_m->temp[out_m->ntemp++] = size_mul(loops_elements(t), dtype_def((enum sol_dtype)t->dtype)->bytes);
    }
    TRY(b.status);
    return ctx_check(arena_ctx(a));
}
