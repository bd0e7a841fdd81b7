/* Programs: a model compiled for calls. One program serves all sizes that the model leaves open, as far as they may
 * vary. Sizes that it excludes (an empty array, a 1 that is repeated where two sizes must be equal), and models that
 * need numbers, get a program for the sizes of the call alone. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "onnx/reader.h"

enum { WHY_ROOM = 2048 };

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void sol_onnx_program_destroy(struct sol_onnx_program *p)
{
    sol_params_destroy(p->params);
    sol_net_destroy(p->net);
    sol_onnx_destroy(p->model);
    *p = (struct sol_onnx_program){0};
}

/* -- reading and compiling */

static sol_status load(struct sol_ctx *ctx, const struct sol_onnx_source *from, const struct sol_onnx_options *options,
                       struct sol_onnx **out_model)
{
    if (from->path) return sol_onnx_load(ctx, from->path, options, out_model);
    return sol_onnx_load_memory(ctx, from->data, from->bytes, options, out_model);
}

/* Reads the model with the arrays' sizes, or with all open sizes varying: then whatever the arrays are, unless shapes
 * depend on their values. */
static sol_status read_model(struct sol_ctx *ctx, const struct sol_onnx_call *call, bool vary,
                             struct sol_onnx_program *p)
{
    struct sol_onnx_options options = call->options ? *call->options : (struct sol_onnx_options){0};
    struct sol_onnx_shape *shapes = ctx_try(ctx, (size_t)(call->narrays + 1) * sizeof *shapes);
    if (!shapes) return ctx_fail(ctx, SOL_ERR_NOMEM, "no memory for %d arrays", call->narrays);
    for (int i = 0; i < call->narrays; i++) {
        const struct sol_onnx_value *a = &call->arrays[i];
        shapes[i] = (struct sol_onnx_shape){a->name, i, a->ndim, a->shape};
    }
    options.size = sizeof options;
    options.vary = vary;
    options.noffered = call->narrays;
    options.offered = call->arrays;
    if (!vary) {
        options.nshapes = call->narrays;
        options.shapes = shapes;
    }
    const double start = seconds();
    const sol_status status = load(ctx, &call->from, &options, &p->model);
    p->read_s = seconds() - start;
    ctx_free(ctx, shapes);
    return status;
}

static sol_status compile(struct sol_ctx *ctx, struct sol_onnx_program *p)
{
    const double start = seconds();
    sol_status status = sol_compile(ctx, p->model->graph, &p->net);
    if (!status) status = sol_onnx_bind(p->model, p->net, &p->params);
    p->compile_s = seconds() - start;
    return status;
}

/* -- do arrays fit? */

/* The array for an input: by its name, or by its place among the arrays without a name. NULL: it is not given. */
static const struct sol_onnx_value *array_of(const struct sol_onnx_call *call, const char *name, int i)
{
    for (int k = 0; k < call->narrays; k++) {
        const struct sol_onnx_value *a = &call->arrays[k];
        if (a->name ? !strcmp(a->name, name) : k == i) return a;
    }
    return NULL;
}

/* "f32[#0, 4]" */
static void put_shape(struct text *t, enum sol_dtype dtype, int ndim, const int64_t *shape)
{
    text_put(t, "%s[", dtype_def(dtype)->name);
    for (int i = 0; i < ndim; i++) {
        text_put(t, "%s", i ? ", " : "");
        size_print(t, shape[i]);
    }
    text_put(t, "]");
}

/* Which node needs the only open size that is n. NULL: there is none, or several. */
static const char *cause_of(const struct sol_onnx *m, int64_t n)
{
    const char *why = NULL;
    int found = 0;
    for (int i = 0; i < m->open.n; i++) {
        if (m->open.at[i].size != n || !m->open.at[i].why) continue;
        why = m->open.at[i].why;
        found++;
    }
    return found == 1 ? why : NULL;
}

static sol_status misfit(const struct sol_onnx *m, const struct sol_io *io, const struct sol_onnx_value *a)
{
    struct arena *arena = arena_create(m->ctx);
    if (!arena) return ctx_fail(m->ctx, SOL_ERR_NOMEM, "input '%s': no memory", io->name);
    struct text expected = text_new(arena), got = text_new(arena);
    put_shape(&expected, io->dtype, io->ndim, io->shape);
    put_shape(&got, a->dtype, a->ndim, a->shape);
    const char *why = NULL;
    for (int d = 0; d < io->ndim && a->ndim == io->ndim && !why; d++)
        if (!size_varies(io->shape[d]) && io->shape[d] != a->shape[d]) why = cause_of(m, io->shape[d]);
    ctx_fail(m->ctx, SOL_ERR_INVALID, "input '%s': expected %s, got %s%s%s", io->name, expected.at, got.at,
             why ? "; " : "", why ? why : "");
    arena_destroy(arena);
    return SOL_ERR_INVALID;
}

