/* Saved tensors of training networks: where they lie, many threads, forked children, a network that is destroyed before
 * them, and failing allocations. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fail_alloc.h"
#include "training_net.h"

/* -- memory */

static unsigned below(unsigned *seed, unsigned n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % n;
}

static void apart(const struct rt_block *x, const struct rt_block *y)
{
    if (x->last < y->first || y->last < x->first || !x->bytes || !y->bytes) return;
    assert_true(x->offset + x->bytes <= y->offset || y->offset + y->bytes <= x->offset);
}

/* Blocks that live at the same time do not overlap, including given ones, and none crosses the end of the room. */
static void blocks_lie_apart(void **state)
{
    (void)state;
    enum { N = 40, GIVEN = 12, STEPS = 30 };
    unsigned seed = 3;
    for (int round = 0; round < 300; round++) {
        struct rt_block b[N], given[GIVEN];
        int64_t room = 0, whole;
        for (int i = 0; i < GIVEN; i++) {
            given[i] = (struct rt_block){64 * below(&seed, 40), room, -1, (int)below(&seed, STEPS)};
            room += given[i].bytes;
        }
        if (round % 3 == 0) room = 0;
        for (int i = 0; i < N; i++) {
            const int first = (int)below(&seed, STEPS);
            b[i] = (struct rt_block){below(&seed, 3000), -1, first, first + (int)below(&seed, 6)};
        }
        const int ngiven = room ? GIVEN : 0;
        void *memory = malloc(rt_offsets_bytes(N, ngiven));
        whole = rt_offsets(&(struct rt_layout){b, given, N, ngiven, room, memory, 0});
        free(memory);
        for (int i = 0; i < N; i++) {
            assert_true(b[i].offset >= 0 && b[i].offset % 64 == 0 && b[i].offset + b[i].bytes <= whole);
            assert_true(b[i].offset >= room || b[i].offset + b[i].bytes <= room);
            for (int k = 0; k < i; k++) apart(&b[i], &b[k]);
            for (int k = 0; k < ngiven; k++) apart(&b[i], &given[k]);
        }
    }
}

/* -- many threads, forked children, without the network, without memory */

static void *train(void *user)
{
    struct net n = *(struct net *)user;
    for (int i = 0; i < 30; i++) {
        struct sol_saved *a = forward(&n, 1 + i % 3), *b = forward(&n, 1);
        backward(&n, a, 0, 1 + i % 2);
        sol_saved_destroy(a);
        check(&n, true);
        backward(&n, b, 0, 1);
        sol_saved_destroy(b);
        check(&n, true);
    }
    return NULL;
}

static void many_threads(void **state)
{
    (void)state;
    struct net n = make(cnn), own[4];
    pthread_t thread[4];
    for (int i = 0; i < 4; i++) {
        own[i] = n;
        for (int o = 0; o < n.nout; o++) own[i].out[o] = calloc(n.out_n[o], sizeof(float));
        assert_int_equal(pthread_create(&thread[i], NULL, train, &own[i]), 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < 4; i++)
        for (int o = 0; o < n.nout; o++) free(own[i].out[o]);
    drop(&n);
}

static void a_child_goes_on(void **state)
{
    (void)state;
    struct net n = make(cnn);
    struct sol_saved *saved = forward(&n, 2);
    pid_t child = fork();
    if (!child) {
        alarm(60);
        backward(&n, saved, 0, 2);
        check(&n, true);
        sol_saved_destroy(saved);
        saved = forward(&n, 2);
        backward(&n, saved, 0, 2);
        check(&n, true);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    backward(&n, saved, 0, 2);
    check(&n, true);
    sol_saved_destroy(saved);
    drop(&n);
}

static void saved_outlives_its_network(void **state)
{
    (void)state;
    struct net n = make(cnn);
    struct sol_saved *a = forward(&n, 1), *b = forward(&n, 1), *c = forward(&n, 1);
    sol_saved_destroy(b);
    drop(&n);
    sol_saved_destroy(a);
    sol_saved_destroy(c);
}

/* After many pending calls, one at a time: idle memory is returned to the system. */
static void idle_memory_goes(void **state)
{
    (void)state;
    struct sol_ctx *before = ctx;
    struct fail_alloc f = {.fail_at = -1};
    const struct sol_ctx_options o = {.size = sizeof o, .reallocate = fail_alloc, .user = &f};
    good(sol_ctx_create(&o, &ctx));
    struct net n = make(cnn);
    struct sol_saved *many[20];
    sol_saved_destroy(forward(&n, 1));
    const long quiet = f.alive;
    for (int i = 0; i < 20; i++) many[i] = forward(&n, 1);
    const long most = f.alive;
    for (int i = 0; i < 20; i++) sol_saved_destroy(many[i]);
    assert_int_equal(f.alive, most); /* a loop with 20 pending calls finds the memory again */
    for (int i = 0; i < 100; i++) sol_saved_destroy(forward(&n, 1));
    assert_int_equal(f.alive, quiet);
    const long calls = f.n;
    for (int i = 0; i < 100; i++) sol_saved_destroy(forward(&n, 1));
    assert_int_equal(f.n, calls); /* a step allocates nothing */
    drop(&n);
    sol_ctx_destroy(ctx);
    ctx = before;
}

/* Each allocation of a forward and a backward fails in turn: nothing leaks, and the next try works. */
static void out_of_memory(void **state)
{
    (void)state;
    struct sol_ctx *before = ctx;
    bool failed = true;
    for (long at = 0; failed; at++) {
        struct fail_alloc f = {.fail_at = -1};
        const struct sol_ctx_options o = {.size = sizeof o, .reallocate = fail_alloc, .user = &f};
        good(sol_ctx_create(&o, &ctx));
        good(sol_config_set(ctx, "log::level", "ERROR"));
        struct net n = make(cnn);
        const void *in[MOST];
        void *out[MOST];
        struct sol_saved *saved;
        pointers(&n, false, in, out);
        f.fail_at = f.n + at;
        sol_status status = sol_net_forward(n.net, n.params, in, out, 2, &saved);
        assert_true(!status == !!saved);
        if (!status) status = try_backward(&n, saved, 0, 2);
        failed = status != SOL_OK;
        if (failed) assert_int_equal(status, SOL_ERR_NOMEM);
        sol_saved_destroy(saved);
        f.fail_at = -1;
        saved = forward(&n, 2);
        backward(&n, saved, 0, 2);
        check(&n, true);
        sol_saved_destroy(saved);
        drop(&n);
        sol_ctx_destroy(ctx);
        assert_int_equal(f.alive, 0);
    }
    ctx = before;
}

int main(void)
{
    if (sol_ctx_create(NULL, &ctx)) return 2;
    sol_config_set(ctx, "log::level", "ERROR");
    const struct CMUnitTest tests[] = {cmocka_unit_test(blocks_lie_apart), cmocka_unit_test(many_threads),
                                       cmocka_unit_test(a_child_goes_on),  cmocka_unit_test(saved_outlives_its_network),
                                       cmocka_unit_test(idle_memory_goes), cmocka_unit_test(out_of_memory)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    sol_ctx_destroy(ctx);
    return failed;
}
