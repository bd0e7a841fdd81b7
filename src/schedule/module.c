/* Prints the tables of a module as C text. They are what include/sol/module.h declares, and nothing else. Sizes that
 * vary become numbers of the sizes of a call as they occur, and the module's function `sizes` computes them. */
#include "schedule/quantities.h"
#include "schedule/schedule.h"

struct printer {
    struct text t;
    const struct schedule *s;
    struct quantities q;
};

static const char *quantity(struct printer *p, int64_t size)
{
    return quantity_text(&p->q, size);
}

static const char *const kind_names[] = {
    [SOL_BUFFER_INPUT] = "SOL_BUFFER_INPUT",         [SOL_BUFFER_OUTPUT] = "SOL_BUFFER_OUTPUT",
    [SOL_BUFFER_PARAM] = "SOL_BUFFER_PARAM",         [SOL_BUFFER_PREPARED] = "SOL_BUFFER_PREPARED",
    [SOL_BUFFER_WORKSPACE] = "SOL_BUFFER_WORKSPACE", [SOL_BUFFER_CONST] = "SOL_BUFFER_CONST",
    [SOL_BUFFER_SAVED] = "SOL_BUFFER_SAVED",         [SOL_BUFFER_EITHER] = "SOL_BUFFER_EITHER",
};
static void put_buffers(struct printer *p, bool data)
{
    struct text *t = &p->t;
    const struct schedule *s = p->s;
    text_line(t, "static const struct sol_buffer buffers[] = {");
    for (int i = 0; i < s->buffers.n; i++) {
        const struct sol_buffer *b = &s->buffers.at[i];
        text_put(t, "    {%s, %d, %s, %s, ", kind_names[b->kind], b->index, quantity(p, b->offset),
                 quantity(p, b->bytes));
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

static void put_places(struct printer *p, const struct schedule_program *pr, const char *name)
{
    struct text *t = &p->t;
    text_line(t, "static const struct sol_operand %s_places[] = {", name);
    for (int i = 0; i < pr->steps.n; i++) {
        const struct schedule_step *st = &pr->steps.at[i];
        text_put(t, "   ");
        for (int k = 0; k < st->noperand; k++)
            text_put(t, " {%d, %s},", st->place[k].buffer, quantity(p, st->place[k].offset));
        text_put(t, "\n");
    }
    text_line(t, "    {0, 0}\n};");
}

static void put_steps(struct printer *p, const struct schedule_program *pr, const char *name, const int *depends)
{
    struct text *t = &p->t;
    const bool launched = target_launches(p->s->plan->target);
    text_line(t, "static const struct sol_step %s_steps[] = {", name);
    int place = 0;
    for (int i = 0; i < pr->steps.n; i++) {
        const struct schedule_step *st = &pr->steps.at[i];
        if (st->kernel >= 0 && !launched)
            text_put(t, "    {@KERNEL%d_%d", st->kernel, st->sub);
        else
            text_put(t, "    {0");
        text_put(t, ", %s, %d, %d, ", quantity(p, st->tasks), place, st->noperand);
        text_string(t, st->label);
        text_put(t, ", %d, %d, %s, %d, %.4g, %.4g},\n", depends ? depends[i] : 0,
                 depends ? depends[i + 1] - depends[i] : 0,
                 st->set >= 0     ? "SOL_STEP_SET"
                 : st->kernel < 0 ? "SOL_STEP_HOST"
                 : launched       ? "SOL_STEP_LAUNCH"
                 : st->team       ? "SOL_STEP_TEAM"
                                  : "SOL_STEP_KERNEL",
                 launched && st->kernel >= 0 ? st->kernel * SCHEDULE_LAUNCH_STEPS + st->sub : st->call,
                 work_hint(st->flops), work_hint(st->bytes));
        place += st->noperand;
    }
    text_line(t, "    {0}\n};");
}

static void put_blocks(struct printer *p, const struct schedule_program *pr, const char *name)
{
    if (!pr->nblock) return;
    text_line(&p->t, "static const struct sol_block %s_blocks[] = {", name);
    for (int i = 0; i < pr->blocks.n; i++) {
        const struct sol_block *b = &pr->blocks.at[i];
        text_line(&p->t, "    {%s, %s, %d, %d},", quantity(p, b->bytes), quantity(p, b->offset), b->first, b->last);
    }
    text_line(&p->t, "};");
}

static void put_program_row(struct printer *p, const struct schedule_program *pr, const char *name)
{
    int places = 0;
    struct text *t = &p->t;
    for (int i = 0; i < pr->steps.n; i++) places += pr->steps.at[i].noperand;
    /* behind the place of the last block is the end of all */
    const int64_t bytes = pr->nblock ? pr->blocks.at[pr->nblock - 1].offset + 1 : pr->workspace_bytes;
    text_put(t, "    .%s = {%d, %d, %s_steps, %s_places, %s, %s", name, pr->steps.n, places, name, name,
             quantity(p, bytes), quantity(p, pr->scratch_bytes));
    text_put(t, ", %d, ", pr->nblock);
    if (pr->nblock)
        text_put(t, "%s_blocks", name);
    else
        text_put(t, "0");
    text_line(t, "},");
}

/* -- dimensions that vary */

/* The dimension of a size that a step sets last: then the size is known; -1: none. */
static int last_set(const struct schedule *s, int64_t size)
{
    const uint32_t dims = size_dims(size);
    int last = -1;
    for (int k = 0; k < s->program[PROGRAM_FORWARD].steps.n; k++) {
        const int set = s->program[PROGRAM_FORWARD].steps.at[k].set;
        if (set >= 0 && dims >> set & 1) last = set;
    }
    return last;
}

/* Messages of deployed libraries have the dimensions' names. */
static void put_checks(struct printer *p, bool names)
{
    const struct sol_graph *g = p->s->plan->g;
    text_line(&p->t, "static const struct sol_module_check checks[] = {");
    for (int i = 0; i < g->checks.n; i++) {
        const struct graph_check *c = &g->checks.at[i];
        text_put(&p->t, "    {%s, %d, ", quantity(p, c->size), last_set(p->s, c->size));
        text_literal(&p->t,
                     arena_printf(p->s->arena, "%s: it needs a size %s", c->what,
                                  names ? graph_size_text(p->s->arena, g, c->size) : size_text(p->s->arena, c->size)));
        text_line(&p->t, "},");
    }
    text_line(&p->t, "    {0, 0, 0}\n};");
}

static void put_dims(struct printer *p)
{
    struct text *t = &p->t;
    const struct sol_graph *g = p->s->plan->g;
    text_line(t, "static const struct sol_module_dim dims[] = {");
    for (int i = 0; i < g->dims.n; i++) {
        const struct size_dim *d = &g->dims.at[i].dim;
        text_put(t, "    {");
        text_literal(t, g->dims.at[i].name);
        text_line(t, ", %lld, %lld, %lld, %lld, %s},", (long long)d->hint, (long long)d->min, (long long)d->max,
                  (long long)d->multiple, quantity(p, g->dims.at[i].most));
    }
    text_line(t, "};");
}

static struct printer print_module(const struct schedule *s, const char *name, const char *symbol)
{
    const struct sol_graph *g = s->plan->g;
    struct printer p = {
        .t = text_new(s->arena), .s = s, .q = quantities_new(s->arena, g->dims.n, g->dims.n + s->nplaced)};
    struct text *t = &p.t;
    int *depends = NEW_ARRAY(s->arena, int, s->program[PROGRAM_PREPARE].steps.n + 1);
    text_line(t, "/* The tables of network %s. */", text_identifier(s->arena, name));
    put_buffers(&p, !symbol);
    put_depends(t, s, depends);
    for (int i = 0; i < PROGRAMS; i++) {
        put_places(&p, &s->program[i], program_name(i));
        put_steps(&p, &s->program[i], program_name(i), i == PROGRAM_PREPARE ? depends : NULL);
        put_blocks(&p, &s->program[i], program_name(i));
    }
    const char *saved = quantity(&p, s->saved_bytes);
    for (int i = 0; i < PROGRAMS; i++) quantity(&p, s->program[i].scratch_bytes);
    if (g->dims.n) {
        put_dims(&p);
        put_checks(&p, symbol != NULL);
        quantities_put(&p.q, t, "sizes");
    }
    text_line(t, "const struct sol_module %s = {", symbol ? symbol : "sol_module");
    text_line(t, "    .size = sizeof(struct sol_module), .version = SOL_MODULE_VERSION,");
    text_line(t, "    .ninput = %d, .noutput = %d, .nparam = %d, .nbuffer = %d,", g->inputs.n, g->outputs.n,
              g->params.n, s->buffers.n);
    text_line(t, "    .buffer = buffers, .depends = depends, .prepared_bytes = %lld, .saved_bytes = %s,",
              (long long)s->prepared_bytes, saved);
    for (int i = 0; i < PROGRAMS; i++) put_program_row(&p, &s->program[i], program_name(i));
    if (g->dims.n)
        text_line(
            t, "    .nsize = %d, .ndim = %d, .ncheck = %d, .nsaved = %d, .dim = dims, .check = checks, .sizes = sizes,",
            p.q.first + p.q.forms.n, g->dims.n, g->checks.n, s->saved.n);
    text_line(t, "};");
    return p;
}

const char *schedule_module_text(const struct schedule *s, const char *name, const char *symbol)
{
    return print_module(s, name, symbol).t.at;
}

int schedule_sizes(const struct schedule *s)
{
    const struct quantities q = print_module(s, "", NULL).q;
    return s->plan->g->dims.n ? q.first + q.forms.n : 0;
}
