/* The internals of the runtime, for the files of this folder only: a network, parameter sets, memory blocks, and
 * running calls. */
#ifndef SOL_RUNTIME_INSIDE_H
#define SOL_RUNTIME_INSIDE_H

#include "base/size.h"
#include "rt/lock.h"
#include "runtime/runtime.h"

struct block { /* memory aligned to 64 bytes, to huge pages if it is large */
    char *at;  /* on another device: a virtual pointer, which nobody dereferences */
    void *raw;
    int64_t bytes;
    bool small;                                         /* because huge pages are slow to get */
    struct dev *dev;                                    /* of the virtual pointer */
    struct sol_heap *heap;                              /* commands in its queue may still use the memory */
    void (*drop)(struct sol_ctx *ctx, struct block *b); /* frees it; NULL: there is no memory */
};
struct call;
struct slot;
/* How networks run on a kind of device: runner_here (run.c, block.c) for memory of this process and threads of the
 * caller, runner_queued (queued.c) for memory of a device and its queues. */
struct runner {
    sol_status (*begin)(struct sol_net *net); /* when the network is made */
    void (*end)(struct sol_net *net);         /* before its module goes */
    sol_status (*make)(struct sol_net *net, int64_t bytes, const char *what, struct block *out_b);
    sol_status (*fill)(struct sol_net *net, const struct block *b, int64_t bytes); /* with NaN, and -1 */
    sol_status (*copy)(struct sol_net *net, const struct block *to, const struct block *from, int64_t bytes);
    sol_status (*run)(struct sol_net *net, const struct call *c, struct slot *s);
};
extern const struct runner runner_here, runner_queued;
/* The tensors that a call of forward saves for backward. */
struct sol_saved {
    struct sol_net *net;
    struct sol_saved *next; /* while idle */
    struct block block;
    int64_t bytes;    /* of the block that are in use */
    bool borrowed;    /* the block is the caller's */
    atomic_bool used; /* backward reused the memory: nothing is saved here any more */
    int64_t dims[];   /* of forward: the sizes of the dimensions that vary */
};
/* The memory of one running call; kept for the next call. */
enum { SLOT_SIZES = 8 };
struct slot {
    struct slot *next;
    struct block workspace, scratch;
    struct block state; /* of launched steps (launched.c) */
    struct block io;    /* copies of inputs and outputs, where the device has memory of its own */
    /* The sizes of a call, module->nsize of them (NULL: none vary), and those of the last calls with other sizes. */
    const int64_t *sizes;
    int64_t *own; /* where steps set sizes: those of the call as they are now, which `sizes` points to */
    int64_t *known;
    int nknown, newest;
    char **base;      /* by buffer */
    sol_ptr *bases;   /* the same */
    void **io_at;     /* where inputs, then outputs are in `io` */
    char **operands;  /* by place */
    int64_t *step_ns; /* of the call, if it is measured */
};
#define PROFILE_RUNS 64
struct profile { /* of the last runs of a program that were measured */
    int64_t runs;
    int64_t *ns;                  /* by run, modulo PROFILE_RUNS, and step; NULL: none yet */
    int64_t dims[SIZE_MOST_DIMS]; /* of the last run */
};
/* One parameter set: pointers to the owner's data, and the packed and folded parameters. */
struct sol_params {
    struct sol_net *net;
    struct lock lock;   /* for all below */
    const void **param; /* as they were handed over last */
    const void **at;    /* where the device has them: the same, or in `mirror` */
    struct block mirror;
    bool *dirty;      /* by parameter: it changed, and `prepare` must run its steps again */
    bool any_dirty;   /* or nothing was prepared yet */
    bool fresh;       /* nothing was prepared yet */
    int64_t failures; /* of the heap, when `prepare` was appended to its queue last */
    bool preparing;
    int running; /* calls in flight */
    struct block prepared;
};
struct sol_net {
    struct sol_ctx *ctx;
    struct arena *arena;
    struct net_parts parts;
    const struct sol_module *module;
    const struct runner *runner;
    struct sol_code **code; /* on the device: parts.code, or the module's own */
    int ncode;
    struct sol_heap *heap;     /* of its inputs, outputs and parameters; NULL: they are memory of the host */
    struct heap_ending ending; /* its runs may be under way when it is destroyed */
    bool launches;             /* its steps are of kind LAUNCH */
    void **kernel[3];          /* of such steps, by program and step */
    struct block constants;
    char **constant_at; /* by buffer of kind CONST; NULL: the code has them */
    int64_t *param_bytes;
    int64_t *param_at; /* in a mirror */
    int64_t mirror_bytes;
    bool *uses[3];  /* by program and buffer: its steps have operands there; not set on this processor */
    bool *prepares; /* by parameter: a step of `prepare` depends on it */
    const struct rt_team *team;
    bool debug; /* fills the workspace with NaN before each call */
    /* Of a network with dimensions that vary: */
    int64_t *example;       /* its sizes for the dimensions' hints */
    const int64_t *most;    /* by dimension: parts.most */
    int64_t *room;          /* by output: the most elements, as a size of dimensions that callers tell */
    int told;               /* how many dimensions callers tell */
    struct size_read *read; /* what the inputs' shapes must be */
    int nread;

