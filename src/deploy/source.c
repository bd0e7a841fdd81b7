/* Sources: for each version a folder with its kernels, one file each, and its tables; the network's own file; the files
 * that are the same for every network. */
#include <string.h>

#include "build/build.h"
#include "deploy/deploy.h"

/* -- kernels */

/* The steps that use kernel k, by the layers that they compute. */
static const char *kernel_labels(struct deploy *d, const struct deploy_version *v, int k)
{
    struct text t = text_new(d->arena);
    struct map *seen = map_create(d->arena);
    for (int program = 0; program < PROGRAMS; program++) {
        const struct schedule_program *pr = &v->schedule->program[program];
        for (int i = 0; i < pr->steps.n; i++) {
            const struct schedule_step *st = &pr->steps.at[i];
            if (st->kernel != k || map_get(seen, st->label)) continue;
            map_set(seen, st->label, seen);
            text_put(&t, "%s%s: %s", t.n ? "\n * " : "", program_name((enum program)program), st->label);
        }
    }
    return t.n ? t.at : NULL;
}

/* The first step's layer, as part of a file's name. */
static const char *kernel_file(struct deploy *d, const struct deploy_version *v, int k)
{
    for (int program = 0; program < PROGRAMS; program++) {
        const struct schedule_program *pr = &v->schedule->program[program];
        for (int i = 0; i < pr->steps.n; i++)
            if (pr->steps.at[i].kernel == k) {
                char *label = text_identifier(d->arena, pr->steps.at[i].label);
                label[strlen(label) < 40 ? strlen(label) : 40] = 0;
                return arena_printf(d->arena, "k%03d_%s.c", k, label);
            }
    }
    return NULL;
}

static const char *kernel_solver(const struct deploy_version *v, int k)
{
    for (int program = 0; program < PROGRAMS; program++) {
        const struct schedule_program *pr = &v->schedule->program[program];
        for (int i = 0; i < pr->steps.n; i++)
            if (pr->steps.at[i].kernel == k && pr->steps.at[i].unit && pr->steps.at[i].unit->kernel.solver)
                return pr->steps.at[i].unit->kernel.solver;
    }
    return "plain";
}

/* The kernel without the prelude, which stands in vectors.h. */
static const char *without_prelude(struct deploy *d, const char *text, const char *prelude, bool *out_vectors)
{
    const char *at = strstr(text, prelude);
    *out_vectors = at != NULL;
    return at ? arena_printf(d->arena, "%.*s%s", (int)(at - text), text, at + strlen(prelude)) : text;
}

static sol_status write_kernel(struct deploy *d, struct deploy_version *v, const char *folder, const char *prelude,
                               int k)
{
    const char *labels = kernel_labels(d, v, k);
    bool vectors;
    if (!labels) return SOL_OK;
    const char *body = without_prelude(d, v->schedule->kernels.at[k], prelude, &vectors);
    v->symbol[k] = arena_printf(d->arena, "%s_%s_k%03d", d->keys.func_name, v->id, k);
    v->file[k] = kernel_file(d, v, k);
    struct text t = text_new(d->arena);
    text_put(&t, "/* Kernel %d for %s, by solver %s.\n * %s */\n", k, v->name, kernel_solver(v, k), labels);
    text_put(&t, "#include \"%s\"\n\n", vectors ? "vectors.h" : "sol/module.h");
    text_put(&t, "%s", source_kernel(d->arena, body, v->symbol[k]));
    PUSH(d->arena, d->sources, deploy_file(d, v->id, v->file[k]));
    return deploy_write(d, folder, v->file[k], t.at);
}

static sol_status write_vectors(struct deploy *d, const struct deploy_version *v, const char *folder,
                                const char *prelude)
{
    struct text t = text_new(d->arena);
    text_put(&t,
             "/* What kernels for %s begin with: types of vectors, as GNU C has them, and functions on them. */\n"
             "#ifndef VECTORS_H\n#define VECTORS_H\n\n#include \"sol/module.h\"\n\n"
             "/* All are static: how wide vectors are handed over is nobody else's business. */\n"
             "#pragma GCC diagnostic ignored \"-Wpsabi\"\n\n",
             v->name);
    text_put(&t, "%s#endif\n", prelude);
    return deploy_write(d, folder, "vectors.h", t.at);
}

