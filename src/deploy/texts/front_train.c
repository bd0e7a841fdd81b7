/* Training: a context with its own parameters, gradients, and the state of optimizers. Included after front.c. The
 * formulas are PyTorch's (torch.optim.SGD, Adam), in single precision for f32. */
#include <math.h>

enum { WAYS = 4 }; /* blocks: parameters, gradients, and two for the optimizer's state */

/* Predicts with the trained values; created at the first request. */
struct learned {
    struct front_context *c;
    struct front_block prepared, pointers;
    bool dirty; /* parameters changed, so prepare must run again */
};
struct front_training {
    const struct front_net *net;
    struct front_context *c;
    struct front_block block[WAYS], prepared, written, pointers;
    struct learned run;
    size_t bytes;    /* of all parameters, each rounded up to cache lines */
    size_t *at;      /* by parameter of the module: its offset in a block */
    char **param;    /* by parameter of the module */
    const void **in; /* inputs of the module: the caller's, the seed, gradients of outputs */
    void **out;      /* outputs of the module: new values of parameters, the caller's, gradients */
    int64_t seed;
    long steps; /* steps of the optimizer */
    bool adam;  /* the optimizer is Adam */
    bool dirty; /* parameters changed, so prepare must run again */
    bool ready; /* forward has run, backward has not */
#if defined FRONT_SIZES
    const int64_t *dims; /* of a call */
#endif
};

static size_t param_bytes(const struct sol_module *m, int i)
{
    for (int k = 0; k < m->nbuffer; k++)
        if (m->buffer[k].kind == SOL_BUFFER_PARAM && m->buffer[k].index == i) return (size_t)m->buffer[k].bytes;
    return 0;
}

static void drop_learned(struct learned *r)
{
    if (r->c) drop_context(r->c);
    drop_there(&r->prepared);
    drop(&r->pointers);
    *r = (struct learned){0};
}

FRONT_API void front_train_free(struct front_training *t)
{
    if (!t) return;
    for (int i = 0; i < WAYS; i++) drop(&t->block[i]);
    drop_there(&t->prepared);
    drop(&t->written);
    drop_learned(&t->run);
    if (t->c) drop_context(t->c);
    struct front_block pointers = t->pointers;
    struct front_state *s = t->net->state;
    pthread_mutex_lock(&s->lock);
    s->users--;
    pthread_mutex_unlock(&s->lock);
    drop(&pointers); /* t is in this block */
}

static const struct sol_module *module_of(const struct front_net *net)
{
    return code_of(net, net->training)->module;
}

/* Allocates the object and its tables in one block. */
static int make_training(const struct front_net *net, struct front_training **out_t)
{
    const struct sol_module *m = module_of(net);
    const size_t n = (size_t)m->nparam + 1, in = (size_t)m->ninput + 1, out = (size_t)m->noutput + 1;
    struct front_block b;
    const int error = take(lines(sizeof(struct front_training)) + (n * 2 + in + out) * sizeof(void *), "training", &b);
    if (error) return error;
    struct front_training *t = (struct front_training *)b.at;
    *t = (struct front_training){.net = net, .pointers = b, .dirty = true};
    t->param = (char **)(b.at + lines(sizeof *t));
    t->at = (size_t *)(t->param + n);
    t->in = (const void **)(t->at + n);
    t->out = (void **)(t->in + in);
    for (int i = 0; i < m->nparam; i++) {
        t->at[i] = t->bytes;
        t->bytes += lines(param_bytes(m, i));
    }
    *out_t = t;
    return FRONT_GOOD;
}

/* Allocates room for the new values of parameters that forward writes; they replace the old ones after forward. */
static int take_written(struct front_training *t)
{
    const struct front_net *net = t->net;
    size_t bytes = 0;
    for (int i = 0; i < net->nwritten; i++) bytes += lines(param_bytes(module_of(net), net->written[i]));
    const int error = take(bytes, "new values", &t->written);
    bytes = 0;
    for (int i = 0; i < net->nwritten && !error; i++) {
        t->out[i] = t->written.at + bytes;
        bytes += lines(param_bytes(module_of(net), net->written[i]));
    }
    return error;
}

