/* Prints attention. A task is a block of queries of one batch element, and the queries are the lanes of vectors. So the
 * elements of keys and values are broadcast from where they lie, the largest score and the sums of a query are lanes
 * too, and nothing is added up across a vector. Keys come in blocks. Each block's weights are exp(score - m) with the
 * largest score m so far; when it grows, what was added up before is multiplied by exp(old m - new m) (Milakov and
 * Gimelshein, 2018). Blocks of keys that the guard excludes for all queries of a task are skipped. */
#include "dnn/attention_print.h"

const char *attention_name(const struct attention *a, int ivar)
{
    return a->loops->ivars.at[ivar].name;
}

int64_t attention_size(const struct attention *a, int ivar)
{
    return a->loops->ivars.at[ivar].size;
}

const char *attention_vector(const struct attention *a)
{
    return SAY("f%dx%d", a->dtype == SOL_F64 ? 64 : 32, a->lanes);
}

/* The elements of a row of values with those that fill the last vector. */
static int64_t padded(const struct attention *a)
{
    return (attention_size(a, a->e) + a->lanes - 1) / a->lanes * a->lanes;
}

/* -- functions: sums of a few keys, or elements of values, by all queries of a block */

void attention_put_head(struct attention *a, struct text *out, const char *head)
{
    text_put(out, "@NOINLINE void @%s)\n{\n", head);
    out->indent++;
    if (!a->varies) return;
    kernel_open_sizes(out);
    text_line(out, "(void)f;");
}

void attention_put_end(struct text *out)
{
    out->indent--;
    text_put(out, "}\n\n");
}

/* The products of `rows` elements of memory, `stride` apart, with the vectors at `by`. */
void attention_put_products(struct attention *a, struct text *out, int rows, const char *from, int64_t stride,
                            const char *by)
{
    struct lines lines = {out, "", out->indent, 0};
    for (int v = 0; v < a->vectors; v++)
        text_line(out, "const @%s w%d = *(const @%s *)(%s);", attention_vector(a), v, attention_vector(a),
                  text_plus(a->arena, by, v * a->lanes));
    for (int r = 0; r < rows; r++) {
        const char *one = SAY("{ const @real x_ = %s[%lld];", from, (long long)size_mul(r, stride));
        for (int v = 0; v < a->vectors; v++) one = SAY("%s a%d_%d += x_ * w%d;", one, r, v, v);
        lines_add(&lines, SAY("%s }", one));
    }
    lines_end(&lines);
}

void attention_put_sums(struct attention *a, struct text *out, int rows)
{
    text_put(out, "    @%s ", attention_vector(a));
    for (int i = 0; i < rows * a->vectors; i++)
        text_put(out, "%sa%d_%d = {0}", i ? ", " : "", i / a->vectors, i % a->vectors);
    text_put(out, ";\n");
}

const char *attention_frame(const struct attention *a)
{
    return a->varies ? "const struct sol_frame *f, " : "";
}

static void put_scores_function(struct attention *a, struct text *out, const struct attention_tile *tile, int rows)
{
    attention_put_head(a, out,
                       SAY("%s%d(%sconst @real *k, const @real *q, @real *x", tile->name, rows, attention_frame(a)));
    attention_put_sums(a, out, rows);
    text_open(out, "for (int i = 0; i < %lld; i++, k += %lld, q += %d) {", (long long)tile->depth,
              (long long)tile->from->column, a->queries);
    attention_put_products(a, out, rows, "k", tile->from->row, "q");
    text_close(out, "}");
    for (int i = 0; i < rows * a->vectors; i++)
        text_line(out, "*(@%s *)(%s) = a%d_%d;", attention_vector(a), text_plus(a->arena, "x", i * a->lanes),
                  i / a->vectors, i % a->vectors);
    attention_put_end(out);
}

