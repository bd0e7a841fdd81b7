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

#include "base/size.h"
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
    const int64_t *dims; /* the sizes; NULL: none vary */
    struct deploy_here here;
    void **inputs, **outputs;
    int kind;
};

static bool is_real(const struct sol_tensor *t)
{
    return dtype_def((enum sol_dtype)t->dtype)->is_float;
}

static int64_t elements(const struct golden *x, const struct sol_tensor *t)
{
    return size_at(tensor_elements(t), x->dims);
}

static size_t bytes_of(const struct golden *x, const struct sol_tensor *t)
{
    return (size_t)elements(x, t) * dtype_def((enum sol_dtype)t->dtype)->bytes;
}

static double real_at(const struct sol_tensor *t, const void *data, int64_t i)
{
    return t->dtype == SOL_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static double roundoff(const struct sol_tensor *t)
{
    return t->dtype == SOL_F64 ? DBL_EPSILON / 2 : (double)FLT_EPSILON / 2;
}

static sol_status take(const struct golden *x, const struct sol_tensor *t, void **out_data)
{
    *out_data = arena_try(x->d->arena, bytes_of(x, t) + 8);
    if (*out_data) return SOL_OK;
    return ctx_fail(x->d->ctx, SOL_ERR_NOMEM, "deploy: selftest: out of memory for %zu bytes", bytes_of(x, t));
}

/* -- what is run */

/* Whole numbers, such as positions and masks, are exact and stay. */
static void move(const struct golden *x, const struct sol_tensor *t, const void *from, void *to, uint64_t stream)
{
    memcpy(to, from, bytes_of(x, t));
    for (int64_t i = 0; is_real(t) && i < elements(x, t); i++) {
        const double v = real_at(t, from, i), random = (double)(made_up_bits(stream + (uint64_t)i) >> 11) * 0x1p-52 - 1;
        const double moved = v * (1 + ROUNDOFFS * roundoff(t) * random);
        if (!isfinite(v) || v == trunc(v)) continue;
        if (t->dtype == SOL_F64)
            ((double *)to)[i] = moved;
        else
            ((float *)to)[i] = (float)moved;
    }
}

/* The copies are made in the first such run. */
static sol_status moved(const struct golden *x, const struct sol_tensor *t, const void *from, const void **to,
                        uint64_t stream)
{
    if (!from) return SOL_OK;
    if (!*to) {
        void *copy;
        TRY(take(x, t, &copy));
        *to = copy;
    }
    move(x, t, from, (void *)(uintptr_t)*to, stream << 40);
    return SOL_OK;
}

static void fill_inputs(const struct golden *x)
{
    for (int i = 0; i < deploy_inputs(x->d); i++) {
        const struct sol_tensor *t = x->g->g->inputs.at[i];
        made_up(dtype_def((enum sol_dtype)t->dtype)->name, bytes_of(x, t), x->kind, i, x->inputs[i]);
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
        for (int64_t k = 0; is_real(t) && k < elements(x, t); k++)
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
        TRY(moved(x, g->params.at[i], x->g->params ? x->g->params[i] : NULL, &params[i], stream++));
    for (int i = 0; i < s->constants.n; i++)
        TRY(moved(x, s->constants.at[i], s->constants.at[i]->data, &consts[i], stream++));
    for (int i = 0; i < g->inputs.n; i++) TRY(moved(x, g->inputs.at[i], x->inputs[i], &inputs[i], stream++));
    return run(x, data);
}

/* -- what is stored */

static int64_t samples(const struct golden *x, const struct sol_tensor *t)
{
    return MIN(elements(x, t), (int64_t)GOLDEN_SAMPLES);
}

static double largest(const struct golden *x, const struct sol_tensor *t, const void *data)
{
    double most = 0;
    for (int64_t i = 0; is_real(t) && i < elements(x, t); i++) {
        const double v = fabs(real_at(t, data, i));
        if (isfinite(v)) most = fmax(most, v);
    }
    return most;
}

/* Elements at equal distances. */
static void begin_samples(const struct golden *x, int output, struct front_sample *sample)
{
    const struct sol_tensor *t = deploy_output(x->d, x->g, output);
    const size_t size = dtype_def((enum sol_dtype)t->dtype)->bytes;
    const double least = ROUNDOFFS * roundoff(t) * largest(x, t, x->outputs[output]);
    for (int64_t k = 0; k < samples(x, t); k++) {
        struct front_sample *s = &sample[k];
        *s = (struct front_sample){.element = (size_t)(k * elements(x, t) / samples(x, t)), .tolerance = least};
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

static sol_status make(struct golden *x, struct deploy_test *out_test)
{
    struct deploy *d = x->d;
    const struct sol_graph *g = x->g->g;
    struct front_golden *golden = NEW_ARRAY(d->arena, struct front_golden, d->noutput + 1);
    TRY(run_first(x));
    for (int i = 0; i < d->noutput; i++) {
        const int64_t n = samples(x, deploy_output(d, x->g, i));
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
    out_test->golden = golden;
    out_test->made_up = x->kind;
    return SOL_OK;
}

static sol_status make_at(struct golden *x, struct deploy_test *test)
{
    struct deploy *d = x->d;
    const struct sol_graph *g = x->g->g;
    x->dims = test->dims;
    for (int i = 0; i < g->inputs.n; i++) TRY(take(x, g->inputs.at[i], &x->inputs[i]));
    for (int i = 0; i < d->noutput; i++) TRY(take(x, deploy_output(d, x->g, i), &x->outputs[i]));
    TRY(deploy_resize(&x->here, test->dims));
    return make(x, test);
}

static sol_status make_for(struct deploy *d, struct deploy_graph *g)
{
    const int least = d->nversion - 1; /* with the fewest instructions: this machine has them, or imitates few */
    struct golden x = {.d = d, .g = g};
    x.inputs = NEW_ARRAY(d->arena, void *, g->g->inputs.n + 1);
    x.outputs = NEW_ARRAY(d->arena, void *, d->noutput + 1);
    TRY(deploy_open(d, &d->version[least], g->code[least].schedule, &x.here));
    sol_status status = SOL_OK;
    for (int i = 0; i < g->ntest && !status; i++) status = make_at(&x, &g->test[i]);
    module_close(&x.here.module);
    return status;
}

/* -- the sizes of the self-test: those of the example, the least, and larger ones, as far as the network takes them */

static int64_t test_size(const struct size_dim *s, int which)
{
    const int64_t step = s->multiple, least = (MAX(s->min, 1) + step - 1) / step * step;
    if (which == 0) return s->hint;
    if (which == 1) return MIN(least, s->hint);
    return MIN(s->hint / 2 / step * step + s->hint + step, s->max / step * step);
}

static void add_test(struct deploy *d, struct deploy_graph *g, int which)
{
    const int n = d->g->dims.n;
    int64_t *dims = NEW_ARRAY(d->arena, int64_t, n + 1);
    for (int i = 0; i < n; i++) dims[i] = test_size(&g->g->dims.at[i].dim, which);
    for (int i = 0; i < g->ntest; i++)
        if (!memcmp(dims, g->test[i].dims, (size_t)n * sizeof *dims)) return;
    if (graph_check_dims(g->g, dims)) return;
    g->test[g->ntest] = (struct deploy_test){.id = arena_printf(d->arena, "_at%d", g->ntest), .dims = dims};
    g->ntest++;
}

static void choose_sizes(struct deploy *d, struct deploy_graph *g)
{
    if (!deploy_varies(d)) {
        g->test[0] = (struct deploy_test){.id = ""};
        g->ntest = 1;
        return;
    }
    for (int which = 0; which < DEPLOY_TESTS; which++) add_test(d, g, which);
}

sol_status deploy_golden(struct deploy *d)
{
    for (int i = 0; i < d->npredict && deploy_tests_itself(d); i++) {
        choose_sizes(d, &d->graph[i]);
        TRY(make_for(d, &d->graph[i]));
    }
    return SOL_OK;
}

const char *deploy_tested_sizes(struct deploy *d)
{
    struct text t = text_new(d->arena);
    const struct deploy_graph *g = &d->graph[0];
    if (!deploy_varies(d)) return "";
    text_put(&t, " It does so for");
    for (int i = 0; i < g->ntest; i++)
        for (int k = 0; k < d->g->dims.n; k++)
            text_put(&t, "%s %s %lld", k ? "," : i ? ";" : "", d->g->dims.at[k].name, (long long)g->test[i].dims[k]);
    text_put(&t, ".");
    return t.at;
}

/* -- its tables */

static void put_test(struct deploy *d, struct text *t, const struct deploy_test *test, const char *id)
{
    struct text rows = text_new(d->arena);
    for (int i = 0; i < d->noutput; i++) {
        text_put(t, "static const struct front_sample golden%s_%d[] = {\n", id, i);
        for (int64_t k = 0; k < test->golden[i].n; k++) {
            const struct front_sample *s = &test->golden[i].sample[k];
            text_put(t, "    {%zu, 0x%llx, %.9g},\n", s->element, (unsigned long long)s->bits, s->tolerance);
        }
        text_put(t, "    {0, 0, 0},\n};\n");
        text_put(&rows, "{%lld, golden%s_%d}, ", (long long)test->golden[i].n, id, i);
    }
    text_put(t, "static const struct front_golden golden%s[] = {%s};\n", id, rows.at);
}

void deploy_put_golden(struct deploy *d, struct text *t, const struct deploy_graph *g)
{
    struct text rows = text_new(d->arena);
    for (int i = 0; i < g->ntest; i++) {
        const struct deploy_test *test = &g->test[i];
        const char *id = arena_printf(d->arena, "%s%s", g->id, test->id);
        put_test(d, t, test, id);
        if (!test->dims) continue;
        text_put(t, "static const int64_t dims%s[] = {", id);
        for (int k = 0; k < d->g->dims.n; k++) text_put(t, "%lld, ", (long long)test->dims[k]);
        text_put(t, "0};\n");
        text_put(&rows, "{dims%s, golden%s, %d}, ", id, id, test->made_up);
    }
    if (rows.n) text_put(t, "static const struct front_test tests%s[] = {%s};\n", g->id, rows.at);
}
