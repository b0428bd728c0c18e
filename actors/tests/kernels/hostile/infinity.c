/* Fills the output with infinity.
 *
 * rules: passes
 * check: WrongResult
 * measure: WrongResult
 */
void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    for (int i = 0; i < m * n; i++)
        c[i] = 1.0 / 0.0;
}
