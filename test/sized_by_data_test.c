/* Sizes that layers set while the network runs, because they depend on data. */
#include "sized.h"

#include <pthread.h>

enum { ROWS = 7, COLS = 9, THREADS = 4 };

/* positions of elements that are not zero, a Gather of them, and several kernels behind it */
static const char *const chain = "graph \"chain\"\n"
                                 "dim #0 \"rows\" hint=4 min=0 max=64 multiple=1\n"
                                 "dim #1 \"found\" most=9*#0\n"
                                 "input %0:f32[#0 9] \"x\"\n"
                                 "param %1:f32[5 9] \"w\"\n"
                                 "%2 = NonZero(%0) size=#1\n"
                                 "%3 = Slice(%2) axes=[1] start=[0] end=[1] step=[1]\n"
                                 "%4 = Reshape(%3) shape=[#1]\n"
                                 "%5 = Gather(%0, %4) axis=0\n"
                                 "%6 = exp(%5)\n"
                                 "%7 = Linear(%6, %1)\n"
                                 "%8 = Softmax(%7) axis=0\n"
                                 "%9 = Sum(%8) axes=[0] keep=0\n"
                                 "output %2 \"positions\"\n"
                                 "output %8 \"y\"\n"
                                 "output %9 \"sums\"\n";

struct test_call {
    const struct sized *s;
    float x[64 * COLS];
    int64_t rows;
    int threads;
    unsigned seed;
    int64_t dims[2];
    int64_t *positions;
    float *y, sums[5];
};

/* every: which elements are not zero: none (0), all (1), else about one of so many */
static void fill(struct test_call *c, int every)
{
    unsigned v = c->seed;
    for (int64_t i = 0; i < c->rows * COLS; i++) {
        v = v * 1664525u + 1013904223u;
        c->x[i] = every && (v >> 8) % (unsigned)every == 0 ? (float)(v >> 8) / (1 << 25) + 0.25F : 0;
    }
}

static void run_once(struct test_call *c)
{
    const int64_t room = c->rows * COLS;
    c->positions = malloc((size_t)room * 2 * sizeof *c->positions + 8);
    c->y = malloc((size_t)room * 5 * sizeof *c->y + 8);
    const int64_t dims[2] = {c->rows, 0};
    const void *in[] = {c->x};
    void *out[] = {c->positions, c->y, c->sums};
    if (sol_net_run_at(
            c->s->net, c->s->params,
            &(struct sol_call){.dims = dims, .inputs = in, .outputs = out, .threads = c->threads, .out_dims = c->dims}))
        fail_msg("%s", sol_error(ctx));
}

static void check(const struct test_call *c)
{
    const int64_t room = c->rows * COLS;
    int64_t found = 0, dims[2], *positions = malloc((size_t)room * 2 * sizeof *positions + 8);
    float *y = malloc((size_t)room * 5 * sizeof *y + 8), sums[5];
    const void *in[] = {c->x};
    void *out[] = {positions, y, sums};
    const struct graph_data data = {in, (const void *const *)c->s->param, out, dims};
    const int64_t given[2] = {c->rows, -1};
    if (graph_interpret_at(c->s->g, given, &data)) fail_msg("%s", sol_error(ctx));
    for (int64_t i = 0; i < room; i++) found += c->x[i] != 0;
    assert_int_equal(dims[1], found);
    assert_int_equal(c->dims[0], c->rows);
    assert_int_equal(c->dims[1], found);
    assert_memory_equal(c->positions, positions, (size_t)found * 2 * sizeof *positions);
    for (int64_t i = 0; i < found * 5; i++) assert_float_equal(c->y[i], y[i], 1e-5);
    for (int i = 0; i < 5; i++) assert_float_equal(c->sums[i], sums[i], 1e-5);
    free(positions);
    free(y);
}

static void clear(struct test_call *c)
{
    free(c->positions);
    free(c->y);
}

