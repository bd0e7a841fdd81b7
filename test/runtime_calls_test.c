/* Concurrent calls of one network: while parameters change, for several owners, in forked children. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime_module.h"

struct crowd {
    struct sol_net *net;
    struct sol_params *params;
    float w[2][N], b[N], s[N];
    atomic_int stop, wrong, calls;
};

/* Each result must be that of one w or of the other. */
static void *caller(void *arg)
{
    struct crowd *c = arg;
    float x[N], y[N];
    for (int k = 0; !c->stop; k++) {
        for (int i = 0; i < N; i++) x[i] = (float)(i + k % 7);
        if (sol_net_run(c->net, c->params, (const void *[]){x}, (void *[]){y}, 1 + k % 3)) c->wrong++;
        for (int which = 0, bad = 0; which < 2; which++) {
            bool same = true;
            for (int i = 0; i < N; i++) same &= y[i] == x[i] * (2 * c->w[which][i] + 1) + hundred + c->b[i];
            bad += !same;
            if (bad == 2) c->wrong++;
        }
        c->calls++;
    }
    return NULL;
}

static void crowd_start(struct test *t, struct crowd *c, float least, pthread_t *thread, int n)
{
    memset(c, 0, sizeof *c);
    c->net = t->net;
    c->params = t->params;
    for (int i = 0; i < N; i++) {
        c->w[0][i] = least + (float)i;
        c->w[1][i] = least + (float)(50 - i);
        c->b[i] = c->s[i] = 1;
    }
    sol_params_set(t->params, 0, c->w[0]);
    sol_params_set(t->params, 1, c->b);
    sol_params_set(t->params, 2, c->s);
    for (int i = 0; i < n; i++) assert_int_equal(pthread_create(&thread[i], NULL, caller, c), 0);
    while (c->calls < 10) usleep(100);
}

static void crowd_stop(struct crowd *c, pthread_t *thread, int n)
{
    c->stop = 1;
    for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
    assert_int_equal(c->wrong, 0);
}

static void calls_while_parameters_change(void **state)
{
    struct test *t = *state;
    pthread_t thread[4];
    struct crowd c;
    crowd_start(t, &c, 0, thread, 4);
    for (int k = 0; k < 200; k++) {
        sol_params_set(t->params, 0, c.w[k % 2]);
        const int calls = c.calls;
        while (k % 10 == 0 && c.calls < calls + 3) usleep(100);
    }
    crowd_stop(&c, thread, 4);
    for (int i = 0; i < 4; i++) ran[i] = 0;
}

/* Two owners of a network. One changes its parameters all the time, which the other must not see. */
static void owners_do_not_meet(void **state)
{
    struct test *t = *state;
    struct sol_params *other;
    pthread_t thread[2];
    struct crowd c, d;
    assert_int_equal(sol_params_create(t->net, &other), SOL_OK);
    crowd_start(t, &c, 0, &thread[0], 1);
    struct test u = {.net = t->net, .params = other};
    crowd_start(&u, &d, 1000, &thread[1], 1);
    for (int k = 0; k < 100; k++) {
        sol_params_set(t->params, 0, c.w[k % 2]);
        const int calls = c.calls + d.calls;
        while (k % 10 == 0 && c.calls + d.calls < calls + 6) usleep(100);
    }
    crowd_stop(&c, &thread[0], 1);
    crowd_stop(&d, &thread[1], 1);
    sol_params_destroy(other);
    for (int i = 0; i < 4; i++) ran[i] = 0;
}

static void children_of_a_busy_process(void **state)
{
    struct test *t = *state;
#if defined __SANITIZE_THREAD__
    skip(); /* the sanitizer does not support threads after a fork */
#endif
    pthread_t thread[3];
    struct crowd c;
    int bad = 0;
    crowd_start(t, &c, 0, thread, 3);
    for (int k = 0; k < 10; k++) {
        sol_params_set(t->params, 0, c.w[k % 2]);
        const pid_t child = fork();
        if (!child) {
            alarm(20);
            pthread_t inner[2];
            struct crowd d = {.net = t->net, .params = t->params};
            memcpy(d.w, c.w, sizeof d.w);
            memcpy(d.b, c.b, sizeof d.b);
            for (int i = 0; i < 2; i++) pthread_create(&inner[i], NULL, caller, &d);
            while (d.calls < 20) usleep(100);
            d.stop = 1;
            for (int i = 0; i < 2; i++) pthread_join(inner[i], NULL);
            _exit(d.wrong);
        }
        int status = 0;
        waitpid(child, &status, 0);
        bad += status != 0;
    }
    crowd_stop(&c, thread, 3);
    assert_int_equal(bad, 0);
    for (int i = 0; i < 4; i++) ran[i] = 0;
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {TEST(calls_while_parameters_change), TEST(owners_do_not_meet),
                                       TEST(children_of_a_busy_process)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
