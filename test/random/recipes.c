/* Recipes: choosing operands, and choosing the next recipe. */
#include "random/recipes.h"

#include <string.h>

const char *format(struct gen *r, const char *text, ...)
{
    char s[400];
    va_list args;
    va_start(args, text);
    vsnprintf(s, sizeof s, text, args);
    va_end(args);
    return arena_strdup(r->a, s);
}

const char *list(struct gen *r, int n, const int64_t *at)
{
    struct text t = text_new(r->a);
    text_put(&t, "[");
    for (int i = 0; i < n; i++) text_put(&t, i ? ",%lld" : "%lld", (long long)at[i]);
    text_put(&t, "]");
    return t.at;
}

const char *ints(struct gen *r, int n, int low, int high)
{
    int64_t at[SOL_MAX_DIMS];
    if (gen_chance(r, 60)) return format(r, "%d", gen_between(r, low, high));
    for (int i = 0; i < n; i++) at[i] = gen_between(r, low, high);
    return list(r, n, at);
}

int some_axis(struct gen *r, int ndim)
{
    return gen_between(r, gen_chance(r, 20) ? -ndim : 0, ndim - 1);
}

const char *some_axes(struct gen *r, int ndim)
{
    int64_t at[SOL_MAX_DIMS];
    int n = 0;
    for (int d = 0; d < ndim; d++)
        if (gen_chance(r, 50)) at[n++] = gen_chance(r, 20) ? d - ndim : d;
    return list(r, n, at);
}

int64_t some_size(struct gen *r)
{
    static const int common[] = {1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17};
    if (r->empty && gen_chance(r, 10)) return 0;
    return gen_chance(r, 70) ? common[gen_below(r, COUNT_OF(common))] : gen_between(r, 1, 17);
}

int64_t size_of(const struct value *v, int d)
{
    return v->t->dim[d < 0 ? d + v->t->ndim : d].size;
}

void shape_of(const struct value *v, int64_t *shape)
{
    for (int d = 0; d < v->t->ndim; d++) shape[d] = v->t->dim[d].size;
}

enum sol_dtype some_int(struct gen *r)
{
    static const enum sol_dtype types[] = {SOL_I64, SOL_I64, SOL_I64, SOL_I32, SOL_I32, SOL_U8, SOL_I8, SOL_I16};
    return types[gen_below(r, COUNT_OF(types))];
}

/* -- sources */

struct value *new_real(struct gen *r, int ndim, const int64_t *shape)
{
    int kind = gen_below(r, 10);
    enum tensor_role role = kind < 6 ? TENSOR_INPUT : kind < 9 ? TENSOR_PARAM : TENSOR_CONST;
    return gen_source(r, role, r->real, ndim, shape, gen_chance(r, 40) ? FILL_EXACT : FILL_ANY, 0, 0);
}

struct value *new_param(struct gen *r, int ndim, const int64_t *shape)
{
    int kind = gen_below(r, 20);
    enum tensor_role role = kind < 16 ? TENSOR_PARAM : kind < 18 ? TENSOR_INPUT : TENSOR_CONST;
    bool special = r->special;
    r->special = false;
    struct value *v = gen_source(r, role, r->real, ndim, shape, gen_chance(r, 30) ? FILL_EXACT : FILL_ANY, 0, 0);
    r->special = special;
    return v;
}

struct value *new_positive(struct gen *r, int ndim, const int64_t *shape)
{
    return gen_source(r, gen_chance(r, 90) ? TENSOR_PARAM : TENSOR_INPUT, r->real, ndim, shape, FILL_POSITIVE, 0, 0);
}

struct value *new_index(struct gen *r, int ndim, const int64_t *shape, int64_t n, bool negative)
{
    enum tensor_role role = gen_chance(r, 70) ? TENSOR_INPUT : gen_chance(r, 50) ? TENSOR_PARAM : TENSOR_CONST;
    enum sol_dtype type = gen_chance(r, 75) ? SOL_I64 : SOL_I32;
    return gen_source(r, role, type, ndim, shape, FILL_RANGE, negative ? -(double)n : 0, (double)n - 1);
}

struct value *new_partner(struct gen *r, const struct value *v, enum sol_dtype type, enum fill fill, double low,
                          double high)
{
    int64_t shape[SOL_MAX_DIMS];
    int drop = gen_chance(r, 50) ? 0 : gen_below(r, v->t->ndim + 1);
    for (int d = drop; d < v->t->ndim; d++) shape[d - drop] = gen_chance(r, 40) ? 1 : size_of(v, d);
    bool bias = v->t->ndim > 2 && gen_chance(r, 25); /* one value per channel */
    if (bias)
        for (int d = drop = 0; d < v->t->ndim; d++) shape[d] = d == 1 ? size_of(v, d) : 1;
    int kind = gen_below(r, 10);
    enum tensor_role role = kind < 6 ? TENSOR_PARAM : kind < 8 ? TENSOR_INPUT : TENSOR_CONST;
    return gen_source(r, role, type, v->t->ndim - drop, shape, fill, low, high);
}

