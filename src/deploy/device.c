/* Deploying for a device with memory of its own: its code is compiled here and put into the library as data, beside the
 * tables of the network and the driver, which is the file of the device type itself (deployed.def). */
#include <string.h>

#include "build/build.h"
#include "compile/compile.h"
#include "deploy/deploy.h"
#include "device/device.h"

_Static_assert(FRONT_LAUNCH_STEPS == SCHEDULE_LAUNCH_STEPS, "numbers of launches");

/* -- which device */

static const struct driver {
    const char *name, *sources; /* files of src/device, in the order of their inclusion */
    const char *headers;
} drivers[] = {
#define X(name, sources, headers) {#name, sources, headers},
#include "deploy/deployed.def"
#undef X
};

static const struct driver *driver_named(const char *name)
{
    for (int i = 0; i < COUNT_OF(drivers); i++)
        if (!strcmp(drivers[i].name, name)) return &drivers[i];
    return NULL;
}

static const char *driver_names(struct arena *a)
{
    struct text t = text_new(a);
    for (int i = 0; i < COUNT_OF(drivers); i++) text_put(&t, ", %s", drivers[i].name);
    return t.at;
}

const char *deploy_device_names(struct arena *a)
{
    return arena_printf(a, "%s%s", device_names(a), driver_names(a));
}

static sol_status check_keys(struct deploy *d, const char *name)
{
    const struct deploy_keys *k = &d->keys;
    const char *what = d->bare                       ? "threads: there is an operating system: 1"
                       : strcmp(k->pack, "load")     ? "pack: the device packs weights: load"
                       : !strcmp(k->selftest, "1")   ? "selftest: the reference values are those of a processor: 0"
                       : strcmp(k->march, "native")  ? "gcc::march: the code of the host is for any machine of its kind"
                       : strcmp(k->vector, "native") ? "ispc::vector: it is for processors"
                       : d->there.native && !(d->there.type->features & SOL_DEVICE_ADDRESSES)
                           ? "host_type: its memory has no addresses that an application could pass: transparent"
                           : NULL;
    return what ? ctx_fail(d->ctx, SOL_ERR_UNSUPPORTED, "deploy: device_type %s: %s", name, what) : SOL_OK;
}

/* auto, transparent or a processor: tensors of the host; native or the device's name: tensors of the device. */
static sol_status read_host_type(struct deploy *d, const char *name)
{
    const char *host = d->keys.host_type;
    d->there.native = !strcmp(host, "native") || !strcmp(host, name);
    if (d->there.native || !strcmp(host, "auto") || !strcmp(host, "transparent") || device_named(host)) return SOL_OK;
    return ctx_fail(d->ctx, SOL_ERR_INVALID,
                    "deploy: host_type: expected auto, transparent, native, %s or %s, got '%s'", device_names(d->arena),
                    name, host);
}

/* The key `nvidia::cc` is the option nvidia.cc of the device type. */
static sol_status read_info(struct deploy *d, struct devices *all)
{
    const struct sol_device_type *type = d->there.type;
    struct sol_ctx *ctx = d->ctx;
    const int64_t limit_ns = devices_limit(ctx);
    const char *cc = d->keys.nvidia, *old = arena_strdup(d->arena, ctx_config(ctx, "device::options"));
    struct sol_failure why = failure_new();
    const bool here = !*cc && devices_count(all, type, limit_ns, &why) > 0;
    if (*cc) TRY(sol_config_set(ctx, "device::options", arena_printf(d->arena, "%s,%s.cc=%s", old, type->name, cc)));
    const sol_status status = devices_info(all, type, here ? 0 : -1, limit_ns, &d->there.info, &why);
    if (*cc) TRY(sol_config_set(ctx, "device::options", old));
    return status ? failure_report(ctx, status, &why) : SOL_OK;
}

sol_status deploy_find_driver(struct deploy *d, const char *name)
{
    struct devices *all;
    const struct sol_device_type *type = NULL;
    if (!driver_named(name)) return SOL_OK;
    TRY(devices_of(d->ctx, &all));
    for (int i = 0; (type = devices_at(all, i)) && strcmp(type->name, name);) i++;
    if (!type) return SOL_OK;
    d->there.type = type;
    TRY(read_host_type(d, name));
    TRY(check_keys(d, name));
    return read_info(d, all);
}

