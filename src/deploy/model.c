/* Identifies the model of a library: a hash of its graph as received and of its parameters. Targets, instruction sets
 * and keys do not change it. */
#include <string.h>

#include "deploy/deploy.h"

static void add_data(struct hash *h, const struct sol_tensor *t, const void *data)
{
    if (data) hash_add(h, data, (size_t)tensor_elements(t) * dtype_def((enum sol_dtype)t->dtype)->bytes);
}

void deploy_hash_model(struct deploy *d)
{
    struct hash h;
    struct text text = text_new(d->arena);
    hash_init(&h);
    graph_print(d->g, &text);
    hash_text(&h, text.at);
    for (int i = 0; i < d->g->tensors.n; i++) {
        const struct sol_tensor *t = d->g->tensors.at[i];
        if (t->role == TENSOR_CONST) add_data(&h, t, t->data);
    }
    for (int i = 0; i < d->g->params.n; i++)
        add_data(&h, d->g->params.at[i], d->options->params ? d->options->params[i] : NULL);
    hash_hex(&h, d->model);
}
