/* Writes elements at positions given by index tensors, one after the other: an odometer walks over lines of them. */
#include <stdbool.h>
#include <string.h>

#include "layers/reference.h"

/* -- joining elements with what is there */

/* n elements of u, dj apart, and the elements of y that they are joined with: those that `index` names, or those at
 * `place`, or, without both, those di apart. Indices are `by` apart and below `limit`, negative ones count from
 * `below`; element k's is `size` times its index behind the element di * k. */
struct scatter_run {
    int64_t n, di, dj;
    const int64_t *index;
    int64_t by, below, limit, size;
    const int64_t *place;
    char *y;
    const char *u;
};

enum { BLOCK = 16 }; /* neighbours: a number that the C compiler knows, so that it uses vectors */

/* Functions that join: `now` is what becomes of an element y that is joined with v. They return the number of elements
 * in front of the first index that is out of range. */
#define EACH(name, type, now)                                                                                        \
    static inline int64_t name##_blocks(int64_t n, type *restrict to, const type *restrict from)                     \
    {                                                                                                                \
        int64_t k = 0;                                                                                               \
        for (; k + BLOCK <= n; k += BLOCK)                                                                           \
            for (int b = 0; b < BLOCK; b++) {                                                                        \
                const type y = to[k + b], v = from[k + b];                                                           \
                (void)y, to[k + b] = (type)(now);                                                                    \
            }                                                                                                        \
        return k;                                                                                                    \
    }                                                                                                                \
    static inline int64_t name##_same(int64_t n, type *to, const type v)                                             \
    {                                                                                                                \
        int64_t k = 0;                                                                                               \
        for (; k + BLOCK <= n; k += BLOCK)                                                                           \
            for (int b = 0; b < BLOCK; b++) {                                                                        \
                const type y = to[k + b];                                                                            \
                (void)y, to[k + b] = (type)(now);                                                                    \
            }                                                                                                        \
        return k;                                                                                                    \
    }                                                                                                                \
    static inline int64_t name##_walk(const struct scatter_run *l, int64_t di, int64_t dj, int64_t by, int64_t size) \
    {                                                                                                                \
        type *to = (type *)l->y;                                                                                     \
        const type *from = (const type *)l->u;                                                                       \
        const int64_t n = l->n, below = l->below, limit = l->limit, *index = l->index;                               \
        for (int64_t k = 0; k < n; k++, to += di, from += dj, index += by) {                                         \
            int64_t at = *index;                                                                                     \
            if (__builtin_expect((uint64_t)at >= (uint64_t)limit, 0)) {                                              \
                at += at < 0 ? below : 0;                                                                            \
                if ((uint64_t)at >= (uint64_t)limit) return k;                                                       \
            }                                                                                                        \
            const type y = to[at * size], v = *from;                                                                 \
            (void)y, to[at * size] = (type)(now);                                                                    \
        }                                                                                                            \
        return n;                                                                                                    \
    }                                                                                                                \
    static int64_t name##_at(const struct scatter_run *l)                                                            \
    {                                                                                                                \
        const bool line = l->di == 0 && l->by == 1 && l->size == 1; /* along what is written */                      \
        if (line && l->dj == 1) return name##_walk(l, 0, 1, 1, 1);                                                   \
        if (line && l->dj == 0) return name##_walk(l, 0, 0, 1, 1);                                                   \
        return name##_walk(l, l->di, l->dj, l->by, l->size);                                                         \
    }                                                                                                                \
    static int64_t name(const struct scatter_run *l)                                                                 \
    {                                                                                                                \
        type *const to = (type *)l->y;                                                                               \
        const type *const from = (const type *)l->u;                                                                 \
        const int64_t n = l->n, di = l->di, dj = l->dj, *const place = l->place;                                     \
        if (l->index) return name##_at(l);                                                                           \
        for (int64_t k = 0; place && k < n; k++) {                                                                   \
            const type y = to[place[k]], v = from[k * dj];                                                           \
            (void)y, to[place[k]] = (type)(now);                                                                     \
        }                                                                                                            \
        if (place) return n;                                                                                         \
        int64_t k = di == 1 && dj == 1 ? name##_blocks(n, to, from) : 0;                                             \
        if (di == 1 && dj == 0 && n) k = name##_same(n, to, *from);                                                  \
        for (; k < n; k++) {                                                                                         \
            const type y = to[k * di], v = from[k * dj];                                                             \
            (void)y, to[k * di] = (type)(now);                                                                       \
        }                                                                                                            \
        return n;                                                                                                    \
    }
