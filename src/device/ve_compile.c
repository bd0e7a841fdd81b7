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
    *out = (struct found){path, tool_says(a, path, "--version", ""), kinds};
    while (out->version && !strstr(out->version, out->kind->sign)) out->kind++;
    return out->version;
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

bool ve_compiler(const struct sol_host *host, char *out, size_t room)
{
    struct found found;
    struct arena *a = arena_create(host_ctx(host));
    const bool there = a && find_compiler(host, a, &found);
    snprintf(out, room, "%s",
             there ? found.version : "neither ncc (NEC's SDK) nor clang-19 is installed (option ve.compiler)");
    arena_destroy(a);
    return there;
}

/* -- compiling */

static sol_status write_files(struct arena *a, const char *folder)
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
    return SOL_OK;
}

static const char *arguments(struct arena *a, const struct kind *k, const struct sol_code_text *text)
{
    return arena_printf(a,
                        "%s %s %s -w -shared -pthread -DSOL_DEPLOYED -I $ -o $/code $/kernels.c $/processors.c "
                        "$/sol_rt.c $/ve_main.c -lm",
                        k->flags, k->meaning && text->flags ? text->flags : "", text->debug ? "-g" : "");
}

sol_status ve_compile(const struct sol_device_type *type, const struct sol_host *host, const struct sol_code_text *text,
                      struct sol_blob *out_blob, struct sol_failure *out_why)
{
    struct found cc;
    char missing[200];
    struct arena *a = arena_create(host_ctx(host));
    (void)type;
    if (!a) return failure_set(out_why, SOL_ERR_NOMEM, "out of memory");
    sol_status status;
    if (find_compiler(host, a, &cc)) {
        const struct tool t = {cc.version, cc.path, arguments(a, cc.kind, text), NULL, "kernels.c", write_files};
        status = tool_compile(host, &t, text->text, out_blob, out_why);
    } else {
        ve_compiler(host, missing, sizeof missing);
        status = failure_set(out_why, SOL_ERR_COMPILER, "there is no compiler for the Vector Engine: %s", missing);
    }
    arena_destroy(a);
    return status;
}
