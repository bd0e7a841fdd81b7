/* Convolutions that a library computes: the tensors as it sees them. Weights that do not lie as it wants them are
 * packed, if they are constant. */
#include "dnn/conv_call.h"

#define FAIL(...) return *why = __VA_ARGS__, false

bool conv_call_groups_fit(const struct conv_call *g, const struct axis *inner, const int64_t *strides)
{
    return !g->group.n || !inner->n || axis_stride(&g->group, strides) == inner->size * axis_stride(inner, strides);
}

/* -- weights and results */

/* Do channels lie behind pixels? */
static bool a_is_last(const struct conv_call *g)
{
    const int64_t step = axis_stride(g->in.n ? &g->in : &g->group, g->p.a.view.s);
    bool last = step > 0;
    for (int i = 0; i < g->npixel; i++) last &= g->pixel[i].size == 1 || step < g->pixel[i].step;
    return last;
}

static bool other_is_last(const struct conv_call *g, const int64_t *strides)
{
    const int64_t step = axis_stride(g->out.n ? &g->out : &g->group, strides);
    bool last = step > 0;
    for (int i = 0; i < g->npixel; i++) last &= !g->pixel[i].y.n || step < axis_stride(&g->pixel[i].y, strides);
    return last;
}

/* Sets the axes of w: two of channels and the window. */
static void order_weights(struct conv_call *g, bool last)
{
    const bool of_x = g->result == SOL_CONV_X;
    g->last = last;
    g->nw = 0;
    g->w[g->nw++] = g->group;
    g->w[g->nw++] = of_x ? g->in : g->out;
    if (!last) g->w[g->nw++] = of_x ? g->out : g->in;
    for (int i = 0; i < g->npixel; i++) g->w[g->nw++] = g->pixel[i].k;
    if (last) g->w[g->nw++] = of_x ? g->out : g->in;
}

/* Does w lie in one piece, in the order of its axes? */
static bool in_one_piece(const struct conv_call *g, const int64_t *strides)
{
    int64_t below = 1;
    for (int i = g->nw - 1; i >= 0; below *= conv_axis_size(&g->w[i--]))
        if (conv_axis_size(&g->w[i]) > 1 && axis_stride(&g->w[i], strides) != below) return false;
    return true;
}

/* The weights are packed where they are constant and nothing else reads them. */
static bool may_pack(const struct conv_call *g)
{
    const struct problem *p = &g->p;
    int n = 0;
    for (int i = 0; i < g->nw; i++) n += g->w[i].n;
    return p->c->memory[p->b.tensor].constant && problem_packs_b(p) && n <= SOL_MAX_DIMS;
}

struct kernel_pack conv_call_pack(const struct conv_call *g)
{
    const struct problem *p = &g->p;
    const struct loops_tensor *t = &p->loops->tensors.at[p->b.tensor];
    struct loops *loops = loops_create(p->arena, "pack");
    int64_t shape[SOL_MAX_DIMS];
    int32_t from[SOL_MAX_DIMS], to[SOL_MAX_DIMS], index[LOOPS_MAX_IVARS] = {0};
    int n = 0;
    for (int i = 0; i < g->nw; i++)
        for (int k = 0; k < g->w[i].n; k++) {
            shape[n] = p->loops->ivars.at[g->w[i].ivar[k]].size;
            to[n] = ex_ivar(loops, loops_ivar(loops, arena_printf(p->arena, "A%d", n), shape[n]));
            index[g->w[i].ivar[k]] = to[n++];
        }
    for (int d = 0; d < t->ndim; d++) {
        const struct affine *f = &p->b.index[d];
        from[d] = ex_int(loops, f->c);
        for (int i = 0; i < f->n; i++) {
            const int32_t digit = ex_binary(loops, EX_MUL, index[f->ivar[i]], ex_int(loops, f->coef[i]));
            from[d] = ex_binary(loops, EX_ADD, from[d], digit);
        }
    }
    loops_tensor(loops, "w", LOOPS_INPUT, (enum sol_dtype)t->dtype, t->ndim, t->shape);
    loops_tensor(loops, "packed", LOOPS_OUTPUT, (enum sol_dtype)t->dtype, n, shape);
    struct loops_stmt stmt = {.nout = 1, .out = {1}};
    stmt.value = ex_read(loops, 0, ex_list(loops, t->ndim, from), 0);
    stmt.index = ex_list(loops, n, to);
    loops_stmt(loops, stmt);
    return (struct kernel_pack){p->b.tensor, loops};
}

