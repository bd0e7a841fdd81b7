/* The cache: damaged and truncated files, missing permissions, full disks, other processes, kill -9. Problems with the
 * cache cost time but never change a result. */
#include "build_place.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

/* -- damage */

static void damaged_files_are_built_again(void **state)
{
    struct place *p = *state;
    build_and_run(p);
    compiler_runs(p);
    shell("for f in '%s'/x86/modules/*.so; do printf XXXX | dd of=$f bs=1 seek=400 conv=notrunc 2>/dev/null; done",
          p->cache);
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 2); /* the objects are good */
    shell("for f in '%s'/x86/*/*; do truncate -s 100 $f; done", p->cache);
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 4);
    shell("rm '%s'/x86/*/*", p->cache);
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 4);
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 0);
}

static void damaged_facts_are_found_out_again(void **state)
{
    struct place *p = *state;
    const char *const damage[] = {"for f in '%s'/facts/*; do echo nonsense >$f; done", "truncate -s 40 '%s'/facts/*",
                                  "for f in '%s'/facts/*; do : >$f; done", "rm '%s'/facts/*", "rm -r '%s/facts'"};
    for (int i = 0; i < COUNT_OF(damage); i++) {
        build_and_run(p);
        shell(damage[i], p->cache);
        build_and_run(p);
        compiler_runs(p);
        build_and_run(p);
        assert_int_equal(compiler_runs(p), 0);
    }
}

/* Flips a bit of every file, at another position in each round. */
static void every_file_is_damaged_in_turn(void **state)
{
    struct place *p = *state;
    char list[96], path[160];
    unsigned seed = 1;
    snprintf(list, sizeof list, "%s/list", p->folder);
    for (int round = 0; round < 6; round++) {
        build_and_run(p);
        shell("find '%s' -type f ! -name CACHEDIR.TAG | sort >'%s'", p->cache, list);
        FILE *names = fopen(list, "r");
        assert_non_null(names);
        while (fgets(path, sizeof path, names)) {
            path[strcspn(path, "\n")] = 0;
            for (int i = 0; i < 2; i++) {
                FILE *f = fopen(path, "r+b");
                if (!f) continue;
                fseek(f, 0, SEEK_END);
                const long bytes = ftell(f), at = bytes ? (long)((seed = seed * 1103515245 + 12345) >> 8) % bytes : 0;
                fseek(f, at, SEEK_SET);
                const int c = fgetc(f);
                fseek(f, at, SEEK_SET);
                fputc(c ^ 1 << (seed >> 4) % 8, f);
                fclose(f);
                build_and_run(p);
            }
        }
        fclose(names);
    }
    assert_int_equal(sol_cache_clear(p->ctx), SOL_OK);
    build_and_run(p);
    compiler_runs(p);
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 0);
}

/* Rebuilding a module while it is mapped writes a new file, so the old code does not change. */
static void a_mapped_module_may_be_replaced(void **state)
{
    struct place *p = *state;
    struct module m;
    assert_int_equal(try_build(p, &m), SOL_OK);
    shell("rm -r '%s/x86'", p->cache);
    build_and_run(p);
    assert_int_equal(sol_cache_clear(p->ctx), SOL_OK);
    assert_int_equal(run_module(m.table), 0);
    module_close(&m);
}

/* Each round uses other kernels. The cache stays at the size of a few builds and keeps what was used last. */
static void the_cache_has_a_limit(void **state)
{
    struct place *p = *state;
    static char pad[1 << 20];
    struct build_data large = {pad, sizeof pad};
    sol_config_set(p->ctx, "cache::limit", "4");
    p->r.data = &large;
    memcpy(pad, datum, sizeof datum);
    for (int i = 0; i < 12; i++) {
        pad[sizeof pad - 1] = (char)i;
        build_and_run(p);
    }
    shell("test $(ls '%s'/x86/modules | wc -l) -le 5", p->cache);
    compiler_runs(p);
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 0);
    sol_config_set(p->ctx, "cache::limit", "0");
    for (int i = 0; i < 2; i++) {
        pad[sizeof pad - 1] = (char)(20 + i);
        build_and_run(p);
    }
    shell("test $(ls '%s'/x86/modules | wc -l) = 1", p->cache);
}

/* -- permissions and space. Root may write anything, so these run as another user. */

