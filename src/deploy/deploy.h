/* Deploy turns a network into a library or its source. deploy.c reads the keys, collects the graphs (one for each batch
 * size, and one for training), plans and schedules each graph for each instruction set, writes all weights into one
 * file, writes the sources, and for a library runs compiler and linker. A library has the same sources as the target
 * `source`. */
#ifndef SOL_DEPLOY_INSIDE_H
#define SOL_DEPLOY_INSIDE_H

#include "build/build.h"
#include "deploy/front.h"
#include "schedule/quantities.h"
#include "schedule/schedule.h"
#include "sol/deploy.h"
#include "sol/device.h"

enum deploy_target { DEPLOY_SHARED, DEPLOY_STATIC, DEPLOY_SOURCE };

struct deploy_keys { /* as they were given */
#define X(key, field, ...) const char *field;
#include "deploy/keys.def"
#undef X
};

/* An instruction set. */
struct deploy_version {
    const char *name, *id; /* "x86-64-v3", x86_64_v3 */
    const char *march;
    struct target target;
    const char *const *flags; /* of its kernels */
    uint32_t needs;           /* as in front.h */
    bool tuned;               /* this machine can run it, and the key autotune is not off */
    struct map *kernels;      /* what was written: by text, its symbol */
    int nkernel;
};
/* One graph's code for one instruction set. */
struct deploy_code {
    struct schedule *schedule;
    int nsize;           /* sizes of a call, if sizes vary; known when the tables are written */
    const char **symbol; /* by kernel; NULL: no step uses it */
    int64_t *param_at, *const_at;
};
/* The self-test at given sizes. */
struct deploy_test {
    const char *id;              /* of its tables, behind the graph's: "", "_at1" */
    int64_t *dims;               /* NULL: none vary */
    struct front_golden *golden; /* by output */
    int made_up;                 /* what its inputs are: MADE_UP_SIGNED, .. */
};
enum { DEPLOY_TESTS = 3 };
/* One of the library's graphs. */
struct deploy_graph {
    struct sol_graph *g;
    const void *const *params;
    int seed_input;
    int64_t batch;
    const char *id;           /* what its files and tables are called behind the version: "", "_batch8", "_training" */
    struct deploy_code *code; /* by version */
    struct deploy_test test[DEPLOY_TESTS]; /* key selftest */
    int ntest;
    struct quantities own; /* sizes of a call that front computes, if sizes vary */
    int nshape;            /* sizes of all inputs and outputs */
};

struct deploy_source {                      /* to be compiled */
    const char *file;                       /* relative to `work` */
    const struct deploy_version *kernel_of; /* NULL: runs on every machine */
};
struct deploy_piece { /* of the weights */
    const void *data;
    int64_t bytes, at;
};

struct deploy {
    struct sol_ctx *ctx;
    struct arena *arena;
    struct sol_graph *g; /* the first */
    const struct sol_deploy_options *options;
    enum deploy_target target;
    struct deploy_keys keys;
    const struct device *device;
    const struct toolchain *toolchain; /* that makes programs for it elsewhere */
    const char *cc;                    /* path of the compiler */
    bool clang, cross, bare;           /* bare: key threads=0 */
    struct {
        const struct sol_device_type *type; /* with memory of its own; NULL: the network runs on the processor */
        struct sol_device_info info;
        const char *flags; /* of its compiler */
        bool native;       /* inputs and outputs lie there */
    } there;
    bool limited;         /* all dimensions that vary have a largest size */
    int ninput, noutput;  /* that the caller gives and gets: without gradients, with the seed */
    int ngraph, npredict; /* what trains is the last, behind those that predict */
    struct deploy_graph *graph;
    struct sol_graph *copy; /* that trains, if none was given */
    VECTOR(int) trained;    /* parameters of what trains that have a gradient: their numbers */
    VECTOR(int) given;      /* its outputs whose gradients are inputs */
    int nwritten;           /* of its outputs: new values of parameters */
    const int *written;
    int nversion;
    struct deploy_version *version;
    VECTOR(struct deploy_piece) pieces;
    int64_t weights_bytes;
    uint64_t weights_hash;
    char model[33];   /* its hash */
    const char *work; /* folder for sources and objects: `path` itself if those are wanted */
    VECTOR(struct deploy_source) sources;
    VECTOR(const char *) alone;                      /* files of layers without loops, those that it has */
    VECTOR(const struct layer_function *) functions; /* from outside, one for each source */
};

