/* Versions: for each instruction set of the library, its properties according to the compiler, and the network planned
 * for it. */
#include <stdlib.h>
#include <string.h>

#include "build/build.h"
#include "compile/compile.h"
#include "deploy/deploy.h"
#include "passes/passes.h"
#include "tune/tune.h"

/* -- the compiler */

/* A cross compiler may be installed without its C library. */
static sol_status check_headers(struct deploy *d)
{
    const char *const argv[] = {d->cc, "-include", "stdlib.h", "-E", "-x", "c", "/dev/null", NULL};
    const sol_status status = deploy_run(d, "compiler", argv, NULL);
    const char *package = d->cross ? d->toolchain->headers : "libc6-dev";
    if (status != SOL_ERR_COMPILER) return status;
    return ctx_fail(d->ctx, SOL_ERR_COMPILER,
                    "deploy: %s does not find stdlib.h: install the C library it compiles for (Debian, Ubuntu: apt "
                    "install %s)",
                    d->cc, package);
}

sol_status deploy_find_compiler(struct deploy *d)
{
    static const char *const own[] = {"cc", "gcc", "clang", NULL};
    const char *const across[] = {d->toolchain->compiler, NULL};
    const char *const *names = d->cross ? across : own;
    const char *key = ctx_config(d->ctx, "compiler::name"), *output = "";
    if (!d->cross && *key && strcmp(key, "auto"))
        d->cc = compiler_find_program(d->arena, key);
    else
        for (int i = 0; names[i] && !d->cc; i++) d->cc = compiler_find_program(d->arena, names[i]);
    if (!d->cc && d->cross)
        return ctx_fail(d->ctx, SOL_ERR_COMPILER,
                        "deploy: code for %s needs the cross compiler %s, which is not in PATH: install it (Debian, "
                        "Ubuntu: apt install %s)",
                        d->device->name, names[0], d->toolchain->package);
    if (!d->cc)
        return ctx_fail(d->ctx, SOL_ERR_COMPILER,
                        "deploy: no C compiler was found; install one (Debian, Ubuntu: apt install gcc) or set the key "
                        "compiler::name to the path of gcc or clang");
    TRY(deploy_run(d, "compiler", (const char *const[]){d->cc, "--version", NULL}, &output));
    d->clang = strstr(output, "clang version") != NULL;
    return check_headers(d);
}

/* The macros that the compiler defines for an instruction set. */
static sol_status ask_macros(struct deploy *d, const char *march, const char **out_macros)
{
    const char *tune = strcmp(d->keys.mtune, "native") ? arena_printf(d->arena, "-mtune=%s", d->keys.mtune) : NULL;
    const char *const argv[] = {
        d->cc, arena_printf(d->arena, "-march=%s", march), "-dM", "-E", "-x", "c", "/dev/null", tune, NULL};
    const char *what = arena_printf(d->arena, "gcc::march '%s', gcc::mtune '%s'", march, d->keys.mtune);
    const sol_status status = deploy_run(d, what, argv, out_macros);
    return status == SOL_ERR_COMPILER ? ctx_where(d->ctx, SOL_ERR_INVALID, "%s", "") : status;
}

/* -- targets */

/* What of features.def the code may use. */
static uint32_t needs(const char *macros)
{
    static const char *const rows[] = {
#define X(feature, macro) macro,
#include "deploy/features.def"
#undef X
    };
    uint32_t bits = 0;
    for (int i = 0; i < COUNT_OF(rows); i++) bits |= target_defines(macros, rows[i]) ? UINT32_C(1) << i : 0;
    return bits;
}

/* Vectors as long as those of another target of the device. */
static sol_status set_vector(struct deploy *d, struct deploy_version *v)
{
    struct target like;
    if (!strcmp(d->keys.vector, "native")) return SOL_OK;
    TRY(target_named(d->ctx, d->keys.vector, &like));
    if (like.vector_bytes > v->target.vector_bytes || like.device != d->device)
        return ctx_fail(d->ctx, SOL_ERR_INVALID, "deploy: ispc::vector '%s': %s has vectors of %d bytes",
                        d->keys.vector, v->name, v->target.vector_bytes);
    v->target.vector_bytes = like.vector_bytes;
    v->target.simd = like.simd;
    return SOL_OK;
}

const char *const *deploy_flags(struct deploy *d, const struct deploy_version *v)
{
    const char *march = v ? v->march : d->bare ? d->version[0].march : NULL; /* floats go another way without an FPU */
    const char *const *code = compiler_code_flags(d->arena, march, v ? target_flag(&v->target) : NULL, d->clang);
    VECTOR(const char *) flags = {0};
    for (int i = 0; code[i]; i++)
        if (!d->bare || strcmp(code[i], "-fPIC")) PUSH(d->arena, flags, code[i]);
    if (v && (strcmp(d->keys.mtune, "native") || !strcmp(v->march, "native")))
        PUSH(d->arena, flags, arena_printf(d->arena, "-mtune=%s", d->keys.mtune));
    for (const char *flag = d->keys.flags; *flag; flag += strcspn(flag, " "), flag += strspn(flag, " "))
        PUSH(d->arena, flags, arena_printf(d->arena, "%.*s", (int)strcspn(flag, " "), flag));
    PUSH(d->arena, flags, NULL);
    return flags.at;
}

