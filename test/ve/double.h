/* The parts of the double of NEC's AVEO (libveo). Settings are numbers in the environment variable SOL_VE_DOUBLE, such
 * as "memory=64000000,delay=20,fail_at=9":
 *
 * cores=8, memory=4000000000 bytes; delay=0: the most microseconds that a request waits; seed=1 of these;
 * fail_at=0: the request with this number fails; hang_at=0: it takes hang_ms=3600000 milliseconds */
#ifndef VE_DOUBLE_H
#define VE_DOUBLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))

long setting(const char *name, long otherwise);

/* memory.c: addresses that nobody can access; the memory itself is elsewhere, and only requests find it. */
bool memory_begin(void);
uint64_t memory_take(size_t bytes); /* 0: there is none */
void memory_give(uint64_t at);
char *memory_open(uint64_t at, size_t bytes); /* NULL: not that many bytes of one block */
/* A function that libveda.vso has on the device; NULL: the double has not got it. */
void *memory_function(const char *name);

#endif
