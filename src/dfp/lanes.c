/* Statements in lanes. Every statement of a group runs along the same vector index variable, for one point or for
 * several at a time (a register tile). Reductions keep one accumulator per point. Loads that points share are done
 * once. Windows are unrolled where their borders are known at print time; otherwise they are loops with clipped
 * bounds. */
#include <inttypes.h>
#include <string.h>

#include "dfp/dfp.h"

#define UNROLL_MOST 96 /* terms times points of unrolled code */

#define SAY(d, ...) arena_printf((d)->p.out->arena, __VA_ARGS__)

static const struct ex *at(const struct dfp *d, int32_t node)
{
    return &d->loops->ex.at[node];
}

void dfp_use(struct dfp *d, int point)
{
    d->known[d->point] = d->p.known;
    d->point = point;
    d->p.known = d->known[point];
    if (d->tile >= 0) d->ivars[d->tile].plus = point * d->step + (d->ivars[d->tile].base ? 0 : d->ivars[d->tile].low);
}

void dfp_name(struct dfp *d, int32_t node, enum compute k, const char *text)
{
    struct print_known *known = NEW(d->p.out->arena, struct print_known);
    *known = (struct print_known){node, k, d->p.lanes, text, d->p.lane, d->p.known};
    d->p.known = known;
}

/* -- reads */

static const char *row_place(struct dfp *d, int tensor, int32_t index)
{
    const struct dtype_def *t = dtype_def((enum sol_dtype)d->loops->tensors.at[tensor].dtype);
    const char *name = d->loops->tensors.at[tensor].name;
    return SAY(d, "*(%s *)(%s + %s)", expr_vector(&d->p, t->name), name, print_offset(&d->p, tensor, index));
}

static const char *find_load(const struct dfp *d, const char *text)
{
    for (const struct dfp_load *i = d->loads; i; i = i->next)
        if (!strcmp(i->text, text)) return i->name;
    return NULL;
}

static void add_load(struct dfp *d, const char *text, const char *name)
{
    struct dfp_load *load = NEW(d->p.out->arena, struct dfp_load);
    *load = (struct dfp_load){text, name, d->loads};
    d->loads = load;
}

static int64_t ivar_step(const struct dfp *d, const struct ex *e, int ivar)
{
    struct affine a;
    if (!expr_affine_offset(d->loops, d->p.memory, e->tensor, e->a, &a)) return 0;
    for (int i = 0; i < a.n; i++)
        if (a.ivar[i] == ivar) return a.coef[i];
    return 0;
}

/* A read that is contiguous along the points, not along the lanes: a block of both is transposed. NULL: the read has
 * another form. */
static const char *transposed(struct dfp *d, const struct ex *e)
{
    struct print_expr *p = &d->p;
    const struct loops_tensor *t = &d->loops->tensors.at[e->tensor];
    const enum compute k = compute_of((enum sol_dtype)t->dtype);
    const int64_t apart = ivar_step(d, e, p->vector_ivar);
    const int point = d->point, lanes = p->lanes, first = point / lanes * lanes;
    if (!d->blocks || k == C_U64 || dtype_def((enum sol_dtype)t->dtype)->bytes != (k == C_F32 ? 4 : 8)) return NULL;
    if (apart == 0 || apart == 1 || ivar_step(d, e, d->tile) != 1 || first + lanes > d->points) return NULL;
    const char *name = d->loops->tensors.at[e->tensor].name;
    const char *key = SAY(d, "%s %s", name, print_offset(p, e->tensor, e->a)), *found = find_load(d, key);
    if (found) return found;
    const char *block = expr_name(p), *type = expr_type(p, k);
    text_line(p->out, "%s %s[%d];", type, block, lanes);
    dfp_use(d, first);
    const char *at = print_offset(p, e->tensor, e->a);
    for (int i = 0; i < lanes; i++)
        text_line(p->out, "%s[%d] = *(const %s *)(%s + %s + %" PRId64 ");", block, i, type, name, at, apart * i);
    text_line(p->out, "@sol_transpose_%s(%s);", expr_type_name(p, k), block);
    for (int q = 0; q < lanes; q++) {
        dfp_use(d, first + q);
        add_load(d, SAY(d, "%s %s", name, print_offset(p, e->tensor, e->a)), SAY(d, "%s[%d]", block, q));
    }
    dfp_use(d, point);
    return find_load(d, key);
}

