/* Contraction kernels for sizes that vary: emitted once for a hint, run at many sizes, and compared with the
 * interpreter in double at each of them. */
#include "dnn_run.h"
#include "slow_build.h"

/* In shapes A and B stand for the dimensions; dim: their hints, limits and factors. */
enum { DIMS = 2, A = -1, B = -2, TWICE_A = -3 };
struct varying {
    struct example e;
    struct size_dim dim[DIMS];
};
#define DIM(h)                                             \
    {                                                      \
        .hint = h, .min = 1, .max = 1 << 20, .multiple = 1 \
    }
#define FEW(h)                                        \
    {                                                 \
        .hint = h, .min = 1, .max = 37, .multiple = 1 \
    } /* the reference takes long */
static const struct varying varying[] = {
    {{.name = "attention, keys and queries",
      .must = "attention",
      .row = "q[H T D] k[H S D] v[H S E] -> y[H T E] | | | s[H T S] = (sum[D] q[H T D] * k[H S D]) * 0.2; "
             "(m,z)[H T] = softsum[S] s[H T S]; p[H T S] = exp(s[H T S] - m[H T]); "
             "y[H T E] = (sum[S] p[H T S] * v[H S E]) / z[H T]",
      .shape = {{2, A, 12}, {2, B, 12}, {2, B, 20}},
      .in = {{"102", 0, 0}, {"102", 0, 8}},
      .out = {"102", 0, 0}},
     {DIM(40), DIM(300)}},
    {{.name = "attention, causal, bias",
      .must = "attention",
      .row = "q[T D] k[S D] v[S E] w[T S] -> y[T E] | | | s[T S] = (sum[D] q[T D] * k[S D]) * 0.2 + w[T S]; "
             "(m,z)[T] = softsum[S | S<=T] s[T S]; p[T S] = where(S<=T, exp(s[T S] - m[T]), 0); "
             "y[T E] = (sum[S] p[T S] * v[S E]) / z[T]",
      .shape = {{A, 16}, {B, 16}, {B, 16}, {A, B}}},
     {DIM(200), DIM(40)}},
    {{.name = "rows", .must = "direct", .row = LINEAR, .shape = {{A, 100}, {70, 100}, {70}}}, {DIM(40)}},
    {{.name = "rows, hint 1, long sums", .must = "direct", .row = LINEAR, .shape = {{A, 1500}, {33, 1500}, {33}}},
     {DIM(1)}},
    {{.name = "images and tokens", .must = "direct", .row = LINEAR, .shape = {{A, B, 24}, {40, 24}, {40}}},
     {DIM(3), DIM(20)}},
    {{.name = "images and rows apart",
      .must = "direct",
      .row = LINEAR,
      .shape = {{A, B, 24}, {40, 24}, {40}},
      .in = {{"012", 0, 8}},
      .out = {"102", 0, 0}},
     {DIM(3), DIM(20)}},
    {{.name = "sigmoid of rows",
      .must = "direct",
      .row = "x[M K] w[N K] b[N] -> y[M N] | | | y[M N] = sigmoid((sum[K] x[M K] * w[N K]) + b[N])",
      .shape = {{A, 30}, {37, 30}, {37}}},
     {DIM(64)}},
    {{.name = "causal rows",
      .must = "direct",
      .row = "x[M K] w[N K] -> y[M N] | | | y[M N] = where([M<N], -1.0, (sum[K] x[M K] * w[N K]))",
      .shape = {{A, 30}, {37, 30}}},
     {DIM(64)}},
    {{.name = "3x3, images",
      .must = "direct",
      .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P])",
      .shape = {{A, 8, 9, 7}, {33, 8, 3, 3}, {33}},
      .p = {1, 1},
      .q = {1, 1},
      .in = {NHWC},
      .out = NHWC},
     {FEW(4)}},
    {{.name = "3x3 halo, images",
      .must = "direct",
      .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P])",
      .shape = {{A, 8, 9, 7}, {33, 8, 3, 3}, {33}},
      .p = {1, 1},
      .q = {1, 1},
      .in = {{"0231", 1, 0}},
      .out = NHWC},
     {FEW(4)}},
    {{.name = "3x3, pictures",
      .must = "direct",
      .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P])",
      .shape = {{2, 8, A, B}, {20, 8, 3, 3}, {20}},
      .p = {1, 1},
      .q = {1, 1},
      .in = {NHWC},
      .out = NHWC},
     {FEW(20), FEW(30)}},
    {{.name = "3x3 halo, pictures",
      .must = "direct",
      .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P])",
      .shape = {{2, 8, A, B}, {20, 8, 3, 3}, {20}},
      .p = {1, 1},
      .q = {1, 1},
      .in = {{"0231", 1, 0}},
      .out = {"0231", 1, 0}},
     {FEW(20), FEW(30)}},
    {{.name = "3x3 of stride 2, row-major pictures",
      .must = "direct",
      .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P])",
      .shape = {{2, 5, A, B}, {20, 5, 3, 3}, {20}},
      .s = {2, 2},
      .p = {1, 1},
      .q = {1, 1}},
     {FEW(20), FEW(30)}},
    {{.name = "1x1, height of constant width",
      .must = "direct",
      .row = CONV_IN " b[O] r[N O P..]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P]) + r[N O P]",
      .shape = {{2, 30, A, 5}, {24, 30, 1, 1}, {24}, {2, 24, A, 5}},
      .in = {{"0231", 1, 0}, {0}, {0}, NHWC},
      .out = {"0231", 2, 0}},
     {DIM(20)}},
    {{.name = "groups, images",
      .must = "direct",
      .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P])",
      .shape = {{A, 64, 6, 5}, {64, 4, 3, 3}, {64}},
      .p = {1, 1},
      .q = {1, 1},
      .g = 16,
      .in = {NHWC},
      .out = NHWC},
     {FEW(3)}},
    {{.name = "scores",
      .must = "matmul",
      .row = "q[H M K] k[H N K] b[N] -> s[H M N] | | | s[H M N] = 0.125 * (sum[K] q[H M K] * k[H N K]) + b[N]",
      .shape = {{3, A, 64}, {3, A, 64}, {A}},
      .activation = 1},
     {DIM(40)}},
    {{.name = "scores, heads inside, causal",
      .must = "matmul",
      .row = "q[M H K] k[N H K] -> s[H M N] | | | s[H M N] = where([M<N], -9.0, 0.25 * (sum[K] q[M H K] * k[N H K]))",
      .shape = {{A, 3, 20}, {A, 3, 20}},
      .activation = 1},
     {DIM(70)}},
    {{.name = "values",
      .must = "matmul",
      .row = "s[H M K] v[H K N] -> y[H M N] | | | y[H M N] = sum[K] s[H M K] * v[H K N]",
      .shape = {{3, A, A}, {3, A, 48}},
      .activation = 1},
     {DIM(40)}},
    {{.name = "values, heads inside, no partial sums in the result",
      .must = "matmul",
      .row = "s[H M K] v[K H N] -> y[N M H] | | | y[N M H] = sum[K] s[H M K] * v[K H N]",
      .shape = {{3, A, A}, {A, 3, 21}},
      .activation = 1},
     {DIM(40)}},
    {{.name = "at most 200 keys",
      .must = "matmul",
      .row = "s[H M K] v[H K N] -> y[H M N] | | | y[H M N] = sum[K] s[H M K] * v[H K N]",
      .shape = {{3, B, A}, {3, A, 48}},
      .activation = 1},
     {{.hint = 40, .min = 1, .max = 200, .multiple = 1}, DIM(9)}},
    {{.name = "all sizes, transposed, f64",
      .must = "matmul",
      .row = "a[K M] b[N K] -> y[M N] | | | y[M N] = sum[K] a[K M] * b[N K]",
      .shape = {{B, A}, {B, B}},
      .dtype = SOL_F64,
      .activation = 1},
     {DIM(30), DIM(50)}},
    {{.name = "sixteen columns at a time",
      .must = "matmul",
      .row = "a[M K] b[K N] -> y[M N] | | | y[M N] = sum[K] a[M K] * b[K N]",
      .shape = {{B, 40}, {40, A}},
      .activation = 1},
     {{.hint = 48, .min = 16, .max = 1 << 20, .multiple = 16}, DIM(20)}},
    {{.name = "sums over images and pixels",
      .must = "matmul",
      .row = "a[N P M] b[N P O] -> y[M O] | | | y[M O] = sum[N P] a[N P M] * b[N P O]",
      .shape = {{B, A, 30}, {B, A, 40}},
      .activation = 1},
     {DIM(50), DIM(20)}},
    {{.name = "one row, any number of columns and terms",
      .must = "gemv",
      .row = "x[K] w[N K] b[N] -> y[N] | | | y[N] = relu((sum[K] x[K] * w[N K]) + b[N])",
      .shape = {{B}, {A, B}, {A}},
      .activation = 1},
     {DIM(50), DIM(20)}},
    {{.name = "one row of each image",
      .must = "gemv",
      .row = "x[M K] w[M N K] -> y[M N] | | | y[M N] = sum[K] x[M K] * w[M N K]",
      .shape = {{A, 40}, {A, B, 40}},
      .activation = 1},
     {DIM(50), DIM(20)}},
    {{.name = "one row, any number of columns and terms, columns",
      .must = "gemv",
      .row = "x[K] w[K N] b[N] -> y[N] | | | y[N] = relu((sum[K] x[K] * w[K N]) + b[N])",
      .shape = {{B}, {B, A}, {A}},
      .activation = 1},
     {DIM(50), DIM(20)}},
    {{.name = "one row of each image, columns",
      .must = "gemv",
      .row = "x[M K] w[M K N] -> y[M N] | | | y[M N] = sum[K] x[M K] * w[M K N]",
      .shape = {{A, 40}, {A, 40, B}},
      .activation = 1},
     {DIM(50), DIM(20)}},
    {{.name = "gradient of a 3x3, images",
      .must = "weights",
      .row = GRADIENT "sum[N P] dy[N G*#C+C P] * x[N G*#J+J s*P+d*K-p]:0",
      .shape = {{A, 20, 8, 7}, {A, 33, 8, 7}},
      .p = {1, 1},
      .q = {1, 1},
      .in = {NHWC, NHWC},
      .activation = 1},
     {FEW(6)}},
    {{.name = "gradient of a 3x3 of stride 2, pictures with halos",
      .must = "weights",
      .row = GRADIENT "sum[N P] dy[N G*#C+C P] * x[N G*#J+J s*P+d*K-p]:0",
      .shape = {{2, 20, TWICE_A, 13}, {2, 33, A, 7}},
      .s = {2, 2},
      .p = {1, 1},
      .q = {0, 1},
      .in = {{"0231", 1, 0}, NHWC},
      .activation = 1},
     {FEW(6)}},
    {{.name = "gradient of a linear layer",
      .must = "weights",
      .row = "x[M I] dy[M O] -> w[O I] | | | w[O I] = sum[M] x[M I] * dy[M O]",
      .shape = {{A, 30}, {A, 40}},
      .activation = 1},
     {DIM(50)}},
    {{.name = "gradient of a linear layer, channels a size apart",
      .must = "weights",
      .row = "x[M J I] dy[M O J] -> w[O I] | | | w[O I] = sum[M J] x[M J I] * dy[M O J]",
      .shape = {{B, A, 30}, {B, 20, A}},
      .activation = 1},
     {DIM(50), DIM(3)}},
    {{.name = "gradient of a 3x3 with Winograd, pictures",
      .must = "weights-winograd",
      .row = GRADIENT "sum[N P] dy[N G*#C+C P] * x[N G*#J+J s*P+d*K-p]:0",
      .shape = {{2, 20, A, B}, {2, 33, A, B}},
      .p = {1, 1},
      .q = {1, 1},
      .in = {NHWC, NHWC},
      .activation = 1},
     {FEW(20), FEW(30)}},
    {{.name = "winograd steps, pictures",
      .must = "winograd",
      .variant = "F(4,3) steps",
      .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P])",
      .shape = {{2, 20, A, B}, {33, 20, 3, 3}, {33}},
      .p = {1, 1},
      .q = {1, 1},
      .in = {NHWC},
      .out = NHWC},
     {FEW(20), FEW(30)}},
    {{.name = "winograd groups, pictures with halos",
      .must = "winograd",
      .variant = "F(2,3) group",
      .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P])",
      .shape = {{2, 20, A, B}, {33, 20, 3, 3}, {33}},
      .p = {1, 1},
      .q = {1, 1},
      .in = {{"0231", 1, 0}},
      .out = {"0231", 1, 0}},
     {FEW(20), FEW(30)}},
    {{.name = "winograd groups, images of a dilated 5x5",
      .must = "winograd",
      .variant = "F(2,5) group",
      .row = CONV_IN " b[O]" CONV_OUT " + b[G*#C+C]; y[N O P] = relu(t[N O P])",
      .shape = {{A, 20, 11, 9}, {33, 20, 5, 5}, {33}},
      .d = {2, 1},
      .p = {4, 2},
      .q = {4, 2},
      .in = {NHWC},
      .out = NHWC},
     {FEW(3)}},
};
static struct bound bounds[COUNT_OF(varying)];

