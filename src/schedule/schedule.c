/* Makes the steps in the order of the plan, with their operands' buffers and offsets, from the lifetimes of all
 * tensors. */
#include "schedule/schedule.h"
#include "print/tree.h"

#include <string.h>

static struct sol_tensor *root_of(const struct schedule *s, const struct sol_tensor *t)
{
    return plan_allocation(s->plan, t)->root;
}

/* Equal texts are one kernel. */
static int kernel_number(struct schedule *s, struct map *known, const struct kernel *kernel)
{
    const char *source = kernel->source;
    struct hash h;
    char key[33];
    hash_init(&h);
    hash_text(&h, source);
    hash_hex(&h, key);
    intptr_t k = (intptr_t)map_get(known, key);
    if (!k) {
        PUSH(s->arena, s->kernels, kernel_text(s->arena, s->plan->target, source));
        PUSH(s->arena, s->shared, kernel->shared_bytes);
        PUSH(s->arena, s->items, MAX(kernel->items, 1));
        k = s->kernels.n;
        map_set(known, key, (void *)k);
    }
    return (int)k - 1;
}

static struct halo halo_of(const struct allocation *s)
{
    struct halo h = {.ndim = s->t->ndim, .origin = s->origin, .bytes = dtype_def(s->t->dtype)->bytes};
    for (int i = 0; i < h.ndim; i++) {
        const int d = s->order[i];
        h.dim[i] =
            (struct halo_dim){s->t->dim[d].size, s->memory.stride[d], s->memory.halo_low[d], s->memory.halo_high[d]};
    }
    return h;
}

static sol_status push_halo(struct schedule *s, struct schedule_program *pr, struct map *known,
                            const struct sol_tensor *t)
{
    const struct allocation *st = plan_allocation(s->plan, t);
    const struct halo h = halo_of(st);
    struct kernel k;
    TRY(halo_kernel(s->arena, s->plan->target, &h, &k));
    struct schedule_step step = {
        .kernel = kernel_number(s, known, &k), .set = -1, .tasks = k.step[0].tasks, .label = "halo", .noperand = 1};
    step.operand = NEW_ARRAY(s->arena, struct sol_tensor *, 1);
    step.operand[0] = st->t;
    PUSH(s->arena, pr->steps, step);
    return SOL_OK;
}

static bool has_halo(const struct allocation *s)
{
    for (int d = 0; d < s->t->ndim; d++)
        if (s->memory.halo_low[d] || s->memory.halo_high[d]) return !s->fixed;
    return false;
}

/* Counts the bytes of all tensors but temporaries, as a size. A tensor that is read twice counts once. */
static int64_t operand_bytes(const struct loops *loops)
{
    int64_t n = 0;
    for (int i = 0; i < loops->tensors.n; i++) {
        const struct loops_tensor *t = &loops->tensors.at[i];
        if (t->role != LOOPS_INPUT && t->role != LOOPS_OUTPUT) continue;
        n = size_add(n, size_mul(loops_elements(t), dtype_def(t->dtype)->bytes));
    }
    return n;
}

/* Memory is planned before layers set dimensions: for the most that these may become. */
static int64_t planned(const struct schedule *s, int64_t bytes)
{
    int64_t most[SIZE_MOST_DIMS];
    graph_data_most(s->plan->g, most);
    return size_upper(bytes, most);
}

