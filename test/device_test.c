/* Devices: the list of types, built in and of plug-ins, and which one is selected. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "context.h"
#include "device/device.h"

static const char plugin_path[] = BUILD_ROOT "/libsol_device_plugin.so";

/* -- the list */

struct seen { /* rows of sol_devices as text, "type:index why|" */
    char text[8192];
    int there, selected;
};

static void add(void *user, const struct sol_device_info *d)
{
    struct seen *s = user;
    char row[1500];
    snprintf(row, sizeof row, "%s:%d %s [%s] %s|<%s>", d->type, d->index, d->name, d->compiler, d->why, d->backends);
    strncat(s->text, row, sizeof s->text - strlen(s->text) - 1);
    s->there += !*d->why;
    s->selected += d->selected;
}

static struct seen list(void)
{
    struct seen s = {0};
    assert_int_equal(sol_devices(ctx, add, &s), SOL_OK);
    return s;
}

static void the_processor_is_a_device(void **state)
{
    const struct sol_device_type *type;
    int index;
    (void)state;
    assert_int_equal(devices_selected(ctx, &type, &index), SOL_OK);
    assert_true(type->features & SOL_DEVICE_SHARED);
    assert_int_equal(index, 0);
    const struct seen s = list();
    assert_int_equal(s.selected, 1);
    assert_true(s.there >= 1);
    assert_memory_equal(s.text, type->name, strlen(type->name)); /* those that are there come first */
    assert_non_null(strstr(s.text, "networks can be deployed for it with"));
    assert_non_null(strstr(s.text, "matmul, ")); /* a backend */
    const char *opencl = strstr(s.text, "opencl:0 ");
    assert_non_null(opencl);
    assert_non_null(strstr(opencl, "<simt, attention_simt, attention_grad_simt, dfp, nest>"));
    assert_null(strstr(s.text, "simt, winograd"));
    assert_int_equal(sol_config_set(ctx, "device", "far:9"), SOL_OK);
    assert_int_equal(list().selected, 0);
    assert_int_equal(sol_config_set(ctx, "device", "auto"), SOL_OK);
}

static void a_device_that_is_not_there_is_rejected(void **state)
{
    static const char *const bad[][2] = {{"board", "there is no 'board'; there are "},
                                         {"cpu:1", "there is no 'cpu:1'"},
                                         {"cpu:", "there is no 'cpu:'"},
                                         {"cpu:x", "there is no 'cpu:x'"},
                                         {"riscv64:0", "it is not there: this machine is "}};
    (void)state;
    for (int i = 0; i < COUNT_OF(bad); i++) {
        assert_int_equal(sol_device_select(ctx, bad[i][0]), SOL_ERR_UNSUPPORTED);
        if (!strstr(sol_error(ctx), bad[i][1])) fail_msg("%s: %s", bad[i][0], sol_error(ctx));
    }
    assert_string_equal(sol_config_get(ctx, "device"), "auto");
    assert_int_equal(sol_device_select(ctx, "cpu:0"), SOL_OK);
    assert_int_equal(sol_device_select(ctx, "auto"), SOL_OK);
}

static void plugins_add_types(void **state)
{
    (void)state;
    assert_int_equal(sol_config_set(ctx, "device::options", "absent.boar=x,absent.board=mine,other=y"), SOL_OK);
    assert_int_equal(sol_config_set(ctx, "device::plugins", "/nowhere.so:"), SOL_OK);
    assert_non_null(strstr(list().text, "plug-in:0 /nowhere.so [] no such file|"));
    assert_int_equal(sol_device_select(ctx, "mine"), SOL_ERR_UNSUPPORTED);
    assert_non_null(strstr(sol_error(ctx), "; the plug-in /nowhere.so cannot be used: no such file"));
    char both[512];
    snprintf(both, sizeof both, "/nowhere.so:%s:%s", plugin_path, plugin_path);
    assert_int_equal(sol_config_set(ctx, "device::plugins", both), SOL_OK);
    const struct seen s = list();
    assert_non_null(strstr(s.text, ">absent:0  [abscc 1.0] no board 'mine'; code for it can be made|"));
    assert_non_null(strstr(s.text, "expected version 1 of sol/device.h"));
    assert_non_null(strstr(s.text, "struct sol_device_type: `flavour` is missing, which its features need|"));
    assert_null(strstr(strstr(s.text, "absent:0") + 1, "absent:0")); /* named twice, opened once */
    assert_int_equal(sol_device_select(ctx, "absent"), SOL_ERR_UNSUPPORTED);
    assert_string_equal(sol_error(ctx), "device absent: it is not there: no board 'mine'; code for it can be made");
}

/* The exit status of sol-device-test, whose output must contain `text`. */
static int checker(const char *arguments, const char *text)
{
    char command[1000], out[4000] = "";
    snprintf(command, sizeof command, BUILD_ROOT "/../cli/sol-device-test %s 2>&1", arguments);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    out[fread(out, 1, sizeof out - 1, f)] = 0;
    const int status = pclose(f);
    if (!WIFEXITED(status) || !strstr(out, text)) fail_msg("%s", out);
    return WEXITSTATUS(status);
}

/* Good is only what was checked. */
static void the_checker_checks_something(void **state)
{
    (void)state;
    assert_int_equal(checker("-k no_such_check far", "no check contains 'no_such_check'"), 2);
    assert_int_equal(checker(BUILD_ROOT "/libsol_empty_plugin.so", "it has no device type"), 1);
    assert_int_equal(checker("-k info far", "1 ok, 0 wrong"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_processor_is_a_device),
        cmocka_unit_test(a_device_that_is_not_there_is_rejected),
        cmocka_unit_test(plugins_add_types),
        cmocka_unit_test(the_checker_checks_something),
    };
    return cmocka_run_group_tests(tests, make_ctx, drop_ctx);
}
