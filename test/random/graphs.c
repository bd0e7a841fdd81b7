/* Creates random graphs: numbers, sources, and layers that are evaluated when they are added. */
#include "random/graphs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ELEMENTS 6000
#define MOST_WORK 400000.0 /* iterations of one layer */
#define LARGE 30000.0      /* larger numbers are avoided */
#define NOISE_F32 1e-6
#define NOISE_F64 1e-13
#define ROUGH_F32 3e-5 /* relative to the largest element */
#define FACTOR 4       /* the tolerance in units of the observed noise */

static char rejection[200];

const char *gen_rejection(void)
{
    return rejection;
}

/* -- chance */

unsigned gen_bits(struct gen *r)
{
    r->rng = r->rng * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(r->rng >> 33);
}

int gen_below(struct gen *r, int n)
{
    return n < 1 ? 0 : (int)(gen_bits(r) % (unsigned)n);
}

int gen_between(struct gen *r, int low, int high)
{
    return low + gen_below(r, high - low + 1);
}

bool gen_chance(struct gen *r, int percent)
{
    return gen_below(r, 100) < percent;
}

double gen_real(struct gen *r, double low, double high)
{
    return low + (high - low) * gen_bits(r) / 2147483648.0;
}

/* -- data */

double gen_element(enum sol_dtype type, const void *data, int64_t i)
{
    switch (type) {
    case SOL_F32: return ((const float *)data)[i];
    case SOL_F64: return ((const double *)data)[i];
    case SOL_I64: return (double)((const int64_t *)data)[i];
    case SOL_U64: return (double)((const uint64_t *)data)[i];
    case SOL_I32: return ((const int32_t *)data)[i];
    case SOL_U32: return ((const uint32_t *)data)[i];
    case SOL_I16: return ((const int16_t *)data)[i];
    case SOL_U16: return ((const uint16_t *)data)[i];
    case SOL_I8: return ((const int8_t *)data)[i];
    default: return ((const uint8_t *)data)[i];
    }
}

void gen_store(enum sol_dtype type, void *data, int64_t i, double v, int64_t k)
{
    switch (type) {
    case SOL_F32: ((float *)data)[i] = (float)v; break;
    case SOL_F64: ((double *)data)[i] = v; break;
    case SOL_BOOL: ((uint8_t *)data)[i] = k != 0; break;
    default:
        switch (dtype_def(type)->bytes) {
        case 8: ((int64_t *)data)[i] = k; break;
        case 4: ((int32_t *)data)[i] = (int32_t)k; break;
        case 2: ((int16_t *)data)[i] = (int16_t)k; break;
        default: ((int8_t *)data)[i] = (int8_t)k;
        }
    }
}

static enum sol_dtype widened(enum sol_dtype t)
{
    return t == SOL_F32 ? SOL_F64 : t;
}

static void *room_for(struct gen *r, const struct sol_tensor *t)
{
    return arena_alloc(r->a, (size_t)tensor_elements(t) * dtype_def(t->dtype)->bytes + 1);
}

static void set_data(struct gen *r, const struct sol_tensor *wide, void *x, void *noisy)
{
    while (r->x.n <= wide->id) PUSH(r->a, r->x, NULL);
    while (r->noisy.n <= wide->id) PUSH(r->a, r->noisy, NULL);
    r->x.at[wide->id] = x;
    r->noisy.at[wide->id] = noisy;
}

struct gen *gen_create(struct sol_ctx *ctx, uint64_t seed)
{
    struct arena *a = arena_create(ctx);
    struct gen *r = NEW(a, struct gen);
    r->ctx = ctx;
    r->a = a;
    r->rng = seed * 0x9E3779B97F4A7C15u + 1;
    r->real = SOL_F32;
    gen_bits(r);
    if (sol_graph_create(ctx, "random", &r->g) || sol_graph_create(ctx, "wide", &r->wide)) abort();
    return r;
}

void gen_destroy(struct gen *r)
{
    if (!r) return;
    sol_graph_destroy(r->g);
    sol_graph_destroy(r->wide);
    arena_destroy(r->a);
}

struct value *gen_value(const struct gen *r, const struct sol_tensor *t)
{
    for (int i = r->values.n - 1; i >= 0; i--)
        if (r->values.at[i]->t == t) return r->values.at[i];
    return NULL;
}

/* -- sources */

