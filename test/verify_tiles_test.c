/* The verifier of bands and scans (src/plan/verify_tiles.c): each row breaks what it keeps of one of them. */
#include "broken_plan.h"
#include "plan/scan.h"

static const char scan_network[] = SCAN_NETWORK OUTPUT_Y OUTPUT_C;

static struct chain *band_of(struct plan *p)
{
    return (struct chain *)(uintptr_t)p->bands.at[0];
}

/* The stage that reads a window of rows: the ring is that of the stage before it. */
static struct stage *window_of(struct plan *p)
{
    struct chain *c = band_of(p);
    for (int i = 1; i < c->n; i++)
        if (c->stage[i].high > c->stage[i].low) return &c->stage[i];
    fail_msg("no stage reads a window");
    return NULL;
}

static struct scan *scan_of(struct plan *p)
{
    return (struct scan *)(uintptr_t)p->scans.at[0];
}

/* The n-th tensor of the steps that lies in scratch memory. */
static struct scan_state *scratch_of(struct plan *p, int n)
{
    struct scan *s = scan_of(p);
    for (int t = 0; t < s->loops->tensors.n; t++)
        if (s->state[t].scratch && !n--) return &s->state[t];
    fail_msg("too few tensors in scratch memory");
    return NULL;
}

static void no_stages(struct plan *p)
{
    band_of(p)->n = 1;
}

static void more_rows(struct plan *p)
{
    window_of(p)->rows++;
}

static void lower_window(struct plan *p)
{
    window_of(p)->low++;
}

static void higher_window(struct plan *p)
{
    window_of(p)->high--;
}

static void other_step(struct plan *p)
{
    window_of(p)->step = 2;
}

static void other_fill(struct plan *p)
{
    window_of(p)->fill = 1;
}

static void small_ring(struct plan *p)
{
    window_of(p)[-1].ring_rows = 2;
}

static void short_row(struct plan *p)
{
    window_of(p)[-1].row_bytes -= 64;
}

static void other_ring_stride(struct plan *p)
{
    window_of(p)->memory[window_of(p)->in].stride[3]++;
}

static void living_stage(struct plan *p)
{
    window_of(p)[-1].u = band_of(p)->stage[band_of(p)->n - 1].u;
}

static void other_ring(struct plan *p)
{
    struct stage *st = window_of(p);
    for (int t = 0; t < st->loops->tensors.n; t++)
        if (t != st->in && st->loops->tensors.at[t].role == LOOPS_INPUT) {
            st->in = t;
            return;
        }
    fail_msg("the stage reads one tensor only");
}

static void stored_and_read_twice(struct plan *p)
{
    window_of(p)[-1].stored = true;
}

static void two_steps(struct plan *p)
{
    window_of(p)[-1].kernel.nstep = 2;
}

static void no_ring_memory(struct plan *p)
{
    struct chain *c = band_of(p);
    c->stage[c->n - 1].u->kernel.scratch_bytes -= 64;
}

static void too_cheap(struct plan *p)
{
    struct chain *c = band_of(p);
    c->cost = c->kernels / 2;
}

static void late_phase(struct plan *p)
{
    scan_of(p)->phase[0].from++;
}

static void missing_step(struct plan *p)
{
    scan_of(p)->steps++;
    scan_of(p)->nphase--;
}

static void lost_stage(struct plan *p)
{
    scan_of(p)->phase[0].nstage--;
}

static struct scan_phase *longest_phase(struct plan *p)
{
    struct scan *s = scan_of(p);
    struct scan_phase *best = &s->phase[0];
    for (int i = 1; i < s->nphase; i++)
        if (s->phase[i].n > best->n) best = &s->phase[i];
    return best;
}

static void stages_swapped(struct plan *p)
{
    struct scan_phase *ph = longest_phase(p);
    const struct scan_stage first = ph->stage[0];
    ph->stage[0] = ph->stage[1];
    ph->stage[1] = first;
}

