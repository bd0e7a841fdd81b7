/* Failures of devices: what a device reports. Drivers in deployed libraries use this file, too. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/inside.h"

struct sol_failure failure_new(void)
{
    return (struct sol_failure){.size = sizeof(struct sol_failure), .step = -1};
}

/* A text that is too long ends with a whole line, or at least word, and "..". */
static void shorten(char *text, size_t room)
{
    static const char more[] = "..";
    char *end = text + room - sizeof more;
    *end = 0;
    char *at = strrchr(text, '\n');
    if (!at) at = strrchr(text, ' ');
    memcpy(at ? at + 1 : end, more, sizeof more);
}

sol_status failure_set(struct sol_failure *f, sol_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = f ? vsnprintf(f->text, sizeof f->text, format, args) : 0;
    va_end(args);
    if (n >= (int)sizeof f->text) shorten(f->text, sizeof f->text);
    for (size_t end = f ? strlen(f->text) : 0; end && f->text[end - 1] == '\n';)
        f->text[--end] = 0; /* logs end with one */
    return status;
}

sol_status failure_rejected(struct sol_failure *f, const char *compiler, char *log, struct sol_blob *out_log)
{
    const char *at = log ? strstr(log, "error: ") : NULL; /* "kernels.cu(7): error: ..", "error: kernel.cl:7:5: .." */
    while (at && at > log && at[-1] != '\n') at--;
    failure_set(f, SOL_ERR_COMPILER, "%s: %s", compiler, at ? at : log ? log : "out of memory");
    if (out_log) {
        out_log->data = log;
        out_log->bytes = log ? strlen(log) : 0;
    } else
        free(log);
    return SOL_ERR_COMPILER;
}

const char *command_kind(const struct sol_command *c)
{
    static const char *const names[] = {
        [SOL_COMMAND_WRITE] = "write", [SOL_COMMAND_READ] = "read",     [SOL_COMMAND_COPY] = "copy",
        [SOL_COMMAND_FILL] = "fill",   [SOL_COMMAND_LAUNCH] = "launch",
    };
    return names[c->kind];
}

const char *command_label(const struct sol_command *c)
{
    return c->label ? c->label : command_kind(c);
}

const char *kernel_says(int32_t error)
{
    return error == SOL_KERNEL_INDEX      ? "an index is out of range"
           : error == SOL_KERNEL_DIVISION ? "an integer is divided by zero"
                                          : "a kernel reports an unknown error";
}
