/* Kernels that are made of calls of other kernels, as data. A planner says what is called when, and with which
 * operands; tree.c is the only place that writes it as text.
 *
 * A task runs loops, one behind the other. Each round of a loop first asks a ring for rows, then calls members. A ring
 * is a line buffer in scratch memory: asked for rows, it makes those it does not have, each with a round of its own.
 *
 * A tree may be for a *team*: all workers go through all rounds together, and share the tasks of each member that is
 * called (SOL_STEP_TEAM in sol/module.h).
 *
 * Numbers of bytes, of rounds and of a tensor's rows are sizes, which may vary (base/size.h). The rows that a ring has
 * room for, and those of a task, are numbers. */
#ifndef SOL_TREE_H
#define SOL_TREE_H

#include "print/kernel.h"

/* Counters that addresses depend on: the task, the image that it belongs to, the round of the loop or the ring's row.
 */
enum tree_counter { TREE_TASK, TREE_IMAGE, TREE_ROUND, TREE_COUNTERS };
enum tree_base {
    TREE_OPERAND, /* operand `index` of the kernel */
    TREE_SCRATCH, /* the worker's scratch memory; of a team, that of its first worker */
    TREE_RING     /* row `row` of ring `index` */
};
struct tree_row { /* a row's number is by * round + plus, modulo `wrap` if that is not 0 */
    int64_t by, plus, wrap;
};
struct tree_address {
    enum tree_base base;
    int index;
    int64_t by[TREE_COUNTERS]; /* bytes for each step of a counter */
    int64_t plus;              /* bytes */
    struct tree_row row;       /* in rings, and in scratch memory where row_bytes is not 0 */
    int64_t row_bytes;
};
struct tree_call { /* of all steps of a member */
    int member;
    int noperand;
    const struct tree_address *operand;
};
struct tree_body { /* one round */
    int need;      /* ring, -1: none. Rows step * round + low .. step * round + high of it must be there */
    int64_t step, low, high;
    int ncall;
    const struct tree_call *call;
};
struct tree_ring {
    struct tree_body body; /* makes the row of this number */
    bool stored;           /* its rows lie in an operand; the ring only counts which of them are there */
    int64_t rows;          /* of the tensor; others are filled with `fill` */
    double fill;
    enum sol_dtype dtype;
    int64_t row_bytes, room, scratch; /* room: rows that it holds, at this offset of the scratch memory */
};
struct tree_loop {
    struct tree_body body;
    int64_t from, n; /* rounds from .. from + n - 1 */
    bool down;       /* the last one first */
};
#define TREE_MAX_MEMBERS 64
struct tree {
    const char *round; /* what a round is called in the text: "row" */
    int nmember;
    const struct kernel *member[TREE_MAX_MEMBERS];
    int nring;
    const struct tree_ring *ring; /* each needs only those in front of it */
    int nloop;
    const struct tree_loop *loop;
    /* Without rings a task runs all rounds of every loop. With them there is one loop, and a task is this many rounds
     * of one image. */
    int64_t per_task;
    bool vary; /* do sizes in it vary? */
    bool team; /* without rings, and without a counter of tasks in its addresses */
};
int tree_member(struct tree *t, const struct kernel *k); /* its number; equal kernels are one. -1: too many */
int64_t tree_tasks(const struct tree *t, int64_t images);
char *tree_print(struct arena *a, const struct target *target, const struct tree *t); /* struct kernel's source */

#endif
