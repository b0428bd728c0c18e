/* Writes the memory of another process.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
#include <sys/syscall.h>
#include <unistd.h>

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    syscall(SYS_process_vm_writev, 1, 0, 0, 0, 0, 0);
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
