/* sol compile: stores a model's code in the cache, so that the next start is fast. */
#include "cli.h"

int cmd_compile(struct cli *c)
{
    struct model m;
    int code = model_make(c, &m, false);
    if (!code) {
        printf("%s: read in %.2f s, compiled in %.2f s\n", c->o.file, m.load_s, m.compile_s);
        print_memory(c, &m);
    }
    model_free(&m);
    return code;
}
