/* Writes the network's own files: tables of its inputs, outputs, graphs and code, and the functions of its header. */
#include <string.h>

#include "base/size.h"
#include "deploy/deploy.h"

/* A size in the description of a tensor, and what stands there if it varies. */
static int64_t described(int64_t size, int64_t varies)
{
    return size_varies(size) ? varies : size;
}

static void put_tensor(struct text *shapes, struct text *rows, const char *what, int i, const char *name,
                       const struct sol_tensor *x)
{
    const struct dtype_def *type = dtype_def((enum sol_dtype)x->dtype);
    const int64_t bytes = tensor_bytes(x);
    text_put(shapes, "static const int64_t %s%d_shape[] = {", what, i);
    for (int k = 0; k < x->ndim; k++) text_put(shapes, "%lld, ", (long long)described(x->dim[k].size, -1));
    text_put(shapes, "0};\n");
    text_put(rows, "    {%s, \"%s\", %d, %s%d_shape, %lld},\n", deploy_string(shapes->arena, name), type->name, x->ndim,
             what, i, (long long)described(bytes, 0));
}

/* Prints the tables of a graph's inputs and outputs. */
static void put_io(struct deploy *d, struct text *t, const struct deploy_graph *g)
{
    struct text in = text_new(d->arena), out = text_new(d->arena);
    const char *inputs = arena_printf(d->arena, "inputs%s", g->id),
               *outputs = arena_printf(d->arena, "outputs%s", g->id);
    for (int i = 0; i < deploy_inputs(d); i++)
        put_tensor(t, &in, inputs, i, deploy_input_name(d, i), g->g->inputs.at[i]);
    for (int i = 0; i < d->noutput; i++)
        put_tensor(t, &out, outputs, i, deploy_output_name(d, i), deploy_output(d, g, i));
    text_put(t, "static const struct sol_ext_tensor %s[] = {\n%s    {0},\n};\n", inputs, in.at ? in.at : "");
    text_put(t, "static const struct sol_ext_tensor %s[] = {\n%s    {0},\n};\n", outputs, out.at ? out.at : "");
}

/* Prints the table of trained parameters, and the outputs whose gradients the caller passes. */
static void put_training(struct deploy *d, struct text *t)
{
    struct text rows = text_new(d->arena), numbers = text_new(d->arena);
    if (!deploy_trains(d)) return;
    text_put(&numbers, "static const int32_t trained_param[] = {");
    for (int i = 0; i < d->trained.n; i++) {
        const struct sol_tensor *x = d->graph[d->npredict].g->params.at[d->trained.at[i]];
        put_tensor(t, &rows, "trained", i, x->name ? x->name : "", x);
        text_put(&numbers, "%d, ", d->trained.at[i]);
    }
    text_put(&numbers, "-1};\nstatic const int32_t given[] = {");
    for (int i = 0; i < d->given.n; i++) text_put(&numbers, "%d, ", d->given.at[i] - d->nwritten);
    text_put(&numbers, "-1};\nstatic const int32_t written[] = {");
    for (int i = 0; i < d->nwritten; i++) text_put(&numbers, "%d, ", d->written[i]);
    text_put(&numbers, "-1};\n");
    text_put(t, "static const struct sol_ext_tensor trained[] = {\n%s    {0},\n};\n%s", rows.at, numbers.at);
}

/* For each parameter of a graph, its number in the training graph. */
static void put_learned(struct deploy *d, struct text *t, const struct deploy_graph *g)
{
    const struct deploy_graph *training = &d->graph[d->npredict];
    if (!deploy_trains(d)) return;
    text_put(t, "static const int32_t learned%s[] = {", g->id);
    for (int i = 0; i < g->g->params.n; i++) {
        int same = training->g->params.n - 1;
        while (same >= 0 && training->params[same] != g->params[i]) same--;
        text_put(t, "%d, ", same);
    }
    text_put(t, "-1};\n");
}

static void carry(struct deploy *d, const char *file)
{
    for (int i = 0; i < d->alone.n; i++)
        if (!strcmp(d->alone.at[i], file)) return;
    PUSH(d->arena, d->alone, file);
}

size_t deploy_opaque_bytes(struct deploy *d, const struct schedule *s)
{
    size_t most = 0;
    for (int i = 0; i < s->opaque.n; i++) {
        struct reference a;
        s->opaque.at[i]->def->describe(d->arena, s->opaque.at[i], &a);
        most = MAX(most, reference_scratch(&a));
    }
    return most;
}

