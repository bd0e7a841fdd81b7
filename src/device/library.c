#include "device/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static void *open_file(const char *folders, const char *file)
{
    char path[600];
    const char *name = strrchr(file, '/') ? strrchr(file, '/') + 1 : file;
    void *library = *file == '/' ? dlopen(file, RTLD_NOW | RTLD_LOCAL) : NULL;
    for (const char *f = folders; *file != '/' && f && *f && !library; f += strcspn(f, ":"), f += *f == ':') {
        snprintf(path, sizeof path, "%.*s/%s", (int)strcspn(f, ":"), f, file);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return library ? library : dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

const char *library_open(const struct sol_host *host, const char *option, const char *const files[], int n,
                         const struct library_symbol *symbol)
{
    char named[300] = "";
    void *library = NULL;
    host->option(host->user, option, named, sizeof named);
    if (*named) library = dlopen(named, RTLD_NOW | RTLD_LOCAL);
    for (int i = 0; i < n && !*named && !library; i++)
        library = open_file(host->config(host->user, "device::libraries"), files[i]);
    if (!library) return "not found";
    for (; symbol->name; symbol++) {
        void *f = dlsym(library, symbol->name);
        if (!f) return dlerror();
        memcpy(symbol->to, &f, sizeof f);
    }
    return NULL;
}
