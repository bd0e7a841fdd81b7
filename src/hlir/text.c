/* Prints the text form of a graph: one line for each input, parameter, constant, layer and output, in order. parse.c
 * makes the same graph from it. See docs/text-form.md. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hlir/graph.h"

enum { INLINE_VALUES = 64 }; /* constants up to this size are printed as numbers */

static void put_quoted(struct text *out, const char *s)
{
    text_put(out, "\"");
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            text_put(out, "\\%c", *s);
        else if ((unsigned char)*s < 32 || *s == 127)
            text_put(out, "\\x%02x", (unsigned char)*s);
        else
            text_add(out, s, 1);
    }
    text_put(out, "\"");
}

/* Prints a word as it is if that is unambiguous, otherwise in quotes. */
static void put_word(struct text *out, const char *s)
{
    bool safe = isalpha((unsigned char)*s) || *s == '_' || *s == '/' || *s == '.';
    for (const char *p = s; *p; p++) safe &= isalnum((unsigned char)*p) || strchr("_./:-", *p);
    if (safe && strcmp(s, "inf") != 0 && strcmp(s, "nan") != 0)
        text_put(out, "%s", s);
    else
        put_quoted(out, s);
}

static void put_real(struct text *out, double v)
{
    char s[40];
    snprintf(s, sizeof s, "%.15g", v);
    if (strtod(s, NULL) != v) snprintf(s, sizeof s, "%.17g", v);
    bool shows = strpbrk(s, ".einf") != NULL; /* it reads as a real number, not as an integer */
    text_put(out, shows ? "%s" : "%s.0", s);
}

static void put_type(struct text *out, const struct sol_tensor *t)
{
    text_put(out, "%%%d:%s[", t->id, dtype_def((enum sol_dtype)t->dtype)->name);
    for (int d = 0; d < t->ndim; d++) {
        if (d) text_put(out, " ");
        if (t->dim[d].purpose) text_put(out, "%c=", t->dim[d].purpose);
        size_print(out, t->dim[d].size);
    }
    text_put(out, "]");
}

/* -- constants */

/* Prints element i so that parsing gives the same bits. False: no number does. */
static bool put_element(struct text *out, enum sol_dtype t, const void *data, int64_t i)
{
    char s[40];
    if (t == SOL_F16 || t == SOL_BF16) return false;
    if (t == SOL_F32) {
        float v = ((const float *)data)[i], again;
        snprintf(s, sizeof s, "%.9g", (double)v);
        again = strtof(s, NULL);
        if (memcmp(&v, &again, sizeof v)) return false;
        snprintf(s, sizeof s, "%.6g", (double)v);
        again = strtof(s, NULL);
        if (memcmp(&v, &again, sizeof v)) snprintf(s, sizeof s, "%.9g", (double)v);
        text_put(out, " %s", s);
    } else if (t == SOL_F64) {
        double v = ((const double *)data)[i], again;
        snprintf(s, sizeof s, "%.17g", v);
        again = strtod(s, NULL);
        if (memcmp(&v, &again, sizeof v)) return false;
        snprintf(s, sizeof s, "%.15g", v);
        again = strtod(s, NULL);
        if (memcmp(&v, &again, sizeof v)) snprintf(s, sizeof s, "%.17g", v);
        text_put(out, " %s", s);
    } else if (t == SOL_U64) {
        text_put(out, " %llu", (unsigned long long)((const uint64_t *)data)[i]);
    } else {
        if (t == SOL_BOOL && ((const uint8_t *)data)[i] > 1) return false;
        text_put(out, " %lld", (long long)dtype_int(t, data, i));
    }
    return true;
}

static bool all_equal(const unsigned char *data, size_t size, int64_t n)
{
    for (int64_t i = 1; i < n; i++)
        if (memcmp(data, data + (size_t)i * size, size)) return false;
    return true;
}

static void put_data(struct text *out, const struct sol_tensor *t)
{
    enum sol_dtype type = (enum sol_dtype)t->dtype;
    int64_t n = tensor_elements(t);
    size_t size = dtype_def(type)->bytes, mark = out->n;
    text_put(out, " =");
    bool same = n > 4 && all_equal(t->data, size, n), good = same || n <= INLINE_VALUES;
    if (same) text_put(out, " splat");
    for (int64_t i = 0; good && i < (same ? 1 : n); i++) good = put_element(out, type, t->data, i);
    if (good) return;
    out->n = mark;
    text_put(out, " = hex ");
    for (size_t i = 0; i < (size_t)n * size; i++) {
        unsigned char byte = ((const unsigned char *)t->data)[i];
        const char *digits = "0123456789abcdef";
        char pair[2] = {digits[byte >> 4], digits[byte & 15]};
        text_add(out, pair, 2);
    }
}

/* -- layers */

static void put_attr(struct text *out, const struct opdef_attr *v)
{
    text_put(out, " %s=", v->name);
    if (v->kind == ATTR_TEXT) {
        struct text filled = text_new(out->arena);
        uint32_t dims;
        int64_t bad;
        size_fill(&filled, v->text, NULL, &dims, &bad);
        put_word(out, dims ? filled.at : v->text);
        return;
    }
    if (v->n >= 0) text_put(out, "[");
    for (int i = 0; i < (v->n < 0 ? 1 : v->n); i++) {
        if (i) text_put(out, ",");
        if (v->kind == ATTR_INT)
            size_print(out, v->ints[i]);
        else
            put_real(out, v->reals[i]);
    }
    if (v->n >= 0) text_put(out, "]");
}

