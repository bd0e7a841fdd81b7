/* The context: configuration, the thread's last error, the allocator, and the application's callbacks.
 *
 * Configuration values live as long as the context, so a returned pointer stays valid while another thread sets the
 * key. */
#include "base/size.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>

#include "base/context.h"

#define RESERVE ((size_t)64 << 20) /* a phase between two calls of ctx_check allocates less */

static const struct config_def {
    const char *key, *env, *value, *values, *doc;
} config_defs[] = {
#define X(key, env, value, values, doc) {key, env, value, values, doc},
#include "base/config.def"
#undef X
};

static _Thread_local char last_error[4096];
static _Thread_local struct {
    bool set;
    int64_t a, b;
} last_unequal; /* of last_error */

const char *sol_version(void)
{
    return SOL_VERSION;
}

/* -- errors */

sol_status ctx_fail(struct sol_ctx *ctx, sol_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(last_error, sizeof last_error, format, args);
    va_end(args);
    last_unequal.set = false;
    size_fill_message(ctx, last_error, sizeof last_error);
    if (ctx && status != SOL_OK) LOG(ctx, LOG_DEBUG, "core", "failed (%d): %s", status, last_error);
    return status;
}

sol_status ctx_where(struct sol_ctx *ctx, sol_status status, const char *format, ...)
{
    char text[sizeof last_error];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n < 0) return status;
    size_fill_message(ctx, text, sizeof text);
    n = (int)strlen(text);
    size_t used = MIN((size_t)n, sizeof text - 1);
    size_t rest = MIN(strlen(last_error), sizeof text - 1 - used);
    memcpy(text + used, last_error, rest);
    text[used + rest] = 0;
    memcpy(last_error, text, used + rest + 1);
    return status;
}

sol_status ctx_unequal(struct sol_ctx *ctx, int64_t a, int64_t b, sol_status failed)
{
    (void)ctx;
    last_unequal.set = size_varies(a) || size_varies(b);
    last_unequal.a = a;
    last_unequal.b = b;
    return failed;
}

void ctx_clear_error(struct sol_ctx *ctx)
{
    (void)ctx;
    last_unequal.set = false;
}

int sol_error_sizes(struct sol_ctx *ctx, int64_t *out_a, int64_t *out_b)
{
    (void)ctx;
    *out_a = last_unequal.a;
    *out_b = last_unequal.b;
    return last_unequal.set;
}

const char *sol_error(struct sol_ctx *ctx)
{
    (void)ctx;
    return last_error;
}

sol_status ctx_check(struct sol_ctx *ctx)
{
    if (atomic_load_explicit(&ctx->out_of_memory, memory_order_relaxed))
        return ctx_fail(ctx, SOL_ERR_NOMEM, "out of memory: an allocation of %zu bytes failed",
                        atomic_load_explicit(&ctx->failed_bytes, memory_order_relaxed));
    if (ctx->options.interrupted && ctx->options.interrupted(ctx->options.user))
        return ctx_fail(ctx, SOL_ERR_INTERRUPTED, "interrupted by the application");
    return SOL_OK;
}

void ctx_clear(struct sol_ctx *ctx)
{
    atomic_store(&ctx->out_of_memory, 0);
}

void ctx_out_of_memory(struct sol_ctx *ctx, size_t bytes)
{
    atomic_store_explicit(&ctx->failed_bytes, bytes, memory_order_relaxed);
    atomic_store_explicit(&ctx->out_of_memory, 1, memory_order_relaxed);
}

bool ctx_tells_steps(struct sol_ctx *ctx)
{
    return atomic_load_explicit(&ctx->on_step, memory_order_relaxed) != NULL;
}

void ctx_step(struct sol_ctx *ctx, const char *label)
{
    const on_step_fn tell = atomic_load(&ctx->on_step);
    if (tell) tell(ctx->options.user, label);
}

void sol_on_step(struct sol_ctx *ctx, void (*step)(void *user, const char *label))
{
    atomic_store(&ctx->on_step, step);
}

