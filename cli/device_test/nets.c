/* Networks: what SOL does with the device for its users, compared with the interpreter, which computes in float64. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "hlir/graph.h"

enum { MOST = 12, INDICES = 7 };

/* Differences relative to the largest expected number. Sums of float32 in another order differ by this much. */
#define TOLERANCE 2e-5

static const struct text_net {
    const char *name, *text;
    bool trains;
} nets[] = {
    {"element-wise",
     "input %0:f32[3 257] \"x\"\nparam %1:f32[257] \"b\"\n%2 = add(%0, %1)\n%3 = exp(%2)\n%4 = tanh(%3)\n"
     "%5 = Sum(%4) axes=[1]\noutput %4 \"y\"\noutput %5 \"s\"\n",
     true},
    {"perceptron",
     "input %0:f32[5 33] \"x\"\nparam %1:f32[40 33] \"w1\"\nparam %2:f32[40] \"b1\"\nparam %3:f32[3 40] \"w2\"\n"
     "%4 = Linear(%0, %1, %2)\n%5 = relu(%4)\n%6 = Linear(%5, %3)\noutput %6 \"y\"\n",
     true},
    {"convolutions",
     "input %0:f32[2 3 13 11] \"x\"\nparam %1:f32[8 3 3 3] \"w1\"\nparam %2:f32[8] \"b1\"\nparam %3:f32[6 8 3 3] "
     "\"w2\"\n"
     "param %4:f32[5 6] \"w3\"\n%5 = Conv(%0, %1, %2) p=1 q=1\n%6 = relu(%5)\n%7 = Conv(%6, %3) s=2 p=1 q=1\n"
     "%8 = sigmoid(%7)\n%9 = Mean(%8) axes=[2,3]\n%10 = Linear(%9, %4)\noutput %10 \"y\"\n",
     true},
    {"normalization",
     "input %0:f32[6 50] \"x\"\nparam %1:f32[50] \"s\"\nparam %2:f32[50] \"b\"\n%3 = LayerNorm(%0, %1, %2)\n"
     "%4 = Softmax(%3) axis=1\noutput %4 \"y\"\n",
     true},
    {"recurrence",
     "input %0:f32[5 2 3] \"x\"\nparam %1:f32[16 3] \"w\"\nparam %2:f32[16 4] \"r\"\nparam %3:f32[16] \"b\"\n"
     "%4, %5, %6 = LSTM(%0, %1, %2, %3)\noutput %4 \"y\"\noutput %6 \"c\"\n",
     true},
    {"a step of the host",
     "input %0:f32[4 60] \"x\"\nparam %1:f32[60] \"b\"\n%2 = mul(%0, %1)\n%3, %4 = Sort(%2) axis=1\n%5 = exp(%3)\n"
     "output %5 \"y\"\n",
     false},
    {"indices",
     "input %0:i64[9] \"i\"\nparam %1:f32[7 20] \"table\"\n%2 = Gather(%1, %0) axis=0\n%3 = relu(%2)\noutput %3 "
     "\"y\"\n",
     true},
};

struct net {
    const struct text_net *of;
    struct sol_graph *g; /* as parsed, with its gradient: for the interpreter */
    struct sol_net *net;
    struct sol_params *params;
    void *in[MOST], *param[MOST];
    double *want[MOST]; /* of the interpreter, as float32 */
    int forward_in, forward_out;
    bool trains;
};

static int64_t elements(const struct sol_tensor *t)
{
    return tensor_elements(t);
}

/* Numbers in -1..1; indices of the table. */
static void *numbers(const struct sol_tensor *t, unsigned seed)
{
    const int64_t n = elements(t);
    char *p = malloc((size_t)n * 8 + 8);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        if (t->dtype == SOL_I64)
            ((int64_t *)p)[i] = seed >> 8 & 3;
        else
            ((float *)p)[i] = (float)(seed >> 8) / (1 << 23) - 1;
    }
    return p;
}

static sol_status parse(struct bench *b, const struct net *n, struct sol_graph **out_g)
{
    int reached[MOST];
    static const int outputs[] = {0, 1, 2};
    TRY(sol_graph_parse(b->ctx, n->of->text, out_g));
    struct sol_graph *g = *out_g;
    return n->trains ? sol_graph_differentiate(g, g->outputs.n, outputs, g->params.n, g->params.at, reached) : SOL_OK;
}

