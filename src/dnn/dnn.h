/* DNN: solvers for contractions, one file each (solvers.h). Here: what others ask of the libraries that compute. */
#ifndef SOL_DNN_DNN_H
#define SOL_DNN_DNN_H

#include "print/kernel.h"

/* plugins.c: other libraries, as include/sol/plugin.h has them. A solver of the same name prints kernels that call
 * them.
 */
struct sol_plugin_conv;
struct plugin {
    const char *name, *library, *path;
    bool gemm;                                   /* it has matrix products */
    int (*conv_plan)(struct sol_plugin_conv *c); /* NULL: it has no convolutions */
};
struct plugins {
    int n;
    struct plugin at[4];
};
/* Those that are there, as the key `plugins` says; they stay loaded. NULL: none. */
const struct plugins *plugins_load(struct sol_ctx *ctx, struct arena *a);

#endif
