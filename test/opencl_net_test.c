/* Networks on OpenCL devices, compared with the interpreter in float64: graphs that have all rows of layers.def between
 * them, half of them with outputs of a backward program, on every device that is there. Layers without loops that have
 * no kernels run on the host. As on devices without float64, a sample of the graphs runs, or all with the option --all.
 * An argument names another type of devices that launch kernels, and their options are those of the environment. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "device/device.h"
#include "random/graphs.h"
#include "slow_build.h"

enum { PARTS = 12 };
static int sample = 4; /* one of so many parts runs without float64 */
static const char *tested = "opencl";

/* How many devices there are; *out_why: why there are none. */
static int devices_there(struct sol_failure *out_why)
{
    struct devices *d;
    const struct sol_device_type *type;
    int n = 0, i = 0;
    if (devices_of(ctx, &d)) fail_msg("%s", sol_error(ctx));
    while ((type = devices_at(d, i)) && strcmp(type->name, tested)) i++;
    assert_non_null(type);
    assert_int_equal(type->count(type, devices_host(d), &n, out_why), SOL_OK);
    return n;
}

/* single: as on a device without float64. */
static void check_rows(bool single)
{
    int missing = 0, bad = 0;
    struct sol_failure why = failure_new();
    const char *options = single ? "opencl.fp64=0" : getenv("SOL_DEVICE_OPTIONS");
    const int n = devices_there(&why);
    for (int device = 0; device < n; device++)
        for (int part = 0; part < PARTS; part += step_of_cases(single ? sample : 1)) {
            char name[24];
            const char *reason = "";
            struct value *wrong = NULL;
            struct gen *r = gen_create(ctx, (uint64_t)(1 + part));
            r->single = single;
            recipes_rows(r, part, PARTS, stdout, &missing);
            snprintf(name, sizeof name, "%s:%d", tested, device);
            const struct setting s = {name, {"device", "device::options"}, {name, options ? options : ""}, part % 2};
            if (!check_graph(r, &s, &reason, &wrong)) {
                print_error("%s%s, rows %d of %d: %s: %s\n", name, single ? " without float64" : "", part, PARTS,
                            wrong && wrong->t->from ? wrong->t->from->def->name : "", reason);
                bad++;
            }
            gen_destroy(r);
        }
    assert_int_equal(bad, 0);
}

static void rows_of_layers(void **state)
{
    (void)state;
    check_rows(false);
}

static void rows_of_layers_without_float64(void **state)
{
    (void)state;
    check_rows(true);
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "--all"))
        sample = 1;
    else if (argc > 1)
        tested = argv[1];
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_of_layers),
                                       cmocka_unit_test(rows_of_layers_without_float64)};
    const struct CMUnitTest others[] = {cmocka_unit_test(rows_of_layers)};
    struct sol_failure why = failure_new();
    if (make_ctx(NULL)) return 1;
    const int n = devices_there(&why);
    drop_ctx(NULL);
    if (!n) {
        printf("skipped: %s: %s\n", tested, why.text);
        return 77;
    }
    if (strcmp(tested, "opencl")) return cmocka_run_group_tests_name(tested, others, make_ctx, drop_ctx);
    return cmocka_run_group_tests(tests, make_ctx, drop_ctx);
}
