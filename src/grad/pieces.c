/* Functions that go up or down by 1, or stay, over a few ranges of an index variable: borders that reflect, repeat or
 * go around, and rolls. The term becomes one for each range, of which each reads its results in steps of 1, -1 or 0. */
#include <string.h>

#include "grad/grad.h"

enum { MOST = 1 << 22, MOST_RUNS = 4, MOST_NODES = 16 };

struct run {
    int64_t from, to; /* P in from .. to-1 */
    bool folds;       /* f with P - from in place of P is simple; otherwise: */
    int64_t step, at; /* f = at + step*(P-from) */
};

/* -- sizes that are known: all values */

static int find_runs(const int64_t *f, int64_t n, struct run *run)
{
    int count = 0;
    for (int64_t i = 0, end; i < n; i = end) {
        if (count == MOST_RUNS) return 0;
        struct run r = {.from = i, .at = f[i]};
        end = i + 1;
        if (end < n) r.step = f[end] - f[i];
        if (r.step < -1 || r.step > 1) r.step = 0;
        while (end < n && f[end] - f[end - 1] == r.step && !(r.step == 0 && f[end] != f[i])) end++;
        r.to = end;
        run[count++] = r;
    }
    for (int i = 0; i + 1 < count; i++) { /* what both could have is the longer one's */
        struct run *x = &run[i], *y = x + 1;
        if (y->to - y->from < 2 || y->to - y->from < x->to - x->from || x->to - x->from < 2) continue;
        if (f[y->from - 1] != y->at - y->step) continue;
        x->to = --y->from;
        y->at -= y->step;
    }
    return count;
}

static int known_runs(struct adjoint *a, int32_t node, int ivar, struct run *run)
{
    const int64_t n = a->w->ivars.at[ivar].size;
    if (n > MOST) return 0;
    int64_t *f = NEW_ARRAY(a->w->arena, int64_t, n + 1);
    if (grad_tabulate(a, node, 1, &ivar, f)) return 0;
    const int count = find_runs(f, n, run);
    for (int i = 0; i < count; i++)
        if (!run[i].step && run[i].to - run[i].from > GRAD_BORDER) return 0;
    return count;
}

/* -- sizes that vary: cuts where the argument of abs, min, max or % passes a bound */

struct nodes {
    const struct loops *w;
    int n;
    int32_t at[MOST_NODES];
};

static bool is_call(const struct ex *e, const char *name)
{
    return e->kind == EX_CALL && !strcmp(math_at(e->op)->name, name);
}

static void see_node(void *user, int32_t node)
{
    struct nodes *all = user;
    const struct ex *e = &all->w->ex.at[node];
    const bool rest = e->kind == EX_MOD && all->w->ex.at[e->b].kind == EX_INT;
    if ((rest || is_call(e, "abs") || is_call(e, "min") || is_call(e, "max")) && all->n < MOST_NODES)
        all->at[all->n++] = node;
}

/* Is the cut known to be inside of 0 .. n? */
static bool is_inside(int64_t cut, int64_t n)
{
    return cut != SIZE_BAD && size_le(0, cut) && size_le(cut, n) && !size_le(cut, 0) && !size_le(n, cut);
}

/* A cut of P = 0 .. n-1 at the node of a function of P. */
static bool cut_at(struct loops *w, int32_t node, int P, int64_t n, int64_t *out_cut)
{
    const struct ex e = w->ex.at[node];
    const bool rest = e.kind == EX_MOD, pair = is_call(&e, "min") || is_call(&e, "max");
    const int32_t by = pair ? ex_binary(w, EX_SUB, e.a, w->ex.at[e.a].next) : e.a;
    struct affine f;
    struct quotient q;
    if (pair && grad_quotient(w, by, &q) && q.P == P) { /* from where on it is never less, up to where never more */
        *out_cut = is_call(&e, "max") ? grad_quotient_from(&q, 0, false) : grad_quotient_from(&q, 1, true);
        return is_inside(*out_cut, n);
    }
    if (!ex_affine(w, by, &f) || f.n != 1 || f.ivar[0] != P || (f.coef[0] != 1 && f.coef[0] != -1)) return false;
    const bool up = f.coef[0] == 1;
    *out_cut = up ? size_sub(0, f.c) : size_add(f.c, 1); /* the first P with the other sign */
    if (is_call(&e, "min")) *out_cut = size_add(*out_cut, f.coef[0]);
    if (rest && !is_inside(*out_cut, n)) *out_cut = size_add(*out_cut, size_mul(f.coef[0], w->ex.at[e.b].u.i));
    return is_inside(*out_cut, n);
}

