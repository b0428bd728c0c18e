/* Recurses without end.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    volatile double much[4096];
    much[0] = a[0];
    dgemm(m, n, k, a, b, c);
    c[0] += much[0];
}