static enum verdict net_make(struct bench *b, const struct text_net *of, bool trains, struct net *n)
{
    struct sol_graph *plain, *g;
    *n = (struct net){.of = of};
    WANT(!parse(b, n, &plain), "a graph", "%s", sol_error(b->ctx));
    n->forward_in = plain->inputs.n;
    n->forward_out = plain->outputs.n;
    sol_graph_destroy(plain);
    n->trains = trains;
    WANT(!parse(b, n, &n->g) && !parse(b, n, &g), "a gradient", "%s", sol_error(b->ctx));
    for (int i = 0; i < g->inputs.n; i++) n->in[i] = numbers(g->inputs.at[i], 5u + (unsigned)i * 11);
    for (int i = 0; i < g->params.n; i++) n->param[i] = numbers(g->params.at[i], 99u + (unsigned)i * 7);
    for (int i = 0; i < g->outputs.n; i++)
        n->want[i] = calloc((size_t)elements(g->outputs.at[i].t) + 1, sizeof(double));
    const sol_status status = sol_compile(b->ctx, g, &n->net);
    sol_graph_destroy(g);
    WANT(!status, "it compiles", "%s: %s", of->name, sol_error(b->ctx));
    WANT(!sol_params_create(n->net, &n->params), "parameters", "%s", sol_error(b->ctx));
    for (int i = 0; i < n->g->params.n; i++) sol_params_set(n->params, i, n->param[i]);
    return GOOD;
}

static void net_drop(struct net *n)
{
    for (int i = 0; i < n->g->inputs.n; i++) free(n->in[i]);
    for (int i = 0; i < n->g->params.n; i++) free(n->param[i]);
    for (int i = 0; i < n->g->outputs.n; i++) free(n->want[i]);
    sol_params_destroy(n->params);
    sol_net_destroy(n->net);
    sol_graph_destroy(n->g);
}

static enum verdict net_expect(struct bench *b, struct net *n)
{
    WANT(!graph_interpret(n->g, (const void *const *)n->in, (const void *const *)n->param, (void *const *)n->want),
         "the interpreter's results", "%s", sol_error(b->ctx));
    return GOOD;
}

static enum verdict compare(struct bench *b, const struct net *n, int i, const float *got)
{
    const int64_t count = elements(n->g->outputs.at[i].t);
    const float *want = (const float *)n->want[i];
    double most = 1e-3;
    for (int64_t k = 0; k < count; k++) most = fmax(most, fabs(want[k]));
    for (int64_t k = 0; k < count; k++)
        WANT(fabs((double)got[k] - want[k]) <= TOLERANCE * most, "the interpreter's results up to 2e-5",
             "%s: output %d ('%s'): element %lld is %.9g instead of %.9g", n->of->name, i, n->g->outputs.at[i].name,
             (long long)k, got[k], want[k]);
    return GOOD;
}

static enum verdict call(struct bench *b, const struct net *n)
{
    float *out[MOST];
    struct sol_saved *saved = NULL;
    sol_status status;
    for (int i = 0; i < n->g->outputs.n; i++)
        out[i] = calloc((size_t)elements(n->g->outputs.at[i].t) + 1, sizeof(float));
    if (n->trains) {
        status = sol_net_forward(n->net, n->params, (const void *const *)n->in, (void *const *)out, 0, &saved);
        const struct sol_backward back = {(const void *const *)n->in, (void *const *)out, 0, 0};
        if (!status) status = sol_net_backward(n->net, n->params, saved, &back);
        sol_saved_destroy(saved);
    } else {
        status = sol_net_run(n->net, n->params, (const void *const *)n->in, (void *const *)out, 0);
    }
    WANT(!status, "success", "%s: %s", n->of->name, sol_error(b->ctx));
    for (int i = 0; i < n->g->outputs.n; i++) {
        TRY(compare(b, n, i, out[i]));
        free(out[i]);
    }
    return GOOD;
}

/* Each network twice, with other parameters the second time. */
static enum verdict run_all(struct bench *b, bool trains)
{
    for (int i = 0; i < COUNT_OF(nets); i++) {
        struct net n;
        if (trains && !nets[i].trains) continue;
        TRY(net_make(b, &nets[i], trains, &n));
        for (int round = 0; round < 2; round++) {
            TRY(net_expect(b, &n));
            TRY(call(b, &n));
            if (n.g->params.n) {
                *(float *)n.param[0] += 0.25f;
                sol_params_set(n.params, 0, n.param[0]);
            }
        }
        net_drop(&n);
    }
    return GOOD;
}

