/* Graphs with dimensions that vary: their text, shapes, loops and checks, compared with those of the same graph for
 * given sizes. */
#include "hlir/graph.h"
#include "layers/layers.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct sol_ctx *ctx;

static const char CNN[] = "graph \"cnn\"\n"
                          "dim #0 \"batch\" hint=8 min=0\n"
                          "dim #1 \"height\" hint=64 min=1\n"
                          "dim #2 \"width\" hint=64 min=5 max=4096\n"
                          "input %0:f32[N=#0 3 #1 #2] \"x\"\n"
                          "param %1:f32[32 3 3 3] \"w\"\n"
                          "%2 = Conv(%0, %1) s=2 p=1 q=1 \"conv\"\n"
                          "%3 = relu(%2)\n"
                          "%4 = MaxPool(%3) k=[3,3] s=2 p=1 q=1\n"
                          "%5 = MaxPool(%3) k=[2,2] s=2\n"
                          "%6 = Mean(%4) axes=[2,3]\n"
                          "output %6 \"mean\"\n"
                          "output %5 \"pooled\"\n";

static struct sol_graph *parse(const char *text)
{
    struct sol_graph *g = NULL;
    if (sol_graph_parse(ctx, text, &g)) fail_msg("%s", sol_error(ctx));
    return g;
}

static void text_comes_back(void **state)
{
    (void)state;
    struct sol_graph *g = parse(CNN);
    char *text, *again;
    assert_int_equal(sol_graph_print(g, &text), SOL_OK);
    struct sol_graph *h = parse(text);
    assert_int_equal(sol_graph_print(h, &again), SOL_OK);
    assert_string_equal(text, again);
    assert_non_null(strstr(text, "dim #2 \"width\" hint=64 min=5 max=4096 multiple=1"));
    assert_non_null(strstr(text, "f32[N=#0 C=32 P=(#1+1)//2 P=(#2+1)//2]"));
    sol_free(ctx, text);
    sol_free(ctx, again);
    sol_graph_destroy(g);
    sol_graph_destroy(h);
}

/* All tensors of the graph for these sizes have the shapes that the forms give. */
static void compare(const char *text, const int64_t *dim)
{
    struct sol_graph *g = parse(text), *at;
    if (graph_at(g, dim, &at)) fail_msg("%s", sol_error(ctx));
    assert_int_equal(at->tensors.n, g->tensors.n);
    for (int i = 0; i < g->tensors.n; i++)
        for (int d = 0; d < g->tensors.at[i]->ndim; d++)
            assert_int_equal(size_at(g->tensors.at[i]->dim[d].size, dim), at->tensors.at[i]->dim[d].size);
    assert_int_equal(graph_verify(g), SOL_OK);
    sol_graph_destroy(at);
    sol_graph_destroy(g);
}

static void shapes_are_those_of_the_sizes(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{1, 5, 5}, {8, 64, 64}, {3, 17, 250}, {0, 9, 11}};
    for (int i = 0; i < COUNT_OF(sizes); i++) compare(CNN, sizes[i]);
}

static void sizes_are_checked(void **state)
{
    (void)state;
    static const struct {
        int64_t dim[3];
        const char *message;
    } cases[] = {
        {{-1, 8, 8}, "dimension 'batch': expected 0 to"},
        {{1, 8, 5000}, "dimension 'width': expected 5 to 4096, got 5000"},
    };
    struct sol_graph *g = parse(CNN), *at;
    for (int i = 0; i < COUNT_OF(cases); i++) {
        assert_int_equal(graph_at(g, cases[i].dim, &at), SOL_ERR_INVALID);
        if (!strstr(sol_error(ctx), cases[i].message)) fail_msg("got: %s", sol_error(ctx));
    }
    sol_graph_destroy(g);
}

static void a_window_needs_its_size(void **state)
{
    (void)state;
    struct sol_graph *at, *g = parse("dim #0 \"h\" hint=20\ninput %0:f32[1 2 #0] \"x\"\nparam %1:f32[4 2 7] \"w\"\n"
                                     "%2 = Conv(%0, %1) \"conv\"\noutput %2 \"y\"\n");
    const int64_t good = 7, bad = 6;
    assert_int_equal(g->checks.n, 2);
    assert_int_equal(graph_at(g, &good, &at), SOL_OK);
    sol_graph_destroy(at);
    assert_int_equal(graph_at(g, &bad, &at), SOL_ERR_INVALID);
    assert_string_equal(sol_error(ctx), "layer 'conv' (Conv): it needs a size #0-7, which would be -1");
    sol_graph_destroy(g);
}

static void mistakes_name_forms(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"dim #1 \"b\"\n", "ascending number"},
        {"dim #0 \"b\" hint=3 multiple=2\n", "dimension 'b': expected a multiple of 2"},
        {"input %0:f32[#0]\n", "expected a size"},
        {"dim #0 \"b\"\ndim #1 \"c\"\ninput %0:f32[#0 2] \"x\"\ninput %1:f32[#1 2] \"y\"\n%2 = add(%0, %1)\n",
         "has size #1, that of other inputs is #0"},
        {"dim #0 \"b\"\ninput %0:f32[2 #0] \"x\"\nparam %1:f32[4 9] \"w\"\n%2 = Linear(%0, %1) \"fc\"\n",
         "dimension 1 of w is 9, but I is #0 elsewhere"},
        {"dim #0 \"b\"\nparam %0:f32[2 #0] \"w\"\n",
         "param 'w': dimension 1 is #0: expected a number, only inputs may have sizes that vary"},
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        struct sol_graph *g = NULL;
        assert_int_not_equal(sol_graph_parse(ctx, cases[i].text, &g), SOL_OK);
        if (!strstr(sol_error(ctx), cases[i].message))
            fail_msg("expected '%s' in '%s'", cases[i].message, sol_error(ctx));
    }
}

/* What a caller requires of sizes is a check, unless it holds for all of them. */
static void requirements_are_checks(void **state)
{
    (void)state;
    struct sol_graph *g = parse(CNN);
    const int64_t width = g->dims.at[2].size;
    const int before = g->checks.n;
    assert_int_equal(sol_graph_require(g, sol_size(SOL_SIZE_SUB, width, 5), "line net.py:3"), SOL_OK);
    assert_int_equal(g->checks.n, before);
    assert_int_equal(sol_graph_require(g, sol_size(SOL_SIZE_SUB, 100, width), "line net.py:9"), SOL_OK);
    assert_int_equal(graph_check_dims(g, (int64_t[]){1, 64, 100}), SOL_OK);
    assert_int_equal(graph_check_dims(g, (int64_t[]){1, 64, 101}), SOL_ERR_INVALID);
    assert_non_null(strstr(sol_error(ctx), "line net.py:9"));
    assert_int_equal(sol_graph_require(g, -1, "line net.py:12"), SOL_ERR_INVALID);
    sol_graph_destroy(g);
}

static int setup(void **state)
{
    (void)state;
    return sol_ctx_create(NULL, &ctx);
}

static int teardown(void **state)
{
    (void)state;
    sol_ctx_destroy(ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_comes_back),     cmocka_unit_test(shapes_are_those_of_the_sizes),
        cmocka_unit_test(sizes_are_checked),   cmocka_unit_test(a_window_needs_its_size),
        cmocka_unit_test(mistakes_name_forms), cmocka_unit_test(requirements_are_checks),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
