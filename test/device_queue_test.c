/* Devices: queues, memory and heaps, and what they do when something fails. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "context.h"
#include "device/device.h"

static struct sol_ctx *far_ctx(const char *options)
{
    struct sol_ctx *c;
    assert_int_equal(sol_ctx_create(NULL, &c), SOL_OK);
    assert_int_equal(sol_config_set(c, "device::options", options), SOL_OK);
    assert_int_equal(sol_device_select(c, "far"), SOL_OK);
    return c;
}

static const struct sol_device_type *selected_type(struct sol_ctx *c)
{
    const struct sol_device_type *type;
    int index;
    assert_int_equal(devices_selected(c, &type, &index), SOL_OK);
    return type;
}

/* far as a device with queues of its own: `submit` accepts all commands, and `poll` says what became of them, but not
 * before accepts_at and later_until, times of clock_ns. */
static int64_t accepts_at, later_until;
struct sol_stream {
    struct sol_stream *far;
    sol_status status;
    struct sol_failure failure;
    int64_t ticket;
};
static const struct sol_device_type *far_type;

static sol_status later_queue(struct sol_device *device, void *foreign, struct sol_stream **out_stream,
                              struct sol_failure *out_why)
{
    struct sol_stream *s = calloc(1, sizeof *s);
    *out_stream = s;
    return far_type->queue(device, foreign, &s->far, out_why);
}

static void later_unqueue(struct sol_stream *s)
{
    far_type->unqueue(s->far);
    free(s);
}

static sol_status later_submit(struct sol_stream *s, int n, const struct sol_command *command, int64_t *out_ticket,
                               struct sol_failure *out_why)
{
    int64_t ticket;
    (void)out_why;
    while (clock_ns() < accepts_at) usleep(10000);
    s->failure.size = sizeof s->failure;
    if (!s->status) s->status = far_type->submit(s->far, n, command, &ticket, &s->failure);
    *out_ticket = s->ticket += n;
    return SOL_OK;
}

static sol_status later_poll(struct sol_stream *s, int64_t ticket, int wait, int *out_done, struct sol_failure *out_why)
{
    assert_true(ticket <= s->ticket);
    *out_done = wait || clock_ns() >= later_until;
    if (*out_done && s->status) *out_why = s->failure;
    return *out_done ? s->status : SOL_OK;
}

static struct sol_device_type later_type;
static enum { FAR, LATER, HERE } kind; /* HERE: the processor as a device */

static struct dev *far_dev(struct sol_ctx *c)
{
    struct dev *dev;
    assert_int_equal(sol_device_select(c, "far"), SOL_OK);
    if (!far_type) { /* once: threads of other contexts may read it */
        far_type = selected_type(c);
        later_type = *far_type;
        later_type.features &= ~(uint32_t)SOL_DEVICE_SYNCHRONOUS;
        later_type.queue = later_queue;
        later_type.unqueue = later_unqueue;
        later_type.submit = later_submit;
        later_type.poll = later_poll;
    }
    if (kind == HERE) assert_int_equal(sol_device_select(c, "cpu"), SOL_OK);
    const struct sol_device_type *type = kind == LATER ? &later_type : selected_type(c);
    if (dev_get(c, type, 0, &dev)) fail_msg("%s", sol_error(c));
    return dev;
}

/* far, whose commands may take a second; its operation `hang_at` takes 2.5 s. */
static struct sol_ctx *hanging_ctx(int hang_at)
{
    char options[64];
    snprintf(options, sizeof options, "far.hang_ms=2500,far.hang_at=%d", hang_at);
    struct sol_ctx *c = far_ctx(options);
    assert_int_equal(sol_config_set(c, "device::timeout", "1"), SOL_OK);
    return c;
}

static void assert_hangs(struct sol_ctx *c, sol_status status, const char *command)
{
    assert_int_equal(status, SOL_ERR_RUN);
    if (!strstr(sol_error(c), "has not ended after 1 s (key device::timeout)") || !strstr(sol_error(c), command))
        fail_msg("%s", sol_error(c));
}

static struct sol_command write_to(sol_ptr to, const void *data, int64_t bytes)
{
    return (struct sol_command){.kind = SOL_COMMAND_WRITE, .label = "x", .to = to, .data = data, .bytes = bytes};
}

static struct sol_command read_from(sol_ptr from, void *host, int64_t bytes)
{
    return (struct sol_command){.kind = SOL_COMMAND_READ, .label = "y", .from = from, .host = host, .bytes = bytes};
}

