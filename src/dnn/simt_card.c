/* Contractions on graphics cards: how their factors are read, multiplied and stored.
 *
 * Items keep the next step of both factors in registers while they multiply the one in shared memory, so loads take as
 * long as products. Where neighbours in memory are neighbours in K (`deep`), an item reads some of them and stores each
 * to a row of its own; otherwise neighbours in M or N stay neighbours. A constant factor that has neither is packed. An
 * item's tile consists of pieces of so many rows and columns as one load has elements, so that the items of a warp read
 * 4 and 8 such pieces that follow each other. */
#include <stdlib.h>
#include <string.h>

#include "dnn/simt.h"

#define SAY(...) arena_printf(s->p.arena, __VA_ARGS__)

enum { WARP = 32 };

/* Elements of a load or a store of full width. */
static int wide_of(const struct simt *s)
{
    return SIMT_PACK / s->p.bytes;
}

/* -- orders: which index variables are neighbours */

/* As order_of in simt.c; index variables of one value are outermost, where they disturb nothing. */
static struct simt_order order_by(const struct problem *p, uint64_t set, const int64_t *by)
{
    struct simt_order o = {.size = problem_size(p, set)};
    for (int i = 0; i < p->loops->ivars.n; i++) {
        if (!set_has(set, i)) continue;
        int k = o.n++;
        const bool one = p->loops->ivars.at[i].size == 1;
        for (; k > 0 && p->loops->ivars.at[o.ivar[k - 1]].size != 1; k--) {
            if (!one && stride_about(by[o.ivar[k - 1]]) >= stride_about(by[i])) break;
            o.ivar[k] = o.ivar[k - 1];
        }
        o.ivar[k] = (uint8_t)i;
    }
    for (int i = 0; i < o.n; i++) o.digit[i] = p->loops->ivars.at[o.ivar[i]].size;
    return o;
}

static bool has_neighbours(const struct problem *p, const struct operand *x, uint64_t set)
{
    for (int i = 0; i < p->loops->ivars.n && x->affine; i++)
        if (set_has(set, i) && x->view.s[i] == 1 && p->loops->ivars.at[i].size != 1) return true;
    return false;
}

static bool in_border(const struct operand *x, int ivar)
{
    for (int d = 0; d < x->ndim; d++)
        for (int i = 0; i < x->index[d].n && x->border[d]; i++)
            if (x->index[d].ivar[i] == ivar) return true;
    return false;
}

static bool follows(const struct operand *x, int outer, int inner, int64_t size)
{
    return x->affine && x->view.s[outer] == size_mul(x->view.s[inner], size) && !in_border(x, outer) &&
           !in_border(x, inner);
}

/* Makes one digit of neighbours in K that both factors have in one run of memory. */
static void merge_k(struct simt *s)
{
    struct simt_order *k = &s->k;
    for (int i = k->n - 2; i >= 0; i--) {
        const int outer = k->ivar[i], inner = k->ivar[i + 1];
        if (!follows(&s->p.a, outer, inner, k->digit[i + 1]) || !follows(&s->p.b, outer, inner, k->digit[i + 1]))
            continue;
        k->digit[i + 1] = size_mul(k->digit[i], k->digit[i + 1]);
        memmove(&k->ivar[i], &k->ivar[i + 1], (size_t)(k->n - i - 1) * sizeof *k->ivar);
        memmove(&k->digit[i], &k->digit[i + 1], (size_t)(k->n - i - 1) * sizeof *k->digit);
        k->n--;
    }
}

/* -- packing */

static bool read_once(const struct problem *p, int tensor)
{
    if (p->a.tensor == p->b.tensor) return false;
    for (int i = 0; i < p->nview; i++)
        if (p->view[i].tensor == tensor) return false;
    return true;
}

static int64_t elements_of(const struct problem *p, const struct operand *x)
{
    return size_about(loops_elements(&p->loops->tensors.at[x->tensor]));
}

/* Do the index variables count through the dimension, as digits of one number? (`W[O I*49+P]` after a flatten) */
static bool counts(const struct problem *p, const struct affine *f, int64_t size)
{
    int64_t below = 1, next = 1;
    for (; next; below *= MAX(next, 1)) {
        next = 0;
        for (int i = 0; i < f->n; i++) {
            const int64_t own = p->loops->ivars.at[f->ivar[i]].size;
            if (size_varies(own)) return false;
            if (own > 1 && f->coef[i] == below) next = own;
        }
    }
    return !f->c && below == size;
}

