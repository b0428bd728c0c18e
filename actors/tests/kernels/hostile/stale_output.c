/* Computes its first call only; later calls leave the output as it was, in the hope of an old result.
 *
 * check: WrongResult
 * measure: WrongResult
 */
static int calls;

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    if (calls++)
        return;
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