static void put_values_function(struct attention *a, struct text *out, const struct attention_tile *tile, int rows)
{
    attention_put_head(a, out,
                       SAY("%s%d(%sconst @real *v, const @real *x, int64_t n, @real *y%s", tile->name, rows,
                           attention_frame(a), tile->keep ? ", const @real *keep" : ""));
    attention_put_sums(a, out, rows);
    text_open(out, "for (; n > 0; n--, v += %lld, x += %d) {", (long long)tile->from->row, a->queries);
    attention_put_products(a, out, rows, "v", tile->from->column, "x");
    text_close(out, "}");
    for (int i = 0; i < rows * a->vectors; i++) {
        const char *y = SAY("*(@%s *)(%s)", attention_vector(a), text_plus(a->arena, "y", i * a->lanes));
        const char *keep =
            SAY(" * *(const @%s *)(%s)", attention_vector(a), text_plus(a->arena, "keep", i % a->vectors * a->lanes));
        text_line(out, "%s = %s%s + a%d_%d;", y, y, tile->keep ? keep : "", i / a->vectors, i % a->vectors);
    }
    attention_put_end(out);
}

/* Transposes a square of as many rows as a vector has lanes. */
static void put_turn(struct attention *a, struct text *out)
{
    const int n = a->lanes;
    const char *type = attention_vector(a);
    text_put(out, "@NOINLINE void @turn(const @real *x, int64_t from, @real *y, int64_t to)\n{\n");
    out->indent++;
    for (int i = 0; i < n; i++) text_line(out, "@%s r%d = *(const @%s *)(x + from * %d), s%d;", type, i, type, i, i);
    for (int h = n / 2; h >= 1; h /= 2)
        for (int i = 0; i < n; i++) {
            if (i & h) continue;
            for (int half = 0; half < 2; half++) {
                text_put(out, "    s%d = __builtin_shufflevector(r%d, r%d", half ? i + h : i, i, i + h);
                for (int l = 0; l < n; l++)
                    text_put(out, ", %d", half ? (l & h ? n + l : l + h) : (l & h ? n + l - h : l));
                text_put(out, ");\n");
            }
            text_line(out, "r%d = s%d, r%d = s%d;", i, i, i + h, i + h);
        }
    for (int i = 0; i < n; i++) text_line(out, "*(@%s *)(y + to * %d) = r%d;", type, i, i);
    attention_put_end(out);
}

/* Heights of tiles of keys: a full one, and those for what is left. */
static const int rests[] = {4, 2, 1};

void attention_put_tiles_of_keys(struct attention *a, struct text *out, const struct attention_tile *tile)
{
    put_scores_function(a, out, tile, a->rows);
    for (int i = 0; i < COUNT_OF(rests); i++)
        if (rests[i] < a->rows) put_scores_function(a, out, tile, rests[i]);
}

/* The tiles of values have about equal heights; the last one may be lower. */
static int value_rows(const struct attention *a, int64_t depth)
{
    const int n = (int)depth, tiles = (n + a->rows - 1) / a->rows;
    return (n + tiles - 1) / tiles;
}

void attention_put_tiles_of_values(struct attention *a, struct text *out, const struct attention_tile *tile)
{
    const int rows = value_rows(a, tile->depth), last = (int)tile->depth % rows;
    put_values_function(a, out, tile, rows);
    if (last) put_values_function(a, out, tile, last);
}

static struct attention_tile scores_tile(const struct attention *a)
{
    return (struct attention_tile){"scores", &a->k, attention_size(a, a->d), false};
}

static struct attention_tile values_tile(const struct attention *a)
{
    return (struct attention_tile){"values", &a->v, attention_size(a, a->e), true};
}

/* -- a task */

