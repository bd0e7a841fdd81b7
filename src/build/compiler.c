/* The C compiler: its selection, its identity (part of every key in the cache), and its flags.
 *
 * SOL asks for the version once and stores it by path, size and time, so that a warm start runs no program. */
#include "build/inside.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined __x86_64__ || defined __i386__
#include <cpuid.h>
#elif defined __linux__
#include <sys/auxv.h>
#endif

static const char last_used[] = "compiler used last";

static bool is_program(const char *path)
{
    struct stat s;
    return !stat(path, &s) && S_ISREG(s.st_mode) && !access(path, X_OK);
}

const char *compiler_find_program(struct arena *a, const char *name)
{
    if (strchr(name, '/')) return is_program(name) ? arena_strdup(a, name) : NULL;
    const char *path = getenv("PATH");
    if (!path) path = "/usr/local/bin:/usr/bin:/bin";
    for (const char *at = path; at; at = strchr(at, ':') ? strchr(at, ':') + 1 : NULL) {
        const int n = (int)strcspn(at, ":");
        const char *file = n ? arena_printf(a, "%.*s/%s", n, at, name) : NULL; /* no programs of the working folder */
        if (file && is_program(file)) return file;
    }
    return NULL;
}

/* The meaning of -march=native on this machine. */
static void add_cpu(struct digest *d)
{
#if defined __x86_64__ || defined __i386__
    static const unsigned leaves[][2] = {{0, 0}, {1, 0}, {7, 0}, {7, 1}, {0x80000001, 0}};
    for (int i = 0; i < COUNT_OF(leaves); i++) {
        unsigned r[4] = {0};
        __cpuid_count(leaves[i][0], leaves[i][1], r[0], r[1], r[2], r[3]);
        if (leaves[i][0] == 1) r[1] = 0; /* the number of the core that asks */
        digest_add(d, r, sizeof r);
    }
#elif defined __linux__
    const unsigned long r[2] = {getauxval(AT_HWCAP), getauxval(AT_HWCAP2)};
    digest_add(d, r, sizeof r);
#endif
}

const char *compiler_ended(struct arena *a, int exit)
{
    return exit > 128 ? arena_printf(a, "killed by signal %d", exit - 128) : arena_printf(a, "exit code %d", exit);
}

/* The line that `--version` begins with. */
static sol_status ask_version(struct sol_ctx *ctx, struct arena *a, const char *path, const char **out_version)
{
    const char *const argv[] = {path, "--version", NULL}, *output;
    int exit;
    TRY(process_run(a, argv, &exit, &output));
    if (exit)
        return ctx_fail(ctx, SOL_ERR_COMPILER,
                        "compiler '%s': '--version' failed (%s): %.200s; set the key compiler::name to a C compiler",
                        path, compiler_ended(a, exit), output);
    *out_version = arena_printf(a, "%.*s", (int)MIN(strcspn(output, "\n"), 200u), output);
    return SOL_OK;
}

/* The file of a compiler by path, size and time, and its version, which the cache knows from the first time on. */
static sol_status name_version(struct sol_ctx *ctx, struct arena *a, struct cache *c, const char *path,
                               const char **out_file, const char **out_version)
{
    struct stat s;
    if (stat(path, &s)) return ctx_fail(ctx, SOL_ERR_COMPILER, "compiler '%s': %s", path, strerror(errno));
    *out_file = arena_printf(a, "compiler %s %lld %lld.%09ld", path, (long long)s.st_size, (long long)s.st_mtim.tv_sec,
                             s.st_mtim.tv_nsec);
    *out_version = cache_fact(c, *out_file);
    if (*out_version) return SOL_OK;
    TRY(ask_version(ctx, a, path, out_version));
    cache_set_fact(c, *out_file, *out_version);
    return SOL_OK;
}

static sol_status identify(struct sol_ctx *ctx, struct arena *a, struct cache *c, struct compiler *cc)
{
    const char *file, *version;
    TRY(name_version(ctx, a, c, cc->path, &file, &version));
    cc->id = arena_printf(a, "%s %s", file, version);
    const char *last = cache_fact(c, last_used);
    if (!last || strcmp(last, cc->id)) cache_set_fact(c, last_used, cc->id);
    return SOL_OK;
}

/* No -ffast-math: NaN and infinity keep their meaning. Predictive commoning of gcc spills register tiles. */
static int meaning_flags(struct arena *a, const char *march, const char *flag, bool clang, const char **flags)
{
    static const char *const always[] = {"-std=gnu11",
                                         "-fPIC",
                                         "-ffp-contract=fast",
                                         "-fno-math-errno",
                                         "-fwrapv",
                                         "-fno-trapping-math",
                                         "-fvisibility=hidden",
                                         "-ffunction-sections",
                                         "-fno-strict-aliasing"};
    int n = 0;
    for (int i = 0; i < COUNT_OF(always); i++) flags[n++] = always[i];
    if (march) flags[n++] = arena_printf(a, "-march=%s", march);
    if (!clang) flags[n++] = "-fno-predictive-commoning";
    if (flag) flags[n++] = flag;
    return n;
}

