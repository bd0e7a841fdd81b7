/* With compiler::debug: the planned network as a graph for Graphviz, debug/NAME-HASH.dot beside the cache. A box is a
 * unit of work (its layers, what computes it, its cost), an arrow a tensor. Parameters are left out. */
#include "build/build.h"
#include "compile/compile.h"

#include <string.h>

static void put_quoted(struct text *t, const char *s)
{
    for (; *s; s++) text_put(t, *s == '"' || *s == '\\' ? "\\%c" : "%c", *s);
}

/* Who made a tensor, or the one that it is a part of: unit + 1, -(input + 1), 0: nobody that is drawn. */
static int maker(struct plan *p, const struct map *makers, const struct sol_tensor *t)
{
    return (int)(intptr_t)map_get_int(makers, (uint64_t)plan_store(p, t)->root->id);
}

static void made(struct plan *p, struct map *makers, const struct sol_tensor *t, int by)
{
    map_set_int(makers, (uint64_t)plan_store(p, t)->root->id, (void *)(intptr_t)by);
}

static void put_arrow(struct text *t, const char *from, int number, const char *to, const struct sol_tensor *of)
{
    text_put(t, "    %s%d -> %s [label=\"%s", from, number, to, dtype_def(of->dtype)->name);
    for (int d = 0; d < of->ndim; d++) text_put(t, "%s%lld", d ? "x" : " ", (long long)of->dim[d].size);
    text_put(t, "\"];\n");
}

static void put_units(struct text *t, const struct plan *p, enum program program)
{
    text_line(t, "    subgraph cluster_%s {", program_name(program));
    text_line(t, "    label=\"%s\";", program_name(program));
    for (int i = 0; i < p->units.n; i++) {
        const struct unit *u = p->units.at[i];
        if (u->dead || u->program != program) continue;
        text_put(t, "        u%d [label=\"", i);
        put_quoted(t, u->label);
        text_put(t, "\\n%s %s, %.1f us by costs, %.3g Mflop\"];\n", u->opaque ? "opaque" : u->kernel.solver,
                 u->kernel.variant ? u->kernel.variant : "", u->kernel.cost / 1e3,
                 u->opaque ? 0 : loops_flops(u->loops) / 1e6);
    }
    text_line(t, "    }");
}

/* What unit i reads, from whom; then it is the last that wrote what it writes. */
static void put_reads(struct text *t, struct plan *p, int i, struct map *writer)
{
    const struct unit *u = p->units.at[i];
    const char *to = arena_printf(p->arena, "u%d", i);
    for (int k = 0; k < u->loops->tensors.n; k++) {
        const struct loops_tensor *x = &u->loops->tensors.at[k];
        if (x->role != LOOPS_INPUT || !x->user) continue;
        const int w = maker(p, writer, x->user);
        if (w) put_arrow(t, w < 0 ? "in" : "u", w < 0 ? -w - 1 : w - 1, to, x->user);
    }
    for (int k = 0; k < u->loops->tensors.n; k++) {
        const struct loops_tensor *x = &u->loops->tensors.at[k];
        if (x->role == LOOPS_OUTPUT && x->user) made(p, writer, x->user, i + 1);
    }
}

static const char *drawn(struct plan *p)
{
    const struct sol_graph *g = p->g;
    struct text t = text_new(p->arena);
    int most = 0;
    for (int i = 0; i < p->nstores; i++) most = MAX(most, i);
    struct map *writer = map_create(p->arena);
    text_line(&t, "digraph {");
    text_line(&t, "    node [shape=box, fontname=\"sans-serif\", fontsize=10];");
    text_line(&t, "    edge [fontname=\"sans-serif\", fontsize=8];");
    for (int i = 0; i < g->inputs.n; i++) {
        text_put(&t, "    in%d [shape=oval, label=\"", i);
        put_quoted(&t, g->inputs.at[i]->name);
        text_put(&t, "\"];\n");
        made(p, writer, g->inputs.at[i], -(i + 1));
    }
    for (int i = 0; i < PROGRAMS; i++) put_units(&t, p, (enum program)i);
    for (int i = 0; i < p->units.n; i++)
        if (!p->units.at[i]->dead) put_reads(&t, p, i, writer);
    for (int i = 0; i < g->outputs.n; i++) {
        const struct sol_tensor *o = g->outputs.at[i].t;
        const int w = maker(p, writer, o);
        text_put(&t, "    out%d [shape=oval, label=\"", i);
        put_quoted(&t, g->outputs.at[i].name);
        text_put(&t, "\"];\n");
        if (w) put_arrow(&t, w < 0 ? "in" : "u", w < 0 ? -w - 1 : w - 1, arena_printf(p->arena, "out%d", i), o);
    }
    text_line(&t, "}");
    return t.at;
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
