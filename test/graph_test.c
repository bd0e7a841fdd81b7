/* The graph: printing and parsing its text form, errors with line and column, changes, the verifier, known values,
 * operation counts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "hlir/graph.h"
#include "layers/layers.h"

static struct sol_graph *parse(const char *text)
{
    struct sol_graph *g;
    if (sol_graph_parse(ctx, text, &g)) fail_msg("%s\n%s", sol_error(ctx), text);
    assert_int_equal(graph_verify(g), SOL_OK);
    return g;
}

static struct sol_tensor *output(struct sol_graph *g, int i)
{
    return g->outputs.at[i].t;
}

/* -- text */

/* Printing gives this text again. */
static const char plain[] = "graph \"a \\\"name\\\" \\\\ \\x0a\"\n"
                            "input %0:f32[N=2 C=3 P=8 P=8] \"x\"\n"
                            "param %1:f32[4 3 3 3] \"w\"\n"
                            "const %2:f32[] = 0.5\n"
                            "const %3:i64[3] = -1 2 9223372036854775807\n"
                            "const %4:u64[1] = 18446744073709551615\n"
                            "const %5:f64[4] = 0.1 -0 inf -inf\n"
                            "const %6:bool[2] = 1 0 \"flags\"\n"
                            "const %7:f32[2 40] = splat 1e-30\n"
                            "const %8:f16[2] = hex 003c00c0\n"
                            "const %9:f32[1] = hex 0100807f\n"
                            "const %10:i8[0] =\n"
                            "%11:f32[N=2 C=4 P=6 P=6] = Conv(%0, %1, -) s=[1,1] \"conv\" @model.py:41\n"
                            "%12:f32[N=2 C=4 P=6 P=6] = Expand(%2) shape=[2,4,6,6]\n"
                            "%13:f32[N=2 C=4 P=6 P=6] = mul(%11, %12)\n"
                            "%14:f32[N=2 C=4 P=2 P=6], %15:f32[N=2 C=4 P=4 P=6] = Split(%13) axis=2 sizes=[2,4]\n"
                            "%16:f32[N=2 C=4] = LpNorm(%14) n=-inf axes=[2,3] \"norm\" @\"my file.py:3\"\n"
                            "%17:f32[N=2 N=2] = Einsum(%16, %16) eq=\"ab,cb->ca\"\n"
                            "output %15 \"y\"\n"
                            "output %15 \"again\"\n";

static void text_there_and_back(void **state)
{
    (void)state;
    char *text;
    struct sol_graph *g = parse(plain);
    assert_int_equal(sol_graph_print(g, &text), SOL_OK);
    assert_string_equal(text, plain);
    sol_free(ctx, text);
    sol_graph_destroy(g);
}

static void text_means_its_bits(void **state)
{
    (void)state;
    struct sol_graph *g = parse("const %5:f64[3] = 0.1 -0 nan # a comment\n\nconst %7:i16[3] = splat -3\n"
                                "const %9:f32[2] = seed 3\nconst %10:f32[2] = seed 3\nconst %11:i64[5]=seed 1\n");
    const double *d = g->tensors.at[0]->data;
    assert_true(d[0] == 0.1 && signbit(d[1]) && isnan(d[2]));
    assert_int_equal(((const int16_t *)g->tensors.at[1]->data)[2], -3);
    assert_memory_equal(g->tensors.at[2]->data, g->tensors.at[3]->data, 8);
    const int64_t *n = g->tensors.at[4]->data;
    for (int i = 0; i < 5; i++) assert_in_range(n[i], 0, 9);
    sol_graph_destroy(g);
}

static void outputs_at_the_end_may_be_left_out(void **state)
{
    (void)state;
    struct sol_graph *g = parse("input %0:f32[5] \"x\"\n%1 = TopK(%0) k=2\noutput %1 \"y\"\n");
    char *text;
    assert_int_equal(sol_graph_print(g, &text), SOL_OK);
    struct sol_graph *again = parse(text);
    assert_int_equal(again->first->nout, 2);
    sol_free(ctx, text);
    sol_graph_destroy(g);
    sol_graph_destroy(again);
}

