/* Element-wise layers: every row of math.def, with operands where the function is defined and smooth. */
#include "random/recipes.h"

#include <string.h>

/* Domains, one letter per argument: a any, e exact or integer, n not 0, p above 0, u -0.9..0.9, o 0.1..0.9, b -9..9, g
 * above 1, s a positive number (a constant), c a condition, i a small integer. Rows that are not listed accept any
 * operand. */
static const struct domain {
    const char *name, *in;
    unsigned needs;
} domains[] = {
    {"identity", "a", KEEPS_EXACT},
    {"add", "aa", KEEPS_EXACT},
    {"sub", "aa", KEEPS_EXACT},
    {"mul", "aa", KEEPS_EXACT},
    {"div", "an", 0},
    {"floordiv", "en", NEED_EXACT | KEEPS_EXACT},
    {"truncdiv", "en", NEED_EXACT | KEEPS_EXACT},
    {"remainder", "en", NEED_EXACT | KEEPS_EXACT},
    {"fmod", "en", NEED_EXACT | KEEPS_EXACT},
    {"pow", "ps", 0},
    {"neg", "a", KEEPS_EXACT},
    {"abs", "a", KEEPS_EXACT},
    {"sign", "e", NEED_EXACT | KEEPS_EXACT},
    {"square", "a", KEEPS_EXACT},
    {"sqrt", "p", 0},
    {"rsqrt", "p", 0},
    {"reciprocal", "n", 0},
    {"hypot", "nn", 0},
    {"lerp", "aao", 0},
    {"max", "aa", KEEPS_EXACT},
    {"min", "aa", KEEPS_EXACT},
    {"fmax", "aa", KEEPS_EXACT},
    {"fmin", "aa", KEEPS_EXACT},
    {"clamp", "ass", KEEPS_EXACT},
    {"where", "caa", KEEPS_EXACT},
    {"threshold", "eea", NEED_EXACT | KEEPS_EXACT},
    {"heaviside", "ea", NEED_EXACT | KEEPS_EXACT},
    {"floor", "e", NEED_EXACT | KEEPS_EXACT},
    {"ceil", "e", NEED_EXACT | KEEPS_EXACT},
    {"round", "e", NEED_EXACT | KEEPS_EXACT},
    {"trunc", "e", NEED_EXACT | KEEPS_EXACT},
    {"frac", "e", NEED_EXACT | KEEPS_EXACT},
    {"exp", "b", 0},
    {"exp2", "b", 0},
    {"expm1", "b", 0},
    {"log", "p", 0},
    {"log2", "p", 0},
    {"log10", "p", 0},
    {"log1p", "p", 0},
    {"logaddexp", "bb", 0},
    {"logaddexp2", "bb", 0},
    {"xlogy", "ap", 0},
    {"logit", "o", 0},
    {"ldexp", "ab", 0},
    {"tan", "u", 0},
    {"asin", "u", 0},
    {"acos", "u", 0},
    {"atan2", "nn", 0},
    {"sinh", "b", 0},
    {"cosh", "b", 0},
    {"acosh", "g", 0},
    {"atanh", "u", 0},
    {"erfinv", "u", 0},
    {"lgamma", "p", 0},
    {"digamma", "p", 0},
    {"i0e", "b", 0},
    {"i1e", "b", 0},
    {"relu", "a", KEEPS_EXACT},
    {"relu6", "a", KEEPS_EXACT},
    {"leaky_relu", "as", KEEPS_EXACT},
    {"prelu", "aa", KEEPS_EXACT},
    {"elu", "as", 0},
    {"celu", "as", 0},
    {"softplus", "bss", 0},
    {"softshrink", "as", KEEPS_EXACT},
    {"hardshrink", "es", NEED_EXACT | KEEPS_EXACT},
    {"eq", "ee", NEED_EXACT},
    {"ne", "ee", NEED_EXACT},
    {"lt", "ee", NEED_EXACT},
    {"le", "ee", NEED_EXACT},
    {"gt", "ee", NEED_EXACT},
    {"ge", "ee", NEED_EXACT},
    {"logical_and", "ee", NEED_EXACT},
    {"logical_or", "ee", NEED_EXACT},
    {"logical_xor", "ee", NEED_EXACT},
    {"logical_not", "e", NEED_EXACT},
    {"bit_and", "ii", 0},
    {"bit_or", "ii", 0},
    {"bit_xor", "ii", 0},
    {"bit_not", "i", 0},
    {"shift_left", "ii", 0},
    {"shift_right", "ii", 0},
    {"gcd", "ii", 0},
    {"lcm", "ii", 0},
    {"copysign", "an", 0},
    {"signbit", "n", 0},
    {"rand", "ii", 0},
    {"nextafter", "--", 0}, /* the next number differs in f64 */
};

static const struct domain *domain_of(const char *name)
{
    static const struct domain any = {"", "aaa", 0};
    for (int i = 0; i < COUNT_OF(domains); i++)
        if (!strcmp(domains[i].name, name)) return &domains[i];
    return &any;
}

static bool limits(char domain, double *low, double *high)
{
    static const struct {
        char domain;
        double low, high;
    } rows[] = {{'p', 0.0625, 50}, {'u', -0.875, 0.875}, {'o', 0.125, 0.875}, {'b', -9, 9}, {'g', 1.0625, 50}};
    for (int i = 0; i < COUNT_OF(rows); i++) {
        if (rows[i].domain != domain) continue;
        *low = rows[i].low;
        *high = rows[i].high;
        return true;
    }
    return false;
}

