/* Uses the 32-bit system calls, whose numbers are others.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    int call = 2;
    __asm__ volatile("int $0x80" : "+a"(call) : : "memory");
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
