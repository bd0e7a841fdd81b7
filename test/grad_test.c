/* Tests gradients with the adjoint identity: for a function f of tensors x, a direction v and weights u of the outputs,
 * <u, (f(x+hv) - f(x-hv)) / 2h> equals <f'(u), v>, where f' is what sol_graph_differentiate appended. Everything is f64
 * and interpreted, so only the gradient is tested. Positive inputs and a small h avoid kinks. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "grad/grad.h"
#include "hlir/graph.h"
#include "sol/sol.h"

static uint64_t seed;

static double chance(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 11) / 9007199254740992.0;
}

static void fill(const struct sol_tensor *t, void *data, double low, double high)
{
    for (int64_t i = 0; i < tensor_elements(t); i++) {
        if (t->dtype == SOL_F64)
            ((double *)data)[i] = low + chance() * (high - low);
        else if (t->dtype == SOL_I64)
            ((int64_t *)data)[i] = (int64_t)(chance() * 3);
        else
            memset(data, 0, (size_t)(tensor_elements(t) * dtype_def(t->dtype)->bytes));
    }
}

static double dot(const double *a, const double *b, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += a[i] * b[i];
    return s;
}

struct data {
    struct sol_graph *g;
    void **in, **param, **out;
};

static void *room(const struct sol_tensor *t)
{
    return calloc((size_t)tensor_elements(t) + 1, 8);
}

static struct data data_of(struct sol_graph *g)
{
    struct data d = {g, calloc((size_t)g->inputs.n + 1, sizeof(void *)),
                     calloc((size_t)g->params.n + 1, sizeof(void *)), calloc((size_t)g->outputs.n + 1, sizeof(void *))};
    for (int i = 0; i < g->inputs.n; i++) d.in[i] = room(g->inputs.at[i]);
    for (int i = 0; i < g->params.n; i++) d.param[i] = room(g->params.at[i]);
    for (int i = 0; i < g->outputs.n; i++) d.out[i] = room(g->outputs.at[i].t);
    return d;
}

static void free_data(struct data *d)
{
    for (int i = 0; i < d->g->inputs.n; i++) free(d->in[i]);
    for (int i = 0; i < d->g->params.n; i++) free(d->param[i]);
    for (int i = 0; i < d->g->outputs.n; i++) free(d->out[i]);
    free(d->in);
    free(d->param);
    free(d->out);
}

static void evaluate(struct data *d)
{
    sol_status status = graph_interpret(d->g, (const void *const *)d->in, (const void *const *)d->param, d->out);
    if (status) fail_msg("%s", sol_error(ctx));
}

/* The sum of the outputs, weighted by the inputs after the first `inputs`. */
static double loss(struct data *d, int inputs, int outputs)
{
    double s = 0;
    evaluate(d);
    for (int i = 0; i < outputs; i++) s += dot(d->out[i], d->in[inputs + i], tensor_elements(d->g->outputs.at[i].t));
    return s;
}

static void check_tensor(struct data *d, const struct sol_tensor *t, double *x, const double *dx, int inputs,
                         int outputs)
{
    int64_t n = tensor_elements(t);
    double *keep = malloc((size_t)(n + 1) * 8), *v = malloc((size_t)(n + 1) * 8), *grad = malloc((size_t)(n + 1) * 8);
    memcpy(keep, x, (size_t)n * 8);
    memcpy(grad, dx, (size_t)n * 8);
    for (int round = 0; round < 6; round++) {
        const double h = 1e-6;
        int64_t only = (int64_t)(chance() * (double)n); /* in odd rounds, a single element */
        for (int64_t i = 0; i < n; i++) v[i] = round % 2 ? (i == only) : chance() * 2 - 1;
        for (int64_t i = 0; i < n; i++) x[i] = keep[i] + h * v[i];
        double up = loss(d, inputs, outputs);
        for (int64_t i = 0; i < n; i++) x[i] = keep[i] - h * v[i];
        double down = loss(d, inputs, outputs);
        memcpy(x, keep, (size_t)n * 8);
        double want = (up - down) / (2 * h), got = dot(grad, v, n);
        double size = sqrt(dot(grad, grad, n)) + fabs(want) + 1e-3;
        if (!(fabs(want - got) <= 2e-6 * size)) {
            char *text = NULL;
            sol_graph_print(d->g, &text);
            print_error("%s\n", text);
            fail_msg("gradient of '%s': expected %.9g along a direction, got %.9g", t->name, want, got);
        }
    }
    free(keep);
    free(v);
    free(grad);
}

