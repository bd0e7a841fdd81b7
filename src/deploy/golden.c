/* Golden vectors: the reference values for the self-test of a deployed library. The network's own kernels compute them
 * at deployment on generated inputs (made_up.h), for any target processor.
 *
 * Another processor adds in another order, fuses other products, and has another expf. This has the same effect as
 * small changes of inputs, parameters and constants: a sum of n terms in any order equals the exact sum of terms that
 * are off by about sqrt(n) unit roundoffs each (Higham, Accuracy and Stability of Numerical Algorithms, 2.8 and 3.1:
 * backward errors, which grow with the root in practice). The network therefore runs three more times, with every real
 * number moved at random by up to 2^8 unit roundoffs, which corresponds to sums of 2^16 terms. The tolerance of an
 * element is twice the largest change in these runs, but at least 2^8 unit roundoffs of the output's largest number. If
 * these runs change an integer or turn a number into NaN, rounding decides the element, and it is not compared. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "deploy/deploy.h"
#include "deploy/made_up.h"

enum { MOVED_RUNS = 3, ROUNDOFFS = 256 };

bool deploy_tests_itself(const struct deploy *d)
{
    return !strcmp(d->keys.selftest, "1");
}

struct golden {
    struct deploy *d;
    struct deploy_graph *g;
    struct deploy_here here;
    void **inputs, **outputs;
    int kind;
};

static bool is_real(const struct sol_tensor *t)
{
    return dtype_def((enum sol_dtype)t->dtype)->is_float;
}

static size_t bytes_of(const struct sol_tensor *t)
{
    return (size_t)tensor_elements(t) * dtype_def((enum sol_dtype)t->dtype)->bytes;
}

static double real_at(const struct sol_tensor *t, const void *data, int64_t i)
{
    return t->dtype == SOL_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static double roundoff(const struct sol_tensor *t)
{
    return t->dtype == SOL_F64 ? DBL_EPSILON / 2 : (double)FLT_EPSILON / 2;
}

static sol_status take(struct deploy *d, const struct sol_tensor *t, void **out_data)
{
    *out_data = arena_try(d->arena, bytes_of(t) + 8);
    if (*out_data) return SOL_OK;
    return ctx_fail(d->ctx, SOL_ERR_NOMEM, "deploy: selftest: out of memory for %zu bytes", bytes_of(t));
}

/* -- what is run */

/* Whole numbers, such as positions and masks, are exact and stay. */
static void move(const struct sol_tensor *t, const void *from, void *to, uint64_t stream)
{
    memcpy(to, from, bytes_of(t));
    for (int64_t i = 0; is_real(t) && i < tensor_elements(t); i++) {
        const double x = real_at(t, from, i), random = (double)(made_up_bits(stream + (uint64_t)i) >> 11) * 0x1p-52 - 1;
        const double moved = x * (1 + ROUNDOFFS * roundoff(t) * random);
        if (!isfinite(x) || x == trunc(x)) continue;
        if (t->dtype == SOL_F64)
            ((double *)to)[i] = moved;
        else
            ((float *)to)[i] = (float)moved;
    }
}

/* The copies are made in the first such run. */
static sol_status moved(struct deploy *d, const struct sol_tensor *t, const void *from, const void **to,
                        uint64_t stream)
{
    if (!from) return SOL_OK;
    if (!*to) {
        void *copy;
        TRY(take(d, t, &copy));
        *to = copy;
    }
    move(t, from, (void *)(uintptr_t)*to, stream << 40);
    return SOL_OK;
}

static void fill_inputs(const struct golden *x)
{
    for (int i = 0; i < deploy_inputs(x->d); i++) {
        const struct sol_tensor *t = x->g->g->inputs.at[i];
        made_up(dtype_def((enum sol_dtype)t->dtype)->name, bytes_of(t), x->kind, i, x->inputs[i]);
    }
    if (x->g->seed_input >= 0) *(int64_t *)x->inputs[x->g->seed_input] = 1;
}

static sol_status run(struct golden *x, const struct deploy_data *data)
{
    const struct sol_module *t = x->here.module.table;
    TRY(deploy_run_here(&x->here, &t->prepare, data));
    return deploy_run_here(&x->here, &t->forward, data);
}

static bool all_finite(const struct golden *x)
{
    for (int i = 0; i < x->d->noutput; i++) {
        const struct sol_tensor *t = deploy_output(x->d, x->g, i);
        for (int64_t k = 0; is_real(t) && k < tensor_elements(t); k++)
            if (!isfinite(real_at(t, x->outputs[i], k))) return false;
    }
    return true;
}

/* The first kind of inputs with finite results; otherwise the last kind that the network accepts. */
static sol_status run_first(struct golden *x)
{
    const struct deploy_data data = {
        .params = x->g->params, .inputs = (const void *const *)x->inputs, .outputs = x->outputs};
    sol_status status = SOL_OK;
    int taken = -1;
    for (x->kind = 0; x->kind < MADE_UP_KINDS; x->kind++) {
        fill_inputs(x);
        status = run(x, &data);
        if (!status && all_finite(x)) return SOL_OK;
        if (!status) taken = x->kind;
        if (status && status != SOL_ERR_RUN) return status;
    }
    if (taken < 0) return ctx_where(x->d->ctx, status, "deploy: selftest: the network takes no made-up inputs: ");
    x->kind = taken;
    fill_inputs(x);
    return run(x, &data);
}

