/* Layers from outside: checks what an application or plug-in says, and compiles functions that are given as C text. */
#include <ctype.h>
#include <string.h>

#include "build/build.h"
#include "layers/layers.h"

static bool is_identifier(const char *s)
{
    bool good = *s && !isdigit((unsigned char)*s);
    for (; *s; s++) good &= isalnum((unsigned char)*s) || *s == '_';
    return good;
}

static sol_status check(struct sol_ctx *ctx, const struct sol_layer_def *def)
{
    if (def->size < sizeof *def)
        return ctx_fail(ctx, SOL_ERR_INVALID, "sol_layer_register: expected a struct of %zu bytes, got %zu: set `size`",
                        sizeof *def, def->size);
    if (!def->name || !def->definition)
        return ctx_fail(ctx, SOL_ERR_INVALID, "layer '%s': expected a name and a definition",
                        def->name ? def->name : "");
    if (def->source && def->objects)
        return ctx_fail(ctx, SOL_ERR_INVALID, "layer %s: expected a source or objects, got both", def->name);
    if ((def->source || def->objects) && !(def->symbol && is_identifier(def->symbol)))
        return ctx_fail(ctx, SOL_ERR_INVALID, "layer %s: symbol: expected the name of the function in its %s, got '%s'",
                        def->name, def->objects ? "objects" : "source", def->symbol ? def->symbol : "");
    return SOL_OK;
}

sol_status sol_layer_register(struct sol_ctx *ctx, const struct sol_layer_def *def)
{
    TRY(check(ctx, def));
    if (!def->objects && (!def->source || def->function)) return layer_register(ctx, def);
    struct sol_layer_def ready = *def;
    struct arena *a = arena_create(ctx);
    if (!a) return ctx_check(ctx);
    struct function_source f = {def->name, def->source, def->symbol, def->objects};
    sol_status status = f.objects ? function_declare(ctx, a, &f) : SOL_OK;
    ready.source = f.source;
    ready.objects = f.objects;
    void *function = NULL;
    if (!status && !def->function) {
        status = build_function(ctx, a, &f, &function);
        memcpy(&ready.function, &function, sizeof function);
    }
    if (!status) status = layer_register(ctx, &ready);
    arena_destroy(a);
    return status;
}
