/* What the files size*.c share: forms as polynomials over symbols. */
#ifndef SOL_SIZE_FORM_H
#define SOL_SIZE_FORM_H

#include <stdatomic.h>

#include "base/size.h"

#define SIZE_TERMS 64  /* of a polynomial */
#define SIZE_SYMBOLS 7 /* of a term */

struct interval {
    int64_t low, high; /* INT64_MIN, INT64_MAX: none */
};
enum symbol_kind { SYMBOL_DIM, SYMBOL_QUOTIENT, SYMBOL_MIN, SYMBOL_MAX };
struct symbol {
    enum symbol_kind kind;
    int nesting;         /* 0: a dimension; else one more than the symbols in a and b */
    struct size_dim dim; /* DIM: the symbol is the dimension divided by its multiple */
    int64_t a, b;        /* sizes: a // b, min(a, b), max(a, b) */
    struct interval range;
};
struct term {
    int64_t k;
    int32_t n;
    int32_t symbol[SIZE_SYMBOLS]; /* numbers of symbols, in their order, with repetitions */
};
struct poly {
    int32_t bad; /* overflow, or too many terms */
    int32_t n;
    struct term t[SIZE_TERMS]; /* in their order; those behind the last are zero */
};
const struct symbol *symbol_at(int32_t i);
struct poly poly_load(int64_t s);
int64_t poly_store(const struct poly *p);
void poly_add_term(struct poly *p, const struct term *t);
void poly_add(struct poly *p, const struct poly *q, int64_t k);                  /* p += k * q */
void poly_add_times(struct poly *p, const struct term *t, const struct poly *q); /* p += t * q */
/* What size_le found out about a form; forms never change. */
enum size_proof { SIZE_PROOF_OPEN, SIZE_PROOF_NEVER_NEGATIVE, SIZE_PROOF_NONE };
atomic_schar *size_proof(int64_t form);
/* The term without one of its symbols, which it has. */
struct term term_without(const struct term *t, int32_t symbol);
/* size_proof.c: of a symbol whose other fields are set */
struct interval symbol_interval(const struct symbol *x);
#endif
