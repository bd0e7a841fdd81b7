/* Loops: what a layer (or a cluster of layers) computes, as statements over index variables. See docs/notation.md.
 *
 *   Conv  y[N G*#C+C P] = sum[I K] x[N G*#I+I s*P+d*K-p]:0 * w[G*#C+C I K]
 *
 * A *row* is symbolic: an index variable may stand for a group of dimensions. *Binding* it to shapes and attributes
 * gives `struct loops`: each index variable is one loop with a known size, attributes and sizes are numbers, index
 * variables of size 1 are gone. The same structure describes one layer and a fused cluster of many, and is all that the
 * interpreter, the planner, the printers and the solvers look at. Expressions are nodes in one array, children by
 * number, 0 is "none".
 *
 * Nodes never change once made: a rewrite is a copy (rewrite.c), and two parents may share a node, except for `next`
 * lists. A `struct loops *` is loops that are being made: the functions below append to it. Finished loops are `const`,
 * and whoever wants them otherwise makes new ones. */
#ifndef SOL_LOOPS_H
#define SOL_LOOPS_H

#include "base/base.h"

#pragma GCC diagnostic warning "-Wcast-qual" /* whoever sees loops casts no const away */

#define LOOPS_MAX_IVARS 64 /* a set of index variables is a bit mask */

enum ex_kind {
    EX_NONE,
    EX_INT,  /* u.i */
    EX_REAL, /* u.r */
    EX_IVAR, /* index variable: its value while looping */
    EX_NEG,  /* a */
    EX_ADD,  /* a, b; likewise up to EX_MOD */
    EX_SUB,
    EX_MUL,
    EX_DIV,   /* true division */
    EX_FLOOR, /* // rounds down; integers only */
    EX_MOD,   /* % has the sign of the divisor; integers only */
    EX_READ,  /* tensor; a: first index, a list of as many as the tensor has dimensions; b: value outside, 0: never
                 outside */
    EX_CALL,  /* op: row of math.def; a: first argument, a list */
    EX_TEST,  /* [a]: 1 if the condition a holds, else 0 */
    EX_CMP,   /* op: enum ex_cmp; a, b */
    EX_AND,   /* a: first of a list; evaluated in order, stops at the first that fails */
    EX_OR,
    EX_RED, /* op: row of reduce.def; u.bound: index variables bound; a: guard or 0; b: body */
    /* symbolic rows only, gone after binding: */
    EX_SIZE, /* #L */
    EX_ATTR, /* tensor: number of the attribute */
    EX_LIN,  /* lin(#L, e): a group folded to a position */
    EX_DIG   /* dig(e, #L): a position unfolded to a group */
};
enum ex_cmp { CMP_LT, CMP_LE, CMP_EQ, CMP_NE, CMP_GE, CMP_GT };

struct ex {
    uint8_t kind, op;
    uint16_t tensor; /* or index variable */
    int32_t a, b;
    int32_t next; /* next of a list: indices, arguments, parts of a conjunction */
    union {
        int64_t i;
        double r;
        uint64_t bound;
    } u;
};

struct loops_ivar {
    char name[12]; /* "P1": prints as is; unique within the loops */
    int64_t size;
};
enum loops_role { LOOPS_INPUT, LOOPS_OUTPUT, LOOPS_TEMP, LOOPS_TABLE };
struct loops_tensor {
    const char *name; /* unique within the loops; a valid C identifier */
    uint8_t role, dtype, ndim;
    int64_t shape[SOL_MAX_DIMS];
    const void *table;          /* TABLE: its values, row-major, of `dtype` (SOL_I64 or SOL_F64) */
    const char *ivar, *formula; /* TABLE: its values as an expression of the index, for people; NULL: not known */
    void *user;                 /* the planner's: the graph tensor behind it */
};
struct loops_stmt {
    uint8_t nout;
    uint16_t out[3];
    int32_t index; /* list; what is written: index variables or affine; the statement loops over the index variables in
                      it */
    int32_t value;
    int8_t scan_step; /* 0: no scan; otherwise consecutive statements with the same scan index variable form one scan */
    uint8_t scan_ivar;
    const char *label; /* for comments: the layer's name; may be NULL */
};
#define LOOPS_ROWS(type) \
    struct {             \
        const type *at;  \
        int n;           \
    }
