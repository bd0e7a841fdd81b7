/* Kernels of layers without loops, for devices whose lanes are work items: what their files share. */
#ifndef SOL_PRINT_ORDER_H
#define SOL_PRINT_ORDER_H

#include "layers/reference.h"
#include "print/print.h"

/* -- order.c: a part of a kernel that sorts */
enum { ORDER_PASSES = 3 };
struct order {
    int64_t lists, n;                                /* sizes: of n elements each */
    int64_t keep;                                    /* of each list, so many elements are wanted */
    int64_t when;                                    /* 1, or a size that is 0 where nothing is to be sorted */
    const char *key;                                 /* type of the keys: int32_t or int64_t */
    int operand;                                     /* its first work buffer */
    void (*inputs)(void *user, struct text *out);    /* declares what print_key needs */
    void (*print_key)(void *user, struct text *out); /* sets `key` to that of element `at` of list `list` */
    /* If one group sorts a list, it may write the results itself: declares what they need; writes that of element `at`
     * of list `list`, which was at `place` before. NULL: results are in the work buffers. */
    void (*outputs)(void *user, struct text *out);
    void (*print_element)(void *user, struct text *out);
    void *user;
    /* filled in by order_plan */
    const struct target *target;
    const char *at; /* type of an element's place in its list */
    int first;      /* step of the kernel */
    int tile, items, passes;
    int64_t width[ORDER_PASSES + 1]; /* elements of a run before each pass, and behind the last one */
};
/* Adds the steps, work buffers and the memory of a group to the kernel. */
void order_plan(struct order *o, const struct target *t, struct kernel *k);
void order_print(const struct order *o, struct text *out); /* the functions of its steps */
/* Declares `keys` and `places` of the elements in their order: element i of list k is at k * n + i. */
void order_result(const struct order *o, struct text *out);

const char *order_type(int type); /* the C type of elements of an `enum reference_type` */
/* ns of a kernel that moves so many bytes of memory */
double order_cost(const struct target *t, const struct kernel *k, double bytes);

/* -- the kinds of layers; operands are inputs and outputs. False: they have no kernel for these types or sizes. */
bool sort_kernel(struct arena *a, const struct target *t, const struct reference *r, struct kernel *out);
bool scatter_kernel(struct arena *a, const struct target *t, const struct reference *r, struct kernel *out);

#endif
