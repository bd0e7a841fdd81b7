/* Base: status values, arenas, text, vectors, logging, processes. All other folders use it.
 *
 * Memory rule: everything that a compilation allocates lives in one arena, which is freed as a whole. arena_alloc never
 * returns NULL. When memory runs out it marks the context and returns memory that is still valid to write, so code
 * does not test each allocation. TRY(ctx_check(ctx)) at the end of each pass turns the mark into SOL_ERR_NOMEM. */
#ifndef SOL_BASE_H
#define SOL_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sol/sol.h"

#define SOL_MAX_DIMS 12
#define COUNT_OF(a) ((int)(sizeof(a) / sizeof *(a)))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
static inline int64_t floor_div(int64_t a, int64_t b) /* rounds down */
{
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static inline int64_t ceil_div(int64_t a, int64_t b) /* neither is negative */
{
    return (a + b - 1) / b;
}
static inline int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a < 0 ? -a : a;
}

/* Returns a failure to the caller. */
#define TRY(call)                            \
    do {                                     \
        sol_status try_status_ = (call);     \
        if (try_status_) return try_status_; \
    } while (0)

#if defined __GNUC__
#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))
#else
#define PRINTF_LIKE(f, a)
#endif

struct arena;

/* context.c: configuration, the last error, the log, the allocator. All functions are thread-safe; each thread has its
 * own error text. */

/* Records "what, where, expected, got, what to do" and returns `status`, so that one writes `return ctx_fail(...)`. */
sol_status ctx_fail(struct sol_ctx *ctx, sol_status status, const char *format, ...) PRINTF_LIKE(3, 4);
/* Prepends text to the recorded error ("while compiling layer conv1: "). Returns `status`. */
sol_status ctx_where(struct sol_ctx *ctx, sol_status status, const char *format, ...) PRINTF_LIKE(3, 4);
void ctx_clear_error(struct sol_ctx *ctx); /* sol_error_sizes finds nothing then */
/* Adds to the error `failed`, which has just been reported, that the sizes a and b differ; -1: a must be a number. */
sol_status ctx_unequal(struct sol_ctx *ctx, int64_t a, int64_t b, sol_status failed);
/* SOL_ERR_NOMEM if an allocation failed since the context was made or ctx_clear was called; SOL_ERR_INTERRUPTED if the
 * application's interrupt callback says so; else SOL_OK. */
sol_status ctx_check(struct sol_ctx *ctx);
void ctx_clear(struct sol_ctx *ctx); /* forgets that an allocation failed */
/* progress.c: reports progress ("Compiling", 12, 53) to the application or on a terminal. what NULL: the work is
 * finished or cancelled. */
void ctx_progress(struct sol_ctx *ctx, const char *what, int done, int total);
/* Reports the steps of runs to the application's callback (sol_on_step). */
bool ctx_tells_steps(struct sol_ctx *ctx);
void ctx_step(struct sol_ctx *ctx, const char *label);
/* What another folder keeps with a context: made on first use, destroyed before the context. */
struct ctx_part {
    void *(*make)(struct sol_ctx *ctx); /* NULL: out of memory */
    void (*destroy)(struct sol_ctx *ctx, void *part);
    /* NULL, or called before any part is destroyed: ends what goes on in it. false: something does not end, and may use
     * the context, which is kept. */
    bool (*end)(struct sol_ctx *ctx, void *part);
};
/* The context's own part of this kind. NULL: out of memory. */
void *ctx_part(struct sol_ctx *ctx, const struct ctx_part *kind);
/* The number of bytes in a text such as "400MB" (powers of 1000); -1: it is not a number of bytes. */
int64_t text_bytes(const char *text);
/* Adds ns to the tuning time of this context, and returns the total. */
int64_t ctx_spent(struct sol_ctx *ctx, int64_t ns);
/* malloc, realloc and free through the context, so that tests can make them fail. ctx_realloc(NULL, n) allocates. */
void *ctx_realloc(struct sol_ctx *ctx, void *p, size_t bytes);
/* Allocates memory of a run: a failure is an error of this run alone, and no later ctx_check knows of it. */
void *ctx_try(struct sol_ctx *ctx, size_t bytes);
void ctx_free(struct sol_ctx *ctx, void *p);
/* The value of a configuration key ("compiler::name"), or its default from config.def. Never NULL for known keys. */
const char *ctx_config(struct sol_ctx *ctx, const char *key);
/* The keys that every run asks for. */
bool ctx_debugs(struct sol_ctx *ctx);   /* compiler::debug */
bool ctx_profiles(struct sol_ctx *ctx); /* profile */
bool ctx_verifies(struct sol_ctx *ctx); /* are graphs and plans to be checked between their phases? */
/* The value of a key as a number of bytes ("400MB"); -1: the value is a word. */
int64_t ctx_config_bytes(struct sol_ctx *ctx, const char *key);

