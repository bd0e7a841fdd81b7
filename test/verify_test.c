/* The verifier of plans (src/plan/verify.c): each row breaks a plan after a phase. */
#include <math.h>

#include "broken_plan.h"
#include "passes/passes.h"

static const char network[] =
    "graph \"net\"\n"
    "input %0:f32[1 8 9 9] \"x\"\nparam %1:f32[8 8 3 3] \"w\"\nparam %2:f32[16 16 1 1] \"v\"\n"
    "%3 = Conv(%0, %1) p=1 q=1 \"a\"\n%4 = relu(%3)\n%5 = Conv(%4, %1) p=1 q=1 \"b\"\n"
    "%6 = Concat(%4, %5) axis=1\n%7 = Conv(%6, %2) \"c\"\n%8 = exp(%7)\n%9 = Softmax(%8) axis=1\n"
    "output %9 \"y\"\n";

/* -- looking for what to break */

/* The first live unit whose label contains the word. */
static struct unit *unit_with(struct plan *p, const char *word)
{
    for (int i = 0; i < p->units.n; i++)
        if (!p->units.at[i]->dead && strstr(p->units.at[i]->label, word)) return p->units.at[i];
    fail_msg("no unit '%s'", word);
    return NULL;
}

static int tensor_with(const struct unit *u, enum loops_role role)
{
    for (int i = 0; i < u->loops->tensors.n; i++)
        if (u->loops->tensors.at[i].role == role) return i;
    fail_msg("'%s' has no tensor of role %d", u->label, (int)role);
    return -1;
}

static struct allocation *allocation_with(struct plan *p, const struct unit *u, enum loops_role role)
{
    return plan_allocation(p, u->loops->tensors.at[tensor_with(u, role)].user);
}

/* Loops are immutable, except here. */
static struct loops_tensor *loops_tensor_with(struct unit *u, enum loops_role role)
{
    return (struct loops_tensor *)(uintptr_t)&u->loops->tensors.at[tensor_with(u, role)];
}

static struct loops_stmt *stmt_of(struct unit *u, int i)
{
    return (struct loops_stmt *)(uintptr_t)&u->loops->stmts.at[i];
}

/* The first node of a kind, or the first after `after`. NULL: there is none. */
static struct ex *node_of(struct unit *u, enum ex_kind kind, const struct ex *after)
{
    for (int32_t i = 1; i < u->loops->ex.n; i++)
        if (u->loops->ex.at[i].kind == kind && &u->loops->ex.at[i] > after)
            return (struct ex *)(uintptr_t)&u->loops->ex.at[i];
    return NULL;
}

/* A tensor that is part of another. */
static struct allocation *part(struct plan *p)
{
    for (int i = 0; i < p->nallocations; i++)
        if (p->allocations[i].t && p->allocations[i].root != p->allocations[i].t && p->allocations[i].alias_at[1])
            return &p->allocations[i];
    fail_msg("no tensor is a part");
    return NULL;
}

static struct unit *packing(struct plan *p)
{
    for (int i = 0; i < p->units.n; i++)
        if (!p->units.at[i]->dead && p->units.at[i]->kernel.npack) return p->units.at[i];
    fail_msg("no unit packs");
    return NULL;
}

/* -- breaking it */

