/* Operators from outside. A hook (sol_onnx_register) translates a node; without one, Scale of the domain com.acme is
 * the registered layer com.acme::Scale, whose inputs, outputs and attributes are the node's, in their order and by
 * their names. */
#include <string.h>

#include "base/registry.h"
#include "onnx/ops.h"

/* -- hooks. They belong to a context and live as long as it does. */

struct hook {
    const char *domain, *name;
    sol_onnx_hook *run;
    void *user;
};
struct hooks {
    struct registry base;
    VECTOR(struct hook) all;
};

static void *make_hooks(struct sol_ctx *ctx)
{
    return registry_make(ctx, sizeof(struct hooks));
}

static struct hooks *hooks_of(struct sol_ctx *ctx)
{
    static const struct ctx_part kind = {.make = make_hooks, .destroy = registry_destroy};
    return ctx_part(ctx, &kind);
}

/* The caller holds the lock. NULL: there is none. */
static struct hook *hook_at(struct hooks *h, const char *domain, const char *name)
{
    for (int i = 0; i < h->all.n; i++)
        if (!strcmp(h->all.at[i].name, name) && !strcmp(h->all.at[i].domain, domain)) return &h->all.at[i];
    return NULL;
}

/* A copy; `run` is NULL if there is none. */
static struct hook hook_find(struct sol_ctx *ctx, const char *domain, const char *name)
{
    struct hooks *h = hooks_of(ctx);
    struct hook found = {0};
    if (!h) return found;
    pthread_mutex_lock(&h->base.lock);
    const struct hook *at = hook_at(h, domain, name);
    if (at) found = *at;
    pthread_mutex_unlock(&h->base.lock);
    return found;
}

sol_status sol_onnx_register(struct sol_ctx *ctx, const char *domain, const char *op, sol_onnx_hook *hook, void *user)
{
    const char *reason;
    if (!domain || !op || !*op || !hook)
        return ctx_fail(ctx, SOL_ERR_INVALID, "sol_onnx_register: expected a domain, an operator and a function");
    for (int version = 1; !*domain && version <= ONNX_NEWEST; version++)
        if (op_find(domain, op, version, &reason))
            return ctx_fail(ctx, SOL_ERR_INVALID, "operator %s: SOL translates this operator itself", op);
    struct hooks *h = hooks_of(ctx);
    if (!h) return ctx_fail(ctx, SOL_ERR_NOMEM, "operator %s: no memory", op);
    pthread_mutex_lock(&h->base.lock);
    struct hook *at = hook_at(h, domain, op);
    if (at) {
        at->run = hook;
        at->user = user;
    } else {
        struct arena *a = h->base.arena;
        PUSH(a, h->all, ((struct hook){arena_strdup(a, domain), arena_strdup(a, op), hook, user}));
    }
    pthread_mutex_unlock(&h->base.lock);
    return ctx_check(ctx);
}

/* -- attributes */

static sol_status wrong_attribute(struct node *n, const char *name)
{
    return nd_reject(n, "attribute '%s': a layer from outside has numbers, lists of numbers and texts", name);
}

static sol_status attribute(struct node *n, const char *name, struct sol_attr *out)
{
    struct arena *a = n->r->arena;
    const Onnx__Attribute *m = NULL;
    for (size_t i = 0; i < n->message->n_attribute && !m; i++)
        if (!strcmp(n->message->attribute[i]->name, name)) m = n->message->attribute[i];
    *out = (struct sol_attr){.name = name, .kind = SOL_ATTR_INT, .n = -1};
    double *reals = NULL;
    int64_t *ints = NULL;
    switch (m->type) {
    case ATTR_I:
        ints = NEW_ARRAY(a, int64_t, 1);
        *ints = attr_int(n, name, 0);
        break;
    case ATTR_F:
        reals = NEW_ARRAY(a, double, 1);
        *reals = attr_real(n, name, 0);
        break;
    case ATTR_S:
        out->kind = SOL_ATTR_TEXT;
        out->text = attr_text(n, name, "");
        return n->status;
    case ATTR_INTS:
        ints = NEW_ARRAY(a, int64_t, m->n_ints + 1);
        out->n = attr_ints(n, name, (int)m->n_ints, ints);
        break;
    case ATTR_FLOATS:
        reals = NEW_ARRAY(a, double, m->n_floats + 1);
        out->n = (int)m->n_floats;
        for (size_t i = 0; i < m->n_floats; i++) reals[i] = m->floats[i];
        attr_skip(n, name);
        break;
    default: return wrong_attribute(n, name);
    }
    if (reals) out->kind = SOL_ATTR_REAL;
    out->ints = ints;
    out->reals = reals;
    return n->status;
}

/* -- nodes */

struct operands {
    tensor *in, *out;
    struct sol_attr *attrs;
    int nattr;
};

static sol_status operands_of(struct node *n, struct operands *o)
{
    struct arena *a = n->r->arena;
    o->in = NEW_ARRAY(a, tensor, n->nin + 1);
    o->out = NEW_ARRAY(a, tensor, n->nout + 1);
    o->nattr = (int)n->message->n_attribute;
    o->attrs = NEW_ARRAY(a, struct sol_attr, o->nattr + 1);
    for (int i = 0; i < n->nin; i++) o->in[i] = nd_in(n, i);
    for (int i = 0; i < o->nattr; i++) TRY(attribute(n, n->message->attribute[i]->name, &o->attrs[i]));
    return n->status;
}

static void give_all(struct node *n, tensor const *out)
{
    for (int i = 0; i < n->nout; i++)
        if (out[i]) nd_give(n, i, out[i]);
}

static sol_status translate_layer(struct node *n)
{
    struct operands o;
    TRY(operands_of(n, &o));
    nd_make_all(n, &(struct nd_layer){n->op->kind, n->nin, o.in, o.nattr, o.attrs}, n->nout, o.out);
    give_all(n, o.out);
    return n->status;
}

static sol_status translate_hook(struct node *n)
{
    struct operands o;
    const struct hook h = hook_find(n->r->ctx, n->op->domain, n->op->name);
    TRY(operands_of(n, &o));
    const struct sol_onnx_node node = {.domain = h.domain,
                                       .op = h.name,
                                       .name = n->label,
                                       .where = n->where,
                                       .nin = n->nin,
                                       .nout = n->nout,
                                       .nattr = o.nattr,
                                       .in = o.in,
                                       .attrs = o.attrs};
    TRY(h.run(h.user, n->r->graph, &node, o.out));
    nd_made(n, n->nin, o.in, n->nout, o.out);
    give_all(n, o.out);
    return n->status;
}

const struct op *op_outside(struct sol_ctx *ctx, struct arena *a, const char *domain, const char *name)
{
    const char *kind = arena_printf(a, "%s::%s", domain, name);
    const struct hook h = hook_find(ctx, domain, name);
    if (!h.run && (!*domain || !sol_layer_known(ctx, kind))) return NULL;
    struct op *op = NEW(a, struct op);
    *op = h.run ? (struct op){h.domain, h.name, 1, 0, 0, -1, translate_hook, NULL}
                : (struct op){domain, name, 1, 0, 0, -1, translate_layer, kind};
    return op;
}
