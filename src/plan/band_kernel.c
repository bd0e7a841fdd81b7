/* The kernel of a chain: a tree of calls. Each stage but the last one fills a ring, row by row; the last stage is the
 * loop. A round of a stage asks the ring before it for the rows that it reads. */
#include "plan/band.h"
#include "print/tree.h"

struct joining {
    struct plan *p;
    const struct chain *c;
    struct loops *merged;
    int *tensor[BAND_MAX_STAGES]; /* by stage and tensor: tensor of merged */
    int *operand;                 /* by tensor of merged: operand of the kernel */
};

/* -- merged loops of the chain: for comments, for operands, and for the reference solver */

static struct loops *merge(struct joining *pr)
{
    const struct chain *c = pr->c;
    struct loops *to = loops_create(pr->p->arena, c->stage[c->n - 1].u->loops->name);
    for (int i = 0; i < c->n; i++) {
        const struct stage *st = &c->stage[i];
        int32_t ivar[LOOPS_MAX_IVARS];
        rewrite_ivars(to, st->u->loops, ivar);
        for (int t = 0; t < st->u->loops->tensors.n; t++) pr->tensor[i][t] = rewrite_tensor(to, st->u->loops, t);
        if (st->out >= 0 && !st->stored) loops_set_role(to, pr->tensor[i][st->out], LOOPS_TEMP);
        rewrite_stmts(&(struct rewrite){.to = to, .from = st->u->loops, .ivar = ivar, .tensor = pr->tensor[i]});
    }
    return to;
}

/* -- packs */

struct widening {
    const struct loops *from; /* of one step */
    const int *tensor;        /* number in `to` */
    int32_t which;            /* step */
    int32_t at;               /* added to the operand's index in dimension dim */
    int dim;
};

static int32_t widened_read(void *user, struct loops *to, const struct ex *read, const int32_t *index, int nindex,
                            int32_t outside)
{
    const struct widening *w = user;
    int32_t moved[SOL_MAX_DIMS] = {w->which};
    if (w->from->tensors.at[read->tensor].role == LOOPS_TEMP) { /* what a pack computes on its way */
        for (int d = 0; d < nindex; d++) moved[d + 1] = index[d];
        return ex_read(to, w->tensor[read->tensor], ex_list(to, nindex + 1, moved), outside);
    }
    if (read->tensor != 0) return 0;
    for (int d = 0; d < nindex; d++) moved[d] = d == w->dim ? ex_binary(to, EX_ADD, index[d], w->at) : index[d];
    return ex_read(to, 0, ex_list(to, nindex, moved), outside);
}

/* Tensor t of a pack for all steps: the tensor that it writes has one more dimension. */
static int widened_tensor(struct loops *to, const struct loops *from, int t, int64_t steps)
{
    const struct loops_tensor *one = &from->tensors.at[t];
    int64_t shape[SOL_MAX_DIMS] = {steps};
    if (one->role != LOOPS_OUTPUT && one->role != LOOPS_TEMP) return rewrite_tensor(to, from, t);
    for (int d = 0; d < one->ndim; d++) shape[d + 1] = one->shape[d];
    return loops_tensor(to, one->name, one->role, one->dtype, one->ndim + 1, shape);
}

/* The packed form of an operand that moves with the index variable: all steps, one behind the other. */
static const struct loops *pack_all(struct joining *pr, const struct stage *st, const struct kernel_pack *k)
{
    const struct slice_operand *op = &st->op[k->tensor];
    const struct loops_tensor *source = &st->u->loops->tensors.at[k->tensor];
    if (!op->coef) return k->loops;
    struct loops *to = loops_create(pr->p->arena, k->loops->name);
    const int s = loops_ivar(to, "S", st->rows);
    int32_t ivar[LOOPS_MAX_IVARS];
    rewrite_ivars(to, k->loops, ivar);
    loops_tensor(to, source->name, LOOPS_INPUT, source->dtype, source->ndim, source->shape);
    int *tensor = NEW_ARRAY(pr->p->arena, int, k->loops->tensors.n + 1);
    for (int t = 1; t < k->loops->tensors.n; t++) tensor[t] = widened_tensor(to, k->loops, t, st->rows);
    struct widening w = {.from = k->loops, .tensor = tensor, .which = ex_ivar(to, s), .dim = op->dim};
    w.at = ex_binary(to, EX_ADD, ex_binary(to, EX_MUL, ex_int(to, op->coef), w.which), ex_int(to, op->min));
    rewrite_stmts(&(struct rewrite){
        .to = to, .from = k->loops, .ivar = ivar, .tensor = tensor, .read = widened_read, .user = &w});
    for (int i = 0; i < to->stmts.n; i++) {
        struct loops_stmt s = to->stmts.at[i];
        int32_t index[SOL_MAX_DIMS + 1] = {w.which};
        int n = 1;
        for (int32_t x = s.index; x; x = to->ex.at[x].next) index[n++] = x;
        s.index = ex_list(to, n, index);
        loops_set_stmt(to, i, s);
    }
    return to;
}

