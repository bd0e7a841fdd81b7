/* Builds a module: computes keys, looks into the cache, runs compilers, links, and maps the module.
 *
 * The module's key covers its own text, the hashes of its kernels and data, and the compiler, so that a warm start
 * reads one file. Build links and maps copies of the verified bytes, which nobody can change. */
#include "build/inside.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rt/rt.h"

enum { BATCH_KERNELS = 24, BATCH_BYTES = 192 << 10, ERROR_LINES = 6, ERROR_BYTES = 1500 };

struct build {
    struct sol_ctx *ctx;
    struct arena *arena;
    const struct build_request *r;
    struct cache cache;
    struct compiler cc;
    const char **symbol;        /* by kernel of the request */
    struct map *number;         /* 1 + number of the distinct kernel, by symbol */
    int nkernel;                /* distinct */
    const char **key;           /* their symbols */
    struct source_text *kernel; /* their texts */
    const char **object;        /* where they are; NULL: to be compiled */
    const char *module, *module_key;
    const char *work;    /* folder of this build alone */
    bool debug;          /* one text for each kernel, and sources are kept */
    const char *sources; /* folder, in debug builds */
};

/* Computes every kernel's symbol; equal kernels share one. */
static void number_kernels(struct build *b)
{
    const struct build_request *r = b->r;
    b->number = map_create(b->arena);
    b->symbol = NEW_ARRAY(b->arena, const char *, r->nkernel);
    b->key = NEW_ARRAY(b->arena, const char *, r->nkernel);
    b->kernel = NEW_ARRAY(b->arena, struct source_text, r->nkernel);
    b->object = NEW_ARRAY(b->arena, const char *, r->nkernel);
    for (int k = 0; k < r->nkernel; k++) {
        char symbol[SOURCE_SYMBOL];
        source_symbol(b->cc.id, &r->kernel[k], symbol);
        b->symbol[k] = arena_strdup(b->arena, symbol);
        if (map_get(b->number, symbol)) continue;
        b->key[b->nkernel] = b->symbol[k];
        b->kernel[b->nkernel++] = r->kernel[k];
        map_set(b->number, symbol, (void *)(uintptr_t)b->nkernel);
    }
}

static void make_module_key(struct build *b)
{
    char hex[33];
    struct digest d;
    digest_init(&d, NULL);
    digest_text(&d, b->cc.id);
    digest_text(&d, b->module);
    for (int i = 0; i < b->r->ndata; i++) digest_add(&d, b->r->data[i].bytes, b->r->data[i].n);
    digest_hex(&d, hex);
    b->module_key = arena_printf(b->arena, "sol_m_%s", hex);
}

/* -- what is missing */

static const char *work_file(const struct build *b, const char *name)
{
    return arena_printf(b->arena, "%s/%s", b->work, name);
}

/* In debug builds sources are kept, where the debugger looks for them. */
static const char *source_path(const struct build *b, const char *work_name, const char *symbol)
{
    if (!b->debug) return work_file(b, work_name);
    return arena_printf(b->arena, "%s/%s_%s.c", b->sources, text_identifier(b->arena, b->r->name), symbol);
}

/* Adds a job that compiles these kernels. */
static sol_status add_job(struct build *b, job_list *jobs, int n, const int *kernel)
{
    struct source_text *text = NEW_ARRAY(b->arena, struct source_text, n);
    const char **symbol = NEW_ARRAY(b->arena, const char *, n);
    for (int i = 0; i < n; i++) {
        text[i] = b->kernel[kernel[i]];
        symbol[i] = b->key[kernel[i]];
    }
    struct job j = {.nkernel = n, .kernel = arena_memdup(b->arena, kernel, (size_t)n * sizeof *kernel)};
    j.source = source_path(b, arena_printf(b->arena, "%d.c", jobs->n), b->key[kernel[0]]);
    j.object = work_file(b, arena_printf(b->arena, "%d.o", jobs->n));
    const char *source = batch_source(b->arena, n, text, symbol);
    if (b->debug && text[0].note) source = arena_printf(b->arena, "%s%s", text[0].note, source);
    TRY(file_write(b->ctx, j.source, source, strlen(source)));
    PUSH(b->arena, *jobs, j);
    return SOL_OK;
}

