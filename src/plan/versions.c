/* Versions: where one kernel cannot serve all sizes (a batch of 1 and one of 64), a unit becomes a few, each for a
 * class of sizes. They have the same loops, memory and results; `when` lets one of them run.
 *
 * Kernels are priced at some points of the dimensions: powers of two, each dimension by itself and all together. If the
 * one that is made for the hints is nearly the best everywhere, it stays alone. Otherwise the points are divided by the
 * value of one size, the separator, into at most three ranges. Each has a point that its kernel is made for; that of
 * the hints is nearly the best there. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

enum { MOST_POINTS = 48, MOST_CLASSES = 3, MOST_SEPARATORS = 5, BISECTIONS = 4 };
#define GOOD 1.15        /* times the best cost at a point: not worth another kernel */
#define NEAR 1.03        /* times the best: what a kernel that serves the hints, too, may cost there */
#define LEAST_GAIN 1000. /* ns that a version must gain at some point */
#define PRICE 0.1        /* of another version: what the sum of the logarithms of costs must drop by */
#define BEYOND 4         /* times the hint: sizes that count, and at least LEAST_MOST */
#define LEAST_MOST 64

struct point {
    int64_t at[SIZE_MOST_DIMS];
    double best;           /* the lowest cost there */
    struct candidate cand; /* whose */
};
struct search {
    struct plan *p;
    const struct unit *u;
    struct arena *arena;
    int n, hint;  /* the number of points; which has the hints */
    bool choices; /* more than one candidate at some point */
    struct point point[MOST_POINTS];
    double *cost; /* [made][priced]: of the kernel made for a point; 0: not known yet */
};
/* Points in the order of a separator: class i has those from first[i] up to first[i + 1]. */
struct division {
    int64_t by;                /* the separator */
    int n, order[MOST_POINTS]; /* classes; points */
    int first[MOST_CLASSES + 1], made[MOST_CLASSES];
    double regret;
};
/* What equal units share: the thresholds between classes, and points. */
struct versions {
    int n;
    int64_t by, from[MOST_CLASSES];
    const int64_t *point[MOST_CLASSES]; /* NULL: the hints */
    int base;                           /* the class of the hints */
    bool has_one;                       /* all dimensions may be 1: */
    struct plan_one one;                /* where they are */
};

/* -- points */

static void add_point(struct search *s, const int64_t *at)
{
    for (int i = 0; i < s->n; i++)
        if (!memcmp(s->point[i].at, at, sizeof s->point[i].at)) return;
    if (s->n && !plan_possible(s->u->loops, at)) return;
    if (s->n < MOST_POINTS) memcpy(s->point[s->n++].at, at, sizeof s->point[0].at);
}

/* Size number `step` of a dimension: 1, factor, factor^2, .. within its limits; 0: there are no more. */
static int64_t size_number(const struct size_dim *d, int step, int64_t factor)
{
    int64_t v = MAX(d->min, 1), most = MIN(d->max, MAX(BEYOND * d->hint, LEAST_MOST));
    for (int i = 0; i < step && v <= most; i++) v *= factor;
    v = ceil_div(v, d->multiple) * d->multiple;
    return v <= most ? v : 0;
}

static void add_points(struct search *s, uint32_t dims)
{
    const struct sol_graph *g = s->p->g;
    const int64_t factor = dims & (dims - 1) ? 4 : 2;
    int64_t hint[SIZE_MOST_DIMS] = {0}, at[SIZE_MOST_DIMS];
    for (int i = 0; i < g->dims.n; i++) hint[i] = g->dims.at[i].dim.hint;
    add_point(s, hint);
    for (int i = 0; i < g->dims.n; i++)
        for (int step = 0; dims >> i & 1; step++) {
            memcpy(at, hint, sizeof at);
            at[i] = size_number(&g->dims.at[i].dim, step, factor);
            if (!at[i]) break;
            add_point(s, at);
        }
    bool more = true;
    for (int step = 0; more; step++) {
        more = false;
        memcpy(at, hint, sizeof at);
        for (int i = 0; i < g->dims.n; i++) {
            const int64_t v = dims >> i & 1 ? size_number(&g->dims.at[i].dim, step, factor) : 0;
            more |= v > 0;
            if (v) at[i] = v;
        }
        if (more) add_point(s, at);
    }
}

