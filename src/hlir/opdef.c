/* Operator definitions as text: head | sizes | tables | body. expression.c has the expressions in them. */
#include "hlir/parser.h"

#include <ctype.h>
#include <string.h>

/* -- head */

static void head_type(struct parser *p, struct opdef_tensor *t)
{
    t->type_attr = parser_is(p, ":=");
    if (!parser_take(p, ":=") && !parser_take(p, ":")) return;
    if (p->t.kind != T_NAME) parser_fail(p, "a type");
    t->type = parser_text(p);
    if (t->type_attr) parser_attr(p, t->type);
    parser_next(p);
}

static void head_tensor(struct parser *p, enum opdef_role role)
{
    if (p->t.kind != T_NAME) {
        parser_fail(p, "a tensor");
        return;
    }
    const char *name = parser_text(p);
    int before = p->r->tensors.n, i = parser_tensor(p, name);
    if (i < before) parser_fail(p, "a tensor with a new name");
    struct opdef_tensor t = p->r->tensors.at[i];
    t.role = (uint8_t)role;
    t.declared = true;
    t.ndim = 0;
    parser_next(p);
    t.optional = parser_take(p, "?");
    head_type(p, &t);
    parser_need(p, "[");
    while (p->t.kind == T_IVAR && !p->status) {
        int ivar = parser_ivar(p);
        p->r->ivars.at[ivar].head = true;
        if (parser_take(p, "..")) p->r->ivars.at[ivar].group = true;
        if (t.ndim == SOL_MAX_DIMS) parser_fail(p, "at most 12 index variables");
        if (!p->status) t.dim[t.ndim++] = ivar;
    }
    parser_need(p, "]");
    p->r->tensors.at[i] = t;
    p->r->nin += role == OPDEF_IN;
    p->r->nout += role == OPDEF_OUT;
}

/* Is this the end of a column? */
static bool ends(const struct parser *p)
{
    return parser_is(p, "|") || p->t.kind == T_END;
}

static void head(struct parser *p)
{
    while (!parser_is(p, "->") && !p->status) head_tensor(p, OPDEF_IN);
    parser_need(p, "->");
    while (!parser_is(p, "->") && !ends(p)) head_tensor(p, OPDEF_OUT);
    if (!parser_take(p, "->")) return;
    while (!ends(p)) head_tensor(p, OPDEF_TEMP);
}

/* -- sizes */

static bool size_rule(struct parser *p, struct opdef_rule *rule)
{
    struct lexer start = p->t;
    bool size = parser_take(p, "#");
    if (p->t.kind == T_IVAR) {
        rule->ivar = parser_ivar(p);
        bool group = parser_take(p, "..");
        rule->kind = size ? RULE_SIZE : RULE_RANK;
        if (parser_take(p, "=") || (!size && parser_take(p, ":="))) {
            if (group) p->r->ivars.at[rule->ivar].group = true;
            rule->expr = parser_expr(p);
            return true;
        }
    }
    p->t = start;
    return false;
}

static void sizes(struct parser *p)
{
    while (!ends(p)) {
        struct opdef_rule rule = {0};
        const char *from = p->t.from;
        if (!size_rule(p, &rule)) {
            rule.kind = RULE_CHECK;
            rule.expr = parser_cond(p);
        }
        int length = (int)(p->t.from - from);
        while (length && isspace((unsigned char)from[length - 1])) --length;
        rule.text = arena_printf(p->r->arena, "%.*s", length, from);
        PUSH(p->r->arena, p->r->rules, rule);
        if (!parser_take(p, ";") && !ends(p)) parser_fail(p, "';' or '|'");
    }
}

/* -- statements */

static void written(struct parser *p, struct loops_stmt *s, bool table)
{
    const struct opdef *r = p->r;
    const struct ex *e = &r->ex.at[s->value];
    for (int i = 0; i < s->nout; ++i) {
        struct opdef_tensor *t = &r->tensors.at[s->out[i]];
        if (t->role == OPDEF_IN) parser_fail(p, arena_printf(r->arena, "a result in front (%s is an input)", t->name));
        if (table) t->role = OPDEF_TABLE;
        t->position = i == 1 && e->kind == EX_RED && (e->op == RED_MAXAT || e->op == RED_MINAT);
        t->written = true;
        if (t->declared || t->ndim >= 0) continue;
        t->ndim = 0;
        for (int32_t x = s->index; x; x = r->ex.at[x].next) {
            if (r->ex.at[x].kind != EX_IVAR)
                parser_fail(p, arena_printf(r->arena, "plain index variables, or %s in the head", t->name));
            t->dim[t->ndim++] = r->ex.at[x].tensor;
        }
    }
}

static void statement(struct parser *p, bool table)
{
    struct loops_stmt s = {0};
    bool several = parser_take(p, "(");
    do {
        if (p->t.kind != T_NAME || s.nout == COUNT_OF(s.out)) {
            parser_fail(p, "a tensor to write");
            return;
        }
        s.out[s.nout++] = (uint16_t)parser_tensor(p, parser_text(p));
        parser_next(p);
    } while (several && parser_take(p, ","));
    if (several) parser_need(p, ")");
    if (!parser_is(p, "[")) parser_fail(p, "'['");
    s.index = parser_indices(p);
    parser_need(p, "=");
    s.value = parser_expr(p);
    written(p, &s, table);
    const struct ex *e = &p->r->ex.at[s.value];
    int nout = e->kind == EX_RED ? reduce_at(e->op)->nout : 1;
    if (nout != s.nout) parser_fail(p, arena_printf(p->r->arena, "%d results in front of this statement", nout));
    if (table)
        PUSH(p->r->arena, p->r->tables, s);
    else
        PUSH(p->r->arena, p->r->stmts, s);
}

