/* Layers with sizes that vary: a graph's loops with given sizes, and its compiled code, must compute what the same
 * graph bound for these sizes does, and what cannot vary says so. */
#include "dims_check.h"
#include "slow_build.h"

struct subject {
    const char *name, *text;
    int n;
    int64_t dim[6][4];
    const char *holds; /* in the printed graph; NULL: anything */
};

static const struct subject subjects[] = {
#include "dims_layers.inc"
};

static void layers_are_right_at_every_size(void **unused)
{
    (void)unused;
    for (int i = 0; i < COUNT_OF(subjects); i++) {
        const struct subject *s = &subjects[i];
        struct sol_graph *g;
        char *text;
        if (sol_graph_parse(ctx, s->text, &g)) {
            WRONG("%s: %s", s->name, sol_error(ctx));
            continue;
        }
        assert_int_equal(graph_verify(g), SOL_OK);
        assert_int_equal(sol_graph_print(g, &text), SOL_OK);
        if (s->holds && !strstr(text, s->holds)) WRONG("%s: expected '%s' in\n%s", s->name, s->holds, text);
        struct sol_graph *compiled;
        struct sol_net *net = NULL; /* NULL: the interpreter alone is tried */
        assert_int_equal(sol_graph_parse(ctx, s->text, &compiled), SOL_OK);
        if (i % step_of_cases(1) == 0 && sol_compile(ctx, compiled, &net))
            WRONG("%s: compiled: %s", s->name, sol_error(ctx));
        for (int k = 0; k < s->n; k++) {
            char what[256];
            snprintf(what, sizeof what, "%s at %lld,%lld,%lld", s->name, (long long)s->dim[k][0],
                     (long long)s->dim[k][1], (long long)s->dim[k][2]);
            if (!compare_at(&(struct compared){g, net, 1e-6, NULL}, s->dim[k], 3, what))
                WRONG("%s: %s", what, sol_error(ctx));
        }
        sol_net_destroy(net);
        sol_graph_destroy(compiled);
        sol_free(ctx, text);
        sol_graph_destroy(g);
    }
    assert_int_equal(failures, 0);
}

static void what_cannot_vary_is_named(void **unused)
{
    (void)unused;
    static const struct {
        const char *text, *message;
    } cases[] = {
#include "dims_refused.inc"
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        struct sol_graph *g = NULL;
        if (!sol_graph_parse(ctx, cases[i].text, &g))
            WRONG("accepted: %s", cases[i].text);
        else if (!strstr(sol_error(ctx), cases[i].message))
            WRONG("expected '%s' in '%s'", cases[i].message, sol_error(ctx));
    }
    assert_int_equal(failures, 0);
}

static int setup(void **unused)
{
    (void)unused;
    return sol_ctx_create(NULL, &ctx);
}

static int teardown(void **unused)
{
    (void)unused;
    sol_ctx_destroy(ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_are_right_at_every_size),
        cmocka_unit_test(what_cannot_vary_is_named),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
