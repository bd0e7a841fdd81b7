/* Loads and compiles the model of the command line, and provides the arrays of a call. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

enum { SHAPE_ROOM = 512, WHY_ROOM = 2 * SHAPE_ROOM + 256 };

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

/* "f32[#0, 4]": sizes may vary */
static const char *shape_text(struct cli *c, const struct sol_io *io, char out[SHAPE_ROOM])
{
    size_t n = (size_t)snprintf(out, SHAPE_ROOM, "%s[", dtype_text(io->dtype));
    for (int i = 0; i < io->ndim && n < SHAPE_ROOM; i++) {
        n += (size_t)snprintf(out + n, SHAPE_ROOM - n, "%s", i ? ", " : "");
        if (n < SHAPE_ROOM) n += sol_size_text(c->ctx, io->shape[i], out + n, SHAPE_ROOM - n);
    }
    if (n < SHAPE_ROOM) snprintf(out + n, SHAPE_ROOM - n, "]");
    return out;
}

void print_io(struct cli *c, const struct sol_io *io, const char *indent)
{
    char shape[SHAPE_ROOM];
    printf("%s%s  %s\n", indent, io->name, shape_text(c, io, shape));
}

static bool has_dim(const struct options *o, const char *name)
{
    for (int i = 0; o && i < o->ndims; i++)
        if (!strcmp(o->dims[i].name, name)) return true;
    return false;
}

static bool varies(const struct model *m)
{
    int64_t size;
    for (int i = 0; sol_onnx_open(m->onnx, i, &size); i++)
        if (sol_size_varies(size)) return true;
    return false;
}

/* "batch = #0, at least 1, a multiple of 4: node 'b' (Concat): .." or "m = #0: node 'a' (Add): .." */
static void print_size(struct cli *c, const char *name, int64_t size, const char *why, const char *limited)
{
    char text[SHAPE_ROOM];
    struct sol_dim_limits limits = {0};
    sol_size_text(c->ctx, size, text, sizeof text);
    printf("  %s = %s", name, text);
    if (!why && sol_size_limits(size, &limits)) {
        if (limits.max && limits.max < INT32_MAX) /* which the reader takes where there is no other limit */
            printf(", %lld..%lld", (long long)limits.min, (long long)limits.max);
        else
            printf(", at least %lld", (long long)limits.min);
        if (limits.multiple > 1) printf(", a multiple of %lld", (long long)limits.multiple);
    }
    if (!why) why = limited;
    printf("%s%s\n", why ? ": " : "", why ? why : "");
}

void print_sizes(struct cli *c, const struct model *m)
{
    int64_t size;
    const char *name;
    bool known = varies(m);
    for (int i = 0; sol_onnx_open(m->onnx, i, &size); i++) known |= sol_onnx_open_why(m->onnx, i) != NULL;
    if (!known) {
        print_open(stdout, m, NULL);
        return;
    }
    for (int i = 0; (name = sol_onnx_open(m->onnx, i, &size)); i++) {
        if (!i) printf("open sizes:\n");
        print_size(c, name, size, sol_onnx_open_why(m->onnx, i), sol_onnx_open_limited(m->onnx, i));
    }
}

