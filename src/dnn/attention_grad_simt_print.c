/* Prints the gradient of attention for a graphics card (after FlashAttention-2, Dao, 2023). A work group keeps a block
 * of keys and values in shared memory, and reads the queries that may have them block by block, with the gradient of
 * their results. It computes the weights again, and all three sums from them: those of keys and values stay in
 * registers until all queries were there; that of queries is added to what earlier blocks of keys left in memory, which
 * no other group changes. A second step adds up what the groups of one batch element have, in a fixed order. */
#include "dnn/attention_simt.h"

#undef SAY
#define SAY(...) arena_printf(w->s->g.a.arena, __VA_ARGS__)

struct printing {
    struct attention_printing w; /* first: hooks get it */
    struct attention_grad_simt *s;
    struct text *out;
    const char *gained, *weight; /* the values of these tensors, as text */
};

enum { ROUND = 8 }; /* loads before their stores */

static const char *const member[] = {"x", "y", "z", "w"}, *const sum_name[] = {"dv", "dk", "dq"};

static const char *read_hook(void *user, struct print_expr *p, int32_t node)
{
    const struct printing *w = user;
    const struct attention_grad *g = &w->s->g;
    const int tensor = g->a.loops->ex.at[node].tensor;
    (void)p;
    if (tensor == g->a.scored) return w->w.scored;
    if (tensor == g->gained) return w->gained;
    if (tensor == g->weight) return w->weight;
    for (int i = 0; i < ATTENTION_SUMS; i++)
        if (tensor == g->sum[i]) return w->w.mixed;
    for (int i = 0; i < g->nrow && w->weight; i++)
        if (ex_equal(g->a.loops, g->row[i], node)) return SAY("row%d_", i);
    return NULL;
}

/* -- memory */

bool attention_grad_simt_once(const struct attention_grad_simt *s)
{
    const int64_t keys = attention_size(&s->g.a, s->g.a.s);
    return !size_varies(keys) && keys <= (int64_t)s->parts * s->g.a.keys;
}

static int depth_of(const struct attention_grad_simt *s, int ivar)
{
    return (int)attention_size(&s->g.a, ivar);
}

static void put_shared(const struct printing *w)
{
    const struct attention_grad_simt *s = w->s;
    const struct attention *a = &s->g.a;
    const struct {
        const char *name;
        int rows, pitch;
    } part[] = {{"ks_", a->keys, s->pitch_d},    {"vs_", a->keys, s->pitch_e},    {"qs_", a->queries, s->pitch_d},
                {"ds_", a->queries, s->pitch_e}, {"ps_", a->queries, s->pitch_p}, {"rs_", a->queries, s->pitch_p},
                {"rows_", s->g.nrow, a->queries}};
    int at = 0;
    for (int i = 0; i < COUNT_OF(part); i++) {
        const bool shares = part[i].name[0] == 'r' && part[i].name[1] == 's' && !s->two_buffers;
        if (!part[i].rows) continue;
        if (shares) at -= part[i].rows * part[i].pitch;
        text_line(w->out, "@SHARED @real (*const %s)[%d] = (@SHARED @real (*)[%d])(shared_ + %d);", part[i].name,
                  part[i].pitch, part[i].pitch, at * dtype_def(a->dtype)->bytes);
        at += part[i].rows * part[i].pitch;
    }
}

/* An item's place in the tiles of all products: the column, and the row among items, or of sums over queries the first
 * of its neighbouring rows. */
static void put_places(const struct printing *w)
{
    const struct attention_grad_simt *s = w->s;
    const struct attention_place *sum = s->sum;
    text_line(w->out, "const int item_ = (int)@ITEM;");
    text_line(w->out, "const int x_column_ = item_ %% %d, x_row_ = item_ / %d;", s->score.across, s->score.across);
    for (int i = 0; i < ATTENTION_SUMS; i++)
        text_line(w->out, "const int %s_column_ = item_ %% %d, %s_row_ = item_ / %d%s;", sum_name[i], sum[i].across,
                  sum_name[i], sum[i].across, i == ATTENTION_DQ ? "" : SAY(" * %d", sum[i].rows));
}

static struct attention_copy copy_of(const struct printing *w, const char *name)
{
    const struct attention_grad_simt *s = w->s;
    const struct attention_grad *g = &s->g;
    const bool query = *name == 'q' || *name == 'd', key = *name == 'q' || *name == 'k';
    return (struct attention_copy){.x = *name == 'q'   ? &g->a.q
                                        : *name == 'k' ? &g->a.k
                                        : *name == 'v' ? &g->a.v
                                                       : &g->d,
                                   .name = name,
                                   .first = query ? "t0_" : "k0_",
                                   .end = query ? "to_" : SAY("%lld", (long long)attention_size(&g->a, g->a.s)),
                                   .rows = query ? g->a.queries : g->a.keys,
                                   .depth = depth_of(s, key ? g->a.d : g->a.e),
                                   .filled = key ? s->wide_d : s->wide_e};
}