/* The sizes of index variables that vary, each once. Returns their number. */
static int varying(const struct loops *loops, int64_t *out)
{
    int n = 0;
    for (int i = 0; i < loops->ivars.n; i++) {
        const int64_t size = loops->ivars.at[i].size;
        bool known = !size_varies(size);
        for (int k = 0; k < n; k++) known |= out[k] == size;
        if (!known) out[n++] = size;
    }
    return n;
}

/* -- costs */

static bool foreign(const struct candidate *c)
{
    return c->solver->foreign;
}

static sol_status find_best(struct search *s, struct point *x)
{
    struct choice all;
    TRY(choose_prices(s->p, s->u, (struct size_point){x->at, x->at}, NULL, &all));
    int k = 0;
    while (k < all.n - 1 && foreign(&all.candidate[k])) k++;
    if (!all.n) return SOL_OK;
    s->choices |= all.n > 1;
    x->cand = all.candidate[k];
    x->best = x->cand.variant.cost - x->cand.variant.once;
    return SOL_OK;
}

/* The cost at a point of a kernel that is made for another one; INFINITY: it does not suit that. */
static sol_status price(const struct search *s, const struct point *made, const int64_t *at, double *out)
{
    struct choice one;
    TRY(choose_prices(s->p, s->u, (struct size_point){made->at, at}, &made->cand, &one));
    *out = INFINITY;
    for (int i = 0; i < one.n; i++)
        if (!memcmp(one.candidate[i].variant.p, made->cand.variant.p, sizeof made->cand.variant.p))
            *out = MIN(*out, one.candidate[i].variant.cost - one.candidate[i].variant.once);
    return SOL_OK;
}

static sol_status cost_of(struct search *s, int made, int at, double *out)
{
    double *cost = &s->cost[made * MOST_POINTS + at];
    if (!*cost) TRY(price(s, &s->point[made], s->point[at].at, cost));
    *out = *cost;
    return SOL_OK;
}

static double regret(const struct search *s, int made, int at)
{
    return log(MAX(s->cost[made * MOST_POINTS + at] / s->point[at].best, 1));
}

/* Is the kernel for the hints good enough everywhere? */
static sol_status is_enough(struct search *s, bool *out)
{
    *out = true;
    for (int i = 0; i < s->n; i++) {
        double cost;
        TRY(cost_of(s, s->hint, i, &cost));
        if (cost > GOOD * s->point[i].best && cost - s->point[i].best >= LEAST_GAIN) *out = false;
    }
    return SOL_OK;
}

/* -- classes */

static int64_t value(const struct search *s, int64_t by, int i)
{
    return size_at(by, s->point[i].at);
}

static void sort(const struct search *s, struct division *d)
{
    for (int i = 0; i < s->n; i++) {
        int k = i;
        for (; k > 0 && value(s, d->by, d->order[k - 1]) > value(s, d->by, i); k--) d->order[k] = d->order[k - 1];
        d->order[k] = i;
    }
}

/* The regret of points first .. end - 1 of the order with the best kernel for all of them. If the hints are among them,
 * it is nearly the best there. */
static double class_regret(const struct search *s, const struct division *d, int first, int end, int *out_made)
{
    bool hint = false;
    double least = INFINITY;
    for (int i = first; i < end; i++) hint |= d->order[i] == s->hint;
    for (int i = first; i < end; i++) {
        const int made = d->order[i];
        double sum = 0;
        for (int k = first; k < end; k++) sum += regret(s, made, d->order[k]);
        if (sum > least || (hint && regret(s, made, s->hint) > log(NEAR))) continue;
        if (sum < least || made == s->hint) *out_made = made;
        least = sum;
    }
    return least;
}

static bool may_cut(const struct search *s, const struct division *d, int i)
{
    return value(s, d->by, d->order[i - 1]) < value(s, d->by, d->order[i]);
}

/* Finds the best division into classes that begin at these places. */
static void try_division(const struct search *s, const struct division *by, const int *first, int n,
                         struct division *best)
{
    struct division d = *by;
    d.n = n;
    d.regret = PRICE * (n - 1);
    for (int i = 0; i < n; i++) {
        d.first[i] = first[i];
        d.regret += class_regret(s, &d, first[i], i + 1 < n ? first[i + 1] : s->n, &d.made[i]);
    }
    d.first[n] = s->n;
    if (d.regret < best->regret) *best = d;
}

