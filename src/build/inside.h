/* The inside of build, for the files of this folder alone: the compiler, the cache, sources. */
#ifndef SOL_BUILD_INSIDE_H
#define SOL_BUILD_INSIDE_H

#include "build/build.h"

/* cache.c: files by key, in one or two folders, with an index in SQLite. No function fails: whatever is wrong is a
 * miss. */
struct cache_place {
    const char *folder; /* absolute */
    bool writable;
    void *db; /* sqlite3; NULL: no index, so nothing is found */
};
struct cache {
    struct sol_ctx *ctx;
    struct arena *arena;
    int nplace;
    struct cache_place place[2]; /* the folder of the configuration; a temporary one if that cannot be written */
};
void cache_open(struct cache *c, struct sol_ctx *ctx, struct arena *a);
void cache_close(struct cache *c);
/* The path of the file of this key, its content verified. NULL: none. */
const char *cache_find(struct cache *c, const char *key);
/* Keeps the cache below its limit. Before a build only: a build's own files stay, however large they are. */
void cache_make_room(struct cache *c);
/* Forgets a key. */
void cache_drop(struct cache *c, const char *key);
/* Moves `path` into the cache as `name` ("x86/objects/ab12.o") for all keys. Returns where it is now: `path` itself if
 * it could not be stored. */
const char *cache_store(struct cache *c, const char *path, const char *name, int nkey, const char *const *key);
/* Small facts: text by name. NULL: not there. */
const char *cache_fact(struct cache *c, const char *name);
void cache_set_fact(struct cache *c, const char *name, const char *text);
/* The folder for files that people read: <folder>/<device>/source. */
sol_status cache_source_folder(struct cache *c, const char *device, const char **out_path);
/* A new private folder for one build, inside the cache if possible. */
sol_status cache_work_folder(struct cache *c, bool inside, const char **out_path);

/* folder.c */
/* Is it a folder that the user owns and nobody else can write? `*out_why` says what is wrong. */
bool folder_is_private(const char *path, const char **out_why);
const char *folder_temporary_root(void);
void folder_remove_old(const char *path, int64_t seconds); /* what in it has not been changed for so long */
bool folder_has_room(const char *path, int64_t bytes);

/* compiler.c */
struct compiler {
    const char *path; /* NULL: none was found; then `id` is that of the one used last, if the cache knows it */
    const char *id;   /* path, size, time and version; part of every key. NULL: no compiler, none known */
    bool clang;
    const char *wanted;    /* names that were tried, for messages */
    const char *flags[24]; /* ends with NULL */
};
sol_status compiler_find(struct sol_ctx *ctx, struct arena *a, struct cache *c, const struct build_request *r,
                         struct compiler *out);
sol_status compiler_missing(struct sol_ctx *ctx, const struct compiler *cc); /* fails, with advice */
const char *compiler_ended(struct arena *a, int exit);                       /* "exit code 1", "killed by signal 9" */

/* source.c */
void source_symbol(const struct compiler *cc, const char *kernel, char out[48]); /* sol_k_<hash> */
/* The C text of the module, with declarations. `symbol` by kernel. Data are taken from the files d0.bin, d1.bin, ... */
sol_status source_module(struct sol_ctx *ctx, struct arena *a, const struct build_request *r, const char *const *symbol,
                         const char **out_text);

/* batch.c */
/* How many bytes the texts begin with in common, up to the end of a declaration. */
size_t batch_common(int n, const char *const *kernel);
/* One text of several kernels: the common begin, once, then the rest of each. */
const char *batch_source(struct arena *a, int n, const char *const *kernel);

/* jobs.c: compilers side by side */
struct job {
    int nkernel;
    const int *kernel;           /* numbers of the kernels in it; none: the module */
    const char *source, *object; /* paths */
    const char *output;          /* of the compiler, if it refused */
    int exit;
    struct process *process;
};
typedef VECTOR(struct job) job_list;
/* Runs the jobs from number `first` on, at most `limit` at the same time, and reports `total` kernels as progress, if
 * that is not 0. Jobs that the compiler refuses are marked by `exit`; an interrupt kills what runs. */
sol_status jobs_run(struct sol_ctx *ctx, struct arena *a, const struct compiler *cc, const char *work,
                    const job_list *jobs, int first, int limit, int total);

#endif
