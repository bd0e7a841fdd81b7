/* Prints the gradient of attention. A task is one batch element. For each block of queries and block of keys it
 * computes the weights and their gradients, with queries as the lanes of vectors, and adds their products to the
 * gradient of the queries, which is complete after all keys, and to those of keys and values, with their columns as
 * lanes, which wait in scratch memory until all queries were there. */
#include "dnn/attention_print.h"

struct grad_printing {
    struct attention_printing w; /* first: hooks get it */
    struct attention_grad *g;
    const char *gained, *weight; /* the values of these tensors, as text */
    int vector;                  /* number of the vector whose lanes are printed; -1: query l_ alone */
};

/* Columns of a row in scratch memory: whole vectors. */
static int64_t wide(const struct attention *a, int ivar)
{
    return (attention_size(a, ivar) + a->lanes - 1) / a->lanes * a->lanes;
}

int64_t attention_grad_tasks(const struct attention_grad *g)
{
    return ivars_size(g->a.loops, g->a.batch);
}

/* -- sums over queries: y[S C] += x[S T] * q[T C] */

#define MOST_VECTORS 4

/* Blocks of columns have about equal widths, in vectors. */
static int column_vectors(const struct attention *a, int ivar)
{
    const int n = (int)(wide(a, ivar) / a->lanes), blocks = (n + MOST_VECTORS - 1) / MOST_VECTORS;
    return (n + blocks - 1) / blocks;
}

static const int heights[] = {4, 2, 1}; /* of the rests */

static void put_turned_function(struct attention *a, struct text *out, int rows, int vectors)
{
    struct attention tile = *a;
    tile.vectors = vectors;
    attention_put_head(&tile, out,
                       SAY("turned%d_%d(%sconst @real *x, const @real *q, int64_t n, @real *y, int64_t wide", rows,
                           vectors, attention_frame(a)));
    attention_put_sums(&tile, out, rows);
    text_open(out, "for (; n > 0; n--, x++, q += wide) {");
    attention_put_products(&tile, out, rows, "x", a->queries, "q");
    text_close(out, "}");
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++)
            text_line(out, "*(@%s *)(y + %d * wide + %d) += a%d_%d;", attention_vector(a), r, v * a->lanes, r, v);
    attention_put_end(out);
}

static void put_turned_functions(struct attention *a, struct text *out, int vectors)
{
    const int rows = attention_tile_rows(a->target, vectors);
    put_turned_function(a, out, rows, vectors);
    for (int i = 0; i < COUNT_OF(heights); i++)
        if (heights[i] < rows) put_turned_function(a, out, heights[i], vectors);
}

/* The widths of blocks of columns of both gradients, each once. */
static int column_widths(const struct attention *a, int out[4])
{
    const int ivars[] = {a->d, a->e};
    int n = 0;
    for (int i = 0; i < COUNT_OF(ivars); i++) {
        const int block = column_vectors(a, ivars[i]), last = (int)(wide(a, ivars[i]) / a->lanes) % block;
        const int found[] = {block, last};
        for (int k = 0; k < COUNT_OF(found); k++) {
            bool known = !found[k];
            for (int j = 0; j < n; j++) known |= out[j] == found[k];
            if (!known) out[n++] = found[k];
        }
    }
    return n;
}

struct turned { /* C text of x, q and y */
    const char *x, *q, *y;
    int vectors;
    int64_t wide;
};

static void put_turned_calls(struct attention *a, struct text *out, const struct turned *t)
{
    const char *f = a->varies ? "f, " : "";
    const int most = attention_tile_rows(a->target, t->vectors);
    const long long wide = t->wide;
    text_line(out, "int64_t s_ = 0;");
    for (int i = -1; i < COUNT_OF(heights); i++) {
        const int rows = i < 0 ? most : heights[i];
        if (i >= 0 && rows >= most) continue;
        text_open(out, "for (; s_ + %d <= n_; s_ += %d)", rows, rows);
        text_line(out, "@turned%d_%d(%s%s + s_ * %d, %s, count_, %s + (k0_ + s_) * %lld, %lld);", rows, t->vectors, f,
                  t->x, a->queries, t->q, t->y, wide, wide);
        out->indent--;
    }
}

