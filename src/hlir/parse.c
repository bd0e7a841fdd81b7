/* Parses the text form of a graph: a cursor over the text, and one function for each kind of line. A layer's line calls
 * graph_add, as a frontend does; types on its left must then agree with the outputs. See docs/text-form.md. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hlir/graph.h"

struct parser {
    struct sol_ctx *ctx;
    struct arena *a; /* the graph's */
    struct sol_graph *g;
    const char *at, *start; /* start: of the line */
    int line;
    struct map *tensors; /* by their number in the text */
};

struct typed { /* %3:f32[N=2 C=64]; dtype SOL_DTYPES: no type given */
    int64_t number;
    int dtype, ndim;
    int64_t shape[SOL_MAX_DIMS];
    char purpose[SOL_MAX_DIMS];
};

static sol_status fail(struct parser *p, const char *expected)
{
    int n = (int)strcspn(p->at, "\n");
    return ctx_fail(p->ctx, SOL_ERR_INVALID, "graph text: line %d, column %d: expected %s, got '%.*s'", p->line,
                    (int)(p->at - p->start) + 1, expected, MIN(n, 24), p->at);
}

static void blanks(struct parser *p)
{
    while (*p->at == ' ' || *p->at == '\t' || *p->at == '\r') p->at++;
    if (*p->at == '#' && !isdigit((unsigned char)p->at[1])) p->at += strcspn(p->at, "\n"); /* #0 is a dimension */
}

static bool at_end(struct parser *p)
{
    blanks(p);
    return !*p->at || *p->at == '\n';
}

static bool take(struct parser *p, const char *s)
{
    blanks(p);
    size_t n = strlen(s);
    if (strncmp(p->at, s, n)) return false;
    p->at += n;
    return true;
}