int64_t ctx_spent(struct sol_ctx *ctx, int64_t ns)
{
    return atomic_fetch_add(&ctx->spent_ns, ns) + ns;
}

/* -- memory */

static void *raw_realloc(const struct sol_ctx_options *o, void *p, size_t bytes)
{
    if (o->reallocate) return o->reallocate(o->user, p, bytes);
    if (bytes) return realloc(p, bytes);
    free(p);
    return NULL;
}

void *ctx_allocate(struct sol_ctx *ctx, size_t bytes)
{
    return raw_realloc(&ctx->options, NULL, bytes);
}

void *ctx_reserve(struct sol_ctx *ctx, size_t bytes)
{
    const size_t n = MIN((bytes + 15) & ~(size_t)15, RESERVE);
    ctx_out_of_memory(ctx, bytes);
    pthread_mutex_lock(&ctx->lock);
    mprotect(ctx->reserve, RESERVE, PROT_READ | PROT_WRITE);
    if (ctx->reserve_used + n > RESERVE) ctx->reserve_used = 0;
    char *p = ctx->reserve + ctx->reserve_used;
    ctx->reserve_used += n;
    pthread_mutex_unlock(&ctx->lock);
    return memset(p, 0, n);
}

void *ctx_realloc(struct sol_ctx *ctx, void *p, size_t bytes)
{
    void *q = raw_realloc(&ctx->options, p, MAX(bytes, 1));
    if (!q) ctx_out_of_memory(ctx, bytes);
    return q;
}

void *ctx_try(struct sol_ctx *ctx, size_t bytes)
{
    return raw_realloc(&ctx->options, NULL, MAX(bytes, 1));
}

void ctx_free(struct sol_ctx *ctx, void *p)
{
    if (p) raw_realloc(&ctx->options, p, 0);
}

void sol_free(struct sol_ctx *ctx, void *p)
{
    ctx_free(ctx, p);
}

/* -- configuration */

static int config_row(const char *key)
{
    for (int i = 0; key && i < CONFIG_KEYS; i++)
        if (!strcmp(config_defs[i].key, key)) return i;
    return -1;
}

static bool is_number(const char *value)
{
    size_t digits = strspn(value, "0123456789");
    return digits > 0 && digits < 10 && !value[digits];
}

/* Digits, an optional fraction, an optional unit. */
int64_t text_bytes(const char *value)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = {{"", 1}, {"B", 1}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}};
    char *end;
    const size_t digits = strspn(value, "0123456789.");
    if (!digits || digits > 15) return -1;
    const double n = strtod(value, &end);
    if (end != value + digits) return -1;
    while (*end == ' ') end++;
    for (int i = 0; i < COUNT_OF(units); i++)
        if (!strcasecmp(end, units[i].name) && n * units[i].bytes < 1e17) return (int64_t)(n * units[i].bytes);
    return -1;
}

int64_t ctx_config_bytes(struct sol_ctx *ctx, const char *key)
{
    return text_bytes(ctx_config(ctx, key));
}

bool ctx_verifies(struct sol_ctx *ctx)
{
#ifdef SOL_ALWAYS_VERIFIES
    (void)ctx;
    return true;
#else
    return !strcmp(ctx_config(ctx, "compiler::verify"), "1") || ctx_debugs(ctx);
#endif
}

/* `value` as `values` spells it, whose words are separated by '|' and match in any case. The first strlen(value)
 * characters count. "bytes" stands for a number of bytes. NULL: the value is not accepted. */
static const char *accepted(const char *values, const char *value)
{
    if (!*values) return value;
    if (strchr(values, '#') && is_number(value)) return value;
    if (strstr(values, "|bytes") && text_bytes(value) >= 0) return value;
    if (!strcasecmp(value, "bytes") || !strcmp(value, "#")) return NULL;
    size_t n = strlen(value);
    for (const char *word = values; word; word = strchr(word, '|') ? strchr(word, '|') + 1 : NULL)
        if (n == strcspn(word, "|") && !strncasecmp(word, value, n)) return word;
    return NULL;
}