static void no_label(struct plan *p)
{
    unit_with(p, "Conv a")->label = NULL;
}
static void swap_units(struct plan *p)
{
    struct unit *first = p->units.at[0];
    for (int i = 0; i + 1 < p->units.n; i++) p->units.at[i] = p->units.at[i + 1];
    p->units.at[p->units.n - 1] = first;
}
static void kill_writer(struct plan *p)
{
    unit_with(p, "Conv a")->dead = true;
    plan_count(p);
}
static void other_program(struct plan *p)
{
    unit_with(p, "Conv a")->program = PROGRAM_BACKWARD;
}
static void free_ivar(struct plan *p)
{
    node_of(unit_with(p, "Conv a"), EX_RED, NULL)->u.bound = 0;
}
static void ivar_range(struct plan *p)
{
    struct unit *u = unit_with(p, "Conv a");
    for (struct ex *e = NULL; (e = node_of(u, EX_IVAR, e));) e->tensor = 60;
}
static void missing_index(struct plan *p)
{
    struct unit *u = unit_with(p, "Conv a");
    struct ex *read = node_of(u, EX_READ, NULL);
    read->a = u->loops->ex.at[read->a].next;
}
static void read_outside(struct plan *p)
{
    struct unit *u = unit_with(p, "Conv a");
    for (struct ex *e = NULL; (e = node_of(u, EX_READ, e));) e->b = 0;
}
static void ring_of_nodes(struct plan *p)
{
    struct unit *u = unit_with(p, "Conv a");
    struct ex *e = node_of(u, EX_RED, NULL);
    e->b = (int32_t)(e - u->loops->ex.at);
}
static void no_arguments(struct plan *p)
{
    node_of(unit_with(p, "exp"), EX_CALL, NULL)->a = 0;
}
static void written_input(struct plan *p)
{
    struct unit *u = unit_with(p, "Conv a");
    stmt_of(u, 0)->out[0] = (uint16_t)tensor_with(u, LOOPS_INPUT);
}
static void statements_swapped(struct plan *p)
{
    struct unit *u = unit_with(p, "Softmax");
    const struct loops_stmt first = *stmt_of(u, 0);
    *stmt_of(u, 0) = *stmt_of(u, 1);
    *stmt_of(u, 1) = first;
}
static void same_names(struct plan *p)
{
    struct unit *u = unit_with(p, "Conv a");
    loops_tensor_with(u, LOOPS_OUTPUT)->name = loops_tensor_with(u, LOOPS_INPUT)->name;
}
static void other_type(struct plan *p)
{
    loops_tensor_with(unit_with(p, "Conv a"), LOOPS_INPUT)->dtype = SOL_F64;
}
static void other_shape(struct plan *p)
{
    loops_tensor_with(unit_with(p, "Conv a"), LOOPS_INPUT)->shape[3] += 1;
}
static void no_tensor(struct plan *p)
{
    loops_tensor_with(unit_with(p, "Conv a"), LOOPS_INPUT)->user = NULL;
}
static void anchor_statement(struct plan *p)
{
    unit_with(p, "Conv a")->anchor = 7;
}
static void early_root(struct plan *p)
{
    allocation_with(p, unit_with(p, "Conv a"), LOOPS_OUTPUT)->root = p->g->inputs.at[0];
}
static void chain_of_roots(struct plan *p)
{
    struct allocation *s = part(p);
    plan_allocation(p, s->root)->root = s->t;
}
static void part_outside(struct plan *p)
{
    part(p)->alias_at[1] += 1;
}
static void parts_overlap(struct plan *p)
{
    part(p)->alias_at[1] -= 1;
}
static void wrong_count(struct plan *p)
{
    allocation_with(p, unit_with(p, "Conv a"), LOOPS_OUTPUT)->readers += 1;
}
static void bad_order(struct plan *p)
{
    allocation_with(p, unit_with(p, "Conv a"), LOOPS_INPUT)->order[0] = 1;
}
static void bad_stride(struct plan *p)
{
    allocation_with(p, unit_with(p, "Conv a"), LOOPS_INPUT)->memory.stride[2] += 1;
}
static void bad_halo(struct plan *p)
{
    allocation_with(p, unit_with(p, "Conv a"), LOOPS_INPUT)->memory.halo_high[3] += 1;
}
static void fixed_halo(struct plan *p)
{
    plan_allocation(p, p->g->inputs.at[0])->memory.halo_low[2] = 1;
}
static void bad_align(struct plan *p)
{
    allocation_with(p, unit_with(p, "Conv a"), LOOPS_INPUT)->memory.align = 24;
}
static void bad_origin(struct plan *p)
{
    part(p)->origin += 8;
}
static void part_stride(struct plan *p)
{
    part(p)->memory.stride[2] += 1;
}
static void stale_memory(struct plan *p)
{
    struct unit *u = unit_with(p, "Conv a");
    unit_memory(p, u);
    u->memory[tensor_with(u, LOOPS_INPUT)].stride[1] += 1;
}
static void same_number(struct plan *p)
{
    p->units.at[1]->number = p->units.at[0]->number;
}
static void into_dead(struct plan *p)
{
    for (int i = 1; i < p->numbers; i++)
        if (p->into[i] != i) p->into[i] = i == 1 ? 2 : 1;
    p->into[p->numbers - 1] = 1;
}
static void short_chain(struct plan *p)
{
    assert_true(p->chains.n > 0);
    p->chains.at[0].n = 1;
}
static void bad_choice(struct plan *p)
{
    ((struct choice *)(uintptr_t)p->chains.at[0].choice)->chosen = 99;
}
static void no_kernel(struct plan *p)
{
    unit_with(p, "Conv b")->kernel.source = NULL;
}
static void no_steps(struct plan *p)
{
    unit_with(p, "Conv b")->kernel.nstep = 0;
}
static void no_cost(struct plan *p)
{
    unit_with(p, "Conv b")->kernel.cost = NAN;
}
static void negative_cost(struct plan *p)
{
    unit_with(p, "Conv b")->kernel.cost = -1;
}
static void cheap_choice(struct plan *p)
{
    ((struct choice *)(uintptr_t)p->chains.at[0].choice)->candidate[0].variant.cost = -1;
}
static void other_operand(struct plan *p)
{
    struct unit *u = unit_with(p, "Conv b");
    u->operand[u->noperand - 1] = p->g->inputs.at[0];
}
static void operand_role(struct plan *p)
{
    struct unit *u = unit_with(p, "Conv b");
    u->written[u->noperand - 1] = false;
}
static void one_operand_less(struct plan *p)
{
    unit_with(p, "Conv b")->noperand--;
}
static void pack_of_output(struct plan *p)
{
    struct unit *u = packing(p);
    u->kernel.pack[0].tensor = tensor_with(u, LOOPS_OUTPUT);
}
static void pack_is_dead(struct plan *p)
{
    for (int i = 0; i < p->units.n; i++)
        if (!strncmp(p->units.at[i]->label, "pack ", 5)) p->units.at[i]->dead = true;
    plan_count(p);
}

