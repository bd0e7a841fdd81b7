/* The kernel of a chain: the kernels of its stages as static functions, and one function that calls them row by row.
 *
 * rows_i(first, last) computes the rows of ring i up to `last`; rows from `first` on must stay. It asks ring i-1 for
 * the rows that it needs, and moves the rows that are still needed to the ring's beginning when the ring is full. A
 * range of tasks of one image continues where the previous task stopped, so only the first task of a range computes the
 * rows of the border twice. */
#include "plan/band.h"

#include <string.h>

struct printing {
    struct plan *p;
    const struct chain *c;
    struct text *out;
    struct loops *merged;
    int *tensor[BAND_MAX_STAGES]; /* by stage and tensor: tensor of merged */
    int *operand;                 /* by tensor of merged: operand of the kernel */
};

/* -- merged loops of the chain: for comments, for operands, and for the reference solver */

static struct loops *merge(struct printing *pr)
{
    const struct chain *c = pr->c;
    struct loops *to = loops_create(pr->p->arena, c->stage[c->n - 1].u->loops->name);
    for (int i = 0; i < c->n; i++) {
        const struct stage *st = &c->stage[i];
        int32_t ivar[LOOPS_MAX_IVARS];
        rewrite_ivars(to, st->u->loops, ivar);
        for (int t = 0; t < st->u->loops->tensors.n; t++) pr->tensor[i][t] = rewrite_tensor(to, st->u->loops, t);
        if (st->out >= 0 && !st->kept) loops_set_role(to, pr->tensor[i][st->out], LOOPS_TEMP);
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
static const struct loops *pack_all(struct printing *pr, const struct stage *st, const struct kernel_pack *k)
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

/* Returns false if one stage wants a tensor packed that another stage reads. */
static bool collect_packs(struct printing *pr, struct kernel *out)
{
    for (int i = 0; i < pr->c->n; i++) {
        const struct stage *st = &pr->c->stage[i];
        for (int k = 0; k < st->kernel.npack; k++) {
            int t = pr->tensor[i][st->kernel.pack[k].tensor];
            for (int o = 0; o < pr->c->n; o++)
                for (int x = 0; o != i && x < pr->c->stage[o].u->loops->tensors.n; x++)
                    if (pr->tensor[o][x] == t) return false;
            if (out->npack == KERNEL_MAX_PACKS || st->kernel.pack[k].tensor == st->in ||
                st->kernel.pack[k].loops->tensors.at[1].ndim + 1 > SOL_MAX_DIMS)
                return false;
            out->pack[out->npack++] = (struct kernel_pack){t, pack_all(pr, st, &st->kernel.pack[k])};
        }
    }
    return true;
}

/* -- the driver */

/* The pointer of tensor t of stage i for row `row` of image `image`, both C names. */
static void put_pointer(struct printing *pr, int i, int t)
{
    const struct stage *st = &pr->c->stage[i];
    const struct loops_tensor *lt = &st->whole->tensors.at[t];
    const struct kernel_pack *k = pack_of(st, t);
    if (t == st->in && !pr->c->stage[i - 1].kept) {
        const struct stage *before = &pr->c->stage[i - 1];
        text_put(pr->out, "b->ring%d + (%lld * row + %lld - b->from%d) * %lld + %lld", i - 1, (long long)st->step,
                 (long long)st->low, i - 1, (long long)before->row_bytes, (long long)before->row_origin);
        return;
    }
    if (t == st->out && !st->kept) {
        text_put(pr->out, "b->ring%d + (row - b->from%d) * %lld + %lld", i, i, (long long)st->row_bytes,
                 (long long)st->row_origin);
        return;
    }
    const struct memory *m = &st->u->memory[t];
    int64_t bytes = dtype_def(lt->dtype)->bytes, fixed = 0;
    text_put(pr->out, "p[%d]", pr->operand[pr->tensor[i][t]]);
    if (k) {
        if (st->op[t].coef) text_put(pr->out, " + row * %lld", (long long)packed_bytes(k));
        return;
    }
    if (st->op[t].coef) {
        text_put(pr->out, " + row * %lld", (long long)(st->op[t].coef * m->stride[st->op[t].dim] * bytes));
        fixed += st->op[t].min * m->stride[st->op[t].dim] * bytes;
    }
    if (st->image_op && st->image_op[t].coef) {
        text_put(pr->out, " + image * %lld",
                 (long long)(st->image_op[t].coef * m->stride[st->image_op[t].dim] * bytes));
        fixed += st->image_op[t].min * m->stride[st->image_op[t].dim] * bytes;
    }
    if (fixed) text_put(pr->out, " + %lld", (long long)fixed);
}

static void put_call(struct printing *pr, int i)
{
    const struct stage *st = &pr->c->stage[i];
    text_line(pr->out, "char *const q[] = {");
    for (int t = 0; t < st->sub->tensors.n; t++) {
        int role = st->sub->tensors.at[t].role;
        if (role == LOOPS_TEMP || role == LOOPS_TABLE) continue;
        text_put(pr->out, "%*s", (pr->out->indent + 1) * 4, "");
        put_pointer(pr, i, t);
        text_put(pr->out, ",\n");
    }
    text_line(pr->out, "};");
    text_line(pr->out, "%s(q, f, 0, %lld, worker);", kernel_member_step(pr->out->arena, i, 0),
              (long long)st->kernel.step[0].tasks);
}

static void put_fill(struct printing *pr, int i)
{
    const struct stage *st = &pr->c->stage[i], *next = &pr->c->stage[i + 1];
    const struct dtype_def *type = dtype_def(st->u->loops->tensors.at[st->out].dtype);
    const char *row =
        arena_printf(pr->p->arena, "b->ring%d + (row - b->from%d) * %lld", i, i, (long long)st->row_bytes);
    if (next->fill == 0) {
        text_line(pr->out, "__builtin_memset(%s, 0, %lld);", row, (long long)st->row_bytes);
        return;
    }
    text_line(pr->out, "%s *at = (%s *)(%s);", type->c_name, type->c_name, row);
    const char *value = next->fill > 1e300    ? "@INFINITY"
                        : next->fill < -1e300 ? "-@INFINITY"
                                              : arena_printf(pr->p->arena, "%.17g", next->fill);
    text_line(pr->out, "for (int64_t k = 0; k < %lld; k++) at[k] = (%s)%s;", (long long)st->row_bytes / type->bytes,
              type->c_name, value);
}

/* A full ring begins anew; rows outside are filled. */
static void put_room(struct printing *pr, int i)
{
    const struct stage *st = &pr->c->stage[i];
    struct text *t = pr->out;
    text_open(t, "if (row - b->from%d == %lld) {", i, (long long)st->ring_rows);
    text_line(t, "__builtin_memmove(b->ring%d, b->ring%d + (first - b->from%d) * %lld, (row - first) * %lld);", i, i, i,
              (long long)st->row_bytes, (long long)st->row_bytes);
    text_line(t, "b->from%d = first;", i);
    text_close(t, "}");
    text_open(t, "if (row < 0 || row >= %lld) {", (long long)st->rows);
    put_fill(pr, i);
    text_line(t, "continue;");
    text_close(t, "}");
}

static void put_rows(struct printing *pr, int i)
{
    const struct stage *st = &pr->c->stage[i];
    struct text *t = pr->out;
    text_line(t, "/* rows of %s %d */", st->kept ? "stage" : "ring", i);
    text_line(t,
              "static void @rows%d(char *const *p, const struct sol_frame *f, int worker, struct @bands *b, int64_t "
              "image, int64_t first, int64_t last)",
              i);
    text_open(t, "{");
    text_line(t, "(void)p, (void)image;");
    text_line(t, "if (b->next%d < first) b->from%d = b->next%d = first;", i, i, i);
    text_open(t, "for (; b->next%d <= last; b->next%d++) {", i, i);
    text_line(t, "const int64_t row = b->next%d;", i);
    if (!st->kept) put_room(pr, i);
    if (i > 0)
        text_line(t, "@rows%d(p, f, worker, b, image, %lld * row + %lld, %lld * row + %lld);", i - 1,
                  (long long)st->step, (long long)st->low, (long long)st->step, (long long)st->high);
    put_call(pr, i);
    text_close(t, "}");
    text_close(t, "}");
}

static void put_state(struct printing *pr)
{
    text_open(pr->out, "struct @bands { /* ring i holds rows from_i .. next_i - 1 */");
    for (int i = 0; i < pr->c->n - 1; i++) {
        if (!pr->c->stage[i].kept) text_line(pr->out, "char *ring%d;", i);
        text_line(pr->out, "int64_t from%d, next%d;", i, i);
    }
    text_close(pr->out, "};");
}

static void put_driver(struct printing *pr, int64_t scratch, int64_t rows_per_task, int64_t tasks_per_image)
{
    const struct chain *c = pr->c;
    const struct stage *last = &c->stage[c->n - 1];
    struct text *t = pr->out;
    kernel_open(t, 0);
    text_line(t, "struct @bands state = {0}, *const b = &state;");
    for (int i = 0; i < c->n - 1; i++) {
        if (c->stage[i].kept) continue;
        text_line(t, "b->ring%d = (char *)f->scratch + worker * f->scratch_bytes + %lld;", i, (long long)scratch);
        text_line(t, "__builtin_memset(b->ring%d, 0, %lld);", i,
                  (long long)(c->stage[i].row_bytes * c->stage[i].ring_rows));
        scratch += (c->stage[i].row_bytes * c->stage[i].ring_rows + 63) / 64 * 64;
    }
    text_line(t, "int64_t now = -1;");
    text_open(t, "for (int64_t task = task0; task < task1; task++) {");
    text_line(t, "const int64_t image = task / %lld, row0 = task %% %lld * %lld;", (long long)tasks_per_image,
              (long long)tasks_per_image, (long long)rows_per_task);
    text_line(t, "const int64_t row1 = row0 + %lld < %lld ? row0 + %lld : %lld;", (long long)rows_per_task,
              (long long)last->rows, (long long)rows_per_task, (long long)last->rows);
    text_open(t, "if (image != now) { /* nothing of another image is of use */");
    for (int i = 0; i < c->n - 1; i++) text_line(t, "b->from%d = b->next%d = INT64_MIN / 4;", i, i);
    text_line(t, "now = image;");
    text_close(t, "}");
    text_open(t, "for (int64_t row = row0; row < row1; row++) {");
    text_line(t, "@rows%d(p, f, worker, b, image, %lld * row + %lld, %lld * row + %lld);", c->n - 2,
              (long long)last->step, (long long)last->low, (long long)last->step, (long long)last->high);
    put_call(pr, c->n - 1);
    text_close(t, "}");
    text_close(t, "}");
    kernel_close(t);
}

static void number_operands(struct printing *pr)
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

sol_status band_print(struct plan *p, const struct chain *c, struct unit *u, bool *out_done)
{
    struct text out = {0};
    struct printing pr = {.p = p, .c = c, .out = &out};
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
    struct arena *scratch = arena_create(p->ctx);
    if (!scratch) return ctx_check(p->ctx);
    out = text_new(scratch);
    int64_t scratch_bytes = 0;
    for (int i = 0; i < c->n; i++) {
        kernel_member(&out, p->target, i, c->stage[i].kernel.source);
        scratch_bytes = MAX(scratch_bytes, (c->stage[i].kernel.scratch_bytes + 63) / 64 * 64);
    }
    put_state(&pr);
    for (int i = 0; i < c->n - 1; i++) put_rows(&pr, i);
    int64_t per_task = MAX(1, last->rows * c->images / 32), per_image = (last->rows + per_task - 1) / per_task;
    put_driver(&pr, scratch_bytes, per_task, per_image);
    for (int i = 0; i < c->n - 1; i++) scratch_bytes += (c->stage[i].row_bytes * c->stage[i].ring_rows + 63) / 64 * 64;
    k.source = arena_strdup(p->arena, out.at);
    arena_destroy(scratch);
    k.step[0].tasks = per_image * c->images;
    k.scratch_bytes = scratch_bytes;
    u->label = chain_label(p, c);
    u->loops = pr.merged;
    u->memory = NULL;
    u->kernel = k;
    u->contraction = false;
    *out_done = true;
    return ctx_check(p->ctx);
}
