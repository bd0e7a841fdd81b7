/* Layers and passes from outside: definitions, C functions with gradients, plug-ins, and what they must reject. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "hlir/graph.h"
#include "sol/extend.h"

static void good(sol_status status)
{
    if (status) fail_msg("%s", sol_error(ctx));
}

static void bad(const struct sol_layer_def *def, const char *message)
{
    struct sol_layer_def d = *def;
    d.size = sizeof d;
    assert_int_not_equal(sol_layer_register(ctx, &d), SOL_OK);
    if (!strstr(sol_error(ctx), message)) fail_msg("expected '%s', got '%s'", message, sol_error(ctx));
}

static void add(const struct sol_layer_def *def)
{
    struct sol_layer_def d = *def;
    d.size = sizeof d;
    good(sol_layer_register(ctx, &d));
}

static const char *const scale = "x[A..] w[] -> y[A..] | y[A] = s * w[] * x[A]";

/* -- what is rejected */

static void messages(void **state)
{
    (void)state;
    bad(&(struct sol_layer_def){.name = "scale", .definition = scale}, "expected a namespace and a name");
    bad(&(struct sol_layer_def){.name = "a::b::c", .definition = scale}, "expected a namespace and a name");
    bad(&(struct sol_layer_def){.name = "my::scale"}, "expected a name and a definition");
    bad(&(struct sol_layer_def){.name = "my::scale", .definition = "x[A] -> y[A] | y[A] = x[A"},
        "definition my::scale: column 26: expected");
    bad(&(struct sol_layer_def){.name = "my::scale", .definition = "x[A] -> y[A]\n  | y[A] = nosuch(x[A])"},
        "definition my::scale: line 2, column 12: expected a function");
    bad(&(struct sol_layer_def){.name = "my::scale", .definition = scale},
        "its definition uses 's', which is no attribute; the attributes are: none");
    bad(&(struct sol_layer_def){.name = "my::scale", .definition = scale, .attributes = "s=1.0 k:whole"},
        "attributes, column 7: expected name=default or name:kind");
    bad(&(struct sol_layer_def){.name = "my::scale", .definition = scale, .attributes = "s=1.0x"},
        "attributes, column 1");
    bad(
        &(struct sol_layer_def){
            .name = "my::scale", .definition = scale, .attributes = "s=1.0", .gradient = "my::none"},
        "no layer is called 'my::none'; register it first");
    add(&(struct sol_layer_def){.name = "my::g", .definition = "z[A] -> d_x[A] | d_x[A] = z[A]"});
    bad(&(struct sol_layer_def){.name = "my::scale", .definition = scale, .attributes = "s=1.0", .gradient = "my::g"},
        "input z: expected an input or output of my::scale, or d_ and an output");
    add(&(struct sol_layer_def){.name = "my::same", .definition = scale, .attributes = "s=1.0"});
    add(&(struct sol_layer_def){.name = "my::same", .definition = scale, .attributes = "s=1.0"});
    bad(&(struct sol_layer_def){.name = "my::same", .definition = scale, .attributes = "s=2.0"},
        "registered with another definition");
    add(&(struct sol_layer_def){.name = "my::same", .definition = scale, .attributes = "s=2.0", .replace = 1});
    struct sol_layer_def old = {.size = 8, .name = "my::old", .definition = scale};
    assert_int_equal(sol_layer_register(ctx, &old), SOL_ERR_INVALID);
}

