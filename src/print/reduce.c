/* Prints reductions as C text, with the templates of reduce.def: states, a loop over the bound index variables, the
 * final value. */
#include <inttypes.h>
#include <string.h>

#include "print/print.h"

#define SAY(p, ...) arena_printf((p)->out->arena, __VA_ARGS__)

enum compute reduction_type(const struct print_expr *p, int32_t node, int i, enum compute k)
{
    switch (p->loops->ex.at[node].op) {
    case RED_MAXAT:
    case RED_MINAT: return i ? C_I64 : k;
    case RED_ANY:
    case RED_ALL: return C_I64;
    default: return k;
    }
}

static bool is_long(int op)
{
    return op == RED_SUM || op == RED_PROD || op == RED_MOMENTS || op == RED_SOFTSUM;
}

/* Long sums have their states in double, so the only error is that of rounding the result. */
static enum compute state_type(int op, enum compute k)
{
    return k == C_F32 && is_long(op) ? C_F64 : k;
}

struct pieces {
    const char *state[4], *value, *position;
    const char *rest[4]; /* what rounding took from a state so far, where there is no double; NULL: there is */
    enum compute k;
};

static const char *limit(enum compute k, bool high)
{
    if (k == C_U64) return high ? "UINT64_MAX" : "0";
    if (k == C_I64) return high ? "INT64_MAX" : "INT64_MIN";
    return high ? "@INFINITY" : "(-@INFINITY)";
}

/* A state and its rest, what rounding took from it so far: Knuth's sum of two, and the error of a product by fma. The
 * rest of an infinite state is NaN, and does not count (sol_total). */
#define SUM                                                                                                    \
    "{ const float more_ = %1$s, sum_ = %2$s + more_, part_ = sum_ - %2$s; %3$s += (%2$s - (sum_ - part_)) + " \
    "(more_ - part_); %2$s = sum_; }"
#define PRODUCT                                                                                               \
    "{ const float by_ = %1$s, product_ = %2$s * by_; %3$s = %3$s * by_ + fma(%2$s, by_, -product_); %2$s = " \
    "product_; }"

static const char *fill(struct print_expr *p, const char *template, size_t n, const struct pieces *s)
{
    struct text t = text_new(p->out->arena);
    for (size_t i = 0; i < n; i++) {
        const char c = i + 1 < n ? template[i + 1] : 0;
        if (template[i] != '%') {
            text_add(&t, template + i, 1);
            continue;
        }
        const int state = i + 2 < n ? template[i + 2] - '0' : 0;
        if (c == 's' && s->rest[state])
            text_put(&t, "@sol_total(%s, %s)", s->state[state], s->rest[state]);
        else if (c == 's')
            text_put(&t, "%s", s->state[state]);
        else if ((c == '+' || c == '*') && !s->rest[state])
            text_put(&t, "%s %c=", s->state[state], c);
        else if (c == '+' || c == '*') {
            const size_t more = strcspn(template + i + 4, ";");
            text_put(&t, c == '+' ? SUM : PRODUCT, fill(p, template + i + 4, more, s), s->state[state], s->rest[state]);
            i += 4 + more;
            continue;
        } else if (c == 'x')
            text_put(&t, "%s", s->value);
        else if (c == 'i')
            text_put(&t, "%s", s->position);
        else if (c == 'f')
            text_put(&t, "%s", compute_def(s->k)->suffix);
        else if (c == 'L' || c == 'H')
            text_put(&t, "%s", limit(s->k, c == 'H'));
        i += c == 's' || c == '+' || c == '*' ? 2 : 1;
    }
    return t.at ? t.at : "";
}

/* Item i of a list of templates separated by ';'. */
static const char *part(struct print_expr *p, const char *list, int i, const struct pieces *s)
{
    while (i--) list = strchr(list, ';') + 1;
    return fill(p, list, strcspn(list, ";"), s);
}

/* The position: bound index variables row-major, by ascending number. */
static const char *position(struct print_expr *p, uint64_t bound)
{
    const char *text = "0";
    for (int i = 0; i < p->loops->ivars.n; i++) {
        if (!(bound >> i & 1)) continue;
        const char *ivar = expr_ivar(p, i);
        if (!strcmp(text, "0"))
            text = ivar;
        else
            text = SAY(p, "(%s) * %" PRId64 " + %s", text, p->loops->ivars.at[i].size, ivar);
    }
    return text;
}

static void bound_ivars(struct print_expr *p, const struct ex *e, struct print_loops *l)
{
    *l = (struct print_loops){0};
    for (int i = 0; i < p->loops->ivars.n; i++)
        if (e->u.bound >> i & 1) l->ivar[l->n++] = (uint8_t)i;
    /* of equal values, the position decides, so the order must not change */
    if (e->op != RED_MAXAT && e->op != RED_MINAT) nest_order(p, l, e->b);
    nest_guard(p, l, e->a);
}

