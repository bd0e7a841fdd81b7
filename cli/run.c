/* sol run: calls a model once, and writes the outputs to files or prints a few values of each. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"

static void print_values(const struct array *a)
{
    double sum = 0, least = INFINITY, largest = -INFINITY;
    for (int64_t i = 0; i < a->elements; i++) {
        double v = array_at(a, i);
        sum += v;
        least = fmin(least, v);
        largest = fmax(largest, v);
    }
    printf("%s  ", a->name);
    shape_print(stdout, a->dtype, a->ndim, a->shape);
    if (a->elements) printf("  mean %.6g, least %.6g, largest %.6g", sum / (double)a->elements, least, largest);
    printf("\n   ");
    for (int64_t i = 0; i < a->elements && i < 8; i++) printf(" %.6g", array_at(a, i));
    printf("%s\n", a->elements > 8 ? " .." : "");
}

/* Writes an output; its name becomes the file's name. */
static int write_output(const struct options *o, const struct array *a)
{
    size_t room = strlen(o->output_dir) + strlen(a->name) + 8;
    char *path = malloc(room);
    if (!path) return cli_error(EXIT_FAILED, "not enough memory");
    int n = snprintf(path, room, "%s/", o->output_dir);
    for (const char *p = a->name; *p; p++) path[n++] = *p == '/' || (*p == '.' && p == a->name) ? '_' : *p;
    snprintf(path + n, room - (size_t)n, ".npy");
    bool good = npy_write(path, a);
    if (good) printf("%s\n", path);
    free(path);
    return good ? EXIT_GOOD : EXIT_FAILED;
}

int cmd_run(struct cli *c)
{
    struct model m;
    struct call call = {0};
    double seconds;
    struct stat about;
    bool fresh = c->o.output_dir && !mkdir(c->o.output_dir, 0777);
    if (c->o.output_dir && !fresh && (errno != EEXIST || stat(c->o.output_dir, &about) || !S_ISDIR(about.st_mode)))
        return cli_error(EXIT_FAILED, "cannot make folder '%s': %s", c->o.output_dir, strerror(errno));
    int code = c->o.random ? model_load(c, &m, OPEN_ONE) : model_make(c, &m, true);
    if (!code && c->o.random) {
        print_open(stderr, &m, &c->o);
        code = model_compile(c, &m);
    }
    if (!code) code = call_make(c, &m, c->o.random, &call);
    if (!code) code = call_run(c, &m, &call, &seconds);
    for (int i = 0; i < call.nout && !code; i++) {
        if (c->o.output_dir)
            code = write_output(&c->o, &call.out[i]);
        else
            print_values(&call.out[i]);
    }
    call_free(&call);
    model_free(&m);
    return code;
}
