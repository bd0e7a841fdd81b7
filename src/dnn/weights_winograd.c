/* Winograd's transforms for a long sum: 3x3 results from tiles of 6x6 and of 4x4 pixels. The points are those of F(4,3)
 * (winograd_print.c), so the transform of the larger tile is the same. The smaller tile's transform evaluates a
 * polynomial of degree 3 at the points, and the inverse transform turns 6 products into 3 results. */
#include "dnn/weights.h"
#include "dnn/winograd.h"

#define SAY(...) arena_printf(w->p.arena, __VA_ARGS__)

static const char *const lines =
    "@INLINE void @small_line(const @vec *d, @vec *t)\n{\n"
    "    const @vec ea = d[0] + @ch * d[2], oa = @ca * d[1] + @ch * @ca * d[3], eb = d[0] + @c2 * d[2], ob = @cb * "
    "d[1] + "
    "@c2 * @cb * d[3];\n"
    "    t[0] = d[0];\n    t[1] = -@c23 * (ea + oa);\n    t[2] = -@c23 * (ea - oa);\n"
    "    t[3] = @c16 * (eb + ob);\n    t[4] = @c16 * (eb - ob);\n    t[5] = d[3];\n}\n"
    "@INLINE void @taps_line(const @vec *m, @vec *o)\n{\n"
    "    const @vec ea = m[1] + m[2], oa = m[1] - m[2], eb = m[3] + m[4], ob = m[3] - m[4];\n"
    "    o[0] = m[0] + ea + eb;\n    o[1] = @ca * oa + @cb * ob;\n    o[2] = @ch * ea + @c2 * eb + m[5];\n}\n\n";

static int side_points(const struct weights_side *s)
{
    return s->window ? WEIGHTS_POINTS : WEIGHTS_M;
}

/* Prints the transform of a vector of channels from c on: first along the tile's columns, then along its rows. */
static void transform_function(const struct weights *w, struct text *out, const struct weights_side *s, char name)
{
    const int n = side_points(s), x = WEIGHTS_POINTS;
    const char *line = s->window ? "@input_line" : "@small_line";
    text_put(out, "/* Transforms the tile of %d x %d pixels from x on, `channels` channels, into t. */\n", n, n);
    text_put(
        out,
        "@FUNCTION void @transform_%c(const @real *x, int64_t rows, int64_t cols, int64_t channels, @real *t)\n{\n",
        name);
    out->indent++;
    text_line(out, "int64_t c = 0;");
    text_open(out, "for (;;) {");
    text_line(out, "@vec h[%d][%d];", x, n);
    text_open(out, "for (int j = 0; j < %d; j++) {", n);
    text_line(out, "@vec d[%d], o[%d];", n, x);
    text_line(out, "for (int i = 0; i < %d; i++) d[i] = *(const @vec *)(x + i * rows + j * cols + c);", n);
    text_line(out, "%s(d, o);", line);
    text_line(out, "for (int i = 0; i < %d; i++) h[i][j] = o[i];", x);
    text_close(out, "}");
    text_open(out, "for (int i = 0; i < %d; i++) {", x);
    text_line(out, "@vec o[%d];", x);
    text_line(out, "%s(h[i], o);", line);
    text_line(out, "for (int j = 0; j < %d; j++) *(@vec *)(t + (i * %d + j) * INT64_C(%lld) + c) = o[j];", x, x,
              (long long)s->plane);
    text_close(out, "}");
    text_line(out, "c += %d;", w->lanes);
    text_line(out, "if (c == channels) return;");
    text_line(out, "if (c > channels - %d) c = channels - %d; /* the last vectors overlap */", w->lanes, w->lanes);
    text_close(out, "}");
    out->indent--;
    text_put(out, "}\n\n");
}

/* Prints the range of a level's pixels that have memory, relative to a tile that begins at `name`. */
static void tile_range(const struct weights *w, struct text *out, const struct weights_side *s, int level)
{
    const struct weights_level *l = &w->level[level];
    const struct memory *m = &w->p.c->memory[s->o->tensor];
    const char *name = level ? "col" : "row";
    int64_t low = 0, high = l->axis.size;
    if (s->window) {
        const int64_t c = s->o->index[l->dim].c;
        low = size_sub(-m->halo_low[l->dim], c);
        high = size_sub(size_add(w->p.loops->tensors.at[s->o->tensor].shape[l->dim], m->halo_high[l->dim]), c);
    }
    text_line(out, "const int64_t %s0 = @sol_max_i64(0, %lld - %s), %s1 = @sol_min_i64(%d, %lld - %s);", name,
              (long long)low, name, name, side_points(s), (long long)high, name);
}

