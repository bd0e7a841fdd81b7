/* Failures seen through sol.h: a small network is created, compiled, prepared and run while each allocation fails in
 * turn, while the application interrupts at each point in turn, and without a compiler. Each call must report the
 * reason, nothing may leak, and the next try with the same cache must give the right numbers. */
#include "sol/sol.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fail_alloc.h"

#define TRY(call)                    \
    do {                             \
        sol_status status_ = (call); \
        if (status_) return status_; \
    } while (0)

enum { N = 2, C = 3, Q = 6, O = 4 };

static float x[N][C][Q][Q], w[O][C][3][3], b[O], y[N][O];

static int setup(void **state)
{
    static char folder[64];
    strcpy(folder, "/tmp/sol-faults-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    setenv("SOL_CACHE", folder, 1);
    *state = folder;
    unsigned seed = 1;
    for (int i = 0; i < N * C * Q * Q; i++)
        (&x[0][0][0][0])[i] = (float)((seed = seed * 1103515245 + 12345) >> 16) / 65536;
    for (int i = 0; i < O * C * 9; i++)
        (&w[0][0][0][0])[i] = (float)((seed = seed * 1103515245 + 12345) >> 16) / 65536 - 0.5f;
    for (int i = 0; i < O; i++) b[i] = (float)i - 1;
    return 0;
}

static int teardown(void **state)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", (const char *)*state);
    return system(command);
}

/* mean over the pixels of relu(conv(x, w) + b), computed directly */
static void reference(void)
{
    for (int n = 0; n < N; n++)
        for (int o = 0; o < O; o++) {
            double mean = 0;
            for (int p = 0; p < Q - 2; p++)
                for (int q = 0; q < Q - 2; q++) {
                    double sum = b[o];
                    for (int c = 0; c < C; c++)
                        for (int k = 0; k < 9; k++)
                            sum += (double)x[n][c][p + k / 3][q + k % 3] * w[o][c][k / 3][k % 3];
                    mean += sum > 0 ? sum : 0;
                }
            y[n][o] = (float)(mean / ((Q - 2) * (Q - 2)));
        }
}

static sol_status describe(struct sol_graph *g)
{
    const int64_t xs[] = {N, C, Q, Q}, ws[] = {O, C, 3, 3}, bs[] = {O}, axes[] = {2, 3};
    const struct sol_attr over = {.name = "axes", .kind = SOL_ATTR_INT, .n = 2, .ints = axes};
    struct sol_tensor *t[3], *r;
    TRY(sol_graph_input(g, "x", SOL_F32, 4, xs, &t[0]));
    TRY(sol_graph_param(g, "w", SOL_F32, 4, ws, &t[1]));
    TRY(sol_graph_param(g, "b", SOL_F32, 1, bs, &t[2]));
    TRY(sol_graph_layer(
        g, &(struct sol_new_layer){.kind = "Conv", .nin = 3, .in = t, .name = "conv", .where = "net.py:1"}, 1, &r));
    TRY(sol_graph_layer(g, &(struct sol_new_layer){.kind = "relu", .nin = 1, .in = &r, .name = "relu"}, 1, &r));
    TRY(sol_graph_layer(
        g, &(struct sol_new_layer){.kind = "Mean", .nin = 1, .in = &r, .nattr = 1, .attrs = &over, .name = "mean"}, 1,
        &r));
    return sol_graph_output(g, "y", r);
}

static sol_status run(struct sol_net *net)
{
    float out[N][O];
    struct sol_params *params;
    TRY(sol_params_create(net, &params));
    sol_status status = sol_params_set(params, 0, w);
    if (!status) status = sol_params_set(params, 1, b);
    if (!status) status = sol_net_run(net, params, (const void *[]){x}, (void *[]){out}, 1);
    sol_params_destroy(params);
    TRY(status);
    for (int i = 0; i < N * O; i++) assert_float_equal((&out[0][0])[i], (&y[0][0])[i], 1e-5);
    return SOL_OK;
}

/* Creates, compiles and runs the network. */
static sol_status work(struct sol_ctx *ctx)
{
    struct sol_graph *g = NULL;
    struct sol_net *net = NULL;
    sol_status status = sol_graph_create(ctx, "small", &g);
    if (!status) status = describe(g);
    if (!status) status = sol_compile(ctx, g, &net);
    sol_graph_destroy(g);
    if (!status) status = run(net);
    sol_net_destroy(net);
    return status;
}

