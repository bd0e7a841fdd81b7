/* The sizes of a call of a network with dimensions that vary: checks those of its dimensions, lets the module compute
 * the others, and places the blocks of its memory. It depends on libc only and allocates nothing. */
#include "rt/rt.h"

static int most_blocks(const struct sol_module *m)
{
    const int f = m->forward.nblock, b = m->backward.nblock;
    return f > b ? f : b;
}

size_t rt_sizes_bytes(const struct sol_module *m)
{
    const int n = most_blocks(m);
    return (size_t)n * sizeof(struct rt_block) + rt_offsets_bytes(n, 0);
}

static enum rt_fit check_dims(const struct sol_module *m, const int64_t *size, int32_t *out_which)
{
    for (int i = 0; i < m->ndim; i++) {
        *out_which = i;
        if (size[i] < m->dim[i].min || size[i] > m->dim[i].max) return RT_LIMITS;
        if (size[i] % m->dim[i].multiple) return RT_MULTIPLE;
    }
    return RT_FITS;
}

static void place_blocks(const struct sol_program *p, int64_t *size, void *memory)
{
    struct rt_block *block = memory;
    if (!p->nblock) return;
    for (int i = 0; i < p->nblock; i++)
        block[i] = (struct rt_block){rt_quantity(p->block[i].bytes, size), 0, p->block[i].first, p->block[i].last};
    const struct rt_layout layout = {.block = block, .n = p->nblock, .memory = block + p->nblock};
    const int64_t end = rt_offsets(&layout);
    for (int i = 0; i < p->nblock; i++) size[p->block[i].offset] = block[i].offset;
    size[p->workspace_bytes - SOL_SIZE] = end;
}

enum rt_fit rt_sizes(const struct sol_module *m, int64_t *size, void *memory, int32_t *out_which)
{
    const enum rt_fit fit = check_dims(m, size, out_which);
    if (fit) return fit;
    if (!m->sizes(size)) return RT_TOO_LARGE;
    for (*out_which = 0; *out_which < m->ncheck; ++*out_which)
        if (rt_quantity(m->check[*out_which].size, size) < 0) return RT_NEEDS;
    place_blocks(&m->forward, size, memory);
    place_blocks(&m->backward, size, memory);
    return RT_FITS;
}
