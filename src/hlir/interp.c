/* The interpreter: the tests' reference, and the evaluator for constant folding. Each statement is one loop nest and
 * expressions are evaluated recursively, without allocations per element. Integers have 64 bits and wrap; reals are
 * double; writing to a tensor rounds to its type. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "hlir/sizes.h"

enum value { UNKNOWN, INT, UNSIGNED, REAL }; /* the type in which an expression is computed */
struct interp {
    struct sol_ctx *ctx;
    const struct loops *loops;
    int64_t ivar[LOOPS_MAX_IVARS];
    void **data;
    uint8_t *value; /* by node: enum value */
    /* by node: the expansion of composite functions on integers, since doubles would lose the low bits */
    int32_t *body;
    const struct affine **affine; /* by node: an index that is a sum of index variables */
    sol_status status;
    int rand;
    bool sizes; /* integers may be sizes that vary */
};

/* -- sizes that vary */

/* The result of sizes.h: v, or SIZE_BAD of a and b. */
static int64_t sized(struct interp *p, int64_t a, int64_t b, int64_t v)
{
    if (v == SIZE_BAD && !p->status) {
        const int64_t of = size_varies(a) ? a : b;
        p->status = ctx_unequal(p->ctx, of, -1,
                                ctx_fail(p->ctx, SOL_ERR_UNSUPPORTED, "%s: its value depends on the size %lld",
                                         p->loops->name, (long long)of));
    }
    return v == SIZE_BAD ? 0 : v;
}

static bool vary(const struct interp *p, int64_t a, int64_t b)
{
    return p->sizes && (size_varies(a) || size_varies(b));
}

/* A number that is no integer, an index, or an element of another type than i64 must not vary. */
static int64_t fixed(struct interp *p, int64_t v)
{
    return vary(p, v, 0) ? sized(p, v, 0, SIZE_BAD) : v;
}

/* -- types */

/* Decodes f16 and bf16: `digits` bits of fraction, exponents down to `low`. */
static double small_float(uint16_t bits, int digits, int low)
{
    int exponent = (bits & 0x7fff) >> digits, mantissa = bits & ((1 << digits) - 1), top = 0x7fff >> digits;
    double v = exponent == top ? (mantissa ? NAN : INFINITY)
               : exponent      ? ldexp((1 << digits) + mantissa, exponent - 1 + low - digits)
                               : ldexp(mantissa, low - digits);
    return bits >> 15 ? -v : v;
}

static uint16_t to_small_float(double v, int digits, int low)
{
    uint16_t sign = signbit(v) ? 0x8000 : 0, top = (uint16_t)(0x7fff >> digits << digits);
    double a = fabs(v);
    if (isnan(v)) return (uint16_t)(sign | top | 1 << (digits - 1));
    if (isinf(v)) return (uint16_t)(sign | top);
    if (a == 0) return sign;
    int exponent = MAX(ilogb(a), low);
    double steps = rint(ldexp(a, digits - exponent)); /* to even, the current rounding mode */
    if (steps >= (double)(2 << digits)) {
        steps /= 2;
        ++exponent;
    }
    int field = steps < (double)(1 << digits) ? 0 : exponent - low + 1;
    if (field >= 0x7fff >> digits) return (uint16_t)(sign | top);
    return (uint16_t)(sign | field << digits | ((int)steps & ((1 << digits) - 1)));
}

static double load_real(const void *data, int64_t at, int type)
{
    switch (type) {
    case SOL_F32: return ((const float *)data)[at];
    case SOL_F64: return ((const double *)data)[at];
    case SOL_F16: return small_float(((const uint16_t *)data)[at], 10, -14);
    case SOL_BF16: return small_float(((const uint16_t *)data)[at], 7, -126);
    default: return 0;
    }
}