static bool within(const struct value *v, double low, double high)
{
    for (int64_t i = 0; i < v->elements; i++) {
        double x = gen_element(v->wide->dtype, v->x, i);
        if (x < low || x > high) return false;
    }
    return true;
}

static bool near_zero(const struct value *v)
{
    for (int64_t i = 0; i < v->elements; i++) {
        double x = gen_element(v->wide->dtype, v->x, i);
        if (x > -0.04 && x < 0.04) return true;
    }
    return false;
}

/* Brings v into the domain. NULL: that is impossible. */
static struct value *fit(struct gen *r, struct value *v, char domain)
{
    double low, high;
    bool real = dtype_def(v->t->dtype)->is_float;
    if (limits(domain, &low, &high) && !within(v, low, high)) {
        if (!real) return NULL;
        struct value *in[] = {v, gen_number(r, v->t->dtype, low), gen_number(r, v->t->dtype, high)};
        return gen_one(r, "clamp", KEEPS_EXACT, 3, in, "");
    }
    if ((domain == 'e' || domain == 'c') && real && !v->exact) return NULL;
    return domain == 'n' && near_zero(v) ? NULL : v;
}

/* Another operand that broadcasts to v. */
static struct value *partner(struct gen *r, const struct value *v, enum sol_dtype type, char domain)
{
    double low = -2, high = 2;
    bool real = dtype_def(type)->is_float;
    if (domain == 's') return gen_number(r, type, real ? gen_between(r, 1, 12) / 4.0 : gen_between(r, 1, 3));
    if (domain == 'c' && gen_chance(r, 70)) type = SOL_BOOL, real = false;
    if (limits(domain, &low, &high)) return new_partner(r, v, type, FILL_RANGE, low, MIN(high, 3));
    if (domain == 'e' || domain == 'c')
        return new_partner(r, v, type, FILL_EXACT, type == SOL_BOOL ? 0 : -9, type == SOL_BOOL ? 1 : 9);
    if (domain == 'n') return new_partner(r, v, type, FILL_POSITIVE, 1, type == SOL_BOOL ? 1 : 9);
    if (domain == 'i') return new_partner(r, v, type, FILL_RANGE, 0, type == SOL_BOOL ? 1 : 6);
    return new_partner(r, v, type, gen_chance(r, 40) ? FILL_EXACT : FILL_ANY, type == SOL_BOOL ? 0 : -9,
                       type == SOL_BOOL ? 1 : 9);
}

/* A value of the sub-graph with the shape and type of v. NULL: there is none. */
static struct value *sibling(struct gen *r, const struct value *v, char domain)
{
    struct value *found = NULL;
    for (int i = r->first, n = 0; i < r->values.n; i++) {
        struct value *x = r->values.at[i];
        bool same = x->t->dtype == v->t->dtype && x->t->ndim == v->t->ndim;
        for (int d = 0; same && d < v->t->ndim; d++) same = size_of(x, d) == size_of(v, d);
        if (same && gen_chance(r, 100 / ++n)) found = x;
    }
    return found ? fit(r, found, domain) : NULL;
}

bool map_is_judged(const char *name)
{
    return domain_of(name)->in[0] != '-';
}

bool make_map(struct gen *r, const struct recipe *recipe)
{
    const struct math_def *m = recipe->text ? math_at(math_row(recipe->text)) : math_at(gen_below(r, math_rows()));
    const struct domain *d = domain_of(m->name);
    if (d->in[0] == '-') return false;
    bool ints_only = !m->expr && !m->c_scalar;
    int first = d->in[0] == 'c' || (m->arity == 3 && d->in[2] == 'o' && gen_chance(r, 30)) ? 1 : 0;
    enum class c = ints_only ? IS_INT : gen_chance(r, 88) ? IS_REAL : gen_chance(r, 75) ? IS_INT : IS_BOOL;
    struct value *in[3] = {0}, *v = pick(r, c, 0, 5);
    in[first] = fit(r, v, d->in[first]);
    if (!in[first] && dtype_def(v->t->dtype)->is_float) { /* then an exact one is needed */
        int64_t shape[SOL_MAX_DIMS];
        shape_of(v, shape);
        in[first] = gen_source(r, TENSOR_INPUT, v->t->dtype, v->t->ndim, shape,
                               d->in[first] == 'n' ? FILL_POSITIVE : FILL_EXACT, 0, 0);
    }
    if (!in[first]) return false;
    for (int i = 0; i < m->arity; i++) {
        if (i == first) continue;
        if (d->in[i] != 's' && d->in[i] != 'c' && gen_chance(r, 45)) in[i] = sibling(r, in[first], d->in[i]);
        if (!in[i]) in[i] = partner(r, in[first], in[first]->t->dtype, d->in[i]);
    }
    if (!strcmp(m->name, "clamp")) in[1] = gen_number(r, in[0]->t->dtype, gen_between(r, -3, 1));
    bool swap = m->arity == 2 && first == 0 && d->in[0] == d->in[1] && gen_chance(r, 30);
    if (swap) {
        struct value *x = in[0];
        in[0] = in[1];
        in[1] = x;
    }
    return gen_one(r, m->name, d->needs, m->arity, in, "") != NULL;
}

const struct recipe map_recipes[] = {
    {"*", make_map, 0, 90, NULL}, {"*", make_map, 0, 14, "add"},  {"*", make_map, 0, 10, "relu"},
    {"*", make_map, 0, 8, "mul"}, {"*", make_map, 0, 4, "where"}, {"*", make_map, 0, 4, "max"},
    {"*", make_map, 0, 4, "sub"}, {NULL, NULL, 0, 0, NULL},
};
