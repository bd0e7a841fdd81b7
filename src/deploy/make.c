/* Builds a library from the sources: compilers in parallel, then the linker. A static library is a single object that
 * exports only the functions of the header, so that its other names cannot clash. */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "build/build.h"
#include "deploy/deploy.h"
#include "rt/rt.h"

sol_status deploy_run(struct deploy *d, const char *what, const char *const *argv, const char **out_output)
{
    const char *output;
    int exit;
    TRY(process_run(d->arena, argv, &exit, &output));
    if (exit)
        return ctx_fail(d->ctx, SOL_ERR_COMPILER, "deploy: %s: %s failed (%d): %.1500s", what, argv[0], exit, output);
    if (out_output) *out_output = output;
    return SOL_OK;
}

const char *deploy_library(const struct deploy *d)
{
    return arena_printf(d->arena, "%s.%s", d->keys.lib_name, d->target == DEPLOY_STATIC ? "a" : "so");
}

const char *deploy_tool(const struct deploy *d, const char *name)
{
    if (!d->cross) return name;
    const char *slash = strrchr(d->cc, '/'), *dash = strrchr(d->cc, '-');
    if (!dash || (slash && dash < slash)) return name;
    return arena_printf(d->arena, "%.*s-%s", (int)(dash - d->cc), d->cc, name);
}

/* -- compiling */

static const char *object_of(struct deploy *d, int i)
{
    return arena_printf(d->arena, "%s/%d.o", d->work, i);
}

static const char *const *command(struct deploy *d, int i)
{
    const struct deploy_source *s = &d->sources.at[i];
    const char *const *flags = deploy_flags(d, s->kernel_of);
    words argv = {0};
    PUSH(d->arena, argv, d->cc);
    for (int k = 0; flags[k]; k++) PUSH(d->arena, argv, flags[k]);
    PUSH(d->arena, argv, "-w");
    PUSH(d->arena, argv, arena_printf(d->arena, "-I%s", d->work));
    PUSH(d->arena, argv, arena_printf(d->arena, "-Wa,-I%s", d->work));
    PUSH(d->arena, argv, arena_printf(d->arena, "-I%s", d->keys.path));
    PUSH(d->arena, argv, "-c");
    PUSH(d->arena, argv, deploy_file(d, d->work, s->file));
    PUSH(d->arena, argv, "-o");
    PUSH(d->arena, argv, object_of(d, i));
    PUSH(d->arena, argv, NULL);
    return argv.at;
}

static sol_status finish(struct deploy *d, struct process **p, const char *source)
{
    int exit;
    const char *output;
    sol_status status = process_wait(d->ctx, *p, &exit, &output);
    if (!status && exit)
        status = ctx_fail(d->ctx, SOL_ERR_COMPILER, "deploy: compiler '%s' rejected %s (%d): %.1500s", d->cc, source,
                          exit, output);
    process_free(d->ctx, *p);
    *p = NULL;
    return status;
}