struct loops {
    struct arena *arena;
    const char *name;
    LOOPS_ROWS(struct ex) ex; /* ex.at[0] is "none" */
    LOOPS_ROWS(struct loops_ivar) ivars;
    LOOPS_ROWS(struct loops_tensor) tensors;
    LOOPS_ROWS(struct loops_stmt) stmts; /* in order of need */
    struct loops_memory *memory;         /* of these rows; only loops.c writes there */
};

/* -- loops.c: making */
struct loops *loops_create(struct arena *a, const char *name);
/* Copies share the nodes of the original. loops_copy_with: with these statements, which are over the same nodes. */
struct loops *loops_copy(struct arena *a, const struct loops *loops);
struct loops *loops_copy_with(struct arena *a, const struct loops *loops, int n, const struct loops_stmt *stmts);
int loops_ivar(struct loops *loops, const char *name,
               int64_t size); /* a fresh index variable; the name gets a number if taken */
int loops_tensor(struct loops *loops, const char *name, enum loops_role role, enum sol_dtype t, int ndim,
                 const int64_t *shape);
int loops_table(struct loops *loops, const char *name, enum sol_dtype t, int ndim, const int64_t *shape,
                const void *values);
int loops_tensor_like(struct loops *loops, const struct loops_tensor *t); /* all of t, but the name is made unique */
void loops_stmt(struct loops *loops, struct loops_stmt s);
/* While loops are being made: other values for a tensor, a statement, all statements, an index variable's size.
 * loops_drop_letters: index variables from number n on are gone, nothing may use them. */
void loops_set_tensor(struct loops *loops, int i, struct loops_tensor t);
void loops_set_role(struct loops *loops, int tensor, enum loops_role role);
void loops_set_user(struct loops *loops, int tensor, void *user);
void loops_set_stmt(struct loops *loops, int i, struct loops_stmt s);
void loops_drop_stmt(struct loops *loops, int i);
void loops_set_stmts(struct loops *loops, int n, const struct loops_stmt *s);
void loops_set_size(struct loops *loops, int ivar, int64_t size);
void loops_drop_ivars(struct loops *loops, int n);
int32_t ex_put(struct loops *loops, struct ex e); /* a node as it is: for what the functions below do not make */
int32_t ex_int(struct loops *loops, int64_t v);
int32_t ex_real(struct loops *loops, double v);
int32_t ex_ivar(struct loops *loops, int ivar);
int32_t ex_binary(struct loops *loops, enum ex_kind kind, int32_t a,
                  int32_t b); /* folds constants, keeps affine sums short */
int32_t ex_read(struct loops *loops, int tensor, int32_t first_index, int32_t outside);
int32_t ex_call(struct loops *loops, int math_row, int n, const int32_t *args);
int32_t ex_cmp(struct loops *loops, enum ex_cmp op, int32_t a, int32_t b);
int32_t ex_test(struct loops *loops, int32_t cond);
int32_t ex_neg(struct loops *loops, int32_t a);
/* EX_AND or EX_OR of conditions, flattened, constants dropped. A condition that always or never holds is EX_INT 1 or 0;
 * guards that always hold are 0 (none). */
int32_t ex_logic(struct loops *loops, enum ex_kind kind, int n, const int32_t *conds);
/* The expression of a composite row of math.def, over primitives, with the arguments of the EX_CALL `node` put in (the
 * argument nodes are shared, so a printer that keeps a temporary for each node computes them once). A call of a
 * primitive comes back as it is. */
int32_t ex_expand(struct loops *loops, int32_t node);
/* The derivative of the EX_CALL `node` by its argument number `arg`, from math.def; 0: the row has none. `result` is an
 * expression of the call's value (a read of where it was stored, or the call again). */
int32_t ex_derivative(struct loops *loops, int32_t node, int32_t result, int arg);
int32_t ex_list(struct loops *loops, int n,
                const int32_t *nodes); /* copies the nodes and chains them; returns the first */
int32_t ex_red(struct loops *loops, int reduce_row, uint64_t bound, int32_t guard, int32_t body);

