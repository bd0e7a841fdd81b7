/* What forward saves for backward, and what backward recomputes instead, by cost.
 *
 * There is a series of *levels*, each of which saves less than the one before. Level 0 saves everything that backward
 * reads. Level 1 does not save element-wise results that need only one large tensor that is saved anyway, usually a
 * batch-norm and an activation after a convolution. Each further level gives up the tensor whose memory costs the least
 * time to free: a sum of two saved tensors is computed again, or a convolution, and what they read is in turn saved or
 * recomputed. Levels that cost next to nothing are the default. The memory of a level is estimated from the lifetimes
 * of all large tensors in backward: saved tensors die there, recomputed ones and gradients come and go. Element-wise
 * results whose only reader is also element-wise never reach memory. */
#include <stdlib.h>
#include <string.h>

#include "grad/checkpoint.h"

#define LEAST_SHARE 2000.0 /* nor one that is so small a share of all */
#define FLOPS_A_NS 400.0   /* for weighing layers against each other */
#define SENSIBLE 0.1       /* a tenth of the memory is worth the time of one more forward */
#define UNNOTICED 0.02     /* of forward's time: less than a hundredth of a step */
#define MOST_LEVELS 160

static struct fact *fact_of(const struct checkpointing *k, const struct sol_tensor *t)
{
    return t->id < k->ntensors ? k->fact[t->id] : NULL;
}

enum program checkpoint_program(const struct checkpointing *k, const struct sol_layer *l)
{
    return l->id < k->nlayers ? (enum program)k->program[l->id] : PROGRAM_BACKWARD;
}

bool checkpoint_keeps(const struct checkpointing *k, const struct sol_tensor *t)
{
    const struct fact *f = fact_of(k, t);
    if (!f || !f->view) return !f || f->saved;
    bool all = true; /* a view is available if all its inputs are */
    for (int i = 0; i < f->ndep; i++) all &= checkpoint_keeps(k, f->dep[i]->t);
    return all;
}

/* -- facts */

bool layer_is_elementwise(const struct sol_layer *l)
{
    if (l->def->flags & LAYER_OPAQUE) return false;
    for (int i = 0; i < l->loops->stmts.n; i++)
        if (l->loops->stmts.at[i].scan_step || l->loops->stmts.at[i].nout != 1) return false;
    for (int32_t e = 0; e < l->loops->ex.n; e++)
        if (l->loops->ex.at[e].kind == EX_RED && l->loops->ex.at[e].u.bound) return false;
    return true;
}

static void find_deps(struct checkpointing *k, struct fact *f)
{
    struct arena *a = k->g->arena;
    const struct sol_layer *l = f->t->from;
    struct sol_tensor **reads = l->in;
    const int stmt = remat_statement(f->t);
    int n = l->nin, nreads;
    struct sol_tensor **of_stmt;
    if (stmt >= 0 && remat_reads(a, f->t, stmt, &of_stmt, &nreads)) {
        f->elementwise = true;
        reads = of_stmt;
        n = nreads;
    }
    f->dep = NEW_ARRAY(a, struct fact *, n + 1);
    for (int i = 0; i < n; i++) {
        struct fact *d = reads[i] ? fact_of(k, reads[i]) : NULL;
        if (d && !d->fixed && d->bytes * CHECKPOINT_SMALL > f->bytes) f->dep[f->ndep++] = d;
    }
    double flops = 0, bytes = (double)f->bytes;
    for (int i = 0; i < f->ndep; i++) bytes += (double)f->dep[i]->bytes;
    if (!f->elementwise) layer_work(l, &flops, &bytes);
    f->cost = f->view ? 0 : flops / FLOPS_A_NS + bytes / BYTES_A_NS;
}