static int64_t load_int(const void *data, int64_t at, int type)
{
    switch (type) {
    case SOL_BOOL: return ((const uint8_t *)data)[at] != 0;
    case SOL_U8: return ((const uint8_t *)data)[at];
    case SOL_I8: return ((const int8_t *)data)[at];
    case SOL_U16: return ((const uint16_t *)data)[at];
    case SOL_I16: return ((const int16_t *)data)[at];
    case SOL_U32: return ((const uint32_t *)data)[at];
    case SOL_I32: return ((const int32_t *)data)[at];
    case SOL_U64: return (int64_t)((const uint64_t *)data)[at];
    case SOL_I64: return ((const int64_t *)data)[at];
    default: return 0;
    }
}

static void store_int(void *data, int64_t at, int type, int64_t v)
{
    switch (type) {
    case SOL_BOOL: ((uint8_t *)data)[at] = v != 0; break;
    case SOL_U8: ((uint8_t *)data)[at] = (uint8_t)v; break;
    case SOL_I8: ((int8_t *)data)[at] = (int8_t)v; break;
    case SOL_U16: ((uint16_t *)data)[at] = (uint16_t)v; break;
    case SOL_I16: ((int16_t *)data)[at] = (int16_t)v; break;
    case SOL_U32: ((uint32_t *)data)[at] = (uint32_t)v; break;
    case SOL_I32: ((int32_t *)data)[at] = (int32_t)v; break;
    case SOL_U64: ((uint64_t *)data)[at] = (uint64_t)v; break;
    case SOL_I64: ((int64_t *)data)[at] = v; break;
    default: break;
    }
}

/* Converts a real to an integer as x86 does (and so PyTorch there): towards zero. NaN and values out of range give the
 * lowest number of 64 bits (for i64, u64, u32) or of 32 bits (for i32 and smaller types), of which narrow types keep
 * the low bits. */
static int64_t real_to_int(double v, int type)
{
    bool wide = type == SOL_I64 || type == SOL_U64 || type == SOL_U32;
    if (type == SOL_U64 && v >= 0x1p63 && v < 0x1p64) return (int64_t)(uint64_t)v;
    if (wide) return v >= -0x1p63 && v < 0x1p63 ? (int64_t)v : INT64_MIN;
    return v > -0x1p31 - 1 && v < 0x1p31 ? (int64_t)v : INT32_MIN;
}

static void store_real(void *data, int64_t at, int type, double v)
{
    switch (type) {
    case SOL_F32: ((float *)data)[at] = (float)v; break;
    case SOL_F64: ((double *)data)[at] = v; break;
    case SOL_F16: ((uint16_t *)data)[at] = to_small_float(v, 10, -14); break;
    case SOL_BF16: ((uint16_t *)data)[at] = to_small_float(v, 7, -126); break;
    case SOL_BOOL: ((uint8_t *)data)[at] = v != 0; break;
    default: store_int(data, at, type, real_to_int(v, type));
    }
}

/* -- the type in which a node is computed */

static enum value value_of(struct interp *p, int32_t node)
{
    if (!node) return INT;
    if (!p->value[node])
        p->value[node] = !ex_is_int(p->loops, node) ? REAL : ex_is_unsigned(p->loops, node) ? UNSIGNED : INT;
    return (enum value)p->value[node];
}

/* -- expressions */

static int64_t whole(struct interp *p, int32_t node);
static double real(struct interp *p, int32_t node);
static bool holds(struct interp *p, int32_t node);

static void outside(struct interp *p, const struct loops_tensor *t, int d, int64_t i)
{
    if (!p->status)
        p->status =
            ctx_fail(p->ctx, SOL_ERR_RUN, "%s: index %lld is outside dimension %d of %s, which has %lld elements",
                     p->loops->name, (long long)i, d, t->name, (long long)t->shape[d]);
}

/* Most indices are index variables or sums of them, and reading elements takes most of the interpreter's time. */
static inline int64_t index_at(struct interp *p, int32_t node)
{
    const struct ex *e = &p->loops->ex.at[node];
    if (e->kind == EX_IVAR) return p->ivar[e->tensor];
    const struct affine *f = p->affine[node];
    if (!f) return fixed(p, whole(p, node));
    uint64_t at = (uint64_t)f->c;
    for (int i = 0; i < f->n; i++) at += (uint64_t)f->coef[i] * (uint64_t)p->ivar[f->ivar[i]];
    return (int64_t)at;
}

