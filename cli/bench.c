/* sol bench: measures how long a call takes. */
#include <stdlib.h>

#include "cli.h"

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int print_profile(struct cli *c, struct sol_net *net)
{
    char *text;
    const sol_status status = sol_net_profile_print(net, &text);
    if (status) return cli_fail(c, status);
    printf("\n%s", text);
    sol_free(c->ctx, text);
    return EXIT_GOOD;
}

/* Uses runs of its own, because measuring each step slows them down. */
static int profile(struct cli *c, const struct model *m, struct call *call)
{
    double s;
    int code = EXIT_GOOD;
    sol_config_set(c->ctx, "profile", "1");
    for (int i = 0; i < c->o.rounds && !code; i++) {
        code = call_run(c, m, call, &s);
        sol_progress(c->ctx, "Profiling", i + 1, c->o.rounds);
    }
    return code;
}

int cmd_bench(struct cli *c)
{
    struct model m;
    struct call call = {0};
    double first = 0, *seconds = calloc((size_t)c->o.rounds, sizeof *seconds);
    if (!seconds) return cli_error(EXIT_FAILED, "not enough memory");
    int code = model_load(c, &m, OPEN_ONE);
    if (!code) print_open(stderr, &m, &c->o);
    if (!code) code = model_compile(c, &m);
    if (!code) code = call_make(c, &m, true, &call);
    if (!code) code = call_run(c, &m, &call, &first);
    for (int i = 0; i < 2 && !code; i++) code = call_run(c, &m, &call, &seconds[0]); /* warm-up */
    for (int i = 0; i < c->o.rounds && !code; i++) {
        code = call_run(c, &m, &call, &seconds[i]);
        sol_progress(c->ctx, "Running", i + 1, c->o.rounds);
    }
    if (!code && c->o.profile) code = profile(c, &m, &call);
    sol_progress(c->ctx, NULL, 0, 0);
    if (!code) {
        qsort(seconds, (size_t)c->o.rounds, sizeof *seconds, by_value);
        char median[32], least[32], call_time[32];
        printf("%s: median %s, least %s, %d rounds\n", c->o.file, human_time(seconds[c->o.rounds / 2], median),
               human_time(seconds[0], least), c->o.rounds);
        printf("read %.2f s, compile %.2f s, first call %s\n", m.load_s, m.compile_s, human_time(first, call_time));
        print_memory(c, &m);
        print_process();
        if (c->o.profile) code = print_profile(c, m.net);
    }
    free(seconds);
    call_free(&call);
    model_free(&m);
    return code;
}
