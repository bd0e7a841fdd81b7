/* sol config, sol cache, sol wisdom, sol doctor. */
#include <string.h>

#include "cli.h"

int cmd_config(struct cli *c)
{
    const char *key, *otherwise, *doc;
    for (int i = 0; (key = sol_config_key(i, &otherwise, &doc)); i++) {
        const char *value = sol_config_get(c->ctx, key);
        printf("%-36s %-10s %s%s\n", key, value && *value ? value : "-", doc,
               value && strcmp(value, otherwise) ? " (changed)" : "");
    }
    return EXIT_GOOD;
}

int cmd_cache(struct cli *c)
{
    char *folder;
    const bool clear = c->o.file && !strcmp(c->o.file, "clear");
    if (c->o.file && !clear) return cli_error(EXIT_USAGE, "usage: sol cache, sol cache clear");
    sol_status status = clear ? sol_cache_clear(c->ctx) : SOL_OK;
    if (!status) status = sol_cache_folder(c->ctx, &folder);
    if (status) return cli_fail(c, status);
    printf("%s%s\n", clear ? "cleared " : "", *folder ? folder : "there is no cache (key cache::folder)");
    sol_free(c->ctx, folder);
    return EXIT_GOOD;
}

static int merge_wisdom(struct cli *c)
{
    for (int i = 0; i < c->o.nfolders; i++) {
        int n;
        sol_status status = sol_wisdom_merge(c->ctx, c->o.folders[i], &n);
        if (status) return cli_fail(c, status);
        printf("%s: %d new\n", c->o.folders[i], n);
    }
    return EXIT_GOOD;
}

int cmd_wisdom(struct cli *c)
{
    char *text;
    if (c->o.file && !strcmp(c->o.file, "merge") && c->o.nfolders) return merge_wisdom(c);
    const bool clear = c->o.file && !strcmp(c->o.file, "clear") && !c->o.nfolders;
    if (c->o.file && !clear)
        return cli_error(EXIT_USAGE, "usage: sol wisdom, sol wisdom clear, sol wisdom merge FILE..");
    sol_status status = clear ? sol_wisdom_clear(c->ctx) : sol_wisdom_print(c->ctx, &text);
    if (status) return cli_fail(c, status);
    if (clear) return EXIT_GOOD;
    printf("%s", text);
    sol_free(c->ctx, text);
    return EXIT_GOOD;
}

static void show_check(void *user, const struct sol_check *check)
{
    static const char *const states[] = {[SOL_GOOD] = "ok", [SOL_LACKS] = "missing", [SOL_BROKEN] = "BROKEN"};
    (void)user;
    printf("%-8s %-16s %s\n", states[check->state], check->what, check->text);
    if (check->advice) printf("%25s -> %s\n", "", check->advice);
    fflush(stdout);
}

int cmd_doctor(struct cli *c)
{
    int broken;
    printf("%-8s %-16s %s\n", "ok", "sol", sol_version());
    c->terminal = false; /* without a progress display */
    sol_status status = sol_doctor(c->ctx, show_check, NULL, &broken);
    if (status) return cli_fail(c, status);
    printf(broken ? "\nSOL cannot optimize networks here: fix what is BROKEN.\n" : "\nSOL works here.\n");
    return broken ? EXIT_FAILED : EXIT_GOOD;
}
