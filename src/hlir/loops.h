/* Loops: what a layer (or a cluster of layers) computes, as statements over index variables. See docs/notation.md.
 *
 *   Conv  y[N G*#C+C P] = sum[I K] x[N G*#I+I s*P+d*K-p]:0 * w[G*#C+C I K]
 *
 * An *operator definition* is symbolic: an index variable may stand for a group of dimensions. *Binding* it to shapes
 * and attributes gives `struct loops`: each index variable is one loop with a known size, attributes and sizes are
 * numbers, and index variables of size 1 are gone. The same structure describes one layer or a fused cluster of many.
 * The interpreter, the planner, the printers and the solvers see nothing else. Expressions are nodes in one array,
 * children are node numbers, and 0 means "none".
 *
 * Nodes never change: a rewrite is a copy (rewrite.c). Parents may share a node unless it is in a `next` list. A
 * `struct loops *` is still being built: the functions below append to it. Finished loops are `const`; a change means
 * making new ones. */
#ifndef SOL_LOOPS_H
#define SOL_LOOPS_H

#include "base/size.h"

#pragma GCC diagnostic warning "-Wcast-qual" /* code that sees loops must not cast const away */

#define LOOPS_MAX_IVARS 64 /* a set of index variables is a bit mask */

enum ex_kind {
    EX_NONE,
    EX_INT,  /* u.i */
    EX_REAL, /* u.r */
    EX_IVAR, /* an index variable's value */
    EX_NEG,  /* a */
    EX_ADD,  /* a, b; also for all kinds up to EX_MOD */
    EX_SUB,
    EX_MUL,
    EX_DIV,   /* true division */
    EX_FLOOR, /* //, rounds down; integers only */
    EX_MOD,   /* %, has the sign of the divisor; integers only */
    /* tensor; a: first index, a list with as many items as the tensor has dimensions; b: value outside, 0: it is always
     * inside */
    EX_READ,
    EX_CALL, /* op: row of math.def; a: first argument, a list */
    EX_TEST, /* [a]: 1 if condition a holds, else 0 */
    EX_CMP,  /* op: enum ex_cmp; a, b */
    EX_AND,  /* a: first of a list, evaluated in order up to the first that fails */
    EX_OR,
    EX_RED, /* op: row of reduce.def; u.bound: index variables it binds; a: guard or 0; b: body */
    /* in operator definitions only, gone after binding: */
    EX_SIZE, /* #L */
    EX_ATTR, /* tensor: number of the attribute */
    EX_LIN,  /* lin(#L, e): the position of a group's indices */
    EX_DIG   /* dig(e, #L): a group's indices at a position */
};
enum ex_cmp { CMP_LT, CMP_LE, CMP_EQ, CMP_NE, CMP_GE, CMP_GT };

struct ex {
    uint8_t kind, op;
    uint16_t tensor; /* or the index variable */
    int32_t a, b;
    int32_t next; /* next item of a list: indices, arguments, parts of a conjunction */
    union {
        int64_t i;
        double r;
        uint64_t bound;
    } u;
};

/* Sizes, integer constants, and the coefficients and constants of affine forms may be sizes that vary (base/size.h). */
struct loops_ivar {
    char name[12]; /* "P1": prints like this; unique within the loops */
    int64_t size;
};
enum loops_role { LOOPS_INPUT, LOOPS_OUTPUT, LOOPS_TEMP, LOOPS_TABLE };
struct loops_tensor {
    const char *name; /* a valid C identifier, unique within the loops */
    uint8_t role, dtype, ndim;
    int64_t shape[SOL_MAX_DIMS];
    const void *table;          /* TABLE: its values, row-major, of type `dtype` (SOL_I64 or SOL_F64) */
    const char *ivar, *formula; /* TABLE: its values as an expression of the index, for people; NULL: unknown */
    void *user;                 /* for the planner: the graph tensor */
};
struct loops_stmt {
    uint8_t nout;
    uint16_t out[3];
    /* list: the indices that are written, index variables or affine; the statement loops over the index variables in
     * it */
    int32_t index;
    int32_t value;
    int8_t scan_step; /* 0: no scan; otherwise consecutive statements with the same scan index variable form a scan */
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
    LOOPS_ROWS(struct loops_stmt) stmts; /* each after those that it depends on */
    /* Of loops that opdef_bind just made: sizes that must not be negative, which is not proven. Copies have none. */
    LOOPS_ROWS(int64_t) needs;
    struct loops_memory *memory; /* the same arrays, writable in loops.c only */
};