/* -- tables */

static void put_places(struct text *t, const char *func, const char *id, const char *what, int n, const int64_t *at)
{
    text_put(t, "const int64_t %s_%s_%s_at[] = {", func, id, what);
    for (int i = 0; i < n; i++) text_put(t, "%lld, ", (long long)at[i]);
    text_put(t, "0};\n");
}

/* Packed ahead there is no program `prepare`. */
static const struct schedule *deployed_schedule(struct deploy *d, const struct deploy_version *v)
{
    if (v->prepared_at < 0) return v->schedule;
    struct schedule *s = arena_memdup(d->arena, v->schedule, sizeof *s);
    memset(&s->program[PROGRAM_PREPARE], 0, sizeof s->program[PROGRAM_PREPARE]);
    return s;
}

static sol_status write_tables(struct deploy *d, const struct deploy_version *v, const char *folder)
{
    const struct schedule *s = v->schedule;
    const char *symbol = arena_printf(d->arena, "%s_%s_module", d->keys.func_name, v->id), *body;
    const struct build_request r = {
        .name = d->g->name, .nkernel = s->kernels.n, .module = schedule_module_text(s, d->g->name, symbol)};
    TRY(source_tables(d->ctx, d->arena, &r, v->symbol, &body));
    struct text t = text_new(d->arena);
    text_put(&t, "/* The network for %s: its steps, where their operands lie, which kernel computes each. */\n",
             v->name);
    text_put(&t, "#include \"sol/module.h\"\n\n");
    for (int k = 0; k < s->kernels.n; k++)
        for (int i = 0; v->symbol[k] && i < KERNEL_MAX_STEPS; i++) {
            const char *name = arena_printf(d->arena, "%s_%d", v->symbol[k], i);
            if (strstr(body, arena_printf(d->arena, "{%s,", name)))
                text_put(&t, "void %s(char *const *, const struct sol_frame *, int64_t, int64_t, int);\n", name);
        }
    text_put(&t, "extern const struct sol_module %s;\n", symbol);
    text_put(&t, "extern const int64_t %s_%s_param_at[], %s_%s_const_at[];\n\n", d->keys.func_name, v->id,
             d->keys.func_name, v->id);
    text_put(&t, "%s\n/* where parameters and constants begin in the weights */\n", body);
    put_places(&t, d->keys.func_name, v->id, "param", d->g->params.n, v->param_at);
    put_places(&t, d->keys.func_name, v->id, "const", s->constants.n, v->const_at);
    PUSH(d->arena, d->sources, deploy_file(d, v->id, "module.c"));
    return deploy_write(d, folder, "module.c", t.at);
}

static sol_status write_version(struct deploy *d, struct deploy_version *v)
{
    struct text prelude = text_new(d->arena);
    const char *folder = deploy_file(d, d->work, v->id);
    struct schedule *s = arena_memdup(d->arena, deployed_schedule(d, v), sizeof *s);
    v->schedule = s;
    v->symbol = NEW_ARRAY(d->arena, const char *, s->kernels.n + 1);
    v->file = NEW_ARRAY(d->arena, const char *, s->kernels.n + 1);
    TRY(file_make_folder(d->ctx, folder));
    print_prelude(&prelude, &v->target);
    TRY(write_vectors(d, v, folder, prelude.at));
    for (int k = 0; k < s->kernels.n; k++) TRY(write_kernel(d, v, folder, prelude.at, k));
    return write_tables(d, v, folder);
}

/* -- the network's own file */

static void put_tensor(struct text *shapes, struct text *rows, const char *what, int i, const char *name,
                       const struct sol_tensor *x)
{
    const struct dtype_def *type = dtype_def((enum sol_dtype)x->dtype);
    text_put(shapes, "static const int64_t %s%d_shape[] = {", what, i);
    for (int k = 0; k < x->ndim; k++) text_put(shapes, "%lld, ", (long long)x->dim[k].size);
    text_put(shapes, "0};\n");
    text_put(rows, "    {%s, \"%s\", %d, %s%d_shape, %lld},\n", deploy_string(shapes->arena, name), type->name, x->ndim,
             what, i, (long long)tensor_elements(x) * type->bytes);
}

