/* Compares the number of instructions of kernels with earlier numbers (test/counts.txt). That detects a slow-down even
 * on a machine that is too busy for timing.
 *
 *   counts_test            compares; fails if a kernel takes more than MARGIN more instructions
 *   counts_test --renew    writes the counts to the table, for the current compiler
 *   counts_test --run      what runs under callgrind: every kernel once; nothing else is counted
 *
 * Networks of one kernel go through all of SOL, for a fictitious AVX2 processor (callgrind supports AVX2) with fixed
 * caches and rates, and the cost model alone chooses. So the text of kernels is the same on every machine. Only the
 * compiler differs, so the table has a number for each compiler. Whatever cannot be counted is skipped, by name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else /* counting is impossible, so the test is skipped */
#define CALLGRIND_START_INSTRUMENTATION
#define CALLGRIND_STOP_INSTRUMENTATION
#define CALLGRIND_ZERO_STATS
#define CALLGRIND_DUMP_STATS
#define WITHOUT_CALLGRIND
#endif

#include "build/build.h"
#include "compile/compile.h"

#define MARGIN 0.05
#define TABLE SOURCE_ROOT "/test/counts.txt"
enum { GOOD, FAILED, SKIPPED = 77, MOST = 64 };

static struct target made_up = {.name = "x86-64-v3",
                                .march = "x86-64-v3",
                                .vector_bytes = 32,
                                .simd = 8,
                                .registers = 16,
                                .fma = true,
                                .cores = 1,
                                .l1 = 32 << 10,
                                .l2 = 1 << 20,
                                .l3 = 16 << 20,
                                .clock = 3,
                                .fma_pipes = 2,
                                .l2_rate = 96,
                                .l3_rate = 40,
                                .dram_rate = 12};

static const struct kernel_row {
    const char *name, *key, *value; /* a configuration key and its value; NULL: none */
    const char *graph;
} kernels[] = {
    {"conv3x3", "precision", "high",
     "input %0:f32[1 32 16 16]\nparam %1:f32[32 32 3 3]\nparam %2:f32[32]\n%3 = Conv(%0, %1, %2) p=1 q=1\n"
     "%4 = relu(%3)\noutput %4"},
    {"winograd", NULL, NULL,
     "input %0:f32[1 32 16 16]\nparam %1:f32[32 32 3 3]\nparam %2:f32[32]\n%3 = Conv(%0, %1, %2) p=1 q=1\n"
     "%4 = relu(%3)\noutput %4"},
    {"winograd5x5", NULL, NULL,
     "input %0:f32[1 64 16 16]\nparam %1:f32[64 64 5 5]\n%2 = Conv(%0, %1) p=2 q=2\noutput %2"},
    {"winograd_dilated", NULL, NULL,
     "input %0:f32[1 32 16 16]\nparam %1:f32[32 32 3 3]\n%2 = Conv(%0, %1) d=2 p=2 q=2\noutput %2"},
    {"conv1x1", NULL, NULL,
     "input %0:f32[1 64 14 14]\nparam %1:f32[128 64 1 1]\nparam %2:f32[128]\n%3 = Conv(%0, %1, %2)\n"
     "%4 = relu(%3)\noutput %4"},
    {"conv3x3_stride2", NULL, NULL,
     "input %0:f32[1 32 15 15]\nparam %1:f32[64 32 3 3]\n%2 = Conv(%0, %1) s=2 p=1 q=1\noutput %2"},
    {"conv_grouped", NULL, NULL,
     "input %0:f32[1 128 14 14]\nparam %1:f32[128 8 3 3]\n%2 = Conv(%0, %1) g=16 p=1 q=1\noutput %2"},
    {"depthwise3x3", NULL, NULL,
     "input %0:f32[1 32 28 28]\nparam %1:f32[32 1 3 3]\n%2 = Conv(%0, %1) g=32 p=1 q=1\noutput %2"},
    {"depthwise5x5_stride2", NULL, NULL,
     "input %0:f32[1 32 28 28]\nparam %1:f32[32 1 5 5]\n%2 = Conv(%0, %1) g=32 s=2 p=2 q=2\noutput %2"},
    {"first_layer", NULL, NULL,
     "input %0:f32[1 3 48 48]\nparam %1:f32[32 3 7 7]\n%2 = Conv(%0, %1) s=2 p=3 q=3\n%3 = relu(%2)\noutput %3"},
    {"gemv", NULL, NULL,
     "input %0:f32[1 1024]\nparam %1:f32[256 1024]\nparam %2:f32[256]\n%3 = Linear(%0, %1, %2)\noutput %3"},
    {"linear", NULL, NULL,
     "input %0:f32[48 128]\nparam %1:f32[256 128]\nparam %2:f32[256]\n%3 = Linear(%0, %1, %2)\n%4 = relu(%3)\n"
     "output %4"},
    {"matmul", NULL, NULL, "input %0:f32[2 64 64]\ninput %1:f32[2 64 64]\n%2 = MatMul(%0, %1)\noutput %2"},
    {"softmax", NULL, NULL, "input %0:f32[64 512]\n%1 = Softmax(%0) axis=1\noutput %1"},
    {"layer_norm", NULL, NULL,
     "input %0:f32[64 512]\nparam %1:f32[512]\nparam %2:f32[512]\n%3 = LayerNorm(%0, %1, %2)\noutput %3"},
    {"batch_norm", NULL, NULL,
     "input %0:f32[2 64 14 14]\nparam %1:f32[64]\nparam %2:f32[64]\n%3, %4, %5 = BatchNormTrain(%0, %1, %2)\n"
     "output %3\noutput %4\noutput %5"},
    {"group_norm", NULL, NULL,
     "input %0:f32[1 64 14 14]\nparam %1:f32[64]\nparam %2:f32[64]\n%3 = GroupNorm(%0, %1, %2) g=8\noutput %3"},
    {"max_pool", NULL, NULL, "input %0:f32[1 64 28 28]\n%1 = MaxPool(%0) k=[3,3] s=2 p=1 q=1\noutput %1"},
    {"global_pool", NULL, NULL, "input %0:f32[1 512 28 28]\n%1 = Mean(%0) axes=[2,3]\noutput %1"},
    {"band", "bands", "always",
     "input %0:f32[1 24 14 14]\nparam %1:f32[144 24 1 1]\nparam %2:f32[144 1 3 3]\nparam %3:f32[24 144 1 1]\n"
     "%4 = Conv(%0, %1)\n%5 = relu(%4)\n%6 = Conv(%5, %2) g=144 p=1 q=1\n%7 = relu(%6)\n%8 = Conv(%7, %3)\n"
     "output %8"},
};