static void divide(const struct search *s, int64_t by, struct division *best)
{
    struct division d = {.by = by};
    sort(s, &d);
    for (int a = 1; a < s->n; a++) {
        if (!may_cut(s, &d, a)) continue;
        try_division(s, &d, (int[]){0, a}, 2, best);
        for (int b = a + 1; b < s->n; b++)
            if (may_cut(s, &d, b)) try_division(s, &d, (int[]){0, a, b}, 3, best);
    }
}

/* Without what divides it always. */
static int64_t reduced(int64_t size)
{
    return size_exact_div(size, MAX(size_factor(size), 1));
}

static sol_status find_division(struct search *s, const int64_t *size, int n, struct division *best)
{
    double unused;
    int64_t all = 1;
    for (int i = 0; i < s->n; i++)
        for (int k = 0; k < s->n; k++) TRY(cost_of(s, i, k, &unused));
    *best = (struct division){.n = 1, .made = {s->hint}};
    for (int k = 0; k < s->n; k++) best->regret += regret(s, s->hint, k);
    for (int i = 0; i < n; i++) all = size_mul(all, size[i]);
    if (all != SIZE_BAD) divide(s, reduced(all), best);
    for (int i = 0; i < n && i < MOST_SEPARATORS && n > 1; i++) divide(s, reduced(size[i]), best);
    return SOL_OK;
}

/* The value of the separator from which on the kernel of the upper class is the better one: between the last point of
 * the lower class and the first one of the upper class. */
static sol_status find_threshold(struct search *s, const struct division *d, int upper, int64_t *out)
{
    const struct point *made[2] = {&s->point[d->made[upper - 1]], &s->point[d->made[upper]]};
    struct point low = s->point[d->order[d->first[upper] - 1]], high = s->point[d->order[d->first[upper]]];
    *out = size_at(d->by, high.at);
    for (int i = 0; i < BISECTIONS; i++) {
        struct point middle = low;
        double cost[2];
        for (int k = 0; k < s->p->g->dims.n; k++) {
            const int64_t m = s->p->g->dims.at[k].dim.multiple;
            middle.at[k] = (low.at[k] / m + high.at[k] / m) / 2 * m;
        }
        const int64_t at = size_at(d->by, middle.at);
        if (!plan_possible(s->u->loops, middle.at)) return SOL_OK;
        if (at <= size_at(d->by, low.at) || at >= *out) return SOL_OK;
        for (int k = 0; k < 2; k++) TRY(price(s, made[k], middle.at, &cost[k]));
        if (cost[1] < cost[0]) {
            high = middle;
            *out = at;
        } else {
            low = middle;
        }
    }
    return SOL_OK;
}

static sol_status keep_division(struct search *s, const struct division *d, struct versions *out)
{
    out->n = d->n;
    out->by = d->by;
    for (int i = 0; i < d->n; i++) {
        if (i) TRY(find_threshold(s, d, i, &out->from[i]));
        const struct point *made = &s->point[d->made[i]];
        if (d->made[i] != s->hint) out->point[i] = arena_memdup(s->p->arena, made->at, sizeof made->at);
        for (int k = d->first[i]; k < d->first[i + 1]; k++)
            if (d->order[k] == s->hint) out->base = i;
    }
    return SOL_OK;
}

static int class_at(const struct versions *v, const int64_t *at)
{
    int i = v->n - 1;
    while (i > 0 && size_at(v->by, at) < v->from[i]) i--;
    return i;
}

static sol_status find_versions(struct search *s, struct versions *out)
{
    int64_t size[LOOPS_MAX_IVARS];
    const int n = varying(s->u->loops, size);
    uint32_t dims = 0;
    bool enough = true;
    for (int i = 0; i < n; i++) dims |= size_dims(size[i]);
    out->n = 1;
    add_points(s, dims);
    for (int i = 0; i < s->n; i++) TRY(find_best(s, &s->point[i]));
    for (int i = 0; i < s->n; i++)
        if (!s->point[i].cand.solver) return SOL_OK;
    if (!s->choices) return SOL_OK;
    TRY(is_enough(s, &enough));
    struct division d = {.n = 1, .made = {s->hint}};
    if (!enough) TRY(find_division(s, size, n, &d));
    out->has_one = plan_one(s->p, s->u->loops, loops_dims(s->u->loops), &out->one);
    return d.n > 1 ? keep_division(s, &d, out) : SOL_OK;
}

/* -- units */

