/* sol deploy: a model becomes a C library, or the source of one. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static int list_keys(void)
{
    const char *key, *otherwise, *doc;
    for (int i = 0; (key = sol_deploy_key_at(i, &otherwise, &doc)); i++)
        printf("%-14s %-14s %s\n", key, *otherwise ? otherwise : "-", doc);
    return EXIT_GOOD;
}

static int deploy(struct cli *c, const struct model *m)
{
    const int n = sol_onnx_params(m->onnx);
    const void **params = calloc((size_t)n + 1, sizeof *params);
    if (!params) return cli_error(EXIT_FAILED, "not enough memory");
    for (int i = 0; i < n; i++) params[i] = sol_onnx_param(m->onnx, i);
    const struct sol_deploy_options options = {.size = sizeof options,
                                               .target = c->o.target ? c->o.target : "shared_lib",
                                               .nkeys = c->o.ndargs,
                                               .keys = c->o.dargs,
                                               .params = params,
                                               .seed_input = -1};
    const sol_status status = sol_deploy(c->ctx, sol_onnx_graph(m->onnx), &options);
    free(params);
    if (c->terminal) fprintf(stderr, "\r\033[K");
    return status ? cli_fail(c, status) : EXIT_GOOD;
}

int cmd_deploy(struct cli *c)
{
    if (c->o.list_keys) return list_keys();
    if (!c->o.file) return cli_error(EXIT_USAGE, "usage: sol deploy NET.onnx [OPTIONS]; try `sol deploy --help`");
    struct model m;
    int code = model_load(c, &m, 0);
    if (!code) code = deploy(c, &m);
    model_free(&m);
    return code;
}