/* A read that several points share, or that was done before, is taken from a register. */
static const char *cached(struct dfp *d, int32_t node)
{
    struct print_expr *p = &d->p;
    struct affine a;
    const struct ex e = *at(d, node);
    const struct loops_tensor *t = &d->loops->tensors.at[e.tensor];
    if (t->role != LOOPS_INPUT || e.b) return NULL;
    for (int32_t i = e.a; i; i = at(d, i)->next)
        if (!ex_affine(d->loops, i, &a)) return NULL;
    const char *block = transposed(d, &e);
    if (block) return block;
    const enum compute k = compute_of((enum sol_dtype)t->dtype);
    p->read = NULL;
    const char *text = expr_value(p, node, k);
    p->read = dfp_read;
    const char *found = find_load(d, text);
    if (found) return found;
    found = expr_temp(p, text, k);
    add_load(d, text, found);
    return found;
}

const char *dfp_read(void *user, struct print_expr *p, int32_t node)
{
    struct dfp *d = user;
    const struct ex *e = at(d, node);
    const struct dfp_temp *temp = d->temp ? &d->temp[e->tensor] : NULL;
    if (temp && temp->in_register) {
        const char *name = temp->name[d->point];
        return p->lane ? SAY(d, "%s[%s]", name, p->lane) : name;
    }
    if (temp && temp->row && p->lanes == 1) {
        const char *name = d->loops->tensors.at[e->tensor].name, *lane = p->lane;
        p->lane = NULL; /* the whole vector, not a single lane */
        const char *off = print_offset(p, e->tensor, e->a);
        p->lane = lane;
        return SAY(d, "%s[%s + %s]", name, off, lane ? lane : "0");
    }
    if (temp && temp->row) return row_place(d, e->tensor, e->a);
    return p->lanes > 1 ? cached(d, node) : NULL;
}

/* -- reductions */

const char *dfp_start(struct dfp *d, int op, enum compute k)
{
    const char *s = op == RED_PROD  ? "1"
                    : op == RED_MAX ? (k == C_I64 ? "INT64_MIN" : "-@INFINITY")
                    : op == RED_MIN ? (k == C_I64 ? "INT64_MAX" : "@INFINITY")
                                    : "0";
    return d->p.lanes > 1 ? expr_splat(&d->p, s, k) : s;
}

void dfp_join(struct dfp *d, int op, enum compute k, const char *acc, const char *value)
{
    if (op == RED_SUM || op == RED_PROD)
        text_line(d->p.out, "%s %c= %s;", acc, op == RED_SUM ? '+' : '*', value);
    else
        text_line(d->p.out, "%s = @sol_%s_%s(%s, %s);", acc, op == RED_MAX ? "max" : "min", expr_type_name(&d->p, k),
                  value, acc);
}

/* The value where the parts of the guard hold that differ between lanes, elsewhere the neutral element. */
static const char *masked(struct dfp_reduction *r, const char *value)
{
    struct dfp *d = r->d;
    const char *all = NULL;
    for (int i = 0; i < r->masks.n; i++) {
        const int32_t node = r->masks.at[i];
        const char *part = d->p.lanes > 1 ? expr_mask(&d->p, node, r->k) : print_condition(&d->p, node);
        all = !all ? part : SAY(d, d->p.lanes > 1 ? "(%s & %s)" : "%s && %s", all, part);
    }
    const char *none = dfp_start(d, r->e->op, r->k);
    if (d->p.lanes == 1) return SAY(d, "(%s ? %s : %s)", all, value, none);
    return SAY(d, "@sol_select_%s(%s, %s, %s)", expr_type_name(&d->p, r->k), all, value, none);
}

void dfp_accumulate(struct dfp_reduction *r)
{
    struct dfp *d = r->d;
    for (int q = 0; q < d->points; q++) {
        dfp_use(d, q);
        const char *value = expr_value(&d->p, r->e->b, r->k);
        if (r->masks.n) value = masked(r, value);
        dfp_join(d, r->e->op, r->k, r->acc[q], value);
    }
}

