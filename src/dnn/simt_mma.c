/* Contractions by a card's units for small matrices (tensor cores): sol_mma of the flavour's header, by which the items
 * of a warp add to a matrix of 16 x 8 the product of one of 16 x 8 and one of 8 x 8. Item 4 g + t has
 *
 *   of the first factor   rows g and g + 8, columns t and t + 4
 *   of the second one     rows t and t + 4, column g
 *   of the sum            rows g and g + 8, columns 2 t and 2 t + 1
 *
 * Which rows and columns of a block these are is free. An item's tile consists of pieces of 4 by 4, as in simt_card.c:
 * two rows of a piece are rows g and g + 8, and its columns 0 and 2, 1 and 3 are columns 2 t and 2 t + 1 of two
 * products side by side. So item g reads two neighbouring columns of the second factor, and results are stored four at
 * a time.
 *
 * Units ignore what a factor has behind the 10 bits of TF32: those that are rounded, are so when they are stored to
 * shared memory, and those in two parts (sol_high) when they are read from there.
 *
 * Units round their sums towards zero. So each sum has few steps (SPAN), and is added to the total outside of them. */
#include "dnn/simt.h"

#define SAY(...) arena_printf(s->p.arena, __VA_ARGS__)

enum { SPAN = 16 /* elements of K */, PIECE = 4, KS = SPAN / 4 /* of an item in a span */ };

const int simt_mma_shapes[][5] = {
    {128, 128, 8, 8, 16}, {128, 64, 8, 8, 16},  {64, 128, 8, 8, 16}, {64, 64, 8, 8, 16}, {128, 64, 8, 4, 16},
    {64, 64, 8, 4, 16},   {64, 64, 4, 4, 16},   {64, 32, 4, 4, 16},  {32, 64, 4, 4, 16}, {32, 32, 4, 4, 32},
    {64, 32, 4, 4, 32},   {128, 128, 8, 8, 32}, {128, 64, 8, 8, 32}, {64, 64, 8, 8, 32}, {0}};

static void unroll(const struct simt *s)
{
    text_line(s->out, "#pragma unroll");
}

/* Items that read neighbours in K write to rows of different banks. */
const char *simt_mma_stored(const struct simt *s, const char *x)
{
    return s->products == 1 ? SAY("sol_tf32(%s)", x) : x;
}

const char *simt_mma_row(const struct simt *s, const char *k)
{
    return s->products ? SAY("(%s) %% %d * %d + (%s) / %d", k, PIECE, s->depth / PIECE, k, PIECE) : k;
}

void simt_mma_place(const struct simt *s)
{
    text_line(s->out, "const int t_ = item_ %% 4, pair_ = (across_ - t_) * %d + item_ %% 32 / 4 * 2;", PIECE);
}

/* Declares the parts of a factor's elements in TF32. */
static void put_parts(const struct simt *s, const char *a, int n)
{
    text_line(s->out, "float %s_high_[%d][%d]%s;", a, KS, n, s->products > 1 ? SAY(", %s_low_[%d][%d]", a, KS, n) : "");
}

static void put_split(const struct simt *s, const char *a, const char *at, const char *x)
{
    text_line(s->out, s->products > 1 ? "%s_high_[q_]%s = sol_high(%s);" : "%s_high_[q_]%s = %s;", a, at, x);
    if (s->products > 1) text_line(s->out, "%s_low_[q_]%s = %s - %s_high_[q_]%s;", a, at, x, a, at);
}

static void put_columns(const struct simt *s)
{
    struct text *out = s->out;
    put_parts(s, "b", s->tile_cols / 2);
    unroll(s);
    text_line(out, "for (int q_ = 0; q_ < %d; q_++)", KS);
    unroll(s);
    text_open(out, "for (int j_ = 0; j_ < %d; j_++) {", s->tile_cols / 2);
    text_line(out, "const float x_ = bs_[1 - next_][d_ + q_ * 4 + t_][pair_ + j_ / 2 * %d + j_ %% 2];",
              s->cols / s->tile_cols * PIECE);
    put_split(s, "b", "[j_]", "x_");
    text_close(out, "}");
}

static void put_rows(const struct simt *s)
{
    struct text *out = s->out;
    put_parts(s, "a", PIECE);
    unroll(s);
    text_open(out, "for (int q_ = 0; q_ < %d; q_++) {", KS);
    text_line(out, "const @pack x_ = sol_load4(&as_[1 - next_][d_ + q_ * 4 + t_][row_ + i_ * %d], 1);",
              s->rows / s->tile_rows);
    for (int i = 0; i < PIECE; i++) put_split(s, "a", SAY("[%d]", i), SAY("x_.%c", "xyzw"[i]));
    text_close(out, "}");
}

/* Adds products of parts of both factors. */
static void put_mma(const struct simt *s, const char *a, const char *b)
{
    struct text *out = s->out;
    unroll(s);
    text_line(out, "for (int r_ = 0; r_ < %d; r_++)", PIECE / 2);
    unroll(s);
    text_line(out, "    for (int j_ = 0; j_ < %d; j_++)", s->tile_cols / 2);
    text_line(out,
              "        sol_mma(part_[r_][j_], %s[k_][2 * r_], %s[k_][2 * r_ + 1], %s[k_ + 1][2 * r_], %s[k_ + 1][2 * "
              "r_ + 1], "
              "%s[k_][j_], %s[k_ + 1][j_]);",
              a, a, a, a, b, b);
}

void simt_mma_products(const struct simt *s)
{
    struct text *out = s->out;
    unroll(s);
    text_open(out, "for (int d_ = 0; d_ < %d; d_ += %d) {", s->depth, SPAN);
    put_columns(s);
    unroll(s);
    text_open(out, "for (int i_ = 0; i_ < %d; i_ += %d) {", s->tile_rows, PIECE);
    put_rows(s);
    text_line(out, "float part_[%d][%d][4] = {};", PIECE / 2, s->tile_cols / 2);
    unroll(s);
    text_open(out, "for (int k_ = 0; k_ < %d; k_ += 2) {", KS);
    if (s->products > 1) {
        put_mma(s, "a_low_", "b_high_");
        put_mma(s, "a_high_", "b_low_");
    }
    put_mma(s, "a_high_", "b_high_");
    text_close(out, "}");
    unroll(s);
    text_line(out, "for (int r_ = 0; r_ < %d; r_++)", PIECE);
    unroll(s);
    text_line(out, "    for (int j_ = 0; j_ < %d; j_++)", s->tile_cols);
    text_line(out, "        sum_[i_ + r_][j_] += part_[r_ / 2][j_ / 4 * 2 + j_ %% 2][r_ %% 2 * 2 + j_ %% 4 / 2];");
    text_close(out, "}");
    text_close(out, "}");
}
