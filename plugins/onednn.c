/* oneDNN as a plug-in: its matrix product and its convolutions. If oneDNN uses OpenMP, each function sets the calling
 * thread's number of OpenMP threads to one and restores it at the end. For a convolution, oneDNN chooses the layout of
 * weights, while activations keep theirs. Convolutions that only its slow reference implements are rejected. */
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "sol/plugin.h"

#define EXPORT __attribute__((visibility("default")))

#if DNNL_CPU_RUNTIME == DNNL_RUNTIME_OMP
int omp_get_max_threads(void); /* the OpenMP that oneDNN itself is linked to, whatever compiler builds this file */
void omp_set_num_threads(int n);
#else
static int omp_get_max_threads(void)
{
    return 1;
}
static void omp_set_num_threads(int n)
{
    (void)n;
}
#endif

static int work_alone(void)
{
    const int threads = omp_get_max_threads();
    if (threads != 1) omp_set_num_threads(1);
    return threads;
}

static void work_as(int threads)
{
    if (threads != 1) omp_set_num_threads(threads);
}

EXPORT const struct sol_plugin sol_plugin = {
    .size = sizeof sol_plugin, .version = SOL_PLUGIN_VERSION, .name = "onednn", .library = LIBRARY};

EXPORT void sol_plugin_gemm(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, int a_across, const float *b,
                            int64_t ldb, int b_across, float *c, int64_t ldc)
{
    const int threads = work_alone();
    dnnl_sgemm(a_across ? 'T' : 'N', b_across ? 'T' : 'N', m, n, k, 1, a, lda, b, ldb, 0, c, ldc);
    work_as(threads);
}

#if DNNL_VERSION_MAJOR == 2 /* version 3 has another interface */

/* -- convolutions */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static dnnl_engine_t engine;

static void begin(void)
{
    if (dnnl_engine_create(&engine, dnnl_cpu, 0)) engine = NULL;
}

/* Channels and pixels with their strides, for a single image. */
static int activations(dnnl_memory_desc_t *md, const struct sol_plugin_conv *c, int64_t channels, int y)
{
    const int n = (int)c->ndim;
    dnnl_dims_t dims = {1, channels}, strides;
    int64_t pixel = channels;
    for (int i = n - 1; i >= 0; i--) {
        dims[2 + i] = y ? c->d[i].y : c->d[i].x;
        strides[2 + i] = y ? pixel : c->d[i].x_stride;
        pixel *= c->d[i].y;
    }
    strides[1] = y ? 1 : c->x_channel;
    strides[0] = pixel;
    if (!y) { /* the image is as large as its outermost dimension: rows or channels */
        const int64_t rows = c->d[0].x_stride * c->d[0].x, planes = c->x_channel * channels;
        strides[0] = rows > planes ? rows : planes;
    }
    return dnnl_memory_desc_init_by_strides(md, n + 2, dims, dnnl_f32, strides);
}

/* SOL's weights always have a dimension for groups; oneDNN's have it only if there are several. */
static int weights(dnnl_memory_desc_t *md, const struct sol_plugin_conv *c)
{
    const int skip = c->groups == 1, n = (int)c->ndim + 3 - skip;
    dnnl_dims_t dims = {c->groups, c->out, c->in};
    for (int i = 0; i < c->ndim; i++) dims[3 + i] = c->d[i].window;
    if (dnnl_memory_desc_init_by_tag(md, n, dims + skip, dnnl_f32, dnnl_format_tag_any)) return 1;
    if (!c->weights) return 0;
    md->format_kind = dnnl_blocked;
    for (int i = 0; i < n; i++) {
        md->padded_dims[i] = c->w_padded[i + skip];
        md->format_desc.blocking.strides[i] = c->w_stride[i + skip];
    }
    md->format_desc.blocking.inner_nblks = (int)c->w_blocks;
    for (int i = 0; i < c->w_blocks; i++) {
        md->format_desc.blocking.inner_blks[i] = c->w_block[i];
        md->format_desc.blocking.inner_idxs[i] = c->w_block_dim[i] - skip;
    }
    return 0;
}

