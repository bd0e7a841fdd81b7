/* Sorts lines as pairs of a key and a position. The key is an integer with the order in which the values are wanted. */
#include <stdbool.h>
#include <string.h>

#include "layers/reference.h"

struct item {
    int64_t key, at;
};

/* The integer with the order of the values. */
static int64_t key_of(int type, const void *data, int64_t i)
{
    switch (type) {
    case REFERENCE_U64: return (int64_t)(((const uint64_t *)data)[i] ^ (uint64_t)1 << 63);
    case REFERENCE_F32: {
        float v = ((const float *)data)[i];
        int32_t bits;
        if (v != v) return INT32_MAX; /* NaN is the largest */
        v += 0.0f;                    /* -0 and 0 are equal */
        memcpy(&bits, &v, sizeof bits);
        return bits < 0 ? (int64_t)INT32_MIN - bits : bits;
    }
    case REFERENCE_F64: {
        double v = ((const double *)data)[i];
        int64_t bits;
        if (v != v) return INT64_MAX;
        v += 0.0;
        memcpy(&bits, &v, sizeof bits);
        return bits < 0 ? INT64_MIN - bits : bits;
    }
    default: return reference_integer(type, data, i);
    }
}

static struct item item_of(const struct reference *a, const char *in, int64_t from, int64_t j)
{
    const int64_t key = key_of(a->type, in, from + j * a->inner);
    return (struct item){a->down ? ~key : key, j};
}

static void insert(struct item *a, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        const struct item v = a[i];
        int64_t j = i;
        for (; j > 0 && v.key < a[j - 1].key; j--) a[j] = a[j - 1];
        a[j] = v;
    }
}

static void merge(const struct item *a, int64_t n, int64_t m, struct item *out)
{
    const struct item *b = a + n, *const a_end = b, *const b_end = b + m;
    while (a < a_end && b < b_end) *out++ = b->key < a->key ? *b++ : *a++;
    memcpy(out, a, (size_t)(a_end - a) * sizeof *out);
    memcpy(out + (a_end - a), b, (size_t)(b_end - b) * sizeof *out);
}

/* Merge sort. Returns where the result is: `a`, or `b`, which has the same size. */
static const struct item *sort_by_merging(struct item *a, struct item *b, int64_t n)
{
    enum { RUN = 16 };
    for (int64_t i = 0; i < n; i += RUN) insert(a + i, n - i < RUN ? n - i : RUN);
    for (int64_t run = RUN; run < n; run *= 2) {
        for (int64_t i = 0; i < n; i += 2 * run) {
            const int64_t left = n - i < run ? n - i : run, right = n - i - left < run ? n - i - left : run;
            merge(a + i, left, right, b + i);
        }
        struct item *const swap = a;
        a = b;
        b = swap;
    }
    return a;
}

/* Radix sort of keys with 32 bits, of which those in `flip` are inverted; the same contract. */
static const struct item *sort_by_digits(struct item *a, struct item *b, int64_t n, uint32_t flip)
{
    enum { BITS = 8, DIGITS = 1 << BITS };
    for (int shift = 0; shift < 32; shift += BITS) {
#define DIGIT(item) ((((uint32_t)(item).key ^ flip) >> shift) & (DIGITS - 1))
        int64_t first[DIGITS] = {0}, sum = 0;
        for (int64_t i = 0; i < n; i++) first[DIGIT(a[i])]++;
        if (first[DIGIT(a[0])] == n) continue;
        for (int d = 0; d < DIGITS; d++) {
            const int64_t count = first[d];
            first[d] = sum;
            sum += count;
        }
        for (int64_t i = 0; i < n; i++) b[first[DIGIT(a[i])]++] = a[i];
#undef DIGIT
        struct item *const swap = a;
        a = b;
        b = swap;
    }
    return a;
}

static bool is_wide(const struct reference *a)
{
    return a->type == REFERENCE_U64 || a->type == REFERENCE_I64 || a->type == REFERENCE_F64;
}

/* Sorts stably. */
static const struct item *sort(const struct reference *a, struct item *items, struct item *room, int64_t n)
{
    enum { FEW = 64 };
    if (n < FEW || is_wide(a)) return sort_by_merging(items, room, n);
    return sort_by_digits(items, room, n, a->type == REFERENCE_U32 ? 0 : UINT32_C(1) << 31);
}

/* From j on, the next element that may be before the element `last` in the order; a NaN may be anywhere. Blocks that
 * are side by side are vectors. */
enum { SORT_BLOCK = 32 };
#define NEXT(type, op)                                                                \
    {                                                                                 \
        const type *x = (const type *)in + from, limit = x[last * a->inner];          \
        for (int any = 0; a->inner == 1 && j + SORT_BLOCK <= a->n; j += SORT_BLOCK) { \
            for (int k = 0; k < SORT_BLOCK; k++) any |= x[j + k] op limit ? 0 : 1;    \
            if (any) break;                                                           \
        }                                                                             \
        while (j < a->n && x[j * a->inner] op limit) j++;                             \
        return j;                                                                     \
    }
#define NEXT_OF(type)      \
    {                      \
        if (a->down)       \
            NEXT(type, <=) \
        else               \
            NEXT(type, >=) \
    }
