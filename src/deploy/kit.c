/* The kit: the files beside a deployed library that applications need to use it. */
#include <ctype.h>
#include <string.h>

#include "deploy/deploy.h"

/* gcc only: clang does not know it. The Makefile asks which of the two it has. */
#define GCC_ONLY "-fno-predictive-commoning"

static void put_shape(const struct deploy *d, struct text *t, const struct sol_tensor *x)
{
    text_put(t, "%s[", dtype_def((enum sol_dtype)x->dtype)->name);
    for (int k = 0; k < x->ndim; k++)
        text_put(t, "%s%s", k ? ", " : "", graph_size_text(t->arena, d->g, x->dim[k].size));
    text_put(t, "]");
}

const char *deploy_parameters(struct deploy *d, bool numbered)
{
    struct text t = text_new(d->arena);
    const int nin = deploy_inputs(d);
    text_put(&t, "%s", deploy_dim_parameters(d));
    for (int i = 0; i < nin + d->noutput; i++) {
        const bool in = i < nin;
        const int number = in ? i : i - nin;
        const struct sol_tensor *x = in ? d->g->inputs.at[number] : d->g->outputs.at[number].t;
        const char *name = in ? deploy_input_name(d, number) : deploy_output_name(d, number);
        const char *type = dtype_def((enum sol_dtype)x->dtype)->c_name;
        text_put(&t, in ? ", const %s *in%d" : ", %s **out%d", type, number);
        if (!numbered && *name) text_put(&t, "_%s", text_identifier(d->arena, name));
    }
    return t.at ? t.at : "";
}

/* -- files that are not called as the library: somebody else's may be there */

#define OURS "deployed by SOL"

static sol_status is_foreign(struct deploy *d, const char *name, bool *out_foreign)
{
    const char *path = deploy_file(d, d->keys.path, name);
    char *text;
    size_t bytes;
    *out_foreign = false;
    if (!file_exists(path)) return SOL_OK;
    TRY(file_read(d->ctx, d->arena, path, &text, &bytes));
    text[bytes] = 0; /* file_read has room for it */
    *out_foreign = !strstr(text, OURS);
    return SOL_OK;
}

static sol_status write_unless_foreign(struct deploy *d, const char *name, const char *text)
{
    bool foreign;
    TRY(is_foreign(d, name, &foreign));
    if (!foreign) return deploy_write(d, d->keys.path, name, text);
    LOG(d->ctx, LOG_WARN, "core", "%s/%s does not belong to a deployed network: it is not overwritten", d->keys.path,
        name);
    return SOL_OK;
}

/* A library is one without them, but sources are built by their Makefile. */
sol_status deploy_check_folder(struct deploy *d)
{
    bool foreign;
    if (d->target != DEPLOY_SOURCE) return SOL_OK;
    TRY(is_foreign(d, "Makefile", &foreign));
    if (!foreign) return SOL_OK;
    return ctx_fail(d->ctx, SOL_ERR_INVALID,
                    "deploy: path: '%s' has a Makefile that is not of a deployed network: choose another folder",
                    d->keys.path);
}

/* -- the header */

static const char *io_comment(struct deploy *d)
{
    struct text t = text_new(d->arena);
    for (int i = 0; i < deploy_inputs(d); i++) {
        text_put(&t, " *   in%d   ", i);
        put_shape(d, &t, d->g->inputs.at[i]);
        text_put(&t, "  %s\n", deploy_string(d->arena, deploy_input_name(d, i)));
    }
    for (int i = 0; i < d->noutput; i++) {
        text_put(&t, " *   out%d  ", i);
        put_shape(d, &t, d->g->outputs.at[i].t);
        text_put(&t, "  %s\n", deploy_string(d->arena, deploy_output_name(d, i)));
    }
    return t.at ? t.at : "";
}

static const char *sizes(struct deploy *d)
{
    struct text t = text_new(d->arena);
    for (int i = 0; i < d->npredict; i++) text_put(&t, "%s%lld", i ? ", " : "", (long long)d->graph[i].batch);
    return t.at;
}

