/* A cluster that was compiled. It has a program for all sizes, made with the session, and programs for the sizes of
 * calls that this one excludes. Weights are inputs of the fused node: ONNX Runtime owns them, and SOL reads them where
 * they lie. Any number of threads may run a cluster; a call with a program never waits for a compilation. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "ort/ort.h"

#define CALL(name, ...) TRY(provider_check(p, p->api->name(__VA_ARGS__)))

enum { MOST_PROGRAMS = 16, MOST_DIMS = 32 };

struct program {
    struct sol_onnx_program made;
    int *out_place;  /* for each output of the network: its number among those of the node */
    int calls;       /* that run it now */
    int64_t used;    /* when a call began last */
    bool all;        /* for all sizes: it stays */
    bool found_size; /* a size of an output is known only when the network has run */
};

struct fused {
    struct OrtNodeComputeInfo info; /* first */
    const struct provider *provider;
    struct arena *arena;
    void *bytes; /* the model */
    size_t nbytes;
    struct sol_onnx_value *weight; /* data: of the session, from the first call on */
    int nweight, ninput, noutput;
    int *weight_place, *input_place; /* number of the fused node's input */
    const char **input, **output;
    pthread_mutex_t lock;    /* guards what follows */
    pthread_mutex_t compile; /* held while a program is made */
    bool bound;              /* are the weights' addresses those of the session? */
    struct program *program[MOST_PROGRAMS];
    int nprogram;
    int64_t clock;
};

/* -- programs */

static void program_destroy(struct fused *f, struct program *q)
{
    struct sol_ctx *ctx = f->provider->ctx;
    if (!q) return;
    sol_onnx_program_destroy(&q->made);
    ctx_free(ctx, q->out_place);
    ctx_free(ctx, q);
}

static int find_name(int n, const char *const *names, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(names[i], name)) return i;
    return -1;
}

/* Weights are parameters of the network; others are constants of its graph. */
static sol_status bind_weights(const struct fused *f, struct program *q)
{
    struct sol_onnx_program *m = &q->made;
    for (int i = 0; i < sol_onnx_params(m->model); i++)
        for (int k = 0; k < f->nweight; k++)
            if (!strcmp(sol_net_param_io(m->net, i).name, f->weight[k].name))
                TRY(sol_params_set(m->params, i, f->weight[k].data));
    return SOL_OK;
}

static sol_status program_finish(struct fused *f, struct program *q)
{
    struct sol_ctx *ctx = f->provider->ctx;
    struct sol_net *net = q->made.net;
    const int n = sol_net_outputs(net);
    if (sol_net_dims(net) > MOST_DIMS) return ctx_fail(ctx, SOL_ERR_UNSUPPORTED, "more than %d sizes vary", MOST_DIMS);
    for (int i = 0; i < sol_net_dims(net); i++) q->found_size |= sol_net_dim(net, i).most >= 0;
    q->out_place = ctx_try(ctx, (size_t)(n + 1) * sizeof *q->out_place);
    if (!q->out_place) return ctx_fail(ctx, SOL_ERR_NOMEM, "no memory for %d outputs", n);
    for (int i = 0; i < n; i++) {
        q->out_place[i] = find_name(f->noutput, f->output, sol_net_output(net, i).name);
        if (q->out_place[i] < 0)
            return ctx_fail(ctx, SOL_ERR_INTERNAL, "the node has no output '%s'", sol_net_output(net, i).name);
    }
    return bind_weights(f, q);
}

/* Makes the program for a call, or for all sizes if there are no arrays. `all`: the one that the call does not fit. */
static sol_status program_make(struct fused *f, struct sol_onnx_call *call, const struct program *all,
                               struct program **out)
{
    struct sol_ctx *ctx = f->provider->ctx;
    const struct sol_onnx_options options = {.size = sizeof options, .nweights = f->nweight, .weights = f->weight};
    struct program *q = ctx_try(ctx, sizeof *q);
    *out = NULL;
    if (!q) return ctx_fail(ctx, SOL_ERR_NOMEM, "no memory for a program");
    *q = (struct program){.all = !call->narrays};
    call->from = (struct sol_onnx_source){.data = f->bytes, .bytes = f->nbytes};
    call->options = &options;
    sol_status status = sol_onnx_program_make(ctx, call, all ? &all->made : NULL, &q->made);
    if (!status) status = program_finish(f, q);
    if (!status && call->narrays) status = sol_onnx_program_bind(&q->made, call, call->out_dims);
    if (status)
        program_destroy(f, q);
    else
        *out = q;
    return status;
}