/* Parsing the graph's text form must give the same loops. */
static void check_text(struct sol_graph *g)
{
    struct sol_graph *again;
    struct text text = text_new(g->arena);
    graph_print(g, &text);
    if (sol_graph_parse(ctx, text.at, &again)) fail_msg("%s\n%s", sol_error(ctx), text.at);
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

static void check_range(const char *text, double low, double high)
{
    struct sol_graph *g;
    if (sol_graph_parse(ctx, text, &g)) fail_msg("%s\n%s", sol_error(ctx), text);
    int inputs = g->inputs.n, outputs = 0, of[16], nwith = 0, reached[16];
    struct sol_tensor *with[16];
    while (outputs < g->outputs.n && g->outputs.at[outputs].t->dtype == SOL_F64) of[outputs] = outputs, outputs++;
    for (int i = 0; i < g->inputs.n; i++)
        if (g->inputs.at[i]->dtype == SOL_F64) with[nwith++] = g->inputs.at[i];
    for (int i = 0; i < g->params.n; i++)
        if (g->params.at[i]->dtype == SOL_F64) with[nwith++] = g->params.at[i];
    int forward = g->outputs.n;
    if (sol_graph_differentiate(g, outputs, of, nwith, with, reached)) fail_msg("%s\n%s", sol_error(ctx), text);
    if (graph_verify(g)) fail_msg("%s\n%s", sol_error(ctx), text);
    check_text(g);
    struct data d = data_of(g);
    seed = 1;
    for (int i = 0; i < g->inputs.n; i++) fill(g->inputs.at[i], d.in[i], i < inputs ? low : -1, i < inputs ? high : 1);
    for (int i = 0; i < g->params.n; i++) fill(g->params.at[i], d.param[i], low, high);
    evaluate(&d);
    for (int i = 0, k = forward; i < nwith; i++) {
        if (!reached[i]) continue;
        struct sol_tensor *t = with[i];
        evaluate(&d);
        check_tensor(&d, t, t->role == TENSOR_INPUT ? d.in[t->index] : d.param[t->index], d.out[k], inputs, outputs);
        k++;
    }
    free_data(&d);
    sol_graph_destroy(g);
}

static void check(const char *text)
{
    check_range(text, 0.2, 1.2);
}

#define UNARY(kind) "input %0:f64[3 5] \"x\"\n%1 = " kind "(%0)\noutput %1 \"y\"\n"
#define BINARY(kind) "input %0:f64[3 5] \"x\"\ninput %1:f64[3 5] \"z\"\n%2 = " kind "(%0, %1)\noutput %2 \"y\"\n"

static void maps(void **state)
{
    (void)state;
    static const char *const unary[] = {
        UNARY("neg"),       UNARY("exp"),        UNARY("log"),    UNARY("sqrt"),        UNARY("tanh"),
        UNARY("sigmoid"),   UNARY("relu"),       UNARY("silu"),   UNARY("gelu"),        UNARY("gelu_tanh"),
        UNARY("hardswish"), UNARY("abs"),        UNARY("square"), UNARY("rsqrt"),       UNARY("sin"),
        UNARY("erf"),       UNARY("mish"),       UNARY("relu6"),  UNARY("hardsigmoid"), UNARY("selu"),
        UNARY("softsign"),  UNARY("logsigmoid"),
    };
    static const char *const binary[] = {BINARY("add"),   BINARY("sub"),      BINARY("mul"), BINARY("div"),
                                         BINARY("pow"),   BINARY("max"),      BINARY("min"), BINARY("hypot"),
                                         BINARY("atan2"), BINARY("logaddexp")};
    for (int i = 0; i < COUNT_OF(unary); i++) check(unary[i]);
    for (int i = 0; i < COUNT_OF(binary); i++) check(binary[i]);
    check("input %0:f64[3 5] \"x\"\n%1 = mul(%0, %0)\n%2 = add(%1, %0)\noutput %2 \"y\"\n");
    check("input %0:f64[3 1] \"x\"\ninput %1:f64[5] \"z\"\n%2 = mul(%0, %1)\noutput %2 \"y\"\n");
}

static void contractions(void **state)
{
    (void)state;
    check("input %0:f64[4 6] \"x\"\nparam %1:f64[5 6] \"w\"\nparam %2:f64[5] \"b\"\n%3 = Linear(%0, %1, %2)\noutput %3 "
          "\"y\"");
    check("input %0:f64[2 3 7 6] \"x\"\nparam %1:f64[4 3 3 3] \"w\"\nparam %2:f64[4] \"b\"\n"
          "%3 = Conv(%0, %1, %2) p=[1,1] q=[1,1]\noutput %3 \"y\"");
    check("input %0:f64[2 3 7 6] \"x\"\nparam %1:f64[4 3 3 3] \"w\"\n"
          "%3 = Conv(%0, %1) p=[1,1] q=[1,1] s=[2,2]\noutput %3 \"y\"");
    check("input %0:f64[2 3 9 8] \"x\"\nparam %1:f64[4 3 3 2] \"w\"\n"
          "%3 = Conv(%0, %1) p=[2,0] q=[2,1] s=[3,2] d=[2,3]\noutput %3 \"y\"");
    check("input %0:f64[2 3 9 8] \"x\"\nparam %1:f64[4 3 1 1] \"w\"\n%3 = Conv(%0, %1) s=[2,2]\noutput %3 \"y\"");
    check("input %0:f64[2 2 67 45] \"x\"\nparam %1:f64[3 2 25 12] \"w\"\n" /* strides with too many residues */
          "%3 = Conv(%0, %1) s=[10,9] p=[3,0] q=[1,0]\noutput %3 \"y\"");
    check("input %0:f64[2 6 5 5] \"x\"\nparam %1:f64[4 3 3 3] \"w\"\n%3 = Conv(%0, %1) g=2\noutput %3 \"y\"");
    check("input %0:f64[2 6 5 5] \"x\"\nparam %1:f64[6 1 3 3] \"w\"\n%3 = Conv(%0, %1) g=6 p=1 q=1\noutput %3 \"y\"");
    check("input %0:f64[2 3 8 8] \"x\"\nparam %1:f64[4 3 4 4] \"w\"\n%3 = Conv(%0, %1) s=[4,4]\noutput %3 \"y\"");
    check("input %0:f64[2 3 9] \"x\"\nparam %1:f64[4 3 3] \"w\"\n%3 = Conv(%0, %1) s=2 p=1 q=1\noutput %3 \"y\"");
    check("input %0:f64[2 3 4 5] \"x\"\nparam %1:f64[3 4 3 3] \"w\"\n%3 = ConvT(%0, %1) s=2 p=1 q=1 o=1\noutput %3 "
          "\"y\"");
    check("input %0:f64[2 3 4] \"x\"\nparam %1:f64[3 4 2] \"w\"\n%3 = ConvT(%0, %1) s=2\noutput %3 \"y\"");
    check("input %0:f64[2 3 4] \"x\"\nparam %1:f64[3 4 3] \"w\"\n%3 = ConvT(%0, %1) s=2\noutput %3 \"y\"");
    check("input %0:f64[2 3 4 3] \"x\"\nparam %1:f64[3 4 3 2] \"w\"\n%3 = ConvT(%0, %1) s=2\noutput %3 \"y\"");
    check("input %0:f64[1 2 3 2 3] \"x\"\nparam %1:f64[2 2 3 3 3] \"w\"\n"
          "%3 = ConvT(%0, %1) s=2 p=1 q=1 o=1\noutput %3 \"y\"");
    check("input %0:f64[2 3 2 3 2] \"x\"\nparam %1:f64[3 4 2 3 2] \"w\"\n%3 = ConvT(%0, %1) s=2\noutput %3 \"y\"");
    check("input %0:f64[2 3 4] \"a\"\ninput %1:f64[2 4 5] \"b\"\n%3 = MatMul(%0, %1)\noutput %3 \"y\"");
    check("input %0:f64[2 3 4] \"a\"\ninput %1:f64[4 5] \"b\"\n%3 = MatMul(%0, %1)\noutput %3 \"y\"");
    check(
        "input %0:f64[2 3 4] \"a\"\ninput %1:f64[2 4 3] \"b\"\n%3 = Einsum(%0, %1) eq=\"bij,bji->b\"\noutput %3 \"y\"");
}

static void pools(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "MaxPool(%0) k=[2,2] s=[2,2]",
        "MaxPool(%0) k=[3,3] s=[2,2] p=[1,1] q=[1,1]",
        "AvgPool(%0) k=[2,2] s=[2,2]",
        "AvgPool(%0) k=[3,2] s=[3,2]",
        "AvgPool(%0) k=[3,3] s=[2,2] p=[1,1] q=[1,1] pads=0",
        "AvgPool(%0) k=[7,6] s=[7,6]",
        "LpPool(%0) k=[2,2] s=[2,2]",
        "AdaptiveAvgPool(%0) o=[3,4]",
        "AdaptiveAvgPool(%0) o=[1,1]",
        "AdaptiveMaxPool(%0) o=[3,2]",
        "Resize(%0) size=[2,3,14,12]",
        "Resize(%0) size=[2,3,10,9] mode=linear",
        "Resize(%0) size=[2,3,4,5] mode=cubic",
    };
    for (int i = 0; i < COUNT_OF(rows); i++) {
        char text[400];
        snprintf(text, sizeof text, "input %%0:f64[2 3 7 6] \"x\"\n%%1 = %s\noutput %%1 \"y\"\n", rows[i]);
        check(text);
    }
}

