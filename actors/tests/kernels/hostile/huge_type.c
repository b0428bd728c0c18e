/* A type that overflows the compiler's sums.
 *
 * compile: CompileError
 */
static double much[1ul << 60][1ul << 60];

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    c[0] += much[5][5];
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
