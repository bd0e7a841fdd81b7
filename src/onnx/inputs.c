/* The inputs of a model: their types, and their open sizes, which the options determine. Inputs with fixed values in
 * the options become constants. */
#include <string.h>

#include "onnx/reader.h"

static int64_t given_size(const struct reader *r, const char *name)
{
    for (int i = 0; r->options && i < r->options->ndims; i++)
        if (!strcmp(r->options->dims[i].name, name)) return r->options->dims[i].size;
    return -1;
}

/* The sizes of one input from the file or from "input.axis"; -1: open. Records the sizes of symbols. */
static sol_status read_dims(struct reader *r, const char *input, const Onnx__Shape *shape, struct map *symbols,
                            int64_t *out)
{
    const struct sol_onnx_value *fixed = value_fixed(r, input);
    if (fixed && fixed->ndim != (int)shape->n_dim)
        return ctx_fail(r->ctx, SOL_ERR_INVALID, "input '%s': expected a value of %zu dimensions, got %d", input,
                        shape->n_dim, fixed->ndim);
    for (size_t i = 0; i < shape->n_dim; i++) {
        const Onnx__Dimension *m = shape->dim[i];
        const char *axis = arena_printf(r->arena, "%s.%zu", input, i);
        int64_t given = fixed && (int)i < fixed->ndim ? fixed->shape[i] : given_size(r, axis);
        if (given >= 0 && m->has_dim_value && m->dim_value != given)
            return ctx_fail(r->ctx, SOL_ERR_INVALID,
                            "input '%s': dimension %zu is %lld in the model, %lld was asked for", input, i,
                            (long long)m->dim_value, (long long)given);
        out[i] = m->has_dim_value ? m->dim_value : given;
        if (m->has_dim_value && m->dim_value < 0)
            return ctx_fail(r->ctx, SOL_ERR_INVALID, "input '%s': dimension %zu has size %lld", input, i,
                            (long long)m->dim_value);
        if (m->has_dim_value || !m->dim_param || !*m->dim_param) continue;
        int64_t named = given_size(r, m->dim_param), *known = map_get(symbols, m->dim_param);
        if (!known) map_set(symbols, m->dim_param, known = arena_memdup(r->arena, &(int64_t){named}, sizeof *known));
        if (*known < 0) *known = out[i];
        if (out[i] >= 0 && *known != out[i])
            return ctx_fail(r->ctx, SOL_ERR_INVALID, "input '%s': dimension %zu ('%s') is %lld here and %lld elsewhere",
                            input, i, m->dim_param, (long long)out[i], (long long)*known);
    }
    return SOL_OK;
}

/* The shape of the array that the caller will pass; NULL: unknown. */
static const struct sol_onnx_shape *array_shape(const struct reader *r, const char *input, int number)
{
    for (int i = 0; r->options && i < r->options->nshapes; i++) {
        const struct sol_onnx_shape *given = &r->options->shapes[i];
        if (given->name ? !strcmp(given->name, input) : given->input == number) return given;
    }
    return NULL;
}

/* The size of an axis in that array; -1: unknown. */
static int64_t array_size(const struct reader *r, const char *input, int number, size_t axis)
{
    const struct sol_onnx_shape *whole = array_shape(r, input, number);
    if (whole) return (int64_t)axis < whole->ndim ? whole->shape[axis] : -1;
    /* where values of the call become sizes, their examples must fit those of the other inputs */
    for (int i = 0; r->options && r->free_dims && r->wanted->values.n && i < r->options->noffered; i++) {
        const struct sol_onnx_value *given = &r->options->offered[i];
        if (given->name ? strcmp(given->name, input) : i != number) continue;
        return (int64_t)axis < given->ndim ? given->shape[axis] : -1;
    }
    return -1;
}

static bool is_given(const struct reader *r, const char *input) /* by a value of the options */
{
    for (int i = 0; r->options && i < r->options->nvalues; i++)
        if (!strcmp(r->options->values[i].name, input)) return true;
    return false;
}

