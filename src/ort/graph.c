/* Reads an OrtGraph: its nodes as messages of an ONNX file, and what is known of its values. Some of the nodes can then
 * be written as a model in memory. Initializers are not copied into it: the reader gets their addresses. */
#include <string.h>

#include "ort/ort.h"

#define CALL(name, ...) TRY(provider_check(p, p->api->name(__VA_ARGS__)))

/* -- values */

static sol_status read_shape(const struct provider *p, struct arena *a, const struct OrtTensorInfo *info,
                             struct ort_value *v)
{
    size_t n;
    CALL(GetTensorElementType, info, &v->type);
    CALL(GetDimensionsCount, info, &n);
    v->known_rank = p->api->TensorTypeAndShape_HasShape(info);
    v->ndim = (int)n;
    int64_t *shape = NEW_ARRAY(a, int64_t, n + 1);
    const char **symbols = NEW_ARRAY(a, const char *, n + 1);
    CALL(GetDimensions, info, shape, n);
    CALL(GetSymbolicDimensions, info, symbols, n);
    for (size_t i = 0; i < n; i++) symbols[i] = arena_strdup(a, symbols[i] ? symbols[i] : "");
    v->shape = shape;
    v->symbols = symbols;
    return SOL_OK;
}

static sol_status read_initializer(const struct provider *p, const struct OrtValueInfo *from, struct ort_value *v)
{
    const struct OrtValue *value = NULL;
    enum sol_dtype dtype;
    bool constant;
    CALL(ValueInfo_IsConstantInitializer, from, &constant);
    if (!constant || dtype_read(p->ctx, v->type, v->name, &dtype))
        return SOL_OK; /* of another type: no node takes it */
    CALL(ValueInfo_GetInitializerValue, from, &value);
    if (value) CALL(GetTensorData, value, &v->data);
    return SOL_OK;
}

static sol_status read_value(const struct provider *p, struct ort_graph *g, const struct OrtValueInfo *from,
                             struct ort_value **out)
{
    const char *name = NULL;
    const struct OrtTypeInfo *type;
    const struct OrtTensorInfo *tensor = NULL;
    int kind;
    *out = NULL;
    if (!from) return SOL_OK; /* an optional one that is missing */
    CALL(GetValueInfoName, from, &name);
    if (!name || !*name) return SOL_OK;
    *out = map_get(g->values, name);
    if (*out) return SOL_OK;
    struct ort_value *v = *out = NEW(g->arena, struct ort_value);
    v->name = arena_strdup(g->arena, name);
    v->producer = -1;
    map_set(g->values, name, v);
    CALL(GetValueInfoTypeInfo, from, &type);
    CALL(GetOnnxTypeFromTypeInfo, type, &kind);
    if (kind == ONNX_TYPE_TENSOR) CALL(CastTypeInfoToTensorInfo, type, &tensor);
    v->tensor = tensor != NULL;
    if (!tensor) return SOL_OK;
    TRY(read_shape(p, g->arena, tensor, v));
    return read_initializer(p, from, v);
}

static sol_status read_values(const struct provider *p, struct ort_graph *g, size_t n, const struct OrtValueInfo **from,
                              struct ort_value **out)
{
    for (size_t i = 0; i < n; i++) TRY(read_value(p, g, from[i], &out[i]));
    return SOL_OK;
}

/* -- attributes */

static sol_status read_tensor(const struct provider *p, struct arena *a, const struct OrtOpAttr *from,
                              Onnx__Attribute *m)
{
    struct OrtValue *value = NULL;
    const int64_t *shape;
    const void *data = NULL;
    size_t ndim, bytes;
    int type;
    enum sol_dtype dtype;
    CALL(OpAttr_GetTensorAttributeAsOrtValue, from, &value);
    sol_status status =
        provider_check(p, p->api->GetTensorElementTypeAndShapeDataReference(value, &type, &shape, &ndim));
    if (!status) status = dtype_read(p->ctx, type, m->name, &dtype);
    if (!status) status = provider_check(p, p->api->GetTensorSizeInBytes(value, &bytes));
    if (!status) status = provider_check(p, p->api->GetTensorData(value, &data));
    if (!status) {
        m->t = NEW(a, Onnx__Tensor);
        onnx__tensor__init(m->t);
        m->t->has_data_type = m->t->has_raw_data = 1;
        m->t->data_type = type;
        m->t->n_dims = ndim;
        m->t->dims = arena_memdup(a, shape, ndim * sizeof *shape);
        m->t->raw_data = (ProtobufCBinaryData){bytes, arena_memdup(a, data, bytes)};
    }
    if (value) p->api->ReleaseValue(value);
    return status;
}

