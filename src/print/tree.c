/* Prints a kernel that calls other kernels: its members as static functions, a function rows<i> for each ring i, and
 * the function that runs the loops.
 *
 * rows_i(first, last) makes the rows of ring i up to `last`; rows from `first` on must stay. If the ring is full, rows
 * that are still needed move to its beginning. A range of tasks of one image continues where the task before it
 * stopped, so only the first task of a range makes the rows of the border twice. */
#include "print/tree.h"

#include <stdlib.h>
#include <string.h>

struct printing {
    const struct tree *t;
    struct text *out;
};

static bool is_equal(const struct kernel *a, const struct kernel *b)
{
    bool equal = a->nstep == b->nstep && a->nwork == b->nwork && a->scratch_bytes == b->scratch_bytes;
    for (int i = 0; equal && i < a->nstep; i++) equal = a->step[i].tasks == b->step[i].tasks;
    for (int i = 0; equal && i < a->nwork; i++) equal = a->work_bytes[i] == b->work_bytes[i];
    return equal && !strcmp(a->source, b->source);
}

int tree_member(struct tree *t, const struct kernel *k)
{
    for (int i = 0; i < t->nmember; i++)
        if (is_equal(t->member[i], k)) return i;
    if (t->nmember == TREE_MAX_MEMBERS) return -1;
    t->member[t->nmember] = k;
    return t->nmember++;
}

static int64_t tasks_per_image(const struct tree *t)
{
    return size_ceil_div(t->loop[0].n, t->per_task);
}

/* Of a team, no more workers are of use than its widest member has tasks. */
static int64_t widest(const struct tree *t)
{
    int64_t most = 1;
    for (int i = 0; i < t->nmember; i++)
        for (int k = 0; k < t->member[i]->nstep; k++) most = size_max(most, t->member[i]->step[k].tasks);
    return most;
}

int64_t tree_tasks(const struct tree *t, int64_t images)
{
    if (t->team) return widest(t);
    return t->nring ? size_mul(tasks_per_image(t), images) : images;
}

/* -- addresses */

/* The row or step `by` * round + `plus`. */
static const char *row_text(struct printing *p, int64_t by, int64_t plus)
{
    struct arena *a = p->out->arena;
    return text_plus(a, text_times(a, p->t->round, by), plus);
}

/* The offset of its row in bytes. */
static const char *row_of(struct printing *p, const struct tree_address *a)
{
    struct arena *arena = p->out->arena;
    const char *row = row_text(p, a->base == TREE_RING ? a->row.by : 1, a->row.plus);
    if (a->base == TREE_RING)
        row = arena_printf(arena, "(%s - b->from%d)", row, a->index);
    else
        row = text_modulo(arena, text_enclosed(arena, row), a->row.wrap);
    return text_times(arena, row, a->row_bytes);
}

static void put_address(struct printing *p, const struct tree_address *a)
{
    const char *const counter[TREE_COUNTERS] = {"task", "image", p->t->round};
    switch (a->base) {
    case TREE_OPERAND: text_put(p->out, "p[%d]", a->index); break;
    case TREE_SCRATCH: text_put(p->out, "scratch"); break;
    case TREE_RING: text_put(p->out, "b->ring%d", a->index); break;
    }
    if (a->row_bytes) text_put(p->out, " + %s", row_of(p, a));
    for (int i = 0; i < TREE_COUNTERS; i++)
        if (a->by[i]) text_put(p->out, " + %s", text_times(p->out->arena, counter[i], a->by[i]));
    if (a->plus) text_put(p->out, a->plus < 0 ? " - %lld" : " + %lld", llabs(a->plus));
}

/* -- a round */

static void put_call(struct printing *p, const struct tree_call *c)
{
    const struct kernel *k = p->t->member[c->member];
    text_line(p->out, "char *const q[] = {");
    for (int i = 0; i < c->noperand; i++) {
        text_put(p->out, "%*s", (p->out->indent + 1) * 4, "");
        put_address(p, &c->operand[i]);
        text_put(p->out, ",\n");
    }
    text_line(p->out, "};");
    const char *form = p->t->team ? "team->run(team->user, %s, q, f, %lld, worker);" : "%s(q, f, 0, %lld, worker);";
    for (int i = 0; i < k->nstep; i++)
        text_line(p->out, form, kernel_member_step(p->out->arena, c->member, i), (long long)k->step[i].tasks);
}

