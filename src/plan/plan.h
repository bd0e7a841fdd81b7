/* The plan decides which layers run as one kernel, how tensors are laid out in memory, and which solver computes each
 * kernel.
 *
 * phases.def lists the phases in their order; each is one file. No phase joins units of different programs. These
 * invariants hold from a phase on, and plan_verify checks them:
 *
 * - units: a unit's loops are well-formed. Its operands are tensors of the graph with their types and shapes. What it
 *   reads was written by units that run earlier, and no element is written twice.
 * - alias: a tensor may be part of another one, its root, and is inside of it. A root is its own root. Before it,
 *   every tensor is its own root.
 * - split_reductions: no later phase adds units that compute the network's own layers.
 * - layout: every tensor has an order, strides, halos and an origin (`allocation.memory`). From here on
 *   `unit_memory` may be called, and a unit's `memory`, if set, is that of its allocations.
 * - scan: a unit that has a `kernel` keeps it. A scan runs every step once, in order. What a step reads was
 *   written by an earlier step or stage, and is still in memory. Its call tree does that, too (verify_tree.c).
 * - band: units have numbers. A unit that became part of another one is dead, and `into` names that one. Its
 *   ring holds all rows that the next unit reads at a time. Its call tree writes every row before it is read, and
 *   addresses stay inside of their operands.
 * - choose: every unit has a kernel, with an operand for each tensor in memory, in order.
 *
 * `unit_loops` gives a unit other loops and finds their anchor. `plan_count` runs after every phase; a phase that
 * changes units calls it again before it uses counts. */
#ifndef SOL_PLAN_H
#define SOL_PLAN_H

#include "hlir/graph.h"
#include "layers/layers.h"
#include "print/kernel.h"

/* A candidate: a solver and one of its variants. */
struct candidate {
    const struct solver *solver;
    struct variant variant;
};
/* How a cluster is computed. Equal clusters share it. */
struct choice {
    const char *key;             /* hash of loops and memory, 32 digits */
    struct candidate *candidate; /* all that apply, cheapest first */
    int n, chosen;
    struct kernel kernel;
};
/* Knowledge beyond costs: `pick` selects the candidate for a cluster, -1: the cheapest. If that candidate cannot emit a
 * kernel, the next cheapest is used. */
struct tuning_policy {
    int (*pick)(void *user, const struct choice *c);
    void *user;
    const struct plugins *plugins; /* more candidates; NULL: none */
};

#define PLAN_CHAIN 4 /* units of a band, at most */
/* A unit becomes one kernel. loops->tensors[i].user is its graph tensor (NULL for TEMPs and TABLEs). */
struct unit {
    const struct loops *loops;
    struct sol_layer *layer; /* the first layer; gives position and name */
    const char *label;       /* "conv1 + relu" */
    enum program program;
    bool opaque; /* its layer has no loops; without a kernel it runs on the host */
    bool dead;
    bool view;             /* it only copies elements, so it may disappear into its readers */
    bool contraction;      /* its anchor is a sum of products of two tensors */
    int anchor;            /* statement that dominates the work */
    struct memory *memory; /* by tensor of the loops, once laid out */
    struct kernel kernel;
    const struct choice *choice; /* of the kernel, or of most of it for a band; NULL: opaque */
    int64_t repeats; /* how often its kernel runs within one step of the program, on one core; 0: it is that step */
    /* Of several versions, each for some sizes, which follow each other (versions.c): a size that is 1 where this one
     * runs and 0 elsewhere, and the point of the dimensions that its kernel is made for. 0, NULL: it always runs, and
     * the hints. */
    int64_t when;
    const int64_t *point;
    /* Of a version where some dimensions are 1: a size for each dimension, 1 or itself, that its loops and memory have
     * in the dimension's place. NULL: they are as the graph has them. */
    const int64_t *fixed;
    bool helps;                /* it computes something for the version behind it alone, and is no version itself */
    const struct kernel *like; /* of the version for the hints, whose packed weights it should share; NULL: its own */
    int version;               /* 0, 1, ..; they share the number of the first */
    int number;                /* position before bands; equal each time a graph is planned */
    int noperand;              /* of the kernel, in order; work buffers are tensors of the plan only */
    struct sol_tensor **operand;
    bool *written; /* by operand */
};

