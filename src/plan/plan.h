/* The plan decides which layers run as one kernel, where tensors lie, and which solver computes each kernel.
 *
 * phases.def lists the phases in their order; each is one file. No phase joins units of different programs. These
 * invariants hold from a phase on, and plan_verify checks them:
 *
 * - units: a unit's loops are well-formed. Its operands are tensors of the graph with their types and shapes. Units
 *   that run earlier write all that it reads, and no element is written twice.
 * - alias: a tensor may be part of another one, its root, and lies inside of it. A root is its own root. Before this
 *   phase every tensor is its own root.
 * - split_reductions: no later phase adds units that compute the network's own layers.
 * - layout: every tensor has an order, strides, halos and an origin (`allocation.memory`). From here on `unit_memory`
 *   may be called, and a unit's `memory`, if set, is that of its allocations.
 * - scan: a unit that has a `kernel` keeps it.
 * - band: units have numbers. A unit that became part of another one is dead, and `into` names that one.
 * - choose: every unit has a kernel, with an operand for each tensor in memory, in order.
 *
 * `unit_loops` gives a unit other loops and finds their anchor. `plan_count` runs behind every phase; a phase that
 * changes units calls it again before it asks for counts. */
#ifndef SOL_PLAN_H
#define SOL_PLAN_H

#include "hlir/graph.h"
#include "layers/layers.h"
#include "print/kernel.h"

/* A way to compute a cluster, as a solver offers it. */
struct candidate {
    const struct solver *solver;
    struct variant variant;
};
/* What computes a cluster; equal clusters share it. */
struct choice {
    const char *key;             /* hash of loops and memory, 32 digits */
    struct candidate *candidate; /* all that apply, cheapest first */
    int n, chosen;
    struct kernel kernel;
};
/* What somebody knows beyond costs: `pick` says which candidate shall compute a cluster, -1: the cheapest. If that one
 * cannot print a kernel the next cheapest does. */
struct tuning_policy {
    int (*pick)(void *user, const struct choice *c);
    void *user;
    const struct plugins *plugins; /* candidates beyond our own; NULL: none */
};

#define PLAN_CHAIN 4 /* units of a band, at most */
/* What becomes one kernel. loops->tensors[i].user is the graph tensor behind it (NULL for TEMPs and TABLEs). */
struct unit {
    const struct loops *loops;
    struct sol_layer *layer; /* the first layer in it; gives position and name */
    const char *label;       /* "conv1 + relu" */
    enum program program;
    bool opaque, dead;
    bool move;             /* only moves elements: may vanish into its readers */
    bool contraction;      /* its anchor is a sum of products of two tensors */
    int anchor;            /* statement that dominates the work */
    struct memory *memory; /* by tensor of the loops, once laid out */
    struct kernel kernel;
    const struct choice *choice; /* that made the kernel, or most of it if it is a band; NULL: opaque */
    int64_t repeats; /* its kernel runs so often within one step of the program, on one core; 0: it is that step */
    int number;      /* place before bands; the same however often a graph is planned */
    int noperand;    /* of the kernel, in order; work buffers are tensors that only the plan knows */
    struct sol_tensor **operand;
    bool *written; /* by operand */
};

/* Units that hand each other a tensor, and how many of them are to be one kernel. Candidates are ways to do that:
 * variant.p is {what is shared, how many units}. */
struct plan_chain {
    const struct choice *choice;
    int n;
    const struct unit *unit[PLAN_CHAIN];
};

/* Where a tensor is stored. */
struct allocation {
    struct sol_tensor *t;
    struct sol_tensor *root;        /* itself, or the tensor whose memory it is a part of */
    int64_t alias_at[SOL_MAX_DIMS]; /* the index in root of element 0 */
    int writers, readers;           /* units that write and read it; readers count graph outputs too */
    struct unit *writer;            /* the only one, or the last */
    bool output;                    /* a graph output is this tensor */
    bool needed;                    /* lives in memory: written and read by different units, or an output */
    bool parts;                     /* other tensors are parts of it */
    struct unit *sums;              /* begins what is reduced of it (split_reduction.c); NULL: none does */
    bool opaque;                    /* a unit without loops reads or writes it: a tensor of its own, row-major */
    bool fixed;                     /* row-major: input, output, parameter, constant, packed */
    enum program program;           /* of its writers, where a unit writes it */
    int8_t order[SOL_MAX_DIMS];     /* dimensions, outermost first */
    struct memory memory;
    int64_t elements; /* with halos */
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
    bool verify; /* behind every phase */
    struct sol_graph *g;
    struct arena *arena;
    struct sol_ctx *ctx;
    const struct target *target;
    enum precision precision;
    double once;                        /* as in struct solver_context */
    bool training;                      /* parameters change from step to step */
    const struct solver *forced;        /* key solver; NULL: all may compute */
    const struct tuning_policy *policy; /* NULL: costs alone decide */
    struct map *known;                  /* choices by key */
    VECTOR(struct plan_chain) chains;   /* where there was something to choose */
    int *into;                          /* by a unit's number: that of the unit which does its work */
    int numbers;
    const char *key; /* hash of what is to be computed, whoever computes it: 32 digits; NULL without a policy */
    VECTOR(struct unit *) units;    /* in order of execution within each program */
    struct allocation *allocations; /* by tensor id */
    int nallocations;
};