struct open { /* one that the file leaves open */
    const Onnx__ValueInfo *input;
    const char *name;
    int64_t *size, *symbol; /* symbol: what all dimensions of this symbol are; NULL: it has none */
    int64_t array;          /* what the array says */
    int rank, array_rank;   /* of the input, of the array (-1: unknown) */
    int64_t guess;          /* a usual size of such an axis */
};

/* What the arrays say about a dimension or its symbol, else what the options say. */
static int64_t hint_of(const struct open *open, int n, const struct open *o, int64_t otherwise)
{
    for (int i = 0; i < n; i++)
        if (open[i].array >= 0 && (&open[i] == o || (o->symbol && open[i].symbol == o->symbol))) return open[i].array;
    return otherwise;
}

static int find_open(struct reader *r, const struct scope *s, const Onnx__Graph *g, int64_t (*dims)[SOL_MAX_DIMS],
                     struct map *symbols, struct open *out)
{
    int n = 0, number = 0;
    for (size_t k = 0; k < g->n_input; k++) {
        const Onnx__ValueInfo *m = g->input[k];
        if (map_get(s->values, m->name)) continue; /* a weight's default */
        int place = is_given(r, m->name) ? -1 : number++;
        const Onnx__Shape *shape = m->type && m->type->tensor_type ? m->type->tensor_type->shape : NULL;
        for (size_t i = 0; shape && i < shape->n_dim; i++) {
            const char *symbol = shape->dim[i]->dim_param;
            if (shape->dim[i]->has_dim_value) continue;
            struct open *o = &out[n++];
            const struct sol_onnx_shape *given = array_shape(r, m->name, place);
            *o = (struct open){.input = m, .size = &dims[k][i], .array = array_size(r, m->name, place, i)};
            o->rank = (int)shape->n_dim;
            o->array_rank = given ? given->ndim : -1;
            o->guess = !i ? 8 : i > 1 && shape->n_dim > 3 ? 224 : 64;
            o->symbol = symbol && *symbol ? map_get(symbols, symbol) : NULL;
            o->name = o->symbol ? symbol : arena_printf(r->arena, "%s.%zu", m->name, i);
        }
    }
    return n;
}

/* Does each array have as many dimensions as its input, and are sizes of one name equal? */
static sol_status arrays_fit(struct reader *r, const struct open *open, int n)
{
    for (int i = 0; i < n; i++) {
        const struct open *o = &open[i];
        if (o->array_rank >= 0 && o->array_rank != o->rank)
            return ctx_fail(r->ctx, SOL_ERR_INVALID, "input '%s': expected %d dimensions, got an array of %d",
                            o->input->name, o->rank, o->array_rank);
        for (int k = 0; k < i && o->symbol && o->array >= 0; k++)
            if (open[k].symbol == o->symbol && open[k].array >= 0 && open[k].array != o->array)
                return ctx_fail(r->ctx, SOL_ERR_INVALID, "size '%s' is %lld in input '%s', but %lld in input '%s'",
                                o->name, (long long)o->array, o->input->name, (long long)open[k].array,
                                open[k].input->name);
    }
    return SOL_OK;
}

