/* Front, the self-test: runs the network on generated inputs and compares elements of its outputs with stored values.
 * The allowed difference is stored with each value; src/deploy/golden.c of SOL explains where it comes from. */
#include "deploy/made_up.h"

static double number_of(const char *type, const void *at)
{
    float narrow;
    double wide;
    int64_t whole = 0;
    const size_t size = made_up_size(type);
    memcpy(&narrow, at, size == sizeof narrow ? sizeof narrow : 0);
    memcpy(&wide, at, size == sizeof wide ? sizeof wide : 0);
    memcpy(&whole, at, size);
    return *type != 'f' ? (double)whole : size == sizeof narrow ? (double)narrow : wide;
}

/* The difference of an element in units of its tolerance: 0 if equal, above 1 if wrong. */
static double away(const struct front_sample *s, const char *type, const void *at, double got, double expected)
{
    const double far = got > expected ? got - expected : expected - got;
    uint64_t bits = 0;
    memcpy(&bits, at, made_up_size(type));
    if (bits == s->bits || (got != got && expected != expected)) return 0;
    return *type == 'f' && s->tolerance > 0 && far == far ? far / s->tolerance : __builtin_inf();
}

static void compare(const struct front_golden *golden, int noutput, const struct sol_ext_tensor *output,
                    void *const *out, struct sol_ext_selftest *found)
{
    for (int i = 0; i < noutput; i++)
        for (int64_t k = 0; k < golden[i].n; k++) {
            const struct front_sample *s = &golden[i].sample[k];
            const char *type = output[i].type, *at = (const char *)out[i] + s->element * made_up_size(type);
            const double got = number_of(type, at), expected = number_of(type, &s->bits);
            const double distance = away(s, type, at, got, expected);
            found->compared += s->tolerance >= 0;
            if (s->tolerance < 0 || (found->output >= 0 && distance <= found->distance)) continue;
            found->output = i;
            found->element = s->element;
            found->got = got;
            found->expected = expected;
            found->tolerance = s->tolerance;
            found->distance = distance;
        }
}

/* Runs the self-test when all memory is there. The stream of random numbers is unchanged afterwards. */
static int selftest(struct front_context *c, const struct front_golden *golden, int kind, void *const *in,
                    void *const *out, struct sol_ext_selftest *found)
{
    const struct front_net *net = c->net;
    const struct sol_ext_tensor *input = inputs_of(c), *output = outputs_of(c);
    const int64_t seed = 1;
    int error = check(net, "input", net->ninput, input, (const void *const *)in);
    if (!error) error = check(net, "output", net->noutput, output, (const void *const *)out);
    if (error) return error;
    for (int i = 0; i < net->ninput; i++) made_up(input[i].type, input[i].bytes, kind, i, in[i]);
    error = run_program(c, &c->code->module->forward, (const void *const *)in, out, &seed);
    if (error) return error;
    compare(golden, net->noutput, output, out, found);
    if (found->output < 0 || found->distance <= 1) return FRONT_GOOD;
    return fail(FRONT_DATA,
                "%s: self-test: output %d, '%s', element %zu is not what it was when the network was deployed",
                net->name, found->output, output[found->output].name, found->element);
}

#if !defined FRONT_BARE
/* Runs it with one block for all inputs and outputs. */
static int selftest_taking(struct front_context *c, const struct front_golden *golden, int kind, void *const *in,
                           void *const *out, struct sol_ext_selftest *found)
{
    void *places[FRONT_PLACES] = {NULL};
    struct front_block memory;
    const int nin = c->net->ninput, n = nin + c->net->noutput;
    size_t bytes = 0, at = 0;
    for (int i = 0; i < n; i++) bytes += lines(i < nin ? inputs_of(c)[i].bytes : outputs_of(c)[i - nin].bytes);
    int error = take(bytes, "the self-test", &memory);
    if (error) return error;
    for (int i = 0; i < n; i++) {
        places[i] = memory.at ? memory.at + at : NULL;
        at += lines(i < nin ? inputs_of(c)[i].bytes : outputs_of(c)[i - nin].bytes);
    }
    error = selftest(c, golden, kind, in ? in : places, out ? out : places + nin, found);
    drop(&memory);
    return error;
}
#endif

static int selftest_in(struct front_context *c, const struct front_golden *golden, int kind, void *const *in,
                       void *const *out, struct sol_ext_selftest *found)
{
#if !defined FRONT_BARE
    if (!in || !out) return selftest_taking(c, golden, kind, in, out, found);
#endif
    return selftest(c, golden, kind, in, out, found);
}

static int selftest_all(struct front_context *c, void *const *in, void *const *out, struct sol_ext_selftest *found)
{
    const struct front_graph *graph = c->graph;
#if defined FRONT_SIZES
    int error = FRONT_GOOD;
    for (int i = 0; i < graph->ntest && !error; i++) {
        const struct front_test *t = &graph->test[i];
        error = resize(c, t->dims);
        if (!error) error = selftest_in(c, t->golden, t->made_up, in, out, found);
    }
    return error;
#else
    return selftest_in(c, graph->golden, graph->made_up, in, out, found);
#endif
}

FRONT_API int front_selftest(const struct front_net *net, struct front_context *c, void *const *in, void *const *out,
                             struct sol_ext_selftest *found)
{
    struct sol_ext_selftest own;
    if (!found) found = &own;
    *found = (struct sol_ext_selftest){.output = -1};
#if defined FRONT_BARE
    const int error = check_context(net, c);
    return error ? error : selftest_all(c, in, out, found);
#else
    struct front_context *taken = NULL;
    int error = c ? FRONT_GOOD : take_idle(net, &taken);
    if (!error) error = selftest_all(c ? c : taken, in, out, found);
    if (taken) give_idle(taken);
    return error;
#endif
}
