/* Rt: runs a program of a module on the threads of this process. It depends on libc and pthreads only, and is part of
 * libsol and of every deployed library.
 *
 * Each call is one parallel region. In it, every worker goes through all steps in order, computes its share of each
 * step's tasks and meets the others at a barrier. The threads belong to a team: an OpenMP runtime that the process has
 * loaded, or our own pool. The team and the number of threads never change a bit of the result. */
#ifndef SOL_RT_H
#define SOL_RT_H

#include <stddef.h>

#include "sol/module.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Runs parallel regions. `parallel` calls fn(arg, worker, nworkers) concurrently for all workers 0..nworkers-1, with
 * nworkers from 1 to n and worker 0 on the calling thread, and returns when all are done. */
struct rt_team {
    void (*parallel)(void *user, int n, void (*fn)(void *arg, int worker, int nworkers), void *arg);
    void *user;
};
/* The OpenMP runtime of this process (libgomp, libomp or Intel's), found by name, never linked. NULL if there is none,
 * or if this process is a fork of one that may have used it: the runtime's threads do not exist in the child. */
const struct rt_team *rt_team_openmp(void);
/* Our own pool: workers spin for a bounded time, then sleep. Concurrent calls get separate teams while there are
 * processors left. A forked child starts a new pool. */
const struct rt_team *rt_team_pool(void);
int rt_forks(void); /* forks between this process and the one that loaded this code (or the start of the program) */
int rt_processors(void); /* how many this process may use, by affinity and cgroup quota; at least 1 */
/* The number of processors that the cgroups of this process (a container, a service) allow, rounded up; 0: no limit.
 * `root` is a prefix for file names, "" except in tests. */
int rt_quota(const char *root);

/* Computes a step of kind SOL_STEP_HOST or SOL_STEP_SET (which may change the call's sizes), on worker 0. Returns 0, or
 * an error that rt_run returns. */
typedef int32_t (*rt_host_fn)(void *user, int32_t call, char *const *p);

struct rt_call {
    const struct sol_program *program;
    char *const *base; /* start of each buffer of the module */
    char **operands;   /* room for program->nplace pointers */
    void *scratch;     /* threads * rt_scratch_bytes(program, sizes) bytes, 64-byte aligned */
    const uint64_t *seeds;
    const int64_t *sizes;       /* of the call: module->nsize of them; NULL: none */
    const unsigned char *only;  /* by step: 0 skips the step; NULL: all steps run */
    int threads;                /* most workers; 1: neither region nor pool */
    const struct rt_team *team; /* NULL: our own pool */
    rt_host_fn host;
    void *host_user;
    int64_t *step_ns; /* NULL, or by step: adds the time from its begin to the barrier after it */
    /* If step_ns is set, the calling thread calls this when a step begins. May be NULL. */
    void (*on_step)(void *user, int32_t step);
    void *on_step_user;
};
static inline int64_t rt_quantity(int64_t q, const int64_t *sizes)
{
    return q < SOL_SIZE ? q : sizes[q - SOL_SIZE];
}
/* Where a buffer begins: a kind of memory, and the offset in it. */
struct rt_place {
    enum sol_buffer_kind kind; /* not SOL_BUFFER_EITHER */
    int64_t offset;
};
static inline struct rt_place rt_place(const struct sol_module *m, const struct sol_buffer *b, const int64_t *sizes)
{
    const int64_t offset = rt_quantity(b->offset, sizes);
    if (b->kind != SOL_BUFFER_EITHER) return (struct rt_place){(enum sol_buffer_kind)b->kind, offset};
    const int64_t room = rt_quantity(m->saved_bytes, sizes);
    return offset < room ? (struct rt_place){SOL_BUFFER_SAVED, offset}
                         : (struct rt_place){SOL_BUFFER_WORKSPACE, offset - room};
}
/* The scratch of one worker, rounded up to whole cache lines. */
static inline int64_t rt_scratch_bytes(const struct sol_program *p, const int64_t *sizes)
{
    return (rt_quantity(p->scratch_bytes, sizes) + 63) / 64 * 64;
}
/* offsets.c: assigns an offset to each block from lifetimes and sizes. Blocks that are live at the same time do not
 * overlap. Offsets are multiples of 64. Returns the total size. The `given` blocks, sorted by offset, are live from the
 * start in the first `room` bytes. Other blocks may reuse that memory once those are dead, but no block crosses the end
 * of that room. */
struct rt_block {
    int64_t bytes, offset;
    int first, last; /* steps, inclusive */
};
struct rt_layout {
    struct rt_block *block, *given;
    int n, ngiven;
    int64_t room;
    void *memory; /* rt_offsets_bytes(n, ngiven), aligned to int64_t */
    int hurry;    /* 1: the order by size, which is slow, only for few blocks */
};
struct rt_range {
    int64_t begin, end;
};
int64_t rt_offsets(const struct rt_layout *l);
size_t rt_offsets_bytes(int n, int ngiven);
int rt_offsets_pointers(int n, int ngiven); /* how many of them are pointers, which may be smaller elsewhere */

/* sizes.c: fills in the sizes of a call (module->nsize of them), of which the dimensions' are given. Offsets of blocks
 * depend on the sizes alone. `memory` has rt_sizes_bytes. Returns RT_FITS, or why the network does not run with these
 * dimensions; *out_which is the number of the dimension or of the check. */
enum rt_fit { RT_FITS, RT_LIMITS, RT_MULTIPLE, RT_NEEDS, RT_TOO_LARGE };
enum rt_fit rt_sizes(const struct sol_module *m, int64_t *size, void *memory, int32_t *out_which);
size_t rt_sizes_bytes(const struct sol_module *m);
/* dims.c: the same without the places of blocks, and the end of them. */
enum rt_fit rt_dims(const struct sol_module *m, int64_t *size, int32_t *out_which);
/* The checks of dimension `set`, which a step has set, or those when a call begins (-1). */
enum rt_fit rt_needs(const struct sol_module *m, const int64_t *size, int set, int32_t *out_which);

/* Runs the program. Its steps must be of kind KERNEL, TEAM, HOST or SET, in host memory. Returns SOL_KERNEL_OK, the
 * first error of a kernel, or what the host function returned; *out_step is then the step. Re-entrant. */
int32_t rt_run(const struct rt_call *call, int32_t *out_step);

#ifdef __cplusplus
}
#endif
#endif
