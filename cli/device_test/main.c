/* sol-device-test: checks a device type against the contract in sol/device.h. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

enum { ALL_GOOD = 0, SOME_WRONG = 1, USAGE = 2, NOT_THERE = 77 };

static const char usage[] =
    "usage: sol-device-test [-k WORD] [-l] DEVICE\n"
    "Checks a device against the contract in sol/device.h, and runs networks on it.\n"
    "\n"
    "DEVICE   a plug-in (libmydevice.so, with a '/' or ending in .so), whose types are all checked, or a name as\n"
    "         `sol info --devices` lists it: far, opencl:1, x86\n"
    "-k WORD  only checks that contain this word\n"
    "-l       lists the checks\n"
    "\n"
    "SOL_DEVICE_OPTIONS has options of devices. Exits with 0 if all is good, 1 if something is wrong (also a plug-in\n"
    "without types), 2 for a wrong command (also a WORD that no check contains), and 77 if the device is not there.\n";

static const struct {
    const char *part;
    const struct check *checks;
} parts[] = {{"memory", memory_checks}, {"streams", stream_checks}, {"code", code_checks}, {"networks", net_checks}};

/* -- verdicts */

enum verdict wrong(struct bench *b, const char *expected, const char *got, ...)
{
    va_list args;
    va_start(args, got);
    pthread_mutex_lock(&b->lock);
    if (!*b->got) {
        snprintf(b->expected, sizeof b->expected, "%s", expected);
        vsnprintf(b->got, sizeof b->got, got, args);
    }
    pthread_mutex_unlock(&b->lock);
    va_end(args);
    return WRONG;
}

enum verdict skip(struct bench *b, const char *why)
{
    snprintf(b->expected, sizeof b->expected, "%s", why);
    return SKIPPED;
}

/* The check that runs, for a device that crashes. */
static char running[300];

static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

static void crashed(int number)
{
    if (write(STDOUT_FILENO, running, strlen(running)) < 0) _exit(SOME_WRONG);
    signal(number, SIG_DFL);
    raise(number);
}

struct counts {
    int of[SKIPPED + 1];
};

/* A device that was found wrong is not closed: the contract of `close` does not hold for what the check left. */
static void run_check(struct bench *b, const struct check *c, struct counts *n)
{
    struct sol_failure why = failure_new();
    enum verdict v = WRONG;
    *b->expected = *b->got = 0;
    snprintf(running, sizeof running, "WRONG    %-9s %s\n         got:      a crash of the process\n", c->function,
             c->contract);
    const sol_status status = b->type->open(b->type, b->host, b->index, &b->device, &why);
    if (status)
        wrong(b, "the device opens", "status %d, '%s' (enum sol_status in sol.h)", status, why.text);
    else
        v = c->run(b);
    if (v != WRONG) b->type->close(b->device);
    n->of[v]++;
    static const char *const words[] = {[GOOD] = "ok", [WRONG] = "WRONG", [SKIPPED] = "skipped"};
    printf("%-8s %-9s %s%s%s\n", words[v], c->function, c->contract, v == SKIPPED ? ": " : "",
           v == SKIPPED ? b->expected : "");
    if (v == WRONG) printf("         expected: %s\n         got:      %s\n", b->expected, b->got);
    fflush(stdout);
}

/* -- what there is */

static enum verdict facts_are_good(struct bench *b)
{
    struct sol_failure why = failure_new();
    struct sol_device_info about = {.size = sizeof about};
    int again = -1;
    sol_status status = b->type->count(b->type, b->host, &again, &why);
    WANT(!status && again > b->index, "the same count as before", "status %d, %d", status, again);
    status = b->type->info(b->type, b->host, -1, &about, &why);
    WANT(!status, "facts about the type (index -1)", "status %d, '%s'", status, why.text);
    WANT(*b->info.name && memchr(b->info.name, 0, sizeof b->info.name), "a name", "none");
    WANT(b->info.memory >= 0 && b->info.cores >= 0 && b->info.lanes >= 0, "numbers that are 0 if unknown",
         "memory %lld, cores %d, lanes %d", (long long)b->info.memory, b->info.cores, b->info.lanes);
    WANT(!b->type->compile || *b->info.arch, "what code is compiled for", "an empty `arch`");
    return GOOD;
}

static const struct check first_checks[] = {
    {"info", "count and info tell what there is, without opening it", facts_are_good},
    {0},
};

static bool wanted(const struct check *c, const char *word)
{
    return !word || strstr(c->function, word) || strstr(c->contract, word);
}

