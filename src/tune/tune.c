/* Rounds of trials. A subject is a cluster of the network: all units that do the same. A round gives every subject that
 * is worth it the next candidate, builds the network with all of them, and compares the subjects' steps with those of
 * the network as it was. Which candidate is next: the one that costs and what was measured so far make the fastest. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tune/tune.h"

#define RUN_S 0.4         /* for the runs of a round */
#define LEAST_US 50.0     /* a network that takes no longer is made of steps and calls, not of kernels */
#define LEAST_SHARE 0.004 /* of the network's time that a subject must take */
#define HOPELESS 1.3      /* times the best: a candidate for which more is expected is not tried */
#define CLEAR_GAIN 0.97   /* of its time before: otherwise a candidate is not taken */
#define WHOLE_GAIN 0.99
enum { WANTED = 4 }; /* candidates that a fast tuning tries, to call a subject known */

struct subject {
    const struct choice *c; /* of the network as it was */
    const char *what, *wisdom_key;
    int units;
    double ns;    /* of all units, as it was; measured */
    double *part; /* by candidate: its time as a part of that; 0: not tried */
    int tried, best, now;
    bool worth;
};
struct tuning {
    struct adviser *ad;
    const struct tune_maker *m;
    struct tune_net *net, better; /* better: net NULL if there is none */
    struct sol_ctx *ctx;
    struct arena *arena;
    struct trial_data data;
    struct map *by_key; /* subject + 1 */
    VECTOR(struct subject) subjects;
    double budget_s, make_s, run_s, total_ns; /* make_s: of one kernel; run_s: of a round's runs */
    int64_t start;
    int trials, rounds;
};

static double seconds_since(int64_t start)
{
    return (double)(clock_ns() - start) * 1e-9;
}

static struct subject *subject_of(const struct tuning *t, const struct schedule_step *s)
{
    if (!s->unit || !s->unit->choice) return NULL;
    const intptr_t i = (intptr_t)map_get(t->by_key, s->unit->choice->key);
    return i ? &t->subjects.at[i - 1] : NULL;
}

static void find_subjects(struct tuning *t)
{
    const struct schedule_program *pr = &t->net->schedule->program[PROGRAM_FORWARD];
    t->by_key = map_create(t->arena);
    for (int i = 0; i < pr->steps.n; i++) {
        const struct schedule_step *st = &pr->steps.at[i];
        if (!st->unit || !st->unit->choice || st->unit->choice->n < 2 || st->sub) continue;
        struct subject *s = subject_of(t, st);
        if (!s) {
            const struct choice *c = st->unit->choice;
            const struct subject new = {.c = c,
                                        .what = st->unit->label,
                                        .wisdom_key = adviser_key(t->ad, c->key),
                                        .part = NEW_ARRAY(t->arena, double, c->n),
                                        .best = c->chosen,
                                        .now = c->chosen};
            PUSH(t->arena, t->subjects, new);
            s = &t->subjects.at[t->subjects.n - 1];
            s->part[c->chosen] = 1;
            map_set(t->by_key, c->key, (void *)(intptr_t)t->subjects.n);
        }
        s->units++;
    }
}

/* -- what is known already */

static double budget(const struct tuning *t)
{
    const char *key = ctx_config(t->ctx, "autotune");
    if (!strcmp(key, "fast")) return MIN(2 + 0.45 * t->subjects.n, 25);
    if (!strcmp(key, "full")) return MIN(10 + 4.0 * t->subjects.n, 300);
    return atof(key);
}

static void remember(struct tuning *t, const char *key, const char *solver, const char *variant, double ns,
                     double before_ns, const char *what)
{
    const struct wisdom_entry e = {.key = key,
                                   .solver = solver,
                                   .variant = variant,
                                   .ns = ns,
                                   .before_ns = before_ns,
                                   .when = time(NULL),
                                   .machine = t->ad->machine,
                                   .what = what,
                                   .ours = true};
    wisdom_put(t->ad->wisdom, &e);
}

static const char *network_key(const struct tuning *t)
{
    return adviser_key(t->ad, t->net->schedule->plan->key);
}

/* Has this network had as much time before? */
static bool had_time(const struct tuning *t)
{
    const struct wisdom_entry *e = wisdom_find(t->ad->wisdom, network_key(t));
    return e && strtod(e->variant, NULL) * 1.2 + 0.5 >= t->budget_s;
}

