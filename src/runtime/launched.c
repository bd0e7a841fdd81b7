/* Steps that a device launches one by one (SOL_STEP_LAUNCH). A work group computes a task. The parameters of a kernel
 * are those that the row of its flavour names: the operands, the groups' scratch memory and how much each group has,
 * the sizes of the call, where an error is reported, the step's number, and memory that a group shares. */
#include <stdio.h>
#include <string.h>

#include "runtime/inside.h"

enum { LINE = 64, MORE = 6 }; /* MORE: parameters behind the operands */

static const struct sol_program *program_of(const struct sol_net *net, int i)
{
    const struct sol_module *m = net->module;
    return i == 0 ? &m->prepare : i == 1 ? &m->forward : &m->backward;
}

static sol_status find_kernels(struct sol_net *net, int program)
{
    const struct sol_program *p = program_of(net, program);
    net->kernel[program] = NEW_ARRAY(net->arena, void *, p->nstep + 1);
    TRY(ctx_check(net->ctx));
    for (int i = 0; i < p->nstep; i++) {
        const struct sol_step *s = &p->step[i];
        char name[64];
        if (s->kind != SOL_STEP_LAUNCH) continue;
        const struct net_kernel *k = &net->parts.kernel[s->call / NET_LAUNCH_STEPS];
        snprintf(name, sizeof name, "%s_%d", k->symbol, s->call % NET_LAUNCH_STEPS);
        TRY(dev_find(net->parts.dev, net->code[k->code], name, &net->kernel[program][i]));
    }
    return SOL_OK;
}

sol_status launched_begin(struct sol_net *net)
{
    for (int i = 0; i < 3; i++) TRY(find_kernels(net, i));
    return SOL_OK;
}

/* The state of a call on the device: what a kernel reports, and the sizes of the call behind it. */
sol_status launched_open(struct sol_net *net, struct slot *s, const struct line *line)
{
    const int64_t sizes = net->module->nsize * (int64_t)sizeof *s->sizes;
    TRY(block_need(net, LINE + sizes, "the state of a call", NULL, &s->state));
    const sol_ptr at = (sol_ptr)(uintptr_t)s->state.at;
    TRY(line_add(line, &(struct sol_command){.kind = SOL_COMMAND_FILL, .label = "errors", .to = at, .bytes = LINE}));
    return launched_sizes(net, s, line);
}

sol_status launched_sizes(struct sol_net *net, struct slot *s, const struct line *line)
{
    const int64_t bytes = net->module->nsize * (int64_t)sizeof *s->sizes;
    if (!bytes) return SOL_OK;
    return line_add(line, &(struct sol_command){.kind = SOL_COMMAND_WRITE,
                                                .label = "sizes",
                                                .to = (sol_ptr)(uintptr_t)s->state.at + LINE,
                                                .data = s->sizes,
                                                .bytes = bytes});
}

sol_status launched_close(struct sol_net *net, const struct sol_program *p, struct slot *s, const struct line *line)
{
    if (!p->nstep) return SOL_OK;
    const struct sol_run all = {.count = p->nstep, .network = net->parts.name, .step = p->step};
    return line_add(line, &(struct sol_command){.kind = SOL_COMMAND_READ,
                                                .from = (sol_ptr)(uintptr_t)s->state.at,
                                                .bytes = 2 * sizeof(int32_t),
                                                .run = &all});
}

sol_status launched_add(struct sol_net *net, const struct launched *l, int i)
{
    const struct sol_step *step = &l->program->step[i];
    const int64_t *sizes = l->slot->sizes, tasks = rt_quantity(step->tasks, sizes);
    const int32_t number = i;
    const sol_ptr state = (sol_ptr)(uintptr_t)l->slot->state.at;
    if (!tasks) return SOL_OK;
    /* the program's scratch memory suffices for all groups of each of its steps */
    const int64_t scratch = rt_scratch_bytes(l->program, sizes) / tasks / LINE * LINE;
    struct sol_arg *arg = ctx_try(net->ctx, (size_t)(step->places + MORE) * sizeof *arg);
    if (!arg) return ctx_fail(net->ctx, SOL_ERR_NOMEM, "out of memory: '%s'", step->label);
    int n = 0;
    for (; n < step->places; n++) {
        const struct sol_operand *o = &l->program->place[step->place0 + n];
        arg[n] =
            (struct sol_arg){.kind = SOL_ARG_POINTER,
                             .pointer = (sol_ptr)(uintptr_t)(l->slot->base[o->buffer] + rt_quantity(o->offset, sizes))};
    }
    arg[n++] = (struct sol_arg){.kind = SOL_ARG_POINTER, .pointer = (sol_ptr)(uintptr_t)l->slot->scratch.at};
    arg[n++] = (struct sol_arg){.kind = SOL_ARG_VALUE, .bytes = sizeof scratch, .value = &scratch};
    arg[n++] = (struct sol_arg){.kind = SOL_ARG_POINTER, .pointer = net->module->nsize ? state + LINE : 0};
    arg[n++] = (struct sol_arg){.kind = SOL_ARG_POINTER, .pointer = state};
    arg[n++] = (struct sol_arg){.kind = SOL_ARG_VALUE, .bytes = sizeof number, .value = &number};
    const struct net_kernel *kernel = &net->parts.kernel[step->call / NET_LAUNCH_STEPS];
    arg[n++] = (struct sol_arg){.kind = SOL_ARG_SHARED, .bytes = MAX(kernel->shared, (int)sizeof(uint64_t))};
    const struct sol_launch launch = {.kernel = net->kernel[l->number][i],
                                      .groups = {(uint64_t)tasks, 1, 1},
                                      .items = {(uint32_t)kernel->items, 1, 1},
                                      .narg = n,
                                      .arg = arg};
    const sol_status status = line_add(l->line, &(struct sol_command){.kind = SOL_COMMAND_LAUNCH,
                                                                      .label = step->label,
                                                                      .launch = &launch,
                                                                      .ns = l->step_ns ? &l->step_ns[i] : NULL});
    ctx_free(net->ctx, arg);
    return status;
}
