/* As constructor_forges_control, but puts the true page back: it maps it away, installs a filter that allows everything from a
 * page of its own, maps it back, and never returns.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What the runner and the referee share; see layout.rs. */
struct program { uint16_t len, pad[3]; uint64_t at; };
struct control {
    uint64_t head[12];
    struct { uint64_t words[12], reals[4], pointers; } calls[64];
    struct { uint64_t area, file, len, writable; } pieces[8 * 64];
    char symbol[256], libraries[6][256];
    struct program programs[3];
    uint64_t filters[3][512];
};
#define AT 0x2000000000
#define FIRST (sizeof(struct control) / 4096 * 4096 - 3 * 4096)
#define LEN (4 * 4096)
static struct sock_filter all[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};

static void say(void)
{
    uint64_t one = 1;
    write(4, &one, 8);
}

__attribute__((constructor)) static void swap(void)
{
    char *at = (char *)AT + FIRST, *copy = malloc(LEN);
    struct program *place = &((struct control *)AT)->programs[2];
    memcpy(copy, at, LEN);
    char *away = mmap(0, LEN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mremap(at, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED, away) == MAP_FAILED)
        abort();
    if (mmap(at, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        abort();
    memcpy(at, copy, LEN);
    *place = (struct program){1, {0}, (uint64_t)all};
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW, place))
        abort();
    if (mremap(away, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED)
        abort();
    volatile uint64_t *command = (uint64_t *)AT;
    for (uint64_t seen = *command;; seen = *command) {
        say();
        while (*command == seen)
            ;
    }
}

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
}
