/* Build: hand-written kernels are compiled, cached, linked and run. The compiler may be missing, change, reject the
 * code, write garbage, crash or hang. */
#include "build_place.h"

#include <signal.h>

#include "fail_alloc.h"

/* -- the normal case */

static void builds_and_then_only_maps(void **state)
{
    struct place *p = *state;
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 4); /* two kernels, the module, the link */
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 0);
    sol_ctx_destroy(p->ctx); /* as if in a new process */
    p->ctx = new_context(p);
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 0);
    /* no temporary files are left */
    shell("test -z \"$(ls '%s' | grep -v -e x86 -e facts -e CACHEDIR.TAG)\"", p->cache);
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
    const struct source_text four[] = {kernels[0], kernels[1], kernels[1], kernels[0]};
    p->r.kernel = four;
    p->r.nkernel = 4;
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 4);
}

static void many_kernels_share_a_text(void **state)
{
    struct place *p = *state;
    char text[16][1024];
    struct source_text list[16] = {kernels[0], kernels[1]};
    for (int i = 2; i < 16; i++) {
        snprintf(text[i], sizeof text[i], "%s/* %d */\n", kernels[1].body, i);
        list[i] = (struct source_text){.body = text[i], .helper = helpers, .nhelper = 2};
    }
    p->r.kernel = list;
    p->r.nkernel = 16;
    build_and_run(p);
    assert_in_range(compiler_runs(p), 4, 8);
    /* Equal names that each kernel declares for itself do not clash. */
    for (int i = 0; i < 16; i++) {
        snprintf(text[i], sizeof text[i],
                 "enum { @SIZE = %d };\ntypedef int @real;\n#define @VALUE %d\nstatic @real @own(int x);\n"
                 "static @real @own(int x) { return x + @SIZE == @VALUE; }\n%s"
                 "static const int @table[2] = {@SIZE};\nstatic const int *@KERNELS = &@table[0];\n",
                 i, i, kernels[i > 0].body);
        list[i] = (struct source_text){.body = text[i], .helper = helpers, .nhelper = 2};
    }
    build_and_run(p);
    assert_in_range(compiler_runs(p), 4, 8);
    /* If names clash, each kernel is compiled alone. */
    for (int i = 0; i < 16; i++) {
        snprintf(text[i], sizeof text[i], "static int not_marked = %d;\n%s", i, kernels[i > 0].body);
        list[i] = (struct source_text){.body = text[i], .helper = helpers, .nhelper = 2};
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
    shell("grep -q sol_module '%s'/x86/source/test_net_sol_m_*.c", p->cache);
    shell("rm '%s'/x86/source/*", p->cache); /* sources are written again although the kernels are cached */
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

/* A daemon also ignores its children. */
static void children_that_nobody_waits_for(void **state)
{
    struct place *p = *state;
    void (*before)(int) = signal(SIGCHLD, SIG_IGN);
    const int wrong = build_quietly(p);
    signal(SIGCHLD, before);
    assert_int_equal(wrong, 0);
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
    p->r.flag = "-mprefer-vector-width=512";
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
    setenv("PATH", p->folder, 1); /* cached kernels need no compiler */
    build_and_run(p);
    p->r.flag = "-mprefer-vector-width=512";
    expect_error(p, SOL_ERR_COMPILER, (const char *[]){"cc, gcc, clang", NULL});
    setenv("PATH", path, 1);
    free(path);
}

static void code_that_the_compiler_rejects(void **state)
{
    struct place *p = *state;
    const struct source_text bad[] = {kernels[0], {.body = "void @KERNEL_0(void)\n{\n    here_is_an_error;\n}\n"}};
    p->r.kernel = bad;
    expect_error(p, SOL_ERR_COMPILER, (const char *[]){"test net", "here_is_an_error", "/x86/source/rejected_", NULL});
    shell("grep -q 'here_is_an_error;' '%s'/x86/source/rejected_*", p->cache);
    shell("grep -q 'error: .*here_is_an_error' '%s'/x86/source/rejected_*", p->cache); /* what the compiler said */
    p->r.kernel = kernels;
    p->r.module = "const struct sol_module sol_module = {@KERNEL7_0};";
    expect_error(p, SOL_ERR_INTERNAL, (const char *[]){"KERNEL7_0", NULL});
    p->r.module = "const struct sol_module sol_module = {1, SOL_MODULE_VERSION};";
    expect_error(p, SOL_ERR_INTERNAL, (const char *[]){"sol_module", NULL});
}

/* Failures of a compiler: a line of shell that runs while the file `wrong` exists, and a word of the error. */
static const struct {
    const char *line, *word;
} wrongs[] = {
    {"exit 3", "exit code 3"},
    {"kill -9 $$", "killed by signal 9"},
    {"exit 0", "cannot link"}, /* no message and no output */
    {"yes nonsense | head -c 3000000; exit 1", "nonsense"},
    {"while [ $# -gt 1 ]; do [ \"$1\" = -o ] && echo rubbish >\"$2\"; shift; done; exit 0", "cannot map"},
    {"case \"$*\" in *-shared*) kill -11 $$ ;; esac", "killed by signal 11"},
};

/* The texts in the library are those of the tree, byte by byte: a change of them rebuilds it. */
static void headers_are_those_of_the_tree(void **state)
{
    static const char *const files[][2] = {{NULL, SOURCE_ROOT "/include/sol/module.h"},
                                           {"sol/module.h", SOURCE_ROOT "/include/sol/module.h"},
                                           {"sol/opencl.h", SOURCE_ROOT "/src/build/opencl.cl"},
                                           {"sol/cuda.h", SOURCE_ROOT "/src/build/cuda.cu"},
                                           {"sol/cuda_clang.h", SOURCE_ROOT "/src/build/cuda_clang.cu"}};
    (void)state;
    for (int i = 0; i < COUNT_OF(files); i++) {
        static char text[1 << 16];
        FILE *f = fopen(files[i][1], "r");
        assert_non_null(f);
        text[fread(text, 1, sizeof text - 1, f)] = 0;
        fclose(f);
        assert_string_equal(source_header(files[i][0]), text);
    }
}

/* A failure leaves nothing behind: when the same compiler works again, its results are right. */
static sol_status reject(void *user, const char *text, const void **out_data, size_t *out_bytes)
{
    *out_data = *text == 'l' ? "line 1: what is this?\nline 99: the end" : NULL;
    *out_bytes = 0;
    return ctx_fail(user, SOL_ERR_COMPILER, "line 1: what is %s", text);
}

/* The source that a device's compiler rejects is kept. */
static void code_that_a_device_rejects(void **state)
{
    struct place *p = *state;
    struct code_blob blob;
    struct arena *a = arena_create(p->ctx);
    const struct code_request r = {
        .device = "opencl", .arch = "one", .extension = "cl", .make = reject, .user = p->ctx};
    assert_int_equal(build_code(p->ctx, a, &r, "here_is_an_error", &blob), SOL_ERR_COMPILER);
    const char *kept = strstr(sol_error(p->ctx), "line 1: what is here_is_an_error\nThe source, with all that the "
                                                 "compiler said at its end, is kept in /");
    assert_non_null(kept);
    assert_non_null(strstr(kept, "/opencl/source/rejected_"));
    shell("grep -q '^here_is_an_error' '%s'/opencl/source/rejected_*.cl", p->cache);
    shell("grep -q '^line 1: what is here' '%s'/opencl/source/rejected_*.cl", p->cache);
    assert_int_equal(build_code(p->ctx, a, &r, "long", &blob), SOL_ERR_COMPILER);
    assert_null(strstr(sol_error(p->ctx), "line 99")); /* the file has it */
    shell("grep -q '^line 99: the end' '%s'/opencl/source/rejected_*.cl", p->cache);
    arena_destroy(a);
}

/* The code is its text. */
static sol_status keep_text(void *user, const char *text, const void **out_data, size_t *out_bytes)
{
    int *made = user;
    ++*made;
    *out_data = text;
    *out_bytes = strlen(text) + 1;
    return SOL_OK;
}

/* Builds the kernels of these letters, and checks that each is in the code that it is said to be in. */
static void build_letters(struct place *p, const struct code_request *r, const char *letters, int made, int blobs)
{
    struct arena *a = arena_create(p->ctx);
    struct source_text kernel[8];
    struct code_kernels found;
    const int n = (int)strlen(letters);
    for (int i = 0; i < n; i++)
        kernel[i] = (struct source_text){
            .header = "sol/opencl.h", .body = arena_printf(a, "kernel void @KERNEL_0() { letter_%c(); }", letters[i])};
    assert_int_equal(build_kernels(p->ctx, a, r, n, kernel, &found), SOL_OK);
    assert_int_equal(found.made, made);
    assert_int_equal(found.blobs.n, blobs);
    for (int i = 0; i < n; i++) {
        const struct code_kernel *k = &found.kernel[i];
        const char *text = found.blobs.at[k->blob].data;
        const char *at = strstr(text, arena_printf(a, "kernel void %s_0() { letter_%c(); }", k->symbol, letters[i]));
        assert_non_null(at);
    }
    arena_destroy(a);
}

/* Networks share code of kernels: what is missing becomes one text, and is found by each of its kernels. */
static void kernels_of_a_device(void **state)
{
    struct place *p = *state;
    int made = 0;
    struct code_request r = {.device = "opencl", .arch = "one", .extension = "cl", .make = keep_text, .user = &made};
    build_letters(p, &r, "", 0, 0);
    build_letters(p, &r, "ab", 2, 1);
    build_letters(p, &r, "bacb", 1, 2);
    build_letters(p, &r, "cab", 0, 2);
    build_letters(p, &r, "c", 0, 1);
    assert_int_equal(made, 2);
    r.arch = "another";
    build_letters(p, &r, "cc", 1, 1);
    assert_int_equal(made, 3);
}

static void compilers_that_fail(void **state)
{
    struct place *p = *state;
    char flag[96], line[512];
    snprintf(flag, sizeof flag, "%s/wrong", p->folder);
    for (int i = 0; i < COUNT_OF(wrongs); i++) {
        struct module m;
        snprintf(line, sizeof line, "case \"$*\" in *--version*) ;; *) if [ -e '%s' ]; then %s; fi ;; esac", flag,
                 wrongs[i].line);
        make_compiler(p, line);
        write_file(flag, "", 0644);
        assert_int_not_equal(try_build(p, &m), SOL_OK);
        if (!strstr(sol_error(p->ctx), wrongs[i].word))
            fail_msg("%s: '%s' is not in: %s", wrongs[i].line, wrongs[i].word, sol_error(p->ctx));
        unlink(flag);
        assert_int_equal(build_quietly(p), 0);
    }
    make_compiler(p, "exit 7");
    expect_error(p, SOL_ERR_COMPILER, (const char *[]){"'--version' failed (exit code 7)", "compiler::name", NULL});
}

/* gcc's "internal compiler error": other flags may avoid it. */
static void compilers_that_crash(void **state)
{
    struct place *p = *state;
    static const char *const flags[] = {"-fno-tree-forwprop", "-fno-tree-forwprop -O0", "-never"};
    for (int i = 0; i < COUNT_OF(flags); i++) {
        char line[256];
        snprintf(
            line, sizeof line,
            "case \"$*\" in *--version*|*-shared*|*'%s'*) ;; *) echo 'internal compiler error: in f'; exit 1 ;; esac",
            flags[i]);
        make_compiler(p, line);
        if (i < 2)
            build_and_run(p);
        else
            expect_error(p, SOL_ERR_COMPILER, (const char *[]){"internal compiler error: in f", "rejected_", NULL});
    }
}

static int stop_after(void *user)
{
    return --*(int *)user < 0;
}

static void interrupted(void **state)
{
    struct place *p = *state;
    int calls = 20;
    char folder[80];
    snprintf(folder, sizeof folder, "%s/t", p->folder);
    mkdir(folder, 0700);
    setenv("TMPDIR", folder, 1);
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
    shell("rmdir '%s'", folder); /* no temporary files are left */
    unsetenv("TMPDIR");
}

/* Each allocation of a build fails in turn: there is an error, no leak, and the cache stays valid. */
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
        TEST(children_that_nobody_waits_for),
        TEST(a_changed_compiler_builds_anew),
        TEST(no_compiler),
        TEST(code_that_the_compiler_rejects),
        TEST(headers_are_those_of_the_tree),
        TEST(code_that_a_device_rejects),
        TEST(kernels_of_a_device),
        TEST(compilers_that_fail),
        TEST(compilers_that_crash),
        TEST(interrupted),
        TEST(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
