/* The command `sol`: code common to all subcommands. Options are a table; the row of a subcommand lists its options. */
#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

const char cli_name[] = "sol";
static volatile sig_atomic_t stopped;

static void on_interrupt(int number)
{
    stopped = 1;
    signal(number, SIG_DFL); /* a second interrupt ends the process immediately */
}

bool cli_stopped(void)
{
    return stopped;
}

static int interrupted(void *user)
{
    (void)user;
    return stopped;
}

int cli_fail(struct cli *c, sol_status status)
{
    int code = status == SOL_ERR_INVALID || status == SOL_ERR_UNSUPPORTED ? EXIT_REJECTED : EXIT_FAILED;
    return cli_error(code, "%s", sol_error(c->ctx));
}

/* -- the tables */

enum takes { NOTHING, PAIR, NUMBER, TEXT_VALUE, REAL_VALUE };
enum place {
    INPUT,
    FIX,
    EXPECTED,
    DIM,
    CONFIG,
    THREADS,
    ROUNDS,
    OUTPUT_DIR,
    SEED,
    RTOL,
    ATOL,
    RANDOM,
    LAYERS,
    DEVICES,
    DEVICE,
    MEMORY,
    PROFILE,
    VERBOSE,
    TARGET,
    FOLDER,
    DARG,
    KEYS
};
static const struct option_row {
    const char *name;
    enum place place;
    enum takes takes;
    const char *value, *doc;
} option_rows[] = {
    {"--input", INPUT, TEXT_VALUE, "[NAME=]FILE",
     "an input, .npy or .pb; without names, files follow the model's order"},
    {"--random", RANDOM, NOTHING, "", "uses random data for missing inputs"},
    {"--seed", SEED, NUMBER, "N", "seed of the random data (1)"},
    {"--output-dir", OUTPUT_DIR, TEXT_VALUE, "FOLDER", "writes each output as FOLDER/NAME.npy"},
    {"--expected", EXPECTED, TEXT_VALUE, "[NAME=]FILE", "the expected value of an output"},
    {"--rtol", RTOL, REAL_VALUE, "X", "relative tolerance (1e-3)"},
    {"--atol", ATOL, REAL_VALUE, "X", "absolute tolerance (1e-5)"},
    {"--rounds", ROUNDS, NUMBER, "N", "number of measured runs (20)"},
    {"--memory", MEMORY, NOTHING, "", "compiles, and prints the memory of a run"},
    {"--profile", PROFILE, NOTHING, "", "also measures each kernel, and prints a table, slowest first"},
    {"--layers", LAYERS, NOTHING, "", "lists the layers of SOL's graphs, and exits"},
    {"--devices", DEVICES, NOTHING, "", "lists the devices, those that are not there with the reason, and exits"},
    {"--device", DEVICE, TEXT_VALUE, "TYPE[:INDEX]", "the device to run on (key device)"},
    {"--dim", DIM, PAIR, "NAME=SIZE",
     "size of an open dimension, by its name or INPUT.AXIS, or limits, 1..64; deploy: also several sizes, 1,8"},
    {"--fix", FIX, PAIR, "NAME=FILE", "fixes the value of an input; shapes may depend on it"},
    {"--threads", THREADS, NUMBER, "N", "maximum number of threads (0: one for each processor)"},
    {"-t", TARGET, TEXT_VALUE, "TARGET", "shared_lib, static_lib or source"},
    {"-o", FOLDER, TEXT_VALUE, "FOLDER", "output folder, the same as --darg path=FOLDER"},
    {"--darg", DARG, PAIR, "KEY=VALUE", "sets a key of the deployment; `sol deploy --keys` lists them"},
    {"--keys", KEYS, NOTHING, "", "lists the keys of a deployment, and exits"},
    {"--config", CONFIG, PAIR, "KEY=VALUE", "sets a configuration key; `sol config` lists them"},
    {"--verbose", VERBOSE, NOTHING, "", "prints more messages"},
};
#define BIT(p) (1u << (p))
#define COMMON (BIT(CONFIG) | BIT(VERBOSE) | BIT(DEVICE))
#define MODEL (COMMON | BIT(DIM) | BIT(FIX))
static const struct command {
    const char *name, *arguments, *doc;
    int (*run)(struct cli *c);
    unsigned options;
    int least, most; /* number of arguments */
} commands[] = {
    {"info", "NET.onnx", "lists inputs, outputs, operators, parameters and operations of a model", cmd_info,
     MODEL | BIT(LAYERS) | BIT(DEVICES) | BIT(MEMORY) | BIT(INPUT), 0, 1},
    {"compile", "NET.onnx", "compiles a model into the cache", cmd_compile, MODEL | BIT(INPUT) | BIT(THREADS), 1, 1},
    {"run", "NET.onnx", "runs a model", cmd_run,
     MODEL | BIT(INPUT) | BIT(RANDOM) | BIT(SEED) | BIT(OUTPUT_DIR) | BIT(THREADS), 1, 1},
    {"verify", "NET.onnx [FOLDER..]", "compares outputs with expected values; a FOLDER has input_0.pb, output_0.pb, ..",
     cmd_verify, MODEL | BIT(INPUT) | BIT(EXPECTED) | BIT(RTOL) | BIT(ATOL) | BIT(THREADS), 1, MOST_ITEMS},
    {"bench", "NET.onnx", "measures runs: median, minimum, and time to the first result", cmd_bench,
     MODEL | BIT(INPUT) | BIT(ROUNDS) | BIT(SEED) | BIT(THREADS) | BIT(PROFILE), 1, 1},
    {"deploy", "NET.onnx", "makes a C library from a model, or its source (default: -t shared_lib -o .)", cmd_deploy,
     MODEL | BIT(INPUT) | BIT(TARGET) | BIT(FOLDER) | BIT(DARG) | BIT(KEYS), 0, 1},
    {"cache", "[clear]", "prints the folder of the cache, or empties the cache", cmd_cache, COMMON, 0, 1},
    {"wisdom", "[clear|merge FILE..]", "lists the tuning results of this machine, deletes them, or adds those of files",
     cmd_wisdom, COMMON, 0, MOST_ITEMS},
    {"config", "", "lists the configuration keys", cmd_config, COMMON, 0, 0},
    {"doctor", "", "checks this machine: what works, what is missing, and how to install it", cmd_doctor, COMMON, 0, 0},
};
#define COUNT(a) (sizeof(a) / sizeof *(a))

