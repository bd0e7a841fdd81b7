/* From a cluster to C: what planner, printers and solvers agree on.
 *
 * A *cluster* is loops (one or many layers' statements: an anchor and its epilogue) and, for every tensor in them that
 * is not a TEMP, where it lies in memory. A solver looks at a cluster and writes one kernel for it: C text, steps, and
 * how it wants operands packed. The plain nest applies to every cluster. */
#ifndef SOL_KERNEL_H
#define SOL_KERNEL_H

#include "hlir/loops.h"

/* The limits of a machine, for reports; rates are those of all cores together. */
struct machine {
    double clock, fma;   /* GHz; vectors that a core multiplies and adds in a cycle */
    double l2, l3, dram; /* GB/s of reading */
    enum machine_source { MACHINE_UNKNOWN, MACHINE_ASSUMED, MACHINE_MEASURED, MACHINE_GIVEN } source;
};
/* The cross toolchain of a device. */
struct toolchain {
    const char *compiler, *package; /* "aarch64-linux-gnu-gcc"; the Debian package that contains it, */
    const char *headers;            /* and that of its C library */
    const char *march;              /* for -march= by default */
    const char *runner;             /* how a command that runs its programs on this machine begins: "qemu-arm -L .. " */
};
enum flavour_id {
#define X(name, ...) FLAVOUR_##name,
#include "print/flavour.def"
#undef X
};
/* A kind of processor: a row of target.c. */
struct device {
    const char *name;              /* "x86", "arm64"; also its folder in the cache */
    enum flavour_id flavour;       /* how its kernels are written; C by default */
    bool features;                 /* deploy/features.def lists the features of its processors */
    struct toolchain hosted, bare; /* with an operating system and without; bare.compiler NULL: the same */
};
const struct device *device_at(int i); /* NULL: i is past the last */
const struct device *device_named(const char *name);
const char *device_names(struct arena *a); /* "x86, arm64, .." */

/* The machine that code is generated for. */
struct target {
    const char *name; /* "x86-64-v3" */
    const struct device *device;
    const char *march; /* for -march=, "native" or NULL */
    int vector_bytes;  /* 16 SSE2 NEON, 32 AVX2, 64 AVX-512 */
    int simd;          /* float32 elements that a core computes in step: of a vector, or of a device's lanes */
    int registers;     /* vector registers: 16 or 32 */
    bool fma;
    bool single;        /* it has no float64: kernels compute in float32, and long sums are compensated (reduce.c) */
    int cores;          /* how many this run may use; it affects costs only, never the generated code */
    int64_t l1, l2, l3; /* bytes */
    int l3_cores;       /* how many cores share an L3 */
    /* Of a graphics card; 0 otherwise. A core's memory for groups is its l1. */
    int core_items;          /* most work items that a core keeps at a time */
    int group_items;         /* and of a group */
    int64_t group_bytes;     /* of memory that a group shares, at most */
    bool blas, dnn;          /* the device has a library for linear algebra, for neural networks, and it may compute */
    int core_mma;            /* as in struct sol_device_info; 0: it has no units for small matrices */
    bool tf32;               /* factors of float32 may be rounded to TF32 */
    double clock, fma_pipes; /* GHz; vectors that a core multiplies and adds in a cycle */
    double l2_rate, l3_rate, dram_rate; /* GB/s of all cores */
    struct machine machine;             /* src/tune/measure.c; the cost model uses only the other fields */
    const struct helpers *helpers;      /* of helpers_make, or NULL before its first call */
    bool starts;                        /* the program starts often, so the work before the first run counts, too */
};
void target_host(struct target *out); /* target.c: this machine, by cpuid */
/* "x86-64-v2|v3|v4", "sse2", "neon", "native" */
sol_status target_named(struct sol_ctx *ctx, const char *name, struct target *out);
/* Assumes caches, rates and cores of a processor or a graphics card (target_is_card). */
void target_assume(struct target *t);
/* The cache that all cores of a graphics card share: each has its part of it as L2, and all of it as L3. */
void target_card_cache(struct target *t, int64_t bytes);
/* Four cores of a usual machine, whatever this one has: plans that are shown or compared do not depend on it. */
void target_usual(struct target *t);
/* The best instruction set of a device according to a compiler's predefined macros: `macros` has lines "#define NAME
 * VALUE". */
