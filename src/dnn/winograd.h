/* Winograd's minimal filtering for square windows of stride 1, in two dimensions: F(m,r) for windows of r x r on 4 or 6
 * points in a dimension, of which m = points + 1 - r are outputs: F(2,3), F(4,3), F(2,5). A dilated window is the same
 * on every d-th pixel. */
#ifndef SOL_DNN_WINOGRAD_H
#define SOL_DNN_WINOGRAD_H

#include "dnn/blocking.h"

enum winograd_schedule {
    WINOGRAD_TASK, /* one step: a task transforms a group of tiles, multiplies and transforms back in its own scratch */
    WINOGRAD_STEPS, /* three steps over work buffers: the weights are read once, whatever the number of tasks */
    WINOGRAD_PANEL, /* two steps: tiles, then a task is a panel of outputs, all tiles of it: it transforms its weights
                       chunk by chunk, so that they take no more memory than they are, and transforms back */
};
struct winograd {
    struct problem p;
    const struct target *target;
    enum winograd_schedule schedule;
    int m, points;       /* outputs and inputs of a tile in one dimension */
    int taps;            /* of the window, likewise */
    int64_t dilation[2]; /* pixels from one tap to the next, and from one output of a tile to the next: rows, columns */
    int rows, cols;      /* index variables of the pixels, */
    int tap_rows, tap_cols; /* of the window */
    int row_dim, col_dim;   /* of a */
    struct axes images;     /* the other M index variables */
    struct axis outputs;    /* the N index variables, likewise */
    struct axis channels;   /* of a: the K index variables but the window's, as one axis */
    bool weights;           /* a step of its own transforms them, the first; else they are packed: transformed, but
                               for PANEL, which has them as they are, in its order */
    int64_t tile_rows, tile_cols, nimage, tiles; /* tiles: of all images; these are sizes, as are the next */
    /* tiles that are multiplied together; TASK: of one task, a number, else all. The last group may have fewer. */
    int64_t group, ngroup;
    int64_t v_pitch, v_plane; /* elements between tiles and between points of transformed input; a plane is a size */
    int64_t m_pitch, m_plane; /* the same of products */
    int64_t u_plane;          /* PANEL: elements between points of a chunk's transformed weights */
    struct problem product;   /* m[X T O] = sum[I] v[X T I] * u[X I O] */
    struct blocking b;        /* of it */
    struct cluster cluster;
};

/* winograd.c: between point 0 and infinity are pairs of points, +-at. Weights are evaluated there times `weight`, so
 * that few of the factors are not 1; what is missing of the interpolation's factor is in the way back. */
struct winograd_pair {
    double square, weight, back; /* square: of `at` */
};
const struct winograd_pair *winograd_pairs(int points); /* (points - 2) / 2 of them */
double winograd_power(const struct winograd_pair *pair, int k);
/* The weights' transform: [points][taps] */
double *winograd_weights_table(struct arena *arena, int points, int taps);

/* winograd_print.c */
void winograd_print(struct winograd *w, struct text *out);
/* `input_line` and `output_line` (of m outputs) on arrays of `vec`, with the constants they use. */
void winograd_print_lines(int points, int m, struct text *out);

#endif
