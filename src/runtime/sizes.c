/* Dimensions that vary: what they are, the sizes of a call from the shapes of its inputs, and all sizes that follow
 * from them (rt_sizes), which a slot keeps for its last calls. */
#include "base/size.h"
#include "runtime/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHECKED = 8 };

int sol_net_dims(const struct sol_net *net)
{
    return net->module->ndim;
}

struct sol_net_dim sol_net_dim(const struct sol_net *net, int i)
{
    if (i < 0 || i >= net->module->ndim) return (struct sol_net_dim){0};
    const struct sol_module_dim *d = &net->module->dim[i];
    return (struct sol_net_dim){d->name, {d->hint, d->min, d->max, d->multiple}, net->most[i]};
}

/* -- all sizes of a call */

/* " (dimension 1 of input 'x')": where a dimension is the size itself. */
static void put_place(const struct sol_net *net, int dim, char *out, size_t room)
{
    *out = 0;
    for (int i = 0; i < net->nread; i++) {
        const struct size_read *r = &net->read[i];
        if (r->dim != dim) continue;
        snprintf(out, room, " (dimension %d of input '%s')", r->d, net->parts.inputs[r->input].name);
        return;
    }
}

/* "'batch' is 600, expected 1..512 (dimension 0 of input 'x')" */
static sol_status misfit_alone(const struct sol_net *net, enum rt_fit fit, int which, int64_t size)
{
    const struct sol_module_dim *d = &net->module->dim[which];
    char expected[80], place[200];
    put_place(net, which, place, sizeof place);
    if (fit == RT_MULTIPLE)
        snprintf(expected, sizeof expected, "a multiple of %lld", (long long)d->multiple);
    else if (d->max == SIZE_UNLIMITED && size < d->min)
        snprintf(expected, sizeof expected, "at least %lld", (long long)d->min);
    else
        snprintf(expected, sizeof expected, "%lld..%lld", (long long)d->min, (long long)d->max);
    return ctx_fail(net->ctx, SOL_ERR_INVALID, "network '%s': '%s' is %lld, expected %s%s", net->parts.name, d->name,
                    (long long)size, expected, place);
}

void sizes_text(const struct sol_net *net, const int64_t *sizes, char out[SIZES_TEXT])
{
    const struct sol_module *m = net->module;
    size_t n = 0;
    *out = 0;
    for (int i = 0; sizes && i < m->ndim && n < SIZES_TEXT; i++)
        n += (size_t)snprintf(out + n, SIZES_TEXT - n, "%s'%s' %lld", i ? ", " : " with ", m->dim[i].name,
                              (long long)sizes[i]);
}

/* What a check says, with the names of dimensions: modules say #0, so that equal networks share one. */
static void check_text(const struct sol_module *m, const char *what, char *out, size_t room)
{
    size_t n = 0;
    while (*what && n < room) {
        const size_t plain = strcspn(what, "#");
        char *end = (char *)(uintptr_t)what + plain;
        const long i = *end ? strtol(end + 1, &end, 10) : m->ndim;
        n += (size_t)snprintf(out + n, room - n, "%.*s%s", (int)plain, what, i < m->ndim ? m->dim[i].name : "");
        what = end;
    }
}

static sol_status misfit(const struct sol_net *net, enum rt_fit fit, int which, const int64_t *sizes)
{
    const struct sol_module *m = net->module;
    const char *name = net->parts.name;
    if (fit == RT_MULTIPLE || fit == RT_LIMITS) return misfit_alone(net, fit, which, sizes[which]);
    char with[SIZES_TEXT], what[CHECK_TEXT];
    sizes_text(net, sizes, with);
    if (fit == RT_NEEDS) {
        check_text(m, m->check[which].what, what, sizeof what);
        return ctx_fail(net->ctx, SOL_ERR_INVALID, "network '%s'%s: %s, which would be %lld", name, with, what,
                        (long long)rt_quantity(m->check[which].size, sizes));
    }
    return ctx_fail(net->ctx, SOL_ERR_INVALID, "network '%s'%s: a tensor would be larger than 2^47 bytes", name, with);
}

/* sizes: room for all. memory: rt_sizes_bytes; NULL: without places of blocks */
static sol_status compute(const struct sol_net *net, const int64_t *dims, int64_t *sizes, void *memory)
{
    int32_t which = 0;
    memcpy(sizes, dims, (size_t)net->module->ndim * sizeof *sizes);
    const enum rt_fit fit = memory ? rt_sizes(net->module, sizes, memory, &which) : rt_dims(net->module, sizes, &which);
    return fit ? misfit(net, fit, which, sizes) : SOL_OK;
}

