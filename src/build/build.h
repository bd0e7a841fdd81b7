/* Build: from generated C to a module in memory. Knows compilers, the cache of objects and modules, and nothing of
 * networks.
 *
 * Every kernel is one source with a content hash; equal sources share an object. Objects and linked modules are cached
 * in a folder (key cache::folder), so that a warm start only reads a file. Whatever is wrong with the cache (read-only,
 * full, damaged, forged, shared with other processes, killed while writing) costs time, never the result. */
#ifndef SOL_BUILD_H
#define SOL_BUILD_H

#include "base/base.h"
#include "sol/module.h"

struct build_data { /* a constant of the module; too long to be C text */
    const void *bytes;
    size_t n;
};
struct build_request {
    const char *name;   /* of the network: for people and file names */
    const char *device; /* its folder in the cache */
    const char *march;  /* for -march=; NULL: none */
    const char *flag;   /* another one of the target; NULL: none */
    bool trial;         /* the module is wanted now, and never again: only its objects are kept */
    int jobs;           /* compilers at the same time; 0: as many as there are processors */
    int nkernel;
    const struct source_text *kernel; /* functions KERNEL_0, KERNEL_1, ... of type sol_kernel_fn, not static */
    int ndata;
    const struct build_data *data;
    /* C text that defines `const struct sol_module sol_module`. It calls step i of kernel k KERNEL<k>_<i> (as
     * KERNEL12_0) and datum d DATA<d> (an `const unsigned char []`, aligned to 64 bytes); both are declared for it. */
    const char *module;
};
/* The text of sol/module.h (and so stdint.h) is put in front of every source: none may include it. In strings nothing
 * is replaced. */

struct module { /* mapped code */
    void *handle;
    const struct sol_module *table;
};
/* Compiles what the cache lacks, side by side, with progress; can be interrupted. The module lives until module_close.
 */
sol_status build_module(struct sol_ctx *ctx, struct arena *a, const struct build_request *r, struct module *out_m);
void module_close(struct module *m);
/* As modules are mapped: a shared object by dlopen, from a copy in memory that nobody can change. key: a name of its
 * own. NULL: memory cannot be mapped here (there is no /proc). */
void *module_map_copy(struct arena *a, const char *key, const char *data, size_t bytes);

/* cache.c: a text about this machine that is found out once and kept: what is on file under `name`, or else what `make`
 * says now. *out_text is NULL where nothing can be kept, and make is not asked then. */
struct fact_maker {
    sol_status (*make)(void *user, const char **out_text);
    void *user;
};
sol_status cache_find_out(struct sol_ctx *ctx, struct arena *a, const char *name, const struct fact_maker *m,
                          const char **out_text);

/* place.c: opens the folder of the cache, beside whose entries other files may be kept: place 0 is that of the
 * configuration, place 1 the temporary one that stands in where that cannot be written. -1: there is none, or it is not
 * the user's own; *out_why says what is wrong. *out_path is for messages. */
#define CACHE_PLACES 2
int place_open(struct sol_ctx *ctx, struct arena *a, int place, bool make, const char **out_path, const char **out_why);
bool place_has_secret(struct sol_ctx *ctx, struct arena *a); /* without one nothing is kept */

/* folder.c: opens a folder in an open one, if it is the user's own and closed to others; follows no link. -1: it is
 * not, see *out_why. `make`: where it is not there. */
int folder_open(int at, const char *name, bool make, const char **out_why);
/* For code that is built elsewhere (deploy): */
const char *folder_temporary(struct arena *a); /* a new private one; NULL: not possible, see errno */
void folder_remove(const char *path);          /* with all that is in it; follows no links */
/* source.c: */
const char *source_header(void); /* the text of sol/module.h */
/* KERNEL_ becomes <symbol>_. */
const char *source_kernel(struct arena *a, const char *kernel, const char *symbol);
/* The request's module with the symbols of kernels (KERNEL<k>_ becomes <symbol[k]>_) and data in their places. */
sol_status source_tables(struct sol_ctx *ctx, struct arena *a, const struct build_request *r, const char *const *symbol,
                         const char **out_text);
/* compiler.c: what makes generated code fast and right; ends with NULL. */
const char *const *compiler_code_flags(struct arena *a, const char *march, const char *flag, bool clang);
/* The path of a program: as it is if it has a '/', else from PATH. NULL: there is none. */
const char *compiler_find_program(struct arena *a, const char *name);

#endif
