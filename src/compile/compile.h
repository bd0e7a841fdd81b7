/* The compilation of a network (sol_compile). */
#ifndef SOL_COMPILE_H
#define SOL_COMPILE_H

#include "tune/tune.h"

struct dev;

/* compile.c: compiles like sol_compile, by costs alone, for any target, and also returns the schedule for inspection.
 */
sol_status compile_for(struct sol_graph *g, const struct target *target, struct tune_net *out);
/* Compiles like sol_compile, for another target than the key `target` names. */
sol_status compile_tuned(struct sol_graph *g, const struct target *target, struct sol_net **out_net);

/* The target of code that devices of a type compile. `name` is for messages. */
struct sol_device_type;
struct sol_device_info;
sol_status compile_target(struct sol_ctx *ctx, const struct sol_device_type *type, const struct sol_device_info *info,
                          const char *name, struct target *out);
/* A device without float64 (target->single) computes everything in float32, but no tensor of float64. */
sol_status compile_reject_doubles(const struct sol_graph *g, const char *device);

/* code.c: code that the device compiles itself, into the parts of a network, whose arena is `a`. */
struct net_parts;
sol_status code_build(struct dev *dev, const struct schedule *s, struct arena *a, struct net_parts *parts);
/* All kernels of a schedule as one text for a device that compiles its code; for one that runs whole programs with the
 * module's tables. Kernel i is k<i>. *out_flags: of compilers, NULL: none. */
sol_status code_text(const struct schedule *s, const char **out_text, const char **out_flags);
const char *code_without_kernels(struct arena *a, const char *tables); /* tables for the host, whose steps are NULL */

/* report.c: the unit of step i, NULL: none. A halo belongs to the unit behind it, which writes the tensor. */
const struct unit *compile_unit_of(const struct schedule_program *p, int i);
/* Logs which steps of a network on a device run on the host. */
void compile_report_host(const struct schedule *s, const char *device);
/* Logs the plan at level DEBUG: one line for each unit with its solver, variant and cost. */
void compile_report(const struct schedule *s);
/* draw.c: draws the planned network for Graphviz, with compiler::debug. */
void compile_draw(const struct schedule *s);
/* Writes a file NAME-HASH with a suffix into the folder `debug` beside the cache; the log says where `what` is. */
void compile_keep_file(const struct schedule *s, const char *suffix, const char *text, const char *what);
/* picture.c: draws memory while each kernel runs, by kind, as one SVG. */
enum memory_kind {
    MEMORY_PARAMS,
    MEMORY_PREPARED,
    MEMORY_INPUTS,
    MEMORY_OUTPUTS,
    MEMORY_SAVED,
    MEMORY_WORK, /* including the workers' scratch */
    MEMORY_KINDS
};
struct memory_bar {
    const char *label; /* the kernel's layers */
    bool backward;
    int64_t bytes[MEMORY_KINDS];
};
const char *picture_memory(struct arena *a, const char *name, const struct memory_bar *bars, int n);
/* Logs what is in memory during each step and what makes up the peak, and draws it, with
 * compiler::debug_memory_consumption. */
void compile_report_steps(const struct schedule *s);
/* memory.c: the bytes of all tensors of a role, for the hints of dimensions that vary. */
int64_t compile_bytes(int n, struct sol_tensor *const *t);
/* Applies the key training::memory: chooses what forward saves in a graph with a gradient. */
struct compile_memory {
    const struct checkpointing *keep; /* NULL: the graph has no gradient */
    int level;
};
/* Estimates the peak memory at another level, given the peak of s at its own. 0: the graph has no gradient. */
int64_t compile_peak(const struct schedule *s, const struct compile_memory *m, int level);
sol_status compile_keep(struct sol_graph *g, const struct target *target, struct compile_memory *out_m);

/* Logs the peak memory. */
void compile_report_memory(struct sol_ctx *ctx, struct sol_net *net, bool training);

#endif