static struct value *new_value(struct gen *r, enum class c, int low, int high)
{
    int64_t shape[SOL_MAX_DIMS], elements = 1;
    int ndim = gen_between(r, low, high);
    for (int d = 0; d < ndim; d++) {
        shape[d] = some_size(r);
        if (elements * shape[d] > 2500) shape[d] = 1;
        elements *= shape[d];
    }
    if (c == IS_ANY) c = gen_chance(r, 80) ? IS_REAL : gen_chance(r, 80) ? IS_INT : IS_BOOL;
    if (c == IS_REAL) return new_real(r, ndim, shape);
    enum sol_dtype type = c == IS_BOOL ? SOL_BOOL : some_int(r);
    enum tensor_role role = gen_chance(r, 70) ? TENSOR_INPUT : TENSOR_PARAM;
    return gen_source(r, role, type, ndim, shape, FILL_RANGE, c == IS_BOOL ? 0 : -9, c == IS_BOOL ? 1 : 9);
}

/* -- operands */

static bool in_class(const struct value *v, enum class c, enum sol_dtype real)
{
    const struct dtype_def *d = dtype_def(v->t->dtype);
    if (v->lost) return false;
    switch (c) {
    case IS_REAL: return v->t->dtype == real;
    case IS_INT: return !d->is_float && !d->is_bool;
    case IS_BOOL: return d->is_bool;
    default: return !d->is_float || v->t->dtype == real;
    }
}

/* The newest are the most likely, so that chains become long. */
static struct value *choose(struct gen *r, struct value **from, int n)
{
    if (!n) return NULL;
    int back = gen_chance(r, 60) ? 0 : gen_chance(r, 50) ? gen_below(r, MIN(n, 3)) : gen_below(r, n);
    return from[n - 1 - back];
}

struct value *pick(struct gen *r, enum class c, int low, int high)
{
    struct value *fit[256];
    int n = 0;
    for (int i = r->first; i < r->values.n && n < COUNT_OF(fit); i++) {
        struct value *v = r->values.at[i];
        if (in_class(v, c, r->real) && v->t->ndim >= low && v->t->ndim <= high && (v->elements || r->empty))
            fit[n++] = v;
    }
    struct value *v = gen_chance(r, 92) ? choose(r, fit, n) : NULL;
    return v ? v : new_value(r, c, low, high);
}

struct value *pick_image(struct gen *r, int pixels)
{
    static const int channels[] = {1, 2, 3, 4, 6, 8, 16, 17, 24, 32};
    struct value *fit[256];
    int n = 0, low = pixels ? pixels : 1, high = pixels ? pixels : 3;
    for (int i = r->first; i < r->values.n && n < COUNT_OF(fit); i++) {
        struct value *v = r->values.at[i];
        bool image = in_class(v, IS_REAL, r->real) && v->t->ndim >= low + 2 && v->t->ndim <= high + 2;
        if (image && (v->elements || r->empty)) fit[n++] = v;
    }
    struct value *v = gen_chance(r, 92) ? choose(r, fit, n) : NULL;
    if (v) return v;
    int p = pixels ? pixels : gen_chance(r, 70) ? 2 : gen_between(r, 1, 3);
    int64_t shape[SOL_MAX_DIMS] = {gen_between(r, 1, 3), channels[gen_below(r, COUNT_OF(channels))]};
    int64_t elements = shape[0] * shape[1];
    for (int d = 0; d < p; d++) {
        shape[d + 2] = some_size(r);
        if (elements * shape[d + 2] > 4000) shape[d + 2] = gen_between(r, 1, 3);
        elements *= shape[d + 2];
    }
    return new_real(r, p + 2, shape);
}

/* -- the table */

const struct recipe *recipe_at(int i)
{
    const struct recipe *const tables[] = {nn_recipes, move_recipes, map_recipes, row_recipes};
    for (int t = 0; t < COUNT_OF(tables); t++)
        for (const struct recipe *p = tables[t]; p->kind; p++)
            if (!i--) return p;
    return NULL;
}

static struct {
    int tried, good;
    const char *why;
} counts[400];

static void count(int number, bool good)
{
    counts[number].tried++;
    counts[number].good += good;
    if (!good) {
        static char last[400][160];
        snprintf(last[number], sizeof last[number], "%s", gen_rejection());
        counts[number].why = last[number];
    }
}

void recipes_report(FILE *out)
{
    const struct recipe *p;
    for (int i = 0; (p = recipe_at(i)); i++)
        fprintf(out, "%-20s %6d of %6d%s%s\n", p->kind, counts[i].good, counts[i].tried,
                counts[i].good * 3 < counts[i].tried ? "   last rejected: " : "",
                counts[i].good * 3 < counts[i].tried ? counts[i].why : "");
}

