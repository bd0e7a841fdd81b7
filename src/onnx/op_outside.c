/* Operators of other domains that are layers from outside (sol/extend.h): Scale of the domain com.acme is the layer
 * com.acme::Scale. Inputs, outputs and attributes are the layer's, in their order and by their names. */
#include <string.h>

#include "onnx/ops.h"

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

static sol_status translate_outside(struct node *n)
{
    struct arena *a = n->r->arena;
    tensor *in = NEW_ARRAY(a, tensor, n->nin + 1), *out = NEW_ARRAY(a, tensor, n->nout + 1);
    const int nattr = (int)n->message->n_attribute;
    struct sol_attr *attrs = NEW_ARRAY(a, struct sol_attr, nattr + 1);
    for (int i = 0; i < n->nin; i++) in[i] = nd_in(n, i);
    for (int i = 0; i < nattr; i++) TRY(attribute(n, n->message->attribute[i]->name, &attrs[i]));
    nd_make_all(n, &(struct nd_layer){n->op->kind, n->nin, in, nattr, attrs}, n->nout, out);
    for (int i = 0; i < n->nout; i++) nd_give(n, i, out[i]);
    return n->status;
}

const struct op *op_outside(struct sol_ctx *ctx, struct arena *a, const char *domain, const char *name)
{
    const char *kind = arena_printf(a, "%s::%s", domain, name);
    if (!*domain || !sol_layer_known(ctx, kind)) return NULL;
    struct op *op = NEW(a, struct op);
    *op = (struct op){domain, name, 1, 0, 0, -1, translate_outside, kind};
    return op;
}
