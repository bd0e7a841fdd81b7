/* The rows of layers.def, and the code that a row cannot contain. */
#ifndef SOL_LAYERS_H
#define SOL_LAYERS_H

#include "hlir/graph.h"
#include "layers/reference.h"

const struct layer_def *layer_def(const char *name); /* NULL: no such row. Definitions are parsed once, thread-safe */
/* registered.c: as layer_def, with the layers that were registered with the context. `layer_registered_at`: those. */
const struct layer_def *layer_find(struct sol_ctx *ctx, const char *name);
const struct layer_def *layer_registered_at(struct sol_ctx *ctx, int i); /* NULL: i is past the last */
/* As sol_layer_register, but the function is there already, also if there is a source. */
sol_status layer_register(struct sol_ctx *ctx, const struct sol_layer_def *def);
/* A kind that the text form of a graph defines (struct layer_kinds). */
sol_status layer_define(struct sol_ctx *ctx, const struct sol_layer_def *def, bool function);
bool layer_is_outside(const char *name); /* a namespace and a name: "mylib::scale" */
/* Fit the sizes, attributes and temporaries of a function into what it is given? */
sol_status layer_check_numbers(struct sol_ctx *ctx, const struct layer_def *def, const struct attrs *attrs);
bool layer_has_attribute(const struct layer_def *def, const char *name);
/* Can the list of attributes be read? */
sol_status layer_check_attributes(struct sol_ctx *ctx, const struct layer_def *def);
const struct layer_def *layer_def_at(int i); /* NULL: i is past the last; element-wise rows of math.def come last */
/* Binds (def, inputs, attributes) to loops. */
sol_status layer_bind(struct arena *a, const struct layer_def *def, int nin, const struct opdef_input *in,
                      const struct attrs *attrs, struct layer_bound *out);
/* The attributes of a layer: the given ones, checked and converted, and the defaults of the others. */
sol_status layer_attrs(struct arena *a, const struct layer_def *def, const struct attrs *given, struct attrs *out);
/* opaque.c: the description of an opaque layer's computation on row-major data; it outlives the graph. Numbers in it
 * may be sizes that vary; a run gets those of the dimensions (NULL: none vary), and sets its own. */
struct opaque {
    struct reference what;
    const char *name, *kind; /* for messages */
    int nout;
    int set;            /* the dimension that it sets; -1: none */
    int64_t size;       /* what it must find, if it sets none; -1: it finds nothing */
    const char *setter; /* who set that, for messages */
};
struct opaque *layer_opaque(struct arena *a, const struct sol_layer *l);
void describe_function(struct arena *a, const struct sol_layer *l, struct reference *out);
sol_status layer_run_opaque(struct sol_ctx *ctx, const struct opaque *o, int64_t *dims, const void *const *in,
                            void *const *out);
sol_status layer_run(struct sol_ctx *ctx, const struct sol_layer *l, int64_t *dims, const void *const *in,
                     void *const *out);
int reference_type(enum sol_dtype t);
/* May the text form omit this attribute because it has its default value? */
bool layer_attr_is_default(struct arena *a, const struct layer_def *def, const struct opdef_attr *v);

#endif
