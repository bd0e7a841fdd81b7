/* The `sol` command: one file a subcommand, all of them over include/sol. */
#ifndef SOL_CLI_H
#define SOL_CLI_H

#include <stdbool.h>
#include <stdio.h>

#include "sol/onnx.h"
#include "sol/sol.h"

enum cli_exit {
    EXIT_GOOD = 0,
    EXIT_MISMATCH = 1, /* verify: outputs differ */
    EXIT_USAGE = 2,
    EXIT_REFUSED = 3, /* the model is unsound, or has what SOL does not support */
    EXIT_FAILED = 4   /* files, compiler, memory, running */
};

#define MOST_ITEMS 256

struct pair { /* NAME=VALUE as it was given */
    const char *name, *value;
};
struct options {
    const char *file; /* the model */
    struct pair inputs[MOST_ITEMS], fixed[MOST_ITEMS], expected[MOST_ITEMS];
    struct sol_onnx_dim dims[MOST_ITEMS];
    int ninputs, nfixed, nexpected, ndims, threads, rounds;
    const char *output_dir;
    const char *folders[MOST_ITEMS]; /* of test data, for verify */
    int nfolders;
    uint64_t seed;
    double rtol, atol;
    bool random, layers, memory, verbose;
};

/* An array in memory, of the C library's malloc. */
struct array {
    const char *name;
    enum sol_dtype dtype;
    int ndim;
    int64_t shape[12], elements;
    size_t bytes;
    void *data;
};

/* main.c */
struct cli {
    struct sol_ctx *ctx;
    struct options o;
    bool terminal; /* progress is shown */
};
/* Prints an error and returns the exit code that belongs to it. */
int cli_fail(struct cli *c, sol_status status);
int cli_error(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* subcommands: return an exit code */
int cmd_info(struct cli *c);
int cmd_compile(struct cli *c);
int cmd_run(struct cli *c);
int cmd_verify(struct cli *c);
int cmd_bench(struct cli *c);
int cmd_cache(struct cli *c);
int cmd_config(struct cli *c);

/* model.c: loading, compiling, and the arrays of a call */
struct model {
    struct sol_onnx *onnx;
    struct sol_net *net;
    double load_s, compile_s;
};
struct call {
    int nin, nout;
    struct array *in, *out;
    const void **inputs;
    void **outputs;
};
int model_load(struct cli *c, struct model *m); /* with --dim, --fix and the shapes of --input */
int model_compile(struct cli *c, struct model *m);
void model_free(struct model *m);
int call_make(struct cli *c, const struct model *m, bool random,
              struct call *out_call); /* inputs from --input or random */
int call_run(struct cli *c, const struct model *m, struct call *call, double *out_s);
void call_free(struct call *call);
void print_io(const struct sol_io *io, const char *indent);
void print_memory(const struct sol_net *net);
double now_s(void);
const char *human_bytes(int64_t bytes, char out[32]);

/* npy.c: NumPy's format of one array, versions 1 to 3, little-endian, C or Fortran order. Messages are printed. */
bool npy_read(const char *path, struct array *out_a);
bool npy_write(const char *path, const struct array *a);
/* array.c */
bool array_make(struct array *a, const char *name, enum sol_dtype dtype, int ndim, const int64_t *shape);
bool array_read(struct cli *c, const char *path, struct array *out_a); /* .npy, or .pb of ONNX test data */
void array_free(struct array *a);
void array_random(struct array *a, uint64_t *seed);
double array_at(const struct array *a, int64_t i);
size_t dtype_bytes(enum sol_dtype t);
const char *dtype_text(enum sol_dtype t);
bool dtype_is_float(enum sol_dtype t);

#endif
