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

/* What the graph computes from the same data as any graph whose inputs and parameters have these names. */
static void **run(struct sol_graph *g)
{
    void **in = calloc((size_t)g->inputs.n + 1, sizeof *in), **param = calloc((size_t)g->params.n + 1, sizeof *param);
    void **out = calloc((size_t)g->outputs.n + 1, sizeof *out);
    for (int i = 0; i < g->inputs.n; i++) in[i] = data_of(g->inputs.at[i], (uint64_t)i);
    for (int i = 0; i < g->params.n; i++) param[i] = data_of(g->params.at[i], (uint64_t)(100 + i));
    for (int i = 0; i < g->outputs.n; i++) out[i] = calloc((size_t)tensor_elements(g->outputs.at[i].t) + 1, 8);
    if (graph_interpret(g, (const void *const *)in, (const void *const *)param, out)) {
        char *text = NULL;
        sol_graph_print(g, &text);
        fail_msg("%s\n%s", sol_error(ctx), text);
    }
    for (int i = 0; i < g->inputs.n; i++) free(in[i]);
    for (int i = 0; i < g->params.n; i++) free(param[i]);
    free(in);
    free(param);
    return out;
}

static void compare(const struct network *net, const int64_t *size, struct sol_graph *got, struct sol_graph *want)
{
    void **x = run(got), **y = run(want);
    assert_int_equal(got->outputs.n, want->outputs.n);
    for (int i = 0; i < got->outputs.n; i++) {
        const struct sol_tensor *t = got->outputs.at[i].t;
        const int64_t n = tensor_elements(t);
        double most = 1;
        assert_int_equal(n, tensor_elements(want->outputs.at[i].t));
        assert_string_equal(got->outputs.at[i].name, want->outputs.at[i].name);
        for (int64_t k = 0; t->dtype == SOL_F64 && k < n; k++) most = fmax(most, fabs(((double *)y[i])[k]));
        for (int64_t k = 0; t->dtype == SOL_F64 && k < n; k++) {
            const double a = ((double *)x[i])[k], b = ((double *)y[i])[k];
            if (fabs(a - b) <= 1e-11 * most || (isnan(a) && isnan(b))) continue;
            char *text = NULL;
            sol_graph_print(got, &text);
            print_error("%s\n", text);
            fail_msg("%s at %lld %lld %lld: %s[%lld]: expected %.15g, got %.15g", net->name, (long long)size[0],
                     (long long)size[1], (long long)size[2], got->outputs.at[i].name, (long long)k, b, a);
        }
    }
    for (int i = 0; i < got->outputs.n; i++) {
        free(x[i]);
        free(y[i]);
    }
    free(x);
    free(y);
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

static void check(const struct network *net)
{
    struct sol_graph *joint = parse(net->text), *plain = parse(net->text), *got, *want;
    if (differentiate(joint)) fail_msg("%s: %s", net->name, sol_error(ctx));
    if (graph_verify(joint)) fail_msg("%s: %s", net->name, sol_error(ctx));
    check_text(joint);
    for (int i = 0; i < SIZES; i++) {
        const int64_t *size = net->size[i];
        if (graph_at(joint, size, &got) || graph_at(plain, size, &want) || differentiate(want) || graph_verify(got)) {
            char *text = NULL;
            sol_graph_print(joint, &text);
            print_error("%s\n", text);
            fail_msg("%s at %lld %lld %lld: %s", net->name, (long long)size[0], (long long)size[1], (long long)size[2],
                     sol_error(ctx));
        }
        compare(net, size, got, want);
        sol_graph_destroy(got);
        sol_graph_destroy(want);
    }
    sol_graph_destroy(joint);
    sol_graph_destroy(plain);
}

#define N "dim #0 \"n\" hint=4\n"
#define NT N "dim #1 \"t\" hint=6\n"
#define NHW N "dim #1 \"h\" hint=9 min=3\ndim #2 \"w\" hint=7 min=3\n"
#define NHW_SIZES                                   \
    {                                               \
        {1, 3, 3}, {4, 9, 7}, {2, 4, 5}, {3, 8, 3}, \
        {                                           \
            2, 11, 12                               \
        }                                           \
    }
#define NT_SIZES                        \
    {                                   \
        {1, 1}, {4, 6}, {3, 1}, {1, 5}, \
        {                               \
            2, 9                        \
        }                               \
    }

static const struct network networks[] = {
    {"element-wise",
     NT "input %0:f64[#0 #1 3] \"x\"\nparam %1:f64[3] \"w\"\n%2 = mul(%0, %1)\n%3 = gelu(%2)\n%4 = sigmoid(%0)\n"
        "%5 = div(%3, %4)\n%6 = add(%5, %0)\noutput %6 \"y\"\n",
     NT_SIZES},
    {"mlp",
     "dim #0 \"n\" hint=4 min=0\ninput %0:f64[#0 5] \"x\"\nparam %1:f64[7 5] \"w1\"\nparam %2:f64[7] \"b1\"\nparam "
     "%3:f64[3 7] \"w2\"\n"
     "%4 = Linear(%0, %1, %2)\n%5 = relu(%4)\n%6 = Linear(%5, %3)\n%7 = LogSoftmax(%6) axis=1\noutput %7 \"y\"\n",
     {{1}, {4}, {3}, {0}, {17}}},
    {"tokens",
     NT "input %0:f64[#0 #1 5] \"x\"\nparam %1:f64[4 5] \"w\"\nparam %2:f64[4] \"b\"\n%3 = Linear(%0, %1, %2)\n"
        "%4 = LayerNorm(%3)\n%5 = Mean(%4) axes=[1]\noutput %5 \"y\"\n",
     NT_SIZES},
    {"convolutions",
     NHW "input %0:f64[#0 2 #1 #2] \"x\"\nparam %1:f64[3 2 3 3] \"w1\"\nparam %2:f64[3] \"b1\"\n"
         "param %3:f64[4 3 3 3] \"w2\"\nparam %4:f64[3 1 3 3] \"w3\"\n%5 = Conv(%0, %1, %2) p=1 q=1\n%6 = relu(%5)\n"
         "%7 = Conv(%6, %4) p=1 q=1 g=3\n%8 = Conv(%7, %3) s=2 p=1 q=1\noutput %8 \"y\"\n",
     NHW_SIZES},
    {"strided",
     NHW "input %0:f64[#0 2 #1 #2] \"x\"\nparam %1:f64[3 2 1 1] \"w1\"\nparam %2:f64[3 2 3 2] \"w2\"\n"
         "%3 = Conv(%0, %1) s=2\n%4 = Conv(%0, %2) s=[3,2] p=[2,0] q=[2,1] d=[1,2]\noutput %3 \"y\"\noutput %4 \"z\"\n",
     NHW_SIZES},
    {"large stride", /* too many residues */
     N "dim #1 \"h\" hint=67 min=25\ninput %0:f64[#0 2 #1] \"x\"\nparam %1:f64[3 2 25] \"w\"\n"
       "%2 = Conv(%0, %1) s=10 p=3\noutput %2 \"y\"\n",
     {{2, 67}, {1, 25}, {2, 40}, {1, 81}, {3, 31}}},
    {"pools",
     NHW "input %0:f64[#0 2 #1 #2] \"x\"\n%1 = MaxPool(%0) k=[3,3] s=2 p=1 q=1\n%2 = MaxPool(%0) k=[2,2] s=2\n"
         "%3 = AvgPool(%0) k=[3,3] s=2 p=1 q=1\n%4 = AvgPool(%0) k=[2,3] s=[2,3]\noutput %1 \"a\"\noutput %2 \"b\"\n"
         "output %3 \"c\"\noutput %4 \"d\"\n",
     NHW_SIZES},
    {"batch norm",
     NHW "input %0:f64[N=#0 C=3 P=#1 P=#2] \"x\"\nparam %1:f64[3] \"w\"\nparam %2:f64[3] \"b\"\n"
         "%3, %4, %5 = BatchNormTrain(%0, %1, %2)\n%6 = relu(%3)\n%7 = Sum(%6) axes=[2,3]\noutput %7 \"y\"\n",
     NHW_SIZES},
    {"other norms",
     NHW "input %0:f64[#0 4 #1 #2] \"x\"\nparam %1:f64[4] \"w\"\nparam %2:f64[4] \"b\"\n"
         "%3 = GroupNorm(%0, %1, %2) g=2\n%4 = InstanceNorm(%3)\n%5 = Std(%4) axes=[1]\noutput %5 \"y\"\n",
     NHW_SIZES},
    {"attention",
     N "dim #1 \"s\" hint=5\ndim #2 \"t\" hint=6\ninput %0:f64[#0 2 #1 3] \"q\"\ninput %1:f64[#0 2 3 #2] \"k\"\n"
       "input %2:f64[#0 2 #2 3] \"v\"\n%3 = MatMul(%0, %1)\n%4 = Softmax(%3) axis=3\n%5 = MatMul(%4, %2)\n"
       "output %5 \"y\"\n",
     {{1, 1, 1}, {4, 5, 6}, {2, 1, 7}, {3, 6, 1}, {2, 8, 3}}},
    {"reductions",
     NT "input %0:f64[#0 #1 3] \"x\"\n%1 = Max(%0) axes=[1]\n%2 = Prod(%0) axes=[1]\n%3 = Var(%0) axes=[0] "
        "correction=0\n%4 = LogSumExp(%0) axes=[0,1]\n%5 = CumSum(%0) axis=1\n%6 = Permute(%5) perm=[1,0,2]\n"
        "output %1 \"a\"\noutput %2 \"b\"\noutput %3 \"c\"\noutput %4 \"d\"\noutput %6 \"e\"\n",
     NT_SIZES},
    {"recurrence",
     NT "input %0:f64[#1 #0 3] \"x\"\nparam %1:f64[8 3] \"w\"\nparam %2:f64[8 2] \"u\"\nparam %3:f64[8] \"b\"\n"
        "%4, %5, %6 = LSTM(%0, %1, %2, %3)\noutput %4 \"y\"\noutput %6 \"c\"\n",
     NT_SIZES},
    {"positions that are data",
     "dim #0 \"n\" hint=40\ndim #1 \"m\" hint=90\ninput %0:f64[#0 5] \"x\"\ninput %1:i64[#1 2] \"i\"\n"
     "%2 = Row(%0, %1) text=\"x[A B] i:i64[C D] -> y[C B] | | | "
     "y[C B] = sum[D] x[i[C D]+D-1 B]:0 * x[i[C D] B]\"\noutput %2 \"y\"\n",
     {{3, 1}, {40, 90}, {4, 7}, {9, 2}, {3, 3}}},
    {"embedding",
     NT
     "param %0:f64[5 3] \"w\"\ninput %1:i64[#0 #1] \"ids\"\n%2 = Embedding(%0, %1)\n%3 = tanh(%2)\noutput %3 \"y\"\n",
     NT_SIZES},
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
    static const char *const rows[] = {"#P=#T+1 | | y[N P] = x[N abs(P-1)]", "#P=#T | | y[N P] = x[N (P*P)//5]"};
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