sol_status deploy_device_version(struct deploy *d, struct deploy_version *v)
{
    const struct sol_device_type *type = d->there.type;
    const bool one = type->features & SOL_DEVICE_DRIVER_CODE || !strcmp(type->name, d->there.info.arch);
    v->name = one ? type->name : arena_printf(d->arena, "%s %s", type->name, d->there.info.arch);
    v->march = "native";
    v->id = text_identifier(d->arena, type->name);
    v->kernels = map_create(d->arena);
    TRY(compile_target(d->ctx, type, &d->there.info, type->name, &v->target));
    v->target.starts = true;
    v->flags = deploy_flags(d, NULL);
    return ctx_check(d->ctx);
}

sol_status deploy_check_device(struct deploy *d, const struct schedule *s)
{
    if (!s->opaque.n) return SOL_OK;
    return ctx_fail(d->ctx, SOL_ERR_UNSUPPORTED,
                    "deploy: layer '%s' (%s)%s%s: device %s has no kernel for it, and deployed libraries for a "
                    "device run no layers on the host",
                    s->opaque.at[0]->name, s->opaque.at[0]->def->name, *s->opaque.at[0]->where ? " at " : "",
                    s->opaque.at[0]->where, d->there.type->name);
}

/* -- code */

static sol_status make_code(void *user, const char *text, const void **out_data, size_t *out_bytes)
{
    struct deploy *d = user;
    struct devices *all;
    TRY(devices_of(d->ctx, &all));
    const struct sol_code_text t = {.size = sizeof t,
                                    .name = d->g->name,
                                    .text = text,
                                    .arch = d->there.info.arch,
                                    .debug = ctx_debugs(d->ctx),
                                    .flags = d->there.flags};
    return device_compile(d->there.type, devices_host(all), d->arena, &t, out_data, out_bytes);
}

/* The code of a graph: what the device compiled, or for its driver to compile, the text. */
static sol_status code_of(struct deploy *d, const struct deploy_version *v, const struct schedule *s,
                          struct code_blob *out)
{
    const struct sol_device_type *type = d->there.type;
    const char *text, *flags;
    TRY(code_text(s, &text, &flags));
    d->there.flags = flags;
    const struct code_request r = {.device = v->target.device->name,
                                   .arch = arena_printf(d->arena, "%s %s %s %s", type->name, d->there.info.arch,
                                                        d->there.info.compiler, flags ? flags : ""),
                                   .extension = source_extension(s->kernels.n ? s->kernels.at[0].header : NULL),
                                   .make = make_code,
                                   .user = d};
    *out = (struct code_blob){text, strlen(text)};
    TRY(ctx_check(d->ctx));
    if (type->features & SOL_DEVICE_DRIVER_CODE || !out->bytes) return SOL_OK;
    return build_code(d->ctx, d->arena, &r, text, out);
}

/* code.bin, and code.c, which takes it into the library. */
sol_status deploy_write_code(struct deploy *d, const struct deploy_version *v, const struct deploy_graph *g,
                             const struct deploy_code *code, const char *folder)
{
    struct code_blob blob;
    const char *bin = arena_printf(d->arena, "code%s.bin", g->id),
               *file = arena_printf(d->arena, "module_code%s.c", g->id);
    TRY(code_of(d, v, code->schedule, &blob));
    TRY(file_write(d->ctx, deploy_file(d, folder, bin), blob.data, blob.bytes));
    deploy_add_source(d, deploy_file(d, v->id, file), NULL);
    return deploy_write(d, folder, file,
                        deploy_fill(d->arena, deploy_text("code.c"),
                                    (const char *const[]){"name", deploy_code_name(d, g, v), "file",
                                                          deploy_file(d, v->id, bin), NULL}));
}

/* Prints what the row of a graph's code points to. */
const char *deploy_put_device(struct deploy *d, struct text *t, const char *name, const struct schedule *s)
{
    text_put(t, "extern const unsigned char %s_code[], %s_code_end[];\nstatic struct front_loaded %s_loaded;\n", name,
             name, name);
    text_put(t, "static const struct front_kernel %s_kernels[] = {", name);
    for (int i = 0; i < s->kernels.n; i++) text_put(t, "{%d, %d}, ", s->shared.at[i], s->items.at[i]);
    text_put(t, "{0}};\n");
    return arena_printf(d->arena, ", .there = {%s_code, %s_code_end, %s_kernels, &%s_loaded}", name, name, name, name);
}

/* -- the driver's files */

