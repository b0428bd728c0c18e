/* Attaches to the referee.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
#include <sys/ptrace.h>

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    ptrace(PTRACE_ATTACH, 1, 0, 0);
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