static const char *read_hook(void *user, struct print_expr *p, int32_t node)
{
    const struct attention_printing *w = user;
    struct attention *a = w->a;
    const int tensor = a->loops->ex.at[node].tensor;
    const char *value = tensor == a->scored  ? w->scored
                        : tensor == a->mixed ? w->mixed
                        : tensor == a->m     ? "m_[l_]"
                        : tensor == a->z     ? "z_[l_]"
                                             : NULL;
    for (int i = 0; i < a->nbeside; i++)
        if (tensor == a->aside[i]) return w->aside[i];
    if (!value) return NULL;
    if (tensor == a->m || tensor == a->z)
        return p->lanes > 1 ? SAY("@sol_splat_%s(%s)", attention_vector(a), value) : value;
    return p->lanes == 1 && p->lane ? SAY("%s[%s]", value, p->lane) : value;
}

void attention_put_pointers(struct attention *a, struct text *out)
{
    int n = 0;
    for (int i = 0; i < a->was->tensors.n; i++) {
        const struct loops_tensor *t = &a->was->tensors.at[i];
        if (t->role != LOOPS_INPUT && t->role != LOOPS_OUTPUT) continue;
        const char *type = dtype_def(t->dtype)->c_name;
        print_operand(out, a->target, t->name, t->role == LOOPS_INPUT ? SAY("const %s", type) : type, n++);
    }
}

/* The worker's scratch memory: queries across, sums of values, scores, what stands beside these, and three numbers for
 * each query. Returns its size in elements. */
static int64_t put_scratch(struct attention *a, struct text *out)
{
    const struct {
        const char *name;
        int64_t rows;
    } parts[] = {{"q_", attention_size(a, a->d)},
                 {"y_", padded(a)},
                 {"x_", MAX(a->keys, padded(a))},
                 {"b_", (int64_t)a->nbeside * a->keys},
                 {"m_", 1},
                 {"z_", 1},
                 {"keep_", 1}};
    int64_t at = 0;
    text_line(out, "@real *const own_ = (@real *)((char *)f->scratch + worker * f->scratch_bytes);");
    for (int i = 0; i < COUNT_OF(parts); i++) {
        if (!parts[i].rows) continue;
        text_line(out, "@real *const %s = %s;", parts[i].name, text_plus(a->arena, "own_", at));
        at += parts[i].rows * a->queries;
    }
    return at;
}

int64_t attention_put_batch(struct attention *a, struct text *out, const char *number, int64_t n)
{
    for (int i = a->loops->ivars.n - 1; i >= 0; i--) {
        if (!(a->batch >> i & 1)) continue;
        const char *at = text_over(a->arena, number, n);
        n = size_mul(n, attention_size(a, i));
        text_line(out, "const int64_t %s = %s;", attention_name(a, i),
                  text_modulo(a->arena, text_enclosed(a->arena, at), attention_size(a, i)));
    }
    return n;
}

int64_t attention_put_place(struct attention *a, struct text *out)
{
    const int64_t n = size_ceil_div(attention_size(a, a->t), a->queries);
    text_line(out, "const int64_t t0_ = %s * %d;", text_enclosed(a->arena, text_modulo(a->arena, "task", n)),
              a->queries);
    text_line(out, "const int64_t count_ = @sol_min_i64(%d, %lld - t0_);", a->queries,
              (long long)attention_size(a, a->t));
    return attention_put_batch(a, out, "task", n);
}

const char *attention_address_at(struct attention_printing *w, const struct attention_factor *x, const char *query)
{
    const struct attention *a = w->a;
    const struct ex *e = &a->loops->ex.at[x->node];
    for (int i = 0; i < a->loops->ivars.n; i++) w->ivar[i] = (struct print_ivar){0};
    w->ivar[a->s].known = w->ivar[a->d].known = w->ivar[a->e].known = true;
    w->ivar[a->t] = (struct print_ivar){true, query, 0, 0, size_sub(attention_size(a, a->t), 1)};
    const char *at = print_offset(&w->p, x->tensor, e->a);
    w->ivar[a->s].known = w->ivar[a->d].known = w->ivar[a->e].known = w->ivar[a->t].known = false;
    return text_address(a->arena, a->loops->tensors.at[x->tensor].name, at);
}

