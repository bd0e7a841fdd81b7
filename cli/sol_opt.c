/* sol-opt: a tool for developers of SOL. It reads a graph as text, runs passes, and prints the graph, counts its
 * operations, plans it, or evaluates it with the interpreter. Tests of passes compare graphs, tests of layers compare
 * numbers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "hlir/graph.h"
#include "layers/layers.h"
#include "passes/passes.h"
#include "plan/plan.h"

const char cli_name[] = "sol-opt";
static const char usage[] =
    "usage: sol-opt [options] GRAPH\n"
    "Reads a graph as text (docs/text-form.md) from the file GRAPH, or from standard input if GRAPH is -.\n"
    "  --pass NAME          runs a pass; may be repeated\n"
    "  --all                runs all passes in their order\n"
    "  --passes             lists the passes\n"
    "  --layers             lists the layers with attributes and descriptions\n"
    "  --print              prints the graph (the default)\n"
    "  --loops              prints the loops of each layer\n"
    "  --work               prints the number of operations and bytes\n"
    "  --known              prints which outputs are known at compile time\n"
    "  --plan[=PHASE]       prints the plan of the graph (usually with --all) after the last phase, or after PHASE\n"
    "  --phases             lists the phases of the planner\n"
    "  --dims N,N,...       sizes for the dimensions that vary, in order; the graph becomes one without such "
    "dimensions\n"
    "  --target NAME        the target of --plan, such as x86-64-v4 or neon (default: x86-64-v3), of a usual machine\n"
    "  --interpret FILE...  evaluates the graph on .npy files: inputs, then parameters, in the graph's order\n"
    "  --out PREFIX         prefix of the outputs of --interpret: PREFIX0.npy, PREFIX1.npy, ... (default: out)\n";

/* -- options */

struct options {
    const char *graph, *prefix, *target, *plan; /* plan: the phase; NULL: no plan */
    const char *dims;                           /* "8,64": sizes of dimensions that vary; NULL: they do */
    bool all, print, loops, work, known, interpret;
    int npass, nfile;
    const char **pass, **file;
};

/* Does the array have the type and shape of this tensor? */
static bool fits(const struct array *a, const struct sol_tensor *t, const char *path)
{
    int64_t shape[SOL_MAX_DIMS];
    for (int d = 0; d < t->ndim; d++) shape[d] = t->dim[d].size;
    if (array_fits(a, (enum sol_dtype)t->dtype, t->ndim, shape)) return true;
    fprintf(stderr, "sol-opt: %s: expected ", path);
    shape_print(stderr, (enum sol_dtype)t->dtype, t->ndim, shape);
    fprintf(stderr, ", got ");
    shape_print(stderr, a->dtype, a->ndim, a->shape);
    fprintf(stderr, "\n");
    return false;
}

static bool evaluate(struct sol_graph *g, const struct options *o, struct array *in, struct array *out)
{
    const void **data = NEW_ARRAY(g->arena, const void *, g->inputs.n + g->params.n);
    void **results = NEW_ARRAY(g->arena, void *, g->outputs.n);
    for (int i = 0; i < o->nfile; i++) {
        const struct sol_tensor *t = i < g->inputs.n ? g->inputs.at[i] : g->params.at[i - g->inputs.n];
        if (!npy_read(o->file[i], &in[i]) || !fits(&in[i], t, o->file[i])) return false;
        data[i] = in[i].data;
    }
    for (int i = 0; i < g->outputs.n; i++) {
        const struct sol_tensor *t = g->outputs.at[i].t;
        int64_t shape[SOL_MAX_DIMS];
        for (int d = 0; d < t->ndim; d++) shape[d] = t->dim[d].size;
        if (!array_make(&out[i], g->outputs.at[i].name, (enum sol_dtype)t->dtype, t->ndim, shape)) return false;
        results[i] = out[i].data;
    }
    if (graph_interpret(g, data, data + g->inputs.n, results)) {
        cli_error(EXIT_FAILED, "%s", sol_error(g->ctx));
        return false;
    }
    for (int i = 0; i < g->outputs.n; i++)
        if (!npy_write(arena_printf(g->arena, "%s%d.npy", o->prefix, i), &out[i])) return false;
    return true;
}