static void put_copy(const struct printing *w, const char *name)
{
    const struct attention_copy c = copy_of(w, name);
    group_put_copy(&w->s->group, &c, ROUND);
}

/* What differs between queries alone, for each of the block. */
static void put_rows(struct printing *w)
{
    const struct attention_grad *g = &w->s->g;
    struct text *out = w->out;
    const char *t = attention_name(&g->a, g->a.t);
    if (!g->nrow) return;
    text_open(out, "for (int i_ = item_; i_ < %d; i_ += %d) {", g->a.queries, w->s->group.items);
    text_line(out, "const int64_t %s = @sol_min_i64(t0_ + i_, last_);", t);
    for (int i = 0; i < g->nrow; i++)
        text_line(out, "rows_[%d][i_] = %s;", i, text_bare(g->a.arena, print_value(&w->w.p, g->row[i], g->a.dtype)));
    text_close(out, "}");
}

/* -- weights and their gradients */

static void put_weight(struct printing *w, int32_t p, int32_t r)
{
    const struct attention *a = &w->s->g.a;
    struct text *out = w->out;
    text_line(out, "const @real sum_ = x_[i_][j_], gain_ = r_[i_][j_];");
    w->w.scored = "sum_";
    w->gained = "gain_";
    w->weight = "weight_";
    text_line(out, "const @real weight_ = %s;", text_bare(a->arena, print_value(&w->w.p, p, a->dtype)));
    text_line(out, "const @real slope_ = %s;", text_bare(a->arena, print_value(&w->w.p, r, a->dtype)));
    w->weight = NULL;
    text_line(out, "x_[i_][j_] = in_ ? weight_ : 0;");
    text_line(out, "r_[i_][j_] = in_ ? slope_ : 0;");
}

static void put_weights(struct printing *w, int32_t p, int32_t r)
{
    const struct attention_grad_simt *s = w->s;
    const struct attention_grad *g = &s->g;
    struct text *out = w->out;
    const char *t = attention_name(&g->a, g->a.t), *key = attention_name(&g->a, g->a.s);
    const struct attention_place *x = &s->score;
    group_open_each(&s->group, "i_", x->rows);
    text_line(out, "const int t_at_ = i_ * %d + x_row_;", s->group.items / x->across);
    text_line(out, "const int64_t %s = @sol_min_i64(t0_ + t_at_, last_);", t);
    text_line(out, "(void)%s;", t);
    for (int i = 0; i < g->nrow; i++) text_line(out, "const @real row%d_ = rows_[%d][t_at_];", i, i);
    group_open_each(&s->group, "j_", x->cols);
    text_line(out, "const int s_at_ = j_ * %d + x_column_;", x->across);
    text_line(out, "const int64_t %s = @sol_min_i64(k0_ + s_at_, key_last_);", key);
    text_line(out, "(void)%s;", key);
    text_line(out, "const bool in_ = t_at_ < count_ && s_at_ < keys_;");
    put_weight(w, p, r);
    text_close(out, "}");
    text_close(out, "}");
}

static void put_all_weights(struct printing *w, bool inside)
{
    const struct attention_grad *g = &w->s->g;
    if (inside) {
        text_open(w->out, "if (t0_ >= all0_ && t0_ + %d <= all1_) {", g->a.queries);
        put_weights(w, g->p_inside, g->r_inside);
        text_close(w->out, "} else {");
        w->out->indent++;
    }
    put_weights(w, g->a.score, g->r);
    if (inside) text_close(w->out, "}");
}

static void put_tile(const struct printing *w, const char *to, const char *from)
{
    const struct attention_grad_simt *s = w->s;
    group_open_each(&s->group, "i_", s->score.rows);
    group_open_each(&s->group, "j_", s->score.cols);
    text_line(w->out, "%s[i_ * %d + x_row_][j_ * %d + x_column_] = %s[i_][j_];", to, s->group.items / s->score.across,
              s->score.across, from);
    text_close(w->out, "}");
    text_close(w->out, "}");
}

/* -- products */

