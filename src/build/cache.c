/* The cache: <folder>/index.db says which file holds what a key stands for, and the hash of its content. A file is
 * moved to its place under its final name in one step, and is used only if its content has that hash: so a crash, a
 * full disk, a damaged file or index is never more than a miss. Rollback journal (it works in read-only folders), no
 * waiting for the disk: the hashes find out what a power failure lost. */
#include "build/inside.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SCHEMA = 1, BUSY_MS = 5000, USED_EVERY = 24 * 3600, WORK_OLD = 24 * 3600 };
static const int64_t WORK_ROOM = (int64_t)64 << 20; /* that one build may need */

static const char schema[] = "BEGIN IMMEDIATE;"
                             "CREATE TABLE IF NOT EXISTS entry(key TEXT PRIMARY KEY, file TEXT NOT NULL,"
                             " hash TEXT NOT NULL, bytes INTEGER NOT NULL, used INTEGER NOT NULL) WITHOUT ROWID;"
                             "CREATE TABLE IF NOT EXISTS fact(name TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;"
                             "PRAGMA user_version=1;"
                             "COMMIT";

/* -- the index */

static bool damaged(int rc)
{
    return (rc & 0xff) == SQLITE_CORRUPT || (rc & 0xff) == SQLITE_NOTADB;
}

static int user_version(sqlite3 *db, int *out_version)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &s, NULL);
    if (rc == SQLITE_OK && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        *out_version = sqlite3_column_int(s, 0);
        rc = SQLITE_OK;
    }
    sqlite3_finalize(s);
    return rc;
}

static int index_try(const char *path, bool writable, sqlite3 **out_db)
{
    int version = 0;
    const int flags = writable ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY;
    int rc = sqlite3_open_v2(path, out_db, flags, NULL);
    if (rc == SQLITE_OK) {
        sqlite3_busy_timeout(*out_db, BUSY_MS);
        if (writable) sqlite3_exec(*out_db, "PRAGMA synchronous=OFF", NULL, NULL, NULL);
        rc = user_version(*out_db, &version);
    }
    if (rc == SQLITE_OK && version == 0 && writable) {
        rc = sqlite3_exec(*out_db, schema, NULL, NULL, NULL);
        if (rc == SQLITE_OK) rc = user_version(*out_db, &version);
    }
    if (rc == SQLITE_OK && version != SCHEMA) rc = SQLITE_NOTADB; /* of another SOL */
    if (rc == SQLITE_OK) return rc;
    sqlite3_close(*out_db);
    *out_db = NULL;
    return rc;
}

/* A damaged index is thrown away: what its files hold is built again when it is needed. */
static sqlite3 *index_anew(struct cache *c, const char *path)
{
    sqlite3 *db = NULL;
    LOG(c->ctx, LOG_WARN, "build", "cache: %s is damaged, or of another version, and is made anew", path);
    unlink(path);
    unlink(arena_printf(c->arena, "%s-journal", path));
    index_try(path, true, &db);
    return db;
}

static sqlite3 *index_open(struct cache *c, const char *folder, bool writable)
{
    sqlite3 *db = NULL;
    const char *path = arena_printf(c->arena, "%s/index.db", folder);
    const int rc = index_try(path, writable, &db);
    if (damaged(rc) && writable) return index_anew(c, path);
    if (rc != SQLITE_OK && (writable || rc != SQLITE_CANTOPEN))
        LOG(c->ctx, LOG_WARN, "build", "cache: %s cannot be used: %s", path, sqlite3_errstr(rc));
    return db;
}

/* Behind every use: damage that only shows in a deeper page. */
static void renew_if_damaged(struct cache *c, struct cache_place *p)
{
    if (!p->db || !damaged(sqlite3_errcode(p->db))) return;
    sqlite3_close(p->db);
    p->db = p->writable ? index_anew(c, arena_printf(c->arena, "%s/index.db", p->folder)) : NULL;
}

/* Prepares a statement with text for ?1 and ?2 (NULL: none). */
static sqlite3_stmt *prepare(sqlite3 *db, const char *sql, const char *first, const char *second)
{
    sqlite3_stmt *s = NULL;
    if (!db || sqlite3_prepare_v2(db, sql, -1, &s, NULL) != SQLITE_OK) return NULL;
    if (first) sqlite3_bind_text(s, 1, first, -1, SQLITE_TRANSIENT);
    if (second) sqlite3_bind_text(s, 2, second, -1, SQLITE_TRANSIENT);
    return s;
}