static bool interpret(struct sol_graph *g, const struct options *o)
{
    int n = g->inputs.n + g->params.n;
    if (o->nfile != n) {
        cli_error(EXIT_USAGE, "--interpret: expected %d files (%d inputs, %d parameters), got %d", n, g->inputs.n,
                  g->params.n, o->nfile);
        return false;
    }
    struct array *in = NEW_ARRAY(g->arena, struct array, n), *out = NEW_ARRAY(g->arena, struct array, g->outputs.n);
    bool good = evaluate(g, o, in, out);
    for (int i = 0; i < n; i++) array_free(&in[i]);
    for (int i = 0; i < g->outputs.n; i++) array_free(&out[i]);
    return good;
}

static void print_loops(struct sol_graph *g)
{
    for (const struct sol_layer *l = g->first; l; l = l->next) {
        struct text out = text_new(g->arena);
        loops_print(l->loops, &out);
        printf("%s \"%s\"\n%s", l->def->name, l->name, out.at);
    }
}

static sol_status phase_named(struct sol_ctx *ctx, const char *name, enum plan_phase *out_phase)
{
    const char *known;
    for (int i = 0; (known = plan_phase_name(i, NULL)); i++) {
        *out_phase = (enum plan_phase)i;
        if (!strcmp(known, name)) return SOL_OK;
    }
    return ctx_fail(ctx, SOL_ERR_INVALID, "no phase is called '%s'; sol-opt --phases lists them", name);
}

static sol_status print_plan(struct sol_ctx *ctx, struct sol_graph *g, const struct options *o)
{
    struct target target;
    struct plan *p;
    enum plan_phase last = PHASE_NONE;
    TRY(phase_named(ctx, o->plan, &last));
    TRY(target_named(ctx, o->target, &target));
    target_usual(&target);
    TRY(plan_start(g, g->arena, &target, NULL, &p));
    TRY(plan_run(p, last));
    struct text out = text_new(g->arena);
    plan_show(p, &out);
    TRY(ctx_check(ctx));
    fputs(out.at, stdout);
    return SOL_OK;
}

static sol_status read_graph(struct sol_ctx *ctx, struct arena *a, const char *path, struct sol_graph **out_g)
{
    char *text;
    size_t n;
    if (strcmp(path, "-") != 0) {
        TRY(file_read(ctx, a, path, &text, &n));
        return sol_graph_parse(ctx, text, out_g);
    }
    struct text all = text_new(a);
    char part[4096];
    while ((n = fread(part, 1, sizeof part, stdin)) > 0) text_add(&all, part, n);
    return sol_graph_parse(ctx, all.at, out_g);
}

/* The graph for the sizes of --dims. */
static sol_status with_dims(struct sol_graph *g, const char *dims, struct sol_graph **out_g)
{
    int64_t dim[SIZE_MOST_DIMS] = {0};
    int n = 0;
    char *end = NULL;
    for (const char *s = dims; *s && n < SIZE_MOST_DIMS; s = *end == ',' ? end + 1 : end) {
        dim[n++] = strtoll(s, &end, 10);
        if (end == s || (*end && *end != ',')) n = -1;
        if (n < 0) break;
    }
    if (n != g->dims.n)
        return ctx_fail(g->ctx, SOL_ERR_INVALID, "--dims: expected %d sizes with commas, got '%s'", g->dims.n, dims);
    return graph_at(g, dim, out_g);
}

static sol_status work_on(struct sol_ctx *ctx, struct sol_graph *g, const struct options *o)
{
    TRY(graph_verify(g));
    if (o->all) TRY(passes_run(g));
    for (int i = 0; i < o->npass; i++) TRY(passes_run_one(g, o->pass[i]));
    TRY(graph_verify(g));
    if (o->print || !(o->loops || o->work || o->interpret || o->known || o->plan)) {
        struct text out = text_new(g->arena);
        graph_print(g, &out);
        fputs(out.at, stdout);
    }
    if (o->loops) print_loops(g);
    if (o->work) {
        double flops, bytes;
        graph_work(g, &flops, &bytes);
        printf("flops %.0f bytes %.0f\n", flops, bytes);
    }
    for (int i = 0; o->known && i < g->outputs.n; i++)
        printf("%s %s\n", g->outputs.at[i].name, sol_tensor_known(g->outputs.at[i].t) ? "known" : "not known");
    return o->plan ? print_plan(ctx, g, o) : ctx_check(ctx);
}