static int64_t packed_bytes(const struct kernel_pack *k)
{
    const struct loops_tensor *t = &k->loops->tensors.at[1];
    const int64_t n = dtype_def(t->dtype)->bytes * loops_elements(t);
    return n;
}

static const struct kernel_pack *pack_of(const struct stage *st, int tensor)
{
    for (int k = 0; k < st->kernel.npack; k++)
        if (st->kernel.pack[k].tensor == tensor) return &st->kernel.pack[k];
    return NULL;
}

/* The packed form has a dimension of steps, whose number is known, if the operand moves with them. */
static bool can_pack_all(const struct stage *st, const struct kernel_pack *k)
{
    if (k->loops->tensors.at[1].ndim + 1 > SOL_MAX_DIMS) return false;
    return !st->op[k->tensor].coef || (!size_varies(st->rows) && !loops_vary(k->loops));
}

/* Returns false if one stage wants a tensor packed that another stage reads. */
static bool collect_packs(struct joining *pr, struct kernel *out)
{
    for (int i = 0; i < pr->c->n; i++) {
        const struct stage *st = &pr->c->stage[i];
        for (int k = 0; k < st->kernel.npack; k++) {
            int t = pr->tensor[i][st->kernel.pack[k].tensor];
            for (int o = 0; o < pr->c->n; o++)
                for (int x = 0; o != i && x < pr->c->stage[o].u->loops->tensors.n; x++)
                    if (pr->tensor[o][x] == t) return false;
            const struct kernel_pack *pack = &st->kernel.pack[k];
            if (out->npack == KERNEL_MAX_PACKS || pack->tensor == st->in || !can_pack_all(st, pack)) return false;
            out->pack[out->npack++] = (struct kernel_pack){t, pack_all(pr, st, pack)};
        }
    }
    return true;
}

/* -- the tree of calls */

/* Adds the offset of an operand along one index variable. */
static void add_offset(struct tree_address *a, enum tree_counter counter, const struct slice_operand *op,
                       const struct memory *m, int64_t bytes)
{
    if (!op->coef) return;
    const int64_t step = size_mul(m->stride[op->dim], bytes);
    a->by[counter] = size_mul(op->coef, step);
    a->plus = size_add(a->plus, size_mul(op->min, step));
}

/* Where tensor t of stage i is in a round. */
static struct tree_address address(const struct joining *pr, int i, int t)
{
    const struct stage *st = &pr->c->stage[i], *before = st - 1;
    const struct kernel_pack *k = pack_of(st, t);
    if (t == st->in && !before->stored)
        return (struct tree_address){.base = TREE_RING,
                                     .index = i - 1,
                                     .row = {.by = st->step, .plus = st->low},
                                     .row_bytes = before->row_bytes,
                                     .plus = before->row_origin};
    if (t == st->out && !st->stored)
        return (struct tree_address){
            .base = TREE_RING, .index = i, .row = {.by = 1}, .row_bytes = st->row_bytes, .plus = st->row_origin};
    struct tree_address a = {.base = TREE_OPERAND, .index = pr->operand[pr->tensor[i][t]]};
    const int64_t bytes = dtype_def(st->loops->tensors.at[t].dtype)->bytes;
    if (k) {
        a.by[TREE_ROUND] = st->op[t].coef ? packed_bytes(k) : 0;
        return a;
    }
    add_offset(&a, TREE_ROUND, &st->op[t], &st->u->memory[t], bytes);
    if (st->image_op) add_offset(&a, TREE_IMAGE, &st->image_op[t], &st->u->memory[t], bytes);
    return a;
}