static void find_users(struct checkpointing *k)
{
    for (int i = 0; i < k->facts.n; i++)
        for (int d = 0; d < k->facts.at[i]->ndep; d++) k->facts.at[i]->dep[d]->nuser++;
    for (int i = 0; i < k->facts.n; i++) {
        struct fact *f = k->facts.at[i];
        f->user = NEW_ARRAY(k->g->arena, struct fact *, f->nuser + 1);
        f->nuser = 0;
    }
    for (int i = k->facts.n - 1; i >= 0; i--) /* the last first, in the order of `measure` */
        for (int d = 0; d < k->facts.at[i]->ndep; d++) {
            struct fact *f = k->facts.at[i]->dep[d];
            f->user[f->nuser++] = k->facts.at[i];
        }
}

/* Facts in the order of the layers. */
static void find_facts(struct checkpointing *k)
{
    struct sol_graph *g = k->g;
    double all = 0;
    for (struct sol_layer *l = g->first; l; l = l->next)
        for (int o = 0; checkpoint_program(k, l) == PROGRAM_FORWARD && o < l->nout; o++)
            all += (double)size_hint(tensor_bytes(l->out[o]));
    for (struct sol_layer *l = g->first; l; l = l->next)
        for (int o = 0; checkpoint_program(k, l) == PROGRAM_FORWARD && o < l->nout; o++) {
            struct sol_tensor *t = l->out[o];
            struct fact *f = NEW(g->arena, struct fact);
            *f = (struct fact){.t = t, .bytes = size_hint(tensor_bytes(t)), .saved = true, .first = 1, .last = 0};
            f->view = l->def->flags & LAYER_VIEW;
            f->fixed = t->output || (double)f->bytes * LEAST_SHARE < all;
            k->fact[t->id] = f;
            f->number = k->facts.n;
            PUSH(g->arena, k->facts, f);
        }
    for (int i = 0; i < k->facts.n; i++) find_deps(k, k->facts.at[i]);
    find_users(k);
}

static void read_at(struct fact *f, int place, bool by_elementwise)
{
    if (f->first > f->last) f->first = f->last = place;
    f->first = MIN(f->first, place);
    f->last = MAX(f->last, place);
    f->readers++;
    f->by_elementwise = by_elementwise;
}

/* The memory of gradients, by position in backward, and where backward reads what forward computed. */
static void find_backward(struct checkpointing *k)
{
    struct sol_graph *g = k->g;
    struct arena *a = g->arena;
    int *last = NEW_ARRAY(a, int, g->ntensors + 1), *readers = NEW_ARRAY(a, int, g->ntensors + 1);
    bool *by_elementwise = NEW_ARRAY(a, bool, g->ntensors + 1);
    for (struct sol_layer *l = g->first; l; l = l->next) k->nplace += checkpoint_program(k, l) == PROGRAM_BACKWARD;
    k->base = NEW_ARRAY(a, int64_t, k->nplace + 2);
    k->alive = NEW_ARRAY(a, int64_t, k->nplace + 2);
    int place = k->nplace;
    for (struct sol_layer *l = g->last; l; l = l->prev) {
        if (checkpoint_program(k, l) != PROGRAM_BACKWARD) continue;
        const bool view = l->def->flags & LAYER_VIEW, elementwise = layer_is_elementwise(l);
        int until = --place;
        for (int o = 0; o < l->nout; o++) {
            const struct sol_tensor *t = l->out[o];
            until = MAX(until, view ? last[t->id] : 0);
            if (view || t->output || (readers[t->id] == 1 && by_elementwise[t->id])) continue;
            k->base[place] += size_hint(tensor_bytes(t));
            k->base[MAX(last[t->id], place) + 1] -= size_hint(tensor_bytes(t));
        }
        for (int i = 0; i < l->nin; i++) {
            if (!l->in[i]) continue;
            struct fact *f = fact_of(k, l->in[i]);
            if (f) read_at(f, place, elementwise);
            const int id = l->in[i]->id;
            last[id] = MAX(last[id], until);
            readers[id]++;
            by_elementwise[id] = elementwise;
        }
    }
}

/* -- levels */

bool checkpoint_demands(const struct fact *f, const struct demand *n)
{
    return n->first <= n->last && !f->fixed && (!f->saved || f->view);
}