static void all_is_well(void **state)
{
    (void)state;
    struct sol_ctx *ctx;
    reference();
    assert_int_equal(sol_ctx_create(NULL, &ctx), SOL_OK);
    sol_status status = work(ctx);
    if (status) print_error("%s\n", sol_error(ctx));
    assert_int_equal(status, SOL_OK);
    assert_int_equal(work(ctx), SOL_OK);
    sol_ctx_destroy(ctx);
}

/* Runs with allocation `at` failing, and all later ones if `later`. `cold`: the cache is empty. Returns the number of
 * allocations. */
static long with_failure(long at, int later, bool cold)
{
    struct fail_alloc f = {.fail_at = at, .from_then_on = later};
    struct sol_ctx_options o = {.size = sizeof o, .reallocate = fail_alloc, .user = &f};
    struct sol_ctx *ctx;
    sol_status status = sol_ctx_create(&o, &ctx);
    if (!status && cold) status = sol_cache_clear(ctx);
    if (!status) status = work(ctx);
    if (status && status != SOL_ERR_NOMEM) print_error("allocation %ld: %d: %s\n", at, status, sol_error(ctx));
    assert_true(status == SOL_OK || status == SOL_ERR_NOMEM); /* a failure that only costs time may be ignored */
    if (at < 0) assert_int_equal(status, SOL_OK);
    if (at >= 0 && later && at < 2) assert_int_equal(status, SOL_ERR_NOMEM);
    sol_ctx_destroy(ctx);
    assert_int_equal(f.alive, 0);
    return f.n;
}

static void each_allocation_fails_in_turn(void **state)
{
    (void)state;
    for (int cold = 0; cold < 2; cold++) {
        const long n = with_failure(-1, 0, cold);
        assert_true(n > 5);
        for (long i = 0; i < n; i++) with_failure(i, 0, cold);
        for (long i = 0; i < n; i += 1 + n / 50) with_failure(i, 1, cold);
        with_failure(-1, 0, false);
    }
}

#if !defined __SANITIZE_ADDRESS__
/* -- malloc. The loader and the threads of the runtime use it; each call fails in turn for all users. If another
 * library runs out of memory, its call fails in its own way. */

static atomic_long mallocs, malloc_fails; /* so far; the number of the one that fails, 0: none */

static bool reject(void)
{
    const long n = atomic_fetch_add(&mallocs, 1) + 1;
    return n == atomic_load(&malloc_fails);
}

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *p, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);

void *malloc(size_t bytes)
{
    return reject() ? NULL : __libc_malloc(bytes);
}
void *calloc(size_t n, size_t bytes)
{
    return reject() ? NULL : __libc_calloc(n, bytes);
}
void *realloc(void *p, size_t bytes)
{
    return bytes && reject() ? NULL : __libc_realloc(p, bytes);
}
int posix_memalign(void **out, size_t align, size_t bytes)
{
    *out = reject() ? NULL : __libc_memalign(align, bytes);
    return *out ? 0 : ENOMEM;
}

/* Returns the number of calls of malloc. */
static long with_malloc_failing(long at, int *failed)
{
    struct sol_ctx *ctx = NULL;
    atomic_store(&mallocs, 0);
    atomic_store(&malloc_fails, at);
    sol_status status = sol_ctx_create(NULL, &ctx);
    if (!status) status = sol_config_set(ctx, "log::level", "ERROR");
    if (!status) status = work(ctx);
    const long n = atomic_load(&mallocs);
    atomic_store(&malloc_fails, 0);
    *failed += status != SOL_OK;
    if (status != SOL_OK && status != SOL_ERR_NOMEM && status != SOL_ERR_IO && status != SOL_ERR_COMPILER)
        fail_msg("malloc %ld: %d: %s", at, status, sol_error(ctx));
    if (status) assert_true(*sol_error(ctx) != 0);
    sol_ctx_destroy(ctx);
    return n;
}

static void mallocs_fail_in_turn(void **state)
{
    (void)state;
    int failed = 0;
    const long n = with_malloc_failing(0, &failed);
    assert_int_equal(failed, 0);
    for (long i = 1; i <= n; i += 3) with_malloc_failing(i, &failed); /* each compiles again, which is slow */
    failed = 0;
    with_malloc_failing(0, &failed);
    assert_int_equal(failed, 0);
}
#endif

static int interrupt(void *user)
{
    long *left = user;
    return (*left)-- <= 0;
}

static void each_point_can_be_interrupted(void **state)
{
    (void)state;
    sol_status status = SOL_ERR_INTERRUPTED;
    int stopped = 0;
    for (long points = 0; status; points = points * 5 / 4 + 1) {
        long left = points;
        struct sol_ctx_options o = {.size = sizeof o, .interrupted = interrupt, .user = &left};
        struct sol_ctx *ctx;
        assert_int_equal(sol_ctx_create(&o, &ctx), SOL_OK);
        status = work(ctx);
        assert_true(status == SOL_OK || status == SOL_ERR_INTERRUPTED);
        stopped += status != SOL_OK;
        sol_ctx_destroy(ctx);
    }
    assert_true(stopped > 0);
}