static void mistakes_have_a_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"graph x", "line 1, column 7: expected the end of the line, got 'x'"},
        {"input %0:f32[2 \"x\"", "line 1, column 16: expected an integer"},
        {"input %0:f33[2] \"x\"", "line 1, column 10: expected a type"},
        {"input %0[2]", "line 1, column 9: expected ':' and a type, got '[2]'"},
        {"\nconst %0:f32[2] = 1", "line 2, column 20: expected a number, got ''"},
        {"const %0:f32[1] = hex 00", "line 1, column 25: expected 4 bytes in hexadecimal"},
        {"const %0:f16[1] = 1", "line 1, column 19: expected hex"},
        {"const %0:f32[999999999999999] = 1", "999999999999999"},
        {"const %0:f32[-1] = 1", "got -1"},
        {"input %0:f32[1]\ninput %0:f32[1]", "line 2: %0 is defined twice"},
        {"input %0:f32[1]\n%1 = relu(%2)", "line 2, column 11: expected a tensor defined above, got '%2)'"},
        {"input %0:f32[1]\n%1 = relu(%0", "line 2, column 13: expected ','"},
        {"input %0:f32[1]\n%1 relu(%0)", "line 2, column 4: expected '=', got 'relu(%0)'"},
        {"input %0:f32[1]\n%1:f32[2] = relu(%0)", "line 2: %1: the layer makes f32[1], not what is written"},
        {"input %0:f32[1]\n%1, %2 = relu(%0)", "line 2: relu has 1 outputs, 2 are named"},
        {"input %0:f32[1]\n%1 = relo(%0) \"r\" @a.py:3", "line 2: layer 'r': a.py:3: no layer is called 'relo'"},
        {"input %0:f32[1]\n%1 = Sum(%0) axes=[0,] ", "line 2, column 22: expected a number"},
        {"input %0:f32[1]\n%1 = Sum(%0) axis=0", "unknown attribute 'axis'; it has: axes=[] keep=0"},
        {"input %0:f32[1]\n%1 = Sum(%0) keep=1 keep=0", "attribute 'keep' is given twice"},
        {"input %0:f32[1] \"x\noutput %0", "line 1, column 17: expected text that ends with a quote on the same line"},
        {"input %0:f32[1 1 1 1 1 1 1 1 1 1 1 1 1]", "at most 12 dimensions"},
        {"nonsense", "line 1, column 1: expected define, dim, input, param, const, output or a layer"},
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        struct sol_graph *g;
        assert_int_not_equal(sol_graph_parse(ctx, cases[i].text, &g), SOL_OK);
        assert_null(g);
        if (!strstr(sol_error(ctx), cases[i].message))
            fail_msg("expected '%s' in '%s'", cases[i].message, sol_error(ctx));
    }
}

/* -- changes */

static const char chain[] = "input %0:f32[2 3] \"x\"\n"
                            "%1 = neg(%0)\n"
                            "%2 = relu(%1)\n"
                            "%3 = add(%1, %2)\n"
                            "output %3 \"y\"\noutput %2 \"z\"\n";

static void replacing_and_removing(void **state)
{
    (void)state;
    struct sol_graph *g = parse(chain);
    struct sol_layer *neg = g->first, *relu = neg->next, *add = g->last;
    graph_count_uses(g);
    assert_int_equal(tensor_uses(neg->out[0]), 2);
    assert_int_equal(tensor_uses(relu->out[0]), 2);
    graph_replace(g, relu->out[0], neg->out[0]);
    graph_remove(g, relu);
    assert_ptr_equal(add->in[1], neg->out[0]);
    assert_ptr_equal(output(g, 1), neg->out[0]);
    assert_int_equal(graph_verify(g), SOL_OK);
    graph_count_uses(g);
    assert_int_equal(tensor_uses(neg->out[0]), 3);
    sol_graph_destroy(g);
}

static void adding_in_front(void **state)
{
    (void)state;
    struct sol_graph *g = parse(chain);
    struct sol_layer *l, *add = g->last;
    assert_int_equal(
        graph_add(g, add, &(struct new_layer){.kind = "exp", .nin = 1, .in = &g->first->out[0], .name = "e"}, &l),
        SOL_OK);
    assert_ptr_equal(add->prev, l);
    assert_int_equal(graph_verify(g), SOL_OK);
    sol_graph_destroy(g);
}

static void broadcasting_makes_expands(void **state)
{
    (void)state;
    struct sol_graph *g = parse("input %0:f32[2 3] \"x\"\ninput %1:f32[3] \"b\"\n%2 = add(%0, %1)\n%3 = mul(%1, %1)\n"
                                "output %2 \"y\"\n");
    assert_string_equal(g->first->def->name, "Expand");
    assert_string_equal(g->first->next->def->name, "add");
    assert_string_equal(g->first->next->next->def->name, "mul");
    sol_graph_destroy(g);
}

static void the_verifier_sees(void **state)
{
    (void)state;
    struct sol_graph *g = parse(chain);
    struct sol_layer *relu = g->first->next;
    struct sol_tensor *kept = relu->in[0];
    relu->in[0] = g->last->out[0];
    assert_int_equal(graph_verify(g), SOL_ERR_INTERNAL);
    assert_non_null(strstr(sol_error(ctx), "made behind it"));
    relu->in[0] = kept;
    relu->out[0]->dim[0].size = 4;
    assert_int_equal(graph_verify(g), SOL_ERR_INTERNAL);
    assert_non_null(strstr(sol_error(ctx), "shape"));
    relu->out[0]->dim[0].size = 2;
    kept->dtype = SOL_F64;
    assert_int_equal(graph_verify(g), SOL_ERR_INTERNAL);
    kept->dtype = SOL_F32;
    relu->out[0]->from_out = 1;
    assert_int_equal(graph_verify(g), SOL_ERR_INTERNAL);
    relu->out[0]->from_out = 0;
    graph_remove(g, relu); /* still has a reader */
    assert_int_equal(graph_verify(g), SOL_ERR_INTERNAL);
    sol_graph_destroy(g);
}

