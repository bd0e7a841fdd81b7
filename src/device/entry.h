/* Entries of queues: commands with copies of what they point to. For the files of this folder only. */
#ifndef SOL_DEVICE_ENTRY_H
#define SOL_DEVICE_ENTRY_H

#include "device/inside.h"

struct entry {
    struct entry *next;
    struct sol_command c; /* on virtual pointers */
    int64_t ticket;       /* as the device counts */
    struct entry *packed; /* neighbours that are copied with it, in their order */
    char *staging;        /* for them all; NULL: the device uses the memory of the host that the command names */
    union {               /* what the command points to */
        struct sol_launch launch;
        struct sol_run run;
    };
    int32_t reported[2]; /* of a READ with a run: what its kernels reported, and the step */
    void *arrays;        /* arguments, addresses, sizes and steps, or data to write */
    int64_t ns;          /* the device's time */
    /* Where times go when the command is done, NULL: nowhere. The device has places of the entry, because a caller does
     * not wait for a device that hangs. */
    int64_t *out_ns, *out_step_ns;
};

/* A copy of the command. NULL: out of memory. */
struct entry *entry_make(struct sol_ctx *ctx, const struct sol_command *c);
/* A copy of a WRITE with its data. */
struct entry *entry_make_write(struct sol_ctx *ctx, const struct sol_command *c);
/* Joins neighbouring copies of a list. Without memory they stay what they are. `all`: copies alone go through memory of
 * the queue, too, so that the device never touches the caller's. */
void entry_pack(struct sol_ctx *ctx, struct entry *list, bool all);
/* The command with addresses of the device. It points into the entry. */
sol_status entry_resolve(struct dev *dev, struct entry *e, struct sol_command *out_c, struct sol_failure *out_why);
void entry_drop(struct entry *e); /* it will not be executed */
/* What was read, and times, go where they belong. */
void entry_deliver(const struct entry *e);
/* Frees an entry. Returns how many were one. */
int64_t entry_finish(struct sol_ctx *ctx, struct entry *e);

/* event.c */
void event_keep(struct sol_event *e); /* for a command, which calls sol_event_free */
void event_signal(struct sol_event *e, bool failed);
/* Errors: RUN: what signals it has failed, or all queues of its device did nothing for so long. limit_ns 0: no limit.
 */
sol_status event_wait(struct sol_event *e, int64_t limit_ns, struct sol_failure *out_why);

#endif
