/* What the kernels that call another library (a plug-in) share. The library writes into scratch, and our epilogue
 * stores the results. The plug-in is called through a pointer, so loading a module does not require it; the planner has
 * loaded it. */
#ifndef SOL_DNN_FOREIGN_H
#define SOL_DNN_FOREIGN_H

#include "dnn/epilogue.h"
#include "dnn/solvers.h"

/* both operands and the type that is computed in */
bool foreign_is_f32(const struct problem *p); /* both operands, and what is computed in */
/* Prints how a source begins: the type `real`, and `plugin_function(name)`, which finds a function of the plug-in. */
void foreign_begin(const struct plugin *by, struct text *out);
/* The member `place` of an epilogue whose views begin at the vector. */
const char *foreign_place(void *user, struct text *out, int view);
/* Prints the statements that store one vector of sums, found at `place` (C text). It belongs to a row of `all`
 * elements, in which its first lane is number `at` (C text). `where` gives the address of a view there, from a base on.
 */
void foreign_epilogue(struct epilogue *e, struct text *out, const char *place, const char *at, int64_t all,
                      const char *(*where)(const void *user, const char *base, const struct view *v));

/* foreign_conv.c */
bool foreign_conv_applicable(const struct solver_context *sc, const struct cluster *c, const struct plugin *by,
                             const char **out_why);
void foreign_conv_variants(const struct solver_context *sc, const struct cluster *c, const struct plugin *by,
                           struct variant_list *list);
sol_status foreign_conv_emit(const struct solver_context *sc, const struct cluster *c, const struct plugin *by,
                             const struct variant *v, struct kernel *out);
enum { FOREIGN_CONV = 1 }; /* variant.p[2] of convolutions */

#endif
