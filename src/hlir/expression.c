/* Tokens and expressions of operator definitions, by recursive descent (grammar: docs/notation.md). White space matters
 * only between the indices of an access, where it ends an expression (`tight`). After an error, the rest of the text
 * reads as its end, so every rule returns. */
#include "hlir/parser.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "column 12"; of a text with several lines "line 2, column 5". */
static const char *place_of(const struct parser *p)
{
    int line = 1;
    const char *begin = p->text;
    for (const char *at = p->text; at < p->t.from; at++) {
        if (*at != '\n') continue;
        line++;
        begin = at + 1;
    }
    const int column = (int)(p->t.from - begin) + 1;
    return strchr(p->text, '\n') ? arena_printf(p->r->arena, "line %d, column %d", line, column)
                                 : arena_printf(p->r->arena, "column %d", column);
}

sol_status parser_fail(struct parser *p, const char *expected)
{
    if (!p->status) {
        const char *place = place_of(p), *found = p->t.from;
        if (p->t.kind == T_END)
            p->status = ctx_fail(arena_ctx(p->r->arena), SOL_ERR_INVALID,
                                 "definition %s: %s: expected %s, found the end", p->r->name, place, expected);
        else
            p->status =
                ctx_fail(arena_ctx(p->r->arena), SOL_ERR_INVALID, "definition %s: %s: expected %s, found '%.*s'",
                         p->r->name, place, expected, (int)MIN(strcspn(found, "\n"), 20u), found);
    }
    p->t.kind = T_END;
    p->t.at = p->t.from + strlen(p->t.from);
    return p->status;
}

/* -- tokens */

static const char *const OPS[] = {"<=", ">=", "==", "!=", "//", "->", "..", ":="};

static int number_length(const char *s, bool *real)
{
    const char *e = s;
    while (isdigit((unsigned char)*e)) ++e;
    *real = false;
    if (*e == '.' && isdigit((unsigned char)e[1])) {
        *real = true;
        for (++e; isdigit((unsigned char)*e);) ++e;
    }
    const char *exponent = e + (*e == 'e' && (e[1] == '-' || e[1] == '+') ? 2 : 1);
    if (*e == 'e' && isdigit((unsigned char)*exponent)) {
        *real = true;
        for (e = exponent; isdigit((unsigned char)*e);) ++e;
    }
    return (int)(e - s);
}

void parser_next(struct parser *p)
{
    const char *s = p->t.at;
    bool real;
    while (isspace((unsigned char)*s)) ++s;
    p->t.space = s > p->t.at;
    p->t.from = s;
    p->t.length = 1;
    if (!*s || p->status) {
        p->t.kind = T_END;
        p->t.length = 0;
    } else if (isdigit((unsigned char)*s)) {
        p->t.length = number_length(s, &real);
        p->t.kind = real ? T_REAL : T_INT;
    } else if (isupper((unsigned char)*s)) {
        p->t.kind = T_IVAR;
        while (isdigit((unsigned char)s[p->t.length]) || s[p->t.length] == '_') ++p->t.length;
        while (s[p->t.length] == '\'') ++p->t.length;
    } else if (islower((unsigned char)*s) || *s == '_') {
        p->t.kind = T_NAME;
        while (islower((unsigned char)s[p->t.length]) || isdigit((unsigned char)s[p->t.length]) ||
               s[p->t.length] == '_')
            ++p->t.length;
    } else {
        p->t.kind = T_OP;
        for (int i = 0; i < COUNT_OF(OPS); ++i)
            if (!strncmp(s, OPS[i], 2)) p->t.length = 2;
    }
    p->t.at = s + p->t.length;
}

bool parser_is(const struct parser *p, const char *text)
{
    if ((int)strlen(text) != p->t.length || strncmp(p->t.from, text, (size_t)p->t.length)) return false;
    if (p->t.kind != T_OP) return p->t.kind == T_NAME;
    return !(p->tight && p->t.space && *text != ']' && *text != '|');
}

bool parser_take(struct parser *p, const char *text)
{
    if (!parser_is(p, text)) return false;
    parser_next(p);
    return true;
}

void parser_need(struct parser *p, const char *text)
{
    if (!parser_take(p, text)) parser_fail(p, arena_printf(p->r->arena, "'%s'", text));
}

char *parser_text(const struct parser *p)
{
    return arena_printf(p->r->arena, "%.*s", p->t.length, p->t.from);
}

/* -- names */

static int32_t put(struct parser *p, struct ex e)
{
    PUSH(p->r->arena, p->r->ex, e);
    return p->r->ex.n - 1;
}

