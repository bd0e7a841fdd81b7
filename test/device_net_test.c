/* Networks on the device far: they compute what they compute here, and failures of the device lose nothing. */
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "context.h"
#include "device/device.h"
#include "fail_alloc.h"

static struct sol_ctx *far_ctx(const char *options)
{
    struct sol_ctx *c;
    assert_int_equal(sol_ctx_create(NULL, &c), SOL_OK);
    assert_int_equal(sol_config_set(c, "device::options", options), SOL_OK);
    assert_int_equal(sol_device_select(c, "far"), SOL_OK);
    return c;
}

/* The same, whose memory is counted. */
static struct sol_ctx *counted_ctx(struct fail_alloc *memory, const char *options)
{
    struct sol_ctx_options o = {.size = sizeof o, .reallocate = fail_alloc, .user = memory};
    struct sol_ctx *c;
    assert_int_equal(sol_ctx_create(&o, &c), SOL_OK);
    assert_int_equal(sol_config_set(c, "device::options", options), SOL_OK);
    assert_int_equal(sol_device_select(c, "far"), SOL_OK);
    return c;
}

static struct dev *far_dev(struct sol_ctx *c)
{
    const struct sol_device_type *type;
    struct dev *dev;
    int index;
    assert_int_equal(devices_selected(c, &type, &index), SOL_OK);
    if (dev_get(c, type, index, &dev)) fail_msg("%s", sol_error(c));
    return dev;
}

static const char cnn[] = "graph \"cnn\"\n"
                          "input %0:f32[2 3 8 8] \"x\"\nparam %1:f32[8 3 3 3] \"w1\"\nparam %2:f32[8] \"b1\"\n"
                          "param %3:f32[5 8] \"w2\"\n"
                          "%4 = Conv(%0, %1, %2) p=1 q=1\n%5 = relu(%4)\n%6 = Mean(%5) axes=[2,3]\n"
                          "%7, %8 = Sort(%6) axis=1\n%9 = exp(%7)\n%10 = Linear(%9, %3)\noutput %10 \"y\"\n";
enum { IN = 2 * 3 * 8 * 8, OUT = 2 * 5, PARAMS = 8 * 27 + 8 + 40 };
static const int param_at[] = {0, 8 * 27, 8 * 27 + 8};

struct cnn {
    struct sol_graph *g;
    struct sol_net *net;
    struct sol_params *params;
    float x[IN], p[PARAMS], y[OUT];
};

static void set_params(struct cnn *n)
{
    for (int i = 0; i < 3; i++) assert_int_equal(sol_params_set(n->params, i, n->p + param_at[i]), SOL_OK);
}

/* On the device that the context selects. */
static struct cnn *make_cnn(struct sol_ctx *c)
{
    struct cnn *n = calloc(1, sizeof *n);
    if (sol_graph_parse(c, cnn, &n->g) || sol_compile(c, n->g, &n->net)) fail_msg("%s", sol_error(c));
    assert_int_equal(sol_params_create(n->net, &n->params), SOL_OK);
    for (int i = 0; i < IN; i++) n->x[i] = (float)(i * 37 % 101) / 101 - 0.5f;
    for (int i = 0; i < PARAMS; i++) n->p[i] = (float)(i * 53 % 97) / 97 - 0.5f;
    set_params(n);
    return n;
}

static void drop_cnn(struct cnn *n)
{
    sol_params_destroy(n->params);
    sol_net_destroy(n->net);
    sol_graph_destroy(n->g);
    free(n);
}

static sol_status run_cnn(const struct cnn *n, float y[OUT])
{
    memset(y, 0, OUT * sizeof *y);
    return sol_net_run(n->net, n->params, (const void *const[]){n->x}, (void *const[]){y}, 1);
}

