/* Statements in lanes. Every statement of a group runs along the same vector index variable, for one point or for
 * several at a time (a register tile). Loads that points share are done once. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "dfp/dfp.h"

#define SAY(d, ...) arena_printf((d)->p.out->arena, __VA_ARGS__)

void dfp_use(struct dfp *d, int point)
{
    d->known[d->point] = d->p.known;
    d->point = point;
    d->p.known = d->known[point];
    if (d->tile < 0) return;
    struct print_ivar *tile = &d->ivars[d->tile];
    if (d->across >= 0) {
        const int64_t n = d->loops->ivars.at[d->across].size, at = point % n;
        d->ivars[d->across] = (struct print_ivar){true, NULL, at, at, at};
        point /= (int)n;
    }
    tile->plus = size_add(point * d->step, tile->base ? 0 : tile->low);
}

/* -- reads */

static const char *row_place(struct dfp *d, int tensor, int32_t index)
{
    const struct dtype_def *t = dtype_def((enum sol_dtype)d->loops->tensors.at[tensor].dtype);
    const char *name = d->loops->tensors.at[tensor].name;
    const char *at = text_address(d->p.out->arena, name, print_offset(&d->p, tensor, index));
    return SAY(d, "*(%s *)(%s)", expr_vector(&d->p, t->name), at);
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

/* A read that is contiguous along the points, not along the lanes: a block of both is transposed. NULL: the read has
 * another form. */
static const char *transposed(struct dfp *d, const struct ex *e)
{
    struct print_expr *p = &d->p;
    const struct loops_tensor *t = &d->loops->tensors.at[e->tensor];
    const enum compute k = compute_of((enum sol_dtype)t->dtype);
    const int64_t apart = expr_step(d->loops, p->memory, e->tensor, e->a, p->vector_ivar);
    const int point = d->point, lanes = p->lanes, first = point / lanes * lanes;
    if (!d->blocks || k == C_U64 || dtype_def((enum sol_dtype)t->dtype)->bytes != (k == C_F32 ? 4 : 8)) return NULL;
    if (apart == 0 || apart == 1 || apart == INT64_MAX || first + lanes > d->points) return NULL;
    if (expr_step(d->loops, p->memory, e->tensor, e->a, d->tile) != 1) return NULL;
    const char *name = d->loops->tensors.at[e->tensor].name;
    const char *key = SAY(d, "%s %s", name, print_offset(p, e->tensor, e->a)), *found = find_load(d, key);
    if (found) return found;
    const char *block = expr_name(p), *type = expr_type(p, k);
    text_line(p->out, "%s %s[%d];", type, block, lanes);
    dfp_use(d, first);
    const char *at = print_offset(p, e->tensor, e->a);
    for (int i = 0; i < lanes; i++)
        text_line(p->out, "%s[%d] = *(const %s *)(%s + %s);", block, i, type, name,
                  text_plus(p->out->arena, at, size_mul(apart, i)));
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
    const struct ex e = *dfp_ex(d, node);
    const struct loops_tensor *t = &d->loops->tensors.at[e.tensor];
    if (t->role != LOOPS_INPUT || e.b) return NULL;
    for (int32_t i = e.a; i; i = dfp_ex(d, i)->next)
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
    const struct ex *e = dfp_ex(d, node);
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
        return lane ? SAY(d, "%s[%s + %s]", name, off, lane) : SAY(d, "%s[%s]", name, off);
    }
    if (temp && temp->row) return row_place(d, e->tensor, e->a);
    return p->lanes > 1 ? cached(d, node) : NULL;
}

/* -- statements */

