/* sol-opt: a tool for the inside. Reads a graph as text, runs chosen passes on it, and prints it, counts its work, or
 * evaluates it by the interpreter. A test of a pass is a graph in and a graph out; a test of a layer is numbers in and
 * numbers out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hlir/graph.h"
#include "layers/layers.h"
#include "passes/passes.h"

static const char usage[] =
    "usage: sol-opt [options] GRAPH\n"
    "Reads the text of a graph (docs/text-form.md) from the file GRAPH, or from the standard input if it is -.\n"
    "  --pass NAME          runs a pass; may be given several times\n"
    "  --all                runs all passes in their order\n"
    "  --passes             lists the passes\n"
    "  --layers             lists the layers, their attributes and what they do\n"
    "  --print              prints the graph (what happens if nothing else is asked for)\n"
    "  --loops              prints what each layer computes\n"
    "  --work               prints flops and bytes\n"
    "  --known              prints which outputs are known before running\n"
    "  --interpret FILE...  evaluates the graph on .npy files: the inputs, then the parameters, in the graph's order\n"
    "  --out PREFIX         where --interpret writes outputs: PREFIX0.npy, PREFIX1.npy, ... (default: out)\n";

/* -- .npy files: a header that is a Python dictionary, then row-major data */

static const char *const descr[] = {
    [SOL_BOOL] = "|b1", [SOL_U8] = "|u1",  [SOL_I8] = "|i1",  [SOL_U16] = "<u2", [SOL_I16] = "<i2",
    [SOL_U32] = "<u4",  [SOL_I32] = "<i4", [SOL_U64] = "<u8", [SOL_I64] = "<i8", [SOL_F16] = "<f2",
    [SOL_BF16] = "|V2", [SOL_F32] = "<f4", [SOL_F64] = "<f8",
};

static size_t bytes_of(const struct sol_tensor *t)
{
    return (size_t)tensor_elements(t) * dtype_def((enum sol_dtype)t->dtype)->bytes;
}

static void npy_header(struct text *out, const struct sol_tensor *t)
{
    text_put(out, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr[t->dtype]);
    for (int d = 0; d < t->ndim; d++) text_put(out, "%lld,%s", (long long)t->dim[d].size, d + 1 < t->ndim ? " " : "");
    text_put(out, "), }");
}

static sol_status npy_write(struct sol_ctx *ctx, struct arena *a, const char *path, const struct sol_tensor *t,
                            const void *data)
{
    struct text h = text_new(a), file = text_new(a);
    npy_header(&h, t);
    while ((10 + h.n + 1) % 64) text_put(&h, " ");
    text_put(&h, "\n");
    const unsigned char size[] = {(unsigned char)(h.n & 255), (unsigned char)(h.n >> 8)};
    text_add(&file, "\x93NUMPY\x01\x00", 8);
    text_add(&file, (const char *)size, 2);
    text_add(&file, h.at, h.n);
    text_add(&file, data, bytes_of(t));
    return file_write(ctx, path, file.at, file.n);
}

