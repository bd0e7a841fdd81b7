/* The tuner: the file of wisdom, also damaged; networks that are tuned, interrupted and started again. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "passes/passes.h"
#include "tune/tune.h"

#define KEY_A "0123456789abcdef0123456789abcdef"
#define KEY_B "00000000000000000000000000000001"

struct place {
    char folder[64], file[80];
    struct sol_ctx *ctx;
    struct arena *a;
    int rounds;        /* progress reports of tuning */
    int tuned, judged; /* log lines about tuned networks; about judged candidates */
    bool stop;         /* interrupt when a candidate was judged */
};

static void on_log(void *user, int level, const char *line)
{
    struct place *p = user;
    (void)level;
    p->tuned += strstr(line, "Tuning: ") != NULL;
    p->judged += strstr(line, " us, cost ") != NULL;
}

static void on_progress(void *user, const char *what, int done, int total)
{
    struct place *p = user;
    (void)done, (void)total;
    p->rounds += what && !strncmp(what, "Tuning", 6);
}

static int interrupted(void *user)
{
    const struct place *p = user;
    return p->stop && p->judged;
}

static void use_folder(struct place *p, const char *folder)
{
    assert_int_equal(sol_config_set(p->ctx, "cache::folder", folder), SOL_OK);
    snprintf(p->file, sizeof p->file, "%s/wisdom", folder);
}

static int setup(void **state)
{
    struct place *p = calloc(1, sizeof *p);
    strcpy(p->folder, "/tmp/sol-tune-test-XXXXXX");
    assert_non_null(mkdtemp(p->folder));
    const struct sol_ctx_options o = {
        .size = sizeof o, .log = on_log, .progress = on_progress, .interrupted = interrupted, .user = p};
    assert_int_equal(sol_ctx_create(&o, &p->ctx), SOL_OK);
    use_folder(p, p->folder);
    p->a = arena_create(p->ctx);
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    struct place *p = *state;
    char command[160];
    snprintf(command, sizeof command, "chmod -R u+w '%s'; rm -rf '%s'", p->folder, p->folder);
    assert_int_equal(system(command), 0);
    arena_destroy(p->a);
    sol_ctx_destroy(p->ctx);
    free(p);
    return 0;
}

/* -- wisdom */

static void remember(struct place *p, const char *key, const char *variant, double ns, const char *what)
{
    struct wisdom *w = wisdom_load(p->ctx, p->a);
    wisdom_put(w, &(struct wisdom_entry){.key = key,
                                         .solver = "direct",
                                         .variant = variant,
                                         .ns = ns,
                                         .before_ns = 2000,
                                         .when = 1000,
                                         .machine = "a machine",
                                         .what = what,
                                         .ours = true});
    wisdom_save(p->ctx, w);
}

static const char *variant_of(struct place *p, const char *key)
{
    const struct wisdom_entry *e = wisdom_find(wisdom_load(p->ctx, p->a), key, "a machine");
    return e ? e->variant : NULL;
}

static void test_round_trip(void **state)
{
    struct place *p = *state;
    assert_null(variant_of(p, KEY_A));
    remember(p, KEY_A, "9x3 k512", 1000, "net:\ta layer\nof it");
    remember(p, KEY_B, "6x4", 500, "");
    remember(p, KEY_B, "14x2", 600, NULL);
    const struct wisdom_entry *e = wisdom_find(wisdom_load(p->ctx, p->a), KEY_A, "a machine");
    assert_string_equal(e->variant, "9x3 k512");
    assert_string_equal(e->solver, "direct");
    assert_string_equal(e->what, "net: a layer of it");
    assert_true(e->ns == 1000 && e->before_ns == 2000 && e->when == 1000);
    assert_string_equal(variant_of(p, KEY_B), "14x2"); /* the later one */
    char *text;
    assert_int_equal(sol_wisdom_print(p->ctx, &text), SOL_OK);
    assert_non_null(strstr(text, "9x3 k512"));
    assert_non_null(strstr(text, "2.00x"));
    sol_free(p->ctx, text);
    assert_int_equal(sol_wisdom_clear(p->ctx), SOL_OK);
    assert_int_equal(sol_wisdom_clear(p->ctx), SOL_OK);
    assert_null(variant_of(p, KEY_A));
}

