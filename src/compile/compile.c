/* Compiles a network: passes, plan, schedule, build, and the object that runs it. If the network is to be tuned, trials
 * of other plans follow. */
#include "compile/compile.h"

#include <string.h>

#include "build/build.h"
#include "device/device.h"
#include "grad/grad.h"
#include "passes/passes.h"
#include "runtime/runtime.h"
#include "schedule/schedule.h"

/* `dev` compiles the kernels itself; NULL: they are in the module. */
static sol_status build(struct dev *dev, const struct schedule *s, const struct target *target, bool trial,
                        struct module *out_m)
{
    struct sol_ctx *ctx = arena_ctx(s->arena);
    const char *tables = schedule_module_text(s, s->plan->g->name, NULL);
    struct build_data *data = NEW_ARRAY(s->arena, struct build_data, s->constants.n + 1);
    for (int i = 0; i < s->constants.n; i++) {
        const struct sol_tensor *t = s->constants.at[i];
        data[i] = (struct build_data){t->data, (size_t)tensor_elements(t) * dtype_def(t->dtype)->bytes};
    }
    struct build_request r = {.name = s->plan->g->name,
                              .trial = trial,
                              .device = target->device->name,
                              .march = dev ? NULL : target->march,
                              .flag = dev ? NULL : target_flag(target),
                              .nkernel = dev ? 0 : s->kernels.n,
                              .kernel = s->kernels.at,
                              .ndata = s->constants.n,
                              .data = data,
                              .module = dev ? code_without_kernels(s->arena, tables) : tables};
    return build_module(ctx, s->arena, &r, out_m);
}

static struct sol_io io_of(struct arena *a, const char *name, const struct sol_tensor *t)
{
    int64_t *shape = NEW_ARRAY(a, int64_t, t->ndim + 1);
    for (int d = 0; d < t->ndim; d++) shape[d] = t->dim[d].size;
    return (struct sol_io){
        .name = arena_strdup(a, name ? name : ""), .dtype = t->dtype, .ndim = t->ndim, .shape = shape};
}

static sol_status run_opaque(struct sol_ctx *ctx, const void *data, int64_t *sizes, const void *const *in,
                             void *const *out)
{
    return layer_run_opaque(ctx, data, sizes, in, out); /* the first sizes are those of the dimensions */
}

static void close_module(void *handle)
{
    struct module m = {.handle = handle};
    module_close(&m);
}

/* The facts about the steps of a program that profiles show, in the network's arena. */
static const struct net_note *notes_of(struct arena *a, const struct schedule_program *p)
{
    struct net_note *notes = NEW_ARRAY(a, struct net_note, p->steps.n + 1);
    for (int i = 0; i < p->steps.n; i++) {
        const struct unit *u = compile_unit_of(p, i);
        if (!u) continue;
        const char *variant = u->kernel.variant;
        notes[i] = (struct net_note){
            .label = arena_strdup(a, u->label),
            .solver = arena_printf(a, "%s%s%s", unit_solver(u), variant ? " " : "", variant ? variant : ""),
            .where = u->layer ? arena_strdup(a, u->layer->where) : NULL,
            .flops = p->steps.at[i].flops,
            .bytes = p->steps.at[i].bytes,
            .continues = i && compile_unit_of(p, i - 1) == u};
    }
    return notes;
}

static const int64_t *operand_bytes(struct arena *a, const struct sol_layer *l)
{
    int64_t *bytes = NEW_ARRAY(a, int64_t, l->nin + l->nout + 1);
    for (int i = 0; i < l->nin; i++) bytes[i] = tensor_bytes(l->in[i]);
    for (int i = 0; i < l->nout; i++) bytes[l->nin + i] = tensor_bytes(l->out[i]);
    return bytes;
}

struct way { /* what compiling a graph needs after the passes; it may be compiled several times */
    struct sol_graph *g;
    const struct target *target;
    struct dev *dev;   /* that runs it; NULL: this processor */
    bool dev_compiles; /* its kernels */
    bool plugins;      /* other libraries may compute */
    struct compile_memory memory;
};

