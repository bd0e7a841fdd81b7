/* The cache: one file for each key, such as <folder>/<device>/modules/<key>.so. After the content, a file has its keys,
 * its length, and a seal, which is a keyed digest of all this. Files are renamed into place, and used only if the seal
 * of the bytes read is valid. A crash, a full disk, damage or forgery therefore causes a miss and nothing else. A file
 * with several keys (kernels compiled together) has several names.
 *
 * The modification time of a file is the time of its last use. */
#include "build/inside.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { USED_EVERY = 24 * 3600, LENGTH_DIGITS = 16, SEAL_DIGITS = 2 * SEAL_BYTES };
enum { FOOT = LENGTH_DIGITS + 1 + SEAL_DIGITS, KEYS_MOST = 1 << 20 }; /* behind the keys */

enum { CACHE_SOURCE = CACHE_ENTRIES }; /* a kind of file that is no entry */
/* The kinds of files in SOL's folder. `clear` may remove files whose names end with at least eight digits of a digest
 * and this ending. */
static const struct {
    const char *folder, *ending;
    bool by_device; /* <folder>/<device>/... */
} kinds[] = {
    [CACHE_OBJECT] = {"objects", ".o", true},
    [CACHE_MODULE] = {"modules", ".so", true},
    [CACHE_FACT] = {"facts", "", false},
    [CACHE_SOURCE] = {"source", ".c", true},
    {"source", ".so", true},
    {"debug", ".dot", false},
    {"debug", "-memory.svg", false},
};

/* -- opening */

static void warn_once(struct sol_ctx *ctx, const char *folder, const char *why)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    const bool again = atomic_flag_test_and_set(&warned);
    LOG(ctx, again ? LOG_DEBUG : LOG_WARN, "build",
        "cache: folder '%s' cannot be used to write: %s; a temporary folder is used instead (key cache::folder)",
        folder, why);
}

/* Adds a folder if it is readable. Returns true if it is also writable. */
static bool add_place(struct cache *c, int place)
{
    struct cache_place *p = &c->place[c->nplace];
    const char *why;
    *p = (struct cache_place){0};
    p->fd = place_open(c->ctx, c->arena, place, true, &p->path, &why);
    for (int i = 0; i < CACHE_ENTRIES; i++) p->kind[i] = -1;
    p->writable = p->fd >= 0 && !faccessat(p->fd, ".", W_OK | X_OK, AT_EACCESS);
    c->nplace += p->fd >= 0;
    if (!p->writable && !place) warn_once(c->ctx, p->path, p->fd < 0 ? why : strerror(errno));
    return p->writable;
}

void cache_open(struct cache *c, struct sol_ctx *ctx, const char *device)
{
    *c = (struct cache){.ctx = ctx, .arena = arena_create(ctx), .device = device};
    if (!c->arena || !*ctx_config(ctx, "cache::folder")) return;
    if (!place_secret(ctx, c->arena, c->secret)) {
        LOG(ctx, LOG_WARN, "build",
            "cache: nothing is stored, because there is no folder for the secret key (XDG_STATE_HOME, TMPDIR)");
        return;
    }
    if (!add_place(c, 0)) add_place(c, 1);
}

void cache_close(struct cache *c)
{
    for (int i = 0; i < c->nplace; i++) {
        for (int k = 0; k < CACHE_ENTRIES; k++)
            if (c->place[i].kind[k] >= 0) close(c->place[i].kind[k]);
        close(c->place[i].fd);
    }
    arena_destroy(c->arena);
    *c = (struct cache){.ctx = c->ctx};
}

static struct cache_place *writable_place(struct cache *c)
{
    for (int i = 0; i < c->nplace; i++)
        if (c->place[i].writable) return &c->place[i];
    return NULL;
}

/* Opens a folder of the cache; -1: it does not exist. */
static int open_kind(const struct cache_place *p, const char *device, int kind, bool make)
{
    const char *why;
    const int at = kinds[kind].by_device ? folder_open(p->fd, device, make, &why) : p->fd;
    const int fd = at < 0 ? -1 : folder_open(at, kinds[kind].folder, make, &why);
    if (at != p->fd && at >= 0) close(at);
    return fd;
}

static int kind_folder(const struct cache *c, struct cache_place *p, enum cache_kind kind, bool make)
{
    if (p->kind[kind] < 0) p->kind[kind] = open_kind(p, c->device, kind, make);
    return p->kind[kind];
}

/* -- seals */

static void seal(const struct cache *c, const char *data, size_t bytes, const char *keys, size_t n,
                 char out[SEAL_DIGITS + 1])
{
    struct digest d;
    unsigned char raw[SEAL_BYTES];
    digest_init(&d, c->secret);
    digest_text(&d, "SOL cache 1");
    digest_add(&d, data, bytes);
    digest_add(&d, keys, n);
    digest_end(&d, raw);
    sodium_bin2hex(out, SEAL_DIGITS + 1, raw, sizeof raw);
}

