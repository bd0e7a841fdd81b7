/* Compile: the way of a network (sol_compile). */
#ifndef SOL_COMPILE_H
#define SOL_COMPILE_H

#include "schedule/schedule.h"

/* report.c: what was planned, into the log at DEBUG (one line a unit: solver, variant, cost) and, with compiler::debug,
 * into files of the cache folder: the network drawn (Graphviz) and the plan as text. */
void compile_report(const struct schedule *s);
/* What it needs at most, into the log. */
void compile_report_memory(struct sol_ctx *ctx, const struct sol_net *net, bool training);

#endif
