/* The interface of plug-ins. A plug-in is a shared object sol-NAME.so with kernels of another library. SOL looks for it
 * in the folder of the key `plugins`. Its kernels compete with SOL's own when SOL tunes a network. Deployed libraries
 * never contain them. This header includes C standard headers only.
 *
 * The shared object exports the constant `sol_plugin`, and either `sol_plugin_gemm`, or the three functions for
 * convolutions, or both. Each function works on the calling thread only, may be called by many threads at the same
 * time, and gives the same bits for the same inputs. */
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
    const char *library;    /* library and version: "OpenBLAS 0.3.21" */
};
extern const struct sol_plugin sol_plugin;

/* Matrix product: c[i * ldc + j] = sum over l of A[i][l] * B[l][j], for i < m, j < n, l < k. It overwrites c. A[i][l]
 * is a[i * lda + l], or a[l * lda + i] if a_across is not 0. B[l][j] is b[l * ldb + j], or b[j * ldb + l] if b_across
 * is not 0. */
void sol_plugin_gemm(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, int a_across, const float *b,
                     int64_t ldb, int b_across, float *c, int64_t ldc);

/* The convolution of an image, or of a block of its rows, in float32:
 *
 *   y[p][g * out + o] = sum over j < in and all k of x[p * stride + k * dilation - low][g * in + j] * w[g][o][j][k]
 *
 * with p, k and `d` for each pixel dimension, and 0 where x has no pixel. x has strides (in elements). y is dense with
 * channels innermost. The plug-in chooses the layout of w: blocks along some dimensions (oneDNN's OIhw16i16o has blocks
 * of 16 along dimension 2, then 16 along dimension 1). The innermost blocks are dense, w_stride is the distance between
 * blocks of a dimension, and elements beyond the dimension's size are 0. SOL packs the weights once, not in every call.
 * The struct consists of numbers only, so that generated code can contain it as a constant. */
enum { SOL_PLUGIN_DIMS = 3, SOL_PLUGIN_BLOCKS = 6 };
struct sol_plugin_conv {
    int64_t size;            /* sizeof(struct sol_plugin_conv) */
    int64_t ndim;            /* of the pixels: 1 to SOL_PLUGIN_DIMS, outermost first */
    int64_t groups, in, out; /* channels of a group */
    int64_t x_channel;       /* stride of x from a channel to the next */
    struct {
        int64_t x, y, window, stride, dilation, low, high, x_stride; /* high: how far windows reach behind x */
    } d[SOL_PLUGIN_DIMS];
    /* The plug-in fills in the rest. The dimensions of w are the group, out, in, and those of the window. */
    int64_t scratch; /* bytes of working memory */
    int64_t weights; /* elements of the packed w */
    int64_t w_padded[3 + SOL_PLUGIN_DIMS], w_stride[3 + SOL_PLUGIN_DIMS];
    int64_t w_blocks, w_block[SOL_PLUGIN_BLOCKS], w_block_dim[SOL_PLUGIN_BLOCKS]; /* outermost first */
};
/* Fills in the plug-in's part of the struct. If `weights` is already set, the plug-in must use that layout of w (for
 * other rows of the same image). Returns 0, or another value if it does not support this convolution. */
int sol_plugin_conv_plan(struct sol_plugin_conv *c);
/* Returns the implementation of a planned convolution, which stays valid as long as the process. Equal convolutions
 * have the same one. NULL: it is no longer available. */
const void *sol_plugin_conv_find(const struct sol_plugin_conv *c);
/* Runs it. `scratch` is 64-byte aligned and used by this call only. Returns 0, or another value after a failure. */
int sol_plugin_conv_run(const void *conv, const float *x, const float *w, float *y, void *scratch);

#ifdef __cplusplus
}
#endif
#endif