static void put_scores(const struct printing *w, const char *left, const char *right, const char *to, int ivar)
{
    const struct attention_grad_simt *s = w->s;
    const struct attention_place *x = &s->score;
    text_line(w->out, "@real %s[%d][%d];", to, x->rows, x->cols);
    group_put_zeros(&s->group, to, x->rows, x->cols);
    group_put_product(&s->group, &(struct attention_product){.left = left,
                                                             .right = right,
                                                             .to = to,
                                                             .rows = x->rows,
                                                             .cols = x->cols,
                                                             .across = x->across,
                                                             .down = s->group.items / x->across,
                                                             .row = "x_row_",
                                                             .column = "x_column_",
                                                             .depth = SAY("%d", depth_of(s, ivar)),
                                                             .left_along = true,
                                                             .right_along = true});
}

static void put_sum(const struct printing *w, int of, const char *left, const char *right, const char *depth)
{
    const struct attention_grad_simt *s = w->s;
    const struct attention_place *x = &s->sum[of];
    group_put_product(&s->group, &(struct attention_product){.left = left,
                                                             .right = right,
                                                             .to = SAY("%s_", sum_name[of]),
                                                             .rows = x->rows,
                                                             .cols = x->cols,
                                                             .across = x->across,
                                                             .down = s->group.items / x->across,
                                                             .row = SAY("%s_row_", sum_name[of]),
                                                             .column = SAY("%s_column_", sum_name[of]),
                                                             .depth = depth,
                                                             .left_along = of == ATTENTION_DQ});
}

/* -- the sums of queries in memory */

/* A loop over the pieces of an item's sums, and a test whether they exist: `place_` is where they are. */
static void open_queries(const struct printing *w)
{
    const struct attention_grad_simt *s = w->s;
    const struct attention_place *x = &s->sum[ATTENTION_DQ];
    const int wide = s->group.wide;
    group_open_each(&s->group, "i_", x->rows);
    text_line(w->out, "const int row_at_ = i_ * %d + dq_row_;", s->group.items / x->across);
    group_open_each(&s->group, "j_", x->cols / wide);
    text_line(w->out, "const int at_ = (j_ * %d + dq_column_) * %d;", x->across, wide);
    text_line(w->out, "@GLOBAL @real *const place_ = own_sum_ + (t0_ + row_at_) * %d + at_;", s->pitch_sum);
    text_open(w->out, "if (row_at_ < count_%s) {",
              x->across * x->cols > s->pitch_sum ? SAY(" && at_ < %d", s->pitch_sum) : "");
}

static void close_queries(const struct printing *w)
{
    for (int i = 0; i < 3; i++) text_close(w->out, "}");
}

/* The sums begin with what an earlier block of keys left, if there was one. */
static void put_earlier(const struct printing *w)
{
    const struct attention_grad_simt *s = w->s;
    const struct attention_place *x = &s->sum[ATTENTION_DQ];
    text_line(w->out, "@real dq_[%d][%d];", x->rows, x->cols);
    group_put_zeros(&s->group, "dq_", x->rows, x->cols);
    if (attention_grad_simt_once(s)) return;
    text_open(w->out, "if (k0_ > first_) {");
    open_queries(w);
    text_line(w->out, "const @pack was_ = sol_load%d(place_, 1);", s->group.wide);
    for (int i = 0; i < s->group.wide; i++)
        text_line(w->out, "dq_[i_][j_ * %d + %d] = was_.%s;", s->group.wide, i, member[i]);
    close_queries(w);
    text_close(w->out, "}");
}

static void put_queries(const struct printing *w)
{
    const struct attention_grad_simt *s = w->s;
    open_queries(w);
    text_line(w->out, "@pack now_;");
    for (int i = 0; i < s->group.wide; i++)
        text_line(w->out, "now_.%s = dq_[i_][j_ * %d + %d];", member[i], s->group.wide, i);
    text_line(w->out, "sol_store%d(now_, place_, 1);", s->group.wide);
    close_queries(w);
}

static void put_no_queries(const struct printing *w, const char *from, const char *to)
{
    text_line(w->out, "for (int64_t i_ = %s * %d + item_; i_ < %s * %d; i_ += %d) own_sum_[i_] = 0;", from,
              w->s->pitch_sum, to, w->s->pitch_sum, w->s->group.items);
}

/* -- a task */