/* The same bits as with one thread. */
static void same_bits(const struct test_call *c, const struct test_call *one)
{
    assert_memory_equal(c->dims, one->dims, sizeof c->dims);
    assert_memory_equal(c->positions, one->positions, (size_t)c->dims[1] * 2 * sizeof *c->positions);
    assert_memory_equal(c->y, one->y, (size_t)c->dims[1] * 5 * sizeof *c->y);
    assert_memory_equal(c->sums, one->sums, sizeof c->sums);
}

static void runs_at_found_sizes(void **state)
{
    (void)state;
    struct sized s;
    open(chain, &s);
    assert_int_equal(sol_net_dims(s.net), 2);
    assert_int_equal(sol_net_dim(s.net, 0).most, -1);
    int64_t rows = 5, shape[] = {rows, COLS}, bound[2];
    const int64_t *const shapes[] = {shape};
    assert_int_equal(sol_net_bind(s.net, shapes, bound), SOL_OK);
    assert_int_equal(bound[1], rows * COLS);
    for (rows = 0; rows <= 64; rows = rows * 3 + 1)
        for (int every = 0; every < 5; every++) {
            struct test_call c[4];
            for (int n = 1; n <= 4; n++) {
                struct test_call *t = &c[n - 1];
                *t = (struct test_call){.s = &s, .rows = rows, .threads = n, .seed = (unsigned)every + 3};
                fill(t, every);
                run_once(t);
                check(t);
                same_bits(t, &c[0]);
            }
            for (int n = 0; n < 4; n++) clear(&c[n]);
        }
    close_sized(&s);
}

static void *run_many(void *arg)
{
    struct test_call *c = arg;
    for (int i = 0; i < 40; i++) {
        if (i) clear(c);
        c->rows = (c->seed + (unsigned)i * 5) % 33;
        fill(c, i % 4);
        run_once(c);
        int64_t found = 0;
        for (int64_t k = 0; k < c->rows * COLS; k++) found += c->x[k] != 0;
        assert_int_equal(c->dims[1], found);
    }
    return NULL;
}

