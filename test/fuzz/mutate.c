/* Runs a fuzz target without libFuzzer: all files of the given folders, then copies of them that its mutator changed.
 * The seeds of random numbers are fixed, so every run tries the same inputs. Each input is written to a file before it
 * is tried: the file has the one that crashed. */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_BYTES 8192 /* of an input */
#define MOST_FILES 1024
#define CHANGES 4 /* of one input, at most */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t most);

struct input {
    uint8_t data[MOST_BYTES];
    size_t bytes;
};

static uint64_t state = 1;

static size_t below(size_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return n ? (size_t)(state >> 33) % n : 0;
}

/* Changes that know nothing of the format: a byte, a piece that goes, a piece that is there twice. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t most)
{
    const size_t at = below(bytes), n = below(bytes - at < 16 ? bytes - at : 16);
    switch (bytes ? below(3) : 3) {
    case 0: data[at] = (uint8_t)below(256); return bytes;
    case 1: memmove(data + at, data + at + n, bytes - at - n); return bytes - n;
    case 2:
        if (bytes + n > most) return bytes;
        memmove(data + at + n, data + at, bytes - at);
        return bytes + n;
    default: return 0;
    }
}

/* The files of a folder that are not too long, in the order of their names: what readdir gives differs. */
static int add_folder(const char *folder, struct input *out, int n)
{
    struct dirent **names;
    const int found = scandir(folder, &names, NULL, alphasort);
    if (found < 0) return perror(folder), -1;
    for (int i = 0; i < found; free(names[i++])) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
        FILE *f = n < MOST_FILES && *names[i]->d_name != '.' ? fopen(path, "rb") : NULL;
        if (!f) continue;
        out[n].bytes = fread(out[n].data, 1, MOST_BYTES, f);
        n += fgetc(f) == EOF;
        fclose(f);
    }
    free(names);
    return n;
}

/* The copy has exactly its length, so that a sanitizer finds reads behind it. */
static void try_input(int last, const struct input *in)
{
    if (pwrite(last, in->data, in->bytes, 0) != (ssize_t)in->bytes || ftruncate(last, (off_t)in->bytes)) abort();
    uint8_t *copy = malloc(in->bytes + !in->bytes);
    if (!copy) abort();
    memcpy(copy, in->data, in->bytes);
    LLVMFuzzerTestOneInput(copy, in->bytes);
    free(copy);
}

int main(int argc, char **argv)
{
    if (argc < 4) return fprintf(stderr, "usage: %s COUNT FILE FOLDER...: FILE gets the last input\n", argv[0]), 2;
    struct input *files = calloc(MOST_FILES, sizeof *files), *made = calloc(1, sizeof *made);
    int n = 0;
    for (int i = 3; i < argc && files && n >= 0; i++) n = add_folder(argv[i], files, n);
    const int last =
        open(argv[2], O_WRONLY | O_CREAT | O_TRUNC, 0600); /* stays open: closing it may wait for the disk */
    if (last < 0) return perror(argv[2]), 2;
    if (n <= 0 || !made) return fprintf(stderr, "no inputs\n"), 2;
    for (int i = 0; i < n; i++) try_input(last, &files[i]);
    const long count = atol(argv[1]);
    for (long round = 0; round < count; round++) {
        *made = files[below((size_t)n)];
        for (size_t change = 0, changes = 1 + below(CHANGES); change < changes; change++)
            made->bytes = LLVMFuzzerCustomMutator(made->data, made->bytes, MOST_BYTES, (unsigned)below(UINT32_MAX));
        try_input(last, made);
    }
    printf("%d files and %ld inputs made of them\n", n, count);
    close(last);
    free(made);
    free(files);
    return 0;
}