void target_of_macros(const struct device *device, const char *macros, struct target *out);
bool target_defines(const char *macros, const char *name);
bool target_runs_on(const struct target *t, const struct target *host);
sol_status target_check(struct sol_ctx *ctx, const struct target *t); /* fails if this machine cannot run its code */
const char *target_flag(const struct target *t); /* the compiler's flag for vectors of this length; NULL: none */
/* The number of elements of `bytes` bytes in a vector. Only this function decides the number of lanes. */
static inline int target_lanes(const struct target *t, int bytes)
{
    return t->vector_bytes > bytes ? t->vector_bytes / bytes : 1;
}

/* Does its flavour have vectors? If not, kernels are scalar, and a lane is a work item of a group, if it has those, or
 * else a round of a loop (flavour.def). */
bool target_has_vectors(const struct target *t);
bool target_has_items(const struct target *t);

/* Do the work items of a group run at the same time, on a graphics card? On a processor they take turns. */
bool target_is_card(const struct target *t);
double target_step_ns(const struct target *t); /* KERNEL_STEP_NS, or that of a launch on a graphics card */

bool target_calls(const struct target *t);     /* has its flavour words for calls of libraries in place of kernels? */
bool target_launches(const struct target *t);  /* does a device launch steps, a work group for each task? */
bool target_has_trees(const struct target *t); /* may kernels consist of calls of other kernels (tree.h)? */

/* The memory layout of a tensor of a cluster; strides are sizes (base/size.h). Element i is at base + 4 * (sum
 * stride[d] * i[d]) for a type of 4 bytes. Row-major has stride[ndim-1] == 1. Strides are in elements and are constants
 * of the generated code. */
struct memory {
    int64_t stride[SOL_MAX_DIMS];
    /* By dimension, the number of elements before and after the tensor's own that exist in memory and are zero. A read
     * with `:0` may access them. The schedule's steps zero them, not the tensor's writer. */
    int32_t halo_low[SOL_MAX_DIMS], halo_high[SOL_MAX_DIMS];
    int32_t align; /* alignment of the base in bytes, at least the element's size */
    bool constant; /* a parameter or a constant, which `prepare` may pack */
};
struct cluster {
    const struct loops *loops;
    struct memory *memory; /* by tensor; unused for TEMPs and TABLEs */
    /* the statement that dominates the work (a contraction or reduction); later statements are the epilogue */
    int anchor;
};

bool cluster_varies(const struct cluster *c); /* does any size or stride of it vary? */

#define KERNEL_MAX_STEPS 6
#define KERNEL_STEP_NS 500.0 /* overhead of a step (barrier, cold code); the cost of every variant includes it */
#define KERNEL_MAX_PACKS 8
struct kernel_pack { /* the kernel wants operand `tensor` in another form */
    int tensor;
    const struct loops
        *loops; /* tensor 0: the operand as it is in the graph; tensor 1 (OUTPUT): the packed one, row-major */
};
/* A number of bytes, a size, rounded up to whole cache lines. */
static inline int64_t kernel_lines(int64_t bytes)
{
    return size_mul(size_ceil_div(bytes, 64), 64);
}
struct tree;
struct kernel {
    char *source;            /* C text of all functions as a template: see kernel.c */
    const struct tree *tree; /* the calls that it consists of (tree.h); NULL: it calls no other kernels */
    int nstep;
    struct {
        int64_t tasks;      /* a size, as all numbers of bytes below */
        const char *suffix; /* for the label: "input transform"; NULL: none */
    } step[KERNEL_MAX_STEPS];
    /* Operands p[0..]: the tensors of the loops that are neither TEMP nor TABLE, in order (packed ones in place of the
     * tensor they were made of), then the work buffers. */
    int npack;
    struct kernel_pack pack[KERNEL_MAX_PACKS];
    int nwork;
    int64_t work_bytes[4];        /* shared by all workers, alive during this kernel's steps */
    int64_t scratch_bytes;        /* per worker: f->scratch + worker * f->scratch_bytes */
    int shared_bytes;             /* of memory that the work items of a group share */
    int items;                    /* work items of a group, where a task is a work group; 0: one */
    double cost;                  /* estimated ns on the target, all cores */
    const char *solver, *variant; /* for reports */
};