/* Units that pass a tensor to each other, and how many of them are joined in one kernel. A candidate is a way to join
 * them; its variant.p is {what is shared, how many units}. */
struct plan_chain {
    const struct choice *choice;
    int n;
    const struct unit *unit[PLAN_CHAIN];
};

/* The memory of a tensor. */
struct allocation {
    struct sol_tensor *t;
    struct sol_tensor *root;        /* itself, or the tensor that contains it */
    int64_t alias_at[SOL_MAX_DIMS]; /* the index in root of element 0 */
    int writers, readers;           /* units that write and read it; graph outputs count as readers */
    struct unit *writer;            /* the only one, or the last */
    bool output;                    /* it is a graph output */
    bool needed;                    /* it needs memory: different units write and read it, or it is an output */
    bool parts;                     /* other tensors are parts of it */
    struct unit *sums;              /* computes its partial sums (split_reduction.c); NULL: none */
    bool opaque;                    /* a unit without loops reads or writes it: it has its own row-major memory */
    bool fixed;                     /* row-major: input, output, parameter, constant, packed */
    enum program program;           /* of its writers, if units write it */
    int8_t order[SOL_MAX_DIMS];     /* dimensions, outermost first */
    struct memory memory;
    int64_t elements; /* with halos */
    int64_t when;     /* of a work buffer and a pack, that of the unit that uses it: elsewhere it takes no memory */
    int64_t origin;   /* elements from the start of the memory to element 0 */
};

/* The phase that ran last. */
enum plan_phase {
    PHASE_NONE = -1,
#define X(NAME, name, doc) PHASE_##NAME,
#include "plan/phases.def"
#undef X
    PLAN_PHASES
};

struct plan {
    enum plan_phase phase;
    bool verify; /* verify after every phase */
    struct sol_graph *g;
    struct arena *arena;
    struct arena *scratch; /* while phases run: what one of them needs for itself, and units' loops, which alone are
                            * kept behind it */
    size_t kept;           /* bytes of it that those loops took when they were copied last */
    struct sol_ctx *ctx;
    const struct target *target;
    enum precision precision;
    double once;                        /* as in struct solver_context */
    bool training;                      /* parameters change from step to step */
    const struct solver *forced;        /* key solver; NULL: all are allowed */
    const struct tuning_policy *policy; /* NULL: costs alone decide */
    struct map *known, *versions;       /* choices and versions by key */
    VECTOR(struct plan_chain) chains;   /* those with a choice */
    VECTOR(const struct chain *) bands; /* of band.h, and scans of scan.h: what the verifier looks at; else none */
    VECTOR(const struct scan *) scans;
    int *into; /* by number of a unit: the unit that does its work */
    int numbers;
    const char *key;                /* hash of what is computed, independent of how: 32 digits; NULL without a policy */
    VECTOR(struct unit *) units;    /* in order of execution within each program */
    struct allocation *allocations; /* by tensor id */
    int nallocations;
};

/* solvers.c: all solvers; ends with NULL */
extern const struct solver *const solvers[];
const struct solver *solver_named(const char *name); /* NULL: there is none */
bool solver_prints(const struct solver *s, const struct target *t);
/* The names of those that print, for people. Those that call a library are left out if it is not among `plugins` (NULL:
 * there are none), or not of the device. */
const char *solvers_text(struct arena *a, const struct target *t, const struct plugins *plugins,
                         const struct sol_device_info *info);
/* The solver that the key `solver` names; NULL: none. */
sol_status solver_forced(struct sol_ctx *ctx, const struct solver **out);