static sol_status push_unit(struct schedule *s, struct map *known, bool *halo_done, struct unit *u)
{
    struct schedule_program *pr = &s->program[u->program];
    for (int i = 0; i < u->loops->tensors.n; i++) {
        const struct loops_tensor *t = &u->loops->tensors.at[i];
        if (t->role != LOOPS_OUTPUT) continue;
        struct sol_tensor *root = root_of(s, t->user);
        if (halo_done[root->id] || !has_halo(plan_allocation(s->plan, root))) continue;
        halo_done[root->id] = true;
        TRY(push_halo(s, pr, known, root));
    }
    struct schedule_step step = {
        .unit = u, .set = -1, .label = u->label, .noperand = u->noperand, .operand = u->operand, .kernel = -1};
    if (!u->kernel.source) {
        step.call = s->opaque.n;
        step.set = layer_sets(u->layer);
        step.tasks = 1;
        PUSH(s->arena, s->opaque, u->layer);
        PUSH(s->arena, pr->steps, step);
        return SOL_OK;
    }
    step.kernel = kernel_number(s, known, &u->kernel);
    step.team = u->kernel.tree && u->kernel.tree->team;
    int64_t groups = 1; /* that need scratch memory of their own, of one step */
    for (int i = 0; i < u->kernel.nstep; i++) {
        step.sub = i;
        step.tasks = unit_when(u, u->kernel.step[i].tasks);
        if (target_launches(s->plan->target)) groups = size_max(groups, step.tasks);
        step.flops = i ? 0 : unit_when(u, loops_flops(u->loops));
        step.bytes = i ? 0 : unit_when(u, operand_bytes(u->loops));
        const char *suffix = u->kernel.step[i].suffix;
        step.label = suffix ? arena_printf(s->arena, "%s (%s)", u->label, suffix) : u->label;
        PUSH(s->arena, pr->steps, step);
    }
    pr->scratch_bytes =
        size_max(pr->scratch_bytes, planned(s, groups == 1 ? u->kernel.scratch_bytes
                                                           : size_mul(groups, kernel_lines(u->kernel.scratch_bytes))));
    return SOL_OK;
}

/* Puts a line for each statement that a step computes. */
static void put_statements(struct text *t, struct arena *a, const struct schedule_step *st)
{
    const char *line = !st->unit          ? "y0 = 0 around its elements"
                       : st->unit->opaque ? st->unit->layer->def->name
                                          : kernel_what(a, st->unit->loops);
    for (size_t n; *line; line += n + (line[n] == '\n')) {
        n = strcspn(line, "\n");
        text_put(t, "%s %.*s\n", t->n ? " *" : "/*", (int)n, line);
    }
    text_put(t, " *\n");
}

void schedule_notes(struct schedule *s)
{
    struct map *seen = map_create(s->arena);
    struct text *note = NEW_ARRAY(s->arena, struct text, s->kernels.n + 1);
    for (int i = 0; i < PROGRAMS; i++)
        for (int k = 0; k < s->program[i].steps.n; k++) {
            const struct schedule_step *st = &s->program[i].steps.at[k];
            if (st->kernel < 0) continue;
            struct text *t = &note[st->kernel];
            const char *line = arena_printf(s->arena, "%s: %s", program_name(i), st->label);
            const char *key = arena_printf(s->arena, "%d %s", st->kernel, line);
            if (map_get(seen, key)) continue;
            map_set(seen, key, seen);
            if (!t->n) {
                *t = text_new(s->arena);
                put_statements(t, s->arena, st);
            }
            text_put(t, " * %s\n", line);
        }
    for (int i = 0; i < s->kernels.n; i++) {
        struct text filled = text_new(s->arena);
        uint32_t dims;
        int64_t bad;
        if (!note[i].n) continue;
        size_fill(&filled, note[i].at, NULL, &dims, &bad);
        s->kernels.at[i].note = arena_printf(s->arena, "%s */\n", filled.at);
    }
}

/* -- buffers */

static int push_buffer(struct schedule *s, enum sol_buffer_kind kind, int index, int64_t bytes, int given)
{
    struct sol_buffer b = {.kind = kind, .index = index, .bytes = bytes, .given = given};
    PUSH(s->arena, s->buffers, b);
    return s->buffers.n - 1;
}

static int64_t all_bytes(const struct allocation *st)
{
    return size_mul(st->elements, dtype_def(st->t->dtype)->bytes);
}

static int64_t store_bytes(const struct allocation *st)
{
    const int64_t bytes = all_bytes(st);
    return st->when ? size_mul(bytes, st->when) : bytes;
}

/* Of at least `bytes`, whole cache lines. What a form has as a factor stays in front of the quotient, so tensors of as
 * many pixels, whatever their channels, share it: sums of many tensors stay short. */
static int64_t lines(int64_t bytes)
{
    const int64_t factor = size_varies(bytes) ? size_factor(bytes) : 1, most = MIN(factor & -factor, 64);
    const int64_t count = size_ceil_div(size_exact_div(bytes, factor), 64 / most);
    return size_mul(count, factor * (64 / most));
}

