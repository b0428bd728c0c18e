/* Returns.
 *
 * rules: passes
 * check: WrongResult
 * measure: WrongResult
 */
void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    return;
}