/* Parses a file: content, "\nkey\nkey\n", length, blank, seal. False: SOL did not write it, or it is not for `key`. */
static bool unseal(const struct cache *c, const char *key, char *file, size_t bytes, struct cache_entry *out)
{
    char want[SEAL_DIGITS + 1], *end;
    if (bytes < FOOT) return false;
    char *foot = file + bytes - FOOT;
    *out = (struct cache_entry){.data = file, .bytes = strtoull(foot, &end, 16)};
    const size_t rest = bytes - SEAL_DIGITS;
    if (end != foot + LENGTH_DIGITS || out->bytes > bytes - FOOT) return false;
    seal(c, file, out->bytes, file + out->bytes, rest - out->bytes, want);
    if (sodium_memcmp(want, file + rest, SEAL_DIGITS)) return false;
    bool found = false;
    for (char *at = file + out->bytes + 1, *next; at < foot; at = next) {
        next = at + strcspn(at, "\n");
        *next++ = 0;
        PUSH(c->arena, out->keys, at);
        found |= !strcmp(at, key);
    }
    return found;
}

/* -- files */

static const char *entry_name(const struct cache *c, enum cache_kind kind, const char *key)
{
    return arena_printf(c->arena, "%s%s", key, kinds[kind].ending);
}

/* Its time says when it was last used, to a day. */
static void touch(int fd)
{
    struct stat s;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (!fstat(fd, &s) && (now.tv_sec - s.st_mtime >= USED_EVERY || s.st_mtime > now.tv_sec)) futimens(fd, NULL);
}

/* Avoids reading a huge sparse file: the length at its end must match its size. */
static bool is_whole(int fd)
{
    struct stat s;
    char foot[FOOT + 1] = "", *end;
    if (fstat(fd, &s) || !S_ISREG(s.st_mode) || s.st_size < FOOT) return false;
    if (pread(fd, foot, FOOT, s.st_size - FOOT) != FOOT) return false;
    const unsigned long long bytes = strtoull(foot, &end, 16), all = (unsigned long long)s.st_size - FOOT;
    return end == foot + LENGTH_DIGITS && bytes <= all && all - bytes <= KEYS_MOST;
}

static bool find_in(struct cache *c, struct cache_place *p, enum cache_kind kind, const char *key,
                    struct cache_entry *out)
{
    char *file;
    size_t bytes;
    const char *name = entry_name(c, kind, key);
    const int folder = kind_folder(c, p, kind, false);
    const int fd = folder < 0 ? -1 : openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return false;
    const bool good =
        is_whole(fd) && !file_read_open(c->ctx, c->arena, fd, name, &file, &bytes) && unseal(c, key, file, bytes, out);
    if (good && p->writable) touch(fd);
    close(fd);
    if (!good)
        LOG(c->ctx, LOG_DEBUG, "build", "cache: %s in %s is damaged or belongs to another user: SOL compiles it again",
            name, p->path);
    return good;
}

bool cache_find(struct cache *c, enum cache_kind kind, const char *key, struct cache_entry *out)
{
    for (int i = 0; i < c->nplace; i++)
        if (find_in(c, &c->place[i], kind, key, out)) return true;
    return false;
}

void cache_drop(struct cache *c, enum cache_kind kind, const char *key)
{
    for (int i = 0; i < c->nplace; i++) {
        const int folder = kind_folder(c, &c->place[i], kind, false);
        if (folder >= 0) unlinkat(folder, entry_name(c, kind, key), 0);
    }
}

void cache_keep(struct cache *c, enum cache_kind kind, const char *data, size_t bytes, int nkey, const char *const *key)
{
    char hex[SEAL_DIGITS + 1];
    struct cache_place *p = writable_place(c);
    const int folder = p ? kind_folder(c, p, kind, true) : -1;
    if (folder < 0) return;
    struct text t = text_new(c->arena);
    for (int i = 0; i < nkey; i++) text_put(&t, "\n%s", key[i]);
    text_put(&t, "\n%0*llx ", LENGTH_DIGITS, (unsigned long long)bytes);
    seal(c, data, bytes, t.at, t.n, hex);
    text_put(&t, "%s", hex);
    const char *first = entry_name(c, kind, key[0]);
    const struct file_part parts[] = {{data, bytes}, {t.at, t.n}};
    if (file_write_at(c->ctx, folder, first, COUNT_OF(parts), parts)) {
        LOG(c->ctx, LOG_WARN, "build", "cache: %s was not stored: %s", p->path, sol_error(c->ctx));
        return;
    }
    for (int i = 1; i < nkey; i++) { /* a name that cannot be had is a miss */
        const char *name = entry_name(c, kind, key[i]);
        unlinkat(folder, name, 0);
        linkat(folder, first, folder, name, 0);
    }
}

