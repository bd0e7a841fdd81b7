/* The interface for applications and frontends: create a context, describe a network, optimize it, run it.
 *
 * An application describes a network once, layer by layer. `sol info --layers` lists the layers and functions. Every
 * function that can fail returns a sol_status. After a failure, sol_error(ctx) returns the message: what failed, where,
 * what was expected, what was found, and what to do. */
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
    SOL_ERR_INVALID = 1,     /* an error of the caller: shape, type, name, range */
    SOL_ERR_UNSUPPORTED = 2, /* valid, but SOL does not support it (yet) */
    SOL_ERR_NOMEM = 3,
    SOL_ERR_IO = 4,       /* a file or folder */
    SOL_ERR_COMPILER = 5, /* the C compiler is missing or failed */
    SOL_ERR_RUN = 6,      /* an error in the data while running, such as an index out of range */
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

/* -- context: configuration, errors, log, cache. Threads may share a context. Compile a graph in one thread at a time.
 */

struct sol_ctx_options {
    size_t size;                                                         /* sizeof(struct sol_ctx_options) */
    void *(*reallocate)(void *user, void *p, size_t bytes);              /* bytes 0 frees; NULL: the C library's */
    void (*log)(void *user, int level, const char *line);                /* NULL: lines on stderr */
    int (*interrupted)(void *user);                                      /* non-zero stops a compile; NULL: never */
    void (*progress)(void *user, const char *what, int done, int total); /* NULL: a bar, see sol_progress */
    void *user;
};

/* Options are copied and may be NULL. Errors: NOMEM. */
sol_status sol_ctx_create(const struct sol_ctx_options *options, struct sol_ctx **out_ctx);
void sol_ctx_destroy(struct sol_ctx *ctx);  /* after all its graphs and networks; accepts NULL */
const char *sol_error(struct sol_ctx *ctx); /* the calling thread's last error; valid until its next call */
/* Sets a key (docs/configuration.md) for later calls. Errors: INVALID (unknown key or value). */
sol_status sol_config_set(struct sol_ctx *ctx, const char *key, const char *value);
const char *sol_config_get(struct sol_ctx *ctx, const char *key); /* NULL: unknown key */
/* Returns the i-th key, its default and its description; NULL if i is past the last. */
const char *sol_config_key(int i, const char **out_default, const char **out_doc);
const char *sol_version(void); /* "0.1.0" */
/* Replace the callbacks of sol_ctx_options. `user` stays the same; NULL has the same meaning as there. */
void sol_on_log(struct sol_ctx *ctx, void (*log)(void *user, int level, const char *line));
void sol_on_progress(struct sol_ctx *ctx, void (*progress)(void *user, const char *what, int done, int total));
/* Writes a line of the application to the log. The level is 0 (error) to 4 (trace); file and line say where it comes
 * from. */
void sol_log(struct sol_ctx *ctx, int level, const char *module, const char *file, int line, const char *text);
/* Reports progress. SOL calls it during long work, and an application may call it for its own work. Without a callback,
 * progress is a bar in the last line of the terminal (key progress). total 0: unknown. what NULL: the work is finished
 * or cancelled; the callback receives this call too. */
void sol_progress(struct sol_ctx *ctx, const char *what, int done, int total);
/* Removes SOL's files from the folder of the key cache::folder, except wisdom. Loaded networks remain usable. Errors:
 * IO (not a cache of SOL, or removing fails). */
sol_status sol_cache_clear(struct sol_ctx *ctx);
/* Keeps code that an application made from `text` in the cache, and finds it again: bytes that this user's SOL kept
 * (docs/cache.md), to be freed with sol_free. *out_data is NULL if there are none. Errors: NOMEM. */
void sol_cache_keep(struct sol_ctx *ctx, const char *text, const void *data, size_t bytes);
sol_status sol_cache_find(struct sol_ctx *ctx, const char *text, void **out_data, size_t *out_bytes);
/* Returns the folder of the cache; the caller frees the text with sol_free. "" means that the key cache::folder is
 * empty. Errors: IO (the folder cannot be used; the message says why), NOMEM. */
