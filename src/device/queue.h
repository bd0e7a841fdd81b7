/* What the two halves of a queue share: queue.c, where callers append and wait, and drain.c, which executes. For these
 * files only. */
#ifndef SOL_DEVICE_QUEUE_H
#define SOL_DEVICE_QUEUE_H

#include "device/entry.h"

struct queue {
    struct dev *dev;
    struct queue *next; /* while idle */
    bool threaded;
    pthread_t thread;
    int64_t limit_ns; /* of a command; 0: none. It changes only while nothing is under way */

    int64_t waited; /* what was appended at the last wait; of the thread that has taken the queue */

    struct lock lock;            /* for all below */
    struct entry *first, **last; /* appended, and not taken by drain yet */
    bool flushed;                /* the thread may take them: not before, so that neighbours are packed */
    int64_t added, done;         /* entries */
    bool stop, failed;
    struct sol_failure failure; /* if failed: the first one, as people read it */
    bool hung;                  /* failed because the device has not ended a command, and it still has not */
    bool told;                  /* a wait has reported that */
    bool abandoned;             /* the context has ended: its thread ends, and frees nothing */
    const struct entry *now;    /* what the thread waits for */

    /* Of the thread that drains alone: */
    struct sol_stream *stream;
    void *foreign;                   /* the framework's stream that it is; NULL: SOL's own */
    int64_t ticket;                  /* of the command that was submitted last */
    struct entry *sent, **sent_last; /* submitted, not known to be done; oldest first */
    int64_t asked;                   /* of a command that was submitted, about which retire asks next; 0: none */
    struct pool pool;                /* memory that was freed and that those may use */
};

/* drain.c */
bool queue_failed(struct queue *q);
struct entry *queue_take_list(struct queue *q); /* what was appended. The caller holds the lock */
void queue_drain(struct queue *q, struct entry *list);
void *queue_work(void *q);                   /* the thread of a queue: drains until q->stop */
void queue_finish(struct queue *q);          /* waits until the device has done what was submitted */
void queue_complete_sent(struct queue *q);   /* everything that was submitted is done, or will not be */
void queue_wait_for_thread(struct queue *q); /* until all is done, or the queue hangs. The caller holds the lock */

#endif
