/* The interface for layers and passes from outside of SOL (docs/extending.md). An application uses these functions
 * after sol_ctx_create. A plug-in, a shared object that exports sol_extend, gets them as a table (struct sol_extend).
 */
#ifndef SOL_EXTEND_H
#define SOL_EXTEND_H

#include "sol/sol.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A C function that computes a layer. All arrays are row-major.
 *
 *   tensors   inputs, then outputs, then temporaries (memory to work in), in the order of the definition's head
 *   numbers   the sizes of the definition's index variables in the order in which they first appear (of a group: the
 *             product of its sizes), then the values of the integer attributes, in the order in which they are declared
 *   reals     the values of the real attributes, likewise
 *
 * The results depend on these arguments alone: equal layers are computed once, and backward may compute one again.
 * Returns 0; another number fails the call, and the message contains it. Several threads may call it at the same time.
 */
typedef int32_t sol_layer_function(void *const *tensors, const int64_t *numbers, const double *reals);

struct sol_layer_def {
    size_t size;            /* sizeof(struct sol_layer_def) */
    const char *name;       /* a namespace and a name: "mylib::scale" */
    const char *definition; /* what it computes, in the notation for layers (docs/notation.md) */
    const char *attributes; /* "s=1.0 axis:int k:ints": name=default, or name:kind if it must be given; NULL: none */
    const char *doc;        /* one line for people; NULL: none */
    /* The name of the layer that computes the gradient; it must be registered first. NULL: SOL derives the gradient
     * from the definition. Its inputs are inputs and outputs of this layer, and gradients of outputs, by their names in
     * the definition: d_y is the gradient of y. Its outputs are the gradients of inputs: d_x. */
    const char *gradient;
    /* A layer that a C function computes: `definition` then says the shapes only, "head" or "head | sizes". Its inputs
     * have given types ("x:f32[N C]"). `source` is C text that defines the function `symbol`; what else it defines is
     * static. It may include C standard headers. `function` is the function itself. If both are given, networks in this
     * process use the function, and deployed libraries contain the source; without a source there are none. */
    const char *source, *symbol;
    sol_layer_function *function;
    int replace; /* 1: a layer of this name that was registered before is replaced for graphs to come */
    /* In place of `source`: paths of object files and static libraries, one a line, that define `symbol`. They are
     * linked into a shared object for this process, so they are position-independent (-fPIC), and into deployed
     * libraries. NULL: none. */
    const char *objects;
};
/* Adds a kind of layer to a context: sol_graph_layer, sol_graph_parse and all frontends find it by its name. Texts are
 * copied. The same layer may be registered again. Errors: INVALID (a name without a namespace, or that is taken; a
 * definition or attribute that cannot be read, with its line and column; a gradient that does not fit), COMPILER (of
 * `source`; the message has what the compiler says), IO, NOMEM. */
sol_status sol_layer_register(struct sol_ctx *ctx, const struct sol_layer_def *def);

/* -- passes: they rewrite graphs. What a pass sees is the network that will be compiled, with its gradient if it has
 * one.
 */

struct sol_layer;
struct sol_pass_def {
    size_t size;       /* sizeof(struct sol_pass_def) */
    const char *name;  /* a namespace and a name: "mylib::fuse" */
    const char *place; /* "before NAME" or "after NAME" of a pass of SOL (`sol-opt --passes`); NULL: after cse */
    /* Changes the graph with the functions below. It may run several times for one network, each time on another
     * graph, and in several threads. Returns 0, or what sol_graph_fail returned. SOL checks the graph afterwards, and
     * removes layers that no longer reach an output. */
    sol_status (*run)(void *user, struct sol_graph *g);
    void *user;
    int replace; /* 1: replaces a pass of this name */
};
/* Adds a pass for graphs that are compiled later with this context. Passes with the same place run in the order in
 * which they were registered. Errors: INVALID (name, place, or the name is taken), NOMEM. */
sol_status sol_pass_register(struct sol_ctx *ctx, const struct sol_pass_def *def);

