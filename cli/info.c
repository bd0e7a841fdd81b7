/* sol info: shows what a model contains and what it needs to run. */
#include "cli.h"

static int list_layers(struct cli *c)
{
    const char *attributes, *doc, *name;
    for (int i = 0; (name = sol_layer_at(c->ctx, i, &attributes, &doc)); i++)
        printf("%s%s%s%s\n    %s\n", name, *attributes ? " (" : "", attributes, *attributes ? ")" : "", doc);
    return EXIT_GOOD;
}

static void show_device(void *user, const struct sol_device_info *d)
{
    char text[32];
    bool *selected = user;
    *selected |= d->selected;
    printf("%s:%d: %s%s\n", d->type, d->index, d->name, d->selected ? " (selected)" : "");
    if (*d->why) printf("    not there: %s\n", d->why);
    if (d->cores) printf("    %d core%s", d->cores, d->cores > 1 ? "s" : "");
    if (d->cores && d->lanes) printf(" of %d lanes", d->lanes);
    if (d->memory) printf("%s%s", d->cores ? ", " : "    ", human_bytes(d->memory, text));
    if (d->cores || d->memory) printf("%s\n", d->f64 ? "" : ", no float64");
    if (*d->compiler) printf("    code: %s\n", d->compiler);
    if (*d->backends) printf("    backends: %s\n", d->backends);
}

static int list_devices(struct cli *c)
{
    const char *key = sol_config_get(c->ctx, "device");
    bool selected = false;
    const sol_status status = sol_devices(c->ctx, show_device, &selected);
    if (status) return cli_fail(c, status);
    if (!selected) printf("selected: %s, which is not there\n", key);
    return EXIT_GOOD;
}

static int64_t parameter_bytes(const struct sol_onnx *m, int64_t *out_elements)
{
    int64_t bytes = 0;
    *out_elements = 0;
    for (int i = 0; i < sol_onnx_weights(m); i++) {
        struct sol_io io = sol_onnx_weight(m, i);
        int64_t n = 1;
        for (int d = 0; d < io.ndim; d++) n *= io.shape[d];
        *out_elements += n;
        bytes += n * (int64_t)dtype_bytes(io.dtype);
    }
    return bytes;
}

int cmd_info(struct cli *c)
{
    if (c->o.layers) return list_layers(c);
    if (c->o.devices) return list_devices(c);
    if (!c->o.file) return cli_error(EXIT_USAGE, "usage: sol info NET.onnx [OPTIONS]");
    struct model m;
    int code = model_load(c, &m, c->o.ninputs ? OPEN_ONE : OPEN_VARIES | OPEN_ONE);
    if (code) return code;
    char text[32];
    int64_t count, elements, bytes = parameter_bytes(m.onnx, &elements);
    double flops, moved;
    printf("%s: %s\ninputs:\n", c->o.file, sol_onnx_about(m.onnx));
    for (int i = 0; i < sol_onnx_inputs(m.onnx); i++) {
        struct sol_io io = sol_onnx_input(m.onnx, i);
        print_io(c, &io, "  ");
    }
    const char *name;
    print_sizes(c, &m);
    printf("outputs:\n");
    for (int i = 0; i < sol_onnx_outputs(m.onnx); i++) {
        struct sol_io io = sol_onnx_output(m.onnx, i);
        print_io(c, &io, "  ");
    }
    printf("operators:\n");
    for (int i = 0; (name = sol_onnx_operator(m.onnx, i, &count)); i++)
        printf("  %-24s %6lld\n", name, (long long)count);
    sol_graph_work(sol_onnx_graph(m.onnx), &flops, &moved);
    printf("parameters: %d, %lld values, %s\n", sol_onnx_weights(m.onnx), (long long)elements,
           human_bytes(bytes, text));
    printf("operations: %s", human_count(flops, "FLOP", text));
    print_hints(&m);
    printf("\n");
    for (int i = 0; i < sol_onnx_weights(m.onnx) && c->o.verbose; i++) {
        struct sol_io io = sol_onnx_weight(m.onnx, i);
        print_io(c, &io, "  parameter ");
    }
    if (c->o.memory) {
        code = model_compile(c, &m);
        if (!code) print_memory(c, &m);
    }
    model_free(&m);
    return code;
}
