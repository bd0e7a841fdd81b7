/* Matrix products by the library for linear algebra that a device's maker provides: calls in place of kernels
 * (sol_gemm in sol/device.h). The results go where they belong if nothing else happens to them; otherwise to a work
 * buffer, and a second step has an item apply the epilogue to each element. */
#include <math.h>
#include <string.h>

#include "dnn/call.h"
#include "dnn/matrices.h"
#include "dnn/solvers.h"
#include "print/print.h"
#include "sol/device.h"

enum { MOST_CALLS = 64 };

struct blas {
    struct problem p;
    const struct target *target;
    struct matrices x;
    int batch; /* the outer axis that one call goes through; -1: none */
    int64_t nbatch, ncall;
    bool direct;                 /* the results go to the output */
    int64_t row, step[AXES_MAX]; /* of the results: elements between rows, and between neighbours on an outer axis */
};

/* Are the results only stored, in rows that are in one piece? */
static bool is_direct(const struct problem *p, const struct matrices *x)
{
    const int64_t *store = p->view[0].s;
    return call_only_stores(p) && axis_stride(&x->n, store) == 1 && axis_stride(&x->m, store) >= x->n.size;
}

/* Where the results go. */
static void place_results(struct blas *g)
{
    const struct matrices *x = &g->x;
    int64_t below = x->m.size * x->n.size;
    g->direct = is_direct(&g->p, x);
    g->row = g->direct ? axis_stride(&x->m, g->p.view[0].s) : x->n.size;
    for (int i = x->outer.n - 1; i >= 0; below *= x->outer.at[i--].size)
        g->step[i] = g->direct ? axis_stride(&x->outer.at[i], g->p.view[0].s) : below;
}

static bool find_as(struct blas *g, bool swap, const struct solver_context *sc, const struct cluster *c,
                    const char **why)
{
    *g = (struct blas){.target = sc->target, .batch = -1, .nbatch = 1};
    struct problem *p = &g->p;
    if (!problem_make(sc->arena, c, swap, p, why)) return false;
    const struct loops_tensor *t = p->loops->tensors.at;
    *why = "not float32 or float64";
    if (p->dtype != SOL_F32 && p->dtype != SOL_F64) return false;
    if (t[p->a.tensor].dtype != p->dtype || t[p->b.tensor].dtype != p->dtype) return false;
    if (!matrices_find(p, &g->x, why)) return false;
    for (int i = 0; i < g->x.outer.n; i++)
        if (g->batch < 0 || g->x.outer.at[i].size > g->x.outer.at[g->batch].size) g->batch = i;
    if (g->batch >= 0) g->nbatch = g->x.outer.at[g->batch].size;
    g->ncall = g->x.nouter / g->nbatch;
    place_results(g);
    *why = "too many products, or too large for the library";
    const int64_t most = INT32_MAX;
    return g->ncall <= MOST_CALLS && g->nbatch <= 65535 && g->x.m.size <= most && g->x.n.size <= most &&
           g->x.k.size <= most && g->x.a.stride <= most && g->x.b.stride <= most && g->row <= most &&
           g->x.outer.n + 2 <= AXES_MAX;
}

/* Either factor may be b: results whose rows are in one piece need no second step. */
static bool find(const struct solver_context *sc, const struct cluster *c, struct blas *out, const char **why)
{
    struct blas swapped;
    *why = "the device has no library for linear algebra";
    if (!sc->target->blas) return false;
    const char *other;
    const bool good = find_as(out, false, sc, c, why);
    if (good && out->direct) return true;
    if (!find_as(&swapped, true, sc, c, good ? &other : why)) return good;
    if (!good || swapped.direct) *out = swapped;
    return true;
}

static bool applicable(const struct solver_context *sc, const struct cluster *c, const char **out_why)
{
    struct blas g;
    return find(sc, c, &g, out_why);
}

/* The order of results in the work buffer: outer axes, then rows. */
static struct call call_of(const struct blas *g)
{
    struct call c = {.p = &g->p, .target = g->target, .direct = g->direct, .axes = g->x.outer};
    c.axes.at[c.axes.n++] = g->x.m;
    c.axes.at[c.axes.n++] = g->x.n;
    return c;
}