/* Strings lie behind each other, each with its terminator. */
static void split_strings(struct arena *a, char *at, size_t bytes, Onnx__Attribute *m)
{
    VECTOR(ProtobufCBinaryData) found = {0};
    for (size_t i = 0; i < bytes; i += strlen(at + i) + 1) {
        const ProtobufCBinaryData one = {strlen(at + i), (uint8_t *)at + i};
        PUSH(a, found, one);
    }
    m->n_strings = (size_t)found.n;
    m->strings = found.at;
}

static sol_status read_numbers(const struct provider *p, struct arena *a, const struct OrtOpAttr *from, int type,
                               Onnx__Attribute *m)
{
    size_t bytes = 0;
    struct OrtStatus *status = p->api->ReadOpAttr(from, type, NULL, 0, &bytes); /* fails, and says how many there are */
    if (status) p->api->ReleaseStatus(status);
    char *data = arena_alloc(a, bytes + 8);
    if (bytes) CALL(ReadOpAttr, from, type, data, bytes, &bytes);
    switch (type) {
    case ORT_ATTR_INT: m->has_i = 1, memcpy(&m->i, data, sizeof m->i); break;
    case ORT_ATTR_FLOAT: m->has_f = 1, memcpy(&m->f, data, sizeof m->f); break;
    case ORT_ATTR_INTS: m->n_ints = bytes / sizeof *m->ints, m->ints = (int64_t *)data; break;
    case ORT_ATTR_FLOATS: m->n_floats = bytes / sizeof *m->floats, m->floats = (float *)data; break;
    case ORT_ATTR_STRING: m->has_s = 1, m->s = (ProtobufCBinaryData){strnlen(data, bytes), (uint8_t *)data}; break;
    case ORT_ATTR_STRINGS: split_strings(a, data, bytes, m); break;
    default: return ctx_fail(p->ctx, SOL_ERR_UNSUPPORTED, "attribute '%s' has an unknown type", m->name);
    }
    return SOL_OK;
}

static sol_status read_attribute(const struct provider *p, struct arena *a, const struct OrtOpAttr *from,
                                 Onnx__Attribute **out)
{
    static const unsigned char numbers[] = {
        [ORT_ATTR_INT] = 2,    [ORT_ATTR_INTS] = 7,    [ORT_ATTR_FLOAT] = 1, [ORT_ATTR_FLOATS] = 6,
        [ORT_ATTR_STRING] = 3, [ORT_ATTR_STRINGS] = 8, [ORT_ATTR_TENSOR] = 4}; /* of a file */
    Onnx__Attribute *m = *out = NEW(a, Onnx__Attribute);
    const char *name;
    int type;
    onnx__attribute__init(m);
    CALL(OpAttr_GetName, from, &name);
    CALL(OpAttr_GetType, from, &type);
    m->name = arena_strdup(a, name);
    m->has_type = 1;
    m->type = type > 0 && type < COUNT_OF(numbers) ? numbers[type] : 0;
    return type == ORT_ATTR_TENSOR ? read_tensor(p, a, from, m) : read_numbers(p, a, from, type, m);
}

static sol_status read_attributes(const struct provider *p, struct arena *a, struct ort_node *n)
{
    size_t count;
    CALL(Node_GetNumAttributes, n->handle, &count);
    const struct OrtOpAttr **from = NEW_ARRAY(a, const struct OrtOpAttr *, count + 1);
    CALL(Node_GetAttributes, n->handle, from, count);
    n->message->attribute = NEW_ARRAY(a, Onnx__Attribute *, count + 1);
    n->message->n_attribute = count;
    for (size_t i = 0; i < count; i++) {
        const sol_status status = read_attribute(p, a, from[i], &n->message->attribute[i]);
        if (status == SOL_ERR_UNSUPPORTED) n->why = arena_strdup(a, sol_error(p->ctx));
        if (status && status != SOL_ERR_UNSUPPORTED) return status;
    }
    return SOL_OK;
}

/* -- nodes */

static char **names_of(struct arena *a, int n, struct ort_value *const *values)
{
    char **names = NEW_ARRAY(a, char *, n + 1);
    for (int i = 0; i < n; i++) names[i] = arena_strdup(a, values[i] ? values[i]->name : "");
    return names;
}

