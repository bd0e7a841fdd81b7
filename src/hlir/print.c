/* Prints loops as text: tensors and index variables with their sizes, then one statement per line in the notation.
 * Brackets are printed only where the grammar needs them, so that a printed statement parses to the same nodes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hlir/loops.h"

/* The context of an expression: what may stand there without brackets. INDEX: no spaces outside of (). */
enum place { SUM, PRODUCT, FACTOR, INDEX };

static void show(const struct loops *loops, int32_t node, enum place place, struct text *out);

static void show_list(const struct loops *loops, int32_t first, enum place place, const char *between, struct text *out)
{
    for (int32_t i = first; i; i = loops->ex.at[i].next) {
        show(loops, i, place, out);
        if (loops->ex.at[i].next) text_put(out, "%s", between);
    }
}

static void show_real(double v, struct text *out)
{
    if (isnan(v)) {
        text_put(out, "nan");
    } else if (isinf(v)) {
        text_put(out, v < 0 ? "(-inf)" : "inf");
    } else {
        char digits[40];
        int n = snprintf(digits, sizeof digits, "%.17g", fabs(v));
        for (int p = 1; p < 17; ++p) { /* the fewest digits that give the same number */
            char fewer[40];
            int length = snprintf(fewer, sizeof fewer, "%.*g", p, fabs(v));
            if (strtod(fewer, NULL) != fabs(v)) continue;
            memcpy(digits, fewer, (size_t)length + 1);
            n = length;
            break;
        }
        if (!strpbrk(digits, ".e")) snprintf(digits + n, sizeof digits - (size_t)n, ".0");
        text_put(out, signbit(v) ? "(-%s)" : "%s", digits);
    }
}

static const char *const COMPARE[] = {
    [CMP_LT] = "<", [CMP_LE] = "<=", [CMP_EQ] = "==", [CMP_NE] = "!=", [CMP_GE] = ">=", [CMP_GT] = ">"};

static void show_cond(const struct loops *loops, int32_t node, struct text *out)
{
    const struct ex *e = &loops->ex.at[node];
    switch (e->kind) {
    case EX_CMP:
        show(loops, e->a, INDEX, out);
        text_put(out, "%s", COMPARE[e->op]);
        show(loops, e->b, INDEX, out);
        break;
    case EX_AND:
    case EX_OR:
        for (int32_t i = e->a; i; i = loops->ex.at[i].next) {
            show_cond(loops, i, out);
            if (loops->ex.at[i].next) text_put(out, e->kind == EX_AND ? " and " : " or ");
        }
        break;
    default: show(loops, node, INDEX, out); text_put(out, "!=0");
    }
}

static void show_red(const struct loops *loops, const struct ex *e, enum place place, struct text *out)
{
    bool blank = false;
    if (place != SUM) text_put(out, "(");
    text_put(out, "%s[", reduce_at(e->op)->name);
    for (int i = 0; i < loops->ivars.n; ++i) {
        if (!(e->u.bound >> i & 1)) continue;
        text_put(out, blank ? " %s" : "%s", loops->ivars.at[i].name);
        blank = true;
    }
    if (e->a) {
        text_put(out, blank ? " | " : "| ");
        show_cond(loops, e->a, out);
    }
    text_put(out, "] ");
    uint8_t body = loops->ex.at[e->b].kind;
    show(loops, e->b, body == EX_MUL ? PRODUCT : FACTOR, out);
    if (place != SUM) text_put(out, ")");
}

/* A product inside a reduction's body must not contain / // %, because these would end the body. */
static void show_binary(const struct loops *loops, const struct ex *e, enum place place, struct text *out)
{
    static const char *const ops[] = {
        [EX_ADD] = "+", [EX_SUB] = "-", [EX_MUL] = "*", [EX_DIV] = "/", [EX_FLOOR] = "//", [EX_MOD] = "%"};
    bool sum = e->kind == EX_ADD || e->kind == EX_SUB;
    bool close = place == FACTOR || (place == PRODUCT && e->kind != EX_MUL);
    if (close) text_put(out, "(");
    const struct ex *left = &loops->ex.at[e->a], *right = &loops->ex.at[e->b];
    bool left_sum = left->kind == EX_ADD || left->kind == EX_SUB || left->kind == EX_RED;
    enum place inner = place == INDEX ? INDEX : SUM;
    if ((!sum && left_sum) || left->kind == EX_RED)
        show(loops, e->a, FACTOR, out);
    else
        show(loops, e->a, !sum && place == PRODUCT && !close ? PRODUCT : inner, out);
    text_put(out, sum && place != INDEX ? " %s " : "%s", ops[e->kind]);
    bool right_binary = right->kind >= EX_ADD && right->kind <= EX_MOD;
    bool right_sum = right->kind == EX_ADD || right->kind == EX_SUB;
    if ((right_binary && (!sum || right_sum)) || right->kind == EX_RED)
        show(loops, e->b, FACTOR, out);
    else
        show(loops, e->b, inner, out);
    if (close) text_put(out, ")");
}

