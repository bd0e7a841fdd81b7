/* Draws the planned network for Graphviz, with compiler::debug, as debug/NAME-HASH.dot beside the cache. A box is a
 * unit: its layers, its solver, and its cost (the redder, the larger its share of the program). An arrow is a tensor.
 * Boxes name the saved tensors that backward reads, and outputs where there are many. Parameters are left out, and
 * everything that `prepare` makes of them is one box. */
#include <string.h>
#include <unistd.h>

#include "build/build.h"
#include "compile/compile.h"

enum { LINE = 44, LINES = 8, ENDS = 8 }; /* limits of a box: characters, layers, outputs that are drawn */

struct drawing {
    struct plan *p;
    struct text out, boxes[PROGRAMS];
    struct map *maker; /* by root tensor: the last box that wrote it */
    struct map *unit;  /* likewise: the unit */
    double cost[PROGRAMS];
    const char *last[PROGRAMS]; /* box */
};

static uint64_t place_of(struct drawing *d, const struct sol_tensor *t)
{
    return (uint64_t)plan_allocation(d->p, t)->root->id;
}

/* At most so many characters of a text, as a part of a label. */
static void put_words(struct text *t, const char *s, size_t n, size_t most)
{
    for (size_t i = 0; i < n && i < most; i++) {
        if (strchr("\"\\", s[i])) text_put(t, "\\");
        text_put(t, "%c", s[i]);
    }
    if (n > most) text_put(t, "..");
}

/* "Conv conv1 + relu relu > MaxPool pool": a line for each layer, with the sign that joins it in front. */
static void put_layers(struct text *t, const char *label)
{
    for (int lines = 0; *label; lines++) {
        size_t n = 1;
        while (label[n] && !(label[n - 1] == ' ' && strchr("+>", label[n]) && label[n + 1] == ' ')) n++;
        if (lines < LINES) {
            put_words(t, label, n - (label[n] && label[n - 1] == ' '), LINE);
            text_put(t, "\\n");
        } else if (!label[n]) {
            text_put(t, ".. %d more\\n", lines - LINES + 1);
        }
        label += n;
    }
}

static void put_shape(struct text *t, const struct sol_tensor *x)
{
    text_put(t, "%s", dtype_def(x->dtype)->name);
    for (int i = 0; i < x->ndim; i++) text_put(t, "%s%lld", i ? "x" : " ", (long long)x->dim[i].size);
}

static void put_end(struct drawing *d, const char *box, const char *name)
{
    text_put(&d->out, "    %s [shape=oval, fillcolor=white, label=\"", box);
    put_words(&d->out, name ? name : "", strlen(name ? name : ""), LINE);
    text_put(&d->out, "\"];\n");
}

/* Returns NULL for a tensor that nothing writes: a parameter or a constant. */
static bool put_arrow(struct drawing *d, const struct sol_tensor *x, const char *to)
{
    const char *from = map_get_int(d->maker, place_of(d, x));
    if (!from) return false;
    text_put(&d->out, "    %s -> %s [label=\"", from, to);
    put_shape(&d->out, x);
    text_put(&d->out, "\"];\n");
    return true;
}

/* Did a forward unit save x for u, a backward unit? */
static const struct unit *saved_by(struct drawing *d, const struct unit *u, const struct sol_tensor *x)
{
    const struct unit *of = map_get_int(d->unit, place_of(d, x));
    return of && of->program != u->program ? of : NULL;
}

/* Are outputs of a program drawn? Gradients and statistics are many; the boxes name those instead. */
static bool has_ends(const struct drawing *d, enum program program)
{
    return program == PROGRAM_FORWARD && d->p->g->outputs.n <= ENDS;
}

/* The saved tensors that a unit reads, and the outputs that it writes and that are not drawn. */
static void put_borders(struct drawing *d, struct text *out, const struct unit *u)
{
    for (int i = 0; i < u->loops->tensors.n; i++) {
        const struct loops_tensor *t = &u->loops->tensors.at[i];
        const struct unit *of = t->role == LOOPS_INPUT && t->user ? saved_by(d, u, t->user) : NULL;
        if (!of) continue;
        text_put(out, "saved: ");
        put_words(out, of->label, strlen(of->label), LINE - 7);
        text_put(out, "\\n");
    }
    for (int i = 0; i < u->loops->tensors.n && !has_ends(d, u->program); i++) {
        const struct loops_tensor *t = &u->loops->tensors.at[i];
        for (int k = 0; k < d->p->g->outputs.n; k++) {
            if (t->role != LOOPS_OUTPUT || d->p->g->outputs.at[k].t != t->user) continue;
            const char *name = d->p->g->outputs.at[k].name;
            text_put(out, "gives: ");
            put_words(out, name, strlen(name), LINE - 7);
            text_put(out, "\\n");
        }
    }
}

/* Of several versions, the one that runs at the hints counts. */
static double cost_of(const struct unit *u)
{
    return u->kernel.cost * (double)size_hint(unit_when(u, 1));
}

static void put_unit(struct drawing *d, int number)
{
    const struct unit *u = d->p->units.at[number];
    struct text *t = &d->boxes[u->program];
    const double share = cost_of(u) / MAX(d->cost[u->program], 1);
    text_put(t, "        u%d [fillcolor=\"0.04 %.2f 1.0\", label=\"", number, MIN(share * 4, 0.8));
    put_layers(t, u->label);
    put_borders(d, t, u);
    text_put(t, "%s %s\\n", unit_solver(u), u->kernel.variant ? u->kernel.variant : "");
    text_put(t, "%.1f us estimated, %.0f %%, %.3g MFLOP\"];\n", cost_of(u) / 1e3, 100 * share,
             u->opaque ? 0 : work_hint(loops_flops(u->loops)) / 1e6);
}

