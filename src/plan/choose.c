/* Chooses a solver and a variant for every unit. All solvers that apply give their costs; the cheapest that can emit
 * the kernel is chosen. Equal units (same loops, same memory) share the answer. Packing an operand becomes a unit of
 * its own: in `prepare` for parameters, in front of the unit otherwise. */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include "print/print.h"

#define DEEP 8.0         /* a sum of this many products needs blocking */
#define SCALING 4.0      /* operations, including reads, that may be applied to parameters while they are packed */
#define DEEP_PENALTY 4.0 /* the factor by which a solver that does not block products underestimates its time then */

static void print_memory(struct text *out, const struct cluster *c)
{
    for (int i = 0; i < c->loops->tensors.n; i++) {
        const struct loops_tensor *t = &c->loops->tensors.at[i];
        const struct memory *m = &c->memory[i];
        text_put(out, "%s %d %d:", t->name, t->role, t->dtype);
        for (int d = 0; d < t->ndim; d++)
            text_put(out, " %lld*%lld-%d+%d", (long long)t->shape[d], (long long)m->stride[d], m->halo_low[d],
                     m->halo_high[d]);
        if (t->role == LOOPS_TABLE) {
            struct hash h;
            char hex[33];
            hash_init(&h);
            const int64_t n = dtype_def(t->dtype)->bytes * loops_elements(t);
            hash_add(&h, t->table, (size_t)n);
            hash_hex(&h, hex);
            text_put(out, " %s", hex);
        }
        text_put(out, " @%d %d\n", m->align, m->constant);
    }
}

void unit_memory(struct plan *p, struct unit *u)
{
    u->memory = NEW_ARRAY(p->arena, struct memory, u->loops->tensors.n + 1);
    for (int i = 0; i < u->loops->tensors.n; i++)
        if (u->loops->tensors.at[i].user) u->memory[i] = plan_allocation(p, u->loops->tensors.at[i].user)->memory;
    for (int i = 0; i < u->loops->tensors.n && u->fixed; i++)
        for (int d = 0; d < u->loops->tensors.at[i].ndim; d++)
            u->memory[i].stride[d] = size_at(u->memory[i].stride[d], u->fixed);
}

/* Index variables bound in a sum along which a window slides: an index moves on by less than the window is long. */
struct depth {
    const struct loops *loops;
    uint64_t bound, window;
};

static bool slides(const struct loops *loops, int32_t index, uint64_t bound)
{
    struct affine f;
    int64_t length = 1, step = INT64_MAX;
    if (!ex_affine(loops, index, &f)) return true;
    for (int i = 0; i < f.n; i++) {
        const int64_t coef = llabs(size_hint(f.coef[i])), n = size_hint(loops->ivars.at[f.ivar[i]].size);
        if (bound >> f.ivar[i] & 1)
            length += coef * MAX(n - 1, 0);
        else if (coef)
            step = MIN(step, coef);
    }
    return step < length;
}

static void depth_visit(void *user, int32_t node)
{
    struct depth *d = user;
    const struct ex *e = &d->loops->ex.at[node];
    if (e->kind == EX_RED) d->bound |= e->u.bound;
    if (e->kind != EX_READ) return;
    for (int32_t i = e->a; i; i = d->loops->ex.at[i].next) {
        uint64_t ivars = ex_ivars(d->loops, i);
        if (ivars & ~d->bound && slides(d->loops, i, d->bound)) d->window |= ivars & d->bound;
    }
}

/* The number of products that each element of the anchor sums up and that no window shares: 1 for a depthwise
 * convolution or a pool. */
static double depth_of(const struct cluster *c)
{
    struct depth d = {.loops = c->loops};
    ex_walk(c->loops, c->loops->stmts.at[c->anchor].value, depth_visit, &d);
    return (double)ivars_points(c->loops, d.bound & ~d.window);
}

/* The cost model does not know other libraries well enough to choose them: a policy has to pick one, or the key
 * `solver` forces it. */
static bool only_picked(const struct plan *p, const struct solver *s)
{
    return s->foreign && s != p->forced;
}

/* What solvers are asked. */
struct request {
    struct target one; /* a single core of the target */
    struct solver_context sc;
    struct cluster c;
    bool contraction;
    int64_t repeats;              /* as in struct unit */
    const struct candidate *only; /* no other is wanted; NULL: all */
};
struct found {
    VECTOR(struct candidate) of;
};

