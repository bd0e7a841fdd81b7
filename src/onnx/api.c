/* The functions of sol/onnx.h: they load a model from a file or memory, and return what it has. */
#include <string.h>

#include "onnx/reader.h"

/* -- loading */

enum { MOST_READINGS = 100 };

struct findings { /* of earlier readings */
    struct free_dims dims;
    struct wanted wanted;
    struct found_sizes sizes;
    int readings;
};

static sol_status translate_once(struct sol_onnx *model, const char *folder, const struct sol_onnx_options *options,
                                 struct findings *found, bool *out_again)
{
    struct arena *a = model->arena;
    struct reader r = {.model = model,
                       .ctx = model->ctx,
                       .arena = a,
                       .options = options,
                       .folder = folder,
                       .file = (const Onnx__Model *)model->file,
                       .functions = map_create(a),
                       .cheap = map_create(a),
                       .leaves = map_create(a),
                       .names = map_create(a),
                       .counts = map_create(a),
                       .origins = map_create(a),
                       .wanted = &found->wanted,
                       .free_dims = options && options->vary ? &found->dims : NULL,
                       .found = &found->sizes,
                       .reading = ++found->readings};
    found->dims.reading++;
    const sol_status status = model_translate(&r);
    const bool values = status && values_resolve(&r);
    if (values) found->dims.dims.n = found->sizes.n = 0; /* the arrays of the call say other sizes for the example */
    *out_again = values || (status && (found_resolve(&r) || (r.free_dims && vary_resolve(&r))));
    if (!status || *out_again) return status;
    ctx_fail(r.ctx, status, "%s", vary_named(&r, sol_error(r.ctx)));
    for (int i = 0; i < r.rejected.n; i++)
        options->on_rejected(options->user, r.rejected.at[i].node, vary_named(&r, r.rejected.at[i].why));
    return status;
}

/* Which sizes cannot vary, and which values of a call are needed, is found out by trying: the model is read again with
 * what the error says. */
static sol_status translate(struct sol_onnx *model, const char *folder, const struct sol_onnx_options *options)
{
    struct findings found = {0};
    bool again = true;
    sol_status status = SOL_OK;
    for (int i = 0; i < MOST_READINGS && again; i++) {
        if (model->graph) sol_graph_destroy(model->graph);
        model->graph = NULL;
        model->params.n = model->inputs.n = model->outputs.n = model->weights.n = 0;
        model->operators.n = model->open.n = model->places.n = 0;
        model->taken.n = 0;
        status = translate_once(model, folder, options, &found, &again);
    }
    return status;
}

static sol_status load(struct sol_ctx *ctx, const struct encoded *from, const char *folder,
                       const struct sol_onnx_options *options, struct sol_onnx **out_model)
{
    struct arena *a = arena_create(ctx);
    struct sol_onnx *model = a ? NEW(a, struct sol_onnx) : NULL;
    if (!model || ctx_check(ctx) == SOL_ERR_NOMEM) {
        arena_destroy(a);
        return ctx_fail(ctx, SOL_ERR_NOMEM, "%s: no memory", from->what);
    }
    *model = (struct sol_onnx){.ctx = ctx, .arena = a};
    sol_status status = message_read(ctx, from, &onnx__model__descriptor, &model->file);
    if (!status) status = translate(model, folder, options);
    if (status && model->file) ctx_where(ctx, status, "%s: ", from->what);
    if (status)
        sol_onnx_destroy(model);
    else
        *out_model = model;
    return status;
}

sol_status sol_onnx_load_memory(struct sol_ctx *ctx, const void *data, size_t bytes,
                                const struct sol_onnx_options *options, struct sol_onnx **out_model)
{
    *out_model = NULL;
    if (options && options->size < sizeof *options)
        return ctx_fail(ctx, SOL_ERR_INVALID, "sol_onnx_options: size %zu: expected %zu", options->size,
                        sizeof *options);
    return load(ctx, &(struct encoded){"model", data, bytes, NULL}, options ? options->folder : NULL, options,
                out_model);
}