/* Prints the transform of tile number t of an operand, with zeros outside of the operand. */
static void tile_function(const struct weights *w, struct text *out, const struct weights_side *s, char name)
{
    const int n = side_points(s);
    const int64_t *v = s->o->view.s;
    const long long rows = axis_stride(&w->level[0].axis, v), cols = axis_stride(&w->level[1].axis, v);
    text_put(out,
             "@FUNCTION void @tile_%c(%sconst @real *x, int64_t tile, int64_t channels, @real *edge, @real *t)\n{\n",
             name, problem_frame(&w->p));
    out->indent++;
    problem_open_sizes(&w->p, out);
    text_line(out, "const int64_t row = tile / %lld %% %lld * %d, col = tile %% %lld * %d, n = tile / %lld;",
              (long long)w->tile_cols, (long long)w->tile_rows, WEIGHTS_M, (long long)w->tile_cols, WEIGHTS_M,
              (long long)size_mul(w->tile_rows, w->tile_cols));
    weights_digits(w, out, &w->images, 'n', "n");
    const char *from = SAY("x + row * INT64_C(%lld) + col * INT64_C(%lld)", rows, cols);
    for (int i = 0; i < w->images.n; i++)
        from = SAY("%s + n%d * INT64_C(%lld)", from, i, (long long)axis_stride(&w->images.at[i], v));
    text_line(out, "const @real *const from = %s;", from);
    for (int i = 0; i < WEIGHTS_LEVELS; i++) tile_range(w, out, s, i);
    text_open(out, "if (row0 == 0 && col0 == 0 && row1 == %d && col1 == %d) {", n, n);
    text_line(out, "@transform_%c(from, INT64_C(%lld), INT64_C(%lld), channels, t);", name, rows, cols);
    text_line(out, "return;");
    text_close(out, "}");
    text_line(out, "__builtin_memset(edge, 0, sizeof(@real) * %lld);", (long long)(n * n * s->pitch));
    text_line(out, "for (int64_t i = row0; i < row1; i++)");
    text_line(out, "    for (int64_t j = col0; j < col1; j++)");
    text_line(out,
              "        __builtin_memcpy(edge + (i * %d + j) * %lld, from + i * INT64_C(%lld) + j * INT64_C(%lld), "
              "sizeof(@real) * channels);",
              n, (long long)s->pitch, rows, cols);
    text_line(out, "@transform_%c(edge, %lld, %lld, channels, t);", name, (long long)(n * s->pitch),
              (long long)s->pitch);
    text_line(out, "(void)n;");
    out->indent--;
    text_put(out, "}\n\n");
}

void weights_winograd_chunk(const struct weights *w, struct text *out)
{
    const struct weights_side *a = &w->a, *b = &w->b;
    const long long tiles = weights_tiles(w), points = w->taps;
    winograd_print_lines(WEIGHTS_POINTS, WEIGHTS_M, out);
    text_put(out, "@TABLE @real @c23 = 0.66666666666666666667, @c16 = 0.16666666666666666667;\n%s", lines);
    transform_function(w, out, a, 'a');
    transform_function(w, out, b, 'b');
    tile_function(w, out, a, 'a');
    tile_function(w, out, b, 'b');
    text_put(out,
             "@FUNCTION void @chunk_sums(%sconst @real *a, const @real *b, @real *scratch, @real *sums, int64_t chunk, "
             "int64_t m0, int64_t m1, int64_t n0, int64_t n1, int64_t add)\n{\n",
             problem_frame(&w->p));
    out->indent++;
    problem_open_sizes(&w->p, out);
    text_line(out, "@real *const pack = scratch + %lld, *const edge = pack + %lld;", (long long)a->size,
              (long long)b->size);
    text_line(out, "const int64_t t0 = chunk * %lld / %lld, tiles = (chunk + 1) * %lld / %lld - t0;", tiles,
              (long long)w->nchunk, tiles, (long long)w->nchunk);
    for (int i = 0; i < 2; i++) {
        const struct weights_side *s = i ? b : a;
        const char *m = i ? "n" : "m";
        text_line(out, "const int64_t c%s = %s0 * %lld, channels_%s = @sol_min_i64(%lld, %s1 * %lld) - c%s;", m, m,
                  (long long)s->panel, m, (long long)s->channels.size, m, (long long)s->panel, m);
        text_line(out,
                  "for (int64_t t = 0; t < tiles; t++) @tile_%c(%s%c + c%s, t0 + t, channels_%s, edge, %s + t * %lld);",
                  i ? 'b' : 'a', problem_frame_argument(&w->p), i ? 'b' : 'a', m, m, i ? "pack" : "scratch",
                  (long long)s->pitch);
    }
    text_line(out, "for (int64_t x = 0; x < %lld; x++)", points);
    text_line(out, "    for (int64_t n = 0; n < n1 - n0; n++)");
    text_line(out, "        for (int64_t m = 0; m < m1 - m0; m++)");
    text_line(out, "            @rank1(scratch + x * %lld + m * %d, pack + x * %lld + n * %d,", (long long)a->plane,
              w->rows, (long long)b->plane, w->width);
    text_line(out, "                  sums + ((x * %lld + m) * %lld + n) * %d, 1, 1, tiles, add);", (long long)a->block,
              (long long)b->block, w->rows * w->width);
    out->indent--;
    text_put(out, "}\n\n");
}

void weights_winograd_result(const struct weights *w, struct text *out, const char *at)
{
    const int n = WEIGHTS_POINTS;
    text_line(out, "@vec h[3][%d], o[3][3];", n);
    text_open(out, "for (int j = 0; j < %d; j++) {", n);
    text_line(out, "@vec d[%d], t[3];", n);
    text_line(out, "for (int i = 0; i < %d; i++) d[i] = @total(sums + (i * %d + j) * INT64_C(%lld) + %s);", n, n,
              (long long)(w->a.block * w->b.block * w->rows * w->width), at);
    text_line(out, "@taps_line(d, t);");
    text_line(out, "for (int i = 0; i < 3; i++) h[i][j] = t[i];");
    text_close(out, "}");
    text_line(out, "for (int i = 0; i < 3; i++) @taps_line(h[i], o[i]);");
}