static const char *batch_comment(struct deploy *d)
{
    if (d->npredict < 2) return "";
    return deploy_fill(d->arena, deploy_text("network_batch.h"),
                       (const char *const[]){"func", d->keys.func_name, "sizes", sizes(d), NULL});
}

static const char *training_comment(struct deploy *d)
{
    if (!deploy_trains(d)) return "";
    const char *modes = d->nwritten ? "Batch-norm uses the statistics of the batch and updates its running statistics."
                                    : "Layers have the modes (train or eval) of the model's layers.";
    return deploy_fill(d->arena, deploy_text("network_train.h"),
                       (const char *const[]){"func", d->keys.func_name, "modes", modes, "sizes",
                                             d->npredict > 1 ? ", for the batch size of calls without a context" : "",
                                             "dims", deploy_dim_parameters(d), NULL});
}

static const char *selftest_comment(struct deploy *d)
{
    if (!deploy_tests_itself(d)) return "";
    const char *memory = d->bare ? "The memory is the caller's."
                                 : "c NULL: a context of the library. inputs or outputs NULL: temporary memory of "
                                   "sol_ext_malloc.\n *";
    return deploy_fill(d->arena, deploy_text("network_selftest.h"),
                       (const char *const[]){"func", d->keys.func_name, "samples",
                                             arena_printf(d->arena, "%d", GOLDEN_SAMPLES), "memory", memory, "tested",
                                             deploy_tested_sizes(d), NULL});
}

/* The declarations of the calls. Without an operating system there are only those with contexts. */
static const char *calls(struct deploy *d)
{
    return deploy_fill(d->arena, deploy_text(d->bare ? "network_bare.h" : "network_memory.h"),
                       (const char *const[]){"func", d->keys.func_name, "parameters", deploy_parameters(d, false),
                                             "dims", deploy_dim_parameters(d), "at_sizes",
                                             deploy_varies(d) ? " at these sizes" : "", "device_note",
                                             deploy_device_note(d), "native", deploy_native_functions(d), NULL});
}

static sol_status write_header(struct deploy *d)
{
    struct text versions = text_new(d->arena);
    const char *func = d->keys.func_name;
    for (int i = 0; i < d->nversion; i++) text_put(&versions, "%s%s", i ? ", " : "", d->version[i].name);
    const char *file =
        strcmp(d->keys.weights, "file")
            ? ""
            : arena_printf(
                  d->arena,
                  "\n/* Sets the path of the weights file; call it before any other function, and keep the text. The "
                  "default is the folder\n * of the library (or of the program that contains it). */\nint "
                  "%s_weights(const char *path);\n",
                  func);
    const char *chosen =
        d->bare ? ""
                : arena_printf(d->arena,
                               "int %s_choose_version(const char *version); /* selects one; call it first; NULL: the "
                               "best */\n",
                               func);
    const char *const pairs[] = {
        "name",
        deploy_string(d->arena, d->g->name),
        "sol",
        sol_version(),
        "io",
        io_comment(d),
        "guard",
        arena_printf(d->arena, "SOL_%s_H", text_identifier(d->arena, d->keys.lib_name)),
        "ext",
        arena_printf(d->arena, "%s%s%s%s%s%s%s", deploy_text("tensor.h"), deploy_varies(d) ? "\n" : "",
                     deploy_varies(d) ? deploy_text("dim.h") : "", d->bare ? "" : "\n",
                     d->bare ? "" : deploy_text("ext.h"), deploy_tests_itself(d) ? "\n" : "",
                     deploy_tests_itself(d) ? deploy_text("selftest.h") : ""),
        "calls",
        calls(d),
        "chosen",
        chosen,
        "func",
        func,
        "versions",
        versions.at,
        "file",
        file,
        "batch",
        batch_comment(d),
        "train",
        training_comment(d),
        "selftest",
        selftest_comment(d),
        "dims_comment",
        deploy_dim_comment(d),
        "dims_section",
        deploy_dim_section(d),
        "model",
        d->model,
        "sizes",
        deploy_sizes(d),
        "sized",
        d->npredict > 1 ? "of the first batch size, and by batch size" : "elements, bytes, shapes",
        NULL};
    return deploy_write(d, d->keys.path, arena_printf(d->arena, "%s.h", d->keys.lib_name),
                        deploy_fill(d->arena, deploy_text("network.h"), pairs));
}

