/* The kernel of a recurrence: the kernels of its stages as static functions, and one function that calls them step by
 * step with pointers to the step's operands. */
#include "plan/scan.h"
#include "plan/verify.h"
#include "print/tree.h"

#include <string.h>

struct joining {
    struct scan *s;
    struct loops *merged; /* the unit's loops, with a tensor for each packed form of an operand */
    struct kernel k;
    int *operand; /* by tensor of merged */
    struct tree *tree;
    int64_t works; /* where work buffers begin in scratch memory, behind the stages' own */
};

static const struct scan_tensor *tensor_of(const struct scan_stage *st, int tensor)
{
    return st->slice->tensors.at[tensor].user;
}

static bool is_operand(const struct loops *loops, int tensor)
{
    return loops->tensors.at[tensor].role != LOOPS_TEMP && loops->tensors.at[tensor].role != LOOPS_TABLE;
}

/* -- packed operands */

static const struct kernel_pack *pack_of(const struct scan_stage *st, int tensor)
{
    for (int i = 0; i < st->choice->kernel.npack; i++)
        if (st->choice->kernel.pack[i].tensor == tensor) return &st->choice->kernel.pack[i];
    return NULL;
}

static const char *pack_text(struct arena *a, const struct loops *loops)
{
    struct text t = text_new(a);
    loops_print(loops, &t);
    return t.at;
}

/* The tensor of `merged` for this one, packed; -1: there is none yet. */
static int packed_tensor(const struct joining *pr, const struct scan_stage *st, const struct kernel_pack *pack)
{
    const struct sol_tensor *source = pr->s->loops->tensors.at[tensor_of(st, pack->tensor)->tensor].user;
    const char *text = pack_text(pr->s->p->arena, pack->loops);
    for (int i = 0; i < pr->k.npack; i++)
        if (pr->merged->tensors.at[pr->k.pack[i].tensor].user == source &&
            !strcmp(text, pack_text(pr->s->p->arena, pr->k.pack[i].loops)))
            return pr->k.pack[i].tensor;
    return -1;
}

/* Returns false if there are too many packs, or if one packs a tensor that changes from step to step. */
static bool collect_packs(struct joining *pr, const struct scan_stage *st)
{
    for (int i = 0; i < st->choice->kernel.npack; i++) {
        const struct kernel_pack *pack = &st->choice->kernel.pack[i];
        const int of = tensor_of(st, pack->tensor)->tensor;
        const struct loops_tensor *t = &pr->s->loops->tensors.at[of];
        bool moves = pr->s->state[of].dim >= 0;
        for (int k = 0; k < 2; k++) moves |= st->op[k] && st->op[k][pack->tensor].coef;
        if (moves) return false;
        if (packed_tensor(pr, st, pack) >= 0) continue;
        if (pr->k.npack == KERNEL_MAX_PACKS) return false;
        const int made = loops_tensor(pr->merged, t->name, LOOPS_INPUT, t->dtype, t->ndim, t->shape);
        loops_set_user(pr->merged, made, t->user);
        pr->k.pack[pr->k.npack++] = (struct kernel_pack){made, pack->loops};
    }
    return true;
}

/* -- functions and memory */

static bool collect_functions(struct joining *pr)
{
    for (int i = 0; i < pr->s->nphase; i++)
        for (int k = 0; k < pr->s->phase[i].nstage; k++) {
            struct scan_stage *st = &pr->s->phase[i].stage[k];
            st->number = tree_member(pr->tree, &st->choice->kernel);
            if (st->number < 0 || !collect_packs(pr, st)) return false;
        }
    return true;
}

static void number_operands(struct joining *pr)
{
    int n = 0;
    pr->operand = NEW_ARRAY(pr->s->p->arena, int, pr->merged->tensors.n + 1);
    for (int t = 0; t < pr->merged->tensors.n; t++) pr->operand[t] = is_operand(pr->merged, t) ? n++ : -1;
}

/* The scratch memory of a worker: that of the kernels, their work buffers, then the tensors that only steps see. */
static void place_scratch(struct joining *pr)
{
    int64_t at = 0, works = 0;
    for (int i = 0; i < pr->tree->nmember; i++) {
        const struct kernel *k = pr->tree->member[i];
        int64_t all = 0;
        for (int w = 0; w < k->nwork; w++) all = size_add(all, kernel_lines(k->work_bytes[w]));
        at = size_max(at, kernel_lines(k->scratch_bytes));
        works = size_max(works, all);
    }
    pr->works = at;
    at = size_add(at, works);
    for (int t = 0; t < pr->s->loops->tensors.n; t++) {
        struct scan_state *state = &pr->s->state[t];
        if (!state->scratch) continue;
        state->offset = at;
        at = size_add(at, size_mul(state->row_bytes, state->rows));
    }
    pr->k.scratch_bytes = at;
}

/* -- the tree of calls */

