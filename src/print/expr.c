/* Prints expressions as C text, scalar or on GNU vectors of `lanes` elements along one index variable.
 *
 * There are four compute types: float, double, int64_t, uint64_t. Integer nodes are computed as integers, unsigned if a
 * u64 takes part, and then converted. What does not vary along the vector index variable is printed as a scalar and
 * broadcast. What has no vector form (a gather, a border inside a vector) is printed as a loop over lanes. Text that is
 * needed twice is assigned to a variable first. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "print/print.h"

static const struct compute_def computes[] = {
    [C_F32] = {"float", "f32", "i32", "f"},
    [C_F64] = {"double", "f64", "i64", ""},
    [C_I64] = {"int64_t", "i64", "i64", ""},
    [C_U64] = {"uint64_t", "u64", "i64", ""},
};
const struct compute_def *compute_def(enum compute k)
{
    return &computes[k];
}

enum compute compute_of(enum sol_dtype t)
{
    return t == SOL_F64 ? C_F64 : dtype_def(t)->is_float ? C_F32 : t == SOL_U64 ? C_U64 : C_I64;
}

#define SAY(p, ...) arena_printf((p)->out->arena, __VA_ARGS__)

const char *expr_name(struct print_expr *p)
{
    return SAY(p, "v%d_", p->temps++);
}

const char *expr_vector(struct print_expr *p, const char *element)
{
    return SAY(p, "@%sx%d", element, p->lanes);
}

const char *expr_type(struct print_expr *p, enum compute k)
{
    return p->lanes == 1 ? computes[k].type : expr_vector(p, computes[k].name);
}

const char *expr_type_name(struct print_expr *p, enum compute k)
{
    return p->lanes == 1 ? computes[k].name : SAY(p, "%sx%d", computes[k].name, p->lanes);
}

/* -- what kind of expression */

struct floats {
    const struct loops *loops;
    struct expr_floats found;
};
static void see_float(void *user, int32_t node)
{
    struct floats *s = user;
    const struct ex *e = &s->loops->ex.at[node];
    if (e->kind != EX_READ) return;
    const struct loops_tensor *t = &s->loops->tensors.at[e->tensor];
    if (t->role == LOOPS_TABLE) return;
    if (t->dtype == SOL_F64)
        s->found.f64 = true;
    else if (dtype_def(t->dtype)->is_float)
        s->found.f32 = true;
}

struct expr_floats expr_floats(const struct loops *loops, int32_t node)
{
    struct floats s = {.loops = loops};
    ex_walk(loops, node, see_float, &s);
    return s.found;
}

enum compute expr_natural(const struct loops *loops, int32_t node)
{
    if (ex_is_int(loops, node)) return ex_is_unsigned(loops, node) ? C_U64 : C_I64;
    const struct expr_floats s = expr_floats(loops, node);
    return s.f32 && !s.f64 ? C_F32 : C_F64; /* only integers: double is the most exact */
}

bool expr_varies(const struct print_expr *p, int32_t node)
{
    return p->vector_ivar >= 0 && (ex_ivars(p->loops, node) >> p->vector_ivar & 1);
}

bool expr_is_condition(const struct ex *e)
{
    return e->kind == EX_CMP || e->kind == EX_AND || e->kind == EX_OR;
}

struct safe {
    const struct loops *loops;
    bool ok;
};
static void see_safe(void *user, int32_t node)
{
    struct safe *s = user;
    const struct ex *e = &s->loops->ex.at[node];
    if (e->kind == EX_RED) s->ok = false;
    if (e->kind != EX_READ || e->b) return;
    int64_t low, high;
    int d = 0;
    for (int32_t i = e->a; i; i = s->loops->ex.at[i].next, d++)
        if (!ex_bounds(s->loops, i, &low, &high) || !size_le(0, low) ||
            !size_lt(high, s->loops->tensors.at[e->tensor].shape[d]))
            s->ok = false;
}

bool expr_is_safe(const struct loops *loops, int32_t node)
{
    struct safe s = {loops, true};
    ex_walk(loops, node, see_safe, &s);
    return s.ok;
}