/* y += the products of the block of keys k0_ .. and the queries */
static void put_turned(struct attention *a, struct text *out, int ivar, struct turned t)
{
    const char *const q = t.q, *const y = t.y;
    t.wide = wide(a, ivar);
    t.vectors = column_vectors(a, ivar);
    const int step = t.vectors * a->lanes, last = (int)(t.wide % step);
    text_open(out, "for (int64_t c_ = 0; c_ + %d <= %lld; c_ += %d) {", step, (long long)t.wide, step);
    t.q = SAY("%s + c_", q);
    t.y = SAY("%s + c_", y);
    put_turned_calls(a, out, &t);
    text_close(out, "}");
    if (!last) return;
    text_open(out, "{");
    t.q = text_plus(a->arena, q, t.wide - last);
    t.y = text_plus(a->arena, y, t.wide - last);
    t.vectors = last / a->lanes;
    put_turned_calls(a, out, &t);
    text_close(out, "}");
}

/* -- a task */

static const char *read_hook(void *user, struct print_expr *p, int32_t node)
{
    const struct grad_printing *w = user;
    const struct attention_grad *g = w->g;
    const struct attention *a = &g->a;
    const int tensor = a->loops->ex.at[node].tensor;
    const char *value = tensor == a->scored ? w->w.scored : tensor == g->gained ? w->gained : NULL;
    if (tensor == g->weight) value = w->weight;
    for (int i = 0; i < ATTENTION_SUMS; i++)
        if (tensor == g->sum[i]) value = w->w.mixed;
    if (value) return p->lanes == 1 && p->lane ? SAY("%s[%s]", value, p->lane) : value;
    for (int i = 0; i < g->nrow; i++) {
        if (!w->weight || !ex_equal(a->loops, g->row[i], node)) continue;
        if (w->vector < 0) return SAY("rows_[%d + l_]", i * a->queries);
        const int first = i * a->queries + w->vector * a->lanes;
        return p->lanes == 1 ? SAY("rows_[%d + %s]", first, p->lane)
                             : SAY("(*(const @%s *)(%s))", attention_vector(a), text_plus(a->arena, "rows_", first));
    }
    return NULL;
}

/* The worker's scratch memory. Returns its size in elements. */
static int64_t put_scratch(const struct attention_grad *g, struct text *out)
{
    const struct attention *a = &g->a;
    const int64_t d = wide(a, a->d), e = wide(a, a->e);
    const struct {
        const char *name;
        int64_t elements;
    } parts[] = {{"across_q_", d * a->queries}, /* [D T] */
                 {"across_d_", e * a->queries}, /* [E T] */
                 {"along_q_", d * a->queries},  /* [T D] */
                 {"along_d_", e * a->queries},  /* [T E] */
                 {"dq_", d * a->queries},       /* [D T] */
                 {"x_", (int64_t)a->keys * a->queries},
                 {"r_", (int64_t)a->keys * a->queries},
                 {"rows_", (int64_t)MAX(g->nrow, 1) * a->queries}};
    const int64_t keys = attention_size(a, a->s);
    int64_t at = 0;
    text_line(out, "@real *const own_ = (@real *)((char *)f->scratch + worker * f->scratch_bytes);");
    for (int i = 0; i < COUNT_OF(parts); i++) {
        text_line(out, "@real *const %s = %s;", parts[i].name, text_plus(a->arena, "own_", at));
        at += parts[i].elements;
    }
    text_line(out, "@real *const dk_ = %s; // [S D]", text_plus(a->arena, "own_", at));
    text_line(out, "@real *const dv_ = dk_ + %lld; // [S E]", (long long)size_mul(keys, d));
    return size_add(at, size_mul(keys, d + e));
}

static void put_batch(struct attention *a, struct text *out)
{
    attention_put_batch(a, out, "task", 1);
    text_line(out, "for (int64_t i = 0; i < %lld; i++) dk_[i] = 0;",
              (long long)size_mul(attention_size(a, a->s), wide(a, a->d) + wide(a, a->e)));
}

