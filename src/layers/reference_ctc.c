/* CTC loss: the probability of all alignments of a label sequence, and its gradient (A. Graves et al.: Connectionist
 * temporal classification, 2006). Optional blanks stand before, between and behind the labels. Probabilities are
 * numbers m 2^e with exponents of their own, so that none vanishes and no step needs a logarithm; loops over states are
 * vectors. Matrices: rows are times, with `outer` sequences each; columns are labels. rhs is the length of a sequence's
 * row in the tensor of targets; 0: targets are concatenated, n in all. option: the blank's label. check: sequences
 * without any alignment have a zero gradient. */
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "layers/reference_matrix.h"

enum { CTC_X, CTC_TARGETS, CTC_TIMES, CTC_LENGTHS, CTC_DY }; /* inputs */

/* One sequence. A line is the probabilities of all its states at one time: label i of n, and blank i of n + 1 in front
 * of it. A number is m 2^e, m near 1, or m = 0 and e = -infinity. A line has four parts with room for n + 2 elements: m
 * and e of labels, m and e of blanks; it begins at label 0, and labels -1 and n are 0. */
struct ctc {
    int64_t times, n;    /* n: labels, without blanks */
    int64_t *label;      /* [n + 1] and the blank */
    int64_t option;      /* the blank's label */
    double *gate;        /* [n + 1] 0 where label i may follow label i - 1 without a blank, else -infinity */
    double *now, *lines; /* [times x 2 (n + 1)] exp(x) of labels and the blank behind them: m, then e */
    double m, e;         /* the probability of all alignments */
    double *x, *d;       /* for the gradient: of one time */
};

/* The largest number of labels of one sequence. */
static int64_t most_targets(const struct reference *a)
{
    return a->rhs ? a->rhs : a->n;
}

/* Lines of alpha in memory: all times and what is in front of them. The loss needs two. */
static int64_t ctc_lines(const struct reference *a)
{
    return a->nin > CTC_DY ? a->rows + 1 : 2;
}

/* label, gate, exp(x), x, d, alpha, two lines of beta */
static size_t ctc_scratch(const struct reference *a)
{
    const int64_t n = most_targets(a), lines = ctc_lines(a) + 2;
    return (size_t)(2 * (n + 1) + 2 * a->rows * (n + 1) + 2 * a->cols + 4 * lines * (n + 2)) * sizeof(double);
}

/* 2^e, e is an integer; at least 2^-1022, else 0, and also if e is NaN; infinity from 2^1024 on. */
static inline double ctc_power(double e)
{
    e = e > -1023 ? e : -1023;
    e = e < 1024 ? e : 1024;
    const double last_bits = e + (0x1.8p52 + 1023); /* e + 1023, the exponent's bits of a double */
    uint64_t bits;
    double power;
    memcpy(&bits, &last_bits, sizeof bits);
    bits <<= 52;
    memcpy(&power, &bits, sizeof power);
    return power;
}

static inline double ctc_most(double x, double y)
{
    return x > y ? x : y;
}

/* m 2^e with m in [1, 2), or 0. NaN stays. */
static inline void ctc_put(double m, double e, double *out_m, double *out_e)
{
    uint64_t bits, scale;
    double above, power;
    memcpy(&bits, &m, sizeof bits);
    bits >>= 52;
    scale = (2046 - bits) << 52;
    bits |= 0x4330000000000000; /* 2^52 + the exponent's bits */
    memcpy(&above, &bits, sizeof above);
    memcpy(&power, &scale, sizeof power);
    *out_m = m * power;
    *out_e = e + (above - (0x1p52 + 1023));
}

/* exp(x) = m 2^e: e = x / ln 2 rounded, m is a Taylor polynomial of the rest. */
static inline void ctc_exp(double x, double *out_m, double *out_e)
{
    x = x < -DBL_MAX ? -DBL_MAX : x; /* e becomes infinite, but m is a number */
    x = x > DBL_MAX ? DBL_MAX : x;
    const double e = (x * 1.4426950408889634 + 0x1.8p52) - 0x1.8p52;
    double r = (x - e * 6.93147180369123816490e-01) - e * 1.90821492927058770002e-10;
    r = r < -0.5 ? -0.5 : r; /* is out of the range where |x| is huge, and no digit behind the point is left */
    r = r > 0.5 ? 0.5 : r;
    double m = 1.0 / 6227020800;
    m = m * r + 1.0 / 479001600;
    m = m * r + 1.0 / 39916800;
    m = m * r + 1.0 / 3628800;
    m = m * r + 1.0 / 362880;
    m = m * r + 1.0 / 40320;
    m = m * r + 1.0 / 5040;
    m = m * r + 1.0 / 720;
    m = m * r + 1.0 / 120;
    m = m * r + 1.0 / 24;
    m = m * r + 1.0 / 6;
    m = m * r + 0.5;
    m = m * r + 1;
    *out_m = m * r + 1;
    *out_e = e;
}

