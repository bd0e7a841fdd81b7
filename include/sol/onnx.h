/* Reading ONNX models and tensors.
 *
 * `sol_onnx_load` translates a model into a graph. It keeps the data of the weights, which are parameters of the graph:
 *
 *     sol_onnx_load(ctx, "net.onnx", NULL, &model);
 *     sol_compile(ctx, sol_onnx_graph(model), &net);
 *     sol_onnx_bind(model, net, &params);          sets the weights as parameters of the network
 *     sol_net_run(net, params, inputs, outputs, 0);
 *     sol_params_destroy(params), sol_net_destroy(net), sol_onnx_destroy(model);
 *
 * The reader accepts untrusted files: it checks sizes before it allocates memory, and reads external data from the
 * model's own folder only. An error lists everything that SOL cannot translate, by node, operator and opset. */
#ifndef SOL_ONNX_H
#define SOL_ONNX_H

#include "sol/sol.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sol_onnx; /* a loaded model: the graph, and the data of its weights */

struct sol_onnx_dim {
    const char *name; /* a symbolic dimension ("batch"), or any dimension by input and axis ("x.0") */
    int64_t size;
};
/* Fixes the value of an input. Shapes may then depend on it, and the graph no longer has this input. */
struct sol_onnx_value {
    const char *name;
    enum sol_dtype dtype; /* must be the input's type */
    int ndim;
    const int64_t *shape;
    const void *data; /* row-major; copied */
};
/* What is known of a dimension that varies. */
struct sol_onnx_limits {
    const char *name; /* as in sol_onnx_dim */
    struct sol_dim_limits limits;
};
/* The shape of an array that the caller will pass. It determines open sizes that are not in `dims`. */
struct sol_onnx_shape {
    const char *name; /* NULL: input number `input`, not counting weights and the inputs in `values` */
    int input, ndim;
    const int64_t *shape;
};
enum { SOL_ONNX_TRAINED = 2 };
struct sol_onnx_options {
    size_t size; /* sizeof(struct sol_onnx_options) */
    int ndims;   /* sizes that the model leaves open; a missing one is an error that names it */
    const struct sol_onnx_dim *dims;
    /* 1: weights are constants of the graph; 0: parameters, except small ones and integers; SOL_ONNX_TRAINED: the same,
     * but small initializers of real numbers are parameters too, unless they are scalars */
    int constants;
    const char *folder; /* sol_onnx_load_memory: the folder of external data; NULL: external data is an error */
    int nvalues;
    const struct sol_onnx_value *values;
    int nshapes; /* the reader does not compare them with the model's sizes; check the inputs afterwards */
    const struct sol_onnx_shape *shapes;
    int64_t open_size; /* the size of all dimensions that are still open; 0: an open dimension is an error */
    /* 1: dimensions that are open and not in `dims` vary (sol_graph_dim). `shapes` and `open_size` are sizes that costs
     * are estimated for. Dimensions that the network needs to be equal become one; one that must be a number becomes
     * that number, or the one in `shapes`. */
    int vary;
    int nlimits; /* of dimensions that vary; a hint of 0 says nothing */
    const struct sol_onnx_limits *limits;
    /* The arrays of a call. Where shapes depend on one of at most 64 elements, it is taken as one in `values` is, and
     * is no input of the graph. With `vary`, elements of lists of int64 are dimensions that vary (sol_onnx_taken_size),
     * and the shapes of these arrays are examples. name NULL: as in sol_onnx_shape; data NULL: it is not known. */
    int noffered;
    const struct sol_onnx_value *offered;
    /* Initializers that the file lacks. Their data is not copied: it has to live as long as the model and its weights.
     */
    int nweights;
    const struct sol_onnx_value *weights;
    /* Called before a load fails, for each node of the model's own graph that cannot be translated, by its number;
     * nodes that depend on it are not looked at. NULL: nobody asks. */
    void (*on_rejected)(void *user, int node, const char *why);
    void *user;
};

/* Options may be NULL. Errors: IO (file), INVALID (damaged model), UNSUPPORTED (lists all unsupported nodes). */
sol_status sol_onnx_load(struct sol_ctx *ctx, const char *path, const struct sol_onnx_options *options,
                         struct sol_onnx **out_model);
sol_status sol_onnx_load_memory(struct sol_ctx *ctx, const void *data, size_t bytes,
                                const struct sol_onnx_options *options, struct sol_onnx **out_model);
/* Also destroys the graph and the weights. Networks compiled from it may run only with other parameters. Accepts NULL.
 */
void sol_onnx_destroy(struct sol_onnx *model);

struct sol_graph *sol_onnx_graph(struct sol_onnx *model); /* belongs to the model */
/* Inputs and outputs in the order of the file; they live as long as the model. */
int sol_onnx_inputs(const struct sol_onnx *model);
int sol_onnx_outputs(const struct sol_onnx *model);
struct sol_io sol_onnx_input(const struct sol_onnx *model, int i);
struct sol_io sol_onnx_output(const struct sol_onnx *model, int i);
/* The number of input i among the arrays of a call, which differs from i behind values that were taken from them. */
int sol_onnx_place(const struct sol_onnx *model, int i);
/* Returns the i-th value that was taken from those offered; NULL: i is past the last. */
const struct sol_onnx_value *sol_onnx_taken(const struct sol_onnx *model, int i);
/* What its element k is in the graph: a number, or a size that varies; -1: the value is as it was offered. */
int64_t sol_onnx_taken_size(const struct sol_onnx *model, int i, int k);
/* Returns the i-th dimension that the model leaves open, as its symbol or as input and axis ("x.0"), and the size used
 * for it. NULL: i is past the last. */
