/* With compiler::debug: the planned network as a graph for Graphviz, debug/NAME-HASH.dot beside the cache. A box is a
 * unit of work (its layers, what computes it, its cost), an arrow a tensor. Parameters are left out. */
#include <string.h>

#include "build/build.h"
#include "compile/compile.h"

struct drawing {
    struct plan *p;
    struct text out;
    struct map *maker; /* by the tensor that a tensor is a part of: the box that wrote it last */
};

static uint64_t place_of(struct drawing *d, const struct sol_tensor *t)
{
    return (uint64_t)plan_store(d->p, t)->root->id;
}

static void put_end(struct drawing *d, const char *box, const char *name)
{
    text_put(&d->out, "    %s [shape=oval, label=", box);
    text_string(&d->out, name ? name : "");
    text_put(&d->out, "];\n");
}

/* What nobody wrote is a parameter, or a constant. */
static void put_arrow(struct drawing *d, const struct sol_tensor *x, const char *to)
{
    const char *from = map_get_int(d->maker, place_of(d, x));
    if (!from) return;
    text_put(&d->out, "    %s -> %s [label=\"%s", from, to, dtype_def(x->dtype)->name);
    for (int i = 0; i < x->ndim; i++) text_put(&d->out, "%s%lld", i ? "x" : " ", (long long)x->dim[i].size);
    text_put(&d->out, "\"];\n");
}

static void put_program(struct drawing *d, enum program program)
{
    struct text *t = &d->out;
    text_put(t, "    subgraph cluster_%s {\n        label=\"%s\";\n", program_name(program), program_name(program));
    for (int i = 0; i < d->p->units.n; i++) {
        const struct unit *u = d->p->units.at[i];
        if (u->dead || u->program != program) continue;
        text_put(t, "        u%d [label=", i);
        text_string(t, u->label);
        text_put(t, " + \"\\n%s %s, %.1f us by costs, %.3g Mflop\"];\n", u->opaque ? "opaque" : u->kernel.solver,
                 u->kernel.variant ? u->kernel.variant : "", u->kernel.cost / 1e3,
                 u->opaque ? 0 : loops_flops(u->loops) / 1e6);
    }
    text_put(t, "    }\n");
}

static void put_unit_arrows(struct drawing *d, int number)
{
    const struct loops *l = d->p->units.at[number]->loops;
    const char *box = arena_printf(d->p->arena, "u%d", number);
    for (int i = 0; i < l->tensors.n; i++)
        if (l->tensors.at[i].role == LOOPS_INPUT && l->tensors.at[i].user) put_arrow(d, l->tensors.at[i].user, box);
    for (int i = 0; i < l->tensors.n; i++)
        if (l->tensors.at[i].role == LOOPS_OUTPUT && l->tensors.at[i].user)
            map_set_int(d->maker, place_of(d, l->tensors.at[i].user), (void *)box);
}

static const char *drawn(struct plan *p)
{
    const struct sol_graph *g = p->g;
    struct drawing d = {p, text_new(p->arena), map_create(p->arena)};
    text_put(&d.out, "digraph {\n    node [shape=box, fontname=\"sans-serif\", fontsize=10];\n"
                     "    edge [fontname=\"sans-serif\", fontsize=8];\n");
    for (int i = 0; i < g->inputs.n; i++) {
        const char *box = arena_printf(p->arena, "in%d", i);
        put_end(&d, box, g->inputs.at[i]->name);
        map_set_int(d.maker, place_of(&d, g->inputs.at[i]), (void *)box);
    }
    for (int i = 0; i < PROGRAMS; i++) put_program(&d, (enum program)i);
    for (int i = 0; i < p->units.n; i++)
        if (!p->units.at[i]->dead) put_unit_arrows(&d, i);
    for (int i = 0; i < g->outputs.n; i++) {
        const char *box = arena_printf(p->arena, "out%d", i);
        put_end(&d, box, g->outputs.at[i].name);
        put_arrow(&d, g->outputs.at[i].t, box);
    }
    text_put(&d.out, "}\n");
    return d.out.at;
}

void compile_draw(const struct schedule *s)
{
    struct plan *p = s->plan;
    struct sol_ctx *ctx = p->ctx;
    struct hash h;
    char key[33];
    if (strcmp(ctx_config(ctx, "compiler::debug"), "1") != 0) return;
    const char *folder = cache_beside(ctx, p->arena, 0, "debug"), *text = drawn(p);
    if (!text) return;
    hash_init(&h);
    hash_text(&h, text);
    hash_hex(&h, key);
    key[8] = 0;
    const char *path =
        arena_printf(p->arena, "%s/%s-%s.dot", folder ? folder : "", text_identifier(p->arena, p->g->name), key);
    if (!folder || file_make_folder(ctx, folder) || file_write(ctx, path, text, strlen(text)))
        LOG(ctx, LOG_WARN, "core", "%s is not drawn: %s", p->g->name,
            folder ? sol_error(ctx) : "there is no cache folder of one's own");
    else
        LOG(ctx, LOG_INFO, "core", "%s is drawn in %s; dot -Tsvg -O makes a picture of it", p->g->name, path);
}
