/* Settling runs steps of `prepare` at deployment, and stores their results instead of the original weights. With
 * pack=ahead it settles all steps. Otherwise it settles those whose results need no more space than their inputs: the
 * library then starts faster, and the file does not grow. Steps that share a parameter or an intermediate result are
 * settled together. */
#include <stdlib.h>
#include <string.h>

#include "deploy/deploy.h"

enum { ROOM = 512 << 10 }; /* bytes that the file may be larger: packed blocks have whole vectors */

struct settling {
    struct deploy *d;
    struct schedule *s;
    int nstep;
    int *group;    /* by step: another one of its group, or itself: the root */
    bool *later;   /* by buffer: forward or backward read it */
    int64_t *gain; /* by root: bytes of parameters that are not needed any more, less those that are made of them */
    bool *settled; /* by step */
    int prepared;  /* the buffer */
};

static int root(const struct settling *x, int i)
{
    while (x->group[i] != i) i = x->group[i];
    return i;
}

static const struct sol_tensor *tensor_of(const struct settling *x, const struct schedule_step *st, int k)
{
    return plan_allocation(x->s->plan, st->operand[k])->root;
}

/* Groups a step with the first that used the same tensor. Shared constants do not group steps, because they may be
 * stored twice. */
static void join(struct settling *x)
{
    const struct schedule_program *pr = &x->s->program[PROGRAM_PREPARE];
    int *first = NEW_ARRAY(x->d->arena, int, x->s->plan->nallocations + 1);
    for (int i = 0; i < x->nstep; i++) {
        x->group[i] = i;
        for (int k = 0; k < pr->steps.at[i].noperand; k++) {
            const struct sol_tensor *t = tensor_of(x, &pr->steps.at[i], k);
            if (t->role == TENSOR_CONST) continue;
            if (first[t->id])
                x->group[root(x, first[t->id] - 1)] = root(x, i);
            else
                first[t->id] = i + 1;
        }
    }
}

static void find_later(struct settling *x)
{
    for (int program = PROGRAM_FORWARD; program < PROGRAMS; program++) {
        const struct schedule_program *pr = &x->s->program[program];
        for (int i = 0; i < pr->steps.n; i++)
            for (int k = 0; k < pr->steps.at[i].noperand; k++) x->later[pr->steps.at[i].place[k].buffer] = true;
    }
}

static int64_t bytes_of(const struct settling *x, const struct sol_tensor *t)
{
    const struct allocation *st = &x->s->plan->allocations[t->id];
    return (st->elements * dtype_def((enum sol_dtype)t->dtype)->bytes + 63) / 64 * 64;
}

static void weigh(struct settling *x)
{
    const struct schedule_program *pr = &x->s->program[PROGRAM_PREPARE];
    bool *seen = NEW_ARRAY(x->d->arena, bool, x->s->plan->nallocations + 1);
    for (int i = 0; i < x->nstep; i++)
        for (int k = 0; k < pr->steps.at[i].noperand; k++) {
            const struct sol_tensor *t = tensor_of(x, &pr->steps.at[i], k);
            const int buffer = pr->steps.at[i].place[k].buffer;
            if (seen[t->id]) continue;
            seen[t->id] = true;
            if (t->role == TENSOR_PARAM && !x->later[buffer]) x->gain[root(x, i)] += bytes_of(x, t);
            if (buffer == x->prepared) x->gain[root(x, i)] -= bytes_of(x, t);
        }
}

struct gain {
    int64_t bytes;
    int root;
};

static int most_first(const void *a, const void *b)
{
    const struct gain *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1) : x->root - y->root;
}

/* Settles all groups, or those that do not enlarge the file, followed by those that enlarge it least while the
 * allowance lasts. */
static void choose(struct settling *x, bool all)
{
    struct gain *gain = NEW_ARRAY(x->d->arena, struct gain, x->nstep + 1);
    bool *chosen = NEW_ARRAY(x->d->arena, bool, x->nstep + 1);
    int64_t room = ROOM;
    int n = 0;
    for (int i = 0; i < x->nstep; i++)
        if (x->group[i] == i) gain[n++] = (struct gain){x->gain[i], i};
    qsort(gain, (size_t)n, sizeof *gain, most_first);
    for (int i = 0; i < n && (all || room + MIN(gain[i].bytes, 0) >= 0); i++) {
        room += MIN(gain[i].bytes, 0);
        chosen[gain[i].root] = true;
    }
    for (int i = 0; i < x->nstep; i++) x->settled[i] = chosen[root(x, i)];
}