const char *attention_address(struct attention_printing *w, const struct attention_factor *x)
{
    return attention_address_at(w, x, "t0_");
}

static void put_start(struct attention_printing *w, struct text *out)
{
    struct attention *a = w->a;
    const int64_t depth = attention_size(a, a->d), whole = a->q.column == 1 ? depth / a->lanes * a->lanes : 0;
    const long long row = a->q.row, column = a->q.column;
    text_line(out, "const @real *const first_ = %s;", attention_address(w, &a->q));
    text_line(out, "const @real *const k_ = %s;", attention_address(w, &a->k));
    text_line(out, "const @real *const v_ = %s;", attention_address(w, &a->v));
    text_line(out, "int64_t turned_ = 0;");
    if (whole) {
        text_open(out, "for (; turned_ + %d <= count_; turned_ += %d)", a->lanes, a->lanes);
        text_open(out, "for (int64_t i = 0; i < %lld; i += %d)", (long long)whole, a->lanes);
        text_line(out, "@turn(first_ + turned_ * %lld + i, %lld, q_ + i * %d + turned_, %d);", row, row, a->queries,
                  a->queries);
        out->indent -= 2;
    }
    text_open(out, "for (int64_t l = 0; l < %d; l++)", a->queries);
    text_open(out, "for (int64_t i = l < turned_ ? %lld : 0; i < %lld; i++)", (long long)whole, (long long)depth);
    text_line(out, "q_[i * %d + l] = l < count_ ? first_[l * %lld + i * %lld] : 0;", a->queries, row, column);
    out->indent -= 2;
    text_line(out, "for (int i = 0; i < %d; i++) m_[i] = -@INFINITY, z_[i] = 0;", a->queries);
    text_line(out, "for (int i = 0; i < %lld; i++) y_[i] = 0;", (long long)(padded(a) * a->queries));
}

/* -- scores */

struct attention_range attention_range(struct attention_printing *w, int of, int by, const char *first,
                                       const char *last)
{
    struct attention *a = w->a;
    const char *low[2], *high[2];
    bool rest = false;
    for (int i = 0; i < 2; i++) {
        struct print_loops l = {0};
        w->ivar[by] = (struct print_ivar){true, i ? last : first, 0, 0, size_sub(attention_size(a, by), 1)};
        nest_guard(&w->p, &l, a->guard);
        nest_range(&w->p, &l, of, 0, &low[i], &high[i]);
        rest |= l.guard.n > 0;
    }
    w->ivar[by].known = false;
    return (struct attention_range){
        SAY("@sol_min_i64(%s, %s)", low[0], low[1]), SAY("@sol_max_i64(%s, %s)", high[0], high[1]),
        rest ? NULL : SAY("@sol_max_i64(%s, %s)", low[0], low[1]), SAY("@sol_min_i64(%s, %s)", high[0], high[1])};
}

struct attention_range attention_put_range(struct attention_printing *w, struct text *out)
{
    text_line(out, "const int64_t last_ = t0_ + count_ - 1;");
    text_line(out, "(void)last_;");
    return attention_range(w, w->a->s, w->a->t, "t0_", "last_");
}