/* -- loops.c: making */
struct loops *loops_create(struct arena *a, const char *name);
/* A copy shares the nodes of the original. loops_copy_with: a copy with these statements over the same nodes. */
struct loops *loops_copy(struct arena *a, const struct loops *loops);
struct loops *loops_copy_with(struct arena *a, const struct loops *loops, int n, const struct loops_stmt *stmts);
/* A copy that shares no memory with the original, but for labels and the values of tables: what it has is as large as
 * it is, without nodes that no statement needs. */
struct loops *loops_compact(struct arena *a, const struct loops *loops);
/* The same nodes with numbers in place of the dimensions that vary; nothing is folded. */
struct loops *loops_at(struct arena *a, const struct loops *loops, const int64_t *dim);
int loops_ivar(struct loops *loops, const char *name,
               int64_t size); /* adds an index variable; its name gets a number if it is taken */
int loops_tensor(struct loops *loops, const char *name, enum loops_role role, enum sol_dtype t, int ndim,
                 const int64_t *shape);
int loops_table(struct loops *loops, const char *name, enum sol_dtype t, int ndim, const int64_t *shape,
                const void *values);
int loops_tensor_like(struct loops *loops, const struct loops_tensor *t); /* a copy of t with a unique name */
void loops_stmt(struct loops *loops, struct loops_stmt s);
void loops_need(struct loops *loops, int64_t size); /* a size that must not be negative */
/* These change loops that are being built: a tensor, a statement, all statements, the size of an index variable.
 * loops_drop_ivars removes index variables from number n on, which must be unused. */
void loops_set_tensor(struct loops *loops, int i, struct loops_tensor t);
void loops_set_role(struct loops *loops, int tensor, enum loops_role role);
void loops_set_user(struct loops *loops, int tensor, void *user);
void loops_set_stmt(struct loops *loops, int i, struct loops_stmt s);
void loops_drop_stmt(struct loops *loops, int i);
void loops_set_stmts(struct loops *loops, int n, const struct loops_stmt *s);
void loops_set_size(struct loops *loops, int ivar, int64_t size);
void loops_drop_ivars(struct loops *loops, int n);
int32_t ex_put(struct loops *loops, struct ex e); /* appends a node unchanged: for kinds without a constructor below */
int32_t ex_int(struct loops *loops, int64_t v);
int32_t ex_real(struct loops *loops, double v);
int32_t ex_ivar(struct loops *loops, int ivar);
int32_t ex_binary(struct loops *loops, enum ex_kind kind, int32_t a,
                  int32_t b); /* folds constants, keeps affine sums in linear form */
int32_t ex_read(struct loops *loops, int tensor, int32_t first_index, int32_t outside);
int32_t ex_call(struct loops *loops, int math_row, int n, const int32_t *args);
int32_t ex_cmp(struct loops *loops, enum ex_cmp op, int32_t a, int32_t b);
int32_t ex_test(struct loops *loops, int32_t cond);
int32_t ex_neg(struct loops *loops, int32_t a);
/* EX_AND or EX_OR of conditions, flattened, without constants. A condition that always or never holds becomes EX_INT 1
 * or 0. A guard that always holds is 0 (none). */
int32_t ex_logic(struct loops *loops, enum ex_kind kind, int n, const int32_t *conds);
/* Expands a composite function of math.def to primitives, with the arguments of the EX_CALL `node`. Argument nodes are
 * shared, so a printer that keeps a temporary per node computes them once. A call of a primitive is returned
 * unchanged. */
int32_t ex_expand(struct loops *loops, int32_t node);
/* The derivative of the EX_CALL `node` by its argument number `arg`, from math.def; 0: there is none. `result` is an
 * expression of the call's value (a read of where it is stored, or the call again). */
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
uint64_t ex_ivars(const struct loops *loops, int32_t node); /* free index variables below a node */
/* the index variables of the written element */
uint64_t stmt_ivars(const struct loops *loops, const struct loops_stmt *s);
/* The product of the sizes; INT64_MAX on overflow. Of sizes that vary it takes the hints: for costs only. */
int64_t ivars_points(const struct loops *loops, uint64_t ivars);
int64_t ivars_size(const struct loops *loops, uint64_t ivars); /* the product as a size */
uint32_t loops_dims(const struct loops *loops); /* a set of the dimensions that its sizes and numbers depend on */
bool loops_vary(const struct loops *loops);     /* does any size of them vary? */
bool ex_varies(const struct loops *loops, int32_t node);     /* is there a size in it that varies? */
bool ex_reads_data(const struct loops *loops, int32_t node); /* does it read a tensor that is not a TABLE? */
/* The range of an integer expression in numbers, whatever the sizes that vary are. ex_bounds gives the same as sizes,
 * which are tighter: compare them with size_le and size_lt. */