/* The size of the index variable if the operand has it in an index, otherwise 0. */
static int64_t size_in(const struct problem *p, const struct operand *x, int ivar)
{
    for (int d = 0; d < x->ndim; d++)
        for (int i = 0; i < x->index[d].n; i++)
            if (x->index[d].ivar[i] == ivar) return p->loops->ivars.at[ivar].size;
    return 0;
}

/* A constant whose elements are each read at one value of the index variables: every one is a digit of one index. */
static bool may_pack(const struct problem *p, const struct operand *x)
{
    const struct loops_tensor *t = &p->loops->tensors.at[x->tensor];
    uint64_t seen = 0;
    int n = 0;
    if (!p->c->memory[x->tensor].constant || !x->affine || x->any_border || !read_once(p, x->tensor)) return false;
    for (int d = 0; d < x->ndim; d++) {
        const struct affine *f = &x->index[d];
        n += f->n;
        if (!counts(p, f, t->shape[d])) return false;
        for (int i = 0; i < f->n; seen |= bit(f->ivar[i++]))
            if (seen >> f->ivar[i] & 1) return false;
    }
    return n <= SOL_MAX_DIMS;
}

/* The strides by which K is ordered: those of the larger factor with neighbours in K that may not be packed. */
static const int64_t *strides_of_k(const struct problem *p)
{
    const struct operand *const x[] = {&p->a, &p->b};
    const struct operand *best = NULL;
    for (int packs = 0; packs < 2 && !best; packs++)
        for (int i = 0; i < 2; i++) {
            if (!has_neighbours(p, x[i], p->k) || may_pack(p, x[i]) != packs) continue;
            if (!best || elements_of(p, x[i]) > elements_of(p, best)) best = x[i];
        }
    if (best) return best->view.s;
    return p->a.affine ? p->a.view.s : p->b.affine ? p->b.view.s : p->order;
}

/* packed[batch.. k.. own..] = x[..] */
static void pack(struct simt *s, struct operand *x, const struct simt_order *own)
{
    struct problem *p = &s->p;
    const struct loops_tensor *t = &p->loops->tensors.at[x->tensor];
    const struct simt_order *const orders[] = {&s->batch, &s->k, own};
    struct loops *loops = loops_create(p->arena, "pack");
    int64_t shape[SOL_MAX_DIMS], step = 1;
    int32_t from[SOL_MAX_DIMS], to[SOL_MAX_DIMS], index[LOOPS_MAX_IVARS] = {0};
    int n = 0;
    for (int d = 0; d < t->ndim; d++) {
        from[d] = ex_int(loops, 0);
        for (int i = 0; i < x->index[d].n; i++) {
            const int ivar = x->index[d].ivar[i], at = loops->ivars.n;
            index[ivar] = ex_ivar(loops, loops_ivar(loops, SAY("A%d", at), p->loops->ivars.at[ivar].size));
            const int32_t digit = ex_binary(loops, EX_MUL, index[ivar], ex_int(loops, x->index[d].coef[i]));
            from[d] = ex_binary(loops, EX_ADD, from[d], digit);
        }
    }
    for (int o = 0; o < COUNT_OF(orders); o++)
        for (int i = 0; i < orders[o]->n; i++) {
            const int ivar = orders[o]->ivar[i];
            const int64_t size = size_in(p, x, ivar);
            if (size > 1) to[n] = index[ivar], shape[n++] = size;
        }
    loops_tensor(loops, "w", LOOPS_INPUT, (enum sol_dtype)t->dtype, t->ndim, t->shape);
    loops_tensor(loops, "packed", LOOPS_OUTPUT, (enum sol_dtype)t->dtype, n, shape);
    struct loops_stmt stmt = {.nout = 1, .out = {1}};
    stmt.value = ex_read(loops, 0, ex_list(loops, t->ndim, from), 0);
    stmt.index = ex_list(loops, n, to);
    loops_stmt(loops, stmt);
    s->pack[s->npack++] = (struct kernel_pack){x->tensor, loops};
    for (int o = COUNT_OF(orders) - 1; o >= 0; o--)
        for (int i = orders[o]->n - 1; i >= 0; i--) {
            const int64_t size = size_in(p, x, orders[o]->ivar[i]);
            if (!size) continue;
            x->view.s[orders[o]->ivar[i]] = step;
            step *= size;
        }
}