/* Adds the offset of the operand along the blocks (k = 1) or the steps (k = 0), which begin at `from`. */
static void add_offset(struct tree_address *a, const struct scan_stage *st, int t, int k, int64_t from)
{
    const struct slice_operand *op = st->op[k] ? &st->op[k][t] : NULL;
    if (!op || !op->coef) return;
    const int64_t bytes =
        size_mul(st->full_memory[t].stride[op->dim], dtype_def(st->slice->tensors.at[t].dtype)->bytes);
    a->by[k ? TREE_TASK : TREE_ROUND] = size_mul(op->coef, bytes);
    a->plus = size_add(a->plus, size_mul(size_sub(op->min, size_mul(op->coef, from)), bytes));
}

/* Where tensor t of a stage is at a step. */
static struct tree_address address(const struct joining *pr, const struct scan_phase *ph, const struct scan_stage *st,
                                   int t)
{
    const struct scan_tensor *of = tensor_of(st, t);
    const struct scan_state *state = &pr->s->state[of->tensor];
    const struct kernel_pack *pack = pack_of(st, t);
    if (pack) return (struct tree_address){.base = TREE_OPERAND, .index = pr->operand[packed_tensor(pr, st, pack)]};
    if (state->scratch) {
        struct tree_address a = {.base = TREE_SCRATCH, .plus = state->offset};
        if (state->rows > 1) {
            a.row = (struct tree_row){.by = 1, .plus = of->shift + state->rows, .wrap = state->rows};
            a.row_bytes = state->row_bytes;
        }
        return a;
    }
    struct tree_address a = {.base = TREE_OPERAND, .index = pr->operand[of->tensor]};
    add_offset(&a, st, t, 1, 0);
    add_offset(&a, st, t, 0, ph->from);
    return a;
}

static struct tree_call call_of(const struct joining *pr, const struct scan_phase *ph, const struct scan_stage *st)
{
    const struct kernel *k = &st->choice->kernel;
    struct tree_address *operand = NEW_ARRAY(pr->s->p->arena, struct tree_address, st->slice->tensors.n + k->nwork + 1);
    struct tree_call call = {.member = st->number, .operand = operand};
    for (int i = 0; i < st->slice->tensors.n; i++)
        if (is_operand(st->slice, i)) operand[call.noperand++] = address(pr, ph, st, i);
    int64_t at = pr->works;
    for (int w = 0; w < k->nwork; w++) {
        operand[call.noperand++] = (struct tree_address){.base = TREE_SCRATCH, .plus = at};
        at = size_add(at, kernel_lines(k->work_bytes[w]));
    }
    return call;
}

static struct tree_loop loop_of(const struct joining *pr, const struct scan_phase *ph)
{
    struct tree_call *call = NEW_ARRAY(pr->s->p->arena, struct tree_call, ph->nstage + 1);
    for (int k = 0; k < ph->nstage; k++) call[k] = call_of(pr, ph, &ph->stage[k]);
    return (struct tree_loop){
        .body = {.need = -1, .ncall = ph->nstage, .call = call}, .from = ph->from, .n = ph->n, .down = pr->s->by < 0};
}

static void make_tree(struct joining *pr)
{
    const struct scan *s = pr->s;
    struct tree_loop *loop = NEW_ARRAY(s->p->arena, struct tree_loop, s->nphase);
    for (int i = 0; i < s->nphase; i++) loop[i] = loop_of(pr, &s->phase[i]);
    pr->tree->nloop = s->nphase;
    pr->tree->loop = loop;
    pr->k.tree = pr->tree;
    pr->k.step[0].tasks = tree_tasks(pr->tree, s->blocks);
    pr->k.source = tree_print(s->p->arena, s->p->target, pr->tree);
}

/* What takes longest. */
static const struct choice *main_choice(const struct scan *s)
{
    const struct choice *best = NULL;
    double most = -1;
    for (int i = 0; i < s->nphase; i++)
        for (int k = 0; k < s->phase[i].nstage; k++) {
            const struct choice *c = s->phase[i].stage[k].choice;
            const double cost = c->kernel.cost * (double)size_hint(s->phase[i].n);
            if (cost <= most) continue;
            most = cost;
            best = c;
        }
    return best;
}

sol_status scan_kernel(struct scan *s, bool *out_done)
{
    struct joining pr = {.s = s, .tree = NEW(s->p->arena, struct tree), .merged = loops_copy(s->p->arena, s->loops)};
    *pr.tree = (struct tree){.round = "step", .vary = loops_vary(s->loops), .team = s->team};
    *out_done = false;
    pr.k = (struct kernel){.nstep = 1, .solver = "scan", .cost = s->cost};
    if (!collect_functions(&pr)) return SOL_OK;
    number_operands(&pr);
    place_scratch(&pr);
    make_tree(&pr);
    const struct choice *main = main_choice(s);
    pr.k.variant =
        arena_printf(s->p->arena, "%s %s%s", main->kernel.solver, main->kernel.variant, s->team ? " team" : "");
    s->u->choice = main;
    s->u->loops = pr.merged;
    s->u->memory = NULL;
    s->u->kernel = pr.k;
    if (s->p->verify) verify_keep_scan(s);
    *out_done = true;
    return ctx_check(s->p->ctx);
}
