/* Rounds of trials. A subject is one decision: how a cluster is computed (wherever it occurs), or how a chain of units
 * is fused. Where sizes vary, it is measured at the point of the dimensions that its kernel is made for: the hints, or
 * that of a version (plan/versions.c). In each round, every subject worth tuning gets its next candidate. The tuner
 * builds the network with all of them, and compares the time of each subject's units with the original network. The
 * next candidate is the one with the shortest expected time, according to costs and the measurements so far. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dnn/dnn.h"
#include "tune/tune.h"

#define RUN_S 0.4         /* for the runs of a round */
#define LEAST_MAKE_S 0.06 /* to make a kernel */
#define LEAST_US 50.0     /* call overhead dominates shorter networks, which are not tuned */
#define LEAST_SHARE 0.004 /* of the network's time that a subject must take */
#define HOPELESS 1.3      /* times the best time: candidates expected to be slower are not tried */
#define FIRST 1e-3        /* of its time: what is expected of such a candidate, so that it goes first */
#define UNMEASURED 30.0   /* the same for the first candidate of a solver, where nobody measured the machine */
#define CLEAR_GAIN 0.97   /* of the time before: a candidate must be faster than this */
#define NOISE 2.0         /* and its gain must exceed the noise this many times */
#define RUNS 30 /* of the network that must fit into the time: 2 to warm, 5 or more to measure, of two networks */
#define MOST_FAST_S 7.0
#define MOST_S 30.0 /* limit of fast tuning in one process, for example for many sizes of one network */
#define WHOLE_GAIN 0.99
enum { WANTED = 4 }; /* candidates that fast tuning must have tried before it considers a subject known */

struct subject {
    const struct choice *c; /* of the network as it was */
    const char *what;
    const struct unit *unit; /* one that it decides on; NULL: a chain */
    int place;               /* where it is measured; -1: nowhere, that takes too long */
    int times;               /* it occurs */
    VECTOR(int) units;       /* their numbers, of all occurrences */
    double ns;               /* of all units, as it was; measured */
    double *part;            /* by candidate: its time as a part of that; 0: not tried */
    int tried, best, now;
    bool worth;
};
struct tuning {
    struct wisdom_policy *wp;
    const struct tune_maker *m;
    struct tune_net *net, better; /* better: net NULL if there is none */
    struct sol_ctx *ctx;
    struct arena *arena;
    struct tune_places places;
    struct map *by_key; /* subject + 1 */
    VECTOR(struct subject) subjects;
    double budget_s, make_s, run_s; /* make_s: of one kernel; run_s: of a round's runs */
    double total_ns[TUNE_MOST_PLACES];
    double clear; /* a part of its time that is a gain */
    int64_t start;
    int trials, rounds;
};

static double seconds_since(int64_t start)
{
    return (double)(clock_ns() - start) * 1e-9;
}

static struct subject *subject_of(struct tuning *t, const struct choice *c, const char *what)
{
    const intptr_t i = (intptr_t)map_get(t->by_key, c->key);
    if (i) return &t->subjects.at[i - 1];
    const struct subject new = {
        .c = c, .what = what, .part = NEW_ARRAY(t->arena, double, c->n), .best = c->chosen, .now = c->chosen};
    PUSH(t->arena, t->subjects, new);
    map_set(t->by_key, c->key, (void *)(intptr_t)t->subjects.n);
    new.part[c->chosen] = 1;
    return &t->subjects.at[t->subjects.n - 1];
}

static void find_subjects(struct tuning *t)
{
    const struct plan *p = t->net->schedule->plan;
    t->by_key = map_create(t->arena);
    tune_places_begin(&t->places, t->arena, p->g);
    for (int i = 0; i < p->units.n; i++) {
        const struct unit *u = p->units.at[i];
        if (u->dead || !u->number || u->program != PROGRAM_FORWARD || !u->choice || u->choice->n < 2) continue;
        const int place = tune_place(&t->places, t->arena, p->g, u->point);
        if (place < 0) continue;
        struct subject *s = subject_of(t, u->choice, u->label);
        s->unit = u;
        s->place = place;
        s->times++;
        for (int k = 1; k < p->numbers; k++)
            if (p->into[k] == u->number) PUSH(t->arena, s->units, k);
    }
    for (int i = 0; i < p->chains.n; i++) {
        const struct plan_chain *c = &p->chains.at[i];
        if (c->choice->n < 2 || c->unit[0]->program != PROGRAM_FORWARD) continue;
        struct subject *s = subject_of(t, c->choice, c->unit[0]->label);
        s->times++;
        for (int k = 0; k < c->n; k++) PUSH(t->arena, s->units, c->unit[k]->number);
    }
}

