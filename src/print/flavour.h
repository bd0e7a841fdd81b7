/* The words of a flavour (flavour.def), and forms: texts in which $X stands for the text of token X. */
#ifndef SOL_FLAVOUR_H
#define SOL_FLAVOUR_H

#include "print/kernel.h"

struct flavour {
    const char *name, *header, *entry, *parameter, *inner, *operand, *work, *bytes, *scratch, *vector;
    const char *unary, *unary_f, *binary, *binary_f, *infinity, *nan;
    const char *inlined, *called, *helper, *function, *table, *constant, *restricted, *memset, *item, *group, *shared,
        *barrier, *call, *global, *assume, *neighbour;
};
const struct flavour *flavour_of(const struct target *t);
const char *flavour_word(const struct flavour *f, const char *mark); /* NULL: not a word of flavours, but a name */

struct token {
    char name;
    const char *text;
};
const char *form_fill(struct arena *a, const char *form, int n, const struct token *tokens);

#endif
