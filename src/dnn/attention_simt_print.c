/* Prints attention for a graphics card. A work group keeps its block of queries in shared memory, and reads a block of
 * keys and of values after the other: values while it computes scores, and the next keys while it adds up values.
 * Queries and keys lie there by element, so that an item reads neighbouring rows and columns of its tile at once. As in
 * attention_print.c, weights are exp(score - m) with the largest score m of a query so far, and when it grows, what was
 * added up before is multiplied by exp(old m - new m); blocks of keys that the guard excludes for all queries of the
 * group are skipped. Each item adds up the weights of its own columns, and they are joined at the end. */
#include "dnn/attention_simt.h"

#undef SAY
#define SAY(...) arena_printf(s->a.arena, __VA_ARGS__)

/* Neighbouring items that read different rows; loads before their stores; and registers, of sums and of loads that wait
 * for products. */
enum { WARP = 32, NEAR = 8, ROUND = 4, KEPT = 64 };

static const char *const member[] = {"x", "y", "z", "w"};

static const char *read_hook(void *user, struct print_expr *p, int32_t node)
{
    const struct attention_printing *w = user;
    const struct attention *a = w->a;
    const int tensor = a->loops->ex.at[node].tensor;
    (void)p;
    return tensor == a->scored  ? w->scored
           : tensor == a->mixed ? w->mixed
           : tensor == a->m     ? "m_[i_]"
           : tensor == a->z     ? "z_[i_]"
                                : NULL;
}

static void open_each(const struct attention_simt *s, const char *index, int n)
{
    text_line(s->out, "#pragma unroll");
    text_open(s->out, "for (int %s = 0; %s < %d; %s++) {", index, index, n, index);
}

/* -- from global to shared memory */

static bool divides(int64_t n, int by)
{
    return !size_varies(n) ? n % by == 0 : size_factor(n) % by == 0;
}

/* Elements of a row that an item reads at once. */
int attention_simt_width(const struct attention_simt *s, const struct attention_factor *x, int64_t depth)
{
    return x->column == 1 && depth % s->wide == 0 && divides(x->row, s->wide) ? s->wide : 1;
}

struct copy { /* of `rows` rows, the first of which is `first` */
    const struct attention_factor *x;
    const char *name, *first, *end; /* rows from `end` on are 0 */
    int rows, depth;
    bool turned; /* elements of a row lie in different rows of shared memory; otherwise rows are filled with 0 */
};

/* Declares row `r_` and piece `c_` of load `l_`. Of a turned factor, neighbouring items store rows of one piece, next
 * to each other, and read some pieces of one row. */
static void put_load_place(const struct attention_simt *s, const struct copy *c, int pieces)
{
    const int near = MIN(NEAR, c->rows), deep = WARP / near;
    if (!c->turned) {
        text_line(s->out, "const int r_ = l_ / %d, c_ = l_ %% %d;", pieces, pieces);
        return;
    }
    text_line(s->out, "const int r_ = l_ / %d %% %d * %d + l_ %% %d, c_ = l_ / %d * %d + l_ %% %d / %d;", WARP,
              c->rows / near, near, near, WARP * (c->rows / near), deep, WARP, near);
}

static void put_store_of(const struct attention_simt *s, const struct copy *c, int width)
{
    for (int i = 0; i < width && c->turned; i++)
        text_line(s->out, "%ss_[c_ * %d + %d][r_] = %s_x_[i_]%s%s;", c->name, width, i, c->name, width > 1 ? "." : "",
                  width > 1 ? member[i] : "");
    if (!c->turned && width > 1)
        text_line(s->out, "sol_store%d(%s_x_[i_], &%ss_[r_][c_ * %d], 1);", width, c->name, c->name, width);
    else if (!c->turned)
        text_line(s->out, "%ss_[r_][c_] = %s_x_[i_];", c->name, c->name);
}

static int pieces_of(const struct attention_simt *s, const struct copy *c)
{
    const int width = attention_simt_width(s, c->x, c->depth), deep = WARP / MIN(NEAR, c->rows);
    return c->turned ? (c->depth / width + deep - 1) / deep * deep : s->pitch_v / width;
}

/* An item's loads. */
static int loads_of(const struct attention_simt *s, const struct copy *c)
{
    return (c->rows * pieces_of(s, c) + s->items - 1) / s->items;
}

static const char *type_of(const struct attention_simt *s, const struct copy *c)
{
    return attention_simt_width(s, c->x, c->depth) > 1 ? "@pack" : "@real";
}