/* Gradients of windows and borders are right, and consist of ranges with weights or of a few statements, without tables
 * of positions. */
static void windows_and_borders(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "Resize(%0) size=[2,3,17,11] mode=linear",
        "Resize(%0) size=[2,3,4,5] mode=linear antialias=1",
        "Resize(%0) size=[2,3,14,12] mode=cubic coord=align_corners",
        "Resize(%0) size=[2,3,14,12] mode=linear",
        "Resize(%0) size=[2,3,9,13]",
        "AdaptiveAvgPool(%0) o=[3,4]",
        "AdaptiveAvgPool(%0) o=[9,4]",
        "Pad(%0) p=[0,0,1,2] q=[0,0,2,1] mode=reflect",
        "Pad(%0) p=[0,0,1,2] q=[0,0,2,1] mode=replicate",
        "Pad(%0) p=[0,0,1,2] q=[0,0,2,1] mode=circular",
        "Pad(%0) p=[0,0,5,4] q=[0,0,1,5] mode=reflect",
    };
    for (int i = 0; i < COUNT_OF(rows); i++) {
        char text[400];
        struct sol_graph *g;
        int of = 0, reached;
        snprintf(text, sizeof text, "input %%0:f64[2 3 7 6] \"x\"\n%%1 = %s\noutput %%1 \"y\"\n", rows[i]);
        check(text);
        assert_int_equal(sol_graph_parse(ctx, text, &g), 0);
        assert_int_equal(sol_graph_differentiate(g, 1, &of, 1, g->inputs.at, &reached), 0);
        for (const struct sol_layer *l = g->first; l; l = l->next)
            for (int k = 0; k < l->nin; k++)
                if (l->in[k] && l->in[k]->dtype == SOL_I64) fail_msg("%s: a table of places", rows[i]);
        sol_graph_destroy(g);
    }
}