/* Whatever byte is damaged, entries that are found are right, and the other line is found. */
static void test_damage(void **state)
{
    struct place *p = *state;
    char *text;
    size_t n;
    remember(p, KEY_A, "9x3 k512", 1000, "a");
    remember(p, KEY_B, "6x4", 500, "b");
    assert_int_equal(file_read(p->ctx, p->a, p->file, &text, &n), SOL_OK);
    const size_t second = (size_t)(strstr(text, KEY_B) - text);
    for (size_t i = 0; i < n; i++) {
        static const char with[] = {'\t', '\n', 0, 'x', '7', (char)0xff};
        char *copy = arena_memdup(p->a, text, n);
        copy[i] = with[i % sizeof with];
        assert_int_equal(file_write(p->ctx, p->file, copy, n), SOL_OK);
        const char *a = variant_of(p, KEY_A), *b = variant_of(p, KEY_B);
        assert_true(!a || !strcmp(a, "9x3 k512"));
        assert_true(!b || !strcmp(b, "6x4"));
        if (i >= second) assert_non_null(a);
        if (i >= strcspn(text, "\n") + 1 && i < second - 1) assert_non_null(b);
    }
    for (size_t i = 0; i < n; i++) { /* truncated */
        assert_int_equal(file_write(p->ctx, p->file, text, i), SOL_OK);
        assert_true((variant_of(p, KEY_A) != NULL) == (i >= second));
        assert_null(variant_of(p, KEY_B));
    }
    remember(p, KEY_B, "6x4", 500, "b"); /* writes the damaged file anew */
    assert_string_equal(variant_of(p, KEY_B), "6x4");
}

static void test_merge(void **state)
{
    struct place *p = *state;
    char other[80];
    int n;
    remember(p, KEY_A, "slow", 1000, "a");
    snprintf(other, sizeof other, "%s/other", p->folder);
    assert_int_equal(rename(p->file, other), 0);
    remember(p, KEY_A, "fast", 900, "a");
    remember(p, KEY_B, "6x4", 500, "b");
    assert_int_equal(sol_wisdom_merge(p->ctx, other, &n), SOL_OK);
    assert_int_equal(n, 0);
    assert_string_equal(variant_of(p, KEY_A), "fast");
    assert_int_equal(rename(p->file, other), 0);
    remember(p, KEY_A, "slow", 1000, "a");
    assert_int_equal(sol_wisdom_merge(p->ctx, other, &n), SOL_OK);
    assert_int_equal(n, 2);
    assert_string_equal(variant_of(p, KEY_A), "fast");
    assert_string_equal(variant_of(p, KEY_B), "6x4");
    assert_int_equal(file_write(p->ctx, other, "SOL wisdom 9\n", 13), SOL_OK);
    assert_int_equal(sol_wisdom_merge(p->ctx, other, &n), SOL_ERR_INVALID);
    assert_int_equal(sol_wisdom_merge(p->ctx, "/nowhere/at/all", &n), SOL_ERR_IO);
    assert_string_equal(variant_of(p, KEY_A), "fast");
}