static enum verdict inference(struct bench *b)
{
    return run_all(b, false);
}

static enum verdict training(struct bench *b)
{
    return run_all(b, true);
}

struct caller {
    struct bench *b;
    const struct net *n;
    enum verdict verdict;
};

static void *call_often(void *user)
{
    struct caller *c = user;
    for (int i = 0; i < 20 && !c->verdict; i++) c->verdict = call(c->b, c->n);
    return NULL;
}

static enum verdict threads(struct bench *b)
{
    struct net n[2];
    struct caller c[4];
    pthread_t thread[4];
    enum verdict verdict = GOOD;
    for (int i = 0; i < 2; i++) {
        TRY(net_make(b, &nets[1 + i], i, &n[i]));
        TRY(net_expect(b, &n[i]));
    }
    for (int i = 0; i < 4; i++) {
        c[i] = (struct caller){b, &n[i % 2], GOOD};
        WANT(!pthread_create(&thread[i], NULL, call_often, &c[i]), "a thread", "none");
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        if (c[i].verdict) verdict = c[i].verdict;
    }
    for (int i = 0; i < 2; i++) net_drop(&n[i]);
    return verdict;
}

static enum verdict sizes_vary(struct bench *b)
{
    static const struct text_net of = {
        "sizes that vary",
        "dim #0 \"n\" hint=8 min=1\ninput %0:f32[#0 30] \"x\"\nparam %1:f32[9 30] \"w\"\n"
        "%2 = Linear(%0, %1)\n%3 = relu(%2)\noutput %3 \"y\"\n",
        false};
    struct sol_graph *g;
    struct sol_net *net;
    struct sol_params *params;
    float x[20 * 30], w[9 * 30], y[20 * 9];
    for (int i = 0; i < COUNT_OF(x); i++) x[i] = (float)(i % 7) - 3;
    for (int i = 0; i < COUNT_OF(w); i++) w[i] = (float)(i % 5) - 2;
    sol_status status = sol_graph_parse(b->ctx, of.text, &g);
    if (!status) status = sol_compile(b->ctx, g, &net);
    if (!status) status = sol_params_create(net, &params);
    if (!status) status = sol_params_set(params, 0, w);
    WANT(!status, "it compiles", "%s", sol_error(b->ctx));
    for (int64_t n = 1; n <= 20; n += 6) {
        const struct sol_call c = {.dims = &n, .inputs = (const void *const[]){x}, .outputs = (void *const[]){y}};
        status = sol_net_run_at(net, params, &c);
        WANT(!status, "success", "size %lld: %s", (long long)n, sol_error(b->ctx));
        for (int i = 0; i < n * 9; i++) {
            float want = 0; /* small integers: exact in any order */
            for (int k = 0; k < 30; k++) want += x[i / 9 * 30 + k] * w[i % 9 * 30 + k];
            want = fmaxf(want, 0);
            WANT(y[i] == want, "the product", "size %lld: element %d is %g instead of %g", (long long)n, i, y[i], want);
        }
    }
    sol_params_destroy(params);
    sol_net_destroy(net);
    sol_graph_destroy(g);
    return GOOD;
}

static enum verdict bad_data_is_reported(struct bench *b)
{
    struct net n;
    float y[9 * 20];
    int64_t bad[9] = {0, 1, 2, 3, INDICES, 1, 1, 1, 1};
    TRY(net_make(b, &nets[COUNT_OF(nets) - 1], false, &n));
    TRY(net_expect(b, &n));
    for (int round = 0; round < 3; round++) {
        const sol_status status = sol_net_run(n.net, n.params, (const void *const[]){bad}, (void *const[]){y}, 0);
        WANT(status == SOL_ERR_RUN && strstr(sol_error(b->ctx), "an index is out of range"),
             "SOL_ERR_RUN: an index is out of range", "status %d: %s", status, sol_error(b->ctx));
        TRY(call(b, &n)); /* the next call is not concerned */
    }
    net_drop(&n);
    return GOOD;
}

