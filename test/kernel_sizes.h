/* Checks one kernel for sizes that vary: generates it once, and compares it at each of many sizes with the interpreter.
 * In a case's `in`, #0 #1 #2 are such sizes. */
#ifndef KERNEL_SIZES_H
#define KERNEL_SIZES_H

#include "kernel_check.h"

struct check_sizes {
    int64_t hint[CHECK_DIMS], least; /* of all dimensions */
    int n;                           /* sizes that are tried, */
    const int64_t (*at)[CHECK_DIMS]; /* those below `least` are left out */
};

/* The kernel of sizes that vary, with these numbers for what it says about itself. */
static struct kernel check_kernel_at(const struct kernel *k, const int64_t *dims)
{
    struct kernel out = *k;
    for (int i = 0; i < k->nstep; i++) out.step[i].tasks = size_at(k->step[i].tasks, dims);
    for (int i = 0; i < k->nwork; i++) out.work_bytes[i] = size_at(k->work_bytes[i], dims);
    out.scratch_bytes = size_at(k->scratch_bytes, dims);
    return out;
}

static bool check_at(const struct checking *general, const int64_t *dims)
{
    int64_t limits[8] = {0};
    const struct loops *loops = check_bind(general->a, general->c, dims, limits);
    if (!loops) return check_say(general->c, "binding", sol_error(general->ctx));
    struct checking k = check_new(general, loops);
    k.sizes = dims;
    k.kernel = check_kernel_at(&general->kernel, dims);
    check_store(&k, NULL, limits);
    bool ok = !loops_interpret(k.ctx, loops, k.plain) || check_say(k.c, "interpreter", sol_error(k.ctx));
    if (ok) {
        check_operands(&k);
        ok = check_results(&k);
    }
    check_free(&k);
    if (!ok)
        fprintf(stderr, "  at sizes %lld, %lld, %lld\n", (long long)dims[0], (long long)dims[1], (long long)dims[2]);
    return ok;
}

/* Generates one kernel and checks it at all sizes. */
static bool check_any_size(struct sol_ctx *ctx, const struct solver *solver, const struct check_case *c,
                           const struct check_tool *tool, const struct check_sizes *sizes)
{
    struct arena *a = arena_create(ctx);
    int64_t limits[8] = {0}, dims[CHECK_DIMS];
    for (int i = 0; i < CHECK_DIMS; i++)
        dims[i] =
            size_of_dim(&(struct size_dim){i, MAX(sizes->hint[i], sizes->least), sizes->least, INT64_C(1) << 40, 1});
    const struct loops *loops = check_bind(a, c, dims, limits);
    bool ok = loops || check_say(c, "binding", sol_error(ctx));
    struct checking k = {.ctx = ctx, .a = a, .solver = solver, .c = c, .tool = tool};
    if (ok) {
        int count;
        k = check_new(&k, loops);
        for (int i = 0; i < loops->tensors.n; i++)
            if (check_is_operand(loops, i)) check_layout(&k, i);
        ok = check_emit(&k, 0, &count);
    }
    for (int i = 0; ok && i < sizes->n; i++) {
        bool fits = true;
        for (int d = 0; d < CHECK_DIMS; d++) fits = fits && sizes->at[i][d] >= sizes->least;
        ok = !fits || check_at(&k, sizes->at[i]);
    }
    if (!ok && getenv("SOL_CHECK_SHOW") && k.kernel.source) fputs(k.kernel.source, stderr);
    if (k.handle) dlclose(k.handle);
    arena_destroy(a);
    return ok;
}

#endif
