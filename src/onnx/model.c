/* Translates a file into a graph: resolves names, translates nodes in order, inlines functions, and selects branches.
 * If a node cannot be translated, the reader records it and continues, so that one error reports all such nodes; nodes
 * that depend on it are skipped. Invalid content stops the reader immediately. */
#include <string.h>

#include "onnx/reader.h"

#define MOST_NODES (1 << 18)
#define MOST_LISTED 40

struct value value_missing;

/* -- problems */

void problem_add(struct reader *r, const char *what, const char *first)
{
    const char *reason = sol_error(r->ctx);
    LOG(r->ctx, LOG_DEBUG, "onnx", "rejected: %s: %s: %s", first, what, reason);
    int64_t a, b;
    if (!r->unequal.set && sol_error_sizes(r->ctx, &a, &b)) {
        r->unequal.set = true;
        r->unequal.a = a, r->unequal.b = b;
        r->unequal.why = arena_printf(r->arena, "%s, %s: %s", first, what, reason);
    }
    for (int i = 0; i < r->problems.n; i++) {
        struct problem *p = r->problems.at[i];
        if (strcmp(p->what, what) || strcmp(p->reason, reason)) continue;
        p->count++;
        return;
    }
    struct problem *p = NEW(r->arena, struct problem);
    *p = (struct problem){arena_strdup(r->arena, what), arena_strdup(r->arena, reason), arena_strdup(r->arena, first),
                          1};
    PUSH(r->arena, r->problems, p);
}

static sol_status problems_report(struct reader *r)
{
    if (!r->problems.n) return SOL_OK;
    struct text t = text_new(r->arena);
    int64_t total = 0;
    for (int i = 0; i < r->problems.n; i++) total += r->problems.at[i]->count;
    text_put(&t, "cannot translate %lld part%s of the model:", (long long)total, total == 1 ? "" : "s");
    for (int i = 0; i < r->problems.n; i++) {
        const struct problem *p = r->problems.at[i];
        if (i == MOST_LISTED || t.n > 3500) {
            text_put(&t, "\n  and %d more kinds; SOL_LOG=INFO lists them all", r->problems.n - i);
            break;
        }
        text_put(&t, "\n  %.100s: %.300s (%s%.100s", p->what, p->reason, p->count > 1 ? "first: " : "", p->first);
        text_put(&t, p->count > 1 ? "; %d in all)" : ")", p->count);
    }
    TRY(ctx_check(r->ctx));
    return ctx_fail(r->ctx, SOL_ERR_UNSUPPORTED, "%s", t.at);
}

/* -- values */

struct value *scope_find(const struct scope *s, const char *name)
{
    for (; s; s = s->outer) {
        struct value *v = map_get(s->values, name);
        if (v) return v;
    }
    return NULL;
}

struct value *value_of_data(struct reader *r, const char *name, const struct data *d)
{
    struct value *v = NEW(r->arena, struct value);
    *v = (struct value){.name = name, .data = arena_memdup(r->arena, d, sizeof *d)};
    return v;
}

/* Weights are parameters. Scalars and small integers are constants, because they are often arguments that shapes and
 * passes need. */
static bool is_constant(const struct reader *r, const struct value *v)
{
    const struct data *d = v->data;
    const int how = r->options ? r->options->constants : 0;
    if (how == SOL_ONNX_TRAINED && v->initializer && dtype_def(d->dtype)->is_float && d->ndim) return false;
    if (how == 1) return true;
    if (!dtype_def(d->dtype)->is_float && d->elements <= 1 << 16) return true;
    return d->elements <= 8;
}

struct sol_io io_of(struct reader *r, const char *name, const struct sol_tensor *t)
{
    int ndim = sol_tensor_ndim(t);
    int64_t *shape = NEW_ARRAY(r->model->arena, int64_t, ndim + 1);
    for (int i = 0; i < ndim; i++) shape[i] = sol_tensor_size(t, i);
    return (struct sol_io){arena_strdup(r->model->arena, name), sol_tensor_dtype(t), ndim, shape};
}