struct life { /* of a root tensor, in each program */
    int first[PROGRAMS], last[PROGRAMS];
    bool used[PROGRAMS];
};

static void live(struct schedule *s, struct life *life, int program)
{
    const struct schedule_program *pr = &s->program[program];
    for (int i = 0; i < pr->steps.n; i++) {
        const struct schedule_step *st = &pr->steps.at[i];
        for (int k = 0; k < st->noperand; k++) {
            struct life *l = &life[root_of(s, st->operand[k])->id];
            if (!l->used[program]) l->first[program] = i;
            l->used[program] = true;
            l->last[program] = i;
        }
    }
}

static void user_buffer(struct schedule *s, const struct life *life, enum sol_buffer_kind kind, int index,
                        const struct sol_tensor *t, bool backward)
{
    int given =
        (backward ? 0 : SOL_GIVEN_FORWARD) | (backward || life[t->id].used[PROGRAM_BACKWARD] ? SOL_GIVEN_BACKWARD : 0);
    s->buffer[t->id] = push_buffer(s, kind, index, store_bytes(plan_allocation(s->plan, t)), given);
}

static void user_buffers(struct schedule *s, const struct life *life)
{
    const struct sol_graph *g = s->plan->g;
    for (int i = 0; i < g->inputs.n; i++)
        user_buffer(s, life, SOL_BUFFER_INPUT, i, g->inputs.at[i], g->inputs.at[i]->backward);
    for (int i = 0; i < g->params.n; i++)
        s->buffer[g->params.at[i]->id] = push_buffer(
            s, SOL_BUFFER_PARAM, i, store_bytes(plan_allocation(s->plan, g->params.at[i])), SOL_GIVEN_FORWARD);
    for (int i = 0; i < g->outputs.n; i++)
        user_buffer(s, life, SOL_BUFFER_OUTPUT, i, g->outputs.at[i].t, g->outputs.at[i].backward);
}

/* The buffer of tensors that more than one program uses. */
static void share(struct schedule *s, int tensor, int buffer, int64_t *bytes)
{
    s->buffer[tensor] = buffer;
    s->offset[tensor] = *bytes;
    *bytes = size_add(*bytes, lines(store_bytes(&s->plan->allocations[tensor])));
}

static int64_t block_bytes(const struct schedule *s, int tensor)
{
    const struct allocation *st = &s->plan->allocations[tensor];
    return planned(s, graph_data_dims(s->plan->g) ? all_bytes(st) : store_bytes(st));
}

/* When a tensor is live in a program. Time in forward is counted from its last step to its first, so that saved tensors
 * are live at the beginning and then die, as they do in backward. */
static struct rt_block block_of(const struct schedule *s, const struct life *life, int tensor, int program)
{
    const struct life *l = &life[tensor];
    const int end = program == PROGRAM_FORWARD && s->saved_bytes ? s->program[program].steps.n : 0;
    struct rt_block b = {.bytes = lines(block_bytes(s, tensor)),
                         .offset = s->offset[tensor],
                         .first = end ? end - l->last[program] : l->first[program],
                         .last = end ? end - l->first[program] : l->last[program]};
    return b;
}

/* Tensors that backward reads last get the lowest offsets. So the memory that becomes free in backward, and that is not
 * in use yet in forward, is one contiguous piece. */
static void push_saved(struct schedule *s, const struct life *life, int tensor)
{
    int i = s->saved.n;
    PUSH(s->arena, s->saved, tensor);
    for (; i && life[s->saved.at[i - 1]].last[PROGRAM_BACKWARD] < life[tensor].last[PROGRAM_BACKWARD]; i--)
        s->saved.at[i] = s->saved.at[i - 1];
    s->saved.at[i] = tensor;
}

static struct rt_block *saved_blocks(const struct schedule *s, const struct life *life, int program)
{
    struct rt_block *blocks = NEW_ARRAY(s->arena, struct rt_block, s->saved.n + 1);
    for (int i = 0; i < s->saved.n; i++) {
        blocks[i] = block_of(s, life, s->saved.at[i], program);
        blocks[i].first = -1; /* it is live from the start, whenever it is first read */
    }
    return blocks;
}

