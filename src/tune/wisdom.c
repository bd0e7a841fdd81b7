/* Wisdom on file: <cache folder>/wisdom, a line of text for each key, its fields separated by tabs, the last one a hash
 * of the others. A line that is not whole is skipped. Writers take turns by a lock, read what others wrote meanwhile,
 * and put a whole new file in place. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "build/build.h"
#include "tune/tune.h"

#define HEADER "SOL wisdom 1\n"
enum { FIELDS = 9, CHECK_DIGITS = 8, MOST_TEXT = 120 };

static struct wisdom *wisdom_new(struct arena *a)
{
    struct wisdom *w = NEW(a, struct wisdom);
    *w = (struct wisdom){.arena = a, .by_key = map_create(a)};
    return w;
}

const struct wisdom_entry *wisdom_find(const struct wisdom *w, const char *key)
{
    return map_get(w->by_key, key);
}

/* A text as a field: one line, no tabs, not too long. */
static const char *field(struct arena *a, const char *text)
{
    char *f = arena_printf(a, "%.*s", MOST_TEXT, text && *text ? text : "-");
    for (char *c = f; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127) *c = ' ';
    return f;
}

void wisdom_put(struct wisdom *w, const struct wisdom_entry *e)
{
    struct wisdom_entry *own = map_get(w->by_key, e->key);
    if (!own) {
        own = NEW(w->arena, struct wisdom_entry);
        PUSH(w->arena, w->entries, own);
        map_set(w->by_key, e->key, own);
    }
    *own = *e;
    own->key = arena_strdup(w->arena, e->key);
    own->solver = field(w->arena, e->solver);
    own->variant = field(w->arena, e->variant);
    own->machine = field(w->arena, e->machine);
    own->what = field(w->arena, e->what);
}

/* -- lines */

static void check_of(const char *line, size_t n, char out[CHECK_DIGITS + 1])
{
    struct hash h;
    char hex[33];
    hash_init(&h);
    hash_add(&h, line, n);
    hash_hex(&h, hex);
    memcpy(out, hex, CHECK_DIGITS);
    out[CHECK_DIGITS] = 0;
}

static void put_line(struct text *t, const struct wisdom_entry *e)
{
    char check[CHECK_DIGITS + 1];
    const size_t begin = t->n;
    text_put(t, "%s\t%s\t%s\t%.0f\t%.0f\t%lld\t%s\t%s\t", e->key, e->solver, e->variant, e->ns, e->before_ns,
             (long long)e->when, e->machine, e->what);
    check_of(t->at + begin, t->n - begin, check);
    text_put(t, "%s\n", check);
}

static bool is_key(const char *key)
{
    return strlen(key) == 32 && strspn(key, "0123456789abcdef") == 32;
}

/* A line without its end, which is changed. */
static bool read_line(char *line, struct wisdom_entry *out)
{
    char *f[FIELDS], check[CHECK_DIGITS + 1];
    char *last = strrchr(line, '\t');
    if (!last) return false;
    check_of(line, (size_t)(last + 1 - line), check);
    if (strcmp(last + 1, check)) return false;
    for (int i = 0; i < FIELDS; i++) {
        f[i] = line;
        line += strcspn(line, "\t");
        if (!*line != (i == FIELDS - 1)) return false;
        if (*line) *line++ = 0;
    }
    *out = (struct wisdom_entry){.key = f[0],
                                 .solver = f[1],
                                 .variant = f[2],
                                 .ns = strtod(f[3], NULL),
                                 .before_ns = strtod(f[4], NULL),
                                 .when = strtoll(f[5], NULL, 10),
                                 .machine = f[6],
                                 .what = f[7]};
    return is_key(f[0]) && out->ns >= 0 && out->before_ns >= 0;
}

/* Of two that say something about one key the later counts; if they are of files that are merged, the faster. */
static int read_text(struct wisdom *w, char *text, size_t bytes, bool faster)
{
    int n = 0;
    for (size_t i = 0; i < bytes; i++)
        if (!text[i]) text[i] = '?'; /* damage must not hide what follows */
    if (bytes < strlen(HEADER) || memcmp(text, HEADER, strlen(HEADER))) return -1;
    for (char *line = text; *line;) {
        char *end = line + strcspn(line, "\n");
        const bool whole = *end == '\n';
        struct wisdom_entry e;
        *end = 0;
        if (whole && read_line(line, &e)) {
            const struct wisdom_entry *old = wisdom_find(w, e.key);
            e.ours = faster;
            if (!old || (faster ? e.ns < old->ns : e.when >= old->when)) {
                wisdom_put(w, &e);
                n++;
            }
        }
        line = end + whole;
    }
    return n;
}

/* How many lines were new; -1: it is no file of wisdom. */
static int read_file(struct sol_ctx *ctx, struct wisdom *w, const char *path, bool faster)
{
    char *text;
    size_t bytes;
    if (!path || !file_exists(path) || file_read(ctx, w->arena, path, &text, &bytes)) return -1;
    text[bytes] = 0; /* file_read has room for it */
    return read_text(w, text, bytes, faster);
}