#define EXIT_CODES "Exit codes: 0 success, 1 outputs differ, 2 usage error, 3 model rejected, 4 failure.\n"

static void help(FILE *to)
{
    fprintf(to, "Usage: sol COMMAND [ARGUMENTS] [OPTIONS]\n\nCompiles neural networks to C code and runs them.\n\n");
    for (size_t i = 0; i < COUNT(commands); i++)
        fprintf(to, "  %-8s %-20s %s\n", commands[i].name, commands[i].arguments, commands[i].doc);
    fprintf(to, "\n`sol COMMAND --help` lists a command's options; see also `man sol`.\n" EXIT_CODES);
}

static bool is_help(const char *text)
{
    return !strcmp(text, "--help") || !strcmp(text, "-h");
}

static void help_command(const struct command *k)
{
    printf("Usage: sol %s%s%s [OPTIONS]\n\n%c%s.\n\n", k->name, *k->arguments ? " " : "", k->arguments,
           toupper(k->doc[0]), k->doc + 1);
    for (size_t i = 0; i < COUNT(option_rows); i++) {
        const struct option_row *o = &option_rows[i];
        if (!(k->options & BIT(o->place))) continue;
        char left[64];
        snprintf(left, sizeof left, "%s %s", o->name, o->value);
        printf("  %-26s %s\n", left, o->doc);
    }
    printf("\n" EXIT_CODES);
}

/* -- reading the command line */

static int add_pair(const struct option_row *row, struct pair *list, int *n, char *text)
{
    char *equals = strchr(text, '=');
    if (equals ? equals == text || !equals[1] : !*text)
        return cli_error(EXIT_USAGE, "%s %s: expected %s", row->name, text, row->value);
    if (*n == MOST_ITEMS) return cli_error(EXIT_USAGE, "%s: more than %d", row->name, MOST_ITEMS);
    if (equals) *equals = 0;
    for (int i = 0; i < *n && equals; i++)
        if (list[i].name && !strcmp(list[i].name, text))
            return cli_error(EXIT_USAGE, "%s %s: given twice", row->name, text);
    list[(*n)++] = (struct pair){equals ? text : NULL, equals ? equals + 1 : text};
    return EXIT_GOOD;
}

/* `what` and `text` are as given: "--dim batch=" and "two". */
static int number(const char *what, const char *text, long long least, long long most, long long *out)
{
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 10);
    if (errno || end == text || *end || *out < least || *out > most)
        return cli_error(EXIT_USAGE, "%s%s: expected a whole number from %lld to %lld", what, text, least, most);
    return EXIT_GOOD;
}