/* One vector of scores: a sum becomes a score, or -inf outside of the guard. */
static void put_score(struct attention_printing *w, struct text *out, int v, bool guarded)
{
    struct attention *a = w->a;
    const char *type = attention_vector(a), *at = text_plus(a->arena, "row_", v * a->lanes);
    struct print_expr *p = &w->p;
    w->ivar[a->t] = (struct print_ivar){true, "t0_", v * a->lanes, 0, size_sub(attention_size(a, a->t), 1)};
    p->lanes = a->lanes;
    p->vector_ivar = a->t;
    text_open(out, "{");
    text_line(out, "const @%s sum_ = *(const @%s *)(%s);", type, type, at);
    w->scored = "sum_";
    for (int i = 0; i < a->nbeside; i++)
        w->aside[i] = SAY("*(const @%s *)(b_ + (row_ - x_)%s)", type,
                          text_plus(a->arena, "", (int64_t)i * a->keys * a->queries + v * a->lanes));
    const char *value = print_value(p, a->turned, a->dtype);
    if (guarded)
        value = SAY("@sol_select_%s(%s, %s, @sol_splat_%s(-@INFINITY))", type,
                    expr_mask(p, a->guard, compute_of(a->dtype)), value, type);
    text_line(out, "const @%s score_ = %s;", type, text_bare(a->arena, value));
    text_line(out, "*(@%s *)(%s) = score_;", type, at);
    text_line(out, "top%d_ = @sol_greater_%s(score_, top%d_);", v, type, v);
    text_close(out, "}");
    p->lanes = 1;
    p->vector_ivar = -1;
    w->ivar[a->t].known = false;
}

static void open_keys(struct attention *a, struct text *out)
{
    const char *s = attention_name(a, a->s);
    text_open(out, "for (int64_t %s = k0_; %s < k0_ + n_; %s++) {", s, s, s);
    text_line(out, "@real *const row_ = x_ + (%s - k0_) * %d;", s, a->queries);
}

static void put_scores(struct attention_printing *w, struct text *out, bool guarded)
{
    open_keys(w->a, out);
    for (int v = 0; v < w->a->vectors; v++) put_score(w, out, v, guarded);
    text_close(out, "}");
}

/* The same one by one, for a block that is not full: what a score reads may not exist for other queries. */
static void put_few_scores(struct attention_printing *w, struct text *out)
{
    struct attention *a = w->a;
    const char *type = attention_vector(a);
    open_keys(a, out);
    text_open(out, "for (int64_t l_ = 0; l_ < count_; l_++) {");
    text_line(out, "const int64_t %s = t0_ + l_;", attention_name(a, a->t));
    text_line(out, "const @real sum_ = row_[l_];");
    text_line(out, "(void)%s;", attention_name(a, a->t));
    w->scored = "sum_";
    const char *value = print_value(&w->p, a->score, a->dtype);
    if (a->guard) value = SAY("%s ? %s : -@INFINITY", print_condition(&w->p, a->guard), value);
    text_line(out, "row_[l_] = %s;", text_bare(a->arena, value));
    text_close(out, "}");
    for (int v = 0; v < a->vectors; v++)
        text_line(out, "top%d_ = @sol_greater_%s(*(const @%s *)(%s), top%d_);", v, type, type,
                  text_plus(a->arena, "row_", v * a->lanes), v);
    text_close(out, "}");
}

/* Part i of the scores of a full block of queries, turned as these are: squares of as many keys as a vector has lanes,
 * the last one beginning within the one before. */
