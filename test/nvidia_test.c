/* The device nvidia on a double of libcuda (test/nvidia): what only its type offers, a framework's stream, and what a
 * failure in the middle of commands says. */
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "device/device.h"

#define DOUBLE BUILD_ROOT "/libcuda_double.so"
#define OPTIONS "nvidia.libcuda=" DOUBLE ",nvidia.nvrtc=" DOUBLE ",nvidia.cublas=" DOUBLE ",nvidia.cudnn=" DOUBLE

struct driver { /* functions of the double */
    int (*Push)(void *), (*Pop)(void **), (*Create)(void **, unsigned), (*Wait)(void *), (*Destroy)(void *);
};
struct place {
    const struct sol_device_type *type;
    struct sol_device *device;
    struct sol_stream *stream;
    sol_ptr memory[2];
};

static void *function(const char *name)
{
    void *f = dlsym(dlopen(DOUBLE, RTLD_NOW), name);
    assert_non_null(f);
    return f;
}

static struct driver driver_of_double(void)
{
    struct driver d;
    *(void **)&d.Push = function("cuCtxPushCurrent_v2");
    *(void **)&d.Pop = function("cuCtxPopCurrent_v2");
    *(void **)&d.Create = function("cuStreamCreate");
    *(void **)&d.Wait = function("cuStreamSynchronize");
    *(void **)&d.Destroy = function("cuStreamDestroy_v2");
    return d;
}

static struct place place_open(void *foreign)
{
    struct devices *all;
    struct place p = {0};
    struct sol_failure why = failure_new();
    assert_int_equal(sol_config_set(ctx, "device::options", OPTIONS), SOL_OK);
    assert_int_equal(devices_of(ctx, &all), SOL_OK);
    for (int i = 0; (p.type = devices_at(all, i)) && strcmp(p.type->name, "nvidia"); i++) continue;
    assert_non_null(p.type);
    assert_int_equal(p.type->open(p.type, devices_host(all), 0, &p.device, &why), SOL_OK);
    assert_int_equal(p.type->queue(p.device, foreign, &p.stream, &why), SOL_OK);
    for (int i = 0; i < 2; i++) assert_int_equal(p.type->alloc(p.device, 1000, &p.memory[i], &why), SOL_OK);
    return p;
}

static void place_close(struct place *p)
{
    p->type->unqueue(p->stream);
    for (int i = 0; i < 2; i++) p->type->free(p->device, p->memory[i]);
    p->type->close(p->device);
}

/* Writes, copies and reads. */
static void chain(const struct place *p, const char *in, char *out, struct sol_command c[3])
{
    c[0] = (struct sol_command){
        .kind = SOL_COMMAND_WRITE, .label = "first", .to = p->memory[0], .data = in, .bytes = 1000};
    c[1] = (struct sol_command){
        .kind = SOL_COMMAND_COPY, .label = "second", .to = p->memory[1], .from = p->memory[0], .bytes = 1000};
    c[2] = (struct sol_command){
        .kind = SOL_COMMAND_READ, .label = "third", .from = p->memory[1], .host = out, .bytes = 1000};
}

static void test_a_framework_s_stream(void **state)
{
    const struct driver d = driver_of_double();
    struct sol_failure why = failure_new();
    struct sol_command c[3];
    void *stream, *was;
    char in[1000], out[1000] = {0};
    int64_t ticket;
    int done = 0;
    (void)state;
    assert_int_equal(d.Push(in), 0); /* any context */
    assert_int_equal(d.Create(&stream, 0), 0);
    struct place p = place_open(stream);
    memset(in, 7, sizeof in);
    chain(&p, in, out, c);
    assert_int_equal(p.type->submit(p.stream, 3, c, &ticket, &why), SOL_OK);
    assert_int_equal(d.Wait(stream), 0); /* the commands are in that stream */
    assert_memory_equal(out, in, sizeof in);
    assert_int_equal(p.type->poll(p.stream, ticket, 0, &done, &why), SOL_OK);
    assert_true(done && ticket == 3);
    place_close(&p);
    assert_int_equal(d.Wait(stream), 0); /* it belongs to the framework */
    assert_int_equal(d.Destroy(stream), 0);
    assert_int_equal(d.Pop(&was), 0); /* SOL left this thread's context as it was */
    assert_int_not_equal(d.Pop(&was), 0);
}

static void test_a_rejected_command(void **state)
{
    struct sol_failure why = failure_new();
    struct sol_command c[3];
    char in[1000], out[1000] = {0};
    int64_t ticket;
    int done = 0;
    (void)state;
    struct place p = place_open(NULL);
    memset(in, 9, sizeof in);
    chain(&p, in, out, c);
    c[1].from = 4096; /* no memory of the device */
    assert_int_equal(p.type->submit(p.stream, 3, c, &ticket, &why), SOL_ERR_INTERNAL);
    assert_string_equal(why.text, "CUDA: second: copy: invalid argument (error 1)");
    assert_true(ticket == 1 && why.ticket == 2);
    assert_int_equal(p.type->poll(p.stream, 1, 1, &done, &why), SOL_OK);
    assert_true(done && !out[0]);
    c[1].from = p.memory[0];
    assert_int_equal(p.type->submit(p.stream, 3, c, &ticket, &why), SOL_OK);
    assert_int_equal(p.type->poll(p.stream, ticket, 1, &done, &why), SOL_OK);
    assert_true(done && ticket == 4);
    assert_memory_equal(out, in, sizeof in);
    place_close(&p);
}

