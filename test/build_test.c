/* Build: kernels written by hand are compiled, cached, linked and run; and everything that can be wrong with the cache
 * and the compiler: damage, truncation, no rights, no room, other processes, kill -9, a changed or missing compiler. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "build/build.h"
#include "fail_alloc.h"
#include "rt/rt.h"

/* The compilers of these tests count how often they run: a script in front of the real one. */
static const char script[] = "#!/bin/sh\n"
                             "case \"$*\" in *--version*) ;; *) echo \"$*\" >>\"%s/log\" ;; esac\n"
                             "%s\n"
                             "exec cc \"$@\"\n";

static const char *const kernels[] = {
    "#include <math.h>\n"
    "static inline float twice(float x) { return x + x; }\n"
    "\n"
    "/* \"KERNEL_9\" in a string stays */\n"
    "static const char *const KERNEL_name = \"KERNEL_9\";\n"
    "void KERNEL_0(char *const *p, const struct sol_frame *f, int64_t task0, int64_t task1, int worker)\n"
    "{\n"
    "    for (int64_t i = task0; i < task1; i++)\n"
    "        ((float *)p[1])[i] = twice(((const float *)p[0])[i]) + (KERNEL_name[6] == '_' ? 0 : 100);\n"
    "}\n",
    "#include <math.h>\n"
    "static inline float twice(float x) { return x + x; }\n"
    "\n"
    "void KERNEL_0(char *const *p, const struct sol_frame *f, int64_t task0, int64_t task1, int worker)\n"
    "{\n"
    "    for (int64_t i = task0; i < task1; i++)\n"
    "        ((float *)p[2])[i] = sqrtf(twice(((const float *)p[0])[i])) + ((const float *)p[1])[i];\n"
    "}\n"};
static const char module_text[] =
    "static const struct sol_buffer buffers[] = {{SOL_BUFFER_INPUT, 0, 0, 16, 0}, {SOL_BUFFER_WORKSPACE, 0, 0, 16, "
    "0},\n"
    "    {SOL_BUFFER_CONST, 0, 0, 16, DATA0}, {SOL_BUFFER_OUTPUT, 0, 0, 16, 0}};\n"
    "static const struct sol_place places[] = {{0, 0}, {1, 0}, {1, 0}, {2, 0}, {3, 0}};\n"
    "static const struct sol_step steps[] = {{KERNEL0_0, 4, 0, 2, \"twice KERNEL0_0\", 0, 0, 0},\n"
    "    {KERNEL1_0, 4, 2, 3, \"root\", 0, 0, 0}};\n"
    "const struct sol_module sol_module = {sizeof(struct sol_module), SOL_MODULE_VERSION, 1, 1, 0, 4, buffers, 0, 0, 0,\n"
    "    {0}, {2, 5, steps, places, 64, 0}, {0}};\n";
static const float datum[4] = {0.5f, 1.5f, 2.5f, 3.5f};

struct place { /* one test's folder, context and request */
    char folder[64], cache[80], compiler[80];
    struct sol_ctx *ctx;
    struct build_data data;
    struct build_request r;
};

static void write_file(const char *path, const char *text, mode_t mode)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    chmod(path, mode);
}

/* Puts a compiler in place that runs `extra` first. */
static void make_compiler(struct place *p, const char *extra)
{
    char text[1024];
    snprintf(text, sizeof text, script, p->folder, extra);
    write_file(p->compiler, text, 0755);
}

static struct sol_ctx *new_context(const struct place *p)
{
    struct sol_ctx *ctx;
    assert_int_equal(sol_ctx_create(NULL, &ctx), SOL_OK);
    sol_config_set(ctx, "cache::folder", p->cache);
    sol_config_set(ctx, "compiler::name", p->compiler);
    sol_config_set(ctx, "log::level", "ERROR");
    return ctx;
}

static int setup(void **state)
{
    struct place *p = calloc(1, sizeof *p);
    strcpy(p->folder, "/tmp/sol-build-test-XXXXXX");
    assert_non_null(mkdtemp(p->folder));
    snprintf(p->cache, sizeof p->cache, "%s/cache", p->folder);
    snprintf(p->compiler, sizeof p->compiler, "%s/compiler", p->folder);
    make_compiler(p, "");
    p->ctx = new_context(p);
    p->data = (struct build_data){datum, sizeof datum};
    p->r = (struct build_request){.name = "test net",
                                  .vector_bytes = 16,
                                  .jobs = 2,
                                  .nkernel = 2,
                                  .kernel = kernels,
                                  .ndata = 1,
                                  .data = &p->data,
                                  .module = module_text};
    *state = p;
    return 0;
}