static sol_status read_links(const struct provider *p, struct ort_graph *g, int index)
{
    struct ort_node *n = &g->node[index];
    size_t nin, nimplicit, nout;
    CALL(Node_GetNumInputs, n->handle, &nin);
    CALL(Node_GetNumImplicitInputs, n->handle, &nimplicit);
    CALL(Node_GetNumOutputs, n->handle, &nout);
    const struct OrtValueInfo **from = NEW_ARRAY(g->arena, const struct OrtValueInfo *, nin + nimplicit + nout + 1);
    n->in = NEW_ARRAY(g->arena, struct ort_value *, nin + nimplicit + 1);
    n->out = NEW_ARRAY(g->arena, struct ort_value *, nout + 1);
    CALL(Node_GetInputs, n->handle, from, nin);
    CALL(Node_GetImplicitInputs, n->handle, from + nin, nimplicit);
    TRY(read_values(p, g, nin + nimplicit, from, n->in));
    CALL(Node_GetOutputs, n->handle, from, nout);
    TRY(read_values(p, g, nout, from, n->out));
    n->nin = (int)(nin + nimplicit);
    n->nout = (int)nout;
    for (int i = 0; i < n->nout; i++)
        if (n->out[i]) n->out[i]->producer = index;
    n->message->n_input = nin;
    n->message->input = names_of(g->arena, (int)nin, n->in);
    n->message->n_output = nout;
    n->message->output = names_of(g->arena, n->nout, n->out);
    return SOL_OK;
}

static sol_status read_node(const struct provider *p, struct ort_graph *g, int index)
{
    struct ort_node *n = &g->node[index];
    Onnx__Node *m = n->message = NEW(g->arena, Onnx__Node);
    const char *text;
    onnx__node__init(m);
    CALL(Node_GetName, n->handle, &text);
    m->name = arena_strdup(g->arena, text);
    CALL(Node_GetOperatorType, n->handle, &text);
    m->op_type = arena_strdup(g->arena, text);
    CALL(Node_GetDomain, n->handle, &text);
    m->domain = arena_strdup(g->arena, text);
    TRY(read_links(p, g, index));
    size_t bodies;
    CALL(Node_GetNumSubgraphs, n->handle, &bodies);
    if (!bodies) return read_attributes(p, g->arena, n);
    n->why = "ONNX Runtime divides the graphs inside it by themselves";
    return SOL_OK;
}

static sol_status read_opsets(const struct provider *p, struct ort_graph *g, const struct OrtGraph *from)
{
    size_t n;
    CALL(Graph_GetNumOperatorSets, from, &n);
    const char **domains = NEW_ARRAY(g->arena, const char *, n + 1);
    int64_t *versions = NEW_ARRAY(g->arena, int64_t, n + 1);
    CALL(Graph_GetOperatorSets, from, domains, versions, n);
    g->opset = NEW_ARRAY(g->arena, Onnx__OperatorSet *, n + 1);
    for (size_t i = 0; i < n; i++) {
        Onnx__OperatorSet *m = g->opset[i] = NEW(g->arena, Onnx__OperatorSet);
        onnx__operator_set__init(m);
        m->domain = arena_strdup(g->arena, domains[i]);
        m->has_version = 1;
        m->version = versions[i];
    }
    g->nopset = (int)n;
    return SOL_OK;
}

sol_status graph_read(const struct provider *p, struct arena *a, const struct OrtGraph *from, struct ort_graph *out)
{
    struct ort_graph *g = out;
    size_t n, noutput;
    *g = (struct ort_graph){.arena = a, .values = map_create(a)};
    TRY(read_opsets(p, g, from));
    CALL(Graph_GetNumNodes, from, &n);
    CALL(Graph_GetNumOutputs, from, &noutput);
    const struct OrtNode **handles = NEW_ARRAY(a, const struct OrtNode *, n + 1);
    const struct OrtValueInfo **outputs = NEW_ARRAY(a, const struct OrtValueInfo *, noutput + 1);
    CALL(Graph_GetNodes, from, handles, n);
    CALL(Graph_GetOutputs, from, outputs, noutput);
    g->nnode = (int)n;
    g->node = NEW_ARRAY(a, struct ort_node, n + 1);
    for (int i = 0; i < g->nnode; i++) {
        g->node[i].handle = handles[i];
        TRY(read_node(p, g, i));
    }
    for (size_t i = 0; i < noutput; i++) {
        struct ort_value *v;
        TRY(read_value(p, g, outputs[i], &v));
        if (v) v->outside = true;
    }
    return ctx_check(p->ctx);
}

/* -- models of some nodes */