static void put_body(struct printing *p, const struct tree_body *b)
{
    if (b->need >= 0)
        text_line(p->out, "@rows%d(p, f, worker, b, image, %s, %s);", b->need, row_text(p, b->step, b->low),
                  row_text(p, b->step, b->high));
    for (int i = 0; i < b->ncall; i++) {
        if (b->ncall > 1) text_open(p->out, "{");
        put_call(p, &b->call[i]);
        if (b->ncall > 1) text_close(p->out, "}");
    }
}

/* -- rings */

static void put_state(struct printing *p)
{
    text_open(p->out, "struct @rings { /* ring i holds rows from_i .. next_i - 1 */");
    for (int i = 0; i < p->t->nring; i++) {
        if (!p->t->ring[i].stored) text_line(p->out, "char *ring%d;", i);
        text_line(p->out, "int64_t from%d, next%d;", i, i);
    }
    text_close(p->out, "};");
}

static void put_fill(struct printing *p, int i)
{
    const struct tree_ring *r = &p->t->ring[i];
    const struct dtype_def *type = dtype_def(r->dtype);
    const char *row =
        arena_printf(p->out->arena, "b->ring%d + (%s - b->from%d) * %lld", i, p->t->round, i, (long long)r->row_bytes);
    if (r->fill == 0) {
        text_line(p->out, "__builtin_memset(%s, 0, %lld);", row, (long long)r->row_bytes);
        return;
    }
    text_line(p->out, "%s *at = (%s *)(%s);", type->c_name, type->c_name, row);
    const char *value = r->fill > 1e300    ? "@INFINITY"
                        : r->fill < -1e300 ? "-@INFINITY"
                                           : text_real(p->out->arena, r->fill, 17);
    text_line(p->out, "for (int64_t k = 0; k < %lld; k++) at[k] = (%s)%s;",
              (long long)size_floor_div(r->row_bytes, type->bytes), type->c_name, value);
}

/* A full ring begins anew; rows outside of the tensor are filled. */
static void put_room(struct printing *p, int i)
{
    const struct tree_ring *r = &p->t->ring[i];
    const long long bytes = r->row_bytes;
    const char *row = p->t->round;
    text_open(p->out, "if (%s - b->from%d == %lld) {", row, i, (long long)r->room);
    text_line(p->out, "__builtin_memmove(b->ring%d, b->ring%d + (first - b->from%d) * %lld, (%s - first) * %lld);", i,
              i, i, bytes, row, bytes);
    text_line(p->out, "b->from%d = first;", i);
    text_close(p->out, "}");
    text_open(p->out, "if (%s < 0 || %s >= %lld) {", row, row, (long long)r->rows);
    put_fill(p, i);
    text_line(p->out, "continue;");
    text_close(p->out, "}");
}

static void put_ring(struct printing *p, int i)
{
    const struct tree_ring *r = &p->t->ring[i];
    text_line(p->out, "/* rows of ring %d%s */", i, r->stored ? ", which lie in memory" : "");
    text_line(p->out,
              "@FUNCTION void @rows%d(char *const *p, const struct sol_frame *f, int worker, struct @rings *b, int64_t "
              "image, int64_t first, int64_t last)",
              i);
    text_open(p->out, "{");
    kernel_open_sizes(p->out);
    text_line(p->out, "(void)p, (void)image;");
    text_line(p->out, "if (b->next%d < first) b->from%d = b->next%d = first;", i, i, i);
    text_open(p->out, "for (; b->next%d <= last; b->next%d++) {", i, i);
    text_line(p->out, "const int64_t %s = b->next%d;", p->t->round, i);
    if (!r->stored) put_room(p, i);
    put_body(p, &r->body);
    text_close(p->out, "}");
    text_close(p->out, "}");
}

/* -- loops */

