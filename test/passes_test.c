/* The passes as text. test/passes/NAME.sol has cases: a graph, the passes to run, the graph that must result, and how
 * much work that saves. Each graph is also evaluated before and after, on random numbers.
 *
 *   == what the case shows
 *   pass weights              names of passes.def, or `all`
 *   values special            (optional) NaN, infinities and -0.0 among the numbers
 *   sizes 1,5 3,9             of a graph with dimensions that vary: it is evaluated for each of these
 *   graph "t"                 docs/text-form.md
 *   ...
 *   -->                       `--> same`: nothing may change
 *   graph "t"
 *   ...
 *   work flops 800 -> 400, bytes 96 -> 64
 *
 * SOL_UPDATE=1 writes the actual results to the files, for you to judge. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "context.h"
#include "passes/passes.h"

#define FOLDER SOURCE_ROOT "/test/passes"

struct example {
    const char *file, *title, *before; /* before: all lines up to the arrow */
    const char *passes[8], *graph, *want, *sizes[8];
    int npass, nsize;
    bool special, same;
};

/* -- numbers */

static double number(uint64_t *seed, bool special)
{
    static const double odd[] = {NAN, INFINITY, -INFINITY, -0.0, 0.0};
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    unsigned r = (unsigned)(*seed >> 33);
    if (special && r % 6 == 0) return odd[r / 6 % COUNT_OF(odd)];
    return (double)(r % 4096) / 1024 - 2;
}

static int64_t elements_at(const struct sol_tensor *t, const int64_t *dim)
{
    return dim ? size_at(tensor_elements(t), dim) : tensor_elements(t);
}

static void *random_data(struct arena *a, const struct sol_tensor *t, int64_t n, uint64_t *seed, bool special)
{
    char *data = arena_alloc(a, (size_t)n * dtype_def(t->dtype)->bytes + 1);
    for (int64_t i = 0; i < n; i++) {
        double v = number(seed, special && dtype_def(t->dtype)->is_float);
        if (strstr(t->name, "positive")) v = fabs(v) + 0.5;
        switch (t->dtype) {
        case SOL_F32: ((float *)data)[i] = (float)v; break;
        case SOL_F64: ((double *)data)[i] = v; break;
        case SOL_I64: ((int64_t *)data)[i] = (int64_t)(v * 4); break;
        case SOL_I32: ((int32_t *)data)[i] = (int32_t)(v * 4); break;
        case SOL_BOOL: data[i] = v > 0; break;
        default: fail_msg("input of type %s", dtype_def(t->dtype)->name);
        }
    }
    return data;
}

static double element(const struct sol_tensor *t, const void *data, int64_t i)
{
    switch (t->dtype) {
    case SOL_F32: return ((const float *)data)[i];
    case SOL_F64: return ((const double *)data)[i];
    case SOL_I64: return (double)((const int64_t *)data)[i];
    case SOL_I32: return ((const int32_t *)data)[i];
    default: return ((const uint8_t *)data)[i];
    }
}

static void **evaluate(struct arena *a, struct sol_graph *g, const int64_t *dim, bool special)
{
    uint64_t seed = 7;
    const void **in = NEW_ARRAY(a, const void *, g->inputs.n + 1),
               **params = NEW_ARRAY(a, const void *, g->params.n + 1);
    void **out = NEW_ARRAY(a, void *, g->outputs.n + 1);
    for (int i = 0; i < g->inputs.n; i++) {
        const struct sol_tensor *t = g->inputs.at[i];
        in[i] = random_data(a, t, elements_at(t, dim), &seed, special);
    }
    for (int i = 0; i < g->params.n; i++) {
        const struct sol_tensor *t = g->params.at[i];
        params[i] = random_data(a, t, elements_at(t, dim), &seed, false);
    }
    for (int i = 0; i < g->outputs.n; i++) {
        const struct sol_tensor *t = g->outputs.at[i].t;
        out[i] = arena_alloc(a, (size_t)elements_at(t, dim) * dtype_def(t->dtype)->bytes + 1);
    }
    return graph_interpret_at(g, dim, &(struct graph_data){.inputs = in, .params = params, .outputs = out}) ? NULL
                                                                                                            : out;
}

static bool close_to(const struct sol_tensor *t, int64_t n, const void *got, const void *want)
{
    double most = 0;
    bool exact = !dtype_def(t->dtype)->is_float;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(element(t, want, i))) most = fmax(most, fabs(element(t, want, i)));
    for (int64_t i = 0; i < n; i++) {
        double x = element(t, got, i), y = element(t, want, i);
        if (x == y || (isnan(x) && isnan(y)) || (!exact && fabs(x - y) <= 1e-5 * most)) continue;
        fprintf(stderr, "element %lld is %.9g, before %.9g\n", (long long)i, x, y);
        return false;
    }
    return true;
}

/* -- one case */

