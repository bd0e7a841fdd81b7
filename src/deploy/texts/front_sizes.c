/* Front, dimensions that vary: the sizes of a call, and the memory of a context for them. front_block.c includes it in
 * libraries of networks that have such dimensions.
 *
 * A context keeps the sizes of its last call. Other sizes are checked and computed anew (rt_sizes, a few microseconds),
 * and memory that is too small for them is replaced. In a block of the caller the memory is what the block has. There,
 * blocks of the workspace may have the places that are right for all sizes, if dimensions have limits. */
#include <string.h>

/* -- tables of a context */

static size_t places_bytes(const struct front_code *code)
{
#if defined FRONT_BARE
    (void)code;
    return 0;
#else
    return rt_sizes_bytes(code->module);
#endif
}

/* Of the tables that a context has in front of its pointers. */
static size_t tables_bytes(const struct front_code *code)
{
    const struct front_sizes *own = code->sizes;
    return (size_t)(code->module->nsize + own->n + own->nshape) * sizeof(int64_t) + places_bytes(code) +
           (size_t)own->ntensor * sizeof(struct sol_ext_tensor);
}

/* Lays the tables of a new context. Returns what follows them. */
static char *lay_tables(struct front_context *c, const struct front_code *code, char *at)
{
    struct front_sized *s = &c->sized;
    memset(at, 0, tables_bytes(code));
    s->module = (int64_t *)at;
    s->own = s->module + code->module->nsize;
    s->shape = s->own + code->sizes->n;
    s->placing = s->shape + code->sizes->nshape;
    s->input = (struct sol_ext_tensor *)((char *)s->placing + places_bytes(code));
    s->output = s->input + c->net->ninput;
    return (char *)(s->input + code->sizes->ntensor);
}

/* -- sizes of a call */

/* "net: 'batch' is 600, expected 1..512" */
static int misfit(const struct front_net *net, const struct sol_module *m, enum rt_fit fit, int32_t which,
                  const int64_t *size)
{
    const struct sol_module_dim *d = &m->dim[which];
    const long long v = size[which];
    if (fit == RT_MULTIPLE)
        return fail(FRONT_INVALID, "%s: '%s' is %lld, expected a multiple of %lld", net->name, d->name, v,
                    (long long)d->multiple);
    if (fit == RT_LIMITS && d->max >= INT32_MAX && v < d->min)
        return fail(FRONT_INVALID, "%s: '%s' is %lld, expected at least %lld", net->name, d->name, v,
                    (long long)d->min);
    if (fit == RT_LIMITS)
        return fail(FRONT_INVALID, "%s: '%s' is %lld, expected %lld..%lld", net->name, d->name, v, (long long)d->min,
                    (long long)d->max);
    char all[100] = "";
    struct line list = {all, sizeof all, 0};
    for (int i = 0; i < m->ndim; i++) put(&list, "%s'%s' %lld", i ? ", " : "", m->dim[i].name, (long long)size[i]);
    if (fit == RT_NEEDS)
        return fail(FRONT_INVALID, "%s with %s: %s, which would be %lld", net->name, all, m->check[which].what,
                    (long long)rt_quantity(m->check[which].size, size));
    return fail(FRONT_INVALID, "%s with %s: a tensor would be larger than 2^47 bytes", net->name, all);
}

/* Blocks of the workspace at the places that are right for all sizes. */
static void place_at_most(const struct front_code *code, int64_t *size)
{
    const struct sol_program *p = &code->module->forward;
    if (!p->nblock) return;
    for (int i = 0; i < p->nblock; i++) size[p->block[i].offset - SOL_SIZE] = code->most->offset[i];
    size[p->workspace_bytes - SOL_SIZE] = code->most->workspace;
}

/* All sizes for dimensions; `placing` has places_bytes. Only those of the network itself go into `own`. */
static int find_sizes(const struct front_net *net, const struct front_code *code, const int64_t *dims, int64_t *size,
                      int64_t *own, void *placing)
{
    const struct sol_module *m = code->module;
    const size_t bytes = (size_t)m->ndim * sizeof *dims;
    int32_t which = 0;
    memcpy(size, dims, bytes);
    memcpy(own, dims, bytes);
#if defined FRONT_BARE
    enum rt_fit fit = rt_dims(m, size, &which);
    if (!fit) place_at_most(code, size);
    (void)placing;
#else
    enum rt_fit fit = rt_sizes(m, size, placing, &which);
#endif
    if (!fit && !code->sizes->compute(own)) fit = RT_TOO_LARGE;
    return fit ? misfit(net, m, fit, which, size) : FRONT_GOOD;
}

#if defined FRONT_OPAQUE
static int64_t value_of(const void *own, int64_t quantity)
{
    return rt_quantity(quantity, own);
}
#endif

/* Memory that a layer without loops needs at these sizes, the largest of them. */
static size_t opaque_bytes(const struct front_code *code, const int64_t *own)
{
    size_t most = 0;
#if defined FRONT_OPAQUE
    for (int i = 0; i < code->nopaque && own; i++) {
        struct reference_instance at;
        most = larger(most, reference_scratch(reference_at(code->opaque[i], value_of, own, &at)));
    }
#endif
    (void)code, (void)own;
    return most;
}

