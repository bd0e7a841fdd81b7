/* Rows that differ from each other: a stable merge sort brings equal ones together. */
#include "layers/reference_order.h"

static int unique_order(double x, double y) /* NaN is the largest */
{
    if (x != x || y != y) return (x != x) - (y != y);
    return (x > y) - (x < y);
}

/* -1, 0, 1: element i of the data is less than, equal to, greater than element k. */
static int unique_compare(const struct reference *a, const char *data, int64_t i, int64_t k)
{
    const void *p = data;
    if (a->type == REFERENCE_F32) return unique_order(((const float *)p)[i], ((const float *)p)[k]);
    if (a->type == REFERENCE_F64) return unique_order(((const double *)p)[i], ((const double *)p)[k]);
    if (a->type == REFERENCE_U64) {
        const uint64_t x = ((const uint64_t *)p)[i], y = ((const uint64_t *)p)[k];
        return (x > y) - (x < y);
    }
    const int64_t x = reference_integer(a->type, p, i), y = reference_integer(a->type, p, k);
    return (x > y) - (x < y);
}

static int unique_compare_rows(const struct reference *a, const char *data, int64_t i, int64_t k)
{
    int c = 0;
    for (int64_t e = 0; e < a->inner && !c; e++) c = unique_compare(a, data, i * a->inner + e, k * a->inner + e);
    return c;
}

static int unique_is_nan(const struct reference *a, const char *data, int64_t i)
{
    const void *p = data;
    if (a->type == REFERENCE_F32) return ((const float *)p)[i] != ((const float *)p)[i];
    return a->type == REFERENCE_F64 && ((const double *)p)[i] != ((const double *)p)[i];
}

/* Rows that sorting finds equal; without a->check, one that has a NaN equals no other. */
static int unique_same(const struct reference *a, const char *data, int64_t i, int64_t k)
{
    if (unique_compare_rows(a, data, i, k)) return 0;
    for (int64_t e = 0; e < a->inner && !a->check; e++)
        if (unique_is_nan(a, data, i * a->inner + e)) return 0;
    return 1;
}

static int unique_before(const struct reference *a, const char *data, int64_t i, int64_t k)
{
    return unique_compare_rows(a, data, i, k) < 0;
}

static size_t unique_room(const struct reference *a)
{
    return 2 * (size_t)a->n * sizeof(int64_t);
}

/* Outputs: the first row of each group, the group of each row, the size of each group. Of `keep` groups there is room
 * for the first and the size. */
static enum reference_error unique(const struct reference *a, char *const *p, void *scratch,
                                   struct reference_bad *out_bad)
{
    int64_t *out[3], *first, *group, *size, groups = 0;
    for (int i = 0; i < 3; i++) out[i] = (int64_t *)(void *)p[a->nin + i];
    first = out[0], group = out[1], size = out[2];
    int64_t *const numbers = scratch, *const spare = numbers + a->n;
    for (int64_t i = 0; i < a->n; i++) numbers[i] = i;
    int64_t *const order = reference_order(a, p[0], unique_before, a->n, numbers, spare);
    int64_t *const leader = order == numbers ? spare : numbers; /* of a row: the first of its group */
    for (int64_t k = 0; k < a->n; k++)
        leader[order[k]] = k && unique_same(a, p[0], order[k - 1], order[k]) ? leader[order[k - 1]] : order[k];
    for (int64_t k = 0; k < a->n; k++) {
        const int64_t row = a->option ? order[k] : k; /* sorted, or as they appear: a leader is in front of its group */
        const int64_t g = group[row] = leader[row] == row ? groups++ : group[leader[row]];
        if (g >= a->keep) continue;
        if (leader[row] == row) first[g] = row, size[g] = 0;
        size[g]++;
    }
    out_bad->index = groups;
    return REFERENCE_GOOD;
}

REFERENCE_KIND reference_unique = {"reference_unique", "reference_unique.c", unique_room, unique};
