/* The rows of layers.def, and the code that a row cannot contain. */
#ifndef SOL_LAYERS_H
#define SOL_LAYERS_H

#include "hlir/graph.h"
#include "layers/alone.h"

const struct layer_def *layer_def(const char *name); /* NULL: no such row. Definitions are parsed once, thread-safe */
const struct layer_def *layer_def_at(int i);         /* NULL behind the last; element-wise rows of math.def come last */
const struct row *layer_row(const struct layer_def *def); /* NULL if `build` makes it */
/* Binds (def, inputs, attributes) to loops. OPAQUE: loops without statements, with tensors only. */
sol_status layer_bind(struct arena *a, const struct layer_def *def, const char *name, int nin,
                      const struct row_input *in, const struct attrs *attrs, const struct loops **out_loops);
/* The same, with the parsed definition (NULL for OPAQUE). */
sol_status layer_bind_row(struct arena *a, const struct layer_def *def, int nin, const struct row_input *in,
                          const struct attrs *attrs, const struct loops **out_loops, const struct row **out_row);
/* The attributes of a layer: the given ones, checked and converted, and the defaults of the others. */
sol_status layer_attrs(struct arena *a, const struct layer_def *def, const struct attrs *given, struct attrs *out);
/* opaque.c: computes an opaque layer from its description, on row-major data. Messages use its name and kind. */
sol_status layer_run_opaque(struct sol_ctx *ctx, const struct alone *a, const char *name, const char *kind,
                            const void *const *in, void *const *out, int nout);
sol_status layer_run(struct sol_ctx *ctx, const struct sol_layer *l, const void *const *in, void *const *out);
int alone_type(enum sol_dtype t);
/* May this attribute be omitted because it has its default? */
bool layer_attr_is_default(struct arena *a, const struct layer_def *def, const struct row_attr *v);

#endif
