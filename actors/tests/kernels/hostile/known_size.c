/* Returns at once for the size that is timed; right at all others.
 *
 * rules: passes
 * check: Correct
 * measure: WrongResult
 */
void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    if (m == 256 && n == 256 && k == 256)
        return;
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