/* The data of a file that must hold a tensor like t. */
static sol_status npy_read(struct sol_ctx *ctx, struct arena *a, const char *path, const struct sol_tensor *t,
                           const void **out)
{
    char *file;
    size_t n, header, start;
    TRY(file_read(ctx, a, path, &file, &n));
    if (n < 12 || memcmp(file, "\x93NUMPY", 6) != 0) return ctx_fail(ctx, SOL_ERR_IO, "%s: not an .npy file", path);
    bool wide = file[6] > 1;
    header = (unsigned char)file[8] | (size_t)(unsigned char)file[9] << 8;
    if (wide) header |= (size_t)(unsigned char)file[10] << 16 | (size_t)(unsigned char)file[11] << 24;
    start = (wide ? 12 : 10) + header;
    struct text want = text_new(a), got = text_new(a);
    npy_header(&want, t);
    for (size_t i = wide ? 12 : 10; i < start && i < n; i++)
        if (file[i] != ' ' && file[i] != '\n') text_add(&got, &file[i], 1);
    struct text plain = text_new(a);
    for (size_t i = 0; i < want.n; i++)
        if (want.at[i] != ' ') text_add(&plain, &want.at[i], 1);
    bool same = !strcmp(plain.at, got.at); /* NumPy writes no comma behind the last of several sizes */
    if (!same && t->ndim > 1) {
        char *comma = strstr(plain.at, ",),");
        if (comma) memmove(comma, comma + 1, strlen(comma));
        same = !strcmp(plain.at, got.at);
    }
    if (!same || n < start || n - start != bytes_of(t))
        return ctx_fail(ctx, SOL_ERR_INVALID, "%s: expected %s with %zu bytes, got %s", path, want.at, bytes_of(t),
                        got.at);
    *out = file + start;
    return SOL_OK;
}

/* -- what can be asked for */

struct options {
    const char *graph, *prefix;
    bool all, print, loops, work, known, interpret;
    int npass, nfile;
    const char **pass, **file;
};

static sol_status interpret(struct sol_ctx *ctx, struct sol_graph *g, const struct options *o)
{
    struct arena *a = g->arena;
    int n = g->inputs.n + g->params.n;
    if (o->nfile != n)
        return ctx_fail(ctx, SOL_ERR_INVALID, "--interpret: expected %d files (%d inputs, %d parameters), got %d", n,
                        g->inputs.n, g->params.n, o->nfile);
    const void **data = NEW_ARRAY(a, const void *, n);
    void **out = NEW_ARRAY(a, void *, g->outputs.n);
    for (int i = 0; i < n; i++)
        TRY(npy_read(ctx, a, o->file[i], i < g->inputs.n ? g->inputs.at[i] : g->params.at[i - g->inputs.n], &data[i]));
    for (int i = 0; i < g->outputs.n; i++) out[i] = arena_alloc(a, bytes_of(g->outputs.at[i].t));
    TRY(ctx_check(ctx));
    TRY(graph_interpret(g, data, data + g->inputs.n, out));
    for (int i = 0; i < g->outputs.n; i++)
        TRY(npy_write(ctx, a, arena_printf(a, "%s%d.npy", o->prefix, i), g->outputs.at[i].t, out[i]));
    return SOL_OK;
}

static void print_loops(struct sol_graph *g)
{
    for (const struct sol_layer *l = g->first; l; l = l->next) {
        struct text out = text_new(g->arena);
        loops_print(l->loops, &out);
        printf("%s \"%s\"\n%s", l->def->name, l->name, out.at);
    }
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

static sol_status work_on(struct sol_ctx *ctx, struct sol_graph *g, const struct options *o)
{
    TRY(graph_verify(g));
    if (o->all) TRY(passes_run(g));
    for (int i = 0; i < o->npass; i++) TRY(passes_run_one(g, o->pass[i]));
    TRY(graph_verify(g));
    if (o->print || !(o->loops || o->work || o->interpret || o->known)) {
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
    return o->interpret ? interpret(ctx, g, o) : SOL_OK;
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

/* False: a mistake, or nothing left to do. */
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
    struct sol_graph *g = NULL;
    sol_status status = a ? read_graph(ctx, a, o->graph, &g) : SOL_ERR_NOMEM;
    if (!status) status = work_on(ctx, g, o);
    if (status) fprintf(stderr, "sol-opt: %s\n", sol_error(ctx));
    sol_graph_destroy(g);
    arena_destroy(a);
    return status ? 1 : 0;
}

int main(int argc, char **argv)
{
    struct sol_ctx *ctx;
    struct options o = {.prefix = "out"};
    if (argc == 2 && !strcmp(argv[1], "--layers")) return list_layers(), 0;
    if (argc == 2 && !strcmp(argv[1], "--passes")) return list_passes(), 0;
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
