/* Streams: order, tickets, what submit copies, poll, and several at a time. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"

/* -- lanes */

bool runs_in_order(const struct bench *b)
{
    return b->type->features & SOL_DEVICE_SYNCHRONOUS;
}

sol_status lane_open(struct lane *l, struct bench *b, struct sol_failure *out_why)
{
    *l = (struct lane){.b = b};
    return b->type->queue(b->device, NULL, &l->stream, out_why);
}

void lane_close(struct lane *l)
{
    l->b->type->unqueue(l->stream);
}

sol_status lane_submit(struct lane *l, int n, const struct sol_command *c, struct sol_failure *out_why)
{
    *out_why = failure_new();
    return l->b->type->submit(l->stream, n, c, &l->ticket, out_why);
}

sol_status lane_wait(struct lane *l, struct sol_failure *out_why)
{
    int done = 0;
    *out_why = failure_new();
    if (runs_in_order(l->b)) return SOL_OK;
    const sol_status status = l->b->type->poll(l->stream, l->ticket, 1, &done, out_why);
    if (!status && !done) return failure_set(out_why, SOL_ERR_RUN, "poll with wait 1 says that it is not done");
    return status;
}

sol_status lane_do(struct lane *l, int n, const struct sol_command *c, struct sol_failure *out_why)
{
    const sol_status status = lane_submit(l, n, c, out_why);
    return status ? status : lane_wait(l, out_why);
}

bool says_why(const struct sol_failure *f)
{
    const char *end = memchr(f->text, 0, sizeof f->text);
    return end && end > f->text && end[-1] != '\n';
}

/* -- order */

enum { BYTES = 5003, LINKS = 40 };

struct chain {
    struct lane lane;
    sol_ptr raw[2];
    unsigned char data[LINKS][BYTES], got[LINKS][BYTES];
};

static enum verdict chain_open(struct bench *b, struct chain **out_c)
{
    struct sol_failure why = failure_new();
    struct chain *c = calloc(1, sizeof *c);
    sol_status status = lane_open(&c->lane, b, &why);
    for (int i = 0; i < 2 && !status; i++) status = b->type->alloc(b->device, BYTES, &c->raw[i], &why);
    WANT(!status, "a stream with memory", "%s", why.text);
    for (int i = 0; i < LINKS; i++) pattern(c->data[i], BYTES, (unsigned)i);
    *out_c = c;
    return GOOD;
}

static void chain_close(struct bench *b, struct chain *c)
{
    lane_close(&c->lane);
    for (int i = 0; i < 2; i++) b->type->free(b->device, c->raw[i]);
    free(c);
}

/* Each link needs the one before to be done, and the next must not begin before it is. */
static void chain_link(struct chain *c, int i, struct sol_command out[4])
{
    out[0] = write_of(c->raw[0], c->data[i], BYTES);
    out[1] = copy_of(c->raw[1], c->raw[0], BYTES);
    out[2] = fill_of(c->raw[0], 0, BYTES);
    out[3] = read_of(c->raw[1], c->got[i], BYTES);
}

static enum verdict chain_is_right(struct bench *b, const struct chain *c)
{
    for (int i = 0; i < LINKS; i++)
        WANT(!memcmp(c->data[i], c->got[i], BYTES), "commands executed in their order",
             "what was read in round %d is not what was written in front of it", i);
    return GOOD;
}

static enum verdict order_within_submit(struct bench *b)
{
    struct chain *c;
    struct sol_command all[LINKS * 4];
    struct sol_failure why;
    TRY(chain_open(b, &c));
    for (int i = 0; i < LINKS; i++) chain_link(c, i, &all[i * 4]);
    const sol_status status = lane_do(&c->lane, LINKS * 4, all, &why);
    WANT(!status, "success", "%s", why.text);
    WANT(c->lane.ticket == LINKS * 4, "ticket 160 after 160 commands", "%lld", (long long)c->lane.ticket);
    TRY(chain_is_right(b, c));
    chain_close(b, c);
    return GOOD;
}

static enum verdict order_between_submits(struct bench *b)
{
    struct chain *c;
    struct sol_failure why;
    TRY(chain_open(b, &c));
    for (int i = 0; i < LINKS; i++) {
        struct sol_command link[4];
        chain_link(c, i, link);
        for (int k = 0; k < 4; k++) {
            const sol_status status = lane_submit(&c->lane, 1, &link[k], &why);
            WANT(!status, "success", "%s", why.text);
            WANT(c->lane.ticket == i * 4 + k + 1, "tickets that count the commands of the stream from 1",
                 "%lld for command %d", (long long)c->lane.ticket, i * 4 + k + 1);
            memset(&link[k], 0xff, sizeof link[k]); /* submit has copied it */
        }
    }
    const sol_status status = lane_wait(&c->lane, &why);
    WANT(!status, "success", "%s", why.text);
    TRY(chain_is_right(b, c));
    chain_close(b, c);
    return GOOD;
}

