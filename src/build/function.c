/* A C function from outside: its source becomes a shared object in memory, which the cache keeps. */
#include "build/inside.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

struct making {
    struct sol_ctx *ctx;
    struct arena *arena;
    const struct compiler *cc;
    const struct function_source *of;
};

/* Compiles and links `text` in a folder of its own. */
static sol_status run_compiler(const struct making *m, const char *folder, const char *const *argv)
{
    int exit;
    const char *output;
    TRY(process_run(m->arena, argv, &exit, &output));
    if (!exit) return SOL_OK;
    struct text t = text_new(m->arena); /* positions in the source, without the folder's name */
    for (const char *at = output, *next; at && *at; at = next) {
        next = strstr(at, folder);
        text_add(&t, at, next ? (size_t)(next - at) : strlen(at));
        if (next) next += strlen(folder) + 1;
    }
    return ctx_fail(m->ctx, SOL_ERR_COMPILER, "layer %s: compiler '%s' rejected its %s (%s):\n%.1500s", m->of->name,
                    m->cc->path, m->of->objects ? "objects" : "source", compiler_ended(m->arena, exit),
                    t.at ? t.at : "");
}

static sol_status make_object(void *user, const char *text, const void **out_data, size_t *out_bytes)
{
    const struct making *m = user;
    const char *folder = folder_temporary(m->arena);
    if (!folder) return ctx_fail(m->ctx, SOL_ERR_IO, "layer %s: no place to compile its source", m->of->name);
    const char *source = arena_printf(m->arena, "%s/source.c", folder),
               *object = arena_printf(m->arena, "%s/o.so", folder);
    words argv = {0};
    PUSH(m->arena, argv, m->cc->path);
    PUSH(m->arena, argv, "-shared");
    for (int i = 0; m->cc->flags[i]; i++) PUSH(m->arena, argv, m->cc->flags[i]);
    PUSH(m->arena, argv, source);
    function_link(m->arena, m->of->objects, &argv);
    if (m->of->objects) PUSH(m->arena, argv, "-Wl,-z,defs"); /* what is missing is named now, not when it is called */
    PUSH(m->arena, argv, "-o");
    PUSH(m->arena, argv, object);
    PUSH(m->arena, argv, "-lm");
    PUSH(m->arena, argv, NULL);
    char *data = NULL;
    sol_status status = ctx_check(m->ctx);
    if (!status) status = file_write(m->ctx, source, text, strlen(text));
    if (!status) status = run_compiler(m, folder, argv.at);
    if (!status) status = file_read(m->ctx, m->arena, object, &data, out_bytes);
    *out_data = data;
    folder_remove(folder);
    return status;
}

/* The text that is compiled: the source, then a pointer to the function, whose type is checked. */
static const char *with_pointer(struct arena *a, const char *source, const char *symbol)
{
    return arena_printf(
        a,
        "#include <stdint.h>\n#line 1 \"%s.c\"\n%s\n#line 1 \"sol\"\n"
        "typedef int32_t sol_layer_function(void *const *, const int64_t *, const double *);\n"
        "_Static_assert(_Generic(&%s, sol_layer_function *: 1, default: 0),\n"
        "               \"expected int32_t %s(void *const *tensors, const int64_t *numbers, const double "
        "*reals)\");\n"
        "__attribute__((visibility(\"default\"))) sol_layer_function *const sol_found = %s;\n",
        symbol, source, symbol, symbol, symbol);
}

/* Whether the source has this name. A macro may put one together, so only a source that does not compile is asked. */
static bool mentions(const char *source, const char *symbol)
{
    const size_t n = strlen(symbol);
    for (const char *at = source; (at = strstr(at, symbol)); at += n) {
        const unsigned char before = at > source ? (unsigned char)at[-1] : ' ', behind = (unsigned char)at[n];
        if (!isalnum(before) && before != '_' && !isalnum(behind) && behind != '_') return true;
    }
    return false;
}

/* -- objects */

void function_link(struct arena *a, const char *objects, words *argv)
{
    for (const char *at = objects, *end; at && *at; at = *end ? end + 1 : end) {
        end = strchrnul(at, '\n');
        if (end > at) PUSH(a, *argv, arena_printf(a, "%.*s", (int)(end - at), at));
    }
}

sol_status function_declare(struct sol_ctx *ctx, struct arena *a, struct function_source *f)
{
    words paths = {0};
    struct text all = text_new(a);
    struct digest d;
    char hex[33];
    function_link(a, f->objects, &paths);
    digest_init(&d, NULL);
    for (int i = 0; i < paths.n; i++) {
        char *data, *whole = realpath(paths.at[i], NULL);
        size_t bytes;
        text_put(&all, "%s%s", i ? "\n" : "", whole ? whole : paths.at[i]);
        free(whole);
        const sol_status status = file_read(ctx, a, paths.at[i], &data, &bytes);
        if (status) return ctx_where(ctx, status, "layer %s: objects: ", f->name);
        digest_add(&d, data, bytes);
    }
    digest_hex(&d, hex);
    f->objects = all.at;
    f->source = arena_printf(
        a, "/* from objects %s */\nint32_t %s(void *const *tensors, const int64_t *numbers, const double *reals);", hex,
        f->symbol);
    return ctx_check(ctx);
}

sol_status build_function(struct sol_ctx *ctx, struct arena *a, const struct function_source *f, void **out_function)
{
    struct compiler cc;
    struct cache c;
    const struct build_request native = {.name = f->name, .device = "functions", .march = "native"};
    cache_open(&c, ctx, native.device);
    sol_status status = compiler_find(ctx, a, &c, &native, &cc);
    if (!status && !cc.path) status = compiler_missing(ctx, &cc);
    cache_close(&c);
    TRY(status);
    struct making m = {ctx, a, &cc, f};
    const struct code_request r = {
        .device = native.device, .arch = cc.id, .extension = "c", .make = make_object, .user = &m};
    const char *text = with_pointer(a, f->source, f->symbol);
    struct code_blob code;
    status = build_code(ctx, a, &r, text, &code);
    if (status == SOL_ERR_COMPILER && !f->objects && !mentions(f->source, f->symbol))
        return ctx_fail(ctx, status, "layer %s: symbol: its source defines no function '%s'", f->name, f->symbol);
    TRY(status);
    char hex[33]; /* names what is mapped: the loader knows libraries by their names */
    struct digest d;
    digest_init(&d, NULL);
    digest_text(&d, cc.id);
    digest_text(&d, text);
    digest_hex(&d, hex);
    void *handle = module_map_copy(a, arena_printf(a, "sol_f_%s", hex), code.data, code.bytes);
    void **found = handle ? dlsym(handle, "sol_found") : NULL;
    if (!found)
        return ctx_fail(ctx, SOL_ERR_IO, "layer %s: its function cannot be mapped: %s", f->name,
                        handle ? "no symbol" : "there is no /proc, or memory");
    *out_function = *found;
    return SOL_OK;
}
