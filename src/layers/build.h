/* Builders write operator definitions that depend on the instance. Here are their helpers for index variables, axes and
 * lists, and the prototype of every builder of layers.def. */
#ifndef SOL_LAYERS_BUILD_H
#define SOL_LAYERS_BUILD_H

#include "layers/layers.h"

/* The arguments of every builder. */
#define BUILDER(name)                                                                                    \
    sol_status name(struct arena *a, const struct layer_def *def, int nin, const struct opdef_input *in, \
                    const struct attrs *attrs, struct text *out)
#define OPAQUE_SHAPE(name)                                                                                 \
    sol_status name(struct arena *a, const struct layer_def *def, int nin, const struct opdef_input *in,   \
                    const struct attrs *attrs, __attribute__((unused)) struct loops *loops, int *out_nout, \
                    struct opdef_input *out)
#define OPAQUE_DESCRIBE(name) void name(struct arena *a, const struct sol_layer *l, struct reference *out)

/* build.c */

/* Index variable number i, below 64 (a definition has at most 64). Its name implies no purpose of a dimension. */
const char *ivar(int i);
/* "A B C": index variables from..from+n-1; an axis `skip` (or -1) is left out. */
void put_ivars(struct text *out, int from, int n);
void put_ivars_but(struct text *out, int from, int n, int skip);
enum { INNER = SOL_MAX_DIMS }; /* index variables from here on are for the input's head */
/* "x[input index variables] -> y[output index variables] | sizes | | y[output index variables] = x[": the caller adds
 * the indices and "]". */
void put_copy(struct text *out, const struct opdef_input *in, int ndim, const int64_t *shape);
/* The same with text of put_need among the sizes. */
void put_copy_if(struct text *out, const struct opdef_input *in, int ndim, const int64_t *shape, const char *needs);
/* Among the sizes of a definition: a size that varies must not be negative. Nothing if that is proven. */
void put_need(struct text *out, int64_t size);
/* " #A=3; #B=4": sizes of n index variables. */
void put_sizes(struct text *out, int from, int n, const int64_t *sizes);
/* The type's name, "f32". */
const char *type_name(enum sol_dtype t);
/* A type by its name. Rejects unknown names. */
sol_status type_named(struct sol_ctx *ctx, const struct layer_def *def, const char *name, enum sol_dtype *out_t);
/* A number as text of an operator definition. */
void put_number(struct text *out, double v);
/* The same for an element of type t; integers stay integers. */
void put_value(struct text *out, double v, enum sol_dtype t);
/* The number of values of an attribute (a single value: 1). */
int attr_length(const struct attrs *attrs, const char *name);
/* Converts an attribute that counts from the back if negative to one that counts from the front. `ndim` is the number
 * of axes. */
sol_status axis_attr(struct sol_ctx *ctx, const struct layer_def *def, const struct attrs *attrs, const char *name,
                     int ndim, int *out_axis);
/* Marks the axes of a list. Rejects repeated axes and axes out of range. */
sol_status axes_attr(struct sol_ctx *ctx, const struct layer_def *def, const struct attrs *attrs, const char *name,
                     int ndim, bool *marked);
/* The attribute must have n values, or a single one for all. */
sol_status length_attr(struct sol_ctx *ctx, const struct layer_def *def, const struct attrs *attrs, const char *name,
                       int n);
/* The value must be one of the words "a|b|c"; *out_i is its number. */
sol_status word_attr(struct sol_ctx *ctx, const struct layer_def *def, const struct attrs *attrs, const char *name,
                     const char *words, int *out_i);
/* Input i must have at least (or exactly, if `exact`) n dimensions. */
sol_status rank_of(struct sol_ctx *ctx, const struct layer_def *def, const struct opdef_input *in, int i, int n,
                   bool exact);
