/* The parts of a double of NVIDIA's driver and compiler, for tests on machines without a graphics card: memory.c has
 * memory that only commands can access, items.c runs groups of work items, driver.c are the functions of libcuda and
 * compiler.c those of NVRTC, which has g++ compile the text that NVRTC gets (host.h is in front of it); blas.c are
 * those of cuBLAS, dnn.c those of cuDNN.
 *
 * The environment variable SOL_CUDA_DOUBLE has settings: devices=N (1), cc=N (90), memory=BYTES (4000000000), delay=N:
 * most microseconds that a command waits, fail_at=N: command N is rejected, break_at=N: command N breaks the context,
 * as a kernel that accesses foreign memory does, hang_at=N and hang_ms=N: command N takes so long, seed=N, compile=0:
 * code is not compiled, and its kernels do nothing, pageable=1: reads to memory that is not page-locked wait, as the
 * driver's do, dnn_opens=0: there is no handle of cuDNN, dnn_fails=N: cuDNN's functions for convolutions return N,
 * dnn_bytes=N: of its workspaces. */
#ifndef NVIDIA_H
#define NVIDIA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GROUP_BYTES 49152
#define MOST_ITEMS 1024
#define MOST_PARAMETERS 256
#define CODE_MAGIC "SOLCUBIN" /* in front of a shared object, with its size */

long setting(const char *name, long otherwise);

struct place {
    unsigned x, y, z;
};
struct group { /* host.h */
    struct place item, items, group, groups;
    long span;
    void (*barrier)(void);
};
struct kernel {
    struct kernel *next;
    void (*run)(struct group *, void **parameters);
    char *(*shared)(void);
    int n, size[MOST_PARAMETERS]; /* of parameters */
};

/* memory.c: addresses that nobody can access; what is at p lies at p + memory_span(). */
int memory_alloc(uint64_t *out, size_t bytes);
int memory_free(uint64_t p);
bool memory_has(uint64_t p, size_t bytes);
long memory_span(void);
size_t memory_there(void);

/* driver.c: appends a call with a copy of its facts to a stream. */
struct stream;
int stream_call(struct stream *s, void (*call)(const void *facts), const void *facts, size_t bytes);

/* items.c: computes all groups of a launch, in an order that the number draws. false: a barrier that some items of a
 * group do not reach. */
bool items_run(const struct kernel *k, struct group g, unsigned shared_bytes, void **parameters, unsigned draw);

#endif