/* Prints the scalar form. */
static void reduce(struct print_expr *p, const struct ex *e, enum compute k, const char **out_value)
{
    const struct reduce_def *def = reduce_at(e->op);
    struct pieces s = {.k = state_type(e->op, k)};
    const bool compensated = p->target->single && is_long(e->op) && !compute_is_int(k);
    for (int i = 0; i < def->nstate; i++) s.state[i] = expr_name(p);
    for (int i = 0; i < def->nstate; i++)
        text_line(p->out, "%s %s = %s;", def->type[i] == 'i' ? "int64_t" : compute_def(s.k)->type, s.state[i],
                  part(p, def->init, i, &s));
    for (int i = 0; compensated && i < def->nstate; i++) {
        if (!strstr(def->step, SAY(p, "%%+%d", i)) && !strstr(def->step, SAY(p, "%%*%d", i))) continue;
        s.rest[i] = expr_name(p);
        text_line(p->out, "%s %s = 0;", compute_def(s.k)->type, s.rest[i]);
    }
    struct print_loops l;
    bound_ivars(p, e, &l);
    nest_open(p, &l);
    s.position = position(p, e->u.bound);
    const char *value = expr_value(p, e->b, e->op == RED_ANY || e->op == RED_ALL ? expr_natural(p->loops, e->b) : k);
    s.value = expr_name(p);
    const enum compute body = e->op == RED_ANY || e->op == RED_ALL ? expr_natural(p->loops, e->b) : s.k;
    text_line(p->out, "const %s %s = %s;", compute_def(body)->type, s.value, text_bare(p->out->arena, value));
    text_line(p->out, "%s", fill(p, def->step, strlen(def->step), &s));
    nest_close(p, &l);
    for (int i = 0; i < def->nout; i++) out_value[i] = part(p, def->finish, i, &s);
    if (s.k != k)
        for (int i = 0; i < def->nout; i++) out_value[i] = SAY(p, "(%s)(%s)", compute_def(k)->type, out_value[i]);
}

/* Computes the number of points of a box, `sum[K | bounds] 1`, without a loop. NULL: it has another form. */
static const char *count(struct print_expr *p, const struct ex *e, enum compute k)
{
    const struct ex *body = &p->loops->ex.at[e->b];
    if (e->op != RED_SUM || body->kind != EX_INT || body->u.i != 1) return NULL;
    struct text *out = p->out, inner = text_new(out->arena);
    const int temps = p->temps;
    struct print_loops l;
    bound_ivars(p, e, &l);
    const uint64_t bound = e->u.bound;
    for (int i = 0; i < l.guard.n; i++) { /* a part with two bound index variables: not a box */
        const uint64_t own = ex_ivars(p->loops, l.guard.at[i]) & bound;
        if (own & (own - 1)) return NULL;
    }
    p->out = &inner;
    nest_open(p, &l);
    p->out = out;
    if (l.tested || l.guard.n) {
        p->temps = temps;
        return NULL;
    }
    const char *text = NULL;
    for (const char *s = inner.at, *end; s && *s; s = end + 1) { /* keeps the bounds without the loops */
        end = strchr(s, '\n');
        while (*s == ' ') s++;
        if (!strncmp(s, "const", 5)) text_line(out, "%.*s", (int)(end - s), s);
    }
    for (int i = 0; i < l.n; i++) {
        const char *n = SAY(p, "@sol_max_i64(0, %s - %s)", l.high[i], l.low[i]);
        text = text ? SAY(p, "%s * %s", text, n) : n;
    }
    text = SAY(p, "(%s)", text ? text : "1");
    return k == C_I64 ? text : SAY(p, "(%s)%s", compute_def(k)->type, text);
}

void print_reduction_all(struct print_expr *p, int32_t node, enum compute k, const char **out_value)
{
    const struct ex e = p->loops->ex.at[node];
    const enum compute natural = expr_natural(p->loops, node);
    if (compute_is_int(k) && compute_is_int(natural)) k = natural;
    out_value[0] = count(p, &e, k);
    if (!out_value[0]) reduce(p, &e, k, out_value);
}

const char *print_reduction(struct print_expr *p, int32_t node, enum compute k)
{
    const char *value[4];
    if (p->lanes > 1) return expr_lanes(p, node, k);
    print_reduction_all(p, node, k, value);
    return expr_temp(p, SAY(p, "%s", value[0]), reduction_type(p, node, 0, k));
}