static enum verdict too_large_is_reported(struct bench *b)
{
    char text[400];
    const int64_t n = b->info.memory / 4 / 1024 + 1;
    struct sol_graph *g;
    struct sol_net *net;
    struct sol_params *params;
    if (b->info.memory <= 0 || b->info.memory > INT64_C(1) << 30)
        return skip(b, "its memory is unknown, or more than 1 GiB: give the device less by an option, if it has one");
    snprintf(text, sizeof text, "input %%0:f32[%lld 1024] \"x\"\n%%1 = Sum(%%0) axes=[0,1]\noutput %%1 \"y\"\n",
             (long long)n);
    sol_status status = sol_graph_parse(b->ctx, text, &g);
    if (!status) status = sol_compile(b->ctx, g, &net);
    if (!status) status = sol_params_create(net, &params);
    WANT(!status, "it compiles", "%s", sol_error(b->ctx));
    float *x = calloc((size_t)n, 1024 * sizeof *x), y;
    status = sol_net_run(net, params, (const void *const[]){x}, (void *const[]){&y}, 0);
    free(x);
    WANT(status == SOL_ERR_NOMEM && strstr(sol_error(b->ctx), "peak"), "SOL_ERR_NOMEM with the network's peak",
         "status %d: %s", status, sol_error(b->ctx));
    sol_params_destroy(params);
    sol_net_destroy(net);
    sol_graph_destroy(g);
    struct net small;
    TRY(net_make(b, &nets[0], false, &small));
    TRY(net_expect(b, &small));
    TRY(call(b, &small));
    net_drop(&small);
    return GOOD;
}

/* A context that knows the bench's devices. */
static sol_status other_ctx(const struct bench *b, struct sol_ctx **out_ctx)
{
    static const char *const keys[] = {"device::plugins", "device::options"};
    sol_status status = sol_ctx_create(NULL, out_ctx);
    for (int i = 0; i < COUNT_OF(keys) && !status; i++)
        status = sol_config_set(*out_ctx, keys[i], sol_config_get(b->ctx, keys[i]));
    return status;
}

/* Queues that are given back while the device has commands. */
static enum verdict queues_are_given_back(struct bench *b)
{
    static const char bytes[50000] = {1, 2, 3};
    struct sol_ctx *ctx;
    struct dev *dev;
    struct queue *q;
    sol_ptr p;
    sol_status status = other_ctx(b, &ctx);
    if (!status) status = dev_get(ctx, b->type, b->index, &dev);
    for (int round = 0; round < 3 && !status; round++) {
        status = queue_take(dev, &q);
        if (!status) status = queue_alloc(q, sizeof bytes, "x", &p);
        for (int i = 0; i < 30 && !status; i++) {
            const struct sol_command c = write_of(p, bytes, sizeof bytes);
            status = queue_add(q, &c);
        }
        if (status) break;
        queue_flush(q);
        queue_free(q, p);
        queue_give(q);
    }
    WANT(!status, "success", "%s", sol_error(ctx));
    WANT(!dev_bytes(dev), "no memory in use", "%lld bytes", (long long)dev_bytes(dev));
    sol_ctx_destroy(ctx);
    return GOOD;
}

/* Nobody waits for the last commands of a heap. */
static enum verdict a_context_ends_with_work(struct bench *b)
{
    static const char bytes[50000] = {1, 2, 3};
    char name[100];
    struct sol_ctx *ctx;
    struct sol_heap *h;
    uint64_t p;
    snprintf(name, sizeof name, "%s:%d", b->type->name, b->index);
    sol_status status = other_ctx(b, &ctx);
    if (!status) status = sol_heap_open(ctx, name, &h);
    if (!status) status = sol_heap_alloc(h, sizeof bytes, &p);
    for (int i = 0; i < 30 && !status; i++) status = sol_heap_write(h, p, bytes, sizeof bytes);
    WANT(!status, "success", "%s", sol_error(ctx));
    sol_ctx_destroy(ctx);
    return GOOD;
}

const struct check net_checks[] = {
    {"inference", "networks compute what the interpreter computes", inference},
    {"training", "gradients are those of the interpreter", training},
    {"training", "four threads run two networks, one of them trains", threads},
    {"inference", "one program serves all sizes", sizes_vary},
    {"errors", "bad data is reported, and the next call is not concerned", bad_data_is_reported},
    {"errors", "a network that does not fit into memory is refused, and a small one then runs", too_large_is_reported},
    {"close", "queues are given back while commands are under way", queues_are_given_back},
    {"close", "a context ends while commands are under way", a_context_ends_with_work},
    {0},
};
