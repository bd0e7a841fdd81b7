#include "dnn/matrices.h"

/* Describes a matrix of `rows` rows of `n` elements. `row` and `element` are the strides. False: neither is 1. */
static bool make_matrix(int64_t rows, int64_t row, int64_t n, int64_t element, struct matrix *out)
{
    *out = (struct matrix){element == 1 ? row : element, element != 1};
    return element == 1 ? row >= n : row == 1 && element >= rows;
}

static uint64_t ivars_of(const struct axis *x)
{
    uint64_t ivars = 0;
    for (int i = 0; i < x->n; i++) ivars |= UINT64_C(1) << x->ivar[i];
    return ivars;
}

static const struct axis *longest(const struct axes *x)
{
    const struct axis *most = &x->at[0];
    for (int i = 1; i < x->n; i++)
        if (x->at[i].size > most->size) most = &x->at[i];
    return most;
}

static bool make_axes(const struct problem *p, struct matrices *out, const char **why)
{
    const struct axes_rule sum = {.by = p->b.view.s, .n = 2, .strides = {p->a.view.s, p->b.view.s}};
    const struct axes_rule rule = axes_rule_all(p, p->valued);
    struct axes x;
    *why = "too many axes";
    if (!axes_make(p, p->n, &rule, &x)) return false;
    out->n = x.at[x.n - 1];
    if (!axes_make(p, p->m, &rule, &x)) return false;
    out->m = *longest(&x);
    const uint64_t rest = (p->batch | p->m | p->n) & ~ivars_of(&out->n) & ~ivars_of(&out->m);
    if (!axes_make(p, rest, &rule, &out->outer)) return false;
    if (!axes_make(p, p->k, &sum, &x)) return false;
    *why = "the summed axes are not a single axis";
    if (x.n != 1) return false;
    out->k = x.at[0];
    out->nouter = axes_size(&out->outer);
    return true;
}

bool matrices_find(const struct problem *p, struct matrices *out, const char **why)
{
    *why = "no matrix product";
    if (!p->m || !p->k || p->vector < 0) return false;
    *why = "an index is not affine or leaves its tensor";
    if (!p->a.affine || !p->b.affine || p->a.any_border || p->b.any_border) return false;
    if (!make_axes(p, out, why)) return false;
    *why = "the operands do not lie as matrices";
    const int64_t *a = p->a.view.s, *b = p->b.view.s;
    return make_matrix(out->m.size, axis_stride(&out->m, a), out->k.size, axis_stride(&out->k, a), &out->a) &&
           make_matrix(out->k.size, axis_stride(&out->k, b), out->n.size, axis_stride(&out->n, b), &out->b);
}