static void put_block_of_queries(struct printing *w, bool inside)
{
    const struct attention_grad_simt *s = w->s;
    const struct attention_grad *g = &s->g;
    struct text *out = w->out;
    text_open(out, "for (int64_t t0_ = from_; t0_ < to_; t0_ += %d) {", g->a.queries);
    text_line(out, "const int64_t last_ = @sol_min_i64(t0_ + %d, to_) - 1;", g->a.queries);
    text_line(out, "const int count_ = (int)(last_ - t0_) + 1;");
    put_copy(w, "q");
    put_copy(w, "d");
    put_rows(w);
    text_line(out, "@BARRIER;");
    put_scores(w, "qs_", "ks_", "x_", g->a.d);
    put_scores(w, "ds_", "vs_", "r_", g->a.e);
    put_all_weights(w, inside);
    put_tile(w, "ps_", "x_");
    if (s->two_buffers) put_tile(w, "rs_", "r_");
    text_line(out, "@BARRIER;");
    put_sum(w, ATTENTION_DV, "ps_", "ds_", "count_");
    if (!s->two_buffers) {
        text_line(out, "@BARRIER;");
        put_tile(w, "rs_", "r_");
        text_line(out, "@BARRIER;");
    }
    put_earlier(w);
    put_sum(w, ATTENTION_DK, "rs_", "qs_", "count_");
    put_sum(w, ATTENTION_DQ, "rs_", "ks_", "keys_");
    put_queries(w);
    text_line(out, "@BARRIER;");
    text_close(out, "}");
}

static void put_stores(struct printing *w, int of)
{
    const struct attention_grad *g = &w->s->g;
    for (int i = 0; i < g->nstore; i++) {
        const struct attention_store *to = &g->store[i].to;
        if (g->store[i].of == of)
            print_store(&w->w.p, to->tensor, to->index,
                        print_value(&w->w.p, to->value, g->a.loops->tensors.at[to->tensor].dtype));
    }
}

static void put_results_of_keys(struct printing *w, int of)
{
    const struct attention_grad_simt *s = w->s;
    const struct attention *a = &s->g.a;
    const struct attention_place *x = &s->sum[of];
    const char *key = attention_name(a, a->s), *c = attention_name(a, s->g.column[of]);
    group_open_each(&s->group, "i_", x->rows);
    text_line(w->out, "const int64_t %s = k0_ + %s_row_ + i_;", key, sum_name[of]);
    text_open(w->out, "if (%s <= key_last_) {", key);
    group_open_each(&s->group, "j_", x->cols);
    text_line(w->out, "const int64_t %s = %s;", c, group_column(&s->group, x->across, SAY("%s_column_", sum_name[of])));
    text_open(w->out, "if (%s < %d) {", c, depth_of(s, s->g.column[of]));
    w->w.mixed = SAY("%s_[i_][j_]", sum_name[of]);
    put_stores(w, of);
    for (int i = 0; i < 4; i++) text_close(w->out, "}");
}

static void put_block_of_keys(struct printing *w)
{
    const struct attention_grad_simt *s = w->s;
    const struct attention *a = &s->g.a;
    struct text *out = w->out;
    const long long keys = attention_size(a, a->s), queries = attention_size(a, a->t);
    const int of[] = {ATTENTION_DV, ATTENTION_DK};
    text_line(out, "const int64_t key_last_ = @sol_min_i64(k0_ + %d, %lld) - 1;", a->keys, keys);
    text_line(out, "const int keys_ = (int)(key_last_ - k0_) + 1;");
    const struct attention_range range = attention_range(&w->w, a->t, a->s, "k0_", "key_last_");
    const bool inside = a->guard && range.all_from;
    text_line(out, "const int64_t from_ = %s, to_ = %s;", range.from, range.to);
    if (inside) text_line(out, "const int64_t all0_ = %s, all1_ = %s;", range.all_from, range.all_to);
    if (a->guard) {
        text_open(out, "if (k0_ == first_) {");
        put_no_queries(w, "0", SAY("@sol_min_i64(from_, %lld)", queries));
        put_no_queries(w, "@sol_max_i64(from_, to_)", SAY("%lld", queries));
        text_close(out, "}");
    }
    put_copy(w, "k");
    put_copy(w, "v");
    for (int i = 0; i < COUNT_OF(of); i++) {
        const struct attention_place *x = &s->sum[of[i]];
        text_line(out, "@real %s_[%d][%d];", sum_name[of[i]], x->rows, x->cols);
        group_put_zeros(&s->group, SAY("%s_", sum_name[of[i]]), x->rows, x->cols);
    }
    put_block_of_queries(w, inside);
    for (int i = 0; i < COUNT_OF(of); i++) put_results_of_keys(w, of[i]);
}

static void put_sources(struct printing *w)
{
    static const char *const name[] = {"q", "d", "k", "v"};
    for (int i = 0; i < COUNT_OF(name); i++) {
        const struct attention_copy c = copy_of(w, name[i]);
        group_put_source(&w->s->group, name[i], attention_address_at(&w->w, c.x, NULL),
                         group_width(&w->s->group, c.x, c.depth));
    }
}

