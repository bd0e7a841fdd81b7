/* Runtime: the network object and its runs (sol_net_*), and parameter sets (sol_params_*). It reads only the tables of
 * a module and does not know how the module was compiled. */
#ifndef SOL_RUNTIME_H
#define SOL_RUNTIME_H

#include "base/base.h"
#include "device/device.h"
#include "rt/rt.h"
#include "sol/module.h"

/* A step that C code of the host computes (an opaque layer): steps with sol_step.call == i call host[i]. The step's
 * places are its `nin` inputs, then its outputs, all row-major. Must be re-entrant. */
struct net_host {
    /* `sizes` as in struct sol_frame; a step of kind SET changes its dimension */
    sol_status (*run)(struct sol_ctx *ctx, const void *data, int64_t *sizes, const void *const *in, void *const *out);
    const void *data; /* in the net's arena */
    int nin, nout;
    int set;              /* the dimension that it sets, -1: none */
    const int64_t *bytes; /* of each input, then of each output; sizes (base/size.h) */
};
struct net_note {                       /* of a step, for people */
    const char *label, *solver, *where; /* of its kernel: layers, what computes it, a place in the user's source */
    int64_t flops, bytes;               /* as in struct sol_step, as sizes (base/size.h); SIZE_BAD: unknown */
    bool continues;                     /* it is of the same kernel as the step in front of it */
};
/* Step i of kernel k, a step of kind LAUNCH, has number k * NET_LAUNCH_STEPS + i in `call`. */
#define NET_LAUNCH_STEPS 8
struct net_kernel {
    const char *symbol; /* step i is the function <symbol>_<i> */
    int code;           /* which of the network's codes has it */
    int shared, items;  /* memory of a work group, in bytes, and its work items */
};
struct net_code {
    const void *data;
    size_t bytes;
};
struct net_parts {
    const char *name;
    const struct sol_module *module; /* counts of inputs, outputs, parameters stand there */
    const struct sol_io *inputs, *outputs, *params;
    const int64_t *most;         /* by dimension: as in struct sol_net_dim */
    const struct net_host *host; /* NULL: no opaque layers */
    int nhost;
    const struct net_note *notes[2]; /* by step of forward and of backward; NULL: nothing is known */
    void (*close)(void *handle);     /* called with `handle` when the net dies: unmaps the module; may be NULL */
    void *handle;
    /* That the device compiled, of all steps but those of the host: one, or for steps of kind LAUNCH any number. 0: the
     * steps are in the module. */
    int ncode;
    const struct net_code *code;
    const struct net_kernel *kernel;        /* of steps of kind LAUNCH */
    struct dev *dev;                        /* that runs it; NULL: this processor, on the caller's threads */
    bool resident;                          /* its inputs, outputs and parameters lie in the heap of the device */
    struct sol_machine machine;             /* that runs it, for profiles */
    int64_t if_fast, if_balanced, if_small; /* what sol_net_memory says of other settings of training::memory */
};
/* Takes ownership of `a`, which contains everything that the parts point to except the module's tables. The network
 * frees it. After a failure the caller still owns `a`. */
sol_status net_create(struct sol_ctx *ctx, struct arena *a, const struct net_parts *parts, struct sol_net **out_net);
/* Runs as sol_net_run with any number of threads, and measures each step of forward. out_ns has room for all steps. */
sol_status net_measure(struct sol_net *net, struct sol_params *params, const struct sol_call *at, int64_t *out_ns);

#endif
