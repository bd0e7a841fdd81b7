/* A parsed operator definition. opdef.c parses its text, bind.c binds it to loops. Private to these files. */
#ifndef SOL_OPDEF_H
#define SOL_OPDEF_H

#include "hlir/loops.h"

/* More symbolic kinds, gone after binding. */
enum {
    OPDEF_LEN = EX_DIG + 1 /* len(a): values of attribute `tensor` */,
    OPDEF_RANK /* rank(x) */,
    OPDEF_PROD /* prod(#L) */
};

#define OPDEF_MAX_IVARS 64
struct opdef_ivar {
    char name[8];
    bool head, group; /* head: occurs in the head; group: marked with .. */
    int base;         /* P' has the size and rank of P, its base; an index variable without prime is its own base */
};
enum opdef_role { OPDEF_TEMP, OPDEF_IN, OPDEF_OUT, OPDEF_TABLE };
struct opdef_tensor {
    const char *name;
    uint8_t role;
    bool optional, declared, written;
    bool type_attr;   /* `:=a` */
    const char *type; /* NULL: the default */
    bool position;    /* the second result of maxat or minat: an integer */
    int ndim;         /* number of index variables; -1: unknown so far */
    int dim[SOL_MAX_DIMS];
};
enum opdef_rule_kind { RULE_SIZE, RULE_RANK, RULE_CHECK };
struct opdef_rule {
    enum opdef_rule_kind kind;
    int ivar;
    int32_t expr;
    const char *text;
};
struct opdef {
    struct arena *arena;
    const char *name;
    VECTOR(struct ex)
    ex; /* as in struct loops; IVAR, SIZE, LIN, DIG: `tensor` is the index variable; CALL: row of math.def */
    VECTOR(struct opdef_ivar) ivars;
    VECTOR(struct opdef_tensor) tensors;
    VECTOR(const char *) attrs;
    VECTOR(struct opdef_rule) rules;
    VECTOR(struct loops_stmt) tables, stmts; /* tensors by their number in the definition */
    int nin, nout;
};

/* expression.c */
/* An expression over attributes x, y, z: what composites of math.def consist of. */
sol_status opdef_parse_expression(struct arena *a, const char *name, const char *text, struct opdef **out_row,
                                  int32_t *out_e);
#endif