static sol_status write_all(struct deploy *d, const char *list)
{
    for (const char *at = list; *at; at += strcspn(at, " "), at += strspn(at, " ")) {
        const char *path = arena_printf(d->arena, "%.*s", (int)strcspn(at, " "), at), *name = strrchr(path, '/') + 1;
        const char *folder = deploy_file(d, d->work, arena_printf(d->arena, "%.*s", (int)(name - path - 1), path));
        TRY(file_make_folder(d->ctx, folder));
        TRY(deploy_write(d, folder, name, deploy_text(name)));
    }
    return SOL_OK;
}

static const char *includes(struct deploy *d, const char *list)
{
    struct text t = text_new(d->arena);
    for (const char *at = list; *at; at += strcspn(at, " "), at += strspn(at, " "))
        text_put(&t, "#include \"%.*s\"\n", (int)strcspn(at, " "), at);
    return t.at;
}

sol_status deploy_write_driver(struct deploy *d)
{
    const struct driver *driver = driver_named(d->there.type->name);
    const char *file = arena_printf(d->arena, "%s_device.c", d->keys.lib_name);
    const char *folder = deploy_file(d, d->work, "base");
    TRY(write_all(d, "device/inside.h device/failure.c sol/device.h sol/sol.h sol/dtypes.def deploy/front_device.c "
                     "deploy/front_device_run.c"));
    TRY(write_all(d, driver->sources));
    TRY(write_all(d, driver->headers));
    TRY(file_make_folder(d->ctx, folder));
    TRY(deploy_write(d, folder, "base.h", "#include \"device/inside.h\"\n")); /* for files of that folder */
    deploy_add_source(d, file, NULL);
    return deploy_write(
        d, d->work, file,
        deploy_fill(d->arena, deploy_text("network_device.c"),
                    (const char *const[]){"lib", d->keys.lib_name, "device", driver->name, "sources",
                                          includes(d, arena_printf(d->arena, "device/failure.c %s", driver->sources)),
                                          NULL}));
}

/* -- the kit */

/* What differs where the network runs on a device. */
const char *deploy_device_note(struct deploy *d)
{
    if (!d->there.type) return "";
    return arena_printf(
        d->arena,
        "\n *\n * The network runs on device %s. deviceIdx of the first call of %s_init says on which. A "
        "context's block has its tables; the\n * rest of it lies on the device until "
        "%s_context_free.",
        d->version[0].name, d->keys.func_name, d->keys.func_name);
}

const char *deploy_native_functions(struct deploy *d)
{
    if (!d->there.native) return "";
    return deploy_fill(d->arena, deploy_text("network_native.h"),
                       (const char *const[]){"func", d->keys.func_name, "device", d->there.type->name, NULL});
}

/* An application that allocates inputs with sol_ext_malloc, on the device. */
const char *deploy_native_example(struct deploy *d)
{
    struct text declare = text_new(d->arena), call = text_new(d->arena), show = text_new(d->arena);
    const bool varies = deploy_varies(d);
    const char *func = d->keys.func_name, *bytes = varies ? "(size_t)%s_%s_bytes(i%s)" : "%s_%s(i)->bytes%s";
    const char *sizes = varies ? arena_printf(d->arena, ", %s", deploy_dim_example(d, 0)) : "";
    for (int i = 0; i < deploy_inputs(d); i++) text_put(&call, ", in[%d]", i);
    for (int i = 0; i < d->noutput; i++) {
        text_put(&declare, "    %s *out%d = NULL;\n", dtype_def((enum sol_dtype)d->g->outputs.at[i].t->dtype)->c_name,
                 i);
        text_put(&call, ", &out%d", i);
        text_put(&show, "    if (show(%s_output(%d), OUTPUT_BYTES(%d), out%d)) return failed();\n", func, i, i, i);
        text_put(&show, "    sol_ext_free(out%d);\n", i);
    }
    const char *const pairs[] = {"lib",     d->keys.lib_name,
                                 "func",    func,
                                 "ninput",  arena_printf(d->arena, "%d", deploy_inputs(d)),
                                 "in",      arena_printf(d->arena, bytes, func, "input", sizes),
                                 "out",     arena_printf(d->arena, bytes, func, "output", sizes),
                                 "sizes",   sizes,
                                 "declare", declare.at,
                                 "call",    call.at,
                                 "show",    show.at,
                                 NULL};
    return deploy_fill(d->arena, deploy_text("example_native.c"), pairs);
}
