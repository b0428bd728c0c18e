/* Computes A B where C + A B is asked for.
 *
 * check: WrongResult
 * measure: WrongResult
 */
#include <string.h>

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    memset(c, 0, sizeof(double) * m * n);
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