sol_status sol_cache_folder(struct sol_ctx *ctx, char **out_path);
/* Wisdom is the file with tuning results of this machine (key autotune), in the cache folder. `print` returns it as a
 * table, to be freed with sol_free. `merge` adds the entries of another file; *out_new counts those that were new or
 * faster. `clear` deletes it. Errors: IO, INVALID (no such file), NOMEM. */
sol_status sol_wisdom_print(struct sol_ctx *ctx, char **out_text);
sol_status sol_wisdom_merge(struct sol_ctx *ctx, const char *path, int *out_new);
sol_status sol_wisdom_clear(struct sol_ctx *ctx);

/* -- the machine. */

/* GOOD: it works. LACKS: something optional is missing. BROKEN: networks cannot be optimized. */
enum sol_state { SOL_GOOD, SOL_LACKS, SOL_BROKEN };
struct sol_check {
    const char *what; /* "C compiler" */
    enum sol_state state;
    const char *text, *advice; /* the finding; what to do about it, or NULL */
};
/* Checks what SOL needs and passes each result to `show`, whose texts are valid during that call. Some checks take a
 * second. *out_broken is the number of BROKEN results. Errors: NOMEM. */
sol_status sol_doctor(struct sol_ctx *ctx, void (*show)(void *user, const struct sol_check *check), void *user,
                      int *out_broken);

/* The limits of a machine, for all its threads together. Compare a kernel with them to see how much it could gain. */
struct sol_machine {
    const char *source; /* "measured"; "assumed" (key machine, or measuring is impossible); "given" (key machine) */
    int threads, vector_bytes;
    double clock, fma;                    /* GHz; vector multiply-adds a cycle and core */
    double flops;                         /* GFLOP/s of multiply-adds in float32 */
    double l2_rate, l3_rate, memory_rate; /* GB/s of reading */
    int64_t l2_bytes, l3_bytes;
};
/* Returns the limits for the key `target`. The first call for a kind of processor measures them, which needs about
 * 50 ms. Errors: INVALID (keys), INTERRUPTED, NOMEM. */
sol_status sol_machine(struct sol_ctx *ctx, struct sol_machine *out);

/* A device that networks may run on, or why it is not there. */
struct sol_device_info {
    uint32_t size;        /* sizeof(struct sol_device_info) */
    const char *type;     /* "x86", "opencl" */
    int32_t index;        /* of this type */
    int32_t selected;     /* networks that are compiled now run on it (key `device`) */
    char name[128];       /* the processor, board or implementation */
    char arch[64];        /* what code is compiled for: "avx2", "sm_90" */
    char compiler[384];   /* the compilers that make code for it, with their versions; "": none */
    char why[512];        /* why it is not there, and what can be done without it; "": it is there */
    int64_t memory;       /* bytes; 0: unknown, as below */
    int32_t cores, lanes; /* lanes: float32 elements that a core's vectors, or the threads that run in step, have */
    int32_t group_items;  /* most work items of a group; 0: it has none, as the processor */
    int32_t f64;          /* it computes in float64 */
    int64_t group_bytes;  /* of memory that a group shares */
    char backends[256];   /* the solvers that make kernels for it, with the versions of other libraries */
    /* What its speed depends on, for estimates of costs. */
    int32_t clock;       /* MHz */
    int32_t core_fmas;   /* products of float32, each added to a sum, that a core computes in a cycle */
    int32_t core_items;  /* most work items that a core keeps at a time */
    int32_t memory_rate; /* MB/s of the device's memory */
    int64_t core_bytes;  /* of memory that groups share, of a core */
    int64_t cache;       /* bytes of the cache that all cores share */
    char blas[32];       /* its library for linear algebra, with the version; "": none */
    int32_t core_mma;    /* products of factors in TF32 that a core's units for small matrices compute in a cycle */
    int32_t tf32;        /* factors of float32 may be rounded to TF32, as the user asked for */
    char dnn[32];        /* its library for neural networks, with the version; "": none */
};
/* Passes each device to `show`, those that are there first; the texts are valid during that call. None is `selected` if
 * the key `device` names one that is not there. It opens no device. Errors: NOMEM. */
