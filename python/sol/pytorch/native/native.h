/* What native.cpp calls: devices, as a table of functions that the extension sol._core fills in. Functions that can
 * fail return NULL, or a message that is valid until this thread's next call. */
#ifndef SOL_NATIVE_H
#define SOL_NATIVE_H

#include <stdint.h>

struct sol_native_run { /* of a network */
    void *net;          /* a Net of Python, which has run before */
    int device, threads;
    int nin, nout;
    const void **in; /* on the device; not NULL, even if a tensor is empty */
    void **out;
    const int64_t *in_bytes, *out_bytes, *dims; /* from the first byte of each tensor to its last; sizes that vary */
};

struct sol_native {
    uint32_t size;
    int devices;                                                                     /* they are numbered from 0 */
    const char *(*alloc)(int device, int64_t bytes, uint64_t *out_p, int *out_full); /* full: memory ran out */
    void (*free)(int device, uint64_t p);
    const char *(*write)(int device, uint64_t to, const void *data, int64_t bytes);
    const char *(*read)(int device, void *host, uint64_t from, int64_t bytes); /* waits */
    const char *(*copy)(int device, uint64_t to, uint64_t from, int64_t bytes);
    const char *(*fill)(int device, uint64_t to, int value, int64_t bytes);
    const char *(*wait)(int device);
    const char *(*run)(const struct sol_native_run *);
    /* In bytes: what SOL has of the device, the most so far (which `reset` forgets), and all of it (0: unknown). */
    const char *(*memory)(int device, int reset, int64_t *out_reserved, int64_t *out_most, int64_t *out_total);
    const char *(*trim)(int device); /* waits, and gives back what is not in use */
    /* Events (sol_heap_record). `record` frees what was in *event. */
    const char *(*record)(int device, void **event);
    const char *(*after)(int device, void *event);
    const char *(*event_wait)(void *event);
    int (*event_happened)(void *event);
    int (*idle)(int device);                        /* is everything done that it was asked for? */
    int64_t (*event_between)(void *from, void *to); /* ns */
    void (*event_free)(void *event);
    /* PyTorch's processor kernels run an operator that the device lacks. NULL: they may. */
    const char *(*fallback)(const char *op);
};

#endif
