/* sol-device-test: does a device type do what sol/device.h demands? Checks are rows of tables; a check gets the device
 * opened for it alone. What is wrong is said as the contract, what was expected, and what the device did. */
#ifndef SOL_DEVICE_TEST_H
#define SOL_DEVICE_TEST_H

#include <pthread.h>
#include <stdio.h>

#include "base/base.h"
#include "device/device.h"

struct bench {
    struct sol_ctx *ctx; /* selects the device */
    const struct sol_device_type *type;
    const struct sol_host *host;
    int index;
    struct sol_device_info info;
    struct sol_device *device; /* open during a check */
    pthread_mutex_t lock;      /* for both below: checks may have threads */
    char expected[400], got[1600];
};
enum verdict { GOOD, WRONG, SKIPPED };
struct check {
    const char *function; /* of struct sol_device_type, or the part of SOL that needs it */
    const char *contract; /* what the header demands */
    enum verdict (*run)(struct bench *b);
};
/* Tables, which end with an empty row. */
extern const struct check memory_checks[], stream_checks[], code_checks[], net_checks[];

/* The function sol_test(out, in, value, shared) in a flavour of devices that launch kernels: out[i] = in[i] + value by
 * way of the group's memory. A file for each flavour. */
struct test_kernel {
    const char *flavour, *text;
};
extern const struct test_kernel opencl_kernel, cuda_kernel;

/* main.c: says what a check expected and got (the first time in a check), or why it does not apply. */
enum verdict wrong(struct bench *b, const char *expected, const char *got, ...) PRINTF_LIKE(3, 4);
enum verdict skip(struct bench *b, const char *why);
#define WANT(condition, ...) \
    if (!(condition)) return wrong(b, __VA_ARGS__)

/* streams.c: a stream with its tickets. */
struct lane {
    struct bench *b;
    struct sol_stream *stream;
    int64_t ticket;
};
sol_status lane_open(struct lane *l, struct bench *b, struct sol_failure *out_why);
void lane_close(struct lane *l);
sol_status lane_submit(struct lane *l, int n, const struct sol_command *c, struct sol_failure *out_why);
sol_status lane_wait(struct lane *l, struct sol_failure *out_why);
sol_status lane_do(struct lane *l, int n, const struct sol_command *c, struct sol_failure *out_why); /* both */
bool runs_in_order(const struct bench *b); /* `submit` returns when commands are done */
/* Is the text of a failure as the header says? */
bool says_why(const struct sol_failure *f);

static inline struct sol_command write_of(sol_ptr to, const void *data, int64_t bytes)
{
    return (struct sol_command){.kind = SOL_COMMAND_WRITE, .label = "write", .to = to, .data = data, .bytes = bytes};
}
static inline struct sol_command read_of(sol_ptr from, void *host, int64_t bytes)
{
    return (struct sol_command){.kind = SOL_COMMAND_READ, .label = "read", .from = from, .host = host, .bytes = bytes};
}
static inline struct sol_command copy_of(sol_ptr to, sol_ptr from, int64_t bytes)
{
    return (struct sol_command){.kind = SOL_COMMAND_COPY, .label = "copy", .to = to, .from = from, .bytes = bytes};
}
static inline struct sol_command fill_of(sol_ptr to, uint8_t value, int64_t bytes)
{
    return (struct sol_command){.kind = SOL_COMMAND_FILL, .label = "fill", .to = to, .value = value, .bytes = bytes};
}
/* Bytes that differ by place and seed. */
static inline void pattern(unsigned char *p, int64_t n, unsigned seed)
{
    for (int64_t i = 0; i < n; i++) p[i] = (unsigned char)((i * 31 + i / 251 + seed * 97) & 0xff);
}

#endif
