/* Sizes that vary as quantities of a table (include/sol/module.h): each form gets a number among the sizes of a call,
 * and a C function computes them. */
#ifndef SOL_QUANTITIES_H
#define SOL_QUANTITIES_H

#include "base/base.h"

struct quantities {
    struct arena *arena;
    int ndim, first;   /* dimensions; the number of the first form among the sizes of a call */
    struct map *known; /* by form: its number among `forms`, and 1 */
    VECTOR(int64_t) forms;
};

struct quantities quantities_new(struct arena *a, int ndim, int first);
/* A size as C text: a number, or "SOL_SIZE + 7". Quantities of module.h are quantities already. */
const char *quantity_text(struct quantities *q, int64_t size);
/* Prints the function `name`: struct sol_module's `sizes`. It rejects sizes that overflow, or that are larger than any
 * tensor may be, before they are used. */
void quantities_put(const struct quantities *q, struct text *t, const char *name);

#endif