static double random_number(struct gen *r, enum fill fill, double low, double high)
{
    static const double odd[] = {NAN, INFINITY, -INFINITY, 0.0, NAN, -INFINITY};
    if (r->special && fill <= FILL_EXACT && gen_chance(r, 8)) return odd[gen_below(r, COUNT_OF(odd))];
    switch (fill) {
    case FILL_EXACT: return gen_between(r, -12, 12) / 4.0;
    case FILL_POSITIVE: return gen_real(r, 0.3, 2);
    case FILL_ANY: return gen_real(r, -2, 2);
    default: return gen_real(r, low, high);
    }
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Registers a value with known data, for both graphs. */
static struct value *keep(struct gen *r, struct sol_tensor *t, struct sol_tensor *wide, void *x, void *noisy)
{
    struct value *v = NEW(r->a, struct value);
    *v = (struct value){.t = t, .wide = wide, .x = x, .noisy = noisy, .elements = tensor_elements(t)};
    set_data(r, wide, x, noisy);
    PUSH(r->a, r->values, v);
    return v;
}

/* Is every element small and a multiple of 1/256? Then sums of a few of them are exact, too. */
static bool short_fractions(const struct value *v, double most)
{
    const double *x = v->x;
    for (int64_t i = 0; i < v->elements; i++)
        if (isfinite(x[i]) && (fabs(x[i]) > most || rint(x[i] * 256) != x[i] * 256)) return false;
    return true;
}

static void measure(struct value *v)
{
    v->scale = v->tolerance = 0;
    v->special = false;
    for (int64_t i = 0; i < v->elements; i++) {
        double x = gen_element(v->wide->dtype, v->x, i), noisy = gen_element(v->wide->dtype, v->noisy, i);
        if (!isfinite(x))
            v->special = true;
        else {
            v->scale = fmax(v->scale, fabs(x));
            if (isfinite(noisy)) v->tolerance = fmax(v->tolerance, fabs(x - noisy));
        }
    }
    bool real = dtype_def(v->t->dtype)->is_float;
    double noise = v->t->dtype == SOL_F32 ? NOISE_F32 : NOISE_F64;
    v->tolerance = v->exact || !real ? 0 : FACTOR * v->tolerance + noise * v->scale + noise * 1e-6;
}

/* Does the function round numbers near 1 on the way, even if the result is small? 1 + e keeps only the digits of e down
 * to the last digit of 1. */
static bool rounds_inside(const struct value *v)
{
    static const char *const kinds[] = {"LogSoftmax", "LogSumExp", "LogCumSumExp", "CrossEntropy"};
    for (int i = 0; v->t->from && i < COUNT_OF(kinds); i++)
        if (!strcmp(v->t->from->def->name, kinds[i])) return true;
    return false;
}

static void add_noise(struct gen *r, struct value *v, bool rough)
{
    double *y = v->noisy, level = v->t->dtype == SOL_F32 ? NOISE_F32 : NOISE_F64;
    double all = rough && v->t->dtype == SOL_F32 ? ROUGH_F32 * v->scale : rounds_inside(v) ? level : 0;
    for (int64_t i = 0; i < v->elements; i++) y[i] = y[i] * (1 + gen_real(r, -level, level)) + gen_real(r, -all, all);
}

/* A constant with these data, row-major, of the type. */
static struct value *constant(struct gen *r, enum sol_dtype type, int ndim, const int64_t *shape, const void *data)
{
    struct sol_tensor *t = graph_tensor(r->g, TENSOR_CONST, NULL, type, ndim, shape);
    struct sol_tensor *wide = graph_tensor(r->wide, TENSOR_CONST, NULL, widened(type), ndim, shape);
    size_t n = (size_t)tensor_elements(t);
    t->data = arena_memdup(r->g->arena, data, n * dtype_def(type)->bytes);
    void *x = type == SOL_F32 ? arena_alloc(r->wide->arena, n * 8 + 1) : (void *)(uintptr_t)t->data;
    for (size_t i = 0; type == SOL_F32 && i < n; i++) ((double *)x)[i] = ((const float *)data)[i];
    wide->data = x;
    struct value *v = keep(r, t, wide, x, x);
    v->exact = dtype_def(type)->is_float && short_fractions(v, 256);
    measure(v);
    return v;
}

struct value *gen_source(struct gen *r, enum tensor_role role, enum sol_dtype type, int ndim, const int64_t *shape,
                         enum fill fill, double low, double high)
{
    bool real = dtype_def(type)->is_float;
    int64_t n = 1;
    for (int d = 0; d < ndim; d++) n *= shape[d];
    double *numbers = NEW_ARRAY(r->a, double, n);
    void *data = NEW_ARRAY(r->a, double, n + 1);
    for (int64_t i = 0; i < n; i++) {
        numbers[i] = random_number(r, real ? fill : MAX(fill, FILL_RANGE), low, high + !real);
        if (type == SOL_F32) numbers[i] = (float)numbers[i];
    }
    if (fill == FILL_SORTED && n) qsort(numbers, (size_t)n, sizeof *numbers, by_size);
    for (int64_t i = 0; i < n; i++) gen_store(type, data, i, numbers[i], real ? 0 : (int64_t)floor(numbers[i]));
    if (role == TENSOR_CONST) return constant(r, type, ndim, shape, data);
    const char *name = arena_printf(r->a, "s%d", r->values.n);
    struct sol_tensor *t = graph_tensor(r->g, role, name, type, ndim, shape);
    struct sol_tensor *wide = graph_tensor(r->wide, role, name, widened(type), ndim, shape);
    size_t bytes = (size_t)n * dtype_def(wide->dtype)->bytes;
    const void *from = type == SOL_F32 ? (const void *)numbers : data;
    struct value *v = keep(r, t, wide, arena_memdup(r->a, from, bytes), arena_memdup(r->a, from, bytes));
    v->exact = real && short_fractions(v, 256);
    if (real && !v->exact) add_noise(r, v, false);
    measure(v);
    return v;
}

struct value *gen_number(struct gen *r, enum sol_dtype type, double v)
{
    double data[2] = {0};
    gen_store(type, data, 0, v, (int64_t)v);
    return constant(r, type, 0, NULL, data);
}

/* -- attributes */

static struct opdef_attr read_attr(struct gen *r, char *name, char *text)
{
    struct opdef_attr a = {.name = name, .kind = ATTR_INT, .n = *text == '[' ? 0 : -1, .text = text};
    a.ints = NEW_ARRAY(r->a, int64_t, 64);
    a.reals = NEW_ARRAY(r->a, double, 64);
    if (*text != '[' && !strchr("-0123456789", *text)) {
        a.kind = ATTR_TEXT;
        return a;
    }
    if (strpbrk(text, ".e") || strstr(text, "inf")) a.kind = ATTR_REAL;
    int n = 0;
    for (char *at = text + (*text == '['); *at && *at != ']' && n < 64; n++) {
        a.reals[n] = strtod(at, &at);
        a.ints[n] = (int64_t)a.reals[n];
        if (*at == ',') at++;
    }
    if (*text == '[') a.n = n;
    return a;
}

/* For `wide`, f32 becomes f64. */
static struct attrs read_attrs(struct gen *r, const char *text, bool wide)
{
    struct attrs attrs = {0, NEW_ARRAY(r->a, struct opdef_attr, 24)};
    char *save = NULL, *copy = arena_strdup(r->a, text ? text : "");
    for (char *w = strtok_r(copy, " ", &save); w && attrs.n < 24; w = strtok_r(NULL, " ", &save)) {
        char *value = strchr(w, '=');
        *value++ = 0;
        if (wide && !strcmp(value, "f32")) value = "f64";
        attrs.at[attrs.n++] = read_attr(r, w, value);
    }
    return attrs;
}

static struct attrs widened_attrs(struct gen *r, const struct attrs *from)
{
    struct attrs to = {from->n, NEW_ARRAY(r->a, struct opdef_attr, from->n + 1)};
    for (int i = 0; i < to.n; i++) {
        to.at[i] = from->at[i];
        if (to.at[i].kind == ATTR_TEXT && !strcmp(to.at[i].text, "f32")) to.at[i].text = "f64";
    }
    return to;
}

/* -- layers */

static bool reject(const char *why)
{
    snprintf(rejection, sizeof rejection, "%s", why);
    return false;
}

static double iterations(const struct sol_layer *l)
{
    double n = 1;
    for (int i = 0; i < l->loops->ivars.n; i++) n *= (double)l->loops->ivars.at[i].size;
    return n;
}

/* Evaluates the layers of `wide` from l on. */
static bool evaluate(struct gen *r, struct sol_layer *l)
{
    for (; l; l = l->next)
        for (int pass = 0; pass < 2; pass++) {
            const void *in[64] = {0};
            void *out[64];
            for (int i = 0; i < l->nin; i++)
                if (l->in[i]) in[i] = pass ? r->noisy.at[l->in[i]->id] : r->x.at[l->in[i]->id];
            for (int o = 0; o < l->nout; o++) {
                if (!pass) set_data(r, l->out[o], room_for(r, l->out[o]), room_for(r, l->out[o]));
                out[o] = pass ? r->noisy.at[l->out[o]->id] : r->x.at[l->out[o]->id];
            }
            if (layer_interpret(r->ctx, l, in, out, false)) return reject(sol_error(r->ctx));
        }
    return true;
}

static bool has_zero(const struct value *v)
{
    for (int64_t i = 0; i < v->elements; i++)
        if (fabs(gen_element(v->wide->dtype, v->x, i)) < 0.04) return true;
    return false;
}

static bool inputs_fit(struct gen *r, unsigned needs, int nin, struct value *const *in)
{
    (void)r;
    for (int i = 0; i < nin; i++) {
        if (!in[i]) continue;
        bool real = dtype_def(in[i]->t->dtype)->is_float;
        if (needs & NEED_EXACT && real && !in[i]->exact) return reject("needs exact numbers");
        if (needs & NEED_FINITE && in[i]->special) return reject("needs finite numbers");
        if (needs & NEED_NOT_ZERO && has_zero(in[i])) return reject("needs numbers that are not 0");
    }
    return true;
}

/* Is the value usable: not too large, and without a jump between the two evaluations? Completes it. */
static bool settle(struct gen *r, struct value *v, unsigned needs, int nin, struct value *const *in)
{
    bool real = dtype_def(v->t->dtype)->is_float, exact = (needs & KEEPS_EXACT) != 0, special = false;
    for (int i = 0; i < nin; i++) {
        if (!in[i]) continue;
        exact &= in[i]->exact || !dtype_def(in[i]->t->dtype)->is_float;
        special |= in[i]->special;
    }
    measure(v);
    if (v->special && !special) return reject("is not finite");
    if (real && v->scale > LARGE) return reject("is too large");
    for (int64_t i = 0; i < v->elements; i++) {
        double x = gen_element(v->wide->dtype, v->x, i), y = gen_element(v->wide->dtype, v->noisy, i);
        bool same = real && isfinite(x) ? isfinite(y) : x == y || (isnan(x) && isnan(y));
        if (!same) return reject("jumps");
    }
    v->exact = real && exact && short_fractions(v, 8192);
    if (real && !v->exact) add_noise(r, v, needs & IS_ROUGH);
    measure(v);
    return v->tolerance <= 1e-3 * v->scale + 1e-12 || reject("is not well conditioned");
}

static void undo(struct sol_graph *g, struct sol_layer *last)
{
    while (g->last != last) graph_remove(g, g->last);
}

/* Adds the same layer to `wide`. Results that are f32 anyway (of integers) become f64. */
static bool add_wide(struct gen *r, const struct sol_layer *l, int nin, struct value *const *in,
                     const struct attrs *attrs, struct sol_tensor **out)
{
    struct sol_tensor *x[64] = {0};
    struct sol_layer *w;
    for (int i = 0; i < nin; i++) x[i] = in[i] ? in[i]->wide : NULL;
    if (graph_add(r->wide, NULL,
                  &(struct new_layer){.kind = l->def->name, .nin = nin, .in = x, .attrs = attrs, .name = l->name}, &w))
        return false;
    for (int o = 0; o < l->nout; o++) {
        out[o] = w->out[o];
        if (out[o]->dtype != SOL_F32) continue;
        struct attrs to = read_attrs(r, "to=f64", false);
        struct sol_layer *cast;
        if (graph_add(r->wide, NULL, &(struct new_layer){.kind = "Cast", .nin = 1, .in = &out[o], .attrs = &to}, &cast))
            return false;
        out[o] = cast->out[0];
    }
    return true;
}

static bool small(const struct sol_graph *g, const struct sol_layer *last)
{
    for (const struct sol_layer *l = last ? last->next : g->first; l; l = l->next) {
        if (iterations(l) > MOST_WORK) return false;
        for (int o = 0; o < l->nout; o++)
            if (tensor_elements(l->out[o]) > MOST_ELEMENTS) return false;
    }
    return true;
}

/* Adds a layer to both graphs and evaluates it. */
static bool add_layer(struct gen *r, const char *kind, const char *name, unsigned needs, int nin,
                      struct value *const *in, const struct attrs *attrs, const struct attrs *wide_attrs,
                      struct value **out)
{
    struct sol_layer *last = r->g->last, *last_wide = r->wide->last, *l;
    struct sol_tensor *x[64] = {0}, *wide[GEN_OUTPUTS];
    int nvalues = r->values.n;
    for (int i = 0; i < nin; i++) x[i] = in[i] ? in[i]->t : NULL;
    bool good = inputs_fit(r, needs, nin, in);
    if (!good) return false;
    if (graph_add(r->g, NULL, &(struct new_layer){.kind = kind, .nin = nin, .in = x, .attrs = attrs, .name = name}, &l))
        good = reject(sol_error(r->ctx));
    else if (l->nout > GEN_OUTPUTS || nin > 64 || !small(r->g, last))
        good = reject("too much work");
    else if (!add_wide(r, l, nin, in, wide_attrs, wide)) {
        fprintf(stderr, "%s: cannot be made in f64: %s\n", kind, sol_error(r->ctx));
        good = reject("not in f64");
    }
    good = good && evaluate(r, last_wide ? last_wide->next : r->wide->first);
    for (int o = 0; good && o < l->nout; o++) {
        struct value *v = keep(r, l->out[o], wide[o], r->x.at[wide[o]->id], r->noisy.at[wide[o]->id]);
        good = settle(r, v, needs, nin, in);
        out[o] = v;
    }
    if (good) {
        for (int i = 0; i < nin; i++)
            if (in[i]) in[i]->read = true;
        r->work += iterations(l);
        r->made++;
        return true;
    }
    r->values.n = nvalues;
    undo(r->g, last);
    undo(r->wide, last_wide);
    return false;
}

bool gen_layer(struct gen *r, const char *kind, unsigned needs, int nin, struct value *const *in, const char *attrs,
               struct value **out)
{
    struct attrs own = read_attrs(r, attrs, false), wide = read_attrs(r, attrs, true);
    const char *name = gen_chance(r, 70) ? arena_printf(r->a, "layer%d", r->g->nlayers) : "";
    return add_layer(r, kind, name, needs, nin, in, &own, &wide, out);
}

struct value *gen_one(struct gen *r, const char *kind, unsigned needs, int nin, struct value *const *in,
                      const char *attrs)
{
    struct value *out[GEN_OUTPUTS] = {0};
    return gen_layer(r, kind, needs, nin, in, attrs, out) ? out[0] : NULL;
}

void gen_output(struct gen *r, struct value *v)
{
    if (v->output) return;
    v->output = true;
    const char *name = arena_printf(r->a, "y%d", r->g->outputs.n);
    graph_output(r->g, name, v->t);
    graph_output(r->wide, name, v->wide);
}

/* -- copies */

static struct value *copy_source(struct gen *to, const struct value *from, enum tensor_role role)
{
    int64_t shape[SOL_MAX_DIMS];
    for (int d = 0; d < from->t->ndim; d++) shape[d] = from->t->dim[d].size;
    if (role == TENSOR_CONST) return constant(to, from->t->dtype, from->t->ndim, shape, from->t->data);
    const char *name = arena_printf(to->a, "s%d", to->values.n);
    struct sol_tensor *t = graph_tensor(to->g, role, name, from->t->dtype, from->t->ndim, shape);
    struct sol_tensor *wide = graph_tensor(to->wide, role, name, from->wide->dtype, from->t->ndim, shape);
    size_t bytes = (size_t)from->elements * dtype_def(wide->dtype)->bytes;
    void *x = arena_memdup(to->a, from->x, bytes);
    for (int64_t i = 0; t->dtype == SOL_F32 && i < from->elements; i++) ((double *)x)[i] = (float)((double *)x)[i];
    struct value *v = keep(to, t, wide, x, arena_memdup(to->a, x, bytes));
    v->exact = from->exact;
    if (dtype_def(t->dtype)->is_float && !v->exact) add_noise(to, v, false);
    measure(v);
    return v;
}

static bool listed(int n, struct value *const *list, const struct sol_tensor *t)
{
    for (int i = 0; i < n; i++)
        if (list[i]->t == t) return true;
    return false;
}

struct gen *gen_copy(struct gen *r, int noutputs, struct value *const *outputs, int ncut, struct value *const *cut)
{
    struct gen *to = gen_create(r->ctx, 1);
    bool *needed = NEW_ARRAY(to->a, bool, r->g->ntensors + 1), good = true;
    struct value **made = NEW_ARRAY(to->a, struct value *, r->g->ntensors + 1);
    for (int i = 0; i < noutputs; i++) needed[outputs[i]->t->id] = true;
    for (struct sol_layer *l = r->g->last; l; l = l->prev)
        for (int o = 0; o < l->nout; o++)
            for (int i = 0; needed[l->out[o]->id] && i < l->nin; i++)
                if (l->in[i] && !listed(ncut, cut, l->out[o])) needed[l->in[i]->id] = true;
    for (int i = 0; i < r->values.n; i++) {
        struct value *v = r->values.at[i];
        if (!needed[v->t->id]) continue;
        if (v->t->role != TENSOR_VALUE) made[v->t->id] = copy_source(to, v, v->t->role);
        if (listed(ncut, cut, v->t)) made[v->t->id] = copy_source(to, v, TENSOR_INPUT);
    }
    for (struct sol_layer *l = r->g->first; l && good; l = l->next) {
        bool any = false;
        struct value *in[64] = {0}, *out[GEN_OUTPUTS] = {0};
        for (int o = 0; o < l->nout; o++) any |= needed[l->out[o]->id] && !made[l->out[o]->id];
        for (int i = 0; i < l->nin; i++) in[i] = l->in[i] ? made[l->in[i]->id] : NULL;
        for (int i = 0; i < l->nin; i++) any &= !l->in[i] || in[i];
        if (!any) continue;
        struct attrs wide = widened_attrs(to, &l->attrs);
        const struct value *was = gen_value(r, l->out[0]);
        unsigned needs = !was || was->exact ? KEEPS_EXACT : was->tolerance > ROUGH_F32 * was->scale ? IS_ROUGH : 0;
        good = add_layer(to, l->def->name, l->name, needs, l->nin, in, &l->attrs, &wide, out);
        for (int o = 0; good && o < l->nout; o++)
            if (!made[l->out[o]->id]) made[l->out[o]->id] = out[o];
    }
    for (int i = 0; good && i < noutputs; i++) {
        struct value *v = made[outputs[i]->t->id];
        good = v != NULL;
        if (good) gen_output(to, v);
    }
    if (good) return to;
    gen_destroy(to);
    return NULL;
}

struct gen *gen_parse(struct sol_ctx *ctx, const char *text, uint64_t seed)
{
    struct gen *r = gen_create(ctx, seed), *to = NULL;
    struct sol_graph *g;
    if (sol_graph_parse(ctx, text, &g)) return NULL;
    struct value **made = NEW_ARRAY(r->a, struct value *, g->ntensors + 1);
    for (int i = 0; i < g->tensors.n; i++) {
        const struct sol_tensor *t = g->tensors.at[i];
        int64_t shape[SOL_MAX_DIMS];
        for (int d = 0; d < t->ndim; d++) shape[d] = t->dim[d].size;
        if (t->role == TENSOR_CONST)
            made[t->id] = constant(r, t->dtype, t->ndim, shape, t->data);
        else if (t->role != TENSOR_VALUE)
            made[t->id] = gen_source(r, (enum tensor_role)t->role, t->dtype, t->ndim, shape, FILL_ANY, 0, 3);
    }
    bool good = true;
    for (struct sol_layer *l = g->first; l && good; l = l->next) {
        struct value *in[64] = {0}, *out[GEN_OUTPUTS] = {0};
        for (int i = 0; i < l->nin; i++) in[i] = l->in[i] ? made[l->in[i]->id] : NULL;
        struct attrs wide = widened_attrs(r, &l->attrs);
        good = add_layer(r, l->def->name, l->name, 0, l->nin, in, &l->attrs, &wide, out);
        for (int o = 0; good && o < l->nout; o++) made[l->out[o]->id] = out[o];
        if (!good) fprintf(stderr, "layer %s: %s\n", l->def->name, gen_rejection());
    }
    for (int i = 0; good && i < g->outputs.n; i++) gen_output(r, made[g->outputs.at[i].t->id]);
    sol_graph_destroy(g);
    if (good) to = r;
    return to;
}