/* Runs a statement to its end. */
static bool finish(sqlite3_stmt *s)
{
    if (!s) return false;
    const int rc = sqlite3_step(s);
    sqlite3_finalize(s);
    return rc == SQLITE_DONE || rc == SQLITE_ROW;
}

/* -- opening */

static void warn_once(struct sol_ctx *ctx, const char *folder, const char *why)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    const bool again = atomic_flag_test_and_set(&warned);
    LOG(ctx, again ? LOG_DEBUG : LOG_WARN, "build",
        "cache: folder '%s' cannot be used to write: %s; a temporary folder is used instead (key cache::folder)",
        folder, why);
}

/* Adds a folder if it can be used, at least to read. */
static bool add_place(struct cache *c, const char *folder, bool last)
{
    char absolute[PATH_MAX];
    const char *why = NULL;
    if (file_make_folder(c->ctx, folder) || !realpath(folder, absolute)) {
        if (!last) warn_once(c->ctx, folder, sol_error(c->ctx));
        return false;
    }
    if (!folder_is_private(absolute, &why)) {
        if (!last) warn_once(c->ctx, folder, why);
        return false;
    }
    struct cache_place *p = &c->place[c->nplace++];
    p->folder = arena_strdup(c->arena, absolute);
    p->writable = !access(absolute, W_OK | X_OK);
    if (!p->writable && !last) warn_once(c->ctx, folder, strerror(errno));
    p->db = index_open(c, p->folder, p->writable);
    return p->writable;
}

static const char *temporary_folder(struct arena *a)
{
    return arena_printf(a, "%s/sol-cache-%ld", folder_temporary_root(), (long)geteuid());
}

void cache_open(struct cache *c, struct sol_ctx *ctx, struct arena *a)
{
    *c = (struct cache){.ctx = ctx, .arena = a};
    const char *folder = ctx_config(ctx, "cache::folder");
    if (!folder || !*folder) return;
    if (add_place(c, folder, false)) return;
    add_place(c, temporary_folder(a), true);
}

const char *cache_beside(struct sol_ctx *ctx, struct arena *a, int place, const char *name)
{
    const char *folder = ctx_config(ctx, "cache::folder"), *why;
    if (!*folder) return NULL;
    if (place) folder = temporary_folder(a);
    return folder_is_private(folder, &why) ? arena_printf(a, "%s/%s", folder, name) : NULL;
}

void cache_close(struct cache *c)
{
    for (int i = 0; i < c->nplace; i++) sqlite3_close(c->place[i].db);
    c->nplace = 0;
}

static struct cache_place *writable_place(struct cache *c)
{
    for (int i = 0; i < c->nplace; i++)
        if (c->place[i].writable) return &c->place[i];
    return NULL;
}

/* -- files */

/* The hash of a file's content. */
static bool file_hash(const char *path, char out_hex[33], int64_t *out_bytes)
{
    char block[1 << 16];
    struct hash h;
    hash_init(&h);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    *out_bytes = 0;
    for (size_t have = 0;;) { /* in full blocks, however short the reads are */
        const ssize_t n = read(fd, block + have, sizeof block - have);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            close(fd);
            return false;
        }
        have += (size_t)n;
        if (n > 0 && have < sizeof block) continue;
        hash_add(&h, block, have);
        *out_bytes += (int64_t)have;
        have = 0;
        if (!n) break;
    }
    close(fd);
    hash_hex(&h, out_hex);
    return true;
}

static void touch(struct cache_place *p, const char *key, int64_t used)
{
    const int64_t now = time(NULL);
    if (!p->writable || (now - used < USED_EVERY && used <= now)) return;
    sqlite3_stmt *s = prepare(p->db, "UPDATE entry SET used=?2 WHERE key=?1", key, NULL);
    if (s) sqlite3_bind_int64(s, 2, now);
    finish(s);
}

