/* Rt: programs with many steps give the same bits for any number of workers and any team, from several threads at once,
 * nested, in a child process, with errors, and with host steps. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "rt/rt.h"

/* The runtime for processors without an operating system. */
int32_t bare_run(const struct rt_call *c, int32_t *out_step);
#define rt_run bare_run
#include "../src/deploy/texts/rt_bare.c"
#undef rt_run

enum { CELLS = 64, STEPS = 40 };

/* Mixes all cells of the other half into each cell, so a step that starts before the last one ended is detected. */
static void mix(char *const *p, const struct sol_frame *f, int64_t task0, int64_t task1, int worker)
{
    (void)worker;
    const uint64_t *from = (const uint64_t *)p[0];
    uint64_t *to = (uint64_t *)p[1];
    for (int64_t i = task0; i < task1; i++) {
        uint64_t sum = (uint64_t)(i + f->step);
        for (int k = 0; k < CELLS; k++) sum = sum * 6364136223846793005u + from[k];
        to[i] = sum;
    }
}

/* Uses its worker's scratch, so the test fails if two workers share it. */
static void through_scratch(char *const *p, const struct sol_frame *f, int64_t task0, int64_t task1, int worker)
{
    uint64_t *mine = (uint64_t *)((char *)f->scratch + worker * f->scratch_bytes);
    const uint64_t *from = (const uint64_t *)p[0];
    for (int64_t i = task0; i < task1; i++) {
        for (int k = 0; k < CELLS; k++) mine[k] = from[k] ^ (uint64_t)i;
        uint64_t sum = 0;
        for (int k = 0; k < CELLS; k++) sum = sum * 31 + mine[k];
        ((uint64_t *)p[1])[i] = sum;
    }
}

static void fails(char *const *p, const struct sol_frame *f, int64_t task0, int64_t task1, int worker)
{
    (void)p, (void)task1, (void)worker;
    if (task0 > 0 || *f->error) return;
    *f->error_step = f->step;
    *f->error = SOL_KERNEL_INDEX;
}

static int32_t on_host(void *user, int32_t call, char *const *p)
{
    ++*(int *)user;
    ((uint64_t *)p[1])[0] = ((const uint64_t *)p[0])[0] + (uint64_t)call;
    return call == 99 ? 1234 : 0;
}

/* Buffers 0 and 1 alternate; steps have 64, 1, 3 and 0 tasks, and one is a host step. */
static const struct sol_operand places[] = {{0, 0}, {1, 0}, {1, 0}, {0, 0}};

static void fill(struct sol_step *step)
{
    static const int64_t tasks[] = {CELLS, CELLS, 1, 1, 3, CELLS, 1, 0, CELLS};
    for (int i = 0; i < STEPS; i++) {
        step[i] = (struct sol_step){.run = i % 5 == 2 ? through_scratch : mix,
                                    .tasks = tasks[i % 9],
                                    .place0 = i % 2 ? 2 : 0,
                                    .places = 2,
                                    .label = "step"};
    }
    step[11].kind = SOL_STEP_HOST;
    step[11].run = NULL;
    step[11].tasks = CELLS;
    step[11].call = 7;
}

struct result {
    uint64_t cells[2][CELLS];
    int32_t error, error_step;
    int host_calls;
};

static void run_on(const struct sol_step *step, int threads, const struct rt_team *team, struct result *out)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < CELLS; i++) out->cells[0][i] = (uint64_t)i * 77;
    const struct sol_program program = {STEPS, 4, step, places, 0, sizeof(uint64_t) * CELLS, 0, NULL};
    char *base[2] = {(char *)out->cells[0], (char *)out->cells[1]}, *operands[4];
    uint64_t scratch[16][CELLS];
    const struct rt_call call = {.program = &program,
                                 .base = base,
                                 .operands = operands,
                                 .scratch = scratch,
                                 .threads = threads,
                                 .team = team,
                                 .host = on_host,
                                 .host_user = &out->host_calls};
    out->error = rt_run(&call, &out->error_step);
}

static void expected(struct result *out)
{
    struct sol_step step[STEPS];
    fill(step);
    run_on(step, 1, NULL, out);
}

