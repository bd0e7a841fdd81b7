/* Loads and compiles the model of the command line, and provides the arrays of a call. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const char *human_count(double v, const char *unit, char out[32])
{
    static const char *const prefixes[] = {"", "K", "M", "G", "T"};
    int p = 0;
    for (; v >= 1000 && p < 4; p++) v /= 1000;
    snprintf(out, 32, p && v < 100 ? "%.1f %s%s" : "%.0f %s%s", v, prefixes[p], unit);
    return out;
}

const char *human_bytes(int64_t bytes, char out[32])
{
    return human_count((double)bytes, "B", out);
}

const char *human_time(double seconds, char out[32])
{
    snprintf(out, 32, seconds < 1e-3 ? "%.2f us" : "%.3f ms", seconds < 1e-3 ? 1e6 * seconds : 1e3 * seconds);
    return out;
}

void print_io(const struct sol_io *io, const char *indent)
{
    printf("%s%s  ", indent, io->name);
    shape_print(stdout, io->dtype, io->ndim, io->shape);
    printf("\n");
}

static bool has_dim(const struct options *o, const char *name)
{
    for (int i = 0; o && i < o->ndims; i++)
        if (!strcmp(o->dims[i].name, name)) return true;
    return false;
}

void print_open(FILE *to, const struct model *m, const struct options *given)
{
    int64_t size;
    const char *name;
    int n = 0;
    for (int i = 0; (name = sol_onnx_open(m->onnx, i, &size)); i++)
        if (!has_dim(given, name)) fprintf(to, "%s%s=%lld", n++ ? ", " : "open sizes, here: ", name, (long long)size);
    if (n) fprintf(to, " (--dim NAME=SIZE for others)\n");
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

/* Reads VmHWM. getrusage would also count what the process used before it became this command. */
void print_process(void)
{
    char line[128];
    long long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f)) sscanf(line, "VmHWM: %lld", &kib);
    if (f) fclose(f);
    if (kib) printf("this process: at most %.1f MB of memory\n", (double)kib * 1.024e-3);
}

static bool read_pb(struct cli *c, const char *path, struct array *out_a)
{
    struct sol_onnx_tensor t;
    sol_status status = sol_onnx_tensor_load(c->ctx, path, &t);
    if (status) {
        cli_fail(c, status);
        return false;
    }
    bool good = array_make(out_a, "", t.dtype, t.ndim, t.shape);
    if (good) memcpy(out_a->data, t.data, t.bytes);
    sol_onnx_tensor_free(c->ctx, &t);
    return good;
}

bool array_read(struct cli *c, const char *path, struct array *out_a)
{
    size_t n = strlen(path);
    return n > 3 && !strcmp(path + n - 3, ".pb") ? read_pb(c, path, out_a) : npy_read(path, out_a);
}

/* Reads the files in a list of options. */
static int read_files(struct cli *c, const struct pair *list, int n, struct array *out)
{
    for (int i = 0; i < n; i++)
        if (!array_read(c, list[i].value, &out[i])) return EXIT_FAILED;
    return EXIT_GOOD;
}

/* Sizes that the model leaves open come from --dim, from the input files, or are open_size. */
int model_load(struct cli *c, struct model *m, int64_t open_size)
{
    const struct options *o = &c->o;
    struct array inputs[MOST_ITEMS] = {0}, fixed[MOST_ITEMS] = {0};
    struct sol_onnx_value values[MOST_ITEMS];
    struct sol_onnx_shape shapes[MOST_ITEMS];
    *m = (struct model){0};
    if (o->nsizes)
        return cli_error(EXIT_USAGE, "--dim %s: only `sol deploy` takes several sizes", o->dims[o->sized].name);
    int code = read_files(c, o->inputs, o->ninputs, inputs);
    if (!code) code = read_files(c, o->fixed, o->nfixed, fixed);
    for (int i = 0; i < o->ninputs; i++)
        shapes[i] = (struct sol_onnx_shape){o->inputs[i].name, i, inputs[i].ndim, inputs[i].shape};
    for (int i = 0; i < o->nfixed; i++)
        values[i] =
            (struct sol_onnx_value){o->fixed[i].name, fixed[i].dtype, fixed[i].ndim, fixed[i].shape, fixed[i].data};
    struct sol_onnx_options options = {.size = sizeof options,
                                       .ndims = o->ndims,
                                       .dims = o->dims,
                                       .nvalues = o->nfixed,
                                       .values = values,
                                       .nshapes = o->ninputs,
                                       .shapes = shapes,
                                       .open_size = open_size};
    double start = now_s();
    sol_status status = code ? SOL_OK : sol_onnx_load(c->ctx, o->file, &options, &m->onnx);
    if (status && open_size) { /* an open size may be the cause, and saying so is the better message */
        options.open_size = 0;
        status = sol_onnx_load(c->ctx, o->file, &options, &m->onnx);
    }
    m->load_s = now_s() - start;
    for (int i = 0; i < MOST_ITEMS; i++) {
        array_free(&inputs[i]);
        array_free(&fixed[i]);
    }
    return status ? cli_fail(c, status) : code;
}

int model_compile(struct cli *c, struct model *m)
{
    double start = now_s();
    sol_status status = sol_compile(c->ctx, sol_onnx_graph(m->onnx), &m->net);
    if (!status) status = sol_onnx_bind(m->onnx, m->net, &m->params);
    m->compile_s = now_s() - start;
    return status ? cli_fail(c, status) : EXIT_GOOD;
}

void model_free(struct model *m)
{
    sol_params_destroy(m->params);
    sol_net_destroy(m->net);
    sol_onnx_destroy(m->onnx);
}

static void print_expected(const struct array *a, const struct sol_io *io)
{
    fprintf(stderr, "%s: input '%s': expected ", cli_name, io->name);
    shape_print(stderr, io->dtype, io->ndim, io->shape);
    fprintf(stderr, ", got ");
    shape_print(stderr, a->dtype, a->ndim, a->shape);
    fprintf(stderr, "\n");
}

/* The file of input number i: by its name, or by its position among the files given without a name. */
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
    if (array_fits(a, io->dtype, io->ndim, io->shape)) return EXIT_GOOD;
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
            return cli_error(EXIT_USAGE, "--input %s: the model has %d input%s, none of this name or number",
                             o->inputs[k].name ? o->inputs[k].name : o->inputs[k].value, sol_net_inputs(net),
                             sol_net_inputs(net) == 1 ? "" : "s");
    }
    return EXIT_GOOD;
}

/* Shows the estimate of memory before the first run, and stops if the machine has less. */
static int check_memory(const struct cli *c, const struct sol_net *net)
{
    struct sol_memory m;
    char needs[32], has[32];
    double most = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    sol_net_memory(net, &m);
    if (c->terminal || c->o.verbose)
        fprintf(stderr, "Estimated Peak Memory Consumption: Inference ~%s\n", human_bytes(m.peak, needs));
    if (most <= 0 || (double)m.peak <= most) return EXIT_GOOD;
    return cli_error(EXIT_FAILED, "%s: a run needs %s of memory, this machine has %s", c->o.file,
                     human_bytes(m.peak, needs), human_bytes((int64_t)most, has));
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
    if (!code) code = check_memory(c, m->net);
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
    if (cli_stopped()) return cli_error(EXIT_FAILED, "interrupted");
    double start = now_s();
    sol_status status = sol_net_run(m->net, m->params, call->inputs, call->outputs, c->o.threads);
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