/* A network with a step of the host in the middle has the same bits on both; a changed parameter arrives. */
static void networks_run_far_away(void **state)
{
    struct sol_ctx *c = far_ctx("far.delay=100");
    struct cnn *here = make_cnn(ctx);
    struct dev *dev = far_dev(c);
    struct cnn *there = make_cnn(c);
    float y[OUT];
    (void)state;
    assert_int_equal(sol_net_host_steps(here->net), 0);
    assert_int_equal(sol_net_host_steps(there->net), 1);
    for (int round = 0; round < 3; round++) {
        const int64_t waits = dev_counts(dev).waits;
        here->p[3] = there->p[3] = (float)round;
        set_params(here);
        set_params(there);
        if (run_cnn(here, here->y)) fail_msg("%s", sol_error(ctx));
        if (run_cnn(there, y)) fail_msg("%s", sol_error(c));
        assert_memory_equal(here->y, y, sizeof y);
        /* parameters with prepare; the host's step, which waits twice; the end */
        assert_int_equal(dev_counts(dev).waits - waits, 4);
    }
    const struct dev_counts before = dev_counts(dev);
    assert_int_equal(run_cnn(there, y),
                     SOL_OK); /* nothing changed: input, input and output of the host's step, output */
    const struct dev_counts after = dev_counts(dev);
    assert_int_equal(after.commands[SOL_COMMAND_WRITE] - before.commands[SOL_COMMAND_WRITE], 3);
    assert_int_equal(after.commands[SOL_COMMAND_READ] - before.commands[SOL_COMMAND_READ], 2);
    assert_int_equal(after.commands[SOL_COMMAND_ALLOC], before.commands[SOL_COMMAND_ALLOC]);
    drop_cnn(here);
    drop_cnn(there);
    assert_int_equal(dev_bytes(dev), 0);
    sol_ctx_destroy(c);
}

static void a_small_device_says_what_is_missing(void **state)
{
    struct sol_ctx *c = far_ctx("far.memory=16KB");
    struct cnn *n = make_cnn(c);
    (void)state;
    assert_int_equal(run_cnn(n, n->y), SOL_ERR_NOMEM);
    assert_int_equal(strncmp(sol_error(c), "network 'cnn', whose peak is ", 29), 0);
    assert_non_null(strstr(sol_error(c), "out of device memory: "));
    drop_cnn(n);
    assert_int_equal(dev_bytes(far_dev(c)), 0);
    sol_ctx_destroy(c);
}

/* Where sizes vary, the peak is that of the call; smaller calls go on. */
static void the_peak_is_that_of_the_call(void **state)
{
    static const char text[] = "graph \"d\"\ndim #0 \"n\" hint=2 min=1 max=100000\ninput %0:f32[#0 16] \"x\"\n"
                               "param %1:f32[16 16] \"w\"\n%2 = Linear(%0, %1)\noutput %2 \"y\"\n";
    static float x[4000 * 16], y[4000 * 16], w[16 * 16];
    static const int64_t sizes[] = {3, 4000, 5};
    struct sol_ctx *c = far_ctx("far.memory=64KB");
    struct sol_graph *g;
    struct sol_net *net = NULL;
    struct sol_params *params = NULL;
    struct sol_memory m;
    char begin[100];
    (void)state;
    if (sol_graph_parse(c, text, &g) || sol_compile(c, g, &net)) fail_msg("%s", sol_error(c));
    assert_int_equal(sol_params_create(net, &params), SOL_OK);
    assert_int_equal(sol_params_set(params, 0, w), SOL_OK);
    for (int i = 0; i < COUNT_OF(sizes); i++) {
        const struct sol_call call = {.dims = &sizes[i], .inputs = (const void *[]){x}, .outputs = (void *[]){y}};
        const bool large = sizes[i] == 4000;
        if (sol_net_run_at(net, params, &call) != (large ? SOL_ERR_NOMEM : SOL_OK)) fail_msg("%s", sol_error(c));
        if (!large) continue;
        assert_int_equal(sol_net_memory_at(net, &sizes[i], &m), SOL_OK);
        snprintf(begin, sizeof begin, "network 'd' with 'n' 4000, whose peak is %lld bytes: ", (long long)m.peak);
        if (strncmp(sol_error(c), begin, strlen(begin))) fail_msg("%s", sol_error(c));
        assert_true(m.peak > (int64_t)(sizeof x + sizeof y));
    }
    sol_params_destroy(params);
    sol_net_destroy(net);
    sol_graph_destroy(g);
    assert_int_equal(dev_bytes(far_dev(c)), 0);
    sol_ctx_destroy(c);
}