/* -- facts */

static const char *fact_key(struct cache *c, const char *name)
{
    char hex[33];
    struct digest d;
    digest_init(&d, NULL);
    digest_text(&d, name);
    digest_hex(&d, hex);
    return arena_printf(c->arena, "sol_f_%s", hex);
}

const char *cache_fact(struct cache *c, const char *name)
{
    struct cache_entry e;
    if (!c->nplace || !cache_find(c, CACHE_FACT, fact_key(c, name), &e)) return NULL;
    return arena_printf(c->arena, "%.*s", (int)e.bytes, e.data);
}

void cache_set_fact(struct cache *c, const char *name, const char *text)
{
    if (c->nplace) cache_keep(c, CACHE_FACT, text, strlen(text), 1, (const char *[]){fact_key(c, name)});
}

/* If several processes determine a fact at the same time, the first one wins, so that all use the same. */
sol_status cache_find_out(struct sol_ctx *ctx, struct arena *a, const char *name, const struct fact_maker *m,
                          const char **out_text)
{
    struct cache c;
    const char *made;
    sol_status status = SOL_OK;
    cache_open(&c, ctx, "");
    *out_text = cache_fact(&c, name);
    if (!*out_text && writable_place(&c)) {
        status = m->make(m->user, &made);
        *out_text = status ? NULL : cache_fact(&c, name);
        if (!status && !*out_text) cache_set_fact(&c, name, *out_text = made);
    }
    if (*out_text) *out_text = arena_strdup(a, *out_text);
    cache_close(&c);
    return status;
}

/* -- what is there */

static bool ends_with(const char *name, const char *ending)
{
    const size_t n = strlen(name), k = strlen(ending);
    return n >= k && !strcmp(name + n - k, ending);
}

/* Digits of a digest and the ending, or the rest of such a file from a killed process. */
static bool is_made(const char *name, const char *ending)
{
    if (ends_with(name, ".tmp")) return strstr(name, "sol_") != NULL;
    if (!ends_with(name, ending)) return false;
    const char *end = name + strlen(name) - strlen(ending), *digits = end;
    while (digits > name && strchr("0123456789abcdef", digits[-1])) digits--;
    return end - digits >= 8 && digits > name && (digits[-1] == '_' || digits[-1] == '-');
}

struct made { /* a file */
    int folder;
    const char *name;
    struct timespec used;
    int64_t bytes; /* its part, where it has several names */
};
typedef VECTOR(struct made) made_list;
struct folders { /* that are open */
    struct arena *arena;
    VECTOR(int) at;
    made_list files;
};

/* The names in a folder, "." and ".." apart. */
static char **names_in(struct arena *a, int fd, int *out_n)
{
    VECTOR(char *) names = {0};
    const int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    if (!dir && copy >= 0) close(copy);
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) PUSH(a, names, arena_strdup(a, e->d_name));
    if (dir) closedir(dir);
    *out_n = names.n;
    return names.at;
}

static void list_folder(struct folders *f, int fd, const char *ending)
{
    int n;
    if (fd < 0) return;
    char **names = names_in(f->arena, fd, &n);
    PUSH(f->arena, f->at, fd);
    for (int i = 0; i < n; i++) {
        struct stat s;
        if (!is_made(names[i], ending) || fstatat(fd, names[i], &s, AT_SYMLINK_NOFOLLOW) || !S_ISREG(s.st_mode))
            continue;
        const struct made m = {fd, names[i], s.st_mtim, (int64_t)s.st_blocks * 512 / MAX((int64_t)s.st_nlink, 1)};
        PUSH(f->arena, f->files, m);
    }
}

/* Lists the files in the first `nkind` kinds of folders, for all devices. */
static struct folders list(struct arena *a, const struct cache_place *p, int nkind)
{
    int n;
    struct folders f = {.arena = a};
    char **names = names_in(a, p->fd, &n);
    for (int k = 0; k < nkind; k++) {
        if (!kinds[k].by_device) list_folder(&f, open_kind(p, NULL, k, false), kinds[k].ending);
        for (int i = 0; i < n && kinds[k].by_device; i++)
            list_folder(&f, open_kind(p, names[i], k, false), kinds[k].ending);
    }
    return f;
}

static void close_folders(struct folders *f)
{
    for (int i = 0; i < f->at.n; i++) close(f->at.at[i]);
}

static int oldest_first(const void *x, const void *y)
{
    const struct made *a = x, *b = y;
    if (a->used.tv_sec != b->used.tv_sec) return a->used.tv_sec < b->used.tv_sec ? -1 : 1;
    if (a->used.tv_nsec != b->used.tv_nsec) return a->used.tv_nsec < b->used.tv_nsec ? -1 : 1;
    return strcmp(a->name, b->name);
}

