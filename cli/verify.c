/* sol verify: runs a model on given inputs and compares its outputs with expected ones, from options or from folders
 * with ONNX's test data. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"

static bool close_enough(const struct options *o, double got, double expected)
{
    if (isnan(expected) || isnan(got)) return isnan(expected) && isnan(got);
    if (isinf(expected) || isinf(got)) return got == expected;
    return fabs(got - expected) <= o->atol + o->rtol * fabs(expected);
}

static int compare(const struct options *o, const struct array *got, const struct array *expected)
{
    if (!array_fits(got, expected->dtype, expected->ndim, expected->shape)) {
        printf("%s: DIFFERS in type or shape: expected ", got->name);
        shape_print(stdout, expected->dtype, expected->ndim, expected->shape);
        printf(", got ");
        shape_print(stdout, got->dtype, got->ndim, got->shape);
        printf("\n");
        return EXIT_MISMATCH;
    }
    double worst = 0, error = 0, norm = 0;
    int64_t wrong = 0, first = 0;
    for (int64_t i = 0; i < got->elements; i++) {
        double g = array_at(got, i), e = array_at(expected, i);
        bool exact = !dtype_is_float(got->dtype);
        bool differs =
            exact ? memcmp((char *)got->data + (size_t)i * dtype_bytes(got->dtype),
                           (char *)expected->data + (size_t)i * dtype_bytes(got->dtype), dtype_bytes(got->dtype)) != 0
                  : !close_enough(o, g, e);
        if (differs && !wrong++) first = i;
        if (!isfinite(g) || !isfinite(e)) continue;
        worst = fmax(worst, fabs(g - e));
        error += (g - e) * (g - e);
        norm += e * e;
    }
    printf("%s: %s", got->name, wrong ? "DIFFERS" : "equal");
    if (wrong)
        printf(" in %lld of %lld values, first in number %lld: expected %.9g, got %.9g", (long long)wrong,
               (long long)got->elements, (long long)first, array_at(expected, first), array_at(got, first));
    printf(", largest error %.3g, relative L2 %.3g\n", worst, norm > 0 ? sqrt(error / norm) : sqrt(error));
    return wrong ? EXIT_MISMATCH : EXIT_GOOD;
}

static const char *expected_file(const struct options *o, const char *name, int i)
{
    for (int k = 0; k < o->nexpected; k++)
        if (o->expected[k].name ? !strcmp(o->expected[k].name, name) : k == i) return o->expected[k].value;
    return NULL;
}

/* Verifies one set, whose inputs and expected outputs are in the options. */
static int verify_set(struct cli *c)
{
    struct model m;
    struct call call = {0};
    double seconds;
    int code = model_make(c, &m, true), compared = 0;
    if (!code) code = call_make(c, &m, false, &call);
    if (!code) code = call_run(c, &m, &call, &seconds);
    for (int i = 0; i < call.nout && code <= EXIT_MISMATCH; i++) {
        struct array expected;
        const char *path = expected_file(&c->o, call.out[i].name, i);
        if (!path) continue;
        if (!array_read(c, path, &expected)) {
            code = EXIT_FAILED;
            break;
        }
        int result = compare(&c->o, &call.out[i], &expected);
        if (result) code = result;
        compared++;
        array_free(&expected);
    }
    if (!code && compared < c->o.nexpected)
        code = cli_error(EXIT_USAGE, "--expected: the model has no output of that name");
    call_free(&call);
    model_free(&m);
    return code;
}

/* Adds the files input_0.pb, input_1.npy, .. of a folder. A tensor in a .pb file has a name. */
static int add_files(struct cli *c, const char *folder, const char *what, struct pair *list, int *n)
{
    static const char *const kinds[] = {"pb", "npy"};
    struct stat s;
    for (int i = 0; i < MOST_ITEMS; i++) {
        bool found = false;
        for (int k = 0; k < 2 && !found; k++) {
            size_t room = strlen(folder) + 64;
            char *path = malloc(room);
            if (!path) return cli_error(EXIT_FAILED, "not enough memory");
            snprintf(path, room, "%s/%s_%d.%s", folder, what, i, kinds[k]);
            found = !stat(path, &s);
            if (!found) {
                free(path);
                continue;
            }
            struct sol_onnx_tensor t = {0};
            sol_status status = k ? SOL_OK : sol_onnx_tensor_load(c->ctx, path, &t);
            char *name = t.name && *t.name ? strdup(t.name) : NULL;
            sol_onnx_tensor_free(c->ctx, &t);
            list[(*n)++] = (struct pair){name, path};
            if (status) return cli_fail(c, status);
        }
        if (!found) break;
    }
    return EXIT_GOOD;
}

static void free_files(struct pair *list, int n)
{
    for (int i = 0; i < n; i++) {
        free((void *)list[i].name);
        free((void *)list[i].value);
    }
}

int cmd_verify(struct cli *c)
{
    if (!c->o.nfolders && !c->o.nexpected)
        return cli_error(EXIT_USAGE, "there is nothing to compare with: give --expected, or a folder");
    if (!c->o.nfolders) return verify_set(c);
    if (c->o.ninputs || c->o.nexpected)
        return cli_error(EXIT_USAGE, "give folders, or --input and --expected, not both");
    int worst = EXIT_GOOD;
    for (int i = 0; i < c->o.nfolders && worst <= EXIT_MISMATCH; i++) {
        int code = add_files(c, c->o.folders[i], "input", c->o.inputs, &c->o.ninputs);
        if (!code) code = add_files(c, c->o.folders[i], "output", c->o.expected, &c->o.nexpected);
        if (!code && !c->o.nexpected)
            code = cli_error(EXIT_FAILED, "folder '%s': there is no output_0.pb or output_0.npy", c->o.folders[i]);
        if (!code) printf("%s\n", c->o.folders[i]);
        if (!code) code = verify_set(c);
        free_files(c->o.inputs, c->o.ninputs);
        free_files(c->o.expected, c->o.nexpected);
        c->o.ninputs = c->o.nexpected = 0;
        if (code > worst) worst = code;
    }
    return worst;
}
