/* SOL for applications and frontends: make a context, describe a network, optimize it, run it.
 *
 * A network is described once, layer by layer, in the words of layers.def and math.def (`sol info --layers` lists
 * them). Every function that can fail returns a sol_status; sol_error(ctx) then says what, where, expected, got, what
 * to do. */
#ifndef SOL_SOL_H
#define SOL_SOL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t sol_status;
enum {
    SOL_OK = 0,
    SOL_ERR_INVALID = 1,     /* the caller's mistake: shape, type, name, range */
    SOL_ERR_UNSUPPORTED = 2, /* valid, but SOL cannot do it (yet) */
    SOL_ERR_NOMEM = 3,
    SOL_ERR_IO = 4,       /* a file or folder */
    SOL_ERR_COMPILER = 5, /* the C compiler is missing or refused */
    SOL_ERR_RUN = 6,      /* found while running, such as an index out of range */
    SOL_ERR_INTERRUPTED = 7,
    SOL_ERR_INTERNAL = 8 /* a bug in SOL */
};

enum sol_dtype {
#define X(enumerator, ...) SOL_##enumerator,
#include "sol/dtypes.def"
#undef X
    SOL_DTYPES
};

struct sol_ctx;
struct sol_graph;
struct sol_tensor;
struct sol_net;
struct sol_params;

/* -- context: configuration, error, log, cache. May be shared by threads; one compile at a time per graph. */

struct sol_ctx_options {
    size_t size;                                                         /* sizeof(struct sol_ctx_options) */
    void *(*reallocate)(void *user, void *p, size_t bytes);              /* bytes 0 frees; NULL: the C library's */
    void (*log)(void *user, int level, const char *line);                /* NULL: a line on stderr */
    int (*interrupted)(void *user);                                      /* non-zero stops a compile; NULL: never */
    void (*progress)(void *user, const char *what, int done, int total); /* NULL: a bar, see sol_progress */
    void *user;
};

/* Options are copied and may be NULL. Errors: NOMEM. */
sol_status sol_ctx_create(const struct sol_ctx_options *options, struct sol_ctx **out_ctx);
void sol_ctx_destroy(struct sol_ctx *ctx);  /* after all graphs and networks made with it; NULL is fine */
const char *sol_error(struct sol_ctx *ctx); /* the calling thread's last error; valid until its next call */
/* Sets a key (docs/configuration.md) for what is called from now on. Errors: INVALID (no such key, or not one of its
 * values). */
sol_status sol_config_set(struct sol_ctx *ctx, const char *key, const char *value);
const char *sol_config_get(struct sol_ctx *ctx, const char *key); /* NULL: no such key */
/* The i-th key, its default and what it does; NULL when i is past the last. */
const char *sol_config_key(int i, const char **out_default, const char **out_doc);
const char *sol_version(void); /* "0.1.0" */
/* The callbacks of the options, set anew; their user stays. NULL as there. */
void sol_on_log(struct sol_ctx *ctx, void (*log)(void *user, int level, const char *line));
void sol_on_progress(struct sol_ctx *ctx, void (*progress)(void *user, const char *what, int done, int total));
/* A line of the application's own in the log: level 0 (error) to 4 (trace), the place that it is about. */
void sol_log(struct sol_ctx *ctx, int level, const char *module, const char *file, int line, const char *text);
/* How far work is: SOL tells it of what takes long, an application may of its own work. Without a callback it is a bar
 * in the last line of a terminal, as the key progress says. total 0: nobody knows. what NULL, to the callback, too: the
 * work is done, or was given up. */
void sol_progress(struct sol_ctx *ctx, const char *what, int done, int total);
/* Removes all that SOL put into the folder of the key cache::folder but for wisdom, and nothing else. Networks that are
 * loaded stay. Errors: IO (not ours, or not to be removed). */
sol_status sol_cache_clear(struct sol_ctx *ctx);
/* The folder that the cache is in, as text that sol_free releases; "": the key cache::folder is empty. Errors: IO (it
 * cannot be used, with the reason), NOMEM. */
sol_status sol_cache_folder(struct sol_ctx *ctx, char **out_path);
/* Wisdom: what the key autotune has measured on this machine, kept beside the cache. As a table for people, freed with
 * sol_free; all of another file (out_new lines were new, or faster); away with it. Errors: IO, INVALID (no such file),
 * NOMEM. */
