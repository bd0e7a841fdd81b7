/* Plans as text. test/plan/NAME.txt has cases: a graph, a phase of the planner, and the plan after it.
 *
 *   == what the case shows
 *   phase layout              of src/plan/phases.def
 *   set bands off             (optional) a key of the configuration
 *   graph "t"                 docs/text-form.md; all passes run first
 *   ...
 *   -->
 *   plan "t" for x86-64-v3 after layout
 *   ...
 *
 * SOL_UPDATE=1 writes the actual results to the files, for you to judge. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "passes/passes.h"
#include "plan/plan.h"

#define FOLDER SOURCE_ROOT "/test/plan"
#define ARROW "-->\n"

static struct sol_ctx *ctx;

static sol_status plan_text(struct arena *a, struct sol_graph *g, int phase, const char **out_text)
{
    struct target target;
    struct plan *p;
    struct text t = text_new(a);
    TRY(target_named(ctx, "x86-64-v3", &target));
    target_usual(&target);
    TRY(passes_run(g));
    TRY(plan_start(g, a, &target, NULL, &p));
    TRY(plan_run(p, (enum plan_phase)phase));
    plan_show(p, &t);
    *out_text = t.at;
    return ctx_check(ctx);
}

static int phase_named(const char *name)
{
    for (int i = 0; i < PLAN_PHASES; i++)
        if (!strcmp(plan_phase_name(i, NULL), name)) return i;
    fail_msg("no phase is called '%s'", name);
    return -1;
}

/* The result of a case, whose head ends with the graph. */
static const char *run_case(struct arena *a, const char *path, char *head)
{
    char phase[40] = "", key[40] = "", value[40] = "";
    const char *text = NULL, *graph = strstr(head, "\ngraph "), *line = strchr(head, '\n');
    if (!graph || !line || sscanf(line + 1, "phase %39s", phase) != 1)
        fail_msg("%s: expected a phase and a graph: %s", path, head);
    const char *set = strstr(line, "\nset ");
    if (set && set < graph) sscanf(set, "\nset %39s %39s", key, value);
    struct sol_graph *g = NULL;
    sol_status status = *key ? sol_config_set(ctx, key, value) : SOL_OK;
    if (!status) status = sol_graph_parse(ctx, graph + 1, &g);
    if (status) fail_msg("%s: %s", path, sol_error(ctx));
    if (plan_text(a, g, phase_named(phase), &text)) fail_msg("%s: %s\n%s", path, sol_error(ctx), head);
    sol_graph_destroy(g);
    if (*key) assert_int_equal(sol_config_set(ctx, key, "auto"), SOL_OK);
    return text;
}

static void run_file(struct arena *a, const char *path)
{
    char *all;
    size_t n;
    const bool update = getenv("SOL_UPDATE");
    struct text out = text_new(a);
    if (file_read(ctx, a, path, &all, &n)) fail_msg("%s", sol_error(ctx));
    for (char *at = all, *next; at; at = next) {
        next = strstr(at, "\n== ");
        if (next) *next++ = 0;
        char *want = strstr(at, ARROW);
        if (strncmp(at, "== ", 3) != 0) { /* text ahead of the first case */
            text_put(&out, "%s\n", at);
            continue;
        }
        if (!want) fail_msg("%s: expected '-->' in: %s", path, at);
        char *head = arena_printf(a, "%.*s", (int)(want - at), at);
        want += strlen(ARROW);
        const char *got = run_case(a, path, head);
        text_put(&out, "%s" ARROW "%s%s", head, got, next ? "\n" : "");
        const size_t size = strlen(want), have = strlen(got); /* a blank line may separate cases */
        if (!update && (strncmp(got, want, have) != 0 || size > have + 1))
            fail_msg("%s: expected\n%s\ngot\n%s", head, want, got);
    }
    if (update && file_write(ctx, path, out.at, out.n)) fail_msg("%s", sol_error(ctx));
}

static void test_texts(void **state)
{
    (void)state;
    DIR *folder = opendir(FOLDER);
    int files = 0;
    assert_non_null(folder);
    for (struct dirent *e; (e = readdir(folder));) {
        if (!strstr(e->d_name, ".txt")) continue;
        struct arena *a = arena_create(ctx);
        run_file(a, arena_printf(a, FOLDER "/%s", e->d_name));
        arena_destroy(a);
        files++;
    }
    closedir(folder);
    assert_true(files > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts)};
    if (sol_ctx_create(NULL, &ctx)) return 1;
    int bad = sol_config_set(ctx, "compiler::verify", "1") || cmocka_run_group_tests(tests, NULL, NULL);
    sol_ctx_destroy(ctx);
    return bad;
}