static const char *unique_name(struct reader *r, const char *name)
{
    const char *unique = name;
    for (int i = 2; map_get(r->names, unique); i++) unique = arena_printf(r->arena, "%s.%d", name, i);
    map_set(r->names, unique, r);
    return unique;
}

sol_status value_tensor(struct reader *r, struct value *v, struct sol_tensor **out_t)
{
    *out_t = v->t;
    if (v->list)
        return ctx_fail(r->ctx, SOL_ERR_INVALID, "'%s' is a sequence, expected a tensor", v->name ? v->name : "");
    if (v->t || !v->data) return SOL_OK;
    const struct data *d = v->data;
    if (is_constant(r, v)) {
        TRY(sol_graph_const(r->graph, d->dtype, d->ndim, d->shape, d->at, &v->t));
        if (d->elements <= 1 << 16) map_set_int(r->cheap, (uintptr_t)v->t, r);
    } else {
        const char *name = unique_name(r, v->name ? v->name : "");
        TRY(sol_graph_param(r->graph, name, d->dtype, d->ndim, d->shape, &v->t));
        PUSH(r->model->arena, r->model->params, d->at);
    }
    if (v->initializer && dtype_def(d->dtype)->is_float)
        PUSH(r->model->arena, r->model->weights, io_of(r, v->name, v->t));
    map_set_int(r->leaves, (uintptr_t)v->t, r);
    *out_t = v->t;
    return SOL_OK;
}

sol_status scope_define(struct reader *r, struct scope *s, const char *name, struct value *v)
{
    if (map_get(s->values, name)) return ctx_fail(r->ctx, SOL_ERR_INVALID, "%s'%s' is made twice", s->place, name);
    map_set(s->values, name, v);
    return SOL_OK;
}

/* Initializers in the caller's memory. */
static sol_status add_given_weights(struct reader *r, struct scope *s)
{
    for (int i = 0; r->options && i < r->options->nweights; i++) {
        const struct sol_onnx_value *w = &r->options->weights[i];
        struct data d = {.dtype = w->dtype, .ndim = w->ndim, .at = w->data};
        if (w->ndim < 0 || w->ndim > SOL_MAX_DIMS)
            return ctx_fail(r->ctx, SOL_ERR_UNSUPPORTED, "initializer '%s': expected at most %d dimensions, got %d",
                            w->name, SOL_MAX_DIMS, w->ndim);
        memcpy(d.shape, w->shape, (size_t)w->ndim * sizeof *d.shape);
        if (shape_elements(r->ctx, d.ndim, d.shape, &d.elements))
            return ctx_where(r->ctx, SOL_ERR_INVALID, "initializer '%s': ", w->name);
        struct value *v = value_of_data(r, w->name, &d);
        v->initializer = true;
        TRY(scope_define(r, s, w->name, v));
    }
    return ctx_check(r->ctx);
}

static sol_status add_initializers(struct reader *r, struct scope *s, const Onnx__Graph *g)
{
    for (size_t i = 0; i < g->n_initializer; i++) {
        const Onnx__Tensor *m = g->initializer[i];
        const char *name = m->name ? m->name : "";
        if (!*name) return ctx_fail(r->ctx, SOL_ERR_INVALID, "%sinitializer %zu has no name", s->place, i);
        struct data d;
        sol_status status = data_read(r->ctx, r->arena, m, r->folder, &d);
        if (status && status != SOL_ERR_UNSUPPORTED)
            return ctx_where(r->ctx, status, "%sinitializer '%s': ", s->place, name);
        if (status) problem_add(r, "initializer", arena_printf(r->arena, "'%s'", name));
        struct value *v = value_of_data(r, name, &d);
        v->initializer = true;
        v->rejected = status != SOL_OK;
        TRY(scope_define(r, s, name, v));
    }
    if (g->n_sparse_initializer) {
        ctx_fail(r->ctx, SOL_ERR_UNSUPPORTED, "sparse tensors are not supported");
        problem_add(r, "sparse initializer", "graph");
        for (size_t i = 0; i < g->n_sparse_initializer; i++) {
            const Onnx__Tensor *m = g->sparse_initializer[i]->values;
            struct value *v = NEW(r->arena, struct value);
            v->rejected = true;
            if (m && m->name) TRY(scope_define(r, s, m->name, v));
        }
    }
    return ctx_check(r->ctx);
}