/* Processes that save at the same time keep each other's entries. */
static void test_writers(void **state)
{
    enum { PROCESSES = 4, EACH = 12 };
    struct place *p = *state;
    for (int i = 0; i < PROCESSES; i++) {
        if (fork()) continue;
        for (int k = 0; k < EACH; k++) remember(p, arena_printf(p->a, "%032x", i * 100 + k), "6x4", 500, "b");
        _exit(0);
    }
    for (int i = 0, status; i < PROCESSES; i++) {
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    assert_int_equal(wisdom_load(p->ctx, p->a)->entries.n, PROCESSES * EACH);
}

/* Without a writable place nothing is stored, which is not an error. */
static void test_no_place(void **state)
{
    struct place *p = *state;
    setenv("TMPDIR", "/nowhere", 1);
    static const char *const folders[] = {"", "/nowhere/at/all", "/dev/null"};
    for (int i = 0; i < COUNT_OF(folders); i++) {
        use_folder(p, folders[i]);
        remember(p, KEY_A, "6x4", 500, "b");
        assert_null(variant_of(p, KEY_A));
    }
    use_folder(p, p->folder);
    assert_int_equal(mkdir(p->file, 0755), 0); /* a folder in place of the file */
    remember(p, KEY_A, "6x4", 500, "b");
    assert_null(variant_of(p, KEY_A));
    unsetenv("TMPDIR");
}

/* -- networks */

enum { C = 48, P = 56, ELEMENTS = C * P * P };
static const char graph[] =
    "graph \"t\"\ninput %0:f32[1 48 56 56] \"x\"\n"
    "param %1:f32[48 48 3 3] \"w\"\nparam %2:f32[96 48 1 1] \"v\"\nparam %3:f32[96 1 3 3] \"d\"\n"
    "param %4:f32[48 96 1 1] \"u\"\n"
    "%5 = Conv(%0, %1) p=1 q=1\n%6 = relu(%5)\n%7 = Conv(%6, %2)\n%8 = relu(%7)\n"
    "%9 = Conv(%8, %3) p=1 q=1 g=96\n%10 = relu(%9)\n%11 = Conv(%10, %4)\n%12 = add(%11, %0)\n"
    "output %12 \"y\"\n";

static float value(int i, int n)
{
    return (float)((i * 7 + n * 3) % 19 - 9) / 40;
}

/* Compiles and runs. The result belongs to the arena. */
static float *compile_and_run(struct place *p, sol_status expected)
{
    static const int sizes[] = {48 * 48 * 9, 96 * 48, 96 * 9, 48 * 96};
    struct sol_graph *g;
    struct sol_net *net = NULL;
    struct sol_params *params;
    if (sol_graph_parse(p->ctx, graph, &g)) fail_msg("%s", sol_error(p->ctx));
    const sol_status status = sol_compile(p->ctx, g, &net);
    if (status != expected) fail_msg("%d: %s", status, sol_error(p->ctx));
    sol_graph_destroy(g);
    if (status) return NULL;
    assert_int_equal(sol_params_create(net, &params), SOL_OK);
    float *x = NEW_ARRAY(p->a, float, ELEMENTS), *y = NEW_ARRAY(p->a, float, ELEMENTS);
    for (int i = 0; i < ELEMENTS; i++) x[i] = value(i, 9);
    for (int k = 0; k < COUNT_OF(sizes); k++) {
        float *w = NEW_ARRAY(p->a, float, sizes[k]);
        for (int i = 0; i < sizes[k]; i++) w[i] = value(i, k);
        sol_params_set(params, k, w);
    }
    const void *in[] = {x};
    void *out[] = {y};
    if (sol_net_run(net, params, in, out, 2)) fail_msg("%s", sol_error(p->ctx));
    sol_params_destroy(params);
    sol_net_destroy(net);
    return y;
}

static void expect_near(const float *a, const float *b)
{
    double most = 0, error = 0;
    for (int i = 0; i < ELEMENTS; i++) {
        most = fmax(most, fabs((double)a[i]));
        error = fmax(error, fabs((double)a[i] - (double)b[i]));
    }
    assert_true(most > 0.1 && error < 1e-4 * most); /* with or without Winograd */
}

/* The number of lines of wisdom about networks, or about kernels. */
static int lines(struct place *p, bool networks)
{
    int n = 0;
    const struct wisdom *w = wisdom_load(p->ctx, p->a);
    for (int i = 0; i < w->entries.n; i++) n += !strcmp(w->entries.at[i]->solver, "network") == networks;
    return n;
}

static void autotune(struct place *p, const char *value)
{
    assert_int_equal(sol_config_set(p->ctx, "autotune", value), SOL_OK);
}

static void test_off(void **state)
{
    struct place *p = *state;
    autotune(p, "off");
    compile_and_run(p, SOL_OK);
    assert_int_equal(p->rounds + p->tuned + lines(p, false) + lines(p, true), 0);
    autotune(p, "0"); /* no time for trials */
    compile_and_run(p, SOL_OK);
    assert_int_equal(p->rounds + p->tuned + lines(p, false), 0);
}

/* A network is tuned once and then keeps its choice. The result is the same for every choice. */
static void test_tuned(void **state)
{
    struct place *p = *state;
    autotune(p, "off");
    const float *by_cost = compile_and_run(p, SOL_OK);
    const float *tuned = NULL;
    for (int s = 3; !p->tuned && s < 200; s *= 2) { /* on a busy machine the first run may take all the time */
        char seconds[8];
        snprintf(seconds, sizeof seconds, "%d", s);
        autotune(p, seconds);
        tuned = compile_and_run(p, SOL_OK);
    }
    assert_int_equal(lines(p, true), 1);
    assert_int_equal(p->tuned, 1);
    assert_true(p->rounds > 0 && lines(p, false) > 0);
    expect_near(tuned, by_cost);
    const int rounds = p->rounds, kernels = lines(p, false);
    const float *again = compile_and_run(p, SOL_OK);
    assert_true(p->rounds == rounds && lines(p, false) == kernels && p->tuned == 1);
    assert_memory_equal(again, tuned, ELEMENTS * sizeof *tuned);
    autotune(p, "2"); /* it had more before */
    compile_and_run(p, SOL_OK);
    assert_int_equal(p->tuned, 1);
}

/* -- sizes that vary */

enum { MOST_IMAGES = 9, IMAGE = 32 * 20 * 20 };
static const char sized[] = "graph \"sized\"\ndim #0 \"batch\" hint=6 max=64\ninput %0:f32[#0 32 20 20] \"x\"\n"
                            "param %1:f32[32 32 3 3] \"w\"\nparam %2:f32[32 32 3 3] \"v\"\n"
                            "%3 = Conv(%0, %1) p=1 q=1\n%4 = relu(%3)\n%5 = Conv(%4, %2) p=1 q=1\n%6 = add(%5, %0)\n"
                            "output %6 \"y\"\n";

/* Compiles, and runs at some sizes with one thread and two; one result behind the other. */
static float *run_sizes(struct place *p)
{
    static const int64_t batches[] = {1, 2, 6, MOST_IMAGES};
    enum { WEIGHTS = 32 * 32 * 9 };
    struct sol_graph *g;
    struct sol_net *net = NULL;
    struct sol_params *params;
    float *x = NEW_ARRAY(p->a, float, MOST_IMAGES *IMAGE), *w = NEW_ARRAY(p->a, float, 2 * WEIGHTS);
    float *y = NEW_ARRAY(p->a, float, COUNT_OF(batches) * MOST_IMAGES * IMAGE);
    for (int i = 0; i < MOST_IMAGES * IMAGE; i++) x[i] = value(i, 9);
    for (int i = 0; i < 2 * WEIGHTS; i++) w[i] = value(i, 1);
    if (sol_graph_parse(p->ctx, sized, &g) || sol_compile(p->ctx, g, &net)) fail_msg("%s", sol_error(p->ctx));
    sol_graph_destroy(g);
    assert_int_equal(sol_params_create(net, &params), SOL_OK);
    for (int i = 0; i < 2; i++) sol_params_set(params, i, w + i * WEIGHTS);
    for (int i = 0; i < COUNT_OF(batches); i++) {
        const void *in[] = {x};
        float *one = NEW_ARRAY(p->a, float, MOST_IMAGES *IMAGE), *two = y + i * MOST_IMAGES * IMAGE;
        for (int threads = 1; threads <= 2; threads++) {
            void *out[] = {threads == 1 ? one : two};
            if (sol_net_run_at(
                    net, params,
                    &(struct sol_call){.dims = &batches[i], .inputs = in, .outputs = out, .threads = threads}))
                fail_msg("%s", sol_error(p->ctx));
        }
        assert_memory_equal(one, two, (size_t)batches[i] * IMAGE * sizeof *one);
    }
    sol_params_destroy(params);
    sol_net_destroy(net);
    return y;
}

/* A network whose sizes vary is tuned at its hints and where its versions are made for; results stay right. */
static void test_tuned_sizes(void **state)
{
    struct place *p = *state;
    autotune(p, "off");
    const float *by_cost = run_sizes(p), *tuned = NULL;
    for (int s = 3; !p->tuned && s < 200; s *= 2) {
        char seconds[8];
        snprintf(seconds, sizeof seconds, "%d", s);
        autotune(p, seconds);
        tuned = run_sizes(p);
    }
    assert_int_equal(p->tuned, 1);
    assert_int_equal(lines(p, true), 1);
    assert_true(lines(p, false) > 0);
    double most = 0;
    for (int i = 0; i < 4 * MOST_IMAGES * IMAGE; i++) {
        most = fmax(most, fabs((double)tuned[i]));
        assert_true(fabs((double)tuned[i] - (double)by_cost[i]) < 1e-3);
    }
    assert_true(most > 0.1);
    const float *again = run_sizes(p);
    assert_int_equal(p->tuned, 1);
    assert_memory_equal(again, tuned, 4 * MOST_IMAGES * IMAGE * sizeof *tuned);
}

/* An interrupt keeps what is known, and the next time continues. */
static void test_interrupted(void **state)
{
    struct place *p = *state;
    autotune(p, "30");
    assert_int_equal(sol_config_set(p->ctx, "log::level", "TRACE"), SOL_OK);
    p->stop = true;
    compile_and_run(p, SOL_ERR_INTERRUPTED);
    assert_true(lines(p, false) > 0);
    assert_int_equal(lines(p, true), 0);
    p->stop = false;
    autotune(p, "1");
    compile_and_run(p, SOL_OK);
    assert_int_equal(lines(p, true), 1);
}

/* -- policies */

struct planned {
    struct sol_graph *g;
    struct plan *p;
};

static struct planned plan(struct place *p, const char *text, const struct target *t,
                           const struct tuning_policy *policy)
{
    struct planned m;
    if (sol_graph_parse(p->ctx, text, &m.g) || passes_run(m.g) || plan_with_policy(m.g, p->a, t, policy, &m.p))
        fail_msg("%s", sol_error(p->ctx));
    return m;
}

static int pick_last(void *user, const struct choice *c)
{
    (void)user;
    return c->n - 1;
}

/* A policy's choice is used, or else the next best; an invalid choice is ignored. */
static void test_policy(void **state)
{
    static const char *const bands[] = {"auto", "off", "always"};
    struct place *p = *state;
    struct target t;
    target_host(&t);
    for (int i = 0; i < COUNT_OF(bands); i++) {
        sol_config_set(p->ctx, "bands", bands[i]);
        const struct tuning_policy last = {.pick = pick_last};
        struct planned m = plan(p, graph, &t, &last);
        for (int k = 0; k < m.p->units.n; k++) {
            const struct unit *u = m.p->units.at[k];
            if (!u->dead) assert_true(u->kernel.source && u->noperand > 0);
        }
        sol_graph_destroy(m.g);
    }
}

static bool to_choose(const struct unit *u)
{
    return !u->dead && u->contraction && u->program == PROGRAM_FORWARD && u->choice->n > 1;
}

static struct wisdom_policy *wisdom_policy_here(struct place *p, struct target *out)
{
    target_host(out);
    sol_config_set(p->ctx, "bands", "off");
    autotune(p, "fast");
    return wisdom_policy_make(p->ctx, p->a, out, NULL);
}

static struct wisdom_entry line_for(const struct choice *c, int candidate, const char *machine)
{
    return (struct wisdom_entry){.key = c->key,
                                 .solver = c->candidate[candidate].solver->name,
                                 .variant = c->candidate[candidate].variant.text,
                                 .ns = 1,
                                 .machine = machine,
                                 .what = "u",
                                 .ours = true};
}

/* A line of wisdom for a cluster decides how it is computed, on this machine and with these settings. */
static void test_choice_of_wisdom(void **state)
{
    struct place *p = *state;
    struct target t;
    struct wisdom_policy *wp = wisdom_policy_here(p, &t);
    struct planned m = plan(p, graph, &t, &wp->policy);
    struct wisdom *w = wisdom_load(p->ctx, p->a);
    int wanted = 0, done = 0;
    for (int k = 0; k < m.p->units.n; k++) {
        const struct unit *u = m.p->units.at[k];
        if (!to_choose(u)) continue;
        const struct wisdom_entry here = line_for(u->choice, 1, wp->machine), there = line_for(u->choice, 0, "another");
        wanted++;
        wisdom_put(w, &here);
        wisdom_put(w, &there);
    }
    wisdom_save(p->ctx, w);
    wp = wisdom_policy_make(p->ctx, p->a, &t, NULL);
    struct planned n = plan(p, graph, &t, &wp->policy);
    for (int k = 0; k < n.p->units.n; k++)
        if (to_choose(n.p->units.at[k])) done += n.p->units.at[k]->choice->chosen == 1;
    assert_true(wanted >= 3);
    assert_int_equal(done, wanted);
    autotune(p, "off");
    assert_null(wisdom_policy_make(p->ctx, p->a, &t, NULL));
    sol_graph_destroy(m.g);
    sol_graph_destroy(n.g);
}

/* Built-in wisdom applies to every machine of its kind, unless costs contradict it or this machine has a
 * measurement. */
static void test_shipped(void **state)
{
    struct place *p = *state;
    struct target t;
    struct wisdom_policy *wp = wisdom_policy_here(p, &t);
    struct planned m = plan(p, graph, &t, NULL);
    const struct choice *own = NULL;
    for (int k = 0; k < m.p->units.n; k++) {
        const struct unit *u = m.p->units.at[k];
        if (!to_choose(u)) continue;
        const struct wisdom_entry shipped = line_for(u->choice, u->choice->n - 1, wp->kind);
        wisdom_put(wp->shipped, &shipped);
        if (!own) {
            own = u->choice;
            const struct wisdom_entry here = line_for(own, 1, wp->machine);
            wisdom_put(wp->wisdom, &here);
        }
    }
    struct planned n = plan(p, graph, &t, &wp->policy);
    int near = 0, far = 0;
    for (int k = 0; k < n.p->units.n; k++) {
        const struct unit *u = n.p->units.at[k];
        if (!to_choose(u)) continue;
        const struct choice *c = u->choice;
        const bool doubtful = c->candidate[c->n - 1].variant.cost > 1.3 * c->candidate[0].variant.cost;
        const int picked = !strcmp(c->key, own->key) ? 1 : doubtful ? -1 : c->n - 1;
        assert_int_equal(wp->policy.pick(wp->policy.user, c), picked);
        near += !doubtful;
        far += doubtful;
        if (picked >= 0) assert_int_equal(c->chosen, picked);
    }
    assert_true(near + far >= 3 && far > 0);
    sol_graph_destroy(m.g);
    sol_graph_destroy(n.g);
}

extern const struct {
    const char *name, *text;
} wisdom_texts[];

/* Every line of built-in wisdom is complete, applies to a kind of machine, and is unique. */
static void test_shipped_lines(void **state)
{
    struct place *p = *state;
    const struct wisdom *w = wisdom_shipped(p->ctx, p->a);
    int n = 0;
    for (int i = 0; wisdom_texts[i].text; i++) {
        for (const char *c = wisdom_texts[i].text; *c; c++) n += *c == '\n';
        n--; /* the first line is the header */
    }
    assert_int_equal(w->entries.n, n);
    for (int i = 0; i < w->entries.n; i++) {
        assert_null(strchr(w->entries.at[i]->machine, '\t'));
        assert_string_equal(w->entries.at[i]->machine, machine_kind(p->a, w->entries.at[i]->machine));
        assert_string_not_equal(w->entries.at[i]->solver, "network");
    }
    char *text;
    assert_int_equal(sol_wisdom_print(p->ctx, &text), SOL_OK);
    assert_int_equal(strstr(text, " known from elsewhere") != NULL, n > 0);
    assert_true(!n || strstr(text, w->entries.at[0]->from)); /* and where it was measured */
    sol_free(p->ctx, text);
    assert_int_equal(sol_config_set(p->ctx, "wisdom", "own"), SOL_OK);
    assert_int_equal(wisdom_shipped(p->ctx, p->a)->entries.n, 0);
    assert_string_equal(machine_kind(p->a, "x86 64B, AMD EPYC 1a0021, L2 1024K, 2 threads"), "x86 64B");
    assert_string_equal(machine_kind(p->a, "x86 16B no fma, A, L2 1K, 2 threads, no Winograd"),
                        "x86 16B no fma, no Winograd");
}

/* The graph of a block: expand, depthwise, project, with the given channels and pixels. */
static const char *block(struct place *p, int channels, int pixels)
{
    const int wide = 3 * channels;
    return arena_printf(p->a,
                        "graph \"b\"\ninput %%0:f32[1 %d %d %d] \"x\"\nparam %%1:f32[%d %d 1 1] \"e\"\n"
                        "param %%2:f32[%d 1 3 3] \"d\"\nparam %%3:f32[%d %d 1 1] \"p\"\n%%4 = Conv(%%0, %%1)\n"
                        "%%5 = Conv(%%4, %%2) p=1 q=1 g=%d\n%%6 = Conv(%%5, %%3)\noutput %%6 \"y\"\n",
                        channels, pixels, pixels, wide, channels, wide, channels, wide, wide);
}

/* If the tensors in between are larger than all caches, three units form one band, which is compared with all three
 * units. */
static void test_band_of_three(void **state)
{
    struct place *p = *state;
    struct target t;
    assert_int_equal(target_named(p->ctx, "x86-64-v3", &t), SOL_OK);
    struct planned m = plan(p, block(p, 24, 384), &t, NULL);
    int three = 0;
    for (int i = 0; i < m.p->chains.n; i++) {
        const struct choice *c = m.p->chains.at[i].choice;
        three += m.p->chains.at[i].n == 3 && c->candidate[c->chosen].variant.p[1] == 3;
    }
    assert_int_equal(three, 1);
    sol_graph_destroy(m.g);
}

static int pick_apart(void *user, const struct choice *c)
{
    (void)user;
    for (int i = 0; i < c->n; i++)
        if (!strcmp(c->candidate[i].solver->name, "band") && c->candidate[i].variant.p[0] < 0) return i;
    return -1;
}

/* A band over blocks of channels has blocks of whole vectors, or does not exist. */
static void test_blocks_are_vectors(void **state)
{
    struct place *p = *state;
    struct target t;
    assert_int_equal(target_named(p->ctx, "x86-64-v4", &t), SOL_OK);
    for (int odd = 0; odd < 2; odd++) { /* 3 * 64 = 192 channels, or 3 * 58 = 174, which no vector length divides */
        const struct tuning_policy apart = {.pick = pick_apart}; /* each unit is asked for what begins with it */
        struct planned m = plan(p, block(p, odd ? 58 : 64, 14), &t, &apart);
        int blocks = 0;
        for (int i = 0; i < m.p->chains.n; i++) {
            const struct choice *c = m.p->chains.at[i].choice;
            for (int k = 0; k < c->n; k++) blocks += c->candidate[k].variant.p[0] == 1;
        }
        assert_int_equal(blocks > 0, !odd);
        sol_graph_destroy(m.g);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(round_trip),    TEST(damage),           TEST(merge),
        TEST(writers),       TEST(no_place),         TEST(off),
        TEST(tuned),         TEST(tuned_sizes),      TEST(interrupted),
        TEST(policy),        TEST(choice_of_wisdom), TEST(shipped),
        TEST(shipped_lines), TEST(band_of_three),    TEST(blocks_are_vectors),
    };
    return cmocka_run_group_tests_name("tune", tests, NULL, NULL);
}