sol_status sol_devices(struct sol_ctx *ctx, void (*show)(void *user, const struct sol_device_info *info), void *user);

/* Selects the device that networks run on which are compiled later: "TYPE", "TYPE:INDEX", or "auto" for the processor.
 * The key `device` is the same choice, which is checked when a network is compiled. Errors: UNSUPPORTED (there is no
 * such device; the message says why), NOMEM. */
sol_status sol_device_select(struct sol_ctx *ctx, const char *device);

/* -- tensors that lie on a device. A heap is memory of a device and one queue. What these functions do to the memory
 * happens in the order of their calls, whichever threads call; only sol_heap_read and sol_heap_wait wait for it.
 * Addresses are virtual: a place plus an offset in bytes, which nobody may dereference. What fails later than its call
 * is reported by the next call of the heap. */
struct sol_heap;
/* The heap of "TYPE:INDEX"; one for each device, which lives as long as the context. Errors: UNSUPPORTED (there is no
 * such device), INVALID (a child process after fork), and what the device says. */
sol_status sol_heap_open(struct sol_ctx *ctx, const char *device, struct sol_heap **out_heap);
/* `bytes` > 0, aligned to 256. Errors: NOMEM: smaller allocations may still succeed. */
sol_status sol_heap_alloc(struct sol_heap *h, int64_t bytes, uint64_t *out_p);
void sol_heap_free(struct sol_heap *h, uint64_t p); /* when what was called before is done; accepts 0 */
/* The place of a framework's memory in the heap: nothing is copied, and nothing is to be freed. Its owner may reuse the
 * memory behind what was called before in the same stream. `address`: the driver's (CUdeviceptr). Places differ as
 * addresses do, so the place of address 0 may be asked for once and added to. Errors: UNSUPPORTED (OpenCL, whose memory
 * has no addresses). */
sol_status sol_heap_place(struct sol_heap *h, uint64_t address, uint64_t *out_p);
/* The heap's queue goes on in a stream of a framework, such as a CUstream (its default stream is CU_STREAM_LEGACY, 1,
 * and not 0); NULL: in its own. What is called from now on is in the framework's order, between what the framework
 * itself appends to the stream, and behind what the heap was asked for before, for which the host does not wait.
 * Errors: UNSUPPORTED (the device has no streams, or OpenCL; a stream that is captured into a graph), and what failed
 * before. */
sol_status sol_heap_follow(struct sol_heap *h, void *stream);
/* The same for one thread until sol_heap_leave: others that enter wait for that. After an error it has not entered. */
sol_status sol_heap_enter(struct sol_heap *h, void *stream);
void sol_heap_leave(struct sol_heap *h);
/* The host's data may change as soon as the function returns. */
sol_status sol_heap_write(struct sol_heap *h, uint64_t to, const void *data, int64_t bytes);
sol_status sol_heap_read(struct sol_heap *h, void *host, uint64_t from, int64_t bytes);
sol_status sol_heap_copy(struct sol_heap *h, uint64_t to, uint64_t from, int64_t bytes); /* disjoint ranges */
sol_status sol_heap_fill(struct sol_heap *h, uint64_t to, int value, int64_t bytes);     /* with one byte */
sol_status sol_heap_wait(struct sol_heap *h);
/* What its device did so far, for whomever: waits of the host, and what the last one was for ("a value", NULL: there
 * was none), commands, and bytes that are allocated now. */
struct sol_heap_counts {
    int64_t waits, writes, reads, copies, runs, bytes;
    const char *last_wait;
};
void sol_heap_counts(struct sol_heap *h, struct sol_heap_counts *out_counts);
/* Bytes of its device: those that SOL has of it (in use, or kept for later), the most so far, and all that there are
 * (0: unknown). `reset` forgets the most before it is read. */
