/* Front, the part that allocates nothing: contexts in the caller's blocks, running a program, tensors, random numbers.
 * front.c or front_bare.c includes it and defines `lock`, `unlock`, `choose`, `begin` and `count_threads`. */
enum { LINE = 64, BLOCKS = 3 };

#if defined FRONT_SIZES
/* The sizes of a context's last call, and the memory that it has for calls. */
struct front_sized {
    int64_t *module, *own, *shape; /* the module's sizes; those of struct front_sizes; shapes of all tensors */
    void *placing;                 /* what choosing places of blocks needs */
    struct sol_ext_tensor *input, *output;
    size_t workspace, scratch; /* bytes of its parts; in a block of the caller, workspace is what both share */
    size_t block;              /* bytes of that block */
    bool valid;                /* the sizes fit, and there is memory for them */
    bool prepares, trains;     /* it runs these programs, too */
};
#endif

struct front_context {
    const struct front_net *net;
    const struct front_graph *graph;
    const struct front_code *code;
    struct front_context *next; /* while idle */
    int threads, room;          /* room: the number of threads for which there is scratch memory */
    bool own;                   /* the memory is from sol_ext_malloc, and the prepared weights are shared */
    char **base, **operands;
    char *workspace, *saved, *opaque, *scratch, *prepared;
    char *const *param; /* by number: trained values; NULL: the library's weights */
    struct front_block block[BLOCKS];
#if defined FRONT_DEVICE
    struct front_there *there; /* NULL: it has not run yet */
#endif
#if defined FRONT_SIZES
    struct front_sized sized;
#endif
};

_Static_assert(sizeof(struct front_context) <= FRONT_CONTEXT_BYTES, "macros of the header count with less");

/* -- sizes */

