/* Becomes root in a user namespace of its own.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((constructor)) static void at_load(void)
{
    syscall(SYS_unshare, 0x10000000);
}

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