static Onnx__ValueInfo *value_info(struct arena *a, const struct ort_value *v)
{
    Onnx__ValueInfo *m = NEW(a, Onnx__ValueInfo);
    onnx__value_info__init(m);
    m->name = arena_strdup(a, v->name);
    m->type = NEW(a, Onnx__Type);
    onnx__type__init(m->type);
    Onnx__TensorType *t = m->type->tensor_type = NEW(a, Onnx__TensorType);
    onnx__tensor_type__init(t);
    t->has_elem_type = 1;
    t->elem_type = v->type;
    if (!v->known_rank) return m;
    t->shape = NEW(a, Onnx__Shape);
    onnx__shape__init(t->shape);
    t->shape->n_dim = (size_t)v->ndim;
    t->shape->dim = NEW_ARRAY(a, Onnx__Dimension *, v->ndim + 1);
    for (int i = 0; i < v->ndim; i++) {
        Onnx__Dimension *d = t->shape->dim[i] = NEW(a, Onnx__Dimension);
        onnx__dimension__init(d);
        d->has_dim_value = v->shape[i] >= 0;
        d->dim_value = v->shape[i];
        if (v->shape[i] < 0 && *v->symbols[i]) d->dim_param = arena_strdup(a, v->symbols[i]);
    }
    return m;
}

/* Which of the values that the nodes read and write are inputs, weights and outputs of their model. An output is read
 * by another node, or outside. */
static void find_borders(const struct ort_graph *g, int n, const int *index, struct ort_model *m)
{
    struct arena *a = g->arena;
    struct map *seen = map_create(a);
    bool *inside = NEW_ARRAY(a, bool, g->nnode + 1);
    VECTOR(struct ort_value *) inputs = {0}, weights = {0}, outputs = {0};
    for (int k = 0; k < n; k++) inside[index[k]] = true;
    for (int i = 0; i < g->nnode; i++)
        for (int j = 0; j < g->node[i].nin; j++) {
            struct ort_value *v = g->node[i].in[j];
            const bool made = v && v->producer >= 0 && inside[v->producer];
            if (!v || made == inside[i] || map_get(seen, v->name)) continue;
            map_set(seen, v->name, v);
            if (made)
                PUSH(a, outputs, v);
            else if (v->data)
                PUSH(a, weights, v);
            else
                PUSH(a, inputs, v);
        }
    for (int k = 0; k < n; k++)
        for (int j = 0; j < g->node[index[k]].nout; j++) {
            struct ort_value *v = g->node[index[k]].out[j];
            if (v && v->outside && !map_get(seen, v->name)) PUSH(a, outputs, v);
        }
    m->input = inputs.at, m->ninput = inputs.n;
    m->weight = weights.at, m->nweight = weights.n;
    m->output = outputs.at, m->noutput = outputs.n;
}

sol_status graph_model(const struct provider *p, const struct ort_graph *g, int n, const int *index,
                       struct ort_model *out)
{
    struct arena *a = g->arena;
    Onnx__Model model;
    Onnx__Graph graph;
    onnx__model__init(&model);
    onnx__graph__init(&graph);
    *out = (struct ort_model){0};
    find_borders(g, n, index, out);
    graph.name = "SOL";
    graph.n_node = (size_t)n;
    graph.node = NEW_ARRAY(a, Onnx__Node *, n + 1);
    for (int k = 0; k < n; k++) graph.node[k] = g->node[index[k]].message;
    graph.n_input = (size_t)out->ninput;
    graph.input = NEW_ARRAY(a, Onnx__ValueInfo *, out->ninput + 1);
    for (int i = 0; i < out->ninput; i++) graph.input[i] = value_info(a, out->input[i]);
    graph.n_output = (size_t)out->noutput;
    graph.output = NEW_ARRAY(a, Onnx__ValueInfo *, out->noutput + 1);
    for (int i = 0; i < out->noutput; i++) graph.output[i] = value_info(a, out->output[i]);
    model.has_ir_version = 1;
    model.ir_version = 10;
    model.producer_name = "onnxruntime";
    model.graph = &graph;
    model.n_opset_import = (size_t)g->nopset;
    model.opset_import = g->opset;
    TRY(ctx_check(p->ctx));
    out->n = onnx__model__get_packed_size(&model);
    out->bytes = arena_try(a, out->n + 1);
    if (!out->bytes) return ctx_fail(p->ctx, SOL_ERR_NOMEM, "no memory for a model of %zu bytes", out->n);
    onnx__model__pack(&model, out->bytes);
    return SOL_OK;
}

sol_status model_weights(const struct provider *p, struct arena *a, const struct ort_model *m,
                         const struct sol_onnx_value **out)
{
    struct sol_onnx_value *w = NEW_ARRAY(a, struct sol_onnx_value, m->nweight + 1);
    for (int i = 0; i < m->nweight; i++) {
        const struct ort_value *v = m->weight[i];
        w[i] = (struct sol_onnx_value){.name = v->name, .ndim = v->ndim, .shape = v->shape, .data = v->data};
        TRY(dtype_read(p->ctx, v->type, v->name, &w[i].dtype));
    }
    *out = w;
    return ctx_check(p->ctx);
}