/* The offset of the element at a list of indices; -1: outside. */
static int64_t offset(struct interp *p, const struct loops_tensor *t, int32_t first, bool may_leave)
{
    int64_t at = 0;
    int d = 0;
    for (int32_t i = first; i; i = p->loops->ex.at[i].next, ++d) {
        const int64_t v = index_at(p, i);
        if (v < 0 || v >= t->shape[d]) {
            if (!may_leave) outside(p, t, d, v);
            return -1;
        }
        at = at * t->shape[d] + v;
    }
    return at;
}

static const void *memory(const struct interp *p, int tensor)
{
    const struct loops_tensor *t = &p->loops->tensors.at[tensor];
    return t->role == LOOPS_TABLE ? t->table : p->data[tensor];
}

static int64_t combine(struct interp *p, enum ex_kind kind, int64_t a, int64_t b)
{
    if (vary(p, a, b)) return sized(p, a, b, sizes_binary(kind, a, b));
    const uint64_t x = (uint64_t)a, y = (uint64_t)b;
    return (int64_t)(kind == EX_ADD ? x + y : kind == EX_SUB ? x - y : x * y);
}

struct acc { /* the state of a reduction */
    double r, r1;
    int64_t i, n, at;
    bool is_int, is_unsigned;
};

static bool better(double x, double than, bool high)
{
    return high ? x > than : x < than;
}

static bool better_int(const struct acc *a, int64_t x, bool high)
{
    if (a->is_unsigned) return high ? (uint64_t)x > (uint64_t)a->i : (uint64_t)x < (uint64_t)a->i;
    return high ? x > a->i : x < a->i;
}

static void step_best(struct interp *p, const struct ex *e, struct acc *a, int64_t position)
{
    bool high = e->op == RED_MAX || e->op == RED_MAXAT;
    if (a->is_int) {
        int64_t x = whole(p, e->b);
        if (a->n && vary(p, x, a->i)) {
            a->i = sized(p, x, a->i, sizes_reduce((enum reduce_kind)e->op, a->i, x));
            return;
        }
        if (a->n++ && !better_int(a, x, high)) return;
        a->i = x;
    } else {
        double x = real(p, e->b);
        if (a->n++ && !better(x, a->r, high) && !(isnan(x) && !isnan(a->r))) return;
        a->r = x;
    }
    a->at = position;
}

static void step_real(struct acc *a, int op, double x)
{
    double d;
    switch (op) {
    case RED_SUM: a->r += x; break;
    case RED_PROD: a->r *= x; break;
    case RED_MOMENTS: /* Welford's algorithm */
        d = x - a->r;
        a->r += d / (double)++a->n;
        a->r1 += d * (x - a->r);
        break;
    case RED_SOFTSUM:
        if (x == -INFINITY) break;
        if (x > a->r || isnan(x)) {
            a->r1 *= exp(a->r - x);
            a->r = x;
        }
        a->r1 += exp(x - a->r);
        break;
    default: break;
    }
}

static void step(struct interp *p, const struct ex *e, struct acc *a, int64_t position)
{
    switch (e->op) {
    case RED_MAX:
    case RED_MIN:
    case RED_MAXAT:
    case RED_MINAT: step_best(p, e, a, position); break;
    case RED_ANY: a->i |= value_of(p, e->b) == REAL ? real(p, e->b) != 0 : whole(p, e->b) != 0; break;
    case RED_ALL: a->i &= value_of(p, e->b) == REAL ? real(p, e->b) != 0 : whole(p, e->b) != 0; break;
    default:
        if (!a->is_int)
            step_real(a, e->op, real(p, e->b));
        else
            a->i = combine(p, e->op == RED_SUM ? EX_ADD : EX_MUL, a->i, whole(p, e->b));
    }
}

