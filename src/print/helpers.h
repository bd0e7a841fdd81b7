/* The table of helpers that generated sources may use, for a target. */
#ifndef SOL_HELPERS_H
#define SOL_HELPERS_H

#include "print/print.h"

/* The text declares `name` without a mark. Names of other helpers in it are marked; they were added before. */
struct helper_row {
    const char *name, *text;
};
/* $X in a form stands for the text of token X. */
struct token {
    char name;
    const char *text;
};
struct helper {
    const char *text;
    VECTOR(int) uses; /* helpers, all in front of it */
};
struct helpers {
    struct arena *arena;
    VECTOR(struct helper) at;
    struct map *by_name; /* number + 1 */
};
int helpers_find(const struct helpers *h, const char *name); /* its number; -1: there is none of this name */
void helpers_add(struct helpers *h, const char *name, const char *text);
void helpers_add_form(struct helpers *h, const char *name, const char *text, int n, const struct token *tokens);

const char *flavour_vector(void);                  /* kernel.c: the form of a vector type, as flavour.def has it */
void helpers_scalar(struct helpers *h);            /* scalars.c */
void helpers_vector(struct helpers *h, int lanes); /* vectors.c; those of half as many lanes were added before */

#endif
