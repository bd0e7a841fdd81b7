/* Statements one by one. Inside the shared loops each statement has its own vector index variable: one of its result
 * (an element-wise pass over a row), or one of its reductions (a sum over a row, in several accumulators that are
 * combined at the end). What does not vary along the row is computed ahead of it. */
#include <inttypes.h>

#include "dfp/dfp.h"

#define ACCUMULATORS 4

#define SAY(d, ...) arena_printf((d)->p.out->arena, __VA_ARGS__)

int dfp_reductions(const struct loops *loops, int32_t node, int32_t *out, int room)
{
    if (!node || room <= 0) return 0;
    const struct ex *e = &loops->ex.at[node];
    int n = 0;
    switch (e->kind) {
    case EX_RED: *out = node; return 1;
    case EX_CALL:
    case EX_AND:
    case EX_OR:
        for (int32_t i = e->a; i; i = loops->ex.at[i].next) n += dfp_reductions(loops, i, out + n, room - n);
        return n;
    case EX_READ: return dfp_reductions(loops, e->b, out, room);
    case EX_INT:
    case EX_REAL:
    case EX_IVAR: return 0;
    default: n = dfp_reductions(loops, e->a, out, room); return n + dfp_reductions(loops, e->b, out + n, room - n);
    }
}

/* -- what does not vary along a row */

struct plain {
    const struct dfp *d;
    bool ok;
};
/* Is this read inside its tensor in each dimension? */
static bool inside(const struct dfp *d, const struct ex *read)
{
    int dim = 0;
    for (int32_t i = read->a; i; i = dfp_ex(d, i)->next, dim++) {
        int64_t low, high;
        if (!expr_bounds(&d->p, i, &low, &high) || !size_le(0, low) ||
            !size_lt(high, d->loops->tensors.at[read->tensor].shape[dim]))
            return false;
    }
    return true;
}

/* Is it inside the tensor's memory? That is enough to load it, and can be proven where index variables were merged. */
static bool inside_memory(const struct dfp *d, const struct ex *read)
{
    const struct loops_tensor *t = &d->loops->tensors.at[read->tensor];
    int64_t stride[SOL_MAX_DIMS], low, high, last = 0;
    struct affine a;
    expr_strides(d->loops, d->p.memory, read->tensor, stride);
    if (!expr_affine_offset(d->loops, d->p.memory, read->tensor, read->a, &a)) return false;
    expr_fold(&d->p, &a);
    for (int i = 0; i < t->ndim; i++) last = size_add(last, size_mul(size_sub(t->shape[i], 1), stride[i]));
    return expr_affine_bounds(&d->p, &a, &low, &high) && size_le(0, low) && size_le(high, last);
}

/* Reads without a guard must be possible. */
static void see_reads(void *user, int32_t node)
{
    struct plain *s = user;
    const struct ex *e = dfp_ex(s->d, node);
    if (e->kind == EX_RED) s->ok = false;
    if (e->kind != EX_READ || e->b) return;
    if (!inside(s->d, e) && !(loops_vary(s->d->loops) && inside_memory(s->d, e))) s->ok = false;
}

static void see_plain(void *user, int32_t node)
{
    struct plain *s = user;
    const int kind = s->d->loops->ex.at[node].kind;
    if (kind == EX_CMP || kind == EX_TEST) s->ok = false;
    see_reads(user, node);
}

