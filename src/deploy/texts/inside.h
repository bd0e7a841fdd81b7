/* What the driver of a device (device/NAME.c) needs of SOL, in a deployed library. */
#ifndef SOL_DEVICE_INSIDE_H
#define SOL_DEVICE_INSIDE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "rt/lock.h"
#include "sol/device.h"

#define COUNT_OF(array) ((int)(sizeof(array) / sizeof *(array)))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define TRY(call)                            \
    do {                                     \
        sol_status try_status_ = (call);     \
        if (try_status_) return try_status_; \
    } while (0)

/* failure.c */
struct sol_failure failure_new(void);
sol_status failure_set(struct sol_failure *f, sol_status status, const char *format, ...);
sol_status failure_rejected(struct sol_failure *f, const char *compiler, char *log, struct sol_blob *out_log);
const char *kernel_says(int32_t error);

/* hash.c */
struct hash {
    uint64_t a, b, n;
};
void hash_init(struct hash *h);
void hash_add(struct hash *h, const void *data, size_t bytes);
void hash_text(struct hash *h, const char *text);
void hash_hex(const struct hash *h, char out[33]);

static inline int64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

#endif