static void messages_of_functions(void **state)
{
    (void)state;
    const char *source = "int32_t f(void *const *t, const int64_t *n, const double *r) { return 0; }";
    const char *head = "x:f32[A..] -> y:f32[A..]";
    bad(&(struct sol_layer_def){.name = "my::f", .definition = head, .source = source, .symbol = "2f"},
        "symbol: expected the name of the function");
    bad(&(struct sol_layer_def){.name = "my::f", .definition = head, .source = source, .symbol = "g"},
        "layer my::f: symbol: its source defines no function 'g'");
    bad(
        &(struct sol_layer_def){
            .name = "my::f", .definition = head, .source = "int32_t f(void) { retrun 1; }", .symbol = "f"},
        "f.c:1:");
    bad(
        &(struct sol_layer_def){
            .name = "my::f", .definition = head, .source = "int32_t f(void) { return 1; }", .symbol = "f"},
        "expected int32_t f(void *const *tensors");
    bad(&(struct sol_layer_def){.name = "my::f", .definition = "x[A] -> y:f32[A]", .source = source, .symbol = "f"},
        "tensor x: a function's tensors have given types");
    bad(
        &(struct sol_layer_def){
            .name = "my::f", .definition = "x:f32[A] b?:f32[A] -> y:f32[A]", .source = source, .symbol = "f"},
        "a function has no optional inputs");
    bad(&(struct sol_layer_def){.name = "my::f", .definition = scale, .source = source, .symbol = "f"},
        "definition my::f");
}

/* -- networks */

struct net {
    struct sol_graph *g;
    struct sol_net *net;
    struct sol_params *params;
};

static struct net make(const char *text)
{
    struct net n = {0};
    good(sol_graph_parse(ctx, text, &n.g));
    good(sol_compile(ctx, n.g, &n.net));
    good(sol_params_create(n.net, &n.params));
    return n;
}

static void drop(struct net *n)
{
    sol_params_destroy(n->params);
    sol_net_destroy(n->net);
    sol_graph_destroy(n->g);
}

static void definition_runs(void **state)
{
    (void)state;
    add(&(struct sol_layer_def){.name = "my::scale", .definition = scale, .attributes = "s=3.0"});
    struct net n =
        make("input %0:f32[2 3]\ninput %1:f32[]\n%2 = my::scale(%0, %1) s=0.5\n%3 = my::scale(%2, %1)\noutput %3");
    float x[6] = {1, 2, 3, -4, 5, 6}, w = 2, y[6];
    good(sol_net_run(n.net, n.params, (const void *[]){x, &w}, (void *[]){y}, 2));
    for (int i = 0; i < 6; i++) assert_float_equal(y[i], 6 * x[i], 0);
    drop(&n);
}

/* The text of a graph says what its layers are, so another context reads it. */
static void text_has_definitions(void **state)
{
    (void)state;
    add(&(struct sol_layer_def){.name = "my::twice_gradient", .definition = "d_y[A] -> d_x[A] | d_x[A] = 2*d_y[A]"});
    add(&(struct sol_layer_def){
        .name = "my::twice", .definition = "x[A] -> y[A] | y[A] = 2*x[A]", .gradient = "my::twice_gradient"});
    struct sol_graph *g, *again;
    char *text, *second;
    good(sol_graph_parse(ctx, "input %0:f32[4]\n%1 = my::twice(%0)\noutput %1 \"y\"", &g));
    good(sol_graph_print(g, &text));
    assert_non_null(strstr(text,
                           "define my::twice_gradient \"d_y[A] -> d_x[A] | d_x[A] = 2*d_y[A]\"\n"
                           "define my::twice \"x[A] -> y[A] | y[A] = 2*x[A]\" gradient=\"my::twice_gradient\"\n"));
    struct sol_ctx *other;
    good(sol_ctx_create(NULL, &other));
    assert_int_equal(sol_layer_known(other, "my::twice"), 0);
    assert_int_equal(sol_graph_parse(other, text, &again), SOL_OK);
    assert_int_equal(sol_layer_known(other, "my::twice"), 1);
    good(sol_graph_print(again, &second));
    assert_string_equal(text, second);
    sol_free(ctx, text);
    sol_free(other, second);
    sol_graph_destroy(again);
    sol_ctx_destroy(other);
    sol_graph_destroy(g);
}

/* -- gradients: the derived one and a given one, of float64, against differences */

