/* Compile: the way of a network (sol_compile). */
#ifndef SOL_COMPILE_H
#define SOL_COMPILE_H

#include "tune/tune.h"

/* compile.c: the same as sol_compile by costs alone, for a target that may be made up; with its schedule, to look at.
 */
sol_status compile_for(struct sol_graph *g, const struct target *target, struct tune_net *out);
/* The same as sol_compile for another target than the key `target` says. */
sol_status compile_tuned(struct sol_graph *g, const struct target *target, struct sol_net **out_net);

/* report.c: the unit that step i is of, NULL: none. A halo is of the unit behind it, which writes the tensor. */
const struct unit *compile_unit_of(const struct schedule_program *p, int i);
/* What was planned, into the log at DEBUG: one line a unit: solver, variant, cost. */
void compile_report(const struct schedule *s);
/* draw.c: with compiler::debug, the planned network for Graphviz. */
void compile_draw(const struct schedule *s);
/* Writes a file into the folder debug beside the cache, as NAME-HASH and a suffix; the log says `what` lies there. */
void compile_keep_file(const struct schedule *s, const char *suffix, const char *text, const char *what);
/* picture.c: memory while a kernel runs, by kind; all of them as SVG. */
enum memory_kind {
    MEMORY_PARAMS,
    MEMORY_PREPARED,
    MEMORY_INPUTS,
    MEMORY_OUTPUTS,
    MEMORY_SAVED,
    MEMORY_WORK, /* with the workers' scratch */
    MEMORY_KINDS
};
struct memory_bar {
    const char *label; /* the kernel's layers */
    bool backward;
    int64_t bytes[MEMORY_KINDS];
};
const char *picture_memory(struct arena *a, const char *name, const struct memory_bar *bars, int n);
/* With compiler::debug_memory_consumption: what is in memory during each step, and of what the peak is made; drawn,
 * too.
 */
void compile_report_steps(const struct schedule *s);
/* memory.c: bytes of tensors together. */
int64_t compile_bytes(int n, struct sol_tensor *const *t);
/* What forward keeps of a graph with a gradient, as the key training::memory says. */
struct compile_memory {
    const struct keep *keep; /* NULL: there is no gradient */
    int level;
};
/* About what the whole needs at most at another level, as s needs it at this one. 0: there is no gradient. */
int64_t compile_peak(const struct schedule *s, const struct compile_memory *m, int level);
sol_status compile_keep(struct sol_graph *g, const struct target *target, struct compile_memory *out_m);

/* What it needs at most, into the log. */
void compile_report_memory(struct sol_ctx *ctx, const struct sol_net *net, bool training);

#endif