/* A NaN that is there stays. */
#define JOIN(name, type, sum, times)                      \
    EACH(name##_add, type, sum)                           \
    EACH(name##_mul, type, times)                         \
    EACH(name##_max, type, ((y >= v) | (y != y)) ? y : v) \
    EACH(name##_min, type, ((y <= v) | (y != y)) ? y : v)
#define JOIN_INT(name, type) JOIN(name, type, (uint64_t)y + (uint64_t)v, (uint64_t)y * (uint64_t)v)
JOIN(join_f32, float, y + v, y *v)
JOIN(join_f64, double, y + v, y *v)
JOIN(join_bool, uint8_t, y | v, y &v)
JOIN_INT(join_u8, uint8_t)
JOIN_INT(join_i8, int8_t)
JOIN_INT(join_u16, uint16_t)
JOIN_INT(join_i16, int16_t)
JOIN_INT(join_u32, uint32_t)
JOIN_INT(join_i32, int32_t)
JOIN_INT(join_u64, uint64_t)
JOIN_INT(join_i64, int64_t)
EACH(put_1, uint8_t, v)
EACH(put_2, uint16_t, v)
EACH(put_4, uint32_t, v)
EACH(put_8, uint64_t, v)

typedef int64_t (*join_line)(const struct scatter_run *l);

static join_line scatter_join_of(const struct reference *a)
{
    static const join_line put[] = {[1] = put_1, [2] = put_2, [4] = put_4, [8] = put_8};
#define MODES(name)                                                                               \
    {                                                                                             \
        [REFERENCE_ADD] = name##_add, [REFERENCE_MUL] = name##_mul, [REFERENCE_MAX] = name##_max, \
        [REFERENCE_MIN] = name##_min                                                              \
    }
    static const join_line joins[][REFERENCE_MIN + 1] = {
        [REFERENCE_F32] = MODES(join_f32), [REFERENCE_F64] = MODES(join_f64), [REFERENCE_BOOL] = MODES(join_bool),
        [REFERENCE_U8] = MODES(join_u8),   [REFERENCE_I8] = MODES(join_i8),   [REFERENCE_U16] = MODES(join_u16),
        [REFERENCE_I16] = MODES(join_i16), [REFERENCE_U32] = MODES(join_u32), [REFERENCE_I32] = MODES(join_i32),
        [REFERENCE_U64] = MODES(join_u64), [REFERENCE_I64] = MODES(join_i64)};
#undef MODES
    return a->mode == REFERENCE_NONE ? put[a->bytes] : joins[a->type][a->mode];
}

/* -- the places that the indices name */

/* A walk over all dimensions but the last: offsets in what is read and written, and in the index tensors. k: the place
 * in the line. */
struct scatter_walk {
    int64_t at[REFERENCE_DIMS], from, to, index[REFERENCE_DIMS], k;
};

static void scatter_step(const struct reference *a, int ndim, struct scatter_walk *w)
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

/* Indices of one tensor along a line: element k of the data, `by` apart. Negative ones count from `below`. They are
 * added to places, or to `start`, `step` further for each. */
struct scatter_indices {
    const struct reference_index *x;
    const char *data;
    int64_t by, below, start, step;
};

#define LOOP(type, sets, start)                                                      \
    for (const type *index = (const type *)i->data; k < n; k++, index += by) {       \
        const int64_t given = (int64_t)*index, at = given + (given < 0 ? below : 0); \
        if ((uint64_t)at >= (uint64_t)limit) break;                                  \
        place[k] sets start + at *size;                                              \
    }
#define FIND_PLACES(type)                      \
    {                                          \
        if (adds)                              \
            LOOP(type, +=, 0)                  \
        else                                   \
            LOOP(type, =, i->start + k * step) \
        return k;                              \
    }
/* Finds n places. Returns the number of those in front of the first index that is out of range. */
static int64_t scatter_places(const struct scatter_indices *i, bool adds, int64_t n, int64_t *restrict place)
{
    const int64_t by = i->by, below = i->below, limit = i->x->limit, size = i->x->step, step = i->step;
    int64_t k = 0;
    switch (i->x->type) {
    case REFERENCE_BOOL:
    case REFERENCE_U8: FIND_PLACES(uint8_t);
    case REFERENCE_I8: FIND_PLACES(int8_t);
    case REFERENCE_U16: FIND_PLACES(uint16_t);
    case REFERENCE_I16: FIND_PLACES(int16_t);
    case REFERENCE_U32: FIND_PLACES(uint32_t);
    case REFERENCE_I32: FIND_PLACES(int32_t);
    default: FIND_PLACES(int64_t);
    }
}

static int64_t scatter_bytes(int type)
{
    switch (type) {
    case REFERENCE_BOOL:
    case REFERENCE_U8:
    case REFERENCE_I8: return 1;
    case REFERENCE_U16:
    case REFERENCE_I16: return 2;
    case REFERENCE_U32:
    case REFERENCE_I32: return 4;
    default: return 8;
    }
}

/* What index tensor i says from the place in the line on. */
static struct scatter_indices scatter_indices_at(const struct reference *a, const struct scatter_walk *w,
                                                 char *const *p, int i)
{
    const struct reference_index *x = &a->index[i];
    const int64_t by = x->stride[a->ndim - 1], first = x->offset + w->index[i] + w->k * by, step = a->to[a->ndim - 1];
    return (struct scatter_indices){
        x, p[x->input] + first * scatter_bytes(x->type), by, a->skip ? 0 : x->limit, w->to + w->k * step, step};
}

/* The places of up to n elements of a line. Returns how many have one; if that is fewer, *out_bad is the index of the
 * next. */
static int64_t scatter_find(const struct reference *a, const struct scatter_walk *w, char *const *p, int64_t n,
                            int64_t *place, struct reference_bad *out_bad)
{
    for (int64_t j = 0; j < n && !a->nindex; j++) place[j] = w->to + (w->k + j) * a->to[a->ndim - 1];
    for (int i = 0; i < a->nindex; i++) {
        const struct scatter_indices of = scatter_indices_at(a, w, p, i);
        const int64_t good = scatter_places(&of, i > 0, n, place);
        if (good < n && !a->skip)
            *out_bad = (struct reference_bad){reference_integer(of.x->type, of.data, good * of.by), of.x->limit};
        n = good;
    }
    return n;
}

/* -- a line of the walk's last dimension */

/* Are the n bytes from `x` on, which repeat, what is `period` behind them? */
static bool scatter_repeats(const char *x, int64_t n, int64_t period)
{
    int64_t k = 0;
    char differ = 0;
    for (; k + 4 * BLOCK <= n && !differ; k += 4 * BLOCK)
        for (int b = 0; b < 4 * BLOCK; b++) differ |= x[k + b] ^ x[k + b + period];
    for (; k < n && !differ; k++) differ = x[k] ^ x[k + period];
    return !differ;
}

/* Are the indices of every line equal? */
static bool scatter_are_rows(const struct reference *a)
{
    bool rows = a->ndim > 1;
    for (int i = 0; i < a->nindex; i++) rows &= a->index[i].stride[a->ndim - 1] == 0;
    return rows;
}

/* Are all indices of a line equal? Often that is known, or they were broadcast in memory. */
static bool scatter_is_row(const struct reference *a, const struct scatter_walk *w, char *const *p)
{
    for (int i = 0; i < a->nindex; i++) {
        const struct reference_index *x = &a->index[i];
        const int64_t by = x->stride[a->ndim - 1], bytes = scatter_bytes(x->type);
        const char *const data = p[x->input] + (x->offset + w->index[i]) * bytes;
        if (by > 1 || by < 0) return false;
        if (by && !scatter_repeats(data, (a->shape[a->ndim - 1] - 1) * bytes, bytes)) return false;
    }
    return true;
}

/* A line, or what is left of it, that one tensor of 64-bit indices leads. Returns how many have a place. */
static int64_t scatter_indexed(const struct reference *a, const struct scatter_walk *w, char *const *p,
                               struct reference_bad *out_bad)
{
    const int d = a->ndim - 1;
    const struct scatter_indices of = scatter_indices_at(a, w, p, 0);
    const int64_t n = a->shape[d] - w->k;
    const int64_t good =
        scatter_join_of(a)(&(struct scatter_run){.n = n,
                                                 .di = of.step,
                                                 .dj = a->from[d],
                                                 .index = (const int64_t *)of.data,
                                                 .by = of.by,
                                                 .below = of.below,
                                                 .limit = of.x->limit,
                                                 .size = of.x->step,
                                                 .y = p[a->nin] + of.start * a->bytes,
                                                 .u = p[a->values] + (w->from + w->k * a->from[d]) * a->bytes});
    if (good < n && !a->skip) *out_bad = (struct reference_bad){((const int64_t *)of.data)[good * of.by], of.x->limit};
    return good;
}

/* The next elements of a line, at most CHUNK: *out_n. Returns how many have a place. */
static int64_t scatter_some(const struct reference *a, const struct scatter_walk *w, char *const *p, int64_t *out_n,
                            struct reference_bad *out_bad)
{
    enum { CHUNK = 256 };
    const int d = a->ndim - 1;
    const int64_t left = a->shape[d] - w->k, n = left < CHUNK ? left : CHUNK;
    int64_t place[CHUNK];
    const int64_t good = scatter_find(a, w, p, n, place, out_bad);
    scatter_join_of(a)(&(struct scatter_run){.n = good,
                                             .dj = a->from[d],
                                             .place = place,
                                             .y = p[a->nin],
                                             .u = p[a->values] + (w->from + w->k * a->from[d]) * a->bytes});
    *out_n = n;
    return good;
}

/* n lines along the dimension in front of the last. The indices of each are equal. */
static bool scatter_rows(const struct reference *a, const struct scatter_walk *w, char *const *p, int64_t n,
                         struct reference_bad *out_bad)
{
    const int d = a->ndim - 1, outer = d ? d - 1 : d;
    const join_line join = scatter_join_of(a);
    struct scatter_run l = {.n = a->shape[d], .di = a->to[d], .dj = a->from[d], .u = p[a->values] + w->from * a->bytes};
    char *y = p[a->nin] + w->to * a->bytes;
    for (int64_t k = 0; k < n; k++, y += a->to[outer] * a->bytes, l.u += a->from[outer] * a->bytes) {
        int64_t place = 0;
        bool good = true;
        for (int i = 0; i < a->nindex && good; i++) {
            const struct reference_index *x = &a->index[i];
            const int64_t given =
                reference_integer(x->type, p[x->input], x->offset + w->index[i] + k * x->stride[outer]);
            const int64_t at = given + (given < 0 && !a->skip ? x->limit : 0);
            good = (uint64_t)at < (uint64_t)x->limit;
            if (!good) *out_bad = (struct reference_bad){given, x->limit};
            place += at * x->step;
        }
        if (!good && !a->skip) return false;
        l.y = y + place * a->bytes;
        if (good) join(&l);
    }
    return true;
}

static bool scatter_line(const struct reference *a, struct scatter_walk *w, char *const *p,
                         struct reference_bad *out_bad)
{
    const int64_t size = a->shape[a->ndim - 1];
    if (scatter_is_row(a, w, p)) return scatter_rows(a, w, p, 1, out_bad);
    const bool indexed = a->nindex == 1 && scatter_bytes(a->index[0].type) == 8;
    while (w->k < size) {
        int64_t n = size - w->k;
        const int64_t good = indexed ? scatter_indexed(a, w, p, out_bad) : scatter_some(a, w, p, &n, out_bad);
        if (good < n && !a->skip) return false;
        w->k += good < n ? good + 1 : n; /* behind an index that is skipped */
    }
    w->k = 0;
    return true;
}

/* What indices do not name: x, or one number. */
static void start_scatter(const struct reference *a, const char *x, char *y)
{
    if (!a->uniform) {
        if (a->elements) memcpy(y, x, (size_t)(a->elements * a->bytes));
        return;
    }
    bool zero = true;
    for (int b = 0; b < a->bytes; b++) zero &= !x[b];
    if (zero) memset(y, 0, (size_t)(a->elements * a->bytes));
    for (int64_t k = 0; k < a->elements && !zero; k++) memcpy(y + k * a->bytes, x, (size_t)a->bytes);
}

static enum reference_error scatter(const struct reference *given, char *const *p, void *scratch,
                                    struct reference_bad *out_bad)
{
    struct reference a = *given;
    struct scatter_walk w = {0};
    int64_t n = 1;
    (void)scratch;
    if (!a.ndim) a.shape[a.ndim++] = 1;
    const bool rows = scatter_are_rows(&a);
    const int outer = a.ndim - 1 - rows;
    for (int d = 0; d < outer; d++) n *= a.shape[d];
    start_scatter(&a, p[0], p[a.nin]);
    if (!a.shape[a.ndim - 1]) return REFERENCE_GOOD; /* indices that nothing uses may have any value */
    for (; n > 0; n--, scatter_step(&a, outer, &w))
        if (!(rows ? scatter_rows(&a, &w, p, a.shape[outer], out_bad) : scatter_line(&a, &w, p, out_bad)))
            return REFERENCE_INDEX;
    return REFERENCE_GOOD;
}

REFERENCE_KIND reference_scatter = {"reference_scatter", "reference_scatter.c", NULL, scatter};