static void unroll(struct dfp_reduction *r, int i)
{
    struct dfp *d = r->d;
    if (i < r->nunrolled) {
        const int ivar = r->unrolled[i];
        const struct print_ivar old = d->ivars[ivar];
        for (int64_t v = 0; v < d->loops->ivars.at[ivar].size; v++) {
            d->ivars[ivar] = (struct print_ivar){true, NULL, v, v, v};
            unroll(r, i + 1);
        }
        d->ivars[ivar] = old;
        return;
    }
    const char *cond = NULL;
    for (int t = 0; t < r->tests.n; t++) {
        const int holds = nest_decide(&d->p, r->tests.at[t]);
        if (holds == 1) continue;
        if (holds == 0) return;
        const char *part = print_condition(&d->p, r->tests.at[t]);
        cond = cond ? SAY(d, "%s && %s", cond, part) : part;
    }
    struct dfp_load *loads = d->loads;
    if (cond) text_open(d->p.out, "if (%s) {", cond);
    dfp_accumulate(r);
    if (cond) {
        text_close(d->p.out, "}");
        d->loads = loads;
    }
}

/* Is every part of the guard with this index variable decided once that index variable and the unrolled ones are
 * constants? */
static bool decided(struct dfp_reduction *r, int ivar)
{
    struct dfp *d = r->d;
    bool all = true;
    const struct print_ivar old = d->ivars[ivar];
    for (int64_t v = 0; v < d->loops->ivars.at[ivar].size && all; v++) {
        d->ivars[ivar] = (struct print_ivar){true, NULL, v, v, v};
        for (int i = 0; i < r->loops.guard.n; i++) {
            const int32_t part = r->loops.guard.at[i];
            if ((ex_ivars(d->loops, part) >> ivar & 1) && nest_decide(&d->p, part) < 0) all = false;
        }
    }
    d->ivars[ivar] = old;
    return all;
}

/* Chooses the index variables to unroll, innermost first, and moves the parts of the guard that contain them. */
static void choose_unrolled(struct dfp_reduction *r)
{
    struct dfp *d = r->d;
    int64_t terms = d->points;
    uint64_t set = 0;
    while (r->loops.n) {
        const int ivar = r->loops.ivar[r->loops.n - 1];
        const int64_t size = d->loops->ivars.at[ivar].size;
        if (size > 11 || terms * size > UNROLL_MOST || !decided(r, ivar)) break;
        terms *= size;
        set |= UINT64_C(1) << ivar;
        memmove(r->unrolled + 1, r->unrolled, (size_t)r->nunrolled++);
        r->unrolled[0] = (uint8_t)ivar;
        r->loops.n--;
    }
    int kept = 0;
    for (int i = 0; i < r->loops.guard.n; i++) {
        const int32_t part = r->loops.guard.at[i];
        if (ex_ivars(d->loops, part) & set)
            PUSH(d->loops->arena, r->tests, part);
        else
            r->loops.guard.at[kept++] = part;
    }
    r->loops.guard.n = kept;
}

void dfp_declare(struct dfp_reduction *r, const char **names)
{
    struct dfp *d = r->d;
    for (int q = 0; q < d->points; q++) {
        names[q] = expr_name(&d->p);
        text_line(d->p.out, "%s %s = %s;", expr_type(&d->p, r->k), names[q], dfp_start(d, r->e->op, r->k));
    }
}

static void begin_chunk(void *user)
{
    struct dfp_reduction *r = user;
    dfp_declare(r, r->acc);
}

/* Errors grow with the length of a chunk and with the number of chunks; the sum of both is smallest near the square
 * root of the number of terms. */
int64_t dfp_chunk(int64_t terms)
{
    int64_t n = 32;
    while (n < 256 && n * n < terms) n *= 2;
    return n;
}

/* Cuts long sums into chunks. */
static void cut_chunks(struct dfp_reduction *r)
{
    struct dfp *d = r->d;
    int64_t terms = 1, inner = 1;
    for (int i = 0; i < r->loops.n; i++) terms *= d->loops->ivars.at[r->loops.ivar[i]].size;
    const int64_t chunk = dfp_chunk(terms);
    if (terms <= 2 * chunk || (r->e->op != RED_SUM && r->e->op != RED_PROD)) return;
    int first = r->loops.n;
    while (first > 0 && inner * d->loops->ivars.at[r->loops.ivar[first - 1]].size <= chunk)
        inner *= d->loops->ivars.at[r->loops.ivar[--first]].size;
    if (first == r->loops.n) {
        first--;
        r->loops.strip = chunk;
    }
    if (first == 0 && !r->loops.strip) return;
    r->loops.between = begin_chunk;
    r->loops.user = r;
    r->loops.inner = first;
}

struct reads {
    const struct dfp_reduction *r;
    bool unsafe;
};

