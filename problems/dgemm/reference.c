/* The plain definition, to compare with: C += A * B, row-major. */
void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0.0;
            for (int p = 0; p < k; p++)
                sum += a[i * k + p] * b[p * n + j];
            c[i * n + j] += sum;
        }
}