/* Is there already an arrow from the source of input i? */
static bool came_before(struct drawing *d, const struct loops *loops, int i)
{
    const void *from = map_get_int(d->maker, place_of(d, loops->tensors.at[i].user));
    for (int k = 0; k < i; k++)
        if (loops->tensors.at[k].role == LOOPS_INPUT && loops->tensors.at[k].user &&
            map_get_int(d->maker, place_of(d, loops->tensors.at[k].user)) == from)
            return true;
    return false;
}

static void put_arrows(struct drawing *d, int number)
{
    struct unit *u = d->p->units.at[number];
    char *box = arena_printf(d->p->arena, "u%d", number);
    bool any = false;
    for (int i = 0; i < u->loops->tensors.n; i++) {
        const struct loops_tensor *t = &u->loops->tensors.at[i];
        if (t->role == LOOPS_INPUT && t->user && !saved_by(d, u, t->user) && !came_before(d, u->loops, i))
            any |= put_arrow(d, t->user, box);
    }
    if (!any && d->last[u->program]) /* below the previous one, not beside all others */
        text_put(&d->out, "    %s -> %s [style=invis];\n", d->last[u->program], box);
    d->last[u->program] = box;
    for (int i = 0; i < u->loops->tensors.n; i++) {
        const struct loops_tensor *t = &u->loops->tensors.at[i];
        if (t->role != LOOPS_OUTPUT || !t->user || !size_hint(unit_when(u, 1))) continue;
        map_set_int(d->maker, place_of(d, t->user), box);
        map_set_int(d->unit, place_of(d, t->user), u);
    }
}

static void put_prepare(struct drawing *d)
{
    int n = 0;
    for (int i = 0; i < d->p->units.n; i++)
        n += !d->p->units.at[i]->dead && d->p->units.at[i]->program == PROGRAM_PREPARE;
    if (n)
        text_put(&d->out,
                 "    prepare [shape=note, fillcolor=white, label=\"prepare: %d kernels, when parameters change\"];\n",
                 n);
}

static void put_ends(struct drawing *d)
{
    const struct sol_graph *g = d->p->g;
    for (int i = 0; i < g->outputs.n; i++) {
        const struct unit *of = map_get_int(d->unit, place_of(d, g->outputs.at[i].t));
        if (of && !has_ends(d, of->program)) continue;
        const char *box = arena_printf(d->p->arena, "out%d", i);
        put_end(d, box, g->outputs.at[i].name);
        put_arrow(d, g->outputs.at[i].t, box);
    }
}

static const char *drawn(struct plan *p)
{
    const struct sol_graph *g = p->g;
    struct drawing d = {.p = p, .out = text_new(p->arena), .maker = map_create(p->arena), .unit = map_create(p->arena)};
    text_put(&d.out, "digraph {\n    node [shape=box, style=filled, fontname=\"sans-serif\", fontsize=10];\n"
                     "    edge [fontname=\"sans-serif\", fontsize=8];\n    fontname=\"sans-serif\";\n");
    put_prepare(&d);
    for (int i = 0; i < g->inputs.n; i++) {
        char *box = arena_printf(p->arena, "in%d", i);
        put_end(&d, box, g->inputs.at[i]->name);
        map_set_int(d.maker, place_of(&d, g->inputs.at[i]), box);
    }
    for (int i = 0; i < PROGRAMS; i++) d.boxes[i] = text_new(p->arena);
    for (int i = 0; i < p->units.n; i++)
        if (!p->units.at[i]->dead) d.cost[p->units.at[i]->program] += cost_of(p->units.at[i]);
    for (int i = 0; i < p->units.n; i++) {
        if (p->units.at[i]->dead || p->units.at[i]->program == PROGRAM_PREPARE) continue;
        put_unit(&d, i);
        put_arrows(&d, i);
    }
    for (int i = 0; i < PROGRAMS; i++)
        if (*d.boxes[i].at)
            text_put(&d.out, "    subgraph cluster_%s {\n        label=\"%s: %.2f ms estimated\";\n%s    }\n",
                     program_name((enum program)i), program_name((enum program)i), d.cost[i] / 1e6, d.boxes[i].at);
    put_ends(&d);
    text_put(&d.out, "}\n");
    return d.out.at;
}

void compile_keep_file(const struct schedule *s, const char *suffix, const char *text, const char *what)
{
    struct plan *p = s->plan;
    struct sol_ctx *ctx = p->ctx;
    struct hash h;
    char key[33];
    hash_init(&h);
    hash_text(&h, text);
    hash_hex(&h, key);
    key[8] = 0;
    const char *path, *why;
    const char *name = arena_printf(p->arena, "%s-%s%s", text_identifier(p->arena, p->g->name), key, suffix);
    const int cache = place_open(ctx, p->arena, 0, true, &path, &why);
    const int folder = cache < 0 ? -1 : folder_open(cache, "debug", true, &why);
    const struct file_part all = {text, strlen(text)};
    if (folder >= 0 && file_write_at(ctx, folder, name, 1, &all)) why = sol_error(ctx);
    if (why)
        LOG(ctx, LOG_WARN, "core", "%s is not drawn: %s", p->g->name, why);
    else
        LOG(ctx, LOG_INFO, "core", "%s is drawn in %s/debug/%s%s", p->g->name, path, name, what);
    if (folder >= 0) close(folder);
    if (cache >= 0) close(cache);
}

void compile_draw(const struct schedule *s)
{
    if (strcmp(ctx_config(s->plan->ctx, "compiler::debug"), "1") != 0) return;
    compile_keep_file(s, ".dot", drawn(s->plan), "; dot -Tsvg -O makes a picture of it");
}