static int fill_training(struct front_training *t, int threads)
{
    const struct front_net *net = t->net;
    const struct front_code *code = code_of(net, net->training);
    const struct sol_module *m = code->module;
    const struct sizes sizes = sizes_of(code, true, true);
    int error = take(t->bytes, "the trained parameters", &t->block[0]);
    if (!error) error = take(t->bytes, "gradients", &t->block[1]);
    if (!error) error = take_there(sizes.prepared, "the prepared weights", &t->prepared);
    if (!error) error = take_written(t);
    if (!error) error = lay_own(net, net->training, &sizes, threads, &t->c);
    if (error) return error;
    if (t->block[1].at) memset(t->block[1].at, 0, t->bytes);
    for (int i = 0; i < m->nparam; i++) {
        t->param[i] = t->block[0].at + t->at[i];
        if (code->param_at[i] >= 0) memcpy(t->param[i], net->state->weights + code->param_at[i], param_bytes(m, i));
    }
    for (int i = 0; i < net->ntrained; i++)
        t->out[net->nwritten + net->noutput + i] = t->block[1].at + t->at[net->trained_param[i]];
    t->c->prepared = t->prepared.at;
    t->c->param = t->param;
#if defined FRONT_SIZES
    t->c->sized.prepares = t->c->sized.trains = true;
#endif
    return FRONT_GOOD;
}

FRONT_API int front_train(const struct front_net *net, int threads, struct front_training **out_t)
{
    struct front_training *t = NULL;
    struct front_state *s = net->state;
    *out_t = NULL;
    pthread_mutex_lock(&s->lock);
    int error = begin(net);
    if (!error) error = make_training(net, &t);
    if (!error) s->users++; /* of the weights, until this object is freed */
    pthread_mutex_unlock(&s->lock);
    if (error) return error;
    error = fill_training(t, count_threads(threads));
    if (error)
        front_train_free(t);
    else
        *out_t = t;
    return error;
}

/* -- forward and backward */

static int prepare_again(struct front_training *t)
{
    if (!t->dirty) return FRONT_GOOD;
    const int error = run_program(t->c, &t->c->code->module->prepare, NULL, NULL, NULL);
    t->dirty = error != FRONT_GOOD;
    return error;
}

/* t is NULL if creating it failed. */
static int check_training(const struct front_training *t)
{
    return t ? FRONT_GOOD : fail(FRONT_INVALID, "expected what training_create returned, got NULL");
}

static int take_arrays(struct front_training *t, const void *const *in, void *const *out)
{
    if (!t) return check_training(t);
    const struct front_net *net = t->net;
    int error = check(net, "input", net->ninput, inputs_of(t->c), in);
    if (!error) error = check(net, "output", net->noutput, outputs_of(t->c), (const void *const *)out);
    for (int i = 0; i < net->ninput && !error; i++) t->in[i] = in ? in[i] : NULL;
    for (int i = 0; i < net->noutput && !error; i++) t->out[net->nwritten + i] = out ? out[i] : NULL;
    return error;
}

/* Replaces values by the new ones that forward wrote, such as the statistics of batch-norm. */
static void write_back(struct front_training *t)
{
    const struct front_net *net = t->net;
    for (int i = 0; i < net->nwritten; i++) {
        const int p = net->written[i];
        memcpy(t->param[p], t->out[i], param_bytes(module_of(net), p));
    }
    t->dirty |= net->nwritten > 0;
    t->run.dirty |= net->nwritten > 0;
}

#if defined FRONT_SIZES
FRONT_API void front_train_at(struct front_training *t, const int64_t *dims)
{
    if (t) t->dims = dims;
}