struct count { /* a row of the table */
    const char *kernel, *compiler, *solver;
    double instructions;
};
struct counts {
    int n;
    struct count at[2 * MOST];
};

/* -- what runs */

/* The solver and variant of the most expensive unit: "winograd F(4,3) group 28 12x1". */
static const char *solver_of(struct arena *a, const struct plan *p)
{
    const struct unit *most = NULL;
    for (int i = 0; i < p->units.n; i++) {
        const struct unit *u = p->units.at[i];
        if (u->dead || u->program != PROGRAM_FORWARD) continue;
        if (!most || u->kernel.cost > most->kernel.cost) most = u;
    }
    return arena_printf(a, "%s %s", most->kernel.solver, most->kernel.variant ? most->kernel.variant : "-");
}

struct net {
    struct tune_net n;
    struct trial_data data;
};

/* Creates a network and runs its `prepare`. */
static sol_status make(struct sol_ctx *ctx, struct arena *a, const struct kernel_row *row, struct net *out)
{
    struct sol_graph *g;
    TRY(sol_config_set(ctx, "precision", "default"));
    TRY(sol_config_set(ctx, "bands", "off"));
    if (row->key) TRY(sol_config_set(ctx, row->key, row->value));
    TRY(sol_graph_parse(ctx, row->graph, &g));
    const sol_status status = compile_for(g, &made_up, &out->n);
    sol_graph_destroy(g);
    TRY(status);
    const struct trial_data *d = &out->data;
    struct sol_net *net = out->n.net;
    if (!trial_data_make(a, net, &out->data)) return ctx_fail(ctx, SOL_ERR_NOMEM, "%s: no memory", row->name);
    TRY(trial_params(net, d, &out->n.params));
    return sol_net_run(net, out->n.params, d->inputs, d->outputs, 1);
}

/* Runs every kernel once. Callgrind writes a file for each. Starting callgrind is slow, so it starts only once. */
static sol_status run_all(struct sol_ctx *ctx, struct arena *a, struct counts *out)
{
    static struct net nets[COUNT_OF(kernels)];
    sol_status status = SOL_OK;
    out->n = COUNT_OF(kernels);
    for (int i = 0; i < out->n && !status; i++) {
        status = make(ctx, a, &kernels[i], &nets[i]);
        if (!status)
            out->at[i] = (struct count){.kernel = kernels[i].name, .solver = solver_of(a, nets[i].n.schedule->plan)};
    }
    CALLGRIND_START_INSTRUMENTATION;
    for (int i = 0; i < out->n && !status; i++) {
        CALLGRIND_ZERO_STATS;
        status = sol_net_run(nets[i].n.net, nets[i].n.params, nets[i].data.inputs, nets[i].data.outputs, 1);
        CALLGRIND_DUMP_STATS;
    }
    CALLGRIND_STOP_INSTRUMENTATION;
    for (int i = 0; i < out->n; i++)
        if (nets[i].n.arena) tune_net_free(&nets[i].n);
    return status;
}