static void reduce(struct interp *p, const struct ex *e, uint64_t left, int64_t position, struct acc *a)
{
    if (!left) {
        if (!e->a || holds(p, e->a)) step(p, e, a, position);
        return;
    }
    int ivar = __builtin_ctzll(left);
    int64_t n = p->loops->ivars.at[ivar].size, saved = p->ivar[ivar];
    for (int64_t i = 0; i < n && !p->status; ++i) {
        p->ivar[ivar] = i;
        reduce(p, e, left & (left - 1), position * n + i, a);
    }
    p->ivar[ivar] = saved;
}

static void reduction(struct interp *p, const struct ex *e, struct acc *a)
{
    enum value v = value_of(p, e->b);
    *a =
        (struct acc){.is_int = v != REAL && e->op != RED_MOMENTS && e->op != RED_SOFTSUM, .is_unsigned = v == UNSIGNED};
    a->r = e->op == RED_PROD                          ? 1
           : e->op == RED_MAX || e->op == RED_SOFTSUM ? -INFINITY
           : e->op == RED_MAXAT                       ? -INFINITY
           : e->op == RED_MIN || e->op == RED_MINAT   ? INFINITY
                                                      : 0;
    a->i = e->op == RED_PROD || e->op == RED_ALL;
    if (e->op == RED_MAX || e->op == RED_MAXAT) a->i = a->is_unsigned ? 0 : INT64_MIN;
    if (e->op == RED_MIN || e->op == RED_MINAT) a->i = a->is_unsigned ? -1 : INT64_MAX;
    reduce(p, e, e->u.bound, 0, a);
}

static double call_real(struct interp *p, const struct ex *e)
{
    double args[3];
    int n = 0;
    if (e->op == p->rand) { /* its arguments are integers */
        int32_t position = p->loops->ex.at[e->a].next;
        return math_eval_rand(whole(p, e->a), whole(p, position));
    }
    for (int32_t i = e->a; i; i = p->loops->ex.at[i].next) args[n++] = real(p, i);
    return math_eval(e->op, args);
}

static int64_t call_whole(struct interp *p, const struct ex *e)
{
    int64_t args[3] = {0};
    uint64_t without_sign[3];
    bool reals = false, unsig = false;
    int n = 0;
    for (int32_t i = e->a; i; i = p->loops->ex.at[i].next) {
        enum value v = value_of(p, i);
        reals |= v == REAL;
        unsig |= v == UNSIGNED;
    }
    bool choose = *math_at(e->op)->type == 'y'; /* `where`: the condition may have any type */
    if (reals && !choose) return call_real(p, e) != 0;
    for (int32_t i = e->a; i; i = p->loops->ex.at[i].next, ++n) args[n] = choose && !n ? holds(p, i) : whole(p, i);
    if (!choose && n && (vary(p, args[0], args[1]) || vary(p, args[2], 0)))
        return sized(p, args[0], vary(p, args[1], 0) ? args[1] : args[2], sizes_call(e->op, args));
    memcpy(without_sign, args, sizeof args);
    return unsig ? (int64_t)math_eval_unsigned(e->op, without_sign) : math_eval_int(e->op, args);
}

static int64_t divide(struct interp *p, const struct ex *e, bool remainder)
{
    int64_t a = whole(p, e->a), b = whole(p, e->b);
    if (vary(p, a, b)) return sized(p, a, b, sizes_binary(remainder ? EX_MOD : EX_FLOOR, a, b));
    if (value_of(p, e->a) == UNSIGNED || value_of(p, e->b) == UNSIGNED)
        return !b ? 0 : (int64_t)(remainder ? (uint64_t)a % (uint64_t)b : (uint64_t)a / (uint64_t)b);
    if (b == 0) return 0;
    if (b == -1) return remainder ? 0 : (int64_t)(0 - (uint64_t)a);
    int64_t q = a / b, r = a % b;
    bool down = r != 0 && (r < 0) != (b < 0);
    return remainder ? (down ? r + b : r) : q - down;
}

