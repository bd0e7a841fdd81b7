/* Plans of graphs: which layers become one unit, which copies are avoided, what belongs to `prepare`, and on which
 * parameters its steps depend. Bands are off, so units are visible as the earlier phases leave them. */
#include <stdio.h>
#include <string.h>

#include "context.h"
#include "passes/passes.h"
#include "print/tree.h"
#include "schedule/schedule.h"

struct planned {
    struct sol_graph *g;
    struct arena *a;
    struct plan *p;
    struct target target;
};

static struct planned make(const char *text)
{
    struct planned m = {.a = arena_create(ctx)};
    sol_status status = target_named(ctx, "x86-64-v3", &m.target);
    m.target.cores = 4; /* independent of this machine */
    if (status || sol_graph_parse(ctx, text, &m.g) || passes_run(m.g) || plan_make(m.g, m.a, &m.target, &m.p))
        fail_msg("%s", sol_error(ctx));
    return m;
}

static void drop(struct planned *m)
{
    arena_destroy(m->a);
    sol_graph_destroy(m->g);
}

/* The labels of the units that run in every call, one per line, without reorders of the user's tensors. */
static const char *units(const struct planned *m)
{
    struct text t = text_new(m->a);
    for (int i = 0; i < m->p->units.n; i++) {
        const struct unit *u = m->p->units.at[i];
        if (u->dead || u->program == PROGRAM_PREPARE || !strcmp(u->label, "reorder")) continue;
        text_put(&t, "%s\n", u->label);
    }
    return t.at ? t.at : "";
}

static int count(const char *text, const char *word)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, word)); at++) n++;
    return n;
}

/* Checks the number of units, and that `absent` is not a unit of its own. */
static void expect(const char *graph, int n, const char *absent)
{
    struct planned m = make(graph);
    const char *got = units(&m);
    if (count(got, "\n") != n) fail_msg("expected %d units, got:\n%s", n, got);
    for (const char *line = got; absent && *line; line = strchr(line, '\n') + 1)
        if (!strncmp(line, absent, strlen(absent))) fail_msg("%s is a unit of its own:\n%s", absent, got);
    drop(&m);
}

static void test_epilogue(void **state)
{
    (void)state;
    expect("graph \"t\"\n"
           "input %0:f32[1 8 9 9] \"x\"\ninput %1:f32[1 8 9 9] \"r\"\nparam %2:f32[8 8 3 3] \"w\"\n"
           "param %3:f32[8] \"s\"\nparam %4:f32[8] \"b\"\nparam %5:f32[8] \"m\"\nparam %6:f32[8] \"v\"\n"
           "%7 = Conv(%0, %2) p=1 q=1\n%8 = BatchNorm(%7, %3, %4, %5, %6)\n%9 = add(%8, %1)\n%10 = relu(%9)\n"
           "output %10 \"y\"\n",
           1, NULL);
}

/* A convolution with two readers is stored, and both readers stay separate. */
static void test_two_readers(void **state)
{
    (void)state;
    expect("graph \"t\"\n"
           "input %0:f32[1 8 9 9] \"x\"\nparam %1:f32[8 8 3 3] \"w\"\n"
           "%2 = Conv(%0, %1) p=1 q=1\n%3 = Conv(%2, %1) p=1 q=1\n%4 = Conv(%2, %1)\n"
           "output %3 \"a\"\noutput %4 \"b\"\n",
           3, NULL);
}

#define ROW(text)                                                                                         \
    "graph \"t\"\ninput %0:f32[5 9] \"x\"\n%1 = Row(%0) text=\"x[N K] -> y[N K] | #J=#K; #I=#K | | " text \
    "\"\noutput %1 \"y\"\n"

static void expect_statements(const char *graph, int n)
{
    struct planned m = make(graph);
    int got = 0;
    for (int i = 0; i < m.p->units.n; i++)
        if (!m.p->units.at[i]->dead) got += m.p->units.at[i]->loops->stmts.n;
    assert_int_equal(got, n);
    drop(&m);
}

/* A sum that is equal for all K becomes a separate statement. A sum that depends on K does not, nor does one whose
 * guard keeps a read inside its tensor. */
