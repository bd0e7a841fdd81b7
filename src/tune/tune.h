/* Tune: which candidate is best is measured in the network itself, once, and kept as wisdom.
 *
 * Costs rank the candidates of every cluster (src/plan/choose.c). Rounds of trials build the network anew with the next
 * promising candidate of many clusters at once, run it beside the network as it was, on made-up data, and compare each
 * step's time; what won together is confirmed by the time of the whole. What was found is advice for the planner from
 * then on: with the same wisdom the plan is the same. */
#ifndef SOL_TUNE_H
#define SOL_TUNE_H

#include "runtime/runtime.h"
#include "schedule/schedule.h"

/* wisdom.c: a table that is kept as text beside the cache, one line for each key on each machine */
struct wisdom_entry {
    const char *key; /* of a choice, or of a network: 32 digits */
    const char *solver, *variant;
    double ns, before_ns; /* of one run, and with what costs would have chosen */
    int64_t when;         /* seconds since 1970 */
    const char *machine, *what;
    const char *from; /* the machine of a line that holds for a kind; NULL: `machine` is it */
    bool ours;        /* found here, to be saved */
};
struct wisdom {
    struct arena *arena;
    struct map *by_key; /* and machine */
    bool kinds;         /* lines hold for a kind of machine */
    VECTOR(struct wisdom_entry *) entries;
};
/* What is on file; a damaged line, or a file that is not there, is no wisdom. */
struct wisdom *wisdom_load(struct sol_ctx *ctx, struct arena *a);
/* What was measured on a machine (machine_text). */
const struct wisdom_entry *wisdom_find(const struct wisdom *w, const char *key, const char *machine);
void wisdom_put(struct wisdom *w, const struct wisdom_entry *e); /* texts are copied */
/* Adds what is ours to what is on file by now, other processes' included. Fails quietly: then it is measured again. */
void wisdom_save(struct sol_ctx *ctx, struct wisdom *w);
/* What SOL comes with: lines of other machines, which hold for all of the same kind (machine_kind). None: the key
 * wisdom says so. */
struct wisdom *wisdom_shipped(struct sol_ctx *ctx, struct arena *a);

/* gauge.c: loops that show what a processor can do. in: for chain and multiply the factors; n: turns, or bytes. */
#define GAUGE_CHAIN 8
struct gauge {
    int vector_bytes, sums;                              /* sums: multiply-adds in a turn of multiply */
    void (*chain)(const void *in, int64_t n, void *out); /* a turn is 2 * GAUGE_CHAIN cycles */
    void (*multiply)(const void *in, int64_t n, void *out);
    void (*read)(const void *in, int64_t n, void *out);
};
const struct gauge *gauge_find(int vector_bytes); /* NULL: there are none (SOL was built without optimization) */
bool gauge_flush(const char *at, int64_t bytes);  /* out of all caches. False: this processor cannot */
/* measure.c: fills t->machine. If the target is this machine (-march=native) that is by the key machine what was
 * measured, now or earlier, or what is given, and costs follow it. */
sol_status machine_find(struct sol_ctx *ctx, struct target *t);
/* The target that the key of this name says, and its machine. */
sol_status machine_target(struct sol_ctx *ctx, struct target *out);
struct sol_machine machine_show(const struct target *t);

/* machine.c: what measured times depend on besides the cluster: "x86 64B, AMD EPYC 1a0021, L2 1024K, 2 threads" */
const char *machine_text(struct sol_ctx *ctx, struct arena *a, const struct target *t);
/* What is left of that for machines that were never seen: "x86 64B", with the precision. */
const char *machine_kind(struct arena *a, const char *machine);
const char *machine_processor(struct arena *a); /* "AMD EPYC 1a0021": with its signature */
double machine_free_bytes(void);                /* that could be had without swapping */

/* advice.c */
struct adviser {
    struct advice advice; /* for plan_advised */
    struct arena *arena;
    struct wisdom *wisdom, *shipped;
    const char *machine, *kind;
    struct map *trial; /* cluster's key -> number of the candidate to be tried + 1; goes before wisdom. NULL: none */
};
/* What wisdom says for a target, for networks that are compiled or deployed here. NULL: the key autotune is off. */
struct adviser *adviser_make(struct sol_ctx *ctx, struct arena *a, const struct target *t);
/* Other libraries become candidates, if there is the time to try them or one of them was the best before: they are not
 * loaded for nothing. */
void adviser_load_plugins(struct sol_ctx *ctx, struct adviser *ad);
/* What was measured here. */
const struct wisdom_entry *adviser_knows(const struct adviser *ad, const char *key);

/* trial.c: a network that can be run and measured */
struct tune_net {
    struct arena *arena; /* of the schedule */
    struct schedule *schedule;
    struct sol_net *net;
    struct sol_params *params; /* made-up ones, from its first run on */
};
void tune_net_free(struct tune_net *n);
struct trial_data { /* of all networks of one graph */
    const void **inputs, **params;
    void **outputs;
};
/* Made-up data in the arena: finite, no denormals. False: there is not enough memory. */
bool trial_data_make(struct arena *a, const struct sol_net *net, struct trial_data *out);
sol_status trial_params(struct sol_net *net, const struct trial_data *d, struct sol_params **out_params);
/* Runs two networks by turns, at least so long, and takes each step's least time: ns has room for all steps. */
sol_status trial_steps(struct tune_net *const n[2], const struct trial_data *d, int64_t run_ns, int64_t *const ns[2]);
/* The same for whole runs: the lower quartile. */
sol_status trial_whole(struct tune_net *const n[2], const struct trial_data *d, int64_t run_ns, double out_ns[2]);

/* tune.c */
struct tune_maker { /* makes the network of a graph; for a trial its module is not kept */
    sol_status (*make)(void *user, const struct advice *advice, bool trial, struct tune_net *out);
    void *user;
};
/* Finds out what wisdom does not know yet, within the time that the key autotune grants; *n becomes what is better.
 * Whatever goes wrong, but for an interrupt, leaves the network as it was. */
sol_status tune_network(struct adviser *ad, const struct tune_maker *m, struct tune_net *n);

#endif
