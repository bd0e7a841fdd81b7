/* Small reads, such as what kernels report, by way of memory from which a driver copies without waiting (page-locked
 * memory). A stream has SMALL_READS slots; what they have got is delivered when their ticket is done. */
#ifndef SOL_SMALL_READS_H
#define SOL_SMALL_READS_H

#include "sol/device.h"

enum { SMALL_READS = 1024, SMALL_READ_BYTES = 64 };
struct small_reads {
    char *slots; /* SMALL_READS * SMALL_READ_BYTES, of the device type; NULL: none */
    struct small_read {
        int64_t ticket;
        void *host;
        size_t bytes;
    } read[SMALL_READS];
    int64_t n, done; /* so far; read i has slot i % SMALL_READS */
};
/* Is there a slot for this command? There may be none, for it is no read, is large, or all slots are in use. */
bool small_reads_take(const struct small_reads *s, const struct sol_command *c);
void *small_reads_slot(const struct small_reads *s); /* where the next one reads to */
void small_reads_add(struct small_reads *s, const struct sol_command *c, int64_t ticket); /* it is under way */
void small_reads_deliver(struct small_reads *s, int64_t ticket); /* all up to this ticket are done */

#endif