sol_status sol_onnx_load(struct sol_ctx *ctx, const char *path, const struct sol_onnx_options *options,
                         struct sol_onnx **out_model)
{
    *out_model = NULL;
    if (options && options->size < sizeof *options)
        return ctx_fail(ctx, SOL_ERR_INVALID, "sol_onnx_options: size %zu: expected %zu", options->size,
                        sizeof *options);
    struct arena *a = arena_create(ctx); /* for the bytes of the file, which are not needed any more afterwards */
    if (!a) return ctx_fail(ctx, SOL_ERR_NOMEM, "%s: no memory", path);
    char *bytes;
    size_t n;
    sol_status status = file_read(ctx, a, path, &bytes, &n);
    if (!status) {
        const char *slash = strrchr(path, '/');
        char *folder = arena_strdup(a, slash ? path : ".");
        if (slash) folder[MAX(slash - path, 1)] = 0;
        status = load(ctx, &(struct encoded){slash ? slash + 1 : path, bytes, n, a}, folder, options, out_model);
    }
    arena_destroy(a);
    return status;
}

void sol_onnx_destroy(struct sol_onnx *model)
{
    if (!model) return;
    if (model->graph) sol_graph_destroy(model->graph);
    message_free(model->ctx, model->file);
    arena_destroy(model->arena);
}

/* -- what a model has */

struct sol_graph *sol_onnx_graph(struct sol_onnx *model)
{
    return model->graph;
}

int sol_onnx_inputs(const struct sol_onnx *model)
{
    return model->inputs.n;
}

int sol_onnx_outputs(const struct sol_onnx *model)
{
    return model->outputs.n;
}

struct sol_io sol_onnx_input(const struct sol_onnx *model, int i)
{
    return model->inputs.at[i];
}

struct sol_io sol_onnx_output(const struct sol_onnx *model, int i)
{
    return model->outputs.at[i];
}

int sol_onnx_place(const struct sol_onnx *model, int i)
{
    return i >= 0 && i < model->places.n ? model->places.at[i] : -1;
}

const struct sol_onnx_value *sol_onnx_taken(const struct sol_onnx *model, int i)
{
    return i >= 0 && i < model->taken.n ? &model->taken.at[i].value : NULL;
}

int64_t sol_onnx_taken_size(const struct sol_onnx *model, int i, int k)
{
    const struct taken *t = i >= 0 && i < model->taken.n ? &model->taken.at[i] : NULL;
    return t && t->sizes ? t->sizes[k] : -1;
}

int sol_onnx_weights(const struct sol_onnx *model)
{
    return model->weights.n;
}

struct sol_io sol_onnx_weight(const struct sol_onnx *model, int i)
{
    return model->weights.at[i];
}

const char *sol_onnx_open_why(const struct sol_onnx *model, int i)
{
    return i >= 0 && i < model->open.n ? model->open.at[i].why : NULL;
}

const char *sol_onnx_open_limited(const struct sol_onnx *model, int i)
{
    return i >= 0 && i < model->open.n ? model->open.at[i].limited : NULL;
}

int sol_onnx_params(const struct sol_onnx *model)
{
    return model->params.n;
}

const void *sol_onnx_param(const struct sol_onnx *model, int i)
{
    return i >= 0 && i < model->params.n ? model->params.at[i] : NULL;
}

sol_status sol_onnx_bind(const struct sol_onnx *model, struct sol_net *net, struct sol_params **out_params)
{
    TRY(sol_params_create(net, out_params));
    sol_status status = SOL_OK;
    for (int i = 0; i < model->params.n && !status; i++) status = sol_params_set(*out_params, i, model->params.at[i]);
    if (!status) return SOL_OK;
    sol_params_destroy(*out_params);
    *out_params = NULL;
    return status;
}

const char *sol_onnx_operator(const struct sol_onnx *model, int i, int64_t *out_count)
{
    if (i < 0 || i >= model->operators.n) return NULL;
    *out_count = model->operators.at[i]->n;
    return model->operators.at[i]->name;
}

const char *sol_onnx_open(const struct sol_onnx *model, int i, int64_t *out_size)
{
    if (i < 0 || i >= model->open.n) return NULL;
    *out_size = model->open.at[i].size;
    return model->open.at[i].name;
}

const char *sol_onnx_about(const struct sol_onnx *model)
{
    return model->about;
}

const char *sol_onnx_supported(int i, const char **out_domain, int *out_first, int *out_last)
{
    const struct op *op = op_at(i);
    if (!op) return NULL;
    *out_domain = op->domain;
    *out_first = op->first;
    *out_last = op->last;
    return op->name;
}