static void program_enter(struct fused *f, struct program *q)
{
    q->calls++;
    q->used = ++f->clock;
}

/* The program that fits a call, with its sizes; the caller holds the lock. NULL: there is none yet. */
static struct program *program_find(struct fused *f, const struct sol_onnx_call *call)
{
    for (int i = 0; i < f->nprogram; i++) {
        struct program *q = f->program[i];
        if (sol_onnx_program_bind(&q->made, call, call->out_dims)) continue;
        program_enter(f, q);
        return q;
    }
    return NULL;
}

/* Keeps a program, if necessary in the place of the one that was not used for the longest time. */
static void program_keep(struct fused *f, struct program *q)
{
    int place = f->nprogram < MOST_PROGRAMS ? f->nprogram++ : -1;
    for (int i = 0; i < f->nprogram && f->program[f->nprogram - 1]; i++) {
        const struct program *o = f->program[i];
        if (!o->all && !o->calls && (place < 0 || o->used < f->program[place]->used)) place = i;
    }
    if (place < 0) return; /* all of them run now: this one serves one call */
    program_destroy(f, f->program[place]);
    f->program[place] = q;
}

static struct program *locked_find(struct fused *f, const struct sol_onnx_call *call)
{
    pthread_mutex_lock(&f->lock);
    struct program *q = program_find(f, call);
    pthread_mutex_unlock(&f->lock);
    return q;
}

static sol_status program_of(struct fused *f, struct sol_onnx_call *call, struct program **out)
{
    *out = locked_find(f, call);
    if (*out) return SOL_OK;
    pthread_mutex_lock(&f->compile);
    sol_status status = SOL_OK;
    *out = locked_find(f, call); /* another thread may have made it */
    if (!*out) {
        const struct program *all = f->nprogram && f->program[0]->all ? f->program[0] : NULL;
        call->ways = SOL_ONNX_SIZED;
        status = program_make(f, call, all, out);
    }
    if (!status && !(*out)->calls) {
        pthread_mutex_lock(&f->lock);
        program_enter(f, *out);
        program_keep(f, *out);
        pthread_mutex_unlock(&f->lock);
    }
    pthread_mutex_unlock(&f->compile);
    return status;
}

static void program_leave(struct fused *f, struct program *q)
{
    pthread_mutex_lock(&f->lock);
    bool kept = false;
    q->calls--;
    for (int i = 0; i < f->nprogram; i++) kept |= f->program[i] == q;
    pthread_mutex_unlock(&f->lock);
    if (!kept) program_destroy(f, q);
}

/* -- calls */

struct call { /* what one call needs */
    struct sol_onnx_value *array;
    const void **input; /* of the network */
    void **output;      /* of the network */
    void **own;         /* memory of the call for outputs whose sizes the network sets; NULL: ONNX Runtime's */
    int64_t dims[MOST_DIMS], out_dims[MOST_DIMS];
    struct OrtKernelContext *context;
};

static char nothing[64]; /* the address of arrays without elements */

static const void *address(const void *p)
{
    return p ? p : nothing;
}

/* Weights lie elsewhere than while the session was made; from the first call on they stay where they are. */
static sol_status session_weights(struct fused *f, const struct OrtKernelContext *context)
{
    const struct provider *p = f->provider;
    const struct OrtValue *value;
    for (int k = 0; k < f->nweight; k++) {
        if (f->weight_place[k] < 0) continue;
        CALL(KernelContext_GetInput, context, (size_t)f->weight_place[k], &value);
        CALL(GetTensorData, value, &f->weight[k].data);
    }
    for (int i = 0; i < f->nprogram; i++) TRY(bind_weights(f, f->program[i]));
    f->bound = true;
    return SOL_OK;
}

