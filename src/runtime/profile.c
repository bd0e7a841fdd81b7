/* Profiles: the times of each kernel in the last runs, as rows and as a printed table. */
#include "runtime/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- recording */

void profile_add(struct sol_net *net, struct profile *p, int nstep, const int64_t *ns, const int64_t *dims)
{
    net_lock(net);
    if (!p->ns && nstep) p->ns = ctx_try(net->ctx, (size_t)nstep * PROFILE_RUNS * sizeof *p->ns);
    if (dims) memcpy(p->dims, dims, (size_t)net->module->ndim * sizeof *dims);
    if (p->ns) memcpy(p->ns + (size_t)(p->runs++ % PROFILE_RUNS) * (size_t)nstep, ns, (size_t)nstep * sizeof *ns);
    net_unlock(net);
}

void sol_net_profile_clear(struct sol_net *net)
{
    net_lock(net);
    net->forward_profile.runs = net->backward_profile.runs = 0;
    net_unlock(net);
}

/* -- rows: the steps of one kernel */

static const struct net_note *note_of(const struct sol_net *net, int backward, int step)
{
    static const struct net_note none;
    return net->parts.notes[backward] ? &net->parts.notes[backward][step] : &none;
}

static int by_value(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The total time of steps [first, end) for each run. The caller holds the lock. */
static void measure(const struct profile *p, int nstep, int first, int end, struct sol_profile_row *row)
{
    int64_t ns[PROFILE_RUNS];
    const int n = (int)MIN(p->runs, PROFILE_RUNS);
    for (int r = 0; r < n; r++) {
        ns[r] = 0;
        for (int i = first; i < end; i++) ns[r] += p->ns[(size_t)r * (size_t)nstep + (size_t)i];
    }
    qsort(ns, (size_t)n, sizeof *ns, by_value);
    row->runs = n;
    row->median_ns = n ? (double)(ns[(n - 1) / 2] + ns[n / 2]) / 2 : 0;
    row->least_ns = n ? (double)ns[0] : 0;
}

/* Compares a kernel with the machine's limits. Its data was used by the kernel before, or will be by the next one, so
 * it is assumed to be in the nearest cache that can hold all of it. */
static void compare(const struct sol_machine *m, struct sol_profile_row *row)
{
    const bool l2 = row->bytes <= (double)m->l2_bytes, l3 = row->bytes <= (double)m->l3_bytes;
    const double ns = row->median_ns, rate = l2 ? m->l2_rate : l3 ? m->l3_rate : m->memory_rate;
    row->level = rate <= 0 ? "" : l2 ? "L2" : l3 ? "L3" : "mem";
    row->of_peak = ns > 0 && m->flops > 0 ? row->flops / ns / m->flops : 0;
    row->of_rate = ns > 0 && rate > 0 ? row->bytes / ns / rate : 0;
}

/* At the sizes of the last run, if it is known how the work depends on them. */
static double work_of(const struct profile *p, int64_t size, double hint)
{
    const int64_t at = p->runs && size_varies(size) ? size_at(size, p->dims) : SIZE_BAD;
    return at == SIZE_BAD ? hint : (double)at;
}

/* Fills in the row that begins with step `first`, and returns the first step of the next row. */
static int row_at(struct sol_net *net, int backward, int first, struct sol_profile_row *row)
{
    const struct sol_program *p = backward ? &net->module->backward : &net->module->forward;
    const struct net_note *note = note_of(net, backward, first);
    int end = first + 1;
    while (end < p->nstep && note_of(net, backward, end)->continues) end++;
    *row = (struct sol_profile_row){.label = note->label ? note->label : p->step[first].label,
                                    .solver = note->solver ? note->solver : "",
                                    .where = note->where ? note->where : "",
                                    .backward = backward};
    if (!row->label) row->label = "";
    const struct profile *profile = backward ? &net->backward_profile : &net->forward_profile;
    net_lock(net);
    measure(profile, p->nstep, first, end, row);
    for (int i = first; i < end; i++) {
        const struct net_note *one = note_of(net, backward, i);
        row->flops += work_of(profile, one->flops, p->step[i].flops);
        row->bytes += work_of(profile, one->bytes, p->step[i].bytes);
    }
    net_unlock(net);
    if (!row->bytes && size_varies(note->bytes)) row->runs = 0; /* other versions of it ran at these sizes */
    compare(&net->parts.machine, row);
    return end;
}

int sol_net_profile(struct sol_net *net, int i, struct sol_profile_row *out)
{
    for (int backward = 0; backward < 2; backward++) {
        const int nstep = backward ? net->module->backward.nstep : net->module->forward.nstep;
        for (int step = 0; step < nstep; i--) {
            step = row_at(net, backward, step, out);
            if (!i) return 1;
        }
    }
    *out = (struct sol_profile_row){0};
    return 0;
}

/* -- the table */

static int longest_first(const void *a, const void *b)
{
    const struct sol_profile_row *x = a, *y = b;
    if (x->median_ns != y->median_ns) return x->median_ns > y->median_ns ? -1 : 1;
    return x->backward != y->backward ? x->backward - y->backward : strcmp(x->label, y->label);
}

struct sums {
    double ns[2], flops, bytes;
    int runs;
};

static void put_machine(struct text *t, const struct sol_machine *m)
{
    if (!m->source || !*m->source) return;
    text_put(t, "machine (%s): %d threads, %.0f GFLOP/s; reads L2 %.0f, L3 %.0f, memory %.0f GB/s\n", m->source,
             m->threads, m->flops, m->l2_rate, m->l3_rate, m->memory_rate);
}

static void put_time(struct text *t, const char *before, double ns)
{
    const bool short_time = ns < 1e6;
    text_put(t, short_time ? "%s%.2f us" : "%s%.3f ms", before, ns / (short_time ? 1e3 : 1e6));
}

static void put_head(struct text *t, const struct sol_net *net, const struct sums *s)
{
    const double ns = s->ns[0] + s->ns[1];
    text_put(t, "%s", net->parts.name);
    put_time(t, ": ", ns);
    if (s->ns[1] > 0) {
        put_time(t, " (forward ", s->ns[0]);
        put_time(t, ", backward ", s->ns[1]);
        text_put(t, ")");
    }
    text_put(t, ", %.1f GFLOP/s; median of %d run%s\n", s->flops / MAX(ns, 1), s->runs, s->runs == 1 ? "" : "s");
    put_machine(t, &net->parts.machine);
    text_put(t, "%10s %6s %8s %5s %7s %9s  %-28s %s\n", "us", "share", "GFLOP/s", "peak", "GB/s", "rate", "solver",
             "layers");
}

static void put_row(struct text *t, const struct sol_profile_row *r, const struct sums *s)
{
    const double ns = MAX(r->median_ns, 1);
    text_put(t, "%10.2f %5.1f%% %8.1f %4.0f%% %7.1f %4.0f%% %-4s  %-28.28s %s%.100s", r->median_ns / 1e3,
             100 * r->median_ns / MAX(s->ns[0] + s->ns[1], 1), r->flops / ns, 100 * r->of_peak, r->bytes / ns,
             100 * r->of_rate, r->level, r->solver, r->backward ? "backward: " : "", r->label);
    text_put(t, "%s%s%s\n", *r->where ? " (" : "", r->where, *r->where ? ")" : "");
}

sol_status sol_net_profile_print(struct sol_net *net, char **out_text)
{
    *out_text = NULL;
    struct arena *a = arena_create(net->ctx);
    if (!a) return ctx_check(net->ctx);
    VECTOR(struct sol_profile_row) rows = {0};
    struct sums s = {.ns = {0, 0}};
    struct sol_profile_row r;
    struct text t = text_new(a);
    for (int i = 0; sol_net_profile(net, i, &r); i++) {
        if (!r.runs || r.median_ns <= 0) continue;
        PUSH(a, rows, r);
        s.ns[r.backward] += r.median_ns;
        s.flops += r.flops;
        s.bytes += r.bytes;
        s.runs = s.runs ? MIN(s.runs, r.runs) : r.runs;
    }
    if (rows.n) {
        qsort(rows.at, (size_t)rows.n, sizeof *rows.at, longest_first);
        put_head(&t, net, &s);
        for (int i = 0; i < rows.n; i++) put_row(&t, &rows.at[i], &s);
    } else {
        text_put(&t, "%s: no run was measured (key profile)\n", net->parts.name);
    }
    sol_status status = ctx_check(net->ctx);
    const size_t bytes = strlen(t.at) + 1;
    if (!status && !(*out_text = ctx_try(net->ctx, bytes)))
        status = ctx_fail(net->ctx, SOL_ERR_NOMEM, "out of memory: the profile of '%s'", net->parts.name);
    if (!status) memcpy(*out_text, t.at, bytes);
    arena_destroy(a);
    return status;
}