static double loss_at(const char *text, const double *x, double *out_d)
{
    struct sol_graph *g;
    int reached;
    good(sol_graph_parse(ctx, text, &g));
    struct sol_tensor *with = g->inputs.at[0];
    good(sol_graph_differentiate(g, 1, (int[]){0}, 1, &with, &reached));
    struct sol_net *net;
    struct sol_params *params;
    good(sol_compile(ctx, g, &net));
    good(sol_params_create(net, &params));
    double y, one = 1;
    struct sol_saved *saved;
    good(sol_net_forward(net, params, (const void *[]){x, NULL}, (void *[]){&y, NULL}, 2, &saved));
    const struct sol_backward b = {(const void *[]){x, &one}, (void *[]){&y, out_d}, 2, 0};
    good(sol_net_backward(net, params, saved, &b));
    sol_saved_destroy(saved);
    sol_params_destroy(params);
    sol_net_destroy(net);
    sol_graph_destroy(g);
    return y;
}

enum { N = 7 };

static void check_gradient(const char *text)
{
    double x[N], d[N], scratch[N];
    for (int i = 0; i < N; i++) x[i] = sin(i + 1.0);
    loss_at(text, x, d);
    for (int i = 0; i < N; i++) {
        const double h = 1e-5, before = x[i];
        x[i] = before + h;
        const double high = loss_at(text, x, scratch);
        x[i] = before - h;
        const double low = loss_at(text, x, scratch);
        x[i] = before;
        assert_float_equal(d[i], (high - low) / (2 * h), 1e-8);
    }
}

static const char *const cube_source =
    "#include <math.h>\n"
    "int32_t cube(void *const *t, const int64_t *n, const double *r)\n"
    "{\n"
    "    const double *x = t[0];\n"
    "    double *y = t[1], *squares = t[2];\n"
    "    if (n[1] != 41) return 9;\n"
    "    for (int64_t i = 0; i < n[0]; i++) squares[i] = x[i] * x[i];\n"
    "    for (int64_t i = 0; i < n[0]; i++) y[i] = r[0] * squares[i] * x[i];\n"
    "    return 0;\n"
    "}\n"
    "int32_t cube_gradient(void *const *t, const int64_t *n, const double *r)\n"
    "{\n"
    "    const double *x = t[0], *dy = t[1];\n"
    "    double *dx = t[2];\n"
    "    for (int64_t i = 0; i < n[0]; i++) dx[i] = 3 * r[0] * x[i] * x[i] * dy[i];\n"
    "    return 0;\n"
    "}\n";

static void add_cube(void)
{
    add(&(struct sol_layer_def){.name = "my::cube_gradient",
                                .definition = "x:f64[A..] d_y:f64[A..] -> d_x:f64[A..]",
                                .attributes = "s=1.0",
                                .source = cube_source,
                                .symbol = "cube_gradient"});
    add(&(struct sol_layer_def){.name = "my::cube",
                                .definition = "x:f64[A..] -> y:f64[A..] -> t:f64[A..]",
                                .attributes = "check=41 s=1.0",
                                .gradient = "my::cube_gradient",
                                .source = cube_source,
                                .symbol = "cube"});
}

static void gradients(void **state)
{
    (void)state;
    add(&(struct sol_layer_def){.name = "my::poly", .definition = "x[A] -> y[A] | y[A] = x[A]*x[A] + exp(x[A])"});
    check_gradient("input %0:f64[7]\n%1 = my::poly(%0)\n%2 = Sum(%1) axes=[0] keep=0\noutput %2");
    /* y is used: the gradient reads an output */
    add(&(struct sol_layer_def){.name = "my::grow_gradient",
                                .definition = "y[A] d_y[A] -> d_x[A] | d_x[A] = k * y[A] * d_y[A]",
                                .attributes = "k=2"});
    add(&(struct sol_layer_def){.name = "my::grow",
                                .definition = "x[A] -> y[A] | y[A] = exp(k*x[A])",
                                .attributes = "k=2 unused=1",
                                .gradient = "my::grow_gradient"});
    check_gradient("input %0:f64[7]\n%1 = my::grow(%0) k=3\n%2 = Sum(%1) axes=[0] keep=0\noutput %2");
    add_cube();
    check_gradient("input %0:f64[7]\n%1 = my::cube(%0) s=0.5\n%2 = Sum(%1) axes=[0] keep=0\noutput %2");
}

