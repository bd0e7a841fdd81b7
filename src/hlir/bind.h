/* What binding a row keeps while it works. Private to bind.c, lower.c and ranks.c. */
#ifndef SOL_BIND_H
#define SOL_BIND_H

#include <stdio.h>

#include "hlir/opdef.h"

struct bind_table_part { /* one component of a table: a tensor, or an affine value to put in place of reads */
    int tensor;          /* + 1; 0: none */
    struct loops *loops;
    int32_t value;
    uint8_t ivar[SOL_MAX_DIMS]; /* of `loops`, + 1, by index; 0: the size is 1 */
};
struct bind_table {
    bool group;
    int ncomp;
    struct bind_table_part part[SOL_MAX_DIMS];
};
struct bind {
    struct arena *arena;
    const struct opdef *row;
    int nin;
    const struct opdef_input *in;
    const struct attrs *attrs;
    struct loops *l;
    sol_status status;
    /* by index variable (of the base index variable): */
    int rank[OPDEF_MAX_IVARS];
    bool group[OPDEF_MAX_IVARS], sized[OPDEF_MAX_IVARS];
    int64_t size[OPDEF_MAX_IVARS][SOL_MAX_DIMS];
    uint8_t (*ivar)[SOL_MAX_DIMS]; /* by index variable and component: index variable of `l`, + 1; 0: not made yet */
    int *tensor;                   /* by tensor of the row: tensor of `l`, -1: missing */
    struct bind_table *table;      /* by tensor of the row */
    const int32_t *args;           /* ex_expand: nodes in place of attributes */
    int width;                     /* components of the index, comparison or rule at work; 0: none */
    bool no_output;                /* the statement writes nothing: a dimension has the size 0 */
};

/* Records "row: what (inputs: shapes)" once. */
sol_status bind_fail(struct bind *b, const char *format, ...) PRINTF_LIKE(2, 3);
void bind_shapes(const struct bind *b, struct text *out);
int bind_length(struct bind *b, int attr);
int bind_input_rank(struct bind *b, int tensor);
const struct opdef_input *bind_input(const struct bind *b, int tensor); /* of a tensor of the row that is an input */
enum sol_dtype bind_float_type(const struct bind *b);
/* Items of a list of the row. */
static inline int ex_count(const struct opdef *r, int32_t first)
{
    int n = 0;
    for (; first; first = r->ex.at[first].next) ++n;
    return n;
}

/* lower.c */
const struct opdef_ivar *bind_ivar(const struct bind *b, int ivar);
int bind_base(const struct bind *b, int ivar); /* of P' it is P */
int bind_rank(const struct bind *b, int ivar);
int64_t bind_size(struct bind *b, int ivar, int component);
int bind_one(struct bind *b, int ivar, int component);           /* the component meant by it; -1: an error */
int32_t bind_component(struct bind *b, int ivar, int component); /* its value: an index variable of the loops, or 0 */
uint64_t bind_exposed(const struct opdef *r, int32_t node);      /* index variables whose groups an index runs over */
int bind_components(struct bind *b, uint64_t ivars);             /* how many of them; -1: no group, it is one */
int32_t bind_lower(struct bind *b, int32_t node, int component); /* component -1: none */
/* The indices of an access to a tensor with these index variables; returns how many there are, -1: an error. */
int bind_indices(struct bind *b, const struct opdef_tensor *t, int32_t first, int32_t *out);

/* ranks.c: fills `rank` and `group` */
sol_status bind_ranks(struct bind *b);

#endif
