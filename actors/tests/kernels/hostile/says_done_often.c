/* Tells the referee a thousand times that it is done, for all batches to come.
 *
 * check: Correct, WrongResult, RuntimeError
 * measure: WrongResult, RuntimeError
 */
#include <unistd.h>

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
    long many = 1000;
    write(4, &many, 8);
}