static void add_all(struct queue *q, int n, const struct sol_command *c)
{
    for (int i = 0; i < n; i++) assert_int_equal(queue_add(q, &c[i]), SOL_OK);
}

/* Nobody waits in between: the memory that commands use is still to be allocated. */
static void memory_moves(void **state)
{
    enum { N = 3000 };
    char in[N], out[N], middle[N];
    struct sol_ctx *c = far_ctx("far.delay=300");
    struct dev *dev = far_dev(c);
    struct queue *q;
    sol_ptr a, b;
    (void)state;
    for (int i = 0; i < N; i++) in[i] = (char)(i * 7);
    assert_int_equal(queue_take(dev, &q), SOL_OK);
    assert_int_equal(queue_alloc(q, N, "a", &a), SOL_OK);
    assert_int_equal(queue_alloc(q, N, "b", &b), SOL_OK);
    const struct sol_command commands[] = {
        write_to(a, in, N),
        {.kind = SOL_COMMAND_COPY, .to = b, .from = a, .bytes = N},
        {.kind = SOL_COMMAND_FILL, .to = a + 100, .bytes = 50, .value = 9},
        read_from(b, out, N),
        read_from(a, middle, N),
    };
    add_all(q, COUNT_OF(commands), commands);
    queue_free(q, a);
    queue_free(q, b);
    if (queue_wait(q, NULL)) fail_msg("%s", sol_error(c));
    assert_memory_equal(in, out, N);
    memset(in + 100, 9, 50);
    assert_memory_equal(in, middle, N);
    assert_int_equal(dev_bytes(dev), 0);
    queue_give(q);
    sol_ctx_destroy(c);
}

/* Twenty neighbours, each with room behind it; one in between that lies elsewhere. */
static void small_copies_are_packed(void **state)
{
    enum { PARTS = 20, BYTES = 50, ROOM = 64 };
    char in[PARTS][BYTES], out[PARTS][BYTES];
    struct sol_ctx *c = far_ctx("");
    struct dev *dev = far_dev(c);
    struct queue *q;
    sol_ptr p;
    (void)state;
    memset(out, 0, sizeof out);
    for (int i = 0; i < PARTS * BYTES; i++) (&in[0][0])[i] = (char)(i * 13);
    assert_int_equal(dev_alloc(dev, 2 * PARTS * ROOM, &p), SOL_OK);
    assert_int_equal(queue_take(dev, &q), SOL_OK);
    for (int i = 0; i < PARTS; i++) {
        struct sol_command w = write_to(p + (sol_ptr)i * ROOM, in[i], BYTES);
        w.room = ROOM;
        if (i == 10) w.to += PARTS * ROOM;
        add_all(q, 1, &w);
    }
    for (int i = 0; i < PARTS; i++) {
        struct sol_command r = read_from(p + (sol_ptr)i * ROOM, out[i], BYTES);
        r.room = ROOM;
        if (i == 10) r.from += PARTS * ROOM;
        add_all(q, 1, &r);
    }
    assert_int_equal(queue_wait(q, NULL), SOL_OK);
    assert_memory_equal(in, out, sizeof in);
    const struct dev_counts counts = dev_counts(dev);
    assert_int_equal(counts.commands[SOL_COMMAND_WRITE], 3);
    assert_int_equal(counts.commands[SOL_COMMAND_READ], 3);
    queue_give(q);
    dev_free(dev, p);
    sol_ctx_destroy(c);
}

static void freed_memory_is_used_again(void **state)
{
    struct sol_ctx *c = far_ctx("far.memory=1MB");
    struct dev *dev = far_dev(c);
    sol_ptr p;
    (void)state;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(dev_alloc(dev, 600000 - i, &p), SOL_OK);
        dev_free(dev, p);
    }
    assert_int_equal(dev_counts(dev).commands[SOL_COMMAND_ALLOC], 1);
    assert_int_equal(dev_alloc(dev, 700000, &p), SOL_OK); /* the pool gives its memory back for it */
    sol_ptr more;
    assert_int_equal(dev_alloc(dev, 400000, &more), SOL_ERR_NOMEM);
    assert_non_null(strstr(sol_error(c), "device far:0: out of device memory: 400000 bytes are wanted, "));
    assert_int_equal(dev_alloc(dev, 200000, &more), SOL_OK);
    dev_free(dev, p);
    dev_free(dev, more);
    assert_int_equal(dev_bytes(dev), 0);
    sol_ctx_destroy(c);
}

