/* Random graphs with sizes that vary: a graph of test/random, in which sizes of the inputs become dimensions.
 * Attributes that hold such sizes get them, too. Layers that need a number go, with what depends on them. */
#include "dims_check.h"
#include "random/graphs.h"
#include "slow_build.h"

#define MOST 3 /* dimensions */

struct made {
    struct gen *r;
    struct sol_graph *g;
    int n;
    int64_t was[MOST], size[MOST]; /* the size in the original, the dimension */
    struct sol_tensor **tensor;    /* by id in the original; NULL: it cannot be made */
    int layers;                    /* that have a size that varies */
    const void **params;           /* what the generator chose, NULL: random */
};

/* Sizes of the inputs, from 2 on, become dimensions. */
static void choose(struct made *m)
{
    const struct sol_graph *from = m->r->g;
    for (int i = 0; i < from->inputs.n; i++)
        for (int d = 0; d < from->inputs.at[i]->ndim; d++) {
            const int64_t n = from->inputs.at[i]->dim[d].size;
            bool known = n < 2;
            for (int k = 0; k < m->n; k++) known |= m->was[k] == n;
            if (known || m->n == MOST || !gen_chance(m->r, 40)) continue;
            const struct sol_dim_limits limits = {n, 2, 0, 1};
            assert_int_equal(sol_graph_dim(m->g, "n", &limits, &m->size[m->n]), SOL_OK);
            m->was[m->n++] = n;
        }
}

static int64_t varied(struct made *m, int64_t size)
{
    for (int k = 0; k < m->n; k++)
        if (m->was[k] == size) return m->size[k];
    return size;
}

static void give(struct made *m, const struct sol_tensor *t)
{
    int64_t shape[SOL_MAX_DIMS];
    for (int d = 0; d < t->ndim; d++) shape[d] = t->role == TENSOR_INPUT ? varied(m, t->dim[d].size) : t->dim[d].size;
    struct sol_tensor *made = graph_tensor(m->g, t->role, t->name, (enum sol_dtype)t->dtype, t->ndim, shape);
    made->data = t->data;
    m->tensor[t->id] = made;
}

/* Attributes with lists of sizes. */
static struct attrs attrs_of(struct made *m, const struct attrs *from)
{
    static const char *const names[] = {"shape", "size", "sizes", "end", "o", "n"};
    struct attrs to = {from->n, NEW_ARRAY(m->g->arena, struct opdef_attr, from->n + 1)};
    for (int i = 0; i < from->n; i++) {
        struct opdef_attr v = from->at[i];
        const int n = v.n < 0 ? 1 : v.n;
        bool sizes = false;
        for (int k = 0; k < COUNT_OF(names); k++) sizes |= !strcmp(v.name, names[k]);
        if (sizes && v.kind == ATTR_INT && n) {
            v.ints = arena_memdup(m->g->arena, v.ints, (size_t)n * sizeof *v.ints);
            for (int k = 0; k < n; k++) v.ints[k] = varied(m, v.ints[k]);
        }
        to.at[i] = v;
    }
    return to;
}

static void add(struct made *m, const struct sol_layer *l)
{
    struct sol_tensor **in = NEW_ARRAY(m->g->arena, struct sol_tensor *, l->nin + 1);
    struct sol_layer *made;
    for (int i = 0; i < l->nin; i++) {
        in[i] = l->in[i] ? m->tensor[l->in[i]->id] : NULL;
        if (l->in[i] && !in[i]) return;
    }
    const struct attrs varying = attrs_of(m, &l->attrs);
    struct new_layer n = {l->def->name, l->nin, in, &varying, l->name, l->where};
    bool good = !graph_add(m->g, NULL, &n, &made);
    n.attrs = &l->attrs;
    if (!good) good = !graph_add(m->g, NULL, &n, &made);
    if (!good || made->nout != l->nout) return;
    m->layers += loops_vary(made->loops);
    for (int o = 0; o < l->nout; o++) m->tensor[l->out[o]->id] = made->out[o];
}