/* The rounds of one image that a task is; rings that hold rows of another image are emptied. */
static void put_task(struct printing *p)
{
    const struct tree_loop *l = &p->t->loop[0];
    const long long tasks = tasks_per_image(p->t), rounds = p->t->per_task, n = l->n;
    const char *row = p->t->round;
    struct arena *a = p->out->arena;
    text_line(p->out, "const int64_t image = %s, %s0 = %s;", text_over(a, "task", tasks), row,
              text_times(a, text_modulo(a, "task", tasks), rounds));
    if (size_varies(n) || n % rounds)
        text_line(p->out, "const int64_t %s1 = %s0 + %lld < %lld ? %s0 + %lld : %lld;", row, row, rounds, n, row,
                  rounds, n);
    else
        text_line(p->out, "const int64_t %s1 = %s0 + %lld;", row, row, rounds);
    text_open(p->out, "if (image != now) { /* nothing of another image is of use */");
    for (int i = 0; i < p->t->nring; i++) text_line(p->out, "b->from%d = b->next%d = INT64_MIN / 4;", i, i);
    text_line(p->out, "now = image;");
    text_close(p->out, "}");
    text_open(p->out, "for (int64_t %s = %s0; %s < %s1; %s++) {", row, row, row, row, row);
    put_body(p, &l->body);
    text_close(p->out, "}");
}

static void put_loop(struct printing *p, const struct tree_loop *l)
{
    const char *round = p->t->round;
    const long long first = l->from, last = size_sub(size_add(l->from, l->n), 1);
    if (l->down)
        text_open(p->out, "for (int64_t %s = %lld; %s >= %lld; %s--) {", round, last, round, first, round);
    else
        text_open(p->out, "for (int64_t %s = %lld; %s <= %lld; %s++) {", round, first, round, last, round);
    put_body(p, &l->body);
    text_close(p->out, "}");
}

static void put_team(struct printing *p)
{
    kernel_open(p->out, 0);
    text_line(p->out, "const struct sol_team *const team = f->team;");
    text_line(p->out, "char *const scratch = (char *)f->scratch; /* of the first worker, for all */");
    text_line(p->out, "(void)scratch, (void)task0, (void)task1;");
    for (int i = 0; i < p->t->nloop; i++) put_loop(p, &p->t->loop[i]);
    kernel_close(p->out);
}

static void put_step(struct printing *p)
{
    const struct tree *t = p->t;
    kernel_open(p->out, 0);
    text_line(p->out, "char *const scratch = (char *)f->scratch + worker * f->scratch_bytes;");
    text_line(p->out, "(void)scratch;");
    if (t->nring) text_line(p->out, "struct @rings state = {0}, *const b = &state;");
    for (int i = 0; i < t->nring; i++) {
        const struct tree_ring *r = &t->ring[i];
        if (r->stored) continue;
        text_line(p->out, "b->ring%d = %s;", i, text_plus(p->out->arena, "scratch", r->scratch));
        text_line(p->out, "__builtin_memset(b->ring%d, 0, %lld);", i, (long long)size_mul(r->row_bytes, r->room));
    }
    if (t->nring) text_line(p->out, "int64_t now = -1;");
    text_open(p->out, "for (int64_t task = task0; task < task1; task++) {");
    if (t->nring) put_task(p);
    for (int i = 0; i < t->nloop && !t->nring; i++) put_loop(p, &t->loop[i]);
    text_close(p->out, "}");
    kernel_close(p->out);
}

char *tree_print(struct arena *a, const struct target *target, const struct tree *t)
{
    struct arena *scratch = arena_create(arena_ctx(a));
    if (!scratch) return arena_strdup(a, "");
    struct text out = text_new(scratch);
    struct printing p = {t, &out};
    for (int i = 0; i < t->nmember; i++) kernel_member(&out, target, i, t->member[i]->source);
    if (t->nring) put_state(&p);
    for (int i = 0; i < t->nring; i++) put_ring(&p, i);
    if (t->team)
        put_team(&p);
    else
        put_step(&p);
    struct kernel made = {.source = out.at};
    kernel_sizes(scratch, t->vary, &made);
    char *source = arena_strdup(a, made.source);
    arena_destroy(scratch);
    return source;
}