void dfp_hoist(struct dfp *d, int32_t node, uint64_t inner, enum compute k)
{
    if (!node) return;
    const struct ex e = d->loops->ex.at[node];
    if (e.kind == EX_INT || e.kind == EX_REAL || e.kind == EX_IVAR) return;
    const bool is_int = ex_is_int(d->loops, node);
    struct plain s = {d, true};
    ex_walk(d->loops, node, see_plain, &s);
    if (!(ex_ivars(d->loops, node) & inner) && s.ok && !is_int) {
        for (const struct print_known *i = d->hoisted; i; i = i->next)
            if (i->node == node) return;
        const enum compute own = compute_is_int(k) ? expr_natural(d->loops, node) : k;
        const char *value = expr_value(&d->p, node, own);
        const char *name = expr_name(&d->p);
        text_line(d->p.out, "const %s %s = %s;", compute_def(own)->type, name, text_bare(d->p.out->arena, value));
        expr_know(&d->p, node, own, name);
        d->hoisted = d->p.known;
        return;
    }
    switch (e.kind) {
    case EX_CALL:
        for (int32_t i = e.a; i; i = d->loops->ex.at[i].next) dfp_hoist(d, i, inner, k);
        return;
    case EX_NEG:
    case EX_ADD:
    case EX_SUB:
    case EX_MUL:
    case EX_DIV:
        dfp_hoist(d, e.a, inner, k);
        dfp_hoist(d, e.b, inner, k);
        return;
    case EX_RED: dfp_hoist(d, e.b, inner | e.u.bound, k); return;
    default: return;
    }
}

/* -- a reduction across the lanes */

static const char *op_name(int op)
{
    return op == RED_SUM ? "sum" : op == RED_PROD ? "prod" : op == RED_MAX ? "max" : "min";
}

struct row { /* one row of a reduction: index variable v from low to high */
    int v;
    const char *low, *high;
    int64_t n;                /* its length; -1: unknown */
    const char *total, *rest; /* full vectors go to `total`, the remainder to `rest`; NULL: there is none */
};

/* Prints the remainder of a row that fills no full vector: smaller vectors, each reduced across its lanes. */
static void print_rest(struct dfp_reduction *r, const struct row *row)
{
    struct dfp *d = r->d;
    const int64_t n = row->n;
    const char *name = d->loops->ivars.at[row->v].name;
    for (int lanes = d->lanes / 2; lanes >= 1; lanes /= 2) {
        if (n >= 0 && !(n % d->lanes & lanes)) continue;
        if (n < 0)
            text_open(d->p.out, "if (%s + %d <= %s) {", name, lanes, row->high);
        else
            text_open(d->p.out, "{");
        d->p.lanes = lanes;
        d->loads = NULL;
        dfp_declare(r, r->acc);
        dfp_accumulate(r);
        const char *value = r->acc[0];
        if (lanes > 1) value = SAY(d, "@sol_across_%s_%s(%s)", op_name(r->e->op), expr_type_name(&d->p, r->k), value);
        d->p.lanes = 1;
        dfp_join(d, r->e->op, r->k, row->rest, value);
        text_line(d->p.out, "%s += %d;", name, lanes);
        text_close(d->p.out, "}");
    }
}

static void print_row(struct dfp_reduction *r, const struct row *row)
{
    struct dfp *d = r->d;
    const int v = row->v;
    const int64_t n = row->n;
    const char *name = d->loops->ivars.at[v].name;
    const int64_t size = d->loops->ivars.at[v].size;
    const int many = n < 0 || n >= d->lanes * ACCUMULATORS ? ACCUMULATORS : 1;
    const int64_t strip = d->lanes * many * dfp_chunk(size / (d->lanes * many));
    const bool strips = size > strip && (r->e->op == RED_SUM || r->e->op == RED_PROD);
    const char *end = row->high;
    text_line(d->p.out, "int64_t %s = %s;", name, row->low);
    d->ivars[v] = (struct print_ivar){true, name, 0, 0, size - 1};
    if (size >= d->lanes) {
        if (strips) {
            end = expr_name(&d->p);
            text_open(d->p.out, "while (%s + %d <= %s) {", name, d->lanes, row->high);
            text_line(d->p.out, "const int64_t %s = @sol_min_i64(%s, %s + %" PRId64 ");", end, row->high, name, strip);
        } else {
            text_open(d->p.out, "{");
        }
        d->p.lanes = d->lanes;
        d->tile = v;
        d->step = d->lanes;
        d->points = many;
        dfp_declare(r, r->acc);
        const int steps[] = {many, 1};
        for (int i = many == 1; i < 2; i++) {
            d->points = steps[i];
            if (steps[i] == 1 && n >= 0 && many > 1 && !strips && n % (d->lanes * many) < d->lanes) continue;
            text_open(d->p.out, "for (; %s + %d <= %s; %s += %d) {", name, d->lanes * steps[i], end, name,
                      d->lanes * steps[i]);
            d->loads = NULL;
            dfp_accumulate(r);
            text_close(d->p.out, "}");
        }
        for (int step = 1; step < many; step *= 2)
            for (int q = 0; q + step < many; q += 2 * step) dfp_join(d, r->e->op, r->k, r->acc[q], r->acc[q + step]);
        dfp_join(d, r->e->op, r->k, row->total, r->acc[0]);
        text_close(d->p.out, "}");
        d->points = 1;
        dfp_use(d, 0);
    }
    d->tile = -1;
    if (row->rest) print_rest(r, row);
    d->ivars[v].known = false;
    d->p.lanes = 1;
    d->loads = NULL;
}

