/* Device: everything about devices that is the same for all of them. A device type is a table of functions
 * (sol/device.h): built in, or of a plug-in. The processors are types, too. */
#ifndef SOL_DEVICE_DEVICE_H
#define SOL_DEVICE_DEVICE_H

#include "base/base.h"
#include "sol/device.h"
#include "sol/sol.h"

/* registry.c: the device types of a context. */
struct devices;
/* Errors: NOMEM. The types live as long as the context. */
sol_status devices_of(struct sol_ctx *ctx, struct devices **out_d);
/* The i-th type; NULL: i is past the last. */
const struct sol_device_type *devices_at(struct devices *d, int i);
/* How long a driver may take for what it is asked, in ns (key device::timeout); 0: any time. */
int64_t devices_limit(struct sol_ctx *ctx);
/* The same for who lists devices, and so asks all drivers, which must not wait for any time. */
int64_t devices_limit_listing(struct sol_ctx *ctx);
/* How many devices of a type are there. *out_why, if it is none. */
int devices_count(struct devices *d, const struct sol_device_type *type, int64_t limit_ns, struct sol_failure *out_why);
/* Facts about a device that need not be open; index -1: about the type. */
sol_status devices_info(struct devices *d, const struct sol_device_type *type, int index, int64_t limit_ns,
                        struct sol_device_info *out_info, struct sol_failure *out_why);
/* The i-th plug-in that cannot be used, or type of one; path NULL: i is past the last. */
struct absent_plugin {
    const char *path, *why;
};
struct absent_plugin devices_absent(struct devices *d, int i);
const struct sol_host *devices_host(const struct devices *d);
/* The type and index that the key `device` selects. Errors: UNSUPPORTED (there is no such device; the message lists
 * those that are there, or says why it is not), NOMEM. */
sol_status devices_selected(struct sol_ctx *ctx, const struct sol_device_type **out_type, int *out_index);
/* The same for a name such as "far:1" that somebody gives. */
sol_status devices_named(struct sol_ctx *ctx, const char *name, const struct sol_device_type **out_type,
                         int *out_index);

/* failure.c */
struct sol_failure failure_new(void);
/* Reports what a device said. Returns `status`. */
sol_status failure_report(struct sol_ctx *ctx, sol_status status, const struct sol_failure *f);
/* For devices: sets the text of a failure. Returns `status`. */
sol_status failure_set(struct sol_failure *f, sol_status status, const char *format, ...) PRINTF_LIKE(3, 4);
/* For compilers that reject a source: sets a text that begins at the first error in their log (NULL: no memory), which
 * *out_log then owns; NULL: nobody wants it. Returns COMPILER. */
sol_status failure_rejected(struct sol_failure *f, const char *compiler, char *log, struct sol_blob *out_log);
const char *command_kind(const struct sol_command *c);  /* of those that streams execute: "copy" */
const char *command_label(const struct sol_command *c); /* its label, or its kind */
const char *kernel_says(int32_t error);                 /* an error SOL_KERNEL_*, for people */

/* dev.c: devices that this context has opened. They live as long as it. */
struct dev;
/* Opens the device if it is not open. Errors: what its type says. */
sol_status dev_get(struct sol_ctx *ctx, const struct sol_device_type *type, int index, struct dev **out_dev);
const struct sol_device_type *dev_type(const struct dev *dev);
const char *dev_name(const struct dev *dev); /* "far:0" */
/* Errors: INVALID in a child process of the one that opened it. */
sol_status dev_check_process(const struct dev *dev);
sol_status dev_load(struct dev *dev, const struct sol_blob *blob, struct sol_code **out_code);
/* Compiles a source for a device of the type, which need not be there. *out_data lives as long as the arena. After an
 * error it is a text, all that the compiler said; NULL: the message has it. */
sol_status device_compile(const struct sol_device_type *type, const struct sol_host *host, struct arena *a,
                          const struct sol_code_text *text, const void **out_data, size_t *out_bytes);
/* The same for this device. */
sol_status dev_compile(struct dev *dev, struct arena *a, const struct sol_code_text *text, const void **out_data,
                       size_t *out_bytes);