const char *const *compiler_code_flags(struct arena *a, const char *march, const char *flag, bool clang)
{
    const char **flags = NEW_ARRAY(a, const char *, COMPILER_MAX_FLAGS);
    flags[0] = "-O3";
    meaning_flags(a, march, flag, clang, flags + 1);
    return flags;
}

/* A user waits for these compilations. Kernels are blocked and vectorized in their texts: with these passes, gcc makes
 * about the instructions of -O3 (test/counts_test.c) in two thirds of the time. -fexpensive-optimizations forms FMAs,
 * -fpeel-loops unrolls loops over lanes and windows, -fschedule-insns2 orders what tiles load and multiply. Jump
 * threading and dominator optimizations find nothing in kernels that other passes leave. */
static void set_flags(struct sol_ctx *ctx, struct arena *a, const struct build_request *r, struct compiler *cc)
{
    static const char *const gcc[] = {"-O1",
                                      "-fno-thread-jumps",
                                      "-fno-tree-dominator-opts",
                                      "-fexpensive-optimizations",
                                      "-fgcse",
                                      "-fipa-cp",
                                      "-fpeel-loops",
                                      "-fschedule-insns2",
                                      "-ftree-vrp",
                                      "-ftree-loop-vectorize",
                                      "-ftree-slp-vectorize",
                                      "-fvect-cost-model=dynamic",
                                      "-falign-functions",
                                      "-falign-loops"};
    int n = 0;
    if (cc->clang) cc->flags[n++] = "-O3";
    for (int i = 0; i < COUNT_OF(gcc) && !cc->clang; i++) cc->flags[n++] = gcc[i];
    n += meaning_flags(a, r->march, r->flag, cc->clang, cc->flags + n);
    cc->flags[n++] = "-w";
    if (!strcmp(ctx_config(ctx, "compiler::debug"), "1")) cc->flags[n++] = "-g";
    cc->flags[n] = NULL;
}

static void add_flags(struct arena *a, const struct build_request *r, struct compiler *cc)
{
    char hex[33];
    struct digest d;
    digest_init(&d, NULL);
    digest_text(&d, cc->id);
    digest_text(&d, sol_version());
    for (int i = 0; cc->flags[i]; i++) digest_text(&d, cc->flags[i]);
    if (r->march && !strcmp(r->march, "native")) add_cpu(&d);
    digest_hex(&d, hex);
    cc->id = arena_strdup(a, hex);
}

static const char *first_program(struct arena *a, const char *const *names)
{
    const char *path = NULL;
    for (int i = 0; names[i] && !path; i++) path = compiler_find_program(a, names[i]);
    return path;
}

/* The compiler that the key compiler::name selects. NULL: there is none. */
static const char *selected(struct sol_ctx *ctx, struct arena *a, bool *out_choose)
{
    static const char *const names[] = {"cc", "gcc", "clang", NULL};
    const char *name = ctx_config(ctx, "compiler::name");
    *out_choose = !*name || !strcmp(name, "auto");
    return *out_choose ? first_program(a, names) : compiler_find_program(a, name);
}

const char *compiler_about(struct sol_ctx *ctx, struct arena *a, const char *const *names)
{
    bool choose;
    struct compiler cc = {.path = names ? first_program(a, names) : selected(ctx, a, &choose)};
    if (!cc.path) return NULL;
    struct cache c;
    cache_open(&c, ctx, "");
    const char *file, *version;
    const bool known = !name_version(ctx, a, &c, cc.path, &file, &version);
    const char *about = known ? arena_printf(a, "%s (%s)", version, cc.path) : NULL;
    cache_close(&c);
    return about;
}

sol_status compiler_find(struct sol_ctx *ctx, struct arena *a, struct cache *c, const struct build_request *r,
                         struct compiler *out)
{
    bool choose;
    *out = (struct compiler){.path = selected(ctx, a, &choose)};
    out->wanted = choose ? "cc, gcc, clang" : arena_strdup(a, ctx_config(ctx, "compiler::name"));
    if (out->path)
        TRY(identify(ctx, a, c, out));
    else if (choose)
        out->id = cache_fact(c, last_used);
    if (!out->id) return compiler_missing(ctx, out);
    out->clang = strstr(out->id, "clang version") != NULL;
    set_flags(ctx, a, r, out);
    add_flags(a, r, out);
    return SOL_OK;
}

sol_status compiler_missing(struct sol_ctx *ctx, const struct compiler *cc)
{
    return ctx_fail(
        ctx, SOL_ERR_COMPILER,
        "compiler: no C compiler was found: tried %s in PATH; install one (Debian, Ubuntu: apt install gcc) "
        "or set the key compiler::name (or SOL_COMPILER) to the path of gcc or clang",
        cc->wanted);
}