static void no_compiler_is_said(void **state)
{
    (void)state;
    struct sol_ctx *ctx;
    assert_int_equal(sol_ctx_create(NULL, &ctx), SOL_OK);
    assert_int_equal(sol_config_set(ctx, "cache::folder", ""), SOL_OK);
    static const char *const compilers[] = {"/nowhere/there-is-no-compiler", "false"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sol_config_set(ctx, "compiler::name", compilers[i]), SOL_OK);
        assert_int_equal(work(ctx), SOL_ERR_COMPILER);
        assert_non_null(strstr(sol_error(ctx), compilers[i]));
    }
    sol_ctx_destroy(ctx);
}

static void code_for_another_machine_is_rejected(void **state)
{
    (void)state;
#if defined __aarch64__
    static const char other[] = "sse2";
#else
    static const char other[] = "neon";
#endif
    struct sol_ctx *ctx;
    assert_int_equal(sol_ctx_create(NULL, &ctx), SOL_OK);
    assert_int_equal(sol_config_set(ctx, "target", other), SOL_OK);
    assert_int_equal(work(ctx), SOL_ERR_UNSUPPORTED);
    assert_non_null(strstr(sol_error(ctx), other));
    assert_int_equal(sol_config_set(ctx, "target", "native"), SOL_OK);
    assert_int_equal(work(ctx), SOL_OK);
    sol_ctx_destroy(ctx);
}

/* -- mistakes of callers */

static void mistakes_are_named(void **state)
{
    (void)state;
    struct sol_ctx *ctx;
    struct sol_graph *g;
    struct sol_tensor *t, *i, *seven, *r[2];
    assert_int_equal(sol_ctx_create(NULL, &ctx), SOL_OK);
    assert_int_equal(sol_graph_create(ctx, "mistakes", &g), SOL_OK);
    const int64_t four[] = {2, 3, 4, 4}, huge[] = {(int64_t)1 << 40, (int64_t)1 << 40}, minus[] = {2, -1};
    assert_int_equal(sol_graph_input(g, "h", SOL_F32, 2, huge, &t), SOL_ERR_INVALID);
    assert_int_equal(sol_graph_input(g, "m", SOL_F32, 2, minus, &t), SOL_ERR_INVALID);
    assert_int_equal(sol_graph_input(g, "x", SOL_F32, 4, four, &t), SOL_OK);
    assert_int_equal(sol_graph_input(g, "i", SOL_I32, 4, four, &i), SOL_OK);
    assert_int_equal(sol_graph_param(g, "w", SOL_F32, 4, (int64_t[]){5, 7, 3, 3}, &seven), SOL_OK);
    assert_int_not_equal(
        sol_graph_layer(g, &(struct sol_new_layer){.kind = "NoSuchLayer", .nin = 1, .in = &t, .name = "l"}, 1, r),
        SOL_OK);
    assert_non_null(strstr(sol_error(ctx), "NoSuchLayer"));
    struct sol_tensor *two[] = {t, seven}, *mixed[] = {t, i};
    assert_int_not_equal(
        sol_graph_layer(g, &(struct sol_new_layer){.kind = "Conv", .nin = 1, .in = &t, .name = "the conv"}, 1, r),
        SOL_OK); /* a missing weight */
    assert_int_not_equal(
        sol_graph_layer(g, &(struct sol_new_layer){.kind = "Conv", .nin = 2, .in = two, .name = "the conv"}, 1, r),
        SOL_OK); /* wrong channels */
    assert_true(*sol_error(ctx) != 0);
    assert_int_not_equal(
        sol_graph_layer(g, &(struct sol_new_layer){.kind = "add", .nin = 2, .in = mixed, .name = "sum"}, 1, r),
        SOL_OK); /* wrong types */
    const int64_t large = 1000;
    const struct sol_attr k = {.name = "k", .kind = SOL_ATTR_INT, .n = -1, .ints = &large};
    assert_int_not_equal(
        sol_graph_layer(
            g, &(struct sol_new_layer){.kind = "MaxPool", .nin = 1, .in = &t, .nattr = 1, .attrs = &k, .name = "pool"},
            1, r),
        SOL_OK); /* a window larger than the image */
    const struct sol_attr no = {.name = "nonsense", .kind = SOL_ATTR_INT, .n = -1, .ints = &large};
    assert_int_not_equal(
        sol_graph_layer(
            g, &(struct sol_new_layer){.kind = "relu", .nin = 1, .in = &t, .nattr = 1, .attrs = &no, .name = "relu"}, 1,
            r),
        SOL_OK);
    assert_int_equal(sol_layer_known(ctx, "Conv"), 1);
    assert_int_equal(sol_layer_known(ctx, "NoSuchLayer"), 0);
    sol_graph_destroy(g);
    sol_ctx_destroy(ctx);
}

