/* Removes common subexpressions: layers with the same definition, attributes and inputs. In a graph with a gradient
 * both must belong to one program, so that what backward recomputes is not saved instead. */
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

static const char *key_of(struct sol_graph *g, const struct sol_layer *l, int program)
{
    struct text t = text_new(g->scratch);
    text_put(&t, "%d %s", program, l->def->name);
    for (int i = 0; i < l->nin; i++) text_put(&t, " %d", l->in[i] ? l->in[i]->id : -1);
    for (int i = 0; i < l->attrs.n; i++) put_attr(&t, &l->attrs.at[i]);
    return t.at;
}

sol_status pass_cse(struct sol_graph *g)
{
    struct map *seen = map_create(g->scratch);
    uint8_t *program = NEW_ARRAY(g->scratch, uint8_t, g->nlayers + 1);
    TRY(graph_programs(g, program));
    for (struct sol_layer *l = g->first, *next; l; l = next) {
        next = l->next;
        const char *key = key_of(g, l, program[l->id]);
        struct sol_layer *same = map_get(seen, key);
        if (!same || same->nout != l->nout) {
            map_set(seen, key, l);
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