struct row_chunk { /* several rows are added up before they join the total */
    struct dfp *d;
    enum compute k;
    int op;
    const char *name;
};
static void begin_row_chunk(void *user)
{
    struct row_chunk *c = user;
    c->name = expr_name(&c->d->p);
    c->d->p.lanes = c->d->lanes;
    text_line(c->d->p.out, "%s %s = %s;", expr_type(&c->d->p, c->k), c->name, dfp_start(c->d, c->op, c->k));
    c->d->p.lanes = 1;
}

/* -- a row of a length that is known only while running */

/* Adds vectors to the total: several at a time in accumulators of their own, in strips. */
static void several_vectors(struct dfp_reduction *r, const struct row *row)
{
    struct dfp *d = r->d;
    const char *name = d->loops->ivars.at[row->v].name, *end = row->high;
    const int64_t size = d->loops->ivars.at[row->v].size, most = d->lanes * ACCUMULATORS;
    const int64_t strip = most * dfp_chunk(size_hint(size) / most);
    d->p.lanes = d->lanes;
    if (size_le(size, strip) || r->e->op == RED_MAX || r->e->op == RED_MIN) {
        text_open(d->p.out, "if (%s) {", dfp_fits(d, name, most, row->high));
    } else {
        text_open(d->p.out, "while (%s) {", dfp_fits(d, name, most, row->high));
        end = expr_name(&d->p);
        text_line(d->p.out, "const int64_t %s = @sol_min_i64(%s, %s + %" PRId64 ");", end, row->high, name, strip);
    }
    d->tile = row->v;
    d->step = d->lanes;
    d->points = ACCUMULATORS;
    dfp_declare(r, r->acc);
    text_open(d->p.out, "for (; %s; %s += %" PRId64 ") {", dfp_fits(d, name, most, end), name, most);
    d->loads = NULL;
    dfp_accumulate(r);
    text_close(d->p.out, "}");
    for (int step = 1; step < ACCUMULATORS; step *= 2)
        for (int q = 0; q + step < ACCUMULATORS; q += 2 * step)
            dfp_join(d, r->e->op, r->k, r->acc[q], r->acc[q + step]);
    dfp_join(d, r->e->op, r->k, row->total, r->acc[0]);
    text_close(d->p.out, "}");
    d->points = 1;
    dfp_use(d, 0);
    d->tile = -1;
}

/* Adds to `total` what is left of the row, with vectors of `lanes` elements, or one full vector if the row has as many
 * elements; the last one ends where the row ends. Its lanes that were added before do not count, except in a maximum or
 * minimum, which they do not change. */
static void last_vectors(struct dfp_reduction *r, const struct row *row, int lanes, const char *total)
{
    struct dfp *d = r->d;
    const char *name = d->loops->ivars.at[row->v].name, *mask = compute_def(r->k)->mask;
    if (lanes == d->lanes)
        text_open(d->p.out, "if (%s) {", dfp_fits(d, row->low, lanes, row->high));
    else
        text_open(d->p.out, "for (; %s < %s; %s += %d) {", name, row->high, name, lanes);
    d->p.lanes = lanes;
    d->loads = NULL;
    if (r->e->op == RED_SUM || r->e->op == RED_PROD) {
        const char *first = expr_name(&d->p), *type = expr_vector(&d->p, mask);
        struct text number = text_new(d->p.out->arena);
        for (int i = 0; i < lanes; i++) text_put(&number, i ? ", %d" : "%d", i);
        text_line(d->p.out, "const int64_t %s = %s;", first, name);
        r->counted = SAY(d, "(%s)((%s){%s} >= (%s)(%s - %s))", type, type, number.at,
                         r->k == C_F32 ? "int32_t" : "int64_t", first, name);
    }
    text_line(d->p.out, "%s = @sol_min_i64(%s, %s - %d);", name, name, row->high, lanes);
    r->acc[0] = total;
    dfp_accumulate(r);
    r->counted = NULL;
    if (lanes == d->lanes) text_line(d->p.out, "%s = %s;", name, row->high);
    text_close(d->p.out, "}");
}

