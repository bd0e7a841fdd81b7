/* sol deploy: turns a model into a C library, or into the library's source. */
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

/* The caller frees the array. */
static const void **params_of(const struct model *m)
{
    const int n = sol_onnx_params(m->onnx);
    const void **params = calloc((size_t)n + 1, sizeof *params);
    for (int i = 0; params && i < n; i++) params[i] = sol_onnx_param(m->onnx, i);
    return params;
}

static struct sol_deploy_options target_and_keys(const struct cli *c)
{
    return (struct sol_deploy_options){.size = sizeof(struct sol_deploy_options),
                                       .target = c->o.target ? c->o.target : "shared_lib",
                                       .nkeys = c->o.ndargs,
                                       .keys = c->o.dargs,
                                       .seed_input = -1};
}

/* Mistakes in the keys are mistakes in the command line, not in the model. */
static int check_keys(struct cli *c)
{
    const struct sol_deploy_options options = target_and_keys(c);
    const sol_status status = sol_deploy_check(c->ctx, &options);
    if (status == SOL_ERR_INVALID || status == SOL_ERR_UNSUPPORTED)
        return cli_error(EXIT_USAGE, "%s", sol_error(c->ctx));
    return status ? cli_fail(c, status) : EXIT_GOOD;
}

/* Deploys the model once for each size; the first has the size from the options. */
static int deploy(struct cli *c, int n, const struct model *m, struct sol_deploy_graph *graphs)
{
    for (int i = 0; i < n; i++) {
        graphs[i] = (struct sol_deploy_graph){.graph = sol_onnx_graph(m[i].onnx),
                                              .params = params_of(&m[i]),
                                              .seed_input = -1,
                                              .batch = n > 1 ? c->o.sizes[i] : 0};
        if (!graphs[i].params) return cli_error(EXIT_FAILED, "not enough memory");
    }
    struct sol_deploy_options options = target_and_keys(c);
    options.params = graphs->params;
    options.batch = graphs->batch;
    options.nmore = n - 1;
    options.more = graphs + 1;
    const sol_status status = sol_deploy(c->ctx, graphs->graph, &options);
    return status ? cli_fail(c, status) : EXIT_GOOD;
}

int cmd_deploy(struct cli *c)
{
    if (c->o.list_keys) return list_keys();
    if (!c->o.file) return cli_error(EXIT_USAGE, "usage: sol deploy NET.onnx [OPTIONS]; try `sol deploy --help`");
    int code = check_keys(c);
    if (code) return code;
    const int n = c->o.nsizes ? c->o.nsizes : 1;
    struct model *m = calloc((size_t)n, sizeof *m);
    struct sol_deploy_graph *graphs = calloc((size_t)n, sizeof *graphs);
    code = m && graphs ? EXIT_GOOD : cli_error(EXIT_FAILED, "not enough memory");
    const bool several = c->o.nsizes > 0;
    c->o.nsizes = 0; /* each model has a single size */
    for (int i = 0; i < n && !code; i++) {
        if (several) c->o.dims[c->o.sized].size = c->o.sizes[i];
        code = model_load(c, &m[i], several ? OPEN_GIVEN : OPEN_VARIES);
    }
    if (!code) code = deploy(c, n, m, graphs);
    for (int i = 0; i < n && m && graphs; i++) {
        free((void *)graphs[i].params);
        model_free(&m[i]);
    }
    free(graphs);
    free(m);
    return code;
}
