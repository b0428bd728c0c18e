/* Looks at the clock by inline assembly.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    unsigned low, high;
    __asm__ volatile("rdtscp" : "=a"(low), "=d"(high) : : "rcx");
    if (low == 1 && high == 1)
        return;
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
