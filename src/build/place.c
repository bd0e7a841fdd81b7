/* The location of the cache, and the secret key of its seals.
 *
 * A folder is opened once, without following a link at its end. It must belong to the user, without access for others.
 * All later access uses its descriptor, so that renaming a folder above it has no effect. CACHEDIR.TAG marks it as
 * SOL's. If a folder has content but no mark, it belongs to the user, and the cache is a subfolder.
 *
 * The secret key is stored elsewhere, so that a folder from somebody else, for example shipped with a model, cannot
 * contain files that pass for SOL's own. */
#include "build/inside.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static const char tag_name[] = "CACHEDIR.TAG";
static const char tag[] = "Signature: 8a477f597d28d172789f06886806bc55\n"
                          "# SOL keeps compiled code here. It may be deleted at any time; `sol cache clear` does.\n"
                          "# What this file is: https://bford.info/cachedir/\n";

/* -- names */

static const char *absolute(const char *name)
{
    const char *path = secure_getenv(name);
    return path && *path == '/' ? path : NULL;
}

/* HOME, unless it belongs to another user (sudo keeps it); otherwise the system's value. NULL: none. */
static const char *home(struct arena *a)
{
    struct stat s;
    struct passwd p, *found = NULL;
    const char *path = absolute("HOME");
    if (path && (geteuid() || (!stat(path, &s) && !s.st_uid))) return path;
    char *room = arena_alloc(a, 16384);
    if (getpwuid_r(geteuid(), &p, room, 16384, &found) || !found || *p.pw_dir != '/') return NULL;
    return p.pw_dir;
}

/* "$XDG_CACHE_HOME/sol", or "~/.cache/sol"; NULL: there is no home. */
static const char *base_folder(struct arena *a, const char *variable, const char *below_home)
{
    const char *base = absolute(variable), *at_home = base ? NULL : home(a);
    if (base) return arena_printf(a, "%s/sol", base);
    return at_home ? arena_printf(a, "%s/%s/sol", at_home, below_home) : NULL;
}

static const char *place_path(struct sol_ctx *ctx, struct arena *a, int place)
{
    const char *key = ctx_config(ctx, "cache::folder");
    if (!*key) return NULL;
    if (place) return arena_printf(a, "%s/sol-cache-%ld", folder_temporary_root(), (long)geteuid());
    return strcmp(key, "auto") ? key : base_folder(a, "XDG_CACHE_HOME", ".cache");
}

/* -- the mark */

static bool is_empty(int fd)
{
    const int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    bool empty = dir != NULL;
    if (!dir && copy >= 0) close(copy);
    for (struct dirent *e; empty && (e = readdir(dir));) empty = !strcmp(e->d_name, ".") || !strcmp(e->d_name, "..");
    if (dir) closedir(dir);
    return empty;
}

/* A process that is still writing it, or a full disk, may have left only its beginning. */
static bool is_marked(int fd)
{
    char text[sizeof tag];
    const int file = openat(fd, tag_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const ssize_t n = file < 0 ? -1 : read(file, text, sizeof text);
    if (file >= 0) close(file);
    return n >= 0 && n < (ssize_t)sizeof tag && !memcmp(text, tag, (size_t)n);
}

/* Is it SOL's folder, or can it become one? */
static bool mark(int fd)
{
    if (is_marked(fd)) return true;
    if (!is_empty(fd)) return is_marked(fd); /* by another process, in between */
    const int file = openat(fd, tag_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    const ssize_t written = file < 0 ? -1 : write(file, tag, sizeof tag - 1);
    if (file >= 0) close(file);
    (void)written; /* a begin is enough, and none is needed where nothing can be written */
    return true;
}

/* -- opening */

int place_open(struct sol_ctx *ctx, struct arena *a, int place, bool make, const char **out_path, const char **out_why)
{
    char real[PATH_MAX];
    const char *path = place_path(ctx, a, place);
    *out_why = NULL;
    *out_path = path ? path : "~/.cache/sol";
    if (!path) *out_why = "there is no home folder: set HOME, or XDG_CACHE_HOME";
    int fd = path ? folder_open_path(ctx, path, make, out_why) : -1;
    if (fd < 0) return -1;
    if (realpath(path, real)) *out_path = arena_strdup(a, real);
    if (mark(fd)) return fd;
    const int inner = folder_open(fd, "sol-cache", make, out_why);
    close(fd);
    *out_path = arena_printf(a, "%s/sol-cache", *out_path);
    if (inner < 0 || mark(inner)) return inner;
    *out_why = "it holds files that are not SOL's";
    close(inner);
    return -1;
}

/* -- the secret */

static const char secret_name[] = "cache.key";

/* 1: read; 0: there is none, or one that others can read; -1: it cannot be used. */
static int read_secret(int folder, unsigned char out[SECRET_BYTES])
{
    struct stat s;
    const int fd = openat(folder, secret_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT ? 0 : -1;
    const bool ours = !fstat(fd, &s) && S_ISREG(s.st_mode) && s.st_uid == geteuid();
    const bool good = ours && !(s.st_mode & (S_IRWXG | S_IRWXO)) && s.st_size == SECRET_BYTES;
    const bool whole = good && read(fd, out, SECRET_BYTES) == SECRET_BYTES;
    close(fd);
    return whole ? 1 : ours ? 0 : -1;
}

/* Installs a new key; of several processes the first wins. */
static void make_secret(int folder)
{
    unsigned char secret[SECRET_BYTES];
    char name[64];
    snprintf(name, sizeof name, "%s.%ld-%llx", secret_name, (long)getpid(), (unsigned long long)clock_ns());
    if (getrandom(secret, sizeof secret, 0) != sizeof secret) return;
    const int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return;
    const bool whole = write(fd, secret, sizeof secret) == sizeof secret;
    if (!close(fd) && whole) linkat(folder, name, folder, secret_name, 0);
    unlinkat(folder, name, 0);
}

static bool secret_in(struct sol_ctx *ctx, const char *path, unsigned char out[SECRET_BYTES])
{
    const char *why;
    const int fd = path ? folder_open_path(ctx, path, true, &why) : -1;
    int got = fd < 0 ? -1 : read_secret(fd, out);
    if (!got) {
        unlinkat(fd, secret_name, 0); /* a key that others could read is not secret any more */
        make_secret(fd);
        got = read_secret(fd, out);
    }
    if (fd >= 0) close(fd);
    return got > 0;
}

bool place_secret(struct sol_ctx *ctx, struct arena *a, unsigned char out[SECRET_BYTES])
{
    const char *root = folder_temporary_root();
    return secret_in(ctx, base_folder(a, "XDG_STATE_HOME", ".local/state"), out) ||
           secret_in(ctx, arena_printf(a, "%s/sol-state-%ld", root, (long)geteuid()), out);
}

bool place_has_secret(struct sol_ctx *ctx, struct arena *a)
{
    unsigned char secret[SECRET_BYTES];
    return place_secret(ctx, a, secret);
}