/* -- which candidate next */

/* How much two candidates have in common, 1: all. */
static double likeness(const struct candidate *a, const struct candidate *b)
{
    enum { PARTS = COUNT_OF(a->variant.p) };
    int different = 0;
    if (a->solver != b->solver) return 0.1;
    for (int i = 0; i < PARTS; i++) different += a->variant.p[i] != b->variant.p[i];
    return 1 / (1.0 + different);
}

/* What a candidate is expected to take, as a part of the time before: its cost, corrected by how wrong costs were for
 * what is like it. */
static double expected(const struct subject *s, int candidate)
{
    const struct candidate *c = s->c->candidate;
    double sum = 0, weight = 0;
    for (int i = 0; i < s->c->n; i++) {
        if (s->part[i] <= 0) continue;
        const double w = likeness(&c[candidate], &c[i]);
        sum += w * log(s->part[i] / c[i].variant.cost);
        weight += w;
    }
    return exp(sum / weight) * c[candidate].variant.cost;
}

/* False: nothing is worth a trial. */
static bool choose_next(struct subject *s, double *out_hope)
{
    double best = s->part[s->best] * HOPELESS;
    s->now = s->c->chosen;
    for (int i = 0; i < s->c->n; i++) {
        if (s->part[i] != 0) continue;
        const double part = expected(s, i);
        if (part >= best) continue;
        best = part;
        s->now = i;
    }
    *out_hope = s->ns * (HOPELESS * s->part[s->best] - best) / (1 + s->tried);
    return s->now != s->c->chosen;
}

struct hope {
    struct subject *s;
    double ns;
};

static int most_first(const void *a, const void *b)
{
    const struct hope *x = a, *y = b;
    return (x->ns < y->ns) - (x->ns > y->ns);
}

/* Chooses the subjects of a round and their candidates, as many as time allows; returns how many. */
static int choose_round(struct tuning *t, struct map *trial)
{
    struct hope *hope = NEW_ARRAY(t->arena, struct hope, t->subjects.n + 1);
    const double left = t->budget_s - seconds_since(t->start) - 2 * t->run_s;
    int n = 0;
    for (int i = 0; i < t->subjects.n; i++) {
        struct subject *s = &t->subjects.at[i];
        if (s->worth && choose_next(s, &hope[n].ns)) hope[n++].s = s;
    }
    if (n) qsort(hope, (size_t)n, sizeof *hope, most_first);
    const int most = (int)MAX(left / t->make_s, 0);
    for (int i = 0; i < n; i++)
        if (i < most)
            map_set(trial, hope[i].s->c->key, (void *)(intptr_t)(hope[i].s->now + 1));
        else
            hope[i].s->now = hope[i].s->c->chosen;
    return MIN(n, most);
}

/* -- rounds */

/* A subject's time in each of two networks; units: how many of them there are in the second. */
static void add_up(const struct tuning *t, const struct tune_net *n, const int64_t *ns, double *out_ns, int *out_units)
{
    const struct schedule_program *pr = &n->schedule->program[PROGRAM_FORWARD];
    for (int i = 0; i < pr->steps.n; i++) {
        const struct subject *s = subject_of(t, &pr->steps.at[i]);
        if (!s) continue;
        const int k = (int)(s - t->subjects.at);
        out_ns[k] += (double)ns[i];
        out_units[k] += !pr->steps.at[i].sub && pr->steps.at[i].unit->choice->chosen == s->now;
    }
}