/* Memory that is left can be had, wherever the rest lies. */
static void much_memory_in_many_pieces(void **state)
{
    enum { PIECES = 1000 };
    struct sol_ctx *c = far_ctx("far.memory=64MB");
    struct dev *dev = far_dev(c);
    static sol_ptr p[PIECES];
    sol_ptr large;
    (void)state;
    for (int i = 0; i < PIECES; i++) assert_int_equal(dev_alloc(dev, 1, &p[i]), SOL_OK);
    for (int i = 0; i < 5; i++) {
        if (dev_alloc(dev, 40000000 + i * 4000000, &large)) fail_msg("%s", sol_error(c));
        dev_free(dev, large);
    }
    for (int i = 0; i < PIECES; i++) dev_free(dev, p[i]);
    assert_int_equal(dev_bytes(dev), 0);
    sol_ctx_destroy(c);
}

static void wrong_addresses_are_reported(void **state)
{
    char data[64] = {0};
    struct sol_ctx *c = far_ctx("");
    struct dev *dev = far_dev(c);
    struct queue *q;
    sol_ptr p, freed;
    (void)state;
    assert_int_equal(dev_alloc(dev, 64, &p), SOL_OK);
    assert_int_equal(dev_alloc(dev, 64, &freed), SOL_OK);
    dev_free(dev, freed);
    assert_int_equal(queue_take(dev, &q), SOL_OK);
    const struct {
        struct sol_command c;
        const char *text;
    } bad[] = {{write_to(freed, data, 64), "device far:0: 'x': copy to it: it uses memory that was freed"},
               {read_from(p + 32, data, 64), "device far:0: 'y': copy from it: it uses 64 bytes at 32 of memory of 64"},
               {write_to(p - 8, data, 8), "device far:0: 'x': copy to it: it uses 8 bytes at -8 of memory of 64"}};
    for (int i = 0; i < COUNT_OF(bad); i++) {
        assert_int_equal(queue_add(q, &bad[i].c), SOL_OK);
        assert_int_equal(queue_wait(q, NULL), SOL_ERR_INVALID);
        if (!strstr(sol_error(c), bad[i].text)) fail_msg("%s", sol_error(c));
    }
    queue_give(q);
    dev_free(dev, p);
    sol_ctx_destroy(c);
}

/* Each operation fails once. What follows is dropped, memory is freed, and the queue then works. */
static void a_failure_stops_its_queue(void **state)
{
    char in[100] = {1, 2, 3}, out[100];
    int failed = 0;
    (void)state;
    for (int at = 1; at <= 5; at++) {
        char options[64];
        snprintf(options, sizeof options, "far.fail_at=%d", at);
        struct sol_ctx *c = far_ctx(options);
        struct dev *dev = far_dev(c);
        struct queue *q;
        for (int round = 0; round < 2; round++) {
            sol_ptr a = 0, b = 0;
            assert_int_equal(queue_take(dev, &q), SOL_OK);
            assert_int_equal(queue_alloc(q, 100, "a", &a), SOL_OK);
            queue_flush(q);
            sol_status status = queue_alloc(q, 100, "b", &b);
            const struct sol_command commands[] = {write_to(a, in, 100),
                                                   {.kind = SOL_COMMAND_COPY, .to = b, .from = a, .bytes = 100},
                                                   read_from(b, out, 100)};
            for (int i = 0; i < COUNT_OF(commands) && !status; i++) status = queue_add(q, &commands[i]);
            queue_free(q, a);
            queue_free(q, b);
            const sol_status waited = queue_wait(q, NULL);
            if (waited) {
                failed++;
                assert_int_equal(round, 0);
                assert_non_null(strstr(sol_error(c), "fails by far.fail"));
            } else {
                assert_int_equal(status, SOL_OK);
                assert_memory_equal(in, out, 100);
            }
            assert_int_equal(dev_bytes(dev), 0);
            queue_give(q);
        }
        sol_ctx_destroy(c);
    }
    assert_int_equal(failed, 5); /* two allocations and three commands */
}

static void devices_have_queues_of_their_own(void **state)
{
    kind = LATER;
    memory_moves(state);
    small_copies_are_packed(state);
    wrong_addresses_are_reported(state);
    a_failure_stops_its_queue(state);
    kind = FAR;
}

static void the_processor_executes_commands(void **state)
{
    kind = HERE;
    memory_moves(state);
    small_copies_are_packed(state);
    kind = FAR;
}