/* Prints what a function from outside gets, and declares it. */
static void put_function(struct deploy *d, struct text *t, const char *name, const struct layer_function *f,
                         const struct reference *a, struct quantities *q)
{
    bool known = false;
    for (int i = 0; i < d->functions.n; i++) known |= !strcmp(d->functions.at[i]->source, f->source);
    if (!known) PUSH(d->arena, d->functions, f);
    text_put(t, "int32_t %s(void *const *tensors, const int64_t *numbers, const double *reals);\n", f->symbol);
    text_put(t, "static const int64_t %s_number[] = {", name);
    for (int i = 0; i < a->nnumber + a->ntemp; i++) text_put(t, "%s, ", quantity_text(q, a->number[i]));
    text_put(t, "0};\nstatic const double %s_real[] = {", name);
    for (int i = 0; i < a->nreal; i++) text_put(t, "%a, ", a->real[i]);
    text_put(t, "0};\n");
}

/* Prints the tables of layers without loops. */
static void put_opaque(struct deploy *d, struct text *t, const char *name, const struct schedule *s,
                       struct quantities *q)
{
    struct text list = text_new(d->arena);
    for (int i = 0; i < s->opaque.n; i++) {
        struct reference a;
        s->opaque.at[i]->def->describe(d->arena, s->opaque.at[i], &a);
        const struct layer_function *f = s->opaque.at[i]->def->function;
        const char *own = arena_printf(d->arena, "%s_function%d", name, i);
        carry(d, a.kind->file);
        if (f) put_function(d, t, own, f, &a, q);
        if (a.nindex) text_put(t, "static const struct reference_index %s_index%d[] = {\n", name, i);
        for (int k = 0; k < a.nindex; k++) {
            const struct reference_index *x = &a.index[k];
            text_put(t, "    {%d, %d, %s, %s, %s, {", x->input, x->type, quantity_text(q, x->offset),
                     quantity_text(q, x->limit), quantity_text(q, x->step));
            for (int n = 0; n < MAX(a.ndim, 1); n++) text_put(t, "%s, ", quantity_text(q, x->stride[n]));
            text_put(t, "}},\n");
        }
        if (a.nindex) text_put(t, "};\n");
        text_put(t, "static const struct reference %s_opaque%d = { /* %s */\n", name, i,
                 deploy_string(d->arena, s->opaque.at[i]->name));
        text_put(t, "    .kind = &%s, .type = %d, .bytes = %d, .nin = %d, .down = %d, .mode = %d, .skip = %d,\n",
                 a.kind->name, a.type, a.bytes, a.nin, a.down, a.mode, a.skip);
        if (a.uniform) text_put(t, "    .uniform = 1,\n");
        if (a.first) text_put(t, "    .first = %s,\n", quantity_text(q, a.first));
        text_put(t, "    .outer = %s, .n = %s, .inner = %s, .keep = %s, .elements = %s,\n", quantity_text(q, a.outer),
                 quantity_text(q, a.n), quantity_text(q, a.inner), quantity_text(q, a.keep),
                 quantity_text(q, a.elements));
        if (a.rows || a.cols)
            text_put(t, "    .rows = %s, .cols = %s, .rhs = %s, .option = %d, .check = %d,\n", quantity_text(q, a.rows),
                     quantity_text(q, a.cols), quantity_text(q, a.rhs), a.option, a.check);
        if (f)
            text_put(t, "    .function = %s, .nnumber = %d, .ntemp = %d, .number = %s_number, .real = %s_real,\n",
                     f->symbol, a.nnumber, a.ntemp, own, own);
        const int64_t *const lists[] = {a.shape, a.from, a.to};
        static const char *const fields[] = {"shape", "from", "to"};
        for (int f = 0; f < 3 && a.ndim; f++) {
            text_put(t, "    .%s = {", fields[f]);
            for (int n = 0; n < a.ndim; n++) text_put(t, "%s, ", quantity_text(q, lists[f][n]));
            text_put(t, "},\n");
        }
        text_put(t, "    .values = %d, .ndim = %d, .nindex = %d, .index = ", a.values, a.ndim, a.nindex);
        text_put(t, a.nindex ? "%s_index%d,\n};\n" : "0,\n};\n", name, i);
        text_put(&list, "&%s_opaque%d, ", name, i);
    }
    if (s->opaque.n) text_put(t, "static const struct reference *const %s_opaque[] = {%s};\n", name, list.at);
}

