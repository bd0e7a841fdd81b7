/* Prints conditions: as a C condition, as a vector of masks (0 or -1), or as a value (0 or 1). Parts of a conjunction
 * may guard the reads of later parts, so those are evaluated only where the earlier ones hold. */
#include <string.h>

#include "print/print.h"

#define SAY(p, ...) arena_printf((p)->out->arena, __VA_ARGS__)

/* The common type of a comparison's operands. */
static enum compute compare_type(const struct print_expr *p, const struct ex *e)
{
    const enum compute a = expr_natural(p->loops, e->a), b = expr_natural(p->loops, e->b);
    if (a == b) return a;
    if (compute_is_int(a) && compute_is_int(b)) return C_U64;
    const struct expr_floats x = expr_floats(p->loops, e->a), y = expr_floats(p->loops, e->b);
    return (x.f32 || y.f32) && !x.f64 && !y.f64 ? C_F32 : C_F64;
}

static const char *const compares[] = {
    [CMP_LT] = "<", [CMP_LE] = "<=", [CMP_EQ] = "==", [CMP_NE] = "!=", [CMP_GE] = ">=", [CMP_GT] = ">"};

/* Prints `first && second`. Statements that the second needs run only where the first holds. */
static const char *join(struct print_expr *p, const char *first, int32_t node, bool and)
{
    struct text *out = p->out, inner = text_new(out->arena);
    inner.indent = out->indent + 1;
    p->out = &inner;
    const char *second = print_condition(p, node);
    p->out = out;
    if (!inner.n) return SAY(p, "%s %s %s", first, and? "&&" : "||", second);
    const char *name = expr_name(p);
    text_line(out, "int %s = %s;", name, first);
    text_line(out, "if (%s%s) {", and? "" : "!", name);
    text_add(out, inner.at, inner.n);
    out->indent++;
    text_line(out, "%s = %s;", name, second);
    out->indent--;
    text_line(out, "}");
    return name;
}

const char *print_condition(struct print_expr *p, int32_t node)
{
    const struct ex e = *print_ex(p, node);
    const int lanes = p->lanes;
    p->lanes = 1;
    const char *text;
    if (e.kind == EX_CMP) {
        const enum compute k = compare_type(p, &e);
        const char *a = expr_value(p, e.a, k), *b = expr_value(p, e.b, k);
        text = SAY(p, "(%s %s %s)", a, compares[e.op], b);
    } else if (e.kind == EX_AND || e.kind == EX_OR) {
        text = e.a ? print_condition(p, e.a) : e.kind == EX_AND ? "1" : "0";
        for (int32_t i = e.a ? print_ex(p, e.a)->next : 0; i; i = print_ex(p, i)->next)
            text = join(p, text, i, e.kind == EX_AND);
        text = SAY(p, "(%s)", text);
    } else if (e.kind == EX_TEST) {
        text = print_condition(p, e.a);
    } else {
        text = SAY(p, "(%s != 0)", expr_value(p, node, expr_natural(p->loops, node)));
    }
    p->lanes = lanes;
    return text;
}

/* Is there a read that is safe only because of an earlier part of the conjunction? */
static bool needs_order(const struct print_expr *p, const struct ex *list)
{
    for (int32_t i = list->a ? print_ex(p, list->a)->next : 0; i; i = print_ex(p, i)->next)
        if (!expr_is_safe(p->loops, i)) return true;
    return false;
}

static const char *mask_convert(struct print_expr *p, const char *mask, enum compute from, enum compute to)
{
    if (!strcmp(compute_def(from)->mask, compute_def(to)->mask)) return mask;
    return expr_elements(p, mask, compute_def(to)->mask);
}

/* Contiguous bytes, equal or not to a number that is equal in all lanes (node 0: zero): compares them as bytes. NULL:
 * the comparison has another form. */
static const char *byte_mask(struct print_expr *p, int32_t read, int op, int32_t other, enum compute k)
{
    const struct ex *e = print_ex(p, read);
    int64_t low = 0, high = 0;
    if (e->kind != EX_READ || e->b || (op != CMP_EQ && op != CMP_NE)) return NULL;
    const struct loops_tensor *t = &p->loops->tensors.at[e->tensor];
    if ((t->dtype != SOL_U8 && t->dtype != SOL_BOOL) || t->role == LOOPS_TEMP || t->role == LOOPS_TABLE) return NULL;
    if (p->read && p->read(p->user, p, read)) return NULL; /* it lies somewhere else */
    if ((other && expr_varies(p, other)) || expr_lane_step(p, e->tensor, e->a) != 1) return NULL;
    if (other && (!expr_range(p, other, &low, &high) || low < 0 || high > UINT8_MAX)) return NULL;
    const char *name = p->loops->tensors.at[e->tensor].name;
    const char *type = expr_vector(p, "u8"), *offset = print_offset(p, e->tensor, e->a);
    const char *number = other ? SAY(p, " + (uint8_t)%s", expr_scalar(p, other, C_I64)) : "";
    const char *equal = SAY(p, "((%s)(*(const %s *)(%s + %s) %s ((%s){0}%s)))", expr_vector(p, "i8"), type, name,
                            offset, compares[op], type, number);
    return expr_elements(p, equal, compute_def(k)->mask);
}