static bool add_affine(const struct loops *loops, int32_t node, int64_t times, int64_t *coef, int64_t *c)
{
    struct affine a;
    if (!ex_affine(loops, node, &a)) return false;
    for (int i = 0; i < a.n; i++) coef[a.ivar[i]] += times * a.coef[i];
    *c += times * a.c;
    return true;
}

/* Does a part of the guard that is tested ahead of the body imply index >= 0, or index <= most? */
static bool guarded(const struct dfp_reduction *r, int32_t index, bool low, int64_t most)
{
    const struct loops *loops = r->d->loops;
    for (int i = 0; i < r->loops.guard.n; i++) {
        const struct ex *e = &loops->ex.at[r->loops.guard.at[i]];
        if (e->kind != EX_CMP || e->op == CMP_EQ || e->op == CMP_NE) continue;
        const bool less = e->op == CMP_LT || e->op == CMP_LE, strict = e->op == CMP_LT || e->op == CMP_GT;
        /* the comparison as +-index + rest >= 0: coef and rest are what large - small has beyond the index */
        int64_t coef[LOOPS_MAX_IVARS] = {0}, rest = strict ? -1 : 0;
        bool same = add_affine(loops, less ? e->b : e->a, 1, coef, &rest) &&
                    add_affine(loops, less ? e->a : e->b, -1, coef, &rest) &&
                    add_affine(loops, index, low ? -1 : 1, coef, &rest);
        for (int k = 0; same && k < loops->ivars.n; k++) same = !coef[k];
        if (same && rest <= (low ? 0 : most)) return true;
    }
    return false;
}

static void see_outside(void *user, int32_t node)
{
    struct reads *s = user;
    const struct dfp *own = s->r->d;
    const struct ex *e = at(own, node);
    if (e->kind == EX_RED) s->unsafe = true;
    if (e->kind != EX_READ || e->b) return;
    int d = 0;
    for (int32_t i = e->a; i; i = at(own, i)->next, d++) {
        int64_t low, high;
        const int64_t most = own->loops->tensors.at[e->tensor].shape[d] - 1;
        if (!expr_range(&own->p, i, &low, &high)) low = -1, high = most + 1;
        if ((low < 0 && !guarded(s->r, i, true, 0)) || (high > most && !guarded(s->r, i, false, most)))
            s->unsafe = true;
    }
}

/* Moves the parts of the guard that differ between lanes. False: the body may not be computed where they fail. */
bool dfp_split_masks(struct dfp_reduction *r)
{
    struct dfp *d = r->d;
    int kept = 0;
    for (int i = 0; i < r->loops.guard.n; i++) {
        const int32_t part = r->loops.guard.at[i];
        if (d->p.lanes > 1 && expr_varies(&d->p, part))
            PUSH(d->loops->arena, r->masks, part);
        else
            r->loops.guard.at[kept++] = part;
    }
    r->loops.guard.n = kept;
    if (!r->masks.n) return true;
    struct reads s = {r, false};
    ex_walk(d->loops, r->e->b, see_outside, &s);
    for (int i = 0; i < r->masks.n; i++) ex_walk(d->loops, r->masks.at[i], see_outside, &s);
    return !s.unsafe;
}

static enum compute reduction_kind(struct dfp *d, int32_t node, enum compute k)
{
    const enum compute own = expr_natural(d->loops, node);
    if (compute_is_int(own)) return own;
    return compute_is_int(k) || own == C_F64 ? (k == C_F32 ? C_F32 : own) : k;
}

void dfp_reduction_begin(struct dfp *d, const struct ex *e, int32_t node, enum compute k, struct dfp_reduction *out)
{
    *out = (struct dfp_reduction){.d = d, .e = e, .k = reduction_kind(d, node, k)};
}

static void reduce_loops(struct dfp_reduction *r)
{
    struct dfp *d = r->d;
    choose_unrolled(r);
    cut_chunks(r);
    dfp_declare(r, r->total);
    memcpy(r->acc, r->total, sizeof r->acc);
    struct dfp_load *loads = d->loads;
    nest_open(&d->p, &r->loops);
    if (r->loops.opened) d->loads = NULL;
    unroll(r, 0);
    if (r->loops.between) {
        for (int i = 0; i < r->loops.inner_opened; i++) text_close(d->p.out, "}");
        for (int q = 0; q < d->points; q++) dfp_join(d, r->e->op, r->k, r->total[q], r->acc[q]);
        r->loops.opened -= r->loops.inner_opened;
    }
    nest_close(&d->p, &r->loops);
    d->loads = loads;
}

