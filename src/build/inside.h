/* The internals of build, for the files of this folder only: the compiler, the cache, sources. */
#ifndef SOL_BUILD_INSIDE_H
#define SOL_BUILD_INSIDE_H

#include <sodium.h>

#include "build/build.h"

/* digest.c */
#define SECRET_BYTES 32
#define SEAL_BYTES 32
struct digest {
    crypto_generichash_state state;
};
void digest_init(struct digest *d, const unsigned char *secret); /* NULL: everybody can compute it */
void digest_add(struct digest *d, const void *data, size_t bytes);
void digest_text(struct digest *d, const char *text);
void digest_end(struct digest *d, unsigned char out[SEAL_BYTES]);
void digest_hex(struct digest *d, char out[33]); /* ends it, too: 128 bits of it */

/* place.c: the secret key of this user's seals, created if necessary. False: it cannot be stored. */
bool place_secret(struct sol_ctx *ctx, struct arena *a, unsigned char out[SECRET_BYTES]);

/* cache.c: contents by key, in one or two folders. No function fails: every problem is a miss. */
enum cache_kind { CACHE_OBJECT, CACHE_MODULE, CACHE_FACT, CACHE_ENTRIES };
struct cache_place {
    int fd;
    const char *path; /* absolute, for people */
    bool writable;
    int kind[CACHE_ENTRIES]; /* folders of entries; -1: not open yet */
};
struct cache {
    struct sol_ctx *ctx;
    struct arena *arena; /* until cache_close */
    const char *device;
    int nplace;
    struct cache_place place[CACHE_PLACES];
    unsigned char secret[SECRET_BYTES];
};
struct cache_entry {
    const char *data;
    size_t bytes;
    VECTOR(const char *) keys; /* that it is for */
};
void cache_open(struct cache *c, struct sol_ctx *ctx, const char *device);
void cache_close(struct cache *c);
/* The cached content for this key, with a verified seal; valid while the cache is open. */
bool cache_find(struct cache *c, enum cache_kind kind, const char *key, struct cache_entry *out);
/* Keys are names of files: letters, digits, '_'. */
void cache_keep(struct cache *c, enum cache_kind kind, const char *data, size_t bytes, int nkey,
                const char *const *key);
void cache_drop(struct cache *c, enum cache_kind kind, const char *key);
/* Reduces the cache to its limit. Called before a build only, so that the build's own files stay. */
void cache_make_room(struct cache *c);
/* Small facts: text by name. NULL: not there. */
const char *cache_fact(struct cache *c, const char *name);
void cache_set_fact(struct cache *c, const char *name, const char *text);
/* The folder for sources that debuggers read: <folder>/<device>/source, or a new folder that is not removed. */
sol_status cache_source_folder(struct cache *c, const char **out_path);

/* folder.c */
/* As folder_open, by path: without following a link at its end. */
int folder_open_path(struct sol_ctx *ctx, const char *path, bool make, const char **out_why);
/* Is it impossible for others to replace this folder? */
bool folder_is_reached_safely(const char *path);
const char *folder_temporary_root(void);

/* compiler.c */
enum { COMPILER_MAX_FLAGS = 32 };
struct compiler {
    const char *path; /* NULL: none was found; then `id` is that of the one used last, if the cache knows it */
    const char *id;   /* path, size, time and version; part of every key. NULL: no compiler, none known */
    bool clang;
    const char *wanted;                    /* names that were tried, for messages */
    const char *flags[COMPILER_MAX_FLAGS]; /* ends with NULL */
};
sol_status compiler_find(struct sol_ctx *ctx, struct arena *a, struct cache *c, const struct build_request *r,
                         struct compiler *out);
sol_status compiler_missing(struct sol_ctx *ctx, const struct compiler *cc); /* fails, with advice */
const char *compiler_ended(struct arena *a, int exit);                       /* "exit code 1", "killed by signal 9" */

/* source.c */
#define SOURCE_SYMBOL 48
/* sol_k_<hash>; id: of the compiler and what it compiles for */
void source_symbol(const char *id, const struct source_text *kernel, char out[SOURCE_SYMBOL]);
/* The C text of the module, with declarations. `symbol` by kernel. Data are taken from the files d0.bin, d1.bin, ... */
sol_status source_module(struct sol_ctx *ctx, struct arena *a, const struct build_request *r, const char *const *symbol,
                         const char **out_text);

/* batch.c */
/* Combines several kernels in one source: each shared helper once, then the rest of each kernel. */
const char *batch_source(struct arena *a, int n, const struct source_text *kernel, const char *const *symbol);

/* jobs.c: compilers side by side */
struct job {
    int nkernel;
    const int *kernel;           /* numbers of the kernels in it; none: the module */
    const char *source, *object; /* paths */
    const char *output;          /* of the compiler, if it rejected */
    int exit;
    int careful; /* flags that it has because the compiler crashed */
    struct process *process;
};
typedef VECTOR(struct job) job_list;
struct job_setup {
    struct sol_ctx *ctx;
    struct arena *arena;
    const struct compiler *cc;
    const char *work; /* folder */
    int limit;        /* compilers at the same time, at most */
    int total;        /* kernels, for reports of progress; 0: no reports */
};
/* Runs the jobs from number `first` on. `exit` marks jobs that the compiler rejected. An interrupt kills running
 * compilers. */
sol_status jobs_run(const struct job_setup *s, const job_list *jobs, int first);
/* If the compiler itself failed (an "internal compiler error"): the flag that may avoid it. NULL: it did not, or all
 * flags were tried. Then *out_again is the job with this flag. */
const char *job_again(const struct job *j, struct job *out_again);

#endif