static const char *find_in(struct cache *c, struct cache_place *p, const char *key)
{
    sqlite3_stmt *s = prepare(p->db, "SELECT file, hash, bytes, used FROM entry WHERE key=?1", key, NULL);
    if (!s) renew_if_damaged(c, p);
    if (!s) return NULL;
    char hash[33];
    int64_t bytes;
    const char *path = NULL;
    bool good = false;
    if (sqlite3_step(s) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(s, 0), *want = (const char *)sqlite3_column_text(s, 1);
        path = arena_printf(c->arena, "%s/%s", p->folder, name ? name : "");
        good = want && file_hash(path, hash, &bytes) && bytes == sqlite3_column_int64(s, 2) && !strcmp(hash, want);
    }
    const int64_t used = path ? sqlite3_column_int64(s, 3) : 0;
    sqlite3_finalize(s);
    renew_if_damaged(c, p);
    if (good) {
        touch(p, key, used);
        return path;
    }
    if (path) LOG(c->ctx, LOG_DEBUG, "build", "cache: %s is gone or damaged and is built again", path);
    return NULL;
}

const char *cache_find(struct cache *c, const char *key)
{
    const char *path = NULL;
    for (int i = 0; i < c->nplace && !path; i++) path = find_in(c, &c->place[i], key);
    return path;
}

void cache_drop(struct cache *c, const char *key)
{
    for (int i = 0; i < c->nplace; i++)
        if (c->place[i].writable) finish(prepare(c->place[i].db, "DELETE FROM entry WHERE key=?1", key, NULL));
}

/* Removes the files used longest ago until what is kept is well below the limit. */
void cache_make_room(struct cache *c)
{
    struct cache_place *p = writable_place(c);
    const int64_t most = (int64_t)atoll(ctx_config(c->ctx, "cache::limit")) << 20;
    if (!p) return;
    sqlite3_stmt *s =
        prepare(p->db, "SELECT sum(b) FROM (SELECT max(bytes) AS b FROM entry GROUP BY file)", NULL, NULL);
    int64_t total = s && sqlite3_step(s) == SQLITE_ROW ? sqlite3_column_int64(s, 0) : 0;
    sqlite3_finalize(s);
    if (total <= most) return;
    VECTOR(const char *) old = {0};
    s = prepare(p->db, "SELECT file, max(bytes) FROM entry GROUP BY file ORDER BY max(used)", NULL, NULL);
    while (s && total > most / 4 * 3 && sqlite3_step(s) == SQLITE_ROW) {
        PUSH(c->arena, old, arena_strdup(c->arena, (const char *)sqlite3_column_text(s, 0)));
        total -= sqlite3_column_int64(s, 1);
    }
    sqlite3_finalize(s);
    for (int i = 0; i < old.n; i++) {
        finish(prepare(p->db, "DELETE FROM entry WHERE file=?1", old.at[i], NULL));
        unlink(arena_printf(c->arena, "%s/%s", p->folder, old.at[i]));
    }
    LOG(c->ctx, LOG_DEBUG, "build", "cache: %d files that were not used for longest are removed (key cache::limit)",
        old.n);
}

static bool insert(struct cache_place *p, const char *name, const char *hash, int64_t bytes, int nkey,
                   const char *const *key)
{
    if (sqlite3_exec(p->db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK) return false;
    bool ok = true;
    for (int i = 0; i < nkey && ok; i++) {
        sqlite3_stmt *s =
            prepare(p->db, "INSERT OR REPLACE INTO entry(key, file, hash, bytes, used) VALUES(?1, ?2, ?3, ?4, ?5)",
                    key[i], name);
        if (s) {
            sqlite3_bind_text(s, 3, hash, -1, SQLITE_TRANSIENT);
            sqlite3_bind_int64(s, 4, bytes);
            sqlite3_bind_int64(s, 5, time(NULL));
        }
        ok = finish(s);
    }
    if (ok) ok = sqlite3_exec(p->db, "COMMIT", NULL, NULL, NULL) == SQLITE_OK;
    if (!ok) sqlite3_exec(p->db, "ROLLBACK", NULL, NULL, NULL);
    return ok;
}

/* Moves a file, or copies it to another file system. */
static bool move(struct cache *c, const char *from, const char *to)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(to, '/') - to), to);
    if (file_make_folder(c->ctx, folder)) return false;
    if (!rename(from, to)) return true;
    if (errno != EXDEV) return false;
    char *data;
    size_t bytes;
    return !file_read(c->ctx, c->arena, from, &data, &bytes) && !file_write(c->ctx, to, data, bytes);
}