/* `n` loads of an item to registers, from load `at_` on. */
static void put_loads(const struct attention_simt *s, const struct copy *c, int n)
{
    struct text *out = s->out;
    const int width = attention_simt_width(s, c->x, c->depth), pieces = pieces_of(s, c), all = c->rows * pieces;
    const char *exists = SAY("%sc_ < %d && %s + r_ < %s", all % (n * s->items) ? SAY("l_ < %d && ", all) : "",
                             c->depth / width, c->first, c->end);
    const char *at = SAY("%s_ + (%s + r_) * %lld + c_ * %lld", c->name, c->first, (long long)c->x->row,
                         (long long)size_mul(c->x->column, width));
    open_each(s, "i_", n);
    text_line(out, "const int l_ = at_ + i_ * %d;", s->items);
    put_load_place(s, c, pieces);
    struct text zero = text_new(s->a.arena);
    for (int i = 0; i < width; i++)
        text_put(&zero, "%s_x_[i_]%s%s = ", c->name, width > 1 ? "." : "", width > 1 ? member[i] : "");
    text_line(out, "%s0;", zero.at);
    const char *load = width > 1 ? SAY("sol_load%d(%s, %s_even_)", width, at, c->name) : SAY("*(%s)", at);
    text_line(out, "if (%s) %s_x_[i_] = %s;", exists, c->name, load);
    text_close(out, "}");
}

static void put_stores(const struct attention_simt *s, const struct copy *c, int n)
{
    struct text *out = s->out;
    const int width = attention_simt_width(s, c->x, c->depth), pieces = pieces_of(s, c), all = c->rows * pieces;
    const char *in = SAY("%s%s", all % (n * s->items) ? SAY("l_ < %d", all) : "1",
                         c->turned && pieces > c->depth / width ? SAY(" && c_ < %d", c->depth / width) : "");
    open_each(s, "i_", n);
    text_line(out, "const int l_ = at_ + i_ * %d;", s->items);
    put_load_place(s, c, pieces);
    text_open(out, "if (%s) {", in);
    put_store_of(s, c, width);
    text_close(out, "}");
    text_close(out, "}");
}

static struct copy copy_of(const struct attention_simt *s, const char *name, const char *first)
{
    const struct attention *a = &s->a;
    if (*name == 'q')
        return (struct copy){&a->q, name, first, "count_", a->queries, (int)attention_size(a, a->d), true};
    if (*name == 'k') return (struct copy){&a->k, name, first, "to_", a->keys, (int)attention_size(a, a->d), true};
    return (struct copy){&a->v, name, first, "to_", a->keys, (int)attention_size(a, a->e), false};
}

/* Are there so few loads that registers keep their values during products? */
static bool early(const struct attention_simt *s, const struct copy *c)
{
    const int elements = s->rows * s->values + loads_of(s, c) * attention_simt_width(s, c->x, c->depth);
    return elements * dtype_def(s->a.dtype)->bytes / 4 <= KEPT;
}

bool attention_simt_early(const struct attention_simt *s)
{
    const struct copy k = copy_of(s, "k", ""), v = copy_of(s, "v", "");
    return early(s, &k) && early(s, &v);
}

/* Reads a block of a factor early, while products run, if registers are enough. */
static void put_early(const struct attention_simt *s, const char *name, const char *first)
{
    const struct copy c = copy_of(s, name, first);
    if (!early(s, &c)) return;
    text_open(s->out, "{");
    text_line(s->out, "const int at_ = item_;");
    put_loads(s, &c, loads_of(s, &c));
    text_close(s->out, "}");
}

/* Stores a block to shared memory, which is read now if it was not early. */
static void put_copy(const struct attention_simt *s, const char *name, const char *first)
{
    struct text *out = s->out;
    const struct copy c = copy_of(s, name, first);
    const bool kept = *name != 'q' && early(s, &c);
    const int n = kept ? loads_of(s, &c) : MIN(ROUND, loads_of(s, &c)), all = c.rows * pieces_of(s, &c);
    text_open(out, "for (int at_ = item_; at_ < %d; at_ += %d) {", kept ? s->items : all, n * s->items);
    if (!kept) {
        text_line(out, "%s %s_x_[%d];", type_of(s, &c), name, n);
        put_loads(s, &c, n);
    }
    put_stores(s, &c, n);
    text_close(out, "}");
}

/* -- products */

/* Reads `n` neighbours of a row in shared memory, or pieces of it that are `step` apart. */
static void put_fragment(const struct attention_simt *s, const char *to, const char *from, int n, int step)
{
    struct text *out = s->out;
    const bool packs = n % s->wide == 0;
    open_each(s, "i_", packs ? n / s->wide : n);
    if (packs) {
        text_line(out, "const @pack x_ = sol_load%d(&%s + i_ * %d], 1);", s->wide, from, step * s->wide);
        for (int j = 0; j < s->wide; j++) text_line(out, "%s[i_ * %d + %d] = x_.%s;", to, s->wide, j, member[j]);
    } else {
        text_line(out, "%s[i_] = %s + i_];", to, from);
    }
    text_close(out, "}");
}

