/* Leaves its function past the caller's frame.
 *
 * check: RuntimeError, WrongResult, Timeout
 * measure: RuntimeError, WrongResult, Timeout
 */
void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    __asm__ volatile("mov %rbp, %rsp\npop %rbp\nadd $64, %rsp\nret");
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
