/* sol_devices: the list of devices for people, with what SOL can do on each. */
#include <stdio.h>
#include <string.h>

#include "device/device.h"
#include "dnn/dnn.h"
#include "plan/plan.h"

struct showing {
    struct sol_ctx *ctx;
    struct devices *devices;
    struct arena *arena;
    void (*show)(void *user, const struct sol_device_info *info);
    void *user;
    int64_t limit_ns;
    const struct sol_device_type *selected; /* NULL: what the key `device` says is not there */
    int index;
};

/* The solvers whose kernels it runs. Other libraries are of this process. */
static const char *backends_of(const struct showing *s, const struct sol_device_type *type,
                               const struct sol_device_info *info, int index)
{
    struct target t;
    const bool own = !(type->features & SOL_DEVICE_IN_PROCESS);
    const char *name = type->features & SOL_DEVICE_LAUNCHES ? type->flavour : info->arch;
    if (!own || target_named(s->ctx, name, &t)) target_host(&t);
    t.core_mma = info->core_mma;
    const bool here = type->features & SOL_DEVICE_IN_PROCESS && index >= 0;
    return solvers_text(s->arena, &t, here ? plugins_load(s->ctx, s->arena) : NULL, info);
}

static void show_one(const struct showing *s, const struct sol_device_type *type, int index, const char *why)
{
    struct sol_device_info info;
    struct sol_failure failed;
    if (devices_info(s->devices, type, index, s->limit_ns, &info, &failed) && !*why) why = failed.text;
    info.selected = index >= 0 && type == s->selected && index == s->index;
    snprintf(info.why, sizeof info.why, "%s", why);
    snprintf(info.backends, sizeof info.backends, "%s", backends_of(s, type, &info, index));
    s->show(s->user, &info);
}

static void show_all(const struct showing *s)
{
    const struct sol_device_type *type;
    struct absent_plugin plugin;
    for (int absent = 0; absent < 2; absent++)
        for (int i = 0; (type = devices_at(s->devices, i)); i++) {
            struct sol_failure why;
            const int n = devices_count(s->devices, type, s->limit_ns, &why);
            for (int k = 0; k < n && !absent; k++) show_one(s, type, k, "");
            if (!n && absent) show_one(s, type, -1, why.text);
        }
    for (int i = 0; (plugin = devices_absent(s->devices, i)).path; i++) {
        struct sol_device_info info = {.size = sizeof info, .type = "plug-in"};
        snprintf(info.name, sizeof info.name, "%s", plugin.path);
        snprintf(info.why, sizeof info.why, "%s", plugin.why);
        s->show(s->user, &info);
    }
}

sol_status sol_devices(struct sol_ctx *ctx, void (*show)(void *user, const struct sol_device_info *info), void *user)
{
    struct showing s = {
        .ctx = ctx, .arena = arena_create(ctx), .show = show, .user = user, .limit_ns = devices_limit_listing(ctx)};
    if (!s.arena) return ctx_check(ctx);
    sol_status status = devices_of(ctx, &s.devices);
    if (!status) {
        if (devices_selected(ctx, &s.selected, &s.index)) s.selected = NULL;
        show_all(&s);
        status = ctx_check(ctx);
    }
    arena_destroy(s.arena);
    return status;
}