static void test_hoist(void **state)
{
    (void)state;
    expect_statements(ROW("y[N K] = x[N K] / sum[J] x[N J]"), 2);
    expect_statements(ROW("y[N K] = x[N K] / sum[J] exp(x[N J] / sum[I] x[N I])"), 3);
    expect_statements(ROW("y[N K] = x[N K] / sum[J | J<=K] x[N J]"), 1);
    expect_statements(ROW("y[N K] = x[N K] / sum[J | N+J<5] x[N+J K]"), 1);
}

/* A sum skips terms with a factor that is 0 because it would be read outside. */
static void test_shorter_sum(void **state)
{
    (void)state;
    struct planned m = make(ROW("y[N K] = sum[J] x[N J] * x[N J-2]:0"));
    struct text t = text_new(m.a);
    loops_print(m.p->units.at[0]->loops, &t);
    assert_null(strstr(t.at, ":0"));
    assert_non_null(strstr(t.at, "=7")); /* instead of 9 */
    drop(&m);
}

static void test_concat(void **state)
{
    (void)state;
    expect("graph \"t\"\n"
           "input %0:f32[1 8 9 9] \"x\"\nparam %1:f32[8 8 3 3] \"w\"\nparam %2:f32[4 8 1 1] \"a\"\n"
           "param %3:f32[4 12 1 1] \"b\"\nparam %4:f32[6 16 1 1] \"c\"\n"
           "%5 = Conv(%0, %1) p=1 q=1\n%6 = Conv(%5, %2)\n%7 = Concat(%5, %6) axis=1\n%8 = Conv(%7, %3)\n"
           "%9 = Concat(%7, %8) axis=1\n%10 = Conv(%9, %4)\noutput %10 \"y\"\n",
           4, "Concat");
}

/* An element-wise layer after a Concat reads all parts, so it is not fused into the unit that happens to write last. */
static void test_map_behind_concat(void **state)
{
    (void)state;
    struct planned m = make("graph \"t\"\ninput %0:f32[2 16 3 2] \"x\"\n%1 = expm1(%0)\n"
                            "%2 = Concat(%0, %1) axis=2\n%3 = sin(%2)\noutput %3 \"y\"\n");
    for (int i = 0; i < m.p->units.n; i++) {
        const struct unit *u = m.p->units.at[i];
        if (u->dead || !strstr(u->label, "sin")) continue;
        const struct loops *loops = u->loops;
        for (int k = 0; k < loops->stmts.n; k++) {
            int64_t all = 1;
            for (int d = 0; d < loops->ivars.n; d++)
                if (stmt_ivars(loops, &loops->stmts.at[k]) >> d & 1) all *= loops->ivars.at[d].size;
            assert_int_equal(all, 2 * 16 * 6 * 2);
        }
    }
    drop(&m);
}

static void test_shuffle(void **state)
{
    (void)state;
    const char *graph = "graph \"t\"\n"
                        "input %0:f32[1 8 6 6] \"x\"\nparam %1:f32[8 8 1 1] \"a\"\nparam %2:f32[4 4 1 1] \"b\"\n"
                        "%3 = Conv(%0, %1)\n%4 = Reshape(%3) shape=[1,2,4,6,6]\n%5 = Permute(%4) perm=[0,2,1,3,4]\n"
                        "%6 = Reshape(%5) shape=[1,8,6,6]\n%7, %8 = Split(%6) axis=1 sizes=[4,4]\n%9 = Conv(%8, %2)\n"
                        "output %9 \"y\"\n";
    expect(graph, 2, "Reshape");
    expect(graph, 2, "Permute");
    expect(graph, 2, "Split");
}

static void test_flatten(void **state)
{
    (void)state;
    expect("graph \"t\"\n"
           "input %0:f32[2 4 6 6] \"x\"\nparam %1:f32[8 4 3 3] \"a\"\nparam %2:f32[5 128] \"w\"\n"
           "%3 = Conv(%0, %1)\n%4 = relu(%3)\n%5 = Reshape(%4) shape=[2,128]\n%6 = Linear(%5, %2)\noutput %6 \"y\"\n",
           2, "Reshape");
}

/* -- prepare */

static bool depends(const struct schedule_step *s, int param)
{
    return s->depends[param / 64] >> param % 64 & 1;
}

/* Two scaled convolutions. A step of prepare depends only on the parameters of its own convolution, and each step on
 * some. Packing scales the weights, so there is no scaled copy. */