/* log.c: `[INFO ][  8.79][core] Compiler (63): text` to stderr or the application's callback; the level from SOL_LOG or
 * the key log::level. */
enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG, LOG_TRACE };
void log_put(struct sol_ctx *ctx, enum log_level level, const char *module, const char *file, int line,
             const char *format, ...) PRINTF_LIKE(6, 7);
#define LOG(ctx, level, module, ...) log_put(ctx, level, module, __FILE__, __LINE__, __VA_ARGS__)

/* arena.c */
struct arena *arena_create(struct sol_ctx *ctx); /* NULL: out of memory, recorded in ctx */
void arena_destroy(struct arena *a);             /* NULL is fine */
struct sol_ctx *arena_ctx(const struct arena *a);
size_t arena_bytes(const struct arena *a); /* in use */
/* Frees what was allocated since the mark. Marks nest: whoever rewinds to one does so before the mark that is older. */
struct arena_mark {
    struct block *newest;
    size_t used, next_bytes;
    int64_t blocks;
};
struct arena_mark arena_mark(struct arena *a);
void arena_rewind(struct arena *a, struct arena_mark mark);
void *arena_alloc(struct arena *a, size_t bytes); /* zeroed, aligned to 16 */
/* For data whose size comes from outside (a file, a tensor's shape): returns NULL without a mark if memory runs out. */
void *arena_try(struct arena *a, size_t bytes);
char *arena_printf(struct arena *a, const char *format, ...) PRINTF_LIKE(2, 3);
char *arena_strdup(struct arena *a, const char *text); /* NULL stays NULL */
void *arena_memdup(struct arena *a, const void *data, size_t bytes);
#define NEW(a, type) ((type *)arena_alloc(a, sizeof(type)))
#define NEW_ARRAY(a, type, n) ((type *)arena_alloc(a, (size_t)(n) * sizeof(type)))

/* A growing array in an arena: `struct { type *at; int n, room; }`. Old storage is freed with the arena. */
#define VECTOR(type) \
    struct {         \
        type *at;    \
        int n, room; \
    }
#define PUSH(a, v, value)                                                                  \
    do {                                                                                   \
        if ((v).n == (v).room) (v).at = vector_grow(a, (v).at, &(v).room, sizeof *(v).at); \
        (v).at[(v).n++] = (value);                                                         \
    } while (0)
void *vector_grow(struct arena *a, void *at, int *room, size_t size);

/* text.c: growing text in an arena; `at` is always terminated. `indent` counts levels of four blanks for text_line. */
struct text {
    struct arena *arena;
    char *at;
    size_t n, room;
    int indent;
};
struct text text_new(struct arena *a);
void text_put(struct text *t, const char *format, ...) PRINTF_LIKE(2, 3);
void text_line(struct text *t, const char *format, ...) PRINTF_LIKE(2, 3); /* indented, with a newline */
/* Writes a C string literal. Characters that are not plain, or would begin or end a comment, become underscores. */
void text_string(struct text *t, const char *s);
void text_literal(struct text *t, const char *s); /* a C string literal with exactly these bytes */
void text_open(struct text *t, const char *format, ...) PRINTF_LIKE(2, 3);  /* a line, then one level deeper */
void text_close(struct text *t, const char *format, ...) PRINTF_LIKE(2, 3); /* one level up, then a line */
void text_add(struct text *t, const char *bytes, size_t n);
/* C texts of x + n, x * n, x / n and x % n without what changes nothing: no "+ 0", "* 1", "% 1". x binds at least as
 * tightly as the operator. */
const char *text_plus(struct arena *a, const char *x, int64_t n);
const char *text_times(struct arena *a, const char *x, int64_t n);
const char *text_over(struct arena *a, const char *x, int64_t n);
const char *text_modulo(struct arena *a, const char *x, int64_t n);
const char *text_address(struct arena *a, const char *base, const char *offset); /* base + offset, or base */
/* A finite number as a C constant that reads as a real number: 1.0, not 1. */
const char *text_real(struct arena *a, double v, int digits);
const char *text_bare(struct arena *a, const char *x);     /* a C expression without parentheses around all of it */
const char *text_enclosed(struct arena *a, const char *x); /* with them, unless it is a name, a number or a call */
struct map;
/* Templates of C: a name that is declared outside of functions is marked, "@name"; '@' occurs nowhere in C. Appends the
 * template, with what `put` writes in place of every marked name. */