/* An open size is the size of its symbol, the size in the input's array, or open_size, in this order. */
static sol_status open_sizes(struct reader *r, const struct scope *s, const Onnx__Graph *g,
                             int64_t (*dims)[SOL_MAX_DIMS], struct map *symbols)
{
    struct text missing = text_new(r->arena);
    const char *example = NULL;
    int64_t otherwise = r->options && r->options->open_size > 0 ? r->options->open_size : -1;
    size_t most = 0;
    struct map *listed = map_create(r->arena);
    for (size_t k = 0; k < g->n_input; k++)
        if (g->input[k]->type && g->input[k]->type->tensor_type && g->input[k]->type->tensor_type->shape)
            most += g->input[k]->type->tensor_type->shape->n_dim;
    struct open *open = NEW_ARRAY(r->arena, struct open, most);
    int n = find_open(r, s, g, dims, symbols, open);
    const bool vary = r->free_dims != NULL;
    if (!vary) TRY(arrays_fit(r, open, n));
    for (int i = 0; i < n && !vary; i++)
        if (open[i].symbol && *open[i].symbol < 0) *open[i].symbol = open[i].array;
    for (int i = 0; i < n; i++) {
        const struct open *o = &open[i];
        if (*o->size < 0) *o->size = o->symbol ? *o->symbol : vary ? -1 : o->array;
        if (*o->size < 0 && vary) TRY(vary_size(r, o->name, hint_of(open, n, o, otherwise), o->guess, o->size));
        if (*o->size < 0) *o->size = otherwise;
        if (o->symbol && *o->symbol < 0) *o->symbol = *o->size;
        struct open_dim found = {.name = arena_strdup(r->model->arena, o->name), .size = *o->size};
        found.why = vary_why(r, o->name, &found.limited);
        if (!map_get(listed, o->name)) PUSH(r->model->arena, r->model->open, found);
        map_set(listed, o->name, r);
        if (*o->size >= 0) continue;
        if (missing.n < 1000)
            text_put(&missing, "%s'%.80s' of input '%.80s'", missing.n ? ", " : "", o->name, o->input->name);
        if (!example) example = o->name;
    }
    TRY(ctx_check(r->ctx));
    if (!example) return SOL_OK;
    return ctx_fail(r->ctx, SOL_ERR_INVALID,
                    "the model leaves sizes open: %s; give each a size, such as --dim %s=1 (dims of sol_onnx_options)",
                    missing.at, example);
}

static sol_status check_input(struct reader *r, const Onnx__Graph *g, const char *what, const char *name)
{
    struct text names = text_new(r->arena);
    for (size_t k = 0; k < g->n_input; k++) {
        if (g->input[k]->name && !strcmp(g->input[k]->name, name)) return SOL_OK;
        if (names.n < 500) text_put(&names, "%s'%.80s'", k ? ", " : "", g->input[k]->name ? g->input[k]->name : "");
    }
    TRY(ctx_check(r->ctx));
    return ctx_fail(r->ctx, SOL_ERR_INVALID, "%s for '%s': there is no such input; there are %s", what, name,
                    names.n ? names.at : "none");
}

/* Every given size must have been used, so that a misspelt name is an error. */
static sol_status check_given(struct reader *r, const Onnx__Graph *g, const struct map *symbols)
{
    for (int i = 0; r->options && i < r->options->ndims; i++) {
        const char *name = r->options->dims[i].name;
        bool found = map_get(symbols, name) != NULL;
        for (size_t k = 0; k < g->n_input && !found; k++) {
            const Onnx__ValueInfo *m = g->input[k];
            size_t n = m->name ? strlen(m->name) : 0;
            found = n && !strncmp(m->name, name, n) && name[n] == '.';
        }
        if (!found)
            return ctx_fail(r->ctx, SOL_ERR_INVALID, "size %s=%lld: no input has a dimension of that name", name,
                            (long long)r->options->dims[i].size);
        if (r->options->dims[i].size < 0)
            return ctx_fail(r->ctx, SOL_ERR_INVALID, "size %s=%lld: expected 0 or more", name,
                            (long long)r->options->dims[i].size);
    }
    for (int i = 0; r->options && i < r->options->nvalues; i++)
        TRY(check_input(r, g, "value", r->options->values[i].name));
    for (int i = 0; r->options && i < r->options->nshapes; i++)
        if (r->options->shapes[i].name) TRY(check_input(r, g, "array", r->options->shapes[i].name));
    return SOL_OK;
}

