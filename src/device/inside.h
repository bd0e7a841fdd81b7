/* The internals of src/device, for the files of this folder only. */
#ifndef SOL_DEVICE_INSIDE_H
#define SOL_DEVICE_INSIDE_H

#include "device/device.h"
#include "rt/lock.h"

/* helper.c: threads that make calls which may not come back. They belong to a context. NULL: out of memory. */
struct helpers *helpers_create(struct sol_ctx *ctx);
bool helpers_end(struct helpers *all); /* ends those that do nothing. false: one still makes a call */
void helpers_destroy(struct helpers *all);
struct stuck { /* calls for somebody that have not come back in time; begins as 0 */
    int n;
    const char *what; /* the first of them */
};
const char *helpers_stuck(struct helpers *all, const struct stuck *stuck); /* what; NULL: none */
struct helper_call {
    const char *what; /* for struct stuck */
    void (*make)(void *arguments);
    void (*late)(void *arguments); /* behind `make`, if nobody waits any more: frees all */
    void *arguments;
};
enum helped { HELPED, HELPED_LATE, HELPED_NOT };
/* Makes a call in a helper, and waits at most so long for it. LATE: it is counted as stuck until it has come back. NOT:
 * the system has no thread. */
enum helped helper_make(struct helpers *all, int64_t limit_ns, const struct helper_call *call, struct stuck *stuck);

/* helper.c: a thread that gets no signals, because those are for the threads of the application. false: the system has
 * none. */
bool thread_start(pthread_t *out_thread, void *(*run)(void *), void *of);

/* driver.c: the functions of a type, which may take too long. limit_ns 0: they may take any time. A call that did is an
 * error, and while it has not come back, both refuse. */
struct driver {
    const struct sol_device_type *type;
    const struct sol_host *host;
    struct helpers *helpers;
    struct stuck stuck;
};
sol_status driver_count(struct driver *d, int64_t limit_ns, int *out_n, struct sol_failure *out_why);
sol_status driver_info(struct driver *d, int64_t limit_ns, int index, struct sol_device_info *out_info,
                       struct sol_failure *out_why);

/* registry.c */
struct sol_ctx *host_ctx(const struct sol_host *host);                                     /* for built-in types */
struct driver devices_driver(const struct devices *d, const struct sol_device_type *type); /* of an open device */

/* processor.c: types of the processors of target.c, in the arena. */
int processor_types_count(void);
const struct sol_device_type *processor_type(struct arena *a, int i);
const char *processor_here(void); /* the name of that of this machine */

/* Fills in what is known about the processor of this machine. */
sol_status processor_facts(const struct sol_host *host, struct sol_device_info *out_info, struct sol_failure *out_why);

/* far.c */
extern const struct sol_device_type far_type;

/* here.c: memory, streams and code of this process; processors and devices that are made of one begin with this table
 * and replace its name, count, info, and what they do differently. */
extern const struct sol_device_type here_type;
struct here {
    const struct sol_host *host;
    char *(*at)(void *user, sol_ptr p); /* where in this process an address of the device is, which is not 0 */
    void *user;
};
void here_unload(struct sol_code *code);
/* Executes commands. After a failure, out_why->ticket is the number of the command, from 0. */
sol_status here_submit(const struct here *h, int n, const struct sol_command *command, struct sol_failure *out_why);

extern const struct sol_device_type opencl_type; /* opencl.c */
extern const struct sol_device_type nvidia_type; /* nvidia.c */
extern const struct sol_device_type ve_type;     /* ve.c */

/* plugin.c: opens the plug-in at `path`. NULL: *out_why, in the arena, says why not. It is never closed, because its
 * types live as long as the process. */
typedef const struct sol_device_type *device_plugin_fn(int i);
device_plugin_fn *plugin_open(struct arena *a, const char *path, const char **out_why);
/* NULL: SOL can use this type; otherwise why not. */
const char *plugin_rejects(struct arena *a, const struct sol_device_type *type);

/* dev.c */
#define NS_PER_SECOND INT64_C(1000000000)
struct allocation { /* what a reference stands for */
    sol_ptr raw;    /* 0: not allocated, or freed */
    int64_t bytes;
    bool used;          /* the reference is taken */
    struct entry *free; /* the command that will free it, made with it, because freeing must not fail */
};
enum { POOL_CLASSES = 4 * 64 };

struct spare { /* memory that a pool keeps */
    struct spare *next;
    sol_ptr raw;
    int64_t bytes;
};
struct pool {
    struct spare *list[POOL_CLASSES]; /* by class of size (memory.c) */
};
struct dev {
    struct sol_ctx *ctx;
    struct driver driver;
    char name[80];
    int index, forks;          /* forks: the process that opened it */
    atomic_int_least64_t done; /* entries of all its queues */
    struct sol_device *device; /* NULL: it is not open; under the lock of the list */
    struct dev *next;
    struct lock opening;   /* for */
    struct sol_heap *heap; /* NULL: no framework has tensors here */

