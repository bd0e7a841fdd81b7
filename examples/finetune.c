/* Trains a deployed classifier further, where it runs: no framework, no Python.
 *
 *     sol.deploy(model, "static_lib", {"lib_name": "libnet", "func_name": "net", "path": ".", "training": True},
 * images) cc -O2 finetune.c libnet.a -lm -pthread -o finetune
 *     ./finetune sgd 20 images.f32 labels.i64
 *
 * The files hold one batch, as it lies in memory: the network's input, and for each row of its output the class. Prints
 * the loss of each step, the mean of softmax and cross entropy. A further argument is a file for what the network then
 * predicts, in eval mode. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libnet.h"

static int failed(const char *what)
{
    char text[256];
    net_error(text, sizeof text);
    fprintf(stderr, "%s: %s\n", what, text);
    return 1;
}

static void *read_file(const char *path, size_t bytes)
{
    FILE *f = fopen(path, "rb");
    void *data = malloc(bytes);
    if (f && data && fread(data, 1, bytes, f) != bytes) {
        free(data);
        data = NULL;
    }
    if (f) fclose(f);
    return f ? data : NULL;
}

/* The loss, and its gradient with regard to the scores: (softmax - what is right) / rows. */
static double cross_entropy(const float *scores, const int64_t *labels, int64_t rows, int64_t classes, float *gradient)
{
    double loss = 0;
    for (int64_t i = 0; i < rows; i++) {
        const float *s = scores + i * classes;
        float *g = gradient + i * classes;
        double most = s[0], sum = 0;
        for (int64_t c = 1; c < classes; c++) most = s[c] > most ? s[c] : most;
        for (int64_t c = 0; c < classes; c++) sum += exp(s[c] - most);
        loss += log(sum) + most - s[labels[i]];
        for (int64_t c = 0; c < classes; c++)
            g[c] = (float)((exp(s[c] - most) / sum - (c == labels[i])) / (double)rows);
    }
    return loss / (double)rows;
}

int main(int argc, char **argv)
{
    if (argc < 5) return fprintf(stderr, "usage: %s sgd|adam STEPS IMAGES LABELS\n", argv[0]), 2;
    const struct sol_ext_tensor *output = net_output(0);
    const int64_t rows = output->shape[0], classes = output->shape[1];
    const void *in[] = {read_file(argv[3], net_input(0)->bytes)};
    int64_t *labels = read_file(argv[4], (size_t)rows * sizeof *labels);
    float *scores = malloc(output->bytes), *gradient = malloc(output->bytes);
    struct net_training *t = net_training_create(0);
    if (!in[0] || !labels || !scores || !gradient || !t) return failed("cannot begin");
    for (int step = 0; step < atoi(argv[2]); step++) {
        int error = net_training_forward(t, in, (void *[]){scores});
        if (error) return failed("forward");
        printf("%.9g\n", cross_entropy(scores, labels, rows, classes, gradient));
        error = net_training_backward(t, in, (void *[]){scores}, (const void *[]){gradient});
        if (error) return failed("backward");
        error = strcmp(argv[1], "adam") ? net_training_sgd(t, 0.05, 0.9, 1e-4)
                                        : net_training_adam(t, 1e-2, 0.9, 0.999, 1e-8, 1e-4);
        if (error) return failed("step");
    }
    if (argc > 5) {
        FILE *f = fopen(argv[5], "wb");
        if (!f || net_training_run(t, in, (void *[]){scores})) return failed("predicting");
        fwrite(scores, 1, output->bytes, f);
        fclose(f);
    }
    net_training_free(t);
    free((void *)(size_t)in[0]);
    free(labels);
    free(scores);
    free(gradient);
    return 0;
}
