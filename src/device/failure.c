/* Failures of devices: what a device reports. Drivers in deployed libraries use this file, too. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "device/inside.h"

struct sol_failure failure_new(void)
{
    return (struct sol_failure){.size = sizeof(struct sol_failure), .step = -1};
}

sol_status failure_set(struct sol_failure *f, sol_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (f) vsnprintf(f->text, sizeof f->text, format, args);
    va_end(args);
    for (size_t n = f ? strlen(f->text) : 0; n && f->text[n - 1] == '\n';) f->text[--n] = 0; /* logs end with one */
    return status;
}

/* "kernels.cu(7): error: ..", "error: kernel.cl:7:5: ..": the line in which it stands. */
const char *failure_first_error(const char *log)
{
    const char *at = strstr(log, "error: ");
    while (at && at > log && at[-1] != '\n') at--;
    return at ? at : log;
}

const char *kernel_says(int32_t error)
{
    return error == SOL_KERNEL_INDEX      ? "an index is out of range"
           : error == SOL_KERNEL_DIVISION ? "an integer is divided by zero"
                                          : "a kernel reports an unknown error";
}