static size_t lines(size_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

/* Bytes of the parts of a context. Saved tensors, and what layers without loops need, follow the workspace. Scratch is
 * per thread. */
struct sizes {
    size_t head, workspace, saved, opaque, scratch, prepared;
};

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* A quantity of the module's tables. sizes NULL: not known yet. */
static size_t number(int64_t quantity, const int64_t *sizes)
{
#if defined FRONT_SIZES
    if (quantity >= SOL_SIZE) return sizes ? (size_t)sizes[quantity - SOL_SIZE] : 0;
#endif
    (void)sizes;
    return (size_t)quantity;
}

static size_t places(const struct sol_program *p, const int64_t *sizes)
{
    (void)sizes;
    return (size_t)p->nplace;
}

static size_t workspace(const struct sol_program *p, const int64_t *sizes)
{
    return number(p->workspace_bytes, sizes);
}

static size_t scratch(const struct sol_program *p, const int64_t *sizes)
{
#if defined FRONT_SIZES
    return lines(number(p->scratch_bytes, sizes));
#else
    return (size_t)rt_scratch_bytes(p, sizes);
#endif
}

/* The largest need among the programs that a context runs: forward, and `prepare` and `backward` if set. */
static size_t most(const struct sol_module *m, size_t (*of)(const struct sol_program *p, const int64_t *sizes),
                   const int64_t *sizes, bool prepare, bool backward)
{
    size_t n = of(&m->forward, sizes);
    if (prepare && of(&m->prepare, sizes) > n) n = of(&m->prepare, sizes);
    if (backward && of(&m->backward, sizes) > n) n = of(&m->backward, sizes);
    return n;
}

#if defined FRONT_SIZES
static size_t tables_bytes(const struct front_code *code);
static size_t opaque_bytes(const struct front_code *code, const int64_t *own);
#else
static size_t tables_bytes(const struct front_code *code)
{
    (void)code;
    return 0;
}

static size_t opaque_bytes(const struct front_code *code, const int64_t *own)
{
    (void)own;
    return code->opaque_bytes;
}
#endif

/* For these sizes of the module, and of front itself; NULL: none vary, or they are not known yet. With `prepare` and
 * `backward`, the context can run these programs, too. */
static struct sizes sizes_at(const struct front_code *code, const int64_t *sizes, const int64_t *own, bool prepare,
                             bool backward)
{
    const struct sol_module *m = code->module;
    const size_t pointers = (size_t)m->nbuffer + most(m, places, sizes, prepare, backward);
    struct sizes s = {.head = FRONT_CONTEXT_BYTES + lines(tables_bytes(code) + pointers * sizeof(char *)),
                      .workspace = lines(most(m, workspace, sizes, prepare, backward)),
                      .saved = lines(number(m->saved_bytes, sizes)),
                      .opaque = lines(opaque_bytes(code, own)),
                      .scratch = most(m, scratch, sizes, prepare, backward),
                      .prepared = lines((size_t)m->prepared_bytes)};
#if defined FRONT_SIZES && defined FRONT_BARE
    s.workspace = larger(s.workspace, lines(code->most->workspace)); /* memory is fixed */
    s.opaque = lines(code->most->opaque);
    s.scratch = larger(s.scratch, lines(code->most->scratch));
#endif
    return s;
}

static struct sizes sizes_of(const struct front_code *code, bool prepare, bool backward)
{
    return sizes_at(code, NULL, NULL, prepare, backward);
}

static const struct front_code *code_of(const struct front_net *net, const struct front_graph *graph)
{
    return &graph->code[net->state->version - net->version];
}

static bool prepares(const struct front_code *code)
{
    return code->module->prepare.nstep > 0;
}

static size_t behind_workspace(const struct sizes *s)
{
    return s->saved + s->opaque;
}

/* Of a context that has its own prepared weights. */
static struct sizes sizes_in_block(const struct front_code *code)
{
    return sizes_of(code, prepares(code), false);
}

/* Of a context that can switch to any of the graphs. */
static struct sizes sizes_of_all(const struct front_net *net)
{
    struct sizes all = {0};
    for (int i = 0; i < net->ngraph; i++) {
        const struct front_code *code = code_of(net, &net->graph[i]);
        const struct sizes s = sizes_in_block(code);
        all.head = larger(all.head, s.head);
        all.workspace = larger(all.workspace, s.workspace + behind_workspace(&s));
        all.scratch = larger(all.scratch, s.scratch);
        all.prepared = larger(all.prepared, s.prepared);
    }
    return all;
}

/* -- running a program */

#if !defined FRONT_DEVICE
static const void *begin_of(const struct front_context *c, const struct sol_buffer *b, enum sol_buffer_kind kind,
                            const void *const *in, void *const *out, const int64_t *seed)
{
    const unsigned char *weights = c->net->state->weights;
    const char *learned = c->param && b->kind == SOL_BUFFER_PARAM ? c->param[b->index] : NULL;
    switch (kind) {
    case SOL_BUFFER_INPUT: return b->index == c->graph->seed_input ? (const void *)seed : in ? in[b->index] : NULL;
    case SOL_BUFFER_OUTPUT: return out ? out[b->index] : NULL;
    case SOL_BUFFER_PARAM: return learned ? (const void *)learned : weights + c->code->param_at[b->index];
    case SOL_BUFFER_CONST: return weights + c->code->const_at[b->index];
    case SOL_BUFFER_PREPARED: return c->prepared;
    case SOL_BUFFER_WORKSPACE: return c->workspace;
    case SOL_BUFFER_SAVED: return c->saved;
    case SOL_BUFFER_EITHER: break; /* is one of both */
    }
    return NULL;
}
#else
#include "deploy/front_device_run.c"
#endif

enum { KERNEL_FUNCTION = -1 }; /* beside the errors of kernels: a function from outside fails */
#if defined FRONT_OPAQUE
#if defined FRONT_SIZES
static int64_t value_of(const void *own, int64_t quantity);
#endif

/* Runs a layer without loops. */
static int32_t run_opaque(void *user, int32_t call, char *const *p)
{
    const struct front_context *c = user;
    struct reference_bad bad;
    const struct reference *a = c->code->opaque[call];
#if defined FRONT_SIZES
    struct reference_instance at;
    a = reference_at(a, value_of, c->sized.own, &at);
#endif
    const enum reference_error error = a->kind->run(a, p, c->opaque, &bad);
    return !error                      ? SOL_KERNEL_OK
           : error == REFERENCE_INDEX  ? SOL_KERNEL_INDEX
           : error == REFERENCE_FAILED ? KERNEL_FUNCTION
                                       : SOL_KERNEL_MATRIX;
}
#endif

static int run_explain(const struct front_context *c, const struct sol_program *p, int32_t step, int32_t error)
{
    return fail(FRONT_DATA, "%s: '%s': %s", c->net->name, p->step[step].label,
                error == SOL_KERNEL_INDEX      ? "an index is out of range"
                : error == SOL_KERNEL_DIVISION ? "an integer is divided by zero"
                : error == KERNEL_FUNCTION     ? "its function reports an error"
                : error == SOL_KERNEL_MATRIX   ? "a matrix is singular, not positive definite, or not finite"
                                               : "an unknown error");
}

static int run_program(struct front_context *c, const struct sol_program *p, const void *const *in, void *const *out,
                       const int64_t *seed)
{
#if defined FRONT_SIZES
    const int64_t *sizes = c->sized.module;
#else
    const int64_t *sizes = NULL;
#endif
#if defined FRONT_DEVICE
    return run_there(c, p, in, out, seed, sizes);
#else
    static const uint64_t seeds[8];
    const struct sol_module *m = c->code->module;
    for (int i = 0; i < m->nbuffer; i++) {
        const struct sol_buffer *b = &m->buffer[i];
        const struct rt_place at = rt_place(m, b, sizes);
        c->base[i] = (char *)((uintptr_t)begin_of(c, b, at.kind, in, out, seed) + (uintptr_t)at.offset);
    }
    const struct rt_call call = {
        .program = p,
        .base = c->base,
        .operands = c->operands,
        .scratch = c->scratch,
        .seeds = seeds,
        .sizes = sizes,
#if defined FRONT_OPAQUE
        .host = run_opaque,
        .host_user = c,
#endif
        .threads = c->threads
    };
    int32_t step = 0;
    const int32_t error = rt_run(&call, &step);
    return error ? run_explain(c, p, step, error) : FRONT_GOOD;
#endif
}

/* -- contexts */

/* Sets what depends on the graph. */
static void set_graph(struct front_context *c, const struct front_graph *graph, const struct front_code *code,
                      const struct sizes *s)
{
    c->graph = graph;
    c->code = code;
    c->operands = c->base + c->code->module->nbuffer;
    c->workspace = c->block[1].at;
    c->saved = c->workspace ? c->workspace + s->workspace : NULL;
    c->opaque = c->workspace ? c->saved + s->saved : NULL;
    c->scratch = c->block[2].at;
}

#if defined FRONT_SIZES
static char *lay_tables(struct front_context *c, const struct front_code *code, char *at);
#endif

/* Creates a context in its parts. */
static struct front_context *lay(const struct front_net *net, const struct front_graph *graph, const struct sizes *s,
                                 const struct front_block part[BLOCKS], int threads)
{
    struct front_context *c = (struct front_context *)part[0].at;
    *c = (struct front_context){.net = net, .threads = threads, .room = threads};
#if defined FRONT_SIZES
    c->base = (char **)lay_tables(c, code_of(net, graph), part[0].at + FRONT_CONTEXT_BYTES);
    c->sized.workspace = s->workspace + behind_workspace(s);
    c->sized.scratch = s->scratch * (size_t)threads;
#else
    c->base = (char **)(part[0].at + FRONT_CONTEXT_BYTES);
#endif
    memcpy(c->block, part, sizeof c->block);
    set_graph(c, graph, code_of(net, graph), s);
    return c;
}

#if defined FRONT_SIZES
#include "deploy/front_sizes.c"
#endif

/* Where sizes vary: for a context that does not run yet. On a device, all but its tables lies there. */
static size_t block_bytes(const struct front_net *net, int threads)
{
    const struct sizes s = sizes_of_all(net);
#if defined FRONT_DEVICE
    (void)threads;
    return LINE + s.head;
#else
    return LINE + s.head + s.workspace + s.scratch * (size_t)threads + s.prepared;
#endif
}

#if !defined FRONT_DEVICE
static int prepare_block(struct front_context *c)
{
    return prepares(c->code) ? run_program(c, &c->code->module->prepare, NULL, NULL, NULL) : FRONT_GOOD;
}

/* Creates a context in the caller's block. */
static int create_in(const struct front_net *net, void *block, size_t bytes, int threads, struct front_context **out_c)
{
    lock(net);
    int error = begin(net);
    const struct front_graph *graph = &net->graph[net->state->graph];
    unlock(net);
    if (error) return error;
    if (bytes < block_bytes(net, threads))
        return fail(FRONT_INVALID, "%s: a context for %d thread%s needs a block of %zu bytes, got %zu", net->name,
                    threads, threads == 1 ? "" : "s", block_bytes(net, threads), bytes);
    const struct front_code *code = code_of(net, graph);
    const struct sizes all = sizes_of_all(net), s = sizes_in_block(code);
    char *at = (char *)(((uintptr_t)block + LINE - 1) / LINE * LINE);
#if defined FRONT_SIZES /* what depends on the sizes of a call is last */
    char *prepared_at = at + all.head, *workspace_at = prepared_at + all.prepared;
    char *scratch_at = workspace_at + all.workspace;
#else
    char *workspace_at = at + all.head, *scratch_at = workspace_at + all.workspace;
    char *prepared_at = scratch_at + all.scratch * (size_t)threads;
#endif
    const struct front_block part[BLOCKS] = {{.at = at}, {.at = workspace_at}, {.at = scratch_at}};
    struct front_context *c = lay(net, graph, &s, part, threads);
    c->prepared = prepared_at;
#if defined FRONT_SIZES
    c->sized.block = bytes;
    c->sized.workspace = (size_t)((char *)block + bytes - workspace_at);
    c->sized.prepares = prepares(code);
#endif
    *out_c = c;
    error = prepare_block(c);
    if (error) *out_c = NULL;
    return error;
}

#endif

FRONT_API size_t front_bytes(const struct front_net *net, int threads)
{
    lock(net);
    const int error = net->state->version ? FRONT_GOOD : choose(net, NULL);
    unlock(net);
    return error ? 0 : block_bytes(net, count_threads(threads));
}

/* -- batch sizes */

static const struct front_graph *graph_for(const struct front_net *net, int64_t batch)
{
    for (int i = 0; i < net->ngraph; i++)
        if (net->graph[i].batch == batch) return &net->graph[i];
    return NULL;
}

static int no_graph(const struct front_net *net, int64_t batch)
{
    char sizes[128] = "";
    struct line list = {sizes, sizeof sizes, 0};
    for (int i = 0; i < net->ngraph; i++) put(&list, "%s%lld", i ? ", " : "", (long long)net->graph[i].batch);
    return fail(FRONT_INVALID, "%s: batch size %lld: this library is for %s", net->name, (long long)batch, sizes);
}

FRONT_API const struct sol_ext_tensor *front_tensor(const struct front_net *net, int64_t batch, bool output, int i)
{
    const struct front_graph *graph = graph_for(net, batch);
    if (!graph || i < 0 || i >= (output ? net->noutput : net->ninput)) return NULL;
    return output ? &graph->output[i] : &graph->input[i];
}

#if !defined FRONT_DEVICE
/* Switches a context in the caller's block, which has room for every graph. */
static int move_in_block(struct front_context *c, const struct front_graph *graph)
{
    const struct front_code *code = &graph->code[c->code - c->graph->code]; /* the version that it was created for */
    const struct sizes s = sizes_in_block(code);
    set_graph(c, graph, code, &s);
    return prepare_block(c);
}
#endif

/* -- calls */

FRONT_API void front_seed(const struct front_net *net, int seed)
{
    lock(net);
    net->state->seed = (uint64_t)(int64_t)seed;
    net->state->drawn = 0;
    unlock(net);
}

/* The next number of the stream; the generator, splitmix64, is that of sol.set_seed in Python. */
static int64_t next_seed(const struct front_net *net)
{
    struct front_state *s = net->state;
    lock(net);
    uint64_t z = s->seed * 0xD1342543DE82EF95u + ++s->drawn * 0x9E3779B97F4A7C15u;
    unlock(net);
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (int64_t)((z ^ z >> 31) >> 1);
}

static int check(const struct front_net *net, const char *what, int n, const struct sol_ext_tensor *t,
                 const void *const *p)
{
    for (int i = 0; i < n; i++)
        if (t[i].bytes && (!p || !p[i]))
            return fail(FRONT_INVALID, "%s: %s %d, '%s', is NULL, expected %zu bytes", net->name, what, i, t[i].name,
                        t[i].bytes);
    return FRONT_GOOD;
}

/* The tensors of a call. */
static const struct sol_ext_tensor *inputs_of(const struct front_context *c)
{
#if defined FRONT_SIZES
    return c->sized.input;
#else
    return c->graph->input;
#endif
}

static const struct sol_ext_tensor *outputs_of(const struct front_context *c)
{
#if defined FRONT_SIZES
    return c->sized.output;
#else
    return c->graph->output;
#endif
}

static int run(struct front_context *c, const void *const *in, void *const *out)
{
    const struct front_net *net = c->net;
    int error = check(net, "input", net->ninput, inputs_of(c), in);
    if (!error) error = check(net, "output", net->noutput, outputs_of(c), (const void *const *)out);
    if (error) return error;
    const int64_t seed = c->graph->seed_input < 0 ? 0 : next_seed(net);
    return run_program(c, &c->code->module->forward, in, out, &seed);
}