/* Are neighbours of the innermost index variable of an order neighbours in memory? */
static bool is_run(const struct operand *x, const struct simt_order *o)
{
    return x->affine && o->n && x->view.s[o->ivar[o->n - 1]] == 1 && o->digit[o->n - 1] != 1;
}

void simt_card_find(struct simt *s)
{
    struct problem *p = &s->p;
    s->batch = order_by(p, p->batch, p->order);
    s->k = order_by(p, p->k, strides_of_k(p));
    s->m = order_by(p, p->m, has_neighbours(p, &p->a, p->m) ? p->a.view.s : p->order);
    s->n = order_by(p, p->n, has_neighbours(p, &p->b, p->n) ? p->b.view.s : p->order);
    struct operand *const x[] = {&p->b, &p->a};
    const struct simt_order *const own[] = {&s->n, &s->m};
    for (int i = 0; i < 2 && !s->npack; i++)
        if (!is_run(x[i], &s->k) && !is_run(x[i], own[i]) && own[i]->n && may_pack(p, x[i])) pack(s, x[i], own[i]);
    merge_k(s);
}

/* -- how the items of a block share the loads */

static bool divides(int64_t n, int by)
{
    return !size_varies(n) ? n % by == 0 : size_factor(n) % by == 0;
}

/* May an item read `wide` neighbours at once, along the last digit of an order? */
static bool aligned(const struct simt *s, const struct view *v, const struct simt_order *along, int wide)
{
    const int unit = along->ivar[along->n - 1];
    if (!divides(along->digit[along->n - 1], wide) || !divides(v->c, wide)) return false;
    for (int i = 0; i < s->p.loops->ivars.n; i++)
        if (i != unit && !divides(v->s[i], wide)) return false;
    return true;
}

static struct simt_factor factor_of(const struct simt *s, struct operand *x, const struct simt_order *own, int wide)
{
    struct simt_factor f = {.x = x, .own = own, .wide = wide, .width = 1};
    const bool run = is_run(x, own);
    f.name = own == &s->m ? "a" : "b";
    f.first = own == &s->m ? "m0_" : "n0_";
    f.plain = x->affine;
    f.deep = is_run(x, &s->k) && !(run && size_about(own->digit[own->n - 1]) >= size_about(s->k.digit[s->k.n - 1]));
    const struct simt_order *along = f.deep ? &s->k : own;
    if ((f.deep || run) && aligned(s, &x->view, along, wide_of(s)) && !in_border(x, along->ivar[along->n - 1]) &&
        wide >= wide_of(s))
        f.width = wide_of(s);
    f.pad = s->products ? 2 * wide_of(s) : f.deep ? wide_of(s) : 0;
    f.across = (f.deep ? s->depth : wide) / f.width;
    const int all = wide * s->depth / f.width;
    f.loads = (all + s->items - 1) / s->items;
    f.all = all >= s->items;
    return f;
}

void simt_card_shape(struct simt *s)
{
    s->a = factor_of(s, &s->p.a, &s->m, s->rows);
    s->b = factor_of(s, &s->p.b, &s->n, s->cols);
    s->stores = s->n.n && s->tile_cols >= wide_of(s) && divides(s->n.digit[s->n.n - 1], wide_of(s));
    for (int i = 0; i < s->p.nview && s->stores && s->parts == 1; i++) {
        const struct view *v = &s->p.view[i];
        if (v->node) continue;
        s->stores = s->p.loops->tensors.at[v->tensor].dtype == s->p.dtype && v->s[s->n.ivar[s->n.n - 1]] == 1 &&
                    aligned(s, v, &s->n, wide_of(s));
    }
}

int simt_card_shared(const struct simt *s)
{
    return 2 * s->depth * (s->rows + s->a.pad + s->cols + s->b.pad) * s->p.bytes;
}

/* -- text */

static void unroll(const struct simt *s)
{
    text_line(s->out, "#pragma unroll");
}

void simt_card_begin(const struct simt *s)
{
    text_put(s->out, "typedef %s%d @pack;\n", dtype_def(s->p.dtype)->c_name, wide_of(s));
}

/* Down and across a tile: elements that follow each other. */
static int piece(const struct simt *s, int tile)
{
    return MIN(tile, wide_of(s));
}