/* The code of a graph, by version. */
static void put_codes(struct deploy *d, struct text *t, struct deploy_graph *g)
{
    struct text rows = text_new(d->arena);
    const bool varies = deploy_varies(d);
    for (int i = 0; i < d->nversion; i++) {
        const char *name = deploy_code_name(d, g, &d->version[i]);
        const struct schedule *s = g->code[i].schedule;
        text_put(t, "extern const struct sol_module %s_module;\nextern const int64_t %s_param_at[], %s_const_at[];\n",
                 name, name, name);
        put_opaque(d, t, name, s, &g->own);
        text_put(&rows, "    {&%s_module, %s_param_at, %s_const_at, %s, %zu", name, name, name,
                 s->opaque.n ? arena_printf(d->arena, "%s_opaque", name) : "0",
                 varies ? (size_t)0 : deploy_opaque_bytes(d, s));
        if (varies) text_put(&rows, ", &sizes%s, %s, %d", g->id, deploy_put_most(d, t, name, s), s->opaque.n);
        if (d->there.type) text_put(&rows, "%s", deploy_put_device(d, t, name, s));
        text_put(&rows, "},\n");
    }
    if (varies) deploy_put_sizes(d, t, g);
    text_put(t, "static const struct front_code codes%s[] = {\n%s};\n", g->id, rows.at);
}

static const char *graph_row(struct deploy *d, int i)
{
    const struct deploy_graph *g = &d->graph[i];
    const char *learned = deploy_trains(d) && i < d->npredict ? arena_printf(d->arena, "learned%s", g->id) : "0";
    const bool one = g->ntest && !deploy_varies(d);
    const char *golden = one ? arena_printf(d->arena, "golden%s", g->id) : "0";
    const char *row = arena_printf(d->arena, "    {%lld, inputs%s, outputs%s, %d, codes%s, %s, &shared[%d], %s, %d",
                                   d->npredict > 1 ? (long long)g->batch : 0, g->id, g->id, g->seed_input, g->id,
                                   learned, i, golden, one ? g->test[0].made_up : 0);
    const char *tests = !deploy_varies(d) ? ""
                        : g->ntest        ? arena_printf(d->arena, ", %d, tests%s", g->ntest, g->id)
                                          : ", 0, 0";
    return arena_printf(d->arena, "%s%s},\n", row, tests);
}

/* The fields of struct front_net that training adds. */
static const char *training_fields(const struct deploy *d)
{
    if (!deploy_trains(d)) return "";
    return "    .training = &graphs[sizeof graphs / sizeof *graphs - 1],\n"
           "    .ntrained = sizeof trained_param / sizeof *trained_param - 1,\n"
           "    .ngiven = sizeof given / sizeof *given - 1,\n"
           "    .nwritten = sizeof written / sizeof *written - 1,\n"
           "    .trained = trained,\n    .trained_param = trained_param,\n    .given = given,\n"
           "    .written = written,\n";
}

/* -- texts for the templates: pairs of a name and a text */

typedef VECTOR(const char *) texts;

/* A template, with the values that are the same for all. */
static const char *filled(struct deploy *d, const texts *pairs, bool wanted, const char *template)
{
    texts known = {0};
    if (!wanted) return "";
    for (int i = 0; i < pairs->n; i++) PUSH(d->arena, known, pairs->at[i]);
    PUSH(d->arena, known, NULL);
    return deploy_fill(d->arena, deploy_text(template), known.at);
}

static void put(struct deploy *d, texts *pairs, const char *name, const char *text)
{
    PUSH(d->arena, *pairs, name);
    PUSH(d->arena, *pairs, text ? text : "");
}

static void put_number(struct deploy *d, texts *pairs, const char *name, int64_t n)
{
    put(d, pairs, name, arena_printf(d->arena, "%lld", (long long)n));
}

/* The parameters of predict() after the context, and the statements that use them. */
static void put_predict(struct deploy *d, texts *pairs)
{
    struct text given = text_new(d->arena), asked = text_new(d->arena);
    for (int i = 0; i < deploy_inputs(d); i++) text_put(&given, "in%d, ", i);
    for (int i = 0; i < d->noutput; i++)
        text_put(&asked, "    if (out%d)\n        *out%d = out[%d];\n    else\n        sol_ext_free(out[%d]);\n", i, i,
                 i, i);
    put(d, pairs, "parameters", deploy_parameters(d, true));
    put(d, pairs, "given", given.at);
    put(d, pairs, "asked", asked.at);
    put_number(d, pairs, "ninput", deploy_inputs(d));
    put_number(d, pairs, "noutput", d->noutput);
}