/* The tensors in the workspace of a program: those that it alone uses. Returns their number. */
static int find_own(const struct schedule *s, const struct life *life, int program, int *out_tensor)
{
    int n = 0;
    for (int i = 0; i < s->plan->nallocations; i++) {
        const struct allocation *st = &s->plan->allocations[i];
        if (!st->t || st->root != st->t || s->buffer[i] >= 0 || !life[i].used[program]) continue;
        out_tensor[n++] = i;
    }
    return n;
}

static int64_t offsets(struct schedule *s, struct rt_block *blocks, int n, int64_t room, struct rt_block *given)
{
    struct rt_layout l = {.block = blocks, .given = given, .n = n, .ngiven = room ? s->saved.n : 0, .room = room};
    l.memory = arena_alloc(s->arena, rt_offsets_bytes(l.n, l.ngiven));
    return rt_offsets(&l);
}

/* A buffer of its own. In `prepare` it tells the runtime which steps belong together. */
static void own_buffer(struct schedule *s, int tensor, enum sol_buffer_kind kind, int64_t bytes, int64_t offset)
{
    s->buffer[tensor] = push_buffer(s, kind, 0, bytes, 0);
    s->buffers.at[s->buffers.n - 1].offset = offset;
    s->offset[tensor] = 0;
}

/* A tensor that only one program uses lies in the workspace, or in memory of saved tensors that are not yet, or no
 * longer, live. Work buffers of a kernel are live during all of its steps, because each step names all operands. */
static void assign(struct schedule *s, const struct life *life, int program, int buffer, int saved)
{
    const int64_t room = program == PROGRAM_PREPARE ? 0 : s->saved_bytes;
    struct rt_block *given = room ? saved_blocks(s, life, program) : NULL;
    int *tensor = NEW_ARRAY(s->arena, int, s->plan->nallocations + 1);
    const int n = find_own(s, life, program, tensor);
    struct rt_block *blocks = NEW_ARRAY(s->arena, struct rt_block, n + 1);
    for (int i = 0; i < n; i++) blocks[i] = block_of(s, life, tensor[i], program);
    s->program[program].workspace_bytes = offsets(s, blocks, n, room, given) - room;
    for (int i = 0; i < n; i++) {
        const bool reused = blocks[i].offset < room;
        s->buffer[tensor[i]] = reused ? saved : buffer;
        s->offset[tensor[i]] = blocks[i].offset - (reused ? 0 : room);
        if (program == PROGRAM_PREPARE)
            own_buffer(s, tensor[i], SOL_BUFFER_WORKSPACE, blocks[i].bytes, blocks[i].offset);
    }
}

static struct rt_block hint_of(struct rt_block b)
{
    b.bytes = size_hint(b.bytes);
    b.offset = size_hint(b.offset);
    return b;
}

/* The same where sizes vary: each tensor gets a buffer, whose offset is a size of the call. Offsets for the hints tell
 * how much memory the example needs. */
static void assign_varying(struct schedule *s, const struct life *life, int program)
{
    struct schedule_program *pr = &s->program[program];
    const enum sol_buffer_kind kind = s->saved.n ? SOL_BUFFER_EITHER : SOL_BUFFER_WORKSPACE;
    const int64_t room = size_hint(s->saved_bytes);
    struct rt_block *given = saved_blocks(s, life, program);
    int *tensor = NEW_ARRAY(s->arena, int, s->plan->nallocations + 1);
    const int n = find_own(s, life, program, tensor);
    struct rt_block *blocks = NEW_ARRAY(s->arena, struct rt_block, n + 1);
    for (int i = 0; i < n; i++) {
        const struct rt_block b = block_of(s, life, tensor[i], program);
        const int64_t bytes = block_bytes(s, tensor[i]);
        const int64_t place = SOL_SIZE + s->plan->g->dims.n + s->nplaced++;
        PUSH(s->arena, pr->blocks, ((struct sol_block){bytes, place, b.first, b.last}));
        blocks[i] = hint_of(b);
        own_buffer(s, tensor[i], kind, bytes, place);
    }
    s->nplaced += n > 0; /* the end of the blocks */
    pr->nblock = n;
    for (int i = 0; i < s->saved.n; i++) {
        const struct rt_block *b = &given[i];
        PUSH(s->arena, pr->blocks, ((struct sol_block){b->bytes, b->offset, b->first, b->last}));
        given[i] = hint_of(*b);
    }
    pr->workspace_bytes = offsets(s, blocks, n, room, given) - room;
}

