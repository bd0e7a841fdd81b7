/* Comparing a graph whose sizes vary with the same graph bound for given sizes: shapes, and values by the interpreter
 * and of compiled code. */
#ifndef DIMS_CHECK_H
#define DIMS_CHECK_H

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

/* -- data */

static uint64_t random_state = 1;

static double random_number(void) /* -1..1 */
{
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (double)(random_state >> 33) / (double)(UINT64_C(1) << 31) * 2 - 1;
}

/* Random values; integers are 0 or 1, and 2 if there are so many: indices that are valid everywhere. */
static void *random_data(struct arena *a, const struct sol_tensor *t, int integers)
{
    const int64_t n = tensor_elements(t);
    void *data = arena_alloc(a, (size_t)n * 8 + 8);
    for (int64_t i = 0; i < n; i++) {
        const double v = random_number();
        const int64_t k = (int64_t)floor((v + 1) / 2 * integers);
        switch (t->dtype) {
        case SOL_F32: ((float *)data)[i] = (float)v; break;
        case SOL_F64: ((double *)data)[i] = v; break;
        default: memcpy((char *)data + i * dtype_def(t->dtype)->bytes, &k, dtype_def(t->dtype)->bytes);
        }
    }
    return data;
}

/* -- the comparison */

static double float_at(const struct sol_tensor *t, const void *data, int64_t i)
{
    return t->dtype == SOL_F64 ? ((const double *)data)[i] : ((const float *)data)[i];
}

/* The largest finite magnitude of floats, at least 1. */
static double scale_of(const struct sol_tensor *t, const void *data)
{
    double scale = 1;
    for (int64_t i = 0; i < tensor_elements(t); i++) {
        const double v = fabs(float_at(t, data, i));
        if (isfinite(v) && v > scale) scale = v;
    }
    return scale;
}

/* Floats may differ by `most`, relative to the largest. */
static bool same_output(const struct sol_tensor *t, const void *got, const void *expected, double most,
                        const char *what)
{
    const int64_t n = tensor_elements(t);
    const size_t bytes = dtype_def((enum sol_dtype)t->dtype)->bytes;
    const char *layer = t->from ? t->from->def->name : "input";
    const bool real = t->dtype == SOL_F32 || t->dtype == SOL_F64;
    const double scale = real ? scale_of(t, expected) : 0;
    for (int64_t i = 0; i < n; i++) {
        if (real) {
            const double x = float_at(t, got, i), y = float_at(t, expected, i);
            if (!(fabs(x - y) <= most * scale) && !(isnan(x) && isnan(y)) && x != y)
                return WRONG("%s: %s: element %lld is %.9g, expected %.9g", what, layer, (long long)i, x, y), false;
        } else if (memcmp((const char *)got + (size_t)i * bytes, (const char *)expected + (size_t)i * bytes, bytes)) {
            return WRONG("%s: %s: element %lld differs", what, layer, (long long)i), false;
        }
    }
    return true;
}

/* The results of g with these sizes in place of its dimensions; NULL: it has none. `at` has the shapes. */
static sol_status results(struct sol_graph *g, const int64_t *dim, const struct sol_graph *at,
                          const struct graph_data *given, void ***out)
{
    *out = NEW_ARRAY(at->arena, void *, at->outputs.n + 1);
    for (int i = 0; i < at->outputs.n; i++)
        (*out)[i] = arena_alloc(at->arena, (size_t)tensor_bytes(at->outputs.at[i].t) + 8);
    return graph_interpret_at(g, dim,
                              &(struct graph_data){.inputs = given->inputs, .params = given->params, .outputs = *out});
}

/* Runs the network, forward and backward if it has a gradient. */
static sol_status run_compiled(struct sol_net *net, struct sol_params *params, const struct sol_call *c, bool joint)
{
    struct sol_saved *saved;
    if (!joint) return sol_net_run_at(net, params, c);
    TRY(sol_net_forward_at(net, params, c, &saved));
    const struct sol_backward b = {c->inputs, c->outputs, c->threads, 0};
    const sol_status status = sol_net_backward(net, params, saved, &b);
    sol_saved_destroy(saved);
    return status;
}

