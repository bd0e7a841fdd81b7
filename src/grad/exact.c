/* Tensors that backward must not recompute because their values decide something. A gradient of a maximum asks which
 * elements equal it, and a network may compute a mask from `x == max(x)`. A recomputed x can differ from forward's in
 * the last bit, and then no element equals the maximum. So both sides of a comparison are saved, or are views of saved
 * tensors. What is compared with a constant, rounded or made an integer, is saved only if it can be exactly where the
 * result jumps, such as `x - max(x)` at 0 (origins.c). Elsewhere a last bit matters only for elements that happen to be
 * there. */
#include "grad/checkpoint.h"

#include <string.h>

enum { MOST_READS = 16 };
struct finder {
    struct checkpointing *k;
    const struct origins *origins;
    bool *seen; /* by tensor */
    VECTOR(struct sol_tensor *) open;
};

/* What an expression reads of floating-point tensors that are no constants. */
struct reads {
    const struct sol_layer *l;
    int n;
    int32_t node[MOST_READS];
    bool any; /* there are reads, perhaps of temporaries alone */
};

bool tensor_varies(const struct sol_tensor *t)
{
    const bool constant = t->role == TENSOR_CONST || (t->from && !t->from->nin);
    return dtype_def(t->dtype)->is_float && !constant;
}

static struct sol_tensor *read_tensor(const struct sol_layer *l, int32_t node)
{
    return remat_tensor(l, l->loops->ex.at[node].tensor);
}

static void see_read(void *user, int32_t node)
{
    struct reads *r = user;
    const struct ex *e = &r->l->loops->ex.at[node];
    if (e->kind != EX_READ) return;
    const struct loops_tensor *lt = &r->l->loops->tensors.at[e->tensor];
    const struct sol_tensor *t = read_tensor(r->l, node);
    if (!dtype_def(lt->dtype)->is_float || (t ? !tensor_varies(t) : lt->role != LOOPS_TEMP)) return;
    r->any = true;
    if (t && r->n < MOST_READS) r->node[r->n++] = node;
}

static void add_reads(struct reads *r, int32_t node)
{
    ex_walk(r->l->loops, node, see_read, r);
}

/* Can the values that are read be equal, or one of them a constant, by construction? */
static bool can_coincide(const struct finder *f, const struct reads *r)
{
    const struct loops *loops = r->l->loops;
    for (int i = 0; i < r->n; i++) {
        const struct sol_tensor *a = read_tensor(r->l, r->node[i]);
        if (origins_mixed(f->origins, a)) return true;
        for (int j = 0; j < i; j++) {
            const struct sol_tensor *b = read_tensor(r->l, r->node[j]);
            if (origins_shared(f->origins, a, b) && (a != b || !ex_equal(loops, r->node[i], r->node[j]))) return true;
        }
    }
    return false;
}

static void keep(struct finder *f, struct sol_tensor *t)
{
    if (f->seen[t->id]) return;
    f->seen[t->id] = true;
    PUSH(f->k->g->arena, f->open, t);
}

static void keep_reads(struct finder *f, const struct reads *r)
{
    for (int i = 0; i < r->n; i++) keep(f, read_tensor(r->l, r->node[i]));
}

/* The two sides of a comparison. False: the node is another one. */
static bool compares(const struct loops *loops, int32_t node, int32_t *out_a, int32_t *out_b)
{
    const struct ex *e = &loops->ex.at[node];
    if (e->kind == EX_CALL && math_at(e->op)->arity == 2 && !strcmp(math_at(e->op)->type, "bool")) {
        *out_a = e->a;
        *out_b = loops->ex.at[e->a].next;
        return true;
    }
    *out_a = e->a;
    *out_b = e->b;
    return e->kind == EX_CMP;
}

/* Does a function jump, as a function of this argument? Then its derivative is 0, or it rounds. */
static bool jumps(const struct math_def *m, int arg)
{
    const char *part = m->derivative;
    if (!part || strstr(part, "floordiv(") || strstr(part, "trunc(")) return true;
    if (m->expr && strstr(m->expr, "trunc(")) return true;
    while (arg-- && part) part = strchr(part + 1, ';');
    if (!part) return false;
    part += strspn(part, "; ");
    return *part == '0' && (!part[1] || part[1] == ';');
}

static void find_decisions(struct finder *f, const struct sol_layer *l)
{
    int32_t side[2];
    for (int32_t node = 1; node < l->loops->ex.n; node++) {
        const struct ex *e = &l->loops->ex.at[node];
        if (compares(l->loops, node, &side[0], &side[1])) {
            struct reads a = {.l = l}, b = {.l = l}, both = {.l = l};
            add_reads(&a, side[0]);
            add_reads(&b, side[1]);
            add_reads(&both, side[0]);
            add_reads(&both, side[1]);
            if ((a.any && b.any) || can_coincide(f, &both)) keep_reads(f, &both);
        } else if (e->kind == EX_CALL) {
            struct reads r = {.l = l};
            int number = 0;
            for (int32_t arg = e->a; arg; arg = l->loops->ex.at[arg].next)
                if (jumps(math_at(e->op), number++)) add_reads(&r, arg);
            if (can_coincide(f, &r)) keep_reads(f, &r);
        }
    }
}

/* Floating-point values that become integers: conversions, positions. */
static void find_integers(struct finder *f, const struct sol_layer *l)
{
    for (int i = 0; i < l->loops->stmts.n; i++) {
        const struct loops_stmt *s = &l->loops->stmts.at[i];
        struct reads r = {.l = l};
        bool integer = false;
        for (int o = 0; o < s->nout; o++) integer |= !dtype_def(l->loops->tensors.at[s->out[o]].dtype)->is_float;
        if (!integer) continue;
        add_reads(&r, s->value);
        if (can_coincide(f, &r)) keep_reads(f, &r);
    }
}

/* A tensor of forward is saved. What is not, because it is a view or because backward computes it, is as exact as the
 * tensors that it is computed from. */
static void make_exact(struct finder *f, struct sol_tensor *t)
{
    struct fact *fact = t->id < f->k->ntensors ? f->k->fact[t->id] : NULL;
    if (fact && !fact->view) fact->exact = true;
    if (!t->from || (fact ? !fact->view : !layer_is_elementwise(t->from))) return;
    for (int i = 0; i < t->from->nin; i++)
        if (t->from->in[i] && tensor_varies(t->from->in[i])) keep(f, t->from->in[i]);
}

void checkpoint_find_exact(struct checkpointing *k)
{
    struct sol_graph *g = k->g;
    struct finder f = {.k = k, .origins = origins_find(g), .seen = NEW_ARRAY(g->arena, bool, g->ntensors + 1)};
    for (const struct sol_layer *l = g->first; l; l = l->next) {
        if (l->def->flags & LAYER_OPAQUE) continue;
        find_decisions(&f, l);
        find_integers(&f, l);
    }
    while (f.open.n) make_exact(&f, f.open.at[--f.open.n]);
}