static void missing_gradients(void **state)
{
    (void)state;
    add(&(struct sol_layer_def){.name = "my::blind",
                                .definition = "x:f64[A] -> y:f64[A]",
                                .source = "int32_t f(void *const *t, const int64_t *n, const double *r) { return 0; }",
                                .symbol = "f"});
    add(&(struct sol_layer_def){.name = "my::half_gradient",
                                .definition = "x[A] d_y[A] -> d_z[A] | d_z[A] = x[A]*d_y[A]"});
    add(&(struct sol_layer_def){
        .name = "my::half", .definition = "x[A] z[A] -> y[A] | y[A] = x[A]*z[A]", .gradient = "my::half_gradient"});
    static const char *const texts[][2] = {
        {"input %0:f64[3]\n%1 = my::blind(%0) \"here\"\noutput %1", "my::blind 'here': it is not made of loops"},
        {"input %0:f64[3]\n%1 = my::half(%0, %0) \"here\"\noutput %1",
         "layer 'here' (my::half): there is none for its input 0"}};
    for (int i = 0; i < COUNT_OF(texts); i++) {
        struct sol_graph *g;
        int reached;
        good(sol_graph_parse(ctx, texts[i][0], &g));
        struct sol_tensor *with = g->inputs.at[0];
        assert_int_equal(sol_graph_differentiate(g, 1, (int[]){0}, 1, &with, &reached), SOL_ERR_UNSUPPORTED);
        if (!strstr(sol_error(ctx), texts[i][1])) fail_msg("%s", sol_error(ctx));
        sol_graph_destroy(g);
    }
}

/* -- functions */

static void functions(void **state)
{
    (void)state;
    add_cube();
    struct net n =
        make("dim #0 \"n\" hint=4 min=0 max=64 multiple=1\ninput %0:f64[#0 2]\n%1 = my::cube(%0) s=2.0\noutput %1");
    for (int64_t rows = 0; rows < 5; rows++) {
        double x[10], y[10];
        for (int i = 0; i < 10; i++) x[i] = i - 4;
        const struct sol_call c = {&rows, (const void *[]){x}, (void *[]){y}, 2, NULL};
        good(sol_net_run_at(n.net, n.params, &c));
        for (int i = 0; i < 2 * rows; i++) assert_float_equal(y[i], 2 * x[i] * x[i] * x[i], 0);
    }
    drop(&n);
    n = make("input %0:f64[2]\n%1 = my::cube(%0) check=40 \"wrong\"\noutput %1");
    double x[2] = {1, 2}, y[2];
    assert_int_equal(sol_net_run(n.net, n.params, (const void *[]){x}, (void *[]){y}, 1), SOL_ERR_RUN);
    assert_non_null(strstr(sol_error(ctx), "layer 'wrong' (my::cube): its function returned 9"));
    drop(&n);
    add(&(struct sol_layer_def){.name = "my::many",
                                .definition = "x:f64[A] -> y:f64[A]",
                                .attributes = "k:ints",
                                .source = cube_source,
                                .symbol = "cube"});
    const int64_t size = 2, many[70] = {0};
    struct sol_graph *large;
    struct sol_tensor *t;
    const struct sol_attr k = {.name = "k", .kind = SOL_ATTR_INT, .n = 70, .ints = many};
    good(sol_graph_create(ctx, "large", &large));
    good(sol_graph_input(large, "x", SOL_F64, 1, &size, &t));
    assert_int_equal(sol_graph_layer(large, &(struct sol_new_layer){"my::many", 1, &t, 1, &k, NULL, NULL}, 1, &t),
                     SOL_ERR_UNSUPPORTED);
    assert_non_null(strstr(sol_error(ctx), "a function gets at most 64 sizes, integers and temporaries"));
    sol_graph_destroy(large);
    struct sol_ctx *other; /* a text runs no C code */
    struct sol_graph *g;
    char *text;
    good(sol_graph_parse(ctx, "input %0:f64[2]\n%1 = my::cube(%0)\noutput %1", &g));
    good(sol_graph_print(g, &text));
    sol_graph_destroy(g);
    good(sol_graph_parse(ctx, text, &g));
    sol_graph_destroy(g);
    good(sol_ctx_create(NULL, &other));
    assert_int_equal(sol_graph_parse(other, text, &g), SOL_ERR_INVALID);
    assert_non_null(strstr(sol_error(other), "register its function first"));
    sol_free(ctx, text);
    sol_ctx_destroy(other);
}

