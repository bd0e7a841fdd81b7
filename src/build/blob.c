/* Code that another compiler makes from a source, kept in the cache by the digest of what it is made from. */
#include "build/inside.h"

#include <string.h>

/* The message has the compiler's log, and names the file with the text that was rejected and the log behind it. */
static sol_status rejected(struct cache *c, const char *key, const struct code_request *r)
{
    const char *folder;
    const char *why = arena_strdup(c->arena, sol_error(c->ctx));
    if (cache_source_folder(c, &folder)) return ctx_fail(c->ctx, SOL_ERR_COMPILER, "%s", why);
    const char *path = arena_printf(c->arena, "%s/rejected_%s.%s", folder, key, r->extension);
    const char *both = arena_printf(c->arena, "%s\n/*\n%s\n*/\n", r->text, why);
    if (file_write(c->ctx, path, both, strlen(both))) return ctx_fail(c->ctx, SOL_ERR_COMPILER, "%s", why);
    return ctx_fail(c->ctx, SOL_ERR_COMPILER, "%s\nThe source, with this message at its end, is kept in %s", why, path);
}

/* Keeps the text of code that was made (key compiler::debug). */
static sol_status keep_text(struct cache *c, const char *key, const struct code_request *r)
{
    const char *folder;
    if (!ctx_debugs(c->ctx)) return SOL_OK;
    TRY(cache_source_folder(c, &folder));
    return file_write(c->ctx, arena_printf(c->arena, "%s/%s.%s", folder, key, r->extension), r->text, strlen(r->text));
}

static const char *key_of(struct arena *a, const char *arch, const char *text)
{
    struct digest d;
    char hex[33];
    digest_init(&d, NULL);
    digest_text(&d, arch);
    digest_text(&d, text);
    digest_hex(&d, hex);
    return arena_printf(a, "sol_b_%s", hex);
}

sol_status build_code(struct sol_ctx *ctx, struct arena *a, const struct code_request *r, const void **out_data,
                      size_t *out_bytes)
{
    struct cache c;
    struct cache_entry e;
    sol_status status = SOL_OK;
    const char *key = key_of(a, r->arch, r->text);
    cache_open(&c, ctx, r->device);
    if (cache_find(&c, CACHE_OBJECT, key, &e)) {
        *out_data = arena_memdup(a, e.data, e.bytes);
        *out_bytes = e.bytes;
    } else {
        cache_make_room(&c);
        status = r->make(r->user, r->text, out_data, out_bytes);
        if (status == SOL_ERR_COMPILER) status = rejected(&c, key, r);
        if (!status) cache_keep(&c, CACHE_OBJECT, *out_data, *out_bytes, 1, &key);
    }
    if (!status) status = keep_text(&c, key, r);
    cache_close(&c);
    return status;
}

/* -- of applications */

#define FOLDER "applications" /* as if it were a device */

void sol_cache_keep(struct sol_ctx *ctx, const char *text, const void *data, size_t bytes)
{
    struct arena *a = arena_create(ctx);
    struct cache c;
    if (!a) return;
    const char *key = key_of(a, FOLDER, text);
    cache_open(&c, ctx, FOLDER);
    cache_make_room(&c);
    cache_keep(&c, CACHE_OBJECT, data, bytes, 1, &key);
    cache_close(&c);
    arena_destroy(a);
}

sol_status sol_cache_find(struct sol_ctx *ctx, const char *text, void **out_data, size_t *out_bytes)
{
    struct arena *a = arena_create(ctx);
    struct cache c;
    struct cache_entry e;
    *out_data = NULL;
    *out_bytes = 0;
    if (!a) return ctx_check(ctx);
    cache_open(&c, ctx, FOLDER);
    const bool found = cache_find(&c, CACHE_OBJECT, key_of(a, FOLDER, text), &e);
    if (found) *out_data = ctx_try(ctx, e.bytes + 1);
    if (*out_data) {
        memcpy(*out_data, e.data, e.bytes);
        *out_bytes = e.bytes;
    }
    cache_close(&c);
    arena_destroy(a);
    return found && !*out_data ? ctx_fail(ctx, SOL_ERR_NOMEM, "out of memory: an entry of the cache") : SOL_OK;
}