static const int64_t sizes[][DIMS] = {{1, 1},   {2, 3},  {3, 1},   {7, 5},   {16, 2},  {17, 16}, {33, 7},
                                      {31, 29}, {64, 9}, {101, 1}, {131, 4}, {1, 103}, {700, 2}};

/* The example with sizes in place of the dimensions. */
static struct example with_sizes(const struct varying *v, const int64_t *by)
{
    struct example e = v->e;
    for (int i = 0; i < MAX_INPUTS; i++)
        for (int d = 0; d < 6; d++)
            if (e.shape[i][d] == TWICE_A)
                e.shape[i][d] = size_mul(2, by[0]);
            else if (e.shape[i][d] < 0)
                e.shape[i][d] = by[-1 - e.shape[i][d]];
    return e;
}

static void add_job(const struct bound *b, const struct target *t, const struct solver *s, const struct variant *v)
{
    const struct solver_context sc = {.arena = b->arena, .target = t};
    struct job *j = &jobs.at[jobs.n];
    *j = (struct job){.b = b, .target = t, .id = jobs.n++};
    if (solver_emit(s, &sc, &b->c, v, &j->k)) fail_msg("%s: %s: %s", b->e->name, s->name, sol_error(the_ctx));
}

/* A variant of each solver that says that it can. */
static void add_jobs(const struct bound *b, const struct target *t, int turn)
{
    const struct solver_context sc = {.arena = b->arena, .target = t};
    bool found = false;
    for (int s = 0; solvers[s]; s++) {
        const char *why = "";
        struct variant v[SOLVER_MAX_VARIANTS];
        memset(v, 0, sizeof v);
        if (!solvers[s]->blocks || solvers[s]->lanes == FOR_ITEMS || !solvers[s]->dynamic ||
            !solvers[s]->applicable(&sc, &b->c, &why)) {
            if (!strcmp(solvers[s]->name, b->e->must)) print_error("%s: %s\n", b->e->name, why);
            continue;
        }
        found |= !strcmp(solvers[s]->name, b->e->must);
        const int n = solvers[s]->variants(&sc, &b->c, v);
        if (!n) continue;
        const struct variant *pick = &v[(turn + 5 * (int)(b - bounds)) % n];
        for (int i = 0; i < n && b->e->variant; i++)
            if (strstr(v[i].text, b->e->variant)) pick = &v[i];
        if (b->e->variant && strcmp(solvers[s]->name, b->e->must)) continue;
        if (b->e->variant && !strstr(pick->text, b->e->variant))
            fail_msg("%s: no variant %s", b->e->name, b->e->variant);
        add_job(b, t, solvers[s], pick);
    }
    if (!found) fail_msg("%s: solver %s does not apply", b->e->name, b->e->must);
}

