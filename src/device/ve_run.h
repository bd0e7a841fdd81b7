/* A run of steps as the host writes it into memory of the Vector Engine, where ve_main.c reads it. Both have the same
 * byte order and alignment. */
#ifndef SOL_VE_RUN_H
#define SOL_VE_RUN_H

#include <stdint.h>

struct ve_run {
    int32_t error, step; /* receives what a kernel reports, SOL_KERNEL_*, and in which of the steps */
    int32_t program, first, count, threads, nbase, nsize, nseed, timed;
    uint64_t scratch; /* virtual, as the addresses of buffers; 0: none */
    /* Behind it: int64_t step_ns[timed ? count : 0], which receives times; uint64_t base[nbase]; int64_t sizes[nsize];
     * uint64_t seeds[nseed]; unsigned char only[count], 0 skips a step. */
};

#endif