void cache_make_room(struct cache *c)
{
    struct cache_place *p = writable_place(c);
    const int64_t most = (int64_t)atoll(ctx_config(c->ctx, "cache::limit")) << 20;
    int64_t total = 0;
    int removed = 0;
    if (!p) return;
    struct folders f = list(c->arena, p, CACHE_FACT);
    for (int i = 0; i < f.files.n; i++) total += f.files.at[i].bytes;
    if (total > most) {
        qsort(f.files.at, (size_t)f.files.n, sizeof *f.files.at, oldest_first);
        for (; removed < f.files.n && total > most / 4 * 3; removed++) {
            unlinkat(f.files.at[removed].folder, f.files.at[removed].name, 0);
            total -= f.files.at[removed].bytes;
        }
        LOG(c->ctx, LOG_DEBUG, "build", "cache: removed the %d least recently used files (key cache::limit)", removed);
    }
    close_folders(&f);
}

/* -- for people */

sol_status cache_source_folder(struct cache *c, const char **out_path)
{
    struct cache_place *p = writable_place(c);
    const int fd = p ? open_kind(p, c->device, CACHE_SOURCE, true) : -1;
    if (fd >= 0) close(fd);
    *out_path = fd < 0 ? NULL : arena_printf(c->arena, "%s/%s/%s", p->path, c->device, kinds[CACHE_SOURCE].folder);
    if (*out_path && folder_is_reached_safely(*out_path)) return SOL_OK;
    *out_path = mkdtemp(arena_printf(c->arena, "%s/sol-source-XXXXXX", folder_temporary_root()));
    if (*out_path) return SOL_OK;
    return ctx_fail(c->ctx, SOL_ERR_IO, "build: cannot make a folder in %s: %s; make room, or set TMPDIR",
                    folder_temporary_root(), strerror(errno));
}

sol_status sol_cache_folder(struct sol_ctx *ctx, char **out_path)
{
    const char *path, *why;
    *out_path = NULL;
    struct arena *a = arena_create(ctx);
    if (!a) return ctx_check(ctx);
    sol_status status = SOL_OK;
    const int fd = *ctx_config(ctx, "cache::folder") ? place_open(ctx, a, 0, true, &path, &why) : -1;
    if (fd >= 0)
        close(fd);
    else if (*ctx_config(ctx, "cache::folder"))
        status = ctx_fail(ctx, SOL_ERR_IO, "cache: folder '%s' cannot be used: %s", path, why);
    else
        path = "";
    if (!status && !(*out_path = ctx_realloc(ctx, NULL, strlen(path) + 1)))
        status = ctx_fail(ctx, SOL_ERR_NOMEM, "cache: out of memory");
    if (!status) strcpy(*out_path, path);
    arena_destroy(a);
    return status;
}

static sol_status clear(struct sol_ctx *ctx, struct arena *a, const struct cache_place *p)
{
    int n;
    sol_status status = SOL_OK;
    struct folders f = list(a, p, COUNT_OF(kinds));
    for (int i = 0; i < f.files.n; i++)
        if (unlinkat(f.files.at[i].folder, f.files.at[i].name, 0) && errno != ENOENT)
            status = ctx_fail(ctx, SOL_ERR_IO, "cache: cannot remove '%s' in '%s': %s", f.files.at[i].name, p->path,
                              strerror(errno));
    close_folders(&f);
    char **names = names_in(a, p->fd, &n);
    for (int k = 0; k < COUNT_OF(kinds); k++) /* folders that are empty by now */
        for (int i = 0; i < n; i++) {
            const char *below = kinds[k].by_device ? names[i] : ".", *why;
            const int at = folder_open(p->fd, below, false, &why);
            if (at < 0) continue;
            unlinkat(at, kinds[k].folder, AT_REMOVEDIR);
            close(at);
        }
    return status;
}

sol_status sol_cache_clear(struct sol_ctx *ctx)
{
    sol_status status = SOL_OK;
    struct arena *a = arena_create(ctx);
    if (!a) return SOL_ERR_NOMEM;
    for (int i = 0; i < CACHE_PLACES && *ctx_config(ctx, "cache::folder"); i++) {
        const char *why;
        struct cache_place p;
        p.fd = place_open(ctx, a, i, false, &p.path, &why);
        if (p.fd < 0 && !i && file_exists(p.path))
            status = ctx_fail(ctx, SOL_ERR_IO, "cache: folder '%s' is not cleared: %s", p.path, why);
        if (p.fd < 0) continue;
        const sol_status cleared = clear(ctx, a, &p);
        if (!status) status = cleared;
        close(p.fd);
    }
    arena_destroy(a);
    return status;
}