static size_t row_bytes(const struct sol_net *net)
{
    return (size_t)net->module->nsize * sizeof(int64_t);
}

size_t sizes_bytes(const struct sol_net *net)
{
    return net->module->nsize ? (SLOT_SIZES + 1) * row_bytes(net) + rt_sizes_bytes(net->module) : 0;
}

static bool same(const struct sol_net *net, const int64_t *a, const int64_t *b)
{
    for (int i = 0; i < net->module->ndim; i++)
        if (a[i] != b[i] && net->module->dim[i].most < 0) return false;
    return true;
}

bool sizes_are_set(const struct sol_net *net)
{
    for (int i = 0; i < net->module->ndim; i++)
        if (net->module->dim[i].most >= 0) return true;
    return false;
}

static sol_status find(struct sol_net *net, struct slot *s, const int64_t *dims);

/* Where steps set sizes, the call gets a copy, which they change. */
sol_status sizes_find(struct sol_net *net, struct slot *s, const int64_t *dims)
{
    TRY(find(net, s, dims));
    if (!sizes_are_set(net)) return SOL_OK;
    memcpy(s->own, s->sizes, row_bytes(net));
    s->sizes = s->own;
    return SOL_OK;
}

sol_status sizes_set(const struct sol_net *net, int64_t *sizes, int dim)
{
    int32_t which;
    const enum rt_fit fit = !net->module->sizes(sizes) ? RT_TOO_LARGE : rt_needs(net->module, sizes, dim, &which);
    return fit ? misfit(net, fit, which, sizes) : SOL_OK;
}

int64_t sol_net_output_room(const struct sol_net *net, int i, const int64_t *dims)
{
    if (i < 0 || i >= net->module->noutput) return 0;
    return size_at(net->room[i], dims);
}

static sol_status find_rooms(struct sol_net *net)
{
    net->room = NEW_ARRAY(net->arena, int64_t, net->module->noutput + 1);
    TRY(ctx_check(net->ctx));
    for (int i = 0; i < net->module->noutput; i++) {
        const struct sol_io *io = &net->parts.outputs[i];
        int64_t n = 1;
        for (int d = 0; d < io->ndim; d++) n = size_mul(n, io->shape[d]);
        net->room[i] = sizes_are_set(net) ? size_upper(n, net->most) : n;
    }
    return SOL_OK;
}

static sol_status find(struct sol_net *net, struct slot *s, const int64_t *dims)
{
    const int n = net->module->nsize;
    s->sizes = net->example;
    if (!dims || !n) return SOL_OK;
    for (int i = 0; i < s->nknown; i++) { /* the newest first */
        const int at = (s->newest - i + SLOT_SIZES) % SLOT_SIZES;
        s->sizes = s->known + (size_t)at * (size_t)n;
        if (same(net, s->sizes, dims)) return SOL_OK;
    }
    const int at = s->nknown ? (s->newest + 1) % SLOT_SIZES : 0;
    int64_t *row = s->known + (size_t)at * (size_t)n;
    s->sizes = row;
    const sol_status status = compute(net, dims, row, s->known + SLOT_SIZES * (size_t)n);
    if (status) {
        s->nknown = 0; /* the row may have been one of them */
        return status;
    }
    s->newest = at;
    s->nknown = MIN(s->nknown + 1, SLOT_SIZES);
    return SOL_OK;
}

static sol_status check_given(struct sol_net *net, const int64_t *dims)
{
    if (dims || !net->told) return SOL_OK;
    return ctx_fail(net->ctx, SOL_ERR_INVALID,
                    "network '%s' has %d dimensions that vary ('%s'..): pass their sizes with sol_net_run_at or "
                    "sol_net_forward_at",
                    net->parts.name, net->told, net->module->dim[0].name);
}

/* Computes and checks all sizes for `dims`. out_m: the memory that they need; NULL: only checks. */
static sol_status with_sizes(const struct sol_net *net, const int64_t *dims, struct sol_memory *out_m)
{
    int64_t *sizes = ctx_try(net->ctx, row_bytes(net) + (out_m ? rt_sizes_bytes(net->module) : 0));
    if (!sizes) return ctx_fail(net->ctx, SOL_ERR_NOMEM, "out of memory: sizes of '%s'", net->parts.name);
    const sol_status status = compute(net, dims, sizes, out_m ? sizes + net->module->nsize : NULL);
    if (!status && out_m) net_memory(net, sizes, out_m);
    ctx_free(net->ctx, sizes);
    return status;
}