static void same_bits_for_every_number_of_workers(void **state)
{
    (void)state;
    struct sol_step step[STEPS];
    fill(step);
    struct result want, got;
    expected(&want);
    assert_int_equal(want.host_calls, 1);
    for (int threads = 1; threads <= 8; threads++)
        for (int again = 0; again < 10; again++) {
            run_on(step, threads, NULL, &got);
            assert_memory_equal(&want, &got, sizeof got);
        }
}

/* A team may have fewer workers than requested. */
static void only_one(void *user, int n, void (*fn)(void *, int, int), void *arg)
{
    *(int *)user = n;
    fn(arg, 0, 1);
}

static void a_team_may_be_smaller(void **state)
{
    (void)state;
    struct sol_step step[STEPS];
    fill(step);
    struct result want, got;
    expected(&want);
    int asked = 0;
    const struct rt_team team = {only_one, &asked};
    run_on(step, 6, &team, &got);
    assert_memory_equal(&want, &got, sizeof got);
    assert_int_equal(asked, 6);
    for (int i = 0; i < STEPS; i++) step[i].tasks = step[i].tasks > 3 ? 3 : step[i].tasks;
    asked = 0;
    run_on(step, 6, &team, &got);
    assert_int_equal(asked, 3); /* not more workers than tasks */
    for (int i = 0; i < STEPS; i++) step[i].tasks = 1;
    asked = 0;
    run_on(step, 6, &team, &got);
    assert_int_equal(asked, 0); /* no region at all */
}

static void the_openmp_runtime_of_the_process(void **state)
{
    (void)state;
    const struct rt_team *team = rt_team_openmp();
    if (!team) skip(); /* no OpenMP runtime is loaded; test/python runs this inside PyTorch */
    struct sol_step step[STEPS];
    fill(step);
    struct result want, got;
    expected(&want);
    for (int threads = 1; threads <= 8; threads++) {
        run_on(step, threads, team, &got);
        assert_memory_equal(&want, &got, sizeof got);
    }
}

static void *caller(void *arg)
{
    struct sol_step step[STEPS];
    fill(step);
    struct result want, got;
    expected(&want);
    for (int i = 0; i < 200; i++) {
        run_on(step, 1 + i % 4, NULL, &got);
        if (memcmp(&want, &got, sizeof got)) *(int *)arg = 1;
    }
    return NULL;
}

static void many_threads_call_at_once(void **state)
{
    (void)state;
    pthread_t thread[6];
    int wrong[6] = {0};
    for (int i = 0; i < 6; i++) assert_int_equal(pthread_create(&thread[i], NULL, caller, &wrong[i]), 0);
    for (int i = 0; i < 6; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(wrong[i], 0);
    }
}

static int32_t run_inside(void *user, int32_t call, char *const *p)
{
    (void)call, (void)p;
    struct sol_step step[STEPS];
    fill(step);
    run_on(step, 2, NULL, user);
    return 0;
}

static void a_host_step_may_run_a_program(void **state)
{
    (void)state;
    struct result want, got;
    expected(&want);
    const struct sol_step step[] = {{.run = mix, .tasks = 8, .places = 2},
                                    {.kind = SOL_STEP_HOST, .tasks = 1, .places = 2}};
    const struct sol_program program = {2, 4, step, places, 0, 0, 0, NULL};
    uint64_t cells[2][CELLS] = {0};
    char *base[2] = {(char *)cells[0], (char *)cells[1]}, *operands[4];
    const struct rt_call call = {
        .program = &program, .base = base, .operands = operands, .threads = 2, .host = run_inside, .host_user = &got};
    assert_int_equal(rt_run(&call, NULL), 0);
    assert_memory_equal(&want, &got, sizeof got);
}

static void a_child_starts_its_own_pool(void **state)
{
    (void)state;
#if defined __SANITIZE_THREAD__
    skip(); /* the sanitizer does not support threads after a fork */
#endif
    struct sol_step step[STEPS];
    fill(step);
    struct result want, got;
    expected(&want);
    run_on(step, 3, NULL, &got); /* now this process has a pool */
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        alarm(20);
        int wrong = rt_team_openmp() != NULL;
        for (int i = 0; i < 20; i++) {
            run_on(step, 3, NULL, &got);
            wrong |= memcmp(&want, &got, sizeof got) != 0;
        }
        _exit(wrong);
    }
    int status = 0;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    run_on(step, 3, NULL, &got);
    assert_memory_equal(&want, &got, sizeof got);
}