    struct lock lock; /* for all below */
    struct slot *idle;
    struct sol_saved *saved_idle; /* kept for the next call of forward */
    int saved_nidle, saved_out;   /* out: handed out, not destroyed */
    int saved_most[2];            /* the most that were out at once: lately, and just before that */
    int saved_calls;              /* of forward, since `lately` began */
    bool destroyed;               /* only what is saved still holds it */
    int64_t *checked;             /* the last different dimensions that were found good */
    int nchecked, newest_checked;
    struct profile forward_profile, backward_profile;
};

/* queued.c: where the commands of a call go: to a queue of its own, or to that of a heap. */
struct line {
    struct queue *queue;
    struct sol_heap *heap; /* NULL: queue */
};
sol_status line_add(const struct line *line, const struct sol_command *c);
sol_status line_wait(const struct line *line, struct sol_failure *out_failure);

/* launched.c: steps of kind LAUNCH */
struct launched { /* a program that runs */
    const struct sol_program *program;
    int number; /* 0 prepare, 1 forward, 2 backward */
    struct slot *slot;
    const struct line *line;
    int64_t *step_ns; /* NULL: not measured */
};
sol_status launched_begin(struct sol_net *net); /* when the code is loaded */
/* Before the first step of a program, and behind the last: whoever waits for the line is told what a kernel reported.
 */
sol_status launched_open(struct sol_net *net, struct slot *s, const struct line *line);
sol_status launched_sizes(struct sol_net *net, struct slot *s, const struct line *line); /* those of the call are new */
sol_status launched_close(struct sol_net *net, const struct sol_program *p, struct slot *s, const struct line *line);
sol_status launched_add(struct sol_net *net, const struct launched *l, int step);

/* net.c */
int64_t io_bytes(const struct sol_io *io, const int64_t *dims);
int64_t output_bytes(const struct sol_net *net, int i, const int64_t *dims); /* whatever the network sets */
void net_memory(const struct sol_net *net, const int64_t *sizes, struct sol_memory *out_m);
void net_lock(struct sol_net *net);
void net_unlock(struct sol_net *net);
/* Frees the rest of a destroyed network when no saved tensors refer to it any more. */
void net_free(struct sol_net *net);

/* block.c. `bytes` may be 0. sizes: of the call on which `bytes` depends, which a message names; NULL: of none. */
sol_status block_make(struct sol_net *net, int64_t bytes, const char *what, const int64_t *sizes, struct block *out_b);
void block_free(struct sol_ctx *ctx, struct block *b);
sol_status block_here(struct sol_net *net, int64_t bytes, const char *what, struct block *out_b);
/* Enlarges a block if necessary, without keeping its content. If it depends on sizes, a call may soon need more, so it
 * grows by an eighth at least. */
