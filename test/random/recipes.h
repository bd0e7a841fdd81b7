/* Shared by recipes: choosing operands, sizes, axes and attributes. */
#ifndef RANDOM_RECIPES_H
#define RANDOM_RECIPES_H

#include "random/graphs.h"

enum class { IS_REAL, IS_INT, IS_BOOL, IS_ANY };

/* recipes.c */
int64_t some_size(struct gen *r);
/* A value of the sub-graph (the newest are most likely), or a new one, with low..high dimensions. */
struct value *pick(struct gen *r, enum class c, int low, int high);
struct value *pick_image(struct gen *r, int pixels); /* [N C pixels..]; pixels 0: any number */
struct value *new_real(struct gen *r, int ndim, const int64_t *shape);
struct value *new_param(struct gen *r, int ndim, const int64_t *shape); /* mostly a parameter */
struct value *new_positive(struct gen *r, int ndim, const int64_t *shape);
/* Integers in 0..n-1 (or -n..n-1) for indexing. */
struct value *new_index(struct gen *r, int ndim, const int64_t *shape, int64_t n, bool negative);
/* An operand that broadcasts to v: leading dimensions may be missing, others may be 1. */
struct value *new_partner(struct gen *r, const struct value *v, enum sol_dtype type, enum fill fill, double low,
                          double high);
int64_t size_of(const struct value *v, int d);
void shape_of(const struct value *v, int64_t *shape);
enum sol_dtype some_int(struct gen *r);
const char *format(struct gen *r, const char *text, ...) PRINTF_LIKE(2, 3);
const char *list(struct gen *r, int n, const int64_t *at); /* "[1,2]" */
const char *ints(struct gen *r, int n, int low, int high); /* n numbers, or one for all: "[1,2]", "2" */
const char *some_axes(struct gen *r, int ndim);            /* may be empty, meaning all */
int some_axis(struct gen *r, int ndim);                    /* may be negative */

/* recipes_map.c: the row of math.def that recipe->text names, or any */
bool make_map(struct gen *r, const struct recipe *recipe);
bool map_is_judged(const char *name); /* false: f32 and f64 have no comparable results */

/* recipes_nn.c, recipes_move.c, recipes_map.c, recipes_row.c */
extern const struct recipe nn_recipes[], move_recipes[], map_recipes[], row_recipes[];

#endif