const char *sol_onnx_open(const struct sol_onnx *model, int i, int64_t *out_size);
/* With `vary`: why it has its size, or is the same as another dimension. NULL: it varies, or the options say it. */
const char *sol_onnx_open_why(const struct sol_onnx *model, int i);
/* The node because of which a size that varies has a multiple or a largest size, and what it needs. NULL: none. */
const char *sol_onnx_open_limited(const struct sol_onnx *model, int i);
/* Returns the row-major data of parameter i of the graph and of its compiled network; it lives as long as the model. */
int sol_onnx_params(const struct sol_onnx *model);
const void *sol_onnx_param(const struct sol_onnx *model, int i);
/* The floating-point initializers that nodes use: parameters of the graph, and the scalars and short vectors that are
 * its constants. */
int sol_onnx_weights(const struct sol_onnx *model);
struct sol_io sol_onnx_weight(const struct sol_onnx *model, int i);
/* Calls sol_params_create, and sol_params_set for every parameter. The model must outlive the parameters. */
sol_status sol_onnx_bind(const struct sol_onnx *model, struct sol_net *net, struct sol_params **out_params);

/* Returns the i-th kind of operator in the file ("Conv", "com.example.Foo") and how often it occurs, in order of first
 * use, with functions inlined. NULL: i is past the last. */
const char *sol_onnx_operator(const struct sol_onnx *model, int i, int64_t *out_count);
/* Describes producer, version and opset ("pytorch 2.13, opset 18"). */
const char *sol_onnx_about(const struct sol_onnx *model);
/* Returns the i-th supported operator with its first and last opset (0: the newest). NULL: i is past the last. */
const char *sol_onnx_supported(int i, const char **out_domain, int *out_first, int *out_last);

/* -- operators of ONNX models that become layers in a way of your own. (An operator with the name of a registered
 * layer, domain::operator, becomes that layer by itself.) */

struct sol_onnx_node {
    const char *domain, *op;
    const char *name, *where; /* for the layers that are added: of the node, and its place in the model */
    int nin, nout, nattr;
    struct sol_tensor *const *in; /* NULL: a missing input */
    const struct sol_attr *attrs; /* numbers, lists of numbers and texts; other attributes are an error of the model */
};
/* Adds layers to the graph (sol_graph_layer) that compute the node's outputs, out[nout]. NULL: not supported, which is
 * an error if the model reads that output. It may run several times for one model, each time on another graph, and in
 * several threads. Returns 0, or what sol_graph_fail returned, whose message stands beside the node's name. */
typedef sol_status sol_onnx_hook(void *user, struct sol_graph *g, const struct sol_onnx_node *node,
                                 struct sol_tensor **out);
/* Nodes of this operator become what the hook makes, in models that are read later with this context. A hook that is
 * registered again takes the place of the earlier one. Texts are copied. Errors: INVALID (no name; SOL translates the
 * operator itself), NOMEM. */
sol_status sol_onnx_register(struct sol_ctx *ctx, const char *domain, const char *op, sol_onnx_hook *hook, void *user);

/* -- programs: a model compiled for calls with arrays of different sizes. */

struct sol_onnx_source {
    const char *path; /* NULL: the model is in memory */
    const void *data;
    size_t bytes;
};
/* A model as it was read, its network and its weights. */
struct sol_onnx_program {
    struct sol_onnx *model;
    struct sol_net *net;
    struct sol_params *params;
    double read_s, compile_s; /* how long it took */
};
enum {
    SOL_ONNX_ALL = 1,  /* one program for all sizes that the model leaves open, as far as they may vary */
    SOL_ONNX_SIZED = 2 /* one for the sizes of the arrays alone */
};
struct sol_onnx_call {
    struct sol_onnx_source from;
    const struct sol_onnx_options
        *options; /* without shapes and `vary`, which the program decides about; may be NULL */
    int ways;     /* the programs that are allowed; the first that is possible is made */
    int narrays;
    const struct sol_onnx_value *arrays; /* name NULL: input number i; data NULL: shapes cannot depend on it */
    int64_t *out_dims;                   /* receives the sizes for sol_net_run_at, at most 32 */
    int *out_misfit; /* receives 1 if the arrays are wrong, 0 if the model or something else is; may be NULL */
};
/* Finds the program for a call. The program for all sizes does not depend on the arrays, unless shapes depend on their
 * values; numbers among these that are no sizes (0, -1) are then those of the first call. If it cannot be made, or the
 * arrays do not fit it, there is one for their sizes alone, and for their values where shapes depend on them. `all` is
 * the program for all sizes if it was made before, otherwise NULL. If it serves this call, *out_p stays empty. Without
 * arrays, nothing is compared. Errors: as sol_onnx_load and sol_compile; INVALID (the arrays do not fit the model). */
sol_status sol_onnx_program_make(struct sol_ctx *ctx, const struct sol_onnx_call *call,
                                 const struct sol_onnx_program *all, struct sol_onnx_program *out_p);
/* The sizes of a call with these arrays. Errors: INVALID (they do not fit this program). */
sol_status sol_onnx_program_bind(const struct sol_onnx_program *p, const struct sol_onnx_call *call, int64_t *out_dims);
void sol_onnx_program_destroy(struct sol_onnx_program *p); /* what it holds, not itself */

/* A tensor in a separate file, as in the test data of ONNX models (input_0.pb). */
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