static void put_layer(struct text *out, const struct sol_graph *g, const struct sol_layer *l)
{
    for (int o = 0; o < l->nout; o++) {
        if (o) text_put(out, ", ");
        put_type(out, l->out[o]);
    }
    text_put(out, "%s%s(", l->nout ? " = " : "", l->def->name);
    for (int i = 0; i < l->nin; i++) {
        if (i) text_put(out, ", ");
        if (l->in[i])
            text_put(out, "%%%d", l->in[i]->id);
        else
            text_put(out, "-");
    }
    text_put(out, ")");
    for (int i = 0; i < l->attrs.n; i++)
        if (!g->kinds->is_default(out->arena, l->def, &l->attrs.at[i])) put_attr(out, &l->attrs.at[i]);
    if (*l->name) {
        text_put(out, " ");
        put_quoted(out, l->name);
    }
    if (*l->where) {
        text_put(out, " @");
        put_word(out, l->where);
    }
    text_put(out, "\n");
}

/* -- kinds of layers from outside */

static bool is_registered(const struct layer_def *def)
{
    return strchr(def->name, ':') != NULL;
}

/* The line of a kind, behind that of its gradient. */
static void put_kind(struct text *out, const struct sol_graph *g, struct map *done, const struct layer_def *def)
{
    if (!def || !is_registered(def) || map_get(done, def->name)) return;
    map_set(done, def->name, done);
    if (def->gradient) put_kind(out, g, done, g->kinds->find(g->ctx, def->gradient));
    text_put(out, "define %s ", def->name);
    put_quoted(out, def->text);
    const struct layer_function *f = def->function;
    const char *const words[][2] = {{"attributes", *def->defaults ? def->defaults : NULL},
                                    {"gradient", def->gradient},
                                    {"function", f && f->symbol ? f->symbol
                                                 : f            ? ""
                                                                : NULL},
                                    {"source", f ? f->source : NULL}};
    for (int i = 0; i < COUNT_OF(words); i++) {
        if (!words[i][1]) continue;
        text_put(out, " %s=", words[i][0]);
        put_quoted(out, words[i][1]);
    }
    text_put(out, "\n");
}

static void put_kinds(struct text *out, const struct sol_graph *g)
{
    struct map *done = map_create(out->arena);
    for (const struct sol_layer *l = g->first; l; l = l->next) put_kind(out, g, done, l->def);
}

void graph_print(const struct sol_graph *g, struct text *out)
{
    text_put(out, "graph ");
    put_quoted(out, g->name);
    text_put(out, "\n");
    put_kinds(out, g);
    for (int i = 0; i < g->dims.n; i++) {
        const struct graph_dim *d = &g->dims.at[i];
        text_put(out, "dim #%d ", i);
        put_quoted(out, d->name);
        if (d->most >= 0) {
            text_put(out, " most=");
            size_print(out, d->most);
            text_put(out, "\n");
            continue;
        }
        text_put(out, " hint=%lld min=%lld max=%lld multiple=%lld\n", (long long)d->dim.hint, (long long)d->dim.min,
                 (long long)d->dim.max, (long long)d->dim.multiple);
    }
    for (int i = 0; i < g->tensors.n; i++) {
        const struct sol_tensor *t = g->tensors.at[i];
        static const char *const words[] = {"", "input", "param", "const"};
        if (t->role == TENSOR_VALUE) continue;
        text_put(out, "%s ", words[t->role]);
        put_type(out, t);
        if (t->role == TENSOR_CONST) put_data(out, t);
        if (*t->name) {
            text_put(out, " ");
            put_quoted(out, t->name);
        }
        text_put(out, t->backward ? " backward\n" : "\n");
    }
    for (const struct sol_layer *l = g->first; l; l = l->next) put_layer(out, g, l);
    for (int i = 0; i < g->outputs.n; i++) {
        text_put(out, "output %%%d ", g->outputs.at[i].t->id);
        put_quoted(out, g->outputs.at[i].name);
        text_put(out, g->outputs.at[i].backward ? " backward\n" : "\n");
    }
}

sol_status sol_graph_print(const struct sol_graph *g, char **out_text)
{
    struct arena *a = arena_create(g->ctx);
    if (!a) return ctx_fail(g->ctx, SOL_ERR_NOMEM, "graph '%s': no memory to print it", g->name);
    struct text out = text_new(a);
    graph_print(g, &out);
    sol_status status = ctx_check(g->ctx);
    *out_text = status ? NULL : ctx_realloc(g->ctx, NULL, out.n + 1);
    if (*out_text)
        memcpy(*out_text, out.at, out.n + 1);
    else if (!status)
        status = ctx_fail(g->ctx, SOL_ERR_NOMEM, "graph '%s': no memory for its text", g->name);
    arena_destroy(a);
    return status;
}
