/* Prints the tables of a module as C text. They are what include/sol/module.h declares, and nothing else. */
#include "schedule/schedule.h"

static const char *const kind_names[] = {
    [SOL_BUFFER_INPUT] = "SOL_BUFFER_INPUT",         [SOL_BUFFER_OUTPUT] = "SOL_BUFFER_OUTPUT",
    [SOL_BUFFER_PARAM] = "SOL_BUFFER_PARAM",         [SOL_BUFFER_PREPARED] = "SOL_BUFFER_PREPARED",
    [SOL_BUFFER_WORKSPACE] = "SOL_BUFFER_WORKSPACE", [SOL_BUFFER_CONST] = "SOL_BUFFER_CONST",
    [SOL_BUFFER_SAVED] = "SOL_BUFFER_SAVED",
};
static void put_buffers(struct text *t, const struct schedule *s, bool data)
{
    text_line(t, "static const struct sol_buffer buffers[] = {");
    for (int i = 0; i < s->buffers.n; i++) {
        const struct sol_buffer *b = &s->buffers.at[i];
        text_put(t, "    {%s, %d, %lld, %lld, ", kind_names[b->kind], b->index, (long long)b->offset,
                 (long long)b->bytes);
        if (b->kind == SOL_BUFFER_CONST && data)
            text_put(t, "@DATA%d, %d, %d},\n", b->index, b->given, b->space);
        else
            text_put(t, "0, %d, %d},\n", b->given, b->space);
    }
    text_line(t, "    {0}\n};");
}

static void put_depends(struct text *t, const struct schedule *s, int *first)
{
    const struct schedule_program *pr = &s->program[PROGRAM_PREPARE];
    int n = 0;
    text_line(t, "static const int32_t depends[] = {");
    for (int i = 0; i < pr->steps.n; i++) {
        first[i] = n;
        text_put(t, "   ");
        for (int k = 0; k < s->plan->g->params.n; k++) {
            if (!(pr->steps.at[i].depends[k / 64] >> k % 64 & 1)) continue;
            text_put(t, " %d,", k);
            n++;
        }
        text_put(t, "\n");
    }
    text_line(t, "    0\n};");
    first[pr->steps.n] = n;
}

static void put_program(struct text *t, const struct schedule_program *pr, const char *name, const int *depends)
{
    text_line(t, "static const struct sol_operand %s_places[] = {", name);
    for (int i = 0; i < pr->steps.n; i++) {
        const struct schedule_step *st = &pr->steps.at[i];
        text_put(t, "   ");
        for (int k = 0; k < st->noperand; k++)
            text_put(t, " {%d, %lld},", st->place[k].buffer, (long long)st->place[k].offset);
        text_put(t, "\n");
    }
    text_line(t, "    {0, 0}\n};");
    text_line(t, "static const struct sol_step %s_steps[] = {", name);
    int place = 0;
    for (int i = 0; i < pr->steps.n; i++) {
        const struct schedule_step *st = &pr->steps.at[i];
        if (st->kernel >= 0)
            text_put(t, "    {@KERNEL%d_%d", st->kernel, st->sub);
        else
            text_put(t, "    {0");
        text_put(t, ", %lld, %d, %d, ", (long long)st->tasks, place, st->noperand);
        text_string(t, st->label);
        text_put(t, ", %d, %d, %s, %d, %.4g, %.4g},\n", depends ? depends[i] : 0,
                 depends ? depends[i + 1] - depends[i] : 0, st->kernel >= 0 ? "SOL_STEP_KERNEL" : "SOL_STEP_HOST",
                 st->call, st->flops, st->bytes);
        place += st->noperand;
    }
    text_line(t, "    {0}\n};");
}

static void put_program_row(struct text *t, const struct schedule_program *pr, const char *name)
{
    int places = 0;
    for (int i = 0; i < pr->steps.n; i++) places += pr->steps.at[i].noperand;
    text_line(t, "    .%s = {%d, %d, %s_steps, %s_places, %lld, %lld},", name, pr->steps.n, places, name, name,
              (long long)pr->workspace_bytes, (long long)pr->scratch_bytes);
}

const char *schedule_module_text(const struct schedule *s, const char *name, const char *symbol)
{
    struct text t = text_new(s->arena);
    const struct sol_graph *g = s->plan->g;
    int *depends = NEW_ARRAY(s->arena, int, s->program[PROGRAM_PREPARE].steps.n + 1);
    text_line(&t, "/* The tables of network %s. */", text_identifier(s->arena, name));
    put_buffers(&t, s, !symbol);
    put_depends(&t, s, depends);
    for (int i = 0; i < PROGRAMS; i++)
        put_program(&t, &s->program[i], program_name(i), i == PROGRAM_PREPARE ? depends : NULL);
    text_line(&t, "const struct sol_module %s = {", symbol ? symbol : "sol_module");
    text_line(&t, "    .size = sizeof(struct sol_module), .version = SOL_MODULE_VERSION,");
    text_line(&t, "    .ninput = %d, .noutput = %d, .nparam = %d, .nbuffer = %d,", g->inputs.n, g->outputs.n,
              g->params.n, s->buffers.n);
    text_line(&t, "    .buffer = buffers, .depends = depends, .prepared_bytes = %lld, .saved_bytes = %lld,",
              (long long)s->prepared_bytes, (long long)s->saved_bytes);
    for (int i = 0; i < PROGRAMS; i++) put_program_row(&t, &s->program[i], program_name(i));
    text_line(&t, "};");
    return t.at;
}