/* -- the example */

static const char *c_type(const struct sol_tensor *t)
{
    return dtype_def((enum sol_dtype)t->dtype)->c_name;
}

/* An example for a library without memory allocation: arrays for inputs and outputs. */
static sol_status write_bare_program(struct deploy *d, const char *template, const char *file)
{
    struct text arrays = text_new(d->arena), in = text_new(d->arena), out = text_new(d->arena);
    const char *name = deploy_macro_name(d), *elements = deploy_varies(d) ? "MOST_ELEMENTS" : "ELEMENTS";
    for (int i = 0; i < deploy_inputs(d); i++) {
        text_put(&arrays, "static %s in%d[%s_IN%d_%s + 1];\n", c_type(d->g->inputs.at[i]), i, name, i, elements);
        text_put(&in, "in%d, ", i);
    }
    for (int i = 0; i < d->noutput; i++) {
        text_put(&arrays, "static %s out%d[%s_OUT%d_%s + 1];\n", c_type(d->g->outputs.at[i].t), i, name, i, elements);
        text_put(&out, "out%d, ", i);
    }
    text_put(&arrays, "static char block[%s_CONTEXT_BYTES(1)];\n\n", name);
    const char *lists =
        arena_printf(d->arena, "    void *in[] = {%sNULL}, *out[] = {%sNULL};", in.at ? in.at : "", out.at);
    const char *func = d->keys.func_name;
    const char *call = arena_printf(d->arena,
                                    "%s\n    struct %s_context *c = %s_context_create(block, sizeof block, 1);\n"
                                    "    const int error = c ? %s_selftest(c, in, out, &found) : 1;",
                                    lists, func, func, func);
    const char *const pairs[] = {
        "lib",     d->keys.lib_name, "func", func,   "FUNC", name,      "arrays",
        arrays.at, "lists",          lists,  "call", call,   "example", deploy_dim_example(d, 0),
        NULL};
    return write_unless_foreign(d, file, deploy_fill(d->arena, deploy_text(template), pairs));
}

static sol_status write_check(struct deploy *d)
{
    if (!deploy_tests_itself(d)) return SOL_OK;
    if (d->bare) return write_bare_program(d, "check.c", "check.c");
    const char *call =
        arena_printf(d->arena, "    const int error = %s_selftest(NULL, NULL, NULL, &found);", d->keys.func_name);
    return write_unless_foreign(d, "check.c",
                                deploy_fill(d->arena, deploy_text("check.c"),
                                            (const char *const[]){"lib", d->keys.lib_name, "func", d->keys.func_name,
                                                                  "arrays", "", "call", call, NULL}));
}

