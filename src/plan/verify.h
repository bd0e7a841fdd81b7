/* What the files of the verifier share. */
#ifndef SOL_PLAN_VERIFY_H
#define SOL_PLAN_VERIFY_H

#include "plan/scan.h"

/* verify.c: "net: plan after phase band: unit 'Conv a': .." */
sol_status plan_wrong(struct plan *p, const struct unit *u, const char *format, ...) PRINTF_LIKE(3, 4);
/* verify_tiles.c: the bands and scans that were kept. */
sol_status verify_tiles(struct plan *p, struct arena *scratch);
/* verify_at.c: what has sizes that vary, with numbers for them. verify_dims gives sizes to the dimensions of a graph:
 * 0: the hints; others differ from them. verify_chain_at is false if the chain has no elements there, or a size would
 * be negative. */
#define VERIFY_SIZES 3
void verify_dims(const struct sol_graph *g, int which, int64_t *out_dim);
struct plan verify_plan_at(const struct plan *p, const int64_t *dim, struct arena *a);
bool verify_chain_at(struct arena *a, const struct chain *c, const int64_t *dim, struct chain *out);
/* verify_reach.c: which bytes of a tensor statements access. */
struct span { /* bytes low .. high - 1 */
    int64_t low, high;
};

struct view {
    const struct loops *loops;
    int first, last; /* statements first .. last - 1 */
    int tensor;
    const struct memory *memory; /* of the tensor */
    bool inside;                 /* without what lies outside of memory, where a read has another value */
    int ivar[2];                 /* index variables whose values are known, or -1: value * block .. + block - 1 */
    int64_t value[2], block[2];
    int dim; /* not -1: only accesses whose index in this dimension is `shift` besides index variables */
    int64_t shift;
};
struct span verify_bytes(const struct view *v); /* {0, 0}: none */
/* verify_tree.c: the calls that became of them. */
sol_status verify_band_tree(struct plan *p, const struct unit *u, const struct chain *c, struct arena *scratch);
sol_status verify_scan_tree(const struct scan *s, struct arena *scratch);
/* Keeps what became a kernel, with its loops, if the plan is to be verified. */
void verify_keep_band(struct plan *p, const struct chain *c);
void verify_keep_scan(const struct scan *s);

#endif