/* NULL: oneDNN has no fast implementation. */
static dnnl_primitive_desc_t describe(const struct sol_plugin_conv *c)
{
    dnnl_memory_desc_t x, w, y;
    dnnl_convolution_desc_t desc;
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_dims_t stride, dilation, low, high;
    const char *name = "";
    for (int i = 0; i < c->ndim; i++) {
        stride[i] = c->d[i].stride;
        dilation[i] = c->d[i].dilation - 1;
        low[i] = c->d[i].low;
        high[i] = c->d[i].high;
    }
    pthread_once(&once, begin);
    if (!engine || activations(&x, c, c->groups * c->in, 0) || activations(&y, c, c->groups * c->out, 1) ||
        weights(&w, c) ||
        dnnl_dilated_convolution_forward_desc_init(&desc, dnnl_forward_inference, dnnl_convolution_direct, &x, &w, NULL,
                                                   &y, stride, dilation, low, high) ||
        dnnl_primitive_attr_create(&attr))
        return NULL;
    if (dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) ||
        dnnl_primitive_desc_create(&pd, &desc, attr, engine, NULL))
        pd = NULL;
    dnnl_primitive_attr_destroy(attr);
    if (pd && (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) || strstr(name, "ref"))) {
        dnnl_primitive_desc_destroy(pd);
        pd = NULL;
    }
    return pd;
}

/* Fills in the layout that oneDNN chose. */
static int tell_weights(const dnnl_memory_desc_t *md, struct sol_plugin_conv *c)
{
    const int skip = c->groups == 1;
    const dnnl_blocking_desc_t *b = &md->format_desc.blocking;
    if (md->format_kind != dnnl_blocked || md->offset0 || md->extra.flags || b->inner_nblks > SOL_PLUGIN_BLOCKS)
        return 1;
    c->w_padded[0] = c->w_stride[0] = 1;
    for (int i = 0; i < md->ndims; i++) {
        c->w_padded[i + skip] = md->padded_dims[i];
        c->w_stride[i + skip] = b->strides[i];
    }
    c->w_blocks = b->inner_nblks;
    for (int i = 0; i < b->inner_nblks; i++) {
        c->w_block[i] = b->inner_blks[i];
        c->w_block_dim[i] = b->inner_idxs[i] + skip;
    }
    c->weights = (int64_t)dnnl_memory_desc_get_size(md) / 4;
    return 0;
}

EXPORT int sol_plugin_conv_plan(struct sol_plugin_conv *c)
{
    const int threads = work_alone(); /* what oneDNN creates depends on the number of threads */
    dnnl_primitive_desc_t pd = describe(c);
    work_as(threads);
    if (!pd) return 1;
    const int bad = tell_weights(dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0), c);
    c->scratch = (int64_t)dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0));
    dnnl_primitive_desc_destroy(pd);
    return bad;
}

enum { X, W, Y, SCRATCH, OPERANDS };
struct conv {
    struct sol_plugin_conv c;
    dnnl_primitive_t primitive;
    dnnl_memory_desc_t md[OPERANDS];
    struct conv *next;
};
static const int arguments[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD};

static struct conv *make(const struct sol_plugin_conv *c)
{
    static const dnnl_query_t queries[] = {dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md,
                                           dnnl_query_scratchpad_md};
    const int threads = work_alone();
    dnnl_primitive_desc_t pd = describe(c);
    struct conv *made = pd ? calloc(1, sizeof *made) : NULL;
    if (made) {
        made->c = *c;
        for (int i = 0; i < OPERANDS; i++) made->md[i] = *dnnl_primitive_desc_query_md(pd, queries[i], 0);
        if ((int64_t)dnnl_memory_desc_get_size(&made->md[SCRATCH]) > c->scratch ||
            dnnl_primitive_create(&made->primitive, pd)) {
            free(made);
            made = NULL;
        }
    }
    if (pd) dnnl_primitive_desc_destroy(pd);
    work_as(threads);
    return made;
}

EXPORT const void *sol_plugin_conv_find(const struct sol_plugin_conv *c)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct conv *all;
    pthread_mutex_lock(&lock);
    struct conv *found = all;
    while (found && memcmp(&found->c, c, sizeof *c)) found = found->next;
    if (!found && (found = make(c))) {
        found->next = all;
        all = found;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

EXPORT int sol_plugin_conv_run(const void *conv, const float *x, const float *w, float *y, void *scratch)
{
    const struct conv *c = conv;
    void *const at[] = {(void *)x, (void *)w, y, scratch};
    dnnl_exec_arg_t arg[OPERANDS];
    dnnl_stream_t stream = NULL;
    int n = 0, bad = dnnl_stream_create(&stream, engine, dnnl_stream_default_flags) != dnnl_success;
    for (; !bad && n < OPERANDS; n += !bad) {
        arg[n].arg = arguments[n];
        bad = dnnl_memory_create(&arg[n].memory, &c->md[n], engine, at[n]) != dnnl_success;
    }
    const int threads = work_alone();
    bad = bad || dnnl_primitive_execute(c->primitive, stream, n, arg) != dnnl_success;
    work_as(threads);
    while (n > 0) dnnl_memory_destroy(arg[--n].memory);
    if (stream) dnnl_stream_destroy(stream);
    return bad;
}

#endif
