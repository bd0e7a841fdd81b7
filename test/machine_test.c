/* The limits of the machine: given by the key, measured once and cached, and how costs use them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "build/build.h"
#include "tune/tune.h"

static int setup(void **state)
{
    struct sol_ctx *ctx;
    if (sol_ctx_create(NULL, &ctx)) return 1;
    sol_config_set(ctx, "target", "native");
    *state = ctx;
    return 0;
}

static int teardown(void **state)
{
    sol_ctx_destroy(*state);
    return 0;
}

static struct target target_of(struct sol_ctx *ctx, const char *machine)
{
    struct target t;
    assert_int_equal(sol_config_set(ctx, "machine", machine), SOL_OK);
    assert_int_equal(machine_target(ctx, &t), SOL_OK);
    return t;
}

static bool costs_equal(const struct target *a, const struct target *b)
{
    return a->clock == b->clock && a->fma_pipes == b->fma_pipes && a->l2_rate == b->l2_rate &&
           a->l3_rate == b->l3_rate && a->dram_rate == b->dram_rate;
}

static void numbers_can_be_given(void **state)
{
    struct sol_machine m;
    sol_config_set(*state, "machine", "clock=2,fma=1,l2=200,l3=50,dram=10");
    assert_int_equal(sol_machine(*state, &m), SOL_OK);
    assert_string_equal(m.source, "given");
    assert_true(m.flops == 2 * m.threads * 2.0 * m.vector_bytes / 4);
    assert_true(m.clock == 2 && m.fma == 1 && m.l2_rate == 200 && m.l3_rate == 50 && m.memory_rate == 10);
    sol_config_set(*state, "machine", "fma=1"); /* everything else is assumed */
    assert_int_equal(sol_machine(*state, &m), SOL_OK);
    assert_true(m.fma == 1 && m.clock > 1 && m.l3_rate > 1);
    static const char *const wrong[] = {"",      "yes",    "fma=",    "fma=2,", "fma=2x", "clock=0",    "l2=-1",
                                        "cpu=1", "l2=nan", "l2=1e99", "fma=0",  "=3",     "fma=2,,l2=3"};
    for (int i = 0; i < COUNT_OF(wrong); i++) {
        sol_config_set(*state, "machine", wrong[i]);
        assert_int_equal(sol_machine(*state, &m), SOL_ERR_INVALID);
        assert_non_null(strstr(sol_error(*state), "machine: expected auto, assumed, or numbers such as clock=4,fma=2"));
    }
}

/* Costs use integers and powers of two, so noise changes none. */
static void costs_are_coarse(void **state)
{
    char text[160];
    const struct target usual = target_of(*state, "assumed");
    const struct machine *m = &usual.machine;
    static const double noise[] = {0.55, 0.8, 1.3, 1.9};
    for (int i = 0; i < COUNT_OF(noise); i++) {
        const double f = noise[i];
        snprintf(text, sizeof text, "clock=%g,l2=%g,l3=%g,dram=%g", m->clock * f, m->l2 * f, m->l3 * f, m->dram * f);
        const struct target t = target_of(*state, text);
        assert_true(costs_equal(&t, &usual) && t.machine.clock != m->clock);
    }
    snprintf(text, sizeof text, "l2=%g,l3=%g,dram=%g,fma=1", m->l2 * 2.5, m->l3 / 3, m->dram * 100);
    const struct target t = target_of(*state, text);
    assert_true(t.fma_pipes == 1 && t.clock == usual.clock);
    assert_true(t.l2_rate == usual.l2_rate * 2 && t.l3_rate == usual.l3_rate / 2 && t.dram_rate == usual.dram_rate * 4);
}

static void only_this_machine_is_measured(void **state)
{
    sol_config_set(*state, "target", "x86-64-v3");
    const struct target usual = target_of(*state, "assumed"), t = target_of(*state, "clock=9,fma=1,l2=1,l3=1,dram=1");
    assert_true(costs_equal(&usual, &t) && t.machine.source == MACHINE_ASSUMED);
}

/* -- measuring, with a separate cache */

static void measured_once(void **state)
{
    char folder[] = "/tmp/sol-machine-XXXXXX";
    struct sol_machine first, again;
    const struct target usual = target_of(*state, "assumed");
    assert_non_null(mkdtemp(folder));
    sol_config_set(*state, "machine", "auto");
    /* without a cache, the result cannot be stored, so it is not measured */
    sol_config_set(*state, "cache::folder", "");
    assert_int_equal(sol_machine(*state, &first), SOL_OK);
    assert_string_equal(first.source, "assumed");
    sol_config_set(*state, "cache::folder", folder);
    sol_config_set(*state, "compiler::name", "/nowhere/cc"); /* no compiler works */
    assert_int_equal(sol_machine(*state, &first), SOL_OK);
    assert_string_equal(first.source, "measured");
    assert_true(first.clock > 0.05 && first.clock < 20 && first.fma >= 0.125 && first.fma <= 4);
    assert_true(first.l2_rate > 0.1 && first.l3_rate > 0.1 && first.memory_rate > 0.1);
    /* the cached result is exactly the first one */
    assert_int_equal(sol_machine(*state, &again), SOL_OK);
    assert_string_equal(again.source, "measured");
    assert_true(first.clock == again.clock && first.l2_rate == again.l2_rate && first.l3_rate == again.l3_rate &&
                first.memory_rate == again.memory_rate && first.fma == again.fma);
    const struct target t = target_of(*state, "auto");
    assert_true(t.fma_pipes == first.fma && t.clock >= usual.clock / 4 && t.dram_rate <= usual.dram_rate * 4);
    folder_remove(folder);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {TEST(numbers_can_be_given), TEST(costs_are_coarse),
                                       TEST(only_this_machine_is_measured), TEST(measured_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
