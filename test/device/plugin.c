/* A plug-in for device_test.c: one device type that has no devices, and takes absent.hang milliseconds to say so, and
 * two that SOL must reject. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "sol/device.h"

static sol_status none(const struct sol_device_type *type, const struct sol_host *host, int *out_n,
                       struct sol_failure *out_why)
{
    char wanted[32], ms[32];
    (void)type;
    host->option(host->user, "absent.board", wanted, sizeof wanted);
    host->option(host->user, "absent.hang", ms, sizeof ms);
    nanosleep(&(struct timespec){atoi(ms) / 1000, atoi(ms) % 1000 * 1000000}, NULL);
    *out_n = 0;
    snprintf(out_why->text, sizeof out_why->text, "no board '%s'; code for it can be made", wanted);
    return SOL_OK;
}

static sol_status info(const struct sol_device_type *type, const struct sol_host *host, int index,
                       struct sol_device_info *out_info, struct sol_failure *out_why)
{
    (void)type, (void)host, (void)index, (void)out_why;
    snprintf(out_info->compiler, sizeof out_info->compiler, "abscc 1.0");
    return SOL_OK;
}

static sol_status open_device(const struct sol_device_type *type, const struct sol_host *host, int index,
                              struct sol_device **out_device, struct sol_failure *out_why)
{
    (void)type, (void)host, (void)index, (void)out_why;
    *out_device = NULL;
    return SOL_ERR_UNSUPPORTED;
}

static void close_device(struct sol_device *device)
{
    (void)device;
}

static sol_status alloc(struct sol_device *device, int64_t bytes, sol_ptr *out_raw, struct sol_failure *out_why)
{
    (void)device, (void)bytes, (void)out_why;
    *out_raw = 0;
    return SOL_ERR_NOMEM;
}

static void free_memory(struct sol_device *device, sol_ptr raw)
{
    (void)device, (void)raw;
}

static sol_status load(struct sol_device *device, const struct sol_blob *blob, struct sol_code **out_code,
                       struct sol_failure *out_why)
{
    (void)device, (void)blob, (void)out_why;
    *out_code = NULL;
    return SOL_ERR_UNSUPPORTED;
}

static void unload(struct sol_code *code)
{
    (void)code;
}

static sol_status queue(struct sol_device *device, void *foreign, struct sol_stream **out_stream,
                        struct sol_failure *out_why)
{
    (void)device, (void)foreign, (void)out_why;
    *out_stream = NULL;
    return SOL_ERR_UNSUPPORTED;
}

static void unqueue(struct sol_stream *stream)
{
    (void)stream;
}

static sol_status submit(struct sol_stream *stream, int n, const struct sol_command *command, int64_t *out_ticket,
                         struct sol_failure *out_why)
{
    (void)stream, (void)n, (void)command, (void)out_why;
    *out_ticket = 0;
    return SOL_ERR_UNSUPPORTED;
}

#define FUNCTIONS                                                                                               \
    .flavour = "c", .features = SOL_DEVICE_SYNCHRONOUS, .count = none, .info = info, .open = open_device,       \
    .close = close_device, .alloc = alloc, .free = free_memory, .load = load, .unload = unload, .queue = queue, \
    .unqueue = unqueue, .submit = submit

static const struct sol_device_type absent = {
    .size = sizeof absent, .version = SOL_DEVICE_VERSION, .name = "absent", FUNCTIONS};
static const struct sol_device_type newer = {
    .size = sizeof newer, .version = SOL_DEVICE_VERSION + 1, .name = "newer", FUNCTIONS};
static const struct sol_device_type partial = {
    .size = sizeof partial, .version = SOL_DEVICE_VERSION, .name = "partial"};
static const struct sol_device_type *const types[] = {&absent, &newer, &partial};

__attribute__((visibility("default"))) const struct sol_device_type *sol_device_plugin(int i)
{
    return i < 3 ? types[i] : NULL;
}
