/* Boxes that are not hidden by one with a higher score (non-maximum suppression), as ONNX Runtime and torchvision
 * compute it: results of float are rounded after each operation. */
#include "layers/reference_order.h"

enum { BOX_ORDERED, BOX_CORNERS, BOX_CENTER }; /* a->option, in the order of the layer's modes */
struct nms_box {
    double low[2], high[2], area;
};

static double nms_rounded(const struct reference *a, double v)
{
    return a->type == REFERENCE_F32 ? (float)v : v;
}

static double nms_real(const struct reference *a, const char *data, int64_t i)
{
    const void *p = data;
    return a->type == REFERENCE_F32 ? ((const float *)p)[i] : ((const double *)p)[i];
}

static struct nms_box nms_box(const struct reference *a, const char *boxes, int64_t i)
{
    struct nms_box b;
    for (int d = 0; d < 2; d++) {
        const double x = nms_real(a, boxes, i * 4 + d), y = nms_real(a, boxes, i * 4 + 2 + d);
        const int swapped = a->option == BOX_CORNERS && x > y;
        b.low[d] = swapped ? y : x;
        b.high[d] = swapped ? x : y;
        if (a->option != BOX_CENTER) continue;
        b.low[d] = nms_rounded(a, x - nms_rounded(a, y / 2));
        b.high[d] = nms_rounded(a, x + nms_rounded(a, y / 2));
    }
    b.area = nms_rounded(a, nms_rounded(a, b.high[0] - b.low[0]) * nms_rounded(a, b.high[1] - b.low[1]));
    return b;
}

static int nms_hides(const struct reference *a, const struct nms_box *x, const struct nms_box *y, double limit)
{
    double common = 1;
    for (int d = 0; d < 2; d++) {
        const double low = x->low[d] < y->low[d] ? y->low[d] : x->low[d];
        const double high = y->high[d] < x->high[d] ? y->high[d] : x->high[d];
        const double size = nms_rounded(a, high - low);
        common = nms_rounded(a, common * (size > 0 ? size : 0));
    }
    const double all = nms_rounded(a, nms_rounded(a, x->area + y->area) - common);
    if (a->option != BOX_ORDERED && !(common > 0 && x->area > 0 && y->area > 0 && all > 0)) return 0;
    return nms_rounded(a, common / all) > limit; /* 0/0 hides nothing */
}

/* The higher score first, NaN being the highest; equal ones keep their order. */
static int nms_before(const struct reference *a, const char *scores, int64_t i, int64_t k)
{
    const double x = nms_real(a, scores, i), y = nms_real(a, scores, k);
    return x > y || (x != x && y == y);
}

static size_t nms_room(const struct reference *a)
{
    return (size_t)a->n * (2 * sizeof(int64_t) + sizeof(struct nms_box));
}

/* Inputs: boxes, scores, the most of one class, the limit of the overlap, the limit of scores (or none). */
static enum reference_error select_boxes(const struct reference *a, char *const *p, void *scratch,
                                         struct reference_bad *out_bad)
{
    int64_t *const to = (int64_t *)(void *)p[a->nin], *const first = scratch, *const second = first + a->n;
    struct nms_box *const chosen = (struct nms_box *)(void *)(second + a->n);
    const int64_t most = *(const int64_t *)(const void *)p[2];
    const double limit = *(const double *)(const void *)p[3];
    for (int64_t line = 0; line < a->outer * a->rows; line++) {
        const char *const scores = p[1] + line * a->n * a->bytes;
        const char *const boxes = p[0] + line / a->rows * a->n * 4 * a->bytes;
        int64_t n = 0, found = 0;
        for (int64_t i = 0; i < a->n; i++)
            if (a->nin < 5 || nms_real(a, scores, i) > *(const double *)(const void *)p[4]) first[n++] = i;
        const int64_t *const order = reference_order(a, scores, nms_before, n, first, second);
        for (int64_t k = 0; k < n && found < most; k++) {
            const struct nms_box b = nms_box(a, boxes, order[k]);
            int hidden = 0;
            for (int64_t c = 0; c < found && !hidden; c++) hidden = nms_hides(a, &chosen[c], &b, limit);
            if (hidden) continue;
            chosen[found++] = b;
            const int64_t row[] = {line / a->rows, line % a->rows, order[k]}, at = out_bad->index++;
            for (int d = 0; d < 3 && at < a->keep; d++) to[at * 3 + d] = row[d];
        }
    }
    return REFERENCE_GOOD;
}

REFERENCE_KIND reference_nms = {"reference_nms", "reference_nms.c", nms_room, select_boxes};
