/* Values of forms, and forms as text. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size_form.h"

/* -- values */

static int64_t symbol_replaced(const struct symbol *x, const int64_t *by)
{
    if (x->kind == SYMBOL_DIM) return size_floor_div(by[x->dim.index], x->dim.multiple);
    const int64_t a = size_at(x->a, by), b = size_at(x->b, by);
    if (x->kind == SYMBOL_QUOTIENT) return size_floor_div(a, size_varies(b) ? b : MAX(b, 1)); /* as put_divisor */
    return x->kind == SYMBOL_MIN ? size_min(a, b) : size_max(a, b);
}

int64_t size_at(int64_t s, const int64_t *by)
{
    if (!size_varies(s)) return s;
    const struct poly p = poly_load(s);
    int64_t sum = 0;
    for (int i = 0; i < p.n; i++) {
        int64_t t = p.t[i].k;
        for (int k = 0; k < p.t[i].n; k++) t = size_mul(t, symbol_replaced(symbol_at(p.t[i].symbol[k]), by));
        sum = size_add(sum, t);
    }
    return sum;
}

/* Visits the dimensions of a form. */
static uint32_t dims_of(int64_t s, int64_t *hint)
{
    uint32_t set = 0;
    if (!size_varies(s)) return 0;
    const struct poly p = poly_load(s);
    for (int i = 0; i < p.n; i++)
        for (int k = 0; k < p.t[i].n; k++) {
            const struct symbol *x = symbol_at(p.t[i].symbol[k]);
            if (x->kind == SYMBOL_DIM) {
                set |= UINT32_C(1) << x->dim.index;
                if (hint) hint[x->dim.index] = x->dim.hint;
            } else {
                set |= dims_of(x->a, hint) | dims_of(x->b, hint);
            }
        }
    return set;
}

uint32_t size_dims(int64_t s)
{
    return dims_of(s, NULL);
}

static _Thread_local struct size_point point;
static _Thread_local bool costs;

struct size_point size_point_set(struct size_point p)
{
    const struct size_point was = point;
    point = p;
    return was;
}

bool size_costs(bool begin)
{
    const bool was = costs;
    costs = begin;
    return was;
}

int64_t size_hint(int64_t s)
{
    int64_t hint[SIZE_MOST_DIMS] = {0};
    if (!size_varies(s)) return s;
    const int64_t *by = costs ? point.cost : point.made;
    if (by) return size_at(s, by);
    dims_of(s, hint);
    return size_at(s, hint);
}

int64_t size_factor(int64_t s)
{
    if (!size_varies(s)) return s < 0 ? -s : s;
    const struct poly p = poly_load(s);
    int64_t g = 0;
    for (int i = 0; i < p.n; i++) g = gcd(g, p.t[i].k);
    return g;
}

/* -- text */

/* How a form is written: as C over <prefix>0, .., or for people over #0, .. (prefix NULL). */
struct writing {
    const char *prefix;
    struct size_variables *variables; /* NULL: there are none */
};
static void put_size(struct text *out, int64_t s, const struct writing *w);
static const char *written(struct arena *a, int64_t s, const struct writing *w);

static void put_pair(struct text *out, const char *open, const struct symbol *x, const char *between,
                     const struct writing *w)
{
    text_put(out, "%s", open);
    put_size(out, x->a, w);
    text_put(out, "%s", between);
    put_size(out, x->b, w);
    text_put(out, ")");
}

/* In C, a divisor that may be 0 becomes 1 there: nothing is computed with the quotient then. */
static void put_divisor(struct text *out, int64_t s, const struct writing *w)
{
    const bool zero = w->prefix && size_least(s) < 1;
    text_put(out, zero ? "(" : "");
    put_size(out, s, w);
    if (!zero) return;
    text_put(out, ") < 1 ? 1 : (");
    put_size(out, s, w);
    text_put(out, ")");
}

