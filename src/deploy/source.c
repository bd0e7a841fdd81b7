/* Writes the sources: for each version a folder with one file for each kernel and with its tables, the network's own
 * file, and the files that are the same for every network. */
#include <dirent.h>
#include <string.h>
#include <unistd.h>

#include "build/build.h"
#include "compile/compile.h"
#include "deploy/deploy.h"

void deploy_add_source(struct deploy *d, const char *file, const struct deploy_version *kernel_of)
{
    const struct deploy_source s = {file, kernel_of};
    PUSH(d->arena, d->sources, s);
}

/* -- kernels */

/* The first step that uses it. */
static const struct schedule_step *kernel_step(const struct schedule *s, int k)
{
    for (int program = 0; program < PROGRAMS; program++)
        for (int i = 0; i < s->program[program].steps.n; i++)
            if (s->program[program].steps.at[i].kernel == k) return &s->program[program].steps.at[i];
    return NULL;
}

/* Its layer is a part of the file's name. */
static const char *kernel_file(struct deploy *d, const struct schedule *s, int k, int number)
{
    char *label = text_identifier(d->arena, kernel_step(s, k)->label);
    label[strlen(label) < 40 ? strlen(label) : 40] = 0;
    return arena_printf(d->arena, "k%03d_%s.c", number, label);
}

static const char *kernel_solver(const struct schedule *s, int k)
{
    const struct unit *u = kernel_step(s, k)->unit;
    return u && u->kernel.solver ? u->kernel.solver : "plain";
}

/* Graphs for several batch sizes share kernels; each is written once. */
static sol_status write_kernel(struct deploy *d, struct deploy_version *v, struct deploy_code *code, const char *folder,
                               int k)
{
    const struct source_text *source = &code->schedule->kernels.at[k];
    const char *text = kernel_source(d->arena, source, "KERNEL"); /* equal texts are one kernel */
    if (!source->note) return SOL_OK;                             /* no step uses it */
    code->symbol[k] = map_get(v->kernels, text);
    if (code->symbol[k]) return SOL_OK;
    const char *symbol = arena_printf(d->arena, "%s_%s_k%03d", d->keys.func_name, v->id, v->nkernel);
    const char *file = kernel_file(d, code->schedule, k, v->nkernel);
    map_set(v->kernels, text, (void *)(uintptr_t)symbol);
    code->symbol[k] = symbol;
    struct text t = text_new(d->arena);
    text_put(&t, "%s/* Kernel %d for %s, by solver %s */\n", source->note, v->nkernel++, v->name,
             kernel_solver(code->schedule, k));
    text_put(&t, "#include \"%s\"\n\n", source->nhelper ? "vectors.h" : source->header);
    source_body(&t, source, symbol, "");
    deploy_add_source(d, deploy_file(d, v->id, file), v);
    return deploy_write(d, folder, file, t.at);
}

/* The helpers of all kernels. */
static sol_status write_vectors(struct deploy *d, const struct deploy_version *v, const char *folder, int number)
{
    struct map *seen = map_create(d->arena);
    struct text t = text_new(d->arena);
    const struct schedule *first = d->graph[0].code[number].schedule; /* all kernels of a version are of one flavour */
    text_put(&t,
             "/* The vector types (of GNU C) and functions that kernels for %s share. */\n"
             "#ifndef VECTORS_H\n#define VECTORS_H\n\n#include \"%s\"\n\n"
             "/* All functions are static, so no other code sees how they pass wide vectors. */\n"
             "#pragma GCC diagnostic ignored \"-Wpsabi\"\n\n",
             v->name, first->kernels.n ? first->kernels.at[0].header : "sol/module.h");
    for (int i = 0; i < d->ngraph; i++) {
        const struct schedule *s = d->graph[i].code[number].schedule;
        for (int k = 0; k < s->kernels.n; k++) source_helpers(&t, seen, &s->kernels.at[k]);
    }
    text_put(&t, "#endif\n");
    return deploy_write(d, folder, "vectors.h", t.at);
}

/* -- tables */

const char *deploy_code_name(struct deploy *d, const struct deploy_graph *g, const struct deploy_version *v)
{
    return arena_printf(d->arena, "%s_%s%s", d->keys.func_name, v->id, g->id);
}

static void put_places(struct text *t, const char *code, const char *what, int n, const int64_t *at)
{
    text_put(t, "const int64_t %s_%s_at[] = {", code, what);
    for (int i = 0; i < n; i++) text_put(t, "%lld, ", (long long)at[i]);
    text_put(t, "0};\n");
}

static void put_kernels(struct deploy *d, struct text *t, const struct deploy_code *code, const char *body)
{
    struct map *seen = map_create(d->arena);
    for (int k = 0; k < code->schedule->kernels.n; k++)
        for (int i = 0; code->symbol[k] && i < KERNEL_MAX_STEPS; i++) {
            const char *name = arena_printf(d->arena, "%s_%d", code->symbol[k], i);
            if (map_get(seen, name) || !strstr(body, arena_printf(d->arena, "{%s,", name))) continue;
            map_set(seen, name, seen);
            text_put(t, "sol_kernel %s;\n", name);
        }
}