static const char *tensor_tables(struct deploy *d)
{
    struct text shapes = text_new(d->arena), in = text_new(d->arena), out = text_new(d->arena);
    for (int i = 0; i < deploy_inputs(d); i++)
        put_tensor(&shapes, &in, "input", i, deploy_input_name(d, i), d->g->inputs.at[i]);
    for (int i = 0; i < d->noutput; i++)
        put_tensor(&shapes, &out, "output", i, deploy_output_name(d, i), d->g->outputs.at[i].t);
    return arena_printf(d->arena,
                        "%sstatic const struct sol_ext_tensor inputs[] = {\n%s    {0},\n};\n"
                        "static const struct sol_ext_tensor outputs[] = {\n%s    {0},\n};\n",
                        shapes.at, in.at ? in.at : "", out.at ? out.at : "");
}

static bool training(const struct deploy *d)
{
    return !strcmp(d->keys.training, "1");
}

/* What learns, and of which outputs gradients are given. */
static const char *training_tables(struct deploy *d)
{
    struct text shapes = text_new(d->arena), rows = text_new(d->arena), numbers = text_new(d->arena);
    if (!training(d)) return "";
    text_put(&numbers, "static const int32_t trained_param[] = {");
    for (int i = 0; i < d->trained.n; i++) {
        const struct sol_tensor *x = d->g->params.at[d->trained.at[i]];
        put_tensor(&shapes, &rows, "trained", i, x->name ? x->name : "", x);
        text_put(&numbers, "%d, ", d->trained.at[i]);
    }
    text_put(&numbers, "-1};\nstatic const int32_t given[] = {");
    for (int i = 0; i < d->given.n; i++) text_put(&numbers, "%d, ", d->given.at[i]);
    text_put(&numbers, "-1};\n");
    return arena_printf(d->arena, "%sstatic const struct sol_ext_tensor trained[] = {\n%s    {0},\n};\n%s", shapes.at,
                        rows.at, numbers.at);
}

static const char *version_table(struct deploy *d)
{
    struct text t = text_new(d->arena);
    const char *func = d->keys.func_name;
    for (int i = 0; i < d->nversion; i++)
        text_put(
            &t,
            "extern const struct sol_module %s_%s_module;\nextern const int64_t %s_%s_param_at[], %s_%s_const_at[];\n",
            func, d->version[i].id, func, d->version[i].id, func, d->version[i].id);
    text_put(&t, "static const struct front_version versions[] = {\n");
    for (int i = 0; i < d->nversion; i++) {
        const struct deploy_version *v = &d->version[i];
        text_put(&t, "    {\"%s\", 0x%xu, &%s_%s_module, %s_%s_param_at, %s_%s_const_at, %lld},\n", v->name, v->needs,
                 func, v->id, func, v->id, func, v->id, (long long)v->prepared_at);
    }
    text_put(&t, "};\n");
    return t.at;
}