/* Runs the kernels of example i at one pair of sizes. */
static void run_at(int i, const int64_t *by)
{
    static struct bound at;
    const struct varying *v = &varying[i];
    int64_t dims[DIMS];
    for (int k = 0; k < DIMS; k++) {
        const int64_t m = MAX(1, v->dim[k].multiple);
        dims[k] = ceil_div(by[k], m) * m;
        if (v->dim[k].max && dims[k] > v->dim[k].max) return;
    }
    const struct example e = with_sizes(v, dims);
    bind(&at, the_ctx, &e);
    for (int k = 0; k < jobs.n; k++) {
        struct job j = jobs.at[k];
        if (j.b != &bounds[i]) continue;
        j.b = &at;
        j.sizes = dims;
        run_job(the_ctx, &j);
    }
    arena_destroy(at.arena);
}

static void check_target(const char *name, int from, int step)
{
    const int every = step_of_cases(step);
    struct target t;
    assert_int_equal(target_named(the_ctx, name, &t), 0);
    t.cores = 2;
    jobs.n = 0;
    jobs.serial++;
    const char *only = getenv("DNN_TEST_ONLY");
    for (int i = from; i < COUNT_OF(varying); i += every)
        if (!only || strstr(varying[i].e.name, only)) add_jobs(&bounds[i], &t, from);
    if (!jobs.n) return;
    compile_jobs("gcc", &t);
    for (int i = from; i < COUNT_OF(varying); i += every)
        for (int s = 0; s < COUNT_OF(sizes); s++) run_at(i, sizes[s]);
    for (int k = 0; k < PARTS; k++) dlclose(parts[k]);
}