static void errors_name_their_step(void **state)
{
    (void)state;
    struct sol_step step[STEPS];
    struct result got;
    for (int threads = 1; threads <= 3; threads++) {
        fill(step);
        step[23].run = fails;
        run_on(step, threads, NULL, &got);
        assert_int_equal(got.error, SOL_KERNEL_INDEX);
        assert_int_equal(got.error_step, 23);
        fill(step);
        step[11].call = 99;
        run_on(step, threads, NULL, &got);
        assert_int_equal(got.error, 1234);
        assert_int_equal(got.error_step, 11);
        fill(step);
        step[2].run = fails; /* the host is not called any more */
        run_on(step, threads, NULL, &got);
        assert_int_equal(got.host_calls, 0);
    }
}

/* Each worker reports a different error; the one with the lowest tasks is the last. */
static void fails_by_task(char *const *p, const struct sol_frame *f, int64_t task0, int64_t task1, int worker)
{
    (void)p, (void)task1, (void)worker;
    if (!task0) nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    if (*f->error) return;
    *f->error_step = f->step;
    *f->error = task0 ? SOL_KERNEL_PLUGIN : SOL_KERNEL_INDEX;
}

static void the_error_of_one_worker_is_the_error_of_all(void **state)
{
    (void)state;
    struct sol_step step[STEPS];
    struct result got;
    for (int threads = 1; threads <= 4; threads++) {
        fill(step);
        step[9].run = step[10].run = fails_by_task;
        run_on(step, threads, NULL, &got);
        assert_int_equal(got.error, SOL_KERNEL_INDEX);
        assert_int_equal(got.error_step, 9);
    }
}

/* -- processors */

static int processors_of_machine; /* 0: the real number */

/* Replaces libc's function: a machine with this many processors, all of them allowed. */
int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set)
{
    (void)pid;
    const int n = processors_of_machine ? processors_of_machine : 2;
    if (bytes * 8 < (size_t)n) {
        errno = EINVAL;
        return -1;
    }
    memset(set, 0, bytes);
    for (int i = 0; i < n; i++) CPU_SET_S(i, bytes, set);
    return 0;
}

static void more_processors_than_libc_has_room_for(void **state)
{
    (void)state;
    pid_t child = fork(); /* each process determines the number only once */
    if (!child) {
        processors_of_machine = 3000;
        const int quota = rt_quota(""), n = rt_processors();
        _exit(n != (quota && quota < 3000 ? quota : 3000));
    }
    int status = 0;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
}

static char root[64];

static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = 0;
        mkdir(full, 0755);
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

#define MOUNT "1 0 0:2 / / rw - ext4 /dev/sda rw\n"
static const struct {
    const char *mounts, *groups;
    const char *file[4][2];
    int quota;
} machines[] = {
    /* no cgroup has a limit */
    {MOUNT "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n", "0::/\n", {{NULL}}, 0},
    {MOUNT "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n",
     "0::/a/b\n",
     {{"/sys/fs/cgroup/a/b/cpu.max", "max 100000\n"}},
     0},
    /* a service in a slice with a lower limit; 2.5 is rounded up to 3 */
    {MOUNT "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n",
     "0::/slice/some service\n",
     {{"/sys/fs/cgroup/slice/some service/cpu.max", "400000 100000\n"},
      {"/sys/fs/cgroup/slice/cpu.max", "250000 100000\n"},
      {"/sys/fs/cgroup/other/cpu.max", "100000 100000\n"}},
     3},
    /* a container that sees its cgroup as the root */
    {MOUNT "30 24 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
     "0::/\n",
     {{"/sys/fs/cgroup/cpu.max", "50000 100000\n"}},
     1},
    /* v1: the cgroup of the controller, below the mounted subtree */
    {MOUNT "33 32 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
           "34 32 0:30 /docker/12 /sys/fs/cgroup/cpu,cpuacct ro master:5 - cgroup cgroup rw,cpu,cpuacct\n",
     "7:memory:/docker/12\n4:cpuset:/no\n3:cpu,cpuacct:/docker/12/job\n1:name=systemd:/x\n0::/x\n",
     {{"/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n"},
      {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "20000\n"},
      {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "10000\n"}},
     2},
    /* both versions, and a cgroup outside of the mounted subtree */
    {MOUNT "34 32 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
           "35 32 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup rw\n",
     "3:cpu:/job\n0::/\n",
     {{"/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "500000\n"},
      {"/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n"},
      {"/sys/fs/cgroup/unified/cpu.max", "600000 100000\n"}},
     5},
    {MOUNT "30 24 0:26 /docker/12 /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
     "0::/elsewhere\n",
     {{"/sys/fs/cgroup/cpu.max", "700000 100000\n"}},
     7},
};

static void quotas_of_all_groups_hold(void **state)
{
    (void)state;
    char command[128];
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        strcpy(root, "/tmp/sol-rt-test-XXXXXX");
        assert_non_null(mkdtemp(root));
        put("/proc/self/mountinfo", machines[i].mounts);
        put("/proc/self/cgroup", machines[i].groups);
        for (int k = 0; k < 4 && machines[i].file[k][0]; k++) put(machines[i].file[k][0], machines[i].file[k][1]);
        const int quota = rt_quota(root);
        snprintf(command, sizeof command, "rm -rf %s", root);
        assert_int_equal(system(command), 0);
        if (quota != machines[i].quota) fail_msg("machine %zu: %d, expected %d", i, quota, machines[i].quota);
    }
    assert_int_equal(rt_quota("/nowhere"), 0);
}