/* resident: whether it is one if the graph says so */
static sol_status make_net(const struct way *w, const struct schedule *s, bool resident, struct module *m,
                           struct sol_net **out_net)
{
    struct sol_ctx *ctx = w->g->ctx;
    const struct compile_memory *memory = &w->memory;
    struct arena *a = arena_create(ctx);
    if (!a) return ctx_check(ctx);
    const struct sol_graph *g = s->plan->g;
    struct sol_io *in = NEW_ARRAY(a, struct sol_io, g->inputs.n + 1),
                  *out = NEW_ARRAY(a, struct sol_io, g->outputs.n + 1);
    struct sol_io *params = NEW_ARRAY(a, struct sol_io, g->params.n + 1);
    for (int i = 0; i < g->inputs.n; i++) in[i] = io_of(a, g->inputs.at[i]->name, g->inputs.at[i]);
    for (int i = 0; i < g->outputs.n; i++) out[i] = io_of(a, g->outputs.at[i].name, g->outputs.at[i].t);
    for (int i = 0; i < g->params.n; i++) params[i] = io_of(a, g->params.at[i]->name, g->params.at[i]);
    int64_t *most = NEW_ARRAY(a, int64_t, SIZE_MOST_DIMS);
    graph_data_most(g, most);
    struct net_host *host = NEW_ARRAY(a, struct net_host, s->opaque.n + 1);
    for (int i = 0; i < s->opaque.n; i++) {
        const struct sol_layer *l = s->opaque.at[i];
        host[i] = (struct net_host){.run = run_opaque,
                                    .data = layer_opaque(a, l),
                                    .nin = l->nin,
                                    .nout = l->nout,
                                    .set = layer_sets(l),
                                    .bytes = operand_bytes(a, l)};
    }
    struct net_parts parts = {
        .name = arena_strdup(a, g->name),
        .module = m->table,
        .inputs = in,
        .outputs = out,
        .most = most,
        .params = params,
        .host = host,
        .nhost = s->opaque.n,
        .notes = {notes_of(a, &s->program[PROGRAM_FORWARD]), notes_of(a, &s->program[PROGRAM_BACKWARD])},
        .dev = w->dev,
        .resident = resident && g->resident,
        .machine = machine_show(s->plan->target),
        .if_fast = compile_peak(s, memory, CHECKPOINT_ALL),
        .if_balanced = compile_peak(s, memory, memory->keep ? memory->keep->balanced : 0),
        .if_small = compile_peak(s, memory, memory->keep ? memory->keep->small : 0),
        .close = close_module,
        .handle = m->handle};
    sol_status status = ctx_check(ctx);
    if (!status && w->dev_compiles) status = code_build(w->dev, s, a, &parts);
    if (!status) status = net_create(ctx, a, &parts, out_net);
    if (status) arena_destroy(a);
    return status;
}

static sol_status build_net(const struct way *w, bool trial, struct tune_net *n)
{
    struct sol_ctx *ctx = w->g->ctx;
    struct module m;
    const int64_t start = clock_ns();
    TRY(build(w->dev_compiles ? w->dev : NULL, n->schedule, w->target, trial, &m));
    LOG(ctx, LOG_DEBUG, "core", "%s: build %.0f ms, %d kernels", w->g->name, (double)(clock_ns() - start) / 1e6,
        n->schedule->kernels.n);
    const sol_status status = make_net(w, n->schedule, !trial, &m, &n->net);
    const bool used = w->dev && dev_hangs(w->dev); /* it may still load the module */
    if (status && !used) module_close(&m);
    return status;
}

static sol_status plan_net(const struct way *w, const struct tuning_policy *policy, struct tune_net *n)
{
    struct plan *p;
    const int64_t start = clock_ns();
    TRY(plan_with_policy(w->g, n->arena, w->target, policy, &p));
    TRY(schedule_make(p, &n->schedule));
    if (!strcmp(ctx_config(w->g->ctx, "compiler::debug"), "1")) schedule_notes(n->schedule);
    LOG(w->g->ctx, LOG_DEBUG, "core", "%s: plan %.0f ms", w->g->name, (double)(clock_ns() - start) / 1e6);
    return SOL_OK;
}

