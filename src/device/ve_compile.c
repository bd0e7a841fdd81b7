/* Code for Vector Engines, made without one: a library of a network's kernels and tables, the runtime and ve_main.c.
 * NEC's compiler makes long vectors of the loops; clang 19 compiles them as they are, and links with NEC's linker and
 * libraries. Any other compiler that the option ve.compiler names makes code for a double of the device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "build/build.h"
#include "device/inside.h"
#include "device/tool.h"
#include "device/veda.h"

enum { WORDS = 64 };

/* The files beside kernels.c, as texts in this library. */
extern const struct {
    const char *name, *text;
} ve_texts[];
static const struct {
    const char *text, *path;
} files[] = {{"module.h", "sol/module.h"},     {"rt.h", "rt/rt.h"},      {"ve_run.h", "ve_run.h"},
             {"processors.c", "processors.c"}, {"sol_rt.c", "sol_rt.c"}, {"ve_main.c", "ve_main.c"}};

static const struct kind { /* of compiler; the last is any other */
    const char *sign;      /* in what --version says */
    const char *flags;
    bool meaning; /* takes the flags that the text needs */
} kinds[] = {
    {"NCC", "-O3 -std=gnu11 -fPIC -fno-fast-math", false}, {"clang", "--target=ve-linux", true}, {"", "", true}};
static const char *const names[] = {"/opt/nec/ve/bin/ncc", "ncc", "clang-19"};

struct found {
    const char *path, *version; /* the first line that it says */
    const struct kind *kind;
};

static bool ask(struct arena *a, const char *path, struct found *out)
{
    const char *said = "";
    int exit = 0;
    if (process_run(a, (const char *const[]){path, "--version", NULL}, &exit, &said) || exit) return false;
    *out = (struct found){path, arena_printf(a, "%.*s", (int)strcspn(said, "\n"), said), kinds};
    while (!strstr(out->version, out->kind->sign)) out->kind++;
    return true;
}

/* The compiler that the option ve.compiler names, otherwise the first that is installed. */
static bool find_compiler(const struct sol_host *host, struct arena *a, struct found *out)
{
    char named[300] = "";
    host->option(host->user, "ve.compiler", named, sizeof named);
    if (*named) return ask(a, arena_strdup(a, named), out);
    for (int i = 0; i < COUNT_OF(names); i++)
        if (ask(a, names[i], out)) return true;
    return false;
}

void ve_compiler(const struct sol_host *host, char *out, size_t room, char *out_why, size_t why_room)
{
    struct found found;
    struct arena *a = arena_create(host_ctx(host));
    *out = *out_why = 0;
    if (a && find_compiler(host, a, &found))
        snprintf(out, room, "%s", found.version);
    else
        snprintf(out_why, why_room, "neither ncc (NEC's SDK) nor clang-19 is installed (option ve.compiler)");
    arena_destroy(a);
}

/* -- compiling */

static int put_words(struct arena *a, const char *text, const char **out, int room)
{
    int n = 0;
    for (; *text && n < room; text += strspn(text, " ")) {
        const int length = (int)strcspn(text, " ");
        out[n++] = arena_printf(a, "%.*s", length, text);
        text += length;
    }
    return n;
}

static sol_status write_files(struct arena *a, const char *folder, const char *kernels)
{
    struct sol_ctx *ctx = arena_ctx(a);
    TRY(file_make_folder(ctx, arena_printf(a, "%s/sol", folder)));
    TRY(file_make_folder(ctx, arena_printf(a, "%s/rt", folder)));
    for (int i = 0; i < COUNT_OF(files); i++) {
        int k = 0;
        while (strcmp(ve_texts[k].name, files[i].text)) k++;
        TRY(file_write(ctx, arena_printf(a, "%s/%s", folder, files[i].path), ve_texts[k].text,
                       strlen(ve_texts[k].text)));
    }
    return file_write(ctx, arena_printf(a, "%s/kernels.c", folder), kernels, strlen(kernels));
}

static sol_status prepare(struct arena *a, const char *folder, const struct sol_code_text *text, void *user,
                          const char *const **out_argv, const char **out_file)
{
    const struct found *cc = user;
    const char **argv = NEW_ARRAY(a, const char *, WORDS), *to = arena_printf(a, "%s/network.vso", folder);
    int n = 0;
    argv[n++] = cc->path;
    n += put_words(a, cc->kind->flags, argv + n, WORDS / 4);
    if (cc->kind->meaning && text->flags) n += put_words(a, text->flags, argv + n, WORDS / 2);
    if (text->debug) argv[n++] = "-g";
    const char *const rest[] = {"-w", "-shared", "-pthread", "-DSOL_DEPLOYED", "-I", folder, "-o", to};
    for (int i = 0; i < COUNT_OF(rest); i++) argv[n++] = rest[i];
    const char *const sources[] = {"kernels.c", "processors.c", "sol_rt.c", "ve_main.c"};
    for (int i = 0; i < COUNT_OF(sources); i++) argv[n++] = arena_printf(a, "%s/%s", folder, sources[i]);
    argv[n++] = "-lm";
    argv[n] = NULL;
    *out_argv = argv;
    *out_file = to;
    return write_files(a, folder, text->text);
}

sol_status ve_compile(const struct sol_device_type *type, const struct sol_host *host, const struct sol_code_text *text,
                      struct sol_blob *out_blob, struct sol_failure *out_why)
{
    struct found cc;
    struct arena *a = arena_create(host_ctx(host));
    (void)type;
    if (!a) return failure_set(out_why, SOL_ERR_NOMEM, "out of memory");
    const sol_status status =
        find_compiler(host, a, &cc)
            ? tool_compile(host, &(struct tool){cc.version, prepare, &cc}, text, out_blob, out_why)
            : failure_set(out_why, SOL_ERR_COMPILER,
                          "there is no compiler for the Vector Engine: neither ncc (NEC's SDK) nor clang-19 is "
                          "installed (option ve.compiler)");
    arena_destroy(a);
    return status;
}