/* Cuts run[0] until f is simple on each part, or the part is a short border. 0: it cannot be. */
static int varied_runs(struct adjoint *a, int32_t node, int ivar, struct run *run)
{
    struct loops *w = a->w;
    const int ivars = w->ivars.n;
    int32_t map[LOOPS_MAX_IVARS];
    int count = 1;
    run[0] = (struct run){.to = w->ivars.at[ivar].size, .folds = true};
    for (int i = 0; i < count; i++) {
        const int64_t n = size_sub(run[i].to, run[i].from);
        const int P = loops_ivar(w, w->ivars.at[ivar].name, n);
        struct nodes odd = {.w = w};
        int64_t cut = 0;
        bool any = false;
        for (int k = 0; k < ivars; k++) map[k] = ex_ivar(w, k);
        map[ivar] = ex_binary(w, EX_ADD, n == 1 ? ex_int(w, 0) : ex_ivar(w, P), ex_int(w, run[i].from));
        const int32_t part = ex_copy(w, w, node, map, NULL);
        ex_walk(w, part, see_node, &odd);
        for (int k = 0; k < odd.n && !any; k++) any = cut_at(w, odd.at[k], P, n, &cut);
        const bool simple = !odd.n && ex_ivars(w, part) >> P & 1;
        loops_drop_ivars(w, ivars);
        if (any && count < MOST_RUNS) {
            memmove(&run[i + 2], &run[i + 1], (size_t)(count++ - i - 1) * sizeof *run);
            run[i + 1] = run[i];
            run[i].to = run[i + 1].from = size_add(run[i].from, cut);
            i--;
        } else if (!size_le(n, GRAD_BORDER) && !simple) {
            return 0;
        }
    }
    return count > 1 ? count : 0;
}

/* -- terms */

/* The only index variable of f, or the only one whose size varies, beside short ones; -1: there is none. */
static int ivar_of(const struct adjoint *a, const struct term *t, int d)
{
    const uint64_t own = ex_ivars(a->w, t->pin[d].f);
    uint64_t vary = 0;
    if (!term_varies(a, t, d)) return own && !(own & (own - 1)) ? __builtin_ctzll(own) : -1;
    for (int i = 0; i < a->w->ivars.n; i++)
        if (own >> i & 1 && size_varies(a->w->ivars.at[i].size)) vary |= bit(i);
    const bool one = vary && !(vary & (vary - 1));
    return one && size_le(ivars_size(a->w, own & ~vary), GRAD_BORDER) ? __builtin_ctzll(vary) : -1;
}

/* The runs of dimension d, if f is made of few. */
static int runs_of(struct adjoint *a, const struct term *t, int d, int ivar, struct run *run)
{
    if (ivar < 0 || a->w->ivars.n == LOOPS_MAX_IVARS) return 0;
    return term_varies(a, t, d) ? varied_runs(a, t->pin[d].f, ivar, run) : known_runs(a, t->pin[d].f, ivar, run);
}

struct cuts { /* of an index variable of dimension d */
    int d, ivar, count;
    struct run run[MOST_RUNS];
};

/* Each of the n terms falls into one for each run. */
static void split_runs(struct adjoint *a, const struct cuts *cuts, struct term *t, int n)
{
    struct loops *w = a->w;
    const struct run *run = cuts->run;
    const int d = cuts->d, ivar = cuts->ivar, count = cuts->count;
    for (int i = count - 1; i >= 0; i--) {
        const int64_t size = size_sub(run[i].to, run[i].from);
        const int L = size > 1 ? loops_ivar(w, w->ivars.at[ivar].name, size) : 0;
        int32_t p = size > 1 ? ex_ivar(w, L) : ex_int(w, 0);
        int32_t f = ex_binary(w, EX_ADD, ex_int(w, run[i].at), ex_binary(w, EX_MUL, ex_int(w, run[i].step), p));
        for (int k = 0; k < n; k++) {
            struct term *to = &t[i * n + k];
            if (i) *to = t[k];
            if (!run[i].folds) to->pin[d].f = 0;
            term_replace(a, to, ivar, ex_binary(w, EX_ADD, p, ex_int(w, run[i].from)));
            if (!run[i].folds) to->pin[d].f = f;
            if (size > 1) to->ctx |= bit(L);
        }
    }
}

bool pieces_term(struct adjoint *a, struct term *t, int room, int *out_n)
{
    bool any = false;
    *out_n = 1;
    for (int d = 0; d < t->npin; d++) {
        struct cuts cuts = {.d = d};
        if (!term_is_odd(a, t, d)) continue;
        cuts.ivar = ivar_of(a, t, d);
        const int count = cuts.count = runs_of(a, t, d, cuts.ivar, cuts.run);
        if (!count || *out_n * count > room || a->w->ivars.n + count + 8 > LOOPS_MAX_IVARS) continue;
        any = true;
        int32_t q = term_pinned(a, t, d);
        for (int i = 0; i < *out_n; i++) t[i].index[d] = q;
        split_runs(a, &cuts, t, *out_n);
        *out_n *= count;
    }
    return any;
}