/* Do the subject's units compute their own work in this plan, and no other unit's? */
static bool closed(const struct tuning *t, const struct subject *s, const struct plan *p)
{
    bool *own = NEW_ARRAY(t->arena, bool, p->numbers);
    for (int i = 0; i < s->units.n; i++) own[s->units.at[i]] = true;
    for (int k = 1; k < p->numbers; k++)
        if (own[k] != own[p->into[k]]) return false;
    return true;
}

/* -- earlier results */

static double budget(const struct tuning *t)
{
    const char *key = ctx_config(t->ctx, "autotune");
    if (!strcmp(key, "fast")) return MIN(2 + 0.25 * t->subjects.n, MOST_FAST_S);
    if (!strcmp(key, "full")) return MIN(10 + 4.0 * t->subjects.n, 300);
    return atof(key);
}

static void remember(struct tuning *t, struct wisdom_entry e)
{
    e.when = time(NULL);
    e.machine = t->wp->machine;
    e.ours = true;
    wisdom_put(t->wp->wisdom, &e);
}

/* Was this network tuned before with the same time limit? */
static bool had_time(const struct tuning *t)
{
    const struct wisdom_entry *e = wisdom_policy_entry(t->wp, t->net->schedule->plan->key);
    return e && strtod(e->variant, NULL) * 1.2 + 0.5 >= t->budget_s;
}

/* -- which candidate next */

/* The similarity of two candidates; 1: equal. */
static double likeness(const struct candidate *a, const struct candidate *b)
{
    enum { PARTS = COUNT_OF(a->variant.p) };
    int different = 0;
    if (a->solver != b->solver) return 0.1;
    for (int i = 0; i < PARTS; i++) different += a->variant.p[i] != b->variant.p[i];
    return 1 / (1.0 + different);
}

/* The expected time of a candidate, relative to the time before: its cost, corrected by the errors of the cost model
 * for similar candidates. */
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

/* Costs of different solvers cannot be compared where they do not come from measurements of the machine. So the
 * cheapest candidate of each solver is tried before costs decide. */
static bool is_first(const struct tuning *t, const struct subject *s, int candidate)
{
    const struct candidate *c = s->c->candidate;
    if (t->net->schedule->plan->target->machine.source != MACHINE_UNKNOWN) return false;
    for (int i = 0; i < s->c->n; i++)
        if (s->part[i] != 0 && c[i].solver == c[candidate].solver) return false;
    return c[candidate].variant.cost < UNMEASURED * c[s->c->chosen].variant.cost;
}

/* False: nothing is worth a trial. */
static bool choose_next(const struct tuning *t, struct subject *s, double *out_hope)
{
    double best = s->part[s->best] * HOPELESS;
    s->now = s->c->chosen;
    for (int i = 0; i < s->c->n; i++) {
        if (s->part[i] != 0) continue;
        const double part = is_first(t, s, i) ? FIRST : expected(s, i);
        if (part >= best) continue;
        if (s->unit && !plan_suits(t->net->schedule->plan, s->unit, &s->c->candidate[i])) {
            s->part[i] = -1; /* it would lose at other sizes */
            continue;
        }
        best = part;
        s->now = i;
    }
    *out_hope = s->ns * (HOPELESS * s->part[s->best] - best) / (1 + s->tried);
    return s->now != s->c->chosen;
}

/* Does another subject of this round use one of its units? If not, this subject reserves them. At other places other
 * versions of them run. */
