/* Runs a library that SOL deployed as libnet with the function `net`: program THREADS SECONDS. */
#include "measure.h"

#include "libnet.h"

enum { MOST = 16 };

static const void *in[MOST];
static void *out[MOST];

static const float *call(void *user)
{
    return net_run(user, in, out) ? NULL : out[0];
}

int main(int argc, char **argv)
{
    if (argc < 3 || net_inputs() > MOST || net_outputs() > MOST) return 2;
    for (int i = 0; i < net_inputs(); i++) {
        const struct sol_ext_tensor *t = net_input(i);
        in[i] = input_data(t->type, t->bytes / (t->type[1] == '6' ? 8 : 4));
    }
    for (int i = 0; i < net_outputs(); i++) out[i] = calloc(1, net_output(i)->bytes + 16);
    const double begin = now_ms();
    net_context_threads(NULL, atoi(argv[1]));
    return measure(begin, atof(argv[2]), call, NULL);
}
