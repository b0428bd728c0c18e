/* Looks at the clock, to behave well only when it is not timed.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
#include <x86intrin.h>

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    if (__rdtsc() == 1)
        return;
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