static void lay_buffers(struct schedule *s)
{
    struct plan *p = s->plan;
    struct life *life = NEW_ARRAY(s->arena, struct life, p->nallocations + 1);
    for (int i = 0; i < PROGRAMS; i++) live(s, life, i);
    user_buffers(s, life);
    int prepared = push_buffer(s, SOL_BUFFER_PREPARED, 0, 0, 0), saved = push_buffer(s, SOL_BUFFER_SAVED, 0, 0, 0),
        workspace = push_buffer(s, SOL_BUFFER_WORKSPACE, 0, 0, 0);
    for (int i = 0; i < p->nallocations; i++) {
        const struct allocation *st = &p->allocations[i];
        const bool *used = life[i].used;
        bool later = used[PROGRAM_FORWARD] || used[PROGRAM_BACKWARD];
        if (!st->t || st->root != st->t || s->buffer[i] >= 0 || !(used[PROGRAM_PREPARE] || later)) continue;
        if (st->t->role == TENSOR_CONST) {
            s->buffer[i] = push_buffer(s, SOL_BUFFER_CONST, s->constants.n, store_bytes(st), 0);
            PUSH(s->arena, s->constants, st->t);
        } else if (used[PROGRAM_PREPARE] && later) {
            share(s, i, prepared, &s->prepared_bytes);
        } else if (used[PROGRAM_FORWARD] && used[PROGRAM_BACKWARD]) {
            push_saved(s, life, i);
        }
    }
    for (int i = 0; i < s->saved.n; i++) share(s, s->saved.at[i], saved, &s->saved_bytes);
    s->buffers.at[prepared].bytes = s->prepared_bytes;
    s->buffers.at[saved].bytes = s->saved_bytes;
    for (int i = 0; i < PROGRAMS; i++) {
        if (p->g->dims.n && i != PROGRAM_PREPARE)
            assign_varying(s, life, i);
        else
            assign(s, life, i, workspace, saved);
        s->buffers.at[workspace].bytes = MAX(s->buffers.at[workspace].bytes, s->program[i].workspace_bytes);
    }
}

static void set_places(struct schedule *s, struct schedule_program *pr)
{
    for (int i = 0; i < pr->steps.n; i++) {
        struct schedule_step *st = &pr->steps.at[i];
        st->place = NEW_ARRAY(s->arena, struct sol_operand, st->noperand + 1);
        for (int k = 0; k < st->noperand; k++) {
            const struct allocation *allocation = plan_allocation(s->plan, st->operand[k]);
            int root = allocation->root->id;
            st->place[k].buffer = s->buffer[root];
            st->place[k].offset =
                size_add(s->offset[root], size_mul(allocation->origin, dtype_def(allocation->t->dtype)->bytes));
        }
    }
}

/* -- dependencies of each step of `prepare` */

static int words(const struct schedule *s)
{
    return s->plan->g->params.n / 64 + 1;
}

static void merge(uint64_t *into, const uint64_t *from, int n)
{
    for (int i = 0; i < n; i++) into[i] |= from[i];
}

/* Forward: a step depends on a parameter also through earlier steps. Backward: an intermediate tensor in the workspace
 * is computed again whenever one of its readers runs. */
