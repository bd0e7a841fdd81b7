/* The packed weights as loops: packed[outer.. chunk panel k.. lane] = b[the index variables that these positions
 * stand for], and 0 in the padding. The planner makes a `prepare` step of it. */
#include "dnn/blocking.h"

#include <string.h>

struct packing {
    const struct blocking *b;
    struct loops *to;
    int32_t ivar[LOOPS_MAX_IVARS]; /* by index variable of the problem: its expression in `to` */
    int32_t index[SOL_MAX_DIMS], guard[4];
    int64_t shape[SOL_MAX_DIMS];
    int ndim, nguard;
};

int64_t blocking_packed_elements(const struct blocking *b)
{
    return b->nouter * b->nchunk * b->panels * b->panel_elements;
}

/* Adds a dimension to the packed tensor and returns its index variable's node. */
static int32_t dimension(struct packing *k, const char *name, int64_t size)
{
    const int32_t node = size == 1 ? ex_int(k->to, 0) : ex_ivar(k->to, loops_ivar(k->to, name, size));
    k->index[k->ndim] = node;
    k->shape[k->ndim++] = size;
    return node;
}

static void guard(struct packing *k, int32_t node, int64_t size)
{
    k->guard[k->nguard++] = ex_cmp(k->to, CMP_LT, node, ex_int(k->to, size));
}

static void digits(struct packing *k, const struct axis *x, int32_t node)
{
    for (int i = 0; i < x->n; i++) k->ivar[x->ivar[i]] = axis_digit_ex(k->b->p, x, i, k->to, node);
}

/* Adds an axis that is not cut: one dimension for each of its index variables, outermost first. */
static void plain_axis(struct packing *k, const char *name, const struct axis *x)
{
    for (int i = 0; i < x->n; i++) k->ivar[x->ivar[i]] = dimension(k, name, k->b->p->loops->ivars.at[x->ivar[i]].size);
}

static int dimensions(const struct blocking *b)
{
    int n = 3;
    for (int i = 0; i < b->outer.n; i++) n += b->outer.at[i].n;
    for (int i = 0; i < b->k.n; i++) n += i == b->chunk_axis ? 1 : b->k.at[i].n;
    return n;
}

struct loops *blocking_pack(const struct blocking *b, struct arena *arena)
{
    const struct problem *p = b->p;
    const struct loops_tensor *t = &p->loops->tensors.at[p->b.tensor];
    if (dimensions(b) > SOL_MAX_DIMS) return NULL;
    struct packing k = {.b = b, .to = loops_create(arena, "pack")};
    const int from = loops_tensor(k.to, "w", LOOPS_INPUT, t->dtype, t->ndim, t->shape);
    for (int i = 0; i < b->outer.n; i++) plain_axis(&k, "G", &b->outer.at[i]);
    const int32_t chunk = dimension(&k, "Q", b->nchunk), panel = dimension(&k, "B", b->panels);
    for (int i = 0; i < b->k.n; i++) {
        const struct axis *x = &b->k.at[i];
        if (i != b->chunk_axis) {
            plain_axis(&k, "K", x);
            continue;
        }
        const int32_t within = dimension(&k, "K", b->chunk);
        const int32_t node = ex_binary(k.to, EX_ADD, ex_binary(k.to, EX_MUL, ex_int(k.to, b->chunk), chunk), within);
        if (b->nchunk * b->chunk > x->size) guard(&k, node, x->size);
        digits(&k, x, node);
    }
    const int32_t lane = dimension(&k, "J", b->width);
    const int32_t n = ex_binary(k.to, EX_ADD, ex_binary(k.to, EX_MUL, ex_int(k.to, b->width), panel), lane);
    if (b->panels * b->width > b->n.size) guard(&k, n, b->n.size);
    digits(&k, &b->n, n);
    const int out = loops_tensor(k.to, "packed", LOOPS_OUTPUT, t->dtype, k.ndim, k.shape);
    int *tensor = NEW_ARRAY(arena, int, p->loops->tensors.n);
    tensor[p->b.tensor] = from;
    int32_t value = ex_copy(k.to, p->loops, p->b.view.node, k.ivar, tensor);
    if (k.nguard) value = ex_red(k.to, RED_SUM, 0, ex_logic(k.to, EX_AND, k.nguard, k.guard), value);
    const struct loops_stmt s = {
        .nout = 1, .out = {(uint16_t)out}, .index = ex_list(k.to, k.ndim, k.index), .value = value, .label = "pack"};
    loops_stmt(k.to, s);
    return k.to;
}
