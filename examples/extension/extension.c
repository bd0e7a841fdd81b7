/* A plug-in with two layers and a pass, in C. Build and use it:
 *
 *   cc -shared -fPIC -O2 -I include examples/extension/extension.c -o extension.so
 *   SOL_EXTENSIONS=./extension.so python model.py
 *
 * `example::swish` is a definition, whose gradient SOL derives. `example::clip_norm` is a C function with a gradient.
 * The pass replaces x * sigmoid(x) by example::swish. docs/extending.md explains all of it. */
#include <math.h>
#include <string.h>

#include "sol/extend.h"

/* -- a C function: each row of x, scaled so that its norm is at most `most`. Sizes: N rows of C elements. */

static int32_t clip_norm(void *const *tensors, const int64_t *numbers, const double *reals)
{
    const float *x = tensors[0];
    float *y = tensors[1];
    const int64_t rows = numbers[0], n = numbers[1];
    for (int64_t i = 0; i < rows; i++) {
        double norm = 0;
        for (int64_t k = 0; k < n; k++) norm += (double)x[i * n + k] * x[i * n + k];
        const double by = norm > reals[0] * reals[0] ? reals[0] / sqrt(norm) : 1;
        for (int64_t k = 0; k < n; k++) y[i * n + k] = (float)(by * x[i * n + k]);
    }
    return 0;
}

/* dx = dy where nothing is clipped, otherwise m/|x| * (dy - x * <x, dy> / <x, x>) */
static int32_t clip_norm_gradient(void *const *tensors, const int64_t *numbers, const double *reals)
{
    const float *x = tensors[0], *dy = tensors[1];
    float *dx = tensors[2];
    const int64_t rows = numbers[0], n = numbers[1];
    for (int64_t i = 0; i < rows; i++, x += n, dy += n, dx += n) {
        double norm = 0, along = 0;
        for (int64_t k = 0; k < n; k++) norm += (double)x[k] * x[k], along += (double)x[k] * dy[k];
        const int clipped = norm > reals[0] * reals[0];
        const double by = clipped ? reals[0] / sqrt(norm) : 1;
        for (int64_t k = 0; k < n; k++) dx[k] = (float)(by * (dy[k] - (clipped ? x[k] * along / norm : 0)));
    }
    return 0;
}

/* -- a pass */

static int is_sigmoid_of(const struct sol_extend *sol, const struct sol_tensor *t, const struct sol_tensor *x)
{
    const struct sol_layer *maker = t ? sol->tensor_maker(t) : NULL;
    return maker && !strcmp(sol->layer_kind(maker), "sigmoid") && sol->layer_input(maker, 0) == x;
}

static sol_status find_swish(void *user, struct sol_graph *g)
{
    const struct sol_extend *sol = user;
    for (struct sol_layer *l = sol->graph_first(g); l; l = sol->layer_next(l)) {
        if (strcmp(sol->layer_kind(l), "mul")) continue;
        struct sol_tensor *a = sol->layer_input(l, 0), *b = sol->layer_input(l, 1), *y;
        struct sol_tensor *x = is_sigmoid_of(sol, b, a) ? a : is_sigmoid_of(sol, a, b) ? b : NULL;
        if (!x) continue;
        const struct sol_new_layer swish = {.kind = "example::swish", .nin = 1, .in = &x, .name = sol->layer_name(l)};
        sol_status status = sol->graph_insert(g, l, &swish, 1, &y);
        if (!status) status = sol->graph_replace(g, sol->layer_output(l, 0), y);
        if (status) return status;
    }
    return SOL_OK;
}

/* -- what SOL calls */

sol_extension_function sol_extension;
sol_status sol_extension(const struct sol_extend *sol, struct sol_ctx *ctx)
{
    static const struct sol_layer_def layers[] = {
        {.size = sizeof *layers,
         .name = "example::swish",
         .definition = "x:float[A..] -> y[A..] | y[A] = x[A] * sigmoid(x[A])",
         .doc = "x times its sigmoid"},
        {.size = sizeof *layers,
         .name = "example::clip_norm_gradient",
         .definition = "x:f32[N C] d_y:f32[N C] -> d_x:f32[N C]",
         .attributes = "most=1.0",
         .function = clip_norm_gradient},
        {.size = sizeof *layers,
         .name = "example::clip_norm",
         .definition = "x:f32[N C] -> y:f32[N C]",
         .attributes = "most=1.0",
         .gradient = "example::clip_norm_gradient",
         .doc = "rows whose norm is at most `most`",
         .function = clip_norm},
    };
    if (sol->version != SOL_EXTEND_VERSION) return SOL_ERR_UNSUPPORTED;
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        const sol_status status = sol->layer_register(ctx, &layers[i]);
        if (status) return status;
    }
    const struct sol_pass_def pass = {
        .size = sizeof pass, .name = "example::find_swish", .run = find_swish, .user = (void *)(uintptr_t)sol};
    return sol->pass_register(ctx, &pass);
}
