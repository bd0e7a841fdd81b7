/* Tune measures candidates inside the network, and keeps the results as wisdom.
 *
 * Costs rank the candidates of every cluster (src/plan/choose.c). A round of trials builds the network with the next
 * promising candidates of many clusters, runs it alternately with the original network on synthetic data, and compares
 * the time of each step. The winners together must make the whole network faster. The planner follows wisdom from then
 * on: the same wisdom gives the same plan. */
#ifndef SOL_TUNE_H
#define SOL_TUNE_H

#include "runtime/runtime.h"
#include "schedule/schedule.h"

/* wisdom.c: a table in a text file of the cache folder, with one line for each key and machine */
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
/* Reads the file. Damaged lines are skipped, and a missing file is empty. */
struct wisdom *wisdom_load(struct sol_ctx *ctx, struct arena *a);
/* Finds an entry for a machine (machine_text). */
const struct wisdom_entry *wisdom_find(const struct wisdom *w, const char *key, const char *machine);
void wisdom_put(struct wisdom *w, const struct wisdom_entry *e); /* texts are copied */
/* Adds new entries to the file, which other processes may have changed. Errors are ignored: SOL then measures again. */
void wisdom_save(struct sol_ctx *ctx, struct wisdom *w);
/* The built-in wisdom: lines of other machines, valid for all machines of the same kind (machine_kind). Empty if the
 * key wisdom is `own`. */
struct wisdom *wisdom_shipped(struct sol_ctx *ctx, struct arena *a);

/* gauge.c: loops that measure a processor. in: the factors for chain and multiply, data for read; n: iterations, or
 * bytes. */
#define GAUGE_CHAIN 8
struct gauge {
    int vector_bytes, sums;                              /* sums: multiply-adds in an iteration of multiply */
    void (*chain)(const void *in, int64_t n, void *out); /* an iteration is 2 * GAUGE_CHAIN cycles */
    void (*multiply)(const void *in, int64_t n, void *out);
    void (*read)(const void *in, int64_t n, void *out);
};
const struct gauge *gauge_find(int vector_bytes); /* NULL: none (SOL was built without optimization) */
bool gauge_flush(const char *at, int64_t bytes);  /* flushes memory from all caches. False: not supported */
/* measure.c: fills in t->machine, which the cost model uses. If the target is this machine (-march=native), the values
 * are measured, cached or given, according to the key machine. */
sol_status machine_find(struct sol_ctx *ctx, struct target *t);
/* The target that the key of this name says, and its machine. */
sol_status machine_target(struct sol_ctx *ctx, struct target *out);
struct sol_machine machine_show(const struct target *t);

/* machine.c: what measured times depend on besides the cluster: "x86 64B, AMD EPYC 1a0021, L2 1024K, 2 threads".
 * device: that runs it; NULL: this processor. */
const char *machine_text(struct sol_ctx *ctx, struct arena *a, const struct target *t,
                         const struct sol_device_info *device);
/* The part of it that decides for machines that were never seen: "x86 64B", with the precision. */
const char *machine_kind(struct arena *a, const char *machine);
const char *machine_processor(struct arena *a); /* "AMD EPYC 1a0021": with its signature */
double machine_free_bytes(void);                /* that could be had without swapping */

/* policy.c */
struct wisdom_policy {
    struct tuning_policy policy; /* for plan_with_policy */
    struct arena *arena;
    struct wisdom *wisdom, *shipped;
    const char *machine, *kind;
    struct map *trial; /* cluster's key -> number of the candidate to be tried + 1; goes before wisdom. NULL: none */
};
/* The tuning policy for a target and a device (NULL: this processor), for compiling and deploying networks. NULL: the
 * key autotune is off. */
struct wisdom_policy *wisdom_policy_make(struct sol_ctx *ctx, struct arena *a, const struct target *t,
                                         const struct sol_device_info *device);
/* Makes plug-ins candidates, if there is time to try them or if one of them won before. Otherwise they are not loaded.
 */
void wisdom_policy_load_plugins(struct sol_ctx *ctx, struct wisdom_policy *wp);
/* What was measured here. */
const struct wisdom_entry *wisdom_policy_entry(const struct wisdom_policy *wp, const char *key);

/* trial.c: a network that can be run and measured */
struct tune_net {
    struct arena *arena; /* of the schedule */
    struct schedule *schedule;
    struct sol_net *net;
    struct sol_params *params; /* made-up ones, from its first run on */
};
void tune_net_free(struct tune_net *n);
struct trial_data { /* of all networks of one graph, at one point of its dimensions */
    const void **inputs, **params;
    void **outputs;
    const int64_t *dims; /* NULL: all sizes are fixed */
};
/* Creates synthetic data in the arena for out->dims: finite numbers, no denormals. Parameters that are there stay.
 * False: not enough memory. */
bool trial_data_make(struct arena *a, const struct sol_net *net, struct trial_data *out);
sol_status trial_params(struct sol_net *net, const struct trial_data *d, struct sol_params **out_params);
/* Runs two networks alternately for at least this long, and returns the shortest time of each step in ns. */
sol_status trial_steps(struct tune_net *const n[2], const struct trial_data *d, int64_t run_ns, int64_t *const ns[2]);
/* The same for whole runs: the lower quartile. */
sol_status trial_whole(struct tune_net *const n[2], const struct trial_data *d, int64_t run_ns, double out_ns[2]);

/* places.c */
#define TUNE_MOST_PLACES 5
struct tune_places {
    int n;
    struct trial_data at[TUNE_MOST_PLACES];
};
void tune_places_begin(struct tune_places *p, struct arena *a, const struct sol_graph *g);
/* The number of the place of a point, NULL: of the hints. It is added if there is room, otherwise -1. */
int tune_place(struct tune_places *p, struct arena *a, const struct sol_graph *g, const int64_t *point);
/* Makes the data of all places; parameters are the same. False: not enough memory. */
bool tune_places_data(struct tune_places *p, struct arena *a, const struct sol_net *net);
double tune_place_ns(const struct plan *p, const struct trial_data *at); /* the estimated time of a run there */

/* tune.c */
struct tune_maker { /* makes the network of a graph; for a trial its module is not kept, and it is not resident */
    sol_status (*make)(void *user, const struct tuning_policy *policy, bool trial, struct tune_net *out);
    void *user;
    double kernel_s; /* that it takes to make a kernel, or less */
};
/* Tunes what wisdom does not cover, within the time of the key autotune, on the device that runs it. *n becomes the
 * better network. Errors other than an interrupt leave the network unchanged. Fast tuning leaves resident networks to
 * wisdom, because operators of a framework are such networks. */
sol_status tune_network(struct wisdom_policy *wp, const struct tune_maker *m, struct tune_net *n);

#endif