bool dfp_is_named(struct dfp *d, int32_t node)
{
    const struct print_known *found = NULL;
    for (int q = 0; q < d->points; q++) {
        dfp_use(d, q);
        found = d->p.known;
        while (found && !(found->lanes == d->p.lanes && (found->node == node || ex_equal(d->loops, found->node, node))))
            found = found->next;
        if (!found) break;
        if (found->node != node) expr_know(&d->p, node, found->k, found->text);
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

struct places {
    const struct dfp *d;
    bool by_data, other; /* some read differs between lanes by data; a read needs vectors, or is a reduction */
};

static void see_place(void *user, int32_t node)
{
    struct places *w = user;
    const struct dfp *d = w->d;
    const struct ex *e = dfp_ex(d, node);
    if (e->kind == EX_RED) w->other = true;
    if (e->kind != EX_READ) return;
    if (e->b || (d->temp && (d->temp[e->tensor].in_register || d->temp[e->tensor].row))) w->other = true;
    for (int32_t i = e->a; i; i = dfp_ex(d, i)->next) w->by_data |= expr_varies(&d->p, i) && ex_reads_data(d->loops, i);
}

/* Are the statement's elements gathered one by one, and is there little else to compute? Then they are also stored one
 * by one. Loading a vector from elements that were just stored would wait until they have left the store buffer. */
static bool gathers(const struct dfp *d, const struct loops_stmt *s)
{
    const double light = 24; /* operations of an element, positions included */
    const int out = s->out[0];
    struct places w = {.d = d};
    if (d->p.lanes == 1 || s->nout > 1 || s->scan_step || (d->temp && (d->temp[out].in_register || d->temp[out].row)))
        return false;
    ex_walk(d->loops, s->value, see_place, &w);
    return w.by_data && !w.other && expr_ops(d->loops, s->value) <= light;
}

/* The lanes of a statement as scalars. */
static void one_by_one(struct dfp *d, const struct loops_stmt *s)
{
    struct print_expr *p = &d->p;
    const int lanes = p->lanes;
    const char *lane = expr_name(p);
    text_open(p->out, "for (int64_t %s = 0; %s < %d; %s++) {", lane, lane, lanes, lane);
    p->lanes = 1;
    p->lane = lane;
    const enum sol_dtype dtype = (enum sol_dtype)d->loops->tensors.at[s->out[0]].dtype;
    print_store(p, s->out[0], s->index, print_value(p, s->value, dtype));
    p->lanes = lanes;
    p->lane = NULL;
    text_close(p->out, "}");
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
        if (!dfp_is_named(d, red[i]) && (d->p.lanes == 1 || expr_varies(&d->p, red[i]))) dfp_reduce(d, red[i], k);
    const bool scalars = gathers(d, s);
    for (int q = 0; q < d->points && s->nout == 1; q++) {
        dfp_use(d, q);
        if (scalars) {
            one_by_one(d, s);
            continue;
        }
        const char *next = running_next(&d->p, s, q), *value = next ? next : print_value(&d->p, s->value, dtype);
        if (d->temp && d->temp[out].in_register) {
            const char *name = expr_name(&d->p);
            text_line(d->p.out, "const %s %s = %s;", expr_type(&d->p, k), name, text_bare(d->p.out->arena, value));
            d->temp[out].name[q] = name;
        } else if (d->temp && d->temp[out].row && d->p.lanes > 1) {
            text_line(d->p.out, "%s = %s;", row_place(d, out, s->index), text_bare(d->p.out->arena, value));
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

/* The walk over the vector index variable, whose name is a C variable. */
struct walk {
    const struct dfp_loop *loop;
    int64_t low, high; /* of the current part */
    const char *end;   /* where that part ends, as C text */
};
enum pass { ONCE, REPEATED, OVERLAPPING, ITEMS };

const char *dfp_fits(struct dfp *d, const char *from, int64_t n, const char *end)
{
    return SAY(d, "%s <= %s", text_plus(d->p.out->arena, from, n), end);
}

/* Does the group keep temporaries in memory? Then each round of a loop uses what the one before has written. */
static bool keeps_rows(const struct dfp *d)
{
    bool some = false;
    for (int i = 0; d->temp && i < d->loops->tensors.n; i++) some = some || d->temp[i].row;
    return some;
}

/* The head of the loop, which runs while a vector fits. Overlapping: the last vector ends where the part ends. That is
 * allowed, because statements store the same values when they run again. */
static void open_pass(struct dfp *d, const struct walk *w, int64_t by, enum pass pass, const char *start)
{
    const char *name = d->loops->ivars.at[w->loop->ivar].name;
    if (pass == ITEMS) {
        dfp_items_open(d, w->loop->ivar, w->loop->low, w->end);
    } else if (pass == ONCE) {
        text_open(d->p.out, "{");
    } else if (pass == REPEATED) {
        if (d->lanes == 1 && !keeps_rows(d)) text_line(d->p.out, "#pragma _NEC ivdep");
        text_open(d->p.out, "for (; %s + %" PRId64 " <= %s; %s += %" PRId64 ") {", name, by, w->end, name, by);
    } else {
        text_open(d->p.out, "for (; %s < %s && %s; %s += %" PRId64 ") {", name, w->end, dfp_fits(d, start, by, w->end),
                  name, by);
        text_line(d->p.out, "%s = @sol_min_i64(%s, %s - %" PRId64 ");", name, name, w->end, by);
    }
}

static void one_width(struct dfp *d, const struct walk *w, int lanes, int points, enum pass pass, const char *start)
{
    const char *name = d->loops->ivars.at[w->loop->ivar].name;
    const int64_t by = (int64_t)lanes * points;
    d->p.lanes = lanes;
    d->points = points;
    /* the range over all lanes */
    d->ivars[w->loop->ivar] = (struct print_ivar){true, name, 0, w->low, size_sub(w->high, 1)};
    if (points > 1) {
        d->tile = w->loop->ivar;
        d->step = lanes;
    }
    for (int q = 0; q < DFP_POINTS; q++) d->known[q] = d->hoisted;
    d->p.known = d->hoisted;
    d->point = 0;
    d->loads = NULL;
    open_pass(d, w, by, pass, start);
    w->loop->body(d, w->loop->user);
    text_close(d->p.out, "}");
    if (pass == ONCE) text_line(d->p.out, "%s += %" PRId64 ";", name, by);
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
    d->p.aligned = true; /* tasks begin at multiples of full vectors, and the smaller ones follow them */
    if (points > 1 && n >= (int64_t)d->lanes * points) one_width(d, w, d->lanes, points, REPEATED, NULL);
    if (n >= d->lanes && (points == 1 || n % (d->lanes * points) >= d->lanes))
        one_width(d, w, d->lanes, 1, REPEATED, NULL);
    if (rest) text_open(d->p.out, "if (%s < %s) {", name, w->end);
    for (int lanes = d->lanes / 2; rest && lanes >= 1; lanes /= 2)
        if (rest & lanes) one_width(d, w, lanes, 1, ONCE, NULL);
    if (rest) text_close(d->p.out, "}");
    d->p.aligned = false;
}

/* The same for a part that begins at `start`, and whose length is known only while running: smaller vectors are for
 * parts shorter than a vector. Where there is little to compute, full vectors have a loop of their own, which is faster
 * than one that looks for the overlapping one. */
static void any_length(struct dfp *d, const struct walk *w, const char *start)
{
    const double light = 32;
    const char *name = d->loops->ivars.at[w->loop->ivar].name;
    int lanes = d->lanes;
    if (w->loop->points > 1) one_width(d, w, lanes, w->loop->points, REPEATED, NULL);
    if (lanes == 1) {
        one_width(d, w, 1, 1, REPEATED, NULL);
        return;
    }
    if (w->loop->ops <= light) {
        one_width(d, w, lanes, 1, REPEATED, NULL);
    } else {
        one_width(d, w, lanes, 1, OVERLAPPING, start);
        lanes /= 2;
    }
    text_open(d->p.out, "if (%s < %s) {", name, w->end);
    for (; lanes >= DFP_LEAST_LANES; lanes /= 2) one_width(d, w, lanes, 1, OVERLAPPING, start);
    if (w->end == w->loop->high) { /* not followed by the scalars of a border */
        text_open(d->p.out, "if (%s < %s) {", name, w->end);
        one_width(d, w, 1, 1, ONCE, NULL);
        text_close(d->p.out, "}");
    }
    text_close(d->p.out, "}");
}

/* A name for the end of a range, unless it is a number or a name. */
const char *dfp_end(struct dfp *d, const char *text)
{
    char *behind;
    const long long n = strtoll(text, &behind, 10);
    if (*behind || !size_varies(n)) return expr_temp(&d->p, text, C_I64);
    const char *name = expr_name(&d->p);
    text_line(d->p.out, "const int64_t %s = %s;", name, text);
    return name;
}

/* Scalars up to `end`. */
static void scalars(struct dfp *d, const struct walk *all, int64_t end)
{
    struct walk w = *all;
    w.end = SAY(d, "@sol_min_i64(%s, %" PRId64 ")", all->loop->high, end);
    one_width(d, &w, 1, 1, REPEATED, NULL);
}

/* The vectors between two borders. */
static void between(struct dfp *d, const struct walk *all, const struct dfp_part *part)
{
    struct walk w = {all->loop, part->low, part->high,
                     SAY(d, "@sol_min_i64(%s, %" PRId64 ")", all->loop->high, part->high)};
    if (size_varies(all->high)) {
        const char *start = expr_name(&d->p);
        text_line(d->p.out, "const int64_t %s = %s;", start, d->loops->ivars.at[all->loop->ivar].name);
        w.end = dfp_end(d, w.end);
        any_length(d, &w, start);
    } else {
        if (all->loop->points > 1) one_width(d, &w, d->lanes, all->loop->points, REPEATED, NULL);
        one_width(d, &w, d->lanes, 1, REPEATED, NULL);
    }
}

/* Scalars at borders, vectors between them. */
static void with_borders(struct dfp *d, const struct walk *all, const struct dfp_parts *parts)
{
    int64_t done = 0;
    for (int i = 0; i < parts->n; i++) {
        const struct dfp_part *part = &parts->at[i];
        if (part->low != done) scalars(d, all, part->low);
        between(d, all, part);
        done = parts->n > 1 && (part->high - part->low) % d->lanes ? -1 : part->high;
    }
    if (parts->n == 1 || done != all->high) one_width(d, all, 1, 1, REPEATED, NULL);
}

void dfp_vector_loop(struct dfp *d, const struct dfp_loop *loop)
{
    const int64_t size = d->loops->ivars.at[loop->ivar].size;
    struct dfp_loop own = *loop;
    if (size_varies(size)) own.high = dfp_end(d, loop->high);
    const struct walk all = {&own, 0, size, own.high};
    d->p.vector_ivar = loop->ivar;
    if (d->items) {
        one_width(d, &all, 1, 1, ITEMS, NULL);
        d->p.vector_ivar = -1;
        return;
    }
    const struct dfp_parts parts = dfp_parts(d, loop->stmts, loop->n, loop->ivar);
    text_line(d->p.out, "int64_t %s = %s;", d->loops->ivars.at[loop->ivar].name, loop->low);
    if (parts.n)
        with_borders(d, &all, &parts);
    else if (size_varies(size))
        any_length(d, &all, loop->low);
    else
        all_widths(d, &all, size);
    d->p.vector_ivar = -1;
    d->p.lanes = 1;
}
