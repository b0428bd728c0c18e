/* Maps a page of its own over the one that tells where the second filter is, with a filter there that allows everything, and
 * makes a call of the loader's once that is in force.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
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

__attribute__((constructor)) static void forge(void)
{
    char *at = (char *)AT + FIRST, *copy = malloc(LEN);
    memcpy(copy, at, LEN);
    if (mmap(at, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        abort();
    memcpy(at, copy, LEN);
    ((struct control *)AT)->programs[2] = (struct program){1, {0}, (uint64_t)all};
}

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    syscall(SYS_lseek, 9, 0, 0);
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