/* sum[rows][cols] += left[row] * right[col], for each of `depth` elements */
static void put_products(const struct attention_simt *s, int depth, const char *names[3], int cols)
{
    struct text *out = s->out;
    text_line(out, "#pragma unroll 8");
    text_open(out, "for (int d_ = 0; d_ < %d; d_++) {", depth);
    text_line(out, "@real a_[%d], b_[%d];", s->rows, cols);
    put_fragment(s, "a_", SAY("%s[d_][row_", names[0]), s->rows, 1);
    put_fragment(s, "b_", SAY("%s[d_][across_ * %d", names[1], s->wide), cols, s->across);
    open_each(s, "i_", s->rows);
    open_each(s, "j_", cols);
    text_line(out, "%s[i_][j_] += a_[i_] * b_[j_];", names[2]);
    text_close(out, "}");
    text_close(out, "}");
    text_close(out, "}");
}

/* -- the softmax */

/* The column of element j_ of an item's tile. */
static const char *column(const struct attention_simt *s)
{
    return SAY("j_ / %d * %d + across_ * %d + j_ %% %d", s->wide, s->across * s->wide, s->wide, s->wide);
}

/* Sums become scores; those past the last key, and outside of the guard, -inf. Queries and keys that do not exist get
 * the score of the last one. */
static void put_scores(struct attention_simt *s, bool guarded)
{
    struct attention *a = &s->a;
    struct attention_printing *w = s->w;
    struct text *out = s->out;
    const char *t = attention_name(a, a->t), *key = attention_name(a, a->s);
    open_each(s, "i_", s->rows);
    text_line(out, "const int64_t %s = @sol_min_i64(t0_ + row_ + i_, last_);", t);
    text_line(out, "(void)%s;", t);
    open_each(s, "j_", s->cols);
    text_line(out, "const int64_t at_ = k0_ + %s;", column(s));
    text_line(out, "const int64_t %s = @sol_min_i64(at_, to_ - 1);", key);
    text_line(out, "const @real sum_ = x_[i_][j_];");
    w->scored = "sum_";
    const char *value = print_value(&w->p, a->score, a->dtype);
    if (guarded) value = SAY("%s ? %s : -@INFINITY", print_condition(&w->p, a->guard), value);
    text_line(out, "x_[i_][j_] = at_ < to_ ? (@real)(%s) : -@INFINITY;", text_bare(a->arena, value));
    text_close(out, "}");
    text_close(out, "}");
}

static void put_all_scores(struct attention_simt *s, const struct attention_range *range)
{
    struct text *out = s->out;
    const bool inside = s->a.guard && range->all_from;
    if (inside) {
        text_open(out, "if (k0_ >= all0_ && k0_ + %d <= all1_) {", s->a.keys);
        put_scores(s, false);
        text_close(out, "} else {");
        out->indent++;
    }
    put_scores(s, s->a.guard != 0);
    if (!inside) return;
    text_close(out, "}");
}

/* Joins a number of each row among the items of the row: all get the result. */
static void put_join(const struct attention_simt *s, const char *name, const char *join)
{
    struct text *out = s->out;
    if (s->pairs) {
        open_each(s, "i_", s->rows);
        text_line(out, "#pragma unroll");
        text_open(out, "for (int n_ = 1; n_ < %d; n_ *= 2) {", s->across);
        text_line(out, "const @real x_ = @NEIGHBOUR(%s[i_], n_), y_ = %s[i_];", name, name);
        text_line(out, "%s[i_] = %s;", name, join);
        text_close(out, "}");
        text_close(out, "}");
        return;
    }
    open_each(s, "i_", s->rows);
    text_line(out, "ps_[0][i_ * %d + item_] = %s[i_];", s->items, name);
    text_close(out, "}");
    text_line(out, "@BARRIER;");
    open_each(s, "i_", s->rows);
    text_line(out, "@real y_ = ps_[0][i_ * %d + item_ / %d * %d];", s->items, s->across, s->across);
    text_open(out, "for (int n_ = 1; n_ < %d; n_++) {", s->across);
    text_line(out, "const @real x_ = ps_[0][i_ * %d + item_ / %d * %d + n_];", s->items, s->across, s->across);
    text_line(out, "y_ = %s;", join);
    text_close(out, "}");
    text_line(out, "%s[i_] = y_;", name);
    text_close(out, "}");
    text_line(out, "@BARRIER;");
}