static void test_prepare(void **state)
{
    (void)state;
    struct planned m =
        make("graph \"t\"\n"
             "input %0:f32[1 16 9 9] \"x\"\nparam %1:f32[16 16 3 3] \"w1\"\nparam %2:f32[16 1 1] \"s1\"\n"
             "param %3:f32[16 16 3 3] \"w2\"\nparam %4:f32[16 1 1] \"s2\"\n"
             "%5 = Conv(%0, %1) p=1 q=1\n%6 = mul(%5, %2)\n%7 = relu(%6)\n"
             "%8 = Conv(%7, %3) p=1 q=1\n%9 = mul(%8, %4)\noutput %9 \"y\"\n");
    struct schedule *s;
    assert_int_equal(schedule_make(m.p, &s), SOL_OK);
    assert_true(s->program[PROGRAM_PREPARE].steps.n >= 2);
    bool seen[4] = {false};
    for (int i = 0; i < s->program[PROGRAM_PREPARE].steps.n; i++) {
        const struct schedule_step *st = &s->program[PROGRAM_PREPARE].steps.at[i];
        bool first = depends(st, 0) || depends(st, 1), second = depends(st, 2) || depends(st, 3);
        assert_true(first != second);
        for (int k = 0; k < 4; k++) seen[k] |= depends(st, k);
    }
    for (int k = 0; k < 4; k++) assert_true(seen[k]);
    assert_int_equal(s->program[PROGRAM_PREPARE].workspace_bytes, 0);
    drop(&m);
}

/* A computation that is more than scaling is done once. The memory of one packed weight is free when the next is
 * packed, so there is never more than one. */
static void test_prepare_in_turn(void **state)
{
    (void)state;
    struct planned m = make("graph \"t\"\n"
                            "input %0:f32[1 16 9 9] \"x\"\nparam %1:f32[16 16 3 3] \"w1\"\n"
                            "param %2:f32[16 16 3 3] \"w2\"\n%3 = sigmoid(%1)\n%4 = sigmoid(%2)\n"
                            "%5 = Conv(%0, %3) p=1 q=1\n%6 = relu(%5)\n%7 = Conv(%6, %4) p=1 q=1\noutput %7 \"y\"\n");
    struct schedule *s;
    assert_int_equal(schedule_make(m.p, &s), SOL_OK);
    assert_int_equal(s->program[PROGRAM_PREPARE].steps.n, 4);
    assert_int_equal(s->program[PROGRAM_PREPARE].workspace_bytes, 16 * 16 * 9 * 4);
    drop(&m);
}

/* A kernel's text contains neither layers nor their names: equal work on equal layouts is one kernel. */
static void test_names(void **state)
{
    (void)state;
    struct planned m = make("graph \"t\"\ninput %0:f32[2 6 9 9] \"x\"\nparam %1:f32[8 6 3 3] \"a\"\n"
                            "param %2:f32[8 8 3 3] \"b\"\nparam %3:f32[8 8 3 3] \"c\"\n"
                            "%4 = Conv(%0, %1) p=1 q=1 \"first\"\n%5 = tanh(%4) \"second\"\n"
                            "%6 = Conv(%5, %2) p=1 q=1 \"third\"\n%7 = tanh(%6) \"fourth\"\n"
                            "%8 = Conv(%7, %3) p=1 q=1 \"fifth\"\n%9 = tanh(%8) \"sixth\"\n"
                            "%10 = Conv(%9, %3) p=1 q=1\noutput %10 \"y\"\n");
    static const char *const names[] = {"first", "second", "third", "fourth", "fifth", "sixth"};
    struct schedule *s;
    assert_int_equal(schedule_make(m.p, &s), SOL_OK);
    schedule_notes(s);
    for (int k = 0; k < s->kernels.n; k++)
        for (int i = 0; i < COUNT_OF(names); i++) assert_null(strstr(s->kernels.at[k].body, names[i]));
    int third = -1, fifth = -1;
    for (int i = 0; i < s->program[PROGRAM_FORWARD].steps.n; i++) {
        const struct schedule_step *st = &s->program[PROGRAM_FORWARD].steps.at[i];
        if (strstr(st->label, "third")) third = st->kernel;
        if (strstr(st->label, "fifth")) fifth = st->kernel;
    }
    assert_true(third >= 0 && third == fifth);
    assert_non_null(strstr(s->kernels.at[third].note, "third"));
    assert_non_null(strstr(s->kernels.at[third].note, "fifth"));
    drop(&m);
}