/* The time to pack parameters in every step of training, at the speed of the L3. */
static double packing(const struct plan *p, const struct request *r, const struct variant *v)
{
    return p->training ? v->moved / p->target->l3_rate / (double)MAX(r->repeats, 1) : 0;
}

static void collect(struct plan *p, const struct request *r, const struct solver_context *sc, struct found *out)
{
    const struct cluster *c = &r->c;
    const struct solver *only = r->only ? r->only->solver : NULL;
    const bool was = size_costs(true), deep = r->contraction && depth_of(c) >= DEEP, vary = cluster_varies(c);
    size_costs(was);
    for (int i = 0; solvers[i]; i++) {
        const struct solver *s = solvers[i];
        const char *why = NULL;
        if ((p->forced && p->forced != s && !s->reference) || (only && only != s)) continue;
        if (!solver_prints(s, p->target)) continue;
        if ((vary && !s->dynamic) || !s->applicable(sc, c, &why)) continue;
        struct variant v[SOLVER_MAX_VARIANTS];
        memset(v, 0, sizeof v);
        const int nv = s->variants(sc, c, v);
        for (int k = 0; k < nv; k++) {
            if (deep && !s->blocks) v[k].cost *= DEEP_PENALTY;
            v[k].cost += packing(p, r, &v[k]);
            v[k].text = arena_strdup(p->arena, v[k].text);
            PUSH(sc->arena, out->of, ((struct candidate){s, v[k]}));
        }
    }
}

void choice_add(struct choice *c, const struct candidate *cand)
{
    int k = c->n++;
    for (; k > 0 && c->candidate[k - 1].variant.cost > cand->variant.cost; k--) c->candidate[k] = c->candidate[k - 1];
    c->candidate[k] = *cand;
}

/* Finds all variants of all solvers that are wanted, the cheapest first. Solvers need much more scratch memory than
 * their answer. */
static sol_status find_candidates(struct plan *p, const struct request *r, struct choice *choice)
{
    struct found found = {0};
    struct solver_context sc = r->sc;
    sc.arena = arena_create(p->ctx);
    if (!sc.arena) return ctx_check(p->ctx);
    sc.only = r->only ? &r->only->variant : NULL;
    collect(p, r, &sc, &found);
    choice->candidate = NEW_ARRAY(p->arena, struct candidate, found.of.n + 1);
    for (int i = 0; i < found.of.n; i++) choice_add(choice, &found.of.at[i]);
    arena_destroy(sc.arena);
    return ctx_check(p->ctx);
}

static const char *pack_text(struct arena *a, const struct kernel_pack *k)
{
    struct text t = text_new(a);
    loops_print(k->loops, &t);
    return arena_printf(a, "%d %s", k->tensor, t.at);
}

bool choose_packs_again(const struct plan *p, const struct unit *u, const struct kernel *k, const struct kernel *like)
{
    bool again = false;
    const struct arena_mark mark = arena_mark(p->scratch);
    for (int i = 0; i < k->npack && !p->training; i++) {
        bool found = !u->memory[k->pack[i].tensor].constant;
        for (int n = 0; n < like->npack && !found; n++)
            found = !strcmp(pack_text(p->scratch, &k->pack[i]), pack_text(p->scratch, &like->pack[n]));
        again |= !found;
    }
    arena_rewind(p->scratch, mark);
    return again;
}

/* What a kernel costs, with what it takes that versions of the unit pack weights in different ways. */
static double price_of(const struct plan *p, const struct unit *u, const struct kernel *k)
{
    return k->cost * (u->like && choose_packs_again(p, u, k, u->like) ? CHOOSE_PACK_AGAIN : 1);
}

/* Emits candidate i. It becomes the choice if that is possible and nothing cheaper was emitted before. */
static sol_status emit(struct plan *p, const struct solver_context *sc, const struct cluster *c, const struct unit *u,
                       struct choice *choice, int i)
{
    const struct candidate *cand = &choice->candidate[i];
    struct kernel k = {.cost = cand->variant.cost, .solver = cand->solver->name, .variant = cand->variant.text};
    struct solver_context with_scratch = *sc;
    with_scratch.scratch = arena_create(p->ctx); /* sources grow by doubling and take several times their final size */
    if (!with_scratch.scratch) return ctx_check(p->ctx);
    const sol_status s = solver_emit(cand->solver, &with_scratch, c, &cand->variant, &k);
    k.source = arena_strdup(p->arena, k.source);
    arena_destroy(with_scratch.scratch);
    TRY(ctx_check(p->ctx));
    if (s && s != SOL_ERR_UNSUPPORTED) return ctx_where(p->ctx, s, "%s: ", u->label);
    if (s || (choice->kernel.source && price_of(p, u, &k) >= price_of(p, u, &choice->kernel))) return SOL_OK;
    choice->kernel = k;
    choice->chosen = i;
    return SOL_OK;
}