static sol_status make_version(struct deploy *d, const char *march, struct deploy_version *v)
{
    const char *macros;
    if (!*march) return ctx_fail(d->ctx, SOL_ERR_INVALID, "deploy: gcc::march: expected an instruction set, got ''");
    if (d->cross && !strcmp(march, "native")) march = d->toolchain->march;
    v->name = v->march = march;
    v->id = text_identifier(d->arena, march);
    v->kernels = map_create(d->arena);
    TRY(ask_macros(d, march, &macros));
    target_of_macros(d->device, macros, &v->target);
    v->target.name = v->name;
    v->target.march = march;
    v->target.starts = !strcmp(d->keys.pack, "load");
    v->needs = needs(macros);
    TRY(set_vector(d, v));
    TRY(machine_find(d->ctx, &v->target));
    v->flags = deploy_flags(d, v);
    return SOL_OK;
}

/* -- the network for it */

/* Can this machine run the code? If its features cannot be queried, it runs only its native code. */
static bool runs_here(const struct deploy *d, const struct deploy_version *v, const char *native_macros)
{
    struct target host;
    target_host(&host);
    if (!target_runs_on(&v->target, &host)) return false;
    return !strcmp(v->march, "native") || (d->device->features && !(v->needs & ~needs(native_macros)));
}

static sol_status find_what_is_tuned(struct deploy *d)
{
    struct text others = text_new(d->arena);
    const char *macros = "";
    if (!strcmp(ctx_config(d->ctx, "autotune"), "off") || d->there.type) return SOL_OK;
    if (!d->cross) TRY(ask_macros(d, "native", &macros));
    for (int i = 0; i < d->nversion; i++) {
        struct deploy_version *v = &d->version[i];
        v->tuned = !d->cross && runs_here(d, v, macros);
        if (!v->tuned) text_put(&others, "%s%s", others.n ? ", " : "", v->name);
    }
    if (others.n)
        LOG(d->ctx, LOG_INFO, "tune", "Tuning: not for %s (%s), which this machine cannot run", others.at,
            d->device->name);
    return SOL_OK;
}

/* Tunes the network for the instruction set, unless tuning results exist. */
static sol_status tune(const struct sol_graph *g, const struct deploy_version *v)
{
    struct sol_graph *copy;
    struct sol_net *net = NULL;
    TRY(graph_copy(g, &copy));
    const sol_status status = compile_tuned(copy, &v->target, &net);
    sol_net_destroy(net);
    sol_graph_destroy(copy);
    return status;
}

/* Chooses solvers as for compiling a network for this instruction set. Training is not tuned. */
static sol_status policy_for(struct deploy *d, const struct sol_graph *g, const struct deploy_version *v,
                             const struct tuning_policy **out_policy)
{
    *out_policy = NULL;
    if (graph_is_joint(g) || g->dims.n || d->there.type) return SOL_OK; /* trials measure at one size */
    if (v->tuned) TRY(tune(g, v));
    const struct wisdom_policy *wp = wisdom_policy_make(d->ctx, d->arena, &v->target, NULL);
    *out_policy = wp ? &wp->policy : NULL;
    return SOL_OK;
}

static sol_status plan_graph(struct deploy *d, struct deploy_graph *g, struct deploy_version *v,
                             struct deploy_code *code)
{
    struct plan *p;
    const struct tuning_policy *policy;
    TRY(policy_for(d, g->g, v, &policy));
    TRY(plan_with_policy(g->g, d->arena, &v->target, policy, &p));
    TRY(schedule_make(p, &code->schedule));
    TRY(ctx_check(d->ctx));
    if (d->there.type) return deploy_check_device(d, code->schedule);
    return deploy_settle(d, g, v, code);
}

/* Sorts versions with more instructions first, because the library selects the first that the machine supports. */
static int better_first(const void *a, const void *b)
{
    const struct deploy_version *x = a, *y = b;
    if (x->target.vector_bytes != y->target.vector_bytes) return y->target.vector_bytes - x->target.vector_bytes;
    return __builtin_popcount(y->needs) - __builtin_popcount(x->needs);
}

sol_status deploy_versions(struct deploy *d)
{
    int n = 1;
    if (d->there.type) {
        d->nversion = 1;
        d->version = NEW_ARRAY(d->arena, struct deploy_version, 1);
        TRY(ctx_check(d->ctx));
        return deploy_device_version(d, d->version);
    }
    for (const char *c = d->keys.march; *c; c++) n += *c == ',';
    d->version = NEW_ARRAY(d->arena, struct deploy_version, n);
    for (const char *at = d->keys.march; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        const char *march = arena_printf(d->arena, "%.*s", (int)strcspn(at, ","), at);
        for (int i = 0; i < d->nversion; i++)
            if (!strcmp(d->version[i].name, march))
                return ctx_fail(d->ctx, SOL_ERR_INVALID, "deploy: gcc::march '%s': given twice", march);
        TRY(make_version(d, march, &d->version[d->nversion++]));
    }
    qsort(d->version, (size_t)d->nversion, sizeof *d->version, better_first);
    return SOL_OK;
}

sol_status deploy_plan(struct deploy *d)
{
    TRY(find_what_is_tuned(d));
    for (int i = 0; i < d->ngraph; i++) {
        struct deploy_graph *g = &d->graph[i];
        struct compile_memory memory; /* of a training step; a number of bytes is for the best version */
        TRY(compile_keep(g->g, &d->version[0].target, &memory));
        TRY(passes_run(g->g));
        if (d->version[0].target.single) TRY(compile_reject_doubles(g->g, d->there.type->name));
        g->code = NEW_ARRAY(d->arena, struct deploy_code, d->nversion);
        for (int k = 0; k < d->nversion; k++) TRY(plan_graph(d, g, &d->version[k], &g->code[k]));
    }
    return SOL_OK;
}