sol_status sol_net_memory_at(struct sol_net *net, const int64_t *dims, struct sol_memory *out_m)
{
    TRY(check_given(net, dims));
    if (net->told) return with_sizes(net, dims, out_m);
    sol_net_memory(net, out_m);
    return SOL_OK;
}

sol_status sol_net_check_dims(struct sol_net *net, const int64_t *dims)
{
    const size_t n = (size_t)net->module->ndim;
    bool known = false;
    if (!n) return SOL_OK;
    TRY(check_given(net, dims));
    if (!net->told) return SOL_OK;
    net_lock(net);
    for (int i = 0; i < net->nchecked && !known; i++) known = same(net, net->checked + (size_t)i * n, dims);
    net_unlock(net);
    if (known) return SOL_OK;
    TRY(with_sizes(net, dims, NULL));
    net_lock(net);
    net->newest_checked = (net->newest_checked + 1) % CHECKED;
    memcpy(net->checked + (size_t)net->newest_checked * n, dims, n * sizeof *dims);
    net->nchecked = MAX(net->nchecked, net->newest_checked + 1);
    net_unlock(net);
    return SOL_OK;
}

/* -- the dimensions of a call from the shapes of its inputs */

sol_status sizes_begin(struct sol_net *net)
{
    const struct sol_module *m = net->module;
    TRY(find_rooms(net));
    if (!m->nsize) return SOL_OK;
    int64_t hint[SIZE_MOST_DIMS];
    for (int i = 0; i < m->ninput; i++) net->nread += net->parts.inputs[i].ndim;
    for (int i = 0; i < m->ndim; i++) net->told += m->dim[i].most < 0;
    net->example = arena_alloc(net->arena, row_bytes(net) + rt_sizes_bytes(m));
    net->checked = NEW_ARRAY(net->arena, int64_t, CHECKED * m->ndim);
    net->newest_checked = CHECKED - 1;
    net->read = NEW_ARRAY(net->arena, struct size_read, net->nread + 1);
    TRY(ctx_check(net->ctx));
    struct size_read *r = net->read;
    for (int i = 0; i < m->ninput; i++)
        for (int d = 0; d < net->parts.inputs[i].ndim; d++, r++) {
            struct size_dim dim;
            *r = (struct size_read){i, d, net->parts.inputs[i].shape[d], -1};
            if (size_is_dim(r->size, &dim)) r->dim = dim.index;
        }
    for (int i = 0; i < m->ndim; i++) hint[i] = m->dim[i].hint;
    return compute(net, hint, net->example, net->example + m->nsize);
}

struct binding {
    struct sol_net *net;
    const int64_t *const *shapes;
    int64_t *dims;
    uint32_t known; /* dimensions, as bits; those that steps set count as known */
};

static int64_t given(const struct binding *b, const struct size_read *r)
{
    return b->shapes[r->input][r->d];
}

static const char *input_name(const struct binding *b, const struct size_read *r)
{
    return b->net->parts.inputs[r->input].name;
}

static sol_status disagree(const struct binding *b, const struct size_read *r)
{
    const struct size_read *first = b->net->read;
    while (first != r && (first->dim != r->dim || !b->shapes[first->input])) first++;
    if (first == r)
        return ctx_fail(b->net->ctx, SOL_ERR_INVALID,
                        "network '%s': '%s' is %lld, but %lld in input '%s' (dimension %d)", b->net->parts.name,
                        b->net->module->dim[r->dim].name, (long long)b->dims[r->dim], (long long)given(b, r),
                        input_name(b, r), r->d);
    return ctx_fail(b->net->ctx, SOL_ERR_INVALID,
                    "network '%s': '%s' is %lld in input '%s' (dimension %d) but %lld in '%s' (dimension %d)",
                    b->net->parts.name, b->net->module->dim[r->dim].name, (long long)given(b, r), input_name(b, r),
                    r->d, (long long)given(b, first), input_name(b, first), first->d);
}