/* keys.c */
sol_status deploy_read_keys(struct deploy *d);
bool deploy_is_one_of(const char *values, const char *value); /* values: separated by '|'; "": any */
bool deploy_is_free(const char *name);                        /* a name of a function or parameter in C and C++ */
/* device.c: devices with memory of their own. */
struct schedule;
const char *deploy_device_names(struct arena *a); /* ", x86, .. ve": all that device_type may be */
/* Sets `there` if it is the name of such a device, and checks keys. */
sol_status deploy_find_driver(struct deploy *d, const char *name);
sol_status deploy_device_version(struct deploy *d, struct deploy_version *v);
sol_status deploy_check_device(struct deploy *d, const struct schedule *s);
sol_status deploy_write_code(struct deploy *d, const struct deploy_version *v, const struct deploy_graph *g,
                             const struct deploy_code *code, const char *folder);
const char *deploy_put_device(struct deploy *d, struct text *t, const char *name, const struct schedule *s);
sol_status deploy_write_driver(struct deploy *d);
const char *deploy_device_note(struct deploy *d);      /* in the header */
const char *deploy_native_functions(struct deploy *d); /* in the header, if inputs and outputs lie on the device */
const char *deploy_native_example(struct deploy *d);   /* example.c */
/* model.c */
void deploy_hash_model(struct deploy *d);
/* sizes.c: the header's macros. */
const char *deploy_sizes(struct deploy *d);
const char *deploy_macro_name(struct deploy *d); /* what they begin with: PREDICT */
const char *deploy_upper(struct deploy *d, const char *name);
/* dims.c: dimensions that vary. Checks them, and gives them names in C. */
sol_status deploy_dims(struct deploy *d);
bool deploy_varies(const struct deploy *d);
const char *deploy_dim_list(struct deploy *d, const char *before); /* "batch, height"; `before` each name */
const char *deploy_dim_parameters(struct deploy *d);               /* ", int64_t batch"; "": none vary */
const char *deploy_dim_array(struct deploy *d);                    /* the parameters as an array */
const char *deploy_dim_comment(struct deploy *d);
const char *deploy_dim_section(struct deploy *d); /* of the header */
const char *deploy_dim_table(struct deploy *d);
const char *deploy_dim_example(struct deploy *d, int which); /* sizes for the example: the graph's (0), or others */
const char *deploy_dim_places(struct deploy *d);
void deploy_put_sized_tensor(struct deploy *d, struct text *t, const char *name, const struct sol_tensor *x);
/* The table `sizes` of a graph, behind those of its layers without loops. */
void deploy_put_sizes(struct deploy *d, struct text *t, struct deploy_graph *g);
/* Memory that is enough for all sizes, and places of blocks in it. False: there is none. */
struct deploy_most {
    int64_t workspace, scratch, opaque;
    const struct rt_block *block;
    int nblock;
};
bool deploy_most(struct deploy *d, const struct schedule *s, struct deploy_most *out_m);
/* Its table for a code; returns its address in C. */
const char *deploy_put_most(struct deploy *d, struct text *t, const char *name, const struct schedule *s);
/* deploy.c */
bool deploy_trains(const struct deploy *d);
/* Output i of the model: in what trains it comes behind what forward writes. */
const struct sol_tensor *deploy_output(const struct deploy *d, const struct deploy_graph *g, int i);
int deploy_inputs(const struct deploy *d); /* that the caller gives: without the seed */
const char *deploy_input_name(const struct deploy *d, int i);
const char *deploy_output_name(const struct deploy *d, int i);
/* version.c: finds the compiler, makes the instruction sets, plans and schedules all graphs for each. */
sol_status deploy_find_compiler(struct deploy *d);
sol_status deploy_versions(struct deploy *d);
/* The flags of all code, NULL: that runs on every machine. */
const char *const *deploy_flags(struct deploy *d, const struct deploy_version *v);
sol_status deploy_plan(struct deploy *d);
/* settle.c: computes steps of `prepare` at deployment; their results become constants of the schedule. */
sol_status deploy_settle(struct deploy *d, const struct deploy_graph *g, const struct deploy_version *v,
                         struct deploy_code *code);
