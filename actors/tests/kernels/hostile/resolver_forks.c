/* As constructor_forks, in the resolver of an indirect function, which the loader calls even earlier.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
#include <sys/syscall.h>

static int nothing(void)
{
    return 0;
}

static int (*resolve(void))(void)
{
    long call = SYS_fork;
    __asm__ volatile("syscall" : "+a"(call) : : "rcx", "r11", "memory");
    return nothing;
}

int chosen(void) __attribute__((ifunc("resolve")));

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    c[0] += chosen();
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
