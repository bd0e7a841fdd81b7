/* Convolutions that a library of the device's maker computes: what conv_call*.c share. */
#ifndef SOL_DNN_CONV_CALL_H
#define SOL_DNN_CONV_CALL_H

#include "dnn/call.h"
#include "sol/device.h"

/* A dimension of factor a whose index is stride * Y + dilation * K + c is one of pixels, with a window. In a
 * convolution, pixels belong to the result and windows are summed; in the gradient of its weights it is the other way
 * round, and otherwise the same. A negative dilation is the gradient of its input. Channels and images are all other
 * index variables. */
struct conv_pixel {
    struct axis y, k;              /* of the pixels and of the window; without index variables: of size 1 */
    int64_t stride, dilation, c;   /* in a's index: all of them positive, but for a dilation in a gradient */
    bool border;                   /* some of what is read outside of a is not in memory; else there are zeros */
    int64_t size, end, step;       /* of a's dimension: elements, those in memory from 0 on, and between them */
    int64_t from, pad, in_x, in_y; /* first element of a, zeros around x, and the sizes that the library sees */
};
struct conv_call {
    struct problem p;
    const struct target *target;
    enum sol_conv_result result;
    struct axis group, in, out, image; /* in: channels that are in a, of a group; out: the others */
    int npixel;
    struct conv_pixel pixel[SOL_CONV_PIXELS];
    bool last;                          /* channels of w behind its window */
    bool packs;                         /* b is packed */
    struct axis w[3 + SOL_CONV_PIXELS]; /* the axes of w as they lie, outermost first */
    int nw;
    struct call call;
    int64_t work[LOOPS_MAX_IVARS]; /* strides of the results in the work buffer */
    int passed;                    /* how far this came, for the reason that says most */
};
static inline int64_t conv_axis_size(const struct axis *x)
{
    return x->n ? x->size : 1;
}

/* conv_call_find.c: finds the convolution of a cluster. False: *out_why says why there is none. */
bool conv_call_find(const struct solver_context *sc, const struct cluster *c, struct conv_call *out,
                    const char **out_why);

/* conv_call_place.c */
/* Do channels of a group follow each other, and groups? */
bool conv_call_groups_fit(const struct conv_call *g, const struct axis *inner, const int64_t *strides);
/* Chooses where results go, and the form of the weights. False: *why says why the library takes none. */
bool conv_call_place(struct conv_call *g, const char **why);
void conv_call_describe(const struct conv_call *g, struct sol_conv *out); /* the call's numbers */
struct kernel_pack conv_call_pack(const struct conv_call *g);             /* packed[group o c window] = b[..] */

#endif