/* Two positions compared, one of which moves by 1 from lane to lane: lanes of 32 bits, where all differences fit. NULL:
 * the comparison has another form. */
static const char *position_mask(struct print_expr *p, const struct ex *cmp, enum compute k)
{
    const int64_t most = 1 << 30;
    const int32_t difference = ex_binary(p->loops, EX_SUB, cmp->a, cmp->b);
    struct affine a;
    int64_t low, high, step = 0;
    if (!ex_is_int(p->loops, difference) || !expr_affine(p, difference, &a)) return NULL;
    if (!expr_range(p, difference, &low, &high) || low < -most || high > most) return NULL;
    for (int i = 0; i < a.n; i++)
        if (a.ivar[i] == p->vector_ivar) step = a.coef[i];
    if (step != 1 && step != -1) return NULL;
    const char *first = expr_scalar(p, difference, C_I64), *own = expr_vector(p, "i32");
    const char *lanes = SAY(p, "@sol_iota_i32x%d()", p->lanes);
    const char *rest = SAY(p, "@sol_splat_i32x%d((int32_t)%s(%s))", p->lanes, step > 0 ? "-" : "", first);
    const char *text =
        SAY(p, "(%s)(%s %s %s)", own, step > 0 ? lanes : rest, compares[cmp->op], step > 0 ? rest : lanes);
    return strcmp(compute_def(k)->mask, "i32") ? expr_elements(p, text, compute_def(k)->mask) : text;
}

const char *expr_mask(struct print_expr *p, int32_t node, enum compute k)
{
    const struct ex e = *print_ex(p, node);
    if (!expr_varies(p, node))
        return SAY(p, "@sol_splat_%sx%d(-(%s))", compute_def(k)->mask, p->lanes, print_condition(p, node));
    if (e.kind == EX_TEST) return expr_mask(p, e.a, k);
    if (e.kind == EX_CMP) {
        const struct ex *value = print_ex(p, e.a), *zero = print_ex(p, e.b);
        const bool condition = value->kind == EX_TEST || expr_is_condition(value);
        if (e.op == CMP_NE && condition && zero->kind == EX_INT && !zero->u.i) return expr_mask(p, e.a, k);
        const char *bytes = byte_mask(p, e.a, e.op, e.b, k);
        if (bytes) return bytes;
        const char *positions = position_mask(p, &e, k);
        if (positions) return positions;
        const enum compute c = compare_type(p, &e);
        const char *a = expr_value(p, e.a, c), *b = expr_value(p, e.b, c);
        const char *own = expr_vector(p, compute_def(c)->mask);
        return mask_convert(p, SAY(p, "(%s)(%s %s %s)", own, a, compares[e.op], b), c, k);
    }
    if ((e.kind == EX_AND || e.kind == EX_OR) && !needs_order(p, &e)) {
        const char *text = expr_mask(p, e.a, k);
        for (int32_t i = print_ex(p, e.a)->next; i; i = print_ex(p, i)->next)
            text = SAY(p, "(%s %c %s)", text, e.kind == EX_AND ? '&' : '|', expr_mask(p, i, k));
        return text;
    }
    const char *bytes = byte_mask(p, node, CMP_NE, 0, k);
    if (bytes) return bytes;
    const enum compute c = expr_is_condition(&e) ? C_I64 : expr_natural(p->loops, node);
    const char *value = expr_is_condition(&e) ? expr_lanes(p, node, c) : expr_value(p, node, c);
    const char *type = expr_vector(p, compute_def(c)->mask);
    return mask_convert(p, SAY(p, "(%s)(%s != %s)", type, value, expr_splat(p, "0", c)), c, k);
}

const char *expr_test(struct print_expr *p, int32_t cond, enum compute k)
{
    if (p->lanes == 1)
        return SAY(p,
                   k == C_F32   ? "(%s ? 1.0f : 0.0f)"
                   : k == C_F64 ? "(%s ? 1.0 : 0.0)"
                                : "(int64_t)(%s)",
                   print_condition(p, cond));
    return SAY(p, "@sol_bool_%s(%s)", expr_type_name(p, k), expr_mask(p, cond, k));
}