static void step_ahead(struct plan *p)
{
    struct scan_phase *ph = longest_phase(p);
    for (int k = 0; k < ph->nstage; k++)
        for (int t = 0; t < ph->stage[k].slice->tensors.n; t++) {
            struct scan_tensor *at = ph->stage[k].slice->tensors.at[t].user;
            if (at) at->shift = -at->shift;
        }
}

static void not_carried(struct plan *p)
{
    struct scan *s = scan_of(p);
    for (int t = 0; t < s->loops->tensors.n; t++) s->state[t].carried = false;
}

static void overlap_in_scratch(struct plan *p)
{
    scratch_of(p, 1)->offset = scratch_of(p, 0)->offset;
}

static void outside_of_scratch(struct plan *p)
{
    scratch_of(p, 0)->rows += 1000;
}

static void one_step_of_room(struct plan *p)
{
    struct scan *s = scan_of(p);
    for (int t = 0; t < s->loops->tensors.n; t++)
        if (s->state[t].carried) s->state[t].scratch = true, s->state[t].rows = 1;
}

static const struct broken_plan band_rows[] = {
    {"a band of one stage", PHASE_CHOOSE, no_stages, "band: expected 2..4 stages, got 1"},
    {"a band that is cheaper than its units", PHASE_CHOOSE, too_cheap, "band: expected to cost at least"},
    {"a row too many", PHASE_CHOOSE, more_rows, "expected 24 rows, got 25"},
    {"a window that begins too late", PHASE_CHOOSE, lower_window, "reads rows -1..1 for its row 0"},
    {"a window that ends too early", PHASE_CHOOSE, higher_window, "reads rows -1..1 for its row 0"},
    {"a window that moves too fast", PHASE_CHOOSE, other_step, "for its row 23: expected the ring to hold them"},
    {"rows outside that are filled wrongly", PHASE_CHOOSE, other_fill, "are filled with 1"},
    {"a ring without room for the window", PHASE_CHOOSE, small_ring, "expected room for 3 rows, got 2"},
    {"a ring whose rows are short", PHASE_CHOOSE, short_row, "expected rows of"},
    {"a ring that its reader knows otherwise", PHASE_CHOOSE, other_ring_stride, "expected its reader to know"},
    {"a stage that is alive", PHASE_CHOOSE, living_stage, "to be dead, and to name it"},
    {"a ring that nobody fills", PHASE_CHOOSE, other_ring, "expected to read what"},
    {"a stored tensor whose rows are read again", PHASE_CHOOSE, stored_and_read_twice, "to read each row once"},
    {"a stage of two steps", PHASE_CHOOSE, two_steps, "expected a kernel of one step"},
    {"no memory for the ring", PHASE_CHOOSE, no_ring_memory, "of scratch memory for kernels and rings"},
};

static const struct broken_plan scan_rows[] = {
    {"steps that begin too late", PHASE_CHOOSE, late_phase, "scan: expected steps from 0 on, got 1"},
    {"a step that never runs", PHASE_CHOOSE, missing_step, "scan: expected 8 steps, got"},
    {"a stage that never runs", PHASE_CHOOSE, lost_stage, "statements, got"},
    {"stages in the wrong order", PHASE_CHOOSE, stages_swapped, "reads it before one of the same step writes it"},
    {"a read of a later step", PHASE_CHOOSE, step_ahead, "expected reads of earlier steps, got 1 steps ahead"},
    {"a state that is forgotten", PHASE_CHOOSE, not_carried, "expected to outlive its step"},
    {"a state without room for two steps", PHASE_CHOOSE, one_step_of_room, "scratch memory for 2 steps, got 1"},
    {"two tensors in one place", PHASE_CHOOSE, overlap_in_scratch, "overlap in scratch memory"},
    {"a tensor behind the scratch memory", PHASE_CHOOSE, outside_of_scratch, "of the scratch memory, got"},
};

static void test_broken_tiles(void **state)
{
    (void)state;
    try_broken_tiles(band_network, COUNT_OF(band_rows), band_rows);
    try_broken_tiles(scan_network, COUNT_OF(scan_rows), scan_rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_broken_tiles)};
    return cmocka_run_group_tests(tests, make_ctx, drop_ctx);
}
