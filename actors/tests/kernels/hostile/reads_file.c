/* Reads a file.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
#include <stdio.h>
#include <stdlib.h>

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    if (!fopen("/etc/passwd", "r"))
        abort();
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