/* Chooses the policy's candidate, or the cheapest that can be emitted, including the cost of packing. */
static sol_status choose(struct plan *p, const struct solver_context *sc, const struct cluster *c, const struct unit *u,
                         struct choice *choice)
{
    const int picked = p->policy ? p->policy->pick(p->policy->user, choice) : -1;
    if (picked >= 0 && picked < choice->n) TRY(emit(p, sc, c, u, choice, picked));
    if (choice->kernel.source) {
        /* bands compare costs by the model, so that a policy for one unit changes that unit alone */
        choice->kernel.cost = MIN(choice->kernel.cost, choice->candidate[0].variant.cost);
        return SOL_OK;
    }
    for (int i = 0; i < choice->n; i++) {
        if (choice->kernel.source && choice->candidate[i].variant.cost >= price_of(p, u, &choice->kernel)) break;
        if (only_picked(p, choice->candidate[i].solver)) continue;
        TRY(emit(p, sc, c, u, choice, i));
    }
    return choice->kernel.source ? SOL_OK
                                 : ctx_fail(p->ctx, SOL_ERR_UNSUPPORTED, "%s (%s): no solver can compute these loops",
                                            u->label, u->layer ? u->layer->where : "");
}

/* Fuses scaling into packing: where a parameter is scaled for one reader only (a folded batch-norm), the parameter
 * itself is packed, not a scaled copy. */
static const struct loops *pack_source(struct plan *p, const struct loops *loops, enum program program)
{
    const struct allocation *s = plan_allocation(p, loops->tensors.at[0].user);
    struct unit *w = s->writers == 1 && s->readers == 1 ? s->writer : NULL;
    if (!w || w->opaque || w->program != PROGRAM_PREPARE || program != PROGRAM_PREPARE) return loops;
    if (s->root != s->t || s->parts || w->kernel.npack || w->loops->stmts.n != 1) return loops;
    if (expr_ops(w->loops, w->loops->stmts.at[0].value) > SCALING) return loops;
    const struct loops *inlined = plan_inlined(p, loops, 0, w->loops, false);
    if (!inlined) return loops;
    w->dead = true;
    return inlined;
}

/* The packed form of an operand, shared by all units that want the same form. Training changes parameters in every
 * step, so it packs them right before their use, into memory that is free again afterwards. */
static struct sol_tensor *packed(struct plan *p, struct map *packs, int *at, struct unit *u,
                                 const struct kernel_pack *k)
{
    struct sol_tensor *source = u->loops->tensors.at[k->tensor].user;
    struct text key = text_new(p->scratch);
    const bool constant = u->memory[k->tensor].constant;
    const enum program program = constant && !p->training ? PROGRAM_PREPARE : u->program;
    text_put(&key, "%d %d %lld\n", source->id, program, program == PROGRAM_PREPARE ? 0 : (long long)u->when);
    loops_print(k->loops, &key);
    const struct loops_tensor *t = &k->loops->tensors.at[1];
    for (int d = 0; d < t->ndim; d++) text_put(&key, " %lld", (long long)t->shape[d]);
    struct sol_tensor *made = map_get(packs, key.at);
    if (made && constant) return made;
    made = plan_tensor(p, "packed", t->dtype, t->ndim, t->shape);
    struct allocation *s = plan_allocation(p, made);
    struct loops *loops = loops_copy(p->arena, k->loops);
    loops_set_user(loops, 0, source);
    loops_set_user(loops, 1, made);
    struct unit *pack = plan_unit(p, *at, program, pack_source(p, loops, program), u->layer,
                                  arena_printf(p->arena, "pack %s", u->label));
    s->fixed = true;
    plan_place(s);
    if (program != PROGRAM_PREPARE) pack->when = s->when = u->when;
    (*at)++;
    map_set(packs, key.at, made);
    return made;
}