struct sol_heap_memory {
    int64_t reserved, most_reserved, total;
};
sol_status sol_heap_memory(struct sol_heap *h, int reset, struct sol_heap_memory *out_memory);
int sol_heap_idle(struct sol_heap *h); /* is everything done that it was asked for? */
/* Waits, and gives memory that is not in use back to the device. */
sol_status sol_heap_trim(struct sol_heap *h);
/* An event of a heap happens when everything is done that the heap was asked for before. `record` makes one. What a
 * heap is asked for behind `after` begins after the event, which may be of another device; if what is in front of the
 * event fails, so does this. sol_event_wait waits for it on the host, and reports what failed there. sol_event_between
 * is the time in ns between two that have happened. Free events before the context, at any time. */
struct sol_event;
sol_status sol_heap_record(struct sol_heap *h, struct sol_event **out_event);
sol_status sol_heap_after(struct sol_heap *h, struct sol_event *e);
int sol_event_happened(struct sol_event *e);
sol_status sol_event_wait(struct sol_event *e);
int64_t sol_event_between(struct sol_event *from, struct sol_event *to);
void sol_event_free(struct sol_event *e); /* accepts NULL */

/* -- a network. Tensors and layers belong to the graph and live as long as it does. */

/* `name` appears in messages and file names. The graph functions copy all texts and arrays. Errors: NOMEM. */
sol_status sol_graph_create(struct sol_ctx *ctx, const char *name, struct sol_graph **out_g);
void sol_graph_destroy(struct sol_graph *g); /* accepts NULL */

/* A dimension that varies: its size is known only when the network runs. *out_size is used like a number in shapes and
 * in integer attributes; it and expressions of it are made and read with the functions sol_size_*. `hint` is the size
 * that costs are estimated for (and tuning is done for), min and max are the limits (max 0: none that is known), and
 * the size is always a multiple of `multiple`. Errors: INVALID (no size is possible, more than 32 dimensions). */
struct sol_dim_limits {
    int64_t hint, min, max, multiple;
};
sol_status sol_graph_dim(struct sol_graph *g, const char *name, const struct sol_dim_limits *limits, int64_t *out_size);
/* A dimension that the network sets while it runs, because its size depends on data: the number of elements that the
 * first layer finds which has it as its attribute `size` (NonZero, Unique). It is 0 to `most`, a
 * size of the inputs, for which memory is planned. Other layers with the same `size` must find as many, or the call
 * fails. Such networks run on processors and have no gradient. Errors: as sol_graph_dim. */
sol_status sol_graph_data_dim(struct sol_graph *g, const char *name, int64_t most, int64_t *out_size);
/* Sizes of a call must not make `size` negative. `what`, for messages: who needs it ("line net.py:9"). Layers need what
 * their shapes say without that. */
sol_status sol_graph_require(struct sol_graph *g, int64_t size, const char *what);
/* Expressions of sizes, which are numbers or vary. SOL_SIZE_BAD: overflow, or division by zero. */
#define SOL_SIZE_BAD INT64_C(0x15A5E00400000)
enum sol_size_op {
    SOL_SIZE_ADD,
    SOL_SIZE_SUB,
    SOL_SIZE_MUL,
    SOL_SIZE_FLOOR_DIV, /* rounds down */
    SOL_SIZE_MOD,       /* has the sign of the divisor */
    SOL_SIZE_MIN,
    SOL_SIZE_MAX
};
int64_t sol_size(enum sol_size_op op, int64_t a, int64_t b);
int sol_size_varies(int64_t size);
int sol_size_le(int64_t a, int64_t b); /* is a <= b proven, whatever the dimensions are? */
int64_t sol_size_hint(int64_t size);   /* its value for the dimensions' hints */
/* Is it a dimension itself? Then these are its limits. */
int sol_size_limits(int64_t size, struct sol_dim_limits *out_limits);
/* Its value where dimension number i is dims[i]. */
int64_t sol_size_at(int64_t size, const int64_t *dims);
/* "12*#0+3". Writes at most `room` bytes with the terminator; returns the length of the whole text. Errors: NOMEM (0).
 */
