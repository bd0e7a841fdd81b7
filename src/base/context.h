/* The inside of a context, for the files of this folder alone. */
#ifndef SOL_BASE_CONTEXT_H
#define SOL_BASE_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"

#ifndef SOL_VERSION /* the build system says it */
#define SOL_VERSION "0.1.0"
#endif
#define CONFIG_KEYS 17 /* rows of config.def; checked in context.c */

struct config_value { /* a value that was set once; lives as long as the context */
    struct config_value *older;
    char text[];
};
struct sol_ctx {
    struct sol_ctx_options options;
    int64_t start_ns; /* the log counts seconds from here */
    pthread_mutex_t lock;
    struct config_value *values;
    _Atomic(const char *) config[CONFIG_KEYS];
    atomic_int level;         /* enum log_level of log::level */
    _Atomic int64_t spent_ns; /* on tuning */
    atomic_int out_of_memory;
    atomic_size_t failed_bytes; /* of the allocation that failed last */
};

/* context.c */
void *ctx_allocate(struct sol_ctx *ctx, size_t bytes); /* NULL, and no mark, if it cannot be had */
/* Marks the context; the next ctx_check returns SOL_ERR_NOMEM. */
void ctx_out_of_memory(struct sol_ctx *ctx, size_t bytes);

/* log.c: the level of a name that config.def accepts. */
enum log_level log_level_named(const char *name);

#endif
