/* Runs a program of steps on the one thread that there is: see rt.h. The place of sol_rt.c where there is no operating
 * system. Depends on nothing. */
#include <stddef.h>

#include "rt/rt.h"

int32_t rt_run(const struct rt_call *c, int32_t *out_step)
{
    const struct sol_program *p = c->program;
    volatile int32_t error = SOL_KERNEL_OK, error_step = 0;
    struct sol_frame f = {.base = c->base,
                          .scratch = c->scratch,
                          .scratch_bytes = rt_scratch_bytes(p),
                          .seeds = c->seeds,
                          .error = &error,
                          .error_step = &error_step};
    for (int i = 0; i < p->nplace; i++)
        c->operands[i] = (char *)((uintptr_t)c->base[p->place[i].buffer] + (uintptr_t)p->place[i].offset);
    for (int i = 0; i < p->nstep && !error; i++) {
        const struct sol_step *s = &p->step[i];
        f.step = error_step = i;
        if (!s->tasks) continue;
        if (s->run)
            s->run(c->operands + s->place0, &f, 0, s->tasks, 0);
        else
            error = c->host(c->host_user, s->call, c->operands + s->place0);
    }
    if (out_step) *out_step = error_step;
    return error;
}
