/* Coverage-guided: any bytes, read as an ONNX model, are refused with a message or make a sound graph.
 *
 * Built with clang -fsanitize=fuzzer,address,undefined (make fuzz); test/fuzz/README.md says how to run it. */
#include <stdlib.h>

#include "hlir/graph.h"
#include "sol/onnx.h"

#define MOST_BYTES ((size_t)256 << 20) /* in one allocation: what asks for more is told that there is none */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void *reallocate(void *user, void *p, size_t bytes)
{
    (void)user;
    if (!bytes) {
        free(p);
        return NULL;
    }
    return bytes > MOST_BYTES ? NULL : realloc(p, bytes);
}

static void quiet(void *user, int level, const char *line)
{
    (void)user, (void)level, (void)line;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const struct sol_onnx_dim dims[] = {{"batch", 2}, {"N", 1}};
    struct sol_ctx_options options = {.size = sizeof options, .reallocate = reallocate, .log = quiet};
    struct sol_ctx *ctx;
    if (sol_ctx_create(&options, &ctx)) abort();
    for (int given = 0; given < 2; given++) {
        struct sol_onnx_options read = {.size = sizeof read, .ndims = given ? 2 : 0, .dims = dims, .constants = given};
        struct sol_onnx *model = NULL;
        sol_status status = sol_onnx_load_memory(ctx, data, bytes, &read, &model);
        if (!status != !!model || (status && !*sol_error(ctx))) abort();
        if (!status && graph_verify(sol_onnx_graph(model))) abort();
        if (status == SOL_ERR_INTERNAL) abort();
        sol_onnx_destroy(model);
    }
    sol_ctx_destroy(ctx);
    return 0;
}