enum precision { PRECISION_DEFAULT, PRECISION_FAST, PRECISION_HIGH }; /* of the key with this name */
struct solver_context {
    struct arena *arena;
    struct arena *scratch; /* of what is printed, which whoever asks for a kernel copies; NULL: arena */
    const struct target *target;
    enum precision precision;
    bool saves; /* forward of a training step: rounding errors pass through all layers, forward and back */
    /* ns of a run that correspond to one additional byte of packed weights; INFINITY: packing must not enlarge
     * weights */
    double once;
    bool training;                 /* constants change before every run */
    const struct plugins *plugins; /* other libraries (dnn.h); NULL: none */
    const struct variant *only;    /* `variants` need price no other than the one with these p; NULL: all are wanted */
};
#define SOLVER_MAX_VARIANTS 24
struct variant {
    int p[8];         /* meaning depends on the solver */
    double cost;      /* ns, including once; the planner adds the time to pack constants in training */
    double once;      /* the part of it for work before the first run */
    double moved;     /* bytes that packing constants reads and writes, where a byte written counts twice */
    const char *text; /* "9x3 k512" */
};
struct solver { /* a row of plan/solvers.c */
    const char *name;
    bool reference; /* applies to every cluster, and is tried whatever the key `solver` says */
    bool blocks; /* keeps blocks of a product in registers and caches; without that, every product waits for memory */
    /* calls another library, which the cost model does not know well enough: a policy picks it, or the key forces it */
    bool foreign;
    /* Of the targets that it prints for: vectors, work items, or work items and units for small matrices. */
    enum { FOR_VECTORS, FOR_ITEMS, FOR_MMA, FOR_ANY } lanes;
    bool dynamic;  /* may it compute clusters whose sizes vary? */
    bool whole;    /* computes statements together that the planner would otherwise make units of their own */
    bool all_rows; /* needs more than one row at a time, and is not given up for a band of rows */
    /* Can it compute this cluster? If not, *out_why gets the reason (for reports). */
    bool (*applicable)(const struct solver_context *sc, const struct cluster *c, const char **out_why);
    /* Fills in variants with costs, at most SOLVER_MAX_VARIANTS, cheapest first. Returns their number. */
    int (*variants)(const struct solver_context *sc, const struct cluster *c, struct variant *out);
    /* Fills in everything but `cost`, `solver` and `variant`. */
    sol_status (*emit)(const struct solver_context *sc, const struct cluster *c, const struct variant *v,
                       struct kernel *out);
};
/* names.c: emits the kernel of a variant. Loops that differ only in names give the same text. */
sol_status solver_emit(const struct solver *s, const struct solver_context *sc, const struct cluster *c,
                       const struct variant *v, struct kernel *out);
/* What a kernel of these loops computes, for people: one statement per line, with the names in its text. */
const char *kernel_what(struct arena *a, const struct loops *loops);

/* kernel.c: from templates to C text. In a kernel's template a name of file scope is marked, "@name", where it is
 * declared and wherever it is used: functions, tables and types of the kernel's own, and the helpers below. So are the
 * words that depend on the flavour (flavour.def): @INLINE, @NOINLINE or @FUNCTION begins a function, @TABLE constants,
 * @HELPER a helper; @RESTRICT qualifies a pointer. */
void kernel_open(struct text *out, int step); /* the function of a step, up to its first line */
void kernel_close(struct text *out);          /* its end */
/* Where a task is a work group, writes in front of the kernel's text how many operands it has (work buffers included)
 * and how many work items a group. Who makes a kernel calls it once. */
void kernel_launch(struct arena *a, const struct target *t, int operands, struct kernel *k);
/* Sizes that vary are printed like numbers, by their names. kernel_sizes replaces them by C expressions over s0, s1, ..
 * (size.h), which it declares at the beginning of each step's function, and of other functions that have a parameter
 * `f`, the frame, and begin with kernel_open_sizes. vary: are there any? SOL_ERR_INTERNAL: a number results from
 * arithmetic on names. */
void kernel_open_sizes(struct text *out);
sol_status kernel_sizes(struct arena *a, bool vary, struct kernel *k);
/* With the helpers that it uses; names of the kernel's own are still marked. */
struct source_text kernel_text(struct arena *a, const struct target *t, const char *source);
const char *kernel_source(struct arena *a, const struct source_text *s, const char *symbol); /* a file of its own */
/* Kernel number `number` within another: static functions, whose names and those of all it declares get the number. */
void kernel_member(struct text *out, const struct target *t, int number, const char *source);
const char *kernel_member_step(struct arena *a, int number, int step); /* the marked name of its function */

/* halo.c: sizes, strides and the origin may vary. The kernel that zeroes what lies around a tensor in memory. Operand 0
 * is the tensor. */
struct halo_dim {
    int64_t size, stride; /* elements of the tensor; between two of them */
    int32_t low, high;    /* elements around it */
};
struct halo { /* at least one dimension has one */
    int ndim;
    struct halo_dim dim[SOL_MAX_DIMS]; /* outermost in memory first */
    int64_t origin;                    /* elements from the start of the memory to element 0 of the tensor */
    int bytes;                         /* of an element */
};
sol_status halo_kernel(struct arena *a, const struct target *t, const struct halo *h, struct kernel *out);