static void set_operands(struct plan *p, struct map *packs, int *at, struct unit *u)
{
    u->operand = NEW_ARRAY(p->arena, struct sol_tensor *, u->loops->tensors.n + COUNT_OF(u->kernel.work_bytes));
    u->written = NEW_ARRAY(p->arena, bool, u->loops->tensors.n + COUNT_OF(u->kernel.work_bytes));
    for (int i = 0; i < u->loops->tensors.n; i++) {
        const struct loops_tensor *t = &u->loops->tensors.at[i];
        if (t->role == LOOPS_TEMP || t->role == LOOPS_TABLE) continue;
        struct sol_tensor *operand = t->user;
        for (int k = 0; k < u->kernel.npack; k++)
            if (u->kernel.pack[k].tensor == i) operand = packed(p, packs, at, u, &u->kernel.pack[k]);
        u->written[u->noperand] = t->role == LOOPS_OUTPUT;
        u->operand[u->noperand++] = operand;
    }
    for (int i = 0; i < u->kernel.nwork; i++) {
        struct sol_tensor *t = plan_tensor(p, "work", SOL_U8, 1, &u->kernel.work_bytes[i]);
        plan_allocation(p, t)->fixed = true;
        plan_allocation(p, t)->program = u->program;
        plan_allocation(p, t)->when = u->when;
        plan_place(plan_allocation(p, t));
        u->operand[u->noperand++] = t;
    }
}

static struct target one_core(const struct target *t)
{
    struct target one = *t;
    one.cores = 1;
    one.l2_rate /= t->cores;
    return one;
}

const char *plan_dims_text(struct plan *p, uint32_t dims, const int64_t *point)
{
    struct text t = text_new(p->scratch);
    for (int i = 0; i < p->g->dims.n; i++) {
        const struct size_dim *d = &p->g->dims.at[i].dim;
        if (dims >> i & 1)
            text_put(&t, "#%d = %lld in %lld..%lld by %lld\n", i, (long long)(point ? point[i] : d->hint),
                     (long long)d->min, (long long)d->max, (long long)d->multiple);
    }
    return t.n ? t.at : "";
}

/* Forms in place of their names, and what they depend on besides: limits of the dimensions, and the point. */
static const char *with_sizes(struct plan *p, const char *text, const struct unit *u)
{
    struct text made = text_new(p->scratch);
    uint32_t dims = 0;
    int64_t bad;
    size_fill(&made, text, NULL, &dims, &bad);
    text_put(&made, "%s", plan_dims_text(p, dims, u->point));
    return made.at;
}

/* Hash of what is to be computed. */
static void cluster_key(struct plan *p, const struct request *r, const struct unit *u, char key[33])
{
    const struct arena_mark mark = arena_mark(p->scratch);
    struct text text = text_new(p->scratch);
    struct hash h;
    loops_print(r->c.loops, &text);
    print_memory(&text, &r->c);
    if (u->repeats) text_put(&text, "on one core\n");
    if (r->sc.saves) text_put(&text, "forward of a training step\n");
    hash_init(&h);
    hash_text(&h, cluster_varies(&r->c) ? with_sizes(p, text.at, u) : text.at);
    hash_hex(&h, key);
    arena_rewind(p->scratch, mark);
}

static void make_request(const struct plan *p, const struct cluster *c, const struct unit *u, struct request *out)
{
    const bool part =
        u->repeats ||
        c->loops != u->loops; /* single rows or steps of a band or recurrence: other libraries do not compute them */
    *out = (struct request){.one = one_core(p->target),
                            .sc = {.arena = p->arena,
                                   .target = u->repeats ? &out->one : p->target,
                                   .precision = p->precision,
                                   .saves = p->training && u->program == PROGRAM_FORWARD,
                                   .once = p->once,
                                   .training = p->training,
                                   .plugins = p->policy && !p->training && !part ? p->policy->plugins : NULL},
                            .c = *c,
                            .contraction = u->contraction,
                            .repeats = u->repeats};
}