static int as_nobody(struct place *p, int (*what)(struct place *))
{
    pid_t child = fork();
    if (!child) {
        if (geteuid() == 0) {
            shell("chown -R 65534 '%s'", p->folder);
            if (setgid(65534) || setuid(65534)) _exit(99);
        }
        _exit(what(p));
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}

static int in_read_only_folder(struct place *p)
{
    setenv("TMPDIR", p->folder, 1);
    if (build_quietly(p) || compiler_runs(p) != 4) return 10;
    shell("chmod -R a-w '%s'", p->cache);
    if (build_quietly(p) || compiler_runs(p) != 0) return 11; /* its contents are usable */
    p->r.name = "other";
    p->r.nkernel = 2;
    char other[sizeof module_text + 16];
    snprintf(other, sizeof other, "%s/* other */", module_text);
    p->r.module = other;
    if (build_quietly(p) || compiler_runs(p) != 2) return 12;
    if (build_quietly(p) || compiler_runs(p) != 0) return 13; /* it is in the temporary folder now */
    shell("chmod -R u+w '%s'", p->cache);
    return 0;
}

static void read_only_folder(void **state)
{
    assert_int_equal(as_nobody(*state, in_read_only_folder), 0);
}

static int in_folder_of_others(struct place *p)
{
    setenv("TMPDIR", p->folder, 1);
    if (build_quietly(p)) return 10;
    compiler_runs(p);
    chmod(p->cache, 0777);
    if (build_quietly(p) || compiler_runs(p) != 4) return 11; /* not trusted */
    chmod(p->cache, 0755);
    if (build_quietly(p) || compiler_runs(p) != 0) return 12;
    sol_config_set(p->ctx, "cache::folder", "/"); /* owned by root */
    if (build_quietly(p) || compiler_runs(p) != 0) return 13;
    sol_config_set(p->ctx, "cache::folder", "/proc/no/such");
    if (build_quietly(p) || compiler_runs(p) != 0) return 14;
    return 0;
}

static void folders_that_others_can_write_are_not_used(void **state)
{
    assert_int_equal(as_nobody(*state, in_folder_of_others), 0);
}

/* No module can be written to the cache, as on a full disk, but for this process only: the limit is above sources and
 * below shared objects. A script lifts it for compilers. */
static void a_full_disk_costs_time_only(void **state)
{
    struct place *p = *state;
    pid_t child = fork();
    if (!child) {
        signal(SIGXFSZ, SIG_IGN);
        make_compiler(p, "ulimit -S -f unlimited");
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){12288, RLIM_INFINITY});
        const int wrong = build_quietly(p);
        _exit(wrong);
    }
    int status = 0;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    build_and_run(p);
}

/* Disks of a few KiB, which become full at different points of a build. Only root may mount them, in its own
 * namespace. */
static int on_small_disks(struct place *p)
{
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)) return 77;
    if (mkdir(p->cache, 0755)) return 70;
    for (int kb = 4; kb <= 64; kb += 12) {
        char options[64];
        snprintf(options, sizeof options, "size=%dk,mode=0755", kb);
        if (mount("tmpfs", p->cache, "tmpfs", 0, options)) return 77;
        for (int again = 0; again < 2; again++)
            if (build_quietly(p)) return kb;
        umount(p->cache);
    }
    return 0;
}

static void small_disks_cost_time_only(void **state)
{
    pid_t child = fork();
    if (!child) _exit(on_small_disks(*state));
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("skipped: only root can mount a small disk\n");
        skip();
    }
    assert_int_equal(status, 0);
}

/* -- other processes */

static void processes_at_once(void **state)
{
    struct place *p = *state;
    pid_t child[4];
    for (int i = 0; i < 4; i++) {
        child[i] = fork();
        if (child[i]) continue;
        struct sol_ctx *ctx = p->ctx = new_context(p);
        int wrong = 0;
        for (int k = 0; k < 3; k++) wrong |= build_quietly(p);
        sol_ctx_destroy(ctx);
        _exit(wrong);
    }
    for (int i = 0; i < 4; i++) {
        int status;
        waitpid(child[i], &status, 0);
        assert_int_equal(status, 0);
    }
    compiler_runs(p);
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 0);
}

/* The process is killed at many different moments. The next one must use what is left correctly, or not at all. */
static void killed_while_building(void **state)
{
    struct place *p = *state;
    for (int i = 0; i < 12; i++) {
        pid_t child = fork();
        if (!child) _exit(build_quietly(p));
        nanosleep(&(struct timespec){.tv_nsec = 1000000 + i * 23000000L}, NULL);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        if (i % 4 == 3) {
            build_and_run(p);
            assert_int_equal(sol_cache_clear(p->ctx), SOL_OK);
        }
    }
    build_and_run(p);
    compiler_runs(p);
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 0);
}

static void *thread_main(void *arg)
{
    struct place mine = *(struct place *)arg;
    return (void *)(uintptr_t)build_quietly(&mine);
}

static void threads_at_once(void **state)
{
    pthread_t thread[3];
    for (int i = 0; i < 3; i++) pthread_create(&thread[i], NULL, thread_main, *state);
    for (int i = 0; i < 3; i++) {
        void *wrong;
        pthread_join(thread[i], &wrong);
        assert_null(wrong);
    }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(damaged_files_are_built_again),
        TEST(damaged_facts_are_found_out_again),
        TEST(every_file_is_damaged_in_turn),
        TEST(a_mapped_module_may_be_replaced),
        TEST(the_cache_has_a_limit),
        TEST(read_only_folder),
        TEST(folders_that_others_can_write_are_not_used),
        TEST(a_full_disk_costs_time_only),
        TEST(small_disks_cost_time_only),
        TEST(processes_at_once),
        TEST(killed_while_building),
        TEST(threads_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
