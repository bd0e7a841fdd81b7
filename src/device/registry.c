/* The device types of a context: the processors, the built-in devices, and those of plug-ins (key device::plugins). A
 * plug-in whose path is added to the key later is opened then; none is ever closed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/inside.h"

struct devices {
    struct sol_host host;
    struct arena *arena;
    struct helpers *helpers;
    struct lock lock; /* for all below */
    VECTOR(struct driver *) drivers;
    VECTOR(const char *) opened; /* paths of plug-ins */
    VECTOR(struct absent_plugin) absent;
    const char *paths; /* the key that was read last */
};

/* Besides the processors. */
static const struct sol_device_type *const built_in[] = {&far_type, &opencl_type, &nvidia_type, &ve_type};

/* -- what types may ask for */

struct sol_ctx *host_ctx(const struct sol_host *host)
{
    return host->user;
}

static void *host_reallocate(void *user, void *p, size_t bytes)
{
    struct sol_ctx *ctx = user;
    if (bytes) return p ? ctx_realloc(ctx, p, bytes) : ctx_try(ctx, bytes);
    ctx_free(ctx, p);
    return NULL;
}

static const char *host_config(void *user, const char *key)
{
    return sol_config_get(user, key);
}

static void host_option(void *user, const char *name, char *out, size_t room)
{
    const char *at = ctx_config(user, "device::options");
    const size_t n = strlen(name);
    snprintf(out, room, "%s", "");
    for (; *at; at += strcspn(at, ","), at += *at == ',')
        if (!strncmp(at, name, n) && at[n] == '=') {
            at += n + 1;
            snprintf(out, room, "%.*s", (int)strcspn(at, ","), at);
        }
}

static void host_log(void *user, int level, const char *module, const char *text)
{
    LOG(user, (enum log_level)MAX(0, MIN(level, LOG_TRACE)), module, "%s", text);
}

/* -- the list */

static void destroy(struct sol_ctx *ctx, void *part)
{
    struct devices *d = part;
    lock_destroy(&d->lock);
    if (d->helpers) helpers_destroy(d->helpers);
    arena_destroy(d->arena);
    ctx_free(ctx, d);
}

/* Devices have been closed. false: a driver hangs, and may use what it was given. */
static bool end(struct sol_ctx *ctx, void *part)
{
    const struct devices *d = part;
    const bool ended = helpers_end(d->helpers);
    if (!ended) LOG(ctx, LOG_WARN, "run", "a driver hangs: the memory of its context is kept");
    return ended;
}

struct driver devices_driver(const struct devices *d, const struct sol_device_type *type)
{
    return (struct driver){.type = type, .host = &d->host, .helpers = d->helpers};
}

static void add_type(struct devices *d, const struct sol_device_type *type)
{
    struct driver *driver = NEW(d->arena, struct driver);
    *driver = devices_driver(d, type);
    PUSH(d->arena, d->drivers, driver);
}

static void *make(struct sol_ctx *ctx)
{
    struct devices *d = ctx_try(ctx, sizeof *d);
    if (!d) return NULL;
    *d = (struct devices){.arena = arena_create(ctx),
                          .helpers = helpers_create(ctx),
                          .host = {.size = sizeof d->host,
                                   .version = SOL_DEVICE_VERSION,
                                   .user = ctx,
                                   .reallocate = host_reallocate,
                                   .config = host_config,
                                   .option = host_option,
                                   .log = host_log}};
    lock_init(&d->lock);
    if (!d->arena || !d->helpers) {
        destroy(ctx, d);
        return NULL;
    }
    for (int i = 0; i < processor_types_count(); i++) add_type(d, processor_type(d->arena, i));
    for (int i = 0; i < COUNT_OF(built_in); i++) add_type(d, built_in[i]);
    return d;
}

static const struct sol_device_type *named(const struct devices *d, const char *name, size_t n)
{
    for (int i = 0; i < d->drivers.n; i++) {
        const struct sol_device_type *type = d->drivers.at[i]->type;
        if (strlen(type->name) == n && !strncmp(type->name, name, n)) return type;
    }
    return NULL;
}

static void add_plugin(struct devices *d, const char *path)
{
    const char *why = NULL;
    device_plugin_fn *plugin = plugin_open(d->arena, path, &why);
    PUSH(d->arena, d->opened, path);
    if (!plugin) PUSH(d->arena, d->absent, ((struct absent_plugin){path, why}));
    for (int i = 0; plugin && plugin(i); i++) {
        const struct sol_device_type *type = plugin(i);
        why = plugin_rejects(d->arena, type);
        if (!why && named(d, type->name, strlen(type->name))) why = "there is a device type of this name already";
        if (why)
            PUSH(d->arena, d->absent, ((struct absent_plugin){path, why}));
        else
            add_type(d, type);
    }
}

static bool is_opened(const struct devices *d, const char *path)
{
    for (int i = 0; i < d->opened.n; i++)
        if (!strcmp(d->opened.at[i], path)) return true;
    return false;
}

static void add_plugins(struct devices *d, const char *paths)
{
    d->paths = paths;
    for (const char *at = paths; *at; at += *at == ':') {
        const char *path = arena_printf(d->arena, "%.*s", (int)strcspn(at, ":"), at);
        at += strlen(path);
        if (*path && !is_opened(d, path)) add_plugin(d, path);
    }
}