static void put_quotient(struct text *out, const struct symbol *x, const struct writing *w)
{
    struct size_dim d;
    const bool alone = !w->prefix && size_is_dim(x->a, &d); /* #0//2, but (#0+1)//2 */
    text_put(out, w->prefix ? "((" : alone ? "" : "(");
    put_size(out, x->a, w);
    text_put(out, w->prefix ? ") / (" : alone ? "//" : ")//");
    const bool brackets = !w->prefix && size_varies(x->b);
    if (brackets) text_put(out, "(");
    put_divisor(out, x->b, w);
    if (brackets || w->prefix) text_put(out, ")");
    if (!w->prefix) return;
    if (size_least(x->a) < 0) { /* C rounds towards zero */
        text_put(out, " - ((");
        put_size(out, x->a, w);
        text_put(out, ") %% (");
        put_divisor(out, x->b, w);
        text_put(out, ") < 0)");
    }
    text_put(out, ")");
}

/* The variable of a symbol that would contain an operand twice. */
static void put_variable(struct text *out, int symbol, const struct writing *w)
{
    struct size_variables *v = w->variables;
    intptr_t i = (intptr_t)map_get_int(v->known, (uint64_t)symbol);
    if (!i) {
        const struct symbol *x = symbol_at(symbol);
        const char *a = written(v->arena, x->a, w), *b = written(v->arena, x->b, w);
        i = ++v->n;
        map_set_int(v->known, (uint64_t)symbol, (void *)i);
        text_put(v->declared, "    const int64_t a%d = %s, b%d = %s, m%d = ", (int)i, a, (int)i, b, (int)i);
        x = symbol_at(symbol);
        const char *form = x->kind == SYMBOL_QUOTIENT ? "@a / (@b < 1 ? 1 : @b) - (@a % (@b < 1 ? 1 : @b) < 0)"
                           : x->kind == SYMBOL_MIN    ? "@a < @b ? @a : @b"
                                                      : "@a > @b ? @a : @b";
        for (; *form; form++) {
            if (*form == '@')
                text_put(v->declared, "%c%d", *++form, (int)i);
            else
                text_add(v->declared, form, 1);
        }
        text_put(v->declared, ";\n");
    }
    text_put(out, "m%d", (int)i);
}

/* Does C contain an operand of it twice? */
static bool is_twice(const struct symbol *x)
{
    if (x->kind == SYMBOL_QUOTIENT) return size_least(x->a) < 0 || size_least(x->b) < 1;
    return x->kind != SYMBOL_DIM;
}

static void put_symbol(struct text *out, int symbol, bool whole, const struct writing *w)
{
    const struct symbol *x = symbol_at(symbol);
    if (w->variables && is_twice(x)) {
        put_variable(out, symbol, w);
    } else if (x->kind == SYMBOL_QUOTIENT) {
        put_quotient(out, x, w);
    } else if (x->kind != SYMBOL_DIM) {
        const bool min = x->kind == SYMBOL_MIN;
        if (w->prefix) {
            put_pair(out, "((", x, min ? ") < (" : ") > (", w);
            put_pair(out, " ? (", x, ") : (", w);
            text_put(out, ")");
        } else {
            put_pair(out, min ? "min(" : "max(", x, ",", w);
        }
    } else if (whole || x->dim.multiple == 1) {
        text_put(out, "%s%d", w->prefix ? w->prefix : "#", x->dim.index);
    } else {
        text_put(out, w->prefix ? "(%s%d / %" PRId64 ")" : "%s%d//%" PRId64, w->prefix ? w->prefix : "#", x->dim.index,
                 x->dim.multiple);
    }
}

/* Is it written with a division? */
static bool divides(const struct symbol *x, bool whole)
{
    return x->kind == SYMBOL_QUOTIENT || (x->kind == SYMBOL_DIM && !whole && x->dim.multiple != 1);
}