sol_status sol_wisdom_print(struct sol_ctx *ctx, char **out_text);
sol_status sol_wisdom_merge(struct sol_ctx *ctx, const char *path, int *out_new);
sol_status sol_wisdom_clear(struct sol_ctx *ctx);

/* -- what SOL needs of this machine. */

/* GOOD: it works. LACKS: something that not everybody needs is missing. BROKEN: networks cannot be optimized. */
enum sol_state { SOL_GOOD, SOL_LACKS, SOL_BROKEN };
struct sol_check {
    const char *what; /* "C compiler" */
    enum sol_state state;
    const char *text, *advice; /* what was found; what to do, or NULL */
};
/* Tries it out, some things for a second, and shows each; texts live while `show` runs. *out_broken: how many are
 * BROKEN. Errors: NOMEM. */
sol_status sol_doctor(struct sol_ctx *ctx, void (*show)(void *user, const struct sol_check *check), void *user,
                      int *out_broken);

/* What a machine can do, all its threads together: how far a kernel is from it says what there is to gain. */
struct sol_machine {
    const char *source; /* "measured"; "assumed" (key machine, or nothing can be measured); "given", by that key */
    int threads, vector_bytes;
    double clock, fma;                    /* GHz; vectors that a core multiplies and adds in a cycle */
    double flops;                         /* GFLOP/s, of multiply-adds in float32 */
    double l2_rate, l3_rate, memory_rate; /* GB/s that are read */
    int64_t l2_bytes, l3_bytes;
};
/* Of the key `target`. The first call for a kind of processor measures it, which takes some milliseconds and a
 * compiler. Errors: INVALID (keys), INTERRUPTED, NOMEM. */
sol_status sol_machine(struct sol_ctx *ctx, struct sol_machine *out);

/* -- a network. Tensors and layers belong to the graph and live as long as it does. */

/* `name` is for people and for files; like all texts and arrays handed over here it is copied. Errors: NOMEM. */
sol_status sol_graph_create(struct sol_ctx *ctx, const char *name, struct sol_graph **out_g);
void sol_graph_destroy(struct sol_graph *g); /* NULL is fine */

/* Inputs are given at every call; parameters are handed over with sol_params_set and may change between calls; the data
 * of a constant is copied, row-major. `shape` counts elements, ndim is 0 to 12, sizes may be 0; the product is at most
 * 2^47. Errors: INVALID (shape), NOMEM. */
sol_status sol_graph_input(struct sol_graph *g, const char *name, enum sol_dtype dtype, int ndim, const int64_t *shape,
                           struct sol_tensor **out_t);
sol_status sol_graph_param(struct sol_graph *g, const char *name, enum sol_dtype dtype, int ndim, const int64_t *shape,
                           struct sol_tensor **out_t);
sol_status sol_graph_const(struct sol_graph *g, enum sol_dtype dtype, int ndim, const int64_t *shape, const void *data,
                           struct sol_tensor **out_t);
/* Outputs are numbered as they are added; a tensor may be several of them, and an input or parameter may be one. */
sol_status sol_graph_output(struct sol_graph *g, const char *name, struct sol_tensor *t);

struct sol_attr {
    const char *name;
    enum { SOL_ATTR_INT, SOL_ATTR_REAL, SOL_ATTR_TEXT } kind;
    int n;               /* -1: one value; otherwise a list of n */
    const int64_t *ints; /* INT: n values (one if n is -1) */
    const double *reals; /* REAL */
    const char *text;    /* TEXT */
};

/* Adds a layer by the name of its row in layers.def, or an element-wise function by its name in math.def, whose inputs
 * are broadcast as NumPy does and must have one type. `name` is for people ("layer1.0.conv1"), `where` is the place in
 * the user's source ("model.py:41"); both may be NULL. Attributes that are not given take the row's default. *out is
 * filled with `nout` tensors; fewer than the row has may be asked for. Errors: INVALID (no such row or attribute;
 * shapes and types that do not fit: the message has them), UNSUPPORTED (a type), NOMEM. */