static void a_child_is_told(void **state)
{
    struct sol_ctx *c = far_ctx("");
    struct cnn *n = make_cnn(c);
    int status;
    (void)state;
    assert_int_equal(run_cnn(n, n->y), SOL_OK);
    const pid_t child = fork();
    if (!child) {
        alarm(60);
        const bool told = run_cnn(n, n->y) == SOL_ERR_INVALID && strstr(sol_error(c), "a child process after fork()");
        struct cnn *own = make_cnn(c); /* on a device of its own */
        const bool runs = !run_cnn(own, own->y);
        drop_cnn(own);
        drop_cnn(n);
        _exit(told && runs ? 0 : 1 + told);
    }
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    assert_int_equal(run_cnn(n, n->y), SOL_OK);
    drop_cnn(n);
    sol_ctx_destroy(c);
}

/* Commands and allocations so far, as far counts its operations. */
static int64_t operations(struct dev *dev)
{
    int64_t n = 1; /* the code */
    for (int i = 0; i < SOL_COMMAND_KINDS; i++) n += dev_counts(dev).commands[i];
    return n;
}

/* The device says which step of a program failed, and the message names its layers. */
static void the_step_that_fails_is_named(void **state)
{
    char options[64];
    struct sol_ctx *c = far_ctx("");
    struct cnn *n = make_cnn(c);
    (void)state;
    assert_int_equal(run_cnn(n, n->y), SOL_OK);
    snprintf(options, sizeof options, "far.fail_at=%lld", (long long)operations(far_dev(c)) + 2);
    drop_cnn(n);
    sol_ctx_destroy(c);
    c = far_ctx(options);
    n = make_cnn(c);
    assert_int_equal(run_cnn(n, n->y), SOL_OK);
    assert_int_equal(run_cnn(n, n->y), SOL_ERR_RUN);
    if (strncmp(sol_error(c), "network 'cnn', '", 16)) fail_msg("%s", sol_error(c));
    assert_non_null(strstr(sol_error(c), "fails by far.fail"));
    drop_cnn(n);
    sol_ctx_destroy(c);
}

/* Data on which a step in the middle of a program fails. Tensors on the host: the call says so. Tensors in the device's
 * heap: the next wait does. */
static void bad_data_names_the_step(void **state)
{
    static const char text[] =
        "graph \"pick\"\ninput %0:f32[4 6] \"x\"\ninput %1:i64[3] \"i\"\nparam %2:f32[6 6] \"w\"\n"
        "%3 = Linear(%0, %2)\n%4 = Softmax(%3) axis=1\n%5 = Gather(%4, %1) axis=0\n"
        "%6 = Linear(%5, %2)\noutput %6 \"y\"\n";
    static const char *const starts[] = {"network 'pick', 'Gather", "network 'pick', 'Gather': device far:0: "};
    static const float zero[36]; /* of x and w */
    const int64_t indices[2][3] = {{0, 3, 1}, {0, 4, 1}};
    (void)state;
    for (int resident = 0; resident < 2; resident++) {
        struct sol_ctx *c = far_ctx("");
        struct sol_graph *g;
        struct sol_net *net;
        struct sol_params *params;
        struct sol_heap *h;
        uint64_t p[5];
        float y[18];
        if (sol_graph_parse(c, text, &g)) fail_msg("%s", sol_error(c));
        if (resident && sol_graph_resident(g, "far:0")) fail_msg("%s", sol_error(c));
        if (sol_compile(c, g, &net) || sol_heap_open(c, "far:0", &h)) fail_msg("%s", sol_error(c));
        assert_int_equal(sol_params_create(net, &params), SOL_OK);
        for (int i = 0; i < 5; i++) assert_int_equal(sol_heap_alloc(h, 256, &p[i]), SOL_OK);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(sol_heap_write(h, p[i], zero, sizeof zero), SOL_OK);
            assert_int_equal(sol_heap_write(h, p[3 + i], indices[i], sizeof indices[i]), SOL_OK);
        }
        assert_int_equal(sol_params_set(params, 0, resident ? (void *)(uintptr_t)p[1] : zero), SOL_OK);
        for (int round = 0; round < 4; round++) { /* good, bad, good, bad */
            const void *there[] = {(void *)(uintptr_t)p[0], (void *)(uintptr_t)p[3 + round % 2]};
            sol_status status = sol_net_run(net, params, resident ? there : (const void *[]){zero, indices[round % 2]},
                                            (void *[]){resident ? (void *)(uintptr_t)p[2] : (void *)y}, 1);
            if (resident) {
                assert_int_equal(status, SOL_OK);
                status = sol_heap_wait(h);
            }
            if (status != (round % 2 ? SOL_ERR_RUN : SOL_OK)) fail_msg("%s", sol_error(c));
            if (!status) continue;
            if (strncmp(sol_error(c), starts[resident], strlen(starts[resident]))) fail_msg("%s", sol_error(c));
            assert_non_null(strstr(sol_error(c), "an index is out of range in the data of "));
        }
        sol_params_destroy(params);
        sol_net_destroy(net);
        sol_graph_destroy(g);
        sol_ctx_destroy(c);
    }
}