static void statements(struct parser *p, bool table)
{
    while (!(table && parser_is(p, "|")) && p->t.kind != T_END) {
        statement(p, table);
        if (!parser_take(p, ";") && !(table && parser_is(p, "|")) && p->t.kind != T_END)
            parser_fail(p, "';' or the end");
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

/* Reductions with several outputs are allowed only at the top of a statement; every tensor is written or an input. */
static sol_status verify(struct parser *p)
{
    const struct opdef *r = p->r;
    for (int i = 0; i < r->tensors.n; ++i) {
        const struct opdef_tensor *t = &r->tensors.at[i];
        if (t->role != OPDEF_IN && !t->written)
            return ctx_fail(arena_ctx(r->arena), SOL_ERR_INVALID, "definition %s: %s is never written", r->name,
                            t->name);
        if (t->role == OPDEF_IN && t->type_attr)
            return ctx_fail(arena_ctx(r->arena), SOL_ERR_INVALID, "definition %s: input %s cannot have the type := %s",
                            r->name, t->name, t->type);
    }
    for (int i = 1; i < r->ex.n; ++i) {
        const struct ex *e = &r->ex.at[i];
        int32_t inner[3] = {e->a, e->b, e->next};
        for (int c = 0; c < 3; ++c) {
            const struct ex *below = &r->ex.at[inner[c]];
            if (inner[c] && below->kind == EX_RED && reduce_at(below->op)->nout > 1)
                return ctx_fail(arena_ctx(r->arena), SOL_ERR_INVALID,
                                "definition %s: %s has several results: only alone behind '='", r->name,
                                reduce_at(below->op)->name);
        }
    }
    return SOL_OK;
}

sol_status opdef_parse_head(struct arena *a, const char *name, const char *text, struct opdef **out_opdef)
{
    struct parser p = parser_begin(a, name, text);
    const int n = columns(text);
    if (n > 2) return parser_fail(&p, "head | sizes");
    head(&p);
    if (n == 2) {
        parser_need(&p, "|");
        sizes(&p);
    }
    if (p.t.kind != T_END) parser_fail(&p, "the end");
    TRY(p.status);
    *out_opdef = p.r;
    return ctx_check(arena_ctx(a));
}

sol_status opdef_parse(struct arena *a, const char *name, const char *text, struct opdef **out_opdef)
{
    struct parser p = parser_begin(a, name, text);
    int n = columns(text);
    if (n < 2 || n > 4) return parser_fail(&p, "head | sizes | tables | body");
    head(&p);
    parser_need(&p, "|");
    if (n > 2) {
        sizes(&p);
        parser_need(&p, "|");
    }
    if (n > 3) {
        statements(&p, true);
        parser_need(&p, "|");
    }
    statements(&p, false);
    TRY(p.status);
    TRY(verify(&p));
    *out_opdef = p.r;
    return ctx_check(arena_ctx(a));
}

/* -- attributes and purposes */

const struct opdef_attr *attrs_find(const struct attrs *a, const char *name)
{
    for (int i = 0; a && i < a->n; ++i)
        if (!strcmp(a->at[i].name, name)) return &a->at[i];
    return NULL;
}

int64_t attrs_int(const struct attrs *a, const char *name, int i, int64_t otherwise)
{
    const struct opdef_attr *at = attrs_find(a, name);
    if (!at || at->kind != ATTR_INT) return otherwise;
    if (at->n < 0) return at->ints[0];
    return i >= 0 && i < at->n ? at->ints[i] : otherwise;
}

double attrs_real(const struct attrs *a, const char *name, double otherwise)
{
    const struct opdef_attr *at = attrs_find(a, name);
    if (!at || at->kind == ATTR_TEXT || at->n == 0) return otherwise;
    return at->kind == ATTR_INT ? (double)at->ints[0] : at->reals[0];
}

const char *attrs_text(const struct attrs *a, const char *name, const char *otherwise)
{
    const struct opdef_attr *at = attrs_find(a, name);
    return at && at->kind == ATTR_TEXT && at->text ? at->text : otherwise;
}

int opdef_count(const struct opdef *r, bool output)
{
    return output ? r->nout : r->nin;
}

const char *opdef_name(const struct opdef *r, bool output, int i)
{
    for (int k = 0; k < r->tensors.n; ++k)
        if (r->tensors.at[k].role == (output ? OPDEF_OUT : OPDEF_IN) && i-- == 0) return r->tensors.at[k].name;
    return NULL;
}

int opdef_number(const struct opdef *r, bool output, const char *name)
{
    for (int i = 0; i < opdef_count(r, output); ++i)
        if (!strcmp(opdef_name(r, output, i), name)) return i;
    return -1;
}

char opdef_purpose(const struct opdef *r, bool output, int tensor, int dim, int ndim)
{
    for (int i = 0; i < r->tensors.n; ++i) {
        const struct opdef_tensor *t = &r->tensors.at[i];
        if (t->role != (output ? OPDEF_OUT : OPDEF_IN) || tensor-- > 0) continue;
        int groups = 0, at = 0;
        for (int k = 0; k < t->ndim; ++k) groups += r->ivars.at[t->dim[k]].group;
        if (groups > 1 || (!groups && ndim != t->ndim) || ndim < t->ndim - groups) return 0;
        for (int k = 0; k < t->ndim; ++k) {
            const struct opdef_ivar *ivar = &r->ivars.at[t->dim[k]];
            at += ivar->group ? ndim - (t->ndim - 1) : 1;
            if (dim < at) return strchr("CGIO", *ivar->name) ? 'C' : strchr("PQK", *ivar->name) ? 'P' : 'N';
        }
        return 0;
    }
    return 0;
}