static void a_queue_waits_for_another(void **state)
{
    int value = 1, seen = 0;
    struct sol_ctx *c = far_ctx("far.delay=2000");
    struct dev *dev = far_dev(c);
    struct queue *q[2];
    sol_ptr p;
    (void)state;
    assert_int_equal(dev_alloc(dev, 4, &p), SOL_OK);
    for (int i = 0; i < 2; i++) assert_int_equal(queue_take(dev, &q[i]), SOL_OK);
    struct sol_event *e = event_make(dev);
    const struct sol_command second[] = {{.kind = SOL_COMMAND_WAIT, .event = e}, read_from(p, &seen, 4)},
                             first[] = {write_to(p, &value, 4), {.kind = SOL_COMMAND_SIGNAL, .event = e}};
    add_all(q[1], 2, second);
    queue_flush(q[1]);
    add_all(q[0], 2, first);
    assert_int_equal(queue_wait(q[0], NULL), SOL_OK);
    assert_int_equal(queue_wait(q[1], NULL), SOL_OK);
    assert_int_equal(seen, 1);
    sol_event_free(e);
    for (int i = 0; i < 2; i++) queue_give(q[i]);
    dev_free(dev, p);
    sol_ctx_destroy(c);
}

/* An event that nobody signals: the wait fails when the device has done nothing for the key's time, which is no hang of
 * the device. While another queue works, it goes on. The key counts from the next call on. */
static void waits_for_events_end(void **state)
{
    char byte = 1;
    (void)state;
    for (kind = FAR; kind <= LATER; kind++) {
        struct sol_ctx *c = far_ctx("");
        struct dev *dev = far_dev(c);
        struct queue *q, *other;
        sol_ptr p;
        assert_int_equal(dev_alloc(dev, 1, &p), SOL_OK);
        assert_int_equal(queue_take(dev, &other), SOL_OK);
        assert_int_equal(queue_take(dev, &q), SOL_OK);
        queue_give(q); /* it exists when the key changes */
        assert_int_equal(sol_config_set(c, "device::timeout", "1"), SOL_OK);
        assert_int_equal(queue_take(dev, &q), SOL_OK);
        struct sol_event *e = event_make(dev);
        const int64_t start = clock_ns();
        add_all(
            q, 2,
            (struct sol_command[]){{.kind = SOL_COMMAND_WAIT, .label = "other", .event = e}, write_to(p, &byte, 1)});
        queue_flush(q); /* of a polled device it waits here */
        for (int i = 0; kind == FAR && i < 15; i++) {
            usleep(100000);
            add_all(other, 1, (struct sol_command[]){write_to(p, &byte, 1)});
            assert_int_equal(queue_wait(other, NULL), SOL_OK);
        }
        assert_int_equal(queue_wait(q, NULL), SOL_ERR_RUN);
        if (!strstr(
                sol_error(c),
                "device far:0: 'other': wait: the event has not happened, and device far:0 has done nothing for 1 s"))
            fail_msg("%s", sol_error(c));
        assert_true(clock_ns() - start > (kind == FAR ? INT64_C(2400000000) : 900000000));
        assert_false(dev_hangs(dev));
        add_all(q, 1, (struct sol_command[]){write_to(p, &byte, 1)});
        assert_int_equal(queue_wait(q, NULL), SOL_OK);
        sol_event_free(e);
        queue_give(q);
        queue_give(other);
        dev_free(dev, p);
        sol_ctx_destroy(c);
    }
    kind = FAR;
}

/* Memory that is freed in front of an allocation is there for it, even if commands that use it are under way. */
static void freed_in_front_of_an_allocation(void **state)
{
    char in[100] = {1, 2, 3}, out[100] = {0};
    (void)state;
    for (kind = FAR; kind <= LATER; kind++) {
        struct sol_ctx *c = far_ctx("far.memory=1MB");
        struct dev *dev = far_dev(c);
        struct queue *q;
        sol_ptr a, b;
        assert_int_equal(queue_take(dev, &q), SOL_OK);
        assert_int_equal(queue_alloc(q, 600000, "a", &a), SOL_OK);
        add_all(q, 1, (struct sol_command[]){write_to(a, in, 100)});
        queue_free(q, a);
        assert_int_equal(queue_alloc(q, 900000, "b", &b), SOL_OK);
        add_all(q, 2, (struct sol_command[]){write_to(b, in, 100), read_from(b, out, 100)});
        queue_free(q, b);
        if (queue_wait(q, NULL)) fail_msg("%s", sol_error(c));
        assert_memory_equal(in, out, 100);
        queue_give(q);
        sol_ctx_destroy(c);
    }
    kind = FAR;
}

/* A device that is polled hangs: the wait fails in time, nobody is given what was to be read, and the device accepts no
 * work until it has ended. The queue then works again, in the hands of who has kept it (round 0), or given back. In
 * round 2 the device does not even accept the commands. */