/* What predict() has between its brackets behind the context, and what it does with that. */
static sol_status write_network(struct deploy *d)
{
    struct text given = text_new(d->arena), asked = text_new(d->arena);
    for (int i = 0; i < deploy_inputs(d); i++) text_put(&given, "in%d, ", i);
    for (int i = 0; i < d->noutput; i++)
        text_put(&asked, "    if (out%d)\n        *out%d = out[%d];\n    else\n        sol_ext_free(out[%d]);\n", i, i,
                 i, i);
    const bool file = !strcmp(d->keys.weights, "file");
    const char *func = d->keys.func_name;
    const char *const pairs[] = {
        "lib",
        d->keys.lib_name,
        "func",
        func,
        "name",
        d->g->name,
        "sol",
        sol_version(),
        "file_define",
        file ? "#define FRONT_WEIGHTS_FILE\n" : "",
        "weights",
        file ? "NULL" : arena_printf(d->arena, "%s_weights", func),
        "weights_extern",
        file ? "" : arena_printf(d->arena, "extern const unsigned char %s_weights[];\n", func),
        "bytes",
        arena_printf(d->arena, "%lld", (long long)d->weights_bytes),
        "hash",
        arena_printf(d->arena, "0x%016llx", (unsigned long long)d->weights_hash),
        "tensors",
        arena_printf(d->arena, "%s%s", tensor_tables(d), training_tables(d)),
        "versions",
        version_table(d),
        "nversion",
        arena_printf(d->arena, "%d", d->nversion),
        "ninput",
        arena_printf(d->arena, "%d", deploy_inputs(d)),
        "noutput",
        arena_printf(d->arena, "%d", d->noutput),
        "seed_input",
        arena_printf(d->arena, "%d", d->options->seed_input),
        "parameters",
        deploy_parameters(d, true),
        "given",
        given.at ? given.at : "",
        "asked",
        asked.at ? asked.at : "",
        "train_include",
        training(d) ? "#include \"deploy/front_train.c\"\n" : "",
        "train_fields",
        training(d) ? "    .ntrained = sizeof trained_param / sizeof *trained_param - 1,\n"
                      "    .ngiven = sizeof given / sizeof *given - 1,\n"
                      "    .trained = trained,\n    .trained_param = trained_param,\n    .given = given,\n"
                    : "",
        "train_functions",
        training(d) ? deploy_fill(d->arena, deploy_text("network_train.c"), (const char *const[]){"func", func, NULL})
                    : "",
        "file_functions",
        file ? deploy_fill(d->arena, deploy_text("network_file.c"), (const char *const[]){"func", func, NULL}) : "",
        NULL};
    static const char *const files[][2] = {
        {"network.c", ".c"}, {"network_inside.c", "_network.c"}, {"names.h", "_names.h"}};
    for (int i = 0; i < COUNT_OF(files); i++) {
        const char *name = arena_printf(d->arena, "%s%s", d->keys.lib_name, files[i][1]);
        if (strcmp(files[i][0], "names.h")) PUSH(d->arena, d->sources, name);
        TRY(deploy_write(d, d->work, name, deploy_fill(d->arena, deploy_text(files[i][0]), pairs)));
    }
    return SOL_OK;
}

static sol_status write_weights(struct deploy *d)
{
    const bool file = !strcmp(d->keys.weights, "file");
    const char *bin = arena_printf(d->arena, "%s.weights", d->keys.lib_name);
    TRY(deploy_write_weights(d, deploy_file(d, file ? d->keys.path : d->work, bin)));
    if (file) return SOL_OK;
    const char *name = arena_printf(d->arena, "%s_weights.c", d->keys.lib_name);
    PUSH(d->arena, d->sources, name);
    return deploy_write(d, d->work, name,
                        deploy_fill(d->arena, deploy_text("weights.c"),
                                    (const char *const[]){"lib", d->keys.lib_name, "func", d->keys.func_name, NULL}));
}

static sol_status write_common(struct deploy *d)
{
    static const char *const files[][2] = {
        {"deploy", "ext.h"},  {"deploy", "features.def"},  {"deploy", "front.h"}, {"deploy", "front.c"},
        {"deploy", "hash.h"}, {"deploy", "front_train.c"}, {"rt", "rt.h"},        {"rt", "sol_rt.c"}};
    for (int i = 0; i < COUNT_OF(files); i++) {
        const char *folder = deploy_file(d, d->work, files[i][0]);
        TRY(file_make_folder(d->ctx, folder));
        TRY(deploy_write(d, folder, files[i][1], deploy_text(files[i][1])));
    }
    const char *folder = deploy_file(d, d->work, "sol");
    TRY(file_make_folder(d->ctx, folder));
    return deploy_write(d, folder, "module.h", source_header());
}

sol_status deploy_sources(struct deploy *d)
{
    for (int i = 0; i < d->nversion; i++) TRY(write_version(d, &d->version[i]));
    TRY(write_weights(d)); /* their hash is known then */
    TRY(write_network(d));
    TRY(write_common(d));
    return ctx_check(d->ctx);
}