static sol_status differs(const struct binding *b, const struct size_read *r, int64_t expected)
{
    if (size_varies(r->size))
        return ctx_fail(b->net->ctx, SOL_ERR_INVALID,
                        "network '%s': input '%s': dimension %d is %lld, expected %lld, which is %lld for these inputs",
                        b->net->parts.name, input_name(b, r), r->d, (long long)given(b, r), (long long)r->size,
                        (long long)expected);
    return ctx_fail(b->net->ctx, SOL_ERR_INVALID, "network '%s': input '%s': dimension %d is %lld, expected %lld",
                    b->net->parts.name, input_name(b, r), r->d, (long long)given(b, r), (long long)expected);
}

/* Finds dimension i, the only one that is not known in a size: where the size, which should grow with it, has the given
 * value. False: more than one fits. The comparison with all inputs follows. */
static bool solve(struct binding *b, const struct size_read *r, int i)
{
    const struct sol_module_dim *d = &b->net->module->dim[i];
    int64_t low = ceil_div(MAX(d->min, 0), d->multiple), high = d->max / d->multiple;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        b->dims[i] = middle * d->multiple;
        const int64_t v = size_at(r->size, b->dims);
        if (v == SIZE_BAD || v >= given(b, r))
            high = middle;
        else
            low = middle + 1;
    }
    b->dims[i] = (low + 1) * d->multiple;
    if (size_at(r->size, b->dims) == given(b, r)) return false;
    b->dims[i] = low * d->multiple;
    b->known |= UINT32_C(1) << i;
    return true;
}

/* Dimensions that no input has as a size of its own follow from sizes like 2 * #0 + 1. */
static void solve_others(struct binding *b)
{
    const struct sol_net *net = b->net;
    for (bool found = true; found;) {
        found = false;
        for (int k = 0; k < net->nread; k++) {
            const struct size_read *r = &net->read[k];
            const uint32_t open = size_dims(r->size) & ~b->known;
            if (r->dim >= 0 || !open || open & (open - 1) || !b->shapes[r->input]) continue;
            int i = 0;
            while (!(open >> i & 1)) i++;
            found |= solve(b, r, i);
        }
    }
}

static sol_status compare(const struct binding *b)
{
    const struct sol_net *net = b->net;
    for (int k = 0; k < net->nread; k++) {
        const struct size_read *r = &net->read[k];
        if (r->dim >= 0 || !size_varies(r->size) || !b->shapes[r->input]) continue;
        const int64_t v = size_at(r->size, b->dims);
        if (v != given(b, r)) return differs(b, r, v);
    }
    return SOL_OK;
}

sol_status sol_net_bind(struct sol_net *net, const int64_t *const *shapes, int64_t *out_dims)
{
    return sol_net_bind_known(net, shapes, 0, out_dims);
}

sol_status sol_net_bind_known(struct sol_net *net, const int64_t *const *shapes, uint32_t known, int64_t *dims)
{
    struct binding b = {.net = net, .shapes = shapes, .dims = dims, .known = known};
    const int ndim = net->module->ndim;
    bool others = false;
    if (!ndim) return SOL_OK;
    for (int i = 0; i < ndim; i++)
        if (net->most[i] >= 0) b.known |= UINT32_C(1) << i;
    for (int k = 0; k < net->nread; k++) {
        const struct size_read *r = &net->read[k];
        if (!shapes[r->input]) continue;
        const int64_t v = given(&b, r);
        if (r->dim < 0) {
            others |= size_varies(r->size);
            if (!size_varies(r->size) && v != r->size) return differs(&b, r, r->size);
        } else if (!(b.known >> r->dim & 1)) {
            dims[r->dim] = v;
            if (v < 0 || v > SIZE_UNLIMITED) return misfit(net, RT_LIMITS, r->dim, dims);
            b.known |= UINT32_C(1) << r->dim;
        } else if (dims[r->dim] != v) {
            return disagree(&b, r);
        }
    }
    if (others) solve_others(&b);
    for (int i = 0; i < ndim; i++)
        if (!(b.known >> i & 1))
            return ctx_fail(net->ctx, SOL_ERR_INVALID,
                            "network '%s': the shapes of the inputs do not tell the size of '%s'", net->parts.name,
                            net->module->dim[i].name);
    if (others) TRY(compare(&b));
    for (int i = 0; i < ndim; i++)
        if (net->most[i] >= 0) dims[i] = size_at(net->most[i], dims);
    return sol_net_check_dims(net, dims);
}