/* Does a part of the guard fail in the whole current range? */
static bool never(struct dfp *d, int32_t guard)
{
    if (!guard) return false;
    if (at(d, guard)->kind != EX_AND) return nest_decide(&d->p, guard) == 0;
    for (int32_t i = at(d, guard)->a; i; i = at(d, i)->next)
        if (nest_decide(&d->p, i) == 0) return true;
    return false;
}

/* Computes the reduction `node` for all points and names the values. */
static void reduce(struct dfp *d, int32_t node, enum compute k)
{
    const struct ex e = *at(d, node);
    struct dfp_reduction r;
    dfp_reduction_begin(d, &e, node, k, &r);
    if (r.k == C_U64) return; /* printed together with its value, lane by lane */
    if (e.op != RED_SUM && e.op != RED_PROD && e.op != RED_MAX && e.op != RED_MIN) return;
    for (int i = 0; i < d->loops->ivars.n; i++)
        if (e.u.bound >> i & 1 && d->loops->ivars.at[i].size > 1) r.loops.ivar[r.loops.n++] = (uint8_t)i;
    nest_order(&d->p, &r.loops, e.b);
    dfp_use(d, 0);
    if (never(d, e.a)) {
        dfp_declare(&r, r.total);
    } else {
        nest_guard(&d->p, &r.loops, e.a);
        if (!dfp_split_masks(&r)) return;
        reduce_loops(&r);
    }
    for (int q = 0; q < d->points; q++) {
        dfp_use(d, q);
        dfp_name(d, node, r.k, r.total[q]);
    }
}

/* -- statements */

/* Has this reduction, or an equal one, been computed? Then this node gets the same name. */
static bool named(struct dfp *d, int32_t node)
{
    const struct print_known *found = NULL;
    for (int q = 0; q < d->points; q++) {
        dfp_use(d, q);
        found = d->p.known;
        while (found && !(found->lanes == d->p.lanes && (found->node == node || ex_equal(d->loops, found->node, node))))
            found = found->next;
        if (!found) break;
        if (found->node != node) dfp_name(d, node, found->k, found->text);
    }
    return found;
}

/* A reduction with several results, computed lane by lane. */
static void several_results(struct dfp *d, const struct loops_stmt *s, enum compute k)
{
    struct print_expr *p = &d->p;
    const int lanes = p->lanes;
    const char *lane = lanes > 1 ? expr_name(p) : NULL, *value[4];
    if (lane) text_open(p->out, "for (int64_t %s = 0; %s < %d; %s++) {", lane, lane, lanes, lane);
    p->lanes = 1;
    p->lane = lane;
    print_reduction_all(p, s->value, k, value);
    for (int o = 0; o < s->nout; o++) {
        const enum compute to = compute_of((enum sol_dtype)d->loops->tensors.at[s->out[o]].dtype);
        print_store(p, s->out[o], s->index, expr_convert(p, value[o], reduction_type(p, s->value, o, k), to));
    }
    p->lanes = lanes;
    p->lane = NULL;
    if (lane) text_close(p->out, "}");
}

void dfp_statement(struct dfp *d, const struct loops_stmt *s, uint64_t open)
{
    const int out = s->out[0];
    const enum sol_dtype dtype = (enum sol_dtype)d->loops->tensors.at[out].dtype;
    const enum compute k = compute_of(dtype);
    struct print_loops own = {0};
    print_comment(d->p.out, d->loops, s);
    for (int i = 0; i < d->loops->ivars.n; i++)
        if ((stmt_ivars(d->loops, s) & ~open) >> i & 1) own.ivar[own.n++] = (uint8_t)i;
    nest_order(&d->p, &own, ex_read(d->loops, out, s->index, 0));
    struct dfp_load *loads = d->loads;
    nest_open(&d->p, &own);
    const struct print_known *known[DFP_POINTS];
    dfp_use(d, d->point);
    memcpy(known, d->known, sizeof known);
    int32_t red[8];
    for (int q = 0; q < d->points && s->nout > 1; q++) {
        dfp_use(d, q);
        several_results(d, s, k);
    }
    const int n = s->nout > 1 ? 0 : dfp_reductions(d->loops, s->value, red, COUNT_OF(red));
    for (int i = 0; i < n; i++)
        if (!named(d, red[i]) && (d->p.lanes == 1 || expr_varies(&d->p, red[i]))) reduce(d, red[i], k);
    for (int q = 0; q < d->points && s->nout == 1; q++) {
        dfp_use(d, q);
        const char *value = print_value(&d->p, s->value, dtype);
        if (d->temp && d->temp[out].in_register) {
            const char *name = expr_name(&d->p);
            text_line(d->p.out, "const %s %s = %s;", expr_type(&d->p, k), name, value);
            d->temp[out].name[q] = name;
        } else if (d->temp && d->temp[out].row && d->p.lanes > 1) {
            text_line(d->p.out, "%s = %s;", row_place(d, out, s->index), value);
        } else {
            print_store(&d->p, out, s->index, value);
        }
    }
    dfp_use(d, 0);
    memcpy(d->known, known, sizeof known);
    d->p.known = known[0];
    d->loads = loads;
    nest_close(&d->p, &own);
}

