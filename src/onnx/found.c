/* Sizes that the network sets while it runs: one for each node that finds elements. Where a later node needs two of
 * them to be equal, the model is read again with one for both, and the run compares what the two find. */
#include "onnx/reader.h"

/* The size of this reading with a number that names it: nodes are read in the same order each time. */
static struct found_size *numbered(const struct reader *r, int64_t node)
{
    for (int i = 0; i < r->found->n; i++)
        if (r->found->at[i].node == node) return &r->found->at[i];
    return NULL;
}

/* Nodes that look for what is not zero in the same tensor find as many. */
static struct found_size *of_tensor(const struct reader *r, const struct sol_tensor *x)
{
    for (int i = 0; i < r->found->n && x; i++) {
        struct found_size *f = &r->found->at[i];
        if (f->reading == r->reading && f->x == x) return f;
    }
    return NULL;
}

int64_t found_size(struct node *n, const struct sol_tensor *x, int64_t most)
{
    struct reader *r = n->r;
    if (n->status) return 0;
    struct found_size *known = of_tensor(r, x), *f = numbered(r, r->nodes);
    if (known) return known->size;
    if (!f) {
        const struct found_size made = {.node = r->nodes, .same = -1};
        PUSH(r->arena, *r->found, made);
        if (ctx_check(r->ctx)) return 0;
        f = &r->found->at[r->found->n - 1];
    }
    const struct found_size *other = f->same < 0 ? NULL : &r->found->at[f->same];
    f->reading = r->reading;
    f->x = x;
    f->name = n->label;
    if (other && other->reading == r->reading)
        f->size = other->size;
    else
        n->status = sol_graph_data_dim(r->graph, n->label, most, &f->size);
    return f->size;
}

static struct found_size *of_size(const struct reader *r, int64_t size)
{
    for (int i = 0; i < r->found->n; i++) {
        struct found_size *f = &r->found->at[i];
        if (f->reading == r->reading && f->same < 0 && f->size == size) return f;
    }
    return NULL;
}

const char *found_name(const struct reader *r, int dim)
{
    struct size_dim d;
    for (int i = 0; i < r->found->n; i++) {
        const struct found_size *f = &r->found->at[i];
        if (f->reading == r->reading && size_is_dim(f->size, &d) && d.index == dim) return f->name;
    }
    return NULL;
}

bool found_resolve(struct reader *r)
{
    int64_t a = r->unequal.a, b = r->unequal.b;
    if (!r->unequal.set && !sol_error_sizes(r->ctx, &a, &b)) return false;
    struct found_size *x = of_size(r, a), *y = of_size(r, b);
    if (!x || !y || x == y) return false;
    if (x->node < y->node)
        y->same = (int)(x - r->found->at);
    else
        x->same = (int)(y - r->found->at);
    return true;
}
