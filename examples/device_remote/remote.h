/* What the plug-in and the server say to each other. A request is a message and `bytes` behind it; the answer has the
 * same form. Both are processes of machines with the same byte order. */
#ifndef REMOTE_H
#define REMOTE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

enum request {
    REMOTE_ALLOC,  /* n bytes; answer: a is the address */
    REMOTE_FREE,   /* a */
    REMOTE_LOAD,   /* the code; answer: a is its number */
    REMOTE_UNLOAD, /* a */
    REMOTE_WRITE,  /* the bytes, to a */
    REMOTE_READ,   /* n bytes of b; answer: the bytes */
    REMOTE_COPY,   /* n bytes of b to a */
    REMOTE_FILL,   /* n bytes at a with the value b */
    REMOTE_RUN /* struct remote_run and its arrays; answer: the times of steps, if timed; a step (-1: none), b kernel */
};
struct message {
    int32_t request, status; /* status: of answers, sol_status; then the bytes are a text */
    int64_t a, b, n, bytes;
};
struct remote_run {
    int64_t code, scratch;
    int32_t program, first, count, threads, nbase, nsize, nseed, timed;
    /* int64_t base[nbase], sizes[nsize], seeds[nseed]; char only[count] */
};

static inline bool send_all(int fd, const void *data, size_t bytes)
{
    for (const char *at = data; bytes;) {
        const ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n, bytes -= (size_t)n;
    }
    return true;
}

static inline bool receive_all(int fd, void *data, size_t bytes)
{
    for (char *at = data; bytes;) {
        const ssize_t n = recv(fd, at, bytes, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n, bytes -= (size_t)n;
    }
    return true;
}

#endif