static void reductions(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "Sum(%0) axes=[1]",
        "Mean(%0)",
        "Prod(%0) axes=[2]",
        "Max(%0) axes=[1]",
        "Min(%0)",
        "SumSquare(%0)",
        "L2(%0) axes=[0]",
        "LogSumExp(%0) axes=[2]",
        "Var(%0) axes=[1]",
        "Std(%0) axes=[0]",
        "Softmax(%0) axis=2",
        "LogSoftmax(%0) axis=1",
        "LayerNorm(%0) n=1",
        "LayerNorm(%0) n=2",
        "RMSNorm(%0) n=1",
        "InstanceNorm(%0)",
        "LRN(%0) n=3",
        "MaxAt(%0) axis=1",
        "CumSum(%0) axis=1",
        "CumSum(%0) axis=1 exclusive=1 reverse=1",
        "Sort(%0) axis=2",
        "CumProd(%0) axis=1",
        "CumProd(%0) axis=2 exclusive=1",
        "CumMax(%0) axis=1",
        "CumMin(%0) axis=0 reverse=1",
        "LogCumSumExp(%0) axis=2",
        "LogCumSumExp(%0) axis=0 reverse=1",
    };
    for (int i = 0; i < COUNT_OF(rows); i++) {
        char text[400];
        snprintf(text, sizeof text, "input %%0:f64[3 4 5] \"x\"\n%%1 = %s\noutput %%1 \"y\"\n", rows[i]);
        check(text);
    }
    check("input %0:f64[3 4 5] \"x\"\nparam %1:f64[4] \"w\"\nparam %2:f64[4] \"b\"\n"
          "%3, %4, %5 = BatchNormTrain(%0, %1, %2)\noutput %3 \"y\"\n");
    check("input %0:f64[3 4 5] \"x\"\nparam %1:f64[4] \"w\"\nparam %2:f64[4] \"b\"\nparam %3:f64[4] \"m\"\nparam "
          "%4:f64[4] "
          "\"v\"\n%5 = BatchNorm(%0, %1, %2, %3, %4)\noutput %5 \"y\"\n");
    check("input %0:f64[2 6 5] \"x\"\nparam %1:f64[6] \"w\"\nparam %2:f64[6] \"b\"\n%3 = GroupNorm(%0, %1, %2) "
          "g=3\noutput %3 "
          "\"y\"\n");
    check("input %0:f64[3 5] \"x\"\nparam %1:f64[5] \"w\"\nparam %2:f64[5] \"b\"\n%3 = LayerNorm(%0, %1, %2)\noutput "
          "%3 \"y\"\n");
}