/* Scores become weights, in shared memory. */
static void put_weights(const struct attention_simt *s)
{
    struct text *out = s->out;
    const char *f = s->a.dtype == SOL_F32 ? "f" : "";
    text_line(out, "@real top_[%d];", s->rows);
    open_each(s, "i_", s->rows);
    text_line(out, "top_[i_] = -@INFINITY;");
    text_line(out, "#pragma unroll");
    text_line(out, "for (int j_ = 0; j_ < %d; j_++) top_[i_] = x_[i_][j_] > top_[i_] ? x_[i_][j_] : top_[i_];",
              s->cols);
    text_close(out, "}");
    put_join(s, "top_", "x_ > y_ ? x_ : y_");
    open_each(s, "i_", s->rows);
    text_line(out, "const @real old_ = m_[i_];");
    text_line(out, "m_[i_] = top_[i_] > old_ ? top_[i_] : old_;");
    text_line(out, "const @real base_ = m_[i_] == -@INFINITY ? 0 : m_[i_], part_ = @exp%s(old_ - base_);", f);
    text_line(out, "z_[i_] *= part_;");
    text_line(out, "#pragma unroll");
    text_line(out, "for (int j_ = 0; j_ < %d; j_++) y_[i_][j_] *= part_;", s->values);
    text_line(out, "#pragma unroll");
    text_open(out, "for (int j_ = 0; j_ < %d; j_++) {", s->cols);
    text_line(out, "x_[i_][j_] = @exp%s(x_[i_][j_] - base_);", f);
    text_line(out, "z_[i_] += x_[i_][j_];");
    text_close(out, "}");
    text_close(out, "}");
    open_each(s, "j_", s->cols);
    text_line(out, "@SHARED @real *const p_ = &ps_[%s][row_];", column(s));
    const bool packs = s->rows % s->wide == 0;
    open_each(s, "i_", packs ? s->rows / s->wide : s->rows);
    if (packs) {
        text_line(out, "@pack w_;");
        for (int i = 0; i < s->wide; i++) text_line(out, "w_.%s = x_[i_ * %d + %d][j_];", member[i], s->wide, i);
        text_line(out, "sol_store%d(w_, p_ + i_ * %d, 1);", s->wide, s->wide);
    } else {
        text_line(out, "p_[i_] = x_[i_][j_];");
    }
    text_close(out, "}");
    text_close(out, "}");
}

/* -- a task */

static void put_blocks(struct attention_simt *s)
{
    struct attention *a = &s->a;
    struct text *out = s->out;
    const struct attention_range range = attention_put_range(s->w, out);
    text_line(out, "const int64_t from_ = %s, to_ = %s;", range.from, range.to);
    if (a->guard && range.all_from)
        text_line(out, "const int64_t all0_ = %s, all1_ = %s;", range.all_from, range.all_to);
    for (int i = 0; i < 2; i++) {
        const struct copy c = copy_of(s, i ? "v" : "k", "from_");
        if (early(s, &c)) text_line(out, "%s %s_x_[%d];", type_of(s, &c), c.name, loads_of(s, &c));
    }
    put_early(s, "k", "from_");
    text_open(out, "for (int64_t k0_ = from_; k0_ < to_; k0_ += %d) {", a->keys);
    put_copy(s, "k", "k0_");
    text_line(out, "@BARRIER;");
    put_early(s, "v", "k0_");
    text_line(out, "@real x_[%d][%d];", s->rows, s->cols);
    open_each(s, "i_", s->rows);
    text_line(out, "#pragma unroll");
    text_line(out, "for (int j_ = 0; j_ < %d; j_++) x_[i_][j_] = 0;", s->cols);
    text_close(out, "}");
    put_products(s, (int)attention_size(a, a->d), (const char *[]){"qs_", "ks_", "x_"}, s->cols);
    put_all_scores(s, &range);
    put_weights(s);
    if (s->one_buffer) text_line(out, "@BARRIER;");
    put_copy(s, "v", "k0_");
    text_line(out, "@BARRIER;");
    put_early(s, "k", SAY("k0_ + %d", a->keys));
    put_products(s, a->keys, (const char *[]){"ps_", "vs_", "y_"}, s->values);
    if (s->one_buffer) text_line(out, "@BARRIER;");
    text_close(out, "}");
    text_line(out, "@BARRIER;");
}

