/* A convolution as another library computes it: what foreign_conv.c recognises and foreign_conv_print.c prints. */
#ifndef SOL_DNN_FOREIGN_CONV_H
#define SOL_DNN_FOREIGN_CONV_H

#include "dnn/foreign.h"
#include "sol/plugin.h"

enum { MOST_DIMS = 8, MOST_KINDS = 8, NONE = -1, FIELDS = sizeof(struct sol_plugin_conv) / 8 };

struct pixel { /* a dimension of a with the index stride * y + dilation * k + c */
    int y, k;  /* index variables; NONE: of size 1 */
    int64_t stride, dilation, c;
    /* step: elements between neighbours; low, high: first and last + 1 index that has memory */
    int64_t step, low, high;
    bool border;
};
struct conv {
    struct problem p;
    const struct plugin *by;
    int lanes;
    int group, in, out, nouter, outer[MOST_DIMS], ndim; /* index variables, or NONE */
    struct pixel pixel[SOL_PLUGIN_DIMS];                /* outermost first */
    struct sol_plugin_conv whole;                       /* without x, y, low and high of d[0] */
    int64_t base;                                       /* offset in a of the first row that has memory */
    int64_t nrows, channels;
    /* the variant */
    int64_t rows, cols, blocks, nblock; /* rows, channels of a task; how many of both blocks */
    int nkind;
    struct sol_plugin_conv kind[MOST_KINDS]; /* one for each kind of block of rows */
    int64_t images;
};

/* foreign_conv.c */
int64_t conv_size(const struct conv *c, int ivar); /* of an index variable; NONE: 1 */
/* Finds the convolution of a cluster. False: *why says why there is none. */
bool conv_find(const struct solver_context *sc, const struct cluster *cluster, const struct plugin *by, struct conv *c,
               const char **why);
/* What the library is told about a block of rows; *out_row: its first row. False: none of them has memory. */
bool conv_block(const struct conv *c, int64_t block, struct sol_plugin_conv *out, int64_t *out_row);
int conv_kind(const struct conv *c, const struct sol_plugin_conv *block);
bool conv_divide(struct conv *c, int rows, int cols);
int64_t conv_sums_bytes(const struct conv *c); /* of a task, and of all its scratch memory */
int64_t conv_scratch_bytes(const struct conv *c);

#endif
