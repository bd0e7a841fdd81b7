/* Devices: the list of types, built in and of plug-ins, and which one is selected. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* What a compiler says begins at its first error, and is cut behind a whole line, or a whole word. */
static void long_logs_are_cut(void **state)
{
    static const char line[] = "x.cl:8:1: error: a line of forty characters";
    struct sol_failure why = failure_new();
    struct sol_blob log = {.size = sizeof log};
    char *said = strdup("x.cl:7:2: warning: not this\n"), *end;
    (void)state;
    said = realloc(said, 5000);
    for (int i = 0; i < 50; i++) strcat(strcat(said, line), "\n");
    assert_int_equal(failure_rejected(&why, "cc", said, &log), SOL_ERR_COMPILER);
    assert_ptr_equal(log.data, said); /* all of it is kept */
    assert_memory_equal(why.text, "cc: x.cl:8:1: error", 19);
    end = why.text + strlen(why.text);
    assert_true(end - why.text < (int)sizeof why.text && end - why.text > (int)sizeof why.text - 60);
    assert_memory_equal(end - 2 - sizeof line, line, sizeof line - 1);
    assert_string_equal(end - 3, "\n..");
    for (int i = 0; i < 2000; i++) said[i] = "error: letters "[i % 15];
    said[2000] = 0;
    failure_rejected(&why, "cc", said, NULL); /* frees it */
    end = why.text + strlen(why.text);
    assert_true(strstr(end - 10, "letters ..") || strstr(end - 10, "error: ..")); /* no part of a word */
    failure_rejected(&why, "cc", strdup("error: short\n"), NULL);
    assert_string_equal(why.text, "cc: error: short");
    failure_rejected(&why, "cc", NULL, NULL);
    assert_string_equal(why.text, "cc: out of memory");
}

/* Who lists devices gets those of other drivers, and does not wait again before the driver has come back. */
static void a_driver_hangs(void **state)
{
    (void)state;
    assert_int_equal(sol_config_set(ctx, "device::plugins", plugin_path), SOL_OK);
    assert_int_equal(sol_config_set(ctx, "device::options", "absent.hang=2500"), SOL_OK);
    assert_int_equal(sol_config_set(ctx, "device::timeout", "1"), SOL_OK);
    const int64_t start = clock_ns();
    const struct seen s = list();
    assert_true(s.there >= 1);
    assert_non_null(strstr(s.text, "absent:0  [] its driver hangs: the count of its devices has not ended yet"));
    assert_int_equal(sol_device_select(ctx, "absent"), SOL_ERR_UNSUPPORTED);
    assert_non_null(strstr(sol_error(ctx), "its driver hangs: the count of its devices has not ended yet"));
    assert_non_null(strstr(list().text, "absent:0  [] its driver hangs"));
    assert_true(clock_ns() - start < 2500000000);
    assert_int_equal(sol_config_set(ctx, "device::options", ""), SOL_OK);
    while (strstr(list().text, "its driver hangs")) usleep(10000);
    assert_non_null(strstr(list().text, "no board ''; code for it can be made|"));
    assert_int_equal(sol_config_set(ctx, "device::timeout", "0"), SOL_OK);
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
        cmocka_unit_test(long_logs_are_cut),
        cmocka_unit_test(a_driver_hangs),
        cmocka_unit_test(the_checker_checks_something),
    };
    return cmocka_run_group_tests(tests, make_ctx, drop_ctx);
}
