/* The main thread of a network's programs on a Vector Engine. It is compiled for that processor, with the network's
 * kernels and tables and the runtime (src/rt), into one library: VEDA calls sol_ve_run there once for all steps of a
 * run. Addresses of the host are virtual, and VEDA's table on the device says where they are. */
#include <stdlib.h>

#include "rt/rt.h"
#include "sol/module.h"
#include "ve_run.h"

extern const struct sol_module sol_module;
extern int vedaMemPtr(void **out, void *virtual_address); /* libveda.vso; 0: done */

enum { ALIGN = 64, NO_MEMORY = -1 };

static char *place(uint64_t virtual_address)
{
    void *at = NULL;
    return virtual_address && !vedaMemPtr(&at, (void *)(uintptr_t)virtual_address) ? at : NULL;
}

static const struct sol_program *program_of(int number)
{
    return number == 0 ? &sol_module.prepare : number == 1 ? &sol_module.forward : &sol_module.backward;
}

static int32_t run(const struct ve_run *r, char **memory, int32_t *out_step)
{
    int64_t *const ns = (int64_t *)(uintptr_t)(r + 1);
    const uint64_t *base = (const uint64_t *)(ns + (r->timed ? r->count : 0));
    const int64_t *sizes = (const int64_t *)(base + r->nbase);
    const uint64_t *seeds = (const uint64_t *)(sizes + r->nsize);
    struct sol_program p = *program_of(r->program);
    char *scratch = place(r->scratch);
    for (int i = 0; i < r->nbase; i++) memory[i] = place(base[i]);
    if (scratch) scratch += -(uintptr_t)scratch % ALIGN; /* the host's blocks have so many bytes more */
    p.step += r->first;
    p.nstep = r->count;
    const struct rt_call call = {.program = &p,
                                 .base = memory,
                                 .operands = memory + r->nbase,
                                 .scratch = scratch,
                                 .seeds = seeds,
                                 .sizes = r->nsize ? sizes : NULL,
                                 .only = (const unsigned char *)(seeds + r->nseed),
                                 .threads = r->threads,
                                 .step_ns = r->timed ? ns : NULL};
    return rt_run(&call, out_step);
}

__attribute__((visibility("default"))) uint64_t sol_ve_run(uint64_t where)
{
    struct ve_run *r = (struct ve_run *)(void *)place(where);
    if (!r) return 1;
    const size_t places = (size_t)r->nbase + (size_t)program_of(r->program)->nplace + 1;
    char **memory = malloc(places * sizeof *memory);
    r->error = memory ? run(r, memory, &r->step) : NO_MEMORY;
    free(memory);
    return 0;
}