/* All phases from the plan on. */
static sol_status make(void *user, const struct tuning_policy *policy, bool trial, struct tune_net *out)
{
    const struct way *w = user;
    *out = (struct tune_net){.arena = arena_create(w->g->ctx)};
    if (!out->arena) return ctx_check(w->g->ctx);
    sol_status status = plan_net(w, policy, out);
    if (!status) status = build_net(w, trial, out);
    if (status) tune_net_free(out);
    return status;
}

sol_status compile_reject_doubles(const struct sol_graph *g, const char *device)
{
    for (int i = 0; i < g->tensors.n; i++) {
        const struct sol_tensor *t = g->tensors.at[i];
        if (t->dtype != SOL_F64 || (t->role == TENSOR_VALUE && !t->from)) continue;
        return ctx_fail(g->ctx, SOL_ERR_UNSUPPORTED,
                        "%s '%s'%s%s: it is float64, and device %s computes in float32 only: convert the model and its "
                        "inputs to float32, or select another device (sol info --devices)",
                        t->from ? t->from->def->name : "tensor", t->from ? t->from->name : t->name,
                        t->from && *t->from->where ? " at " : "", t->from ? t->from->where : "", device);
    }
    return SOL_OK;
}

/* All phases up to the plan. */
static sol_status begin(struct way *w)
{
    if (!w->dev_compiles) TRY(target_check(w->g->ctx, w->target));
    TRY(compile_keep(w->g, w->target, &w->memory));
    TRY(passes_run(w->g));
    return w->target->single ? compile_reject_doubles(w->g, dev_name(w->dev)) : SOL_OK;
}

sol_status compile_for(struct sol_graph *g, const struct target *target, struct tune_net *out)
{
    struct way w = {.g = g, .target = target};
    TRY(begin(&w));
    return make(&w, NULL, false, out);
}

static sol_status compile(struct way *w, struct arena *a, struct sol_net **out_net)
{
    struct sol_graph *g = w->g;
    struct sol_ctx *ctx = g->ctx;
    TRY(begin(w));
    struct sol_device_info info, *apart = NULL;
    struct tune_net n;
    if (w->dev && !(dev_type(w->dev)->features & SOL_DEVICE_SHARED)) TRY(dev_info(w->dev, apart = &info));
    struct wisdom_policy *wp = wisdom_policy_make(ctx, a, w->target, apart);
    if (wp && w->plugins && !w->dev_compiles) wisdom_policy_load_plugins(ctx, wp);
    const int64_t start = clock_ns();
    TRY(make(w, wp ? &wp->policy : NULL, false, &n));
    const double kernel_s = (double)(clock_ns() - start) * 1e-9 / MAX(n.schedule->kernels.n, 1);
    sol_status status = wp ? tune_network(wp, &(struct tune_maker){make, w, w->dev ? kernel_s : 0}, &n) : SOL_OK;
    if (!status) {
        compile_report(n.schedule);
        if (w->dev) compile_report_host(n.schedule, dev_name(w->dev));
        compile_report_steps(n.schedule);
        compile_draw(n.schedule);
        compile_report_memory(ctx, n.net, graph_is_joint(g));
        *out_net = n.net;
        n.net = NULL;
    }
    tune_net_free(&n);
    return status;
}

static sol_status compile_in_arena(struct way *w, struct sol_net **out_net)
{
    struct arena *a = arena_create(w->g->ctx);
    if (!a) return ctx_check(w->g->ctx);
    const sol_status status = compile(w, a, out_net);
    arena_destroy(a);
    return status;
}

sol_status compile_tuned(struct sol_graph *g, const struct target *target, struct sol_net **out_net)
{
    return compile_in_arena(&(struct way){.g = g, .target = target}, out_net);
}

/* The device that the network will run on. Processors run it on memory of the host, without a queue, unless it is
 * resident. */