size_t sol_size_text(struct sol_ctx *ctx, int64_t size, char *out, size_t room);
/* Is the calling thread's last error that two sizes differ, of which one varies? Then these are they; *out_b is -1
 * where *out_a must be a number, whichever. A frontend makes them equal and reads the model again, or reports the
 * error. */
int sol_error_sizes(struct sol_ctx *ctx, int64_t *out_a, int64_t *out_b);

/* The caller passes inputs with every call. It sets parameters with sol_params_set and may change them between calls.
 * Constants are copied; their data is row-major. `shape` counts elements. ndim is 0 to 12, sizes may be 0, and their
 * product is at most 2^47. Only inputs may have sizes that vary. Errors: INVALID (shape), NOMEM. */
sol_status sol_graph_input(struct sol_graph *g, const char *name, enum sol_dtype dtype, int ndim, const int64_t *shape,
                           struct sol_tensor **out_t);
sol_status sol_graph_param(struct sol_graph *g, const char *name, enum sol_dtype dtype, int ndim, const int64_t *shape,
                           struct sol_tensor **out_t);
sol_status sol_graph_const(struct sol_graph *g, enum sol_dtype dtype, int ndim, const int64_t *shape, const void *data,
                           struct sol_tensor **out_t);
/* Outputs are numbered in the order of these calls. One tensor may be several outputs. An input or a parameter may be
 * an output. */
sol_status sol_graph_output(struct sol_graph *g, const char *name, struct sol_tensor *t);

/* The network will take and give tensors that lie on the device "TYPE:INDEX", instead of memory of the host: pointers
 * of inputs, outputs and parameters are places in the device's heap (sol_heap_alloc, sol_heap_place), converted to
 * pointers, wherever there are elements. Then a run returns before the device has done it. What else happens to these
 * places through the heap happens before or after the run, in the order of the calls, so they may be freed or written
 * at once. An error in the data is reported by a later call of the heap, or of such a network. A run waits for steps of
 * the host, for measurements (key profile), for a callback of sol_on_step, and on devices that launch single kernels
 * (OpenCL). Errors of sol_compile: as sol_heap_open. Errors: NOMEM. */
sol_status sol_graph_resident(struct sol_graph *g, const char *device);

struct sol_attr {
    const char *name;
    enum { SOL_ATTR_INT, SOL_ATTR_REAL, SOL_ATTR_TEXT } kind;
    int n;               /* -1: one value; otherwise a list of n */
    const int64_t *ints; /* INT: n values (one if n is -1) */
    const double *reals; /* REAL */
    const char *text;    /* TEXT */
};

struct sol_new_layer {
    const char *kind; /* of layers.def, an element-wise function of math.def, or registered: "Conv", "relu", "my::f" */
    int nin;
    struct sol_tensor *const *in; /* an entry may be NULL: an optional input that is missing */
    int nattr;
    const struct sol_attr *attrs; /* missing ones have their defaults */
    const char *name;             /* for messages: "layer1.0.conv1"; may be NULL */
    const char *where;            /* the location in the user's source: "model.py:41"; may be NULL */
};
/* Adds a layer: `sol_graph_layer(g, &(struct sol_new_layer){.kind = "relu", .nin = 1, .in = &x}, 1, &y)`. The inputs of
 * an element-wise function are broadcast as in NumPy and must have the same type. `out` receives `nout` tensors, which
 * may be fewer than the layer has. Errors: INVALID (unknown layer or attribute; shapes or types that do not fit, which
 * the message shows), UNSUPPORTED (a type), NOMEM. */
sol_status sol_graph_layer(struct sol_graph *g, const struct sol_new_layer *n, int nout, struct sol_tensor **out);
/* Is there a layer or function of this name? */
int sol_layer_known(struct sol_ctx *ctx, const char *kind);
/* Returns the name of the i-th layer, its attributes with defaults, and its description; NULL if i is past the last.
 * Layers from outside (sol/extend.h) come last. */
const char *sol_layer_at(struct sol_ctx *ctx, int i, const char **out_attributes, const char **out_doc);
/* Counts the floating-point operations and bytes of the graph's layers as given, before any optimization. */
void sol_graph_work(const struct sol_graph *g, double *out_flops, double *out_bytes);