static sol_status run_moved(struct golden *x, struct deploy_data *data, int number)
{
    const struct sol_graph *g = x->g->g;
    const struct schedule *s = x->here.schedule;
    const void **params = (const void **)(uintptr_t)data->params, **consts = (const void **)(uintptr_t)data->consts;
    const void **inputs = (const void **)(uintptr_t)data->inputs;
    uint64_t stream = 1000 + 1000 * (uint64_t)number;
    for (int i = 0; i < g->params.n; i++)
        TRY(moved(x->d, g->params.at[i], x->g->params ? x->g->params[i] : NULL, &params[i], stream++));
    for (int i = 0; i < s->constants.n; i++)
        TRY(moved(x->d, s->constants.at[i], s->constants.at[i]->data, &consts[i], stream++));
    for (int i = 0; i < g->inputs.n; i++) TRY(moved(x->d, g->inputs.at[i], x->inputs[i], &inputs[i], stream++));
    return run(x, data);
}

/* -- what is stored */

static int64_t samples(const struct sol_tensor *t)
{
    return MIN(tensor_elements(t), (int64_t)GOLDEN_SAMPLES);
}

static double largest(const struct sol_tensor *t, const void *data)
{
    double most = 0;
    for (int64_t i = 0; is_real(t) && i < tensor_elements(t); i++) {
        const double x = fabs(real_at(t, data, i));
        if (isfinite(x)) most = fmax(most, x);
    }
    return most;
}

/* Elements at equal distances. */
static void begin_samples(const struct golden *x, int output, struct front_sample *sample)
{
    const struct sol_tensor *t = deploy_output(x->d, x->g, output);
    const size_t size = dtype_def((enum sol_dtype)t->dtype)->bytes;
    const double least = ROUNDOFFS * roundoff(t) * largest(t, x->outputs[output]);
    for (int64_t k = 0; k < samples(t); k++) {
        struct front_sample *s = &sample[k];
        *s = (struct front_sample){.element = (size_t)(k * tensor_elements(t) / samples(t)), .tolerance = least};
        memcpy(&s->bits, (const char *)x->outputs[output] + s->element * size, size);
    }
}

/* A run has moved it so far. */
static void widen(const struct sol_tensor *t, const void *data, struct front_sample *s)
{
    const size_t size = dtype_def((enum sol_dtype)t->dtype)->bytes;
    if (s->tolerance < 0 || !memcmp((const char *)data + s->element * size, &s->bits, size)) return;
    const double far = is_real(t) ? fabs(real_at(t, data, (int64_t)s->element) - real_at(t, &s->bits, 0)) : INFINITY;
    s->tolerance = isfinite(far) ? fmax(s->tolerance, 2 * far) : -1;
}

static sol_status make(struct golden *x)
{
    struct deploy *d = x->d;
    const struct sol_graph *g = x->g->g;
    struct front_golden *golden = NEW_ARRAY(d->arena, struct front_golden, d->noutput + 1);
    TRY(run_first(x));
    for (int i = 0; i < d->noutput; i++) {
        const int64_t n = samples(deploy_output(d, x->g, i));
        struct front_sample *sample = NEW_ARRAY(d->arena, struct front_sample, n + 1);
        begin_samples(x, i, sample);
        golden[i] = (struct front_golden){n, sample};
    }
    struct deploy_data data = {.params = (const void *const *)NEW_ARRAY(d->arena, void *, g->params.n + 1),
                               .consts =
                                   (const void *const *)NEW_ARRAY(d->arena, void *, x->here.schedule->constants.n + 1),
                               .inputs = (const void *const *)NEW_ARRAY(d->arena, void *, g->inputs.n + 1),
                               .outputs = x->outputs};
    for (int number = 0; number < MOVED_RUNS; number++) {
        TRY(run_moved(x, &data, number));
        for (int i = 0; i < d->noutput; i++)
            for (int64_t k = 0; k < golden[i].n; k++)
                widen(deploy_output(d, x->g, i), x->outputs[i], (struct front_sample *)(uintptr_t)&golden[i].sample[k]);
    }
    x->g->golden = golden;
    x->g->made_up = x->kind;
    return SOL_OK;
}

static sol_status make_for(struct deploy *d, struct deploy_graph *g)
{
    const int least = d->nversion - 1; /* with the fewest instructions: this machine has them, or imitates few */
    struct golden x = {.d = d, .g = g};
    x.inputs = NEW_ARRAY(d->arena, void *, g->g->inputs.n + 1);
    x.outputs = NEW_ARRAY(d->arena, void *, d->noutput + 1);
    for (int i = 0; i < g->g->inputs.n; i++) TRY(take(d, g->g->inputs.at[i], &x.inputs[i]));
    for (int i = 0; i < d->noutput; i++) TRY(take(d, deploy_output(d, g, i), &x.outputs[i]));
    TRY(deploy_open(d, &d->version[least], g->code[least].schedule, &x.here));
    const sol_status status = make(&x);
    module_close(&x.here.module);
    return status;
}

sol_status deploy_golden(struct deploy *d)
{
    for (int i = 0; i < d->npredict && deploy_tests_itself(d); i++) TRY(make_for(d, &d->graph[i]));
    return SOL_OK;
}

/* -- its table */

void deploy_put_golden(struct deploy *d, struct text *t, const struct deploy_graph *g)
{
    struct text rows = text_new(d->arena);
    if (!g->golden) return;
    for (int i = 0; i < d->noutput; i++) {
        text_put(t, "static const struct front_sample golden%s_%d[] = {\n", g->id, i);
        for (int64_t k = 0; k < g->golden[i].n; k++) {
            const struct front_sample *s = &g->golden[i].sample[k];
            text_put(t, "    {%zu, 0x%llx, %.9g},\n", s->element, (unsigned long long)s->bits, s->tolerance);
        }
        text_put(t, "    {0, 0, 0},\n};\n");
        text_put(&rows, "{%lld, golden%s_%d}, ", (long long)g->golden[i].n, g->id, i);
    }
    text_put(t, "static const struct front_golden golden%s[] = {%s};\n", g->id, rows.at);
}