static void show(const struct loops *loops, int32_t node, enum place place, struct text *out)
{
    const struct ex *e = &loops->ex.at[node];
    switch (e->kind) {
    case EX_INT: text_put(out, e->u.i < 0 ? "(%lld)" : "%lld", (long long)e->u.i); break;
    case EX_REAL: show_real(e->u.r, out); break;
    case EX_IVAR: text_put(out, "%s", loops->ivars.at[e->tensor].name); break;
    case EX_NEG:
        text_put(out, "(-");
        show(loops, e->a, FACTOR, out);
        text_put(out, ")");
        break;
    case EX_READ:
        text_put(out, "%s[", loops->tensors.at[e->tensor].name);
        show_list(loops, e->a, INDEX, " ", out);
        text_put(out, e->b ? "]:" : "]");
        if (e->b) show(loops, e->b, FACTOR, out);
        break;
    case EX_CALL:
        text_put(out, "%s(", math_at(e->op)->name);
        show_list(loops, e->a, INDEX, ",", out);
        text_put(out, ")");
        break;
    case EX_TEST:
        text_put(out, "[");
        show_cond(loops, e->a, out);
        text_put(out, "]");
        break;
    case EX_CMP:
    case EX_AND:
    case EX_OR: show_cond(loops, node, out); break;
    case EX_RED: show_red(loops, e, place, out); break;
    default:
        if (e->kind >= EX_ADD && e->kind <= EX_MOD) show_binary(loops, e, place, out);
    }
}

void ex_print(const struct loops *loops, int32_t node, struct text *out)
{
    show(loops, node, SUM, out);
}

void stmt_print(const struct loops *loops, const struct loops_stmt *s, struct text *out)
{
    if (s->nout > 1) text_put(out, "(");
    for (int i = 0; i < s->nout; ++i) text_put(out, i ? ",%s" : "%s", loops->tensors.at[s->out[i]].name);
    text_put(out, s->nout > 1 ? ")[" : "[");
    show_list(loops, s->index, INDEX, " ", out);
    text_put(out, "] = ");
    show(loops, s->value, SUM, out);
}

static void show_table(const struct loops_tensor *t, struct text *out)
{
    const int64_t n = loops_elements(t);
    text_put(out, " =");
    for (int64_t i = 0; t->table && i < n; ++i) {
        text_put(out, " ");
        if (t->dtype == SOL_I64)
            text_put(out, "%lld", (long long)((const int64_t *)t->table)[i]);
        else
            show_real(((const double *)t->table)[i], out);
    }
}

static void print_all(const struct loops *loops, struct text *out)
{
    static const char *const roles[] = {"input", "output", "temp", "table"};
    text_put(out, "%s\n", loops->name);
    for (int i = 0; i < loops->tensors.n; ++i) {
        const struct loops_tensor *t = &loops->tensors.at[i];
        text_put(out, "    %s %s %s[", roles[t->role], dtype_def((enum sol_dtype)t->dtype)->name, t->name);
        for (int d = 0; d < t->ndim; ++d) text_put(out, d ? " %lld" : "%lld", (long long)t->shape[d]);
        text_put(out, "]");
        if (t->role == LOOPS_TABLE) show_table(t, out);
        text_put(out, "\n");
    }
    if (loops->ivars.n) {
        text_put(out, "   ");
        for (int i = 0; i < loops->ivars.n; ++i)
            text_put(out, " %s=%lld", loops->ivars.at[i].name, (long long)loops->ivars.at[i].size);
        text_put(out, "\n");
    }
    for (int i = 0; i < loops->stmts.n; ++i) {
        const struct loops_stmt *s = &loops->stmts.at[i];
        text_put(out, "    ");
        stmt_print(loops, s, out);
        if (s->scan_step) text_put(out, "  -- scan %s%+d", loops->ivars.at[s->scan_ivar].name, s->scan_step);
        text_put(out, "\n");
    }
}