/* The memory may move, so what forward saved is lost. */
static int resize_training(struct front_training *t)
{
    t->ready = false;
    return resize(t->c, t->dims);
}
#else
static int resize_training(const struct front_training *t)
{
    (void)t;
    return FRONT_GOOD;
}
#endif

FRONT_API int front_forward(struct front_training *t, const void *const *in, void *const *out)
{
    int error = t ? resize_training(t) : FRONT_GOOD;
    if (!error) error = take_arrays(t, in, out);
    if (!error) error = prepare_again(t);
    if (error) return error;
    if (t->net->training->seed_input >= 0) t->seed = next_seed(t->net);
    error = run_program(t->c, &t->c->code->module->forward, t->in, t->out, &t->seed);
    t->ready = !error;
    if (!error) write_back(t);
    return error;
}

FRONT_API int front_backward(struct front_training *t, const void *const *in, void *const *out,
                             const void *const *gradients)
{
    const int error = take_arrays(t, in, out);
    if (error) return error;
    const struct front_net *net = t->net;
    if (!t->ready) return fail(FRONT_INVALID, "%s: call backward once after each forward", net->name);
    const int first = net->ninput + (net->training->seed_input >= 0);
    for (int i = 0; i < net->ngiven; i++) {
        const struct sol_ext_tensor *of = &outputs_of(t->c)[net->given[i]];
        t->in[first + i] = gradients ? gradients[net->given[i]] : NULL;
        if (!t->in[first + i] && of->bytes)
            return fail(FRONT_INVALID, "%s: the gradient of output '%s' is NULL", net->name, of->name);
    }
    t->ready = false; /* backward overwrites saved tensors */
    return run_program(t->c, &t->c->code->module->backward, t->in, t->out, &t->seed);
}

FRONT_API void *front_parameter(struct front_training *t, int i, bool gradient)
{
    if (!t || i < 0 || i >= t->net->ntrained) return NULL;
    return t->block[gradient ? 1 : 0].at + t->at[t->net->trained_param[i]];
}

FRONT_API void front_changed(struct front_training *t)
{
    if (!t) return;
    t->dirty = t->run.dirty = true;
    t->ready = false;
}

/* -- predicting with the trained values */

static int take_learned(struct front_training *t, const struct front_graph *graph)
{
    const struct front_net *net = t->net;
    const struct front_code *code = code_of(net, graph);
    const struct sizes sizes = sizes_of(code, true, false);
    struct learned *r = &t->run;
    int error = take_there(sizes.prepared, "the prepared weights", &r->prepared);
    if (!error) error = take(((size_t)code->module->nparam + 1) * sizeof(char *), "tables", &r->pointers);
    if (!error) error = lay_own(net, graph, &sizes, t->c->threads, &r->c);
    if (error) {
        drop_learned(r);
        return error;
    }
    char **param = (char **)r->pointers.at;
    for (int i = 0; i < code->module->nparam; i++)
        param[i] = graph->learned[i] < 0 ? NULL : t->param[graph->learned[i]];
    r->c->prepared = r->prepared.at;
    r->c->param = param;
#if defined FRONT_SIZES
    r->c->sized.prepares = true;
#endif
    r->dirty = true;
    return FRONT_GOOD;
}

FRONT_API int front_train_run(struct front_training *t, const void *const *in, void *const *out)
{
    if (!t) return check_training(t);
    const struct front_net *net = t->net;
    struct learned *r = &t->run;
    pthread_mutex_lock(&net->state->lock);
    const struct front_graph *graph = &net->graph[net->state->graph];
    pthread_mutex_unlock(&net->state->lock);
    if (r->c && r->c->graph != graph) drop_learned(r);
    int error = r->c ? FRONT_GOOD : take_learned(t, graph);
#if defined FRONT_SIZES
    if (!error) error = resize(r->c, t->dims);
#endif
    if (!error && r->dirty) error = run_program(r->c, &r->c->code->module->prepare, NULL, NULL, NULL);
    if (error) return error;
    r->dirty = false;
    return run(r->c, in, out);
}

