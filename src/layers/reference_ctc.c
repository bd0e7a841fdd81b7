/* CTC loss: the probability of all alignments of a label sequence, and its gradient (A. Graves et al.: Connectionist
 * temporal classification, 2006). Optional blanks stand before, between and behind the labels. Sums of probabilities
 * are kept as logarithms. Matrices: rows are times, with `outer` sequences each; columns are labels. rhs is the length
 * of a sequence's row in the tensor of targets; 0: targets are concatenated, n in all. option: the blank's label.
 * check: sequences without any alignment have a zero gradient. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "layers/reference_matrix.h"

enum { CTC_X, CTC_TARGETS, CTC_TIMES, CTC_LENGTHS, CTC_DY }; /* inputs */

/* One sequence. */
struct ctc {
    double *x;                     /* [times x labels] */
    int64_t *label;                /* of each state */
    int64_t times, labels, states; /* states: of labels and blanks */
    double *alpha;
};

/* The largest number of labels of one sequence. */
static int64_t most_targets(const struct reference *a)
{
    return a->rhs ? a->rhs : a->n;
}

/* x, gradient, labels, alpha, and two lines of beta */
static size_t ctc_scratch(const struct reference *a)
{
    const int64_t states = 2 * most_targets(a) + 1;
    return (size_t)(2 * a->rows * a->cols + states + a->rows * states + 2 * states) * sizeof(double);
}

static double log_add(double x, double y)
{
    const double most = x > y ? x : y;
    return most == -INFINITY ? most : most + log1p(exp(-fabs(x - y)));
}

/* May an alignment go from state s - 2 to state s, past a blank? */
static bool skips(const struct ctc *c, int64_t s)
{
    return s >= 2 && c->label[s] != c->label[s - 2] && s % 2;
}

/* alpha[t s]: the logarithm of the probability of all alignments that are in state s at time t. Returns the loss. */
static double ctc_forward(struct ctc *c)
{
    if (!c->times) return c->states > 1 ? INFINITY : 0;
    for (int64_t t = 0; t < c->times; t++)
        for (int64_t s = 0; s < c->states; s++) {
            const double *before = c->alpha + (t - 1) * c->states;
            double sum = t ? before[s] : s < 2 ? 0 : -INFINITY;
            if (t && s > 0) sum = log_add(sum, before[s - 1]);
            if (t && skips(c, s)) sum = log_add(sum, before[s - 2]);
            c->alpha[t * c->states + s] = sum + c->x[t * c->labels + c->label[s]];
        }
    const double *last = c->alpha + (c->times - 1) * c->states + c->states - 1;
    return -(c->states > 1 ? log_add(last[0], last[-1]) : last[0]);
}

/* d[times x labels]: exp(x) minus the share of each label at a time, times dy. beta is alpha of the reversed sequence.
 */
static void ctc_backward(struct ctc *c, double loss, double dy, double *beta, double *d)
{
    double *now = beta, *later = beta + c->states;
    for (int64_t t = c->times - 1; t >= 0; t--) {
        const double *x = c->x + t * c->labels;
        double *row = d + t * c->labels;
        for (int64_t k = 0; k < c->labels; k++) row[k] = -INFINITY;
        for (int64_t s = 0; s < c->states; s++) {
            double sum = t < c->times - 1 ? later[s] : s >= c->states - 2 ? 0 : -INFINITY;
            if (t < c->times - 1 && s + 1 < c->states) sum = log_add(sum, later[s + 1]);
            if (t < c->times - 1 && s + 2 < c->states && skips(c, s + 2)) sum = log_add(sum, later[s + 2]);
            now[s] = sum + x[c->label[s]];
            row[c->label[s]] = log_add(row[c->label[s]], now[s] + c->alpha[t * c->states + s]);
        }
        for (int64_t k = 0; k < c->labels; k++) row[k] = (exp(x[k]) - exp(row[k] + loss - x[k])) * dy;
        double *swap = now;
        now = later;
        later = swap;
    }
}

/* Reads sequence i into c, whose memory is there. Concatenated targets begin at *io_from. */
static enum reference_error read_sequence(const struct reference *a, char *const *p, int64_t i, int64_t *io_from,
                                          struct ctc *c, struct reference_bad *out_bad)
{
    const int64_t times = ((const int64_t *)p[CTC_TIMES])[i], length = ((const int64_t *)p[CTC_LENGTHS])[i];
    const int64_t from = a->rhs ? i * a->rhs : *io_from, room = a->rhs ? a->rhs : a->n - from;
    *out_bad = (struct reference_bad){times, a->rows + 1};
    if (times < 0 || times > a->rows) return REFERENCE_INDEX;
    *out_bad = (struct reference_bad){length, room + 1};
    if (length < 0 || length > room) return REFERENCE_INDEX;
    *io_from += length;
    for (int64_t s = 0; s < 2 * length + 1; s++) {
        c->label[s] = s % 2 ? ((const int64_t *)p[CTC_TARGETS])[from + s / 2] : a->option;
        *out_bad = (struct reference_bad){c->label[s], a->cols};
        if (c->label[s] < 0 || c->label[s] >= a->cols) return REFERENCE_INDEX;
    }
    for (int64_t t = 0; t < times; t++)
        reference_load(a, p[CTC_X], (t * a->outer + i) * a->cols, a->cols, c->x + t * a->cols);
    c->times = times;
    c->states = 2 * length + 1;
    return REFERENCE_GOOD;
}

/* With dy the output is the gradient, else the loss. */
static enum reference_error run_ctc(const struct reference *a, char *const *p, void *scratch,
                                    struct reference_bad *out_bad)
{
    const int64_t states = 2 * most_targets(a) + 1, size = a->rows * a->cols;
    const bool gradient = a->nin > CTC_DY;
    double *x = scratch, *d = x + size;
    int64_t *label = (int64_t *)(d + size), from = 0;
    struct ctc c = {.x = x, .label = label, .labels = a->cols, .alpha = (double *)(label + states)};
    for (int64_t i = 0; i < a->outer; i++) {
        double dy, loss;
        const enum reference_error error = read_sequence(a, p, i, &from, &c, out_bad);
        if (error) return error;
        loss = ctc_forward(&c);
        if (!gradient) {
            reference_store(a, &loss, 1, p[a->nin], i);
            continue;
        }
        reference_load(a, p[CTC_DY], i, 1, &dy);
        memset(d, 0, (size_t)size * sizeof *d);
        if (!(a->check && loss == INFINITY)) ctc_backward(&c, loss, dy, c.alpha + a->rows * states, d);
        for (int64_t t = 0; t < a->rows; t++)
            reference_store(a, d + t * a->cols, a->cols, p[a->nin], (t * a->outer + i) * a->cols);
    }
    return REFERENCE_GOOD;
}

REFERENCE_KIND reference_ctc = {"reference_ctc", "reference_ctc.c", ctc_scratch, run_ctc};
