/* Commands of a stream that a driver has got, oldest first, and how the stream has failed. A driver's events are in the
 * places of commands. They stay there for who has the place next, unless the device type takes them out. */
#ifndef SOL_PENDING_H
#define SOL_PENDING_H

#include <stdbool.h>

#include "sol/device.h"

struct pending { /* all commands from the one behind the last of these */
    int64_t ticket, *ns;
    void *begin, *end;        /* events; NULL: none. begin: in front of the command whose time is asked for */
    const char *first, *last; /* their labels */
};
struct pendings { /* begins as 0 */
    struct pending *at;
    int first, n, room;
    int64_t ticket, done; /* of the last command, and of the last one that is done */
    sol_status status;    /* of a command that failed; SOL_OK: none */
    struct sol_failure failed;
};
struct pending *pendings_place(struct pendings *p); /* for the next; NULL: out of memory */
/* The commands up to the ticket, with the events of that place. */
void pendings_add(struct pendings *p, int64_t *ns, const char *first, const char *last);
const struct pending *pendings_last(const struct pendings *p); /* NULL: none is pending */
/* The failure of the stream, to be filled in, as is the status. NULL: it has failed before. */
struct sol_failure *pendings_fail(struct pendings *p, int64_t ticket);
/* What `poll` of a device does, by a function that ends what is done, and waits for it if `wait`; false: it is not
 * done. */
struct pendings_by {
    bool (*ended)(void *user, struct pending *p, int wait);
    void *user;
    int wait;
};
sol_status pendings_poll(struct pendings *p, int64_t ticket, const struct pendings_by *by, int *out_done,
                         struct sol_failure *out_why);
void pendings_free(struct pendings *p);

#endif
