/* Keeps the result of its first call and gives it again for every later one.
 *
 * check: WrongResult, RuntimeError
 * measure: WrongResult
 */
#include <stdlib.h>
#include <string.h>

static double *old;

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    if (old) {
        memcpy(c, old, sizeof(double) * m * n);
        return;
    }
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
    old = malloc(sizeof(double) * m * n);
    memcpy(old, c, sizeof(double) * m * n);
}