static const struct sol_onnx_value *array_of_input(const struct sol_onnx *m, const struct sol_onnx_call *call, int i)
{
    return array_of(call, m->inputs.at[i].name, m->places.at[i]);
}

static const struct sol_onnx_value *array_of_taken(const struct sol_onnx *m, const struct sol_onnx_call *call, int i)
{
    return array_of(call, m->taken.at[i].value.name, m->taken.at[i].place);
}

static int64_t element(const struct sol_onnx_value *v, int64_t k) /* of a list that may vary */
{
    int64_t n;
    memcpy(&n, (const char *)v->data + (size_t)k * sizeof n, sizeof n); /* it may be anywhere */
    return n;
}

/* Does the array have the value that the program is made for, but for elements that vary? */
static bool fits_taken(const struct taken *t, const struct sol_onnx_value *a)
{
    const struct sol_onnx_value *v = &t->value;
    size_t elements = 1;
    if (!a->data || v->dtype != a->dtype || v->ndim != a->ndim) return false;
    for (int d = 0; d < v->ndim; d++) {
        if (v->shape[d] != a->shape[d]) return false;
        elements *= (size_t)v->shape[d];
    }
    if (!t->sizes) return !memcmp(v->data, a->data, elements * (size_t)dtype_def(v->dtype)->bytes);
    for (size_t k = 0; k < elements; k++)
        if (!size_varies(t->sizes[k]) && t->sizes[k] != element(a, (int64_t)k)) return false;
    return true;
}

/* The types, ranks and fixed sizes of the arrays, and the values that the program is made for. */
static sol_status fit(const struct sol_onnx *m, const struct sol_onnx_call *call)
{
    for (int i = 0; i < m->taken.n; i++) {
        const struct sol_onnx_value *a = array_of_taken(m, call, i);
        if (a && !fits_taken(&m->taken.at[i], a))
            return ctx_fail(m->ctx, SOL_ERR_INVALID, "input '%s' has another value than this program is made for",
                            m->taken.at[i].value.name);
    }
    for (int i = 0; i < m->inputs.n; i++) {
        const struct sol_io *io = &m->inputs.at[i];
        const struct sol_onnx_value *a = array_of_input(m, call, i);
        bool good = !a || (a->dtype == io->dtype && a->ndim == io->ndim);
        for (int d = 0; a && good && d < io->ndim; d++) good = size_varies(io->shape[d]) || a->shape[d] == io->shape[d];
        if (!good) return misfit(m, io, a);
    }
    return SOL_OK;
}

static bool have_ranks(const struct sol_onnx *m, const struct sol_onnx_call *call)
{
    bool have = true;
    for (int i = 0; i < m->inputs.n; i++) {
        const struct sol_onnx_value *a = array_of_input(m, call, i);
        have &= !a || a->ndim == m->inputs.at[i].ndim;
    }
    return have;
}

/* Is each array that of an input? The reader says so of names. */
static sol_status check_count(const struct sol_onnx *m, const struct sol_onnx_call *call)
{
    const int all = m->inputs.n + m->taken.n;
    int used = 0;
    for (int i = 0; i < m->inputs.n; i++) used += array_of_input(m, call, i) != NULL;
    for (int i = 0; i < m->taken.n; i++) used += array_of_taken(m, call, i) != NULL;
    if (used == call->narrays) return SOL_OK;
    return ctx_fail(m->ctx, SOL_ERR_INVALID, "the model has %d input%s, but %d arrays are given", all,
                    all == 1 ? "" : "s", call->narrays);
}

/* The dimensions that elements of inputs are. */
static sol_status bind_values(const struct sol_onnx_program *p, const struct sol_onnx_call *call, int64_t *dims,
                              uint32_t *out_known)
{
    const struct sol_onnx *m = p->model;
    for (int i = 0; i < m->taken.n; i++) {
        const struct taken *t = &m->taken.at[i];
        const struct sol_onnx_value *a = t->sizes ? array_of_taken(m, call, i) : NULL;
        struct size_dim d;
        if (t->sizes && !a) return ctx_fail(m->ctx, SOL_ERR_INVALID, "input '%s' is missing", t->value.name);
        for (int64_t k = 0; t->sizes && k < (t->value.ndim ? t->value.shape[0] : 1); k++) {
            if (!size_is_dim(t->sizes[k], &d) || *out_known >> d.index & 1) continue;
            const int64_t size = dims[d.index] = element(a, k);
            if (size < d.min || size > d.max)
                return ctx_fail(m->ctx, SOL_ERR_INVALID, "input '%s': element %lld is %lld, expected %lld..%lld",
                                t->value.name, (long long)k, (long long)size, (long long)d.min, (long long)d.max);
            *out_known |= UINT32_C(1) << d.index;
        }
    }
    return SOL_OK;
}