/* If f is computed again, or is a view, its inputs are needed, too. */
void checkpoint_demand(struct demand *dep, const struct fact *f, const struct demand *n)
{
    const int until = f->view ? n->last : n->first;
    if (dep->first > dep->last) *dep = (struct demand){.first = n->first, .last = until};
    dep->first = MIN(dep->first, n->first);
    dep->last = MAX(dep->last, until);
    dep->readers++;
    dep->makers += f->view ? n->makers : f->elementwise;
    dep->by_elementwise = f->elementwise;
}

/* An element-wise result inside its only reader is not even read from memory; others are written. What either is
 * computed from is read once more, if it is in memory. */
struct share checkpoint_share(const struct fact *f, const struct demand *n)
{
    const double ns = (double)f->bytes / BYTES_A_NS;
    if (n->first > n->last || f->fixed || f->view) return (struct share){0};
    if (!f->saved && f->elementwise && n->readers == 1 && n->by_elementwise)
        return (struct share){.ns = f->readers ? -ns : 0};
    const double cost = f->saved ? 0 : f->elementwise ? ns : f->cost;
    return (struct share){cost + n->makers * ns, f->bytes, f->saved ? 0 : n->first, n->last};
}

/* The peak memory of backward, including saved tensors, and the cost of recomputing. */
static int64_t measure(struct checkpointing *k, double *out_cost)
{
    memcpy(k->alive, k->base, (size_t)(k->nplace + 2) * sizeof *k->alive);
    *out_cost = 0;
    for (int i = 0; i < k->facts.n; i++) {
        const struct fact *f = k->facts.at[i];
        k->demand[f->t->id] = (struct demand){f->first, f->last, f->readers, 0, f->by_elementwise};
    }
    for (int i = k->facts.n - 1; i >= 0; i--) {
        const struct fact *f = k->facts.at[i];
        const struct demand *n = &k->demand[f->t->id];
        for (int d = 0; d < f->ndep && checkpoint_demands(f, n); d++)
            checkpoint_demand(&k->demand[f->dep[d]->t->id], f, n);
        const struct share s = checkpoint_share(f, n);
        *out_cost += s.ns;
        k->alive[s.first] += s.bytes;
        k->alive[s.last + 1] -= s.bytes;
    }
    int64_t sum = 0, most = 0;
    for (int i = 0; i <= k->nplace; i++) {
        sum += k->alive[i];
        k->alive[i] = sum;
        most = MAX(most, sum);
    }
    return most;
}

/* Goes through views, which are forwarded into their readers. */
static void find_wanted(struct checkpointing *k)
{
    for (int i = k->facts.n - 1; i >= 0; i--) {
        struct fact *f = k->facts.at[i];
        f->wanted |= f->readers > 0;
        for (int d = 0; f->wanted && f->view && d < f->ndep; d++) {
            f->dep[d]->wanted = true;
            f->dep[d]->joined |= f->ndep > 1;
        }
    }
}

/* The only large tensor from which f is computed by element-wise statements alone; NULL: from small ones only; f
 * itself: there is none. */
static void find_leaf(struct fact *f)
{
    f->leaf = f;
    if (!f->elementwise || f->exact) return;
    struct fact *found = NULL;
    for (int i = 0; i < f->ndep; i++) {
        struct fact *leaf = f->dep[i]->leaf;
        if (leaf && ((leaf == f->dep[i] && !leaf->wanted) || (found && found != leaf))) return;
        if (leaf) found = leaf;
    }
    f->leaf = found;
}

static void push_level(struct checkpointing *k)
{
    struct checkpoint_level level = {.dropped = k->dropped.n};
    level.bytes = measure(k, &level.cost);
    PUSH(k->g->arena, k->levels, level);
}

static void set_sources(struct checkpointing *k)
{
    for (int i = 0; i < k->facts.n; i++) {
        struct fact *f = k->facts.at[i];
        f->saved = f->fixed || f->joined || f->exact || f->leaf == f;
    }
}