/* -- outputs */

static void compare_output(struct reader *r, const Onnx__ValueInfo *m, const struct sol_tensor *t)
{
    const Onnx__TensorType *type = m->type ? m->type->tensor_type : NULL;
    if (!type || !type->shape) return;
    bool same = (int)type->shape->n_dim == sol_tensor_ndim(t);
    for (size_t i = 0; same && i < type->shape->n_dim; i++)
        same = !type->shape->dim[i]->has_dim_value || sol_size_varies(sol_tensor_size(t, (int)i)) ||
               type->shape->dim[i]->dim_value == sol_tensor_size(t, (int)i);
    if (!same) LOG(r->ctx, LOG_WARN, "onnx", "output '%s' has another shape than the model says", m->name);
}

static sol_status add_outputs(struct reader *r, const struct scope *s, const Onnx__Graph *g)
{
    struct map *seen = map_create(r->arena);
    if (!g->n_output) return ctx_fail(r->ctx, SOL_ERR_INVALID, "the model has no outputs");
    for (size_t i = 0; i < g->n_output; i++) {
        const Onnx__ValueInfo *m = g->output[i];
        struct value *v = m->name && *m->name ? scope_find(s, m->name) : NULL;
        if (!v) return ctx_fail(r->ctx, SOL_ERR_INVALID, "output '%s': nothing makes it", m->name ? m->name : "");
        if (map_get(seen, m->name)) return ctx_fail(r->ctx, SOL_ERR_INVALID, "there are two outputs '%s'", m->name);
        map_set(seen, m->name, r);
        if (v->rejected) continue;
        struct sol_tensor *t;
        enum sol_dtype dtype;
        if (v->list)
            return ctx_fail(r->ctx, SOL_ERR_UNSUPPORTED, "output '%s': a sequence is not supported as an output",
                            m->name);
        TRY(value_tensor(r, v, &t));
        if (m->type && m->type->tensor_type && m->type->tensor_type->elem_type) {
            TRY(dtype_read(r->ctx, m->type->tensor_type->elem_type, "output", &dtype));
            if (dtype != sol_tensor_dtype(t))
                return ctx_fail(r->ctx, SOL_ERR_INVALID, "output '%s': the model says type %s, but it is %s", m->name,
                                dtype_name(dtype), dtype_name(sol_tensor_dtype(t)));
        }
        compare_output(r, m, t);
        if (map_get_int(r->leaves, (uintptr_t)t))
            TRY(sol_graph_layer(
                r->graph, &(struct sol_new_layer){.kind = "Identity", .nin = 1, .in = &t, .name = m->name}, 1, &t));
        TRY(sol_graph_output(r->graph, m->name, t));
        PUSH(r->model->arena, r->model->outputs, io_of(r, m->name, t));
    }
    return SOL_OK;
}

/* -- nodes */

static const char *text_or_empty(const char *s)
{
    return s ? s : "";
}

static const char *domain_of(const char *domain)
{
    if (!domain || !strcmp(domain, "ai.onnx")) return "";
    return domain;
}

static int64_t opset_version(const struct opset *list, const char *domain)
{
    for (; list && list->domain; list++)
        if (!strcmp(list->domain, domain)) return list->version;
    return 0;
}

static sol_status read_opsets(struct reader *r, size_t n, Onnx__OperatorSet *const *from, const struct opset **out)
{
    struct opset *list = NEW_ARRAY(r->arena, struct opset, n + 1);
    for (size_t i = 0; i < n; i++) {
        const char *domain = domain_of(from[i]->domain);
        int64_t other = opset_version(list, domain);
        if (other && other != from[i]->version)
            return ctx_fail(r->ctx, SOL_ERR_INVALID, "two opsets of domain '%s': %lld and %lld", domain,
                            (long long)other, (long long)from[i]->version);
        list[i] = (struct opset){domain, from[i]->version};
    }
    *out = list;
    return SOL_OK;
}