static void put_term(struct text *out, const struct term *t, bool first, const struct writing *w)
{
    int64_t k = t->k;
    bool whole[SIZE_SYMBOLS] = {false}, any = false;
    for (int i = 0; i < t->n; i++) { /* 4 * (#0//4) is #0 */
        const struct symbol *x = symbol_at(t->symbol[i]);
        whole[i] = x->kind == SYMBOL_DIM && k % x->dim.multiple == 0;
        if (whole[i]) k /= x->dim.multiple;
    }
    text_put(out, k < 0 ? (w->prefix && !first ? " - " : "-") : first ? "" : w->prefix ? " + " : "+");
    if (k != 1 && k != -1) text_put(out, "%s%" PRIu64, "", (uint64_t)(k < 0 ? -k : k));
    any = k != 1 && k != -1;
    if (!t->n && !any) text_put(out, "1");
    const bool alone = t->n == 1 && (k == 1 || (k == -1 && !first));
    for (int i = 0; i < t->n; i++) {
        const struct symbol *x = symbol_at(t->symbol[i]);
        const bool brackets = !w->prefix && !alone && divides(x, whole[i]); /* 2*#0//3 is (2*#0)//3 */
        if (any) text_put(out, w->prefix ? " * " : "*");
        if (brackets) text_put(out, "(");
        put_symbol(out, t->symbol[i], whole[i], w);
        if (brackets) text_put(out, ")");
        any = true;
    }
}

static void put_size(struct text *out, int64_t s, const struct writing *w)
{
    if (!size_varies(s)) {
        text_put(out, "%" PRId64, s);
        return;
    }
    const struct poly p = poly_load(s);
    for (int i = 0; i < p.n; i++) put_term(out, &p.t[i], !i, w);
}

void size_print(struct text *out, int64_t s)
{
    put_size(out, s, &(struct writing){0});
}

const char *size_text(struct arena *a, int64_t s)
{
    struct text t = text_new(a);
    put_size(&t, s, &(struct writing){0});
    return t.at;
}

static const char *written(struct arena *a, int64_t s, const struct writing *w)
{
    struct text t = text_new(a);
    struct size_dim d;
    const bool brackets = size_varies(s) && !size_is_dim(s, &d);
    if (brackets) text_put(&t, "(");
    put_size(&t, s, w);
    if (brackets) text_put(&t, ")");
    return t.at;
}

const char *size_c(struct arena *a, int64_t s, const char *prefix)
{
    return written(a, s, &(struct writing){.prefix = prefix});
}

const char *size_c_with(int64_t s, const char *prefix, struct size_variables *variables)
{
    return written(variables->arena, s, &(struct writing){prefix, variables});
}

/* An upper bound of the magnitude of the form's value. */
static void put_magnitude(struct text *out, int64_t s, const char *prefix)
{
    if (!size_varies(s)) {
        text_put(out, "%" PRIu64 ".0", (uint64_t)(s < 0 ? -s : s));
        return;
    }
    const struct poly p = poly_load(s);
    for (int i = 0; i < p.n; i++) {
        text_put(out, i ? " + " : "");
        put_magnitude(out, p.t[i].k, prefix);
        for (int k = 0; k < p.t[i].n; k++) {
            const struct symbol *x = symbol_at(p.t[i].symbol[k]);
            text_put(out, " * ");
            if (x->kind == SYMBOL_DIM) {
                text_put(out, x->dim.multiple == 1 ? "%s%d" : "(%s%d / %" PRId64 ".0)", prefix, x->dim.index,
                         x->dim.multiple);
                continue;
            }
            text_put(out, x->kind == SYMBOL_QUOTIENT ? "((" : "(");
            put_magnitude(out, x->a, prefix);
            if (x->kind == SYMBOL_QUOTIENT) { /* rounded, so up to 1 more */
                text_put(out, ") / %" PRId64 ".0 + 1.0)", MAX(size_least(x->b), 1));
            } else {
                text_put(out, " + ");
                put_magnitude(out, x->b, prefix);
                text_put(out, ")");
            }
        }
    }
}