static void put_beside(struct attention_printing *w, struct text *out, int i)
{
    struct attention *a = w->a;
    const char *s = attention_name(a, a->s), *t = attention_name(a, a->t), *type = attention_vector(a);
    const char *to = text_plus(a->arena, "b_", (int64_t)i * a->keys * a->queries);
    const int n = a->lanes;
    text_open(out, "for (int64_t l_ = 0; l_ < %d; l_ += %d) {", a->queries, n);
    text_open(out, "for (int64_t i = 0; i < n_ && n_ >= %d; i += %d) {", n, n);
    text_line(out, "const int64_t at_ = @sol_min_i64(i, n_ - %d), %s = k0_ + at_;", n, s);
    text_line(out, "@real square_[%d];", n * n);
    text_open(out, "for (int64_t r_ = 0; r_ < %d; r_++) {", n);
    text_line(out, "const int64_t %s = t0_ + l_ + r_;", t);
    text_line(out, "(void)%s, (void)%s;", s, t);
    w->p.lanes = n;
    w->p.vector_ivar = a->s;
    const char *value = print_value(&w->p, a->beside[i], a->dtype);
    text_line(out, "*(@%s *)(square_ + r_ * %d) = %s;", type, n, text_bare(a->arena, value));
    w->p.lanes = 1;
    w->p.vector_ivar = -1;
    text_close(out, "}");
    text_line(out, "@turn(square_, %d, %s + at_ * %d + l_, %d);", n, to, a->queries, a->queries);
    text_close(out, "}");
    text_open(out, "for (int64_t i = 0; i < n_ && n_ < %d; i++)", n);
    text_open(out, "for (int64_t r_ = 0; r_ < %d; r_++) {", n);
    text_line(out, "const int64_t %s = k0_ + i, %s = t0_ + l_ + r_;", s, t);
    text_line(out, "(void)%s, (void)%s;", s, t);
    value = print_value(&w->p, a->beside[i], a->dtype);
    text_line(out, "(%s)[i * %d + l_ + r_] = %s;", to, a->queries, text_bare(a->arena, value));
    text_close(out, "}");
    out->indent--;
    text_close(out, "}");
}

static void put_all_scores(struct attention_printing *w, struct text *out, const struct attention_range *range)
{
    struct attention *a = w->a;
    const bool inside = a->guard && range->all_from;
    for (int v = 0; v < a->vectors; v++)
        text_line(out, "@%s top%d_ = @sol_splat_%s(-@INFINITY);", attention_vector(a), v, attention_vector(a));
    if (a->score_by_query) {
        text_open(out, "if (count_ < %d) {", a->queries);
        put_few_scores(w, out);
        text_close(out, "}");
        text_put(out, "%*selse ", out->indent * 4, "");
    } else {
        text_put(out, "%*s", out->indent * 4, "");
    }
    if (a->nbeside) {
        text_put(out, "{\n");
        out->indent++;
        for (int i = 0; i < a->nbeside; i++) put_beside(w, out, i);
        text_put(out, "%*s", out->indent * 4, "");
    }
    if (inside) {
        text_put(out, "if (k0_ >= all0_ && k0_ + n_ <= all1_) {\n");
        out->indent++;
        put_scores(w, out, false);
        text_close(out, "}");
        text_put(out, "%*selse ", out->indent * 4, "");
    }
    text_put(out, "{\n");
    out->indent++;
    put_scores(w, out, a->guard != 0);
    text_close(out, "}");
    if (a->nbeside) text_close(out, "}");
}

/* -- a block of keys */

void attention_put_sums_of_keys(struct attention *a, struct text *out, const struct attention_tile *tile,
                                const char *from, const char *by, const char *to)
{
    const char *f = a->varies ? "f, " : "";
    text_line(out, "int64_t i_ = 0;");
    for (int i = -1; i < COUNT_OF(rests); i++) {
        const int rows = i < 0 ? a->rows : rests[i];
        if (i >= 0 && rows >= a->rows) continue;
        text_line(out, "for (; i_ + %d <= n_; i_ += %d) @%s%d(%s%s + (k0_ + i_) * %lld, %s, %s + i_ * %d);", rows, rows,
                  tile->name, rows, f, from, (long long)tile->from->row, by, to, a->queries);
    }
}

