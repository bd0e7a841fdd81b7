/* The parts of attention's kernels on graphics cards that forward and gradient share: blocks of a factor on their way
 * from global to shared memory, and products of tiles. */
#include "dnn/attention_simt.h"

#undef SAY
#define SAY(...) arena_printf(g->arena, __VA_ARGS__)

/* Neighbouring items that read different rows. */
enum { WARP = 32, NEAR = 8 };

static const char *const member[] = {"x", "y", "z", "w"};

void group_open_each(const struct attention_group *g, const char *index, int n)
{
    text_line(g->out, "#pragma unroll");
    text_open(g->out, "for (int %s = 0; %s < %d; %s++) {", index, index, n, index);
}

void group_put_zeros(const struct attention_group *g, const char *name, int rows, int cols)
{
    group_open_each(g, "i_", rows);
    text_line(g->out, "#pragma unroll");
    text_line(g->out, "for (int j_ = 0; j_ < %d; j_++) %s[i_][j_] = 0;", cols, name);
    text_close(g->out, "}");
}

/* -- from global to shared memory */

static bool divides(int64_t n, int by)
{
    return !size_varies(n) ? n % by == 0 : size_factor(n) % by == 0;
}

int group_width(const struct attention_group *g, const struct attention_factor *x, int64_t depth)
{
    return x->column == 1 && depth % g->wide == 0 && divides(x->row, g->wide) ? g->wide : 1;
}

static int width_of(const struct attention_group *g, const struct attention_copy *c)
{
    return group_width(g, c->x, c->depth);
}

/* Declares row `r_` and piece `c_` of load `l_`. Of a turned factor, neighbouring items store rows of one piece, next
 * to each other, and read some pieces of one row. */
static void put_load_place(const struct attention_group *g, const struct attention_copy *c, int pieces)
{
    const int near = MIN(NEAR, c->rows), deep = WARP / near;
    if (!c->turned) {
        text_line(g->out, "const int r_ = l_ / %d, c_ = l_ %% %d;", pieces, pieces);
        return;
    }
    text_line(g->out, "const int r_ = l_ / %d %% %d * %d + l_ %% %d, c_ = l_ / %d * %d + l_ %% %d / %d;", WARP,
              c->rows / near, near, near, WARP * (c->rows / near), deep, WARP, near);
}

static void put_store_of(const struct attention_group *g, const struct attention_copy *c, int width)
{
    for (int i = 0; i < width && c->turned; i++)
        text_line(g->out, "%ss_[c_ * %d + %d][r_] = %s_x_[i_]%s%s;", c->name, width, i, c->name, width > 1 ? "." : "",
                  width > 1 ? member[i] : "");
    if (!c->turned && width > 1)
        text_line(g->out, "sol_store%d(%s_x_[i_], &%ss_[r_][c_ * %d], 1);", width, c->name, c->name, width);
    else if (!c->turned)
        text_line(g->out, "%ss_[r_][c_] = %s_x_[i_];", c->name, c->name);
}

static int pieces_of(const struct attention_group *g, const struct attention_copy *c)
{
    const int width = width_of(g, c), deep = WARP / MIN(NEAR, c->rows);
    return c->turned ? (c->depth / width + deep - 1) / deep * deep : c->filled / width;
}

int group_loads(const struct attention_group *g, const struct attention_copy *c)
{
    return (c->rows * pieces_of(g, c) + g->items - 1) / g->items;
}

const char *group_type(const struct attention_group *g, const struct attention_copy *c)
{
    return width_of(g, c) > 1 ? "@pack" : "@real";
}

void group_put_loads(const struct attention_group *g, const struct attention_copy *c, int n)
{
    struct text *out = g->out;
    const int width = width_of(g, c), pieces = pieces_of(g, c), all = c->rows * pieces;
    const char *exists = SAY("%sc_ < %d && %s + r_ < %s", all % (n * g->items) ? SAY("l_ < %d && ", all) : "",
                             c->depth / width, c->first, c->end);
    const char *at = SAY("%s_ + (%s + r_) * %lld + c_ * %lld", c->name, c->first, (long long)c->x->row,
                         (long long)size_mul(c->x->column, width));
    group_open_each(g, "i_", n);
    text_line(out, "const int l_ = at_ + i_ * %d;", g->items);
    put_load_place(g, c, pieces);
    struct text zero = text_new(g->arena);
    for (int i = 0; i < width; i++)
        text_put(&zero, "%s_x_[i_]%s%s = ", c->name, width > 1 ? "." : "", width > 1 ? member[i] : "");
    text_line(out, "%s0;", zero.at);
    const char *load = width > 1 ? SAY("sol_load%d(%s, %s_even_)", width, at, c->name) : SAY("*(%s)", at);
    text_line(out, "if (%s) %s_x_[i_] = %s;", exists, c->name, load);
    text_close(out, "}");
}

