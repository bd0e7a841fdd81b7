/* Code that another compiler makes from a source, kept in the cache by the digest of what it is made from. Code of
 * single kernels is kept by each of them, as objects of C compilers are. */
#include "build/inside.h"

#include <string.h>

/* The message names the file with the text that was rejected, and what the compiler said behind it. `said` NULL: the
 * message has all of that. */
static sol_status rejected(struct cache *c, const char *key, const struct code_request *r, const char *text,
                           const char *said)
{
    const char *folder;
    const char *why = arena_strdup(c->arena, sol_error(c->ctx));
    if (cache_source_folder(c, &folder)) return ctx_fail(c->ctx, SOL_ERR_COMPILER, "%s", why);
    const char *path = arena_printf(c->arena, "%s/rejected_%s.%s", folder, key, r->extension);
    const char *both = arena_printf(c->arena, "%s\n/*\n%s\n*/\n", text, said ? said : why);
    if (file_write(c->ctx, path, both, strlen(both))) return ctx_fail(c->ctx, SOL_ERR_COMPILER, "%s", why);
    return ctx_fail(c->ctx, SOL_ERR_COMPILER,
                    "%s\nThe source, with all that the compiler said at its end, is kept in %s", why, path);
}

/* Keeps the text of code that was made (key compiler::debug). */
static sol_status keep_text(struct cache *c, const char *key, const struct code_request *r, const char *text)
{
    const char *folder;
    if (!ctx_debugs(c->ctx)) return SOL_OK;
    TRY(cache_source_folder(c, &folder));
    return file_write(c->ctx, arena_printf(c->arena, "%s/%s.%s", folder, key, r->extension), text, strlen(text));
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

static bool find(struct cache *c, struct arena *a, const char *key, struct cache_entry *e, struct code_blob *out)
{
    if (!cache_find(c, CACHE_OBJECT, key, e)) return false;
    *out = (struct code_blob){arena_memdup(a, e->data, e->bytes), e->bytes};
    return true;
}

/* Makes code, which the cache keeps for these keys. */
static sol_status make(struct cache *c, const struct code_request *r, const char *text, int nkey,
                       const char *const *key, struct code_blob *out)
{
    cache_make_room(c);
    *out = (struct code_blob){0};
    const sol_status status = r->make(r->user, text, &out->data, &out->bytes);
    if (status) return status == SOL_ERR_COMPILER ? rejected(c, key[0], r, text, out->data) : status;
    cache_keep(c, CACHE_OBJECT, out->data, out->bytes, nkey, key);
    return SOL_OK;
}

sol_status build_code(struct sol_ctx *ctx, struct arena *a, const struct code_request *r, const char *text,
                      struct code_blob *out)
{
    struct cache c;
    struct cache_entry e;
    const char *key = key_of(a, r->arch, text);
    cache_open(&c, ctx, r->device);
    sol_status status = find(&c, a, key, &e, out) ? SOL_OK : make(&c, r, text, 1, &key, out);
    if (!status) status = keep_text(&c, key, r, text);
    cache_close(&c);
    return status;
}

/* -- kernels */

/* Numbers the blobs of kernels that the cache has. Returns the kernels that it has not, each once. */
static int find_kernels(struct cache *c, struct arena *a, int n, struct map *blob_of, struct code_kernels *out,
                        int *missing)
{
    int nmissing = 0;
    for (int i = 0; i < n; i++) {
        struct cache_entry e;
        struct code_blob blob;
        const char *symbol = out->kernel[i].symbol;
        if (map_get(blob_of, symbol)) continue;
        if (!ctx_debugs(c->ctx) && find(c, a, symbol, &e, &blob)) { /* their text is kept */
            PUSH(a, out->blobs, blob);
            for (int k = 0; k < e.keys.n; k++)
                if (!map_get(blob_of, e.keys.at[k]))
                    map_set(blob_of, arena_strdup(a, e.keys.at[k]), (void *)(intptr_t)out->blobs.n);
        } else {
            missing[nmissing++] = i;
            map_set(blob_of, symbol, (void *)(intptr_t)-1);
        }
    }
    return nmissing;
}

static sol_status make_kernels(struct cache *c, struct arena *a, const struct code_request *r,
                               const struct source_text *kernel, struct code_kernels *out, const int *missing)
{
    struct source_text *text = NEW_ARRAY(a, struct source_text, out->made + 1);
    const char **symbol = NEW_ARRAY(a, const char *, out->made + 1);
    struct code_blob blob;
    if (!out->made) return SOL_OK;
    TRY(ctx_check(c->ctx));
    for (int i = 0; i < out->made; i++) {
        text[i] = kernel[missing[i]];
        symbol[i] = out->kernel[missing[i]].symbol;
    }
    const char *all = batch_source(a, out->made, text, symbol);
    TRY(make(c, r, all, out->made, symbol, &blob));
    PUSH(a, out->blobs, blob);
    return keep_text(c, symbol[0], r, all);
}

sol_status build_kernels(struct sol_ctx *ctx, struct arena *a, const struct code_request *r, int n,
                         const struct source_text *kernel, struct code_kernels *out)
{
    struct cache c;
    struct map *blob_of = map_create(a); /* by symbol: 1 + number of the blob; -1: the one that is made here */
    int *missing = NEW_ARRAY(a, int, n + 1);
    *out = (struct code_kernels){.kernel = NEW_ARRAY(a, struct code_kernel, n + 1)};
    TRY(ctx_check(ctx));
    for (int i = 0; i < n; i++) {
        char symbol[SOURCE_SYMBOL];
        source_symbol(r->arch, &kernel[i], symbol);
        out->kernel[i].symbol = arena_strdup(a, symbol);
    }
    cache_open(&c, ctx, r->device);
    out->made = find_kernels(&c, a, n, blob_of, out, missing);
    const sol_status status = make_kernels(&c, a, r, kernel, out, missing);
    cache_close(&c);
    for (int i = 0; i < n; i++) {
        const intptr_t blob = (intptr_t)map_get(blob_of, out->kernel[i].symbol);
        out->kernel[i].blob = blob < 0 ? out->blobs.n - 1 : (int)blob - 1;
    }
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