static void set_packed(struct conv_call *g)
{
    struct view *b = &g->p.b.view;
    int64_t below = 1;
    for (int i = g->nw - 1; i >= 0; i--)
        for (int k = g->w[i].n - 1; k >= 0; k--) {
            b->s[g->w[i].ivar[k]] = below;
            below *= g->p.loops->ivars.at[g->w[i].ivar[k]].size;
        }
    b->c = 0;
}

static bool place_weights(struct conv_call *g, bool last, const char **why)
{
    for (int other = 0; other < (last ? 2 : 1); other++) {
        order_weights(g, last && !other);
        if (in_one_piece(g, g->p.b.view.s)) return true;
    }
    order_weights(g, last);
    g->packs = true;
    if (!may_pack(g)) FAIL("weights are neither in one piece nor constant");
    set_packed(g);
    return true;
}

/* The results' axes, in the order of the work buffer. */
static void order_results(struct conv_call *g, bool last)
{
    struct axes *x = &g->call.axes;
    const struct axis *order[4 + SOL_CONV_PIXELS];
    int n = 0;
    if (g->result == SOL_CONV_W) {
        for (int i = 0; i < g->nw; i++) order[n++] = &g->w[i];
    } else {
        order[n++] = &g->image;
        for (int i = 0; i < g->npixel && last; i++) order[n++] = &g->pixel[i].y;
        order[n++] = &g->group;
        order[n++] = &g->out;
        for (int i = 0; i < g->npixel && !last; i++) order[n++] = &g->pixel[i].y;
    }
    for (int i = 0; i < n; i++)
        if (order[i]->n) x->at[x->n++] = *order[i];
    int64_t below = 1;
    for (int i = x->n - 1; i >= 0; below *= x->at[i--].size) g->work[x->at[i].ivar[x->at[i].n - 1]] = below;
}

static const int64_t *results(const struct conv_call *g)
{
    return g->call.direct ? g->p.view[0].s : g->work;
}

/* The strides of the tensor with the `out` channels and pixels y: the result, or in the gradient of weights b. */
static const int64_t *other_strides(const struct conv_call *g)
{
    return g->result == SOL_CONV_W ? g->p.b.view.s : results(g);
}

/* -- the call's numbers */

/* Sizes of images, channels and pixels with their strides. Where a size is 1, the stride is what it would be if the
 * dimensions around it lay side by side, which tells the library their order. all: all dimensions do. */
static void complete(struct sol_conv_tensor *t, int n, bool last, bool all)
{
    int64_t next = 1;
    for (int i = 0; i < n; i++) {
        const int inner = n - 1 - i, d = !last || i == n - 1 ? inner : i ? inner + 1 : 1;
        if (all || t->size[d] == 1) t->stride[d] = next;
        next = t->stride[d] * t->size[d];
    }
}

/* The tensor that is a. */
static void describe_a(const struct conv_call *g, struct sol_conv_tensor *t)
{
    const int64_t *s = g->p.a.view.s;
    const int first = MAX(2 - g->npixel, 0) + 2;
    t->operand = problem_operand(&g->p, g->p.a.tensor);
    t->offset = g->p.a.view.c;
    t->size[0] = conv_axis_size(&g->image), t->stride[0] = axis_stride(&g->image, s);
    t->size[1] = conv_axis_size(&g->group) * conv_axis_size(&g->in),
    t->stride[1] = axis_stride(g->in.n ? &g->in : &g->group, s);
    for (int i = 0; i < g->npixel; i++) {
        const struct conv_pixel *x = &g->pixel[i];
        t->size[first + i] = g->result == SOL_CONV_X ? x->in_y : x->in_x;
        t->stride[first + i] = x->step;
        t->offset += (x->from - x->c) * x->step;
    }
    complete(t, MAX(g->npixel, 2) + 2, a_is_last(g), false);
}

/* The one that has the other channels. */
static void describe_other(const struct conv_call *g, struct sol_conv_tensor *t)
{
    const int64_t *s = other_strides(g);
    const int first = MAX(2 - g->npixel, 0) + 2;
    t->size[0] = conv_axis_size(&g->image), t->stride[0] = axis_stride(&g->image, s);
    t->size[1] = conv_axis_size(&g->group) * conv_axis_size(&g->out),
    t->stride[1] = axis_stride(g->out.n ? &g->out : &g->group, s);
    for (int i = 0; i < g->npixel; i++) {
        t->size[first + i] = conv_axis_size(&g->pixel[i].y);
        t->stride[first + i] = axis_stride(&g->pixel[i].y, s);
    }
    complete(t, MAX(g->npixel, 2) + 2, other_is_last(g, s), false);
}

