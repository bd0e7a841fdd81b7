/* See alone.h. Sorting sorts pairs of a key, which is an integer that has the order of the values, and a position.
 * Scattering walks as an odometer does. */
#include "layers/alone.h"

#include <stdbool.h>
#include <string.h>

/* -- sorting */

struct item {
    int64_t key, at;
};

/* An integer that has the order of the values. */
static int64_t key_of(int type, const void *data, int64_t i)
{
    switch (type) {
    case ALONE_U64: return (int64_t)(((const uint64_t *)data)[i] ^ (uint64_t)1 << 63);
    case ALONE_F32: {
        float v = ((const float *)data)[i];
        int32_t bits;
        if (v != v) return INT64_MAX; /* NaN is the largest */
        v += 0.0f;                    /* -0 and 0 are equal */
        memcpy(&bits, &v, sizeof bits);
        return bits < 0 ? (int64_t)INT32_MIN - bits : bits;
    }
    case ALONE_F64: {
        double v = ((const double *)data)[i];
        int64_t bits;
        if (v != v) return INT64_MAX;
        v += 0.0;
        memcpy(&bits, &v, sizeof bits);
        return bits < 0 ? INT64_MIN - bits : bits;
    }
    case ALONE_BOOL:
    case ALONE_U8: return ((const uint8_t *)data)[i];
    case ALONE_I8: return ((const int8_t *)data)[i];
    case ALONE_U16: return ((const uint16_t *)data)[i];
    case ALONE_I16: return ((const int16_t *)data)[i];
    case ALONE_U32: return ((const uint32_t *)data)[i];
    case ALONE_I32: return ((const int32_t *)data)[i];
    default: return ((const int64_t *)data)[i];
    }
}

static bool before(const struct item *x, const struct item *y, bool down)
{
    return down ? x->key > y->key : x->key < y->key;
}

static void insert(struct item *a, int64_t n, bool down)
{
    for (int64_t i = 1; i < n; i++) {
        const struct item v = a[i];
        int64_t j = i;
        for (; j > 0 && before(&v, &a[j - 1], down); j--) a[j] = a[j - 1];
        a[j] = v;
    }
}

static void merge(const struct item *a, int64_t n, int64_t m, struct item *out, bool down)
{
    const struct item *b = a + n, *const a_end = b, *const b_end = b + m;
    while (a < a_end && b < b_end) *out++ = before(b, a, down) ? *b++ : *a++;
    memcpy(out, a, (size_t)(a_end - a) * sizeof *out);
    memcpy(out + (a_end - a), b, (size_t)(b_end - b) * sizeof *out);
}

/* Stable. Returns where the result is: in `a` or in `b`, which has the same room. */
static const struct item *sort(struct item *a, struct item *b, int64_t n, bool down)
{
    enum { RUN = 16 };
    for (int64_t i = 0; i < n; i += RUN) insert(a + i, n - i < RUN ? n - i : RUN, down);
    for (int64_t run = RUN; run < n; run *= 2) {
        for (int64_t i = 0; i < n; i += 2 * run) {
            const int64_t left = n - i < run ? n - i : run, right = n - i - left < run ? n - i - left : run;
            merge(a + i, left, right, b + i, down);
        }
        struct item *const swap = a;
        a = b;
        b = swap;
    }
    return a;
}

static void sort_lines(const struct alone *a, const char *in, char *values, int64_t *positions, struct item *items)
{
    const size_t size = (size_t)a->bytes;
    if (!a->n) return; /* no items either */
    for (int64_t o = 0; o < a->outer; o++)
        for (int64_t i = 0; i < a->inner; i++) {
            for (int64_t j = 0; j < a->n; j++)
                items[j] = (struct item){key_of(a->type, in, (o * a->n + j) * a->inner + i), j};
            const struct item *sorted = sort(items, items + a->n, a->n, a->down != 0);
            for (int64_t j = 0; j < a->keep; j++) {
                const int64_t to = (o * a->keep + j) * a->inner + i, from = (o * a->n + sorted[j].at) * a->inner + i;
                memcpy(values + (size_t)to * size, in + (size_t)from * size, size);
                positions[to] = sorted[j].at;
            }
        }
}

/* -- scattering */

#define JOIN(type, sum, times)                                                \
    for (int64_t k = 0; k < n; k++) {                                         \
        type *to = (type *)y + i + k * di, v = ((const type *)u)[j + k * dj]; \
        if (a->mode == ALONE_ADD) *to = (type)(sum);                          \
        if (a->mode == ALONE_MUL) *to = (type)(times);                        \
        if (a->mode == ALONE_MAX && !(*to >= v) && *to == *to) *to = v;       \
        if (a->mode == ALONE_MIN && !(*to <= v) && *to == *to) *to = v;       \
    }                                                                         \
    break