/* Reads several sizes, "1,8,32", of the dimension that is added. Modifies the text. */
static int add_sizes(struct options *o, const char *what, char *text)
{
    if (o->nsizes) return cli_error(EXIT_USAGE, "--dim: only one dimension has several sizes");
    for (char *at = text, *comma; at; at = comma) {
        long long n;
        if ((comma = strchr(at, ','))) *comma++ = 0;
        if (o->nsizes == MOST_ITEMS) return cli_error(EXIT_USAGE, "%s: more than %d sizes", what, MOST_ITEMS);
        const int code = number(what, at, 1, (long long)1 << 47, &n);
        if (code) return code;
        o->sizes[o->nsizes++] = n;
    }
    o->sized = o->ndims - 1;
    return EXIT_GOOD;
}

/* Reads limits, "1..64" or "1..", of a dimension that varies. */
static int add_limits(struct options *o, const char *what, const char *name, char *text)
{
    long long low = 0, high = 0;
    char *dots = strstr(text, "..");
    if (o->nlimits == MOST_DIMS) return cli_error(EXIT_USAGE, "%s: more than %d dimensions", what, MOST_DIMS);
    *dots = 0;
    int code = number(what, text, 0, INT32_MAX, &low);
    if (!code && dots[2]) code = number(what, dots + 2, low, INT32_MAX, &high);
    o->limits[o->nlimits++] = (struct sol_onnx_limits){name, {.min = low, .max = high, .multiple = 1}};
    return code;
}

static bool is_given(const struct options *o, const char *dim)
{
    for (int i = 0; i < o->nlimits; i++)
        if (!strcmp(o->limits[i].name, dim)) return true;
    for (int i = 0; i < o->ndims; i++)
        if (!strcmp(o->dims[i].name, dim)) return true;
    return false;
}

static int add_dim(struct options *o, const char *name, char *text)
{
    char what[128];
    long long n = 0;
    snprintf(what, sizeof what, "--dim %s=", name);
    if (is_given(o, name)) return cli_error(EXIT_USAGE, "--dim %s: given twice", name);
    if (strstr(text, "..")) return add_limits(o, what, name, text);
    if (o->ndims == MOST_ITEMS) return cli_error(EXIT_USAGE, "--dim: more than %d", MOST_ITEMS);
    const bool several = strchr(text, ',') != NULL;
    const int code = several ? EXIT_GOOD : number(what, text, 0, (long long)1 << 47, &n);
    o->dims[o->ndims++] = (struct sol_onnx_dim){name, n};
    return several ? add_sizes(o, what, text) : code;
}

static int add_darg(struct options *o, const char *key, const char *value)
{
    if (o->ndargs == MOST_ITEMS) return cli_error(EXIT_USAGE, "--darg: more than %d", MOST_ITEMS);
    for (int i = 0; i < o->ndargs; i++)
        if (!strcmp(o->dargs[i].key, key)) return cli_error(EXIT_USAGE, "--darg %s: given twice", key);
    o->dargs[o->ndargs++] = (struct sol_deploy_key){key, value};
    return EXIT_GOOD;
}

static int set_key(struct cli *c, const char *key, const char *value)
{
    const sol_status status = sol_config_set(c->ctx, key, value);
    return status ? cli_error(EXIT_USAGE, "%s", sol_error(c->ctx)) : EXIT_GOOD;
}

static int set_option(struct cli *c, const struct option_row *row, char *value)
{
    struct options *o = &c->o;
    long long n = 0;
    char *end = value, *equals = value ? strchr(value, '=') : NULL;
    if (row->takes == PAIR && (!equals || equals == value))
        return cli_error(EXIT_USAGE, "%s %s: expected %s", row->name, value, row->value);
    if (row->takes == NUMBER) {
        char what[32];
        snprintf(what, sizeof what, "%s ", row->name);
        int code = number(what, value, row->place == ROUNDS, row->place == SEED ? INT64_MAX : 1000000, &n);
        if (code) return code;
    }
    double real = row->takes == REAL_VALUE ? strtod(value, &end) : 0;
    if (row->takes == REAL_VALUE && (end == value || *end || !(real >= 0)))
        return cli_error(EXIT_USAGE, "%s %s: expected a number from 0 on", row->name, value);
    switch (row->place) {
    case INPUT: return add_pair(row, o->inputs, &o->ninputs, value);
    case FIX: return add_pair(row, o->fixed, &o->nfixed, value);
    case EXPECTED: return add_pair(row, o->expected, &o->nexpected, value);
    case DIM: *equals = 0; return add_dim(o, value, equals + 1);
    case CONFIG: {
        *equals = 0;
        return set_key(c, value, equals + 1);
    }
    case THREADS: o->threads = (int)n; break;
    case ROUNDS: o->rounds = (int)n; break;
    case SEED: o->seed = (uint64_t)n; break;
    case OUTPUT_DIR: o->output_dir = value; break;
    case RTOL: o->rtol = real; break;
    case ATOL: o->atol = real; break;
    case RANDOM: o->random = true; break;
    case LAYERS: o->layers = true; break;
    case DEVICES: o->devices = true; break;
    case DEVICE: return set_key(c, "device", value);
    case MEMORY: o->memory = true; break;
    case PROFILE: o->profile = true; break;
    case VERBOSE: o->verbose = true; break;
    case TARGET: o->target = value; break;
    case KEYS: o->list_keys = true; break;
    case FOLDER: return add_darg(o, "path", value);
    case DARG: *equals = 0; return add_darg(o, value, equals + 1);
    }
    return EXIT_GOOD;
}