static void put_pointers(struct printing *w)
{
    struct attention *a = &w->s->g.a;
    int operands = 0;
    for (int i = 0; i < a->was->tensors.n; i++)
        operands += a->was->tensors.at[i].role == LOOPS_INPUT || a->was->tensors.at[i].role == LOOPS_OUTPUT;
    text_line(w->out, "(void)f, (void)worker;");
    attention_put_pointers(a, w->out);
    print_operand(w->out, a->target, "sums_", dtype_def(a->dtype)->c_name, operands);
}

/* Returns the number of tasks. */
static int64_t put_sums(struct printing *w)
{
    const struct attention_grad_simt *s = w->s;
    struct attention *a = &w->s->g.a;
    struct text *out = w->out;
    const long long keys = attention_size(a, a->s), queries = attention_size(a, a->t);
    const int64_t step = (int64_t)s->parts * a->keys;
    kernel_open(out, 0);
    put_pointers(w);
    put_shared(w);
    put_places(w);
    text_open(out, "for (int64_t task = task0; task < task1; task++) {");
    const int64_t tasks = attention_put_batch(a, out, "task", s->parts);
    put_sources(w);
    text_line(out, "@GLOBAL @real *const own_sum_ = sums_ + task * %lld;",
              (long long)size_mul(attention_size(a, a->t), s->pitch_sum));
    text_line(out, "const int64_t first_ = %s;", s->parts > 1 ? SAY("task %% %d * %d", s->parts, a->keys) : "0");
    if (size_varies(attention_size(a, a->s))) {
        text_open(out, "if (first_ >= %lld) {", keys);
        put_no_queries(w, "0", SAY("%lld", queries));
        text_close(out, "}");
    }
    text_open(out, "for (int64_t k0_ = first_; k0_ < %lld; k0_ += %lld) {", keys, (long long)step);
    put_block_of_keys(w);
    text_close(out, "}");
    text_close(out, "}");
    kernel_close(out);
    return tasks;
}

/* The second step: an item has an element of the gradient of queries. Returns the number of tasks. */
static int64_t put_parts(struct printing *w)
{
    const struct attention_grad_simt *s = w->s;
    struct attention *a = &w->s->g.a;
    struct text *out = w->out;
    const int depth = depth_of(s, a->d);
    const int64_t queries = attention_size(a, a->t), rows = size_mul(ivars_size(a->loops, a->batch), queries);
    const char *t = attention_name(a, a->t), *c = attention_name(a, s->g.column[ATTENTION_DQ]);
    kernel_open(out, 1);
    put_pointers(w);
    text_open(out, "for (int64_t task = task0; task < task1; task++) {");
    text_line(out, "const int64_t at_ = task * %d + @ITEM, row_ = at_ / %d;", s->group.items, depth);
    text_line(out, "if (row_ >= %lld) continue;", (long long)rows);
    text_line(out, "const int64_t %s = at_ %% %d, %s = %s;", c, depth, t, text_modulo(a->arena, "row_", queries));
    text_line(out, "const int64_t batch_ = %s;", text_over(a->arena, "row_", queries));
    attention_put_batch(a, out, "batch_", 1);
    text_line(out, "@real sum_ = 0;");
    text_line(out, "for (int part_ = 0; part_ < %d; part_++)", s->parts);
    text_line(out, "    sum_ += sums_[((batch_ * %d + part_) * %lld + %s) * %d + %s];", s->parts, (long long)queries, t,
              s->pitch_sum, c);
    w->w.mixed = "sum_";
    put_stores(w, ATTENTION_DQ);
    text_close(out, "}");
    kernel_close(out);
    return size_ceil_div(size_mul(rows, depth), s->group.items);
}

void attention_grad_simt_print(struct attention_grad_simt *s, struct kernel *out)
{
    struct attention *a = &s->g.a;
    struct printing *w = NEW(a->arena, struct printing);
    w->s = s;
    s->group.arena = a->arena;
    s->group.out = w->out = attention_begin(&w->w, a, read_hook);
    text_put(w->out, "typedef %s%d @pack;\n", dtype_def(a->dtype)->c_name, s->group.wide);
    *out = (struct kernel){.nstep = 2, .items = s->group.items, .shared_bytes = s->shared, .nwork = 1};
    out->step[0].tasks = put_sums(w);
    out->step[1].tasks = put_parts(w);
    out->step[1].suffix = "sum of parts";
    out->work_bytes[0] = kernel_lines(size_mul(size_mul(out->step[0].tasks, attention_size(a, a->t)),
                                               (int64_t)s->pitch_sum * dtype_def(a->dtype)->bytes));
    out->source = w->out->at;
}