/* Some keys are needed often. */
static void keys_changed(struct sol_ctx *ctx)
{
    const char *level = ctx_config(ctx, "log::level");
    atomic_store(&ctx->level, log_level_named(level));
    atomic_store(&ctx->debugs, !strcmp(ctx_config(ctx, "compiler::debug"), "1"));
    atomic_store(&ctx->profiles, !strcmp(ctx_config(ctx, "profile"), "1"));
}

bool ctx_debugs(struct sol_ctx *ctx)
{
    return atomic_load_explicit(&ctx->debugs, memory_order_relaxed);
}

bool ctx_profiles(struct sol_ctx *ctx)
{
    return atomic_load_explicit(&ctx->profiles, memory_order_relaxed);
}

static sol_status unknown_key(struct sol_ctx *ctx, const char *key)
{
    char keys[1024] = "";
    for (int i = 0; i < CONFIG_KEYS; i++) {
        strncat(keys, i ? ", " : "", sizeof keys - strlen(keys) - 1);
        strncat(keys, config_defs[i].key, sizeof keys - strlen(keys) - 1);
    }
    return ctx_fail(ctx, SOL_ERR_INVALID, "configuration: there is no key '%s'; the keys are %s", key ? key : "(null)",
                    keys);
}

static sol_status config_put(struct sol_ctx *ctx, int row, const char *value)
{
    const size_t n = strlen(value);
    struct config_value *v = ctx_realloc(ctx, NULL, sizeof *v + n + 1);
    if (!v)
        return ctx_fail(ctx, SOL_ERR_NOMEM, "configuration: out of memory for the value of '%s'", config_defs[row].key);
    memcpy(v->text, accepted(config_defs[row].values, value), n);
    v->text[n] = 0;
    pthread_mutex_lock(&ctx->lock);
    v->older = ctx->values;
    ctx->values = v;
    pthread_mutex_unlock(&ctx->lock);
    atomic_store(&ctx->config[row], v->text);
    return SOL_OK;
}

sol_status sol_config_set(struct sol_ctx *ctx, const char *key, const char *value)
{
    int row = config_row(key);
    if (row < 0) return unknown_key(ctx, key);
    const struct config_def *def = &config_defs[row];
    if (!value || !accepted(def->values, value))
        return ctx_fail(ctx, SOL_ERR_INVALID, "configuration: %s: expected %s%s, got '%s'", key,
                        !*def->values               ? "text"
                        : !strcmp(def->values, "#") ? "a whole number from 0 to 999999999"
                                                    : def->values,
                        strstr(def->values, "|bytes") ? " (such as 400MB)"
                        : strstr(def->values, "|#")   ? " (a whole number)"
                                                      : "",
                        value ? value : "(null)");
    TRY(config_put(ctx, row, value));
    keys_changed(ctx);
    return SOL_OK;
}

const char *sol_config_get(struct sol_ctx *ctx, const char *key)
{
    int row = config_row(key);
    return row < 0 ? NULL : atomic_load(&ctx->config[row]);
}

const char *ctx_config(struct sol_ctx *ctx, const char *key)
{
    return sol_config_get(ctx, key);
}

const char *sol_config_key(int i, const char **out_default, const char **out_doc)
{
    if (i < 0 || i >= CONFIG_KEYS) return NULL;
    if (out_default) *out_default = config_defs[i].value;
    if (out_doc) *out_doc = config_defs[i].doc;
    return config_defs[i].key;
}

/* Sets the defaults, then the values of environment variables. Invalid values there are reported and ignored. */
static sol_status config_defaults(struct sol_ctx *ctx)
{
    for (int i = 0; i < CONFIG_KEYS; i++) atomic_init(&ctx->config[i], config_defs[i].value);
    keys_changed(ctx);
    for (int i = 0; i < CONFIG_KEYS; i++) {
        const struct config_def *def = &config_defs[i];
        const char *value = def->env ? getenv(def->env) : NULL;
        if (!value || !*value) continue;
        if (accepted(def->values, value))
            TRY(config_put(ctx, i, value));
        else
            LOG(ctx, LOG_WARN, "core", "%s='%s' is ignored: expected %s", def->env, value, def->values);
    }
    keys_changed(ctx);
    return SOL_OK;
}

