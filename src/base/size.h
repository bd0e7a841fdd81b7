/* Sizes that are known only while running: dimensions that vary, and expressions of them.
 *
 * A size is an int64_t. Numbers in [SIZE_FORM, SIZE_FORM + SIZE_FORMS) name a *form*: a polynomial over dimensions that
 * vary (#0, #1, ...) and over quotients, minima and maxima of such polynomials. All other numbers are themselves.
 * Forms are unique within a process: equal ones have the same name, so ==, keys and hashes of numbers work as they are.
 * Their text does not depend on what the process did before.
 *
 * Arithmetic on the names is meaningless. It gives numbers above SIZE_POISON, which no tensor, step or kernel may
 * contain; verifiers look for them. SIZE_BAD results from overflow, division by zero and forms that are too long.
 *
 * All functions are thread-safe. Forms live as long as the process. */
#ifndef SOL_SIZE_H
#define SOL_SIZE_H

#include "base/base.h"

#define SIZE_FORM INT64_C(0x15A5E00000000)
#define SIZE_FORMS (INT64_C(1) << 22)
#define SIZE_BAD (SIZE_FORM + SIZE_FORMS)
#define SIZE_POISON (INT64_C(1) << 47)
#define SIZE_MOST_DIMS 32                 /* of a network */
#define SIZE_UNLIMITED (INT64_C(1) << 40) /* the largest size of a dimension without a limit */

static inline bool size_varies(int64_t s) /* is it a form? */
{
    return s >= SIZE_FORM && s < SIZE_FORM + SIZE_FORMS;
}
/* A dimension that varies: number `index` of its network. */
struct size_dim {
    int index;
    int64_t hint;     /* the size that costs are estimated for */
    int64_t min, max; /* of the size; it is a multiple of `multiple` */
    int64_t multiple;
};
/* The form of a dimension; SIZE_BAD: nothing fits its limits. Equal dimensions have the same form. */
int64_t size_of_dim(const struct size_dim *d);
bool size_is_dim(int64_t s, struct size_dim *out); /* is it a dimension itself? */

int64_t size_add(int64_t a, int64_t b);
int64_t size_sub(int64_t a, int64_t b);
int64_t size_mul(int64_t a, int64_t b);
int64_t size_floor_div(int64_t a, int64_t b); /* rounds down; b > 0 */
int64_t size_ceil_div(int64_t a, int64_t b);
int64_t size_mod(int64_t a, int64_t b); /* a - b * floor(a / b) */
int64_t size_min(int64_t a, int64_t b);
int64_t size_max(int64_t a, int64_t b);
/* a / b where b divides a whatever the dimensions are; SIZE_BAD: that is not proven. */
int64_t size_exact_div(int64_t a, int64_t b);

/* Is it proven that this holds for all dimensions within their limits? */
bool size_le(int64_t a, int64_t b);
static inline bool size_lt(int64_t a, int64_t b)
{
    return size_varies(a) || size_varies(b) ? size_le(size_add(a, 1), b) : a < b;
}
/* Numeric bounds, not always tight: size_least(s) <= s <= size_most(s); INT64_MIN, INT64_MAX: there is none. */
int64_t size_least(int64_t s);
int64_t size_most(int64_t s);
int64_t size_hint(int64_t s);     /* its value for the dimensions' hints, or at the point below */
int64_t size_constant(int64_t s); /* the number in its sum, 0: there is none */
int64_t size_factor(int64_t s);   /* a number that divides it always, the largest that is known */
uint32_t size_dims(int64_t s);    /* the dimensions in it, as bits */
/* A size of the other dimensions that is at least s wherever each dimension #i with most[i] >= 0 is between 0 and
 * most[i]. SIZE_BAD: none is known. */
int64_t size_upper(int64_t s, const int64_t *most);
/* Its value where dimension #i is by[i], a number or a form; SIZE_BAD: overflow. */
int64_t size_at(int64_t s, const int64_t *by);

/* In this thread, size_hint takes made[i] as the hint of dimension #i, until this is called again; within size_costs,
 * it takes cost[i]. So a kernel that is made for one point of the dimensions can be priced at another. NULL: the hints.
 */
struct size_point {
    const int64_t *made, *cost;
};
struct size_point size_point_set(struct size_point p); /* returns the point before */
bool size_costs(bool begin);                           /* returns whether it is within already, for the end */

/* For people, the text form and keys: "12*#0+3"; numbers as they are. */
void size_print(struct text *out, int64_t s);
const char *size_text(struct arena *a, int64_t s);
/* Printers write sizes as they write numbers, "%lld". This copies `text` with forms in place of their names: as
 * size_print writes them, or (prefix given) as C. *out_dims gets the dimensions in them. False: a number in it results
 * from arithmetic on names; it is in *out_bad. */
bool size_fill(struct text *out, const char *text, const char *prefix, uint32_t *out_dims, int64_t *out_bad);
/* Copies `text` with the values of forms where dimension #i is by[i]. */
void size_fill_at(struct text *out, const char *text, const int64_t *by);
/* As size_fill for people, in place, cut to the room; for messages. */
void size_fill_message(struct sol_ctx *ctx, char *message, size_t room);
/* As a C expression of type int64_t in brackets, over <prefix>0, <prefix>1, ..; it needs no other declarations. */
const char *size_c(struct arena *a, int64_t s, const char *prefix);
/* The same with variables a1, b1, m1, .. for what C would contain twice, such as the operands of a maximum, each once:
 * the text of nested ones would be exponentially long. `declared` gets their declarations. */
struct size_variables {
    struct arena *arena;
    struct text *declared;
    struct map *known; /* by symbol */
    int n;
};
const char *size_c_with(int64_t s, const char *prefix, struct size_variables *variables);
/* As size_c of type double, over names of doubles: at least as large as the magnitude of the form and of everything
 * that it is computed from. If that is below 2^62, size_c does not overflow. */
const char *size_magnitude_c(struct arena *a, int64_t s, const char *prefix);
/* Parses what size_print writes; dims: by number. NULL: an error; else what follows. */
const char *size_parse(const char *text, int ndim, const int64_t *dims, int64_t *out);
#endif
