/* Gradients of graphs whose sizes vary. For given sizes, the gradient's graph must compute what the gradient of the
 * graph for these sizes does, which grad_test.c compares with differences. Everything is f64 and interpreted. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "grad/grad.h"
#include "hlir/graph.h"
#include "sol/sol.h"

enum { SIZES = 5, MOST_DIMS = 3 };

struct network {
    const char *name, *text;
    int64_t size[SIZES][MOST_DIMS];
};

static struct sol_graph *parse(const char *text)
{
    struct sol_graph *g = NULL;
    if (sol_graph_parse(ctx, text, &g)) fail_msg("%s\n%s", sol_error(ctx), text);
    return g;
}

/* Appends the gradient of all real outputs with respect to all real inputs and parameters. */
static sol_status differentiate(struct sol_graph *g)
{
    struct sol_tensor *with[32];
    int of[16], reached[32], nof = 0, nwith = 0;
    for (int i = 0; i < g->outputs.n; i++)
        if (g->outputs.at[i].t->dtype == SOL_F64) of[nof++] = i;
    for (int i = 0; i < g->inputs.n; i++)
        if (g->inputs.at[i]->dtype == SOL_F64) with[nwith++] = g->inputs.at[i];
    for (int i = 0; i < g->params.n; i++)
        if (g->params.at[i]->dtype == SOL_F64) with[nwith++] = g->params.at[i];
    return sol_graph_differentiate(g, nof, of, nwith, with, reached);
}

static void *data_of(const struct sol_tensor *t, uint64_t seed)
{
    const int64_t n = tensor_elements(t);
    double *real = calloc((size_t)n + 1, 8);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const double chance = (double)(seed >> 11) / 9007199254740992.0;
        if (t->dtype == SOL_F64)
            real[i] = 0.2 + chance;
        else
            ((int64_t *)real)[i] = (int64_t)(chance * 3);
    }
    return real;
}

/* What g computes for these sizes (NULL: it has no others) from data that are the same for all graphs. `at` has its
 * shapes. */
static void **run(struct sol_graph *at, struct sol_graph *g, const int64_t *size)
{
    void **in = calloc((size_t)at->inputs.n + 1, sizeof *in), **param = calloc((size_t)at->params.n + 1, sizeof *param);
    void **out = calloc((size_t)at->outputs.n + 1, sizeof *out);
    for (int i = 0; i < at->inputs.n; i++) in[i] = data_of(at->inputs.at[i], (uint64_t)i);
    for (int i = 0; i < at->params.n; i++) param[i] = data_of(at->params.at[i], (uint64_t)(100 + i));
    for (int i = 0; i < at->outputs.n; i++) out[i] = calloc((size_t)tensor_elements(at->outputs.at[i].t) + 1, 8);
    const struct graph_data data = {
        .inputs = (const void *const *)in, .params = (const void *const *)param, .outputs = out};
    if (graph_interpret_at(g, size, &data)) {
        char *text = NULL;
        sol_graph_print(g, &text);
        print_error("%s\n", text);
        fail_msg("%s", sol_error(ctx));
    }
    for (int i = 0; i < at->inputs.n; i++) free(in[i]);
    for (int i = 0; i < at->params.n; i++) free(param[i]);
    free(in);
    free(param);
    return out;
}

static void compare(const struct sol_graph *g, const char *what, void **x, void **want)
{
    for (int i = 0; i < g->outputs.n; i++) {
        const struct graph_output *o = &g->outputs.at[i];
        const int64_t n = o->t->dtype == SOL_F64 ? tensor_elements(o->t) : 0;
        const double *a = x[i], *b = want[i];
        double most = 1;
        for (int64_t k = 0; k < n; k++) most = fmax(most, fabs(b[k]));
        for (int64_t k = 0; k < n; k++) {
            if (fabs(a[k] - b[k]) <= 1e-11 * most || (isnan(a[k]) && isnan(b[k]))) continue;
            char *text = NULL;
            sol_graph_print(g, &text);
            print_error("%s\n", text);
            fail_msg("%s: %s[%lld]: expected %.15g, got %.15g", what, o->name, (long long)k, b[k], a[k]);
        }
    }
}

