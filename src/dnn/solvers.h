/* The solvers, which plan/solvers.c lists, and what they share. */
#ifndef SOL_DNN_SOLVERS_H
#define SOL_DNN_SOLVERS_H

#include "dnn/attention.h"
#include "dnn/blocking.h"
#include "dnn/dnn.h"
#include "dnn/weights.h"
#include "dnn/winograd.h"

extern const struct solver dnn_attention;
extern const struct solver dnn_attention_grad;
extern const struct solver dnn_attention_grad_simt;
extern const struct solver dnn_attention_simt;
extern const struct solver dnn_blas;
extern const struct solver dnn_conv;
extern const struct solver dnn_direct;
extern const struct solver dnn_gemv;
#define X(name) extern const struct solver dnn_##name;
#include "dnn/plugins.def"
#undef X
extern const struct solver dnn_matmul;
extern const struct solver dnn_mma;
extern const struct solver dnn_simt;
extern const struct solver dnn_weights;
extern const struct solver dnn_weights_winograd;
extern const struct solver dnn_winograd;

/* cost.c: all costs in ns, on all cores of the target */
double cost_attention(const struct attention *a);
double cost_attention_grad(const struct attention_grad *g);
double cost_blocking(const struct blocking *b);
double cost_winograd(const struct winograd *w);
double cost_weights(const struct weights *w);
/* step: the cycles of a vector of products, about. */
double cost_gemv(const struct problem *p, const struct target *t, int lanes, int64_t tasks, double step);
/* An estimate for the products of another library, in `tasks` tasks. */
double cost_foreign(const struct problem *p, const struct target *t, int64_t tasks);
/* Tiles (pixels x vectors) that fit into the registers, most efficient first. Returns their number. */
struct tile_shape {
    int pixels, vectors;
};
int cost_tile_shapes(const struct target *t, struct tile_shape *out, int room);

/* variants.c */
/* p[0..3] of a variant: pixels, vectors, chunk, tiles. What else a solver chooses stands behind them. */
struct blocking_options variant_blocking(const struct solver_context *sc, const struct variant *v);
/* Sorts by cost and keeps the cheapest SOLVER_MAX_VARIANTS. */
struct variant_list {
    int n;
    struct variant *at;
};
void variants_add(struct variant_list *l, const struct variant *v);
/* The place of the i-th of n growing counts of tiles to try. Where sizes vary, the largest comes first: of kernels that
 * cost the same at the hints, that with the larger block reads weights fewer times at larger sizes. */
int variant_tiles(const struct problem *p, int i, int n);
bool variant_wanted(const struct solver_context *sc, const struct variant *v); /* is it to be priced? */

#endif