static void moves(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "Permute(%0) perm=[2,0,1]",
        "Reshape(%0) shape=[12,6]",
        "Reshape(%0) shape=[3,2,2,6]",
        "Reshape(%0) shape=[9,8]",
        "Expand(%0) shape=[2,3,4,6]",
        "Slice(%0) axes=[1] start=[1] end=[3]",
        "Slice(%0) axes=[2] start=[0] end=[6] step=2",
        "Slice(%0) axes=[2] start=[5] end=[-7] step=-2",
        "Select(%0) axis=1 index=2",
        "Pad(%0) p=[0,1,2] q=[1,0,1]",
        "Pad(%0) p=[0,1,2] q=[0,2,1] mode=reflect",
        "Pad(%0) p=[0,1,2] q=[0,2,1] mode=replicate",
        "Pad(%0) p=[0,1,2] q=[0,2,1] mode=circular",
        "Flip(%0) axes=[1]",
        "Roll(%0) shifts=[1] axes=[2]",
        "Tile(%0) n=[2,1,3]",
        "RepeatInterleave(%0) axis=1 n=3",
        "Tril(%0)",
        "Diagonal(%0)",
        "Concat(%0, %0) axis=1",
        "Stack(%0, %0) axis=0",
        "Windows(%0) axis=2 n=3 s=1",
    };
    for (int i = 0; i < COUNT_OF(rows); i++) {
        char text[400];
        snprintf(text, sizeof text, "input %%0:f64[3 4 6] \"x\"\n%%1 = %s\noutput %%1 \"y\"\n", rows[i]);
        check(text);
    }
    check("input %0:f64[2 8 3 3] \"x\"\n%1 = PixelShuffle(%0) r=2\noutput %1 \"y\"\n");
    check("input %0:f64[3 4 6] \"x\"\n%1:f64[9 8] = Row(%0) text=\"x[A B C] -> y[D E] | #D=9; #E=8 | | "
          "y[D E] = x[(D*8+E)//24 (D*8+E)//6%4 (D*8+E)%6]\"\noutput %1 \"y\"\n");
    check("input %0:f64[2 3 6 6] \"x\"\n%1 = Unfold(%0) k=[3,3] p=1\noutput %1 \"y\"\n");
    check("input %0:f64[3 8 12 14] \"x\"\n%1 = Unfold(%0) k=[5,5] p=2\noutput %1 \"y\"\n"); /* too many to search */
    check("input %0:f64[2 8 24 22] \"x\"\n%1 = Unfold(%0) k=[5,3] s=2 p=1\noutput %1 \"y\"\n");
    check("input %0:f64[2 8] \"x\"\n%1, %2 = Split(%0) axis=1 sizes=[3,5]\n%3 = Concat(%2, %1) axis=1\noutput %3 "
          "\"y\"\n");
    check("input %0:f64[3 4] \"x\"\ninput %1:i64[5] \"i\"\n%2 = Gather(%0, %1) axis=0\noutput %2 \"y\"\n");
    check("param %0:f64[3 4] \"w\"\ninput %1:i64[5 2] \"i\"\n%2 = Embedding(%0, %1)\noutput %2 \"y\"\n");
}

/* With more points than are searched, gradients are added up by scattering. */
static void places_that_are_data(void **state)
{
    (void)state;
    check("input %0:f64[1 2 12 11] \"x\"\ninput %1:f64[1 9 14 2] \"g\"\n%2 = GridSample(%0, %1)\noutput %2 \"y\"\n");
    check(
        "input %0:f64[40 5] \"x\"\ninput %1:i64[90 2] \"i\"\n%2 = Row(%0, %1) text=\"x[A B] i:i64[C D] -> y[C B] | | | "
        "y[C B] = sum[D] x[i[C D]+D-1 B]:0 * x[i[C D] B]\"\noutput %2 \"y\"\n");
}