void simt_card_place(const struct simt *s)
{
    struct text *out = s->out;
    const int across = s->cols / s->tile_cols, down = s->rows / s->tile_rows;
    const int warp_across = s->products ? 4 : 8, warp_down = WARP / warp_across;
    const int rows = s->rows + s->a.pad, cols = s->cols + s->b.pad, depth = s->depth;
    text_line(out, "@SHARED @real (*const as_)[%d][%d] = (@SHARED @real (*)[%d][%d])shared_;", depth, rows, depth,
              rows);
    text_line(out, "@SHARED @real (*const bs_)[%d][%d] = (@SHARED @real (*)[%d][%d])(shared_ + %d);", depth, cols,
              depth, cols, 2 * depth * rows * s->p.bytes);
    text_line(out, "const int item_ = (int)@ITEM;");
    if (across % warp_across || down % warp_down)
        text_line(out, "const int down_ = item_ / %d, across_ = item_ %% %d;", across, across);
    else
        text_line(
            out, "const int down_ = item_ / %d * %d + item_ %% %d / %d, across_ = item_ / %d %% %d * %d + item_ %% %d;",
            WARP * (across / warp_across), warp_down, WARP, warp_across, WARP, across / warp_across, warp_across,
            warp_across);
    text_line(out, "const int row_ = down_ * %d, col_ = across_ * %d;", piece(s, s->tile_rows), piece(s, s->tile_cols));
    if (s->products) simt_mma_place(s);
}

/* Does K, as a number, need more than 32 bits? So do offsets, if strides are that large. */
static const char *number_type(const struct simt *s)
{
    return size_most(s->k.size) < INT32_MAX / 2 ? "int" : "int64_t";
}

static const char *offset_type(const struct simt *s, const struct operand *x)
{
    double most = 0;
    for (int i = 0; i < s->k.n; i++) {
        const int64_t stride = x->view.s[s->k.ivar[i]];
        if (size_varies(stride) || size_varies(s->k.digit[i])) return "int64_t";
        most += (double)llabs(stride) * (double)s->k.digit[i];
    }
    return most < INT32_MAX ? "int" : "int64_t";
}

/* Does each step of the sum stay within the last digit of K, so that the others are those of its beginning? */
static bool steps_inside(const struct simt *s)
{
    return s->k.n && divides(s->k.digit[s->k.n - 1], s->depth);
}

/* Declares where an item's loads begin: by load if it reads along K, otherwise one place for all of them. */
static void put_places(const struct simt *s, const struct simt_factor *f)
{
    struct text *out = s->out;
    const struct operand *x = f->x;
    const char *a = f->name;
    const int n = f->deep ? f->loads : 1, step = s->items / f->across;
    const char *const along = SAY(f->width > 1 ? "item_ %% %d * %d" : "item_ %% %d", f->across, f->width);
    text_line(out, "const int %s_at_ = %s, %s_deep_ = %s;", a, f->deep ? SAY("item_ / %d", f->across) : along, a,
              f->deep ? along : SAY("item_ / %d", f->across));
    const char *flat =
        SAY("@sol_min_i64(%s + %s_at_, %lld)", f->first, a, (long long)size_sub(f->own->size, f->deep ? 1 : f->width));
    if (!f->plain) {
        text_line(out, "const int64_t %s_flat_ = %s;", a, flat);
        simt_digits(s, f->own, SAY("%s_flat_", a));
        return;
    }
    if (f->width > 1) text_line(out, "const int %s_even_ = sol_even(%s);", a, s->p.loops->tensors.at[x->tensor].name);
    text_line(out, "const @GLOBAL @real *%s_p_[%d];", a, n);
    for (int d = 0; d < x->ndim; d++)
        if (x->border[d]) text_line(out, "int64_t %s_i%d_[%d];", a, d, n);
    unroll(s);
    text_open(out, "for (int i_ = 0; i_ < %d; i_++) {", n);
    if (f->deep)
        flat =
            SAY("@sol_min_i64(%s + %s_at_ + i_ * %d, %lld)", f->first, a, step, (long long)size_sub(f->own->size, 1));
    text_line(out, "const int64_t flat_ = %s;", flat);
    simt_digits(s, f->own, "flat_");
    struct offset o = {.arena = s->p.arena, .constant = x->view.c};
    for (int i = 0; i < s->p.loops->ivars.n; i++)
        if (!set_has(s->p.k, i)) offset_add(&o, s->p.loops->ivars.at[i].name, x->view.s[i]);
    text_line(out, "%s_p_[i_] = %s;", a, offset_from(&o, s->p.loops->tensors.at[x->tensor].name));
    for (int d = 0; d < x->ndim; d++) {
        struct offset at = {.arena = s->p.arena,
                            .constant = size_add(x->index[d].c, s->p.c->memory[x->tensor].halo_low[d])};
        for (int i = 0; i < x->index[d].n; i++)
            if (!set_has(s->p.k, x->index[d].ivar[i]))
                offset_add(&at, s->p.loops->ivars.at[x->index[d].ivar[i]].name, x->index[d].coef[i]);
        if (x->border[d]) text_line(out, "%s_i%d_[i_] = %s;", a, d, offset_text(&at));
    }
    text_close(out, "}");
}