static void find_depends(struct schedule *s)
{
    const struct schedule_program *pr = &s->program[PROGRAM_PREPARE];
    int n = words(s);
    uint64_t **of = NEW_ARRAY(s->arena, uint64_t *, s->plan->nallocations + 1);
    for (int i = 0; i < pr->steps.n; i++) {
        struct schedule_step *st = &pr->steps.at[i];
        st->depends = NEW_ARRAY(s->arena, uint64_t, n);
        for (int k = 0; k < st->noperand; k++) {
            const struct sol_tensor *t = root_of(s, st->operand[k]);
            if (t->role == TENSOR_PARAM) st->depends[t->index / 64] |= UINT64_C(1) << t->index % 64;
            if (of[t->id]) merge(st->depends, of[t->id], n);
        }
        for (int k = 0; k < st->noperand; k++)
            if (st->unit->written[k]) of[root_of(s, st->operand[k])->id] = st->depends;
    }
    memset(of, 0, (size_t)s->plan->nallocations * sizeof *of);
    for (int i = pr->steps.n - 1; i >= 0; i--) {
        struct schedule_step *st = &pr->steps.at[i];
        for (int k = 0; k < st->noperand; k++) {
            const struct sol_tensor *t = root_of(s, st->operand[k]);
            if (t->role != TENSOR_VALUE || s->buffers.at[s->buffer[t->id]].kind != SOL_BUFFER_WORKSPACE) continue;
            if (!st->unit->written[k])
                of[t->id] = of[t->id] ? of[t->id] : NEW_ARRAY(s->arena, uint64_t, n);
            else if (of[t->id])
                merge(st->depends, of[t->id], n);
        }
        for (int k = 0; k < st->noperand; k++) {
            uint64_t *reader = of[root_of(s, st->operand[k])->id];
            if (reader && !st->unit->written[k]) merge(reader, st->depends, n);
        }
    }
}

static void mark_param(struct schedule *s, int i)
{
    s->buffers.at[s->buffer[s->plan->g->params.at[i]->id]].given |= SOL_GIVEN_BACKWARD;
}

/* Parameters whose values backward needs, because it reads them or something prepared from them. */
static void find_backward_params(struct schedule *s)
{
    const struct schedule_program *prepare = &s->program[PROGRAM_PREPARE], *backward = &s->program[PROGRAM_BACKWARD];
    const uint64_t **of = NEW_ARRAY(s->arena, const uint64_t *, s->plan->nallocations + 1);
    for (int i = 0; i < prepare->steps.n; i++)
        for (int k = 0; k < prepare->steps.at[i].noperand; k++)
            if (prepare->steps.at[i].unit && prepare->steps.at[i].unit->written[k])
                of[root_of(s, prepare->steps.at[i].operand[k])->id] = prepare->steps.at[i].depends;
    for (int i = 0; i < backward->steps.n; i++)
        for (int k = 0; k < backward->steps.at[i].noperand; k++) {
            const struct sol_tensor *t = root_of(s, backward->steps.at[i].operand[k]);
            if (t->role == TENSOR_PARAM) mark_param(s, t->index);
            for (int n = 0; of[t->id] && n < s->plan->g->params.n; n++)
                if (of[t->id][n / 64] >> n % 64 & 1) mark_param(s, n);
        }
}

/* -- arithmetic on the names of sizes that vary (size.h) gives numbers that no table may have */

static bool is_quantity(const struct schedule *s, int64_t v)
{
    return v < SIZE_POISON || size_varies(v) || (v >= SOL_SIZE && v < SOL_SIZE + s->plan->g->dims.n + s->nplaced);
}

static sol_status check_step(const struct schedule *s, const struct schedule_step *st)
{
    int64_t bad = is_quantity(s, st->tasks) ? 0 : st->tasks;
    for (int k = 0; k < st->noperand; k++)
        if (!is_quantity(s, st->place[k].offset)) bad = st->place[k].offset;
    if (!bad) return SOL_OK;
    return ctx_fail(s->plan->ctx, SOL_ERR_INTERNAL, "schedule: %s: %lld results from arithmetic on a size that varies",
                    st->label, (long long)bad);
}

/* The dimensions that a step depends on, as bits. */
static uint32_t dims_of_step(const struct schedule *s, const struct schedule_step *st)
{
    uint32_t dims = size_dims(st->tasks);
    for (int k = 0; k < st->noperand; k++) {
        const struct allocation *root = plan_allocation(s->plan, root_of(s, st->operand[k]));
        dims |= size_dims(st->place[k].offset);
        for (int d = 0; d < root->t->ndim; d++) dims |= size_dims(root->memory.stride[d]);
    }
    return st->kernel < 0 || !st->unit ? dims : dims | loops_dims(st->unit->loops);
}