/* A row that is shorter than a vector. */
static void short_row(struct dfp_reduction *r, const struct row *row)
{
    struct dfp *d = r->d;
    const char *name = d->loops->ivars.at[row->v].name;
    for (int lanes = d->lanes / 2; lanes >= DFP_LEAST_LANES; lanes /= 2) {
        text_open(d->p.out, "if (%s < %s && %s) {", name, row->high, dfp_fits(d, row->low, lanes, row->high));
        d->p.lanes = lanes;
        const char *total = expr_name(&d->p);
        text_line(d->p.out, "%s %s = %s;", expr_type(&d->p, r->k), total, dfp_start(d, r->e->op, r->k));
        last_vectors(r, row, lanes, total);
        const char *value = SAY(d, "@sol_across_%s_%s(%s)", op_name(r->e->op), expr_type_name(&d->p, r->k), total);
        d->p.lanes = 1;
        dfp_join(d, r->e->op, r->k, row->rest, value);
        text_close(d->p.out, "}");
    }
    d->p.lanes = 1;
    text_open(d->p.out, "if (%s < %s) {", name, row->high);
    r->acc[0] = row->rest;
    d->loads = NULL;
    dfp_accumulate(r);
    text_close(d->p.out, "}");
}

static void row_of_any_length(struct dfp_reduction *r, struct row row)
{
    struct dfp *d = r->d;
    const char *name = d->loops->ivars.at[row.v].name;
    const int64_t size = d->loops->ivars.at[row.v].size;
    text_line(d->p.out, "int64_t %s = %s;", name, row.low);
    row.high = dfp_end(d, row.high);
    d->ivars[row.v] = (struct print_ivar){true, name, 0, 0, size_sub(size, 1)};
    if (!size_lt(size, d->lanes * ACCUMULATORS)) several_vectors(r, &row);
    d->p.lanes = d->lanes;
    text_open(d->p.out, "for (; %s; %s += %d) {", dfp_fits(d, name, d->lanes, row.high), name, d->lanes);
    r->acc[0] = row.total;
    d->loads = NULL;
    dfp_accumulate(r);
    text_close(d->p.out, "}");
    text_open(d->p.out, "if (%s < %s) {", name, row.high);
    last_vectors(r, &row, d->lanes, row.total);
    short_row(r, &row);
    text_close(d->p.out, "}");
    d->ivars[row.v].known = false;
    d->p.lanes = 1;
    d->loads = NULL;
}

/* -- a reduction across the lanes, all rows */

