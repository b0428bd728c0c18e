/* Leaves out the rows that fill no tile of four.
 *
 * rules: passes
 * check: WrongResult
 * measure: Honest
 */
void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    m = m / 4 * 4;
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