static const struct broken_plan rows[] = {
    {"a unit without a label", PHASE_UNITS, no_label, "without a label': expected a label"},
    {"a unit behind its readers", PHASE_UNITS, swap_units, "behind it"},
    {"a writer that is dead", PHASE_UNITS, kill_writer, "unit 'relu': reads %3, whose writer 'Conv a' is dead"},
    {"a unit in another program", PHASE_UNITS, other_program, "expected program backward"},
    {"an index variable that nothing binds", PHASE_UNITS, free_ivar, "statement 0: index variable J"},
    {"an index variable that is not there", PHASE_UNITS, ivar_range, "expected an index variable below"},
    {"an index too few", PHASE_UNITS, missing_index, "indices of a read: expected 4"},
    {"a read outside without a value for it", PHASE_UNITS, read_outside, "expected an index in 0..8, got -1..9"},
    {"an expression below itself", PHASE_UNITS, ring_of_nodes, "below itself"},
    {"a call without arguments", PHASE_UNITS, no_arguments, "arguments of a call: expected 1"},
    {"an input that is written", PHASE_UNITS, written_input, "expected to write an output or a temporary"},
    {"statements in the wrong order", PHASE_UNITS, statements_swapped, "is read before a statement writes it"},
    {"two tensors of one name", PHASE_UNITS, same_names, "two tensors are called x"},
    {"an operand of another type", PHASE_UNITS, other_type, "expected type f32"},
    {"an operand of another shape", PHASE_UNITS, other_shape, "expected the shape of %0"},
    {"an operand that is no tensor", PHASE_UNITS, no_tensor, "expected a tensor of the graph"},
    {"an anchor that is no statement", PHASE_FORWARD_VIEWS, anchor_statement,
     "anchor: expected a statement below 1, got 7"},
    {"a part of another tensor too early", PHASE_FORWARD_VIEWS, early_root, "expected to be its own root"},
    {"a root that is a part", PHASE_ALIAS, chain_of_roots, "expected to be its own root"},
    {"a part outside of its root", PHASE_ALIAS, part_outside, "0..15, got 9..16"},
    {"parts that overlap", PHASE_ALIAS, parts_overlap, "writes a part"},
    {"a count that is wrong", PHASE_FUSE_EPILOGUES, wrong_count, "as the units have it"},
    {"an order that misses a dimension", PHASE_LAYOUT, bad_order, "each of its 4 dimensions once"},
    {"a stride that is wrong", PHASE_LAYOUT, bad_stride, "expected stride 88, got 89"},
    {"a halo that strides do not know", PHASE_LAYOUT, bad_halo, "expected stride"},
    {"a halo in the user's memory", PHASE_LAYOUT, fixed_halo, "without halos"},
    {"an alignment that is no power of 2", PHASE_LAYOUT, bad_align, "power of 2, got 24"},
    {"a part at another place", PHASE_LAYOUT, bad_origin, "expected to begin at"},
    {"a part with strides of its own", PHASE_LAYOUT, part_stride, "that of its root"},
    {"a unit that remembers another memory", PHASE_LAYOUT, stale_memory, "expected the memory of"},
    {"two units of one number", PHASE_BAND, same_number, "expected a number of its own"},
    {"a unit whose work a dead one does", PHASE_BAND, into_dead, "expected it to be dead"},
    {"a chain of one unit", PHASE_BAND, short_chain, "expected 2..4 units, got 1"},
    {"a choice of nothing", PHASE_BAND, bad_choice, "candidates, got 99"},
    {"a unit without a kernel", PHASE_CHOOSE, no_kernel, "unit 'Conv b': expected a kernel"},
    {"a kernel without steps", PHASE_CHOOSE, no_steps, "expected 1..6 steps, got 0"},
    {"a kernel without a cost", PHASE_CHOOSE, no_cost, "expected a cost"},
    {"a kernel that earns time", PHASE_CHOOSE, negative_cost, "expected a cost of 0 ns or more, got -1"},
    {"a choice that earns time", PHASE_BAND, cheap_choice, "choice: expected costs of 0 ns or more, got -1"},
    {"an operand of something else", PHASE_CHOOSE, other_operand, "operand 2: expected"},
    {"an operand that is not written", PHASE_CHOOSE, operand_role, "operand 2: expected to be written"},
    {"an operand too few", PHASE_CHOOSE, one_operand_less, "expected 3 operands, got 2"},
    {"a pack of what is written", PHASE_CHOOSE, pack_of_output, "pack 0: expected an input"},
    {"a pack that nobody makes", PHASE_CHOOSE, pack_is_dead, "is dead"},
};