/* weights.c: the layout of all weights, and their file. */
sol_status deploy_weights(struct deploy *d);
sol_status deploy_write_weights(struct deploy *d, const char *path);
/* ahead.c: compiles a schedule's code for this machine. Close it with module_close. Its memory belongs to the arena. */
struct deploy_here {
    struct deploy *d;
    const struct schedule *schedule;
    struct module module;
    char **base, **operands, *prepared, *workspace, *scratch;
    int64_t *sizes; /* of the call; NULL: none vary */
    int threads;
};
struct deploy_data { /* by number; consts NULL: as they are */
    const void *const *params, *const *consts, *const *inputs;
    void *const *outputs;
};
sol_status deploy_open(struct deploy *d, const struct deploy_version *v, const struct schedule *s,
                       struct deploy_here *out_h);
/* Memory and sizes for runs with these dimensions. NULL: the hints. */
sol_status deploy_resize(struct deploy_here *h, const int64_t *dims);
sol_status deploy_run_here(struct deploy_here *h, const struct sol_program *p, const struct deploy_data *data);
/* Computes the prepared block of a schedule with the steps of `prepare` that `only` marks. */
sol_status deploy_prepare(struct deploy *d, const struct deploy_graph *g, const struct deploy_version *v,
                          const struct schedule *s, const bool *only, void **out_block);
/* golden.c: the reference values of the self-test, as a table and as fields of each graph's row. */
enum { GOLDEN_SAMPLES = 64 }; /* of an output, at most */
sol_status deploy_golden(struct deploy *d);
bool deploy_tests_itself(const struct deploy *d);
void deploy_put_golden(struct deploy *d, struct text *t, const struct deploy_graph *g);
const char *deploy_tested_sizes(struct deploy *d); /* "batch 2, height 8; batch 1, height 4" */
/* source.c: writes all sources into the folder `work`. */
sol_status deploy_sources(struct deploy *d);
void deploy_add_source(struct deploy *d, const char *file, const struct deploy_version *kernel_of);
/* The prefix of the tables of a graph's code for a version: net_x86_64_v3_batch8. */
const char *deploy_code_name(struct deploy *d, const struct deploy_graph *g, const struct deploy_version *v);
/* network.c: the files that are the network's own. */
sol_status deploy_network(struct deploy *d);
size_t deploy_opaque_bytes(struct deploy *d, const struct schedule *s); /* memory that one layer without loops needs */
/* kit.c: header, example, Makefile, .pc, CMake configuration, Python wrapper, into `path`. */
sol_status deploy_kit(struct deploy *d);
/* Rejects a folder in which sources would overwrite a foreign Makefile. */
sol_status deploy_check_folder(struct deploy *d);
/* The parameter list of the function after the context: in0, out0, or with names instead of numbers. */
const char *deploy_parameters(struct deploy *d, bool numbered);
/* make.c: library from sources, into `path`. */
sol_status deploy_make(struct deploy *d);
/* The file of the library: "libNN.so". */
const char *deploy_library(const struct deploy *d);
/* The program of binutils that belongs to the compiler: "aarch64-linux-gnu-ar". */
const char *deploy_tool(const struct deploy *d, const char *name);
/* Runs a program. If it fails, the message contains its output. `what` is for the message: "compiler". */
sol_status deploy_run(struct deploy *d, const char *what, const char *const *argv, const char **out_output);

/* text.c */
const char *deploy_file(const struct deploy *d, const char *folder, const char *name); /* folder/name */
const char *deploy_string(struct arena *a,
                          const char *text); /* as a C string, or for a comment: plain characters only, in quotes */
/* Fills in a template: `pairs` has names and the texts that replace @name@, and ends with NULL. */
const char *deploy_fill(struct arena *a, const char *template, const char *const *pairs);
/* Writes a text into a file. */
sol_status deploy_write(struct deploy *d, const char *folder, const char *name, const char *text);
const char *deploy_text(const char *name); /* a file of the deployed library that SOL carries: "front.c" */

#endif