static bool graph_of(struct made *m)
{
    choose(m);
    const struct sol_graph *from = m->r->g;
    for (int i = 0; i < from->tensors.n; i++)
        if (from->tensors.at[i]->role != TENSOR_VALUE) give(m, from->tensors.at[i]);
    for (const struct sol_layer *l = from->first; l; l = l->next) add(m, l);
    for (int i = 0; i < from->tensors.n; i++) {
        struct sol_tensor *t = m->tensor[from->tensors.at[i]->id];
        if (t && t->role == TENSOR_VALUE) graph_output(m->g, "y", t);
    }
    return m->n && m->g->outputs.n;
}

/* Real parameters have the generator's data: a variance is not negative, so no NaN of its root meets a convolution's
 * padding, which compiled code skips. NaN and infinities on purpose would meet it in the gradient. */
static void choose_params(struct made *m)
{
    const struct sol_graph *from = m->r->g;
    m->params = NEW_ARRAY(m->g->arena, const void *, from->params.n + 1);
    for (int i = 0; i < from->params.n; i++) {
        const struct sol_tensor *t = from->params.at[i];
        const struct value *v = gen_value(m->r, t);
        if (!v || v->special || !dtype_def((enum sol_dtype)t->dtype)->is_float) continue;
        void *data = arena_alloc(m->g->arena, (size_t)tensor_bytes(t) + 8);
        for (int64_t k = 0; k < v->elements; k++)
            gen_store((enum sol_dtype)t->dtype, data, k, gen_element(v->wide->dtype, v->x, k), 0);
        m->params[i] = data;
    }
}

struct options {
    int seeds, first, parts;
    int compile; /* the distance between the seeds whose graphs are compiled, too; 0: none is */
};
static struct options options = {.seeds = 40, .first = 1, .parts = 6, .compile = 12};

struct counts {
    int graphs, layers, runs, compiled;
};

/* The graph of a seed. False: none of its sizes vary. */
static bool make(struct made *m, int seed)
{
    *m = (struct made){.r = gen_create(ctx, (uint64_t)seed)};
    recipes_graph(m->r, options.parts);
    assert_int_equal(sol_graph_create(ctx, "dims", &m->g), SOL_OK);
    m->tensor = NEW_ARRAY(m->g->arena, struct sol_tensor *, m->r->g->ntensors + 1);
    choose_params(m);
    return graph_of(m);
}

static void destroy(struct made *m)
{
    sol_graph_destroy(m->g);
    gen_destroy(m->r);
}

/* Appends the gradient of all results. False: a layer has none. */
static bool differentiate(struct sol_graph *g)
{
    const int most = g->inputs.n + g->params.n + g->outputs.n;
    struct sol_tensor **with = NEW_ARRAY(g->arena, struct sol_tensor *, most + 1);
    int *of = NEW_ARRAY(g->arena, int, most + 1), *reached = NEW_ARRAY(g->arena, int, most + 1), nof = 0, nwith = 0;
    for (int i = 0; i < g->outputs.n; i++)
        if (g->outputs.at[i].t->dtype == SOL_F32) of[nof++] = i;
    for (int i = 0; i < g->inputs.n; i++)
        if (g->inputs.at[i]->dtype == SOL_F32) with[nwith++] = g->inputs.at[i];
    for (int i = 0; i < g->params.n; i++)
        if (g->params.at[i]->dtype == SOL_F32) with[nwith++] = g->params.at[i];
    return nof && nwith && !sol_graph_differentiate(g, nof, of, nwith, with, reached);
}

/* NULL: graphs of this seed are not compiled. The compiler changes a graph, so it gets one of its own. Every second
 * graph has bands wherever they are possible. */
static struct sol_net *compiled(int seed, bool joint)
{
    struct sol_net *net = NULL;
    struct made m;
    if (!options.compile || seed % options.compile) return NULL;
    const char *bands = seed / options.compile % 2 ? "always" : "auto";
    assert_true(make(&m, seed) && (!joint || differentiate(m.g)));
    assert_int_equal(sol_config_set(ctx, "bands", bands), SOL_OK);
    if (sol_compile(ctx, m.g, &net)) WRONG("seed %d, bands %s: %s", seed, bands, sol_error(ctx));
    destroy(&m);
    return net;
}

static const char *sizes_of(struct made *m, int seed, int k, int64_t *dim)
{
    for (int i = 0; i < m->n; i++) dim[i] = k ? gen_between(m->r, 2, 9) : m->was[i];
    for (int i = m->n; i < MOST; i++) dim[i] = 0;
    return arena_printf(m->g->arena, "seed %d at %lld,%lld,%lld", seed, (long long)dim[0], (long long)dim[1],
                        (long long)dim[2]);
}