static void count_operator(struct reader *r, const char *domain, const char *name)
{
    const char *key = *domain ? arena_printf(r->arena, "%s.%s", domain, name) : name;
    struct operator_count *c = map_get(r->counts, key);
    if (!c) {
        c = NEW(r->model->arena, struct operator_count);
        c->name = arena_strdup(r->model->arena, key);
        map_set(r->counts, key, c);
        PUSH(r->model->arena, r->model->operators, c);
    }
    c->n++;
}

static sol_status find_inputs(struct reader *r, const struct scope *s, struct node *n)
{
    const Onnx__Node *m = n->message;
    n->nin = (int)MIN(m->n_input, (size_t)1 << 20);
    while (n->nin && !*m->input[n->nin - 1]) n->nin--;
    n->in = NEW_ARRAY(r->arena, struct value *, n->nin);
    for (int i = 0; i < n->nin; i++) {
        if (!*m->input[i]) continue;
        struct value *v = scope_find(s, m->input[i]);
        if (!v)
            return ctx_fail(r->ctx, SOL_ERR_INVALID, "it reads '%s', which no input and no node before it makes",
                            m->input[i]);
        n->in[i] = v == &value_missing ? NULL : v;
    }
    while (n->nin && !n->in[n->nin - 1]) n->nin--;
    return SOL_OK;
}

static const Onnx__Function *find_function(struct reader *r, const Onnx__Node *m)
{
    return map_get(r->functions, arena_printf(r->arena, "%s\n%s\n%s", domain_of(m->domain), text_or_empty(m->op_type),
                                              text_or_empty(m->overload)));
}

static sol_status open_function(struct reader *r, struct scope *s, struct node *n, const Onnx__Function *f)
{
    for (const struct scope *up = s; up; up = up->call_scope)
        if (up->function == f)
            return ctx_fail(r->ctx, SOL_ERR_INVALID, "function '%s' calls itself", text_or_empty(f->name));
    if (s->depth >= ONNX_DEPTH)
        return ctx_fail(r->ctx, SOL_ERR_UNSUPPORTED, "more than %d functions inside each other", ONNX_DEPTH);
    if ((size_t)n->nin > f->n_input || (size_t)n->nout > f->n_output)
        return ctx_fail(r->ctx, SOL_ERR_INVALID, "function '%s' has %zu inputs and %zu outputs, the node %d and %d",
                        text_or_empty(f->name), f->n_input, f->n_output, n->nin, n->nout);
    struct scope body = {.values = map_create(r->arena),
                         .opsets = s->opsets,
                         .call = n->message,
                         .call_scope = s,
                         .function = f,
                         .place = arena_printf(r->arena, "%sin function '%s': ", s->place, text_or_empty(f->name)),
                         .depth = s->depth + 1};
    if (f->n_opset_import) TRY(read_opsets(r, f->n_opset_import, f->opset_import, &body.opsets));
    for (size_t i = 0; i < f->n_input; i++)
        TRY(scope_define(r, &body, f->input[i], (int)i < n->nin && n->in[i] ? n->in[i] : &value_missing));
    TRY(translate_nodes(r, &body, f->n_node, f->node));
    for (int i = 0; i < n->nout; i++) {
        if (!nd_wants(n, i)) continue;
        const struct value *v = scope_find(&body, f->output[i]);
        if (!v)
            return ctx_fail(r->ctx, SOL_ERR_INVALID, "function '%s' does not make its output '%s'", f->name,
                            f->output[i]);
        n->out[i] = *v;
    }
    return SOL_OK;
}

