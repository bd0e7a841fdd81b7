/* Runtime: behind sol_net_* the network object, workspaces of calls in flight, running; behind sol_params_* what its
 * callers own: parameters and what was prepared of them.
 * Sees a module's table only; who compiled it does not matter. */
#ifndef SOL_RUNTIME_H
#define SOL_RUNTIME_H

#include "base/base.h"
#include "rt/rt.h"
#include "sol/module.h"

/* A step that C code of the host computes (an opaque layer): steps with sol_step.call == i call host[i]. The step's
 * places are its `nin` inputs, then its outputs, all row-major. Must be re-entrant. */
struct net_host {
    sol_status (*run)(struct sol_ctx *ctx, const void *data, const void *const *in, void *const *out);
    const void *data; /* in the net's arena */
    int nin;
};
struct net_note {                       /* of a step, for people */
    const char *label, *solver, *where; /* of its kernel: layers, what computes it, a place in the user's source */
    bool continues;                     /* it is of the same kernel as the step in front of it */
};
struct net_parts {
    const char *name;
    const struct sol_module *module; /* counts of inputs, outputs, parameters stand there */
    const struct sol_io *inputs, *outputs, *params;
    const struct net_host *host; /* NULL: no opaque layers */
    int nhost;
    const struct net_note *notes[2]; /* by step of forward and of backward; NULL: nothing is known */
    void (*close)(void *handle);     /* called with `handle` when the net dies: unmaps the module; may be NULL */
    void *handle;
    struct sol_machine machine;             /* that runs it, for profiles */
    int64_t if_fast, if_balanced, if_small; /* what sol_net_memory says of other settings of training::memory */
};
/* Takes over `a`, in which all that the parts point to lives (the module's table apart): it dies with the net. On
 * failure nothing is taken over. */
sol_status net_create(struct sol_ctx *ctx, struct arena *a, const struct net_parts *parts, struct sol_net **out_net);
/* sol_net_run with as many threads as it likes, each step of forward measured: out_ns has room for all of them. */
sol_status net_measure(struct sol_net *net, struct sol_params *params, const void *const *inputs, void *const *outputs,
                       int64_t *out_ns);

#endif