/* Another function of the same name takes the place of the first. */
static void replaced_functions(void **state)
{
    (void)state;
    static const char *const sources[] = {
        "int32_t f(void *const *t, const int64_t *n, const double *r) { ((float *)t[1])[0] = 1; return 0; }",
        "int32_t f(void *const *t, const int64_t *n, const double *r) { ((float *)t[1])[0] = 2; return 0; }"};
    for (int i = 0; i < COUNT_OF(sources); i++) {
        add(&(struct sol_layer_def){.name = "my::again",
                                    .definition = "x:f32[] -> y:f32[]",
                                    .source = sources[i],
                                    .symbol = "f",
                                    .replace = 1});
        struct net n = make("input %0:f32[]\n%1 = my::again(%0)\noutput %1");
        float x = 0, y = 0;
        good(sol_net_run(n.net, n.params, (const void *[]){&x}, (void *[]){&y}, 1));
        assert_float_equal(y, i + 1, 0);
        drop(&n);
    }
}

/* -- passes */

static sol_status halve(void *user, struct sol_graph *g)
{
    ++*(int *)user;
    for (struct sol_layer *l = sol_graph_first(g); l; l = sol_layer_next(l)) {
        struct sol_tensor *in = sol_layer_input(l, 0), *half;
        struct sol_attr a;
        if (strcmp(sol_layer_kind(l), "my::scale") || !sol_layer_attribute(l, 0, &a) || *a.reals == 0.5) continue;
        struct sol_tensor *both[] = {in, sol_layer_input(l, 1)};
        const double with = 0.5;
        const struct sol_attr s = {.name = "s", .kind = SOL_ATTR_REAL, .n = -1, .reals = &with};
        const struct sol_new_layer n = {"my::scale", 2, both, 1, &s, sol_layer_name(l), NULL};
        if (sol_graph_insert(g, l, &n, 1, &half) || sol_graph_replace(g, sol_layer_output(l, 0), half))
            return SOL_ERR_INVALID;
    }
    return SOL_OK;
}

static sol_status refuses(void *user, struct sol_graph *g)
{
    (void)user;
    return sol_graph_fail(g, "this network is not allowed");
}

static sol_status breaks(void *user, struct sol_graph *g)
{
    (void)user;
    struct sol_layer *l = sol_graph_first(g);
    return sol_graph_replace(g, sol_layer_input(l, 0), sol_layer_output(l, 0)); /* a layer that reads itself */
}

static sol_status pass(const char *name, const char *place, sol_status (*run)(void *, struct sol_graph *), void *user)
{
    return sol_pass_register(
        ctx, &(struct sol_pass_def){
                 .size = sizeof(struct sol_pass_def), .name = name, .place = place, .run = run, .user = user});
}

