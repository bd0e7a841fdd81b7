/* The verifier of call trees (src/plan/verify_tree.c): each row breaks the tree of a band or a scan. */
#include "broken_plan.h"
#include "plan/scan.h"
#include "print/tree.h"

/* Only the steps see y and s, so they lie in scratch memory. Loops: step 0, steps 1 to 6, what follows. */
static const char scan_network[] = SCAN_NETWORK OUTPUT_C;
/* The steps write y, the output. */
static const char output_network[] = SCAN_NETWORK OUTPUT_Y;

/* The band of band_network, whose images, rows and pixels vary: a number that is right for the hints alone is wrong. */
static const char varying_network[] =
    "graph \"net\"\n"
    "dim #0 \"batch\" hint=2\ndim #1 \"height\" hint=24\ndim #2 \"width\" hint=20\n"
    "input %0:f32[N=#0 8 #1 #2] \"x\"\nparam %1:f32[16 8 1 1] \"w\"\nparam %2:f32[16 1 3 3] \"v\"\n"
    "%3 = Conv(%0, %1) \"a\"\n%4 = relu(%3)\n%5 = Conv(%4, %2) p=1 q=1 g=16 \"b\"\n%6 = relu(%5)\n"
    "output %6 \"y\"\n";

/* -- looking for what to break: a tree does not change, except here */

static struct unit *unit_of(struct plan *p)
{
    for (int i = 0; i < p->units.n; i++)
        if (p->units.at[i]->kernel.tree) return p->units.at[i];
    fail_msg("no unit has a call tree");
    return NULL;
}

static struct tree *tree_of(struct plan *p)
{
    return (struct tree *)(uintptr_t)unit_of(p)->kernel.tree;
}

static struct tree_ring *ring(struct plan *p, int i)
{
    assert_true(i < tree_of(p)->nring);
    return (struct tree_ring *)(uintptr_t)&tree_of(p)->ring[i];
}

static struct tree_loop *loop(struct plan *p, int i)
{
    assert_true(i < tree_of(p)->nloop);
    return (struct tree_loop *)(uintptr_t)&tree_of(p)->loop[i];
}

static struct tree_call *call(const struct tree_body *b, int i)
{
    assert_true(i < b->ncall);
    return (struct tree_call *)(uintptr_t)&b->call[i];
}

/* Operand number n, from 0, of those with this base. */
static struct tree_address *operand(const struct tree_body *b, int i, enum tree_base base, int n)
{
    const struct tree_call *c = call(b, i);
    for (int k = 0; k < c->noperand; k++)
        if (c->operand[k].base == base && !n--) return (struct tree_address *)(uintptr_t)&c->operand[k];
    fail_msg("call %d has too few operands of this kind", i);
    return NULL;
}

/* -- breaking it */