/* -- loops.c: asking */
struct affine { /* c + sum of coef[i] * index variable[i]; coefficients are never 0, index variables ascend */
    int n;
    uint8_t ivar[8];
    int64_t coef[8];
    int64_t c;
};
bool ex_affine(const struct loops *loops, int32_t node, struct affine *out);
int32_t ex_from_affine(struct loops *loops, const struct affine *f);
uint64_t ex_ivars(const struct loops *loops, int32_t node);                 /* free index variables below */
uint64_t stmt_ivars(const struct loops *loops, const struct loops_stmt *s); /* the index variables of what it writes */
int64_t ivars_points(const struct loops *loops, uint64_t ivars); /* product of the sizes; INT64_MAX if that is more */
bool ex_reads_data(const struct loops *loops, int32_t node);     /* a tensor that is no TABLE is read below */
bool ex_range(const struct loops *loops, int32_t node, int64_t *out_min,
              int64_t *out_max); /* of an integer expression */
bool ex_is_int(const struct loops *loops, int32_t node);
bool ex_is_unsigned(const struct loops *loops, int32_t node); /* an integer that, as in C, has no sign: u64 is in it */
int ex_list_length(const struct loops *loops, int32_t first);
int32_t ex_nth(const struct loops *loops, int32_t first, int n); /* of a list, from 0 */
bool ex_is_zero(const struct loops *loops, int32_t node);        /* the number 0 */
/* A contraction is a sum over the product of two reads of which none is of a table: sum[K] a[..] * b[..]. Is the node
 * one? It may have a guard, with which no solver of src/dnn computes it. */
bool ex_is_contraction(const struct loops *loops, int32_t node);
int64_t loops_elements(const struct loops_tensor *t); /* product of its sizes */
static inline uint64_t bit(int ivar)                  /* the set of one index variable */
{
    return UINT64_C(1) << ivar;
}
bool ex_equal(const struct loops *loops, int32_t a, int32_t b); /* same expression, by structure */
/* Calls visit(user, node) for every node below and including `node`, parents first; shared nodes once for each parent.
 */
void ex_walk(const struct loops *loops, int32_t node, void (*visit)(void *user, int32_t node), void *user);

/* -- rewrite.c: copies of expressions and loops with changes; everything folds while it is copied. */

/* What a read of `from` becomes; 0: a plain copy. `index` are the rewritten indices (nodes of `to`), `outside`
 * likewise. */
typedef int32_t (*rewrite_read)(void *user, struct loops *to, const struct ex *read, const int32_t *index, int nindex,
                                int32_t outside);
struct rewrite {
    struct loops *to;
    const struct loops *from;
    const int32_t *ivar; /* by index variable of `from`: expression of `to` */
    const int *tensor;   /* by tensor of `from`: tensor of `to`, -1: dealt with by `read`; NULL: the same */
    rewrite_read read;   /* may be NULL */
    void *user;
    int32_t *done; /* by node of `from`: what it became, so that shared nodes stay shared; NULL: each use is a copy */
};
int32_t rewrite_ex(const struct rewrite *r, int32_t node);
int32_t rewrite_list(const struct rewrite *r, int32_t first);
/* Copies an expression of `from` into `to` with index variables replaced by expressions of `to` (letter_map[index
 * variable], 0: error) and tensors renumbered (tensor_map NULL: the same numbers). Index variables bound inside are
 * mapped too: to plain index variables (or to a constant where the size is 1). maxat and minat, whose positions count
 * by index variable number, get index variables of their own where the map changes that order. Folds while copying. */
int32_t ex_copy(struct loops *to, const struct loops *from, int32_t node, const int32_t *ivar_map,
                const int *tensor_map);
/* The expression with what `change` makes of each node below, children first; what it returns as it is, and has only
 * such children, stays the same node. */
typedef int32_t (*ex_change)(void *user, struct loops *loops, int32_t node);
int32_t ex_map(struct loops *loops, int32_t node, ex_change change, void *user);
/* The expression with every part that equals `old` replaced. */
int32_t ex_replace(struct loops *loops, int32_t node, int32_t old, int32_t with);
/* Copies index variables (identity map into `ivar`) and statements of `from`. */
void rewrite_ivars(struct loops *to, const struct loops *from, int32_t *ivar);
void rewrite_stmts(const struct rewrite *r);
/* Copies tensor i of `from` into `to`, or finds it there by its graph tensor. */
int rewrite_tensor(struct loops *to, const struct loops *from, int i);
/* Splits index variables that occur as L//a and L%a into digits, so that their indices become affine. */
const struct loops *rewrite_split_ivars(const struct loops *loops);
/* n statements as loops of their own, without tensors and index variables that nothing uses. Several parts of the same
 * loops are made in time that goes by their own size. */