const char *cache_store(struct cache *c, const char *path, const char *name, int nkey, const char *const *key)
{
    char hash[33];
    int64_t bytes;
    struct cache_place *p = writable_place(c);
    if (!p || !p->db || !file_hash(path, hash, &bytes)) return path;
    const char *to = arena_printf(c->arena, "%s/%s", p->folder, name);
    if (!move(c, path, to)) {
        LOG(c->ctx, LOG_WARN, "build", "cache: cannot store %s: %s", to, strerror(errno));
        return path;
    }
    if (!insert(p, name, hash, bytes, nkey, key))
        LOG(c->ctx, LOG_WARN, "build", "cache: cannot write the index in %s: %s", p->folder, sqlite3_errmsg(p->db));
    renew_if_damaged(c, p);
    return to;
}

/* -- facts */

const char *cache_fact(struct cache *c, const char *name)
{
    const char *text = NULL;
    for (int i = 0; i < c->nplace && !text; i++) {
        sqlite3_stmt *s = prepare(c->place[i].db, "SELECT text FROM fact WHERE name=?1", name, NULL);
        if (s && sqlite3_step(s) == SQLITE_ROW) text = arena_strdup(c->arena, (const char *)sqlite3_column_text(s, 0));
        sqlite3_finalize(s);
    }
    return text;
}

void cache_set_fact(struct cache *c, const char *name, const char *text)
{
    struct cache_place *p = writable_place(c);
    if (p) finish(prepare(p->db, "INSERT OR REPLACE INTO fact(name, text) VALUES(?1, ?2)", name, text));
}

/* -- other folders */

sol_status cache_source_folder(struct cache *c, const char *device, const char **out_path)
{
    const struct cache_place *p = writable_place(c);
    *out_path = arena_printf(c->arena, "%s/%s/source", p ? p->folder : folder_temporary_root(), device);
    return file_make_folder(c->ctx, *out_path);
}

/* `inside` the cache a file is moved to its place and not copied; else where temporary files are. */
sol_status cache_work_folder(struct cache *c, bool inside, const char **out_path)
{
    const struct cache_place *p = writable_place(c);
    if (inside && p && folder_has_room(p->folder, WORK_ROOM)) {
        const char *tmp = arena_printf(c->arena, "%s/tmp", p->folder);
        char *path = arena_printf(c->arena, "%s/work-XXXXXX", tmp);
        folder_remove_old(tmp, WORK_OLD); /* of builds that were killed */
        if (!file_make_folder(c->ctx, tmp) && (*out_path = mkdtemp(path))) return SOL_OK;
    }
    if ((*out_path = folder_temporary(c->arena))) return SOL_OK;
    return ctx_fail(c->ctx, SOL_ERR_IO, "build: cannot make a folder in %s: %s; make room, or set TMPDIR",
                    folder_temporary_root(), strerror(errno));
}

/* Removes what the cache is known to make, nothing else that may be in the folder. */
sol_status sol_cache_clear(struct sol_ctx *ctx)
{
    static const char *const names[] = {"x86", "arm64", "debug", "tmp", "index.db", "index.db-journal"};
    const char *folder = ctx_config(ctx, "cache::folder"), *why;
    struct arena *a;
    if (!*folder || !file_exists(folder)) return SOL_OK;
    if (!folder_is_private(folder, &why))
        return ctx_fail(ctx, SOL_ERR_IO, "cache: folder '%s' is not cleared: %s", folder, why);
    if (!(a = arena_create(ctx))) return SOL_ERR_NOMEM;
    sol_status status = SOL_OK;
    for (int i = 0; i < COUNT_OF(names); i++) {
        const char *path = arena_printf(a, "%s/%s", folder, names[i]);
        folder_remove(path);
        if (file_exists(path) && unlink(path))
            status = ctx_fail(ctx, SOL_ERR_IO, "cache: cannot remove '%s': %s", path, strerror(errno));
    }
    arena_destroy(a);
    return status;
}