/* What `print` writes, with forms in place of the names of sizes that vary. */
static void fill_sizes(const struct loops *loops, struct text *out, const struct text *made)
{
    uint32_t dims;
    int64_t bad;
    if (loops_vary(loops))
        size_fill(out, made->at, NULL, &dims, &bad);
    else
        text_add(out, made->at, made->n);
}

void loops_print(const struct loops *loops, struct text *out)
{
    struct text made = text_new(out->arena);
    print_all(loops, &made);
    fill_sizes(loops, out, &made);
}

/* -- as an operator definition */

/* Index variables of the head: one for each purpose and size, with a name that no loop has. */
struct heads {
    const struct loops *loops;
    struct text sizes;
    VECTOR(struct head {
        char purpose;
        int64_t size;
        const char *name;
    })
    all;
};

static bool is_ivar(const struct heads *h, const char *name)
{
    for (int i = 0; i < h->loops->ivars.n; ++i)
        if (!strcmp(h->loops->ivars.at[i].name, name)) return true;
    for (int i = 0; i < h->loops->tensors.n; ++i)
        if (h->loops->tensors.at[i].formula && !strcmp(h->loops->tensors.at[i].ivar, name)) return true;
    return false;
}

static void put_size(struct heads *h, const char *name, int64_t size)
{
    text_put(&h->sizes, "%s#%s=%lld", h->sizes.n ? "; " : "", name, (long long)size);
}

static const char *head_ivar(struct heads *h, char purpose, int64_t size)
{
    for (int i = 0; i < h->all.n; ++i)
        if (h->all.at[i].purpose == purpose && h->all.at[i].size == size) return h->all.at[i].name;
    struct head head = {purpose, size, NULL};
    int number = h->all.n;
    do head.name = arena_printf(h->loops->arena, "%c%d", purpose, number);
    while (is_ivar(h, head.name) && (number += 64));
    PUSH(h->loops->arena, h->all, head);
    put_size(h, head.name, size);
    return head.name;
}

static void show_heads(struct heads *h, enum loops_role role, char (*purpose)[SOL_MAX_DIMS], const char *before,
                       struct text *out)
{
    for (int i = 0; i < h->loops->tensors.n; ++i) {
        const struct loops_tensor *t = &h->loops->tensors.at[i];
        if (t->role != role) continue;
        text_put(out, "%s %s:%s[", before, t->name, dtype_def((enum sol_dtype)t->dtype)->name);
        for (int d = 0; d < t->ndim; ++d) {
            const char p = purpose[i][d];
            text_put(out, d ? " %s" : "%s", head_ivar(h, p == 'C' || p == 'P' || p == 'N' ? p : 'A', t->shape[d]));
        }
        text_put(out, "]");
        before = "";
    }
}

void loops_print_row(const struct loops *loops, char (*purpose)[SOL_MAX_DIMS], struct text *out)
{
    struct heads h = {.loops = loops, .sizes = text_new(loops->arena)};
    struct text tables = text_new(loops->arena);
    show_heads(&h, LOOPS_INPUT, purpose, "", out);
    show_heads(&h, LOOPS_OUTPUT, purpose, " ->", out);
    show_heads(&h, LOOPS_TEMP, purpose, " ->", out);
    for (int i = 0; i < loops->ivars.n; ++i) put_size(&h, loops->ivars.at[i].name, loops->ivars.at[i].size);
    for (int i = 0; i < loops->tensors.n; ++i) {
        const struct loops_tensor *t = &loops->tensors.at[i];
        if (!t->formula) continue;
        put_size(&h, t->ivar, *t->shape);
        text_put(&tables, "%s%s[%s] = %s", tables.n ? "; " : "", t->name, t->ivar, t->formula);
    }
    text_put(out, " | %s | %s | ", h.sizes.at, tables.at);
    for (int i = 0; i < loops->stmts.n; ++i) {
        if (i) text_put(out, "; ");
        stmt_print(loops, &loops->stmts.at[i], out);
    }
}