int64_t plan_is_from(int64_t by, int64_t from)
{
    return size_min(1, size_floor_div(by, from));
}

static int64_t when_of(const struct versions *v, int i)
{
    const int64_t from = i ? plan_is_from(v->by, v->from[i]) : 1;
    return i + 1 < v->n ? size_sub(from, plan_is_from(v->by, v->from[i + 1])) : from;
}

static bool good_sizes(const struct unit *u, const struct kernel *k)
{
    bool good = true;
    for (int i = 0; i < k->nstep; i++) good &= unit_when(u, k->step[i].tasks) != SIZE_BAD;
    for (int i = 0; i < k->nwork; i++) good &= unit_when(u, k->work_bytes[i]) != SIZE_BAD;
    return good;
}

static const char *label_of(struct plan *p, const struct unit *u, const struct versions *v, int i)
{
    const char *by = size_text(p->arena, v->n > 1 ? v->by : v->one.all),
               *low = i ? arena_printf(p->arena, "%lld <= ", (long long)v->from[i]) : "";
    const char *high = i + 1 < v->n ? arena_printf(p->arena, " < %lld", (long long)v->from[i + 1])
                       : v->n == 1  ? " != 1"
                                    : "";
    return arena_printf(p->arena, "%s (%s%s%s)", u->label, low, by, high);
}

static double bytes_packed(const struct kernel *k)
{
    double bytes = 0;
    for (int i = 0; i < k->npack; i++) {
        const struct loops_tensor *t = &k->pack[i].loops->tensors.at[1];
        bytes += (double)size_hint(loops_elements(t)) * dtype_def(t->dtype)->bytes;
    }
    return bytes;
}

/* The cost at a point of the kernel that was chosen for another one (NULL: the hints). */
static sol_status price_chosen(struct plan *p, const struct unit *u, const struct choice *c, const int64_t *made,
                               const int64_t *at, double *out)
{
    const struct search s = {.p = p, .u = u};
    struct point x = {.cand = c->candidate[c->chosen]};
    for (int i = 0; i < p->g->dims.n; i++) x.at[i] = made ? made[i] : p->g->dims.at[i].dim.hint;
    return price(&s, &x, at, out);
}

/* Does a version gain enough at its point, where the kernel that serves it otherwise costs `was`? Weights that are
 * packed again must pay for their memory, too. */
static bool pays(const struct plan *p, const struct unit *u, const struct choice *c, double was)
{
    const struct variant *v = &c->candidate[c->chosen].variant;
    const bool again = choose_packs_again(p, u, &c->kernel, u->like);
    const double now = v->cost - v->once, more = again && p->once > 0 ? p->once * bytes_packed(&c->kernel) : 0;
    return was - now > MAX(LEAST_GAIN, more) && was > GOOD * now * (again ? CHOOSE_PACK_AGAIN : 1);
}

/* Without class i: the neighbour on the side of the hints serves its sizes, too. */
static void drop(struct versions *v, const struct choice **choice, int i)
{
    if (i < v->base) v->from[i + 1] = v->from[i];
    v->n--;
    v->base -= i < v->base;
    for (int k = i; k < v->n; k++) {
        v->from[k] = v->from[k + 1];
        v->point[k] = v->point[k + 1];
        choice[k] = choice[k + 1];
    }
}

static struct unit version_of(const struct unit *u, const struct versions *v, int i)
{
    struct unit x = *u;
    x.when = when_of(v, i);
    x.point = v->point[i];
    x.version = i;
    return x;
}

/* Chooses the kernels; versions that do not pay are dropped. */
static sol_status choose_versions(struct plan *p, const struct unit *u, struct versions *v,
                                  const struct choice **choice)
{
    struct unit x = version_of(u, v, v->base);
    TRY(choose_kernel(p, u->loops, u->memory, u->anchor, &x, &choice[v->base]));
    const struct kernel *like = &choice[v->base]->kernel;
    for (int i = v->n - 1; i >= 0; i--) {
        double was;
        if (i == v->base) continue;
        TRY(price_chosen(p, u, choice[v->base], v->point[v->base], v->point[i], &was));
        x = version_of(u, v, i);
        x.like = like;
        TRY(choose_kernel(p, u->loops, u->memory, u->anchor, &x, &choice[i]));
        if (!strcmp(like->source, choice[i]->kernel.source) || !pays(p, &x, choice[i], was)) drop(v, choice, i);
    }
    return SOL_OK;
}