/* Adds the magnitudes of what quotients, minima and maxima of a form are computed from, each once. */
static void put_parts(struct text *out, int64_t s, const char *prefix, struct map *seen)
{
    if (!size_varies(s)) return;
    const struct poly p = poly_load(s);
    for (int i = 0; i < p.n; i++)
        for (int k = 0; k < p.t[i].n; k++) {
            const struct symbol *x = symbol_at(p.t[i].symbol[k]);
            if (x->kind == SYMBOL_DIM || map_get_int(seen, (uint64_t)p.t[i].symbol[k])) continue;
            map_set_int(seen, (uint64_t)p.t[i].symbol[k], out);
            text_put(out, " + ");
            put_magnitude(out, x->a, prefix);
            text_put(out, " + ");
            put_magnitude(out, x->b, prefix);
            put_parts(out, x->a, prefix, seen);
            put_parts(out, x->b, prefix, seen);
        }
}

const char *size_magnitude_c(struct arena *a, int64_t s, const char *prefix)
{
    struct text t = text_new(a);
    put_magnitude(&t, s, prefix);
    put_parts(&t, s, prefix, map_create(a));
    return t.at;
}

/* Is this a number that has digits behind a point? */
static bool is_real(const char *s)
{
    const char *point = s + strspn(s, "0123456789");
    return *point == '.' && isdigit((unsigned char)point[1]);
}

/* Where the next number begins that is not part of a name or a real number; the end if there is none. */
static const char *next_number(const char *s)
{
    for (; *s; s++) {
        const bool digit = isdigit((unsigned char)*s);
        if (digit && !is_real(s)) return s;
        if (digit || isalpha((unsigned char)*s) || *s == '_' || *s == '.')
            while (isalnum((unsigned char)s[1]) || s[1] == '_' || s[1] == '.') s++;
    }
    return s;
}

static bool ends_with(const struct text *t, const char *end)
{
    const size_t n = strlen(end);
    return t->n >= n && !strncmp(t->at + t->n - n, end, n);
}

/* Does a message have a form between `out` and `rest` as a word of its own? It needs no brackets there. */
static bool is_word(const struct text *out, const char *rest)
{
    const char *end = out->at + out->n;
    const bool begins = !out->n || end[-1] == '[' ||
                        (out->n > 1 && end[-1] == ' ' && (isalpha((unsigned char)end[-2]) || strchr(",:;", end[-2])));
    return begins && (!*rest || strchr(",:;]", *rest) || (*rest == ' ' && isalpha((unsigned char)rest[1])));
}

/* INT64_C(name) becomes the form without the macro, which takes literals only. */
static const char *put_form(struct text *out, int64_t s, const char *rest, const char *prefix, bool bare)
{
    static const char macro[] = "INT64_C(";
    const bool inside = prefix && ends_with(out, macro) && *rest == ')';
    struct size_dim d;
    if (inside) out->at[out->n -= sizeof macro - 1] = 0;
    const bool brackets = !size_is_dim(s, &d) && !bare;
    if (brackets) text_put(out, "(");
    put_size(out, s, &(struct writing){.prefix = prefix});
    if (brackets) text_put(out, ")");
    return rest + inside;
}

static bool fill(struct text *out, const char *text, const char *prefix, bool message, uint32_t *out_dims,
                 int64_t *out_bad)
{
    *out_dims = 0;
    *out_bad = 0;
    for (const char *from = text; *from;) {
        const char *s = next_number(from);
        text_add(out, from, (size_t)(s - from));
        size_t n = strspn(s, "0123456789");
        const int64_t v = n >= 15 && n <= 19 ? strtoll(s, NULL, 10) : 0;
        from = s + n;
        if (size_varies(v)) {
            *out_dims |= size_dims(v);
            from = put_form(out, v, from, prefix, message && is_word(out, from));
        } else {
            if (v >= SIZE_POISON && v < SIZE_POISON << 9) *out_bad = v;
            text_add(out, s, n);
        }
    }
    return !*out_bad;
}

bool size_fill(struct text *out, const char *text, const char *prefix, uint32_t *out_dims, int64_t *out_bad)
{
    return fill(out, text, prefix, false, out_dims, out_bad);
}

