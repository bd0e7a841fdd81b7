/* Trials: runs of networks on synthetic data. Two networks alternate, so that disturbances affect both. */
#include <stdlib.h>
#include <string.h>

#include "tune/tune.h"

enum { WARM = 2, LEAST_RUNS = 5, MOST_RUNS = 60 };

void tune_net_free(struct tune_net *n)
{
    sol_params_destroy(n->params);
    sol_net_destroy(n->net);
    arena_destroy(n->arena);
    *n = (struct tune_net){0};
}

/* -- data */

static double next(uint64_t *state) /* 0.5 to 1.5 */
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return 0.5 + (double)(*state >> 40) / (double)(1 << 24);
}

/* Weights are positive and sum up to about 1 for each result, so that values keep their magnitude through any depth.
 * This avoids infinities and denormals, which take a processor a hundred times as long. Integers are 0, which is a
 * valid index everywhere. */
static void fill(void *at, const struct sol_io *io, int64_t n, uint64_t seed)
{
    const struct dtype_def *type = dtype_def(io->dtype);
    double fan_in = 1;
    for (int d = 1; d < io->ndim; d++) fan_in *= (double)io->shape[d];
    if (!type->is_float || (type->bytes != 4 && type->bytes != 8)) return; /* zeros: the arena's memory is zeroed */
    for (int64_t i = 0; i < n; i++) {
        const double v = next(&seed) / fan_in;
        if (type->bytes == 4)
            ((float *)at)[i] = (float)v;
        else
            ((double *)at)[i] = v;
    }
}

enum contents { EMPTY, VALUES, SUMS };

static void *make(struct arena *a, const struct sol_io *io, const int64_t *dims, enum contents what, uint64_t seed)
{
    int64_t n = 1;
    for (int d = 0; d < io->ndim; d++) n *= size_at(io->shape[d], dims);
    char *raw = arena_try(a, (size_t)n * dtype_def(io->dtype)->bytes + 64);
    if (!raw) return NULL;
    void *at = (char *)(((uintptr_t)raw + 63) / 64 * 64);
    const struct sol_io flat = {.dtype = io->dtype};
    if (what != EMPTY) fill(at, what == SUMS ? io : &flat, n, seed);
    return at;
}

bool trial_data_make(struct arena *a, const struct sol_net *net, struct trial_data *out)
{
    const int nin = sol_net_inputs(net), nout = sol_net_outputs(net), nparam = sol_net_params(net);
    bool good = true, params = !out->params;
    out->inputs = NEW_ARRAY(a, const void *, nin + 1);
    out->outputs = NEW_ARRAY(a, void *, nout + 1);
    if (params) out->params = NEW_ARRAY(a, const void *, nparam + 1);
    for (int i = 0; i < nin; i++) {
        const struct sol_io io = sol_net_input(net, i);
        good = good && (out->inputs[i] = make(a, &io, out->dims, VALUES, (uint64_t)i));
    }
    for (int i = 0; i < nparam && params; i++) {
        const struct sol_io io = sol_net_param_io(net, i);
        good = good && (out->params[i] = make(a, &io, out->dims, SUMS, (uint64_t)i + 1000));
    }
    for (int i = 0; i < nout; i++) {
        const struct sol_io io = sol_net_output(net, i);
        good = good && (out->outputs[i] = make(a, &io, out->dims, EMPTY, 0));
    }
    return good;
}

sol_status trial_params(struct sol_net *net, const struct trial_data *d, struct sol_params **out_params)
{
    TRY(sol_params_create(net, out_params));
    for (int i = 0; i < sol_net_params(net); i++) TRY(sol_params_set(*out_params, i, d->params[i]));
    return SOL_OK;
}

/* -- runs */

static struct sol_call call_of(const struct trial_data *d)
{
    return (struct sol_call){.dims = d->dims, .inputs = d->inputs, .outputs = d->outputs};
}

static sol_status warm(struct tune_net *const n[2], const struct trial_data *d, int64_t *out_ns)
{
    for (int k = 0; k < 2; k++)
        if (!n[k]->params) TRY(trial_params(n[k]->net, d, &n[k]->params));
    int64_t start = 0;
    const struct sol_call c = call_of(d);
    for (int i = 0; i < WARM; i++) {
        start = clock_ns();
        for (int k = 0; k < 2; k++) TRY(sol_net_run_at(n[k]->net, n[k]->params, &c));
    }
    *out_ns = MAX(clock_ns() - start, 1000);
    return SOL_OK;
}

static int runs_for(int64_t run_ns, int64_t pair_ns)
{
    return (int)MIN(MAX(run_ns / pair_ns, LEAST_RUNS), MOST_RUNS);
}

sol_status trial_steps(struct tune_net *const n[2], const struct trial_data *d, int64_t run_ns, int64_t *const ns[2])
{
    struct sol_ctx *ctx = n[0]->schedule->plan->ctx;
    int64_t pair_ns;
    TRY(warm(n, d, &pair_ns));
    const int runs = runs_for(run_ns, pair_ns);
    const struct sol_call c = call_of(d);
    for (int i = 0; i < runs; i++)
        for (int k = 0; k < 2; k++) {
            const int steps = n[k]->schedule->program[PROGRAM_FORWARD].steps.n;
            int64_t *now = NEW_ARRAY(n[k]->arena, int64_t, steps + 1);
            TRY(ctx_check(ctx));
            TRY(net_measure(n[k]->net, n[k]->params, &c, now));
            for (int s = 0; s < steps; s++) ns[k][s] = i ? MIN(ns[k][s], now[s]) : now[s];
        }
    return SOL_OK;
}

static int by_value(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

sol_status trial_whole(struct tune_net *const n[2], const struct trial_data *d, int64_t run_ns, double out_ns[2])
{
    int64_t ns[2][MOST_RUNS], pair_ns;
    TRY(warm(n, d, &pair_ns));
    const int runs = runs_for(run_ns, pair_ns);
    const struct sol_call c = call_of(d);
    for (int i = 0; i < runs; i++)
        for (int k = 0; k < 2; k++) {
            TRY(ctx_check(n[0]->schedule->plan->ctx));
            const int64_t start = clock_ns();
            TRY(sol_net_run_at(n[k]->net, n[k]->params, &c));
            ns[k][i] = clock_ns() - start;
        }
    for (int k = 0; k < 2; k++) {
        qsort(ns[k], (size_t)runs, sizeof *ns[k], by_value);
        out_ns[k] = (double)ns[k][runs / 4];
    }
    return SOL_OK;
}