/* The version where all dimensions are 1, and its kernel. If it does not pay, it never runs: out->when is 0. */
static sol_status choose_one(struct plan *p, const struct unit *u, const struct versions *v,
                             const struct choice *const *choice, struct unit *out, const struct choice **out_choice)
{
    double was;
    out->when = 0;
    if (!v->has_one) return SOL_OK;
    const int class = class_at(v, v->one.point);
    TRY(price_chosen(p, u, choice[class], v->point[class], v->one.point, &was));
    *out = plan_fixed(p, u, &v->one);
    out->like = &choice[v->base]->kernel;
    out->version = v->n;
    out->label = arena_printf(p->arena, "%s (%s = 1)", u->label, size_text(p->arena, v->one.all));
    unit_memory(p, out);
    TRY(choose_kernel(p, out->loops, out->memory, out->anchor, out, out_choice));
    if (!pays(p, out, *out_choice, was)) out->when = 0;
    return SOL_OK;
}

/* Takes the sizes of the last version away from version i, which is dropped if nothing is left. */
static int take_away(struct unit *version, const struct choice **choice, int n, int i)
{
    version[i].when = size_sub(version[i].when, version[n - 1].when);
    if (version[i].when) return n;
    for (; i < n - 1; i++) {
        version[i] = version[i + 1];
        version[i].version = i;
        choice[i] = choice[i + 1];
    }
    return n - 1;
}

/* Makes the units. If the sizes become too long, or all versions but one are dropped, the unit stays as it is. */
static sol_status make_versions(struct plan *p, int at, struct versions v)
{
    struct unit *const u = p->units.at[at], version[MOST_CLASSES + 1];
    const struct choice *choice[MOST_CLASSES + 1];
    TRY(choose_versions(p, u, &v, choice));
    TRY(choose_one(p, u, &v, choice, &version[v.n], &choice[v.n]));
    const bool one = version[v.n].when;
    int n = v.n + one;
    if (n == 1) return SOL_OK;
    for (int i = 0; i < v.n; i++) {
        version[i] = version_of(u, &v, i);
        version[i].like = i == v.base ? NULL : &choice[v.base]->kernel;
        version[i].label = label_of(p, u, &v, i);
    }
    if (one) n = take_away(version, choice, n, class_at(&v, v.one.point));
    for (int i = 0; i < n; i++)
        if (!size_varies(version[i].when) || !good_sizes(&version[i], &choice[i]->kernel)) return SOL_OK;
    for (int i = 0; i < n; i++)
        *(i ? plan_unit(p, at + i, u->program, version[i].loops, u->layer, u->label) : u) = version[i];
    for (int k = 0; k < u->loops->tensors.n; k++) /* for who packs what they read */
        if (u->loops->tensors.at[k].role == LOOPS_INPUT)
            plan_allocation(p, u->loops->tensors.at[k].user)->readers += n - 1;
    return SOL_OK;
}

sol_status plan_versions(struct plan *p, int at)
{
    struct unit *u = p->units.at[at];
    if (!p->g->dims.n || p->forced || u->program == PROGRAM_PREPARE || !u->contraction || !loops_vary(u->loops))
        return SOL_OK;
    const char *key = choose_key(p, u);
    struct versions *v = map_get(p->versions, key);
    if (!v) {
        v = NEW(p->arena, struct versions);
        struct arena *a = arena_create(p->ctx);
        if (!a) return ctx_check(p->ctx);
        struct search *s = NEW(a, struct search);
        *s = (struct search){.p = p, .u = u, .arena = a, .cost = NEW_ARRAY(a, double, MOST_POINTS *MOST_POINTS)};
        const sol_status status = find_versions(s, v);
        arena_destroy(a);
        TRY(status);
        map_set(p->versions, key, v);
    }
    return v->n > 1 || v->has_one ? make_versions(p, at, *v) : SOL_OK;
}

/* A point at which a size is below `most`: the first one at which a dimension of it is 1, else where all are; if loops
 * cannot have these sizes, the first one at which they can. */