static sol_status add_module_job(struct build *b, job_list *jobs)
{
    for (int d = 0; d < b->r->ndata; d++) {
        const char *path = work_file(b, arena_printf(b->arena, "d%d.bin", d));
        TRY(file_write(b->ctx, path, b->r->data[d].bytes, b->r->data[d].n));
    }
    struct job j = {.source = source_path(b, "module.c", b->module_key), .object = work_file(b, "module.o")};
    TRY(file_write(b->ctx, j.source, b->module, strlen(b->module)));
    PUSH(b->arena, *jobs, j);
    return SOL_OK;
}

struct missing {
    size_t n; /* bytes, helpers apart */
    int kernel;
};

static int larger_first(const void *x, const void *y)
{
    const struct missing *a = x, *b = y;
    return a->n != b->n ? (a->n < b->n ? 1 : -1) : a->kernel - b->kernel;
}

/* The kernels without an object, largest first. */
static int missing_kernels(struct build *b, struct missing *out)
{
    int n = 0;
    for (int k = 0; k < b->nkernel; k++) {
        if (b->object[k]) continue;
        out[n++] = (struct missing){.n = strlen(b->kernel[k].body), .kernel = k};
    }
    if (n) qsort(out, (size_t)n, sizeof *out, larger_first);
    return n;
}

/* Distributes the kernels over sources of similar size. There are enough sources to keep all processors busy, and few
 * enough that starting compilers and reading helpers does not matter: that is 15 to 20 ms for each. */
static sol_status add_kernel_jobs(struct build *b, job_list *jobs, int limit)
{
    struct missing *m = NEW_ARRAY(b->arena, struct missing, b->nkernel);
    const int n = missing_kernels(b, m);
    size_t bytes = 0;
    for (int i = 0; i < n; i++) bytes += m[i].n;
    int batches = MAX((n + BATCH_KERNELS - 1) / BATCH_KERNELS, (int)(bytes / BATCH_BYTES + 1));
    batches = b->debug ? n : MIN((batches + limit - 1) / limit * limit, n);
    int *batch = NEW_ARRAY(b->arena, int, n + 1);
    for (int i = 0; i < batches; i++) {
        int in = 0;
        for (int k = i; k < n; k += batches) batch[in++] = m[k].kernel;
        TRY(add_job(b, jobs, in, batch));
    }
    return SOL_OK;
}

/* -- errors */

static sol_status rejected(struct build *b, const struct job *j)
{
    const char *folder = NULL, *kept = j->source;
    const char *name = j->nkernel ? b->key[j->kernel[0]] : b->module_key;
    char *source;
    size_t bytes, lines = 0;
    if (!cache_source_folder(&b->cache, &folder) && !file_read(b->ctx, b->arena, j->source, &source, &bytes)) {
        const char *both = arena_printf(b->arena, "%.*s\n/*\n%s\n*/\n", (int)bytes, source, j->output);
        kept = arena_printf(b->arena, "%s/rejected_%s.c", folder, name);
        if (file_write(b->ctx, kept, both, strlen(both))) kept = NULL;
    }
    for (int i = 0; i < ERROR_LINES && j->output[lines]; i++) {
        const size_t n = strcspn(j->output + lines, "\n") + 1;
        if (lines && lines + n > (size_t)ERROR_BYTES) break; /* whole lines, but for the first */
        lines += n;
    }
    lines = MIN(lines, strlen(j->output));
    return ctx_fail(
        b->ctx, SOL_ERR_COMPILER,
        "compiler '%s': rejected the code of '%s' (%s): %.*s\nThe source, with all that the compiler said at its end, "
        "is kept in %s",
        b->cc.path, b->r->name, compiler_ended(b->arena, j->exit), (int)MIN(lines, (size_t)ERROR_BYTES), j->output,
        kept ? kept : "no place: the disk is full");
}

/* -- compile */

