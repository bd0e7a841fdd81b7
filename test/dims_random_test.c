/* Random graphs with sizes that vary: a graph of test/random, in which sizes of the inputs become dimensions.
 * Attributes that hold such sizes get them, too. Layers that need a number go, with what depends on them. */
#include "dims_check.h"
#include "random/graphs.h"

#define SEEDS 60
#define PARTS 6
#define MOST 3 /* dimensions */

struct made {
    struct gen *r;
    struct sol_graph *g;
    int n;
    int64_t was[MOST], size[MOST]; /* the size in the original, the dimension */
    struct sol_tensor **tensor;    /* by id in the original; NULL: it cannot be made */
    int layers;                    /* that have a size that varies */
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

static int graph_of(struct made *m)
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

static void random_graphs_are_right_at_every_size(void **unused)
{
    (void)unused;
    int graphs = 0, runs = 0, layers = 0;
    for (int seed = 1; seed <= SEEDS; seed++) {
        struct made m = {.r = gen_create(ctx, (uint64_t)seed)};
        recipes_graph(m.r, PARTS);
        assert_int_equal(sol_graph_create(ctx, "dims", &m.g), SOL_OK);
        m.tensor = NEW_ARRAY(m.g->arena, struct sol_tensor *, m.r->g->ntensors + 1);
        if (graph_of(&m)) {
            assert_int_equal(graph_verify(m.g), SOL_OK);
            graphs++;
            layers += m.layers;
            for (int k = 0; k < 5; k++) {
                int64_t dim[MOST] = {0};
                char what[64];
                for (int i = 0; i < m.n; i++) dim[i] = k ? gen_between(m.r, 2, 9) : m.was[i];
                snprintf(what, sizeof what, "seed %d at %lld,%lld,%lld", seed, (long long)dim[0], (long long)dim[1],
                         (long long)dim[2]);
                runs += compare_at(m.g, NULL, dim, 2, what);
            }
        }
        sol_graph_destroy(m.g);
        gen_destroy(m.r);
    }
    print_message("%d graphs, %d layers whose sizes vary, %d evaluations\n", graphs, layers, runs);
    assert_int_equal(failures, 0);
    assert_true(graphs > SEEDS / 2 && runs > graphs && layers > graphs);
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_graphs_are_right_at_every_size)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
