/* All sizes of a call of a network with dimensions that vary: what follows from the dimensions (dims.c), and the places
 * of the blocks of its memory. It depends on libc only and allocates nothing. */
#include "rt/rt.h"

static size_t placing_bytes(const struct sol_program *p, int nsaved)
{
    return (size_t)(p->nblock + nsaved) * sizeof(struct rt_block) + rt_offsets_bytes(p->nblock, nsaved);
}

size_t rt_sizes_bytes(const struct sol_module *m)
{
    const size_t f = placing_bytes(&m->forward, m->nsaved), b = placing_bytes(&m->backward, m->nsaved);
    return f > b ? f : b;
}

/* Blocks behind the room of saved tensors are in the workspace. */
static void place_blocks(const struct sol_module *m, const struct sol_program *p, int64_t *size, void *memory)
{
    struct rt_block *block = memory;
    const int n = p->nblock + m->nsaved;
    if (!p->nblock) return;
    for (int i = 0; i < n; i++)
        block[i] = (struct rt_block){.bytes = rt_quantity(p->block[i].bytes, size),
                                     .offset = i < p->nblock ? 0 : rt_quantity(p->block[i].offset, size),
                                     .first = p->block[i].first,
                                     .last = p->block[i].last};
    const struct rt_layout layout = {.block = block,
                                     .given = block + p->nblock,
                                     .n = p->nblock,
                                     .ngiven = m->nsaved,
                                     .room = m->nsaved ? rt_quantity(m->saved_bytes, size) : 0,
                                     .memory = block + n,
                                     .hurry = 1};
    const int64_t end = rt_offsets(&layout);
    for (int i = 0; i < p->nblock; i++) size[p->block[i].offset - SOL_SIZE] = block[i].offset;
    size[p->workspace_bytes - SOL_SIZE] = end - layout.room;
}

enum rt_fit rt_sizes(const struct sol_module *m, int64_t *size, void *memory, int32_t *out_which)
{
    const enum rt_fit fit = rt_dims(m, size, out_which);
    if (fit) return fit;
    place_blocks(m, &m->forward, size, memory);
    place_blocks(m, &m->backward, size, memory);
    return RT_FITS;
}