static void store_object(struct build *b, const struct job *j)
{
    char *data;
    size_t bytes;
    const char **keys = NEW_ARRAY(b->arena, const char *, j->nkernel);
    for (int i = 0; i < j->nkernel; i++) keys[i] = b->key[j->kernel[i]];
    if (b->cache.nplace && !file_read(b->ctx, b->cache.arena, j->object, &data, &bytes))
        cache_keep(&b->cache, CACHE_OBJECT, data, bytes, j->nkernel, keys);
    for (int i = 0; i < j->nkernel; i++) b->object[j->kernel[i]] = j->object;
}

/* Copies the object of kernel k (and perhaps of others) out of the cache, so that the linker reads verified bytes. */
static void take_from_cache(struct build *b, int k)
{
    struct cache_entry e;
    const char *path = work_file(b, arena_printf(b->arena, "c%d.o", k));
    if (!cache_find(&b->cache, CACHE_OBJECT, b->key[k], &e) || file_write(b->ctx, path, e.data, e.bytes)) return;
    for (int i = 0; i < e.keys.n; i++) {
        const int of = (int)(uintptr_t)map_get(b->number, e.keys.at[i]) - 1;
        if (of >= 0 && !b->object[of]) b->object[of] = path;
    }
}

/* A kernel, or the module, that the compiler rejected: tries it again if the compiler crashed. */
static sol_status try_again(struct build *b, job_list *jobs, const struct job *j)
{
    struct job again;
    const char *flag = job_again(j, &again);
    if (!flag) return rejected(b, j);
    LOG(b->ctx, LOG_WARN, "build", "compiler '%s': crashed at a kernel of '%s', which is compiled with %s: %.200s",
        b->cc.path, b->r->name, flag, j->output);
    PUSH(b->arena, *jobs, again);
    return SOL_OK;
}

/* Collects the objects of jobs [first, end). Kernels of a source that the compiler rejected become separate jobs. */
static sol_status take_objects(struct build *b, job_list *jobs, int first, int end)
{
    for (int i = first; i < end; i++) {
        const struct job j = jobs->at[i];
        if (j.exit && j.nkernel < 2) {
            TRY(try_again(b, jobs, &j));
        } else if (j.exit) {
            LOG(b->ctx, LOG_DEBUG, "build", "%d kernels are compiled again, one by one: %.300s", j.nkernel, j.output);
            for (int k = 0; k < j.nkernel; k++) TRY(add_job(b, jobs, 1, &j.kernel[k]));
        } else if (j.nkernel) {
            store_object(b, &j);
        }
    }
    return SOL_OK;
}

static int processors(const struct build_request *r)
{
    return MIN(r->jobs > 0 ? r->jobs : rt_processors(), 256);
}

static sol_status compile(struct build *b)
{
    job_list jobs = {0};
    int total = 0;
    for (int k = 0; k < b->nkernel && !b->r->trial; k++) total += !b->object[k]; /* a trial is progress of tuning */
    TRY(add_module_job(b, &jobs));
    TRY(add_kernel_jobs(b, &jobs, processors(b->r)));
    const struct job_setup setup = {b->ctx, b->arena, &b->cc, b->work, processors(b->r), total};
    for (int first = 0, end; first < jobs.n; first = end) {
        end = jobs.n;
        TRY(jobs_run(&setup, &jobs, first));
        TRY(take_objects(b, &jobs, first, end));
    }
    return SOL_OK;
}