static int read_option(struct cli *c, const struct command *k, char **argv, int *at)
{
    char *text = argv[*at], *equals = strchr(text, '=');
    size_t n = equals ? (size_t)(equals - text) : strlen(text);
    for (size_t i = 0; i < COUNT(option_rows); i++) {
        const struct option_row *row = &option_rows[i];
        if (strlen(row->name) != n || strncmp(row->name, text, n) || !(k->options & BIT(row->place))) continue;
        char *value = equals ? equals + 1 : NULL;
        if (row->takes == NOTHING && equals) return cli_error(EXIT_USAGE, "%s takes no value", row->name);
        if (row->takes != NOTHING && !value && !(value = argv[++*at]))
            return cli_error(EXIT_USAGE, "%s: expected %s", row->name, row->value);
        return set_option(c, row, value);
    }
    return cli_error(EXIT_USAGE, "`sol %s` has no option %s; try `sol %s --help`", k->name, text, k->name);
}

static int read_arguments(struct cli *c, const struct command *k, int argc, char **argv)
{
    int given = 0;
    for (int i = 2; i < argc; i++) {
        if (argv[i][0] == '-' && argv[i][1]) {
            int code = read_option(c, k, argv, &i);
            if (code) return code;
            continue;
        }
        if (given == k->most) return cli_error(EXIT_USAGE, "`sol %s` takes no argument '%s'", k->name, argv[i]);
        if (given++)
            c->o.folders[c->o.nfolders++] = argv[i];
        else
            c->o.file = argv[i];
    }
    if (given < k->least && !c->o.layers)
        return cli_error(EXIT_USAGE, "usage: sol %s %s [OPTIONS]; try `sol %s --help`", k->name, k->arguments, k->name);
    return EXIT_GOOD;
}

static int run(struct cli *c, const struct command *k, int argc, char **argv)
{
    int code = read_arguments(c, k, argc, argv);
    if (!code && c->o.verbose) sol_config_set(c->ctx, "log::level", "DEBUG");
    return code ? code : k->run(c);
}

int main(int argc, char **argv)
{
    static struct cli c;
    c.o = (struct options){.seed = 1, .rounds = 20, .rtol = 1e-3, .atol = 1e-5};
    c.terminal = isatty(STDERR_FILENO);
    if (argc < 2) {
        help(stderr);
        return EXIT_USAGE;
    }
    bool helps = is_help(argv[1]) || !strcmp(argv[1], "help");
    if (!strcmp(argv[1], "--version")) {
        printf("sol %s\n", sol_version());
        return EXIT_GOOD;
    }
    if (helps && argc == 2) {
        help(stdout);
        return EXIT_GOOD;
    }
    const char *name = argv[1 + helps];
    for (size_t i = 0; i < COUNT(commands); i++) {
        if (strcmp(name, commands[i].name)) continue;
        for (int k = 2; k < argc; k++) helps |= is_help(argv[k]);
        if (helps) {
            help_command(&commands[i]);
            return EXIT_GOOD;
        }
        struct sol_ctx_options options = {.size = sizeof options, .interrupted = interrupted};
        signal(SIGINT, on_interrupt);
        if (sol_ctx_create(&options, &c.ctx)) return cli_error(EXIT_FAILED, "cannot start: not enough memory");
        int code = run(&c, &commands[i], argc, argv);
        sol_ctx_destroy(c.ctx);
        return fflush(stdout) ? cli_error(EXIT_FAILED, "cannot write the output") : code;
    }
    return cli_error(EXIT_USAGE, "there is no command '%s'; try `sol --help`", name);
}
