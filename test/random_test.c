/* Random graphs, compiled and run, compared with the interpreter (test/random). Without arguments it runs the graphs of
 * random/cases.sol, which failed in the past, and a fixed set of seeds that takes a minute. A failing graph is shrunk
 * and printed with the command that repeats it. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "random/graphs.h"

static const char usage[] =
    "usage: random_test [options]\n"
    "  --seeds N       N graphs (3)\n"
    "  --first N       the first seed (1)\n"
    "  --parts N       independent parts of a graph (30)\n"
    "  --with A,B      settings of the compiler, each for every seed: auto nest v2 v3 v4 dfp direct matmul gemv "
    "winograd bands\n"
    "                  v3bands nobands high clang joint jointbands; without it, auto and one of nest, v2, v3, bands, "
    "joint in turn\n"
    "  --set K=V,K=V   keys of the configuration, for all settings\n"
    "  --graph FILE    a graph from a file instead, on random data of --seeds seeds\n"
    "  --single        nothing is float64\n"
    "  --rows N        N graphs that have every row of layers.def between them (0)\n"
    "  --cases FILE    each graph of a file (# with A,B in front of a graph: its settings) instead\n"
    "  --print         prints the graph of the first seed, and does nothing else\n"
    "  --seconds N     no new graph after that time\n"
    "  --no-shrink     failing graphs stay as they are\n"
    "  --stats         how often each recipe worked\n";

struct options {
    int seeds, first, parts, seconds, rows;
    const char *with, *graph, *set, *cases;
    bool print, shrink, stats, single;
};

static bool read_options(int argc, char **argv, struct options *o)
{
    *o = (struct options){.cases = argc < 2 ? SOURCE_ROOT "/test/random/cases.sol" : NULL,
                          .rows = argc < 2 ? 4 : 0,
                          .seeds = 3,
                          .first = 1,
                          .parts = 30,
                          .seconds = 1 << 30,
                          .shrink = true};
    const char *few = getenv("SOL_RANDOM_SEEDS"); /* fewer in slow builds */
    if (few) o->seeds = atoi(few);
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "0";
        struct {
            const char *name;
            int *number;
        } numbers[] = {{"--seeds", &o->seeds},
                       {"--first", &o->first},
                       {"--parts", &o->parts},
                       {"--seconds", &o->seconds},
                       {"--rows", &o->rows}};
        bool found = false;
        for (int k = 0; k < COUNT_OF(numbers); k++)
            if (!strcmp(argv[i], numbers[k].name)) *numbers[k].number = atoi(value), found = true;
        if (!strcmp(argv[i], "--with")) o->with = value, found = true;
        if (!strcmp(argv[i], "--cases")) o->cases = value, o->seeds = 0, found = true;
        if (!strcmp(argv[i], "--set")) o->set = value, found = true;
        if (!strcmp(argv[i], "--graph")) o->graph = value, found = true;
        i += found;
        if (!strcmp(argv[i], "--print")) o->print = found = true;
        if (!strcmp(argv[i], "--stats")) o->stats = found = true;
        if (!strcmp(argv[i], "--single")) o->single = found = true;
        if (!strcmp(argv[i], "--no-shrink")) found = true, o->shrink = false;
        if (!found) return false;
    }
    return true;
}

/* The graph of a seed, or of the file. NULL: it cannot be created. */
static struct gen *make(struct sol_ctx *ctx, const struct options *o, int seed)
{
    if (!o->graph) {
        struct gen *r = gen_create(ctx, (uint64_t)seed);
        r->single = o->single;
        recipes_graph(r, o->parts);
        return r;
    }
    struct arena *a = arena_create(ctx);
    char *text;
    size_t n;
    struct gen *r = NULL;
    if (file_read(ctx, a, o->graph, &text, &n) || !(r = gen_parse(ctx, text, (uint64_t)seed)))
        fprintf(stderr, "%s: %s\n", o->graph, sol_error(ctx));
    arena_destroy(a);
    return r;
}

static void list_settings(const struct options *o, int seed, char *out, size_t room)
{
    static const char *const turns[] = {"nest", "v3", "v2", "bands", "joint"};
    if (o->with)
        snprintf(out, room, "%s", o->with);
    else
        snprintf(out, room, "auto,%s", turns[seed % COUNT_OF(turns)]);
}

/* Checks one graph with one setting, in its own process. */
static bool check_one(struct gen *r, const struct setting *s, const struct options *o, const char *label,
                      const char *repeat)
{
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        const char *why = "";
        struct value *bad = NULL;
        alarm(300);
        bool good = check_graph(r, s, &why, &bad);
        const struct sol_layer *at = bad ? bad->t->from : NULL;
        if (!good) printf("%s, %s: %s %s: %s\n", label, s->name, at ? at->def->name : "", at ? at->name : "", why);
        fflush(stdout);
        _exit(good ? 0 : 2 + MIN(check_number(r, bad), 200));
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (!status) return true;
    if (WIFSIGNALED(status)) printf("%s, %s: signal %d\n", label, s->name, WTERMSIG(status));
    printf("# to repeat: random_test %s --with %s\n", repeat, s->name);
    if (o->shrink) check_shrink(r, s, WIFEXITED(status) ? WEXITSTATUS(status) - 2 : -1, stdout);
    fflush(stdout);
    return false;
}

