/* Rows as text: tokens and a recursive-descent parser (grammar: docs/notation.md). White space matters between the
 * indices of an access and nowhere else: there (`tight`) a blank ends an expression. After an error the rest of the
 * text reads as its end, so that every rule comes back. */
#include "hlir/row.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum token { T_END, T_INT, T_REAL, T_LETTER, T_NAME, T_OP };
struct lexer {
    const char *at;   /* behind the token */
    const char *from; /* the token */
    enum token kind;
    int length;
    bool space; /* white space in front */
};
struct parser {
    struct lexer t;
    struct row *r;
    const char *text;
    bool tight;
    int depth;
    sol_status status;
};

static sol_status fail(struct parser *p, const char *expected)
{
    if (!p->status) {
        int column = (int)(p->t.from - p->text) + 1;
        if (p->t.kind == T_END)
            p->status = ctx_fail(arena_ctx(p->r->arena), SOL_ERR_INVALID,
                                 "row %s: column %d: expected %s, found the end", p->r->name, column, expected);
        else
            p->status =
                ctx_fail(arena_ctx(p->r->arena), SOL_ERR_INVALID, "row %s: column %d: expected %s, found '%.*s'",
                         p->r->name, column, expected, MIN(20, (int)strlen(p->t.from)), p->t.from);
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

static void next(struct parser *p)
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
        p->t.kind = T_LETTER;
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

static bool is(const struct parser *p, const char *text)
{
    if ((int)strlen(text) != p->t.length || strncmp(p->t.from, text, (size_t)p->t.length)) return false;
    if (p->t.kind != T_OP) return p->t.kind == T_NAME;
    return !(p->tight && p->t.space && *text != ']' && *text != '|');
}

static bool take(struct parser *p, const char *text)
{
    if (!is(p, text)) return false;
    next(p);
    return true;
}

static void need(struct parser *p, const char *text)
{
    if (!take(p, text)) fail(p, arena_printf(p->r->arena, "'%s'", text));
}

static char *token_text(const struct parser *p)
{
    return arena_printf(p->r->arena, "%.*s", p->t.length, p->t.from);
}

/* -- names */

static int32_t put(struct parser *p, struct ex e)
{
    PUSH(p->r->arena, p->r->ex, e);
    return p->r->ex.n - 1;
}

static int letter_named(struct parser *p, const char *name, int length)
{
    struct row_letter letter = {0};
    for (int i = 0; i < p->r->letters.n; ++i)
        if ((int)strlen(p->r->letters.at[i].name) == length && !strncmp(p->r->letters.at[i].name, name, (size_t)length))
            return i;
    if (p->r->letters.n == ROW_MAX_LETTERS || length >= (int)sizeof letter.name) {
        fail(p, "at most 64 letters with short names");
        return 0;
    }
    letter.base = -1;
    if (name[length - 1] == '\'') {
        while (name[length - 1] == '\'') --length;
        letter.base = letter_named(p, name, length);
        while (name[length] == '\'') ++length;
    }
    snprintf(letter.name, sizeof letter.name, "%.*s", length, name);
    PUSH(p->r->arena, p->r->letters, letter);
    int i = p->r->letters.n - 1;
    if (letter.base < 0) p->r->letters.at[i].base = i;
    return i;
}

static int need_letter(struct parser *p)
{
    if (p->t.kind != T_LETTER) {
        fail(p, "a letter");
        return 0;
    }
    int i = letter_named(p, p->t.from, p->t.length);
    next(p);
    return i;
}

static int tensor_named(struct parser *p, const char *name)
{
    struct row_tensor t = {.name = name, .ndim = -1};
    for (int i = 0; i < p->r->tensors.n; ++i)
        if (!strcmp(p->r->tensors.at[i].name, name)) return i;
    PUSH(p->r->arena, p->r->tensors, t);
    return p->r->tensors.n - 1;
}

static int attr_named(struct parser *p, const char *name)
{
    for (int i = 0; i < p->r->attrs.n; ++i)
        if (!strcmp(p->r->attrs.at[i], name)) return i;
    PUSH(p->r->arena, p->r->attrs, name);
    return p->r->attrs.n - 1;
}

/* -- expressions */

static int32_t expr(struct parser *p);
static int32_t unary(struct parser *p);
static int32_t primary(struct parser *p);
static int32_t cond(struct parser *p);

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
    need(p, end);
    return e;
}

static enum ex_kind product_op(struct parser *p, bool only_times)
{
    if (take(p, "*")) return EX_MUL;
    if (only_times) return EX_NONE;
    if (take(p, "//")) return EX_FLOOR;
    if (take(p, "/")) return EX_DIV;
    return take(p, "%") ? EX_MOD : EX_NONE;
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

static int32_t expr(struct parser *p)
{
    int32_t a = 0;
    if (++p->depth > 100) fail(p, "fewer levels of brackets");
    for (enum ex_kind op = EX_NONE;;) {
        int32_t b = product(p, false);
        a = op == EX_NONE ? b : put(p, (struct ex){.kind = (uint8_t)op, .a = a, .b = b});
        op = take(p, "+") ? EX_ADD : take(p, "-") ? EX_SUB : EX_NONE;
        if (op == EX_NONE) break;
    }
    --p->depth;
    return a;
}

static int32_t unary(struct parser *p)
{
    if (p->t.kind != T_OP || p->t.length != 1 || *p->t.from != '-') return primary(p);
    next(p); /* even behind a blank: an index may begin with a minus */
    int32_t a = unary(p);
    struct ex e = p->r->ex.at[a];
    if (e.kind == EX_INT && e.u.i != INT64_MIN) return put(p, (struct ex){.kind = EX_INT, .u.i = -e.u.i});
    if (e.kind == EX_REAL) return put(p, (struct ex){.kind = EX_REAL, .u.r = -e.u.r});
    return put(p, (struct ex){.kind = EX_NEG, .a = a});
}

static int32_t indices(struct parser *p)
{
    int32_t index[SOL_MAX_DIMS];
    int n = 0;
    bool tight = p->tight;
    p->tight = true;
    next(p); /* [ */
    while (!is(p, "]") && !p->status) {
        int32_t e = expr(p);
        if (n == SOL_MAX_DIMS)
            fail(p, "at most 12 indices");
        else
            index[n++] = e;
    }
    p->tight = tight;
    need(p, "]");
    return chain(p, n, index);
}

static int32_t access(struct parser *p, const char *name)
{
    int tensor = tensor_named(p, name);
    int32_t first = indices(p), outside = 0;
    if (take(p, ":")) outside = unary(p);
    return put(p, (struct ex){.kind = EX_READ, .tensor = (uint16_t)tensor, .a = first, .b = outside});
}

static int32_t reduction(struct parser *p, int row)
{
    uint64_t bound = 0;
    int last = -1;
    int32_t guard = 0;
    bool tight = p->tight, position = row == RED_MAXAT || row == RED_MINAT;
    p->tight = false;
    next(p); /* [ */
    while (p->t.kind == T_LETTER) {
        int letter = need_letter(p);
        if (position && letter < last) fail(p, "the letters of a position in the order in which the row names them");
        bound |= 1ull << letter;
        last = letter;
    }
    if (take(p, "|")) guard = cond(p);
    p->tight = tight;
    need(p, "]");
    int32_t body = product(p, true); /* ends at + - / // % */
    return put(p, (struct ex){.kind = EX_RED, .op = (uint8_t)row, .a = guard, .b = body, .u.bound = bound});
}

/* #L between the brackets of a built-in function */
static int size_argument(struct parser *p)
{
    need(p, "#");
    return need_letter(p);
}

/* lin(#L, e), dig(e, #L), prod(#L), len(a), rank(x); 0: none of them */
static int32_t builtin(struct parser *p, const char *name)
{
    struct ex e = {0};
    if (!strcmp(name, "lin")) {
        e.kind = EX_LIN;
        e.tensor = (uint16_t)size_argument(p);
        need(p, ",");
        e.a = expr(p);
    } else if (!strcmp(name, "dig")) {
        e.kind = EX_DIG;
        e.a = expr(p);
        need(p, ",");
        e.tensor = (uint16_t)size_argument(p);
    } else if (!strcmp(name, "prod")) {
        e.kind = ROW_PROD;
        e.tensor = (uint16_t)size_argument(p);
    } else if (!strcmp(name, "len") || !strcmp(name, "rank")) {
        if (p->t.kind != T_NAME) fail(p, "a name");
        e.kind = *name == 'l' ? ROW_LEN : ROW_RANK;
        e.tensor = (uint16_t)(*name == 'l' ? attr_named(p, token_text(p)) : tensor_named(p, token_text(p)));
        next(p);
    } else {
        return 0;
    }
    return put(p, e);
}

static bool at_comparison(const struct parser *p)
{
    static const char *const all[] = {"<", "<=", "==", "!=", ">=", ">"};
    for (int i = 0; i < COUNT_OF(all); ++i)
        if (is(p, all[i])) return true;
    return false;
}

/* An argument may be a condition: it is 1 or 0 then. */
static int32_t argument(struct parser *p)
{
    struct lexer start = p->t;
    int32_t e = expr(p);
    if (!at_comparison(p) || p->status) return e;
    p->t = start;
    return put(p, (struct ex){.kind = EX_TEST, .a = cond(p)});
}

static int32_t call_arguments(struct parser *p, const char *name)
{
    int32_t made = builtin(p, name), args[4];
    int row = math_row(name), n = 0;
    if (made) return made;
    if (row < 0) {
        p->t.from -= strlen(name) + 1;
        fail(p, "a function of math.def");
        return put(p, (struct ex){.kind = EX_INT});
    }
    do {
        if (n == 4) break;
        args[n++] = argument(p);
    } while (take(p, ","));
    if (n != math_at(row)->arity) fail(p, arena_printf(p->r->arena, "%d arguments for %s", math_at(row)->arity, name));
    int32_t list = chain(p, n, args);
    return put(p, (struct ex){.kind = EX_CALL, .op = (uint8_t)row, .a = list});
}

static int32_t call(struct parser *p, const char *name)
{
    bool tight = p->tight;
    p->tight = false;
    next(p); /* ( */
    int32_t e = call_arguments(p, name);
    p->tight = tight;
    need(p, ")");
    return e;
}

static int32_t named(struct parser *p)
{
    const char *name = token_text(p);
    next(p);
    bool glued = !p->t.space && p->t.kind == T_OP;
    if (!strcmp(name, "inf")) return put(p, (struct ex){.kind = EX_REAL, .u.r = INFINITY});
    if (!strcmp(name, "nan")) return put(p, (struct ex){.kind = EX_REAL, .u.r = NAN});
    if (glued && *p->t.from == '[') {
        int row = reduce_row(name);
        return row >= 0 ? reduction(p, row) : access(p, name);
    }
    if (glued && *p->t.from == '(') return call(p, name);
    return put(p, (struct ex){.kind = EX_ATTR, .tensor = (uint16_t)attr_named(p, name)});
}

static int32_t primary(struct parser *p)
{
    struct ex e = {0};
    switch (p->t.kind) {
    case T_INT:
        e.kind = EX_INT;
        e.u.i = strtoll(token_text(p), NULL, 10);
        next(p);
        return put(p, e);
    case T_REAL:
        e.kind = EX_REAL;
        e.u.r = strtod(token_text(p), NULL);
        next(p);
        return put(p, e);
    case T_LETTER:
        e.kind = EX_LETTER;
        e.tensor = (uint16_t)need_letter(p);
        return put(p, e);
    case T_NAME: return named(p);
    case T_OP:
        switch (*p->t.from) {
        case '#':
            next(p);
            e.kind = EX_SIZE;
            e.tensor = (uint16_t)need_letter(p);
            return put(p, e);
        case '(': next(p); return loose(p, expr, ")");
        case '[':
            next(p);
            e.kind = EX_TEST;
            e.a = loose(p, cond, "]");
            return put(p, e);
        default: break;
        }
        break;
    case T_END: break;
    }
    fail(p, "an expression");
    return put(p, (struct ex){.kind = EX_INT});
}

/* -- conditions */

static int comparison_op(struct parser *p)
{
    if (take(p, "<=")) return CMP_LE;
    if (take(p, ">=")) return CMP_GE;
    if (take(p, "==")) return CMP_EQ;
    if (take(p, "!=")) return CMP_NE;
    if (take(p, "<")) return CMP_LT;
    return take(p, ">") ? CMP_GT : -1;
}

static int32_t logic(struct parser *p, enum ex_kind kind, int n, const int32_t *part)
{
    if (n == 1) return part[0];
    int32_t list = chain(p, n, part);
    return put(p, (struct ex){.kind = (uint8_t)kind, .a = list});
}

/* a < b < c is a < b and b < c */
static int32_t comparison(struct parser *p)
{
    int32_t part[8], a = expr(p);
    int n = 0, op = comparison_op(p);
    if (op < 0) fail(p, "a comparison");
    while (op >= 0 && n < COUNT_OF(part)) {
        int32_t b = expr(p);
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
    while (n < COUNT_OF(part) && take(p, "and"));
    return logic(p, EX_AND, n, part);
}

static int32_t cond(struct parser *p)
{
    int32_t part[16];
    int n = 0;
    do part[n++] = conjunction(p);
    while (n < COUNT_OF(part) && take(p, "or"));
    return logic(p, EX_OR, n, part);
}

/* -- head */

static void head_type(struct parser *p, struct row_tensor *t)
{
    t->type_attr = is(p, ":=");
    if (!take(p, ":=") && !take(p, ":")) return;
    if (p->t.kind != T_NAME) fail(p, "a type");
    t->type = token_text(p);
    if (t->type_attr) attr_named(p, t->type);
    next(p);
}

static void head_tensor(struct parser *p, enum row_role role)
{
    if (p->t.kind != T_NAME) {
        fail(p, "a tensor");
        return;
    }
    const char *name = token_text(p);
    int before = p->r->tensors.n, i = tensor_named(p, name);
    if (i < before) fail(p, "a tensor with a new name");
    struct row_tensor t = p->r->tensors.at[i];
    t.role = (uint8_t)role;
    t.declared = true;
    t.ndim = 0;
    next(p);
    t.optional = take(p, "?");
    head_type(p, &t);
    need(p, "[");
    while (p->t.kind == T_LETTER && !p->status) {
        int letter = need_letter(p);
        p->r->letters.at[letter].head = true;
        if (take(p, "..")) p->r->letters.at[letter].group = true;
        if (t.ndim == SOL_MAX_DIMS) fail(p, "at most 12 letters");
        if (!p->status) t.dim[t.ndim++] = letter;
    }
    need(p, "]");
    p->r->tensors.at[i] = t;
    p->r->nin += role == ROW_IN;
    p->r->nout += role == ROW_OUT;
}

static void head(struct parser *p)
{
    while (!is(p, "->") && !p->status) head_tensor(p, ROW_IN);
    need(p, "->");
    while (!is(p, "->") && !is(p, "|") && !p->status) head_tensor(p, ROW_OUT);
    if (!take(p, "->")) return;
    while (!is(p, "|") && !p->status) head_tensor(p, ROW_TEMP);
}

/* -- sizes */

static bool size_rule(struct parser *p, struct row_rule *rule)
{
    struct lexer start = p->t;
    bool size = take(p, "#");
    if (p->t.kind == T_LETTER) {
        rule->letter = need_letter(p);
        bool group = take(p, "..");
        rule->kind = size ? RULE_SIZE : RULE_RANK;
        if (take(p, "=") || (!size && take(p, ":="))) {
            if (group) p->r->letters.at[rule->letter].group = true;
            rule->expr = expr(p);
            return true;
        }
    }
    p->t = start;
    return false;
}

static void sizes(struct parser *p)
{
    while (!is(p, "|") && !p->status) {
        struct row_rule rule = {0};
        const char *from = p->t.from;
        if (!size_rule(p, &rule)) {
            rule.kind = RULE_CHECK;
            rule.expr = cond(p);
        }
        int length = (int)(p->t.from - from);
        while (length && isspace((unsigned char)from[length - 1])) --length;
        rule.text = arena_printf(p->r->arena, "%.*s", length, from);
        PUSH(p->r->arena, p->r->rules, rule);
        if (!take(p, ";") && !is(p, "|")) fail(p, "';' or '|'");
    }
}

/* -- statements */

static void written(struct parser *p, struct loops_stmt *s, bool table)
{
    const struct row *r = p->r;
    const struct ex *e = &r->ex.at[s->value];
    for (int i = 0; i < s->nout; ++i) {
        struct row_tensor *t = &r->tensors.at[s->out[i]];
        if (t->role == ROW_IN) fail(p, arena_printf(r->arena, "a result in front (%s is an input)", t->name));
        if (table) t->role = ROW_TABLE;
        t->position = i == 1 && e->kind == EX_RED && (e->op == RED_MAXAT || e->op == RED_MINAT);
        t->written = true;
        if (t->declared || t->ndim >= 0) continue;
        t->ndim = 0;
        for (int32_t x = s->index; x; x = r->ex.at[x].next) {
            if (r->ex.at[x].kind != EX_LETTER)
                fail(p, arena_printf(r->arena, "plain letters, or %s in the head", t->name));
            t->dim[t->ndim++] = r->ex.at[x].tensor;
        }
    }
}

static void statement(struct parser *p, bool table)
{
    struct loops_stmt s = {0};
    bool several = take(p, "(");
    do {
        if (p->t.kind != T_NAME || s.nout == COUNT_OF(s.out)) {
            fail(p, "a tensor to write");
            return;
        }
        s.out[s.nout++] = (uint16_t)tensor_named(p, token_text(p));
        next(p);
    } while (several && take(p, ","));
    if (several) need(p, ")");
    if (!is(p, "[")) fail(p, "'['");
    s.index = indices(p);
    need(p, "=");
    s.value = expr(p);
    written(p, &s, table);
    const struct ex *e = &p->r->ex.at[s.value];
    int nout = e->kind == EX_RED ? reduce_at(e->op)->nout : 1;
    if (nout != s.nout) fail(p, arena_printf(p->r->arena, "%d results in front of this statement", nout));
    if (table)
        PUSH(p->r->arena, p->r->tables, s);
    else
        PUSH(p->r->arena, p->r->stmts, s);
}

static void statements(struct parser *p, bool table)
{
    while (!(table && is(p, "|")) && p->t.kind != T_END) {
        statement(p, table);
        if (!take(p, ";") && !(table && is(p, "|")) && p->t.kind != T_END) fail(p, "';' or the end");
    }
}

/* -- all together */

static int columns(const char *text)
{
    int n = 1, depth = 0;
    for (; *text; ++text) {
        depth += (*text == '[' || *text == '(') - (*text == ']' || *text == ')');
        n += *text == '|' && depth == 0;
    }
    return n;
}

/* Several outputs stand only at the top of a statement; every tensor is written or given. */
static sol_status verify(struct parser *p)
{
    const struct row *r = p->r;
    for (int i = 0; i < r->tensors.n; ++i) {
        const struct row_tensor *t = &r->tensors.at[i];
        if (t->role != ROW_IN && !t->written)
            return ctx_fail(arena_ctx(r->arena), SOL_ERR_INVALID, "row %s: %s is never written", r->name, t->name);
        if (t->role == ROW_IN && t->type_attr)
            return ctx_fail(arena_ctx(r->arena), SOL_ERR_INVALID, "row %s: input %s cannot have the type := %s",
                            r->name, t->name, t->type);
    }
    for (int i = 1; i < r->ex.n; ++i) {
        const struct ex *e = &r->ex.at[i];
        int32_t inner[3] = {e->a, e->b, e->next};
        for (int c = 0; c < 3; ++c) {
            const struct ex *below = &r->ex.at[inner[c]];
            if (inner[c] && below->kind == EX_RED && reduce_at(below->op)->nout > 1)
                return ctx_fail(arena_ctx(r->arena), SOL_ERR_INVALID,
                                "row %s: %s has several results: only alone behind '='", r->name,
                                reduce_at(below->op)->name);
        }
    }
    return SOL_OK;
}

static struct parser begin(struct arena *a, const char *name, const char *text)
{
    struct parser p = {.r = NEW(a, struct row), .text = text, .t.at = text};
    struct ex none = {0};
    p.r->arena = a;
    p.r->name = arena_strdup(a, name ? name : "");
    PUSH(a, p.r->ex, none);
    next(&p);
    return p;
}

sol_status row_parse(struct arena *a, const char *name, const char *text, struct row **out_row)
{
    struct parser p = begin(a, name, text);
    int n = columns(text);
    if (n < 2 || n > 4) return fail(&p, "head | sizes | tables | body");
    head(&p);
    need(&p, "|");
    if (n > 2) {
        sizes(&p);
        need(&p, "|");
    }
    if (n > 3) {
        statements(&p, true);
        need(&p, "|");
    }
    statements(&p, false);
    TRY(p.status);
    TRY(verify(&p));
    *out_row = p.r;
    return ctx_check(arena_ctx(a));
}

sol_status row_parse_expression(struct arena *a, const char *name, const char *text, struct row **out_row,
                                int32_t *out_e)
{
    struct parser p = begin(a, name, text);
    *out_e = expr(&p);
    if (p.t.kind != T_END) fail(&p, "the end");
    *out_row = p.r;
    return p.status;
}

/* -- attributes and purposes */

const struct row_attr *attrs_find(const struct attrs *a, const char *name)
{
    for (int i = 0; a && i < a->n; ++i)
        if (!strcmp(a->at[i].name, name)) return &a->at[i];
    return NULL;
}

int64_t attrs_int(const struct attrs *a, const char *name, int i, int64_t otherwise)
{
    const struct row_attr *at = attrs_find(a, name);
    if (!at || at->kind != ATTR_INT) return otherwise;
    if (at->n < 0) return at->ints[0];
    return i >= 0 && i < at->n ? at->ints[i] : otherwise;
}

double attrs_real(const struct attrs *a, const char *name, double otherwise)
{
    const struct row_attr *at = attrs_find(a, name);
    if (!at || at->kind == ATTR_TEXT || at->n == 0) return otherwise;
    return at->kind == ATTR_INT ? (double)at->ints[0] : at->reals[0];
}

const char *attrs_text(const struct attrs *a, const char *name, const char *otherwise)
{
    const struct row_attr *at = attrs_find(a, name);
    return at && at->kind == ATTR_TEXT && at->text ? at->text : otherwise;
}

char row_purpose(const struct row *r, bool output, int tensor, int dim, int ndim)
{
    for (int i = 0; i < r->tensors.n; ++i) {
        const struct row_tensor *t = &r->tensors.at[i];
        if (t->role != (output ? ROW_OUT : ROW_IN) || tensor-- > 0) continue;
        int groups = 0, at = 0;
        for (int k = 0; k < t->ndim; ++k) groups += r->letters.at[t->dim[k]].group;
        if (groups > 1 || (!groups && ndim != t->ndim) || ndim < t->ndim - groups) return 0;
        for (int k = 0; k < t->ndim; ++k) {
            const struct row_letter *letter = &r->letters.at[t->dim[k]];
            at += letter->group ? ndim - (t->ndim - 1) : 1;
            if (dim < at) return strchr("CGIO", *letter->name) ? 'C' : strchr("PQK", *letter->name) ? 'P' : 'N';
        }
        return 0;
    }
    return 0;
}
