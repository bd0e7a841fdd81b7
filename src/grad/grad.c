/* The gradient of a graph. Goes through the layers from last to first and requests the gradients of their wanted
 * inputs. Gradients of a tensor from several readers are added. */
#include "grad/grad.h"

#include <string.h>

#include "passes/passes.h"

struct grads {
    struct sol_graph *g;
    bool *active;          /* by tensor: a wanted tensor influences it, and it influences an output with a gradient */
    struct sol_tensor **d; /* by tensor: its gradient so far */
    int room;
};

static void grow(struct grads *s)
{
    if (s->g->ntensors <= s->room) return;
    int room = s->g->ntensors * 2;
    bool *active = NEW_ARRAY(s->g->arena, bool, room);
    struct sol_tensor **d = NEW_ARRAY(s->g->arena, struct sol_tensor *, room);
    if (s->room) {
        memcpy(active, s->active, (size_t)s->room * sizeof *active);
        memcpy(d, s->d, (size_t)s->room * sizeof *d);
    }
    *s = (struct grads){s->g, active, d, room};
}

static bool is_real(const struct sol_tensor *t)
{
    return dtype_def((enum sol_dtype)t->dtype)->is_float;
}

/* Goes forward from the wanted tensors, and backward from the outputs that have a gradient. */
static void find_active(struct grads *s, int nof, const int *of, int nwith, struct sol_tensor *const *with)
{
    struct sol_graph *g = s->g;
    bool *reaches = NEW_ARRAY(g->arena, bool, g->ntensors + 1);
    memset(s->active, 0, (size_t)s->room * sizeof *s->active);
    for (int i = 0; i < nwith; i++) s->active[with[i]->id] = true;
    for (struct sol_layer *l = g->first; l; l = l->next) {
        bool any = false;
        for (int i = 0; i < l->nin; i++) any |= l->in[i] && s->active[l->in[i]->id];
        any &= strcmp(l->def->name, "stop") != 0; /* detached */
        for (int o = 0; o < l->nout; o++) s->active[l->out[o]->id] = any && is_real(l->out[o]);
    }
    for (int i = 0; i < nof; i++) reaches[g->outputs.at[of[i]].t->id] = true;
    for (struct sol_layer *l = g->last; l; l = l->prev) {
        bool any = false;
        for (int o = 0; o < l->nout; o++) any |= reaches[l->out[o]->id] && s->active[l->out[o]->id];
        for (int i = 0; i < l->nin; i++)
            if (l->in[i] && any) reaches[l->in[i]->id] = true;
    }
    for (int i = 0; i < g->tensors.n; i++) s->active[g->tensors.at[i]->id] &= reaches[g->tensors.at[i]->id];
}

static sol_status plus(struct grads *s, struct sol_tensor *of, struct sol_tensor *more)
{
    grow(s);
    struct sol_tensor **sum = &s->d[of->id];
    if (!*sum || !more) {
        *sum = *sum ? *sum : more;
        return SOL_OK;
    }
    struct sol_layer *l;
    struct sol_tensor *in[] = {*sum, more};
    TRY(graph_add(s->g, NULL, &(struct new_layer){.kind = "add", .nin = 2, .in = in, .name = of->name}, &l));
    for (int d = 0; d < of->ndim; d++) l->out[0]->dim[d].purpose = of->dim[d].purpose;
    grow(s);
    s->d[of->id] = l->out[0];
    return SOL_OK;
}

static sol_status back_through(struct grads *s, struct sol_layer *l)
{
    struct arena *a = s->g->arena;
    bool *want = NEW_ARRAY(a, bool, l->nin + 1), any = false, given = false;
    struct sol_tensor **d = NEW_ARRAY(a, struct sol_tensor *, l->nout + 1);
    struct sol_tensor **in = NEW_ARRAY(a, struct sol_tensor *, l->nin + 1),
                      **out = NEW_ARRAY(a, struct sol_tensor *, l->nin + 1);
    for (int o = 0; o < l->nout; o++) given |= (d[o] = s->d[l->out[o]->id]) != NULL;
    for (int i = 0; i < l->nin; i++) {
        in[i] = l->in[i];
        any |= want[i] = in[i] && s->active[in[i]->id];
    }
    if (!any || !given) return SOL_OK;
    TRY(grad_has_rule(l) ? grad_rule(s->g, l, d, want, out) : adjoint_layer(s->g, l, d, want, out));
    for (int i = 0; i < l->nin; i++)
        if (want[i]) TRY(plus(s, in[i], out[i]));
    return SOL_OK;
}

/* Lists all layers without a gradient in one message. */
static sol_status check_layers(struct grads *s)
{
    struct text bad = text_new(s->g->arena);
    int n = 0;
    for (struct sol_layer *l = s->g->first; l; l = l->next) {
        const char *why;
        bool through = false, in = false;
        for (int o = 0; o < l->nout; o++) through |= s->active[l->out[o]->id];
        for (int i = 0; i < l->nin; i++) in |= l->in[i] && s->active[l->in[i]->id];
        if (!through || !in || grad_has_rule(l) || adjoint_known(l, &why)) continue;
        if (n++ < 20)
            text_put(&bad, "\n  %s '%s'%s%s: %s", l->def->name, l->name, *l->where ? " at " : "", l->where, why);
    }
    if (!n) return ctx_check(s->g->ctx);
    return ctx_fail(s->g->ctx, SOL_ERR_UNSUPPORTED, "%d layer%s no gradient:%s", n, n == 1 ? " has" : "s have", bad.at);
}

