/* sol_doctor: checks what SOL needs of this machine and says what to do about anything missing.
 *
 * Each row of the table checks one thing and reports it. Essential things are tried, not just looked up: a source with
 * headers of the C library is compiled, linked and mapped as a kernel is, and finally a network runs. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/base.h"
#include "build/build.h"
#include "dnn/dnn.h"
#include "print/kernel.h"
#include "rt/rt.h"

/* free space that the cache's folder should have; one network takes a few MiB */
enum { MIB = 1 << 20, ROOM_MIB = 100 };

struct doctor {
    struct sol_ctx *ctx;
    struct arena *arena;
    const char *cc; /* NULL: none found */
    bool clang, compiles;
    struct sol_check found;
};

static void say(struct doctor *d, enum sol_state state, const char *text, const char *advice)
{
    d->found.state = state;
    d->found.text = text;
    d->found.advice = advice;
}

/* -- programs */

/* Runs a program. Returns whether it succeeded, and the first line of its output. */
static bool runs(struct doctor *d, const char *const *argv, const char **out_line)
{
    int exit;
    const char *output;
    if (process_run(d->arena, argv, &exit, &output)) {
        *out_line = arena_strdup(d->arena, sol_error(d->ctx));
        return false;
    }
    *out_line = arena_printf(d->arena, "%.*s", (int)MIN(strcspn(output, "\n"), 200u), output);
    return !exit;
}

static const char *first_of(struct doctor *d, const char *const *names)
{
    const char *path = NULL;
    for (int i = 0; names[i] && !path; i++) path = compiler_find_program(d->arena, names[i]);
    return path;
}

static void check_compiler(struct doctor *d)
{
    static const char *const names[] = {"cc", "gcc", "clang", NULL};
    const char *key = ctx_config(d->ctx, "compiler::name"), *line;
    const bool choose = !*key || !strcmp(key, "auto");
    const char *cc = choose ? first_of(d, names) : compiler_find_program(d->arena, key);
    if (!cc) {
        say(d, SOL_BROKEN,
            choose ? "none of cc, gcc and clang is in PATH" : arena_printf(d->arena, "%s: no such program", key),
            choose ? "install one (Debian, Ubuntu: apt install gcc libc6-dev; Fedora: dnf install gcc); without one, "
                     "only networks in the cache run"
                   : "set the key compiler::name (or SOL_COMPILER) to gcc or clang, or to auto");
        return;
    }
    if (!runs(d, (const char *const[]){cc, "--version", NULL}, &line)) {
        say(d, SOL_BROKEN, arena_printf(d->arena, "%s --version fails: %s", cc, line),
            "set the key compiler::name (or SOL_COMPILER) to gcc or clang");
        return;
    }
    d->cc = cc;
    d->clang = strstr(line, "clang version") != NULL;
    say(d, SOL_GOOD, arena_printf(d->arena, "%s: %s", cc, line), NULL);
}

/* Compiles, links and maps a source in `folder`, as kernels are. Returns the error, or NULL. */
static const char *compile_fails(struct doctor *d, const char *folder)
{
    static const char text[] = "#include <math.h>\n"
                               "#include <stdint.h>\n"
                               "__attribute__((visibility(\"default\"))) int32_t sol_doctor_try(float x)\n"
                               "{ return (int32_t)sqrtf(x); }\n";
    const char *source = arena_printf(d->arena, "%s/try.c", folder),
               *library = arena_printf(d->arena, "%s/try.so", folder), *line;
    if (file_write(d->ctx, source, text, sizeof text - 1)) return arena_strdup(d->arena, sol_error(d->ctx));
    struct target t;
    if (target_named(d->ctx, ctx_config(d->ctx, "target"), &t)) target_host(&t);
    const char *const *flags = compiler_code_flags(d->arena, t.march, target_flag(&t), d->clang);
    const char *argv[32] = {d->cc};
    int n = 1;
    for (int i = 0; flags[i] && n < 24; i++) argv[n++] = flags[i];
    const char *const rest[] = {"-w", "-shared", "-o", library, source, "-lm"};
    for (int i = 0; i < COUNT_OF(rest); i++) argv[n++] = rest[i];
    char *data;
    size_t bytes;
    if (!runs(d, argv, &line)) return line;
    if (file_read(d->ctx, d->arena, library, &data, &bytes)) return arena_strdup(d->arena, sol_error(d->ctx));
    void *handle = module_map_copy(d->arena, "doctor", data, bytes);
    if (!handle) handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle) return arena_strdup(d->arena, dlerror());
    int32_t (*function)(float);
    void *found = dlsym(handle, "sol_doctor_try");
    memcpy(&function, &found, sizeof function);
    const bool right = found && function(16) == 4;
    dlclose(handle);
    return right ? NULL : "the compiled code computes a wrong result";
}