sol_status sol_graph_layer(struct sol_graph *g, const char *kind, const char *name, const char *where, int nin,
                           struct sol_tensor *const *in, int nattr, const struct sol_attr *attrs, int nout,
                           struct sol_tensor **out);
/* Is there a row of this name? */
int sol_layer_known(const char *kind);
/* The i-th row: its name, the attributes with their defaults, what it does; NULL past the last. */
const char *sol_layer_at(int i, const char **out_attributes, const char **out_doc);
/* Floating-point operations and bytes that the graph needs as it is written. */
void sol_graph_work(const struct sol_graph *g, double *out_flops, double *out_bytes);

enum sol_dtype sol_tensor_dtype(const struct sol_tensor *t);
int sol_tensor_ndim(const struct sol_tensor *t);
int64_t sol_tensor_size(const struct sol_tensor *t, int dim);
/* The value of a tensor that is known before running: a constant or computed from constants alone (the shape arguments
 * of ONNX), row-major. NULL: not known. Valid as long as the graph. */
const void *sol_tensor_known(struct sol_tensor *t);

/* The graph as text (see docs/text-form.md), and back. The text is freed with sol_free. */
sol_status sol_graph_print(const struct sol_graph *g, char **out_text);
sol_status sol_graph_parse(struct sol_ctx *ctx, const char *text, struct sol_graph **out_g);
void sol_free(struct sol_ctx *ctx, void *p);

/* -- training. */

/* Appends the gradient to a graph that is complete. For each output of[i] comes an input of its shape and type, the
 * gradient that the caller will have of it, in this order behind the inputs that are there; for each tensor with[i], an
 * input or a parameter of a real type, an output: its gradient, behind the outputs that are there. out_reached[i] is 0,
 * and there is no such output, where with[i] has no influence on any output of[]: through integers, or what is
 * `stop`ped. (Where the derivative is 0, as of round, the gradient is zeros.) Layers that have no gradient (opaque
 * ones) are refused, all by name. */
sol_status sol_graph_differentiate(struct sol_graph *g, int nof, const int *of, int nwith,
                                   struct sol_tensor *const *with, int *out_reached);
/* out[i * nwith + k]: has with[k] an influence on output of[i], as a gradient sees it? Of a graph without its gradient.
 */
sol_status sol_graph_influences(struct sol_graph *g, int nof, const int *of, int nwith, struct sol_tensor *const *with,
                                unsigned char *out);

/* -- an optimized network. The graph may be destroyed afterwards. */

/* Optimizes the graph, in place, writes and compiles its code as far as the cache lacks it, and maps it. Takes seconds
 * the first time, milliseconds later. Errors: COMPILER (none there, or it refused), UNSUPPORTED (the key target is no
 * code for this machine), INTERRUPTED, IO (no room to build), NOMEM. Whatever happens, the cache stays sound. */
sol_status sol_compile(struct sol_ctx *ctx, struct sol_graph *g, struct sol_net **out_net);
void sol_net_destroy(struct sol_net *net); /* when no call of it is in flight; NULL is fine */

/* Bytes. Inputs and outputs are those of both halves, if there is a gradient; saved: what one forward leaves for
 * backward; peak: of all together, parameters included. Of a network with a gradient: about what the peak would be for
 * other values of the configuration key training::memory; otherwise 0. */
struct sol_memory {
    int64_t params, prepared, inputs, outputs, saved, workspace, peak;
    int64_t if_fast, if_balanced, if_small;
};
void sol_net_memory(const struct sol_net *net, struct sol_memory *out_m);

struct sol_io {
    const char *name;
    enum sol_dtype dtype;
    int ndim;
    const int64_t *shape;
};
/* What it takes and gives, in the order in which it was added to the graph; names and shapes live as long as the
 * network. Past the last all fields are 0. */
int sol_net_inputs(const struct sol_net *net);
int sol_net_outputs(const struct sol_net *net);
int sol_net_params(const struct sol_net *net);
struct sol_io sol_net_input(const struct sol_net *net, int i);
struct sol_io sol_net_output(const struct sol_net *net, int i);
struct sol_io sol_net_param_io(const struct sol_net *net, int i);