/* Computes the reduction `node`, which binds v, with vectors along v, and names its value. False: it cannot. */
static bool across_lanes(struct dfp *d, int32_t node, int v, enum compute k)
{
    const struct ex e = d->loops->ex.at[node];
    struct dfp_reduction r;
    if (e.op != RED_SUM && e.op != RED_PROD && e.op != RED_MAX && e.op != RED_MIN) return false;
    dfp_reduction_begin(d, &e, node, k, &r);
    if (r.k == C_U64) return false;
    for (int i = 0; i < d->loops->ivars.n; i++)
        if (e.u.bound >> i & 1 && i != v && d->loops->ivars.at[i].size > 1) r.loops.ivar[r.loops.n++] = (uint8_t)i;
    r.loops.later = bit(v);
    nest_order(&d->p, &r.loops, e.b);
    nest_guard(&d->p, &r.loops, e.a);
    /* parts of the guard that do not bound v differ between lanes */
    struct print_loops look = {0};
    struct text out = text_new(d->p.out->arena), *old = d->p.out;
    const char *low, *high;
    for (int i = 0; i < r.loops.guard.n; i++)
        if (ex_ivars(d->loops, r.loops.guard.at[i]) & bit(v)) PUSH(d->loops->arena, look.guard, r.loops.guard.at[i]);
    d->p.out = &out;
    nest_range(&d->p, &look, v, 0, &low, &high);
    d->p.out = old;
    int kept = 0;
    for (int i = 0; i < r.loops.guard.n; i++) {
        const int32_t part = r.loops.guard.at[i];
        bool mask = false;
        for (int j = 0; j < look.guard.n; j++) mask = mask || look.guard.at[j] == part;
        if (mask)
            PUSH(d->loops->arena, r.masks, part);
        else
            r.loops.guard.at[kept++] = part;
    }
    r.loops.guard.n = kept;
    struct plain s = {d, true};
    if (r.masks.n) ex_walk(d->loops, e.b, see_reads, &s);
    for (int i = 0; i < r.masks.n; i++) ex_walk(d->loops, r.masks.at[i], see_reads, &s);
    if (!s.ok) return false;

    if (d->items) {
        dfp_items_reduce(&r, node, v);
        return true;
    }
    d->p.vector_ivar = v;
    const char *total = expr_name(&d->p), *rest = NULL;
    const int64_t size = d->loops->ivars.at[v].size;
    const bool varies = size_varies(size), full = varies || size >= d->lanes;
    d->p.lanes = d->lanes;
    if (full) text_line(d->p.out, "%s %s = %s;", expr_type(&d->p, r.k), total, dfp_start(d, e.op, r.k));
    d->p.lanes = 1;
    bool clipped = false;
    for (int i = 0; i < r.loops.guard.n; i++) clipped = clipped || (ex_ivars(d->loops, r.loops.guard.at[i]) & bit(v));
    if (varies || clipped || size % d->lanes) {
        rest = expr_name(&d->p);
        text_line(d->p.out, "%s %s = %s;", compute_def(r.k)->type, rest, dfp_start(d, e.op, r.k));
    }
    struct row_chunk chunk = {d, r.k, e.op, total};
    int64_t rows = 1;
    for (int i = 0; i < r.loops.n; i++) rows = size_mul(rows, d->loops->ivars.at[r.loops.ivar[i]].size);
    const int64_t most = dfp_chunk(size_hint(rows));
    if (!size_le(rows, 2 * most) && full && (e.op == RED_SUM || e.op == RED_PROD)) {
        r.loops.between = begin_row_chunk;
        r.loops.user = &chunk;
        r.loops.inner = r.loops.n - 1;
        r.loops.strip = size_le(d->loops->ivars.at[r.loops.ivar[r.loops.n - 1]].size, 2 * most) ? 0 : most;
    }
    nest_open(&d->p, &r.loops);
    nest_open_last(&d->p, &r.loops, v, &low, &high);
    text_open(d->p.out, "{");
    const struct row row = {v, low, high, clipped ? -1 : size, chunk.name, rest};
    if (varies)
        row_of_any_length(&r, row);
    else
        print_row(&r, &row);
    text_close(d->p.out, "}");
    if (r.loops.between) {
        for (int i = 0; i < r.loops.inner_opened; i++) text_close(d->p.out, "}");
        d->p.lanes = d->lanes;
        dfp_join(d, e.op, r.k, total, chunk.name);
        d->p.lanes = 1;
        r.loops.opened -= r.loops.inner_opened;
    }
    nest_close(&d->p, &r.loops);
    const char *value = rest;
    if (full) {
        d->p.lanes = d->lanes;
        value = SAY(d, "@sol_across_%s_%s(%s)", op_name(e.op), expr_type_name(&d->p, r.k), total);
        d->p.lanes = 1;
        if (rest) {
            dfp_join(d, e.op, r.k, rest, value);
            value = rest;
        }
    }
    if (!rest) {
        const char *name = expr_name(&d->p);
        text_line(d->p.out, "const %s %s = %s;", compute_def(r.k)->type, name, value);
        value = name;
    }
    d->p.vector_ivar = -1;
    expr_know(&d->p, node, r.k, value);
    return true;
}

