/* Prints the copy of what a block reads of a into scratch, channels last, with zeros where a has a border. So no
 * micro-kernel handles borders, layouts or the end of a tensor, whatever the padding, stride or dilation. The cost is
 * one copy of a block for all its output channels: 1-2 % from 64 channels on.
 *
 * There is one loop for each dimension of a, outermost first, clipped to what exists. The clipped rest is zeroed in
 * rows. */
#include "dnn/blocking.h"

#include <stdlib.h>

#define SAY(...) arena_printf(b->p->arena, __VA_ARGS__)

static int axis_of(const struct axes *x, int ivar)
{
    for (int i = 0; i < x->n; i++)
        for (int k = 0; k < x->at[i].n; k++)
            if (x->at[i].ivar[k] == ivar) return i;
    return -1;
}

static bool is_cut(const struct blocking *b, int ivar)
{
    return b->chunk_axis >= 0 && b->k.at[b->chunk_axis].ivar[0] == ivar;
}

/* Elements of an index variable of K in a chunk. */
static int64_t extent_of(const struct blocking *b, int ivar)
{
    return is_cut(b, ivar) ? b->chunk : b->p->loops->ivars.at[ivar].size;
}

/* The index at which the block begins in dimension d. */
static const char *first_index(const struct blocking *b, int d)
{
    const struct affine *f = &b->p->a.index[d];
    struct offset o = {.arena = b->p->arena, .constant = f->c};
    for (int i = 0; i < f->n; i++) {
        const int ivar = f->ivar[i];
        const int64_t coef = f->coef[i]; /* a number: plan_gather rejects others */
        const int m = axis_of(&b->m, ivar), g = axis_of(&b->outer, ivar);
        if (m >= 0)
            offset_add(&o, SAY("l%d", m), coef);
        else if (g >= 0) {
            int k = 0;
            while (b->outer.at[g].ivar[k] != ivar) k++;
            offset_add(&o, axis_digit(b->p, &b->outer.at[g], k, SAY("g%d", g)), coef);
        } else {
            if (is_cut(b, ivar)) offset_add(&o, "q", coef * b->chunk);
            if (coef < 0) o.constant = size_add(o.constant, size_mul(coef, size_sub(extent_of(b, ivar), 1)));
        }
    }
    return offset_text(&o);
}

static const char *count(const struct blocking *b, int d)
{
    const struct affine *f = &b->p->a.index[d];
    struct offset o = {.arena = b->p->arena, .constant = 1};
    for (int i = 0; i < f->n; i++) {
        const int ivar = f->ivar[i], m = axis_of(&b->m, ivar);
        if (m >= 0) {
            offset_add(&o, SAY(f->coef[i] == 1 ? "h%d - l%d" : "(h%d - l%d)", m, m), f->coef[i]);
            o.constant = size_sub(o.constant, f->coef[i]);
        } else if (set_has(b->p->k, ivar) || ivar == b->group) {
            o.constant = size_add(o.constant, size_mul(llabs(f->coef[i]), size_sub(extent_of(b, ivar), 1)));
        }
    }
    return offset_text(&o);
}

static bool clips(const struct blocking *b, int d)
{
    if (b->p->a.border[d]) return true;
    const struct affine *f = &b->p->a.index[d];
    for (int i = 0; i < f->n; i++)
        if (is_cut(b, f->ivar[i]) && size_mod(b->k.at[b->chunk_axis].size, b->chunk)) return true;
    return false;
}

/* Prints for each dimension: i, the first index; f and t, the part that exists; n, the number of elements. */
static void ranges(const struct blocking *b, struct text *out)
{
    const struct memory *m = &b->p->c->memory[b->p->a.tensor];
    const struct loops_tensor *t = &b->p->loops->tensors.at[b->p->a.tensor];
    for (int d = 0; d < b->p->a.ndim; d++) {
        text_line(out, "const int64_t i%d = %s;", d, first_index(b, d));
        bool loops = false;
        for (int i = 0; i < b->ngather; i++) loops |= b->gather_dim[i] == d;
        if (!loops) continue;
        text_line(out, "const int64_t n%d = %s;", d, count(b, d));
        if (!clips(b, d)) {
            text_line(out, "const int64_t f%d = 0, t%d = n%d;", d, d, d);
            continue;
        }
        const int64_t low = -m->halo_low[d], high = size_add(t->shape[d], m->halo_high[d]);
        text_line(out, "const int64_t f%d = @sol_min_i64(n%d, @sol_max_i64(0, %lld - i%d));", d, d, (long long)low, d);
        text_line(out, "const int64_t t%d = @sol_max_i64(f%d, @sol_min_i64(n%d, %lld - i%d));", d, d, d,
                  (long long)high, d);
    }
}

