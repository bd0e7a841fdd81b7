/* Runs a program of steps on the only thread; see rt.h. It replaces sol_rt.c where there is no operating system, and
 * depends on nothing. */
#include <stddef.h>

#include "rt/rt.h"

/* A stage of a team with one worker. */
static void run_alone(void *user, sol_kernel *stage, char *const *p, const struct sol_frame *f, int64_t tasks,
                      int worker)
{
    (void)user;
    stage(p, f, 0, tasks, worker);
}

int32_t rt_run(const struct rt_call *c, int32_t *out_step)
{
    const struct sol_program *p = c->program;
    const struct sol_team team = {.run = run_alone};
    volatile int32_t error = SOL_KERNEL_OK, error_step = 0;
    struct sol_frame f = {.base = c->base,
                          .scratch = c->scratch,
                          .scratch_bytes = rt_scratch_bytes(p, c->sizes),
                          .seeds = c->seeds,
                          .sizes = c->sizes,
                          .team = &team,
                          .error = &error,
                          .error_step = &error_step};
    for (int i = 0; i < p->nplace; i++)
        c->operands[i] =
            (char *)((uintptr_t)c->base[p->place[i].buffer] + (uintptr_t)rt_quantity(p->place[i].offset, c->sizes));
    for (int i = 0; i < p->nstep && !error; i++) {
        const struct sol_step *s = &p->step[i];
        f.step = error_step = i;
        const int64_t tasks = rt_quantity(s->tasks, c->sizes);
        if (!tasks) continue;
        if (s->kind == SOL_STEP_HOST)
            error = c->host(c->host_user, s->call, c->operands + s->place0);
        else
            s->run(c->operands + s->place0, &f, 0, tasks, 0);
    }
    if (out_step) *out_step = error_step;
    return error;
}
