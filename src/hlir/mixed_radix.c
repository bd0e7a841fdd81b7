/* Splits index variables into mixed-radix digits. An index variable that occurs as L//6 and L%6 becomes 6*A+B. This
 * file finds the cuts that an index variable's occurrences need, and makes the sum of digits that replaces it. After
 * folding, the indices are affine again. */
#include "hlir/loops.h"

static void cut_add(struct mixed_radix *d, int ivar, int64_t by)
{
    int n = d->n[ivar];
    for (int i = 0; i < n; i++)
        if (d->by[ivar][i] == by) return;
    if (n == RADIX_MAX_CUTS) {
        d->bad |= UINT64_C(1) << ivar;
        return;
    }
    int at = n;
    for (; at > 0 && size_hint(d->by[ivar][at - 1]) > size_hint(by); at--) d->by[ivar][at] = d->by[ivar][at - 1];
    d->by[ivar][at] = by;
    d->n[ivar]++;
}

/* L//a needs a cut at a, (L//a)%b also one at a*b. The argument must be one index variable with coefficient 1;
 * ex_binary has already removed terms that the divisor divides. */
static void cut_visit(void *user, int32_t node)
{
    struct mixed_radix *d = user;
    const struct ex *e = &d->loops->ex.at[node];
    if (e->kind != EX_FLOOR && e->kind != EX_MOD) return;
    if (d->loops->ex.at[e->b].kind != EX_INT) return;
    int64_t by = d->loops->ex.at[e->b].u.i, scale = 1;
    int32_t a = e->a;
    while (d->loops->ex.at[a].kind == EX_FLOOR && d->loops->ex.at[d->loops->ex.at[a].b].kind == EX_INT) {
        scale = size_mul(scale, d->loops->ex.at[d->loops->ex.at[a].b].u.i);
        a = d->loops->ex.at[a].a;
    }
    struct affine f;
    if (!ex_affine(d->loops, a, &f)) return;
    const int64_t cut = size_mul(by, scale);
    if (cut == SIZE_BAD) return;
    for (int i = 0; i < f.n; i++) {
        if (f.coef[i] <= 0 || f.c) return;
        if (size_exact_div(f.coef[i], cut) != SIZE_BAD) continue;
        const int64_t at = size_exact_div(cut, f.coef[i]);
        if (at == SIZE_BAD) return;
        cut_add(d, f.ivar[i], at);
    }
}

void radix_find(struct mixed_radix *d, int32_t node)
{
    ex_walk(d->loops, node, cut_visit, d);
}

/* Cuts at the size or above have no effect. Of sizes that vary, each must be a multiple of the one before by itself. */
int radix_cuts(const struct mixed_radix *d, int ivar)
{
    int64_t last = 1, size = d->loops->ivars.at[ivar].size;
    int n = 0;
    if (d->bad >> ivar & 1) return 0;
    while (n < d->n[ivar] && !size_le(size, d->by[ivar][n])) {
        const int64_t by = d->by[ivar][n++];
        if (size_exact_div(by, last) == SIZE_BAD || size_exact_div(size, by) == SIZE_BAD) return 0;
        last = by;
    }
    return n;
}

int32_t radix_ivars(const struct mixed_radix *d, int ivar, struct loops *to)
{
    const struct loops_ivar l = d->loops->ivars.at[ivar];
    int32_t sum = ex_int(to, 0);
    int64_t above = l.size;
    for (int i = radix_cuts(d, ivar) - 1; i >= -1; i--) {
        int64_t unit = i < 0 ? 1 : d->by[ivar][i];
        int digit = loops_ivar(to, l.name, size_exact_div(above, unit));
        sum = ex_binary(to, EX_ADD, sum, ex_binary(to, EX_MUL, ex_int(to, unit), ex_ivar(to, digit)));
        above = unit;
    }
    return sum;
}
