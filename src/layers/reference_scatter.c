/* Writes elements at positions given by index tensors, one after the other. An odometer walks over them. */
#include <stdbool.h>
#include <string.h>

#include "layers/reference.h"

/* Combines one element v with the element at `to`. */
#define JOIN_ONE(sum, times)                                            \
    if (a->mode == REFERENCE_NONE) *to = v;                             \
    if (a->mode == REFERENCE_ADD) *to = (sum);                          \
    if (a->mode == REFERENCE_MUL) *to = (times);                        \
    if (a->mode == REFERENCE_MAX && !(*to >= v) && *to == *to) *to = v; \
    if (a->mode == REFERENCE_MIN && !(*to <= v) && *to == *to) *to = v
#define JOIN(type, sum, times)                                        \
    for (int64_t k = 0; k < n; k++) {                                 \
        type *to = (type *)y + k * di, v = ((const type *)u)[k * dj]; \
        JOIN_ONE((type)(sum), (type)(times));                         \
    }                                                                 \
    break
#define JOIN_INT(type) JOIN(type, (uint64_t)*to + (uint64_t)v, (uint64_t)*to * (uint64_t)v)

/* Combines n elements of y, di apart, with n of u, dj apart. */
static void join(const struct reference *a, int64_t n, char *y, int64_t di, const char *u, int64_t dj)
{
    if (a->mode == REFERENCE_NONE) {
        for (int64_t k = 0; k < n; k++) memcpy(y + k * di * a->bytes, u + k * dj * a->bytes, (size_t)a->bytes);
        return;
    }
    if (a->mode == REFERENCE_ADD && a->type == REFERENCE_F32 && di == 1 && dj == 1) { /* the usual row */
        float *to = (float *)y;
        const float *from = (const float *)u;
        for (int64_t k = 0; k < n; k++) to[k] += from[k];
        return;
    }
    switch (a->type) {
    case REFERENCE_F32: JOIN(float, *to + v, *to * v);
    case REFERENCE_F64: JOIN(double, *to + v, *to * v);
    case REFERENCE_BOOL: JOIN(uint8_t, *to | v, *to & v);
    case REFERENCE_U8: JOIN_INT(uint8_t);
    case REFERENCE_I8: JOIN_INT(int8_t);
    case REFERENCE_U16: JOIN_INT(uint16_t);
    case REFERENCE_I16: JOIN_INT(int16_t);
    case REFERENCE_U32: JOIN_INT(uint32_t);
    case REFERENCE_I32: JOIN_INT(int32_t);
    case REFERENCE_U64: JOIN_INT(uint64_t);
    case REFERENCE_I64: JOIN_INT(int64_t);
    default: break; /* types that are only copied */
    }
}

/* A walk over the first dimensions: offsets in what is read and written, and in the index tensors. */
struct walk {
    int64_t at[REFERENCE_DIMS], from, to, index[REFERENCE_DIMS];
};

static void step(const struct reference *a, int ndim, struct walk *w)
{
    for (int d = ndim - 1; d >= 0; d--) {
        const bool end = ++w->at[d] == a->shape[d];
        const int64_t by = end ? 1 - a->shape[d] : 1;
        w->from += by * a->from[d];
        w->to += by * a->to[d];
        for (int k = 0; k < a->nindex; k++) w->index[k] += by * a->index[k].stride[d];
        if (!end) return;
        w->at[d] = 0;
    }
}

/* Finds the position that the indices name; false: one is out of range. */
static bool find(const struct reference *a, const struct walk *w, char *const *p, int64_t *to,
                 struct reference_bad *out_bad)
{
    for (int k = 0; k < a->nindex; k++) {
        const struct reference_index *x = &a->index[k];
        int64_t v = reference_integer(x->type, p[x->input], x->offset + w->index[k]);
        if (v < -x->limit || v >= x->limit) {
            *out_bad = (struct reference_bad){v, x->limit};
            return false;
        }
        *to += (v < 0 ? v + x->limit : v) * x->step;
    }
    return true;
}

/* The trailing dimensions of the walk form rows along which the indices do not change: the last dimension, or none. */
static int row_from(const struct reference *a)
{
    bool moves = a->ndim == 0;
    for (int k = 0; k < a->nindex && !moves; k++) moves = a->index[k].stride[a->ndim - 1] != 0;
    return moves ? a->ndim : a->ndim - 1;
}

/* A line of single elements of a floating type, each with an index of its own. */
#define LINE(type)                                                                                 \
    for (int64_t k = 0; k < n; k++) {                                                              \
        const int64_t given = index[k * x->stride[d]], at = given + (given < 0 ? x->limit : 0);    \
        *out_bad = (struct reference_bad){given, x->limit};                                        \
        if (at < 0 || at >= x->limit) return false;                                                \
        type *to = (type *)y + at * x->step + k * a->to[d], v = ((const type *)u)[k * a->from[d]]; \
        JOIN_ONE(*to + v, *to * v);                                                                \
    }                                                                                              \
    return true

static bool has_lines(const struct reference *a)
{
    return a->nindex == 1 && a->ndim && a->index->type == REFERENCE_I64 &&
           (a->type == REFERENCE_F32 || a->type == REFERENCE_F64);
}

static bool line(const struct reference *a, const struct walk *w, char *const *p, struct reference_bad *out_bad)
{
    const struct reference_index *x = a->index;
    const int d = a->ndim - 1;
    const int64_t n = a->shape[d], *index = (const int64_t *)p[x->input] + x->offset + w->index[0];
    char *y = p[a->nin] + w->to * a->bytes;
    const char *u = p[a->values] + w->from * a->bytes;
    if (a->type == REFERENCE_F32) {
        LINE(float);
    }
    LINE(double);
}

static enum reference_error scatter(const struct reference *a, char *const *p, void *scratch,
                                    struct reference_bad *out_bad)
{
    const bool lines = row_from(a) == a->ndim && has_lines(a);
    const int last = lines ? a->ndim - 1 : row_from(a);
    const int64_t row = last < a->ndim ? a->shape[last] : 1;
    const int64_t di = last < a->ndim ? a->to[last] : 0, dj = last < a->ndim ? a->from[last] : 0;
    struct walk w = {0};
    int64_t n = 1;
    (void)scratch;
    for (int d = 0; d < last; d++) n *= a->shape[d];
    if (a->elements) memcpy(p[a->nin], p[0], (size_t)(a->elements * a->bytes));
    if (!row) return REFERENCE_GOOD; /* indices that nothing uses may have any value */
    for (; n > 0; n--, step(a, last, &w)) {
        int64_t to = w.to;
        if (lines && !line(a, &w, p, out_bad)) return REFERENCE_INDEX;
        if (lines) continue;
        if (!find(a, &w, p, &to, out_bad)) return REFERENCE_INDEX;
        join(a, row, p[a->nin] + to * a->bytes, di, p[a->values] + w.from * a->bytes, dj);
    }
    return REFERENCE_GOOD;
}

REFERENCE_KIND reference_scatter = {"reference_scatter", "reference_scatter.c", NULL, scatter};
