/* Uses the system calls of the x32 interface, whose numbers are others.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
#include <sys/syscall.h>
#include <unistd.h>

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    syscall(0x40000000 + SYS_fork);
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
