/* Estimates the gain of not saving one more tensor. For each tensor only its own changes count: its share of memory and
 * cost, and that of the tensors that it is computed from, as far as demands change. The peak of backward's memory after
 * a few changes is combined from maxima of ranges (a sparse table). So a level costs little more than the number of
 * tensors. */
#include <stdlib.h>
#include <string.h>

#include "grad/checkpoint.h"

enum { MOST_POWERS = 32 };
struct change {
    struct fact *f;
    struct demand before;
};
struct event { /* a change of memory at this position */
    int place;
    int64_t bytes;
};
struct trials {
    struct checkpointing *k;
    int n;                         /* positions */
    int64_t *highest[MOST_POWERS]; /* [p][i]: the maximum over the positions i .. i + 2^p - 1 */
    VECTOR(struct fact *) queue;   /* facts whose demand may change; the one with the highest number is at the end */
    VECTOR(struct change) changes;
    VECTOR(struct event) events;
    double ns; /* additional time */
};

static void make_highest(struct trials *t)
{
    t->highest[0] = t->k->alive;
    for (int p = 1; 1 << p <= t->n; p++) {
        if (!t->highest[p]) t->highest[p] = NEW_ARRAY(t->k->g->arena, int64_t, t->n);
        for (int i = 0; i + (1 << p) <= t->n; i++)
            t->highest[p][i] = MAX(t->highest[p - 1][i], t->highest[p - 1][i + (1 << (p - 1))]);
    }
}

/* The maximum over the positions from .. to - 1. */
static int64_t highest_of(const struct trials *t, int from, int to)
{
    if (from >= to) return INT64_MIN;
    const int p = 31 - __builtin_clz((unsigned)(to - from));
    return MAX(t->highest[p][from], t->highest[p][to - (1 << p)]);
}

static void enqueue(struct trials *t, struct fact *f)
{
    int at = t->queue.n;
    while (at && t->queue.at[at - 1]->number > f->number) at--;
    if (at && t->queue.at[at - 1] == f) return;
    PUSH(t->k->g->arena, t->queue, f);
    memmove(t->queue.at + at + 1, t->queue.at + at, (size_t)(t->queue.n - 1 - at) * sizeof f);
    t->queue.at[at] = f;
}

static struct demand demand_now(const struct checkpointing *k, const struct fact *f)
{
    struct demand n = {f->first, f->last, f->readers, 0, f->by_elementwise};
    for (int i = 0; i < f->nuser; i++) {
        const struct demand *of = &k->demand[f->user[i]->t->id];
        if (checkpoint_demands(f->user[i], of)) checkpoint_demand(&n, f->user[i], of);
    }
    return n;
}

static void push_events(struct trials *t, const struct share *s, int sign)
{
    struct arena *a = t->k->g->arena;
    if (!s->bytes) return;
    const struct event from = {s->first, sign * s->bytes}, to = {s->last + 1, -sign * s->bytes};
    PUSH(a, t->events, from);
    PUSH(a, t->events, to);
}

static bool same_demand(const struct demand *a, const struct demand *b)
{
    return a->first == b->first && a->last == b->last && a->readers == b->readers && a->makers == b->makers &&
           a->by_elementwise == b->by_elementwise;
}

/* Sets the fact's demand to `now` and visits the facts that it is computed from. `given_up`: the fact where the visit
 * begins. */
static void change(struct trials *t, struct fact *f, struct demand now, bool given_up)
{
    struct demand *n = &t->k->demand[f->t->id];
    const struct change c = {f, *n};
    const struct share before = checkpoint_share(f, n);
    bool passes = checkpoint_demands(f, n);
    PUSH(t->k->g->arena, t->changes, c);
    *n = now;
    if (given_up) f->saved = false;
    const struct share after = checkpoint_share(f, n);
    t->ns += after.ns - before.ns;
    push_events(t, &before, -1);
    push_events(t, &after, 1);
    passes |= checkpoint_demands(f, n);
    for (int d = 0; passes && d < f->ndep; d++) enqueue(t, f->dep[d]);
}

static int by_place(const void *a, const void *b)
{
    return ((const struct event *)a)->place - ((const struct event *)b)->place;
}

static int64_t peak(struct trials *t)
{
    qsort(t->events.at, (size_t)t->events.n, sizeof *t->events.at, by_place);
    int64_t more = 0, most = INT64_MIN;
    int from = 0;
    for (int i = 0; i < t->events.n; i++) {
        const int place = MIN(t->events.at[i].place, t->n);
        if (place > from) most = MAX(most, highest_of(t, from, place) + more);
        from = MAX(from, place);
        more += t->events.at[i].bytes;
    }
    return from < t->n ? MAX(most, highest_of(t, from, t->n) + more) : most;
}

/* The peak of backward without f. */
static int64_t try_without(struct trials *t, struct fact *f)
{
    struct checkpointing *k = t->k;
    t->queue.n = t->changes.n = t->events.n = 0;
    t->ns = 0;
    change(t, f, k->demand[f->t->id], true);
    while (t->queue.n) {
        struct fact *dep = t->queue.at[--t->queue.n];
        const struct demand now = demand_now(k, dep);
        if (!same_demand(&now, &k->demand[dep->t->id])) change(t, dep, now, false);
    }
    const int64_t bytes = peak(t);
    for (int i = t->changes.n - 1; i >= 0; i--) k->demand[t->changes.at[i].f->t->id] = t->changes.at[i].before;
    f->saved = true;
    return bytes;
}

int checkpoint_give_up(struct checkpointing *k, int most, struct fact **out)
{
    if (!k->trials) k->trials = NEW(k->g->arena, struct trials);
    struct trials *t = k->trials;
    const int64_t now = k->levels.at[k->levels.n - 1].bytes;
    double *worth = NEW_ARRAY(k->g->arena, double, most + 1);
    int n = 0;
    t->k = k;
    t->n = k->nplace + 1;
    make_highest(t);
    for (int i = 0; i < k->facts.n; i++) {
        struct fact *f = k->facts.at[i];
        const struct demand *d = &k->demand[f->t->id];
        if (!f->saved || f->fixed || f->view || f->joined || f->exact || d->first > d->last) continue;
        const int64_t bytes = try_without(t, f);
        const double w = (double)(now - bytes) / (MAX(t->ns, 0) + 1);
        if (bytes >= now || (n == most && w <= worth[n - 1])) continue;
        int at = n == most ? n - 1 : n++;
        for (; at && worth[at - 1] < w; at--) {
            worth[at] = worth[at - 1];
            out[at] = out[at - 1];
        }
        worth[at] = w;
        out[at] = f;
    }
    return n;
}
