/* Training steps of networks whose sizes vary: compiled once, run at many sizes. The reference is the gradient of the
 * graph for these sizes, interpreted (grad_dims_test.c tests that of the graph whose sizes vary). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "hlir/graph.h"
#include "slow_build.h"

enum { SIZES = 5, MOST_DIMS = 3, MOST = 32, GUARD = 64 };

struct network {
    const char *name, *text;
    int64_t size[SIZES][MOST_DIMS];
};
static const struct network networks[] = {
#include "grad_dims.inc"
};

struct step { /* a call at given sizes; data by input, parameter and output */
    void *in[MOST], *param[MOST], *out[MOST], *want[MOST];
    size_t bytes[MOST]; /* of outputs */
};

/* The network in f32. */
static struct sol_graph *parse(const char *text)
{
    struct sol_graph *g = NULL;
    char *t = strdup(text);
    for (char *s = t; (s = strstr(s, "f64"));) memcpy(s, "f32", 3);
    if (sol_graph_parse(ctx, t, &g)) fail_msg("%s\n%s", sol_error(ctx), t);
    free(t);
    return g;
}

static void differentiate(struct sol_graph *g)
{
    struct sol_tensor *with[MOST];
    int of[MOST], reached[MOST], nof = 0, nwith = 0;
    for (int i = 0; i < g->outputs.n; i++)
        if (g->outputs.at[i].t->dtype == SOL_F32) of[nof++] = i;
    for (int i = 0; i < g->inputs.n; i++)
        if (g->inputs.at[i]->dtype == SOL_F32) with[nwith++] = g->inputs.at[i];
    for (int i = 0; i < g->params.n; i++) with[nwith++] = g->params.at[i];
    if (sol_graph_differentiate(g, nof, of, nwith, with, reached)) fail_msg("%s", sol_error(ctx));
}

static void *data_of(const struct sol_tensor *t, uint64_t seed)
{
    const int64_t n = tensor_elements(t);
    void *data = calloc((size_t)n + 1, 8);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const double chance = (double)(seed >> 11) / 9007199254740992.0;
        if (t->dtype == SOL_F32)
            ((float *)data)[i] = (float)(0.2 + chance);
        else
            ((int64_t *)data)[i] = (int64_t)(chance * 3);
    }
    return data;
}

static void begin(const struct sol_graph *at, struct step *s)
{
    for (int i = 0; i < at->inputs.n; i++) s->in[i] = data_of(at->inputs.at[i], (uint64_t)i);
    for (int i = 0; i < at->params.n; i++) s->param[i] = data_of(at->params.at[i], (uint64_t)(100 + i));
    for (int i = 0; i < at->outputs.n; i++) {
        s->bytes[i] = (size_t)tensor_bytes(at->outputs.at[i].t);
        s->out[i] = malloc(s->bytes[i] + GUARD);
        s->want[i] = calloc(s->bytes[i] + GUARD, 1);
    }
}

static void end(const struct sol_graph *at, struct step *s)
{
    for (int i = 0; i < at->inputs.n; i++) free(s->in[i]);
    for (int i = 0; i < at->params.n; i++) free(s->param[i]);
    for (int i = 0; i < at->outputs.n; i++) {
        free(s->out[i]);
        free(s->want[i]);
    }
}

static void train(struct sol_net *net, const int64_t *size, const struct sol_graph *at, struct step *s, int threads)
{
    struct sol_params *params;
    struct sol_saved *saved;
    for (int i = 0; i < at->outputs.n; i++) memset(s->out[i], 0xa5, s->bytes[i] + GUARD);
    if (sol_params_create(net, &params)) fail_msg("%s", sol_error(ctx));
    for (int i = 0; i < at->params.n; i++) sol_params_set(params, i, s->param[i]);
    const struct sol_call c = {
        .dims = size, .inputs = (const void *const *)s->in, .outputs = s->out, .threads = threads};
    if (sol_net_forward_at(net, params, &c, &saved)) fail_msg("%s", sol_error(ctx));
    const struct sol_backward b = {c.inputs, c.outputs, threads, 0};
    if (sol_net_backward(net, params, saved, &b)) fail_msg("%s", sol_error(ctx));
    sol_saved_destroy(saved);
    sol_params_destroy(params);
}