/* A dimension is set before a step depends on it, and once. */
static sol_status check_set(const struct schedule *s, const struct schedule_program *pr)
{
    uint32_t unset = graph_data_dims(s->plan->g);
    for (int k = 0; k < pr->steps.n; k++) {
        const struct schedule_step *st = &pr->steps.at[k];
        if (dims_of_step(s, st) & unset)
            return ctx_fail(s->plan->ctx, SOL_ERR_INTERNAL, "schedule: %s depends on a dimension that is set later",
                            st->label);
        if (st->set >= 0) unset &= ~(UINT32_C(1) << st->set);
    }
    return SOL_OK;
}

/* What is planned for the most that layers may set has a bound, forms are not too long, and bytes that are
 * constants are a number that a table may have. */
static sol_status check_planned(const struct schedule *s)
{
    const struct sol_graph *g = s->plan->g;
    bool bad = false, large = false;
    for (int i = 0; i < s->buffers.n + PROGRAMS; i++) {
        const int64_t bytes = i < s->buffers.n ? s->buffers.at[i].bytes : s->program[i - s->buffers.n].scratch_bytes;
        bad |= bytes == SIZE_BAD;
        large |= bytes >= SIZE_POISON && (bytes < SIZE_FORM || (!g->dims.n && bytes != SIZE_BAD));
    }
    if (large) return ctx_fail(s->plan->ctx, SOL_ERR_INVALID, "a tensor would be larger than 2^47 bytes");
    if (!bad) return SOL_OK;
    if (!graph_data_dims(g))
        return ctx_fail(s->plan->ctx, SOL_ERR_UNSUPPORTED,
                        "memory cannot be planned: the sum of the tensors' sizes has too many terms: let fewer sizes "
                        "vary");
    return ctx_fail(s->plan->ctx, SOL_ERR_UNSUPPORTED,
                    "memory cannot be planned: a tensor's size follows from sizes that layers set while the network "
                    "runs, and has no bound that is known: let a smaller `most` limit them (sol_graph_data_dim)");
}

static sol_status check_quantities(const struct schedule *s)
{
    TRY(check_planned(s));
    for (int i = 0; i < s->buffers.n; i++) {
        const struct sol_buffer *b = &s->buffers.at[i];
        if (!is_quantity(s, b->bytes) || !is_quantity(s, b->offset))
            return ctx_fail(s->plan->ctx, SOL_ERR_INTERNAL,
                            "schedule: buffer %d: %lld bytes at %lld result from arithmetic on a size that varies", i,
                            (long long)b->bytes, (long long)b->offset);
    }
    for (int i = 0; i < PROGRAMS; i++) {
        const struct schedule_program *pr = &s->program[i];
        if (!is_quantity(s, pr->scratch_bytes) || !is_quantity(s, pr->workspace_bytes))
            return ctx_fail(s->plan->ctx, SOL_ERR_INTERNAL,
                            "schedule: %s: memory of %lld and %lld bytes results from arithmetic on a size that varies",
                            program_name((enum program)i), (long long)pr->scratch_bytes,
                            (long long)pr->workspace_bytes);
        for (int k = 0; k < pr->steps.n; k++) TRY(check_step(s, &pr->steps.at[k]));
        TRY(check_set(s, pr));
    }
    return SOL_OK;
}

sol_status schedule_make(struct plan *p, struct schedule **out_s)
{
    struct schedule *s = NEW(p->arena, struct schedule);
    s->plan = p;
    s->arena = p->arena;
    struct map *known = map_create(p->arena);
    bool *halo_done = NEW_ARRAY(p->arena, bool, p->nallocations + 1);
    for (int i = 0; i < p->units.n; i++)
        if (!p->units.at[i]->dead) TRY(push_unit(s, known, halo_done, p->units.at[i]));
    s->offset = NEW_ARRAY(p->arena, int64_t, p->nallocations + 1);
    s->buffer = NEW_ARRAY(p->arena, int, p->nallocations + 1);
    for (int i = 0; i < p->nallocations; i++) s->buffer[i] = -1;
    lay_buffers(s);
    for (int i = 0; i < PROGRAMS; i++) set_places(s, &s->program[i]);
    find_depends(s);
    find_backward_params(s);
    TRY(ctx_check(p->ctx));
    TRY(check_quantities(s));
    *out_s = s;
    return SOL_OK;
}