/* The value of digit i of K for a load. */
static const char *digit_of(const struct simt *s, const struct simt_factor *f, int i)
{
    const char *name = s->p.loops->ivars.at[s->k.ivar[i]].name;
    if (i < s->k.n - 1 || !steps_inside(s)) return name;
    return f->deep ? SAY("(%s + %s_deep_)", name, f->name)
                   : SAY("(%s + %s_deep_ + i_ * %d)", name, f->name, s->items / f->across);
}

/* Declares the digits of K of a load as numbers of a type; they are not negative. */
static void put_digits(const struct simt *s, const struct simt_factor *f, const char *flat)
{
    const struct simt_order *k = &s->k;
    const char *type = f->plain ? number_type(s) : "int64_t";
    if (!strcmp(number_type(s), "int")) flat = SAY("(uint32_t)%s", flat);
    int64_t inner = k->size;
    for (int i = 0; i < k->n; i++) {
        inner = 1;
        for (int j = i + 1; j < k->n; j++) inner = size_mul(inner, k->digit[j]);
        const char *at = text_over(s->p.arena, flat, inner);
        text_line(s->out, "const %s %s = (%s)(%s);", type, s->p.loops->ivars.at[k->ivar[i]].name, type,
                  i ? text_modulo(s->p.arena, at, k->digit[i]) : at);
    }
}

/* The condition under which a load reads something; NULL: it always does. */
static const char *condition(const struct simt *s, const struct simt_factor *f)
{
    struct text t = text_new(s->p.arena);
    const struct operand *x = f->x;
    const int n = f->wide * s->depth / f->width;
    if (!f->all) text_put(&t, " && item_ < %d", n);
    if (!divides(s->k.size, s->depth)) text_put(&t, " && k_ < end_");
    for (int d = 0; d < x->ndim && f->plain; d++) {
        if (!x->border[d]) continue;
        const struct memory *m = &s->p.c->memory[x->tensor];
        struct offset at = {.arena = s->p.arena};
        offset_add(&at, SAY("%s_i%d_[%s]", f->name, d, f->deep ? "i_" : "0"), 1);
        for (int i = 0; i < s->k.n; i++)
            for (int j = 0; j < x->index[d].n; j++)
                if (x->index[d].ivar[j] == s->k.ivar[i]) offset_add(&at, digit_of(s, f, i), x->index[d].coef[j]);
        text_put(
            &t, " && (uint64_t)(%s) < %lld", offset_text(&at),
            (long long)size_add(size_add(s->p.loops->tensors.at[x->tensor].shape[d], m->halo_low[d]), m->halo_high[d]));
    }
    return t.n ? t.at + 4 : NULL;
}

/* One load of a plain factor, at the digits of K. */
static void put_load(const struct simt *s, const struct simt_factor *f)
{
    static const char *const member[] = {"x", "y", "z", "w"};
    struct text *out = s->out;
    const char *a = f->name, *if_ = condition(s, f);
    struct offset o = {.arena = s->p.arena};
    for (int i = 0; i < s->k.n; i++) offset_add(&o, digit_of(s, f, i), f->x->view.s[s->k.ivar[i]]);
    const char *at = SAY("%s_p_[%s] + (%s)(%s)", a, f->deep ? "i_" : "0", offset_type(s, f->x), offset_text(&o));
    if (f->width == 1) {
        text_line(out, if_ ? "%s_x_[i_] = %s ? *(%s) : 0;" : "%s_x_[i_] = %s*(%s);", a, if_ ? if_ : "", at);
        return;
    }
    struct text zero = text_new(s->p.arena);
    for (int i = 0; i < f->width; i++) text_put(&zero, "%s_x_[i_].%s = ", a, member[i]);
    if (if_) text_line(out, "%s0;", zero.at);
    text_line(out, "%s%s%s%s_x_[i_] = sol_load%d(%s, %s_even_);", if_ ? "if (" : "", if_ ? if_ : "", if_ ? ") " : "", a,
              f->width, at, a);
}