static sol_status read_inputs(const struct fused *f, struct call *c)
{
    const struct provider *p = f->provider;
    for (int i = 0; i < f->ninput; i++) {
        struct sol_onnx_value *v = &c->array[i];
        const struct OrtValue *value = NULL;
        const void *data;
        size_t ndim;
        int type;
        CALL(KernelContext_GetInput, c->context, (size_t)f->input_place[i], &value);
        if (!value) return ctx_fail(p->ctx, SOL_ERR_INVALID, "input '%s' is missing", f->input[i]);
        CALL(GetTensorElementTypeAndShapeDataReference, value, &type, &v->shape, &ndim);
        CALL(GetTensorData, value, &data);
        TRY(dtype_read(p->ctx, type, f->input[i], &v->dtype));
        v->ndim = (int)ndim;
        v->data = address(data);
    }
    return SOL_OK;
}

static size_t shape_at(const struct sol_io *io, const int64_t *dims, int64_t *out) /* returns the bytes */
{
    size_t bytes = dtype_def(io->dtype)->bytes;
    for (int d = 0; d < io->ndim; d++) {
        out[d] = sol_size_at(io->shape[d], dims);
        bytes *= (size_t)out[d];
    }
    return bytes;
}

static sol_status take_output(const struct fused *f, const struct program *q, struct call *c, int i,
                              const int64_t *shape, void **out)
{
    const struct provider *p = f->provider;
    struct OrtValue *value = NULL;
    CALL(KernelContext_GetOutput, c->context, (size_t)q->out_place[i], shape,
         (size_t)sol_net_output(q->made.net, i).ndim, &value);
    CALL(GetTensorMutableData, value, out);
    *out = *out ? *out : nothing;
    return SOL_OK;
}

static sol_status make_outputs(const struct fused *f, const struct program *q, struct call *c)
{
    int64_t shape[SOL_MAX_DIMS];
    for (int i = 0; i < sol_net_outputs(q->made.net); i++) {
        const struct sol_io io = sol_net_output(q->made.net, i);
        if (!q->found_size) {
            shape_at(&io, c->dims, shape);
            TRY(take_output(f, q, c, i, shape, &c->output[i]));
            continue;
        }
        const size_t bytes = (size_t)sol_net_output_room(q->made.net, i, c->dims) * (size_t)dtype_def(io.dtype)->bytes;
        c->output[i] = c->own[i] = ctx_try(f->provider->ctx, bytes + 1);
        if (!c->own[i])
            return ctx_fail(f->provider->ctx, SOL_ERR_NOMEM, "no memory for output '%s' of %zu bytes", io.name, bytes);
    }
    return SOL_OK;
}

/* Hands on outputs whose sizes are known now. */
static sol_status copy_outputs(const struct fused *f, const struct program *q, struct call *c)
{
    int64_t shape[SOL_MAX_DIMS];
    for (int i = 0; q->found_size && i < sol_net_outputs(q->made.net); i++) {
        const struct sol_io io = sol_net_output(q->made.net, i);
        const size_t bytes = shape_at(&io, c->out_dims, shape);
        void *to;
        TRY(take_output(f, q, c, i, shape, &to));
        memcpy(to, c->own[i], bytes);
    }
    return SOL_OK;
}

static sol_status run(struct fused *f, struct program *q, struct call *c)
{
    const struct sol_onnx_program *m = &q->made;
    const int nout = sol_net_outputs(m->net);
    struct sol_ctx *ctx = f->provider->ctx;
    for (int i = 0; i < sol_net_inputs(m->net); i++) c->input[i] = c->array[sol_onnx_place(m->model, i)].data;
    c->output = ctx_try(ctx, (size_t)(2 * nout + 1) * sizeof *c->output);
    if (!c->output) return ctx_fail(ctx, SOL_ERR_NOMEM, "no memory for %d outputs", nout);
    memset(c->output, 0, (size_t)(2 * nout + 1) * sizeof *c->output);
    c->own = c->output + nout;
    sol_status status = make_outputs(f, q, c);
    const struct sol_call call = {.dims = c->dims,
                                  .inputs = c->input,
                                  .outputs = c->output,
                                  .threads = f->provider->threads,
                                  .out_dims = c->out_dims};
    if (!status) status = sol_net_run_at(m->net, m->params, &call);
    if (!status) status = copy_outputs(f, q, c);
    for (int i = 0; i < nout; i++) ctx_free(ctx, c->own[i]);
    ctx_free(ctx, c->output);
    return status;
}