/* Checks one graph with all its settings. Returns the number of failures. */
static int check_settings(struct gen *r, char *list, const struct options *o, const char *label, const char *repeat)
{
    int failures = 0;
    char *save = NULL;
    for (char *name = strtok_r(list, ", \n", &save); name; name = strtok_r(NULL, ", \n", &save)) {
        const struct setting *s = setting_named(name);
        if (!s) {
            fprintf(stderr, "there is no setting '%s'\n", name);
            exit(2);
        }
        failures += !check_one(r, s, o, label, repeat);
    }
    return failures;
}

static int check_seed(struct sol_ctx *ctx, const struct options *o, int seed)
{
    char list[200], label[40], repeat[300];
    struct gen *r = make(ctx, o, seed);
    if (!r) return 1;
    list_settings(o, seed, list, sizeof list);
    snprintf(label, sizeof label, "seed %d", seed);
    snprintf(repeat, sizeof repeat, "--first %d --seeds 1 --parts %d%s%s", seed, o->parts, o->graph ? " --graph " : "",
             o->graph ? o->graph : "");
    int failures = check_settings(r, list, o, label, repeat);
    if (o->stats) recipes_report(stdout);
    gen_destroy(r);
    return failures;
}

/* Checks graphs that together contain every row of layers.def. */
static int check_rows(struct sol_ctx *ctx, const struct options *o)
{
    int failures = 0;
    for (int part = 0; part < o->rows; part++) {
        char list[200], label[40], repeat[40];
        struct gen *r = gen_create(ctx, (uint64_t)(o->first + part));
        r->single = o->single;
        recipes_rows(r, part, o->rows, stdout, &failures);
        snprintf(list, sizeof list, "%s", o->with ? o->with : "auto");
        snprintf(label, sizeof label, "rows %d of %d", part, o->rows);
        snprintf(repeat, sizeof repeat, "--first %d --rows %d", o->first, o->rows);
        failures += check_settings(r, list, o, label, repeat);
        gen_destroy(r);
    }
    return failures;
}

/* Checks the graphs of a file. A comment ahead of a graph names its settings. */
static int check_cases(struct sol_ctx *ctx, const struct options *o, int *out_n)
{
    static const char start[] = "# with ", first[] = "graph \"";
    struct arena *a = arena_create(ctx);
    char *text, *next;
    size_t n;
    int failures = 0;
    if (file_read(ctx, a, o->cases, &text, &n)) {
        fprintf(stderr, "%s\n", sol_error(ctx));
        failures = 1;
        text = NULL;
    }
    for (char *at = text ? strstr(text, start) : NULL; at; at = next, ++*out_n) {
        char *graph = strstr(at, first), *list = at + strlen(start);
        next = strstr(list, start);
        if (next) next[-1] = 0;
        list = arena_printf(a, "%.*s", (int)strcspn(list, "\n"), list);
        if (o->with) list = arena_strdup(a, o->with);
        struct gen *r = graph ? gen_parse(ctx, graph, 1) : NULL;
        if (!r) fprintf(stderr, "%s: %.200s: %s\n", o->cases, at, sol_error(ctx));
        const char *label = graph ? arena_printf(a, "%.*s", (int)strcspn(graph, "\n"), graph) : "";
        failures += !r || check_settings(r, list, o, label, arena_printf(a, "--cases %s", o->cases)) != 0;
        gen_destroy(r);
    }
    arena_destroy(a);
    return failures;
}

static bool set_keys(struct sol_ctx *ctx, const char *text)
{
    char list[400], *save = NULL;
    snprintf(list, sizeof list, "%s", text ? text : "");
    for (char *key = strtok_r(list, ",", &save); key; key = strtok_r(NULL, ",", &save)) {
        char *value = strchr(key, '=');
        if (value) *value++ = 0;
        if (value && !sol_config_set(ctx, key, value)) continue;
        fprintf(stderr, "--set %s: %s\n", key, value ? sol_error(ctx) : "KEY=VALUE is expected");
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct options o;
    struct sol_ctx *ctx;
    if (!read_options(argc, argv, &o)) {
        fputs(usage, stderr);
        return 2;
    }
    if (sol_ctx_create(NULL, &ctx)) return 2;
    if (!set_keys(ctx, o.set)) return 2;
    int failures = recipes_missing(stderr);
    time_t start = time(NULL);
    int seed = o.first;
    if (o.print) {
        struct gen *r = make(ctx, &o, o.first);
        char *text;
        if (r && !sol_graph_print(r->g, &text)) {
            fputs(text, stdout);
            sol_free(ctx, text);
        }
        gen_destroy(r);
        o.seeds = 0;
    }
    int cases = 0;
    if (o.cases) failures += check_cases(ctx, &o, &cases);
    if (o.rows) failures += check_rows(ctx, &o);
    for (; seed < o.first + o.seeds && time(NULL) - start < o.seconds; seed++) failures += check_seed(ctx, &o, seed);
    printf("%d cases and %d random graphs, %d failures, %d s\n", cases, seed - o.first, failures,
           (int)(time(NULL) - start));
    sol_ctx_destroy(ctx);
    return failures != 0;
}
