/* sol config, sol cache. */
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
    if (strcmp(c->o.file, "clear")) return cli_error(EXIT_USAGE, "usage: sol cache clear");
    sol_status status = sol_cache_clear(c->ctx);
    if (status) return cli_fail(c, status);
    printf("cleared %s\n", sol_config_get(c->ctx, "cache::folder"));
    return EXIT_GOOD;
}