struct rewrite_part {
    const struct loops *l;
    int *map, *seen; /* by tensor of l: tensor of the part, -1: none; numbers of tensors that were seen */
};
struct rewrite_part rewrite_parts(const struct loops *loops);
struct loops *rewrite_part(const struct rewrite_part *all, int first, int n);
/* All statements as one part. */
struct loops *rewrite_sweep(const struct loops *loops);
bool rewrite_has_reduction(const struct loops *loops, int32_t node);
bool rewrite_reads(const struct loops *loops, int32_t node, int tensor);

/* -- order.c: brings statements into order of need, and marks scans. */
sol_status loops_order(struct sol_ctx *ctx, struct loops *loops);

/* -- mixed_radix.c: index variables that occur as L//a and L%a. digits_find walks expressions of `l`; then digits_cuts
 * is how many places an index variable is to be cut at (0: it stays), and digits_letters makes its digits, index
 * variables of `to` (which may be `l` itself), and returns the sum that stands for it. */
#define RADIX_MAX_CUTS 8
struct mixed_radix {
    const struct loops *l;
    uint64_t bad;                                /* index variables that are not to be cut */
    int64_t by[LOOPS_MAX_IVARS][RADIX_MAX_CUTS]; /* divisors met for each index variable, ascending */
    int n[LOOPS_MAX_IVARS];
};
void radix_find(struct mixed_radix *d, int32_t node);
int radix_cuts(const struct mixed_radix *d, int ivar);
int32_t radix_ivars(const struct mixed_radix *d, int ivar, struct loops *to);

/* -- print.c: one statement a line, as the notation; for people, tests and hashes */
void loops_print(const struct loops *loops, struct text *out);
void stmt_print(const struct loops *loops, const struct loops_stmt *s, struct text *out); /* without an end of line */
void ex_print(const struct loops *loops, int32_t node, struct text *out);
/* A row that binds to these loops. purpose: of the dimensions of each tensor, 0: none, which give their index
 * variables. */
void loops_print_row(const struct loops *loops, char (*purpose)[SOL_MAX_DIMS], struct text *out);

/* -- verify.c: are these loops what this page promises? Index variables bound, indices as many as dimensions and inside
 * of them, tensors written before they are read. False: *out_why says what is not, with what was expected; its arena is
 * used. */
bool loops_verify(const struct loops *loops, struct text *out_why);

/* -- opdef.c: operator definitions: parsing and binding.
 *
 * A row's text is `head | sizes | tables | body`. In the head an index variable with `..` behind it is a group;
 * `x?[..]` is an input that may be missing (reads of it then take the value outside, which must be given). Types stand
 * in the head: `x[A] i:int[A] -> y:x[A] k:i64[A] m:bool[A] z:=dtype[A]`: on inputs `int`, `float`, `bool`, `any`
 * restrict (default any); on outputs `x` is the type of input x, a type's name is that type, `=a` the type that
 * attribute a names; default: the type of the first input. Statements in between (temps) have the type of the first
 * input, unless declared in the head behind a second arrow. Ranks of groups that do not follow from the shapes are
 * given by `A=expr` among the sizes. */
struct opdef;
struct opdef_attr {
    const char *name;
    enum { ATTR_INT, ATTR_REAL, ATTR_TEXT } kind;
    int n; /* -1: one value */
    int64_t *ints;
    double *reals;
    const char *text;
};
struct attrs {
    int n;
    struct opdef_attr *at;
};
const struct opdef_attr *attrs_find(const struct attrs *a, const char *name);
int64_t attrs_int(const struct attrs *a, const char *name, int i,
                  int64_t otherwise); /* element i of a list, or the value */
double attrs_real(const struct attrs *a, const char *name, double otherwise);
const char *attrs_text(const struct attrs *a, const char *name, const char *otherwise);