static void check_compiles(struct doctor *d)
{
    if (!d->cc) {
        say(d, SOL_BROKEN, "not tried: there is no compiler", NULL);
        return;
    }
    const char *folder = folder_temporary(d->arena);
    if (!folder) {
        say(d, SOL_BROKEN,
            arena_printf(d->arena, "cannot create a folder in %s: %s", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp",
                         strerror(errno)),
            "set TMPDIR to a folder that you can write");
        return;
    }
    const char *wrong = compile_fails(d, folder);
    folder_remove(folder);
    d->compiles = !wrong;
    if (!wrong) {
        say(d, SOL_GOOD, "headers of the C library, linker and loader work", NULL);
        return;
    }
    const bool header = strstr(wrong, ".h") && strstr(wrong, "error");
    const bool map = strstr(wrong, "failed to map");
    say(d, SOL_BROKEN, wrong,
        header ? "install the headers of the C library (Debian, Ubuntu: apt install libc6-dev; Fedora: dnf install "
                 "glibc-devel)"
        : map
            ? "nothing can be mapped from memory (is there a /proc?), and the temporary folder is mounted noexec: set "
              "TMPDIR to one that is not"
            : "the compiler must make shared objects: try another one with the key compiler::name (or SOL_COMPILER)");
}

/* -- the machine */

static void check_processor(struct doctor *d)
{
    struct target host;
    target_host(&host);
    say(d, SOL_GOOD,
        arena_printf(d->arena, "%s, vectors of %d bytes, %d processor%s, caches of %lld KiB, %lld KiB and %lld MiB",
                     host.device->name, host.vector_bytes, host.cores, host.cores == 1 ? "" : "s",
                     (long long)host.l1 >> 10, (long long)host.l2 >> 10, (long long)host.l3 >> 20),
        NULL);
}

/* What the cost model and profiles assume about this machine. */
static void check_machine(struct doctor *d)
{
    struct sol_machine m;
    if (sol_machine(d->ctx, &m)) {
        say(d, SOL_BROKEN, arena_strdup(d->arena, sol_error(d->ctx)), "set the key machine (or SOL_MACHINE) to auto");
        return;
    }
    say(d, SOL_GOOD,
        arena_printf(
            d->arena,
            "%.0f GFLOP/s (%d threads of %.2f GHz, %.3g FMA a cycle); reads L2 %.0f, L3 %.0f, memory %.0f GB/s; "
            "%s",
            m.flops, m.threads, m.clock, m.fma, m.l2_rate, m.l3_rate, m.memory_rate, m.source),
        NULL);
}

static void check_target(struct doctor *d)
{
    struct target t;
    const char *name = ctx_config(d->ctx, "target");
    sol_status status = target_named(d->ctx, name, &t);
    if (!status) status = target_check(d->ctx, &t);
    if (status)
        say(d, SOL_BROKEN, arena_strdup(d->arena, sol_error(d->ctx)), "set the key target (or SOL_TARGET) to native");
    else
        say(d, SOL_GOOD, arena_strdup(d->arena, name), NULL);
}