/* Is the text a name or a constant, which may be repeated? */
static bool is_simple(const char *s)
{
    if (*s == '-') s++;
    for (; *s; s++)
        if (!((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9') || *s == '_' ||
              *s == '.' || *s == '@'))
            return false;
    return true;
}

const char *expr_temp(struct print_expr *p, const char *text, enum compute k)
{
    if (is_simple(text)) return text;
    const char *name = expr_name(p);
    text_line(p->out, "const %s %s = %s;", expr_type(p, k), name, text_bare(p->out->arena, text));
    return name;
}

/* -- conversion */

const char *expr_elements(struct print_expr *p, const char *text, const char *element)
{
    return SAY(p, "__builtin_convertvector(%s, %s)", text, expr_vector(p, element));
}

const char *expr_convert(struct print_expr *p, const char *text, enum compute from, enum compute to)
{
    if (from == to) return text;
    if (compute_is_int(from) && compute_is_int(to))
        return SAY(p, "(%s)%s", expr_type(p, to), text_enclosed(p->out->arena, text));
    if (compute_is_int(to)) {
        text = SAY(p, "@sol_to_%s_%s(%s)", computes[to].name, expr_type_name(p, from), text);
        return to == C_I64 ? text : SAY(p, "(%s)%s", expr_type(p, to), text);
    }
    if (p->lanes == 1) return SAY(p, "(%s)%s", computes[to].type, text_enclosed(p->out->arena, text));
    return expr_elements(p, text, computes[to].name);
}

void expr_know(struct print_expr *p, int32_t node, enum compute k, const char *text)
{
    struct print_known *known = NEW(p->out->arena, struct print_known);
    *known = (struct print_known){node, k, p->lanes, text, p->lane, p->known};
    p->known = known;
}

const char *expr_splat(struct print_expr *p, const char *scalar, enum compute k)
{
    if (k == C_U64) return SAY(p, "((%s){0} + %s)", expr_type(p, k), scalar);
    return SAY(p, "@sol_splat_%s(%s)", expr_type_name(p, k), text_bare(p->out->arena, scalar));
}

static const char *constant(struct print_expr *p, double r, enum compute k)
{
    if (isnan(r)) return "@NAN";
    if (isinf(r)) return r < 0 ? "-@INFINITY" : "@INFINITY";
    const char *text = text_real(p->out->arena, r, k == C_F32 ? 9 : 17);
    return SAY(p, signbit(r) ? "(%s%s)" : "%s%s", text, k == C_F32 ? "f" : "");
}

static const char *integer(struct print_expr *p, int64_t i)
{
    if (i == INT64_MIN) return "INT64_MIN";
    if (i > INT32_MAX || i < -INT32_MAX)
        return SAY(p, i < 0 ? "(-INT64_C(%" PRId64 "))" : "INT64_C(%" PRId64 ")", i < 0 ? -i : i);
    return SAY(p, i < 0 ? "(%" PRId64 ")" : "%" PRId64, i);
}

/* -- one lane at a time */

/* Prints `node` for each lane into an array, which is then read as a vector. */
const char *expr_lanes(struct print_expr *p, int32_t node, enum compute k)
{
    const char *array = expr_name(p), *lane = expr_name(p), *old = p->lane;
    const int lanes = p->lanes;
    const char *vector = expr_type(p, k);
    text_line(p->out, "%s %s[%d];", computes[k].type, array, lanes);
    text_open(p->out, "for (int64_t %s = 0; %s < %d; %s++) {", lane, lane, lanes, lane);
    p->lanes = 1;
    p->lane = lane;
    const char *value = expr_value(p, node, k);
    text_line(p->out, "%s[%s] = %s;", array, lane, text_bare(p->out->arena, value));
    p->lanes = lanes;
    p->lane = old;
    text_close(p->out, "}");
    return SAY(p, "*(const %s *)%s", vector, array);
}

const char *expr_scalar(struct print_expr *p, int32_t node, enum compute k)
{
    const int lanes = p->lanes;
    p->lanes = 1;
    const char *text = expr_value(p, node, k);
    p->lanes = lanes;
    return text;
}

/* -- templates of math.def */

struct call {
    int n;
    const char *arg[4];
    enum compute k; /* of the arguments */
    int lanes;
    const char *lane; /* the lane to take, if the arguments are vectors */
};

static void fill_template(struct text *t, const char *template, const struct call *c)
{
    const struct compute_def *d = &computes[c->k];
    const int lanes = c->lanes;
    for (const char *s = template; *s; s++) {
        if (*s != '%' || !s[1]) {
            text_add(t, s, 1);
            continue;
        }
        s++;
        if (*s >= '1' && *s <= '4' && *s - '1' < c->n)
            text_put(t, c->lane ? "%s[%s]" : "%s", c->arg[*s - '1'], c->lane);
        else if (*s == 'f')
            text_put(t, "%s", d->suffix);
        else if (*s == 'S')
            text_put(t, "%s", d->name);
        else if (*s == 'T')
            text_put(t, "%s", d->type);
        else if (*s == 'V')
            text_put(t, "%sx%d", d->name, lanes);
        else if (*s == 'I')
            text_put(t, "%sx%d", d->mask, lanes);
        else
            text_add(t, s, 1);
    }
}

/* Calls a primitive without a vector form lane by lane; the arguments are vectors. */
static const char *call_lanes(struct print_expr *p, struct call *c, const char *template, enum compute result)
{
    const char *array = expr_name(p), *lane = expr_name(p);
    c->lane = lane;
    for (int i = 0; i < c->n; i++) { /* a constant has no lanes */
        const char *name = expr_name(p);
        text_line(p->out, "const %s %s = %s;", expr_type(p, c->k), name, c->arg[i]);
        c->arg[i] = name;
    }
    struct text t = text_new(p->out->arena);
    fill_template(&t, template, c);
    text_line(p->out, "%s %s[%d];", computes[result].type, array, p->lanes);
    text_line(p->out, "for (int %s = 0; %s < %d; %s++) %s[%s] = %s;", lane, lane, p->lanes, lane, array, lane, t.at);
    return SAY(p, "*(const %s *)%s", expr_type(p, result), array);
}

/* -- operators */

/* Can C's operators compute this integer operation, because no overflow is possible? */
static bool small(const struct print_expr *p, int32_t node)
{
    int64_t low, high;
    return expr_range(p, node, &low, &high) && low > -(INT64_C(1) << 30) && high < INT64_C(1) << 30;
}

static const char *divide_int(struct print_expr *p, const struct ex *e, const char *a, const char *b, enum compute k)
{
    const struct ex *by = print_ex(p, e->b);
    int64_t low, high;
    const bool plain = by->kind == EX_INT && size_le(1, by->u.i) && expr_range(p, e->a, &low, &high) && low >= 0;
    const char *name = SAY(p, "@sol_%s_%s", e->kind == EX_FLOOR ? "floordiv" : "remainder", computes[k].name);
    if (plain && p->lanes == 1) return SAY(p, "(%s %s %s)", a, e->kind == EX_FLOOR ? "/" : "%", b);
    if (p->lanes == 1) return SAY(p, "%s(%s, %s)", name, a, b);
    struct call c = {2, {a, b}, k, p->lanes, NULL};
    return call_lanes(p, &c, SAY(p, "%s(%%1, %%2)", name), k);
}

static const char *operate_int(struct print_expr *p, int32_t node, enum compute k)
{
    const struct ex e = *print_ex(p, node);
    const char *a = expr_value(p, e.a, k), *b = e.b ? expr_value(p, e.b, k) : NULL;
    if (e.kind == EX_FLOOR || e.kind == EX_MOD) return divide_int(p, &e, a, b, k);
    static const char *const names[] = {[EX_NEG] = "neg", [EX_ADD] = "add", [EX_SUB] = "sub", [EX_MUL] = "mul"};
    static const char *const signs[] = {[EX_NEG] = "-", [EX_ADD] = "+", [EX_SUB] = "-", [EX_MUL] = "*"};
    if (k == C_U64 || (small(p, e.a) && (!e.b || small(p, e.b)))) {
        if (e.kind == EX_NEG) return SAY(p, "(-(%s))", a);
        return SAY(p, "(%s %s %s)", a, signs[e.kind], b);
    }
    const char *type = p->lanes > 1 ? SAY(p, "i64x%d", p->lanes) : "i64";
    return b ? SAY(p, "@sol_%s_%s(%s, %s)", names[e.kind], type, a, b)
             : SAY(p, "@sol_%s_%s(%s)", names[e.kind], type, a);
}

static const char *operate_float(struct print_expr *p, int32_t node, enum compute k)
{
    const struct ex e = *print_ex(p, node);
    if (e.kind == EX_NEG) return SAY(p, "(-%s)", expr_value(p, e.a, k));
    if (e.kind == EX_DIV && k == C_F32 && ex_is_int(p->loops, e.a) && ex_is_int(p->loops, e.b))
        return expr_convert(p, operate_float(p, node, C_F64), C_F64, C_F32); /* only double is exact for integers */
    static const char signs[] = {[EX_ADD] = '+', [EX_SUB] = '-', [EX_MUL] = '*', [EX_DIV] = '/'};
    const char *a = expr_value(p, e.a, k), *b = expr_value(p, e.b, k);
    return SAY(p, "(%s %c %s)", a, signs[e.kind], b);
}

/* -- calls: rows of math.def */

static bool all_int(const struct print_expr *p, int32_t first)
{
    for (; first; first = print_ex(p, first)->next)
        if (!ex_is_int(p->loops, first)) return false;
    return true;
}

static bool any_unsigned(const struct print_expr *p, int32_t first)
{
    for (; first; first = print_ex(p, first)->next)
        if (ex_is_unsigned(p->loops, first)) return true;
    return false;
}

static bool same_type(const struct math_def *def)
{
    return !strcmp(def->type, "x") || !strcmp(def->type, "y");
}

/* The type of a call's arguments if its result is needed in type k. */
static enum compute argument_type(const struct print_expr *p, const struct ex *e, enum compute k)
{
    const struct math_def *def = math_at(e->op);
    const bool ints = all_int(p, e->a);
    if (ints && def->c_int && (compute_is_int(k) || !same_type(def))) return any_unsigned(p, e->a) ? C_U64 : C_I64;
    if (same_type(def)) return compute_is_int(k) ? C_F64 : k;
    if (ints) return k == C_F32 ? C_F32 : C_F64;
    struct expr_floats all = {0};
    for (int32_t i = e->a; i; i = print_ex(p, i)->next) {
        const struct expr_floats s = expr_floats(p->loops, i);
        all.f32 |= s.f32;
        all.f64 |= s.f64;
    }
    return all.f64 ? C_F64 : all.f32 ? C_F32 : compute_is_int(k) ? C_F64 : k;
}

/* One side of a choice. Loads that are always safe are done ahead of it: gcc 12 generates wrong masked loads for `x[i]
 * != 0 ? y[i] : x[i]` when it vectorizes the loop. */
static const char *branch(struct print_expr *p, int32_t node, enum compute k)
{
    const bool safe = expr_is_safe(p->loops, node);
    const char *text = expr_value(p, node, k);
    return safe && !strchr(text, '?') ? expr_temp(p, text, k) : text;
}

static const char *select(struct print_expr *p, const struct ex *e, enum compute k)
{
    const int32_t yes = print_ex(p, e->a)->next, no = print_ex(p, yes)->next;
    if (p->lanes > 1) {
        const enum compute c = k == C_U64 ? C_I64 : k; /* the same bits */
        const char *mask = expr_mask(p, e->a, c), *a = expr_value(p, yes, c), *b = expr_value(p, no, c);
        return expr_convert(p, SAY(p, "@sol_select_%s(%s, %s, %s)", expr_type_name(p, c), mask, a, b), c, k);
    }
    const char *cond = print_condition(p, e->a), *a = branch(p, yes, k), *b = branch(p, no, k);
    return SAY(p, "(%s ? %s : %s)", cond, a, b);
}

/* Is node x a copy of node y? An item of a list of arguments is a copy of the node that was put there. */
static bool is_copy(const struct ex *x, const struct ex *y)
{
    return x->kind == y->kind && x->op == y->op && x->tensor == y->tensor && x->a == y->a && x->b == y->b &&
           x->u.i == y->u.i;
}

/* Expands a composite function; its arguments are computed once. */
static const char *composite(struct print_expr *p, int32_t node, enum compute k)
{
    const int32_t first = p->loops->ex.n, body = ex_expand(p->loops, node);
    const struct print_known *old = p->known;
    for (int32_t i = print_ex(p, node)->a; i; i = print_ex(p, i)->next) {
        const struct ex *e = print_ex(p, i);
        if (e->kind == EX_INT || e->kind == EX_REAL || expr_is_condition(e)) continue;
        const enum compute own = !compute_is_int(k) ? k : expr_natural(p->loops, i);
        const char *text = expr_temp(p, expr_value(p, i, own), own);
        expr_know(p, i, own, text);
        for (int32_t x = first; x < p->loops->ex.n; x++)
            if (is_copy(print_ex(p, x), print_ex(p, i))) expr_know(p, x, own, text);
    }
    const char *text = expr_temp(p, expr_value(p, body, k), k);
    p->known = old;
    return text;
}

static bool is_number(const struct print_expr *p, int32_t node)
{
    const struct ex *e = print_ex(p, node);
    return e->kind == EX_INT || (e->kind == EX_REAL && !isnan(e->u.r));
}

/* max, min and relu with a constant: one instruction that propagates NaN. NULL: it is none of these. */
static const char *bounded(struct print_expr *p, const struct ex *e, const char *name, enum compute k)
{
    const bool less = !strcmp(name, "min"), relu = !strcmp(name, "relu");
    if (compute_is_int(k) || p->lanes == 1 || (!less && !relu && strcmp(name, "max"))) return NULL;
    int32_t x = e->a, bound = print_ex(p, e->a)->next;
    if (!relu && !is_number(p, bound)) {
        x = bound;
        bound = e->a;
        if (!is_number(p, bound)) return NULL;
    }
    const char *limit = expr_splat(p, relu ? "0" : expr_scalar(p, bound, k), k);
    return SAY(p, "@sol_%s_%s(%s, %s)", less ? "less" : "greater", expr_type_name(p, k), limit, expr_value(p, x, k));
}

static const char *call(struct print_expr *p, int32_t node, enum compute k)
{
    const struct ex e = *print_ex(p, node);
    const struct math_def *def = math_at(e.op);
    if (!strcmp(def->name, "where")) return select(p, &e, k);
    if (def->expr) return composite(p, node, k);
    struct call c = {.k = argument_type(p, &e, k), .lanes = p->lanes};
    const char *simple = bounded(p, &e, def->name, c.k);
    if (simple) return expr_convert(p, simple, c.k, k);
    for (int32_t i = e.a; i && c.n < COUNT_OF(c.arg); i = print_ex(p, i)->next)
        c.arg[c.n++] = expr_temp(p, expr_value(p, i, c.k), c.k);
    const bool ints = compute_is_int(c.k);
    const char *template = ints ? def->c_int : def->c_scalar;
    const enum compute result = !strcmp(def->type, "bool") ? C_I64 : same_type(def) || !ints ? c.k : C_F64;
    if (p->lanes > 1 && !(def->c_vector && !ints))
        return expr_convert(p, call_lanes(p, &c, template, result), result, k);
    struct text t = text_new(p->out->arena);
    fill_template(&t, p->lanes > 1 ? def->c_vector : template, &c);
    return expr_convert(p, text_enclosed(p->out->arena, t.at), p->lanes > 1 ? c.k : result, k);
}

/* -- values */

static const char *value_int(struct print_expr *p, int32_t node, enum compute k)
{
    const struct ex e = *print_ex(p, node);
    switch (e.kind) {
    case EX_INT: return integer(p, e.u.i);
    case EX_IVAR:
        return p->lanes > 1 ? SAY(p, "@sol_iota_i64x%d(%s)", p->lanes, expr_ivar(p, e.tensor)) : expr_ivar(p, e.tensor);
    case EX_READ: return expr_read(p, node, k);
    case EX_CALL: return call(p, node, k);
    case EX_TEST: return expr_test(p, e.a, C_I64);
    case EX_CMP:
    case EX_AND:
    case EX_OR: return expr_test(p, node, C_I64);
    case EX_RED: return print_reduction(p, node, k);
    default: return operate_int(p, node, k);
    }
}

static const char *value_float(struct print_expr *p, int32_t node, enum compute k)
{
    const struct ex e = *print_ex(p, node);
    switch (e.kind) {
    case EX_REAL: return constant(p, e.u.r, k);
    case EX_READ: return expr_read(p, node, k);
    case EX_CALL: return call(p, node, k);
    case EX_RED: return print_reduction(p, node, k);
    default: return operate_float(p, node, k);
    }
}

const char *expr_value(struct print_expr *p, int32_t node, enum compute k)
{
    const struct ex *e = print_ex(p, node);
    for (const struct print_known *i = p->known; i; i = i->next)
        if (i->node == node && i->lanes == p->lanes && i->lane == p->lane) return expr_convert(p, i->text, i->k, k);
    if (p->lanes > 1 && !expr_varies(p, node)) {
        const char *hook = e->kind == EX_READ && p->read ? p->read(p->user, p, node) : NULL;
        if (hook) return expr_convert(p, hook, compute_of(p->loops->tensors.at[e->tensor].dtype), k);
        return expr_splat(p, expr_scalar(p, node, k), k);
    }
    const enum compute natural = expr_natural(p->loops, node);
    if (compute_is_int(natural)) {
        const bool real = !compute_is_int(k);
        if (real && e->kind == EX_INT && !size_varies(e->u.i)) return constant(p, (double)e->u.i, k);
        if (real && e->kind == EX_READ) return expr_read(p, node, k);
        if (real && (e->kind == EX_TEST || expr_is_condition(e))) return expr_test(p, node, k);
        return expr_convert(p, value_int(p, node, natural), natural, k);
    }
    const enum compute own = compute_is_int(k) ? natural : k;
    return expr_convert(p, value_float(p, node, own), own, k);
}

/* Does every value of this expression fit the narrow type? */
static bool fits(const struct print_expr *p, int32_t node, enum sol_dtype dtype)
{
    const struct ex *e = print_ex(p, node);
    if (dtype == SOL_I64 || dtype == SOL_U64 || e->kind == EX_TEST || expr_is_condition(e)) return true;
    if (e->kind == EX_READ && !e->b && p->loops->tensors.at[e->tensor].dtype == dtype) return true;
    const int bits = dtype_def(dtype)->bytes * 8;
    int64_t low, high;
    if (!ex_is_int(p->loops, node) || !expr_range(p, node, &low, &high)) return false;
    if (dtype == SOL_BOOL) return low >= 0 && high <= 1;
    if (dtype_def(dtype)->is_signed) return low >= -(INT64_C(1) << (bits - 1)) && high < INT64_C(1) << (bits - 1);
    return low >= 0 && high < INT64_C(1) << bits;
}

/* Converts a real to an integer type. Values out of range become INT32_MIN for i32 and narrower types, and INT64_MIN
 * for the others, as in the interpreter. */
static const char *real_to_int(struct print_expr *p, int32_t node, enum sol_dtype dtype)
{
    const enum compute own = expr_natural(p->loops, node);
    const char *text = expr_value(p, node, own);
    const char *to = dtype == SOL_U32 ? "i64" : "i32";
    if (dtype_def(dtype)->bytes == 8) return expr_convert(p, text, own, compute_of(dtype));
    return SAY(p, "@sol_to_%s_%s(%s)", to, expr_type_name(p, own), text);
}

const char *print_value(struct print_expr *p, int32_t node, enum sol_dtype dtype)
{
    const enum compute k = compute_of(dtype);
    const bool real = compute_is_int(k) && dtype != SOL_BOOL && !ex_is_int(p->loops, node);
    if (!compute_is_int(k) || (!real && fits(p, node, dtype))) return expr_value(p, node, k);
    if (dtype == SOL_BOOL) {
        if (p->lanes == 1) return SAY(p, "(int64_t)%s", print_condition(p, node));
        return SAY(p, "@sol_bool_i64x%d(%s)", p->lanes, expr_mask(p, node, C_I64));
    }
    const char *text = real ? real_to_int(p, node, dtype) : expr_value(p, node, k);
    if (dtype_def(dtype)->bytes == 8) return text;
    if (p->lanes == 1) return SAY(p, "(int64_t)(%s)(%s)", dtype_def(dtype)->c_name, text);
    return expr_elements(p, expr_elements(p, text, dtype_def(dtype)->name), "i64");
}

/* -- stores */

void print_store(struct print_expr *p, int tensor, int32_t first_index, const char *value)
{
    const struct loops_tensor *t = &p->loops->tensors.at[tensor];
    const struct dtype_def *d = dtype_def(t->dtype);
    const char *name = p->loops->tensors.at[tensor].name;
    const enum compute k = compute_of(t->dtype);
    value = text_bare(p->out->arena, value);
    const bool narrow = k == C_I64 && t->dtype != SOL_I64;
    if (p->lanes == 1) {
        const char *off = print_offset(p, tensor, first_index);
        if (narrow) value = SAY(p, "(%s)(%s)", d->c_name, value);
        text_line(p->out, "%s[%s] = %s;", name, off, value);
        return;
    }
    const char *element = t->dtype == SOL_BOOL ? "u8" : d->name;
    if (narrow) value = expr_elements(p, value, element);
    if (expr_lane_step(p, tensor, first_index) == 1) {
        const char *at = text_address(p->out->arena, name, print_offset(p, tensor, first_index));
        text_line(p->out, "*(%s *)(%s) = %s;", expr_vector(p, element), at, value);
        return;
    }
    const char *v = expr_name(p), *lane = expr_name(p), *old = p->lane;
    text_line(p->out, "const %s %s = %s;", expr_vector(p, element), v, value);
    const int lanes = p->lanes;
    p->lanes = 1;
    p->lane = lane;
    text_line(p->out, "for (int %s = 0; %s < %d; %s++) %s[%s] = %s[%s];", lane, lane, lanes, lane, name,
              print_offset(p, tensor, first_index), v, lane);
    p->lanes = lanes;
    p->lane = old;
}