/* Runs the network that the graph became; data->outputs are the expected results. */
static void same_compiled(struct sol_net *net, const int64_t *dim, const struct sol_graph *at,
                          const struct graph_data *data, const char *what)
{
    struct sol_params *params;
    assert_int_equal(sol_params_create(net, &params), SOL_OK);
    for (int i = 0; i < sol_net_params(net); i++) sol_params_set(params, i, data->params[i]);
    void **out = NEW_ARRAY(at->arena, void *, at->outputs.n + 1);
    for (int i = 0; i < at->outputs.n; i++)
        out[i] = arena_alloc(at->arena, (size_t)tensor_bytes(at->outputs.at[i].t) + 8);
    if (run_compiled(net, params, &(struct sol_call){.dims = dim, .inputs = data->inputs, .outputs = out, .threads = 2},
                     graph_is_joint(at)))
        WRONG("%s: compiled: %s", what, sol_error(ctx));
    else
        for (int i = 0; i < at->outputs.n; i++)
            if (!same_output(at->outputs.at[i].t, out[i], data->outputs[i], 1e-4, what)) break;
    sol_params_destroy(params);
}

struct compared { /* a graph, and the network that it became; NULL: none */
    struct sol_graph *g;
    struct sol_net *net;
    double most;               /* by which interpreted values differ, relative to the largest */
    const void *const *params; /* their data; NULL, all or one: random */
};

/* Compares the values with those of the graph for these sizes. False: they cannot be computed. */
static bool compare_with(const struct compared *c, const int64_t *dim, struct sol_graph *at, int integers,
                         const char *what)
{
    void **got, **expected;
    const void **in = NEW_ARRAY(at->arena, const void *, at->inputs.n + 1),
               **params = NEW_ARRAY(at->arena, const void *, at->params.n + 1);
    for (int i = 0; i < at->inputs.n; i++) in[i] = random_data(at->arena, at->inputs.at[i], integers);
    for (int i = 0; i < at->params.n; i++) {
        const void *const given = c->params ? c->params[i] : NULL;
        params[i] = given ? given : random_data(at->arena, at->params.at[i], integers);
    }
    const struct graph_data data = {.inputs = in, .params = params};
    bool good = !results(at, NULL, at, &data, &expected);
    const sol_status status = good ? results(c->g, dim, at, &data, &got) : SOL_OK;
    if (status == SOL_ERR_RUN) good = false; /* an index outside, which loops ignore where the size 1 is known */
    if (status && status != SOL_ERR_RUN) WRONG("%s: %s", what, sol_error(ctx));
    for (int i = 0; good && !status && i < at->outputs.n; i++)
        if (!same_output(at->outputs.at[i].t, got[i], expected[i], c->most, what)) break;
    if (good && !status && c->net)
        same_compiled(c->net, dim, at, &(struct graph_data){.inputs = in, .params = params, .outputs = expected}, what);
    return good;
}

/* Compares shapes and values with those of the graph for these sizes. False: they cannot be computed. */
static bool compare_at(const struct compared *c, const int64_t *dim, int integers, const char *what)
{
    struct sol_graph *g = c->g, *at;
    if (graph_at(g, dim, &at)) return false;
    for (int i = 0; i < g->tensors.n; i++)
        for (int d = 0; d < g->tensors.at[i]->ndim; d++) {
            const int64_t size = size_at(g->tensors.at[i]->dim[d].size, dim);
            if (size != at->tensors.at[i]->dim[d].size)
                WRONG("%s: tensor %d dimension %d is %lld, expected %lld", what, i, d, (long long)size,
                      (long long)at->tensors.at[i]->dim[d].size);
        }
    const bool good = compare_with(c, dim, at, integers, what);
    sol_graph_destroy(at);
    return good;
}

#endif