/* The note above a kernel names a size that varies by its formula. */
static void test_note_of_sizes(void **state)
{
    (void)state;
    struct planned m =
        make("graph \"t\"\ndim #0 \"h\" hint=6 min=1\ndim #1 \"w\" hint=5 min=1\ninput %0:f32[2 #0 #1] \"x\"\n"
             "%1 = Reshape(%0) shape=[2,-1]\n%2 = Softmax(%1) axis=1\noutput %2 \"y\"\n");
    struct schedule *s;
    assert_int_equal(schedule_make(m.p, &s), SOL_OK);
    schedule_notes(s);
    assert_int_equal(s->kernels.n, 1);
    assert_non_null(strstr(s->kernels.at[0].note, "exp(x"));
    assert_null(strstr(s->kernels.at[0].note, "3808347")); /* the names of sizes, which printers write */
    drop(&m);
}

/* An output that depends on parameters alone is written in every call. */
static void test_prepared_output(void **state)
{
    (void)state;
    struct planned m = make("graph \"t\"\nparam %0:f32[4] \"w\"\n%1 = exp(%0)\noutput %1 \"y\"\n");
    assert_int_equal(count(units(&m), "\n"), 1);
    drop(&m);
}

/* Checks the units of a network with an LSTM: how many there are, how many of them are scans, and the number of tasks
 * of a scan. */
static void expect_recurrence(const char *x, const char *attrs, int units, int scans, int64_t tasks)
{
    char text[600];
    snprintf(
        text, sizeof text,
        "graph \"t\"\ninput %%0:f32%s \"x\"\nparam %%1:f32[36 9] \"w\"\nparam %%2:f32[36 9] \"u\"\n"
        "param %%3:f32[36] \"b\"\n%%4, %%5, %%6 = LSTM(%%0, %%1, %%2, %%3) %s\noutput %%4 \"y\"\noutput %%6 \"c\"\n",
        x, attrs);
    struct planned m = make(text);
    int n = 0, found = 0;
    for (int i = 0; i < m.p->units.n; i++) {
        const struct unit *u = m.p->units.at[i];
        if (u->dead || u->program == PROGRAM_PREPARE) continue;
        n++;
        for (int s = 0; s < u->loops->stmts.n; s++) /* the last state, which nobody reads */
            assert_string_not_equal(u->loops->tensors.at[u->loops->stmts.at[s].out[0]].name, "h");
        if (strcmp(u->kernel.solver, "scan")) continue;
        found++;
        assert_int_equal(u->kernel.step[0].tasks, tasks);
        assert_false(u->kernel.tree->team);
    }
    assert_int_equal(n, units);
    assert_int_equal(found, scans);
    drop(&m);
}

/* The product with the inputs of all steps is one unit, the steps are another, which also has the last state. With a
 * single step, the product with the initial state (0, but weights may be infinite) is a third. */
static void test_recurrence(void **state)
{
    (void)state;
    assert_int_equal(sol_config_set(ctx, "bands", "always"), SOL_OK);
    expect_recurrence("[7 3 9]", "", 2, 1, 3);
    expect_recurrence("[7 1 9]", "reverse=1", 2, 1, 1);
    expect_recurrence("[2 4 9]", "", 2, 1, 4);
    expect_recurrence("[1 4 9]", "", 3, 0, 0);
    assert_int_equal(sol_config_set(ctx, "bands", "off"), SOL_OK);
    expect_recurrence("[7 3 9]", "", 2, 0, 0);
}