static int ivar_named(struct parser *p, const char *name, int length)
{
    struct opdef_ivar ivar = {0};
    for (int i = 0; i < p->r->ivars.n; ++i)
        if ((int)strlen(p->r->ivars.at[i].name) == length && !strncmp(p->r->ivars.at[i].name, name, (size_t)length))
            return i;
    if (p->r->ivars.n == OPDEF_MAX_IVARS || length >= (int)sizeof ivar.name) {
        parser_fail(p, "at most 64 index variables with short names");
        return 0;
    }
    ivar.base = -1;
    if (name[length - 1] == '\'') {
        while (name[length - 1] == '\'') --length;
        ivar.base = ivar_named(p, name, length);
        while (name[length] == '\'') ++length;
    }
    snprintf(ivar.name, sizeof ivar.name, "%.*s", length, name);
    PUSH(p->r->arena, p->r->ivars, ivar);
    int i = p->r->ivars.n - 1;
    if (ivar.base < 0) p->r->ivars.at[i].base = i;
    return i;
}

int parser_ivar(struct parser *p)
{
    if (p->t.kind != T_IVAR) {
        parser_fail(p, "an index variable");
        return 0;
    }
    int i = ivar_named(p, p->t.from, p->t.length);
    parser_next(p);
    return i;
}

int parser_tensor(struct parser *p, const char *name)
{
    struct opdef_tensor t = {.name = name, .ndim = -1};
    for (int i = 0; i < p->r->tensors.n; ++i)
        if (!strcmp(p->r->tensors.at[i].name, name)) return i;
    PUSH(p->r->arena, p->r->tensors, t);
    return p->r->tensors.n - 1;
}

int parser_attr(struct parser *p, const char *name)
{
    for (int i = 0; i < p->r->attrs.n; ++i)
        if (!strcmp(p->r->attrs.at[i], name)) return i;
    PUSH(p->r->arena, p->r->attrs, name);
    return p->r->attrs.n - 1;
}

/* -- expressions */

static int32_t unary(struct parser *p);
static int32_t primary(struct parser *p);

static int32_t chain(struct parser *p, int n, const int32_t *nodes)
{
    int32_t first = p->r->ex.n;
    for (int i = 0; i < n; ++i) {
        struct ex e = p->r->ex.at[nodes[i]];
        e.next = i + 1 < n ? first + i + 1 : 0;
        put(p, e);
    }
    return n ? first : 0;
}

static int32_t loose(struct parser *p, int32_t (*rule)(struct parser *), const char *end)
{
    bool tight = p->tight;
    p->tight = false;
    int32_t e = rule(p);
    p->tight = tight;
    parser_need(p, end);
    return e;
}

static enum ex_kind product_op(struct parser *p, bool only_times)
{
    if (parser_take(p, "*")) return EX_MUL;
    if (only_times) return EX_NONE;
    if (parser_take(p, "//")) return EX_FLOOR;
    if (parser_take(p, "/")) return EX_DIV;
    return parser_take(p, "%") ? EX_MOD : EX_NONE;
}

static int32_t product(struct parser *p, bool only_times)
{
    int32_t a = unary(p);
    for (enum ex_kind op; (op = product_op(p, only_times)) != EX_NONE;) {
        int32_t b = unary(p);
        a = put(p, (struct ex){.kind = (uint8_t)op, .a = a, .b = b});
    }
    return a;
}

int32_t parser_expr(struct parser *p)
{
    int32_t a = 0;
    if (++p->depth > 100) parser_fail(p, "fewer levels of brackets");
    for (enum ex_kind op = EX_NONE;;) {
        int32_t b = product(p, false);
        a = op == EX_NONE ? b : put(p, (struct ex){.kind = (uint8_t)op, .a = a, .b = b});
        op = parser_take(p, "+") ? EX_ADD : parser_take(p, "-") ? EX_SUB : EX_NONE;
        if (op == EX_NONE) break;
    }
    --p->depth;
    return a;
}

static int32_t unary(struct parser *p)
{
    if (p->t.kind != T_OP || p->t.length != 1 || *p->t.from != '-') return primary(p);
    parser_next(p); /* even after a space: an index may begin with a minus */
    int32_t a = unary(p);
    struct ex e = p->r->ex.at[a];
    if (e.kind == EX_INT && e.u.i != INT64_MIN) return put(p, (struct ex){.kind = EX_INT, .u.i = size_sub(0, e.u.i)});
    if (e.kind == EX_REAL) return put(p, (struct ex){.kind = EX_REAL, .u.r = -e.u.r});
    return put(p, (struct ex){.kind = EX_NEG, .a = a});
}