/* Empty inputs go through an element-wise layer, a reduction, a contraction and a Concat. */
static void empty_tensors_are_fine(void **state)
{
    (void)state;
    const int64_t axis = 0;
    const struct sol_attr over = {.name = "axes", .kind = SOL_ATTR_INT, .n = 1, .ints = &axis},
                          along = {.name = "axis", .kind = SOL_ATTR_INT, .n = -1, .ints = &axis};
    for (int rows = 0; rows < 2; rows++) {
        const int64_t shape[] = {rows, 3}, square[] = {3, 3};
        float in[3] = {1, 2, 3}, one[3] = {9, 9, 9}, sum[3] = {9, 9, 9}, product[3] = {9, 9, 9}, both[6], eye[9] = {0};
        for (int i = 0; i < 3; i++) eye[4 * i] = 1;
        struct sol_ctx *ctx;
        struct sol_graph *g;
        struct sol_net *net;
        struct sol_tensor *t[2], *r;
        assert_int_equal(sol_ctx_create(NULL, &ctx), SOL_OK);
        assert_int_equal(sol_graph_create(ctx, "empty", &g), SOL_OK);
        assert_int_equal(sol_graph_input(g, "x", SOL_F32, 2, shape, &t[0]), SOL_OK);
        assert_int_equal(sol_graph_param(g, "w", SOL_F32, 2, square, &t[1]), SOL_OK);
        assert_int_equal(
            sol_graph_layer(g, &(struct sol_new_layer){.kind = "exp", .nin = 1, .in = t, .name = "exp"}, 1, &r),
            SOL_OK);
        assert_int_equal(sol_graph_output(g, "exp", r), SOL_OK);
        assert_int_equal(
            sol_graph_layer(
                g, &(struct sol_new_layer){.kind = "Sum", .nin = 1, .in = t, .nattr = 1, .attrs = &over, .name = "sum"},
                1, &r),
            SOL_OK);
        assert_int_equal(sol_graph_output(g, "sum", r), SOL_OK);
        assert_int_equal(
            sol_graph_layer(g, &(struct sol_new_layer){.kind = "Linear", .nin = 2, .in = t, .name = "linear"}, 1, &r),
            SOL_OK);
        assert_int_equal(sol_graph_output(g, "linear", r), SOL_OK);
        struct sol_tensor *twice[] = {t[0], t[0]};
        assert_int_equal(
            sol_graph_layer(g,
                            &(struct sol_new_layer){
                                .kind = "Concat", .nin = 2, .in = twice, .nattr = 1, .attrs = &along, .name = "concat"},
                            1, &r),
            SOL_OK);
        assert_int_equal(sol_graph_output(g, "concat", r), SOL_OK);
        sol_status status = sol_compile(ctx, g, &net);
        if (status) print_error("%s\n", sol_error(ctx));
        assert_int_equal(status, SOL_OK);
        struct sol_params *params;
        assert_int_equal(sol_params_create(net, &params), SOL_OK);
        assert_int_equal(sol_params_set(params, 0, eye), SOL_OK);
        assert_int_equal(sol_net_run(net, params, (const void *[]){in}, (void *[]){one, sum, product, both}, 2),
                         SOL_OK);
        for (int i = 0; i < 3; i++) {
            assert_float_equal(one[i], rows ? exp(in[i]) : 9, 1e-5);
            assert_float_equal(sum[i], rows ? in[i] : 0, 0);
            assert_float_equal(product[i], rows ? in[i] : 9, 1e-6);
        }
        sol_params_destroy(params);
        sol_net_destroy(net);
        sol_graph_destroy(g);
        sol_ctx_destroy(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_is_well),
        cmocka_unit_test(each_allocation_fails_in_turn),
#if !defined __SANITIZE_ADDRESS__
        cmocka_unit_test(mallocs_fail_in_turn),
#endif
        cmocka_unit_test(each_point_can_be_interrupted),
        cmocka_unit_test(no_compiler_is_said),
        cmocka_unit_test(code_for_another_machine_is_rejected),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(empty_tensors_are_fine),
    };
    return cmocka_run_group_tests_name("faults", tests, setup, teardown);
}