sol_status translate_body(struct reader *r, const struct scope *s, const Onnx__Graph *g, struct value *const *inputs,
                          struct value **out_values)
{
    if (s->depth >= ONNX_DEPTH)
        return ctx_fail(r->ctx, SOL_ERR_INVALID, "more than %d graphs inside each other", ONNX_DEPTH);
    struct scope body = *s;
    body.values = map_create(r->arena);
    body.outer = s;
    body.depth++;
    for (size_t i = 0; i < g->n_input; i++) TRY(scope_define(r, &body, text_or_empty(g->input[i]->name), inputs[i]));
    TRY(add_initializers(r, &body, g));
    TRY(translate_nodes(r, &body, g->n_node, g->node));
    for (size_t i = 0; i < g->n_output; i++) {
        const char *name = text_or_empty(g->output[i]->name);
        out_values[i] = scope_find(&body, name);
        if (!out_values[i])
            return ctx_fail(r->ctx, SOL_ERR_INVALID, "graph '%s' does not make '%s'", text_or_empty(g->name), name);
    }
    return SOL_OK;
}

/* Checks for unused attributes and missing outputs. */
static sol_status check_rest(struct node *n)
{
    for (size_t i = 0; i < n->message->n_attribute && !n->status; i++)
        if (!n->seen[i]) nd_reject(n, "attribute '%s' is not supported", text_or_empty(n->message->attribute[i]->name));
    for (int i = 0; i < n->nout && !n->status; i++)
        if (nd_wants(n, i) && !n->out[i].t && !n->out[i].data && !n->out[i].rejected && !n->out[i].list)
            nd_reject(n, "output %d is not supported", i);
    return n->status;
}

static sol_status translate_row(struct node *n)
{
    if (n->nin < n->op->least) return nd_invalid(n, "expected at least %d inputs, got %d", n->op->least, n->nin);
    if (n->op->most >= 0 && n->nin > n->op->most)
        return nd_reject(n, "expected at most %d inputs, got %d", n->op->most, n->nin);
    for (int i = 0; i < n->op->least; i++)
        if (!n->in[i]) return nd_invalid(n, "input %d is missing", i);
    sol_status status = n->op->translate(n);
    if (!n->status) n->status = status;
    return n->status ? n->status : check_rest(n);
}

static sol_status translate(struct node *n, const char **out_what)
{
    struct reader *r = n->r;
    const char *domain = domain_of(n->message->domain), *name = text_or_empty(n->message->op_type), *reason;
    *out_what = *domain ? arena_printf(r->arena, "%s.%s", domain, name) : name;
    TRY(find_inputs(r, n->scope, n));
    const Onnx__Function *f = find_function(r, n->message);
    if (f) return open_function(r, n->scope, n, f);
    n->version = opset_version(n->scope->opsets, domain);
    *out_what = arena_printf(r->arena, "%s (opset %lld)", *out_what, (long long)n->version);
    count_operator(r, domain, name);
    if (!n->version && !*domain) return ctx_fail(r->ctx, SOL_ERR_INVALID, "the model does not say which opset it uses");
    n->op = op_find(domain, name, n->version, &reason);
    if (!n->op) n->op = op_outside(r->ctx, r->arena, domain, name);
    if (!n->op) return ctx_fail(r->ctx, SOL_ERR_UNSUPPORTED, "%s", reason);
    for (int i = 0; i < n->nin; i++) {
        if (!n->in[i] || !n->in[i]->rejected) continue;
        for (int k = 0; k < n->nout; k++) n->out[k].rejected = true;
        return SOL_OK;
    }
    return translate_row(n);
}

static const char *label_of(struct reader *r, const Onnx__Node *m)
{
    if (m->name && *m->name) return m->name;
    for (size_t i = 0; i < m->n_output; i++)
        if (*m->output[i]) return m->output[i];
    return arena_strdup(r->arena, text_or_empty(m->op_type));
}

/* Notes the node of the model's own graph that is, or contains, the node of the last error. */
static void note_rejected(struct reader *r, const char *what)
{
    if (!r->options || !r->options->on_rejected) return;
    const struct rejected_node made = {r->top, arena_printf(r->arena, "%s: %s", what, sol_error(r->ctx))};
    if (!r->rejected.n || r->rejected.at[r->rejected.n - 1].node != r->top) PUSH(r->arena, r->rejected, made);
}

