/* Calls a function that only a library would have.
 *
 * compile: CompileError
 */
void cblas_dgemm(void);

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    cblas_dgemm();
}