static void a_polled_device_hangs(void **state)
{
    char in[100] = {1, 2, 3}, out[100], zero[100] = {0};
    kind = LATER;
    for (int round = 0; round < 3; round++) {
        struct sol_ctx *c = hanging_ctx(0);
        struct dev *dev = far_dev(c);
        struct queue *q, *other;
        sol_ptr p;
        memset(out, 0, sizeof out);
        assert_int_equal(dev_alloc(dev, 100, &p), SOL_OK);
        assert_int_equal(queue_take(dev, &q), SOL_OK);
        int64_t *const until = round == 2 ? &accepts_at : &later_until;
        *until = clock_ns() + INT64_C(1500000000);
        add_all(q, 2, (struct sol_command[]){write_to(p, in, 100), read_from(p, out, 100)});
        assert_hangs(c, queue_wait(q, NULL), round == 2 ? "'x': copy to it: its submission, " : "'x': copy to it: it ");
        assert_hangs(c, queue_add(q, &(struct sol_command){.kind = SOL_COMMAND_FILL, .to = p, .bytes = 1}), "'x'");
        assert_true(dev_hangs(dev));
        assert_int_equal(queue_take(dev, &other), SOL_ERR_RUN);
        assert_int_equal(dev_alloc(dev, 100, &p), SOL_ERR_RUN);
        if (round) queue_give(q);
        while (clock_ns() < *until) usleep(10000);
        for (const int64_t start = clock_ns(); round && queue_take(dev, &q); usleep(10000))
            assert_true(clock_ns() - start < INT64_C(60000000000));
        assert_memory_equal(out, zero, sizeof out);
        assert_int_equal(dev_alloc(dev, 100, &p), round ? SOL_OK : SOL_ERR_RUN); /* nobody has asked its queue */
        if (!round) assert_int_equal(queue_wait(q, NULL), SOL_OK);
        if (!round) assert_int_equal(dev_alloc(dev, 100, &p), SOL_OK);
        add_all(q, 2, (struct sol_command[]){write_to(p, in, 100), read_from(p, out, 100)});
        assert_int_equal(queue_wait(q, NULL), SOL_OK);
        assert_memory_equal(out, in, sizeof out);
        assert_false(dev_hangs(dev));
        queue_give(q);
        sol_ctx_destroy(c);
    }
    kind = FAR;
    (void)state;
}

/* Who asks a device for what it gives at once, or in a queue with a thread of its own, or without one. */
static sol_status ask_for_memory(struct dev *dev)
{
    sol_ptr p;
    const sol_status status = dev_alloc(dev, 7000, &p);
    if (!status) dev_free(dev, p);
    return status;
}

static sol_status ask_in_queue(struct dev *dev)
{
    struct queue *q;
    sol_ptr p;
    sol_status status = queue_take(dev, &q);
    if (status) return status;
    assert_int_equal(queue_alloc(q, 7000, "x", &p), SOL_OK);
    queue_free(q, p);
    status = queue_wait(q, NULL);
    queue_give(q);
    return status;
}

static sol_status ask_for_code(struct dev *dev)
{
    static const struct sol_module empty;
    struct sol_code *code;
    const sol_status status =
        dev_load(dev, &(struct sol_blob){.size = sizeof(struct sol_blob), .module = &empty, .name = "none"}, &code);
    if (!status) dev_unload(dev, code);
    return status;
}

/* What a device gives hangs: who asks is told in time, and everybody else at once, until it has come. Then all is as
 * before: 7000 of the 8192 bytes are there, so what came too late was given back. */
