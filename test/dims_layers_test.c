/* Layers with sizes that vary: a graph's loops with given sizes must compute what the same graph bound for these sizes
 * does, and what cannot vary says so. */
#include "hlir/graph.h"
#include "layers/layers.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct sol_ctx *ctx;

/* All failures are shown, then the test fails. */
static int failures;
#define WRONG(...) (failures++, print_error(__VA_ARGS__), print_error("\n"))

#define MOST_DIMS 4
#define MOST_TENSORS 32

/* -- data */

static uint64_t state = 1;

static double next(void)
{
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (double)(state >> 33) / (double)(UINT64_C(1) << 31) * 2 - 1;
}

/* Random values; integers are 0 to 2, valid indices of all inputs here. */
static void *random_data(const struct sol_tensor *t)
{
    const int64_t n = tensor_elements(t);
    void *data = calloc((size_t)n + 1, 8);
    for (int64_t i = 0; i < n; i++) {
        const double v = next();
        if (t->dtype == SOL_F32) ((float *)data)[i] = (float)v;
        if (t->dtype == SOL_F64) ((double *)data)[i] = v;
        if (t->dtype == SOL_I64) ((int64_t *)data)[i] = (int64_t)floor((v + 1) * 1.4999);
        if (t->dtype == SOL_BOOL) ((uint8_t *)data)[i] = v > 0;
    }
    return data;
}

/* -- the comparison */

struct values {
    void *in[MOST_TENSORS], *param[MOST_TENSORS], *out[2][MOST_TENSORS];
};

static void release(struct values *v)
{
    for (int i = 0; i < MOST_TENSORS; i++) {
        free(v->in[i]);
        free(v->param[i]);
        free(v->out[0][i]);
        free(v->out[1][i]);
    }
}

static bool same_output(const struct sol_tensor *t, const void *got, const void *expected, const char *what)
{
    const int64_t n = tensor_elements(t);
    for (int64_t i = 0; i < n; i++) {
        if (t->dtype == SOL_F32) {
            const double x = ((const float *)got)[i], y = ((const float *)expected)[i];
            if (!(fabs(x - y) <= 1e-6 * (1 + fabs(y))) && !(isnan(x) && isnan(y)) && x != y)
                return WRONG("%s: element %lld is %.9g, expected %.9g", what, (long long)i, x, y), false;
            continue;
        }
        const size_t bytes = dtype_def((enum sol_dtype)t->dtype)->bytes;
        if (memcmp((const char *)got + (size_t)i * bytes, (const char *)expected + (size_t)i * bytes, bytes))
            return WRONG("%s: element %lld differs", what, (long long)i), false;
    }
    return true;
}

/* Compares shapes and values of g with those of the graph for these sizes. */
static void compare_at(struct sol_graph *g, const int64_t *dim, const char *what)
{
    struct sol_graph *at;
    struct values v;
    memset(&v, 0, sizeof v);
    if (graph_at(g, dim, &at)) {
        WRONG("%s: %s", what, sol_error(ctx));
        return;
    }
    assert_int_equal(at->tensors.n, g->tensors.n);
    for (int i = 0; i < g->tensors.n; i++)
        for (int d = 0; d < g->tensors.at[i]->ndim; d++)
            if (size_at(g->tensors.at[i]->dim[d].size, dim) != at->tensors.at[i]->dim[d].size)
                WRONG("%s: tensor %d dimension %d is %lld, expected %lld", what, i, d,
                      (long long)size_at(g->tensors.at[i]->dim[d].size, dim),
                      (long long)at->tensors.at[i]->dim[d].size);
    for (int i = 0; i < at->inputs.n; i++) v.in[i] = random_data(at->inputs.at[i]);
    for (int i = 0; i < at->params.n; i++) v.param[i] = random_data(at->params.at[i]);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < at->outputs.n; i++) v.out[k][i] = calloc((size_t)tensor_bytes(at->outputs.at[i].t) + 1, 1);
    const struct graph_data data[] = {
        {(const void *const *)v.in, (const void *const *)v.param, v.out[0]},
        {(const void *const *)v.in, (const void *const *)v.param, v.out[1]},
    };
    if (graph_interpret_at(at, NULL, &data[1]))
        WRONG("%s: bound for these sizes: %s", what, sol_error(ctx));
    else if (graph_interpret_at(g, dim, &data[0]))
        WRONG("%s: %s", what, sol_error(ctx));
    else
        for (int i = 0; i < at->outputs.n && same_output(at->outputs.at[i].t, v.out[0][i], v.out[1][i], what); i++) {
        }
    release(&v);
    sol_graph_destroy(at);
}

struct subject {
    const char *name, *text;
    int n;
    int64_t dim[6][MOST_DIMS];
    const char *holds; /* in the printed graph; NULL: anything */
};

static const struct subject subjects[] = {
#include "dims_layers.inc"
};

static void layers_are_right_at_every_size(void **unused)
{
    (void)unused;
    for (int i = 0; i < COUNT_OF(subjects); i++) {
        const struct subject *s = &subjects[i];
        struct sol_graph *g;
        char *text;
        if (sol_graph_parse(ctx, s->text, &g)) {
            WRONG("%s: %s", s->name, sol_error(ctx));
            continue;
        }
        assert_int_equal(graph_verify(g), SOL_OK);
        assert_int_equal(sol_graph_print(g, &text), SOL_OK);
        if (s->holds && !strstr(text, s->holds)) WRONG("%s: expected '%s' in\n%s", s->name, s->holds, text);
        for (int k = 0; k < s->n; k++) {
            char what[256];
            snprintf(what, sizeof what, "%s at %lld,%lld,%lld", s->name, (long long)s->dim[k][0],
                     (long long)s->dim[k][1], (long long)s->dim[k][2]);
            compare_at(g, s->dim[k], what);
        }
        sol_free(ctx, text);
        sol_graph_destroy(g);
    }
    assert_int_equal(failures, 0);
}

static void what_cannot_vary_is_named(void **unused)
{
    (void)unused;
    static const struct {
        const char *text, *message;
    } cases[] = {
#include "dims_refused.inc"
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        struct sol_graph *g = NULL;
        if (!sol_graph_parse(ctx, cases[i].text, &g))
            WRONG("accepted: %s", cases[i].text);
        else if (!strstr(sol_error(ctx), cases[i].message))
            WRONG("expected '%s' in '%s'", cases[i].message, sol_error(ctx));
    }
    assert_int_equal(failures, 0);
}

static int setup(void **unused)
{
    (void)unused;
    return sol_ctx_create(NULL, &ctx);
}

static int teardown(void **unused)
{
    (void)unused;
    sol_ctx_destroy(ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_are_right_at_every_size),
        cmocka_unit_test(what_cannot_vary_is_named),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