static double *ctc_line(const struct ctc *c, int64_t i)
{
    return c->lines + i * 4 * (c->n + 2) + 1;
}

/* The line in front of the first time: all is 0 but `start`, a blank. */
static void ctc_start(const struct ctc *c, double *line, int64_t start)
{
    const int64_t width = c->n + 2;
    for (int64_t i = -1; i < width - 1; i++) {
        line[i] = line[2 * width + i] = 0;
        line[width + i] = line[3 * width + i] = -INFINITY;
    }
    line[2 * width + start] = 1;
    line[3 * width + start] = 0;
}

/* The labels at a time, whose exp(x) is `now`, from the line of the time before (next 0) or after (next 1). */
static void ctc_labels(const struct ctc *c, int next, const double *now, const double *from, double *restrict to)
{
    const int64_t n = c->n, width = n + 2;
    const double *gate = c->gate + next, *blank = from + 2 * width + next, *far = from - 1 + 2 * next;
    to[-1] = to[n] = 0;
    to[width - 1] = to[width + n] = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        const double x = from[width + i], y = blank[width + i], z = far[width + i] + gate[i];
        const double most = ctc_most(ctc_most(x, y), z);
        const double sum =
            from[i] * ctc_power(x - most) + blank[i] * ctc_power(y - most) + far[i] * ctc_power(z - most);
        ctc_put(sum * now[i], most + now[n + 1 + i], &to[i], &to[width + i]);
    }
}

/* The same for blanks. */
static void ctc_blanks(const struct ctc *c, int next, const double *now, const double *from, double *restrict to)
{
    const int64_t n = c->n, width = n + 2;
    const double *blank = from + 2 * width, *label = from - 1 + next, m = now[n], e = now[2 * n + 1];
    to += 2 * width;
    for (int64_t i = 0; i <= n; i++) {
        const double x = blank[width + i], y = label[width + i], most = ctc_most(x, y);
        const double sum = blank[i] * ctc_power(x - most) + label[i] * ctc_power(y - most);
        ctc_put(sum * m, most + e, &to[i], &to[width + i]);
    }
}

static void ctc_step(const struct ctc *c, int64_t time, int next, const double *from, double *to)
{
    const double *now = c->now + time * 2 * (c->n + 1);
    ctc_labels(c, next, now, from, to);
    ctc_blanks(c, next, now, from, to);
}

/* The probability of all alignments. Line t + 1 gets those of the states at time t; of fewer lines, one after the
 * other. */
static void ctc_forward(struct ctc *c, int64_t lines)
{
    const int64_t n = c->n, width = n + 2;
    ctc_start(c, ctc_line(c, 0), 0);
    for (int64_t t = 0; t < c->times; t++) ctc_step(c, t, 0, ctc_line(c, t % lines), ctc_line(c, (t + 1) % lines));
    const double *label = ctc_line(c, c->times % lines) + n - 1, *blank = label + 1 + 2 * width;
    const double x = label[width], y = blank[width], most = ctc_most(x, y);
    ctc_put(label[0] * ctc_power(x - most) + blank[0] * ctc_power(y - most), most, &c->m, &c->e);
}

/* Subtracts the shares of states at a time from their labels in d. a and b are their lines from the front and from
 * behind, which both contain exp(x); `share` is memory for a line. */
static void ctc_shares(const struct ctc *c, int64_t time, const double *a, const double *b, double *restrict share)
{
    const int64_t n = c->n, width = n + 2;
    const double *now = c->now + time * 2 * (n + 1), *now_e = now + n + 1;
    for (int64_t i = 0; i < n; i++)
        share[i] = a[i] * b[i] / (now[i] * c->m) * ctc_power(a[width + i] + b[width + i] - now_e[i] - c->e);
    for (int64_t i = 0; i < n; i++) c->d[c->label[i]] -= share[i];
    a += 2 * width;
    b += 2 * width;
    for (int64_t i = 0; i <= n; i++)
        share[i] = a[i] * b[i] / (now[n] * c->m) * ctc_power(a[width + i] + b[width + i] - now_e[n] - c->e);
    for (int64_t i = 0; i <= n; i++) c->d[c->option] -= share[i];
}