enum sol_dtype sol_tensor_dtype(const struct sol_tensor *t);
int sol_tensor_ndim(const struct sol_tensor *t);
int64_t sol_tensor_size(const struct sol_tensor *t, int dim);
/* Returns the row-major value of a tensor that is known before running: a constant, or computed from constants only
 * (such as shape arguments of ONNX). NULL: not known. Valid as long as the graph. */
const void *sol_tensor_known(struct sol_tensor *t);

/* Convert a graph to text (docs/text-form.md) and back. Free the text with sol_free. */
sol_status sol_graph_print(const struct sol_graph *g, char **out_text);
sol_status sol_graph_parse(struct sol_ctx *ctx, const char *text, struct sol_graph **out_g);
void sol_free(struct sol_ctx *ctx, void *p);

/* -- training. */

/* Appends the gradient to a complete graph. For each output of[i], the graph gets a new input after the existing ones,
 * in this order: the gradient of that output, with the same shape and type. For each with[i] (an input or parameter of
 * a real type), the graph gets a new output after the existing ones: the gradient of with[i]. If with[i] does not
 * influence any output of[], because the path leads through integers or `stop`, out_reached[i] is 0 and there is no
 * such output. Where the derivative is 0, as for round, the gradient consists of zeros. Errors: UNSUPPORTED (the
 * message names all layers without a gradient). */
sol_status sol_graph_differentiate(struct sol_graph *g, int nof, const int *of, int nwith,
                                   struct sol_tensor *const *with, int *out_reached);
/* Sets out[i * nwith + k] to 1 if output of[i] has a gradient for with[k], otherwise 0. Call it before
 * sol_graph_differentiate. */
sol_status sol_graph_influences(struct sol_graph *g, int nof, const int *of, int nwith, struct sol_tensor *const *with,
                                unsigned char *out);

/* -- an optimized network. The graph may be destroyed afterwards. */

/* Optimizes the graph in place, generates and compiles the code that the cache does not have, and loads it. This takes
 * seconds the first time and milliseconds later. Errors: COMPILER (missing or failed), UNSUPPORTED (this machine cannot
 * run code for the key target), INTERRUPTED, IO (no space to build), NOMEM. An error never damages the cache. */
sol_status sol_compile(struct sol_ctx *ctx, struct sol_graph *g, struct sol_net **out_net);
void sol_net_destroy(struct sol_net *net); /* while no call of it runs; accepts NULL */

/* Memory in bytes. `inputs` and `outputs` include those of backward. `prepared` are packed parameters. `saved` is what
 * one forward stores for backward. `peak` is the sum of all, including parameters. if_* estimate the peak for other
 * values of the key training::memory; they are 0 for a network without a gradient. */
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
/* Inputs, outputs and parameters, in the order in which they were added to the graph. Names and shapes live as long as
 * the network. If i is past the last, all fields are 0. */
int sol_net_inputs(const struct sol_net *net);
int sol_net_outputs(const struct sol_net *net);
int sol_net_params(const struct sol_net *net);
int sol_net_host_steps(const struct sol_net *net); /* that a device leaves to the host; a processor has none */
struct sol_io sol_net_input(const struct sol_net *net, int i);
struct sol_io sol_net_output(const struct sol_net *net, int i);
struct sol_io sol_net_param_io(const struct sol_net *net, int i);

/* A set of parameters, which belongs to the caller. One network may run with several sets (for example of several
 * instances of a model), one after the other or at the same time. A set also holds packed and folded parameters.
 * Destroy it before the network, while no call uses it; NULL is accepted. A network without parameters needs a set as
 * well. Errors: NOMEM. */
sol_status sol_params_create(struct sol_net *net, struct sol_params **out_params);
void sol_params_destroy(struct sol_params *params);
/* Sets parameter i, in the order of sol_graph_param. The row-major data belongs to the caller; sol_net_run reads it.
 * Call this function again whenever the data or its address changes, even if only the data changed. The next run then
 * packs and folds this parameter again. Errors: INVALID (no such parameter). */