static sol_status add_input(struct reader *r, struct scope *s, const Onnx__ValueInfo *m, const int64_t *dims)
{
    struct value *v = NEW(r->arena, struct value);
    v->name = m->name;
    TRY(scope_define(r, s, m->name, v));
    const Onnx__TensorType *type = m->type ? m->type->tensor_type : NULL;
    enum sol_dtype dtype;
    sol_status status;
    if (!type)
        status = ctx_fail(r->ctx, SOL_ERR_UNSUPPORTED, "only tensors are supported, no sequences, maps or optionals");
    else if (!type->shape)
        status = ctx_fail(r->ctx, SOL_ERR_UNSUPPORTED, "the model does not say how many dimensions it has");
    else
        status = dtype_read(r->ctx, type->elem_type, "input", &dtype);
    const struct sol_onnx_value *fixed = value_fixed(r, m->name);
    if (!status && fixed) {
        struct data *d = NEW(r->arena, struct data);
        if (fixed->dtype != dtype)
            return ctx_fail(r->ctx, SOL_ERR_INVALID, "input '%s': expected a value of type %s, got %s", m->name,
                            dtype_name(dtype), dtype_name(fixed->dtype));
        *d = (struct data){.dtype = dtype, .ndim = fixed->ndim};
        memcpy(d->shape, dims, (size_t)fixed->ndim * sizeof *dims);
        TRY(shape_elements(r->ctx, d->ndim, d->shape, &d->elements));
        return value_take(r, m->name, d, v);
    }
    if (!status) {
        TRY(sol_graph_input(r->graph, m->name, dtype, (int)type->shape->n_dim, dims, &v->t));
        map_set_int(r->leaves, (uintptr_t)v->t, r);
        PUSH(r->model->arena, r->model->inputs, io_of(r, m->name, v->t));
        PUSH(r->model->arena, r->model->places, value_place(r, m->name));
        value_note(r, m->name, v->t);
        return ctx_check(r->ctx);
    }
    if (status != SOL_ERR_UNSUPPORTED) return ctx_where(r->ctx, status, "input '%s': ", m->name);
    v->rejected = true;
    problem_add(r, "input", arena_printf(r->arena, "'%s'", m->name));
    return SOL_OK;
}

sol_status scope_add_inputs(struct reader *r, struct scope *s, const Onnx__Graph *g)
{
    struct map *symbols = map_create(r->arena);
    int64_t(*dims)[SOL_MAX_DIMS] = arena_try(r->arena, g->n_input * sizeof *dims);
    if (!dims) return ctx_fail(r->ctx, SOL_ERR_NOMEM, "no memory for %zu inputs", g->n_input);
    for (size_t i = 0; i < g->n_input; i++) {
        const Onnx__ValueInfo *m = g->input[i];
        if (!m->name || !*m->name) return ctx_fail(r->ctx, SOL_ERR_INVALID, "input %zu has no name", i);
        if (!m->type || !m->type->tensor_type || !m->type->tensor_type->shape) continue;
        if (m->type->tensor_type->shape->n_dim > SOL_MAX_DIMS)
            return ctx_fail(r->ctx, SOL_ERR_UNSUPPORTED, "input '%s': expected at most %d dimensions, got %zu", m->name,
                            SOL_MAX_DIMS, m->type->tensor_type->shape->n_dim);
        TRY(read_dims(r, m->name, m->type->tensor_type->shape, symbols, dims[i]));
    }
    TRY(check_given(r, g, symbols));
    TRY(open_sizes(r, s, g, dims, symbols));
    struct map *seen = map_create(r->arena);
    for (size_t i = 0; i < g->n_input; i++) {
        const char *name = g->input[i]->name;
        if (map_get(seen, name)) return ctx_fail(r->ctx, SOL_ERR_INVALID, "there are two inputs '%s'", name);
        map_set(seen, name, r);
        if (!map_get(s->values, name)) TRY(add_input(r, s, g->input[i], dims[i])); /* else: a weight's default */
    }
    return ctx_check(r->ctx);
}