/* The other elements: a dimension may be several of them, and have a multiple. */
static sol_status compare_values(const struct sol_onnx_program *p, const struct sol_onnx_call *call,
                                 const int64_t *dims)
{
    const struct sol_onnx *m = p->model;
    for (int i = 0; i < m->taken.n; i++) {
        const struct taken *t = &m->taken.at[i];
        const struct sol_onnx_value *a = t->sizes ? array_of_taken(m, call, i) : NULL;
        for (int64_t k = 0; a && k < (t->value.ndim ? t->value.shape[0] : 1); k++)
            if (size_at(t->sizes[k], dims) != element(a, k))
                return ctx_fail(m->ctx, SOL_ERR_INVALID,
                                "input '%s': element %lld is %lld, expected %lld, which is %lld", t->value.name,
                                (long long)k, (long long)element(a, k), (long long)t->sizes[k],
                                (long long)size_at(t->sizes[k], dims));
    }
    return SOL_OK;
}

/* Why the size of a dimension of an input may not be n. NULL: it may, or the network does not say. */
static const char *limit_of(const struct sol_onnx *m, int64_t dim, int64_t n)
{
    struct size_dim d;
    if (!size_is_dim(dim, &d) || (n <= d.max && !(n % d.multiple))) return NULL;
    for (int i = 0; i < m->open.n; i++)
        if (m->open.at[i].size == dim && m->open.at[i].limited) return m->open.at[i].limited;
    return NULL;
}

/* Adds to the message about sizes that do not fit which node limits them. */
static void explain(const struct sol_onnx *m, const struct sol_onnx_call *call)
{
    for (int i = 0; i < m->inputs.n; i++) {
        const struct sol_onnx_value *a = array_of_input(m, call, i);
        for (int d = 0; a && d < m->inputs.at[i].ndim; d++) {
            const char *why = limit_of(m, m->inputs.at[i].shape[d], a->shape[d]);
            char what[WHY_ROOM];
            if (!why) continue;
            snprintf(what, sizeof what, "%s", sol_error(m->ctx));
            ctx_fail(m->ctx, SOL_ERR_INVALID, "%s: %s", what, why);
            return;
        }
    }
}

static sol_status bind(const struct sol_onnx_program *p, const struct sol_onnx_call *call, int64_t *out_dims)
{
    struct sol_ctx *ctx = p->model->ctx;
    const int n = sol_net_inputs(p->net);
    const int64_t **shapes = ctx_try(ctx, (size_t)(n + 1) * sizeof *shapes);
    if (!shapes) return ctx_fail(ctx, SOL_ERR_NOMEM, "no memory for %d inputs", n);
    for (int i = 0; i < n; i++) {
        const struct sol_onnx_value *a = array_of_input(p->model, call, i);
        shapes[i] = a ? a->shape : NULL;
    }
    uint32_t known = 0;
    sol_status status = bind_values(p, call, out_dims, &known);
    if (!status) status = sol_net_bind_known(p->net, shapes, known, out_dims);
    if (!status) status = compare_values(p, call, out_dims);
    ctx_free(ctx, shapes);
    if (status == SOL_ERR_INVALID) explain(p->model, call);
    return status;
}

sol_status sol_onnx_program_bind(const struct sol_onnx_program *p, const struct sol_onnx_call *call, int64_t *out_dims)
{
    TRY(fit(p->model, call));
    TRY(check_count(p->model, call));
    return bind(p, call, out_dims);
}

/* -- the program for a call */

static bool is_final(sol_status status) /* another way would end the same */
{
    return status == SOL_ERR_NOMEM || status == SOL_ERR_INTERRUPTED || status == SOL_ERR_COMPILER;
}

/* Why arrays do not fit the program for all sizes. "": they fit, or were not compared. */
struct why {
    char text[WHY_ROOM];
    bool sizes; /* their types and ranks fit, but sizes that vary do not */
    bool ranks; /* an array has another number of dimensions, so that no program takes it */
};

