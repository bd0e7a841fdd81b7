/* The inputs of a model: their types, the sizes that the model leaves open (from the options), and those that always
 * have the same value (from the options, too), which are constants then. */
#include <string.h>

#include "onnx/reader.h"

static int64_t given_size(const struct reader *r, const char *name)
{
    for (int i = 0; r->options && i < r->options->ndims; i++)
        if (!strcmp(r->options->dims[i].name, name)) return r->options->dims[i].size;
    return -1;
}

static const struct sol_onnx_value *fixed_value(const struct reader *r, const char *input)
{
    for (int i = 0; r->options && i < r->options->nvalues; i++)
        if (!strcmp(r->options->values[i].name, input)) return &r->options->values[i];
    return NULL;
}

/* Sizes of one input, -1 where open: from the file, or from "input.axis". Notes what a symbol was found to be. */
static sol_status read_dims(struct reader *r, const char *input, const Onnx__Shape *shape, struct map *symbols,
                            int64_t *out)
{
    const struct sol_onnx_value *fixed = fixed_value(r, input);
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

static sol_status open_sizes(struct reader *r, const Onnx__Graph *g, int64_t (*dims)[SOL_MAX_DIMS], struct map *symbols)
{
    struct text missing = text_new(r->arena);
    const char *example = NULL;
    for (size_t k = 0; k < g->n_input; k++) {
        const Onnx__ValueInfo *m = g->input[k];
        if (!m->type || !m->type->tensor_type || !m->type->tensor_type->shape) continue;
        const Onnx__Shape *shape = m->type->tensor_type->shape;
        for (size_t i = 0; i < shape->n_dim && i < SOL_MAX_DIMS; i++) {
            const char *symbol = shape->dim[i]->dim_param;
            const int64_t *known = symbol && *symbol ? map_get(symbols, symbol) : NULL;
            if (dims[k][i] < 0 && known) dims[k][i] = *known;
            if (dims[k][i] >= 0) continue;
            const char *name = symbol && *symbol ? symbol : arena_printf(r->arena, "%s.%zu", m->name, i);
            if (missing.n < 1000)
                text_put(&missing, "%s'%.80s' of input '%.80s'", missing.n ? ", " : "", name, m->name);
            if (!example) example = name;
        }
    }
    TRY(ctx_check(r->ctx));
    if (!example) return SOL_OK;
    return ctx_fail(r->ctx, SOL_ERR_INVALID,
                    "the model leaves sizes open: %s; give each a size, such as --dim %s=1 (dims of sol_onnx_options)",
                    missing.at, example);
}

/* Every size that was given must have found its place: a misspelt name would be silent otherwise. */
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
    for (int i = 0; r->options && i < r->options->nvalues; i++) {
        const char *name = r->options->values[i].name;
        bool found = false;
        for (size_t k = 0; k < g->n_input && !found; k++) found = g->input[k]->name && !strcmp(g->input[k]->name, name);
        if (!found) return ctx_fail(r->ctx, SOL_ERR_INVALID, "value of '%s': there is no such input", name);
    }
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
    const struct sol_onnx_value *fixed = fixed_value(r, m->name);
    if (!status && fixed) {
        struct data *d = NEW(r->arena, struct data);
        *d = (struct data){.dtype = dtype, .ndim = fixed->ndim};
        memcpy(d->shape, dims, (size_t)fixed->ndim * sizeof *dims);
        TRY(shape_elements(r->ctx, d->ndim, d->shape, &d->elements));
        d->at = arena_memdup(r->arena, fixed->data, (size_t)d->elements * dtype_def(dtype)->bytes);
        v->data = d;
        return ctx_check(r->ctx);
    }
    if (!status) {
        TRY(sol_graph_input(r->graph, m->name, dtype, (int)type->shape->n_dim, dims, &v->t));
        map_set_int(r->leaves, (uintptr_t)v->t, r);
        PUSH(r->model->arena, r->model->inputs, io_of(r, m->name, v->t));
        return SOL_OK;
    }
    if (status != SOL_ERR_UNSUPPORTED) return ctx_where(r->ctx, status, "input '%s': ", m->name);
    v->refused = true;
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
    TRY(open_sizes(r, g, dims, symbols));
    for (size_t i = 0; i < g->n_input; i++)
        if (!map_get(s->values, g->input[i]->name))
            TRY(add_input(r, s, g->input[i], dims[i])); /* else: a weight's default */
    return SOL_OK;
}
