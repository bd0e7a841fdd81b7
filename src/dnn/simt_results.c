/* What contractions for work items do with their sums: the epilogue of each element, or partial results, which a second
 * step adds up. */
#include "dnn/simt.h"

#define SAY(...) arena_printf(s->p.arena, __VA_ARGS__)

static const char *place(void *user, struct text *out, int view)
{
    struct simt *s = user;
    const struct view *v = &s->p.view[view];
    struct offset o = {.arena = s->p.arena, .constant = v->c};
    (void)out;
    for (int i = 0; i < s->p.loops->ivars.n; i++) offset_add(&o, s->p.loops->ivars.at[i].name, v->s[i]);
    return offset_text(&o);
}

static const char *ivar_value(void *user, int ivar)
{
    const struct simt *s = user;
    return s->p.loops->ivars.at[ivar].name;
}

/* Results that are stored together stay in registers first. */
static void keep(void *user, struct text *out, int view, const char *value)
{
    (void)user;
    text_line(out, "stored%d_[q_] = %s;", view, value);
}

/* The epilogue of one element, whose index variables of batch, M and N are declared. */
static void put_epilogue(struct simt *s, const char *sum)
{
    struct epilogue e = {.p = &s->p,
                         .target = s->target,
                         .lanes = 1,
                         .temps = s->pe.temps,
                         .named = true,
                         .place = place,
                         .ivar = ivar_value,
                         .keep = s->stores && s->parts == 1 ? keep : NULL,
                         .user = s};
    epilogue_print(&e, s->out, sum, 1);
}

/* The element of the partial results: parts, then batch, M, N. */
static const char *partial(const struct simt *s, const char *part, const char *n)
{
    return SAY("((%s * %lld + batch_) * %lld + m_) * %lld + %s", part, (long long)s->batch.size, (long long)s->m.size,
               (long long)s->n.size, n);
}

void simt_results(struct simt *s)
{
    struct text *out = s->out;
    const char *sum = s->vector ? "((const @real *)&sum_[i_])[j_]" : "sum_[i_][j_]";
    text_open(out, "for (int i_ = 0; i_ < %d; i_++) {", s->tile_rows);
    text_line(out, "const int64_t m_ = m0_ + row_ + i_;");
    text_line(out, "if (m_ >= %lld) break;", (long long)s->m.size);
    if (s->parts == 1) simt_digits(s, &s->m, "m_");
    text_open(out, "for (int j_ = 0; j_ < %d; j_++) {", s->tile_cols);
    text_line(out, "const int64_t n_ = n0_ + col_ + j_;");
    text_line(out, "if (n_ >= %lld) break;", (long long)s->n.size);
    if (s->parts > 1) {
        text_line(out, "partial_[%s] = %s;", partial(s, "part_", "n_"), sum);
    } else {
        simt_digits(s, &s->n, "n_");
        text_line(out, "const @real result_ = %s;", sum);
        put_epilogue(s, "result_");
    }
    text_close(out, "}");
    text_close(out, "}");
}

/* -- a card: pieces of rows */

static int piece(const struct simt *s, int tile)
{
    return MIN(tile, SIMT_PACK / s->p.bytes);
}

static bool exact(int64_t size, int by)
{
    return !size_varies(size) && size % by == 0;
}

/* Stores `stored<view>_` at the piece's place, whose index variables are declared. */
static void put_store(struct simt *s, int view, const char *to)
{
    static const char *const member[] = {"x", "y", "z", "w"};
    const int n = piece(s, s->tile_cols);
    text_line(s->out, "@pack pack%d_;", view);
    for (int i = 0; i < n; i++) text_line(s->out, "pack%d_.%s = stored%d_[%d];", view, member[i], view, i);
    text_line(s->out, "sol_store%d(pack%d_, %s, stored%d_even_);", n, view, to, view);
}

/* Is a view stored in packs? Without parts, views of the epilogue are; with them, the partial results, as view 0. */
static bool is_stored(const struct simt *s, int view)
{
    return s->stores && (s->parts > 1 ? view == 0 : view < s->p.nview && !s->p.view[view].node);
}

static void put_even(const struct simt *s)
{
    for (int v = 0; v < MAX(1, s->p.nview); v++)
        if (is_stored(s, v))
            text_line(s->out, "const int stored%d_even_ = sol_even(%s);", v,
                      s->parts > 1 ? "partial_" : s->p.loops->tensors.at[s->p.view[v].tensor].name);
}

