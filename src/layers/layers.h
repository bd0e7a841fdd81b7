/* The rows of layers.def, and the code that a row cannot contain. */
#ifndef SOL_LAYERS_H
#define SOL_LAYERS_H

#include "hlir/graph.h"
#include "layers/reference.h"

const struct layer_def *layer_def(const char *name); /* NULL: no such row. Definitions are parsed once, thread-safe */
const struct layer_def *layer_def_at(int i); /* NULL: i is past the last; element-wise rows of math.def come last */
const struct opdef *layer_opdef(const struct layer_def *def); /* NULL: `build` writes it */
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
sol_status layer_run_opaque(struct sol_ctx *ctx, const struct opaque *o, int64_t *dims, const void *const *in,
                            void *const *out);
sol_status layer_run(struct sol_ctx *ctx, const struct sol_layer *l, int64_t *dims, const void *const *in,
                     void *const *out);
int reference_type(enum sol_dtype t);
/* May the text form omit this attribute because it has its default value? */
bool layer_attr_is_default(struct arena *a, const struct layer_def *def, const struct opdef_attr *v);

#endif