/* opaque.c: the kernel of a layer without loops, on devices that launch kernels; its operands are the layer's inputs
 * and outputs, row-major, and work buffers. source NULL: there is none, so the layer runs on the host. */
struct sol_layer;
sol_status opaque_kernel(struct arena *a, const struct target *t, const struct sol_layer *l, struct kernel *out);

/* expr.c: C text of expressions, scalar or on GNU vectors; shared by the plain nest, dfp and dnn (epilogues). */

/* How a read of a tensor prints: returns C text for the value (of the tensor's compute type, p->lanes wide; with
 * p->lane set, of that lane), or NULL for the default, a load from memory at the affine offset. Solvers use it to put
 * registers in place of the anchor's result. */
struct print_expr {
    struct text *out;    /* statements that must come before (temporaries) are put here */
    struct loops *loops; /* the solver's copy: composite functions are expanded in it */
    const struct memory *memory;
    const struct target *target;
    int lanes;       /* 1: scalar; else a GNU vector of that many elements along `vector_ivar` */
    int vector_ivar; /* -1: none */
    bool aligned;    /* the index variable of lane 0 is a multiple of `lanes` */
    const char *(*read)(void *user, struct print_expr *p, int32_t node);
    /* C text of the index of an index variable; NULL: the index variable's name */
    const char *(*ivar)(void *user, int ivar);
    void *user;
    int temps; /* counter for names */
    /* Set while printing: the lane, where an expression is printed lane by lane; values that have a name already. */
    const char *lane;
    const struct print_known *known;
    struct print_state *states; /* of the open loop over a scan's index variable (running.c) */
    /* By index variable, where the solver knows more than the name: a place in an unrolled loop, a range of a split
     * one. May be NULL. */
    const struct print_ivar *ivars;
};
struct print_ivar {
    bool known;
    const char *base;        /* the index variable's value is base + plus; NULL: plus alone */
    int64_t plus, low, high; /* low <= base <= high */
};
/* Helpers that sources may use, each a declaration: vector types `f32x16`, functions on them. All are static inline.
 *
 * Types: f32xL f64xL i8xL u8xL ... i64xL for L = 2, 4, 8, 16 (up to target_lanes(t, 4)). Helpers that templates in
 * math.def may name, with S: f32 f64 i64, V: f32xL f64xL i64xL, I: i32xL for f32xL, i64xL for f64xL and i64xL (a mask
 * is 0 or -1):
 *
 * - all types: sol_splat_V(s), sol_select_V(I mask, V a, V b), sol_bool_V(I mask), sol_max_S, sol_max_V, sol_min_S,
 *   sol_min_V (NaN wins), sol_abs_V, sol_relu_V (keeps NaN)
 * - f32, f64: sol_sqrt_V, sol_floor_V, sol_ceil_V, sol_trunc_V, sol_round_V (half to even), sol_exp_V, sol_weight_V,
 * sol_log_V, sol_tanh_V, sol_erf_V, sol_erfc_V, sol_sigmoid_V, sol_sin_V, sol_cos_V, sol_to_i64_S(x) (truncates;
 * INT64_MIN for NaN and what does not fit)
 * - i64: sol_add_S, sol_sub_S, sol_mul_S, sol_neg_S (wrapping), sol_floordiv_S(a, b, f), sol_mod_S(a, b, f)
 *
 * In a template `%1 %2 %3` are the arguments (names or constants), `%f` is "f" for float and "" for double, `%S` f32,
 * f64 or i64, `%V` the vector type, `%I` its mask type, `%T` the scalar C type. */
const struct helpers *helpers_make(struct arena *a, const struct target *t); /* helpers.c */
void helpers_print(struct text *out, const struct helpers *h);               /* all of them */
struct text solver_text(const struct solver_context *sc);                    /* an empty text for a kernel's source */
/* The C text of an expression in the compute type of `dtype` ("float", "double", "int64_t", ...), p->lanes wide. */
const char *print_value(struct print_expr *p, int32_t node, enum sol_dtype dtype);
const char *print_index(struct print_expr *p, int32_t node);     /* int64_t */
const char *print_condition(struct print_expr *p, int32_t node); /* scalar int; condition.c */
/* Element offset of a read or a written index list, as C text. */
const char *print_offset(struct print_expr *p, int tensor, int32_t first_index);
/* Stores `value` (compute type of the tensor, p->lanes wide) at the index list. */
void print_store(struct print_expr *p, int tensor, int32_t first_index, const char *value);

#endif