static void purposes_follow_the_loops(void **state)
{
    (void)state;
    struct sol_graph *g = parse("input %0:f32[2 3 8 8] \"x\"\nparam %1:f32[4 3 3 3] \"w\"\n"
                                "%2 = Conv(%0, %1) p=1 q=1\n%3 = relu(%2)\n%4 = Permute(%3) perm=[0,2,3,1]\n"
                                "%5 = Sum(%4) axes=[1] keep=1\n%6 = Slice(%5) axes=[3] start=1 end=3\n"
                                "%7 = Concat(%6, %6) axis=2\n%8 = Reshape(%7) shape=[2,-1]\noutput %8 \"y\"\n"
                                "%9 = Resize(%3) size=[2,4,96,96] mode=linear\n%10 = Resize(%4) size=[2,4,12,4]\n"
                                "output %9 \"linear\"\noutput %10 \"nearest\"\n");
    static const char *const want[] = {"NCPP", "NCPP", "NPPC", "N\1PC", "N\1PC", "N\1PC", "N\1", "NCPP", "NPPC"};
    int i = 0;
    for (const struct sol_layer *l = g->first; l; l = l->next, i++)
        for (int d = 0; d < l->out[0]->ndim; d++)
            assert_int_equal(l->out[0]->dim[d].purpose, want[i][d] == 1 ? 0 : want[i][d]);
    sol_graph_destroy(g);
}

/* -- values and work */

static void known_values(void **state)
{
    (void)state;
    struct sol_graph *g = parse("const %0:i64[3] = 2 3 4\nconst %1:i64[1] = 1\ninput %2:i64[] \"x\"\n"
                                "%3 = Gather(%0, %1)\n%4 = mul(%3, %3)\n%5 = neg(%2)\n"
                                "%6 = Rand(%2) n=2\n%7, %8 = TopK(%0) k=1\n"
                                "output %4 \"a\"\noutput %5 \"b\"\noutput %6 \"c\"\noutput %8 \"d\"\n");
    const int64_t *v = sol_tensor_known(output(g, 0)), *top = sol_tensor_known(output(g, 3));
    assert_int_equal(v[0], 9);
    assert_ptr_equal(sol_tensor_known(output(g, 0)), v);
    assert_null(sol_tensor_known(output(g, 1)));
    assert_null(sol_tensor_known(output(g, 2)));
    assert_int_equal(top[0], 2);
    sol_graph_destroy(g);
}

static void long_chains_of_known_values(void **state)
{
    (void)state;
    struct sol_graph *g;
    struct sol_tensor *t;
    int64_t one = 1, shape[] = {1};
    assert_int_equal(sol_graph_create(ctx, "long", &g), SOL_OK);
    assert_int_equal(sol_graph_const(g, SOL_I64, 1, shape, &one, &t), SOL_OK);
    for (int i = 0; i < 3000; i++) {
        struct sol_tensor *in[] = {t, t};
        assert_int_equal(
            sol_graph_layer(g, &(struct sol_new_layer){.kind = i % 2 ? "sub" : "add", .nin = 2, .in = in}, 1, &t),
            SOL_OK);
    }
    const int64_t *v = sol_tensor_known(t);
    assert_int_equal(*v, 0);
    sol_graph_destroy(g);
}

static void work_is_counted(void **state)
{
    (void)state;
    static const struct {
        const char *layers;
        double flops, bytes;
    } cases[] = {
        {"%2 = MatMul(%0, %1)", 2 * 4 * 8 * 5, 4 * (4 * 8 + 8 * 5 + 4 * 5)},
        {"%2 = add(%0, %0)", 32, 3 * 128},
        {"%2 = Permute(%0) perm=[1,0]", 0, 2 * 128},
        {"%2 = Sum(%0) axes=[1]", 32, 128 + 16},
        {"%2 = Linear(%0, %0)", 2 * 4 * 8 * 4, 2 * 128 + 64},
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        char text[256];
        double flops, bytes;
        snprintf(text, sizeof text, "input %%0:f32[4 8] \"a\"\ninput %%1:f32[8 5] \"b\"\n%s\noutput %%2 \"y\"\n",
                 cases[i].layers);
        struct sol_graph *g = parse(text);
        graph_work(g, &flops, &bytes);
        assert_true(flops == cases[i].flops);
        assert_true(bytes == cases[i].bytes);
        sol_graph_destroy(g);
    }
}