static void list_layers(void)
{
    const struct layer_def *d;
    for (int i = 0; (d = layer_def_at(i)); i++)
        printf("%-18s %s%s%s\n", d->name, d->doc, *d->defaults ? " | " : "", d->defaults);
}

static void list_passes(void)
{
    const char *name, *doc;
    for (int i = 0; (name = passes_name(i, &doc)); i++) printf("%-18s %s\n", name, doc);
}

static void list_phases(void)
{
    const char *name, *doc;
    for (int i = 0; (name = plan_phase_name(i, &doc)); i++) printf("%-18s %s\n", name, doc);
}

/* False: an error, or nothing left to do. */
static bool read_options(int argc, char **argv, struct options *o)
{
    for (int i = 1; i < argc; i++) {
        const char *s = argv[i];
        bool files = false;
        if (!strcmp(s, "--all"))
            o->all = true;
        else if (!strcmp(s, "--print"))
            o->print = true;
        else if (!strcmp(s, "--loops"))
            o->loops = true;
        else if (!strcmp(s, "--work"))
            o->work = true;
        else if (!strcmp(s, "--known"))
            o->known = true;
        else if (!strcmp(s, "--plan"))
            o->plan = plan_phase_name(PLAN_PHASES - 1, NULL);
        else if (!strncmp(s, "--plan=", 7))
            o->plan = s + 7;
        else if (!strcmp(s, "--dims") && i + 1 < argc)
            o->dims = argv[++i];
        else if (!strcmp(s, "--target") && i + 1 < argc)
            o->target = argv[++i];
        else if (!strcmp(s, "--pass") && i + 1 < argc)
            o->pass[o->npass++] = argv[++i];
        else if (!strcmp(s, "--out") && i + 1 < argc)
            o->prefix = argv[++i];
        else if (!strcmp(s, "--interpret"))
            files = o->interpret = true;
        else if (*s == '-' && s[1])
            return false;
        else if (!o->graph)
            o->graph = s;
        else
            return false;
        while (files && i + 1 < argc && strncmp(argv[i + 1], "--", 2) != 0) o->file[o->nfile++] = argv[++i];
    }
    return o->graph != NULL;
}

static int run(struct sol_ctx *ctx, const struct options *o)
{
    struct arena *a = arena_create(ctx);
    struct sol_graph *read = NULL, *g = NULL;
    sol_status status = a ? read_graph(ctx, a, o->graph, &read) : SOL_ERR_NOMEM;
    if (!status && o->dims)
        status = with_dims(read, o->dims, &g);
    else
        g = read;
    if (!status) status = work_on(ctx, g, o);
    if (status) cli_error(EXIT_FAILED, "%s", sol_error(ctx));
    bool good = !status && (!o->interpret || interpret(g, o));
    if (g != read) sol_graph_destroy(g);
    sol_graph_destroy(read);
    arena_destroy(a);
    return !good;
}

int main(int argc, char **argv)
{
    struct sol_ctx *ctx;
    struct options o = {.prefix = "out", .target = "x86-64-v3"};
    if (argc == 2 && !strcmp(argv[1], "--layers")) return list_layers(), 0;
    if (argc == 2 && !strcmp(argv[1], "--passes")) return list_passes(), 0;
    if (argc == 2 && !strcmp(argv[1], "--phases")) return list_phases(), 0;
    if (argc == 2 && !strcmp(argv[1], "--help")) return fputs(usage, stdout), 0;
    o.pass = calloc((size_t)argc, sizeof *o.pass);
    o.file = calloc((size_t)argc, sizeof *o.file);
    bool good = o.pass && o.file && read_options(argc, argv, &o);
    if (!good) fputs(usage, stderr);
    int code = 2;
    if (good && !sol_ctx_create(NULL, &ctx)) {
        code = run(ctx, &o);
        sol_ctx_destroy(ctx);
    }
    free(o.pass);
    free(o.file);
    return code;
}