/* A context whose device hangs for 2.5 s at this operation of the second call; 0: its first one. */
static struct sol_ctx *hanging_ctx(int operation, int ms, struct cnn **out_n)
{
    char options[80];
    struct sol_ctx *c = far_ctx("");
    struct cnn *n = make_cnn(c);
    assert_int_equal(run_cnn(n, n->y), SOL_OK);
    snprintf(options, sizeof options, "far.hang_ms=%d,far.hang_at=%lld", ms,
             (long long)operations(far_dev(c)) + 1 + operation);
    drop_cnn(n);
    sol_ctx_destroy(c);
    assert_int_equal(sol_ctx_create(NULL, &c), SOL_OK);
    assert_int_equal(sol_config_set(c, "device::timeout", "1"), SOL_OK);
    assert_int_equal(sol_config_set(c, "device::options", options), SOL_OK);
    assert_int_equal(sol_device_select(c, "far"), SOL_OK);
    *out_n = make_cnn(c);
    assert_int_equal(run_cnn(*out_n, (*out_n)->y), SOL_OK);
    return c;
}

/* Each command of a call hangs in turn: the call fails in time, the device accepts no work until the command has ended,
 * nobody writes to memory of that call any more, and then calls are right again. */
static void a_hang_ends_a_call(void **state)
{
    static const char *const labels[] = {"'x': copy to it", "' or a later step: device far:0: run",
                                         "'Sort': copy from it"};
    (void)state;
    for (int i = 0; i < COUNT_OF(labels); i++) {
        struct cnn *n;
        struct sol_ctx *c = hanging_ctx(i, 5000, &n);
        struct dev *dev = far_dev(c);
        float y[OUT], zero[OUT] = {0};
        const int64_t start = clock_ns();
        assert_int_equal(run_cnn(n, y), SOL_ERR_RUN);
        assert_true(clock_ns() - start < INT64_C(4500000000));
        if (!strstr(sol_error(c), "it has not ended after 1 s (key device::timeout)") ||
            !strstr(sol_error(c), labels[i]))
            fail_msg("%s", sol_error(c));
        assert_true(dev_hangs(dev));
        assert_int_equal(run_cnn(n, y), SOL_ERR_RUN); /* at once */
        assert_true(clock_ns() - start < INT64_C(4900000000));
        do {
            if (clock_ns() - start > INT64_C(60000000000)) fail_msg("%s", sol_error(c));
            usleep(10000);
            assert_memory_equal(y, zero, sizeof y);
        } while (run_cnn(n, y));
        assert_memory_equal(y, n->y, sizeof y);
        drop_cnn(n);
        assert_int_equal(dev_bytes(dev), 0);
        sol_ctx_destroy(c);
    }
}

/* Networks and contexts end while a device hangs, in a process that then ends: nothing waits, and nothing is freed that
 * the device still uses when it goes on. */
