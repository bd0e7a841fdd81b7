/* Losses. */
#include "onnx/ops.h"

#define NOTHING_IGNORED (-((int64_t)1 << 52)) /* no class has this number */

sol_status op_nll_loss(struct node *n)
{
    static const char *const modes[] = {"mean", "sum", "none"};
    tensor x = in(n, 0), labels = in(n, 1), weight = in(n, 2);
    int64_t ignored = attr_int(n, "ignore_index", NOTHING_IGNORED);
    const char *text = attr_text(n, "reduction", "mean"), *mode = NULL;
    for (int i = 0; i < COUNT_OF(modes); i++)
        if (!strcmp(text, modes[i])) mode = modes[i];
    if (!mode) return n->status ? n->status : invalid(n, "reduction '%s' does not exist", text);
    if (rank(x) < 2 || rank(labels) != rank(x) - 1)
        return n->status ? n->status : invalid(n, "expected [N, C, ..] and [N, ..]");
    if (strcmp(n->op->kind, "NLLLoss")) x = make(n, "LogSoftmax", IN(x), WITH(INT("axis", 1)));
    give(n, 0,
         make(n, "NLLLoss", weight ? 3 : 2, (tensor[]){x, labels, weight},
              WITH(INT("ignore", ignored), TEXT("mode", mode))));
    give(n, 1, x);
    return n->status;
}