static void test_broken_plans(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT_OF(rows); i++) try_broken_plan(network, &rows[i]);
}

/* Nothing writes an empty tensor, and work that costs nothing is accepted. */
static void test_empty_tensors(void **state)
{
    struct arena *a = arena_create(ctx);
    struct sol_graph *g = NULL;
    struct target target;
    struct plan *p;
    (void)state;
    const char *text = "input %0:f32[0 8 4 3] \"x\"\n%1 = MaxPool(%0) k=2\n%2 = gelu(%1)\noutput %2 \"y\"\n";
    if (target_named(ctx, "x86-64-v3", &target) || sol_config_set(ctx, "compiler::verify", "1"))
        fail_msg("%s", sol_error(ctx));
    if (sol_graph_parse(ctx, text, &g)) fail_msg("%s", sol_error(ctx));
    if (sol_graph_differentiate(g, 1, (int[]){0}, 1, g->inputs.at, (int[]){0}) || passes_run(g) ||
        plan_make(g, a, &target, &p))
        fail_msg("%s", sol_error(ctx));
    sol_graph_destroy(g);
    arena_destroy(a);
}

/* Storing the 96 channels takes longer than computing them. A band that does not store them still costs what its units
 * cost. */
static void test_costs_of_bands(void **state)
{
    struct arena *a = arena_create(ctx);
    struct sol_graph *g = NULL;
    struct target target;
    struct plan *p = NULL;
    (void)state;
    const char *text = "input %0:f32[1 16 112 112] \"x\"\nparam %1:f32[96 16 1 1] \"v\"\nparam %2:f32[96 1 3 3] \"w\"\n"
                       "%3 = Conv(%0, %1)\n%4 = relu(%3)\n%5 = Conv(%4, %2) s=2 p=1 q=1 g=96\noutput %5 \"y\"\n";
    if (target_named(ctx, "x86-64-v4", &target) || sol_config_set(ctx, "compiler::verify", "1"))
        fail_msg("%s", sol_error(ctx));
    target.cores = 4;
    target.l2 = 1 << 20; /* the band's rows take half of it */
    if (sol_graph_parse(ctx, text, &g) || passes_run(g) || plan_make(g, a, &target, &p)) fail_msg("%s", sol_error(ctx));
    assert_int_equal(p->chains.n, 1);
    const struct choice *c = p->chains.at[0].choice;
    assert_string_equal(c->candidate[c->chosen].solver->name, "band");
    assert_true(strcmp(c->candidate[c->chosen].variant.text, "apart") != 0);
    sol_graph_destroy(g);
    arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_broken_plans), cmocka_unit_test(test_empty_tensors),
                                       cmocka_unit_test(test_costs_of_bands)};
    return cmocka_run_group_tests(tests, make_ctx, drop_ctx);
}