static void compare(const char *what, const struct sol_graph *at, const struct step *s)
{
    for (int i = 0; i < at->outputs.n; i++) {
        const struct graph_output *o = &at->outputs.at[i];
        const int64_t n = o->t->dtype == SOL_F32 ? tensor_elements(o->t) : 0;
        const float *a = s->out[i], *b = s->want[i];
        float most = 1;
        for (int64_t k = 0; k < n; k++) most = fmaxf(most, fabsf(b[k]));
        for (int64_t k = 0; k < n; k++)
            if (!(fabsf(a[k] - b[k]) <= 2e-5F * most || (isnan(a[k]) && isnan(b[k]))))
                fail_msg("%s: %s[%lld]: expected %g, got %g", what, o->name, (long long)k, (double)b[k], (double)a[k]);
        for (int k = 0; k < GUARD; k++)
            if (((unsigned char *)s->out[i])[s->bytes[i] + (size_t)k] != 0xa5)
                fail_msg("%s: bytes behind %s were written", what, o->name);
    }
}

static void train_at(const struct network *n, struct sol_net *net, const int64_t *size)
{
    struct sol_graph *plain = parse(n->text), *at = NULL;
    struct step s;
    char what[200];
    snprintf(what, sizeof what, "%s at %lld %lld %lld", n->name, (long long)size[0], (long long)size[1],
             (long long)size[2]);
    if (graph_at(plain, size, &at)) fail_msg("%s: %s", what, sol_error(ctx));
    differentiate(at);
    begin(at, &s);
    if (graph_interpret(at, (const void *const *)s.in, (const void *const *)s.param, s.want))
        fail_msg("%s: %s", what, sol_error(ctx));
    train(net, size, at, &s, 1);
    compare(what, at, &s);
    for (int i = 0; i < at->outputs.n; i++) memcpy(s.want[i], s.out[i], s.bytes[i]);
    train(net, size, at, &s, 2);
    for (int i = 0; i < at->outputs.n; i++)
        if (memcmp(s.want[i], s.out[i], s.bytes[i]))
            fail_msg("%s: %s: two threads give other bits", what, at->outputs.at[i].name);
    end(at, &s);
    sol_graph_destroy(at);
    sol_graph_destroy(plain);
}

static void train_network(const struct network *n)
{
    struct sol_graph *g = parse(n->text);
    struct sol_net *net;
    differentiate(g);
    if (sol_compile(ctx, g, &net)) fail_msg("%s: %s", n->name, sol_error(ctx));
    sol_graph_destroy(g);
    for (int k = 0; k < SIZES; k++) train_at(n, net, n->size[k]);
    sol_net_destroy(net);
}

static void training_at_any_size(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT_OF(networks); i += step_of_cases(1)) train_network(&networks[i]);
}

/* Batch norm's statistics and gradients as sums of parts, however small the tensors are. */
static void sums_of_parts(void **state)
{
    (void)state;
    assert_int_equal(sol_config_set(ctx, "bands", "always"), SOL_OK);
    for (int i = 0; i < COUNT_OF(networks); i++)
        if (!strcmp(networks[i].name, "residual") || !strcmp(networks[i].name, "patches")) train_network(&networks[i]);
    assert_int_equal(sol_config_set(ctx, "bands", "auto"), SOL_OK);
}

/* What forward does not save is computed again, at the same sizes. */
static void little_memory(void **state)
{
    (void)state;
    assert_int_equal(sol_config_set(ctx, "training::memory", "small"), SOL_OK);
    for (int i = 0; i < COUNT_OF(networks); i++)
        if (!strcmp(networks[i].name, "u-net") || !strcmp(networks[i].name, "heads")) train_network(&networks[i]);
    assert_int_equal(sol_config_set(ctx, "training::memory", "balanced"), SOL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_at_any_size),
        cmocka_unit_test(sums_of_parts),
        cmocka_unit_test(little_memory),
    };
    return cmocka_run_group_tests(tests, make_ctx, drop_ctx);
}
