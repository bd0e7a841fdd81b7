/* Plug-ins with device types. A file that cannot be used counts as absent, and the list of devices says why. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "device/inside.h"

device_plugin_fn *plugin_open(struct arena *a, const char *path, const char **out_why)
{
    char *real = realpath(path, NULL);
    if (!real) {
        *out_why = "no such file";
        return NULL;
    }
    void *handle = dlopen(real, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE), *found = NULL;
    free(real);
    if (!handle)
        *out_why = arena_strdup(a, dlerror());
    else if (!(found = dlsym(handle, "sol_device_plugin")))
        *out_why = "it does not export sol_device_plugin (sol/device.h)";
    device_plugin_fn *plugin;
    memcpy(&plugin, &found, sizeof plugin);
    return plugin;
}

static bool is_name(const char *name)
{
    return name && *name &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == strlen(name);
}

/* The first member that is not there, of those that SOL uses without asking first. NULL: all are there. */
static const char *missing(const struct sol_device_type *t)
{
    const struct {
        const char *name;
        bool there;
    } all[] = {{"flavour", t->flavour},
               {"count", t->count},
               {"info", t->info},
               {"open", t->open},
               {"close", t->close},
               {"alloc", t->alloc},
               {"free", t->free},
               {"compile", t->compile || !t->blob_free},
               {"blob_free", t->blob_free || !t->compile},
               {"load", t->load},
               {"unload", t->unload},
               {"find", t->find || !(t->features & SOL_DEVICE_LAUNCHES)},
               {"queue", t->queue},
               {"unqueue", t->unqueue},
               {"submit", t->submit},
               {"poll", t->poll || t->features & SOL_DEVICE_SYNCHRONOUS}};
    for (int i = 0; i < COUNT_OF(all); i++)
        if (!all[i].there) return all[i].name;
    return NULL;
}

const char *plugin_rejects(struct arena *a, const struct sol_device_type *t)
{
    if (t->size < sizeof *t || t->version != SOL_DEVICE_VERSION)
        return arena_printf(a, "expected version %d of sol/device.h with a table of %zu bytes, got version %u with %u",
                            SOL_DEVICE_VERSION, sizeof *t, t->version, t->size);
    if (!is_name(t->name)) return "its name must consist of letters, digits and '_'";
    const char *name = missing(t);
    return name ? arena_printf(a, "struct sol_device_type: `%s` is missing, which its features need", name) : NULL;
}