bool ex_range(const struct loops *loops, int32_t node, int64_t *out_min, int64_t *out_max);
bool ex_bounds(const struct loops *loops, int32_t node, int64_t *out_min, int64_t *out_max);
bool ex_is_int(const struct loops *loops, int32_t node);
bool ex_is_unsigned(const struct loops *loops, int32_t node); /* integers are unsigned if, as in C, a u64 takes part */
int ex_list_length(const struct loops *loops, int32_t first);
int32_t ex_nth(const struct loops *loops, int32_t first, int n); /* item n of a list, from 0 */
bool ex_is_zero(const struct loops *loops, int32_t node);        /* is it the number 0? */
/* Is the node a contraction: a sum over the product of two reads, neither of a table: sum[K] a[..] * b[..]? It may have
 * a guard, which the solvers of src/dnn do not support. */
bool ex_is_contraction(const struct loops *loops, int32_t node);
int64_t loops_elements(const struct loops_tensor *t); /* product of its sizes */
static inline uint64_t bit(int ivar)                  /* the set of one index variable */
{
    return UINT64_C(1) << ivar;
}
bool ex_equal(const struct loops *loops, int32_t a, int32_t b); /* are both the same expression, by structure? */
/* Calls visit(user, node) for `node` and every node below it, parents first. Shared nodes are visited once for each
 * parent. */
void ex_walk(const struct loops *loops, int32_t node, void (*visit)(void *user, int32_t node), void *user);
/* Visits the reads and the reductions of a value that is computed `times` times, with how often each of them reads or
 * adds something. Indices and guards are left out. */
void ex_walk_times(const struct loops *loops, int32_t node, double times,
                   void (*visit)(void *user, int32_t node, double times), void *user);
/* Is this true of any node in the expression? */
bool ex_any(const struct loops *loops, int32_t node, bool (*is)(const struct loops *loops, int32_t node));

/* -- rewrite.c: copies of expressions and loops with changes. Copying folds. */

/* Returns what replaces a read of `from`; 0: a plain copy. `index` and `outside` are already rewritten (nodes of
 * `to`). */
typedef int32_t (*rewrite_read)(void *user, struct loops *to, const struct ex *read, const int32_t *index, int nindex,
                                int32_t outside);
struct rewrite {
    struct loops *to;
    const struct loops *from;
    const int32_t *ivar; /* by index variable of `from`: expression of `to` */
    const int *tensor;   /* by tensor of `from`: tensor of `to`, -1: `read` handles it; NULL: the same numbers */
    rewrite_read read;   /* may be NULL */
    void *user;
    int32_t *done; /* by node of `from`: its copy, so that shared nodes stay shared; NULL: each use becomes a copy */
};
int32_t rewrite_ex(const struct rewrite *r, int32_t node);
int32_t rewrite_list(const struct rewrite *r, int32_t first);
/* Copies an expression of `from` into `to`. Expressions of `to` replace index variables (ivar_map[index variable]; 0:
 * error), and tensors get new numbers (tensor_map; NULL: the same). Index variables that reductions bind are mapped,
 * too: to plain index variables, or to a constant if the size is 1. maxat and minat count positions by index variable
 * number, so they get new index variables if the map changes that order. Copying folds. */
int32_t ex_copy(struct loops *to, const struct loops *from, int32_t node, const int32_t *ivar_map,
                const int *tensor_map);
/* The expression after applying `change` to each node below, children first. A node for which `change` returns the node
 * itself, and whose children did not change, stays the same node. */
typedef int32_t (*ex_change)(void *user, struct loops *loops, int32_t node);
int32_t ex_map(struct loops *loops, int32_t node, ex_change change, void *user);
/* The expression with every part that equals `old` replaced. */
int32_t ex_replace(struct loops *loops, int32_t node, int32_t old, int32_t with);
/* Copies index variables (identity map into `ivar`) and statements of `from`. */
void rewrite_ivars(struct loops *to, const struct loops *from, int32_t *ivar);
void rewrite_stmts(const struct rewrite *r);
/* Copies tensor i of `from` into `to`, or finds it there by its graph tensor. */
int rewrite_tensor(struct loops *to, const struct loops *from, int i);
/* Splits index variables that occur as L//a and L%a into mixed-radix digits, so that their indices become affine. */
const struct loops *rewrite_split_ivars(const struct loops *loops);
/* Takes the dimensions off temporaries along which their values are equal: what a statement computed for each element
 * of a tensor that a view repeats is computed once. */