/* -- counting */

/* "gcc-12" or "clang-14": counts are valid for one major version. */
static sol_status compiler_name(struct sol_ctx *ctx, struct arena *a, const char *cc, const char **out)
{
    struct process *p;
    int exit = 0;
    const char *text = "", *const argv[] = {cc, "-dM", "-E", "-x", "c", "/dev/null", NULL};
    TRY(process_start(ctx, argv, &p));
    sol_status status = process_wait(ctx, p, &exit, &text);
    const char *clang = strstr(text, "__clang_major__ "), *gcc = strstr(text, "__GNUC__ ");
    if (!status && (exit || (!clang && !gcc)))
        status = ctx_fail(ctx, SOL_ERR_COMPILER, "%s: expected to be gcc or clang, got: %.200s", cc, text);
    else if (!status)
        *out = arena_printf(a, "%s-%d", clang ? "clang" : "gcc", atoi(strchr(clang ? clang : gcc, ' ') + 1));
    process_free(ctx, p);
    return status;
}

/* Runs this program under callgrind, which writes FILE.1, FILE.2, .. */
static sol_status callgrind(struct sol_ctx *ctx, struct arena *a, const char *file)
{
    struct process *p;
    int exit = 0;
    const char *text = "";
    char self[1024] = "";
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return ctx_fail(ctx, SOL_ERR_IO, "no /proc/self/exe");
    const char *const argv[] = {"valgrind",
                                "--tool=callgrind",
                                "--instr-atstart=no",
                                arena_printf(a, "--callgrind-out-file=%s", file),
                                self,
                                "--run",
                                NULL};
    TRY(process_start(ctx, argv, &p));
    sol_status status = process_wait(ctx, p, &exit, &text);
    if (!status && exit) status = ctx_fail(ctx, SOL_ERR_RUN, "valgrind ended with %d: %s", exit, text);
    process_free(ctx, p);
    return status;
}

static sol_status read_counts(struct sol_ctx *ctx, struct arena *a, const char *file, struct counts *c)
{
    for (int i = 0; i < c->n; i++) {
        char *text;
        size_t bytes;
        const char *part = arena_printf(a, "%s.%d", file, i + 1);
        TRY(file_read(ctx, a, part, &text, &bytes));
        text[bytes] = 0;
        const char *at = strstr(text, "\nsummary: ");
        c->at[i].instructions = at ? atof(at + strlen("\nsummary: ")) : 0;
        if (c->at[i].instructions < 1000)
            return ctx_fail(ctx, SOL_ERR_RUN, "%s: callgrind has seen no call of it (%s)", c->at[i].kernel, part);
    }
    return SOL_OK;
}

static sol_status count_all(struct sol_ctx *ctx, struct arena *a, const char *compiler, struct counts *out)
{
    const char *folder = folder_temporary(a);
    if (!folder) return ctx_fail(ctx, SOL_ERR_IO, "no temporary folder");
    const char *file = arena_printf(a, "%s/counts", folder);
    sol_status status = run_all(ctx, a, out); /* runs here first, so that the cache has the compiled kernels */
    if (!status) status = callgrind(ctx, a, file);
    if (!status) status = read_counts(ctx, a, file, out);
    for (int i = 0; i < out->n; i++) out->at[i].compiler = compiler;
    folder_remove(folder);
    return status;
}

/* -- the table: kernel, compiler, instructions, solver; text after '#' is for people */

static sol_status read_table(struct sol_ctx *ctx, struct arena *a, struct counts *out)
{
    char *text;
    size_t bytes;
    out->n = 0;
    if (!file_exists(TABLE)) return SOL_OK;
    TRY(file_read(ctx, a, TABLE, &text, &bytes));
    text[bytes] = 0;
    for (char *line = text, *end; *line; line = end) {
        end = line + strcspn(line, "\n");
        if (*end) *end++ = 0;
        char kernel[64], compiler[64], solver[128];
        struct count *c = &out->at[out->n];
        if (*line == '#') continue;
        if (out->n == COUNT_OF(out->at) ||
            sscanf(line, "%63s %63s %lf %127[^\n]", kernel, compiler, &c->instructions, solver) != 4)
            return ctx_fail(ctx, SOL_ERR_INVALID, "%s: expected 'kernel compiler instructions solver', got '%s'", TABLE,
                            line);
        c->kernel = arena_strdup(a, kernel);
        c->compiler = arena_strdup(a, compiler);
        c->solver = arena_strdup(a, solver);
        out->n++;
    }
    return SOL_OK;
}