/* Plans by costs alone. */
sol_status plan_make(struct sol_graph *g, struct arena *a, const struct target *target, struct plan **out_plan);
/* What the configuration forbids solvers, as text; "": nothing. */
const char *plan_limits(struct sol_ctx *ctx, const struct target *t);
/* Plans a graph, which may be planned several times. `policy` must live as long as the plan; NULL: none. */
sol_status plan_with_policy(struct sol_graph *g, struct arena *a, const struct target *target,
                            const struct tuning_policy *policy, struct plan **out_plan);

/* The same in steps: creates a plan without decisions, and runs the remaining phases up to `last`. */
sol_status plan_start(struct sol_graph *g, struct arena *a, const struct target *target,
                      const struct tuning_policy *policy, struct plan **out_plan);
sol_status plan_run(struct plan *p, enum plan_phase last);
/* NULL: there is no such phase. */
const char *plan_phase_name(int phase, const char **out_doc);
/* verify.c: checks what must hold after the last phase that ran. SOL_ERR_INTERNAL names the phase, the unit and what
 * was expected. */
sol_status plan_verify(struct plan *p);
/* show.c: the plan as text, for people and tests: units with their loops and operands, layouts, chains, kernels. */
void plan_show(const struct plan *p, struct text *out);

struct allocation *plan_allocation(struct plan *p, const struct sol_tensor *t);
/* Adds a tensor to the graph that only the plan uses (a packed weight, a reordered input). */
struct sol_tensor *plan_tensor(struct plan *p, const char *name, enum sol_dtype t, int ndim, const int64_t *shape);
/* Inserts a unit ahead of unit `at`; -1: at the end. */
struct unit *plan_unit(struct plan *p, int at, enum program program, const struct loops *loops, struct sol_layer *layer,
                       const char *label);
bool plan_prepared(const struct allocation *s); /* does `prepare` write it? */
void plan_count(struct plan *p);                /* counts writers and readers */
void unit_loops(struct unit *u, const struct loops *loops);
/* The stride of the dimension around the one at `place` of the order, whose elements take `stride`: longer by one cache
 * line where windows read pixels whose distance is a large power of two, because such pixels lie in few sets of a
 * cache. */
int64_t plan_pitch(const struct allocation *s, int place, int64_t stride);
void plan_place(struct allocation *s); /* layout.c: order (row-major), strides, size of a root */

/* the phases */
#define X(NAME, name, doc) sol_status plan_##name(struct plan *p);
#include "plan/phases.def"
#undef X
const struct loops *plan_tighten(const struct loops *loops); /* tighten.c */
int plan_distribute(struct plan *p, const struct loops *loops,
                    const struct loops **out_part); /* distribute.c: how many; room for all statements */
/* Does one of the statements first .. last - 1 write what the expression reads? Is it a deep sum of products? */
bool plan_reads_written(const struct loops *loops, int32_t node, int first, int last);
bool plan_is_product(const struct loops *loops, int32_t value);
/* Adds units for what can be computed once, at position *at (NULL: at the end), which then follows them; returns what
 * is left of the loops. `like` has their program, layer and label. */
const struct loops *plan_hoist(struct plan *p, const struct loops *loops, const struct unit *like, int *at);
/* forward_views.c: the loops in which the statement that writes tensor `t` replaces reads of it. NULL: that does not
 * pay, or is impossible. gathers: indices that are not affine may become more. */
const struct loops *plan_inlined(struct plan *p, const struct loops *from, int t, const struct loops *writer,
                                 bool gathers);
/* The index variables of an index that is written in mixed radix, 6*A+2*B+C, lowest first. False: it has another form,
 * or does not cover all of `size`. A plain variable is one digit. */
bool plan_radix(const struct loops *loops, int32_t index, int64_t size, struct affine *out);
/* Does an index list have each of these index variables as one digit, so that it determines them? Returns those that it
 * has. False: some dimension is not covered. */
