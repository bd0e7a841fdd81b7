/* Files of the system in which libveda looks for devices: one with `cores` cores. libveda is opened here with
 * RTLD_DEEPBIND, so that it, and nothing else of the process, finds these functions and not those of libc. */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "double.h"

static char root[] = "/tmp/sol-ve-double-XXXXXX";

long setting(const char *name, long otherwise)
{
    const char *at = getenv("SOL_VE_DOUBLE");
    const size_t n = strlen(name);
    for (; at && *at; at += strcspn(at, ","), at += *at == ',')
        if (!strncmp(at, name, n) && at[n] == '=') return atol(at + n + 1);
    return otherwise;
}

static const char *elsewhere(const char *path, char out[300])
{
    if (!strncmp(path, "/dev/veslot", 11) || !strcmp(path, "/dev/"))
        snprintf(out, 300, "%s%s", root, path);
    else if (strstr(path, "/sys/class/ve/ve"))
        snprintf(out, 300, "%s/sys/%s", root, strrchr(path, '/') + 1);
    else
        return path;
    if (strstr(out, "/sys/") && access(out, R_OK)) snprintf(out, 300, "%s/sys/others", root); /* 0 */
    if (getenv("SOL_VE_DOUBLE_SHOW")) fprintf(stderr, "libveda opens %s\n", path);
    return out;
}

API DIR *opendir(const char *path)
{
    char room[300];
    DIR *(*next)(const char *);
    *(void **)&next = dlsym(RTLD_NEXT, "opendir");
    return next(elsewhere(path, room));
}

/* How C++ opens a file: std::filebuf::open. */
#define OPEN "_ZNSt13basic_filebufIcSt11char_traitsIcEE4openEPKcSt13_Ios_Openmode"
API void *open_stream(void *stream, const char *path, int mode) __asm__(OPEN);
void *open_stream(void *stream, const char *path, int mode)
{
    char room[300];
    void *(*next)(void *, const char *, int);
    *(void **)&next = dlsym(dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL), OPEN);
    return next(stream, elsewhere(path, room), mode);
}

API int __xstat(int version, const char *path, struct stat *out)
{
    char room[300];
    (void)version;
    const int error = fstatat(AT_FDCWD, elsewhere(path, room), out, 0);
    if (!error && strstr(path, "/veslot")) out->st_mode = S_IFCHR | 0600;
    return error;
}

/* -- libudev, by which libveda finds the folder of a device. They are here, because the system's own may be open */

API void *udev_new(void)
{
    return root;
}

API void *udev_device_new_from_devnum(void *udev, char type, unsigned long number)
{
    (void)udev, (void)type, (void)number;
    return root;
}

API const char *udev_device_get_syspath(void *device)
{
    (void)device;
    return "/sys/devices/ve0";
}

API void *udev_device_unref(void *device)
{
    (void)device;
    return NULL;
}

API void *udev_unref(void *udev)
{
    (void)udev;
    return NULL;
}

/* -- begin and end */

static void put_file(const char *folder, const char *name, const char *value)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s/%s", root, folder, name);
    FILE *f = fopen(path, "we");
    if (!f) return;
    fprintf(f, "%s\n", value);
    fclose(f);
}

static void make_files(void)
{
    static const char *const folders[] = {"dev", "sys"};
    static const struct {
        const char *name, *value;
    } facts[] = {{"ve_arch_class", "ve1"}, {"abi_version", "1"}, {"clock_base", "100"}, {"clock_chip", "1400"},
                 {"clock_memory", "1600"}, {"cache_l1d", "32"},  {"cache_l1i", "32"},   {"cache_l2", "256"},
                 {"cache_llc", "16384"},   {"fw_version", "1"},  {"model", "1"},        {"type", "1"}};
    char path[300];
    if (!mkdtemp(root)) return;
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", root, folders[i]);
        mkdir(path, 0700);
    }
    put_file("dev", "veslot0", "");
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) put_file("sys", facts[i].name, facts[i].value);
    snprintf(path, sizeof path, "%ld", setting("cores", 8));
    put_file("sys", "num_of_core", path);
    snprintf(path, sizeof path, "%lx", (1L << setting("cores", 8)) - 1);
    put_file("sys", "cores_enable", path);
    put_file("sys", "memory_size", "4");
    put_file("sys", "others", "0");
}

__attribute__((constructor)) static void begin(void)
{
    glob_t found;
    Dl_info here;
    make_files();
    if (dladdr(root, &here))
        dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL); /* code of the device needs it */
    dlopen("libudev.so.1", RTLD_NOW | RTLD_LOCAL); /* libveda finds them by their names where they are open */
    dlopen("libtungl.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!glob(SOURCE_ROOT "/.venv-ve/lib/python3*/site-packages/veda/lib64/libveda.so.2", 0, NULL, &found)) {
        if (!dlopen(found.gl_pathv[0], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND)) fprintf(stderr, "%s\n", dlerror());
        globfree(&found);
    }
}

__attribute__((destructor)) static void end(void)
{
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", root);
    if (system(command)) return;
}