static bool word_char(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Takes a keyword, which must be a whole word. */
static bool take_word(struct parser *p, const char *s)
{
    blanks(p);
    size_t n = strlen(s);
    if (strncmp(p->at, s, n) || word_char(p->at[n])) return false;
    p->at += n;
    return true;
}

static sol_status need(struct parser *p, const char *s)
{
    return take(p, s) ? SOL_OK : fail(p, arena_printf(p->a, "'%s'", s));
}

static sol_status identifier(struct parser *p, const char **out)
{
    blanks(p);
    size_t n = 0;
    while (word_char(p->at[n])) n++;
    if (!n || isdigit((unsigned char)*p->at)) return fail(p, "a name");
    *out = arena_printf(p->a, "%.*s", (int)n, p->at);
    p->at += n;
    return SOL_OK;
}

static sol_status integer(struct parser *p, int64_t *out)
{
    blanks(p);
    char *end;
    const char *digits = p->at + (*p->at == '-');
    if (!isdigit((unsigned char)*digits)) return fail(p, "an integer");
    *out = strtoll(p->at, &end, 10);
    p->at = end;
    return SOL_OK;
}

/* A number or a form: "12*#0+3", up to the next blank, comma or bracket of the line's own. */
static bool is_form(const char *s)
{
    int depth = 0;
    for (; *s && !strchr(" \t\r\n]\"", *s) && !(*s == ',' && !depth); s++) {
        if (*s == '#') return true;
        depth += (*s == '(') - (*s == ')');
    }
    return false;
}

static const char *form(struct parser *p, const char *text, int64_t *out)
{
    int64_t dims[SIZE_MOST_DIMS] = {0};
    for (int i = 0; i < p->g->dims.n; i++) dims[i] = p->g->dims.at[i].size;
    return size_parse(text, p->g->dims.n, dims, out);
}

static sol_status size(struct parser *p, int64_t *out)
{
    blanks(p);
    if (!is_form(p->at)) return integer(p, out);
    const char *end = form(p, p->at, out);
    if (!end) return fail(p, "a size: a number, or an expression of the dimensions above, such as 12*#0+3");
    p->at = end;
    return SOL_OK;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static sol_status quoted(struct parser *p, const char **out)
{
    blanks(p);
    if (*p->at != '"') return fail(p, "text in quotes");
    const char *from = p->at;
    struct text t = text_new(p->a);
    for (p->at++; *p->at != '"'; p->at++) {
        if (!*p->at || *p->at == '\n') {
            p->at = from;
            return fail(p, "text that ends with a quote on the same line");
        }
        char c = *p->at;
        if (c == '\\') {
            c = *++p->at;
            if (c == 'x') {
                int high = hex_digit(p->at[1]), low = high < 0 ? -1 : hex_digit(p->at[2]);
                if (low < 0) return fail(p, "\\x with two digits");
                c = (char)(high * 16 + low);
                p->at += 2;
            } else if (c != '"' && c != '\\') {
                return fail(p, "\\\" or \\\\ or \\x");
            }
        }
        text_add(&t, &c, 1);
    }
    p->at++;
    *out = t.at;
    return SOL_OK;
}

/* A word with or without quotes. */
static sol_status word(struct parser *p, const char **out)
{
    blanks(p);
    if (*p->at == '"') return quoted(p, out);
    size_t n = 0;
    while (isalnum((unsigned char)p->at[n]) || (p->at[n] && strchr("_./:-", p->at[n]))) n++;
    if (!n) return fail(p, "text");
    *out = arena_printf(p->a, "%.*s", (int)n, p->at);
    p->at += n;
    return SOL_OK;
}

/* -- tensors */

static int dtype_named(const char *s, size_t n)
{
    for (int t = 0; t < SOL_DTYPES; t++)
        if (strlen(dtype_def((enum sol_dtype)t)->name) == n && !strncmp(dtype_def((enum sol_dtype)t)->name, s, n))
            return t;
    return SOL_DTYPES;
}

static sol_status typed(struct parser *p, struct typed *out)
{
    *out = (struct typed){.dtype = SOL_DTYPES};
    TRY(need(p, "%"));
    TRY(integer(p, &out->number));
    if (out->number < 0) return fail(p, "a number that is not negative");
    if (*p->at != ':') return SOL_OK;
    p->at++;
    size_t n = 0;
    while (word_char(p->at[n])) n++;
    out->dtype = dtype_named(p->at, n);
    if (out->dtype == SOL_DTYPES) return fail(p, "a type: f32, i64, ...");
    p->at += n;
    TRY(need(p, "["));
    while (!take(p, "]")) {
        if (out->ndim == SOL_MAX_DIMS) return fail(p, "at most 12 dimensions");
        if ((*p->at == 'N' || *p->at == 'C' || *p->at == 'P') && p->at[1] == '=') {
            out->purpose[out->ndim] = *p->at;
            p->at += 2;
        }
        TRY(size(p, &out->shape[out->ndim]));
        out->ndim++;
    }
    return SOL_OK;
}

static sol_status add_tensor(struct parser *p, const struct typed *d, struct sol_tensor *t)
{
    if (map_get_int(p->tensors, (uint64_t)d->number))
        return ctx_fail(p->ctx, SOL_ERR_INVALID, "graph text: line %d: %%%lld is defined twice", p->line,
                        (long long)d->number);
    map_set_int(p->tensors, (uint64_t)d->number, t);
    for (int i = 0; i < d->ndim; i++)
        if (d->purpose[i]) t->dim[i].purpose = d->purpose[i];
    return SOL_OK;
}

static sol_status reference(struct parser *p, struct sol_tensor **out)
{
    const char *from = p->at;
    int64_t number;
    TRY(need(p, "%"));
    TRY(integer(p, &number));
    *out = number < 0 ? NULL : map_get_int(p->tensors, (uint64_t)number);
    if (*out) return SOL_OK;
    p->at = from;
    return fail(p, "a tensor defined above");
}

static sol_status optional_name(struct parser *p, const char **out)
{
    *out = "";
    blanks(p);
    return *p->at == '"' ? quoted(p, out) : SOL_OK;
}

/* -- constants */

static sol_status element(struct parser *p, enum sol_dtype t, void *data, int64_t i)
{
    blanks(p);
    char *end;
    bool negative = *p->at == '-';
    if (t == SOL_F32)
        ((float *)data)[i] = strtof(p->at, &end);
    else if (t == SOL_F64)
        ((double *)data)[i] = strtod(p->at, &end);
    else if (t == SOL_F16 || t == SOL_BF16)
        return fail(p, "hex (numbers are not read for this type)");
    else {
        uint64_t v = negative ? (uint64_t)strtoll(p->at, &end, 10) : strtoull(p->at, &end, 10);
        memcpy((char *)data + (size_t)i * dtype_def(t)->bytes, &v,
               dtype_def(t)->bytes); /* little endian, as everywhere */
    }
    if (end == p->at) return fail(p, "a number");
    p->at = end;
    return SOL_OK;
}

static sol_status hexadecimal(struct parser *p, unsigned char *data, size_t bytes)
{
    blanks(p);
    for (size_t i = 0; i < bytes; i++) {
        int high = hex_digit(p->at[0]), low = high < 0 ? -1 : hex_digit(p->at[1]);
        if (low < 0) return fail(p, arena_printf(p->a, "%zu bytes in hexadecimal", bytes));
        data[i] = (unsigned char)(high * 16 + low);
        p->at += 2;
    }
    return SOL_OK;
}

/* Numbers for tests, by position: uniform in -1..1, or 0..9 for integers. */
static void seeded(uint64_t seed, enum sol_dtype t, void *data, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t z = (uint64_t)i * 0x9e3779b97f4a7c15u + seed * 0xd1342543de82ef95u + 1;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        z ^= z >> 31;
        double v = (double)(z >> 11) / 4503599627370496.0 - 1;
        uint64_t whole = t == SOL_BOOL ? z >> 63 : (z >> 32) % 10;
        if (t == SOL_F32)
            ((float *)data)[i] = (float)v;
        else if (t == SOL_F64)
            ((double *)data)[i] = v;
        else
            memcpy((char *)data + (size_t)i * dtype_def(t)->bytes, &whole, dtype_def(t)->bytes);
    }
}

static sol_status constant_data(struct parser *p, enum sol_dtype t, void *data, int64_t n)
{
    size_t size = dtype_def(t)->bytes;
    int64_t seed;
    if (take_word(p, "hex")) return hexadecimal(p, data, (size_t)n * size);
    if (take_word(p, "seed")) {
        TRY(integer(p, &seed));
        if (t == SOL_F16 || t == SOL_BF16) return fail(p, "another type than f16 and bf16");
        seeded((uint64_t)seed, t, data, n);
        return SOL_OK;
    }
    if (!take_word(p, "splat")) {
        for (int64_t i = 0; i < n; i++) TRY(element(p, t, data, i));
        return SOL_OK;
    }
    char one[8] = {0};
    TRY(element(p, t, one, 0));
    for (int64_t i = 0; i < n; i++) memcpy((char *)data + (size_t)i * size, one, size);
    return SOL_OK;
}

static sol_status constant_line(struct parser *p)
{
    struct typed d;
    struct sol_tensor *t;
    int64_t n;
    const char *name;
    TRY(typed(p, &d));
    if (d.dtype == SOL_DTYPES) return fail(p, "':' and a type");
    TRY(need(p, "="));
    TRY(shape_elements(p->ctx, d.ndim, d.shape, &n));
    size_t bytes = (size_t)n * dtype_def((enum sol_dtype)d.dtype)->bytes;
    void *data = arena_try(p->a, bytes);
    if (!data) return ctx_fail(p->ctx, SOL_ERR_NOMEM, "graph text: line %d: no memory for %zu bytes", p->line, bytes);
    TRY(constant_data(p, (enum sol_dtype)d.dtype, data, n));
    TRY(optional_name(p, &name));
    t = graph_tensor(p->g, TENSOR_CONST, name, (enum sol_dtype)d.dtype, d.ndim, d.shape);
    t->data = data;
    return add_tensor(p, &d, t);
}

static sol_status given_line(struct parser *p, enum tensor_role role)
{
    struct typed d;
    struct sol_tensor *t;
    const char *name;
    TRY(typed(p, &d));
    if (d.dtype == SOL_DTYPES) return fail(p, "':' and a type");
    TRY(optional_name(p, &name));
    TRY((role == TENSOR_INPUT ? sol_graph_input : sol_graph_param)(p->g, name, (enum sol_dtype)d.dtype, d.ndim, d.shape,
                                                                   &t));
    t->backward = role == TENSOR_INPUT && take_word(p, "backward");
    return add_tensor(p, &d, t);
}

static sol_status output_line(struct parser *p)
{
    struct sol_tensor *t;
    const char *name;
    TRY(reference(p, &t));
    TRY(optional_name(p, &name));
    TRY(sol_graph_output(p->g, name, t));
    p->g->outputs.at[p->g->outputs.n - 1].backward = take_word(p, "backward");
    return SOL_OK;
}

/* -- layers */

static sol_status number_list(struct parser *p, struct opdef_attr *v)
{
    VECTOR(double) reals = {0};
    VECTOR(int64_t) ints = {0};
    bool list = take(p, "["), real = false, closed = list && take(p, "]");
    while (!closed) {
        blanks(p);
        if (is_form(p->at)) {
            int64_t v;
            TRY(size(p, &v));
            PUSH(p->a, reals, 0);
            PUSH(p->a, ints, v);
        } else {
            char *end;
            double r = strtod(p->at, &end);
            if (end == p->at) return fail(p, "a number");
            for (const char *s = p->at; s < end; s++) real |= *s != '-' && !isdigit((unsigned char)*s);
            PUSH(p->a, reals, r);
            PUSH(p->a, ints, real ? 0 : strtoll(p->at, NULL, 10));
            p->at = end;
        }
        if (!list) break;
        closed = take(p, "]");
        if (!closed) TRY(need(p, ","));
    }
    v->kind = real ? ATTR_REAL : ATTR_INT;
    v->n = list ? reals.n : -1;
    v->ints = real ? NULL : ints.at;
    v->reals = reals.at;
    return SOL_OK;
}

/* Operator definitions have forms in them, "(12*#0)"; SOL's own texts have their names. */
static sol_status names_of_forms(struct parser *p, const char **text)
{
    struct text t = text_new(p->a);
    if (!p->g->dims.n || !strchr(*text, '#')) return SOL_OK;
    for (const char *s = *text; *s;) {
        const bool dim = *s == '#' && isdigit((unsigned char)s[1]);
        int64_t v = 0;
        const char *end = s + 1;
        if (dim) {
            const int i = atoi(s + 1);
            if (i >= p->g->dims.n) return fail(p, "a dimension that is declared above");
            v = p->g->dims.at[i].size;
            while (isdigit((unsigned char)*end)) end++;
            text_put(&t, "%lld", (long long)v);
        } else {
            text_add(&t, s, 1);
        }
        s = end;
    }
    *text = t.at;
    return SOL_OK;
}

static sol_status attribute(struct parser *p, struct opdef_attr *v)
{
    *v = (struct opdef_attr){.n = -1};
    TRY(identifier(p, &v->name));
    TRY(need(p, "="));
    blanks(p);
    bool number = isdigit((unsigned char)*p->at) || strchr("-[(", *p->at) || is_form(p->at) ||
                  !strncmp(p->at, "inf", 3) || !strncmp(p->at, "nan", 3);
    if (number) return number_list(p, v);
    v->kind = ATTR_TEXT;
    TRY(word(p, &v->text));
    return names_of_forms(p, &v->text);
}

struct layer_line {
    VECTOR(struct typed) left;
    const char *kind, *name, *where;
    VECTOR(struct sol_tensor *) in;
    VECTOR(struct opdef_attr) attrs;
};

/* Conv, or a kind from outside: mylib::scale */
static sol_status kind_name(struct parser *p, const char **out)
{
    blanks(p);
    size_t n = 0;
    while (word_char(p->at[n]) || (n && (p->at[n] == '.' || p->at[n] == ':'))) n++;
    if (!n || isdigit((unsigned char)*p->at)) return fail(p, "a kind of layer");
    *out = arena_printf(p->a, "%.*s", (int)n, p->at);
    p->at += n;
    return SOL_OK;
}

/* define mylib::scale "x[A..] -> y[A..] | y[A] = s*x[A]" attributes="s=1.0" gradient="mylib::scale_gradient": what the
 * graph's layers of this kind are. A function must have been registered: a text that is read runs no C code of its own.
 */
static sol_status define_line(struct parser *p)
{
    struct sol_layer_def d = {.size = sizeof d};
    const char *function = NULL;
    TRY(kind_name(p, &d.name));
    TRY(quoted(p, &d.definition));
    if (take(p, "attributes=")) TRY(quoted(p, &d.attributes));
    if (take(p, "gradient=")) TRY(quoted(p, &d.gradient));
    if (take(p, "function=")) TRY(quoted(p, &function));
    if (take(p, "source=")) TRY(quoted(p, &d.source));
    d.symbol = function && *function ? function : NULL;
    const sol_status status = p->g->kinds->define(p->ctx, &d, function != NULL);
    return status ? ctx_where(p->ctx, status, "graph text: line %d: ", p->line) : SOL_OK;
}

static sol_status layer_parts(struct parser *p, struct layer_line *l)
{
    struct typed d;
    do {
        TRY(typed(p, &d));
        PUSH(p->a, l->left, d);
    } while (take(p, ","));
    TRY(need(p, "="));
    TRY(kind_name(p, &l->kind));
    TRY(need(p, "("));
    for (bool first = true; !take(p, ")"); first = false) {
        struct sol_tensor *t = NULL;
        if (!first) TRY(need(p, ","));
        if (!take(p, "-")) TRY(reference(p, &t));
        PUSH(p->a, l->in, t);
    }
    while (!at_end(p) && *p->at != '"' && *p->at != '@') {
        struct opdef_attr v;
        TRY(attribute(p, &v));
        PUSH(p->a, l->attrs, v);
    }
    TRY(optional_name(p, &l->name));
    l->where = "";
    return take(p, "@") ? word(p, &l->where) : SOL_OK;
}

static sol_status check_left(struct parser *p, const struct typed *d, const struct sol_tensor *t)
{
    bool same = d->dtype == t->dtype && d->ndim == t->ndim;
    for (int i = 0; same && i < d->ndim; i++) same = d->shape[i] == t->dim[i].size;
    if (same || d->dtype == SOL_DTYPES) return SOL_OK;
    struct text got = text_new(p->a);
    text_put(&got, "%s[", dtype_def((enum sol_dtype)t->dtype)->name);
    for (int i = 0; i < t->ndim; i++) text_put(&got, i ? " %lld" : "%lld", (long long)t->dim[i].size);
    return ctx_fail(p->ctx, SOL_ERR_INVALID, "graph text: line %d: %%%lld: the layer makes %s], not what is written",
                    p->line, (long long)d->number, got.at);
}

static sol_status layer_line(struct parser *p)
{
    struct layer_line s = {0};
    struct sol_layer *l;
    TRY(layer_parts(p, &s));
    struct attrs attrs = {s.attrs.n, s.attrs.at};
    sol_status status =
        graph_add(p->g, NULL, &(struct new_layer){s.kind, s.in.n, s.in.at, &attrs, s.name, s.where}, &l);
    if (status) return ctx_where(p->ctx, status, "graph text: line %d: ", p->line);
    if (s.left.n > l->nout)
        return ctx_fail(p->ctx, SOL_ERR_INVALID, "graph text: line %d: %s has %d outputs, %d are named", p->line,
                        s.kind, l->nout, s.left.n);
    for (int i = 0; i < s.left.n; i++) {
        TRY(check_left(p, &s.left.at[i], l->out[i]));
        TRY(add_tensor(p, &s.left.at[i], l->out[i]));
    }
    return SOL_OK;
}

static sol_status dim_value(struct parser *p, const char *name, int64_t *out)
{
    if (!take_word(p, name)) return SOL_OK;
    TRY(need(p, "="));
    return integer(p, out);
}

/* dim #0 "batch" hint=8 min=1 max=64 multiple=1, or dim #1 "found" most=12*#0: a layer sets it */
static sol_status dim_line(struct parser *p)
{
    const char *name;
    int64_t number = -1, made, max = 0, most;
    struct size_dim d = {.index = p->g->dims.n, .hint = 1, .min = 1, .multiple = 1};
    TRY(need(p, "#"));
    TRY(integer(p, &number));
    if (number != p->g->dims.n) return fail(p, "dimensions by ascending number, from #0 on");
    TRY(optional_name(p, &name));
    TRY(dim_value(p, "hint", &d.hint));
    TRY(dim_value(p, "min", &d.min));
    TRY(dim_value(p, "max", &max));
    TRY(dim_value(p, "multiple", &d.multiple));
    if (take_word(p, "most")) {
        TRY(need(p, "="));
        TRY(size(p, &most));
        return sol_graph_data_dim(p->g, name, most, &made);
    }
    return sol_graph_dim(p->g, name, &(struct sol_dim_limits){d.hint, d.min, max, d.multiple}, &made);
}

static sol_status parse_line(struct parser *p)
{
    if (take_word(p, "dim")) return dim_line(p);
    if (take_word(p, "define")) return define_line(p);
    if (*p->at == '%') return layer_line(p);
    if (take_word(p, "input")) return given_line(p, TENSOR_INPUT);
    if (take_word(p, "param")) return given_line(p, TENSOR_PARAM);
    if (take_word(p, "const")) return constant_line(p);
    if (take_word(p, "output")) return output_line(p);
    return fail(p, "define, dim, input, param, const, output or a layer");
}

static sol_status parse(struct parser *p)
{
    for (p->line = 1; *p->at; p->line++, p->at++) {
        p->start = p->at;
        if (!at_end(p)) {
            if (p->line == 1 && take_word(p, "graph"))
                TRY(optional_name(p, &p->g->name));
            else
                TRY(parse_line(p));
            if (!at_end(p)) return fail(p, "the end of the line");
        }
        if (!*p->at) break;
    }
    return ctx_check(p->ctx);
}

sol_status graph_parse(struct sol_ctx *ctx, const struct layer_kinds *kinds, const char *text, struct sol_graph **out_g)
{
    struct sol_graph *g;
    TRY(graph_create(ctx, kinds, "", &g));
    struct parser p = {.ctx = ctx, .a = g->arena, .g = g, .at = text, .start = text, .tensors = map_create(g->arena)};
    sol_status status = parse(&p);
    if (status) sol_graph_destroy(g);
    *out_g = status ? NULL : g;
    return status;
}
