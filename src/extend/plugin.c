/* Loads plug-ins with layers and passes. They call SOL through a table and stay loaded. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/registry.h"
#include "extend/extend.h"

static const struct sol_extend table = {
    .size = sizeof table,
    .version = SOL_EXTEND_VERSION,
    .layer_register = sol_layer_register,
    .pass_register = sol_pass_register,
    .graph_first = sol_graph_first,
    .layer_next = sol_layer_next,
    .layer_kind = sol_layer_kind,
    .layer_name = sol_layer_name,
    .layer_inputs = sol_layer_inputs,
    .layer_outputs = sol_layer_outputs,
    .layer_input = sol_layer_input,
    .layer_output = sol_layer_output,
    .layer_attribute = sol_layer_attribute,
    .tensor_maker = sol_tensor_maker,
    .tensor_readers = sol_tensor_readers,
    .tensor_dtype = sol_tensor_dtype,
    .tensor_ndim = sol_tensor_ndim,
    .tensor_size = sol_tensor_size,
    .tensor_known = sol_tensor_known,
    .graph_insert = sol_graph_insert,
    .graph_replace = sol_graph_replace,
    .graph_fail = sol_graph_fail,
};

struct loaded { /* of a context */
    struct registry base;
    const char *paths; /* the value of the key whose plug-ins are loaded */
    VECTOR(const char *) done;
};

static void *make(struct sol_ctx *ctx)
{
    struct loaded *d = registry_make(ctx, sizeof *d);
    if (d) d->paths = "";
    return d;
}

/* The caller holds the lock, so that each plug-in registers once. */
static sol_status load(struct sol_ctx *ctx, struct loaded *d, const char *path)
{
    char *real = realpath(path, NULL);
    if (!real) return ctx_fail(ctx, SOL_ERR_IO, "extension %s: no such file", path);
    const char *own = arena_strdup(d->base.arena, real);
    free(real);
    for (int i = 0; i < d->done.n; i++)
        if (!strcmp(d->done.at[i], own)) return SOL_OK;
    void *handle = dlopen(own, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE), *symbol;
    if (!handle) return ctx_fail(ctx, SOL_ERR_IO, "extension %s: %s", path, dlerror());
    symbol = dlsym(handle, "sol_extension");
    if (!symbol)
        return ctx_fail(ctx, SOL_ERR_INVALID, "extension %s: it does not export sol_extension (sol/extend.h)", path);
    sol_extension_function *begin;
    memcpy(&begin, &symbol, sizeof begin);
    const sol_status status = begin(&table, ctx);
    if (status) return ctx_where(ctx, status, "extension %s: ", path);
    PUSH(d->base.arena, d->done, own);
    return ctx_check(ctx);
}

static sol_status load_all(struct sol_ctx *ctx, struct loaded *d, const char *paths)
{
    for (const char *at = paths; *at; at += *at == ':') {
        const char *path = arena_printf(d->base.arena, "%.*s", (int)strcspn(at, ":"), at);
        at += strlen(path);
        if (*path) TRY(load(ctx, d, path));
    }
    d->paths = paths;
    return SOL_OK;
}

static struct loaded *loaded_of(struct sol_ctx *ctx)
{
    static const struct ctx_part kind = {.make = make, .destroy = registry_destroy};
    return ctx_part(ctx, &kind);
}

sol_status sol_extension_load(struct sol_ctx *ctx, const char *path)
{
    struct loaded *d = loaded_of(ctx);
    if (!d) return ctx_fail(ctx, SOL_ERR_NOMEM, "extension %s: no memory", path);
    pthread_mutex_lock(&d->base.lock);
    const sol_status status = load(ctx, d, path);
    pthread_mutex_unlock(&d->base.lock);
    return status;
}

sol_status extend_load(struct sol_ctx *ctx)
{
    const char *paths = ctx_config(ctx, "extensions");
    struct loaded *d = *paths ? loaded_of(ctx) : NULL;
    if (!*paths) return SOL_OK;
    if (!d) return ctx_fail(ctx, SOL_ERR_NOMEM, "extensions: no memory");
    pthread_mutex_lock(&d->base.lock);
    const sol_status status = paths == d->paths ? SOL_OK : load_all(ctx, d, paths);
    pthread_mutex_unlock(&d->base.lock);
    return status;
}