const struct loops *rewrite_narrow(const struct loops *loops);
/* Makes loops of n statements, without unused tensors and index variables. The time for one part depends on its own
 * size only, so splitting loops into many parts is linear. */
struct rewrite_part {
    const struct loops *loops;
    int *map, *seen; /* by tensor of loops: tensor of the part, -1: none; the tensors seen so far */
};
struct rewrite_part rewrite_parts(const struct loops *loops);
struct loops *rewrite_part(const struct rewrite_part *all, int first, int n);
/* All statements as one part. */
struct loops *rewrite_sweep(const struct loops *loops);
bool rewrite_has_reduction(const struct loops *loops, int32_t node);
/* The number of reductions in an expression, those in others too. *out_first: the outermost of the first. */
int rewrite_reductions(const struct loops *loops, int32_t node, int32_t *out_first);
bool rewrite_reads(const struct loops *loops, int32_t node, int tensor);

/* -- order.c: sorts statements by dependence and marks scans */
sol_status loops_order(struct sol_ctx *ctx, struct loops *loops);

/* -- mixed_radix.c: index variables that occur as L//a and L%a. radix_find walks expressions of `loops`. Then
 * radix_cuts gives the number of places to cut an index variable at (0: none). radix_ivars creates its digits, index
 * variables of `to` (which may be `loops` itself), and returns the sum that replaces it. */
#define RADIX_MAX_CUTS 8
struct mixed_radix {
    const struct loops *loops;
    uint64_t bad;                                /* index variables that must not be cut */
    int64_t by[LOOPS_MAX_IVARS][RADIX_MAX_CUTS]; /* by index variable: the divisors found, ascending */
    int n[LOOPS_MAX_IVARS];
};
void radix_find(struct mixed_radix *d, int32_t node);
int radix_cuts(const struct mixed_radix *d, int ivar);
int32_t radix_ivars(const struct mixed_radix *d, int ivar, struct loops *to);

/* -- print.c: one statement a line, in the notation; for people, tests and hashes */
void loops_print(const struct loops *loops, struct text *out);
void stmt_print(const struct loops *loops, const struct loops_stmt *s, struct text *out); /* without a newline */
void ex_print(const struct loops *loops, int32_t node, struct text *out);
/* An operator definition that binds to these loops. purpose: by tensor, of its dimensions, 0: none; they choose the
 * names of index variables. */
void loops_print_row(const struct loops *loops, char (*purpose)[SOL_MAX_DIMS], struct text *out);

/* -- verify.c: do these loops keep the promises of this header? Index variables are bound, there is an index for each
 * dimension and it is inside, tensors are written before they are read. False: *out_why says what is wrong and what was
 * expected; its arena is used. */
bool loops_verify(const struct loops *loops, struct text *out_why);

/* -- opdef.c: parsing and binding operator definitions.
 *
 * Their text is `head | sizes | tables | body`. In the head, `..` after an index variable marks a group. `x?[..]` is an
 * input that may be missing; reads of it must give a value for outside, which they return then. The head also has the
 * types: `x[A] i:int[A] -> y:x[A] k:i64[A] m:bool[A] z:=dtype[A]`. For inputs, `int`, `float`, `bool` and `any` (the
 * default) are restrictions. For outputs, `x` means the type of input x, a type's name that type, and `=a` the type
 * that attribute a names; the default is the type of the first input. Tensors in between (temporaries) have the type of
 * the first input unless the head declares them after a second arrow. Ranks of groups that do not follow from the
 * shapes are given as `A=expr` among the sizes. */
struct opdef;
struct opdef_attr {
    const char *name;
    enum { ATTR_INT, ATTR_REAL, ATTR_TEXT } kind;
    int n; /* -1: a single value */
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
                  int64_t otherwise); /* item i of a list, or the single value */
double attrs_real(const struct attrs *a, const char *name, double otherwise);
const char *attrs_text(const struct attrs *a, const char *name, const char *otherwise);

sol_status opdef_parse(struct arena *a, const char *name, const char *text, struct opdef **out_row);
/* Parses `head | sizes`, which say everything but how to compute. */
sol_status opdef_parse_head(struct arena *a, const char *name, const char *text, struct opdef **out_row);
struct opdef_input {
    enum sol_dtype dtype;
    int ndim;
    const int64_t *shape;
    bool missing;
};
/* Binds an operator definition. Errors name the definition, the tensor, the index variable and the sizes that disagree.
 * Missing inputs get no tensor. The loops' tensors are the present inputs in order, then the outputs in order, then
 * temporaries and tables. */
sol_status opdef_bind(struct arena *a, const struct opdef *r, int nin, const struct opdef_input *in,
                      const struct attrs *attrs, const struct loops **out_loops);