static sol_status write_tables(struct deploy *d, const struct deploy_version *v, const struct deploy_graph *g,
                               struct deploy_code *code, const char *folder)
{
    const struct schedule *s = code->schedule;
    const char *name = deploy_code_name(d, g, v), *symbol = arena_printf(d->arena, "%s_module", name), *body;
    const char *file = arena_printf(d->arena, "module%s.c", g->id);
    const char *tables = schedule_module_text(s, d->g->name, symbol);
    code->nsize = schedule_sizes(s);
    const struct build_request r = {.name = d->g->name,
                                    .nkernel = d->there.type ? 0 : s->kernels.n,
                                    .module = d->there.type ? code_without_kernels(d->arena, tables) : tables};
    TRY(source_tables(d->ctx, d->arena, &r, code->symbol, &body));
    struct text t = text_new(d->arena);
    text_put(&t, "/* The network for %s: its steps, their kernels, and the addresses of their operands. */\n", v->name);
    text_put(&t, "#include \"sol/module.h\"\n\n");
    put_kernels(d, &t, code, body);
    text_put(&t, "extern const struct sol_module %s;\n", symbol);
    text_put(&t, "extern const int64_t %s_param_at[], %s_const_at[];\n\n", name, name);
    text_put(&t, "%s\n/* offsets of parameters and constants in the weights */\n", body);
    put_places(&t, name, "param", g->g->params.n, code->param_at);
    put_places(&t, name, "const", s->constants.n, code->const_at);
    deploy_add_source(d, deploy_file(d, v->id, file), NULL);
    return deploy_write(d, folder, file, t.at);
}

/* Is it a file that SOL writes into a version's folder, or compiled from one: "k007_conv.c", "module_batch8.o"? */
static bool is_code(const char *name)
{
    const size_t n = strlen(name), digits = strspn(name + (n > 0), "0123456789");
    if (n < 2 || (strcmp(name + n - 2, ".c") && strcmp(name + n - 2, ".o"))) return false;
    return (*name == 'k' && digits >= 3 && name[1 + digits] == '_') || !strncmp(name, "module", 6);
}

/* The Makefile compiles everything in the folder, so files of an earlier deployment must be removed. */
static void remove_old(const char *folder)
{
    DIR *dir = opendir(folder);
    if (!dir) return;
    for (struct dirent *e; (e = readdir(dir));)
        if (is_code(e->d_name)) unlinkat(dirfd(dir), e->d_name, 0);
    closedir(dir);
}

static sol_status write_version(struct deploy *d, int number)
{
    struct deploy_version *v = &d->version[number];
    const char *folder = deploy_file(d, d->work, v->id);
    TRY(file_make_folder(d->ctx, folder));
    remove_old(folder);
    if (!d->there.type) TRY(write_vectors(d, v, folder, number));
    for (int i = 0; i < d->ngraph; i++) {
        struct deploy_code *code = &d->graph[i].code[number];
        code->symbol = NEW_ARRAY(d->arena, const char *, code->schedule->kernels.n + 1);
        schedule_notes(code->schedule);
        for (int k = 0; k < code->schedule->kernels.n && !d->there.type; k++) TRY(write_kernel(d, v, code, folder, k));
        if (d->there.type) TRY(deploy_write_code(d, v, &d->graph[i], code, folder));
        TRY(write_tables(d, v, &d->graph[i], code, folder));
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
    deploy_add_source(d, name, NULL);
    return deploy_write(d, d->work, name,
                        deploy_fill(d->arena, deploy_text("weights.c"),
                                    (const char *const[]){"lib", d->keys.lib_name, "func", d->keys.func_name, "align",
                                                          d->bare ? "64" : "4096", NULL}));
}

static sol_status write_file(struct deploy *d, const char *in, const char *name)
{
    const char *folder = deploy_file(d, d->work, in);
    TRY(file_make_folder(d->ctx, folder));
    return deploy_write(d, folder, name, deploy_text(name));
}

static sol_status write_common(struct deploy *d)
{
    const bool varies = deploy_varies(d), tests = deploy_tests_itself(d);
    const struct {
        bool wanted;
        const char *folder, *name;
    } files[] = {{true, "deploy", "front.h"},
                 {true, "deploy", "front_block.c"},
                 {true, "deploy", "front_error.c"},
                 {true, "deploy", "tensor.h"},
                 {true, "rt", "rt.h"},
                 {true, "layers", "reference.h"},
                 {true, "layers", "reference_matrix.h"},
                 {!d->bare, "deploy", "ext.h"},
                 {!d->bare, "deploy", "features.def"},
                 {!d->bare, "deploy", "front.c"},
                 {!d->bare, "deploy", "hash.h"},
                 {!d->bare, "deploy", "front_train.c"},
                 {!d->bare, "deploy", "front_begin.c"},
                 {!d->bare, "rt", "processors.c"},
                 {!d->bare, "rt", "sol_rt.c"},
                 {tests, "deploy", "front_selftest.c"},
                 {tests, "deploy", "made_up.h"},
                 {tests, "deploy", "selftest.h"},
                 {varies, "deploy", "front_sizes.c"},
                 {varies, "layers", "reference_sized.h"},
                 {varies, "rt", "dims.c"},
                 {varies && !d->bare, "rt", "sizes.c"},
                 {varies && !d->bare, "rt", "offsets.c"},
                 {d->bare, "deploy", "front_bare.c"},
                 {d->bare, "rt", "rt_bare.c"}};
    for (int i = 0; i < COUNT_OF(files); i++)
        if (files[i].wanted) TRY(write_file(d, files[i].folder, files[i].name));
    for (int i = 0; i < d->alone.n; i++) TRY(write_file(d, "layers", d->alone.at[i]));
    if (d->there.type) TRY(deploy_write_driver(d));
    const char *folder = deploy_file(d, d->work, "sol");
    TRY(file_make_folder(d->ctx, folder));
    return deploy_write(d, folder, "module.h", source_header(NULL));
}

sol_status deploy_sources(struct deploy *d)
{
    for (int i = 0; i < d->nversion; i++) TRY(write_version(d, i));
    TRY(write_weights(d)); /* their hash is known then */
    TRY(deploy_network(d));
    TRY(write_common(d));
    return ctx_check(d->ctx);
}
