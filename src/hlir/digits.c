/* A letter that occurs as L//6 and L%6 is two digits, 6*A+B, written as one. Which cuts a letter's occurrences ask for,
 * and the sum of digits that stands for it: put in its place, the indices are affine again, as folding does the rest.
 */
#include "hlir/loops.h"

static void cut_add(struct digits *d, int letter, int64_t by)
{
    int n = d->n[letter];
    for (int i = 0; i < n; i++)
        if (d->by[letter][i] == by) return;
    if (n == DIGITS_MAX_CUTS) {
        d->bad |= UINT64_C(1) << letter;
        return;
    }
    int at = n;
    for (; at > 0 && d->by[letter][at - 1] > by; at--) d->by[letter][at] = d->by[letter][at - 1];
    d->by[letter][at] = by;
    d->n[letter]++;
}

/* L//a asks for a cut at a; (L//a)%b for one at a*b as well. The argument must be one letter with coefficient 1 once
 * terms that the divisor divides are left out, which ex_binary has done. */
static void cut_visit(void *user, int32_t node)
{
    struct digits *d = user;
    const struct ex *e = &d->l->ex.at[node];
    if (e->kind != EX_FLOOR && e->kind != EX_MOD) return;
    if (d->l->ex.at[e->b].kind != EX_INT) return;
    int64_t by = d->l->ex.at[e->b].u.i, scale = 1;
    int32_t a = e->a;
    while (d->l->ex.at[a].kind == EX_FLOOR && d->l->ex.at[d->l->ex.at[a].b].kind == EX_INT) {
        scale *= d->l->ex.at[d->l->ex.at[a].b].u.i;
        a = d->l->ex.at[a].a;
    }
    struct affine f;
    if (!ex_affine(d->l, a, &f)) return;
    int64_t cut = by * scale;
    for (int i = 0; i < f.n; i++) {
        if (f.coef[i] <= 0 || f.c) return;
        if (f.coef[i] % cut == 0) continue;
        if (cut % f.coef[i]) return;
        cut_add(d, f.letter[i], cut / f.coef[i]);
    }
}

void digits_find(struct digits *d, int32_t node)
{
    ex_walk(d->l, node, cut_visit, d);
}

/* Cuts from the size on cut nothing. */
int digits_cuts(const struct digits *d, int letter)
{
    int64_t last = 1, size = d->l->letters.at[letter].size;
    int n = 0;
    if (d->bad >> letter & 1) return 0;
    while (n < d->n[letter] && d->by[letter][n] < size) {
        int64_t by = d->by[letter][n++];
        if (by % last || size % by) return 0;
        last = by;
    }
    return n;
}

int32_t digits_letters(const struct digits *d, int letter, struct loops *to)
{
    const struct loops_letter l = d->l->letters.at[letter];
    int32_t sum = ex_int(to, 0);
    int64_t above = l.size;
    for (int i = digits_cuts(d, letter) - 1; i >= -1; i--) {
        int64_t unit = i < 0 ? 1 : d->by[letter][i];
        int digit = loops_letter(to, l.name, above / unit);
        sum = ex_binary(to, EX_ADD, sum, ex_binary(to, EX_MUL, ex_int(to, unit), ex_letter(to, digit)));
        above = unit;
    }
    return sum;
}