static const int64_t *point_below(struct plan *p, const struct loops *loops, int64_t by, int64_t most)
{
    int64_t *at = NEW_ARRAY(p->arena, int64_t, SIZE_MOST_DIMS);
    for (int only = 0; only <= p->g->dims.n; only++) {
        for (int i = 0; i < p->g->dims.n; i++) {
            const struct size_dim *d = &p->g->dims.at[i].dim;
            const bool least = (size_dims(by) >> i & 1) && (i == only || only == p->g->dims.n);
            at[i] = least ? size_number(d, 0, 1) : d->hint;
        }
        if (size_at(by, at) < most && plan_possible(loops, at)) return at;
    }
    for (int only = 0; only < p->g->dims.n; only++) { /* limits may be wider than what the network can run with */
        for (int i = 0; i < p->g->dims.n; i++) at[i] = p->g->dims.at[i].dim.hint;
        const struct size_dim *d = &p->g->dims.at[only].dim;
        for (at[only] = size_number(d, 0, 1); at[only] < d->hint; at[only] += d->multiple)
            if (size_at(by, at) < most && plan_possible(loops, at)) return at;
        at[only] = d->hint;
    }
    return at;
}

/* Adds a version at position *at, which then follows it. What it can compute once is a unit in front of it. */
static void add_version(struct plan *p, int *at, struct unit x)
{
    const int first = *at;
    x.version = p->units.at[first - 1]->version + 1;
    unit_loops(&x, plan_hoist(p, x.loops, &x, at));
    for (int i = first; i < *at; i++) {
        struct unit *u = p->units.at[i];
        u->helps = true;
        u->when = x.when;
        for (int k = 0; k < u->loops->tensors.n; k++) {
            struct allocation *s = plan_allocation(p, u->loops->tensors.at[k].user);
            if (u->loops->tensors.at[k].role != LOOPS_OUTPUT) continue;
            s->fixed = true;
            s->when = x.when;
            plan_place(s);
        }
    }
    *plan_unit(p, (*at)++, x.program, x.loops, x.layer, x.label) = x;
}

void plan_serve_below(struct plan *p, int at, const struct unit *whole, int64_t by, int64_t from)
{
    struct unit *u = p->units.at[at], below = *whole, one = *whole;
    struct plan_one where;
    const char *text = size_text(p->arena, by);
    struct size_dim dim;
    bool is_one = size_is_dim(by, &dim) && plan_one(p, whole->loops, size_dims(by), &where);
    if (is_one) one = plan_fixed(p, whole, &where);
    is_one &= !one.contraction; /* a product left to do is faster as a stage of the recurrence */
    below.when = size_sub(1, from ? plan_is_from(by, from) : 1);
    u->when = size_sub(1, below.when);
    if (is_one) {
        int64_t *when = from > 1 ? &below.when : &u->when;
        *when = size_sub(*when, where.when);
    }
    if (u->when == 1) {
        u->when = 0;
        return;
    }
    u->label = from ? arena_printf(p->arena, "%s (%lld <= %s)", u->label, (long long)from, text)
                    : arena_printf(p->arena, "%s (%s != 1)", u->label, text);
    at++;
    if (below.when) {
        below.point = point_below(p, whole->loops, by, from);
        below.label = arena_printf(p->arena, "%s (%s < %lld)", whole->label, text, (long long)from);
        add_version(p, &at, below);
    }
    if (is_one) {
        one.label = arena_printf(p->arena, "%s (%s = 1)", whole->label, text);
        add_version(p, &at, one);
    }
}

/* -- other candidates */

bool plan_suits(struct plan *p, const struct unit *u, const struct candidate *c)
{
    int64_t size[LOOPS_MAX_IVARS];
    uint32_t dims = 0;
    if (!p->g->dims.n || u->opaque || !u->choice || u->choice->chosen < 0) return true;
    const int n = varying(u->loops, size);
    for (int i = 0; i < n; i++) dims |= size_dims(size[i]);
    if (!dims || u->kernel.tree) return true;
    struct search s = {.p = p, .u = u};
    add_points(&s, dims);
    struct point made[2] = {{.cand = u->choice->candidate[u->choice->chosen]}, {.cand = *c}};
    for (int k = 0; k < 2; k++) memcpy(made[k].at, u->point ? u->point : s.point[0].at, sizeof made[k].at);
    for (int i = 0; i < s.n; i++) {
        double cost[2];
        if (!size_at(unit_when(u, 1), s.point[i].at)) continue;
        for (int k = 0; k < 2; k++)
            if (price(&s, &made[k], s.point[i].at, &cost[k])) return false;
        if (cost[1] > GOOD * cost[0] && cost[1] - cost[0] >= LEAST_GAIN) return false;
    }
    return true;
}
