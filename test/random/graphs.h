/* Random graphs and their expected results.
 *
 * Every graph is created twice: the one that is compiled, and `wide`, with f64 in place of f32, which the interpreter
 * evaluates layer by layer while it grows. `wide` is evaluated on the data and on the data with noise. The difference
 * gives the tolerance for a correct result. Numbers that are short binary fractions are `exact`: they have no noise,
 * and functions that jump (floor, comparisons) get only such numbers. */
#ifndef RANDOM_GRAPHS_H
#define RANDOM_GRAPHS_H

#include <stdio.h>

#include "hlir/graph.h"
#include "layers/layers.h"

#define GEN_OUTPUTS 16 /* of a layer, at most */

struct value {
    struct sol_tensor *t, *wide;
    void *x, *noisy; /* of wide's type */
    double scale;    /* largest finite |x| */
    double tolerance;
    bool exact, special; /* special: NaN or infinite elements on purpose */
    bool read, output;
    bool lost; /* a source whose layer was rejected: not to be picked */
    int64_t elements;
};

/* What a layer needs and preserves. */
enum need {
    NEED_EXACT = 1,    /* it jumps: only on exact numbers */
    NEED_NOT_ZERO = 2, /* it has a pole or a change of sign at 0 */
    NEED_FINITE = 4,   /* no NaN, no infinity */
    KEEPS_EXACT = 8,   /* short binary fractions give short binary fractions */
    IS_ROUGH = 16      /* may have larger errors: Winograd */
};

struct gen {
    struct sol_ctx *ctx;
    struct arena *a;
    uint64_t rng;
    struct sol_graph *g, *wide;
    VECTOR(struct value *) values; /* in order */
    VECTOR(void *) x, noisy;       /* by id of wide tensors */
    int first;                     /* first value of the current sub-graph */
    enum sol_dtype real;           /* its floating-point type */
    bool special, empty;           /* may it have NaN, sizes of 0? */
    bool single;                   /* nothing is float64 */
    int made;                      /* layers in it */
    double work;                   /* of the interpreter, for the whole graph */
};

/* -- graphs.c */
struct gen *gen_create(struct sol_ctx *ctx, uint64_t seed);
void gen_destroy(struct gen *r);
unsigned gen_bits(struct gen *r);
int gen_below(struct gen *r, int n);
int gen_between(struct gen *r, int low, int high); /* inclusive */
bool gen_chance(struct gen *r, int percent);
double gen_real(struct gen *r, double low, double high);

enum fill { FILL_ANY, FILL_EXACT, FILL_POSITIVE, FILL_RANGE /* integers low..high */, FILL_SORTED };
struct value *gen_source(struct gen *r, enum tensor_role role, enum sol_dtype type, int ndim, const int64_t *shape,
                         enum fill fill, double low, double high);
struct value *gen_number(struct gen *r, enum sol_dtype type, double v); /* a scalar constant */
/* Adds a layer with attributes such as "s=[2,1] e=0.5 mode=linear". False: it was rejected, and nothing changed. `out`
 * has room for GEN_OUTPUTS. */
bool gen_layer(struct gen *r, const char *kind, unsigned needs, int nin, struct value *const *in, const char *attrs,
               struct value **out);
/* The same for a layer with one output. NULL: it was rejected. */
struct value *gen_one(struct gen *r, const char *kind, unsigned needs, int nin, struct value *const *in,
                      const char *attrs);
void gen_output(struct gen *r, struct value *v);
struct value *gen_value(const struct gen *r, const struct sol_tensor *t); /* NULL: unknown */
/* The part of `r` that outputs[] depend on; values in cut[] become inputs. NULL: it cannot be created. */
struct gen *gen_copy(struct gen *r, int noutputs, struct value *const *outputs, int ncut, struct value *const *cut);
/* Parses a graph and gives it random data. */
struct gen *gen_parse(struct sol_ctx *ctx, const char *text, uint64_t seed);
const char *gen_rejection(void); /* why the last layer was rejected */
/* Element i of data of a type, as a number. */
double gen_element(enum sol_dtype type, const void *data, int64_t i);
void gen_store(enum sol_dtype type, void *data, int64_t i, double v, int64_t k);

/* -- recipes.c: each adds one or a few layers to the current sub-graph; false: that failed */
struct recipe {
    const char *kind; /* of layers.def; "*": rows of math.def */
    bool (*make)(struct gen *r, const struct recipe *recipe);
    unsigned needs;
    int weight;
    const char *text; /* meaning depends on the recipe */
};
const struct recipe *recipe_at(int i);
void recipe_tried(const struct recipe *recipe, bool good);
/* Creates a graph of `n` sub-graphs. */
void recipes_graph(struct gen *r, int n);
/* Creates a sub-graph for every `parts`-th row of layers.def, from `part` on. Rows for which all tries failed are named
 * and counted in *out_missing. */
void recipes_rows(struct gen *r, int part, int parts, FILE *out, int *out_missing);
void recipes_report(FILE *out);
int recipes_missing(FILE *out); /* rows of layers.def without a recipe */

/* -- check.c */
struct setting { /* of the compiler */
    const char *name;
    const char *key[4], *value[4];
    bool joint; /* every second output belongs to the backward program */
};
const struct setting *setting_named(const char *name);
/* Compiles, runs and compares. False: *out_why says why, and *out_bad is the wrong value or NULL. */
bool check_graph(struct gen *r, const struct setting *s, const char **out_why, struct value **out_bad);
int check_number(const struct gen *r, const struct value *v); /* of an output; -1: it is none */
/* Prints the smallest graph found that still fails. output: the number of a wrong one, or -1. */
void check_shrink(struct gen *r, const struct setting *s, int output, FILE *out);

#endif
