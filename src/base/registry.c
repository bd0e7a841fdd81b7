#include "base/registry.h"

#include <string.h>

void *registry_make(struct sol_ctx *ctx, size_t bytes)
{
    struct registry *r = ctx_try(ctx, bytes);
    if (!r) return NULL;
    memset(r, 0, bytes);
    r->arena = arena_create(ctx);
    pthread_mutex_init(&r->lock, NULL);
    if (r->arena) return r;
    registry_destroy(ctx, r);
    return NULL;
}

void registry_destroy(struct sol_ctx *ctx, void *part)
{
    struct registry *r = part;
    arena_destroy(r->arena);
    pthread_mutex_destroy(&r->lock);
    ctx_free(ctx, r);
}