/* -- the loop over the vector index variable */

struct walk { /* the walk over the vector index variable, whose name is a C variable */
    const struct dfp_loop *loop;
    int64_t low, high; /* of the current part */
    const char *end;   /* where that part ends, as C text */
};

static void one_width(struct dfp *d, const struct walk *w, int lanes, int points, bool loop)
{
    const char *name = d->loops->ivars.at[w->loop->ivar].name;
    const int64_t by = (int64_t)lanes * points;
    d->p.lanes = lanes;
    d->points = points;
    d->ivars[w->loop->ivar] = (struct print_ivar){true, name, 0, w->low, w->high - 1}; /* the range over all lanes */
    if (points > 1) {
        d->tile = w->loop->ivar;
        d->step = lanes;
    }
    for (int q = 0; q < DFP_POINTS; q++) d->known[q] = d->hoisted;
    d->p.known = d->hoisted;
    d->point = 0;
    d->loads = NULL;
    if (loop)
        text_open(d->p.out, "for (; %s + %" PRId64 " <= %s; %s += %" PRId64 ") {", name, by, w->end, name, by);
    else
        text_open(d->p.out, "{");
    w->loop->body(d, w->loop->user);
    text_close(d->p.out, "}");
    if (!loop) text_line(d->p.out, "%s += %" PRId64 ";", name, by);
    d->points = 1;
    d->tile = -1;
    d->ivars[w->loop->ivar].known = false;
}

/* Prints full vectors, then smaller ones for the remainder, which is at the end of the index variable. n: its length.
 */
static void all_widths(struct dfp *d, const struct walk *w, int64_t n)
{
    const int points = w->loop->points;
    const char *name = d->loops->ivars.at[w->loop->ivar].name;
    const int rest = (int)(n % d->lanes);
    if (points > 1 && n >= (int64_t)d->lanes * points) one_width(d, w, d->lanes, points, true);
    if (n >= d->lanes && (points == 1 || n % (d->lanes * points) >= d->lanes)) one_width(d, w, d->lanes, 1, true);
    if (!rest) return;
    text_open(d->p.out, "if (%s < %s) {", name, w->end);
    for (int lanes = d->lanes / 2; lanes >= 1; lanes /= 2)
        if (rest & lanes) one_width(d, w, lanes, 1, false);
    text_close(d->p.out, "}");
}

void dfp_vector_loop(struct dfp *d, const struct dfp_loop *loop)
{
    const int64_t size = d->loops->ivars.at[loop->ivar].size;
    struct walk w = {loop, 0, size, loop->high};
    int64_t first, last;
    d->p.vector_ivar = loop->ivar;
    dfp_interior(d, loop->stmts, loop->n, loop->ivar, &first, &last);
    text_line(d->p.out, "int64_t %s = %s;", d->loops->ivars.at[loop->ivar].name, loop->low);
    if (last - first == size || last - first < d->lanes) {
        all_widths(d, &w, size);
    } else {
        if (first > 0) {
            w.end = SAY(d, "@sol_min_i64(%s, %" PRId64 ")", loop->high, first);
            one_width(d, &w, 1, 1, true);
        }
        w = (struct walk){loop, first, last, SAY(d, "@sol_min_i64(%s, %" PRId64 ")", loop->high, last)};
        if (loop->points > 1) one_width(d, &w, d->lanes, loop->points, true);
        one_width(d, &w, d->lanes, 1, true);
        w = (struct walk){loop, 0, size, loop->high};
        one_width(d, &w, 1, 1, true);
    }
    d->p.vector_ivar = -1;
    d->p.lanes = 1;
}
