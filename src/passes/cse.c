/* Removes common subexpressions: layers with the same definition, attributes and inputs; constants with equal elements
 * are the same input. In a graph with a gradient both must belong to one program, so that what backward recomputes is
 * not saved instead. */
#include "passes/passes.h"

#include <string.h>

static void put_attr(struct text *t, const struct opdef_attr *a)
{
    text_put(t, " %s/%d/%d=", a->name, a->kind, a->n);
    int n = a->n < 0 ? 1 : a->n;
    if (a->kind == ATTR_TEXT) text_put(t, "%zu:%s", strlen(a->text), a->text);
    for (int i = 0; i < n && a->kind == ATTR_INT; i++) text_put(t, "%lld,", (long long)a->ints[i]);
    for (int i = 0; i < n && a->kind == ATTR_REAL; i++) text_put(t, "%a,", a->reals[i]);
}

struct seen {
    struct map *layers, *constants; /* by their keys: the first */
};

/* The number of an input: of equal constants, that of the first. Large tables are told apart by themselves. */
static int number_of(const struct seen *seen, struct arena *a, struct sol_tensor *t)
{
    enum { MOST_BYTES = 64 << 10 };
    if (t->role != TENSOR_CONST || tensor_bytes(t) > MOST_BYTES) return t->id;
    struct hash h;
    char *key = arena_alloc(a, 33);
    hash_init(&h);
    for (int d = 0; d < t->ndim; d++) hash_add(&h, &t->dim[d].size, sizeof t->dim[d].size);
    hash_add(&h, &t->dtype, sizeof t->dtype);
    hash_add(&h, t->data, (size_t)tensor_bytes(t));
    hash_hex(&h, key);
    const struct sol_tensor *first = map_get(seen->constants, key);
    if (first) return first->id;
    map_set(seen->constants, key, t);
    return t->id;
}

static const char *key_of(const struct seen *seen, struct arena *a, const struct sol_layer *l, int program)
{
    struct text t = text_new(a);
    text_put(&t, "%d %s", program, l->def->name);
    for (int i = 0; i < l->nin; i++) text_put(&t, " %d", l->in[i] ? number_of(seen, a, l->in[i]) : -1);
    for (int i = 0; i < l->attrs.n; i++) put_attr(&t, &l->attrs.at[i]);
    return t.at;
}

sol_status pass_cse(struct sol_graph *g)
{
    const struct seen seen = {map_create(g->scratch), map_create(g->scratch)};
    uint8_t *program = NEW_ARRAY(g->scratch, uint8_t, g->nlayers + 1);
    TRY(graph_programs(g, program));
    for (struct sol_layer *l = g->first, *next; l; l = next) {
        next = l->next;
        const char *key = key_of(&seen, g->scratch, l, program[l->id]);
        struct sol_layer *same = map_get(seen.layers, key);
        if (!same || same->nout != l->nout) {
            map_set(seen.layers, key, l);
            continue;
        }
        for (int i = 0; i < l->nout; i++) graph_replace(g, l->out[i], same->out[i]);
        graph_remove(g, l);
    }
    return SOL_OK;
}

sol_status pass_cse_again(struct sol_graph *g)
{
    return pass_cse(g);
}