static void describe_weights(const struct conv_call *g, struct sol_conv_tensor *t)
{
    const bool of_x = g->result == SOL_CONV_X;
    const int first = MAX(2 - g->npixel, 0) + 2;
    t->size[0] = conv_axis_size(&g->group) * conv_axis_size(of_x ? &g->in : &g->out);
    t->size[1] = conv_axis_size(of_x ? &g->out : &g->in);
    for (int i = 0; i < g->npixel; i++) t->size[first + i] = conv_axis_size(&g->pixel[i].k);
    complete(t, MAX(g->npixel, 2) + 2, g->last, true);
}

static void describe_b(const struct conv_call *g, struct sol_conv_tensor *t)
{
    t->operand = problem_operand(&g->p, g->p.b.tensor);
    t->offset = g->p.b.view.c;
}

static void describe_result(const struct conv_call *g, struct sol_conv_tensor *t)
{
    t->operand = g->call.direct ? problem_operand(&g->p, g->p.view[0].tensor) : problem_work(&g->p);
    t->offset = g->call.direct ? g->p.view[0].c : 0;
}

void conv_call_describe(const struct conv_call *g, struct sol_conv *out)
{
    struct sol_conv_tensor *const x = &out->x, *const w = &out->w, *const y = &out->y;
    const bool of_x = g->result == SOL_CONV_X, of_w = g->result == SOL_CONV_W;
    *out = (struct sol_conv){.kind = SOL_CALL_CONV,
                             .result = g->result,
                             .dtype = g->p.dtype,
                             .npixel = MAX(g->npixel, 2),
                             .groups = conv_axis_size(&g->group),
                             .tf32 = g->target->tf32,
                             .channels_last = g->last};
    for (int i = 0; i < 2 + SOL_CONV_PIXELS; i++) x->size[i] = w->size[i] = y->size[i] = 1;
    describe_a(g, of_x ? y : x);
    describe_other(g, of_x ? x : y);
    describe_weights(g, w);
    describe_b(g, of_w ? y : w);
    describe_result(g, of_w ? w : of_x ? x : y);
    const int first = MAX(2 - g->npixel, 0);
    for (int i = 0; i < SOL_CONV_PIXELS; i++) out->stride[i] = out->dilation[i] = 1;
    for (int i = 0; i < g->npixel; i++) {
        out->pad[first + i] = g->pixel[i].pad;
        out->stride[first + i] = g->pixel[i].stride;
        out->dilation[first + i] = g->pixel[i].dilation;
    }
}

/* -- the whole */

/* Do channels and pixels lie in one piece? The library may want that of a result. */
static bool is_dense(const struct sol_conv_tensor *t)
{
    int64_t all = 1, most = 0;
    for (int i = 1; i < COUNT_OF(t->size); i++) {
        all *= t->size[i];
        most += (t->size[i] - 1) * t->stride[i];
    }
    return most == all - 1;
}

static bool fits(const struct sol_conv_tensor *t)
{
    for (int i = 0; i < COUNT_OF(t->size); i++)
        if (t->size[i] > INT32_MAX || t->stride[i] > INT32_MAX || (t->size[i] > 1 && t->stride[i] < 1)) return false;
    return true;
}

bool conv_call_place(struct conv_call *g, const char **why)
{
    const bool of_w = g->result == SOL_CONV_W, stores = call_only_stores(&g->p);
    const bool a_last = a_is_last(g);
    const int64_t *other = of_w ? g->p.b.view.s : stores ? g->p.view[0].s : NULL;
    const bool last = a_last && g->p.dtype == SOL_F32 && (!other || other_is_last(g, other));
    struct sol_conv facts;
    g->call.p = &g->p;
    g->call.target = g->target;
    if (!conv_call_groups_fit(g, &g->in, g->p.a.view.s)) FAIL("channels do not form groups");
    if (of_w)
        order_weights(g, last);
    else if (!place_weights(g, last, why))
        return false;
    if (of_w && !conv_call_groups_fit(g, &g->out, other)) FAIL("channels do not form groups");
    order_results(g, a_last);
    g->call.direct =
        stores && (of_w ? in_one_piece(g, g->p.view[0].s) : conv_call_groups_fit(g, &g->out, g->p.view[0].s));
    conv_call_describe(g, &facts);
    const struct sol_conv_tensor *to = of_w ? &facts.w : g->result == SOL_CONV_X ? &facts.x : &facts.y;
    if (g->call.direct && (!fits(to) || !is_dense(to))) g->call.direct = false, conv_call_describe(g, &facts);
    if (!fits(&facts.x) || !fits(&facts.w) || !fits(&facts.y)) FAIL("too large for the library, or strides of 0");
    return true;
}