/* Evaluates an integer expression. */
static int64_t whole(struct interp *p, int32_t node)
{
    const struct ex *e = &p->loops->ex.at[node];
    switch (e->kind) {
    case EX_INT: return e->u.i;
    case EX_IVAR: return p->ivar[e->tensor];
    case EX_NEG: return combine(p, EX_SUB, 0, whole(p, e->a));
    case EX_ADD:
    case EX_SUB:
    case EX_MUL: {
        const int64_t a = whole(p, e->a);
        return combine(p, (enum ex_kind)e->kind, a, whole(p, e->b));
    }
    case EX_FLOOR: return divide(p, e, false);
    case EX_MOD: return divide(p, e, true);
    case EX_READ: {
        const struct loops_tensor *t = &p->loops->tensors.at[e->tensor];
        int64_t at = offset(p, t, e->a, e->b != 0);
        if (at < 0) return e->b ? whole(p, e->b) : 0;
        return load_int(memory(p, e->tensor), at, t->dtype);
    }
    case EX_CALL: {
        const int32_t body = p->body[node];
        if (!body) return call_whole(p, e);
        return value_of(p, body) == REAL ? real_to_int(real(p, body), SOL_I64) : whole(p, body);
    }
    case EX_RED: {
        struct acc a;
        reduction(p, e, &a);
        return a.i;
    }
    default: return holds(p, node);
    }
}

static double real(struct interp *p, int32_t node)
{
    const struct ex *e = &p->loops->ex.at[node];
    enum value v = value_of(p, node);
    if (v == INT) return (double)fixed(p, whole(p, node));
    if (v == UNSIGNED) return (double)(uint64_t)whole(p, node);
    switch (e->kind) {
    case EX_REAL: return e->u.r;
    case EX_NEG: return -real(p, e->a);
    case EX_ADD: return real(p, e->a) + real(p, e->b);
    case EX_SUB: return real(p, e->a) - real(p, e->b);
    case EX_MUL: return real(p, e->a) * real(p, e->b);
    case EX_DIV: return real(p, e->a) / real(p, e->b);
    case EX_READ: {
        const struct loops_tensor *t = &p->loops->tensors.at[e->tensor];
        int64_t at = offset(p, t, e->a, e->b != 0);
        if (at < 0) return e->b ? real(p, e->b) : 0;
        if (dtype_def((enum sol_dtype)t->dtype)->is_float) return load_real(memory(p, e->tensor), at, t->dtype);
        int64_t i = load_int(memory(p, e->tensor), at, t->dtype);
        return t->dtype == SOL_U64 ? (double)(uint64_t)i : (double)fixed(p, i);
    }
    case EX_CALL: return call_real(p, e);
    case EX_RED: {
        struct acc a;
        reduction(p, e, &a);
        return a.r;
    }
    default: return 0;
    }
}

static bool compare(int op, int order) /* order: -1, 0, 1 */
{
    switch (op) {
    case CMP_LT: return order < 0;
    case CMP_LE: return order <= 0;
    case CMP_EQ: return order == 0;
    case CMP_NE: return order != 0;
    case CMP_GE: return order >= 0;
    default: return order > 0;
    }
}

static bool holds(struct interp *p, int32_t node)
{
    const struct ex *e = &p->loops->ex.at[node];
    switch (e->kind) {
    case EX_TEST: return holds(p, e->a);
    case EX_AND:
    case EX_OR:
        for (int32_t i = e->a; i; i = p->loops->ex.at[i].next)
            if (holds(p, i) == (e->kind == EX_OR)) return e->kind == EX_OR;
        return e->kind == EX_AND;
    case EX_CMP: {
        enum value a = value_of(p, e->a), b = value_of(p, e->b);
        if (a == REAL || b == REAL) {
            double x = real(p, e->a), y = real(p, e->b);
            if (isnan(x) || isnan(y)) return e->op == CMP_NE;
            return compare(e->op, (x > y) - (x < y));
        }
        int64_t x = whole(p, e->a), y = whole(p, e->b);
        if (vary(p, x, y)) {
            const int known = sizes_compare((enum ex_cmp)e->op, x, y);
            return sized(p, x, y, known < 0 ? SIZE_BAD : known);
        }
        if (a == UNSIGNED || b == UNSIGNED)
            return compare(e->op, ((uint64_t)x > (uint64_t)y) - ((uint64_t)x < (uint64_t)y));
        return compare(e->op, (x > y) - (x < y));
    }
    default: return value_of(p, node) == REAL ? real(p, node) != 0 : fixed(p, whole(p, node)) != 0;
    }
}

