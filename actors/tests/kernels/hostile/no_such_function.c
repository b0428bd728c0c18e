/* Defines something else.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
void gemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{

}