struct wisdom *wisdom_load(struct sol_ctx *ctx, struct arena *a)
{
    struct wisdom *w = wisdom_new(a);
    for (int place = CACHE_PLACES - 1; place >= 0; place--)
        read_file(ctx, w, cache_beside(ctx, a, place, "wisdom"), false);
    return w;
}

/* -- saving */

/* Waits for other writers; -1: there is no lock to be had, and then the last writer wins. */
static int lock(struct arena *a, const char *path)
{
    const int fd = open(arena_printf(a, "%s.lock", path), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    while (fd >= 0 && flock(fd, LOCK_EX) && errno == EINTR) {
    }
    return fd;
}

static sol_status write_file(struct sol_ctx *ctx, const char *path, const struct wisdom *w)
{
    struct text t = text_new(w->arena);
    text_put(&t, HEADER);
    for (int i = 0; i < w->entries.n; i++) put_line(&t, w->entries.at[i]);
    return file_write(ctx, path, t.at, t.n);
}

static sol_status save_at(struct sol_ctx *ctx, const struct wisdom *ours, const char *path)
{
    struct wisdom *all = wisdom_new(ours->arena);
    const int fd = lock(all->arena, path);
    read_file(ctx, all, path, false);
    for (int i = 0; i < ours->entries.n; i++)
        if (ours->entries.at[i]->ours) wisdom_put(all, ours->entries.at[i]);
    const sol_status status = write_file(ctx, path, all);
    if (fd >= 0) close(fd);
    return status;
}

void wisdom_save(struct sol_ctx *ctx, struct wisdom *w)
{
    for (int place = 0; place < CACHE_PLACES; place++) {
        const char *path = cache_beside(ctx, w->arena, place, "wisdom");
        if (path && !save_at(ctx, w, path)) return;
    }
    LOG(ctx, LOG_DEBUG, "tune", "wisdom is not kept: %s", sol_error(ctx));
}

/* -- for people */

static void print_entry(struct text *t, const struct wisdom_entry *e)
{
    char day[16] = "-";
    const time_t when = (time_t)e->when;
    struct tm tm;
    if (gmtime_r(&when, &tm)) strftime(day, sizeof day, "%Y-%m-%d", &tm);
    text_put(t, "%10.1f %10.1f %6.2fx  %-10s  %-16s %-24s %s  [%s]\n", e->ns / 1e3, e->before_ns / 1e3,
             e->ns > 0 ? e->before_ns / e->ns : 1, day, e->solver, e->variant, e->what, e->machine);
}

sol_status sol_wisdom_print(struct sol_ctx *ctx, char **out_text)
{
    struct arena *a = arena_create(ctx);
    *out_text = NULL;
    if (!a) return ctx_check(ctx);
    const struct wisdom *w = wisdom_load(ctx, a);
    struct text t = text_new(a);
    text_put(&t, "%10s %10s %7s  %-10s  %-16s %-24s %s\n", "tuned us", "by cost us", "gain", "measured", "solver",
             "variant", "what");
    for (int i = 0; i < w->entries.n; i++) print_entry(&t, w->entries.at[i]);
    sol_status status = ctx_check(ctx);
    if (!status && !(*out_text = ctx_realloc(ctx, NULL, t.n + 1)))
        status = ctx_fail(ctx, SOL_ERR_NOMEM, "wisdom: out of memory");
    if (!status) memcpy(*out_text, t.at, t.n + 1);
    arena_destroy(a);
    return status;
}

static sol_status merge(struct sol_ctx *ctx, struct arena *a, const char *path, int *out_new)
{
    struct wisdom *w = wisdom_load(ctx, a);
    char *text;
    size_t bytes;
    TRY(file_read(ctx, a, path, &text, &bytes));
    text[bytes] = 0;
    *out_new = read_text(w, text, bytes, true);
    if (*out_new < 0)
        return ctx_fail(ctx, SOL_ERR_INVALID, "wisdom: '%s' is no file of wisdom: expected '%.12s' in its first line",
                        path, HEADER);
    const char *own = cache_beside(ctx, a, 0, "wisdom");
    if (!own)
        return ctx_fail(ctx, SOL_ERR_IO,
                        "wisdom: there is no folder of one's own to keep it in: set the key "
                        "cache::folder to one");
    return save_at(ctx, w, own);
}

sol_status sol_wisdom_merge(struct sol_ctx *ctx, const char *path, int *out_new)
{
    struct arena *a = arena_create(ctx);
    *out_new = 0;
    if (!a) return ctx_check(ctx);
    file_make_folder(ctx, ctx_config(ctx, "cache::folder"));
    const sol_status status = merge(ctx, a, path, out_new);
    arena_destroy(a);
    return status;
}

sol_status sol_wisdom_clear(struct sol_ctx *ctx)
{
    struct arena *a = arena_create(ctx);
    sol_status status = SOL_OK;
    if (!a) return ctx_check(ctx);
    for (int place = 0; place < CACHE_PLACES; place++) {
        const char *path = cache_beside(ctx, a, place, "wisdom");
        if (path && unlink(path) && errno != ENOENT)
            status = ctx_fail(ctx, SOL_ERR_IO, "wisdom: cannot remove '%s': %s", path, strerror(errno));
    }
    arena_destroy(a);
    return status;
}