/* The results of settled steps become constants, each in its own buffer. */
static int settled_buffer(struct settling *x, const struct sol_tensor *t, const char *block)
{
    struct schedule *s = x->s;
    struct sol_tensor *made = arena_memdup(x->d->arena, t, sizeof *t);
    made->data = block + s->offset[t->id];
    const struct sol_buffer b = {.kind = SOL_BUFFER_CONST, .index = s->constants.n, .bytes = bytes_of(x, t)};
    PUSH(s->arena, s->constants, made);
    PUSH(s->arena, s->buffers, b);
    return s->buffers.n - 1;
}

/* The new locations of prepared tensors: in constant buffers, or compacted. */
static void move(struct settling *x, const char *block)
{
    struct schedule *s = x->s;
    struct schedule_program *prepare = &s->program[PROGRAM_PREPARE];
    int *buffer = NEW_ARRAY(x->d->arena, int, s->plan->nallocations + 1);
    int64_t *offset = NEW_ARRAY(x->d->arena, int64_t, s->plan->nallocations + 1), bytes = 0;
    bool *known = NEW_ARRAY(x->d->arena, bool, s->plan->nallocations + 1);
    for (int i = 0; i < x->nstep; i++)
        for (int k = 0; k < prepare->steps.at[i].noperand; k++) {
            const struct sol_tensor *t = tensor_of(x, &prepare->steps.at[i], k);
            if (prepare->steps.at[i].place[k].buffer != x->prepared || known[t->id]) continue;
            known[t->id] = true;
            buffer[t->id] = x->settled[i] ? settled_buffer(x, t, block) : x->prepared;
            offset[t->id] = x->settled[i] ? 0 : bytes;
            bytes += x->settled[i] ? 0 : bytes_of(x, t);
        }
    for (int program = 0; program < PROGRAMS; program++) {
        const struct schedule_program *pr = &s->program[program];
        for (int i = 0; i < pr->steps.n; i++)
            for (int k = 0; k < pr->steps.at[i].noperand; k++) {
                const struct sol_tensor *t = tensor_of(x, &pr->steps.at[i], k);
                struct sol_operand *p = &pr->steps.at[i].place[k];
                if (p->buffer != x->prepared) continue;
                p->buffer = buffer[t->id];
                p->offset += offset[t->id] - s->offset[t->id];
            }
    }
    s->prepared_bytes = s->buffers.at[x->prepared].bytes = bytes;
}

static void drop_steps(struct settling *x)
{
    struct schedule_program *pr = &x->s->program[PROGRAM_PREPARE];
    int n = 0;
    for (int i = 0; i < x->nstep; i++)
        if (!x->settled[i]) pr->steps.at[n++] = pr->steps.at[i];
    pr->steps.n = n;
    if (n) return;
    pr->workspace_bytes = pr->scratch_bytes = 0;
}

static int prepared_buffer(const struct schedule *s)
{
    int i = 0;
    while (i < s->buffers.n && s->buffers.at[i].kind != SOL_BUFFER_PREPARED) i++;
    return i;
}

/* Settling replaces parameters, so nothing else may need them: it requires a single schedule without training. */
static bool may_settle(const struct deploy *d)
{
    return !deploy_trains(d) && (!strcmp(d->keys.pack, "ahead") || (d->ngraph == 1 && d->nversion == 1));
}

sol_status deploy_settle(struct deploy *d, const struct deploy_graph *g, const struct deploy_version *v,
                         struct deploy_code *code)
{
    struct schedule *s = code->schedule;
    struct settling x = {.d = d, .s = s, .nstep = s->program[PROGRAM_PREPARE].steps.n, .prepared = prepared_buffer(s)};
    void *block;
    if (!x.nstep || !may_settle(d)) return SOL_OK;
    for (int i = 0; i < g->g->params.n; i++)
        if (!g->params || !g->params[i]) return SOL_OK; /* weights.c says so, if it is needed */
    x.group = NEW_ARRAY(d->arena, int, x.nstep + 1);
    x.gain = NEW_ARRAY(d->arena, int64_t, x.nstep + 1);
    x.settled = NEW_ARRAY(d->arena, bool, x.nstep + 1);
    x.later = NEW_ARRAY(d->arena, bool, s->buffers.n + 1);
    join(&x);
    find_later(&x);
    weigh(&x);
    choose(&x, !strcmp(d->keys.pack, "ahead"));
    bool any = false;
    for (int i = 0; i < x.nstep; i++) any |= x.settled[i];
    if (!any) return SOL_OK;
    TRY(deploy_prepare(d, g, v, s, x.settled, &block));
    move(&x, block);
    drop_steps(&x);
    return ctx_check(d->ctx);
}