#define JOIN_INT(type) JOIN(type, (uint64_t)*to + (uint64_t)v, (uint64_t)*to * (uint64_t)v)

/* n elements of y, from i on, di apart, with those of u. */
static void join(const struct alone *a, int64_t n, char *y, int64_t i, int64_t di, const char *u, int64_t j, int64_t dj)
{
    if (a->mode == ALONE_NONE) {
        for (int64_t k = 0; k < n; k++)
            memcpy(y + (i + k * di) * a->bytes, u + (j + k * dj) * a->bytes, (size_t)a->bytes);
        return;
    }
    if (a->mode == ALONE_ADD && a->type == ALONE_F32 && di == 1 && dj == 1) { /* the usual row */
        float *to = (float *)y + i;
        const float *from = (const float *)u + j;
        for (int64_t k = 0; k < n; k++) to[k] += from[k];
        return;
    }
    switch (a->type) {
    case ALONE_F32: JOIN(float, *to + v, *to * v);
    case ALONE_F64: JOIN(double, *to + v, *to * v);
    case ALONE_BOOL: JOIN(uint8_t, *to | v, *to & v);
    case ALONE_U8: JOIN_INT(uint8_t);
    case ALONE_I8: JOIN_INT(int8_t);
    case ALONE_U16: JOIN_INT(uint16_t);
    case ALONE_I16: JOIN_INT(int16_t);
    case ALONE_U32: JOIN_INT(uint32_t);
    case ALONE_I32: JOIN_INT(int32_t);
    case ALONE_U64: JOIN_INT(uint64_t);
    case ALONE_I64: JOIN_INT(int64_t);
    default: break; /* what is copied only */
    }
}

/* A walk over the first dimensions: places in what is read and written, and in the indices. */
struct walk {
    int64_t at[ALONE_DIMS], from, to, index[ALONE_DIMS];
};

static void step(const struct alone *a, int ndim, struct walk *w)
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

/* Where the indices say; false: one is out of range. */
static bool find(const struct alone *a, const struct walk *w, char *const *p, int64_t *to, struct alone_bad *out_bad)
{
    for (int k = 0; k < a->nindex; k++) {
        const struct alone_index *x = &a->index[k];
        int64_t v = key_of(x->type == ALONE_U64 ? ALONE_I64 : x->type, p[x->input], x->offset + w->index[k]);
        if (v < -x->limit || v >= x->limit) {
            *out_bad = (struct alone_bad){v, x->limit};
            return false;
        }
        *to += (v < 0 ? v + x->limit : v) * x->step;
    }
    return true;
}

/* Dimensions of the walk from the result on make rows: the indices do not change along a row, which is the last one or
 * none. */
static int row_from(const struct alone *a)
{
    bool moves = a->ndim == 0;
    for (int k = 0; k < a->nindex && !moves; k++) moves = a->index[k].stride[a->ndim - 1] != 0;
    return moves ? a->ndim : a->ndim - 1;
}

static int scatter(const struct alone *a, char *const *p, struct alone_bad *out_bad)
{
    const int last = row_from(a);
    const int64_t row = last < a->ndim ? a->shape[last] : 1;
    const int64_t di = last < a->ndim ? a->to[last] : 0, dj = last < a->ndim ? a->from[last] : 0;
    struct walk w = {0};
    int64_t n = 1;
    for (int d = 0; d < last; d++) n *= a->shape[d];
    if (a->elements) memcpy(p[a->nin], p[0], (size_t)(a->elements * a->bytes));
    if (!row) return 0; /* indices that nothing uses may be anything */
    for (; n > 0; n--, step(a, last, &w)) {
        int64_t to = w.to;
        if (!find(a, &w, p, &to, out_bad)) return 1;
        join(a, row, p[a->nin], to, di, p[a->values], w.from, dj);
    }
    return 0;
}

/* -- */

size_t alone_scratch(const struct alone *a)
{
    return a->kind == ALONE_SORT ? 2 * (size_t)a->n * sizeof(struct item) : 0;
}

int alone_run(const struct alone *a, char *const *p, void *scratch, struct alone_bad *out_bad)
{
    if (a->kind == ALONE_SCATTER) return scatter(a, p, out_bad);
    sort_lines(a, p[0], p[a->nin], (int64_t *)p[a->nin + 1], scratch);
    return 0;
}
