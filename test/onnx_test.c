/* The ONNX reader without memory: each allocation of reading a model fails in turn. The model is built here from the
 * reader's own messages: a convolution, a function, a branch, a computed shape, weights of several kinds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "fail_alloc.h"
#include "onnx/reader.h"

#define NODE(op, ...) make_node(op, (char *[]){__VA_ARGS__})

/* -- building messages, which live until the process ends */

static Onnx__Attribute *make_ints(const char *name, size_t n, const int64_t *v)
{
    static Onnx__Attribute pool[16];
    static int used;
    Onnx__Attribute *a = &pool[used++];
    onnx__attribute__init(a);
    a->name = (char *)name;
    a->has_type = 1;
    a->type = ATTR_INTS;
    a->n_ints = n;
    a->ints = (int64_t *)v;
    return a;
}

/* names: inputs, NULL, outputs, NULL */
static Onnx__Node *make_node(const char *op, char **names)
{
    static Onnx__Node pool[16];
    static char *lists[16][2][4];
    static int used;
    Onnx__Node *m = &pool[used];
    onnx__node__init(m);
    m->op_type = (char *)op;
    for (int part = 0; part < 2; part++, names++) {
        char **list = lists[used][part];
        size_t n = 0;
        for (; *names; names++) list[n++] = *names;
        *(part ? &m->n_output : &m->n_input) = n;
        *(part ? &m->output : &m->input) = list;
    }
    used++;
    return m;
}

static void add_attr(Onnx__Node *m, Onnx__Attribute *a)
{
    static Onnx__Attribute *lists[16];
    static int used;
    m->n_attribute = 1;
    m->attribute = &lists[used];
    lists[used++] = a;
}

static Onnx__Tensor *make_tensor(const char *name, int32_t type, size_t ndim, int64_t *dims)
{
    static Onnx__Tensor pool[8];
    static int used;
    Onnx__Tensor *t = &pool[used++];
    onnx__tensor__init(t);
    t->name = (char *)name;
    t->has_data_type = 1;
    t->data_type = type;
    t->n_dims = ndim;
    t->dims = dims;
    return t;
}

static void make_info(Onnx__ValueInfo *v, Onnx__Type *type, Onnx__TensorType *tensor, Onnx__Shape *shape,
                      const char *name)
{
    onnx__value_info__init(v);
    onnx__type__init(type);
    onnx__tensor_type__init(tensor);
    onnx__shape__init(shape);
    v->name = (char *)name;
    v->type = type;
    type->tensor_type = tensor;
    tensor->has_elem_type = 1;
    tensor->elem_type = 1;
}

static size_t make_model(uint8_t *out)
{
    static float weights[16], many[256];
    static int64_t minus_one[] = {-1}, zero[] = {0}, d_w[] = {4, 4, 1, 1}, d_many[] = {16, 16}, d_one[] = {1};
    static Onnx__Dimension dims[4], *dim_list[4];
    Onnx__Model model = ONNX__MODEL__INIT;
    Onnx__Graph graph = ONNX__GRAPH__INIT;
    Onnx__Function function = ONNX__FUNCTION__INIT;
    Onnx__OperatorSet sets[2] = {ONNX__OPERATOR_SET__INIT, ONNX__OPERATOR_SET__INIT},
                      *set_list[] = {&sets[0], &sets[1]};
    Onnx__ValueInfo x, y, *x_list = &x, *y_list = &y;
    Onnx__Type types[2];
    Onnx__TensorType tensors[2];
    Onnx__Shape shapes[2];

    Onnx__Tensor *w = make_tensor("w", 1, 4, d_w), *m = make_tensor("m", 1, 2, d_many),
                 *rest = make_tensor("rest", 7, 1, d_one), *at = make_tensor("at", 7, 1, d_one),
                 *all[] = {w, m, rest, at};
    w->float_data = weights, w->n_float_data = 16;
    m->has_raw_data = 1, m->raw_data.data = (uint8_t *)many, m->raw_data.len = sizeof many;
    rest->int64_data = minus_one, rest->n_int64_data = 1;
    at->int64_data = zero, at->n_int64_data = 1;

    Onnx__Node *conv = NODE("Conv", "x", "w", NULL, "a", NULL), *call = NODE("Twice", "a", NULL, "b", NULL);
    Onnx__Node *shape = NODE("Shape", "b", NULL, "s", NULL), *gather = NODE("Gather", "s", "at", NULL, "n", NULL);
    Onnx__Node *concat = NODE("Concat", "n", "rest", NULL, "t", NULL),
               *reshape = NODE("Reshape", "b", "t", NULL, "c", NULL);
    Onnx__Node *product = NODE("MatMul", "c", "m", NULL, "y", NULL), *inner = NODE("Add", "p", "p", NULL, "q", NULL);
    static int64_t two[] = {1, 1};
    add_attr(conv, make_ints("strides", 2, two));
    Onnx__Attribute *axis = make_ints("axis", 0, NULL);
    axis->type = ATTR_I, axis->has_i = 1;
    add_attr(concat, axis);
    call->domain = "own";
    Onnx__Node *nodes[] = {conv, call, shape, gather, concat, reshape, product};

    function.name = "Twice", function.domain = "own";
    function.input = (char *[]){"p"}, function.n_input = 1;
    function.output = (char *[]){"q"}, function.n_output = 1;
    function.node = &inner, function.n_node = 1;
    make_info(&x, &types[0], &tensors[0], &shapes[0], "x");
    make_info(&y, &types[1], &tensors[1], &shapes[1], "y");
    tensors[1].shape = NULL;
    tensors[0].shape = &shapes[0];
    for (int i = 0; i < 4; i++) {
        onnx__dimension__init(&dims[i]);
        dim_list[i] = &dims[i];
        dims[i].has_dim_value = i > 0;
        dims[i].dim_value = i < 2 ? 4 : 2;
    }
    dims[0].dim_param = "batch";
    shapes[0].dim = dim_list, shapes[0].n_dim = 4;
    graph.name = "g";
    graph.node = nodes, graph.n_node = COUNT_OF(nodes);
    graph.initializer = all, graph.n_initializer = COUNT_OF(all);
    graph.input = &x_list, graph.n_input = 1;
    graph.output = &y_list, graph.n_output = 1;
    sets[0].domain = "", sets[0].has_version = 1, sets[0].version = 17;
    sets[1].domain = "own", sets[1].has_version = 1, sets[1].version = 1;
    model.graph = &graph;
    model.opset_import = set_list, model.n_opset_import = 2;
    Onnx__Function *functions = &function;
    model.functions = &functions, model.n_functions = 1;
    return onnx__model__pack(&model, out);
}