int64_t floor_mod(int64_t a, int64_t b);
int64_t product(const int64_t *v, int n); /* of sizes; as a number at most 2^47, which no tensor exceeds */
/* Sizes that must be numbers: one, or all of input i. `what` it is, for the message. */
sol_status number_of(struct sol_ctx *ctx, const struct layer_def *def, const char *what, int64_t size);
sol_status numbers_of(struct sol_ctx *ctx, const struct layer_def *def, const struct opdef_input *in, int i);
/* NumPy's broadcasting: *common becomes the common size of itself and `own`. False: both differ and neither is 1. A
 * size that varies counts as one that is not 1, and equals itself alone. */
bool same_size(int64_t *common, int64_t own);

/* source.c */
BUILDER(build_row);
/* contract.c */
BUILDER(build_matmul);
BUILDER(build_einsum);
BUILDER(build_conv_t);
BUILDER(build_cdist);
/* pool.c */
BUILDER(build_avg_pool);
BUILDER(build_adaptive_avg_pool);
BUILDER(build_adaptive_max_pool);
/* reduce.c */
BUILDER(build_reduce);
BUILDER(build_arg_reduce);
BUILDER(build_scan);
BUILDER(build_softmax);
BUILDER(build_softmax_grad);
/* index.c */
BUILDER(build_gather);
BUILDER(build_gather_elements);
BUILDER(build_gather_nd);
BUILDER(build_index);
BUILDER(build_bucketize);
/* scatter.c */
OPAQUE_SHAPE(shape_scatter_elements);
OPAQUE_DESCRIBE(describe_scatter_elements);
OPAQUE_SHAPE(shape_scatter_nd);
OPAQUE_DESCRIBE(describe_scatter_nd);
OPAQUE_SHAPE(shape_index_put);
OPAQUE_DESCRIBE(describe_index_put);
/* move.c */
BUILDER(build_permute);
BUILDER(build_reshape);
BUILDER(build_expand);
BUILDER(build_exactly);
BUILDER(build_slice);
BUILDER(build_select);
BUILDER(build_slice_scatter);
BUILDER(build_flip);
BUILDER(build_roll);
BUILDER(build_tile);
BUILDER(build_repeat);
BUILDER(build_pad);
/* join.c */
BUILDER(build_concat);
BUILDER(build_stack);
BUILDER(build_split);
BUILDER(build_unbind);
/* pattern.c */
BUILDER(build_triangle);
BUILDER(build_diagonal);
BUILDER(build_diag_embed);
BUILDER(build_pixel_shuffle);
BUILDER(build_unfold);
BUILDER(build_fold);
BUILDER(build_windows);
/* resize.c, grid.c */
BUILDER(build_resize);
BUILDER(build_grid_sample);
BUILDER(build_affine_grid);
/* sequence.c */
BUILDER(build_attention);
BUILDER(build_attention_sums);
BUILDER(build_attention_grad);
BUILDER(build_lstm);
BUILDER(build_gru);
BUILDER(build_rnn);
/* source.c */
BUILDER(build_fill);
BUILDER(build_sizes);
BUILDER(build_cast);
BUILDER(build_nll);
BUILDER(build_cross_entropy);
/* ctc.c */
OPAQUE_SHAPE(shape_ctc);
OPAQUE_DESCRIBE(describe_ctc);
/* linear.c */
OPAQUE_SHAPE(shape_linear);
OPAQUE_DESCRIBE(describe_linear);
/* select.c */
OPAQUE_SHAPE(shape_nonzero);
OPAQUE_DESCRIBE(describe_nonzero);
OPAQUE_SHAPE(shape_unique);
OPAQUE_DESCRIBE(describe_unique);
OPAQUE_SHAPE(shape_nms);
OPAQUE_DESCRIBE(describe_nms);
/* opaque.c */
OPAQUE_SHAPE(shape_sort);
OPAQUE_DESCRIBE(describe_sort);
OPAQUE_SHAPE(shape_topk);
OPAQUE_DESCRIBE(describe_topk);

#endif