sol_status choose_kernel(struct plan *p, const struct loops *loops, struct memory *memory, int anchor,
                         const struct unit *u, const struct choice **out)
{
    struct request r;
    char key[33];
    make_request(p, &(struct cluster){.loops = loops, .memory = memory, .anchor = anchor}, u, &r);
    cluster_key(p, &r, u, key);
    struct choice *choice = map_get(p->known, key);
    if (!choice) {
        choice = NEW(p->arena, struct choice);
        choice->key = arena_strdup(p->arena, key);
        const struct size_point was = size_point_set((struct size_point){u->point, u->point});
        sol_status status = find_candidates(p, &r, choice);
        if (!status) status = choose(p, &r.sc, &r.c, u, choice);
        size_point_set(was);
        TRY(status);
        map_set(p->known, key, choice);
    }
    *out = choice;
    return SOL_OK;
}

static struct cluster cluster_of(const struct unit *u)
{
    return (struct cluster){.loops = u->loops, .memory = u->memory, .anchor = u->anchor};
}

const char *choose_key(struct plan *p, const struct unit *u)
{
    const struct cluster c = cluster_of(u);
    struct request r;
    char key[33];
    make_request(p, &c, u, &r);
    cluster_key(p, &r, u, key);
    return arena_strdup(p->arena, key);
}

sol_status choose_prices(struct plan *p, const struct unit *u, struct size_point at, const struct candidate *only,
                         struct choice *out)
{
    const struct cluster c = cluster_of(u);
    struct request r;
    make_request(p, &c, u, &r);
    r.only = only;
    *out = (struct choice){0};
    const struct size_point was = size_point_set(at);
    const sol_status status = find_candidates(p, &r, out);
    size_point_set(was);
    return status;
}

static sol_status choose_unit(struct plan *p, int at)
{
    struct unit *u = p->units.at[at];
    if (!u->memory) unit_memory(p, u);
    if (u->kernel.source) return SOL_OK;
    if (!u->when) TRY(plan_versions(p, at));
    TRY(choose_kernel(p, u->loops, u->memory, u->anchor, u, &u->choice));
    u->kernel = u->choice->kernel;
    return SOL_OK;
}

/* Finishes the unit at position *at: its kernel and its operands. The units that pack operands are inserted ahead of it
 * and finished in the same way. *at follows the unit. */
static sol_status finish(struct plan *p, struct map *packs, int *at)
{
    struct unit *u = p->units.at[*at];
    int first = *at;
    if (u->opaque)
        TRY(opaque_kernel(p->arena, p->target, u->layer, &u->kernel));
    else
        TRY(choose_unit(p, *at));
    set_operands(p, packs, at, u);
    for (int k = first; k < *at; k++) {
        int place = k;
        TRY(finish(p, packs, &place));
        *at += place - k;
        k = place;
    }
    return SOL_OK;
}

struct place { /* of a unit in the new order */
    struct unit *u;
    int turn, at;
};

static int compare_places(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return x->turn != y->turn ? x->turn - y->turn : x->at - y->at;
}

/* Orders `prepare` so that each intermediate result is computed right before its first reader. A folded weight then
 * lives until it is packed, and all of them share the memory of the largest. A unit whose results have no reader here
 * keeps its place. */
static void order_prepare(struct plan *p)
{
    struct place *place = NEW_ARRAY(p->scratch, struct place, p->units.n + 1);
    int *turn = NEW_ARRAY(p->scratch, int, p->nallocations + 1); /* of a tensor's first reader */
    for (int i = 0; i < p->nallocations; i++) turn[i] = p->units.n;
    for (int i = p->units.n - 1; i >= 0; i--) {
        struct unit *u = p->units.at[i];
        place[i] = (struct place){u, p->units.n, i};
        if (u->dead || u->program != PROGRAM_PREPARE) continue;
        for (int k = 0; k < u->noperand; k++)
            if (u->written[k]) place[i].turn = MIN(place[i].turn, turn[plan_allocation(p, u->operand[k])->root->id]);
        if (place[i].turn == p->units.n) place[i].turn = i;
        for (int k = 0; k < u->noperand; k++) {
            int *reader = &turn[plan_allocation(p, u->operand[k])->root->id];
            if (!u->written[k]) *reader = MIN(*reader, place[i].turn);
        }
    }
    qsort(place, (size_t)p->units.n, sizeof *place, compare_places);
    for (int i = 0; i < p->units.n; i++) p->units.at[i] = place[i].u;
}

sol_status plan_choose(struct plan *p)
{
    struct map *packs = map_create(p->scratch);
    for (int i = 0; i < p->units.n; i++)
        if (!p->units.at[i]->dead) TRY(finish(p, packs, &i));
    order_prepare(p);
    return ctx_check(p->ctx);
}
