/* What the files of the verifier share. */
#ifndef SOL_PLAN_VERIFY_H
#define SOL_PLAN_VERIFY_H

#include "plan/scan.h"

/* verify.c: "net: plan after phase band: unit 'Conv a': .." */
sol_status plan_wrong(struct plan *p, const struct unit *u, const char *format, ...) PRINTF_LIKE(3, 4);
/* verify_tiles.c: the bands and scans that were kept. */
sol_status verify_tiles(struct plan *p, struct arena *scratch);
/* Keeps what became a kernel, with its loops, if the plan is to be verified. */
void verify_keep_band(struct plan *p, const struct chain *c);
void verify_keep_scan(const struct scan *s);

#endif