static void all_ends_while_a_device_hangs(void **state)
{
    int status;
    (void)state;
    const pid_t child = fork();
    if (!child) {
        struct cnn *n;
        alarm(60);
        struct sol_ctx *c = hanging_ctx(1, 2500, &n);
        const bool failed = run_cnn(n, n->y) == SOL_ERR_RUN;
        drop_cnn(n);
        sol_ctx_destroy(c);
        sleep(2); /* the device goes on */
        _exit(failed ? 0 : 1);
    }
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
}

/* A program ends with commands under way, without waiting for them. */
static void a_program_ends_with_work(void **state)
{
    static char bytes[1000];
    int status;
    (void)state;
    const pid_t child = fork();
    if (!child) {
        struct queue *q;
        sol_ptr p;
        alarm(60);
        static struct sol_ctx *c; /* not lost, for those who look for leaks at the end */
        c = far_ctx("far.delay=20000");
        bool good = !queue_take(far_dev(c), &q) && !queue_alloc(q, sizeof bytes, "x", &p);
        for (int i = 0; i < 500 && good; i++)
            good = !queue_add(
                q, &(struct sol_command){.kind = SOL_COMMAND_WRITE, .to = p, .data = bytes, .bytes = sizeof bytes});
        queue_flush(q);
        exit(good ? 0 : 1);
    }
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
}

/* What is freed is overwritten. */
static void *overwriting(void *user, void *p, size_t bytes)
{
    (void)user;
    if (bytes) return realloc(p, bytes);
    if (p) memset(p, 0x3f, malloc_usable_size(p));
    free(p);
    return NULL;
}

/* A device that hangs goes on with the sizes and times of a call that has failed, and whose memory on the host is freed
 * by then. */
static void a_hang_outlives_its_call(void **state)
{
    static const char text[] = "graph \"d\"\ndim #0 \"n\" hint=2 min=1 max=100000\ninput %0:f32[#0 16] \"x\"\n"
                               "param %1:f32[16 16] \"w\"\n%2 = Linear(%0, %1)\n%3 = Linear(%2, %1)\noutput %3 \"y\"\n";
    static float x[1000 * 16], y[1000 * 16], w[16 * 16];
    struct sol_ctx_options o = {.size = sizeof o, .reallocate = overwriting};
    int64_t before = 0;
    (void)state;
    for (int i = 0; i < 1000 * 16; i++) x[i] = 1;
    for (int i = 0; i < 16 * 16; i++) w[i] = 1.f / 16;
    for (int hangs = 0; hangs < 2; hangs++) {
        struct sol_graph *g;
        struct sol_net *net = NULL;
        struct sol_params *params;
        struct sol_ctx *c;
        char options[80];
        assert_int_equal(sol_ctx_create(&o, &c), SOL_OK);
        snprintf(options, sizeof options, "far.hang_ms=2500,far.hang_at=%lld", hangs ? (long long)before + 2 : 0);
        assert_int_equal(sol_config_set(c, "device::timeout", "1"), SOL_OK);
        assert_int_equal(sol_config_set(c, "device::options", options), SOL_OK);
        assert_int_equal(sol_config_set(c, "profile", "1"), SOL_OK);
        assert_int_equal(sol_device_select(c, "far"), SOL_OK);
        if (sol_graph_parse(c, text, &g) || sol_compile(c, g, &net)) fail_msg("%s", sol_error(c));
        assert_int_equal(sol_params_create(net, &params), SOL_OK);
        assert_int_equal(sol_params_set(params, 0, w), SOL_OK);
        struct sol_call call = {
            .dims = (int64_t[]){2}, .inputs = (const void *[]){x}, .outputs = (void *[]){y}, .threads = 1};
        struct sol_call large = call;
        large.dims = (int64_t[]){1000};
        if (sol_net_run_at(net, params, &call)) fail_msg("%s", sol_error(c));
        before = operations(far_dev(c));
        assert_int_equal(sol_net_run_at(net, params, &call), hangs ? SOL_ERR_RUN : SOL_OK);
        assert_int_equal(sol_net_run_at(net, params, &large), hangs ? SOL_ERR_RUN : SOL_OK);
        for (int64_t start = clock_ns(); sol_net_run_at(net, params, &large); usleep(10000))
            if (clock_ns() - start > INT64_C(60000000000)) fail_msg("%s", sol_error(c));
        assert_true(y[0] == 1 && y[999 * 16] == 1);
        sol_params_destroy(params);
        sol_net_destroy(net);
        sol_graph_destroy(g);
        assert_int_equal(dev_bytes(far_dev(c)), 0);
        sol_ctx_destroy(c);
    }
}

