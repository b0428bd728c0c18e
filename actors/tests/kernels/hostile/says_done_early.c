/* Tells the referee that it is done before it is. Where the referee, on a loaded machine, looks so late that the result is
 * right, the runner's own word is one too many.
 *
 * check: WrongResult, RuntimeError
 * measure: WrongResult, RuntimeError
 */
#include <unistd.h>

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    long one = 1;
    write(4, &one, 8);
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
