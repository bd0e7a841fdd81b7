/* The state of binding an operator definition. Private to bind.c, lower.c and ranks.c. */
#ifndef SOL_BIND_H
#define SOL_BIND_H

#include <stdio.h>

#include "hlir/opdef.h"

/* One component of a table: a tensor, or a value that replaces reads because it is affine or sizes in it vary. */
struct bind_table_part {
    int tensor; /* number + 1; 0: none */
    struct loops *loops;
    int32_t value;
    uint8_t ivar[SOL_MAX_DIMS]; /* by index: index variable of `loops` + 1; 0: the size is 1 */
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
    struct loops *loops;
    sol_status status;
    /* by index variable (without prime): */
    int rank[OPDEF_MAX_IVARS];
    bool group[OPDEF_MAX_IVARS], sized[OPDEF_MAX_IVARS];
    int64_t size[OPDEF_MAX_IVARS][SOL_MAX_DIMS];
    uint8_t (
        *ivar)[SOL_MAX_DIMS]; /* by index variable and component: index variable of `loops` + 1; 0: not created yet */
    int *tensor;              /* by tensor of the definition: tensor of `loops`, -1: missing */
    struct bind_table *table; /* by tensor of the definition */
    const int32_t *args;      /* ex_expand: nodes that replace attributes */
    int width;                /* components of the current index, comparison or rule; 0: none */
    bool no_output;           /* the statement writes nothing, because a dimension has size 0 */
};

/* Reports "definition: what (inputs: shapes)"; only the first report counts. */
sol_status bind_fail(struct bind *b, const char *format, ...) PRINTF_LIKE(2, 3);
void bind_shapes(const struct bind *b, struct text *out);
int bind_length(struct bind *b, int attr);
int bind_input_rank(struct bind *b, int tensor);
const struct opdef_input *bind_input(const struct bind *b, int tensor); /* of a tensor that is an input */
enum sol_dtype bind_float_type(const struct bind *b);
/* The length of a list of the definition. */
static inline int ex_count(const struct opdef *r, int32_t first)
{
    int n = 0;
    for (; first; first = r->ex.at[first].next) ++n;
    return n;
}

/* lower.c */
const struct opdef_ivar *bind_ivar(const struct bind *b, int ivar);
int bind_base(const struct bind *b, int ivar); /* P' becomes P */
int bind_rank(const struct bind *b, int ivar);
int64_t bind_size(struct bind *b, int ivar, int component);
int bind_one(struct bind *b, int ivar, int component);           /* the component that is meant; -1: error */
int32_t bind_component(struct bind *b, int ivar, int component); /* its value: an index variable of the loops, or 0 */
uint64_t bind_exposed(const struct opdef *r, int32_t node);      /* index variables whose groups an index runs over */
int bind_components(struct bind *b, uint64_t ivars);             /* the number of components; -1: there is no group */
int32_t bind_lower(struct bind *b, int32_t node, int component); /* component -1: none */
/* The indices of an access to a tensor with these index variables. Returns their number, -1: error. */
int bind_indices(struct bind *b, const struct opdef_tensor *t, int32_t first, int32_t *out);

/* ranks.c: fills `rank` and `group` */
sol_status bind_ranks(struct bind *b);

#endif
