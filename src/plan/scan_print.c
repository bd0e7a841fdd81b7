/* The kernel of a recurrence: the kernels of its stages as static functions, and one function that calls them step by
 * step with pointers to the step's operands. */
#include "plan/scan.h"

#include <string.h>

struct printing {
    struct scan *s;
    struct text *out;
    struct loops *merged; /* the unit's loops, with a tensor for each packed form of an operand */
    struct kernel k;
    int *operand; /* by tensor of merged */
    int nfunction;
    const struct choice *function[LOOPS_MAX_IVARS];
    int64_t works; /* where work buffers begin in scratch memory, behind the stages' own */
};

static const struct scan_place *place_of(const struct scan_stage *st, int tensor)
{
    return st->sub->tensors.at[tensor].user;
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
static int packed_tensor(const struct printing *pr, const struct scan_stage *st, const struct kernel_pack *pack)
{
    const struct sol_tensor *source = pr->s->l->tensors.at[place_of(st, pack->tensor)->tensor].user;
    const char *text = pack_text(pr->out->arena, pack->loops);
    for (int i = 0; i < pr->k.npack; i++)
        if (pr->merged->tensors.at[pr->k.pack[i].tensor].user == source &&
            !strcmp(text, pack_text(pr->out->arena, pr->k.pack[i].loops)))
            return pr->k.pack[i].tensor;
    return -1;
}

/* Returns false if there are too many packs, or if one packs a tensor that changes from step to step. */
static bool collect_packs(struct printing *pr, const struct scan_stage *st)
{
    for (int i = 0; i < st->choice->kernel.npack; i++) {
        const struct kernel_pack *pack = &st->choice->kernel.pack[i];
        const int of = place_of(st, pack->tensor)->tensor;
        const struct loops_tensor *t = &pr->s->l->tensors.at[of];
        bool moves = pr->s->own[of].dim >= 0;
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

static bool collect_functions(struct printing *pr)
{
    for (int i = 0; i < pr->s->nphase; i++)
        for (int k = 0; k < pr->s->phase[i].nstage; k++) {
            struct scan_stage *st = &pr->s->phase[i].stage[k];
            int n = 0;
            while (n < pr->nfunction && pr->function[n] != st->choice) n++;
            if (n == COUNT_OF(pr->function) || !collect_packs(pr, st)) return false;
            if (n == pr->nfunction) pr->function[pr->nfunction++] = st->choice;
            st->number = n;
        }
    return true;
}

static void number_operands(struct printing *pr)
{
    int n = 0;
    pr->operand = NEW_ARRAY(pr->out->arena, int, pr->merged->tensors.n + 1);
    for (int t = 0; t < pr->merged->tensors.n; t++) pr->operand[t] = is_operand(pr->merged, t) ? n++ : -1;
}

/* The scratch memory of a worker: that of the kernels, their work buffers, then the tensors that only steps see. */
static void place_scratch(struct printing *pr)
{
    int64_t at = 0, works = 0;
    for (int i = 0; i < pr->nfunction; i++) {
        const struct kernel *k = &pr->function[i]->kernel;
        int64_t all = 0;
        for (int w = 0; w < k->nwork; w++) all += (k->work_bytes[w] + 63) / 64 * 64;
        at = MAX(at, (k->scratch_bytes + 63) / 64 * 64);
        works = MAX(works, all);
    }
    pr->works = at;
    at += works;
    for (int t = 0; t < pr->s->l->tensors.n; t++) {
        struct scan_own *own = &pr->s->own[t];
        if (!own->scratch) continue;
        own->offset = at;
        at += own->row_bytes * own->rows;
    }
    pr->k.scratch_bytes = at;
}

static void put_functions(struct printing *pr)
{
    for (int i = 0; i < pr->nfunction; i++) kernel_member(pr->out, pr->s->p->target, i, pr->function[i]->kernel.source);
}

/* -- the driver */

/* Adds the offset of the operand in block `block` or at step `step`. */
static void put_move(struct printing *pr, const struct scan_stage *st, int t, int k, const char *counter, int64_t from)
{
    const struct slice_operand *op = st->op[k] ? &st->op[k][t] : NULL;
    if (!op || !op->coef) return;
    const int64_t unit = st->whole[t].stride[op->dim] * dtype_def(st->sub->tensors.at[t].dtype)->bytes;
    text_put(pr->out, " + %s * %lld + %lld", counter, (long long)(op->coef * unit),
             (long long)((op->min - op->coef * from) * unit));
}

/* The pointer of tensor t of a stage at step `step`. */
static void put_pointer(struct printing *pr, const struct scan_phase *ph, const struct scan_stage *st, int t)
{
    const struct scan_place *place = place_of(st, t);
    const struct scan_own *own = &pr->s->own[place->tensor];
    const struct kernel_pack *pack = pack_of(st, t);
    if (pack) {
        text_put(pr->out, "p[%d]", pr->operand[packed_tensor(pr, st, pack)]);
    } else if (own->scratch) {
        text_put(pr->out, "scratch + %lld", (long long)own->offset);
        if (own->rows > 1)
            text_put(pr->out, " + (step + %lld) %% %lld * %lld", (long long)(place->shift + own->rows),
                     (long long)own->rows, (long long)own->row_bytes);
    } else {
        text_put(pr->out, "p[%d]", pr->operand[place->tensor]);
        put_move(pr, st, t, 1, "task", 0);
        put_move(pr, st, t, 0, "step", ph->from);
    }
}

static void put_stage(struct printing *pr, const struct scan_phase *ph, const struct scan_stage *st)
{
    const struct kernel *k = &st->choice->kernel;
    struct text *t = pr->out;
    text_open(t, "{");
    text_line(t, "char *const q[] = {");
    for (int i = 0; i < st->sub->tensors.n; i++) {
        if (!is_operand(st->sub, i)) continue;
        text_put(t, "%*s", (t->indent + 1) * 4, "");
        put_pointer(pr, ph, st, i);
        text_put(t, ",\n");
    }
    int64_t at = pr->works;
    for (int w = 0; w < k->nwork; w++) {
        text_line(t, "    scratch + %lld,", (long long)at);
        at += (k->work_bytes[w] + 63) / 64 * 64;
    }
    text_line(t, "};");
    for (int i = 0; i < k->nstep; i++)
        text_line(t, "%s(q, f, 0, %lld, worker);", kernel_member_step(t->arena, st->number, i),
                  (long long)k->step[i].tasks);
    text_close(t, "}");
}

static void put_driver(struct printing *pr)
{
    const struct scan *s = pr->s;
    struct text *t = pr->out;
    kernel_open(t, 0);
    text_line(t, "char *const scratch = (char *)f->scratch + worker * f->scratch_bytes;");
    text_line(t, "(void)scratch;");
    text_open(t, "for (int64_t task = task0; task < task1; task++) {");
    for (int i = 0; i < s->nphase; i++) {
        const struct scan_phase *ph = &s->phase[i];
        const int64_t last = ph->from + ph->n - 1;
        if (s->by > 0)
            text_open(t, "for (int64_t step = %lld; step <= %lld; step++) {", (long long)ph->from, (long long)last);
        else
            text_open(t, "for (int64_t step = %lld; step >= %lld; step--) {", (long long)last, (long long)ph->from);
        for (int k = 0; k < ph->nstage; k++) put_stage(pr, ph, &ph->stage[k]);
        text_close(t, "}");
    }
    text_close(t, "}");
    kernel_close(t);
}

/* What takes longest. */
static const struct choice *main_choice(const struct scan *s)
{
    const struct choice *best = NULL;
    double most = -1;
    for (int i = 0; i < s->nphase; i++)
        for (int k = 0; k < s->phase[i].nstage; k++) {
            const struct choice *c = s->phase[i].stage[k].choice;
            const double cost = c->kernel.cost * (double)s->phase[i].n;
            if (cost <= most) continue;
            most = cost;
            best = c;
        }
    return best;
}

sol_status scan_print(struct scan *s, bool *out_done)
{
    struct text out = text_new(s->p->arena);
    struct printing pr = {.s = s, .out = &out, .merged = loops_copy(s->p->arena, s->l)};
    *out_done = false;
    pr.k = (struct kernel){.nstep = 1, .solver = "scan", .cost = s->cost};
    if (!collect_functions(&pr)) return SOL_OK;
    number_operands(&pr);
    place_scratch(&pr);
    put_functions(&pr);
    put_driver(&pr);
    const struct choice *main = main_choice(s);
    pr.k.source = out.at;
    pr.k.step[0].tasks = s->blocks;
    pr.k.variant = arena_printf(s->p->arena, "%s %s", main->kernel.solver, main->kernel.variant);
    s->u->choice = main;
    s->u->loops = pr.merged;
    s->u->memory = NULL;
    s->u->kernel = pr.k;
    *out_done = true;
    return ctx_check(s->p->ctx);
}
