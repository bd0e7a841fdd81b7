/* Runs an ONNX model from C: read, optimize, bind the weights, run.
 *
 *     make -C .. install && ldconfig   (as root: libsol and its headers, in /usr/local)
 *     cc inference.c $(pkg-config --cflags --libs sol) -o inference && ./inference net.onnx */
#include <sol/onnx.h>
#include <stdio.h>
#include <stdlib.h>

static int64_t elements(struct sol_io io)
{
    int64_t n = 1;
    for (int d = 0; d < io.ndim; d++) n *= io.shape[d];
    return n;
}

static int run(struct sol_ctx *ctx, const char *path)
{
    struct sol_onnx *model = NULL;
    struct sol_net *net = NULL;
    struct sol_params *params = NULL;
    int failed = sol_onnx_load(ctx, path, NULL, &model) || sol_compile(ctx, sol_onnx_graph(model), &net) ||
                 sol_onnx_bind(model, net, &params);
    if (!failed) {
        /* one input and one output of float; sol_net_input and sol_net_output describe them */
        int64_t n = elements(sol_net_input(net, 0)), m = elements(sol_net_output(net, 0));
        float *x = malloc((size_t)n * sizeof *x), *y = malloc((size_t)m * sizeof *y);
        for (int64_t i = 0; i < n; i++) x[i] = (float)i / (float)n;
        failed = sol_net_run(net, params, (const void *[]){x}, (void *[]){y}, 0);
        for (int64_t i = 0; i < m && i < 5 && !failed; i++)
            printf("%s[%lld] = %f\n", sol_net_output(net, 0).name, (long long)i, y[i]);
        free(x);
        free(y);
    }
    if (failed) fprintf(stderr, "%s\n", sol_error(ctx));
    sol_params_destroy(params);
    sol_net_destroy(net);
    sol_onnx_destroy(model);
    return failed;
}

int main(int argc, char **argv)
{
    struct sol_ctx *ctx;
    if (argc != 2 || sol_ctx_create(NULL, &ctx)) {
        fprintf(stderr, "usage: inference net.onnx\n");
        return 2;
    }
    int failed = run(ctx, argv[1]);
    sol_ctx_destroy(ctx);
    return failed;
}