static void put_rows(struct text *t, const struct counts *c, const char *compiler, bool of_it)
{
    for (int i = 0; i < c->n; i++)
        if (!strcmp(c->at[i].compiler, compiler) == of_it)
            text_put(t, "%-21s %-9s %10.0f  %s\n", c->at[i].kernel, c->at[i].compiler, c->at[i].instructions,
                     c->at[i].solver);
}

static sol_status renew(struct sol_ctx *ctx, struct arena *a, const char *compiler, const struct counts *table,
                        const struct counts *now)
{
    struct text t = text_new(a);
    text_put(&t,
             "# Instructions of one run (AVX2), by compiler; test/counts_test.c says more. `make counts` writes it.\n");
    put_rows(&t, table, compiler, false);
    put_rows(&t, now, compiler, true);
    printf("%s: %d kernels by %s\n", TABLE, now->n, compiler);
    return file_write(ctx, TABLE, t.at, t.n);
}

static const struct count *find(const struct counts *c, const char *kernel, const char *compiler)
{
    for (int i = 0; i < c->n; i++)
        if ((!kernel || !strcmp(c->at[i].kernel, kernel)) && !strcmp(c->at[i].compiler, compiler)) return &c->at[i];
    return NULL;
}

static int compare(const struct counts *table, const struct counts *now, const char *compiler)
{
    int code = GOOD, gone = 0;
    for (int i = 0; i < table->n; i++) gone += !find(now, table->at[i].kernel, compiler);
    for (int i = 0; i < now->n; i++) {
        const struct count *c = &now->at[i], *was = find(table, c->kernel, compiler);
        const double ratio = was ? c->instructions / was->instructions : 0;
        const bool slower = ratio > 1 + MARGIN;
        printf("%-21s %10.0f  %s%s", c->kernel, c->instructions, c->solver, was ? "" : ": FAILED: it has no row");
        if (was) printf(": %+.1f %%%s", 100 * (ratio - 1), slower ? ": FAILED" : ratio < 1 - MARGIN ? ": faster" : "");
        if (was && strcmp(was->solver, c->solver)) printf(", was %s", was->solver);
        printf("\n");
        if (!was || slower) code = FAILED;
    }
    if (gone) printf("%s: FAILED: %d rows are of no kernel\n", TABLE, gone);
    if (code || gone) printf("If that is meant, `make counts` renews %s.\n", TABLE);
    return code || gone ? FAILED : GOOD;
}

static int skip_because(const char *why)
{
    printf("skipped: %s\n", why);
    return SKIPPED;
}

static int say(struct sol_ctx *ctx, sol_status status)
{
    if (status) printf("FAILED: %s\n", sol_error(ctx));
    return status ? FAILED : GOOD;
}

static int check(struct sol_ctx *ctx, struct arena *a, bool renews)
{
    static struct counts table, now;
    const char *compiler = "", *cc = ctx_config(ctx, "compiler::name");
    if (!strcmp(cc, "auto")) cc = "cc";
#ifdef WITHOUT_CALLGRIND
    return skip_because("it was built where there was no valgrind/callgrind.h (apt-get install valgrind)");
#endif
    if (!compiler_find_program(a, "valgrind")) return skip_because("there is no valgrind (apt-get install valgrind)");
    if (!compiler_find_program(a, cc)) return skip_because("there is no compiler cc (apt-get install gcc)");
    if (target_check(ctx, &made_up)) return skip_because(sol_error(ctx));
    sol_status status = sol_config_set(ctx, "compiler::name", cc);
    if (!status) status = compiler_name(ctx, a, cc, &compiler);
    if (!status) status = read_table(ctx, a, &table);
    if (!status && !renews && !find(&table, NULL, compiler))
        return skip_because(arena_printf(a, "%s has no counts by %s: `make counts` adds them", TABLE, compiler));
    if (!status) status = count_all(ctx, a, compiler, &now);
    if (!status && renews) status = renew(ctx, a, compiler, &table, &now);
    if (status || renews) return say(ctx, status);
    return compare(&table, &now, compiler);
}

int main(int argc, char **argv)
{
    static struct counts ran;
    struct sol_ctx *ctx;
    const char *what = argc > 1 ? argv[1] : "";
#ifdef __SANITIZE_ADDRESS__
    return skip_because("instrumented code and callgrind do not go together");
#endif
    if (sol_ctx_create(NULL, &ctx)) return FAILED;
    struct arena *a = arena_create(ctx);
    sol_config_set(ctx, "autotune", "off");
    sol_config_set(ctx, "log::level", "ERROR");
    made_up.device = device_named("x86"); /* also for the run under callgrind */
    const int code = !strcmp(what, "--run") ? say(ctx, run_all(ctx, a, &ran)) : check(ctx, a, !strcmp(what, "--renew"));
    arena_destroy(a);
    sol_ctx_destroy(ctx);
    return code;
}