static sol_status find_dev(const struct sol_graph *g, struct dev **out_dev)
{
    const struct sol_device_type *type;
    struct sol_ctx *ctx = g->ctx;
    int index;
    *out_dev = NULL;
    TRY(g->resident ? devices_named(ctx, g->resident, &type, &index) : devices_selected(ctx, &type, &index));
    if (type->features & SOL_DEVICE_SHARED && !g->resident) return SOL_OK;
    if (!(type->features & SOL_DEVICE_IN_PROCESS) && !type->compile)
        return ctx_fail(ctx, SOL_ERR_UNSUPPORTED,
                        "device %s: it neither runs code of this process nor compiles its own (sol/device.h)",
                        type->name);
    return dev_get(ctx, type, index, out_dev);
}

/* What a device says about itself, in place of what is assumed about those of its flavour. */
static void set_facts(const struct sol_device_info *info, struct target *out)
{
    if (info->lanes > 0) out->simd = info->lanes;
    target_assume(out);
    if (info->cores > 0) out->cores = info->cores;
    if (!target_is_card(out)) return;
    if (info->clock > 0) out->clock = info->clock * 1e-3;
    if (info->core_fmas > 0) out->fma_pipes = (double)info->core_fmas / target_lanes(out, sizeof(float));
    if (info->core_items > 0) out->core_items = info->core_items;
    if (info->core_bytes > 0) out->l1 = info->core_bytes;
    if (info->group_items > 0) out->group_items = info->group_items;
    if (info->group_bytes > 0) out->group_bytes = info->group_bytes;
    if (info->memory_rate > 0) out->dram_rate = info->memory_rate * 1e-3;
    out->core_mma = info->core_mma;
    out->tf32 = info->tf32;
    target_card_cache(out, info->cache > 0 ? info->cache : out->l3);
}

sol_status compile_target(struct sol_ctx *ctx, const struct sol_device_type *type, const struct sol_device_info *info,
                          const char *name, struct target *out)
{
    if (target_named(ctx, type->features & SOL_DEVICE_LAUNCHES ? type->flavour : info->arch, out))
        return ctx_where(ctx, SOL_ERR_UNSUPPORTED, "device %s: ", name);
    set_facts(info, out);
    out->single = !info->f64;
    if (out->single && target_has_vectors(out))
        return ctx_fail(ctx, SOL_ERR_UNSUPPORTED,
                        "device %s (%s): it does not compute in float64, which SOL's kernels for it need: select "
                        "another one (sol info --devices)",
                        name, info->name);
    if (out->single)
        LOG(ctx, LOG_INFO, "core",
            "device %s (%s) has no float64: long sums are compensated in float32; integers above 2^24 and results that "
            "are computed from them lose digits, special functions have those of float32",
            name, info->name);
    return SOL_OK;
}

/* What the device's code is for: this machine where it runs code of this process; where it launches kernels, the target
 * that is called like its flavour; otherwise the target that is called as it says. */
static sol_status target_of(struct sol_ctx *ctx, const struct way *w, struct target *out)
{
    struct sol_device_info info;
    if (!w->dev_compiles) return machine_target(ctx, out);
    TRY(dev_info(w->dev, &info));
    TRY(compile_target(ctx, dev_type(w->dev), &info, dev_name(w->dev), out));
    const bool calls = w->plugins && strcmp(ctx_config(ctx, "plugins"), "off") != 0 && target_calls(out);
    out->blas = calls && *info.blas;
    out->dnn = calls && *info.dnn;
    return SOL_OK;
}

sol_status sol_compile(struct sol_ctx *ctx, struct sol_graph *g, struct sol_net **out_net)
{
    struct target target;
    struct way w = {.g = g, .target = &target, .plugins = true};
    sol_status status = find_dev(g, &w.dev);
    w.dev_compiles = w.dev && !(dev_type(w.dev)->features & SOL_DEVICE_IN_PROCESS);
    if (!status) status = graph_check_set(g);
    if (!status) status = target_of(ctx, &w, &target);
    if (!status) status = compile_in_arena(&w, out_net);
    ctx_progress(ctx, NULL, 0, 0);
    return status ? ctx_where(ctx, status, "network %s: ", g->name) : SOL_OK;
}