static void sequences(void **state)
{
    (void)state;
    check("input %0:f64[2 3 5 4] \"q\"\ninput %1:f64[2 3 6 4] \"k\"\ninput %2:f64[2 3 6 4] \"v\"\n"
          "%3 = Attention(%0, %1, %2)\noutput %3 \"y\"\n");
    check("input %0:f64[2 3 5 4] \"q\"\ninput %1:f64[2 3 6 4] \"k\"\ninput %2:f64[2 3 6 4] \"v\"\n"
          "%3 = Attention(%0, %1, %2) empty=safe\noutput %3 \"y\"\n");
    check("input %0:f64[2 4 5 4] \"q\"\ninput %1:f64[2 2 5 4] \"k\"\ninput %2:f64[2 2 5 4] \"v\"\n"
          "%3 = Attention(%0, %1, %2) causal=1\noutput %3 \"y\"\n");
    check("input %0:f64[4 3] \"x\"\ninput %1:i64[4] \"t\"\n%2 = CrossEntropy(%0, %1)\noutput %2 \"y\"\n");
}

/* Tests a recurrent layer of each kind, with any of its inputs and outputs, as one operator definition. */
static void recurrent(const char *kind, int gates, int states, int t, int n, int i, int h, const char *attrs,
                      unsigned given, unsigned used)
{
    static const char *const out[] = {"y", "h", "c"};
    char text[2000], args[200] = "";
    const int64_t shape[8][3] = {{t, n, i}, {gates * h, i}, {gates * h, h}, {gates * h}, {gates * h}, {n, h}, {n, h}};
    const int ndim[] = {3, 2, 2, 1, 1, 2, 2};
    int at = 0, id = 0;
    for (int k = 0; k < 5 + states; k++) {
        char *arg = args + strlen(args);
        if (k > 2 && !(given >> (k - 3) & 1)) {
            sprintf(arg, "%s-", k ? ", " : "");
            continue;
        }
        sprintf(arg, "%s%%%d", k ? ", " : "", id);
        at += sprintf(text + at, "%s %%%d:f64[%d", k == 0 || k > 4 ? "input" : "param", id++, (int)shape[k][0]);
        for (int d = 1; d < ndim[k]; d++) at += sprintf(text + at, " %d", (int)shape[k][d]);
        at += sprintf(text + at, "] \"in%d\"\n", k);
    }
    at += sprintf(text + at, "%%%d, %%%d", id, id + 1);
    if (states > 1) at += sprintf(text + at, ", %%%d", id + 2);
    at += sprintf(text + at, " = %s(%s) %s\n", kind, args, attrs);
    for (int o = 0; o <= states; o++)
        if (used >> o & 1) at += sprintf(text + at, "output %%%d \"%s\"\n", id + o, out[o]);
    check(text);
}

static void recurrences(void **state)
{
    (void)state;
    for (unsigned used = 1; used < 8; used++) recurrent("LSTM", 4, 2, 4, 2, 3, 2, "", 15, used);
    for (unsigned given = 0; given < 16; given++) recurrent("LSTM", 4, 2, 3, 2, 3, 3, "reverse=1", given, 3);
    for (unsigned given = 0; given < 8; given++) {
        recurrent("GRU", 3, 1, 3, 2, 2, 3, "", given, 1);
        recurrent("GRU", 3, 1, 3, 2, 2, 3, "reverse=1 inner=0", given, 3);
        recurrent("RNN", 1, 1, 3, 2, 4, 2, "reverse=1", given, 2);
        recurrent("RNN", 1, 1, 4, 2, 3, 2, "act=relu", given, 1);
    }
    for (int one = 0; one < 4; one++) { /* sizes of 1 */
        int t = one == 0 ? 1 : 3, n = one == 1 ? 1 : 2, i = one == 2 ? 1 : 3, h = one == 3 ? 1 : 2;
        recurrent("LSTM", 4, 2, t, n, i, h, "order=iofg", 15, 7);
        recurrent("GRU", 3, 1, t, n, i, h, "order=zrn", 7, 3);
        recurrent("RNN", 1, 1, t, n, i, h, "", 7, 3);
    }
    /* a state read before it is written, two states in a step, a read of a middle step */
    check("input %0:f64[5 3] \"x\"\nparam %1:f64[3] \"w\"\n%2, %3 = Row(%0, %1) text=\"x[T A] w[A] -> y[T A] z[A] | "
          "#T=5 | | "
          "p[T A] = q[T-1 A]:1 * w[A] + x[T A]; q[T A] = sin(p[T A]) + p[T-1 A]:0; y[T A] = p[T A] * q[T A];"
          "z[A] = q[2 A] * p[3 A]\"\noutput %2 \"y\"\noutput %3 \"z\"\n");
    /* two scans, the second in the opposite direction over the results of the first */
    check("input %0:f64[2 5] \"x\"\n%1 = Row(%0) text=\"x[A T] -> y[A T] | | | p[A T] = p[A T-1]:0.5 * x[A T];"
          "y[A T] = y[A T+1]:0 * x[A T] + p[A T]\"\noutput %1 \"y\"\n");
}

