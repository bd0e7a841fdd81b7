/* ONNX models and tensors, read into SOL.
 *
 * `sol_onnx_load` translates a model into a graph and keeps the data of its weights, which are parameters of the graph:
 *
 *     sol_onnx_load(ctx, "net.onnx", NULL, &model);
 *     sol_compile(ctx, sol_onnx_graph(model), &net);
 *     sol_onnx_bind(model, net, &params);          the weights as parameters of the network
 *     sol_net_run(net, params, inputs, outputs, 0);
 *     sol_params_destroy(params), sol_net_destroy(net), sol_onnx_destroy(model);
 *
 * Files may come from anybody: sizes are checked before memory is taken, and data in other files is only read from the
 * model's own folder. What SOL cannot translate is reported all at once, by node, operator and opset. */
#ifndef SOL_ONNX_H
#define SOL_ONNX_H

#include "sol/sol.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sol_onnx; /* a loaded model: the graph, and the data of its weights */

struct sol_onnx_dim {
    const char *name; /* a symbolic dimension ("batch"), or input and axis ("x.0"), whether it has a symbol or not */
    int64_t size;
};
struct sol_onnx_value { /* an input that always has the same value: shapes may depend on it; it is no input any more */
    const char *name;
    enum sol_dtype dtype; /* must be the input's */
    int ndim;
    const int64_t *shape;
    const void *data; /* row-major; copied */
};
struct sol_onnx_shape { /* of the array that an input will get: it gives sizes that are open and not in `dims` */
    const char *name;   /* NULL: of input number `input`, counted without weights and those in `values` */
    int input, ndim;
    const int64_t *shape;
};
struct sol_onnx_options {
    size_t size; /* sizeof(struct sol_onnx_options) */
    int ndims;   /* sizes of dimensions that the model leaves open; one that is not given is an error that names it */
    const struct sol_onnx_dim *dims;
    int constants; /* 1: weights are constants of the graph; 0: parameters, apart from scalars and small integers */
    const char *folder; /* sol_onnx_load_memory: where files with external data may lie; NULL: none are allowed */
    int nvalues;
    const struct sol_onnx_value *values;
    int nshapes; /* what the model says is not compared with them: the caller finds its arrays unfit afterwards */
    const struct sol_onnx_shape *shapes;
    int64_t open_size; /* of dimensions that are still open; 0: that is an error */
};

/* Options may be NULL. Errors: IO (file), INVALID (not a sound model), UNSUPPORTED (lists every node refused). */
sol_status sol_onnx_load(struct sol_ctx *ctx, const char *path, const struct sol_onnx_options *options,
                         struct sol_onnx **out_model);
sol_status sol_onnx_load_memory(struct sol_ctx *ctx, const void *data, size_t bytes,
                                const struct sol_onnx_options *options, struct sol_onnx **out_model);
/* Also destroys the graph. Networks made of it must not run any more unless they got other parameters. NULL is fine. */
void sol_onnx_destroy(struct sol_onnx *model);

struct sol_graph *sol_onnx_graph(struct sol_onnx *model); /* belongs to the model */
/* Inputs and outputs as the file orders them; they live as long as the model. */
int sol_onnx_inputs(const struct sol_onnx *model);
int sol_onnx_outputs(const struct sol_onnx *model);
struct sol_io sol_onnx_input(const struct sol_onnx *model, int i);
struct sol_io sol_onnx_output(const struct sol_onnx *model, int i);
/* The i-th dimension that the model leaves open: its symbol, or input and axis ("x.0"), and the size that it got; NULL
 * past the last. */
const char *sol_onnx_open(const struct sol_onnx *model, int i, int64_t *out_size);
/* Row-major data of parameter i of the graph (and of the network compiled from it); lives as long as the model. */
int sol_onnx_params(const struct sol_onnx *model);
const void *sol_onnx_param(const struct sol_onnx *model, int i);
struct sol_io sol_onnx_param_io(const struct sol_onnx *model, int i);
/* sol_params_create, and sol_params_set for every parameter. The model must outlive them. */
sol_status sol_onnx_bind(const struct sol_onnx *model, struct sol_net *net, struct sol_params **out_params);

/* What is in the file. The i-th kind of operator ("Conv", "com.example.Foo") and how often it occurs, in order of first
 * use, functions opened; NULL past the last. */
const char *sol_onnx_operator(const struct sol_onnx *model, int i, int64_t *out_count);
/* Producer and version, opset ("pytorch 2.13, opset 18"), for people. */
const char *sol_onnx_about(const struct sol_onnx *model);
/* The i-th operator that the reader has a row for, its first and last opset (0: the newest); NULL past the last. */
const char *sol_onnx_supported(int i, const char **out_domain, int *out_first, int *out_last);

/* A tensor in a file of its own, as in the test data of ONNX models (input_0.pb). */
struct sol_onnx_tensor {
    char *name;
    enum sol_dtype dtype;
    int ndim;
    int64_t shape[12];
    void *data; /* row-major */
    size_t bytes;
};
sol_status sol_onnx_tensor_load(struct sol_ctx *ctx, const char *path, struct sol_onnx_tensor *out_t);
void sol_onnx_tensor_free(struct sol_ctx *ctx, struct sol_onnx_tensor *t);

#ifdef __cplusplus
}
#endif
#endif