static sol_status compute(struct fused *f, struct call *c)
{
    struct sol_onnx_call call = {.narrays = f->ninput, .arrays = c->array, .out_dims = c->dims};
    struct program *q;
    sol_status status = SOL_OK;
    pthread_mutex_lock(&f->lock);
    if (!f->bound) status = session_weights(f, c->context);
    pthread_mutex_unlock(&f->lock);
    TRY(status);
    TRY(read_inputs(f, c));
    TRY(program_of(f, &call, &q));
    status = run(f, q, c);
    program_leave(f, q);
    return status;
}

static struct OrtStatus *provider_compute(struct OrtNodeComputeInfo *info, void *state,
                                          struct OrtKernelContext *context)
{
    struct fused *f = (struct fused *)info;
    struct sol_ctx *ctx = f->provider->ctx;
    const size_t n = (size_t)f->ninput + 1;
    struct call c = {.context = context};
    (void)state;
    c.array = ctx_try(ctx, n * (sizeof *c.array + sizeof *c.input));
    if (!c.array) return f->provider->api->CreateStatus(ORT_FAIL, "SOL: no memory for a call");
    memset(c.array, 0, n * sizeof *c.array);
    c.input = (const void **)(c.array + n);
    const sol_status status = compute(f, &c);
    ctx_free(ctx, c.array);
    return status ? provider_fail(f->provider, status) : NULL;
}

/* -- compiling */

static struct OrtStatus *create_state(struct OrtNodeComputeInfo *info, struct OrtNodeComputeContext *context,
                                      void **out_state)
{
    (void)context;
    *out_state = info;
    return NULL;
}

static void release_state(struct OrtNodeComputeInfo *info, void *state)
{
    (void)info, (void)state;
}

static void fused_destroy(struct fused *f)
{
    if (!f) return;
    for (int i = 0; i < f->nprogram; i++) program_destroy(f, f->program[i]);
    pthread_mutex_destroy(&f->lock);
    pthread_mutex_destroy(&f->compile);
    arena_destroy(f->arena);
    free(f);
}

static sol_status node_names(const struct provider *p, struct arena *a, const struct OrtNode *node, bool outputs,
                             const char ***out_names, int *out_n)
{
    size_t n;
    if (outputs)
        CALL(Node_GetNumOutputs, node, &n);
    else
        CALL(Node_GetNumInputs, node, &n);
    const struct OrtValueInfo **values = NEW_ARRAY(a, const struct OrtValueInfo *, n + 1);
    if (outputs)
        CALL(Node_GetOutputs, node, values, n);
    else
        CALL(Node_GetInputs, node, values, n);
    *out_names = NEW_ARRAY(a, const char *, n + 1);
    *out_n = (int)n;
    for (size_t i = 0; i < n; i++) {
        const char *name = "";
        if (values[i]) CALL(GetValueInfoName, values[i], &name);
        (*out_names)[i] = arena_strdup(a, name);
    }
    return ctx_check(p->ctx);
}

