/* Shared by tests of operator definitions: a context, and notations for attributes "s=[2,1] e=1e-5 to=i64" and inputs
 * "f:2x3 i4:5 -" (kinds and shapes; `-` is missing). The elements of inputs follow the formula of
 * loops/make_cases.py. */
#ifndef SOL_ROWS_HELP_H
#define SOL_ROWS_HELP_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "hlir/loops.h"

static struct arena *arena;

static inline int begin(void **state)
{
    if (make_ctx(state)) return 1;
    arena = arena_create(ctx);
    return !arena;
}

static inline int end(void **state)
{
    arena_destroy(arena);
    return drop_ctx(state);
}

static inline struct opdef_attr read_attr(const char *name, const char *text)
{
    struct opdef_attr a = {.name = name, .kind = ATTR_INT, .n = -1};
    bool list = *text == '[';
    if (!list && !strchr("-0123456789", *text)) {
        a.kind = ATTR_TEXT;
        a.text = text;
        return a;
    }
    if (strpbrk(text, ".e")) a.kind = ATTR_REAL;
    if (list) a.n = 0;
    a.ints = NEW_ARRAY(arena, int64_t, 16);
    a.reals = NEW_ARRAY(arena, double, 16);
    for (int i = 0; *text && *text != ']'; ++i) {
        char *after;
        text += *text == '[' || *text == ',';
        if (*text == ']') break;
        a.reals[i] = strtod(text, &after);
        a.ints[i] = (int64_t)a.reals[i];
        text = after;
        if (list) ++a.n;
    }
    return a;
}

static inline struct attrs read_attrs(const char *text)
{
    struct attrs a = {0, NEW_ARRAY(arena, struct opdef_attr, 16)};
    char *copy = arena_strdup(arena, text), *rest = NULL;
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(word, '=');
        *equals = 0;
        a.at[a.n++] = read_attr(word, equals + 1);
    }
    return a;
}

/* The formula of make_cases.py. */
static inline double value(char kind, int64_t modulus, int64_t i, int k)
{
    if (kind == 'i') return (double)((i * 5 + 3 * k + i / 3) % modulus);
    double v = (double)((i * 37 + 11 * k + i / 5) % 47 - 23) / 16;
    return kind == 'p' ? fabs(v) + 0.25 : v;
}

static inline int64_t elements(int ndim, const int64_t *shape)
{
    int64_t n = 1;
    for (int d = 0; d < ndim; ++d) n *= shape[d];
    return n;
}

static inline int read_inputs(const char *text, struct opdef_input *in, void **data)
{
    int n = 0;
    char *copy = arena_strdup(arena, text), *rest = NULL;
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest), ++n) {
        char kind = *word, *at = strchr(word, ':');
        int64_t *shape = NEW_ARRAY(arena, int64_t, SOL_MAX_DIMS);
        in[n] = (struct opdef_input){.dtype = kind == 'i' ? SOL_I64 : SOL_F64, .shape = shape, .missing = kind == '-'};
        if (kind == '-') continue;
        while (*at && at[1]) shape[in[n].ndim++] = strtoll(at + 1, &at, 10);
        int64_t total = elements(in[n].ndim, shape);
        data[n] = arena_alloc(arena, (size_t)total * 8 + 8);
        for (int64_t i = 0; i < total; ++i) {
            double v = value(kind, atoi(word + 1), i, n);
            if (kind == 'i')
                ((int64_t *)data[n])[i] = (int64_t)v;
            else
                ((double *)data[n])[i] = v;
        }
    }
    return n;
}

static inline struct opdef *parse(const char *text)
{
    struct opdef *opdef;
    if (opdef_parse(arena, "Row", text, &opdef)) fail_msg("%s", sol_error(ctx));
    return opdef;
}

static inline const struct loops *bind(const char *text, const char *attrs, const char *inputs)
{
    struct opdef_input in[16];
    void *data[16];
    struct attrs a = read_attrs(attrs);
    const struct loops *loops;
    int n = read_inputs(inputs, in, data);
    if (opdef_bind(arena, parse(text), n, in, &a, &loops)) fail_msg("%s", sol_error(ctx));
    return loops;
}

/* The statements of bound loops, separated by "; ". */
static inline const char *body(const struct loops *loops)
{
    struct text t = text_new(arena), out = text_new(arena);
    loops_print(loops, &t);
    char *rest = NULL;
    for (char *line = strtok_r(t.at, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (!strstr(line, "] = ") || strstr(line, "table ")) continue;
        text_put(&out, out.n ? "; %s" : "%s", line + strspn(line, " "));
    }
    return out.at;
}

#endif
