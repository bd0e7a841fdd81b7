/* The table of reductions from reduce.def. The number of a row is its enum reduce_kind. */
#include <string.h>

#include "hlir/loops.h"

static const struct reduce_def rows[] = {
#define R(kind, name, nout, nstate, types, init, step, merge, finish, empty, doc) \
    [kind] = {name, nout, nstate, types, init, step, merge, finish, empty, doc},
#include "hlir/reduce.def"
#undef R
};

int reduce_row(const char *name)
{
    for (int i = 0; i < COUNT_OF(rows); ++i)
        if (!strcmp(rows[i].name, name)) return i;
    return -1;
}

const struct reduce_def *reduce_at(int row)
{
    return row >= 0 && row < COUNT_OF(rows) ? &rows[row] : NULL;
}