static void passes(void **state)
{
    (void)state;
    int runs = 0;
    const char *text = "input %0:f32[2]\ninput %1:f32[]\n%2 = my::scale(%0, %1)\noutput %2";
    add(&(struct sol_layer_def){.name = "my::scale", .definition = scale, .attributes = "s=3.0", .replace = 1});
    assert_int_equal(pass("halve", NULL, halve, &runs), SOL_ERR_INVALID);
    assert_int_equal(pass("my::halve", "after nothing", halve, &runs), SOL_ERR_INVALID);
    assert_non_null(strstr(sol_error(ctx), "place: expected \"before NAME\""));
    good(pass("my::halve", "before fold", halve, &runs));
    assert_int_equal(pass("my::halve", "before fold", halve, &runs), SOL_ERR_INVALID);
    struct net n = make(text);
    assert_true(runs > 0);
    float x[2] = {1, 3}, w = 2, y[2];
    good(sol_net_run(n.net, n.params, (const void *[]){x, &w}, (void *[]){y}, 1));
    assert_float_equal(y[1], 3, 0);
    drop(&n);
    struct sol_graph *g;
    struct sol_net *net;
    good(pass("my::breaks", NULL, breaks, NULL));
    good(sol_graph_parse(ctx, text, &g));
    assert_int_equal(sol_compile(ctx, g, &net), SOL_ERR_INTERNAL);
    assert_non_null(strstr(sol_error(ctx), "pass my::breaks: "));
    sol_graph_destroy(g);
    good(pass("my::refuses", "before dead", refuses, NULL));
    good(sol_graph_parse(ctx, text, &g));
    assert_int_equal(sol_compile(ctx, g, &net), SOL_ERR_INVALID);
    assert_non_null(strstr(sol_error(ctx), "pass my::refuses: this network is not allowed"));
    sol_graph_destroy(g);
}

/* -- plug-ins */

#define PLUGIN BUILD_ROOT "/libsol_example_extension.so"

static void plugin(void **state)
{
    (void)state;
    struct sol_ctx *own;
    struct sol_graph *g;
    assert_int_equal(sol_ctx_create(NULL, &own), SOL_OK);
    assert_int_equal(sol_extension_load(own, "/nowhere.so"), SOL_ERR_IO);
    assert_int_equal(sol_config_set(own, "extensions", PLUGIN), SOL_OK);
    assert_int_equal(sol_layer_known(own, "example::swish"), 1);
    assert_int_equal(sol_extension_load(own, PLUGIN), SOL_OK); /* a second time */
    const char *attributes, *doc, *name, *last = NULL;
    for (int i = 0; (name = sol_layer_at(own, i, &attributes, &doc)); i++) last = name;
    assert_non_null(strstr(last, "example::"));
    /* its pass joins x * sigmoid(x) */
    if (sol_graph_parse(own, "input %0:f32[5]\n%1 = sigmoid(%0)\n%2 = mul(%0, %1)\noutput %2 \"y\"", &g))
        fail_msg("%s", sol_error(own));
    struct sol_net *net;
    struct sol_params *params;
    if (sol_compile(own, g, &net)) fail_msg("%s", sol_error(own));
    assert_string_equal(g->outputs.at[0].t->from->def->name, "example::swish");
    assert_int_equal(sol_params_create(net, &params), SOL_OK);
    float x[5] = {-2, -1, 0, 1, 2}, y[5];
    assert_int_equal(sol_net_run(net, params, (const void *[]){x}, (void *[]){y}, 1), SOL_OK);
    for (int i = 0; i < 5; i++) assert_float_equal(y[i], x[i] / (1 + expf(-x[i])), 1e-6);
    sol_params_destroy(params);
    sol_net_destroy(net);
    sol_graph_destroy(g);
    sol_ctx_destroy(own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages),           cmocka_unit_test(messages_of_functions),
        cmocka_unit_test(definition_runs),    cmocka_unit_test(text_has_definitions),
        cmocka_unit_test(gradients),          cmocka_unit_test(missing_gradients),
        cmocka_unit_test(functions),          cmocka_unit_test(plugin),
        cmocka_unit_test(replaced_functions), cmocka_unit_test(passes), /* last: its passes stay with the context */
    };
    return cmocka_run_group_tests(tests, make_ctx, drop_ctx);
}
