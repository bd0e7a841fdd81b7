/* Loads a deployed library, runs it on many threads and unloads it, repeatedly. argv[1] is its path, argv[2] its
 * function, argv[3] and argv[4] the bytes of its only input and output. Threads, memory and mappings must not be left
 * behind. */
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int tasks(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/task");
    for (struct dirent *e; dir && (e = readdir(dir));) n += e->d_name[0] != '.';
    if (dir) closedir(dir);
    return n;
}

static void *symbol(void *handle, const char *func, const char *end)
{
    char name[128];
    snprintf(name, sizeof name, "%s%s", func, end);
    return dlsym(handle, name);
}

int main(int argc, char **argv)
{
    if (argc < 5) return 2;
    void *in = calloc(1, strtoul(argv[3], NULL, 10)), *first = malloc(strtoul(argv[4], NULL, 10));
    for (int i = 0; i < 4; i++) {
        void *handle = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL), *out = NULL;
        if (!handle) return puts(dlerror()), 3;
        void (*predict)(void *, const void *, void **);
        int (*threads)(void *, int);
        void (*release)(void *);
        *(void **)&predict = symbol(handle, argv[2], "");
        *(void **)&threads = symbol(handle, argv[2], "_context_threads");
        *(void **)&release = dlsym(handle, "sol_ext_free");
        threads(NULL, 3);
        predict(NULL, in, &out);
        if (!out) return 4;
        if (i && memcmp(out, first, strtoul(argv[4], NULL, 10))) return 5;
        memcpy(first, out, strtoul(argv[4], NULL, 10));
        release(out);
        if (dlclose(handle)) return 6;
        if (dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD)) return 7;
        if (tasks() != 1) return 8;
    }
    free(in);
    free(first);
    return 0;
}