/* Short rows use shorter vectors, so that rows can also be added up in lanes. */
static bool across(struct dfp *d, int32_t node, int v, enum compute k)
{
    const int lanes = d->lanes;
    if (lanes == 1 && !d->items) return false; /* a loop, of which the compiler makes vectors */
    while (!d->items && d->lanes > 2 && size_lt(d->loops->ivars.at[v].size, d->lanes)) d->lanes /= 2;
    const bool done = across_lanes(d, node, v, k);
    d->lanes = lanes;
    return done;
}

/* -- statements */

struct inner {
    const struct loops_stmt *s;
    uint64_t open;
};
static void inner_statement(struct dfp *d, void *user)
{
    const struct inner *in = user;
    dfp_statement(d, in->s, in->open);
}

/* A statement that has no lanes. */
static void stored_once(struct dfp *d, const struct loops_stmt *s, uint64_t open)
{
    if (d->items) dfp_items_one_open(d);
    dfp_statement(d, s, open);
    if (d->items) text_close(d->p.out, "}");
}

static int row_vector(struct dfp *d, const struct loops_stmt *s, uint64_t open)
{
    double cost;
    return s->nout == 1 ? dfp_stmt_vector(d, s, open, &cost) : -1;
}

bool dfp_row_waits(struct dfp *d, const struct loops_stmt *s, const struct loops_stmt *next, uint64_t open)
{
    if (!next || s->scan_step || next->scan_step || row_vector(d, next, open) >= 0) return true;
    const int v = row_vector(d, s, open);
    return v >= 0 && (stmt_ivars(d->loops, s) & ~open) >> v & 1;
}

void dfp_row_statement(struct dfp *d, const struct loops_stmt *s, uint64_t open)
{
    const int v = row_vector(d, s, open);
    const enum compute k = compute_of((enum sol_dtype)d->loops->tensors.at[s->out[0]].dtype);
    const uint64_t own = stmt_ivars(d->loops, s) & ~open;
    const struct print_known *hoisted = d->hoisted;
    d->p.lanes = 1;
    d->points = 1;
    d->tile = -1;
    d->point = 0;
    d->known[0] = d->p.known = d->hoisted;
    struct print_loops loops = {0};
    for (int i = 0; i < d->loops->ivars.n; i++)
        if (own >> i & 1 && i != v) loops.ivar[loops.n++] = (uint8_t)i;
    if (v < 0) {
        text_open(d->p.out, "{");
        stored_once(d, s, open);
    } else {
        text_open(d->p.out, "{");
        nest_order(&d->p, &loops, ex_read(d->loops, s->out[0], s->index, 0));
        nest_open(&d->p, &loops);
        const uint64_t inside = open | own;
        if (own >> v & 1) {
            dfp_hoist(d, s->value, bit(v), k);
            struct inner in = {s, inside};
            const char *end = SAY(d, "%" PRId64, d->loops->ivars.at[v].size);
            dfp_vector_loop(d, &(struct dfp_loop){.ivar = v,
                                                  .low = "0",
                                                  .high = end,
                                                  .points = 1,
                                                  .n = 1,
                                                  .stmts = s,
                                                  .body = inner_statement,
                                                  .user = &in});
        } else {
            int32_t red[8];
            const int n = dfp_reductions(d->loops, s->value, red, COUNT_OF(red));
            for (int i = 0; i < n; i++) {
                if (!(d->loops->ex.at[red[i]].u.bound >> v & 1)) continue;
                dfp_hoist(d, d->loops->ex.at[red[i]].b, d->loops->ex.at[red[i]].u.bound, k);
                for (int q = 0; q < DFP_POINTS; q++) d->known[q] = d->hoisted;
                across(d, red[i], v, k);
                d->hoisted = d->p.known;
            }
            stored_once(d, s, inside);
        }
        nest_close(&d->p, &loops);
    }
    text_close(d->p.out, "}");
    d->hoisted = hoisted;
}
