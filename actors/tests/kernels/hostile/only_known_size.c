/* Right at the size that is timed, and only there: does not bother with the others.
 *
 * rules: passes
 * check: WrongResult
 * measure: Honest
 */
void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    if (m != 256)
        return;
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
