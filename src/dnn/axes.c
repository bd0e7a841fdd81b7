/* Merges index variables into axes: index variables that every access walks as one run of memory become one loop. */
#include "dnn/problem.h"

#include <string.h>

static bool one_run(const struct problem *p, const struct axes_rule *rule, int outer, int inner)
{
    for (int i = 0; i < rule->n; i++)
        if (rule->strides[i][outer] != size_mul(rule->strides[i][inner], p->loops->ivars.at[inner].size)) return false;
    return true;
}

struct axes_rule axes_rule_epilogue(const struct problem *p, uint64_t single)
{
    struct axes_rule rule = {.by = p->order, .single = single};
    for (int i = 0; i < p->nview; i++) rule.strides[rule.n++] = p->view[i].s;
    return rule;
}

struct axes_rule axes_rule_all(const struct problem *p, uint64_t single)
{
    struct axes_rule rule = axes_rule_epilogue(p, single);
    rule.strides[rule.n++] = p->a.view.s;
    rule.strides[rule.n++] = p->b.view.s;
    return rule;
}

int64_t axes_size(const struct axes *x)
{
    int64_t n = 1;
    for (int i = 0; i < x->n; i++) n = size_mul(n, x->at[i].size);
    return n;
}

bool axes_make(const struct problem *p, uint64_t ivars, const struct axes_rule *rule, struct axes *out)
{
    uint8_t order[LOOPS_MAX_IVARS];
    int count = 0;
    for (int i = 0; i < p->loops->ivars.n; i++) {
        if (!set_has(ivars, i)) continue;
        int k = count++;
        for (; k > 0 && stride_about(rule->by[order[k - 1]]) < stride_about(rule->by[i]); k--) order[k] = order[k - 1];
        order[k] = (uint8_t)i;
    }
    out->n = 0;
    for (int i = 0; i < count; i++) {
        struct axis *last = out->n ? &out->at[out->n - 1] : NULL;
        const int64_t size = p->loops->ivars.at[order[i]].size;
        const bool alone = !last || set_has(rule->single, order[i]) || set_has(rule->single, last->ivar[0]);
        if (!alone && last->n < AXIS_MAX_IVARS && one_run(p, rule, last->ivar[last->n - 1], order[i])) {
            last->ivar[last->n++] = order[i];
            last->size = size_mul(last->size, size);
            continue;
        }
        if (out->n == AXES_MAX) return false;
        out->at[out->n++] = (struct axis){.size = size, .n = 1, .ivar = {order[i]}};
    }
    return true;
}

static int64_t digit_below(const struct problem *p, const struct axis *x, int i)
{
    int64_t n = 1;
    for (int k = i + 1; k < x->n; k++) n = size_mul(n, p->loops->ivars.at[x->ivar[k]].size);
    return n;
}

const char *axis_digit(const struct problem *p, const struct axis *x, int i, const char *index)
{
    const int64_t below = digit_below(p, x, i), size = p->loops->ivars.at[x->ivar[i]].size;
    if (x->n == 1) return index;
    const char *text = below > 1 ? arena_printf(p->arena, "%s / %lld", index, (long long)below) : index;
    return i ? arena_printf(p->arena, "(%s %% %lld)", text, (long long)size) : arena_printf(p->arena, "(%s)", text);
}

int32_t axis_digit_ex(const struct problem *p, const struct axis *x, int i, struct loops *to, int32_t node)
{
    const int64_t below = digit_below(p, x, i), size = p->loops->ivars.at[x->ivar[i]].size;
    if (x->n == 1) return node;
    if (below > 1) node = ex_binary(to, EX_FLOOR, node, ex_int(to, below));
    return i ? ex_binary(to, EX_MOD, node, ex_int(to, size)) : node;
}