bool plan_digits(const struct loops *loops, int t, int32_t index, uint64_t *out_ivars);
int64_t plan_block_rows(const struct sol_tensor *t); /* split_reduction.c: of pixels that make a part; 0: it has none */
void unit_memory(struct plan *p, struct unit *u);    /* sets u->memory from the layouts */
/* choose.c: how loops in memory are computed; equal ones are emitted once. */
sol_status choose_kernel(struct plan *p, const struct loops *loops, struct memory *memory, int anchor,
                         const struct unit *u, const struct choice **out);
/* The candidates, the cheapest first, made and priced at these points; with `only` just that one. */
sol_status choose_prices(struct plan *p, const struct unit *u, struct size_point at, const struct candidate *only,
                         struct choice *out);
/* Does a version's kernel pack weights in another form than another version's? That costs memory, which must pay. */
#define CHOOSE_PACK_AGAIN 1.1
bool choose_packs_again(const struct plan *p, const struct unit *u, const struct kernel *k, const struct kernel *like);
const char *choose_key(struct plan *p, const struct unit *u); /* of its loops, memory and point */
/* Hints (NULL) or a point, and limits, of these dimensions, for keys. */
const char *plan_dims_text(struct plan *p, uint32_t dims, const int64_t *point);
/* versions.c: makes further versions of the unit at position `at`, behind it, where one kernel cannot serve all sizes.
 */
sol_status plan_versions(struct plan *p, int at);
/* The kernel of the unit at position `at`, a recurrence of `by` steps, needs by >= from (0: any number). A version
 * behind it, without a kernel yet, does what the unit did before (`whole`) at the other sizes, and another one that if
 * there is one step. */
void plan_serve_below(struct plan *p, int at, const struct unit *whole, int64_t by, int64_t from);
/* 1 where `by` is at least `from`, 0 elsewhere. */
int64_t plan_is_from(int64_t by, int64_t from);
/* fixed.c: no size of the loops is negative at a point. The limits of dimensions may be wider than what a network can
 * run with. */
bool plan_possible(const struct loops *loops, const int64_t *at);
/* Where all of some dimensions are 1. False: that cannot be, or there are none. */
struct plan_one {
    int64_t all, when;            /* sizes: the product of the dimensions; 1 where that is 1, else 0 */
    const int64_t *point, *fixed; /* as in struct unit */
};
bool plan_one(struct plan *p, const struct loops *loops, uint32_t dims, struct plan_one *out);
/* The version of a unit for that, without memory and kernel. */
struct unit plan_fixed(struct plan *p, const struct unit *u, const struct plan_one *one);
/* Where sizes vary: is a kernel of this candidate not slower than the chosen one by more than the tuner can gain, at
 * all sizes at which the unit runs? */
bool plan_suits(struct plan *p, const struct unit *u, const struct candidate *c);
/* A number of tasks or bytes of a unit: 0 where another version runs. */
static inline int64_t unit_when(const struct unit *u, int64_t size)
{
    return u->when ? size_mul(size, u->when) : size;
}
/* The solver of its kernel, for reports. */
static inline const char *unit_solver(const struct unit *u)
{
    return u->kernel.source ? u->kernel.solver : "opaque";
}
/* Adds a candidate to a choice with room for it. Candidates are sorted by cost; of equal ones, the first comes
 * first. */
void choice_add(struct choice *c, const struct candidate *cand);
/* fuse_epilogue.c. Do all reads of tensor t in an expression have the same indices, which are distinct plain index
 * variables, exactly `ivars`? Does each of these index variables run over its whole dimension? */
bool plan_reads_plainly(const struct loops *loops, int32_t value, int t, uint64_t ivars, int32_t *out_index);
bool plan_covers(const struct loops *loops, int t, int32_t index);
/* "Conv head" and "relu act": "Conv head + relu act"; equal names occur once: "eq + Cast y". */
const char *plan_join_labels(struct plan *p, const char *a, const char *b);

#endif