/* -- creation and destruction */

sol_status sol_ctx_create(const struct sol_ctx_options *options, struct sol_ctx **out_ctx)
{
    struct sol_ctx_options o = {.size = sizeof o};
    *out_ctx = NULL;
    if (options) {
        if (options->size < sizeof o.size || options->size > 4096)
            return ctx_fail(NULL, SOL_ERR_INVALID, "sol_ctx_create: options.size is %zu, expected sizeof options (%zu)",
                            options->size, sizeof o);
        memcpy(&o, options, MIN(options->size, sizeof o));
    }
    struct sol_ctx *ctx = raw_realloc(&o, NULL, sizeof *ctx);
    if (!ctx) return ctx_fail(NULL, SOL_ERR_NOMEM, "sol_ctx_create: out of memory");
    memset(ctx, 0, sizeof *ctx);
    ctx->options = o;
    atomic_init(&ctx->on_log, o.log);
    atomic_init(&ctx->on_progress, o.progress);
    ctx->start_ns = clock_ns();
    pthread_mutex_init(&ctx->lock, NULL);
    ctx->reserve = mmap(NULL, RESERVE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    sol_status status = config_defaults(ctx);
    if (ctx->reserve == MAP_FAILED && !status)
        status = ctx_fail(NULL, SOL_ERR_NOMEM,
                          "sol_ctx_create: out of memory: the system refuses %zu bytes of addresses", RESERVE);
    if (status) {
        sol_ctx_destroy(ctx);
        return status;
    }
    *out_ctx = ctx;
    return SOL_OK;
}

static void *find_part(struct sol_ctx *ctx, const struct ctx_part *kind)
{
    void *found = NULL;
    pthread_mutex_lock(&ctx->lock);
    for (const struct kept_part *k = ctx->parts; k && !found; k = k->older)
        if (k->kind == kind) found = k->part;
    pthread_mutex_unlock(&ctx->lock);
    return found;
}

/* Adds a part, unless another thread was faster. Returns the one that counts. */
static void *add_part(struct sol_ctx *ctx, struct kept_part *k)
{
    struct kept_part *same;
    pthread_mutex_lock(&ctx->lock);
    for (same = ctx->parts; same && same->kind != k->kind;) same = same->older;
    if (!same) {
        k->older = ctx->parts;
        ctx->parts = k;
    }
    pthread_mutex_unlock(&ctx->lock);
    if (!same) return k->part;
    k->kind->destroy(ctx, k->part);
    ctx_free(ctx, k);
    return same->part;
}

void *ctx_part(struct sol_ctx *ctx, const struct ctx_part *kind)
{
    void *found = find_part(ctx, kind);
    if (found) return found;
    struct kept_part *k = ctx_try(ctx, sizeof *k);
    if (!k) return NULL;
    *k = (struct kept_part){.kind = kind, .part = kind->make(ctx)};
    if (k->part) return add_part(ctx, k);
    ctx_free(ctx, k);
    return NULL;
}

void sol_ctx_destroy(struct sol_ctx *ctx)
{
    if (!ctx) return;
    for (struct kept_part *k = ctx->parts; k; k = k->older)
        if (k->kind->end && !k->kind->end(ctx, k->part)) return;
    for (struct kept_part *k = ctx->parts, *older; k; k = older) {
        older = k->older;
        k->kind->destroy(ctx, k->part);
        ctx_free(ctx, k);
    }
    for (struct config_value *v = ctx->values, *older; v; v = older) {
        older = v->older;
        ctx_free(ctx, v);
    }
    if (ctx->reserve != MAP_FAILED) munmap(ctx->reserve, RESERVE);
    pthread_mutex_destroy(&ctx->lock);
    ctx_free(ctx, ctx);
}