void group_put_stores(const struct attention_group *g, const struct attention_copy *c, int n)
{
    struct text *out = g->out;
    const int width = width_of(g, c), pieces = pieces_of(g, c), all = c->rows * pieces;
    const char *in = SAY("%s%s", all % (n * g->items) ? SAY("l_ < %d", all) : "1",
                         c->turned && pieces > c->depth / width ? SAY(" && c_ < %d", c->depth / width) : "");
    group_open_each(g, "i_", n);
    text_line(out, "const int l_ = at_ + i_ * %d;", g->items);
    put_load_place(g, c, pieces);
    text_open(out, "if (%s) {", in);
    put_store_of(g, c, width);
    text_close(out, "}");
    text_close(out, "}");
}

void group_put_copy(const struct attention_group *g, const struct attention_copy *c, int most)
{
    struct text *out = g->out;
    const int n = MIN(most, group_loads(g, c));
    text_open(out, "for (int at_ = item_; at_ < %d; at_ += %d) {", c->rows * pieces_of(g, c), n * g->items);
    text_line(out, "%s %s_x_[%d];", group_type(g, c), c->name, n);
    group_put_loads(g, c, n);
    group_put_stores(g, c, n);
    text_close(out, "}");
}

void group_put_source(const struct attention_group *g, const char *name, const char *address, int width)
{
    text_line(g->out, "const @GLOBAL @real *const %s_ = %s;", name, address);
    if (width > 1) text_line(g->out, "const int %s_even_ = sol_even(%s_);", name, name);
}

/* -- products */

/* Reads `n` neighbours of a row in shared memory, or pieces of it that are `step` apart. */
static void put_fragment(const struct attention_group *g, const char *to, const char *from, int n, int step)
{
    struct text *out = g->out;
    const bool packs = n % g->wide == 0;
    group_open_each(g, "i_", packs ? n / g->wide : n);
    if (packs) {
        text_line(out, "const @pack x_ = sol_load%d(&%s + i_ * %d], 1);", g->wide, from, step * g->wide);
        for (int j = 0; j < g->wide; j++) text_line(out, "%s[i_ * %d + %d] = x_.%s;", to, g->wide, j, member[j]);
    } else {
        text_line(out, "%s[i_] = %s + i_];", to, from);
    }
    text_close(out, "}");
}

/* Both factors lie by element of the sum: a step is one of them. */
static void put_across(const struct attention_group *g, const struct attention_product *p)
{
    struct text *out = g->out;
    text_line(out, "#pragma unroll 8");
    text_open(out, "for (int d_ = 0; d_ < %s; d_++) {", p->depth);
    text_line(out, "@real a_[%d], b_[%d];", p->rows, p->cols);
    put_fragment(g, "a_", SAY("%s[d_][%s", p->left, p->row), p->rows, 1);
    put_fragment(g, "b_", SAY("%s[d_][%s * %d", p->right, p->column, g->wide), p->cols, p->across);
    group_open_each(g, "i_", p->rows);
    group_open_each(g, "j_", p->cols);
    text_line(out, "%s[i_][j_] += a_[i_] * b_[j_];", p->to);
    for (int i = 0; i < 3; i++) text_close(out, "}");
}

/* A row of the left factor has the elements of the sum: a step is as many as one load reads. */
static void put_along(const struct attention_group *g, const struct attention_product *p)
{
    struct text *out = g->out;
    text_line(out, "#pragma unroll 2");
    text_open(out, "for (int d_ = 0; d_ < %s; d_ += %d) {", p->depth, g->wide);
    if (p->right_along) {
        text_line(out, "@pack b_[%d];", p->cols);
        group_open_each(g, "j_", p->cols);
        text_line(out, "b_[j_] = sol_load%d(&%s[j_ * %d + %s][d_], 1);", g->wide, p->right, p->across, p->column);
        text_close(out, "}");
    } else {
        text_line(out, "@real b_[%d][%d];", g->wide, p->cols);
        for (int u = 0; u < g->wide; u++)
            put_fragment(g, SAY("b_[%d]", u), SAY("%s[d_ + %d][%s * %d", p->right, u, p->column, g->wide), p->cols,
                         p->across);
    }
    group_open_each(g, "i_", p->rows);
    text_line(out, "const @pack a_ = sol_load%d(&%s[i_ * %d + %s][d_], 1);", g->wide, p->left, p->down, p->row);
    for (int u = 0; u < g->wide; u++) {
        group_open_each(g, "j_", p->cols);
        text_line(out, "%s[i_][j_] += a_.%s * %s;", p->to, member[u],
                  p->right_along ? SAY("b_[j_].%s", member[u]) : SAY("b_[%d][j_]", u));
        text_close(out, "}");
    }
    text_close(out, "}");
    text_close(out, "}");
}

void group_put_product(const struct attention_group *g, const struct attention_product *p)
{
    if (p->left_along)
        put_along(g, p);
    else
        put_across(g, p);
}

/* The column of element j_ of an item's tile of pieces. */
const char *group_column(const struct attention_group *g, int across, const char *column)
{
    return SAY("j_ / %d * %d + %s * %d + j_ %% %d", g->wide, across * g->wide, column, g->wide, g->wide);
}
