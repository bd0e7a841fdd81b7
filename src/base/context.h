/* The internals of a context, for the files of this folder only. */
#ifndef SOL_BASE_CONTEXT_H
#define SOL_BASE_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"

#ifndef SOL_VERSION /* the build system says it */
#define SOL_VERSION "0.1.0"
#endif
#define X(...) +1
enum {
    CONFIG_KEYS = 0
#include "base/config.def"
};
#undef X

struct config_value { /* a value that was set once; lives as long as the context */
    struct config_value *older;
    char text[];
};
struct kept_part { /* of struct ctx_part */
    struct kept_part *older;
    const struct ctx_part *kind;
    void *part;
};
typedef void (*on_log_fn)(void *user, int level, const char *line);
typedef void (*on_progress_fn)(void *user, const char *what, int done, int total);
typedef void (*on_step_fn)(void *user, const char *label);
struct bar { /* progress on a terminal; guarded by the lock of stderr */
    bool shown;
    int64_t begin_ns, drawn_ns; /* begin 0: nothing is under way */
    char what[64];              /* its begin, as it was drawn last */
};
struct sol_ctx {
    struct sol_ctx_options options;
    _Atomic(on_log_fn) on_log; /* those of the options, or what was set since */
    _Atomic(on_progress_fn) on_progress;
    _Atomic(on_step_fn) on_step;
    struct bar bar;
    atomic_bool progressing; /* progress was told, and not yet its end */
    int64_t start_ns;        /* the log counts seconds from here */
    pthread_mutex_t lock;
    struct config_value *values;
    struct kept_part *parts; /* newest first; under the lock */
    _Atomic(const char *) config[CONFIG_KEYS];
    atomic_int level;             /* enum log_level of log::level */
    atomic_bool debugs, profiles; /* the keys compiler::debug and profile */
    _Atomic int64_t spent_ns;     /* on tuning */
    atomic_int out_of_memory;
    atomic_size_t failed_bytes; /* of the allocation that failed last */
    char *reserve;              /* addresses without memory, until the system has none left */
    size_t reserve_used;        /* under the lock */
};

/* context.c */
void *ctx_allocate(struct sol_ctx *ctx, size_t bytes); /* NULL without a mark if memory runs out */
/* Marks the context; the next ctx_check returns SOL_ERR_NOMEM. */
void ctx_out_of_memory(struct sol_ctx *ctx, size_t bytes);
/* Returns writable, zeroed memory after memory ran out, and marks the context. It returns the same memory again and
 * again. Requests above the size of the reserve (64 MiB) fail; callers whose sizes come from outside use arena_try. */
void *ctx_reserve(struct sol_ctx *ctx, size_t bytes);

/* progress.c */
static inline on_progress_fn ctx_on_progress(struct sol_ctx *ctx)
{
    return atomic_load(&ctx->on_progress);
}
/* Removes the bar before other output to stderr. The caller holds the lock of stderr. */
void bar_wipe(struct sol_ctx *ctx);

/* log.c: the level for a name of config.def. */
enum log_level log_level_named(const char *name);

#endif
