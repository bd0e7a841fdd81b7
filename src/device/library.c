#include "device/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The path of a file in the first of the folders that has it; an absolute one is its own. */
static bool find_in(const char *folders, const char *file, char *out, size_t room)
{
    snprintf(out, room, "%s", file);
    if (*file == '/') return !access(out, R_OK);
    for (const char *f = folders; f && *f; f += strcspn(f, ":"), f += *f == ':') {
        snprintf(out, room, "%.*s/%s", (int)strcspn(f, ":"), f, file);
        if (!access(out, R_OK)) return true;
    }
    return false;
}

bool library_find(const struct sol_host *host, const char *option, const char *const files[], int n, char *out,
                  size_t room)
{
    host->option(host->user, option, out, room);
    if (*out) return !access(out, R_OK);
    const char *folders = host->config(host->user, "device::libraries");
    for (int i = 0; i < n; i++)
        if (find_in(folders, files[i], out, room)) return true;
    *out = 0;
    return false;
}

static void *open_file(const char *folders, const char *file)
{
    char path[600];
    const char *name = strrchr(file, '/') ? strrchr(file, '/') + 1 : file;
    void *library = find_in(folders, file, path, sizeof path) ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
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
        if (!f) return "it is too old: it lacks a function"; /* what dlerror says is gone after the next call */
        memcpy(symbol->to, &f, sizeof f);
    }
    return NULL;
}

static bool write_all(int fd, const char *data, size_t bytes)
{
    while (bytes) {
        const ssize_t n = write(fd, data, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        data += n;
        bytes -= (size_t)n;
    }
    return true;
}

const char *library_write(const void *data, size_t bytes, const char *suffix, char *out_path, size_t room)
{
    const char *folder = getenv("TMPDIR");
    const int n = snprintf(out_path, room, "%s/sol-XXXXXX%s", folder && *folder ? folder : "/tmp", suffix);
    const int fd = n < (int)room ? mkstemps(out_path, (int)strlen(suffix)) : -1;
    if (fd < 0) return n < (int)room ? strerror(errno) : "the path of TMPDIR is too long";
    bool good = write_all(fd, data, bytes);
    int error = errno;
    if (close(fd) && good) good = false, error = errno;
    if (good) return NULL;
    unlink(out_path);
    return strerror(error);
}

bool option_is(const struct sol_host *host, const char *option, const char *value)
{
    char set[64];
    host->option(host->user, option, set, sizeof set);
    return !strcmp(set, value);
}
