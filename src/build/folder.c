/* Folders: who may write them, how to remove them. What is removed is reached through open folders and never through
 * links, so that nobody can make us remove something else. */
#include "build/inside.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

bool folder_is_private(const char *path, const char **out_why)
{
    struct stat s;
    *out_why = NULL;
    if (stat(path, &s))
        *out_why = strerror(errno);
    else if (!S_ISDIR(s.st_mode))
        *out_why = "it is not a folder";
    else if (s.st_uid != geteuid())
        *out_why = "it belongs to another user, who could put code into it";
    else if (s.st_mode & (S_IWGRP | S_IWOTH))
        *out_why = "other users can write it, and so put code into it (chmod go-w)";
    return !*out_why;
}

/* Removes what is in the open folder, and closes it. Only what is older than `before`, if that is not 0. */
static void clear(int fd, time_t before)
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
        if (before && s.st_mtime >= before) continue;
        if (!S_ISDIR(s.st_mode)) {
            unlinkat(fd, e->d_name, 0);
            continue;
        }
        const int inner = openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (inner >= 0) clear(inner, 0);
        unlinkat(fd, e->d_name, AT_REMOVEDIR);
    }
    closedir(dir);
}

const char *folder_temporary_root(void)
{
    const char *t = getenv("TMPDIR");
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
    clear(fd, 0);
    rmdir(path);
}

void folder_remove_old(const char *path, int64_t seconds)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0) clear(fd, time(NULL) - (time_t)seconds);
}

bool folder_has_room(const char *path, int64_t bytes)
{
    struct statvfs s;
    return !statvfs(path, &s) && (double)s.f_bavail * (double)s.f_frsize >= (double)bytes;
}
