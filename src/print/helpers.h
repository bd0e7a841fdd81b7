/* The table of helpers that generated sources may use, for a target. */
#ifndef SOL_HELPERS_H
#define SOL_HELPERS_H

#include "print/flavour.h"
#include "print/print.h"

/* The text declares `name` without a mark. Names of other helpers in it are marked, and were added before; so are the
 * words of the flavour. */
struct helper_row {
    const char *name, *text;
};
struct helper {
    const char *text;
    VECTOR(int) uses; /* helpers, all in front of it */
};
struct helpers {
    struct arena *arena;
    const struct flavour *flavour;
    VECTOR(struct helper) at;
    struct map *by_name; /* number + 1 */
};
int helpers_find(const struct helpers *h, const char *name); /* its number; -1: there is none of this name */
void helpers_add(struct helpers *h, const char *name, const char *text);
void helpers_add_form(struct helpers *h, const char *name, const char *text, int n, const struct token *tokens);

/* With n = round(x / ln 2): e = exp(x - n ln 2), and n in the low bits of `shifted`. */
#define EXP_REDUCED                                                                       \
    "    const @$V shifted = x * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f;\n" \
    "    const @$V r = (x - n * 0.693145752f) - n * 1.42860677e-6f;\n"                    \
    "    @$V q = r * 0.00138131445f + 0.00836941883f;\n"                                  \
    "    q = q * r + 0.0416684568f;\n"                                                    \
    "    q = q * r + 0.166665148f;\n"                                                     \
    "    q = q * r + 0.499999931f;\n"                                                     \
    "    const @$V e = q * (r * r) + r + 1.0f;\n"

void helpers_scalar(struct helpers *h);            /* scalars.c */
void helpers_vector(struct helpers *h, int lanes); /* vectors.c; those of half as many lanes were added before */
/* vectors_wide.c: scalars in double, and the vector functions of float that use them (t as for f32 in vectors.c) */
void helpers_quick(struct helpers *h);
void helpers_wide(struct helpers *h, const struct token *t, int n);
void helpers_tables(struct helpers *h, const struct token *t, int n); /* vectors_tables.c: functions of 16 floats */

#endif