static void no_tree(struct plan *p)
{
    unit_of(p)->kernel.tree = NULL;
}
static void ring_too_few(struct plan *p)
{
    tree_of(p)->nring--;
}
static void short_loop(struct plan *p)
{
    loop(p, 0)->n--;
}
static void loop_down(struct plan *p)
{
    loop(p, 0)->down = true;
}
static void more_tasks(struct plan *p)
{
    unit_of(p)->kernel.step[0].tasks++;
}
static void empty_tasks(struct plan *p)
{
    tree_of(p)->per_task = 0;
}
static void two_steps(struct plan *p)
{
    unit_of(p)->kernel.nstep = 2;
}
static void no_call(struct plan *p)
{
    ring(p, 1)->body.ncall = 0;
}
static void ring_of_later_rings(struct plan *p)
{
    ring(p, 1)->body.need = 1;
}
static void ring_in_kernels_memory(struct plan *p)
{
    ring(p, 0)->scratch = -64;
}
static void rings_overlap(struct plan *p)
{
    ring(p, 2)->scratch = ring(p, 1)->scratch;
}
static void ring_outside(struct plan *p)
{
    ring(p, 2)->room += 1000;
}
static void fewer_rows(struct plan *p)
{
    ring(p, 1)->rows--;
}
static void small_ring(struct plan *p)
{
    ring(p, 1)->room = 2;
}
static void stored_ring(struct plan *p)
{
    ring(p, 1)->stored = true;
}
static void fewer_needed(struct plan *p)
{
    ring(p, 2)->body.high--;
}
static void later_needed(struct plan *p)
{
    ring(p, 2)->body.low++;
}
static void other_window(struct plan *p)
{
    operand(&ring(p, 2)->body, 0, TREE_RING, 0)->row.plus++;
}
static void window_moves_faster(struct plan *p)
{
    operand(&ring(p, 2)->body, 0, TREE_RING, 0)->row.by = 2;
}
static void write_into_next_row(struct plan *p)
{
    operand(&ring(p, 1)->body, 0, TREE_RING, 1)->row.plus++;
}
static void write_behind_row(struct plan *p)
{
    operand(&ring(p, 1)->body, 0, TREE_RING, 1)->plus += 128;
}
static void other_row_bytes(struct plan *p)
{
    operand(&ring(p, 2)->body, 0, TREE_RING, 0)->row_bytes -= 64;
}
static void other_ring(struct plan *p)
{
    operand(&ring(p, 2)->body, 0, TREE_RING, 0)->index = 0;
}
static void unaligned_ring(struct plan *p)
{
    unit_of(p)->kernel.scratch_bytes += 64;
    for (int i = 0; i < tree_of(p)->nring; i++) ring(p, i)->scratch += 4;
}
static void other_member(struct plan *p)
{
    call(&ring(p, 1)->body, 0)->member = 0;
}
static void no_member(struct plan *p)
{
    call(&ring(p, 1)->body, 0)->member = 99;
}
static void operand_too_few(struct plan *p)
{
    call(&ring(p, 1)->body, 0)->noperand--;
}
static void other_operand(struct plan *p)
{
    operand(&ring(p, 1)->body, 0, TREE_OPERAND, 0)->index = 0;
}
static void no_operand(struct plan *p)
{
    operand(&ring(p, 1)->body, 0, TREE_OPERAND, 0)->index = 99;
}
static void packed_moves(struct plan *p)
{
    operand(&ring(p, 1)->body, 0, TREE_OPERAND, 0)->by[TREE_ROUND] = 64;
}
static void other_place(struct plan *p)
{
    operand(&loop(p, 0)->body, 0, TREE_OPERAND, 0)->plus += 4;
}
static void other_row(struct plan *p)
{
    operand(&loop(p, 0)->body, 0, TREE_OPERAND, 0)->by[TREE_ROUND] += 80;
}
static void other_image(struct plan *p)
{
    operand(&loop(p, 0)->body, 0, TREE_OPERAND, 0)->by[TREE_IMAGE] = 0;
}
static void moves_by_task(struct plan *p)
{
    operand(&loop(p, 0)->body, 0, TREE_OPERAND, 0)->by[TREE_TASK] = 80;
}
static void image_too_many(struct plan *p)
{
    struct chain *c = (struct chain *)(uintptr_t)p->bands.at[0];
    c->images++;
    unit_of(p)->kernel.step[0].tasks = tree_tasks(tree_of(p), c->images);
}

static void hint_of_tasks(struct plan *p)
{
    unit_of(p)->kernel.step[0].tasks = size_hint(unit_of(p)->kernel.step[0].tasks);
}
static void hint_of_loop(struct plan *p)
{
    loop(p, 0)->n = size_hint(loop(p, 0)->n);
}
static void hint_of_rows(struct plan *p)
{
    ring(p, 1)->rows = size_hint(ring(p, 1)->rows);
}
static void hint_of_ring(struct plan *p)
{
    for (int i = 0; i < tree_of(p)->nring; i++) ring(p, i)->scratch = size_hint(ring(p, i)->scratch);
}
static void hint_of_row(struct plan *p)
{
    struct tree_address *a = operand(&loop(p, 0)->body, 0, TREE_OPERAND, 0);
    a->by[TREE_ROUND] = size_hint(a->by[TREE_ROUND]);
}
static void hint_of_image(struct plan *p)
{
    struct tree_address *a = operand(&loop(p, 0)->body, 0, TREE_OPERAND, 0);
    a->by[TREE_IMAGE] = size_hint(a->by[TREE_IMAGE]);
}

static void late_steps(struct plan *p)
{
    loop(p, 1)->from++;
    loop(p, 1)->n--;
}
static void early_end(struct plan *p)
{
    loop(p, 1)->n--;
}
static void steps_down(struct plan *p)
{
    loop(p, 1)->down = true;
}
static void too_many_steps(struct plan *p)
{
    loop(p, 1)->n++;
}
static void lost_loop(struct plan *p)
{
    tree_of(p)->nloop--;
}
static void lost_call(struct plan *p)
{
    loop(p, 1)->body.ncall--;
}
static void calls_swapped(struct plan *p)
{
    struct tree_call *first = call(&loop(p, 1)->body, 0), *second = call(&loop(p, 1)->body, 1), kept = *first;
    *first = *second;
    *second = kept;
}
static void other_step(struct plan *p)
{
    operand(&loop(p, 1)->body, 0, TREE_OPERAND, 1)->by[TREE_ROUND] *= 2;
}
static void other_task(struct plan *p)
{
    operand(&loop(p, 1)->body, 0, TREE_OPERAND, 1)->by[TREE_TASK] *= 2;
}
static void moves_by_image(struct plan *p)
{
    operand(&loop(p, 1)->body, 0, TREE_OPERAND, 1)->by[TREE_IMAGE] = 144;
}
static void state_of_same_step(struct plan *p)
{
    operand(&loop(p, 1)->body, 0, TREE_SCRATCH, 1)->row.plus++;
}
static void state_of_one_step(struct plan *p)
{
    for (int i = 0; i < 2; i++) {
        const struct tree_call *c = call(&loop(p, 1)->body, i);
        for (int k = 0; k < c->noperand; k++)
            if (c->operand[k].base == TREE_SCRATCH) ((struct tree_address *)(uintptr_t)&c->operand[k])->row.wrap = 1;
    }
}
static void two_rows_a_step(struct plan *p)
{
    operand(&loop(p, 1)->body, 0, TREE_SCRATCH, 1)->row.by = 2;
}
static void other_state(struct plan *p)
{
    operand(&loop(p, 2)->body, 0, TREE_SCRATCH, 0)->plus = 0;
}
static void outside_of_scratch(struct plan *p)
{
    operand(&loop(p, 0)->body, 0, TREE_SCRATCH, 0)->plus += 1 << 20;
}
static void two_results_in_one_place(struct plan *p)
{
    struct tree_address *y = operand(&loop(p, 1)->body, 1, TREE_SCRATCH, 0);
    *operand(&loop(p, 1)->body, 1, TREE_SCRATCH, 2) = *y;
}