/* The gradient of sequence i: exp(x) minus the share of each label at a time, times dy. */
static void ctc_backward(const struct reference *r, const struct ctc *c, char *const *p, int64_t i, double dy)
{
    double *now = ctc_line(c, r->rows + 1), *later = ctc_line(c, r->rows + 2);
    const double none = c->m > 0 ? 0 : NAN; /* without any alignment, and where x is -infinity: as in PyTorch */
    ctc_start(c, later, c->n);
    for (int64_t t = c->times - 1; t >= 0; t--) {
        reference_load(r, p[CTC_X], (t * r->outer + i) * r->cols, r->cols, c->x);
        for (int64_t k = 0; k < r->cols; k++) {
            double m, e;
            ctc_exp(c->x[k], &m, &e);
            c->d[k] = m * ctc_power(e);
        }
        ctc_step(c, t, 1, later, now);
        ctc_shares(c, t, ctc_line(c, t + 1), now, later);
        for (int64_t k = 0; k < r->cols; k++) c->d[k] = (c->d[k] + (c->x[k] < -DBL_MAX ? NAN : none)) * dy;
        reference_store(r, c->d, r->cols, p[r->nin], (t * r->outer + i) * r->cols);
        double *swap = now;
        now = later;
        later = swap;
    }
}

/* Reads sequence i into c, whose memory is there. Concatenated targets begin at *io_from. */
static enum reference_error read_sequence(const struct reference *a, char *const *p, int64_t i, int64_t *io_from,
                                          struct ctc *c, struct reference_bad *out_bad)
{
    const int64_t times = ((const int64_t *)p[CTC_TIMES])[i], n = ((const int64_t *)p[CTC_LENGTHS])[i];
    const int64_t from = a->rhs ? i * a->rhs : *io_from, room = a->rhs ? a->rhs : a->n - from;
    *out_bad = (struct reference_bad){times, a->rows + 1};
    if (times < 0 || times > a->rows) return REFERENCE_INDEX;
    *out_bad = (struct reference_bad){n, room + 1};
    if (n < 0 || n > room) return REFERENCE_INDEX;
    *io_from += n;
    for (int64_t s = 0; s < n; s++) {
        c->label[s] = ((const int64_t *)p[CTC_TARGETS])[from + s];
        *out_bad = (struct reference_bad){c->label[s], a->cols};
        if (c->label[s] < 0 || c->label[s] >= a->cols) return REFERENCE_INDEX;
        c->gate[s] = s && c->label[s] != c->label[s - 1] ? 0 : -INFINITY;
    }
    c->gate[n] = -INFINITY;
    c->label[n] = a->option;
    c->times = times;
    c->n = n;
    for (int64_t t = 0; t < times; t++) {
        double *m = c->now + t * 2 * (n + 1);
        for (int64_t s = 0; s <= n; s++)
            reference_load(a, p[CTC_X], (t * a->outer + i) * a->cols + c->label[s], 1, m + s);
        for (int64_t s = 0; s <= n; s++) ctc_exp(m[s], &m[s], &m[n + 1 + s]);
    }
    return REFERENCE_GOOD;
}

/* With dy the output is the gradient, else the loss. */
static enum reference_error run_ctc(const struct reference *a, char *const *p, void *scratch,
                                    struct reference_bad *out_bad)
{
    const int64_t n = most_targets(a);
    double *at = scratch;
    struct ctc c = {.label = (int64_t *)at, .gate = at + n + 1, .option = a->option};
    c.now = c.gate + n + 1;
    c.x = c.now + 2 * a->rows * (n + 1);
    c.d = c.x + a->cols;
    c.lines = c.d + a->cols;
    for (int64_t i = 0, from = 0; i < a->outer; i++) {
        const enum reference_error error = read_sequence(a, p, i, &from, &c, out_bad);
        if (error) return error;
        ctc_forward(&c, ctc_lines(a));
        if (a->nin <= CTC_DY) {
            const double loss = c.e > -1000 ? 0 - log(c.m * ctc_power(c.e)) : -log(c.m) - c.e * M_LN2;
            reference_store(a, &loss, 1, p[a->nin], i);
            continue;
        }
        const bool zero = a->check && c.m == 0;
        double dy;
        reference_load(a, p[CTC_DY], i, 1, &dy);
        if (!zero) ctc_backward(a, &c, p, i, dy);
        for (int64_t t = zero ? 0 : c.times; t < a->rows; t++)
            memset(p[a->nin] + (t * a->outer + i) * a->cols * a->bytes, 0, (size_t)(a->cols * a->bytes));
    }
    return REFERENCE_GOOD;
}

REFERENCE_KIND reference_ctc = {"reference_ctc", "reference_ctc.c", ctc_scratch, run_ctc};