static sol_status write_example(struct deploy *d)
{
    struct text declare = text_new(d->arena), call = text_new(d->arena), show = text_new(d->arena);
    struct text compare = text_new(d->arena), release = text_new(d->arena);
    const char *func = d->keys.func_name;
    const bool varies = deploy_varies(d);
    if (d->there.native) return write_unless_foreign(d, "example.c", deploy_native_example(d));
    if (d->bare) return write_bare_program(d, varies ? "example_bare_sized.c" : "example_bare.c", "example.c");
    for (int i = 0; i < deploy_inputs(d); i++) text_put(&call, ", in[%d]", i);
    text_put(&compare, "    int same = 1;\n");
    for (int i = 0; i < d->noutput; i++) {
        text_put(&declare, "    %s *out%d = NULL;\n", c_type(d->g->outputs.at[i].t), i);
        text_put(&call, ", &out%d", i);
        const char *bytes = arena_printf(d->arena, varies ? "(size_t)%s_output_bytes(%d, %s)" : "%s_output(%d)->bytes",
                                         func, i, deploy_dim_list(d, ""));
        text_put(&show, "    show(%s_output(%d)", func, i);
        if (varies) text_put(&show, ", %s_output_bytes(%d, %s)", func, i, deploy_dim_list(d, ""));
        text_put(&show, ", out%d);\n", i);
        text_put(&compare, "    same &= !memcmp(out%d, mine[%d], %s);\n", i, i, bytes);
        text_put(&release, "    sol_ext_free(out%d);\n", i);
    }
    const char *const pairs[] = {"lib",     d->keys.lib_name,
                                 "func",    func,
                                 "ninput",  arena_printf(d->arena, "%d", deploy_inputs(d)),
                                 "noutput", arena_printf(d->arena, "%d", d->noutput),
                                 "declare", declare.at,
                                 "call",    call.at,
                                 "show",    show.at,
                                 "compare", compare.at,
                                 "free",    release.at,
                                 "dims",    deploy_dim_parameters(d),
                                 "list",    deploy_dim_list(d, ""),
                                 "example", deploy_dim_example(d, 0),
                                 "other",   deploy_dim_example(d, 1),
                                 NULL};
    const char *template = deploy_text(varies ? "example_sized.c" : "example.c");
    return write_unless_foreign(d, "example.c", deploy_fill(d->arena, template, pairs));
}

/* -- how to build */

static const char *program_name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static const char *joined(struct deploy *d, const char *const *words)
{
    struct text t = text_new(d->arena);
    for (int i = 0; words[i]; i++) text_put(&t, "%s%s", i ? " " : "", words[i]);
    return t.at ? t.at : "";
}

/* In a cross build the example runs in an emulator. */
static const char *runner(const struct deploy *d)
{
    return d->cross ? d->toolchain->runner : "";
}

/* What a program links besides. */
static const char *libraries(const struct deploy *d)
{
    return d->bare ? "-lm" : d->there.type ? "-lm -pthread -ldl" : "-lm -pthread";
}

/* Without an operating system, all code of a program is compiled with the processor's flags. */
static const char *processor_flags(struct deploy *d)
{
    if (!d->bare) return "";
    return arena_printf(d->arena, " -march=%s%s%s", d->version[0].march, *d->keys.flags ? " " : "", d->keys.flags);
}

/* The rules of `make check`. */
static const char *check_rule(struct deploy *d, const char *needs, const char *link)
{
    if (!deploy_tests_itself(d)) return "";
    return arena_printf(d->arena,
                        "selftest: check.c %s.h %s\n\t$(CC) $(CFLAGS)%s check.c -o $@ -I. $(LDFLAGS) %s\n\n"
                        "check: selftest\n\t%s./selftest\n\n",
                        d->keys.lib_name, needs, processor_flags(d), link, runner(d));
}

static sol_status write_library_makefile(struct deploy *d)
{
    const bool checks = deploy_tests_itself(d);
    const char *file = deploy_library(d);
    const char *link = d->target == DEPLOY_SHARED ? arena_printf(d->arena, "-L. -l:%s -Wl,-rpath,'$$ORIGIN'", file)
                                                  : arena_printf(d->arena, "%s %s", file, libraries(d));
    const char *const pairs[] = {"lib",        d->keys.lib_name,
                                 "file",       file,
                                 "link",       link,
                                 "cc",         program_name_of(d->cc),
                                 "run",        runner(d),
                                 "flags",      processor_flags(d),
                                 "check_file", checks ? " selftest" : "",
                                 "check_name", checks ? " check" : "",
                                 "check",      check_rule(d, file, link),
                                 NULL};
    return write_unless_foreign(d, "Makefile", deploy_fill(d->arena, deploy_text("Makefile.lib"), pairs));
}