static void some_steps_only_and_their_times(void **state)
{
    (void)state;
    struct sol_step step[STEPS];
    fill(step);
    const struct sol_program program = {STEPS, 4, step, places, 0, sizeof(uint64_t) * CELLS, 0, NULL};
    unsigned char only[STEPS] = {[0] = 1, [5] = 1};
    int64_t ns[STEPS];
    uint64_t want[2][CELLS] = {0}, scratch[2][CELLS];
    struct sol_frame f = {.step = 0};
    mix((char *[]){(char *)want[0], (char *)want[1]}, &f, 0, CELLS, 0);
    f.step = 5;
    mix((char *[]){(char *)want[1], (char *)want[0]}, &f, 0, CELLS, 0);
    for (int threads = 1; threads <= 2; threads++) {
        uint64_t cells[2][CELLS] = {0};
        char *base[2] = {(char *)cells[0], (char *)cells[1]}, *operands[4];
        memset(ns, 0, sizeof ns);
        const struct rt_call call = {.program = &program,
                                     .base = base,
                                     .operands = operands,
                                     .scratch = scratch,
                                     .only = only,
                                     .threads = threads,
                                     .step_ns = ns};
        assert_int_equal(rt_run(&call, NULL), 0);
        assert_memory_equal(cells, want, sizeof want);
        assert_true(ns[0] > 0 && ns[5] > 0);
        assert_true(ns[1] == 0 && ns[39] == 0);
    }
}

/* -- teams */

enum { PHASES = 50 };

struct phase { /* operand 2 of a stage */
    int number;
    atomic_int done[2], over; /* cells that the first worker computed, and the others; stages */
};

static void mix_phase(char *const *p, const struct sol_frame *f, int64_t task0, int64_t task1, int worker)
{
    (void)f;
    struct phase *at = (struct phase *)p[2];
    const uint64_t *from = (const uint64_t *)p[0];
    for (int64_t i = task0; i < task1; i++) {
        uint64_t sum = (uint64_t)(i + at->number);
        for (int k = 0; k < CELLS; k++) sum = sum * 6364136223846793005u + from[k];
        ((uint64_t *)p[1])[i] = sum;
    }
    atomic_fetch_add(&at->done[worker > 0], (int)(task1 - task0));
}

/* A recurrence with many stages. Each reads what all workers wrote in the one before, with another distribution; some
 * have one task or none. */
static void recurrence(char *const *p, const struct sol_frame *f, int64_t task0, int64_t task1, int worker)
{
    (void)task0, (void)task1;
    static const int64_t tasks[] = {CELLS, 32, 1, 0, 3, CELLS - 1, 2};
    for (int i = 0; i < PHASES; i++) {
        struct phase at = {.number = i};
        char *const q[] = {p[i % 2], p[!(i % 2)], (char *)&at};
        f->team->run(f->team->user, mix_phase, q, f, tasks[i % 7], worker);
    }
}

