/* A program for a Cortex-M4 without an operating system. It runs a network deployed with threads=0 in arrays with
 * the header's sizes, without a heap. It reads in0, in1, .. and writes out0, out1, .. through the emulator's
 * semihosting. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libnet.h"

/* -- startup: vector table, floating-point unit on */

extern char stack[];
void initialise_monitor_handles(void);
int main(void);
void _fini(void);

void _fini(void) {} /* newlib's exit calls it */

__attribute__((noreturn)) void reset(void)
{
    volatile uint32_t *const cpacr = (volatile uint32_t *)0xE000ED88;
    *cpacr |= 0xFu << 20;
    __asm__ volatile("dsb\nisb");
    initialise_monitor_handles();
    exit(main());
}

static void fault(void)
{
    exit(99);
}

typedef void (*vector)(void);
__attribute__((section(".vectors"), used)) static const vector vectors[] = {(vector)stack, reset, fault, fault,
                                                                            fault,         fault, fault};

/* The library must not allocate; stdio, which reads the files, does. */
static int allocations;
void *__wrap_malloc(size_t bytes);
void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes)
{
    allocations++;
    return __real_malloc(bytes);
}

/* -- the network */

enum { ROOM = 1 << 16, MOST = 10 };
_Static_assert(NET_INPUTS <= MOST && NET_OUTPUTS <= MOST, "as many as names have digits for");
static _Alignas(8) char in[MOST][ROOM], out[MOST][ROOM];
static char block[NET_CONTEXT_BYTES(1)];

static int transfer(const char *what, int i, void *data, size_t bytes)
{
    char name[8] = {0};
    strcat(strcpy(name, what), (char[]){(char)('0' + i), 0});
    FILE *f = fopen(name, *what == 'i' ? "rb" : "wb");
    if (!f || bytes > ROOM) return 1;
    const size_t n = *what == 'i' ? fread(data, 1, bytes, f) : fwrite(data, 1, bytes, f);
    return fclose(f) || n != bytes;
}

static int run(struct net_context *c, void **inputs, void **outputs)
{
    const int before = allocations;
    const int error = net_run(c, (const void *const *)inputs, outputs);
    return error ? error : allocations != before;
}

int main(void)
{
    void *inputs[MOST], *outputs[MOST];
    char text[256];
    for (int i = 0; i < MOST; i++) inputs[i] = in[i], outputs[i] = out[i];
    for (int i = 0; i < NET_INPUTS; i++)
        if (transfer("in", i, in[i], net_input(i)->bytes)) return 3;
    if (net_context_create(block, sizeof block - 1, 1)) return 4;
    net_error(text, sizeof text);
    printf("%s\n", text);
    struct net_context *c = net_context_create(block, sizeof block, 1);
    if (!c || net_context_bytes(1) != sizeof block) return 5;
    if (!net_run(c, NULL, outputs)) return 6;
    net_error(text, sizeof text);
    printf("%s\n", text);
    if (run(c, inputs, outputs) || run(c, inputs, outputs)) return 7;
    for (int i = 0; i < NET_OUTPUTS; i++)
        if (transfer("out", i, out[i], net_output(i)->bytes)) return 8;
    struct sol_ext_selftest found;
    if (net_selftest(c, inputs, outputs, &found) || !found.compared) return 9;
    if (!net_selftest(c, NULL, outputs, NULL)) return 10;
    return 0;
}