static void put_graphs(struct deploy *d, texts *pairs)
{
    struct text tensors = text_new(d->arena), codes = text_new(d->arena), graphs = text_new(d->arena);
    struct text versions = text_new(d->arena);
    for (int i = 0; i < d->ngraph; i++) {
        put_io(d, &tensors, &d->graph[i]);
        put_codes(d, &codes, &d->graph[i]);
        deploy_put_golden(d, &tensors, &d->graph[i]);
        if (i < d->npredict) put_learned(d, &tensors, &d->graph[i]);
        text_put(&graphs, "%s", graph_row(d, i));
    }
    put_training(d, &tensors);
    for (int i = 0; i < d->nversion; i++)
        text_put(&versions, "    {\"%s\", 0x%xu},\n", d->version[i].name, d->version[i].needs);
    put(d, pairs, "tensors", tensors.at);
    put(d, pairs, "codes", codes.at);
    put(d, pairs, "graphs", graphs.at);
    put(d, pairs, "versions", versions.at);
    put_number(d, pairs, "ngraph", d->ngraph);
    put_number(d, pairs, "npredict", d->npredict);
    put_number(d, pairs, "nversion", d->nversion);
}

static void put_weights(struct deploy *d, texts *pairs)
{
    const bool file = !strcmp(d->keys.weights, "file");
    const char *name = arena_printf(d->arena, "%s_weights", d->keys.func_name);
    put(d, pairs, "weights", file ? "NULL" : name);
    put(d, pairs, "weights_extern", file ? "" : arena_printf(d->arena, "extern const unsigned char %s[];\n", name));
    put_number(d, pairs, "bytes", d->weights_bytes);
    put(d, pairs, "hash", arena_printf(d->arena, "0x%016llx", (unsigned long long)d->weights_hash));
}

/* How calls pass the sizes of dimensions that vary. */
static void put_dims(struct deploy *d, texts *pairs)
{
    const bool varies = deploy_varies(d), places = varies && !d->bare;
    const char *array = deploy_dim_array(d);
    put(d, pairs, "dims", deploy_dim_parameters(d));
    put(d, pairs, "dims_array", array);
    put(d, pairs, "dims_table", varies ? deploy_dim_table(d) : "");
    put(d, pairs, "bytes_dims", d->bare ? "" : deploy_dim_parameters(d));
    put(d, pairs, "bytes_call",
        places ? arena_printf(d->arena, "front_bytes_at(&front_here, threads, %s)", array)
               : "front_bytes(&front_here, threads)");
    put(d, pairs, "run_body",
        deploy_fill(d->arena, deploy_text(varies ? "network_run_sized.c" : "network_run.c"),
                    (const char *const[]){"dims_array", array, NULL}));
    put(d, pairs, "no_outputs", varies ? " = {NULL}" : "");
    put(d, pairs, "predict_body",
        deploy_fill(d->arena, deploy_text(varies ? "network_predict_sized.c" : "network_predict.c"),
                    (const char *const[]){"dims_array", array, NULL}));
    put(d, pairs, "train_at",
        varies ? arena_printf(d->arena, "    front_train_at((struct front_training *)t, %s);\n", array) : "");
    put(d, pairs, "sizes_define", filled(d, pairs, varies, "names_sizes.h"));
    put(d, pairs, "sizes_include", varies ? "#include \"rt/dims.c\"\n" : "");
    put(d, pairs, "places_include", places ? "#include \"rt/offsets.c\"\n#include \"rt/sizes.c\"\n" : "");
    put(d, pairs, "sized_include", varies && d->alone.n ? "#include \"layers/reference_sized.h\"\n" : "");
}

