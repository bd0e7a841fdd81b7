/* Failures of devices: their text with the place where they happened. */
#include <stdio.h>
#include <string.h>

#include "device/inside.h"

sol_status failure_report(struct sol_ctx *ctx, sol_status status, const struct sol_failure *f)
{
    return ctx_fail(ctx, status, "%s", *f->text ? f->text : "the device gives no reason");
}

sol_status failure_hangs(struct sol_failure *f, const char *what, int64_t limit_ns)
{
    return failure_set(f, SOL_ERR_RUN,
                       "%s has not ended after %lld s (key device::timeout); until it ends, the device accepts no more "
                       "work",
                       what, (long long)(limit_ns / NS_PER_SECOND));
}

static const char *const verbs[] = {
    [SOL_COMMAND_ALLOC] = "allocation",  [SOL_COMMAND_FREE] = "free", [SOL_COMMAND_WRITE] = "copy to it",
    [SOL_COMMAND_READ] = "copy from it", [SOL_COMMAND_COPY] = "copy", [SOL_COMMAND_FILL] = "fill",
    [SOL_COMMAND_LAUNCH] = "launch",     [SOL_COMMAND_RUN] = "run",   [SOL_COMMAND_HOST] = "call of the host",
    [SOL_COMMAND_SIGNAL] = "signal",     [SOL_COMMAND_WAIT] = "wait",
};

/* "network 'cnn', 'conv1 + relu': ": the step that failed, or, if the device does not say which, the first one. */
static void put_step(char *out, size_t room, const struct sol_run *r, int32_t step)
{
    const bool known = step >= r->first && step - r->first < r->count;
    const char *label = r->step[known ? step : r->first].label;
    snprintf(out, room, "network '%s', '%s'%s: ", r->network, label ? label : "",
             known || r->count == 1 ? "" : " or a later step");
}

void failure_place(struct sol_failure *f, const char *device, const struct sol_command *c)
{
    char step[400] = "", what[sizeof f->text];
    const bool run = c && c->run && c->run->step;
    const char *label = c && !run ? c->label : NULL;
    memcpy(what, *f->text ? f->text : "it gives no reason", *f->text ? sizeof what : sizeof "it gives no reason");
    if (run) put_step(step, sizeof step, c->run, f->step);
    if (run && f->kernel)
        failure_set(f, f->status, "%sdevice %s: %s in the data of its call", step, device, kernel_says(f->kernel));
    else
        failure_set(f, f->status, "%sdevice %s: %s%s%s%s%s%s", step, device, label ? "'" : "", label ? label : "",
                    label ? "': " : "", c ? verbs[c->kind] : "", c ? ": " : "", what);
}