/* A framework with a stream and memory of its own, which writes the inputs of a network and reads its output. */
struct framework {
    int (*Push)(void *), (*Create)(void **, unsigned), (*Wait)(void *), (*Destroy)(void *);
    int (*Alloc)(uint64_t *, size_t), (*Free)(uint64_t);
    int (*Write)(uint64_t, const void *, size_t, void *), (*Read)(void *, uint64_t, size_t, void *);
    void *stream, *streams[2];
    uint64_t memory[3];
};

static struct framework framework_open(void)
{
    struct framework f;
    static int context;
    *(void **)&f.Push = function("cuCtxPushCurrent_v2");
    *(void **)&f.Create = function("cuStreamCreate");
    *(void **)&f.Wait = function("cuStreamSynchronize");
    *(void **)&f.Destroy = function("cuStreamDestroy_v2");
    *(void **)&f.Alloc = function("cuMemAlloc_v2");
    *(void **)&f.Free = function("cuMemFree_v2");
    *(void **)&f.Write = function("cuMemcpyHtoDAsync_v2");
    *(void **)&f.Read = function("cuMemcpyDtoHAsync_v2");
    assert_int_equal(f.Push(&context), 0);
    for (int i = 0; i < 2; i++) assert_int_equal(f.Create(&f.streams[i], 0), 0);
    f.stream = f.streams[0];
    for (int i = 0; i < 3; i++) assert_int_equal(f.Alloc(&f.memory[i], 256), 0);
    return f;
}

static void test_tensors_and_stream_of_a_framework(void **state)
{
    static const char text[] = "graph \"n\"\ninput %0:f32[4 6] \"x\"\nparam %1:f32[5 6] \"w\"\n"
                               "%2 = Linear(%0, %1)\n%3 = tanh(%2)\noutput %3 \"y\"\n";
    struct sol_graph *g;
    struct sol_net *net;
    struct sol_params *params;
    struct sol_heap *h = NULL;
    struct sol_heap_counts before, after;
    float x[24], w[30], y[20], want;
    uint64_t at[3];
    (void)state;
    assert_int_equal(setenv("SOL_CUDA_DOUBLE", "delay=2000,pageable=1", 1), 0);
    struct framework f = framework_open();
    assert_int_equal(sol_config_set(ctx, "device::options", OPTIONS), SOL_OK);
    if (sol_graph_parse(ctx, text, &g) || sol_graph_resident(g, "nvidia:0") || sol_compile(ctx, g, &net) ||
        sol_heap_open(ctx, "nvidia:0", &h) || sol_params_create(net, &params))
        fail_msg("%s", sol_error(ctx));
    for (int i = 0; i < 30; i++) w[i] = (float)(i % 7 - 3) / 8;
    assert_int_equal(f.Write(f.memory[1], w, sizeof w, f.stream), 0);
    for (int i = 0; i < 3; i++) assert_int_equal(sol_heap_place(h, f.memory[i], &at[i]), SOL_OK);
    assert_int_equal(sol_params_set(params, 0, (void *)(uintptr_t)at[1]), SOL_OK);
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 24; i++) x[i] = (float)((i + round) % 5 - 2) / 4;
        f.stream = f.streams[round / 2]; /* the second comes behind the first, for which nobody waits */
        assert_int_equal(f.Write(f.memory[0], x, sizeof x, f.stream), 0);
        sol_heap_counts(h, &before);
        if (sol_heap_enter(h, f.stream)) fail_msg("%s", sol_error(ctx));
        if (sol_net_run(net, params, (const void *[]){(void *)(uintptr_t)at[0]}, (void *[]){(void *)(uintptr_t)at[2]},
                        1))
            fail_msg("%s", sol_error(ctx));
        sol_heap_leave(h);
        sol_heap_counts(h, &after);
        assert_true(after.waits == before.waits && after.writes == before.writes && after.copies == before.copies);
        assert_false(round && sol_heap_idle(h)); /* the call has not waited */
        assert_int_equal(f.Read(y, f.memory[2], sizeof y, f.stream), 0);
        assert_int_equal(f.Wait(f.stream), 0);
        for (int i = 0; i < 20; i++) {
            want = 0;
            for (int k = 0; k < 6; k++) want += x[i / 5 * 6 + k] * w[i % 5 * 6 + k];
            assert_true(fabsf(tanhf(want) - y[i]) < 1e-6f);
        }
    }
    assert_int_equal(sol_heap_follow(h, NULL), SOL_OK);
    sol_params_destroy(params);
    sol_net_destroy(net);
    sol_graph_destroy(g);
    assert_int_equal(f.Read(y, f.memory[2], sizeof y, f.stream), 0); /* its memory is still there */
    assert_int_equal(f.Wait(f.stream), 0);
    for (int i = 0; i < 3; i++) assert_int_equal(f.Free(f.memory[i]), 0);
    for (int i = 0; i < 2; i++) assert_int_equal(f.Destroy(f.streams[i]), 0);
}