static int64_t next_before(const struct reference *a, const char *in, int64_t from, int64_t j, int64_t last)
{
    if (a->type == REFERENCE_F32) NEXT_OF(float);
    if (a->type == REFERENCE_F64) NEXT_OF(double);
    return j;
}

/* The item with a number in the stable order: digit by digit of the keys, the items with the digit of the wanted one.
 */
static const struct item *item_number(const struct reference *a, struct item *items, struct item *room, int64_t number)
{
    enum { BITS = 8, DIGITS = 1 << BITS, FEW = 16 };
    const bool wide = is_wide(a);
    const uint64_t flip = wide ? (uint64_t)1 << 63 : a->type == REFERENCE_U32 ? 0 : (uint64_t)1 << 31;
    int64_t n = a->n;
    for (int shift = (wide ? 64 : 32) - BITS; shift >= 0 && n > FEW; shift -= BITS) {
#define DIGIT(item) ((((uint64_t)(item).key ^ flip) >> shift) & (DIGITS - 1))
        int64_t count[DIGITS] = {0}, m = 0;
        uint64_t digit = 0;
        for (int64_t i = 0; i < n; i++) count[DIGIT(items[i])]++;
        for (; number >= count[digit]; digit++) number -= count[digit];
        for (int64_t i = 0; i < n; i++) {
            room[m] = items[i];
            m += DIGIT(items[i]) == digit;
        }
#undef DIGIT
        struct item *const swap = items;
        items = room;
        room = swap;
        n = m;
    }
    insert(items, n);
    return items + number;
}

/* The first items of a line, if these are few: sorted as they are read. Items that are not before the last of them are
 * dropped. Reading goes forward, so that stays stable. */
static void few_items(const struct reference *a, const char *in, int64_t from, struct item *items, int64_t keep)
{
    int64_t n = 0;
    for (int64_t j = 0; j < a->n; j++) {
        if (n == keep && (j = next_before(a, in, from, j, items[n - 1].at)) == a->n) break;
        const struct item v = item_of(a, in, from, j);
        if (n == keep && v.key >= items[n - 1].key) continue;
        int64_t at = n < keep ? n++ : n - 1;
        for (; at > 0 && v.key < items[at - 1].key; at--) items[at] = items[at - 1];
        items[at] = v;
    }
}

/* The first items of a line, up to those that are wanted, sorted. A buffer that is full is sorted and cut to as many;
 * from then on items that are not before the last of them are dropped as they are read. Reading goes forward, so that
 * stays stable. */
static const struct item *first_items(const struct reference *a, const char *in, int64_t from, struct item *items)
{
    enum { FEW = 16 };
    const int64_t keep = a->first + a->keep, room = 4 * keep < a->n / 2 ? 4 * keep : a->n;
    int64_t n = 0;
    bool cut = false;
    if (keep <= FEW && keep < a->n) {
        few_items(a, in, from, items, keep);
        return items;
    }
    for (int64_t j = 0; j < a->n; j++) {
        if (cut && (j = next_before(a, in, from, j, items[keep - 1].at)) == a->n) break;
        const struct item v = item_of(a, in, from, j);
        if (cut && v.key >= items[keep - 1].key) continue;
        items[n++] = v;
        if (n < room || j + 1 == a->n) continue;
        const struct item *sorted = sort(a, items, items + room, n);
        if (sorted != items) memcpy(items, sorted, (size_t)keep * sizeof *items);
        n = keep;
        cut = true;
    }
    return sort(a, items, items + room, n);
}

/* The wanted items of a line. */
static const struct item *wanted(const struct reference *a, const char *in, int64_t from, struct item *items)
{
    if (a->keep != 1 || 16 * a->first < a->n) return first_items(a, in, from, items) + a->first;
    for (int64_t j = 0; j < a->n; j++) items[j] = item_of(a, in, from, j);
    return item_number(a, items, items + a->n, a->first);
}

static size_t sort_scratch(const struct reference *a)
{
    return 2 * (size_t)a->n * sizeof(struct item);
}

static enum reference_error sort_lines(const struct reference *a, char *const *p, void *scratch,
                                       struct reference_bad *out_bad)
{
    const size_t size = (size_t)a->bytes;
    const char *in = p[0];
    char *values = p[a->nin];
    int64_t *positions = (int64_t *)p[a->nin + 1];
    struct item *items = scratch;
    (void)out_bad;
    if (!a->n || !a->keep) return REFERENCE_GOOD; /* no items either */
    for (int64_t o = 0; o < a->outer; o++)
        for (int64_t i = 0; i < a->inner; i++) {
            const struct item *sorted = wanted(a, in, o * a->n * a->inner + i, items);
            for (int64_t j = 0; j < a->keep; j++) {
                const int64_t to = (o * a->keep + j) * a->inner + i, from = (o * a->n + sorted[j].at) * a->inner + i;
                memcpy(values + (size_t)to * size, in + (size_t)from * size, size);
                positions[to] = sorted[j].at;
            }
        }
    return REFERENCE_GOOD;
}

REFERENCE_KIND reference_sort = {"reference_sort", "reference_sort.c", sort_scratch, sort_lines};