/* A team computes recurrences whose weights are worth it, unless blocks of the batch are tasks. */
static void test_team(void **state)
{
    static const struct {
        const char *bands;
        int batch, size, tasks;
        bool team;
    } rows[] = {{"auto", 1, 512, 256, true},
                {"auto", 1, 16, 1, false},
                {"always", 1, 64, 0, true},
                {"always", 4, 64, 4, false},
                {"auto", 3, 512, 0, true}};
    (void)state;
    for (int i = 0; i < COUNT_OF(rows); i++) {
        char text[600];
        const int n = rows[i].size;
        snprintf(text, sizeof text,
                 "graph \"t\"\ninput %%0:f32[5 %d %d] \"x\"\nparam %%1:f32[%d %d] \"w\"\nparam %%2:f32[%d %d] \"u\"\n"
                 "%%3, %%4, %%5 = LSTM(%%0, %%1, %%2)\noutput %%3 \"y\"\n",
                 rows[i].batch, n, 4 * n, n, 4 * n, n);
        assert_int_equal(sol_config_set(ctx, "bands", rows[i].bands), SOL_OK);
        struct planned m = make(text);
        const struct unit *u = m.p->units.at[m.p->units.n - 1];
        assert_string_equal(u->kernel.solver, "scan");
        assert_int_equal(u->kernel.tree->team, rows[i].team);
        if (rows[i].tasks) assert_int_equal(u->kernel.step[0].tasks, rows[i].tasks);
        assert_true((u->kernel.step[0].tasks > 1) == (rows[i].batch > 1 || rows[i].team));
        drop(&m);
    }
    assert_int_equal(sol_config_set(ctx, "bands", "auto"), SOL_OK);
}

#define NORM                                                                                                          \
    "graph \"t\"\ninput %0:f32[3 8 16 16] \"x\"\nparam %1:f32[24 8 1 1] \"w\"\n"                                      \
    "%2 = Conv(%0, %1)\n%3, %4, %5 = BatchNormTrain(%2)\n%6 = Sum(%2) axes=[2,3]\noutput %3 \"y\"\noutput %4 \"u\"\n" \
    "output %5 \"v\"\noutput %6 \"s\"\n"

/* A reduction of a convolution's output starts with partial sums in a unit right after it, a stage of its band. */
static void test_partial(void **state)
{
    (void)state;
    expect(NORM, 3, "Conv (parts)"); /* small tensors are not split */
    assert_int_equal(sol_config_set(ctx, "bands", "always"), SOL_OK);
    struct planned m = make(NORM);
    const char *got = units(&m);
    assert_int_equal(count(got, "\n"), 3);
    assert_int_equal(count(got, "(parts)"), 1);
    assert_non_null(strstr(got, "> BatchNormTrain + Sum (parts)\n"));
    drop(&m);
    assert_int_equal(sol_config_set(ctx, "bands", "off"), SOL_OK);
}

static int begin(void **state)
{
    return make_ctx(state) || sol_config_set(ctx, "bands", "off");
}

static void an_unknown_solver_is_rejected(void **state)
{
    struct sol_graph *g;
    struct target t;
    struct plan *p;
    struct arena *a = arena_create(ctx);
    (void)state;
    assert_int_equal(sol_config_set(ctx, "solver", "wingrad"), SOL_OK);
    assert_int_equal(target_named(ctx, "x86-64-v3", &t), SOL_OK);
    assert_int_equal(sol_graph_parse(ctx, "graph \"t\"\ninput %0:f32[4] \"x\"\n%1 = relu(%0)\noutput %1 \"y\"\n", &g),
                     SOL_OK);
    assert_int_equal(plan_make(g, a, &t, &p), SOL_ERR_INVALID);
    assert_string_equal(
        sol_error(ctx),
        "solver: there is none called 'wingrad'; expected auto, attention, attention_grad, blas, conv, direct, gemv, "
        "matmul, mma, simt, attention_simt, attention_grad_simt, winograd, weights, weights-winograd, openblas, "
        "onednn, dfp, "
        "nest");
    assert_int_equal(sol_config_set(ctx, "solver", "auto"), SOL_OK);
    sol_graph_destroy(g);
    arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_epilogue),
        cmocka_unit_test(test_two_readers),
        cmocka_unit_test(test_hoist),
        cmocka_unit_test(test_shorter_sum),
        cmocka_unit_test(test_concat),
        cmocka_unit_test(test_map_behind_concat),
        cmocka_unit_test(test_shuffle),
        cmocka_unit_test(test_flatten),
        cmocka_unit_test(test_prepare),
        cmocka_unit_test(test_prepare_in_turn),
        cmocka_unit_test(test_prepared_output),
        cmocka_unit_test(test_recurrence),
        cmocka_unit_test(test_team),
        cmocka_unit_test(test_partial),
        cmocka_unit_test(an_unknown_solver_is_rejected),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_note_of_sizes),
    };
    return cmocka_run_group_tests(tests, begin, drop_ctx);
}
