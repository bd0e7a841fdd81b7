/* The device nvidia on a double of libcuda (test/nvidia): what only its type offers, a framework's stream, and what a
 * failure in the middle of commands says. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "device/device.h"

#define DOUBLE BUILD_ROOT "/libcuda_double.so"

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
    assert_int_equal(sol_config_set(ctx, "device::options", "nvidia.libcuda=" DOUBLE ",nvidia.nvrtc=" DOUBLE), SOL_OK);
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_framework_s_stream),
                                       cmocka_unit_test(test_a_rejected_command)};
    return cmocka_run_group_tests(tests, make_ctx, drop_ctx);
}