static sol_status translate_node(struct reader *r, struct scope *s, size_t index, const Onnx__Node *m)
{
    struct node n = {.r = r, .scope = s, .message = m, .label = label_of(r, m)};
    const char *what;
    n.nout = (int)MIN(m->n_output, (size_t)1 << 20);
    n.out = NEW_ARRAY(r->arena, struct value, n.nout + 1); /* rows may look at the first */
    n.seen = NEW_ARRAY(r->arena, bool, m->n_attribute);
    n.where = arena_printf(r->arena, "%snode %zu", s->place, index);
    TRY(ctx_check(r->ctx));
    if (!s->outer && !s->call) r->top = (int)index;
    sol_status status = translate(&n, &what);
    if (status == SOL_ERR_UNSUPPORTED || status == SOL_ERR_INVALID) note_rejected(r, what);
    if (status == SOL_ERR_UNSUPPORTED) {
        problem_add(r, what, arena_printf(r->arena, "%s '%.80s'", n.where, n.label));
        for (int i = 0; i < n.nout; i++) n.out[i] = (struct value){.rejected = true};
    } else if (status) {
        if (!r->located) ctx_where(r->ctx, status, "%s '%.80s', %.80s: ", n.where, n.label, what);
        r->located = true; /* the innermost node, not each function around it */
        return status;
    }
    for (int i = 0; i < n.nout; i++) {
        if (!*m->output[i]) continue;
        n.out[i].name = m->output[i];
        TRY(scope_define(r, s, m->output[i], &n.out[i]));
    }
    return SOL_OK;
}

sol_status translate_nodes(struct reader *r, struct scope *s, size_t n, Onnx__Node *const *nodes)
{
    for (size_t i = 0; i < n; i++) {
        if (r->nodes++ >= MOST_NODES)
            return ctx_fail(r->ctx, SOL_ERR_UNSUPPORTED,
                            "the model has more than %d nodes once its functions are opened", MOST_NODES);
        TRY(translate_node(r, s, i, nodes[i]));
    }
    return SOL_OK;
}

/* -- the whole model */

static sol_status read_head(struct reader *r, struct scope *top)
{
    const Onnx__Model *m = r->file;
    if (!m->graph)
        return ctx_fail(r->ctx, SOL_ERR_INVALID, "it contains no graph: it is damaged, or not an ONNX model");
    TRY(read_opsets(r, m->n_opset_import, m->opset_import, &top->opsets));
    int64_t version = opset_version(top->opsets, "");
    bool other = m->n_opset_import && !version; /* only operators of other domains */
    if (!other && (version < ONNX_OLDEST || version > ONNX_NEWEST))
        return ctx_fail(r->ctx, SOL_ERR_UNSUPPORTED, "expected an opset from %d to %d, got %lld", ONNX_OLDEST,
                        ONNX_NEWEST, (long long)version);
    r->model->about =
        arena_printf(r->model->arena, "%s%s%s%sopset %lld", text_or_empty(m->producer_name),
                     m->producer_version && *m->producer_version ? " " : "", text_or_empty(m->producer_version),
                     m->producer_name && *m->producer_name ? ", " : "", (long long)version);
    for (size_t i = 0; i < m->n_functions; i++) {
        Onnx__Function *f = m->functions[i];
        map_set(r->functions,
                arena_printf(r->arena, "%s\n%s\n%s", domain_of(f->domain), text_or_empty(f->name),
                             text_or_empty(f->overload)),
                f);
    }
    return ctx_check(r->ctx);
}

sol_status model_translate(struct reader *r)
{
    struct scope top = {.values = map_create(r->arena), .place = ""};
    TRY(read_head(r, &top));
    const Onnx__Graph *g = r->file->graph;
    TRY(sol_graph_create(r->ctx, text_or_empty(g->name), &r->graph));
    r->model->graph = r->graph;
    TRY(add_initializers(r, &top, g));
    TRY(add_given_weights(r, &top));
    TRY(scope_add_inputs(r, &top, g));
    TRY(translate_nodes(r, &top, g->n_node, g->node));
    TRY(problems_report(r));
    TRY(add_outputs(r, &top, g));
    return ctx_check(r->ctx);
}