/* The device does not come back from loading a network's code: it is not compiled, and the device still has its code
 * when it goes on. Then it can be. */
static void code_hangs_while_it_is_loaded(void **state)
{
    static const char text[] = "graph \"even\"\ninput %0:f32[4] \"x\"\n%1 = Softmax(%0) axis=0\noutput %1 \"y\"\n";
    static const float x[4] = {3, 3, 3, 3};
    struct sol_ctx *c = far_ctx("far.hang_at=1,far.hang_ms=1500");
    struct sol_graph *g;
    struct sol_net *net = NULL;
    struct sol_params *params;
    float y[4];
    (void)state;
    assert_int_equal(sol_config_set(c, "device::timeout", "1"), SOL_OK);
    if (sol_graph_parse(c, text, &g)) fail_msg("%s", sol_error(c));
    assert_int_equal(sol_compile(c, g, &net), SOL_ERR_RUN);
    if (!strstr(sol_error(c), "device far:0: code of 'even': it has not ended after 1 s")) fail_msg("%s", sol_error(c));
    while (dev_hangs(far_dev(c))) usleep(10000);
    if (sol_compile(c, g, &net) || sol_params_create(net, &params) ||
        sol_net_run(net, params, (const void *[]){x}, (void *[]){y}, 1))
        fail_msg("%s", sol_error(c));
    for (int i = 0; i < 4; i++) assert_true(y[i] == 0.25f);
    sol_params_destroy(params);
    sol_net_destroy(net);
    sol_graph_destroy(g);
    sol_ctx_destroy(c);
}

struct killer {
    int pid, after_us;
};

static void *kill_soon(void *user)
{
    const struct killer *k = user;
    usleep((useconds_t)k->after_us);
    kill(k->pid, SIGKILL);
    return NULL;
}

static void *drop_elsewhere(void *user)
{
    drop_cnn(user);
    return NULL;
}

static void another_thread_frees(void **state)
{
    struct sol_ctx *c = far_ctx("far.delay=50");
    pthread_t thread;
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct cnn *n = make_cnn(c);
        assert_int_equal(run_cnn(n, n->y), SOL_OK);
        assert_int_equal(pthread_create(&thread, NULL, drop_elsewhere, n), 0);
        pthread_join(thread, NULL);
        assert_int_equal(dev_bytes(far_dev(c)), 0);
    }
    sol_ctx_destroy(c);
}

/* A process that serves as a device is killed while it works: calls are right or report it, and contexts end. */
static void a_device_disappears(void **state)
{
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    skip(); /* a plug-in and a server that are instrumented do not load code that is not */
#endif
    static const char script[] = BUILD_ROOT "/remote-server.sh", pid_file[] = BUILD_ROOT "/remote-server.pid";
    char plugin[] = BUILD_ROOT "/libremote.so";
    struct cnn *here = make_cnn(ctx);
    float y[OUT];
    (void)state;
    assert_int_equal(run_cnn(here, here->y), SOL_OK);
    FILE *f = fopen(script, "w");
    fprintf(f, "echo $$ > %s\nexec %s/sol-remote-server \"$@\"\n", pid_file, BUILD_ROOT);
    fclose(f);
    for (int round = 0; round < 2; round++) { /* the second context gets a new server */
        struct sol_ctx *c;
        int pid = 0, good = 0, status = 0;
        assert_int_equal(sol_ctx_create(NULL, &c), SOL_OK);
        assert_int_equal(sol_config_set(c, "device::plugins", plugin), SOL_OK);
        assert_int_equal(sol_config_set(c, "device::options",
                                        "remote.memory=10000000,remote.server=sh " BUILD_ROOT "/remote-server.sh"),
                         SOL_OK);
        if (sol_device_select(c, "remote")) fail_msg("%s", sol_error(c));
        struct cnn *n = make_cnn(c);
        f = fopen(pid_file, "r");
        assert_non_null(f);
        assert_int_equal(fscanf(f, "%d", &pid), 1);
        fclose(f);
        struct killer k = {.pid = pid, .after_us = 20000};
        pthread_t thread;
        if (run_cnn(n, n->y)) fail_msg("%s", sol_error(c));
        assert_int_equal(pthread_create(&thread, NULL, kill_soon, &k), 0);
        for (const int64_t start = clock_ns(); !(status = run_cnn(n, y)); good++) {
            assert_memory_equal(y, n->y, sizeof y);
            if (clock_ns() - start > INT64_C(60000000000)) fail_msg("the server lives");
        }
        pthread_join(thread, NULL);
        assert_true(good > 0);
        assert_int_equal(status, SOL_ERR_RUN);
        if (!strstr(sol_error(c), "the server has ended")) fail_msg("%s", sol_error(c));
        assert_int_equal(run_cnn(n, y), SOL_ERR_RUN);
        drop_cnn(n);
        assert_int_equal(dev_bytes(far_dev(c)), 0);
        sol_ctx_destroy(c);
    }
    drop_cnn(here);
}