static int matches(const struct check *checks, const char *word)
{
    int n = 0;
    for (const struct check *c = checks; c->function; c++) n += wanted(c, word);
    return n;
}

static bool is_known(const char *word)
{
    int n = matches(first_checks, word);
    for (int i = 0; i < COUNT_OF(parts); i++) n += matches(parts[i].checks, word);
    return n;
}

static void run_checks(struct bench *b, const struct check *checks, const char *word, struct counts *n)
{
    for (const struct check *c = checks; c->function; c++)
        if (wanted(c, word)) run_check(b, c, n);
}

static int check_device(struct sol_ctx *ctx, const char *name, const char *word)
{
    struct bench b = {.ctx = ctx, .info = {.size = sizeof b.info}};
    struct devices *d;
    struct counts n = {{0}};
    struct sol_failure why = failure_new();
    if (sol_device_select(ctx, name) || devices_of(ctx, &d) || devices_selected(ctx, &b.type, &b.index)) {
        printf("%s\n", sol_error(ctx));
        return NOT_THERE;
    }
    b.host = devices_host(d);
    const sol_status status = b.type->info(b.type, b.host, b.index, &b.info, &why);
    printf("%s:%d: %s\n", b.type->name, b.index, status ? why.text : b.info.name);
    if (status) return SOME_WRONG;
    pthread_mutex_init(&b.lock, NULL);
    run_checks(&b, first_checks, word, &n);
    for (int i = 0; i < COUNT_OF(parts); i++) run_checks(&b, parts[i].checks, word, &n);
    pthread_mutex_destroy(&b.lock);
    printf("%s:%d: %d ok, %d wrong, %d skipped\n", b.type->name, b.index, n.of[GOOD], n.of[WRONG], n.of[SKIPPED]);
    return n.of[WRONG] ? SOME_WRONG : ALL_GOOD;
}

/* -- plug-ins */

static void show_rejected(void *user, const struct sol_device_info *info)
{
    int *n = user;
    if (strcmp(info->type, "plug-in")) return;
    printf("WRONG    plug-in   %s: %s\n", info->name, info->why);
    ++*n;
}

/* All types of the plug-in: those that were not there before. */
static int check_plugin(struct sol_ctx *ctx, const char *path, const char *word)
{
    struct devices *d;
    int before = 0, rejected = 0, result = ALL_GOOD;
    if (devices_of(ctx, &d)) return SOME_WRONG;
    while (devices_at(d, before)) before++;
    if (sol_config_set(ctx, "device::plugins", path) || devices_of(ctx, &d) ||
        sol_devices(ctx, show_rejected, &rejected)) {
        printf("%s\n", sol_error(ctx));
        return SOME_WRONG;
    }
    const struct sol_device_type *type;
    for (int i = before; (type = devices_at(d, i)); i++) {
        const int one = check_device(ctx, type->name, word);
        if (!result || one == SOME_WRONG) result = one;
    }
    if (!devices_at(d, before) && !rejected) {
        printf("WRONG    plug-in   %s: it has no device type: sol_device_plugin(0) returns NULL\n", path);
        return SOME_WRONG;
    }
    return rejected ? SOME_WRONG : result;
}

static int list(void)
{
    for (int i = 0; i < COUNT_OF(parts); i++)
        for (const struct check *c = parts[i].checks; c->function; c++)
            printf("%-9s %-9s %s\n", parts[i].part, c->function, c->contract);
    return ALL_GOOD;
}

static bool is_path(const char *device)
{
    const size_t n = strlen(device);
    return strchr(device, '/') || (n > 3 && !strcmp(device + n - 3, ".so"));
}

int main(int argc, char **argv)
{
    struct sol_ctx *ctx;
    const char *word = NULL;
    for (int i = 0; i < COUNT_OF(crashes); i++) signal(crashes[i], crashed);
    for (int o; (o = getopt(argc, argv, "hk:l")) != -1;) {
        if (o == 'l') return list();
        if (o == 'k') word = optarg;
        if (o == 'h') return fputs(usage, stdout), ALL_GOOD;
        if (o == '?') return fputs(usage, stderr), USAGE;
    }
    if (argc != optind + 1) return fputs(usage, stderr), USAGE;
    if (!is_known(word)) {
        fprintf(stderr, "sol-device-test: no check contains '%s': -l lists them\n", word);
        return USAGE;
    }
    if (sol_ctx_create(NULL, &ctx) || sol_config_set(ctx, "autotune", "off")) return SOME_WRONG;
    const char *device = argv[optind];
    const int result = is_path(device) ? check_plugin(ctx, device, word) : check_device(ctx, device, word);
    sol_ctx_destroy(ctx);
    return result;
}