static void runs_in_threads(void **state)
{
    (void)state;
    struct sized s;
    pthread_t thread[THREADS];
    static struct test_call c[THREADS];
    open(chain, &s);
    for (int i = 0; i < THREADS; i++) {
        c[i] = (struct test_call){.s = &s, .threads = 1 + i % 2, .seed = (unsigned)i * 11};
        pthread_create(&thread[i], NULL, run_many, &c[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        check(&c[i]);
        clear(&c[i]);
    }
    close_sized(&s);
}

/* a size of a size: positions within those that were found; and one that falls when the other grows */
static const char *const nested = "graph \"nested\"\n"
                                  "dim #0 \"found\" most=20\n"
                                  "dim #1 \"large\" most=#0\n"
                                  "input %0:f32[20] \"x\"\n"
                                  "%1 = NonZero(%0) size=#0\n"
                                  "%2 = Reshape(%1) shape=[#0]\n"
                                  "%3 = Gather(%0, %2) axis=0\n"
                                  "%4 = relu(%3)\n"
                                  "%5 = NonZero(%4) size=#1\n"
                                  "%6 = Reshape(%5) shape=[#1]\n"
                                  "%7 = Gather(%3, %6) axis=0\n"
                                  "%8 = Slice(%0) axes=[0] start=[#1] end=[20] step=[1]\n"
                                  "%9 = Concat(%7, %8) axis=0\n"
                                  "output %9 \"y\"\n";

static void nests(void **state)
{
    (void)state;
    struct sized s;
    open(nested, &s);
    for (int positive = 0; positive <= 20; positive++) {
        float x[20], y[20], want[20];
        int64_t dims[2];
        int n = 0;
        for (int i = 0; i < 20; i++) x[i] = i % 3 == 1 ? 0 : i < positive ? 1 + (float)i : -1 - (float)i;
        for (int i = 0; i < 20; i++)
            if (x[i] > 0) want[n++] = x[i];
        memcpy(want + n, x + n, (size_t)(20 - n) * sizeof *x);
        const void *in[] = {x};
        void *out[] = {y};
        if (sol_net_run_at(s.net, s.params, &(struct sol_call){.inputs = in, .outputs = out, .out_dims = dims}))
            fail_msg("%s", sol_error(ctx));
        assert_int_equal(dims[0], 13);
        assert_int_equal(dims[1], n);
        assert_memory_equal(y, want, sizeof y);
    }
    close_sized(&s);
}

/* two that must agree */
static const char *const two = "graph \"two\"\n"
                               "dim #0 \"found\" most=6\n"
                               "input %0:f32[6] \"x\"\n"
                               "input %1:f32[9] \"y\"\n"
                               "%2 = NonZero(%0) size=#0 \"first\"\n"
                               "%3 = NonZero(%1) size=#0 \"second\"\n"
                               "%4 = add(%2, %3)\n"
                               "output %4 \"y\"\n";

static void compares(void **state)
{
    (void)state;
    struct sized s;
    const float x[] = {0, 1, 0, 0, 2, 0}, good[] = {3, 0, 0, 0, 0, 0, 0, 0, 3}, bad[] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    int64_t y[6], dims[1];
    void *out[] = {y};
    open(two, &s);
    const void *in[] = {x, good};
    if (sol_net_run_at(s.net, s.params, &(struct sol_call){.inputs = in, .outputs = out, .out_dims = dims}))
        fail_msg("%s", sol_error(ctx));
    assert_int_equal(dims[0], 2);
    assert_int_equal(y[0], 1);
    assert_int_equal(y[1], 12);
    in[1] = bad;
    assert_int_equal(sol_net_run(s.net, s.params, in, out, 2), SOL_ERR_RUN);
    assert_non_null(strstr(sol_error(ctx),
                           "layer 'second' (NonZero): it finds 9 elements, expected 2, as many as layer "
                           "'first' (NonZero)"));
    close_sized(&s);
}

/* what a layer needs of a size is checked when the size is set */
static void checks_needs(void **state)
{
    (void)state;
    struct sized s;
    const float x[2][6] = {{1, 0, 3, 0, 5, 2}, {0, 0, 0, 1, 0, 0}};
    float y[6];
    int64_t dims[1];
    void *out[] = {y};
    open("graph \"needs\"\n"
         "dim #0 \"found\" most=6\n"
         "input %0:f32[6] \"x\"\n"
         "%1 = NonZero(%0) size=#0\n"
         "%2 = Reshape(%1) shape=[#0]\n"
         "%3 = Gather(%0, %2) axis=0\n"
         "%4 = Reshape(%3) shape=[1,1,#0]\n"
         "%5 = MaxPool(%4) k=[3] \"pool\"\n"
         "output %5 \"y\"\n",
         &s);
    const void *in[] = {x[0]};
    if (sol_net_run_at(s.net, s.params, &(struct sol_call){.inputs = in, .outputs = out, .out_dims = dims}))
        fail_msg("%s", sol_error(ctx));
    assert_int_equal(dims[0], 4);
    assert_float_equal(y[0], 5, 0);
    assert_float_equal(y[1], 5, 0);
    in[0] = x[1];
    assert_int_equal(sol_net_run(s.net, s.params, in, out, 1), SOL_ERR_INVALID);
    assert_non_null(strstr(sol_error(ctx), "layer 'pool' (MaxPool): it needs a size"));
    close_sized(&s);
}

/* What needs two sizes is checked when the second is known, whatever their numbers are. */
static void checks_when_the_last_is_set(void **state)
{
    (void)state;
    struct sized s;
    const float x[2][6] = {{1, 0, 3, 0, 5, 2}, {0, 0, 0, 1, 0, 0}};
    float y[12];
    void *out[] = {y};
    open("graph \"order\"\n"
         "dim #0 \"second\" most=6\n"
         "dim #1 \"first\" most=6\n"
         "input %0:f32[6] \"x\"\n"
         "%1 = NonZero(%0) size=#1\n"
         "%2 = Reshape(%1) shape=[#1]\n"
         "%3 = Gather(%0, %2) axis=0\n"
         "%4 = NonZero(%3) size=#0\n"
         "%5 = Reshape(%4) shape=[#0]\n"
         "%6 = Gather(%3, %5) axis=0\n"
         "%7 = Concat(%3, %6) axis=0\n"
         "%8 = Reshape(%7) shape=[1,1,#0+#1]\n"
         "%9 = MaxPool(%8) k=[5] \"pool\"\n"
         "output %9 \"y\"\n",
         &s);
    const void *in[] = {x[0]};
    if (sol_net_run(s.net, s.params, in, out, 1)) fail_msg("%s", sol_error(ctx));
    assert_float_equal(y[0], 5, 0);
    in[0] = x[1];
    assert_int_equal(sol_net_run(s.net, s.params, in, out, 1), SOL_ERR_INVALID);
    assert_non_null(strstr(sol_error(ctx), "layer 'pool' (MaxPool): it needs a size"));
    close_sized(&s);
}

/* A part of a Concat behind one whose size is found is computed before its place is known. */
static void parts_behind_found_sizes(void **state)
{
    (void)state;
    struct sized s;
    float x[20], c[3] = {0, 1, 2}, y[23];
    open("graph \"parts\"\n"
         "dim #0 \"found\" most=20\n"
         "input %0:f32[20] \"x\"\n"
         "input %1:f32[3] \"c\"\n"
         "%2 = exp(%1)\n"
         "%3 = NonZero(%0) size=#0\n"
         "%4 = Reshape(%3) shape=[#0]\n"
         "%5 = Gather(%0, %4) axis=0\n"
         "%6 = Slice(%0) axes=[0] start=[#0] end=[20] step=[1]\n"
         "%7 = Concat(%5, %2, %6) axis=0\n"
         "%8 = relu(%7)\n"
         "%9 = CumSum(%8) axis=0\n"
         "output %9 \"y\"\n",
         &s);
    for (int i = 0; i < 20; i++) x[i] = i % 3 ? (float)i : 0;
    if (sol_net_run(s.net, s.params, (const void *[]){x, c}, (void *[]){y}, 1)) fail_msg("%s", sol_error(ctx));
    float part[23];
    double sum = 0;
    int k = 0;
    for (int i = 0; i < 20; i++)
        if (x[i] != 0) part[k++] = x[i];
    assert_int_equal(k, 13);
    for (int i = 0; i < 3; i++) part[k++] = expf(c[i]);
    for (int i = 13; i < 20; i++) part[k++] = x[i];
    for (int i = 0; i < 23; i++) {
        sum += part[i];
        assert_float_equal(y[i], sum, 1e-3);
    }
    close_sized(&s);
}

/* An output has room for the most, whatever is found. */
static void outputs_that_are_missing(void **state)
{
    (void)state;
    struct sized s;
    const float x[6] = {1};
    open(two, &s);
    assert_int_equal(sol_net_run(s.net, s.params, (const void *[]){x, x}, (void *[]){NULL}, 1), SOL_ERR_INVALID);
    assert_non_null(strstr(sol_error(ctx), "output 0, 'y', is NULL, expected 48 bytes"));
    close_sized(&s);
}

/* What lies behind the elements that are found is largest if there are none. */
static void outputs_that_fall_when_others_grow(void **state)
{
    (void)state;
    struct sized s;
    float x[9], y[9], rest[9];
    int64_t dims[2];
    open("graph \"split\"\n"
         "dim #0 \"n\" hint=6 min=0 max=9 multiple=1\n"
         "dim #1 \"found\" most=#0\n"
         "input %0:f32[#0] \"x\"\n"
         "%1 = NonZero(%0) size=#1\n"
         "%2 = Slice(%0) axes=[0] start=[0] end=[#1] step=[1]\n"
         "%3 = Slice(%0) axes=[0] start=[#1] end=[#0] step=[1]\n"
         "output %2 \"y\"\n"
         "output %3 \"rest\"\n",
         &s);
    for (int64_t n = 0; n <= 9; n++)
        for (int64_t found = 0; found <= n; found++) {
            for (int64_t i = 0; i < n; i++) x[i] = i < n - found ? 0 : (float)i + 1;
            const int64_t *const shapes[] = {&n};
            assert_int_equal(sol_net_bind(s.net, shapes, dims), SOL_OK);
            for (int i = 0; i < 2; i++) assert_int_equal(sol_net_output_room(s.net, i, dims), n);
            const struct sol_call call = {
                .dims = dims, .inputs = (const void *[]){x}, .outputs = (void *[]){y, rest}, .out_dims = dims};
            if (sol_net_run_at(s.net, s.params, &call)) fail_msg("%s", sol_error(ctx));
            assert_int_equal(dims[1], found);
            assert_memory_equal(y, x, (size_t)found * sizeof *x);
            assert_memory_equal(rest, x + found, (size_t)(n - found) * sizeof *x);
        }
    close_sized(&s);
}

/* The most may be 0: nothing can be found. */
static void finds_nothing(void **state)
{
    (void)state;
    struct sized s;
    int64_t y[1], dims[1] = {-1};
    open("graph \"none\"\ndim #0 \"found\" most=0\ninput %0:f32[0] \"x\"\n%1 = NonZero(%0) size=#0\n"
         "%2 = Sum(%1) axes=[0,1]\noutput %2 \"y\"\n",
         &s);
    assert_int_equal(s.g->dims.at[0].dim.max, 1);
    const struct sol_call call = {.inputs = (const void *[]){NULL}, .outputs = (void *[]){y}, .out_dims = dims};
    if (sol_net_run_at(s.net, s.params, &call)) fail_msg("%s", sol_error(ctx));
    assert_int_equal(dims[0], 0);
    assert_int_equal(y[0], 0);
    close_sized(&s);
}

static void rejects_graphs(void **state)
{
    static const char *const bad[][2] = {
        {"dim #0 \"found\" most=-3\ninput %0:f32[6] \"x\"\noutput %0 \"y\"\n", "expected a size from 0 on, got -3"},
        {"dim #0 \"found\" most=6\ninput %0:f32[#0] \"x\"\n%1 = exp(%0)\noutput %1 \"y\"\n",
         "input 'x': dimension 0 is #0, which a layer sets while the network runs"},
        {"dim #0 \"found\" most=6\ninput %0:f32[6] \"x\"\n"
         "%1 = Slice(%0) axes=[0] start=[0] end=[#0] step=[1]\noutput %1 \"y\"\n",
         "dimension 'found': no layer sets it"}};
    (void)state;
    for (int i = 0; i < COUNT_OF(bad); i++) {
        struct sol_graph *g = NULL;
        struct sol_net *net;
        sol_status status = sol_graph_parse(ctx, bad[i][0], &g);
        if (!status) status = sol_compile(ctx, g, &net);
        assert_int_equal(status, SOL_ERR_INVALID);
        if (!strstr(sol_error(ctx), bad[i][1])) fail_msg("%s", sol_error(ctx));
        sol_graph_destroy(g);
    }
}

static void rejects_training(void **state)
{
    (void)state;
    struct sol_graph *g = parse(chain);
    const int of = 1;
    int reached;
    assert_int_equal(sol_graph_differentiate(g, 1, &of, 1, &g->params.at[0], &reached), SOL_ERR_UNSUPPORTED);
    assert_non_null(strstr(sol_error(ctx), "inference only"));
    sol_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_at_found_sizes),
        cmocka_unit_test(runs_in_threads),
        cmocka_unit_test(nests),
        cmocka_unit_test(compares),
        cmocka_unit_test(checks_needs),
        cmocka_unit_test(checks_when_the_last_is_set),
        cmocka_unit_test(parts_behind_found_sizes),
        cmocka_unit_test(outputs_that_fall_when_others_grow),
        cmocka_unit_test(outputs_that_are_missing),
        cmocka_unit_test(finds_nothing),
        cmocka_unit_test(rejects_graphs),
        cmocka_unit_test(rejects_training),
    };
    return cmocka_run_group_tests(tests, make_ctx, drop_ctx);
}