void size_fill_at(struct text *out, const char *text, const int64_t *by)
{
    for (const char *from = text; *from;) {
        const char *s = next_number(from);
        const size_t n = strspn(s, "0123456789");
        const int64_t v = n >= 15 && n <= 19 ? strtoll(s, NULL, 10) : 0;
        text_add(out, from, (size_t)(s - from));
        if (size_varies(v))
            text_put(out, "%" PRId64, size_at(v, by));
        else
            text_add(out, s, n);
        from = s + n;
    }
}

void size_fill_message(struct sol_ctx *ctx, char *message, size_t room)
{
    const char *s = next_number(message);
    while (*s && !size_varies(strtoll(s, NULL, 10))) s = next_number(s + strspn(s, "0123456789"));
    struct arena *a = *s && ctx ? arena_create(ctx) : NULL;
    if (!a) return;
    struct text t = text_new(a);
    uint32_t dims;
    int64_t bad;
    fill(&t, message, NULL, true, &dims, &bad);
    snprintf(message, room, "%s", t.at);
    arena_destroy(a);
}

/* -- parsing: sum = product {(+|-) product}, product = factor {(*|//) factor} */

struct reader {
    const char *at;
    int ndim, depth;
    const int64_t *dims;
    bool bad;
};

static int64_t read_sum(struct reader *r);

static void skip_blanks(struct reader *r)
{
    while (*r->at == ' ') r->at++;
}

static bool take(struct reader *r, const char *word)
{
    skip_blanks(r);
    const size_t n = strlen(word);
    if (strncmp(r->at, word, n)) return false;
    r->at += n;
    return true;
}

static int64_t read_number(struct reader *r)
{
    char *end;
    const long long v = strtoll(r->at, &end, 10);
    r->bad |= end == r->at || !isdigit((unsigned char)*r->at) || v >= SIZE_POISON;
    r->at = end;
    return v;
}

static int64_t read_pair(struct reader *r, bool min)
{
    const int64_t a = read_sum(r);
    r->bad |= !take(r, ",");
    const int64_t b = read_sum(r);
    r->bad |= !take(r, ")");
    return r->bad ? SIZE_BAD : min ? size_min(a, b) : size_max(a, b);
}

static int64_t read_factor(struct reader *r)
{
    int64_t v = SIZE_BAD;
    if (r->bad || r->depth > 50) {
        r->bad = true;
        return v;
    }
    r->depth++;
    if (take(r, "-")) {
        v = size_sub(0, read_factor(r));
    } else if (take(r, "#")) {
        const int64_t i = read_number(r);
        if (r->bad || i >= r->ndim)
            r->bad = true;
        else
            v = r->dims[i];
    } else if (take(r, "min(")) {
        v = read_pair(r, true);
    } else if (take(r, "max(")) {
        v = read_pair(r, false);
    } else if (take(r, "(")) {
        v = read_sum(r);
        r->bad |= !take(r, ")");
    } else {
        skip_blanks(r);
        v = read_number(r);
    }
    r->depth--;
    return v;
}

static int64_t read_product(struct reader *r)
{
    int64_t v = read_factor(r);
    while (!r->bad) {
        if (take(r, "//"))
            v = size_floor_div(v, read_factor(r));
        else if (take(r, "*"))
            v = size_mul(v, read_factor(r));
        else
            break;
    }
    return v;
}

static int64_t read_sum(struct reader *r)
{
    int64_t v = read_product(r);
    while (!r->bad) {
        if (take(r, "+"))
            v = size_add(v, read_product(r));
        else if (take(r, "-"))
            v = size_sub(v, read_product(r));
        else
            break;
    }
    return v;
}

const char *size_parse(const char *text, int ndim, const int64_t *dims, int64_t *out)
{
    struct reader r = {.at = text, .ndim = ndim, .dims = dims};
    *out = read_sum(&r);
    return r.bad || *out == SIZE_BAD ? NULL : r.at;
}