/* -- statements */

static void store_second(const struct ex *e, const struct acc *a, void *data, int64_t at, int type)
{
    if (e->op == RED_MAXAT || e->op == RED_MINAT)
        store_int(data, at, type, a->at);
    else if (e->op == RED_MOMENTS)
        store_real(data, at, type, a->n ? a->r1 / (double)a->n : NAN);
    else
        store_real(data, at, type, a->r1);
}

static void store_value(struct interp *p, int32_t value, const struct acc *a, void *data, int64_t at, int type)
{
    enum value v = !a ? value_of(p, value) : !a->is_int ? REAL : a->is_unsigned ? UNSIGNED : INT;
    if (v == INT || v == UNSIGNED) {
        int64_t i = a ? a->i : whole(p, value);
        if (type != SOL_I64) i = fixed(p, i);
        if (!dtype_def((enum sol_dtype)type)->is_float)
            store_int(data, at, type, i);
        else
            store_real(data, at, type, v == UNSIGNED ? (double)(uint64_t)i : (double)i);
    } else {
        store_real(data, at, type, a ? a->r : real(p, value));
    }
}

static void store(struct interp *p, const struct loops_stmt *s)
{
    const struct ex *e = &p->loops->ex.at[s->value];
    const struct loops_tensor *t = &p->loops->tensors.at[s->out[0]];
    int64_t at = offset(p, t, s->index, false);
    if (at < 0) return;
    if (s->nout == 1) {
        store_value(p, s->value, NULL, p->data[s->out[0]], at, t->dtype);
        return;
    }
    struct acc a;
    reduction(p, e, &a);
    if (e->op == RED_MOMENTS && !a.n) a.r = NAN;
    if (e->op == RED_MAXAT || e->op == RED_MINAT) a.at = a.n ? a.at : 0;
    if (p->data[s->out[0]]) store_value(p, s->value, &a, p->data[s->out[0]], at, t->dtype);
    store_second(e, &a, p->data[s->out[1]], at, p->loops->tensors.at[s->out[1]].dtype);
}

static void nest(struct interp *p, const struct loops_stmt *s, uint64_t left)
{
    if (!left) {
        store(p, s);
        return;
    }
    int ivar = __builtin_ctzll(left);
    for (int64_t i = 0; i < p->loops->ivars.at[ivar].size && !p->status; ++i) {
        p->ivar[ivar] = i;
        nest(p, s, left & (left - 1));
    }
}

static int scan(struct interp *p, int first)
{
    const struct loops *loops = p->loops;
    const struct loops_stmt *s = &loops->stmts.at[first];
    int end = first;
    int64_t n = loops->ivars.at[s->scan_ivar].size;
    while (end < loops->stmts.n && loops->stmts.at[end].scan_step && loops->stmts.at[end].scan_ivar == s->scan_ivar)
        ++end;
    for (int64_t t = 0; t < n && !p->status; ++t)
        for (int i = first; i < end; ++i) {
            p->ivar[s->scan_ivar] = s->scan_step > 0 ? t : n - 1 - t;
            nest(p, &loops->stmts.at[i], stmt_ivars(loops, &loops->stmts.at[i]) & ~(1ull << s->scan_ivar));
        }
    return end;
}