/* Tensors in the order of their definition, numbered from 0. */
static char *normal_text(struct arena *a, const struct sol_graph *g)
{
    char *text, *again;
    struct sol_graph *copy;
    if (sol_graph_print(g, &text)) return NULL;
    sol_status s = sol_graph_parse(ctx, text, &copy);
    sol_free(ctx, text);
    if (s || sol_graph_print(copy, &again)) return NULL;
    char *result = arena_strdup(a, again);
    sol_free(ctx, again);
    sol_graph_destroy(copy);
    return result;
}

static bool complain(const struct example *x, const char *what)
{
    fprintf(stderr, "%s: %s: %s\n", x->file, x->title, what);
    return false;
}

static sol_status run_passes(struct sol_graph *g, const struct example *x)
{
    for (int i = 0; i < x->npass; i++) {
        TRY(strcmp(x->passes[i], "all") ? passes_run_one(g, x->passes[i]) : passes_run(g));
        TRY(graph_verify(g));
    }
    return SOL_OK;
}

/* Sizes for the dimensions, "3,9"; NULL: the graph has none. */
static const int64_t *sizes_of(struct arena *a, const char *text)
{
    int64_t *dim = NEW_ARRAY(a, int64_t, SIZE_MOST_DIMS);
    for (int i = 0; text && *text && i < SIZE_MOST_DIMS; i++, text += strspn(text, ","))
        dim[i] = strtoll(text, (char **)(uintptr_t)&text, 10);
    return text ? dim : NULL;
}

/* Runs the case; *out_got is the text that the file should have after the arrow. */
static bool check(struct arena *a, const struct example *x, struct sol_graph *g, const char **out_got)
{
    double flops[2], bytes[2];
    char *before = normal_text(a, g);
    void **want[COUNT_OF(x->sizes)], **got;
    const int n = MAX(x->nsize, 1);
    if (!before) return complain(x, sol_error(ctx));
    for (int k = 0; k < n; k++)
        if (!(want[k] = evaluate(a, g, sizes_of(a, x->sizes[k]), x->special))) return complain(x, sol_error(ctx));
    graph_work(g, &flops[0], &bytes[0]);
    if (run_passes(g, x)) return complain(x, sol_error(ctx));
    graph_work(g, &flops[1], &bytes[1]);
    char *after = normal_text(a, g);
    if (!after) return complain(x, sol_error(ctx));
    bool good = true;
    for (int k = 0; k < n; k++) {
        const int64_t *dim = sizes_of(a, x->sizes[k]);
        if (!(got = evaluate(a, g, dim, x->special))) return complain(x, sol_error(ctx));
        for (int i = 0; i < g->outputs.n; i++) {
            const struct sol_tensor *t = g->outputs.at[i].t;
            if (!close_to(t, elements_at(t, dim), got[i], want[k][i])) good = complain(x, "computes something else");
        }
    }
    *out_got = arena_printf(a, " same\n");
    if (strcmp(before, after))
        *out_got = arena_printf(a, "\n%swork flops %.0f -> %.0f, bytes %.0f -> %.0f\n", after, flops[0], flops[1],
                                bytes[0], bytes[1]);
    if (!strcmp(*out_got, x->want)) return good;
    fprintf(stderr, "%s: %s: expected%s\ngot%s\n", x->file, x->title, x->want, *out_got);
    return false;
}

/* -- files */

/* Fills x from a case's text, which it modifies. False: it is not a case. */
static bool read_case(struct arena *a, const char *file, char *text, struct example *x)
{
    *x = (struct example){.file = file, .title = text};
    char *arrow = strstr(text, "\n-->"), *end = text + strcspn(text, "\n");
    if (!arrow) return false;
    x->before = arena_printf(a, "%.*s", (int)(arrow - text), text);
    x->want = arena_strdup(a, arrow + 4);
    char *tail = (char *)(uintptr_t)x->want + strlen(x->want);
    while (tail > x->want + 1 && tail[-1] == '\n' && tail[-2] == '\n') *--tail = 0;
    *arrow = *end = 0;
    for (char *line = end + 1; line < arrow;) {
        char *next = line + strcspn(line, "\n");
        if (!strncmp(line, "graph", 5)) {
            x->graph = line;
            return x->npass > 0;
        }
        *next = 0;
        x->special |= !strcmp(line, "values special");
        if (!strncmp(line, "sizes ", 6))
            for (char *save, *w = strtok_r(line + 6, " ", &save); w && x->nsize < 8; w = strtok_r(NULL, " ", &save))
                x->sizes[x->nsize++] = w;
        if (!strncmp(line, "pass ", 5))
            for (char *save, *w = strtok_r(line + 5, " ", &save); w && x->npass < 8; w = strtok_r(NULL, " ", &save))
                x->passes[x->npass++] = w;
        line = next + 1;
    }
    return false;
}