static void what_a_device_gives_hangs(void **state)
{
    static const struct {
        int kind;
        sol_status (*ask)(struct dev *dev);
        const char *says, *then;
    } cases[] = {{FAR, ask_for_memory, "device far:0: allocation: ", "an allocation has not ended yet"},
                 {FAR, ask_in_queue, "device far:0: 'x': allocation: ", "an allocation has not ended yet"},
                 {LATER, ask_in_queue, "device far:0: 'x': allocation: ", "an allocation has not ended yet"},
                 {FAR, ask_for_code, "device far:0: code of 'none': ", "the loading of code has not ended yet"}};
    struct sol_ctx *c[COUNT_OF(cases)];
    struct dev *dev[COUNT_OF(cases)];
    (void)state;
    for (int i = 0; i < COUNT_OF(cases); i++) {
        kind = cases[i].kind;
        c[i] = far_ctx("far.hang_ms=2500,far.hang_at=1,far.memory=8192");
        dev[i] = far_dev(c[i]);
        assert_int_equal(sol_config_set(c[i], "device::timeout", "1"), SOL_OK);
        const int64_t start = clock_ns();
        assert_hangs(c[i], cases[i].ask(dev[i]), cases[i].says);
        assert_true(clock_ns() - start < INT64_C(2400000000));
        assert_true(dev_hangs(dev[i]));
        assert_int_equal(ask_in_queue(dev[i]), SOL_ERR_RUN);
        if (!strstr(sol_error(c[i]), cases[i].then)) fail_msg("%s", sol_error(c[i]));
        assert_int_equal(ask_for_memory(dev[i]), SOL_ERR_RUN);
    }
    for (int i = 0; i < COUNT_OF(cases); i++) {
        for (const int64_t start = clock_ns(); dev_hangs(dev[i]); usleep(10000))
            assert_true(clock_ns() - start < INT64_C(60000000000));
        if (cases[i].ask(dev[i])) fail_msg("%s", sol_error(c[i]));
        if (ask_for_memory(dev[i])) fail_msg("%s", sol_error(c[i]));
        assert_int_equal(dev_bytes(dev[i]), 0);
        sol_ctx_destroy(c[i]);
    }
    kind = FAR;
}

/* far, which opens and closes slowly at first. */
static struct sol_device_type slow_type;
static atomic_int opened, closed;

static sol_status slow_open(const struct sol_device_type *type, const struct sol_host *host, int index,
                            struct sol_device **out_device, struct sol_failure *out_why)
{
    if (!atomic_fetch_add(&opened, 1)) usleep(1600000);
    return far_type->open(type, host, index, out_device, out_why);
}

static void slow_close(struct sol_device *device)
{
    atomic_fetch_add(&closed, 1);
    far_type->close(device);
}

static void never_close(struct sol_device *device)
{
    (void)device;
    sleep(1000);
}

/* Who opens a device is told in time that it hangs. When it has come back, it was closed, and is opened again. */
static void an_opening_hangs(void **state)
{
    struct sol_ctx *c = hanging_ctx(0);
    struct dev *dev = far_dev(c); /* another one */
    (void)state;
    slow_type = *far_type;
    slow_type.open = slow_open;
    slow_type.close = slow_close;
    assert_hangs(c, dev_get(c, &slow_type, 0, &dev), "device far:0: opening it: ");
    assert_null(dev);
    assert_int_equal(dev_get(c, &slow_type, 0, &dev), SOL_ERR_RUN);
    if (!strstr(sol_error(c), "device far:0: its opening has not ended yet")) fail_msg("%s", sol_error(c));
    for (const int64_t start = clock_ns(); dev_get(c, &slow_type, 0, &dev); usleep(10000))
        assert_true(clock_ns() - start < INT64_C(60000000000));
    assert_int_equal(atomic_load(&opened), 2);
    assert_int_equal(atomic_load(&closed), 1);
    assert_int_equal(ask_for_memory(dev), SOL_OK);
    sol_ctx_destroy(c);
    assert_int_equal(atomic_load(&closed), 2);
}

/* A program that ends while its device hangs, in a child. It says whether all went as it should until its end. */
static void ends_in_a_child(bool (*program)(void))
{
    int status;
    const pid_t child = fork();
    if (!child) {
        alarm(60);
        exit(program() ? 0 : 1);
    }
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
}

static bool ends_in_a_close(void)
{
    static struct sol_ctx *c; /* not lost, for those who look for leaks at the end */
    c = hanging_ctx(0);
    struct dev *dev = far_dev(c);
    slow_type = *far_type;
    slow_type.close = never_close;
    const bool good = !dev_get(c, &slow_type, 0, &dev) && !ask_for_memory(dev);
    sol_ctx_destroy(c);
    return good && !strcmp(sol_config_get(c, "device"), "far"); /* it is kept */
}

static void a_context_ends_and_a_close_hangs(void **state)
{
    (void)state;
    ends_in_a_child(ends_in_a_close);
}

static bool ends_in_an_allocation(void)
{
    static struct sol_ctx *c; /* as above */
    c = far_ctx("far.hang_at=1");
    struct dev *dev = far_dev(c);
    const bool hangs = !sol_config_set(c, "device::timeout", "1") && ask_for_memory(dev) == SOL_ERR_RUN;
    sol_ctx_destroy(c);
    return hangs;
}

static void a_context_ends_and_an_allocation_hangs(void **state)
{
    (void)state;
    ends_in_a_child(ends_in_an_allocation);
}

/* -- heaps */