/* Earlier and later steps read and write the same cells. */
static int32_t run_team(int32_t (*run)(const struct rt_call *, int32_t *), int threads, const struct rt_team *team,
                        int64_t tasks, bool times, uint64_t cells[2][CELLS])
{
    const struct sol_step step[] = {{.run = mix, .tasks = CELLS, .places = 2},
                                    {.kind = SOL_STEP_TEAM, .run = recurrence, .tasks = tasks, .places = 2},
                                    {.run = mix, .tasks = 1, .place0 = 2, .places = 2},
                                    {.kind = SOL_STEP_TEAM, .run = recurrence, .tasks = tasks, .places = 2}};
    const struct sol_program program = {4, 4, step, places, 0, 0, 0, NULL};
    char *base[2] = {(char *)cells[0], (char *)cells[1]}, *operands[4];
    int64_t ns[4] = {0};
    const struct rt_call call = {.program = &program,
                                 .base = base,
                                 .operands = operands,
                                 .threads = threads,
                                 .team = team,
                                 .step_ns = times ? ns : NULL};
    return run(&call, NULL);
}

static void a_team_computes_stages_together(void **state)
{
    (void)state;
    uint64_t want[2][CELLS] = {{5}}, got[2][CELLS];
    assert_int_equal(run_team(rt_run, 1, NULL, CELLS, false, want), 0);
    int asked = 0;
    const struct rt_team one = {only_one, &asked};
    const struct rt_team *const teams[] = {NULL, &one, rt_team_openmp()};
    for (int threads = 1; threads <= 8; threads++)
        for (int i = 0; i < 12; i++) {
            memcpy(got, (uint64_t[2][CELLS]){{5}}, sizeof got);
            /* also with sizes where most workers have no cells */
            assert_int_equal(run_team(rt_run, threads, teams[i % 3], i % 4 ? CELLS : 3, i % 5 == 4, got), 0);
            assert_memory_equal(want, got, sizeof got);
        }
    memcpy(got, (uint64_t[2][CELLS]){{5}}, sizeof got);
    assert_int_equal(run_team(bare_run, 1, NULL, CELLS, false, got), 0);
    assert_memory_equal(want, got, sizeof got);
}

/* Each worker has a part of its own only up to a number of them. */
static void a_team_may_have_more_workers_than_shares(void **state)
{
    (void)state;
    uint64_t want[2][CELLS] = {{9}}, got[2][CELLS] = {{9}};
    assert_int_equal(run_team(rt_run, 1, NULL, CELLS, false, want), 0);
    assert_int_equal(run_team(rt_run, 40, NULL, CELLS, false, got), 0);
    assert_memory_equal(want, got, sizeof got);
}

/* All workers but the first begin when that one has computed ten stages. */
static void late(char *const *p, const struct sol_frame *f, int64_t task0, int64_t task1, int worker)
{
    (void)task0, (void)task1;
    struct phase *at = (struct phase *)p[2];
    while (worker > 0 && atomic_load(&at->over) < 10) sched_yield();
    for (int i = 0; i < PHASES; i++) {
        f->team->run(f->team->user, mix_phase, p, f, CELLS, worker);
        if (worker == 0) atomic_fetch_add(&at->over, 1);
    }
}

static void nobody_waits_for_a_worker_that_has_begun_nothing(void **state)
{
    (void)state;
    for (int threads = 2; threads <= 5; threads++) {
        static const struct sol_operand all[] = {{0, 0}, {1, 0}, {2, 0}};
        const struct sol_step step = {.kind = SOL_STEP_TEAM, .run = late, .tasks = CELLS, .places = 3};
        const struct sol_program program = {1, 3, &step, all, 0, 0, 0, NULL};
        struct phase at = {0};
        uint64_t cells[2][CELLS] = {{1, 2, 3}};
        char *base[3] = {(char *)cells[0], (char *)cells[1], (char *)&at}, *operands[3];
        const struct rt_call call = {.program = &program, .base = base, .operands = operands, .threads = threads};
        assert_int_equal(rt_run(&call, NULL), 0);
        assert_true(at.done[0] >= 10 * CELLS);
        assert_int_equal(at.done[0] + at.done[1], PHASES * CELLS); /* each once */
    }
}

/* A stage that fails does not keep the workers from the ones behind it. */
static void fails_at_the_end(char *const *p, const struct sol_frame *f, int64_t task0, int64_t task1, int worker)
{
    (void)p, (void)task0, (void)worker;
    if (task1 < CELLS || *f->error) return;
    *f->error_step = f->step;
    *f->error = SOL_KERNEL_DIVISION;
}