static int check_file(const char *path)
{
    struct arena *a = arena_create(ctx);
    char *text;
    size_t n;
    int failures = 0;
    assert_int_equal(file_read(ctx, a, path, &text, &n), SOL_OK);
    struct text out = text_new(a);
    char *at = strstr(text, "== ");
    assert_non_null(at);
    text_add(&out, text, (size_t)(at - text));
    while (at) {
        char *next = strstr(at, "\n== ");
        if (next) *next = 0;
        struct example x;
        struct sol_graph *g;
        const char *got = "";
        if (!read_case(a, path, at + 3, &x)) fail_msg("%s: %s: not a case", path, at);
        if (sol_graph_parse(ctx, x.graph, &g)) fail_msg("%s: %s: %s", path, x.title, sol_error(ctx));
        failures += !check(a, &x, g, &got);
        text_put(&out, "== %s\n-->%s%s", x.before, got, next ? "\n" : "");
        sol_graph_destroy(g);
        at = next ? next + 1 : NULL;
    }
    if (getenv("SOL_UPDATE")) assert_int_equal(file_write(ctx, path, out.at, out.n), SOL_OK);
    arena_destroy(a);
    return failures;
}

static void test_files(void **state)
{
    (void)state;
    DIR *d = opendir(FOLDER);
    assert_non_null(d);
    int failures = 0, files = 0;
    for (struct dirent *e; (e = readdir(d));) {
        char path[300];
        snprintf(path, sizeof path, "%s/%s", FOLDER, e->d_name);
        if (strlen(path) < 5 || strcmp(path + strlen(path) - 4, ".sol")) continue;
        failures += check_file(path);
        files++;
    }
    closedir(d);
    assert_true(files > 0);
    assert_int_equal(failures, 0);
}

/* Every row of passes.def has a file. */
static void test_complete(void **state)
{
    (void)state;
    const char *doc, *name;
    for (int i = 0; (name = passes_name(i, &doc)); i++) {
        char path[300];
        const char *again = strstr(name, "_again");
        snprintf(path, sizeof path, "%s/%.*s.sol", FOLDER, (int)(again ? again - name : (int)strlen(name)), name);
        if (!file_exists(path)) fail_msg("pass %s has no %s", name, path);
    }
}

/* -- a pass takes time for what it changes, not for the whole graph each time */

static struct sol_tensor *layer(struct sol_graph *g, const char *kind, struct sol_tensor *x, struct sol_tensor *y)
{
    struct sol_tensor *in[] = {x, y}, *out;
    struct sol_layer *l;
    static const struct attrs none;
    assert_int_equal(
        graph_add(g, NULL, &(struct new_layer){.kind = kind, .nin = y ? 2 : 1, .in = in, .attrs = &none}, &l), SOL_OK);
    out = l->out[0];
    return out;
}

/* 20000 layers, in which each pass finds much to do. */
static void test_long_chain(void **state)
{
    (void)state;
    struct sol_graph *g;
    assert_int_equal(sol_graph_create(ctx, "chain", &g), SOL_OK);
    const int64_t xs[] = {1, 4, 2, 2}, ws[] = {4, 4, 1, 1}, cs[] = {4, 1, 1}, one = 1;
    const float zero = 0;
    struct sol_tensor *x = graph_tensor(g, TENSOR_INPUT, "x", SOL_F32, 4, xs);
    struct sol_tensor *w = graph_tensor(g, TENSOR_PARAM, "w", SOL_F32, 4, ws),
                      *z = graph_tensor(g, TENSOR_CONST, "", SOL_F32, 1, &one);
    struct sol_tensor *s = graph_tensor(g, TENSOR_PARAM, "s", SOL_F32, 3, cs);
    z->data = &zero;
    for (int i = 0; i < 2500; i++) {
        x = layer(g, "Conv", x, w); /* weights: scale and shift go in */
        x = layer(g, "mul", x, s);
        x = layer(g, "add", x, z);                                               /* identity */
        x = layer(g, "add", layer(g, "exp", x, NULL), layer(g, "exp", x, NULL)); /* cse */
        layer(g, "exp", x, NULL);                                                /* dead */
        x = layer(g, "relu", x, NULL);
    }
    assert_int_equal(sol_graph_output(g, "y", x), SOL_OK);
    clock_t start = clock(); /* time of the processor: other programs run too */
    assert_int_equal(passes_run(g), SOL_OK);
    double ms = (double)(clock() - start) * 1e3 / CLOCKS_PER_SEC;
    int n = 0;
    for (struct sol_layer *l = g->first; l; l = l->next) n++;
    assert_true(n < 4 * 2500 + 100); /* Conv, exp, add, relu */
    assert_int_equal(graph_verify(g), SOL_OK);
    sol_graph_destroy(g);
    print_message("20000 layers: %.0f ms\n", ms);
#if !defined __SANITIZE_ADDRESS__ /* instrumented code takes several times as long */
    assert_true(ms < 4000);       /* quadratic passes take many seconds, also on a busy machine */
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_files), cmocka_unit_test(test_complete),
                                       cmocka_unit_test(test_long_chain)};
    return cmocka_run_group_tests(tests, make_ctx, drop_ctx);
}