/* The layers in their order: each comes behind those that it reads. NULL: there is none. */
struct sol_layer *sol_graph_first(const struct sol_graph *g);
struct sol_layer *sol_layer_next(const struct sol_layer *l);
const char *sol_layer_kind(const struct sol_layer *l); /* "Conv", "relu", "mylib::scale" */
const char *sol_layer_name(const struct sol_layer *l); /* in the user's model; "" if it has none */
int sol_layer_inputs(const struct sol_layer *l);
int sol_layer_outputs(const struct sol_layer *l);
struct sol_tensor *sol_layer_input(const struct sol_layer *l, int i); /* NULL: missing, or i is past the last */
struct sol_tensor *sol_layer_output(const struct sol_layer *l, int i);
/* Attribute i, with defaults. Returns 0 if i is past the last. Valid as long as the layer. */
int sol_layer_attribute(const struct sol_layer *l, int i, struct sol_attr *out_attr);
/* The layer that makes a tensor. NULL: it is an input, a parameter or a constant. */
struct sol_layer *sol_tensor_maker(const struct sol_tensor *t);
int sol_tensor_readers(const struct sol_tensor *t); /* how many times layers and the graph's outputs read it */
/* Adds a layer in front of `before` (NULL: at the end). As sol_graph_layer otherwise. */
sol_status sol_graph_insert(struct sol_graph *g, struct sol_layer *before, const struct sol_new_layer *n, int nout,
                            struct sol_tensor **out);
/* Everything that reads `old` reads `with`, which has the same type and shape, and is made in front of all readers of
 * `old`. Errors: INVALID. */
sol_status sol_graph_replace(struct sol_graph *g, struct sol_tensor *old, struct sol_tensor *with);
/* Sets the error of the calling thread and returns SOL_ERR_INVALID. */
sol_status sol_graph_fail(struct sol_graph *g, const char *text);

/* -- plug-ins: shared objects that register layers and passes. They call SOL through a table, because it may be a part
 * of another library. */

#define SOL_EXTEND_VERSION 1
struct sol_extend {
    uint32_t size, version; /* sizeof(struct sol_extend), SOL_EXTEND_VERSION; later versions append functions */
    sol_status (*layer_register)(struct sol_ctx *ctx, const struct sol_layer_def *def);
    sol_status (*pass_register)(struct sol_ctx *ctx, const struct sol_pass_def *def);
    struct sol_layer *(*graph_first)(const struct sol_graph *g);
    struct sol_layer *(*layer_next)(const struct sol_layer *l);
    const char *(*layer_kind)(const struct sol_layer *l);
    const char *(*layer_name)(const struct sol_layer *l);
    int (*layer_inputs)(const struct sol_layer *l);
    int (*layer_outputs)(const struct sol_layer *l);
    struct sol_tensor *(*layer_input)(const struct sol_layer *l, int i);
    struct sol_tensor *(*layer_output)(const struct sol_layer *l, int i);
    int (*layer_attribute)(const struct sol_layer *l, int i, struct sol_attr *out_attr);
    struct sol_layer *(*tensor_maker)(const struct sol_tensor *t);
    int (*tensor_readers)(const struct sol_tensor *t);
    enum sol_dtype (*tensor_dtype)(const struct sol_tensor *t);
    int (*tensor_ndim)(const struct sol_tensor *t);
    int64_t (*tensor_size)(const struct sol_tensor *t, int dim);
    const void *(*tensor_known)(struct sol_tensor *t);
    sol_status (*graph_insert)(struct sol_graph *g, struct sol_layer *before, const struct sol_new_layer *n, int nout,
                               struct sol_tensor **out);
    sol_status (*graph_replace)(struct sol_graph *g, struct sol_tensor *old, struct sol_tensor *with);
    sol_status (*graph_fail)(struct sol_graph *g, const char *text);
};
/* A plug-in exports `sol_extension`, a function of this type. It checks `version`, registers what it has with the
 * context, and returns 0 or the status that failed. SOL calls it once for each context. The plug-in is never unloaded.
 */
typedef sol_status sol_extension_function(const struct sol_extend *sol, struct sol_ctx *ctx);
/* Loads a plug-in. Those of the key `extensions` are loaded with the first graph of a context. Errors: IO (no such
 * file, or it cannot be loaded; the message says why), INVALID (no sol_extension), and what the plug-in returns. */
sol_status sol_extension_load(struct sol_ctx *ctx, const char *path);

#ifdef __cplusplus
}
#endif
#endif
