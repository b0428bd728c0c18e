/* Switches the time-stamp counter on again while it is loaded.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
#include <sys/prctl.h>
#include <x86intrin.h>

__attribute__((constructor)) static void on(void)
{
    prctl(PR_SET_TSC, PR_TSC_ENABLE, 0, 0, 0);
}

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    if (__rdtsc() == 1)
        return;
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