/* Their error depends on the condition of a matrix or on the probability of a path, which is unknown here:
 * test/python/test_linear.py compares them and their gradients with PyTorch. Results of the last
 * three have a size that they set: test/sized_by_data_test.c, test/onnx/test_found.py. */
static bool is_judged_elsewhere(const char *kind)
{
    static const char *const kinds[] = {"LU",
                                        "LUSolve",
                                        "Solve",
                                        "Inverse",
                                        "Det",
                                        "SlogDet",
                                        "Cholesky",
                                        "SolveTriangular",
                                        "QR",
                                        "Householder",
                                        "HouseholderProduct",
                                        "Eigh",
                                        "SVD",
                                        "Pinv",
                                        "MatrixExp",
                                        "CTCLoss",
                                        "CTCLossGrad",
                                        "NonZero",
                                        "Unique",
                                        "NonMaxSuppression"};
    for (int i = 0; i < COUNT_OF(kinds); i++)
        if (!strcmp(kinds[i], kind)) return true;
    return false;
}

int recipes_missing(FILE *out)
{
    const struct layer_def *d;
    const struct recipe *p;
    int missing = 0;
    for (int i = 0; (d = layer_def_at(i)); i++) {
        bool found = d->flags & LAYER_ELEMENTWISE || is_judged_elsewhere(d->name);
        for (int k = 0; !found && (p = recipe_at(k)); k++) found = !strcmp(p->kind, d->name);
        if (found) continue;
        fprintf(out, "layers.def: no recipe in test/random makes a %s\n", d->name);
        missing++;
    }
    return missing;
}

static void add_some_layer(struct gen *r)
{
    int sum = 0;
    const struct recipe *p;
    for (int i = 0; (p = recipe_at(i)); i++) sum += p->weight;
    int at = gen_below(r, sum), i = 0;
    for (; (p = recipe_at(i)) && at >= p->weight; i++) at -= p->weight;
    int made = r->made, values = r->values.n;
    bool good = p->make(r, p) && r->made > made;
    for (int k = values; !good && k < r->values.n; k++) r->values.at[k]->lost = true;
    count(i, good);
}

static void begin_subgraph(struct gen *r)
{
    r->first = r->values.n;
    r->made = 0;
    r->real = gen_chance(r, 85) || r->single ? SOL_F32 : SOL_F64;
    r->special = gen_chance(r, 8);
    r->empty = gen_chance(r, 4);
}

static void end_subgraph(struct gen *r)
{
    for (int i = r->first; i < r->values.n; i++) {
        struct value *v = r->values.at[i];
        if (v->t->role == TENSOR_VALUE && (!v->read || gen_chance(r, 12))) gen_output(r, v);
        if (v->t->role != TENSOR_VALUE && gen_chance(r, 1)) gen_output(r, v);
    }
}

static void add_subgraph(struct gen *r)
{
    begin_subgraph(r);
    int layers = gen_between(r, 2, 10);
    for (int tries = 0; r->made < layers && tries < 40; tries++) add_some_layer(r);
    end_subgraph(r);
}

void recipes_graph(struct gen *r, int n)
{
    for (int i = 0; i < n; i++) add_subgraph(r);
}

/* -- every row */

static struct recipe recipe_for(const struct layer_def *d)
{
    const struct recipe *p;
    for (int i = 0; (p = recipe_at(i)); i++)
        if (!strcmp(p->kind, d->name)) return *p;
    return (struct recipe){"*", make_map, 0, 0, d->flags & LAYER_ELEMENTWISE ? d->name : NULL};
}

static bool has_layer(const struct sol_layer *from, const char *kind)
{
    for (; from; from = from->next)
        if (!strcmp(from->def->name, kind)) return true;
    return false;
}

/* A recipe may reject its operands, so there are several tries. */
static bool add_row(struct gen *r, const struct layer_def *d)
{
    const struct recipe recipe = recipe_for(d);
    for (int tries = 0; tries < 60; tries++) {
        const struct sol_layer *last = r->g->last;
        int values = r->values.n;
        begin_subgraph(r);
        r->special = r->empty = false;
        recipe.make(r, &recipe);
        const struct sol_layer *first = last ? last->next : r->g->first;
        bool good = has_layer(first, d->name);
        for (int k = values; !r->made && k < r->values.n; k++) r->values.at[k]->lost = true;
        if (r->made) end_subgraph(r);
        if (good) return true;
    }
    return false;
}

void recipes_rows(struct gen *r, int part, int parts, FILE *out, int *out_missing)
{
    const struct layer_def *d;
    for (int i = part; (d = layer_def_at(i)); i += parts) {
        if (((d->flags & LAYER_ELEMENTWISE) && !map_is_judged(d->name)) || is_judged_elsewhere(d->name) ||
            add_row(r, d))
            continue;
        fprintf(out, "test/random made no %s: %s\n", d->name, gen_rejection());
        ++*out_missing;
    }
}