/* A row of stage i: the rows of the ring that it reads, then the stage's kernel. */
static struct tree_body round_of(const struct joining *pr, struct tree *tree, int i)
{
    const struct stage *st = &pr->c->stage[i];
    struct tree_address *operand = NEW_ARRAY(pr->p->arena, struct tree_address, st->slice->tensors.n + 1);
    struct tree_call *call = NEW(pr->p->arena, struct tree_call);
    *call = (struct tree_call){.member = tree_member(tree, &st->choice->kernel), .operand = operand};
    for (int t = 0; t < st->slice->tensors.n; t++) {
        const int role = st->slice->tensors.at[t].role;
        if (role != LOOPS_TEMP && role != LOOPS_TABLE) operand[call->noperand++] = address(pr, i, t);
    }
    return (struct tree_body){
        .need = i - 1, .step = st->step, .low = st->low, .high = st->high, .ncall = 1, .call = call};
}

/* How many rows are a task. A number of images that varies may be 1. */
static int64_t rows_of_task(const struct chain *c)
{
    const int64_t images = size_varies(c->images) ? 1 : c->images;
    return MAX(1, size_hint(c->stage[c->n - 1].rows) * images / 32);
}

/* Rings lie in scratch memory behind that of the stages' kernels. */
static void make_tree(struct joining *pr, struct kernel *out)
{
    const struct chain *c = pr->c;
    const struct stage *last = &c->stage[c->n - 1];
    struct tree *tree = NEW(pr->p->arena, struct tree);
    struct tree_ring *ring = NEW_ARRAY(pr->p->arena, struct tree_ring, c->n);
    struct tree_loop *loop = NEW(pr->p->arena, struct tree_loop);
    *tree = (struct tree){.round = "row", .nring = c->n - 1, .ring = ring, .nloop = 1, .loop = loop};
    for (int i = 0; i < c->n; i++)
        out->scratch_bytes = size_max(out->scratch_bytes, kernel_lines(c->stage[i].kernel.scratch_bytes));
    for (int i = 0; i < c->n - 1; i++) {
        const struct stage *st = &c->stage[i];
        ring[i] = (struct tree_ring){.body = round_of(pr, tree, i),
                                     .stored = st->stored,
                                     .rows = st->rows,
                                     .fill = c->stage[i + 1].fill,
                                     .dtype = st->u->loops->tensors.at[st->out].dtype,
                                     .row_bytes = st->row_bytes,
                                     .room = st->ring_rows,
                                     .scratch = out->scratch_bytes};
        if (!st->stored)
            out->scratch_bytes = size_add(out->scratch_bytes, kernel_lines(size_mul(st->row_bytes, st->ring_rows)));
    }
    *loop = (struct tree_loop){.body = round_of(pr, tree, c->n - 1), .n = last->rows};
    tree->per_task = rows_of_task(c);
    tree->vary = loops_vary(pr->merged);
    out->tree = tree;
    out->step[0].tasks = tree_tasks(tree, c->images);
    out->source = tree_print(pr->p->arena, pr->p->target, tree);
}

static void number_operands(struct joining *pr)
{
    int n = 0;
    pr->operand = NEW_ARRAY(pr->p->arena, int, pr->merged->tensors.n + 1);
    for (int t = 0; t < pr->merged->tensors.n; t++) {
        int role = pr->merged->tensors.at[t].role;
        pr->operand[t] = role == LOOPS_TEMP || role == LOOPS_TABLE ? -1 : n++;
    }
}

static const char *chain_label(struct plan *p, const struct chain *c)
{
    const char *label = c->stage[0].u->label;
    for (int i = 1; i < c->n; i++) label = arena_printf(p->arena, "%s > %s", label, c->stage[i].u->label);
    return label;
}

sol_status band_kernel(struct plan *p, const struct chain *c, struct unit *u, bool *out_done)
{
    struct joining pr = {.p = p, .c = c};
    int ivars = 0;
    for (int i = 0; i < c->n; i++) {
        ivars += c->stage[i].u->loops->ivars.n;
        pr.tensor[i] = NEW_ARRAY(p->arena, int, c->stage[i].u->loops->tensors.n + 1);
    }
    *out_done = false;
    if (ivars > LOOPS_MAX_IVARS) return SOL_OK;
    pr.merged = merge(&pr);
    number_operands(&pr);
    const struct stage *last = &c->stage[c->n - 1];
    struct kernel k = {.nstep = 1, .solver = "band", .variant = last->kernel.solver, .cost = c->cost};
    if (!collect_packs(&pr, &k)) return SOL_OK;
    make_tree(&pr, &k);
    u->label = chain_label(p, c);
    u->loops = pr.merged;
    u->memory = NULL;
    u->kernel = k;
    u->contraction = false;
    *out_done = true;
    return ctx_check(p->ctx);
}
