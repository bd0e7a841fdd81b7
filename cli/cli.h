/* The `sol` command: one file per subcommand, using the public headers only. */
#ifndef SOL_CLI_H
#define SOL_CLI_H

#include "array.h"
#include "sol/deploy.h"
#include "sol/onnx.h"

#define MOST_ITEMS 256
#define MOST_DIMS 32 /* that vary (sol_graph_dim) */

struct pair { /* NAME=VALUE as given */
    const char *name, *value;
};
struct options {
    const char *file; /* the model */
    struct pair inputs[MOST_ITEMS], fixed[MOST_ITEMS], expected[MOST_ITEMS];
    struct sol_onnx_dim dims[MOST_ITEMS];
    int ninputs, nfixed, nexpected, ndims, threads, rounds;
    struct sol_onnx_limits limits[MOST_DIMS]; /* of dimensions that vary */
    int nlimits;
    int64_t sizes[MOST_ITEMS]; /* sizes of dimension `sized` if several are given */
    int nsizes, sized;
    const char *output_dir;
    const char *target; /* of a deployment */
    struct sol_deploy_key dargs[MOST_ITEMS];
    int ndargs;
    const char *folders[MOST_ITEMS]; /* for verify: folders with test data */
    int nfolders;
    uint64_t seed;
    double rtol, atol;
    bool random, layers, devices, memory, profile, verbose, list_keys;
};

/* main.c */
struct cli {
    struct sol_ctx *ctx;
    struct options o;
    bool terminal; /* stderr is a terminal */
};
/* Prints the context's error and returns the matching exit code. */
int cli_fail(struct cli *c, sol_status status);
bool cli_stopped(void); /* Ctrl-C was pressed */

/* The subcommands. Each returns an exit code. */
int cmd_info(struct cli *c);
int cmd_compile(struct cli *c);
int cmd_run(struct cli *c);
int cmd_verify(struct cli *c);
int cmd_bench(struct cli *c);
int cmd_deploy(struct cli *c);
int cmd_cache(struct cli *c);
int cmd_wisdom(struct cli *c);
int cmd_config(struct cli *c);
int cmd_doctor(struct cli *c);

/* model.c: loading and compiling a model, and the arrays of a call */
struct model {
    struct sol_onnx *onnx;
    struct sol_net *net;
    struct sol_params *params;
    double load_s, compile_s;
    struct array given[MOST_ITEMS], fixed[MOST_ITEMS]; /* the files of --input, until a call takes them, and of --fix */
    int64_t dims[MOST_DIMS];                           /* of a call, if sizes vary */
};
/* What sizes are that the model leaves open and --dim does not say. */
enum {
    OPEN_GIVEN = 0,  /* those of the files of --input; others are an error */
    OPEN_ONE = 1,    /* those of the files, or 1 */
    OPEN_VARIES = 2, /* they vary */
};
struct call {
    int nin, nout;
    struct array *in, *out;
    const void **inputs;
    void **outputs;
};
/* Loads the model with --dim and --fix. how: a set, of which the first that is possible counts: OPEN_VARIES, OPEN_ONE,
 * OPEN_GIVEN, which is in every set. */
int model_load(struct cli *c, struct model *m, unsigned how);
int model_compile(struct cli *c, struct model *m);
/* Loads and compiles the network of all sizes, and finds the sizes of the files of --input. If there is no such
 * network, or they do not fit it, the network of their sizes alone. call: a call follows, which needs files. */
int model_make(struct cli *c, struct model *m, bool call);
void model_free(struct model *m);
int call_make(struct cli *c, struct model *m, bool random,
              struct call *out_call); /* inputs come from --input or are random */
int call_run(struct cli *c, const struct model *m, struct call *call, double *out_s);
void call_free(struct call *call);
void print_io(struct cli *c, const struct sol_io *io, const char *indent);
/* Prints the sizes that the model leaves open, and their values, in one line. Sizes that the options give are left
 * out. */
void print_open(FILE *to, const struct model *m, const struct options *given);
void print_sizes(struct cli *c, const struct model *m); /* the open sizes: which vary, and why others do not */
void print_hints(const struct model *m);                /* " at batch=8": the sizes that estimates are for */
void print_memory(struct cli *c, const struct model *m);
void print_process(void);                                              /* prints the process's peak memory */
bool array_read(struct cli *c, const char *path, struct array *out_a); /* .npy, or .pb as in ONNX's test data */
double now_s(void);
const char *human_count(double v, const char *unit, char out[32]); /* "8.2 GFLOP" */
const char *human_bytes(int64_t bytes, char out[32]);
const char *human_time(double seconds, char out[32]);

#endif
