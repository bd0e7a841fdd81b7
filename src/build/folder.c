/* Folders: permission checks, opening, removing. All access goes through open folders and never follows links, so that
 * nobody can substitute other files. */
#include "build/inside.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Does it belong to the user, without access for others? */
static bool is_private(int fd, const char **out_why)
{
    struct stat s;
    *out_why = NULL;
    if (fstat(fd, &s))
        *out_why = strerror(errno);
    else if (s.st_uid != geteuid())
        *out_why = "it belongs to another user, who could put code into it";
    else if (s.st_mode & (S_IWGRP | S_IWOTH))
        *out_why = "other users can write it, and so put code into it (chmod go-w)";
    return !*out_why;
}

int folder_open(int at, const char *name, bool make, const char **out_why)
{
    if (make && mkdirat(at, name, 0700) && errno != EEXIST) {
        *out_why = strerror(errno);
        return -1;
    }
    const int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        struct stat s;
        const bool link = !fstatat(at, name, &s, AT_SYMLINK_NOFOLLOW) && S_ISLNK(s.st_mode);
        *out_why = link ? "it is a symbolic link: name the folder itself" : strerror(errno);
        return -1;
    }
    if (is_private(fd, out_why)) return fd;
    close(fd);
    return -1;
}

int folder_open_path(struct sol_ctx *ctx, const char *path, bool make, const char **out_why)
{
    char text[PATH_MAX];
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--; /* behind a link it would follow it */
    if (n >= sizeof text) {
        *out_why = "the name is too long";
        return -1;
    }
    memcpy(text, path, n);
    text[n] = 0;
    char *last = strrchr(text, '/');
    if (make && last && last > text) {
        *last = 0;
        const sol_status status = file_make_folder(ctx, text);
        *last = '/';
        if (status) {
            *out_why = sol_error(ctx);
            return -1;
        }
    }
    return folder_open(AT_FDCWD, text, make, out_why);
}

/* The check of ssh: all folders above belong to the user or root, and nobody else can rename their entries. */
bool folder_is_reached_safely(const char *path)
{
    char text[PATH_MAX];
    if (!realpath(path, text)) return false;
    for (char *slash; (slash = strrchr(text, '/'));) {
        struct stat s;
        slash[slash == text] = 0;
        if (lstat(text, &s) || (s.st_uid && s.st_uid != geteuid())) return false;
        if (s.st_mode & (S_IWGRP | S_IWOTH) && !(s.st_mode & S_ISVTX)) return false;
        if (slash == text) return true;
    }
    return false;
}

/* Removes the content of the open folder, and closes it. */
static void clear(int fd)
{
    DIR *dir = fdopendir(fd);
    if (!dir) {
        close(fd);
        return;
    }
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat s;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        if (fstatat(fd, e->d_name, &s, AT_SYMLINK_NOFOLLOW)) continue;
        if (!S_ISDIR(s.st_mode)) {
            unlinkat(fd, e->d_name, 0);
            continue;
        }
        const int inner = openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (inner >= 0) clear(inner);
        unlinkat(fd, e->d_name, AT_REMOVEDIR);
    }
    closedir(dir);
}

const char *folder_temporary_root(void)
{
    const char *t = secure_getenv("TMPDIR");
    return t && *t == '/' ? t : "/tmp";
}

const char *folder_temporary(struct arena *a)
{
    return mkdtemp(arena_printf(a, "%s/sol-work-XXXXXX", folder_temporary_root()));
}

void folder_remove(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return;
    clear(fd);
    rmdir(path);
}
