/* Whole files. A file is written under a temporary name in its folder and then renamed. Readers, also after a crash,
 * see either the old content or the new, never a part. */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool file_exists(const char *path)
{
    struct stat s;
    return !stat(path, &s);
}

static sol_status read_all(struct sol_ctx *ctx, int fd, const char *path, char *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = read(fd, data + done, MIN(bytes - done, (size_t)1 << 30));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ctx_fail(ctx, SOL_ERR_IO, "cannot read '%s': %s", path, strerror(errno));
        if (!n) return ctx_fail(ctx, SOL_ERR_IO, "cannot read '%s': it got shorter while it was read", path);
        done += (size_t)n;
    }
    return SOL_OK;
}

sol_status file_read_open(struct sol_ctx *ctx, struct arena *a, int fd, const char *path, char **out_data,
                          size_t *out_bytes)
{
    struct stat s;
    *out_data = NULL;
    *out_bytes = 0;
    if (fstat(fd, &s)) return ctx_fail(ctx, SOL_ERR_IO, "cannot read '%s': %s", path, strerror(errno));
    if (!S_ISREG(s.st_mode)) return ctx_fail(ctx, SOL_ERR_IO, "cannot read '%s': it is not a regular file", path);
    char *data = arena_try(a, (size_t)s.st_size + 1);
    if (!data)
        return ctx_fail(ctx, SOL_ERR_NOMEM, "cannot read '%s': out of memory for %lld bytes", path,
                        (long long)s.st_size);
    TRY(read_all(ctx, fd, path, data, (size_t)s.st_size));
    *out_data = data;
    *out_bytes = (size_t)s.st_size;
    return SOL_OK;
}

sol_status file_read_at(struct sol_ctx *ctx, struct arena *a, int folder, const char *name, char **out_data,
                        size_t *out_bytes)
{
    size_t bytes;
    const int strict = folder == AT_FDCWD ? 0 : O_NOFOLLOW | O_NONBLOCK;
    const int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | strict);
    *out_data = NULL;
    if (fd < 0) return ctx_fail(ctx, SOL_ERR_IO, "cannot open '%s': %s", name, strerror(errno));
    const sol_status status = file_read_open(ctx, a, fd, name, out_data, out_bytes ? out_bytes : &bytes);
    close(fd);
    return status;
}

sol_status file_read(struct sol_ctx *ctx, struct arena *a, const char *path, char **out_data, size_t *out_bytes)
{
    return file_read_at(ctx, a, AT_FDCWD, path, out_data, out_bytes);
}

static int write_all(int fd, const char *data, size_t bytes)
{
    while (bytes) {
        ssize_t n = write(fd, data, MIN(bytes, (size_t)1 << 30));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno;
        data += n;
        bytes -= (size_t)n;
    }
    return 0;
}

sol_status file_write_at(struct sol_ctx *ctx, int folder, const char *name, int n, const struct file_part *part)
{
    char temp[4096];
    int fd = -1, error = 0;
    do {
        int length =
            snprintf(temp, sizeof temp, "%s.%ld-%llx.tmp", name, (long)getpid(), (unsigned long long)clock_ns());
        if (length < 0 || length >= (int)sizeof temp)
            return ctx_fail(ctx, SOL_ERR_IO, "cannot write '%s': the name is too long", name);
        fd = openat(folder, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    } while (fd < 0 && (errno == EEXIST || errno == EINTR));
    if (fd < 0) return ctx_fail(ctx, SOL_ERR_IO, "cannot write '%s': %s", name, strerror(errno));
    for (int i = 0; i < n && !error; i++) error = write_all(fd, part[i].data, part[i].bytes);
    if (close(fd) && !error) error = errno;
    if (!error && renameat(folder, temp, folder, name)) error = errno;
    if (!error) return SOL_OK;
    unlinkat(folder, temp, 0);
    return ctx_fail(ctx, SOL_ERR_IO, "cannot write '%s': %s", name, strerror(error));
}

sol_status file_write(struct sol_ctx *ctx, const char *path, const void *data, size_t bytes)
{
    return file_write_at(ctx, AT_FDCWD, path, 1, &(struct file_part){data, bytes});
}

sol_status file_make_folder(struct sol_ctx *ctx, const char *path)
{
    char part[4096];
    size_t n = strlen(path);
    if (!n || n >= sizeof part)
        return ctx_fail(ctx, SOL_ERR_IO, "cannot make folder '%s': bad length of the name", path);
    memcpy(part, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (part[i] != '/' && part[i] != 0) continue;
        char end = part[i];
        part[i] = 0;
        struct stat s;
        if (mkdir(part, 0755) && errno != EEXIST && stat(part, &s))
            return ctx_fail(ctx, SOL_ERR_IO, "cannot make folder '%s': %s", part, strerror(errno));
        if (!end && (stat(part, &s) || !S_ISDIR(s.st_mode)))
            return ctx_fail(ctx, SOL_ERR_IO, "cannot make folder '%s': there is a file of that name", part);
        part[i] = end;
    }
    return SOL_OK;
}
