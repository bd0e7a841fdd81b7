/* A parsed row: what rows.c makes of the text and bind.c turns into loops. Private to the two. */
#ifndef SOL_ROW_H
#define SOL_ROW_H

#include "hlir/loops.h"

/* More symbolic kinds, gone after binding. */
enum {
    ROW_LEN = EX_DIG + 1 /* len(a): values of attribute `tensor` */,
    ROW_RANK /* rank(x) */,
    ROW_PROD /* prod(#L) */
};

#define ROW_MAX_LETTERS 64
struct row_letter {
    char name[8];
    bool head, group; /* stands in the head; marked with .. */
    int base;         /* P' has the size and rank of P; a letter without prime is its own base */
};
enum row_role { ROW_TEMP, ROW_IN, ROW_OUT, ROW_TABLE };
struct row_tensor {
    const char *name;
    uint8_t role;
    bool optional, declared, written;
    bool type_attr;   /* `:=a` */
    const char *type; /* NULL: default */
    bool position;    /* the second result of maxat or minat: an integer */
    int ndim;         /* letters; -1: not known yet */
    int dim[SOL_MAX_DIMS];
};
enum row_rule_kind { RULE_SIZE, RULE_RANK, RULE_CHECK };
struct row_rule {
    enum row_rule_kind kind;
    int letter;
    int32_t expr;
    const char *text;
};
struct row {
    struct arena *arena;
    const char *name;
    VECTOR(struct ex)
    ex; /* as in struct loops; LETTER, SIZE, LIN, DIG: `tensor` is the letter; CALL: row of math.def */
    VECTOR(struct row_letter) letters;
    VECTOR(struct row_tensor) tensors;
    VECTOR(const char *) attrs;
    VECTOR(struct row_rule) rules;
    VECTOR(struct loops_stmt) tables, stmts; /* tensors by number of the row's */
    int nin, nout;
};

/* expression.c */
/* An expression over attributes x, y, z: what composites of math.def consist of. */
sol_status row_parse_expression(struct arena *a, const char *name, const char *text, struct row **out_row,
                                int32_t *out_e);
#endif