static struct sol_heap *heap_of(struct sol_ctx *c)
{
    struct sol_heap *h;
    if (sol_heap_open(c, "far:0", &h)) fail_msg("%s", sol_error(c));
    return h;
}

/* The device hangs with a command of the heap: all that the heap is asked for says so, until the command has ended.
 * Then the heap works again, and so do queues, whoever asks first. */
static void a_heap_outlives_a_hang(void **state)
{
    char in[100] = {1, 2, 3}, out[100] = {0};
    (void)state;
    for (int round = 0; round < 2; round++) {
        struct sol_ctx *c = hanging_ctx(2);
        struct dev *dev = far_dev(c);
        struct sol_heap *h = heap_of(c);
        struct queue *q;
        uint64_t p, more = 0;
        assert_int_equal(sol_heap_alloc(h, 100, &p), SOL_OK);
        assert_int_equal(sol_heap_write(h, p, in, 100), SOL_OK);
        assert_hangs(c, sol_heap_wait(h), "'tensor': copy to it");
        const int64_t end = clock_ns() + INT64_C(2000000000);
        assert_hangs(c, sol_heap_read(h, out, p, 100), "'tensor': copy to it");
        assert_hangs(c, sol_heap_alloc(h, 100, &more), "'tensor': copy to it");
        assert_hangs(c, sol_heap_wait(h), "'tensor': copy to it");
        assert_int_equal(queue_take(dev, &q), SOL_ERR_RUN);
        sol_heap_free(h, p);
        while (clock_ns() < end) usleep(10000);
        if (round) {
            assert_int_equal(queue_take(dev, &q), SOL_OK);
            queue_give(q);
        }
        if (sol_heap_alloc(h, 100, &p)) fail_msg("%s", sol_error(c));
        assert_int_equal(sol_heap_write(h, p, in, 100), SOL_OK);
        assert_int_equal(sol_heap_read(h, out, p, 100), SOL_OK);
        assert_memory_equal(out, in, sizeof out);
        assert_false(dev_hangs(dev));
        sol_heap_free(h, p);
        assert_int_equal(sol_heap_wait(h), SOL_OK);
        assert_int_equal(dev_bytes(dev), 0);
        sol_ctx_destroy(c);
    }
}

/* A context ends while the heap has commands under way, and the device then hangs: it keeps what it may use. */
static void a_context_ends_and_its_heap_hangs(void **state)
{
#if defined __SANITIZE_THREAD__
    skip(); /* a child that ends with a thread that hangs is more than ThreadSanitizer follows */
#endif
    int status;
    (void)state;
    const pid_t child = fork();
    if (!child) {
        char in[100] = {1};
        uint64_t p;
        signal(SIGSEGV, SIG_DFL);
        alarm(60);
        static struct sol_ctx *c; /* not lost, for those who look for leaks at the end */
        c = hanging_ctx(2);
        struct sol_heap *h = heap_of(c);
        const bool good = !sol_heap_alloc(h, 100, &p) && !sol_heap_write(h, p, in, 100);
        sol_ctx_destroy(c);
        sleep(2); /* the device goes on */
        _exit(good ? 0 : 1);
    }
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
}

/* A loop that never reads is far in front of its device. */
static void loops_that_never_read_need_little(void **state)
{
    enum { ROUNDS = 60, BYTES = 8 << 20 };
    struct sol_ctx *c = far_ctx("far.delay=5000");
    struct dev *dev = far_dev(c);
    struct sol_heap *h = heap_of(c);
    int64_t most = 0;
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t p;
        if (sol_heap_alloc(h, BYTES, &p)) fail_msg("%s", sol_error(c));
        for (int k = 0; k < 20; k++) assert_int_equal(sol_heap_fill(h, p, k, 1), SOL_OK);
        sol_heap_free(h, p);
        const int64_t bytes = dev_bytes(dev);
        if (bytes > most) most = bytes;
    }
    assert_int_equal(sol_heap_wait(h), SOL_OK);
    assert_int_equal(dev_bytes(dev), 0);
    assert_true(most <= (INT64_C(256) << 20) + 2 * BYTES);
    assert_true(dev_counts(dev).waits < 10);
    sol_ctx_destroy(c);
}

/* A heap waits for what another device does, the host for both, and nobody else. What fails in front of an event fails
 * what waits for it. */
