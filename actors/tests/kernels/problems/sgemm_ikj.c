/* Rows of B in order, which the compiler makes vectors of. */
void sgemm(int m, int n, int k, const float *restrict a, const float *restrict b, float *restrict c)
{
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