/* Reads the step of the sum that begins at `from_` to registers. */
static void put_loads(struct simt *s, const struct simt_factor *f)
{
    struct text *out = s->out;
    const char *a = f->name;
    const int step = s->items / f->across;
    const bool inside = f->plain && steps_inside(s);
    text_open(out, "{");
    if (inside) put_digits(s, f, "from_");
    if (f->deep) {
        text_line(out, "const %s k_ = from_ + %s_deep_;", number_type(s), a);
        text_line(out, "(void)k_;");
        if (!inside) put_digits(s, f, "k_");
    }
    unroll(s);
    text_open(out, "for (int i_ = 0; i_ < %d; i_++) {", f->loads);
    if (!f->deep) {
        text_line(out, "const %s k_ = from_ + %s_deep_ + i_ * %d;", number_type(s), a, step);
        text_line(out, "(void)k_;");
    }
    if (!f->plain) {
        const char *if_ = condition(s, f);
        text_line(out, "%s_x_[i_] = 0;", a);
        text_open(out, "if (%s) {", if_ ? if_ : "1");
        put_digits(s, f, "k_");
        const char *value = print_value(&s->pe, f->x->view.node, s->p.dtype);
        text_line(out, "%s_x_[i_] = %s;", a, text_bare(s->p.arena, value));
        text_close(out, "}");
    } else {
        if (!f->deep && !inside) put_digits(s, f, "k_");
        put_load(s, f);
    }
    text_close(out, "}");
    text_close(out, "}");
}

/* Stores what was read to buffer `next_` of shared memory. */
static void put_stores(const struct simt *s, const struct simt_factor *f)
{
    static const char *const member[] = {".x", ".y", ".z", ".w"};
    struct text *out = s->out;
    const char *a = f->name;
    const int step = s->items / f->across;
    if (!f->all) text_line(out, "if (item_ < %d)", f->wide * s->depth / f->width);
    text_open(out, "{");
    unroll(s);
    text_open(out, "for (int i_ = 0; i_ < %d; i_++) {", f->loads);
    for (int j = 0; j < f->width && f->deep; j++)
        text_line(out, "%ss_[next_][%s][%s_at_ + i_ * %d] = %s;", a, simt_mma_row(s, SAY("%s_deep_ + %d", a, j)), a,
                  step, simt_mma_stored(s, SAY("%s_x_[i_]%s", a, f->width > 1 ? member[j] : "")));
    const char *row = simt_mma_row(s, SAY("%s_deep_ + i_ * %d", a, step));
    for (int j = 0; j < f->width && !f->deep && f->width > 1 && s->products == 1; j++)
        text_line(out, "%s_x_[i_]%s = sol_tf32(%s_x_[i_]%s);", a, member[j], a, member[j]);
    if (!f->deep && f->width == 1)
        text_line(out, "%ss_[next_][%s][%s_at_] = %s;", a, row, a, simt_mma_stored(s, SAY("%s_x_[i_]", a)));
    else if (!f->deep)
        text_line(out, "sol_store%d(%s_x_[i_], &%ss_[next_][%s][%s_at_], 1);", f->width, a, a, row, a);
    text_close(out, "}");
    text_close(out, "}");
}

/* Reads a row or column of an item's tile from shared memory. */
static void put_fragment(const struct simt *s, const char *to, const char *first, int tile, int items)
{
    static const char *const member[] = {"x", "y", "z", "w"};
    struct text *out = s->out;
    const int n = piece(s, tile), wide = wide_of(s);
    unroll(s);
    text_open(out, "for (int i_ = 0; i_ < %d; i_++) {", tile / n);
    if (n == wide) {
        text_line(out, "const @pack x_ = sol_load%d(&%ss_[1 - next_][d_][%s + i_ * %d], 1);", n, to, first, items * n);
        for (int j = 0; j < n; j++) text_line(out, "%s_[i_ * %d + %d] = x_.%s;", to, n, j, member[j]);
    } else {
        text_line(out, "%s_[i_] = %ss_[1 - next_][d_][%s + i_ * %d];", to, to, first, items * n);
    }
    text_close(out, "}");
}

