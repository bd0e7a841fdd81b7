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
    const struct graph_data data = {(const void *const *)in, (const void *const *)param, out};
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
    {"mean loss", NT "input %0:f64[#0 #1 3] \"x\"\n%1 = square(%0)\n%2 = Mean(%1)\noutput %2 \"loss\"\n", NT_SIZES},
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
         "%3, %4, %5 = BatchNormTrain(%0, %1, %2)\n%6 = relu(%3)\n%7 = Mean(%6) axes=[2,3]\noutput %7 \"y\"\n",
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
    {"heads",
     NT "input %0:f64[#0 #1 6] \"x\"\nparam %1:f64[6 6] \"w\"\n%2 = Linear(%0, %1)\n"
        "%3 = Reshape(%2) shape=[#0,#1,2,3]\n%4 = Permute(%3) perm=[0,2,1,3]\n%5 = Permute(%3) perm=[0,2,3,1]\n"
        "%6 = MatMul(%4, %5)\n%7 = Softmax(%6) axis=3\n%8 = MatMul(%7, %4)\n%9 = Permute(%8) perm=[0,2,1,3]\n"
        "%10 = Reshape(%9) shape=[#0*#1,6]\n%11 = Tril(%6)\n%12 = Mean(%11)\noutput %10 \"y\"\noutput %12 \"z\"\n",
     NT_SIZES},
    {"loss of tokens",
     NT "input %0:f64[#0 #1 3] \"x\"\ninput %1:i64[#0 #1] \"t\"\n%2 = Reshape(%0) shape=[#0*#1,3]\n"
        "%3 = Reshape(%1) shape=[-1]\n%4 = CrossEntropy(%2, %3)\noutput %4 \"loss\"\n",
     NT_SIZES},
    {"language model",
     N "dim #1 \"t\" hint=6 max=9\nparam %0:f64[3 4] \"wte\"\nparam %1:f64[9 4] \"wpe\"\ninput %2:i64[#0 #1] "
       "\"ids\"\n%3 = Embedding(%0, %2)\n"
       "%4 = Slice(%1) axes=[0] start=[0] end=[#1]\n%5 = add(%3, %4)\n%6 = LayerNorm(%5)\n%7 = gelu(%6)\n"
       "%8 = Linear(%7, %0)\n%9 = LogSoftmax(%8) axis=2\noutput %9 \"y\"\n",
     NT_SIZES},
    {"keys and values",
     N "dim #1 \"s\" hint=5 min=0\ndim #2 \"t\" hint=6\ninput %0:f64[#0 #1 3] \"past\"\ninput %1:f64[#0 #2 3] \"new\"\n"
       "%2 = Concat(%0, %1) axis=1\n%3 = square(%2)\n%4, %5 = Split(%3) axis=1 sizes=[#2,#1]\n"
       "%6 = Slice(%3) axes=[1] start=[1] end=[9223372036854775807]\n%7 = Sum(%5) axes=[1]\n"
       "output %4 \"a\"\noutput %6 \"b\"\noutput %7 \"c\"\n",
     {{1, 0, 1}, {4, 5, 6}, {2, 1, 7}, {3, 6, 1}, {2, 8, 3}}},
    {"moves",
     NT "input %0:f64[#0 #1 3] \"x\"\n%1 = square(%0)\n%2 = Flip(%1) axes=[1]\n%3 = Pad(%1) p=[0,1,0] q=[0,2,1]\n"
        "%4 = Slice(%1) axes=[1] start=[0] end=[9223372036854775807] step=[2]\n%5 = Stack(%1, %0) axis=1\n"
        "%6 = RepeatInterleave(%1) axis=1 n=2\n%7 = Tile(%1) n=[2,1,1]\n%8 = Permute(%1) perm=[1,0,2]\n"
        "%9 = Select(%1) axis=1 index=-1\noutput %2 \"a\"\noutput %3 \"b\"\noutput %4 \"c\"\noutput %5 \"d\"\n"
        "output %6 \"e\"\noutput %7 \"f\"\noutput %8 \"g\"\noutput %9 \"h\"\n",
     NT_SIZES},
    {"tiles of batch and time",
     NT "input %0:f64[1 #1 3] \"x\"\n%1 = square(%0)\n%2 = Tile(%1) n=[#0,2,1]\n%3 = Expand(%1) shape=[#0,#1,3]\n"
        "%4 = RepeatInterleave(%1) axis=1 n=#0\noutput %2 \"a\"\noutput %3 \"b\"\noutput %4 \"c\"\n",
     NT_SIZES},
    {"patches",
     N "dim #1 \"h\" hint=8 multiple=4\ndim #2 \"w\" hint=8 multiple=4\ninput %0:f64[#0 2 #1 #2] \"x\"\n"
       "param %1:f64[5 2 4 4] \"w\"\n%2 = Conv(%0, %1) s=4\n%3 = Reshape(%2) shape=[#0,5,-1]\n"
       "%4 = Permute(%3) perm=[0,2,1]\n%5 = Softmax(%4) axis=1\n%6 = Reshape(%0) shape=[#0,2,#1//4,4,#2//4,4]\n"
       "%7 = Permute(%6) perm=[0,2,4,1,3,5]\n%8 = Reshape(%7) shape=[#0,-1,32]\n%9 = square(%8)\n"
       "output %5 \"y\"\noutput %9 \"z\"\n",
     {{1, 4, 4}, {2, 8, 8}, {3, 4, 12}, {2, 16, 4}, {1, 8, 12}}},
    {"residual",
     NHW
     "input %0:f64[#0 3 #1 #2] \"x\"\nparam %1:f64[4 3 3 3] \"w1\"\nparam %2:f64[4] \"g\"\nparam %3:f64[4] \"b\"\n"
     "param %4:f64[4 4 3 3] \"w2\"\nparam %5:f64[5 4] \"w3\"\nparam %6:f64[5] \"b3\"\nparam %7:f64[4 3 1 1] \"w4\"\n"
     "%8 = Conv(%0, %1) s=2 p=1 q=1\n%9, %10, %11 = BatchNormTrain(%8, %2, %3)\n%12 = relu(%9)\n"
     "%13 = Conv(%12, %4) p=1 q=1\n%14 = Conv(%0, %7) s=2\n%15 = add(%13, %14)\n%16 = Mean(%15) axes=[2,3]\n"
     "%17 = Linear(%16, %5, %6)\n%18 = LogSoftmax(%17) axis=1\noutput %18 \"y\"\n",
     NHW_SIZES},
    {"gru backwards",
     NT "input %0:f64[#1 #0 3] \"x\"\nparam %1:f64[6 3] \"w\"\nparam %2:f64[6 2] \"u\"\nparam %3:f64[6] \"b\"\n"
        "%4, %5 = GRU(%0, %1, %2, %3) reverse=1\noutput %4 \"y\"\noutput %5 \"h\"\n",
     NT_SIZES},
    {"running sums",
     NT "input %0:f64[#0 #1 3] \"x\"\n%1 = CumSum(%0) axis=1\n%2 = CumProd(%0) axis=1\n%3 = CumMax(%0) axis=0\n"
        "output %1 \"a\"\noutput %2 \"b\"\noutput %3 \"c\"\n",
     NT_SIZES},
    {"fused attention",
     NT "input %0:f64[#0 2 #1 3] \"q\"\ninput %1:f64[#0 2 #1 3] \"k\"\ninput %2:f64[#0 2 #1 3] \"v\"\n"
        "%3 = Attention(%0, %1, %2) causal=1\noutput %3 \"y\"\n",
     NT_SIZES},
    {"gathers",
     NT "input %0:f64[#0 #1 3] \"x\"\ninput %1:i64[#0] \"i\"\n%2 = Gather(%0, %1) axis=2\n%3 = square(%2)\n"
        "output %3 \"y\"\n",
     NT_SIZES},
    {"borders",
     N "dim #1 \"t\" hint=6 min=4\ninput %0:f64[#0 #1] \"x\"\n%1 = Pad(%0) p=[0,3] q=[0,2] mode=reflect\n"
       "%2 = Pad(%0) p=[0,3] q=[0,2] mode=replicate\n%3 = Pad(%0) p=[0,1] q=[0,2] mode=circular\n"
       "output %1 \"a\"\noutput %2 \"b\"\noutput %3 \"c\"\n",
     {{1, 4}, {4, 6}, {2, 5}, {3, 11}, {1, 7}}},
    {"rolls",
     NT "input %0:f64[#0 #1] \"x\"\n%1 = square(%0)\n%2 = Roll(%1) shifts=[1,-2] axes=[0,1]\n"
        "%3 = Roll(%1) shifts=[#1//2] axes=[1]\noutput %2 \"a\"\noutput %3 \"b\"\n",
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