static void shell(const char *format, ...)
{
    char command[512];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    assert_int_equal(system(command), 0);
}

static int teardown(void **state)
{
    struct place *p = *state;
    sol_ctx_destroy(p->ctx);
    shell("chmod -R u+w '%s'; rm -rf '%s'", p->folder, p->folder);
    free(p);
    return 0;
}

/* How many times the compiler ran since the last question. */
static int compiler_runs(const struct place *p)
{
    char path[96];
    int n = 0;
    snprintf(path, sizeof path, "%s/log", p->folder);
    FILE *f = fopen(path, "r");
    for (int c; f && (c = fgetc(f)) != EOF;) n += c == '\n';
    if (f) fclose(f);
    unlink(path);
    return n;
}

static int run_module(const struct sol_module *m)
{
    const float in[4] = {0, 2, 8, 18};
    float out[4], work[16];
    char *base[] = {(char *)(uintptr_t)in, (char *)work, (char *)(uintptr_t)m->buffer[2].data, (char *)out},
         *operands[5];
    const struct rt_call call = {.program = &m->forward, .base = base, .operands = operands, .threads = 2};
    if (rt_run(&call, NULL)) return 1;
    for (int i = 0; i < 4; i++)
        if (out[i] != __builtin_sqrtf(4 * in[i]) + datum[i]) return 2;
    return strcmp(m->forward.step[0].label, "twice KERNEL0_0") ? 3 : 0;
}

static sol_status try_build(struct place *p, struct module *m)
{
    struct arena *a = arena_create(p->ctx);
    const sol_status status = build_module(p->ctx, a, &p->r, m);
    arena_destroy(a);
    return status;
}

static void build_and_run(struct place *p)
{
    struct module m;
    const sol_status status = try_build(p, &m);
    if (status) fail_msg("%s", sol_error(p->ctx));
    assert_int_equal(run_module(m.table), 0);
    module_close(&m);
}

/* -- the way it should be */

static void builds_and_then_only_maps(void **state)
{
    struct place *p = *state;
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 4); /* two kernels, the module, the link */
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 0);
    sol_ctx_destroy(p->ctx); /* as a new process would */
    p->ctx = new_context(p);
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 0);
    shell("test -z \"$(ls '%s/tmp')\"", p->cache); /* nothing is left over */
}

static void another_module_shares_kernels(void **state)
{
    struct place *p = *state;
    build_and_run(p);
    compiler_runs(p);
    char other[sizeof module_text + 16];
    snprintf(other, sizeof other, "%s/* other */", module_text);
    p->r.module = other;
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 2); /* the module, the link */
}

static void equal_kernels_are_compiled_once(void **state)
{
    struct place *p = *state;
    const char *const four[] = {kernels[0], kernels[1], kernels[1], kernels[0]};
    p->r.kernel = four;
    p->r.nkernel = 4;
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 4);
}

static void many_kernels_share_a_text(void **state)
{
    struct place *p = *state;
    char text[16][1024];
    const char *list[16] = {kernels[0], kernels[1]};
    for (int i = 2; i < 16; i++) {
        snprintf(text[i], sizeof text[i], "%s/* %d */\n", kernels[1], i);
        list[i] = text[i];
    }
    p->r.kernel = list;
    p->r.nkernel = 16;
    build_and_run(p);
    assert_in_range(compiler_runs(p), 4, 8);
    /* Names that each kernel declares for itself do not clash. */
    for (int i = 0; i < 16; i++) {
        snprintf(text[i], sizeof text[i],
                 "enum { SIZE = %d };\ntypedef int real;\n#define VALUE %d\nstatic real mine(int x);\n"
                 "static real mine(int x) { return x + SIZE == VALUE; }\n%s"
                 "static const int table[2] = {SIZE};\nstatic const int *KERNEL_use = &table[0];\n",
                 i, i, kernels[i > 0]);
        list[i] = text[i];
    }
    build_and_run(p);
    assert_in_range(compiler_runs(p), 4, 8);
    /* Where they do, each is compiled alone. */
    for (int i = 0; i < 16; i++) {
        snprintf(text[i], sizeof text[i], "static int sol_mine = %d;\n%s", i, kernels[i > 0]);
        list[i] = text[i];
    }
    build_and_run(p);
    assert_in_range(compiler_runs(p), 18, 24);
}

