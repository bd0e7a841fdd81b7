/* DNN: solvers for contractions, one file each (solvers.h). This header has what the planner asks about other
 * compute libraries. */
#ifndef SOL_DNN_DNN_H
#define SOL_DNN_DNN_H

#include "print/kernel.h"

/* plugins.c: other libraries, which implement include/sol/plugin.h. The solver of the same name prints kernels that
 * call them. */
struct sol_plugin_conv;
struct plugin {
    const char *name, *library, *path;
    bool gemm;                                   /* it provides matrix products */
    int (*conv_plan)(struct sol_plugin_conv *c); /* NULL: it provides no convolutions */
};
struct plugins {
    int n;
    struct plugin at[4];
};
/* Loads the plug-ins that the key `plugins` allows and that are installed; they stay loaded. NULL: there are none. */
const struct plugins *plugins_load(struct sol_ctx *ctx, struct arena *a);

#endif