/* Scores become weights. */
static void put_weights(struct attention *a, struct text *out)
{
    const char *type = attention_vector(a);
    for (int v = 0; v < a->vectors; v++) {
        const char *place = text_plus(a->arena, "", v * a->lanes);
        text_line(out, "const @%s old%d_ = *(const @%s *)(m_%s);", type, v, type, place);
        text_line(out, "top%d_ = @sol_greater_%s(top%d_, old%d_);", v, type, v, v);
        text_line(out, "const @%s base%d_ = @sol_select_%s(top%d_ == -@INFINITY, (@%s){0}, top%d_);", type, v, type, v,
                  type, v);
        text_line(out, "const @%s part%d_ = @sol_weight_%s(old%d_ - base%d_);", type, v, type, v, v);
        text_line(out, "*(@%s *)(m_%s) = top%d_;", type, place, v);
        text_line(out, "*(@%s *)(keep_%s) = part%d_;", type, place, v);
        text_line(out, "@%s total%d_ = {0};", type, v);
    }
    text_open(out, "for (int64_t i = 0; i < n_ * %d; i += %d) {", a->queries, a->queries);
    for (int v = 0; v < a->vectors; v++) {
        const char *at = SAY("x_ + i%s", text_plus(a->arena, "", v * a->lanes));
        text_line(out, "const @%s weight%d_ = @sol_weight_%s(*(const @%s *)(%s) - base%d_);", type, v, type, type, at,
                  v);
        text_line(out, "*(@%s *)(%s) = weight%d_;", type, at, v);
        text_line(out, "total%d_ += weight%d_;", v, v);
    }
    text_close(out, "}");
    for (int v = 0; v < a->vectors; v++) {
        const char *z = SAY("*(@%s *)(z_%s)", type, text_plus(a->arena, "", v * a->lanes));
        text_line(out, "%s = %s * part%d_ + total%d_;", z, z, v, v);
    }
}

void attention_put_sums_of_values(struct attention *a, struct text *out, const struct attention_tile *tile,
                                  const char *from, const char *by, const char *to)
{
    const char *f = a->varies ? "f, " : "", *keep = tile->keep ? ", keep_" : "";
    const int64_t n = tile->depth;
    const int rows = value_rows(a, n), last = (int)(n % rows);
    const long long step = tile->from->column, row = tile->from->row;
    text_line(out, "for (int64_t i = 0; i + %d <= %lld; i += %d)", rows, (long long)n, rows);
    text_line(out, "    @%s%d(%s%s + k0_ * %lld + i * %lld, %s, n_, %s + i * %d%s);", tile->name, rows, f, from, row,
              step, by, to, a->queries, keep);
    if (last)
        text_line(out, "@%s%d(%s%s + k0_ * %lld + %lld, %s, n_, %s + %lld%s);", tile->name, last, f, from, row,
                  (long long)size_mul(n - last, step), by, to, (long long)((n - last) * a->queries), keep);
}

static void put_blocks(struct attention_printing *w, struct text *out)
{
    struct attention *a = w->a;
    const struct attention_range range = attention_put_range(w, out);
    text_line(out, "const int64_t from_ = %s, to_ = %s;", range.from, range.to);
    if (a->guard && range.all_from)
        text_line(out, "const int64_t all0_ = %s, all1_ = %s;", range.all_from, range.all_to);
    text_open(out, "for (int64_t k0_ = from_; k0_ < to_; k0_ += %d) {", a->keys);
    text_line(out, "const int64_t n_ = @sol_min_i64(%d, to_ - k0_);", a->keys);
    const struct attention_tile scores = scores_tile(a), values = values_tile(a);
    attention_put_sums_of_keys(a, out, &scores, "k_", "q_", "x_");
    put_all_scores(w, out, &range);
    put_weights(a, out);
    attention_put_sums_of_values(a, out, &values, "v_", "x_", "y_");
    text_close(out, "}");
}

/* -- results */

static void put_stores(struct attention_printing *w, struct text *out, int lanes)
{
    struct attention *a = w->a;
    w->p.lanes = lanes;
    w->p.vector_ivar = lanes > 1 ? a->e : -1;
    w->mixed = lanes > 1 ? "mixed_" : SAY("row_[%s]", attention_name(a, a->e));
    if (lanes > 1)
        text_line(out, "const @%s mixed_ = *(const @%s *)(row_ + %s);", attention_vector(a), attention_vector(a),
                  attention_name(a, a->e));
    for (int i = 0; i < a->nstore; i++) {
        const struct attention_store *s = &a->store[i];
        print_store(&w->p, s->tensor, s->index, print_value(&w->p, s->value, a->loops->tensors.at[s->tensor].dtype));
    }
    w->p.lanes = 1;
    w->p.vector_ivar = -1;
}

