/* Shared by the headers of deployed networks with dimensions that vary. */
#ifndef SOL_EXT_DIM_H
#define SOL_EXT_DIM_H

#include <stdint.h>

struct sol_ext_dim {
    const char *name;
    int64_t example, min, max, multiple; /* max 0: there is none; sizes are multiples of `multiple` */
};

#endif
