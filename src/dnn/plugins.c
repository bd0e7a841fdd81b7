/* Finds the installed plug-ins. A file with the right name that cannot be loaded (its library is missing) counts as
 * absent. A loaded plug-in is never unloaded, because kernels of cached modules call it. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "dnn/dnn.h"
#include "sol/plugin.h"

static const char *const names[] = {
#define X(name) #name,
#include "dnn/plugins.def"
#undef X
};

/* The folder of plug-ins in a source checkout: beside the folder that this code was loaded from, or inside it. */
static const char *build_folder(struct arena *a, const char *below)
{
    Dl_info info;
    char *path = dladdr(names, &info) && info.dli_fname ? realpath(info.dli_fname, NULL) : NULL;
    char *end = path ? strrchr(path, '/') : NULL;
    const char *folder = end ? arena_printf(a, "%.*s/%s", (int)(end - path), path, below) : NULL;
    free(path);
    return folder;
}

static bool load(struct sol_ctx *ctx, struct arena *a, const char *folder, const char *name, struct plugin *out)
{
    char *real = realpath(arena_printf(a, "%s/sol-%s.so", folder, name), NULL);
    if (!real) return false;
    const char *path = arena_strdup(a, real);
    free(real);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    const struct sol_plugin *p = handle ? dlsym(handle, "sol_plugin") : NULL;
    const bool ours = p && p->size >= sizeof *p && p->version == SOL_PLUGIN_VERSION && !strcmp(p->name, name);
    *out = (struct plugin){.name = name, .path = path};
    if (ours) {
        out->library = arena_strdup(a, p->library);
        out->gemm = dlsym(handle, "sol_plugin_gemm") != NULL;
        if (dlsym(handle, "sol_plugin_conv_find") && dlsym(handle, "sol_plugin_conv_run"))
            out->conv_plan = (int (*)(struct sol_plugin_conv *))dlsym(handle, "sol_plugin_conv_plan");
    }
    const bool good = out->gemm || out->conv_plan;
    if (!good)
        LOG(ctx, LOG_WARN, "dnn", "plug-in %s is not used: %s", path,
            handle ? "expected the symbols and the version of sol/plugin.h" : dlerror());
    if (handle) dlclose(handle);
    return good;
}

const struct plugins *plugins_load(struct sol_ctx *ctx, struct arena *a)
{
    const char *key = ctx_config(ctx, "plugins");
    if (!*key || !strcmp(key, "off")) return NULL;
    const bool own = strcmp(key, "auto") != 0;
    const char *const folders[] = {own ? key : build_folder(a, "../plugins"), own ? NULL : build_folder(a, "plugins"),
                                   own ? NULL : SOL_PLUGIN_FOLDER};
    struct plugins *p = NEW(a, struct plugins);
    p->n = 0;
    for (int i = 0; i < COUNT_OF(names); i++)
        for (int k = 0; k < COUNT_OF(folders); k++)
            if (folders[k] && load(ctx, a, folders[k], names[i], &p->at[p->n])) {
                LOG(ctx, LOG_DEBUG, "dnn", "plug-in %s: %s", p->at[p->n].path, p->at[p->n].library);
                p->n++;
                break;
            }
    return p->n ? p : NULL;
}
