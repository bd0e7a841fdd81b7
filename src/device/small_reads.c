#include <string.h>

#include "device/inside.h"
#include "device/small_reads.h"

bool small_reads_take(const struct small_reads *s, const struct sol_command *c)
{
    return c->kind == SOL_COMMAND_READ && c->bytes <= SMALL_READ_BYTES && s->n - s->done < SMALL_READS;
}

void *small_reads_slot(const struct small_reads *s)
{
    return s->slots + s->n % SMALL_READS * SMALL_READ_BYTES;
}

void small_reads_add(struct small_reads *s, const struct sol_command *c, int64_t ticket)
{
    s->read[s->n++ % SMALL_READS] = (struct small_read){ticket, c->host, (size_t)c->bytes};
}

void small_reads_deliver(struct small_reads *s, int64_t ticket)
{
    for (; s->done < s->n && s->read[s->done % SMALL_READS].ticket <= ticket; s->done++) {
        const int64_t i = s->done % SMALL_READS;
        memcpy(s->read[i].host, s->slots + i * SMALL_READ_BYTES, s->read[i].bytes);
    }
}
