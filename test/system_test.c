/* What base asks of the operating system: processes and files. */
#include "base/base.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base_fixture.h"

/* -- processes */

static int run(struct fixture *f, const char *program, const char *script, const char **output)
{
    const char *const argv[] = {program, "-c", script, NULL};
    struct process *p;
    assert_int_equal(process_start(f->ctx, argv, &p), SOL_OK);
    int code = -1;
    const char *text;
    assert_int_equal(process_wait(f->ctx, p, &code, &text), SOL_OK);
    assert_true(process_done(p));
    *output = arena_strdup(f->a, text);
    process_free(f->ctx, p);
    return code;
}

static void processes_report(void **state)
{
    struct fixture *f = *state;
    const char *output;
    assert_int_equal(run(f, "sh", "echo out; echo err >&2; exit 3", &output), 3);
    assert_string_equal(output, "out\nerr\n");
    assert_int_equal(run(f, "sh", "kill -9 $$", &output), 128 + SIGKILL);
    assert_int_equal(run(f, "sh", "read x || echo no input", &output), 0);
    assert_string_equal(output, "no input\n");
    assert_int_equal(run(f, "sh", "head -c 3000000 /dev/zero | tr '\\0' x", &output), 0);
    assert_int_equal(strlen(output), (1 << 20) - 1);
}

static void missing_program_is_said(void **state)
{
    struct fixture *f = *state;
    const char *const argv[] = {"there-is-no-such-program", NULL};
    struct process *p;
    assert_int_equal(process_start(f->ctx, argv, &p), SOL_ERR_IO);
    assert_null(p);
    assert_non_null(strstr(sol_error(f->ctx), "there-is-no-such-program"));
    assert_non_null(strstr(sol_error(f->ctx), "No such file"));
}

/* The marker file is what the killed program would have written. */
static void freeing_kills(void **state)
{
    struct fixture *f = *state;
    char *marker = arena_printf(f->a, "%s/alive", f->folder);
    char *script = arena_printf(f->a, "(sleep 0.3; touch %s) & wait", marker);
    const char *const argv[] = {"sh", "-c", script, NULL};
    struct process *p;
    assert_int_equal(process_start(f->ctx, argv, &p), SOL_OK);
    assert_false(process_done(p));
    process_free(f->ctx, p);
    usleep(500000);
    assert_false(file_exists(marker)); /* the child's own children died with it */
}

