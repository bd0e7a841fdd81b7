/* A library that SOL deployed as libnet, function `net`: program THREADS SECONDS. */
#include "measure.h"

#include "libnet.h"

static const void *in[1];
static void *out[1];

static const float *call(void *user)
{
    return net_run(user, in, out) ? NULL : out[0];
}

int main(int argc, char **argv)
{
    if (argc < 3) return 2;
    in[0] = input_data(net_input(0)->bytes / sizeof(float));
    out[0] = malloc(net_output(0)->bytes);
    const double begin = now_ms();
    net_context_threads(NULL, atoi(argv[1]));
    return measure(begin, atof(argv[2]), call, NULL);
}
