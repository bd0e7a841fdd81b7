/* Inputs whose values decide about shapes. The options fix some. Others are found by reading: where a node needs one,
 * the model is read again with the value of the call. If sizes may vary, the elements of a list of integers then become
 * dimensions that vary, so that one program serves all their values. What must be a number is one, and each call is
 * compared with it. */
#include <string.h>

#include "onnx/reader.h"

enum {
    MOST_TAKEN = 64, /* elements */
    MOST_SIZES = 12  /* of a list whose elements vary */
};

static const struct sol_onnx_value *option_value(const struct reader *r, const char *input)
{
    for (int i = 0; r->options && i < r->options->nvalues; i++)
        if (!strcmp(r->options->values[i].name, input)) return &r->options->values[i];
    return NULL;
}

int value_place(const struct reader *r, const char *input)
{
    const Onnx__Graph *g = r->file->graph;
    int place = 0;
    for (size_t k = 0; k < g->n_input && strcmp(g->input[k]->name, input) != 0; k++) {
        bool weight = false;
        for (size_t i = 0; i < g->n_initializer && !weight; i++)
            weight = g->initializer[i]->name && !strcmp(g->initializer[i]->name, g->input[k]->name);
        place += !weight && !option_value(r, g->input[k]->name);
    }
    return place;
}

/* The array of a call for this input, if its data is known and small, as shapes and axes are; NULL: it is not. */
static const struct sol_onnx_value *offered_value(const struct reader *r, const char *input)
{
    const int place = r->options && r->options->noffered ? value_place(r, input) : -1;
    for (int i = 0; r->options && i < r->options->noffered; i++) {
        const struct sol_onnx_value *v = &r->options->offered[i];
        if (v->name ? strcmp(v->name, input) : i != place) continue;
        int64_t elements = 1;
        for (int d = 0; d < v->ndim; d++) elements = size_mul(elements, v->shape[d]);
        return v->data && elements <= MOST_TAKEN ? v : NULL;
    }
    return NULL;
}

static const struct wanted_value *find_wanted(const struct reader *r, const char *input)
{
    for (int i = 0; i < r->wanted->values.n; i++)
        if (!strcmp(r->wanted->values.at[i].name, input)) return &r->wanted->values.at[i];
    return NULL;
}

const struct sol_onnx_value *value_fixed(const struct reader *r, const char *input)
{
    const struct sol_onnx_value *v = option_value(r, input);
    return v || !find_wanted(r, input) ? v : offered_value(r, input);
}

const char *value_origin(struct reader *r, const struct value *v, int least)
{
    const uint64_t origins = v && v->t ? (uint64_t)(uintptr_t)map_get_int(r->origins, (uintptr_t)v->t) : 0;
    r->missing |= origins;
    if (least < 1) r->missing_zero |= origins;
    return origins ? "the value of an input, which only a call tells" : "what is computed while running";
}

bool values_resolve(struct reader *r)
{
    bool any = false;
    for (int i = 0; i < r->small.n; i++) {
        const char *name = r->small.at[i];
        if (!(r->missing >> i & 1) || find_wanted(r, name) || !offered_value(r, name)) continue;
        const struct wanted_value wanted = {name, r->missing_zero >> i & 1 ? 0 : 1};
        PUSH(r->arena, r->wanted->values, wanted);
        any = true;
    }
    return any;
}

void value_note(struct reader *r, const char *input, const struct sol_tensor *t)
{
    int64_t elements = 1;
    for (int d = 0; d < sol_tensor_ndim(t); d++) elements = size_mul(elements, sol_tensor_size(t, d));
    if (size_least(elements) > MOST_TAKEN || r->small.n == 64) return;
    map_set_int(r->origins, (uintptr_t)t, (void *)((uintptr_t)1 << r->small.n));
    PUSH(r->arena, r->small, arena_strdup(r->arena, input));
}

/* A size for each element; NULL: none may vary. */
static sol_status sizes_of(struct reader *r, const struct data *d, const char *name, const int64_t **out)
{
    const struct wanted_value *wanted = find_wanted(r, name);
    *out = NULL;
    if (!r->free_dims || !wanted || d->dtype != SOL_I64 || d->ndim > 1 || d->elements > MOST_SIZES) return SOL_OK;
    int64_t *sizes = NEW_ARRAY(r->model->arena, int64_t, d->elements + 1);
    bool any = false;
    for (int k = 0; k < (int)d->elements; k++) {
        const char *element = d->ndim ? arena_printf(r->arena, "%s[%d]", name, k) : name;
        const struct element e = {element, data_int(d, k), wanted->least};
        TRY(vary_value(r, &e, &sizes[k]));
        any |= size_varies(sizes[k]);
    }
    *out = any ? sizes : NULL;
    return ctx_check(r->ctx);
}

static sol_status make_sizes(struct reader *r, const char *name, const struct data *d, const int64_t *sizes,
                             struct sol_tensor **out_t)
{
    const struct sol_attr list = {"sizes", SOL_ATTR_INT, (int)d->elements, sizes, NULL, NULL};
    const struct sol_attr scalar = {"shape", SOL_ATTR_INT, 0, sizes, NULL, NULL};
    struct sol_new_layer l = {.kind = "Sizes", .nattr = 1, .attrs = &list, .name = name};
    TRY(sol_graph_layer(r->graph, &l, 1, out_t));
    map_set_int(r->cheap, (uintptr_t)*out_t, r);
    if (d->ndim) return SOL_OK;
    l = (struct sol_new_layer){.kind = "Reshape", .nin = 1, .in = out_t, .nattr = 1, .attrs = &scalar, .name = name};
    struct sol_tensor *t;
    TRY(sol_graph_layer(r->graph, &l, 1, &t));
    map_set_int(r->cheap, (uintptr_t)t, r);
    *out_t = t;
    return SOL_OK;
}

sol_status value_take(struct reader *r, const char *name, struct data *d, struct value *v)
{
    const struct sol_onnx_value *from = value_fixed(r, name);
    struct arena *a = r->model->arena;
    struct taken taken = {.place = value_place(r, name)};
    d->at = arena_memdup(a, from->data, (size_t)d->elements * dtype_def(d->dtype)->bytes);
    taken.value = (struct sol_onnx_value){arena_strdup(a, name), d->dtype, d->ndim,
                                          arena_memdup(a, d->shape, sizeof d->shape), d->at};
    TRY(ctx_check(r->ctx));
    if (from != option_value(r, name)) {
        TRY(sizes_of(r, d, name, &taken.sizes));
        PUSH(a, r->model->taken, taken);
    }
    if (taken.sizes) return make_sizes(r, name, d, taken.sizes, &v->t);
    v->data = d;
    return ctx_check(r->ctx);
}