/* solvers.c: all there are; ends with NULL */
extern const struct solver *const solvers[];
const struct solver *solver_named(const char *name); /* NULL: there is none */
/* The one that the key `solver` names; NULL: none. */
sol_status solver_forced(struct sol_ctx *ctx, const struct solver **out);

/* By costs alone. */
sol_status plan_make(struct sol_graph *g, struct arena *a, const struct target *target, struct plan **out_plan);
/* What keys of the configuration keep from solvers, as a text; "": nothing. */
const char *plan_limits(struct sol_ctx *ctx, const struct target *t);
/* A graph may be planned several times. `policy` lives as long as the plan; NULL: none. */
sol_status plan_with_policy(struct sol_graph *g, struct arena *a, const struct target *target,
                            const struct tuning_policy *policy, struct plan **out_plan);

/* The same in steps: a plan of which nothing is decided yet; the phases up to `last` that did not run yet. */
sol_status plan_start(struct sol_graph *g, struct arena *a, const struct target *target,
                      const struct tuning_policy *policy, struct plan **out_plan);
sol_status plan_run(struct plan *p, enum plan_phase last);
/* NULL: there is none of this number. */
const char *plan_phase_name(int phase, const char **out_doc);
/* verify.c: does what holds behind the phase that ran last? SOL_ERR_INTERNAL names phase, unit, what was expected. */
sol_status plan_verify(struct plan *p);
/* show.c: as text, for people and tests: units with their loops and operands, where tensors lie, chains, kernels. */
void plan_show(const struct plan *p, struct text *out);

struct allocation *plan_allocation(struct plan *p, const struct sol_tensor *t);
/* A new tensor of the graph that only the plan knows (a packed weight, a reordered input). */
struct sol_tensor *plan_tensor(struct plan *p, const char *name, enum sol_dtype t, int ndim, const int64_t *shape);
/* Puts a unit in front of unit `at`, -1: behind all. */
struct unit *plan_unit(struct plan *p, int at, enum program program, const struct loops *loops, struct sol_layer *layer,
                       const char *label);
bool plan_prepared(const struct allocation *s); /* is it written by `prepare`? */
void plan_count(struct plan *p);                /* writers, readers */
void unit_loops(struct unit *u, const struct loops *loops);
void plan_place(struct allocation *s); /* layout.c: order, strides, size of one root */

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
const struct loops *plan_hoist(struct plan *p, const struct loops *loops, enum program program, struct sol_layer *layer,
                               const char *label); /* adds units in front; returns what is left of l */
/* forward_views.c: the loops with what writes tensor `t`, one statement, in place of its reads; NULL: it does not pay
 * or cannot be. */
const struct loops *plan_inlined(struct plan *p, const struct loops *from, int t, const struct loops *writer);
int64_t plan_block_rows(const struct sol_tensor *t); /* split_reduction.c: of pixels that make a part; 0: it has none */
void unit_memory(struct plan *p, struct unit *u);    /* u->memory, from where the tensors lie */
/* choose.c: what computes loops in memory; equal ones are printed once. */
sol_status choose_kernel(struct plan *p, const struct loops *loops, struct memory *memory, int anchor,
                         const struct unit *u, const struct choice **out);
/* Adds a candidate to a choice that has room for it: cheapest first, of equal ones the first. */
void choice_add(struct choice *c, const struct candidate *cand);
/* fuse_epilogue.c. Are all reads of tensor t in an expression the same, by distinct plain index variables that are
 * exactly `ivars`? Does every index variable of such an index run over the whole of its dimension? */
bool plan_reads_plainly(const struct loops *loops, int32_t value, int t, uint64_t ivars, int32_t *out_index);
bool plan_covers(const struct loops *loops, int t, int32_t index);
/* "Conv head" and "relu act": "Conv head + relu act"; layers of one name say it once: "eq + Cast y". */
const char *plan_join_labels(struct plan *p, const char *a, const char *b);
/* A step that zeroes the halos of a tensor's memory, as a kernel. */
sol_status plan_halo_kernel(struct plan *p, const struct allocation *s, struct kernel *out);

#endif