void print_hints(const struct model *m)
{
    int64_t size;
    const char *name;
    int n = 0;
    for (int i = 0; (name = sol_onnx_open(m->onnx, i, &size)); i++)
        if (sol_size_varies(size) && !sol_onnx_open_why(m->onnx, i))
            printf("%s%s=%lld", n++ ? ", " : " at ", name, (long long)sol_size_hint(size));
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

void print_memory(struct cli *c, const struct model *model)
{
    struct sol_memory m;
    char text[32], *formula = NULL;
    sol_net_memory(model->net, &m);
    const struct {
        const char *what;
        int64_t bytes;
    } rows[] = {{"parameters", m.params}, {"prepared", m.prepared},   {"inputs", m.inputs},
                {"outputs", m.outputs},   {"workspace", m.workspace}, {"peak", m.peak}};
    printf("memory");
    print_hints(model);
    printf(":");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        printf("%s %s %s", i ? "," : "", rows[i].what, human_bytes(rows[i].bytes, text));
    printf("\n");
    if (sol_net_dims(model->net) && !sol_net_memory_print(model->net, &formula))
        printf("Estimated Peak Memory Consumption: Inference ~%s\n", formula);
    sol_free(c->ctx, formula);
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

static struct sol_onnx_value value_of(const struct pair *named, const struct array *a)
{
    return (struct sol_onnx_value){named->name, a->dtype, a->ndim, a->shape, a->data};
}

/* --dim and --fix; `values` belongs to the caller. */
static struct sol_onnx_options options_of(const struct options *o, const struct model *m,
                                          struct sol_onnx_value values[MOST_ITEMS])
{
    for (int i = 0; i < o->nfixed; i++) values[i] = value_of(&o->fixed[i], &m->fixed[i]);
    return (struct sol_onnx_options){.size = sizeof(struct sol_onnx_options),
                                     .ndims = o->ndims,
                                     .nlimits = o->nlimits,
                                     .limits = o->limits,
                                     .dims = o->dims,
                                     .nvalues = o->nfixed,
                                     .values = values};
}

/* Reads the model in the first of the ways in `how` that is possible. Where all fail, the message is that of the
 * sizes given, which says most. */
static int model_read(struct cli *c, struct model *m, unsigned how)
{
    static const unsigned ways[] = {OPEN_VARIES, OPEN_ONE, OPEN_GIVEN};
    const struct options *o = &c->o;
    struct sol_onnx_value values[MOST_ITEMS];
    struct sol_onnx_shape shapes[MOST_ITEMS];
    sol_status status = SOL_OK;
    char varying[WHY_ROOM] = ""; /* why the sizes cannot vary */
    for (int i = 0; i < o->ninputs; i++)
        shapes[i] = (struct sol_onnx_shape){o->inputs[i].name, i, m->given[i].ndim, m->given[i].shape};
    double start = now_s();
    for (int i = 0; i < 3; i++) {
        if (ways[i] & ~how) continue;
        struct sol_onnx_options options = options_of(o, m, values);
        options.vary = ways[i] == OPEN_VARIES; /* for all sizes: it does not depend on those of these files */
        options.nshapes = options.vary ? 0 : o->ninputs;
        options.shapes = shapes;
        options.open_size = ways[i] == OPEN_ONE;
        status = sol_onnx_load(c->ctx, o->file, &options, &m->onnx);
        if (!status) break;
        if (options.vary) snprintf(varying, sizeof varying, "%s", sol_error(c->ctx));
    }
    m->load_s = now_s() - start;
    if (status == SOL_ERR_INVALID && *varying && strcmp(varying, sol_error(c->ctx)) != 0)
        return cli_error(EXIT_REJECTED, "%s\nWith sizes that vary: %s", sol_error(c->ctx), varying);
    return status ? cli_fail(c, status) : EXIT_GOOD;
}

/* Begins with an empty model: the files of --input and --fix. */
static int read_options(struct cli *c, struct model *m)
{
    const struct options *o = &c->o;
    *m = (struct model){0};
    if (o->nsizes)
        return cli_error(EXIT_USAGE, "--dim %s: only `sol deploy` takes several sizes", o->dims[o->sized].name);
    const int code = read_files(c, o->inputs, o->ninputs, m->given);
    return code ? code : read_files(c, o->fixed, o->nfixed, m->fixed);
}

int model_load(struct cli *c, struct model *m, unsigned how)
{
    const int code = read_options(c, m);
    return code ? code : model_read(c, m, how);
}

int model_compile(struct cli *c, struct model *m)
{
    double start = now_s();
    sol_status status = sol_compile(c->ctx, sol_onnx_graph(m->onnx), &m->net);
    if (!status) status = sol_onnx_bind(m->onnx, m->net, &m->params);
    m->compile_s = now_s() - start;
    return status ? cli_fail(c, status) : EXIT_GOOD;
}

static void network_free(struct model *m)
{
    sol_params_destroy(m->params);
    sol_net_destroy(m->net);
    sol_onnx_destroy(m->onnx);
    m->params = NULL;
    m->net = NULL;
    m->onnx = NULL;
}

/* -- the files of --input, and the sizes of a call */

/* The file of input number i: by its name, or by its position among the files given without a name. -1: none. */
static int file_of(const struct options *o, const char *name, int i)
{
    for (int k = 0; k < o->ninputs; k++)
        if (o->inputs[k].name ? !strcmp(o->inputs[k].name, name) : k == i) return k;
    return -1;
}

static int missing(const char *name)
{
    return cli_error(EXIT_USAGE, "input '%s' is missing: give --input %s=FILE.npy, or --random", name, name);
}

/* If the array does not fit, `why` is the message. */
static bool fits(struct cli *c, const struct sol_io *io, const struct array *a, char why[WHY_ROOM])
{
    bool good = a->dtype == io->dtype && a->ndim == io->ndim;
    for (int d = 0; good && d < io->ndim; d++) good = a->shape[d] == io->shape[d];
    if (good) return true;
    char expected[SHAPE_ROOM], got[SHAPE_ROOM];
    const struct sol_io file = {.dtype = a->dtype, .ndim = a->ndim, .shape = a->shape};
    snprintf(why, WHY_ROOM, "input '%s': expected %s, got %s", io->name, shape_text(c, io, expected),
             shape_text(c, &file, got));
    return false;
}

int model_make(struct cli *c, struct model *m, bool call)
{
    const struct options *o = &c->o;
    struct sol_onnx_value values[MOST_ITEMS], arrays[MOST_ITEMS];
    struct sol_onnx_program p;
    int misfit, code = read_options(c, m);
    if (code) return code;
    if (call && !o->ninputs) {
        if ((code = model_read(c, m, OPEN_VARIES))) return code;
        if (sol_onnx_inputs(m->onnx)) return missing(sol_onnx_input(m->onnx, 0).name);
        network_free(m);
    }
    for (int i = 0; i < o->ninputs; i++) arrays[i] = value_of(&o->inputs[i], &m->given[i]);
    const struct sol_onnx_options options = options_of(o, m, values);
    const struct sol_onnx_call made = {.from = {.path = o->file},
                                       .options = &options,
                                       .ways = SOL_ONNX_ALL | SOL_ONNX_SIZED,
                                       .narrays = o->ninputs,
                                       .arrays = arrays,
                                       .out_dims = m->dims,
                                       .out_misfit = &misfit};
    const sol_status status = sol_onnx_program_make(c->ctx, &made, NULL, &p);
    if (status) return misfit ? cli_error(EXIT_USAGE, "%s", sol_error(c->ctx)) : cli_fail(c, status);
    m->onnx = p.model, m->net = p.net, m->params = p.params;
    m->load_s = p.read_s, m->compile_s = p.compile_s;
    return EXIT_GOOD;
}

void model_free(struct model *m)
{
    network_free(m);
    for (int i = 0; i < MOST_ITEMS; i++) {
        array_free(&m->given[i]);
        array_free(&m->fixed[i]);
    }
}

/* The input or output at the sizes of the call. */
static struct sol_io sized(const struct model *m, struct sol_io io, int64_t shape[ARRAY_DIMS])
{
    for (int d = 0; d < io.ndim; d++) shape[d] = sol_size_at(io.shape[d], m->dims);
    io.shape = shape;
    return io;
}

/* Moves the array of the input's file, or makes a random one. */
static int fill(struct cli *c, struct model *m, int i, bool random, struct array *a)
{
    int64_t shape[ARRAY_DIMS];
    const struct sol_io io = sized(m, sol_net_input(m->net, i), shape);
    char why[WHY_ROOM];
    const int k = file_of(&c->o, io.name, sol_onnx_place(m->onnx, i));
    if (k < 0 && !random) return missing(io.name);
    if (k < 0) {
        if (!array_make(a, io.name, io.dtype, io.ndim, io.shape)) return EXIT_FAILED;
        array_random(a, &c->o.seed);
        return EXIT_GOOD;
    }
    *a = m->given[k];
    m->given[k] = (struct array){0};
    a->name = io.name;
    return fits(c, &io, a, why) ? EXIT_GOOD : cli_error(EXIT_USAGE, "%s", why);
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

/* The memory that programs can have: Linux ends a process that takes more. */
static double available_bytes(void)
{
    char line[128];
    long long kib, sum = 0;
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %lld", &kib) == 1 || sscanf(line, "SwapFree: %lld", &kib) == 1) sum += kib;
    if (f) fclose(f);
    return sum ? 1024.0 * (double)sum : (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

/* Shows the estimate of memory before the first run, and stops if the machine has less. The inputs of files are there.
 */
static int check_memory(struct cli *c, const struct model *model)
{
    struct sol_memory m;
    char needs[32], has[32];
    double most = available_bytes();
    const sol_status status = sol_net_memory_at(model->net, model->dims, &m);
    if (status) return cli_fail(c, status);
    if (c->terminal || c->o.verbose)
        fprintf(stderr, "Estimated Peak Memory Consumption: Inference ~%s\n", human_bytes(m.peak, needs));
    for (int i = 0; i < MOST_ITEMS; i++) most += (double)model->given[i].bytes;
    if (most <= 0 || (double)m.peak <= most) return EXIT_GOOD;
    return cli_error(EXIT_FAILED, "%s: a run needs %s of memory, this machine has %s left", c->o.file,
                     human_bytes(m.peak, needs), human_bytes((int64_t)most, has));
}

/* Of a model that was read at fixed sizes: the most that the network sets for those that depend on data. */
static int bind_found(struct cli *c, struct model *m)
{
    const int64_t **shapes = calloc((size_t)sol_net_inputs(m->net) + 1, sizeof *shapes);
    if (!shapes) return cli_error(EXIT_FAILED, "not enough memory");
    const sol_status status = sol_net_bind(m->net, shapes, m->dims);
    free(shapes);
    return status ? cli_fail(c, status) : EXIT_GOOD;
}

int call_make(struct cli *c, struct model *m, bool random, struct call *out_call)
{
    struct call *k = out_call;
    *k = (struct call){.nin = sol_net_inputs(m->net), .nout = sol_net_outputs(m->net)};
    k->in = calloc((size_t)k->nin + 1, sizeof *k->in);
    k->out = calloc((size_t)k->nout + 1, sizeof *k->out);
    k->inputs = calloc((size_t)k->nin + 1, sizeof *k->inputs);
    k->outputs = calloc((size_t)k->nout + 1, sizeof *k->outputs);
    if (!k->in || !k->out || !k->inputs || !k->outputs) return cli_error(EXIT_FAILED, "not enough memory");
    int code = random ? check_names(&c->o, m->net) : EXIT_GOOD; /* model_make has checked them */
    if (!code && random && sol_net_dims(m->net)) code = bind_found(c, m);
    if (!code) code = check_memory(c, m);
    for (int i = 0; i < k->nin && !code; i++) {
        code = fill(c, m, i, random, &k->in[i]);
        k->inputs[i] = k->in[i].data;
    }
    for (int i = 0; i < k->nout && !code; i++) {
        const struct sol_io io = sol_net_output(m->net, i);
        const int64_t room = sol_net_output_room(m->net, i, m->dims);
        if (!array_make(&k->out[i], io.name, io.dtype, 1, &room)) code = EXIT_FAILED;
        k->outputs[i] = k->out[i].data;
    }
    return code;
}

/* An output has room for the most elements; a run says how many there are. */
static void resize(struct array *a, struct sol_io io, const int64_t *dims)
{
    a->ndim = io.ndim;
    a->elements = 1;
    for (int d = 0; d < io.ndim; d++) a->elements *= a->shape[d] = sol_size_at(io.shape[d], dims);
    a->bytes = (size_t)a->elements * dtype_bytes(a->dtype);
}

int call_run(struct cli *c, const struct model *m, struct call *call, double *out_s)
{
    if (cli_stopped()) return cli_error(EXIT_FAILED, "interrupted");
    double start = now_s();
    int64_t dims[MOST_DIMS];
    const struct sol_call at = {
        .dims = m->dims, .inputs = call->inputs, .outputs = call->outputs, .threads = c->o.threads, .out_dims = dims};
    sol_status status = sol_net_run_at(m->net, m->params, &at);
    *out_s = now_s() - start;
    for (int i = 0; i < call->nout && !status; i++) resize(&call->out[i], sol_net_output(m->net, i), dims);
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