sol_status devices_of(struct sol_ctx *ctx, struct devices **out_d)
{
    static const struct ctx_part kind = {make, destroy, end};
    struct devices *d = ctx_part(ctx, &kind);
    *out_d = d;
    if (!d) return ctx_fail(ctx, SOL_ERR_NOMEM, "out of memory: the list of devices");
    const char *paths = ctx_config(ctx, "device::plugins");
    lock_take(&d->lock, NULL, NULL);
    if (paths != d->paths) add_plugins(d, paths);
    lock_give(&d->lock);
    return SOL_OK;
}

const struct sol_device_type *devices_at(struct devices *d, int i)
{
    lock_take(&d->lock, NULL, NULL);
    const struct sol_device_type *type = i >= 0 && i < d->drivers.n ? d->drivers.at[i]->type : NULL;
    lock_give(&d->lock);
    return type;
}

struct absent_plugin devices_absent(struct devices *d, int i)
{
    lock_take(&d->lock, NULL, NULL);
    const struct absent_plugin absent = i >= 0 && i < d->absent.n ? d->absent.at[i] : (struct absent_plugin){0};
    lock_give(&d->lock);
    return absent;
}

const struct sol_host *devices_host(const struct devices *d)
{
    return &d->host;
}

/* -- what drivers say */

int64_t devices_limit(struct sol_ctx *ctx)
{
    enum { MOST = 1000000000 };
    const long long seconds = atoll(ctx_config(ctx, "device::timeout"));
    return MAX(0, MIN(seconds, MOST)) * NS_PER_SECOND;
}

int64_t devices_limit_listing(struct sol_ctx *ctx)
{
    enum { SECONDS = 30 }; /* drivers of many cards need 10 to start */
    const int64_t limit_ns = devices_limit(ctx);
    return limit_ns ? limit_ns : SECONDS * NS_PER_SECOND;
}

static struct driver *driver_of(struct devices *d, const struct sol_device_type *type)
{
    struct driver *found = NULL;
    lock_take(&d->lock, NULL, NULL);
    for (int i = 0; i < d->drivers.n && !found; i++)
        if (d->drivers.at[i]->type == type) found = d->drivers.at[i];
    lock_give(&d->lock);
    return found;
}

int devices_count(struct devices *d, const struct sol_device_type *type, int64_t limit_ns, struct sol_failure *out_why)
{
    int n = 0;
    *out_why = failure_new();
    const sol_status status = driver_count(driver_of(d, type), limit_ns, &n, out_why);
    if ((status || n <= 0) && !*out_why->text) failure_set(out_why, status, "its driver gives no reason");
    return status ? 0 : MAX(n, 0);
}

sol_status devices_info(struct devices *d, const struct sol_device_type *type, int index, int64_t limit_ns,
                        struct sol_device_info *out_info, struct sol_failure *out_why)
{
    *out_why = failure_new();
    *out_info = (struct sol_device_info){.size = sizeof *out_info, .type = type->name, .index = MAX(index, 0)};
    return driver_info(driver_of(d, type), limit_ns, index, out_info, out_why);
}

/* -- the selected one */

static sol_status no_such(struct sol_ctx *ctx, struct devices *d, const char *key)
{
    struct arena *a = arena_create(ctx);
    if (!a) return ctx_check(ctx);
    struct sol_failure why;
    struct text there = text_new(a);
    const int64_t limit_ns = devices_limit_listing(ctx);
    const struct sol_device_type *type;
    for (int i = 0; (type = devices_at(d, i)); i++)
        for (int k = 0, n = devices_count(d, type, limit_ns, &why); k < n; k++)
            text_put(&there, "%s%s:%d", there.n ? ", " : "", type->name, k);
    struct absent_plugin absent;
    for (int i = 0; (absent = devices_absent(d, i)).path; i++)
        text_put(&there, "; the plug-in %s cannot be used: %s", absent.path, absent.why);
    const sol_status status = ctx_fail(ctx, SOL_ERR_UNSUPPORTED,
                                       "device: there is no '%s'; there are %s (sol info --devices)", key, there.at);
    arena_destroy(a);
    return status;
}

static bool is_word(const char *name, size_t n, const char *word)
{
    return strlen(word) == n && !strncmp(name, word, n);
}

sol_status devices_named(struct sol_ctx *ctx, const char *key, const struct sol_device_type **out_type, int *out_index)
{
    struct devices *d;
    struct sol_failure why;
    const char *name = key;
    size_t n = strcspn(name, ":");
    TRY(devices_of(ctx, &d));
    if (!n || is_word(name, n, "auto") || is_word(name, n, "cpu")) {
        name = processor_here();
        n = strlen(name);
    }
    const char *colon = strchr(key, ':'), *index = colon ? colon + 1 : "0";
    lock_take(&d->lock, NULL, NULL);
    *out_type = named(d, name, n);
    lock_give(&d->lock);
    if (!*out_type || !*index || strlen(index) > 6 || strspn(index, "0123456789") != strlen(index))
        return no_such(ctx, d, key);
    *out_index = atoi(index);
    const int there = devices_count(d, *out_type, devices_limit(ctx), &why);
    if (!there) return ctx_fail(ctx, SOL_ERR_UNSUPPORTED, "device %s: it is not there: %s", key, why.text);
    return *out_index < there ? SOL_OK : no_such(ctx, d, key);
}

sol_status devices_selected(struct sol_ctx *ctx, const struct sol_device_type **out_type, int *out_index)
{
    return devices_named(ctx, ctx_config(ctx, "device"), out_type, out_index);
}

sol_status sol_device_select(struct sol_ctx *ctx, const char *device)
{
    const struct sol_device_type *type;
    int index;
    TRY(devices_named(ctx, device, &type, &index));
    return sol_config_set(ctx, "device", device);
}