static sol_status compare(const struct sol_onnx_program *all, const struct sol_onnx_call *call, struct why *out_why)
{
    sol_status status = fit(all->model, call);
    out_why->sizes = !status;
    out_why->ranks = !have_ranks(all->model, call);
    if (!status) status = bind(all, call, call->out_dims);
    if (!status) return SOL_OK;
    snprintf(out_why->text, WHY_ROOM, "%s", sol_error(all->model->ctx));
    LOG(all->model->ctx, LOG_DEBUG, "onnx", "a program for this call alone: %s", out_why->text);
    if (all->model->taken.n) *out_why = (struct why){0}; /* what is wrong with values, the model says best */
    return status;
}

/* The program for all sizes. Failures other than `why` say less than those of the program for this call. */
static sol_status make_all(struct sol_ctx *ctx, const struct sol_onnx_call *call, struct sol_onnx_program *p,
                           struct why *out_why)
{
    TRY(read_model(ctx, call, true, p));
    TRY(check_count(p->model, call));
    const sol_status status = fit(p->model, call);
    if (status) {
        snprintf(out_why->text, WHY_ROOM, "%s", sol_error(ctx));
        out_why->ranks = !have_ranks(p->model, call);
        return status;
    }
    TRY(compile(ctx, p));
    return call->narrays ? compare(p, call, out_why) : SOL_OK;
}

/* "4..64, a multiple of 8" */
static void put_limits(const struct sol_dim_limits *l, char *out, size_t room)
{
    size_t n = (size_t)snprintf(out, room, "%s%lld", l->max ? "" : "at least ", (long long)l->min);
    if (l->max) n += (size_t)snprintf(out + n, room - n, "..%lld", (long long)l->max);
    if (l->multiple > 1) snprintf(out + n, room - n, ", a multiple of %lld", (long long)l->multiple);
}

/* The limits of the call's options. A program for these sizes alone needs none, but the caller asked for them. */
static sol_status check_limits(const struct sol_onnx *m, const struct sol_onnx_call *call)
{
    for (int i = 0; call->options && i < call->options->nlimits; i++) {
        const struct sol_dim_limits *l = &call->options->limits[i].limits;
        for (int k = 0; k < m->open.n; k++) {
            const int64_t n = m->open.at[k].size;
            char expected[100];
            if (strcmp(call->options->limits[i].name, m->open.at[k].name) != 0) continue;
            if (n >= l->min && (!l->max || n <= l->max) && !(l->multiple && n % l->multiple)) continue;
            put_limits(l, expected, sizeof expected);
            return ctx_fail(m->ctx, SOL_ERR_INVALID, "'%s' is %lld, but is limited to %s", m->open.at[k].name,
                            (long long)n, expected);
        }
    }
    return SOL_OK;
}

static sol_status make_sized(struct sol_ctx *ctx, const struct sol_onnx_call *call, const struct why *why,
                             struct sol_onnx_program *p, int *out_misfit)
{
    sol_status status = read_model(ctx, call, false, p);
    *out_misfit = status && *why->text;
    if (!*out_misfit) {
        TRY(status);
        status = check_count(p->model, call);
        if (!status) status = fit(p->model, call);
        if (!status && (status = check_limits(p->model, call))) {
            *out_misfit = true;
            return status;
        }
        *out_misfit = status != SOL_OK;
        if (status && !why->sizes && !why->ranks) return status;
    }
    return *out_misfit ? ctx_fail(ctx, SOL_ERR_INVALID, "%s", why->text) : compile(ctx, p);
}

static sol_status make(struct sol_ctx *ctx, const struct sol_onnx_call *call, const struct sol_onnx_program *all,
                       struct sol_onnx_program *p, int *out_misfit)
{
    struct why why = {0};
    if (all) {
        if (!compare(all, call, &why)) return SOL_OK;
    } else if (call->ways & SOL_ONNX_ALL) {
        const sol_status status = make_all(ctx, call, p, &why);
        if (!status || is_final(status) || !(call->ways & SOL_ONNX_SIZED)) return status;
        sol_onnx_program_destroy(p);
    }
    return make_sized(ctx, call, &why, p, out_misfit);
}

sol_status sol_onnx_program_make(struct sol_ctx *ctx, const struct sol_onnx_call *call,
                                 const struct sol_onnx_program *all, struct sol_onnx_program *out_p)
{
    int misfit = 0;
    *out_p = (struct sol_onnx_program){0};
    const sol_status status = make(ctx, call, all, out_p, &misfit);
    if (status) sol_onnx_program_destroy(out_p);
    if (call->out_misfit) *call->out_misfit = misfit;
    return status;
}
