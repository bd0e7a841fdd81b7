/* A place to build in, for tests of builds and of the cache: a folder with its own cache, a compiler that counts its
 * runs, and two hand-written kernels with a module that runs them. */
#ifndef SOL_TEST_BUILD_PLACE_H
#define SOL_TEST_BUILD_PLACE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "build/build.h"
#include "rt/rt.h"

/* The compiler: a script that calls the real one. */
static const char script[] = "#!/bin/sh\n"
                             "case \"$*\" in *--version*) ;; *) echo \"$*\" >>\"%s/log\" ;; esac\n"
                             "%s\n"
                             "exec cc \"$@\"\n";

static const char *const helpers[] = {"#include <math.h>", "static inline float twice(float x) { return x + x; }"};
#define ENTRY "void @KERNEL_0(char *const *p, const struct sol_frame *f, int64_t task0, int64_t task1, int worker)\n"
#define BODY_0                                                          \
    "/* \"KERNEL_9\" in a string stays, as mine does */\n"              \
    "static const char *const @mine = \"KERNEL_9 mine\";\n" ENTRY "{\n" \
    "    for (int64_t i = task0; i < task1; i++)\n"                     \
    "        ((float *)p[1])[i] = twice(((const float *)p[0])[i]) + "   \
    "(@mine[6] == '_' && @mine[9] == 'm' && !@mine[13] ? 0 : 100);\n"   \
    "}\n"
#define BODY_1                                                                                          \
    ENTRY                                                                                               \
    "{\n"                                                                                               \
    "    for (int64_t i = task0; i < task1; i++)\n"                                                     \
    "        ((float *)p[2])[i] = sqrtf(twice(((const float *)p[0])[i])) + ((const float *)p[1])[i];\n" \
    "}\n"
static const struct source_text kernels[] = {{.body = BODY_0, .helper = helpers, .nhelper = 2},
                                             {.body = BODY_1, .helper = helpers, .nhelper = 2}};
static const char module_text[] =
    "static const struct sol_buffer buffers[] = {{SOL_BUFFER_INPUT, 0, 0, 16, 0}, {SOL_BUFFER_WORKSPACE, 0, 0, 16, "
    "0},\n"
    "    {SOL_BUFFER_CONST, 0, 0, 16, @DATA0}, {SOL_BUFFER_OUTPUT, 0, 0, 16, 0}};\n"
    "static const struct sol_operand places[] = {{0, 0}, {1, 0}, {1, 0}, {2, 0}, {3, 0}};\n"
    "static const struct sol_step steps[] = {{@KERNEL0_0, 4, 0, 2, \"twice KERNEL0_0\", 0, 0, SOL_STEP_KERNEL, 0},\n"
    "    {@KERNEL1_0, 4, 2, 3, \"root\", 0, 0, 0}};\n"
    "const struct sol_module sol_module = {sizeof(struct sol_module), SOL_MODULE_VERSION, 1, 1, 0, 4, buffers, 0, 0, "
    "0,\n"
    "    {0}, {2, 5, steps, places, 64, 0}, {0}};\n";
static const float datum[4] = {0.5f, 1.5f, 2.5f, 3.5f};

struct place { /* the folder, context and request of one test */
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

/* Installs a compiler that runs `extra` first. */
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
                                  .device = "x86",
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

/* How often the compiler ran since the last call. */
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

static int build_quietly(struct place *p)
{
    struct module m;
    if (try_build(p, &m)) return 1;
    const int wrong = run_module(m.table);
    module_close(&m);
    return wrong;
}

#endif