/* The library is assumed to reach SHARE of the peak where its blocks of 128 by 128 fill all cores. */
static double cost(const struct blas *g)
{
    const struct target *t = g->target;
    const double share = 0.85, block = 128;
    const struct matrices *x = &g->x;
    const double m = (double)size_ceil_div(x->m.size, (int64_t)block),
                 n = (double)size_ceil_div(x->n.size, (int64_t)block);
    const double blocks = m * n * (double)g->nbatch, k = (double)x->k.size;
    /* a long sum over few results is split over cores */
    const double split = MAX(1, MIN((double)t->cores / blocks, k / 256));
    const double waves = ceil(blocks * split / t->cores);
    /* products in a ns, of a core */
    const double units = t->tf32 && g->p.dtype == SOL_F32 ? t->core_mma : 0;
    const double rate = t->clock * fmax(units, t->fma_pipes * target_lanes(t, g->p.bytes)) * share;
    const double elements = (double)x->m.size * (double)x->n.size * (double)g->nbatch;
    const double bytes = g->p.bytes * ((double)g->nbatch * k * (double)(x->m.size + x->n.size) + elements);
    const struct call call = call_of(g);
    const double one = MAX(waves * block * block * k / split / rate, bytes / t->dram_rate) + target_step_ns(t);
    return one * (double)g->ncall + call_second_ns(&call);
}

static int variants(const struct solver_context *sc, const struct cluster *c, struct variant *out)
{
    struct blas g;
    const char *why;
    if (!find(sc, c, &g, &why)) return 0;
    out[0] = (struct variant){.cost = cost(&g), .text = g.direct ? "in place" : "and epilogue"};
    return 1;
}

/* -- the call */

static void put_matrix(struct text *out, int operand, const struct matrix *x, int64_t step)
{
    text_put(out, "    %d, %lld, %d, %lld,\n", operand, (long long)x->stride, x->across, (long long)step);
}

static int64_t step_of(const struct blas *g, const int64_t *strides)
{
    return g->batch < 0 ? 0 : axis_stride(&g->x.outer.at[g->batch], strides);
}

/* The elements from the beginnings of the operands to the matrices of a call. */
static void put_offsets(const struct blas *g, struct text *out, int64_t call)
{
    int64_t a = g->p.a.view.c, b = g->p.b.view.c, c = g->direct ? g->p.view[0].c : 0;
    for (int i = g->x.outer.n - 1; i >= 0; i--) {
        const struct axis *x = &g->x.outer.at[i];
        if (i == g->batch) continue;
        a += call % x->size * axis_stride(x, g->p.a.view.s);
        b += call % x->size * axis_stride(x, g->p.b.view.s);
        c += call % x->size * g->step[i];
        call /= x->size;
    }
    text_put(out, "    %lld, %lld, %lld,\n", (long long)a, (long long)b, (long long)c);
}

/* struct sol_gemm */
static void put_call(const struct blas *g, struct text *out)
{
    const struct problem *p = &g->p;
    const struct matrix c = {g->row, false};
    text_put(out, "@CALL @KERNEL_call_0[] = {\n    %d, %d, %lld, %lld, %lld, %lld,\n", SOL_CALL_GEMM, (int)p->dtype,
             (long long)g->x.m.size, (long long)g->x.n.size, (long long)g->x.k.size, (long long)g->nbatch);
    put_matrix(out, problem_operand(p, p->a.tensor), &g->x.a, step_of(g, p->a.view.s));
    put_matrix(out, problem_operand(p, p->b.tensor), &g->x.b, step_of(g, p->b.view.s));
    put_matrix(out, g->direct ? problem_operand(p, p->view[0].tensor) : problem_work(p), &c,
               g->batch < 0 ? 0 : g->step[g->batch]);
    text_put(out, "    %lld,\n", (long long)g->ncall);
    for (int64_t i = 0; i < g->ncall; i++) put_offsets(g, out, i);
    text_put(out, "};\n");
}

static sol_status emit(const struct solver_context *sc, const struct cluster *c, const struct variant *v,
                       struct kernel *out)
{
    struct blas g;
    const char *why = "";
    (void)v;
    if (!find(sc, c, &g, &why)) return ctx_fail(arena_ctx(sc->arena), SOL_ERR_UNSUPPORTED, "blas: %s", why);
    struct text text = solver_text(sc);
    print_tables(&text, g.p.was);
    put_call(&g, &text);
    *out = (struct kernel){0};
    struct call call = call_of(&g);
    call_emit(&call, &text, out);
    return SOL_OK;
}

const struct solver dnn_blas = {
    .name = "blas", .blocks = true, .lanes = FOR_ITEMS, .applicable = applicable, .variants = variants, .emit = emit};