/* Objects built by two processes at the same time may contain the same kernel twice. */
static sol_status link_module(struct build *b, const char *path)
{
    static const char *const flags[] = {"-shared", "-Wl,-z,muldefs", "-Wl,--gc-sections", "-Wl,--build-id=none"};
    VECTOR(const char *) argv = {0};
    PUSH(b->arena, argv, b->cc.path);
    for (int i = 0; i < COUNT_OF(flags); i++) PUSH(b->arena, argv, flags[i]);
    if (!b->debug) PUSH(b->arena, argv, "-s");
    PUSH(b->arena, argv, "-o");
    PUSH(b->arena, argv, path);
    PUSH(b->arena, argv, work_file(b, "module.o"));
    struct map *seen = map_create(b->arena);
    for (int k = 0; k < b->nkernel; k++) {
        if (map_get(seen, b->object[k])) continue;
        map_set(seen, b->object[k], b);
        PUSH(b->arena, argv, b->object[k]);
    }
    PUSH(b->arena, argv, "-lm");
    PUSH(b->arena, argv, NULL);
    int exit;
    const char *output;
    TRY(process_run(b->arena, argv.at, &exit, &output));
    if (exit)
        return ctx_fail(b->ctx, SOL_ERR_COMPILER, "compiler '%s': cannot link '%s' (%s): %.800s", b->cc.path,
                        b->r->name, compiler_ended(b->arena, exit), output);
    if (file_exists(path)) return SOL_OK;
    return ctx_fail(b->ctx, SOL_ERR_COMPILER, "compiler '%s': cannot link '%s': it reports success and writes no file",
                    b->cc.path, b->r->name);
}

/* -- map */

static sol_status take_table(struct build *b, void *handle, const char *path, struct module *out_m)
{
    const struct sol_module *table = dlsym(handle, "sol_module");
    if (table && table->size >= sizeof *table && table->version == SOL_MODULE_VERSION) {
        *out_m = (struct module){handle, table};
        return SOL_OK;
    }
    dlclose(handle);
    return ctx_fail(b->ctx, SOL_ERR_INTERNAL, "build: %s has no sol_module of version %d", path, SOL_MODULE_VERSION);
}

static sol_status open_at(struct build *b, const char *path, struct module *out_m)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle) return take_table(b, handle, path, out_m);
    const char *why = arena_strdup(b->arena, dlerror());
    return ctx_fail(b->ctx, SOL_ERR_IO, "build: cannot map %s%s", why,
                    strstr(why, "failed to map")
                        ? ": set TMPDIR, and with compiler::debug SOL_CACHE, to a folder that is not mounted noexec"
                        : "");
}

/* The loader assumes that a name it has seen is the library it has loaded, but descriptor numbers are reused. The name
 * therefore encodes the key in repeated slashes, which have no other effect. */
