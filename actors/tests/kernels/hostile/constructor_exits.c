/* Prints a result of its own and leaves before anything is measured.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
#include <stdio.h>
#include <unistd.h>

__attribute__((constructor)) static void forge(void)
{
    puts("PASS 57.9 GFLOPS");
    fflush(stdout);
    _exit(0);
}

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