static void fails_in_a_team(char *const *p, const struct sol_frame *f, int64_t task0, int64_t task1, int worker)
{
    (void)task0, (void)task1;
    for (int i = 0; i < PHASES; i++) f->team->run(f->team->user, fails_at_the_end, p, f, CELLS - (i < 20), worker);
}

static void a_team_with_an_error_ends(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 4; threads++) {
        const struct sol_step step[] = {{.run = mix, .tasks = CELLS, .places = 2},
                                        {.kind = SOL_STEP_TEAM, .run = fails_in_a_team, .tasks = CELLS, .places = 2}};
        const struct sol_program program = {2, 4, step, places, 0, 0, 0, NULL};
        uint64_t cells[2][CELLS] = {{0}};
        char *base[2] = {(char *)cells[0], (char *)cells[1]}, *operands[4];
        const struct rt_call call = {.program = &program, .base = base, .operands = operands, .threads = threads};
        int32_t where = -1;
        assert_int_equal(rt_run(&call, &where), SOL_KERNEL_DIVISION);
        assert_int_equal(where, 1);
    }
}

/* -- sizes known only at run time */

/* The same program with constants and with sizes of the call. */
static void sizes_of_a_call(void **state)
{
    (void)state;
    const struct sol_operand sized[] = {{0, 0}, {1, SOL_SIZE + 1}, {1, SOL_SIZE + 1}, {0, 0}};
    struct sol_step step[] = {{.run = mix, .tasks = SOL_SIZE, .places = 2},
                              {.run = through_scratch, .tasks = SOL_SIZE, .place0 = 2, .places = 2}};
    const struct sol_program with_sizes = {2, 4, step, sized, 0, SOL_SIZE + 2, 0, NULL};
    for (int64_t n = 0; n <= CELLS; n += 8)
        for (int threads = 0; threads <= 4; threads++) {
            const int64_t sizes[] = {n, 8 * (n / 2), CELLS * 8};
            const struct sol_operand fixed[] = {{0, 0}, {1, sizes[1]}, {1, sizes[1]}, {0, 0}};
            struct sol_step number[] = {step[0], step[1]};
            number[0].tasks = number[1].tasks = n;
            const struct sol_program with_numbers = {2, 4, number, fixed, 0, sizes[2], 0, NULL};
            uint64_t want[2][2 * CELLS] = {{7}}, got[2][2 * CELLS] = {{7}}, scratch[4][CELLS];
            char *operands[4];
            struct rt_call call = {.program = &with_numbers,
                                   .base = (char *[]){(char *)want[0], (char *)want[1]},
                                   .operands = operands,
                                   .scratch = scratch,
                                   .threads = 1};
            assert_int_equal(rt_run(&call, NULL), 0);
            call.program = &with_sizes;
            call.base = (char *[]){(char *)got[0], (char *)got[1]};
            call.sizes = sizes;
            call.threads = threads;
            assert_int_equal(threads ? rt_run(&call, NULL) : bare_run(&call, NULL), 0);
            assert_memory_equal(want, got, sizeof got);
            assert_int_equal(n > 0, got[1][sizes[1] / 8] != 0);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* first, because the process determines the number only once */
        cmocka_unit_test(more_processors_than_libc_has_room_for),
        cmocka_unit_test(same_bits_for_every_number_of_workers),
        cmocka_unit_test(a_team_may_be_smaller),
        cmocka_unit_test(a_team_computes_stages_together),
        cmocka_unit_test(a_team_may_have_more_workers_than_shares),
        cmocka_unit_test(nobody_waits_for_a_worker_that_has_begun_nothing),
        cmocka_unit_test(a_team_with_an_error_ends),
        cmocka_unit_test(sizes_of_a_call),
        cmocka_unit_test(the_openmp_runtime_of_the_process),
        cmocka_unit_test(many_threads_call_at_once),
        cmocka_unit_test(a_host_step_may_run_a_program),
        cmocka_unit_test(a_child_starts_its_own_pool),
        cmocka_unit_test(errors_name_their_step),
        cmocka_unit_test(the_error_of_one_worker_is_the_error_of_all),
        cmocka_unit_test(quotas_of_all_groups_hold),
        cmocka_unit_test(some_steps_only_and_their_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
