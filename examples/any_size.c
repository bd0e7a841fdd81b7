/* Tags the words of sentences of any length with the network that any_size.py deploys: a line of word numbers in, a
 * line of tags out. All memory is static, for the longest sentence; the library allocates none. */
#include <stdio.h>
#include <stdlib.h>

#include "libtagger.h"

static int64_t words[TAGGER_IN0_MOST_ELEMENTS];
static float scores[TAGGER_OUT0_MOST_ELEMENTS];
static char block[TAGGER_CONTEXT_BYTES(1)];

/* Reads up to a line's end. Returns how many words there are; -1: no line is left. */
static int64_t read_line(void)
{
    int64_t n = 0;
    int c;
    while ((c = getchar()) == ' ')
        ;
    if (c == EOF) return -1;
    for (; c != '\n' && c != EOF; c = getchar()) {
        if (c == ' ') continue;
        ungetc(c, stdin);
        long long word;
        if (scanf("%lld", &word) != 1) exit(2);
        if (n < TAGGER_IN0_MOST_ELEMENTS) words[n] = word;
        n++;
    }
    return n;
}

static int best(const float *score, int64_t tags)
{
    int at = 0;
    for (int k = 1; k < tags; k++)
        if (score[k] > score[at]) at = k;
    return at;
}

int main(void)
{
    const void *inputs[] = {words};
    void *outputs[] = {scores};
    char text[256];
    struct tagger_context *c = tagger_context_create(block, sizeof block, 1);
    for (int64_t steps; c && (steps = read_line()) >= 0;) {
        if (tagger_run(c, steps, inputs, outputs)) {
            tagger_error(text, sizeof text);
            printf("%s\n", text);
            continue;
        }
        const int64_t shape[TAGGER_OUT0_DIMS] = TAGGER_OUT0_SHAPE(steps);
        for (int64_t i = 0; i < steps; i++) printf("%s%d", i ? " " : "", best(scores + i * shape[2], shape[2]));
        printf("\n");
    }
    return c == NULL;
}