/* The flags of a version: the common flags, then its own. */
static bool in_all(const struct deploy *d, const char *flag)
{
    for (int i = 0; i < d->nversion; i++) {
        bool found = false;
        for (int k = 0; d->version[i].flags[k]; k++) found |= !strcmp(d->version[i].flags[k], flag);
        if (!found) return false;
    }
    return d->bare || (strncmp(flag, "-march", 6) && strncmp(flag, "-mtune", 6));
}

static const char *code_flags(struct deploy *d, const struct deploy_version *v, bool own)
{
    VECTOR(const char *) flags = {0};
    for (int i = 0; v->flags[i]; i++)
        if (in_all(d, v->flags[i]) != own && strcmp(v->flags[i], GCC_ONLY)) PUSH(d->arena, flags, v->flags[i]);
    PUSH(d->arena, flags, NULL);
    return joined(d, flags.at);
}

static sol_status write_source_makefile(struct deploy *d)
{
    struct text objects = text_new(d->arena), rules = text_new(d->arena), files = text_new(d->arena);
    const bool inside = !strcmp(d->keys.weights, "inside");
    const char *lib = d->keys.lib_name;
    text_put(&objects, "%s.o %s_network.o%s%s%s", lib, lib, inside ? " " : "", inside ? lib : "",
             inside ? "_weights.o" : "");
    text_put(&files, "%s.c %s_network.c%s%s%s", lib, lib, inside ? " " : "", inside ? lib : "",
             inside ? "_weights.c" : "");
    for (int i = 0; i < d->nversion; i++) {
        const struct deploy_version *v = &d->version[i];
        text_put(&objects, " $(patsubst %%.c,%%.o,$(wildcard %s/*.c))", v->id);
        text_put(&files, " %s/*.c", v->id);
        text_put(&rules, "%s/%%.o: %s/%%.c %s sol/module.h\n\t$(CC) $(ALL_CFLAGS) %s -c $< -o $@\n\n", v->id, v->id,
                 d->there.type ? "" : arena_printf(d->arena, "%s/vectors.h", v->id), code_flags(d, v, true));
    }
    if (d->there.type) {
        text_put(&objects, " %s_device.o", lib);
        text_put(&files, " %s_device.c", lib);
        text_put(&rules, "%s_device.o: %s_device.c %s_names.h\n\t$(CC) $(ALL_CFLAGS) -c $< -o $@\n\n", lib, lib, lib);
    }
    const char *one =
        arena_printf(d->arena, d->bare ? "%s -c %s %s -I. -Wa,-I. %s" : "%s -shared %s %s -I. -Wa,-I. %s -o %s.so %s",
                     program_name_of(d->cc), code_flags(d, d->version, false), code_flags(d, d->version, true),
                     files.at, lib, libraries(d));
    const char *shared = arena_printf(d->arena,
                                      "%s.so: $(OBJECTS)\n\t$(CC) -shared -o $@ $(OBJECTS) -Wl,--gc-sections "
                                      "-Wl,--as-needed $(LDLIBS)\n\n",
                                      lib);
    const char *weights = arena_printf(
        d->arena, "\n%s_weights.o: %s_weights.c %s.weights\n\t$(CC) $(ALL_CFLAGS) -c $< -o $@\n\n", lib, lib, lib);
    const char *const pairs[] = {
        "lib",
        lib,
        "cc",
        program_name_of(d->cc),
        "ar",
        d->cross ? program_name_of(deploy_tool(d, "ar")) : "ar",
        "code",
        code_flags(d, d->version, false),
        "objects",
        objects.at,
        "rules",
        rules.at,
        "one",
        one,
        "gcc",
        GCC_ONLY,
        "weights_rule",
        inside ? weights : "\n",
        "run",
        runner(d),
        "what",
        d->bare ? "" : ", shared and static, and the example",
        "all",
        d->bare ? arena_printf(d->arena, "%s.a", lib) : arena_printf(d->arena, "%s.so %s.a example", lib, lib),
        "shared_rule",
        d->bare ? "" : shared,
        "libs",
        libraries(d),
        "flags",
        processor_flags(d),
        "front",
        d->bare ? "front_bare.c" : "front.c",
        "rt",
        d->bare ? "rt_bare.c" : "sol_rt.c",
        "check_file",
        deploy_tests_itself(d) ? " selftest" : "",
        "check_name",
        deploy_tests_itself(d) ? " check" : "",
        "check",
        check_rule(d, arena_printf(d->arena, "%s.a", lib), arena_printf(d->arena, "%s.a $(LDLIBS)", lib)),
        NULL};
    return write_unless_foreign(d, "Makefile", deploy_fill(d->arena, deploy_text("Makefile.source"), pairs));
}