static sol_status compile(struct deploy *d, struct process **running)
{
    const int limit = rt_processors();
    int next = 0, active = 0;
    while (next < d->sources.n || active) {
        TRY(ctx_check(d->ctx));
        while (next < d->sources.n && active < limit) {
            TRY(process_start(d->ctx, command(d, next), &running[next]));
            next++, active++;
        }
        bool ended = false;
        for (int i = 0; i < next; i++) {
            if (!running[i] || !process_done(running[i])) continue;
            TRY(finish(d, &running[i], d->sources.at[i].file));
            active--;
            ended = true;
            ctx_progress(d->ctx, "Compiling the library", next - active, d->sources.n);
        }
        if (!ended) nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
    return SOL_OK;
}

static sol_status compile_all(struct deploy *d)
{
    struct process **running = NEW_ARRAY(d->arena, struct process *, d->sources.n + 1);
    const sol_status status = compile(d, running);
    for (int i = 0; i < d->sources.n; i++) /* kills what an error left running */
        process_free(d->ctx, running[i]);
    return status;
}

/* -- linking */

static void push_objects(struct deploy *d, words *argv)
{
    for (int i = 0; i < d->sources.n; i++) PUSH(d->arena, *argv, object_of(d, i));
    for (int i = 0; i < d->functions.n; i++) function_link(d->arena, d->functions.at[i]->objects, argv);
}

static sol_status link_shared(struct deploy *d)
{
    static const char *const flags[] = {"-shared",         "-s",          "-Wl,--gc-sections", "-Wl,--build-id=none",
                                        "-Wl,--as-needed", "-Wl,-z,defs", "-Wl,-z,noexecstack"};
    words argv = {0};
    PUSH(d->arena, argv, d->cc);
    for (int i = 0; i < COUNT_OF(flags); i++) PUSH(d->arena, argv, flags[i]);
    PUSH(d->arena, argv, arena_printf(d->arena, "-Wl,-soname,%s", deploy_library(d)));
    PUSH(d->arena, argv, "-o");
    PUSH(d->arena, argv, deploy_file(d, d->keys.path, deploy_library(d)));
    push_objects(d, &argv);
    PUSH(d->arena, argv, "-lm");
    PUSH(d->arena, argv, "-pthread");
    if (d->there.type) PUSH(d->arena, argv, "-ldl");
    PUSH(d->arena, argv, NULL);
    return deploy_run(d, "linking", argv.at, NULL);
}

/* One object of all. */
static sol_status link_object(struct deploy *d, const char *object)
{
    const bool named = strcmp(d->keys.elf, "auto") || strcmp(d->keys.oformat, "auto");
    words argv = {0};
    PUSH(d->arena, argv, d->cc);
    PUSH(d->arena, argv, "-r");
    PUSH(d->arena, argv, "-nostdlib");
    if (strcmp(d->keys.elf, "auto")) PUSH(d->arena, argv, arena_printf(d->arena, "-Wl,-m,%s", d->keys.elf));
    if (strcmp(d->keys.oformat, "auto"))
        PUSH(d->arena, argv, arena_printf(d->arena, "-Wl,--oformat,%s", d->keys.oformat));
    PUSH(d->arena, argv, "-o");
    PUSH(d->arena, argv, object);
    push_objects(d, &argv);
    PUSH(d->arena, argv, NULL);
    return deploy_run(d, named ? "linking as gcc::elf and gcc::oformat say" : "linking", argv.at, NULL);
}

static sol_status link_static(struct deploy *d)
{
    const char *object = deploy_file(d, d->work, arena_printf(d->arena, "%s.o", d->keys.lib_name));
    const char *library = deploy_file(d, d->keys.path, deploy_library(d));
    TRY(link_object(d, object));
    TRY(deploy_run(
        d, "symbols",
        (const char *const[]){deploy_tool(d, "objcopy"), "--localize-hidden", "--strip-unneeded", object, NULL}, NULL));
    unlink(library); /* ar would add to what is there */
    TRY(deploy_run(d, "library", (const char *const[]){deploy_tool(d, "ar"), "rcsD", library, object, NULL}, NULL));
    LOG(d->ctx, LOG_INFO, "core", "Please link the following libraries and flags to your application.");
    LOG(d->ctx, LOG_INFO, "core", "    -L%s", d->keys.path);
    LOG(d->ctx, LOG_INFO, "core", "    -l:%s", deploy_library(d));
    LOG(d->ctx, LOG_INFO, "core", "    -lm");
    if (!d->bare) LOG(d->ctx, LOG_INFO, "core", "    -pthread");
    if (d->there.type) LOG(d->ctx, LOG_INFO, "core", "    -ldl");
    return SOL_OK;
}

sol_status deploy_make(struct deploy *d)
{
    TRY(compile_all(d));
    return d->target == DEPLOY_SHARED ? link_shared(d) : link_static(d);
}