int32_t parser_indices(struct parser *p)
{
    int32_t index[SOL_MAX_DIMS];
    int n = 0;
    bool tight = p->tight;
    p->tight = true;
    parser_next(p); /* [ */
    while (!parser_is(p, "]") && !p->status) {
        int32_t e = parser_expr(p);
        if (n == SOL_MAX_DIMS)
            parser_fail(p, "at most 12 indices");
        else
            index[n++] = e;
    }
    p->tight = tight;
    parser_need(p, "]");
    return chain(p, n, index);
}

static int32_t access(struct parser *p, const char *name)
{
    int tensor = parser_tensor(p, name);
    int32_t first = parser_indices(p), outside = 0;
    if (parser_take(p, ":")) outside = unary(p);
    return put(p, (struct ex){.kind = EX_READ, .tensor = (uint16_t)tensor, .a = first, .b = outside});
}

static int32_t reduction(struct parser *p, int row)
{
    uint64_t bound = 0;
    int last = -1;
    int32_t guard = 0;
    bool tight = p->tight, position = row == RED_MAXAT || row == RED_MINAT;
    p->tight = false;
    parser_next(p); /* [ */
    while (p->t.kind == T_IVAR) {
        int ivar = parser_ivar(p);
        if (position && ivar < last)
            parser_fail(p, "the index variables of a position in the order in which the row names them");
        bound |= 1ull << ivar;
        last = ivar;
    }
    if (parser_take(p, "|")) guard = parser_cond(p);
    p->tight = tight;
    parser_need(p, "]");
    int32_t body = product(p, true); /* ends at + - / // % */
    return put(p, (struct ex){.kind = EX_RED, .op = (uint8_t)row, .a = guard, .b = body, .u.bound = bound});
}

/* #L in the brackets of a built-in function */
static int size_argument(struct parser *p)
{
    parser_need(p, "#");
    return parser_ivar(p);
}

/* lin(#L, e), dig(e, #L), prod(#L), len(a), rank(x); 0: none of these */
static int32_t builtin(struct parser *p, const char *name)
{
    struct ex e = {0};
    if (!strcmp(name, "lin")) {
        e.kind = EX_LIN;
        e.tensor = (uint16_t)size_argument(p);
        parser_need(p, ",");
        e.a = parser_expr(p);
    } else if (!strcmp(name, "dig")) {
        e.kind = EX_DIG;
        e.a = parser_expr(p);
        parser_need(p, ",");
        e.tensor = (uint16_t)size_argument(p);
    } else if (!strcmp(name, "prod")) {
        e.kind = OPDEF_PROD;
        e.tensor = (uint16_t)size_argument(p);
    } else if (!strcmp(name, "len") || !strcmp(name, "rank")) {
        if (p->t.kind != T_NAME) parser_fail(p, "a name");
        e.kind = *name == 'l' ? OPDEF_LEN : OPDEF_RANK;
        e.tensor = (uint16_t)(*name == 'l' ? parser_attr(p, parser_text(p)) : parser_tensor(p, parser_text(p)));
        parser_next(p);
    } else {
        return 0;
    }
    return put(p, e);
}

static bool at_comparison(const struct parser *p)
{
    static const char *const all[] = {"<", "<=", "==", "!=", ">=", ">"};
    for (int i = 0; i < COUNT_OF(all); ++i)
        if (parser_is(p, all[i])) return true;
    return false;
}

/* An argument may be a condition, which gives 1 or 0. */
static int32_t argument(struct parser *p)
{
    struct lexer start = p->t;
    int32_t e = parser_expr(p);
    if (!at_comparison(p) || p->status) return e;
    p->t = start;
    return put(p, (struct ex){.kind = EX_TEST, .a = parser_cond(p)});
}

static int32_t call_arguments(struct parser *p, const char *name)
{
    int32_t made = builtin(p, name), args[4];
    int row = math_row(name), n = 0;
    if (made) return made;
    if (row < 0) {
        p->t.from -= strlen(name) + 1;
        parser_fail(p, "a function (docs/layers.md lists them)");
        return put(p, (struct ex){.kind = EX_INT});
    }
    do {
        if (n == 4) break;
        args[n++] = argument(p);
    } while (parser_take(p, ","));
    if (n != math_at(row)->arity)
        parser_fail(p, arena_printf(p->r->arena, "%d arguments for %s", math_at(row)->arity, name));
    int32_t list = chain(p, n, args);
    return put(p, (struct ex){.kind = EX_CALL, .op = (uint8_t)row, .a = list});
}

static int32_t call(struct parser *p, const char *name)
{
    bool tight = p->tight;
    p->tight = false;
    parser_next(p); /* ( */
    int32_t e = call_arguments(p, name);
    p->tight = tight;
    parser_need(p, ")");
    return e;
}