static int open_files(void)
{
    int n = 0;
    for (int fd = 0; fd < 256; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void processes_leak_no_files(void **state)
{
    struct fixture *f = *state;
    const char *output, *mine = arena_printf(f->a, "%s/mine", f->folder);
    int before = open_files();
    run(f, "sh", "true", &output);
    const char *const argv[] = {"there-is-no-such-program", NULL};
    struct process *p;
    process_start(f->ctx, argv, &p);
    assert_int_equal(open_files(), before);
    int own = open(mine, O_CREAT | O_RDWR | O_CLOEXEC, 0600), handed_on = 0;
    for (int fd = 3; fd < 256; fd++) handed_on += fcntl(fd, F_GETFD) == 0; /* descriptors that this process inherited */
    run(f, "sh", "ls /proc/self/fd | wc -l", &output);
    close(own);
    assert_int_equal(atoi(output), 4 + handed_on); /* ls's three standard descriptors and the folder that it opens */
}

static int always(void *user)
{
    (void)user;
    return 1;
}

static void waiting_can_be_interrupted(void **state)
{
    (void)state;
    struct sol_ctx_options o = {.size = sizeof o, .interrupted = always};
    struct sol_ctx *ctx;
    assert_int_equal(sol_ctx_create(&o, &ctx), SOL_OK);
    const char *const argv[] = {"sleep", "20", NULL};
    struct process *p;
    int64_t start = clock_ns();
    assert_int_equal(process_start(ctx, argv, &p), SOL_OK);
    assert_int_equal(process_wait(ctx, p, NULL, NULL), SOL_ERR_INTERRUPTED);
    process_free(ctx, p);
    assert_true(clock_ns() - start < 5000000000);
    sol_ctx_destroy(ctx);
}

static void reap(int number)
{
    (void)number;
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
}

/* Exit codes are right whatever the application does with SIGCHLD. */
static void applications_do_as_they_like_with_their_children(void **state)
{
    struct fixture *f = *state;
    const char *usual; /* a failing child is reported, and no descriptor leaks */
    run(f, "sh", "(exit 3); echo $?; ls /proc/self/fd | wc -l", &usual);
    static const struct sigaction actions[] = {
        {.sa_handler = SIG_IGN}, {.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT}, {.sa_handler = reap}};
    for (int i = 0; i < COUNT_OF(actions); i++) {
        struct sigaction before;
        const char *output, *const strange[] = {"printf", "%s|", "a b", "$HOME", "'\"`;", "", NULL};
        struct process *p;
        int exit = -1;
        assert_int_equal(sigaction(SIGCHLD, &actions[i], &before), 0);
        const int code = run(f, "sh", "exit 7", &output);
        const int inner = run(f, "sh", "(exit 3); echo $?; ls /proc/self/fd | wc -l", &output);
        const int killed = run(f, "sh", "kill -9 $$", &(const char *){0});
        assert_int_equal(process_start(f->ctx, strange, &p), SOL_OK);
        assert_int_equal(process_wait(f->ctx, p, &exit, &(const char *){0}), SOL_OK);
        while (!process_done(p)) {
        }
        assert_int_equal(sigaction(SIGCHLD, &before, NULL), 0);
        assert_int_equal(code, 7);
        assert_int_equal(killed, 128 + SIGKILL);
        assert_int_equal(inner, 0);
        assert_string_equal(output, usual);
        assert_int_equal(process_wait(f->ctx, p, &exit, &output), SOL_OK);
        assert_string_equal(output, "a b|$HOME|'\"`;||");
        assert_int_equal(exit, 0);
        process_free(f->ctx, p);
    }
}

/* -- files */

static void files_come_back(void **state)
{
    struct fixture *f = *state;
    char *path = arena_printf(f->a, "%s/a/b/c", f->folder), *file = arena_printf(f->a, "%s/file", path), *data;
    size_t n;
    assert_int_equal(file_make_folder(f->ctx, path), SOL_OK);
    assert_int_equal(file_make_folder(f->ctx, path), SOL_OK);
    assert_false(file_exists(file));
    assert_int_equal(file_write(f->ctx, file, "one\0two", 7), SOL_OK);
    assert_int_equal(file_read(f->ctx, f->a, file, &data, &n), SOL_OK);
    assert_int_equal(n, 7);
    assert_memory_equal(data, "one\0two", 8); /* terminated */
    assert_int_equal(file_write(f->ctx, file, "", 0), SOL_OK);
    assert_int_equal(file_read(f->ctx, f->a, file, &data, &n), SOL_OK);
    assert_int_equal(n, 0);
    assert_int_equal(file_make_folder(f->ctx, file), SOL_ERR_IO);
    assert_int_equal(file_read(f->ctx, f->a, path, &data, &n), SOL_ERR_IO);
    assert_int_equal(file_read(f->ctx, f->a, "/nowhere/x", &data, &n), SOL_ERR_IO);
    assert_null(data);
}

static int files_in(struct fixture *f, const char *folder)
{
    const char *output;
    run(f, "sh", arena_printf(f->a, "ls -A %s | wc -l", folder), &output);
    return atoi(output);
}

static void a_failed_write_leaves_nothing(void **state)
{
    struct fixture *f = *state;
    char *folder = arena_printf(f->a, "%s/x", f->folder), *taken = arena_printf(f->a, "%s/taken", folder);
    assert_int_equal(file_make_folder(f->ctx, taken), SOL_OK);
    assert_int_equal(file_write(f->ctx, taken, "x", 1), SOL_ERR_IO); /* rename onto a folder fails */
    assert_int_equal(files_in(f, folder), 1);
    assert_int_equal(file_write(f->ctx, arena_printf(f->a, "%s/no/file", folder), "x", 1), SOL_ERR_IO);
    assert_non_null(strstr(sol_error(f->ctx), "/no/file"));
}

static void a_full_disk_keeps_the_old_file(void **state)
{
    struct fixture *f = *state;
    char *file = arena_printf(f->a, "%s/file", f->folder), *large = arena_alloc(f->a, 1 << 20), *data;
    assert_int_equal(file_write(f->ctx, file, "old", 3), SOL_OK);
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    limit =
        (struct rlimit){.rlim_cur = 4096, .rlim_max = before.rlim_max}; /* write stops half way, as on a full disk */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    sol_status status = file_write(f->ctx, file, large, 1 << 20);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, SOL_ERR_IO);
    assert_int_equal(files_in(f, f->folder), 1);
    size_t n;
    assert_int_equal(file_read(f->ctx, f->a, file, &data, &n), SOL_OK);
    assert_string_equal(data, "old");
}

static void a_read_only_folder_is_said(void **state)
{
    struct fixture *f = *state;
    if (!geteuid()) return; /* root may write anywhere */
    char *folder = arena_printf(f->a, "%s/closed", f->folder);
    assert_int_equal(mkdir(folder, 0555), 0);
    assert_int_equal(file_write(f->ctx, arena_printf(f->a, "%s/f", folder), "x", 1), SOL_ERR_IO);
    assert_non_null(strstr(sol_error(f->ctx), "Permission denied"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {T(processes_report),
                                       T(missing_program_is_said),
                                       T(freeing_kills),
                                       T(processes_leak_no_files),
                                       T(waiting_can_be_interrupted),
                                       T(applications_do_as_they_like_with_their_children),
                                       T(files_come_back),
                                       T(a_failed_write_leaves_nothing),
                                       T(a_full_disk_keeps_the_old_file),
                                       T(a_read_only_folder_is_said)};
    return cmocka_run_group_tests_name("system", tests, NULL, NULL);
}
