/* Prints attention for a graphics card. A work group keeps its block of queries in shared memory, and reads a block of
 * keys and of values after the other: values while it computes scores, and the next keys while it adds up values.
 * Queries and keys lie there by element, so that an item reads neighbouring rows and columns of its tile at once. As in
 * attention_print.c, weights are exp(score - m) with the largest score m of a query so far, and when it grows, what was
 * added up before is multiplied by exp(old m - new m); blocks of keys that the guard excludes for all queries of the
 * group are skipped. Each item adds up the weights of its own columns, and they are joined at the end. */
#include "dnn/attention_simt.h"

#undef SAY
#define SAY(...) arena_printf(s->a.arena, __VA_ARGS__)

/* Loads before their stores; and registers, of sums and of loads that wait for products. */
enum { ROUND = 4, KEPT = 64 };

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

static struct attention_copy copy_of(const struct attention_simt *s, const char *name, const char *first)
{
    const struct attention *a = &s->a;
    struct attention_copy c = {.name = name, .first = first, .end = "to_", .rows = a->keys, .turned = true};
    c.x = *name == 'q' ? &a->q : *name == 'k' ? &a->k : &a->v;
    c.depth = (int)attention_size(a, *name == 'v' ? a->e : a->d);
    if (*name == 'q') c.end = "count_", c.rows = a->queries;
    if (*name == 'v') c.turned = false, c.filled = s->pitch_v;
    return c;
}

/* Are there so few loads that registers keep their values during products? */
static bool early(const struct attention_simt *s, const struct attention_copy *c)
{
    const int elements = s->rows * s->values + group_loads(&s->group, c) * group_width(&s->group, c->x, c->depth);
    return elements * dtype_def(s->a.dtype)->bytes / 4 <= KEPT;
}

bool attention_simt_early(const struct attention_simt *s)
{
    const struct attention_copy k = copy_of(s, "k", ""), v = copy_of(s, "v", "");
    return early(s, &k) && early(s, &v);
}

/* Reads a block of a factor early, while products run, if registers are enough. */
static void put_early(const struct attention_simt *s, const char *name, const char *first)
{
    const struct attention_copy c = copy_of(s, name, first);
    if (!early(s, &c)) return;
    text_open(s->group.out, "{");
    text_line(s->group.out, "const int at_ = item_;");
    group_put_loads(&s->group, &c, group_loads(&s->group, &c));
    text_close(s->group.out, "}");
}

/* Stores a block to shared memory, which is read now if it was not early. */
static void put_copy(const struct attention_simt *s, const char *name, const char *first)
{
    const struct attention_copy c = copy_of(s, name, first);
    if (*name == 'q' || !early(s, &c)) {
        group_put_copy(&s->group, &c, ROUND);
        return;
    }
    text_open(s->group.out, "{");
    text_line(s->group.out, "const int at_ = item_;");
    group_put_stores(&s->group, &c, group_loads(&s->group, &c));
    text_close(s->group.out, "}");
}

/* -- products */

/* sum[rows][cols] += left[row] * right[col], for each of `depth` elements */
static void put_products(const struct attention_simt *s, int depth, const char *names[3], int cols)
{
    group_put_product(&s->group, &(struct attention_product){.left = names[0],
                                                             .right = names[1],
                                                             .to = names[2],
                                                             .rows = s->rows,
                                                             .cols = cols,
                                                             .across = s->across,
                                                             .row = "row_",
                                                             .column = "across_",
                                                             .depth = SAY("%d", depth)});
}

/* -- the softmax */

/* The column of element j_ of an item's tile. */
static const char *column(const struct attention_simt *s)
{
    return group_column(&s->group, s->across, "across_");
}

/* Sums become scores; those past the last key, and outside of the guard, -inf. Queries and keys that do not exist get
 * the score of the last one. */
static void put_scores(struct attention_simt *s, bool guarded)
{
    struct attention *a = &s->a;
    struct attention_printing *w = s->w;
    struct text *out = s->group.out;
    const char *t = attention_name(a, a->t), *key = attention_name(a, a->s);
    group_open_each(&s->group, "i_", s->rows);
    text_line(out, "const int64_t %s = @sol_min_i64(t0_ + row_ + i_, last_);", t);
    text_line(out, "(void)%s;", t);
    group_open_each(&s->group, "j_", s->cols);
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
    struct text *out = s->group.out;
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
    struct text *out = s->group.out;
    if (s->pairs) {
        group_open_each(&s->group, "i_", s->rows);
        text_line(out, "#pragma unroll");
        text_open(out, "for (int n_ = 1; n_ < %d; n_ *= 2) {", s->across);
        text_line(out, "const @real x_ = @NEIGHBOUR(%s[i_], n_), y_ = %s[i_];", name, name);
        text_line(out, "%s[i_] = %s;", name, join);
        text_close(out, "}");
        text_close(out, "}");
        return;
    }
    group_open_each(&s->group, "i_", s->rows);
    text_line(out, "ps_[0][i_ * %d + item_] = %s[i_];", s->group.items, name);
    text_close(out, "}");
    text_line(out, "@BARRIER;");
    group_open_each(&s->group, "i_", s->rows);
    text_line(out, "@real y_ = ps_[0][i_ * %d + item_ / %d * %d];", s->group.items, s->across, s->across);
    text_open(out, "for (int n_ = 1; n_ < %d; n_++) {", s->across);
    text_line(out, "const @real x_ = ps_[0][i_ * %d + item_ / %d * %d + n_];", s->group.items, s->across, s->across);
    text_line(out, "y_ = %s;", join);
    text_close(out, "}");
    text_line(out, "%s[i_] = y_;", name);
    text_close(out, "}");
    text_line(out, "@BARRIER;");
}

