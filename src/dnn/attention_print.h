/* What the printers of attention and of its gradient share. Queries are the lanes of the vectors of a block, keys its
 * rows. */
#ifndef SOL_DNN_ATTENTION_PRINT_H
#define SOL_DNN_ATTENTION_PRINT_H

#include "dnn/attention.h"
#include "dnn/problem.h"
#include "print/print.h"

#define SAY(...) arena_printf(a->arena, __VA_ARGS__)

/* What is printed where: the hook of reads needs it. */
struct attention_printing {
    struct attention *a;
    struct print_expr p;
    struct print_ivar ivar[LOOPS_MAX_IVARS];
    const char *scored, *mixed, *aside[ATTENTION_BESIDE]; /* the values of these tensors, as text */
};
/* Tiles of products with the elements of `from`, which lie in memory, row by row; their functions are called NAME and
 * the height of the tile. */
struct attention_tile {
    const char *name;
    const struct attention_factor *from;
    int64_t depth; /* columns of `from` */
    bool keep;     /* tiles of values: what was added up before is multiplied by `keep_` */
};
struct attention_range {           /* of keys for a block of queries, or the other way round */
    const char *from, *to;         /* keys that some query of the block may have */
    const char *all_from, *all_to; /* keys that all of them have; NULL: it is not known */
};

/* attention_print.c: a kernel's text up to its type @real; up to its functions of tiles, with `turn`, which transposes
 * vectors; and its end behind the body of the loop over tasks. `elements`: of a worker's scratch memory. */
struct text *attention_begin(struct attention_printing *w, struct attention *a,
                             const char *(*read)(void *user, struct print_expr *p, int32_t node));
struct text *attention_open(struct attention_printing *w, struct attention *a,
                            const char *(*read)(void *user, struct print_expr *p, int32_t node));
void attention_close(const struct attention *a, struct text *text, int64_t elements, struct kernel *out);
const char *attention_name(const struct attention *a, int ivar);
int64_t attention_size(const struct attention *a, int ivar);
const char *attention_vector(const struct attention *a);
const char *attention_frame(const struct attention *a); /* the first parameter of a function, if sizes vary */
/* The text of a factor's address at the first key or at `query` (NULL: the first), and the first element. `query` of
 * attention_address is the block's first. */
const char *attention_address(struct attention_printing *w, const struct attention_factor *x);
const char *attention_address_at(struct attention_printing *w, const struct attention_factor *x, const char *query);
/* Declares the index variables of the batch, digits of `number` over n. Returns n times their sizes. */
int64_t attention_put_batch(struct attention *a, struct text *out, const char *number, int64_t n);
/* Declares the block of queries of task `task` and the index variables of the batch. Returns the number of tasks. */
int64_t attention_put_place(struct attention *a, struct text *out);
void attention_put_pointers(struct attention *a, struct text *out);
void attention_put_head(struct attention *a, struct text *out, const char *head);
void attention_put_end(struct text *out);
void attention_put_sums(struct attention *a, struct text *out, int rows);
void attention_put_products(struct attention *a, struct text *out, int rows, const char *from, int64_t stride,
                            const char *by);
/* The functions of tiles; the calls for the keys k0_ .. k0_ + n_ - 1. to[S T] = from[S D] * by[D T]; and
 * to[E T] = to * keep_ + from[S E] * by[S T]. */
void attention_put_tiles_of_keys(struct attention *a, struct text *out, const struct attention_tile *tile);
void attention_put_tiles_of_values(struct attention *a, struct text *out, const struct attention_tile *tile);
void attention_put_sums_of_keys(struct attention *a, struct text *out, const struct attention_tile *tile,
                                const char *from, const char *by, const char *to);
void attention_put_sums_of_values(struct attention *a, struct text *out, const struct attention_tile *tile,
                                  const char *from, const char *by, const char *to);
/* Of index variable `of`, for a block of `by`. */
struct attention_range attention_range(struct attention_printing *w, int of, int by, const char *first,
                                       const char *last);
struct attention_range attention_put_range(struct attention_printing *w, struct text *out);

#endif
