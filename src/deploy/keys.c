/* Keys of a deployment: defaults, and checks of values, names and files. */
#include <ctype.h>
#include <dlfcn.h>
#include <string.h>

#include "deploy/deploy.h"

static const struct {
    const char *key;
    size_t place; /* in struct deploy_keys */
    const char *otherwise, *values, *doc;
} rows[] = {
#define X(key, field, otherwise, values, doc) {key, offsetof(struct deploy_keys, field), otherwise, values, doc},
#include "deploy/keys.def"
#undef X
};

const char *sol_deploy_key_at(int i, const char **out_default, const char **out_doc)
{
    if (i < 0 || i >= COUNT_OF(rows)) return NULL;
    if (out_default) *out_default = rows[i].otherwise;
    if (out_doc) *out_doc = rows[i].doc;
    return rows[i].key;
}

bool deploy_is_one_of(const char *values, const char *value)
{
    const size_t n = strlen(value);
    for (const char *word = values; word; word = strchr(word, '|') ? strchr(word, '|') + 1 : NULL)
        if (n == strcspn(word, "|") && !strncmp(word, value, n)) return true;
    return !*values;
}

static sol_status unknown(struct deploy *d, const char *key)
{
    struct text t = text_new(d->arena);
    for (int i = 0; i < COUNT_OF(rows); i++) text_put(&t, "%s%s", i ? ", " : "", rows[i].key);
    return ctx_fail(d->ctx, SOL_ERR_INVALID, "deploy: there is no key '%s'; the keys are %s", key, t.at);
}

static sol_status set(struct deploy *d, const struct sol_deploy_key *k)
{
    for (int i = 0; i < COUNT_OF(rows); i++) {
        if (strcmp(rows[i].key, k->key)) continue;
        if (!k->value || !deploy_is_one_of(rows[i].values, k->value))
            return ctx_fail(d->ctx, SOL_ERR_INVALID, "deploy: %s: expected %s, got '%s'", k->key,
                            *rows[i].values ? rows[i].values : "text", k->value ? k->value : "(null)");
        memcpy((char *)&d->keys + rows[i].place, &k->value, sizeof k->value);
        return SOL_OK;
    }
    return unknown(d, k->key);
}

static sol_status find_target(struct deploy *d)
{
    static const struct {
        const char *name;
        enum deploy_target target;
    } targets[] = {
        {"shared_lib", DEPLOY_SHARED}, {"lib::shared", DEPLOY_SHARED}, {"deployment::shared_lib", DEPLOY_SHARED},
        {"static_lib", DEPLOY_STATIC}, {"lib::static", DEPLOY_STATIC}, {"deployment::static_lib", DEPLOY_STATIC},
        {"source", DEPLOY_SOURCE},     {"lib::source", DEPLOY_SOURCE}, {"deployment::source", DEPLOY_SOURCE},
    };
    const char *name = d->options->target ? d->options->target : "(null)";
    const char *own = !strncmp(name, "sol.deployment.", 15) ? name + 15 : name;
    for (int i = 0; i < COUNT_OF(targets); i++) {
        if (strcmp(targets[i].name, own)) continue;
        d->target = targets[i].target;
        return SOL_OK;
    }
    return ctx_fail(d->ctx, SOL_ERR_INVALID, "deploy: target: expected shared_lib, static_lib or source, got '%s'",
                    name);
}

/* Does a text consist of letters, digits and these characters only? It becomes part of file names and commands. */
static bool consists_of(const char *text, const char *more)
{
    if (!*text || *text == '-') return false;
    for (const char *c = text; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr(more, *c)) return false;
    return true;
}

/* Reserved words of C, of C++ (which may include the header) and of GNU's dialects; names that common headers
 * define. */
static const char words_of_c[] =
    "alignas|alignof|and|and_eq|asm|assert|auto|bitand|bitor|bool|break|case|catch|char|char8_t|class|co_await|"
    "co_return|co_yield|compl|complex|concept|const|const_cast|consteval|constexpr|constinit|continue|decltype|"
    "default|delete|do|double|dynamic_cast|else|enum|errno|explicit|export|extern|false|float|for|friend|goto|if|"
    "inline|int|linux|long|main|mutable|namespace|new|noexcept|noreturn|not|not_eq|nullptr|operator|or|or_eq|"
    "private|protected|public|register|reinterpret_cast|requires|restrict|return|short|signed|sizeof|static|"
    "static_assert|static_cast|struct|switch|template|this|thread_local|throw|true|try|typedef|typeid|typename|"
    "typeof|union|unix|unsigned|using|virtual|void|volatile|wchar_t|while|xor|xor_eq|NULL|EOF";

/* Is this a valid function name in C and C++? Names that begin with _ or end with _t are reserved. */
bool deploy_is_free(const char *name)
{
    static const char *const ours[] = {"reference_", "front_", "rt_", "sol_ext_"}; /* of the other files */
    const size_t n = strlen(name);
    for (int i = 0; i < COUNT_OF(ours); i++)
        if (!strncmp(name, ours[i], strlen(ours[i]))) return false;
    return *name != '_' && (n < 2 || strcmp(name + n - 2, "_t")) && !deploy_is_one_of(words_of_c, name);
}

/* Is it a function of libc or libm? Our own copies have the same names. */
static bool is_of_libc(const char *name)
{
    Dl_info info;
    void *f = dlsym(RTLD_DEFAULT, name);
    return f && dladdr(f, &info) && info.dli_fname &&
           (strstr(info.dli_fname, "/libc.") || strstr(info.dli_fname, "/libm."));
}