sol_status checkpoint_make(struct sol_graph *g, struct checkpointing **out_k)
{
    struct arena *a = g->arena;
    struct checkpointing *k = NEW(a, struct checkpointing);
    *k = (struct checkpointing){.g = g, .ntensors = g->ntensors, .nlayers = g->nlayers};
    k->program = NEW_ARRAY(a, uint8_t, g->nlayers + 1);
    k->fact = NEW_ARRAY(a, struct fact *, g->ntensors + 1);
    k->demand = NEW_ARRAY(a, struct demand, g->ntensors + 1);
    TRY(ctx_check(g->ctx));
    TRY(graph_programs(g, k->program));
    find_facts(k);
    find_backward(k);
    find_wanted(k);
    checkpoint_find_exact(k);
    for (int i = 0; i < k->facts.n; i++) find_leaf(k->facts.at[i]);
    TRY(ctx_check(g->ctx));
    push_level(k);
    set_sources(k);
    push_level(k);
    *out_k = k;
    return ctx_check(g->ctx);
}

static void find_idle(struct checkpointing *k)
{
    double cost;
    measure(k, &cost);
    for (int i = 0; i < k->facts.n; i++) {
        struct fact *f = k->facts.at[i];
        const struct demand *d = &k->demand[f->t->id];
        f->idle = d->first > d->last && !f->fixed && !f->exact;
    }
}

/* Adds a level. False: no tensor saves memory. A level gives up one tensor, or several in a large network. */
static bool add_level(struct checkpointing *k, int at_once, struct fact **drop)
{
    double cost;
    measure(k, &cost);
    const int n = checkpoint_give_up(k, at_once, drop);
    for (int i = 0; i < n; i++) {
        drop[i]->saved = false;
        PUSH(k->g->arena, k->dropped, drop[i]);
    }
    if (n) push_level(k);
    return n > 0;
}

void checkpoint_levels(struct checkpointing *k)
{
    double forward = 0;
    int saved = 0;
    if (k->levels.n > CHECKPOINT_SOURCES + 1) return;
    checkpoint_level(k, CHECKPOINT_SOURCES);
    find_idle(k);
    for (int i = 0; i < k->facts.n; i++) forward += k->facts.at[i]->cost;
    k->small = k->balanced = CHECKPOINT_SOURCES;
    const double least = k->levels.at[CHECKPOINT_SOURCES].cost;
    checkpoint_level(k, CHECKPOINT_SOURCES + 1);
    for (int i = 0; i < k->facts.n; i++) saved += k->facts.at[i]->saved && !k->facts.at[i]->fixed;
    const int at_once = (saved + MOST_LEVELS - 1) / MOST_LEVELS;
    struct fact **drop = NEW_ARRAY(k->g->arena, struct fact *, at_once + 1);
    while (add_level(k, at_once, drop)) {
        const struct checkpoint_level *l = &k->levels.at[k->levels.n - 1], *small = &k->levels.at[k->small];
        const double won = (double)(small->bytes - l->bytes) / (double)small->bytes;
        if (won > SENSIBLE * (l->cost - small->cost) / forward) k->small = k->levels.n - 1;
        const bool next = k->balanced == k->levels.n - 2;
        if (next && l->cost - least < UNNOTICED * forward) k->balanced = k->levels.n - 1;
    }
}

/* From the level above KEEP_SOURCES on, recomputation starts from what is saved for backward. */
void checkpoint_level(struct checkpointing *k, int level)
{
    for (int i = 0; i < k->facts.n; i++) k->facts.at[i]->saved = true;
    if (level >= CHECKPOINT_SOURCES) set_sources(k);
    for (int i = 0; level > CHECKPOINT_SOURCES && i < k->facts.n; i++) k->facts.at[i]->saved &= !k->facts.at[i]->idle;
    for (int i = 0; level < k->levels.n && i < k->levels.at[level].dropped; i++) k->dropped.at[i]->saved = false;
}