static sol_status temps(struct interp *p, struct arena *a, void *const *data)
{
    p->data = NEW_ARRAY(a, void *, p->loops->tensors.n + 1);
    for (int i = 0; i < p->loops->tensors.n; ++i) {
        const struct loops_tensor *t = &p->loops->tensors.at[i];
        int64_t n;
        p->data[i] = t->role == LOOPS_TEMP || t->role == LOOPS_TABLE ? NULL : data[i];
        if (t->role != LOOPS_TEMP) continue;
        TRY(shape_elements(p->ctx, t->ndim, t->shape, &n));
        size_t bytes = (size_t)n * dtype_def((enum sol_dtype)t->dtype)->bytes;
        p->data[i] = arena_try(a, bytes);
        if (!p->data[i])
            return ctx_fail(p->ctx, SOL_ERR_NOMEM, "%s: no memory for %s (%zu bytes)", p->loops->name, t->name, bytes);
    }
    return ctx_check(p->ctx);
}

static bool is_whole_composite(const struct loops *loops, int32_t node)
{
    const struct ex *e = &loops->ex.at[node];
    return e->kind == EX_CALL && math_at(e->op)->expr && ex_is_int(loops, node);
}

/* Returns the loops, with the expansions of composite functions on integers if there are any. */
static const struct loops *with_bodies(struct arena *a, const struct loops *loops, int32_t **out_body)
{
    const int32_t n = loops->ex.n;
    struct loops *copy = NULL;
    int32_t *body = NEW_ARRAY(a, int32_t, n);
    for (int32_t i = 1; i < n; i++) {
        if (!is_whole_composite(loops, i)) continue;
        if (!copy) copy = loops_copy(a, loops);
        body[i] = ex_expand(copy, i);
    }
    *out_body = body;
    if (!copy) return loops;
    *out_body = NEW_ARRAY(a, int32_t, copy->ex.n);
    memcpy(*out_body, body, (size_t)n * sizeof *body);
    return copy;
}

static void find_affine(struct interp *p, struct arena *a, int32_t first)
{
    struct affine f;
    for (int32_t i = first; i; i = p->loops->ex.at[i].next)
        if (p->loops->ex.at[i].kind != EX_IVAR && !p->affine[i] && ex_affine(p->loops, i, &f)) {
            struct affine *copy = NEW(a, struct affine);
            *copy = f;
            p->affine[i] = copy;
        }
}

/* Finds the indices that are sums of index variables, unless they may be sizes that vary. */
static void find_indices(struct interp *p, struct arena *a)
{
    p->affine = NEW_ARRAY(a, const struct affine *, p->loops->ex.n);
    for (int32_t i = 1; i < p->loops->ex.n && !p->sizes; i++)
        if (p->loops->ex.at[i].kind == EX_READ) find_affine(p, a, p->loops->ex.at[i].a);
    for (int i = 0; i < p->loops->stmts.n && !p->sizes; i++) find_affine(p, a, p->loops->stmts.at[i].index);
}

static sol_status interpret(struct sol_ctx *ctx, const struct loops *loops, void *const *data, bool sizes)
{
    struct interp p = {.sizes = sizes, .ctx = ctx, .loops = loops, .rand = math_row("rand")};
    struct arena *a = arena_create(ctx);
    if (!a) return SOL_ERR_NOMEM;
    p.loops = with_bodies(a, loops, &p.body);
    p.value = NEW_ARRAY(a, uint8_t, p.loops->ex.n);
    find_indices(&p, a);
    p.status = temps(&p, a, data);
    for (int i = 0; i < loops->stmts.n && !p.status;) {
        const bool steps = loops->stmts.at[i].scan_step;
        if (!steps) nest(&p, &loops->stmts.at[i], stmt_ivars(loops, &loops->stmts.at[i]));
        i = steps ? scan(&p, i) : i + 1;
    }
    arena_destroy(a);
    return p.status;
}

sol_status loops_interpret(struct sol_ctx *ctx, const struct loops *loops, void *const *data)
{
    return interpret(ctx, loops, data, false);
}

sol_status loops_interpret_sizes(struct sol_ctx *ctx, const struct loops *loops, void *const *data)
{
    return interpret(ctx, loops, data, true);
}
