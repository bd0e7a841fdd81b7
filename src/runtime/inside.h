/* The internals of the runtime, for the files of this folder only: a network, parameter sets, memory blocks, and
 * running calls. */
#ifndef SOL_RUNTIME_INSIDE_H
#define SOL_RUNTIME_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>

#include "runtime/runtime.h"

struct block { /* memory aligned to 64 bytes, to huge pages if it is large */
    char *at;
    void *raw;
    int64_t bytes;
    bool small; /* because huge pages are slow to get */
};
/* The tensors that a call of forward saves for backward. */
struct sol_saved {
    struct sol_net *net;
    struct sol_saved *next; /* while idle */
    struct block block;
    int64_t bytes;    /* of the block that are in use */
    atomic_bool used; /* backward reused the memory: nothing is saved here any more */
    int64_t dims[];   /* of forward: the sizes of the dimensions that vary */
};
/* The memory of one running call; kept for the next call. */
enum { SLOT_SIZES = 8 };
struct slot {
    struct slot *next;
    struct block workspace, scratch;
    /* The sizes of a call, module->nsize of them (NULL: none vary), and those of the last calls with other sizes. */
    const int64_t *sizes;
    int64_t *known;
    int nknown, newest;
    char **base;      /* by buffer */
    char **operands;  /* by place */
    int64_t *step_ns; /* of the call, if it is measured */
};
#define PROFILE_RUNS 64
struct profile { /* of the last runs of a program that were measured */
    int64_t runs;
    int64_t *ns; /* by run, modulo PROFILE_RUNS, and step; NULL: none yet */
};
/* A mutex with a condition that survives fork(): a child process resets it, because its holder does not exist there. */
struct lock {
    atomic_int forks; /* the process in which it is valid */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
};
/* One parameter set: pointers to the owner's data, and the packed and folded parameters. */
struct sol_params {
    struct sol_net *net;
    struct lock lock;   /* for all below */
    const void **param; /* as they were handed over last */
    bool *dirty;        /* by parameter: it changed, and `prepare` must run its steps again */
    bool any_dirty;     /* or nothing was prepared yet */
    bool fresh;         /* nothing was prepared yet */
    bool preparing;
    int running; /* calls in flight */
    struct block prepared;
};
struct sol_net {
    struct sol_ctx *ctx;
    struct arena *arena;
    struct net_parts parts;
    const struct sol_module *module;
    int64_t *param_bytes;
    bool *prepares; /* by parameter: a step of `prepare` depends on it */
    const struct rt_team *team;
    bool debug; /* fills the workspace with NaN before each call */
    /* Of a network with dimensions that vary: */
    int64_t *example;       /* its sizes for the dimensions' hints */
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

/* lock.c */
void lock_init(struct lock *l);
void lock_destroy(struct lock *l);
/* `mend` repairs `of`, which the lock guards, in a child process, where calls of the parent's other threads never end.
 * NULL: nothing to repair. */
void lock_take(struct lock *l, void (*mend)(void *of), void *of);
void lock_give(struct lock *l);

/* net.c */
int64_t io_bytes(const struct sol_io *io, const int64_t *dims);
void net_memory(const struct sol_net *net, const int64_t *sizes, struct sol_memory *out_m);
void net_lock(struct sol_net *net);
void net_unlock(struct sol_net *net);
/* Frees the rest of a destroyed network when no saved tensors refer to it any more. */
void net_free(struct sol_net *net);

/* block.c */
sol_status block_make(struct sol_ctx *ctx, int64_t bytes, const char *what, struct block *out_b);
void block_free(struct sol_ctx *ctx, struct block *b);
/* Enlarges a block if necessary, without keeping its content. `grows`: perhaps soon again, so by an eighth at least. */
sol_status block_need(struct sol_ctx *ctx, int64_t bytes, const char *what, bool grows, struct block *b);
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
size_t sizes_bytes(const struct sol_net *net); /* what a slot needs for `known` */

/* saved.c: sol_saved_destroy, and */
sol_status saved_take(struct sol_net *net, const int64_t *dims, struct sol_saved **out_s);
sol_status saved_need(struct sol_saved *s, int64_t bytes); /* memory for what is to be saved */
void saved_give(struct sol_saved *s);
void saved_free_idle(struct sol_net *net);

/* params.c */
void params_lock(struct sol_params *params);
void params_unlock(struct sol_params *params);
/* profile.c: adds a run. */
void profile_add(struct sol_net *net, struct profile *p, int nstep, const int64_t *ns);

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
    int threads;
    bool profile;
    int64_t *out_ns; /* by step; NULL: the profile records the times */
};
sol_status run_program(struct sol_net *net, const struct call *c, struct slot *s);

#endif