static void clear_removes_it(void **state)
{
    struct place *p = *state;
    char other[128];
    build_and_run(p);
    snprintf(other, sizeof other, "%s/mine", p->cache);
    write_file(other, "of the user", 0644);
    compiler_runs(p);
    assert_int_equal(sol_cache_clear(p->ctx), SOL_OK);
    assert_true(file_exists(other));
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 4);
    assert_int_equal(sol_cache_clear(p->ctx), SOL_OK);
    assert_int_equal(sol_cache_clear(p->ctx), SOL_OK);
}

static void debug_keeps_sources(void **state)
{
    struct place *p = *state;
    sol_config_set(p->ctx, "compiler::debug", "1");
    build_and_run(p);
    shell("grep -q sol_module '%s'/x86/source/test_net.c", p->cache);
    shell("rm '%s'/x86/source/*", p->cache); /* they come back, though the kernels are in the cache */
    build_and_run(p);
    shell("test $(ls '%s'/x86/source/test_net_sol_k_*.c | wc -l) = 2", p->cache);
}

static void works_without_a_cache(void **state)
{
    struct place *p = *state;
    sol_config_set(p->ctx, "cache::folder", "");
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 4);
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 4);
}

/* -- damage */

static void damaged_files_are_built_again(void **state)
{
    struct place *p = *state;
    build_and_run(p);
    compiler_runs(p);
    shell("for f in '%s'/x86/modules/*.so; do printf XXXX | dd of=$f bs=1 seek=400 conv=notrunc 2>/dev/null; done",
          p->cache);
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 2); /* the objects are good */
    shell("for f in '%s'/x86/*/*; do truncate -s 100 $f; done", p->cache);
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 4);
    shell("rm '%s'/x86/*/*", p->cache);
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 4);
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 0);
}

static void a_damaged_index_is_made_anew(void **state)
{
    struct place *p = *state;
    const char *const damage[] = {"echo nonsense >'%s/index.db'", "truncate -s 5000 '%s/index.db'",
                                  "dd if=/dev/zero of='%s/index.db' bs=1 seek=100 count=8000 conv=notrunc 2>/dev/null",
                                  ": >'%s/index.db'", "rm '%s/index.db'"};
    for (int i = 0; i < COUNT_OF(damage); i++) {
        build_and_run(p);
        shell(damage[i], p->cache);
        build_and_run(p);
        compiler_runs(p);
        build_and_run(p);
        assert_int_equal(compiler_runs(p), 0);
    }
}

/* A module that is built again while it is mapped goes to a new file: the old code stays as it is. */
static void a_mapped_module_may_be_replaced(void **state)
{
    struct place *p = *state;
    struct module m;
    assert_int_equal(try_build(p, &m), SOL_OK);
    shell("rm '%s/index.db'", p->cache);
    build_and_run(p);
    assert_int_equal(sol_cache_clear(p->ctx), SOL_OK);
    assert_int_equal(run_module(m.table), 0);
    module_close(&m);
}

/* -- rights and room. Root may write everything: these run as another user. */

static int as_nobody(struct place *p, int (*what)(struct place *))
{
    pid_t child = fork();
    if (!child) {
        if (geteuid() == 0) {
            shell("chown -R 65534 '%s'", p->folder);
            if (setgid(65534) || setuid(65534)) _exit(99);
        }
        _exit(what(p));
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}

static int build_quietly(struct place *p)
{
    struct module m;
    if (try_build(p, &m)) return 1;
    const int wrong = run_module(m.table);
    module_close(&m);
    return wrong;
}

static int in_read_only_folder(struct place *p)
{
    setenv("TMPDIR", p->folder, 1);
    if (build_quietly(p) || compiler_runs(p) != 4) return 10;
    shell("chmod -R a-w '%s'", p->cache);
    if (build_quietly(p) || compiler_runs(p) != 0) return 11; /* what is in it can be used */
    p->r.name = "other";
    p->r.nkernel = 2;
    char other[sizeof module_text + 16];
    snprintf(other, sizeof other, "%s/* other */", module_text);
    p->r.module = other;
    if (build_quietly(p) || compiler_runs(p) != 2) return 12;
    if (build_quietly(p) || compiler_runs(p) != 0) return 13; /* now it is in the temporary folder */
    shell("chmod -R u+w '%s'", p->cache);
    return 0;
}

static void read_only_folder(void **state)
{
    assert_int_equal(as_nobody(*state, in_read_only_folder), 0);
}

static int in_folder_of_others(struct place *p)
{
    setenv("TMPDIR", p->folder, 1);
    if (build_quietly(p)) return 10;
    compiler_runs(p);
    chmod(p->cache, 0777);
    if (build_quietly(p) || compiler_runs(p) != 4) return 11; /* not trusted */
    chmod(p->cache, 0755);
    if (build_quietly(p) || compiler_runs(p) != 0) return 12;
    sol_config_set(p->ctx, "cache::folder", "/"); /* of root */
    if (build_quietly(p) || compiler_runs(p) != 0) return 13;
    sol_config_set(p->ctx, "cache::folder", "/proc/no/such");
    if (build_quietly(p) || compiler_runs(p) != 0) return 14;
    return 0;
}

static void folders_that_others_can_write_are_not_used(void **state)
{
    assert_int_equal(as_nobody(*state, in_folder_of_others), 0);
}

/* The index cannot grow: as on a full disk, only for this process. Compilers are started by a script that lifts it. */
static void a_full_disk_costs_time_only(void **state)
{
    struct place *p = *state;
    pid_t child = fork();
    if (!child) {
        signal(SIGXFSZ, SIG_IGN);
        make_compiler(p, "ulimit -S -f unlimited");
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){8192, RLIM_INFINITY});
        const int wrong = build_quietly(p);
        _exit(wrong);
    }
    int status = 0;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    build_and_run(p);
}