static sol_status check_names(struct deploy *d)
{
    const struct deploy_keys *k = &d->keys;
    if (!consists_of(k->lib_name, "_.+-") || *k->lib_name == '.')
        return ctx_fail(d->ctx, SOL_ERR_INVALID, "deploy: lib_name: expected letters, digits, '_', '-', '.', got '%s'",
                        k->lib_name);
    if (!consists_of(k->func_name, "_") || isdigit((unsigned char)*k->func_name) || !deploy_is_free(k->func_name) ||
        strlen(k->func_name) > 60)
        return ctx_fail(d->ctx, SOL_ERR_INVALID,
                        "deploy: func_name: expected a name for a function of C and C++, got '%s'", k->func_name);
    if (is_of_libc(k->func_name))
        return ctx_fail(d->ctx, SOL_ERR_INVALID, "deploy: func_name: '%s' is a function of C's own library",
                        k->func_name);
    const char *const plain[][2] = {
        {"gcc::march", k->march}, {"gcc::mtune", k->mtune}, {"gcc::elf", k->elf}, {"gcc::oformat", k->oformat}};
    for (int i = 0; i < COUNT_OF(plain); i++)
        if (!consists_of(plain[i][1], "_.+-=,"))
            return ctx_fail(d->ctx, SOL_ERR_INVALID, "deploy: %s: '%s' is not a valid value for gcc or ld", plain[i][0],
                            plain[i][1]);
    for (const char *flag = k->flags; *flag; flag += strcspn(flag, " "), flag += strspn(flag, " "))
        if (*flag != '-')
            return ctx_fail(d->ctx, SOL_ERR_INVALID,
                            "deploy: gcc::flags: expected flags such as -mfloat-abi=hard, got '%s'", k->flags);
    if (strpbrk(k->flags, "$`\"'\\;&|<>()#\n"))
        return ctx_fail(d->ctx, SOL_ERR_INVALID, "deploy: gcc::flags: '%s' has characters that a shell would read",
                        k->flags);
    if (!strcmp(k->training, "1") && strcmp(k->pack, "load"))
        return ctx_fail(d->ctx, SOL_ERR_INVALID, "deploy: pack: with training it is load: weights change");
    if (!*k->path) return ctx_fail(d->ctx, SOL_ERR_INVALID, "deploy: path: expected a folder, got ''");
    return SOL_OK;
}

/* device_type: "arm64", or "arm64,armv8.2-a" */
static sol_status find_device(struct deploy *d)
{
    const struct deploy_keys *k = &d->keys;
    const char *name = k->device_type, *comma = strchr(name, ',');
    const char *device = comma ? arena_printf(d->arena, "%.*s", (int)(comma - name), name) : name;
    if (comma && strcmp(k->march, "native") && strcmp(k->march, comma + 1))
        return ctx_fail(d->ctx, SOL_ERR_INVALID, "deploy: device_type says '%s', but gcc::march '%s'", comma + 1,
                        k->march);
    if (comma) d->keys.march = comma + 1;
    struct target host;
    target_host(&host);
    TRY(deploy_find_driver(d, device));
    const bool here = d->there.type || !strcmp(device, "auto");
    d->device = here ? host.device : device_named(device);
    if (!d->device)
        return ctx_fail(d->ctx, SOL_ERR_UNSUPPORTED, "deploy: device_type: expected auto, %s, got '%s'",
                        deploy_device_names(d->arena), device);
    static const char cc[] = "nvidia::cc"; /* the device's name is in front of the colons */
    if (*k->nvidia && (!d->there.type || strncmp(d->there.type->name, cc, strcspn(cc, ":"))))
        return ctx_fail(d->ctx, SOL_ERR_INVALID, "deploy: %s: device_type is %s", cc, device);
    if (!d->there.type && strcmp(k->host_type, "auto") && !device_named(k->host_type))
        return ctx_fail(d->ctx, SOL_ERR_INVALID, "deploy: host_type: expected auto, %s, got '%s'",
                        device_names(d->arena), k->host_type);
    d->toolchain = d->bare && d->device->bare.compiler ? &d->device->bare : &d->device->hosted;
    d->cross = d->device != host.device;
    return SOL_OK;
}

static sol_status check_bare(struct deploy *d)
{
    const struct deploy_keys *k = &d->keys;
    d->bare = !strcmp(k->threads, "0");
    const char *what = d->target == DEPLOY_SHARED      ? "the target is static_lib or source: there is no loader"
                       : strcmp(k->weights, "inside")  ? "weights is inside: there are no files"
                       : !strcmp(k->training, "1")     ? "training takes memory as it goes"
                       : strchr(k->march, ',') != NULL ? "gcc::march is one instruction set"
                                                       : NULL;
    if (!d->bare || !what) return SOL_OK;
    return ctx_fail(d->ctx, SOL_ERR_INVALID, "deploy: threads: with 0, no operating system, %s", what);
}

sol_status deploy_read_keys(struct deploy *d)
{
    for (int i = 0; i < COUNT_OF(rows); i++)
        memcpy((char *)&d->keys + rows[i].place, &rows[i].otherwise, sizeof rows[i].otherwise);
    for (int i = 0; i < d->options->nkeys; i++) TRY(set(d, &d->options->keys[i]));
    TRY(find_target(d));
    TRY(check_names(d));
    TRY(check_bare(d));
    return find_device(d);
}
