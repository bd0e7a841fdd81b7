/* For the Python tests of this folder: evaluates a graph with the interpreter, without generating code, so a thousand
 * models are compared in seconds. The library contains all of libsol. */
#include "hlir/graph.h"

int test_count(const struct sol_graph *g, int outputs)
{
    return outputs ? g->outputs.n : g->inputs.n;
}

/* Name, type and shape of an input or output; returns the number of dimensions. */
int test_describe(const struct sol_graph *g, int outputs, int i, const char **out_name, int *out_dtype,
                  int64_t *out_shape)
{
    const struct sol_tensor *t = outputs ? g->outputs.at[i].t : g->inputs.at[i];
    *out_name = outputs ? g->outputs.at[i].name : t->name;
    *out_dtype = t->dtype;
    for (int d = 0; d < t->ndim; d++) out_shape[d] = t->dim[d].size;
    return t->ndim;
}

sol_status test_interpret(struct sol_graph *g, const void *const *inputs, const void *const *params,
                          void *const *outputs)
{
    sol_status status = graph_verify(g);
    return status ? status : graph_interpret(g, inputs, params, outputs);
}

/* The number of the dimension that a size is; -1: it is none. */
int test_dim(int64_t size)
{
    struct size_dim d;
    return size_is_dim(size, &d) ? d.index : -1;
}

int64_t test_size_at(int64_t size, const int64_t *dims)
{
    return size_at(size, dims);
}

/* Puts the most of the dimensions that layers set into `dims`; returns how many there are of any kind. */
int test_most(const struct sol_graph *g, int64_t *dims)
{
    int64_t most[SIZE_MOST_DIMS];
    graph_data_most(g, most);
    for (int i = 0; i < g->dims.n; i++)
        if (most[i] >= 0) dims[i] = size_at(most[i], dims);
    return g->dims.n;
}

sol_status test_interpret_at(struct sol_graph *g, const int64_t *dims, const struct graph_data *data)
{
    sol_status status = graph_verify(g);
    return status ? status : graph_interpret_at(g, dims, data);
}

sol_status test_check_dims(const struct sol_graph *g, const int64_t *dims)
{
    return graph_check_dims(g, dims);
}