/* -- other processes */

static void processes_at_once(void **state)
{
    struct place *p = *state;
    pid_t child[4];
    for (int i = 0; i < 4; i++) {
        child[i] = fork();
        if (child[i]) continue;
        struct sol_ctx *ctx = p->ctx = new_context(p);
        int wrong = 0;
        for (int k = 0; k < 3; k++) wrong |= build_quietly(p);
        sol_ctx_destroy(ctx);
        _exit(wrong);
    }
    for (int i = 0; i < 4; i++) {
        int status;
        waitpid(child[i], &status, 0);
        assert_int_equal(status, 0);
    }
    compiler_runs(p);
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 0);
}

/* Killed at all kinds of moments; what is left must be used rightly or not at all. */
static void killed_while_building(void **state)
{
    struct place *p = *state;
    for (int i = 0; i < 12; i++) {
        pid_t child = fork();
        if (!child) _exit(build_quietly(p));
        nanosleep(&(struct timespec){.tv_nsec = 1000000 + i * 23000000L}, NULL);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        if (i % 4 == 3) {
            build_and_run(p);
            assert_int_equal(sol_cache_clear(p->ctx), SOL_OK);
        }
    }
    build_and_run(p);
    compiler_runs(p);
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 0);
}

static void *thread_main(void *arg)
{
    struct place mine = *(struct place *)arg;
    return (void *)(uintptr_t)build_quietly(&mine);
}

static void threads_at_once(void **state)
{
    pthread_t thread[3];
    for (int i = 0; i < 3; i++) pthread_create(&thread[i], NULL, thread_main, *state);
    for (int i = 0; i < 3; i++) {
        void *wrong;
        pthread_join(thread[i], &wrong);
        assert_null(wrong);
    }
}

/* -- the compiler */

static void a_changed_compiler_builds_anew(void **state)
{
    struct place *p = *state;
    build_and_run(p);
    compiler_runs(p);
    make_compiler(p, ": another version");
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 4);
    p->r.vector_bytes = 64; /* other flags */
    p->r.march = "x86-64";
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 4);
}

static void expect_error(struct place *p, sol_status want, const char *const *words)
{
    struct module m;
    assert_int_equal(try_build(p, &m), want);
    for (; *words; words++)
        if (!strstr(sol_error(p->ctx), *words)) fail_msg("'%s' is not in: %s", *words, sol_error(p->ctx));
    assert_null(m.handle);
}

static void no_compiler(void **state)
{
    struct place *p = *state;
    char *path = strdup(getenv("PATH"));
    sol_config_set(p->ctx, "compiler::name", "no-such-compiler");
    expect_error(p, SOL_ERR_COMPILER, (const char *[]){"no-such-compiler", "install", "compiler::name", NULL});
    setenv("PATH", p->folder, 1);
    sol_config_set(p->ctx, "compiler::name", "auto");
    expect_error(p, SOL_ERR_COMPILER, (const char *[]){"cc, gcc, clang", NULL});
    setenv("PATH", path, 1);
    build_and_run(p);
    setenv("PATH", p->folder, 1); /* what was built before needs no compiler */
    build_and_run(p);
    p->r.vector_bytes = 64;
    expect_error(p, SOL_ERR_COMPILER, (const char *[]){"cc, gcc, clang", NULL});
    setenv("PATH", path, 1);
    free(path);
}