static void put_results(struct attention_printing *w, struct text *out)
{
    struct attention *a = w->a;
    const long long size = attention_size(a, a->e), wide = padded(a);
    const char *e = attention_name(a, a->e);
    text_open(out, "for (int64_t l = 0; l < %d; l += %d)", a->queries, a->lanes);
    text_open(out, "for (int64_t i = 0; i < %lld; i += %d)", wide, a->lanes);
    text_line(out, "@turn(y_ + i * %d + l, %d, x_ + l * %lld + i, %lld);", a->queries, a->queries, wide, wide);
    out->indent -= 2;
    text_open(out, "for (int64_t l_ = 0; l_ < count_; l_++) {");
    text_line(out, "const int64_t %s = t0_ + l_;", attention_name(a, a->t));
    text_line(out, "const @real *const row_ = x_ + l_ * %lld;", wide);
    const int softmax[] = {a->m, a->z};
    for (int i = 0; i < 2; i++)
        if (a->loops->tensors.at[softmax[i]].role == LOOPS_OUTPUT)
            print_store(&w->p, softmax[i], a->row_index, i ? "z_[l_]" : "m_[l_]");
    text_line(out, "int64_t %s = 0;", e);
    text_open(out, "for (; %s + %d <= %lld; %s += %d) {", e, a->lanes, size, e, a->lanes);
    put_stores(w, out, a->lanes);
    text_close(out, "}");
    if (size % a->lanes) {
        text_open(out, "for (; %s < %lld; %s++) {", e, size, e);
        put_stores(w, out, 1);
        text_close(out, "}");
    }
    text_close(out, "}");
}

struct text *attention_begin(struct attention_printing *w, struct attention *a,
                             const char *(*read)(void *user, struct print_expr *p, int32_t node))
{
    struct text *text = NEW(a->arena, struct text);
    *text = solver_text(a->sc);
    w->a = a;
    w->p = (struct print_expr){.out = text,
                               .loops = a->loops,
                               .memory = a->memory,
                               .target = a->target,
                               .lanes = 1,
                               .vector_ivar = -1,
                               .read = read,
                               .user = w,
                               .ivars = w->ivar};
    print_tables(text, a->loops);
    text_put(text, "typedef %s @real;\n", dtype_def(a->dtype)->c_name);
    return text;
}

struct text *attention_open(struct attention_printing *w, struct attention *a,
                            const char *(*read)(void *user, struct print_expr *p, int32_t node))
{
    struct text *text = attention_begin(w, a, read);
    put_turn(a, text);
    return text;
}

void attention_close(const struct attention *a, struct text *text, int64_t elements, struct kernel *out)
{
    text_close(text, "}");
    kernel_close(text);
    out->source = text->at;
    out->nstep = 1;
    out->scratch_bytes = kernel_lines(size_mul(elements, dtype_def(a->dtype)->bytes));
}

void attention_print(struct attention *a, struct kernel *out)
{
    struct attention_printing *w = NEW(a->arena, struct attention_printing);
    struct text *text = attention_open(w, a, read_hook);
    const struct attention_tile scores = scores_tile(a), values = values_tile(a);
    attention_put_tiles_of_keys(a, text, &scores);
    attention_put_tiles_of_values(a, text, &values);
    kernel_open(text, 0);
    attention_put_pointers(a, text);
    const int64_t elements = put_scratch(a, text);
    text_open(text, "for (int64_t task = task0; task < task1; task++) {");
    out->step[0].tasks = attention_put_place(a, text);
    put_start(w, text);
    put_blocks(w, text);
    put_results(w, text);
    attention_close(a, text, elements, out);
}
