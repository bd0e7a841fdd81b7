/* Writes the sizes of inputs, outputs and contexts as macros of the header, so that an application can declare arrays.
 * The size of a context is what front.c computes at run time, maximized over all instruction sets. The macro accounts
 * for the pointer size of the target. */
#include <ctype.h>
#include <string.h>

#include "deploy/deploy.h"

const char *deploy_upper(struct deploy *d, const char *name)
{
    char *text = arena_strdup(d->arena, name);
    for (char *c = text; *c; c++) *c = (char)toupper((unsigned char)*c);
    return text;
}

const char *deploy_macro_name(struct deploy *d)
{
    return deploy_upper(d, d->keys.func_name);
}

static void put_tensor(struct deploy *d, struct text *t, const char *name, const char *what, int i,
                       const struct sol_tensor *x)
{
    if (deploy_varies(d)) {
        deploy_put_sized_tensor(d, t, arena_printf(d->arena, "%s_%s%d", name, what, i), x);
        return;
    }
    const int64_t n = tensor_elements(x);
    text_put(t, "#define %s_%s%d_DIMS %d\n", name, what, i, x->ndim);
    text_put(t, "#define %s_%s%d_SHAPE {", name, what, i);
    for (int k = 0; k < x->ndim; k++) text_put(t, "%s%lld", k ? ", " : "", (long long)x->dim[k].size);
    text_put(t, "}\n#define %s_%s%d_ELEMENTS %lld\n", name, what, i, (long long)n);
    text_put(t, "#define %s_%s%d_BYTES %lld\n", name, what, i,
             (long long)(n * dtype_def((enum sol_dtype)x->dtype)->bytes));
}

static void put_graph(struct deploy *d, struct text *t, const char *name, const struct deploy_graph *g)
{
    for (int i = 0; i < deploy_inputs(d); i++) put_tensor(d, t, name, "IN", i, g->g->inputs.at[i]);
    for (int i = 0; i < d->noutput; i++) put_tensor(d, t, name, "OUT", i, deploy_output(d, g, i));
}

/* -- contexts: as sizes_of_all in front.c */

struct most {
    int64_t pointers, tables, workspace, scratch, prepared;
};

static int64_t lines(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static int64_t places(const struct schedule_program *p)
{
    int64_t n = 0;
    for (int i = 0; i < p->steps.n; i++) n += p->steps.at[i].noperand;
    return n;
}

static void add_code(const struct schedule *s, int64_t opaque, struct most *most)
{
    const struct schedule_program *forward = &s->program[PROGRAM_FORWARD], *prepare = &s->program[PROGRAM_PREPARE];
    const bool prepares = prepare->steps.n > 0;
    const int64_t workspace = MAX(forward->workspace_bytes, prepares ? prepare->workspace_bytes : 0);
    const int64_t scratch = MAX(forward->scratch_bytes, prepares ? prepare->scratch_bytes : 0);
    const int64_t pointers = s->buffers.n + MAX(places(forward), prepares ? places(prepare) : 0);
    most->pointers = MAX(most->pointers, pointers);
    most->workspace = MAX(most->workspace, lines(workspace) + lines(s->saved_bytes) + lines(opaque));
    most->scratch = MAX(most->scratch, lines(scratch));
    most->prepared = MAX(most->prepared, lines(s->prepared_bytes));
}

/* A context with tables of sizes, as front_sizes.c lays them, and memory that is enough for all sizes. False: there is
 * none. */
static bool add_sized(struct deploy *d, const struct deploy_graph *g, const struct deploy_code *code, struct most *most)
{
    const struct schedule *s = code->schedule;
    const struct schedule_program *forward = &s->program[PROGRAM_FORWARD], *prepare = &s->program[PROGRAM_PREPARE];
    const bool prepares = prepare->steps.n > 0;
    const int64_t ntensor = deploy_inputs(d) + d->noutput;
    struct deploy_most m;
    if (!deploy_most(d, s, &m)) return false;
    const int64_t workspace = MAX(m.workspace, prepares ? prepare->workspace_bytes : 0);
    const int64_t scratch = MAX(m.scratch, prepares ? prepare->scratch_bytes : 0);
    int64_t tables = (code->nsize + g->own.first + g->own.forms.n + g->nshape) * (int64_t)sizeof(int64_t);
    int64_t pointers = s->buffers.n + MAX(places(forward), prepares ? places(prepare) : 0) +
                       ntensor * (int64_t)(sizeof(struct sol_ext_tensor) / sizeof(void *));
    if (!d->bare) {
        const int placing = rt_offsets_pointers(m.nblock, 0);
        tables += m.nblock * (int64_t)sizeof(struct rt_block) + (int64_t)rt_offsets_bytes(m.nblock, 0) -
                  placing * (int64_t)sizeof(void *);
        pointers += placing;
    }
    most->pointers = MAX(most->pointers, pointers);
    most->tables = MAX(most->tables, tables);
    most->workspace = MAX(most->workspace, lines(workspace) + lines(m.opaque));
    most->scratch = MAX(most->scratch, lines(scratch));
    most->prepared = MAX(most->prepared, lines(s->prepared_bytes));
    return true;
}

static void put_context(struct deploy *d, struct text *t, const char *name)
{
    struct most most = {0};
    for (int i = 0; i < d->npredict; i++)
        for (int k = 0; k < d->nversion; k++) {
            const struct schedule *s = d->graph[i].code[k].schedule;
            if (!deploy_varies(d))
                add_code(s, (int64_t)deploy_opaque_bytes(d, s), &most);
            else if (!add_sized(d, &d->graph[i], &d->graph[i].code[k], &most))
                return;
        }
    if (d->there.type) most.workspace = most.prepared = most.scratch = 0; /* on the device */
    text_put(t, "#define %s_CONTEXT_BYTES(threads) \\\n    (%lld + (", name,
             (long long)(64 + FRONT_CONTEXT_BYTES + most.workspace + most.prepared));
    if (most.tables) text_put(t, "%lld + ", (long long)most.tables);
    text_put(t, "%lld * sizeof(void *) + 63) / 64 * 64", (long long)most.pointers);
    text_put(t, most.scratch ? " + (size_t)(threads) * %lld)\n" : " + 0 * (size_t)(threads) * %lld)\n",
             (long long)most.scratch);
}

const char *deploy_sizes(struct deploy *d)
{
    struct text t = text_new(d->arena);
    const char *name = deploy_macro_name(d);
    text_put(&t, "#define %s_INPUTS %d\n#define %s_OUTPUTS %d\n", name, deploy_inputs(d), name, d->noutput);
    put_graph(d, &t, name, &d->graph[0]);
    for (int i = 0; i < d->npredict && d->npredict > 1; i++)
        put_graph(d, &t, arena_printf(d->arena, "%s_BATCH%lld", name, (long long)d->graph[i].batch), &d->graph[i]);
    put_context(d, &t, name);
    return t.at;
}