static void code_that_the_compiler_refuses(void **state)
{
    struct place *p = *state;
    const char *const bad[] = {kernels[0], "void KERNEL_0(void)\n{\n    here_is_an_error;\n}\n"};
    p->r.kernel = bad;
    expect_error(p, SOL_ERR_COMPILER, (const char *[]){"test net", "here_is_an_error", "/x86/source/refused_", NULL});
    shell("grep -q here_is_an_error '%s'/x86/source/refused_*", p->cache);
    p->r.kernel = kernels;
    p->r.module = "const struct sol_module sol_module = {KERNEL7_0};";
    expect_error(p, SOL_ERR_INTERNAL, (const char *[]){"KERNEL7_0", NULL});
    p->r.module = "const struct sol_module sol_module = {1, SOL_MODULE_VERSION};";
    expect_error(p, SOL_ERR_INTERNAL, (const char *[]){"sol_module", NULL});
    make_compiler(p, "exit 3");
    expect_error(p, SOL_ERR_COMPILER, (const char *[]){"exit code 3", NULL});
}

static int stop_after(void *user)
{
    return --*(int *)user < 0;
}

static void interrupted(void **state)
{
    struct place *p = *state;
    int calls = 20;
    struct sol_ctx *ctx = p->ctx;
    const struct sol_ctx_options o = {.size = sizeof o, .interrupted = stop_after, .user = &calls};
    make_compiler(p, "sleep 20");
    assert_int_equal(sol_ctx_create(&o, &p->ctx), SOL_OK);
    sol_config_set(p->ctx, "cache::folder", p->cache);
    sol_config_set(p->ctx, "compiler::name", p->compiler);
    make_compiler(p, "case \"$*\" in *--version*) ;; *) sleep 20 ;; esac");
    const int64_t start = clock_ns();
    expect_error(p, SOL_ERR_INTERRUPTED, (const char *[]){"interrupted", NULL});
    assert_true(clock_ns() - start < 5000000000);
    sol_ctx_destroy(p->ctx);
    p->ctx = ctx;
    shell("test -z \"$(ls '%s/tmp')\"", p->cache);
}

/* Every allocation of a build fails in turn: an error, nothing leaks, and the cache stays good. */
static void out_of_memory(void **state)
{
    struct place *p = *state;
    struct sol_ctx *ctx = p->ctx;
    for (int later = 0; later < 2; later++) {
        bool failed = true;
        for (long at = 0; failed; at++) {
            struct fail_alloc f = {.fail_at = -1, .from_then_on = later};
            const struct sol_ctx_options o = {.size = sizeof o, .reallocate = fail_alloc, .user = &f};
            assert_int_equal(sol_ctx_create(&o, &p->ctx), SOL_OK);
            sol_config_set(p->ctx, "cache::folder", p->cache);
            sol_config_set(p->ctx, "compiler::name", p->compiler);
            sol_config_set(p->ctx, "log::level", "ERROR");
            const long before = f.n;
            f.fail_at = before + at;
            struct arena *a = arena_create(p->ctx);
            struct module m = {0};
            const sol_status status = a ? build_module(p->ctx, a, &p->r, &m) : SOL_ERR_NOMEM;
            failed = f.n > f.fail_at;
            if (!failed) assert_int_equal(status, SOL_OK);
            if (status) assert_int_equal(status, SOL_ERR_NOMEM);
            if (!status) assert_int_equal(run_module(m.table), 0);
            module_close(&m);
            arena_destroy(a);
            sol_ctx_destroy(p->ctx);
            assert_int_equal(f.alive, 0);
        }
    }
    p->ctx = ctx;
    build_and_run(p);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(builds_and_then_only_maps),
        TEST(another_module_shares_kernels),
        TEST(equal_kernels_are_compiled_once),
        TEST(many_kernels_share_a_text),
        TEST(clear_removes_it),
        TEST(debug_keeps_sources),
        TEST(works_without_a_cache),
        TEST(damaged_files_are_built_again),
        TEST(a_damaged_index_is_made_anew),
        TEST(a_mapped_module_may_be_replaced),
        TEST(read_only_folder),
        TEST(folders_that_others_can_write_are_not_used),
        TEST(a_full_disk_costs_time_only),
        TEST(processes_at_once),
        TEST(killed_while_building),
        TEST(threads_at_once),
        TEST(a_changed_compiler_builds_anew),
        TEST(no_compiler),
        TEST(code_that_the_compiler_refuses),
        TEST(interrupted),
        TEST(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
