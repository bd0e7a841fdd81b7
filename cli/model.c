/* Loading and compiling the model of the command line, and the arrays of a call. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli.h"

double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const char *human_bytes(int64_t bytes, char out[32])
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB"};
    double v = (double)bytes;
    int u = 0;
    for (; v >= 1000 && u < 4; u++) v /= 1000;
    snprintf(out, 32, u && v < 100 ? "%.1f %s" : "%.0f %s", v, units[u]);
    return out;
}

void print_io(const struct sol_io *io, const char *indent)
{
    printf("%s%s  %s[", indent, io->name, dtype_text(io->dtype));
    for (int i = 0; i < io->ndim; i++) printf("%s%lld", i ? ", " : "", (long long)io->shape[i]);
    printf("]\n");
}

void print_memory(const struct sol_net *net)
{
    struct sol_memory m;
    char text[32];
    sol_net_memory(net, &m);
    const struct {
        const char *what;
        int64_t bytes;
    } rows[] = {{"parameters", m.params}, {"prepared", m.prepared},   {"inputs", m.inputs},
                {"outputs", m.outputs},   {"workspace", m.workspace}, {"peak", m.peak}};
    printf("memory:");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        printf("%s %s %s", i ? "," : "", rows[i].what, human_bytes(rows[i].bytes, text));
    printf("\n");
}

/* The shapes of files given as inputs are sizes of the model's dimensions: "x.0", "x.1", .. */
static int add_dims(struct cli *c, struct array *arrays)
{
    struct options *o = &c->o;
    for (int i = 0; i < o->ninputs; i++) {
        if (!o->inputs[i].name) continue;
        if (!array_read(c, o->inputs[i].value, &arrays[i])) return EXIT_FAILED;
        for (int d = 0; d < arrays[i].ndim && o->ndims < MOST_ITEMS; d++) {
            char *name = malloc(strlen(o->inputs[i].name) + 16);
            if (!name) return cli_error(EXIT_FAILED, "not enough memory");
            sprintf(name, "%s.%d", o->inputs[i].name, d);
            o->dims[o->ndims++] = (struct sol_onnx_dim){name, arrays[i].shape[d]};
        }
    }
    return EXIT_GOOD;
}

static int load(struct cli *c, struct model *m, struct array *fixed)
{
    struct sol_onnx_value *values = calloc((size_t)c->o.nfixed + 1, sizeof *values);
    if (!values) return cli_error(EXIT_FAILED, "not enough memory");
    int code = EXIT_GOOD;
    for (int i = 0; i < c->o.nfixed && !code; i++) {
        if (!array_read(c, c->o.fixed[i].value, &fixed[i])) code = EXIT_FAILED;
        values[i] = (struct sol_onnx_value){c->o.fixed[i].name, fixed[i].ndim, fixed[i].shape, fixed[i].data};
    }
    struct sol_onnx_options options = {
        .size = sizeof options, .ndims = c->o.ndims, .dims = c->o.dims, .nvalues = c->o.nfixed, .values = values};
    double start = now_s();
    sol_status status = code ? SOL_OK : sol_onnx_load(c->ctx, c->o.file, &options, &m->onnx);
    m->load_s = now_s() - start;
    free(values);
    return status ? cli_fail(c, status) : code;
}

int model_load(struct cli *c, struct model *m)
{
    struct array inputs[MOST_ITEMS] = {0}, fixed[MOST_ITEMS] = {0};
    *m = (struct model){0};
    int before = c->o.ndims, code = add_dims(c, inputs);
    if (!code) code = load(c, m, fixed);
    for (int i = before; i < c->o.ndims; i++) free((void *)c->o.dims[i].name);
    c->o.ndims = before;
    for (int i = 0; i < MOST_ITEMS; i++) {
        array_free(&inputs[i]);
        array_free(&fixed[i]);
    }
    return code;
}

int model_compile(struct cli *c, struct model *m)
{
    double start = now_s();
    sol_status status = sol_compile(c->ctx, sol_onnx_graph(m->onnx), &m->net);
    if (!status) status = sol_onnx_bind(m->onnx, m->net);
    m->compile_s = now_s() - start;
    if (c->terminal) fprintf(stderr, "\r\033[K");
    return status ? cli_fail(c, status) : EXIT_GOOD;
}

void model_free(struct model *m)
{
    sol_net_destroy(m->net);
    sol_onnx_destroy(m->onnx);
}