enum { THREADS = 8 };
struct stress {
    struct cnn *n;
    const float *want;
    int calls, good, failed, wrong;
};

static void *call_often(void *user)
{
    struct stress *s = user;
    float y[OUT];
    for (int i = 0; i < s->calls; i++) {
        if (run_cnn(s->n, y))
            s->failed++;
        else if (memcmp(y, s->want, sizeof y))
            s->wrong++;
        else
            s->good++;
    }
    return NULL;
}

/* Calls from many threads with random failures: each is right or reports an error, and nothing is lost or leaked, of
 * the device or of the host. `make test-all` makes 10,000 calls. */
static void failures_lose_nothing(void **state)
{
    const char *calls = getenv("SOL_DEVICE_CALLS");
    struct fail_alloc memory = {.fail_at = -1};
    struct sol_ctx *c = counted_ctx(&memory, "far.fail=60,far.delay=30");
    struct cnn *here = make_cnn(ctx), *n;
    pthread_t thread[THREADS];
    struct stress s[THREADS];
    int good = 0, failed = 0;
    (void)state;
    assert_int_equal(run_cnn(here, here->y), SOL_OK);
    n = make_cnn(c);
    for (int i = 0; i < THREADS; i++) {
        s[i] = (struct stress){.n = n, .want = here->y, .calls = calls ? atoi(calls) / THREADS : 60};
        assert_int_equal(pthread_create(&thread[i], NULL, call_often, &s[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(s[i].wrong, 0);
        good += s[i].good;
        failed += s[i].failed;
    }
    print_message("%d calls were right, %d failed\n", good, failed);
    assert_true(good > 0 && failed > 0);
    drop_cnn(here);
    drop_cnn(n);
    assert_int_equal(dev_bytes(far_dev(c)), 0);
    sol_ctx_destroy(c);
    assert_int_equal(memory.alive, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* Children first: after a hang a thread of the device ends at any time, and a fork while it holds the lock of a
         * sanitizer's allocator would leave that locked in the child. */
        cmocka_unit_test(a_child_is_told),
        cmocka_unit_test(all_ends_while_a_device_hangs),
        cmocka_unit_test(a_program_ends_with_work),
        cmocka_unit_test(networks_run_far_away),
        cmocka_unit_test(a_small_device_says_what_is_missing),
        cmocka_unit_test(the_peak_is_that_of_the_call),
        cmocka_unit_test(failures_lose_nothing),
        cmocka_unit_test(the_step_that_fails_is_named),
        cmocka_unit_test(bad_data_names_the_step),
        cmocka_unit_test(a_hang_ends_a_call),
        cmocka_unit_test(a_hang_outlives_its_call),
        cmocka_unit_test(code_hangs_while_it_is_loaded),
        cmocka_unit_test(another_thread_frees),
        cmocka_unit_test(a_device_disappears),
    };
    return cmocka_run_group_tests(tests, make_ctx, drop_ctx);
}