    struct lock lock; /* for all below */
    struct allocation *memory;
    int room;  /* references are indices; 0 is none */
    int *idle; /* references, first in, first out, so that a freed one is not soon in use again */
    int idle_first, idle_n;
    struct pool pool;
    int64_t bytes;
    int64_t reserved, most_reserved; /* bytes that the device gave: those in use and the pool */
    struct queue *queues;            /* idle */
    struct queue *hanging;           /* given back, but the device has not ended their commands */
    int nhanging;                    /* all such queues */
    struct dev_counts counts;
};
int64_t dev_limit(const struct dev *dev); /* devices_limit */
/* driver.c: functions of the device, within that limit; `out_why` then says so. Nothing is left behind. */
sol_status driver_open(struct dev *dev, struct sol_device **out_device, struct sol_failure *out_why);
void driver_close(struct dev *dev, struct sol_device *device);
sol_status driver_alloc(struct dev *dev, int64_t bytes, sol_ptr *out_raw, struct sol_failure *out_why);
void driver_free(struct dev *dev, sol_ptr raw);
sol_status driver_load(struct dev *dev, const struct sol_blob *blob, struct sol_code **out_code,
                       struct sol_failure *out_why);
void driver_unload(struct dev *dev, struct sol_code *code);
sol_status driver_find(struct dev *dev, struct sol_code *code, const char *function, void **out_kernel,
                       struct sol_failure *out_why);
sol_status driver_queue(struct dev *dev, void *foreign, struct sol_stream **out_stream, struct sol_failure *out_why);
void driver_unqueue(struct dev *dev, struct sol_stream *stream);
/* *out_late: the device has not accepted the commands in time, and uses the stream until dev_stuck says otherwise. */
sol_status driver_submit(struct dev *dev, struct sol_stream *stream, int n, const struct sol_command *command,
                         bool *out_late, struct sol_failure *out_why);
const char *dev_stuck(struct dev *dev); /* which call of its functions has not come back in time; NULL: none */
/* failure_place.c: `what` ("it") has not ended within the limit. Returns RUN. */
sol_status failure_hangs(struct sol_failure *f, const char *what, int64_t limit_ns);
/* failure_place.c: puts in front of a failure's text where it happened: the device, and the step or tensor of the
 * command (NULL: none). */
void failure_place(struct sol_failure *f, const char *device, const struct sol_command *c);
/* memory.c. `take` finds a reference; `back` gives memory a reference from a pool or the device; `drop` puts the
 * memory into a pool and frees the reference. `pool`: of a queue, whose commands may still use what is in it, so that
 * later commands of this queue alone may; NULL: that of the device. */
sol_status memory_take(struct dev *dev, int64_t bytes, sol_ptr *out_p);
sol_status memory_back(struct dev *dev, sol_ptr p, struct pool *pool, struct sol_failure *out_why);
void memory_drop(struct dev *dev, sol_ptr p, struct pool *pool);
void memory_join(struct dev *dev, struct pool *pool); /* no command uses what is in the pool of a queue */
/* dev_alloc for commands of the queue with this pool. */
sol_status memory_alloc(struct dev *dev, struct pool *pool, int64_t bytes, sol_ptr *out_p);
int64_t memory_bytes(struct dev *dev, sol_ptr p);
/* The command that will free it; 0 bytes, or NULL: `p` is no memory of the device. */
void memory_keep_free(struct dev *dev, sol_ptr p, struct entry *e);
struct entry *memory_take_free(struct dev *dev, sol_ptr p);
/* What the device calls the address of so many bytes; 0: of a place, perhaps outside of the memory, from which kernels
 * count. Errors: INVALID (freed, never allocated, outside of its memory). */
sol_status memory_resolve(struct dev *dev, sol_ptr p, int64_t bytes, sol_ptr *out_raw, struct sol_failure *out_why);
void memory_empty_pool(struct dev *dev);
void memory_free_all(struct dev *dev);
/* heap.c */
void heap_mend(struct dev *dev); /* queue_mend of the heap's queue, if it hangs */
/* The context ends: waits for the heap's queue, and gives it back. */
void heap_end(struct dev *dev);
void heap_free(struct dev *dev);
/* queue.c */
void queue_destroy(struct queue *q);
struct queue *queue_next(struct queue *q); /* of a list */
bool queue_hangs(struct queue *q);
/* If the device has ended a hang that a wait has reported, the queue works again. */
void queue_mend(struct queue *q);
/* Goes on in a stream of a framework; NULL: in one of its own. The caller has taken the queue. */
sol_status queue_follow(struct queue *q, void *foreign);
void queue_retire(struct queue *q);                /* ends what the device has done by now, without waiting */
struct pool *queue_pool(struct queue *q);          /* memory that its later commands may use */
int64_t queue_under_way(struct queue *q);          /* entries that are not known to be done */
int64_t queue_mark(struct queue *q);               /* of what was appended so far */
bool queue_reached(struct queue *q, int64_t mark); /* that is done */
/* Fails while the device has not ended what hangs. Afterwards its queues are used again. */
sol_status queue_check_hanging(struct dev *dev);
void queue_abandon(struct queue *q); /* its context ends: what the device may still use is never freed */

#endif