/* Sets what only some libraries have. */
static void put_parts(struct deploy *d, texts *pairs)
{
    const bool file = !strcmp(d->keys.weights, "file"), opaque = d->alone.n > 0, trains = deploy_trains(d);
    put(d, pairs, "file_define", file ? "#define FRONT_WEIGHTS_FILE\n" : "");
    put(d, pairs, "file_functions", filled(d, pairs, file, "network_file.c"));
    put(d, pairs, "opaque_define", opaque ? "#define FRONT_OPAQUE\n" : "");
    struct text includes = text_new(d->arena);
    for (int i = 0; i < d->alone.n; i++) text_put(&includes, "#include \"layers/%s\"\n", d->alone.at[i]);
    put(d, pairs, "opaque_include", includes.at);
    put(d, pairs, "train_include", trains ? "#include \"deploy/front_train.c\"\n" : "");
    put(d, pairs, "train_fields", training_fields(d));
    put(d, pairs, "train_functions", filled(d, pairs, trains, "network_train.c"));
    put(d, pairs, "selftest_define",
        deploy_tests_itself(d)
            ? arena_printf(d->arena, "#define FRONT_SELFTEST\n#define FRONT_PLACES %d\n", deploy_inputs(d) + d->noutput)
            : "");
    put(d, pairs, "selftest_include", deploy_tests_itself(d) ? "#include \"deploy/front_selftest.c\"\n" : "");
    put(d, pairs, "selftest_functions", filled(d, pairs, deploy_tests_itself(d), "network_selftest.c"));
    put(d, pairs, "bare_define", d->bare ? "#define FRONT_BARE\n" : "");
    const bool there = d->there.type, native = d->there.native;
    put(d, pairs, "native_define", native ? "#define FRONT_NATIVE\n" : "");
    put(d, pairs, "device", there ? d->there.type->name : "");
    put(d, pairs, "device_define", filled(d, pairs, there, "names_device.h"));
    put(d, pairs, "malloc", native ? "front_memory(&front_here, bytes)" : "malloc(bytes)");
    put(d, pairs, "free", native ? "front_memory_free(&front_here, p)" : "free(p)");
    put(d, pairs, "init", there ? "if (!front_device(&front_here, deviceIdx)) " : "(void)deviceIdx;\n    ");
    put(d, pairs, "native_functions", filled(d, pairs, native, "network_native.c"));
    put(d, pairs, "processors_include", d->bare ? "" : "#include \"rt/processors.c\"\n");
    put(d, pairs, "rt", d->bare ? "rt_bare.c" : "sol_rt.c");
    put(d, pairs, "front", d->bare ? "front_bare.c" : "front.c");
    put(d, pairs, "load", filled(d, pairs, !d->bare, "network_load.c"));
    put(d, pairs, "memory_include", d->bare ? "" : "#include <stdlib.h>\n\n");
    put(d, pairs, "memory_functions", filled(d, pairs, !d->bare, "network_memory.c"));
    put(d, pairs, "batch_functions", filled(d, pairs, d->npredict > 1, "network_batch.c"));
    put(d, pairs, "sizes_functions", filled(d, pairs, deploy_varies(d), "network_sizes.c"));
}

/* The sources of functions from outside, each a file of its own. */
static sol_status write_functions(struct deploy *d)
{
    for (int i = 0; i < d->functions.n; i++) {
        const struct layer_function *f = d->functions.at[i];
        if (f->objects) continue;
        const char *file = arena_printf(d->arena, "%s_%s.c", d->keys.lib_name, f->symbol);
        deploy_add_source(d, file, NULL);
        TRY(deploy_write(d, d->work, file, arena_printf(d->arena, "#include <stdint.h>\n\n%s\n", f->source)));
    }
    return SOL_OK;
}

sol_status deploy_network(struct deploy *d)
{
    static const struct {
        const char *template, *end;
        bool source;
    } files[] = {{"network.c", ".c", true}, {"network_inside.c", "_network.c", true}, {"names.h", "_names.h", false}};
    texts pairs = {0};
    put(d, &pairs, "lib", d->keys.lib_name);
    put(d, &pairs, "func", d->keys.func_name);
    put(d, &pairs, "name", deploy_string(d->arena, d->g->name));
    put(d, &pairs, "sol", sol_version());
    put(d, &pairs, "model", d->model);
    put_predict(d, &pairs);
    put_graphs(d, &pairs);
    put_weights(d, &pairs);
    put_dims(d, &pairs);
    put_parts(d, &pairs);
    PUSH(d->arena, pairs, NULL);
    for (int i = 0; i < COUNT_OF(files); i++) {
        const char *name = arena_printf(d->arena, "%s%s", d->keys.lib_name, files[i].end);
        if (files[i].source) deploy_add_source(d, name, NULL);
        TRY(deploy_write(d, d->work, name, deploy_fill(d->arena, deploy_text(files[i].template), pairs.at)));
    }
    return write_functions(d);
}
