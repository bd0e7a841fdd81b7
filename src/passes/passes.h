/* Passes. Each rewrites the graph to an equivalent one that computes less. passes.def is their order. */
#ifndef SOL_PASSES_H
#define SOL_PASSES_H

#include "hlir/graph.h"
#include "layers/layers.h"

/* Runs all passes in the order of passes.def. In debug builds, and with compiler::debug, the verifier runs after each.
 */
sol_status passes_run(struct sol_graph *g);
/* registered.c: passes from outside (sol/extend.h): adds one, and runs those that belong before (or after) a pass. */
sol_status passes_register(struct sol_ctx *ctx, const struct sol_pass_def *def);
sol_status passes_run_registered(struct sol_graph *g, bool after, const char *name);
/* Runs the pass of this name. */
sol_status passes_run_one(struct sol_graph *g, const char *name);
const char *passes_name(int i, const char **out_doc); /* NULL behind the last pass */

/* attention.c: makes layers of attention that is written out. `active`, by tensor: only those that a gradient goes
 * through and whose mask and factors it does not reach, if computing the weights again pays; NULL: all. */
sol_status attention_join(struct sol_graph *g, const bool *active);

/* softmax.c: makes layers of softmax and log-softmax that are written out, also in front of gradients. */
sol_status softmax_join(struct sol_graph *g);

/* util.c: questions that several passes ask */

/* Inserts one layer with one output in front of `before`, with the names of `origin`; a shorthand for graph_add. */
sol_status pass_add(struct sol_graph *g, struct sol_layer *before, const struct sol_layer *origin,
                    const struct new_layer *n, struct sol_tensor **out_t);
/* An element-wise function of one or two (b not NULL) tensors in front of `at`, with its names. */
sol_status pass_op(struct sol_graph *g, struct sol_layer *at, const char *kind, struct sol_tensor *a,
                   struct sol_tensor *b, struct sol_tensor **out_t);
bool is_kind(const struct sol_layer *l, const char *kind);
bool same_shape(const struct sol_tensor *a, const struct sol_tensor *b);
/* The layer of this kind that computes t, if t has one reader only; NULL otherwise. Needs graph_count_uses. */
struct sol_layer *only_maker(const struct sol_tensor *t, const char *kind);
/* Which tensors depend on parameters and constants alone, not on the sizes of a call either? */
void mark_prepared(struct sol_graph *g, bool *by_tensor_id);
/* The value of a tensor whose elements are all the same constant, also through Expand, Reshape and Cast. */
bool known_scalar(const struct sol_tensor *t, double *out_v);

#define X(name, doc) sol_status pass_##name(struct sol_graph *g);
#include "passes/passes.def"
#undef X

#endif