/* A list of CMake, as a text in quotes has it. */
static const char *as_list(struct deploy *d, const char *words)
{
    char *list = arena_strdup(d->arena, words);
    for (char *c = list; *c; c++)
        if (*c == ' ') *c = ';';
    return list;
}

/* The CMake function that adds the self-test to a project, for the library with this name. */
static const char *cmake_selftest(struct deploy *d, const char *target)
{
    if (!deploy_tests_itself(d)) return "";
    return deploy_fill(d->arena, deploy_text("selftest.cmake"),
                       (const char *const[]){"id", text_identifier(d->arena, d->keys.lib_name), "target", target,
                                             "flags", processor_flags(d), NULL});
}

/* If the source is the top-level project, its tests include the self-test, provided that its program can run here. */
static const char *cmake_own_selftest(struct deploy *d)
{
    if (!deploy_tests_itself(d)) return "";
    return arena_printf(d->arena,
                        "%sif(CMAKE_SOURCE_DIR STREQUAL CMAKE_CURRENT_SOURCE_DIR\n"
                        "    AND (NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR))\n"
                        "  enable_testing()\n  %s_add_selftest()\nendif()\n",
                        cmake_selftest(d, d->keys.lib_name), text_identifier(d->arena, d->keys.lib_name));
}

static sol_status write_source_cmake(struct deploy *d)
{
    struct text sources = text_new(d->arena);
    const bool inside = !strcmp(d->keys.weights, "inside");
    const char *lib = d->keys.lib_name, *id = text_identifier(d->arena, lib);
    const char *example = d->bare ? ""
                                  : deploy_fill(d->arena, deploy_text("CMakeLists.example"),
                                                (const char *const[]){"lib", lib, "id", id, NULL});
    if (inside)
        text_put(&sources,
                 "set_source_files_properties(%s_weights.c PROPERTIES\n"
                 "  OBJECT_DEPENDS \"${CMAKE_CURRENT_SOURCE_DIR}/%s.weights\")\n",
                 lib, lib);
    for (int i = 0; i < d->nversion; i++) {
        const struct deploy_version *v = &d->version[i];
        text_put(&sources,
                 "\nfile(GLOB %s_%s CONFIGURE_DEPENDS \"${CMAKE_CURRENT_SOURCE_DIR}/%s/*.c\")\n"
                 "set_source_files_properties(${%s_%s} PROPERTIES COMPILE_OPTIONS \"%s\")\n"
                 "target_sources(%s PRIVATE ${%s_%s})\n",
                 id, v->id, v->id, id, v->id, as_list(d, code_flags(d, v, true)), lib, id, v->id);
    }
    const char *const pairs[] = {"lib",
                                 lib,
                                 "id",
                                 id,
                                 "files",
                                 arena_printf(d->arena, "%s.c %s_network.c%s%s", lib, lib,
                                              inside ? arena_printf(d->arena, " %s_weights.c", lib) : "",
                                              d->there.type ? arena_printf(d->arena, " %s_device.c", lib) : ""),
                                 "code",
                                 code_flags(d, d->version, false),
                                 "gcc",
                                 GCC_ONLY,
                                 "libs",
                                 d->bare         ? "m"
                                 : d->there.type ? "m -pthread dl"
                                                 : "m -pthread",
                                 "sources",
                                 sources.at,
                                 "kind",
                                 d->bare ? "STATIC " : "",
                                 "what",
                                 d->bare ? "" : ", static, or shared with -DBUILD_SHARED_LIBS=ON, and the example",
                                 "example",
                                 example,
                                 "selftest",
                                 cmake_own_selftest(d),
                                 NULL};
    return write_unless_foreign(d, "CMakeLists.txt", deploy_fill(d->arena, deploy_text("CMakeLists.source"), pairs));
}