/* Rows of a factor with whole vectors, and with all queries of a block, zeros beyond; and the same transposed. */
static void put_factor(struct grad_printing *w, struct text *out, const struct attention_factor *x, int ivar,
                       const char *name)
{
    struct attention *a = w->w.a;
    const long long size = attention_size(a, ivar), all = wide(a, ivar);
    text_open(out, "{");
    text_line(out, "const @real *const from_ = %s;", attention_address(&w->w, x));
    text_open(out, "for (int64_t l = 0; l < count_; l++)");
    text_line(out, "for (int64_t i = 0; i < %lld; i++) along_%s_[l * %lld + i] = from_[l * %lld + i * %lld];", size,
              name, all, (long long)x->row, (long long)x->column);
    out->indent--;
    if (all > size) {
        text_open(out, "for (int64_t l = 0; l < count_; l++)");
        text_line(out, "for (int64_t i = %lld; i < %lld; i++) along_%s_[l * %lld + i] = 0;", size, all, name, all);
        out->indent--;
    }
    text_line(out, "for (int64_t i = count_ * %lld; i < %lld; i++) along_%s_[i] = 0;", all,
              (long long)(all * a->queries), name);
    text_open(out, "for (int64_t l = 0; l < %d; l += %d)", a->queries, a->lanes);
    text_line(out, "for (int64_t i = 0; i < %lld; i += %d)", all, a->lanes);
    text_line(out, "    @turn(along_%s_ + l * %lld + i, %lld, across_%s_ + i * %d + l, %d);", name, all, all, name,
              a->queries, a->queries);
    out->indent--;
    text_close(out, "}");
}

/* What differs between queries alone, for each of them; 0 for those that a last block lacks. */
static void put_rows(struct grad_printing *w, struct text *out)
{
    struct attention *a = w->w.a;
    const char *t = attention_name(a, a->t);
    if (!w->g->nrow) return;
    text_line(out, "for (int64_t i = 0; i < %d; i++) rows_[i] = 0;", w->g->nrow * a->queries);
    text_open(out, "for (int64_t l_ = 0; l_ < count_; l_++) {");
    text_line(out, "const int64_t %s = t0_ + l_;", t);
    for (int i = 0; i < w->g->nrow; i++)
        text_line(out, "rows_[%d + l_] = %s;", i * a->queries,
                  text_bare(a->arena, print_value(&w->w.p, w->g->row[i], a->dtype)));
    text_close(out, "}");
}

/* -- weights and their gradients */

static void put_weight(struct grad_printing *w, struct text *out, int32_t p, int32_t r)
{
    struct attention *a = w->w.a;
    const char *type = w->vector < 0 ? "real" : attention_vector(a);
    const char *at = w->vector < 0 ? "l_" : arena_printf(a->arena, "%d", w->vector * a->lanes);
    text_line(out, "const @%s sum_ = *(const @%s *)(row_ + %s), gain_ = *(const @%s *)(gains_ + %s);", type, type, at,
              type, at);
    w->w.scored = "sum_";
    w->gained = "gain_";
    w->weight = "weight_";
    text_line(out, "const @%s weight_ = %s;", type, text_bare(a->arena, print_value(&w->w.p, p, a->dtype)));
    text_line(out, "*(@%s *)(row_ + %s) = weight_;", type, at);
    text_line(out, "*(@%s *)(gains_ + %s) = %s;", type, at, text_bare(a->arena, print_value(&w->w.p, r, a->dtype)));
    w->weight = NULL;
}

static void open_keys(const struct attention *a, struct text *out)
{
    const char *s = attention_name(a, a->s);
    text_open(out, "for (int64_t %s = k0_; %s < k0_ + n_; %s++) {", s, s, s);
    text_line(out, "@real *const row_ = x_ + (%s - k0_) * %d, *const gains_ = r_ + (%s - k0_) * %d;", s, a->queries, s,
              a->queries);
}

static void put_weights(struct grad_printing *w, struct text *out, bool inside)
{
    struct attention *a = w->w.a;
    struct print_expr *p = &w->w.p;
    open_keys(a, out);
    for (int v = 0; v < a->vectors; v++) {
        w->w.ivar[a->t] = (struct print_ivar){true, "t0_", v * a->lanes, 0, size_sub(attention_size(a, a->t), 1)};
        p->lanes = a->lanes;
        p->vector_ivar = a->t;
        w->vector = v;
        text_open(out, "{");
        put_weight(w, out, inside ? w->g->p_inside : a->score, inside ? w->g->r_inside : w->g->r);
        text_close(out, "}");
    }
    p->lanes = 1;
    p->vector_ivar = -1;
    w->vector = -1;
    w->w.ivar[a->t].known = false;
    text_close(out, "}");
}