static void free_all(int n, void **x)
{
    for (int i = 0; i < n; i++) free(x[i]);
    free(x);
}

/* The text form of a gradient has forms, and gives the same loops again. */
static void check_text(struct sol_graph *g)
{
    struct text text = text_new(g->arena);
    graph_print(g, &text);
    struct sol_graph *again = parse(text.at);
    const struct sol_layer *b = again->first;
    for (const struct sol_layer *a = g->first; a; a = a->next, b = b->next) {
        struct text was = text_new(g->arena), is = text_new(g->arena);
        assert_non_null(b);
        loops_print(a->loops, &was);
        loops_print(b->loops, &is);
        assert_string_equal(is.at, was.at);
    }
    sol_graph_destroy(again);
}

static void check_at(const struct network *net, struct sol_graph *joint, const int64_t *size)
{
    struct sol_graph *plain = parse(net->text), *got = NULL, *want = NULL;
    char what[200];
    snprintf(what, sizeof what, "%s at %lld %lld %lld", net->name, (long long)size[0], (long long)size[1],
             (long long)size[2]);
    if (graph_at(joint, size, &got) || graph_at(plain, size, &want) || differentiate(want) || graph_verify(got)) {
        char *text = NULL;
        sol_graph_print(joint, &text);
        print_error("%s\n", text);
        fail_msg("%s: %s", what, sol_error(ctx));
    }
    assert_int_equal(got->outputs.n, want->outputs.n);
    for (int i = 0; i < got->outputs.n; i++) {
        assert_int_equal(tensor_elements(got->outputs.at[i].t), tensor_elements(want->outputs.at[i].t));
        assert_string_equal(got->outputs.at[i].name, want->outputs.at[i].name);
    }
    void **x = run(got, got, NULL), **y = run(want, want, NULL), **z = run(got, joint, size);
    compare(got, what, x, y);
    compare(got, what, z, y);
    free_all(got->outputs.n, x);
    free_all(got->outputs.n, y);
    free_all(got->outputs.n, z);
    sol_graph_destroy(plain);
    sol_graph_destroy(got);
    sol_graph_destroy(want);
}

static void check(const struct network *net)
{
    struct sol_graph *joint = parse(net->text);
    if (differentiate(joint)) fail_msg("%s: %s", net->name, sol_error(ctx));
    if (graph_verify(joint)) fail_msg("%s: %s", net->name, sol_error(ctx));
    check_text(joint);
    for (int i = 0; i < SIZES; i++) check_at(net, joint, net->size[i]);
    sol_graph_destroy(joint);
}

static const struct network networks[] = {
#include "grad_dims.inc"
};

static void gradients_at_any_size(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT_OF(networks); i++) check(&networks[i]);
}

/* Tables of positions need numbers: the message says whose. */
static void tables_are_rejected(void **state)
{
    (void)state;
    static const char *const rows[] = {"#P=#T | | y[N P] = x[N min(3*P,#T-1)]", "#P=#T | | y[N P] = x[N (P*P)//5]"};
    for (int i = 0; i < COUNT_OF(rows); i++) {
        char text[300];
        snprintf(text, sizeof text,
                 NT "input %%0:f64[#0 #1] \"x\"\n%%1 = Row(%%0) text=\"x[N T] -> y[N P] | %s\" "
                    "\"border\"\noutput %%1 \"y\"\n",
                 rows[i]);
        struct sol_graph *g = parse(text);
        assert_int_equal(differentiate(g), SOL_ERR_UNSUPPORTED);
        const char *const said[] = {"'border' (Row)", "#1", "'x'", "needs a number"};
        for (int k = 0; k < COUNT_OF(said); k++)
            if (!strstr(sol_error(ctx), said[k])) fail_msg("expected '%s' in '%s'", said[k], sol_error(ctx));
        sol_graph_destroy(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_at_any_size),
        cmocka_unit_test(tables_are_rejected),
    };
    return cmocka_run_group_tests(tests, make_ctx, drop_ctx);
}