/* What a definition without statements says of an instance. */
struct opdef_measures {
    int nivar, ntemp;
    int64_t *ivar; /* sizes of its index variables, in the order in which they first appear; of a group: the product */
    int64_t *temp; /* bytes of its temporaries */
};
sol_status opdef_measure(struct arena *a, const struct opdef *r, int nin, const struct opdef_input *in,
                         const struct attrs *attrs, struct opdef_measures *out_m);
/* Its inputs (or outputs), by their names there. -1: it has none of this name. */
int opdef_count(const struct opdef *r, bool output);
const char *opdef_name(const struct opdef *r, bool output, int i);
int opdef_number(const struct opdef *r, bool output, const char *name);
/* The purpose that the head gives dimension `dim` of an input (or output): 'N', 'C' or 'P', by its index variable. C G
 * I O are channels, P Q K pixels, others none. 0: it has none. */
char opdef_purpose(const struct opdef *r, bool output, int tensor, int dim, int ndim);

/* -- interp.c: the reference evaluation. data[i] belongs to tensor i of the loops: row-major, of its type; the
 * interpreter allocates TEMPs and TABLEs itself. It computes in double (floats) and int64, and rounds when it writes to
 * a tensor. Reals become integers as on x86: towards zero; NaN and values out of range become INT64_MIN (i64, u64, u32)
 * or INT32_MIN, of which narrower types keep the low bits. An index outside its tensor without a value for it is
 * SOL_ERR_RUN. */
sol_status loops_interpret(struct sol_ctx *ctx, const struct loops *loops, void *const *data);
/* The same where integers (i64) may be sizes that vary, but no shape does. SOL_ERR_UNSUPPORTED: the result is no size;
 * the error says which size is the reason. */
sol_status loops_interpret_sizes(struct sol_ctx *ctx, const struct loops *loops, void *const *data);

/* -- math.c, reduce.c: the tables of math.def and reduce.def */
struct math_def {
    const char *name;
    int arity;
    const char *params; /* "x", "x y", "x y z": the argument names in `expr` and `derivative` */
    const char *expr;   /* in the notation, over other functions; NULL: a primitive */
    const char *type;   /* of the result: "x", "y": that argument's, "bool" (0 or 1), "float" (integers become f32) */
    /* Templates of a primitive's C text, NULL for composites. %1 %2 %3 are the arguments; they may occur more than
     * once, so they must be names, constants or loads. %f is "f" for float and "" for double. Functions and types that
     * a source must declare are marked: "@exp%f(%1)". */
    const char *c_scalar; /* float and double; NULL: integers only */
    /* The same on GNU vectors; NULL: element by element. %V is the name of the vector type ("f32x16"), %I that of the
     * integer vector of the same width. The helpers `sol_NAME_%V` (select, bool, floor, exp, ...) are in
     * print/vectors.c; sol_select_%V takes a mask of type %I, sol_bool_%V turns one into 1.0 and 0.0. */
    const char *c_vector;
    const char *c_int;      /* on int64_t or uint64_t; %S is "i64" or "u64"; NULL: floats only */
    const char *derivative; /* one for each argument, separated by ';'; r is the result; NULL: none */
    const char *doc;
};
int math_row(const char *name); /* -1: there is none */
const struct math_def *math_at(int row);
int math_rows(void);
double math_eval(int row, const double *args); /* the reference value of a primitive or composite, in double */
int64_t math_eval_int(int row, const int64_t *args);
uint64_t math_eval_unsigned(int row, const uint64_t *args); /* if an argument is u64; for rows with c_int */
double math_eval_rand(int64_t seed, int64_t position);      /* the function `rand`, whose arguments need all 64 bits */

/* The number of a row of reduce.def. */
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
/* Templates of C text. %s0 %s1 %s2 are the states of an accumulator, %r0.. those of a later one that is merged into it,
 * `%+0 x;` and `%*0 x;` the statements that add x to state 0, and multiply it by x,
 * %x is the new value (a name), %i its position (row-major over the bound index variables by ascending number), %f the
 * type's suffix, %L and %H the lowest and highest value of the type (-inf, inf for floats). */
struct reduce_def {
    const char *name;
    int nout;
    int nstate;
    const char *type;         /* by state: 'x' the accumulator type, 'i' int64_t */
    const char *init;         /* by state, separated by ';' */
    const char *step, *merge; /* statements */
    const char *finish;       /* the value of each output, separated by ';' */
    bool empty;               /* a reduction over nothing has a value (sum: 0), or is an error (max) */
    const char *doc;
};
int reduce_row(const char *name);
const struct reduce_def *reduce_at(int row);
#endif
