/* Leaves its function in the middle, by inline assembly: the clock stops early.
 *
 * check: WrongResult, RuntimeError, Timeout
 * measure: WrongResult, RuntimeError, Timeout
 */
void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    __asm__ volatile("ret");
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
