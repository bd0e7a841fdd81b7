/* Build turns generated C into a module in memory. It knows compilers and the cache of objects and modules, but not
 * networks.
 *
 * Every kernel is one source with a content hash, and equal sources share an object. The cache (key cache::folder)
 * keeps objects and linked modules, so that a warm start only reads a file. Problems with the cache (read-only, full,
 * damaged, forged, shared with other processes, killed while writing) cost time but never change a result. */
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
    bool trial;         /* the module is used once: the cache keeps only its objects */
    int jobs;           /* compilers at the same time; 0: as many as there are processors */
    int nkernel;
    const struct source_text *kernel; /* functions @KERNEL_0, @KERNEL_1, ... of type sol_kernel, not static */
    int ndata;
    const struct build_data *data;
    /* C text that defines `const struct sol_module sol_module`. It is a template (text_fill) that refers to step i of
     * kernel k as @KERNEL<k>_<i> (such as @KERNEL12_0) and to datum d as @DATA<d> (a `const unsigned char []`, aligned
     * to 64 bytes). Build declares both. */
    const char *module;
};
/* Build prepends the text of sol/module.h (with stdint.h) to every source, so no source may include it. */

struct module { /* mapped code */
    void *handle;
    const struct sol_module *table;
};
/* Compiles what the cache does not have, in parallel, with progress and interrupts. The module lives until
 * module_close.
 */
sol_status build_module(struct sol_ctx *ctx, struct arena *a, const struct build_request *r, struct module *out_m);
void module_close(struct module *m);
/* As modules are mapped: a shared object by dlopen, from a copy in memory that nobody can change. key: a name of its
 * own. NULL: memory cannot be mapped here (there is no /proc). */
void *module_map_copy(struct arena *a, const char *key, const char *data, size_t bytes);

/* blob.c: code that `make` makes from a text for a device, or the cache has. The data live as long as the arena. */
struct code_request {
    const char *device;    /* its folder in the cache */
    const char *arch;      /* what the code is for; part of the key */
    const char *extension; /* of files with such texts: "cl" */
    /* After the error COMPILER, *out_data may be a text: all that the compiler said. */
    sol_status (*make)(void *user, const char *text, const void **out_data, size_t *out_bytes);
    void *user;
};
struct code_blob {
    const void *data;
    size_t bytes;
};
sol_status build_code(struct sol_ctx *ctx, struct arena *a, const struct code_request *r, const char *text,
                      struct code_blob *out);
/* Code of single kernels: those that the cache lacks become one text. The cache finds the code by each of its kernels,
 * so networks, and trials of one network, share it. */
struct code_kernel {
    const char *symbol; /* its step i is the function <symbol>_<i> */
    int blob;           /* that has it */
};
struct code_kernels {
    struct code_kernel *kernel; /* as they were requested; equal ones have equal symbols */
    VECTOR(struct code_blob) blobs;
    int made; /* kernels that the cache did not have */
};
sol_status build_kernels(struct sol_ctx *ctx, struct arena *a, const struct code_request *r, int n,
                         const struct source_text *kernel, struct code_kernels *out);

/* function.c: compiles C text that defines `symbol`, a sol_layer_function (sol/extend.h), or finds it in the cache. The
 * function lives as long as the process. Errors: COMPILER (the message has what the compiler says), IO. */
struct function_source {
    const char *name; /* for messages */
    const char *source, *symbol;
    const char *objects; /* what defines the symbol that `source` declares: paths, one a line; NULL: nothing */
};
/* Object files in place of a source: makes their paths absolute and a source that declares `symbol` and names their
 * contents, so that it differs where they do. Errors: IO (a file that cannot be read). */
sol_status function_declare(struct sol_ctx *ctx, struct arena *a, struct function_source *f);
/* Appends the paths of `objects` to the words of a command. */
typedef VECTOR(const char *) words;
void function_link(struct arena *a, const char *objects, words *argv);
sol_status build_function(struct sol_ctx *ctx, struct arena *a, const struct function_source *f, void **out_function);

/* cache.c: a fact about this machine that is determined once: the cached text for `name`, otherwise the result of
 * `make`. *out_text is NULL, and `make` is not called, if the cache cannot keep it. */
struct fact_maker {
    sol_status (*make)(void *user, const char **out_text);
    void *user;
};
sol_status cache_find_out(struct sol_ctx *ctx, struct arena *a, const char *name, const struct fact_maker *m,
                          const char **out_text);

/* place.c: opens the folder of the cache. Folder 0 is the configured one, folder 1 the temporary one that replaces it
 * if it cannot be written. Returns -1 if there is none, or if it is not private to the user; *out_why says why.
 * *out_path is for messages. */
#define CACHE_PLACES 2
int place_open(struct sol_ctx *ctx, struct arena *a, int place, bool make, const char **out_path, const char **out_why);
bool place_has_secret(struct sol_ctx *ctx, struct arena *a); /* without one nothing is kept */

/* folder.c: opens a folder inside an open one, without following links. Returns -1 if it is not private to the user;
 * see *out_why. `make`: creates it if necessary. */
int folder_open(int at, const char *name, bool make, const char **out_why);
/* For code that is built elsewhere (deploy): */
const char *folder_temporary(struct arena *a); /* a new private one; NULL: not possible, see errno */
void folder_remove(const char *path);          /* with all that is in it; follows no links */
/* source.c: */
const char *source_header(const char *name);      /* the text of a header; NULL: of sol/module.h */
const char *source_extension(const char *header); /* of files that include it: "c" */
/* The module of the request with symbols inserted: @KERNEL<k>_ becomes <symbol[k]>_, likewise data. */
sol_status source_tables(struct sol_ctx *ctx, struct arena *a, const struct build_request *r, const char *const *symbol,
                         const char **out_text);
/* compiler.c: flags for generated code that other builds compile; ends with NULL. */
const char *const *compiler_code_flags(struct arena *a, const char *march, const char *flag, bool clang);
/* "gcc 12.2 .. (/usr/bin/gcc)": what the first of these programs says of its version, asked once. names NULL: the
 * compiler of the key compiler::name. NULL: there is none. */
const char *compiler_about(struct sol_ctx *ctx, struct arena *a, const char *const *names);
/* The path of a program: unchanged if it contains a '/', otherwise found in PATH. NULL: not found. */
const char *compiler_find_program(struct arena *a, const char *name);

#endif
