/* Code that a device compiles itself. One that launches kernels finds them by name, in a few programs: that of what the
 * cache did not have, and those that have the rest. One that runs whole programs gets one text of all kernels, and the
 * module's tables, which name them. */
#include "compile/compile.h"

#include <string.h>

#include "build/build.h"
#include "device/device.h"
#include "runtime/runtime.h"
#include "schedule/schedule.h"

struct code_making {
    struct dev *dev;
    struct arena *arena;
    const char *name, *arch, *flags;
};

static sol_status make_code(void *user, const char *text, const void **out_data, size_t *out_bytes)
{
    const struct code_making *m = user;
    const struct sol_code_text t = {.size = sizeof t,
                                    .name = m->name,
                                    .text = text,
                                    .arch = m->arch,
                                    .debug = ctx_debugs(arena_ctx(m->arena)),
                                    .flags = m->flags};
    return dev_compile(m->dev, m->arena, &t, out_data, out_bytes);
}

_Static_assert(NET_LAUNCH_STEPS == SCHEDULE_LAUNCH_STEPS && KERNEL_MAX_STEPS <= NET_LAUNCH_STEPS,
               "numbers of launches");

static const char *symbol_of(struct arena *a, int kernel)
{
    return arena_printf(a, "k%d", kernel);
}

/* Function k<i>_<step> is a step of kernel i. */
static void put_kernels(struct text *t, const struct schedule *s)
{
    struct map *seen = map_create(s->arena);
    if (s->kernels.n) text_put(t, "%s", source_header(s->kernels.at[0].header));
    for (int i = 0; i < s->kernels.n; i++) source_helpers(t, seen, &s->kernels.at[i]);
    for (int i = 0; i < s->kernels.n; i++)
        source_body(t, &s->kernels.at[i], symbol_of(s->arena, i), arena_printf(s->arena, "_%d", i));
}

/* The tables without constants, which are memory of the device. */
static sol_status put_tables(struct text *t, const struct schedule *s)
{
    const char *tables, **symbol = NEW_ARRAY(s->arena, const char *, s->kernels.n + 1);
    struct build_request r = {.name = s->plan->g->name,
                              .nkernel = s->kernels.n,
                              .module = schedule_module_text(s, s->plan->g->name, "sol_module")};
    TRY(ctx_check(arena_ctx(s->arena)));
    for (int i = 0; i < s->kernels.n; i++) symbol[i] = symbol_of(s->arena, i);
    TRY(source_tables(arena_ctx(s->arena), s->arena, &r, symbol, &tables));
    if (!s->kernels.n) text_put(t, "%s", source_header(NULL));
    text_line(t, "__attribute__((visibility(\"default\"))) extern const struct sol_module sol_module;");
    text_put(t, "%s", tables);
    return SOL_OK;
}

static const char *flags_of(struct arena *a, const struct target *t)
{
    struct text text = text_new(a);
    const char *const *flags = compiler_code_flags(a, t->march, target_flag(t), true);
    for (int i = 0; flags[i]; i++) text_put(&text, "%s%s", i ? " " : "", flags[i]);
    return text.at;
}

/* One text of all kernels and the tables. */
static sol_status build_program(const struct code_request *r, const struct schedule *s, struct arena *a,
                                struct net_parts *parts)
{
    struct code_blob blob;
    const char *text, *flags;
    TRY(code_text(s, &text, &flags));
    TRY(build_code(arena_ctx(a), a, r, text, &blob));
    parts->ncode = 1;
    parts->code = arena_memdup(a, &(struct net_code){blob.data, blob.bytes}, sizeof *parts->code);
    return SOL_OK;
}

static sol_status build_launches(const struct code_request *r, const struct schedule *s, struct arena *a,
                                 struct net_parts *parts)
{
    struct code_kernels found;
    struct net_kernel *kernel = NEW_ARRAY(a, struct net_kernel, s->kernels.n + 1);
    const int64_t start = clock_ns();
    TRY(build_kernels(arena_ctx(a), a, r, s->kernels.n, s->kernels.at, &found));
    LOG(arena_ctx(a), LOG_DEBUG, "build", "%s: %d kernels compiled for %s in %.2f s, %d from the cache, %d programs",
        parts->name, found.made, dev_name(parts->dev), (double)(clock_ns() - start) * 1e-9, s->kernels.n - found.made,
        found.blobs.n);
    struct net_code *code = NEW_ARRAY(a, struct net_code, found.blobs.n + 1);
    TRY(ctx_check(arena_ctx(a)));
    for (int i = 0; i < found.blobs.n; i++)
        code[i] = (struct net_code){found.blobs.at[i].data, found.blobs.at[i].bytes};
    for (int i = 0; i < s->kernels.n; i++)
        kernel[i] = (struct net_kernel){found.kernel[i].symbol, found.kernel[i].blob, s->shared.at[i], s->items.at[i]};
    parts->ncode = found.blobs.n;
    parts->code = code;
    parts->kernel = kernel;
    return SOL_OK;
}

sol_status code_text(const struct schedule *s, const char **out_text, const char **out_flags)
{
    struct text t = text_new(s->arena);
    const struct target *target = s->plan->target;
    const bool launches = target_launches(target);
    put_kernels(&t, s);
    if (!launches) TRY(put_tables(&t, s));
    *out_text = t.at ? t.at : "";
    *out_flags = launches ? NULL : flags_of(s->arena, target);
    return ctx_check(arena_ctx(s->arena));
}

sol_status code_build(struct dev *dev, const struct schedule *s, struct arena *a, struct net_parts *parts)
{
    struct sol_device_info info;
    const struct target *target = s->plan->target;
    const bool launches = target_launches(target);
    TRY(dev_info(dev, &info));
    struct code_making m = {dev, a, s->plan->g->name, info.arch, launches ? NULL : flags_of(a, target)};
    const struct code_request r = {
        .device = target->device->name,
        .arch = arena_printf(a, "%s %s %s %s", info.type, info.arch, info.compiler, m.flags ? m.flags : ""),
        .extension = source_extension(s->kernels.n ? s->kernels.at[0].header : NULL),
        .make = make_code,
        .user = &m};
    TRY(ctx_check(arena_ctx(a)));
    return launches ? build_launches(&r, s, a, parts) : build_program(&r, s, a, parts);
}

static void put_nothing(void *user, struct text *out, const char *name)
{
    (void)user;
    if (strncmp(name, "KERNEL", 6))
        text_put(out, "@%s", name);
    else
        text_put(out, "0");
}

const char *code_without_kernels(struct arena *a, const char *tables)
{
    struct text t = text_new(a);
    text_fill(&t, tables, put_nothing, NULL);
    return t.at;
}