static const struct broken_plan band_rows[] = {
    {"a band without a tree", PHASE_CHOOSE, no_tree, "tree: expected one loop and 3 rings, got 0 and 0"},
    {"a ring too few", PHASE_CHOOSE, ring_too_few, "tree: expected one loop and 3 rings, got 1 and 2"},
    {"a loop that ends too early", PHASE_CHOOSE, short_loop, "tree: expected a loop over rows 0..23, got 0..22"},
    {"a loop from the end", PHASE_CHOOSE, loop_down, "got 0..23 down"},
    {"a task too many", PHASE_CHOOSE, more_tasks, "tree: expected one step of 48 tasks, got 1 steps, the first of 49"},
    {"tasks of no rows", PHASE_CHOOSE, empty_tasks, "tree: expected one step of"},
    {"two steps", PHASE_CHOOSE, two_steps, "tree: expected one step of 48 tasks, got 2 steps"},
    {"a ring that nothing fills", PHASE_CHOOSE, no_call, "expected one call, got 0"},
    {"a ring that needs itself", PHASE_CHOOSE, ring_of_later_rings, "tree: ring 1: expected rows of some bytes"},
    {"a ring in the kernels' memory", PHASE_CHOOSE, ring_in_kernels_memory, "expected to begin at byte 0 of scratch"},
    {"rings that overlap", PHASE_CHOOSE, rings_overlap, "tree: ring 2: expected to begin at byte 16128 of scratch"},
    {"a ring behind the scratch memory", PHASE_CHOOSE, ring_outside, "bytes of scratch memory for its rings, got"},
    {"a ring of fewer rows", PHASE_CHOOSE, fewer_rows, "tree: ring 1: expected 24 rows, got 23"},
    {"a ring without room", PHASE_CHOOSE, small_ring, "tree: ring 1: expected room for rows -1..1, it has 2"},
    {"a stored ring with rows outside", PHASE_CHOOSE, stored_ring, "which are stored, got row -1"},
    {"a row that is not asked for", PHASE_CHOOSE, fewer_needed,
     "reads rows -1..1 of ring 1 in round 0, which holds -1..0"},
    {"a row that is dropped", PHASE_CHOOSE, later_needed, "reads rows -1..1 of ring 1 in round 0, which holds 0..1"},
    {"a window of other rows", PHASE_CHOOSE, other_window, "in round 0: expected rows -1..1 of ring 1, got 0..2"},
    {"a window that moves too fast", PHASE_CHOOSE, window_moves_faster,
     "in round 1: expected rows 0..2 of ring 1, got 1..3"},
    {"a row that is written elsewhere", PHASE_CHOOSE, write_into_next_row, "expected rows 0..0 of ring 1, got 1..1"},
    {"a row that leaves its room", PHASE_CHOOSE, write_behind_row, "expected rows 0..0 of ring 1, got 0..1"},
    {"a ring with rows of another size", PHASE_CHOOSE, other_row_bytes, "expected rows -1..1 of ring 1"},
    {"a ring that is another stage's", PHASE_CHOOSE, other_ring, "expected ring 1, got 0"},
    {"a ring that is not aligned", PHASE_CHOOSE, unaligned_ring, "expected an address aligned to"},
    {"a call of another kernel", PHASE_CHOOSE, other_member, "expected a call of its kernel, got member 0"},
    {"a call of no kernel", PHASE_CHOOSE, no_member, "expected a call of its kernel, got member 99"},
    {"an operand too few", PHASE_CHOOSE, operand_too_few, "expected 3 operands, got 2"},
    {"another operand", PHASE_CHOOSE, other_operand, "expected its operand, packed, got operand 0"},
    {"an operand that is not there", PHASE_CHOOSE, no_operand, "expected its operand, packed, got operand 99"},
    {"a packed operand that moves", PHASE_CHOOSE, packed_moves, "w in round 23: expected bytes 0..511, got 1472..1983"},
    {"an operand elsewhere", PHASE_CHOOSE, other_place, "in round 0: expected bytes 0..28879, got 4..28883"},
    {"an operand of another row", PHASE_CHOOSE, other_row, "in round 23: expected bytes 1840.."},
    {"an operand of another image", PHASE_CHOOSE, other_image, "in round 0: expected bytes 30720.."},
    {"an operand that moves by tasks", PHASE_CHOOSE, moves_by_task, "expected an address by row and image"},
    {"an image too many", PHASE_CHOOSE, image_too_many, "are outside of its memory, 0..30719"},
};
static const struct broken_plan varying_rows[] = {
    {"a number of tasks", PHASE_CHOOSE, hint_of_tasks,
     "tree: expected one step of 78 tasks, got 1 steps, the first of 48"},
    {"a number of rounds", PHASE_CHOOSE, hint_of_loop, "tree: expected a loop over rows 0..25, got 0..23"},
    {"a number of rows", PHASE_CHOOSE, hint_of_rows, "tree: ring 1: expected 26 rows, got 24"},
    {"rings at numbers", PHASE_CHOOSE, hint_of_ring, "of scratch memory"},
    {"rows of a number of pixels", PHASE_CHOOSE, hint_of_row, "in round 25: expected bytes 2300.."},
    {"images of a number of pixels", PHASE_CHOOSE, hint_of_image, "in round 0: expected bytes"},
};
static const struct broken_plan scan_rows[] = {
    {"a scan without a tree", PHASE_CHOOSE, no_tree, "tree: expected 3 loops and no rings, got 0 and 0"},
    {"a loop too few", PHASE_CHOOSE, lost_loop, "tree: expected 3 loops and no rings, got 2 and 0"},
    {"a call too few", PHASE_CHOOSE, lost_call, "tree: loop 1: expected 2 calls and no ring, got 1"},
    {"calls in another order", PHASE_CHOOSE, calls_swapped, "expected a call of its kernel, got member 3"},
    {"a step that is left out", PHASE_CHOOSE, late_steps, "of step 1 in round 2: expected it in bytes"},
    {"a last step that is left out", PHASE_CHOOSE, early_end, "of step 6 in round 6: expected it in bytes"},
    {"steps in the other direction", PHASE_CHOOSE, steps_down, "of step 5 in round 6: expected it in bytes"},
    {"a step too many", PHASE_CHOOSE, too_many_steps, "tree: loop 1: expected rounds in 0..6, got 1..7"},
    {"two steps at once", PHASE_CHOOSE, two_steps, "tree: expected one step of 3 tasks, got 2 steps"},
    {"an operand of another step", PHASE_CHOOSE, other_step, "g in round 1: expected bytes 432..575, got 864..1007"},
    {"an operand of another task", PHASE_CHOOSE, other_task, "g in round 1: expected bytes 720..863, got 1008..1151"},
    {"an operand that moves by images", PHASE_CHOOSE, moves_by_image, "expected an address by step and task"},
    {"a state of another step", PHASE_CHOOSE, state_of_same_step, "of step 0 in round 1: expected it in bytes"},
    {"a state without room for two steps", PHASE_CHOOSE, state_of_one_step, "overlaps what the same call has"},
    {"a state of two rows a step", PHASE_CHOOSE, two_rows_a_step, "expected one row of scratch memory for each step"},
    {"a state of another tensor", PHASE_CHOOSE, other_state, "which hold something else"},
    {"a tensor behind the scratch memory", PHASE_CHOOSE, outside_of_scratch, "are outside of the scratch memory"},
    {"two results in one place", PHASE_CHOOSE, two_results_in_one_place, "overlaps what the same call has"},
};
static const struct broken_plan output_rows[] = {
    {"a step that nothing writes", PHASE_CHOOSE, early_end, "tree: expected y to be written in step 6"},
    {"steps in the other direction", PHASE_CHOOSE, steps_down,
     "of step 5 in round 6: expected it to be written before"},
};

static void test_broken_trees(void **state)
{
    (void)state;
    try_broken_tiles(band_network, COUNT_OF(band_rows), band_rows);
    try_broken_tiles(varying_network, COUNT_OF(varying_rows), varying_rows);
    try_broken_tiles(scan_network, COUNT_OF(scan_rows), scan_rows);
    try_broken_tiles(output_network, COUNT_OF(output_rows), output_rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_broken_trees)};
    return cmocka_run_group_tests(tests, make_ctx, drop_ctx);
}