/* One by one, for a block that is not full: what is read may not exist for other queries. */
static void put_few_weights(struct grad_printing *w, struct text *out)
{
    struct attention *a = w->w.a;
    open_keys(a, out);
    text_open(out, "for (int64_t l_ = 0; l_ < count_; l_++) {");
    text_line(out, "const int64_t %s = t0_ + l_;", attention_name(a, a->t));
    text_line(out, "(void)%s;", attention_name(a, a->t));
    put_weight(w, out, a->score, w->g->r);
    text_close(out, "}");
    text_close(out, "}");
}

static void put_all_weights(struct grad_printing *w, struct text *out, bool all)
{
    struct attention *a = w->w.a;
    if (a->score_by_query) {
        text_open(out, "if (count_ < %d) {", a->queries);
        put_few_weights(w, out);
        text_close(out, "} else {");
        out->indent++;
    }
    if (all) {
        text_open(out, "if (k0_ >= all0_ && k0_ + n_ <= all1_) {");
        put_weights(w, out, true);
        text_close(out, "} else {");
        out->indent++;
    }
    put_weights(w, out, false);
    if (all) text_close(out, "}");
    if (a->score_by_query) text_close(out, "}");
}

static void put_keys(struct grad_printing *w, struct text *out, const struct attention_tile tile[3])
{
    struct attention *a = w->w.a;
    const struct attention_range range = attention_put_range(&w->w, out);
    const bool all = a->guard && range.all_from;
    text_line(out, "const int64_t first_ = %s, end_ = %s;", range.from, range.to);
    if (all) text_line(out, "const int64_t all0_ = %s, all1_ = %s;", range.all_from, range.all_to);
    text_open(out, "for (int64_t k0_ = first_; k0_ < end_; k0_ += %d) {", a->keys);
    text_line(out, "const int64_t n_ = @sol_min_i64(%d, end_ - k0_);", a->keys);
    text_open(out, "{");
    attention_put_sums_of_keys(a, out, &tile[0], "k_", "across_q_", "x_");
    text_close(out, "}");
    text_open(out, "{");
    attention_put_sums_of_keys(a, out, &tile[1], "v_", "across_d_", "r_");
    text_close(out, "}");
    put_all_weights(w, out, all);
    attention_put_sums_of_values(a, out, &tile[2], "k_", "r_", "dq_");
    put_turned(a, out, a->d, (struct turned){"r_", "along_q_", "dk_", 0, 0});
    put_turned(a, out, a->e, (struct turned){"x_", "along_d_", "dv_", 0, 0});
    text_close(out, "}");
}

/* -- results */

static void put_stores(struct grad_printing *w, struct text *out, int of, int lanes)
{
    struct attention *a = w->w.a;
    struct print_expr *p = &w->w.p;
    const char *column = attention_name(a, w->g->column[of]);
    p->lanes = lanes;
    p->vector_ivar = lanes > 1 ? w->g->column[of] : -1;
    w->w.mixed = lanes > 1 ? "mixed_" : SAY("row_[%s]", column);
    if (lanes > 1)
        text_line(out, "const @%s mixed_ = *(const @%s *)(row_ + %s);", attention_vector(a), attention_vector(a),
                  column);
    for (int i = 0; i < w->g->nstore; i++) {
        const struct attention_store *s = &w->g->store[i].to;
        if (w->g->store[i].of == of)
            print_store(p, s->tensor, s->index, print_value(p, s->value, a->loops->tensors.at[s->tensor].dtype));
    }
    p->lanes = 1;
    p->vector_ivar = -1;
}

