/* What applications register with a context: the first field of a ctx_part, with a lock and memory of its own. */
#ifndef SOL_REGISTRY_H
#define SOL_REGISTRY_H

#include <pthread.h>

#include "base/base.h"

struct registry {
    pthread_mutex_t lock;
    struct arena *arena; /* lives as long as the context */
};
/* For ctx_part.make and ctx_part.destroy: a part of `bytes`, zero but for its registry. NULL: out of memory. */
void *registry_make(struct sol_ctx *ctx, size_t bytes);
void registry_destroy(struct sol_ctx *ctx, void *part);

#endif