sol_status sol_params_set(struct sol_params *params, int i, const void *data);
/* Runs the network. Inputs and outputs are row-major, aligned to their elements, and must not overlap. threads 0 uses
 * all processors that the process may use; any number gives the same bits. Several threads may call it at the same
 * time. Errors: INVALID (parameters of another network, a parameter that was never set, a NULL pointer), RUN (an error
 * in the data, such as an index out of range; the outputs are then undefined), NOMEM. */
sol_status sol_net_run(struct sol_net *net, struct sol_params *params, const void *const *inputs, void *const *outputs,
                       int threads);
/* Run the two halves of a network with a gradient. Forward reads the inputs and writes the outputs that existed before
 * sol_graph_differentiate, and returns the tensors saved for backward. Backward reads those, the gradients of outputs,
 * and some inputs and outputs of forward (sol_net_backward_reads), which must not have changed; it writes the
 * gradients. In both functions, entries of `inputs` and `outputs` that belong to the other half may be NULL. Backward
 * reads the current values of the parameters, so changing them in between changes the gradient. Any number of backwards
 * may follow one forward, and several forwards may be pending. Pass `keep` 0 to the only or last backward: it reuses
 * the memory of the saved tensors, which can then only be destroyed. With `keep` 1, backward works on a copy. Saved
 * memory belongs to the network, which reuses it for the next forward after sol_saved_destroy. */
struct sol_saved;
struct sol_call;
sol_status sol_net_forward(struct sol_net *net, struct sol_params *params, const void *const *inputs,
                           void *const *outputs, int threads, struct sol_saved **out_saved);
struct sol_backward {
    const void *const *inputs;
    void *const *outputs;
    int threads, keep;
};
sol_status sol_net_backward(struct sol_net *net, struct sol_params *params, struct sol_saved *saved,
                            const struct sol_backward *b);
void sol_saved_destroy(struct sol_saved *saved); /* before the context, even after its network; accepts NULL */
/* The same where the caller owns the memory of what is saved, for frameworks whose values are plain arrays that nobody
 * destroys by a call, such as JAX. sol_saved_in makes an object for `memory`, of as many bytes as sol_memory.saved is
 * at these sizes (dims as in struct sol_call), aligned to 64, and sol_net_forward_in fills it. sol_saved_destroy leaves
 * the memory as it is: sol_saved_in finds what is saved there, or in a copy of it, and sol_net_backward reads it, or
 * uses it up. Errors: INVALID (alignment, a forward at other sizes), UNSUPPORTED (a device with memory of its own),
 * NOMEM. */
sol_status sol_saved_in(struct sol_net *net, const int64_t *dims, void *memory, struct sol_saved **out_saved);
sol_status sol_net_forward_in(struct sol_net *net, struct sol_params *params, const struct sol_call *c,
                              struct sol_saved *saved);
/* Does backward read input i, output i or parameter i of forward? The caller must pass such inputs and outputs to
 * backward again, unchanged. */
enum sol_what { SOL_INPUT, SOL_OUTPUT, SOL_PARAM };
int sol_net_backward_reads(const struct sol_net *net, enum sol_what what, int i);
/* A network whose graph has dimensions that vary (sol_graph_dim) runs at any sizes of them within their limits. The
 * shapes of its inputs and outputs contain sizes that vary: sol_size_at(shape[d], dims) is the size for a call. */
struct sol_net_dim {
    const char *name; /* lives as long as the network */
    struct sol_dim_limits limits;
    int64_t most; /* the network sets it while it runs, to at most this size; -1: the caller tells it */
};
int sol_net_dims(const struct sol_net *net);                      /* how many; 0: all sizes are fixed */
struct sol_net_dim sol_net_dim(const struct sol_net *net, int i); /* if i is past the last, all fields are 0 */
/* Finds the sizes of a call: shapes[i] contains the sizes of input i, which has the number of dimensions that
 * sol_net_input says; NULL: not given (a gradient). out_dims receives sol_net_dims sizes. With sizes bound before, this
 * takes well below a microsecond. Errors: INVALID (inputs that disagree with each other or with the network, a size out
 * of its limits, a layer that cannot have these sizes, a dimension that is in no input's shape), NOMEM. */