static sol_status measure(struct tuning *t, struct tune_net *other)
{
    struct tune_net *const both[2] = {t->net, other};
    const int n = t->subjects.n;
    int64_t *ns[2], start = clock_ns();
    double *sum[2];
    int *units[2];
    for (int k = 0; k < 2; k++) {
        ns[k] = NEW_ARRAY(t->arena, int64_t, both[k]->schedule->program[PROGRAM_FORWARD].steps.n + 1);
        sum[k] = NEW_ARRAY(t->arena, double, n + 1);
        units[k] = NEW_ARRAY(t->arena, int, n + 1);
    }
    TRY(trial_steps(both, &t->data, (int64_t)(RUN_S * 1e9), ns));
    for (int k = 0; k < 2; k++) add_up(t, both[k], ns[k], sum[k], units[k]);
    for (int i = 0; i < n; i++) {
        struct subject *s = &t->subjects.at[i];
        if (!t->rounds) s->ns = sum[0][i];
        if (s->now == s->c->chosen) continue;
        /* where a band took units in, or let them go, nothing is known */
        s->part[s->now] = units[1][i] == s->units && sum[0][i] > 0 ? MAX(sum[1][i] / sum[0][i], 1e-6) : -1;
        if (s->part[s->now] > 0 && s->part[s->now] < s->part[s->best]) s->best = s->now;
        s->tried++;
        t->trials++;
        LOG(t->ctx, LOG_TRACE, "tune", "%s: %.3f of %.1f us, cost %.1f for %.1f us: %s %s for %s %s", s->what,
            s->part[s->now], s->ns / s->units / 1e3, s->c->candidate[s->now].variant.cost / 1e3,
            s->c->candidate[s->c->chosen].variant.cost / 1e3, s->c->candidate[s->now].solver->name,
            s->c->candidate[s->now].variant.text, s->c->candidate[s->c->chosen].solver->name,
            s->c->candidate[s->c->chosen].variant.text);
    }
    if (!t->rounds)
        for (int i = 0; i < both[0]->schedule->program[PROGRAM_FORWARD].steps.n; i++) t->total_ns += (double)ns[0][i];
    t->run_s = seconds_since(start);
    t->rounds++;
    return ctx_check(t->ctx);
}

static bool gains(const struct subject *s, double clear)
{
    return s->best != s->c->chosen && s->part[s->best] < clear;
}

static double gained_ns(const struct tuning *t, int *out_n)
{
    double ns = 0;
    *out_n = 0;
    for (int i = 0; i < t->subjects.n; i++) {
        const struct subject *s = &t->subjects.at[i];
        if (!gains(s, CLEAR_GAIN)) continue;
        ns += s->ns * (1 - s->part[s->best]);
        ++*out_n;
    }
    return ns;
}

static void report_progress(const struct tuning *t)
{
    int n;
    const double gained = gained_ns(t, &n);
    const char *what = arena_printf(t->arena, "Tuning: %d of %d kernels, %.2f -> %.2f ms", n, t->subjects.n,
                                    t->total_ns / 1e6, (t->total_ns - gained) / 1e6);
    ctx_progress(t->ctx, what, (int)MIN(seconds_since(t->start), t->budget_s), (int)ceil(t->budget_s));
}

static sol_status round_of_trials(struct tuning *t, struct map *trial, int n)
{
    struct tune_net other = {0};
    const int64_t start = clock_ns();
    t->ad->trial = trial;
    sol_status status = t->m->make(t->m->user, &t->ad->advice, true, &other);
    t->make_s = MAX(seconds_since(start) / n, 0.01);
    if (!status) status = measure(t, &other);
    tune_net_free(&other);
    t->ad->trial = NULL;
    return status;
}

static void find_worth(struct tuning *t)
{
    const bool fast = !strcmp(ctx_config(t->ctx, "autotune"), "fast");
    for (int i = 0; i < t->subjects.n; i++) {
        struct subject *s = &t->subjects.at[i];
        const struct wisdom_entry *e = wisdom_find(t->ad->wisdom, s->wisdom_key);
        s->worth = s->ns >= LEAST_SHARE * t->total_ns && !(fast && e);
    }
}

static sol_status rounds(struct tuning *t)
{
    TRY(measure(t, t->net)); /* with itself: where the time goes */
    if (t->total_ns < LEAST_US * 1e3) return SOL_OK;
    find_worth(t);
    for (;;) {
        struct map *trial = map_create(t->arena);
        const int n = choose_round(t, trial);
        if (!n) return SOL_OK;
        report_progress(t);
        TRY(round_of_trials(t, trial, n));
    }
}

/* -- what becomes of it */