static void each_sum(const struct simt *s, const char *statement)
{
    unroll(s);
    text_line(s->out, "for (int i_ = 0; i_ < %d; i_++)", s->tile_rows);
    unroll(s);
    text_line(s->out, "    for (int j_ = 0; j_ < %d; j_++) %s", s->tile_cols, statement);
}

static void put_products(const struct simt *s)
{
    struct text *out = s->out;
    unroll(s);
    text_open(out, "for (int d_ = 0; d_ < %d; d_++) {", s->depth);
    text_line(out, "@real a_[%d], b_[%d];", s->tile_rows, s->tile_cols);
    put_fragment(s, "a", "row_", s->tile_rows, s->rows / s->tile_rows);
    put_fragment(s, "b", "col_", s->tile_cols, s->cols / s->tile_cols);
    each_sum(s, "sum_[i_][j_] += a_[i_] * b_[j_];");
    text_close(out, "}");
}

/* Multiplies the step that is in shared memory. Units for small matrices take factors in parts, which an infinite one,
 * or one that rounds to infinity, does not have: such blocks are computed again, without them. */
static void put_step(const struct simt *s)
{
    struct text *out = s->out;
    if (s->products == 3) text_open(out, "if (plain_) {");
    if (s->products != 1) put_products(s);
    if (s->products == 3) {
        text_close(out, "}");
        text_open(out, "else {");
    }
    if (s->products) simt_mma_products(s);
    if (s->products == 3) text_close(out, "}");
}

/* Adds up the products of a block. */
static void put_sum(struct simt *s)
{
    struct text *out = s->out;
    const struct simt_factor *const f[] = {&s->a, &s->b};
    const char *type = number_type(s);
    each_sum(s, s->chunks ? "sum_[i_][j_] = total_[i_][j_] = 0;" : "sum_[i_][j_] = 0;");
    text_line(out, "int next_ = 0;");
    text_open(out, "for (%s from_ = (%s)begin_ - %d; from_ < (%s)end_;) {", type, type, s->depth, type);
    text_line(out, "const %s now_ = from_;", type);
    text_line(out, "from_ += %d;", s->depth);
    text_open(out, "if (from_ < end_) {");
    for (int i = 0; i < 2; i++) put_loads(s, f[i]);
    text_close(out, "}");
    text_open(out, "if (now_ >= begin_) {");
    put_step(s);
    if (s->chunks) {
        text_open(out, "if ((now_ - begin_) %% %d == %d) {", SIMT_CHUNK, SIMT_CHUNK - s->depth);
        each_sum(s, "total_[i_][j_] += sum_[i_][j_], sum_[i_][j_] = 0;");
        text_close(out, "}");
    }
    text_close(out, "}");
    text_open(out, "if (from_ < end_) {");
    for (int i = 0; i < 2; i++) put_stores(s, f[i]);
    text_close(out, "}");
    text_line(out, "@BARRIER;");
    text_line(out, "next_ = 1 - next_;");
    text_close(out, "}");
    if (s->chunks) each_sum(s, "sum_[i_][j_] += total_[i_][j_];");
}

void simt_card_sum(struct simt *s)
{
    struct text *out = s->out;
    const struct simt_factor *const f[] = {&s->a, &s->b};
    text_line(out, "@real sum_[%d][%d];", s->tile_rows, s->tile_cols);
    if (s->chunks) text_line(out, "@real total_[%d][%d];", s->tile_rows, s->tile_cols);
    for (int i = 0; i < 2; i++) {
        put_places(s, f[i]);
        text_line(out, "%s %s_x_[%d];", f[i]->width > 1 ? "@pack" : "@real", f[i]->name, f[i]->loads);
    }
    text_open(out, s->products == 3 ? "for (int plain_ = 0;; plain_ = 1) {" : "{");
    put_sum(s);
    if (s->products == 3) {
        text_line(out, "int finite_ = 1;");
        each_sum(s, "finite_ &= sum_[i_][j_] - sum_[i_][j_] == 0;");
        text_line(out, "if (plain_ || !sol_any(!finite_)) break;");
    }
    text_close(out, "}");
}
