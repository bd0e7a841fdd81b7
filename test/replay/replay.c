/* Prints what SOL generates for a graph: a hash of every kernel's C text and of the module's tables, for several
 * targets and settings. Two commits with equal hashes generate the same code; `make replay` compares them
 * (tools/replay.py). No C compiler runs. The cost model alone chooses, for fictitious processors, so hashes do not
 * depend on the machine.
 *
 *   replay [--setting NAME].. [--text] [--verify] FILE    the text form of a graph (docs/text-form.md)
 *   replay --settings                         lists the settings
 *
 * --verify checks every graph and plan between its phases. A line `# gradients of 0 2 with 1 5` in the file requests
 * the gradients of outputs 0 and 2 with respect to parameters 1 and 5, `# gradients of all` those of all outputs with
 * respect to all inputs and parameters. The output has these lines, with --text each followed by its text:
 *
 *   ==== setting NAME
 *   ==== kernel HASH label of its first step
 *   ==== module HASH                          its tables
 *   ==== data HASH                            its constants
 *   ==== rejected: MESSAGE                    instead of the others */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compile/compile.h"
#include "passes/passes.h"
#include "schedule/schedule.h"

static const struct setting {
    const char *name, *target, *key, *value;
} settings[] = {
    {"avx2", "x86-64-v3", NULL, NULL},
    {"avx512", "x86-64-v4", NULL, NULL},
    {"neon", "neon", NULL, NULL},
    {"sse2", "x86-64-v2", NULL, NULL},
    {"no bands", "x86-64-v3", "bands", "off"},
    {"all bands", "x86-64-v3", "bands", "always"},
    {"nest", "x86-64-v3", "solver", "nest"},
    {"dfp", "x86-64-v3", "solver", "dfp"},
    {"high", "x86-64-v3", "precision", "high"},
    {"small", "x86-64-v3", "memory", "small"},
};
enum { CORES = 4 }; /* for the cost model, on any machine */

struct options {
    const char *file;
    bool text, verify;
    uint32_t settings; /* bits by number; 0: all */
};

static void say(const struct options *o, const char *what, const struct hash *h, const char *label, const char *text)
{
    char hex[33];
    hash_hex(h, hex);
    printf("==== %s %s%s%s\n", what, hex, *label ? " " : "", label);
    if (o->text) fputs(text, stdout);
}

static void say_text(const struct options *o, const char *what, const char *label, const char *text)
{
    struct hash h;
    hash_init(&h);
    hash_text(&h, text);
    say(o, what, &h, label, text);
}

/* -- one graph */

static int numbers(char **at, int *out, int room)
{
    int n = 0;
    for (char *end; n < room; *at = end, n++) {
        const long v = strtol(*at, &end, 10);
        if (end == *at) break;
        out[n] = (int)v;
    }
    return n;
}

static bool is_float(const struct sol_tensor *t)
{
    return dtype_def((enum sol_dtype)t->dtype)->is_float;
}

static sol_status differentiate_all(struct sol_graph *g)
{
    const int most = g->inputs.n + g->params.n;
    int nof = 0, nwith = 0, *of = NEW_ARRAY(g->arena, int, g->outputs.n + 1);
    struct sol_tensor **with = NEW_ARRAY(g->arena, struct sol_tensor *, most + 1);
    for (int i = 0; i < g->outputs.n; i++)
        if (is_float(g->outputs.at[i].t)) of[nof++] = i;
    for (int i = 0; i < most; i++) {
        struct sol_tensor *t = i < g->inputs.n ? g->inputs.at[i] : g->params.at[i - g->inputs.n];
        if (is_float(t)) with[nwith++] = t;
    }
    return sol_graph_differentiate(g, nof, of, nwith, with, NEW_ARRAY(g->arena, int, most + 1));
}

/* Appends the gradients that the text requests. */
static sol_status differentiate(struct sol_graph *g, char *text)
{
    static const char head[] = "# gradients of ", middle[] = " with ";
    char *at = strstr(text, head);
    if (!at) return SOL_OK;
    at += strlen(head);
    if (!strncmp(at, "all", 3)) return differentiate_all(g);
    int *of = NEW_ARRAY(g->arena, int, g->outputs.n + 1), *with = NEW_ARRAY(g->arena, int, g->params.n + 1);
    const int nof = numbers(&at, of, g->outputs.n);
    if (strncmp(at, middle, strlen(middle)) != 0)
        return ctx_fail(g->ctx, SOL_ERR_INVALID, "expected '%sN.. %s N..', got '%.40s'", head, middle, at);
    at += strlen(middle);
    const int nwith = numbers(&at, with, g->params.n);
    struct sol_tensor **params = NEW_ARRAY(g->arena, struct sol_tensor *, nwith + 1);
    for (int i = 0; i < nwith; i++) {
        if (with[i] < 0 || with[i] >= g->params.n)
            return ctx_fail(g->ctx, SOL_ERR_INVALID, "%s: expected a parameter below %d, got %d", head, g->params.n,
                            with[i]);
        params[i] = g->params.at[with[i]];
    }
    return sol_graph_differentiate(g, nof, of, nwith, params, NEW_ARRAY(g->arena, int, nwith + 1));
}