/* For other build systems. */
static sol_status write_configurations(struct deploy *d)
{
    const char *lib = d->keys.lib_name;
    const bool shared = d->target == DEPLOY_SHARED;
    const char *const pc[] = {
        "lib",
        lib,
        "name",
        deploy_string(d->arena, d->g->name),
        "sol",
        sol_version(),
        "libs",
        arena_printf(d->arena, "-L${prefix} -l:%s%s", deploy_library(d),
                     shared ? " -Wl,-rpath,${prefix}" : arena_printf(d->arena, " %s", libraries(d))),
        NULL};
    const char *const cmake[] = {"lib",
                                 lib,
                                 "file",
                                 deploy_library(d),
                                 "kind",
                                 shared ? "SHARED" : "STATIC",
                                 "libs",
                                 shared          ? ""
                                 : d->bare       ? "\n    INTERFACE_LINK_LIBRARIES m"
                                 : d->there.type ? "\n    INTERFACE_LINK_LIBRARIES \"m;-pthread;dl\""
                                                 : "\n    INTERFACE_LINK_LIBRARIES \"m;-pthread\"",
                                 "selftest",
                                 cmake_selftest(d, arena_printf(d->arena, "%s::%s", lib, lib)),
                                 NULL};
    TRY(deploy_write(d, d->keys.path, arena_printf(d->arena, "%s.pc", lib),
                     deploy_fill(d->arena, deploy_text("pkgconfig.pc"), pc)));
    return deploy_write(d, d->keys.path, arena_printf(d->arena, "%sConfig.cmake", lib),
                        deploy_fill(d->arena, deploy_text("config.cmake"), cmake));
}

static sol_status write_wrapper(struct deploy *d)
{
    const char *module = arena_printf(d->arena, "%s_numpy", text_identifier(d->arena, d->keys.lib_name));
    const char *run =
        deploy_fill(d->arena, deploy_text(deploy_varies(d) ? "wrapper_sized.py" : "wrapper_run.py"),
                    (const char *const[]){"func", d->keys.func_name, "where", deploy_dim_places(d), NULL});
    const char *const pairs[] = {"lib",    d->keys.lib_name,
                                 "func",   d->keys.func_name,
                                 "module", module,
                                 "name",   text_identifier(d->arena, d->g->name),
                                 "run",    run,
                                 NULL};
    const char *text = deploy_fill(d->arena, deploy_text("wrapper.py"), pairs);
    if (deploy_tests_itself(d))
        text = arena_printf(d->arena, "%s%s", text, deploy_fill(d->arena, deploy_text("selftest.py"), pairs));
    return deploy_write(d, d->keys.path, arena_printf(d->arena, "%s.py", module), text);
}

sol_status deploy_kit(struct deploy *d)
{
    TRY(write_header(d));
    TRY(write_example(d));
    TRY(write_check(d));
    if (d->target == DEPLOY_SOURCE) {
        TRY(write_source_makefile(d));
        TRY(write_source_cmake(d));
        return d->bare || d->there.native ? SOL_OK : write_wrapper(d);
    }
    TRY(write_library_makefile(d));
    TRY(write_configurations(d));
    return d->target == DEPLOY_SHARED && !d->there.native ? write_wrapper(d) : SOL_OK;
}