/* -- the tests */

static uint8_t bytes[8192];
static size_t length;

static sol_status read(struct sol_ctx *ctx, struct sol_onnx **out_model)
{
    static const struct sol_onnx_dim dims[] = {{"batch", 2}};
    const struct sol_onnx_options options = {.size = sizeof options, .ndims = 1, .dims = dims};
    return sol_onnx_load_memory(ctx, bytes, length, &options, out_model);
}

static void no_log(void *user, int level, const char *line)
{
    (void)user, (void)level, (void)line;
}

static void reads_it(void **state)
{
    (void)state;
    struct sol_ctx *ctx;
    struct sol_onnx *model;
    assert_int_equal(sol_ctx_create(NULL, &ctx), SOL_OK);
    if (read(ctx, &model)) fail_msg("%s", sol_error(ctx));
    assert_int_equal(sol_onnx_params(model), 2);
    struct sol_io y = sol_onnx_output(model, 0);
    assert_int_equal(y.ndim, 2);
    assert_int_equal(y.shape[0], 2);
    assert_int_equal(y.shape[1], 16);
    int64_t n;
    assert_string_equal(sol_onnx_operator(model, 0, &n), "Conv");
    sol_onnx_destroy(model);
    sol_ctx_destroy(ctx);
}

static void memory_runs_out(void **state)
{
    (void)state;
    long total = 1;
    for (int then_on = 0; then_on < 2; then_on++) {
        for (long at = 0; at < total; at++) {
            struct fail_alloc f = {.fail_at = -1};
            struct sol_ctx_options o = {.size = sizeof o, .reallocate = fail_alloc, .user = &f, .log = no_log};
            struct sol_ctx *ctx;
            struct sol_onnx *model = NULL;
            assert_int_equal(sol_ctx_create(&o, &ctx), SOL_OK);
            if (!at && !then_on) {
                assert_int_equal(read(ctx, &model), SOL_OK);
                sol_onnx_destroy(model);
                total = f.n;
            }
            f.n = 0;
            f.fail_at = at;
            f.from_then_on = then_on;
            sol_status status = read(ctx, &model);
            if (status) assert_int_equal(status, SOL_ERR_NOMEM);
            assert_true(!status == !!model);
            f.fail_at = -1;
            sol_onnx_destroy(model);
            sol_ctx_destroy(ctx);
            assert_int_equal(f.alive, 0);
        }
    }
    assert_true(total > 10);
}

/* The first `n` bytes of a model are rejected, or, if only whole fields are missing, are another model. */
static void cut_off(void **state)
{
    (void)state;
    struct sol_ctx_options o = {.size = sizeof o, .log = no_log};
    struct sol_ctx *ctx;
    assert_int_equal(sol_ctx_create(&o, &ctx), SOL_OK);
    size_t whole = length;
    for (length = 0; length < whole; length++) {
        struct sol_onnx *model = NULL;
        sol_status status = read(ctx, &model);
        assert_true(!status == !!model);
        assert_true(status == SOL_OK || status == SOL_ERR_INVALID || status == SOL_ERR_UNSUPPORTED);
        sol_onnx_destroy(model);
    }
    length = whole;
    sol_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(reads_it), cmocka_unit_test(memory_runs_out),
                                       cmocka_unit_test(cut_off)};
    length = make_model(bytes);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
