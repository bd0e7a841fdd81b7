/* Sequences of commands that a stream gets again and again, such as the kernels of a network's call: what a driver can
 * make one object of (a graph of CUDA), so that a call is one launch. */
#ifndef SOL_SEQUENCE_H
#define SOL_SEQUENCE_H

#include "sol/device.h"

struct sequence_maker {
    void *user;
    /* Makes an object of n launches, fills and copies. NULL: the driver cannot. */
    void *(*make)(void *user, int n, const struct sol_command *c);
    void (*drop)(void *user, void *made);
};
struct sequences; /* of a stream: it keeps the texts of the last ones, and makes an object of one that comes again */
struct sequences *sequences_make(const struct sequence_maker *by); /* NULL: out of memory, and nothing is found */
void sequences_free(struct sequences *s);
void sequences_begin(struct sequences *s); /* a submit begins */
/* The object of the first *out_n commands; NULL: the first is to be executed alone. unloads: how often the device has
 * unloaded code. */
void *sequences_find(struct sequences *s, int64_t unloads, int n, const struct sol_command *c, int *out_n);

#endif
