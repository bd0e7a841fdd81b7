/* Convolutions by the library for neural networks that a device's maker provides: calls in place of kernels (sol_conv
 * in sol/device.h). Which formats it takes depends on its version, so a step's function computes the same in plain
 * loops, for a device to launch instead. */
#include <math.h>

#include "dnn/conv_call.h"
#include "dnn/solvers.h"
#include "print/print.h"

static bool applicable(const struct solver_context *sc, const struct cluster *c, const char **out_why)
{
    struct conv_call g;
    return conv_call_find(sc, c, &g, out_why);
}

/* The library is assumed to reach SHARE of the peak where its blocks of 128 by 64 fill all cores. In float32, cuDNN
 * reached 0.35 for few channels, and 1.1, by Winograd's algorithm, for more (docs/nvidia.md): trials know better. */
static double cost(const struct conv_call *g)
{
    const struct target *t = g->target;
    const double share = 0.55, rows = 128, columns = 64;
    const struct problem *p = &g->p;
    const double m = (double)problem_size(p, p->m), n = (double)problem_size(p, p->n);
    const double k = (double)problem_size(p, p->k), groups = (double)problem_size(p, p->batch);
    const double blocks = ceil(m / rows) * ceil(n / columns) * groups;
    const double split = MAX(1, MIN((double)t->cores / blocks, k / 256));
    const double waves = ceil(blocks * split / t->cores);
    const double units = t->tf32 && p->dtype == SOL_F32 ? t->core_mma : 0;
    const double rate = t->clock * fmax(units, t->fma_pipes * target_lanes(t, p->bytes)) * share;
    double elements = groups * m * n;
    elements += (double)loops_elements(&p->loops->tensors.at[p->a.tensor]);
    elements += (double)loops_elements(&p->loops->tensors.at[p->b.tensor]);
    const double one = MAX(waves * rows * columns * k / split / rate, p->bytes * elements / t->dram_rate);
    return one + target_step_ns(t) + call_second_ns(&g->call);
}

static int variants(const struct solver_context *sc, const struct cluster *c, struct variant *out)
{
    static const char *const names[][2] = {
        {"forward", "forward and epilogue"}, {"data", "data and epilogue"}, {"filter", "filter and epilogue"}};
    struct conv_call g;
    const char *why;
    if (!conv_call_find(sc, c, &g, &why)) return 0;
    out[0] = (struct variant){.cost = cost(&g), .text = names[g.result][!g.call.direct]};
    if (g.packs) out[0].moved = 3.0 * g.p.bytes * (double)problem_size(&g.p, g.p.batch | g.p.n | g.p.k);
    return 1;
}

/* -- without the library */

/* The index of an element of one of the factors where an item is: of an axis of results, or of a loop. */
static const char *index_of(const struct conv_call *g, int ivar)
{
    for (int i = 0; i < g->call.axes.n; i++)
        if (g->call.axes.at[i].ivar[g->call.axes.at[i].n - 1] == ivar) return call_index(&g->call, i);
    return g->p.loops->ivars.at[ivar].name;
}

/* Loops go through index variables, axes of results through their last ones. */
static const char *offset_of(const struct conv_call *g, const struct view *v)
{
    const struct problem *p = &g->p;
    struct offset o = {.arena = p->arena, .constant = v->c};
    for (int i = 0; i < g->call.axes.n; i++)
        offset_add(&o, call_index(&g->call, i), axis_stride(&g->call.axes.at[i], v->s));
    for (int i = 0; i < p->loops->ivars.n; i++)
        if (set_has(p->k, i)) offset_add(&o, p->loops->ivars.at[i].name, v->s[i]);
    return offset_text(&o);
}

/* Leaves out what a's borders cut off. */
static void put_border(const struct conv_call *g, const struct conv_pixel *x, struct text *out)
{
    struct offset o = {.arena = g->p.arena, .constant = x->c};
    if (!x->border) return;
    if (x->y.n) offset_add(&o, index_of(g, x->y.ivar[0]), x->stride);
    if (x->k.n) offset_add(&o, index_of(g, x->k.ivar[0]), g->result == SOL_CONV_X ? -x->dilation : x->dilation);
    text_line(out, "if ((uint64_t)(%s) >= %lldu) continue;", offset_text(&o), (long long)x->size);
}

static const char *compute(const void *user, struct text *out)
{
    const struct conv_call *g = user;
    const struct problem *p = &g->p;
    const struct loops_tensor *t = p->loops->tensors.at;
    int depth = 0;
    text_line(out, "double sum_ = 0;");
    for (int i = 0; i < p->loops->ivars.n; i++) {
        const struct loops_ivar *v = &p->loops->ivars.at[i];
        if (!set_has(p->k, i)) continue;
        text_open(out, "for (int64_t %s = 0; %s < %lld; %s++) {", v->name, v->name, (long long)v->size, v->name);
        depth++;
    }
    for (int i = 0; i < g->npixel; i++) put_border(g, &g->pixel[i], out);
    text_line(out, "sum_ += (double)%s[%s] * (double)%s[%s];", t[p->a.tensor].name, offset_of(g, &p->a.view),
              t[p->b.tensor].name, offset_of(g, &p->b.view));
    while (depth--) text_close(out, "}");
    return arena_printf(p->arena, "(%s)sum_", dtype_def(p->dtype)->c_name);
}

static sol_status emit(const struct solver_context *sc, const struct cluster *c, const struct variant *v,
                       struct kernel *out)
{
    struct conv_call g;
    union {
        struct sol_conv facts;
        int64_t number[sizeof(struct sol_conv) / sizeof(int64_t)];
    } call;
    const char *why = "";
    (void)v;
    if (!conv_call_find(sc, c, &g, &why)) return ctx_fail(arena_ctx(sc->arena), SOL_ERR_UNSUPPORTED, "conv: %s", why);
    struct text text = solver_text(sc);
    *out = (struct kernel){0};
    conv_call_describe(&g, &call.facts);
    print_tables(&text, g.p.was);
    text_put(&text, "@CALL @KERNEL_call_0[] = {");
    for (int i = 0; i < COUNT_OF(call.number); i++)
        text_put(&text, "%s%lld,", i % 12 ? " " : "\n    ", (long long)call.number[i]);
    text_put(&text, "\n};\n");
    if (g.packs) out->pack[out->npack++] = conv_call_pack(&g);
    g.call.compute = compute;
    g.call.user = &g;
    call_emit(&g.call, &text, out);
    return SOL_OK;
}

const struct solver dnn_conv = {
    .name = "conv", .blocks = true, .lanes = FOR_ITEMS, .applicable = applicable, .variants = variants, .emit = emit};
