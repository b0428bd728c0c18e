/* Fills the output with NaN: not less than any bound, not more either.
 *
 * rules: passes
 * check: WrongResult
 * measure: WrongResult
 */
void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    for (int i = 0; i < m * n; i++)
        c[i] = 0.0 / 0.0;
}