/* The network with what won; better, or not. */
static sol_status confirm(struct tuning *t, double clear, double out_ns[2], bool *out_better)
{
    struct tune_net other = {0};
    struct tune_net *const both[2] = {t->net, &other};
    int n = 0;
    *out_better = false;
    t->ad->trial = map_create(t->arena);
    for (int i = 0; i < t->subjects.n; i++) {
        const struct subject *s = &t->subjects.at[i];
        if (!gains(s, clear)) continue;
        map_set(t->ad->trial, s->c->key, (void *)(intptr_t)(s->best + 1));
        n++;
    }
    if (!n) return SOL_OK;
    sol_status status = t->m->make(t->m->user, &t->ad->advice, false, &other);
    if (!status) {
        status = trial_whole(both, &t->data, (int64_t)(2 * RUN_S * 1e9), out_ns);
        *out_better = !status && out_ns[1] < out_ns[0] * WHOLE_GAIN;
    }
    t->ad->trial = NULL;
    if (*out_better)
        t->better = other;
    else
        tune_net_free(&other);
    return status;
}

/* What was found about each subject; those with a gain that is not `clear` enough stay what they were. */
static void keep(struct tuning *t, double clear)
{
    for (int i = 0; i < t->subjects.n; i++) {
        const struct subject *s = &t->subjects.at[i];
        if (!s->tried) continue;
        const struct candidate *c = &s->c->candidate[gains(s, clear) ? s->best : s->c->chosen];
        const double ns = s->ns / s->units;
        remember(t, s->wisdom_key, c->solver->name, c->variant.text, gains(s, clear) ? ns * s->part[s->best] : ns, ns,
                 arena_printf(t->arena, "%s: %s", t->net->schedule->plan->g->name, s->what));
    }
}

static sol_status tune(struct tuning *t)
{
    static const double clear[] = {CLEAR_GAIN, 0.9};
    const char *name = t->net->schedule->plan->g->name, *key = network_key(t);
    double ns[2] = {0, 0};
    bool better = false;
    sol_status status = rounds(t);
    if (status && status != SOL_ERR_INTERRUPTED) return status;
    int k = 0;
    for (; k < COUNT_OF(clear) && !status && !better; k++) status = confirm(t, clear[k], ns, &better);
    if (status == SOL_ERR_INTERRUPTED || better || !status) keep(t, better ? clear[k - 1] : status ? CLEAR_GAIN : 0);
    if (!status) {
        int changed = 0;
        for (int i = 0; i < t->subjects.n && better; i++) changed += gains(&t->subjects.at[i], clear[k - 1]);
        remember(t, key, "network", arena_printf(t->arena, "%.1f s", t->budget_s), better ? ns[1] : t->total_ns,
                 better ? ns[0] : t->total_ns, name);
        LOG(t->ctx, t->trials ? LOG_INFO : LOG_DEBUG, "tune",
            "Tuning: %s: %d of %d kernels changed, %.2f -> %.2f ms, %d trials in %.1f s", name, changed, t->subjects.n,
            (better ? ns[0] : t->total_ns) / 1e6, (better ? ns[1] : t->total_ns) / 1e6, t->trials,
            seconds_since(t->start));
    }
    wisdom_save(t->ctx, t->ad->wisdom);
    return status;
}

static sol_status begin(struct tuning *t)
{
    if (graph_is_joint(t->net->schedule->plan->g)) return SOL_OK;
    if (!*ctx_config(t->ctx, "cache::folder") || strcmp(ctx_config(t->ctx, "solver"), "auto")) return SOL_OK;
    find_subjects(t);
    t->budget_s = budget(t);
    if (!t->subjects.n || had_time(t)) return SOL_OK;
    if (!trial_data_make(t->arena, t->net->net, &t->data)) return SOL_OK;
    return tune(t);
}

sol_status tune_network(struct adviser *ad, const struct tune_maker *m, struct tune_net *n)
{
    struct sol_ctx *ctx = n->schedule->plan->ctx;
    struct arena *a = arena_create(ctx);
    if (!a) return ctx_check(ctx);
    struct tuning t = {
        .ad = ad, .m = m, .net = n, .ctx = ctx, .arena = a, .make_s = 0.06, .run_s = RUN_S, .start = clock_ns()};
    const sol_status status = begin(&t);
    ad->trial = NULL;
    if (t.better.net) {
        tune_net_free(n); /* only now: what is known of subjects lies in its plan */
        *n = t.better;
    }
    arena_destroy(a);
    if (!status || status == SOL_ERR_INTERRUPTED) return status;
    LOG(ctx, LOG_DEBUG, "tune", "tuning has stopped: %s", sol_error(ctx));
    ctx_clear(ctx);
    return SOL_OK;
}