/* n statements, each of which reads the one before. The gradient needs every result. As a scan, all of them are in each
 * step. */
static void many_statements(int n, bool scan)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    const char *at = scan ? "A T" : "A";
    fprintf(f, "input %%0:f64[%s] \"x\"\n%%1 = Row(%%0) text=\"x[%s] -> y[%s] | | | ", scan ? "2 3" : "3", at, at);
    if (scan)
        fprintf(f, "t0[A T] = sin(x[A T] + t%d[A T-1]:0)", n - 1);
    else
        fprintf(f, "t0[A] = sin(x[A])");
    for (int i = 1; i < n; i++) fprintf(f, "; t%d[%s] = sin(t%d[%s] + %d)", i, at, i - 1, at, i % 3);
    fprintf(f, "; y[%s] = t%d[%s]\"\noutput %%1 \"y\"\n", at, n - 1, at);
    fclose(f);
    check(text);
    free(text);
}

static void large_layers(void **state)
{
    (void)state;
    many_statements(40, false);
    many_statements(320, false);
    many_statements(40, true);
}

static void networks(void **state)
{
    (void)state;
    check("input %0:f64[2 3 8 8] \"x\"\nparam %1:f64[4 3 3 3] \"w1\"\nparam %2:f64[4] \"g\"\nparam %3:f64[4] \"b\"\n"
          "param %4:f64[4 4 3 3] \"w2\"\nparam %5:f64[5 4] \"w3\"\nparam %6:f64[5] \"b3\"\n"
          "%7 = Conv(%0, %1) p=1 q=1\n%8, %9, %10 = BatchNormTrain(%7, %2, %3)\n%11 = relu(%8)\n"
          "%12 = Conv(%11, %4) p=1 q=1\n%13 = add(%12, %11)\n%14 = MaxPool(%13) k=[2,2] s=[2,2]\n"
          "%15 = AdaptiveAvgPool(%14) o=[1,1]\n%16 = Reshape(%15) shape=[2,4]\n%17 = Linear(%16, %5, %6)\n"
          "%18 = LogSoftmax(%17) axis=1\noutput %18 \"y\"\n");
}

static void no_sum(void *user, int32_t node)
{
    const struct loops *loops = ((struct sol_layer *)user)->loops;
    assert_true(loops->ex.at[node].kind != EX_RED);
}

/* Windows that are added up have copies as their gradient, not a search for the places that read an element. */
static void windows_are_copied_back(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "input %0:f64[2 18 80] \"x\"\n%1 = Fold(%0) o=[8,10] k=[3,3] p=[1,1]\noutput %1 \"y\"\n",
        "input %0:f64[2 32 20] \"x\"\n%1 = Fold(%0) o=[8,10] k=[4,4] s=[2,2] p=[1,1]\noutput %1 \"y\"\n",
        "input %0:f64[1 16 15] \"x\"\n%1 = Fold(%0) o=[2,4,6] k=[2,2,2]\noutput %1 \"y\"\n",
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct sol_graph *g;
        int of = 0, reached;
        if (sol_graph_parse(ctx, rows[i], &g)) fail_msg("%s\n%s", sol_error(ctx), rows[i]);
        struct sol_tensor *x = g->inputs.at[0];
        struct sol_layer *l = g->last;
        assert_int_equal(sol_graph_differentiate(g, 1, &of, 1, &x, &reached), 0);
        assert_non_null(l->next);
        while ((l = l->next))
            for (int s = 0; l->loops && s < l->loops->stmts.n; s++)
                ex_walk(l->loops, l->loops->stmts.at[s].value, no_sum, l);
        sol_graph_destroy(g);
    }
}

/* The element-wise terms of a tensor that is read in groups of channels are one layer. */
static void terms_in_groups_join(void **state)
{
    (void)state;
    static const char row[] = "input %0:f64[2 6 5] \"x\"\n%1 = GroupNorm(%0, -, -) g=2\noutput %1 \"y\"\n";
    struct sol_graph *g;
    int of = 0, reached;
    if (sol_graph_parse(ctx, row, &g)) fail_msg("%s", sol_error(ctx));
    struct sol_tensor *x = g->inputs.at[0];
    assert_int_equal(sol_graph_differentiate(g, 1, &of, 1, &x, &reached), 0);
    assert_int_equal(reached, 1);
    for (struct sol_layer *l = g->first; l; l = l->next) assert_string_not_equal(l->def->name, "add");
    sol_graph_destroy(g);
}