static void check_threads(struct doctor *d)
{
    const char *most = ctx_config(d->ctx, "threads");
    const char *whose =
        rt_team_openmp() ? "those of the OpenMP runtime that is loaded" : "its own (no OpenMP runtime is loaded)";
    say(d, SOL_GOOD, arena_printf(d->arena, "%d at most, %s", strcmp(most, "0") ? atoi(most) : rt_processors(), whose),
        NULL);
}

/* -- the cache */

static void check_cache(struct doctor *d)
{
    struct statvfs v;
    const char *path, *why;
    if (!*ctx_config(d->ctx, "cache::folder")) {
        say(d, SOL_LACKS, "the key cache::folder is empty: every network is compiled anew",
            "set cache::folder (or SOL_CACHE) to a folder of your own");
        return;
    }
    const int fd = place_open(d->ctx, d->arena, 0, true, &path, &why);
    if (fd < 0 || faccessat(fd, ".", W_OK, AT_EACCESS)) {
        say(d, SOL_LACKS, arena_printf(d->arena, "%s: %s", path, fd < 0 ? why : "it cannot be written"),
            "a temporary cache is used instead; chmod 700 it, or set the key cache::folder (or SOL_CACHE) to a folder "
            "of "
            "your own");
        if (fd >= 0) close(fd);
        return;
    }
    if (!place_has_secret(d->ctx, d->arena)) {
        say(d, SOL_LACKS,
            arena_printf(d->arena, "%s: nothing is stored, because there is no folder for the secret key", path),
            "set HOME or XDG_STATE_HOME, or else TMPDIR, to a folder of your own that you can write");
        close(fd);
        return;
    }
    const double room = fstatvfs(fd, &v) ? 0 : (double)v.f_bavail * (double)v.f_frsize / MIB;
    close(fd);
    say(d, room < ROOM_MIB ? SOL_LACKS : SOL_GOOD,
        arena_printf(d->arena, "%s, %.0f MiB free, kept below %s MiB", path, room, ctx_config(d->ctx, "cache::limit")),
        room < ROOM_MIB ? "make room, or set the key cache::folder (or SOL_CACHE) to another disk" : NULL);
}

/* -- what only some users need */

struct cross { /* names of devices, and of packages */
    struct text there, lacking, install;
};

/* A cross compiler may be installed without the C library of its target. */
static void find_cross(struct doctor *d, const char *device, const struct toolchain *t, struct cross *c)
{
    const char *path = compiler_find_program(d->arena, t->compiler), *line;
    const char *const argv[] = {path, "-include", "stdlib.h", "-E", "-x", "c", "-o", "/dev/null", "/dev/null", NULL};
    const bool works = path && runs(d, argv, &line);
    struct text *list = works ? &c->there : &c->lacking;
    text_put(list, "%s%s", list->n ? ", " : "", device);
    if (!works) text_put(&c->install, " %s %s", t->package, t->headers);
}

/* Checks the compilers for the devices that sol.deploy supports. */
static void check_cross(struct doctor *d)
{
    struct target host;
    struct cross c = {text_new(d->arena), text_new(d->arena), text_new(d->arena)};
    target_host(&host);
    for (int i = 0; device_at(i); i++) {
        const struct device *x = device_at(i);
        if (x != host.device) find_cross(d, x->name, &x->hosted, &c);
        if (x->bare.compiler)
            find_cross(d, arena_printf(d->arena, "%s without an operating system", x->name), &x->bare, &c);
    }
    const char *found = c.there.n ? arena_printf(d->arena, "for %s", c.there.at) : "none";
    if (c.lacking.n)
        say(d, SOL_LACKS, arena_printf(d->arena, "%s; no deployment for %s", found, c.lacking.at),
            arena_printf(d->arena, "Debian, Ubuntu: apt install%s", c.install.at));
    else
        say(d, SOL_GOOD, found, NULL);
}

static void check_dot(struct doctor *d)
{
    const char *path = compiler_find_program(d->arena, "dot");
    if (path)
        say(d, SOL_GOOD, path, NULL);
    else
        say(d, SOL_LACKS, "not installed: drawings of compiler::debug stay text",
            "Debian, Ubuntu: apt install graphviz");
}