static void heaps_wait_for_events(void **state)
{
    struct sol_ctx *c = far_ctx("far.devices=2,far.hang_at=2,far.hang_ms=300");
    struct sol_heap *h[2] = {heap_of(c)};
    struct sol_event *first, *second, *late;
    uint64_t p[2];
    int value = 7;
    (void)state;
    if (sol_heap_open(c, "far:1", &h[1])) fail_msg("%s", sol_error(c));
    for (int i = 0; i < 2; i++) assert_int_equal(sol_heap_alloc(h[i], 4, &p[i]), SOL_OK);
    const int64_t start = clock_ns();
    assert_int_equal(sol_heap_write(h[0], p[0], &value, 4), SOL_OK); /* 300 ms */
    assert_int_equal(sol_heap_record(h[0], &first), SOL_OK);
    assert_int_equal(sol_heap_after(h[0], first), SOL_OK); /* its own */
    assert_int_equal(sol_heap_after(h[1], first), SOL_OK);
    assert_int_equal(sol_heap_record(h[1], &second), SOL_OK);
    assert_true(clock_ns() - start > 200000000 || !sol_event_happened(second));
    if (sol_event_wait(second)) fail_msg("%s", sol_error(c));
    assert_true(sol_event_happened(first) && clock_ns() - start >= 300000000);
    assert_true(sol_event_between(first, second) >= 0);
    assert_int_equal(sol_heap_wait(h[1]), SOL_OK);
    assert_int_equal(sol_heap_copy(h[0], p[0], p[0] + 100, 4), SOL_OK); /* fails: outside of its memory */
    const sol_status recorded = sol_heap_record(h[0], &late);           /* it may be known already */
    if (!recorded) {
        assert_int_equal(sol_heap_after(h[1], late), SOL_OK);
        assert_int_equal(sol_event_wait(late), SOL_ERR_INVALID);
        assert_int_equal(sol_heap_wait(h[1]), SOL_ERR_RUN);
        sol_event_free(late);
    }
    if (recorded || !strstr(sol_error(c), "device far:1: 'event': wait: what it waits for on device far:0 has failed"))
        assert_int_equal(recorded, SOL_ERR_INVALID);
    for (int i = 0; i < 2; i++) assert_int_equal(sol_heap_wait(h[i]), SOL_OK);
    sol_event_free(first);
    sol_event_free(second);
    sol_ctx_destroy(c);
}

/* The addresses of the device belong to nobody else. */
static void memory_is_closed(void **state)
{
    struct sol_ctx *c = far_ctx("");
    struct devices *d;
    struct sol_device *device;
    struct sol_failure why = failure_new();
    sol_ptr raw;
    int status;
    (void)state;
    assert_int_equal(devices_of(c, &d), SOL_OK);
    const struct sol_device_type *type = selected_type(c);
    assert_int_equal(type->open(type, devices_host(d), 0, &device, &why), SOL_OK);
    assert_int_equal(type->alloc(device, 64, &raw, &why), SOL_OK);
    const pid_t child = fork();
    if (!child) {
        signal(SIGSEGV, SIG_DFL);
        *(volatile char *)(uintptr_t)raw = 1;
        _exit(0);
    }
    waitpid(child, &status, 0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    type->free(device, raw);
    type->close(device);
    sol_ctx_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* Children first: after a hang a thread of the device ends at any time, and a fork while it holds the lock of a
         * sanitizer's allocator would leave that locked in the child. */
        cmocka_unit_test(a_context_ends_and_an_allocation_hangs),
        cmocka_unit_test(a_context_ends_and_a_close_hangs),
        cmocka_unit_test(a_context_ends_and_its_heap_hangs),
        cmocka_unit_test(memory_is_closed),
        cmocka_unit_test(memory_moves),
        cmocka_unit_test(small_copies_are_packed),
        cmocka_unit_test(freed_memory_is_used_again),
        cmocka_unit_test(much_memory_in_many_pieces),
        cmocka_unit_test(wrong_addresses_are_reported),
        cmocka_unit_test(a_failure_stops_its_queue),
        cmocka_unit_test(devices_have_queues_of_their_own),
        cmocka_unit_test(the_processor_executes_commands),
        cmocka_unit_test(a_queue_waits_for_another),
        cmocka_unit_test(waits_for_events_end),
        cmocka_unit_test(freed_in_front_of_an_allocation),
        cmocka_unit_test(a_polled_device_hangs),
        cmocka_unit_test(what_a_device_gives_hangs),
        cmocka_unit_test(an_opening_hangs),
        cmocka_unit_test(a_heap_outlives_a_hang),
        cmocka_unit_test(loops_that_never_read_need_little),
        cmocka_unit_test(heaps_wait_for_events),
    };
    return cmocka_run_group_tests(tests, make_ctx, drop_ctx);
}