static void rejections(void **state)
{
    (void)state;
    struct sol_graph *g;
    int of = 0, reached;
    assert_int_equal(sol_graph_parse(ctx,
                                     "input %0:f64[4 3] \"x\"\ninput %1:f64[3] \"t\"\n"
                                     "%3 = nextafter(%0, %1) \"top\"\noutput %3 \"y\"\n",
                                     &g),
                     0);
    struct sol_tensor *x = g->inputs.at[0];
    assert_int_equal(sol_graph_differentiate(g, 1, &of, 1, &x, &reached), SOL_ERR_UNSUPPORTED);
    assert_non_null(strstr(sol_error(ctx), "top"));
    of = 3;
    assert_int_equal(sol_graph_differentiate(g, 1, &of, 1, &x, &reached), SOL_ERR_INVALID);
    sol_graph_destroy(g);
}

/* A residual network: relu(norm(conv(relu(norm(conv x)))) + x), `n` times. */
static char *residual(int n)
{
    char *text = malloc(4096 * (size_t)n), *at = text;
    int id = 1, x = 0, weight[32];
    at += sprintf(at, "input %%0:f32[1 256 8 8] \"x\"\n");
    for (int i = 0; i < 2 * n; i++) {
        weight[i] = id++;
        at += sprintf(at, "param %%%d:f32[256 256 3 3] \"w%d\"\n", weight[i], i);
    }
    for (int i = 0, from = 0; i < 2 * n; i++) {
        at += sprintf(at, "%%%d = Conv(%%%d, %%%d) p=[1,1] q=[1,1]\n", id, from, weight[i]);
        at += sprintf(at, "%%%d, %%%d, %%%d = BatchNormTrain(%%%d)\n", id + 1, id + 2, id + 3, id);
        id += 4;
        if (i % 2) {
            at += sprintf(at, "%%%d = add(%%%d, %%%d)\n", id, id - 3, x);
            id++;
        }
        at += sprintf(at, "%%%d = relu(%%%d) \"r%d\"\n", id, i % 2 ? id - 1 : id - 3, i);
        from = id++;
        if (i % 2) x = from;
    }
    sprintf(at, "output %%%d \"y\"\n", x);
    return text;
}

/* What is saved by default: sums of branches in the middle are recomputed; each level of training::memory needs less
 * than the one before. */
static void what_is_kept(void **state)
{
    (void)state;
    struct sol_graph *g;
    struct checkpointing *k;
    int of = 0, reached[16];
    char *text = residual(4);
    if (sol_graph_parse(ctx, text, &g)) fail_msg("%s\n%s", sol_error(ctx), text);
    assert_int_equal(sol_graph_differentiate(g, 1, &of, 8, g->params.at, reached), 0);
    assert_int_equal(checkpoint_make(g, &k), 0);
    checkpoint_levels(k);
    assert_true(k->levels.n > CHECKPOINT_SOURCES + 1 && k->balanced > CHECKPOINT_SOURCES && k->balanced <= k->small);
    for (int i = 1; i < k->levels.n; i++) assert_true(k->levels.at[i].bytes < k->levels.at[i - 1].bytes);
    const int64_t tensor = INT64_C(4) * 256 * 8 * 8;
    assert_true(k->levels.at[k->balanced].bytes <= k->levels.at[CHECKPOINT_SOURCES].bytes - tensor);
    checkpoint_level(k, CHECKPOINT_SOURCES);
    struct sol_tensor *sum = NULL;
    for (struct sol_layer *l = g->first; l; l = l->next)
        if (!strcmp(l->name, "r3") && !strcmp(l->def->name, "relu")) sum = l->out[0];
    assert_non_null(sum);
    assert_true(checkpoint_keeps(k, sum));
    checkpoint_level(k, k->levels.n - 1);
    assert_false(checkpoint_keeps(k, sum));
    sol_graph_destroy(g);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps),
        cmocka_unit_test(contractions),
        cmocka_unit_test(pools),
        cmocka_unit_test(windows_and_borders),
        cmocka_unit_test(reductions),
        cmocka_unit_test(moves),
        cmocka_unit_test(sequences),
        cmocka_unit_test(places_that_are_data),
        cmocka_unit_test(recurrences),
        cmocka_unit_test(networks),
        cmocka_unit_test(large_layers),
        cmocka_unit_test(rejections),
        cmocka_unit_test(what_is_kept),
        cmocka_unit_test(windows_are_copied_back),
        cmocka_unit_test(terms_in_groups_join),
    };
    return cmocka_run_group_tests(tests, make_ctx, drop_ctx);
}