static enum verdict times_are_given(struct bench *b)
{
    struct chain *c;
    struct sol_failure why;
    int64_t ns[4] = {-1, -1, -1, -1};
    TRY(chain_open(b, &c));
    struct sol_command link[4];
    chain_link(c, 0, link);
    for (int k = 0; k < 4; k++) link[k].ns = &ns[k];
    const sol_status status = lane_do(&c->lane, 4, link, &why);
    WANT(!status, "success", "%s", why.text);
    for (int k = 0; k < 4; k++)
        WANT(ns[k] >= 0 && ns[k] < INT64_C(600000000000), "the device's time of each command in its `ns`",
             "%lld for command %d", (long long)ns[k], k + 1);
    chain_close(b, c);
    return GOOD;
}

static enum verdict poll_tells(struct bench *b)
{
    struct chain *c;
    struct sol_failure why = failure_new();
    struct sol_command link[4];
    if (runs_in_order(b)) return skip(b, "SYNCHRONOUS: submit returns when commands are done");
    TRY(chain_open(b, &c));
    for (int i = 0; i < LINKS; i++) {
        chain_link(c, i, link);
        const sol_status status = lane_submit(&c->lane, 4, link, &why);
        WANT(!status, "success", "%s", why.text);
    }
    int done = 0;
    for (int ms = 0; !done && ms < 10000; ms++) {
        const sol_status status = b->type->poll(c->lane.stream, c->lane.ticket, 0, &done, &why);
        WANT(!status, "success", "%s", why.text);
        if (!done) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    WANT(done, "done within 10 s, asked with wait 0 (submit alone must start the device)", "not done");
    TRY(chain_is_right(b, c));
    done = 0;
    const sol_status status = b->type->poll(c->lane.stream, 1, 0, &done, &why);
    WANT(!status && done, "the first ticket done, too", "status %d, done %d", status, done);
    chain_close(b, c);
    return GOOD;
}

/* -- several */

struct worker {
    struct bench *b;
    enum verdict verdict;
};

static void *run_chain(void *user)
{
    struct worker *w = user;
    w->verdict = order_between_submits(w->b);
    return NULL;
}

static enum verdict streams_beside_each_other(struct bench *b)
{
    enum { STREAMS = 6 };
    struct worker w[STREAMS];
    pthread_t thread[STREAMS];
    enum verdict verdict = GOOD;
    for (int i = 0; i < STREAMS; i++) {
        w[i] = (struct worker){.b = b};
        WANT(!pthread_create(&thread[i], NULL, run_chain, &w[i]), "a thread", "none");
    }
    for (int i = 0; i < STREAMS; i++) {
        pthread_join(thread[i], NULL);
        if (w[i].verdict) verdict = w[i].verdict;
    }
    return verdict;
}

/* What one stream wrote, and waited for, is there for another. */
static enum verdict streams_see_memory(struct bench *b)
{
    struct chain *c;
    struct lane other;
    struct sol_failure why = failure_new();
    TRY(chain_open(b, &c));
    sol_status status = lane_open(&other, b, &why);
    WANT(!status, "a second stream", "%s", why.text);
    for (int i = 0; i < LINKS && !status; i++) {
        const struct sol_command w = write_of(c->raw[0], c->data[i], BYTES), r = read_of(c->raw[0], c->got[i], BYTES);
        status = lane_do(&c->lane, 1, &w, &why);
        if (!status) status = lane_do(&other, 1, &r, &why);
    }
    WANT(!status, "success", "%s", why.text);
    TRY(chain_is_right(b, c));
    lane_close(&other);
    chain_close(b, c);
    return GOOD;
}

static enum verdict devices_are_opened_twice(struct bench *b)
{
    struct bench second = *b;
    struct sol_failure why = failure_new();
    const sol_status status = b->type->open(b->type, b->host, b->index, &second.device, &why);
    WANT(!status, "a second open, as of another context of SOL", "%s", why.text);
    enum verdict verdict = order_within_submit(&second);
    if (verdict) return wrong(b, second.expected, "on the second open: %s", second.got);
    verdict = order_within_submit(b);
    b->type->close(second.device);
    return verdict ? verdict : order_within_submit(b);
}

const struct check stream_checks[] = {
    {"open", "a device can be opened more than once", devices_are_opened_twice},
    {"submit", "commands of one submit run in order", order_within_submit},
    {"submit", "commands of many submits run in order; they are copied, and tickets count them from 1",
     order_between_submits},
    {"submit", "a command whose `ns` is set receives the device's time", times_are_given},
    {"poll", "without waiting it says in the end that everything up to a ticket is done", poll_tells},
    {"queue", "several threads use a stream each", streams_beside_each_other},
    {"queue", "a stream sees what another wrote and waited for", streams_see_memory},
    {0},
};