/* Keeps what the calls need of the model and of the node that replaces it. */
static sol_status keep_model(struct fused *f, const struct ort_model *m, const struct OrtNode *node)
{
    const struct provider *p = f->provider;
    struct arena *a = f->arena;
    const struct sol_onnx_value *weights;
    const char **inputs;
    int n;
    TRY(node_names(p, a, node, false, &inputs, &n));
    TRY(node_names(p, a, node, true, &f->output, &f->noutput));
    TRY(model_weights(p, a, m, &weights));
    f->nbytes = m->n;
    f->bytes = arena_memdup(a, m->bytes, m->n);
    f->nweight = m->nweight;
    f->weight = arena_memdup(a, weights, (size_t)m->nweight * sizeof *weights);
    f->weight_place = NEW_ARRAY(a, int, m->nweight + 1);
    f->ninput = m->ninput;
    f->input = NEW_ARRAY(a, const char *, m->ninput + 1);
    f->input_place = NEW_ARRAY(a, int, m->ninput + 1);
    for (int i = 0; i < f->nweight; i++) {
        struct sol_onnx_value *w = &f->weight[i];
        int64_t elements;
        w->name = arena_strdup(a, w->name);
        w->shape = arena_memdup(a, w->shape, (size_t)w->ndim * sizeof *w->shape);
        f->weight_place[i] = find_name(n, inputs, w->name);
        TRY(shape_elements(p->ctx, w->ndim, w->shape, &elements));
        if (f->weight_place[i] < 0) w->data = arena_memdup(a, w->data, (size_t)elements * dtype_def(w->dtype)->bytes);
    }
    for (int i = 0; i < f->ninput; i++) {
        f->input[i] = arena_strdup(a, m->input[i]->name);
        f->input_place[i] = find_name(n, inputs, f->input[i]);
        if (f->input_place[i] < 0) return ctx_fail(p->ctx, SOL_ERR_INTERNAL, "the node has no input '%s'", f->input[i]);
    }
    return ctx_check(p->ctx);
}

static sol_status compile_graph(struct fused *f, struct arena *a, const struct OrtGraph *from,
                                const struct OrtNode *node)
{
    const struct provider *p = f->provider;
    struct sol_onnx_call call = {.ways = SOL_ONNX_ALL};
    struct ort_graph g;
    struct ort_model m;
    TRY(graph_read(p, a, from, &g));
    int *index = NEW_ARRAY(a, int, g.nnode + 1);
    for (int i = 0; i < g.nnode; i++) index[i] = i;
    TRY(graph_model(p, &g, g.nnode, index, &m));
    TRY(keep_model(f, &m, node));
    TRY(program_make(f, &call, NULL, &f->program[0]));
    f->nprogram = 1;
    return SOL_OK;
}

static sol_status fused_create(const struct provider *p, const struct OrtGraph *from, const struct OrtNode *node,
                               struct OrtNodeComputeInfo **out)
{
    struct fused *f = calloc(1, sizeof *f);
    struct arena *a = arena_create(p->ctx);
    *out = NULL;
    if (!f || !a) {
        arena_destroy(a);
        free(f);
        return ctx_fail(p->ctx, SOL_ERR_NOMEM, "no memory for a program");
    }
    f->info = (struct OrtNodeComputeInfo){.version = ORT_VERSION,
                                          .CreateState = create_state,
                                          .Compute = provider_compute,
                                          .ReleaseState = release_state};
    f->provider = p;
    pthread_mutex_init(&f->lock, NULL);
    pthread_mutex_init(&f->compile, NULL);
    f->arena = arena_create(p->ctx);
    const sol_status status = f->arena ? compile_graph(f, a, from, node) : SOL_ERR_NOMEM;
    arena_destroy(a);
    if (status)
        fused_destroy(f);
    else
        *out = &f->info;
    return status;
}

struct OrtStatus *provider_compile(struct OrtEp *ep, const struct OrtGraph **graphs, const struct OrtNode **fused,
                                   size_t n, struct OrtNodeComputeInfo **out_infos, struct OrtNode **out_contexts)
{
    const struct provider *p = (const struct provider *)ep;
    (void)out_contexts;
    for (size_t i = 0; i < n; i++) {
        const sol_status status = fused_create(p, graphs[i], fused[i], &out_infos[i]);
        if (!status) continue;
        struct OrtStatus *failed = provider_fail(p, status);
        provider_release(ep, out_infos, i);
        for (size_t k = 0; k < i; k++) out_infos[k] = NULL;
        return failed;
    }
    return NULL;
}

void provider_release(struct OrtEp *ep, struct OrtNodeComputeInfo **infos, size_t n)
{
    (void)ep;
    for (size_t i = 0; i < n; i++) fused_destroy((struct fused *)infos[i]);
}