static void avx512(void **state)
{
    (void)state;
#if defined __x86_64__
    if (!__builtin_cpu_supports("avx512f")) skip();
    check_target("avx512", 0, 1);
#endif
}
static void avx2(void **state)
{
    (void)state;
#if defined __x86_64__
    if (!__builtin_cpu_supports("avx2")) skip();
    check_target("avx2", 1, 4);
#endif
}
static void sse2(void **state)
{
    (void)state;
#if defined __x86_64__
    check_target("sse2", 2, 6);
#endif
}

static struct example with_forms[COUNT_OF(varying)];

static int set_up(void **state)
{
    (void)state;
    strcpy(jobs.folder, "/tmp/sol-dnn-test-XXXXXX");
    if (!mkdtemp(jobs.folder) || sol_ctx_create(NULL, &the_ctx)) return -1;
    for (int i = 0; i < COUNT_OF(varying); i++) {
        int64_t forms[DIMS];
        for (int k = 0; k < DIMS; k++) {
            struct size_dim d = varying[i].dim[k];
            d.index = k;
            forms[k] = d.max ? size_of_dim(&d) : 1;
        }
        with_forms[i] = with_sizes(&varying[i], forms);
        bind_loops(&bounds[i], the_ctx, &with_forms[i]);
    }
    return 0;
}
static int tear_down(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", jobs.folder);
    if (!getenv("DNN_TEST_KEEP") && system(command)) return -1;
    for (int i = 0; i < COUNT_OF(varying); i++) arena_destroy(bounds[i].arena);
    sol_ctx_destroy(the_ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(avx512), cmocka_unit_test(avx2), cmocka_unit_test(sse2)};
    return cmocka_run_group_tests_name("dnn_dims", tests, set_up, tear_down);
}
