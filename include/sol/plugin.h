/* What a plug-in is: another library's kernels, as a shared object sol-NAME.so that SOL finds in the folder of the key
 * `plugins`. It competes with SOL's own kernels where a network is tuned, and is never a part of what is deployed. C
 * standard headers only.
 *
 * The shared object has the constant `sol_plugin`, and `sol_plugin_gemm`, or the three functions of convolutions, or
 * both. All of them work on the calling thread alone, may be called by many threads at the same time, and give the same
 * bits for the same numbers. */
#ifndef SOL_PLUGIN_H
#define SOL_PLUGIN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SOL_PLUGIN_VERSION 2

struct sol_plugin {
    uint32_t size, version; /* sizeof(struct sol_plugin), SOL_PLUGIN_VERSION */
    const char *name;       /* the NAME of its file: "openblas" */
    const char *library;    /* what it stands for: "OpenBLAS 0.3.21" */
};
extern const struct sol_plugin sol_plugin;

/* c[i * ldc + j] = sum over l of A[i][l] * B[l][j], for i < m, j < n, l < k; what was in c does not count. A[i][l] is
 * a[i * lda + l], or a[l * lda + i] if a_across is not 0; B[l][j] is b[l * ldb + j], or b[j * ldb + l]. */
void sol_plugin_gemm(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, int a_across, const float *b,
                     int64_t ldb, int b_across, float *c, int64_t ldc);

/* The convolution of an image, or of a block of its rows, in float32:
 *
 *   y[p][g * out + o] = sum over j < in and all k of x[p * stride + k * dilation - low][g * in + j] * w[g][o][j][k]
 *
 * with p, k and all of `d` for each dimension of the pixels, and 0 where x has no pixel. x lies as its strides say (in
 * elements), y dense, its channels innermost, and w as the plug-in wants it: cut into blocks along some dimensions
 * (oneDNN's OIhw16i16o is 16 of dimension 2, then 16 of dimension 1), with the innermost blocks dense and w_stride from
 * one block of a dimension to the next; what is beyond the dimension's size is 0. Weights are packed once, not in every
 * call. Numbers alone, so that generated code may write it down as such. */
enum { SOL_PLUGIN_DIMS = 3, SOL_PLUGIN_BLOCKS = 6 };
struct sol_plugin_conv {
    int64_t size;            /* sizeof(struct sol_plugin_conv) */
    int64_t ndim;            /* of the pixels: 1 to SOL_PLUGIN_DIMS, outermost first */
    int64_t groups, in, out; /* channels of a group */
    int64_t x_channel;       /* stride of x from a channel to the next */
    struct {
        int64_t x, y, window, stride, dilation, low, high, x_stride; /* high: how far windows reach behind x */
    } d[SOL_PLUGIN_DIMS];
    /* What the plug-in says; dimensions of w are the group, out, in, the window's. */
    int64_t scratch; /* bytes of memory that it works in */
    int64_t weights; /* elements of w as it lies */
    int64_t w_padded[3 + SOL_PLUGIN_DIMS], w_stride[3 + SOL_PLUGIN_DIMS];
    int64_t w_blocks, w_block[SOL_PLUGIN_BLOCKS], w_block_dim[SOL_PLUGIN_BLOCKS]; /* outermost first */
};
/* Fills in what the plug-in says. If `weights` is not 0, w is wanted as it is there (other rows of the same image).
 * Returns 0, or not 0 if it has nothing for this convolution. */
int sol_plugin_conv_plan(struct sol_plugin_conv *c);
/* What computes a convolution that was planned, for as long as the process lives; the same for the same. NULL: it
 * cannot, any more. */
const void *sol_plugin_conv_find(const struct sol_plugin_conv *c);
/* scratch: 64-byte aligned, this call's own. Not 0: it failed. */
int sol_plugin_conv_run(const void *conv, const float *x, const float *w, float *y, void *scratch);

#ifdef __cplusplus
}
#endif
#endif