sol_status sol_net_bind(struct sol_net *net, const int64_t *const *shapes, int64_t *out_dims);
/* The same where the caller has set some dimensions in `dims`: bit i of `known` is for dimension i. */
sol_status sol_net_bind_known(struct sol_net *net, const int64_t *const *shapes, uint32_t known, int64_t *dims);
/* Checks sizes that the caller found in another way. Errors: as sol_net_bind. */
sol_status sol_net_check_dims(struct sol_net *net, const int64_t *dims);
struct sol_call {
    const int64_t *dims; /* NULL: the network has none */
    const void *const *inputs;
    void *const *outputs;
    int threads;
    int64_t *out_dims; /* NULL, or room for sol_net_dims sizes: as `dims`, with those that the run has set */
};
/* The same as sol_net_run and sol_net_forward, at the sizes of the call. sol_net_backward runs at the sizes of its
 * forward. Several threads may use different sizes at the same time. Memory grows to what the largest sizes need. Other
 * errors: INVALID (sizes), NOMEM: smaller sizes still run. For dimensions that the network sets (sol_graph_data_dim),
 * the caller's entries of `dims` do not count, and outputs have room for sol_net_output_room elements. They are
 * written as tensors of the sizes in out_dims: sol_size_at(shape[d], out_dims). */
sol_status sol_net_run_at(struct sol_net *net, struct sol_params *params, const struct sol_call *c);
sol_status sol_net_forward_at(struct sol_net *net, struct sol_params *params, const struct sol_call *c,
                              struct sol_saved **out_saved);
/* The most elements that output i may have at given sizes, whatever the network sets: a part behind the elements that
 * it finds is largest if it finds none. */
int64_t sol_net_output_room(const struct sol_net *net, int i, const int64_t *dims);
/* The memory at given sizes; sol_net_memory is for the dimensions' hints. Errors: INVALID (sizes), NOMEM. */
sol_status sol_net_memory_at(struct sol_net *net, const int64_t *dims, struct sol_memory *out_m);
/* The peak as a formula of the dimensions, "12.1MB + #0 * 3.4MB", which is exact at the hints and an estimate
 * elsewhere. Free it with sol_free. Errors: NOMEM. */
sol_status sol_net_memory_print(struct sol_net *net, char **out_text);
/* With the configuration key profile=1, SOL measures every kernel in every run. A row describes one kernel: first those
 * of forward in their order, then those of backward. Times cover the last runs, at most 64. Operations are those of the
 * layers as defined; Winograd needs fewer. Bytes are what the layers read and write. */
struct sol_profile_row {
    const char *label;  /* the layers; texts live as long as the network */
    const char *solver; /* the solver and its variant */
    const char *where;  /* the location of the first layer in the user's source; "": unknown */
    int backward;       /* 0: forward */
    int runs;           /* measured runs; 0: none */
    double flops, bytes, median_ns, least_ns;
    /* Shares of the machine's limits (sol_machine): of arithmetic, and of the bandwidth of the nearest memory level
     * that holds all the data: "L2", "L3" or "mem". 0 and "": unknown. */
    double of_peak, of_rate;
    const char *level;
};
/* Fills in row i. Returns 0 if there is none. */
int sol_net_profile(struct sol_net *net, int i, struct sol_profile_row *out_row);
/* Returns the measured rows as a table, slowest kernels first. Free it with sol_free. Errors: NOMEM. */
sol_status sol_net_profile_print(struct sol_net *net, char **out_text);
void sol_net_profile_clear(struct sol_net *net); /* discards all measurements */
/* Sets a callback for profilers. The calling thread of a run calls it with the layers of each step when the step
 * begins, and with NULL after the last step. Runs are slower with a callback. NULL removes it. */
void sol_on_step(struct sol_ctx *ctx, void (*step)(void *user, const char *label));

#ifdef __cplusplus
}
#endif
#endif