static void check(struct made *m, int seed, struct counts *c)
{
    assert_int_equal(graph_verify(m->g), SOL_OK);
    struct sol_net *net = compiled(seed, false);
    c->graphs++;
    c->compiled += net != NULL;
    c->layers += m->layers;
    for (int k = 0; k < 5; k++) {
        int64_t dim[MOST];
        const char *what = sizes_of(m, seed, k, dim);
        c->runs += compare_at(&(struct compared){m->g, net, 1e-6, m->params}, dim, 2, what);
    }
    sol_net_destroy(net);
}

static void random_graphs_are_right_at_every_size(void **unused)
{
    (void)unused;
    struct counts c = {0};
    for (int seed = options.first; seed < options.first + options.seeds; seed++) {
        struct made m;
        if (make(&m, seed)) check(&m, seed, &c);
        destroy(&m);
    }
    print_message("%d graphs, %d of them compiled, %d layers whose sizes vary, %d evaluations\n", c.graphs, c.compiled,
                  c.layers, c.runs);
    assert_int_equal(failures, 0);
    assert_true(c.graphs > options.seeds / 2 && c.runs > c.graphs && c.layers > c.graphs);
}

/* The gradient of the graph whose sizes vary, and that of the graph for given sizes. */
static void check_gradients(struct made *m, int seed, struct counts *c)
{
    struct made plain;
    assert_true(make(&plain, seed));
    struct compared joint = {m->g, compiled(seed, true), 1e-5, m->params}; /* the two add up in different orders */
    c->graphs++;
    c->compiled += joint.net != NULL;
    for (int k = 0; k < 5; k++) {
        int64_t dim[MOST];
        struct sol_graph *at;
        const char *what = sizes_of(m, seed, k, dim);
        if (graph_at(plain.g, dim, &at)) continue;
        if (differentiate(at))
            c->runs += compare_with(&joint, dim, at, 2, what);
        else
            WRONG("%s: the gradient exists for sizes that vary only: %s", what, sol_error(ctx));
        sol_graph_destroy(at);
    }
    sol_net_destroy(joint.net);
    destroy(&plain);
}

static void random_gradients_are_right_at_every_size(void **unused)
{
    (void)unused;
    struct counts c = {0};
    for (int seed = options.first; seed < options.first + options.seeds; seed++) {
        struct made m;
        if (make(&m, seed) && differentiate(m.g)) check_gradients(&m, seed, &c);
        destroy(&m);
    }
    print_message("%d gradients, %d of them compiled, %d evaluations\n", c.graphs, c.compiled, c.runs);
    assert_int_equal(failures, 0);
    assert_true(c.graphs > options.seeds / 4 && c.runs > c.graphs);
}

static int setup(void **unused)
{
    (void)unused;
    return sol_ctx_create(NULL, &ctx);
}

static int teardown(void **unused)
{
    (void)unused;
    sol_ctx_destroy(ctx);
    return 0;
}

static const char usage[] = "usage: dims_random_test [options]\n"
                            "  --seeds N     N graphs (40)\n"
                            "  --first N     the first seed (1)\n"
                            "  --parts N     independent parts of a graph (6)\n"
                            "  --compile N   every Nth graph is compiled, too (12); 0: none\n";

static bool read_options(int argc, char **argv)
{
    const struct {
        const char *name;
        int *number;
    } numbers[] = {{"--seeds", &options.seeds},
                   {"--first", &options.first},
                   {"--parts", &options.parts},
                   {"--compile", &options.compile}};
    for (int i = 1; i < argc; i += 2) {
        bool found = false;
        for (int k = 0; k < COUNT_OF(numbers) && i + 1 < argc; k++)
            if (!strcmp(argv[i], numbers[k].name)) *numbers[k].number = atoi(argv[i + 1]), found = true;
        if (!found) return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    options.seeds = MAX(options.seeds / step_of_cases(1), 8); /* in ordinary builds, all */
    if (!read_options(argc, argv)) {
        fputs(usage, stderr);
        return 2;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_graphs_are_right_at_every_size),
                                       cmocka_unit_test(random_gradients_are_right_at_every_size)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