static const char *label_of(const struct schedule *s, int kernel)
{
    for (int k = 0; k < PROGRAMS; k++)
        for (int i = 0; i < s->program[k].steps.n; i++)
            if (s->program[k].steps.at[i].kernel == kernel) return s->program[k].steps.at[i].label;
    return "";
}

static void show(const struct options *o, const struct schedule *s)
{
    struct hash data;
    hash_init(&data);
    for (int i = 0; i < s->kernels.n; i++)
        say_text(o, "kernel", label_of(s, i), kernel_source(s->arena, &s->kernels.at[i], "KERNEL"));
    say_text(o, "module", "", schedule_module_text(s, "replay", NULL));
    for (int i = 0; i < s->constants.n; i++)
        hash_add(&data, s->constants.at[i]->data, (size_t)tensor_bytes(s->constants.at[i]));
    say(o, "data", &data, "", "");
}

static sol_status generate(const struct options *o, const struct setting *with, struct sol_graph *g, struct arena *a)
{
    struct target target;
    struct compile_memory memory;
    struct plan *plan;
    struct schedule *schedule;
    TRY(target_named(g->ctx, with->target, &target));
    target.cores = CORES;
    TRY(compile_keep(g, &target, &memory));
    TRY(passes_run(g));
    TRY(plan_make(g, a, &target, &plan));
    TRY(schedule_make(plan, &schedule));
    show(o, schedule);
    return ctx_check(g->ctx);
}

static sol_status read_graph(struct sol_ctx *ctx, struct arena *a, const char *path, struct sol_graph **out_g)
{
    char *text;
    size_t bytes;
    TRY(file_read(ctx, a, path, &text, &bytes));
    TRY(sol_graph_parse(ctx, text, out_g));
    return differentiate(*out_g, text);
}

/* Passes change the graph, so each setting parses it again. */
static sol_status replay_in(struct sol_ctx *ctx, const struct options *o, const struct setting *with)
{
    struct sol_graph *g = NULL;
    struct arena *a = arena_create(ctx);
    if (!a) return ctx_check(ctx);
    sol_status status = read_graph(ctx, a, o->file, &g);
    if (!status) status = generate(o, with, g, a);
    sol_graph_destroy(g);
    arena_destroy(a);
    return status;
}

static bool replay(const struct options *o, const struct setting *with)
{
    struct sol_ctx *ctx;
    if (sol_ctx_create(NULL, &ctx)) return false;
    sol_status status = sol_config_set(ctx, "log::level", "ERROR");
    if (!status) status = sol_config_set(ctx, "training::memory", "balanced");
    if (!status && o->verify) status = sol_config_set(ctx, "compiler::verify", "1");
    if (!status && with->key) status = sol_config_set(ctx, with->key, with->value);
    printf("==== setting %s\n", with->name);
    fflush(stdout); /* in case the process crashes */
    if (!status) status = replay_in(ctx, o, with);
    if (status) printf("==== rejected: %.*s\n", (int)strcspn(sol_error(ctx), "\n"), sol_error(ctx));
    sol_ctx_destroy(ctx);
    return true;
}

static bool add_setting(struct options *o, const char *name)
{
    for (int i = 0; i < COUNT_OF(settings); i++) {
        if (strcmp(name, settings[i].name) != 0) continue;
        o->settings |= 1u << i;
        return true;
    }
    return false;
}

static bool read_options(int argc, char **argv, struct options *o)
{
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--text"))
            o->text = true;
        else if (!strcmp(argv[i], "--verify"))
            o->verify = true;
        else if (!strcmp(argv[i], "--setting") && i + 1 < argc && add_setting(o, argv[i + 1]))
            i++;
        else if (!o->file && argv[i][0] != '-')
            o->file = argv[i];
        else
            return false;
    }
    return o->file != NULL;
}

int main(int argc, char **argv)
{
    struct options o = {0};
    if (argc == 2 && !strcmp(argv[1], "--settings")) {
        for (int i = 0; i < COUNT_OF(settings); i++) puts(settings[i].name);
        return 0;
    }
    if (!read_options(argc, argv, &o)) {
        fprintf(stderr, "usage: replay [--setting NAME].. [--text] [--verify] FILE, or replay --settings\n");
        return 2;
    }
    bool good = true;
    for (int i = 0; i < COUNT_OF(settings); i++)
        if (!o.settings || o.settings >> i & 1) good &= replay(&o, &settings[i]);
    return !good;
}