static sol_status check_arguments(struct sol_graph *g, int nof, const int *of, int nwith,
                                  struct sol_tensor *const *with)
{
    for (int i = 0; i < nof; i++) {
        if (of[i] < 0 || of[i] >= g->outputs.n)
            return ctx_fail(g->ctx, SOL_ERR_INVALID, "gradient: there is no output %d, the graph has %d", of[i],
                            g->outputs.n);
        if (!is_real(g->outputs.at[of[i]].t) || g->outputs.at[of[i]].backward)
            return ctx_fail(g->ctx, SOL_ERR_INVALID, "gradient: output %d, '%s', is not real", of[i],
                            g->outputs.at[of[i]].name);
    }
    for (int i = 0; i < nwith; i++) {
        if (!with[i] || with[i]->graph != g || (with[i]->role != TENSOR_INPUT && with[i]->role != TENSOR_PARAM))
            return ctx_fail(g->ctx, SOL_ERR_INVALID,
                            "gradient: tensor %d is neither an input nor a parameter of this graph", i);
        if (!is_real(with[i]))
            return ctx_fail(g->ctx, SOL_ERR_INVALID, "gradient: '%s' is of type %s, which has no gradient",
                            with[i]->name, dtype_def((enum sol_dtype)with[i]->dtype)->name);
    }
    return SOL_OK;
}

sol_status grad_zeros(struct sol_graph *g, const char *name, enum sol_dtype dtype, int ndim, int64_t *shape,
                      struct sol_tensor **out)
{
    struct sol_layer *l;
    struct opdef_attr fill[] = {{.name = "shape", .kind = ATTR_INT, .n = ndim, .ints = shape},
                                {.name = "to", .kind = ATTR_TEXT, .n = -1, .text = dtype_def(dtype)->name}};
    TRY(graph_add(g, NULL,
                  &(struct new_layer){.kind = "Fill", .nin = 0, .attrs = &(struct attrs){2, fill}, .name = name}, &l));
    *out = l->out[0];
    return SOL_OK;
}

static sol_status gradient_inputs(struct grads *s, int nof, const int *of)
{
    for (int i = 0; i < nof; i++) {
        const struct graph_output *o = &s->g->outputs.at[of[i]];
        int64_t shape[SOL_MAX_DIMS];
        for (int d = 0; d < o->t->ndim; d++) shape[d] = o->t->dim[d].size;
        struct sol_tensor *dy = graph_tensor(s->g, TENSOR_INPUT, arena_printf(s->g->arena, "d_%s", o->name),
                                             (enum sol_dtype)o->t->dtype, o->t->ndim, shape);
        dy->backward = true;
        for (int d = 0; d < o->t->ndim; d++) dy->dim[d].purpose = o->t->dim[d].purpose;
        TRY(plus(s, o->t, dy));
    }
    return SOL_OK;
}

sol_status sol_graph_influences(struct sol_graph *g, int nof, const int *of, int nwith, struct sol_tensor *const *with,
                                unsigned char *out)
{
    struct grads s = {.g = g};
    TRY(check_arguments(g, nof, of, nwith, with));
    grow(&s);
    TRY(ctx_check(g->ctx));
    for (int i = 0; i < nof; i++) {
        find_active(&s, 1, &of[i], nwith, with);
        for (int k = 0; k < nwith; k++) out[i * nwith + k] = s.active[with[k]->id];
    }
    return ctx_check(g->ctx);
}

sol_status sol_graph_differentiate(struct sol_graph *g, int nof, const int *of, int nwith,
                                   struct sol_tensor *const *with, int *out_reached)
{
    struct grads s = {.g = g};
    TRY(check_arguments(g, nof, of, nwith, with));
    for (const struct sol_layer *l = g->first; l; l = l->next)
        if (layer_sets(l) >= 0)
            return ctx_fail(g->ctx, SOL_ERR_UNSUPPORTED,
                            "layer '%s' (%s)%s%s sets a size while the network runs, which works in inference only",
                            l->name, l->def->name, *l->where ? " at " : "", l->where);
    TRY(softmax_join(g));
    grow(&s);
    TRY(ctx_check(g->ctx));
    find_active(&s, nof, of, nwith, with);
    TRY(check_layers(&s));
    TRY(attention_join(g, s.active));
    grow(&s);
    find_active(&s, nof, of, nwith, with);
    TRY(grad_replace_layers(g, s.active));
    grow(&s);
    find_active(&s, nof, of, nwith, with);
    TRY(gradient_inputs(&s, nof, of));
    for (struct sol_layer *l = g->last, *prev; l; l = prev) {
        prev = l->prev;
        TRY(back_through(&s, l));
        TRY(ctx_check(g->ctx));
    }
    for (int i = 0; i < nwith; i++) {
        struct sol_tensor *d = s.d[with[i]->id];
        out_reached[i] = s.active[with[i]->id];
        if (!out_reached[i]) continue;
        int64_t *shape = NEW_ARRAY(g->arena, int64_t, with[i]->ndim + 1);
        for (int k = 0; k < with[i]->ndim; k++) shape[k] = with[i]->dim[k].size;
        if (!d) /* it influences the result, but the derivative is 0 everywhere, as through round() */
            TRY(grad_zeros(g, with[i]->name, (enum sol_dtype)with[i]->dtype, with[i]->ndim, shape, &d));
        graph_output(g, arena_printf(g->arena, "d_%s", with[i]->name), d);
        g->outputs.at[g->outputs.n - 1].backward = true;
    }
    return ctx_check(g->ctx);
}