sol_status block_need(struct sol_net *net, int64_t bytes, const char *what, const int64_t *sizes, struct block *b);
void block_keep(struct block *b); /* it will be used again */
/* Prepares memory of the caller that a program will write. Large memory is usually new, such as the gradients of a
 * step, because allocators return large blocks to the system. Writing it is several times as fast with huge pages. */
void block_fresh(char *at, int64_t bytes);
/* Takes a slot with workspace and scratch for a call of `p` with these dimensions (NULL: those of the example). Return
 * it with slot_give. */
struct slot_use {
    const struct sol_program *program;
    const int64_t *dims;
    int threads;
};
sol_status slot_take(struct sol_net *net, const struct slot_use *use, struct slot **out_s);
void slot_give(struct sol_net *net, struct slot *s);
void slot_free(struct sol_net *net, struct slot *s);

/* sizes.c: dimensions that vary. */
struct size_read { /* a dimension of an input */
    int input, d;
    int64_t size;
    int dim; /* size is the dimension of this number; -1: a number, or another form */
};
sol_status sizes_begin(struct sol_net *net); /* when the network is made */
/* Finds the sizes of a call among those that a slot knows, or computes them. `dims` as in slot_take. */
sol_status sizes_find(struct sol_net *net, struct slot *s, const int64_t *dims);
/* " with '#0' 2, 'steps' 40": the dimensions of a call; nothing if there are none. */
enum { SIZES_TEXT = 400, CHECK_TEXT = 600 };
void sizes_text(const struct sol_net *net, const int64_t *sizes, char out[SIZES_TEXT]);
size_t sizes_bytes(const struct sol_net *net); /* what a slot needs for `known` and `own` */
bool sizes_are_set(const struct sol_net *net); /* by steps? */
sol_status sizes_set(const struct sol_net *net, int64_t *sizes,
                     int dim); /* what follows from a dimension that is set */

/* saved.c: sol_saved_destroy, and */
sol_status saved_take(struct sol_net *net, const int64_t *dims, struct sol_saved **out_s);
sol_status saved_need(struct sol_saved *s, int64_t bytes); /* memory for what is to be saved */
void saved_give(struct sol_saved *s);
void saved_free_idle(struct sol_net *net);

/* params.c */
void params_lock(struct sol_params *params);
void params_unlock(struct sol_params *params);
/* profile.c: adds a run. */
void profile_add(struct sol_net *net, struct profile *p, int nstep, const int64_t *ns, const int64_t *dims);

/* prepare.c. Between enter and leave the prepared block is up to date, and nobody writes it. */
sol_status prepare_enter(struct sol_params *params, int threads);
void prepare_leave(struct sol_params *params);

/* run.c */
struct call {
    const struct sol_program *program;
    struct sol_params *params;
    const int64_t *dims;       /* NULL: none vary, or prepare */
    const void *const *inputs; /* NULL: prepare */
    void *const *outputs;
    struct sol_saved *saved;   /* NULL: the program uses none */
    struct sol_saved *uses_up; /* set if the program overwrites saved tensors; NULL: it must not */
    const unsigned char *only; /* by step: 0 skips it; NULL: all run */
    const bool *changed;       /* prepare: by parameter; NULL: all */
    int threads;
    bool profile;
    int64_t *out_dims; /* the sizes of the dimensions afterwards; NULL: not wanted */
    int64_t *out_ns;   /* by step; NULL: the profile records the times */
};
/* Sets the addresses of all buffers, s->base. */
void run_bases(const struct sol_net *net, const struct call *c, struct slot *s);
sol_status run_host(const struct sol_net *net, int64_t *sizes, int32_t call, char *const *p); /* a step of the host */
/* Reports the error of a step: negative, of a function of the host; otherwise what its kernel says. */
sol_status run_explain(struct sol_net *net, const struct sol_step *s, int32_t error);

#endif