/* Facts about it. */
sol_status dev_info(struct dev *dev, struct sol_device_info *out_info);
sol_status dev_find(struct dev *dev, struct sol_code *code, const char *function, void **out_kernel);
void dev_unload(struct dev *dev, struct sol_code *code); /* accepts NULL */
/* What was submitted to the device so far, by kind of command; allocations are those that the pool did not have. */
struct dev_counts {
    int64_t commands[SOL_COMMAND_KINDS], waits;
    const char *last_wait; /* what the host waited for last; NULL: it never did */
};
struct dev_counts dev_counts(struct dev *dev);
/* It has not ended something that took too long, and may still use its memory and code. */
bool dev_hangs(struct dev *dev);
int64_t dev_bytes(struct dev *dev); /* of memory that is allocated and not freed; what the pool keeps does not count */

/* memory.c: memory that no command uses yet, or any more. Errors: NOMEM, with what the device says. */
sol_status dev_alloc(struct dev *dev, int64_t bytes, sol_ptr *out_p);
void dev_free(struct dev *dev, sol_ptr p); /* 0 is accepted */

/* queue.c: queues of commands on virtual pointers. A thread takes one, appends commands, waits, and gives it back; a
 * device keeps idle ones. Commands run in order. After a failure, what follows is dropped (memory is freed all the
 * same), and the queue accepts nothing until queue_wait has reported the failure. A command that takes longer than the
 * key device::timeout allows is a failure, too; then queues are taken again only when it has ended. */
struct queue;
sol_status queue_take(struct dev *dev, struct queue **out_q);
void queue_give(struct queue *q); /* waits, if that was not done */
/* Appends a command and copies it, with the launch or run and their arrays of arguments and addresses. Memory of the
 * host that it reads or writes must stay until queue_wait. A READ with a run reads what the kernels of its steps
 * report, two int32: an error, SOL_KERNEL_*, and the step; that is the command's failure. Errors: the failure that was
 * not reported yet, NOMEM. */
sol_status queue_add(struct queue *q, const struct sol_command *c);
/* The same for a WRITE, which copies its data as well. */
sol_status queue_add_copied(struct queue *q, const struct sol_command *c);
/* The command that frees memory that dev_alloc returned, for memory_keep_free; queue_free then appends it. NULL: out of
 * memory. */
struct entry *queue_entry_free(struct dev *dev, sol_ptr p);
/* Appends the allocation of `bytes` > 0: *out_p is valid in commands from now on, for all queues behind a wait. */
sol_status queue_alloc(struct queue *q, int64_t bytes, const char *label, sol_ptr *out_p);
/* Appends that memory is freed; 0 is accepted. It cannot fail. */
void queue_free(struct queue *q, sol_ptr p);
/* Lets the device begin with what was appended. */
void queue_flush(struct queue *q);
/* Waits for everything. Reports the first failure: its message, with the label of its command; *out_failure, unless it
 * is NULL, has the rest. */
sol_status queue_wait(struct queue *q, struct sol_failure *out_failure);
/* The same; `what` says why, for dev_counts. It is not copied. queue_wait waits for the end of a call. */
sol_status queue_wait_for(struct queue *q, const char *what, struct sol_failure *out_failure);

/* heap.c: commands of networks whose tensors lie in a heap (sol.h). The heap's queue has an order, but no caller for
 * itself: another thread's commands may come in between. A WRITE copies its data. Errors: as queue_add; a failure is
 * reported, and the heap goes on. */
sol_status heap_add(struct sol_heap *h, const struct sol_command *c);
void heap_flush(struct sol_heap *h);
sol_status heap_wait(struct sol_heap *h, const char *what, struct sol_failure *out_failure); /* as queue_wait_for */
/* Something that what was appended so far uses ends when that is done: `end` is called then, by a thread that uses the
 * heap, or when the context ends. The struct stays until then. false: nothing is under way, so it can end now. */
struct heap_ending {
    struct heap_ending *next;
    int64_t mark;
    void (*end)(struct heap_ending *e);
};
bool heap_end_later(struct sol_heap *h, struct heap_ending *e);
/* How many failures the heap has reported: what was appended before the last one may not have happened. */
int64_t heap_failures(struct sol_heap *h);
/* The heap of an open device. */
sol_status dev_heap(struct dev *dev, struct sol_heap **out_heap);

/* event.c: SIGNAL and WAIT of queues have an event in the field `event`. A thread appends WAIT and flushes only after
 * it has flushed its own SIGNAL, because the wait may block it. */
struct sol_event *event_make(struct dev *dev);    /* NULL: out of memory. Freed with sol_event_free (sol.h) */
struct dev *event_dev(const struct sol_event *e); /* whose queue signals it */

#endif