static int32_t named(struct parser *p)
{
    const char *name = parser_text(p);
    parser_next(p);
    bool glued = !p->t.space && p->t.kind == T_OP;
    if (!strcmp(name, "inf")) return put(p, (struct ex){.kind = EX_REAL, .u.r = INFINITY});
    if (!strcmp(name, "nan")) return put(p, (struct ex){.kind = EX_REAL, .u.r = NAN});
    if (glued && *p->t.from == '[') {
        int row = reduce_row(name);
        return row >= 0 ? reduction(p, row) : access(p, name);
    }
    if (glued && *p->t.from == '(') return call(p, name);
    return put(p, (struct ex){.kind = EX_ATTR, .tensor = (uint16_t)parser_attr(p, name)});
}

static int32_t primary(struct parser *p)
{
    struct ex e = {0};
    switch (p->t.kind) {
    case T_INT:
        e.kind = EX_INT;
        e.u.i = strtoll(parser_text(p), NULL, 10);
        parser_next(p);
        return put(p, e);
    case T_REAL:
        e.kind = EX_REAL;
        e.u.r = strtod(parser_text(p), NULL);
        parser_next(p);
        return put(p, e);
    case T_IVAR:
        e.kind = EX_IVAR;
        e.tensor = (uint16_t)parser_ivar(p);
        return put(p, e);
    case T_NAME: return named(p);
    case T_OP:
        switch (*p->t.from) {
        case '#':
            parser_next(p);
            e.kind = EX_SIZE;
            e.tensor = (uint16_t)parser_ivar(p);
            return put(p, e);
        case '(': parser_next(p); return loose(p, parser_expr, ")");
        case '[':
            parser_next(p);
            e.kind = EX_TEST;
            e.a = loose(p, parser_cond, "]");
            return put(p, e);
        default: break;
        }
        break;
    case T_END: break;
    }
    parser_fail(p, "an expression");
    return put(p, (struct ex){.kind = EX_INT});
}

/* -- conditions */

static int comparison_op(struct parser *p)
{
    if (parser_take(p, "<=")) return CMP_LE;
    if (parser_take(p, ">=")) return CMP_GE;
    if (parser_take(p, "==")) return CMP_EQ;
    if (parser_take(p, "!=")) return CMP_NE;
    if (parser_take(p, "<")) return CMP_LT;
    return parser_take(p, ">") ? CMP_GT : -1;
}

static int32_t logic(struct parser *p, enum ex_kind kind, int n, const int32_t *part)
{
    if (n == 1) return part[0];
    int32_t list = chain(p, n, part);
    return put(p, (struct ex){.kind = (uint8_t)kind, .a = list});
}

/* a < b < c means a < b and b < c */
static int32_t comparison(struct parser *p)
{
    int32_t part[8], a = parser_expr(p);
    int n = 0, op = comparison_op(p);
    if (op < 0) parser_fail(p, "a comparison");
    while (op >= 0 && n < COUNT_OF(part)) {
        int32_t b = parser_expr(p);
        part[n++] = put(p, (struct ex){.kind = EX_CMP, .op = (uint8_t)op, .a = a, .b = b});
        a = b;
        op = comparison_op(p);
    }
    return n ? logic(p, EX_AND, n, part) : put(p, (struct ex){.kind = EX_INT});
}

static int32_t conjunction(struct parser *p)
{
    int32_t part[16];
    int n = 0;
    do part[n++] = comparison(p);
    while (n < COUNT_OF(part) && parser_take(p, "and"));
    return logic(p, EX_AND, n, part);
}

int32_t parser_cond(struct parser *p)
{
    int32_t part[16];
    int n = 0;
    do part[n++] = conjunction(p);
    while (n < COUNT_OF(part) && parser_take(p, "or"));
    return logic(p, EX_OR, n, part);
}

/* -- beginnings */

struct parser parser_begin(struct arena *a, const char *name, const char *text)
{
    struct parser p = {.r = NEW(a, struct opdef), .text = text, .t.at = text};
    struct ex none = {0};
    p.r->arena = a;
    p.r->name = arena_strdup(a, name ? name : "");
    PUSH(a, p.r->ex, none);
    parser_next(&p);
    return p;
}

sol_status opdef_parse_expression(struct arena *a, const char *name, const char *text, struct opdef **out_opdef,
                                  int32_t *out_e)
{
    struct parser p = parser_begin(a, name, text);
    *out_e = parser_expr(&p);
    if (p.t.kind != T_END) parser_fail(&p, "the end");
    *out_opdef = p.r;
    return p.status;
}