static bool same_shape(const struct array *a, const struct sol_io *io)
{
    bool same = a->dtype == io->dtype && a->ndim == io->ndim;
    for (int i = 0; same && i < a->ndim; i++) same = a->shape[i] == io->shape[i];
    return same;
}

static void print_expected(const struct array *a, const struct sol_io *io)
{
    fprintf(stderr, "sol: input '%s': expected %s[", io->name, dtype_text(io->dtype));
    for (int i = 0; i < io->ndim; i++) fprintf(stderr, "%s%lld", i ? ", " : "", (long long)io->shape[i]);
    fprintf(stderr, "], got %s[", dtype_text(a->dtype));
    for (int i = 0; i < a->ndim; i++) fprintf(stderr, "%s%lld", i ? ", " : "", (long long)a->shape[i]);
    fprintf(stderr, "]\n");
}

/* The file of input number i: by its name, or by its place among those given without a name. */
static const char *file_of(const struct options *o, const char *name, int i)
{
    for (int k = 0; k < o->ninputs; k++)
        if (o->inputs[k].name ? !strcmp(o->inputs[k].name, name) : k == i) return o->inputs[k].value;
    return NULL;
}

static int fill(struct cli *c, const struct sol_io *io, int i, bool random, struct array *a)
{
    const char *path = file_of(&c->o, io->name, i);
    if (!path && !random)
        return cli_error(EXIT_USAGE, "input '%s' is missing: give --input %s=FILE.npy, or --random", io->name,
                         io->name);
    if (!path) {
        if (!array_make(a, io->name, io->dtype, io->ndim, io->shape)) return EXIT_FAILED;
        array_random(a, &c->o.seed);
        return EXIT_GOOD;
    }
    if (!array_read(c, path, a)) return EXIT_FAILED;
    a->name = io->name;
    if (same_shape(a, io)) return EXIT_GOOD;
    print_expected(a, io);
    return EXIT_USAGE;
}

static int check_names(const struct options *o, const struct sol_net *net)
{
    for (int k = 0; k < o->ninputs; k++) {
        bool found = !o->inputs[k].name && k < sol_net_inputs(net);
        for (int i = 0; i < sol_net_inputs(net) && !found; i++)
            found = o->inputs[k].name && !strcmp(o->inputs[k].name, sol_net_input(net, i).name);
        if (!found)
            return cli_error(EXIT_USAGE, "--input %s: the model has no such input",
                             o->inputs[k].name ? o->inputs[k].name : o->inputs[k].value);
    }
    return EXIT_GOOD;
}

int call_make(struct cli *c, const struct model *m, bool random, struct call *out_call)
{
    struct call *k = out_call;
    *k = (struct call){.nin = sol_net_inputs(m->net), .nout = sol_net_outputs(m->net)};
    k->in = calloc((size_t)k->nin + 1, sizeof *k->in);
    k->out = calloc((size_t)k->nout + 1, sizeof *k->out);
    k->inputs = calloc((size_t)k->nin + 1, sizeof *k->inputs);
    k->outputs = calloc((size_t)k->nout + 1, sizeof *k->outputs);
    if (!k->in || !k->out || !k->inputs || !k->outputs) return cli_error(EXIT_FAILED, "not enough memory");
    int code = check_names(&c->o, m->net);
    for (int i = 0; i < k->nin && !code; i++) {
        struct sol_io io = sol_net_input(m->net, i);
        code = fill(c, &io, i, random, &k->in[i]);
        k->inputs[i] = k->in[i].data;
    }
    for (int i = 0; i < k->nout && !code; i++) {
        struct sol_io io = sol_net_output(m->net, i);
        if (!array_make(&k->out[i], io.name, io.dtype, io.ndim, io.shape)) code = EXIT_FAILED;
        k->outputs[i] = k->out[i].data;
    }
    return code;
}

int call_run(struct cli *c, const struct model *m, struct call *call, double *out_s)
{
    double start = now_s();
    sol_status status = sol_net_run(m->net, call->inputs, call->outputs, c->o.threads);
    *out_s = now_s() - start;
    return status ? cli_fail(c, status) : EXIT_GOOD;
}

void call_free(struct call *call)
{
    for (int i = 0; i < call->nin && call->in; i++) array_free(&call->in[i]);
    for (int i = 0; i < call->nout && call->out; i++) array_free(&call->out[i]);
    free(call->in);
    free(call->out);
    free(call->inputs);
    free(call->outputs);
}
