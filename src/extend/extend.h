/* Layers, passes and plug-ins from outside: what sol/extend.h promises. */
#ifndef SOL_EXTEND_INSIDE_H
#define SOL_EXTEND_INSIDE_H

#include "hlir/graph.h"
#include "sol/extend.h"

/* plugin.c: loads the plug-ins of the key `extensions` that are not loaded yet. */
sol_status extend_load(struct sol_ctx *ctx);

#endif
