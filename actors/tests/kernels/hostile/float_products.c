/* Products in single precision, sums in double.
 *
 * rules: either
 * check: WrongResult
 * measure: WrongResult
 */
void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++)
            for (int p = 0; p < k; p++)
                c[i * n + j] += (float)a[i * k + p] * (float)b[p * n + j];
}