/* Rows of a result that lie in scratch memory one after another. */
static void put_rows_of(struct grad_printing *w, struct text *out, int of, const char *rows)
{
    struct attention *a = w->w.a;
    const int column = w->g->column[of];
    const char *c = attention_name(a, column);
    const long long size = attention_size(a, column);
    text_line(out, "const @real *const row_ = %s * %lld;", rows, (long long)wide(a, column));
    text_line(out, "int64_t %s = 0;", c);
    text_open(out, "for (; %s + %d <= %lld; %s += %d) {", c, a->lanes, size, c, a->lanes);
    put_stores(w, out, of, a->lanes);
    text_close(out, "}");
    if (size % a->lanes == 0) return;
    text_open(out, "for (; %s < %lld; %s++) {", c, size, c);
    put_stores(w, out, of, 1);
    text_close(out, "}");
}

static void put_queries(struct grad_printing *w, struct text *out)
{
    struct attention *a = w->w.a;
    const long long all = wide(a, a->d);
    text_open(out, "for (int64_t l = 0; l < %d; l += %d)", a->queries, a->lanes);
    text_line(out, "for (int64_t i = 0; i < %lld; i += %d)", all, a->lanes);
    text_line(out, "    @turn(dq_ + i * %d + l, %d, along_q_ + l * %lld + i, %lld);", a->queries, a->queries, all, all);
    out->indent--;
    text_open(out, "for (int64_t l_ = 0; l_ < count_; l_++) {");
    text_line(out, "const int64_t %s = t0_ + l_;", attention_name(a, a->t));
    put_rows_of(w, out, ATTENTION_DQ, "along_q_ + l_");
    text_close(out, "}");
}

static void put_results_of_keys(struct grad_printing *w, struct text *out)
{
    struct attention *a = w->w.a;
    const char *s = attention_name(a, a->s);
    const int of[] = {ATTENTION_DK, ATTENTION_DV};
    for (int i = 0; i < COUNT_OF(of); i++) {
        text_open(out, "for (int64_t %s = 0; %s < %lld; %s++) {", s, s, (long long)attention_size(a, a->s), s);
        put_rows_of(w, out, of[i], SAY("%s + %s", i ? "dv_" : "dk_", s));
        text_close(out, "}");
    }
}

static void put_task(struct grad_printing *w, struct text *out, const struct attention_tile tile[3])
{
    struct attention *a = w->w.a;
    put_batch(a, out);
    text_open(out, "for (int64_t t0_ = 0; t0_ < %lld; t0_ += %d) {", (long long)attention_size(a, a->t), a->queries);
    text_line(out, "const int64_t count_ = @sol_min_i64(%d, %lld - t0_);", a->queries,
              (long long)attention_size(a, a->t));
    text_line(out, "const @real *const k_ = %s;", attention_address(&w->w, &a->k));
    text_line(out, "const @real *const v_ = %s;", attention_address(&w->w, &a->v));
    put_factor(w, out, &a->q, a->d, "q");
    put_factor(w, out, &w->g->d, a->e, "d");
    put_rows(w, out);
    text_line(out, "for (int64_t i = 0; i < %lld; i++) dq_[i] = 0;", (long long)(wide(a, a->d) * a->queries));
    put_keys(w, out, tile);
    put_queries(w, out);
    text_close(out, "}");
    put_results_of_keys(w, out);
}

void attention_grad_print(struct attention_grad *g, struct kernel *out)
{
    struct attention *a = &g->a;
    struct grad_printing *w = NEW(a->arena, struct grad_printing);
    const int64_t d = attention_size(a, a->d), e = attention_size(a, a->e);
    const struct attention_tile tile[] = {
        {"scores", &a->k, d, false}, {"gains", &a->v, e, false}, {"queries", &a->k, d, false}};
    int width[4];
    *w = (struct grad_printing){.g = g, .vector = -1};
    struct text *text = attention_open(&w->w, a, read_hook);
    attention_put_tiles_of_keys(a, text, &tile[0]);
    attention_put_tiles_of_keys(a, text, &tile[1]);
    attention_put_tiles_of_values(a, text, &tile[2]);
    for (int i = column_widths(a, width) - 1; i >= 0; i--) put_turned_functions(a, text, width[i]);
    kernel_open(text, 0);
    attention_put_pointers(a, text);
    const int64_t elements = put_scratch(g, text);
    text_open(text, "for (int64_t task = task0; task < task1; task++) {");
    out->step[0].tasks = attention_grad_tasks(g);
    put_task(w, text, tile);
    attention_close(a, text, elements, out);
}