static void check_plugins(struct doctor *d)
{
    const char *key = ctx_config(d->ctx, "plugins");
    const struct plugins *p = plugins_load(d->ctx, d->arena);
    struct text t = text_new(d->arena);
    for (int i = 0; p && i < p->n; i++) text_put(&t, "%s%s (%s)", i ? ", " : "", p->at[i].library, p->at[i].path);
    if (p) {
        say(d, SOL_GOOD, t.at, NULL);
    } else if (!strcmp(key, "off")) {
        say(d, SOL_GOOD, "off, by the key plugins", NULL);
    } else {
        const bool own = *key && strcmp(key, "auto");
        say(d, own ? SOL_LACKS : SOL_GOOD,
            own ? arena_printf(d->arena, "none in %s that can be loaded", key)
                : "none: SOL's own kernels are all there is",
            own ? "set the key plugins (or SOL_PLUGINS) to the folder of sol-openblas.so or sol-onednn.so, or to auto"
                : NULL);
    }
}

/* -- all together: a network */

struct tried {
    struct sol_graph *g;
    struct sol_net *net;
    struct sol_params *params;
};

static sol_status try_network(struct sol_ctx *ctx, struct tried *t, float out[4])
{
    struct sol_tensor *x, *y;
    const float in[4] = {0, 1, -2, 4};
    const int64_t shape[1] = {4};
    TRY(sol_graph_create(ctx, "doctor", &t->g));
    TRY(sol_graph_input(t->g, "x", SOL_F32, 1, shape, &x));
    TRY(sol_graph_layer(t->g, &(struct sol_new_layer){.kind = "abs", .nin = 1, .in = &x, .name = "doctor"}, 1, &y));
    TRY(sol_graph_output(t->g, "y", y));
    TRY(sol_compile(ctx, t->g, &t->net));
    TRY(sol_params_create(t->net, &t->params));
    return sol_net_run(t->net, t->params, (const void *const[]){in}, (void *const[]){out}, 0);
}

static void check_network(struct doctor *d)
{
    struct tried t = {0};
    float out[4] = {0};
    const bool ran = !try_network(d->ctx, &t, out);
    const bool right = out[0] == 0 && out[1] == 1 && out[2] == 2 && out[3] == 4;
    if (!ran)
        say(d, SOL_BROKEN, arena_strdup(d->arena, sol_error(d->ctx)), NULL);
    else if (!right)
        say(d, SOL_BROKEN, "it runs, but its results are wrong", "please report this");
    else
        say(d, SOL_GOOD, d->compiles ? "optimized and run" : "run from the cache; nothing new can be compiled", NULL);
    sol_params_destroy(t.params);
    sol_net_destroy(t.net);
    sol_graph_destroy(t.g);
}

static const struct {
    const char *what;
    void (*check)(struct doctor *d);
} rows[] = {
    {"processor", check_processor}, {"target", check_target},      {"threads", check_threads},
    {"C compiler", check_compiler}, {"compiling", check_compiles}, {"cache", check_cache},
    {"speed", check_machine},       {"a network", check_network},  {"cross compilers", check_cross},
    {"dot (Graphviz)", check_dot},  {"plug-ins", check_plugins},
};

sol_status sol_doctor(struct sol_ctx *ctx, void (*show)(void *user, const struct sol_check *check), void *user,
                      int *out_broken)
{
    struct arena *a = arena_create(ctx);
    *out_broken = 0;
    if (!a) return SOL_ERR_NOMEM;
    struct doctor d = {.ctx = ctx, .arena = a};
    for (int i = 0; i < COUNT_OF(rows); i++) {
        d.found = (struct sol_check){.what = rows[i].what};
        rows[i].check(&d);
        *out_broken += d.found.state == SOL_BROKEN;
        show(user, &d.found);
    }
    arena_destroy(a);
    return SOL_OK;
}