/* What commands in front of a free may still use, those behind it can have at once. */
static void test_memory_is_used_again_in_order(void **state)
{
    struct sol_heap *h;
    struct sol_heap_memory first, then;
    struct sol_heap_counts before, after;
    char data[1000], read[1000];
    uint64_t p;
    (void)state;
    assert_int_equal(setenv("SOL_CUDA_DOUBLE", "delay=2000", 1), 0);
    assert_int_equal(sol_config_set(ctx, "device::options", "nvidia.libcuda=" DOUBLE ",nvidia.nvrtc=" DOUBLE), SOL_OK);
    if (sol_heap_open(ctx, "nvidia:0", &h)) fail_msg("%s", sol_error(ctx));
    sol_heap_counts(h, &before);
    for (int i = 0; i < 100; i++) {
        memset(data, i, sizeof data);
        assert_int_equal(sol_heap_alloc(h, sizeof data, &p), SOL_OK);
        assert_int_equal(sol_heap_write(h, p, data, sizeof data), SOL_OK);
        if (i == 99) assert_int_equal(sol_heap_read(h, read, p, sizeof read), SOL_OK);
        sol_heap_free(h, p);
        assert_int_equal(sol_heap_memory(h, 0, i ? &then : &first), SOL_OK);
    }
    sol_heap_counts(h, &after);
    assert_memory_equal(read, data, sizeof data);
    assert_true(first.reserved == then.reserved && after.waits == before.waits + 1);
}

/* A convolution by cuDNN, in a process that has not called it yet. */
static void convolve(const char *settings, sol_status want, const char *text, float out[24])
{
    static const char graph[] = "graph \"n\"\ninput %0:f32[1 2 4 6] \"x\"\nparam %1:f32[1 2 3 3] \"w\"\n"
                                "%2 = Conv(%0, %1) p=1 q=1\noutput %2 \"y\"\n";
    struct sol_graph *g;
    struct sol_net *net;
    struct sol_params *params;
    float x[48], w[18];
    for (int i = 0; i < 48; i++) x[i] = (float)(i % 5 - 2) / 4;
    for (int i = 0; i < 18; i++) w[i] = (float)(i % 7 - 3) / 8;
    assert_int_equal(setenv("SOL_CUDA_DOUBLE", settings, 1), 0);
    assert_int_equal(sol_config_set(ctx, "device::options", OPTIONS), SOL_OK);
    assert_int_equal(sol_config_set(ctx, "device", "nvidia"), SOL_OK);
    assert_int_equal(sol_config_set(ctx, "solver", "conv"), SOL_OK);
    if (sol_graph_parse(ctx, graph, &g) || sol_compile(ctx, g, &net) || sol_params_create(net, &params) ||
        sol_params_set(params, 0, w))
        fail_msg("%s", sol_error(ctx));
    for (int round = 0; round < 3; round++) {
        assert_int_equal(sol_net_run(net, params, (const void *[]){x}, (void *[]){out}, 1), want);
        if (want && !strstr(sol_error(ctx), text)) fail_msg("%s", sol_error(ctx));
    }
    sol_params_destroy(params);
    sol_net_destroy(net);
    sol_graph_destroy(g);
    assert_int_equal(sol_config_set(ctx, "solver", "auto"), SOL_OK);
    assert_int_equal(sol_config_set(ctx, "device", "auto"), SOL_OK);
}

static void test_convolutions(void **state)
{
    float y[24], again[24];
    (void)state;
    convolve("dnn_opens=0", SOL_ERR_INTERNAL, "cuDNN cannot be used", y);
    convolve("dnn_fails=4000", SOL_ERR_INTERNAL, "cuDNN failed", y);
    convolve("memory=50000000,dnn_bytes=100000000", SOL_OK, "", y); /* without a workspace */
    convolve("dnn_fails=3000", SOL_OK, "", again);                  /* by the step's own function */
    for (int i = 0; i < 24; i++) {
        float sum = 0;
        for (int k = 0; k < 18; k++) {
            const int row = i / 6 + k / 3 % 3 - 1, column = i % 6 + k % 3 - 1;
            if (row < 0 || row > 3 || column < 0 || column > 5) continue;
            sum += (float)((k / 9 * 24 + row * 6 + column) % 5 - 2) / 4 * ((float)(k % 7 - 3) / 8);
        }
        assert_true(fabsf(sum - y[i]) < 1e-6f && fabsf(sum - again[i]) < 1e-6f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_memory_is_used_again_in_order),
                                       cmocka_unit_test(test_a_framework_s_stream),
                                       cmocka_unit_test(test_a_rejected_command), cmocka_unit_test(test_convolutions),
                                       cmocka_unit_test(test_tensors_and_stream_of_a_framework)};
    return cmocka_run_group_tests(tests, make_ctx, drop_ctx);
}