/* Parameters belong to whoever calls: a network may be called with those of several owners (instances of one model,
 * say), by turns and at once. What is prepared of them (packed, folded) lies here, too. Destroy them before the
 * network, when no call with them is in flight; NULL is fine. A network without parameters needs an object as well.
 * Errors: NOMEM. */
sol_status sol_params_create(struct sol_net *net, struct sol_params **out_params);
void sol_params_destroy(struct sol_params *params);
/* Hands over parameter i, in the order of sol_graph_param: row-major data, read while `sol_net_run` runs, owned by the
 * caller. Call it again when the data or its address changed: what depends on it is then prepared again, in the next
 * run. A call with the address that is set already means "the data changed". Errors: INVALID (no such parameter). */
sol_status sol_params_set(struct sol_params *params, int i, const void *data);
/* Runs the network: row-major inputs and outputs, aligned to their elements, which must not overlap. threads 0: as many
 * as there are processors; any number gives the same bits. Re-entrant. Errors: INVALID (parameters of another network,
 * one that was never handed over, a pointer is NULL), RUN (found in the data, such as an index out of range; outputs
 * are then undefined), NOMEM. */
sol_status sol_net_run(struct sol_net *net, struct sol_params *params, const void *const *inputs, void *const *outputs,
                       int threads);
/* The two halves of a network with a gradient. Forward reads the inputs and writes the outputs that were there before
 * sol_graph_differentiate, and hands out what backward needs besides. Backward reads that, the gradients of outputs,
 * and what it needs of the other inputs and outputs, which must be unchanged since; it writes the gradients. In both,
 * places of the other half may be NULL. Backward uses the parameters that it is given, as they are when it runs:
 * whoever changes them in between gets another gradient. One forward may be followed by several backwards, or none;
 * several may be in flight. The last one, or the only one, has `keep` 0: it works in the memory that holds what was
 * saved, which then can only be destroyed. With `keep` 1 it works in a copy of all of that. What is saved is memory of
 * the network's: destroyed, it serves the next forward. */
struct sol_saved;
sol_status sol_net_forward(struct sol_net *net, struct sol_params *params, const void *const *inputs,
                           void *const *outputs, int threads, struct sol_saved **out_saved);
sol_status sol_net_backward(struct sol_net *net, struct sol_params *params, struct sol_saved *saved, int keep,
                            const void *const *inputs, void *const *outputs, int threads);
void sol_saved_destroy(struct sol_saved *saved); /* before or after its network, before the context; or NULL */
/* Does backward read input i (output i) of the forward half? Then it must be handed over again, unchanged. Does it need
 * the value of parameter i? */
enum sol_what { SOL_INPUT, SOL_OUTPUT, SOL_PARAM };
int sol_net_backward_reads(const struct sol_net *net, enum sol_what what, int i);
/* With the configuration key profile=1 every run is measured, kernel by kernel. A row is a kernel, those of forward in
 * their order, then those of backward; times are of the last runs, 64 at most. Operations are those of the layers as
 * they are written: Winograd needs fewer. Bytes are what the layers read and write. */
struct sol_profile_row {
    const char *label;  /* the layers; texts live as long as the network */
    const char *solver; /* what computes them, and how */
    const char *where;  /* the place of the first of them in the user's source; "": not known */
    int backward;       /* 0: of forward */
    int runs;           /* 0: none was measured */
    double flops, bytes, median_ns, least_ns;
    /* Of what the machine can do (sol_machine): operations; bytes, if they come from the nearest level of memory that
     * holds all of them: "L2", "L3" or "mem". 0 and "": it is not known. */
    double of_peak, of_rate;
    const char *level;
};
/* Row i; 0: there is none. */
int sol_net_profile(struct sol_net *net, int i, struct sol_profile_row *out_row);
/* The rows that were measured as a table, what takes longest first. Freed with sol_free. Errors: NOMEM. */
sol_status sol_net_profile_print(struct sol_net *net, char **out_text);
void sol_net_profile_clear(struct sol_net *net); /* forgets all runs */
/* For profilers of applications: called in the thread of a call when a step begins, with its layers, and at the end of
 * a program's steps with NULL. Runs are slower meanwhile. NULL: as before. */
void sol_on_step(struct sol_ctx *ctx, void (*step)(void *user, const char *label));

#ifdef __cplusplus
}
#endif
#endif