static void whole_graphs_are_interpreted(void **state)
{
    (void)state;
    struct sol_graph *g =
        parse("input %0:f32[2 2] \"x\"\nparam %1:f32[1 2] \"w\"\nconst %2:f32[2 1] = 1 -100\n"
              "%3 = Linear(%0, %1)\n%4 = add(%3, %2)\n%5 = relu(%4)\noutput %5 \"y\"\noutput %0 \"x\"\n");
    const float x[] = {1, 2, 3, 4}, w[] = {10, 1};
    float y[2], again[4];
    const void *in[] = {x}, *params[] = {w};
    void *out[] = {y, again};
    assert_int_equal(graph_interpret(g, in, params, out), SOL_OK);
    assert_true(y[0] == 13 && y[1] == 0);
    assert_memory_equal(again, x, sizeof x);
    sol_graph_destroy(g);
}

/* -- the public functions */

static void callers_mistakes(void **state)
{
    (void)state;
    struct sol_graph *g, *other;
    struct sol_tensor *t, *foreign, *out[2];
    int64_t shape[13] = {2, 3}, many = -1;
    assert_int_equal(sol_graph_create(ctx, NULL, &g), SOL_OK);
    assert_int_equal(sol_graph_create(ctx, "other", &other), SOL_OK);
    assert_int_equal(sol_graph_input(g, "x", (enum sol_dtype)99, 1, shape, &t), SOL_ERR_INVALID);
    assert_int_equal(sol_graph_input(g, "x", SOL_F32, 13, shape, &t), SOL_ERR_UNSUPPORTED);
    assert_int_equal(sol_graph_input(g, "x", SOL_F32, 1, &many, &t), SOL_ERR_INVALID);
    assert_int_equal(sol_graph_const(g, SOL_F32, 1, shape, NULL, &t), SOL_ERR_INVALID);
    assert_int_equal(sol_graph_input(g, "x", SOL_F32, 2, shape, &t), SOL_OK);
    assert_int_equal(sol_graph_input(other, "x", SOL_F32, 2, shape, &foreign), SOL_OK);
    assert_int_equal(sol_graph_output(g, "y", foreign), SOL_ERR_INVALID);
    assert_int_equal(sol_graph_output(g, "y", NULL), SOL_ERR_INVALID);
    assert_int_equal(
        sol_graph_layer(g, &(struct sol_new_layer){.kind = "relu", .nin = 1, .in = &foreign, .name = "r"}, 1, out),
        SOL_ERR_INVALID);
    assert_int_equal(
        sol_graph_layer(g, &(struct sol_new_layer){.kind = "relu", .nin = 1, .in = &t, .name = "r"}, 2, out),
        SOL_ERR_INVALID);
    assert_non_null(strstr(sol_error(ctx), "it has 1 outputs, 2 were asked for"));
    struct sol_attr attrs[] = {{.name = "axis", .kind = SOL_ATTR_INT, .n = -1, .ints = &many}, {.name = NULL}};
    assert_int_equal(
        sol_graph_layer(
            g, &(struct sol_new_layer){.kind = "Softmax", .nin = 1, .in = &t, .nattr = 2, .attrs = attrs, .name = "s"},
            1, out),
        SOL_ERR_INVALID);
    assert_int_equal(
        sol_graph_layer(
            g, &(struct sol_new_layer){.kind = "Softmax", .nin = 1, .in = &t, .nattr = 1, .attrs = attrs, .name = "s"},
            1, out),
        SOL_OK);
    assert_int_equal(sol_tensor_size(out[0], 1), 3);
    assert_true(sol_layer_known(ctx, "Conv") && sol_layer_known(ctx, "relu") && !sol_layer_known(ctx, "conv"));
    sol_graph_destroy(g);
    sol_graph_destroy(other);
    sol_graph_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_there_and_back),
        cmocka_unit_test(text_means_its_bits),
        cmocka_unit_test(outputs_at_the_end_may_be_left_out),
        cmocka_unit_test(mistakes_have_a_place),
        cmocka_unit_test(replacing_and_removing),
        cmocka_unit_test(adding_in_front),
        cmocka_unit_test(broadcasting_makes_expands),
        cmocka_unit_test(the_verifier_sees),
        cmocka_unit_test(purposes_follow_the_loops),
        cmocka_unit_test(known_values),
        cmocka_unit_test(long_chains_of_known_values),
        cmocka_unit_test(work_is_counted),
        cmocka_unit_test(whole_graphs_are_interpreted),
        cmocka_unit_test(callers_mistakes),
    };
    return cmocka_run_group_tests_name("graph", tests, make_ctx, drop_ctx);
}
