/* Rt: runs one program of a module on the threads of this process. One dependency-free C file (libc and pthreads only)
 * that is in libsol and in every deployed library.
 *
 * One parallel region per call; in it every worker walks all steps in order, computes its share of each step's tasks
 * and meets the others at a barrier. The threads are those of a team: an OpenMP runtime that is in the process already,
 * or an own pool. Which one, and how many, never changes a bit of the result. */
#ifndef SOL_RT_H
#define SOL_RT_H

#include "sol/module.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Who runs a parallel region. `parallel` calls fn(arg, worker, nworkers) for all workers 0..nworkers-1 at the same
 * time, nworkers from 1 to n, worker 0 on the calling thread, and returns when all are done. */
struct rt_team {
    void (*parallel)(void *user, int n, void (*fn)(void *arg, int worker, int nworkers), void *arg);
    void *user;
};
/* The OpenMP runtime of this process (libgomp, libomp or Intel's), found by name, never linked; NULL if there is none
 * or this process is a fork of one that may have used it: then its threads are gone. */
const struct rt_team *rt_team_openmp(void);
/* The own pool: bounded spinning, then sleeping. Concurrent calls get teams of their own as far as there are
 * processors. A child process starts a new one. */
const struct rt_team *rt_team_pool(void);
int rt_forks(void);      /* forks between the process that loaded this code, or the program's start, and this one */
int rt_processors(void); /* that this process may use: affinity and cgroup quota; at least 1 */
/* The processors' worth of time that the groups of this process grant (a container, a service), rounded up; 0: no
 * limit. `root` is put before the names of files: "" but for tests. */
int rt_quota(const char *root);

/* Steps of kind SOL_STEP_HOST: computed by the host, on worker 0. Returns 0, or what rt_run shall return. */
typedef int32_t (*rt_host_fn)(void *user, int32_t call, char *const *p);

struct rt_call {
    const struct sol_program *program;
    char *const *base; /* start of every buffer of the module */
    char **operands;   /* room for program->nplace pointers */
    void *scratch;     /* threads * rt_scratch_bytes(program, sizes), 64-byte aligned */
    const uint64_t *seeds;
    const int64_t *sizes;       /* known only while running: module->nsize of them; NULL: there are none */
    const unsigned char *only;  /* by step: 0 skips it; NULL: all run */
    int threads;                /* at most so many workers; 1: no region, no pool */
    const struct rt_team *team; /* NULL: the own pool */
    rt_host_fn host;
    void *host_user;
    int64_t *step_ns; /* NULL, or by step: its time up to the barrier behind it is added */
    /* With step_ns: called by the calling thread when a step begins; NULL: nobody wants to know. */
    void (*on_step)(void *user, int32_t step);
    void *on_step_user;
};
static inline int64_t rt_quantity(int64_t q, const int64_t *sizes)
{
    return q < SOL_SIZE ? q : sizes[q - SOL_SIZE];
}
/* One worker's scratch: in whole cache lines. */
static inline int64_t rt_scratch_bytes(const struct sol_program *p, const int64_t *sizes)
{
    return (rt_quantity(p->scratch_bytes, sizes) + 63) / 64 * 64;
}
/* Runs the program, whose steps are of kinds KERNEL, TEAM and HOST and whose memory is the host's. Returns
 * SOL_KERNEL_OK, the first error that a kernel met, or what the host returned; *out_step is then the step. Re-entrant.
 */
int32_t rt_run(const struct rt_call *call, int32_t *out_step);

#ifdef __cplusplus
}
#endif
#endif
