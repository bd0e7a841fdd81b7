/* Commands that may not be done yet: a ring of places, which grows when all are in use. */
#include "device/pending.h"

#include <stdlib.h>

#include "device/inside.h"

struct pending *pendings_place(struct pendings *p)
{
    if (p->n == p->room) {
        const int room = MAX(64, 2 * p->room);
        struct pending *more = calloc((size_t)room, sizeof *more);
        if (!more) return NULL;
        for (int i = 0; i < p->n; i++) more[i] = p->at[(p->first + i) % p->room];
        free(p->at);
        p->at = more;
        p->first = 0;
        p->room = room;
    }
    return &p->at[(p->first + p->n) % p->room];
}

void pendings_add(struct pendings *p, int64_t *ns, const char *first, const char *last)
{
    struct pending *c = &p->at[(p->first + p->n++) % p->room];
    c->ticket = p->ticket;
    c->ns = ns;
    c->first = first;
    c->last = last;
}

const struct pending *pendings_last(const struct pendings *p)
{
    return p->n ? &p->at[(p->first + p->n - 1) % p->room] : NULL;
}

struct sol_failure *pendings_fail(struct pendings *p, int64_t ticket)
{
    if (p->status) return NULL;
    p->failed = failure_new();
    p->failed.ticket = ticket;
    return &p->failed;
}

sol_status pendings_poll(struct pendings *p, int64_t ticket, const struct pendings_by *by, int *out_done,
                         struct sol_failure *out_why)
{
    while (p->n && p->done < ticket) {
        struct pending *c = &p->at[p->first];
        if (!by->ended(by->user, c, by->wait)) break;
        p->done = c->ticket;
        p->first = (p->first + 1) % p->room;
        p->n--;
    }
    *out_done = p->done >= ticket;
    if (p->status) *out_why = p->failed;
    return p->status;
}

void pendings_free(struct pendings *p)
{
    free(p->at);
}
