/* Trains a deployed classifier further, where it runs: no framework, no Python. examples/finetune.py makes a ResNet-18
 * and pictures for it, and compares the losses with PyTorch's. By hand:
 *
 *     sol.deploy(model, "static_lib", {"lib_name": "libnet", "func_name": "net", "training": True}, images)
 *     cc -O2 finetune.c libnet.a -lm -pthread -o finetune
 *     ./finetune sgd 0.01 20 images.f32 labels.i64
 *
 * The files hold one batch or several, as they lie in memory: the network's input, and for each row of its output the
 * class. A step takes one batch, the next step the next. Prints the loss of each step, the mean of softmax and cross
 * entropy. A further argument is a file for what the network then predicts of the first batch, in eval mode. */
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

/* A file of whole batches; NULL: it is none. The caller's to free. */
static void *read_batches(const char *path, size_t batch_bytes, long *out_batches)
{
    FILE *f = fopen(path, "rb");
    char *data = NULL;
    size_t n = 0, got = batch_bytes;
    while (f && got == batch_bytes) {
        char *more = realloc(data, n + batch_bytes);
        if (!more) break;
        data = more;
        got = fread(data + n, 1, batch_bytes, f);
        n += got;
    }
    if (f) fclose(f);
    if (n && n % batch_bytes == 0 && !got) {
        *out_batches = (long)(n / batch_bytes);
        return data;
    }
    fprintf(stderr, "%s: expected batches of %zu bytes\n", path, batch_bytes);
    free(data);
    return NULL;
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

struct optimizer {
    int adam;
    double rate;
};

static int train_step(struct net_training *t, const struct optimizer *o, const void *image, const int64_t *labels,
                      float *scores, float *gradient)
{
    const struct sol_ext_tensor *output = net_output(0);
    int error = net_training_forward(t, &image, (void *[]){scores});
    if (error) return error;
    printf("%.9g\n", cross_entropy(scores, labels, output->shape[0], output->shape[1], gradient));
    error = net_training_backward(t, &image, (void *[]){scores}, (const void *[]){gradient});
    if (error) return error;
    return o->adam ? net_training_adam(t, o->rate, 0.9, 0.999, 1e-8, 1e-4) : net_training_sgd(t, o->rate, 0.9, 1e-4);
}

static int predict(struct net_training *t, const void *image, float *scores, const char *path)
{
    FILE *f = fopen(path, "wb");
    if (!f) return perror(path), 1;
    const int error = net_training_run(t, &image, (void *[]){scores});
    fwrite(scores, 1, net_output(0)->bytes, f);
    return fclose(f) || error;
}

int main(int argc, char **argv)
{
    if (argc < 6) return fprintf(stderr, "usage: %s sgd|adam RATE STEPS IMAGES LABELS [PREDICTED]\n", argv[0]), 2;
    const struct optimizer optimizer = {.adam = !strcmp(argv[1], "adam"), .rate = atof(argv[2])};
    const struct sol_ext_tensor *input = net_input(0), *output = net_output(0);
    const int64_t rows = output->shape[0], classes = output->shape[1];
    long batches = 0, labelled = 0;
    char *images = read_batches(argv[4], input->bytes, &batches);
    int64_t *labels = read_batches(argv[5], (size_t)rows * sizeof *labels, &labelled);
    if (!images || !labels) return 1;
    if (batches != labelled) return fprintf(stderr, "%ld batches, but labels of %ld\n", batches, labelled), 1;
    for (int64_t i = 0; i < rows * batches; i++)
        if (labels[i] < 0 || labels[i] >= classes) return fprintf(stderr, "a label is no class\n"), 1;
    float *scores = malloc(output->bytes), *gradient = malloc(output->bytes);
    struct net_training *t = net_training_create(0);
    if (!t || !scores || !gradient) return failed("cannot begin");
    for (int step = 0; step < atoi(argv[3]); step++) {
        const long batch = step % batches;
        if (train_step(t, &optimizer, images + (size_t)batch * input->bytes, labels + batch * rows, scores, gradient))
            return failed("training");
    }
    if (argc > 6 && predict(t, images, scores, argv[6])) return failed("predicting");
    net_training_free(t);
    free(images);
    free(labels);
    free(scores);
    free(gradient);
    return 0;
}