static bool take_units(const struct tuning *t, const struct subject *s, bool *all)
{
    bool *taken = all + s->place * t->net->schedule->plan->numbers;
    for (int i = 0; i < s->units.n; i++)
        if (taken[s->units.at[i]]) return false;
    for (int i = 0; i < s->units.n; i++) taken[s->units.at[i]] = true;
    return true;
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

/* Chooses the subjects of a round and their candidates, within the time limit; returns their number. */
static int choose_round(struct tuning *t, struct map *trial)
{
    struct hope *hope = NEW_ARRAY(t->arena, struct hope, t->subjects.n + 1);
    bool *taken = NEW_ARRAY(t->arena, bool, TUNE_MOST_PLACES * t->net->schedule->plan->numbers);
    const int most = (int)MAX((t->budget_s - seconds_since(t->start) - 2 * t->run_s) / t->make_s, 0);
    int n = 0, in = 0;
    for (int i = 0; i < t->subjects.n; i++) {
        struct subject *s = &t->subjects.at[i];
        if (s->worth && choose_next(t, s, &hope[n].ns)) hope[n++].s = s;
    }
    if (n) qsort(hope, (size_t)n, sizeof *hope, most_first);
    for (int i = 0; i < n; i++) {
        struct subject *s = hope[i].s;
        if (in < most && take_units(t, s, taken)) {
            map_set(trial, s->c->key, (void *)(intptr_t)(s->now + 1));
            in++;
        } else {
            s->now = s->c->chosen;
        }
    }
    return in;
}

/* -- rounds */

static double time_of(const struct subject *s, const double *unit_ns)
{
    double ns = 0;
    for (int i = 0; i < s->units.n; i++) ns += unit_ns[s->units.at[i]];
    return ns;
}

/* The time of each unit, by number. */
static double *unit_times(const struct tuning *t, const struct tune_net *n, const int64_t *step_ns)
{
    const struct schedule_program *pr = &n->schedule->program[PROGRAM_FORWARD];
    double *ns = NEW_ARRAY(t->arena, double, n->schedule->plan->numbers);
    for (int i = 0; i < pr->steps.n; i++)
        if (pr->steps.at[i].unit) ns[pr->steps.at[i].unit->number] += (double)step_ns[i];
    return ns;
}

static void log_trial(const struct tuning *t, const struct subject *s)
{
    const struct candidate *now = &s->c->candidate[s->now], *was = &s->c->candidate[s->c->chosen];
    LOG(t->ctx, LOG_TRACE, "tune", "%s: %.3f of %.1f us, cost %.1f for %.1f us: %s %s for %s %s", s->what,
        s->part[s->now], s->ns / s->times / 1e3, now->variant.cost / 1e3, was->variant.cost / 1e3, now->solver->name,
        now->variant.text, was->solver->name, was->variant.text);
}

static void judge(struct tuning *t, struct subject *s, const struct plan *p, double before, double after)
{
    const struct choice *c = map_get(p->known, s->c->key);
    if (s->now == s->c->chosen) return;
    before += s->times * s->c->candidate[s->c->chosen].variant.once;
    after += s->times * s->c->candidate[s->now].variant.once;
    const bool tried = c && c->chosen == s->now && before > 0 && after > 0 && closed(t, s, p);
    const double part = tried ? MAX(after / before, 1e-6) : -1;
    /* measured twice, the slower time counts, because the best of many trials is partly luck */
    s->part[s->now] = tried ? MAX(part, s->part[s->now]) : part;
    if (s->now == s->best ? part < 0 : tried && s->part[s->now] < s->part[s->best])
        s->best = tried ? s->now : s->c->chosen;
    s->tried++;
    t->trials++;
    log_trial(t, s);
}

/* The noise: how much the subjects of a network differ from themselves, weighted by their time. */
static void judge_noise(struct tuning *t, int place, double *const unit_ns[2])
{
    double off = 0, all = 1;
    for (int i = 0; i < t->subjects.n; i++) {
        const struct subject *s = &t->subjects.at[i];
        if (s->place != place) continue;
        off += fabs(time_of(s, unit_ns[0]) - time_of(s, unit_ns[1]));
        all += s->ns;
    }
    t->clear = MIN(t->clear, 1 - NOISE * off / all);
}

static sol_status measure_at(struct tuning *t, int place, struct tune_net *other)
{
    struct tune_net *const both[2] = {t->net, other};
    int64_t *ns[2];
    double *unit_ns[2];
    for (int k = 0; k < 2; k++)
        ns[k] = NEW_ARRAY(t->arena, int64_t, both[k]->schedule->program[PROGRAM_FORWARD].steps.n + 1);
    TRY(trial_steps(both, &t->places.at[place], (int64_t)(RUN_S * 1e9 / t->places.n), ns));
    for (int k = 0; k < 2; k++) unit_ns[k] = unit_times(t, both[k], ns[k]);
    for (int i = 0; i < both[0]->schedule->program[PROGRAM_FORWARD].steps.n && !t->rounds; i++)
        t->total_ns[place] += (double)ns[0][i];
    for (int i = 0; i < t->subjects.n; i++) {
        struct subject *s = &t->subjects.at[i];
        if (s->place != place) continue;
        const double before = time_of(s, unit_ns[0]), after = time_of(s, unit_ns[1]);
        if (!t->rounds) s->ns = before;
        judge(t, s, other->schedule->plan, before, after);
    }
    if (!t->rounds) judge_noise(t, place, unit_ns);
    return ctx_check(t->ctx);
}

static bool is_used(const struct tuning *t, int place)
{
    for (int i = 0; i < t->subjects.n; i++)
        if (t->subjects.at[i].place == place) return true;
    return false;
}

static sol_status measure(struct tuning *t, struct tune_net *other)
{
    const int64_t start = clock_ns();
    for (int i = 0; i < t->places.n; i++)
        if (is_used(t, i)) TRY(measure_at(t, i, other));
    t->run_s = seconds_since(start);
    t->rounds++;
    return SOL_OK;
}

static bool gains(const struct tuning *t, const struct subject *s)
{
    return s->best != s->c->chosen && s->part[s->best] < t->clear;
}

/* At the hints. *out_n: at all places. */
static double gained_ns(const struct tuning *t, int *out_n)
{
    double ns = 0;
    *out_n = 0;
    for (int i = 0; i < t->subjects.n; i++) {
        const struct subject *s = &t->subjects.at[i];
        if (!gains(t, s)) continue;
        if (!s->place) ns += s->ns * (1 - s->part[s->best]);
        ++*out_n;
    }
    return ns;
}

static void report_progress(const struct tuning *t)
{
    int n;
    const double gained = gained_ns(t, &n);
    const char *what = arena_printf(t->arena, "Tuning: %d of %d kernels, %.2f -> %.2f ms", n, t->subjects.n,
                                    t->total_ns[0] / 1e6, (t->total_ns[0] - gained) / 1e6);
    ctx_progress(t->ctx, what, (int)MIN(seconds_since(t->start), t->budget_s), (int)ceil(t->budget_s));
}

static sol_status round_of_trials(struct tuning *t, struct map *trial, int n)
{
    struct tune_net other = {0};
    const int64_t start = clock_ns();
    t->wp->trial = trial;
    sol_status status = t->m->make(t->m->user, &t->wp->policy, true, &other);
    t->make_s = MAX(seconds_since(start) / n, 0.01);
    if (!status) status = measure(t, &other);
    tune_net_free(&other);
    t->wp->trial = NULL;
    return status;
}

static void find_worth(struct tuning *t)
{
    const bool fast = !strcmp(ctx_config(t->ctx, "autotune"), "fast");
    for (int i = 0; i < t->subjects.n; i++) {
        struct subject *s = &t->subjects.at[i];
        const struct wisdom_entry *e = wisdom_policy_entry(t->wp, s->c->key);
        s->worth = s->place >= 0 && s->ns >= LEAST_SHARE * t->total_ns[s->place] && !(fast && e) &&
                   closed(t, s, t->net->schedule->plan);
    }
}

static sol_status rounds(struct tuning *t)
{
    TRY(measure(t, t->net)); /* compare the network with itself, to find the time of each subject */
    double most = 0;
    for (int i = 0; i < t->places.n; i++) most = MAX(most, t->total_ns[i]);
    if (most < LEAST_US * 1e3) return SOL_OK;
    find_worth(t);
    for (;;) {
        struct map *trial = map_create(t->arena);
        const int n = choose_round(t, trial);
        if (!n) return SOL_OK;
        report_progress(t);
        TRY(round_of_trials(t, trial, n));
    }
}

/* -- results */

/* Selects all winners so far; returns their number. */
static int winners(struct tuning *t, struct map *trial)
{
    int n = 0;
    for (int i = 0; i < t->subjects.n; i++) {
        struct subject *s = &t->subjects.at[i];
        s->now = gains(t, s) ? s->best : s->c->chosen;
        if (!gains(t, s)) continue;
        map_set(trial, s->c->key, (void *)(intptr_t)(s->best + 1));
        n++;
    }
    return n;
}

/* Is the whole network better: faster at some place, and slower at none? out_ns: at the hints. */
static sol_status compare(struct tuning *t, struct tune_net *other, double out_ns[2], bool *out_better)
{
    struct tune_net *const both[2] = {t->net, other};
    bool faster = false, slower = false;
    for (int i = 0; i < t->places.n; i++) {
        double ns[2];
        TRY(trial_whole(both, &t->places.at[i], (int64_t)(2 * RUN_S * 1e9), ns));
        faster |= ns[1] < ns[0] * WHOLE_GAIN;
        slower |= ns[1] * WHOLE_GAIN > ns[0];
        for (int k = 0; k < 2 && !i; k++) out_ns[k] = ns[k];
    }
    *out_better = faster && !slower;
    return SOL_OK;
}

/* Builds the network with the winners, and decides whether it is better. */
static sol_status confirm(struct tuning *t, double out_ns[2])
{
    struct tune_net other = {0};
    bool better = false;
    t->wp->trial = map_create(t->arena);
    if (!winners(t, t->wp->trial)) return SOL_OK;
    sol_status status = t->m->make(t->m->user, &t->wp->policy, false, &other);
    if (!status) status = compare(t, &other, out_ns, &better);
    t->wp->trial = NULL;
    if (better)
        t->better = other;
    else
        tune_net_free(&other);
    return status;
}

/* Stores the result of each subject. Without a gain of the whole network, nothing changes. */
static void keep(struct tuning *t, bool better)
{
    for (int i = 0; i < t->subjects.n; i++) {
        const struct subject *s = &t->subjects.at[i];
        const bool won = better && gains(t, s);
        const struct candidate *c = &s->c->candidate[won ? s->best : s->c->chosen];
        const double ns = s->ns / s->times;
        if (s->tried)
            remember(t, (struct wisdom_entry){
                            .key = s->c->key,
                            .solver = c->solver->name,
                            .variant = c->variant.text,
                            .ns = won ? ns * s->part[s->best] : ns,
                            .before_ns = ns,
                            .what = arena_printf(t->arena, "%s: %s", t->net->schedule->plan->g->name, s->what)});
    }
}

/* Logs how many kernels each plug-in won. */
static void report_plugins(const struct tuning *t)
{
    const struct plugins *plugins = t->wp->policy.plugins;
    for (int i = 0; plugins && i < plugins->n; i++) {
        int n = 0;
        for (int k = 0; k < t->subjects.n; k++) {
            const struct subject *s = &t->subjects.at[k];
            const int chosen = t->better.net && gains(t, s) ? s->best : s->c->chosen;
            n += !strcmp(s->c->candidate[chosen].solver->name, plugins->at[i].name);
        }
        LOG(t->ctx, n ? LOG_INFO : LOG_DEBUG, "tune", "Plug-ins: %s: %d of %d kernels are %s's",
            t->net->schedule->plan->g->name, n, t->subjects.n, plugins->at[i].library);
    }
}

static void keep_network(struct tuning *t, const double ns[2])
{
    const char *name = t->net->schedule->plan->g->name;
    const double before = t->better.net ? ns[0] : t->total_ns[0], after = t->better.net ? ns[1] : t->total_ns[0];
    int n = 0;
    if (t->better.net) gained_ns(t, &n);
    remember(t, (struct wisdom_entry){.key = t->net->schedule->plan->key,
                                      .solver = "network",
                                      .variant = arena_printf(t->arena, "%.1f s", t->budget_s),
                                      .ns = after,
                                      .before_ns = before,
                                      .what = name});
    LOG(t->ctx, t->trials ? LOG_INFO : LOG_DEBUG, "tune",
        "Tuning: %s: %d of %d kernels changed, %.2f -> %.2f ms, %d trials in %.1f s", name, n, t->subjects.n,
        before / 1e6, after / 1e6, t->trials, seconds_since(t->start));
    report_plugins(t);
}

static sol_status tune(struct tuning *t)
{
    double ns[2] = {0, 0};
    sol_status status = rounds(t);
    if (!status) { /* measure all winners together again */
        struct map *trial = map_create(t->arena);
        const int n = winners(t, trial), trials = t->trials;
        if (n) status = round_of_trials(t, trial, n);
        t->trials = trials;
    }
    if (!status) status = confirm(t, ns);
    if (status && status != SOL_ERR_INTERRUPTED) return status;
    keep(t, status || t->better.net);
    if (!status) keep_network(t, ns);
    wisdom_save(t->ctx, t->wp->wisdom);
    return status;
}

/* Is there memory for a second network with its own parameters and inputs, and time for a few runs? */
static bool affordable(const struct tuning *t)
{
    double ns = 0, need = 0;
    for (int i = 0; i < t->places.n; i++) {
        struct sol_memory m;
        if (sol_net_memory_at(t->net->net, t->places.at[i].dims, &m)) return false;
        need = MAX(need, (double)m.peak + (double)m.prepared + (double)m.workspace);
        ns += tune_place_ns(t->net->schedule->plan, &t->places.at[i]);
    }
    const double free = machine_free_bytes();
    const int runs = t->places.n == 1 ? RUNS : 4 * RUNS; /* further places must leave time for trials */
    const bool can = need < 0.5 * free && ns * runs < t->budget_s * 1e9;
    if (!can && t->places.n == 1)
        LOG(t->ctx, LOG_DEBUG, "tune", "%s is not tuned: %.0f of %.0f free MB, %.1f ms a run",
            t->net->schedule->plan->g->name, need / 1e6, free / 1e6, ns / 1e6);
    return can;
}

/* Leaves out the place that takes the longest, but never the hints: kernels for large sizes stay as they are. */
static void drop_place(struct tuning *t)
{
    const struct plan *p = t->net->schedule->plan;
    int longest = 1;
    for (int i = 2; i < t->places.n; i++)
        if (tune_place_ns(p, &t->places.at[i]) > tune_place_ns(p, &t->places.at[longest])) longest = i;
    t->places.n--;
    for (int i = longest; i < t->places.n; i++) t->places.at[i] = t->places.at[i + 1];
    for (int i = 0; i < t->subjects.n; i++) {
        int *place = &t->subjects.at[i].place;
        *place = *place == longest ? -1 : *place - (*place > longest);
    }
}

static sol_status begin(struct tuning *t)
{
    const bool fast = !strcmp(ctx_config(t->ctx, "autotune"), "fast");
    if (graph_is_joint(t->net->schedule->plan->g)) return SOL_OK;
    if (!*ctx_config(t->ctx, "cache::folder") || strcmp(ctx_config(t->ctx, "solver"), "auto")) return SOL_OK;
    find_subjects(t);
    t->budget_s = budget(t);
    if (!t->subjects.n || had_time(t)) return SOL_OK;
    while (!affordable(t)) {
        if (t->places.n == 1) return SOL_OK;
        drop_place(t);
    }
    if (fast && (double)ctx_spent(t->ctx, 0) * 1e-9 + t->budget_s > MOST_S) return SOL_OK;
    if (!tune_places_data(&t->places, t->arena, t->net->net)) return SOL_OK;
    const sol_status status = tune(t);
    ctx_spent(t->ctx, clock_ns() - t->start);
    return status;
}

/* *n has tensors of the host. It becomes the better network. */
static sol_status tune_here(struct wisdom_policy *wp, const struct tune_maker *m, struct tune_net *n)
{
    struct sol_ctx *ctx = n->schedule->plan->ctx;
    struct arena *a = arena_create(ctx);
    if (!a) return ctx_check(ctx);
    struct tuning t = {.wp = wp,
                       .m = m,
                       .net = n,
                       .ctx = ctx,
                       .arena = a,
                       .make_s = MAX(m->kernel_s, LEAST_MAKE_S),
                       .run_s = RUN_S,
                       .clear = CLEAR_GAIN,
                       .start = clock_ns()};
    const sol_status status = begin(&t);
    wp->trial = NULL;
    if (t.better.net) {
        tune_net_free(n); /* freed last, because subjects refer to its plan */
        *n = t.better;
    }
    sol_params_destroy(n->params); /* its data lie in the arena */
    n->params = NULL;
    arena_destroy(a);
    return status;
}

/* Tunes a network with tensors of the host in the place of a resident one, which then is made again with what was
 * found. */
static sol_status tune_resident(struct wisdom_policy *wp, const struct tune_maker *m, struct tune_net *n)
{
    struct tune_net here = {0}, better;
    if (!strcmp(ctx_config(n->schedule->plan->ctx, "autotune"), "fast")) return SOL_OK;
    sol_status status = m->make(m->user, &wp->policy, true, &here);
    if (!status) status = tune_here(wp, m, &here);
    tune_net_free(&here);
    if (!status) status = m->make(m->user, &wp->policy, false, &better);
    if (status) return status;
    tune_net_free(n);
    *n = better;
    return SOL_OK;
}

sol_status tune_network(struct wisdom_policy *wp, const struct tune_maker *m, struct tune_net *n)
{
    struct sol_ctx *ctx = n->schedule->plan->ctx;
    const sol_status status = n->schedule->plan->g->resident ? tune_resident(wp, m, n) : tune_here(wp, m, n);
    if (!status || status == SOL_ERR_INTERRUPTED) return status;
    LOG(ctx, LOG_DEBUG, "tune", "tuning has stopped: %s", sol_error(ctx));
    ctx_clear(ctx);
    return SOL_OK;
}