/* Scores become weights, in shared memory. */
static void put_weights(const struct attention_simt *s)
{
    struct text *out = s->group.out;
    const char *f = s->a.dtype == SOL_F32 ? "f" : "";
    text_line(out, "@real top_[%d];", s->rows);
    group_open_each(&s->group, "i_", s->rows);
    text_line(out, "top_[i_] = -@INFINITY;");
    text_line(out, "#pragma unroll");
    text_line(out, "for (int j_ = 0; j_ < %d; j_++) top_[i_] = x_[i_][j_] > top_[i_] ? x_[i_][j_] : top_[i_];",
              s->cols);
    text_close(out, "}");
    put_join(s, "top_", "x_ > y_ ? x_ : y_");
    group_open_each(&s->group, "i_", s->rows);
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
    group_open_each(&s->group, "j_", s->cols);
    text_line(out, "@SHARED @real *const p_ = &ps_[%s][row_];", column(s));
    const bool packs = s->rows % s->group.wide == 0;
    group_open_each(&s->group, "i_", packs ? s->rows / s->group.wide : s->rows);
    if (packs) {
        text_line(out, "@pack w_;");
        for (int i = 0; i < s->group.wide; i++)
            text_line(out, "w_.%s = x_[i_ * %d + %d][j_];", member[i], s->group.wide, i);
        text_line(out, "sol_store%d(w_, p_ + i_ * %d, 1);", s->group.wide, s->group.wide);
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
    struct text *out = s->group.out;
    const struct attention_range range = attention_put_range(s->w, out);
    text_line(out, "const int64_t from_ = %s, to_ = %s;", range.from, range.to);
    if (a->guard && range.all_from)
        text_line(out, "const int64_t all0_ = %s, all1_ = %s;", range.all_from, range.all_to);
    for (int i = 0; i < 2; i++) {
        const struct attention_copy c = copy_of(s, i ? "v" : "k", "from_");
        if (early(s, &c))
            text_line(out, "%s %s_x_[%d];", group_type(&s->group, &c), c.name, group_loads(&s->group, &c));
    }
    put_early(s, "k", "from_");
    text_open(out, "for (int64_t k0_ = from_; k0_ < to_; k0_ += %d) {", a->keys);
    put_copy(s, "k", "k0_");
    text_line(out, "@BARRIER;");
    put_early(s, "v", "k0_");
    text_line(out, "@real x_[%d][%d];", s->rows, s->cols);
    group_put_zeros(&s->group, "x_", s->rows, s->cols);
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
    struct text *out = s->group.out;
    const int softmax[] = {a->m, a->z};
    const char *e = attention_name(a, a->e);
    put_join(s, "z_", "y_ + x_");
    group_open_each(&s->group, "i_", s->rows);
    text_line(out, "const int64_t %s = t0_ + row_ + i_;", attention_name(a, a->t));
    text_open(out, "if (row_ + i_ < count_) {");
    for (int i = 0; i < 2; i++) {
        if (a->loops->tensors.at[softmax[i]].role != LOOPS_OUTPUT) continue;
        text_open(out, "if (across_ == 0) {");
        print_store(&w->p, softmax[i], a->row_index, i ? "z_[i_]" : "m_[i_]");
        text_close(out, "}");
    }
    group_open_each(&s->group, "j_", s->values);
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
        text_line(s->group.out, "@SHARED @real (*const %s)[%d] = (@SHARED @real (*)[%d])(shared_ + %d);", part[i].name,
                  part[i].pitch, part[i].pitch, part[i].from * bytes);
    text_line(s->group.out, "const int item_ = (int)@ITEM, across_ = item_ %% %d, row_ = item_ / %d * %d;", s->across,
              s->across, s->rows);
}

static void put_start(struct attention_simt *s)
{
    const struct attention *a = &s->a;
    struct text *out = s->group.out;
    const struct {
        const char *name;
        const struct attention_factor *x;
        int of;
    } factor[] = {{"q", &a->q, a->d}, {"k", &a->k, a->d}, {"v", &a->v, a->e}};
    for (int i = 0; i < COUNT_OF(factor); i++) {
        group_put_source(&s->group, factor[i].name, attention_address(s->w, factor[i].x),
                         group_width(&s->group, factor[i].x, attention_size(a, factor[i].of)));
    }
    put_copy(s, "q", "0");
    text_line(out, "@real m_[%d], z_[%d], y_[%d][%d];", s->rows, s->rows, s->rows, s->values);
    group_open_each(&s->group, "i_", s->rows);
    text_line(out, "m_[i_] = -@INFINITY, z_[i_] = 0;");
    text_close(out, "}");
    group_put_zeros(&s->group, "y_", s->rows, s->values);
}

void attention_simt_print(struct attention_simt *s, struct kernel *out)
{
    struct attention *a = &s->a;
    s->w = NEW(a->arena, struct attention_printing);
    struct text *text = s->group.out = attention_begin(s->w, a, read_hook);
    s->group.arena = a->arena;
    text_put(text, "typedef %s%d @pack;\n", dtype_def(a->dtype)->c_name, s->group.wide);
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
    *out = (struct kernel){.nstep = 1, .items = s->group.items, .shared_bytes = s->shared, .source = text->at};
    out->step[0].tasks = tasks;
}