/* The results of a piece that are stored together: its columns begin at `at_`. */
static void put_together(struct simt *s)
{
    struct text *out = s->out;
    const int n = piece(s, s->tile_cols);
    const char *last = s->p.loops->ivars.at[s->n.ivar[s->n.n - 1]].name;
    for (int v = 0; v < MAX(1, s->p.nview); v++)
        if (is_stored(s, v)) text_line(out, "@real stored%d_[%d];", v, n);
    if (s->parts == 1) {
        simt_digits(s, &s->n, "at_");
        text_line(out, "const int64_t last_ = %s;", last);
    }
    text_line(out, "#pragma unroll");
    text_open(out, "for (int q_ = 0; q_ < %d; q_++) {", n);
    if (s->parts > 1) {
        text_line(out, "stored0_[q_] = sum_[i_][j_ + q_];");
    } else {
        text_line(out, "const int64_t %s = last_ + q_;", last);
        text_line(out, "const @real result_ = sum_[i_][j_ + q_];");
        put_epilogue(s, "result_");
    }
    text_close(out, "}");
    for (int v = 0; v < MAX(1, s->p.nview); v++)
        if (is_stored(s, v))
            put_store(s, v,
                      s->parts > 1
                          ? SAY("partial_ + %s", partial(s, "part_", "at_"))
                          : SAY("%s + %s", s->p.loops->tensors.at[s->p.view[v].tensor].name, place(s, out, v)));
}

static void put_each(struct simt *s)
{
    struct text *out = s->out;
    text_line(out, "#pragma unroll");
    text_open(out, "for (int q_ = 0; q_ < %d; q_++) {", piece(s, s->tile_cols));
    text_line(out, "const int64_t n_ = at_ + q_;");
    text_open(out, "if (n_ < %lld) {", (long long)s->n.size);
    if (s->parts > 1) {
        text_line(out, "partial_[%s] = sum_[i_][j_ + q_];", partial(s, "part_", "n_"));
    } else {
        simt_digits(s, &s->n, "n_");
        text_line(out, "const @real result_ = sum_[i_][j_ + q_];");
        put_epilogue(s, "result_");
    }
    text_close(out, "}");
    text_close(out, "}");
}

void simt_card_results(struct simt *s)
{
    struct text *out = s->out;
    const int down = piece(s, s->tile_rows), across = piece(s, s->tile_cols);
    put_even(s);
    text_line(out, "#pragma unroll");
    text_open(out, "for (int i_ = 0; i_ < %d; i_++) {", s->tile_rows);
    text_line(out, "const int64_t m_ = m0_ + row_ + i_ / %d * %d + i_ %% %d;", down, s->rows / s->tile_rows * down,
              down);
    text_open(out, "if (%s) {", exact(s->m.size, s->rows) ? "1" : SAY("m_ < %lld", (long long)s->m.size));
    if (s->parts == 1) simt_digits(s, &s->m, "m_");
    text_line(out, "#pragma unroll");
    text_open(out, "for (int j_ = 0; j_ < %d; j_ += %d) {", s->tile_cols, across);
    text_line(out, "const int64_t at_ = n0_ + col_ + j_ * %d;", s->cols / s->tile_cols);
    text_open(out, "if (%s) {", exact(s->n.size, s->cols) ? "1" : SAY("at_ < %lld", (long long)s->n.size));
    if (s->stores)
        put_together(s);
    else
        put_each(s);
    text_close(out, "}");
    text_close(out, "}");
    text_close(out, "}");
    text_close(out, "}");
}

/* -- the second step */

void simt_parts(struct simt *s)
{
    struct text *out = s->out;
    struct arena *a = s->p.arena;
    const int64_t elements = size_mul(s->batch.size, size_mul(s->m.size, s->n.size));
    s->stores = false;
    text_open(out, "for (int64_t task_ = task0; task_ < task1; task_++) {");
    text_line(out, "const int64_t at_ = task_ * %d + @ITEM;", s->items);
    text_line(out, "if (at_ >= %lld) continue;", (long long)elements);
    text_line(out, "const int64_t n_ = %s;", text_modulo(a, "at_", s->n.size));
    text_line(out, "const int64_t m_ = %s;", text_modulo(a, text_over(a, "at_", s->n.size), s->m.size));
    text_line(out, "const int64_t batch_ = %s;", text_over(a, "at_", size_mul(s->m.size, s->n.size)));
    text_line(out, "@real sum_ = 0;");
    text_line(out, "for (int part_ = 0; part_ < %lld; part_++) sum_ += partial_[%s];", (long long)s->parts,
              partial(s, "part_", "n_"));
    simt_digits(s, &s->batch, "batch_");
    simt_digits(s, &s->m, "m_");
    simt_digits(s, &s->n, "n_");
    put_epilogue(s, "sum_");
    text_close(out, "}");
}