typedef void mark_function(void *user, struct text *out, const char *name);
void text_fill(struct text *t, const char *template, mark_function *put, void *user);
/* A C source that can stand in one file with others. */
struct source_text {
    const char *body; /* a template: names of its own are marked, so that they can be made unique; KERNEL_<i> is
                       * the function of step i */
    const char *const *helper; /* declarations that it needs in front, which other sources may share */
    int nhelper;
    const char *header; /* the file that it includes; NULL: "sol/module.h" */
    const char *note;   /* a comment for readers, not part of the key; NULL: none */
};
/* Appends the helpers that are not in `seen` or empty, each followed by an empty line, and adds them to it. */
void source_helpers(struct text *t, struct map *seen, const struct source_text *s);
/* Appends the body: @KERNEL_<i> becomes <symbol>_<i>, every other @name becomes <name><suffix>. */
void source_body(struct text *t, const struct source_text *s, const char *symbol, const char *suffix);
/* Makes a name that is safe in C and in file names: letters, digits, '_'; at most 63 characters. */
char *text_identifier(struct arena *a, const char *name);

/* map.c: open addressing from a string or a number to a pointer, in an arena. */
struct map *map_create(struct arena *a);
void map_set(struct map *m, const char *key, void *value); /* the key is copied */
void *map_get(const struct map *m, const char *key);       /* NULL: not there */
void map_set_int(struct map *m, uint64_t key, void *value);
void *map_get_int(const struct map *m, uint64_t key);

/* hash.c: 128-bit content hash (SipHash-like mixing, not for security); 32 hexadecimal digits and a terminator. */
struct hash {
    uint64_t a, b, n;
};
void hash_init(struct hash *h);
void hash_add(struct hash *h, const void *data, size_t bytes);
void hash_text(struct hash *h, const char *text); /* with its terminator */
void hash_hex(const struct hash *h, char out[33]);

/* process.c: runs a program without a shell. argv ends with NULL; PATH is searched for argv[0]. */
struct process;
sol_status process_start(struct sol_ctx *ctx, const char *const argv[],
                         struct process **out_p); /* stdout+stderr kept */
/* Waits for the end. *out_exit is the exit code (128 + signal if killed). *out_output is valid until process_free. */
sol_status process_wait(struct sol_ctx *ctx, struct process *p, int *out_exit, const char **out_output);
bool process_done(struct process *p);                      /* does not block */
void process_free(struct sol_ctx *ctx, struct process *p); /* kills the program if it still runs */
/* Starts a program and waits for its end. *out_output is in the arena, and "" if the program cannot start. */
sol_status process_run(struct arena *a, const char *const argv[], int *out_exit, const char **out_output);

/* file.c: whole files. Files are written under a temporary name and then renamed, so no reader sees a partial file. */
sol_status file_read(struct sol_ctx *ctx, struct arena *a, const char *path, char **out_data, size_t *out_bytes);
sol_status file_write(struct sol_ctx *ctx, const char *path, const void *data, size_t bytes);
sol_status file_make_folder(struct sol_ctx *ctx, const char *path); /* and its parents */
/* Files in an open folder. A symbolic link at the end of the name is not followed. Files may be written in pieces. */
struct file_part {
    const void *data;
    size_t bytes;
};
sol_status file_read_at(struct sol_ctx *ctx, struct arena *a, int folder, const char *name, char **out_data,
                        size_t *out_bytes);
sol_status file_write_at(struct sol_ctx *ctx, int folder, const char *name, int n, const struct file_part *part);
/* Reads all of an open file; `path` is for messages. */
sol_status file_read_open(struct sol_ctx *ctx, struct arena *a, int fd, const char *path, char **out_data,
                          size_t *out_bytes);
bool file_exists(const char *path);

/* dtypes.c: properties of types, from dtypes.def. */
struct dtype_def {
    const char *name;   /* "f32" */
    const char *c_name; /* "float" */
    uint8_t bytes;
    bool is_float, is_signed, is_bool;
};
const struct dtype_def *dtype_def(enum sol_dtype t);
/* Element i of an array of an integer or bool type; for u64 its bits. */
int64_t dtype_int(enum sol_dtype t, const void *data, int64_t i);

/* Number of elements, a size (size.h). SOL_ERR_INVALID with a message if it exceeds 2^47 or a size is negative. */
sol_status shape_elements(struct sol_ctx *ctx, int ndim, const int64_t *shape, int64_t *out_n);

/* clock.c */
int64_t clock_ns(void); /* monotonic */

#endif