/* Fills in tensors at these sizes; `shape` has room for all. */
static void describe(const struct front_graph *graph, const struct front_sizes *s, const struct front_net *net,
                     const int64_t *own, int64_t *shape, struct sol_ext_tensor *tensor)
{
    const int64_t *from = s->shape;
    for (int i = 0; i < s->ntensor; i++) {
        struct sol_ext_tensor *t = &tensor[i];
        *t = i < net->ninput ? graph->input[i] : graph->output[i - net->ninput];
        t->shape = shape;
        t->bytes = (size_t)rt_quantity(s->bytes[i], own);
        for (int k = 0; k < t->ndim; k++) *shape++ = rt_quantity(*from++, own);
    }
}

/* -- memory */

#if !defined FRONT_BARE
/* Replaces a part of a context's own memory that is too small. The old one is gone even if there is no memory. */
static int grow(struct front_block *b, size_t bytes, const char *what, size_t *has)
{
    if (bytes <= *has) return FRONT_GOOD;
    drop_there(b);
    *has = 0;
    const int error = take_there(bytes, what, b);
    if (!error) *has = bytes;
    return error;
}

static int provide_own(struct front_context *c, const struct sizes *s)
{
    struct front_sized *z = &c->sized;
    int error = grow(&c->block[1], s->workspace + behind_workspace(s), "the workspace", &z->workspace);
    if (!error) error = grow(&c->block[2], s->scratch * (size_t)c->room, "the threads' memory", &z->scratch);
    return error;
}
#endif

static size_t in_block(const struct front_context *c, const struct sizes *s)
{
    return s->workspace + behind_workspace(s) + s->scratch * (size_t)c->room;
}

static struct sizes sizes_now(const struct front_context *c)
{
    const struct front_sized *z = &c->sized;
    return sizes_at(c->code, z->module, z->own, z->prepares, z->trains);
}

static int provide(struct front_context *c)
{
    struct sizes s = sizes_now(c);
    size_t least = in_block(c, &s);
    int error = FRONT_GOOD;
#if !defined FRONT_BARE
    if (!c->sized.block) {
        error = provide_own(c, &s);
    } else if (least > c->sized.workspace && c->code->most) {
        place_at_most(c->code, c->sized.module);
        s = sizes_now(c);
        least = in_block(c, &s) < least ? in_block(c, &s) : least;
    }
#endif
    if (c->sized.block && in_block(c, &s) > c->sized.workspace)
        return fail(FRONT_MEMORY, "%s: these sizes need a block of %zu bytes for %d thread%s: it has %zu", c->net->name,
                    c->sized.block - c->sized.workspace + least, c->room, c->room == 1 ? "" : "s", c->sized.block);
    if (c->sized.block) c->block[2].at = c->block[1].at + s.workspace + behind_workspace(&s);
    if (!error) set_graph(c, c->graph, c->code, &s);
    return error;
}

static bool is_at(const struct front_context *c, const int64_t *dims)
{
    for (int i = 0; i < c->code->module->ndim; i++)
        if (c->sized.module[i] != dims[i]) return false;
    return c->sized.valid;
}

/* Gives a context the sizes of a call. */
static int resize(struct front_context *c, const int64_t *dims)
{
    struct front_sized *z = &c->sized;
    if (is_at(c, dims)) return FRONT_GOOD;
    z->valid = false;
    int error = find_sizes(c->net, c->code, dims, z->module, z->own, z->placing);
    if (!error) error = provide(c);
    if (error) return error;
    describe(c->graph, c->code->sizes, c->net, z->own, z->shape, z->input);
    z->valid = true;
    return FRONT_GOOD;
}

/* -- questions */

FRONT_API int front_shape(const struct front_net *net, bool output, int i, const int64_t *dims,
                          struct sol_ext_tensor *out_t, int64_t *out_shape)
{
    const struct front_code *code = net->graph->code;
    const struct front_sizes *s = code->sizes;
    const int n = output ? net->noutput : net->ninput;
    if (i < 0 || i >= n) return fail(FRONT_INVALID, "%s: there is no %s %d", net->name, output ? "output" : "input", i);
    int64_t size[code->module->nsize], own[s->n + 1], shape[s->nshape + 1];
    struct sol_ext_tensor tensor[s->ntensor + 1];
    int32_t which = 0;
    memcpy(size, dims, (size_t)code->module->ndim * sizeof *dims);
    memcpy(own, dims, (size_t)code->module->ndim * sizeof *dims);
    enum rt_fit fit = rt_dims(code->module, size, &which);
    if (!fit && !s->compute(own)) fit = RT_TOO_LARGE;
    if (fit) return misfit(net, code->module, fit, which, size);
    describe(net->graph, s, net, own, shape, tensor);
    *out_t = tensor[output ? net->ninput + i : i];
    if (out_shape) memcpy(out_shape, out_t->shape, (size_t)out_t->ndim * sizeof *out_shape);
    return FRONT_GOOD;
}
