/* The table of layers: lookup by name, attributes with their defaults, binding to loops.
 *
 * The table is layers.def followed by one row for each function of math.def. It is sorted, and its definitions are
 * parsed once, at the first use. The documentation of a row begins with its signature ("x w b? -> y:"), which is
 * checked here. */
#include "layers/layers.h"

#include <ctype.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "layers/build.h"

#define ROW(name, flags, attributes, text, doc) \
    {#name, flags, text, attributes, doc, NULL, NULL, NULL, -1, NULL, NULL, NULL},
#define BUILT(name, flags, attributes, build, doc) \
    {#name, flags, NULL, attributes, doc, build, NULL, NULL, -1, NULL, NULL, NULL},
#define OPAQUE(name, flags, attributes, shape, describe, doc) \
    {#name, (flags) | LAYER_OPAQUE, NULL, attributes, doc, NULL, shape, describe, -1, NULL, NULL, NULL},
static const struct layer_def rows[] = {
#include "layers/layers.def"
};
#undef ROW
#undef BUILT
#undef OPAQUE

/* -- the table, made once */

static struct {
    pthread_once_t once;
    sol_status status;
    int n;
    struct layer_def *by_order;
    const struct layer_def **by_name;
} table = {.once = PTHREAD_ONCE_INIT};

/* The definition of an element-wise function: `x0[A..] x1[A..] -> y:f32[A..] | | | y[A] = f(x0[A], x1[A])`. */
static sol_status build_map(struct arena *a, const struct layer_def *def, int nin, const struct opdef_input *in,
                            const struct attrs *attrs, struct text *out)
{
    (void)attrs;
    const struct math_def *m = math_at(def->math);
    int same = !strcmp(m->type, "y") ? 1 : 0; /* where: the condition has its own type */
    for (int i = same + 1; i < nin; i++)
        if (in[i].dtype != in[same].dtype)
            return ctx_fail(arena_ctx(a), SOL_ERR_INVALID,
                            "%s: input %d: expected type %s as input %d, got %s; put a Cast before", def->name, i,
                            dtype_def(in[same].dtype)->name, same, dtype_def(in[i].dtype)->name);
    enum sol_dtype type = in[same].dtype;
    if (!strcmp(m->type, "bool")) type = SOL_BOOL;
    if (!strcmp(m->type, "float") && !dtype_def(type)->is_float) type = SOL_F32;
    for (int i = 0; i < nin; i++) text_put(out, "x%d[A..] ", i);
    text_put(out, "-> y:%s[A..] | | | y[A] = %s(", dtype_def(type)->name, m->name);
    for (int i = 0; i < nin; i++) text_put(out, i ? ", x%d[A]" : "x%d[A]", i);
    text_put(out, ")");
    return SOL_OK;
}

static struct layer_def map_def(struct arena *a, int math)
{
    const struct math_def *m = math_at(math);
    struct text doc = text_new(a);
    for (int i = 0; i < m->arity; i++) text_put(&doc, "x%d ", i);
    text_put(&doc, "-> y: %s", m->doc ? m->doc : "");
    return (struct layer_def){
        .name = m->name, .flags = LAYER_ELEMENTWISE, .defaults = "", .doc = doc.at, .build = build_map, .math = math};
}

static int compare_names(const void *a, const void *b)
{
    const struct layer_def *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static void make_table(void)
{
    struct sol_ctx *ctx; /* lives as long as the process, like the table */
    table.status = sol_ctx_create(NULL, &ctx);
    if (table.status) return;
    struct arena *a = arena_create(ctx);
    if (!a) {
        table.status = SOL_ERR_NOMEM;
        return;
    }
    int n = COUNT_OF(rows) + math_rows();
    struct layer_def *order = NEW_ARRAY(a, struct layer_def, n);
    table.by_name = arena_alloc(a, (size_t)n * sizeof *table.by_name);
    for (int i = 0; i < n; i++) {
        struct opdef *row = NULL;
        order[i] = i < COUNT_OF(rows) ? rows[i] : map_def(a, i - COUNT_OF(rows));
        table.by_name[i] = &order[i];
        if (order[i].text && opdef_parse(a, order[i].name, order[i].text, &row)) {
            LOG(ctx, LOG_ERROR, "layers", "row %s: %s", order[i].name, sol_error(ctx));
            table.status = SOL_ERR_INTERNAL;
            return;
        }
        order[i].row = row;
    }
    table.status = ctx_check(ctx);
    qsort(table.by_name, (size_t)n, sizeof *table.by_name, compare_names);
    table.by_order = order;
    table.n = table.status ? 0 : n;
}

const struct layer_def *layer_def(const char *name)
{
    pthread_once(&table.once, make_table);
    int low = 0, high = table.n;
    while (low < high) {
        int middle = (low + high) / 2, order = strcmp(name, table.by_name[middle]->name);
        if (!order) return table.by_name[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

const struct layer_def *layer_def_at(int i)
{
    pthread_once(&table.once, make_table);
    return i >= 0 && i < table.n ? &table.by_order[i] : NULL;
}

/* -- the signature */

struct signature {
    int least, most; /* number of inputs; most -1: any number */
};

static struct signature signature(const struct layer_def *def)
{
    struct signature s = {0, 0};
    int n = 0;
    const char *at = def->doc;
    while (*at && strncmp(at, "->", 2) != 0) {
        size_t word = strcspn(at, " ");
        n++;
        if (at[word - 1] == '*')
            s.most = -1;
        else if (at[word - 1] != '?')
            s.least = n;
        at += word;
        at += strspn(at, " ");
    }
    if (s.most >= 0) s.most = n;
    return s;
}

static sol_status check_inputs(struct sol_ctx *ctx, const struct layer_def *def, int nin, const struct opdef_input *in)
{
    struct signature s = signature(def);
    int words = (int)strcspn(def->doc, ":");
    if (nin < s.least || (s.most >= 0 && nin > s.most))
        return ctx_fail(ctx, SOL_ERR_INVALID, "%s: inputs: expected '%.*s', got %d of them", def->name, words, def->doc,
                        nin);
    const char *at = def->doc;
    for (int i = 0; i < nin; i++) {
        size_t word = strcspn(at, " ");
        char kind = at[word - 1];
        if (in[i].missing && kind != '?')
            return ctx_fail(ctx, SOL_ERR_INVALID, "%s: input %d: expected '%.*s', got none", def->name, i, words,
                            def->doc);
        if (kind == '*') continue;
        at += word;
        at += strspn(at, " ");
    }
    return SOL_OK;
}

/* -- attributes */

struct spec {                 /* one word of `defaults` */
    const char *name, *value; /* value: NULL if it is required */
    int name_n, value_n, kind;
    bool single, empty; /* is it a single value; may it be an empty list */
};

static bool next_spec(const char **at, struct spec *out)
{
    const char *s = *at + strspn(*at, " ");
    if (!*s) return false;
    size_t n = strcspn(s, " ");
    *at = s + n;
    *out = (struct spec){.name = s, .name_n = (int)strcspn(s, ":= "), .kind = -1};
    const char *p = s + out->name_n;
    if (*p == ':') {
        out->kind = p[1] == 'i' ? ATTR_INT : p[1] == 'r' ? ATTR_REAL : ATTR_TEXT;
        p += strcspn(p, "= ");
        out->single = p[-1] != 's';
    }
    out->empty = !out->single && *p != '=';
    if (*p != '=') return true;
    out->empty = p[1] == '[';
    out->value = p + 1;
    out->value_n = (int)(s + n - out->value);
    if (out->kind >= 0) return true;
    const char *v = out->value + (*out->value == '[' || *out->value == '-');
    bool number = isdigit((unsigned char)*v) || *v == ']' || !strncmp(v, "inf", 3);
    bool real = strcspn(v, ".e") < strcspn(v, " ") || !strncmp(v, "inf", 3);
    out->kind = !number ? ATTR_TEXT : real ? ATTR_REAL : ATTR_INT;
    return true;
}

static struct opdef_attr default_value(struct arena *a, const struct spec *s)
{
    struct opdef_attr v = {.name = arena_printf(a, "%.*s", s->name_n, s->name), .kind = s->kind, .n = -1};
    char *text = arena_printf(a, "%.*s", s->value_n, s->value);
    if (s->kind == ATTR_TEXT) {
        v.text = text;
        return v;
    }
    v.ints = NEW_ARRAY(a, int64_t, s->value_n);
    v.reals = NEW_ARRAY(a, double, s->value_n);
    int n = 0;
    for (char *p = text + (*text == '['); *p && *p != ']'; n++) {
        if (s->kind == ATTR_INT)
            v.ints[n] = strtoll(p, &p, 10);
        else
            v.reals[n] = strtod(p, &p);
        if (*p == ',') p++;
    }
    if (*text == '[') v.n = n;
    return v;
}

/* Is it a word of digits and so on that a number consists of? */
static bool is_value(const struct spec *s)
{
    const char *at = s->value, *end = s->value + s->value_n;
    if (s->kind == ATTR_TEXT) return s->value_n > 0;
    const bool list = *at == '[';
    for (at += list; at < end && *at != ']'; at += *at == ',') {
        char *behind;
        if (s->kind == ATTR_INT)
            strtoll(at, &behind, 10);
        else
            strtod(at, &behind);
        if (behind == at || behind > end || (behind < end && !strchr(list ? ",]" : "", *behind))) return false;
        at = behind;
    }
    return list ? at + 1 == end : at == end && s->value_n > 0;
}

sol_status layer_check_attributes(struct sol_ctx *ctx, const struct layer_def *def)
{
    static const char *const kinds[] = {"int", "ints", "real", "reals", "text"};
    struct spec s;
    for (const char *at = def->defaults; next_spec(&at, &s);) {
        const char *kind = s.name + s.name_n;
        bool good = s.name_n > 0 && (islower((unsigned char)*s.name) || *s.name == '_');
        for (int i = 0; i < s.name_n; i++)
            good &= islower((unsigned char)s.name[i]) || isdigit((unsigned char)s.name[i]) || s.name[i] == '_';
        bool known = *kind != ':';
        for (int i = 0; !known && i < COUNT_OF(kinds); i++)
            known = strcspn(kind + 1, "= ") == strlen(kinds[i]) && !strncmp(kind + 1, kinds[i], strlen(kinds[i]));
        good &= known && (s.value ? is_value(&s) : s.kind >= 0);
        if (!good)
            return ctx_fail(
                ctx, SOL_ERR_INVALID,
                "layer %s: attributes, column %d: expected name=default or name:kind, where kind is int, ints, "
                "real, reals or text, got '%.*s'",
                def->name, (int)(s.name - def->defaults) + 1, (int)strcspn(s.name, " "), s.name);
    }
    return SOL_OK;
}

static const char *kind_name(int kind)
{
    return kind == ATTR_INT ? "an integer" : kind == ATTR_REAL ? "a real number" : "text";
}

/* Limits strides, paddings and kernel sizes (the attributes with short names), so that sums of products do not
 * overflow. */
enum { LARGEST = 1 << 30 };

static bool too_large(const struct opdef_attr *v, size_t n)
{
    bool large = false;
    for (size_t i = 0; v->kind == ATTR_INT && !v->name[1] && i < n; i++)
        large |= (v->ints[i] > LARGEST && !size_varies(v->ints[i])) || v->ints[i] < -LARGEST;
    return large;
}

/* The given value, converted to the kind that the definition wants. A size that varies stays an integer where a row
 * reads a real; builders need a number. */
static sol_status convert(struct arena *a, const struct layer_def *def, const struct spec *s,
                          const struct opdef_attr *given, struct opdef_attr *out)
{
    size_t n = given->n < 0 ? 1 : (size_t)given->n;
    *out = *given; /* a copy of everything: the caller's may be freed earlier */
    out->name = arena_strdup(a, given->name);
    out->text = arena_strdup(a, given->text);
    if (given->kind == ATTR_INT) out->ints = arena_memdup(a, given->ints, n * sizeof *out->ints);
    if (given->kind == ATTR_REAL) out->reals = arena_memdup(a, given->reals, n * sizeof *out->reals);
    if (given->kind != ATTR_TEXT && ((s->single && n != 1) || (!s->empty && n == 0)))
        return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: attribute %s: expected one value%s, got %zu", def->name,
                        given->name, s->single ? "" : " or more", n);
    if (s->single) out->n = -1;
    if (too_large(given, n))
        return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: attribute %s: expected -2^30..2^30", def->name,
                        given->name);
    if ((int)given->kind == s->kind) return SOL_OK;
    if (s->kind != ATTR_REAL || given->kind != ATTR_INT)
        return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: attribute %s: expected %s, got %s", def->name, given->name,
                        kind_name(s->kind), kind_name(given->kind));
    for (size_t i = 0; i < n; i++) {
        if (!size_varies(given->ints[i])) continue;
        return def->row && !def->function ? SOL_OK : number_of(arena_ctx(a), def, given->name, given->ints[i]);
    }
    out->kind = ATTR_REAL;
    out->reals = NEW_ARRAY(a, double, n);
    for (size_t i = 0; i < n; i++) out->reals[i] = (double)given->ints[i];
    return SOL_OK;
}

static sol_status unknown_attribute(struct sol_ctx *ctx, const struct layer_def *def, const char *name)
{
    if (!*def->defaults)
        return ctx_fail(ctx, SOL_ERR_INVALID, "%s: unknown attribute '%s'; it has none", def->name, name);
    return ctx_fail(ctx, SOL_ERR_INVALID, "%s: unknown attribute '%s'; it has: %s", def->name, name, def->defaults);
}

sol_status layer_attrs(struct arena *a, const struct layer_def *def, const struct attrs *given, struct attrs *out)
{
    struct attrs all = {0};
    int used = 0, given_n = given ? given->n : 0;
    struct spec s;
    const char *at = def->defaults;
    while (next_spec(&at, &s)) all.n++;
    all.at = NEW_ARRAY(a, struct opdef_attr, all.n);
    at = def->defaults;
    for (int i = 0; next_spec(&at, &s); i++) {
        const struct opdef_attr *v = NULL;
        for (int j = 0; j < given_n && !v; j++)
            if (!strncmp(given->at[j].name, s.name, (size_t)s.name_n) && !given->at[j].name[s.name_n])
                v = &given->at[j];
        used += v != NULL;
        if (v)
            TRY(convert(a, def, &s, v, &all.at[i]));
        else if (s.value)
            all.at[i] = default_value(a, &s);
        else
            return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: attribute '%.*s' must be given", def->name, s.name_n,
                            s.name);
    }
    for (int j = 0; used < given_n && j < given_n; j++) {
        if (!attrs_find(&all, given->at[j].name)) return unknown_attribute(arena_ctx(a), def, given->at[j].name);
        for (int k = 0; k < j; k++)
            if (!strcmp(given->at[j].name, given->at[k].name))
                return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: attribute '%s' is given twice", def->name,
                                given->at[j].name);
    }
    *out = all;
    return SOL_OK;
}

bool layer_attr_is_default(struct arena *a, const struct layer_def *def, const struct opdef_attr *v)
{
    struct spec s;
    const char *at = def->defaults;
    while (next_spec(&at, &s)) {
        if (strncmp(v->name, s.name, (size_t)s.name_n) || v->name[s.name_n] || !s.value) continue;
        struct opdef_attr d = default_value(a, &s);
        if (d.kind != v->kind || d.n != v->n) return false;
        if (v->kind == ATTR_TEXT) return !strcmp(v->text, d.text);
        size_t n = v->n < 0 ? 1 : (size_t)v->n;
        if (!n) return true;
        return v->kind == ATTR_INT ? !memcmp(v->ints, d.ints, n * sizeof *v->ints)
                                   : !memcmp(v->reals, d.reals, n * sizeof *v->reals);
    }
    return false;
}

/* -- binding */

static sol_status bind_opaque(struct arena *a, const struct layer_def *def, int nin, const struct opdef_input *in,
                              const struct attrs *attrs, const struct loops **out_loops)
{
    struct opdef_input out[SOL_MAX_DIMS] = {0};
    int nout = 0;
    struct loops *loops = loops_create(a, def->name);
    TRY(def->shape(a, def, nin, in, attrs, loops, &nout, out));
    for (int i = 0; i < nin; i++)
        if (!in[i].missing)
            loops_tensor(loops, arena_printf(a, "x%d", i), LOOPS_INPUT, in[i].dtype, in[i].ndim, in[i].shape);
    for (int i = 0; i < nout; i++)
        loops_tensor(loops, arena_printf(a, "y%d", i), LOOPS_OUTPUT, out[i].dtype, out[i].ndim, out[i].shape);
    *out_loops = loops;
    return SOL_OK;
}

sol_status layer_bind(struct arena *a, const struct layer_def *def, int nin, const struct opdef_input *in,
                      const struct attrs *given, struct layer_bound *out)
{
    struct attrs attrs;
    TRY(check_inputs(arena_ctx(a), def, nin, in));
    TRY(layer_attrs(a, def, given, &attrs));
    *out = (struct layer_bound){0};
    if (def->flags & LAYER_OPAQUE && !def->row) return bind_opaque(a, def, nin, in, &attrs, &out->loops);
    if (def->row) {
        int most = signature(def).most;
        struct opdef_input *padded = NEW_ARRAY(a, struct opdef_input, MAX(most, 1));
        for (int i = 0; i < most; i++) padded[i] = i < nin ? in[i] : (struct opdef_input){.missing = true};
        out->row = def->row;
        if (def->function) TRY(layer_check_numbers(arena_ctx(a), def, &attrs));
        return opdef_bind(a, out->row, most, padded, &attrs, &out->loops);
    }
    struct text text = text_new(a);
    struct opdef *opdef;
    TRY(def->build(a, def, nin, in, &attrs, &text));
    TRY(opdef_parse(a, def->name, text.at, &opdef));
    out->row = opdef;
    return opdef_bind(a, opdef, nin, in, &attrs, &out->loops);
}
