/* Recurrences that a team computes: the same bits for any number of threads, and the interpreter's results. */
#include "plan/plan.h"
#include "print/tree.h"
#include "sized.h"

enum { THREADS = 8 };

/* How many recurrences a team computes on this machine. */
static int teams_of(const char *text)
{
    struct sol_graph *g = parse(text);
    struct arena *a = arena_create(ctx);
    struct target target;
    struct plan *p;
    int n = 0;
    target_host(&target);
    target.cores = 2;
    if (plan_make(g, a, &target, &p)) fail_msg("%s", sol_error(ctx));
    for (int i = 0; i < p->units.n; i++) {
        const struct unit *u = p->units.at[i];
        n += !u->dead && u->kernel.tree && u->kernel.tree->team;
    }
    arena_destroy(a);
    sol_graph_destroy(g);
    return n;
}

/* A recurrence of each kind, in both directions; each reads what the one before writes. */
static const char *network(char out[2000], const char *steps, const char *batch, int size)
{
    snprintf(out, 2000,
             "graph \"team\"\n%s%s"
             "input %%0:f32[%s %s %d] \"x\"\ninput %%1:f32[%s %d] \"h\"\n"
             "param %%2:f32[%d %d] \"w\"\nparam %%3:f32[%d %d] \"u\"\n"
             "param %%4:f32[%d %d] \"w3\"\nparam %%5:f32[%d %d] \"u3\"\n"
             "param %%6:f32[%d %d] \"w1\"\nparam %%7:f32[%d %d] \"u1\"\n"
             "%%8, %%9, %%10 = LSTM(%%0, %%2, %%3)\n"
             "%%11, %%12, %%13 = LSTM(%%8, %%2, %%3, -, -, %%1, %%1) reverse=1\n"
             "%%14, %%15 = GRU(%%11, %%4, %%5)\n"
             "%%16, %%17 = RNN(%%14, %%6, %%7) reverse=1\n"
             "output %%16 \"y\"\noutput %%9 \"h\"\noutput %%13 \"c\"\noutput %%15 \"g\"\n",
             *steps == '#' ? "dim #0 \"steps\" hint=9 min=1\n" : "",
             *batch == '#' ? "dim #1 \"batch\" hint=2 min=1\n" : "", steps, batch, size, batch, size, 4 * size, size,
             4 * size, size, 3 * size, size, 3 * size, size, size, size, size, size);
    return out;
}

/* Weights at which a rounding error does not grow from step to step. */
static void damp(struct sized *s)
{
    for (int i = 0; i < sol_net_params(s->net); i++) {
        const struct sol_io io = sol_net_param_io(s->net, i);
        for (int64_t k = 0; k < elements(&io, NULL); k++) s->param[i][k] /= sqrtf((float)io.shape[1]);
    }
}

static void run_teams(const char *text, int teams, const int64_t (*dims)[3], int n)
{
    struct sized s;
    assert_int_equal(sol_config_set(ctx, "bands", "always"), SOL_OK);
    assert_int_equal(sol_config_set(ctx, "compiler::verify", "1"), SOL_OK);
    const int found = teams_of(text);
    if (found < teams) fail_msg("expected at least %d recurrences of a team, got %d", teams, found);
    open(text, &s);
    damp(&s);
    for (int i = 0; i < n; i++) {
        struct io io;
        run_at(&s, dims[i]);
        io_make(&s, dims[i], &io);
        assert_int_equal(call(&s, dims[i], &io, 1), SOL_OK);
        keep_outputs(&s, &io);
        for (int threads = 4; threads <= THREADS; threads++) {
            assert_int_equal(call(&s, dims[i], &io, threads), SOL_OK);
            same_outputs(&s, &io, "of the team", threads);
        }
        io_free(&s, &io);
    }
    close_sized(&s);
    assert_int_equal(sol_config_set(ctx, "compiler::verify", "0"), SOL_OK);
    assert_int_equal(sol_config_set(ctx, "bands", "auto"), SOL_OK);
}

static void any_size_of_the_cells(void **state)
{
    static const int64_t none[1][3] = {{0}};
    char text[2000];
    (void)state;
    run_teams(network(text, "7", "1", 64), 1, none, 1);
    run_teams(network(text, "5", "3", 33), 1, none, 1);
    run_teams(network(text, "2", "1", 40), 1, none, 1);
    run_teams(network(text, "3", "1", 1), 0, none, 1); /* nothing to share */
}

static void any_number_of_steps_and_sequences(void **state)
{
    static const int64_t dims[][3] = {{9, 1}, {1, 1}, {2, 1}, {3, 1}, {30, 1}, {1, 3}, {2, 3}, {16, 2}, {7, 5}};
    char text[2000];
    (void)state;
    run_teams(network(text, "#0", "#1", 40), 1, dims, COUNT_OF(dims));
    run_teams(network(text, "#0", "1", 64), 1, dims, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_size_of_the_cells),
                                       cmocka_unit_test(any_number_of_steps_and_sequences)};
    return cmocka_run_group_tests(tests, make_ctx, drop_ctx);
}