static void put_results(struct attention_simt *s)
{
    struct attention *a = &s->a;
    struct attention_printing *w = s->w;
    struct text *out = s->out;
    const int softmax[] = {a->m, a->z};
    const char *e = attention_name(a, a->e);
    put_join(s, "z_", "y_ + x_");
    open_each(s, "i_", s->rows);
    text_line(out, "const int64_t %s = t0_ + row_ + i_;", attention_name(a, a->t));
    text_open(out, "if (row_ + i_ < count_) {");
    for (int i = 0; i < 2; i++) {
        if (a->loops->tensors.at[softmax[i]].role != LOOPS_OUTPUT) continue;
        text_open(out, "if (across_ == 0) {");
        print_store(&w->p, softmax[i], a->row_index, i ? "z_[i_]" : "m_[i_]");
        text_close(out, "}");
    }
    open_each(s, "j_", s->values);
    text_line(out, "const int64_t %s = %s;", e, column(s));
    text_open(out, "if (%s < %lld) {", e, (long long)attention_size(a, a->e));
    w->mixed = "y_[i_][j_]";
    for (int i = 0; i < a->nstore; i++) {
        const struct attention_store *to = &a->store[i];
        print_store(&w->p, to->tensor, to->index,
                    print_value(&w->p, to->value, a->loops->tensors.at[to->tensor].dtype));
    }
    for (int i = 0; i < 4; i++) text_close(out, "}");
}

/* Declares the parts of shared memory, and an item's place in the group. */
static void put_shared(const struct attention_simt *s)
{
    const struct attention *a = &s->a;
    const int bytes = dtype_def(a->dtype)->bytes, depth = (int)attention_size(a, a->d);
    const int k = depth * s->pitch_k, v = a->keys * s->pitch_v, from_k = depth * s->pitch_q;
    const struct {
        const char *name;
        int pitch, from;
    } part[] = {{"qs_", s->pitch_q, 0},
                {"ks_", s->pitch_k, from_k},
                {"vs_", s->pitch_v, s->one_buffer ? from_k : from_k + k},
                {"ps_", s->pitch_q, from_k + (s->one_buffer ? MAX(k, v) : k + v)}};
    for (int i = 0; i < COUNT_OF(part); i++)
        text_line(s->out, "@SHARED @real (*const %s)[%d] = (@SHARED @real (*)[%d])(shared_ + %d);", part[i].name,
                  part[i].pitch, part[i].pitch, part[i].from * bytes);
    text_line(s->out, "const int item_ = (int)@ITEM, across_ = item_ %% %d, row_ = item_ / %d * %d;", s->across,
              s->across, s->rows);
}

static void put_start(struct attention_simt *s)
{
    const struct attention *a = &s->a;
    struct text *out = s->out;
    const struct {
        const char *name;
        const struct attention_factor *x;
        int of;
    } factor[] = {{"q", &a->q, a->d}, {"k", &a->k, a->d}, {"v", &a->v, a->e}};
    for (int i = 0; i < COUNT_OF(factor); i++) {
        text_line(out, "const @GLOBAL @real *const %s_ = %s;", factor[i].name, attention_address(s->w, factor[i].x));
        if (attention_simt_width(s, factor[i].x, attention_size(a, factor[i].of)) > 1)
            text_line(out, "const int %s_even_ = sol_even(%s_);", factor[i].name, factor[i].name);
    }
    put_copy(s, "q", "0");
    text_line(out, "@real m_[%d], z_[%d], y_[%d][%d];", s->rows, s->rows, s->rows, s->values);
    open_each(s, "i_", s->rows);
    text_line(out, "m_[i_] = -@INFINITY, z_[i_] = 0;");
    text_line(out, "#pragma unroll");
    text_line(out, "for (int j_ = 0; j_ < %d; j_++) y_[i_][j_] = 0;", s->values);
    text_close(out, "}");
}

void attention_simt_print(struct attention_simt *s, struct kernel *out)
{
    struct attention *a = &s->a;
    s->w = NEW(a->arena, struct attention_printing);
    struct text *text = s->out = attention_begin(s->w, a, read_hook);
    text_put(text, "typedef %s%d @pack;\n", dtype_def(a->dtype)->c_name, s->wide);
    kernel_open(text, 0);
    text_line(text, "(void)f, (void)worker;");
    attention_put_pointers(a, text);
    put_shared(s);
    text_open(text, "for (int64_t task = task0; task < task1; task++) {");
    const int64_t tasks = attention_put_place(a, text);
    put_start(s);
    put_blocks(s);
    put_results(s);
    text_close(text, "}");
    kernel_close(text);
    *out = (struct kernel){.nstep = 1, .items = s->items, .shared_bytes = s->shared, .source = text->at};
    out->step[0].tasks = tasks;
}