sol_status opdef_parse(struct arena *a, const char *name, const char *text, struct opdef **out_row);
struct opdef_input {
    enum sol_dtype dtype;
    int ndim;
    const int64_t *shape;
    bool missing;
};
/* Binds a row. Errors name the row, the tensor, the index variable, the sizes that disagree. Inputs that are missing
 * get no tensor; the loops' tensors begin with the given inputs in order, then the outputs in order, then temps and
 * tables. */
sol_status opdef_bind(struct arena *a, const struct opdef *r, int nin, const struct opdef_input *in,
                      const struct attrs *attrs, const struct loops **out_loops);
/* The purpose that the row's head gives dimension `dim` of its i-th input (or output): 'N', 'C', 'P', by the index
 * variable: C G I O are channels, P Q K pixels, others none. 0 if the row has none for it. */
char opdef_purpose(const struct opdef *r, bool output, int tensor, int dim, int ndim);

/* -- interp.c: the oracle. data[i] belongs to tensor i of the loops, row-major, of its type; TEMPs and TABLEs are the
 * interpreter's own. Computes in double (floats) and int64, rounds when a tensor is written. Reals become integers as
 * x86 converts: towards zero; NaN and what is out of range is INT64_MIN (i64, u64, u32) or INT32_MIN, of which narrower
 * types keep the low bits. An index outside without a value is SOL_ERR_RUN. */
sol_status loops_interpret(struct sol_ctx *ctx, const struct loops *loops, void *const *data);

/* -- math.c, reduce.c: tables made of math.def and reduce.def */
struct math_def {
    const char *name;
    int arity;
    const char *params; /* "x", "x y", "x y z": the names used in `expr`, `derivative` */
    const char *expr;   /* in notation, of other rows; NULL: a primitive */
    const char *type;   /* result: "x", "y" as that argument, "bool" (0 or 1), "float" (integers become f32) */
    /* Templates of a primitive's C text, NULL for composites: %1 %2 %3 are the arguments; they may appear more than
     * once, so they must be names, constants or loads. %f is "f" for float and "" for double. */
    const char *c_scalar; /* float and double; NULL: integers only */
    /* The same on GNU vectors, element by element if NULL: %V is the vector type's name ("f32x16"), %I the integer
     * vector type of the same width. Helpers `sol_NAME_%V` (select, bool, floor, exp, ...) stand in print/prelude.c;
     * sol_select_%V takes a mask of type %I, sol_bool_%V makes 1.0 and 0.0 of one. */
    const char *c_vector;
    const char *c_int;      /* on int64_t, or on uint64_t; %S is "i64" or "u64"; NULL: floats only */
    const char *derivative; /* one for each argument, separated by ';'; may name the result r; NULL: none */
    const char *doc;
};
int math_row(const char *name); /* -1: no such row */
const struct math_def *math_at(int row);
int math_rows(void);
double math_eval(int row, const double *args); /* the oracle's value of a primitive or composite, in double */
int64_t math_eval_int(int row, const int64_t *args);
uint64_t math_eval_unsigned(int row, const uint64_t *args); /* where an argument is u64; of rows that have c_int */
double math_eval_rand(int64_t seed, int64_t position); /* the row `rand`, whose arguments need all of their 64 bits */

/* The row's number in reduce.def. */
enum reduce_kind {
    RED_SUM,
    RED_PROD,
    RED_MAX,
    RED_MIN,
    RED_MAXAT,
    RED_MINAT,
    RED_MOMENTS,
    RED_SOFTSUM,
    RED_ANY,
    RED_ALL
};
/* Templates of C text: %s0 %s1 %s2 are the states of one accumulator, %r0.. those of another one that came after it, %x
 * the new value (a name), %i its position (bound index variables row-major, by ascending number), %f the suffix of the
 * type. %L and %H are the lowest and the highest value of the type (-inf, inf for floats). */
struct reduce_def {
    const char *name;
    int nout;
    int nstate;
    const char *type;         /* of each state, by index variable: 'x' the accumulator type, 'i' int64_t */
    const char *init;         /* of each state, separated by ';' */
    const char *step, *merge; /* statements */
    const char *finish;       /* value of each output, separated by ';' */
    bool empty;               /* is a reduction over nothing a value (0 for sum), or an error (max)? */
    const char *doc;
};
int reduce_row(const char *name);
const struct reduce_def *reduce_at(int row);
#endif