static void zero(const struct blocking *b, struct text *out, int d, const char *at)
{
    if (!b->p->a.border[d]) return;
    const long long row = b->gather_stride[d];
    for (int side = 0; side < 2; side++)
        text_line(out, "for (int64_t z = %s; z < %s; z++) __builtin_memset(%s + %s, 0, %lld);",
                  side ? SAY("t%d", d) : "0", side ? SAY("n%d", d) : SAY("f%d", d), at,
                  text_times(b->p->arena, "z", row), (long long)size_mul(row, b->p->bytes));
}

/* The address of element d<dim> from `base` on. */
static const char *step_from(const struct blocking *b, const char *base, int dim, int64_t stride)
{
    return SAY("%s + %s", base, text_times(b->p->arena, SAY("d%d", dim), stride));
}

/* Prints the copy of the last two dimensions. The one with the smaller stride in a is the inner loop. */
static void copy(const struct blocking *b, struct text *out, int outer, int inner, const char *to, const char *from)
{
    const int64_t *s = b->p->c->memory[b->p->a.tensor].stride;
    if (outer >= 0) zero(b, out, outer, to);
    if (outer >= 0 && s[inner] != 1 && stride_about(s[outer]) < stride_about(s[inner]) && !b->p->a.border[inner]) {
        const int swap = outer;
        outer = inner;
        inner = swap;
    }
    if (outer >= 0) {
        text_open(out, "for (int64_t d%d = f%d; d%d < t%d; d%d++) {", outer, outer, outer, outer, outer);
        to = step_from(b, to, outer, b->gather_stride[outer]);
        from = step_from(b, from, outer, s[outer]);
    }
    text_line(out, "@real *const to = %s;", to);
    text_line(out, "const @real *const from = %s;", from);
    if (outer < 0 || stride_about(b->gather_stride[outer]) > stride_about(b->gather_stride[inner]))
        zero(b, out, inner, "to");
    const char *at = SAY("d%d", inner);
    text_line(out, "for (int64_t %s = f%d; %s < t%d; %s++) to[%s] = from[%s];", at, inner, at, inner, at,
              text_times(b->p->arena, at, b->gather_stride[inner]), text_times(b->p->arena, at, s[inner]));
    if (outer >= 0) text_close(out, "}");
}

void gather_print(const struct blocking *b, struct text *out)
{
    const int64_t *s = b->p->c->memory[b->p->a.tensor].stride;
    text_open(out, "{ /* gather the block's part of a */");
    ranges(b, out);
    struct offset at = {.arena = b->p->arena};
    for (int d = 0; d < b->p->a.ndim; d++) offset_add(&at, SAY("i%d", d), s[d]);
    text_line(out, "const @real *const from0 = %s;", offset_from(&at, "a"));
    const char *to = "block_a", *from = "from0";
    for (int i = 0; i < b->ngather - 2; i++) {
        const int d = b->gather_dim[i];
        zero(b, out, d, to);
        text_open(out, "for (int64_t d%d = f%d; d%d < t%d; d%d++) {", d, d, d, d, d);
        text_line(out, "@real *const to%d = %s;", d, step_from(b, to, d, b->gather_stride[d]));
        text_line(out, "const @real *const from%d_ = %s;", d, step_from(b, from, d, s[d]));
        to = SAY("to%d", d);
        from = SAY("from%d_", d);
    }
    const int n = b->ngather;
    if (n)
        copy(b, out, n > 1 ? b->gather_dim[n - 2] : -1, b->gather_dim[n - 1], to, from);
    else
        text_line(out, "*block_a = *from0;");
    for (int i = 0; i < n - 2; i++) text_close(out, "}");
    text_close(out, "}");
}