/* -- optimizers */

/* Allocates the optimizer's state at its first step, zeroed. If the optimizer changed since the last step, the state
 * starts again. */
static int remember(struct front_training *t, int n, bool adam)
{
    int error = check_training(t);
    if (error) return error;
    for (int i = 2; i < 2 + n; i++) {
        if (t->block[i].at || !t->bytes) continue;
        error = take(t->bytes, "the optimizer's state", &t->block[i]);
        if (error) return error;
        memset(t->block[i].at, 0, t->bytes);
    }
    for (int i = 2; i < WAYS && t->adam != adam; i++)
        if (t->block[i].at) memset(t->block[i].at, 0, t->bytes);
    if (t->adam != adam) t->steps = 0;
    t->adam = adam;
    return FRONT_GOOD;
}

struct rule { /* of one step */
    double rate, momentum, beta1, beta2, epsilon, decay, bias1, bias2;
    bool adam;
};

#define STEP(type, root)                                                                                      \
    static void step_##type(const struct rule *r, size_t n, type *p, const type *g, type *m, type *v)         \
    {                                                                                                         \
        for (size_t i = 0; i < n; i++) {                                                                      \
            const type d = g[i] + (type)r->decay * p[i];                                                      \
            if (r->adam) {                                                                                    \
                m[i] = (type)r->beta1 * m[i] + (type)(1 - r->beta1) * d;                                      \
                v[i] = (type)r->beta2 * v[i] + (type)(1 - r->beta2) * d * d;                                  \
                p[i] -= (type)(r->rate / r->bias1) * m[i] / (root(v[i] / (type)r->bias2) + (type)r->epsilon); \
            } else if (r->momentum != 0) {                                                                    \
                m[i] = (type)r->momentum * m[i] + d;                                                          \
                p[i] -= (type)r->rate * m[i];                                                                 \
            } else {                                                                                          \
                p[i] -= (type)r->rate * d;                                                                    \
            }                                                                                                 \
        }                                                                                                     \
    }
STEP(float, sqrtf)
STEP(double, sqrt)
#undef STEP

static void step(struct front_training *t, const struct rule *r)
{
    for (int i = 0; i < t->net->ntrained; i++) {
        const struct sol_ext_tensor *x = &t->net->trained[i];
        const size_t at = t->at[t->net->trained_param[i]];
        char *p[WAYS];
        for (int k = 0; k < WAYS; k++) p[k] = t->block[k].at ? t->block[k].at + at : NULL;
        if (!strcmp(x->type, "f32"))
            step_float(r, x->bytes / sizeof(float), (float *)p[0], (float *)p[1], (float *)p[2], (float *)p[3]);
        else
            step_double(r, x->bytes / sizeof(double), (double *)p[0], (double *)p[1], (double *)p[2], (double *)p[3]);
    }
    front_changed(t);
}

FRONT_API int front_sgd(struct front_training *t, double rate, double momentum, double decay)
{
    const int error = remember(t, momentum != 0, false);
    if (error) return error;
    step(t, &(struct rule){.rate = rate, .momentum = momentum, .decay = decay});
    return FRONT_GOOD;
}

FRONT_API int front_adam(struct front_training *t, double rate, double beta1, double beta2, double epsilon,
                         double decay)
{
    const int error = remember(t, 2, true);
    if (error) return error;
    t->steps++;
    step(t, &(struct rule){.adam = true,
                           .rate = rate,
                           .beta1 = beta1,
                           .beta2 = beta2,
                           .epsilon = epsilon,
                           .decay = decay,
                           .bias1 = 1 - pow(beta1, (double)t->steps),
                           .bias2 = 1 - pow(beta2, (double)t->steps)});
    return FRONT_GOOD;
}
