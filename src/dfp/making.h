/* A kernel of the solver dfp while it is made: how each group runs (dfp.c), and what prints it (tiles.c). */
#ifndef SOL_DFP_MAKING_H
#define SOL_DFP_MAKING_H

#include "dfp/dfp.h"

struct group_plan {
    struct dfp_way way;
    bool blocks;                  /* of vector and tile, transposed in registers */
    double step[LOOPS_MAX_IVARS]; /* of dfp_block_ivar, as is `reads` */
    bool reads;
    bool mapped; /* to work items, by `map` */
    struct dfp_map map;
    int64_t low, high; /* range of the tile's index variable without borders: sizes */
    double cost;       /* in vector operations */
};
struct making {
    struct dfp d;
    struct group_plan group[KERNEL_MAX_STEPS];
    const struct print_group *now;
    const struct group_plan *plan;
    const char *low, *high;          /* the task's range of the tile's index variable */
    const struct print_tasks *tasks; /* and all its ranges, in order; the vector index variable is number `at` */
    int at;
};

/* tiles.c: print the group `now` by its `plan`: in lanes, or with points that are mapped to work items. */
void dfp_print_lanes(struct making *m, struct print_tasks *t);
void dfp_print_mapped(struct making *m);

#endif
