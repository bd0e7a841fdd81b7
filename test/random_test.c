/* Random graphs, compiled and run, against the interpreter (test/random). Without arguments: a fixed set of seeds, made
 * for a minute. A failing graph is shrunk and printed, with the command that repeats it. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "random/graphs.h"

static const char usage[] =
    "usage: random_test [options]\n"
    "  --seeds N       N graphs (5)\n"
    "  --first N       the first seed (1)\n"
    "  --parts N       independent parts of a graph (30)\n"
    "  --with A,B      settings of the compiler, each for every seed: auto nest v2 v3 v4 dfp direct matmul gemv "
    "winograd bands\n"
    "                  v3bands nobands high clang joint jointbands; without it, auto and one of nest, v2, v3, bands, "
    "joint in turn\n"
    "  --set K=V,K=V   keys of the configuration, for all settings\n"
    "  --graph FILE    a graph from a file instead, on random data of --seeds seeds\n"
    "  --print         prints the graph of the first seed, and does nothing else\n"
    "  --seconds N     no new graph after that time\n"
    "  --no-shrink     failing graphs stay as they are\n"
    "  --stats         how often each recipe worked\n";

struct options {
    int seeds, first, parts, seconds;
    const char *with, *graph, *set;
    bool print, shrink, stats;
};

static bool read_options(int argc, char **argv, struct options *o)
{
    *o = (struct options){.seeds = 5, .first = 1, .parts = 30, .seconds = 1 << 30, .shrink = true};
    const char *few = getenv("SOL_RANDOM_SEEDS"); /* fewer in slow builds */
    if (few) o->seeds = atoi(few);
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "0";
        struct {
            const char *name;
            int *number;
        } numbers[] = {
            {"--seeds", &o->seeds}, {"--first", &o->first}, {"--parts", &o->parts}, {"--seconds", &o->seconds}};
        bool found = false;
        for (int k = 0; k < COUNT_OF(numbers); k++)
            if (!strcmp(argv[i], numbers[k].name)) *numbers[k].number = atoi(value), found = true;
        if (!strcmp(argv[i], "--with")) o->with = value, found = true;
        if (!strcmp(argv[i], "--set")) o->set = value, found = true;
        if (!strcmp(argv[i], "--graph")) o->graph = value, found = true;
        i += found;
        if (!strcmp(argv[i], "--print")) o->print = found = true;
        if (!strcmp(argv[i], "--stats")) o->stats = found = true;
        if (!strcmp(argv[i], "--no-shrink")) found = true, o->shrink = false;
        if (!found) return false;
    }
    return true;
}

/* The graph of a seed, or of the file. NULL: it cannot be made. */
static struct gen *make(struct sol_ctx *ctx, const struct options *o, int seed)
{
    if (!o->graph) {
        struct gen *r = gen_create(ctx, (uint64_t)seed);
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

/* One seed with all its settings; the number of failures. Runs in a process of its own. */
static int check_seed(struct sol_ctx *ctx, const struct options *o, int seed)
{
    char list[200], *save = NULL;
    int failures = 0;
    struct gen *r = make(ctx, o, seed);
    if (!r) return 1;
    list_settings(o, seed, list, sizeof list);
    for (char *name = strtok_r(list, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
        const struct setting *s = setting_named(name);
        if (!s) {
            fprintf(stderr, "there is no setting '%s'\n", name);
            exit(2);
        }
        fflush(stdout);
        pid_t child = fork();
        if (!child) {
            const char *why = "";
            struct value *bad = NULL;
            alarm(300);
            bool good = check_graph(r, s, &why, &bad);
            const struct sol_layer *at = bad ? bad->t->from : NULL;
            if (!good) printf("seed %d, %s: %s %s: %s\n", seed, name, at ? at->def->name : "", at ? at->name : "", why);
            fflush(stdout);
            _exit(good ? 0 : 1);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (!status) continue;
        failures++;
        if (WIFSIGNALED(status)) printf("seed %d, %s: signal %d\n", seed, name, WTERMSIG(status));
        printf("# to repeat: random_test --first %d --seeds 1 --parts %d --with %s\n", seed, o->parts, name);
        if (o->shrink) check_shrink(r, s, stdout);
        fflush(stdout);
    }
    if (o->stats) recipes_report(stdout);
    gen_destroy(r);
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
    for (; seed < o.first + o.seeds && time(NULL) - start < o.seconds; seed++) failures += check_seed(ctx, &o, seed);
    printf("%d graphs, %d failures, %d s\n", seed - o.first, failures, (int)(time(NULL) - start));
    sol_ctx_destroy(ctx);
    return failures != 0;
}