void *module_map_copy(struct arena *a, const char *key, const char *data, size_t bytes)
{
    struct text name = text_new(a);
    const int fd = memfd_create(key, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return NULL;
    for (size_t done = 0, n = 1; done < bytes && n; done += n) {
        const ssize_t written = write(fd, data + done, bytes - done);
        n = written > 0 ? (size_t)written : 0;
    }
    const bool whole = lseek(fd, 0, SEEK_CUR) == (off_t)bytes;
    fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
    text_put(&name, "/proc/self/fd");
    for (const char *at = key; *at; at++) {
        text_put(&name, "/.");
        for (int i = *at % 32; i > 0; i--) text_put(&name, "/");
    }
    text_put(&name, "/%d", fd);
    void *handle = whole ? dlopen(name.at, RTLD_NOW | RTLD_LOCAL) : NULL;
    close(fd);
    return handle;
}

static sol_status open_copy(struct build *b, const char *data, size_t bytes, struct module *out_m)
{
    void *handle = module_map_copy(b->arena, b->module_key, data, bytes);
    if (handle && !take_table(b, handle, b->module_key, out_m)) return SOL_OK;
    return ctx_fail(b->ctx, SOL_ERR_IO, "build: cannot map %s from memory", b->module_key);
}

/* Maps the cached module from memory, or without /proc from a private folder. */
static sol_status open_cached(struct build *b, const struct cache_entry *e, struct module *out_m)
{
    const sol_status status = open_copy(b, e->data, e->bytes, out_m);
    const char *folder = status ? folder_temporary(b->arena) : NULL;
    if (!folder) return status;
    const char *copy = arena_printf(b->arena, "%s/%s.so", folder, b->module_key);
    sol_status copied = file_write(b->ctx, copy, e->data, e->bytes);
    if (!copied) copied = open_at(b, copy, out_m);
    folder_remove(folder);
    return copied;
}

/* Maps the module just linked, and stores it in the cache. */
static sol_status open_linked(struct build *b, const char *path, struct module *out_m)
{
    char *data;
    size_t bytes;
    if (file_read(b->ctx, b->cache.arena, path, &data, &bytes)) return open_at(b, path, out_m);
    if (b->debug) { /* where a debugger finds it */
        const char *name = text_identifier(b->arena, b->r->name);
        const char *kept = arena_printf(b->arena, "%s/%s_%s.so", b->sources, name, b->module_key);
        return open_at(b, file_write(b->ctx, kept, data, bytes) ? path : kept, out_m);
    }
    if (!b->r->trial) cache_keep(&b->cache, CACHE_MODULE, data, bytes, 1, &b->module_key);
    return open_copy(b, data, bytes, out_m) ? open_at(b, path, out_m) : SOL_OK;
}

/* -- all of it */

static sol_status build(struct build *b, bool use_cache, struct module *out_m)
{
    int found = 0;
    for (int k = 0; k < b->nkernel; k++) b->object[k] = NULL;
    for (int k = 0; k < b->nkernel; k++) {
        const bool look = use_cache && (!b->debug || file_exists(source_path(b, NULL, b->key[k])));
        if (look && !b->object[k]) take_from_cache(b, k);
        found += b->object[k] != NULL;
    }
    const int64_t start = clock_ns();
    TRY(compile(b));
    const char *path = work_file(b, arena_printf(b->arena, "%s.so", b->module_key));
    TRY(link_module(b, path));
    LOG(b->ctx, LOG_DEBUG, "build", "%s: %d kernels compiled by %s in %.2f s, %d from the cache", b->r->name,
        b->nkernel - found, b->cc.path, (double)(clock_ns() - start) * 1e-9, found);
    return open_linked(b, path, out_m);
}

/* If linking with cached objects fails, they may be damaged (by a compiler that wrote nonsense). */
static sol_status build_missing(struct build *b, struct module *out_m)
{
    sol_status status = SOL_OK;
    if (!b->cc.path) return compiler_missing(b->ctx, &b->cc);
    TRY(ctx_check(b->ctx));
    cache_make_room(&b->cache);
    if (b->debug) {
        TRY(cache_source_folder(&b->cache, &b->sources));
        LOG(b->ctx, LOG_INFO, "build", "the sources of '%s' are in %s", b->r->name, b->sources);
    }
    for (int use_cache = 1; use_cache >= 0; use_cache--) {
        if (!(b->work = folder_temporary(b->arena)))
            return ctx_fail(b->ctx, SOL_ERR_IO, "build: cannot make a folder in %s: %s; make room, or set TMPDIR",
                            folder_temporary_root(), strerror(errno));
        status = build(b, use_cache, out_m);
        folder_remove(b->work);
        if (!status || status == SOL_ERR_INTERRUPTED || status == SOL_ERR_NOMEM) break;
    }
    return status;
}

static sol_status find_or_build(struct build *b, struct module *out_m)
{
    TRY(compiler_find(b->ctx, b->arena, &b->cache, b->r, &b->cc));
    number_kernels(b);
    TRY(source_module(b->ctx, b->arena, b->r, b->symbol, &b->module));
    make_module_key(b);
    TRY(ctx_check(b->ctx));
    struct cache_entry e;
    if (!b->debug && cache_find(&b->cache, CACHE_MODULE, b->module_key, &e)) {
        if (!open_cached(b, &e, out_m)) return SOL_OK;
        LOG(b->ctx, LOG_WARN, "build", "%s; it is built again", sol_error(b->ctx));
        cache_drop(&b->cache, CACHE_MODULE, b->module_key);
    }
    return build_missing(b, out_m);
}

sol_status build_module(struct sol_ctx *ctx, struct arena *a, const struct build_request *r, struct module *out_m)
{
    struct build b = {.ctx = ctx, .arena = a, .r = r};
    *out_m = (struct module){0};
    b.debug = !strcmp(ctx_config(ctx, "compiler::debug"), "1");
    cache_open(&b.cache, ctx, r->device);
    const sol_status status = find_or_build(&b, out_m);
    cache_close(&b.cache);
    return status;
}

void module_close(struct module *m)
{
    if (m->handle) dlclose(m->handle);
    *m = (struct module){0};
}
